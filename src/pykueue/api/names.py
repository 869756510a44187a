"""Names of the objects that the manager creates.

A name is derived from the owner, so that a second attempt, after a crash or in another replica, finds the object and
does not create another. A name that is too long is cut, and five digits of a hash over the uncut parts keep two long
names distinct.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from kubemachinery import meta

_HASH_DIGITS: Final = 5
_LONGEST: Final = meta.SUBDOMAIN_LENGTH
_LONGEST_SHORT: Final = meta.LABEL_LENGTH
_MOST_ATTEMPTS: Final = 100


def _hash(*parts: str) -> str:
    """Five digits that differ when any part does. SHA-1 for its spread, not for secrecy."""
    return hashlib.sha1("\n".join(parts).encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]


def _cut(prefix: str, digits: str, longest: int) -> str:
    return f"{prefix[: longest - 1 - _HASH_DIGITS]}-{digits}"


def workload_name(kind: str, group: str, name: str, uid: str, *, extra: str = "", short: bool = False) -> str:
    """The Workload of an owner: `job-train-1a2b3`.

    `extra` distinguishes the Workloads of one owner, such as the generations of an elastic job. `short` is the gate
    ShortWorkloadNames: names that fit in a label value.
    """
    digits = _hash(kind, group, name, uid, *([extra] if extra else []))
    return _cut(f"{kind.lower()}-{name}", digits, _LONGEST_SHORT if short else _LONGEST)


def variant_name(parent: str, uid: str, flavor: str, *, short: bool = False) -> str:
    """The variant of a Workload for one flavor: `job-train-variant-spot-1a2b3`. The hash of the parent's name is
    replaced by one over the whole name."""
    base = parent.rpartition("-")[0] or parent
    digits = _hash("Workload", "kueue.x-k8s.io", parent, uid, flavor)
    return _cut(f"{base}-variant-{flavor}", digits, _LONGEST_SHORT if short else _LONGEST)


def _limited(name: str) -> str:
    """The name if it leaves space for a hash, else cut, with a hash over all of it."""
    longest = _LONGEST - 1 - _HASH_DIGITS
    return name if len(name) <= longest else _cut(name, _hash(name), _LONGEST)


def provisioning_request_name(workload: str, check: str, attempt: int) -> str:
    """The ProvisioningRequest of one attempt of one check of a Workload."""
    return _limited(f"{workload}-{check}-{attempt}")


def provisioning_request_attempt(name: str, workload: str, check: str) -> int | None:
    """Which attempt of this check a ProvisioningRequest is; None when it belongs to another."""
    found = re.fullmatch(rf"{re.escape(f'{workload}-{check}-')}([0-9]{{1,9}})", name)
    if found:
        return int(found[1])
    # In a name that was cut, only the hash depends on the attempt.
    attempts = range(1, _MOST_ATTEMPTS) if len(name) == _LONGEST else ()
    return next((n for n in attempts if provisioning_request_name(workload, check, n) == name), None)


def provisioning_template_name(request: str, pod_set: str) -> str:
    """The PodTemplate of one pod set of a ProvisioningRequest."""
    return _limited(f"ppt-{request}-{pod_set}")
