"""The nodes of the cluster as the flavors see them, and what of them is in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykueue.core.topology.values import DEFAULT, Flavor, Node, PlacedPods, Profile, Wish


class Fleet:
    """Nodes, topology flavors and usage. Lasting changes and what-ifs are separate doors; see the package's words."""

    def __init__(self, profile: Profile = DEFAULT) -> None:
        self.profile = profile

    # What watched objects say; lasting.

    def put_node(self, node: Node) -> None:
        """A Ready, schedulable node appeared or changed; an unchanged one costs nothing."""
        raise NotImplementedError

    def drop_node(self, name: str) -> None:
        """The node is gone, not Ready or unschedulable; usage recorded on it waits for its return."""
        raise NotImplementedError

    def put_flavor(self, flavor: Flavor) -> None:
        """A ResourceFlavor whose topology is known appeared or changed."""
        raise NotImplementedError

    def drop_flavor(self, name: str) -> None:
        raise NotImplementedError

    def put_outside_usage(self, node: str, amounts: Mapping[str, int]) -> None:
        """All that pods without a placement use on the node, `pods` included; replaces what was said before."""
        raise NotImplementedError

    def book(self, usage: Iterable[PlacedPods]) -> None:
        """A reservation stands: every flavor that selects these nodes sees it."""
        raise NotImplementedError

    def release(self, usage: Iterable[PlacedPods]) -> None:
        """A reservation that was booked is over."""
        raise NotImplementedError

    # Questions.

    def has_flavor(self, name: str) -> bool:
        """Whether the flavor's topology is known."""
        raise NotImplementedError

    def has_levels(self, flavor: str, wish: Wish) -> bool:
        """Whether the flavor's topology has every level the wish names."""
        raise NotImplementedError

    def fits(self, usage: Iterable[PlacedPods]) -> bool:
        """Whether every domain of the usage still holds its pods, each pod set looked at alone, `pods` not counted."""
        raise NotImplementedError

    # What-ifs, seen by the flavor they name only.

    def assume(self, usage: Iterable[PlacedPods]) -> None:
        """Count the usage until it is undone."""
        raise NotImplementedError

    def remove(self, usage: Iterable[PlacedPods]) -> None:
        """Count the usage as gone until it is undone."""
        raise NotImplementedError

    def mark(self) -> int:
        """A point to come back to."""
        raise NotImplementedError

    def undo(self, mark: int) -> None:
        """Take back every `assume` and `remove` since `mark`; marks are undone latest first."""
        raise NotImplementedError
