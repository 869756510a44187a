"""The encoding of a topology assignment: a list of domains in v1beta1, compressed slices in v1beta2.

A *domain* is one value per level and a number of pods. A *slice* encodes many domains column by column: each level
is `universal` (one value for all) or `individual` (the part that differs, between a common prefix and suffix), and so
are the pod counts. Where the lowest level is the host name, hosts that share a prefix up to a dash ("pool-a-node-") get
a slice of their own if that makes the whole shorter: names of a node pool then cost their last digits only, and an
assignment of 100,000 hosts fits in an object.

Both directions keep the order of the domains: pods are assigned to domains in that order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kubemachinery import codec, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import labels

# The limits of the v1beta2 schema.
SLICES_MAX: Final = 1_000
DOMAINS_PER_SLICE_MAX: Final = 100_000


class EncodedDomain(NamedTuple):
    """One value per level, from the top down, and how many pods go there."""

    values: tuple[str, ...]
    pods: int


EncodedDomains: TypeAlias = Sequence[EncodedDomain]


# --- Writing ----------------------------------------------------------------------------------------------------------


def encode(levels: Sequence[str], domains: EncodedDomains, *, by_hostname_prefix: bool = True) -> Tree:
    """The v1beta2 assignment of `domains`, which have one value for each of `levels`."""
    if not by_hostname_prefix:
        return _assignment(levels, [domains] if domains else [])
    named_hosts = len(domains) > 1 and bool(levels) and levels[-1] == labels.HOSTNAME
    runs = _runs_by_prefix(domains) if named_hosts else [domains]
    split = _assignment(levels, [chunk for run in runs for chunk in _chunks(run)])
    if len(split["slices"]) < 2 or len(domains) > DOMAINS_PER_SLICE_MAX:
        return split
    return min(split, _assignment(levels, [domains]), key=_written_length)


def _written_length(assignment: Tree) -> int:
    return len(json.dumps(assignment, separators=(",", ":")))


def _assignment(levels: Sequence[str], slices: Sequence[EncodedDomains]) -> Tree:
    return {"levels": list(levels), "slices": [_slice(len(levels), domains) for domains in slices]}


def _slice(depth: int, domains: EncodedDomains) -> Tree:
    columns = [_column([domain.values[level] for domain in domains]) for level in range(depth)]
    return {"domainCount": len(domains), "valuesPerLevel": columns, "podCounts": _pod_counts(domains)}


def _pod_counts(domains: EncodedDomains) -> Tree:
    counts = [domain.pods for domain in domains]
    return {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts}


def _column(values: list[str]) -> Tree:
    """One level's values, without what they have in common at both ends."""
    # What the least and the greatest text share at the front, all between them share too.
    prefix = _common(min(values), max(values))
    mirrored = [value[::-1] for value in values]
    suffix = _common(min(mirrored), max(mirrored))[::-1]
    if len(prefix) == max(map(len, values)):
        return {"universal": prefix}
    # "aba" and "ababa" share "aba" at both ends; the ends of one text must not overlap.
    prefix = prefix[: min(map(len, values)) - len(suffix)]
    individual: Tree = {"roots": [value[len(prefix) : len(value) - len(suffix)] for value in values]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common(first: str, second: str) -> str:
    length = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
    return first[: min(length, len(second))]


def _chunks(domains: EncodedDomains) -> Iterator[EncodedDomains]:
    for start in range(0, len(domains), DOMAINS_PER_SLICE_MAX):
        yield domains[start : start + DOMAINS_PER_SLICE_MAX]


def _runs_by_prefix(domains: EncodedDomains) -> list[EncodedDomains]:
    """Runs of neighbours with the longest common prefix of their host names that ends in a dash and recurs.

    When the longest prefixes would make more slices than an assignment may have, shorter ones are tried. If even
    the shortest make too many, all domains are one run.
    """
    prefixes = [_prefixes(domain.values[-1]) for domain in domains]
    uses = Counter(prefix for candidates in prefixes for prefix in candidates)
    # Prefixes of a shared prefix are shared, too, so the shared ones come first.
    shared = [sum(uses[prefix] > 1 for prefix in candidates) for candidates in prefixes]
    for depth in range(max(map(len, prefixes)), 0, -1):
        keys = [mine[min(count, depth) - 1] if count else "" for mine, count in zip(prefixes, shared, strict=True)]
        runs = _runs(domains, keys)
        if sum(-(-len(run) // DOMAINS_PER_SLICE_MAX) for run in runs) <= SLICES_MAX:
            return runs
    return [domains]


def _prefixes(hostname: str) -> list[str]:
    """`a-` and `a-b-` of `a-b-c`: what ends in a dash and is not the whole name."""
    return [hostname[: at + 1] for at, letter in enumerate(hostname[:-1]) if letter == "-"]


def _runs(domains: EncodedDomains, keys: Sequence[str]) -> list[EncodedDomains]:
    starts = [at for at, key in enumerate(keys) if at == 0 or key != keys[at - 1]]
    return [domains[start:end] for start, end in pairwise([*starts, len(domains)])]


# --- Reading ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def domains_of(assignment: msgspec.Struct) -> tuple[EncodedDomain, ...]:
    """The domains of an assignment that is a value; none when its parts do not add up to any.

    Several readers ask within one event, and the next event of a Workload most often has an equal assignment. Few are
    kept, because one may have 100,000 domains.
    """
    return tuple(decode(codec.to_tree(assignment)) or ())


def decode(assignment: object) -> list[EncodedDomain] | None:
    """The domains of a v1beta2 assignment in their order, or `None` when its parts do not add up to any."""
    levels = unstructured.get(assignment, "levels")
    slices = unstructured.get(assignment, "slices")
    if not isinstance(levels, list) or not isinstance(slices, list):
        return None
    domains: list[EncodedDomain] = []
    for piece in slices:
        read = _read_slice(piece, len(levels))
        if read is None:
            return None
        domains += read
    return domains


def _read_slice(piece: object, depth: int) -> list[EncodedDomain] | None:
    size = unstructured.integer(unstructured.get(piece, "domainCount"))
    columns = unstructured.get(piece, "valuesPerLevel")
    if size is None or not 0 < size <= DOMAINS_PER_SLICE_MAX or not isinstance(columns, list) or len(columns) != depth:
        return None
    read = [_read_column(column, size) for column in columns]
    counts = _read_counts(unstructured.get(piece, "podCounts"), size)
    if counts is None:
        return None
    values = [column for column in read if column is not None]
    if len(values) != depth:
        return None
    rows: Iterator[tuple[str, ...]] = zip(*values, strict=True) if values else iter([()] * size)
    return [EncodedDomain(row, count) for row, count in zip(rows, counts, strict=True)]


def _read_column(column: object, size: int) -> list[str] | None:
    universal = unstructured.get(column, "universal")
    if isinstance(universal, str):
        return [universal] * size
    roots = unstructured.get(column, "individual", "roots")
    if not isinstance(roots, list) or len(roots) != size or not all(isinstance(root, str) for root in roots):
        return None
    prefix = unstructured.text(unstructured.get(column, "individual", "prefix"))
    suffix = unstructured.text(unstructured.get(column, "individual", "suffix"))
    return [f"{prefix}{root}{suffix}" for root in roots]


def _read_counts(counts: object, size: int) -> list[int] | None:
    universal = unstructured.integer(unstructured.get(counts, "universal"))
    if universal is not None:
        return [universal] * size
    individual: Any = unstructured.get(counts, "individual")
    if not isinstance(individual, list) or len(individual) != size:
        return None
    return individual if all(unstructured.integer(count) is not None for count in individual) else None
