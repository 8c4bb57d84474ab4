"""vLLM's scheduler with `Gathering` before it. Named by `scheduler_cls`, vLLM's own way to replace its scheduler."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from serve_app.vllm_plugin import GATHER_MS
from serve_app.vllm_plugin.gathering import Gathering


class GatheringScheduler(Scheduler):  # type: ignore[misc]  # vllm ships no types here
    """Returns an empty step while only fragments of requests wait; the core then sleeps for 1 ms and asks again."""

    def __init__(self, vllm_config: Any, *args: Any, **options: Any) -> None:
        super().__init__(vllm_config, *args, **options)
        self._gathering = Gathering(vllm_config.additional_config[GATHER_MS] / 1e3)

    def add_request(self, request: Any) -> None:
        """Adds a sequence."""
        super().add_request(request)
        self._gathering.arrived(request.request_id)

    def finish_requests(self, request_ids: Any, *args: Any, **options: Any) -> Any:
        """Aborts sequences: one, several, or (None) all."""
        named = self.requests if request_ids is None else request_ids
        names = [named] if isinstance(named, str) else list(named)
        for name in names:
            self._gathering.left(name)
        return super().finish_requests(None if request_ids is None else names, *args, **options)

    def schedule(self, *args: Any, **options: Any) -> SchedulerOutput:
        """The next step's sequences."""
        if not self.running and self._gathering.waits(len(self.waiting)):
            return SchedulerOutput.make_empty()
        self._gathering.begun()
        return super().schedule(*args, **options)
