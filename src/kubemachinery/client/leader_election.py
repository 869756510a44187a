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
from dataclasses import dataclass
from typing import Any, Final

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


_SIGNATURE: Final = "pykueue-manager-term-"
# Longer than any work of the event loop takes, and no longer than a cluster may be without a leader.
STALL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """Where the Lease is, and how long everything takes."""

    name: str
    namespace: str
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0


class LeaderElector:
    """A candidate. `run` returns when it led and does not any more."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        terms: LeaderElectionConfig,
        identity: str,
        *,
        own_connection: Callable[[], ApiClient] | None = None,
    ) -> None:
        """`own_connection` makes the client that renews the Lease from a thread of its own; without it, `client` renews
        on the event loop, as on one whose time is virtual. It is called, used and closed in that thread."""
        self._client = client
        self._own_connection = own_connection
        self._clock = clock
        self._terms = terms
        self._identity = identity
        self._seen: tuple[str, str] = ("", "")  # holder and resourceVersion as last read
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._newest_term = 0  # as last read, whoever leads in it
        self._is_lost = False
        self._stirred_at = 0.0  # when the event loop last ran, as far as the thread that renews is concerned
        self.term = 0
        self.is_leader = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to be elected, then run `lead` until it ends or the lease is lost; then give the Lease back."""
        lease = await self._campaign()
        self._is_lost, self.is_leader = False, True
        log.info("leading as %s, term %d", self._identity, self.term)
        leading = asyncio.ensure_future(lead())
        apart = self._own_connection
        keeping = self._keep(self._client, lease) if apart is None else self._keep_apart(apart, lease)
        renewing = asyncio.ensure_future(keeping)
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
        """Whether this leader is still inside its lease by its own clock. Asked before every write that books."""
        is_recent = self._loop_time() - self._renewed_at < self._terms.renew_deadline_seconds
        return self.is_leader and not self._is_lost and is_recent

    def field_manager(self) -> str:
        """The name under which this leader writes, which tells its term."""
        return f"{_SIGNATURE}{self.term}"

    def is_superseded(self, signature: str) -> bool:
        """Whether a leader who signs like this is out of office, as far as is known here: a leader knows it of itself,
        and whoever follows as of its last look at the Lease. Who signs otherwise is no leader."""
        term = signature.removeprefix(_SIGNATURE)
        if term == signature or not term.isdecimal():
            return False
        if self.is_leader and int(term) == self.term:
            return not self.may_write()
        return int(term) < self._newest_term

    async def _campaign(self) -> dict[str, Any]:
        while True:
            try:
                if (lease := await self._try()) is not None:
                    return lease
            except (Conflict, AlreadyExists):
                log.debug("somebody else wrote the lease first")
            except KubeError as error:
                log.warning("the lease %s cannot be taken yet: %s", self._terms.name, error)
            await asyncio.sleep(self._terms.retry_period_seconds)

    async def _try(self) -> dict[str, Any] | None:
        asked_at = self._loop_time()
        lease = await self._client.find(LEASES, self._terms.name, self._terms.namespace)
        if lease is None:
            taken = await self._client.create(LEASES, self._taken({"metadata": self._metadata()}, new=True))
        else:
            spec = lease.get("spec") or {}
            self._newest_term = int(spec.get("leaseTransitions") or 0)
            holder = str(spec.get("holderIdentity") or "")
            seen = (holder, lease["metadata"]["resourceVersion"])
            if seen != self._seen:
                self._seen, self._seen_at = seen, asked_at
            duration = float(spec.get("leaseDurationSeconds") or self._terms.lease_duration_seconds)
            if holder and holder != self._identity and asked_at - self._seen_at < duration:
                return None
            taken = await self._client.replace(LEASES, self._taken(lease, new=holder != self._identity))
        self._renewed_at = asked_at
        self.term = self._newest_term = int(taken["spec"]["leaseTransitions"])
        return taken

    async def _keep_apart(self, own_connection: Callable[[], ApiClient], lease: dict[str, Any]) -> None:
        """The same as `_keep`, in a thread with an event loop and a connection of its own."""

        async def keep() -> None:
            client = own_connection()
            try:
                await self._keep(client, lease, is_healthy=self._is_stirring)
            finally:
                self._is_lost = True
                await client.close()

        async def stir() -> None:
            while True:
                self._stirred_at = self._loop_time()
                await asyncio.sleep(min(self._terms.retry_period_seconds, STALL_SECONDS / 4))

        self._stirred_at = self._loop_time()
        stirring = asyncio.ensure_future(stir())
        try:
            await _in_thread(keep, "lease")
        finally:
            stirring.cancel()

    def _is_stirring(self) -> bool:
        return self._loop_time() - self._stirred_at < STALL_SECONDS

    async def _keep(
        self, client: ApiClient, lease: dict[str, Any], is_healthy: Callable[[], bool] = lambda: True
    ) -> None:
        """Renew until that fails for too long, or the leader is not healthy."""
        while True:
            await asyncio.sleep(self._terms.retry_period_seconds)
            left = self._terms.renew_deadline_seconds - (self._loop_time() - self._renewed_at)
            if left <= 0:
                log.error("the lease could not be renewed in time: no longer leading")
                return
            if not is_healthy():
                log.error("the event loop has not run for %g s: the lease is not renewed", STALL_SECONDS)
                return
            asked_at = self._loop_time()
            try:
                async with asyncio.timeout(left):
                    lease = await client.replace(LEASES, self._taken(lease, new=False))
                self._renewed_at = asked_at
            except Conflict:
                found = await self._reread(client)
                if found is not None and (found.get("spec") or {}).get("holderIdentity") == self._identity:
                    lease = found  # our own write whose answer was lost
                elif found is not None:
                    log.error("%s leads now: no longer leading", (found.get("spec") or {}).get("holderIdentity"))
                    return
            except (ProgramError, TimeoutError) as error:
                log.warning("the lease was not renewed: %s", error)

    async def _reread(self, client: ApiClient) -> dict[str, Any] | None:
        try:
            return await client.find(LEASES, self._terms.name, self._terms.namespace)
        except KubeError:
            return None

    async def _release(self) -> None:
        """Let the next one start at once. Best effort: an old lease runs out by itself."""
        try:
            async with asyncio.timeout(2.0):
                lease = await self._client.find(LEASES, self._terms.name, self._terms.namespace)
                if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._client.replace(LEASES, lease)
        except (KubeError, TimeoutError) as error:
            log.info("the lease was not given back: %s", error)

    def _taken(self, lease: dict[str, Any], *, new: bool) -> dict[str, Any]:
        now = meta.format_micro_time(self._clock.now())
        before = lease.get("spec") or {}
        # A Lease that was deleted and is made again must not begin with terms that are over.
        terms = max(int(before.get("leaseTransitions") or 0), self._newest_term)
        spec = {
            **before,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(int(self._terms.lease_duration_seconds), 1),
            "renewTime": now,
            "acquireTime": now if new else before.get("acquireTime", now),
            "leaseTransitions": terms + (1 if new else 0),
        }
        return {**lease, "apiVersion": LEASES.api_version, "kind": LEASES.kind, "spec": spec}

    def _metadata(self) -> dict[str, str]:
        return {"name": self._terms.name, "namespace": self._terms.namespace}

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

    # A process that ends does not wait for it.
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
