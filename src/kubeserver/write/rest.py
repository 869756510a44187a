"""The verbs that write, the same for every kind.

A write reads the newest object, makes its successor and queues it, all in one turn of the event loop: no other write
comes in between, and no lock is needed. Only while a webhook is called, or long work runs in a thread, do other tasks
run; afterwards the newest object is read again, and if it has changed the write starts over (or fails with a conflict,
where the client sent a resourceVersion).

The steps of every write, in order: decode -> unknown fields -> prune -> default -> managedFields -> mutating admission
-> fields that only the server sets -> validation -> validating admission -> stored, unless nothing changed.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, assert_never

import msgspec

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
# How often a write starts over because the object changed while a webhook was called.
RACE_ATTEMPTS: Final = 20
# The trees of so many objects that were written last are kept: most of these are written again soon. A tree takes up to
# 30 times as much memory as its JSON, so their JSON may have so many bytes together: clients choose what they write.
WRITTEN_MAX: Final = 128
WRITTEN_BYTES_MAX: Final = 2 * 1024 * 1024
# The response to their deletion is the deleted object; for all other kinds it is a Status.
_SHOWN_WHEN_DELETED: Final = frozenset({"pods", "serviceaccounts", "podtemplates"})


class _Update(msgspec.Struct, frozen=True):
    """How the newest object becomes the next one: `make(old)` returns the new tree.

    `in_place`: it changes the tree that it is given and returns it. `is_read`: it ends with `prepare.received`, which
    copies what the rules of a built-in kind change later. `sets_managed_fields`: the new tree carries its managedFields
    (apply); otherwise they are computed from the difference.
    """

    make: Callable[[Tree], Tree]
    in_place: bool = False
    is_read: bool = False
    sets_managed_fields: bool = False


class UpdateBase(msgspec.Struct, frozen=True):
    """The stored object as a tree, and whether an update may build on that very tree (`is_shared`) or gets a copy.

    On a shared base the new tree holds the parts that the update leaves alone, and later steps skip parts that are
    identical. That is sound only where nothing changes trees in place: a step that did would change `old` along with
    the new tree, and the write would look like no change, or ownership would be lost.
    """

    old: Tree
    is_shared: bool

    def check(self, new: Tree) -> Tree:
        """Return the new tree. Later steps change the object and its metadata in place, so they must not be shared."""
        assert new is not self.old, "an update must not return the stored object itself"
        assert new["metadata"] is not self.old["metadata"], "an update must not share the stored metadata"
        return new


class Rest:
    """The write verbs over one store."""

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
        # Makes UIDs and generated names; a simulation seeds it, so that a run can be repeated.
        self._rng = rng
        # Later revisions were written by this process, with the present rules of the built-in kinds.
        self._opened_at = objects.revision
        self._written = WrittenTrees()

    # --- Reading ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> ObjectEntry:
        entry = self._objects.get(StoreKey(resource.group_resource, namespace, name))
        if entry is None:
            raise status.not_found(resource.group, resource.plural, name)
        return entry

    def tree(self, resource: Resource, entry: ObjectEntry) -> Tree:
        """Return a new tree of an entry, in the version of `resource`. The caller may change it."""
        return representations.Presenter(self._registry, self._clock, resource, Representation()).tree(entry)

    def _stored_tree(self, resource: Resource, entry: ObjectEntry) -> Tree:
        """Return the tree of an entry, in the version of `resource`. No step may change it."""
        found = self._written.get(entry) if entry.revision >= resource.schema_revision else None
        if found is None or found.get("apiVersion") != resource.api_version:
            return self.tree(resource, entry)
        return found

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
        """Return the result of work on a tree that no other task holds; long work runs in a thread.

        Other writes may happen meanwhile, so the caller compares `live` with the newest object afterwards.
        """
        is_long = context.is_long or context.resource.costly or (live is not None and len(live.body) > LONG_BYTES)
        return await self._workers.run(context.user.name, function, is_long=is_long)

    async def _create(self, context: WriteContext, tree: Tree) -> WriteResult:
        """Store a new object from a tree with its managedFields."""
        resource, rules = context.resource, context.resource.rules
        if tree["metadata"].get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(context)
        before = self._objects.next_revision
        tree = await self._admission.mutated(context, chain.CREATE, tree, None, partial(self._work, context))
        details = tree["metadata"]
        metadata.begin(details, self._uid(), self._now(), generation=resource.generation)
        context.name = self._name(context, details)
        if context.name:
            details["name"] = context.name
        if resource.has_status and resource.custom:
            tree.pop("status", None)
        rules.on_create(tree)
        await self._work(context, lambda: prepare.validate(context, tree, None))
        await self._admission.validated(context, chain.CREATE, tree, None)
        if self._objects.next_revision != before:
            # Other writes happened while a webhook was called: check again.
            self._check_namespace(context)
        # Last, as in kube-apiserver: an invalid object with the name of another is invalid.
        await self._refuse_taken(context)
        return await self._store(context, WriteOperation.ADDED, tree, code=201)

    def _name(self, context: WriteContext, details: Tree) -> str:
        """Return the name in the metadata, or a free one that begins with its generateName."""
        resource, base = context.resource, details.get("generateName") or ""
        if details.get("name") or not base:
            return str(details.get("name", ""))
        name = ""
        for _ in range(NAME_ATTEMPTS):
            name = metadata.generate_name(base, self._rng)
            if self._objects.latest(context.key._replace(name=name)) is None:
                return name
        raise status.generated_name_taken(resource.group, resource.plural, name)

    async def _refuse_taken(self, context: WriteContext) -> None:
        if self._objects.latest(context.key) is not None:
            await self._objects.settled(context.key)
            raise status.already_exists(context.resource.group, context.resource.plural, context.name)

    def _now(self) -> str:
        """Return the time as objects carry it, cut to the second, so that the text is made once a second."""
        return meta.format_time(self._clock.now() // meta.SECOND * meta.SECOND)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _check_namespace(self, context: WriteContext) -> None:
        if context.resource.namespaced:
            namespaces.check_open(self._objects.latest(namespaces.key(context.namespace)), context)

    # --- Update -------------------------------------------------------------------------------------------------------

    async def update(self, context: WriteContext, sent: Tree) -> WriteResult:
        if self._objects.latest(context.key) is None:
            if context.resource.create_on_update and not context.subresource:
                return await self.create(context, _recreated(context, sent))
            # An invalid body is reported before the missing object, as kube-apiserver does.
            _replacement(context, sent)
            raise context.not_found()

        def replacement(old: Tree) -> Tree:
            tree = _replacement(context, comparison.sharing(sent, old), old)
            if not tree["metadata"].get("resourceVersion") and not context.resource.unconditional_update:
                why = "must be specified for an update"
                raise context.invalid([FieldError("metadata.resourceVersion", ErrorType.INVALID, why, 0)])
            return tree

        return await self._update(context, _Update(replacement, is_read=True))

    async def _update(self, context: WriteContext, update: _Update) -> WriteResult:
        """Replace the newest object by its successor, starting over while other writes come first."""
        for _ in range(RACE_ATTEMPTS):
            live = self._objects.latest(context.key)
            if live is None:
                raise context.not_found()
            base = self._base(context, update, live)
            new = base.check(await self._work(context, partial(self._made, context, update, live, base), live))
            await self._check_preconditions(context, live, new["metadata"])
            prepared = partial(self._prepare_for_update, context, new, base.old, update)
            new = await self._work(context, prepared, live)
            result = await self._replace(context, live, new, base.old)
            if result is not None:
                return result
        raise context.modified()

    def _base(self, context: WriteContext, update: _Update, live: ObjectEntry) -> UpdateBase:
        by_hooks = self._admission.may_change(context.resource, chain.UPDATE, context.subresource)
        if by_hooks:
            # They may change in place what the new tree takes from the old one.
            return UpdateBase(self.tree(context.resource, live), is_shared=False)
        is_copied = update.in_place or not (context.resource.custom or update.is_read)
        return UpdateBase(self._stored_tree(context.resource, live), self._is_settled(context) and not is_copied)

    def _made(self, context: WriteContext, update: _Update, live: ObjectEntry, base: UpdateBase) -> Tree:
        return update.make(base.old if base.is_shared else self.tree(context.resource, live))

    def _is_settled(self, context: WriteContext) -> bool:
        """Whether the newest object was written under the current schema, so that it is valid and defaulted. The rules
        of a built-in kind change with the program, so its objects must have been written by this process."""
        live = self._objects.latest(context.key)
        if live is None:
            return False
        if context.resource.custom:
            return live.revision >= context.resource.schema_revision
        return live.revision > self._opened_at

    async def _check_preconditions(self, context: WriteContext, live: ObjectEntry, details: Tree) -> None:
        revision, uid = details.get("resourceVersion"), details.get("uid")
        if uid and uid != live.uid:
            await self._objects.settled(context.key)
            raise context.conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live.uid}")
        if revision and revision != str(live.revision):
            await self._objects.settled(context.key)
            raise context.modified()

    def _prepare_for_update(self, context: WriteContext, new: Tree, old: Tree, update: _Update) -> Tree:
        """Restrict the update to the fields that this resource or subresource may write, and track managedFields."""
        resource, rules = context.resource, context.resource.rules
        if update.sets_managed_fields:
            owners = new["metadata"].get("managedFields") or []
        else:
            # No owner gets or loses fields of the part that is kept. The very same value need not be compared.
            kept = prepare.kept(context)
            owners = apply.track_update(
                old,
                {**new, kept: old[kept]} if kept in new and kept in old else new,
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
            case action if action in resource.actions:
                pass  # it has changed no other fields than it may
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
        """Store the successor of `live`; return None where another write came first."""
        resource = context.resource
        new = await self._admission.mutated(context, chain.UPDATE, new, old, partial(self._work, context, live=live))
        if resource.generation:
            changed = not resource.still and comparison.spec_changed(resource, new, old, context.subresource)
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + (1 if changed else 0)
        validated = partial(prepare.validate, context, new, old)
        await self._work(context, validated, live)
        await self._admission.validated(context, chain.UPDATE, new, old)
        if self._objects.latest(context.key) is not live:
            return None
        if deletion.is_over(new):
            # As in kube-apiserver, watches get the object as it was stored, with the finalizers that it had.
            await self._remove(context, live, {**old, "metadata": dict(old["metadata"])})
            # The client gets the object that it wrote, which was never stored: its revision is that of the stored one.
            new["metadata"]["resourceVersion"] = str(live.revision)
            return WriteResult(tree=new)
        return await self._store_if_changed(context, live, new, old)

    async def modify(self, context: WriteContext, alter: Callable[[Tree], None]) -> WriteResult:
        """Change the newest object in place; for the server's own controllers."""

        def altered(old: Tree) -> Tree:
            alter(old)
            metadata.prune(old["metadata"])
            return old

        return await self._update(context, _Update(altered, in_place=True))

    async def rescale(self, context: WriteContext, make_scale: Callable[[Tree], Any]) -> WriteResult:
        """Write the Scale that `make_scale` returns for the Scale of the newest object."""
        where = context.resource.scaling
        assert where is not None, "the resource has no scale"

        def rescaled(old: Tree) -> Tree:
            wanted = scale.read(make_scale(scale.shown(where, old)))
            prepare.place(context, metadata.read(wanted))
            if not context.resource.custom:
                scale.refuse_negative(wanted, context.name)
            return scale.rescaled(where, old, wanted)

        return await self._update(context, _Update(rescaled))

    async def patch_scale(self, context: WriteContext, kind: str, patch: Any) -> WriteResult:
        shown_as = scale.kind(context.resource)
        return await self.rescale(
            context, lambda shown: patching.patched(context, kind, shown, patch, shown_as=shown_as)
        )

    # --- Patch --------------------------------------------------------------------------------------------------------

    async def patch(self, context: WriteContext, kind: str, patch: Any) -> WriteResult:
        """Apply a JSON patch, a merge patch or a strategic merge patch to the newest object."""

        def patched(old: Tree) -> Tree:
            new = patching.patched(context, kind, old, patch)
            if not isinstance(new, dict):
                raise status.bad_request("the patch leaves no object behind")
            return prepare.received(context, new, old)

        return await self._update(context, _Update(patched, is_read=True))

    async def apply(self, context: WriteContext, configuration: Tree) -> WriteResult:
        """Server-side apply: create the object, or merge the configuration of this field manager into it."""
        prepare.check_kind(context.resource, configuration, requires_kind=True)
        details = metadata.read(configuration)
        is_named = bool(details.get("name"))
        prepare.place(context, details)
        await self._work(context, lambda: prepare.check_unknown(context, configuration))
        now = self._now()
        if self._objects.latest(context.key) is not None:
            merge = partial(self._merged, context, configuration, now)
            return await self._update(context, _Update(merge, sets_managed_fields=True))
        if context.subresource:
            raise context.not_found()
        _refuse_uid(context, details)
        if not is_named:
            raise status.bad_request(
                f"the configuration of {context.name} has no metadata.name, which a new object needs"
            )
        tree = await self._work(context, lambda: self._merged(context, configuration, now, None))
        tree["metadata"].pop("resourceVersion", None)
        prepare.place(context, tree["metadata"])
        return await self._create(context, tree)

    def _merged(self, context: WriteContext, configuration: Tree, now: str, old: Tree | None) -> Tree:
        """Return the object, or a new one, after a configuration is applied to it."""
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
                # Apply accepts no field that the schema does not have, so there is nothing to prune.
                tree = rules.default(tree if resource.custom else rules.prune(tree), old)
                metadata.prune(tree["metadata"])
                return tree
            case _:
                assert_never(outcome)

    # --- Delete -------------------------------------------------------------------------------------------------------

    async def delete(self, context: WriteContext, options: Mapping[str, Any] | None = None) -> WriteResult:
        wanted = DeleteOptions.read(options or {})
        resource = context.resource
        for _ in range(RACE_ATTEMPTS):
            live = self._objects.latest(context.key)
            if live is None:
                raise context.not_found()
            old = self._stored_tree(resource, live)
            # What begins a deletion changes the metadata in place, and replaces other parts.
            new = {**old, "metadata": dict(old["metadata"])}
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
            # A kind with a grace period shows deletionTimestamp even where it is zero; others are deleted as they are.
            last = new if resource.grace_seconds is not None else {**old, "metadata": dict(old["metadata"])}
            gone = await self._remove(context, live, last)
            return WriteResult(tree=last) if resource.group_resource in _SHOWN_WHEN_DELETED else gone
        return await self._store_if_changed(context, live, new, old)

    async def _remove(self, context: WriteContext, live: ObjectEntry, last: Tree) -> WriteResult:
        """Delete the object from the store; watches get its last state at the revision of the deletion."""
        resource = context.resource
        details = {"name": context.name, "group": resource.group, "kind": resource.plural, "uid": live.uid}
        outcome = WriteResult(tree=status.success({key: value for key, value in details.items() if value}))
        if context.dry_run:
            return outcome
        await self._store(context, WriteOperation.DELETED, last)
        return outcome

    # --- Storing ------------------------------------------------------------------------------------------------------

    async def _store_if_changed(self, context: WriteContext, live: ObjectEntry, new: Tree, old: Tree) -> WriteResult:
        """Store the successor of `live`, unless it is equal."""
        if comparison.same(new, old):
            await self._objects.settled(context.key)
            return WriteResult(entry=live)
        return await self._store(context, WriteOperation.MODIFIED, new)

    async def _store(self, context: WriteContext, op: WriteOperation, tree: Tree, *, code: int = 200) -> WriteResult:
        """Give the object its revision and write it to the store."""
        resource = context.resource
        if context.dry_run:
            # A dry run gets no revision; an existing object keeps its own.
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
        if context.is_json and op is not WriteOperation.DELETED and not resource.ephemeral:
            self._written.add(entry, tree)
        # Shielded: other tasks wait on this future too, and the write goes on when this client disconnects.
        await asyncio.shield(kept)
        return WriteResult(code=code, entry=entry)


