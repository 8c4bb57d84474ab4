"""Every option of the configuration file, with its description. `serve_config.yaml` is the only source of settings.

Each application's `args` block is one of two frozen models: `GatewaySettings` for the gateway, `ModelSettings` for a
model. Unknown keys are refused, and no dtype or limit is implicit.
"""

from __future__ import annotations

import ipaddress
import math
import re
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from serve_app.vocabulary import Activation, Aggregation, DType, Measure, PoolingType, Task

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,95}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


def complaints(error: ValidationError) -> str:
    """What is wrong with settings, in one line: each field's path and why."""
    parts = []
    for item in error.errors(include_url=False, include_input=False):
        path = ".".join(map(str, item["loc"]))
        message = "unknown key" if item["type"] == "extra_forbidden" else item["msg"].removeprefix("Value error, ")
        parts.append(f"{path}: {message}")
    return "; ".join(parts)[:1_000]


class Settings(BaseModel):
    """Base: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AutoscalingSettings(Settings):
    """How the replicas of a deployment follow its work."""

    min_replicas: int = Field(default=1, ge=1, description="Replicas without any work.")
    max_replicas: int = Field(ge=1, description="Replicas at most.")
    target: dict[Measure, float] | None = Field(
        default=None,
        min_length=1,
        description="Work in flight that one replica should have, by measure: `documents` (Gateway: open; IOProcessor: "
        "waiting for tokenizing or in it), `images` or `pixels` (ImageLoader), `tokens` or `documents` "
        "(PoolingEngine). Of several the one that asks for more replicas counts. None: 1,000 documents; 100 documents; "
        "64 images and 50 million pixels; 2 x max_num_batched_tokens tokens.",
    )
    upscale_delay_s: float = Field(
        default=3.0, ge=0, description="Seconds for which more replicas must have been needed all the time."
    )
    downscale_delay_s: float = Field(
        default=300.0,
        ge=0,
        description="Seconds for which fewer replicas must have been enough all the time. Longer than a replica takes "
        "to start, or a trough costs more than it saves.",
    )
    tolerance: float = Field(
        default=0.1, ge=0, lt=1, description="Share of the target by which work in flight may be off without a change."
    )
    utilization: float = Field(
        default=0.7,
        gt=0,
        le=1,
        description="Share of what a full replica was measured to do per second that replicas are planned with.",
    )
    interval_s: float = Field(
        default=1.0,
        ge=0.1,
        description="Seconds between two reports of a replica (Ray Serve's `metrics_interval_s`).",
    )
    window_s: float = Field(
        default=5.0, gt=0, description="Seconds over which reports are averaged (Ray Serve's `look_back_period_s`)."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"max_replicas: {self.max_replicas} is less than min_replicas {self.min_replicas}")
        if self.window_s <= self.interval_s:
            raise ValueError(f"window_s: {self.window_s:g} must be more than interval_s {self.interval_s:g}")
        for measure, value in (self.target or {}).items():
            if value <= 0:
                raise ValueError(f"target.{measure}: must be above 0")
        return self


class ReplicaSettings(Settings):
    """How many copies of a deployment run, and what each reserves."""

    num_replicas: int = Field(default=1, ge=1, description="Replicas, when `autoscaling` is unset.")
    num_cpus: float = Field(
        default=1.0, gt=0, description="CPU cores that Ray reserves per replica; also its number of worker threads."
    )
    autoscaling: AutoscalingSettings | None = Field(
        default=None, description="Lets the replicas follow the work; takes the place of `num_replicas`."
    )
    resources: dict[str, float] = Field(
        default_factory=dict, description="Custom Ray resources per replica, to pin it to a node group."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.autoscaling is not None and "num_replicas" in self.model_fields_set:
            raise ValueError("num_replicas: autoscaling is set as well; min_replicas is where it starts")
        return self

    @property
    def threads(self) -> int:
        """Worker threads of a replica: its CPUs, at least one."""
        return max(1, int(self.num_cpus))

    @property
    def fewest(self) -> int:
        """Replicas that there always are."""
        return self.num_replicas if self.autoscaling is None else self.autoscaling.min_replicas

    @property
    def most(self) -> int:
        """Replicas that there can be."""
        return self.num_replicas if self.autoscaling is None else self.autoscaling.max_replicas

    def check_target(self, field: str, *measures: Measure, **limits: int) -> None:
        """Refuses a target in a measure that the deployment does not have, or that its admission keeps out of reach.

        Args:
            field: the settings' place, for messages.
            measures: what the deployment counts.
            limits: work that one replica takes at most, by measure; at the limit it refuses and the figure stays.
        """
        for measure, value in ((self.autoscaling and self.autoscaling.target) or {}).items():
            if measure not in measures:
                raise ValueError(f"{field}.autoscaling.target.{measure}: counted here: {', '.join(measures)}")
            if value >= limits.get(measure, math.inf):
                raise ValueError(
                    f"{field}.autoscaling.target.{measure}: {value:g} is never passed, since a replica takes "
                    f"{limits[measure]} at most"
                )


class EngineReplicaSettings(ReplicaSettings):
    """Replicas of the PoolingEngine."""

    num_gpus: float = Field(
        default=0.0,
        ge=0,
        description="GPUs per engine replica; a fraction puts several engines on one GPU (0.5: two).",
    )
    split_documents: int = Field(
        default=128,
        ge=0,
        description="A request of more sequences is split over engine replicas, in parts of about this many or more; "
        "0: never. Without effect where there is one replica.",
    )
    split_images: int = Field(
        default=32, ge=1, description="The same for images, which are more work each; only with `split_documents`."
    )


class MetricsSettings(Settings):
    """What a replica counts, and `GET /metrics`."""

    enabled: bool = Field(default=True, description="Count, report, and answer `/metrics`.")
    interval_s: float = Field(
        default=1.0, gt=0, le=10, description="Seconds between a replica's reports; what `/metrics` is late by at most."
    )
    require_key: bool = Field(default=False, description="Gateway: `/metrics` asks for one of `api_keys`.")


class TracingSettings(Settings):
    """OpenTelemetry. Off without an endpoint; nothing of it is imported then."""

    endpoint: str | None = Field(
        default=None, description="OTLP over HTTP, e.g. `http://otel-collector:4318`; None: no traces."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers of the export, e.g. a token; `env:NAME` reads a variable."
    )
    sample_ratio: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Gateway: share of the requests without a `traceparent` that are traced; with one, its flag says.",
    )
    service_name: str = Field(default="poolserve", description="`service.name` of the spans.")


class LogFileSettings(Settings):
    """A file of JSON lines, written by a thread of its own. What it cannot take is dropped and counted."""

    max_queue: int = Field(default=10_000, ge=1, description="Records that wait to be written at most.")
    max_queue_mib: float = Field(default=64.0, gt=0, description="MiB that waiting records hold at most, about.")
    rotate_mib: float = Field(default=128.0, gt=0, description="MiB after which a new file is begun.")
    rotate_s: float = Field(default=3_600.0, gt=0, description="Seconds after which a new file is begun.")
    keep_files: int = Field(default=10, ge=1, description="Files kept per gateway replica; the oldest is removed.")


class AccessLogSettings(LogFileSettings):
    """One JSON line per request, none per document; no texts and no URLs."""

    enabled: bool = Field(default=True, description="Write it.")
    folder: str | None = Field(
        default=None,
        description="Folder of the files; None: where Ray Serve logs (`/tmp/ray/session_latest/logs/serve`).",
    )


class FeatureLogSettings(LogFileSettings):
    """Requests and their scores, for offline work. Opt-in."""

    folder: str | None = Field(default=None, description="Folder of the files; None: no feature log.")
    texts: bool = Field(
        default=False, description="Write texts and URLs as they are; false: their BLAKE3 hashes (32 hex digits)."
    )
    sample_ratio: float = Field(default=1.0, ge=0, le=1, description="Share of the requests that is written.")


class ObservabilitySettings(Settings):
    """What is seen of a replica from outside."""

    metrics: MetricsSettings = Field(default_factory=MetricsSettings, description="Counting and `/metrics`.")
    tracing: TracingSettings = Field(
        default_factory=TracingSettings, description="OpenTelemetry; every application that shall have spans needs it."
    )


class GatewayObservabilitySettings(ObservabilitySettings):
    """What is seen of the gateway, and what it writes down."""

    access_log: AccessLogSettings = Field(default_factory=AccessLogSettings, description="One JSON line per request.")
    feature_log: FeatureLogSettings = Field(default_factory=FeatureLogSettings, description="Requests and scores.")


class AdmissionSettings(Settings):
    """How much work an engine replica takes before it answers 429. A request is taken whole or refused whole."""

    max_documents_in_flight: int = Field(
        default=4_000, ge=1, description="Sequences that one engine replica holds, waiting or running."
    )
    max_tokens_in_flight: int = Field(
        default=1_000_000, ge=1, description="Tokens that one engine replica holds, waiting or running."
    )


class HealthSettings(Settings):
    """When an engine counts as dead. Its replica then leaves the rotation and is replaced."""

    period_s: float = Field(default=2.0, gt=0, description="Seconds between two health checks of a replica.")
    canary_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="Seconds without any output from an engine that has work, or without an answer to the canary "
        "from an idle one, after which it counts as wedged. Must exceed the longest single step.",
    )


class FakeEngineSettings(Settings):
    """What tests ask of the stand-in for an engine."""

    salt: int = Field(default=0, ge=0, description="Goes into every value, so that two versions answer differently.")
    delay_ms: float = Field(default=0.0, ge=0, description="Milliseconds that a batch takes.")
    start_error: str | None = Field(default=None, description="Message with which every start fails; None: it starts.")


class EngineSettings(Settings):
    """How vLLM runs the model."""

    kind: Literal["vllm", "fake"] = Field(
        default="vllm", description="`fake`: a deterministic stand-in without a model, for tests of the path."
    )
    fake_tokens_per_s: float | None = Field(
        default=None, gt=0, description="Speed of the stand-in, one request after the other; None: no time at all."
    )
    enforce_eager: bool = Field(
        default=False, description="No torch.compile and no CUDA graphs: starts faster, runs slower on a GPU."
    )
    cuda_graph_sizes: tuple[int, ...] | None = Field(
        default=None,
        description="Token counts for which CUDA graphs are captured. vLLM stops at 512 by default, so that a request "
        "of 20 pairs (about 1,900 tokens) runs without; None derives sizes up to `cuda_graph_max_tokens`.",
    )
    cuda_graph_max_tokens: int | None = Field(
        default=None, ge=1, description="Largest step, in tokens, that gets a CUDA graph; None: vLLM's default."
    )
    async_scheduling: bool | None = Field(default=None, description="vLLM's `async_scheduling`; None: its default.")
    enable_prefix_caching: bool = Field(
        default=False,
        description="Decoder models only: documents of one query share the computation of the query's prefix.",
    )
    kv_cache_gib: float = Field(
        default=1.0, gt=0, description="CPU only: GiB for the key/value cache (VLLM_CPU_KVCACHE_SPACE)."
    )
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs that share one copy of the model.")
    hf_overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Changes to the checkpoint's config, e.g. those that turn the original Qwen3-Reranker into a "
        "classifier.",
    )
    trust_remote_code: bool = Field(
        default=False, description="Run Python code that the checkpoint ships. Off unless named for this model."
    )
    start_timeout_s: float = Field(
        default=900.0, gt=0, description="Seconds within which the engine must have loaded and answered its canary."
    )
    fake: FakeEngineSettings = Field(
        default_factory=FakeEngineSettings, description="Kind `fake` only: how the stand-in behaves."
    )


class MaterializedSettings(Settings):
    """Checkpoints that `python -m cluster materialize` has put on fast storage."""

    folder: str = Field(description="The folder it filled (`--to`), the same path on every node.")
    check: Literal["sizes", "hashes"] = Field(
        default="sizes",
        description="What an engine compares with the manifest before it loads: `sizes` of all files and hashes of "
        "those up to 1 MiB, or `hashes` of all (about 1 s per GB and core).",
    )
    compile_cache: bool = Field(
        default=True,
        description="Keep vLLM's compile cache in the folder too, by model, versions and GPU; left out, with a "
        "warning, where the folder is read-only.",
    )


class ImageSettings(Settings):
    """How a model that takes images gets them."""

    loader: str = Field(default="images", description="Ray Serve application of the ImageLoader.")
    scaled_decoding: bool = Field(
        default=True,
        description="Let libjpeg decode large JPEGs at a fraction of their size before the resize: up to four times "
        "as fast, scores differ slightly from decoding whole (docs/images.md says by how much).",
    )
    vector_cache: int = Field(
        default=50_000,
        ge=0,
        description="Dual encoders: image vectors that an IOProcessor replica keeps, by content hash.",
    )
    url_ttl_s: float = Field(
        default=600.0, ge=0, description="Seconds for which an IOProcessor takes a URL to hold the image it held."
    )
    device_cache: int = Field(
        default=1_024, ge=1, description="Fusion rankers: images whose features stay on the engine's device."
    )
    host_cache_gib: float = Field(
        default=1.0, ge=0, description="GiB of pixels that the engine keeps, so that an image is not sent again."
    )
    mode: Literal["query", "pair"] = Field(
        default="query",
        description="Fusion rankers: `query` puts a query and up to `images_per_sequence` images into one sequence; "
        "`pair` makes a sequence per image, and allows chunked prefill and prefix caching.",
    )
    images_per_sequence: int = Field(
        default=128, ge=1, description="Fusion rankers in mode `query`: images of one sequence."
    )


class AbsaSettings(Settings):
    """How an aspect-based sentiment model's labels become spans."""

    aggregation: Aggregation = Field(
        default=Aggregation.FIRST,
        description="How a word gets one label from its tokens: its first token's, the mean of its tokens' "
        "probabilities, or those of its surest token; `none`: tokens keep theirs, and a span may end inside a word.",
    )
    threshold: float = Field(
        default=0.0, ge=0, le=1, description="Score below which spans are left out, when a request names none."
    )
    stride: int | None = Field(
        default=None,
        ge=0,
        description="Tokens that neighbouring windows of a long text share, at most half of max_model_len; None: a "
        "quarter of a window.",
    )
    max_windows: int = Field(default=256, ge=1, description="Windows of one text; what is longer is cut, and says so.")


