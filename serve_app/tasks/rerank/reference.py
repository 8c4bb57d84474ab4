"""Scores from Transformers, one pair at a time and without padding: what the served scores are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serve_app.messages import FloatArray
from serve_app.settings import TemplateSettings
from serve_app.vocabulary import DType


def reference_logits(
    folder: Path,
    pairs: Sequence[tuple[str, str]],
    *,
    dtype: DType,
    max_length: int,
    template: TemplateSettings | None = None,
    answers: tuple[str, str] | None = None,
) -> FloatArray:
    """Logits of a reranker, float32 [pairs].

    Args:
        folder: the checkpoint.
        pairs: (query, document); the document is cut at `max_length` tokens, the query never.
        dtype: what Transformers computes in.
        max_length: tokens of a pair, special tokens included.
        template: an LLM reranker's prompt; the body is tokenized as one text, as the model card's code does.
        answers: None for a sequence classifier. For the weights of a causal model, its tokens of "not relevant" and
            "relevant": the logit is the second one's minus the first one's, behind the prompt.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = AutoModelForSequenceClassification if answers is None else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=getattr(torch, dtype.value))
    model.eval()
    columns = None if answers is None else tokenizer.convert_tokens_to_ids(list(answers))
    logits = []
    with torch.inference_mode():
        for query, document in pairs:
            if template is None:
                # Lists, as sentence-transformers has it: two plain strings lose an empty document's separator.
                inputs = tokenizer(
                    [query], [document], truncation="only_second", max_length=max_length, return_tensors="pt"
                )
            else:
                inputs = _template_inputs(tokenizer, template, query, document, max_length)
            if columns is None:
                logits.append(float(model(**inputs).logits[0, 0]))
            else:
                no, yes = model(**inputs).logits[0, -1, columns].float().tolist()
                logits.append(yes - no)
    return np.array(logits, dtype=np.float32)


def _template_inputs(tokenizer, template: TemplateSettings, query: str, document: str, max_length: int):  # type: ignore[no-untyped-def]
    import torch

    head = template.head.format(instruction=template.instruction, query=query)
    body = tokenizer.encode(head + template.document_prefix + document, add_special_tokens=False)
    prefix = tokenizer.encode(template.prefix, add_special_tokens=False)
    suffix = tokenizer.encode(template.suffix, add_special_tokens=False)
    ids = prefix + body[: max_length - len(prefix) - len(suffix)] + suffix
    return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
