"""KEP-7610: a ClusterQueue makes a LocalQueue in every namespace that it selects."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from keps.engines import Engine
from keps.system import System, gates, system
from kubemachinery.client.errors import ApiError, Invalid
from kubemachinery.client.informer import ObjectKey
from kubemachinery.clock import SystemClock
from kubemachinery.unstructured import get
from pykueue import settings
from pykueue.api import registry
from pykueue.app.options import manager_options
from pykueue.controllers import populator
from pykueue.controllers.assembly import Manager
from pykueue.errors import ConfigurationError

ON = gates("DefaultLocalQueue")
RED: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
MAKES: dict[str, Any] = {"defaultLocalQueue": {"name": "team-queue"}}


async def local_queues(env: System) -> list[str]:
    return sorted(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in await env.all("LocalQueue"))


async def by_hand(env: System, namespace: str) -> None:
    await env.create("LocalQueue", "team-queue", {"clusterQueue": "hand"}, namespace=namespace)


# --- Goals: when one is made, and how it is known ---------------------------------------------------------------------


async def test_a_new_cluster_queue_serves_the_namespaces_that_are_there(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.namespace("one", team="red")
        await env.namespace("two", team="red")
        await env.namespace("other", team="blue")
        await env.cluster_queue("cq", **RED, **MAKES)
        made = await env.until_there("one", "LocalQueue", "team-queue")
        await env.until_there("two", "LocalQueue", "team-queue")
        await env.quiet()
        assert await local_queues(env) == ["one/team-queue", "two/team-queue"]
        assert made["spec"]["clusterQueue"] == "cq"
        assert made["metadata"]["labels"] == {"kueue.x-k8s.io/auto-generated": "true"}
        assert made["metadata"]["annotations"] == {"kueue.x-k8s.io/created-by-clusterqueue": "cq"}
        assert len(await env.events("cq", "LocalQueueCreated")) == 2


async def test_a_namespace_is_served_when_it_is_made(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.namespace("late", team="red")
        await env.until_there("late", "LocalQueue", "team-queue")


async def test_a_namespace_is_served_when_it_is_labelled(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.namespace("late", team="blue")
        await env.quiet()
        assert await local_queues(env) == []
        await env.relabel("late", team="red")
        await env.until_there("late", "LocalQueue", "team-queue")


async def test_the_field_may_be_added_later(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.namespace("one", team="red")
        await env.cluster_queue("cq", **RED)
        await env.quiet()
        assert await local_queues(env) == []
        await env.patch("ClusterQueue", "cq", {"spec": MAKES})
        await env.until_there("one", "LocalQueue", "team-queue")


async def test_namespaces_created_without_a_manager_are_served_at_its_start(engine: Engine) -> None:
    async with engine.served(**ON) as env:
        await env.namespace("one", team="red")
        await env.cluster_queue("cq", **RED, **MAKES)
        async with env.manager(**ON):
            await env.until_there("one", "LocalQueue", "team-queue")
        await env.client.delete(_row("LocalQueue"), "team-queue", "one")
        async with env.manager(**ON):  # another one, as after a restart
            await env.until_there("one", "LocalQueue", "team-queue")


@pytest.mark.parametrize("selector", [None, {}])
async def test_no_selector_selects_nothing_and_an_empty_one_everything(engine: Engine, selector: Any) -> None:
    async with system(engine, **ON) as env:
        await env.namespace("one")
        namespaces = [each["metadata"]["name"] for each in await env.all("Namespace")]
        assert {"default", "kube-system", "one"} <= set(namespaces)
        await env.cluster_queue("cq", namespaceSelector=selector, **MAKES)
        served = namespaces if selector is not None else []
        for name in served:
            await env.until_there(name, "LocalQueue", "team-queue")
        await env.quiet()
        assert await local_queues(env) == sorted(f"{name}/team-queue" for name in served)


async def test_with_the_gate_off_the_field_is_kept_and_does_nothing(engine: Engine) -> None:
    async with system(engine) as env:
        await env.namespace("one", team="red")
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.quiet()
        assert await local_queues(env) == []
        assert get(await env.read("ClusterQueue", "cq"), "spec", "defaultLocalQueue") == {"name": "team-queue"}


async def test_a_selector_that_changes_serves_those_it_takes_in_and_leaves_the_others(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.namespace("one", team="red")
        await env.namespace("two", team="blue")
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.until_there("one", "LocalQueue", "team-queue")
        await env.patch("ClusterQueue", "cq", {"spec": {"namespaceSelector": {"matchLabels": {"team": "blue"}}}})
        await env.until_there("two", "LocalQueue", "team-queue")
        assert await local_queues(env) == ["one/team-queue", "two/team-queue"]


async def test_a_namespace_that_goes_as_it_comes_leaves_no_trace(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.cluster_queue("cq", **RED, **MAKES)
        for _ in range(5):
            await env.namespace("brief", team="red")
            await env.remove_namespace("brief")
        await env.namespace("lasting", team="red")
        await env.until_there("lasting", "LocalQueue", "team-queue")
        await env.quiet()
        assert await env.events("cq", "LocalQueueCreationFailed") == []
        assert await env.events("cq", "LocalQueueExists") == []


@pytest.mark.parametrize("name", ["", "Queue", "q" * 64, "-q", "a..b"])
async def test_a_name_that_no_local_queue_could_have_is_refused(engine: Engine, name: str) -> None:
    """API Proposal: one to 63 characters, a DNS subdomain."""
    async with system(engine, **ON) as env:
        with pytest.raises(Invalid, match=r"spec\.defaultLocalQueue\.name"):
            await env.cluster_queue("cq", defaultLocalQueue={"name": name})


# --- Non-Goals: nothing is deleted ------------------------------------------------------------------------------------


async def test_nothing_goes_with_the_label_the_field_or_the_cluster_queue(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.namespace("one", team="red")
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.until_there("one", "LocalQueue", "team-queue")
        await env.relabel("one", team="blue")
        await env.patch("ClusterQueue", "cq", {"spec": {"defaultLocalQueue": None}})
        await env.quiet()
        assert await local_queues(env) == ["one/team-queue"]
        await env.delete("ClusterQueue", "cq")
        await env.quiet()
        assert await local_queues(env) == ["one/team-queue"]


# --- Risks and Mitigations: a LocalQueue that is there already --------------------------------------------------------


async def test_one_that_appears_first_is_left_alone_with_one_warning(engine: Engine) -> None:
    """Mitigation 2: no-op on conflict, a Warning on the ClusterQueue, and other namespaces are served."""
    async with system(engine, **ON) as env:
        await env.cluster_queue("hand")
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.namespace("taken")
        await by_hand(env, "taken")
        await env.relabel("taken", team="red")
        await env.namespace("free", team="red")
        await env.until_there("free", "LocalQueue", "team-queue")

        async def warned() -> bool:
            return bool(await env.events("cq", "LocalQueueExists"))

        await env.until(warned)
        await env.relabel("taken", other="label")  # met again
        await env.patch("ClusterQueue", "cq", {"spec": {"namespaceSelector": {"matchLabels": {"team": "red"}}}})
        await env.quiet()
        (event,) = await env.events("cq", "LocalQueueExists")
        assert event["type"] == "Warning"
        assert "taken" in event["note"]
        assert "series" not in event
        found = await env.find_in("taken", "LocalQueue", "team-queue")
        assert get(found, "spec", "clusterQueue") == "hand"
        assert get(found, "metadata", "labels") is None


async def test_a_later_conflict_does_not_block_changes_of_the_cluster_queue(engine: Engine) -> None:
    """Mitigation 2, step 4: the ClusterQueue itself remains fully operational."""
    async with system(engine, **ON) as env:
        await env.cluster_queue("hand")
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.namespace("taken")
        await by_hand(env, "taken")
        await env.relabel("taken", team="red")
        await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "Hold"}})
        await env.delete("ClusterQueue", "cq")

        async def gone() -> bool:
            return await env.find("ClusterQueue", "cq") is None

        await env.until(gone)


async def test_a_terminating_namespace_is_skipped_quietly(engine: Engine) -> None:
    async with system(engine, **ON) as env:
        await env.create("Namespace", "going", {}, labels={"team": "red"})
        # Whatever keeps an object in it keeps the namespace terminating.
        kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "going"}}
        kept["metadata"]["finalizers"] = ["example.com/keep"]  # type: ignore[index]
        await env.client.create(_row("ConfigMap"), kept)
        await env.delete("Namespace", "going")
        going = await env.read("Namespace", "going")
        assert going["status"]["phase"] == "Terminating"
        await env.quiet()  # the manager knows that
        await env.cluster_queue("cq", **RED, **MAKES)
        await env.quiet()
        assert _asked(env, "localqueues", "POST") == 0
        assert await env.events("cq", "LocalQueueCreationFailed") == []


async def test_only_what_an_event_concerns_is_looked_at(engine: Engine) -> None:
    """Controller Logic, without a look at everything whenever anything changes."""
    async with engine.served(**ON) as env:
        configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **ON}
        choices = manager_options(settings.load(configuration))
        manager = Manager(env.client, choices, SystemClock(), random.Random(1))
        (loop,) = (loop for loop in manager.loops if loop.name == "default-local-queues")

        async def looked_at() -> list[str]:
            """Read what is new, and take what is to be looked at because of it."""
            await env.until(lambda: _is_up_to_date(manager, env))
            found = []
            while len(loop.queue):
                place = await loop.queue.get()
                loop.queue.done(place)
                found.append(str(place))
            return sorted(found)

        async with manager.reading():  # without a leader: keys stay in the work queue
            await env.namespace("one", team="red")
            await env.namespace("two", team="blue")
            assert await looked_at() == []
            await env.cluster_queue("plain")
            await env.cluster_queue("cq", **RED, **MAKES)
            assert await looked_at() == ["cq", "cq in one"]
            await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "Hold"}})
            await env.set_condition("ClusterQueue", "cq", "Active", "True", "Ready")
            await env.patch("Namespace", "one", {"metadata": {"annotations": {"a": "b"}}})
            await env.relabel("two", stage="test")
            assert await looked_at() == []
            await env.relabel("two", team="red")
            assert await looked_at() == ["cq in two"]


async def _is_up_to_date(manager: Manager, env: System) -> bool:
    """Whether the manager's copies show everything that was written."""
    for informer in (manager.informers.cluster_queues, manager.informers.namespaces):
        for tree in await env.all(informer.kind.kind):
            metadata = tree["metadata"]
            if informer.revision_of(ObjectKey("", metadata["name"])) < int(metadata["resourceVersion"]):
                return False
    return True


