"""Which metrics and labels a PromQL expression needs, and which labels its result has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import promql_parser as promql

Labels = frozenset[str]


@dataclass
class Checker:
    """Walks expressions.

    Attributes:
        known: samples' names and their labels.
        faults: what is named and does not exist.
        used: names of all samples that were met.
    """

    known: Mapping[str, Labels]
    faults: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def labels(self, expr: str) -> Labels:
        """Labels of the result. Grafana's variables stand for themselves; its interval for five minutes."""
        return self._walk(promql.parse(expr.replace("$__rate_interval", "5m")))

    def _walk(self, node: Any) -> Labels:
        match node:
            case promql.VectorSelector():
                return self._selector(node)
            case promql.MatrixSelector():
                return self._selector(node.vector_selector)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                return self._walk(node.expr)
            case promql.Call():
                return self._call(node.func.name, [self._walk(arg) for arg in node.args])
            case promql.AggregateExpr():
                return self._aggregate(node)
            case promql.BinaryExpr():
                return self._binary(node)
            case promql.NumberLiteral() | promql.StringLiteral():
                return frozenset()
        raise AssertionError(f"an expression of an unknown kind: {node}")

    def _selector(self, node: Any) -> Labels:
        self.used.add(node.name)
        if node.name not in self.known:
            self.faults.append(f"no metric {node.name}")
            return frozenset()
        has = self.known[node.name]
        self._need(has, [matcher.name for matcher in node.matchers.matchers], node.name)
        return has

    def _call(self, name: str, arguments: list[Labels]) -> Labels:
        merged = frozenset().union(*arguments)
        if name == "histogram_quantile":
            self._need(merged, ["le"], name)
            return merged - {"le"}
        return frozenset() if name == "absent" else merged

    def _aggregate(self, node: Any) -> Labels:
        inner = self._walk(node.expr)
        if node.modifier is None:
            return frozenset()
        self._need(inner, node.modifier.labels, f"{node.op} by or without")
        named = frozenset(node.modifier.labels)
        return named if node.modifier.type == promql.AggModifierType.By else inner - named

    def _binary(self, node: Any) -> Labels:
        left, right = self._walk(node.lhs), self._walk(node.rhs)
        scalar = isinstance(node.lhs, promql.NumberLiteral) or isinstance(node.rhs, promql.NumberLiteral)
        matching = node.modifier and node.modifier.matching
        if matching is not None:
            self._need(left, matching.labels, "left of on()")
            self._need(right, matching.labels, "right of on()")
        elif not scalar and left != right and left and right:
            self.faults.append(f"nothing matches: {sorted(left)} and {sorted(right)} in {node.prettify()}")
        return left or right

    def _need(self, has: Labels, wanted: list[str], where: str) -> None:
        self.faults += [f"{where} has no label {label}" for label in wanted if label not in has]
