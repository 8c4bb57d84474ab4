"""What our engines can ask their workers: a class that vLLM mixes into its worker."""

from __future__ import annotations

from typing import Any


class WorkerExtension:
    """Methods that `AsyncLLM.collective_rpc` calls by name."""

    model_runner: Any

    def image_counts(self) -> dict[str, int]:
        """encoded: pictures that the vision tower has seen, those of the start included; held: features now held."""
        model = self.model_runner.get_model()
        features = getattr(model, "features", None)
        return {"encoded": model.images_encoded, "held": features.used if features is not None else 0}
