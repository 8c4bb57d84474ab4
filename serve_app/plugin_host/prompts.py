"""A plugin's prompts to token ids, by the rules of vLLM's renderer: texts with special tokens, ids as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.messages import Truncation
from serve_app.tasks.model import TextModel, check_texts, check_token_ids, require_tokens
from serve_app.tokenization import TokenIds


class UnsupportedPrompt(Exception):
    """A prompt that our engine does not take, or none at all: the plugin's fault, not the caller's."""


def token_ids(
    model: TextModel, prompts: Any, truncation: Truncation, *, lowercase: bool = False
) -> tuple[list[TokenIds], list[int]]:
    """The sequences of a request.

    Args:
        model: whose tokenizer reads the texts.
        prompts: what `pre_process` returned: one prompt or several; texts, lists of token ids, or dicts with `prompt`
            or `prompt_token_ids`.
        truncation: whether, and to what, a prompt that is too long is cut; vLLM refuses it unless asked to cut.
        lowercase: texts are lower-cased first (`do_lower_case` of old sentence-transformers checkpoints).

    Returns:
        Token ids of each prompt, and the indexes of those that were cut.

    Raises:
        UnsupportedPrompt: not a prompt, or one of pictures or embeddings.
        ContextLengthExceeded: a prompt is too long and may not be cut.
        InvalidRequest: no prompts, a prompt without tokens, or a token id outside the vocabulary.
    """
    read = [_read(prompt) for prompt in _listed(prompts)]
    if not read:
        raise InvalidRequest("data: the plugin made no prompts of it", "data")
    window = model.window(truncation)
    special = model.tokenizer.single
    texts = [text.lower() if lowercase else text for text in read if isinstance(text, str)]
    encoded, unread = model.tokenizer.encode_capped(texts, window)
    numbers = [i for i, text in enumerate(read) if isinstance(text, str)]
    check_texts(model, encoded, lambda i: f"data: prompt {numbers[i]}")
    sequences: list[TokenIds] = []
    cut: list[int] = []
    position = 0
    for i, prompt in enumerate(read):
        whole = True
        if isinstance(prompt, str):
            ids, whole, overhead = encoded[position], position not in unread, special.overhead(pair=False)
            position += 1
        else:
            ids, overhead = prompt, 0
            check_token_ids(ids, model.checkpoint.vocab_size or model.vocab_size, f"data: prompt {i}")
        room = window - overhead
        if len(ids) > room or not whole:
            _may_be_cut(truncation, i, len(ids) + overhead, window, exact=whole)
            cut.append(i)
        if isinstance(prompt, str):
            ids = [*special.before, *ids[: max(0, room)], *special.after]
        sequence = ids[:window]
        require_tokens(sequence, f"data: prompt {i}")
        sequences.append(sequence)
    return sequences, cut


def _may_be_cut(truncation: Truncation, index: int, length: int, window: int, *, exact: bool) -> None:
    if not truncation.enabled:
        count = f"{'' if exact else 'at least '}{length}"
        raise ContextLengthExceeded(
            f"data: prompt {index} has {count} tokens; there is room for {window}, and only "
            "'truncate_prompt_tokens' lets it be cut",
            "data",
        )


def _listed(prompts: Any) -> Sequence[Any]:
    """One prompt as a list of one, as vLLM has it."""
    if isinstance(prompts, (str, bytes, Mapping)):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise UnsupportedPrompt(f"pre_process returned {type(prompts).__name__}")
    return [prompts] if prompts and all(isinstance(item, int) for item in prompts) else prompts


def _read(prompt: Any) -> str | TokenIds:
    if isinstance(prompt, Mapping):
        for key in ("multi_modal_data", "prompt_embeds", "encoder_prompt"):
            if prompt.get(key) is not None and not (key == "multi_modal_data" and not prompt[key]):
                raise UnsupportedPrompt(f"a prompt has '{key}': here, plugins feed texts and token ids only")
        prompt = prompt["prompt_token_ids"] if prompt.get("prompt_token_ids") is not None else prompt.get("prompt")
    if isinstance(prompt, str):
        return prompt
    try:
        return [index(item) for item in prompt]
    except TypeError:
        raise UnsupportedPrompt(f"a prompt is {type(prompt).__name__}, not a text or token ids") from None
