"""Metrics of a running manager: counted as it writes, read from its state on request, served to authorized clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controllers.conftest import Environment, environment, pod_set
from kubemachinery.client import client_config as servers
from kubemachinery.errors import UsageError
from kubemachinery.http_messages import Request
from kubemachinery.process import MONITOR_SECONDS
from kubeserver.protocol import authentication
from pykueue import settings
from pykueue.app.cluster_manager import manage
from pykueue.app.ports import metrics_address
from started import held_port

STANDALONE = 'replica_role="standalone"'


def configured(**more: Any) -> settings.Settings:
    return settings.load({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **more})


def figures(text: str) -> dict[str, float]:
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


async def page(env: Environment) -> dict[str, float]:
    answer = await env.serving.embedded.server.handle_as(authentication.VIEWER, Request("GET", "/metrics"))
    assert answer.status == 200
    assert answer.content_type.startswith("text/plain")
    return figures(answer.body.decode())


async def test_a_life_is_counted_and_queues_are_read(env: Environment) -> None:
    admitted = f'kueue_admitted_workloads_total{{cluster_queue="cq",priority_class="",{STANDALONE}}}'
    tenant = (
        f'kueue_local_queue_admitted_workloads_total{{name="lq",namespace="default",priority_class="",{STANDALONE}}}'
    )
    finished = f'kueue_finished_workloads_total{{cluster_queue="cq",priority_class="",{STANDALONE}}}'
    parked = f'kueue_pending_workloads{{cluster_queue="cq",{STANDALONE},status="inadmissible"}}'
    async with env.manager() as manager:
        await env.queues("1")
        await env.workload("first")
        await env.until_condition("first", "Admitted", "True/Admitted")
        await env.workload("second")
        await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
        await env.until_quiet(manager)
        found = await page(env)
        assert (found[admitted], found[tenant], found[parked]) == (1, 1, 1)
        assert found[f'kueue_admission_attempts_total{{{STANDALONE},result="success"}}'] == 1
        assert found[f'kueue_admission_attempts_total{{{STANDALONE},result="inadmissible"}}'] == 1

        await env.finish("first")
        await env.until_condition("second", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        found = await page(env)
        assert (found[admitted], found[parked], found[finished]) == (2, 0, 1)


async def test_end_without_quota_is_counted_in_the_cluster_queue_of_the_local_queue(env: Environment) -> None:
    finished = f'kueue_finished_workloads_total{{cluster_queue="cq",priority_class="",{STANDALONE}}}'
    async with env.manager() as manager:
        await env.queues("1")
        await env.workload("waiting", "2")
        await env.until_condition("waiting", "QuotaReserved", "False/ExceedsMaxQuota")
        await env.finish("waiting")
        await env.until_quiet(manager)
        found = await page(env)
        assert (found[finished], found[f'kueue_finished_workloads{{cluster_queue="cq",{STANDALONE}}}']) == (1, 1)


async def test_delays_of_the_event_loop_are_observed(env: Environment) -> None:
    async with env.manager():
        while not (await page(env)).get(f"pykueue_event_loop_delay_seconds_count{{{STANDALONE}}}"):
            await asyncio.sleep(MONITOR_SECONDS)


async def test_an_end_that_the_manager_writes_itself_is_counted_once(env: Environment) -> None:
    finished = f'kueue_finished_workloads_total{{cluster_queue="cq",priority_class="",{STANDALONE}}}'
    executed = f'kueue_execution_time_seconds_count{{cluster_queue="cq",priority_class="",{STANDALONE}}}'
    moment = "2026-01-01T00:00:00Z"
    async with env.manager() as manager:
        await env.queues("1")
        await env.job("one")

        async def runs() -> bool:
            return (await env.read("Job", "one"))["spec"]["suspend"] is False

        await env.until(runs)
        done = {"type": "Complete", "status": "True", "reason": "", "message": ""}
        over = {
            "startTime": moment,
            "completionTime": moment,
            "succeeded": 1,
            "uncountedTerminatedPods": {},
            "conditions": [{**done, "type": "SuccessCriteriaMet"}, done],
        }
        await env.patch("Job", "one", {"status": over}, "status")

        async def is_counted() -> bool:
            return finished in await page(env)

        await env.until(is_counted)
        await env.until_quiet(manager)
        found = await page(env)
        assert (found[finished], found[executed]) == (1, 1)


async def test_release_of_quota_is_timed_once_whichever_client_writes_it(env: Environment) -> None:
    def latency(reason: str) -> str:
        return f'kueue_workload_eviction_latency_seconds_count{{cluster_queue="cq",reason="{reason}",{STANDALONE}}}'

    def released(found: dict[str, Any]) -> dict[str, Any]:
        def condition(type_: str, status: str, reason: str) -> dict[str, str]:
            moment = "2026-01-01T00:00:00Z"
            return {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": moment}

        new = [condition("Evicted", "True", "ByClient"), condition("QuotaReserved", "False", "Pending")]
        new.append(condition("Admitted", "False", "NoReservation"))
        written = {each["type"] for each in new}
        others = [each for each in found["status"]["conditions"] if each["type"] not in written]
        return {"admission": None, "conditions": [*others, *new]}

    async with env.manager() as manager:
        await env.queues("1")
        await env.workload("one")
        await env.until_condition("one", "Admitted", "True/Admitted")
        await env.amend("Workload", "one", released)

        async def is_counted() -> bool:
            return latency("ByClient") in await page(env)

        await env.until(is_counted)
        await env.finish("one")
        await env.job("two")

        async def second() -> str:
            return next((name for each in await env.all("Workload") if (name := each["metadata"]["name"]) != "one"), "")

        await env.until(second)
        await env.until_condition(await second(), "Admitted", "True/Admitted")
        await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await env.until_condition(await second(), "QuotaReserved", "False/Suspended")
        await env.until_quiet(manager)
        found = await page(env)
        assert (found[latency("ByClient")], found[latency("ClusterQueueStopped")]) == (1, 1)


async def test_what_a_pod_waited_for_is_timed_from_job_to_workload_and_from_admission_to_the_open_gate(
    tmp_path: Path,
) -> None:
    frameworks = {"integrations": {"frameworks": ["batch/job", "pod"]}}
    created = f'kueue_workload_creation_latency_seconds_count{{job_kind="Pod",{STANDALONE}}}'
    passed = (
        'kueue_pod_scheduling_gate_removal_seconds_count{cluster_queue="cq",is_group="false",'
        f'name="kueue.x-k8s.io/admission",{STANDALONE}}}'
    )
    async with environment(tmp_path, **frameworks) as env, env.manager(**frameworks) as manager:
        await env.queues("1")
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
        await env.create("Pod", "one", spec, labels={"kueue.x-k8s.io/queue-name": "lq"})

        async def is_free() -> bool:
            return not (await env.read("Pod", "one"))["spec"].get("schedulingGates")

        await env.until(is_free)
        await env.until_quiet(manager)
        found = await page(env)
        assert (found[created], found[passed]) == (1, 1)


async def test_series_go_with_their_queues(env: Environment) -> None:
    async with env.manager() as manager:
        await env.queues("1")
        await env.workload("first")
        await env.until_condition("first", "Admitted", "True/Admitted")
        await env.finish("first")
        await env.delete("LocalQueue", "lq")
        await env.delete("ClusterQueue", "cq")

        async def is_gone() -> bool:
            return await env.find("ClusterQueue", "cq") is None

        await env.until(is_gone)
        await env.until_quiet(manager)
        assert not [name for name in await page(env) if '"cq"' in name or '"lq"' in name]


async def test_only_chosen_local_queues_have_series_of_their_own(env: Environment) -> None:
    chosen = {"localQueueMetrics": {"enable": True, "localQueueSelector": {"matchLabels": {"team": "a"}}}}
    async with env.manager(metrics=chosen) as manager:
        await env.queues("2")
        await env.create("LocalQueue", "chosen", {"clusterQueue": "cq"}, labels={"team": "a"})
        for name, queue in (("one", "lq"), ("two", "chosen")):
            await env.workload(name, queueName=queue)
            await env.until_condition(name, "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        names = [name for name in await page(env) if name.startswith("kueue_local_queue_admitted_workloads_total")]
        assert len(names) == 1
        assert 'name="chosen"' in names[0]


async def test_the_page_goes_with_the_manager_and_0_turns_it_off(env: Environment) -> None:
    async def code() -> int:
        return (await env.serving.embedded.server.handle_as(authentication.ADMIN, Request("GET", "/metrics"))).status

    async with env.manager():
        assert await code() == 200
    assert await code() == 404
    async with env.manager(metrics={"bindAddress": "0"}):
        assert await code() == 404


class TestAddress:
    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("0", None),
            (":8443", ("127.0.0.1", 8443)),
            ("0.0.0.0:9090", ("0.0.0.0", 9090)),
            ("[::1]:80", ("::1", 80)),
        ],
    )
    def test_without_a_host_it_is_this_machine_alone(self, text: str, address: tuple[str, int] | None) -> None:
        assert metrics_address(configured(metrics={"bindAddress": text})) == address

    @pytest.mark.parametrize("text", ["nowhere", ":http", "127.0.0.1:70000"])
    def test_what_is_no_address_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError, match="bindAddress"):
            metrics_address(configured(metrics={"bindAddress": text}))


# --- A manager beside its server --------------------------------------------------------------------------------------


@asynccontextmanager
async def managed(env: Environment, port: int, *, elects: bool) -> AsyncIterator[None]:
    chosen = configured(
        namespace="default",
        metrics={"bindAddress": f":{port}"},
        health={"healthProbeBindAddress": "0"},
        leaderElection={"leaderElect": elects},
    )
    target = servers.find({}, str(env.serving.kubeconfig), fallback=Path())
    managing = asyncio.create_task(manage(target, chosen))
    try:
        yield
        assert not managing.done()
    finally:
        managing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await managing


async def fetched(port: int, path: str = "/metrics") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


@pytest.mark.parametrize(("elects", "role"), [(True, "leader"), (False, "standalone")])
async def test_a_manager_serves_them_on_a_port_of_this_machine(env: Environment, elects: bool, role: str) -> None:
    with held_port() as port:
        async with managed(env, port, elects=elects):

            async def serves() -> bool:
                try:
                    return f'kueue_cluster_queue_info{{cluster_queue="cq",parent_cohort="",replica_role="{role}"' in (
                        await fetched(port)
                    )
                except OSError:
                    return False

            await env.queues("1")
            await env.until(serves)
            assert (await fetched(port, "/")).startswith("HTTP/1.1 404")


async def test_a_port_that_is_taken_costs_the_metrics_and_not_the_manager(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with managed(env, port, elects=False):
            await env.queues("1")
            await env.workload("first")
            await env.until_condition("first", "Admitted", "True/Admitted")
    assert f"metrics is not served: cannot listen on 127.0.0.1:{port}" in caplog.text


def cohort_series(found: dict[str, float], metric: str) -> dict[str, float]:
    """cohort -> value of the series of one metric."""
    start = f'kueue_cohort_{metric}{{cohort="'
    return {
        name.removeprefix(start).partition('"')[0]: value for name, value in found.items() if name.startswith(start)
    }


async def test_cohort_series_follow_creation_move_and_deletion(env: Environment) -> None:
    quota = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
    }
    async with env.manager() as manager:
        await env.create("Cohort", "ch1", {"parentName": "root", "resourceGroups": [quota]})
        await env.queues("3", cohortName="ch1")
        await env.workload("first")
        await env.until_condition("first", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        found = await page(env)
        assert cohort_series(found, "subtree_quota") == {"ch1": 4, "root": 4}
        assert cohort_series(found, "subtree_resource_reservations") == {"ch1": 1, "root": 1}
        assert cohort_series(found, "subtree_admitted_workloads_total") == {"ch1": 1, "root": 1}
        assert cohort_series(found, "subtree_admitted_active_workloads") == {"ch1": 1, "root": 1}
        assert cohort_series(found, "info").keys() == {"ch1", "root"}

        # The ClusterQueue goes on under an implicit cohort `ch1`; `root` has no child any more.
        await env.delete("Cohort", "ch1")
        await env.until_quiet(manager)
        found = await page(env)
        for metric in (
            "subtree_quota",
            "subtree_resource_reservations",
            "subtree_admitted_workloads_total",
            "subtree_admitted_active_workloads",
            "info",
        ):
            assert cohort_series(found, metric) == {}, metric

        await env.workload("second")
        await env.until_condition("second", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        found = await page(env)
        assert cohort_series(found, "subtree_quota") == {"ch1": 3}
        assert cohort_series(found, "subtree_admitted_workloads_total") == {"ch1": 1}
        assert cohort_series(found, "subtree_admitted_active_workloads") == {"ch1": 2}

        await env.patch("ClusterQueue", "cq", {"spec": {"cohortName": "ch2"}})
        await env.until_quiet(manager)
        found = await page(env)
        assert cohort_series(found, "subtree_quota") == {"ch2": 3}
        assert cohort_series(found, "subtree_resource_reservations") == {"ch2": 2}
        assert cohort_series(found, "subtree_admitted_workloads_total") == {}
        assert cohort_series(found, "subtree_admitted_active_workloads") == {"ch2": 2}
        assert cohort_series(found, "info").keys() == {"ch2"}

        await env.create("Cohort", "ch1", {"resourceGroups": [quota]})
        await env.until_quiet(manager)
        assert cohort_series(await page(env), "subtree_quota") == {"ch1": 1, "ch2": 3}


async def test_custom_labels_follow_the_objects_and_split_by_workload(env: Environment) -> None:
    custom = [
        {"name": "team"},
        {"name": "tier", "sourceKind": "Workload", "trackedValues": ["gold"]},
    ]
    async with env.manager(metrics={"customLabels": custom}, featureGates={"CustomMetricLabels": True}) as manager:
        await env.queues("2", cohortName="all")
        await env.patch("ClusterQueue", "cq", {"metadata": {"labels": {"team": "ml"}}})
        spec = {"queueName": "lq", "podSets": [pod_set("1")]}
        await env.create("Workload", "first", spec, labels={"tier": "gold"})
        await env.create("Workload", "second", spec)
        for name in ("first", "second"):
            await env.until_condition(name, "Admitted", "True/Admitted")
        await env.create("Workload", "third", spec, labels={"tier": "gold"})
        await env.until_condition("third", "QuotaReserved", "False/WaitingForQuota")
        await env.until_quiet(manager)
        found = await page(env)
        for tier in ("gold", "kueue.x-k8s.io/_UNTRACKED_VALUE_"):
            labels = f'cluster_queue="cq",custom_team="ml",custom_tier="{tier}",{STANDALONE}'
            assert found[f"kueue_admitted_active_workloads{{{labels}}}"] == 1
        labels = f'cluster_queue="cq",custom_team="ml",custom_tier="gold",{STANDALONE},status="inadmissible"'
        assert found[f"kueue_pending_workloads{{{labels}}}"] == 1
        assert (
            found[f'kueue_cohort_subtree_admitted_active_workloads{{cohort="all",custom_team="ml",{STANDALONE}}}'] == 2
        )
        await env.patch("ClusterQueue", "cq", {"metadata": {"labels": {"team": "hpc"}}})
        await env.until_quiet(manager)
        reserving = "kueue_reserving_active_workloads"
        assert [name for name in await page(env) if name.startswith(f"{reserving}{{")] == [
            f'{reserving}{{cluster_queue="cq",custom_team="hpc",{STANDALONE}}}'
        ]
