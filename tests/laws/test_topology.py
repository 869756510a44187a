"""What holds of every placement, whatever the tree, the usage and the request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from pykueue.api import kube
from pykueue.core.topology import (
    HOSTNAME,
    DomainPods,
    PlacedPods,
    PlacementOptions,
    PlacementOutcome,
    PlacementRequest,
    SliceLayer,
    TopologyCache,
    TopologyFlavor,
    TopologyNode,
    TopologyPlacement,
    TopologyRequest,
    TopologyRequestMode,
    figure,
    place,
)
from pykueue.core.topology.capacity import Capacity

LEVELS = ("example.com/block", "example.com/rack", HOSTNAME)
CORE = 1000


@dataclass(frozen=True)
class Host:
    """A node of the test's own model: its domains, its capacity and its usage."""

    block: int
    rack: int
    number: int
    cores: int
    pods: int
    used: int

    @property
    def name(self) -> str:
        return f"h{self.number}"

    @property
    def path(self) -> tuple[str, str, str]:
        return (f"b{self.block}", f"b{self.block}r{self.rack}", self.name)

    def node(self) -> TopologyNode:
        return TopologyNode(
            self.name, dict(zip(LEVELS, self.path, strict=True)), {"cpu": self.cores * CORE, "pods": self.pods}
        )

    def usage(self) -> PlacedPods:
        return pods_at({self.name: self.used}, CORE)


def pods_at(counts: dict[str, int], millis: int) -> PlacedPods:
    domains = tuple(DomainPods((name,), count) for name, count in counts.items())
    return PlacedPods("f", figure({"cpu": millis}), TopologyPlacement((HOSTNAME,), domains))


@st.composite
def clusters(draw: st.DrawFn) -> list[Host]:
    places = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=9))
    hosts = []
    for number, (block, rack) in enumerate(places):
        cores, pods = draw(st.integers(0, 6)), draw(st.integers(0, 8))
        hosts.append(Host(block, rack, number, cores, pods, draw(st.integers(0, 3))))
    return hosts


@st.composite
def topology_requests(
    draw: st.DrawFn, kinds: tuple[TopologyRequestMode, ...] = tuple(TopologyRequestMode)
) -> TopologyRequest:
    kind = draw(st.sampled_from(kinds))
    level = None if kind is TopologyRequestMode.UNCONSTRAINED else draw(st.integers(0, 2))
    layers: list[SliceLayer] = []
    size = 1
    for at in range(2, (level or 0) - 1, -1):
        if draw(st.booleans()):
            size *= draw(st.integers(1, 3))
            layers.insert(0, SliceLayer(LEVELS[at], size))
    return TopologyRequest(kind, None if level is None else LEVELS[level], tuple(layers))


@st.composite
def groups(
    draw: st.DrawFn, kinds: tuple[TopologyRequestMode, ...] = tuple(TopologyRequestMode)
) -> list[PlacementRequest]:
    """A pod set, alone or with a leader."""
    topology_request = draw(topology_requests(kinds))
    size = topology_request.slices[0].size if topology_request.slices else 1
    pod = figure({"cpu": draw(st.sampled_from([0, 500, 1000, 2000]))})
    workers = PlacementRequest("workers", "f", size * draw(st.integers(1, 6)), pod, topology_request, group="g")
    if draw(st.booleans()):
        return [workers]
    return [
        workers,
        structs.replace(workers, pod_set="leader", count=1, pod=figure({"cpu": draw(st.integers(0, 3)) * CORE})),
    ]


profiles = st.builds(PlacementOptions, mixed=st.booleans(), balanced=st.booleans())


def topology_cache_of(hosts: list[Host], profile: PlacementOptions = PlacementOptions()) -> TopologyCache:  # noqa: B008 - frozen
    topology_cache = TopologyCache(profile)
    topology_cache.put_flavor(TopologyFlavor("f", "t", LEVELS))
    for host in hosts:
        topology_cache.put_node(host.node())
    topology_cache.book([host.usage() for host in hosts])
    return topology_cache


def figures(topology_cache: TopologyCache) -> dict[str, dict[str, list[int]]]:
    """The remaining capacity of all nodes."""
    domains = topology_cache.domains("f")
    assert domains is not None
    return {
        name: {resource: list(column) for resource, column in capacity.amounts.items()}
        for name, capacity in (("free", domains.free), ("remaining", domains.remaining))
    }


