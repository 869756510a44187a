"""The kinds of `kueue.x-k8s.io/v1beta2`: one declaration for each field.

Type, description, default, limits and rules of a field are declared together, and the rest is derived: the CRDs (with
the text that `kubectl explain` shows), defaulting, structural validation, the reference pages. The differences of
v1beta1 are in the table `kueue_v1beta1`.

A field that the API requires has the default `required(…)`. Absent text reads as "" where the API does not distinguish
the two, and as None where it does. A field with an API default reads as that default when absent. Enum values are plain
text, so that an unknown value of a later version does not prevent decoding; validation reports it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final, TypeAlias

from kubemachinery.fields import (
    IMMUTABLE,
    LABEL_PATTERN,
    QUALIFIED_PATTERN,
    Field,
    Int32,
    Int64,
    Label,
    Quantity,
    Subdomain,
    Time,
    ValidationRule,
    always,
    required,
)
from kubemachinery.meta import ApiStruct, Condition, LabelSelector, ObjectMeta
from pykueue.api.kube import (
    TAINT_RULES,
    TOLERATION_RULES,
    ApiVersion,
    KindName,
    Labels,
    Metadata,
    PodTemplateSpec,
    ResourceList,
    Taint,
    Toleration,
)

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
# The aggregated API of pending Workloads; the preferred version first, and the versions are identical.
VISIBILITY_GROUP: Final = "visibility.kueue.x-k8s.io"
VISIBILITY_VERSIONS: Final = ("v1beta2", "v1beta1")

CheckName: TypeAlias = Annotated[str, Field(min_length=1, max_length=316)]
ClusterName: TypeAlias = Annotated[str, Field(max_length=256)]
LevelName: TypeAlias = Annotated[str, Field(max_length=63)]
NodeLabelKey: TypeAlias = Annotated[str, Field(max_length=317)]
PodSetName: TypeAlias = Label

Conditions: TypeAlias = Annotated[tuple[Condition, ...], Field(max_items=16, list_type="map", list_map_keys=("type",))]
Tolerations: TypeAlias = Annotated[
    tuple[Toleration, ...], Field(max_items=8, list_type="atomic", rules=TOLERATION_RULES)
]
Taints: TypeAlias = Annotated[tuple[Taint, ...], Field(max_items=8, list_type="atomic", rules=TAINT_RULES)]

# The list has no duplicates. For lists with significant order, which the list type `set` would lose.
UNIQUE: Final = ValidationRule("self.all(x, self.exists_one(y, y == x))", "the entries must differ from each other")


# --- Quota: what ClusterQueues and Cohorts share ----------------------------------------------------------------------


class ResourceQuota(ApiStruct, frozen=True):
    """How much of one resource there is in one flavor, and how much of it may be borrowed and lent."""

    name: Annotated[str, Field("The resource, such as `cpu` or `nvidia.com/gpu`.")] = required(str)
    nominal_quota: Annotated[
        Quantity,
        Field(
            "The amount that is here to use at any time, before borrowing and lending. In a ClusterQueue it is the"
            " amount that Workloads can always get back from borrowers when preemption allows it; in a Cohort it is"
            " added to what its members bring. It must not be negative."
        ),
    ] = required(int)
    borrowing_limit: Annotated[
        Quantity | None,
        Field(
            "The most that may be used on top of the nominal quota, taken from what the rest of the cohort leaves"
            " unused. Absent means no limit of its own; 0 means no borrowing. It needs a cohort (or, in a Cohort, a"
            " parent)."
        ),
    ] = None
    lending_limit: Annotated[
        Quantity | None,
        Field(
            "The most of the nominal quota that others in the cohort may borrow while it is unused here. Absent means"
            " all of it; 0 keeps everything for this queue. It needs a cohort (or, in a Cohort, a parent)."
        ),
    ] = None


class FlavorQuotas(ApiStruct, frozen=True):
    """The quotas of one flavor, for every resource of its group."""

    name: Annotated[Subdomain, Field("The ResourceFlavor. A flavor belongs to one group of a queue only.")] = required(
        str
    )
    resources: Annotated[
        tuple[ResourceQuota, ...],
        Field(
            "One quota for each resource that the group covers, in the same order as `coveredResources`.",
            min_items=1,
            max_items=64,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = required(tuple)


class ResourceGroup(ApiStruct, frozen=True):
    """Resources that come together from the same flavor, and the flavors that provide them."""

    RULES: ClassVar = (
        ValidationRule(
            "self.flavors.all(flavor, size(flavor.resources) == size(self.coveredResources))",
            "every flavor must give a quota for each of the covered resources, and for nothing else",
        ),
    )

    covered_resources: Annotated[
        tuple[str, ...],
        Field(
            "The resources that this group provides, such as `cpu` and `memory`. Pods of a Workload get all of them"
            " from one flavor. A resource belongs to one group of a queue only.",
            min_items=1,
            max_items=64,
            list_type="atomic",
        ),
    ] = required(tuple)
    flavors: Annotated[
        tuple[FlavorQuotas, ...],
        Field(
            "The flavors that provide these resources, in the order in which they are tried.",
            min_items=1,
            max_items=64,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = required(tuple)


class FairSharing(ApiStruct, frozen=True):
    """How much weight one has when unused quota is shared."""

    weight: Annotated[
        Quantity,
        Field(
            "How large a share of what can be borrowed is due here, in proportion to the weights of the others. A"
            " weight of 2 is due twice as much as a weight of 1; a weight of 0 is due nothing and always comes last."
            " Otherwise it must be greater than 1e-9.",
            default=1,
        ),
    ] = 1


class FairSharingStatus(ApiStruct, frozen=True):
    """The share in use now."""

    weighted_share: Annotated[
        Int64,
        Field(
            "The share of borrowed quota divided by the weight, in thousandths: for the resource of which most is"
            " borrowed, the amount above nominal quota against what the cohort could lend. 0 means nothing is"
            " borrowed; the largest 64-bit number means that something is borrowed at weight 0."
        ),
    ] = required(int)


class AdmissionFairSharingStatus(ApiStruct, frozen=True):
    """What was used over time, with older use counting less."""

    consumed_resources: Annotated[
        ResourceList, Field("Use of each resource over time; it fades by half in every configured half-life.")
    ] = required(dict)
    last_update: Annotated[Time, Field("When the figures were last brought up to date.")] = required(str)


class StopPolicy(StrEnum):
    """Whether a queue takes on work."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


# --- ClusterQueue -----------------------------------------------------------------------------------------------------


class QueueingStrategy(StrEnum):
    """Whether a Workload that does not fit holds up those behind it."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class FlavorFungibilityPolicy(StrEnum):
    """Whether a flavor that could do ends the search."""

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FlavorFungibilityPreference(StrEnum):
    """Which of two evils is the smaller, when no flavor fits without."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


class PreemptionPolicy(StrEnum):
    """Which Workloads may be preempted."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


class BorrowWithinCohortPolicy(StrEnum):
    """Whether one may displace Workloads of the cohort and borrow at the same time."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


class AdmissionMode(StrEnum):
    """Whether past use of a LocalQueue counts when the next Workload is chosen."""

    USAGE_BASED = "UsageBasedAdmissionFairSharing"
    NONE = "NoAdmissionFairSharing"


class ConcurrentAdmissionMigrationMode(StrEnum):
    """What happens to a Workload that was admitted while a better flavor was still being tried."""

    TRY_PREFERRED_FLAVORS = "TryPreferredFlavors"
    RETAIN_FIRST_ADMISSION = "RetainFirstAdmission"


