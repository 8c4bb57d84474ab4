"""The inference engine behind a small protocol: vLLM, or a deterministic fake."""
