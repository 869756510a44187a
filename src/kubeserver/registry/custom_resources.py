"""One version of a CustomResourceDefinition, as a resource that can be served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import msgspec

from kubemachinery import structural
from kubemachinery.field_errors import FieldError
from kubeserver.apply import Shape
from kubeserver.protocol.cooperative import LONG_BYTES
from kubeserver.registry import metadata, scale
from kubeserver.registry.strategy import ALL_VERBS, Resource, ResourceRules, ScalePaths, ServedColumn, Tree


def resource(spec: Tree, version: Tree, revision: int, *, leaving: bool, foreign: bool = True) -> Resource:
    """`revision` is that of the CRD; `leaving`: it is under deletion, and creations are refused; `foreign`:
    the program does not bring it itself."""
    names = spec["names"]
    schema: Tree = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    columns = version.get("additionalPrinterColumns")
    stored = next(one["name"] for one in spec["versions"] if one.get("storage"))
    declared = version.get("subresources") or {}
    scaling = scale.scaling(declared[scale.NAME]) if declared.get(scale.NAME) is not None else None
    deprecated = ""
    if version.get("deprecated"):
        message = f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
        deprecated = version.get("deprecationWarning") or message

    @cache
    def shape() -> Shape:
        return Shape.of(schema)

    return Resource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        verbs=tuple(verb for verb in ALL_VERBS if verb != "create") if leaving else ALL_VERBS,
        subresources=frozenset(name for name in ("status", scale.NAME) if declared.get(name) is not None),
        scaling=scaling,
        schema=lambda: schema,
        shape=shape,
        rules=_rules(schema, scaling),
        columns=tuple(_column(one) for one in columns) if columns else None,
        selectable=_selectable(version),
        custom=True,
        stored_version=stored,
        unconditional_update=False,
        deprecated=deprecated,
        schema_revision=revision,
        costly=foreign and _is_costly(schema),
    )


def _is_costly(schema: Tree) -> bool:
    """Whether validating a small object can take long: patterns, CEL rules, and compiling a large schema."""
    written = msgspec.json.encode(schema)
    return len(written) > LONG_BYTES or b'"pattern"' in written or b'"x-kubernetes-validations"' in written


def _rules(schema: Tree, scaling: ScalePaths | None) -> ResourceRules:
    @cache
    def compiled() -> structural.Structural:
        # Compiled when the first object comes: a server with many CRDs starts as fast as one with few.
        return _compiled(msgspec.json.encode(schema))

    def validate(new: Tree, old: Tree | None, _: str) -> Sequence[FieldError]:
        found = compiled().validate(new, old)
        return found if scaling is None else [*found, *scale.check_numbers(scaling, new)]

    return ResourceRules(
        unknown=lambda tree, old=None: compiled().unknown_fields(tree, old),
        prune=lambda tree: compiled().prune(tree),
        default=lambda tree, old=None: compiled().default(tree, old),
        validate=validate,
        warn=_finalizers_without_domain,
    )


def _finalizers_without_domain(new: Tree, old: Tree | None) -> Iterator[str]:
    """Yield warnings for finalizers without a domain, which two controllers may choose."""
    known = {*metadata.KNOWN_FINALIZERS, *((old or {}).get("metadata", {}).get("finalizers") or ())}
    for name in new["metadata"].get("finalizers") or ():
        if name not in known and "/" not in name:
            yield f'metadata.finalizers: "{name}" has no domain before a slash, and other controllers may choose it too'


@lru_cache(maxsize=32)
def _compiled(schema: bytes) -> structural.Structural:
    """Compile a schema once for all servers of a process: a simulation starts hundreds of them."""
    return structural.compile(msgspec.json.decode(schema))


def _column(row: Tree) -> ServedColumn:
    return ServedColumn(
        name=row["name"],
        path=row["jsonPath"],
        type=row.get("type", "string"),
        format=row.get("format", ""),
        description=row.get("description", ""),
        priority=row.get("priority", 0),
    )


def _selectable(version: Tree) -> dict[str, str]:
    paths = [one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()]
    return {path: path for path in paths}
