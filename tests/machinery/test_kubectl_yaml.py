"""Unquoted YAML scalars: the same value as kubectl reads, in the CLI and in the API server."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from kubemachinery import kubectl_yaml, yaml_documents
from kubemachinery.errors import UsageError
from kubemachinery.status import StatusError
from kubeserver.protocol import bodies

# As `kubectl label --local -f - a=b -o json` writes them (kubectl 1.32). Integers from 2^63 on are left out: kubectl's
# own JSON reader rounds them, whatever they were written in.
VALUES: dict[str, Any] = {
    "22:22": "22:22",
    "190:20:30": "190:20:30",
    "1:2:3.5": "1:2:3.5",
    "017": 15,
    "-017": -15,
    "0o17": 15,
    "0O17": 15,
    "0x1F": 31,
    "-0X1f": -31,
    "0x_1F": 31,
    "0b101": 5,
    "-0b11": -3,
    "0b12": "0b12",
    "0o8": "0o8",
    "0x": "0x",
    "018": 18,
    "08": 8,
    "00": 0,
    "1e3": 1000,
    "1E+3": 1000,
    "1.e3": 1000,
    ".5e1": 5,
    "1e": "1e",
    "e3": "e3",
    "1e400": "1e400",
    "1e-400": 0,
    "1e21": 1e21,
    "1.5": 1.5,
    "1.": 1,
    "-.5": -0.5,
    "+1": 1,
    "1_000": 1000,
    "1_": 1,
    "_1": "_1",
    "1_0.5_0": 10.5,
    ".1_0": 0.1,
    "._1": "._1",
    ".1__0": ".1__0",
    "0.1.2": "0.1.2",
    "--1": "--1",
    "9223372036854775807": 2**63 - 1,
    "-9223372036854775808": -(2**63),
    "123456789012345678901234567890": 1.2345678901234568e29,
    "0x1FFFFFFFFFFFFFFFFF": "0x1FFFFFFFFFFFFFFFFF",
    "9" * 400: "9" * 400,
    "y": True,
    "Y": True,
    "yes": True,
    "On": True,
    "TRUE": True,
    "yEs": "yEs",
    "n": False,
    "no": False,
    "OFF": False,
    "~": None,
    "Null": None,
    "nUll": "nUll",
    "2001-01-01": "2001-01-01",
    "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00",
    "Infinity": "Infinity",
    "inf": "inf",
    "=": "=",
    "<<": "<<",
    "!!int 5": 5,
    '!!int "5"': 5,
    "!!float 5": 5,
    "!!str 017": "017",
    "'017'": "017",
}
KEYS = {"22:22": "22:22", "017": "15", "1e3": "1000", "y": "true", "1.5": "1.5", "1.0": "1", "0.00000001": "1e-08"}


@pytest.mark.parametrize("text", VALUES, ids=lambda text: text[:40])
def test_server_and_cli_read_a_scalar_as_kubectl_does(text: str) -> None:
    [document] = yaml_documents.parse(f"a: {text}\n", "x")
    sent = bodies.parse_yaml(f"a: {text}\n".encode())
    for read in (document.tree["a"], sent["a"]):
        assert read == VALUES[text]
        assert isinstance(read, type(VALUES[text]))


@pytest.mark.parametrize("text", KEYS)
def test_server_and_cli_read_a_key_as_kubectl_does(text: str) -> None:
    [document] = yaml_documents.parse(f"{text}: v\n", "x")
    assert document.tree == bodies.parse_yaml(f"{text}: v\n".encode()) == {KEYS[text]: "v"}


@pytest.mark.parametrize(
    "text", [".inf", "-.inf", "+.INF", ".NaN", "!!int abc", "!!int 22:22", "!!binary aGk=", "!!set {a}"]
)
def test_a_value_that_json_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        list(yaml_documents.parse(f"a: {text}\n", "x"))
    with pytest.raises(StatusError) as caught:
        bodies.parse_yaml(f"a: {text}\n".encode())
    assert caught.value.code == 400


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_the_recorded_values_are_those_of_the_kubectl_that_is_installed() -> None:
    lines = "\n".join(f"  k{index}: {text}" for index, text in enumerate(VALUES))
    keys = "\n".join(f"  {text}: v" for text in KEYS)
    sent = f"apiVersion: e.com/v1\nkind: X\nmetadata: {{name: a}}\nspec:\n{lines}\nkeys:\n{keys}\n"
    command = ["kubectl", "label", "--local", "-f", "-", "a=b", "-o", "json"]
    tree = json.loads(subprocess.run(command, input=sent, capture_output=True, text=True, check=True).stdout)
    assert [tree["spec"][f"k{index}"] for index in range(len(VALUES))] == list(VALUES.values())
    assert sorted(tree["keys"]) == sorted(KEYS.values())


@pytest.mark.parametrize("part", ["59:", "1_", "9", "0", "1e", "59."])
def test_a_number_of_megabytes_is_text_and_is_not_computed(part: str) -> None:
    """PyYAML builds `59:59:…` in quadratic time: three megabytes of it take minutes, and this test never ends."""
    text = part * (3_000_000 // len(part))
    assert kubectl_yaml.scalar(text) == text
    assert bodies.parse_yaml(b"a: " + text.rstrip(":").encode()) == {"a": text.rstrip(":")}


@pytest.mark.parametrize("value", [*(text for text in VALUES if VALUES[text] != text), "y", "1e3", "22:22", "a", ""])
def test_text_that_would_be_read_as_another_value_is_written_in_quotes(value: str) -> None:
    written = kubectl_yaml.dump({"a": value, value: 1})
    assert yaml.load(written, Loader=kubectl_yaml.Loader) == {"a": value, value: 1}
    assert yaml.load(bodies.to_yaml(json.dumps([value]).encode()), Loader=kubectl_yaml.Loader) == [value]
