"""What the reference reads, and from where: never from a setting of the configuration that could itself be the fault.

- Source, revision and task: the configuration; they say which model is meant.
- An LLM reranker's template: `--template` or the first line of inputs; else the official one of a known checkpoint.
- An embedder's prompts: the first line of inputs; else the checkpoint's; else the official ones of a known checkpoint.
- Pooling: `--pooling` or the first line; else the checkpoint's modules. Unit length: its modules.
- Activation, labels, token types, pixels: the checkpoint.
- Tokens that are read: `--max-length`; else the least of the tokenizer's limit, the positions and what
  sentence-transformers' config says. For ABSA the configuration: its windows are part of what an answer is.

Where the configuration states what the checkpoint does not say and nobody knows, there is nothing to compare with, and
`CannotTell` asks for it. A value out of the configuration would agree with itself whatever it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_app.checkpoint import Checkpoint, read_checkpoint
from serve_app.settings import TEMPLATES, ModelSettings, TemplateSettings
from serve_app.sources import fetch_metadata, fetch_weights
from serve_app.verify.inputs import InputError, ReferenceSettings
from serve_app.vocabulary import PoolingType, Task

ENCODERS = {"bert", "roberta", "xlm-roberta", "camembert", "modernbert", "electra", "deberta", "deberta-v2"}
"""Model types that read a pair as two texts with special tokens; others are decoders, which need a prompt."""
_NO_LIMIT = 1_000_000
"""Tokenizers without a limit say a number far above this one."""


@dataclass(frozen=True, slots=True)
class Official:
    """What the model card of a published family says.

    Attributes:
        name: found in the checkpoint's hub id, folder or `_name_or_path`.
        template: an LLM reranker's, by its name in `TEMPLATES`.
        answers: its tokens of "not relevant" and "relevant", where the weights are those of a causal model.
        prompts: an embedder's.
    """

    name: re.Pattern[str]
    template: str | None = None
    answers: tuple[str, str] | None = None
    prompts: Mapping[str, str] | None = None


OFFICIAL = (
    # https://huggingface.co/Qwen/Qwen3-Reranker-0.6B, "Transformers Usage"
    Official(re.compile(r"qwen3-reranker", re.I), template="qwen3-reranker", answers=("no", "yes")),
    # https://huggingface.co/intfloat/multilingual-e5-base, "FAQ" 1; the -instruct ones have others
    Official(
        re.compile(r"(^|[/-])e5-(small|base|large)(-v2|-unsupervised)?/?$", re.I),
        prompts={"query": "query: ", "document": "passage: "},
    ),
)


class CannotTell(InputError):
    """Nothing but the configuration says what the model was trained with; the message names the option to say it by."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of the report: what the reference reads, what the configuration makes the server read, and the source."""

    name: str
    reference: str
    configured: str
    source: str

    @property
    def differs(self) -> bool:
        """Whether both sides are told different things."""
        return self.reference != self.configured


@dataclass(frozen=True, slots=True)
class Reading:
    """What the reference reads.

    Attributes:
        checkpoint: the facts as the checkpoint's own files say them, without the configuration's changes.
        template: an LLM reranker's prompt; None: the pair as two texts.
        answers: with a causal model's weights: its tokens of "not relevant" and "relevant".
        prompts: an embedder's, by kind.
        pooling: an embedder's; None for other tasks and dual encoders.
        normalize: whether an embedder's vectors have unit length.
        max_length: tokens of one input, special tokens included.
        facts: all of it beside the configuration's.
    """

    checkpoint: Checkpoint
    template: TemplateSettings | None
    answers: tuple[str, str] | None
    prompts: Mapping[str, str]
    pooling: PoolingType | None
    normalize: bool
    max_length: int
    facts: tuple[Fact, ...]


def read_reading(settings: ModelSettings, told: ReferenceSettings) -> Reading:
    """Finds out what the reference reads; downloads the checkpoint of a hub id.

    Raises:
        CannotTell: it cannot be found out.
        InputError: what was told is wrong.
        ValueError: the checkpoint cannot be used.
    """
    folder = fetch_metadata(settings.source, settings.revision)
    fetch_weights(settings.source, settings.revision)  # into the same folder
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    official = _official(settings, folder, config)
    causal = settings.task is Task.RERANK and str((config.get("architectures") or [""])[0]).endswith("ForCausalLM")
    answers = official.answers if causal and official is not None else None
    if causal and answers is None:
        raise CannotTell("source: the weights are a causal model's, and which tokens are its answers is not known")
    own = read_checkpoint(folder, _without_changes(settings, answers))
    configured = read_checkpoint(folder, settings)
    template, template_from = _template(settings, told, official, str(config.get("model_type", "")))
    prompts, prompts_from = _prompts(settings, told, official, own)
    pooling, pooling_from = _pooling(settings, told, own)
    normalize = own.normalize if (folder / "modules.json").exists() or own.images else configured.normalize
    max_length, length_from = _max_length(settings, told, folder, own)
    facts = [Fact("tokens of one input", str(max_length), str(settings.max_model_len), length_from)]
    if settings.task is Task.RERANK:
        facts.append(_fact("template", template, settings.resolved_template, template_from))
    if settings.task is Task.EMBED:
        facts.append(_fact("prompts", _effective(prompts), _effective(configured.prompts), prompts_from))
        if pooling is not None:
            facts.append(_fact("pooling", pooling, configured.pooling or "vLLM's default", pooling_from))
        said = "checkpoint" if (folder / "modules.json").exists() or own.images else "configuration"
        facts.append(_fact("unit length", normalize, configured.normalize, said))
    elif settings.task is not Task.ABSA:
        facts.append(_fact("activation", own.activation, configured.activation, "checkpoint"))
    if settings.task in (Task.CLASSIFY, Task.ABSA):
        facts.append(_fact("labels", ", ".join(own.labels), ", ".join(configured.labels), "checkpoint"))
    return Reading(own, template, answers, prompts, pooling, normalize, max_length, tuple(facts))


