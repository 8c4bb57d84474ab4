"""What the reference reads: from the checkpoint or from who runs it, never from a setting that could be the fault."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from serve_app.settings import QWEN3_RERANKER
from serve_app.tasks.rerank.reference import reference_logits
from serve_app.verify.inputs import InputError, ReferenceSettings
from serve_app.verify.reading import CannotTell, Reading, read_reading
from serve_app.verify.weights import read_saved
from serve_app.vocabulary import Activation, DType, PoolingType
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for


def _read(folder: Path, task: str, told: dict[str, Any] | None = None, **settings: Any) -> Reading:
    return read_reading(settings_for(folder, task, **settings), ReferenceSettings.model_validate(told or {}))


def _differing(reading: Reading) -> set[str]:
    return {fact.name for fact in reading.facts if fact.differs}


def _renamed(folder: Path, target: Path, **config: Any) -> Path:
    shutil.copytree(folder, target)
    path = target / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return target


def test_an_encoder_reads_pairs_whatever_template_the_configuration_has(checkpoints: Checkpoints) -> None:
    reading = _read(checkpoints.bert(), "rerank", template="qwen3-reranker")
    assert reading.template is None
    assert _differing(reading) == {"template", "tokens of one input"}


def test_a_known_reranker_has_its_official_template(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = _renamed(checkpoints.qwen3(), tmp_path / "Qwen3-Reranker-0.6B")
    assert _read(folder, "rerank").template == QWEN3_RERANKER
    assert "template" in _differing(_read(folder, "rerank"))
    assert _read(folder, "rerank", {"template": "none"}).template is None


def test_the_original_weights_are_read_off_their_answer_tokens(checkpoints: Checkpoints, tmp_path: Path) -> None:
    causal = {"architectures": ["Qwen3ForCausalLM"]}
    overrides = {"classifier_from_token": ["no", "yes"], "architectures": ["Qwen3ForSequenceClassification"]}
    settings = {"template": "qwen3-reranker", "engine": {"enforce_eager": True, "hf_overrides": overrides}}
    known = _renamed(checkpoints.qwen3(), tmp_path / "Qwen3-Reranker-0.6B", **causal)
    assert _read(known, "rerank", **settings).answers == ("no", "yes")
    unknown = _renamed(checkpoints.qwen3(), tmp_path / "other", **causal)
    with pytest.raises(CannotTell, match="which tokens are its answers"):
        _read(unknown, "rerank", **settings)


def test_answer_tokens_give_what_a_converted_classifier_gives(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """The conversion that vLLM makes of the original weights: the head's row is that of "yes" minus that of "no"."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    source, causal, converted = checkpoints.qwen3(), tmp_path / "causal", tmp_path / "converted"
    tokenizer, classifier = AutoTokenizer.from_pretrained(source), AutoModelForSequenceClassification
    model = AutoModelForCausalLM.from_pretrained(source)
    head = classifier.from_pretrained(source)
    no, yes = tokenizer.convert_tokens_to_ids(["a", "b"])
    with torch.no_grad():
        head.score.weight.copy_((model.lm_head.weight[yes] - model.lm_head.weight[no])[None])
    for made, folder in ((model, causal), (head, converted)):
        made.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    pairs = [("fox", "the lazy dog"), ("수도", "서울"), ("x", "")]
    got, want = (
        reference_logits(folder, pairs, dtype=DType.FLOAT32, max_length=512, template=QWEN3_RERANKER, answers=answers)
        for folder, answers in ((causal, ("a", "b")), (converted, None))
    )
    assert got == pytest.approx(want, abs=1e-5)
    assert len({round(float(value), 4) for value in want}) == 3


def test_an_unknown_decoders_template_is_asked_for_and_not_taken_from_the_configuration(
    checkpoints: Checkpoints,
) -> None:
    with pytest.raises(CannotTell, match=re.escape("--template qwen3-reranker | none | FILE")):
        _read(checkpoints.qwen3(), "rerank", template="qwen3-reranker")
    assert _read(checkpoints.qwen3(), "rerank").template is None
    told = QWEN3_RERANKER.model_copy(update={"suffix": "!"})
    assert _read(checkpoints.qwen3(), "rerank", {"template": told}, template="qwen3-reranker").template == told
    with pytest.raises(InputError, match="no template 'other'"):
        _read(checkpoints.qwen3(), "rerank", {"template": "other"})


