"""The scale subresource: desired and current replicas of an object of any kind, as a Scale.

A CRD names the paths of these numbers in its objects. A write of a Scale writes one field of the object behind it
and owns that field. The kind Scale itself (`autoscaling/v1`) has no other endpoint: no group of that name is
served.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kubemachinery import selectors, status, strategic_merge
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.registry.strategy import Resource, ScalePaths, ServedColumn, Tree

NAME: Final = "scale"
_SCHEMA: Final = {
    "type": "object",
    "description": "How many replicas an object wants and has.",
    "properties": {
        "spec": {
            "type": "object",
            "description": "What is wanted.",
            "properties": {"replicas": {"type": "integer", "format": "int32", "description": "How many are wanted."}},
        },
        "status": {
            "type": "object",
            "description": "What there is.",
            "required": ["replicas"],
            "properties": {
                "replicas": {"type": "integer", "format": "int32", "description": "How many there are."},
                "selector": {"type": "string", "description": "The label selector by which they are found."},
            },
        },
    },
}
KIND: Final = Resource(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    public_name="io.k8s.api.autoscaling.v1.Scale",
    schema=lambda: _SCHEMA,
    columns=(
        ServedColumn(name="Name", path=".metadata.name", format="name"),
        ServedColumn(name="Desired", path=".spec.replicas", type="integer"),
        ServedColumn(name="Available", path=".status.replicas", type="integer"),
        ServedColumn(name="Age", path=".metadata.creationTimestamp", type="date"),
    ),
)
# As a built-in kind shows it, which understands one sort of patch more.
TYPED: Final = replace(KIND, strategic=lambda tree, patch: strategic_merge.merge(tree, patch, _SCHEMA))
_SHOWN_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_REPLICAS_MAX: Final = 2**31 - 1

# Where each number may be: (key in the CRD, whether it is required, below which parts of an object).
_PATHS: Final = (
    ("specReplicasPath", True, (".spec",)),
    ("statusReplicasPath", True, (".status",)),
    ("labelSelectorPath", False, (".spec", ".status")),
)


def scaling(row: Tree) -> ScalePaths:
    """Parse the `subresources.scale` of a CRD version, which `check` has validated."""
    return ScalePaths(*(tuple((row.get(key) or "").split(".")[1:]) for key, _, _ in _PATHS))


def refuse_missing_replicas(where: ScalePaths, tree: Tree) -> None:
    """Raise where an object has no desired replicas: it can be scaled, but its Scale cannot be read."""
    if not _is_count(_at(tree, where.wanted)):
        raise status.internal(f'the spec replicas field "{_spelt(where.wanted)}" does not exist')


def shown(where: ScalePaths, tree: Tree) -> Tree:
    """Return the Scale of an object."""
    wanted, present, selector = (_at(tree, path) for path in (where.wanted, where.present, where.selector))
    found: Tree = {"replicas": present if _is_count(present) else 0}
    if isinstance(selector, dict):
        selector = selectors.spelt(selector)  # of a built-in kind, which has it in parts
    if where.selector and isinstance(selector, str) and selector:
        found["selector"] = selector
    details = tree["metadata"]
    return {
        "kind": KIND.kind,
        "apiVersion": KIND.api_version,
        "metadata": {key: details[key] for key in _SHOWN_METADATA if key in details},
        "spec": {"replicas": wanted} if _is_count(wanted) and wanted else {},  # none is how a Scale spells 0
        "status": found,
    }


def kind(resource: Resource) -> Resource:
    """The Scale of a kind."""
    return KIND if resource.custom else TYPED


def rescaled(where: ScalePaths, tree: Tree, scale: Tree) -> Tree:
    """Return the object with the replicas of a Scale. resourceVersion and uid of the Scale are preconditions."""
    given = scale["metadata"]
    details = {key: value for key, value in tree["metadata"].items() if key not in ("resourceVersion", "uid")}
    details |= {key: given[key] for key in ("resourceVersion", "uid") if given.get(key)}
    return {**_with(tree, where.wanted, replicas(scale)), "metadata": details}


def refuse_negative(scale: Tree, name: str) -> None:
    """A built-in kind refuses the Scale itself; a custom one the object behind it (`check_numbers`)."""
    if replicas(scale) < 0:
        wrong = FieldError("spec.replicas", ErrorType.INVALID, "must be greater than or equal to 0", replicas(scale))
        raise status.invalid(KIND.group, KIND.kind, name, [wrong])


def configuration(resource: Resource, where: ScalePaths, scale: Tree) -> Tree:
    """Return the configuration of the object that applying a Scale stands for."""
    tree: Tree = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": scale.get("metadata")}
    spec = scale.get("spec")
    if not isinstance(spec, dict) or "replicas" not in spec:
        return tree
    return _with(tree, where.wanted, replicas(scale))


def check_numbers(where: ScalePaths, tree: Tree) -> Iterator[FieldError]:
    """Yield the errors of the replica numbers of an object, whichever endpoint wrote them."""
    for path in (where.wanted, where.present):
        number = _at(tree, path)
        if _is_count(number) and number < 0:
            yield FieldError(_spelt(path), ErrorType.INVALID, "should be a non-negative integer", number)


def read(scale: Any) -> Tree:
    """Decode a Scale from a client; raise 400 for anything else."""
    if not isinstance(scale, dict):
        raise status.bad_request("the body is not an object")
    given = (scale.get("apiVersion") or KIND.api_version, scale.get("kind") or KIND.kind)
    if given != (KIND.api_version, KIND.kind):
        raise status.bad_request(
            f"the body is a {given[0]} {given[1]}, where {KIND.api_version} {KIND.kind} is expected"
        )
    return scale


def replicas(scale: Tree) -> int:
    """Return the replicas that a Scale asks for; None where they are absent."""
    spec = scale.get("spec")
    wanted = spec.get("replicas", 0) if isinstance(spec, dict) else 0
    if not _is_count(wanted) or abs(wanted) > _REPLICAS_MAX:
        raise status.bad_request(f"spec.replicas: {str(wanted)[:100]} is not a number of replicas")
    return int(wanted)


def check(row: Any, path: str) -> Iterator[FieldError]:
    """Yield the errors of the `subresources.scale` of a CRD version."""
    if not isinstance(row, dict):
        yield FieldError(path, ErrorType.TYPE_INVALID, "must be an object", row)
        return
    for key, required, roots in _PATHS:
        given = row.get(key)
        if not given:
            if required:
                yield FieldError(f"{path}.{key}", ErrorType.REQUIRED, "")
            continue
        below = isinstance(given, str) and any(given.startswith(f"{root}.") for root in roots)
        if not below or not all(given.split(".")[1:]):
            words = f"should be a json path under {' or '.join(roots)}"
            yield FieldError(f"{path}.{key}", ErrorType.INVALID, words, given)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _spelt(path: tuple[str, ...]) -> str:
    return "".join(f".{name}" for name in path)


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _with(tree: Tree, path: tuple[str, ...], value: Any) -> Tree:
    first, *rest = path
    if not rest:
        return {**tree, first: value}
    below = tree.get(first)
    return {**tree, first: _with(below if isinstance(below, dict) else {}, tuple(rest), value)}
