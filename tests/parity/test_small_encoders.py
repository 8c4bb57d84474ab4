"""The benchmark of small encoders, to its end: both engines give sentence-transformers' vectors."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.cli import main
from tests.checkpoints import Checkpoints


def test_a_short_run_agrees_and_writes_a_result(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints.sentence_transformers(checkpoints.xlm_roberta(0), "MEAN", normalize=True)
    arguments = ["--texts", "40", "--inputs", "8", "--concurrency", "2", "--batches", "8", "16", "--rounds", "2"]
    command = ["small-encoders", "--model-dir", str(folder), "--dtype", "float32", "--results-dir", str(tmp_path)]
    assert main([*command, *arguments]) == 0
    (path,) = tmp_path.glob("*.json")
    result = json.loads(path.read_text())
    sides = {"sentence-transformers, batch 8", "sentence-transformers, batch 16", "vllm engine", "torch engine"}
    assert result["texts_per_s"].keys() == sides
    assert all(len(rates) == 2 for rates in result["texts_per_s"].values())
    assert min(result["least_cosine"].values()) > 0.99999
    assert "| torch engine |" in path.with_suffix(".md").read_text()
