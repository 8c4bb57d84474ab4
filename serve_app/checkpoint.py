"""What a checkpoint's own files say about how it must be used.

Read once at start from `config.json`, sentence-transformers' `modules.json` and pooling config, in the order in which
Transformers and sentence-transformers would apply them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_app.media.spec import read_pixel_spec
from serve_app.messages import PixelSpec
from serve_app.settings import ModelSettings
from serve_app.sources import fetch_weights
from serve_app.tasks.absa.labels import TWO_HEAD, AbsaKind, AbsaScheme, read_scheme
from serve_app.vocabulary import Activation, PoolingType, Task

_ST_POOLING = {
    "pooling_mode_cls_token": PoolingType.CLS,
    "pooling_mode_mean_tokens": PoolingType.MEAN,
    "pooling_mode_lasttoken": PoolingType.LAST,
}


DUAL_ENCODERS = {"clip": "PoolserveClip", "siglip": "PoolserveSiglip"}
"""`model_type` of public dual encoders, and our vLLM architecture that serves each."""
FUSION_RANKER = "fusion_ranker"
"""`model_type` of fusion rankers (tasks/image_rank)."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """How a model takes images.

    Attributes:
        spec: how it wants its pixels.
        architecture: vLLM's name of the class that serves it.
        marker: token id that stands for an image.
        key: what sets its cache keys apart from other models'.
        pad_to: tokens to which every text is padded (SigLIP: its pooling is at the last position); None: no padding.
        logit_scale, logit_bias: dual encoders: a pair's logit is scale x cosine + bias.
    """

    spec: PixelSpec
    architecture: str
    marker: int
    key: str
    pad_to: int | None = None
    logit_scale: float = 1.0
    logit_bias: float = 0.0


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
        images: how the model takes images; None: it reads text only.
        absa: aspect-based sentiment models: what the labels mean.
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
    images: ImageFacts | None = None
    absa: AbsaScheme | None = None

    @property
    def width(self) -> int:
        """Values in a row of a classifier's output; 0 for embedding models."""
        return self.absa.width if self.absa is not None else len(self.labels)

    @property
    def plugin_architecture(self) -> str | None:
        """The architecture of ours that serves it; None: vLLM has one."""
        if self.images is not None:
            return self.images.architecture
        return TWO_HEAD if self.absa is not None and self.absa.kind is AbsaKind.TWO_HEADS else None


def read_checkpoint(folder: Path, settings: ModelSettings) -> Checkpoint:
    """Reads `folder`, with the settings' overrides on top.

    Raises:
        ValueError: the files contradict the settings, e.g. a classifier without a classification head.
    """
    config = {**_json(folder / "config.json"), **settings.engine.hf_overrides}
    images = _images(folder, config, settings)
    if settings.task is Task.IMAGE_RANK:
        labels: tuple[str, ...] = ("relevance",)
    else:
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
        max_positions=max_positions(config.get("text_config", {}) if images else config),
        normalize=settings.normalize if settings.normalize is not None else (normalize or images is not None),
        pooling=settings.pooling or pooling,
        prompts=prompts if settings.task is Task.EMBED else {},
        images=images,
        absa=read_scheme(config, labels) if settings.task is Task.ABSA else None,
    )


def _images(folder: Path, config: Mapping[str, Any], settings: ModelSettings) -> ImageFacts | None:
    kind = str(config.get("model_type", ""))
    if settings.task is Task.IMAGE_RANK:
        if kind != FUSION_RANKER:
            raise ValueError(f"source: task image_rank needs a checkpoint of type {FUSION_RANKER}; this is '{kind}'")
    elif settings.task is not Task.EMBED or kind not in DUAL_ENCODERS:
        if kind in {"siglip2", "chinese_clip", "align", "blip"}:
            raise ValueError(f"source: checkpoints of type '{kind}' are not served; served are {list(DUAL_ENCODERS)}")
        return None
    spec = read_pixel_spec(folder, scaled_decoding=settings.images.scaled_decoding)
    text, size = config.get("text_config") or {}, (config.get("vision_config") or {}).get("image_size", 224)
    if spec.output_size != (size, size):
        raise ValueError(f"source: the image processor makes {spec.output_size}, the model takes {(size, size)}")
    source = f"{settings.source}@{settings.revision}" if settings.revision else settings.source
    key = hashlib.blake2b(f"{source}|{settings.version}|{spec.fingerprint}".encode(), digest_size=6).hexdigest()
    if kind == FUSION_RANKER:
        return ImageFacts(spec, "FusionRanker", int(text.get("eos_token_id", 49407)), key)
    weights = fetch_weights(settings.source, settings.revision)
    return ImageFacts(
        spec,
        DUAL_ENCODERS[kind],
        marker=0,
        key=key,
        pad_to=int(text.get("max_position_embeddings", 64)) if kind == "siglip" else None,
        logit_scale=math.exp(read_scalar(weights, "logit_scale")),
        logit_bias=read_scalar(weights, "logit_bias") if kind == "siglip" else 0.0,
    )


def read_scalar(folder: Path, name: str) -> float:
    """A tensor of one element out of a folder's safetensors files.

    Raises:
        ValueError: there is none of that name.
    """
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            if name in file.keys():  # noqa: SIM118  # not a mapping
                return float(file.get_tensor(name).astype("float64").reshape(()))
    raise ValueError(f"source: no tensor '{name}' in the checkpoint's safetensors files")


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
        return Activation.SIGMOID if config.get("model_type") == "siglip" else Activation.NONE
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
    return Activation.SOFTMAX if labels > 1 and task in {Task.CLASSIFY, Task.ABSA} else Activation.SIGMOID


def max_positions(config: Mapping[str, Any]) -> int | None:
    """Tokens that a model's position embeddings allow; None if unbounded or unknown."""
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
