"""The kind `QuotaSchedule` of `pykueue.io/v1alpha1`: quota that differs from the spec in windows of time."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from kubemachinery.fields import Field, Int64, Label, Quantity, Subdomain, Time, ValidationRule, always, required
from kubemachinery.meta import ApiStruct, ObjectMeta
from pykueue.api import extensions
from pykueue.api.extensions import Duration, TimeZone
from pykueue.api.kube import ApiVersion, KindName, Metadata
from pykueue.api.kueue import Conditions

WINDOWS_MAX = 64
TARGETS_MAX = 128
# The most entries of `status.effectiveQuotas` and of `status.overcommitted`.
STATUS_ENTRIES_MAX = 256


class ScheduleApproach(StrEnum):
    """What happens before a window that lowers quota."""

    IGNORE = "Ignore"
    END_BEFORE = "EndBefore"


class ScheduleOnStart(StrEnum):
    """What happens at the start of a window that lowers quota below the usage."""

    KEEP = "Keep"
    EVICT = "Evict"


class QuotaWindow(ApiStruct, frozen=True):
    """A span of time, once or repeated."""

    RULES: ClassVar = (
        ValidationRule(
            "has(self.cron) == has(self.duration) && has(self.start) == has(self.end)"
            " && has(self.cron) != has(self.start)",
            "a window has either cron and duration, or start and end",
        ),
    )

    name: Annotated[Label, Field("The name of the window, unique in the schedule.", min_length=1)] = required(str)
    cron: Annotated[
        str | None,
        Field(
            "When a repeated window begins: the five fields of cron, by the clock of `timeZone`. A start in an hour"
            " that is skipped when clocks go forward is moved to the end of that hour; a start in an hour that is"
            " repeated when clocks go back happens once.",
            min_length=1,
            max_length=128,
        ),
    ] = None
    duration: Annotated[Duration | None, Field("How long a repeated window lasts, in elapsed time, such as `2h`.")] = (
        None
    )
    start: Annotated[Time | None, Field("When a single window begins, RFC 3339.")] = None
    end: Annotated[Time | None, Field("When a single window ends, RFC 3339. It is not part of the window.")] = None


class ScheduledResource(ApiStruct, frozen=True):
    """The quota of one resource in the windows."""

    RULES: ClassVar = (
        ValidationRule(
            "has(self.nominalQuota) || has(self.change) || has(self.borrowingLimit) || has(self.lendingLimit)",
            "needs nominalQuota, change, borrowingLimit or lendingLimit",
        ),
        ValidationRule("!(has(self.nominalQuota) && has(self.change))", "nominalQuota and change exclude each other"),
    )

    name: Annotated[str, Field("The resource, such as `cpu` or `nvidia.com/gpu`.", min_length=1, max_length=316)] = (
        required(str)
    )
    nominal_quota: Annotated[
        Quantity | None,
        Field("The nominal quota in the windows, instead of that of the spec. It must not be negative."),
    ] = None
    change: Annotated[
        Quantity | None,
        Field("An amount that is added to the nominal quota in the windows; negative lowers it, never below 0."),
    ] = None
    borrowing_limit: Annotated[
        Quantity | None, Field("The borrowing limit in the windows. It must not be negative.")
    ] = None
    lending_limit: Annotated[Quantity | None, Field("The lending limit in the windows. It must not be negative.")] = (
        None
    )


class ScheduledFlavor(ApiStruct, frozen=True):
    """The quotas of one flavor in the windows."""

    name: Annotated[Subdomain, Field("The ResourceFlavor. The target must declare it.", min_length=1)] = required(str)
    resources: Annotated[
        tuple[ScheduledResource, ...],
        Field(
            "The resources whose quota differs. The target must declare them.",
            min_items=1,
            max_items=16,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = required(tuple)


class QuotaTarget(ApiStruct, frozen=True):
    """A ClusterQueue or a Cohort whose quota differs in the windows."""

    RULES: ClassVar = (
        ValidationRule("has(self.clusterQueue) != has(self.cohort)", "needs either clusterQueue or cohort"),
    )

    cluster_queue: Annotated[Subdomain | None, Field("The ClusterQueue.", min_length=1)] = None
    cohort: Annotated[Subdomain | None, Field("The Cohort.", min_length=1)] = None
    flavors: Annotated[
        tuple[ScheduledFlavor, ...],
        Field(
            "The flavors whose quota differs.",
            min_items=1,
            max_items=16,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = required(tuple)


class QuotaScheduleSpec(ApiStruct, frozen=True):
    """When quota differs, where, and how it comes into force."""

    time_zone: Annotated[
        TimeZone,
        Field("The time zone of `cron`, a name of the IANA database such as `Europe/Berlin`.", default="UTC"),
    ] = "UTC"
    windows: Annotated[
        tuple[QuotaWindow, ...],
        Field(
            "When the quotas differ. In every one of the windows all targets apply. Windows may overlap and touch.",
            min_items=1,
            max_items=WINDOWS_MAX,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = required(tuple)
    targets: Annotated[
        tuple[QuotaTarget, ...],
        Field(
            "The ClusterQueues and Cohorts whose quota differs. Their specs are never written.",
            min_items=1,
            max_items=TARGETS_MAX,
            list_type="atomic",
        ),
    ] = required(tuple)
    approach: Annotated[
        str,
        Field(
            "What happens before quota is lowered: at the start of a window, or at the end of one that raises it."
            " `Ignore`: Workloads are admitted as if that did not come. `EndBefore`: a Workload that would then still"
            " hold what is taken is not admitted; one without a limit on its run time counts as holding it for ever.",
            enum=ScheduleApproach,
            default="Ignore",
        ),
    ] = ScheduleApproach.IGNORE
    on_start: Annotated[
        str,
        Field(
            "What happens at the start of a window that lowers quota below the usage. `Keep`: admitted Workloads"
            " continue above the quota. `Evict`: as few as needed are evicted, with the reason QuotaWithdrawn.",
            enum=ScheduleOnStart,
            default="Keep",
        ),
    ] = ScheduleOnStart.KEEP
    notice: Annotated[
        Duration | None,
        Field("With `onStart: Evict`, how long before the start the Workloads that would be evicted get an Event."),
    ] = None


class NextWindow(ApiStruct, frozen=True):
    """The next window."""

    window: Annotated[str, Field("Its name.")] = required(str)
    at: Annotated[Time, Field("When it begins.")] = required(str)


class EffectiveQuota(ApiStruct, frozen=True):
    """The quota of one flavor and resource of a target, as it counts now."""

    cluster_queue: Annotated[str | None, Field("The ClusterQueue.")] = None
    cohort: Annotated[str | None, Field("The Cohort.")] = None
    flavor: Annotated[str, Field("The ResourceFlavor.")] = required(str)
    resource: Annotated[str, Field("The resource.")] = required(str)
    nominal_quota: Annotated[Quantity, Field("The nominal quota that counts now.")] = required(int)
    borrowing_limit: Annotated[Quantity | None, Field("The borrowing limit that counts now; absent: none.")] = None
    lending_limit: Annotated[Quantity | None, Field("The lending limit that counts now; absent: none.")] = None


class OvercommittedQuota(ApiStruct, frozen=True):
    """A flavor and resource of a ClusterQueue in use above what a window in force leaves."""

    cluster_queue: Annotated[str, Field("The ClusterQueue.")] = required(str)
    flavor: Annotated[str, Field("The ResourceFlavor.")] = required(str)
    resource: Annotated[str, Field("The resource.")] = required(str)
    used: Annotated[Quantity, Field("The usage.")] = required(int)
    available: Annotated[Quantity, Field("The usage that the quota in force allows.")] = required(int)


class QuotaScheduleStatus(ApiStruct, frozen=True):
    """The windows in force and the next one, and what counts now."""

    conditions: Annotated[
        Conditions, Field("`Ready`: whether the schedule is applied, and if not or not all of it, why.")
    ] = ()
    observed_generation: Annotated[Int64, Field("The generation of the spec that this status describes.")] = 0
    active: Annotated[tuple[str, ...], Field("The windows in force.", max_items=WINDOWS_MAX, list_type="set")] = ()
    next: Annotated[NextWindow | None, Field("The next window within 14 days.")] = None
    effective_quotas: Annotated[
        tuple[EffectiveQuota, ...],
        Field(
            "The quotas of the targets as they count now, with all schedules; the first 256.",
            max_items=STATUS_ENTRIES_MAX,
            list_type="atomic",
        ),
    ] = ()
    overcommitted: Annotated[
        tuple[OvercommittedQuota, ...],
        Field("Targets in use above their quota of now.", max_items=STATUS_ENTRIES_MAX, list_type="atomic"),
    ] = ()


class QuotaSchedule(ApiStruct, frozen=True):
    """Quota that is different in windows of time: nights, maintenance, advance reservations. The specs of the
    ClusterQueues and Cohorts are not changed. It has an effect while the gate QuotaCalendar is on."""

    api_version: ApiVersion = always(extensions.API_VERSION)
    kind: KindName = always("QuotaSchedule")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[QuotaScheduleSpec, Field("When quota differs, where and how.")] = QuotaScheduleSpec()
    status: Annotated[QuotaScheduleStatus, Field("The windows in force, and what counts now.")] = QuotaScheduleStatus()
