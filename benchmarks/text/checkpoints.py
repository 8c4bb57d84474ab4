"""Checkpoints with fixed random weights for `absa`, `embed` and `classify`: BERT in the shapes that matter.

Speed depends on the shape, not on the values of the weights, but agreement does: labels out of noise lie at the edge of
a decision everywhere, and 16 bit would change one in thirty. So the head of a token classifier is fitted (ridge
regression on the random encoder's states) to say what stands in the text: some words carry a label, others are outside.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.corpus import FALLBACK_WORDS, Corpus, load_tokenizer, whole_words

TASKS = ("absa", "embed", "classify")
SHAPES: dict[str, dict[str, int]] = {
    # BERT-base; heads of 64.
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    # all-MiniLM-L6-v2; heads of 32.
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    # Small enough for a laptop.
    "tiny": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256},
}
VOCABULARY = 30_522
POSITIONS = 512
SEED = 20_240
_MEANINGS = ("food-positive", "food-negative", "service-positive", "service-negative")
ABSA_LABELS = ("O", *(f"{tag}-{meaning}" for meaning in _MEANINGS for tag in "BI"))
CLASSES = ("first", "second", "third", "fourth")
CARRIERS = 32
"""Words that carry a label, every eighth of the frequent ones."""
FITTED_ON = 256
"""Texts that a head is fitted on."""


def make_text_model(
    out: Path, task: str, shape: str, tokenizer: Path | None = None, device: str = "cpu"
) -> dict[str, Any]:
    """Writes a checkpoint in float32.

    Args:
        task: one of `TASKS`.
        shape: a key of `SHAPES`.
        tokenizer: folder with a BERT-style `tokenizer.json`; None: one of a few hundred words is made.
        device: where the head is fitted.

    Returns:
        What was written: path, parameters, seconds.
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertModel

    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    fast = _tokenizer(out, tokenizer)
    config_class: Any = BertConfig
    labels = {"absa": ABSA_LABELS, "classify": CLASSES, "embed": ()}[task]
    named: dict[str, Any] = {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}}
    config = config_class(
        **SHAPES[shape], vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, **(named if labels else {})
    )
    torch.manual_seed(SEED)
    kind: Any = {"absa": BertForTokenClassification, "classify": BertForSequenceClassification, "embed": BertModel}[
        task
    ]
    model = kind(config).to(device).eval()
    if task == "absa":
        _fit(model, fast, labels, device)
    elif labels:
        with torch.no_grad():
            model.classifier.weight.mul_(8.0)
    model.cpu().save_pretrained(out)
    if task == "embed":
        _write_modules(out, SHAPES[shape]["hidden_size"])
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "path": str(out),
        "task": task,
        "shape": shape,
        "parameters": parameters,
        "dtype": "float32",
        "seconds": round(time.perf_counter() - began, 1),
    }


def _tokenizer(out: Path, given: Path | None) -> Any:
    """Writes `tokenizer.json` and its config; returns the Transformers tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    if given is not None:
        tokenizer = load_tokenizer(given)
    else:
        letters = [chr(code) for code in range(33, 127)]
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters), *FALLBACK_WORDS]
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
        tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = BertPreTokenizer()
        special = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
        )
    kind: Any = PreTrainedTokenizerFast
    fast = kind(
        tokenizer_object=tokenizer,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
    )
    if len(fast) > VOCABULARY:
        raise ValueError(f"the tokenizer has {len(fast)} entries, the model room for {VOCABULARY}")
    fast.save_pretrained(out)
    return fast


def _fit(model: Any, tokenizer: Any, labels: tuple[str, ...], device: str) -> None:
    """Fits the head by ridge regression: +6 for the wanted label, -6 for others, which a softmax is sure of."""
    import torch

    words = whole_words(tokenizer.backend_tokenizer)
    begins = [i for i, label in enumerate(labels) if label.startswith("B-")]
    carriers = [tokenizer.convert_tokens_to_ids(word) for word in words[3::8][:CARRIERS]]
    wanted = {token: begins[i % len(begins)] for i, token in enumerate(carriers)}
    corpus = Corpus(words, "fit")
    states, targets = [], []
    with torch.inference_mode():
        for _ in range(FITTED_ON // 16):
            inputs = tokenizer([corpus.text(48) for _ in range(16)], padding=True, return_tensors="pt")
            kept = inputs["attention_mask"].bool()
            states.append(model.bert(**inputs.to(device)).last_hidden_state[kept.to(device)].float())
            targets += [wanted.get(token, 0) for token in inputs["input_ids"].cpu()[kept].tolist()]
        features = torch.cat(states)
        features = torch.cat([features, torch.ones(len(features), 1, device=features.device)], dim=1)
        goal = torch.full((len(targets), len(labels)), -6.0, device=features.device)
        goal[torch.arange(len(targets)), torch.tensor(targets)] = 6.0
        gram = features.T @ features + torch.eye(features.shape[1], device=features.device)
        solved = torch.linalg.solve(gram.double(), (features.T @ goal).double()).float()
    with torch.no_grad():
        model.classifier.weight.copy_(solved[:-1].T)
        model.classifier.bias.copy_(solved[-1])


def _write_modules(out: Path, width: int) -> None:
    """sentence-transformers' files: mean over tokens, then unit length, as all-MiniLM-L6-v2 has it."""
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    pooling = {f"pooling_mode_{name}": name == "mean_tokens" for name in ("cls_token", "mean_tokens", "max_tokens")}
    files: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": width, **pooling},
        "sentence_bert_config.json": {"max_seq_length": POSITIONS, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {}, "default_prompt_name": None},
    }
    for name, content in files.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(json.dumps(content, indent=1))
    (out / "2_Normalize").mkdir(exist_ok=True)
