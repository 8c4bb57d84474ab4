"""Prometheus and Grafana on one machine, from their plain binaries: the configuration files, and what to type."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


def prometheus_config(url: str, rules: str) -> dict[str, Any]:
    """Prometheus's configuration: the gateway's page every five seconds.

    Args:
        url: the gateway, such as http://127.0.0.1:8000; a path in it is kept.
        rules: the rule file, relative to the configuration.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"url: must be http(s)://HOST[:PORT]; got '{url}'")
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "15s"},
        "rule_files": [rules],
        "scrape_configs": [
            {
                "job_name": "poolserve",
                "scheme": parts.scheme,
                "metrics_path": f"{parts.path.rstrip('/')}/metrics",
                "static_configs": [{"targets": [parts.netloc]}],
            }
        ],
    }


def write(folder: Path, url: str, dashboards: Path, rules: str) -> list[str]:
    """Writes the files and gives the commands.

    Args:
        folder: where to; `rules` lies in it.
        dashboards: the folder of the dashboards' JSON.

    Raises:
        ValueError: the URL is none.
    """
    prometheus = folder / "prometheus.yml"
    prometheus.write_text(yaml.safe_dump(prometheus_config(url, rules), sort_keys=False))
    provisioning = folder / "grafana" / "provisioning"
    files: dict[str, dict[str, Any]] = {
        "datasources": {"datasources": [_SOURCE]},
        "dashboards": {
            "providers": [{"name": "poolserve", "type": "file", "options": {"path": str(dashboards.resolve())}}]
        },
    }
    for name, content in files.items():
        path = provisioning / name / "poolserve.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"apiVersion": 1, **content}, sort_keys=False))
    return [
        f"prometheus --config.file={prometheus} --storage.tsdb.path={folder}/data --web.listen-address=127.0.0.1:9090",
        f"GF_PATHS_PROVISIONING={provisioning.resolve()} GF_PATHS_DATA={(folder / 'grafana').resolve()} "
        "GF_SERVER_HTTP_ADDR=127.0.0.1 GF_AUTH_ANONYMOUS_ENABLED=true grafana server --homepath /usr/share/grafana",
    ]


_SOURCE = {
    "name": "Prometheus",
    "type": "prometheus",
    "access": "proxy",
    "url": "http://127.0.0.1:9090",
    "isDefault": True,
}
