"""Classify: vLLM's shape with the label names beside the numbers, and TEI's /predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from serve_app.api.base import Call, Limits, Meta, Refused, validate
from serve_app.api.fields import PairInputsField, RawScoresFields, TeiFields, TextFields, TextInputsField
from serve_app.api.rendering import expect, listing, mark_truncated
from serve_app.messages import ClassifyRequest, ClassifyResult, PipelineResult
from serve_app.vocabulary import Operation

ROUTE = "POST /v1/classify"


class ClassifyBody(TextFields, RawScoresFields):
    """Body of /v1/classify and /classify."""

    input: TextInputsField = Field(
        description="One text or many, one list of token ids or many. Token ids include the special tokens."
    )
    add_special_tokens: Annotated[Any, Refused("texts always get the model's special tokens", (True,))] = None
    messages: Annotated[Any, Refused("send texts in 'input'")] = None


class TeiPredictBody(TeiFields):
    """Body of /predict."""

    inputs: PairInputsField = Field(
        description="A text, a pair `[text, text]`, or a batch `[[text], [text, text], …]`. As in TEI, a flat list of "
        "two strings is one pair; the answer of a single input is one list."
    )
    raw_scores: bool = Field(default=False, description="Logits instead of probabilities.")


def classify(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /v1/classify and /classify."""
    parsed = validate(ClassifyBody, body, ROUTE)
    limits.check(len(parsed.input), "input")

    def render(result: PipelineResult, meta: Meta) -> dict[str, Any]:
        classified = expect(result, ClassifyResult)
        scores = np.ascontiguousarray(classified.scores)
        labels = list(classified.labels)
        data: list[dict[str, Any]] = [
            {"index": index, "label": labels[best], "probs": row, "num_classes": len(labels)}
            for index, (best, row) in enumerate(zip(scores.argmax(axis=1).tolist(), scores, strict=True))
        ]
        mark_truncated(data, classified.served.truncated)
        return {**listing(data, classified.served, meta), "labels": labels}

    request = ClassifyRequest(
        inputs=parsed.input,
        raw_scores=parsed.wants_raw_scores(),
        truncation=parsed.truncation(),
    )
    return Call(Operation.CLASSIFY, parsed.model, request, len(parsed.input), render, parsed.ignored)


def predict_tei(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /predict, answered by bare lists of label and score, the best first."""
    parsed = validate(TeiPredictBody, body, "POST /predict")
    limits.check(len(parsed.inputs.items), "inputs")

    def render(result: PipelineResult, meta: Meta) -> list[Any]:
        classified = expect(result, ClassifyResult)
        labels = list(classified.labels)
        orders = np.argsort(-classified.scores, axis=1, kind="stable")
        answers = [
            [{"label": labels[column], "score": row[column]} for column in order.tolist()]
            for row, order in zip(classified.scores, orders, strict=True)
        ]
        return answers[0] if parsed.inputs.single else answers

    request = ClassifyRequest(
        inputs=parsed.inputs.items,
        input_field="inputs",
        raw_scores=parsed.raw_scores,
        truncation=parsed.truncation(),
    )
    return Call(Operation.CLASSIFY, parsed.model, request, len(parsed.inputs.items), render, parsed.ignored)
