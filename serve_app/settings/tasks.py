"""What only models of one task have: spans of opinions, prompt templates."""

from __future__ import annotations

from pydantic import Field, field_validator

from serve_app.settings.common import Settings
from serve_app.vocabulary import Aggregation


class AbsaSettings(Settings):
    """How an aspect-based sentiment model's labels become spans."""

    aggregation: Aggregation = Field(
        default=Aggregation.FIRST,
        description="How a word gets one label from its tokens: its first token's, the mean of its tokens' "
        "probabilities, or those of its surest token; `none`: tokens keep theirs, and a span may end inside a word.",
    )
    threshold: float = Field(
        default=0.0, ge=0, le=1, description="Score below which spans are left out, when a request names none."
    )
    stride: int | None = Field(
        default=None,
        ge=0,
        description="Tokens that neighbouring windows of a long text share, at most half of max_model_len; None: a "
        "quarter of a window.",
    )
    max_windows: int = Field(default=256, ge=1, description="Windows of one text; what is longer is cut, and says so.")


class TemplateSettings(Settings):
    """The prompt of an LLM reranker, in four pieces: prefix, head, document, suffix.

    The prompt is `prefix + head + document_prefix + document + suffix`, where head is `head` with `{instruction}` and
    `{query}` filled in. Prefix, head and suffix are tokenized apart from the document, so that only the document is
    ever cut and the query is tokenized once per request.
    """

    prefix: str = Field(description="Fixed text before everything, e.g. the system turn.")
    head: str = Field(description="Text with the fields {instruction} and {query}.")
    document_prefix: str = Field(
        default="",
        description="Joined to the document before tokenizing, e.g. a space; every piece of a document has it.",
    )
    suffix: str = Field(description="Fixed text after the document, e.g. the assistant turn.")
    instruction: str = Field(description="The instruction used when a request brings none.")

    @field_validator("head")
    @classmethod
    def _has_query(cls, head: str) -> str:
        if "{query}" not in head:
            raise ValueError("must contain {query}")
        return head


QWEN3_RERANKER = TemplateSettings(
    # https://huggingface.co/Qwen/Qwen3-Reranker-0.6B, "Transformers Usage": format_instruction, prefix, suffix
    prefix="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    head="<Instruct>: {instruction}\n<Query>: {query}\n<Document>:",
    document_prefix=" ",
    suffix="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction="Given a web search query, retrieve relevant passages that answer the query",
)

TEMPLATES: dict[str, TemplateSettings] = {"qwen3-reranker": QWEN3_RERANKER}
"""Templates that a configuration can name instead of spelling them out."""
