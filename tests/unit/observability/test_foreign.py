"""Others' pages: what of them is taken over, and pages that cannot be read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler
from prometheus_client.parser import text_string_to_metric_families

from serve_app.observability import foreign
from serve_app.observability.exposition import render
from serve_app.observability.foreign import Cached, ForeignPages, Page, haproxy_blocks, ray_blocks

COMMON = 'Component="core_worker",NodeAddress="10.0.0.1",SessionName="session_1",Version="2.60.0"'
RAY = f"""# HELP ray_node_mem_used Memory.
# TYPE ray_node_mem_used gauge
ray_node_mem_used{{{COMMON}}} 5.0
# HELP ray_serve_num_http_requests_total Requests.
# TYPE ray_serve_num_http_requests_total counter
ray_serve_num_http_requests_total{{{COMMON},application="gateway",otel_scope_name="ray._private",route="/"}} 50.0
# HELP ray_serve_deployment_processing_latency_ms Latency.
# TYPE ray_serve_deployment_processing_latency_ms histogram
ray_serve_deployment_processing_latency_ms_bucket{{{COMMON},le="1.0",otel_scope_schema_url="",replica="living"}} 1.0
ray_serve_deployment_processing_latency_ms_bucket{{{COMMON},le="1.0",otel_scope_schema_url="",replica="dead"}} 7.0
ray_serve_deployment_processing_latency_ms_count{{{COMMON},replica="living"}} 2.0
# HELP ray_serve_deployment_replica_healthy Health.
# TYPE ray_serve_deployment_replica_healthy gauge
ray_serve_deployment_replica_healthy{{{COMMON},replica="dead"}} 1.0
"""
HAPROXY = """# HELP haproxy_process_uptime_seconds Uptime.
# TYPE haproxy_process_uptime_seconds gauge
haproxy_process_uptime_seconds 6
# HELP haproxy_frontend_http_requests_total Requests.
# TYPE haproxy_frontend_http_requests_total counter
haproxy_frontend_http_requests_total{proxy="http_frontend"} 51
"""


def test_of_rays_page_only_serves_living_series_are_taken() -> None:
    blocks = ray_blocks(RAY, {"living"})
    assert set(blocks) == {"ray_serve_num_http_requests_total", "ray_serve_deployment_processing_latency_ms"}
    text = render(blocks).decode()
    assert "dead" not in text
    assert "otel_scope" not in text
    assert "session_1" not in text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (requests,) = families["ray_serve_num_http_requests"].samples
    assert requests.labels == {"NodeAddress": "10.0.0.1", "application": "gateway", "route": "/"}
    assert requests.value == 50
    latency = families["ray_serve_deployment_processing_latency_ms"]
    assert latency.type == "histogram"
    assert [sample.value for sample in latency.samples] == [1, 2]


def test_haproxys_series_get_their_node() -> None:
    text = render(haproxy_blocks(HAPROXY, "10.0.0.1")).decode()
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    assert families["haproxy_process_uptime_seconds"][0].labels == {"node": "10.0.0.1"}
    requests = families["haproxy_frontend_http_requests"][0]
    assert (requests.labels, requests.value) == ({"node": "10.0.0.1", "proxy": "http_frontend"}, 51)


async def _pages(found: Sequence[Page]) -> str:
    async def where() -> Sequence[Page]:
        return found

    return render(await ForeignPages(where).blocks({"living"})).decode()


def _answers(status: int, text: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    return answer


async def test_pages_of_all_nodes_are_one_and_a_broken_one_is_left_out() -> None:
    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    foreign_timeout, foreign.TIMEOUT_S = foreign.TIMEOUT_S, 0.3
    app = web.Application()
    app.router.add_get("/ray", _answers(200, RAY))
    app.router.add_get("/haproxy", _answers(200, HAPROXY))
    app.router.add_get("/error", _answers(500, RAY))
    app.router.add_get("/slow", slow)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/metrics"
    try:
        async with TestServer(app) as server:
            pages = [
                Page("ray", "a", str(server.make_url("/ray"))),
                Page("haproxy", "a", str(server.make_url("/haproxy"))),
                Page("ray", "b", str(server.make_url("/error"))),
                Page("ray", "c", str(server.make_url("/slow"))),
                Page("haproxy", "b", nobody),
                Page("ray", "d", nobody),
                Page("haproxy", "c", str(server.make_url("/haproxy"))),
            ]
            text = await _pages(pages)
    finally:
        foreign.TIMEOUT_S = foreign_timeout
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    up = {(s.labels["source"], s.labels["node"]): s.value for s in families["poolserve_metrics_source_up"]}
    assert up == {
        ("ray", "a"): 1,
        ("haproxy", "a"): 1,
        ("ray", "b"): 0,
        ("ray", "c"): 0,
        ("ray", "d"): 0,
        ("haproxy", "c"): 1,
    }
    assert len(families["haproxy_process_uptime_seconds"]) == 2
    assert text.count("# TYPE haproxy_process_uptime_seconds") == 1


async def test_a_page_is_made_once_however_many_ask() -> None:
    made = []

    async def make() -> bytes:
        made.append(1)
        await asyncio.sleep(0.02)
        return b"page"

    cached = Cached(make, 0.5)
    assert await asyncio.gather(*(cached.get() for _ in range(20))) == [b"page"] * 20
    assert len(made) == 1
    await asyncio.sleep(0.6)
    await cached.get()
    assert len(made) == 2
