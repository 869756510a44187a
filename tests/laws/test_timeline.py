"""What holds of the timeline of every cohort tree (laws TL-L1 to TL-L3), against brute force over every instant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.core import quota
from pykueue.core.amounts import UNLIMITED
from pykueue.core.cohort import CohortTree, TreePlan, plan_trees
from pykueue.core.queue import CohortInfo, FlavorResource, QueueSpec, Quota
from pykueue.core.timeline import ENDLESS, Candidate, Claim, Projection, QuotaChange, RunLimit, TimedUsage, Timeline

SMALL = settings(max_examples=60)
CPU = FlavorResource("f0", "cpu")
GPU = FlavorResource("f1", "gpu")
HORIZON = 24  # every end is before it, or endless


@dataclass(frozen=True)
class TimelineCase:
    """A cohort tree with reservations, Workloads to be planned one after the other, a candidate, and changes of
    quota."""

    quotas: tuple[tuple[Quota, Quota], ...]  # of each ClusterQueue, for the two flavor-resources
    uses: tuple[tuple[int, int, int, int], ...]  # ClusterQueue, cpu, gpu, end
    owners: tuple[tuple[int, int, int, int], ...]  # ClusterQueue, cpu, gpu, limit (0: none)
    candidate: tuple[int, int, int, int]
    drops: tuple[tuple[int, int], ...] = ()  # when, and the nominal quota of every ClusterQueue then

    def plan(self, nominal: int | None = None) -> TreePlan:
        queues = [
            QueueSpec(
                name=f"q{index}",
                cohort="all",
                quotas={
                    pair: quota if nominal is None else quota._replace(nominal=min(nominal, quota.nominal))
                    for pair, quota in zip((CPU, GPU), own, strict=True)
                },
            )
            for index, own in enumerate(self.quotas)
        ]
        return plan_trees(queues, {"all": CohortInfo("all")}).trees[0]

    def timeline(self) -> Timeline:
        changes = [
            QuotaChange(at, partial(self.plan, nominal), dict.fromkeys((0, 1), f"at {at}"))
            for at, nominal in self.drops
        ]
        timeline = Timeline(CohortTree.build(self.plan(), (CPU, GPU)), changes=changes)
        for number, row in enumerate(self.uses):
            timeline.add_use(f"use-{number}", use_of(self, row))
        for number, (_, _, _, limit) in enumerate(self.owners):
            use = use_of(self, self.owners[number])
            run_limit = RunLimit(limit, 1) if limit else None
            date = timeline.earliest(f"owner-{number}", use.queue, use.usage, run_limit, 0)
            if date is not None:
                end = run_limit.end(date) if run_limit else ENDLESS
                timeline.add_claim(Claim(f"owner-{number}", use._replace(end=end), date))
        return timeline


def use_of(case: TimelineCase, row: tuple[int, int, int, int]) -> TimedUsage:
    queue, cpu, gpu, end = row
    return TimedUsage(f"q{queue % len(case.quotas)}", ((0, cpu), (1, gpu)), end or ENDLESS)


limits = st.one_of(st.just(UNLIMITED), st.integers(0, 4))
quotas = st.builds(Quota, st.integers(0, 8), limits, limits)
rows = st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 3), st.integers(0, HORIZON))
cases = st.builds(
    TimelineCase,
    st.lists(st.tuples(quotas, quotas), min_size=1, max_size=3).map(tuple),
    st.lists(rows, max_size=5).map(tuple),
    st.lists(rows, max_size=4).map(tuple),
    rows,
)
drops = st.lists(st.tuples(st.integers(1, HORIZON), st.integers(0, 8)), max_size=2, unique_by=lambda row: row[0])
cases_with_drops = st.builds(lambda case, found: replace(case, drops=tuple(found)), cases, drops)


def scratch(timeline: Timeline, at: int, *, owner: str = "") -> Projection:
    """The tree at a time by definition, with no code of the timeline but the empty tree: every reservation that has not
    ended, and the claims that are held then, without the one of `owner`."""
    projection = timeline.empty_projection(at)
    for use in timeline.uses.values():
        if use.end > at:
            projection.add(use._replace(end=ENDLESS))
    for claim in timeline.claims.values():
        if claim.date <= at < claim.use.end and claim.owner != owner:
            projection.add(claim.use._replace(end=ENDLESS))
    return projection


def starts_are_kept(timeline: Timeline, candidate: TimedUsage, since: int) -> bool:
    """Whether, at every instant, each owner whose planned start has come still fits beside the candidate."""
    last = max((claim.date for claim in timeline.claims.values()), default=0) + HORIZON
    for at in range(since, min(last, candidate.end)):
        for claim in timeline.claims.values():
            if claim.date <= at < claim.use.end and claim.date >= since:
                projection = scratch(timeline, at, owner=claim.owner)
                projection.add(candidate._replace(end=ENDLESS))
                if not projection.fits(claim.use):
                    return False
    return True


@SMALL
@given(cases_with_drops, st.data())
def test_projections_that_are_updated_equal_those_built_from_scratch(case: TimelineCase, data: st.DataObject) -> None:
    """TL-L1."""
    timeline = case.timeline()
    timeline.allows(Candidate("candidate", use_of(case, case.candidate)), 0)  # builds the projections
    for step in range(data.draw(st.integers(0, 6))):
        use = use_of(case, data.draw(rows))
        for owner in timeline.claims:  # one that fits is not compared again before its projection changes
            timeline.fits_at_date(owner)
        match data.draw(st.sampled_from(("add", "end", "claim", "withdraw", "restore"))):
            case "add":
                timeline.add_use(f"new-{step}", use)
            case "end" if timeline.uses:
                timeline.remove_use(data.draw(st.sampled_from(sorted(timeline.uses))))
            case "claim":
                timeline.add_claim(Claim(f"new-{step}", use, data.draw(st.integers(0, HORIZON))))
            case "withdraw" if timeline.claims:
                timeline.remove_claim(data.draw(st.sampled_from(sorted(timeline.claims))))
            case "restore" if timeline.claims:
                owner = data.draw(st.sampled_from(sorted(timeline.claims)))
                projection, claim = timeline.built_projection(owner), timeline.remove_claim(owner)
                assert claim is not None
                timeline.add_claim(claim, projection)
    for owner, claim in timeline.claims.items():
        expected = scratch(timeline, claim.date, owner=owner)
        assert timeline.projection_of(owner).figures() == expected.figures()
        assert timeline.fits_at_date(owner) is expected.fits(claim.use)


def test_an_owner_that_was_found_to_fit_is_compared_again_with_new_usage_and_new_claims() -> None:
    four = Quota(4, UNLIMITED, UNLIMITED)
    timeline = TimelineCase(((four, four),), ((0, 4, 0, 10),), ((0, 3, 0, 5),), (0, 0, 0, 0)).timeline()
    assert timeline.claims["owner-0"].date == 10
    assert timeline.fits_at_date("owner-0")
    two = TimedUsage("q0", ((0, 2),), 20)
    timeline.add_claim(Claim("new", two, 8))
    assert not timeline.fits_at_date("owner-0")
    timeline.remove_claim("new")
    assert timeline.fits_at_date("owner-0")
    timeline.add_use("new", two)
    assert not timeline.fits_at_date("owner-0")
    timeline.remove_use("new")
    assert timeline.fits_at_date("owner-0")


@SMALL
@given(cases)
def test_asking_at_moments_equals_asking_at_every_instant(case: TimelineCase) -> None:
    """TL-L2."""
    timeline = case.timeline()
    candidate = use_of(case, case.candidate)
    at_moments = timeline.allows(Candidate("candidate", candidate), 0) is None
    assert at_moments or timeline.has_moment_before(candidate.end)
    assert at_moments is starts_are_kept(timeline, candidate, 0)


@SMALL
@given(cases)
def test_the_earliest_start_is_the_first_instant_that_fits(case: TimelineCase) -> None:
    """TL5, by trying every instant."""
    timeline = case.timeline()
    queue, cpu, gpu, limit = case.candidate
    use = use_of(case, (queue, cpu, gpu, 0))
    run_limit = RunLimit(limit, 1) if limit else None
    found = timeline.earliest("new", use.queue, use.usage, run_limit, 0)
    last = max((claim.use.end for claim in timeline.claims.values() if claim.use.end < ENDLESS), default=0)
    for at in range(max(last, HORIZON) + 1):
        end = run_limit.end(at) if run_limit else ENDLESS
        if scratch(timeline, at).fits(use) and starts_are_kept(timeline, use._replace(end=end), at + 1):
            assert found == at
            return
    assert found is None


@SMALL
@given(cases_with_drops)
def test_a_question_leaves_the_timeline_as_it_was(case: TimelineCase) -> None:
    """TL-L3."""
    timeline = case.timeline()
    before = {owner: timeline.projection_of(owner).figures() for owner in timeline.claims}
    candidate = use_of(case, case.candidate)
    first = timeline.allows(Candidate("candidate", candidate), 0)
    if "candidate" not in timeline.claims:
        timeline.earliest("candidate", candidate.queue, candidate.usage, None, 0)
    assert {owner: timeline.projection_of(owner).figures() for owner in timeline.claims} == before
    assert timeline.allows(Candidate("candidate", candidate), 0) == first


@SMALL
@given(cases_with_drops)
def test_a_candidate_that_is_allowed_exceeds_no_lowered_quota(case: TimelineCase) -> None:
    """TL4 of quota drops: at each drop before its end, its ClusterQueue is within nominal quota or without debt."""
    timeline = case.timeline()
    candidate = use_of(case, case.candidate)
    conflict = timeline.allows(Candidate("candidate", candidate), 0, lambda claim: False)
    assert conflict is None or timeline.has_moment_before(candidate.end)
    exceeded = []
    for at, _ in sorted(case.drops):
        projection = scratch(timeline, at)
        projection.add(candidate._replace(end=ENDLESS))
        node = projection.tree.queues[candidate.queue]
        if at < candidate.end and any(
            amount > 0 and node.usage[number] > node.subtree[number] and quota.balance(node, number) < 0
            for number, amount in candidate.usage
        ):
            exceeded.append(at)
    assert (conflict.at if conflict is not None else None) == (exceeded[0] if exceeded else None)
