"""Decisions about a pod: which containers start, restart and stop, and its status."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery import meta
from pykueue.runner import container_attempts as tried
from pykueue.runner import pod
from pykueue.runner.container_attempts import ContainerAttempt, Termination
from pykueue.runner.pod import PodStep, StopContainer
from pykueue.runner.process_spec import StartProblem

START = meta.parse_time("2026-01-01T00:00:00Z")
SECOND = meta.SECOND


def tree(*names: str, inits: tuple[Any, ...] = (), policy: str = "Never", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {
            "restartPolicy": policy,
            "containers": [{"name": name, "image": "i"} for name in names or ("main",)],
            "initContainers": [one if isinstance(one, dict) else {"name": one, "image": "i"} for one in inits],
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def runs(number: int = 0, since: int = 0) -> list[ContainerAttempt]:
    return [ContainerAttempt(number, START + since * SECOND)]


def ended(code: int, number: int = 0, at: int = 1, ran: int = 1) -> list[ContainerAttempt]:
    return [ContainerAttempt(number, START + (at - ran) * SECOND, Termination(code, START + at * SECOND))]


def step(found: dict[str, Any], at: float = 2, **attempts: list[ContainerAttempt]) -> PodStep:
    return pod.step(found, attempts, START + int(at * SECOND))


def state(taken: PodStep, name: str) -> dict[str, Any]:
    both = [*taken.status["containerStatuses"], *taken.status.get("initContainerStatuses", ())]
    found: dict[str, Any] = next(each for each in both if each["name"] == name)["state"]
    return found


class TestStarting:
    def test_containers_start_side_by_side(self) -> None:
        taken = step(tree("a", "b"))
        assert taken.start == ("a", "b")
        assert taken.status["phase"] == "Pending"

    def test_init_containers_come_first_and_one_after_another(self) -> None:
        found = tree("main", inits=("one", "two"))
        assert step(found).start == ("one",)
        assert step(found, one=runs()).start == ()
        assert step(found, one=ended(0)).start == ("two",)
        taken = step(found, one=ended(0), two=ended(0))
        assert taken.start == ("main",)
        assert state(taken, "main") == {"waiting": {"reason": "ContainerCreating"}}

    def test_a_failed_init_container_fails_a_pod_that_never_restarts(self) -> None:
        taken = step(tree("main", inits=("one",)), one=ended(3))
        assert (taken.start, taken.status["phase"]) == ((), "Failed")

    def test_a_failed_init_container_is_tried_again_where_pods_restart(self) -> None:
        taken = step(tree("main", inits=("one",), policy="OnFailure"), one=ended(3))
        assert (taken.start, taken.status["phase"]) == (("one",), "Pending")

    def test_a_sidecar_runs_beside_the_others_and_is_stopped_after_them(self) -> None:
        found = tree("main", inits=({"name": "side", "restartPolicy": "Always"},))
        assert step(found).start == ("side",)
        assert step(found, side=runs()).start == ("main",)
        over = step(found, side=runs(), main=ended(0, at=1))
        assert over.stop == (StopContainer("side", kill=False),)
        assert over.status["phase"] == "Running", "something of it still runs"
        assert step(found, at=31, side=runs(), main=ended(0, at=1)).stop == (StopContainer("side", kill=True),)
        assert step(found, side=ended(143), main=ended(0)).status["phase"] == "Succeeded"

    def test_start_problem_is_the_waiting_reason(self) -> None:
        problem = StartProblem("CreateContainerConfigError", "ConfigMap c not found")
        taken = pod.step(tree(), {}, START, {"main": problem})
        assert state(taken, "main") == {
            "waiting": {"reason": "CreateContainerConfigError", "message": "ConfigMap c not found"}
        }


class TestRestarting:
    @pytest.mark.parametrize(
        ("policy", "code", "restarts", "phase"),
        [
            ("Never", 0, False, "Succeeded"),
            ("Never", 1, False, "Failed"),
            ("OnFailure", 0, False, "Succeeded"),
            ("OnFailure", 1, True, "Running"),
            ("Always", 0, True, "Running"),
            ("Always", 1, True, "Running"),
        ],
    )
    def test_restart_policy_decides_whether_a_container_restarts(
        self, policy: str, code: int, restarts: bool, phase: str
    ) -> None:
        taken = step(tree(policy=policy), main=ended(code))
        assert (taken.start == ("main",), taken.status["phase"]) == (restarts, phase)

    def test_first_restart_is_immediate_and_later_ones_back_off(self) -> None:
        found = tree(policy="OnFailure")
        assert step(found, at=1, main=ended(1, number=0)).start == ("main",)
        for number, pause in ((1, 10), (2, 20), (3, 40), (9, 300)):
            waits = step(found, at=1, main=ended(1, number=number))
            assert (waits.start, waits.requeue_after_seconds) == ((), pause)
            assert state(waits, "main")["waiting"]["reason"] == "CrashLoopBackOff"
            assert step(found, at=1 + pause, main=ended(1, number=number)).start == ("main",)

    def test_a_long_run_resets_the_backoff(self) -> None:
        assert step(tree(policy="OnFailure"), at=700, main=ended(1, number=5, at=700, ran=650)).start == ("main",)

    def test_a_pod_with_one_failed_container_of_two_has_failed(self) -> None:
        assert step(tree("a", "b"), a=ended(0), b=ended(1)).status["phase"] == "Failed"
        assert step(tree("a", "b"), a=ended(0), b=runs()).status["phase"] == "Running"


class TestEnding:
    def test_a_deleted_pod_is_asked_to_stop_and_killed_when_its_grace_is_over(self) -> None:
        found = tree()
        found["metadata"]["deletionTimestamp"] = meta.format_time(START + 10 * SECOND)
        asked = step(found, at=4, main=runs())
        assert (asked.stop, asked.requeue_after_seconds) == ((StopContainer("main", kill=False),), 6)
        assert step(found, at=10, main=runs()).stop == (StopContainer("main", kill=True),)
        assert step(found, at=5, main=ended(143)).status["phase"] == "Failed"
        assert step(found, at=5, main=ended(0)).status["phase"] == "Succeeded"

    def test_a_deleted_pod_starts_nothing(self) -> None:
        found = tree(policy="Always")
        found["metadata"]["deletionTimestamp"] = meta.format_time(START)
        assert step(found).start == ()
        assert step(found).status["phase"] == "Failed"
        assert step(found, main=ended(1)).start == ()

    def test_pod_past_its_deadline_is_stopped_and_fails_with_the_reason(self) -> None:
        found = tree(activeDeadlineSeconds=60)
        found["status"]["startTime"] = meta.format_time(START)
        assert step(found, at=10, main=runs()).requeue_after_seconds == 50
        late = step(found, at=60, main=runs())
        assert (late.stop, late.status["phase"]) == ((StopContainer("main", kill=False),), "Running")
        assert step(found, at=90, main=runs()).stop == (StopContainer("main", kill=True),)
        over = step(found, at=61, main=ended(143, at=61, ran=60))
        assert (over.status["phase"], over.status["reason"]) == ("Failed", "DeadlineExceeded")

    @pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
    def test_pod_that_ended_before_its_deadline_did_not_exceed_it(self, code: int, phase: str) -> None:
        """The runner did not run at the deadline."""
        found = tree(activeDeadlineSeconds=60)
        found["status"]["startTime"] = meta.format_time(START)
        over = step(found, at=600, main=ended(code, at=59, ran=59))
        assert (over.status["phase"], over.status.get("reason")) == (phase, None)


class TestStatus:
    def test_a_pod_is_ready_while_all_of_its_containers_run(self) -> None:
        for other, ready in ((runs(), "True"), (ended(0), "False")):
            taken = step(tree("a", "b"), a=runs(), b=other)
            reported = {each["type"]: each["status"] for each in taken.status["conditions"]}
            assert (reported["Ready"], reported["ContainersReady"]) == (ready, ready)
            assert reported["PodScheduled"] == reported["Initialized"] == "True"

    def test_status_has_exit_code_signal_and_times(self) -> None:
        attempt = ContainerAttempt(0, START, Termination(137, START + SECOND, signal=9))
        assert state(step(tree(), main=[attempt]), "main") == {
            "terminated": {
                "exitCode": 137,
                "signal": 9,
                "reason": "Error",
                "startedAt": "2026-01-01T00:00:00Z",
                "finishedAt": "2026-01-01T00:00:01Z",
            }
        }

    def test_last_state_is_the_previous_attempt(self) -> None:
        taken = step(tree(policy="Always"), main=[*ended(2), *runs(1)])
        status = taken.status["containerStatuses"][0]
        assert status["restartCount"] == 1
        assert status["state"].keys() == {"running"}
        assert status["lastState"]["terminated"]["exitCode"] == 2

    def test_step_is_idempotent(self) -> None:
        found = tree("a", "b", inits=("one",))
        for attempts in ({}, {"one": runs()}, {"one": ended(0), "a": runs()}, {"one": ended(0), "a": ended(0)}):
            first = step(found, at=5, **attempts)
            again = step({**found, "status": first.status}, at=9, **attempts)
            assert again.status == first.status

    def test_foreign_conditions_are_kept(self) -> None:
        found = tree()
        found["status"]["conditions"] = [{"type": "TerminationTarget", "status": "True", "reason": "x"}]
        reported = [each["type"] for each in step(found, main=runs()).status["conditions"]]
        assert "TerminationTarget" in reported


class TestLost:
    def test_attempts_known_only_from_the_status_are_lost(self) -> None:
        found = tree()
        found["status"] = step(found, main=runs(2)).status
        attempts = tried.with_lost(found, {})
        (attempt,) = attempts["main"]
        assert (attempt.number, attempt.started) == (2, START)
        assert attempt.ended is not None
        assert (attempt.ended.code, attempt.ended.reason, attempt.ended.at) == (137, "Lost", START)
        taken = pod.step(found, attempts, START + 9 * SECOND)
        assert (taken.start, taken.status["phase"]) == ((), "Failed"), "it is not started twice"

    def test_attempts_of_the_executor_take_precedence(self) -> None:
        found = tree()
        found["status"] = step(found, main=runs()).status
        assert tried.with_lost(found, {"main": runs()}) == {"main": runs()}
