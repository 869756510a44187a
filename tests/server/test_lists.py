"""Lists and watches: what there is, what changes, from where, in which pieces, and which of it."""

from __future__ import annotations

import itertools
import json
import time
import zlib
from typing import Any

import pytest

from server.conftest import CONFIG_MAPS, Client, Running, config_map, namespace, widget


def at(name: str) -> str:
    return f"/apis/example.com/v1/namespaces/{name}/widgets"


@pytest.fixture
def place(client: Client, request: pytest.FixtureRequest) -> str:
    """The collection of a namespace of the test's own, with widgets a, b and c in red, grey and red."""
    name = namespace(client, f"t{zlib.crc32(request.node.nodeid.encode())}")
    for letter, color in zip("abc", ("red", "grey", "red"), strict=True):
        client.post(at(name), widget(letter, labels={"letter": letter}, spec={"size": 1, "color": color})).ok()
    return at(name)


def names(tree: Any) -> list[str]:
    return [item["metadata"]["name"] for item in tree["items"]]


class TestSelectors:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ({}, "abc"),
            ({"labelSelector": "letter=a"}, "a"),
            ({"labelSelector": "letter!=a"}, "bc"),
            ({"labelSelector": "letter in (a,b)"}, "ab"),
            ({"labelSelector": "letter notin (a,b)"}, "c"),
            ({"labelSelector": "!letter"}, ""),
            ({"labelSelector": "letter,letter!=b"}, "ac"),
            ({"fieldSelector": "metadata.name=b"}, "b"),
            ({"fieldSelector": "spec.color=red"}, "ac"),
            ({"fieldSelector": "spec.color!=red"}, "b"),
            ({"fieldSelector": "spec.color=red", "labelSelector": "letter!=c"}, "a"),
        ],
    )
    def test_choose(self, client: Client, place: str, query: dict[str, str], found: str) -> None:
        assert names(client.get(place, **query).ok()) == list(found)

    def test_that_cannot_be_read_are_refused(self, client: Client, place: str) -> None:
        client.get(place, labelSelector="a in (").refused(400)
        assert (
            "field label not supported: spec.size"
            in client.get(place, fieldSelector="spec.size=1").refused(400)["message"]
        )


class TestPages:
    def test_one_after_the_other_show_the_same_moment(self, client: Client, place: str) -> None:
        first = client.get(place, limit=2).ok()
        assert names(first) == ["a", "b"]
        assert first["metadata"]["remainingItemCount"] == 1
        client.delete(f"{place}/c").ok()
        client.post(place, widget("d")).ok()
        second = client.get(place, limit=2, **{"continue": first["metadata"]["continue"]}).ok()
        assert names(second) == ["c"]
        assert second["metadata"]["continue"] == ""
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    def test_the_last_page_of_what_is_selected_has_no_token(self, client: Client, place: str) -> None:
        """Also where other objects come after it [AS42]."""
        selector = "letter in (a,b)"
        first = client.get(place, limit=1, labelSelector=selector).ok()
        assert (names(first), "remainingItemCount" in first["metadata"]) == (["a"], False)
        second = client.get(place, limit=1, labelSelector=selector, **{"continue": first["metadata"]["continue"]}).ok()
        assert (names(second), second["metadata"]["continue"]) == (["b"], "")

    def test_a_token_from_elsewhere_is_refused(self, client: Client, place: str) -> None:
        for token in ("zzz", "%00", "WzEsMiwzXQ", "WzAsImEiLCJiIl0", "a" * 5000):
            client.get(place, limit=1, **{"continue": token}).refused(400)

    def test_limits_that_are_no_numbers_are_refused(self, client: Client, place: str) -> None:
        for limit in ("", "ten", "1.5", "1" * 30):
            client.get(place, limit=limit).refused(400)

    def test_a_limit_below_one_is_none(self, client: Client, place: str) -> None:
        everything = client.get(place).ok()["items"]
        for limit in ("0", "-1"):
            assert client.get(place, limit=limit).ok()["items"] == everything != []


