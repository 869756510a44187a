"""The interface between decisions about pods and the implementation of a container."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from kubemachinery.unstructured import Tree
from pykueue.runner.container_attempts import Attempts
from pykueue.runner.process_spec import StartProblem


class ContainerExecutor(Protocol):
    """Runs containers; pods are identified by uid."""

    # Called with the uid of a pod in which a container started or ended.
    on_change: Callable[[str], None]

    def attempts(self, pod: Tree) -> Attempts:
        """Return the attempts so far, including those of an earlier runner process."""
        ...

    async def start(self, pod: Tree, container: Tree, number: int) -> StartProblem | None:
        """Start an attempt; return the problem if it cannot be started."""
        ...

    def stop(self, uid: str, container: str, *, kill: bool) -> None:
        """Terminate the container, or kill it."""
        ...

    async def discard(self, uid: str) -> None:
        """Kill what is left of a deleted pod and drop its records."""
        ...

    def ignored(self, pod: Tree) -> Iterator[str]:
        """Yield a sentence for each request of the pod that this executor ignores."""
        ...
