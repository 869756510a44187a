"""Jobs on one machine, from the queue to the exit code: a server, a manager and processes, all real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubemachinery.unstructured import get
from runner.conftest import System, system


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[System]:
    async with system(tmp_path, "process") as made:
        yield made


class TestOneJob:
    async def test_job_is_queued_in_the_initial_queue_and_completes(self, here: System) -> None:
        made = await here.job("hello", "sh", "-c", "echo hi")
        assert made["spec"]["suspend"], "the LocalQueue called default takes jobs that name no queue"
        assert await here.over("hello") == "Complete"
        (workload,) = await here.all("Workload")
        assert workload["status"]["admission"]["clusterQueue"] == "default"
        (pod,) = await here.pods("hello")
        assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("here", "Succeeded")
        assert await here.log(pod["metadata"]["name"]) == (200, "hi\n")

    async def test_indexed_pods_have_their_index_and_run_once(self, here: System) -> None:
        shape = {"parallelism": 2, "completions": 3, "completionMode": "Indexed"}
        await here.job("many", "sh", "-c", "echo $JOB_COMPLETION_INDEX", job=shape)
        assert await here.over("many") == "Complete"
        reported = [(await here.log(pod["metadata"]["name"]))[1] for pod in await here.pods("many")]
        assert sorted(reported) == ["0\n", "1\n", "2\n"]

    async def test_failed_job_reports_its_exit_code(self, here: System) -> None:
        await here.job("broken", "sh", "-c", "exit 3")
        assert await here.over("broken") == "BackoffLimitExceeded"
        (pod,) = await here.pods("broken")
        assert get(pod["status"]["containerStatuses"][0], "state", "terminated", "exitCode") == 3

        async def failed() -> bool:
            (workload,) = await here.all("Workload")
            return ("Finished", "Failed") in [
                (each["type"], each["reason"]) for each in workload["status"]["conditions"]
            ]

        await here.until(failed)

    async def test_restarted_container_keeps_its_previous_log(self, here: System, tmp_path: Path) -> None:
        script = f"echo try; [ -e {tmp_path}/again ] && exit 0; touch {tmp_path}/again; exit 1"
        await here.job("again", "sh", "-c", script, pod={"restartPolicy": "OnFailure"}, job={"backoffLimit": 3})
        assert await here.over("again") == "Complete"
        (pod,) = await here.pods("again")
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
        assert await here.log(pod["metadata"]["name"], previous="true") == (200, "try\n")

    async def test_ignored_fields_emit_an_event(self, here: System) -> None:
        await here.job("image", "true", container={"image": "train:1"})
        await here.over("image")

        async def noted() -> list[tuple[str, str]]:
            return [(each["reason"], each["note"]) for each in await here.all("Event") if each["type"] == "Warning"]

        why = "the image is not used (train:1): commands run directly on this machine"
        assert await here.until(noted) == [("Ignored", why)]


class TestStopping:
    async def test_stopped_queue_ends_processes_and_resumed_queue_restarts_them(
        self, here: System, tmp_path: Path
    ) -> None:
        log = tmp_path / "log"
        script = f"trap 'echo stopped >> {log}; exit 1' TERM; echo started >> {log}; while :; do sleep 0.05; done"
        await here.job("long", "sh", "-c", script)
        await here.running("long")
        await here.until(_true(lambda: log.exists()))
        await here.patch("ClusterQueue", "default", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await here.until(_true(lambda: "stopped" in log.read_text()))

        async def nothing_is_left() -> bool:
            return not await here.pods("long")

        await here.until(nothing_is_left)
        await here.patch("ClusterQueue", "default", {"spec": {"stopPolicy": "None"}})
        await here.until(_true(lambda: log.read_text() == "started\nstopped\nstarted\n"))

    async def test_deleting_a_job_deletes_its_processes_and_files(self, here: System, tmp_path: Path) -> None:
        await here.job("long", "sleep", "1000")
        await here.running("long")
        await here.delete("Job", "long")

        async def nothing_is_left() -> bool:
            kept = [path for path in (tmp_path / "pods").iterdir() if not path.name.startswith(".")]
            return not await here.all("Pod") and not kept

        await here.until(nothing_is_left)

    async def test_job_past_its_deadline_fails(self, here: System) -> None:
        await here.job("slow", "sleep", "1000", job={"activeDeadlineSeconds": 1})
        assert await here.over("slow") == "DeadlineExceeded"


class TestThePod:
    async def test_init_containers_run_first_and_share_the_environment_of_config_maps(
        self, here: System, tmp_path: Path
    ) -> None:
        first = {"name": "first", "image": "none", "command": ["sh", "-c", f"echo one > {tmp_path}/f"]}
        reference = {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "colour"}}}
        await here.job(
            "ordered",
            "sh",
            "-c",
            f"cat {tmp_path}/f; echo $COLOUR",
            container={"env": [reference]},
            pod={"initContainers": [first]},
        )

        async def waits() -> Any:
            (pod,) = await here.pods("ordered") or [{}]
            return get((get(pod, "status", "containerStatuses") or [{}])[0], "state", "waiting", "message")

        async def missing() -> bool:
            return bool(await waits() == "ConfigMap c not found")

        await here.until(missing)
        await here.create("ConfigMap", "c", data={"colour": "red"})
        assert await here.over("ordered") == "Complete"
        (pod,) = await here.pods("ordered")
        assert await here.log(pod["metadata"]["name"]) == (200, "one\nred\n")

    async def test_each_pod_gets_its_own_devices(self, here: System, tmp_path: Path) -> None:
        asks = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
        shape = {"parallelism": 2, "completions": 2}
        has = f"{tmp_path}/has-"
        # Each waits for the other, or the second might get what the first has given back.
        both = f"while [ $(ls {has}* | wc -l) -lt 2 ]; do sleep 0.05; done"
        script = f"echo $CUDA_VISIBLE_DEVICES; touch {has}$CUDA_VISIBLE_DEVICES; {both}"
        await here.job("train", "sh", "-c", script, container={"resources": asks}, job=shape)
        assert await here.over("train") == "Complete"
        reported = [(await here.log(pod["metadata"]["name"]))[1] for pod in await here.pods("train")]
        assert sorted(reported) == ["0\n", "1\n"]

    async def test_pod_stays_unschedulable_until_capacity_is_free(self, here: System, tmp_path: Path) -> None:
        """Pods without a queue take capacity as well, and no process starts without free capacity."""
        end = tmp_path / "end"
        script = ["sh", "-c", f"while [ ! -e {end} ]; do sleep 0.05; done"]
        container = {"name": "c", "image": "none", "command": script, "resources": {"requests": {"cpu": "3"}}}
        spec = {"restartPolicy": "Never", "containers": [container]}
        for name in ("a", "b"):
            await here.create("Pod", name, spec=spec)

        async def unschedulable() -> bool:
            pods = await here.all("Pod")
            return any(
                each.get("reason") == "Unschedulable" and each["message"] == "no node fits: 1 of 1 has too little cpu"
                for pod in pods
                for each in get(pod, "status", "conditions") or ()
            )

        await here.until(unschedulable)

        async def reported() -> list[str]:
            events = await here.all("Event")
            return [
                each["note"] for each in events if (each["reason"], each["type"]) == ("FailedScheduling", "Warning")
            ]

        await here.until(reported)
        assert await reported() == ["no node fits: 1 of 1 has too little cpu"]
        end.touch()

        async def both_are_over() -> bool:
            return all(pod["status"]["phase"] == "Succeeded" for pod in await here.all("Pod"))

        await here.until(both_are_over)

    async def test_since_time_is_exact_to_the_nanosecond(self, here: System) -> None:
        await here.job("hello", "echo", "hi")
        await here.over("hello")
        (pod,) = await here.pods("hello")
        name = pod["metadata"]["name"]
        moment = (await here.log(name, timestamps="true"))[1].partition(" ")[0]
        assert await here.log(name, sinceTime=moment) == (200, "hi\n")

    async def test_invalid_log_requests_are_refused_with_the_reason(self, here: System) -> None:
        await here.job("hello", "echo", "hi")
        await here.over("hello")
        (pod,) = await here.pods("hello")
        name = pod["metadata"]["name"]
        for query, words in (
            ({"container": "other"}, "container other is not valid for pod"),
            ({"previous": "true"}, "previous terminated container main not found"),
            ({"tailLines": "-1"}, "is not a number"),
            ({"sinceTime": "yesterday"}, "sinceTime"),
        ):
            code, reported = await here.log(name, **query)
            assert code == 400
            assert words in reported


class TestTheNode:
    async def test_node_has_the_capacity_of_the_machine(self, here: System) -> None:
        node = await here.find("Node", "here")
        assert node is not None
        assert node["status"]["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2"}
        assert [(each["type"], each["status"]) for each in node["status"]["conditions"]] == [("Ready", "True")]
        assert "taints" not in node["spec"]

    async def test_initial_queue_has_the_capacity_of_the_machine(self, here: System) -> None:
        queue = await here.find("ClusterQueue", "default")
        assert queue is not None
        (group,) = queue["spec"]["resourceGroups"]
        quotas = {each["name"]: each["nominalQuota"] for each in group["flavors"][0]["resources"]}
        assert quotas == {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"}


def _true(question: Any) -> Any:
    async def asked() -> Any:
        return question()

    return asked
