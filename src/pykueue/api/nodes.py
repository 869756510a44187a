"""Which nodes a pod may run on: node selectors and affinity, taints and tolerations.

A node is a name and its labels. To match many nodes, compile once (`required`, `preferred`) and then match.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kubemachinery import selectors
from kubemachinery.meta import Messages
from kubemachinery.selectors import Labels, Operator, Requirement, Selector
from pykueue.api.kube import (
    Affinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Taint,
    TaintEffect,
    Toleration,
)

# --- Node selectors and affinity --------------------------------------------------------------------------------------

NAME_FIELD: Final = "metadata.name"
_FIELD_OPERATORS: Final = (Operator.IN, Operator.NOT_IN)


class NodeTerm(NamedTuple):
    """Requirements on a node's labels and fields that must all hold. A malformed term has messages and matches none."""

    labels: Selector
    fields: tuple[Requirement, ...] = ()
    messages: Messages = ()

    def matches(self, labels: Labels, name: str) -> bool:
        if self.messages or not self.labels.matches(labels):
            return False
        # A field other than the name is empty on every node; a node without a name has no fields.
        return not name or all(f.meets(name if f.key == NAME_FIELD else "") for f in self.fields)


class RequiredNodeAffinity(NamedTuple):
    """The nodes a pod may run on: its `nodeSelector` and, if it has one, at least one term of its required affinity."""

    exact: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None

    @property
    def messages(self) -> Messages:
        return tuple(message for term in self.terms or () for message in term.messages)

    def matches_selector(self, labels: Labels) -> bool:
        return all(labels.get(key) == value for key, value in self.exact)

    def matches_affinity(self, labels: Labels, name: str) -> bool:
        return self.terms is None or any(term.matches(labels, name) for term in self.terms)

    def matches(self, labels: Labels, name: str) -> bool:
        return self.matches_selector(labels) and self.matches_affinity(labels, name)


class PreferredNodeAffinity(NamedTuple):
    """The preferred nodes of a pod: terms and their weights."""

    terms: tuple[tuple[int, NodeTerm], ...] = ()

    def score(self, labels: Labels, name: str) -> int:
        """The sum of the weights of the terms that this node matches."""
        return sum(weight for weight, term in self.terms if term.matches(labels, name))


def required(node_selector: Mapping[str, str], affinity: Affinity | None) -> RequiredNodeAffinity:
    """The compiled `nodeSelector` and required affinity of a pod."""
    demanded = required_terms(affinity)
    return RequiredNodeAffinity(tuple(node_selector.items()), None if demanded is None else compile(demanded))


def required_terms(affinity: Affinity | None) -> NodeSelector | None:
    """The node selector inside an affinity, if it has one."""
    if affinity is None or affinity.node_affinity is None:
        return None
    return affinity.node_affinity.required_during_scheduling_ignored_during_execution


def preferred_terms(affinity: Affinity | None) -> tuple[PreferredSchedulingTerm, ...]:
    """The preferences in an affinity."""
    if affinity is None or affinity.node_affinity is None:
        return ()
    return affinity.node_affinity.preferred_during_scheduling_ignored_during_execution


def compile(selector: NodeSelector) -> tuple[NodeTerm, ...]:
    """The terms of which a node must match one. A term without requirements matches no node and is left out."""
    return tuple(_term(term) for term in selector.node_selector_terms if _demands(term))


def preferred(terms: Iterable[PreferredSchedulingTerm]) -> PreferredNodeAffinity:
    """The preferences to score nodes with. One without weight or requirements has no effect and is left out."""
    return PreferredNodeAffinity(
        tuple((t.weight, _term(t.preference)) for t in terms if t.weight and _demands(t.preference))
    )


def related(selector: NodeSelector, keys: Collection[str]) -> NodeSelector | None:
    """The part of a node selector that concerns labels in `keys`, for a hypothetical node that has only those.

    None when it has no terms, or when any of them does not mention those labels: such a term could match a node of that
    kind, so the selector decides nothing. Requirements on fields are dropped, because a hypothetical node has none.
    """
    terms = [tuple(e for e in term.match_expressions if e.key in keys) for term in selector.node_selector_terms]
    if not terms or not all(terms):
        return None
    return NodeSelector(node_selector_terms=tuple(NodeSelectorTerm(match_expressions=kept) for kept in terms))


def _demands(term: NodeSelectorTerm) -> bool:
    return bool(term.match_expressions or term.match_fields)


def _requirement(demand: NodeSelectorRequirement) -> Requirement:
    return Requirement(demand.key, demand.operator, demand.values)


def _term(term: NodeSelectorTerm) -> NodeTerm:
    labels = Selector(tuple(map(_requirement, term.match_expressions)))
    fields = tuple(map(_requirement, term.match_fields))
    messages = [f"{r.key!r}: {message}" for r in labels.requirements for message in r.messages()]
    for field in fields:
        if field.operator not in _FIELD_OPERATORS:
            messages.append(f"field {field.key!r}: operator must be one of {', '.join(_FIELD_OPERATORS)}")
        elif len(field.values) != 1:
            messages.append(f"field {field.key!r}: operator {field.operator} needs exactly one value")
    return NodeTerm(labels, fields, tuple(messages))


# --- Taints and tolerations -------------------------------------------------------------------------------------------

BINDING_EFFECTS: Final = frozenset({TaintEffect.NO_SCHEDULE.value, TaintEffect.NO_EXECUTE.value})
"""The effects that keep a pod off a node. PreferNoSchedule is only a preference."""

# Plain decimal: with a leading zero or a plus sign the meaning is ambiguous, so no comparison is made.
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration tolerates this taint. An empty effect or key matches any."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return _compares(taint.value, toleration.operator, toleration.value)
        case _:
            return False


def _compares(value: str, operator: str, bound: str) -> bool:
    if not (_DECIMAL.fullmatch(value) and _DECIMAL.fullmatch(bound)):
        return False
    return selectors.Requirement("", operator, (bound,)).meets(value)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any of these tolerations tolerates this taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> Taint | None:
    """The first taint that keeps a pod off the node, because no toleration tolerates it."""
    binding = (taint for taint in taints if taint.effect in BINDING_EFFECTS)
    return next((taint for taint in binding if not tolerated(taint, tolerations)), None)
