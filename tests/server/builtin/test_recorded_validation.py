"""What a real kube-apiserver accepted and refused of the built-in kinds, and where: the rules here give the same.

The rows are those of `tests/contracts/probes/objects.yaml`, where each can be read; the results were recorded. Rows that
concern metadata, or that other objects decide about, are left to the twin test.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import probing
from kubemachinery import status
from kubeserver.builtin.kinds import RESOURCES
from kubeserver.registry.strategy import Resource

Tree = dict[str, Any]

_CASES = [
    msgspec.json.decode(line)
    for line in (Path(__file__).parents[1] / "recorded" / "validation.jsonl").read_bytes().splitlines()
]
_KINDS = {kind.name: kind for kind in probing.kinds()}
_ELSEWHERE = ("metadata.", "apiVersion", "kind")
_BY_OTHERS = ("priorityClassName", "runtimeClassName", "preemptionPolicy", "priority")
# Where a real server leaves out an index, names another place, or answers in the old face's words (see `twin.EXPLAINED`).
_OTHER_PLACE = re.compile(
    r"volumeMounts\.|metadata\.taints|overhead\.limits|^(count|source|message)$|Expressions.*operator|selector\.matchLabels$"
)


def _resource(kind: probing.Kind) -> Resource:
    found = [one for one in RESOURCES if one.kind == kind.base["kind"] and one.api_version == kind.base["apiVersion"]]
    return found[0]


def _rows(kind: probing.Kind, sort: str) -> tuple[Tree, ...]:
    rows: tuple[Tree, ...] = getattr(kind, sort)
    return rows


def _is_ours(kind: probing.Kind, row: Tree) -> bool:
    if any(path.startswith(_ELSEWHERE) for path in row) or kind.name == "Namespace":
        return False
    return not any(path.endswith(_BY_OTHERS) for path in row)


def _created(resource: Resource, tree: Tree) -> tuple[int, set[tuple[str, str]], Tree]:
    """What becomes of an object that is posted, as far as its kind's rules go."""
    given = msgspec.json.decode(msgspec.json.encode(tree))
    given["metadata"]["namespace"] = "default"
    try:
        new = resource.rules.default(resource.rules.prune(given))
    except status.StatusError as refused:
        return refused.code, set(), {}
    new["apiVersion"], new["kind"] = resource.api_version, resource.kind
    new["metadata"].update(uid="uid-of-one", creationTimestamp="2026-01-01T00:00:00Z")
    resource.rules.on_create(new)
    return _judged(resource, new, None, "")


def _updated(resource: Resource, new: Tree, old: Tree, subresource: str) -> tuple[int, set[tuple[str, str]], Tree]:
    given = msgspec.json.decode(msgspec.json.encode(new))
    try:
        new = resource.rules.default(resource.rules.prune(given))
    except status.StatusError as refused:
        return refused.code, set(), {}
    if subresource:
        new = {**old, "status": new.get("status")}
        resource.rules.on_status(new, old)
    else:
        new["status"] = old.get("status")
        if new["status"] is None:
            del new["status"]
        resource.rules.on_update(new, old)
    return _judged(resource, new, old, subresource)


def _judged(resource: Resource, new: Tree, old: Tree | None, sub: str) -> tuple[int, set[tuple[str, str]], Tree]:
    errors = resource.rules.validate(new, old, sub)
    return (422 if errors else 200), {(error.type.value, error.path) for error in errors}, new


@pytest.mark.parametrize("kind", _KINDS.values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("sort", ["create", "update", "status"])
def test_validation_agrees_with_the_recorded_results(kind: probing.Kind, sort: str) -> None:
    resource = _resource(kind)
    _, _, stored = _created(resource, kind.base)
    for case in _CASES:
        if (case["kind"], case["sort"]) != (kind.name, sort):
            continue
        row = _rows(kind, sort)[case["row"]]
        if not _is_ours(kind, row):
            continue
        if sort == "create":
            code, causes, _ = _created(resource, probing.changed(kind.base, row))
        else:
            code, causes, _ = _updated(resource, probing.changed(stored, row), stored, "status" * (sort == "status"))
        recorded = {tuple(cause) for cause in case["causes"]}
        assert (code < 300) == (case["code"] < 300), (sort, row, causes, case)
        if not any(_OTHER_PLACE.search(place) for _, place in recorded):
            assert causes == recorded, (sort, row)


def test_enough_is_recorded() -> None:
    ours = [v for v in _CASES if _is_ours(_KINDS[v["kind"]], _rows(_KINDS[v["kind"]], v["sort"])[v["row"]])]
    assert len(ours) > 300
    assert sum(case["code"] >= 300 for case in ours) > 150


@pytest.mark.parametrize(
    ("volume", "wrong"),
    [
        ({"configMap": {"name": "c", "items": [{"key": "k", "path": "below/it", "mode": 0o777}]}}, []),
        ({"configMap": {"name": "c", "items": [{"key": "k", "path": "../up"}]}}, ["configMap.items[0].path"]),
        (
            {"secret": {"secretName": "s", "items": [{"path": "p", "mode": 512}]}},
            ["secret.items[0].key", "secret.items[0].mode"],
        ),
        ({"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.labels"}}]}}, []),
        (
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "spec.nodeName"}}]}},
            ["downwardAPI.fieldRef.fieldPath"],
        ),
        ({"projected": {"sources": [{"serviceAccountToken": {}}]}}, ["projected.path"]),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}},
            ["projected.sources[0].serviceAccountToken.expirationSeconds"],
        ),
    ],
)
def test_the_files_of_a_volume_stay_in_it_and_can_be_made(volume: Tree, wrong: list[str]) -> None:
    pod = {"containers": [{"name": "main", "image": "i"}], "volumes": [{"name": "v", **volume}]}
    _, found, _ = _created(_of_kind("Pod"), {"metadata": {"name": "p"}, "spec": pod})
    assert sorted(path for _, path in found) == [f"spec.volumes[0].{path}" for path in wrong]


def test_a_condition_of_a_pod_is_true_false_or_unknown() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "X", "status": "Maybe"}]}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}}
    spec = {"podFailurePolicy": {"rules": [rule]}, "template": template}
    _, found, _ = _created(_of_kind("Job"), {"metadata": {"name": "j"}, "spec": spec})
    assert "spec.podFailurePolicy.rules[0].onPodConditions[0].status" in {path for _, path in found}


def _of_kind(name: str) -> Resource:
    return next(one for one in RESOURCES if one.kind == name)
