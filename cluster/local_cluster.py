"""Starts a Ray cluster of several nodes on this machine, to try placement and what crosses nodes; Ctrl-C ends it.

Each node is a raylet with an object store of its own, so that what goes from one to another is copied as it would be
between machines. Each has a custom resource of its name, by which a configuration pins a stage to it:
`resources: {NAME: 0.001}`.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import httpx

from serve_app import haproxy
from serve_app.up import token_header

UNITS = 1_000.0
"""Units of a node's resource: room for a thousand replicas that ask for one."""
DASHBOARD_S = 240.0
"""Seconds for Ray's dashboard to answer; its own 60 are too few for a busy machine."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--nodes", type=int, help="how many [3, or as many as --names has]")
    parser.add_argument("--names", help="their resources, e.g. edge,images,engine [node0,node1,…]")
    parser.add_argument("--cpus", type=int, default=4, help="CPUs that each claims to have [4]")
    parser.add_argument("--object-store-mib", type=int, default=256, help="MiB of each one's object store [256]")
    parser.add_argument("--dashboard-port", type=int, default=8265, help="also the port of `serve deploy` [8265]")


def run(options: argparse.Namespace) -> int:
    """Starts, says how to deploy, and stays."""
    try:
        names = node_names(options.nodes, options.names)
    except ValueError as error:
        print(f"error: {error}")
        return 1
    if _is_taken(options.dashboard_port):
        print(f"error: --dashboard-port: {options.dashboard_port} is taken; another Ray cluster may be running")
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell started us with SIGINT ignored
        signal.signal(number, _stop)
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(
                LocalCluster(names, options.cpus, options.object_store_mib << 20, options.dashboard_port)
            )
            print(_words(cluster), flush=True)
            while True:
                signal.pause()
        except KeyboardInterrupt:
            print("stopping", flush=True)
    return 0


def node_names(count: int | None, names: str | None) -> Sequence[str]:
    """The nodes' names, the head first.

    Raises:
        ValueError: the two contradict, or a name cannot be a resource.
    """
    if names is None:
        if count is not None and count < 1:
            raise ValueError("--nodes: at least 1")
        return [f"node{i}" for i in range(count if count is not None else 3)]
    found = [name.strip() for name in names.split(",")]
    if count is not None and count != len(found):
        raise ValueError(f"--names: {len(found)} names for {count} nodes")
    if len(set(found)) < len(found):
        raise ValueError("--names: each once")
    for name in found:
        if not name.isidentifier() or name in {"CPU", "GPU", "memory", "object_store_memory"}:
            raise ValueError(f"--names: '{name}' cannot be a resource's name")
    return found


@dataclass
class LocalCluster:
    """The running cluster, as a context.

    Attributes:
        names: the nodes' resources, the head's first.
        cpus: CPUs that each node claims.
        store_bytes: of each node's object store.
        dashboard_port: of the head.
    """

    names: Sequence[str]
    cpus: int
    store_bytes: int
    dashboard_port: int

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", str(int(DASHBOARD_S)))
        for name, value in haproxy.variable().items():
            os.environ.setdefault(name, value)
        from ray._common.utils import get_ray_address_file
        from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
        from ray.cluster_utils import Cluster

        # Without it whoever reaches the dashboard's port, a page in a browser included, could run code here.
        ensure_token_if_auth_enabled(None, create_token_if_missing=True)
        self._file = Path(get_ray_address_file(None))
        self._file_before = self._file.read_text() if self._file.exists() else None
        self._cluster = Cluster()
        try:
            for i, name in enumerate(self.names):
                self._cluster.add_node(**self._options(name, head=i == 0))
                self._restore_file()
            self._wait_for_dashboard()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait_for_dashboard(self) -> None:
        """Until Ray Serve's REST interface answers: it comes up after the nodes, and `serve deploy` fails before."""
        end = time.monotonic() + DASHBOARD_S
        url = f"http://127.0.0.1:{self.dashboard_port}/api/serve/applications/"
        while True:
            try:
                if httpx.get(url, headers=token_header(), timeout=10).status_code == 200:
                    return
                said = ""
            except httpx.TransportError as error:
                said = f": {error}"
            if time.monotonic() > end:
                raise TimeoutError(f"Ray's dashboard at {url} does not answer after {DASHBOARD_S:.0f} s{said}")
            time.sleep(0.5)

    def _restore_file(self) -> None:
        """Ray's note of the machine's cluster as it was: what is started beside this one must not join it unasked."""
        if self._file_before is None:
            self._file.unlink(missing_ok=True)
        else:
            self._file.write_text(self._file_before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.shutdown()
        self._restore_file()

    def _options(self, name: str, head: bool) -> dict[str, Any]:
        options: dict[str, Any] = {
            "num_cpus": self.cpus,
            "object_store_memory": self.store_bytes,
            "resources": {name: UNITS},
            "labels": {"node": name},
        }
        if head:
            # Ports of its own, so that another cluster of this machine is not in the way.
            options |= {
                "gcs_server_port": _free_port(),
                "include_dashboard": True,
                "dashboard_host": "127.0.0.1",
                "dashboard_port": self.dashboard_port,
                "dashboard_agent_listen_port": _free_port(),
            }
        return options

    @property
    def address(self) -> str:
        """`RAY_ADDRESS` for drivers."""
        return str(self._cluster.address)


def _words(cluster: LocalCluster) -> str:
    dashboard = f"http://127.0.0.1:{cluster.dashboard_port}"
    nodes = "\n".join(
        f"  {name:<16} resources: {{{name}: 0.001}}{'   (head)' if i == 0 else ''}"
        for i, name in enumerate(cluster.names)
    )
    return f"""{len(cluster.names)} nodes are up at {cluster.address}; a stage is pinned to one by the line beside it:
{nodes}
In the configuration set `proxy_location: HeadOnly`: the nodes share this machine's ports. Then:
  RAY_AUTH_MODE=token serve deploy CONFIG --address {dashboard}
  RAY_AUTH_MODE=token serve status --address {dashboard}
  RAY_AUTH_MODE=token RAY_ADDRESS={cluster.address} ray status
Ctrl-C ends the cluster."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
