"""One write: its context, its result, and the Status errors for its object."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubemachinery import status
from kubemachinery.field_errors import FieldError
from kubeserver.protocol.authentication import RequestUser
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.sqlite import StoreKey


class WriteContext(msgspec.Struct, kw_only=True):
    """One write: its resource, object, user and options, and the warnings that it collects."""

    resource: Resource
    user: RequestUser
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    force: bool = False
    options: Tree = msgspec.field(default_factory=dict)
    # The body is a patch: errors of the object that it makes are reported for the field `patch`.
    patches: bool = False
    # Findings in the text of the body, such as duplicate keys, which the decoded tree does not show.
    oddities: Sequence[str] = ()
    warnings: list[str] = msgspec.field(default_factory=list)
    # The body was decoded from JSON, so that the tree that it makes is what its own JSON decodes to. Of trees that come
    # from elsewhere that is not known.
    is_json: bool = False
    # The body is so large, or causes so much work, that the work runs in a thread.
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


class WriteResult(msgspec.Struct, frozen=True):
    """The result of a write: the stored entry, or (dry run, deletion) the tree to respond with."""

    code: int = 200
    entry: ObjectEntry | None = None
    tree: Tree | None = None
