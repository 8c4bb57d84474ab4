"""One page for the whole application, on the real default: ours, all of vLLM's, Ray Serve's, the proxy's."""

from __future__ import annotations

import base64
import concurrent.futures
import importlib.util
import io
import re
import socket
import threading
import time
from collections import defaultdict
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from serve_app.observability.catalogue import (
    GPU,
    HAPROXY,
    OURS,
    RAY_SERVE,
    REPLICA_LABELS,
    VLLM,
    VLLM_LABELS,
    Merge,
)
from tests.cluster import Server

Sample = tuple[str, tuple[tuple[str, str], ...]]

CONDITIONAL = {
    "vllm:corrupted_requests",  # VLLM_COMPUTE_NANS_IN_LOGITS
    "vllm:kv_block_idle_before_evict_seconds",  # kv_cache_metrics
    "vllm:kv_block_lifetime_seconds",
    "vllm:kv_block_reuse_gap_seconds",
    "vllm:lora_requests_info",  # LoRA
    "vllm:num_requests_kv_fetch_by_stage",  # a cache that is filled from elsewhere
    "vllm:watermark_requests",  # watermarks
}
"""What vLLM's logger registers for some configurations only."""
MODELS = {"ce-mini", "minilm", "intent-mini", "clip-mini", "fusion-mini", "absa-mini"}
IMAGE_MODELS = {"clip-mini", "fusion-mini"}
ANSWERED, ANSWERS = "poolserve_requests_total", {"model": "ce-mini", "route": "/v1/rerank", "status": "200"}
NEEDS_AN_EVENT = {metric.name for metric in OURS if metric.name.startswith("poolserve_shadow_")}
OFF = {"poolserve_feature_log_records_total", "poolserve_feature_log_queued"}


def page(server: Server) -> str:
    response = httpx.get(server.url + "/metrics", timeout=30)
    assert response.status_code == 200, response.text
    return response.text


def samples(text: str) -> dict[Sample, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(text: str, name: str, **labels: str) -> float:
    """Sum of a counter's series that have these labels."""
    return sum(
        value
        for (sample, pairs), value in samples(text).items()
        if sample == name and labels.items() <= dict(pairs).items()
    )


def picture(colour: str) -> dict[str, str]:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(file, "PNG")
    return {"image": base64.b64encode(file.getvalue()).decode()}


def _load(server: Server) -> None:
    """A request of every kind: text, images, one bad image, wrong ones."""
    documents = ["boots", "phone case", "warm socks " * 300]
    assert server.post("/v1/rerank", {"model": "ce-mini", "query": "a", "documents": documents}).status_code == 200
    assert server.post("/v1/embeddings", {"model": "minilm", "input": ["a", "b"]}).status_code == 200
    assert server.post("/v1/classify", {"input": ["where is my parcel"]}).status_code == 200
    assert server.post("/v1/absa", {"inputs": ["The soup was great but the service was slow."]}).status_code == 200
    pictures = [picture("red"), picture("blue"), {"image": base64.b64encode(b"no image").decode()}]
    for model in sorted(IMAGE_MODELS):
        answer = server.post("/v1/rerank", {"model": model, "query": "red circle", "documents": pictures})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["errors"]) == 1
    assert server.post("/v1/rerank", {"model": "nope", "query": "a", "documents": ["b"]}).status_code == 404


def test_a_single_scrape_during_load_shows_everything(server: Server) -> None:
    """And health is answered all the while, 20 times a second."""
    health: list[int] = []
    stop = threading.Event()

    def poll() -> None:
        with httpx.Client(timeout=30) as client:
            while not stop.wait(0.05):
                health.append(client.get(server.url + "/health").status_code)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            loads = [pool.submit(_load, server) for _ in range(8)]
            for load in loads[:4]:
                load.result()
            time.sleep(3)  # reports of the first ones: one a second
            text = page(server)
            for load in loads:
                load.result()
    finally:
        stop.set()
        poller.join()
    assert len(health) >= 20
    assert set(health) == {200}

    typed = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    without_gpu = {metric.name for metric in OURS} - {metric.name for metric in GPU} - NEEDS_AN_EVENT - OFF
    assert without_gpu <= typed.keys()
    assert {name: typed.get(name) for name in RAY_SERVE} == {name: kind.value for name, kind in RAY_SERVE.items()}
    assert {name: typed.get(name) for name in HAPROXY} == {name: kind.value for name, kind in HAPROXY.items()}
    # end to end, and at the replica
    assert total(text, "ray_serve_http_request_latency_ms_count", application="gateway") > 0
    assert total(text, "ray_serve_deployment_processing_latency_ms_count", application="gateway") > 0

    for model in MODELS:
        stages = {"tokenize", "queue", "engine", "post", "total"}
        if model in IMAGE_MODELS:
            stages |= {"fetch", "decode"}
            assert total(text, "poolserve_item_errors_total", model=model, code="media_undecodable") > 0
        for stage in stages:
            assert total(text, "poolserve_stage_seconds_count", model=model, stage=stage) > 0, (model, stage)
        assert total(text, "poolserve_engine_batch_tokens_sum", model=model) > 0
        assert total(text, "poolserve_model_ready", model=model) == 1
    assert total(text, "poolserve_cache_hits_total", cache="vector", model="clip-mini") > 0
    assert total(text, "poolserve_cache_hits_total", cache="device", model="fusion-mini") > 0
    assert total(text, "poolserve_feature_slots_used", model="fusion-mini") >= 2
    assert total(text, "poolserve_errors_total", code="model_not_found") > 0
    assert not [line for line in text.splitlines() if "/tmp" in line or "model_zoo" in line]


