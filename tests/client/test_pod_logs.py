"""Every line of a log once and in order, however often the way to it breaks."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from kubemachinery import codec
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines
from pykueue.api import kube
from pykueue.client import pod_logs


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_LOOK_SECONDS", 0.0)


LOST = errors.Unanswered("lost", applied=False)
NOT_YET = errors.ApiError(400, "BadRequest", "container main has not started yet")


@dataclass
class Server:
    """Serves a log from the second of `sinceTime` on, as kubelets do. Each answer ends
    after so many bytes, as if nothing had happened, or with an error."""

    log: list[bytes]
    answers: list[int | Exception | tuple[int, Exception]]
    asked: list[dict[str, str]] = field(default_factory=list)
    stamps: bool = True

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        self.asked.append(dict(call.query))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        length, trouble = answer if isinstance(answer, tuple) else (answer, None)
        since = self.asked[-1].get("sinceTime", "")[:19].encode()
        there = b"".join(line for line in self.log if line[:19] >= since)[:length]
        yield self._lines(there, trouble)

    async def _lines(self, there: bytes, trouble: Exception | None) -> AsyncIterator[bytes]:
        for line in there.splitlines(keepends=True):
            yield line if self.stamps else line.partition(b" ")[2]
        if trouble is not None:
            raise trouble

    async def send(self, call: ApiRequest) -> ApiResponse:
        raise NotImplementedError

    async def close(self) -> None: ...


def log_line(second: int, fraction: int, text: str) -> bytes:
    return f"2026-01-01T10:00:{second:02}.{fraction:06}Z {text}".encode()


LOG = [
    log_line(1, 5, "a\n"),
    log_line(1, 7, "b\n"),
    log_line(1, 7, "b\n"),
    log_line(1, 7, "c\n"),
    log_line(2, 0, "d\n"),
    log_line(2, 0, "end"),
]
ONE = len(LOG[0])
ALL = len(b"".join(LOG))


def pod(**state: object) -> kube.Pod:
    spec = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
    status = {"containerStatuses": [{"name": "main", "restartCount": 0, "state": state}]}
    return codec.from_tree({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec, "status": status}, kube.Pod)


async def followed(
    server: Server, *, is_over: Callable[[], bool] = lambda: False, tail: int | None = None, gone: bool = False
) -> list[str]:
    """The lines that were received; the container runs as long as more than one answer is left."""
    received: list[bytes] = []
    client, options = ApiClient(server, random.Random(1)), pod_logs.PodLogOptions(follow=True, tail=tail)

    async def look() -> kube.Pod | None:
        return None if gone else pod(running={}) if len(server.answers) > 1 else pod(terminated={"exitCode": 0})

    await pod_logs.PodLogReader(client, pod(running={}), options, lambda line: received.append(line.text)).follow(
        look, is_over
    )
    return [text.decode() for text in received]


WHOLE = ["a\n", "b\n", "b\n", "c\n", "d\n", "end"]


@pytest.mark.parametrize("trouble", [None, LOST], ids=["ends", "breaks"])
async def test_a_stream_that_stops_anywhere_is_taken_up_after_the_last_line(trouble: Exception | None) -> None:
    for cut in range(ALL + 1):
        server = Server(LOG, [(cut, trouble) if trouble is not None else cut, ALL, ALL])
        assert await followed(server) == WHOLE, cut
        assert "sinceTime" not in server.asked[0]
        assert ("sinceTime" in server.asked[1]) is (cut >= ONE)


@pytest.mark.parametrize("trouble", [LOST, NOT_YET, errors.NotFound(404, "NotFound", "no runner yet")])
async def test_a_server_that_comes_back_and_has_no_logs_yet_is_asked_again(trouble: Exception) -> None:
    assert await followed(Server(LOG, [ONE, trouble, trouble, ALL, ALL])) == WHOLE
    assert await followed(Server(LOG, [ONE, trouble, ALL]), is_over=lambda: True) == WHOLE, "also when all is over"


async def test_a_log_that_never_comes_back_is_an_error_in_the_end() -> None:
    with pytest.raises(errors.ApiError, match="has not started yet"):
        await followed(Server(LOG, [ONE, *[NOT_YET] * 99]), is_over=lambda: True)


async def test_what_is_refused_at_first_is_refused_for_good() -> None:
    with pytest.raises(errors.ApiError, match="container main has not started yet"):
        await followed(Server(LOG, [NOT_YET, ALL, ALL]))
    no_logs = errors.NotFound(404, "NotFound", "")
    assert await followed(Server(LOG, [no_logs, no_logs])) == []


async def test_lines_are_shown_though_the_clock_of_their_node_is_set_back() -> None:
    log = [log_line(9, 0, "a\n"), log_line(1, 0, "b\n"), log_line(1, 1, "c\n")]
    size = len(b"".join(log))
    assert await followed(Server(log, [size, size])) == ["a\n", "b\n", "c\n"]


async def test_logs_of_a_deleted_pod_do_not_wait() -> None:
    assert await followed(Server(LOG, [ONE]), gone=True) == ["a\n"]


async def test_following_the_tail_returns_all_later_lines() -> None:
    """Though more lines were written in the same second before it."""
    for there in range(2, len(LOG)):
        server = Server(LOG, [len(b"".join(LOG[:there])), ALL, ALL])
        assert await followed(server, tail=2) == WHOLE[there - 2 :]
        assert "follow" not in server.asked[0]


async def test_lines_without_timestamps_are_shown_unchanged() -> None:
    server = Server([log_line(1, 0, "2026 was a year\n")], [ALL], stamps=False)
    assert await followed(server, is_over=lambda: True, gone=True) == ["2026 was a year\n"]


@pytest.mark.parametrize(
    ("state", "policy", "finished"),
    [
        ({"running": {}}, "Never", False),
        ({"terminated": {"exitCode": 1}}, "Never", True),
        ({"terminated": {"exitCode": 1}}, "OnFailure", False),
        ({"terminated": {"exitCode": 0}}, "OnFailure", True),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "OnFailure", False),
    ],
)
def test_log_continues_after_a_container_restart(state: dict[str, object], policy: str, finished: bool) -> None:
    spec = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": policy}
    status = {"containerStatuses": [{"name": "main", "restartCount": 0, "state": state}]}
    made = codec.from_tree({"metadata": {"name": "p"}, "spec": spec, "status": status}, kube.Pod)
    assert pod_logs.has_finished(made, "") is finished
