"""Conflicts of the default LocalQueues of a ClusterQueue (KEP-7610)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kubemachinery import selectors, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.meta import LabelSelector
from kubemachinery.selectors import Selector
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import field_error

PATH: Final = "spec.defaultLocalQueue.name"
NAMESPACES_NAMED_MAX: Final = 5


def asks_for_local_queues(cluster_queue: Tree, old: Tree | None = None) -> bool:
    """Whether a write requests other default LocalQueues than before: another name, or other namespaces.

    A conflict that arises later is reported by an Event; it does not refuse updates of other fields.
    """
    if not _default_name(cluster_queue) or _is_going(cluster_queue):
        return False
    return (
        old is None
        or _default_name(old) != _default_name(cluster_queue)
        or unstructured.get(old, "spec", "namespaceSelector")
        != unstructured.get(cluster_queue, "spec", "namespaceSelector")
    )


def default_local_queue_conflicts(
    cluster_queue: Tree, others: Iterable[Tree], namespaces: Iterable[Tree], local_queues: Iterable[Tree]
) -> list[FieldError]:
    """Conflicts with other ClusterQueues that request LocalQueues of the same name, and with existing LocalQueues.

    Two ClusterQueues conflict when some set of labels would satisfy both selectors, whether or not a namespace has it
    now. A LocalQueue created for this ClusterQueue is no conflict. A ClusterQueue that is being deleted creates none.
    """
    if not asks_for_local_queues(cluster_queue):
        return []
    name = _default_name(cluster_queue)
    return [
        *_other_cluster_queues(cluster_queue, name, others),
        *_taken_names(cluster_queue, name, namespaces, local_queues),
    ]


def _other_cluster_queues(cluster_queue: Tree, name: str, others: Iterable[Tree]) -> Iterator[FieldError]:
    selector = _selector(cluster_queue)
    for other in sorted(others, key=_name):
        if _name(other) == _name(cluster_queue) or _is_going(other) or _default_name(other) != name:
            continue
        if selector.overlaps(_selector(other)):
            why = f"ClusterQueue {_name(other)} makes LocalQueues of this name, and a namespace could match both"
            yield field_error.invalid(PATH, name, why)


def _taken_names(
    cluster_queue: Tree, name: str, namespaces: Iterable[Tree], local_queues: Iterable[Tree]
) -> Iterator[FieldError]:
    selector = _selector(cluster_queue)
    matched = {
        _name(namespace)
        for namespace in namespaces
        if not _is_going(namespace)
        and selector.matches(unstructured.texts(unstructured.get(namespace, "metadata", "labels")))
    }
    holders = {
        unstructured.text(unstructured.get(queue, "metadata", "namespace"))
        for queue in local_queues
        if _name(queue) == name
        and unstructured.get(queue, "metadata", "annotations", labels.CREATED_BY_CLUSTER_QUEUE) != _name(cluster_queue)
    }
    taken = sorted(matched & holders)
    if taken:
        yield field_error.invalid(PATH, name, f"a LocalQueue of this name exists in {_named(taken)}")


def _named(namespaces: list[str]) -> str:
    shown, rest = namespaces[:NAMESPACES_NAMED_MAX], len(namespaces) - NAMESPACES_NAMED_MAX
    word = "namespace" if len(namespaces) == 1 else "namespaces"
    return f"{word} {', '.join(shown)}" + (f" and {rest} more" if rest > 0 else "")


def _name(tree: Tree) -> str:
    return unstructured.text(unstructured.get(tree, "metadata", "name"))


def _default_name(cluster_queue: Tree) -> str:
    return unstructured.text(unstructured.get(cluster_queue, "spec", "defaultLocalQueue", "name"))


def _is_going(tree: Tree) -> bool:
    return bool(unstructured.get(tree, "metadata", "deletionTimestamp"))


def _selector(cluster_queue: Tree) -> Selector:
    """The namespaces that a ClusterQueue selects; none without a valid selector."""
    try:
        return selectors.compile(
            msgspec.convert(unstructured.get(cluster_queue, "spec", "namespaceSelector"), LabelSelector | None)
        )
    except msgspec.ValidationError:
        return selectors.NOTHING
