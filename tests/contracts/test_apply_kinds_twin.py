"""Corpus C, continued: whole configurations of real kinds, built-in and our own, applied by turns by three managers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from contracts import conftest, patching
from contracts.generated import Maker
from contracts.test_generated import alone
from contracts.twin import Twin, seeds
from pykueue.api import registry, schema

pytestmark = pytest.mark.cluster

Tree = dict[str, Any]
_MANAGERS = ("first", "second", "third")


def _apply(twin: Twin, path: str, body: Tree, rng: random.Random) -> list[str]:
    manager, force = rng.choice(_MANAGERS), rng.random() < 0.5
    query = f"?fieldManager={manager}&force={'true' if force else 'false'}"
    answers = twin.both("PATCH", path + query, body, "application/apply-patch+yaml")
    found = twin.compare(f"apply {path}{query}: {body}", *answers)
    # Where they part and that is explained, the sequence ends.
    return found if found or answers[0].code == answers[1].code else ["over"]


def _played(twin: Twin, path: str, bodies: list[tuple[str, Tree]], seed: int) -> list[str]:
    rng = random.Random(seed)
    for endpoint, body in bodies:
        found = _apply(twin, path + endpoint, body, rng)
        if found:
            return [] if found == ["over"] else found
    return []


def test_pod_templates(twin: Twin) -> None:
    """Lists by name, ports by number and protocol, volumes, tolerations: the whole specification of a pod."""
    found: list[str] = []
    for seed in seeds(40):
        name = f"applied-{seed}"
        bodies = [("", patching.pod_template(name, seed * 10 + turn)) for turn in range(5)]
        path = f"/api/v1/namespaces/default/podtemplates/{name}"
        found += _played(twin, path, bodies, seed)
    assert not found, "\n".join(found[:80])


def test_config_maps(twin: Twin) -> None:
    found: list[str] = []
    for seed in seeds(40):
        rng = random.Random(seed)
        name = f"applied-{seed}"
        bodies = []
        for _ in range(6):
            data = {key: rng.choice("xyz") for key in rng.sample(("a", "b", "c", "d"), rng.randint(0, 4))}
            labels = {key: rng.choice("xyz") for key in rng.sample(("k", "l"), rng.randint(0, 2))}
            metadata: Tree = {"name": name, "labels": labels} if rng.random() < 0.7 else {"name": name}
            body: Tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            if rng.random() < 0.9:
                body["data"] = data
            bodies.append(("", body))
        found += _played(twin, f"/api/v1/namespaces/default/configmaps/{name}", bodies, seed)
    assert not found, "\n".join(found[:80])


def test_nodes(twin: Twin) -> None:
    """Taints are one value, conditions and addresses have keys, and both endpoints are used."""
    found: list[str] = []
    for seed in seeds(30):
        rng = random.Random(seed)
        name = f"applied-{seed}"
        head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        bodies: list[tuple[str, Tree]] = [("", {**head, "spec": {}})]
        for _ in range(5):
            if rng.random() < 0.5:
                taints = [{"key": key, "effect": "NoSchedule"} for key in rng.sample("abc", rng.randint(0, 2))]
                labels = {"rack": rng.choice("xy")}
                spec = {"taints": taints} if taints else {"unschedulable": True}
                bodies.append(("", {**head, "metadata": {"name": name, "labels": labels}, "spec": spec}))
            else:
                conditions = [
                    {"type": kind, "status": rng.choice(("True", "False"))}
                    for kind in rng.sample(("Ready", "DiskPressure"), rng.randint(0, 2))
                ]
                capacity = {"cpu": str(rng.randint(1, 3))}
                bodies.append(("/status", {**head, "status": {"conditions": conditions, "capacity": capacity}}))
        found += _played(twin, f"/api/v1/nodes/{name}", bodies, seed)
    assert not found, "\n".join(found[:80])


_KINDS = ("Workload", "ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor", "AdmissionCheck")


@pytest.mark.parametrize("row", [row for row in registry.KUEUE if row.kind in _KINDS], ids=lambda row: row.kind)
def test_our_own_kinds(twin: Twin, row: Any) -> None:
    """Specifications and statuses as the schemas allow them, through their own endpoints."""
    crd = alone(schema.crd(row))
    conftest.install(twin, crd)
    spec = crd["spec"]
    version = spec["versions"][0]
    whole = version["schema"]["openAPIV3Schema"]
    where = "" if spec["scope"] == "Cluster" else "/namespaces/default"
    base = f"/apis/{spec['group']}/{version['name']}{where}/{spec['names']['plural']}"
    found: list[str] = []
    for seed in seeds(30):
        name = f"applied-{seed}"
        head = {"apiVersion": f"{spec['group']}/{version['name']}", "kind": row.kind, "metadata": {"name": name}}
        rng = random.Random(seed)
        bodies: list[tuple[str, Tree]] = []
        for turn in range(6):
            maker = Maker(whole, seed * 100 + turn)
            if turn and "status" in version.get("subresources", {}) and rng.random() < 0.5:
                bodies.append(("/status", {**head, "status": maker.part("status")}))
            else:
                bodies.append(("", maker.object(head)))
        found += _played(twin, f"{base}/{name}", bodies, seed)
    assert not found, "\n".join(found[:80])
