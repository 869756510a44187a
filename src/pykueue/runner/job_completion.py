"""The outcome of a Job and the effect of a failed pod: backoff limits, deadlines, pod failure and success policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from typing import Any, Final

import msgspec

from kubemachinery import job_indexes, meta, unstructured
from kubemachinery.unstructured import Tree
from pykueue.runner import conditions


class JobOutcome(msgspec.Struct, frozen=True):
    """The decided outcome of a Job. It is final once its last pod has ended."""

    success: bool
    reason: str
    message: str

    @property
    def target(self) -> str:
        """The condition type that marks the outcome as decided."""
        return "SuccessCriteriaMet" if self.success else "FailureTarget"

    @property
    def final(self) -> str:
        """The condition type of a finished Job."""
        return "Complete" if self.success else "Failed"


def decided_outcome(job: Tree) -> JobOutcome | None:
    """Return the outcome that was decided earlier, while pods still had to end."""
    status = unstructured.mapping(job.get("status"))
    for success, type_ in ((False, "FailureTarget"), (True, "SuccessCriteriaMet")):
        if found := conditions.find_true(status, type_):
            return JobOutcome(success, unstructured.text(found.get("reason")), unstructured.text(found.get("message")))
    return None


def is_over(job: Tree) -> bool:
    """Whether the Job has finished (condition Complete or Failed)."""
    status = unstructured.mapping(job.get("status"))
    return any(conditions.find_true(status, type_) for type_ in ("Complete", "Failed"))


# --- One failed pod ---------------------------------------------------------------------------------------------------


class FailureAction(Enum):
    """The effect of a failed pod on its Job (`podFailurePolicy.rules[].action`)."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


def failure_action(job: Tree, pod: Tree) -> tuple[FailureAction, str]:
    """Return the action of the first rule that matches a failed pod, and a message that names the rule."""
    for number, rule in unstructured.entries(job, "spec", "podFailurePolicy", "rules"):
        why = _matches_codes(rule.get("onExitCodes"), pod) or _matches_conditions(rule, pod)
        if why:
            action = FailureAction(unstructured.text(rule.get("action")))
            return action, f"{why} matching {action.value} rule at index {number}"
    return FailureAction.COUNT, ""


def _matches_codes(wanted: object, pod: Tree) -> str:
    codes = unstructured.sequence(unstructured.get(wanted, "values"))
    if not codes:
        return ""
    negated = unstructured.get(wanted, "operator") == "NotIn"
    for field in ("initContainerStatuses", "containerStatuses"):
        for _, status in unstructured.entries(pod, "status", field):
            code = unstructured.integer(unstructured.get(status, "state", "terminated", "exitCode"))
            named = unstructured.get(wanted, "containerName") in (None, status.get("name"))
            if code and named and (code in codes) is not negated:
                return f"Container {status.get('name')} for pod {_key(pod)} failed with exit code {code}"
    return ""


def _matches_conditions(rule: Mapping[str, Any], pod: Tree) -> str:
    for _, pattern in unstructured.entries(rule, "onPodConditions"):
        for _, condition in unstructured.entries(pod, "status", "conditions"):
            if (condition.get("type"), condition.get("status")) == (pattern.get("type"), pattern.get("status", "True")):
                return f"Pod {_key(pod)} has condition {pattern.get('type')}"
    return ""


def _key(pod: Tree) -> str:
    namespace, name = (unstructured.text(unstructured.get(pod, "metadata", field)) for field in ("namespace", "name"))
    return f"{namespace}/{name}"


# --- The Job ----------------------------------------------------------------------------------------------------------


class JobProgress(msgspec.Struct, frozen=True):
    """The counts of a Job so far."""

    active: int
    succeeded: int
    failed: int
    completed: Set[int]
    failed_indexes: Set[int]
    # Container restarts in active pods.
    restarts: int
    # The message of a failure policy rule with action FailJob, if one matched.
    fatal: str = ""
    # How the last failed container ended.
    failure: str = ""
    # When the last container of its pods ended; 0 if none has.
    ended: int = 0


