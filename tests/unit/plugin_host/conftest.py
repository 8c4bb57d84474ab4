"""The echo plugin, installed as a user installs a plugin."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "plugins" / "echo_plugin"


def install(source: Path, target: Path, scratch: Path) -> None:
    """`pip install` of a package into a folder of its own; nothing is downloaded."""
    copied = shutil.copytree(source, scratch / source.name)  # a build leaves files in the source folder
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(target), str(copied)], check=True)


@pytest.fixture(scope="session")
def echo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the echo plugin is installed."""
    folder = tmp_path_factory.mktemp("site")
    install(SOURCE, folder, tmp_path_factory.mktemp("build"))
    return folder


@pytest.fixture(scope="session")
def echo_installed(echo_folder: Path) -> Iterator[Path]:
    """The echo plugin on this process's path."""
    sys.path.insert(0, str(echo_folder))
    importlib.invalidate_caches()
    yield echo_folder
    sys.path.remove(str(echo_folder))
    importlib.invalidate_caches()
