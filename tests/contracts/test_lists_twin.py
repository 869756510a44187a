"""What lists and watches of one sequence of writes show, at every revision of it and with every option."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from cluster.real import Answer
from contracts.twin import Twin, normalised, seeds

pytestmark = pytest.mark.cluster

Tree = dict[str, Any]
Revisions = tuple[str, str]

SEQUENCES = 8
STEPS = 14
_MATCHES = ("", "Exact", "NotOlderThan")
_SELECTORS = ("", ",color=red", ",color!=red", ",!color")
_BEGINNINGS = ("resourceVersion={revision}", "", "resourceVersion=0")
_INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


def _write(twin: Twin, rng: random.Random, mixtures: str) -> Revisions | None:
    """Create, change or delete one of three objects; the revisions of it, if both stored one."""
    name = f"object-{rng.randint(0, 2)}"
    labels = {"group": "lists", **({"color": rng.choice(("red", "grey"))} if rng.random() < 0.7 else {})}
    finalizers = ["example.com/wait"] if rng.random() < 0.4 else []
    match rng.choice(("apply", "apply", "finalizers", "delete")):
        case "apply":
            # An empty list in place of none is a change to kube-apiserver, of nothing that is stored.
            metadata = {"name": name, "labels": labels, **({"finalizers": finalizers} if finalizers else {})}
            spec = {"text": rng.choice("xyz")}
            body = {"apiVersion": "twin.example.com/v1", "kind": "Mixture", "metadata": metadata, "spec": spec}
            path = f"{mixtures}/{name}?fieldManager=lists"
            answers = twin.both("PATCH", path, body, "application/apply-patch+yaml")
        case "finalizers":
            change: Tree = {"metadata": {"finalizers": finalizers or None}}
            answers = twin.both("PATCH", f"{mixtures}/{name}", change, "application/merge-patch+json")
        case _:
            answers = twin.both("DELETE", f"{mixtures}/{name}")
    assert answers[0].code == answers[1].code, [answer.body for answer in answers]
    real, ours = ((answer.body.get("metadata") or {}).get("resourceVersion", "") for answer in answers)
    return (real, ours) if real and ours else None


def _asked(twin: Twin, mixtures: str, query: str, revisions: Revisions) -> tuple[Answer, Answer]:
    twin.asked += 1
    real, ours = (f"{mixtures}?{query.format(revision=revision)}" for revision in revisions)
    return twin.real.request("GET", real), twin.ours.request("GET", ours)


def _listed(answer: Answer, revision: str) -> Any:
    """What is compared of a list: its objects, whether it continues, and whether it is of the revision named."""
    if answer.code != 200:
        return answer.code, answer.body.get("reason")
    metadata = answer.body["metadata"]
    items = [normalised(item) for item in answer.body["items"]]
    return items, bool(metadata.get("continue")), metadata["resourceVersion"] == revision


def _events(answer: Answer) -> list[Any]:
    """The events of a watch. A bookmark counts only where it ends the initial events: others come by time."""
    lines = answer.body.splitlines() if isinstance(answer.body, str) else [json.dumps(answer.body)]
    events = []
    for event in map(json.loads, lines):
        metadata = event["object"]["metadata"]
        if event["type"] != "BOOKMARK":
            events.append((event["type"], normalised(event["object"])))
        elif metadata.get("annotations"):
            events.append((event["type"], metadata["annotations"]))
    return events


def _mixtures(twin: Twin, seed: int) -> str:
    """The path of a collection in a namespace of its own, in which every object has the label that is selected.

    With others, kube-apiserver gives the last page a continue token, and we do not [AS42].
    """
    namespace = f"twin-revisions-{seed}"
    for answer in twin.both("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}):
        assert answer.code in (201, 409), answer.body
    path = f"/apis/twin.example.com/v1/namespaces/{namespace}/mixtures"
    assert [answer.body["items"] for answer in twin.both("GET", path)] == [[], []]
    return path


@pytest.mark.parametrize("seed", seeds(SEQUENCES))
def test_lists_and_watches_are_alike_at_every_revision(twin: Twin, seed: int) -> None:
    rng, mixtures = random.Random(seed), _mixtures(twin, seed)
    begin = [answer.body["metadata"]["resourceVersion"] for answer in twin.both("GET", f"{mixtures}?limit=1")]
    written = [revisions for _ in range(STEPS) if (revisions := _write(twin, rng, mixtures))]
    assert written
    # After a list of the present, the watch cache of kube-apiserver has all writes. For a list that names a revision, it
    # only has to have those until that revision.
    twin.both("GET", mixtures)
    select = "labelSelector=group=lists"
    for revisions in rng.sample(written, min(4, len(written))):
        for limit, match in itertools.product(("", "&limit=1", "&limit=2"), _MATCHES):
            query = f"{select}{limit}&resourceVersion={{revision}}"
            query += f"&resourceVersionMatch={match}" if match else ""
            real, ours = _asked(twin, mixtures, query, revisions)
            assert _listed(ours, revisions[1]) == _listed(real, revisions[0]), query
    for beginning in (*_BEGINNINGS, _INITIAL):
        selector = rng.choice(_SELECTORS)
        query = f"watch=1&timeoutSeconds=1&allowWatchBookmarks=true&{select}{selector}&{beginning}"
        real, ours = _asked(twin, mixtures, query, (begin[0], begin[1]))
        assert _events(ours) == _events(real), query
