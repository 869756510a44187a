"""Leader election: one leader among several candidates, by a Lease.

The Lease is written only with its resourceVersion as a precondition, so of two concurrent writers one gets a conflict.
Followers measure by their own monotonic clock how long the Lease has not changed, never by the times written in it:
clocks differ. A leader that cannot renew stops after `renew_deadline_seconds`, which is less than
`lease_duration_seconds`, so it has stopped before another candidate may start. `may_write` is the fence around the
leader's writes; `transport` checks it immediately before sending.

A request that was sent in time may still arrive late. Therefore the leader writes reservations under a field manager
that contains its term, and a webhook that reviews the write can find out with `is_superseded` that another candidate
leads by now.

With a connection of its own, the elector renews the Lease from a thread of its own: work on the event loop cannot make
a healthy leader lose the Lease. The thread writes two fields, the time of the last renewal and whether the Lease is
lost. `may_write` reads both, so the fence closes even while the event loop is busy. An event loop that does not run for
`STALL_SECONDS` is not healthy: the thread then stops renewing, and another candidate takes over.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import AlreadyExists, Conflict, KubeError
from kubemachinery.clock import Clock
from kubemachinery.errors import ProgramError
from kubemachinery.kinds import Kind, Scope, Version

log = logging.getLogger(__name__)

LEASES: Final = Kind(
    group="coordination.k8s.io",
    kind="Lease",
    plural="leases",
    scope=Scope.NAMESPACED,
    versions=(Version("v1", storage=True),),
)


_FIELD_MANAGER_PREFIX: Final = "pykueue-manager-term-"
# Longer than any legitimate work on the event loop, and an acceptable time for a cluster without a leader.
STALL_SECONDS: Final = 60.0


class LeaderElectionConfig(msgspec.Struct, frozen=True):
    """Name and namespace of the Lease, and the durations."""

    name: str
    namespace: str
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0


class LeaderElector:
    """A candidate. `run` returns when it has led and no longer does."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        config: LeaderElectionConfig,
        identity: str,
        *,
        own_connection: Callable[[], ApiClient] | None = None,
    ) -> None:
        """`own_connection` creates the client that renews the Lease in a thread of its own; it is called, used and
        closed in that thread. Without it, `client` renews on the event loop, as on one with virtual time."""
        self._client = client
        self._own_connection = own_connection
        self._clock = clock
        self._config = config
        self._identity = identity
        self._seen: tuple[str, str] = ("", "")  # holder and resourceVersion as last read
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._newest_term = 0  # as last read, of any holder
        self._is_lost = False
        self._loop_ran_at = 0.0  # when the event loop last ran, read by the thread that renews
        self.term = 0
        self.is_leader = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to be elected, then run `lead` until it ends or the lease is lost; then release the Lease."""
        lease = await self._acquire()
        self._is_lost, self.is_leader = False, True
        log.info("leading as %s, term %d", self._identity, self.term)
        leading = asyncio.ensure_future(lead())
        own_connection = self._own_connection
        renewal = (
            self._renew(self._client, lease) if own_connection is None else self._renew_in_thread(own_connection, lease)
        )
        renewing = asyncio.ensure_future(renewal)
        try:
            await asyncio.wait({leading, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_leader = False
            for task in (leading, renewing):
                task.cancel()
            results = await asyncio.gather(leading, renewing, return_exceptions=True)
            await self._release()
        for result in results:
            if isinstance(result, Exception):
                raise result

    def may_write(self) -> bool:
        """Whether this leader holds a valid lease by its own clock. Checked before every write of a reservation."""
        is_recent = self._loop_time() - self._renewed_at < self._config.renew_deadline_seconds
        return self.is_leader and not self._is_lost and is_recent

    def field_manager(self) -> str:
        """The field manager of this leader's writes, which contains its term."""
        return f"{_FIELD_MANAGER_PREFIX}{self.term}"

    def is_superseded(self, field_manager: str) -> bool:
        """Whether a write under this field manager comes from a leader that no longer leads, as far as this candidate
        has seen: the leader checks its own lease, a follower the Lease as last read. Other names are no leader's."""
        term = field_manager.removeprefix(_FIELD_MANAGER_PREFIX)
        if term == field_manager or not term.isdecimal():
            return False
        if self.is_leader and int(term) == self.term:
            return not self.may_write()
        return int(term) < self._newest_term

    async def _acquire(self) -> dict[str, Any]:
        while True:
            try:
                if (lease := await self._try_acquire()) is not None:
                    return lease
            except (Conflict, AlreadyExists):
                log.debug("another candidate wrote the lease first")
            except KubeError as error:
                log.warning("lease %s cannot be acquired yet: %s", self._config.name, error)
            await asyncio.sleep(self._config.retry_period_seconds)

    async def _try_acquire(self) -> dict[str, Any] | None:
        requested_at = self._loop_time()
        lease = await self._client.find(LEASES, self._config.name, self._config.namespace)
        if lease is None:
            taken = await self._client.create(LEASES, self._held_lease({"metadata": self._metadata()}, new=True))
        else:
            spec = lease.get("spec") or {}
            self._newest_term = int(spec.get("leaseTransitions") or 0)
            holder = str(spec.get("holderIdentity") or "")
            seen = (holder, lease["metadata"]["resourceVersion"])
            if seen != self._seen:
                self._seen, self._seen_at = seen, requested_at
            duration = float(spec.get("leaseDurationSeconds") or self._config.lease_duration_seconds)
            if holder and holder != self._identity and requested_at - self._seen_at < duration:
                return None
            taken = await self._client.replace(LEASES, self._held_lease(lease, new=holder != self._identity))
        self._renewed_at = requested_at
        self.term = self._newest_term = int(taken["spec"]["leaseTransitions"])
        return taken

    async def _renew_in_thread(self, own_connection: Callable[[], ApiClient], lease: dict[str, Any]) -> None:
        """Renew as `_renew` does, in a thread with an event loop and a connection of its own."""

        async def renew() -> None:
            client = own_connection()
            try:
                await self._renew(client, lease, is_healthy=self._is_loop_running)
            finally:
                self._is_lost = True
                await client.close()

        async def beat() -> None:
            while True:
                self._loop_ran_at = self._loop_time()
                await asyncio.sleep(min(self._config.retry_period_seconds, STALL_SECONDS / 4))

        self._loop_ran_at = self._loop_time()
        heartbeat = asyncio.ensure_future(beat())
        try:
            await _in_thread(renew, "lease")
        finally:
            heartbeat.cancel()

    def _is_loop_running(self) -> bool:
        return self._loop_time() - self._loop_ran_at < STALL_SECONDS

    async def _renew(
        self, client: ApiClient, lease: dict[str, Any], is_healthy: Callable[[], bool] = lambda: True
    ) -> None:
        """Renew the Lease until that fails for longer than the deadline, or the event loop is not healthy."""
        while True:
            await asyncio.sleep(self._config.retry_period_seconds)
            left = self._config.renew_deadline_seconds - (self._loop_time() - self._renewed_at)
            if left <= 0:
                log.error("lease was not renewed before the deadline: no longer leading")
                return
            if not is_healthy():
                log.error("the event loop has not run for %g s: the lease is not renewed", STALL_SECONDS)
                return
            requested_at = self._loop_time()
            try:
                async with asyncio.timeout(left):
                    lease = await client.replace(LEASES, self._held_lease(lease, new=False))
                self._renewed_at = requested_at
            except Conflict:
                found = await self._reread(client)
                if found is not None and (found.get("spec") or {}).get("holderIdentity") == self._identity:
                    lease = found  # our own write, with a lost response
                elif found is not None:
                    log.error("lease is held by %s: no longer leading", (found.get("spec") or {}).get("holderIdentity"))
                    return
            except (ProgramError, TimeoutError) as error:
                log.warning(
                    "lease was not renewed: %s", str(error) or "the API server did not answer before the deadline"
                )

    async def _reread(self, client: ApiClient) -> dict[str, Any] | None:
        try:
            return await client.find(LEASES, self._config.name, self._config.namespace)
        except KubeError:
            return None

    async def _release(self) -> None:
        """Let the next candidate start at once. Best effort: an old lease expires by itself."""
        try:
            async with asyncio.timeout(2.0):
                lease = await self._client.find(LEASES, self._config.name, self._config.namespace)
                if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._client.replace(LEASES, lease)
        except (KubeError, TimeoutError) as error:
            log.info("lease was not released: %s", error)

    def _held_lease(self, lease: dict[str, Any], *, new: bool) -> dict[str, Any]:
        now = meta.format_micro_time(self._clock.now())
        before = lease.get("spec") or {}
        # A Lease that was deleted and created again must not restart with terms that have been used.
        terms = max(int(before.get("leaseTransitions") or 0), self._newest_term)
        spec = {
            **before,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(int(self._config.lease_duration_seconds), 1),
            "renewTime": now,
            "acquireTime": now if new else before.get("acquireTime", now),
            "leaseTransitions": terms + (1 if new else 0),
        }
        return {**lease, "apiVersion": LEASES.api_version, "kind": LEASES.kind, "spec": spec}

    def _metadata(self) -> dict[str, str]:
        return {"name": self._config.name, "namespace": self._config.namespace}

    def _loop_time(self) -> float:
        return self._clock.monotonic()


async def _in_thread(work: Callable[[], Awaitable[None]], name: str) -> None:
    """Run `work` on an event loop in a thread of its own. Cancelling this cancels it, and waits until it has ended."""
    begun: concurrent.futures.Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = concurrent.futures.Future()
    ended: concurrent.futures.Future[None] = concurrent.futures.Future()

    async def run() -> None:
        task = asyncio.ensure_future(work())
        begun.set_result((asyncio.get_running_loop(), task))
        await task

    def body() -> None:
        try:
            asyncio.run(run())
            ended.set_result(None)
        except asyncio.CancelledError:
            ended.set_result(None)
        except BaseException as error:
            ended.set_exception(error)

    # A daemon thread: a process that ends does not wait for it.
    threading.Thread(target=body, name=name, daemon=True).start()
    waiting = asyncio.wrap_future(ended)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        loop, task = await asyncio.wrap_future(begun)
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended
            loop.call_soon_threadsafe(task.cancel)
        await asyncio.wait({waiting})
        raise
