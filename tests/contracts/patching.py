"""Random strategic merge patches over a PodTemplate, for the twin test: every word that such a patch knows.

A PodTemplate is the one built-in kind that holds a pod's whole specification and lets all of it change.
"""

from __future__ import annotations

import random
from typing import Any, Final

Tree = dict[str, Any]

_NAMES: Final = ("a", "b", "c", "d")
_WORDS: Final = ("x", "y", "z")
_KEYS: Final = ("k1", "k2", "k3")
_PORTS: Final = (80, 443, 8080)
_FINALIZERS: Final = tuple(f"twin.example.com/{word}" for word in _WORDS)


def pod_template(name: str, seed: int) -> Tree:
    """A template to begin with."""
    maker = _Maker(random.Random(seed))
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "labels": maker.texts(), "finalizers": maker.some(_FINALIZERS)},
        "template": {
            "metadata": {"labels": maker.texts(), "annotations": maker.texts()},
            "spec": {
                "containers": [maker.container(one) for one in maker.some(_NAMES) or ["a"]],
                "volumes": [maker.volume(one) for one in maker.some(_NAMES)],
                "nodeSelector": maker.texts(),
                "tolerations": maker.tolerations(),
                "hostAliases": [maker.alias(last) for last in maker.rng.sample((1, 2, 3), 2)],
                "topologySpreadConstraints": maker.spreads(),
            },
        },
    }


def patches(seed: int, count: int) -> list[Tree]:
    """Patches to apply one after the other."""
    maker = _Maker(random.Random(seed ^ 0x5EED))
    return [maker.patch() for _ in range(count)]