def _asked(env: System, plural: str, *verbs: str) -> int:
    chosen = verbs or ("POST", "GET")
    return sum(
        count for (verb, kind), count in env.manager_now.client.sent.items() if kind == plural and verb in chosen
    )


# --- Risks and Mitigations: the webhook -------------------------------------------------------------------------------


async def refused(env: System, name: str, **spec: Any) -> str:
    await env.quiet()  # the webhook goes by what the manager has read
    with pytest.raises(ApiError) as error:
        await env.cluster_queue(name, **spec)
    assert error.value.code == 403
    assert any(cause.startswith("spec.defaultLocalQueue.name") for cause in error.value.causes)
    return str(error.value)


async def test_a_name_that_is_taken_in_a_matched_namespace_is_refused(engine: Engine) -> None:
    """Mitigation 1."""
    async with system(engine, **ON) as env:
        await env.cluster_queue("hand")
        for number in range(7):
            await env.namespace(f"n{number}", team="red")
            await by_hand(env, f"n{number}")
        message = await refused(env, "cq", **RED, **MAKES)
        assert "n0, n1, n2, n3, n4 and 2 more" in message
        await env.cluster_queue("cq", **RED, defaultLocalQueue={"name": "free"})
        with pytest.raises(ApiError, match="team-queue"):
            await env.patch("ClusterQueue", "cq", {"spec": MAKES})


