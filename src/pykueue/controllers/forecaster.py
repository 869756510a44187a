"""Start forecasts of the manager: a question becomes one message to a worker process, and the answer is kept.

An answer is kept for each scheduling scope. It is computed when it is asked for, if it is older than FRESH_SECONDS and
objects of the scope have changed, or if other Workloads are pending, deactivated or in stopped queues than in the
answer; and again in the background, for REFRESHED_SECONDS after the last question [FC8]. No decision depends on an
answer.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery.client.informer import InformerEvent
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import kueue
from pykueue.api.conditions import WorkloadCondition
from pykueue.controllers import forecast_question
from pykueue.controllers.forecast_question import ForecastAnswer, ForecastQuestion
from pykueue.controllers.forecast_worker import LENGTH
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.controllers.informers import Informers
from pykueue.history import records
from pykueue.history.budget_answers import BudgetLedger
from pykueue.history.learning import OpenRuns, RunEstimate, RunTimes
from pykueue.history.records import WorkloadRecord
from pykueue.history.store import HistoryStore, HistoryStoreError, StoredForecast, StoredScores, StoredSizeScores
from pykueue.lifecycle import states
from pykueue.projection import SchedulerCase, forecast
from pykueue.projection.calibration import (
    NO_CORRECTION,
    CalibrationWindow,
    Correction,
    ForecastScore,
    OpenForecast,
    SizeClass,
    counting_for_p90,
    size_class,
)
from pykueue.projection.forecast import StartForecast
from pykueue.state.intake import WatchedObject
from pykueue.state.world import World

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 60
# How long after a question its answer is kept up to date.
REFRESHED_SECONDS: Final = 600
# How often at most a question that does not wait for its answer begins the computation of one.
ASKED_LATER_SECONDS: Final = 5
# How long an answer may take; after that the last one is shown with its age.
TIMEOUT_SECONDS: Final = 60.0
THOROUGH: Final = 10
# Objects are encoded in parts, between which the event loop runs other work.
_PART: Final = 50
_SHOWN_MAX: Final = 50_000


class ForecastFailed(Exception):
    """The worker died, was too slow, or could not answer."""


class ForecastWorker(Protocol):
    """Computes the answer to one question."""

    async def ask(self, question: ForecastQuestion) -> ForecastAnswer: ...

    async def close(self) -> None: ...


class BudgetSource(Protocol):
    """The Budgets of a manager."""

    def user(self, workload: kueue.Workload) -> str:
        """The user that a Workload may be charged to; empty if it is not known."""

    def revisions(self) -> Iterable[tuple[str, int]]:
        """The name and generation of each Budget."""

    def copies(self, cluster_queues: Collection[str], uids: Collection[str]) -> Iterator[BudgetLedger]:
        """The Budgets that a check of these ClusterQueues asks, with accounts for a run ahead, in which the Workloads
        of `uids` end."""


WorkerOf: TypeAlias = Callable[[HistoryRecorder | None], ForecastWorker]
"""Makes the worker of a manager with this history."""


class InlineWorker:
    """Computes answers on the event loop: for tests and simulations on a virtual clock."""

    def __init__(self, history: HistoryRecorder | None = None) -> None:
        self._history = history

    async def ask(self, question: ForecastQuestion) -> ForecastAnswer:
        if self._history is None:
            return forecast_question.answer(question)
        try:
            return await self._history.ask(lambda store: forecast_question.answer(question, store))
        except HistoryStoreError:
            return forecast_question.answer(question)

    async def close(self) -> None:
        pass


class ProcessWorker:
    """Computes answers in a process of its own, which is started with the first question and after a failure."""

    def __init__(self, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, question: ForecastQuestion) -> ForecastAnswer:
        message = await _message(question)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                body = await self._exchange(message)
        except TimeoutError:
            await self.close()
            raise ForecastFailed(f"the forecast took longer than {self._timeout_seconds:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise ForecastFailed(f"the process that computes forecasts ended: {error}") from None
        except BaseException:
            await self.close()
            raise
        if not body:
            raise ForecastFailed("the forecast could not be computed; standard error of the manager has the reason")
        found: ForecastAnswer = pickle.loads(body)
        return found

    async def _exchange(self, message: bytes) -> bytes:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pykueue.controllers.forecast_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        sink.write(LENGTH.pack(len(message)) + message)
        await sink.drain()
        head = await source.readexactly(LENGTH.size)
        return await source.readexactly(LENGTH.unpack(head)[0])

    @property
    def process_id(self) -> int | None:
        """The number of the process, if there is one."""
        return self._process.pid if self._process is not None else None

    def kill(self) -> None:
        """Kill the process; the next question fails, and the one after it starts another."""
        if self._process is not None:
            self._process.kill()

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def process_worker(_: HistoryRecorder | None) -> ForecastWorker:
    """Return the worker of a manager. It opens the history itself."""
    return ProcessWorker()


async def _message(question: ForecastQuestion) -> bytes:
    """The question as a message, encoded without blocking the event loop for long."""
    chunks: list[bytes] = []
    objects = question.case.objects
    for start in range(0, len(objects), _PART):
        chunks.append(forecast_question.encode_objects(objects[start : start + _PART]))
        await asyncio.sleep(0)
    return forecast_question.encode(question, chunks)


class ScopeForecast(NamedTuple):
    """A kept answer, and why it is not a newer one; empty if nothing is wrong."""

    answer: ForecastAnswer
    warning: str = ""


class _Failure(NamedTuple):
    """A question that failed: why, and until when it is not asked again."""

    reason: str
    until: Nanoseconds


class _Facts(NamedTuple):
    """What an answer depends on: it is the same as long as they are equal. `pending` are the pending Workloads, with
    which of them are deactivated, and the queues that are stopped: an answer with others is wrong at once."""

    pending: frozenset[str]
    revisions: int


class _Shown(NamedTuple):
    """A forecast that is scored when its Workload starts [FC4]: what the runs ahead found, and the P90 that was
    shown."""

    cluster_queue: str
    waited: Nanoseconds
    found: OpenForecast
    p90: Nanoseconds

    @classmethod
    def of(cls, row: StoredForecast) -> _Shown:
        size = SizeClass(row.size) if row.size else None
        model = OpenForecast(row.made * SECOND, row.p50 * SECOND, row.p90 * SECOND, row.counts_for_p90, size)
        return cls(row.cluster_queue, row.waited * SECOND, model, row.shown_p90 * SECOND)

    def stored(self) -> StoredForecast:
        found = self.found
        made, p50, p90 = found.made // SECOND, found.p50 // SECOND, found.p90 // SECOND
        waited, shown_p90 = self.waited // SECOND, self.p90 // SECOND
        size = found.size or ""
        return StoredForecast(made, self.cluster_queue, waited, p50, p90, shown_p90, found.counts_for_p90, size)


class Coverage(NamedTuple):
    """How many forecasts were scored, and of how many the start was not later than P90."""

    scored: int = 0
    covered: int = 0

    def joined(self, later: Coverage) -> Coverage:
        return Coverage(self.scored + later.scored, self.covered + later.covered)

    @property
    def ratio(self) -> float:
        return self.covered / max(1, self.scored)


_P90Scores: TypeAlias = Sequence[tuple[int, float]]


class QueueCalibration(msgspec.Struct):
    """The scored forecasts of a ClusterQueue: their coverage, also of each size class, and the last of them."""

    coverage: Coverage = Coverage()
    sizes: dict[SizeClass, Coverage] = msgspec.field(default_factory=dict)
    window: CalibrationWindow = msgspec.field(default_factory=CalibrationWindow)

    @classmethod
    def of(cls, stored: StoredScores) -> QueueCalibration:
        sizes = {SizeClass(name): each for name, each in stored.sizes.items()}
        window = CalibrationWindow(
            [(made * SECOND, ForecastScore(p50, p90)) for made, p50, p90 in stored.scores],
            _in_nanoseconds(stored.p90_scores),
            {size: _in_nanoseconds(each.p90_scores) for size, each in sizes.items()},
        )
        coverages = {size: Coverage(each.scored, each.covered) for size, each in sizes.items()}
        return cls(Coverage(stored.scored, stored.covered), coverages, window)

    def add(self, forecast: OpenForecast, started: Nanoseconds, *, is_covered: bool) -> None:
        """Score a forecast whose Workload has started."""
        self.window.add(forecast, started)
        one = Coverage(1, int(is_covered))
        self.coverage = self.coverage.joined(one)
        if forecast.size is not None:
            self.sizes[forecast.size] = self.sizes.get(forecast.size, Coverage()).joined(one)

    def joined(self, later: QueueCalibration | None) -> QueueCalibration:
        """Both together: what was stored, and what was scored while the history could not be read."""
        if later is None:
            return self
        none = Coverage()
        return QueueCalibration(
            self.coverage.joined(later.coverage),
            {
                size: self.sizes.get(size, none).joined(later.sizes.get(size, none))
                for size in SizeClass
                if size in self.sizes or size in later.sizes
            },
            self.window.joined(later.window),
        )

    def stored(self) -> StoredScores:
        scores = ((made // SECOND, round(each.p50, 4), round(each.p90, 4)) for made, each in self.window.scores)
        of_size = self.window.size_scores
        return StoredScores(
            *self.coverage,
            tuple(scores),
            _in_seconds(self.window.p90_scores),
            {size: StoredSizeScores(*each, _in_seconds(of_size.get(size, ()))) for size, each in self.sizes.items()},
        )


def _in_nanoseconds(scores: _P90Scores) -> list[tuple[Nanoseconds, float]]:
    return [(made * SECOND, p90) for made, p90 in scores]


def _in_seconds(scores: _P90Scores) -> tuple[tuple[int, float], ...]:
    return tuple((made // SECOND, round(p90, 4)) for made, p90 in scores)


class Forecaster:
    """Answers when pending Workloads will start."""

    def __init__(
        self,
        settings: SchedulerCase,
        world: World,
        informers: Informers,
        history: HistoryRecorder | None,
        clock: Clock,
        worker: ForecastWorker,
        budgets: BudgetSource | None = None,
    ) -> None:
        self._settings = settings  # without objects
        self._world = world
        self._informers = informers
        self._history = history
        self._clock = clock
        self._worker = worker
        self._budgets = budgets
        self._kept: dict[tuple[str, ...], tuple[_Facts, ForecastAnswer]] = {}
        self._by_key: dict[tuple[str, ...], dict[str, StartForecast]] = {}  # the items of the kept answers
        self._failed: dict[tuple[str, ...], _Failure] = {}  # scopes whose last question failed
        self.revision = 0  # how many answers and failures there were
        self._asked: dict[str, Nanoseconds] = {}  # by ClusterQueue, the last question
        self._has_question = asyncio.Event()
        self._lock = asyncio.Lock()
        self._shown: OrderedDict[str, list[_Shown]] = OrderedDict()
        self.calibrations: dict[str, QueueCalibration] = {}
        self._has_loaded = False
        self._unsaved: set[str] = set()  # ClusterQueues with new scores
        self._unsaved_shown: set[str] = set()  # UIDs whose open forecasts have changed
        informers.workloads.add_handler(self._seen)

    async def close(self) -> None:
        """End the worker process."""
        await self._worker.close()

    # --- Answers ------------------------------------------------------------------------------------------------------

    def correction(self, cluster_queue: str, size: SizeClass | None) -> Correction:
        """The correction of the forecasts of a ClusterQueue and size class, after all starts until now [FC3]."""
        found = self.calibrations.get(cluster_queue)
        if found is None:
            return NO_CORRECTION
        rows = (row for rows in self._shown.values() for row in rows if row.cluster_queue == cluster_queue)
        return found.window.correction((row.found for row in rows), self._clock.now(), size)

    def kept(self, cluster_queue: str) -> ForecastAnswer | None:
        """The last answer for the scope of a ClusterQueue. Computes nothing."""
        found = self._kept.get(self._world.scope_queues(cluster_queue))
        return found[1] if found is not None else None

    def of_workload(self, key: str, cluster_queue: str) -> StartForecast | None:
        """The forecast of a Workload in the last answer. Computes nothing."""
        return self._by_key.get(self._world.scope_queues(cluster_queue), {}).get(key)

    def problem(self, cluster_queue: str) -> str:
        """Why the forecasts of a ClusterQueue are missing or outdated: the last question about its scope failed. Empty
        if it did not."""
        failure = self._failed.get(self._world.scope_queues(cluster_queue))
        return failure.reason if failure is not None else ""

    def first_p90(self, workload: kueue.Workload, within: Nanoseconds) -> Nanoseconds | None:
        """The P90 that the first forecast of a pending Workload named; None if it was not forecast while it had waited
        for no longer than `within`."""
        rows = self._shown.get(workload.metadata.uid)
        return rows[0].p90 if rows and rows[0].waited <= within else None

    def waits(self) -> Iterator[tuple[str, str, float]]:
        """Of each ClusterQueue with a kept answer: the seconds to P50 and P90 of its pending Workload of median P50."""
        for queues, (_, answer) in sorted(self._kept.items()):
            for name in queues:
                if self._world.scope_queues(name) != queues:
                    continue  # it has moved to another scope since
                found = sorted(
                    (item.p50, item.p90)
                    for item in answer.result.items
                    if item.p50 is not None and item.p90 is not None and self._cluster_queue(item.key) == name
                )
                if found:
                    p50, p90 = found[len(found) // 2]
                    yield name, "0.5", (p50 - answer.result.made) / SECOND
                    yield name, "0.9", (p90 - answer.result.made) / SECOND

    def coverage_ratios(self) -> Iterator[tuple[str, float]]:
        """Of each ClusterQueue the share of scored starts that were not later than P90."""
        for name, found in sorted(self.calibrations.items()):
            yield name, found.coverage.ratio

    def size_coverage_ratios(self) -> Iterator[tuple[str, str, float]]:
        """The same of each size class of a ClusterQueue."""
        for name, found in sorted(self.calibrations.items()):
            yield from ((name, size, coverage.ratio) for size, coverage in sorted(found.sizes.items()))

    def _workload(self, key: str) -> kueue.Workload | None:
        namespace, _, name = key.partition("/")
        return self._informers.workloads.get(name, namespace)

    def _cluster_queue(self, key: str) -> str:
        workload = self._workload(key)
        if workload is None:
            return ""
        local_queue = self._informers.local_queues.get(workload.spec.queue_name or "", workload.metadata.namespace)
        return local_queue.spec.cluster_queue or "" if local_queue is not None else ""

    def _size(self, key: str, cluster_queue: str) -> SizeClass | None:
        """The size class of a Workload in a ClusterQueue; None if it does not exist any more."""
        workload = self._workload(key)
        return None if workload is None else size_class(self._world.requested_share(workload, cluster_queue))

    async def of(self, cluster_queue: str, *, is_thorough: bool = False) -> ScopeForecast:
        """The forecasts of all pending Workloads in the scope of a ClusterQueue. Raises ForecastFailed if there is no
        answer at all."""
        self._asked[cluster_queue] = self._clock.now()
        return await self._up_to_date(cluster_queue, is_thorough=is_thorough)

    def ask_later(self, cluster_queue: str) -> None:
        """Ask for the forecasts of a ClusterQueue without waiting for them: they are computed in the background, where
        there are none yet, and kept up to date as after any other question."""
        if cluster_queue not in self._world.cluster_queues:
            return
        self._asked[cluster_queue] = self._clock.now()
        if self.kept(cluster_queue) is None:
            self._has_question.set()

    async def refresh(self) -> None:
        """Compute the answers again that were asked for not long ago and are outdated [FC8]."""
        now = self._clock.now()
        since = now - REFRESHED_SECONDS * SECOND
        self._asked = {name: at for name, at in self._asked.items() if since <= at <= now}
        for name in sorted(self._asked):
            with suppress(ForecastFailed):  # logged; the last answer stays, and other scopes have theirs
                await self._up_to_date(name)

    async def _up_to_date(self, cluster_queue: str, *, is_thorough: bool = False) -> ScopeForecast:
        # What is known does not wait for the computation of the answer for another scope.
        known = None if is_thorough else self._known(self._world.scope_queues(cluster_queue))
        if known is not None:
            return known
        async with self._lock:
            queues = self._world.scope_queues(cluster_queue)
            known = None if is_thorough else self._known(queues)
            if known is not None:
                return known
            objects = self._objects(queues)
            facts, now = self._facts_of(objects), self._clock.now()
            try:
                answer = await self._worker.ask(await self._question(objects, queues, now, is_thorough))
            except ForecastFailed as error:
                if queues not in self._failed:
                    log.warning("forecasts of ClusterQueues %s are not up to date: %s", ", ".join(queues), error)
                return self._fail(queues, str(error), now)
            except Exception:
                log.exception("the forecast of ClusterQueues %s failed", ", ".join(queues))
                reason = "the forecast could not be computed; the log of the manager has the reason"
                return self._fail(queues, reason, now)
            self._failed.pop(queues, None)
            shown = self._corrected(answer)
            self._keep(queues, facts, shown)
            self._remember(answer, shown)
            await self._save()
            return ScopeForecast(shown)

    def _known(self, queues: tuple[str, ...]) -> ScopeForecast | None:
        """What is answered without a computation: an answer that is up to date, or the last failure, for as long as
        the question took [FC13]. Raises ForecastFailed if it failed and there is no older answer."""
        before = self._kept.get(queues)
        if before is not None and not _is_outdated(before, self._facts_of(self._objects(queues)), self._clock.now()):
            return ScopeForecast(before[1])
        failure = self._failed.get(queues)
        if failure is None or self._clock.now() >= failure.until:
            return None
        if before is None:
            raise ForecastFailed(failure.reason)
        return ScopeForecast(before[1], failure.reason)

    def _fail(self, queues: tuple[str, ...], reason: str, asked: Nanoseconds) -> ScopeForecast:
        """Keep the failure of a question, and return the last answer with the reason."""
        now = self._clock.now()
        self._failed[queues] = _Failure(reason, now + (now - asked))
        self.revision += 1
        before = self._kept.get(queues)
        if before is None:
            raise ForecastFailed(reason)
        return ScopeForecast(before[1], reason)

    def _keep(self, queues: tuple[str, ...], facts: _Facts, shown: ForecastAnswer) -> None:
        """Keep an answer, and drop those of scopes that do not exist any more: a ClusterQueue may have moved to another
        cohort."""
        scopes = {self._world.scope_queues(name) for name in self._world.cluster_queues}
        for gone in [each for each in self._kept if each not in scopes]:
            del self._kept[gone], self._by_key[gone]
        self._failed = {each: failure for each, failure in self._failed.items() if each in scopes}
        self._kept[queues] = facts, shown
        self._by_key[queues] = {item.key: item for item in shown.result.items}
        self.revision += 1

    def _objects(self, queues: tuple[str, ...]) -> list[WatchedObject]:
        return [*self._shaping(), *self._workloads(queues)]

    def _facts_of(self, objects: Sequence[WatchedObject]) -> _Facts:
        return _facts(objects, self._budgets.revisions() if self._budgets is not None else ())

    def _corrected(self, answer: ForecastAnswer) -> ForecastAnswer:
        """The answer as it is shown: with corrections, and no later than planned starts [FC8]."""
        result = answer.result
        corrections: dict[tuple[str, SizeClass | None], Correction] = {}
        items: list[StartForecast] = []
        for item in result.items:
            name = self._cluster_queue(item.key)
            of_class = name, self._size(item.key, name)
            if of_class not in corrections:
                corrections[of_class] = self.correction(*of_class)
            item = forecast.corrected(item, corrections[of_class], result.made, result.horizon - result.made)
            plan = self._world.planned_start(item.key)
            if plan is not None and plan.date is not None:
                item = forecast.bounded(item, max(plan.date, result.made))
            items.append(item)
        return replace(answer, result=replace(result, items=tuple(items)))

    async def _question(
        self, objects: Sequence[WatchedObject], queues: tuple[str, ...], now: Nanoseconds, is_thorough: bool
    ) -> ForecastQuestion:
        await self._load()
        case = replace(self._settings, windows=self._world.windows.schedules).with_objects(objects).within(queues)
        estimates, lasted = await self._estimates(case, now)
        budgets: tuple[BudgetLedger, ...] = ()
        users: dict[str, str] = {}
        if self._budgets is not None:
            budgets = tuple(self._budgets.copies(queues, [each.metadata.uid for each in case.workloads()]))
            if budgets:
                users = {each.metadata.uid: self._budgets.user(each) for each in case.workloads()}
        return ForecastQuestion(
            case=case,
            budgets=budgets,
            users=users,
            now=now,
            estimates=estimates,
            lasted=lasted,
            history=self._history.path if self._history is not None else None,
            effort=forecast.EFFORT * (THOROUGH if is_thorough else 1),
        )

    async def _estimates(self, case: SchedulerCase, now: Nanoseconds) -> tuple[dict[str, RunEstimate], dict[str, int]]:
        """By UID: how long each Workload will run, and how long it has lasted in one attempt. Those that run now are
        examples, too: of at least what they have lasted [RT6]."""
        run_times = RunTimes() if self._history is None else self._history.run_times
        observed: list[WorkloadRecord] = []
        open_runs = OpenRuns(now // SECOND)
        for number, workload in enumerate(case.workloads()):
            if number % _PART == 0:
                await asyncio.sleep(0)
            record, seconds = self._observed(workload)
            observed.append(record)
            run_times.add_open(open_runs, record, seconds)
        found: dict[str, RunEstimate] = {}
        lasted: dict[str, int] = {}
        for number, record in enumerate(observed):
            if number % _PART == 0:
                await asyncio.sleep(0)
            if seconds := self._lasted(record, now):
                lasted[record.uid] = seconds
            estimate = run_times.estimate(record, open_runs)
            if estimate is not None:
                found[record.uid] = estimate
        return found, lasted

    def _lasted(self, observed: WorkloadRecord, now: Nanoseconds) -> int:
        if self._history is not None:
            return self._history.lasted_seconds(observed)
        return records.lasted_seconds(observed, now // SECOND)

    def _observed(self, workload: kueue.Workload) -> tuple[WorkloadRecord, int]:
        if self._history is not None:
            return self._history.observed(workload)
        return records.observe(None, workload, self._clock.now() // SECOND), 0

    def _shaping(self) -> Iterator[WatchedObject]:
        for informer in self._informers.scheduling:
            yield from informer.values()

    def _workloads(self, queues: tuple[str, ...]) -> Iterator[kueue.Workload]:
        """The Workloads that hold quota of these ClusterQueues, or are pending in them."""
        found: dict[str, kueue.Workload] = {}
        for name in queues:
            for _, workload in self._informers.workloads.by_index("clusterQueue", name):
                found[states.key(workload)] = workload
            for key, _ in self._informers.local_queues.by_index("clusterQueue", name):
                for _, workload in self._informers.workloads.by_index("queue", str(key)):
                    found[states.key(workload)] = workload
        return (workload for _, workload in sorted(found.items()) if not states.is_finished(workload))

    # --- Scores -------------------------------------------------------------------------------------------------------

    def _remember(self, found: ForecastAnswer, shown: ForecastAnswer) -> None:
        """Keep the first forecast of each Workload, and the first after each doubling of its waiting [FC4]."""
        made = found.result.made
        by_queue: dict[str, list[tuple[str, _Shown]]] = {}
        for item, visible in zip(found.result.items, shown.result.items, strict=True):
            workload = self._workload(item.key)
            if workload is None or item.p50 is None or item.p90 is None:
                continue
            waited = made - states.created(workload)
            rows = self._shown.get(workload.metadata.uid)
            if not rows or waited >= 2 * max(rows[-1].waited, SECOND):
                name = self._cluster_queue(item.key)
                model = OpenForecast(made, item.p50 - made, item.p90 - made, size=self._size(item.key, name))
                p90 = visible.p90 if visible.p90 is not None else found.result.horizon
                row = _Shown(name, waited, model, p90)
                by_queue.setdefault(row.cluster_queue, []).append((workload.metadata.uid, row))
        for together in by_queue.values():
            counting = counting_for_p90(len(together))
            for number, (uid, row) in enumerate(together):
                if number not in counting:
                    row = row._replace(found=replace(row.found, counts_for_p90=False))
                self._shown.setdefault(uid, []).append(row)
                self._unsaved_shown.add(uid)
        while len(self._shown) > _SHOWN_MAX:
            self._unsaved_shown.add(self._shown.popitem(last=False)[0])

    def _seen(self, change: InformerEvent[kueue.Workload]) -> None:
        workload = change.new
        if workload is None:
            if change.old is not None:
                self._close(change.old.metadata.uid, None)
        elif workload.metadata.uid in self._shown and states.is_admitted(workload):
            self._close(workload.metadata.uid, workload)

    def _close(self, uid: str, started: kueue.Workload | None) -> None:
        """End the open forecasts of a Workload that has started, or was deleted."""
        rows = self._shown.pop(uid, None)
        if rows is None:
            return
        self._unsaved_shown.add(uid)
        if started is not None:
            at = states.since(started, WorkloadCondition.ADMITTED) or self._clock.now()
            for row in rows:
                self._score(row, at)

    def _score(self, row: _Shown, started: Nanoseconds) -> None:
        """Compare a forecast with the start, for the next ones of its ClusterQueue [FC3]."""
        found = self.calibrations.setdefault(row.cluster_queue, QueueCalibration())
        found.add(row.found, started, is_covered=started <= row.p90)
        self._unsaved.add(row.cluster_queue)

    async def _load(self) -> None:
        """Read the stored scores and open forecasts, once: before any forecast can be scored or made."""
        if self._has_loaded or self._history is None:
            return
        try:
            scores = await self._history.ask(lambda store: store.forecast_scores())
            shown = await self._history.ask(lambda store: store.open_forecasts())
        except HistoryStoreError:
            return  # tried again with the next question
        self._resume(scores, shown)

    def _resume(self, scores: Mapping[str, StoredScores], shown: Mapping[str, Sequence[StoredForecast]]) -> None:
        """Go on from what an earlier manager stored."""
        if self._has_loaded:
            return  # by another task, while this one read
        self._has_loaded = True
        for name, stored in scores.items():
            self.calibrations[name] = QueueCalibration.of(stored).joined(self.calibrations.get(name))
        present = {each.metadata.uid: each for each in self._informers.workloads.unordered()}
        for uid, rows in shown.items():
            # A forecast of this manager is later than the stored ones, so these come first [FC4], [LG7].
            self._shown[uid] = [*map(_Shown.of, rows), *self._shown.get(uid, ())]
            # It may have started, or be gone, since the manager that forecast it ended.
            workload = present.get(uid)
            if workload is None or states.is_admitted(workload):
                self._close(uid, workload)

    async def _save(self) -> None:
        """Store the scores and open forecasts that are new, so that they survive a restart."""
        if not self._has_loaded or self._history is None or not (self._unsaved or self._unsaved_shown):
            return
        names, self._unsaved = sorted(self._unsaved), set()
        uids, self._unsaved_shown = sorted(self._unsaved_shown), set()
        scores = {name: self.calibrations[name].stored() for name in names}
        shown = {uid: [row.stored() for row in self._shown.get(uid, ())] for uid in uids}

        def save(store: HistoryStore) -> None:
            for name, values in scores.items():
                store.save_forecast_scores(name, values)
            store.save_open_forecasts(shown)

        try:
            await self._history.ask(save)
        except HistoryStoreError:
            self._unsaved.update(names)
            self._unsaved_shown.update(uids)

    async def run(self) -> None:
        """Store scores, and keep answers up to date, until cancelled."""
        try:
            if self._history is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FRESH_SECONDS):
                        await self._history.opened.wait()
            while True:
                await self._load()
                with suppress(TimeoutError):
                    async with asyncio.timeout(FRESH_SECONDS - ASKED_LATER_SECONDS):
                        await self._has_question.wait()
                self._has_question.clear()
                await self._save()
                await self.refresh()
                await asyncio.sleep(ASKED_LATER_SECONDS)
        finally:
            await self.close()


def _facts(objects: Sequence[WatchedObject], budgets: Iterable[tuple[str, int]]) -> _Facts:
    revisions = hash((*(thing.metadata.resource_version for thing in objects), *budgets))
    return _Facts(frozenset(_pending(objects)), revisions)


def _pending(objects: Iterable[WatchedObject]) -> Iterator[str]:
    for thing in objects:
        if isinstance(thing, kueue.Workload):
            if not states.is_admitted(thing) and not states.is_finished(thing):
                yield states.key(thing) if states.is_active(thing) else f"{states.key(thing)} is deactivated"
        elif isinstance(thing, kueue.ClusterQueue | kueue.LocalQueue) and _is_stopped(thing):
            yield f"{type(thing).__name__} {thing.metadata.namespace}/{thing.metadata.name} is stopped"


def _is_stopped(queue: kueue.ClusterQueue | kueue.LocalQueue) -> bool:
    return queue.spec.stop_policy != kueue.StopPolicy.NONE


def _is_outdated(before: tuple[_Facts, ForecastAnswer], facts: _Facts, now: Nanoseconds) -> bool:
    if before[0].pending != facts.pending:
        return True
    # An answer of a clock that was put back since is of no use [CS6].
    return before[0] != facts and not 0 <= now - before[1].result.made < FRESH_SECONDS * SECOND
