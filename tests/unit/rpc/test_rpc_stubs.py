"""The committed stubs are those of the .proto, and clients need nothing else of this package."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import ROOT

FOLDER = Path("serve_app/api/proto")


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="needs grpcio-tools")
def test_the_committed_stubs_equal_a_regeneration(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "proto.sh", sys.executable, str(tmp_path)], check=True)
    made = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    assert made == ["poolserve_pb2.py", "poolserve_pb2.pyi", "poolserve_pb2_grpc.py"]
    for name in made:
        assert (tmp_path / FOLDER / name).read_text() == (ROOT / FOLDER / name).read_text(), "run `make proto`"


def test_clients_import_no_ray_no_vllm_and_no_server() -> None:
    code = (
        "import sys; import serve_app.api.proto.poolserve_pb2_grpc; "
        "print(*sorted({name.split('.')[0] for name in sys.modules} & "
        "{'ray', 'vllm', 'torch', 'transformers', 'starlette', 'pydantic', 'numpy'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert out.strip() == ""
