"""Sequences of writes recorded on a real kube-apiserver give the same objects and managedFields in `kubeserver.apply`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import ownership
from kubemachinery import patches, structural
from kubeserver.apply import Applied, ApplyConflicts, ApplyTarget, Shape, apply, track_update
from kubeserver.builtin import decoding

Tree = dict[str, Any]

_RECORDED = Path(__file__).parent / "recorded" / "ownership.jsonl"
_SHAPE = Shape.of(ownership.SCHEMA)
_NOW = "2026-01-01T00:00:00Z"
_SERVERS_OWN = ("uid", "resourceVersion", "creationTimestamp", "generation")


def _sequences() -> dict[int, list[Tree]]:
    out: dict[int, list[Tree]] = {}
    for line in _RECORDED.read_bytes().splitlines():
        row = msgspec.json.decode(line)
        out.setdefault(row["story"], []).append(row)
    return out


def _target(subresource: str) -> ApplyTarget:
    return ApplyTarget(ownership.API_VERSION, {ownership.API_VERSION: _SHAPE}, subresource=subresource, has_status=True)


def _received(tree: Tree) -> Tree:
    """The object that the server makes of a body before ownership is computed."""
    compiled = structural.compile(ownership.SCHEMA)
    out = compiled.default(compiled.prune(msgspec.json.decode(msgspec.json.encode(tree))))
    return {**out, "metadata": decoding.read("meta.v1.ObjectMeta", tree["metadata"])}


def _let_through(new: Tree, live: Tree | None, subresource: str) -> Tree:
    """Each endpoint writes its own part."""
    kept = {**(live or {})} if subresource else {key: value for key, value in new.items() if key != "status"}
    if subresource:
        entries = new["metadata"].get("managedFields")
        kept["metadata"] = {**kept["metadata"], "managedFields": entries}
    source = new if subresource else live or {}
    kept.pop("status", None)
    if "status" in source:
        kept["status"] = source["status"]
    return kept


def _comparable(tree: Tree) -> Tree:
    metadata = {key: value for key, value in tree["metadata"].items() if key not in _SERVERS_OWN}
    entries = [{**entry, "time": ""} for entry in metadata.get("managedFields") or ()]
    metadata["managedFields"] = sorted(entries, key=lambda entry: (entry["operation"], entry["manager"], str(entry)))
    return {**tree, "metadata": metadata}


@pytest.mark.parametrize("sequence", sorted(_sequences()))
def test_a_recorded_sequence_gives_the_same_managed_fields(sequence: int) -> None:
    live: Tree | None = None
    for row in _sequences()[sequence]:
        step, sent = row["step"], row["sent"]
        target = _target(step["subresource"])
        if step["verb"] == "apply":
            outcome = apply(live, sent, manager=step["manager"], force=step["force"], target=target, now=_NOW)
            if "conflicts" in row:
                assert isinstance(outcome, ApplyConflicts), step
                causes = sorted([one["message"], one["field"]] for one in outcome.causes)
                assert causes == row["conflicts"], step
                continue
            assert isinstance(outcome, Applied), step
            new = _received(outcome.tree)
        else:
            new = _received(patches.merge(live, sent) if step["verb"] == "merge" else sent)
            entries = track_update(live, new, manager=step["manager"], target=target, now=_NOW)
            new = {**new, "metadata": {**new["metadata"], "managedFields": entries}}
        ours = _let_through(new, live, step["subresource"])
        assert _comparable(ours) == _comparable(row["object"]), step
        live = row["object"]
