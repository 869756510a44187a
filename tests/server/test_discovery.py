"""What is served and what it looks like: discovery in both forms, OpenAPI, tables, metadata, and what is not offered."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from kubemachinery import jsonpath
from kubemachinery.serving import discovery
from kubemachinery.serving.discovery import version_rank
from kubeserver.registry import tables, unsupported
from kubeserver.registry.strategy import ServedColumn
from server.conftest import CONFIG_MAPS, WIDGETS, Client, config_map, widget

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class TestDiscovery:
    def test_both_forms_list_the_same_resources(self, client: Client) -> None:
        whole = set()
        for root in ("/api", "/apis"):
            answer = client.get(root, headers={"Accept": AGGREGATED})
            assert answer.headers["content-type"] == AGGREGATED
            for group in answer.ok()["items"]:
                for version in group["versions"]:
                    assert version["freshness"] == "Current"
                    for row in version["resources"]:
                        name = (group["metadata"].get("name", ""), version["version"], row["resource"])
                        whole.add((*name, tuple(row["verbs"]), row["scope"] == "Namespaced"))
        pieces = set()
        addresses = [("", "v1", "/api/v1")]
        for group in client.get("/apis").ok()["groups"]:
            assert client.get(f"/apis/{group['name']}").ok()["versions"] == group["versions"]
            for version in group["versions"]:
                addresses.append((group["name"], version["version"], f"/apis/{version['groupVersion']}"))
        for group_name, version_name, path in addresses:
            for row in client.get(path).ok()["resources"]:
                if "/" not in row["name"]:
                    pieces.add((group_name, version_name, row["name"], tuple(row["verbs"]), row["namespaced"]))
        assert whole == pieces

    def test_the_preferred_version_comes_first(self, client: Client) -> None:
        group = client.get("/apis/example.com").ok()
        assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
        assert group["preferredVersion"]["version"] == "v1"
        mixed = ["foo", "v1alpha1", "v2", "v1", "v11beta2", "v1beta1", "v10", "v2beta1"]
        assert sorted(mixed, key=version_rank) == [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v2beta1",
            "v1beta1",
            "v1alpha1",
            "foo",
        ]

    def test_a_tag_names_the_content_and_its_form(self, client: Client) -> None:
        plain, whole = client.get("/apis"), client.get("/apis", headers={"Accept": AGGREGATED})
        assert plain.headers["etag"] != whole.headers["etag"]
        again = client.get("/apis", headers={"Accept": AGGREGATED, "If-None-Match": whole.headers["etag"]})
        assert again.code == 304
        assert again.headers["content-type"] == AGGREGATED, "a cache would take the old body for the other form"

    @pytest.mark.parametrize(
        ("accept", "whole"),
        [
            (AGGREGATED + ",application/json", True),
            ("application/json," + AGGREGATED, False),
            ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", False),
            ("*/*", False),
        ],
    )
    def test_the_first_form_that_is_known_wins(self, accept: str, whole: bool) -> None:
        assert discovery.wants_aggregated(accept) is whole


class TestOpenApi:
    def test_every_document_is_found_by_its_hash(self, client: Client) -> None:
        paths = client.get("/openapi/v3").ok()["paths"]
        assert {"api/v1", "apis/example.com/v1", "apis/batch/v1"} <= set(paths)
        for path, entry in paths.items():
            document = client.get(entry["serverRelativeURL"])
            assert document.ok()["openapi"] == "3.0.0", path
            assert "immutable" in document.headers["cache-control"]

    def test_kubectl_sees_that_the_server_validates(self, client: Client) -> None:
        """It looks for a fieldValidation parameter in the patch of the kind."""
        for address, kind in (("apis/example.com/v1", "Widget"), ("api/v1", "ConfigMap"), ("apis/batch/v1", "Job")):
            document = client.get(f"/openapi/v3/{address}").ok()
            found = [
                parameter["name"]
                for item in document["paths"].values()
                for method, operation in item.items()
                if method == "patch" and operation["x-kubernetes-group-version-kind"]["kind"] == kind
                for parameter in operation["parameters"]
            ]
            assert "fieldValidation" in found

    def test_descriptions_are_kept(self, client: Client) -> None:
        schemas = client.get("/openapi/v3/apis/example.com/v1").ok()["components"]["schemas"]
        widgets = schemas["com.example.v1.Widget"]
        assert widgets["properties"]["spec"]["properties"]["size"]["description"] == "How large the widget is."
        assert widgets["x-kubernetes-group-version-kind"] == [
            {"group": "example.com", "kind": "Widget", "version": "v1"}
        ]

    def test_every_reference_leads_somewhere(self, client: Client) -> None:
        for address in client.get("/openapi/v3").ok()["paths"]:
            document = client.get(f"/openapi/v3/{address}").ok()
            known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
            assert set(references(document)) <= known, address


def references(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        own = [tree["$ref"]] if isinstance(tree.get("$ref"), str) else []
        return own + [found for value in tree.values() for found in references(value)]
    if isinstance(tree, list):
        return [found for value in tree for found in references(value)]
    return []


class TestForms:
    def test_a_table_has_the_columns_of_the_crd(self, client: Client) -> None:
        spec = {"size": 4, "parts": [{"name": "second"}, {"name": "first", "count": 7}]}
        client.post(WIDGETS, widget("tabled", spec=spec)).ok()
        shown = client.get(WIDGETS, headers={"Accept": TABLE}, fieldSelector="metadata.name=tabled").ok()
        assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Size", "First", "Age"]
        (row,) = shown["rows"]
        assert row["cells"][:3] == ["tabled", 4, 7]
        assert row["object"]["kind"] == "PartialObjectMetadata"

    def test_the_object_in_a_table_row_can_be_chosen(self, client: Client) -> None:
        client.post(WIDGETS, widget("chosen")).ok()
        one = f"{WIDGETS}/chosen"
        for include, kind in (("None", None), ("Object", "Widget"), ("Metadata", "PartialObjectMetadata")):
            row = client.get(one, headers={"Accept": TABLE}, includeObject=include).ok()["rows"][0]
            assert (row["object"] or {}).get("kind") == kind

    def test_metadata_alone(self, client: Client) -> None:
        client.post(WIDGETS, widget("bare")).ok()
        bare = client.get(f"{WIDGETS}/bare", headers={"Accept": PARTIAL}).ok()
        assert set(bare) == {"kind", "apiVersion", "metadata"}
        listed = client.get(WIDGETS, headers={"Accept": PARTIAL.replace("Metadata", "MetadataList")}).ok()
        assert listed["kind"] == "PartialObjectMetadataList"
        event = next(client.watch(WIDGETS, timeoutSeconds=5, headers={"Accept": PARTIAL}))
        assert event["object"]["kind"] == "PartialObjectMetadata"

    def test_yaml_on_request(self, client: Client) -> None:
        client.post(CONFIG_MAPS, config_map("in-yaml", {"a": "b"})).ok()
        answer = client.get(f"{CONFIG_MAPS}/in-yaml", headers={"Accept": "application/yaml"})
        assert answer.headers["content-type"] == "application/yaml"
        assert b"\nkind: ConfigMap\n" in answer.body

    def test_json_where_protobuf_is_only_preferred(self, client: Client) -> None:
        accept = {"Accept": "application/vnd.kubernetes.protobuf, */*"}
        assert client.get(CONFIG_MAPS, headers=accept).ok()["kind"] == "ConfigMapList"
        client.get(CONFIG_MAPS, headers={"Accept": "application/vnd.kubernetes.protobuf"}).refused(406)
        client.get(CONFIG_MAPS, headers={"Accept": "application/cbor"}).refused(406)

    def test_long_answers_are_compressed_for_those_who_like_it(self, client: Client) -> None:
        client.post(CONFIG_MAPS, config_map("long", {"x": "y" * 200_000})).ok()
        response = client.send("GET", f"{CONFIG_MAPS}/long", headers={"Accept-Encoding": "gzip"})
        assert response.getheader("Content-Encoding") == "gzip"
        assert len(json.loads(gzip.decompress(response.read()))["data"]["x"]) == 200_000
        assert "content-encoding" not in client.get(f"{CONFIG_MAPS}/long").headers


class TestLimits:
    def test_the_document_and_the_page_are_the_table(self, client: Client) -> None:
        listed = client.get("/.well-known/embedded-limits").ok()["limits"]
        assert [row["name"] for row in listed] == [limit.name for limit in unsupported.LIMITS]
        assert all(limit.words in unsupported.page() for limit in unsupported.LIMITS)

    def test_every_limit_behaves_as_its_row(self, client: Client) -> None:
        for limit in unsupported.LIMITS:
            for name in limit.subresources:
                plural, _, subresource = name.partition("/")
                plural = "pods" if plural == "*" else plural
                answer = client.get(f"/api/v1/namespaces/default/{plural}/x/{subresource}")
                if plural in ("services", "nodes"):
                    assert answer.code == 404
                else:
                    assert answer.refused(404)["message"] == limit.words
            for path in limit.paths:
                assert client.get(path).refused(404)["message"] == limit.words

    def test_rbac_is_stored_with_a_warning(self, client: Client) -> None:
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "r"},
            "rules": [],
        }
        made = client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        assert made.code == 201
        assert "not enforced" in made.headers["warning"]

    def test_absent_groups_are_absent(self, client: Client) -> None:
        groups = {group["name"] for group in client.get("/apis").ok()["groups"]}
        assert not groups & {"metrics.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}


class TestJsonPath:
    @pytest.mark.parametrize(
        ("path", "found"),
        [
            (".a.b", [1]),
            ("a.b", [1]),
            ("{.a.b}", [1]),
            (".list[0].n", ["x"]),
            (".list[-1].n", ["y"]),
            (".list[*].n", ["x", "y"]),
            (".list[0:1].n", ["x"]),
            ('.list[?(@.n=="y")].v', [2]),
            (".list[0,1].n", ["x", "y"]),
            (".list[::2].n", ["x"]),
            (".list[5].n", []),
            (".a[*]", []),
            (".list[?(@.n=='y')].v", [2]),
            (".list[?(@.v>1)].n", ["y"]),
            (".list[?(@.w)].n", ["y"]),
            (".list[?(@.v!=1)].n", ["y"]),
            (r".a['dotted.key']", [3]),
            (r".a.dotted\.key", [3]),
            (".missing.a", []),
            ("..n", ["x", "y"]),
            (".list.n", []),
            (".a.b.c", []),
        ],
    )
    def test_finds(self, path: str, found: list[Any]) -> None:
        tree = {"a": {"b": 1, "dotted.key": 3}, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2, "w": None}]}
        assert jsonpath.compile_path(path)(tree, jsonpath.Walk(True, 1000)) == found

    @pytest.mark.parametrize("path", [".a[", ".a[?(@.b==", "a b", ".a[?(@.b=!1)]", ".a[x]"])
    def test_refuses_in_words(self, path: str) -> None:
        with pytest.raises(jsonpath.PathError):
            jsonpath.compile_path(path)

    @pytest.mark.parametrize(
        "path",
        ["..a" * 12, "..[0,0]" * 40, "[0,0]" * 40, "..*" * 12, '[?(@..a)]..[?(@..a=="x")]..a', "[0:1,0:1]" * 40],
    )
    def test_a_path_that_multiplies_values_shows_nothing_in_bounded_time(self, path: str) -> None:
        """Without a bound each of them visits billions of values, and this test does not end."""
        tree: Any = {}
        for _ in range(40):
            tree = {"a": tree, "b": [tree, tree]}
        nested: Any = ["x"]
        for _ in range(60):
            nested = [nested]
        for value in (tree, nested):
            column = ServedColumn(name="C", path=path)
            walk = jsonpath.Walk(True, tables.ROW_VALUES_MAX)
            tables.cell(column, value, 0, walk)
            assert walk.left > -tables.ROW_VALUES_MAX, "more was visited than was checked for"
        with pytest.raises(jsonpath.PathError):
            jsonpath.read(path).find(tree, values_max=1000)

    def test_all_columns_of_a_row_share_one_bound(self) -> None:
        walk = jsonpath.Walk(True, 10)
        nested: Any = [[["x"]]] * 20
        assert tables.cell(ServedColumn(name="C", path="..x"), nested, 0, walk) is None
        assert tables.cell(ServedColumn(name="N", path=".a"), {"a": "b"}, 0, walk) is None


class TestColumns:
    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (321, "5m21s"),
            (600, "10m"),
            (10_000, "166m"),
            (4 * 3600, "4h"),
            (4 * 3600 + 300, "4h5m"),
            (30 * 3600, "30h"),
            (3 * 86_400 + 3600, "3d1h"),
            (100 * 86_400, "100d"),
            (3 * 365 * 86_400, "3y"),
            (3 * 365 * 86_400 + 86_400, "3y1d"),
            (9 * 365 * 86_400, "9y"),
        ],
    )
    def test_the_larger_the_rougher(self, seconds: int, shown: str) -> None:
        assert tables.duration(seconds) == shown

    def test_what_is_missing_or_of_another_type_is_null(self) -> None:
        tree = {"n": "text", "f": 1.7, "flag": True, "map": {"a": 1}, "time": "not a time"}

        def shown(path: str, kind: str) -> Any:
            return tables.cell(ServedColumn(name="x", path=path, type=kind), tree, 0, jsonpath.Walk(True, 100))

        assert shown(".absent", "string") is None
        assert shown(".n", "integer") is None
        assert shown(".f", "integer") == 1
        assert shown(".flag", "boolean") is True
        assert shown(".map", "string") == '{"a":1}'
        assert shown(".time", "date") == "<unknown>"