def test_all_of_vllms_metrics_are_there_for_every_engine(server: Server) -> None:
    text = page(server)
    of_replica: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("vllm:"):
                without_engine = sample.name in {"vllm:admission_rejections_total", "vllm:cache_config_info"}
                assert set(VLLM_LABELS) - sample.labels.keys() <= (
                    {"engine", "model_name"} if without_engine else set()
                )
                of_replica[tuple(sample.labels[label] for label in REPLICA_LABELS)].add(family.name)
    models = {key[1]: families for key, families in of_replica.items()}
    assert models.keys() == MODELS
    declared = _declared("vllm.v1.metrics.loggers") | _declared("vllm.v1.metrics.perf")
    declared = {name.removesuffix("_total") for name in declared - CONDITIONAL}
    assert len(declared) >= 30
    for model, families in models.items():
        assert declared <= {name.removesuffix("_total") for name in families}, model
    typed = dict(re.findall(r"^# TYPE (vllm:\S+) (\S+)$", text, re.M))
    assert typed == {name: kind.value for name, kind in VLLM.items()}
    assert all(total(text, "vllm:request_success_total", model=model) > 0 for model in MODELS)


def _declared(module: str) -> set[str]:
    """Names that a module of vLLM gives to metrics, read off its source."""
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    return set(re.findall(r'name="(vllm:[a-z0-9_]+)"', Path(found.origin).read_text()))


def test_clients_that_leave_are_counted_and_nothing_runs_on(server: Server) -> None:
    """300 clients that go after 20 ms, with requests that take longer."""
    before = page(server)
    body = orjson.dumps({"model": "ce-mini", "query": "winter boots", "documents": ["warm boots " * 150] * 40})
    address = urlsplit(server.url)
    request = (
        f"POST /v1/rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body

    def leave_early(_: int) -> None:
        with socket.create_connection((address.hostname or "", address.port or 0)) as connection:
            connection.sendall(request)
            time.sleep(0.02)

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        list(pool.map(leave_early, range(300)))
    end = time.monotonic() + 60
    while True:
        text = page(server)
        left = total(text, "poolserve_cancelled_total") - total(before, "poolserve_cancelled_total")
        answered = total(text, ANSWERED, **ANSWERS) - total(before, ANSWERED, **ANSWERS)
        running = total(text, "poolserve_engine_documents_in_flight", model="ce-mini")
        running += total(text, "poolserve_documents_in_flight", model="ce-mini")
        if (left + answered == 300 and not running) or time.monotonic() > end:
            break
        time.sleep(0.5)
    assert (left + answered, running) == (300, 0)
    assert left > 290  # some may be answered in time
    assert total(text, "vllm:num_requests_running", model="ce-mini") == 0


def test_the_gateway_logs_a_line_per_request_and_no_text(server: Server) -> None:
    if server.process is None:
        pytest.skip("the server was started by hand")
    answer = server.post(
        "/v1/rerank", {"model": "ce-mini", "query": "xyzzy", "documents": ["xyzzy"] * 7}, X_Request_Id="find-me-1"
    )
    assert answer.json()["id"] == "find-me-1"
    folder = Path("/tmp/ray/session_latest/logs/serve")
    end = time.monotonic() + 10
    lines: list[bytes] = []
    while not lines and time.monotonic() < end:
        time.sleep(0.2)
        found = [path.read_bytes() for path in folder.glob("access-*.jsonl")]
        lines = [line for content in found for line in content.splitlines() if b"find-me-1" in line]
    assert len(lines) == 1
    line = orjson.loads(lines[0])
    assert (line["model"], line["version"], line["documents"], line["status"]) == ("ce-mini", "1", 7, 200)
    assert line["tokens"] == answer.json()["usage"]["total_tokens"]
    assert not [path for path in folder.glob("*") if path.is_file() and b"xyzzy" in path.read_bytes()]


def fallen(before: str, after: str) -> list[Sample]:
    """Sums over replicas that fell; there must be none."""
    summed = {sample for metric in OURS if metric.merge is Merge.SUM for sample in metric.samples}
    later = samples(after)
    return [
        key
        for key, value in samples(before).items()
        if key[0] in summed
        and key[0].endswith(("_total", "_count", "_sum", "_bucket"))
        and later.get(key, -1.0) < value
    ]