class TemplateSettings(Settings):
    """The prompt of an LLM reranker, in four pieces: prefix, head, document, suffix.

    The prompt is `prefix + head + document_prefix + document + suffix`, where head is `head` with `{instruction}` and
    `{query}` filled in. Prefix, head and suffix are tokenized apart from the document, so that only the document is
    ever cut and the query is tokenized once per request.
    """

    prefix: str = Field(description="Fixed text before everything, e.g. the system turn.")
    head: str = Field(description="Text with the fields {instruction} and {query}.")
    document_prefix: str = Field(default="", description="Joined to the document before tokenizing, e.g. a space.")
    suffix: str = Field(description="Fixed text after the document, e.g. the assistant turn.")
    instruction: str = Field(description="The instruction used when a request brings none.")

    @field_validator("head")
    @classmethod
    def _has_query(cls, head: str) -> str:
        if "{query}" not in head:
            raise ValueError("must contain {query}")
        return head


QWEN3_RERANKER = TemplateSettings(
    # https://huggingface.co/Qwen/Qwen3-Reranker-0.6B, "Transformers Usage": format_instruction, prefix, suffix
    prefix="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    head="<Instruct>: {instruction}\n<Query>: {query}\n<Document>:",
    document_prefix=" ",
    suffix="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction="Given a web search query, retrieve relevant passages that answer the query",
)

