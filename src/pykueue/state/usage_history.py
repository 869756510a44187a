"""The decayed usage of each LocalQueue, by which usage-based ClusterQueues order them (admission fair sharing, [AF1]).

Quantities are integers of a billionth of the resource's base unit, the resolution of the API's nine decimals; every
product is rounded down to that, so that repeated decay ends at zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import ROUND_DOWN, Context, Decimal
from typing import TypeAlias

import msgspec

from kubemachinery.meta import SECOND, Nanoseconds
from kubemachinery.quantity import Quantity
from pykueue.core.policy import UsageHistory

Billionths: TypeAlias = int
_PER_UNIT = 10**9
_EXACT = Context(prec=400, rounding=ROUND_DOWN)


def billionths(quantity: Quantity) -> Billionths:
    return quantity.rounded(-9)


def of_amount(resource: str, amount: int) -> Billionths:
    """Convert from the integers that quota is counted in."""
    return amount * (_PER_UNIT // 1000 if resource == "cpu" else _PER_UNIT)


class Account(msgspec.Struct):
    """The decayed usage of one LocalQueue, and the entry penalties of admissions since the last sample."""

    consumed: dict[str, Billionths] = msgspec.field(default_factory=dict)
    penalties: dict[str, dict[str, Billionths]] = msgspec.field(default_factory=dict)  # by Workload
    since: Nanoseconds = 0
    is_seeded: bool = False  # whether the LocalQueue was seen: what its status has from then on is this account


class ConsumedResources:
    def __init__(self, history: UsageHistory) -> None:
        self.history = history
        self.weights: dict[str, float] = {}  # by LocalQueue
        self._accounts: dict[str, Account] = {}

    def usage(self, local_queue: str) -> float:
        """Return the weighted usage. A LocalQueue of weight zero always comes last [AF2]."""
        weight = self.weights.get(local_queue, 1.0)
        if weight <= 0:
            return math.inf
        return self._weighted(local_queue, weight, self.consumed(local_queue))

    def usage_at_rest(self, local_queue: str, in_use: Mapping[str, Billionths]) -> float:
        """Return the weighted usage that further samples come nearer to, as long as this is in use."""
        weight = self.weights.get(local_queue, 1.0)
        if weight <= 0:
            return math.inf
        return self._weighted(local_queue, weight, in_use if self.history.half_life_seconds else {})

    def _weighted(self, local_queue: str, weight: float, consumed: Mapping[str, Billionths]) -> float:
        total = dict(consumed)
        account = self._accounts.get(local_queue)
        for penalty in account.penalties.values() if account is not None else ():
            _add(total, penalty)
        weights = self.history.resource_weights
        used = sum(weights.get(name, 1.0) * (amount / _PER_UNIT) for name, amount in sorted(total.items()))
        return used / weight

    def seed(self, local_queue: str, consumed: Mapping[str, Quantity], since: Nanoseconds) -> None:
        """Count the usage in the status of a LocalQueue that is seen for the first time [AF9].

        Any later status, also the first one of a new LocalQueue, was written from this account: it would count twice.
        """
        account = self._account(local_queue, since)
        if not account.is_seeded:
            account.is_seeded = True
            _add(account.consumed, {name: billionths(amount) for name, amount in consumed.items()})

    def charge(self, local_queue: str, workload: str, requests: Iterable[tuple[str, int]], now: Nanoseconds) -> None:
        """Charge the entry penalty of a reservation: what it will have used by the next sample [AF5]."""
        share = self._decayed(self.history.sampling_interval_seconds)
        requested: dict[str, Billionths] = {}
        for resource, amount in requests:
            requested[resource] = requested.get(resource, 0) + of_amount(resource, amount)
        self._account(local_queue, now).penalties[workload] = _times(requested, share)

    def forgive(self, local_queue: str, workload: str) -> None:
        """Remove the entry penalty of a reservation that was released [AF7]."""
        account = self._accounts.get(local_queue)
        if account is not None:
            account.penalties.pop(workload, None)

    def sample(self, local_queue: str, in_use: Mapping[str, Billionths], now: Nanoseconds) -> None:
        """Let past usage decay, and count what admitted Workloads use now [AF3], [AF4]."""
        account = self._account(local_queue, now)
        if self.history.half_life_seconds == 0:
            account.consumed = {}
        else:
            share = self._decayed(max(0, now - account.since) / SECOND)
            kept = _times(account.consumed, 1.0 - share)
            _add(kept, _times(in_use, share))
            account.consumed = kept
        account.since = now  # also if the clock was set back: usage would stay as it is until it has caught up [CS6]

    def settle(self, local_queue: str, workload: str, in_use: Mapping[str, Billionths], now: Nanoseconds) -> None:
        """Turn the entry penalty of an admitted Workload into past usage [AF6]."""
        self.sample(local_queue, in_use, now)
        account = self._account(local_queue, now)
        _add(account.consumed, account.penalties.pop(workload, {}))

    def close(self, local_queue: str) -> None:
        self._accounts.pop(local_queue, None)
        self.weights.pop(local_queue, None)

    def consumed(self, local_queue: str) -> Mapping[str, Billionths]:
        account = self._accounts.get(local_queue)
        return account.consumed if account is not None else {}

    def _account(self, local_queue: str, now: Nanoseconds) -> Account:
        account = self._accounts.get(local_queue)
        if account is None:
            account = self._accounts[local_queue] = Account(since=now)
        return account

    def _decayed(self, seconds: float) -> float:
        """Return the fraction of past usage that no longer counts after so many seconds."""
        half_life = self.history.half_life_seconds
        return 0.0 if half_life == 0 else 1.0 - math.pow(0.5, seconds / half_life)


def _add(into: dict[str, Billionths], more: Mapping[str, Billionths]) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, 0) + amount


def _times(amounts: Mapping[str, Billionths], factor: float) -> dict[str, Billionths]:
    exact = Decimal(repr(factor))
    return {name: int(_EXACT.multiply(Decimal(amount), exact)) for name, amount in amounts.items()}
