"""Edits of YAML by the places of its nodes: what is asked for changes, every other character stays.

`put` and `take` work on the text of one mapping, in blocks or in braces. They read it with its aliases unresolved, so
that what stands elsewhere in the file is neither needed nor touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import yaml


class NotEditable(ValueError):
    """The text is written in a way that allows no edit without loss."""


class Alias(yaml.ScalarNode):
    """`*name`, with its own place, which yaml's composer forgets.

    Attributes:
        target: what it stands for; None: its anchor is not in the text.
    """

    def __init__(self, name: str, start: yaml.Mark, end: yaml.Mark, target: yaml.Node | None) -> None:
        super().__init__("alias", f"*{name}", start, end)
        self.target = target


class _Composer(yaml.SafeLoader):
    """Leaves aliases as they are."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if not self.check_event(yaml.AliasEvent):
            return super().compose_node(parent, index)
        event = self.get_event()  # type: ignore[no-untyped-call]
        return Alias(event.anchor, event.start_mark, event.end_mark, self.anchors.get(event.anchor))


def compose(text: str) -> yaml.Node:
    """The nodes of a text that is YAML and not empty."""
    root = yaml.compose(text, Loader=_Composer)
    assert root is not None
    return root


def ends(node: yaml.Node) -> Iterator[yaml.Mark]:
    """Where the leaves end. A block collection's own end mark lies behind the comments that follow it."""
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False):
        block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        yield _before(node.end_mark) if block else node.end_mark
        return
    for child in node.value:
        for part in child if isinstance(child, tuple) else (child,):
            yield from ends(part)


def _before(mark: yaml.Mark) -> yaml.Mark:
    return yaml.Mark(mark.name, mark.index, max(0, mark.line - 1), 0, None, 0)


def span(text: str, mapping: yaml.Node) -> tuple[int, int]:
    """Where a mapping begins and ends: in braces its own characters, in blocks its lines."""
    if not isinstance(mapping, yaml.MappingNode) or not mapping.value:
        raise NotEditable("it is no mapping with fields of its own")
    if mapping.flow_style:
        return mapping.start_mark.index, mapping.end_mark.index
    first = _line_start(text, mapping.value[0][0].start_mark.index)
    return first, _line_end(text, max(mark.index for mark in ends(mapping)))


def put(text: str, path: Sequence[str], value: str, key: str | None = None) -> str:
    """The text with a field set, or added behind the last one of its mapping.

    Args:
        path: the names that lead to the field.
        value: YAML, in one line.
        key: YAML of the field's own name, for one that is added; None: as in `path`.
    """
    mapping = _mapping(text, path[:-1])
    found = next((v for k, v in mapping.value if k.value == path[-1]), None)
    if found is not None:
        if not isinstance(found, yaml.ScalarNode):
            raise NotEditable(f"'{path[-1]}' is no plain value")
        start, end = found.start_mark.index, found.end_mark.index
        gap = " " if start == end else ""  # `name:` with nothing behind it
        return text[:start] + gap + value + text[end:]
    added = f"{key or path[-1]}: {value}"
    at = max(mark.index for mark in ends(mapping.value[-1][1]))
    if mapping.flow_style:
        return f"{text[:at]}, {added}{text[at:]}"
    at, column = _line_end(text, at), mapping.value[0][0].start_mark.column
    return f"{text[:at]}\n{' ' * column}{added}{text[at:]}"


def take(text: str, path: Sequence[str]) -> str:
    """The text without a field; comments between the fields stay."""
    mapping = _mapping(text, path[:-1])
    place = next((i for i, (key, _) in enumerate(mapping.value) if key.value == path[-1]), None)
    if place is None:
        raise NotEditable(f"'{path[-1]}' is not written where it is used")
    start = mapping.value[place][0].start_mark.index
    end = max(mark.index for mark in ends(mapping.value[place][1]))
    first, last = _line_start(text, start), _line_end(text, end)
    if not text[first:start].strip() and re.fullmatch(r"\s*,?\s*(#.*)?", text[end:last]):  # lines of its own
        return text[: max(0, first - 1)] if last == len(text) else text[:first] + text[last + 1 :]
    if not mapping.flow_style:
        raise NotEditable(f"'{path[-1]}' has no lines of its own")
    if place + 1 < len(mapping.value):
        following = mapping.value[place + 1][0].start_mark.index
        gap, cut = text[end:following], (start, following)
    elif place:
        previous = max(mark.index for mark in ends(mapping.value[place - 1][1]))
        gap, cut = text[previous:start], (previous, end)
    else:
        gap, cut = "", (start, end)
    if "#" in gap:
        raise NotEditable(f"a comment beside '{path[-1]}' would be lost; give '{path[-1]}' lines of its own")
    return text[: cut[0]] + text[cut[1] :]


def _mapping(text: str, path: Sequence[str]) -> yaml.MappingNode:
    node: yaml.Node | None = compose(text)
    for name in path:
        assert isinstance(node, yaml.MappingNode)
        node = next((v for k, v in node.value if k.value == name), None)
        if isinstance(node, Alias):
            raise NotEditable(f"'{name}' is the alias {node.value}; write it out")
        if not isinstance(node, yaml.MappingNode) or not node.value:
            raise NotEditable(f"'{name}' is no mapping with fields of its own")
    assert isinstance(node, yaml.MappingNode)
    return node


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _line_end(text: str, index: int) -> int:
    end = text.find("\n", index)
    return end if end >= 0 else len(text)
