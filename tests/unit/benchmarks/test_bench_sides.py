"""What a command line turns into: servers, their commands, their routes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import environment
from benchmarks.backends import UsageError, parse_backend
from benchmarks.cli import _joined, backends, parser
from benchmarks.text import cli as text_cli
from benchmarks.text.options import ONE_BY_ONE, methods
from benchmarks.text.wire import SHAPES

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "gpus", list)


def test_rerank_takes_a_second_tuned_vllm_and_plain_ray_serve(tmp_path: Path) -> None:
    words = ["rerank", "--launch-vllm", "m", "--dtype", "fp32", "--vllm-args", "--enforce-eager"]
    words += [
        "--vllm-tuned-args",
        "--api-server-count 4",
        "--launch-plain-serve",
        "m",
        "--plain-serve-args",
        "--gpus 0.3",
    ]
    found = backends(parser().parse_args(_joined(words)), tmp_path)
    assert [b.name for b in found] == ["vllm", "vllm-tuned", "plain-serve"]
    commands = [b.server.command if b.server else [] for b in found]
    assert "--enforce-eager" in commands[0]
    assert commands[1][-2:] == ["--api-server-count", "4"]
    assert "--enforce-eager" not in commands[1]
    assert commands[2][-2:] == ["--gpus", "0.3"]
    assert len({b.origin for b in found}) == 3
    assert {b.dtype for b in found} == {"float32"}


@pytest.mark.parametrize("task", SHAPES)
def test_text_commands_ask_each_server_in_its_own_shape(task: str, tmp_path: Path) -> None:
    words = [task, "--launch-vllm", "m", "--launch-poolserve", str(ROOT / "benchmarks" / "cpu_rerank.yaml")]
    words += ["--dtype", "fp32", "--model", "ce-mini", "--backend", "other=http://h:1,shape=vllm"]
    if task in ("embed", "documents"):
        words[-1] = "other=http://h:1,shape=tei"
    found = {b.name: b for b in text_cli.backends(parser().parse_args(words), tmp_path)}
    paths = {name: b.url.removeprefix(b.origin) for name, b in found.items()}
    ours = next(iter(SHAPES[task].values())).path
    assert paths["poolserve"] == ours
    assert paths["vllm"] == {"absa": "/pooling", "embed": "/v1/embeddings", "classify": "/classify"}.get(
        task, "/rerank"
    )
    assert paths["other"] == SHAPES[task][found["other"].shape or ""].path
    assert all(b.shape in SHAPES[task] for b in found.values())


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(UsageError, match="no shape 'cohere'; known: openai, tei"):
        parse_backend("a=http://h:1,shape=cohere", None, {"openai": "/v1/embeddings", "tei": "/embed"})
    with pytest.raises(UsageError, match="unknown key shape"):
        parse_backend("a=http://h:1,shape=tei")


def test_libraries_are_run_one_by_one_and_with_every_padding() -> None:
    assert methods("absa", [32])[0].name == ONE_BY_ONE
    assert {m.padding for m in methods("documents", [8])} == {"fixed", "dynamic", "sorted", "own"}
    assert [m.batch for m in methods("embed", [32, 128])] == [32, 128]
