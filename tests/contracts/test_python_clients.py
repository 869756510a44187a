"""Two Python clients that we did not write, on our server: the official one, and lightkube, which is asynchronous."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import kubernetes
import lightkube
import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.models.batch_v1 import JobSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import PatchType

from kubeserver.serve import ServerSettings
from pykueue.app.server import kueue_parts
from server.conftest import Running

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"
API_VERSION = f"{GROUP}/{VERSION}"
PENDING = {
    "type": "QuotaReserved",
    "status": "False",
    "reason": "Pending",
    "message": "no room",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def job_spec() -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    return {"suspend": True, "template": {"spec": pod}}


def workload(name: str) -> dict[str, Any]:
    pod_set = {"name": "main", "count": 1, "template": job_spec()["template"]}
    spec = {"queueName": "mine", "podSets": [pod_set]}
    return {"apiVersion": API_VERSION, "kind": "Workload", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    settings = ServerSettings(data_dir=tmp_path_factory.mktemp("data"))
    with Running(settings, kueue_parts()) as server:
        yield server.serving.kubeconfig


class TestOfficial:
    @pytest.fixture
    def api(self, kubeconfig: Path) -> Iterator[Any]:
        with kubernetes.config.new_client_from_config(str(kubeconfig)) as client:
            yield client

    @pytest.fixture
    def namespace(self, api: Any) -> str:
        core: Any = kubernetes.client.CoreV1Api(api)
        made = core.create_namespace({"metadata": {"generateName": "official-"}})
        return str(made.metadata.name)

    def test_the_version_has_all_that_its_model_demands(self, api: Any) -> None:
        assert kubernetes.client.VersionApi(api).get_code().git_version.startswith("v1.")

    def test_a_built_in_kind_is_created_patched_listed_and_deleted(self, api: Any, namespace: str) -> None:
        core: Any = kubernetes.client.CoreV1Api(api)
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}})
        core.patch_namespaced_config_map("c", namespace, {"data": {"a": None, "c": "3"}})
        (found,) = core.list_namespaced_config_map(namespace, label_selector="!none").items
        assert found.data == {"b": "2", "c": "3"}
        with pytest.raises(ApiException) as refused:
            core.create_namespaced_config_map(namespace, {"metadata": {"name": "c"}})
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")
        core.delete_namespaced_config_map("c", namespace)
        with pytest.raises(ApiException, match="404"):
            core.read_namespaced_config_map("c", namespace)

    def test_a_job_and_its_status(self, api: Any, namespace: str) -> None:
        batch: Any = kubernetes.client.BatchV1Api(api)
        batch.create_namespaced_job(namespace, {"metadata": {"name": "j"}, "spec": job_spec()})
        batch.patch_namespaced_job("j", namespace, {"spec": {"parallelism": 3}})
        batch.patch_namespaced_job_status("j", namespace, {"status": {"active": 2}})
        found = batch.read_namespaced_job("j", namespace)
        assert (found.spec.parallelism, found.status.active, found.metadata.generation) == (3, 2, 2)

    def test_server_side_apply_knows_who_owns_what(self, api: Any, namespace: str) -> None:
        maps = DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")

        def apply(value: str, manager: str, **more: Any) -> Any:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned"}, "data": {"key": value}}
            return maps.server_side_apply(body, namespace=namespace, field_manager=manager, **more)

        apply("one", "first")
        with pytest.raises(ConflictError, match="first"):
            apply("two", "second")
        assert apply("two", "second", force_conflicts=True).data.key == "two"

    def test_a_watch_receives_changes(self, api: Any, namespace: str) -> None:
        core: Any = kubernetes.client.CoreV1Api(api)
        begin = core.list_namespaced_config_map(namespace).metadata.resource_version
        stream = kubernetes.watch.Watch().stream(
            core.list_namespaced_config_map, namespace, resource_version=begin, timeout_seconds=90
        )
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "w"}})
        core.patch_namespaced_config_map("w", namespace, {"data": {"k": "v"}})
        core.delete_namespaced_config_map("w", namespace)
        seen = [(event["type"], event["object"].metadata.name) for event in itertools.islice(stream, 3)]
        assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")]

    def test_custom_objects_and_their_status(self, api: Any, namespace: str) -> None:
        custom: Any = kubernetes.client.CustomObjectsApi(api)
        where = (GROUP, VERSION, namespace, "workloads")
        custom.create_namespaced_custom_object(*where, workload("w"))
        custom.patch_namespaced_custom_object(*where, "w", {"spec": {"priority": 7}})
        custom.patch_namespaced_custom_object_status(*where, "w", {"status": {"conditions": [PENDING]}})
        (found,) = custom.list_namespaced_custom_object(*where)["items"]
        assert found["spec"]["priority"] == 7
        assert found["status"]["conditions"] == [PENDING]

    def test_the_dynamic_client_finds_our_kinds(self, api: Any) -> None:
        flavors = DynamicClient(api).resources.get(api_version=API_VERSION, kind="ResourceFlavor")
        flavors.create({"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "official"}})
        assert "official" in {item.metadata.name for item in flavors.get().items}


Workload: Any = create_namespaced_resource(GROUP, VERSION, "Workload", "workloads")
ResourceFlavor: Any = create_global_resource(GROUP, VERSION, "ResourceFlavor", "resourceflavors")


class TestLightkube:
    @pytest.fixture
    async def client(self, kubeconfig: Path) -> AsyncIterator[lightkube.AsyncClient]:
        config = lightkube.KubeConfig.from_file(str(kubeconfig))
        client = lightkube.AsyncClient(config, field_manager="lightkube", trust_env=False)
        yield client
        await client.close()

    @pytest.fixture
    async def namespace(self, client: lightkube.AsyncClient) -> str:
        made = await client.create(Namespace(metadata=ObjectMeta(generateName="lightkube-")))
        assert made.metadata is not None
        return str(made.metadata.name)

    async def test_a_built_in_kind_in_every_way_of_patching(
        self, client: lightkube.AsyncClient, namespace: str
    ) -> None:
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace=namespace), data={"a": "1"}))
        where = (ConfigMap, "c")
        await client.patch(*where, {"data": {"b": "2"}}, namespace=namespace)
        await client.patch(*where, {"data": {"a": None}}, namespace=namespace, patch_type=PatchType.MERGE)
        operations = [{"op": "add", "path": "/data/c", "value": "3"}]
        await client.patch(*where, operations, namespace=namespace, patch_type=PatchType.JSON)
        assert [one.data async for one in client.list(ConfigMap, namespace=namespace)] == [{"b": "2", "c": "3"}]
        await client.delete(*where, namespace=namespace)
        with pytest.raises(ApiError) as refused:
            await client.get(*where, namespace=namespace)
        assert refused.value.status.reason == "NotFound"

    async def test_server_side_apply_and_a_status(self, client: lightkube.AsyncClient, namespace: str) -> None:
        container = Container(name="main", image="busybox")
        template = PodTemplateSpec(spec=PodSpec(restartPolicy="Never", containers=[container]))
        job = Job(metadata=ObjectMeta(name="j", namespace=namespace), spec=JobSpec(template=template, parallelism=1))
        await client.apply(job)
        with pytest.raises(ApiError, match="lightkube"):
            await client.patch(Job, "j", applied({"parallelism": 2}), **as_rival(namespace))
        await client.patch(Job, "j", applied({"parallelism": 2}), **as_rival(namespace), force=True)
        await client.patch(Job.Status, "j", {"status": {"active": 2}}, namespace=namespace)
        found: Any = await client.get(Job, "j", namespace=namespace)
        assert (found.spec.parallelism, found.status.active) == (2, 2)

    async def test_a_watch_receives_changes(self, client: lightkube.AsyncClient, namespace: str) -> None:
        await client.create(ConfigMap(metadata=ObjectMeta(name="w", namespace=namespace)))
        seen = []
        async for what, one in client.watch(ConfigMap, namespace=namespace, server_timeout=90):
            assert one.metadata is not None
            seen.append((what, one.metadata.name))
            if what == "ADDED":
                await client.patch(ConfigMap, "w", {"data": {"k": "v"}}, namespace=namespace)
            elif what == "MODIFIED":
                await client.delete(ConfigMap, "w", namespace=namespace)
            else:
                break
        assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")]

    async def test_our_own_kinds(self, client: lightkube.AsyncClient, namespace: str) -> None:
        await client.create(ResourceFlavor(metadata=ObjectMeta(name="lightkube")))
        assert "lightkube" in {one.metadata.name async for one in client.list(ResourceFlavor, chunk_size=1)}
        await client.create(Workload(workload("w")), namespace=namespace)  # type: ignore[call-overload]
        status = {"status": {"conditions": [PENDING]}}
        await client.patch(Workload.Status, "w", status, namespace=namespace, patch_type=PatchType.MERGE)
        found = await client.get(Workload, "w", namespace=namespace)
        assert found.status["conditions"] == [PENDING]


def applied(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}


def as_rival(namespace: str) -> dict[str, Any]:
    return {"namespace": namespace, "patch_type": PatchType.APPLY, "field_manager": "rival"}