async def test_two_that_could_meet_in_some_namespace_are_refused_though_none_matches_both(engine: Engine) -> None:
    """Goals: no two ClusterQueues with this feature have overlapping selectors."""
    async with system(engine, **ON) as env:
        await env.cluster_queue("first", **RED, **MAKES)
        overlapping = {"matchExpressions": [{"key": "stage", "operator": "Exists"}]}
        assert "ClusterQueue first" in await refused(env, "second", namespaceSelector=overlapping, **MAKES)
        apart = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
        await env.cluster_queue("second", namespaceSelector=apart, **MAKES)
        await env.cluster_queue("third", namespaceSelector=overlapping, defaultLocalQueue={"name": "another"})


async def test_overlapping_cluster_queues_that_were_both_accepted_are_reported_on_both(engine: Engine) -> None:
    """Goals: the webhook decides on what it has seen, so two that are created at the same moment can both pass it.

    Here they are created while the gate is off and no webhook compares them, which leaves the same state behind.
    """
    async with engine.served() as env:
        await env.cluster_queue("first", **RED, **MAKES)
        await env.cluster_queue("second", namespaceSelector={}, **MAKES)
        await env.cluster_queue("other-name", namespaceSelector={}, defaultLocalQueue={"name": "another"})
        blue = {"matchLabels": {"team": "blue"}}
        await env.cluster_queue("apart", namespaceSelector=blue, **MAKES)
        async with env.manager(**ON) as env.running:

            async def reported() -> bool:
                return bool(await env.events("first", "DefaultLocalQueueConflict"))

            await env.until(reported)
            await env.namespace("red", team="red")
            await env.until_there("red", "LocalQueue", "team-queue")
            await env.quiet()
            (event,) = await env.events("first", "DefaultLocalQueueConflict")
            assert event["type"] == "Warning"
            assert event["note"].startswith("ClusterQueue second also creates LocalQueues named team-queue")
            named = [each["note"].split()[1] for each in await env.events("second", "DefaultLocalQueueConflict")]
            assert sorted(named) == ["apart", "first"]
            (event,) = await env.events("apart", "DefaultLocalQueueConflict")
            assert event["note"].startswith("ClusterQueue second ")
            assert await env.events("other-name", "DefaultLocalQueueConflict") == []
            assert len([name for name in await local_queues(env) if name == "red/team-queue"]) == 1


