"""What a checkpoint's files say, and what of them is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import CrossEncoder

from serve_app.checkpoint import check_positions, max_positions, read_checkpoint
from serve_app.engine.factory import engine_of
from serve_app.vocabulary import Activation, PoolingType
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for

SIGMOID = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity"}


@pytest.mark.parametrize("task", ["rerank", "classify"])
@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM", "Qwen3ForCausalLM", "BertForTokenClassification"])
def test_a_checkpoint_without_a_classification_head_is_refused(
    task: str, name: str, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    folder = checkpoints.changed(checkpoints.bert(1), tmp_path / "c", architectures=[name])
    with pytest.raises(ValueError, match=rf"source: task {task} needs a classification head .* '{name}'"):
        read_checkpoint(folder, settings_for(folder, task))
    overrides = {"classifier_from_token": ["no", "yes"]}
    settings = settings_for(folder, task, engine={"hf_overrides": overrides})
    assert len(read_checkpoint(folder, settings).labels) == 1


@pytest.mark.parametrize("names", [["Qwen3ForSequenceClassification"], ["JinaVLForRanking"], ["OurRanker"], None])
def test_other_architectures_are_the_engines_to_judge(
    names: list[str] | None, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    folder = checkpoints.changed(checkpoints.bert(1), tmp_path / "c", architectures=names)
    assert read_checkpoint(folder, settings_for(folder, "rerank")).labels == ("LABEL_0",)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("config", "beside"),
    [
        ({}, {}),
        ({"problem_type": "regression"}, {}),
        ({"problem_type": "multi_label_classification"}, {}),
        ({"problem_type": "regression", "sentence_transformers": SIGMOID}, {}),
        ({"problem_type": "regression", "sentence_transformers": IDENTITY}, {}),
        ({"sbert_ce_default_activation_function": IDENTITY["activation_fn"]}, {}),
        ({"sentence_transformers": IDENTITY}, SIGMOID),
        ({}, IDENTITY),
    ],
    ids=str,
)
def test_a_rerankers_activation_is_cross_encoders(
    config: dict[str, Any], beside: dict[str, str], listed: bool, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    """`listed`: with a `modules.json`, as sentence-transformers has written it since its version 5.4."""
    folder = tmp_path / "c"
    if listed:
        CrossEncoder(str(checkpoints.bert(1)), device="cpu").save_pretrained(str(folder))
        assert (folder / "modules.json").exists()
        content = json.loads((folder / "config.json").read_text())
        content = {k: v for k, v in content.items() if k != "sentence_transformers"} | config
        (folder / "config.json").write_text(json.dumps(content))
    else:
        checkpoints.changed(checkpoints.bert(1), folder, **config)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "CrossEncoder", **beside}))
    theirs = type(CrossEncoder(str(folder), device="cpu").activation_fn).__name__
    ours = read_checkpoint(folder, settings_for(folder, "rerank")).activation
    assert ours == {"Sigmoid": Activation.SIGMOID, "Identity": Activation.NONE}[theirs]


def test_a_classifiers_problem_type_counts(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints.changed(checkpoints.bert(3), tmp_path / "c", problem_type="multi_label_classification")
    assert read_checkpoint(folder, settings_for(folder, "classify")).activation is Activation.SIGMOID


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": None}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 0}, 512),
        ({"model_type": "qwen3", "max_position_embeddings": 2048, "rope_parameters": {"rope_type": "default"}}, 2048),
        ({"model_type": "qwen3", "max_position_embeddings": 2048, "rope_scaling": {"type": "yarn"}}, None),
        ({"model_type": "t5"}, None),
    ],
    ids=str,
)
def test_positions(config: dict[str, Any], positions: int | None) -> None:
    assert max_positions(config) == positions


@pytest.mark.parametrize("kind", ["vllm", "torch", "fake"])
def test_no_engine_takes_longer_texts_than_the_positions(kind: str, checkpoints: Checkpoints) -> None:
    folder = checkpoints.mpnet(1)
    for length in (512, 513):
        settings = settings_for(
            folder, "rerank", max_model_len=length, engine={"kind": kind}, max_num_batched_tokens=1024
        )
        checkpoint = read_checkpoint(folder, settings)
        if length == 512:
            check_positions(settings, checkpoint)
            continue
        with pytest.raises(ValueError, match="max_model_len: 513 is more than the checkpoint's 512 positions"):
            engine_of(settings, checkpoint)


def _modules(checkpoints: Checkpoints, folder: Path, *behind: str, **pooling: Any) -> Path:
    """A copy of an embedder with modules behind its Transformer, and values in its Pooling's config."""
    import shutil

    shutil.copytree(checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=False), folder)
    listing = [
        {"idx": i, "path": "1_Pooling" if kind.endswith("Pooling") else str(i) if i else "", "type": kind}
        for i, kind in enumerate(["sentence_transformers.models.Transformer", *behind])
    ]
    (folder / "modules.json").write_text(json.dumps(listing))
    if pooling:
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 64, **pooling}))
    return folder


