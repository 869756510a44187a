"""The feature gates that validation depends on, as one frozen value; rules read no other source."""

from __future__ import annotations

import msgspec


class ValidationGates(msgspec.Struct, frozen=True, rename="pascal"):
    """The values of the gates. `msgspec.convert(all_gates, ValidationGates)` reads them from a mapping by name."""

    admission_gated_by: bool = True
    concurrent_admission: bool = False
    cluster_queue_exclude_resource_prefixes: bool = False
    elastic_jobs_via_workload_slices: bool = True
    partial_admission: bool = True
    planned_backfill: bool = False
    priority_boost: bool = False
    reject_updates_to_cq_with_invalid_on_flavors: bool = msgspec.field(
        default=False, name="RejectUpdatesToCQWithInvalidOnFlavors"
    )
    tas_multi_layer_topology: bool = msgspec.field(default=True, name="TASMultiLayerTopology")
    tas_validate_workload_slice_size: bool = msgspec.field(default=True, name="TASValidateWorkloadSliceSize")
    topology_aware_scheduling: bool = True
    workload_identifier_annotations: bool = True
    workload_validate_resources_are_non_negative: bool = True
    workload_validation_for_pod_set_metadata: bool = True
