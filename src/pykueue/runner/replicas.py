"""What the controllers of pods share: pods of a template, readiness, hashes of templates."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.runner import conditions

AT_ONCE_MAX: Final = 500
_PERCENT: Final = re.compile(r"([0-9]{1,9})%")
# Digits that never form a word, as in the names of Kubernetes.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


class PodsPlan(msgspec.Struct, frozen=True):
    """What to do for an object that has pods, in this order: write the status, delete pods, create pods."""

    status: Tree
    delete: tuple[Tree, ...] = ()
    create: tuple[Tree, ...] = ()
    requeue_after_seconds: float | None = None


class ReplicaView(ObjectView):
    """A pod, as far as the controller of its replicas needs it."""

    @property
    def phase(self) -> str:
        return unstructured.text(self.status.get("phase"))

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        return not self.is_over and not self.is_deleting

    @property
    def is_ready(self) -> bool:
        return conditions.find_true(self.status, "Ready") is not None

    def available_after(self, min_ready_seconds: int, now: int) -> float | None:
        """In how many seconds the pod has been ready for so long; 0 if it has; None if it is not ready."""
        found = conditions.find_true(self.status, "Ready")
        if found is None:
            return None
        since = unstructured.text(found.get("lastTransitionTime"))
        left = (meta.parse_time(since) - now) / meta.SECOND + min_ready_seconds if since else 0.0
        return max(0.0, left)


def counted(pods: Sequence[ReplicaView], spec: Mapping[str, Any], now: int) -> tuple[int, int, float | None]:
    """How many pods are ready, how many are available, and when the next one will be."""
    least = unstructured.integer(spec.get("minReadySeconds")) or 0
    waits = [wait for pod in pods if (wait := pod.available_after(least, now)) is not None]
    return len(waits), sum(wait == 0 for wait in waits), min((wait for wait in waits if wait > 0), default=None)


def pod_of(owner: ObjectView, kind: Kind, template: object, **metadata: Any) -> Tree:
    """A pod of a template, controlled by its owner. `metadata` adds to that of the template."""
    marks = unstructured.mapping(unstructured.get(template, "metadata"))
    found: Tree = {key: dict(unstructured.mapping(marks.get(key))) for key in ("labels", "annotations")}
    found["labels"] |= metadata.pop("labels", {})
    found |= {"namespace": owner.namespace, "ownerReferences": [reference(owner, kind)], **metadata}
    spec = dict(unstructured.mapping(unstructured.get(template, "spec")))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": found, "spec": spec}


def reference(owner: ObjectView, kind: Kind) -> Tree:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def template_hash(template: object) -> str:
    """Ten digits that differ when the template does."""
    data = msgspec.json.encode(template, order="deterministic")
    number = int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
    digits = []
    for _ in range(10):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def number(spec: Mapping[str, Any], name: str, default: int) -> int:
    found = unstructured.integer(spec.get(name))
    return default if found is None else found


def share(value: object, of: int, *, up: bool) -> int:
    """A number, or a percentage of `of`, rounded up or down."""
    percent = _PERCENT.fullmatch(unstructured.text(value))
    if percent:
        product = of * int(percent[1])
        return -(-product // 100) if up else product // 100
    return unstructured.integer(value) or 0
