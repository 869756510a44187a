"""Create, read, update, patch, apply and delete: what every client relies on, whatever the kind."""

from __future__ import annotations

import json

import pytest

from server.conftest import CONFIG_MAPS, OLD_WIDGETS, WIDGETS, Client, config_map, widget


class TestCreate:
    def test_the_server_sets_the_identity_of_an_object(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("born", uid="mine", generation=7, creationTimestamp=None)).ok()["metadata"]
        assert len(made["uid"]) == 36
        assert made["generation"] == 1
        assert made["namespace"] == "default"
        assert made["creationTimestamp"].endswith("Z")
        assert int(made["resourceVersion"]) > 1000

    def test_201_is_the_code_of_something_new(self, client: Client) -> None:
        assert client.post(WIDGETS, widget("code")).code == 201

    def test_a_second_of_the_same_name_already_exists(self, client: Client) -> None:
        client.post(WIDGETS, widget("twin")).ok()
        refused = client.post(WIDGETS, widget("twin")).refused(409)
        assert refused["reason"] == "AlreadyExists"
        assert refused["details"] == {"name": "twin", "group": "example.com", "kind": "widgets"}

    def test_an_invalid_object_with_the_name_of_another_is_invalid(self, client: Client) -> None:
        client.post(WIDGETS, widget("taken")).ok()
        refused = client.post(WIDGETS, {**widget("taken"), "spec": {"size": "large"}}).refused(422)
        assert refused["reason"] == "Invalid"

    def test_a_generated_name_has_five_letters_more(self, client: Client) -> None:
        made = client.post(WIDGETS, widget(generateName="some-")).ok()["metadata"]["name"]
        assert made.startswith("some-")
        assert len(made) == len("some-") + 5
        long = client.post(WIDGETS, widget(generateName="x" * 100)).ok()["metadata"]["name"]
        assert len(long) == 63

    def test_without_content_type_a_body_is_json(self, client: Client) -> None:
        assert client.post(WIDGETS, widget("untyped"), headers={}).code == 201

    def test_yaml_is_read_as_well(self, client: Client) -> None:
        text = b"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: in-yaml}\nspec: {size: 3}\n"
        made = client.post(WIDGETS, text, headers={"Content-Type": "application/yaml"}).ok()
        assert made["spec"]["size"] == 3

    def test_a_namespace_must_exist(self, client: Client) -> None:
        refused = client.post(WIDGETS.replace("default", "nowhere"), widget("lost")).refused(404)
        assert refused["message"] == 'namespaces "nowhere" not found'

    def test_the_body_must_agree_with_the_path(self, client: Client) -> None:
        client.post(WIDGETS, widget("a", namespace="other")).refused(400)
        client.post(WIDGETS, {**widget("a"), "kind": "Gadget"}).refused(400)
        client.post(WIDGETS, {**widget("a"), "apiVersion": "example.com/v1beta1"}).refused(400)

    def test_a_namespace_means_nothing_to_an_object_of_the_whole_cluster(self, client: Client) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "placed", "namespace": "default"}}
        assert "namespace" not in client.post("/api/v1/nodes", node).ok()["metadata"]

    def test_a_revision_is_not_for_the_client_to_choose(self, client: Client) -> None:
        client.post(WIDGETS, widget("rev", resourceVersion="5")).refused(400)

    @pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254, "..", "a..b", "emoji-\U0001f600"])
    def test_a_name_is_a_subdomain_or_refused(self, client: Client, name: str) -> None:
        refused = client.post(WIDGETS, widget(name)).refused(422)
        assert refused["details"]["causes"][0]["field"] == "metadata.name"

    def test_status_is_not_set_by_creating(self, client: Client) -> None:
        made = client.post(WIDGETS, {**widget("no-status"), "status": {"phase": "Done"}}).ok()
        assert "status" not in made

    def test_a_dry_run_does_everything_but_store(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("dry"), dryRun="All")
        assert made.code == 201
        assert made.tree["metadata"]["uid"]
        assert made.tree["spec"]["color"] == "grey"
        client.get(f"{WIDGETS}/dry").refused(404)

    def test_a_dry_change_shows_the_revision_that_stays(self, client: Client) -> None:
        """kubectl diff would show every object without one as changed."""
        made = client.post(WIDGETS, widget("stays")).ok()
        shown = client.merge(f"{WIDGETS}/stays", {"spec": {"size": 9}}, dryRun="All").ok()
        assert shown["spec"]["size"] == 9
        assert shown["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


class TestFields:
    def test_absent_fields_get_their_defaults(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("plain", spec={"size": 1, "parts": [{"name": "a"}]})).ok()
        assert made["spec"] == {"size": 1, "color": "grey", "parts": [{"name": "a", "count": 1}]}

    def test_unknown_fields_are_dropped_with_a_warning(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("odd", spec={"size": 1, "zzz": 2}))
        assert "zzz" not in made.ok()["spec"]
        assert made.headers["warning"] == '299 - "unknown field \\"spec.zzz\\""'

    def test_strict_validation_refuses_unknown_and_repeated_fields(self, client: Client) -> None:
        text = json.dumps(widget("strict", spec={"size": 1, "zzz": 2})).replace('"size": 1', '"size": 1, "size": 2')
        message = client.post(WIDGETS, text.encode(), fieldValidation="Strict").refused(400)["message"]
        assert 'strict decoding error: unknown field "spec.zzz", duplicate field "spec.size"' in message

    @pytest.mark.parametrize(
        ("kind", "patch", "message"),
        [
            ("merge-patch", b'{"spec": {"zzz": 1}}', 'unknown field "spec.zzz"'),
            ("merge-patch", b'{"spec": {"size": 1, "size": 2}}', 'duplicate field "spec.size"'),
            ("json-patch", b'[{"op": "add", "path": "/spec/zzz", "value": 1}]', 'unknown field "spec.zzz"'),
            (
                "json-patch",
                b'[{"op": "add", "path": "/spec/size", "value": 3, "why": ""}]',
                'json patch unknown field "[0].why"',
            ),
        ],
    )
    def test_strict_validation_reports_errors_of_the_patch(
        self, client: Client, kind: str, patch: bytes, message: str
    ) -> None:
        name = client.post(WIDGETS, widget(generateName="patched-")).ok()["metadata"]["name"]
        headers = {"Content-Type": f"application/{kind}+json"}
        refused = client.ask("PATCH", f"{WIDGETS}/{name}", patch, headers=headers, fieldValidation="Strict").refused(
            422
        )
        (cause,) = refused["details"]["causes"]
        assert (cause["field"], cause["reason"]) == ("patch", "FieldValueInvalid")
        assert f"strict decoding error: {message}" in cause["message"]
        warned = client.ask("PATCH", f"{WIDGETS}/{name}", patch, headers=headers)
        assert message.replace('"', '\\"') in warned.headers["warning"]

    def test_a_finalizer_that_others_may_choose_is_warned_of_once(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("held", finalizers=["mine", "example.com/fine"]))
        assert made.headers["warning"].startswith('299 - "metadata.finalizers: \\"mine\\" has no domain')
        assert "warning" not in client.merge(f"{WIDGETS}/held", {"spec": {"size": 4}}).headers

    def test_ignoring_is_silent(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("quiet", spec={"size": 1, "zzz": 2}), fieldValidation="Ignore")
        assert "warning" not in made.headers

    def test_what_is_wrong_is_named_field_by_field(self, client: Client) -> None:
        refused = client.post(WIDGETS, widget("bad", spec={"size": -1, "color": "pink"})).refused(422)
        assert refused["reason"] == "Invalid"
        assert refused["details"]["kind"] == "Widget"
        causes = {cause["field"]: cause["reason"] for cause in refused["details"]["causes"]}
        assert causes["spec.size"] == "FieldValueInvalid"
        assert causes["spec.color"] == "FieldValueNotSupported"

    def test_large_integers_and_floats_survive(self, client: Client) -> None:
        value = 2**63 - 1
        made = client.post(WIDGETS, widget("large", spec={"size": value})).ok()
        assert made["spec"]["size"] == value


class TestUpdate:
    def test_needs_the_revision_it_is_based_on(self, client: Client) -> None:
        client.post(WIDGETS, widget("guarded")).ok()
        refused = client.put(f"{WIDGETS}/guarded", widget("guarded")).refused(422)
        assert refused["details"]["causes"][0]["field"] == "metadata.resourceVersion"

    def test_of_an_old_revision_conflicts(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("race")).ok()
        client.put(f"{WIDGETS}/race", {**made, "spec": {"size": 2}}).ok()
        refused = client.put(f"{WIDGETS}/race", {**made, "spec": {"size": 3}}).refused(409)
        assert refused["reason"] == "Conflict"
        assert "the object has been modified" in refused["message"]

    def test_of_another_uid_conflicts(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("reborn")).ok()
        made["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
        client.put(f"{WIDGETS}/reborn", made).refused(409)

    def test_that_changes_nothing_is_no_write(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("still")).ok()
        again = client.put(f"{WIDGETS}/still", made).ok()
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    def test_generation_counts_what_is_wanted_and_nothing_else(self, client: Client) -> None:
        path = f"{WIDGETS}/counted"
        client.post(WIDGETS, widget("counted")).ok()
        assert client.merge(path, {"metadata": {"labels": {"a": "b"}}}).ok()["metadata"]["generation"] == 1
        assert client.merge(path, {"spec": {"size": 2}}).ok()["metadata"]["generation"] == 2
        status = client.merge(f"{path}/status", {"status": {"phase": "Up"}}).ok()
        assert status["metadata"]["generation"] == 2

    def test_the_two_endpoints_keep_spec_and_status_apart(self, client: Client) -> None:
        path = f"{WIDGETS}/doors"
        client.post(WIDGETS, widget("doors")).ok()
        through_status = client.merge(f"{path}/status", {"spec": {"size": 9}, "status": {"phase": "Up"}}).ok()
        assert (through_status["spec"]["size"], through_status["status"]) == (1, {"phase": "Up"})
        through_main = client.merge(path, {"spec": {"size": 2}, "status": {"phase": "Down"}}).ok()
        assert (through_main["spec"]["size"], through_main["status"]) == (2, {"phase": "Up"})

    def test_a_kind_without_status_has_no_status_endpoint(self, client: Client) -> None:
        client.post(CONFIG_MAPS, config_map("doorless")).ok()
        client.get(f"{CONFIG_MAPS}/doorless/status").refused(404)

    def test_a_transition_rule_sees_the_old_object(self, client: Client) -> None:
        client.post(WIDGETS, widget("growing", spec={"size": 5})).ok()
        refused = client.merge(f"{WIDGETS}/growing", {"spec": {"size": 4}}).refused(422)
        assert "a widget does not shrink" in refused["message"]

    def test_built_in_kinds_may_be_replaced_without_a_revision(self, client: Client) -> None:
        client.post(CONFIG_MAPS, config_map("free", {"a": "1"})).ok()
        assert client.put(f"{CONFIG_MAPS}/free", config_map("free", {"a": "2"})).ok()["data"] == {"a": "2"}

    def test_some_kinds_are_created_by_updating(self, client: Client) -> None:
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/new"
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "new"}, "spec": {}}
        assert client.put(path, lease).code == 201
        client.put(f"{CONFIG_MAPS}/not-there", config_map("not-there")).refused(404)

    def test_an_update_creates_no_object_that_was_another(self, client: Client) -> None:
        """The revision of a deleted object is dropped; its uid is refused, as it names the deleted one."""
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lost"
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lost"}, "spec": {}}
        before = client.put(path, lease).ok()
        client.delete(path).ok()
        client.put(path, before).refused(409)
        del before["metadata"]["uid"]
        assert client.put(path, before).code == 201

    def test_revision_zero_is_none(self, client: Client) -> None:
        free = config_map("zero", {"a": "1"})
        client.post(CONFIG_MAPS, free).ok()
        free["metadata"]["resourceVersion"] = "0"
        assert client.put(f"{CONFIG_MAPS}/zero", {**free, "data": {"a": "2"}}).ok()["data"] == {"a": "2"}
        made = client.post(WIDGETS, widget("zero")).ok()
        made["metadata"]["resourceVersion"] = "0"
        client.put(f"{WIDGETS}/zero", made).refused(422)


