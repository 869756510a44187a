"""Loops, thrashing and starvation in a manager: Events, metrics, the list `troubles`, and explanations."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from history.recorded_world import RecordedWorld, recorded_server
from kubemachinery import yaml_documents
from kubemachinery.client.errors import ApiError
from kubemachinery.client.event_recorder import EVENTS
from kubemachinery.client.transport import ApiRequest
from kubemachinery.meta import SECOND, parse_time
from pykueue import settings, testing
from pykueue.api import config, kube, registry
from pykueue.api import kueue as kueue_api
from pykueue.client import job_troubles
from pykueue.client.job_history import HistoryRequest
from pykueue.controllers.assembly import Manager
from pykueue.history.documents import WorkloadTrouble
from pykueue.projection.calibration import SizeClass
from pykueue.testing import Kueue, system
from pykueue.testing.virtual_loop import Stuck, VirtualClock
from virtual import virtual_time

LIVELOCK = Path(__file__).parents[1] / "state" / "loops" / "livelock-33.yaml"
PLANNED = {"pykueue.io/planned-start": "2030-01-01T00:00:00Z"}


def job(
    name: str, queue: str, cpu: int, seconds: int = 36_000, *, deadline: int = 0, priority: str = ""
) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "x",
        "command": ["sleep", str(seconds)],
        "resources": {"requests": {"cpu": str(cpu)}},
    }
    spec: dict[str, Any] = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    if deadline:
        spec["activeDeadlineSeconds"] = deadline
    labels = {"kueue.x-k8s.io/queue-name": queue}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec}


def queue(name: str, cpu: int, **spec: Any) -> list[dict[str, Any]]:
    """A ClusterQueue, its flavor and a LocalQueue of the same name."""
    version = "kueue.x-k8s.io/v1beta2"
    flavors = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
        },
        {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": name}},
    ]


def priority_class(name: str, value: int) -> dict[str, Any]:
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": value}


def events(kueue: Kueue, reason: str) -> list[dict[str, Any]]:
    return [event for event in kueue.all("event") if event["reason"] == reason]


def troubles(kueue: Kueue, namespace: str = "default", **query: str) -> list[dict[str, Any]]:
    place = f"namespaces/{namespace}/" if namespace else ""
    request = ApiRequest("GET", f"/apis/views.pykueue.io/v1alpha1/{place}troubles", tuple(query.items()))
    answer = kueue._run(kueue._client.api_client.request(request))
    found: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"]
    return found


def set_clock(kueue: Kueue, ahead_seconds: float) -> None:
    """Set the clock of the system, so that it is ahead of time by so much."""
    clock = kueue._client._clock
    assert isinstance(clock, VirtualClock)
    clock.wrong_by_seconds = ahead_seconds


YEAR = 365 * 86_400


def gauge(kueue: Kueue, name: str, cluster_queue: str) -> float:
    found = re.search(rf'^{name}{{cluster_queue="{cluster_queue}",.*}} (.*)$', kueue.metrics(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


# --- Loops ------------------------------------------------------------------------------------------------------------


def livelock(gates: dict[str, bool]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The configuration and the queues of a livelock, and Jobs in place of its Workloads."""
    trees = [document.tree for document in yaml_documents.read(LIVELOCK)]
    fair = next(tree for tree in trees if tree["kind"] == "Configuration")["fairSharing"]
    found = [tree for tree in trees if tree["kind"] not in ("Configuration", "Workload", "Namespace")]
    found += [priority_class("p0", 0), priority_class("p10", 10)]
    found += [job("w1", "q0", 6, priority="p10"), job("w2", "q1", 6, priority="p10"), job("w3", "q1", 3, priority="p0")]
    return {"fairSharing": fair, "featureGates": {"FairSharingPreemptionProgress": False, **gates}}, found