class WrittenTrees:
    """The trees of the objects that were written last, as their JSON would decode. No step may change them."""

    def __init__(self) -> None:
        self._trees: dict[StoreKey, tuple[ObjectEntry, Tree]] = {}
        self._bytes = 0

    def add(self, entry: ObjectEntry, tree: Tree) -> None:
        self._drop(entry.key)
        self._trees[entry.key] = entry, tree
        self._bytes += len(entry.body)
        while len(self._trees) > WRITTEN_MAX or self._bytes > WRITTEN_BYTES_MAX:
            self._drop(next(iter(self._trees)))

    def _drop(self, key: StoreKey) -> None:
        dropped = self._trees.pop(key, None)
        if dropped is not None:
            self._bytes -= len(dropped[0].body)

    def get(self, entry: ObjectEntry) -> Tree | None:
        """Return the tree of an entry; None if it is another revision than that of the last write, or not kept."""
        found = self._trees.get(entry.key)
        return found[1] if found is not None and found[0] is entry else None


def _replacement(context: WriteContext, sent: Tree, old: Tree | None = None) -> Tree:
    """Return the object of a PUT body."""
    tree = prepare.received(context, sent, old)
    revision = tree["metadata"].get("resourceVersion") or ""
    if revision and not revision.isdecimal():
        raise status.bad_request(f"resourceVersion {revision!r} is not a revision")
    if revision and not int(revision):
        # Zero is the number of no revision.
        del tree["metadata"]["resourceVersion"]
    return tree


def _recreated(context: WriteContext, sent: Tree) -> Tree:
    """Return the body of an update that creates an object. The revision of a deleted object is dropped, as the new one
    has no earlier revision; its uid is refused, as it names the deleted one."""
    details = sent.get("metadata")
    if not isinstance(details, dict):
        return sent
    _refuse_uid(context, details)
    return {**sent, "metadata": {key: value for key, value in details.items() if key != "resourceVersion"}}


def _refuse_uid(context: WriteContext, details: Tree) -> None:
    if details.get("uid"):
        raise context.conflict(
            f"uid mismatch: the provided object specified uid {details['uid']}, and no existing object was found"
        )


def _own(tree: Tree, owners: list[Tree]) -> None:
    if owners:
        tree["metadata"]["managedFields"] = owners
    else:
        tree["metadata"].pop("managedFields", None)