class FlavorFungibility(ApiStruct, frozen=True):
    """When to be content with a flavor and when to look at the next one."""

    RULES: ClassVar = (
        ValidationRule(
            "!has(self.preference) ||"
            " (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            "preference needs both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
    )

    when_can_borrow: Annotated[
        str,
        Field(
            "What to do with a flavor in which the Workload fits by borrowing. `MayStopSearch` takes it;"
            " `TryNextFlavor` first looks for a flavor in which it fits without, and comes back if there is none.",
            enum=FlavorFungibilityPolicy,
            default="MayStopSearch",
        ),
    ] = "MayStopSearch"
    when_can_preempt: Annotated[
        str,
        Field(
            "What to do with a flavor in which the Workload fits by preempting others. `MayStopSearch` takes it;"
            " `TryNextFlavor` first looks for a flavor without preemption, and takes this one if there is none.",
            enum=FlavorFungibilityPolicy,
            default="TryNextFlavor",
        ),
    ] = "TryNextFlavor"
    preference: Annotated[
        str | None,
        Field(
            "Which flavor to take when none fits at once: one that needs borrowing (`BorrowingOverPreemption`, as"
            " without this field) or one that needs preemption (`PreemptionOverBorrowing`). Both policies above must"
            " be `TryNextFlavor`.",
            enum=FlavorFungibilityPreference,
        ),
    ] = None


class BorrowWithinCohort(ApiStruct, frozen=True):
    """Whether a Workload may preempt in the cohort although it borrows itself."""

    policy: Annotated[
        str,
        Field(
            "`Never`: a Workload that would have to borrow preempts none in other ClusterQueues. `LowerPriority`: it"
            " may preempt Workloads of lower priority there. Meant for classical preemption; fair sharing weighs"
            " shares instead.",
            enum=BorrowWithinCohortPolicy,
            default="Never",
        ),
    ] = "Never"
    max_priority_threshold: Annotated[
        Int32 | None,
        Field(
            "Workloads above this priority are safe from preemptors that borrow. Absent means that any priority below"
            " the preemptor's will do."
        ),
    ] = None


class ClusterQueuePreemption(ApiStruct, frozen=True):
    """Which Workloads pending Workloads of this ClusterQueue may preempt."""

    RULES: ClassVar = (
        ValidationRule(
            "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) ||"
            " self.borrowWithinCohort.policy == 'Never'",
            "borrowWithinCohort must be Never while reclaimWithinCohort is Never",
        ),
    )

    reclaim_within_cohort: Annotated[
        str,
        Field(
            "Whether a Workload that fits in this queue's nominal quota may preempt Workloads of other ClusterQueues"
            " of the cohort that use more than theirs: `Never`, those of `LowerPriority`, or `Any`.",
            enum=(PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
            default="Never",
        ),
    ] = "Never"
    borrow_within_cohort: Annotated[
        BorrowWithinCohort | None,
        Field("Whether a Workload may preempt in the cohort although it would borrow itself.", default={}),
    ] = None
    within_cluster_queue: Annotated[
        str,
        Field(
            "Whether a Workload that does not fit may preempt Workloads of its own ClusterQueue: `Never`, those of"
            " `LowerPriority`, or also those of equal priority that are newer than itself"
            " (`LowerOrNewerEqualPriority`).",
            enum=(
                PreemptionPolicy.NEVER,
                PreemptionPolicy.LOWER_PRIORITY,
                PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            ),
            default="Never",
        ),
    ] = "Never"


class AdmissionCheckStrategyRule(ApiStruct, frozen=True):
    """One AdmissionCheck, for all flavors or for some."""

    name: Annotated[CheckName, Field("The AdmissionCheck.")] = required(str)
    on_flavors: Annotated[
        tuple[Subdomain, ...],
        Field("The flavors of this queue that require the check. Empty means all.", max_items=64, list_type="set"),
    ] = ()


class AdmissionChecksStrategy(ApiStruct, frozen=True):
    """Which checks a Workload must pass after it has quota and before it starts."""

    admission_checks: Annotated[
        tuple[AdmissionCheckStrategyRule, ...],
        Field("The checks.", min_items=1, max_items=64, list_type="map", list_map_keys=("name",)),
    ] = required(tuple)


class AdmissionScope(ApiStruct, frozen=True):
    """The scope in which admission is shared fairly over time."""

    admission_mode: Annotated[
        str,
        Field(
            "`UsageBasedAdmissionFairSharing`: Workloads of LocalQueues that used less in the past come first."
            " `NoAdmissionFairSharing`: past use does not count.",
            enum=AdmissionMode,
        ),
    ] = required(str)


class ConcurrentAdmissionConstraints(ApiStruct, frozen=True):
    """Which flavors are worth a move."""

    last_acceptable_flavor_name: Annotated[
        Subdomain | None,
        Field(
            "The last flavor, in the order of the resource group, that a running Workload may move to. It needs the"
            " mode `TryPreferredFlavors`. Absent means any flavor before the one in use."
        ),
    ] = None


class ConcurrentAdmissionMigration(ApiStruct, frozen=True):
    """What happens when a better flavor becomes free later."""

    mode: Annotated[
        str,
        Field(
            "`TryPreferredFlavors`: go on trying flavors before the one in use and move there. `RetainFirstAdmission`:"
            " stay with the flavor that was free first.",
            enum=ConcurrentAdmissionMigrationMode,
            max_length=253,
        ),
    ] = required(str)
    constraints: Annotated[ConcurrentAdmissionConstraints | None, Field("Which flavors are worth a move.")] = None


class ConcurrentAdmissionPolicy(ApiStruct, frozen=True):
    """How a Workload is tried in several flavors at once."""

    migration: Annotated[
        ConcurrentAdmissionMigration,
        Field("What happens to a Workload that was admitted while flavors that it would rather have were still busy."),
    ] = required(ConcurrentAdmissionMigration)


class DefaultLocalQueue(ApiStruct, frozen=True):
    """The LocalQueue that every selected namespace gets."""

    name: Annotated[
        Subdomain,
        Field(
            "The name of the LocalQueue to create in each namespace that `namespaceSelector` selects. No LocalQueue of"
            " that name may exist there already, and no other ClusterQueue may claim the same name for the same"
            " namespaces.",
            min_length=1,
            max_length=63,
        ),
    ] = required(str)


def borrowing_needs_cohort(field: str) -> ValidationRule:
    """A queue without a cohort cannot borrow; `field` is the name of the cohort field in a version."""
    return ValidationRule(
        f"has(self.{field}) || !has(self.resourceGroups) || self.resourceGroups.all(group,"
        " group.flavors.all(flavor, flavor.resources.all(resource, !has(resource.borrowingLimit))))",
        f"borrowingLimit needs a {field}",
    )


class ClusterQueueSpec(ApiStruct, frozen=True):
    """Quota of a ClusterQueue, the namespaces that may use it, and the policies."""

    RULES: ClassVar = (borrowing_needs_cohort("cohortName"),)

    resource_groups: Annotated[
        tuple[ResourceGroup, ...],
        Field(
            "What there is to use, by groups of resources that come from the same flavor. A Workload fits when each"
            " resource that it requests is covered by a group and has enough quota in one of its flavors.",
            max_items=16,
            list_type="atomic",
        ),
    ] = ()
    cohort_name: Annotated[
        Subdomain,
        Field(
            "The Cohort to join. Its members lend each other what they do not use. It comes into being with its first"
            " member; a Cohort object is needed only to give it quota, a parent or a weight of its own. Empty means"
            " neither borrowing nor lending."
        ),
    ] = ""
    queueing_strategy: Annotated[
        str,
        Field(
            "`BestEffortFIFO`: Workloads are tried by priority and age, and one that does not fit lets later ones pass."
            " `StrictFIFO`: the first one waits for its turn and holds up everything behind it.",
            enum=QueueingStrategy,
            default="BestEffortFIFO",
        ),
    ] = "BestEffortFIFO"
    namespace_selector: Annotated[
        LabelSelector | None,
        Field(
            "The namespaces that may use this queue. Absent selects none, so that nothing is admitted; `{}`"
            " selects all.",
            map_type="atomic",
        ),
    ] = None
    flavor_fungibility: Annotated[
        FlavorFungibility | None,
        Field("When to be content with a flavor and when to look at the next one.", default={}),
    ] = None
    preemption: Annotated[
        ClusterQueuePreemption | None,
        Field(
            "Which Workloads pending Workloads of this queue may preempt. Without it they preempt none.",
            default={},
        ),
    ] = None
    admission_checks_strategy: Annotated[
        AdmissionChecksStrategy | None,
        Field("The AdmissionChecks that Workloads must pass after they have quota, for all flavors or for some."),
    ] = None
    stop_policy: Annotated[
        str,
        Field(
            "`None`: the queue works. `Hold`: nothing new is admitted, and what was admitted runs on. `HoldAndDrain`:"
            " nothing new is admitted, and what was admitted is evicted.",
            enum=StopPolicy,
            default="None",
        ),
    ] = "None"
    fair_sharing: Annotated[
        FairSharing | None,
        Field("This queue's weight when the cohort's unused quota is shared. It matters only with fair sharing on."),
    ] = None
    admission_scope: Annotated[
        AdmissionScope | None, Field("Whether past usage of its LocalQueues decides which Workload is admitted next.")
    ] = None
    concurrent_admission_policy: Annotated[
        ConcurrentAdmissionPolicy | None,
        Field("Lets a Workload be tried in several flavors at once and move to a better one when that becomes free."),
    ] = None
    default_local_queue: Annotated[
        DefaultLocalQueue | None,
        Field(
            "Creates a LocalQueue for this ClusterQueue in every namespace that `namespaceSelector` selects. Nothing is"
            " deleted or changed later. Needs the feature gate DefaultLocalQueue."
        ),
    ] = None
    exclude_resource_prefixes: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=317)], ...],
        Field(
            "Resources with names that start with one of these are not counted against the quota of this queue, in"
            " addition to those that the configuration excludes everywhere. Needs the feature gate"
            " ClusterQueueExcludeResourcePrefixes.",
            max_items=64,
            list_type="set",
        ),
    ] = ()