def per_host(outcome: PlacementOutcome, pod_set: str) -> dict[str, int]:
    placement = outcome.placements.get(pod_set)
    return {domain.values[-1]: domain.count for domain in placement.domains} if placement else {}


def fitting_pods(host: Host, request: PlacementRequest) -> int:
    """Pods of a request that an otherwise untouched host still holds."""
    left = host.cores * CORE - host.used * CORE
    cpu = dict(request.pod).get("cpu", 0)
    return max(0, min(host.pods - host.used, left // cpu if cpu else 10**6))


@given(clusters(), groups(), profiles)
def test_every_pod_gets_a_place_and_no_host_more_than_it_has(
    hosts: list[Host], group: list[PlacementRequest], profile: PlacementOptions
) -> None:
    outcome = place(topology_cache_of(hosts, profile), group)
    if not outcome.fits:
        return
    asked = {request.pod_set: dict(request.pod)["cpu"] for request in group}
    for request in group:
        assert sum(per_host(outcome, request.pod_set).values()) == request.count
    for host in hosts:
        given_here = {name: per_host(outcome, name).get(host.name, 0) for name in asked}
        if any(given_here.values()):
            assert sum(given_here.values()) <= host.pods - host.used
            spent = sum(asked[name] * count for name, count in given_here.items())
            assert spent == 0 or spent <= (host.cores - host.used) * CORE


@given(clusters(), groups((TopologyRequestMode.REQUIRED,)), profiles)
def test_a_required_level_holds_all_pods_in_one_domain(
    hosts: list[Host], group: list[PlacementRequest], profile: PlacementOptions
) -> None:
    outcome = place(topology_cache_of(hosts, profile), group)
    if not outcome.fits:
        return
    level = LEVELS.index(group[0].topology_request.level or "")
    used = {name for request in group for name in per_host(outcome, request.pod_set)}
    assert len({host.path[level] for host in hosts if host.name in used}) == 1


@given(clusters(), groups(), profiles)
def test_slices_stay_whole_at_every_layer(
    hosts: list[Host], group: list[PlacementRequest], profile: PlacementOptions
) -> None:
    outcome = place(topology_cache_of(hosts, profile), group)
    if not outcome.fits:
        return
    placed = per_host(outcome, "workers")
    for layer in group[0].topology_request.slices:
        at = LEVELS.index(layer.level)
        per_domain: dict[str, int] = {}
        for host in hosts:
            per_domain[host.path[at]] = per_domain.get(host.path[at], 0) + placed.get(host.name, 0)
        assert all(count % layer.size == 0 for count in per_domain.values())


@given(clusters(), groups(), profiles)
def test_single_pods_are_placed_exactly_when_there_is_capacity(
    hosts: list[Host], group: list[PlacementRequest], profile: PlacementOptions
) -> None:
    """Counted the plain way: somewhere the workers fit beside the leader, in one domain where that is required."""
    workers, *leaders = [
        structs.replace(request, topology_request=structs.replace(request.topology_request, slices=()))
        for request in group
    ]
    level = (
        LEVELS.index(workers.topology_request.level or "")
        if workers.topology_request.mode is TopologyRequestMode.REQUIRED
        else None
    )
    domains = {host.path[level] if level is not None else "" for host in hosts}
    possible = False
    for domain in domains:
        here = [host for host in hosts if level is None or host.path[level] == domain]
        total = sum(fitting_pods(host, workers) for host in here)
        losses = (
            [0] if not leaders else [loss for host in here if (loss := _loss(host, workers, leaders[0])) is not None]
        )
        possible |= bool(losses) and total - min(losses) >= workers.count
    assert place(topology_cache_of(hosts, profile), [workers, *leaders]).fits is possible


def _loss(host: Host, workers: PlacementRequest, leader: PlacementRequest) -> int | None:
    """The workers that a leader on this host costs; None where it does not fit."""
    if fitting_pods(host, leader) < 1:
        return None
    cores = dict(leader.pod)["cpu"] // CORE
    beside = replace(host, cores=host.cores - cores, pods=host.pods - 1)
    return fitting_pods(host, workers) - fitting_pods(beside, workers)


@given(clusters(), groups(), profiles, st.booleans())
def test_placement_search_changes_nothing(
    hosts: list[Host], group: list[PlacementRequest], profile: PlacementOptions, emptied: bool
) -> None:
    topology_cache = topology_cache_of(hosts, profile)
    before = figures(topology_cache)
    first = place(topology_cache, group, emptied=emptied)
    assert figures(topology_cache) == before
    assert place(topology_cache, group, emptied=emptied) == first


@given(clusters(), st.data())
def test_undo_leaves_the_very_same_state(hosts: list[Host], data: st.DataObject) -> None:
    topology_cache = topology_cache_of(hosts)
    before = figures(topology_cache)
    changes = st.lists(st.tuples(st.booleans(), st.integers(0, 10), st.integers(1, 3), st.sampled_from([500, 1000])))
    mark = topology_cache.mark()
    for is_removal, number, count, millis in data.draw(changes):
        pods = [pods_at({f"h{number}": count}, millis)]
        (topology_cache.remove if is_removal else topology_cache.assume)(pods)
    topology_cache.undo(mark)
    assert figures(topology_cache) == before


@settings(max_examples=60)
@given(clusters(), st.lists(groups(), min_size=1, max_size=4), profiles, st.data())
def test_counts_updated_by_differences_decide_as_fresh_counts(
    hosts: list[Host], requests: list[list[PlacementRequest]], profile: PlacementOptions, data: st.DataObject
) -> None:
    """Requests in between make the kept figures; then hosts change, and both ways must agree."""
    kept = topology_cache_of(hosts, profile)
    for group in requests:
        place(kept, group)
    extra = {host.name: data.draw(st.integers(0, 2)) for host in hosts}
    kept.book([pods_at(extra, CORE)])
    fresh = topology_cache_of(hosts, profile)
    fresh.book([pods_at(extra, CORE)])
    for group in requests:
        assert place(kept, group) == place(fresh, group)


@given(clusters(), groups(), profiles, st.randoms())
def test_the_order_in_which_nodes_are_seen_does_not_matter(
    hosts: list[Host], group: list[PlacementRequest], profile: PlacementOptions, random: object
) -> None:
    shuffled = hosts.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert place(topology_cache_of(hosts, profile), group) == place(topology_cache_of(shuffled, profile), group)


@given(clusters(), groups(), profiles, st.integers(0, 2), st.integers(0, 2), st.integers(0, 6))
def test_an_empty_node_never_makes_a_placement_that_fitted_fail(
    hosts: list[Host], group: list[PlacementRequest], profile: PlacementOptions, block: int, rack: int, cores: int
) -> None:
    if not place(topology_cache_of(hosts, profile), group).fits:
        return
    more = [*hosts, Host(block, rack, len(hosts), cores, 8, 0)]
    assert place(topology_cache_of(more, profile), group).fits


# A tree that follows node changes, beside one that is built of the nodes of the end.

GPU = "example.com/gpu"
FLAVORS = (
    TopologyFlavor("f", "t", LEVELS),
    TopologyFlavor("labelled", "t", LEVELS, node_labels=(("example.com/pool", "p"),)),
    TopologyFlavor("racks", "r", LEVELS[:2]),
)


@st.composite
def topology_nodes(draw: st.DrawFn) -> TopologyNode:
    """One of five nodes, now and then with the hostname of another, an own resource, a taint or a missing label."""
    number = draw(st.integers(0, 4))
    hostname = draw(st.sampled_from([number, number, number, 0]))
    block, rack = draw(st.integers(0, 1)), draw(st.integers(0, 1))
    labels = dict(zip(LEVELS, (f"b{block}", f"b{block}r{rack}", f"h{hostname}"), strict=True))
    if draw(st.booleans()):
        labels["example.com/pool"] = "p"
    if draw(st.integers(0, 5)) == 0:
        del labels[draw(st.sampled_from(LEVELS))]
    allocatable = {"cpu": draw(st.integers(0, 4)) * CORE, "pods": 8}
    if draw(st.booleans()):
        allocatable[GPU] = draw(st.integers(0, 2))
    taints = (kube.Taint(key="example.com/taint", effect="NoSchedule"),) if draw(st.integers(0, 4)) == 0 else ()
    return TopologyNode(f"n{number}", labels, allocatable, taints)


def bookings() -> st.SearchStrategy[PlacedPods]:
    of_host = st.builds(
        lambda flavor, host, count: PlacedPods(
            flavor,
            figure({"cpu": CORE, GPU: 1}),
            TopologyPlacement((HOSTNAME,), (DomainPods((f"h{host}",), count),)),
        ),
        st.sampled_from(["f", "labelled"]),
        st.integers(0, 4),
        st.integers(1, 2),
    )
    of_rack = st.builds(
        lambda block, rack, count: PlacedPods(
            "racks",
            figure({"cpu": CORE}),
            TopologyPlacement(LEVELS[:2], (DomainPods((f"b{block}", f"b{block}r{rack}"), count),)),
        ),
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(1, 2),
    )
    return st.one_of(of_host, of_rack)


def cache_changes() -> st.SearchStrategy[list[tuple[str, object]]]:
    return st.lists(
        st.one_of(
            st.tuples(st.just("put"), topology_nodes()),
            st.tuples(st.just("put"), topology_nodes()),
            st.tuples(st.just("drop"), st.sampled_from([f"n{number}" for number in range(5)])),
            st.tuples(st.just("book"), bookings()),
            st.tuples(
                st.just("outside"),
                st.tuples(
                    st.sampled_from([f"n{number}" for number in range(5)]),
                    st.dictionaries(st.sampled_from(["cpu", "pods", GPU]), st.integers(0, 3)),
                ),
            ),
            st.tuples(st.just("query"), st.sampled_from([flavor.name for flavor in FLAVORS])),
        ),
        max_size=25,
    )


def apply_change(topology_cache: TopologyCache, change: tuple[str, object]) -> None:
    match change:
        case "put", TopologyNode() as node:
            topology_cache.put_node(node)
        case "drop", str(name):
            topology_cache.drop_node(name)
        case "book", PlacedPods() as pods:
            topology_cache.book([pods])
        case "outside", (str(name), dict(amounts)):
            topology_cache.put_outside_usage(name, amounts)


def asked_of(flavor: str) -> list[PlacementRequest]:
    """One request of each mode; their counts are kept by the cache."""
    return [
        PlacementRequest("workers", flavor, 2, figure({"cpu": CORE}), TopologyRequest(mode, level), group="g")
        for mode, level in (
            (TopologyRequestMode.REQUIRED, LEVELS[1]),
            (TopologyRequestMode.PREFERRED, LEVELS[0]),
            (TopologyRequestMode.UNCONSTRAINED, None),
        )
    ]


def columns_of(capacity: Capacity) -> dict[str, list[int]]:
    return {resource: list(column) for resource, column in capacity.amounts.items()}


def gpu_node(rack: int) -> TopologyNode:
    path = ("b0", f"b0r{rack}", "h0")
    return TopologyNode("n0", dict(zip(LEVELS, path, strict=True)), {"cpu": CORE, "pods": 8, GPU: 1})


@settings(max_examples=400)
@example([("put", gpu_node(0)), ("query", "f"), ("put", gpu_node(1))], PlacementOptions())
@given(cache_changes(), profiles)
def test_a_tree_that_follows_node_changes_is_as_one_built_of_the_nodes(
    changes: list[tuple[str, object]], profile: PlacementOptions
) -> None:
    """Queries in between make and keep the trees; in the fresh cache they are first asked for at the end."""
    followed, fresh = TopologyCache(profile), TopologyCache(profile)
    for flavor in FLAVORS:
        followed.put_flavor(flavor)
        fresh.put_flavor(flavor)
        followed.domains(flavor.name)
    for change in changes:
        apply_change(followed, change)
        apply_change(fresh, change)
        if change[0] == "query":
            for request in asked_of(str(change[1])):
                place(followed, [request])
    for flavor in FLAVORS:
        one, two = followed.domains(flavor.name), fresh.domains(flavor.name)
        assert one is not None
        assert two is not None
        assert one.tree == two.tree
        assert columns_of(one.free) == columns_of(two.free)
        assert columns_of(one.remaining) == columns_of(two.remaining)
        for request in asked_of(flavor.name):
            assert place(followed, [request]) == place(fresh, [request])
            assert place(followed, [request], emptied=True) == place(fresh, [request], emptied=True)