BACKOFF_LIMIT: Final = "BackoffLimitExceeded"
DEADLINE: Final = "DeadlineExceeded"


def failure(exit_code: int, signal: int = 0, message: str = "") -> str:
    """Return how a container failed: the message of the runner, else the signal, else the exit code."""
    if message:
        return f"failed: {message}"
    return f"failed: killed by signal {signal}" if signal else f"failed with exit code {exit_code}"


def without_retries(failure: str) -> str:
    """Return the message of a Job whose last retry failed like this."""
    return f"{failure}; no retries left"


def outcome(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    """Return the outcome of the first rule that decides the Job; None while it goes on."""
    for rule in _RULES:
        if end := rule(job, progress, now):
            return end
    return None


def _number(job: Tree, name: str) -> int | None:
    return unstructured.integer(unstructured.get(job, "spec", name))


def _by_failure_policy(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    return JobOutcome(False, "PodFailurePolicy", progress.fatal) if progress.fatal else None


def _by_backoff_limit(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    limit = _number(job, "backoffLimit")
    limit = 6 if limit is None else limit
    restarted = progress.restarts > 0 and progress.restarts >= max(limit, 1)
    if progress.failed > limit or restarted:
        return JobOutcome(False, BACKOFF_LIMIT, without_retries(progress.failure or "failed"))
    return None


def _by_deadline(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    deadline = deadline_of(job)
    if deadline is not None and now >= deadline and not _was_done_by(deadline, job, progress, now):
        return JobOutcome(False, DEADLINE, f"time limit of {_number(job, 'activeDeadlineSeconds')} s exceeded")
    return None


def _was_done_by(deadline: int, job: Tree, progress: JobProgress, now: int) -> bool:
    """Whether the last pod ended before the deadline and decided the Job, and only the controller is late."""
    if progress.active or not 0 < progress.ended < deadline:
        return False
    return any(rule(job, progress, now) for rule in (_by_success_policy, _by_failed_indexes, _by_completions))


def _by_failed_indexes(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    most, completions = _number(job, "maxFailedIndexes"), _number(job, "completions")
    if most is not None and len(progress.failed_indexes) > most:
        return JobOutcome(False, "MaxFailedIndexesExceeded", f"more than {most} indexes have failed")
    if progress.failed_indexes and len(progress.failed_indexes | progress.completed) >= (completions or 0):
        return JobOutcome(False, "FailedIndexes", f"indexes have failed: {job_indexes.format(progress.failed_indexes)}")
    return None


def _by_success_policy(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    for number, rule in unstructured.entries(job, "spec", "successPolicy", "rules"):
        text = unstructured.text(rule.get("succeededIndexes"))
        completions = _number(job, "completions") or 0
        done = job_indexes.among(progress.completed, text, completions) if text else len(progress.completed)
        wanted = unstructured.integer(rule.get("succeededCount")) or job_indexes.count([text], completions)
        if wanted and done >= wanted:
            return JobOutcome(True, "SuccessPolicy", f"Matched rules at index {number}")
    return None


def _by_completions(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    completions = _number(job, "completions")
    if completions is None:
        # A work queue Job: one success means that the work is done, and the other pods may finish.
        complete = progress.succeeded > 0 and progress.active == 0
    else:
        complete = progress.succeeded >= completions
    return (
        JobOutcome(
            True, "CompletionsReached", f"{progress.succeeded} of {completions or progress.succeeded} pods succeeded"
        )
        if complete
        else None
    )


_RULES: Final[Sequence[Callable[[Tree, JobProgress, int], JobOutcome | None]]] = (
    _by_failure_policy,
    _by_backoff_limit,
    _by_deadline,
    _by_success_policy,
    _by_failed_indexes,
    _by_completions,
)


def deadline_of(job: Tree) -> int | None:
    """Return when `activeDeadlineSeconds` expires; None without a deadline."""
    seconds = _number(job, "activeDeadlineSeconds")
    started = unstructured.text(unstructured.get(job, "status", "startTime"))
    if seconds is None or not started or unstructured.get(job, "spec", "suspend"):
        return None
    return meta.parse_time(started) + seconds * meta.SECOND
