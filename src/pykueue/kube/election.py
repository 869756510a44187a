"""One leader among several, by a Lease.

The Lease is only ever written under its resourceVersion, so of two that try at once one loses. Followers measure how
long the Lease has stood still by their own monotonic clock, never by the times written in it: clocks differ. A leader
that cannot renew stops itself after `renew_seconds`, which is less than `lease_seconds`: before anybody else may start.
`may_write` is the fence around what a leader writes; `transport` asks it when nothing is left but to send.

What was sent in time may still arrive late. So a leader signs what counts with its term, and whoever is asked about the
write, by a webhook say, can tell with `is_over` that another leads by now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from pykueue.api import meta
from pykueue.api.kinds import Kind, Scope, Version
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import AlreadyExists, Conflict, KubeError

log = logging.getLogger(__name__)

LEASES: Final = Kind(
    group="coordination.k8s.io",
    kind="Lease",
    plural="leases",
    scope=Scope.NAMESPACED,
    versions=(Version("v1", storage=True),),
)


_SIGNATURE: Final = "pykueue-manager-term-"


@dataclass(frozen=True, slots=True)
class Terms:
    """Where the Lease is, and how long everything takes."""

    name: str
    namespace: str
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0


class Election:
    """A candidate. `run` returns when it led and does not any more."""

    def __init__(self, client: Client, clock: Clock, terms: Terms, identity: str) -> None:
        self._client = client
        self._clock = clock
        self._terms = terms
        self._identity = identity
        self._seen: tuple[str, str] = ("", "")  # holder and resourceVersion as last read
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._newest_term = 0  # as last read, whoever leads in it
        self.term = 0
        self.is_leader = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait to be elected, then run `lead` until it ends or the lease is lost; then give the Lease back."""
        lease = await self._campaign()
        self.is_leader = True
        log.info("leading as %s, term %d", self._identity, self.term)
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.ensure_future(self._keep(lease))
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
        return self.is_leader and self._loop_time() - self._renewed_at < self._terms.renew_seconds

    def signature(self) -> str:
        """The name under which this leader writes, which tells its term."""
        return f"{_SIGNATURE}{self.term}"

    def is_over(self, signature: str) -> bool:
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
            await asyncio.sleep(self._terms.retry_seconds)

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
            duration = float(spec.get("leaseDurationSeconds") or self._terms.lease_seconds)
            if holder and holder != self._identity and asked_at - self._seen_at < duration:
                return None
            taken = await self._client.replace(LEASES, self._taken(lease, new=holder != self._identity))
        self._renewed_at = asked_at
        self.term = self._newest_term = int(taken["spec"]["leaseTransitions"])
        return taken

    async def _keep(self, lease: dict[str, Any]) -> None:
        """Renew until that fails for too long."""
        while True:
            await asyncio.sleep(self._terms.retry_seconds)
            left = self._terms.renew_seconds - (self._loop_time() - self._renewed_at)
            if left <= 0:
                log.error("the lease could not be renewed in time: no longer leading")
                return
            asked_at = self._loop_time()
            try:
                async with asyncio.timeout(left):
                    lease = await self._client.replace(LEASES, self._taken(lease, new=False))
                self._renewed_at = asked_at
            except Conflict:
                found = await self._reread()
                if found is not None and (found.get("spec") or {}).get("holderIdentity") == self._identity:
                    lease = found  # our own write whose answer was lost
                elif found is not None:
                    log.error("%s leads now: no longer leading", (found.get("spec") or {}).get("holderIdentity"))
                    return
            except (KubeError, TimeoutError) as error:
                log.warning("the lease was not renewed: %s", error)

    async def _reread(self) -> dict[str, Any] | None:
        try:
            return await self._client.find(LEASES, self._terms.name, self._terms.namespace)
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
            "leaseDurationSeconds": max(int(self._terms.lease_seconds), 1),
            "renewTime": now,
            "acquireTime": now if new else before.get("acquireTime", now),
            "leaseTransitions": terms + (1 if new else 0),
        }
        return {**lease, "apiVersion": LEASES.api_version, "kind": LEASES.kind, "spec": spec}

    def _metadata(self) -> dict[str, str]:
        return {"name": self._terms.name, "namespace": self._terms.namespace}

    def _loop_time(self) -> float:
        return self._clock.monotonic()
