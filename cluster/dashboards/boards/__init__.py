"""The dashboards. A panel's title is the question; its help says what to make of the answer."""

from __future__ import annotations

from cluster.dashboards.boards.gpu import GPU
from cluster.dashboards.boards.model import MODEL
from cluster.dashboards.boards.overview import OVERVIEW
from cluster.dashboards.boards.rollouts import ROLLOUTS
from cluster.dashboards.boards.stages import STAGES

DASHBOARDS = (OVERVIEW, MODEL, STAGES, GPU, ROLLOUTS)
