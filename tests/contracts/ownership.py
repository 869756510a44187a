"""Random sequences of writes by several managers to one object, for the twin test of server-side apply.

A sequence is a list of steps, each a value: manager, endpoint, operation (apply, forced or not, update, merge patch) and
with what. The kind is made for the purpose: every merge rule of schemas occurs in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Tree = dict[str, Any]

GROUP: Final = "twin.example.com"
PLURAL: Final = "mixtures"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "Mixture"

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer"}
_ITEM: Final[Tree] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": _TEXT,
        "value": _TEXT,
        "count": _COUNT,
        "tags": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
        "labels": {"type": "object", "additionalProperties": _TEXT},
        "inner": {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}},
    },
}
_PART: Final[Tree] = {
    "type": "object",
    "properties": {
        "text": _TEXT,
        "number": _COUNT,
        "flag": {"type": "boolean"},
        "either": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "granular": {"type": "object", "additionalProperties": _TEXT},
        "ofObjects": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}},
        },
        "atomicMap": {"type": "object", "additionalProperties": _TEXT, "x-kubernetes-map-type": "atomic"},
        "struct": {
            "type": "object",
            "properties": {"a": _TEXT, "b": _TEXT, "deep": {"type": "object", "properties": {"c": _TEXT, "d": _TEXT}}},
        },
        "atomicStruct": {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}, "x-kubernetes-map-type": "atomic"},
        "atomicList": {"type": "array", "items": _TEXT},
        "set": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
        "numbers": {"type": "array", "items": _COUNT, "x-kubernetes-list-type": "set"},
        "items": {
            "type": "array",
            "items": _ITEM,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "ports": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {"port": _COUNT, "protocol": {"type": "string", "default": "TCP"}, "name": _TEXT},
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
        },
        "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "partly": {
            "type": "object",
            "properties": {"known": _TEXT},
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}
SCHEMA: Final[Tree] = {"type": "object", "properties": {"spec": _PART, "status": _PART}}

CRD: Final[Tree] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "mixture", "kind": KIND, "listKind": "MixtureList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}


@dataclass(frozen=True)
class Step:
    """One write. `verb` is apply, update or merge; an update's `change` is laid over the object as it was read."""

    manager: str
    verb: str
    subresource: str
    force: bool
    body: Tree

    def __str__(self) -> str:
        endpoint = f"/{self.subresource}" if self.subresource else ""
        return f"{self.manager}: {self.verb}{' --force' if self.force else ''}{endpoint} {self.body}"


_WORDS: Final = ("x", "y", "z")
_KEYS: Final = ("k1", "k2", "k3")
_NAMES: Final = ("one", "two", "three", "four")


class SequenceGenerator:
    """Makes sequences from a seed. Values are few, so that managers meet."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def sequence(self, length: int) -> list[Step]:
        steps = [Step("first", self._random.choice(("apply", "create")), "", False, {"spec": self._part(0.4)})]
        for _ in range(length):
            steps.append(self._step())
        return steps

    def _step(self) -> Step:
        rng = self._random
        manager = rng.choice(("first", "second", "third"))
        subresource = rng.choice(("", "", "status"))
        verb = rng.choice(("apply", "apply", "apply", "update", "merge"))
        field = "status" if subresource else "spec"
        body: Tree = {field: self._part(rng.choice((0.1, 0.3, 0.5)), nulls=verb == "merge")}
        if not subresource and rng.random() < 0.4:
            body["metadata"] = self._metadata()
        if rng.random() < 0.1:  # what this endpoint does not write
            body["spec" if subresource else "status"] = self._part(0.2)
        return Step(manager, verb, subresource, rng.random() < 0.5, body)

    def _metadata(self) -> Tree:
        rng = self._random
        out: Tree = {}
        if rng.random() < 0.6:
            out["labels"] = self._texts()
        if rng.random() < 0.4:
            out["annotations"] = self._texts()
        if rng.random() < 0.2:
            out["finalizers"] = [f"twin.example.com/{word}" for word in self._some(_WORDS)]
        return out

    def _some(self, of: tuple[str, ...]) -> list[str]:
        return self._random.sample(of, self._random.randint(0, len(of)))

    def _texts(self) -> dict[str, str]:
        return {key: self._word() for key in self._some(_KEYS)}

    def _word(self) -> str:
        return self._random.choice(_WORDS)

    def _part(self, density: float, *, nulls: bool = False) -> Tree:
        rng = self._random
        makers: dict[str, Any] = {
            "text": self._word,
            "number": lambda: rng.randint(0, 2),
            "flag": lambda: rng.random() < 0.5,
            "either": lambda: rng.choice((1, "1", "50%")),
            "maybe": lambda: rng.choice((None, "x")),
            "granular": self._texts,
            "ofObjects": lambda: {key: self._pair() for key in self._some(_KEYS)},
            "atomicMap": self._texts,
            "struct": lambda: {**self._pair(), **({"deep": {"c": self._word()}} if rng.random() < 0.5 else {})},
            "atomicStruct": self._pair,
            "atomicList": lambda: self._some(_WORDS),
            "set": lambda: self._some(_WORDS),
            "numbers": lambda: [int(number) for number in self._some(("1", "2", "3"))],
            "items": lambda: [self._item(name) for name in self._some(_NAMES)],
            "ports": self._ports,
            "anything": lambda: self._free(3),
            "partly": lambda: {"known": self._word(), **self._free(2)},
        }
        out = {name: make() for name, make in makers.items() if rng.random() < density}
        if nulls:
            for name in list(out):
                if rng.random() < 0.3:
                    out[name] = None
        return out

    def _pair(self) -> dict[str, str]:
        return {key: self._word() for key in self._some(("a", "b"))}

    def _item(self, name: str) -> Tree:
        rng = self._random
        out: Tree = {"name": name}
        if rng.random() < 0.5:
            out["value"] = self._word()
        if rng.random() < 0.3:
            out["count"] = rng.randint(0, 2)
        if rng.random() < 0.3:
            out["tags"] = self._some(_WORDS)
        if rng.random() < 0.3:
            out["labels"] = self._texts()
        if rng.random() < 0.3:
            out["inner"] = self._pair()
        return out

    def _ports(self) -> list[Tree]:
        rng = self._random
        found: dict[tuple[int, str], Tree] = {}
        for _ in range(rng.randint(0, 3)):
            port: Tree = {"port": rng.choice((80, 443))}
            if rng.random() < 0.5:
                port["protocol"] = rng.choice(("TCP", "UDP"))
            if rng.random() < 0.5:
                port["name"] = self._word()
            found[(port["port"], port.get("protocol", "TCP"))] = port
        return list(found.values())

    def _free(self, depth: int) -> Tree:
        rng = self._random
        out: Tree = {}
        for key in self._some(_KEYS):
            sort = rng.randint(0, 4 if depth else 2)
            makers: dict[int, Callable[[], Any]] = {
                0: lambda: self._word(),
                1: lambda: rng.randint(0, 2),
                2: lambda: rng.random() < 0.5,
                3: lambda: self._free(depth - 1),
                4: lambda: [self._word(), {"k": 1}],
            }
            out[key] = makers[sort]()
        return out
