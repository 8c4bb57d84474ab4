"""What `fusion-engine` sends and asks for; the engines themselves are not started."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fusion import checkpoint, plugin
from benchmarks.fusion.engines import SIDES, EngineLimits, settings, token_options
from benchmarks.fusion.run import FusionOptions
from benchmarks.fusion.workload import ParitySet, Workload, pictures
from serve_app.engine.vllm_options import engine_options
from serve_app.tasks.model import TextModel, load_text_model

LIMITS = EngineLimits("cpu", "float32", None, 512, 64, 96, 32, 2048, True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    checkpoint.write_files(made, "tiny")
    return made


def model(folder: Path, side: str) -> TextModel:
    return load_text_model(settings(side, folder, 24, LIMITS))


def test_the_published_shape() -> None:
    shape = checkpoint.config("vit-l-14-336")
    assert checkpoint.patches("vit-l-14-336") == 577
    assert (shape["text_config"]["hidden_size"], shape["vision_config"]["hidden_size"]) == (768, 1024)
    assert shape["text_config"]["eos_token_id"] == 49_407


def test_a_query_has_exactly_the_wanted_tokens(folder: Path) -> None:
    workload = Workload(model(folder, "marker per pair"), images=5, query_tokens=24, seed="s")
    lengths = {len(ids) for ids in ParitySet(workload, (4, 2)).token_ids()}
    assert lengths == {24}


def test_markers_per_query_make_one_sequence_and_markers_per_pair_one_each(folder: Path) -> None:
    query = Workload(model(folder, "markers per query"), 5, 24, "s").cold()
    assert len(query.batch) == 1
    assert query.batch.offsets[-1] == 24 + 5
    for side in ("tokens", "marker per pair"):
        pair = Workload(model(folder, side), 5, 24, "s").cold()
        assert len(pair.batch) == 5
        assert set(np.diff(pair.batch.offsets)) == {24}, "the EOS token is the marker"
    assert query.pairs == 5
    assert query.now("name").request_id == "name"


def test_cold_images_are_new_and_sent_and_warm_ones_are_neither(folder: Path) -> None:
    workload = Workload(model(folder, "marker per pair"), 5, 24, "s")
    first, second = workload.cold(), workload.cold()
    assert first.batch.images is not None
    assert second.batch.images is not None
    assert not set(first.batch.images.keys) & set(second.batch.images.keys)
    assert first.loaded is not None
    assert first.loaded.pixels.shape == (5, 48, 48, 3)
    heat, warm = workload.heat(), workload.warm()
    assert heat.batch.images is not None
    assert warm.batch.images is not None
    assert warm.batch.images.keys == heat.batch.images.keys
    assert warm.loaded is None
    assert set(warm.batch.images.rows) == {-1}
    assert warm.batch.token_ids.tolist() != workload.warm().batch.token_ids.tolist(), "queries are new all the same"


def test_all_sides_get_the_same_pictures_for_parity(folder: Path) -> None:
    models = [model(folder, side) for side in SIDES]
    workloads = [Workload(m, 5, 24, f"seed-{i}") for i, m in enumerate(models)]
    wanted = ParitySet(workloads[0], (2, 6))
    for workload in workloads:
        sent = wanted.requests(workload)[0].loaded
        assert sent is not None
        np.testing.assert_array_equal(sent.pixels, wanted.pictures())


def test_pictures_differ() -> None:
    made = pictures(48, 48, 8)
    assert made.shape == (8, 48, 48, 3)
    assert len({picture.tobytes() for picture in made}) == 8


def test_tokens_need_room_for_every_patch_and_the_wider_embeddings(folder: Path) -> None:
    tiny = model(folder, "tokens")
    options = engine_options(tiny.settings, tiny.checkpoint)
    changed = token_options(options, tiny.checkpoint.config)
    assert changed["max_model_len"] == options["max_model_len"] + 17 == 24 + 17
    assert changed["hf_overrides"]["text_config"] == {"max_position_embeddings": 24 + 17 + 1, "projection_dim": 96}


def test_16_bit_scores_may_differ_more(tmp_path: Path) -> None:
    half = EngineLimits("cuda", "bfloat16", 0.27, 8192, 512, 1024, 128, 2048, False)
    options = [FusionOptions("n", tmp_path, tmp_path, limits, "s") for limits in (LIMITS, half)]
    assert [o.threshold for o in options] == [1e-3, 0.05]
    assert options[1].positions == 77


def test_vllm_finds_the_plugins_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    plugin.write_metadata(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = {point.name: point.value for point in importlib.metadata.entry_points(group=plugin.GROUP)}
    assert found == {**plugin.OURS, **plugin.POOLSERVE}


def test_a_plugin_that_is_installed_is_not_registered_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "poolserve"

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [Point])
    text = (plugin.write_metadata(tmp_path) / "poolserve_benchmarks-0.dist-info" / "entry_points.txt").read_text()
    assert "poolserve_benchmarks = " in text
    assert "poolserve = " not in text
