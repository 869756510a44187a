"""Who may do what: the manager, as little as it needs; and roles for people, to be bound as a cluster sees fit.

Every rule derives from the tables of kinds and from the few tables below, which say what is done with them. A new kind
of job brings its rules along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from kubemachinery.client import delegated_auth
from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import autoscaling, kube, kueue, labels, registry
from pykueue.controllers import aggregation
from pykueue.install.names import MANAGER, PREFIX, document
from pykueue.jobs import selection
from pykueue.jobs.kinds import REPLICA_SET, JobIntegration, JobKinds
from pykueue.observe import visibility
from pykueue.webhooks import registration

API: Final = "rbac.authorization.k8s.io/v1"
_GROUP: Final = "rbac.authorization.k8s.io"

_READ: Final = ("get", "list", "watch")
_STATUS: Final = ("get", "patch")
_EDIT: Final = ("create", "delete", "get", "list", "patch", "update", "watch")

# What the manager does with our own kinds beyond reading them.
_OWN: Final[Mapping[type, tuple[str, ...]]] = {
    kueue.Workload: ("create", "delete", "patch"),
    kueue.LocalQueue: ("create",),  # default LocalQueues (KEP-7610)
    # Their finalizers come off when nothing refers to them any more.
    kueue.ClusterQueue: ("patch",),
    kueue.ResourceFlavor: ("patch",),
    kueue.AdmissionCheck: ("patch",),
    kueue.Topology: ("patch",),
}

# What it does with the kinds of Kubernetes and its autoscaler that are no jobs.
_OTHERS: Final[Mapping[type, tuple[str, ...]]] = {
    kube.LimitRange: _READ,
    kube.Namespace: _READ,
    kube.Node: _READ,
    kube.PodTemplate: ("create", "delete", "get", "update"),  # the pods of a ProvisioningRequest
    kube.Event: ("create", "list", "patch"),  # listed for the story that the dashboard tells
    kube.PriorityClass: _READ,
    kube.RuntimeClass: _READ,
    autoscaling.ProvisioningRequest: ("create", "delete", *_READ),
}

# A role that every cluster has.
_PROOF_READER: Final = "extension-apiserver-authentication-reader"

# What it does with jobs, of every kind that it can run.
_JOB: Final = ("delete", "patch", *_READ)


# Kinds of jobs that nothing of this program runs are still owners of those that it runs.
_OWNER: Final = ("get",)
# The role with what external frameworks need; it has no rules where none are configured.
EXTERNAL_ROLE: Final = f"{PREFIX}manager-external-frameworks-role"

External: TypeAlias = Iterable[tuple[str, str]]


def documents(namespace: str, secret: str, kinds: JobKinds, external: External = ()) -> Iterator[Tree]:
    """All roles and bindings."""
    yield document("v1", "ServiceAccount", MANAGER, namespace, automountServiceAccountToken=False)
    yield from _bound("ClusterRole", "manager-role", manager_rules(kinds), namespace)
    yield from _bound("ClusterRole", EXTERNAL_ROLE.removeprefix(PREFIX), external_rules(kinds, external), namespace)
    yield from _bound("Role", "leader-election-role", leader_rules(), namespace)
    yield from _bound("Role", "manager-secrets-role", secret_rules(secret), namespace)
    yield from _bound("ClusterRole", "metrics-auth-role", review_rules(), namespace)
    # The role is the cluster's own: to read how its API server proves itself.
    yield _binding(
        "visibility-server-auth-reader", "Role", _PROOF_READER, delegated_auth.CONFIG_MAP_NAMESPACE, namespace
    )
    yield from people(kinds)


# --- The manager ------------------------------------------------------------------------------------------------------


def manager_rules(kinds: JobKinds) -> list[Tree]:
    """What the manager may do everywhere."""
    wanted: dict[tuple[str, str], set[str]] = {}

    def may(kind: Kind, verbs: Iterable[str], subresource: str = "") -> None:
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        wanted.setdefault((kind.group, resource), set()).update(verbs)

    for row in registry.KUEUE:
        own = _OWN.get(row.type, ())
        may(row, (*_READ, *own))
        if "status" in row.subresources:
            may(row, _STATUS, "status")
        if own:
            # Who names an object as owner of another needs this where owners are protected.
            may(row, ("update",), "finalizers")
    for type_, verbs in _OTHERS.items():
        may(registry.ALL.of(type_), verbs)
    may(REPLICA_SET, _OWNER)
    for job in kinds:
        may(job.kind, _OWNER)
    for job in _runnable(kinds):
        may(job.kind, _JOB)
        may(job.kind, _STATUS, "status")
        may(job.kind, ("get", "update"), "finalizers")
    return [*_rules(wanted), *_named_rules()]


def external_rules(kinds: JobKinds, external: External) -> list[Tree]:
    """What the manager may do with the kinds of `integrations.externalFrameworks`: read them as owners.

    The plural of such a kind is known to the cluster alone, and rights are rendered without one. Where the tables do
    not have it, the right is to read every resource of the API group; never so for groups that are no domain, which
    belong to Kubernetes itself, hold Secrets and the like, and have regular plurals.
    """
    wanted: dict[tuple[str, str], set[str]] = {}
    for api_version, name in external:
        if kinds.of(ObjectView({"apiVersion": api_version, "kind": name})) is not None:
            continue  # read as any kind of the table
        kind = selection.external_kind(api_version, name)
        resource = kind.plural or ("*" if "." in kind.group else _regular_plural(name))
        wanted.setdefault((kind.group, resource), set()).update(_OWNER)
    return list(_rules(wanted))


def _regular_plural(kind: str) -> str:
    """The plural of a built-in kind: Jobs, Ingresses, NetworkPolicies."""
    word = kind.lower()
    if word.endswith("s"):
        return f"{word}es"
    return f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"


def _runnable(kinds: JobKinds) -> list[JobIntegration]:
    return [row for row in kinds if row.implementation is not None]


def _rules(wanted: Mapping[tuple[str, str], set[str]]) -> Iterator[Tree]:
    """As few rules as there are different permissions in a group."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), verbs in wanted.items():
        alike.setdefault((group, tuple(sorted(verbs))), []).append(resource)
    for (group, allowed), resources in sorted(alike.items()):
        yield {"apiGroups": [group], "resources": sorted(resources), "verbs": list(allowed)}


