"""Where vLLM's compiled code is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serve_app.engine.compile_cache import cache_key, use_compile_cache


def test_the_compile_cache_is_of_one_model_and_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CACHE_ROOT", raising=False)
    monkeypatch.setattr("serve_app.engine.compile_cache.hardware", lambda: "NVIDIA H200")
    folder = use_compile_cache(tmp_path, "d1")
    assert folder is not None
    assert folder.is_dir()
    assert os.environ["VLLM_CACHE_ROOT"] == str(folder)
    assert use_compile_cache(tmp_path, "d2") is None  # what is set stays
    monkeypatch.delenv("VLLM_CACHE_ROOT")
    key = cache_key("d1")
    assert key == folder.name
    assert key != cache_key("d2")
    monkeypatch.setattr("serve_app.engine.compile_cache.hardware", lambda: "NVIDIA H100")
    assert cache_key("d1") != key
    (tmp_path / "file").write_text("")
    assert use_compile_cache(tmp_path / "file", "d1") is None  # cannot be written: said, and gone without
    assert "VLLM_CACHE_ROOT" not in os.environ
