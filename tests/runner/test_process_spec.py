"""The process that a container becomes: its words, its environment, its limits, and what it does not get."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.runner import process_spec
from pykueue.runner.process_spec import ProcessContext, ProcessSpec, StartProblem

AROUND = ProcessContext({"PATH": "/bin", "HOME": "/home/me"}, "/home/me")
TEXTS = {("ConfigMap", "c"): {"colour": "red"}, ("Secret", "s"): {"word": "hush"}}


def pod(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"team": "x"}},
        "spec": {"nodeName": "here", "containers": [{"name": "main", "image": "i", **container}]},
    }


def prepare(**container: Any) -> ProcessSpec | StartProblem:
    tree = pod(**container)
    return process_spec.prepare(tree, tree["spec"]["containers"][0], TEXTS, AROUND)


def environment(*env: dict[str, Any], **container: Any) -> dict[str, str]:
    made = prepare(command=["x"], env=list(env), **container)
    assert isinstance(made, ProcessSpec), made
    return dict(made.environment)


class TestCommand:
    def test_command_and_arguments_run_without_a_shell(self) -> None:
        made = prepare(command=["echo", "a b"], args=["$HOME", ";"])
        assert isinstance(made, ProcessSpec)
        assert made.command == ("echo", "a b", "$HOME", ";")

    @pytest.mark.parametrize(
        ("text", "becomes"),
        [
            ("$(A)", "1"),
            ("x$(A)y$(B)", "x1y12"),
            ("$$(A)", "$(A)"),
            ("$(NOBODY)", "$(NOBODY)"),
            ("$A ${A} $(", "$A ${A} $("),
            ("$$", "$"),
        ],
    )
    def test_names_in_parentheses_expand_to_variables(self, text: str, becomes: str) -> None:
        made = prepare(command=["x"], args=[text], env=[{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}])
        assert isinstance(made, ProcessSpec)
        assert made.command[1] == becomes

    def test_container_without_a_command_is_refused(self) -> None:
        made = prepare(args=["x"])
        assert isinstance(made, StartProblem)
        assert made.lasting
        assert "has no command" in made.message

    def test_a_zero_byte_is_refused(self) -> None:
        made = prepare(command=["x", "a\0b"])
        assert isinstance(made, StartProblem)
        assert made.lasting

    def test_the_directory_is_the_containers_or_the_users_own(self) -> None:
        made, home = prepare(command=["x"], workingDir="/srv"), prepare(command=["x"])
        assert isinstance(made, ProcessSpec)
        assert isinstance(home, ProcessSpec)
        assert (made.directory, home.directory) == ("/srv", "/home/me")


class TestEnvironment:
    def test_variables_can_refer_to_earlier_ones(self) -> None:
        reported = environment(
            {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "3"}
        )
        assert reported["B"] == "1$(C)"

    def test_few_variables_are_inherited_and_can_be_overridden(self) -> None:
        assert environment() == {"PATH": "/bin", "HOME": "/home/me", "HOSTNAME": "p"}
        assert environment({"name": "PATH", "value": "/opt"})["PATH"] == "/opt"

    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ({"configMapKeyRef": {"name": "c", "key": "colour"}}, "red"),
            ({"secretKeyRef": {"name": "s", "key": "word"}}, "hush"),
            ({"fieldRef": {"fieldPath": "metadata.name"}}, "p"),
            ({"fieldRef": {"fieldPath": "metadata.labels['team']"}}, "x"),
            ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "here"),
            ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.0.0.1"),
            ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "64"),
            ({"resourceFieldRef": {"resource": "requests.cpu"}}, "1"),
        ],
    )
    def test_values_from_config_maps_secrets_fields_and_resources(self, source: dict[str, Any], value: str) -> None:
        resources = {"limits": {"memory": "64Mi"}, "requests": {"cpu": "200m"}}
        assert environment({"name": "A", "valueFrom": source}, resources=resources)["A"] == value

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ({"configMapKeyRef": {"name": "c", "key": "shape"}}, "ConfigMap c has no entry shape"),
            ({"configMapKeyRef": {"name": "gone", "key": "x"}}, "ConfigMap gone not found"),
            ({"fieldRef": {"fieldPath": "spec.zzz"}}, "fieldPath spec.zzz is not supported"),
            ({"fileKeyRef": {"path": "x"}}, "source fileKeyRef of a variable is not supported"),
        ],
    )
    def test_missing_sources_are_a_retryable_problem(self, source: dict[str, Any], words: str) -> None:
        made = prepare(command=["x"], env=[{"name": "A", "valueFrom": source}])
        assert isinstance(made, StartProblem)
        assert (made.reason, made.lasting) == ("CreateContainerConfigError", False)
        assert words in made.message

    def test_optional_sources_may_be_missing(self) -> None:
        source = {"configMapKeyRef": {"name": "gone", "key": "x", "optional": True}}
        assert "A" not in environment({"name": "A", "valueFrom": source})

    def test_env_from_comes_first_and_with_a_prefix(self) -> None:
        sources = [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}, "prefix": "MY_"}]
        reported = environment({"name": "colour", "value": "blue"}, envFrom=sources)
        assert (reported["colour"], reported["MY_word"]) == ("blue", "hush")

    def test_sources_lists_config_maps_and_secrets(self) -> None:
        (container,) = pod(
            envFrom=[{"secretRef": {"name": "s"}}],
            env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
        )["spec"]["containers"]
        assert list(process_spec.sources(container)) == [("Secret", "s"), ("ConfigMap", "c")]

    def test_secrets_are_decoded(self) -> None:
        assert process_spec.texts_of("Secret", {"data": {"a": "aHVzaA=="}}) == {"a": "hush"}


def test_only_memory_is_limited() -> None:
    made = prepare(command=["x"], resources={"limits": {"memory": "1Gi", "cpu": "1"}})
    assert isinstance(made, ProcessSpec)
    assert made.limits == {"RLIMIT_CORE": 0, "RLIMIT_DATA": 2**30}


def test_ignored_fields_are_listed() -> None:
    tree = pod(image="train:1", readinessProbe={"exec": {}})
    tree["spec"] |= {"volumes": [{"name": "data"}], "securityContext": {"runAsUser": 7}}
    words = "; ".join(process_spec.ignored(tree))
    for reported in ("train:1", "volumes are not mounted: data", "readiness probes", "runAsUser 7"):
        assert reported in words
    assert list(process_spec.ignored(pod(image=process_spec.NO_IMAGE))) == []
