"""Related objects of jobs: read for the reconciler and the webhook, or found among the objects of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubemachinery.client.errors import NoSuchKind
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.interface import NO_RELATED, RelatedObject, RelatedObjects
from pykueue.jobs.selection import OwnerLookup


async def read(row: JobIntegration, tree: Tree, find: OwnerLookup) -> RelatedObjects:
    """The related objects of a job that exist. An object of a kind that the API server does not serve does not exist;
    any other failure is raised, because a decision without the object would be wrong."""
    found: dict[RelatedObject, Tree] = {}
    for each in row.related(tree):
        try:
            answer = await find(each.kind, each.name, each.namespace)
        except NoSuchKind:
            continue
        if answer is not None:
            found[each] = answer
    return found or NO_RELATED


def among(row: JobIntegration, tree: Tree, find: Callable[[Kind, str, str], Tree | None]) -> RelatedObjects:
    """The related objects of a job among objects that are at hand; `find` takes kind, name and namespace."""
    wanted = {each: find(each.kind, each.name, each.namespace) for each in row.related(tree)}
    found: Mapping[RelatedObject, Tree] = {each: answer for each, answer in wanted.items() if answer is not None}
    return found or NO_RELATED
