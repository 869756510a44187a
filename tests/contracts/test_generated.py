"""Corpus B: objects made up from our own CRDs, each with one thing changed, are judged alike by both servers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.real import Client
from contracts import conftest, probing
from contracts.generated import Maker
from contracts.twin import Ours, Twin, seeds
from kubeserver.builtin_types import schemas, types
from pykueue.api import registry, schema

pytestmark = pytest.mark.cluster

OBJECTS = 2400
_ROWS = tuple(registry.KUEUE)


def alone(crd: dict[str, Any]) -> dict[str, Any]:
    """The CRD with the stored version only, so that no conversion is needed."""
    versions = [version for version in crd["spec"]["versions"] if version["storage"]]
    spec = {**crd["spec"], "versions": versions, "conversion": {"strategy": "None"}}
    spec.pop("preserveUnknownFields", None)
    return {**crd, "spec": spec, "metadata": {"name": crd["metadata"]["name"], "annotations": _approved(crd)}}


def _approved(crd: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = crd["metadata"].get("annotations") or {}
    return found


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.kind)
def test_made_up_objects_are_judged_alike(twin: Twin, row: Any) -> None:
    """Types, bounds, patterns, unknown and missing fields, duplicate keys, nulls, rules: same result, same fields."""
    crd = alone(schema.crd(row))
    conftest.install(twin, crd)
    spec = crd["spec"]
    version = spec["versions"][0]
    group, plural = spec["group"], spec["names"]["plural"]
    where = "" if spec["scope"] == "Cluster" else "/namespaces/default"
    path = f"/apis/{group}/{version['name']}{where}/{plural}?dryRun=All&fieldManager=maker"
    head = {
        "apiVersion": f"{group}/{version['name']}",
        "kind": spec["names"]["kind"],
        "metadata": {"name": "made-up"},
    }
    found: list[str] = []
    for seed in seeds(OBJECTS // len(_ROWS) + 1):
        maker = Maker(version["schema"]["openAPIV3Schema"], seed)
        change, body = maker.mutated(maker.object(head))
        answers = twin.both("POST", path, body)
        found += twin.compare(f"{head['kind']} {seed}: {change}: {body}", *answers)
    assert not found, "\n".join(found[:120])


# A LimitRange would change every pod of its namespace.
# A Service that asked for no address is stored with one by the real server alone, so its places differ.
_LEFT_OUT = ("Service without an address",)
_BUILT_IN = [kind for kind in probing.kinds() if "limitranges" not in kind.path and kind.name not in _LEFT_OUT]


@pytest.mark.parametrize("kind", _BUILT_IN, ids=lambda kind: kind.name)
def test_built_in_objects_with_one_thing_changed_are_judged_alike(twin: Twin, kind: probing.Kind) -> None:
    """The objects of the probes, with any one value of them taken away, nulled, retyped, repeated or corrupted."""
    name = types.of_kind(kind.base["apiVersion"], kind.base["kind"])
    assert name is not None
    found: list[str] = []
    for seed in seeds(80):
        change, body = Maker(schemas.inlined(name), seed).mutated(kind.base)
        answers = twin.both("POST", f"{kind.path}?dryRun=All&fieldManager=maker", body)
        found += twin.compare(f"{kind.name} {seed}: {change}", *answers)
    assert not found, "\n".join(found[:60])


@pytest.mark.parametrize("kind", [kind for kind in _BUILT_IN if not kind.stays], ids=lambda kind: kind.name)
def test_stored_objects_may_change_in_the_same_places(twin: Twin, kind: probing.Kind) -> None:
    """An object is stored, any one value of it is changed, and it is put back, through each of its endpoints."""
    name = types.of_kind(kind.base["apiVersion"], kind.base["kind"])
    assert name is not None
    path = f"{kind.path}/{kind.base['metadata']['name']}"
    servers: tuple[Client | Ours, ...] = (twin.real, twin.ours)
    for server in servers:
        server.request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        created = server.request("POST", kind.path, kind.base)
        assert created.code == 201, created.body
    stored = [server.request("GET", path).body for server in servers]
    found: list[str] = []
    for seed in seeds(50):
        for endpoint in ("", "/status") if kind.status else ("",):
            answers, change = [], ""
            for server, tree in zip(servers, stored, strict=True):
                # In order, so that one seed leads both to one place.
                change, body = Maker(schemas.inlined(name), seed).mutated(_in_order(tree))
                answers.append(server.request("PUT", f"{path}{endpoint}?dryRun=All&fieldManager=maker", body))
            twin.asked += 1
            found += twin.compare(f"update {kind.name}{endpoint} {seed}: {change}", *answers)
    for server in servers:
        server.request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    assert not found, "\n".join(found[:60])


def _in_order(tree: dict[str, Any]) -> dict[str, Any]:
    ordered: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(tree, order="sorted"))
    return ordered
