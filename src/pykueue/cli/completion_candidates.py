"""Completion candidates: names of objects and of kubeconfig entries. Without an answer there are none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from pykueue import paths
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.errors import PykueueError

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from kubemachinery.client.client_config import ClientConfig

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]

# A shell blocks while it completes.
_PATIENCE: Final = "2s"


def entries(section: str) -> Complete:
    """Contexts, clusters or users of the kubeconfig."""

    def names(context: click.Context) -> Iterable[str]:
        from kubemachinery.client import client_config

        files = client_config.files(os.environ, context.params.get("kubeconfig") or "", fallback=paths.kubeconfig())
        return client_config.entries(files)[0][section]

    return _offered(names)


def objects(kind: str) -> Complete:
    """Names of objects of a kind, in the namespace of the command line."""

    def names(context: click.Context) -> Iterable[str]:
        import msgspec

        from kubemachinery.client.client import METADATA_OF_ALL
        from pykueue.api import registry

        row = next(row for row in registry.ALL if row.singular == kind)

        async def work(client: ApiClient, target: ClientConfig) -> list[str]:
            where = (context.params.get("namespace") or target.namespace) if row.namespaced else ""
            found = await client.list(row, where, accept=METADATA_OF_ALL)
            return [msgspec.json.decode(item)["metadata"]["name"] for item in found.items]

        return ConnectionFlags.of(context.params, patience=_PATIENCE).run(work)

    return _offered(names)


def jobs() -> Complete:
    """Jobs of every kind, as commands take them: NAME for a Job, TYPE/NAME for one of another kind that has a
    Workload."""

    def names(context: click.Context) -> Iterable[str]:
        import msgspec

        from kubemachinery import codec
        from kubemachinery.client.client import METADATA_OF_ALL
        from pykueue.api import kueue, workload_owners
        from pykueue.client.queued_job import JOBS, WORKLOADS

        async def work(client: ApiClient, target: ClientConfig) -> list[str]:
            where = context.params.get("namespace") or target.namespace
            found = await client.list(JOBS, where, accept=METADATA_OF_ALL)
            own = [msgspec.json.decode(item)["metadata"]["name"] for item in found.items]
            queued = [codec.decode(item, kueue.Workload) for item in (await client.list(WORKLOADS, where)).items]
            owners = [owner for each in queued if (owner := workload_owners.job_of(each)) is not None]
            others = [f"{owner.kind.lower()}/{owner.name}" for owner in owners if owner.kind != JOBS.kind]
            return [*own, *dict.fromkeys(others)]

        return ConnectionFlags.of(context.params, patience=_PATIENCE).run(work)

    return _offered(names)


def _offered(names: Callable[[click.Context], Iterable[str]]) -> Complete:
    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        taken = context.params.get(parameter.name or "") if parameter.nargs == -1 else ()
        try:
            return [name for name in names(context) if name.startswith(begun) and name not in (taken or ())]
        except PykueueError:
            return []

    return complete
