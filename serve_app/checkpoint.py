"""What a checkpoint's own files say about how it must be used.

Read once at start from `config.json`, sentence-transformers' `modules.json` and pooling config, in the order in which
Transformers and sentence-transformers would apply them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_app.settings import ModelSettings
from serve_app.vocabulary import Activation, PoolingType, Task

_ST_POOLING = {
    "pooling_mode_cls_token": PoolingType.CLS,
    "pooling_mode_mean_tokens": PoolingType.MEAN,
    "pooling_mode_lasttoken": PoolingType.LAST,
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Facts of a checkpoint that the pipeline needs.

    Attributes:
        folder: where config and tokenizer lie.
        config: `config.json`, `hf_overrides` applied.
        labels: label names by output column; empty for embedding models.
        activation: what turns logits into scores.
        has_token_types: whether the model distinguishes first and second text by token type (BERT).
        max_positions: tokens that the position embeddings allow; None if unbounded or unknown.
        normalize: embedding models: whether the checkpoint's own modules end in unit length.
        pooling: embedding models: how the checkpoint's own modules pool; None if they do not say.
        prompts: embedding models: texts put before inputs, by kind.
    """

    folder: Path
    config: Mapping[str, Any]
    labels: tuple[str, ...]
    activation: Activation
    has_token_types: bool
    max_positions: int | None
    normalize: bool = False
    pooling: PoolingType | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)


def read_checkpoint(folder: Path, settings: ModelSettings) -> Checkpoint:
    """Reads `folder`, with the settings' overrides on top.

    Raises:
        ValueError: the files contradict the settings, e.g. a classifier without a classification head.
    """
    config = {**_json(folder / "config.json"), **settings.engine.hf_overrides}
    labels = _labels(config) if settings.task is not Task.EMBED else ()
    if settings.task is Task.RERANK and len(labels) != 1 and "classifier_from_token" not in config:
        raise ValueError(f"source: a reranker has one label; this checkpoint has {len(labels)}")
    normalize, pooling = _sentence_transformers(folder) if settings.task is Task.EMBED else (False, None)
    st_config = _json(folder / "config_sentence_transformers.json")
    prompts = settings.prompts if settings.prompts is not None else _prompts(st_config)
    return Checkpoint(
        folder=folder,
        config=config,
        labels=labels if "classifier_from_token" not in config else labels[:1],
        activation=settings.activation or _activation(config, st_config, settings.task, len(labels)),
        has_token_types=config.get("type_vocab_size", 0) > 1,
        max_positions=_max_positions(config),
        normalize=settings.normalize if settings.normalize is not None else normalize,
        pooling=settings.pooling or pooling,
        prompts=prompts if settings.task is Task.EMBED else {},
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Label names in column order; Transformers defaults to two unnamed ones when the config is silent."""
    names = config.get("id2label")
    if names:
        return tuple(str(names[key]) for key in sorted(names, key=int))
    return tuple(f"LABEL_{i}" for i in range(int(config.get("num_labels", 2))))


def _activation(config: Mapping[str, Any], st_config: Mapping[str, Any], task: Task, labels: int) -> Activation:
    """The rule of Transformers' pipelines and of sentence-transformers' CrossEncoder, which vLLM follows as well."""
    if task is Task.EMBED:
        return Activation.NONE
    problem = config.get("problem_type")
    if problem == "regression":
        return Activation.NONE
    if problem == "multi_label_classification":
        return Activation.SIGMOID
    name = (
        (config.get("sentence_transformers") or {}).get("activation_fn")
        or st_config.get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
        or ""
    ).rsplit(".", 1)[-1]
    named = {"Identity": Activation.NONE, "Sigmoid": Activation.SIGMOID, "Softmax": Activation.SOFTMAX}
    if name:
        if name not in named:
            raise ValueError(f"source: activation '{name}' is not supported; set `activation`")
        return named[name]
    return Activation.SOFTMAX if labels > 1 and task is Task.CLASSIFY else Activation.SIGMOID


def _max_positions(config: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings")
    if positions is None:
        return None
    # RoBERTa counts positions from pad_token_id + 1, so 514 embeddings serve 512 tokens.
    if config.get("model_type") in {"roberta", "xlm-roberta", "camembert"}:
        return int(positions) - int(config.get("pad_token_id", 1)) - 1
    return int(positions)


def _sentence_transformers(folder: Path) -> tuple[bool, PoolingType | None]:
    """(ends in a Normalize module, pooling of the Pooling module) as `modules.json` lists them."""
    path = folder / "modules.json"
    if not path.exists():
        return False, None
    normalize, pooling = False, None
    for module in json.loads(path.read_text(encoding="utf-8")):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Normalize":
            normalize = True
        elif kind == "Pooling":
            modes = _json(folder / str(module["path"]) / "config.json")
            pooling = next((value for key, value in _ST_POOLING.items() if modes.get(key)), None)
            named = str(modes.get("pooling_mode", "")).upper()  # sentence-transformers 6 writes one name
            pooling = pooling or next((p for p in PoolingType if named.startswith(p.value)), None)
    return normalize, pooling


def _prompts(st_config: Mapping[str, Any]) -> dict[str, str]:
    """The checkpoint's prompts, with `document` for those that call it `passage`."""
    prompts = {str(k): str(v) for k, v in (st_config.get("prompts") or {}).items() if v}
    if "passage" in prompts:
        prompts.setdefault("document", prompts["passage"])
    return prompts
