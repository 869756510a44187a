"""The timeline of one cohort tree: which quota is certain to be back when, and what a start now would break later.

Two questions are answered here, on copies of the quota tree (rules TL, see docs/rules/time.md):

    earliest    when does a Workload fit at the latest, because everything in its way has an enforced end
    allows      may a Workload that fits now be admitted, or would it delay a planned start or exceed a lowered quota

Only *hard ends* count: times at which usage ends because a limit is enforced. Usage without one is endless. A
projection is the tree at one time. Between two *moments* (the date of a planned start, the time at which quota is
lowered) projected usage only falls and quota only rises, so that asking at the moments is enough ([TL6]); and usage
that ends before its hard end only makes more available, so that an early end breaks no plan ([TL7]).

Nothing here reads or writes the usage of the live tree after construction. Times are nanoseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from kubemachinery.meta import HOUR, SECOND, Nanoseconds
from pykueue.core import amounts, quota
from pykueue.core.amounts import Amount
from pykueue.core.cohort import CohortTree, QuotaNode, TreePlan
from pykueue.core.queue import FlavorResourceNumber

ENDLESS: Final[Nanoseconds] = 2**63 - 1
"""The end of usage that no limit ends."""

DEFAULT_GRACE_SECONDS: Final = 30
"""The termination grace period of a pod that states none."""

STOP_MARGIN: Final[Nanoseconds] = 30 * SECOND
"""From the end of the termination grace period until the quota is released."""

JOB_START_MARGIN: Final[Nanoseconds] = 60 * SECOND
"""From the admission until a job is started: the deadline of a job counts from its own start."""

WINDOWS_KNOWN: Final[Nanoseconds] = 14 * 24 * HOUR
"""How far ahead changes of quota are known; a longer limit counts as endless for them ([QS10])."""

MOST_USES: Final = 5_000
"""How many hard ends one search for a date considers; other usage counts as endless ([TL11])."""

_Usage = tuple[tuple[FlavorResourceNumber, Amount], ...]


class RunLimit(NamedTuple):
    """The enforced limit of a run, and how long after it the quota is back at the latest ([TL1])."""

    time: Nanoseconds
    allowance: Nanoseconds

    def end(self, admitted_at: Nanoseconds) -> Nanoseconds:
        """The hard end of a run that is admitted then."""
        return min(ENDLESS, admitted_at + self.time + self.allowance)


def stop_allowance(grace_seconds: Iterable[int | None], *, counts_from_job_start: bool = False) -> Nanoseconds:
    """How long after its limit a run may still hold quota: the largest termination grace period of its pods and a
    margin ([TL1])."""
    largest = max((DEFAULT_GRACE_SECONDS if each is None else each for each in grace_seconds), default=0)
    start = JOB_START_MARGIN if counts_from_job_start else 0
    return max(0, largest) * SECOND + STOP_MARGIN + start


class TimedUsage(NamedTuple):
    """Usage in a ClusterQueue, by the flavor-resource numbers of its tree, and its hard end. Priority and queue-order
    time decide whether the owner of a planned start could preempt it."""

    queue: str
    usage: _Usage
    end: Nanoseconds = ENDLESS
    priority: int = 0
    queue_time: Nanoseconds = 0


MayPreempt = Callable[[TimedUsage], bool]


NO_DROPS: Final[Mapping[FlavorResourceNumber, str]] = MappingProxyType({})


class QuotaChange(NamedTuple):
    """The specs of the tree from a time on, computed when they are needed.

    `drops` are the flavor-resources whose quota is lowered then and which Workloads above the new quota must have
    released before, each with the clause that names what lowers it ([QS6]). `repeats`: they will be lowered again, also
    after the last change that is known."""

    at: Nanoseconds
    plan: Callable[[], TreePlan]
    drops: Mapping[FlavorResourceNumber, str] = NO_DROPS
    repeats: bool = False


class Claim(msgspec.Struct, frozen=True):
    """The quota that a Workload with a planned start will use, from its date until its hard end.

    `may_preempt` selects usage that its owner could preempt at the date, which therefore does not count for it.
    `within_nominal`: the owner must be within the nominal quota of its ClusterQueue at the date, because it can reclaim
    quota only then ([BF7])."""

    owner: str
    use: TimedUsage  # its end is that of a start at the date
    date: Nanoseconds
    may_preempt: MayPreempt | None = None
    within_nominal: bool = False

    def is_held_at(self, time: Nanoseconds) -> bool:
        return self.date <= time < self.use.end


class Candidate(NamedTuple):
    """A Workload that would start now: its usage with its hard end, and the reservations that end with its start: the
    elastic slice that it replaces, and its preemption targets."""

    key: str
    use: TimedUsage
    ended: tuple[str, ...] = ()


class TimelineConflict(NamedTuple):
    """Why a candidate may not start: the moment, and the owner of the planned start that it conflicts with, or the
    flavor-resource that is lowered and the clause of the change. It would be allowed with a hard end at or before
    `at`."""

    at: Nanoseconds
    owner: str = ""
    number: FlavorResourceNumber = 0
    change: str = ""


class Projection:
    """The quota tree at one time, with the usage and the claims that last beyond it ([TL3])."""

    __slots__ = ("_live", "_log", "at", "tree")

    def __init__(self, at: Nanoseconds, tree: CohortTree, live: CohortTree) -> None:
        self.at = at
        self.tree = tree
        self._live = live
        self._log: quota.UndoLog = []

    def add(self, use: TimedUsage) -> None:
        """Add usage if it lasts beyond the time."""
        if use.end > self.at:
            quota.add_all(self._node(use.queue), use.usage, self._log)
            self._log.clear()

    def remove(self, use: TimedUsage) -> None:
        """Remove usage that was added, if it lasts beyond the time."""
        if use.end > self.at:
            quota.remove_all(self._node(use.queue), use.usage, self._log)
            self._log.clear()

    def advance(self, at: Nanoseconds, ended: Iterable[TimedUsage]) -> None:
        """Move on to a later time by which some of the usage has ended."""
        for use in ended:
            self.remove(use)
        self.at = at

    def fits(self, use: TimedUsage, *, within_nominal: bool = False) -> bool:
        """Whether the usage is available then, and on request without borrowing."""
        node = self._node(use.queue)
        return all(
            amount <= quota.available(node, number)
            and not (within_nominal and quota.borrows_with(node, number, amount))
            for number, amount in use.usage
        )

    def exceeded(self, use: TimedUsage, among: Mapping[FlavorResourceNumber, str]) -> FlavorResourceNumber | None:
        """The first of some flavor-resources for which the usage, added to that of its ClusterQueue, is neither within
        nominal quota nor available ([TL4]); None: there is none. Nothing is added: usage that is added lowers the
        balance of its ClusterQueue by exactly its amount."""
        node = self._node(use.queue)
        for number, amount in use.usage:
            if (
                amount > 0
                and number in among
                and amounts.add(node.usage[number], amount) > node.subtree[number]
                and amount > quota.balance(node, number)
            ):
                return number
        return None

    @contextmanager
    def supposing(self, added: Iterable[TimedUsage], removed: Iterable[TimedUsage] = ()) -> Iterator[None]:
        """Add and remove usage for the length of a question, and undo that exactly."""
        mark = len(self._log)
        for use in removed:
            quota.remove_all(self._node(use.queue), use.usage, self._log)
        for use in added:
            quota.add_all(self._node(use.queue), use.usage, self._log)
        try:
            yield
        finally:
            quota.undo(self._log, mark)

    def figures(self) -> dict[tuple[str, FlavorResourceNumber], Amount]:
        """Every usage that is not zero, by node and flavor-resource number."""
        return {
            (node.name, number): amount
            for node in self.tree.nodes
            for number, amount in enumerate(node.usage)
            if amount != 0
        }

    def _node(self, queue: str) -> QuotaNode:
        if len(self.tree.pairs) != len(self._live.pairs):  # the live tree got a number since: for a pair without quota
            for pair in self._live.pairs:
                self.tree.number(pair.flavor, pair.resource)
        return self.tree.queues[queue]


class Timeline:
    """The hard ends, claims and quota changes of one tree.

    `uses` are the reservations by key. Changes of quota are known until `known_until`. Projections are built when a
    moment is first asked about, and updated with every usage that begins or ends, so that one question costs no more
    than the depth of the tree ([TL11]).
    """

    def __init__(
        self,
        tree: CohortTree,
        uses: Mapping[str, TimedUsage] | None = None,
        changes: Iterable[QuotaChange] = (),
        known_until: Nanoseconds = ENDLESS,
    ) -> None:
        self._tree = tree
        self._known_until = known_until
        self._uses: dict[str, TimedUsage] = dict(uses or {})
        self._claims: dict[str, Claim] = {}
        self._ordered_claims: list[Claim] | None = None  # by date, until a claim changes
        self.changes: Sequence[QuotaChange] = sorted(changes, key=lambda change: change.at)
        self._drops = [change for change in self.changes if change.drops]
        self._passed_drops = 0
        self._repeated_drop = next((change for change in reversed(self._drops) if change.repeats), None)
        self._idle: dict[str, list[list[Amount]]] = {}  # what a ClusterQueue could use at most after each change
        self._at_claims: dict[str, Projection] = {}  # by owner
        self._at_drops: dict[Nanoseconds, Projection] = {}
        # Owners whose projection changed since they were found to fit at their date.
        self._unchecked: set[str] = set()
        self._ends = [(use.end, key) for key, use in self._uses.items()]  # hard ends, also of uses that have ended
        heapq.heapify(self._ends)
        self._present = Projection(-1, tree.without_usage(), tree)  # with everything that is in use
        for use in self._uses.values():
            self._present.add(use)

    @property
    def claims(self) -> Mapping[str, Claim]:
        return self._claims

    @property
    def uses(self) -> Mapping[str, TimedUsage]:
        return self._uses

    # Changes.

    def add_use(self, key: str, use: TimedUsage) -> None:
        """Add the usage of a reservation, in place of the one it had before."""
        if key in self._uses:
            self.remove_use(key)
        self._uses[key] = use
        self._present.add(use)
        if use.end < ENDLESS:
            heapq.heappush(self._ends, (use.end, key))
        for projection in self._counting(use):
            projection.add(use)

    def remove_use(self, key: str) -> None:
        """Remove the usage of a reservation that has ended, if there is any."""
        use = self._uses.pop(key, None)
        if use is not None:
            self._present.remove(use)
            for projection in self._counting(use):
                projection.remove(use)

    def add_claim(self, claim: Claim, projection: Projection | None = None) -> None:
        """Add the claim of a planned start, in place of the one that its owner had before. `projection` is the tree at
        its date for its owner, where that is known already."""
        self.remove_claim(claim.owner)
        for counting in self._holding(claim):
            counting.add(claim.use)
        self._claims[claim.owner] = claim
        self._ordered_claims = None
        self._unchecked.add(claim.owner)
        if projection is not None:
            self._at_claims[claim.owner] = projection

    def remove_claim(self, owner: str) -> Claim | None:
        """Remove and return the claim of an owner, if it has one."""
        claim = self._claims.pop(owner, None)
        self._at_claims.pop(owner, None)
        if claim is not None:
            self._ordered_claims = None
            self._unchecked.discard(owner)
            for projection in self._holding(claim):
                projection.remove(claim.use)
        return claim

    def overdue(self, now: Nanoseconds) -> list[str]:
        """The reservations that still hold quota after their hard end: their limit was not enforced in time. Each is
        returned once."""
        found = []
        while self._ends and self._ends[0][0] < now:
            end, key = heapq.heappop(self._ends)
            if key in self._uses and self._uses[key].end == end:
                found.append(key)
        return found

    @property
    def has_drops(self) -> bool:
        """Whether quota will be lowered that Workloads must have released before."""
        return self._passed_drops < len(self._drops)

    def pass_drops(self, now: Nanoseconds) -> bool:
        """Forget the lowerings of quota whose time has come; whether there were any."""
        before = self._passed_drops
        while self.has_drops and self._drops[self._passed_drops].at <= now:
            self._at_drops.pop(self._drops[self._passed_drops].at, None)
            self._passed_drops += 1
        return self._passed_drops > before

    def _holding(self, claim: Claim) -> list[Projection]:
        """The projections in which a claim is held; its caller changes them."""
        found = []
        for owner, projection in self._at_claims.items():
            if claim.is_held_at(projection.at):
                self._unchecked.add(owner)
                found.append(projection)
        found += [projection for projection in self._at_drops.values() if claim.is_held_at(projection.at)]
        return found

    def _counting(self, use: TimedUsage) -> list[Projection]:
        """The projections that count the usage of a reservation: those of times before its end. Its caller changes
        them."""
        end, found = use.end, []
        if self._at_claims and self._claims_by_date()[0].date < end:
            for owner, projection in self._at_claims.items():
                if projection.at < end and ((test := self._claims[owner].may_preempt) is None or not test(use)):
                    self._unchecked.add(owner)
                    found.append(projection)
        if self._at_drops:
            found += [projection for projection in self._at_drops.values() if projection.at < end]
        return found

    # Projections.

    def project(self, at: Nanoseconds, claim: Claim | None = None) -> Projection:
        """The tree at a time, built from the uses and claims. For the owner of a claim, without its own claim and
        without the usage that it may preempt."""
        projection = self.empty_projection(at)
        may_preempt = claim.may_preempt if claim is not None else None
        for use in self._uses.values():
            if may_preempt is None or not may_preempt(use):
                projection.add(use)
        for other in self._claims.values():
            if (claim is None or other.owner != claim.owner) and other.is_held_at(at):
                projection.add(other.use)
        return projection

    def projection_of(self, owner: str) -> Projection:
        """The tree at the date of a planned start, for its owner."""
        found = self._at_claims.get(owner)
        if found is None:
            claim = self._claims[owner]
            found = self._at_claims[owner] = self.project(claim.date, claim)
        return found

    def built_projection(self, owner: str) -> Projection | None:
        """The tree at the date of a planned start, for its owner, if a question has needed it."""
        return self._at_claims.get(owner)

    def _drop_projection(self, at: Nanoseconds) -> Projection:
        found = self._at_drops.get(at)
        if found is None:
            found = self._at_drops[at] = self.project(at)
        return found

    def present(self) -> Projection:
        """A copy of the tree with everything that is in use, whatever its hard end."""
        found = self.empty_projection(-1)
        for node, of_now in zip(found.tree.nodes, self._present.tree.nodes, strict=True):
            node.usage[: len(of_now.usage)] = of_now.usage
        return found

    def empty_projection(self, at: Nanoseconds) -> Projection:
        """The tree with the quotas of a time, without usage. Flavor-resources have the numbers of the live tree."""
        in_force = [change for change in self.changes if change.at <= at]
        if not in_force:
            return Projection(at, self._tree.without_usage(), self._tree)
        return Projection(at, CohortTree.build(in_force[-1].plan(), numbered=self._tree.pairs), self._tree)

    # Questions.

    def could_fit_later(self, use: TimedUsage) -> bool:
        """Whether the usage is within what its ClusterQueue could use at most after a change of quota."""
        if use.queue not in self._idle:
            self._idle[use.queue] = [
                self.empty_projection(change.at).tree.queues[use.queue].potential for change in self.changes
            ]
        return any(all(amount <= idle[number] for number, amount in use.usage) for idle in self._idle[use.queue])

    def fits_at_date(self, owner: str) -> bool:
        """Whether the owner of a claim fits at its date. One that was found to fit is compared again only after a
        change of its projection: most usage that begins ends before any date."""
        if owner not in self._unchecked:
            return True
        fits = self._keeps(self._claims[owner], self.projection_of(owner))
        if fits:
            self._unchecked.discard(owner)
        return fits

    def _keeps(self, claim: Claim, projection: Projection) -> bool:
        return projection.fits(claim.use, within_nominal=claim.within_nominal)

    def has_moment_before(self, end: Nanoseconds) -> bool:
        """Whether a candidate with this end could be in the way at all: a claim begins before it, or quota is lowered
        at some time."""
        return self.has_drops or (bool(self._claims) and self._claims_by_date()[0].date < end)

    def allows(
        self, candidate: Candidate, now: Nanoseconds, binds: Callable[[Claim], bool] = lambda claim: True
    ) -> TimelineConflict | None:
        """The first moment before the candidate's end at which it would be in the way; None: it may start ([TL4]).

        `binds` selects the claims that the candidate must not delay. A claim whose date has passed counts.
        """
        return self._delayed(candidate, binds) or self.exceeded_drop(candidate, now)

    def _delayed(self, candidate: Candidate, binds: Callable[[Claim], bool]) -> TimelineConflict | None:
        for claim in self._claims_by_date():
            if claim.date >= candidate.use.end:
                return None
            if claim.owner == candidate.key or not binds(claim):
                continue
            projection = self.projection_of(claim.owner)
            with projection.supposing((candidate.use,), self._superseded(candidate, projection)):
                if not self._keeps(claim, projection):
                    return TimelineConflict(claim.date, owner=claim.owner)
        return None

    def _claims_by_date(self) -> Sequence[Claim]:
        if self._ordered_claims is None:
            self._ordered_claims = sorted(self._claims.values(), key=lambda claim: (claim.date, claim.owner))
        return self._ordered_claims

    def exceeded_drop(self, candidate: Candidate, now: Nanoseconds) -> TimelineConflict | None:
        """The first lowering of quota before the candidate's end at which it would hold more than is left ([QS6]). A
        candidate that ends after the known changes meets those that repeat once more ([QS10])."""
        use = candidate.use
        for position in range(self._passed_drops, len(self._drops)):
            change = self._drops[position]
            if change.at >= use.end:
                break
            if change.at > now:
                conflict = self._exceeded_at(change, candidate)
                if conflict is not None:
                    return conflict
        if use.end > self._known_until and self._repeated_drop is not None and self.has_drops:
            return self._exceeded_at(self._repeated_drop, candidate)
        return None

    def _exceeded_at(self, change: QuotaChange, candidate: Candidate) -> TimelineConflict | None:
        projection = self._drop_projection(change.at)
        superseded = self._superseded(candidate, projection)
        if superseded:
            with projection.supposing((), superseded):
                number = projection.exceeded(candidate.use, change.drops)
        else:
            number = projection.exceeded(candidate.use, change.drops)
        return None if number is None else TimelineConflict(change.at, number=number, change=change.drops[number])

    def _superseded(self, candidate: Candidate, projection: Projection) -> list[TimedUsage]:
        """What a projection counts and the start of the candidate ends: its own claim, the slice before it, and its
        preemption targets."""
        superseded = []
        claim = self._claims.get(candidate.key)
        if claim is not None and claim.is_held_at(projection.at):
            superseded.append(claim.use)
        for key in candidate.ended:
            old = self._uses.get(key)
            if old is not None and old.end > projection.at:
                superseded.append(old)
        return superseded

    def earliest(
        self,
        owner: str,
        queue: str,
        usage: _Usage,
        limit: RunLimit | None,
        now: Nanoseconds,
        may_preempt: MayPreempt | None = None,
        *,
        within_nominal: bool = False,
        despite_drops: bool = False,
    ) -> Nanoseconds | None:
        """The first time from `now` on at which the Workload fits, and with which every planned start and every lowered
        quota before its end is still kept; None: there is none ([TL5]). `despite_drops`: lowered quota is not kept.

        It is one of: now, a hard end, the end of a claim, a change of quota. The owner must have no claim.
        """
        assert owner not in self._claims, "the old claim of the owner would count against it"
        sweep = _Sweep(self, may_preempt, now)
        for at in sweep.times():
            end = limit.end(at) if limit is not None else ENDLESS
            use = TimedUsage(queue, usage, end)
            if sweep.fits(at, use, within_nominal=within_nominal) and self._keeps_later_moments(
                Candidate(owner, use), at, despite_drops=despite_drops
            ):
                return at
        return None

    def _keeps_later_moments(self, candidate: Candidate, at: Nanoseconds, *, despite_drops: bool) -> bool:
        """Whether a start at `at` keeps the planned starts and the lowered quotas between then and its end."""
        if self._delayed(candidate, lambda claim: claim.date > at) is not None:
            return False
        return despite_drops or self.exceeded_drop(candidate, at) is None


class _Sweep:
    """The tree at every time at which a Workload could begin to fit, in order. One tree is updated from time to time;
    it is built again only where quota changes."""

    def __init__(self, timeline: Timeline, may_preempt: MayPreempt | None, now: Nanoseconds) -> None:
        self._timeline = timeline
        self._now = now
        uses = list(timeline.uses.values())
        self._preempted = [use for use in uses if may_preempt is not None and may_preempt(use)]
        counted = [use for use in uses if may_preempt is None or not may_preempt(use)]
        counted.sort(key=lambda use: use.end)
        # Usage beyond the bound counts as endless, which may make the date later, and never too early.
        self._uses = [*counted[:MOST_USES], *(use._replace(end=ENDLESS) for use in counted[MOST_USES:])]
        self._claims = sorted(timeline.claims.values(), key=lambda claim: claim.date)
        self._changes = [change.at for change in timeline.changes]
        self._projection: Projection | None = None
        self._next = 0  # the first of the uses that lasts beyond the time of the projection
        self._next_claim = 0  # the first of the claims that begins after it
        self._held: list[TimedUsage] = []  # of the claims that the projection counts

    def times(self) -> Iterator[Nanoseconds]:
        ends = {use.end for use in self._uses} | {claim.use.end for claim in self._claims} | set(self._changes)
        yield self._now
        yield from sorted(end for end in ends if self._now < end < ENDLESS)

    def fits(self, at: Nanoseconds, use: TimedUsage, *, within_nominal: bool) -> bool:
        return self._advance(at).fits(use, within_nominal=within_nominal)

    def _advance(self, at: Nanoseconds) -> Projection:
        """The tree at `at`, with the claims that are held then."""
        start, projection = self._next, self._projection
        while self._next < len(self._uses) and self._uses[self._next].end <= at:
            self._next += 1
        ended = [use for use in self._held if use.end <= at]
        if ended:
            self._held = [use for use in self._held if use.end > at]
        if projection is None and not any(change <= at for change in self._changes):
            # Cheaper than adding up what lasts: few attempts end before the Workload fits.
            projection = self._projection = self._timeline.present()
            for use in self._preempted:
                projection.remove(use)
            projection.advance(at, self._uses[: self._next])
        elif projection is None or any(projection.at < change <= at for change in self._changes):
            projection = self._projection = self._timeline.empty_projection(at)
            for use in (*self._uses[self._next :], *self._held):
                projection.add(use)
        else:
            projection.advance(at, (*self._uses[start : self._next], *ended))
        self._begin_claims(projection)
        return projection

    def _begin_claims(self, projection: Projection) -> None:
        """Add the claims that have begun since the projection was at an earlier time."""
        for claim in islice(self._claims, self._next_claim, None):
            if claim.date > projection.at:
                break
            self._next_claim += 1
            if claim.is_held_at(projection.at):
                projection.add(claim.use)
                self._held.append(claim.use)
