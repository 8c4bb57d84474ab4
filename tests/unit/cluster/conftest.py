"""A configuration with one reranker behind a gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFIG = """\
# Ours.
http_options: {port: 8000}

applications:
  - name: gateway
    route_prefix: /
    import_path: serve_app.app:gateway
    deployments:
      - name: Gateway
        user_config: # the table
          models:
            other: {versions: {"1": {application: other-1, task: embed}}} # not ours
            ce: {versions: {"1": {application: ce-1, task: rerank}}} # the reranker

  # The embedder.
  - name: other-1
    route_prefix: null
    import_path: serve_app.app:model
    args: {name: other, version: "1", source: x/other, task: embed, device: cpu, dtype: float32, max_model_len: 256,
      max_num_seqs: 8, max_num_batched_tokens: 512}

  # The reranker:
  # small.
  - name: ce-1
    route_prefix: null
    import_path: serve_app.app:model
    args:
      name: ce
      version: "1" # quoted
      source: x/ce
      task: rerank
      device: cpu
      dtype: float32 # never implicit
      max_model_len: 256
      max_num_seqs: 8
      max_num_batched_tokens: 512
      engine: {kind: fake}

  # The images.
  - name: images
    route_prefix: null
    import_path: serve_app.app:images
    args: {}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    path = tmp_path / "canary.jsonl"
    path.write_text('{"query": "a", "documents": ["b", "c"]}\n\n{"query": "d", "documents": ["e", "f"]}\n')
    return path