POOLING, NORMALIZE, DENSE = (f"sentence_transformers.models.{name}" for name in ("Pooling", "Normalize", "Dense"))


@pytest.mark.parametrize("kind", ["vllm", "torch"])
@pytest.mark.parametrize(
    ("behind", "pooling", "message"),
    [
        ((POOLING, "sentence_transformers.models.LSTM"), {}, "a module 'LSTM'; served are Transformer, Pooling"),
        ((NORMALIZE, POOLING), {}, "served is the order"),
        ((POOLING, POOLING), {}, "served is the order"),
        ((POOLING,), {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "by cls and mean together"),
        ((POOLING,), {"pooling_mode": ["cls", "mean"]}, "by cls and mean together"),
        ((POOLING,), {"pooling_mode_mean_sqrt_len_tokens": True}, "pools by 'mean_sqrt_len_tokens'"),
        ((POOLING,), {"pooling_mode": "mean_sqrt_len_tokens"}, "pools by 'mean_sqrt_len_tokens'"),
        ((POOLING,), {"pooling_mode": "max"}, "pools by 'max'"),
    ],
)
def test_modules_that_would_be_passed_over_are_refused(
    kind: str, behind: tuple[str, ...], pooling: dict[str, Any], message: str, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    folder = _modules(checkpoints, tmp_path / "m", *behind, **pooling)
    with pytest.raises(ValueError, match=message):
        read_checkpoint(folder, settings_for(folder, "embed", engine={"kind": kind}))


@pytest.mark.parametrize(
    ("pooling", "want"),
    [
        ({"pooling_mode": "lasttoken"}, PoolingType.LAST),
        ({"pooling_mode": ["cls"]}, PoolingType.CLS),
        ({"pooling_mode_mean_tokens": True}, PoolingType.MEAN),
        ({"include_prompt": True}, PoolingType.MEAN),  # sentence-transformers' default
    ],
    ids=str,
)
def test_pooling_is_read_as_sentence_transformers_does(
    pooling: dict[str, Any], want: PoolingType, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    folder = _modules(checkpoints, tmp_path / "m", POOLING, NORMALIZE, **pooling)
    found = read_checkpoint(folder, settings_for(folder, "embed"))
    assert (found.pooling, found.normalize, found.dense) == (want, True, ())


def test_the_settings_say_how_to_pool_where_the_checkpoint_cannot(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = _modules(checkpoints, tmp_path / "m", POOLING, pooling_mode="max")
    assert read_checkpoint(folder, settings_for(folder, "embed", pooling="CLS")).pooling is PoolingType.CLS


@pytest.mark.parametrize(
    ("change", "vllm", "torch"),
    [
        ({}, None, None),
        ({"activation_function": None}, "vLLM would not run this Dense module", None),
        ({"activation_function": "torch.nn.modules.activation.PReLU"}, "activation .*PReLU", "activation .*PReLU"),
        ({"use_residual": True}, "without a residual only", "without a residual only"),
        ({"module_input_name": "token_embeddings"}, "behind the pooling", "behind the pooling"),
    ],
    ids=str,
)
def test_a_dense_module_is_served_where_it_is_run(
    change: dict[str, Any], vllm: str | None, torch: str | None, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    folder = _modules(checkpoints, tmp_path / "m", POOLING, DENSE, NORMALIZE)
    (folder / "2").mkdir()
    config = {"in_features": 64, "out_features": 32, "activation_function": "torch.nn.modules.activation.Tanh"}
    config = {key: value for key, value in {**config, **change}.items() if value is not None}
    (folder / "2" / "config.json").write_text(json.dumps(config))
    for kind, message in (("vllm", vllm), ("torch", torch)):
        settings = settings_for(folder, "embed", engine={"kind": kind})
        if message is None:
            (dense,) = read_checkpoint(folder, settings).dense
            assert (dense.inputs, dense.outputs, dense.bias, dense.activation) == (64, 32, True, "Tanh")
        else:
            with pytest.raises(ValueError, match=message):
                read_checkpoint(folder, settings)
