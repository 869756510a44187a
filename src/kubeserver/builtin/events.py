"""Events: one stored object in two groups, the core group and `events.k8s.io`.

Both show the same stored objects: what a controller writes through one, `kubectl describe` reads through the other.
"""

from __future__ import annotations

from typing import Final

from kubemachinery import meta
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, invalid, required

CORE: Final = "v1"
EVENTS: Final = "events.k8s.io/v1"

# (core, events.k8s.io): the fields that differ in nothing but their name and place.
_RENAMED: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
# Of an event of the new face only its series goes on.
_FIXED: Final = (
    "regarding",
    "related",
    "reason",
    "action",
    "type",
    "note",
    "reportingController",
    "reportingInstance",
    "eventTime",
)
_NOTE_LENGTH: Final = 1024
_NAME_LENGTH: Final = 128


def convert(tree: Tree, api_version: str) -> Tree:
    """Return the Event in the form of the other group."""
    if tree.get("apiVersion") == api_version:
        return tree
    to_core = api_version == CORE
    names = {(events if to_core else core): (core if to_core else events) for core, events in _RENAMED}
    return {**{names.get(key, key): value for key, value in tree.items()}, "apiVersion": api_version}


def validate(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    """Validate an Event: v1 accepts nearly anything; events.k8s.io/v1 requires its fields, and most are immutable."""
    if new.get("apiVersion") == CORE:
        yield from _validate_old_face(new)
        return
    yield from _validate_new_face(new, is_new=old is None)
    if old is not None:
        yield from checks.immutable(new, old, "", *_FIXED)


def _validate_old_face(event: Tree) -> Errors:
    about = event.get("involvedObject", {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    # Events of what belongs to the whole cluster are kept in one of these.
    fits = about == namespace or (not about and namespace in ("", "default", "kube-system"))
    if not fits:
        yield invalid("involvedObject.namespace", about, "the event is kept in another namespace")


def _validate_new_face(event: Tree, *, is_new: bool) -> Errors:
    if is_new and not event.get("eventTime"):
        yield required("eventTime")
    if event.get("type") not in ("Normal", "Warning"):
        yield invalid("type", event.get("type", ""), "is Normal or Warning")
    for field in ("reason", "action", "reportingInstance"):
        if not event.get(field):
            yield required(field)
        elif len(event[field]) > _NAME_LENGTH:
            yield invalid(field, "", f"at most {_NAME_LENGTH} characters")
    controller = event.get("reportingController", "")
    if not controller:
        yield required("reportingController")
    if meta.check_qualified_name(controller):
        yield invalid("reportingController", controller, "must be a qualified name")
    if len(event.get("note", "")) > _NOTE_LENGTH:
        yield invalid("note", "", f"at most {_NOTE_LENGTH} characters")
    for field in ("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount", "deprecatedSource"):
        if event.get(field):
            yield invalid(field, event[field], "is for events of the old face")
