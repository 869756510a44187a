"""The decision of every webhook: a request and its facts in, a response out. Pure.

    mutate     what a new object gets: defaults of Kueue's kinds, the queue and the suspension of a job
    validate   what is refused (403, with every field), and what is allowed with a warning [WH1]

An object that cannot be decoded is refused with 400 before it is changed. Deletions are not reviewed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue import calendars, features
from pykueue.api import defaults, effects, extensions, kueue, validation
from pykueue.api.validation import ValidationGates
from pykueue.jobs import admission
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.kinds import JobIntegration, JobKinds
from pykueue.jobs.options import IntegrationOptions
from pykueue.webhooks import canonical_quantities, limits

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"

# The groups whose kinds are reviewed as our own; objects of all others are jobs.
_OWN_GROUPS: Final = (f"{kueue.GROUP}/", f"{extensions.GROUP}/")


class Phase(StrEnum):
    """The two phases of admission: mutating, then validating webhooks."""

    MUTATE = "mutate"
    VALIDATE = "validate"


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One write, in the storage version of the object. `object` is empty only for a deletion."""

    phase: Phase
    operation: str
    object: Tree
    old: Tree | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # The field manager of the writer.
    manager: str = ""
    # The name of the writer.
    user: str = ""


class AdmissionFacts(msgspec.Struct, frozen=True):
    """What a decision needs in addition to the object; read as far as it matters for the request."""

    job: JobAdmissionFacts = msgspec.field(default_factory=JobAdmissionFacts)
    # For the default LocalQueues of a ClusterQueue (KEP-7610), while the gate is on.
    cluster_queues: tuple[Tree, ...] = ()
    namespaces: tuple[Tree, ...] = ()
    local_queues: tuple[Tree, ...] = ()
    # Whether the writer of a reservation is a former leader [WH19].
    is_former_leader: bool = False


NO_FACTS: Final = AdmissionFacts()


class WebhookOptions(msgspec.Struct, frozen=True):
    """The webhook part of the Configuration."""

    kinds: JobKinds
    jobs: IntegrationOptions = msgspec.field(default_factory=IntegrationOptions)
    # Quota is required only for resources that a ClusterQueue declares (KEP-7513).
    only_declared: bool = False
    # The gate DefaultLocalQueue: conflicting names of default LocalQueues are refused.
    default_local_queue: bool = False
    # The gates that are on, for warnings about fields that have no effect.
    on: frozenset[str] = frozenset(name for name, is_on in features.DEFAULTS.items() if is_on)

    @property
    def gates(self) -> ValidationGates:
        return self.jobs.validation

    @classmethod
    def of(
        cls, kinds: JobKinds, jobs: IntegrationOptions, gates: Mapping[str, bool], *, only_declared: bool
    ) -> WebhookOptions:
        on = frozenset(name for name, is_on in gates.items() if is_on)
        return cls(kinds, jobs, only_declared, gates["DefaultLocalQueue"], on)

    @property
    def job_kinds(self) -> tuple[JobIntegration, ...]:
        """The enabled integrations."""
        return self.kinds.enabled(self.jobs.frameworks)


class AdmissionRefusal(msgspec.Struct, frozen=True):
    """Why a write is refused: HTTP code, reason and message of the Status."""

    code: int
    reason: str
    message: str
    errors: tuple[FieldError, ...] = ()

    @property
    def causes(self) -> list[dict[str, str]]:
        """One entry for each field, as in the `details` of a Status."""
        return [{"reason": error.type.value, "message": error.cause, "field": error.path} for error in self.errors]


class AdmissionResponse(msgspec.Struct, frozen=True):
    """The response to a request: the changed object, or a refusal; and warnings in both cases."""

    object: Tree | None = None
    refusal: AdmissionRefusal | None = None
    warnings: tuple[str, ...] = ()


ALLOWED: Final = AdmissionResponse()

_Decide: TypeAlias = Callable[[AdmissionRequest, AdmissionFacts, WebhookOptions], AdmissionResponse]


def review(request: AdmissionRequest, facts: AdmissionFacts, choices: WebhookOptions) -> AdmissionResponse:
    """The decision about one write in one phase."""
    if request.operation not in (CREATE, UPDATE):
        return ALLOWED
    if unstructured.text(request.object.get("apiVersion")).startswith(_OWN_GROUPS):
        if (excess := limits.excess(request.object)) is not None:
            return excessive(excess)
        decide: _Decide = _default if request.phase is Phase.MUTATE else _validate
    else:
        decide = _default_job if request.phase is Phase.MUTATE else _validate_job
    return decide(request, facts, choices)


def unreadable(message: str) -> AdmissionResponse:
    return AdmissionResponse(refusal=AdmissionRefusal(400, "BadRequest", message))


