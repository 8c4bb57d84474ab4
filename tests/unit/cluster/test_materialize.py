"""Materializing from a hub, object stores and folders: whole or not at all, once, and what was announced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from cluster.materialize import store
from cluster.materialize.remotes import FileRemote, Listing, RemoteFile, Unreachable, served_files
from cluster.materialize.store import Outcome, materialize
from serve_app.materialized import FILES, Manifest, differences, digest_of, locate, ref_path, source_folder
from serve_app.sources import SourceError
from tests.checkpoints import Checkpoints
from tests.cluster import ROOT
from tests.unit.cluster.hub import Hub
from tests.unit.models import settings_for

WEIGHTS = np.random.default_rng(0).integers(0, 256, 3 << 20, dtype=np.uint8).tobytes()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, which `HfApi` of this process talks to."""
    monkeypatch.setattr(store.time, "sleep", lambda seconds: None)  # between attempts
    files = {
        "config.json": b'{"model_type": "bert"}',
        "tokenizer.json": b'{"version": "1.0"}',
        "model.safetensors": WEIGHTS,
        "pytorch_model.bin": b"pickle",
        "onnx/model.onnx": b"onnx",
        ".gitattributes": b"*.safetensors filter=lfs",
        "1_Pooling/config.json": b"{}",
    }
    with Hub(files) as started:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", started.url)
        template = started.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        yield started


def fetch(root: Path, source: str = "org/model", revision: str | None = None, **more: Any) -> Outcome:
    return materialize(source, revision, root, **more)


def content(outcome: Outcome) -> dict[str, bytes]:
    root = outcome.version / FILES
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_hub_model_lies_whole_in_a_folder_named_by_its_content(hub: Hub, tmp_path: Path) -> None:
    outcome = fetch(tmp_path)
    served = {"config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"}
    assert content(outcome) == {path: hub.files[path] for path in served}
    assert outcome.manifest.revision == hub.commit
    assert outcome.version.name == outcome.manifest.digest == digest_of(outcome.manifest.files)
    assert outcome.fetched == sum(len(hub.files[path]) for path in served)
    assert differences(outcome.version, outcome.manifest, "hashes") == []
    assert not list(tmp_path.rglob("*.part"))


def test_a_second_run_verifies_and_fetches_nothing(hub: Hub, tmp_path: Path) -> None:
    first = fetch(tmp_path)
    hub.asked.clear()
    second = fetch(tmp_path)
    assert (second.version, second.fetched, hub.asked) == (first.version, 0, [])
    assert "verify" in second.seconds
    assert "download" not in second.seconds


def test_a_hub_that_does_not_answer_keeps_what_is_there(hub: Hub, tmp_path: Path) -> None:
    first = fetch(tmp_path)
    hub.__exit__()
    lines: list[str] = []
    assert fetch(tmp_path, say=lines.append).version == first.version
    assert "keeping what was fetched before" in lines[0]
    with pytest.raises(Unreachable):
        fetch(tmp_path / "empty")


def test_what_the_hub_does_not_have_is_no_outage(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"org/none.*none of that name"):
        fetch(tmp_path, "org/none")
    with pytest.raises(SourceError, match="at 'nope'"):
        fetch(tmp_path, revision="nope")


def test_a_connection_that_breaks_is_continued_where_it_broke(hub: Hub, tmp_path: Path) -> None:
    hub.cut["model.safetensors"] = 1 << 20
    outcome = fetch(tmp_path)
    assert content(outcome)["model.safetensors"] == WEIGHTS
    asked = [first for path, first in hub.asked if path == "model.safetensors"]
    assert asked == [0, 1 << 20]
    assert outcome.fetched == outcome.manifest.size  # no byte twice


def test_a_server_without_ranges_gives_the_same(hub: Hub, tmp_path: Path) -> None:
    hub.ranges = False
    hub.cut["model.safetensors"] = 1 << 20
    assert content(fetch(tmp_path))["model.safetensors"] == WEIGHTS


