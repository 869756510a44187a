"""Records of the history for commands that compute: of a file, or of the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kubemachinery.client import errors
from kubemachinery.errors import UsageError
from pykueue.cli.connection import Connection
from pykueue.client import job_history
from pykueue.client.job_history import HistoryRequest
from pykueue.controllers.forecast_question import PastWorkloads
from pykueue.history import documents
from pykueue.history.queries import RecordFilter
from pykueue.history.records import Seconds
from pykueue.history.store import HistoryStore

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient


def between(connection: Connection, file: Path | None, begin: Seconds, end: Seconds) -> PastWorkloads:
    """The records of a time range, in the order in which they were first recorded, and when the history begins. Refused
    if the server has no history."""
    if file is not None:
        return _of_file(file, begin, end)
    return connection.talk(lambda client, _: _of_server(client, begin, end))


def known(connection: Connection | None, file: Path | None, begin: Seconds, end: Seconds) -> PastWorkloads | None:
    """The records of a time range; None where there is no history, or the user may not read it."""
    if file is not None:
        return _of_file(file, begin, end)
    if connection is None:
        return None

    async def work(client: ApiClient, _: str) -> PastWorkloads | None:
        try:
            return await _of_server(client, begin, end)
        except (errors.ApiError, UsageError):
            return None

    return connection.talk(work)


def _of_file(file: Path, begin: Seconds, end: Seconds) -> PastWorkloads:
    store = HistoryStore(file)
    try:
        first, _ = store.ask(lambda each: each.select(RecordFilter(), limit=1))
        found, _ = store.ask(lambda each: each.select(RecordFilter(since=begin, until=end)))
    finally:
        store.close()
    return PastWorkloads(found, first[0].submitted if first else None)


async def _of_server(client: ApiClient, begin: Seconds, end: Seconds) -> PastWorkloads:
    first = [record async for record in job_history.records(client, HistoryRequest(), limit=1)]
    wanted = HistoryRequest(since=begin, until=end)
    found = [documents.record_of(each) async for each in job_history.records(client, wanted)]
    return PastWorkloads(found, documents.record_of(first[0]).submitted if first else None)