def test_loop_is_in_the_list_of_troubles_and_in_the_explanation() -> None:
    configuration, objects = livelock({})
    with system(configuration, runner="none") as kueue:
        with pytest.raises(Stuck):
            kueue.apply(*objects)
        found = {item["job"]: item for item in troubles(kueue)}
        assert set(found) == {"w1", "w2", "w3"}
        assert {item["trouble"] for item in found.values()} == {"EvictionLoop"}
        assert " preempts " in found["w1"]["message"]
        assert kueue.explain("w1").warnings[0].startswith("EvictionLoop since ")
        kueue.delete("job", "w3")
        kueue.advance(60)
        # The loop is over; that w1 was preempted so often stays true for an hour.
        assert [(item["job"], item["trouble"]) for item in troubles(kueue)] == [("w1", "Thrashing")]


def test_loop_comes_to_rest_with_the_guard() -> None:
    configuration, objects = livelock({"LoopGuard": True})
    with system(configuration, runner="none") as kueue:
        kueue.apply(*objects)
        delayed = [
            condition["message"]
            for workload in kueue.all("workload")
            for condition in workload["status"]["conditions"]
            if condition["reason"] == "WaitingForPreemptedWorkloads"
        ]
        assert any("is delayed until" in message and "preemption loop" in message for message in delayed)
        assert {event["reason"] for event in events(kueue, "EvictionLoop")} == {"EvictionLoop"}
        before = len(events(kueue, "EvictionLoop"))
        kueue.advance(1200)
        # Rounds go on, with 30, 60, 120, 240, 480 seconds between them.
        evictions = sum(
            entry["count"]
            for workload in kueue.all("workload")
            for entry in workload["status"].get("schedulingStats", {}).get("evictions", ())
        )
        assert evictions < 40
        assert len(events(kueue, "EvictionLoop")) == before


def evictions(kueue: Kueue) -> int:
    return sum(
        entry["count"]
        for workload in kueue.all("workload")
        for entry in workload["status"].get("schedulingStats", {}).get("evictions", ())
    )


def test_a_delay_of_the_guard_that_began_on_a_fast_clock_ends_in_time() -> None:  # [CS6] [LG-L4]
    configuration, objects = livelock({"LoopGuard": True})
    with system(configuration, runner="none") as kueue:
        kueue.apply(*objects)
        set_clock(kueue, YEAR)
        kueue.advance(90)
        set_clock(kueue, 0)
        kueue.advance(10)
        before = evictions(kueue)
        kueue.advance(700)
        assert evictions(kueue) > before


def test_busy_queue_has_no_loop_and_one_thrashing_job() -> None:
    """Scenario 5: a low-priority job is preempted by one urgent job after another. Each arrival is an outside change."""
    policy = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    with system() as kueue:
        kueue.apply(*queue("busy", 4, **policy), priority_class("low", -10), priority_class("high", 10))
        kueue.apply(job("victim", "busy", 4, priority="low"))
        kueue.apply(*queue("calm", 4), job("other", "calm", 4))
        for number in range(5):
            kueue.apply(job(f"urgent-{number}", "busy", 4, seconds=300, priority="high"))
            kueue.advance(310)
        assert "pykueue_eviction_loops_total{" not in kueue.metrics()
        (found,) = troubles(kueue)
        assert (found["job"], found["trouble"]) == ("victim", "Thrashing")
        assert re.match(r"preempted 5 times in \d+ seconds, of which it ran for \d+$", found["message"])
        kueue.advance(120)
        assert [event["type"] for event in events(kueue, "Thrashing")] == ["Warning"]
        assert kueue.explain("victim").warnings[0].startswith("Thrashing since ")


# --- Starvation -------------------------------------------------------------------------------------------------------


def starving(kueue: Kueue, *, small: int = 12) -> None:
    """A job that needs the whole queue, and small ones that pass it, two at a time; ten minutes of waiting are enough
    here instead of a day."""
    reporter = kueue._manager.troubles
    reporter.rules = replace(reporter.rules, after=600 * SECOND)
    kueue.apply(*queue("physics", 4), job("small-0", "physics", 2, seconds=100))
    kueue.apply(job("big", "physics", 4))
    for number in range(1, small + 1):
        kueue.apply(job(f"small-{number}", "physics", 2, seconds=100))
        kueue.advance(59)


