"""KEP-993: quota first, then whatever else has to agree.

Sections are those of the proposal; its states Unknown, True, False+Retry and False+Reject are `Pending`, `Ready`,
`Retry` and `Rejected` here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from keps.engines import Engine
from keps.system import System, system
from kubemachinery.client.errors import Invalid
from kubemachinery.unstructured import get
from pykueue.state.world import World
from pykueue.testing import Kueue

ONE_AND_TWO = pytest.mark.parametrize("names", [("c1",), ("c1", "c2")], ids=["one check", "two checks"])
LATER = {"preemptionPolicy": "AfterCheckPassedOrOnDemand"}
LOWER = {"withinClusterQueue": "LowerPriority"}


def strategy(names: Sequence[str]) -> dict[str, Any]:
    return {"admissionChecksStrategy": {"admissionChecks": [{"name": name} for name in names]}} if names else {}


async def checked(env: System, names: Sequence[str], policy: dict[str, Any] | None = None, **spec: Any) -> None:
    """A queue of five cores behind these checks."""
    for name in names:
        await env.check(name, **(policy or {}))
    await env.queue(**strategy(names), **spec)


# --- Test Plan, Integration tests -------------------------------------------------------------------------------------


@ONE_AND_TWO
async def test_from_suspended_to_prechecked_with_the_checks_added(engine: Engine, names: tuple[str, ...]) -> None:
    async with system(engine) as env:
        await checked(env, names)
        await env.asks("w")
        await env.until_condition("w", "QuotaReserved", "True/QuotaReserved")
        assert await env.states("w") == dict.fromkeys(names, "Pending")
        assert (await env.condition("w", "Admitted")).startswith("False/")
        assert get(await env.read("Workload", "w"), "status", "admission", "clusterQueue") == "cq"


@ONE_AND_TWO
async def test_from_prechecked_to_admitted_when_every_check_has_passed(engine: Engine, names: tuple[str, ...]) -> None:
    async with system(engine) as env:
        await checked(env, names)
        await env.asks("w")
        for name in names:
            assert not (await env.condition("w", "Admitted")).startswith("True")
            await env.answers("w", name, "Ready")
        await env.until_condition("w", "Admitted", "True/Admitted")


@ONE_AND_TWO
async def test_from_prechecked_back_to_suspended_because_of_quota(engine: Engine, names: tuple[str, ...]) -> None:
    """Design Details: once all checks are satisfied, Kueue rechecks that Admission settings are still valid."""
    async with system(engine) as env:
        await checked(env, names)
        await env.asks("w")
        await env.until_asked("w", *names)
        less = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [less]}]
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": groups}})
        await env.quiet()  # the queue is another before the checks have passed
        for name in names:
            await env.answers("w", name, "Ready")
        await env.until_condition("w", "QuotaReserved", "False/ExceedsMaxQuota")
        assert await env.states("w") == dict.fromkeys(names, "Pending")
        assert get(await env.read("Workload", "w"), "spec", "active") is not False


async def test_quota_that_was_given_holds_though_the_check_has_become_inactive_since(engine: Engine) -> None:
    """Design Details: what is rechecked is the Admission; a queue that gives nothing new takes nothing back."""
    async with system(engine) as env:
        await checked(env, ("c1",))
        await env.asks("w")
        await env.until_asked("w", "c1")
        await env.set_condition("AdmissionCheck", "c1", "Active", "False", "Gone")
        await env.until_condition("cq", "Active", "False/AdmissionCheckInactive", "ClusterQueue")
        await env.answers("w", "c1", "Ready")
        await env.until_condition("w", "Admitted", "True/Admitted")


@ONE_AND_TWO
async def test_from_prechecked_back_to_suspended_because_of_other_flavors(
    engine: Engine, names: tuple[str, ...]
) -> None:
    async with system(engine) as env:
        await checked(env, names)
        await env.asks("w")
        await env.until_asked("w", *names)
        await env.create("ResourceFlavor", "new", {})
        other = {"name": "new", "resources": [{"name": "cpu", "nominalQuota": "5"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [other]}]
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": groups}})
        await env.quiet()  # the queue is another before the checks have passed
        for name in names:
            await env.answers("w", name, "Ready")

        async def is_on_the_new_flavor() -> bool:
            assigned = get(await env.read("Workload", "w"), "status", "admission", "podSetAssignments") or []
            return [each["flavors"] for each in assigned] == [{"cpu": "new"}]

        await env.until(is_on_the_new_flavor)
        assert not (await env.condition("w", "Admitted")).startswith("True")
        assert await env.states("w") == dict.fromkeys(names, "Pending")  # they answered for another flavor


@ONE_AND_TWO
async def test_from_prechecked_to_suspended_because_of_a_retry(engine: Engine, names: tuple[str, ...]) -> None:
    """One Retry is enough, and every check is reset. With `retryDelayMinutes: 0` that is at once."""
    async with system(engine) as env:
        await checked(env, names, {"retryDelayMinutes": 0})
        await env.asks("w")
        for name in names[1:]:
            await env.answers("w", name, "Ready")
        await env.answers("w", "c1", "Retry")
        await env.until_condition("w", "Evicted", "True/AdmissionCheck")
        await env.release("w")
        await env.until_condition("w", "QuotaReserved", "True/QuotaReserved")
        assert await env.states("w") == dict.fromkeys(names, "Pending")


@ONE_AND_TWO
async def test_from_prechecked_to_rejected(engine: Engine, names: tuple[str, ...]) -> None:
    """Only one is required to reject a workload."""
    async with system(engine) as env:
        await checked(env, names)
        await env.asks("w")
        for name in names[1:]:
            await env.answers("w", name, "Ready")
        await env.answers("w", "c1", "Rejected")

        async def is_over() -> bool:
            return get(await env.read("Workload", "w"), "spec", "active") is False

        await env.until(is_over)
        await env.until_condition("w", "Evicted", "True/DeactivatedDueToAdmissionCheck")


async def test_from_prechecked_to_admitted_without_checks(engine: Engine) -> None:
    async with system(engine) as env:
        await checked(env, ())
        await env.asks("w")
        await env.until_condition("w", "Admitted", "True/Admitted")


# --- Goals, Proposal --------------------------------------------------------------------------------------------------


@ONE_AND_TWO
@pytest.mark.parametrize(
    ("state", "reason"), [("Retry", "AdmissionCheck"), ("Rejected", "DeactivatedDueToAdmissionCheck")]
)
async def test_a_check_that_changes_its_mind_stops_a_running_workload(
    engine: Engine, names: tuple[str, ...], state: str, reason: str
) -> None:
    async with system(engine) as env:
        await checked(env, names)
        await env.asks("w")
        for name in names:
            await env.answers("w", name, "Ready")
        await env.until_condition("w", "Admitted", "True/Admitted")
        await env.answers("w", names[-1], state)
        await env.until_condition("w", "Evicted", f"True/{reason}")


async def test_checks_are_asked_before_there_is_quota_and_all_at_the_same_time(engine: Engine) -> None:
    """Design Details: QuotaReserved is False and every check is Unknown for each Workload that comes to the queue."""
    async with system(engine) as env:
        await checked(env, ("c1", "c2"))
        await env.asks("first")
        await env.until_condition("first", "QuotaReserved", "True/QuotaReserved")
        await env.asks("second")
        await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
        assert await env.states("second") == {"c1": "Pending", "c2": "Pending"}
        mirror = (await env.read("Workload", "second"))["status"]["admissionChecksConditions"]
        assert [(each["type"], each["status"]) for each in mirror] == [("c1", "Unknown"), ("c2", "Unknown")]


async def test_the_order_in_which_checks_answer_does_not_matter(engine: Engine) -> None:
    """Every pair of answers, in both orders: one Rejected is enough, else one Retry, else all must be Ready."""
    outcomes = {
        "Rejected": ("Evicted", "True/DeactivatedDueToAdmissionCheck"),
        "Retry": ("Evicted", "True/AdmissionCheck"),
    }
    async with system(engine) as env:
        await checked(env, ("c1", "c2"))
        for number, (first, second) in enumerate(itertools.product(("Ready", "Retry", "Rejected"), repeat=2)):
            for names in (("c1", "c2"), ("c2", "c1")):
                workload = f"w-{number}-{names[0]}"
                await env.asks(workload, {"cpu": "100m"})
                if first == "Ready":  # alone it decides nothing, so that the other may take its time
                    await env.answers(workload, names[0], first)
                    await env.answers(workload, names[1], second)
                else:
                    await env.answer_together(workload, {names[0]: first, names[1]: second})
                worst = next((state for state in outcomes if state in (first, second)), "Ready")
                await env.until_condition(workload, *outcomes.get(worst, ("Admitted", "True/Admitted")))


@pytest.mark.parametrize(
    ("status", "reason", "state"),
    [("True", "Ready", "Ready"), ("False", "Retry", "Retry"), ("False", "Reject", "Rejected")],
)
async def test_an_answer_may_be_a_condition(engine: Engine, status: str, reason: str, state: str) -> None:
    """Design Details, `admissionChecksConditions`: a condition of the check's name is equivalent."""
    async with system(engine) as env:
        await checked(env, ("c1",), {"retryDelayMinutes": 15})
        await env.asks("w")
        await env.until_asked("w", "c1")
        condition = {"type": "c1", "status": status, "reason": reason, "message": "", "lastTransitionTime": _tomorrow()}
        await env.patch("Workload", "w", {"status": {"admissionChecksConditions": [condition]}}, "status")
        expected = {"Ready": ("Admitted", "True/Admitted"), "Retry": ("Evicted", "True/AdmissionCheck")}
        await env.until_condition("w", *expected.get(state, ("Evicted", "True/DeactivatedDueToAdmissionCheck")))


