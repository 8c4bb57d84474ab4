"""Our rerank, absa and image_rank as vLLM IO Processor plugins, for a plain `vllm serve --io-processor-plugin NAME`.

Each function is an entry point of `vllm.io_processor_plugins` and returns the class's name, as vLLM wants it. They are
called in every vLLM server where this package is installed, so nothing is imported here.
"""

_CLASSES = "serve_app.vllm_plugin.io_processors"


def rerank() -> str:
    """A query and documents to a ranking; an LLM reranker's template included."""
    return f"{_CLASSES}.text.Rerank"


def absa() -> str:
    """Texts to spans with aspect and polarity."""
    return f"{_CLASSES}.text.Absa"


def image_rank() -> str:
    """A query and images to a ranking."""
    return f"{_CLASSES}.images.ImageRank"
