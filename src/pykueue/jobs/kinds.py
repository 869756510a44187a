"""The table of job integrations. A new kind of job is a subclass of `interface.GenericJob`, and a row here.

Other distributions add integrations through the entry point group `pykueue.job_kinds`: an entry point names a
`JobIntegration`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from kubemachinery.kinds import Kind, Version
from kubemachinery.unstructured import Tree
from pykueue.api import kube, registry
from pykueue.jobs import integration
from pykueue.jobs.integration import ImplementationPath, JobIntegration, UnknownFramework
from pykueue.jobs.operator_kinds import (
    CLUSTER_TRAINING_RUNTIME,
    JOB_SET,
    RAY_CLUSTER,
    RAY_JOB,
    RAY_SERVICE,
    REPLICA_SET,
    TRAINING_RUNTIME,
)

if TYPE_CHECKING:
    from importlib import metadata

    from pykueue.jobs.interface import RelatedObject

__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "REPLICA_SET",
    "JobIntegration",
    "JobKinds",
    "Typed",
    "UnknownFramework",
    "load",
    "not_implemented",
]

ENTRY_POINTS: Final = "pykueue.job_kinds"


class Typed(Protocol):
    """Anything with a type: an object, or a reference to one."""

    @property
    def api_version(self) -> str: ...

    @property
    def kind(self) -> str: ...


class JobKinds:
    """The integrations of the table, by framework name and by kind."""

    def __init__(self, rows: Iterable[JobIntegration]) -> None:
        self.rows: Final = tuple(rows)
        # The enabled frameworks whose kind the API server does not serve now; kept current by `controllers.jobs`.
        self.not_served: Final[set[str]] = set()
        # Called with a framework of these when an object of its kind is found: so it is served by now.
        self.found_handlers: Final[list[Callable[[str], None]]] = []
        self._by_framework: Final = {row.framework: row for row in self.rows}
        self._by_type: Final = {(row.kind.api_version, row.kind.kind): row for row in self.rows}
        self._by_group: Final = {(row.kind.group, row.kind.kind): row for row in self.rows}
        if len(self._by_framework) != len(self.rows):
            raise UnknownFramework("two job kinds have the same framework name")
        if len(self._by_group) != len(self.rows):
            raise UnknownFramework("two frameworks have the same kind")

    def __iter__(self) -> Iterator[JobIntegration]:
        return iter(self.rows)

    def framework(self, name: str) -> JobIntegration | None:
        return self._by_framework.get(name)

    def of(self, thing: Typed) -> JobIntegration | None:
        """The integration of an object, or of an owner reference. The version does not matter."""
        group, _, _ = thing.api_version.rpartition("/")
        return self._by_group.get((group, thing.kind))

    def enabled(self, frameworks: Iterable[str]) -> tuple[JobIntegration, ...]:
        """The integrations of these frameworks and of those that they imply (JF2). Raises `UnknownFramework` with every
        name that is not implemented."""
        asked = tuple(frameworks)
        if missing := self.missing(asked):
            raise UnknownFramework(not_implemented(missing))
        rows = [self._by_framework[name] for name in asked]
        implied = [self._by_framework[name] for row in rows for name in row.implies]
        return tuple(dict.fromkeys((*rows, *implied)))

    def is_enabled(self, row: JobIntegration, frameworks: Collection[str]) -> bool:
        """Whether a framework is among these, or implied by one of them (JF2)."""
        if row.framework in frameworks:
            return True
        rows = map(self.framework, frameworks)
        return any(row.framework in other.implies for other in rows if other is not None)

    def found(self, row: JobIntegration) -> None:
        """Note that an object of this kind exists: its webhook is called, or it is found as an owner."""
        if row.framework in self.not_served:
            for handler in self.found_handlers:
                handler(row.framework)

    def missing(self, frameworks: Iterable[str]) -> tuple[str, ...]:
        """The frameworks among these that are not implemented."""
        rows = ((name, self.framework(name)) for name in frameworks)
        return tuple(name for name, row in rows if row is None or row.implementation is None)


def not_implemented(frameworks: Sequence[str]) -> str:
    """The message that refuses these frameworks."""
    verb = "is" if len(frameworks) == 1 else "are"
    return f"integrations.frameworks: {', '.join(frameworks)} {verb} not implemented in this version"


def _kind(api_version: str, kind: str, plural: str) -> Kind:
    """A kind of another API group, with a status."""
    group, _, version = api_version.rpartition("/")
    return Kind(group, kind, plural, (Version(version, storage=True),), subresources=("status",))


def _runtime_of(tree: Tree) -> tuple[RelatedObject, ...]:
    found: tuple[RelatedObject, ...] = integration.load("train_job", "runtime_of")(tree)
    return found


def _ray(framework: str, kind: Kind, module: str, *, owns_cluster: bool) -> JobIntegration:
    def related(tree: Tree) -> tuple[RelatedObject, ...]:
        found: tuple[RelatedObject, ...] = integration.load(module, kind.kind).find_related(tree)
        return found

    return JobIntegration(
        framework,
        kind,
        ImplementationPath(module, kind.kind),
        takes_prebuilt=True,
        takes_elastic=True,
        managed_by_path=("spec", "managedBy"),
        own_controller="ray.io/kuberay-operator",
        related=related,
        triggered_by=(RAY_CLUSTER,) if owns_cluster else (),
        reads=(RAY_CLUSTER,) if owns_cluster else (),
    )


# A parent is read; its template is marked where the webhook could not do it.
PARENT_VERBS: Final = ("get", "list", "patch", "watch")
OWNER_VERBS: Final = ("get", "list", "watch")


def _parent(
    framework: str, api_version: str, plural: str, short: str, path: ImplementationPath, verbs: Sequence[str]
) -> JobIntegration:
    """A kind that is made of pods. Its template is marked on every write, since a user may replace it."""
    found = replace(_kind(api_version, path.name, plural), short_names=(short,))
    return JobIntegration(
        framework,
        found,
        path,
        of_pods=found.group == "apps",
        verbs=tuple(verbs),
        implies=("pod",),
        defaults_on_update=True,
    )


# The kinds of the training operator; `training_operator.REPLICAS` has their replica specs.
_TRAINING_OPERATOR: Final = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")

BUILT_IN: Final = (
    JobIntegration(
        "batch/job",
        registry.KUBERNETES.of(kube.Job),
        ImplementationPath("batch_job", "BatchJob"),
        takes_prebuilt=True,
        takes_elastic=True,
        managed_by_path=("spec", "managedBy"),
        own_controller="kubernetes.io/job-controller",
        deadline_path=("spec", "activeDeadlineSeconds"),
    ),
    JobIntegration(
        "pod",
        registry.KUBERNETES.of(kube.Pod),
        ImplementationPath("pod", "PodJob"),
        takes_prebuilt=True,
        repeats_rules=False,
        top_level=True,
        of_pods=True,
    ),
    JobIntegration(
        "jobset.x-k8s.io/jobset",
        _kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets"),
        ImplementationPath("jobset", "JobSet"),
        takes_prebuilt=True,
        managed_by_path=("spec", "managedBy"),
        own_controller="jobset.sigs.k8s.io/jobset-controller",
    ),
    *(
        JobIntegration(
            f"kubeflow.org/{kind.lower()}",
            _kind("kubeflow.org/v1", kind, f"{kind.lower()}s"),
            ImplementationPath("training_operator", "TrainingOperatorJob"),
            takes_prebuilt=True,
            repeats_rules=False,
            managed_by_path=("spec", "runPolicy", "managedBy"),
            own_controller="kubeflow.org/training-operator",
        )
        for kind in _TRAINING_OPERATOR
    ),
    JobIntegration(
        "kubeflow.org/mpijob",
        _kind("kubeflow.org/v2beta1", "MPIJob", "mpijobs"),
        ImplementationPath("mpi_job", "MPIJob"),
        takes_prebuilt=True,
        managed_by_path=("spec", "runPolicy", "managedBy"),
        own_controller="kubeflow.org/mpi-operator",
        sorts_errors=True,
    ),
    JobIntegration(
        "trainer.kubeflow.org/trainjob",
        _kind("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs"),
        ImplementationPath("train_job", "TrainJob"),
        takes_prebuilt=True,
        related=_runtime_of,
        triggered_by=(JOB_SET,),
        reads=(TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME),
        managed_by_path=("spec", "managedBy"),
        own_controller="trainer.kubeflow.org/trainjob-controller",
    ),
    JobIntegration(
        "workload.codeflare.dev/appwrapper",
        _kind("workload.codeflare.dev/v1beta2", "AppWrapper", "appwrappers"),
        ImplementationPath("app_wrapper", "AppWrapper"),
        takes_prebuilt=True,
        repeats_rules=False,
        managed_by_path=("spec", "managedBy"),
        own_controller="workload.codeflare.dev/appwrapper-controller",
    ),
    _ray("ray.io/raycluster", RAY_CLUSTER, "ray_cluster", owns_cluster=False),
    _ray("ray.io/rayjob", RAY_JOB, "ray_job", owns_cluster=True),
    _ray("ray.io/rayservice", RAY_SERVICE, "ray_service", owns_cluster=True),
    JobIntegration(
        "sparkoperator.k8s.io/sparkapplication",
        _kind("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplications"),
        ImplementationPath("spark_application", "SparkApplication"),
        required_gate="SparkApplicationIntegration",
    ),
    _parent(
        "deployment",
        "apps/v1",
        "deployments",
        "deploy",
        ImplementationPath("deployment", "Deployment", is_pod_parent=True),
        OWNER_VERBS,
    ),
    _parent(
        "statefulset",
        "apps/v1",
        "statefulsets",
        "sts",
        ImplementationPath("stateful_set", "StatefulSet", is_pod_parent=True),
        PARENT_VERBS,
    ),
    _parent(
        "leaderworkerset.x-k8s.io/leaderworkerset",
        "leaderworkerset.x-k8s.io/v1",
        "leaderworkersets",
        "lws",
        ImplementationPath("leader_worker_set", "LeaderWorkerSet", is_pod_parent=True),
        PARENT_VERBS,
    ),
)


def load(points: Iterable[metadata.EntryPoint] | None = None) -> JobKinds:
    """The table with the integrations of other distributions."""
    from importlib import metadata  # a command that finds its kinds in BUILT_IN does not need it

    found = metadata.entry_points(group=ENTRY_POINTS) if points is None else points
    rows = {row.framework: row for row in BUILT_IN}
    providers: dict[str, str] = {row.framework: "pykueue" for row in BUILT_IN if row.implementation is not None}
    for point in sorted(found, key=lambda point: point.name):
        row = _load_entry_point(point)
        provider = f"the entry point {point.name} ({point.value})"
        if row.framework in providers:
            raise UnknownFramework(
                f"the framework {row.framework} has two providers: {providers[row.framework]} and {provider}"
            )
        # A framework of Kueue's list that is not implemented here may be provided by another distribution.
        rows[row.framework] = row
        providers[row.framework] = provider
    return JobKinds(rows.values())


def _load_entry_point(point: metadata.EntryPoint) -> JobIntegration:
    try:
        row = point.load()
    except Exception as error:  # an import may fail in any way; the message names the entry point
        raise UnknownFramework(f"the entry point {point.name} of {ENTRY_POINTS} cannot be loaded: {error}") from error
    if not isinstance(row, JobIntegration):
        raise UnknownFramework(f"the entry points of {ENTRY_POINTS} must name a JobIntegration, and {row!r} is none")
    return row
