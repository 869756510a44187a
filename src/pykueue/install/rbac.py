"""RBAC: the minimal permissions of the manager, and roles for users, which the administrator binds.

Every rule is derived from the tables of kinds and from the tables below. The rules of a new job kind follow from its
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from kubemachinery.client import delegated_auth
from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import autoscaling, budget, kube, kueue, labels, quota_schedule, registry
from pykueue.controllers import aggregation
from pykueue.history import documents as history_documents
from pykueue.install.names import MANAGER, PREFIX, document
from pykueue.jobs import selection
from pykueue.jobs.kinds import REPLICA_SET, JobIntegration, JobKinds
from pykueue.observe import visibility
from pykueue.projection.documents import FORECAST
from pykueue.webhooks import registration

API: Final = "rbac.authorization.k8s.io/v1"
_GROUP: Final = "rbac.authorization.k8s.io"

# The group and version of the history.
HISTORY: Final = (history_documents.GROUP, history_documents.VERSION)

_READ: Final = ("get", "list", "watch")
_STATUS: Final = ("get", "patch")
_EDIT: Final = ("create", "delete", "get", "list", "patch", "update", "watch")

# The verbs of the manager on Kueue's kinds and ours, in addition to reading.
_OWN: Final[Mapping[type, tuple[str, ...]]] = {
    kueue.Workload: ("create", "delete", "patch"),
    kueue.LocalQueue: ("create",),  # default LocalQueues (KEP-7610)
    # Their finalizers are removed when nothing refers to them.
    kueue.ClusterQueue: ("patch",),
    kueue.ResourceFlavor: ("patch",),
    kueue.AdmissionCheck: ("patch",),
    kueue.Topology: ("patch",),
}

# The verbs on kinds of Kubernetes and its autoscaler that are not jobs.
_OTHERS: Final[Mapping[type, tuple[str, ...]]] = {
    kube.LimitRange: _READ,
    kube.Namespace: _READ,
    kube.Node: _READ,
    kube.PodTemplate: ("create", "delete", "get", "update"),  # the pods of a ProvisioningRequest
    kube.Event: ("create", "list", "patch"),  # listed for the history in the dashboard
    kube.PriorityClass: _READ,
    kube.RuntimeClass: _READ,
    autoscaling.ProvisioningRequest: ("create", "delete", *_READ),
}

# A built-in role of every cluster.
_PROOF_READER: Final = "extension-apiserver-authentication-reader"


# Job kinds without an integration can still own jobs of integrated kinds.
_OWNER: Final = ("get",)
# The role for external frameworks; without rules if none are configured.
EXTERNAL_ROLE: Final = f"{PREFIX}manager-external-frameworks-role"

External: TypeAlias = Iterable[tuple[str, str]]


def documents(namespace: str, secret: str, kinds: JobKinds, external: External = ()) -> Iterator[Tree]:
    """Yield all roles and bindings."""
    yield document("v1", "ServiceAccount", MANAGER, namespace, automountServiceAccountToken=False)
    yield from _bound("ClusterRole", "manager-role", manager_rules(kinds), namespace)
    yield from _bound("ClusterRole", EXTERNAL_ROLE.removeprefix(PREFIX), external_rules(kinds, external), namespace)
    yield from _bound("Role", "leader-election-role", leader_rules(), namespace)
    yield from _bound("Role", "manager-secrets-role", secret_rules(secret), namespace)
    yield from _bound("ClusterRole", "metrics-auth-role", review_rules(), namespace)
    # A role of the cluster: to read how the API server authenticates itself.
    yield _binding(
        "visibility-server-auth-reader", "Role", _PROOF_READER, delegated_auth.CONFIG_MAP_NAMESPACE, namespace
    )
    yield from user_roles(kinds)


# --- The manager ------------------------------------------------------------------------------------------------------


def manager_rules(kinds: JobKinds) -> list[Tree]:
    """Return the cluster-wide rules of the manager."""
    wanted: dict[tuple[str, str], set[str]] = {}

    def may(kind: Kind, verbs: Iterable[str], subresource: str = "") -> None:
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        wanted.setdefault((kind.group, resource), set()).update(verbs)

    for row in registry.CUSTOM:
        own = _OWN.get(row.type, ())
        may(row, (*_READ, *own))
        if "status" in row.subresources:
            may(row, _STATUS, "status")
        if own:
            # Required to set an owner reference with blockOwnerDeletion.
            may(row, ("update",), "finalizers")
    for type_, verbs in _OTHERS.items():
        may(registry.ALL.of(type_), verbs)
    may(REPLICA_SET, _OWNER)
    for job in kinds:
        may(job.kind, _OWNER)
    for job in _runnable(kinds):
        may(job.kind, job.verbs)
        for kind in job.second_kinds:
            may(kind, _READ)
        if job.parent_type is None:
            may(job.kind, _STATUS, "status")
            may(job.kind, ("get", "update"), "finalizers")
    return [*_rules(wanted), *_named_rules()]


def external_rules(kinds: JobKinds, external: External) -> list[Tree]:
    """Return the rules for the kinds of `integrations.externalFrameworks`: to read them as owners.

    Rules are rendered without a cluster, so the plural of such a kind may be unknown. Then the rule covers every
    resource of the API group, except for groups without a domain: they belong to Kubernetes, contain Secrets, and have
    regular plurals.
    """
    wanted: dict[tuple[str, str], set[str]] = {}
    for api_version, name in external:
        if kinds.of(ObjectView({"apiVersion": api_version, "kind": name})) is not None:
            continue  # covered by the rules of its row
        kind = selection.external_kind(api_version, name)
        resource = kind.plural or ("*" if "." in kind.group else _regular_plural(name))
        wanted.setdefault((kind.group, resource), set()).update(_OWNER)
    return list(_rules(wanted))


def _regular_plural(kind: str) -> str:
    """Return the plural of a built-in kind: jobs, ingresses, networkpolicies."""
    word = kind.lower()
    if word.endswith("s"):
        return f"{word}es"
    return f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"


def _runnable(kinds: JobKinds) -> list[JobIntegration]:
    return [row for row in kinds if row.implementation is not None]


def _rules(wanted: Mapping[tuple[str, str], set[str]]) -> Iterator[Tree]:
    """Yield one rule for each set of verbs in a group."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), verbs in wanted.items():
        alike.setdefault((group, tuple(sorted(verbs))), []).append(resource)
    for (group, allowed), resources in sorted(alike.items()):
        yield {"apiGroups": [group], "resources": sorted(resources), "verbs": list(allowed)}


