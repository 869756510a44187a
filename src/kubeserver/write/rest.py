"""The verbs, the same for any kind.

A write reads the newest object, makes its successor, and queues it, all in one turn of the event loop: nobody can come
in between, and no lock is needed. Only where a webhook has to be asked does the loop turn meanwhile; then the object is
looked at again, and if it has moved the write starts over (or conflicts, where the client named a revision).

The stations of every write, in order: read → what is unknown → prune → default → ownership → mutating hooks → what only
the server may say → validation → validating hooks → nothing changed? → stored.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from kubemachinery import meta, status
from kubemachinery.clock import Clock
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.serving.negotiation import Representation
from kubeserver import apply
from kubeserver.admission import chain
from kubeserver.admission.chain import Admission
from kubeserver.protocol import bodies
from kubeserver.protocol.cooperative import LONG_BYTES, Workers
from kubeserver.registry import metadata, namespaces, patching, representations, scale
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import Call, Outcome
from kubeserver.storage.entries import Entry
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import Key, Op
from kubeserver.write import comparison, deletion, prepare
from kubeserver.write.deletion import DeleteOptions

T = TypeVar("T")

NAME_ATTEMPTS: Final = 8
# How often a write starts over because others were faster while a webhook was asked.
RACE_ATTEMPTS: Final = 20
# A deletion of these is answered with what was deleted; of all others, with a Status.
_SHOWN_WHEN_DELETED: Final = frozenset({"pods", "serviceaccounts", "podtemplates"})


class Rest:
    """The verbs over one set of objects."""

    def __init__(
        self,
        objects: Objects,
        registry: Registry,
        hooks: Admission,
        clock: Clock,
        rng: random.Random,
        workers: Workers | None = None,
    ) -> None:
        self._workers = workers or Workers()
        self._objects = objects
        self._registry = registry
        self._admission = hooks
        self._clock = clock
        self._chance = rng

    # --- Reading ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        entry = self._objects.get(Key(resource.group_resource, namespace, name))
        if entry is None:
            raise status.not_found(resource.group, resource.plural, name)
        return entry

    def tree(self, resource: Resource, entry: Entry) -> Tree:
        """A fresh tree of an entry, in the version of `resource`. The caller may change it."""
        return representations.Presenter(self._registry, self._clock, resource, Representation()).tree(entry)

    # --- Create -------------------------------------------------------------------------------------------------------

    async def create(self, call: Call, sent: Tree) -> Outcome:
        now = self._now()

        def received() -> Tree:
            tree = prepare.received(call, sent)
            target = self._registry.target(call.resource, "")
            _own(tree, apply.track_update(None, tree, manager=call.manager, target=target, now=now))
            return tree

        return await self._create(call, await self._work(call, received))

    async def _work(self, call: Call, function: Callable[[], T], live: Entry | None = None) -> T:
        """The result of work on an object that no other task has; long work is done in a thread.

        Other writes may come in between, so the caller compares `live` with the newest object afterwards.
        """
        is_long = call.is_long or call.resource.costly or (live is not None and len(live.body) > LONG_BYTES)
        return await self._workers.run(call.user.name, function, is_long=is_long)

    async def _create(self, call: Call, tree: Tree) -> Outcome:
        """From a tree with its owners to a stored object."""
        resource, rules = call.resource, call.resource.rules
        if tree["metadata"].get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(call)
        before = self._objects.next_revision
        tree = await self._admission.mutated(call, chain.CREATE, tree, None)
        details = tree["metadata"]
        metadata.begin(details, self._uid(), self._now(), generation=resource.generation)
        await self._name(call, details)
        if resource.has_status and resource.custom:
            tree.pop("status", None)
        rules.on_create(tree)
        await self._work(call, lambda: prepare.validate(call, tree, None))
        await self._admission.validated(call, chain.CREATE, tree, None)
        if self._objects.next_revision != before:
            # Somebody was faster while a webhook was asked: look once more.
            self._check_namespace(call)
            await self._refuse_taken(call)
        return await self._store(call, Op.ADDED, tree, code=201)

    async def _name(self, call: Call, details: Tree) -> None:
        """The name that was given, or one that is free."""
        resource, base = call.resource, details.get("generateName") or ""
        if details.get("name") or not base:
            call.name = details.get("name", "")
            await self._refuse_taken(call)
            return
        for _ in range(NAME_ATTEMPTS):
            call.name = details["name"] = metadata.generate_name(base, self._chance)
            if self._objects.latest(call.key) is None:
                return
        raise status.generated_name_taken(resource.group, resource.plural, call.name)

    async def _refuse_taken(self, call: Call) -> None:
        if self._objects.latest(call.key) is not None:
            await self._objects.settled(call.key)
            raise status.already_exists(call.resource.group, call.resource.plural, call.name)

    def _now(self) -> str:
        """The time as objects have it. Cut to the second here, so that the text is made once a second."""
        return meta.format_time(self._clock.now() // meta.SECOND * meta.SECOND)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def _check_namespace(self, call: Call) -> None:
        if call.resource.namespaced:
            namespaces.check_open(self._objects.latest(namespaces.key(call.namespace)), call)

    # --- Update -------------------------------------------------------------------------------------------------------

    async def update(self, call: Call, sent: Tree) -> Outcome:
        if self._objects.latest(call.key) is None:
            if call.resource.create_on_update and not call.subresource:
                return await self.create(call, sent)
            # What is wrong with the body is told before that there is nothing to put it in the place of.
            _replacement(call, sent)
            raise call.not_found()

        def change(old: Tree) -> Tree:
            tree = _replacement(call, comparison.sharing(sent, old), old)
            if not tree["metadata"].get("resourceVersion") and not call.resource.unconditional_update:
                why = "must be specified for an update"
                raise call.invalid([FieldError("metadata.resourceVersion", ErrorType.INVALID, why, 0)])
            return tree

        return await self._update(call, change)

    async def _update(
        self, call: Call, change: Callable[[Tree], Tree], *, owned: bool = False, in_place: bool = False
    ) -> Outcome:
        """Replace an object by what `change` makes of it.

        `owned`: the change says who owns what (apply). `in_place`: it changes the tree that it is given.
        """
        resource = call.resource
        for _ in range(RACE_ATTEMPTS):
            live = self._objects.latest(call.key)
            if live is None:
                raise call.not_found()
            old = self.tree(resource, live)
            # A successor shares with its origin what it leaves alone, and what is shared need not be looked at again.
            # That holds where nobody changes the successor in place: hooks may.
            by_hooks = self._admission.may_change(resource, chain.UPDATE, call.subresource)
            shared = self._is_settled(call) and not in_place and not by_hooks
            new = await self._changed(call, change, live, old, shared=shared)
            await self._check_preconditions(call, live, new["metadata"])
            new = await self._work(call, partial(self._separated, call, new, old, owned=owned), live)
            outcome = await self._replace(call, live, new, old)
            if outcome is not None:
                return outcome
        raise call.modified()

    async def _changed(
        self, call: Call, change: Callable[[Tree], Tree], live: Entry, old: Tree, *, shared: bool
    ) -> Tree:
        return await self._work(call, lambda: change(old if shared else self.tree(call.resource, live)), live)

    def _is_settled(self, call: Call) -> bool:
        """Whether the newest object was written under the schema of today, and has passed all that is asked now.

        Never of a built-in kind: their rules change with the program, and change objects in place.
        """
        live = self._objects.latest(call.key)
        return call.resource.custom and live is not None and live.revision >= call.resource.schema_revision

    async def _check_preconditions(self, call: Call, live: Entry, details: Tree) -> None:
        revision, uid = details.get("resourceVersion"), details.get("uid")
        if uid and uid != live.uid:
            await self._objects.settled(call.key)
            raise call.conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live.uid}")
        if revision and revision != str(live.revision):
            await self._objects.settled(call.key)
            raise call.modified()

    def _separated(self, call: Call, new: Tree, old: Tree, *, owned: bool) -> Tree:
        """What this door lets through, with the owners of all fields."""
        resource, rules = call.resource, call.resource.rules
        if owned:
            owners = new["metadata"].get("managedFields") or []
        else:
            owners = apply.track_update(
                old,
                new,
                manager=call.manager,
                target=self._registry.target(resource, call.subresource),
                now=self._now(),
                settled=self._is_settled(call),
            )
        metadata.carry_over(new["metadata"], old["metadata"])
        match call.subresource:
            case "status":
                kept = old["metadata"] if resource.custom else new["metadata"]
                new = {**old, "metadata": dict(kept), "status": new.get("status")}
                if new["status"] is None:
                    del new["status"]
                rules.on_status(new, old)
            case "finalize":
                finalizers = (new.get("spec") or {}).get("finalizers") or []
                spec = {**(old.get("spec") or {}), "finalizers": finalizers}
                new = {**old, "metadata": new["metadata"], "spec": spec}
            case _:
                if resource.has_status:
                    new.pop("status", None)
                    if "status" in old:
                        new["status"] = old["status"]
                rules.on_update(new, old)
        new["metadata"].pop("resourceVersion", None)
        _own(new, owners)
        return new

    async def _replace(self, call: Call, live: Entry, new: Tree, old: Tree) -> Outcome | None:
        """Store the successor of `live`; None where somebody else stored one meanwhile."""
        resource = call.resource
        new = await self._admission.mutated(call, chain.UPDATE, new, old)
        if resource.generation:
            changed = not resource.still and comparison.spec_changed(resource, new, old, call.subresource)
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + (1 if changed else 0)
        validated = partial(prepare.validate, call, new, old)
        await self._work(call, validated, live)
        await self._admission.validated(call, chain.UPDATE, new, old)
        if self._objects.latest(call.key) is not live:
            return None
        if deletion.is_over(new):
            await self._remove(call, live, new)
            return Outcome(tree=new)
        return await self._succeed(call, live, new, old)

    async def change(self, call: Call, alter: Callable[[Tree], None]) -> Outcome:
        """Change the newest object in place; for the server's own controllers."""

        def change(old: Tree) -> Tree:
            alter(old)
            metadata.prune(old["metadata"])
            return old

        return await self._update(call, change, in_place=True)

    async def rescale(self, call: Call, change: Callable[[Tree], Any]) -> Outcome:
        """Write the Scale that `change` makes of the one that the newest object shows."""
        where = call.resource.scaling
        assert where is not None, "the resource has no scale"

        def rescaled(old: Tree) -> Tree:
            wanted = scale.read(change(scale.shown(where, old)))
            prepare.place(call, metadata.read(wanted))
            if not call.resource.custom:
                scale.refuse_negative(wanted, call.name)
            return scale.rescaled(where, old, wanted)

        return await self._update(call, rescaled)

    async def patch_scale(self, call: Call, kind: str, patch: Any) -> Outcome:
        shown_as = scale.kind(call.resource)
        return await self.rescale(call, lambda shown: patching.patched(call, kind, shown, patch, shown_as=shown_as))

    # --- Patch --------------------------------------------------------------------------------------------------------

    async def patch(self, call: Call, kind: str, patch: Any) -> Outcome:
        """Apply a JSON patch, a merge patch or a strategic merge patch to the newest object."""

        def change(old: Tree) -> Tree:
            new = patching.patched(call, kind, old, patch)
            if not isinstance(new, dict):
                raise status.bad_request("the patch leaves no object behind")
            return prepare.received(call, new, old)

        return await self._update(call, change)

    async def apply(self, call: Call, configuration: Tree) -> Outcome:
        """Server-side apply: create, or merge what this manager wants into what there is."""
        prepare.check_kind(call.resource, configuration, must_say=True)
        details = metadata.read(configuration)
        prepare.place(call, details)
        await self._work(call, lambda: prepare.check_unknown(call, configuration))
        now = self._now()
        if self._objects.latest(call.key) is not None:
            return await self._update(call, lambda old: self._merged(call, configuration, old, now), owned=True)
        if call.subresource:
            raise call.not_found()
        if details.get("resourceVersion") or details.get("uid"):
            raise call.conflict(
                "uid mismatch: the provided object specified a uid or a revision, and no existing object was found"
            )
        tree = await self._work(call, lambda: self._merged(call, configuration, None, now))
        prepare.place(call, tree["metadata"])
        return await self._create(call, tree)

    def _merged(self, call: Call, configuration: Tree, old: Tree | None, now: str) -> Tree:
        """What becomes of an object, or of none, when a configuration is applied to it."""
        resource, rules = call.resource, call.resource.rules
        outcome = apply.apply(
            old,
            configuration,
            manager=call.manager,
            force=call.force,
            target=self._registry.target(resource, call.subresource),
            now=now,
            settled=self._is_settled(call),
        )
        match outcome:
            case apply.Conflicts():
                raise status.apply_conflict(outcome.message, outcome.causes)
            case apply.Refused(message):
                raise status.bad_request(message)
            case apply.Applied(tree):
                tree = dict(tree)
                metadata.read(tree)
                # Apply takes no field that the schema does not have, so there is nothing to prune.
                tree = rules.default(tree if resource.custom else rules.prune(tree), old)
                metadata.prune(tree["metadata"])
                return tree
        raise AssertionError(outcome)

    # --- Delete -------------------------------------------------------------------------------------------------------

    async def delete(self, call: Call, options: Mapping[str, Any] | None = None) -> Outcome:
        wanted = DeleteOptions.read(options or {})
        resource = call.resource
        for _ in range(RACE_ATTEMPTS):
            live = self._objects.latest(call.key)
            if live is None:
                raise call.not_found()
            old, new = self.tree(resource, live), self.tree(resource, live)
            await self._check_preconditions(call, live, wanted.preconditions)
            namespaces.refuse_protected(call.key)
            await self._admission.validated(call, chain.DELETE, None, old)
            if self._objects.latest(call.key) is not live:
                continue
            return await self._delete(call, wanted, live, new, old)
        raise call.modified()

    async def _delete(self, call: Call, wanted: DeleteOptions, live: Entry, new: Tree, old: Tree) -> Outcome:
        resource = call.resource
        deletion.begin(call, wanted, new, self._clock.now())
        if deletion.is_over(new):
            # Of a kind that winds up, even an end without delay is marked; others go as they were.
            last = new if resource.grace_seconds is not None else old
            gone = await self._remove(call, live, last)
            return Outcome(tree=last) if resource.group_resource in _SHOWN_WHEN_DELETED else gone
        return await self._succeed(call, live, new, old)

    async def _remove(self, call: Call, live: Entry, last: Tree) -> Outcome:
        """Take the object away; its last state goes to the watchers under the deletion's own revision."""
        resource = call.resource
        details = {"name": call.name, "group": resource.group, "kind": resource.plural, "uid": live.uid}
        outcome = Outcome(tree=status.success({key: value for key, value in details.items() if value}))
        if call.dry_run:
            return outcome
        await self._store(call, Op.DELETED, last)
        return outcome

    # --- Storing ------------------------------------------------------------------------------------------------------

    async def _succeed(self, call: Call, live: Entry, new: Tree, old: Tree) -> Outcome:
        """Store the successor of `live`, unless it says the same."""
        if comparison.same(new, old):
            await self._objects.settled(call.key)
            return Outcome(entry=live)
        return await self._store(call, Op.MODIFIED, new)

    async def _store(self, call: Call, op: Op, tree: Tree, *, code: int = 200) -> Outcome:
        """Give the object its revision and have it kept."""
        resource = call.resource
        if call.dry_run:
            # What is not stored has no revision; what would have been changed still has its own.
            tree["metadata"].pop("resourceVersion", None)
            if (live := self._objects.latest(call.key)) is not None:
                tree["metadata"]["resourceVersion"] = str(live.revision)
            return Outcome(code=code, tree=tree)
        uid = tree["metadata"]["uid"]
        stored = self._registry.stored_as(resource.group_resource) or resource
        if stored.api_version != resource.api_version:
            tree = self._registry.convert(resource)(tree, stored.api_version)
        self._objects.refuse_when_failed()
        tree["metadata"]["resourceVersion"] = str(self._objects.next_revision)
        body = representations.encode(stored, tree)
        bodies.check_size(body)
        entry, kept = self._objects.write(op, call.key, uid, body, ephemeral=resource.ephemeral)
        # Shielded: the future is shared with others, and the write goes on whether or not this client waits.
        await asyncio.shield(kept)
        return Outcome(code=code, entry=entry)


def _replacement(call: Call, sent: Tree, old: Tree | None = None) -> Tree:
    """The object that is to take the place of another."""
    tree = prepare.received(call, sent, old)
    revision = tree["metadata"].get("resourceVersion") or ""
    if revision and not revision.isdecimal():
        raise status.bad_request(f"resourceVersion {revision!r} is not a revision")
    return tree


def _own(tree: Tree, owners: list[Tree]) -> None:
    if owners:
        tree["metadata"]["managedFields"] = owners
    else:
        tree["metadata"].pop("managedFields", None)
