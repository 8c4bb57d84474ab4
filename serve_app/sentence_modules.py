"""The modules that sentence-transformers puts behind a model, as `modules.json` lists them.

Both engines run Transformer, Pooling, Dense and Normalize, in this order. A module that is passed over would give other
vectors than the checkpoint's without a word, so any other one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_app.vocabulary import PoolingType

_POOLING = {"cls": PoolingType.CLS, "mean": PoolingType.MEAN, "lasttoken": PoolingType.LAST}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Before sentence-transformers 6 a Pooling module's config had a switch per mode."""
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
_VLLM_DENSE = {"sentence_transformers.models.Dense", "sentence_transformers.base.modules.dense.Dense"}
"""What vLLM takes for a Dense module (`_DENSE_MODULE_TYPES`, transformers_utils/config.py); others it leaves out."""
_ACTIVATIONS = {"Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"}
"""Of torch.nn; vLLM knows them too. It leaves out the whole module where it does not know the activation."""


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer behind the pooling.

    Attributes:
        folder: its own, in the checkpoint's.
        inputs, outputs: widths.
        bias: whether it has one.
        activation: name of a class of torch.nn.
    """

    folder: str
    inputs: int
    outputs: int
    bias: bool
    activation: str


@dataclass(frozen=True, slots=True)
class SentenceModules:
    """What stands behind the model.

    Attributes:
        pooling: None: there is no `modules.json`, or the settings say it.
        dense: in their order.
        normalize: whether it ends in unit length.
    """

    pooling: PoolingType | None = None
    dense: tuple[Dense, ...] = ()
    normalize: bool = False


def read_modules(folder: Path, *, pooling: PoolingType | None, for_vllm: bool) -> SentenceModules:
    """The modules of a checkpoint.

    Args:
        folder: the checkpoint's.
        pooling: what the settings say; the checkpoint's own is not read then.
        for_vllm: vLLM builds them, from the same files.

    Raises:
        ValueError: a module, an order or a pooling that would not be run as sentence-transformers runs it.
    """
    path = folder / "modules.json"
    if not path.exists():
        return SentenceModules()
    listed = [(_kind(module), module) for module in json.loads(path.read_text(encoding="utf-8"))]
    kinds = [kind for kind, _ in listed]
    for kind in kinds:
        if kind not in _ORDER:
            raise ValueError(f"source: modules.json lists a module '{kind[:60]}'; served are {', '.join(_ORDER)}")
    if kinds != sorted(kinds, key=_ORDER.index) or any(kinds.count(kind) > 1 for kind in _ORDER if kind != "Dense"):
        raise ValueError(f"source: modules.json lists {', '.join(kinds)}; served is the order {', '.join(_ORDER)}")
    own = None
    if pooling is None and "Pooling" in kinds:
        own = _pooling(folder, listed[kinds.index("Pooling")][1])
    dense = tuple(_dense(folder, module, for_vllm=for_vllm) for kind, module in listed if kind == "Dense")
    return SentenceModules(own, dense, "Normalize" in kinds)


def _kind(module: Mapping[str, Any]) -> str:
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def _config(folder: Path, module: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / str(module.get("path", "")) / "config.json"
    if not path.exists():
        raise ValueError(f"source: modules.json names '{module.get('path', '')}', and there is no config.json in it")
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _pooling(folder: Path, module: Mapping[str, Any]) -> PoolingType:
    """The one mode of a Pooling module, under sentence-transformers' rule: `pooling_mode`, else the switches."""
    config = _config(folder, module)
    stated = config.get("pooling_mode")
    if stated is None:
        modes: Sequence[str] = [mode for flag, mode in _FLAGS.items() if config.get(flag)] or ["mean"]
    else:
        modes = [stated] if isinstance(stated, str) else [str(mode) for mode in stated]
    if len(modes) != 1:
        raise ValueError(f"source: the checkpoint pools by {' and '.join(modes)} together; served is one, or `pooling`")
    if modes[0] not in _POOLING:
        raise ValueError(f"source: the checkpoint pools by '{modes[0][:60]}'; served are {', '.join(_POOLING)}")
    return _POOLING[modes[0]]


def _dense(folder: Path, module: Mapping[str, Any], *, for_vllm: bool) -> Dense:
    config, kind = _config(folder, module), str(module["type"])
    inner = str(module.get("path", ""))
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = name.rsplit(".", 1)[-1]
    if not name.startswith("torch.nn.modules.") or activation not in _ACTIVATIONS:
        raise ValueError(f"source: {inner}: activation '{name[:80]}' is not served; served are {sorted(_ACTIVATIONS)}")
    ends = {config.get("module_input_name"), config.get("module_output_name")} - {None, "sentence_embedding"}
    if config.get("use_residual") or ends:
        raise ValueError(f"source: {inner}: a Dense module is served behind the pooling and without a residual only")
    if for_vllm and (kind not in _VLLM_DENSE or "activation_function" not in config):
        raise ValueError(f"source: {inner}: vLLM would not run this Dense module as it is; `engine.kind: torch` does")
    return Dense(
        inner, int(config["in_features"]), int(config["out_features"]), bool(config.get("bias", True)), activation
    )


def load_dense(folder: Path, modules: Sequence[Dense]) -> Any:
    """The modules as one of torch, [..., first width] to [..., last width], in float32.

    Raises:
        ValueError: weights are missing.
    """
    import torch
    from safetensors.torch import load_file

    layers: list[Any] = []
    for module in modules:
        path = folder / module.folder / "model.safetensors"
        if not path.exists():
            raise ValueError(f"source: no weights in {module.folder}/model.safetensors")
        linear = torch.nn.Linear(module.inputs, module.outputs, bias=module.bias)
        try:
            linear.load_state_dict({key.removeprefix("linear."): value for key, value in load_file(path).items()})
        except RuntimeError as error:
            raise ValueError(f"source: {module.folder}: {error}") from error
        layers += [linear, getattr(torch.nn, module.activation)()]
    return torch.nn.Sequential(*layers).eval()
