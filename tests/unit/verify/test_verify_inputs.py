"""Files of inputs: every shape, and what is wrong with a line is said by its number and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serve_app.settings import QWEN3_RERANKER
from serve_app.verify.inputs import (
    SHAPES,
    AbsaLine,
    ClassifyLine,
    ImageLine,
    ImageRankLine,
    InputError,
    PairLine,
    ReferenceSettings,
    RerankLine,
    TextLine,
    read_inputs,
)
from serve_app.vocabulary import PoolingType, Task


def _file(folder: Path, *lines: Any) -> Path:
    path = folder / "inputs.jsonl"
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x, ensure_ascii=False)) + "\n" for x in lines))
    return path


@pytest.mark.parametrize(
    ("task", "line", "content"),
    [
        ("rerank", {"query": "q", "documents": ["a", ""]}, RerankLine(query="q", documents=["a", ""])),
        ("rerank", {"text_1": "q", "text_2": "a"}, PairLine(text_1="q", text_2="a")),
        ("image_rank", {"query": "q", "images": ["a.png"]}, ImageRankLine(query="q", images=["a.png"])),
        ("embed", {"text": "", "prompt": "query"}, TextLine(text="", prompt="query")),
        ("embed", {"image": "a.png"}, ImageLine(image="a.png")),
        ("classify", {"text": "a", "text_pair": "b"}, ClassifyLine(text="a", text_pair="b")),
        ("absa", {"text": "a", "aspects": ["food"]}, AbsaLine(text="a", aspects=["food"])),
    ],
)
def test_every_shape(tmp_path: Path, task: str, line: dict[str, Any], content: object) -> None:
    assert read_inputs(_file(tmp_path, "", line), task).lines[0].content == content
    assert read_inputs(_file(tmp_path, "", line), task).lines[0].number == 2


def test_every_task_has_a_shape() -> None:
    assert SHAPES.keys() == {task.value for task in Task}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], r"inputs.jsonl:1: not JSON"),
        (["[1]"], r"inputs.jsonl:1: must be a JSON object"),
        ([{"query": "q", "documents": ["a"]}, {"query": "q", "documents": []}], r"inputs.jsonl:2: documents: "),
        ([{"query": "q", "documents": ["a", 1]}], r"inputs.jsonl:1: documents.1: "),
        ([{"query": "q", "documents": ["a"], "top_n": 1}], r"inputs.jsonl:1: top_n: unknown field"),
        ([{"text": "a"}], r'not an input of task rerank; those are \{"query", "documents", "instruction"\?\} or \{"te'),
        ([{"settings": {"template": "none"}}], r"inputs.jsonl: no inputs"),
        ([{"settings": {"templates": "none"}}], r"inputs.jsonl:1: templates: unknown field"),
        ([{"settings": {}, "query": "q"}], r"inputs.jsonl:1: a line of settings holds nothing else"),
        ([], "no inputs"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_inputs(_file(tmp_path, *lines), "rerank")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_inputs(tmp_path / "none.jsonl", "rerank")


def test_line_separators_inside_a_text_do_not_end_the_line(tmp_path: Path) -> None:
    inputs = read_inputs(_file(tmp_path, {"text": "a\u2028b\u0085c"}), "embed")
    assert [line.content for line in inputs.lines] == [TextLine(text="a\u2028b\u0085c")]


def test_settings_of_the_first_line_and_options_over_them(tmp_path: Path) -> None:
    settings = {"template": QWEN3_RERANKER.model_dump(), "pooling": "MEAN", "max_length": 64}
    inputs = read_inputs(_file(tmp_path, {"settings": settings}, {"text": "a"}), "embed")
    assert inputs.settings == ReferenceSettings(template=QWEN3_RERANKER, pooling=PoolingType.MEAN, max_length=64)
    options = ReferenceSettings(max_length=32)
    assert options.over(inputs.settings) == inputs.settings.model_copy(update={"max_length": 32})


def test_pictures_are_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"picture")
    inputs = read_inputs(_file(tmp_path, {"image": "a.png"}), "embed")
    assert inputs.picture("a.png") == b"picture"
    with pytest.raises(InputError, match=r"^b\.png: No such file"):
        inputs.picture("b.png")
