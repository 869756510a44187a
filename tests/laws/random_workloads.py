"""Any Workload that can be read, and any world around it, for the laws of a life."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import MINUTE, SECOND, Nanoseconds
from pykueue.api import kueue, labels
from pykueue.api.conditions import (
    AdmittedReason,
    DeactivationReason,
    EvictedReason,
    PodsReadyReason,
    QuotaReservedReason,
    RequeuedReason,
    WorkloadCondition,
)
from pykueue.api.kube import PodResourceClaim, PodSpec, PodTemplateSpec
from pykueue.api.kueue import CheckState, StopPolicy
from pykueue.lifecycle.facts import (
    CheckFacts,
    ClusterQueueFacts,
    KnownFailure,
    LifecycleOptions,
    LocalQueueFacts,
    PodsReadyOptions,
    WorkloadFacts,
)

NOW: Nanoseconds = meta.parse_time("2026-03-01T12:00:00Z") + 250_000_000

REASONS = sorted(
    {
        word.value
        for words in (
            QuotaReservedReason,
            AdmittedReason,
            EvictedReason,
            RequeuedReason,
            PodsReadyReason,
            DeactivationReason,
        )
        for word in words
    }
    | {"", "SomethingElse"}
)
CHECKS = ("a", "b", "c")
FLAVORS = ("one", "two")

# Around now, long ago, in the future, and what is no time at all.
moments = st.one_of(
    st.integers(-7200, 7200).map(lambda seconds: meta.format_time(NOW + seconds * SECOND)),
    st.sampled_from(["", "yesterday", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z"]),
)
maybe_moments = st.none() | moments
messages = st.sampled_from(["", "because", "x" * 40_000])


_STATUSES = st.sampled_from(["True", "False", "Unknown", "", "Perhaps"]) | st.just("True")


def _condition(types: st.SearchStrategy[str], statuses: st.SearchStrategy[str]) -> st.SearchStrategy[meta.Condition]:
    return st.builds(
        meta.Condition,
        type=types,
        status=statuses,
        reason=st.sampled_from(REASONS),
        message=messages,
        last_transition_time=moments,
        observed_generation=st.integers(0, 2),
    )


def _conditions(
    types: st.SearchStrategy[str], statuses: st.SearchStrategy[str] = _STATUSES
) -> st.SearchStrategy[tuple[meta.Condition, ...]]:
    return st.lists(_condition(types, statuses), max_size=6, unique_by=lambda found: found.type).map(tuple)


check_states = st.lists(
    st.builds(
        kueue.AdmissionCheckState,
        name=st.sampled_from(CHECKS),
        state=st.sampled_from([*CheckState, "", "Perhaps"]).map(str),
        last_transition_time=moments,
        message=messages,
        requeue_after_seconds=st.none() | st.sampled_from([-5, 0, 5, 3600, 2**31 - 1]),
        retry_count=st.none() | st.integers(0, 3),
    ),
    max_size=3,
    unique_by=lambda check: check.name,
).map(tuple)

admissions = st.builds(
    kueue.Admission,
    cluster_queue=st.sampled_from(["cq", ""]),
    pod_set_assignments=st.lists(
        st.builds(
            kueue.PodSetAssignment,
            name=st.just("main"),
            flavors=st.dictionaries(st.just("cpu"), st.sampled_from(FLAVORS)),
            delayed_topology_request=st.sampled_from([None, "Pending", "Ready"]),
        ),
        max_size=1,
    ).map(tuple),
)

statuses = st.builds(
    kueue.WorkloadStatus,
    conditions=_conditions(st.sampled_from([*WorkloadCondition, "TheirOwn"]).map(str)),
    admission=st.none() | admissions,
    requeue_state=st.none()
    | st.builds(kueue.RequeueState, count=st.none() | st.integers(0, 2**31 - 1), requeue_at=maybe_moments),
    admission_checks=check_states,
    admission_checks_conditions=_conditions(st.sampled_from([*CHECKS, "unheard-of"])),
    accumulated_past_execution_time_seconds=st.none() | st.sampled_from([-1, 0, 50, 2**31 - 1]),
    scheduling_stats=st.none()
    | st.just(
        kueue.SchedulingStats(
            evictions=(kueue.WorkloadSchedulingStatsEviction(reason="Preempted", underlying_cause="", count=1),)
        )
    ),
    nominated_cluster_names=st.sampled_from([(), ("west",)]),
    unhealthy_nodes=st.sampled_from([(), (kueue.UnhealthyNode(name="n1"),)]),
    preemption_gates=st.lists(
        st.builds(
            kueue.PreemptionGateState,
            name=st.sampled_from(["g1", "g2"]),
            position=st.sampled_from(["Open", "Closed"]),
            last_transition_time=moments,
        ),
        max_size=2,
        unique_by=lambda gate: gate.name,
    ).map(tuple),
)

metadatas = st.builds(
    meta.ObjectMeta,
    name=st.just("w"),
    namespace=st.just("ns"),
    generation=st.integers(0, 3),
    creation_timestamp=maybe_moments,
    deletion_timestamp=st.none() | st.none() | moments,
    labels=st.sampled_from([{}, {}, {labels.JOB_UID: "u1"}]),
    annotations=st.sampled_from([{}, {}, {labels.ADMISSION_GATED_BY: "x/y"}, {labels.ADMISSION_GATED_BY: ""}]),
    finalizers=st.sampled_from(
        [(), (labels.RESOURCE_IN_USE_FINALIZER,), ("their/own", labels.RESOURCE_IN_USE_FINALIZER)]
    ),
    owner_references=st.sampled_from(
        [(), (meta.OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="u1"),)]
    ),
)

PLAIN = kueue.PodSet(name="main", count=3)
CLAIMING = kueue.PodSet(
    name="main", template=PodTemplateSpec(spec=PodSpec(resource_claims=(PodResourceClaim(name="gpu"),)))
)


def _specs(active: st.SearchStrategy[bool]) -> st.SearchStrategy[kueue.WorkloadSpec]:
    return st.builds(
        kueue.WorkloadSpec,
        pod_sets=st.sampled_from([(), (PLAIN,), (PLAIN,), (CLAIMING,)]),
        queue_name=st.sampled_from(["lq", ""]),
        active=active,
        maximum_execution_time_seconds=st.none() | st.sampled_from([1, 100, 2**31 - 1]),
        preemption_gates=st.sampled_from([(), (kueue.PreemptionGate(name="g1"),)]),
    )


workloads = st.builds(kueue.Workload, metadata=metadatas, spec=_specs(st.booleans() | st.just(True)), status=statuses)

# Active and admitted, and the status has nothing beside it but whether their pods are ready.
running_workloads = st.builds(
    kueue.Workload,
    metadata=metadatas,
    spec=_specs(st.just(True)),
    status=st.builds(
        replace,
        statuses,
        conditions=st.builds(
            lambda reserved, admitted, ready: (reserved, admitted, *ready),
            _condition(st.just("QuotaReserved"), st.just("True")),
            _condition(st.just("Admitted"), st.just("True")),
            _conditions(st.just("PodsReady"), st.sampled_from(["True", "False"])),
        ),
        admission=admissions,
        requeue_state=st.none(),
        admission_checks=st.just(()),
        admission_checks_conditions=st.just(()),
    ),
)

# Active, and the status has nothing but that they are pending.
waiting_workloads = st.builds(
    kueue.Workload,
    metadata=metadatas,
    spec=_specs(st.just(True)),
    status=st.builds(
        replace,
        statuses,
        conditions=_conditions(st.sampled_from(["QuotaReserved", "Admitted"]), st.just("False")),
        admission=st.none(),
        requeue_state=st.none(),
        admission_checks=st.just(()),
        admission_checks_conditions=st.just(()),
    ),
)

stop_policies = st.sampled_from([StopPolicy.NONE, StopPolicy.NONE, *StopPolicy])

facts = st.builds(
    WorkloadFacts,
    local_queue=st.none() | st.builds(LocalQueueFacts, is_deleting=st.booleans(), stop_policy=stop_policies),
    cluster_queue=st.none()
    | st.builds(
        ClusterQueueFacts,
        name=st.just("cq"),
        is_deleting=st.booleans(),
        stop_policy=stop_policies,
        is_active=st.booleans(),
        flavors=st.just(frozenset(FLAVORS)),
        checks=st.lists(
            st.builds(
                CheckFacts,
                name=st.sampled_from(CHECKS),
                on_flavors=st.frozensets(st.sampled_from(FLAVORS)),
                retry_delay_minutes=st.sampled_from([0, 1, 15, 2**62]),
                defers_preemption=st.booleans(),
            ),
            max_size=3,
            unique_by=lambda check: check.name,
        ).map(tuple),
    ),
    problem=st.sampled_from(["", "", "the namespace is not selected"]),
    known_failure=st.none() | st.just(KnownFailure(QuotaReservedReason.WAITING_FOR_QUOTA)),
    reservation_holds=st.sampled_from([None, True, False]),
    is_variant=st.booleans(),
)

options = st.builds(
    LifecycleOptions,
    pods_ready=st.none()
    | st.builds(
        PodsReadyOptions,
        timeout=st.sampled_from([0, MINUTE, 30 * MINUTE]),
        recovery_timeout=st.sampled_from([0, MINUTE]),
        backoff_limit_count=st.sampled_from([None, 0, 2]),
        backoff_base_seconds=st.sampled_from([0, 60, 2**31 - 1]),
        backoff_max_seconds=st.sampled_from([0, 3600]),
    ),
    keep_finished=st.sampled_from([None, 0, MINUTE]),
    observability=st.booleans(),
    explicit_status=st.booleans(),
    admission_gated_by=st.booleans(),
    finish_orphaned=st.booleans(),
    orchestrated_preemption=st.booleans(),
    dynamic_resources=st.booleans(),
    refuse_claims=st.booleans(),
)