class ResourceUsage(ApiStruct, frozen=True):
    """How much of one resource is taken."""

    name: Annotated[str, Field("The resource.")] = required(str)
    total: Annotated[Quantity, Field("All that is taken, borrowed quota included.")] = always(0)
    borrowed: Annotated[Quantity, Field("The part that is taken from the cohort, above nominal quota.")] = always(0)


class FlavorUsage(ApiStruct, frozen=True):
    """What is taken of one flavor."""

    name: Annotated[Subdomain, Field("The ResourceFlavor.")] = required(str)
    resources: Annotated[
        tuple[ResourceUsage, ...],
        Field("What is taken of each resource.", max_items=64, list_type="map", list_map_keys=("name",)),
    ] = required(tuple)


class ClusterQueueStatus(ApiStruct, frozen=True):
    """What is taken, and how many wait."""

    conditions: Annotated[
        Conditions, Field("`Active` is True while the queue can admit Workloads, and otherwise has the reason.")
    ] = ()
    flavors_reservation: Annotated[
        tuple[FlavorUsage, ...],
        Field(
            "Quota set aside for Workloads, whether or not they have passed their checks.",
            max_items=64,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()
    flavors_usage: Annotated[
        tuple[FlavorUsage, ...],
        Field("Quota of admitted Workloads.", max_items=64, list_type="map", list_map_keys=("name",)),
    ] = ()
    pending_workloads: Annotated[Int32, Field("How many Workloads wait for quota.")] = always(0)
    reserving_workloads: Annotated[Int32, Field("How many Workloads hold quota, admitted ones included.")] = always(0)
    admitted_workloads: Annotated[Int32, Field("How many Workloads are admitted and not finished.")] = always(0)
    fair_sharing: Annotated[
        FairSharingStatus | None, Field("The queue's share as fair sharing sees it; present only with fair sharing on.")
    ] = None


class ClusterQueue(ApiStruct, frozen=True):
    """A pool of quota for the whole cluster, with the rules by which Workloads get it."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("ClusterQueue")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[
        ClusterQueueSpec, Field("Quota of the queue, the namespaces that may use it, and the policies.")
    ] = ClusterQueueSpec()
    status: Annotated[ClusterQueueStatus, Field("What is taken, and how many wait.")] = ClusterQueueStatus()


# --- Cohort -----------------------------------------------------------------------------------------------------------


class CohortSpec(ApiStruct, frozen=True):
    """A Cohort's place in the tree, and what it adds."""

    parent_name: Annotated[
        Subdomain,
        Field(
            "The Cohort above this one. Members of one tree can borrow from each other across its branches. Empty"
            " makes this Cohort a root. A Cohort in a cycle admits nothing until the cycle is broken."
        ),
    ] = ""
    resource_groups: Annotated[
        tuple[ResourceGroup, ...],
        Field(
            "Quota that the Cohort adds for its members to borrow, and how much of the whole subtree may be borrowed"
            " from and lent to the rest of the tree.",
            max_items=16,
            list_type="atomic",
        ),
    ] = ()
    fair_sharing: Annotated[
        FairSharing | None,
        Field("The Cohort's weight against its siblings. It matters only with fair sharing on and below a parent."),
    ] = None


class CohortStatus(ApiStruct, frozen=True):
    """How much the Cohort's members take."""

    fair_sharing: Annotated[
        FairSharingStatus | None,
        Field("The Cohort's share as fair sharing sees it; present only with fair sharing on."),
    ] = None


class Cohort(ApiStruct, frozen=True):
    """A group of ClusterQueues, and of other Cohorts, that lend each other what they do not use."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("Cohort")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[CohortSpec, Field("The Cohort's place in the tree, and what it adds.")] = CohortSpec()
    status: Annotated[CohortStatus, Field("How much the Cohort's members take.")] = CohortStatus()


# --- LocalQueue -------------------------------------------------------------------------------------------------------


class LocalQueueSpec(ApiStruct, frozen=True):
    """Where a LocalQueue leads."""

    cluster_queue: Annotated[
        Subdomain,
        Field("The ClusterQueue that this queue leads to. It cannot be changed.", rules=(IMMUTABLE,)),
    ] = ""
    stop_policy: Annotated[
        str,
        Field(
            "`None`: the queue works. `Hold`: nothing new is admitted through it, and what was admitted runs on."
            " `HoldAndDrain`: nothing new is admitted, and what was admitted through it is evicted.",
            enum=StopPolicy,
            default="None",
        ),
    ] = "None"
    fair_sharing: Annotated[
        FairSharing | None,
        Field("The queue's weight among the LocalQueues of its ClusterQueue, where past usage decides the order."),
    ] = None


class LocalQueueResourceUsage(ApiStruct, frozen=True):
    """How much of one resource is taken through a LocalQueue."""

    name: Annotated[str, Field("The resource.")] = required(str)
    total: Annotated[Quantity, Field("All that is taken.")] = always(0)


class LocalQueueFlavorUsage(ApiStruct, frozen=True):
    """What is taken of one flavor through a LocalQueue."""

    name: Annotated[Subdomain, Field("The ResourceFlavor.")] = required(str)
    resources: Annotated[
        tuple[LocalQueueResourceUsage, ...],
        Field("What is taken of each resource.", max_items=64, list_type="map", list_map_keys=("name",)),
    ] = required(tuple)


class LocalQueueFairSharingStatus(ApiStruct, frozen=True):
    """The share in use now, and over time."""

    weighted_share: Annotated[
        Int64, Field("The share in use divided by the weight, in thousandths; see the same field of a ClusterQueue.")
    ] = required(int)
    admission_fair_sharing_status: Annotated[
        AdmissionFairSharingStatus | None, Field("What was used through this queue over time.")
    ] = None


class LocalQueueStatus(ApiStruct, frozen=True):
    """What is taken through the queue, and how many wait in it."""

    conditions: Annotated[
        Conditions, Field("`Active` is True while Workloads can be admitted, and otherwise has the reason.")
    ] = ()
    pending_workloads: Annotated[Int32, Field("How many Workloads of this queue wait for quota.")] = always(0)
    reserving_workloads: Annotated[Int32, Field("How many of its Workloads hold quota, admitted ones included.")] = (
        always(0)
    )
    admitted_workloads: Annotated[Int32, Field("How many of its Workloads are admitted and not finished.")] = always(0)
    flavors_reservation: Annotated[
        tuple[LocalQueueFlavorUsage, ...],
        Field(
            "Quota set aside for Workloads of this queue, whether or not they have passed their checks.",
            max_items=64,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()
    flavors_usage: Annotated[
        tuple[LocalQueueFlavorUsage, ...],
        Field("Quota of this queue's admitted Workloads.", max_items=64, list_type="map", list_map_keys=("name",)),
    ] = ()
    fair_sharing: Annotated[
        LocalQueueFairSharingStatus | None, Field("The queue's share, now and over time; present only where it counts.")
    ] = None


class LocalQueue(ApiStruct, frozen=True):
    """A queue of one namespace that submits to one ClusterQueue: jobs name it to be queued."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("LocalQueue")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[LocalQueueSpec, Field("Where the queue leads.")] = LocalQueueSpec()
    status: Annotated[LocalQueueStatus, Field("What is taken through the queue, and how many wait in it.")] = (
        LocalQueueStatus()
    )


# --- ResourceFlavor and Topology --------------------------------------------------------------------------------------


class ResourceFlavorSpec(ApiStruct, frozen=True):
    """The nodes of a flavor, and what pods need to run there."""

    RULES: ClassVar = (
        ValidationRule(
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
            "a flavor with a topologyName needs at least one of nodeLabels",
        ),
        ValidationRule(
            "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            "topologyName cannot be changed once set",
        ),
    )

    node_labels: Annotated[
        Labels,
        Field(
            "Labels that the flavor's nodes carry. Pods admitted to the flavor get them as node selectors, and a pod"
            " with selectors or affinity that contradict them does not get this flavor.",
            max_properties=8,
            map_type="atomic",
        ),
    ] = {}
    node_taints: Annotated[
        Taints,
        Field("Taints that the flavor's nodes carry. Only Workloads with pods that tolerate them get this flavor."),
    ] = ()
    tolerations: Annotated[
        Tolerations, Field("Tolerations that pods get when they are admitted to the flavor, beside their own.")
    ] = ()
    topology_name: Annotated[
        Subdomain,
        Field(
            "The Topology of the flavor's nodes. With it, Workloads are placed on particular racks or hosts and not"
            " only counted. It needs a node label and cannot be changed once set."
        ),
    ] = ""


class ResourceFlavor(ApiStruct, frozen=True):
    """A type of node that quota is defined for: an accelerator model, a zone, spot or on demand."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("ResourceFlavor")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[ResourceFlavorSpec, Field("The nodes of the flavor, and what pods need to run there.")] = (
        ResourceFlavorSpec()
    )


class TopologyLevel(ApiStruct, frozen=True):
    """One level of the tree of nodes."""

    node_label: Annotated[
        str,
        Field(
            "The node label with the domain of this level as its value, such as"
            " `cloud.provider.com/topology-rack` or `kubernetes.io/hostname`.",
            min_length=1,
            max_length=316,
            pattern=QUALIFIED_PATTERN,
        ),
    ] = required(str)


_HOSTNAME: Final = "nodeLabel == 'kubernetes.io/hostname'"
HOSTNAME_LAST: Final = ValidationRule(
    f"!self.exists(level, level.{_HOSTNAME}) || self[size(self) - 1].{_HOSTNAME}",
    "kubernetes.io/hostname can only be the last level",
)


class TopologySpec(ApiStruct, frozen=True):
    """The levels of the tree."""

    levels: Annotated[
        tuple[TopologyLevel, ...],
        Field(
            "The levels from the widest to the narrowest: block, rack, host. `kubernetes.io/hostname` may only be the"
            " last. The levels may be changed only while the last one is the host name, before and after.",
            min_items=1,
            max_items=16,
            list_type="atomic",
            rules=(
                ValidationRule(
                    f"self == oldSelf || (self[size(self) - 1].{_HOSTNAME} && oldSelf[size(oldSelf) - 1].{_HOSTNAME})",
                    "the levels can be changed only while kubernetes.io/hostname is the last of them",
                ),
                UNIQUE,
                HOSTNAME_LAST,
            ),
        ),
    ] = required(tuple)


class Topology(ApiStruct, frozen=True):
    """The shape of a data centre as labels on its nodes: which label names the block, the rack, the host."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("Topology")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[TopologySpec, Field("The levels of the tree.")] = TopologySpec()


# --- Workload ---------------------------------------------------------------------------------------------------------


class PriorityClassGroup(StrEnum):
    """The API groups that priority classes come from."""

    KUEUE = "kueue.x-k8s.io"
    KUBERNETES = "scheduling.k8s.io"


class PriorityClassKind(StrEnum):
    """The kinds that give a Workload its priority."""

    WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"
    PRIORITY_CLASS = "PriorityClass"


class CheckState(StrEnum):
    """What an AdmissionCheck has answered."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"
    # The check continues once the preemptions that were held back for it have been issued.
    PREEMPTION_REQUIRED = "PreemptionRequired"


class PreemptionGatePosition(StrEnum):
    """Whether a gate lets preemptions through."""

    CLOSED = "Closed"
    OPEN = "Open"


class DelayedTopologyRequestState(StrEnum):
    """Whether a placement that could not be made at reservation has been made since."""

    PENDING = "Pending"
    READY = "Ready"


class PriorityClassRef(ApiStruct, frozen=True):
    """The class that gave a Workload its priority."""

    RULES: ClassVar = (
        ValidationRule(
            "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'",
            "in the group scheduling.k8s.io the kind must be PriorityClass",
        ),
        ValidationRule(
            "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
            "in the group kueue.x-k8s.io the kind must be WorkloadPriorityClass",
        ),
    )

    group: Annotated[
        str,
        Field(
            "The API group of the class: `kueue.x-k8s.io` for a WorkloadPriorityClass, `scheduling.k8s.io` for a"
            " PriorityClass of pods.",
            enum=PriorityClassGroup,
        ),
    ] = required(str)
    kind: Annotated[
        str, Field("The kind of the class, `WorkloadPriorityClass` or `PriorityClass`.", enum=PriorityClassKind)
    ] = required(str)
    name: Annotated[Subdomain, Field("The name of the class.", min_length=1)] = required(str)


class PodsetSliceRequiredTopologyConstraint(ApiStruct, frozen=True):
    """Pods in groups of a certain size, each group within one domain of a level."""

    topology: Annotated[
        LevelName, Field("The level, as the node label that names it, within which a group must stay.", min_length=1)
    ] = required(str)
    size: Annotated[Int32, Field("How many pods make a group.", minimum=1)] = required(int)


class PodSetTopologyRequest(ApiStruct, frozen=True):
    """How close together the pods of a set must or should run."""

    required: Annotated[
        LevelName | None,
        Field(
            "The level, as the node label that names it, within one domain of which all pods must run. From the"
            " annotation `kueue.x-k8s.io/podset-required-topology`."
        ),
    ] = None
    preferred: Annotated[
        LevelName | None,
        Field(
            "The level within one domain of which all pods should run if they can; wider levels are tried after it."
            " From the annotation `kueue.x-k8s.io/podset-preferred-topology`."
        ),
    ] = None
    unconstrained: Annotated[
        bool | None,
        Field(
            "Pods may run on any nodes, however far apart, but only while the topology has free capacity for each."
            " From the annotation `kueue.x-k8s.io/podset-unconstrained-topology`."
        ),
    ] = None
    pod_index_label: Annotated[
        NodeLabelKey | None,
        Field(
            "The pod label that numbers the pods of the set, so that neighbours in number become neighbours in place."
        ),
    ] = None
    sub_group_index_label: Annotated[
        NodeLabelKey | None,
        Field("The pod label that numbers the replicated jobs within the set, where there are several."),
    ] = None
    sub_group_count: Annotated[Int32 | None, Field("How many replicated jobs the set is made of.", minimum=0)] = None
    pod_set_group_name: Annotated[
        str | None,
        Field(
            "Pod sets of one group name get the same flavor and are placed together, such as a leader with its"
            " workers.",
            max_length=256,
        ),
    ] = None
    pod_set_slice_required_topology: Annotated[
        LevelName | None,
        Field(
            "The level within one domain of which each slice of `podSetSliceSize` pods must run. From the annotation"
            " `kueue.x-k8s.io/podset-slice-required-topology`."
        ),
    ] = None
    pod_set_slice_size: Annotated[
        Int32 | None,
        Field("How many pods make a slice. From the annotation `kueue.x-k8s.io/podset-slice-size`.", minimum=1),
    ] = None
    podset_slice_required_topology_constraints: Annotated[
        tuple[PodsetSliceRequiredTopologyConstraint, ...],
        Field(
            "Slices within slices: levels and sizes from the widest to the narrowest, at most three. Used in place of"
            " `podSetSliceRequiredTopology` and `podSetSliceSize`.",
            max_items=3,
            list_type="atomic",
        ),
    ] = ()


class PodSet(ApiStruct, frozen=True, gc=True, weakref=True):
    """A number of pods that are all alike."""

    RULES: ClassVar = (
        ValidationRule("!has(self.minCount) || self.minCount <= self.count", "minCount must not be greater than count"),
    )

    name: Annotated[PodSetName, Field("The set's name, unique within the Workload.", default="main")] = always("main")
    template: Annotated[
        PodTemplateSpec,
        Field(
            "The mould of the set's pods. Of its metadata only labels, annotations and finalizers matter. What the"
            " pods request is what counts against quota."
        ),
    ] = required(PodTemplateSpec)
    count: Annotated[Int32, Field("How many pods the set has.", default=1, minimum=0)] = always(1)
    min_count: Annotated[
        Int32 | None,
        Field(
            "The fewest pods that the job can make do with. When the full count does not fit, the Workload may be"
            " admitted with fewer, down to this number. At most one set of a Workload may have it.",
            minimum=1,
        ),
    ] = None
    topology_request: Annotated[
        PodSetTopologyRequest | None, Field("How close together the pods must or should run.")
    ] = None


class PreemptionGate(ApiStruct, frozen=True):
    """A gate that must be open before the Workload may preempt others."""

    name: Annotated[str, Field("The gate's name.", min_length=1, max_length=63)] = required(str)


class WorkloadSpec(ApiStruct, frozen=True):
    """The pod sets of a Workload, and its queue and priority."""

    RULES: ClassVar = (
        ValidationRule(
            "!has(self.priorityClassRef) || has(self.priority)", "priority must be set when priorityClassRef is"
        ),
    )

    pod_sets: Annotated[
        tuple[PodSet, ...],
        Field(
            "The sets of pods that are admitted together or not at all. They cannot be changed once quota is reserved.",
            min_items=1,
            max_items=18,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()
    queue_name: Annotated[
        Subdomain,
        Field("The LocalQueue that the Workload is in. It cannot be changed while quota is reserved."),
    ] = ""
    priority_class_ref: Annotated[
        PriorityClassRef | None,
        Field(
            "The class that the priority was taken from. While quota is reserved it can be neither added nor removed,"
            " nor exchanged for one of another kind."
        ),
    ] = None
    priority: Annotated[
        Int32 | None,
        Field(
            "The priority: Workloads of a higher number are tried before others and may preempt them where the"
            " queue allows it. Taken from the class when there is one. Absent counts as 0."
        ),
    ] = None
    active: Annotated[
        bool,
        Field(
            "Whether the Workload takes part. Setting it to false takes the Workload out of its queue, and evicts it"
            " when it was admitted; true puts it back.",
            default=True,
        ),
    ] = True
    maximum_execution_time_seconds: Annotated[
        Int32 | None,
        Field(
            "How long the Workload may be admitted, all its admissions together, before it is deactivated. Absent means"
            " without limit.",
            minimum=1,
        ),
    ] = None
    preemption_gates: Annotated[
        tuple[PreemptionGate, ...],
        Field(
            "Gates that are closed until they are opened in the status. While one is closed, the Workload preempts"
            " no other.",
            max_items=8,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()


class TopologyAssignmentSliceLevelIndividualValues(ApiStruct, frozen=True):
    """One value for each domain: prefix, root, suffix."""

    prefix: Annotated[LevelName | None, Field("What all values begin with.")] = None
    suffix: Annotated[LevelName | None, Field("What all values end with.")] = None
    roots: Annotated[
        tuple[LevelName, ...],
        Field(
            "The part between prefix and suffix, one for each domain in order.",
            min_items=1,
            max_items=100000,
            list_type="atomic",
        ),
    ] = required(tuple)


class TopologyAssignmentSliceLevelValues(ApiStruct, frozen=True):
    """The values of one level's label, for every domain of the slice."""

    RULES: ClassVar = (
        ValidationRule(
            "has(self.universal) != has(self.individual)", "exactly one of universal and individual must be set"
        ),
    )

    universal: Annotated[LevelName | None, Field("The value that all domains of the slice share.")] = None
    individual: Annotated[
        TopologyAssignmentSliceLevelIndividualValues | None, Field("A value for each domain of the slice.")
    ] = None


class TopologyAssignmentSlicePodCounts(ApiStruct, frozen=True):
    """How many pods go to each domain of the slice."""

    RULES: ClassVar = (
        ValidationRule(
            "has(self.universal) != has(self.individual)", "exactly one of universal and individual must be set"
        ),
    )

    universal: Annotated[Int32 | None, Field("The number that all domains of the slice share.", minimum=1)] = None
    individual: Annotated[
        tuple[Annotated[Int32, Field(minimum=1)], ...],
        Field("A number for each domain of the slice, in order.", min_items=1, max_items=100000, list_type="atomic"),
    ] = ()


class TopologyAssignmentSlice(ApiStruct, frozen=True):
    """Some of the domains of the pods, encoded so that common parts are written once."""

    RULES: ClassVar = (
        ValidationRule(
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            "podCounts.individual must have one entry for each domain",
        ),
        ValidationRule(
            "self.valuesPerLevel.all(level,"
            " !has(level.individual) || size(level.individual.roots) == self.domainCount)",
            "valuesPerLevel[].individual.roots must have one entry for each domain",
        ),
    )

    domain_count: Annotated[Int32, Field("How many domains the slice covers.", minimum=1)] = required(int)
    values_per_level: Annotated[
        tuple[TopologyAssignmentSliceLevelValues, ...],
        Field(
            "For each level, in the order of `levels`, the values of its label.",
            min_items=1,
            max_items=16,
            list_type="atomic",
        ),
    ] = required(tuple)
    pod_counts: Annotated[TopologyAssignmentSlicePodCounts, Field("How many pods go to each domain.")] = required(
        TopologyAssignmentSlicePodCounts
    )


class TopologyAssignment(ApiStruct, frozen=True):
    """Which domains the pods of a set go to, and how many to each."""

    RULES: ClassVar = (
        ValidationRule(
            "self.slices.all(slice, size(slice.valuesPerLevel) == size(self.levels))",
            "every slice must have one entry of valuesPerLevel for each level",
        ),
    )

    levels: Annotated[
        tuple[NodeLabelKey, ...],
        Field(
            "The node labels of the domains, from the widest level to the narrowest; the host name alone"
            " where the topology has it.",
            min_items=1,
            max_items=16,
            list_type="atomic",
        ),
    ] = required(tuple)
    slices: Annotated[
        tuple[TopologyAssignmentSlice, ...],
        Field("The domains and their numbers of pods, in one slice or in several.", max_items=1000, list_type="atomic"),
    ] = required(tuple)


class PodSetAssignment(ApiStruct, frozen=True):
    """What one set of pods was given."""

    name: Annotated[PodSetName, Field("The pod set.", default="main")] = always("main")
    flavors: Annotated[dict[str, Subdomain], Field("The flavor that each resource comes from.")] = {}
    resource_usage: Annotated[
        ResourceList,
        Field(
            "What all pods of the set take together, defaults from LimitRanges and overhead of RuntimeClasses"
            " included. It does not shrink when pods end early."
        ),
    ] = {}
    count: Annotated[
        Int32 | None,
        Field(
            "How many pods were admitted; less than the set's count when it was admitted partially. Absent means the"
            " set's own count.",
            minimum=0,
        ),
    ] = None
    topology_assignment: Annotated[
        TopologyAssignment | None, Field("Where the pods go, for a flavor that has a topology.")
    ] = None
    delayed_topology_request: Annotated[
        str | None,
        Field(
            "`Pending` while the placement waits for nodes that a check is still providing, `Ready` once it has been"
            " made.",
            enum=DelayedTopologyRequestState,
            max_length=7,
        ),
    ] = None


class Admission(ApiStruct, frozen=True):
    """Which queue gave quota, and of which flavors."""

    cluster_queue: Annotated[Subdomain, Field("The ClusterQueue that reserves the quota.")] = always("")
    pod_set_assignments: Annotated[
        tuple[PodSetAssignment, ...],
        Field("What each pod set was given.", max_items=18, list_type="map", list_map_keys=("name",)),
    ] = always(())


class RequeueState(ApiStruct, frozen=True):
    """How often a Workload was put back after its pods were not ready in time."""

    count: Annotated[Int32 | None, Field("How often it was put back; each time it waits longer.", minimum=0)] = None
    requeue_at: Annotated[
        Time | None, Field("When it takes part again. Absent means now, or that an event decides.")
    ] = None


class PodSetUpdate(ApiStruct, frozen=True):
    """What a check adds to the pods of one set."""

    name: Annotated[PodSetName, Field("The pod set.")] = required(str)
    labels: Annotated[Labels, Field("Labels to add to the pods.")] = {}
    annotations: Annotated[Labels, Field("Annotations to add to the pods.")] = {}
    node_selector: Annotated[Labels, Field("Node selectors to add to the pods.")] = {}
    tolerations: Annotated[Tolerations, Field("Tolerations to add to the pods.")] = ()


class AdmissionCheckState(ApiStruct, frozen=True):
    """What one AdmissionCheck has answered for this Workload."""

    name: Annotated[CheckName, Field("The AdmissionCheck.")] = required(str)
    state: Annotated[
        str,
        Field(
            "`Pending`: no answer yet. `Ready`: the check is passed. `Retry`: not now, so give the quota back and try"
            " again later. `Rejected`: never, so deactivate the Workload. `PreemptionRequired`: the check cannot go on"
            " before the preemptions that were held back for it are issued.",
            enum=CheckState,
        ),
    ] = required(str)
    last_transition_time: Annotated[Time, Field("When the state last changed.")] = required(str)
    message: Annotated[str, Field("The reason, as text for users.", max_length=32768)] = required(str)
    requeue_after_seconds: Annotated[
        Int32 | None,
        Field(
            "With `Retry`, how long the Workload stays out of the queue. It overrides the delay of the AdmissionCheck.",
            minimum=0,
        ),
    ] = None
    retry_count: Annotated[Int32 | None, Field("How often this check has requested a retry.", minimum=0)] = None
    pod_set_updates: Annotated[
        tuple[PodSetUpdate, ...],
        Field("What the pods get when the Workload starts.", max_items=18, list_type="atomic"),
    ] = ()


class ReclaimablePod(ApiStruct, frozen=True):
    """Pods of one set with quota that others may use already."""

    name: Annotated[PodSetName, Field("The pod set.")] = required(str)
    count: Annotated[Int32, Field("How many pods are done and will not come back.", minimum=0)] = required(int)


class PodSetRequest(ApiStruct, frozen=True):
    """The requests of one pod set."""

    name: Annotated[PodSetName, Field("The pod set.")] = required(str)
    resources: Annotated[
        ResourceList, Field("The requests of all pods of the set together, as they would count against quota.")
    ] = {}


class WorkloadSchedulingStatsEviction(ApiStruct, frozen=True):
    """How often a Workload was evicted for one reason."""

    reason: Annotated[str, Field("The reason of the eviction, as in the condition `Evicted`.", max_length=316)] = (
        required(str)
    )
    underlying_cause: Annotated[
        str, Field("The underlying cause of the reason, if there is one; otherwise empty.", max_length=316)
    ] = required(str)
    count: Annotated[Int32, Field("How often it happened.", minimum=0)] = required(int)


class SchedulingStats(ApiStruct, frozen=True):
    """What has happened to a Workload so far, in numbers."""

    evictions: Annotated[
        tuple[WorkloadSchedulingStatsEviction, ...],
        Field(
            "Evictions by reason and cause.",
            max_items=256,
            list_type="map",
            list_map_keys=("reason", "underlyingCause"),
        ),
    ] = ()


class UnhealthyNode(ApiStruct, frozen=True):
    """A node that failed under a Workload."""

    name: Annotated[str, Field("The node.", max_length=63)] = required(str)


class PreemptionGateState(ApiStruct, frozen=True):
    """The position of one preemption gate."""

    name: Annotated[str, Field("The gate.", min_length=1, max_length=63)] = required(str)
    position: Annotated[
        str,
        Field(
            "`Closed`: the Workload preempts no other. `Open`: this gate allows preemption.",
            enum=PreemptionGatePosition,
        ),
    ] = required(str)
    last_transition_time: Annotated[Time, Field("When the gate last moved.")] = required(str)


class WorkloadStatus(ApiStruct, frozen=True):
    """How far a Workload has come, and what it holds."""

    RULES: ClassVar = (
        ValidationRule(
            "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
            "clusterName cannot be changed once set",
        ),
        ValidationRule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
            "clusterName and nominatedClusterNames exclude each other",
        ),
    )

    conditions: Annotated[
        Conditions,
        Field(
            "The state of the Workload: `QuotaReserved` (and if not, why), `Admitted`, `PodsReady`, `Evicted`,"
            " `Preempted`, `Requeued`, `DeactivationTarget`, `Finished` and others."
        ),
    ] = ()
    admission: Annotated[
        Admission | None, Field("The quota that is set aside for the Workload. Absent means none.")
    ] = None
    requeue_state: Annotated[
        RequeueState | None, Field("How often the Workload was put back, and when it may come again.")
    ] = None
    reclaimable_pods: Annotated[
        tuple[ReclaimablePod, ...],
        Field(
            "Pods that are done, with quota that others may use while the rest runs on. The numbers only grow.",
            max_items=18,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()
    admission_checks: Annotated[
        tuple[AdmissionCheckState, ...],
        Field(
            "The checks that this Workload has to pass, and what each has answered.",
            max_items=8,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()
    admission_checks_conditions: Annotated[
        tuple[Condition, ...],
        Field(
            "The same answers in the form of conditions, each of the type of its check: Unknown is `Pending`, True is"
            " `Ready`, and False with the reason Retry or Reject is `Retry` or `Rejected`. A check may write here or"
            " in `admissionChecks`; the newer transition is copied to the other.",
            max_items=8,
            list_type="map",
            list_map_keys=("type",),
        ),
    ] = ()
    resource_requests: Annotated[
        tuple[PodSetRequest, ...],
        Field(
            "The requests of a Workload without quota, as they would count. Absent once quota is reserved.",
            max_items=18,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()
    accumulated_past_execution_time_seconds: Annotated[
        Int32 | None, Field("How long the Workload was admitted in earlier admissions, all together.")
    ] = None
    scheduling_stats: Annotated[
        SchedulingStats | None, Field("What has happened to the Workload so far, in numbers.")
    ] = None
    nominated_cluster_names: Annotated[
        tuple[ClusterName, ...],
        Field(
            "The worker clusters that may try for the Workload. Empty once one of them has it.",
            max_items=20,
            list_type="atomic",
        ),
    ] = ()
    cluster_name: Annotated[
        ClusterName | None, Field("The worker cluster that runs the Workload. It cannot be changed once set.")
    ] = None
    unhealthy_nodes: Annotated[
        tuple[UnhealthyNode, ...],
        Field(
            "Nodes of the Workload's placement that have failed and wait to be replaced.",
            max_items=8,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()
    preemption_gates: Annotated[
        tuple[PreemptionGateState, ...],
        Field(
            "The positions of the Workload's preemption gates. One that is not listed is closed.",
            max_items=8,
            list_type="map",
            list_map_keys=("name",),
        ),
    ] = ()


def _holds(side: str, condition: str) -> str:
    """CEL for: the condition is True of `side` (self or oldSelf)."""
    return (
        f"(has({side}.status) && has({side}.status.conditions) &&"
        f" {side}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True'))"
    )


HAD_QUOTA: Final = _holds("oldSelf", "QuotaReserved")
_BOTH_CLASSES: Final = "has(oldSelf.spec.priorityClassRef) && has(self.spec.priorityClassRef)"
ASSIGNMENTS_MATCH_POD_SETS: Final = ValidationRule(
    f"{_holds('self', 'QuotaReserved')} && has(self.status.admission)"
    " ? size(self.spec.podSets) == size(self.status.admission.podSetAssignments) : true",
    "while quota is reserved, status.admission must have one assignment for each pod set",
)
QUEUE_NAME_STAYS: Final = ValidationRule(
    f"{HAD_QUOTA} && {_holds('self', 'QuotaReserved')}"
    " ? has(oldSelf.spec.queueName) == has(self.spec.queueName)"
    " && (!has(self.spec.queueName) || oldSelf.spec.queueName == self.spec.queueName) : true",
    "spec.queueName cannot be changed while quota is reserved",
)
EXECUTION_TIME_STAYS: Final = ValidationRule(
    f"{_holds('oldSelf', 'Admitted')} && {_holds('self', 'Admitted')}"
    " ? (has(oldSelf.spec.maximumExecutionTimeSeconds) ? oldSelf.spec.maximumExecutionTimeSeconds : 0)"
    " == (has(self.spec.maximumExecutionTimeSeconds) ? self.spec.maximumExecutionTimeSeconds : 0) : true",
    "spec.maximumExecutionTimeSeconds cannot be changed while the Workload is admitted",
)


class Workload(ApiStruct, frozen=True):
    """What is queued and admitted: the pods of one job, all together or not at all."""

    RULES: ClassVar = (
        ASSIGNMENTS_MATCH_POD_SETS,
        ValidationRule(
            f"{HAD_QUOTA} ? has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef) : true",
            "spec.priorityClassRef can be neither added nor removed while quota is reserved",
        ),
        ValidationRule(
            f"{HAD_QUOTA} && {_BOTH_CLASSES}"
            " ? oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group : true",
            "spec.priorityClassRef.group cannot be changed while quota is reserved",
        ),
        ValidationRule(
            f"{HAD_QUOTA} && {_BOTH_CLASSES}"
            " ? oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind : true",
            "spec.priorityClassRef.kind cannot be changed while quota is reserved",
        ),
        ValidationRule(
            f"{HAD_QUOTA} && {_BOTH_CLASSES} && self.spec.priorityClassRef.group == 'scheduling.k8s.io'"
            " && self.spec.priorityClassRef.kind == 'PriorityClass'"
            " ? oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name : true",
            "the name of a PriorityClass of pods cannot be changed in spec.priorityClassRef while quota is reserved",
        ),
        QUEUE_NAME_STAYS,
        EXECUTION_TIME_STAYS,
    )

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("Workload")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[WorkloadSpec, Field("The pod sets of the Workload, and its queue and priority.")] = WorkloadSpec()
    status: Annotated[WorkloadStatus, Field("How far the Workload has come, and what it holds.")] = WorkloadStatus()


class WorkloadPriorityClass(ApiStruct, frozen=True):
    """A name for a priority in the queue. It does not affect the preemption of pods on nodes."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("WorkloadPriorityClass")
    metadata: Metadata = ObjectMeta()
    value: Annotated[Int32, Field("The priority: Workloads of a higher number come before those of a lower one.")] = (
        required(int)
    )
    description: Annotated[str, Field("What the class is meant for.", max_length=2048)] = ""


# --- AdmissionCheck and ProvisioningRequestConfig ---------------------------------------------------------------------


class CheckPreemptionPolicy(StrEnum):
    """When a Workload with a given check may preempt others."""

    ANYTIME = "Anytime"
    AFTER_CHECK_PASSED_OR_ON_DEMAND = "AfterCheckPassedOrOnDemand"


class ProvisioningRequestConfigPodSetMergePolicy(StrEnum):
    """Which pod sets may share one entry of a ProvisioningRequest."""

    IDENTICAL_POD_TEMPLATES = "IdenticalPodTemplates"
    IDENTICAL_WORKLOAD_SCHEDULING_REQUIREMENTS = "IdenticalWorkloadSchedulingRequirements"


class AdmissionCheckParametersReference(ApiStruct, frozen=True):
    """The object that holds a check's settings."""

    api_group: Annotated[Subdomain, Field("The API group of the object.", min_length=1)] = required(str)
    kind: Annotated[
        str,
        Field("The object's kind.", min_length=1, max_length=63, pattern=r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"),
    ] = required(str)
    name: Annotated[Label, Field("The object's name.", min_length=1, pattern=LABEL_PATTERN)] = required(str)


class AdmissionCheckSpec(ApiStruct, frozen=True):
    """The controller of a check, and its parameters."""

    controller_name: Annotated[
        str,
        Field(
            "The controller that runs the check, as a name with a domain such as"
            " `kueue.x-k8s.io/provisioning-request`. It cannot be changed.",
            min_length=1,
            max_length=253,
            rules=(IMMUTABLE,),
        ),
    ] = required(str)
    parameters: Annotated[
        AdmissionCheckParametersReference | None, Field("The object that holds the check's settings.")
    ] = None
    retry_delay_minutes: Annotated[
        Int64,
        Field(
            "How long a Workload stays out of the queue after this check returned `Retry`, in minutes; 15 where it is"
            " absent. 0 means that it is tried again at once. A check that sets `requeueAfterSeconds` in its"
            " state overrides this.",
            minimum=0,
        ),
    ] = 15
    preemption_policy: Annotated[
        str,
        Field(
            "When preemptions for a Workload with this check are issued. `Anytime`, as also where it is absent: as"
            " soon as it reserves quota."
            " `AfterCheckPassedOrOnDemand`: once the check is Ready, or when a check requests them with"
            " `PreemptionRequired`.",
            enum=CheckPreemptionPolicy,
        ),
    ] = "Anytime"


class AdmissionCheckStatus(ApiStruct, frozen=True):
    """Whether a check is usable."""

    conditions: Annotated[
        Conditions, Field("`Active` is True while the check's controller is there and its settings can be used.")
    ] = ()


class AdmissionCheck(ApiStruct, frozen=True):
    """A question that some controller must answer with yes before a Workload with quota may start."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("AdmissionCheck")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[AdmissionCheckSpec, Field("The controller of the check, and its parameters.")] = (
        AdmissionCheckSpec()
    )
    status: Annotated[AdmissionCheckStatus, Field("Whether the check is usable.")] = AdmissionCheckStatus()


class ProvisioningRequestRetryStrategy(ApiStruct, frozen=True):
    """How often to retry, and how long to wait in between."""

    backoff_limit_count: Annotated[Int32, Field("How often to retry before the check is rejected.", default=3)] = 3
    backoff_base_seconds: Annotated[
        Int32, Field("How long to wait before the first retry; it doubles each time.", default=60)
    ] = 60
    backoff_max_seconds: Annotated[Int32, Field("The longest time to wait before a retry.", default=1800)] = 1800


class ProvisioningRequestPodSetUpdatesNodeSelector(ApiStruct, frozen=True):
    """A node selector with a value from the status of the ProvisioningRequest."""

    key: Annotated[
        str,
        Field("The label to select nodes by.", min_length=1, max_length=317, pattern=QUALIFIED_PATTERN),
    ] = required(str)
    value_from_provisioning_class_detail: Annotated[
        str,
        Field(
            "The entry of the ProvisioningRequest's `status.provisioningClassDetails` that holds the label's value.",
            min_length=1,
            max_length=32768,
        ),
    ] = required(str)


class ProvisioningRequestPodSetUpdates(ApiStruct, frozen=True):
    """What the pods get once nodes are provided."""

    node_selector: Annotated[
        tuple[ProvisioningRequestPodSetUpdatesNodeSelector, ...],
        Field(
            "Node selectors that lead the pods to the nodes that were made for them.",
            max_items=8,
            list_type="map",
            list_map_keys=("key",),
        ),
    ] = ()


class ProvisioningRequestConfigSpec(ApiStruct, frozen=True):
    """How nodes are requested from the autoscaler."""

    provisioning_class_name: Annotated[
        Subdomain,
        Field("The provisioning class to request, such as `check-capacity.autoscaling.x-k8s.io`.", min_length=1),
    ] = required(str)
    parameters: Annotated[
        dict[str, Annotated[str, Field(max_length=255)]],
        Field("Parameters that the class understands, handed on as they are.", max_properties=100),
    ] = {}
    managed_resources: Annotated[
        tuple[str, ...],
        Field(
            "The resources that the autoscaler provides. Pod sets that request none of them are left out, and a"
            " Workload without any passes at once. Empty means all resources.",
            max_items=100,
            list_type="set",
        ),
    ] = ()
    retry_strategy: Annotated[
        ProvisioningRequestRetryStrategy | None,
        Field(
            "How often to retry when nodes could not be provided, and how long to wait in between.",
            default={"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
        ),
    ] = None
    pod_set_updates: Annotated[
        ProvisioningRequestPodSetUpdates | None, Field("What the pods get once nodes are provided.")
    ] = None
    pod_set_merge_policy: Annotated[
        str | None,
        Field(
            "Which pod sets share one entry of the request: those with `IdenticalPodTemplates`, or those with"
            " `IdenticalWorkloadSchedulingRequirements` (their requests, and where they may run). Absent means none.",
            enum=ProvisioningRequestConfigPodSetMergePolicy,
        ),
    ] = None


class ProvisioningRequestConfig(ApiStruct, frozen=True):
    """Settings of the check that requests nodes from a cluster autoscaler before a Workload starts."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("ProvisioningRequestConfig")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[ProvisioningRequestConfigSpec, Field("How nodes are requested from the autoscaler.")] = (
        ProvisioningRequestConfigSpec()
    )


# --- MultiKueue -------------------------------------------------------------------------------------------------------


class LocationType(StrEnum):
    """Where a kubeconfig is kept."""

    SECRET = "Secret"
    PATH = "Path"


class QuotaManagement(StrEnum):
    """How the quota of a queue with worker clusters is set."""

    MANUAL = "Manual"
    AUTOMATED = "Automated"


class KubeConfig(ApiStruct, frozen=True):
    """Where the way to a worker cluster is written down."""

    location: Annotated[
        str,
        Field(
            "The name of a Secret in the manager's namespace, with the kubeconfig under the key `kubeconfig`; or the"
            " path of a file that the manager can read.",
            min_length=1,
            max_length=256,
        ),
    ] = required(str)
    location_type: Annotated[
        str,
        Field("What `location` is: the name of a `Secret` or a `Path`.", enum=LocationType, default="Secret"),
    ] = "Secret"


class ClusterProfileReference(ApiStruct, frozen=True):
    """A cluster known to a cluster inventory."""

    name: Annotated[str, Field("The ClusterProfile, in the manager's namespace.", min_length=1, max_length=256)] = (
        required(str)
    )


class ClusterSource(ApiStruct, frozen=True):
    """How to reach a worker cluster, one way or the other."""

    RULES: ClassVar = (
        ValidationRule(
            "has(self.kubeConfig) != has(self.clusterProfileRef)",
            "exactly one of kubeConfig and clusterProfileRef must be set",
        ),
    )

    kube_config: Annotated[KubeConfig | None, Field("By a kubeconfig.")] = None
    cluster_profile_ref: Annotated[
        ClusterProfileReference | None, Field("By a ClusterProfile of a cluster inventory.")
    ] = None


class MultiKueueClusterSpec(ApiStruct, frozen=True):
    """How to reach a worker cluster."""

    cluster_source: Annotated[
        ClusterSource, Field("How to reach the cluster: by a kubeconfig or by a ClusterProfile.")
    ] = required(ClusterSource)


class MultiKueueClusterStatus(ApiStruct, frozen=True):
    """Whether a worker cluster can be reached."""

    conditions: Annotated[
        Conditions, Field("`Active` is True while the cluster can be reached, and otherwise has the reason.")
    ] = ()


class MultiKueueCluster(ApiStruct, frozen=True):
    """A worker cluster that Workloads can be sent to."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("MultiKueueCluster")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[MultiKueueClusterSpec, Field("How to reach the cluster.")] = MultiKueueClusterSpec()
    status: Annotated[MultiKueueClusterStatus, Field("Whether the cluster can be reached.")] = MultiKueueClusterStatus()


class MultiKueueConfigSpec(ApiStruct, frozen=True):
    """Which worker clusters take part."""

    clusters: Annotated[
        tuple[ClusterName, ...],
        Field(
            "The MultiKueueClusters that Workloads may be sent to, in order of preference.",
            min_items=1,
            max_items=20,
            list_type="atomic",
            rules=(UNIQUE,),
        ),
    ] = required(tuple)
    quota_management: Annotated[
        str | None,
        Field(
            "`Manual`: the quota of the queue here is what its author wrote. `Automated`: it follows the quota of the"
            " worker clusters.",
            enum=QuotaManagement,
        ),
    ] = None


class MultiKueueConfig(ApiStruct, frozen=True):
    """Which worker clusters a MultiKueue check may send Workloads to."""

    api_version: ApiVersion = always(API_VERSION)
    kind: KindName = always("MultiKueueConfig")
    metadata: Metadata = ObjectMeta()
    spec: Annotated[MultiKueueConfigSpec, Field("Which worker clusters take part.")] = MultiKueueConfigSpec()


# Every kind of the group, in the order of the documentation.
KINDS: Final = (
    ClusterQueue,
    Cohort,
    LocalQueue,
    Workload,
    WorkloadPriorityClass,
    ResourceFlavor,
    Topology,
    AdmissionCheck,
    ProvisioningRequestConfig,
    MultiKueueConfig,
    MultiKueueCluster,
)
