"""The kernel view's tables, without a GPU: Nsight Compute's output is a recorded one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from safetensors.torch import load_file

from benchmarks.cli import main
from benchmarks.kernels import counters
from benchmarks.kernels.commands import distance, draw
from benchmarks.kernels.report import page
from benchmarks.kernels.sides import Library, Model, cut
from benchmarks.stats import spread
from tests.checkpoints import Checkpoints

ZOO = Path(__file__).resolve().parents[3] / "model_zoo"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
TABLE = """==PROF== Connected to process 7
==PROF== Profiling "gemm" - 0: 0%....100% - 1 pass
"ID","Process ID","Kernel Name","gpu__time_duration.sum","smsp__inst_executed_op_global_ld.sum",TENSOR
"","","","ns","inst","%"
"0","7","gemm","3,000","100","80"
"1","7","add","1,000","1,700","0"
"2","7","copy","1000","5","n/a"
==PROF== Disconnected from process 7
"""


def test_sums_over_kernels_and_percentages_by_time() -> None:
    table = TABLE.replace("TENSOR", f'"{TENSOR}"')
    found = counters.read(table.splitlines(keepends=True))
    assert found["kernels"] == 3
    assert found["gpu__time_duration.sum"] == pytest.approx(5e-3)
    assert found["smsp__inst_executed_op_global_ld.sum"] == 1805
    assert found[TENSOR] == pytest.approx(48.0)


def test_a_table_without_kernels() -> None:
    assert counters.read(["==ERROR== no kernels were profiled\n"]) == {"kernels": 0}


def test_the_profiler_is_around_the_worker_and_only_between_its_start_and_stop(tmp_path: Path) -> None:
    line = counters.command(["a.sum", "b.avg"], tmp_path / "t.csv", ["python", "x"])
    assert (line[0], line[-2:]) == ("ncu", ["python", "x"])
    assert line[line.index("--profile-from-start") + 1] == "off"
    assert line[line.index("--metrics") + 1] == "a.sum,b.avg"


def test_requests_are_the_same_every_time_and_fit_the_window() -> None:
    requests = draw(ZOO / "ce-mini", "rerank", 20, 3, 64)
    assert requests == draw(ZOO / "ce-mini", "rerank", 20, 3, 64)
    assert [len(request) for request in requests] == [20, 20, 20]
    assert max(len(ids) for request in requests for ids in request) <= 64
    assert requests[0] != requests[1]


def test_the_page_names_what_is_missing_and_says_what_a_request_costs() -> None:
    result = {
        "name": "k",
        "valid": False,
        "problems": ["the counters of engine are missing: TimeoutExpired"],
        "settings": {
            "task": "rerank",
            "sequences": 20,
            "tokens": 1930,
            "requests": 2,
            "dtype": "bfloat16",
            "graph_tokens": 4096,
        },
        "sides": {
            "engine": {
                "ms": [4.0, 6.0],
                "kernels": {"gemm|x": [6, 4.0], "add": [2, 1.0]},
                "copies": 4,
                "kernel_ms": 5.0,
                "max_abs": 0.01,
            },
            "without a reference": {"ms": [1.0], "kernels": {}, "copies": 0, "kernel_ms": 0.0},
            "transformers": {"counters": {"kernels": 3.0, "smsp__inst_executed_op_global_ld.sum": 7.07e6}},
        },
        "hardware": {"gpus": [], "cpu": "x", "cpus": 2, "memory_gib": 1.0},
        "code": {"commit": "abc", "dirty": False},
    }
    text = page(result)
    assert "valid: NO" in text
    assert "TimeoutExpired" in text
    assert f"| engine | {spread([4.0, 6.0])} | 4 | 2 | 2.50 | 80 % | 50 % | 1.0e-02 |" in text
    assert f"| without a reference | {spread([1.0])} | 0 | 0 | 0.00 | 0 % | 0 % | nan |" in text
    assert "| global loads | 7.07 M |" in text
    assert "`gemm/x` | 3 | 2.000" in text


@pytest.mark.parametrize("kind", ["qwen3", "bert"])
def test_a_model_cut_to_its_first_layers_runs_as_the_whole_one_does(
    kind: str, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    whole = getattr(checkpoints, kind)()
    folder = cut(whole, 1, "rerank", "float32", tmp_path / "cut")
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 1
    assert (folder / "tokenizer.json").read_bytes() == (whole / "tokenizer.json").read_bytes()
    before, after = load_file(whole / "model.safetensors"), load_file(folder / "model.safetensors")
    assert 0 < len(after) < len(before)
    assert all((after[name] == before[name]).all() for name in after)
    side = Library(Model(folder, "rerank", "float32", "cpu", 16, 16, 0.1), fixed=False)
    assert len(side.run([[5, 6, 7], [8, 9]])) == 2


@pytest.mark.parametrize("layers", ["0", "99"])
def test_layers_that_a_model_does_not_have_are_refused(layers: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model-dir", str(ZOO / "ce-mini"), "--task", "rerank", "--dtype", "float32", "--device", "cpu"]
    assert main(["kernels", *words, "--layers", layers]) == 2
    assert "--layers" in capsys.readouterr().err


def test_the_distance_keeps_what_is_no_number_and_takes_the_answers_out() -> None:
    found = {"answers": [[1.0, 2.5], [3.0]], "ms": [1.0]}
    assert distance(found, {"answers": [[1.0, 2.0], [3.1]]}) == pytest.approx(0.5)
    assert found == {"ms": [1.0]}
    assert math.isnan(distance({"answers": [[1.0], [math.nan]]}, {"answers": [[1.0], [1.0]]}) or 0.0)
    assert distance({}, {"answers": [[1.0]]}) is None
    assert distance({"answers": [[1.0]]}, {}) is None


def test_the_page_says_of_how_many_layers_the_counters_are() -> None:
    sides = {"engine": {"counters": {"kernels": 3.0}}}
    settings = {"task": "rerank", "sequences": 1, "tokens": 1, "requests": 1, "dtype": "bfloat16", "graph_tokens": 8}
    hardware = {"gpus": [], "cpu": "x", "cpus": 2, "memory_gib": 1.0}
    result = {"name": "k", "valid": True, "problems": [], "settings": {**settings, "counted_layers": 2}, "sides": sides}
    text = page({**result, "hardware": hardware, "code": {"commit": "abc", "dirty": False}})
    assert "## Counters of one request, the model's first 2 layers" in text
