"""Asks every engine replica of an application what it has done: prints [tokens, …] as JSON. Run by `run_in_cluster`."""

from __future__ import annotations

import json
import sys

import ray
from ray import serve


def main(application: str, replicas: int) -> None:
    """Asks until every replica has been met; the router picks two of them at random each time."""
    ray.init(namespace="serve", logging_level="ERROR", log_to_driver=False)
    handle = serve.get_deployment_handle("PoolingEngine", application)
    met: dict[str, int] = {}
    for _ in range(500):
        replica, done = handle.work_done.remote().result(timeout_s=30)
        met[replica] = done["tokens"]
        if len(met) == replicas:
            break
    print(json.dumps([met[replica] for replica in sorted(met)]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
