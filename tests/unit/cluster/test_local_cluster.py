"""`python -m cluster local`: its arguments. The cluster itself is in tests/ray/test_multi_node.py."""

from __future__ import annotations

import socket

import pytest

from cluster.__main__ import COMMANDS, main
from cluster.local_cluster import node_names


def test_names() -> None:
    assert node_names(None, None) == ["node0", "node1", "node2"]
    assert node_names(2, None) == ["node0", "node1"]
    assert node_names(None, "edge, engines") == ["edge", "engines"]
    assert node_names(2, "edge,engines") == ["edge", "engines"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "0"], "--nodes: at least 1"),
        (["--nodes", "3", "--names", "a,b"], "2 names for 3 nodes"),
        (["--names", "a,a"], "each once"),
        (["--names", "a,b c"], "'b c' cannot be"),
        (["--names", "CPU"], "'CPU' cannot be"),
    ],
)
def test_wrong_names_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", *arguments]) == 1
    assert message in capsys.readouterr().out


def test_a_taken_port_is_named_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["local", "--dashboard-port", str(port)]) == 1
    assert f"{port} is taken" in capsys.readouterr().out


def test_every_command_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
