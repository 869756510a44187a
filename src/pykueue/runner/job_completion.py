"""When a Job is over, and what a failed pod means for it: limits, deadlines, the failure policy, the success policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kubemachinery import job_indexes, meta, unstructured
from kubemachinery.unstructured import Tree
from pykueue.runner import conditions


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The Job is over, or will be once its last pod is."""

    success: bool
    reason: str
    message: str

    @property
    def target(self) -> str:
        """The condition that says that it is decided."""
        return "SuccessCriteriaMet" if self.success else "FailureTarget"

    @property
    def final(self) -> str:
        """The condition that says that it is over."""
        return "Complete" if self.success else "Failed"


def decided_outcome(job: Tree) -> JobOutcome | None:
    """What was decided earlier, while pods still had to end."""
    status = unstructured.mapping(job.get("status"))
    for success, type_ in ((False, "FailureTarget"), (True, "SuccessCriteriaMet")):
        if found := conditions.find_true(status, type_):
            return JobOutcome(success, unstructured.text(found.get("reason")), unstructured.text(found.get("message")))
    return None


def is_over(job: Tree) -> bool:
    status = unstructured.mapping(job.get("status"))
    return any(conditions.find_true(status, type_) for type_ in ("Complete", "Failed"))


# --- One failed pod ---------------------------------------------------------------------------------------------------


class FailureAction(Enum):
    """What the failure of a pod does to its Job."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


def failure_action(job: Tree, pod: Tree) -> tuple[FailureAction, str]:
    """What the first rule that matches a failed pod says, and in words which one that was."""
    for number, rule in unstructured.entries(job, "spec", "podFailurePolicy", "rules"):
        why = _matches_codes(rule.get("onExitCodes"), pod) or _matches_conditions(rule, pod)
        if why:
            name = unstructured.text(unstructured.get(pod, "metadata", "name"))
            return FailureAction(
                unstructured.text(rule.get("action"))
            ), f"pod {name} {why}, which rule {number} speaks of"
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
                return f"has container {status.get('name')} that ended with {code}"
    return ""


def _matches_conditions(rule: Mapping[str, Any], pod: Tree) -> str:
    for _, pattern in unstructured.entries(rule, "onPodConditions"):
        for _, condition in unstructured.entries(pod, "status", "conditions"):
            if (condition.get("type"), condition.get("status")) == (pattern.get("type"), pattern.get("status", "True")):
                return f"has condition {pattern.get('type')}"
    return ""


# --- The Job ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How a Job has fared until now."""

    active: int
    succeeded: int
    failed: int
    completed: Set[int]
    failed_indexes: Set[int]
    # Restarts inside of pods that still run.
    restarts: int
    # The word of a failure policy that the whole Job has failed.
    fatal: str = ""
    # How the last failed pod ended.
    failure: str = ""


BACKOFF_LIMIT: Final = "BackoffLimitExceeded"


def failure(exit_code: int, signal: int = 0, message: str = "") -> str:
    """How a container failed: what the runner noted, the signal, or else the exit code."""
    if message:
        return f"failed: {message}"
    return f"failed: killed by signal {signal}" if signal else f"failed with exit code {exit_code}"


def without_retries(failure: str) -> str:
    """The reason of a Job whose last retry ended so."""
    return f"{failure}; no retries left"


def outcome(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    """The first reason for the Job to be over, if there is one."""
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
    if deadline is not None and now >= deadline:
        return JobOutcome(
            False, "DeadlineExceeded", f"time limit of {_number(job, 'activeDeadlineSeconds')} s exceeded"
        )
    return None


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
        named = set(job_indexes.parse(text, _number(job, "completions") or 0)) if text else None
        done = progress.completed if named is None else progress.completed & named
        wanted = unstructured.integer(rule.get("succeededCount")) or len(named or ())
        if wanted and len(done) >= wanted:
            return JobOutcome(True, "SuccessPolicy", f"rule {number} of the success policy is met")
    return None


def _by_completions(job: Tree, progress: JobProgress, now: int) -> JobOutcome | None:
    completions = _number(job, "completions")
    if completions is None:
        # As many as run; one success says that the work is done, and the others may finish.
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
    """When the Job runs out of time."""
    seconds = _number(job, "activeDeadlineSeconds")
    started = unstructured.text(unstructured.get(job, "status", "startTime"))
    if seconds is None or not started or unstructured.get(job, "spec", "suspend"):
        return None
    return meta.parse_time(started) + seconds * meta.SECOND