def test_a_job_that_starved_by_a_wrong_clock_only_is_reported_when_it_does() -> None:  # [CS6]
    with system() as kueue:
        starving(kueue, small=9)
        reporter = kueue._manager.troubles
        reporter.rules = replace(reporter.rules, after=900 * SECOND)
        kueue.apply(job("last", "physics", 2, seconds=5000))
        assert events(kueue, "Starving") == []
        set_clock(kueue, 3600)
        kueue.advance(61)
        (event,) = events(kueue, "Starving")
        assert "series" not in event
        set_clock(kueue, 0)
        kueue.advance(61)
        assert troubles(kueue) == []
        kueue.advance(600)
        (event,) = events(kueue, "Starving")
        assert event.get("series", {}).get("count") == 2


def test_passed_job_starves_and_is_reported_once() -> None:
    with system() as kueue:
        starving(kueue, small=9)
        assert troubles(kueue) == []
        kueue.apply(job("last", "physics", 2, seconds=100))
        kueue.advance(50)
        assert troubles(kueue) == []  # ten have passed it, but it has not waited for ten minutes
        kueue.apply(job("more", "physics", 2, seconds=1000))
        kueue.advance(120)
        (found,) = troubles(kueue)
        assert (found["job"], found["trouble"], found["queue"]) == ("big", "Starving", "physics")
        assert re.match(
            r"waits for 0 hours; 11 Workloads behind it in ClusterQueue physics have started; "
            r"no time limit is known for default/job-more-\w+$",
            found["message"],
        )
        assert gauge(kueue, "pykueue_starving_workloads", "physics") == 1
        assert 600 < gauge(kueue, "pykueue_oldest_pending_seconds", "physics") < 1000
        kueue.advance(300)
        (event,) = events(kueue, "Starving")
        assert (event["type"], event["regarding"]["name"].split("-")[1]) == ("Warning", "big")
        assert "series" not in event
        assert kueue.explain("big").warnings[0].startswith("Starving since ")


@pytest.mark.parametrize("change", [{"spec": {"active": False}}, {"metadata": {"annotations": PLANNED}}])
def test_deactivated_job_and_job_with_a_planned_start_do_not_starve(change: dict[str, Any]) -> None:
    with system() as kueue:
        starving(kueue)
        assert gauge(kueue, "pykueue_starving_workloads", "physics") == 1
        (big,) = (each for each in kueue.all("workload") if each["metadata"]["name"].startswith("job-big"))
        kueue.patch("workload", big["metadata"]["name"], change)
        assert troubles(kueue) == []
        assert gauge(kueue, "pykueue_starving_workloads", "physics") == 0


def test_job_starves_after_three_times_the_wait_that_was_forecast_first() -> None:
    with system({"featureGates": {"WorkloadHints": True}}) as kueue:
        reporter = kueue._manager.troubles
        reporter.rules = replace(reporter.rules, after=600 * SECOND)
        kueue.apply(*queue("physics", 4), job("small-0", "physics", 2, seconds=300, deadline=600))
        kueue.apply(job("big", "physics", 4, deadline=600))
        assert kueue.forecast("big") is not None
        (big,) = (each for each in kueue.all("workload") if each["metadata"]["name"].startswith("job-big"))
        p90 = reporter.rules.first_p90(f"default/{big['metadata']['name']}")
        assert p90 is not None
        queued = parse_time(big["metadata"]["creationTimestamp"])
        assert 200 * SECOND < p90 - queued <= 600 * SECOND
        late = queued + 3 * (p90 - queued)
        found: list[dict[str, Any]] = []
        number = 0
        while not found:
            number += 1
            kueue.apply(job(f"small-{number}", "physics", 2, seconds=300, deadline=600))
            kueue.advance(149)
            found = troubles(kueue)
            assert bool(found) == (kueue._manager.troubles._clock.now() > late and number >= 10)
        kueue.forecast("big")  # a later forecast, with a later P90, changes nothing
        assert reporter.rules.first_p90(f"default/{big['metadata']['name']}") == p90
        assert found[0]["message"].startswith("waits for 0 hours instead of at most 1 as forecast; ")