class TestPatch:
    def test_json_patch(self, client: Client) -> None:
        client.post(WIDGETS, widget("jp")).ok()
        kind = {"Content-Type": "application/json-patch+json"}
        steps = [{"op": "test", "path": "/spec/size", "value": 1}, {"op": "replace", "path": "/spec/size", "value": 8}]
        assert client.ask("PATCH", f"{WIDGETS}/jp", steps, headers=kind).ok()["spec"]["size"] == 8
        client.ask("PATCH", f"{WIDGETS}/jp", steps, headers=kind).refused(422)
        client.ask("PATCH", f"{WIDGETS}/jp", {"not": "a list"}, headers=kind).refused(400)

    def test_a_kind_of_patch_is_refused_before_the_object_is_read(self, client: Client) -> None:
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        client.ask("PATCH", f"{WIDGETS}/never-made", {"spec": {"size": 2}}, headers=kind).refused(415)

    def test_a_merge_patch_with_a_revision_is_conditional(self, client: Client) -> None:
        made = client.post(WIDGETS, widget("cond")).ok()
        revision = made["metadata"]["resourceVersion"]
        client.merge(f"{WIDGETS}/cond", {"metadata": {"resourceVersion": revision}, "spec": {"size": 2}}).ok()
        client.merge(f"{WIDGETS}/cond", {"metadata": {"resourceVersion": revision}, "spec": {"size": 3}}).refused(409)

    def test_custom_resources_have_no_strategic_merge(self, client: Client) -> None:
        client.post(WIDGETS, widget("smp")).ok()
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        client.ask("PATCH", f"{WIDGETS}/smp", {"spec": {"size": 2}}, headers=kind).refused(415)

    def test_built_in_kinds_have(self, client: Client) -> None:
        client.post(CONFIG_MAPS, config_map("smp", {"a": "1", "b": "2"})).ok()
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        patched = client.ask("PATCH", f"{CONFIG_MAPS}/smp", {"data": {"a": None, "c": "3"}}, headers=kind).ok()
        assert patched["data"] == {"b": "2", "c": "3"}


