"""Owners of jobs on a real kube-apiserver, read with the rights that are installed; its audit log gives the refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cluster import assets, real
from controllers.test_beside_cluster import QUEUE, made_at_last, managed
from kubemachinery.client.client import ApiClient
from kubemachinery.kinds import Kind, Version
from pykueue.api import labels
from pykueue.jobs.kinds import BUILT_IN, REPLICA_SET
from waiting import eventually
from webhooks.conftest import GROUP, cluster_queue, kind

pytestmark = pytest.mark.cluster

Tree = dict[str, Any]

ACCOUNT_USER = "system:serviceaccount:kueue-system:kueue-controller-manager"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [ACCOUNT_USER]}, {"level": "None"}],
}
# An external framework whose plural cannot be derived from its name.
SHEEP = Kind("example.com", "Sheep", "flock", (Version("v1", storage=True),))
OWNERS = (*(row.kind for row in BUILT_IN), REPLICA_SET, SHEEP)

POD_SPEC: Tree = {
    "restartPolicy": "Never",
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}],
}
_MARKS = {"app": "top"}
_TEMPLATE = {"metadata": {"labels": _MARKS}, "spec": {**POD_SPEC, "restartPolicy": "Always"}}
_SET = {"selector": {"matchLabels": _MARKS}, "template": _TEMPLATE}
# What the API server wants of a built-in kind; the kinds of others have no schema here.
_SPECS: dict[str, Tree] = {
    "Job": {"template": {"spec": POD_SPEC}},
    "Pod": POD_SPEC,
    "Deployment": _SET,
    "ReplicaSet": _SET,
    "StatefulSet": {**_SET, "serviceName": "top"},
}


class Audited:
    """A server, and what the manager's account asked of it."""

    def __init__(self, server: real.Client, log: Path) -> None:
        self.server = server
        self._log = log

    def answers(self) -> list[tuple[int, str]]:
        """(code, path) of every request of the manager's account."""
        whole, _, _ = self._log.read_text().rpartition("\n")  # the last line may be half written
        events = [json.loads(line) for line in whole.splitlines()]
        return [(event["responseStatus"]["code"], event["requestURI"].partition("?")[0]) for event in events]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Audited]:
    try:
        assets.ensure()
    except assets.AssetsError as wrong:
        pytest.fail(str(wrong))
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(AUDIT))
    log = tmp_path / "audit.log"
    flags = [f"--audit-policy-file={tmp_path / 'audit.yaml'}", f"--audit-log-path={log}"]
    with real.started(*real.front(tmp_path), *flags) as server:
        yield Audited(server, log)


def definition(row: Kind) -> Tree:
    """A CRD that accepts anything."""
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": row.storage.name, "served": True, "storage": True, "schema": {"openAPIV3Schema": open_schema}}
    notes = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": row.name, "annotations": notes},
        "spec": {
            "group": row.group,
            "names": {"kind": row.kind, "plural": row.plural, "singular": row.singular, "listKind": row.list_kind},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


async def owner(client: ApiClient, row: Kind, name: str, **marks: str) -> Tree:
    """An owner, and the reference by which it controls others."""
    metadata = {"name": name, "namespace": "default", "labels": {**_MARKS, **marks}}
    tree = {"apiVersion": row.api_version, "kind": row.kind, "metadata": metadata, "spec": _SPECS.get(row.kind, {})}
    made = await client.create(row, tree)
    return {"apiVersion": row.api_version, "kind": row.kind, "name": name, "uid": made["metadata"]["uid"],
            "controller": True}  # fmt: skip


async def child(client: ApiClient, of: str, name: str, reference: Tree, **marks: str) -> Tree:
    """A Job or a Pod below an owner, as it is stored."""
    spec = {"template": {"spec": POD_SPEC}} if of == "Job" else POD_SPEC
    metadata = {"name": name, "namespace": "default", "labels": marks, "ownerReferences": [reference]}
    version = "batch/v1" if of == "Job" else "v1"
    return await client.create(kind(of), {"apiVersion": version, "kind": of, "metadata": metadata, "spec": spec})


def is_held(tree: Tree) -> bool:
    return tree["spec"].get("suspend") is True or "schedulingGates" in tree["spec"]


async def test_children_of_every_kind_are_accepted_with_the_installed_rights(cluster: Audited) -> None:
    """A Job and a Pod below an owner of every kind of the table and of an external framework, with and without a queue:
    none is refused, those without a queue pass untouched, those with one are held and get a Workload."""
    cluster.server.install(*(definition(row) for row in OWNERS if "." in row.group))
    async with managed(cluster.server, account=True, external=["Sheep.v1.example.com"]) as client:
        await made_at_last(client, kind("ClusterQueue"), cluster_queue("owners"))
        flavor = {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "plain"}, "spec": {}}
        await client.create(kind("ResourceFlavor"), flavor)
        place = {"name": "lq", "namespace": "default"}
        queue = {"apiVersion": GROUP, "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": "owners"}}
        await client.create(kind("LocalQueue"), queue)
        queued: list[str] = []
        for row in OWNERS:
            reference = await owner(client, row, f"top-{row.singular}")
            for of in ("Job", "Pod"):
                name = f"{row.singular}-{of.lower()}"
                free = await child(client, of, f"{name}-free", reference)
                assert not is_held(free), name
                held = await child(client, of, f"{name}-queued", reference, **{QUEUE: "lq"})
                assert is_held(held), name
                assert labels.UNREAD_OWNER not in held["metadata"].get("annotations", {}), name
                queued.append(f"{name}-queued")

        async def names() -> set[str]:
            """The jobs that have a Workload."""
            listed = [msgspec.json.decode(item) for item in (await client.list(kind("Workload"))).items]
            return {one["metadata"]["ownerReferences"][0]["name"] for one in listed}

        async def all_have_workloads() -> bool:
            return set(queued) <= await names()

        await eventually(all_have_workloads, 0.5)
        assert await names() == set(queued), "what names no queue got no Workload"

        shepherd = await owner(client, SHEEP, "managed", **{QUEUE: "lq"})
        nested = await child(client, "Job", "of-a-managed-sheep", shepherd, **{QUEUE: "lq"})
        assert nested["spec"].get("suspend") is not True, "the queue of its external owner counts"
    # A manager outside of the cluster would like a Service for its visibility API; that has nothing to do with owners.
    refused = [(code, path) for code, path in cluster.answers() if code in (401, 403) and "/services/" not in path]
    assert refused == []
    read = {path for code, path in cluster.answers() if code == 200}
    for row in OWNERS:
        if row.kind not in ("Job", "Pod"):
            assert row.path("default", f"top-{row.singular}") in read, row.name