TEMPLATES: dict[str, TemplateSettings] = {"qwen3-reranker": QWEN3_RERANKER}
"""Templates that a configuration can name instead of spelling them out."""


class ModelSettings(Settings):
    """One version of one model: the `args` of its application."""

    name: str = Field(description="The name that clients send as `model`.")
    version: str = Field(description="The version; clients can ask for `name@version`. Quote it in YAML.")
    source: str = Field(
        description="Where the checkpoint is: a path, a hub id (`BAAI/bge-reranker-v2-m3`), or `package:NAME/path` "
        "for weights that a Python package ships. With `materialized` also a URL of an object store (`s3://…`)."
    )
    revision: str | None = Field(default=None, description="Hub revision (commit, tag or branch).")
    materialized: MaterializedSettings | None = Field(
        default=None,
        description="Load from the folder that `python -m cluster materialize` filled, and refuse what differs from "
        "its manifest; None: from `source` itself.",
    )
    task: Task = Field(description="What the model was trained for: rerank, embed, image_rank, classify or absa.")
    device: Literal["cpu", "cuda"] = Field(description="Where the engine runs.")
    dtype: DType = Field(description="Number format of weights and activations.")
    max_model_len: int = Field(ge=2, description="Tokens of one input, special tokens included.")
    max_num_seqs: int = Field(ge=1, description="Sequences in one step of the engine.")
    max_num_batched_tokens: int = Field(ge=2, description="Tokens in one step of the engine.")
    gpu_memory_utilization: float | None = Field(
        default=None,
        gt=0,
        le=0.9,
        description="Share of the GPU's memory that one engine takes; required on cuda. A GPU's engines together must "
        "stay at or below 0.90.",
    )
    template: str | TemplateSettings | None = Field(
        default=None, description="LLM rerankers: the prompt template, by name (`qwen3-reranker`) or spelled out."
    )
    prompts: dict[str, str] | None = Field(
        default=None,
        description="Embedding models: text put before each input, by kind (`query`, `document`); None: the "
        "checkpoint's own. E5 needs {query: 'query: ', document: 'passage: '}.",
    )
    pooling: PoolingType | None = Field(default=None, description="Embedding models; None: as the checkpoint says.")
    normalize: bool | None = Field(
        default=None, description="Embedding models: unit length; None: as the checkpoint says."
    )
    activation: Activation | None = Field(
        default=None, description="What turns logits into scores; None: as the checkpoint says."
    )
    io_processor_plugin: str | None = Field(
        default=None,
        description="vLLM IO Processor plugin (`vllm.io_processor_plugins`) that answers `POST /pooling` with `data` "
        "for this model; None: the one that the checkpoint's config names, if any. A plugin is code and runs in the "
        "IOProcessor.",
    )
    absa: AbsaSettings = Field(
        default_factory=AbsaSettings, description="Aspect-based sentiment models: how labels become spans."
    )
    images: ImageSettings = Field(
        default_factory=ImageSettings, description="Models that take images: how they get them."
    )
    engine: EngineSettings = Field(default_factory=EngineSettings, description="How vLLM runs the model.")
    admission: AdmissionSettings = Field(
        default_factory=AdmissionSettings, description="How much work an engine replica takes."
    )
    health: HealthSettings = Field(default_factory=HealthSettings, description="When an engine counts as dead.")
    observability: ObservabilitySettings = Field(
        default_factory=ObservabilitySettings, description="Metrics and traces."
    )
    io_processor: ReplicaSettings = Field(
        default_factory=ReplicaSettings, description="Replicas of the IOProcessor (tokenizing, post-processing)."
    )
    pooling_engine: EngineReplicaSettings = Field(
        default_factory=EngineReplicaSettings, description="Replicas of the PoolingEngine (vLLM)."
    )

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise ValueError("letters, digits and . _ / - only, 96 at most, no @")
        return value

    @field_validator("version")
    @classmethod
    def _version(cls, value: str) -> str:
        if not VERSION.fullmatch(value):
            raise ValueError("letters, digits and . _ - only, 48 at most")
        if value == LATEST:
            raise ValueError(f"'{LATEST}' cannot be a version's name: clients ask for name@{LATEST}")
        return value

    @field_validator("template")
    @classmethod
    def _template(cls, value: str | TemplateSettings | None) -> str | TemplateSettings | None:
        if isinstance(value, str) and value not in TEMPLATES:
            raise ValueError(f"no template of that name; known: {', '.join(TEMPLATES)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.device == "cuda":
            if self.gpu_memory_utilization is None:
                raise ValueError("gpu_memory_utilization: required on cuda")
            if self.pooling_engine.num_gpus <= 0:
                raise ValueError("pooling_engine.num_gpus: must be above 0 on cuda")
        elif self.pooling_engine.num_gpus > 0:
            raise ValueError("pooling_engine.num_gpus: device is cpu")
        if self.max_model_len > self.max_num_batched_tokens:
            raise ValueError(
                f"max_num_batched_tokens: {self.max_num_batched_tokens} is less than max_model_len "
                f"{self.max_model_len}; an input must fit one step"
            )
        if self.template is not None and self.task is not Task.RERANK:
            raise ValueError("template: only a reranker has one")
        for field, task in (("prompts", Task.EMBED), ("pooling", Task.EMBED), ("normalize", Task.EMBED)):
            if getattr(self, field) is not None and self.task is not task:
                raise ValueError(f"{field}: only for task {task}")
        if self.absa != AbsaSettings() and self.task is not Task.ABSA:
            raise ValueError("absa: only for task absa")
        if self.absa.stride is not None and 2 * self.absa.stride > self.max_model_len:
            raise ValueError(f"absa.stride: {self.absa.stride} is more than half of max_model_len {self.max_model_len}")
        self.io_processor.check_target("io_processor", Measure.DOCUMENTS)
        self.pooling_engine.check_target(
            "pooling_engine",
            Measure.TOKENS,
            Measure.DOCUMENTS,
            tokens=self.admission.max_tokens_in_flight,
            documents=self.admission.max_documents_in_flight,
        )
        return self

    @property
    def application(self) -> str:
        """Name of the model's Ray Serve application."""
        return f"{self.name.replace('/', '--')}-{self.version}"

    @property
    def markers_per_sequence(self) -> int:
        """Images of one sequence at most."""
        return self.images.images_per_sequence if self.task is Task.IMAGE_RANK and self.images.mode == "query" else 1

    @property
    def images_per_step(self) -> int:
        """New images that one step of the engine encodes at most; a sequence's must fit."""
        return max(self.markers_per_sequence, 64)

    @property
    def resolved_template(self) -> TemplateSettings | None:
        """The template itself, looked up if the configuration names it."""
        return TEMPLATES[self.template] if isinstance(self.template, str) else self.template


class ImageLoaderSettings(Settings):
    """The `args` of the images' application, whose ImageLoader all models share. Limits are per replica."""

    allow_urls: bool = Field(default=True, description="Fetch images by URL; false: only bytes in the request.")
    allow_hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names that may have private addresses, e.g. an image store in the cluster; `*.example.org` "
        "matches names below it. Others need a public address.",
    )
    allow_networks: tuple[str, ...] = Field(
        default=(), description="Networks in CIDR form (`10.1.0.0/16`) whose addresses count as public."
    )
    allow_ports: tuple[int, ...] = Field(default=(80, 443), description="Ports that a URL may name; empty: any.")
    max_redirects: int = Field(default=3, ge=0, le=10, description="Redirects followed per image; each is checked.")
    timeout_ms: int = Field(
        default=1_500, ge=1, description="Milliseconds for one image from the look-up of its name to its last byte."
    )
    connections: int = Field(default=100, ge=1, description="Connections in all.")
    connections_per_host: int = Field(default=32, ge=1, description="Connections to one host.")
    max_image_mib: float = Field(default=10.0, gt=0, description="MiB of one image as it is sent or fetched.")
    max_image_pixels: int = Field(
        default=50_000_000, ge=1, description="Pixels of one image; read from its header before it is decoded."
    )
    max_pixels_in_flight: int = Field(
        default=100_000_000,
        ge=1,
        description="Pixels being decoded at the same time; others wait. About 4 bytes of memory each.",
    )
    max_mib_in_flight: float = Field(
        default=256.0, gt=0, description="MiB of fetched and not yet decoded images; further fetches wait."
    )
    cache_mib: float = Field(default=256.0, ge=0, description="MiB of decoded pictures kept; 0: none.")
    cache_ttl_s: float = Field(
        default=600.0, gt=0, description="Seconds for which a URL is taken to hold the same image."
    )
    user_agent: str = Field(default="poolserve", description="`User-Agent` of fetches.")
    observability: ObservabilitySettings = Field(
        default_factory=ObservabilitySettings, description="Metrics and traces."
    )
    replicas: ReplicaSettings = Field(default_factory=ReplicaSettings, description="Replicas of the ImageLoader.")

    @field_validator("allow_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_image_pixels > self.max_pixels_in_flight:
            raise ValueError("max_pixels_in_flight: less than max_image_pixels, so the largest image never fits")
        if self.max_image_mib > self.max_mib_in_flight:
            raise ValueError("max_mib_in_flight: less than max_image_mib, so the largest image never fits")
        self.replicas.check_target("replicas", Measure.IMAGES, Measure.PIXELS)
        return self


class GrpcSettings(Settings):
    """The gateway's gRPC server. Each replica of the gateway listens for itself; those of a node share the port."""

    host: str = Field(default="127.0.0.1", description="Address to listen on; `0.0.0.0` or `[::]` for all.")
    port: int = Field(default=9000, ge=1, le=65_535, description="Port to listen on.")
    max_connection_age_s: float = Field(
        default=300.0,
        gt=0,
        description="Seconds after which a connection is asked to end, its calls undisturbed, so that clients spread "
        "over the replicas again.",
    )
    drain_s: float = Field(
        default=10.0, ge=0, description="Seconds that calls under way get when a replica of the gateway ends."
    )


class GatewaySettings(Settings):
    """The `args` of the gateway's application."""

    max_body_mib: float = Field(default=16.0, gt=0, description="MiB of a request's body; checked while reading.")
    max_documents: int = Field(default=1_000, ge=1, description="Documents, or inputs, of one request.")
    max_images: int = Field(default=200, ge=0, description="Images of one request; 0: none are taken.")
    max_documents_in_flight: int = Field(
        default=4_000,
        ge=1,
        description="Documents that one gateway replica has under way per model version; more gets 429 at once.",
    )
    default_timeout_ms: int = Field(
        default=30_000, ge=1, description="Deadline of a request without `X-Request-Timeout-Ms`."
    )
    max_timeout_ms: int = Field(default=300_000, ge=1, description="Longest deadline that a client can ask for.")
    api_keys: tuple[str, ...] = Field(
        default=(), description="Accepted Bearer keys; empty: no key is asked for. `env:NAME` reads a variable."
    )
    grpc: GrpcSettings | None = Field(
        default=None, description="gRPC beside HTTP, with the same limits and keys; None: HTTP only."
    )
    observability: GatewayObservabilitySettings = Field(
        default_factory=GatewayObservabilitySettings, description="Metrics, traces and logs."
    )
    ui: bool = Field(default=True, description="Serve the page at `/ui`. It needs no key; what it calls does.")
    replicas: ReplicaSettings = Field(default_factory=ReplicaSettings, description="Replicas of the gateway.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_documents > self.max_documents_in_flight:
            raise ValueError("max_documents_in_flight: less than max_documents, so the largest request never fits")
        if self.default_timeout_ms > self.max_timeout_ms:
            raise ValueError("default_timeout_ms: more than max_timeout_ms")
        self.replicas.check_target("replicas", Measure.DOCUMENTS, documents=self.max_documents_in_flight)
        return self


class VersionRoute(Settings):
    """One version in the routing table."""

    application: str = Field(description="Ray Serve application that serves it.")
    task: Task = Field(description="The model's task; says which routes it answers.")
    weight: float = Field(
        default=1.0, ge=0, allow_inf_nan=False, description="Share of the traffic that names no version."
    )


LATEST = "latest"
"""`name@latest`; no version can be called that."""


class StickySettings(Settings):
    """Where a request's key is. Requests with the same key get the same version for as long as the weights allow."""

    header: str = Field(
        default="X-Sticky-Key", pattern=r"^[A-Za-z0-9-]{1,64}$", description="Header that holds the key."
    )
    field: Literal["user", "client_name", "cache_salt"] | None = Field(
        default=None, description="Field of the body that holds the key of requests without the header."
    )
    salt: str = Field(
        default="", description="Goes into the hash; changing it deals all keys anew. Empty: the model's name."
    )


class ShadowSettings(Settings):
    """Copies of a model's requests to another of its versions, whose answers are compared and dropped. Requests that
    name their version are not copied."""

    version: str = Field(description="Version that gets the copies.")
    share: float = Field(default=1.0, gt=0, le=1, description="Share of the requests that are copied.")
    max_in_flight: int = Field(
        default=8, ge=1, description="Copies that one gateway replica has under way; further ones are dropped."
    )
    timeout_ms: int = Field(default=10_000, ge=1, description="Milliseconds after which a copy is given up.")


class ModelRoute(Settings):
    """One model in the routing table."""

    versions: dict[str, VersionRoute] = Field(min_length=1, description="Versions by name.")
    latest: str | None = Field(
        default=None, description="Version that `name@latest` means; None: the greatest, with 9 below 10."
    )
    sticky: StickySettings | None = Field(
        default=None, description="Choose by the caller's key instead of by chance; None: by chance."
    )
    shadow: ShadowSettings | None = Field(default=None, description="Copies to another version; None: none.")
    default: bool = Field(
        default=False, description="Serves requests that name no model, where several models are made for them."
    )

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if not any(version.weight > 0 for version in self.versions.values()):
            raise ValueError("versions: at least one needs a weight above 0")
        if LATEST in self.versions:
            raise ValueError(f"versions: '{LATEST}' cannot be a version's name")
        for field, version in (("latest", self.latest), ("shadow.version", self.shadow and self.shadow.version)):
            if version is not None and version not in self.versions:
                raise ValueError(f"{field}: there is no version '{version}' in the table")
        return self


class RoutingSettings(Settings):
    """The gateway's `user_config`; Ray Serve replaces it without a restart."""

    models: dict[str, ModelRoute] = Field(default_factory=dict, description="Models by name.")