def _named_rules() -> Iterator[Tree]:
    """What leads the API server to us, and nothing else of the same kinds."""
    for phase, kind in registration.KINDS.items():
        yield _named(kind, [registration.NAMES[phase]], ("get", "update"))
    yield _named(registration.CRD, sorted(row.name for row in registry.KUEUE if row.converts), ("get", "update"))
    names = [one["metadata"]["name"] for one in visibility.api_services("")]
    yield _named(aggregation.API_SERVICE, sorted(names), ("get", "update"))


def _named(kind: Kind, names: list[str], verbs: tuple[str, ...]) -> Tree:
    return {"apiGroups": [kind.group], "resources": [kind.plural], "resourceNames": names, "verbs": list(verbs)}


def leader_rules() -> list[Tree]:
    lease = registry.KUBERNETES.of(kube.Lease)
    return [{"apiGroups": [lease.group], "resources": [lease.plural], "verbs": ["create", "get", "update"]}]


def secret_rules(secret: str) -> list[Tree]:
    """The one Secret that keeps our certificate. It is installed empty, so that nobody has to create it."""
    return [_named(registry.KUBERNETES.of(kube.Secret), [secret], ("get", "update"))]


def review_rules() -> list[Tree]:
    """To ask who somebody is and what they may, before they are shown anything."""
    reviews = (delegated_auth.TOKEN_REVIEW, delegated_auth.SUBJECT_ACCESS_REVIEW)
    return [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["create"]} for kind in reviews]


