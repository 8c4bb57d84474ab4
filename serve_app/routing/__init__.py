"""Which version of which model serves a request, and what became of it.

`table.py` decides, `sticky.py` maps keys to versions, `shadow.py` sends copies, `differences.py` compares their scores,
`counters.py` counts all of it.
"""

from __future__ import annotations

from serve_app.routing.counters import RoutingCounters
from serve_app.routing.shadow import Shadows
from serve_app.routing.table import Choice, Decision, RoutingTable, Target

__all__ = ["Choice", "Decision", "RoutingCounters", "RoutingTable", "Shadows", "Target"]
