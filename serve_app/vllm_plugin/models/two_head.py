"""A BERT with two heads: labels of every token, and the sentiment of the whole text, in one pass.

vLLM's poolers give one tensor per sequence, so both answers are one, [1 + tokens, width]: row 0 has the logits of the
whole text, the others those of the tokens, special tokens included; the shorter ones are filled up with zeros. They are
logits whatever `use_activation` says: a softmax over a row that is filled up would be of no use.

`tasks/absa/reference.py` is the same model in plain PyTorch.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Set
from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.pooler import Pooler
from vllm.model_executor.layers.pooler.tokwise import AllPool
from vllm.model_executor.models.bert import BertModel
from vllm.model_executor.models.interfaces_base import attn_type, default_pooling_type
from vllm.model_executor.models.utils import AutoWeightsLoader, maybe_prefix


class TwoHeadPooler(Pooler):
    """Both heads, outside of compilation and CUDA graphs."""

    def __init__(self, model: TwoHeadTokenClassifier) -> None:
        super().__init__()
        self._model = weakref.ref(model)  # a submodule would be found twice
        self.pooling = AllPool()

    def get_supported_tasks(self) -> Set[Any]:
        """See vLLM."""
        return {"token_classify"}

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: Any) -> list[torch.Tensor | None]:
        """See vLLM; None: the sequence's other tokens are still to come."""
        model = self._model()
        assert model is not None
        return [
            None if states is None else model.logits(states) for states in self.pooling(hidden_states, pooling_metadata)
        ]


@attn_type("encoder_only")
@default_pooling_type(tok_pooling_type="ALL")
class TwoHeadTokenClassifier(nn.Module):
    """The model. See the module's text."""

    is_pooling_model = True

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.head_dtype = vllm_config.model_config.head_dtype
        self.bert = BertModel(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "bert"))
        self.classifier = nn.Linear(config.hidden_size, config.num_labels, dtype=self.head_dtype)
        self.sentiment_classifier = nn.Linear(config.hidden_size, len(config.sentiment_labels), dtype=self.head_dtype)
        self.pooler = TwoHeadPooler(self)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """See vLLM."""
        return self.bert.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """States [tokens, hidden size]."""
        return self.bert(input_ids, positions, intermediate_tensors, inputs_embeds)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """One sequence's states [tokens, hidden size] → [1 + tokens, width]."""
        states = states.to(self.head_dtype)
        tokens, whole = self.classifier(states), self.sentiment_classifier(states[:1])
        width = max(tokens.shape[1], whole.shape[1])
        padded = [nn.functional.pad(rows, (0, width - rows.shape[1])) for rows in (whole, tokens)]
        return torch.cat(padded)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Keys are those of the reference."""
        return AutoWeightsLoader(self).load_weights(weights)