def _named_rules() -> Iterator[Tree]:
    """Yield rules for the named objects that refer the API server to the manager."""
    for phase, kind in registration.KINDS.items():
        yield _named(kind, [registration.NAMES[phase]], ("get", "update"))
    yield _named(registration.CRD, sorted(row.name for row in registry.KUEUE if row.converts), ("get", "update"))
    names = [one["metadata"]["name"] for one in visibility.api_services((*visibility.GROUP_VERSIONS, HISTORY), "")]
    yield _named(aggregation.API_SERVICE, sorted(names), ("get", "update"))


def _named(kind: Kind, names: list[str], verbs: tuple[str, ...]) -> Tree:
    return {"apiGroups": [kind.group], "resources": [kind.plural], "resourceNames": names, "verbs": list(verbs)}


def leader_rules() -> list[Tree]:
    lease = registry.KUBERNETES.of(kube.Lease)
    return [{"apiGroups": [lease.group], "resources": [lease.plural], "verbs": ["create", "get", "update"]}]


def secret_rules(secret: str) -> list[Tree]:
    """Return the rule for the Secret of the certificate. It is installed empty, so that `create` is not needed."""
    return [_named(registry.KUBERNETES.of(kube.Secret), [secret], ("get", "update"))]


def review_rules() -> list[Tree]:
    """Return the rules to authenticate tokens and to authorize requests (TokenReview, SubjectAccessReview)."""
    reviews = (delegated_auth.TOKEN_REVIEW, delegated_auth.SUBJECT_ACCESS_REVIEW)
    return [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["create"]} for kind in reviews]


# --- Users ------------------------------------------------------------------------------------------------------------

_TO_ADMIN: Final = "rbac.authorization.k8s.io/aggregate-to-admin"
_TO_ALL: Final = (
    "rbac.authorization.k8s.io/aggregate-to-view",
    "rbac.authorization.k8s.io/aggregate-to-edit",
    _TO_ADMIN,
)

