"""The built-in kinds that the server serves, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from kubemachinery import status, strategic_merge
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.apply import Shape
from kubeserver.builtin import (
    access,
    cluster,
    configuration,
    cronjobs,
    decoding,
    defaults,
    devices,
    events,
    jobs,
    pods,
    scheduling,
    services,
    warnings,
    webhook_configurations,
    workloads,
)
from kubeserver.builtin.columns import PRINTED
from kubeserver.builtin_types import schemas
from kubeserver.registry import metadata
from kubeserver.registry.strategy import ALL_VERBS, Resource, ResourceRules, ScalePaths, SubresourceAction, Tree

_Validate = Callable[[Tree, Tree | None, str], Sequence[FieldError] | Any]

_COMMON: Final = ("apiVersion", "kind", "metadata")
_REVIEWED: Final = ("create",)


def _resource(
    name: str,
    plural: str,
    *,
    group: str = "",
    validate: _Validate | None = None,
    read: Callable[[Tree], Tree] | None = None,
    on_create: Callable[[Tree], None] | None = None,
    on_update: Callable[[Tree, Tree], None] | None = None,
    on_status: Callable[[Tree, Tree], None] | None = None,
    warn: Callable[[Tree, Tree | None], Iterator[str]] | None = None,
    **row: Any,
) -> Resource:
    """One row. `name` is the message in the table of fields, from which everything else follows."""
    _, version, kind = name.split(".")
    rules: dict[str, Any] = {
        "unknown": lambda tree, old=None: list(decoding.unknown(name, tree)),
        "prune": lambda tree: _read(name, tree, read),
        "default": lambda tree, old=None: defaults.default(name, tree),
    }
    for key, function in (("on_create", on_create), ("on_update", on_update), ("on_status", on_status)):
        if function is not None:
            rules[key] = function
    rules["validate"] = lambda new, old, subresource: [
        *_finalizers(new, old),
        *(validate(new, old, subresource) if validate is not None else ()),
    ]
    if warn is not None:
        rules["warn"] = warn
    row.setdefault("status_keeps", (("spec",),))
    printed = PRINTED.get(name)
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        schema=lambda: _schema(name),
        public_name=schemas.public_name(name),
        components=lambda: schemas.components(name),
        shape=lambda: _shape(name),
        strategic=lambda tree, patch: strategic_merge.merge(tree, patch, _whole_schema(name)),
        rules=ResourceRules(**rules),
        columns=printed.columns if printed else None,
        cells=printed.cells if printed else None,
        **row,
    )


def _finalizers(new: Tree, old: Tree | None) -> Iterator[FieldError]:
    """Yield errors for finalizers without a domain, except those that Kubernetes defines."""
    before = (old or {}).get("metadata", {}).get("finalizers", ())
    for index, finalizer in enumerate(new["metadata"].get("finalizers", ())):
        if "/" not in finalizer and finalizer not in metadata.KNOWN_FINALIZERS and finalizer not in before:
            why = "must be fully qualified, as in example.com/name"
            yield FieldError(f"metadata.finalizers[{index}]", ErrorType.INVALID, why, finalizer)


def _read(name: str, tree: Tree, further: Callable[[Tree], Tree] | None) -> Tree:
    """The object as its own type reads it; 400 where it cannot."""
    try:
        out = decoding.read(name, tree)
    except decoding.DecodingError as wrong:
        _, version, kind = name.split(".")
        raise status.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {wrong}') from None
    return further(out) if further is not None else out


@cache
def _whole_schema(name: str) -> Mapping[str, Any]:
    return schemas.inlined(name)


@cache
def _schema(name: str) -> Mapping[str, Any]:
    whole = _whole_schema(name)
    properties = {key: value for key, value in whole["properties"].items() if key not in _COMMON}
    return {**whole, "properties": properties}


@cache
def _shape(name: str) -> Shape:
    return Shape.of(_schema(name), decoding.zero(name))


def _paths(*labels: str) -> dict[str, str]:
    """Field labels that are the path to their field."""
    return {label: label for label in labels}


_STATUS: Final = frozenset({"status"})
_SCALED: Final = frozenset({"status", "scale"})
_REPLICAS: Final = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))
_SUBJECT: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

RESOURCES: Final[tuple[Resource, ...]] = (
    _resource(
        "core.v1.Namespace",
        "namespaces",
        namespaced=False,
        short_names=("ns",),
        subresources=frozenset({"status", "finalize"}),
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        label_name=True,
        generation=False,
        selectable=_paths("status.phase"),
        on_create=cluster.on_create_namespace,
        on_update=cluster.on_update_namespace,
        validate=cluster.validate_namespace,
    ),
    _resource(
        "core.v1.Pod",
        "pods",
        short_names=("po",),
        categories=("all",),
        subresources=_STATUS,
        status_keeps=(("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
        grace_seconds=30,
        selectable=_paths(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        on_create=pods.on_create,
        on_update=pods.on_update,
        on_status=pods.on_status,
        validate=pods.validate,
        warn=warnings.of_pod,
        actions={"binding": SubresourceAction(kind="Binding", alter=pods.bind)},
    ),
    _resource(
        "core.v1.Node",
        "nodes",
        namespaced=False,
        short_names=("no",),
        subresources=_STATUS,
        generation=False,
        selectable=_paths("spec.unschedulable"),
        on_create=cluster.on_create_node,
        validate=cluster.validate_node,
    ),
    _resource(
        "core.v1.ConfigMap",
        "configmaps",
        short_names=("cm",),
        generation=False,
        validate=configuration.validate_config_map,
    ),
    _resource(
        "core.v1.Secret",
        "secrets",
        generation=False,
        selectable=_paths("type"),
        read=configuration.with_text_data,
        validate=configuration.validate_secret,
        warn=warnings.of_secret,
    ),
    _resource("core.v1.ServiceAccount", "serviceaccounts", short_names=("sa",), generation=False),
    _resource(
        "core.v1.Event",
        "events",
        short_names=("ev",),
        ephemeral=True,
        generation=False,
        convert=events.convert,
        create_on_update=True,
        selectable={
            **_paths(*(f"involvedObject.{field}" for field in _SUBJECT)),
            **_paths("reason", "reportingComponent", "type"),
            "source": "source.component",
        },
        validate=events.validate,
    ),
    _resource(
        "events.v1.Event",
        "events",
        group="events.k8s.io",
        short_names=("ev",),
        ephemeral=True,
        generation=False,
        shares="events",
        convert=events.convert,
        create_on_update=True,
        selectable={
            **_paths(*(f"regarding.{field}" for field in _SUBJECT)),
            **_paths("reason", "reportingController", "type"),
        },
        validate=events.validate,
    ),
    _resource(
        "core.v1.LimitRange",
        "limitranges",
        short_names=("limits",),
        generation=False,
        validate=configuration.validate_limit_range,
    ),
    _resource(
        "core.v1.PodTemplate",
        "podtemplates",
        validate=pods.validate_pod_template,
        warn=warnings.of_pod_template,
    ),
    _resource(
        "batch.v1.Job",
        "jobs",
        group="batch",
        categories=("all",),
        subresources=_STATUS,
        selectable=_paths("status.successful"),
        on_create=jobs.on_create,
        on_update=jobs.on_update,
        validate=jobs.validate,
        warn=warnings.of_job,
    ),
    _resource(
        "batch.v1.CronJob",
        "cronjobs",
        group="batch",
        short_names=("cj",),
        categories=("all",),
        subresources=_STATUS,
        on_create=cronjobs.on_create,
        on_update=cronjobs.on_update,
        validate=cronjobs.validate,
        warn=warnings.of_cron_job,
    ),
    *(
        _resource(
            f"apps.v1.{kind}",
            f"{kind.lower()}s",
            group="apps",
            short_names=(short,),
            categories=("all",),
            subresources=_STATUS if kind == "DaemonSet" else _SCALED,
            scaling=None if kind == "DaemonSet" else _REPLICAS,
            label_name=kind == "StatefulSet",
            # The annotations of a Deployment are copied to its ReplicaSets, so they count as part of what is wanted.
            generation_metadata=("annotations",) if kind == "Deployment" else (),
            status_keeps=(("spec",), ("metadata", "labels")) if kind == "Deployment" else (("spec",),),
            on_create=workloads.on_create,
            on_update=workloads.on_update,
            on_status=workloads.on_deployment_status if kind == "Deployment" else None,
            validate=workloads.validate,
            warn=warnings.of_named_workload if kind in ("Deployment", "ReplicaSet") else warnings.of_workload,
        )
        for kind, short in (("Deployment", "deploy"), ("StatefulSet", "sts"), ("ReplicaSet", "rs"), ("DaemonSet", "ds"))
    ),
    _resource(
        "apps.v1.ControllerRevision",
        "controllerrevisions",
        group="apps",
        generation=False,
        validate=workloads.validate_revision,
    ),
    _resource(
        "core.v1.PersistentVolumeClaim",
        "persistentvolumeclaims",
        short_names=("pvc",),
        subresources=_STATUS,
        generation=False,
        on_create=workloads.on_create_claim,
        on_update=workloads.on_update_claim,
        validate=workloads.validate_claim,
        warn=workloads.warn_of_claim,
    ),
    _resource(
        "core.v1.Service",
        "services",
        short_names=("svc",),
        categories=("all",),
        subresources=_STATUS,
        label_name=True,
        generation=False,
        create_on_update=True,
        selectable=_paths("spec.clusterIP", "spec.type"),
        on_create=services.on_create_service,
        on_update=services.on_update_service,
        validate=services.validate_service,
        warn=services.warn_of_service,
    ),
    _resource(
        "core.v1.Endpoints",
        "endpoints",
        short_names=("ep",),
        generation=False,
        create_on_update=True,
        deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        validate=services.validate_endpoints,
        warn=services.warn_of_endpoints,
    ),
    _resource(
        "discovery.v1.EndpointSlice",
        "endpointslices",
        group="discovery.k8s.io",
        generation_metadata=("labels",),
        on_create=services.on_create_endpoint_slice,
        on_update=services.on_update_endpoint_slice,
        validate=services.validate_endpoint_slice,
        warn=services.warn_of_endpoint_slice,
    ),
    _resource(
        "coordination.v1.Lease",
        "leases",
        group="coordination.k8s.io",
        generation=False,
        create_on_update=True,
        unconditional_update=False,
        validate=cluster.validate_lease,
    ),
    _resource(
        "scheduling.v1.PriorityClass",
        "priorityclasses",
        group="scheduling.k8s.io",
        namespaced=False,
        short_names=("pc",),
        still=True,
        validate=scheduling.validate_priority_class,
    ),
    _resource(
        "node.v1.RuntimeClass",
        "runtimeclasses",
        group="node.k8s.io",
        namespaced=False,
        generation=False,
        unconditional_update=False,
        validate=scheduling.validate_runtime_class,
        warn=warnings.of_runtime_class,
    ),
    _resource(
        "apiextensions.v1.CustomResourceDefinition",
        "customresourcedefinitions",
        group="apiextensions.k8s.io",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=_STATUS,
        status_keeps=(("metadata",), ("spec",)),
        unconditional_update=False,
    ),
    *(
        _resource(
            f"admissionregistration.v1.{kind}",
            f"{kind.lower()}s",
            group="admissionregistration.k8s.io",
            namespaced=False,
            categories=("api-extensions",),
            unconditional_update=False,
            validate=webhook_configurations.validate,
        )
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ),
    *(
        _resource(
            f"rbac.v1.{kind}",
            f"{kind.lower()}s",
            group="rbac.authorization.k8s.io",
            namespaced=not kind.startswith("Cluster"),
            free_name=True,
            generation=False,
            create_on_update=True,
            validate=access.validate_binding if kind.endswith("Binding") else access.validate_role,
        )
        for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    ),
    *(
        _resource(
            f"resource.v1.{kind}",
            plural,
            group="resource.k8s.io",
            namespaced=kind.startswith("ResourceClaim"),
            subresources=_STATUS if kind == "ResourceClaim" else frozenset(),
            status_keeps=(("metadata",), ("spec",)),
            generation=not kind.startswith("ResourceClaim"),
            validate=validate,
        )
        for kind, plural, validate in (
            ("DeviceClass", "deviceclasses", None),
            ("ResourceClaim", "resourceclaims", devices.validate_claim),
            ("ResourceClaimTemplate", "resourceclaimtemplates", devices.validate_claim_template),
            ("ResourceSlice", "resourceslices", None),
        )
    ),
    *(
        _resource(
            f"{package}.v1.{kind}",
            f"{kind.lower()}s",
            group=f"{package}.k8s.io",
            namespaced=kind.startswith("Local"),
            verbs=_REVIEWED,
            virtual=True,
            generation=False,
        )
        for package, kind in (
            ("authorization", "LocalSubjectAccessReview"),
            ("authorization", "SelfSubjectAccessReview"),
            ("authorization", "SelfSubjectRulesReview"),
            ("authorization", "SubjectAccessReview"),
            ("authentication", "SelfSubjectReview"),
            ("authentication", "TokenReview"),
        )
    ),
)