@pytest.mark.parametrize("path", ["model.safetensors", "tokenizer.json"])
def test_bytes_other_than_announced_never_count(hub: Hub, tmp_path: Path, path: str) -> None:
    """LFS files by SHA-256, small ones by git's hash."""
    hub.altered.add(path)
    with pytest.raises(SourceError, match=f"'{path}': what the source sends is not what it says"):
        fetch(tmp_path)
    settings = settings_for(Path("org/model"), "rerank", materialized={"folder": str(tmp_path)})
    with pytest.raises(SourceError, match="is not in"):
        locate(settings)
    hub.altered.clear()
    assert content(fetch(tmp_path))[path] == hub.files[path]


def test_a_new_commit_is_a_new_folder_and_the_old_one_stays(hub: Hub, tmp_path: Path) -> None:
    old = fetch(tmp_path)
    hub.commit, hub.files["config.json"] = "f" * 40, b'{"model_type": "roberta"}'
    new = fetch(tmp_path)
    assert new.version != old.version
    assert content(old)["config.json"] != content(new)["config.json"]
    settings = settings_for(Path("org/model"), "rerank", materialized={"folder": str(tmp_path)})
    assert Path(locate(settings).settings.source) == new.version / FILES


def test_the_same_content_under_two_revisions_is_kept_once(hub: Hub, tmp_path: Path) -> None:
    assert fetch(tmp_path).version == fetch(tmp_path, revision="main").version
    assert len(list(source_folder(tmp_path, "org/model").glob("*/manifest.json"))) == 1


@pytest.mark.parametrize("damage", ["altered", "short", "missing", "manifest", "added"])
def test_what_was_damaged_is_fetched_again(hub: Hub, tmp_path: Path, damage: str) -> None:
    version = fetch(tmp_path).version
    weights = version / FILES / "model.safetensors"
    weights.chmod(0o644)
    if damage == "altered":
        weights.write_bytes(b"x" + WEIGHTS[1:])
    elif damage == "short":
        weights.write_bytes(WEIGHTS[:-1])
    elif damage == "missing":
        weights.unlink()
    elif damage == "added":
        (version / FILES / "modeling.py").write_text("")
    else:
        (version / "manifest.json").write_text("{}")
    lines: list[str] = []
    outcome = fetch(tmp_path, say=lines.append)
    assert content(outcome)["model.safetensors"] == WEIGHTS
    assert "damaged" in lines[0]
    assert not list(tmp_path.rglob(".damaged*"))


def test_a_killed_run_leaves_nothing_that_counts_and_is_continued(hub: Hub, tmp_path: Path) -> None:
    hub.hang["model.safetensors"] = 2 << 20
    command = [sys.executable, "-m", "cluster", "materialize", "org/model", "--to", str(tmp_path)]
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert hub.hanging.wait(60)
    (part,) = [path for path in _wait_for(tmp_path, "model.safetensors") if path.stat().st_size]
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = part.stat().st_size
    assert 0 < there < len(WEIGHTS)
    settings = settings_for(Path("org/model"), "rerank", materialized={"folder": str(tmp_path)})
    with pytest.raises(SourceError, match="materialize"):
        locate(settings)
    assert not list(tmp_path.rglob("manifest.json"))
    hub.hang.clear()
    hub.asked.clear()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [first for path, first in hub.asked if path == "model.safetensors"] == [there]
    assert locate(settings).digest is not None
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "verified" in again.stdout


def _wait_for(root: Path, name: str) -> list[Path]:
    """Files of that name with content, as soon as there are any."""
    for _ in range(600):
        if found := [path for path in root.rglob(name) if path.stat().st_size]:
            return found
        threading.Event().wait(0.05)
    raise AssertionError(f"no {name}")


