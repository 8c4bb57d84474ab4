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
import yaml

from cluster.__main__ import main
from cluster.materialize import store
from cluster.materialize.remotes import FileRemote, Listing, RemoteFile, Unreachable, served_files
from cluster.materialize.store import Outcome, materialize
from serve_app.check import check_file
from serve_app.engine.compile_cache import cache_key, use_compile_cache
from serve_app.materialized import FILES, Manifest, differences, digest_of, locate, name_of, source_folder
from serve_app.settings import MaterializedSettings
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


# --- what engines see ------------------------------------------------------------------------------------------------


def test_engines_refuse_what_differs(checkpoints: Checkpoints, tmp_path: Path) -> None:
    source = checkpoints.bert(1)
    version = fetch(tmp_path, str(source)).version
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
    version = fetch(tmp_path, "memory://large").version
    weights = version / FILES / "model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(b"x" + WEIGHTS[1:])
    settings = settings_for(Path("x"), "rerank", source="memory://large", materialized={"folder": str(tmp_path)})
    assert locate(settings).digest == version.name
    with pytest.raises(SourceError, match=r"model\.safetensors: other content"):
        locate(settings, check="hashes")


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


# --- the command -----------------------------------------------------------------------------------------------------


def _config(folder: Path, *args: dict[str, Any]) -> Path:
    applications = [
        {"name": f"{a['name']}-1", "route_prefix": None, "import_path": "serve_app.app:model", "args": a} for a in args
    ]
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"applications": applications}))
    return path


def _args(source: Path, name: str, **more: Any) -> dict[str, Any]:
    settings = settings_for(source, "rerank", name=name)
    return {**settings.model_dump(mode="json", exclude_defaults=True), **more}


def test_a_configuration_is_taken_whole(
    checkpoints: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, source = tmp_path / "models", checkpoints.bert(1)
    block = {"materialized": {"folder": str(root)}}
    root.mkdir()
    config = _config(tmp_path, _args(source, "a", **block), _args(source, "b", **block), _args(source, "c"))
    assert any("run `python -m cluster materialize`" in str(p) for p in check_file(config).problems)
    assert main(["materialize", str(config)]) == 0
    assert capsys.readouterr().out.count("fetched") == 1  # a and b share it; c does not ask for it
    assert check_file(config).problems == []
    assert main(["materialize", str(config), "--check", "sizes"]) == 0
    assert "verified" in capsys.readouterr().out
    assert main(["materialize", str(config), "--to", str(tmp_path / "elsewhere")]) == 1
    assert "engines would look in" in capsys.readouterr().err


def test_wrong_calls_say_what_is_wrong(
    checkpoints: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _config(tmp_path, _args(checkpoints.bert(1), "a"))
    for arguments, message in (
        ([str(config)], "no model has `materialized`"),
        ([str(config), "--to", str(tmp_path), "--revision", "x"], "--revision: a configuration names its own"),
        (["org/model"], "--to FOLDER: required"),
        ([str(tmp_path / "none.yaml")], "cannot be read"),
        (["/nowhere/model", "--to", str(tmp_path)], "'/nowhere/model' does not exist"),
    ):
        assert main(["materialize", *arguments]) == 1, arguments
        assert message in capsys.readouterr().err


def test_a_folder_that_is_on_other_machines_only_is_noted(checkpoints: Checkpoints, tmp_path: Path) -> None:
    config = _config(tmp_path, _args(checkpoints.bert(1), "a", materialized={"folder": "/nowhere/models"}))
    report = check_file(config)
    assert report.problems == []
    assert any("'/nowhere/models' is not on this machine" in note for note in report.notes)


def test_names_of_folders_differ_and_are_safe() -> None:
    names = {name_of(text) for text in ("org/model", "org--model", "org/Model", "s3://b/../x", "..", "")}
    assert len(names) == 6
    assert not any("/" in name or name.startswith(".") for name in names)
    assert MaterializedSettings(folder="/m").check == "sizes"