# --- People -----------------------------------------------------------------------------------------------------------

_TO_ADMIN: Final = "rbac.authorization.k8s.io/aggregate-to-admin"
_TO_ALL: Final = (
    "rbac.authorization.k8s.io/aggregate-to-view",
    "rbac.authorization.k8s.io/aggregate-to-edit",
    _TO_ADMIN,
)

# Kinds that people have roles for -> (what takes in the editor's role, what takes in the viewer's).
_PEOPLE: Final[Mapping[type, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    kueue.ClusterQueue: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.Cohort: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.ResourceFlavor: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.Topology: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.LocalQueue: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL)),
    kueue.Workload: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL)),
}
# Who waits where -> what takes in the right to look.
_WAITING: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("cq", "clusterqueues"): (labels.RBAC_BATCH_ADMIN, *_TO_ALL),
    ("lq", "localqueues"): (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL),
}
_JOB_EDITORS: Final = (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER)
_JOB_VIEWERS: Final = (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL)


def people(kinds: JobKinds) -> Iterator[Tree]:
    """A role to edit and one to look for each kind, and two that take in what batch people need."""
    for name, label in (("batch-admin-role", labels.RBAC_BATCH_ADMIN), ("batch-user-role", labels.RBAC_BATCH_USER)):
        # Its rules are the cluster's to fill in.
        selected = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
        yield document(API, "ClusterRole", PREFIX + name, aggregationRule=selected)
    for type_, (editors, viewers) in _PEOPLE.items():
        yield from _for_people(registry.KUEUE.of(type_), editors, viewers)
    for (word, plural), takers in _WAITING.items():
        resources = [f"{plural}/pendingworkloads"]
        looking = {"apiGroups": [visibility.GROUP], "resources": resources, "verbs": list(_READ)}
        yield _cluster_role(f"pending-workloads-{word}-viewer-role", [looking], takers)
    yield _cluster_role("metrics-reader", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    for job in _runnable(kinds):
        # Whoever may make pods could make them before; queueing takes nothing away and gives nothing.
        if not job.of_pods:
            yield from _for_people(job.kind, _JOB_EDITORS, _JOB_VIEWERS)


def _for_people(kind: Kind, editors: tuple[str, ...], viewers: tuple[str, ...]) -> Iterator[Tree]:
    for word, verbs, takers in (("editor", _EDIT, editors), ("viewer", _READ, viewers)):
        rules = [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": list(verbs)}]
        if "status" in kind.subresources:
            rules.append({"apiGroups": [kind.group], "resources": [f"{kind.plural}/status"], "verbs": ["get"]})
        yield _cluster_role(f"{kind.singular}-{word}-role", rules, takers)


# --- Documents --------------------------------------------------------------------------------------------------------


def _cluster_role(name: str, rules: list[Tree], takers: Iterable[str] = ()) -> Tree:
    role = document(API, "ClusterRole", PREFIX + name, rules=rules)
    role["metadata"]["labels"] |= dict.fromkeys(takers, "true")
    return role


def _bound(kind: str, name: str, rules: list[Tree], namespace: str) -> Iterator[Tree]:
    """A role, and the manager's right to it."""
    where = namespace if kind == "Role" else ""
    yield document(API, kind, PREFIX + name, where, rules=rules)
    yield _binding(f"{name.removesuffix('-role')}-rolebinding", kind, PREFIX + name, where, namespace)


def _binding(name: str, kind: str, role: str, where: str, namespace: str) -> Tree:
    return document(
        API,
        f"{kind}Binding",
        PREFIX + name,
        where,
        roleRef={"apiGroup": _GROUP, "kind": kind, "name": role},
        subjects=[{"kind": "ServiceAccount", "name": MANAGER, "namespace": namespace}],
    )