class _Maker:
    """Small random pieces. The names are few, so that patches meet what is there."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def often(self, probability: float = 0.5) -> bool:
        return self.rng.random() < probability

    def some(self, of: tuple[Any, ...]) -> list[Any]:
        return self.rng.sample(of, self.rng.randint(0, len(of)))

    def texts(self) -> dict[str, str]:
        return {key: self.rng.choice(_WORDS) for key in self.some(_KEYS)}

    def texts_or_nulls(self) -> dict[str, str | None]:
        return {key: None if self.often(0.3) else self.rng.choice(_WORDS) for key in self.some(_KEYS)}

    # --- pieces of a template

    def container(self, name: str) -> Tree:
        out: Tree = {"name": name, "image": f"image-{self.rng.choice(_WORDS)}:v1"}
        if self.often():
            out["env"] = [{"name": key, "value": self.rng.choice(_WORDS)} for key in self.some(_KEYS)]
        if self.often():
            out["ports"] = [self.port(number) for number in self.some(_PORTS)]
        if self.often():
            out["args"] = self.some(_WORDS)
        if self.often():
            amounts = {name: str(self.rng.randint(1, 3)) for name in self.some(("cpu", "memory"))}
            out["resources"] = {"requests": amounts}
        return out

    def port(self, number: int) -> Tree:
        out: Tree = {"containerPort": number}
        if self.often(0.3):
            out["protocol"] = "UDP"
        return out

    def volume(self, name: str) -> Tree:
        sources: tuple[Tree, ...] = (
            {"emptyDir": {}},
            {"configMap": {"name": self.rng.choice(_WORDS)}},
            {"secret": {"secretName": self.rng.choice(_WORDS)}},
            {"hostPath": {"path": f"/{self.rng.choice(_WORDS)}"}},
        )
        return {"name": name, **self.rng.choice(sources)}

    def tolerations(self) -> list[Tree]:
        return [{"key": key, "operator": "Exists"} for key in self.some(_KEYS)]

    def alias(self, last: int) -> Tree:
        return {"ip": f"10.0.0.{last}", "hostnames": self.some(_WORDS) or ["x"]}

    def spreads(self) -> list[Tree]:
        return [
            {"maxSkew": self.rng.randint(1, 3), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            for key in self.some(_KEYS)
        ]

    # --- pieces of a patch

    def patch(self) -> Tree:
        spec: Tree = {}
        if self.often(0.7):
            self._list(spec, "containers", "name", list(_NAMES), self._container_patch)
        if self.often(0.5):
            self._list(spec, "volumes", "name", list(_NAMES), self._volume_patch)
        if self.often(0.3):
            self._list(spec, "hostAliases", "ip", [f"10.0.0.{n}" for n in (1, 2, 3)], self._alias_patch)
        if self.often(0.3):
            spec["tolerations"] = self.tolerations()
        if self.often(0.3):
            spec["nodeSelector"] = self.texts_or_nulls() if self.often(0.7) else {"$patch": "replace", "k1": "x"}
        if self.often(0.2):
            spec["securityContext"] = {"runAsUser": self.rng.randint(1, 3)} if self.often() else None
        if self.often(0.2):
            spec["topologySpreadConstraints"] = self.spreads()
        out: Tree = {"template": {"spec": spec}}
        if self.often(0.4):
            inner: Tree = {"labels": self.texts_or_nulls()} if self.often(0.7) else {"$patch": "replace", "labels": {}}
            out["template"]["metadata"] = inner
        if self.often(0.5):
            out["metadata"] = self._metadata_patch()
        return out

    def _metadata_patch(self) -> Tree:
        out: Tree = {"labels": self.texts_or_nulls()} if self.often() else {}
        if self.often():
            out["finalizers"] = self.some(_FINALIZERS)
        if self.often(0.4):
            # Whether a value that is both added and deleted stays is left to chance by the public server.
            gone = [one for one in self.some(_FINALIZERS) if one not in out.get("finalizers", ())]
            out["$deleteFromPrimitiveList/finalizers"] = gone
        if self.often(0.3):
            # The order must name what the patch adds, in the order in which it does.
            added = out.get("finalizers", [])
            out["$setElementOrder/finalizers"] = [*added, *(f for f in _FINALIZERS if f not in added)]
        return out

    def _list(self, spec: Tree, field: str, key: str, names: list[str], make: Any) -> None:
        items: list[Tree] = []
        for name in self.rng.sample(names, self.rng.randint(0, len(names))):
            if self.often(0.2):
                items.append({"$patch": "delete", key: name})
            else:
                items.append(make(name))
        if self.often(0.07):
            items.append({"$patch": "replace"})
        if self.often(0.9):
            spec[field] = items
        if self.often(0.5):
            kept = [item[key] for item in items if key in item and item.get("$patch") != "delete"]
            order = [*kept, *(name for name in names if name not in kept and self.often(0.6))]
            if field not in spec:
                self.rng.shuffle(order)
            spec[f"$setElementOrder/{field}"] = [{key: name} for name in order]

    def _container_patch(self, name: str) -> Tree:
        out: Tree = {"name": name}
        if self.often(0.6):
            out["image"] = f"image-{self.rng.choice(_WORDS)}:v2"
        if self.often(0.4):
            self._list(out, "env", "name", list(_KEYS), lambda one: {"name": one, "value": self.rng.choice(_WORDS)})
        if self.often(0.3):
            out["ports"] = [self.port(number) for number in self.some(_PORTS)]
        if self.often(0.2):
            out["args"] = self.some(_WORDS) if self.often(0.7) else None
        if self.often(0.2):
            out["resources"] = {"requests": {"cpu": None, "memory": "2"}}
        if self.often(0.1):
            out["livenessProbe"] = {"exec": {"command": ["true"]}, "initialDelaySeconds": None}
        return out

    def _volume_patch(self, name: str) -> Tree:
        volume = self.volume(name)
        if self.often(0.7):
            volume["$retainKeys"] = list(volume)
        return volume

    def _alias_patch(self, address: str) -> Tree:
        return {"ip": address, "hostnames": self.some(_WORDS)}