def test_two_at_once_fetch_once(hub: Hub, tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    lines: list[str] = []
    hub.hang["model.safetensors"] = 1000
    threads = [threading.Thread(target=lambda: outcomes.append(fetch(tmp_path, say=lines.append))) for _ in range(2)]
    threads[0].start()
    assert hub.hanging.wait(30)
    threads[1].start()
    while not any("waiting" in line for line in lines):
        threading.Event().wait(0.02)
    hub.hang.clear()
    hub.released.set()
    for thread in threads:
        thread.join(60)
    assert sorted(outcome.fetched > 0 for outcome in outcomes) == [False, True]
    assert outcomes[0].version == outcomes[1].version


def test_a_lock_that_is_never_released_ends_in_an_error(hub: Hub, tmp_path: Path) -> None:
    from filelock import FileLock

    folder = source_folder(tmp_path, "org/model")
    folder.mkdir(parents=True)
    with FileLock(folder / ".lock"), pytest.raises(SourceError, match="another process has held"):
        fetch(tmp_path, lock_timeout_s=0.1)


def test_offline_verifies_asks_no_one_and_changes_nothing(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"not in .* yet"):
        fetch(tmp_path, offline=True)
    version = fetch(tmp_path).version
    hub.__exit__()
    assert fetch(tmp_path, offline=True).version == version
    weights = version / FILES / "model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(b"x" + WEIGHTS[1:])
    with pytest.raises(SourceError, match=r"damaged: model\.safetensors"):
        fetch(tmp_path, offline=True)
    assert weights.exists()


def test_offline_needs_no_lock_and_no_right_to_write(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    version = fetch(tmp_path).version
    empty = tmp_path / "empty"
    with FileLock(source_folder(tmp_path, "org/model") / ".lock"):
        before = {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}

        def refuse(*arguments: Any, **named: Any) -> None:
            raise OSError("read-only file system")

        monkeypatch.setattr(store, "FileLock", refuse)
        monkeypatch.setattr(Path, "mkdir", refuse)
        assert fetch(tmp_path, offline=True, lock_timeout_s=0).version == version
        with pytest.raises(SourceError, match=r"not in .* yet"):
            fetch(empty, offline=True, lock_timeout_s=0)
        assert {path: path.stat().st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))} == before


@pytest.mark.parametrize("damage", ["", "{", '{"revision": "x"}', None])
def test_a_ref_that_is_damaged_or_lost_is_written_again(hub: Hub, tmp_path: Path, damage: str | None) -> None:
    first = fetch(tmp_path)
    ref = ref_path(tmp_path, "org/model", None)
    good = ref.read_text()
    if damage is None:
        ref.unlink()
    else:
        ref.write_text(damage)
        with pytest.raises(SourceError, match="is damaged; materialize again"):
            fetch(tmp_path, offline=True)
    hub.asked.clear()
    lines: list[str] = []
    again = fetch(tmp_path, say=lines.append)
    assert (again.version, again.fetched, hub.asked) == (first.version, 0, [])
    assert ref.read_text() == good
    assert [line for line in lines if "is damaged, writing it again" in line] == lines[: damage is not None]


def test_a_damaged_ref_and_damaged_files_are_both_mended(hub: Hub, tmp_path: Path) -> None:
    version = fetch(tmp_path).version
    ref_path(tmp_path, "org/model", None).write_text("")
    (version / FILES / "model.safetensors").unlink()
    assert content(fetch(tmp_path))["model.safetensors"] == WEIGHTS
    assert fetch(tmp_path, offline=True).version == version


# --- object stores and folders ---------------------------------------------------------------------------------------


@pytest.fixture
def bucket(checkpoints: Checkpoints) -> Iterator[str]:
    """A real small checkpoint in fsspec's store in memory."""
    store_ = fsspec.filesystem("memory")
    for path in checkpoints.bert(1).iterdir():
        store_.pipe_file(f"/bucket/ce/{path.name}", path.read_bytes())
    yield "memory://bucket/ce"
    store_.rm("/bucket", recursive=True)


def test_an_object_store_becomes_a_folder_that_a_model_loads_from(bucket: str, tmp_path: Path) -> None:
    from serve_app.tasks.model import load_text_model

    outcome = fetch(tmp_path, bucket)
    settings = settings_for(Path("x"), "rerank", source=bucket, materialized={"folder": str(tmp_path)})
    model = load_text_model(settings)
    assert model.checkpoint.folder == outcome.version / FILES
    assert model.settings.materialized is None
    fsspec.filesystem("memory").pipe_file("/bucket/ce/added.json", b"{}")
    assert fetch(tmp_path, bucket).version != outcome.version


def test_a_url_without_materialized_is_refused_with_the_way_out(bucket: str) -> None:
    from serve_app.tasks.model import load_text_model

    with pytest.raises(SourceError, match="python -m cluster materialize"):
        load_text_model(settings_for(Path("x"), "rerank", source=bucket))


