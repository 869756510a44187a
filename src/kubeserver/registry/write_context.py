"""One write: what is asked for, what it comes to, and the words for what can go wrong with its object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubemachinery import status
from kubemachinery.field_errors import FieldError
from kubeserver.protocol.authentication import RequestUser
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.sqlite import StoreKey


@dataclass(slots=True, kw_only=True)
class WriteContext:
    """One request to change something: to what, by whom, and under which options."""

    resource: Resource
    user: RequestUser
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    force: bool = False
    options: Tree = field(default_factory=dict)
    # The body is a patch, and what is wrong with the object that it makes is told of the patch.
    patches: bool = False
    # What is odd about the text of the body, such as keys that are there twice: afterwards nobody can tell.
    oddities: Sequence[str] = ()
    warnings: list[str] = field(default_factory=list)
    # Its body is so large, or asks for so much, that the work on it does not belong on the event loop.
    is_long: bool = False

    @property
    def key(self) -> StoreKey:
        return StoreKey(self.resource.group_resource, self.namespace, self.name)

    def not_found(self) -> status.StatusError:
        return status.not_found(self.resource.group, self.resource.plural, self.name)

    def modified(self) -> status.StatusError:
        return status.modified(self.resource.group, self.resource.plural, self.name)

    def conflict(self, why: str) -> status.StatusError:
        return status.conflict(self.resource.group, self.resource.plural, self.name, why)

    def invalid(self, errors: Sequence[FieldError]) -> status.StatusError:
        return status.invalid(self.resource.group, self.resource.kind, self.name, errors)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write came to: the stored entry, or (dry run, deletion) the tree to show."""

    code: int = 200
    entry: ObjectEntry | None = None
    tree: Tree | None = None
