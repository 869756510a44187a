"""What a Budget answers to a Workload: from its limits and the accounts of the Workload's group [BU3]. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

import msgspec

from pykueue.api import kueue
from pykueue.api.budget import BudgetAdmit, BudgetWhenSpent
from pykueue.api.kueue import CheckState
from pykueue.core.amounts import CPU
from pykueue.history import records
from pykueue.history.budget_accounts import HOUR, WEIGHT_ONE, AccountKey, BudgetAccounts, Charge, Commitment
from pykueue.history.budget_periods import BudgetPeriod
from pykueue.history.records import Seconds

SPENT: Final = 100
# Workloads that wait for the next period come back within this time, if no manager ends their wait [BU3].
SPREAD_SECONDS: Final = 60
_GIB: Final = 2**30
_IN_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")


class BudgetLimits(msgspec.Struct, frozen=True):
    """The limits of a Budget, and what follows from them. A change of these needs no recount."""

    name: str
    # Resource -> the limit of every group; group -> resource -> another one.
    limits: Mapping[str, Charge]
    overrides: Mapping[str, Mapping[str, Charge]]
    unspent_percent: int = 0
    carries_overdraft: bool = True
    warn_at: tuple[int, ...] = (80,)
    admit: BudgetAdmit = BudgetAdmit.WHILE_LEFT
    when_spent: BudgetWhenSpent = BudgetWhenSpent.LET_RUN

    def limit(self, key: AccountKey) -> Charge:
        """The limit of a period, without what is carried into it."""
        group, resource = key
        return self.overrides.get(group, {}).get(resource, self.limits.get(resource, 0))

    @property
    def levels(self) -> tuple[int, ...]:
        """The percentages at which something happens, in order."""
        return (*sorted(set(self.warn_at)), SPENT)


class PeriodBalance(NamedTuple):
    """How one period ended: `carried + spent + lapsed = limit + carried into it` [BU-L5].

    A negative `carried` is a debt; a negative `lapsed` an overdraft that was forgiven.
    """

    carried: Charge
    lapsed: Charge


def balance(limits: BudgetLimits, limit: Charge, carried_in: Charge, spent: Charge) -> PeriodBalance:
    """What a period leaves to the next one."""
    rest = limit + carried_in - spent
    if rest < 0:
        return PeriodBalance(rest, 0) if limits.carries_overdraft else PeriodBalance(0, rest)
    carried = min(rest, limit * limits.unspent_percent // 100)
    return PeriodBalance(carried, rest - carried)


def carried_into(limits: BudgetLimits, limit: Charge, past: Sequence[Charge]) -> Charge:
    """What periods with these charges leave to the present one."""
    carried = 0
    for spent in past:
        carried = balance(limits, limit, carried, spent).carried
    return carried


class GroupStanding(NamedTuple):
    """One group and resource now. `allowance` is the limit with what was carried in; `most` that of the best period."""

    spent: Charge
    allowance: Charge
    committed: Charge
    most: Charge

    @property
    def is_spent(self) -> bool:
        return self.spent >= self.allowance

    def has_reached(self, level: int) -> bool:
        return self.is_spent if level == SPENT else self.spent * 100 >= max(0, self.allowance) * level


class BudgetLedger:
    """The limits of a Budget on its accounts: standings, levels, and when the next one is reached."""

    def __init__(self, limits: BudgetLimits, accounts: BudgetAccounts) -> None:
        self.limits = limits
        self.accounts = accounts
        self._carried: dict[AccountKey, tuple[int, int, Charge]] = {}

    def with_limits(self, limits: BudgetLimits) -> BudgetLedger:
        return self if limits == self.limits else BudgetLedger(limits, self.accounts)

    def allowance(self, key: AccountKey) -> Charge:
        """The limit of the present period with what was carried into it."""
        limit, periods = self.limits.limit(key), len(self.accounts.starts)
        if periods == 1:
            return limit
        version = self.accounts.past_version(key)
        kept = self._carried.get(key)
        if kept is None or kept[:2] != (version, periods):
            _, past = self.accounts.past(key)
            kept = self._carried[key] = version, periods, carried_into(self.limits, limit, past)
        return limit + kept[2]

    def standing(self, key: AccountKey) -> GroupStanding:
        limit = self.limits.limit(key)
        most = limit + limit * self.limits.unspent_percent // 100
        return GroupStanding(self.accounts.spent(key), self.allowance(key), max(0, self.accounts.committed(key)), most)

    def next_level_at(self, key: AccountKey) -> Seconds | None:
        """The second at which an account reaches its next level at the present rate; None: not in this period."""
        allowance, spent = self.allowance(key), self.accounts.spent(key)
        for level in self.limits.levels:
            needed = -(-max(0, allowance) * level // 100) if level != SPENT else allowance
            if spent < needed:
                return self.accounts.reached_at(key, needed)
        return None

    def level(self, key: AccountKey) -> int:
        """The highest level that an account has reached; 0: none."""
        standing = self.standing(key)
        return max((level for level in self.limits.levels if standing.has_reached(level)), default=0)


# --- The answer -------------------------------------------------------------------------------------------------------


class BudgetRequest(NamedTuple):
    """What a Workload with reserved quota would be charged: per second and resource, for at most so many seconds."""

    group: str
    rates: Mapping[str, int]
    seconds: int | None


class BudgetAnswer(NamedTuple):
    """The state of the check. A Retry holds until the end of the period."""

    state: CheckState
    message: str


def answer(request: BudgetRequest, ledger: BudgetLedger, until: str) -> BudgetAnswer:
    """The answer to a Workload with reserved quota [BU3]. `until` is the end of the period in words."""
    limits = ledger.limits
    name = f"Budget {limits.name} of {request.group}"
    used = {resource: rate for resource, rate in sorted(request.rates.items()) if rate > 0}
    if not used:
        return BudgetAnswer(CheckState.READY, f"The Workload uses no resource of Budget {limits.name}")
    standings = {resource: ledger.standing((request.group, resource)) for resource in used}
    fits_only = limits.admit is BudgetAdmit.ONLY_IF_IT_FITS
    if fits_only and request.seconds is None:
        return BudgetAnswer(
            CheckState.REJECTED,
            f"Budget {limits.name} admits only Workloads with a time limit: set maximumExecutionTimeSeconds",
        )
    worst = _worst_case(request, used, ledger.accounts.period, is_whole=fits_only)
    for resource, standing in standings.items():
        if worst is not None and worst[resource] > standing.most:
            asked, most = hours(resource, worst[resource]), hours(resource, standing.most)
            return BudgetAnswer(
                CheckState.REJECTED,
                f"{name} has {most} {resource} hours in a period and the Workload may use {asked}:"
                " lower its time limit or its requests",
            )
    for resource, standing in standings.items():
        if standing.is_spent:
            return BudgetAnswer(CheckState.RETRY, f"{name} is spent ({_of(resource, standing)}); {until}")
    if worst is not None and fits_only:
        for resource, standing in standings.items():
            missing = standing.spent + standing.committed + worst[resource] - standing.allowance
            if missing > 0:
                return BudgetAnswer(
                    CheckState.RETRY,
                    f"{name} has not enough left for the Workload: {_of(resource, standing)} are spent,"
                    f" {hours(resource, standing.committed)} are committed, {hours(resource, worst[resource])} are"
                    f" requested and {hours(resource, missing)} are missing; {until}",
                )
    return BudgetAnswer(CheckState.READY, "; ".join(_ready(name, resource, standings[resource]) for resource in used))


def decide(
    uid: str, request: BudgetRequest, state: CheckState, ledger: BudgetLedger, until: str
) -> BudgetAnswer | None:
    """What the check of a Workload with quota becomes; None: it stays as it is [BU3], [BU5].

    What a Workload may use that is let in by `OnlyIfItFits` is committed at once, so that the next answer counts it.
    """
    limits = ledger.limits
    if state is CheckState.PENDING:
        ledger.accounts.withdraw(uid)
        found = answer(request, ledger, until)
        if found.state is CheckState.READY and limits.admit is BudgetAdmit.ONLY_IF_IT_FITS:
            ledger.accounts.commit(uid, commitment(request, None))
        return found
    if state is CheckState.READY and limits.when_spent is BudgetWhenSpent.EVICT:
        resource = is_spent_for(request.rates, request.group, ledger)
        if resource is not None:
            return BudgetAnswer(CheckState.RETRY, spent_message(resource, request.group, ledger, until))
    return None


def commitment(request: BudgetRequest, admitted: Seconds | None) -> Commitment:
    """What a Workload with a time limit may still use: all of it before its admission, afterwards its rest."""
    seconds = request.seconds or 0
    return Commitment(request.group, request.rates, seconds, None if admitted is None else admitted + seconds)


def retry_seconds(uid: str, period: BudgetPeriod, now: Seconds) -> int:
    """How long a Retry holds: until the end of the period, and up to a minute longer. The UID spreads the returns, and
    gives the same time after a restart [BU3]."""
    return max(1, period.end - now) + zlib.crc32(uid.encode()) % (SPREAD_SECONDS + 1)


def time_left(workload: kueue.Workload) -> int | None:
    """For how many seconds a Workload may run at most from its next, or present, admission on; None: without limit.

    The maximum execution time counts all admissions; the deadline of a job begins again with each of them.
    """
    whole = records.limit_seconds(workload)
    most = workload.spec.maximum_execution_time_seconds
    if most is None or whole is None:
        return whole
    past = workload.status.accumulated_past_execution_time_seconds or 0
    return max(0, min(whole, most - past))


def is_spent_for(rates: Mapping[str, int], group: str, ledger: BudgetLedger) -> str | None:
    """The resource of a Workload whose limit is reached; None if there is none [BU5]."""
    for resource, rate in sorted(rates.items()):
        if rate > 0 and ledger.standing((group, resource)).is_spent:
            return resource
    return None


def spent_message(resource: str, group: str, ledger: BudgetLedger, until: str) -> str:
    standing = ledger.standing((group, resource))
    return f"Budget {ledger.limits.name} of {group} is spent ({_of(resource, standing)}); {until}"


def _ready(name: str, resource: str, standing: GroupStanding) -> str:
    return f"{name}: {_of(resource, standing)} are spent"


def _worst_case(
    request: BudgetRequest, used: Mapping[str, int], period: BudgetPeriod, *, is_whole: bool
) -> dict[str, Charge] | None:
    """What the Workload may use at most: under `OnlyIfItFits` in all, under `WhileLeft` in one period."""
    if request.seconds is None:
        return None
    seconds = request.seconds if is_whole else min(request.seconds, period.end - period.start)
    return {resource: rate * seconds for resource, rate in used.items()}


def _of(resource: str, standing: GroupStanding) -> str:
    return f"{hours(resource, standing.spent)} of {hours(resource, standing.allowance)} {resource} hours"


def hours(resource: str, charge: Charge) -> str:
    """A charge in hours of the resource, rounded down to thousandths; of bytes, in GiB."""
    unit = HOUR * WEIGHT_ONE * (1000 if resource == CPU else _GIB if resource.startswith(_IN_BYTES) else 1)
    sign = "-" if charge < 0 else ""
    whole, part = divmod(abs(charge) * 1000 // unit, 1000)
    text = f"{whole}.{part:03}".rstrip("0") if part else str(whole)
    return f"{sign if text != '0' else ''}{text}{'Gi' if resource.startswith(_IN_BYTES) else ''}"


def hours_number(text: str) -> Decimal:
    """The number of a text of `hours`; 0 of another text, which a status may have that this program did not write."""
    try:
        return Decimal(text.removesuffix("Gi"))
    except InvalidOperation:
        return Decimal(0)
