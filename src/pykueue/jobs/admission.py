"""The one webhook of all kinds: what a new job gets, and what is refused. Pure functions of trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pykueue.api.errors import FieldError
from pykueue.api.trees import Tree
from pykueue.jobs.kinds import JobKinds, Row
from pykueue.jobs.options import Options
from pykueue.jobs.selection import Ancestry


@dataclass(frozen=True)
class AdmissionFacts:
    """What the webhook needs to know beside the object."""

    # The labels of the namespace, which are always there when an object is created in it.
    namespace: Mapping[str, str] = field(default_factory=dict)
    ancestry: Ancestry = Ancestry()
    # The namespace has a LocalQueue `default` that is not stopped.
    default_queue: bool = False
    # There is a WorkloadPriorityClass `default`.
    default_priority_class: bool = False


@dataclass(frozen=True)
class Verdict:
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()


def default(row: Row, tree: Tree, facts: AdmissionFacts, kinds: JobKinds, options: Options) -> Tree:
    """A new job as it is stored. Asked on CREATE only."""
    raise NotImplementedError


def validate_create(row: Row, tree: Tree, facts: AdmissionFacts, kinds: JobKinds, options: Options) -> Verdict:
    raise NotImplementedError


def validate_update(
    row: Row, new: Tree, old: Tree, facts: AdmissionFacts, kinds: JobKinds, options: Options
) -> Verdict:
    raise NotImplementedError
