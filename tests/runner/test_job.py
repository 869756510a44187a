"""Decisions of the job controller on a small set of JSON trees: `play` applies the plan, `end` lets pods end."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubemachinery import meta
from pykueue.runner import conditions, job
from pykueue.runner.job import FINALIZER, INDEX, JobPlan

Tree = dict[str, Any]
START = meta.parse_time("2026-01-01T00:00:00Z")


class World:
    """A Job, its pods, and a clock that others set."""

    def __init__(self, **spec: Any) -> None:
        template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        whole = {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec}
        self.job: Tree = {"metadata": {"name": "j", "namespace": "n", "uid": "J"}, "spec": whole, "status": {}}
        self.pods: dict[str, Tree] = {}
        self.now = START
        self.made = 0

    # --- The controller -----------------------------------------------------------------------------------------------

    def plan(self) -> JobPlan:
        return job.decide(copy.deepcopy(self.job), copy.deepcopy(list(self.pods.values())), self.now)

    def deeds(self, plan: JobPlan) -> list[Any]:
        """What a plan asks for, one write after the other."""
        found: list[Any] = [lambda: self.job.update(status=plan.status)]
        found += [lambda pod=pod: self.release(pod) for pod in plan.release]
        found += [lambda pod=pod: self.delete(pod["metadata"]["uid"]) for pod in plan.delete]
        for pod in plan.discard:
            found += [lambda pod=pod: self.release(pod), lambda pod=pod: self.delete(pod["metadata"]["uid"])]
        return found + [lambda pod=pod: self.create(pod) for pod in plan.create]

    def play(self) -> JobPlan:
        plan = self.plan()
        for deed in self.deeds(plan):
            deed()
        return plan

    def settle(self) -> JobPlan:
        """Play until nothing changes any more."""
        for _ in range(20):
            before = copy.deepcopy((self.job, self.pods))
            plan = self.play()
            if (self.job, self.pods) == before:
                return plan
        raise AssertionError("it never comes to rest")

    # --- Others -------------------------------------------------------------------------------------------------------

    def create(self, pod: Tree) -> None:
        self.made += 1
        uid = f"p{self.made}"
        tree = copy.deepcopy(pod)
        tree["metadata"] |= {"uid": uid, "name": uid, "creationTimestamp": meta.format_time(self.now)}
        tree["status"] = {"phase": "Pending"}
        self.pods[uid] = tree

    def release(self, pod: Tree) -> None:
        found = self.pods.get(pod["metadata"]["uid"])
        if found is not None:
            found["metadata"]["finalizers"] = [f for f in found["metadata"]["finalizers"] if f != FINALIZER]
            self._reap(found)

    def delete(self, uid: str) -> None:
        if uid in self.pods:
            self.pods[uid]["metadata"]["deletionTimestamp"] = meta.format_time(self.now)
            self._reap(self.pods[uid])

    def _reap(self, pod: Tree) -> None:
        """Remove it once it is deleted, has ended, and has no finalizer."""
        details = pod["metadata"]
        over = pod["status"]["phase"] in ("Succeeded", "Failed", "Pending")
        if "deletionTimestamp" in details and not details["finalizers"] and over:
            self.pods.pop(details["uid"], None)

    def run(self) -> None:
        for pod in self.pods.values():
            if pod["status"]["phase"] == "Pending":
                pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    def end(self, uid: str, code: int = 0) -> None:
        state = {"terminated": {"exitCode": code, "finishedAt": meta.format_time(self.now)}}
        status = {"name": "c", "restartCount": 0, "state": state}
        self.pods[uid]["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [status]}
        self._reap(self.pods[uid])

    def later(self, seconds: float) -> None:
        self.now += int(seconds * meta.SECOND)

    # --- Questions ----------------------------------------------------------------------------------------------------

    @property
    def active(self) -> list[str]:
        return [
            uid
            for uid, pod in self.pods.items()
            if pod["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        ]

    @property
    def indexes(self) -> list[str]:
        return sorted(self.pods[uid]["metadata"]["annotations"][INDEX] for uid in self.active)

    def reason(self, type_: str) -> str:
        found = conditions.find_true(self.job["status"], type_)
        return str(found["reason"]) if found else ""

    def counts(self) -> tuple[int, int, int]:
        status = self.job["status"]
        return status.get("active", 0), status.get("succeeded", 0), status.get("failed", 0)


class TestPods:
    def test_parallelism_pods_run_until_completions_succeeded(self) -> None:
        world = World(parallelism=2, completions=3)
        world.settle()
        assert world.active == ["p1", "p2"]
        world.end("p1")
        world.settle()
        assert world.active == ["p2", "p3"]
        world.end("p2")
        world.settle()
        assert world.active == ["p3"], "two have succeeded, so one is left to run"
        world.end("p3")
        world.settle()
        assert world.counts() == (0, 3, 0)
        assert (world.reason("SuccessCriteriaMet"), world.reason("Complete")) == ("CompletionsReached",) * 2
        assert world.job["status"]["completionTime"]

    def test_pod_has_template_labels_owner_and_finalizer(self) -> None:
        world = World()
        world.settle()
        details = world.pods["p1"]["metadata"]
        assert details["labels"] == {"app": "x"}
        assert details["finalizers"] == [FINALIZER]
        assert details["ownerReferences"][0] | {} == {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "J",
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def test_without_completions_one_success_stops_the_creation_of_pods(self) -> None:
        world = World(parallelism=2, completions=None)
        world.settle()
        world.end("p1")
        world.settle()
        assert world.active == ["p2"]
        assert not world.reason("Complete")
        world.end("p2")
        world.settle()
        assert world.reason("Complete") == "CompletionsReached"

    def test_lower_parallelism_keeps_running_pods(self) -> None:
        world = World(parallelism=3, completions=3)
        world.settle()
        world.pods["p2"]["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        world.job["spec"]["parallelism"] = 1
        world.settle()
        assert world.active == ["p2"]
        assert world.counts() == (1, 0, 0), "what the Job itself takes away counts for nothing"

    def test_job_being_deleted_creates_no_pods(self) -> None:
        world = World()
        world.job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.settle()
        assert not world.pods

    def test_job_managed_by_another_controller_is_ignored(self) -> None:
        assert not job.is_managed_here({"spec": {"managedBy": "example.com/other"}})
        assert job.is_managed_here({"spec": {"managedBy": job.MANAGED_BY}})


class TestIndexes:
    def test_each_index_runs_until_it_has_succeeded_once(self) -> None:
        world = World(parallelism=2, completions=3, completionMode="Indexed")
        world.settle()
        assert world.indexes == ["0", "1"]
        world.end("p1")
        world.settle()
        assert world.indexes == ["1", "2"]
        assert world.job["status"]["completedIndexes"] == "0"
        for uid in list(world.active):
            world.end(uid)
        world.settle()
        assert world.job["status"]["completedIndexes"] == "0-2"
        assert world.counts() == (0, 3, 0)

    def test_a_container_finds_its_index_in_its_environment(self) -> None:
        world = World(completionMode="Indexed")
        world.settle()
        variable = world.pods["p1"]["spec"]["containers"][0]["env"][0]
        assert variable["name"] == "JOB_COMPLETION_INDEX"
        assert INDEX in variable["valueFrom"]["fieldRef"]["fieldPath"]

    def test_index_over_its_backoff_limit_fails_and_others_continue(self) -> None:
        world = World(
            parallelism=2, completions=2, completionMode="Indexed", backoffLimitPerIndex=1, backoffLimit=2**31 - 1
        )
        world.settle()
        for _ in range(2):
            failing = next(uid for uid in world.active if world.pods[uid]["metadata"]["annotations"][INDEX] == "0")
            world.end(failing, 1)
            world.settle()
            world.later(3600)
            world.settle()
        assert world.indexes == ["1"]
        assert world.job["status"]["failedIndexes"] == "0"
        assert not world.reason("Failed")
        world.end(world.active[0])
        world.settle()
        assert world.reason("Failed") == "FailedIndexes"

    def test_a_success_policy_ends_a_job_early(self) -> None:
        rules = [{"succeededIndexes": "0"}]
        world = World(parallelism=3, completions=3, completionMode="Indexed", successPolicy={"rules": rules})
        world.settle()
        world.run()
        world.end("p1")
        world.settle()
        assert world.reason("SuccessCriteriaMet") == "SuccessPolicy"
        assert not world.reason("Complete"), "two of its pods are still on their way out"
        for uid in list(world.pods):
            world.end(uid, 143)
        world.settle()
        assert world.reason("Complete") == "SuccessPolicy"

    def test_billions_of_indexes_are_not_listed(self) -> None:
        """One Job with the largest number of completions must not stop the controller for the others."""
        rules = [{"succeededIndexes": f"0-{2**31 - 2}", "succeededCount": 2}]
        world = World(parallelism=1, completions=2**31 - 1, completionMode="Indexed", successPolicy={"rules": rules})
        world.settle()
        world.end("p1", 1)
        assert world.settle().requeue_after_seconds == 10.0
        for _ in range(2):
            world.later(3600)
            world.settle()
            world.end(world.active[0])
            world.settle()
        assert world.reason("Complete") == "SuccessPolicy"


class TestFailing:
    def test_failed_pods_are_replaced_with_exponential_backoff(self) -> None:
        world = World()
        world.settle()
        waits = []
        for number in range(1, 4):
            world.end(f"p{number}", 1)
            plan = world.settle()
            assert world.active == [], "the pause is not over"
            assert plan.requeue_after_seconds is not None
            waits.append(plan.requeue_after_seconds)
            world.later(plan.requeue_after_seconds)
            world.settle()
        assert waits == [10.0, 20.0, 40.0]

    def test_more_failures_than_the_limit_fail_the_job(self) -> None:
        world = World(backoffLimit=1)
        world.settle()
        for number in (1, 2):
            world.end(f"p{number}", 1)
            world.settle()
            world.later(3600)
            world.settle()
        assert (world.reason("FailureTarget"), world.reason("Failed")) == ("BackoffLimitExceeded",) * 2
        assert world.counts() == (0, 0, 2)

    def test_restarts_inside_of_a_pod_count_towards_the_limit(self) -> None:
        world = World(backoffLimit=2)
        world.settle()
        world.pods["p1"]["status"] = {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 2}]}
        world.settle()
        assert world.reason("FailureTarget") == "BackoffLimitExceeded"

    def test_job_past_its_deadline_fails_and_its_pods_end(self) -> None:
        world = World(activeDeadlineSeconds=60)
        plan = world.settle()
        world.run()
        assert plan.requeue_after_seconds == 60
        world.later(60)
        world.settle()
        assert world.reason("FailureTarget") == "DeadlineExceeded"
        assert not world.reason("Failed")
        world.end("p1", 143)
        world.settle()
        assert world.reason("Failed") == "DeadlineExceeded"

    @pytest.mark.parametrize("code", [0, 3])
    def test_job_ends_with_its_last_pod_however_late_the_controller_sees_it(self, code: int) -> None:
        world = World(backoffLimit=0, ttlSecondsAfterFinished=30)
        world.settle()
        world.later(10)
        world.end("p1", code)
        ended = meta.format_time(world.now)
        world.later(3600)
        plan = world.settle()
        found = conditions.find_true(world.job["status"], "Failed" if code else "Complete")
        assert found is not None
        assert found["lastTransitionTime"] == ended
        assert world.job["status"].get("completionTime") == (None if code else ended)
        assert (plan.expired, plan.requeue_after_seconds) == (False, 30), "the outcome can be seen before it is deleted"
        world.later(30)
        assert world.plan().expired

    def test_end_of_a_job_that_its_controller_ends_is_not_that_of_an_earlier_pod(self) -> None:
        world = World(activeDeadlineSeconds=60)
        world.settle()
        world.end("p1", 1)
        world.later(10)
        world.settle()
        world.run()
        world.later(50)
        world.settle()
        world.end("p2", 143)
        world.settle()
        found = conditions.find_true(world.job["status"], "Failed")
        assert found is not None
        assert (found["reason"], found["lastTransitionTime"]) == ("DeadlineExceeded", meta.format_time(world.now))

    @pytest.mark.parametrize(
        ("code", "at", "reason"), [(0, 59, ""), (0, 60, "DeadlineExceeded"), (1, 59, "DeadlineExceeded")]
    )
    def test_job_whose_last_pod_succeeded_in_time_does_not_exceed_its_deadline(
        self, code: int, at: int, reason: str
    ) -> None:
        """The controller did not run at the deadline. A pod that failed would have been replaced."""
        world = World(activeDeadlineSeconds=60)
        world.settle()
        world.later(at)
        world.end("p1", code)
        world.later(600)
        world.settle()
        assert world.reason("Failed") == reason
        assert bool(world.reason("Complete")) is not bool(reason)

    @pytest.mark.parametrize(
        ("code", "action", "failed", "reason"),
        [
            (42, "FailJob", 1, "PodFailurePolicy"),
            (42, "Ignore", 0, ""),
            (7, "FailJob", 1, "BackoffLimitExceeded"),
        ],
    )
    def test_pod_failure_policy_maps_exit_codes_to_actions(
        self, code: int, action: str, failed: int, reason: str
    ) -> None:
        rule = {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}
        world = World(backoffLimit=0, podFailurePolicy={"rules": [rule]}, podReplacementPolicy="Failed")
        world.settle()
        world.end("p1", code)
        world.settle()
        assert world.counts()[2] == failed
        assert world.reason("Failed") == reason

    def test_a_deleted_pod_is_replaced_at_once_or_when_it_has_ended(self) -> None:
        for policy, replaced in (("TerminatingOrFailed", True), ("Failed", False)):
            world = World(podReplacementPolicy=policy)
            world.settle()
            world.run()
            world.delete("p1")
            world.settle()
            assert bool(world.active) is replaced, policy
            assert world.job["status"]["terminating"] == 1


class TestSuspending:
    def test_suspended_job_deletes_uncounted_pods_and_recreates_them(self) -> None:
        world = World(parallelism=2, completions=2)
        world.settle()
        world.run()
        world.job["spec"]["suspend"] = True
        world.settle()
        assert world.reason("Suspended") == "JobSuspended"
        assert world.counts() == (0, 0, 0)
        assert world.active == []
        for uid in list(world.pods):
            world.end(uid, 143)
        world.later(5)
        world.job["spec"]["suspend"] = False
        world.settle()
        assert len(world.active) == 2
        assert world.counts() == (2, 0, 0)
        assert world.reason("Suspended") == ""
        assert world.job["status"]["startTime"] == meta.format_time(world.now), "its start time is reset"

    def test_suspended_job_has_the_condition_and_creates_no_pods(self) -> None:
        world = World(suspend=True)
        world.settle()
        assert world.reason("Suspended") == "JobSuspended"
        assert not world.pods
        assert "startTime" not in world.job["status"]


class TestAfterwards:
    def test_finished_job_is_deleted_after_its_ttl(self) -> None:
        world = World(ttlSecondsAfterFinished=100)
        world.settle()
        world.end("p1")
        plan = world.settle()
        assert not plan.expired
        assert plan.requeue_after_seconds == 100
        world.later(100)
        assert world.plan().expired

    def test_one_status_finishes_a_job_and_counts_its_last_pods(self) -> None:
        world = World(parallelism=2, completions=2)
        world.settle()
        world.end("p1")
        world.end("p2")
        plan = world.plan()
        assert (plan.status["succeeded"], plan.status["uncountedTerminatedPods"]) == (2, {})
        assert [each["type"] for each in plan.status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
        assert [pod["metadata"]["uid"] for pod in plan.release] == ["p1", "p2"]
        world.job["status"] = plan.status  # and the controller ends before it removes the finalizers
        world.settle()
        assert world.counts() == (0, 2, 0)
        assert [pod["metadata"]["finalizers"] for pod in world.pods.values()] == [[], []]

    def test_a_job_with_running_pods_is_not_finished_with_the_write_that_decides_its_outcome(self) -> None:
        world = World(parallelism=2, completions=2, backoffLimit=0)
        world.settle()
        world.run()
        world.end("p1", code=1)
        plan = world.plan()
        assert [each["type"] for each in plan.status["conditions"]] == ["FailureTarget"]
        assert plan.status["uncountedTerminatedPods"] == {"failed": ["p1"]}

    def test_finished_job_creates_and_counts_nothing(self) -> None:
        world = World()
        world.settle()
        world.end("p1")
        world.settle()
        before = copy.deepcopy(world.job["status"])
        world.later(10_000)
        world.settle()
        assert (world.job["status"], world.active) == (before, [])


@settings(max_examples=120)
@given(st.data())
def test_every_pod_is_counted_once_across_controller_crashes(data: st.DataObject) -> None:
    """Plans are carried out in part only; pods end, fail and are deleted in between; the books still balance."""
    indexed = data.draw(st.booleans(), "indexed")
    completions = data.draw(st.integers(1, 4), "completions")
    world = World(
        parallelism=data.draw(st.integers(1, 3), "parallelism"),
        completions=completions,
        backoffLimit=3,
        **({"completionMode": "Indexed"} if indexed else {}),
    )
    ended: dict[str, str] = {}  # uid -> how a pod ended that had not been taken away
    for _ in range(data.draw(st.integers(5, 30), "steps")):
        match data.draw(st.sampled_from(["play", "play", "end", "fail", "later", "run"]), "what"):
            case "play":
                deeds = world.deeds(world.plan())
                for deed in deeds[: data.draw(st.integers(0, len(deeds)), "deeds")]:
                    deed()
            case ("end" | "fail") as how if world.active:
                uid = data.draw(st.sampled_from(world.active), "pod")
                ended[uid] = how
                world.end(uid, 1 if how == "fail" else 0)
            case "later":
                world.later(700)
            case "run":
                world.run()
        assert len(world.active) <= world.job["spec"]["parallelism"]
    for _ in range(3):
        for uid in [uid for uid, pod in world.pods.items() if "deletionTimestamp" in pod["metadata"]]:
            world.end(uid, 143)
        world.settle()
    _, succeeded, failed = world.counts()
    if indexed:
        assert succeeded <= sum(how == "end" for how in ended.values())
    else:
        assert succeeded == sum(how == "end" for how in ended.values())
    assert failed >= sum(how == "fail" for how in ended.values())
    over = world.reason("Complete") or world.reason("Failed")
    assert bool(over) == (succeeded >= completions or failed > 3)
    assert not over or not any(FINALIZER in pod["metadata"]["finalizers"] for pod in world.pods.values())
