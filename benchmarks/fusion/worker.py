"""What the benchmark asks of an engine's worker: what its steps looked like, and where its memory is."""

from __future__ import annotations

from typing import Any

from serve_app.vllm_plugin.worker import WorkerExtension


class BenchmarkWorker(WorkerExtension):
    """Methods that `AsyncLLM.collective_rpc` calls by name."""

    def watch_steps(self) -> None:
        """Begins to count steps. Every step that finishes or begins something ends in the pooler."""
        self._steps = {"steps": 0, "sequences": 0, "tokens": 0, "most_tokens": 0}

        def count(_: Any, positional: Any, named: dict[str, Any]) -> None:
            hidden = named["hidden_states"] if "hidden_states" in named else positional[0]
            metadata = named["pooling_metadata"] if "pooling_metadata" in named else positional[1]
            steps, tokens = self._steps, int(hidden.shape[0])
            steps["steps"] += 1
            steps["sequences"] += len(metadata.pooling_params)
            steps["tokens"] += tokens
            steps["most_tokens"] = max(steps["most_tokens"], tokens)

        self.model_runner.get_model().pooler.register_forward_pre_hook(count, with_kwargs=True)

    def take_steps(self) -> dict[str, int]:
        """Counters since the last call, or since `watch_steps`."""
        taken, self._steps = self._steps, dict.fromkeys(self._steps, 0)
        return taken

    def memory(self) -> dict[str, float]:
        """MiB: weights and feature slots, key/value cache, peak of the device; kept per image that is held now."""
        import torch

        runner = self.model_runner
        mib = 2**20
        found: dict[str, float] = {}
        if usage := getattr(runner, "model_memory_usage", 0):  # on a GPU only
            found["weights_and_slots_mib"] = usage / mib
        caches = [cache for cache in getattr(runner, "kv_caches", []) if isinstance(cache, torch.Tensor)]
        found["kv_cache_mib"] = sum(cache.nbytes for cache in caches) / mib
        if torch.cuda.is_available():
            found["peak_mib"] = torch.cuda.max_memory_allocated() / mib
        features = getattr(runner.get_model(), "features", None)
        if (slots := getattr(features, "buffer", None)) is not None:
            found["mib_per_image"] = slots.nbytes / len(slots) / mib
        elif outputs := [rows for rows in runner.encoder_cache.values() if isinstance(rows, torch.Tensor)]:
            found["mib_per_image"] = sum(rows.nbytes for rows in outputs) / len(outputs) / mib
        return found
