"""The engine for small encoders loads a checkpoint whole, or not at all."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from serve_app.checkpoint import read_checkpoint
from serve_app.engine.torch_engine import TorchEngine
from serve_app.messages import EngineBatch, EngineOutput
from serve_app.tokenization import TextTokenizer
from serve_app.vocabulary import PoolingTask
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for


async def values(folder: Path, task: str, sequences: Sequence[Sequence[int]], **changes: Any) -> np.ndarray:
    """What an engine answers to the sequences in one request."""
    settings = settings_for(folder, task, **{"engine": {"kind": "torch"}, **changes})
    engine = TorchEngine(settings, read_checkpoint(folder, settings))
    try:
        await engine.start()
        output = await engine.run(
            EngineBatch(
                "r",
                PoolingTask.EMBED if task == "embed" else PoolingTask.CLASSIFY,
                np.concatenate([np.asarray(sequence, np.int32) for sequence in sequences]),
                np.cumsum([0, *map(len, sequences)], dtype=np.int32),
                None,
                time.time() + 60,
            )
        )
    finally:
        await engine.shutdown()
    assert isinstance(output, EngineOutput)
    return output.values


async def test_a_head_that_the_checkpoint_does_not_have_is_not_made_up(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    head = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    folder = checkpoints.changed(checkpoints.bert(0), tmp_path / "c", **head)
    with pytest.raises(ValueError, match=r"no weights.* for .*classifier\.bias, classifier\.weight.*task rerank"):
        await values(folder, "rerank", [[5, 6]])


async def test_weights_of_another_shape_are_refused(checkpoints: Checkpoints, tmp_path: Path) -> None:
    labels = {"id2label": {str(i): str(i) for i in range(5)}, "label2id": {str(i): i for i in range(5)}}
    folder = checkpoints.changed(checkpoints.bert(3), tmp_path / "c", **labels)
    with pytest.raises(ValueError, match=r"another shape, for classifier\.bias, classifier\.weight"):
        await values(folder, "classify", [[5, 6]])


async def test_an_embedder_needs_no_pooler_and_all_of_the_rest(checkpoints: Checkpoints, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "c"
    shutil.copytree(checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True), folder)
    weights = load_file(folder / "model.safetensors")
    kept = {key: value for key, value in weights.items() if not key.startswith("pooler.")}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert (await values(folder, "embed", [[5, 6]])).shape == (1, 64)
    lost = "encoder.layer.1.output.dense.weight"
    save_file({k: v for k, v in kept.items() if k != lost}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=lost):
        await values(folder, "embed", [[5, 6]])


async def test_a_decoder_that_names_no_padding_gets_the_tokenizers(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints.changed(checkpoints.qwen3(3), tmp_path / "c", pad_token_id=None)
    sequences = [[20, 30, 40, 50, 60], [70, 80], [90]]
    together = await values(folder, "classify", sequences)
    for sequence, row in zip(sequences, together, strict=True):
        np.testing.assert_allclose((await values(folder, "classify", [sequence]))[0], row, atol=1e-4)


async def test_a_decoder_without_any_padding_does_not_start(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints.changed(checkpoints.qwen3(3), tmp_path / "c", pad_token_id=None)
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text())
    del content["pad_token"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"does not run sequences of different lengths.*padding token"):
        await values(folder, "classify", [[5, 6]])


@pytest.mark.parametrize("activation", ["activation.Tanh", "linear.Identity", "activation.GELU"])
@pytest.mark.parametrize("bias", [True, False])
async def test_dense_modules_are_run_as_by_sentence_transformers(
    activation: str, bias: bool, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    folder = tmp_path / "c"
    shutil.copytree(checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True), folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules.insert(2, {"idx": 9, "name": "9", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps([{**m, "idx": i, "name": str(i)} for i, m in enumerate(modules)]))
    (folder / "2_Dense").mkdir()
    config = {"in_features": 64, "out_features": 32, "bias": bias}
    config["activation_function"] = f"torch.nn.modules.{activation}"
    (folder / "2_Dense" / "config.json").write_text(json.dumps(config))
    torch.manual_seed(3)
    weights = {"linear.weight": torch.randn(32, 64)} | ({"linear.bias": torch.randn(32)} if bias else {})
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    texts = ["the quick brown fox", "서울의 날씨", "x"]
    tokenizer = TextTokenizer(folder)
    special = tokenizer.single
    got = await values(folder, "embed", [[*special.before, *ids, *special.after] for ids in tokenizer.encode(texts)])
    got /= np.linalg.norm(got, axis=1, keepdims=True)
    want = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert want.shape == (3, 32)
    np.testing.assert_allclose(got, want, atol=1e-5)
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no weights in 2_Dense/model\.safetensors"):
        await values(folder, "embed", [[5, 6]])