def excessive(error: FieldError) -> AdmissionResponse:
    """The refusal of an object with an excessive list: what schema validation would return, without its cost."""
    return AdmissionResponse(refusal=AdmissionRefusal(422, "Invalid", str(error), (error,)))


def refused(errors: Sequence[FieldError], warnings: Sequence[str] = ()) -> AdmissionResponse:
    """The refusal with all errors in one response, in their order and without duplicates; allowed if there are none."""
    found = tuple({str(error): error for error in errors}.values())
    if not found:
        return AdmissionResponse(warnings=tuple(warnings)) if warnings else ALLOWED
    message = str(found[0]) if len(found) == 1 else f"[{', '.join(map(str, found))}]"
    return AdmissionResponse(refusal=AdmissionRefusal(403, "Forbidden", message, found), warnings=tuple(warnings))


# --- Kueue's kinds and ours -------------------------------------------------------------------------------------------


def _default(request: AdmissionRequest, facts: AdmissionFacts, choices: WebhookOptions) -> AdmissionResponse:
    tree, why = request.object, validation.unreadable(request.object)
    if why is not None:
        tree = validation.filled(tree)
        if validation.unreadable(tree) is not None:
            return unreadable(why)
    return _changed(request.object, canonical_quantities.canonical(defaults.webhook_defaults(tree, choices.gates)))


def _validate(request: AdmissionRequest, facts: AdmissionFacts, choices: WebhookOptions) -> AdmissionResponse:
    tree, gates = request.object, choices.gates
    if facts.is_former_leader:
        message = f"{request.manager} is no longer the leader: only the current leader reserves quota"
        return AdmissionResponse(refusal=AdmissionRefusal(403, "Forbidden", message))
    if request.old is None:
        errors = validation.validate_create(tree, gates)
    else:
        errors = validation.validate_update(tree, request.old, gates)
    errors += calendars.problems(tree)
    if asks_for_local_queues(request, choices):
        errors += validation.default_local_queue_conflicts(
            tree, facts.cluster_queues, facts.namespaces, facts.local_queues
        )
    if request.subresource:
        return refused(errors)  # a writer of the status is not the author of the spec
    warnings = validation.warnings(tree, gates, only_declared=choices.only_declared)
    return refused(errors, (*warnings, *effects.warnings(tree, choices.on)))


def reserves_quota(request: AdmissionRequest) -> bool:
    """Whether the write changes the reservation of a Workload."""
    if request.object.get("kind") != "Workload" or request.subresource != "status":
        return False
    given = unstructured.get(request.object, "status", "admission")
    return given is not None and given != unstructured.get(request.old, "status", "admission")


def asks_for_local_queues(request: AdmissionRequest, choices: WebhookOptions) -> bool:
    """Whether a ClusterQueue defines default LocalQueues, which may conflict with others (KEP-7610)."""
    return (
        choices.default_local_queue
        and request.object.get("kind") == "ClusterQueue"
        and validation.asks_for_local_queues(request.object, request.old)
    )


# --- Jobs -------------------------------------------------------------------------------------------------------------


def _default_job(request: AdmissionRequest, facts: AdmissionFacts, choices: WebhookOptions) -> AdmissionResponse:
    row = job_kind(request.object, choices)
    if row is None:
        return ALLOWED
    if request.old is None and (problem := admission.owner_refusal(row, facts.job, choices.kinds, choices.jobs)):
        return AdmissionResponse(refusal=AdmissionRefusal(403, "Forbidden", problem))
    after = admission.default(row, request.object, facts.job, choices.kinds, choices.jobs, request.old)
    return _changed(request.object, after)


def _validate_job(request: AdmissionRequest, facts: AdmissionFacts, choices: WebhookOptions) -> AdmissionResponse:
    row = job_kind(request.object, choices)
    if row is None:
        return ALLOWED
    if request.old is None:
        result = admission.validate_create(row, request.object, facts.job, choices.kinds, choices.jobs)
    else:
        result = admission.validate_update(row, request.object, request.old, facts.job, choices.kinds, choices.jobs)
    if result.problem:
        refusal = AdmissionRefusal(403, "Forbidden", result.problem)
        return AdmissionResponse(refusal=refusal, warnings=result.warnings)
    return refused(result.errors, result.warnings)


def job_kind(tree: Tree, choices: WebhookOptions) -> JobIntegration | None:
    """The integration of a job, if it is enabled."""
    row = choices.kinds.of(ObjectView(tree))
    return row if row is not None and choices.kinds.is_enabled(row, choices.jobs.frameworks) else None


def _changed(before: Tree, after: Tree) -> AdmissionResponse:
    return ALLOWED if after is before else AdmissionResponse(object=after)
