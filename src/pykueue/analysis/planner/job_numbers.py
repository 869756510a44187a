"""Numbers of jobs that the API server refuses: a plan with them would be about a job that cannot exist.

Kinds of CustomResourceDefinitions are not in the table: their limits are in the schemas of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kubemachinery import unstructured
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


class _Number(NamedTuple):
    path: str
    highest: int = _INT32_MAX
    lowest: int = 0


_NUMBERS: Final = {
    ("batch/v1", "Job"): (
        _Number("spec.parallelism"),
        _Number("spec.completions"),
        _Number("spec.activeDeadlineSeconds", highest=_INT64_MAX),
        _Number("spec.backoffLimit"),
        _Number("spec.backoffLimitPerIndex"),
        _Number("spec.maxFailedIndexes"),
        _Number("spec.ttlSecondsAfterFinished"),
        _Number("spec.template.spec.activeDeadlineSeconds", lowest=1),
    ),
    ("v1", "Pod"): (_Number("spec.activeDeadlineSeconds", lowest=1),),
    ("apps/v1", "Deployment"): (
        _Number("spec.replicas"),
        _Number("spec.minReadySeconds"),
        _Number("spec.revisionHistoryLimit"),
        _Number("spec.progressDeadlineSeconds"),
    ),
    ("apps/v1", "StatefulSet"): (_Number("spec.replicas"), _Number("spec.minReadySeconds")),
}


def errors(tree: Tree) -> Iterator[FieldError]:
    """Yield the errors of the numbers of a job."""
    view = ObjectView(tree)
    for number in _NUMBERS.get((view.api_version, view.kind), ()):
        value = unstructured.get(tree, *number.path.split("."))
        if value is None:
            continue
        whole = unstructured.integer(value)
        if whole is None:
            yield FieldError(number.path, ErrorType.TYPE_INVALID, "must be a whole number", value)
        elif whole < number.lowest:
            why = f"must be greater than or equal to {number.lowest}"
            yield FieldError(number.path, ErrorType.INVALID, why, value)
        elif whole > number.highest:
            why = f"must be less than or equal to {number.highest}"
            yield FieldError(number.path, ErrorType.INVALID, why, value)
