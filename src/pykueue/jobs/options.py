"""The integration part of the Configuration. A field that is a feature gate is set by the gate's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kubemachinery import meta, selectors
from kubemachinery.meta import Nanoseconds
from kubemachinery.selectors import Selector
from pykueue.api import config
from pykueue.api.validation import ValidationGates
from pykueue.lifecycle.facts import LifecycleOptions

GATES: Final[Mapping[str, str]] = {
    "assign_queue_labels": "AssignQueueLabelsForPods",
    "default_priority_class": "WorkloadPriorityClassDefaulting",
    "defer_ray_service_finalization": "DeferRayServiceFinalizationForRedisCleanup",
    "elastic": "ElasticJobsViaWorkloadSlices",
    "fast_quota_release": "FastQuotaReleaseInPodIntegration",
    "finish_orphaned": "FinishOrphanedWorkloads",
    "identifier_annotations": "WorkloadIdentifierAnnotations",
    "immutable_group_size": "LWSImmutableGroupSize",
    "partial_admission": "PartialAdmission",
    "reclaimable_pods": "ReclaimablePods",
    "selector_always_respected": "ManagedJobsNamespaceSelectorAlwaysRespected",
    "short_names": "ShortWorkloadNames",
    "skip_ancestors_of_deleted": "SkipAncestorCheckForDeletedWorkloads",
    "strict_finalizers": "RemoveFinalizersWithStrictPatch",
    "topology": "TopologyAwareScheduling",
    "validate_group_owner": "PodIntegrationValidateGroupOwner",
    "validate_ray_and_spark_updates": "ValidateRayAndSparkJobUpdates",
    "workload_hints": "WorkloadHints",
}


class IntegrationOptions(msgspec.Struct, frozen=True):
    frameworks: tuple[str, ...] = ("batch/job",)
    # External frameworks, which count as owners, each as (apiVersion, kind).
    external: frozenset[tuple[str, str]] = frozenset()
    manage_without_queue: bool = False
    namespaces: Selector = msgspec.field(default_factory=lambda: selectors.compile(meta.LabelSelector()))
    # From configuration v1beta1: applies in addition to `namespaces` to pods and kinds made of pods.
    pod_namespaces: Selector | None = None
    label_keys_to_copy: tuple[str, ...] = ()
    annotation_keys_to_copy: tuple[str, ...] = ()
    keep_deactivated: Nanoseconds | None = None  # None: for ever
    lifecycle: LifecycleOptions = msgspec.field(default_factory=LifecycleOptions)
    validation: ValidationGates = msgspec.field(default_factory=ValidationGates)

    assign_queue_labels: bool = True
    default_priority_class: bool = True
    defer_ray_service_finalization: bool = True
    elastic: bool = True
    fast_quota_release: bool = False
    finish_orphaned: bool = True
    identifier_annotations: bool = True
    immutable_group_size: bool = True
    partial_admission: bool = True
    reclaimable_pods: bool = True
    selector_always_respected: bool = False
    short_names: bool = False
    skip_ancestors_of_deleted: bool = True
    strict_finalizers: bool = True
    topology: bool = True
    validate_group_owner: bool = True
    validate_ray_and_spark_updates: bool = True
    workload_hints: bool = False

    @classmethod
    def of(
        cls,
        configuration: config.Configuration,
        gates: Mapping[str, bool],
        pod_namespaces: meta.LabelSelector | None = None,
    ) -> IntegrationOptions:
        integrations = configuration.integrations or config.Integrations()
        retention = configuration.object_retention_policies
        kept = retention.workloads.after_deactivated_by_kueue if retention and retention.workloads else None
        measured = _read_from_workloads(configuration) if gates["CustomMetricLabels"] else ()
        label_keys = (row.source_label_key or row.name for row in measured if not row.source_annotation_key)
        annotation_keys = (row.source_annotation_key for row in measured if row.source_annotation_key)
        return cls(
            frameworks=integrations.frameworks,
            external=frozenset(_external(name) for name in integrations.external_frameworks),
            manage_without_queue=bool(configuration.manage_jobs_without_queue_name),
            namespaces=selectors.compile(configuration.managed_jobs_namespace_selector),
            pod_namespaces=None if pod_namespaces is None else selectors.compile(pod_namespaces),
            label_keys_to_copy=tuple(dict.fromkeys((*integrations.label_keys_to_copy, *label_keys))),
            annotation_keys_to_copy=tuple(dict.fromkeys(annotation_keys)),
            keep_deactivated=None if kept is None else meta.parse_duration(kept),
            lifecycle=LifecycleOptions.of(configuration, gates),
            validation=msgspec.convert(dict(gates), ValidationGates),
            **{name: gates[gate] for name, gate in GATES.items()},
        )


def _read_from_workloads(configuration: config.Configuration) -> tuple[config.CustomMetricLabel, ...]:
    """The labels of metrics whose values are read from Workloads, which have them from their jobs."""
    rows = configuration.metrics.custom_labels if configuration.metrics else ()
    return tuple(row for row in rows if row.source_kind == config.MetricLabelSource.WORKLOAD)


def _external(name: str) -> tuple[str, str]:
    """`Kind.version.group` as (apiVersion, kind)."""
    kind, _, rest = name.partition(".")
    version, _, group = rest.partition(".")
    return (f"{group}/{version}" if group else version, kind)
