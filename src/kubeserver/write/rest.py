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
from kubeserver.admission.chain import AdmissionChain
from kubeserver.protocol import bodies
from kubeserver.protocol.cooperative import LONG_BYTES, Workers
from kubeserver.registry import metadata, namespaces, patching, representations, scale
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.registry.write_context import WriteContext, WriteResult
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import StoreKey, WriteOperation
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
        hooks: AdmissionChain,
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

    def get(self, resource: Resource, namespace: str, name: str) -> ObjectEntry:
        entry = self._objects.get(StoreKey(resource.group_resource, namespace, name))
        if entry is None:
            raise status.not_found(resource.group, resource.plural, name)
        return entry

    def tree(self, resource: Resource, entry: ObjectEntry) -> Tree:
        """A fresh tree of an entry, in the version of `resource`. The caller may change it."""
        return representations.Presenter(self._registry, self._clock, resource, Representation()).tree(entry)

    # --- Create -------------------------------------------------------------------------------------------------------

    async def create(self, context: WriteContext, sent: Tree) -> WriteResult:
        now = self._now()

        def received() -> Tree:
            tree = prepare.received(context, sent)
            target = self._registry.target(context.resource, "")
            _own(tree, apply.track_update(None, tree, manager=context.manager, target=target, now=now))
            return tree

        return await self._create(context, await self._work(context, received))

    async def _work(self, context: WriteContext, function: Callable[[], T], live: ObjectEntry | None = None) -> T:
        """The result of work on an object that no other task has; long work is done in a thread.

        Other writes may come in between, so the caller compares `live` with the newest object afterwards.
        """
        is_long = context.is_long or context.resource.costly or (live is not None and len(live.body) > LONG_BYTES)
        return await self._workers.run(context.user.name, function, is_long=is_long)

    async def _create(self, context: WriteContext, tree: Tree) -> WriteResult:
        """From a tree with its owners to a stored object."""
        resource, rules = context.resource, context.resource.rules
        if tree["metadata"].get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(context)
        before = self._objects.next_revision
        tree = await self._admission.mutated(context, chain.CREATE, tree, None)
        details = tree["metadata"]
        metadata.begin(details, self._uid(), self._now(), generation=resource.generation)
        await self._name(context, details)
        if resource.has_status and resource.custom:
            tree.pop("status", None)
        rules.on_create(tree)
        await self._work(context, lambda: prepare.validate(context, tree, None))
        await self._admission.validated(context, chain.CREATE, tree, None)
        if self._objects.next_revision != before:
            # Somebody was faster while a webhook was asked: look once more.
            self._check_namespace(context)
            await self._refuse_taken(context)
        return await self._store(context, WriteOperation.ADDED, tree, code=201)

    async def _name(self, context: WriteContext, details: Tree) -> None:
        """The name that was given, or one that is free."""
        resource, base = context.resource, details.get("generateName") or ""
        if details.get("name") or not base:
            context.name = details.get("name", "")
            await self._refuse_taken(context)
            return
        for _ in range(NAME_ATTEMPTS):
            context.name = details["name"] = metadata.generate_name(base, self._chance)
            if self._objects.latest(context.key) is None:
                return
        raise status.generated_name_taken(resource.group, resource.plural, context.name)

    async def _refuse_taken(self, context: WriteContext) -> None:
        if self._objects.latest(context.key) is not None:
            await self._objects.settled(context.key)
            raise status.already_exists(context.resource.group, context.resource.plural, context.name)

    def _now(self) -> str:
        """The time as objects have it. Cut to the second here, so that the text is made once a second."""
        return meta.format_time(self._clock.now() // meta.SECOND * meta.SECOND)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def _check_namespace(self, context: WriteContext) -> None:
        if context.resource.namespaced:
            namespaces.check_open(self._objects.latest(namespaces.key(context.namespace)), context)

    # --- Update -------------------------------------------------------------------------------------------------------

    async def update(self, context: WriteContext, sent: Tree) -> WriteResult:
        if self._objects.latest(context.key) is None:
            if context.resource.create_on_update and not context.subresource:
                return await self.create(context, sent)
            # What is wrong with the body is told before that there is nothing to put it in the place of.
            _replacement(context, sent)
            raise context.not_found()

        def change(old: Tree) -> Tree:
            tree = _replacement(context, comparison.sharing(sent, old), old)
            if not tree["metadata"].get("resourceVersion") and not context.resource.unconditional_update:
                why = "must be specified for an update"
                raise context.invalid([FieldError("metadata.resourceVersion", ErrorType.INVALID, why, 0)])
            return tree

        return await self._update(context, change)

    async def _update(
        self, context: WriteContext, change: Callable[[Tree], Tree], *, owned: bool = False, in_place: bool = False
    ) -> WriteResult:
        """Replace an object by what `change` makes of it.

        `owned`: the change says who owns what (apply). `in_place`: it changes the tree that it is given.
        """
        resource = context.resource
        for _ in range(RACE_ATTEMPTS):
            live = self._objects.latest(context.key)
            if live is None:
                raise context.not_found()
            old = self.tree(resource, live)
            # A successor shares with its origin what it leaves alone, and what is shared need not be looked at again.
            # That holds where nobody changes the successor in place: hooks may.
            by_hooks = self._admission.may_change(resource, chain.UPDATE, context.subresource)
            shared = self._is_settled(context) and not in_place and not by_hooks
            new = await self._changed(context, change, live, old, shared=shared)
            await self._check_preconditions(context, live, new["metadata"])
            new = await self._work(context, partial(self._separated, context, new, old, owned=owned), live)
            outcome = await self._replace(context, live, new, old)
            if outcome is not None:
                return outcome
        raise context.modified()

    async def _changed(
        self, context: WriteContext, change: Callable[[Tree], Tree], live: ObjectEntry, old: Tree, *, shared: bool
    ) -> Tree:
        return await self._work(context, lambda: change(old if shared else self.tree(context.resource, live)), live)

    def _is_settled(self, context: WriteContext) -> bool:
        """Whether the newest object was written under the schema of today, and has passed all that is asked now.

        Never of a built-in kind: their rules change with the program, and change objects in place.
        """
        live = self._objects.latest(context.key)
        return context.resource.custom and live is not None and live.revision >= context.resource.schema_revision

    async def _check_preconditions(self, context: WriteContext, live: ObjectEntry, details: Tree) -> None:
        revision, uid = details.get("resourceVersion"), details.get("uid")
        if uid and uid != live.uid:
            await self._objects.settled(context.key)
            raise context.conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live.uid}")
        if revision and revision != str(live.revision):
            await self._objects.settled(context.key)
            raise context.modified()

    def _separated(self, context: WriteContext, new: Tree, old: Tree, *, owned: bool) -> Tree:
        """What this door lets through, with the owners of all fields."""
        resource, rules = context.resource, context.resource.rules
        if owned:
            owners = new["metadata"].get("managedFields") or []
        else:
            owners = apply.track_update(
                old,
                new,
                manager=context.manager,
                target=self._registry.target(resource, context.subresource),
                now=self._now(),
                settled=self._is_settled(context),
            )
        metadata.carry_over(new["metadata"], old["metadata"])
        match context.subresource:
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

    async def _replace(self, context: WriteContext, live: ObjectEntry, new: Tree, old: Tree) -> WriteResult | None:
        """Store the successor of `live`; None where somebody else stored one meanwhile."""
        resource = context.resource
        new = await self._admission.mutated(context, chain.UPDATE, new, old)
        if resource.generation:
            changed = not resource.still and comparison.spec_changed(resource, new, old, context.subresource)
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + (1 if changed else 0)
        validated = partial(prepare.validate, context, new, old)
        await self._work(context, validated, live)
        await self._admission.validated(context, chain.UPDATE, new, old)
        if self._objects.latest(context.key) is not live:
            return None
        if deletion.is_over(new):
            await self._remove(context, live, new)
            return WriteResult(tree=new)
        return await self._succeed(context, live, new, old)

    async def change(self, context: WriteContext, alter: Callable[[Tree], None]) -> WriteResult:
        """Change the newest object in place; for the server's own controllers."""

        def change(old: Tree) -> Tree:
            alter(old)
            metadata.prune(old["metadata"])
            return old

        return await self._update(context, change, in_place=True)

    async def rescale(self, context: WriteContext, change: Callable[[Tree], Any]) -> WriteResult:
        """Write the Scale that `change` makes of the one that the newest object shows."""
        where = context.resource.scaling
        assert where is not None, "the resource has no scale"

        def rescaled(old: Tree) -> Tree:
            wanted = scale.read(change(scale.shown(where, old)))
            prepare.place(context, metadata.read(wanted))
            if not context.resource.custom:
                scale.refuse_negative(wanted, context.name)
            return scale.rescaled(where, old, wanted)

        return await self._update(context, rescaled)

    async def patch_scale(self, context: WriteContext, kind: str, patch: Any) -> WriteResult:
        shown_as = scale.kind(context.resource)
        return await self.rescale(
            context, lambda shown: patching.patched(context, kind, shown, patch, shown_as=shown_as)
        )

    # --- Patch --------------------------------------------------------------------------------------------------------

    async def patch(self, context: WriteContext, kind: str, patch: Any) -> WriteResult:
        """Apply a JSON patch, a merge patch or a strategic merge patch to the newest object."""

        def change(old: Tree) -> Tree:
            new = patching.patched(context, kind, old, patch)
            if not isinstance(new, dict):
                raise status.bad_request("the patch leaves no object behind")
            return prepare.received(context, new, old)

        return await self._update(context, change)

    async def apply(self, context: WriteContext, configuration: Tree) -> WriteResult:
        """Server-side apply: create, or merge what this manager wants into what there is."""
        prepare.check_kind(context.resource, configuration, must_say=True)
        details = metadata.read(configuration)
        prepare.place(context, details)
        await self._work(context, lambda: prepare.check_unknown(context, configuration))
        now = self._now()
        if self._objects.latest(context.key) is not None:
            return await self._update(context, lambda old: self._merged(context, configuration, old, now), owned=True)
        if context.subresource:
            raise context.not_found()
        if details.get("resourceVersion") or details.get("uid"):
            raise context.conflict(
                "uid mismatch: the provided object specified a uid or a revision, and no existing object was found"
            )
        tree = await self._work(context, lambda: self._merged(context, configuration, None, now))
        prepare.place(context, tree["metadata"])
        return await self._create(context, tree)

    def _merged(self, context: WriteContext, configuration: Tree, old: Tree | None, now: str) -> Tree:
        """What becomes of an object, or of none, when a configuration is applied to it."""
        resource, rules = context.resource, context.resource.rules
        outcome = apply.apply(
            old,
            configuration,
            manager=context.manager,
            force=context.force,
            target=self._registry.target(resource, context.subresource),
            now=now,
            settled=self._is_settled(context),
        )
        match outcome:
            case apply.ApplyConflicts():
                raise status.apply_conflict(outcome.message, outcome.causes)
            case apply.ApplyRefused(message):
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

    async def delete(self, context: WriteContext, options: Mapping[str, Any] | None = None) -> WriteResult:
        wanted = DeleteOptions.read(options or {})
        resource = context.resource
        for _ in range(RACE_ATTEMPTS):
            live = self._objects.latest(context.key)
            if live is None:
                raise context.not_found()
            old, new = self.tree(resource, live), self.tree(resource, live)
            await self._check_preconditions(context, live, wanted.preconditions)
            namespaces.refuse_protected(context.key)
            await self._admission.validated(context, chain.DELETE, None, old)
            if self._objects.latest(context.key) is not live:
                continue
            return await self._delete(context, wanted, live, new, old)
        raise context.modified()

    async def _delete(
        self, context: WriteContext, wanted: DeleteOptions, live: ObjectEntry, new: Tree, old: Tree
    ) -> WriteResult:
        resource = context.resource
        deletion.begin(context, wanted, new, self._clock.now())
        if deletion.is_over(new):
            # Of a kind that winds up, even an end without delay is marked; others go as they were.
            last = new if resource.grace_seconds is not None else old
            gone = await self._remove(context, live, last)
            return WriteResult(tree=last) if resource.group_resource in _SHOWN_WHEN_DELETED else gone
        return await self._succeed(context, live, new, old)

    async def _remove(self, context: WriteContext, live: ObjectEntry, last: Tree) -> WriteResult:
        """Take the object away; its last state goes to the watchers under the deletion's own revision."""
        resource = context.resource
        details = {"name": context.name, "group": resource.group, "kind": resource.plural, "uid": live.uid}
        outcome = WriteResult(tree=status.success({key: value for key, value in details.items() if value}))
        if context.dry_run:
            return outcome
        await self._store(context, WriteOperation.DELETED, last)
        return outcome

    # --- Storing ------------------------------------------------------------------------------------------------------

    async def _succeed(self, context: WriteContext, live: ObjectEntry, new: Tree, old: Tree) -> WriteResult:
        """Store the successor of `live`, unless it says the same."""
        if comparison.same(new, old):
            await self._objects.settled(context.key)
            return WriteResult(entry=live)
        return await self._store(context, WriteOperation.MODIFIED, new)

    async def _store(self, context: WriteContext, op: WriteOperation, tree: Tree, *, code: int = 200) -> WriteResult:
        """Give the object its revision and have it kept."""
        resource = context.resource
        if context.dry_run:
            # What is not stored has no revision; what would have been changed still has its own.
            tree["metadata"].pop("resourceVersion", None)
            if (live := self._objects.latest(context.key)) is not None:
                tree["metadata"]["resourceVersion"] = str(live.revision)
            return WriteResult(code=code, tree=tree)
        uid = tree["metadata"]["uid"]
        stored = self._registry.stored_as(resource.group_resource) or resource
        if stored.api_version != resource.api_version:
            tree = self._registry.convert(resource)(tree, stored.api_version)
        self._objects.refuse_when_failed()
        tree["metadata"]["resourceVersion"] = str(self._objects.next_revision)
        body = representations.encode(stored, tree)
        bodies.check_size(body)
        entry, kept = self._objects.write(op, context.key, uid, body, ephemeral=resource.ephemeral)
        # Shielded: the future is shared with others, and the write goes on whether or not this client waits.
        await asyncio.shield(kept)
        return WriteResult(code=code, entry=entry)


def _replacement(context: WriteContext, sent: Tree, old: Tree | None = None) -> Tree:
    """The object that is to take the place of another."""
    tree = prepare.received(context, sent, old)
    revision = tree["metadata"].get("resourceVersion") or ""
    if revision and not revision.isdecimal():
        raise status.bad_request(f"resourceVersion {revision!r} is not a revision")
    return tree


def _own(tree: Tree, owners: list[Tree]) -> None:
    if owners:
        tree["metadata"]["managedFields"] = owners
    else:
        tree["metadata"].pop("managedFields", None)
