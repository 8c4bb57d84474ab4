"""The command's refusals, its exit codes, and what it writes."""

from __future__ import annotations

import argparse
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml

from serve_app.__main__ import main
from serve_app.verify import cli
from serve_app.verify.compare import Case
from serve_app.verify.limits import default_limits
from serve_app.verify.page import decades, histogram, scatter
from serve_app.verify.report import cut, number
from serve_app.vocabulary import DType, Task
from tests.checkpoints import CORPUS, Checkpoints
from tests.cluster import ROOT
from tests.unit.models import settings_for
from tests.unit.verify.conftest import Verify
from tests.unit.verify.stand_in import serving

RERANK: list[dict[str, Any]] = [{"query": "<b>fox</b> & dog", "documents": [*CORPUS, "<script>alert(1)</script>"]}]
CANNOT = 2


class _Page(HTMLParser):
    """Collects a page's tags and whatever would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data", "xlink:href")]


def test_the_page_is_one_file_with_plots_and_escaped_texts(checkpoints: Checkpoints, verify: Verify) -> None:
    out = verify.folder / "out.html"
    faulty = serving(token_types=False)
    assert verify(checkpoints.bert(), "rerank", RERANK, "--report", str(out), "--worst", "50", start=faulty) == 1
    text = out.read_text()
    page = _Page()
    page.feed(text)
    assert page.loads == []
    assert "script" not in page.tags
    assert not re.search(r"https?://|@import|url\(", text)
    assert page.tags.count("svg") == 2
    assert page.tags.count("circle") == len(CORPUS) + 1
    assert "rect" in page.tags
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "does not agree" in text


def test_json_and_terminal_say_dtypes_versions_and_worst_cases(
    checkpoints: Checkpoints, verify: Verify, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(checkpoints.bert(), "rerank", RERANK) == 0
    result = verify.result
    assert (result["saved"], result["reference"]["dtype"], result["served"]["dtype"]) == ("float32",) * 3
    assert result["reference"]["versions"].keys() == {"poolserve", "transformers", "torch"}
    assert result["served"]["versions"] == {"stand-in": "1"}
    assert result["passed"] is True
    assert result["agreement"]["ranking"]["topk"] == 1
    json.dumps(result, allow_nan=False)
    printed = capsys.readouterr()
    assert "saved in float32" in printed.out
    assert "the served model agrees with the reference" in printed.out
    assert "served" in printed.err  # the progress bars


def test_different_dtypes_are_refused_unless_allowed(
    checkpoints: Checkpoints, verify: Verify, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--reference-dtype", "bfloat16")
    assert verify(checkpoints.bert(), "rerank", RERANK, *options) == CANNOT
    assert "--allow-dtype-difference" in " ".join(capsys.readouterr().err.split())
    assert verify(checkpoints.bert(), "rerank", RERANK, *options, "--allow-dtype-difference") == 0
    assert verify.limit("largest difference")["limit"] == 0.15  # the coarser side's
    assert verify.limit("largest difference")["value"] > 1e-4
    assert any("different formats" in note for note in verify.result["notes"])


def test_the_saved_format_is_told_when_it_is_another(checkpoints: Checkpoints, verify: Verify) -> None:
    import torch

    start = serving(dtype=torch.bfloat16)
    assert verify(checkpoints.bert(), "rerank", RERANK, start=start, dtype="bfloat16") == 0
    assert any("saved in float32 and is served in bfloat16" in note for note in verify.result["notes"])


def test_limits_can_be_given(checkpoints: Checkpoints, verify: Verify) -> None:
    start = serving(token_types=False)
    loose = ("--max-difference", "100", "--min-top1", "0")
    assert verify(checkpoints.bert(), "rerank", RERANK, *loose, start=start) == 0
    assert verify(checkpoints.bert(), "rerank", RERANK, *loose, "--min-spearman", "0.9999", start=start) == 1
    assert verify(checkpoints.bert(), "rerank", RERANK, "--min-topk", "1", "--top-k", "3") == 0
    assert verify.limit("top-3 agreement")["value"] == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "other: no such model; .* has tiny@1, tiny@2"),
        ("tiny", "tiny: say which version"),
        ("tiny@3", "tiny@3: no such model"),
        ("tiny@2", "max_model_len: 4096 is more than the checkpoint's 512 positions"),
    ],
)
def test_models_that_cannot_be_verified(
    checkpoints: Checkpoints, verify: Verify, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    first = settings_for(checkpoints.bert(), "rerank")
    second = settings_for(checkpoints.bert(), "rerank", version="2", max_model_len=4096, max_num_batched_tokens=4096)
    config = verify.config(first, second)
    assert main(["verify", str(config), name, str(verify.inputs(RERANK))]) == CANNOT
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_inputs_of_another_task_and_texts_that_do_not_fit(
    checkpoints: Checkpoints, verify: Verify, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(checkpoints.bert(), "rerank", [{"text": "a"}]) == CANNOT
    assert "inputs.jsonl:1: not an input of task rerank" in " ".join(capsys.readouterr().err.split())
    too_long = [*RERANK, {"query": "fox " * 600, "documents": ["a"]}]
    assert verify(checkpoints.bert(), "rerank", too_long) == CANNOT
    assert "line 2: Transformers cannot read it" in " ".join(capsys.readouterr().err.split())


def test_a_template_out_of_a_file(checkpoints: Checkpoints, verify: Verify) -> None:
    path = verify.folder / "template.yaml"
    template = {"prefix": "P ", "head": "{query}", "document_prefix": " ", "suffix": " S", "instruction": ""}
    path.write_text(yaml.safe_dump(template))
    lines = [{"query": "fox", "documents": CORPUS}]
    options = ("--template", str(path))
    assert verify(checkpoints.qwen3(), "rerank", lines, *options, template=template) == 0
    assert next(fact for fact in verify.result["reads"] if fact["name"] == "template")["differs"] is False
    path.write_text("{prefix: 1}")
    assert verify(checkpoints.qwen3(), "rerank", lines, *options, template=template) == CANNOT


def test_a_key_variable_that_is_not_set(verify: Verify, checkpoints: Checkpoints) -> None:
    options = ("--url", "http://127.0.0.1:1", "--key-variable", "NO_SUCH_VARIABLE_OF_OURS")
    assert verify(checkpoints.bert(), "rerank", RERANK, *options) == CANNOT


def test_an_engine_that_does_not_start_is_said(
    checkpoints: Checkpoints, verify: Verify, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from serve_app.engine.fake_engine import FakeEngine

    async def start(self: FakeEngine) -> None:
        raise RuntimeError("no room on the GPU")

    monkeypatch.setattr(FakeEngine, "start", start)
    code = verify(checkpoints.bert(), "rerank", RERANK, start=cli.in_this_process, engine={"kind": "fake"})
    assert code == CANNOT
    assert "the engine does not start: RuntimeError: no room" in " ".join(capsys.readouterr().err.split())


def test_a_fake_engine_in_this_process_does_not_agree(checkpoints: Checkpoints, verify: Verify) -> None:
    code = verify(checkpoints.bert(), "rerank", RERANK, start=cli.in_this_process, engine={"kind": "fake"})
    assert code == 1
    assert verify.result["served"]["place"] == "an engine in this process"
    assert "vllm" in verify.result["served"]["versions"]


def test_the_page_of_the_documentation_names_every_option_and_the_limits() -> None:
    page = (ROOT / "docs" / "verify.md").read_text()
    parser = argparse.ArgumentParser(add_help=False)
    cli.add_arguments(parser)
    options = {name for action in parser._actions for name in action.option_strings}
    assert set(re.findall(r"--[a-z0-9-]*[a-z0-9]", page)) == options
    rows = {
        cells[1]: [float(cell) for cell in cells[2:5]]
        for cells in (line.split("|") for line in page.splitlines())
        if cells[1:2] and re.fullmatch(r" `--m\w+-\w+`.* ", cells[1])
    }
    dtypes = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
    for task, name in ((Task.RERANK, "logits and scores"), (Task.EMBED, "vectors and spans' scores")):
        assert rows[f" `--max-difference`, {name} "] == [default_limits(task, dtype).max_difference for dtype in dtypes]
    for field in ("top1", "labels", "spans"):
        want = [getattr(default_limits(Task.RERANK, dtype), f"min_{field}") for dtype in dtypes]
        assert rows[f" `--min-{field}` "] == want


def test_plots_of_odd_values() -> None:
    assert scatter([]) == ""
    assert scatter([(1.0, float("nan"))]) == ""
    assert "circle" in scatter([(1.0, 1.0)])
    assert scatter([(float(i), float(i)) for i in range(10_000)]).count("<circle") <= 2_000
    assert histogram([], 1.0) == ""
    cases = [Case(1, "a", "", 1.0, 1.1), Case(2, "b", "", 1.0, 1.0)]
    assert histogram(cases, 0.01).count('class="limit"') == 1
    assert histogram(cases, 0.0).count('class="limit"') == 0
    assert sum(count for _, _, count in decades([0.0, 1e-7, 0.1, float("inf")], 1e-4)) == 3
    assert [number(value) for value in (float("nan"), float("inf"), 3.0, 0.00012345)] == [
        "none",
        "one side only",
        "3",
        "0.000123",
    ]
    assert cut("a\n b" + "c" * 200, 10) == "a bcccccc…"
