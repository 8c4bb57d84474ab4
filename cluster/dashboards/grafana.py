"""Dashboards as Grafana's JSON (schema 39, Grafana 10 and later)."""

from __future__ import annotations

from typing import Any

from cluster.dashboards.spec import Dashboard, Kind, Panel, Variable

COLUMNS = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(board: Dashboard) -> dict[str, Any]:
    """One dashboard. Panels are laid out from left to right; each row begins anew."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in board.rows:
        panels.append(_row(row.title, len(panels) + 1, y))
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["poolserve"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Poolserve",
                "tags": ["poolserve"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {"list": [_datasource(), *map(_variable, board.variables)]},
        "annotations": {"list": []},
        "panels": panels,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source", "hide": 0}


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.series}, {variable.name})"
    return {
        "name": variable.name,
        "label": variable.name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": variable.name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _row(title: str, number: int, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    table = panel.kind is Kind.TABLE
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.top is not None:
        defaults["max"] = panel.top
    if panel.kind is Kind.LINES:
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
    return {
        "id": number,
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel.kind),
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": table,
                "format": "table" if table else "time_series",
            }
            for i, query in enumerate(panel.queries)
        ],
    }


def _options(kind: Kind) -> dict[str, Any]:
    if kind is Kind.LINES:
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind is Kind.TABLE:
        return {"showHeader": True}
    return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "textMode": "auto"}