class TestApply:
    def test_creates_what_is_absent(self, client: Client) -> None:
        made = client.apply(f"{WIDGETS}/applied", widget("applied"))
        assert made.code == 201
        assert made.tree["metadata"]["managedFields"][0]["operation"] == "Apply"

    def test_creates_only_what_it_names(self, client: Client) -> None:
        body = widget("named")
        del body["metadata"]["name"]
        assert "metadata.name" in client.apply(f"{WIDGETS}/named", body).refused(400)["message"]
        client.apply(f"{WIDGETS}/named", widget("named")).ok()
        client.apply(f"{WIDGETS}/named", body).ok()

    def test_creates_what_was_deleted_unless_its_uid_is_given(self, client: Client) -> None:
        gone = widget("gone")
        gone["metadata"]["resourceVersion"] = "1"
        assert client.apply(f"{WIDGETS}/gone", gone).code == 201
        client.delete(f"{WIDGETS}/gone").ok()
        gone["metadata"]["uid"] = "another"
        client.apply(f"{WIDGETS}/gone", gone).refused(409)

    def test_needs_a_manager(self, client: Client) -> None:
        kind = {"Content-Type": "application/apply-patch+yaml"}
        refused = client.ask("PATCH", f"{WIDGETS}/nobody", widget("nobody"), headers=kind).refused(422)
        assert refused["details"]["causes"][0]["field"] == "fieldManager"

    def test_of_anothers_field_conflicts_unless_forced(self, client: Client) -> None:
        path = f"{WIDGETS}/contested"
        client.apply(path, widget("contested", spec={"size": 1}), "one").ok()
        refused = client.apply(path, widget("contested", spec={"size": 2}), "two").refused(409)
        assert refused["details"]["causes"][0]["reason"] == "FieldManagerConflict"
        forced = client.apply(path, widget("contested", spec={"size": 2}), "two", force="true").ok()
        assert forced["spec"]["size"] == 2

    def test_of_the_status_owns_only_status(self, client: Client) -> None:
        client.post(WIDGETS, widget("owned")).ok()
        body = {**widget("owned"), "status": {"phase": "Up"}}
        made = client.apply(f"{WIDGETS}/owned/status", body, "controller").ok()
        entry = next(e for e in made["metadata"]["managedFields"] if e["manager"] == "controller")
        assert entry["subresource"] == "status"
        assert list(entry["fieldsV1"]) == ["f:status"]
        client.apply(f"{WIDGETS}/absent/status", widget("absent"), "controller").refused(404)

    def test_again_changes_nothing(self, client: Client) -> None:
        first = client.apply(f"{WIDGETS}/same", widget("same")).ok()
        again = client.apply(f"{WIDGETS}/same", widget("same")).ok()
        assert first["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]


class TestVersions:
    def test_one_object_is_seen_in_every_version(self, client: Client) -> None:
        old = {**widget("both", spec={"length": 4}), "apiVersion": "example.com/v1beta1"}
        made = client.post(OLD_WIDGETS, old)
        assert made.ok()["spec"]["length"] == 4
        assert made.headers["warning"] == '299 - "example.com/v1beta1 is old"'
        assert client.get(f"{WIDGETS}/both").ok()["spec"]["size"] == 4
        listed = client.get(OLD_WIDGETS, fieldSelector="metadata.name=both").ok()
        assert [item["spec"]["length"] for item in listed["items"]] == [4]

    def test_defaults_of_another_version_than_the_stored_one_are_for_those_who_write_it(self, client: Client) -> None:
        old = {**widget("inches", spec={"length": 4}), "apiVersion": "example.com/v1beta1"}
        assert client.post(OLD_WIDGETS, old, dryRun="All").ok()["spec"]["unit"] == "inch"
        client.post(WIDGETS, widget("metric")).ok()
        assert "unit" not in client.get(f"{OLD_WIDGETS}/metric").ok()["spec"]


class TestHooks:
    def test_a_mutating_hook_changes_what_is_stored(self, client: Client) -> None:
        client.post(WIDGETS, widget("stamped", labels={"stamp": "please"})).ok()
        assert client.get(f"{WIDGETS}/stamped").ok()["metadata"]["annotations"] == {"stamped": "CREATE"}

    def test_a_hook_gets_its_own_version(self, client: Client) -> None:
        old = {
            **widget("old-stamp", spec={"length": 4}, labels={"stamp": "please"}),
            "apiVersion": "example.com/v1beta1",
        }
        made = client.post(OLD_WIDGETS, old).ok()
        assert made["metadata"]["annotations"] == {"stamped": "CREATE"}
        assert made["spec"]["length"] == 4

    def test_a_validating_hook_refuses_in_its_own_words(self, client: Client) -> None:
        answer = client.post(WIDGETS, widget("unwanted", labels={"refuse": "not-today"}))
        message = answer.refused(403)["message"]
        assert message == 'admission webhook "widgets.hook" denied the request: not-today'
        assert answer.headers["warning"] == '299 - "looked at it"'
        client.get(f"{WIDGETS}/unwanted").refused(404)


class TestPaths:
    def test_openapi_v2_in_protobuf_has_no_kinds(self, client: Client) -> None:
        """kubectl reads it for unknown kinds, and would report an error as an invalid object."""
        kind = "application/com.github.proto-openapi.spec.v2{}v1.0+protobuf"
        answer = client.get("/openapi/v2", headers={"Accept": kind.format("@")})
        assert (answer.code, answer.headers["content-type"]) == (200, kind.format("."))
        assert answer.body == b"\n\x032.0\x12\x0a\n\x05empty\x12\x010B\x00"

    @pytest.mark.parametrize(
        ("method", "path", "code"),
        [
            ("GET", "/apis/nobody.example/v1/things", 404),
            ("GET", f"{WIDGETS}/x/scale", 404),
            ("GET", "/api/v1/namespaces/default/pods/x/log", 404),
            ("GET", "/openapi/v2", 404),
            ("GET", "/api/v1/namespaces/default/finalize", 405),
            ("DELETE", "/version", 405),
            ("POST", f"{WIDGETS}/x", 405),
            ("PUT", WIDGETS, 405),
            ("OPTIONS", WIDGETS, 405),
            ("GET", f"{WIDGETS}/x/y/z/too/long", 404),
            ("GET", "/apis/example.com/v1/namespaces/default/widgets%2Fx", 404),
            ("POST", "/api/v1", 405),
        ],
    )
    def test_missing_objects_and_paths_are_not_found(self, client: Client, method: str, path: str, code: int) -> None:
        client.ask(method, path, {} if method in ("POST", "PUT") else None).refused(code)

    def test_one_trailing_slash_is_nothing(self, client: Client) -> None:
        assert client.get("/version/").ok() == client.get("/version").ok()
        assert client.get("/apis/").ok()["kind"] == "APIGroupList"
        assert client.get(f"{WIDGETS}/").ok()["kind"] == "WidgetList"

    def test_answers_can_be_followed_in_a_log(self, client: Client) -> None:
        headers = client.get(WIDGETS).headers
        assert headers["cache-control"] == "no-cache, private"
        assert len(headers["audit-id"]) == 36


class TestSameness:
    def test_true_is_not_one(self, client: Client) -> None:
        """Python takes them for equal; a write that changes one into the other is a change all the same."""
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "bags.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "bags", "kind": "Bag"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                ],
            },
        }
        client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).ok()
        path = WIDGETS.replace("widgets", "bags")
        bag = {"apiVersion": "example.com/v1", "kind": "Bag", "metadata": {"name": "b"}, "held": {"a": 1}}
        made = client.post(path, bag).ok()["metadata"]
        changed = client.merge(f"{path}/b", {"held": {"a": True}}).ok()
        assert changed["held"]["a"] is True
        assert changed["metadata"]["resourceVersion"] != made["resourceVersion"]
        assert changed["metadata"]["generation"] == 2
