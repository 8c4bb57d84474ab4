"""Replicas of a deployment, fixed in number or following its work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from serve_app.settings.common import Settings
from serve_app.vocabulary import Measure


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
        "64 images and 50 million pixels; 2 x max_num_batched_tokens tokens. With `tolerance` it must stay below what "
        "a replica takes at most (`max_documents_in_flight`, `max_tokens_in_flight`), or nothing would ever pass it.",
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

    def check_target(self, field: str, default: Mapping[Measure, float], *others: Measure, **limits: int) -> None:
        """Refuses a target in a measure that the deployment does not have, or that its admission keeps out of reach.

        Args:
            field: the settings' place, for messages.
            default: the targets where the settings name none.
            others: what the deployment counts besides.
            limits: work that one replica takes at most, by measure; at the limit it refuses and the figure stays.
        """
        if self.autoscaling is None:
            return
        measures = (*default, *others)
        for measure, value in (self.autoscaling.target or default).items():
            where = f"{field}.autoscaling.target.{measure}"
            if measure not in measures:
                raise ValueError(f"{where}: counted here: {', '.join(measures)}")
            passed = value * (1 + self.autoscaling.tolerance)
            if passed >= limits.get(measure, math.inf):
                whose = "" if self.autoscaling.target else "the default "
                raise ValueError(
                    f"{where}: {whose}{value:g}, with its tolerance {passed:g}, is never passed, since a replica takes "
                    f"{limits[measure]} at most"
                )


class EngineReplicaSettings(ReplicaSettings):
    """Replicas of the PoolingEngine."""

    num_gpus: float = Field(
        default=0.0,
        ge=0,
        description="GPUs per engine replica; a fraction leaves room for other models' engines on the GPU.",
    )
    engines_per_gpu: int = Field(
        default=1,
        ge=1,
        le=16,
        description="Engines of this model that share each GPU, for models whose engine is bound by its own Python: "
        "those below about 1B parameters. `num_gpus` must be 1, `num_replicas` and the limits of `autoscaling` count "
        "GPUs, and `gpu_memory_utilization` is for all engines of a GPU together. They start one after the other, with "
        "`engine.kv_cache_gib` at the same time.",
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

    @model_validator(mode="after")
    def _whole_gpus(self) -> Self:
        if self.num_gpus > 1 and not self.num_gpus.is_integer():
            raise ValueError(f"num_gpus: {self.num_gpus:g}; above 1 Ray gives whole GPUs only")
        if self.engines_per_gpu > 1 and self.num_gpus != 1:
            raise ValueError(f"engines_per_gpu: needs num_gpus: 1, and it is {self.num_gpus:g}")
        return self

    @property
    def fewest(self) -> int:
        """Engines that there always are."""
        return super().fewest * self.engines_per_gpu

    @property
    def most(self) -> int:
        """Engines that there can be."""
        return super().most * self.engines_per_gpu

    @property
    def gpus_per_engine(self) -> float:
        """What Ray reserves for one; Ray counts GPUs in ten-thousandths."""
        return self.num_gpus if self.engines_per_gpu == 1 else 10_000 // self.engines_per_gpu / 10_000
