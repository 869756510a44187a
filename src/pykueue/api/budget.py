"""The kind `Budget` of `pykueue.io/v1alpha1`: resource hours that a group may use in a period."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from kubemachinery.fields import Field, Int32, Int64, Quantity, Time, always, required
from kubemachinery.meta import ApiStruct, ObjectMeta
from pykueue.api import extensions
from pykueue.api.extensions import TimeZone
from pykueue.api.kube import ApiVersion, KindName, Metadata
from pykueue.api.kueue import Conditions

# The `controllerName` of AdmissionChecks that ask about a Budget.
CONTROLLER: Final = "pykueue.io/budget"

AMOUNTS_MAX: Final = 16
OVERRIDES_MAX: Final = 1024
# How many groups `status.groups` and the metric show: those that have used most of their limit.
GROUPS_SHOWN: Final = 100

_PERCENT: Final = r"^[0-9]{1,3}%$"
_WEIGHT: Final = r"^[0-9]{1,6}(\.[0-9]{1,3})?$"


class BudgetEvery(StrEnum):
    """The length of a period, which begins at local midnight: a week on Monday, a quarter on the first of January,
    April, July or October."""

    DAY = "Day"
    WEEK = "Week"
    MONTH = "Month"
    QUARTER = "Quarter"
    YEAR = "Year"


class BudgetPer(StrEnum):
    """What the hours are counted for."""

    TOTAL = "Total"
    CLUSTER_QUEUE = "ClusterQueue"
    LOCAL_QUEUE = "LocalQueue"
    NAMESPACE = "Namespace"
    USER = "User"


class BudgetOverdraft(StrEnum):
    """What becomes of hours beyond the limit in the next period."""

    CARRY = "Carry"
    FORGIVE = "Forgive"


class BudgetAdmit(StrEnum):
    """Which Workloads are admitted while hours are left."""

    WHILE_LEFT = "WhileLeft"
    ONLY_IF_IT_FITS = "OnlyIfItFits"


class BudgetWhenSpent(StrEnum):
    """What happens to admitted Workloads when the hours are spent."""

    LET_RUN = "LetRun"
    EVICT = "Evict"


class BudgetHours(ApiStruct, frozen=True):
    """The limit of one resource for one group."""

    resource: Annotated[
        str,
        Field("The resource; it must be one of `spec.amounts`.", min_length=1, max_length=316),
    ] = required(str)
    hours: Annotated[Quantity, Field("The hours of the resource in a period. It must not be negative.")] = required(int)


class BudgetAmount(ApiStruct, frozen=True):
    """The limit of one resource, and how its flavors count."""

    resource: Annotated[
        str,
        Field("The resource, such as `nvidia.com/gpu` or `cpu`, as quota counts it.", min_length=1, max_length=316),
    ] = required(str)
    hours: Annotated[
        Quantity,
        Field(
            "The hours of the resource that each group may use in a period: 500 are 500 GPUs for an hour, or one GPU"
            " for 500 hours. It must not be negative, and has at most three decimals."
        ),
    ] = required(int)
    weights: Annotated[
        dict[str, Annotated[str, Field(pattern=_WEIGHT, max_length=10)]],
        Field(
            "How an hour in a flavor counts, by ResourceFlavor, with at most three decimals; 1 for a flavor that is not"
            " named.",
            max_properties=64,
        ),
    ] = {}


class BudgetOverride(ApiStruct, frozen=True):
    """Other limits for one group."""

    group: Annotated[
        str,
        Field(
            "The group, by `spec.per`: a ClusterQueue, `NAMESPACE/LOCALQUEUE`, a namespace, a user, or `total`.",
            min_length=1,
            max_length=512,
        ),
    ] = required(str)
    amounts: Annotated[
        tuple[BudgetHours, ...],
        Field(
            "The limits of the group; a resource that is not named keeps that of `spec.amounts`.",
            min_items=1,
            max_items=AMOUNTS_MAX,
            list_type="map",
            list_map_keys=("resource",),
        ),
    ] = required(tuple)


class BudgetRollover(ApiStruct, frozen=True):
    """What a period leaves to the next one."""

    unspent_up_to: Annotated[
        str,
        Field(
            "How much of what is not spent is added to the next period, at most, as a share of the limit: `25%`.",
            pattern=_PERCENT,
            default="0%",
        ),
    ] = "0%"
    overdraft: Annotated[
        str,
        Field(
            "What becomes of hours beyond the limit. `Carry`: they are taken from the next period. `Forgive`: they are"
            " not.",
            enum=BudgetOverdraft,
            default="Carry",
        ),
    ] = BudgetOverdraft.CARRY


class BudgetSpec(ApiStruct, frozen=True):
    """Who may use how much in which period."""

    every: Annotated[
        str,
        Field(
            "The length of a period. Periods begin at midnight in `timeZone`; weeks begin on Monday.", enum=BudgetEvery
        ),
    ] = required(str)
    time_zone: Annotated[
        TimeZone,
        Field("The time zone of the periods, a name of the IANA database such as `Europe/Berlin`.", default="UTC"),
    ] = "UTC"
    per: Annotated[
        str,
        Field(
            "What the hours are counted for: each LocalQueue, namespace, user or ClusterQueue has the limit for"
            " itself, or all Workloads have it together (`Total`). The user is that of the history; Workloads without"
            " one are the group `(unknown)`.",
            enum=BudgetPer,
            default="Total",
        ),
    ] = BudgetPer.TOTAL
    amounts: Annotated[
        tuple[BudgetAmount, ...],
        Field(
            "The limits of each group.",
            min_items=1,
            max_items=AMOUNTS_MAX,
            list_type="map",
            list_map_keys=("resource",),
        ),
    ] = required(tuple)
    overrides: Annotated[
        tuple[BudgetOverride, ...],
        Field("Other limits for some groups.", max_items=OVERRIDES_MAX, list_type="map", list_map_keys=("group",)),
    ] = ()
    rollover: Annotated[
        BudgetRollover, Field("What a period leaves to the next one. Absent: hours beyond the limit are carried.")
    ] = BudgetRollover()
    warn_at: Annotated[
        tuple[Annotated[Int32, Field(minimum=1, maximum=99)], ...],
        Field(
            "At which percentages of the limit an Event is emitted, once for each group and period; 80 where it is"
            " absent.",
            max_items=8,
            list_type="set",
        ),
    ] = (80,)
    admit: Annotated[
        str,
        Field(
            "Which Workloads are admitted. `WhileLeft`: all, until the limit is reached. `OnlyIfItFits`: those whose"
            " time limit, with those of all admitted Workloads, fits into the rest; a Workload without a time limit is"
            " rejected.",
            enum=BudgetAdmit,
            default="WhileLeft",
        ),
    ] = BudgetAdmit.WHILE_LEFT
    when_spent: Annotated[
        str,
        Field(
            "What happens to admitted Workloads when the limit is reached. `LetRun`: they continue. `Evict`: they are"
            " evicted and requeued for the next period.",
            enum=BudgetWhenSpent,
            default="LetRun",
        ),
    ] = BudgetWhenSpent.LET_RUN


class BudgetGroupStatus(ApiStruct, frozen=True):
    """What one group has used of one resource in the present period."""

    group: Annotated[str, Field("The group.")] = required(str)
    resource: Annotated[str, Field("The resource.")] = required(str)
    spent: Annotated[str, Field("The hours that were used in this period, at `status.observedAt`.")] = required(str)
    limit: Annotated[str, Field("The limit of this period, with what was carried into it.")] = required(str)
    per_hour: Annotated[str, Field("The hours that admitted Workloads use in an hour.")] = required(str)
    percent: Annotated[Int64, Field("The share of the limit that is spent.")] = 0
    spent_at: Annotated[
        Time | None, Field("When the limit is or was reached at this rate; absent: not in this period.")
    ] = None
    warned: Annotated[
        Int32 | None, Field("The highest percentage of `spec.warnAt`, or 100, that an Event was emitted for.")
    ] = None


class BudgetStatus(ApiStruct, frozen=True):
    """The present period."""

    conditions: Annotated[Conditions, Field("`Ready`: whether the accounts are known, and if not, why.")] = ()
    observed_generation: Annotated[Int64, Field("The generation of the spec that this status describes.")] = 0
    observed_at: Annotated[Time | None, Field("When the amounts were computed.")] = None
    period_start: Annotated[Time | None, Field("When the present period began.")] = None
    period_end: Annotated[Time | None, Field("When the present period ends.")] = None
    groups: Annotated[
        tuple[BudgetGroupStatus, ...],
        Field(
            "The groups that have used the largest share of their limit; 100 at most.",
            max_items=GROUPS_SHOWN,
            list_type="atomic",
        ),
    ] = ()


class Budget(ApiStruct, frozen=True):
    """Resource hours that a group may use in a period. An AdmissionCheck with the controllerName `pykueue.io/budget`
    that names a Budget admits Workloads only while hours are left. It needs the gate Budgets and a history."""

    api_version: ApiVersion = always(extensions.API_VERSION)
    kind: KindName = always("Budget")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[BudgetSpec, Field("Who may use how much in which period.")] = BudgetSpec()
    status: Annotated[BudgetStatus, Field("What is used in the present period.")] = BudgetStatus()