async def test_both_forms_of_an_answer_are_kept_alike(engine: Engine) -> None:
    async with system(engine) as env:
        await checked(env, ("c1",))
        await env.asks("w")
        await env.answers("w", "c1", "Ready")
        await env.until_condition("w", "Admitted", "True/Admitted")
        (mirror,) = (await env.read("Workload", "w"))["status"]["admissionChecksConditions"]
        assert (mirror["type"], mirror["status"], mirror["reason"]) == ("c1", "True", "Ready")


async def test_after_a_retry_it_stays_out_for_a_quarter_of_an_hour(engine: Engine) -> None:
    """Design Details, `retryDelayMinutes`: the default is 15 min."""
    async with system(engine) as env:
        await checked(env, ("c1",))
        await env.asks("w")
        await env.answers("w", "c1", "Retry")
        await env.until_condition("w", "Evicted", "True/AdmissionCheck")
        found = await env.read("Workload", "w")
        evicted = next(each for each in found["status"]["conditions"] if each["type"] == "Evicted")
        at, since = get(found, "status", "requeueState", "requeueAt"), evicted["lastTransitionTime"]
        assert 895 <= (datetime.fromisoformat(at) - datetime.fromisoformat(since)).total_seconds() <= 905


PAID = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: c1}
spec: {controllerName: checks.example/c1}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: paid}
spec:
  namespaceSelector: {}
  admissionChecksStrategy: {admissionChecks: [{name: c1}]}
  resourceGroups: [{coveredResources: [cpu, memory], flavors: [{name: plain, resources: [
    {name: cpu, nominalQuota: 1}, {name: memory, nominalQuota: 1Gi}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: paid, namespace: default}
spec: {clusterQueue: paid}
"""


@pytest.mark.parametrize("has_quota", [True, False], ids=["with quota", "without quota"])
def test_after_the_default_delay_of_a_retry_the_check_is_pending_and_the_workload_queued_again(
    kueue: Kueue, has_quota: bool
) -> None:
    """Design Details, `retryDelayMinutes`: suspended for 15 min; "After that the check state goes to Unknown"."""

    def job_of(command: list[str]) -> str:
        before = {each["metadata"]["name"] for each in kueue.all("workload")}
        kueue.submit(command, queue="paid", cpu=1, memory="1Gi")
        [made] = [n for each in kueue.all("workload") if (n := each["metadata"]["name"]) not in before]
        return str(made)

    def answer(workload: str, state: str) -> None:
        [at] = {each["lastTransitionTime"] for each in kueue.get("workload", workload)["status"]["admissionChecks"]}
        check = {"name": "c1", "state": state, "message": "", "lastTransitionTime": at}
        kueue.patch("workload", workload, {"status": {"admissionChecks": [check]}}, subresource="status")

    def state(workload: str) -> tuple[str, bool]:
        status = kueue.get("workload", workload)["status"]
        [check] = status["admissionChecks"]
        return check["state"], "admission" in status

    kueue.apply(PAID)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    active["lastTransitionTime"] = kueue.get("admissioncheck", "c1")["metadata"]["creationTimestamp"]
    kueue.patch("admissioncheck", "c1", {"status": {"conditions": [active]}}, subresource="status")
    if not has_quota:
        other = job_of(["sleep", "1200"])
        answer(other, "Ready")
        assert state(other) == ("Ready", True)
    workload = job_of(["sleep", "60"])
    assert state(workload) == ("Pending", has_quota)
    answer(workload, "Retry")
    during = ("Pending" if has_quota else "Retry", False)  # an eviction resets the state at once
    assert state(workload) == during
    kueue.advance(14 * 60)
    assert state(workload) == during
    kueue.advance(2 * 60)
    assert state(workload) == ("Pending", has_quota)
    kueue.advance(10 * 60)
    assert state(workload) == ("Pending", True)


async def test_a_check_may_set_the_retry_delay(engine: Engine) -> None:
    """`requeueAfterSeconds` overrides the delay; when it is over the check is Pending and quota is reserved again."""
    async with system(engine) as env:
        await checked(env, ("c1",))
        await env.asks("w")
        await env.answers("w", "c1", "Retry", requeueAfterSeconds=1)
        await env.until_condition("w", "Evicted", "True/AdmissionCheck")
        await env.release("w")
        await env.until_condition("w", "QuotaReserved", "True/QuotaReserved")
        assert await env.states("w") == {"c1": "Pending"}


async def test_a_workload_waiting_for_checks_keeps_its_quota(engine: Engine) -> None:
    """A queue does not let the next one in because the first does not pass its checks."""
    async with system(engine) as env:
        await checked(env, ("c1",))
        await env.asks("first")
        await env.until_condition("first", "QuotaReserved", "True/QuotaReserved")
        await env.asks("second")
        await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
        await env.quiet()
        assert (await env.condition("second", "QuotaReserved")).startswith("False")
        await env.answers("first", "c1", "Rejected")
        await env.until_condition("first", "Evicted", "True/DeactivatedDueToAdmissionCheck")
        await env.release("first")
        await env.until_condition("second", "QuotaReserved", "True/QuotaReserved")


async def test_no_workload_is_admitted_while_a_check_is_inactive(engine: Engine) -> None:
    async with system(engine) as env:
        await checked(env, ("c1",))
        await env.asks("waits")
        await env.until_condition("waits", "QuotaReserved", "True/QuotaReserved")
        await env.set_condition("AdmissionCheck", "c1", "Active", "False", "Gone")
        await env.until_condition("cq", "Active", "False/AdmissionCheckInactive", "ClusterQueue")
        await env.asks("new", {"cpu": "1"})
        await env.quiet()
        assert not (await env.condition("new", "QuotaReserved")).startswith("True")
        assert (await env.condition("waits", "QuotaReserved")) == "True/QuotaReserved"
        await env.set_condition("AdmissionCheck", "c1", "Active", "True", "Active")
        await env.until_condition("new", "QuotaReserved", "True/QuotaReserved")


async def test_a_check_is_not_deleted_under_those_who_wait_for_it(engine: Engine) -> None:
    """It is kept until no queue lists it. After its removal from the list no Workload waits for it."""
    async with system(engine) as env:
        await checked(env, ("c1", "c2"))
        await env.asks("w")
        await env.answers("w", "c1", "Ready")
        await env.until_asked("w", "c2")
        await env.delete("AdmissionCheck", "c2")
        await env.quiet()
        assert get(await env.read("AdmissionCheck", "c2"), "metadata", "deletionTimestamp")
        assert not (await env.condition("w", "Admitted")).startswith("True")
        await env.patch("ClusterQueue", "cq", {"spec": strategy(("c1",))})
        await env.until_condition("w", "Admitted", "True/Admitted")

        async def is_gone() -> bool:
            return await env.find("AdmissionCheck", "c2") is None

        await env.until(is_gone)


@pytest.mark.parametrize(("spec", "place"), [({"controllerName": ""}, "controllerName"), ({}, "controllerName")])
async def test_a_check_names_its_controller(engine: Engine, spec: dict[str, Any], place: str) -> None:
    """Design Details: the name with which the controller identifies; it cannot be empty."""
    async with system(engine) as env:
        with pytest.raises(Invalid, match=place):
            await env.create("AdmissionCheck", "c1", spec)


async def test_an_unknown_preemption_policy_is_refused(engine: Engine) -> None:
    async with system(engine) as env:
        with pytest.raises(Invalid, match="preemptionPolicy"):
            await env.check("c1", preemptionPolicy="Whenever")


# --- Design Details: when preemptions are issued ----------------------------------------------------------------------


async def _meek_runs(env: System, names: Sequence[str] = ("c1",)) -> None:
    await env.asks("meek", priority=1)
    for name in names:
        await env.answers("meek", name, "Ready")
    await env.until_condition("meek", "Admitted", "True/Admitted")


async def test_anytime_preempts_at_reservation_time(engine: Engine) -> None:
    async with system(engine) as env:
        await checked(env, ("c1",), preemption=LOWER)
        await _meek_runs(env)
        await env.asks("bold", priority=9)
        await env.until_condition("meek", "Evicted", "True/Preempted")
        assert not (await env.condition("bold", "QuotaReserved")).startswith("True")


@ONE_AND_TWO
async def test_preemptions_wait_until_every_such_check_has_passed(
    engine: Engine, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then their end wakes who was waiting for it; no clock has to."""
    async with system(engine) as env:
        await checked(env, names, LATER, preemption=LOWER)
        await _meek_runs(env, names)
        await env.asks("bold", priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        for name in names[:-1]:
            await env.answers("bold", name, "Ready")
        await env.quiet()
        assert await env.condition("meek", "Evicted") == ""
        await env.answers("bold", names[-1], "Ready")
        await env.until_condition("meek", "Evicted", "True/Preempted")
        await env.quiet()
        assert not (await env.condition("bold", "Admitted")).startswith("True")  # not before it is gone
        monkeypatch.setattr(World, "next_wake", lambda _: None)  # the clock would wake it, too
        await env.release("meek")
        await env.until_condition("bold", "Admitted", "True/Admitted")
        assert set((await env.states("meek")).values()) == {"Pending"}


@pytest.mark.parametrize("names", [("c1",), ("other", "c1")], ids=["the check itself", "another check"])
async def test_a_check_may_ask_for_preemptions_on_demand(engine: Engine, names: tuple[str, ...]) -> None:
    async with system(engine) as env:
        await checked(env, names, LATER, preemption=LOWER)
        await _meek_runs(env, names)
        await env.asks("bold", priority=9)
        await env.answers("bold", names[0], "PreemptionRequired")
        await env.until_condition("meek", "Evicted", "True/Preempted")
        await env.release("meek")
        await env.quiet()
        assert (await env.condition("bold", "QuotaReserved")) == "True/QuotaReserved"
        assert not (await env.condition("bold", "Admitted")).startswith("True")
        for name in names:
            await env.answers("bold", name, "Ready")
        await env.until_condition("bold", "Admitted", "True/Admitted")


@pytest.mark.parametrize("reason", ["PreemptionRequired", "BookQuotaRequired"])
async def test_a_check_may_ask_for_preemptions_by_the_reason_of_its_condition(engine: Engine, reason: str) -> None:
    """Design Details: "Should be set when condition status is still Unknown"; the condition stays as it was written."""
    async with system(engine) as env:
        await checked(env, ("c1",), LATER, preemption=LOWER)
        await _meek_runs(env)
        await env.asks("bold", priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        await env.until_asked("bold", "c1")
        condition = {
            "type": "c1",
            "status": "Unknown",
            "reason": reason,
            "message": "",
            "lastTransitionTime": _tomorrow(),
        }
        await env.patch("Workload", "bold", {"status": {"admissionChecksConditions": [condition]}}, "status")
        await env.until_condition("meek", "Evicted", "True/Preempted")
        found = (await env.read("Workload", "bold"))["status"]
        assert await env.states("bold") == {"c1": "PreemptionRequired"}
        assert [(each["status"], each["reason"]) for each in found["admissionChecksConditions"]] == [
            ("Unknown", reason)
        ]
        assert not (await env.condition("bold", "Admitted")).startswith("True")
        await env.release("meek")
        passed = {**condition, "status": "True", "reason": "Ready", "lastTransitionTime": "2101-01-01T00:00:00Z"}
        await env.patch("Workload", "bold", {"status": {"admissionChecksConditions": [passed]}}, "status")
        await env.until_condition("bold", "Admitted", "True/Admitted")


@ONE_AND_TWO
async def test_a_target_that_has_become_more_important_is_not_evicted(engine: Engine, names: tuple[str, ...]) -> None:
    """Design Details: once all checks are satisfied, preemptions are computed again; nothing else frees quota here."""
    async with system(engine) as env:
        await checked(env, names, LATER, preemption=LOWER)
        await _meek_runs(env, names)
        await env.asks("bold", priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        await env.until_asked("bold", *names)
        await env.patch("Workload", "meek", {"spec": {"priority": 10}})
        await env.quiet()
        await env.answer_together("bold", dict.fromkeys(names, "Ready"))
        await env.until_condition("bold", "QuotaReserved", "False/WaitingForQuota")
        await env.until_states("bold", **dict.fromkeys(names, "Pending"))
        assert await env.condition("meek", "Evicted") == ""
        assert await env.condition("meek", "Admitted") == "True/Admitted"
        assert get(await env.read("Workload", "bold"), "spec", "active") is not False


@pytest.mark.parametrize("answer", ["Ready", "PreemptionRequired"])
async def test_another_target_is_evicted_where_the_assumed_one_is_not_legal_any_more(
    engine: Engine, answer: str
) -> None:
    """Design Details: "doing any pending or newly identified preemptions"."""
    async with system(engine) as env:
        await checked(env, ("c1",), LATER, preemption=LOWER)
        for name, priority in (("meek", 1), ("mild", 2)):
            await env.asks(name, {"cpu": "2"}, priority=priority)
            await env.answers(name, "c1", "Ready")
            await env.until_condition(name, "Admitted", "True/Admitted")
        await env.asks("bold", {"cpu": "3"}, priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        await env.until_asked("bold", "c1")
        await env.patch("Workload", "meek", {"spec": {"priority": 10}})
        await env.quiet()
        await env.answers("bold", "c1", answer)
        await env.until_condition("mild", "Evicted", "True/Preempted")
        assert await env.condition("meek", "Evicted") == ""
        await env.release("mild")
        if answer != "Ready":
            await env.answers("bold", "c1", "Ready")
        await env.until_condition("bold", "Admitted", "True/Admitted")


async def test_what_a_victim_holds_is_promised_to_one_workload_only(engine: Engine) -> None:
    """Only as many Workloads reserve as fit together, assuming that necessary preemptions will happen."""
    async with system(engine) as env:
        await checked(env, ("c1",), LATER, preemption=LOWER)
        await _meek_runs(env)
        await env.asks("bold", priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        await env.quiet()
        assert await env.manager_now.auditor.look() == []  # a rebuilt state counts the same
        await env.asks("third", priority=8)
        await env.until_condition("third", "QuotaReserved", "False/WaitingForQuota")
        await env.asks("small", {"cpu": "1"})  # what both leave free
        await env.until_condition("small", "QuotaReserved", "True/QuotaReserved")
        await env.finish("meek")
        await env.quiet()
        assert (await env.condition("third", "QuotaReserved")).startswith("False")


async def test_victims_and_their_successor_count_together_as_the_larger_of_the_two(engine: Engine) -> None:
    async with system(engine) as env:
        await env.check("c1", **LATER)
        await env.queue({"cpu": "8"}, **strategy(("c1",)), preemption=LOWER)
        for name in ("meek", "mild"):
            await env.asks(name, {"cpu": "4"}, priority=1)
            await env.until_condition(name, "QuotaReserved", "True/QuotaReserved")
        await env.asks("bold", {"cpu": "6"}, priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        await env.asks("small", {"cpu": "2"}, priority=1)
        await env.until_condition("small", "QuotaReserved", "False/WaitingForQuota")  # 8 of 8: the victims
        await env.finish("meek")
        await env.until_condition("small", "QuotaReserved", "True/QuotaReserved")  # 6 of 8: their successor
        await env.quiet()
        assert await env.condition("mild", "Evicted") == ""


async def test_a_manager_that_comes_back_finishes_what_was_put_off(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No state has the deferred targets any more: they are found again, and no quota is given twice."""
    async with engine.served() as env:
        async with env.manager() as env.running:
            await checked(env, ("c1",), LATER, preemption=LOWER)
            await _meek_runs(env)
            await env.asks("bold", priority=9)
            await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
            await env.quiet()
        async with env.manager() as env.running:
            await env.quiet()
            assert await env.condition("meek", "Evicted") == ""
            await env.answers("bold", "c1", "Ready")
            await env.until_condition("meek", "Evicted", "True/Preempted")
            monkeypatch.setattr(World, "next_wake", lambda _: None)
            await env.release("meek")
            await env.until_condition("bold", "Admitted", "True/Admitted")


async def test_a_victim_stays_when_its_preemptor_goes_first(engine: Engine) -> None:
    """A deferred preemption is not done for a preemptor that was deleted."""
    async with system(engine) as env:
        await checked(env, ("c1",), LATER, preemption=LOWER)
        await _meek_runs(env)
        await env.asks("bold", priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        await env.patch("Workload", "bold", {"spec": {"active": False}})
        await env.until_condition("bold", "Evicted", "True/Deactivated")
        await env.release("bold")
        await env.quiet()
        assert await env.condition("meek", "Evicted") == ""
        assert await env.condition("meek", "Admitted") == "True/Admitted"
        await env.asks("small", {"cpu": "1"})  # no quota is assumed any more
        await env.until_condition("small", "QuotaReserved", "True/QuotaReserved")


async def test_a_preemptor_is_itself_preempted_before_its_time(engine: Engine) -> None:
    """The last preemptor takes the quota of both, and no other Workload runs beside it."""
    async with system(engine) as env:
        await checked(env, ("c1",), LATER, preemption=LOWER)
        await _meek_runs(env)
        await env.asks("bold", priority=9)
        await env.until_condition("bold", "QuotaReserved", "True/QuotaReserved")
        await env.asks("bolder", priority=10)
        await env.until_condition("bolder", "QuotaReserved", "True/QuotaReserved")
        await env.quiet()
        assert await env.condition("meek", "Evicted") == ""  # its checks have not answered yet
        await env.answers("bolder", "c1", "Ready")
        for victim in ("bold", "meek"):  # the target of a target is evicted next
            await env.until_condition(victim, "Evicted", "True/Preempted")
            await env.quiet()
            assert not (await env.condition("bolder", "Admitted")).startswith("True")
            await env.release(victim)
        await env.until_condition("bolder", "Admitted", "True/Admitted")
        await env.quiet()
        assert not (await env.condition("bold", "QuotaReserved")).startswith("True")
        assert await env.manager_now.auditor.look() == []


async def test_a_workload_with_quota_only_can_be_preempted_and_its_checks_are_reset(engine: Engine) -> None:
    """All Workloads with QuotaReserved are candidates for preemption."""
    async with system(engine) as env:
        await checked(env, ("c1", "c2"), preemption=LOWER)
        await env.asks("meek", priority=1)
        await env.answers("meek", "c1", "Ready")
        await env.until_asked("meek", "c2")
        await env.asks("bold", priority=9)
        await env.until_condition("meek", "Evicted", "True/Preempted")
        await env.until_states("meek", c1="Pending", c2="Pending")


def _tomorrow() -> str:
    """Newer than anything that the manager writes now."""
    return "2100-01-01T00:00:00Z"