def test_forecast_of_a_job_that_starves_already_does_not_end_that() -> None:
    with system() as kueue:
        starving(kueue)
        (before,) = troubles(kueue)
        assert kueue.forecast("big") is not None
        (after,) = troubles(kueue)
        assert before["trouble"] == after["trouble"] == "Starving"
        assert after["since"] == before["since"]


@virtual_time
async def test_restart_keeps_the_first_forecast_of_a_job_and_scores_those_that_started_meanwhile(
    tmp_path: Path,
) -> None:  # [LG7], [FC4]
    chosen = settings.load(
        {"apiVersion": config.V1BETA2, "kind": config.KIND, "featureGates": {"WorkloadHints": True}}, "test"
    )
    async with recorded_server(chosen) as (embedded, clock):
        made = RecordedWorld(embedded, clock, tmp_path / "history.db", chosen)
        objects = [
            *queue("physics", 4),
            job("holder", "physics", 4, seconds=300, deadline=600),
            job("second", "physics", 4, seconds=36_000, deadline=40_000),
            job("third", "physics", 4, deadline=600),
        ]
        async with made.manager() as manager:
            for tree in objects:
                await made.api.apply(testing._kind(tree), testing._placed(tree), "test")
                await asyncio.sleep(1.1)
            assert manager.forecaster is not None
            await manager.forecaster.of("physics")
            keys = {name.split("-")[1]: f"default/{name}" for name in await workloads(made)}
            before = first_p90s(manager, keys)
            assert [name for name, p90 in before.items() if p90 is not None] == ["second", "third"]
        await asyncio.sleep(60)
        async with made.manager() as manager:
            assert first_p90s(manager, keys) == before
            assert manager.forecaster is not None
            await asyncio.sleep(400)  # the holder ends, and the second starts
            assert manager.forecaster.calibrations["physics"].coverage.scored == 1
            assert manager.troubles.rules.first_p90(keys["second"]) is None
            assert manager.history is not None
            await asyncio.sleep(120)
            stored = await manager.history.ask(lambda store: store.open_forecasts())
            assert len(stored) == 1
        await made.api.delete(registry.ALL.of(kube.Job), "third", "default")
        await asyncio.sleep(1)
        async with made.manager() as manager:
            assert manager.history is not None
            await asyncio.sleep(120)
            assert await manager.history.ask(lambda store: store.open_forecasts()) == {}


@virtual_time
async def test_a_restart_keeps_which_forecasts_count_for_p90(tmp_path: Path) -> None:  # [FC3], [FC4]
    chosen = settings.load(
        {"apiVersion": config.V1BETA2, "kind": config.KIND, "featureGates": {"WorkloadHints": True}}, "test"
    )
    async with recorded_server(chosen) as (embedded, clock):
        made = RecordedWorld(embedded, clock, tmp_path / "history.db", chosen)
        first = [*queue("physics", 4), job("holder", "physics", 4, seconds=300, deadline=600)]
        others = [job(f"next-{number}", "physics", 1, seconds=1, deadline=600) for number in range(30)]
        async with made.manager() as manager:
            for objects in (first, others):
                for tree in objects:
                    await made.api.apply(testing._kind(tree), testing._placed(tree), "test")
                await asyncio.sleep(2)
            assert manager.forecaster is not None
            assert manager.history is not None
            await manager.forecaster.of("physics")
            stored = await manager.history.ask(lambda store: store.open_forecasts())
            assert len(stored) == 30
            assert sum(rows[0].counts_for_p90 for rows in stored.values()) == 20
            assert {row.size for rows in stored.values() for row in rows} == {"big"}
        async with made.manager() as manager:
            await asyncio.sleep(400)  # the holder ends, and the others start
            assert manager.forecaster is not None
            found = manager.forecaster.calibrations["physics"]
            assert (found.coverage.scored, len(found.window.scores), len(found.window.p90_scores)) == (30, 30, 20)
            assert found.sizes == {SizeClass.BIG: found.coverage}
            assert found.window.size_scores == {SizeClass.BIG: found.window.p90_scores}
            await asyncio.sleep(120)
        async with made.manager() as manager:
            await asyncio.sleep(120)
            assert manager.forecaster is not None
            again = manager.forecaster.calibrations["physics"]
            assert again.stored() == found.stored()


