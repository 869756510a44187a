"""Explanations of Workloads that a manager computes, read from the documents of its dashboard.

The manager of `pykueue up` serves them on the port of the API server. An API server without them refuses the request.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable

import msgspec

from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.meta import ObjectMeta
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, registry


class _Listed(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def workloads(client: ApiClient, namespaces: Iterable[str]) -> list[ObjectMeta]:
    """The metadata of the Workloads of these namespaces; none of a namespace that the user may not list."""
    kind, found = registry.ALL.of(kueue.Workload), []
    for namespace in namespaces:
        try:
            listing = await client.list(kind, namespace)
        except errors.ApiError:
            continue
        found += [msgspec.json.decode(item, type=_Listed).metadata for item in listing.items]
    return found


async def of_workload(client: ApiClient, key: str, *, suggests: bool) -> Tree | None:
    """The explanation of a Workload, as `Explanation.tree` has it. None where no manager serves it, the Workload does
    not exist, or the user may not see what it depends on."""
    namespace, _, name = (urllib.parse.quote(part, safe="") for part in key.partition("/"))
    query = (("fresh", "true"), *((("suggestions", "true"),) if suggests else ()))
    request = ApiRequest("GET", f"/dashboard/api/workloads/{namespace}/{name}/explanation", query)
    try:
        found = msgspec.json.decode((await client.request(request)).body)
    except (errors.ApiError, msgspec.DecodeError):
        return None
    except errors.Unanswered as error:
        if error.applied is False:
            raise  # the server cannot be reached
        return None
    is_whole = isinstance(found, dict) and found.get("workload") == key and "note" not in found
    return found if is_whole else None
