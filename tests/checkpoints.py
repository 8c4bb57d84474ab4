"""Random small checkpoints: real architectures and real tokenizer kinds, seeded weights, a few hundred kB each."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    DebertaV2Config,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    RobertaConfig,
    XLMRobertaConfig,
)

CORPUS = [
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "Waterproof hiking boots for winter, with a warm lining and a grippy sole.",
    "Paris is the capital of France; Berlin is the capital of Germany.",
    "서울의 날씨는 오늘 맑고 음식이 맛있어요. 서비스가 정말 좋았습니다.",
    "卫生间在哪里？ 这家餐厅的菜很好吃。",
    "Der schnelle braune Fuchs springt über den faulen Hund. Ça va très bien, merci!",
    "def score(query, document): return model(query, document)[0]  # 42, 3.14",
    "emoji 😀 🚀 and e\u0301 decomposed accents",
]
# https://huggingface.co/Qwen/Qwen3-0.6B/blob/main/tokenizer.json, pre_tokenizer.pretokenizers[0].pattern
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}


class Checkpoints:
    """Makes checkpoints under `root`, each once.

    Args:
        root: an empty folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def bert(self, labels: int = 1, **config: Any) -> Path:
        """BERT: WordPiece, token types."""
        return self._make("bert", labels, wordpiece, lambda v: BertConfig(vocab_size=v, **SHAPE, **config), config)

    def roberta(self, labels: int = 1, **config: Any) -> Path:
        """RoBERTa: byte-level BPE, `<s> a </s></s> b </s>`, positions from 2."""
        return self._make(
            "roberta",
            labels,
            byte_level,
            lambda v: RobertaConfig(
                vocab_size=v, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, **SHAPE, **config
            ),
            config,
        )

    def xlm_roberta(self, labels: int = 1, **config: Any) -> Path:
        """XLM-RoBERTa: unigram with metaspace, as SentencePiece has it. The shape of bge-reranker-v2-m3."""
        return self._make(
            "xlm_roberta",
            labels,
            unigram,
            lambda v: XLMRobertaConfig(
                vocab_size=v, max_position_embeddings=514, type_vocab_size=1, pad_token_id=1, **SHAPE, **config
            ),
            config,
        )

    def mpnet(self, labels: int = 1, **config: Any) -> Path:
        """MPNet: RoBERTa's template and positions, relative attention, no sdpa. Its padding id is always 1."""
        return self._make(
            "mpnet",
            labels,
            byte_level,
            lambda v: MPNetConfig(vocab_size=v, max_position_embeddings=514, **SHAPE, **config),
            config,
        )

    def deberta_v2(self, labels: int = 1, **config: Any) -> Path:
        """DeBERTa-v2: disentangled attention, no token types, no sdpa. The shape of mxbai-rerank-base-v1."""
        return self._make(
            "deberta_v2",
            labels,
            lambda: byte_level(cls="[CLS]", sep="[SEP]", pad="[PAD]", double=False),
            lambda v: DebertaV2Config(
                vocab_size=v,
                type_vocab_size=0,
                relative_attention=True,
                position_buckets=32,
                norm_rel_ebd="layer_norm",
                share_att_key=True,
                pos_att_type=["p2c", "c2p"],
                position_biased_input=False,
                **SHAPE,
                **config,
            ),
            config,
        )

    def changed(self, plain: Path, folder: Path, **config: Any) -> Path:
        """A copy of a checkpoint with other values in its config; None takes one out."""
        shutil.copytree(plain, folder)
        content = json.loads((folder / "config.json").read_text()) | config
        (folder / "config.json").write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
        return folder

    def modernbert(self, labels: int = 1, **config: Any) -> Path:
        """ModernBERT: byte-level BPE with [CLS] and [SEP], alternating local and global attention."""
        return self._make(
            "modernbert",
            labels,
            lambda: byte_level(cls="[CLS]", sep="[SEP]", pad="[PAD]", double=False),
            lambda v: ModernBertConfig(
                vocab_size=v,
                pad_token_id=0,
                cls_token_id=1,
                sep_token_id=2,
                bos_token_id=1,
                eos_token_id=2,
                local_attention=16,
                global_attn_every_n_layers=2,
                max_position_embeddings=1024,
                **SHAPE,
                **config,
            ),
            config,
        )

    def qwen3(self, labels: int = 1, **config: Any) -> Path:
        """Qwen3: byte-level BPE with Qwen's pattern, no special tokens around a text, decoder."""
        return self._make(
            "qwen3",
            labels,
            qwen,
            lambda v: Qwen3Config(
                vocab_size=v,
                num_key_value_heads=1,
                head_dim=32,
                max_position_embeddings=2048,
                pad_token_id=0,
                bos_token_id=None,
                eos_token_id=1,
                tie_word_embeddings=True,
                **SHAPE,
                **config,
            ),
            config,
        )

    def sentence_transformers(self, folder: Path, pooling: str, *, normalize: bool, dense: int = 0) -> Path:
        """A copy of an embedding checkpoint with sentence-transformers' modules; the checkpoint is shared by tests.

        Args:
            dense: width of a Dense module behind the pooling; 0: none.
        """
        folder, plain = self._root / f"modules-{_digest([str(folder), pooling, str(normalize), str(dense)])}", folder
        if folder.exists():
            return folder
        shutil.copytree(plain, folder)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        modules += [("2_Dense", "Dense")] if dense else []
        modules += [("3_Normalize", "Normalize")] if normalize else []
        if dense:
            _dense(folder / "2_Dense", dense)
        listing = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(modules)
        ]
        (folder / "modules.json").write_text(json.dumps(listing))
        (folder / "1_Pooling").mkdir(exist_ok=True)
        modes = {"CLS": "cls_token", "MEAN": "mean_tokens", "LAST": "lasttoken"}
        flags = {f"pooling_mode_{mode}": mode == modes[pooling] for mode in modes.values()}
        (folder / "1_Pooling" / "config.json").write_text(
            json.dumps({"word_embedding_dimension": SHAPE["hidden_size"], **flags})
        )
        return folder

    def token_classifier(self, kind: str, labels: Sequence[str]) -> Path:
        """A token classifier on one of the encoders above (`bert`, `roberta`, `xlm_roberta`, `modernbert`)."""
        base, folder = getattr(self, kind)(0), self._root / f"tokens-{kind}-{_digest(labels)}"
        if not folder.exists():
            config = AutoConfig.from_pretrained(base)
            config.id2label = dict(enumerate(labels))
            config.label2id = {label: i for i, label in enumerate(labels)}
            torch.manual_seed(len(kind))
            model = AutoModelForTokenClassification.from_config(config)
            with torch.no_grad():
                model.classifier.weight.mul_(20)
            model.save_pretrained(folder)
            _copy_tokenizer(base, folder)
        return folder

    def two_heads(self, labels: Sequence[str], sentiment: Sequence[str]) -> Path:
        """Our two-head BERT."""
        from safetensors.torch import save_file

        from serve_app.tasks.absa.reference import TwoHeadTokenClassifier

        base, folder = self.bert(0), self._root / f"two-heads-{_digest([*labels, *sentiment])}"
        if not folder.exists():
            folder.mkdir()
            config = json.loads((base / "config.json").read_text()) | {
                "architectures": ["TwoHeadTokenClassifier"],
                "model_type": "two_head_bert",
                "id2label": {str(i): label for i, label in enumerate(labels)},
                "label2id": {label: i for i, label in enumerate(labels)},
                "sentiment_labels": {str(i): label for i, label in enumerate(sentiment)},
            }
            torch.manual_seed(11)
            model = TwoHeadTokenClassifier(config)
            with torch.no_grad():
                model.classifier.weight.mul_(4)
                model.sentiment_classifier.weight.mul_(4)
            (folder / "config.json").write_text(json.dumps(config))
            save_file(model.state_dict(), str(folder / "model.safetensors"))
            _copy_tokenizer(base, folder)
        return folder

    def _make(
        self,
        kind: str,
        labels: int,
        tokenizer: Callable[[], PreTrainedTokenizerFast],
        config: Callable[[int], Any],
        extra: dict[str, Any],
    ) -> Path:
        """`labels` 0 makes an embedding model."""
        name = "-".join([kind, str(labels), *(str(v) for v in extra.values())])
        folder = self._root / "".join(c if c.isalnum() else "-" for c in name)
        if folder.exists():
            return folder
        fast = tokenizer()
        settings = config(len(fast))
        torch.manual_seed(len(name))
        if labels:
            settings.num_labels = labels
            model = AutoModelForSequenceClassification.from_config(settings)
            with torch.no_grad():
                for parameter_name, parameter in model.named_parameters():
                    if parameter_name.startswith(("classifier.", "score.")) and parameter.dim() == 2:
                        parameter.mul_(20)  # scores of different texts differ clearly
        else:
            model = AutoModel.from_config(settings)
        model.save_pretrained(folder)
        fast.save_pretrained(folder)
        return folder


