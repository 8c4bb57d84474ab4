"""How far a rollout has come: one small file beside the configuration, there for as long as the rollout lasts."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Kind(StrEnum):
    """What a rollout is to achieve."""

    RED_BLACK = "red-black"
    """The new version replaces the old one."""
    BESIDE = "beside"
    """The new version is there for clients that name it."""
    RETIRE = "retire"
    """The old version goes."""


class Phase(StrEnum):
    """Where a rollout is. Each phase has one look of the configuration and one thing to wait for."""

    DEPLOY = "deploy"
    """The new version's application is in the configuration; wait until it runs."""
    ROUTE = "route"
    """The table knows the new version, without weight; wait until every gateway does."""
    WARM = "warm"
    """The canary set goes to the new version, and its scores are compared with the old one's."""
    SHIFT = "shift"
    """The step's share of the traffic goes to the new version; watch it."""
    KEEP = "keep"
    """All traffic goes to the new version; the old one is still there; watch on."""
    RETURN = "return"
    """All traffic goes to the old version again."""
    UNROUTE = "unroute"
    """The table no longer knows the version that goes; let its requests end."""
    REMOVE = "remove"
    """The configuration no longer has the application of the version that goes."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Limits:
    """When the new version counts as worse.

    Attributes:
        score_difference: largest absolute difference of a score of the canary set; None: any.
        top1: share of the canary set's rankings that must have the same first place.
        p95_ratio, p95_slack_ms: its p95 may be the old one's times the ratio plus the slack.
        error_rate: its share of failed requests may be the old one's plus this.
        min_requests: requests of a window from which on the traffic's figures count.
    """

    score_difference: float | None = None
    top1: float = 0.0
    p95_ratio: float = 1.5
    p95_slack_ms: float = 10.0
    error_rate: float = 0.005
    min_requests: int = 50


@dataclass(frozen=True, slots=True)
class Options:
    """How a rollout is done.

    Attributes:
        steps: per cent of the old version's traffic that the new one gets, step by step; the last is 100.
        hold_s: seconds for which each step is watched.
        keep_s: seconds for which the old version is kept, and the new one watched, once it has no traffic.
        drain_s: seconds between the table's change and the removal of an application. At least 2: a table is seen after
            0.8 s, and both in one edit lose requests.
        ready_timeout_s: seconds within which the new version must run.
        canary: file of requests, one JSON object a line.
        probes: requests that are sent to each version while a step is watched.
        changes: fields of the new version's `args`, by dotted path.
        keep_failed: leave the application of a version that failed.
    """

    steps: tuple[int, ...] = (1, 10, 50, 100)
    hold_s: float = 60.0
    keep_s: float = 600.0
    drain_s: float = 5.0
    ready_timeout_s: float = 1_800.0
    canary: str | None = None
    probes: int = 20
    changes: dict[str, Any] = field(default_factory=dict)
    keep_failed: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.steps or self.steps[-1] != 100 or list(self.steps) != sorted(set(self.steps)) or self.steps[0] <= 0:
            raise ValueError(f"steps: must rise from above 0 to 100; got {', '.join(map(str, self.steps))}")
        if self.drain_s < 2:
            raise ValueError("drain: at least 2 seconds; both edits at once lose requests")


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured of one version.

    Attributes:
        requests: answered or failed.
        errors: of those, failed (5xx) or refused (429).
        p95_ms: of the answered ones; None: there are none.
        p50_ms: likewise.
    """

    requests: int
    errors: int
    p95_ms: float | None
    p50_ms: float | None = None

    @property
    def error_rate(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class State:
    """A rollout under way.

    Attributes:
        old: the version that has the traffic, or that goes; new: the one that comes; "" for Kind.RETIRE.
        phase, step, since: where it is (step: index into `options.steps`), and since when (unix seconds).
        weight: the old version's weight at the start; both share it until the end.
        latest: the table's `latest` at the start; None: it had none.
        meant: the version that `name@latest` meant at the start.
        written: whether the new version's application was in the file before; then it is never taken out.
        baseline: the old version's traffic, the last time there was enough of it.
        reason: why the rollout returns; "": it does not.
    """

    kind: Kind
    model: str
    old: str
    new: str
    phase: Phase
    since: float
    options: Options
    weight: float = 1.0
    latest: str | None = None
    meant: str = ""
    written: bool = False
    step: int = 0
    baseline: Sample | None = None
    reason: str = ""

    @property
    def leaving(self) -> str:
        """The version that goes in the end."""
        return self.new if self.reason else self.old

    @property
    def share(self) -> int:
        """Per cent of the old version's traffic that the new one has in this phase."""
        if self.reason or self.phase in {Phase.DEPLOY, Phase.ROUTE, Phase.WARM}:
            return 0
        return self.options.steps[self.step] if self.phase is Phase.SHIFT else 100


class StateFile:
    """The state beside a configuration, or beside the file that a link leads to: `CONFIG.rollout.json`.

    Args:
        config: the configuration's path.
    """

    def __init__(self, config: Path) -> None:
        config = config.resolve()  # one state, and one lock, whichever link leads to the file
        self.path = config.with_name(config.name + ".rollout.json")

    def read(self) -> State | None:
        """The state of the rollout under way; None: there is none."""
        if not self.path.exists():
            return None
        raw = json.loads(self.path.read_text(encoding="utf-8"))
        options = raw["options"]
        limits = Limits(**options.pop("limits"))
        raw["options"] = Options(**{**options, "steps": tuple(options["steps"]), "limits": limits})
        raw["baseline"] = Sample(**raw["baseline"]) if raw["baseline"] else None
        return State(**{**raw, "kind": Kind(raw["kind"]), "phase": Phase(raw["phase"])})

    def write(self, state: State) -> None:
        """Puts a state into the file, whole or not at all."""
        write_whole(self.path, json.dumps(dataclasses.asdict(state), indent=2) + "\n")

    def remove(self) -> None:
        """Ends the rollout."""
        self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Raises BlockingIOError while another process works on this configuration, or on one in the same folder."""
        folder = os.open(self.path.parent, os.O_RDONLY)  # no file of its own to leave behind
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                under_way = ", ".join(path.name for path in sorted(self.path.parent.glob("*.rollout.json")))
                raise BlockingIOError(
                    f"another rollout is running: it holds the lock on '{self.path.parent}'"
                    + (f" ({under_way})" if under_way else "")
                ) from None
            yield
        finally:
            os.close(folder)


def write_whole(path: Path, text: str) -> None:
    """Replaces a file's text so that a reader, or a crash, sees the old one or the new one. A link stays a link."""
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        temporary.chmod(path.stat().st_mode & 0o777)
    temporary.replace(path)
