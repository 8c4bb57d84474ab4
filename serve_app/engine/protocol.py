"""What the rest of the package knows about an inference engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from serve_app.messages import EngineBatch, EngineOutput, LoadedImages, MissingImages
from serve_app.startup import StartTimes


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Work in an engine now.

    Attributes:
        sequences, tokens: admitted and not yet answered.
        cancelled: requests ended by cancellation or deadline since the start.
        unfinished: sequences that the inference engine itself still holds, aborted ones excluded once it has dropped
            them; what remains here after all callers have gone is a leak.
    """

    sequences: int
    tokens: int
    cancelled: int
    unfinished: int


class Engine(Protocol):
    """Runs batches of token ids and pixels. Implemented by `VllmEngine`, `TorchEngine` and `FakeEngine`."""

    async def start(self) -> StartTimes:
        """Loads the model and answers a canary.

        Returns:
            Seconds by phase.

        Raises:
            Exception: anything that keeps the model from being served.
        """
        ...

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        """Runs all sequences of a request, or none. `loaded` holds the pixels that the batch's image rows name.

        Raises:
            Overloaded: no room now; nothing was started.
            EngineDead: the engine has died.
            DeadlineExceeded: the batch's deadline passed; its sequences were aborted.
            CancelledError: the caller went away; its sequences were aborted.
        """
        ...

    async def check_health(self) -> None:
        """Raises EngineDead when the engine has died, or has work or a canary and gives no output."""
        ...

    def load(self) -> EngineLoad:
        """Work in the engine now."""
        ...

    async def image_counts(self) -> dict[str, int]:
        """encoded: images that the vision tower has seen since the start; held: images whose features it holds."""
        ...

    async def shutdown(self) -> None:
        """Ends the engine and its processes."""
        ...
