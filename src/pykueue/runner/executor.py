"""What runs containers: the one seam between deciding about pods and what a container really is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from kubemachinery.unstructured import Tree
from pykueue.runner.container_attempts import Attempts
from pykueue.runner.process_spec import StartProblem


class ContainerExecutor(Protocol):
    """Containers of pods, by the uid of their pod."""

    # Told the uid of a pod in which something started or ended.
    on_change: Callable[[str], None]

    def attempts(self, pod: Tree) -> Attempts:
        """What was tried until now, also by an earlier program."""
        ...

    async def start(self, pod: Tree, container: Tree, number: int) -> StartProblem | None:
        """Begin an attempt, or say what is in the way."""
        ...

    def stop(self, uid: str, container: str, *, kill: bool) -> None:
        """Ask the container to end, or end it."""
        ...

    async def discard(self, uid: str) -> None:
        """End whatever is left of a pod that is gone, and forget it."""
        ...

    def ignored(self, pod: Tree) -> Iterator[str]:
        """What the pod asks for and does not get."""
        ...