class TestRevisions:
    def test_a_list_can_be_had_as_it_was(self, client: Client, place: str) -> None:
        revision = client.get(place).ok()["metadata"]["resourceVersion"]
        client.delete(f"{place}/a").ok()
        client.merge(f"{place}/b", {"spec": {"size": 7}}).ok()
        then = client.get(place, resourceVersion=revision, resourceVersionMatch="Exact").ok()
        assert names(then) == ["a", "b", "c"]
        assert then["items"][1]["spec"]["size"] == 1

    def test_a_page_of_a_named_revision_is_of_that_revision(self, client: Client, place: str) -> None:
        """Without a match, as in kube-apiserver: a list without a limit is as new as can be, a page is exact."""
        revision = client.get(place).ok()["metadata"]["resourceVersion"]
        client.delete(f"{place}/a").ok()
        page = client.get(place, resourceVersion=revision, limit=2).ok()
        assert (names(page), page["metadata"]["resourceVersion"]) == (["a", "b"], revision)
        rest = client.get(place, limit=2, **{"continue": page["metadata"]["continue"]}).ok()
        assert names(rest) == ["c"]
        assert names(client.get(place, resourceVersion=revision).ok()) == ["b", "c"]
        assert names(client.get(place, resourceVersion="0", limit=1).ok()) == ["b"]
        not_older = {"resourceVersion": revision, "resourceVersionMatch": "NotOlderThan"}
        assert names(client.get(place, limit=1, **not_older).ok()) == ["b"]

    def test_a_revision_of_the_future_is_too_large(self, client: Client, place: str) -> None:
        began = time.monotonic()
        answer = client.get(place, resourceVersion="999999999")
        assert time.monotonic() - began > 2.5, "it might have come"
        refused = answer.refused(504)
        assert refused["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        assert answer.headers["retry-after"] == "1"

    @pytest.mark.parametrize(
        "query",
        [
            {"resourceVersionMatch": "Exact"},
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            {"resourceVersionMatch": "Sometimes", "resourceVersion": "1"},
            {"resourceVersionMatch": "NotOlderThan", "watch": "true", "resourceVersion": "1"},
            {"sendInitialEvents": "true"},
            {"sendInitialEvents": "true", "watch": "true"},
        ],
    )
    def test_contradictions_are_refused(self, client: Client, place: str, query: dict[str, str]) -> None:
        assert client.get(place, **query).refused(422)["reason"] == "Invalid"

    def test_what_is_no_revision_is_refused(self, client: Client, place: str) -> None:
        for text in ("-1", "1.5", "abc", str(2**64), "１２"):
            client.get(place, resourceVersion=text).refused(400)


class TestWatches:
    def test_begin_with_what_there_is_and_go_on_with_what_changes(self, client: Client, place: str) -> None:
        stream = client.watch(place, timeoutSeconds=90)
        assert [next(stream)["object"]["metadata"]["name"] for _ in range(3)] == ["a", "b", "c"]
        client.merge(f"{place}/a", {"spec": {"size": 2}}).ok()
        deleted = client.get(f"{place}/b").ok()
        client.delete(f"{place}/b").ok()
        changed, gone = next(stream), next(stream)
        assert (changed["type"], changed["object"]["spec"]["size"]) == ("MODIFIED", 2)
        assert (gone["type"], gone["object"]["metadata"]["name"]) == ("DELETED", "b")
        # The deletion has a revision of its own, so that a client can go on from it.
        assert int(gone["object"]["metadata"]["resourceVersion"]) > int(deleted["metadata"]["resourceVersion"])

    def test_a_watch_from_a_revision_gets_all_events_since(self, client: Client, place: str) -> None:
        revision = client.get(place).ok()["metadata"]["resourceVersion"]
        for size in (2, 3, 4):
            client.merge(f"{place}/a", {"spec": {"size": size}}).ok()
        events = list(itertools.islice(client.watch(place, resourceVersion=revision, timeoutSeconds=90), 3))
        assert [event["object"]["spec"]["size"] for event in events] == [2, 3, 4]

    def test_an_object_is_deleted_with_the_finalizers_that_it_had(self, client: Client, place: str) -> None:
        """The last write removes them together with the object; the event has what was stored before."""
        client.merge(f"{place}/b", {"metadata": {"finalizers": ["example.com/wait"]}}).ok()
        client.delete(f"{place}/b").ok()
        revision = client.get(place).ok()["metadata"]["resourceVersion"]
        answer = client.merge(f"{place}/b", {"metadata": {"finalizers": None}, "spec": {"size": 9}}).ok()
        assert "finalizers" not in answer["metadata"]
        (event,) = itertools.islice(client.watch(place, resourceVersion=revision, timeoutSeconds=90), 1)
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["finalizers"] == ["example.com/wait"]
        assert event["object"]["spec"]["size"] == 1
        assert int(event["object"]["metadata"]["resourceVersion"]) > int(revision)

    def test_objects_come_into_view_and_leave_it(self, client: Client, place: str) -> None:
        revision = client.get(place).ok()["metadata"]["resourceVersion"]
        client.merge(f"{place}/b", {"spec": {"color": "red"}}).ok()
        client.merge(f"{place}/a", {"spec": {"color": "blue"}}).ok()
        client.merge(f"{place}/c", {"spec": {"size": 5}}).ok()
        stream = client.watch(place, resourceVersion=revision, fieldSelector="spec.color=red", timeoutSeconds=90)
        events = list(itertools.islice(stream, 3))
        assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
            ("ADDED", "b"),
            ("DELETED", "a"),
            ("MODIFIED", "c"),
        ]
        assert events[1]["object"]["spec"]["color"] == "red", "a client sees what it knew, not what it cannot see"

    def test_a_watch_list_ends_the_present_with_a_bookmark(self, client: Client, place: str) -> None:
        stream = client.watch(
            place,
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
            timeoutSeconds=90,
        )
        events = list(itertools.islice(stream, 4))
        assert [event["type"] for event in events] == ["ADDED"] * 3 + ["BOOKMARK"]
        mark = events[3]["object"]
        assert (mark["kind"], mark["apiVersion"]) == ("Widget", "example.com/v1")
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(mark["metadata"]["resourceVersion"]) >= int(events[2]["object"]["metadata"]["resourceVersion"])

    @pytest.mark.parametrize("revision", [{}, {"resourceVersion": "0"}])
    def test_a_watch_of_the_present_ends_it_with_a_bookmark(
        self, client: Client, place: str, revision: dict[str, str]
    ) -> None:
        """As with sendInitialEvents, which kube-apiserver sets where a watch names no revision."""
        events = list(
            itertools.islice(client.watch(place, allowWatchBookmarks="true", timeoutSeconds=90, **revision), 4)
        )
        assert [event["type"] for event in events] == ["ADDED"] * 3 + ["BOOKMARK"]
        assert events[3]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}

    def test_a_watch_sends_a_bookmark_before_its_timeout(self, client: Client, place: str) -> None:
        events = list(client.watch(place, resourceVersion="0", allowWatchBookmarks="true", timeoutSeconds=1))
        assert events[-1]["type"] == "BOOKMARK"

    def test_a_compacted_revision_is_reported_inside_of_the_stream(
        self, running: Running, client: Client, place: str
    ) -> None:
        revision = client.get(place).ok()["metadata"]["resourceVersion"]
        client.merge(f"{place}/a", {"spec": {"size": 2}}).ok()
        running.call(running.serving.embedded.objects.compact(running.serving.embedded.objects.revision))
        (event,) = client.watch(place, resourceVersion=revision)
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        client.get(place, resourceVersion=revision, resourceVersionMatch="Exact").refused(410)

    def test_the_word_alone_asks_for_one(self, client: Client, place: str) -> None:
        answer = client.get(f"{place}?watch&timeoutSeconds=1")
        assert json.loads(answer.body.splitlines()[0])["type"] == "ADDED"

    def test_any_value_but_false_asks_for_a_watch(self, client: Client, place: str) -> None:
        for word, kind in (("no", "ADDED"), ("False", None), ("0", None)):
            answer = client.get(f"{place}?watch={word}&timeoutSeconds=1")
            assert json.loads(answer.body.splitlines()[0]).get("type") == kind

    def test_one_name_can_be_watched(self, client: Client, place: str) -> None:
        (event,) = itertools.islice(client.watch(place, fieldSelector="metadata.name=b", timeoutSeconds=90), 1)
        assert event["object"]["metadata"]["name"] == "b"
        (event,) = itertools.islice(client.watch(f"{place}/c", timeoutSeconds=90), 1)
        assert event["object"]["metadata"]["name"] == "c"

    def test_a_new_schema_ends_the_watches_of_its_kind(self, client: Client, place: str) -> None:
        events = client.watch(place, timeoutSeconds=300)
        for _ in range(3):
            next(events)
        crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
        patch = [
            {
                "op": "add",
                "path": "/spec/versions/0/schema/openAPIV3Schema/properties/more",
                "value": {"type": "string"},
            }
        ]
        client.ask("PATCH", crd, patch, headers={"Content-Type": "application/json-patch+json"}).ok()
        assert list(events) == [], "it ends long before its time is over"

    def test_built_in_lists_do_not_repeat_what_their_items_are(self, client: Client, place: str) -> None:
        client.post(CONFIG_MAPS, config_map("item")).ok()
        item = client.get(CONFIG_MAPS).ok()["items"][0]
        assert "kind" not in item
        assert "apiVersion" not in item
        assert client.get(place).ok()["items"][0]["kind"] == "Widget"