# Kinds with roles for users -> (labels that aggregate the editor role, labels that aggregate the viewer role).
_USER_KINDS: Final[Mapping[type, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    kueue.ClusterQueue: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.Cohort: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.ResourceFlavor: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.Topology: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, _TO_ADMIN)),
    kueue.LocalQueue: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL)),
    kueue.Workload: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL)),
    # A user may see what is left of a Budget.
    budget.Budget: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER)),
    # A user may see when the quota of a queue changes.
    quota_schedule.QuotaSchedule: ((labels.RBAC_BATCH_ADMIN,), (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER)),
}
# Lists of pending Workloads -> labels that aggregate the viewer role.
_PENDING_LISTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("cq", "clusterqueues"): (labels.RBAC_BATCH_ADMIN, *_TO_ALL),
    ("lq", "localqueues"): (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL),
}
# The history, in the namespaces where a role is bound.
_RUN_TIMES: Final = f"workloads/{history_documents.RUN_TIME}"
_HISTORY_LISTS: Final = (
    history_documents.RECORDS,
    history_documents.USAGE,
    history_documents.WAITING,
    history_documents.TROUBLES,
)
_FORECASTS: Final = tuple(f"{plural}/{FORECAST}" for plural in ("localqueues", "workloads"))
_HISTORY_VIEWERS: Final = (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL)
_JOB_EDITORS: Final = (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER)
_JOB_VIEWERS: Final = (labels.RBAC_BATCH_ADMIN, labels.RBAC_BATCH_USER, *_TO_ALL)


def user_roles(kinds: JobKinds) -> Iterator[Tree]:
    """Yield an editor and a viewer role for each kind, and two aggregated roles for batch administrators and users."""
    for name, label in (("batch-admin-role", labels.RBAC_BATCH_ADMIN), ("batch-user-role", labels.RBAC_BATCH_USER)):
        # The cluster fills in its rules by aggregation.
        selected = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
        yield document(API, "ClusterRole", PREFIX + name, aggregationRule=selected)
    for type_, (editors, viewers) in _USER_KINDS.items():
        yield from _kind_roles(registry.CUSTOM.of(type_), editors, viewers)
    for (word, plural), takers in _PENDING_LISTS.items():
        resources = [f"{plural}/pendingworkloads"]
        looking = {"apiGroups": [visibility.GROUP], "resources": resources, "verbs": list(_READ)}
        yield _cluster_role(f"pending-workloads-{word}-viewer-role", [looking], takers)
    listing = {"apiGroups": [history_documents.GROUP], "resources": list(_HISTORY_LISTS), "verbs": ["list"]}
    reading = {"apiGroups": [history_documents.GROUP], "resources": [_RUN_TIMES, *_FORECASTS], "verbs": ["get"]}
    yield _cluster_role("history-viewer-role", [listing, reading], _HISTORY_VIEWERS)
    whole = {"apiGroups": [history_documents.GROUP], "resources": [f"clusterqueues/{FORECAST}"], "verbs": ["get"]}
    yield _cluster_role("forecast-cq-viewer-role", [whole], (labels.RBAC_BATCH_ADMIN, *_TO_ALL))
    yield _cluster_role("metrics-reader", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    for job in _runnable(kinds):
        # Permissions on pods exist in every cluster; queueing does not change them.
        if not job.of_pods:
            yield from _kind_roles(job.kind, _JOB_EDITORS, _JOB_VIEWERS)


def _kind_roles(kind: Kind, editors: tuple[str, ...], viewers: tuple[str, ...]) -> Iterator[Tree]:
    for word, verbs, takers in (("editor", _EDIT, editors), ("viewer", _READ, viewers)):
        rules = [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": list(verbs)}]
        if "status" in kind.subresources:
            rules.append({"apiGroups": [kind.group], "resources": [f"{kind.plural}/status"], "verbs": ["get"]})
        yield _cluster_role(f"{kind.singular}-{word}-role", rules, takers)


# --- Documents --------------------------------------------------------------------------------------------------------


def _cluster_role(name: str, rules: list[Tree], takers: Iterable[str] = ()) -> Tree:
    """A role that other roles take in. The label with its name lets a role of the cluster select just this one."""
    role = document(API, "ClusterRole", PREFIX + name, rules=rules)
    chosen = {labels.RBAC_ROLE: name.removesuffix("-role")} if takers else {}
    role["metadata"]["labels"] |= chosen | dict.fromkeys(takers, "true")
    return role


def _bound(kind: str, name: str, rules: list[Tree], namespace: str) -> Iterator[Tree]:
    """Yield a role and its binding to the manager.

    A role without rules has no such field: the API server stores an empty list as null, and then reports a conflict to
    the next field manager that applies the same manifest.
    """
    where = namespace if kind == "Role" else ""
    yield document(API, kind, PREFIX + name, where, **({"rules": rules} if rules else {}))
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
