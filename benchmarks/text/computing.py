"""What a library computes for some texts, without a server: Transformers and sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.text.wire import Answer, Spans

SORTED_OVER = 16
"""Batches that are sorted by length together."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to run texts through a library.

    Attributes:
        name: in tables.
        padding: `none` (one text at a time), `fixed` (to the window), `dynamic` (to the longest of a batch), `sorted`
            (dynamic, after sorting `SORTED_OVER` batches by length), or `own` (the library's business).
        batch: texts at a time.
    """

    name: str
    padding: str
    batch: int

    @property
    def texts(self) -> int:
        """Texts that it takes at a time; whole jobs only are measured."""
        return self.batch * SORTED_OVER if self.padding == "sorted" else self.batch


class Library(Protocol):
    """A loaded model."""

    def answers(self, texts: Sequence[Any]) -> list[Answer]:
        """One text at a time and without padding: the reference."""
        ...

    def run(self, method: Method, texts: Sequence[Any]) -> None:
        """All texts, with the results in the host's memory."""
        ...


def device_of(wanted: str) -> str:
    """`auto`: the GPU where there is one."""
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted


class Classifiers:
    """Transformers on a token or sequence classifier.

    Args:
        task: `absa` or `classify`.
        max_model_len: tokens of a text; what is longer is cut.
    """

    def __init__(self, task: str, folder: Path, *, dtype: str, device: str, max_model_len: int) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

        self._torch = torch
        self._device = device_of(device)
        self._length = max_model_len
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind: Any = AutoModelForTokenClassification if task == "absa" else AutoModelForSequenceClassification
        if config["architectures"][0] == "TwoHeadTokenClassifier":
            from serve_app.tasks.absa.reference import TwoHeadTokenClassifier
            from serve_app.vocabulary import DType

            model: Any = TwoHeadTokenClassifier.load(folder, DType(dtype))
        else:
            model = kind.from_pretrained(folder, dtype=getattr(torch, dtype))
        self._model = model.to(self._device).eval()
        self._labels = [config["id2label"][key] for key in sorted(config["id2label"], key=int)]
        many = len(self._labels) > 1 and config.get("problem_type") != "multi_label_classification"
        self._softmax = task == "absa" or many
        self._scheme: Any = None
        if task == "absa":
            from serve_app.tasks.absa.labels import read_scheme

            self._scheme = read_scheme(config, self._labels)
            if not self._scheme.tokens:
                raise ValueError("the absa benchmark needs a token classifier")

    def answers(self, texts: Sequence[str]) -> list[Answer]:
        """See `Library.answers`. Probabilities by label, or (spans, probabilities of every token)."""
        found: list[Answer] = []
        for text in texts:
            ((encoded, rows, sentiment),) = self._forward([text], padding=False)
            if self._scheme is None:
                found.append(dict(zip(self._labels, rows.tolist(), strict=True)))
            else:
                found.append((self._spans(text, encoded, rows, sentiment), rows))
        return found

    def run(self, method: Method, texts: Sequence[str]) -> None:
        """See `Library.run`."""
        if method.padding == "sorted":
            counts = [len(ids) for ids in self._tokenizer(list(texts))["input_ids"]]
            texts = [texts[i] for i in sorted(range(len(texts)), key=counts.__getitem__)]
        padding = {"none": False, "fixed": "max_length"}.get(method.padding, "longest")
        for start in range(0, len(texts), method.batch):
            batch = texts[start : start + method.batch]
            for text, (encoded, rows, sentiment) in zip(batch, self._forward(batch, padding), strict=True):
                if self._scheme is not None:
                    self._spans(text, encoded, rows, sentiment)

    def _forward(self, texts: Sequence[str], padding: Any) -> Iterator[tuple[Any, Any, str | None]]:
        """Each text's encoding, its probabilities in float32 ([labels], or [tokens, labels]), and with a second head
        the label of the whole text."""
        encoded = self._tokenizer(
            list(texts),
            padding=padding,
            truncation=True,
            max_length=self._length,
            return_offsets_mapping=self._scheme is not None,
            return_tensors="np",
        )
        names = ("input_ids", "token_type_ids", "attention_mask")
        with self._torch.inference_mode():
            inputs = {name: self._torch.from_numpy(encoded[name]) for name in names if name in encoded}
            output = self._model(**{name: value.to(self._device) for name, value in inputs.items()})
            logits = (output[0] if isinstance(output, tuple) else output.logits).float()
            rows = (logits.softmax(-1) if self._softmax else logits.sigmoid()).cpu().numpy()
            whole = output[1].float().argmax(-1).tolist() if isinstance(output, tuple) else None
        for i in range(len(texts)):
            yield encoded.encodings[i], rows[i], None if whole is None else self._scheme.sentiment[whole[i]]

    def _spans(self, text: str, encoded: Any, rows: Any, sentiment: str | None) -> Spans:
        from serve_app.tasks.absa.spans import find_spans
        from serve_app.tasks.absa.words import make_units
        from serve_app.vocabulary import Aggregation

        own = [i for i, word in enumerate(encoded.word_ids) if word is not None]
        words = np.array([encoded.word_ids[i] for i in own], dtype=np.int32)
        offsets = np.array([encoded.offsets[i] for i in own], dtype=np.int32).reshape(-1, 2)
        units = make_units(rows[own], words, offsets, Aggregation.FIRST)
        spans = find_spans(text, units, self._scheme.tokens)
        places = tuple((span.start, span.end, span.aspect, span.polarity) for span in spans)
        return Spans(places, tuple(span.score for span in spans), sentiment)


class Encoder:
    """sentence-transformers on an embedding model."""

    def __init__(self, folder: Path, *, dtype: str, device: str, max_model_len: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        options = {"dtype": getattr(torch, dtype)}
        self._model: Any = SentenceTransformer(str(folder), device=device_of(device), model_kwargs=options)
        self._model.max_seq_length = max_model_len
        self._model.eval()

    def answers(self, texts: Sequence[str]) -> list[Answer]:
        """See `Library.answers`: vectors."""
        return [self._encode([text], 1)[0] for text in texts]

    def run(self, method: Method, texts: Sequence[str]) -> None:
        """See `Library.run`. `encode` sorts by length itself."""
        self._encode(list(texts), method.batch)

    def _encode(self, texts: list[str], batch: int) -> Any:
        return np.asarray(
            self._model.encode(texts, batch_size=batch, convert_to_numpy=True, show_progress_bar=False),
            dtype=np.float32,
        )


class CrossEncoders:
    """sentence-transformers' CrossEncoder with one label. `predict` pads dynamically; the other paddings use its
    tokenizer, model and activation."""

    def __init__(self, folder: Path, *, dtype: str, device: str, max_model_len: int) -> None:
        import torch
        from sentence_transformers import CrossEncoder

        self._torch = torch
        self._device = device_of(device)
        self._length = max_model_len
        options = {"dtype": getattr(torch, dtype)}
        self._model: Any = CrossEncoder(
            str(folder), device=self._device, max_length=max_model_len, model_kwargs=options
        )
        if self._model.num_labels != 1:
            raise ValueError(f"the benchmark needs a reranker with one label, not {self._model.num_labels}")

    def answers(self, texts: Sequence[Any]) -> list[Answer]:
        """See `Library.answers`: scores of pairs."""
        return [float(self._forward([pair], padding=False)[0]) for pair in texts]

    def run(self, method: Method, texts: Sequence[Any]) -> None:
        """See `Library.run`."""
        if method.padding == "own":
            self._model.predict(list(texts), batch_size=method.batch, show_progress_bar=False)
            return
        if method.padding == "sorted":
            counts = [len(ids) for ids in self._model.tokenizer(list(texts))["input_ids"]]
            texts = [texts[i] for i in sorted(range(len(texts)), key=counts.__getitem__)]
        padding = "max_length" if method.padding == "fixed" else "longest"
        for start in range(0, len(texts), method.batch):
            self._forward(texts[start : start + method.batch], padding)

    def _forward(self, pairs: Sequence[Any], padding: Any) -> Any:
        """Scores, float32 [pairs]."""
        queries, documents = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        inputs = self._model.tokenizer(
            queries, documents, padding=padding, truncation=True, max_length=self._length, return_tensors="pt"
        )
        with self._torch.inference_mode():
            logits = self._model.model(**inputs.to(self._device)).logits[:, 0].float()
            return self._torch.sigmoid(logits).cpu().numpy()


def load(task: str, folder: Path, *, dtype: str, device: str, max_model_len: int) -> Library:
    """The library that a task's baseline is."""
    if task == "documents":
        return CrossEncoders(folder, dtype=dtype, device=device, max_model_len=max_model_len)
    if task == "embed":
        return Encoder(folder, dtype=dtype, device=device, max_model_len=max_model_len)
    return Classifiers(task, folder, dtype=dtype, device=device, max_model_len=max_model_len)
