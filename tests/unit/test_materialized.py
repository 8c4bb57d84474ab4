"""What engines see of materialized checkpoints: found, checked, refused."""

from __future__ import annotations

from pathlib import Path

import fsspec
import numpy as np
import pytest

from cluster.materialize.store import materialize
from serve_app.materialized import FILES, locate, name_of
from serve_app.settings import MaterializedSettings
from serve_app.sources import SourceError
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for

WEIGHTS = np.random.default_rng(0).integers(0, 256, 3 << 20, dtype=np.uint8).tobytes()


def test_engines_refuse_what_differs(checkpoints: Checkpoints, tmp_path: Path) -> None:
    source = checkpoints.bert(1)
    version = materialize(str(source), None, tmp_path).version
    by_size = settings_for(source, "rerank", materialized={"folder": str(tmp_path)})
    by_hash = settings_for(source, "rerank", materialized={"folder": str(tmp_path), "check": "hashes"})
    for settings in (by_size, by_hash):
        assert locate(settings).settings.source == str(version / FILES)
    tokenizer = version / FILES / "tokenizer.json"
    tokenizer.chmod(0o644)
    tokenizer.write_bytes(tokenizer.read_bytes()[:-1] + b" ")  # the same size
    for settings in (by_size, by_hash):
        with pytest.raises(SourceError, match=r"tokenizer\.json: other content"):
            locate(settings)


def test_the_full_check_reads_large_files_too(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/large/config.json": b"{}", "/large/model.safetensors": WEIGHTS})
    version = materialize("memory://large", None, tmp_path).version
    weights = version / FILES / "model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(b"x" + WEIGHTS[1:])
    settings = settings_for(Path("x"), "rerank", source="memory://large", materialized={"folder": str(tmp_path)})
    assert locate(settings).digest == version.name
    with pytest.raises(SourceError, match=r"model\.safetensors: other content"):
        locate(settings, check="hashes")


def test_names_of_folders_differ_and_are_safe() -> None:
    names = {name_of(text) for text in ("org/model", "org--model", "org/Model", "s3://b/../x", "..", "")}
    assert len(names) == 6
    assert not any("/" in name or name.startswith(".") for name in names)
    assert MaterializedSettings(folder="/m").check == "sizes"