# --- Beside any manager: `pykueue populator` --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configuration", "made"),
    [
        ({}, ["blue/default", "red/default"]),
        ({"localQueueName": "q"}, ["blue/q", "red/q"]),
        ({"localQueueNameMode": "AsClusterQueue"}, ["blue/cq", "red/cq"]),
        ({"managedJobsNamespaceSelector": {"matchLabels": {"team": "blue"}}}, ["blue/default"]),
    ],
)
async def test_the_populator_needs_no_gate_and_no_field(engine: Engine, configuration: Any, made: list[str]) -> None:
    async with system(engine) as env:
        await env.namespace("red", team="red")
        await env.namespace("blue", team="blue")
        await env.cluster_queue("cq", namespaceSelector={"matchExpressions": [{"key": "team", "operator": "Exists"}]})
        wanted = populator.load(configuration, "test")
        running = asyncio.create_task(
            populator.Populator(env.client, wanted, SystemClock(), random.Random(3), instance="test").run()
        )
        for name in made:
            namespace, queue = name.split("/")
            await env.until_there(namespace, "LocalQueue", queue)
        await env.quiet()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await local_queues(env) == made


@pytest.mark.parametrize(
    ("configuration", "finding"),
    [
        ([], "must be an object"),
        ({"localQueuName": "q"}, "localQueuName: is not a field; did you mean localQueueName?"),
        ({"localQueueName": "Q"}, "localQueueName: "),
        ({"localQueueName": "q", "localQueueNameMode": "AsClusterQueue"}, "cannot be set"),
        ({"localQueueNameMode": "Dynamic"}, "localQueueNameMode"),
        ({"managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}, "operator"),
    ],
)
def test_a_wrong_configuration_of_the_populator_is_refused_with_its_place(configuration: Any, finding: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        populator.load(configuration, "populator.yaml")
    assert any(finding in each for each in error.value.findings), error.value.findings


def _row(kind: str) -> Any:
    row = registry.ALL.named(kind)
    assert row is not None
    return row
