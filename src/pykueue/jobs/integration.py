"""A row of the table of job kinds: the name of the kind, its API group, and what the manager has to know of it.

The class with the rules of a kind is in a module of its own, which imports much. A row of `kinds.BUILT_IN` names the
class, and the module is imported when the rules of the kind are first used: a command looks up all kinds, and uses the
rules of few.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from kubemachinery import unstructured
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.errors import PykueueError

if TYPE_CHECKING:
    from pykueue.jobs.interface import GenericJob, RelatedObject, RelatedObjects
    from pykueue.jobs.pod_parent import PodParent


class UnknownFramework(PykueueError):
    """A framework that is not implemented here."""


class ImplementationPath(NamedTuple):
    """Where the class of a kind is: its module in `pykueue.jobs`, and its name. A test compares the last field with
    the class."""

    module: str
    name: str
    is_pod_parent: bool = False


def load(module: str, name: str) -> Any:
    """A value of a module of `pykueue.jobs`."""
    return getattr(importlib.import_module(f"pykueue.jobs.{module}"), name)


@cache
def _loaded(path: ImplementationPath) -> Any:
    return load(path.module, path.name)


def no_related(tree: Tree) -> tuple[RelatedObject, ...]:
    """The related objects of a kind whose pod sets are in the job itself."""
    return ()


# The verbs of the manager on jobs of an integrated kind.
JOB_VERBS: Final = ("delete", "get", "list", "patch", "watch")


class JobIntegration(msgspec.Struct, frozen=True):
    """One kind of job: a row of `kinds.BUILT_IN`, or of another distribution."""

    framework: str  # as `integrations.frameworks` names it
    kind: Kind
    # The class, or where it is. None: the kind is known as an owner of other jobs, and is not implemented here.
    implementation: type[GenericJob] | type[PodParent] | ImplementationPath | None = None
    takes_prebuilt: bool = False
    takes_elastic: bool = False
    # Whether the rules for new jobs are checked again when a job of this kind is updated.
    repeats_rules: bool = True
    # Owners of objects of the kind are not read when they are reconciled.
    top_level: bool = False
    # Made of pods: `integrations.podOptions` of configuration v1beta1 applies to it.
    of_pods: bool = False
    # The other objects that decide about the pod sets of a job.
    related: Callable[[Tree], tuple[RelatedObject, ...]] = no_related
    # Kinds of which a change reconciles the job that controls the object, whether or not their framework is enabled.
    triggered_by: tuple[Kind, ...] = ()
    # Kinds that are read beside the job: those of `related`.
    reads: tuple[Kind, ...] = ()
    # What the manager may do with objects of the kind.
    verbs: tuple[str, ...] = JOB_VERBS
    # Frameworks that are enabled with this one.
    implies: tuple[str, ...] = ()
    # Whether the mutating webhook is called on UPDATE, too.
    defaults_on_update: bool = False
    # The field that names the controller that runs the job, and the value for its own operator.
    managed_by_path: unstructured.Path = ()
    own_controller: str = ""
    # Whether field errors are ordered by their path.
    sorts_errors: bool = False
    # A feature gate without which the framework cannot be enabled.
    required_gate: str = ""
    # The field with the number of seconds after which the controller of the job ends it.
    deadline_path: unstructured.Path = ()

    @property
    def controller(self) -> str:
        """The reporting controller of its Events: `batch/job-kueue-controller`."""
        return f"{self.framework}-kueue-controller"

    @property
    def second_kinds(self) -> tuple[Kind, ...]:
        """The kinds that are watched beside the jobs."""
        return tuple(dict.fromkeys((*self.triggered_by, *self.reads)))

    @property
    def implementation_type(self) -> type[GenericJob] | type[PodParent] | None:
        """The class with the rules of the kind. Its module is imported if it was not."""
        found = self.implementation
        return _loaded(found) if isinstance(found, ImplementationPath) else found

    @property
    def is_pod_parent(self) -> bool:
        """Whether the kind is made of pods, and its objects are no jobs themselves."""
        return self.implementation is not None and self.implementation.is_pod_parent

    def job(self, tree: Tree, related: RelatedObjects | None = None) -> GenericJob:
        found: Any = None if self.is_pod_parent else self.implementation_type
        if found is None:
            raise UnknownFramework(f"the framework {self.framework} is not implemented")
        made: GenericJob = found(self, tree) if related is None else found(self, tree, related)
        return made

    @property
    def parent_type(self) -> type[PodParent] | None:
        """The implementation of a kind that is made of pods and is no job itself."""
        found: Any = self.implementation_type if self.is_pod_parent else None
        return found  # type: ignore[no-any-return]

    def parent(self, tree: Tree) -> PodParent:
        found = self.parent_type
        assert found is not None
        return found(self, tree)
