"""Ray Serve's REST interface for hosts whose Ray has no dashboard: ``python -m benchmarks.serve_rest PORT``.

``GET`` and ``PUT /api/serve/applications/`` do what the dashboard's do, for the Ray cluster of this machine. The
connection is made with the first request, so that it can be started before the cluster.
"""

from __future__ import annotations

import http.server
import json
import os
import sys
from typing import Any

PATH = "/api/serve/applications/"


class Handler(http.server.BaseHTTPRequestHandler):
    """One request. Whatever Ray fails with is the answer's text."""

    client: Any = None

    def do_GET(self) -> None:
        """All applications with the states of their replicas."""
        self._answer(lambda client: client.get_serve_details())

    def do_PUT(self) -> None:
        """Makes the body the wanted configuration."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def deploy(client: Any) -> dict[str, Any]:
            from ray.serve.schema import ServeDeploySchema

            client.deploy_apps(ServeDeploySchema.model_validate(json.loads(body)))
            return {}

        self._answer(deploy)

    def _answer(self, act: Any) -> None:
        if self.path != PATH:
            status, said = 404, {"error": f"only {PATH}"}
        else:
            try:
                status, said = 200, act(self._connected())
            except Exception as error:  # told to the caller, who decides
                status, said = 500, {"error": f"{type(error).__name__}: {str(error)[:1000]}"}
        data = json.dumps(said, default=str).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @classmethod
    def _connected(cls) -> Any:
        if cls.client is None:
            os.environ.setdefault("RAY_AUTH_MODE", "token")  # read when Ray is imported
            import ray
            from ray.serve.context import _get_global_client

            ray.init(address="auto", namespace="serve", log_to_driver=False)
            cls.client = _get_global_client()
        return cls.client


if __name__ == "__main__":
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
