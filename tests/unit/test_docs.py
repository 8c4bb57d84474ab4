"""Pages that are made from code are up to date, and links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cluster import ROOT


def test_the_settings_page_is_made_from_the_settings() -> None:
    subprocess.run([sys.executable, "scripts/settings_page.py", "--check"], cwd=ROOT, check=True)


def test_the_metrics_page_is_made_from_the_catalogue() -> None:
    subprocess.run([sys.executable, "scripts/metrics_page.py", "--check"], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/decisions.md",
        "docs/comparison.md",
        "docs/grpc.md",
        "docs/images.md",
        "docs/metrics.md",
        "docs/operations.md",
        "docs/plugins.md",
        "docs/rollouts.md",
        "docs/tuning.md",
        "docs/verify.md",
        "benchmarks/README.md",
        "cluster/dashboards/README.md",
        "CHANGELOG.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
