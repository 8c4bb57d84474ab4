"""What a checkpoint's own files say about how it must be used.

Read once at start from `config.json`, sentence-transformers' `modules.json` and pooling config, in the order in which
Transformers and sentence-transformers would apply them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_app.media.spec import read_pixel_spec
from serve_app.messages import PixelSpec
from serve_app.sentence_modules import Dense, SentenceModules, read_modules
from serve_app.settings import ModelSettings
from serve_app.sources import fetch_weights
from serve_app.tasks.absa.labels import TWO_HEAD, AbsaKind, AbsaScheme, read_scheme
from serve_app.vocabulary import Activation, PoolingType, Task

DUAL_ENCODERS = {"clip": "PoolserveClip", "siglip": "PoolserveSiglip"}
"""`model_type` of public dual encoders, and our vLLM architecture that serves each."""
FUSION_RANKER = "fusion_ranker"
"""`model_type` of fusion rankers (tasks/image_rank)."""
_HEADLESS = re.compile(
    r"((?<!Reward)Model|For(MaskedLM|CausalLM|PreTraining|TokenClassification|QuestionAnswering|MultipleChoice|"
    r"NextSentencePrediction|ConditionalGeneration))$"
)
"""Ends of architectures whose weights have no head for a whole text. Names of plugins' own are not judged."""
_OFFSET_POSITIONS = {
    *("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "roberta-prelayernorm", "data2vec-text"),
    *("xmod", "ibert", "longformer"),
}
"""`model_type` of those that count positions from the padding id + 1."""
_SCALED_ROPE = {"linear", "dynamic", "yarn"}
_DECODERS = {"qwen2", "qwen3", "llama", "mistral"}
"""`model_type` of decoders that read tokens and positions only. A CUDA graph of the whole model reads what lies where
its inputs lay when it was captured: vLLM keeps these two there, and not token types."""
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
"""Names of a document's prompt, in the order in which sentence-transformers' `encode_document` looks for them."""


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
        dense: embedding models: linear layers behind the pooling.
        prompts: embedding models: texts put before inputs, by name, as the checkpoint or the settings have them; an
            empty one means that nothing is put there. `find_prompt` knows which names mean the same.
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
    dense: tuple[Dense, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    images: ImageFacts | None = None
    absa: AbsaScheme | None = None

    @property
    def width(self) -> int:
        """Values in a row of a classifier's output; 0 for embedding models."""
        return self.absa.width if self.absa is not None else len(self.labels)

    @property
    def vocab_size(self) -> int | None:
        """Rows of the embedding of tokens; None: the config does not say."""
        size = self.config.get("vocab_size") or (self.config.get("text_config") or {}).get("vocab_size")
        return int(size) if size else None

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
    if settings.task in {Task.RERANK, Task.CLASSIFY}:
        _require_head(config, settings.task)
    if settings.engine.full_cuda_graphs and config.get("model_type") not in _DECODERS:
        raise ValueError(
            f"engine.full_cuda_graphs: for decoders ({', '.join(sorted(_DECODERS))}); this checkpoint is "
            f"'{config.get('model_type')}'"
        )
    modules = SentenceModules()
    if settings.task is Task.EMBED and images is None:
        modules = read_modules(folder, pooling=settings.pooling, for_vllm=settings.engine.kind == "vllm")
    st_config = _json(folder / "config_sentence_transformers.json")
    prompts = settings.prompts if settings.prompts is not None else _prompts(st_config)
    return Checkpoint(
        folder=folder,
        config=config,
        labels=labels if "classifier_from_token" not in config else labels[:1],
        activation=settings.activation or _activation(folder, config, settings.task, len(labels)),
        has_token_types=config.get("type_vocab_size", 0) > 1,
        max_positions=max_positions(config.get("text_config", {}) if images else config),
        normalize=settings.normalize if settings.normalize is not None else (modules.normalize or images is not None),
        pooling=settings.pooling or modules.pooling,
        dense=modules.dense,
        prompts=prompts if settings.task is Task.EMBED else {},
        images=images,
        absa=read_scheme(config, labels) if settings.task is Task.ABSA else None,
    )


def _require_head(config: Mapping[str, Any], task: Task) -> None:
    architecture = str((config.get("architectures") or [""])[0])
    if "classifier_from_token" not in config and _HEADLESS.search(architecture):
        raise ValueError(
            f"source: task {task} needs a classification head (…ForSequenceClassification); this checkpoint is "
            f"'{architecture}'"
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


def _activation(folder: Path, config: Mapping[str, Any], task: Task, labels: int) -> Activation:
    """The rule of Transformers' pipelines and of sentence-transformers' CrossEncoder, which vLLM follows as well."""
    if task is Task.EMBED:
        return Activation.SIGMOID if config.get("model_type") == "siglip" else Activation.NONE
    # A CrossEncoder does not read `problem_type`.
    problem = config.get("problem_type") if task is not Task.RERANK else None
    if problem == "regression":
        return Activation.NONE
    if problem == "multi_label_classification":
        return Activation.SIGMOID
    # Its own config file counts where it has listed its modules, and then first.
    own = _json(folder / "config_sentence_transformers.json") if (folder / "modules.json").exists() else {}
    name = (
        own.get("activation_fn")
        or (config.get("sentence_transformers") or {}).get("activation_fn")
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
    positions = int(config.get("max_position_embeddings") or 0)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if positions < 1 or rope.get("rope_type", rope.get("type")) in _SCALED_ROPE:
        return None  # vLLM works out what a scaled rotation reaches, and refuses more
    if config.get("model_type") in _OFFSET_POSITIONS:
        # 514 embeddings serve 512 tokens. MPNet's padding id is 1 whatever its config says.
        padding = config.get("pad_token_id") if config["model_type"] != "mpnet" else 1
        return positions - (1 if padding is None else int(padding)) - 1
    return positions


def check_positions(settings: ModelSettings, checkpoint: Checkpoint) -> None:
    """Refuses a length that the position embeddings do not reach: one long text would fail the step it is in.

    Raises:
        ValueError: names `max_model_len` and both numbers.
    """
    positions = checkpoint.max_positions
    if positions is not None and settings.max_model_len > positions:
        raise ValueError(f"max_model_len: {settings.max_model_len} is more than the checkpoint's {positions} positions")


def _prompts(st_config: Mapping[str, Any]) -> dict[str, str]:
    """The checkpoint's prompts. An empty one stays: it says that the model wants nothing before such a text."""
    return {str(k): str(v) for k, v in (st_config.get("prompts") or {}).items() if v is not None}


def find_prompt(prompts: Mapping[str, str], name: str) -> str | None:
    """The text that a model wants before a kind of text; None: it has no prompt of that name.

    `document` and `passage` are one kind. Every model takes queries and documents: one that has no prompt for them
    wants nothing before them, as in `encode_query` and `encode_document` of sentence-transformers
    (sentence_transformers/sentence_transformer/model.py, 6.2). Unlike there, an empty prompt gives way to one under the
    kind's other name: it fills in an empty `document`, and saves it beside the `passage` that a model was trained with.
    """
    if name in {"document", "passage"}:
        return next((text for other in (name, *_DOCUMENT_PROMPTS) if (text := prompts.get(other))), "")
    return prompts.get(name, "" if name == "query" else None)
