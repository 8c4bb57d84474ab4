"""The README's commands, against the running server."""

from __future__ import annotations

import json
import re
import subprocess

from tests.cluster import ROOT, Server

README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _run(server: Server, command: str) -> dict[str, object]:
    command = command.replace("http://127.0.0.1:8000", server.url).replace("curl -s", "curl -s --fail-with-body", 1)
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def test_the_first_example_answers_as_shown(server: Server) -> None:
    got = _run(server, _blocks("bash")[0])
    shown = json.loads(_blocks("json")[0])
    assert got.keys() == shown.keys()
    assert got["usage"] == shown["usage"]
    rounded = [{**r, "relevance_score": round(r["relevance_score"], 3)} for r in got["results"]]  # type: ignore[attr-defined]
    assert rounded == shown["results"]


def test_every_other_curl_line_works(server: Server) -> None:
    lines = [line for block in _blocks("bash")[1:] for line in block.strip().splitlines()]
    assert len(lines) == 5
    for line in lines:
        assert _run(server, line)


def test_the_python_examples_run(server: Server) -> None:
    blocks = _blocks("python")
    assert len(blocks) == 2
    for code in blocks:
        exec(code.replace("http://127.0.0.1:8000", server.url), {})
