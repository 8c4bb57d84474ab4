"""The engine: how it runs, how much it takes, when it counts as dead, and where its checkpoint lies."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from serve_app.settings.common import Settings


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
    """How the model is run. Only `kind`, `trust_remote_code` and `start_timeout_s` are for other engines than vLLM."""

    kind: Literal["vllm", "torch", "fake"] = Field(
        default="vllm",
        description="`torch`: Transformers' model class with dynamic batching in the replica's own process, for small "
        "encoders, whose forward pass takes less time than vLLM's Python (tasks rerank, embed and classify, texts). "
        "`fake`: a deterministic stand-in without a model, for tests of the path.",
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
    full_cuda_graphs: bool = Field(
        default=False,
        description="One CUDA graph for a step's whole forward pass, attention included, instead of one between every "
        "two attentions. For decoder models on GPUs whose attention kernels can be captured (FlashAttention 3); "
        "elsewhere vLLM goes back to graphs by piece. vLLM itself has this for models that generate only.",
    )
    gather_ms: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Milliseconds that an idle engine waits for the rest of a request whose first sequences are there, "
        "so that one step takes all of them; 0: never. None: 8 on a GPU, where a step costs nearly the same whatever "
        "is in it, and 0 on a CPU.",
    )
    async_scheduling: bool | None = Field(default=None, description="vLLM's `async_scheduling`; None: its default.")
    enable_prefix_caching: bool = Field(
        default=False,
        description="Decoder models only: documents of one query share the computation of the query's prefix.",
    )
    kv_cache_gib: float | None = Field(
        default=None,
        gt=0,
        description="GiB for one engine's key/value cache. On a CPU a whole number, None: 1. On a GPU "
        "None: what its share of the memory has left, which vLLM measures, so that engines of a GPU start one after "
        "the other. With a number nothing is measured, and they start together: give one to all engines of a GPU, or "
        "to none.",
    )
    tensor_parallel_size: int = Field(
        default=1,
        ge=1,
        description="GPUs that share one copy of the model; above 1 `num_gpus` is the same number.",
    )
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
