"""Which nodes a pod may use: taints, node selector, node affinity, in this order; tested only where a leaf is a
node."""

from __future__ import annotations

from collections import Counter

import msgspec

from pykueue.api import kube, nodes
from pykueue.core.topology.failures import Exclusions
from pykueue.core.topology.tree import DomainTree
from pykueue.core.topology.values import NodeTerms


class Match(msgspec.Struct, frozen=True):
    """The leaves that may be used, None for all of them; why the others are excluded; and the affinity score of each.

    `problem` is set where the terms are malformed; nothing can be placed with such terms.
    """

    leaves: tuple[int, ...] | None
    exclusions: Exclusions
    scores: tuple[int, ...] | None = None
    problem: str = ""


def match(tree: DomainTree, terms: NodeTerms, tolerations: tuple[kube.Toleration, ...], *, with_scores: bool) -> Match:
    """Test every node. Leaves that are not single nodes may all be used."""
    total = len(tree.nodes)
    affinity = None if terms.required_affinity is None else nodes.compile(terms.required_affinity)
    required = nodes.RequiredNodeAffinity(terms.node_selector, affinity)
    preferences = nodes.preferred(terms.preferred_affinity if with_scores else ())
    messages = [*required.messages, *(message for _, term in preferences.terms for message in term.messages)]
    if messages:
        return Match((), Exclusions(nodes=total), problem=f"node affinity is malformed: {'; '.join(messages)}")
    if not tree.is_host:
        return Match(None, Exclusions(nodes=total))

    tolerated = (*terms.tolerations, *tolerations)
    takes_all = not required.exact and required.terms is None
    leaves: list[int] = []
    by_selector = by_affinity = 0
    by_taint: Counter[str] = Counter()
    for leaf, at_leaf in enumerate(tree.nodes):
        node = at_leaf[0]
        if node.taints and (taint := nodes.untolerated(node.taints, tolerated)) is not None:
            by_taint[_spelling(taint)] += 1
        elif takes_all:
            leaves.append(leaf)
        elif not required.matches_selector(node.labels):
            by_selector += 1
        elif not required.matches_affinity(node.labels, node.name):
            by_affinity += 1
        else:
            leaves.append(leaf)
    exclusions = Exclusions(
        nodes=total, node_selector=by_selector, affinity=by_affinity, taints=tuple(sorted(by_taint.items()))
    )
    scores = _scores(tree, leaves, preferences) if preferences.terms else None
    return Match(None if len(leaves) == total else tuple(leaves), exclusions, scores)


def _scores(tree: DomainTree, leaves: list[int], preferences: nodes.PreferredNodeAffinity) -> tuple[int, ...]:
    """Per leaf the summed weight of the preferred terms that its node matches; 0 where the pod may not run."""
    scores = [0] * len(tree.nodes)
    for leaf in leaves:
        node = tree.nodes[leaf][0]
        scores[leaf] = preferences.score(node.labels, node.name)
    return tuple(scores)


def _spelling(taint: kube.Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
