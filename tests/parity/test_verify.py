"""`python -m serve_app verify` with a real engine: ce-mini out of the default configuration agrees."""

from __future__ import annotations

import json
from pathlib import Path

from serve_app.__main__ import main
from tests.cluster import ROOT

LINES = [
    {
        "query": "waterproof hiking boots for winter",
        "documents": [
            "Light mesh running shoes for summer roads.",
            "Insulated waterproof boots for winter hiking, warm lining and a grippy sole.",
            "How to return an order: print the label and drop the parcel within 30 days.",
            "",
            "좋아요",
            "boots " * 600,
        ],
    },
    {"text_1": "refund", "text_2": "You get your money back within five days."},
]


def test_the_default_reranker_agrees(tmp_path: Path) -> None:
    inputs, out, page = tmp_path / "inputs.jsonl", tmp_path / "out.json", tmp_path / "out.html"
    inputs.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in LINES))
    command = ["verify", str(ROOT / "serve_config.yaml"), "ce-mini", str(inputs)]
    assert main([*command, "--json", str(out), "--report", str(page)]) == 0
    result = json.loads(out.read_text())
    assert result["agreement"]["values"]["max"] < 1e-4
    assert result["agreement"]["values"]["count"] == 7
    assert result["agreement"]["truncated"] == 1
    assert result["agreement"]["ranking"]["top1"] == 1
    assert result["saved"] == "float32"
    assert result["served"]["versions"]["vllm"] != "unknown"
    assert "agrees with the reference" in page.read_text()
