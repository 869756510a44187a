"""Wrong arguments of the Python client are refused with one sentence, before a request is sent."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines
from kubemachinery.errors import UsageError
from pykueue import AsyncClient

Call = Callable[[Any], Coroutine[Any, Any, object]]


class NoServer:
    """A server that must not be called."""

    async def send(self, call: ApiRequest) -> ApiResponse:
        raise AssertionError(call)

    def stream(self, call: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        raise AssertionError(call)

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda client: client.status(5), "job must be the name of a job, not 5"),
        (lambda client: client.logs(None), "job must be the name of a job, not None"),
        (lambda client: client.cancel(["a"]), "job must be the name of a job, not ['a']"),
        (lambda client: client.explain(5), "job must be the name of a job, not 5"),
        (lambda client: client.forecast(5), "job must be the name of a job, not 5"),
        (lambda client: client.wait(5), "job must be the name of a job, not 5"),
        (lambda client: client.wait("a", timeout_seconds="1"), "timeout_seconds must be a number of seconds, not '1'"),
        (lambda client: client.wait("a", timeout_seconds=float("nan")), ("timeout_seconds must be a number of seconds, "
         "not nan")),
        (lambda client: client.wait("a", timeout_seconds=True), "timeout_seconds must be a number of seconds, not True"),
        (lambda client: client.submit(["a"], environment=["a"]), ("environment must map names to values, such as "
         "{'LEVEL': 'debug'}, not ['a']")),
        (lambda client: client.submit(["a"], parallelism=0), "parallelism must be a whole number of at least 1, not 0"),
        (lambda client: client.submit(["a"], gpus=1.5), "gpus must be a whole number of at least 0, not 1.5"),
        (lambda client: client.submit(["a"], retries=True), "retries must be a whole number of at least 0, not True"),
        (lambda client: client.submit(["a"], time_limit_seconds=0), ("time_limit_seconds must be a whole number of at "
         "least 1, not 0")),
        (lambda client: client.submit(["a"], expected_seconds="1h"), ("expected_seconds must be a whole number of at "
         "least 1, not '1h'")),
        (lambda client: client.whatif("a"), "an object must be a mapping, as of a manifest, not 'a'"),
        (lambda client: client.history(since=5), "since must be a text such as 'monday' or '-30d', or a datetime, not 5"),
        (lambda client: client.history(user=5), "user must be a text, not 5"),
        (lambda client: client.history(states="Running"), "states must be a list of texts, not 'Running'"),
        (lambda client: client.history(states=[5]), "states must be a text, not 5"),
        (lambda client: client.history(states=["Late"]), ("state Late: must be one of Waiting, Running, Succeeded, Failed, "
         "Cancelled, Replaced, Unknown")),
        (lambda client: client.history(larger_than="cpu=5"), ("larger_than must map resources to quantities, such as "
         "{'cpu': 4}, not 'cpu=5'")),
    ],
)  # fmt: skip
async def test_wrong_argument_is_refused_in_one_sentence(call: Call, sentence: str) -> None:
    client = AsyncClient(api_client=ApiClient(NoServer(), random.Random(1)))
    with pytest.raises(UsageError) as caught:
        await call(client)
    assert str(caught.value) == sentence
