"""A model: the `args` of its application."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.scaling import targets
from serve_app.settings.common import LATEST, NAME, VERSION, Settings
from serve_app.settings.engine import AdmissionSettings, EngineSettings, HealthSettings, MaterializedSettings
from serve_app.settings.images import ImageSettings
from serve_app.settings.observability import ObservabilitySettings
from serve_app.settings.replicas import EngineReplicaSettings, ReplicaSettings
from serve_app.settings.tasks import TEMPLATES, AbsaSettings, TemplateSettings
from serve_app.vocabulary import Activation, DType, Measure, PoolingType, Task


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
        description="Share of the GPU's memory that one engine takes, or with `engines_per_gpu` all engines of a GPU; "
        "required on cuda. A GPU's engines together must stay at or below 0.90.",
    )
    template: str | TemplateSettings | None = Field(
        default=None, description="LLM rerankers: the prompt template, by name (`qwen3-reranker`) or spelled out."
    )
    prompts: dict[str, str] | None = Field(
        default=None,
        description="Embedding models: text put before each input, by kind (`query`, `document` or its other name "
        "`passage`); None: the checkpoint's own. E5 needs {query: 'query: ', document: 'passage: '}.",
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
            parallel = self.engine.tensor_parallel_size
            if parallel > 1 and self.pooling_engine.num_gpus != parallel:
                raise ValueError(
                    f"pooling_engine.num_gpus: engine.tensor_parallel_size {parallel} needs as many GPUs, and it is "
                    f"{self.pooling_engine.num_gpus:g}"
                )
        elif self.pooling_engine.num_gpus > 0:
            raise ValueError("pooling_engine.num_gpus: device is cpu")
        elif self.engine.kv_cache_gib is not None and not self.engine.kv_cache_gib.is_integer():
            raise ValueError(f"engine.kv_cache_gib: {self.engine.kv_cache_gib:g}; on a CPU vLLM takes whole GiB only")
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
        if self.engine.kind == "torch":
            self._fits_torch()
        self.io_processor.check_target("io_processor", targets.IO_PROCESSOR)
        self.pooling_engine.check_target(
            "pooling_engine",
            targets.pooling_engine(self.max_num_batched_tokens),
            Measure.DOCUMENTS,
            tokens=self.admission.max_tokens_in_flight,
            documents=self.admission.max_documents_in_flight,
        )
        return self

    def _fits_torch(self) -> None:
        if self.task not in {Task.RERANK, Task.EMBED, Task.CLASSIFY}:
            raise ValueError(f"engine.kind: torch has no task {self.task}")
        wanted = {
            "template": self.template is not None,
            "io_processor_plugin": self.io_processor_plugin is not None,
            "engine.hf_overrides": bool(self.engine.hf_overrides),
            "engine.tensor_parallel_size": self.engine.tensor_parallel_size > 1,
            "engine.enable_prefix_caching": self.engine.enable_prefix_caching,
        }
        for field in (name for name, set_ in wanted.items() if set_):
            raise ValueError(f"{field}: engine.kind torch has none")

    @property
    def application(self) -> str:
        """Name of the model's Ray Serve application."""
        return f"{self.name.replace('/', '--')}-{self.version}"

    @property
    def gpu_memory_per_engine(self) -> float | None:
        """Share of the GPU's memory for one engine; None on CPU."""
        whole = self.gpu_memory_utilization
        return None if whole is None else whole / self.pooling_engine.engines_per_gpu

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
