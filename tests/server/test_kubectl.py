"""The real kubectl against a real server: commands and their output."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.conftest import Running, config_map, widget
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")


class Kubectl:
    def __init__(self, running: Running, home: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(running.serving.kubeconfig), "HOME": str(home)}
        self._home = home

    def run(self, *arguments: str, given: Any = None, code: int = 0) -> subprocess.CompletedProcess[str]:
        text = None if given is None else yaml.safe_dump_all(given if isinstance(given, list) else [given])
        done = subprocess.run(
            ["kubectl", *arguments],
            input=text,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def __call__(self, *arguments: str, given: Any = None, code: int = 0) -> str:
        return self.run(*arguments, given=given, code=code).stdout

    def first_lines(self, count: int, *arguments: str) -> list[str]:
        """The first line of output of a command that does not end."""
        with subprocess.Popen(["kubectl", *arguments], stdout=subprocess.PIPE, text=True, env=self._environment) as it:
            assert it.stdout is not None
            lines = [it.stdout.readline() for _ in range(count)]
            it.terminate()
        return lines

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture
def kubectl(running: Running, tmp_path: Path) -> Kubectl:
    return Kubectl(running, tmp_path)


def test_version_and_health(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_create_and_get_print_the_columns(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=widget("shown", spec={"size": 12}))
    printed = kubectl("get", "widgets", "shown")
    assert re.search(r"NAME +SIZE +FIRST +AGE\nshown +12 +\d+s", printed)
    assert kubectl("get", "wd", "shown", "-o", "name") == "widget.example.com/shown\n"
    assert "shown" in kubectl("get", "all")


def test_apply_twice_changes_nothing(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", given=widget("applied"))
    assert "unchanged" in kubectl("apply", "-f", "-", given=widget("applied"))
    assert "configured" in kubectl("apply", "-f", "-", given=widget("applied", spec={"size": 2}))
    assert kubectl.json("get", "widget", "applied")["spec"]["size"] == 2


def test_apply_of_a_built_in_kind(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", given=config_map("applied", {"a": "1", "b": "2"}))
    assert "configured" in kubectl("apply", "-f", "-", given=config_map("applied", {"a": "1", "c": "3"}))
    assert kubectl.json("get", "cm", "applied")["data"] == {"a": "1", "c": "3"}


def test_server_side_apply_and_its_conflicts(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", given=widget("ssa"))
    other = ["apply", "--server-side", "--field-manager=other", "-f", "-"]
    refused = kubectl.run(*other, given=widget("ssa", spec={"size": 2}), code=1)
    assert "conflict with" in refused.stderr
    kubectl(*other, "--force-conflicts", given=widget("ssa", spec={"size": 2}))


def test_moving_from_client_side_to_server_side_apply(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=widget("moved"))
    kubectl("apply", "--server-side", "-f", "-", given=widget("moved", spec={"size": 2}))
    owners = kubectl.json("get", "widget", "moved", "--show-managed-fields")["metadata"]["managedFields"]
    assert {owner["manager"] for owner in owners if owner["operation"] == "Apply"} >= {"kubectl"}


def test_unknown_fields_are_refused_before_anything_happens(kubectl: Kubectl) -> None:
    refused = kubectl.run("apply", "-f", "-", given=widget("odd", spec={"size": 1, "zzz": 1}), code=1)
    assert 'unknown field "spec.zzz"' in refused.stderr
    assert "NotFound" in kubectl.run("get", "widget", "odd", code=1).stderr


def test_an_unknown_kind_is_reported_as_missing_and_not_as_invalid(kubectl: Kubectl) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    refused = kubectl.run("apply", "-f", "-", given=quota, code=1).stderr
    assert 'no matches for kind "ResourceQuota" in version "v1"' in refused


def test_label_annotate_patch_and_edit(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=widget("changed"))
    kubectl("label", "widget", "changed", "a=b")
    kubectl("annotate", "widget", "changed", "x=y")
    kubectl("patch", "widget", "changed", "--type=merge", "-p", '{"spec":{"size":3}}')
    kubectl("patch", "widget", "changed", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Up"}}')
    kubectl("patch", "widget", "changed", "--type=json", "-p", '[{"op":"replace","path":"/spec/color","value":"red"}]')
    found = kubectl.json("get", "widget", "changed")
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["spec"] == {"size": 3, "color": "red"}
    assert found["status"] == {"phase": "Up"}
    assert found["metadata"]["generation"] == 3


def test_create_with_protobuf_bodies(kubectl: Kubectl) -> None:
    """These send protobuf and know no other way."""
    kubectl("create", "namespace", "proto")
    kubectl("create", "configmap", "c", "-n", "proto", "--from-literal=key=value")
    kubectl("create", "secret", "generic", "s", "-n", "proto", "--from-literal=key=value")
    kubectl("create", "job", "j", "-n", "proto", "--image=busybox", "--", "sleep", "1")
    kubectl("create", "serviceaccount", "sa", "-n", "proto")
    kubectl("create", "priorityclass", "high", "--value=10")
    assert kubectl.json("get", "cm", "c", "-n", "proto")["data"] == {"key": "value"}
    assert kubectl.json("get", "secret", "s", "-n", "proto")["data"] == {"key": "dmFsdWU="}
    job = kubectl.json("get", "job", "j", "-n", "proto")
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == ["sleep", "1"]
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"


def test_delete_and_wait(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=widget("going"))
    kubectl("delete", "widget", "going", "--timeout=80s")
    kubectl("create", "-f", "-", given=widget("waited"))
    kubectl("patch", "widget", "waited", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Up"}}')
    assert "condition met" in kubectl("wait", "widget/waited", "--for=jsonpath={.status.phase}=Up", "--timeout=80s")


def test_a_namespace_is_deleted_with_its_content(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "short")
    kubectl("create", "-f", "-", "-n", "short", given=config_map("c"))
    kubectl("delete", "namespace", "short", "--timeout=80s")
    assert "NotFound" in kubectl.run("get", "ns", "short", code=1).stderr


def test_explain_describe_and_diff(kubectl: Kubectl) -> None:
    assert "How large the widget is." in kubectl("explain", "widget.spec.size")
    kubectl("create", "-f", "-", given=widget("described", spec={"size": 41}))
    assert re.search(r"Size: +41", kubectl("describe", "widget", "described"))
    different = kubectl.run("diff", "-f", "-", given=widget("described", spec={"size": 42}), code=1).stdout
    assert re.search(r"\+ +size: 42", different)


def test_a_dry_run_on_the_server(kubectl: Kubectl) -> None:
    assert "(server dry run)" in kubectl("apply", "--dry-run=server", "-f", "-", given=widget("dry"))
    assert "NotFound" in kubectl.run("get", "widget", "dry", code=1).stderr


def test_get_in_chunks_and_by_selector(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "chunks")
    kubectl("create", "-n", "chunks", "-f", "-", given=[widget(f"w{i}", labels={"odd": str(i % 2)}) for i in range(7)])
    assert len(kubectl("get", "widgets", "-n", "chunks", "--chunk-size=2", "-o", "name").splitlines()) == 7
    assert len(kubectl("get", "widgets", "-n", "chunks", "-l", "odd=1", "-o", "name").splitlines()) == 3
    colored = kubectl("get", "widgets", "-n", "chunks", "--field-selector", "spec.color=grey", "-o", "name")
    assert len(colored.splitlines()) == 7


def test_watching_prints_what_is_there(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", given=widget("watched"))
    first, second = kubectl.first_lines(2, "get", "widget", "watched", "-w", "--output-watch-events")
    assert first.split()[:2] == ["EVENT", "NAME"]
    assert second.split()[:2] == ["ADDED", "watched"]


def test_a_new_crd_is_usable_at_once(kubectl: Kubectl) -> None:
    """The cached discovery of kubectl must not hide it."""
    from server.conftest import widget_crd

    crd = widget_crd()
    crd["metadata"]["name"] = "sprockets.example.org"
    crd["spec"]["group"] = "example.org"
    crd["spec"]["names"] = {"plural": "sprockets", "kind": "Sprocket"}
    kubectl("api-resources")
    kubectl("apply", "-f", "-", given=crd)
    kubectl("wait", "--for=condition=Established", "crd/sprockets.example.org", "--timeout=80s")
    assert "sprockets" in kubectl("api-resources", "--api-group=example.org")
    kubectl("apply", "-f", "-", given={**widget("s"), "apiVersion": "example.org/v1", "kind": "Sprocket"})
    kubectl("delete", "crd", "sprockets.example.org", "--timeout=80s")
    assert "sprockets" not in kubectl("api-resources", "--api-group=example.org")