def _official(settings: ModelSettings, folder: Path, config: Mapping[str, Any]) -> Official | None:
    names = (settings.source, folder.name, str(config.get("_name_or_path", "")))
    return next((known for known in OFFICIAL if any(known.name.search(name) for name in names)), None)


def _without_changes(settings: ModelSettings, answers: tuple[str, str] | None) -> ModelSettings:
    """The settings without anything that changes what the checkpoint means."""
    overrides = {"classifier_from_token": list(answers)} if answers else {}
    unset = dict.fromkeys(("template", "prompts", "pooling", "normalize", "activation"))
    images = settings.images.model_copy(update={"scaled_decoding": False})
    engine = settings.engine.model_copy(update={"hf_overrides": overrides})
    return settings.model_copy(update={**unset, "images": images, "engine": engine})


def _template(
    settings: ModelSettings, told: ReferenceSettings, official: Official | None, model_type: str
) -> tuple[TemplateSettings | None, str]:
    if settings.task is not Task.RERANK:
        return None, ""
    if isinstance(told.template, TemplateSettings):
        return told.template, "told"
    if told.template is not None:
        if told.template == "none":
            return None, "told"
        if told.template not in TEMPLATES:
            raise InputError(f"template: no template '{told.template}'; known: none, {', '.join(TEMPLATES)}")
        return TEMPLATES[told.template], "told"
    if official is not None and official.template is not None:
        return TEMPLATES[official.template], f"official template of {official.name.pattern}"
    if settings.template is not None and model_type not in ENCODERS:
        raise CannotTell(
            "template: the configuration has one, and the checkpoint does not say which one it was trained with. Name "
            f"it: --template {' | '.join(TEMPLATES)} | none | FILE, or a first line of inputs "
            '{"settings": {"template": …}}'
        )
    return (
        None,
        f"a {model_type} checkpoint reads a pair as two texts" if model_type in ENCODERS else "no one names one",
    )


def _prompts(
    settings: ModelSettings, told: ReferenceSettings, official: Official | None, own: Checkpoint
) -> tuple[Mapping[str, str], str]:
    if settings.task is not Task.EMBED:
        return {}, ""
    if told.prompts is not None:
        return told.prompts, "told"
    if any(own.prompts.values()):  # sentence-transformers writes empty ones where nobody set any
        return own.prompts, "checkpoint"
    if official is not None and official.prompts is not None:
        return official.prompts, "official prompts"
    if any((settings.prompts or {}).values()):
        raise CannotTell(
            "prompts: the configuration has some, and the checkpoint does not say which ones it was trained with. Say "
            'so in a first line of inputs: {"settings": {"prompts": {"query": …, "document": …}}}, or {} for none'
        )
    return {}, "checkpoint"


def _pooling(settings: ModelSettings, told: ReferenceSettings, own: Checkpoint) -> tuple[PoolingType | None, str]:
    if settings.task is not Task.EMBED or own.images is not None:
        return None, ""
    if told.pooling is not None:
        return told.pooling, "told"
    if own.pooling is not None:
        return own.pooling, "checkpoint"
    raise CannotTell(
        "pooling: the checkpoint has no modules that say how it pools. Name it: "
        f"--pooling {' | '.join(kind.value for kind in PoolingType)}"
    )


def _max_length(settings: ModelSettings, told: ReferenceSettings, folder: Path, own: Checkpoint) -> tuple[int, str]:
    if told.max_length is not None:
        return told.max_length, "told"
    if settings.task is Task.ABSA:
        return settings.max_model_len, "configuration: its windows"
    limits = [
        own.max_positions,
        _number(folder / "tokenizer_config.json", "model_max_length"),
        _number(folder / "sentence_bert_config.json", "max_seq_length"),
    ]
    found = [limit for limit in limits if limit is not None and limit < _NO_LIMIT]
    return (min(found), "checkpoint") if found else (settings.max_model_len, "configuration; the checkpoint has none")


def _number(path: Path, key: str) -> int | None:
    value = json.loads(path.read_text(encoding="utf-8")).get(key) if path.exists() else None
    return int(value) if isinstance(value, (int, float)) else None


def _fact(name: str, reference: object, configured: object, source: str) -> Fact:
    return Fact(name, _shown(reference), _shown(configured), source)


def _effective(prompts: Mapping[str, str]) -> dict[str, str]:
    """Prompts that put something before a text; a document's under one name."""
    named = {"document" if name == "passage" and "document" not in prompts else name: prompts[name] for name in prompts}
    return {name: text for name, text in named.items() if text}


def _shown(value: object) -> str:
    if isinstance(value, TemplateSettings):
        named = next((name for name, template in TEMPLATES.items() if template == value), None)
        return named or value.model_dump_json()
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