def test_overrides_and_activation_of_the_configuration_do_not_reach_the_reference(checkpoints: Checkpoints) -> None:
    overrides = {"id2label": {"0": "a", "1": "b", "2": "c"}}
    engine = {"enforce_eager": True, "hf_overrides": overrides}
    reading = _read(checkpoints.bert(3), "classify", engine=engine, activation="none")
    assert reading.checkpoint.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert reading.checkpoint.activation is Activation.SOFTMAX
    assert _differing(reading) >= {"labels", "activation"}


def test_pooling_is_the_checkpoints_or_must_be_said(checkpoints: Checkpoints) -> None:
    plain = checkpoints.bert(0)
    with pytest.raises(CannotTell, match=re.escape("--pooling CLS | MEAN | LAST")):
        _read(plain, "embed", pooling="CLS")
    assert _read(plain, "embed", {"pooling": PoolingType.LAST}, pooling="CLS").pooling is PoolingType.LAST
    modules = checkpoints.sentence_transformers(plain, "MEAN", normalize=True)
    reading = _read(modules, "embed", pooling="CLS", normalize=False)
    assert (reading.pooling, reading.normalize) == (PoolingType.MEAN, True)
    assert _differing(reading) >= {"pooling", "unit length"}


def test_prompts_are_the_checkpoints_the_official_ones_or_must_be_said(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    configured = {"query": "x: "}
    plain = checkpoints.sentence_transformers(checkpoints.bert(0), "MEAN", normalize=True)
    with pytest.raises(CannotTell, match="prompts: the configuration has some"):
        _read(plain, "embed", prompts=configured)
    assert _read(plain, "embed", {"prompts": {}}, prompts=configured).prompts == {}
    e5 = shutil.copytree(plain, tmp_path / "multilingual-e5-base")
    assert _read(e5, "embed", prompts=configured).prompts == {"query": "query: ", "document": "passage: "}
    (e5 / "config_sentence_transformers.json").write_text('{"prompts": {"query": "own: "}}')
    reading = _read(e5, "embed", prompts=configured)
    assert reading.prompts == {"query": "own: "}
    assert "prompts" in _differing(reading)
    # sentence-transformers writes empty ones where nobody set any: they say nothing against the official ones
    (e5 / "config_sentence_transformers.json").write_text('{"prompts": {"query": "", "document": ""}}')
    assert "prompts" not in _differing(_read(e5, "embed", prompts={"query": "query: ", "passage": "passage: "}))
    (plain / "config_sentence_transformers.json").write_text('{"prompts": {"query": "", "document": ""}}')
    assert "prompts" not in _differing(_read(plain, "embed", {"prompts": {}}))
    with pytest.raises(CannotTell, match="prompts: the configuration has some"):
        _read(plain, "embed", prompts=configured)


def test_the_window_is_the_checkpoints_least(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoints.bert(), tmp_path / "windows")
    assert _read(folder, "rerank", max_model_len=64).max_length == 512
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    assert _read(folder, "rerank", max_model_len=64).max_length == 128
    assert _read(folder, "rerank", {"max_length": 32}, max_model_len=64).max_length == 32


def test_the_format_that_a_checkpoint_was_saved_in(checkpoints: Checkpoints, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    assert str(read_saved(checkpoints.bert())) == "float32"
    model = AutoModelForSequenceClassification.from_pretrained(checkpoints.bert(), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    assert read_saved(tmp_path).dtype == "bfloat16"
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"dtype": "float32"}))
    assert str(read_saved(tmp_path)) == "bfloat16 (config.json says float32)"
    (tmp_path / "model.safetensors").unlink()
    assert str(read_saved(tmp_path)) == "float32 (config.json; no safetensors files)"
