"""Finds an IO Processor plugin among what is installed, or says why it cannot be had.

vLLM logs a plugin that fails to load and goes on without it; what stops it then is "not installed", or, for a model,
"architecture not supported". Here the plugin's own error stops the start.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Iterable

GROUP = "vllm.io_processor_plugins"
GENERAL_GROUP = "vllm.general_plugins"
OURS = "serve_app.vllm_plugin.io_processors"
"""Where the entry points of our own processors lead; the pipeline answers for those itself."""


class PluginError(RuntimeError):
    """A plugin that cannot be used. The start must not go on without it."""


def is_ours(name: str) -> bool:
    """Whether `name` is one of this package's own processors."""
    return any(point.value.startswith(OURS) for point in _points(GROUP, name))


def processor_class(name: str) -> type:
    """The class of a plugin, imported.

    Raises:
        PluginError: not installed, installed twice, left out by `VLLM_PLUGINS`, or it failed to load.
    """
    points = _points(GROUP, name)
    if not points:
        raise PluginError(f"io_processor_plugin: {missing(name)}")
    if len(points) > 1:
        several = ", ".join(point.value for point in points)
        raise PluginError(f"io_processor_plugin: several packages register '{name}': {several}")
    if not allowed(name):
        raise PluginError(f"io_processor_plugin: the variable VLLM_PLUGINS leaves '{name}' out")
    try:
        qualified = points[0].load()()
        if qualified is None:
            raise ImportError("its entry point returned None: it declines to run here")
        module, _, attribute = qualified.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise PluginError(f"io_processor_plugin: '{name}' failed to load: {type(error).__name__}: {error}") from error
    if not isinstance(found, type):
        raise PluginError(f"io_processor_plugin: '{name}' leads to {qualified}, which is no class")
    return found


def missing(name: str) -> str | None:
    """What is wrong if no package registers `name`; None if one does. Runs no code of the plugin's."""
    if _points(GROUP, name):
        return None
    others = sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)})
    return f"'{name}' ({GROUP}) is not installed; installed are: {', '.join(others) or 'none'}"


def allowed(name: str) -> bool:
    """Whether vLLM's own list of plugins, if there is one, has `name`."""
    names = os.environ.get("VLLM_PLUGINS")
    return names is None or name in names.split(",")


def failures(group: str = GENERAL_GROUP) -> dict[str, Exception]:
    """The plugins of a group that cannot be loaded, and the error of each; vLLM has only logged them."""
    found: dict[str, Exception] = {}
    for point in importlib.metadata.entry_points(group=group):
        if not allowed(point.name):
            continue
        try:
            point.load()()
        except Exception as error:
            found[point.name] = error
    return found


def explain(error: Exception) -> None:
    """Called when an engine failed to start: without its plugin a model's architecture is just "not supported".

    Raises:
        PluginError: a model plugin failed to load; with its error.
    """
    broken = failures()
    if not broken:
        return
    causes = "; ".join(
        f"the vLLM plugin '{name}' failed to load: {type(e).__name__}: {e}" for name, e in broken.items()
    )
    raise PluginError(f"the engine did not start, and {causes}") from error


def _points(group: str, name: str) -> list[importlib.metadata.EntryPoint]:
    """Entry points of that name; one that is listed twice, as an editable install's can be, counts once."""
    points: Iterable[importlib.metadata.EntryPoint] = importlib.metadata.entry_points(group=group, name=name)
    return list({point.value: point for point in points}.values())
