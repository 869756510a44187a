"""Content negotiation: the representation that a client's Accept header asks for."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from kubemachinery import status

JSON: Final = "application/json"
YAML: Final = "application/yaml"

_PARTIAL: Final = frozenset({"PartialObjectMetadata", "PartialObjectMetadataList"})


class Representation(msgspec.Struct, frozen=True):
    """`shape` is object, partial or table; `api_version` is that of the Table or of the partial metadata."""

    shape: str = "object"
    api_version: str = "meta.k8s.io/v1"
    yaml: bool = False

    @property
    def content_type(self) -> str:
        return YAML if self.yaml else JSON


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Representation:
    """Return the first representation in an Accept header that is supported; raise 406 when there is none."""
    if not accept.strip():
        return Representation()
    for offer in accept.split(","):
        kind, *rest = (part.strip() for part in offer.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        found = _offered(kind.lower(), parameters)
        if found is not None:
            return found
    raise status.not_acceptable()


def _offered(kind: str, parameters: dict[str, str]) -> Representation | None:
    if kind not in (JSON, YAML, "*/*", "application/*"):
        return None
    yaml = kind == YAML
    wanted = parameters.get("as", "")
    if not wanted:
        return Representation(yaml=yaml)
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
        return None
    api_version = f"meta.k8s.io/{parameters['v']}"
    if wanted == "Table":
        return Representation("table", api_version, yaml)
    if wanted in _PARTIAL:
        return Representation("partial", api_version, yaml)
    return None