def first_p90s(manager: Manager, keys: dict[str, str]) -> dict[str, int | None]:
    """By job, in seconds."""
    found = {name: manager.troubles.rules.first_p90(keys[name]) for name in sorted(keys)}
    return {name: None if p90 is None else p90 // SECOND for name, p90 in found.items()}


async def workloads(made: RecordedWorld) -> list[str]:
    listing = await made.api.list(registry.ALL.of(kueue_api.Workload), "default")
    return [msgspec.json.decode(each)["metadata"]["name"] for each in listing.items]


# --- Records [LG9] ----------------------------------------------------------------------------------------------------

EVER = "1970-01-01T00:00:00Z"


def test_loop_that_is_over_stays_in_the_history() -> None:
    configuration, objects = livelock({})
    with system(configuration, runner="none") as kueue:
        with pytest.raises(Stuck):
            kueue.apply(*objects)
        before = troubles(kueue, since=EVER)
        assert {(item["job"], item["trouble"], "ended" in item) for item in before} >= {
            (name, "EvictionLoop", False) for name in ("w1", "w2", "w3")
        }
        kueue.delete("job", "w3")
        kueue.advance(180)
        assert "EvictionLoop" not in {item["trouble"] for item in troubles(kueue)}
        after = [item for item in troubles(kueue, since=EVER) if item["trouble"] == "EvictionLoop"]
        assert sorted(item["job"] for item in after) == ["w1", "w2", "w3"]  # one each, however many rounds there were
        assert all(item["since"] <= item["found"] <= item["ended"] for item in after)
        assert all(" preempts " in item["message"] for item in after)
        (queue_name,) = {item["clusterQueue"] for item in after if item["job"] == "w1"}
        named = troubles(kueue, since=EVER, clusterQueue=queue_name)
        assert {item["clusterQueue"] for item in named} == {queue_name}


def test_loop_has_one_beginning_and_one_message_now_and_in_the_history() -> None:  # [LG10]
    configuration, objects = livelock({})
    with system(configuration, runner="none") as kueue:
        with pytest.raises(Stuck):
            kueue.apply(*objects)
        now = {item["job"]: item for item in troubles(kueue)}
        recorded = {item["job"]: item for item in troubles(kueue, since=EVER) if item["trouble"] == "EvictionLoop"}
        assert set(now) == {"w1", "w2", "w3"}
        rounds = now["w1"]["message"].rpartition("; ")[2]
        assert int(rounds.partition(" rounds since")[0]) > 3, "it was recorded after three rounds, and went on"
        assert rounds.endswith(f" rounds since {now['w1']['since']} without any other change")
        for name, item in now.items():
            assert (item["since"], item["message"]) == (recorded[name]["since"], recorded[name]["message"])


def test_record_of_a_loop_that_is_over_has_the_rounds_that_were_shown_last() -> None:  # [LG10]
    configuration, objects = livelock({})
    with system(configuration, runner="none") as kueue:
        with pytest.raises(Stuck):
            kueue.apply(*objects)
        shown = {item["job"]: item["message"] for item in troubles(kueue)}
        kueue.delete("job", "w3")  # before the look of the next minute
        kueue.advance(180)
        over = [item for item in troubles(kueue, since=EVER) if item["trouble"] == "EvictionLoop"]
        assert {item["job"]: item["message"] for item in over} == shown
        assert all(item["ended"] for item in over)


def test_rounds_that_are_counted_again_have_their_own_time() -> None:  # [LG10]
    """After an outside change the trouble goes on, with its beginning; its rounds are those since the change."""
    configuration, objects = livelock({"LoopGuard": True})
    with system(configuration, runner="none") as kueue:
        kueue.apply(*objects)
        kueue.advance(600)
        before = {item["job"]: item for item in troubles(kueue)}["w1"]
        kueue.apply(job("w4", "q0", 100, priority="p0"))
        kueue.advance(10)
        after = {item["job"]: item for item in troubles(kueue)}["w1"]
        (recorded,) = [item for item in troubles(kueue, since=EVER) if item["job"] == "w1" and "ended" not in item]
        assert after["since"] == before["since"] == recorded["since"]
        assert after["message"] == recorded["message"]
        counted = after["message"].partition(" rounds since ")[2].partition(" ")[0]
        assert counted > before["since"]


def test_record_of_starvation_ends_when_the_job_starts() -> None:
    with system() as kueue:
        starving(kueue)
        kueue.advance(3600)  # the small jobs end, and the big one starts
        assert troubles(kueue) == []
        (record,) = troubles(kueue, since=EVER)
        assert (record["job"], record["trouble"], record["queue"]) == ("big", "Starving", "physics")
        assert record["since"] < record["found"] < record["ended"]


def test_records_of_one_namespace_name_no_workloads_of_others() -> None:
    configuration, objects = livelock({})
    with system(configuration, runner="none") as kueue:
        with pytest.raises(Stuck):
            kueue.apply(*objects)
        assert troubles(kueue, "other", since=EVER) == []
        assert len(troubles(kueue, "", since=EVER)) >= 3


def test_list_of_records_has_the_number_of_those_that_could_not_be_stored() -> None:
    def past() -> tuple[list[str], list[int]]:
        lacking: list[int] = []
        wanted = HistoryRequest(namespace="default", since=0)
        found = kueue._run(job_troubles.past(kueue._client.api_client, wanted, lacking.append))
        return [each.job for each in found], lacking

    with system() as kueue:
        recorder = kueue._manager.history
        assert recorder is not None
        assert recorder._store is not None
        recorder._store._connection.execute("PRAGMA query_only = ON")
        starving(kueue)
        kueue.advance(120)
        assert past() == ([], [1])
        recorder._store._connection.execute("PRAGMA query_only = OFF")
        kueue.advance(60)
        assert past() == (["big"], [])


def test_records_need_a_history() -> None:
    with system({"featureGates": {"History": False}}) as kueue:
        assert troubles(kueue) == []
        with pytest.raises(ApiError, match="this manager keeps no history"):
            troubles(kueue, since=EVER)


def test_window_of_records_is_checked() -> None:
    with system() as kueue, pytest.raises(ApiError, match="since yesterday"):
        troubles(kueue, since="yesterday")


@virtual_time
async def test_restart_inside_a_loop_reports_it_once_more_and_continues_its_record(tmp_path: Path) -> None:
    """Scenario 10. The guard is on, so that time passes between the rounds."""
    configuration, objects = livelock({"LoopGuard": True})
    head = {"apiVersion": config.V1BETA2, "kind": config.KIND}
    chosen = settings.load({**head, **configuration}, "test")
    async with recorded_server(chosen) as (embedded, clock):
        made = RecordedWorld(embedded, clock, tmp_path / "history.db", chosen)
        wanted = HistoryRequest(namespace="default", since=0)
        found: list[list[WorkloadTrouble]] = []
        reported: list[int] = []
        for _ in range(3):
            async with made.manager():
                for tree in objects:
                    await made.api.apply(testing._kind(tree), testing._placed(tree), "test")
                    await asyncio.sleep(0.1)
                objects = []
                await asyncio.sleep(400)
                past = await job_troubles.past(made.api, wanted)
                found.append([each for each in past if each.trouble == "EvictionLoop"])
                emitted = [msgspec.json.decode(each) for each in (await made.api.list(EVENTS, "default")).items]
                reported.append(sum(each["reason"] == "EvictionLoop" for each in emitted))
    first, *others = found
    assert sorted(each.job for each in first) == ["w1", "w2", "w3"]
    assert not any(each.ended for each in first)
    for later in others:
        assert [(each.job, each.found) for each in later] == [(each.job, each.found) for each in first]
    assert reported[0] > 0
    assert [now - before for before, now in itertools.pairwise(reported)] == [reported[0]] * 2