def _dense(folder: Path, width: int) -> None:
    """A Dense module with bias and tanh."""
    from safetensors.torch import save_file

    folder.mkdir()
    inputs = SHAPE["hidden_size"]
    config = {"in_features": inputs, "out_features": width, "bias": True}
    (folder / "config.json").write_text(
        json.dumps(config | {"activation_function": "torch.nn.modules.activation.Tanh"})
    )
    torch.manual_seed(3)
    save_file(
        {"linear.weight": torch.randn(width, inputs) / 8, "linear.bias": torch.randn(width) / 8},
        str(folder / "model.safetensors"),
    )


def _digest(labels: Sequence[str]) -> str:
    """Names labels in a folder's name: another test may want as many others."""
    return hashlib.blake2b("\n".join(labels).encode(), digest_size=4).hexdigest()


def _copy_tokenizer(source: Path, folder: Path) -> None:
    for file in source.glob("tokenizer*"):
        shutil.copy(file, folder)


def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def byte_level(
    cls: str = "<s>", sep: str = "</s>", pad: str = "<pad>", *, double: bool = True
) -> PreTrainedTokenizerFast:
    """RoBERTa's tokenizer, or ModernBERT's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [cls, pad, sep] if double else [pad, cls, sep]
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[*specials, "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} {sep} $B {sep}" if double else f"{cls} $A {sep} $B {sep}",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (cls, sep)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=cls,
        cls_token=cls,
        eos_token=sep,
        sep_token=sep,
        pad_token=pad,
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )


def unigram() -> PreTrainedTokenizerFast:
    """XLM-RoBERTa's tokenizer."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )


def qwen() -> PreTrainedTokenizerFast:
    """Qwen3's tokenizer: its pattern, its chat tokens, nothing added around a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<|endoftext|>", "<|im_end|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(["<think>", "</think>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        model_input_names=["input_ids", "attention_mask"],
    )