def test_a_folder_and_a_package_and_a_file_url(checkpoints: Checkpoints, tmp_path: Path) -> None:
    folder = checkpoints.bert(1)
    of_path, of_url = fetch(tmp_path, str(folder)), fetch(tmp_path, f"file://{folder}")
    assert of_path.manifest.digest == of_url.manifest.digest
    assert content(of_path) == content(of_url)
    of_package = fetch(tmp_path, "package:model_zoo/ce-mini")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(content(of_package))
    with pytest.raises(SourceError, match="revision: only a hub"):
        fetch(tmp_path, str(folder), "main")


def test_an_object_store_is_continued_where_it_broke(bucket: str, tmp_path: Path, monkeypatch: Any) -> None:
    class Breaking(FileRemote):
        offsets: list[int] = []  # noqa: RUF012

        def read(self, path: str, offset: int) -> Iterator[bytes]:
            for chunk in super().read(path, offset):
                if path == "model.safetensors":
                    self.offsets.append(offset)
                    if len(self.offsets) == 1:
                        yield chunk[:1000]
                        raise Unreachable("broken")
                yield chunk

    monkeypatch.setattr(store.time, "sleep", lambda seconds: None)
    outcome = fetch(tmp_path, bucket, remote=Breaking(bucket))
    assert Breaking.offsets == [0, 1000]
    assert outcome.fetched == outcome.manifest.size


def test_a_source_that_stays_broken_is_given_up_and_continued(bucket: str, tmp_path: Path, monkeypatch: Any) -> None:
    class Silent(FileRemote):
        def read(self, path: str, offset: int) -> Iterator[bytes]:
            raise Unreachable("no answer")

    monkeypatch.setattr(store.time, "sleep", lambda seconds: None)
    with pytest.raises(Unreachable, match="no answer"):
        fetch(tmp_path, bucket, remote=Silent(bucket))
    assert not list(tmp_path.rglob("manifest.json"))
    assert fetch(tmp_path, bucket).fetched > 0


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        fetch(tmp_path, "memory://nowhere/at/all")
    with pytest.raises(SourceError, match="cannot be read"):
        fetch(tmp_path, "nosuchstore://bucket/x")
    fsspec.filesystem("memory").pipe_file("/plain/readme.txt", b"x")
    with pytest.raises(SourceError, match=r"holds no config\.json"):
        fetch(tmp_path, "memory://plain")


def _served(*paths: str) -> list[str]:
    return [file.path for file in served_files([RemoteFile(path, 1) for path in paths], "s")]


def test_pickles_are_left_out_where_their_own_folder_has_safetensors() -> None:
    dense = ["2_Dense/config.json", "2_Dense/pytorch_model.bin", "config.json", "model.safetensors"]
    assert _served(*dense, "pytorch_model.bin", "pooler.pt") == dense
    safe = ["2_Dense/model.safetensors", "config.json", "pytorch_model.bin"]
    assert _served(*safe, "2_Dense/pytorch_model.bin") == safe


def test_a_version_that_lacks_what_is_served_now_is_fetched_again(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files["2_Dense/pytorch_model.bin"] = b"dense"
    with monkeypatch.context() as earlier:
        earlier.setattr("cluster.materialize.remotes.NOT_SERVED", ("*.bin", "onnx/*"))
        assert "2_Dense/pytorch_model.bin" not in content(fetch(tmp_path))
    assert content(fetch(tmp_path))["2_Dense/pytorch_model.bin"] == b"dense"
    assert fetch(tmp_path).fetched == 0


def test_paths_that_lead_out_are_refused() -> None:
    with pytest.raises(SourceError, match="leads out"):
        served_files([RemoteFile("config.json", 1), RemoteFile("../x", 1)], "s")
    with pytest.raises(ValueError, match="leads out"):
        Manifest.model_validate(
            {
                "source": "s",
                "revision": "r",
                "digest": "d",
                "files": [{"path": "../x", "size": 1, "sha256": "", "blake3": ""}],
            }
        )


def test_a_full_disk_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    class Huge:
        def list(self) -> Listing:
            return Listing("1", (RemoteFile("config.json", 1 << 60),))

        def read(self, path: str, offset: int) -> Iterator[bytes]:
            raise AssertionError("nothing is to be read")

    with pytest.raises(SourceError, match=r"GiB free; .* are needed"):
        fetch(tmp_path, "org/huge", remote=Huge())
