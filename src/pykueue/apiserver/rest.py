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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykueue.api import meta, patches
from pykueue.api.errors import ErrorSort, FieldError
from pykueue.apiserver import admission, apply, bodies, forms, metadata, namespaces, scale, status
from pykueue.apiserver.access import User
from pykueue.apiserver.admission import Admission, Review
from pykueue.apiserver.objects import Entry, Objects
from pykueue.apiserver.registry import Registry
from pykueue.apiserver.store import Key, Op
from pykueue.apiserver.strategy import Resource, Tree
from pykueue.clock import Clock

NAME_ATTEMPTS: Final = 8
# How often a write starts over because others were faster while a webhook was asked.
RACE_ATTEMPTS: Final = 20
# A deletion of these is answered with what was deleted; of all others, with a Status.
_SHOWN_WHEN_DELETED: Final = frozenset({"pods", "serviceaccounts", "podtemplates"})


@dataclass(slots=True, kw_only=True)
class Call:
    """One request to change something: to what, by whom, and under which options."""

    resource: Resource
    user: User
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

    @property
    def key(self) -> Key:
        return Key(self.resource.group_resource, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a write came to: the stored entry, or (dry run, deletion) the tree to show."""

    code: int = 200
    entry: Entry | None = None
    tree: Tree | None = None


class Rest:
    """The verbs over one set of objects."""

    def __init__(
        self, objects: Objects, registry: Registry, hooks: Admission, clock: Clock, chance: random.Random
    ) -> None:
        self._objects = objects
        self._registry = registry
        self._admission = hooks
        self._clock = clock
        self._chance = chance

    # --- Reading ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, namespace: str, name: str) -> Entry:
        entry = self._objects.get(Key(resource.group_resource, namespace, name))
        if entry is None:
            raise status.not_found(resource.group, resource.plural, name)
        return entry

    def tree(self, resource: Resource, entry: Entry) -> Tree:
        """A fresh tree of an entry, in the version of `resource`. The caller may change it."""
        return forms.Presenter(self._registry, self._clock, resource, forms.Form()).tree(entry)

    # --- Create -------------------------------------------------------------------------------------------------------

    async def create(self, call: Call, sent: Tree) -> Outcome:
        tree = self._received(call, sent)
        self._place(call, tree["metadata"])
        owners = apply.track_update(
            None,
            tree,
            manager=call.manager,
            target=self._registry.target(call.resource, ""),
            now=self._now(),
        )
        _own(tree, owners)
        return await self._create(call, tree)

    async def _create(self, call: Call, tree: Tree) -> Outcome:
        """From a tree with its owners to a stored object."""
        resource, rules = call.resource, call.resource.rules
        if tree["metadata"].get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(call)
        before = self._objects.next_revision
        tree = await self._mutated(call, admission.CREATE, tree, None)
        details = tree["metadata"]
        metadata.begin(details, self._uid(), self._now(), generation=resource.generation)
        await self._name(call, details)
        if resource.has_status and resource.custom:
            tree.pop("status", None)
        rules.on_create(tree)
        self._validate(call, tree, None)
        await self._validated(call, admission.CREATE, tree, None)
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

    def _place(self, call: Call, details: Tree) -> None:
        """The body and the path must agree on where the object goes."""
        given = details.get("namespace") or ""
        if call.resource.namespaced:
            if given and given != call.namespace:
                raise status.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            if not call.namespace:
                raise status.bad_request("an object of this kind needs a namespace in its path")
            details["namespace"] = call.namespace
        else:
            # Charts and generators write one everywhere; of an object of the whole cluster it says nothing.
            details.pop("namespace", None)
        if call.name:
            if details.get("name", call.name) != call.name:
                raise status.bad_request(
                    f"the name of the object ({details['name']}) does not match the name on the URL ({call.name})"
                )
            details["name"] = call.name

    def _check_namespace(self, call: Call) -> None:
        if not call.resource.namespaced:
            return
        entry = self._objects.latest(namespaces.key(call.namespace))
        if entry is None:
            raise status.not_found("", "namespaces", call.namespace)
        if namespaces.is_terminating(entry):
            raise status.forbidden(
                call.resource.group,
                call.resource.plural,
                call.name,
                f"unable to create new content in namespace {call.namespace} because it is being terminated",
                [
                    {
                        "reason": "NamespaceTerminating",
                        "message": f"namespace {call.namespace} is being terminated",
                        "field": "metadata.namespace",
                    }
                ],
            )

    # --- Update -------------------------------------------------------------------------------------------------------

    async def update(self, call: Call, sent: Tree) -> Outcome:
        if self._objects.latest(call.key) is None:
            if call.resource.create_on_update and not call.subresource:
                return await self.create(call, sent)
            # What is wrong with the body is told before that there is nothing to put it in the place of.
            self._replacement(call, sent)
            raise status.not_found(call.resource.group, call.resource.plural, call.name)

        def change(old: Tree) -> Tree:
            tree = self._replacement(call, _sharing(sent, old), old)
            if not tree["metadata"].get("resourceVersion") and not call.resource.unconditional_update:
                raise self._invalid(
                    call,
                    [FieldError("metadata.resourceVersion", ErrorSort.INVALID, "must be specified for an update", 0)],
                )
            return tree

        return await self._update(call, change)

    def _replacement(self, call: Call, sent: Tree, old: Tree | None = None) -> Tree:
        tree = self._received(call, sent, old)
        self._place(call, tree["metadata"])
        revision = tree["metadata"].get("resourceVersion") or ""
        if revision and not revision.isdecimal():
            raise status.bad_request(f"resourceVersion {revision!r} is not a revision")
        return tree

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
                raise status.not_found(resource.group, resource.plural, call.name)
            old = self.tree(resource, live)
            # A successor shares with its origin what it leaves alone, and what is shared need not be looked at again.
            # That holds where nobody changes the successor in place: hooks may.
            by_hooks = self._admission.may_change(resource, admission.UPDATE, call.subresource)
            shared = self._is_settled(call) and not in_place and not by_hooks
            new = change(old if shared else self.tree(resource, live))
            await self._check_preconditions(call, live, new["metadata"])
            new = self._separated(call, new, old, owned=owned)
            outcome = await self._replace(call, live, new, old)
            if outcome is not None:
                return outcome
        raise status.modified(resource.group, resource.plural, call.name)

    def _is_settled(self, call: Call) -> bool:
        """Whether the newest object was written under the schema of today, and has passed all that is asked now.

        Never of a built-in kind: their rules change with the program, and change objects in place.
        """
        live = self._objects.latest(call.key)
        return call.resource.custom and live is not None and live.revision >= call.resource.schema_revision

    async def _check_preconditions(self, call: Call, live: Entry, details: Tree) -> None:
        resource = call.resource
        revision, uid = details.get("resourceVersion"), details.get("uid")
        if uid and uid != live.uid:
            await self._objects.settled(call.key)
            raise status.conflict(
                resource.group,
                resource.plural,
                call.name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live.uid}",
            )
        if revision and revision != str(live.revision):
            await self._objects.settled(call.key)
            raise status.modified(resource.group, resource.plural, call.name)

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
        new = await self._mutated(call, admission.UPDATE, new, old)
        if resource.generation:
            before, counts = old["metadata"].get("generation", 1), not resource.still
            new["metadata"]["generation"] = before + (1 if counts and _spec_changed(resource, new, old) else 0)
        self._validate(call, new, old)
        await self._validated(call, admission.UPDATE, new, old)
        if self._objects.latest(call.key) is not live:
            return None
        if _ready_to_go(new):
            await self._remove(call, live, new)
            return Outcome(tree=new)
        if _same(new, old):
            await self._objects.settled(call.key)
            return Outcome(entry=live)
        return await self._store(call, Op.MODIFIED, new)

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
            self._place(call, metadata.read(wanted))
            return scale.rescaled(where, old, wanted)

        return await self._update(call, rescaled)

    async def patch_scale(self, call: Call, kind: str, patch: Any) -> Outcome:
        def change(shown: Tree) -> Any:
            try:
                return _patched(scale.KIND, kind, shown, patch)
            except patches.PatchError as error:
                raise self._unpatchable(call, error) from None

        return await self.rescale(call, change)

    # --- Patch --------------------------------------------------------------------------------------------------------

    async def patch(self, call: Call, kind: str, patch: Any) -> Outcome:
        """Apply a JSON patch, a merge patch or a strategic merge patch to the newest object."""
        resource = call.resource

        def change(old: Tree) -> Tree:
            try:
                new = _patched(resource, kind, old, patch)
            except patches.PatchError as error:
                raise self._unpatchable(call, error) from None
            if not isinstance(new, dict):
                raise status.bad_request("the patch leaves no object behind")
            tree = self._received(call, new, old)
            self._place(call, tree["metadata"])
            return tree

        return await self._update(call, change)

    def _unpatchable(self, call: Call, error: patches.PatchError) -> status.StatusError:
        if error.fault is patches.Fault.MALFORMED:
            return status.bad_request(str(error))
        return self._invalid(call, [FieldError("patch", ErrorSort.INVALID, str(error))])

    async def apply(self, call: Call, configuration: Tree) -> Outcome:
        """Server-side apply: create, or merge what this manager wants into what there is."""
        self._check_kind(call.resource, configuration, must_say=True)
        details = metadata.read(configuration)
        self._place(call, details)
        self._check_unknown(call, configuration)
        resource, rules = call.resource, call.resource.rules
        target = self._registry.target(resource, call.subresource)
        now = self._now()

        def merged(old: Tree | None) -> Tree:
            outcome = apply.apply(
                old,
                configuration,
                manager=call.manager,
                force=call.force,
                target=target,
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

        if self._objects.latest(call.key) is None:
            if call.subresource:
                raise status.not_found(resource.group, resource.plural, call.name)
            if details.get("resourceVersion") or details.get("uid"):
                raise status.conflict(
                    resource.group,
                    resource.plural,
                    call.name,
                    "uid mismatch: the provided object specified a uid or a revision, and no existing object was found",
                )
            tree = merged(None)
            self._place(call, tree["metadata"])
            return await self._create(call, tree)
        return await self._update(call, merged, owned=True)

    # --- Delete -------------------------------------------------------------------------------------------------------

    async def delete(self, call: Call, options: Mapping[str, Any] | None = None) -> Outcome:
        wanted = DeleteOptions.read(options or {})
        resource = call.resource
        for _ in range(RACE_ATTEMPTS):
            live = self._objects.latest(call.key)
            if live is None:
                raise status.not_found(resource.group, resource.plural, call.name)
            old, new = self.tree(resource, live), self.tree(resource, live)
            await self._check_preconditions(call, live, wanted.preconditions)
            namespaces.refuse_protected(call.key)
            await self._validated(call, admission.DELETE, None, old)
            if self._objects.latest(call.key) is not live:
                continue
            return await self._delete(call, wanted, live, new, old)
        raise status.modified(resource.group, resource.plural, call.name)

    async def _delete(self, call: Call, wanted: DeleteOptions, live: Entry, new: Tree, old: Tree) -> Outcome:
        resource, details = call.resource, new["metadata"]
        finalizers = wanted.finalizers(details.get("finalizers") or [])
        grace = _grace_seconds(resource, new, wanted.grace_seconds)
        already = details.get("deletionTimestamp")
        if already and details.get("deletionGracePeriodSeconds", 0) <= grace:
            grace = details.get("deletionGracePeriodSeconds", 0)
        else:
            now = self._clock.now()
            details["deletionTimestamp"] = meta.format_time(now + grace * meta.SECOND)
            details["deletionGracePeriodSeconds"] = grace
        if finalizers:
            details["finalizers"] = finalizers
        else:
            details.pop("finalizers", None)
        namespaces.begin_deletion(call.key, new)
        if not already and resource.generation:
            details["generation"] = details.get("generation", 1) + 1
        if not grace and _ready_to_go(new):
            # Of a kind that winds up, even an end without delay is marked; others go as they were.
            last = new if resource.grace_seconds is not None else old
            gone = await self._remove(call, live, last)
            return Outcome(tree=last) if resource.group_resource in _SHOWN_WHEN_DELETED else gone
        if _same(new, old):
            await self._objects.settled(call.key)
            return Outcome(entry=live)
        return await self._store(call, Op.MODIFIED, new)

    async def _remove(self, call: Call, live: Entry, last: Tree) -> Outcome:
        """Take the object away; its last state goes to the watchers under the deletion's own revision."""
        resource = call.resource
        details = {"name": call.name, "group": resource.group, "kind": resource.plural, "uid": live.uid}
        outcome = Outcome(tree=status.success({key: value for key, value in details.items() if value}))
        if call.dry_run:
            return outcome
        await self._store(call, Op.DELETED, last)
        return outcome

    # --- Stations -----------------------------------------------------------------------------------------------------

    def _received(self, call: Call, sent: Any, old: Tree | None = None) -> Tree:
        """What a client sent, as this server will have it: of the right kind, pruned and with defaults."""
        resource, rules = call.resource, call.resource.rules
        if not isinstance(sent, dict):
            raise status.bad_request("the body is not an object")
        self._check_kind(resource, sent)
        tree = dict(sent)
        details = metadata.read(tree)
        if malformed := rules.malformed(tree):
            raise status.bad_request(f"{_title(resource)}: {malformed}")
        # A built-in kind is also read into its own spelling by pruning; a custom one has nothing else to gain from it.
        if self._check_unknown(call, tree, old) or not resource.custom:
            tree = rules.prune(tree)
        tree["metadata"] = details
        tree = rules.default(tree, old)
        metadata.prune(tree["metadata"])
        return tree

    def _check_kind(self, resource: Resource, tree: Tree, *, must_say: bool = False) -> None:
        """A custom object, and a configuration to apply, must say what they are; for others the path says it."""
        kind, version = tree.get("kind"), tree.get("apiVersion")
        if (resource.custom or must_say) and not kind:
            raise status.bad_request("Object 'Kind' is missing in the body")
        if (resource.custom or must_say) and not version:
            raise status.bad_request("Object 'apiVersion' is missing in the body")
        if kind and kind != resource.kind:
            raise status.bad_request(
                f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})"
            )
        if version and version != resource.api_version:
            raise status.bad_request(
                f"the API version in the data ({version}) does not match the expected API version "
                f"({resource.api_version})"
            )
        tree["apiVersion"], tree["kind"] = resource.api_version, resource.kind

    def _check_unknown(self, call: Call, tree: Tree, old: Tree | None = None) -> bool:
        """Whether there is anything to prune: refused, warned of or ignored, as the client wants it."""
        if call.validation == "Ignore":
            return True
        found = [f'unknown field "{path}"' for path in call.resource.rules.unknown(tree, old)]
        found += [f'unknown field "{path}"' for path in metadata.unknown(tree["metadata"])]
        found += call.oddities
        found = list(dict.fromkeys(found))
        if found and call.validation == "Strict":
            told = f"strict decoding error: {', '.join(found)}"
            if call.patches:
                raise status.invalid("", "", "", [FieldError("patch", ErrorSort.INVALID, told)])
            raise status.bad_request(f"{_title(call.resource)}: {told}")
        call.warnings.extend(found)
        return bool(found)

    def _review(self, call: Call, operation: str, new: Tree | None, old: Tree | None) -> Review:
        return Review(
            operation=operation,
            resource=call.resource,
            subresource=call.subresource,
            namespace=call.namespace,
            name=call.name,
            user=call.user.name,
            groups=call.user.groups,
            dry_run=call.dry_run,
            object=new,
            old=old,
            options=call.options,
        )

    async def _mutated(self, call: Call, operation: str, new: Tree, old: Tree | None) -> Tree:
        """The object after everybody who may change it; what only the server says is not theirs to change."""
        if self._admission.is_idle(call.resource):
            return new
        review = self._review(call, operation, new, old)
        changed = self._admission.mutate(review)
        if self._admission.needs_waiting(review):
            review = self._review(call, operation, changed or new, old)
            outside, warnings = await self._admission.mutate_outside(review)
            call.warnings.extend(warnings)
            changed = outside or changed
        if changed is None:
            return new
        rules, before = call.resource.rules, new["metadata"]
        details = metadata.read(changed)
        metadata.carry_over(details, before)
        if not before.get("name"):
            details.pop("name", None)
        changed = rules.default(rules.prune(changed))
        changed["metadata"] = details
        return changed

    def _validate(self, call: Call, new: Tree, old: Tree | None) -> None:
        errors = list(metadata.check(call.resource, new["metadata"], old["metadata"] if old else None))
        errors += call.resource.rules.validate(new, old, call.subresource)
        if errors:
            raise self._invalid(call, errors)
        if call.subresource != "status":
            call.warnings.extend(call.resource.rules.warn(new, old))

    async def _validated(self, call: Call, operation: str, new: Tree | None, old: Tree | None) -> None:
        if self._admission.is_idle(call.resource):
            return
        review = self._review(call, operation, new, old)
        self._admission.validate(review, call.warnings)
        if self._admission.needs_waiting(review):
            call.warnings.extend(await self._admission.validate_outside(review))

    def _invalid(self, call: Call, errors: list[FieldError]) -> status.StatusError:
        return status.invalid(call.resource.group, call.resource.kind, call.name, errors)

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
        body = forms.encode(stored, tree)
        bodies.check_size(body)
        entry, kept = self._objects.write(op, call.key, uid, body, ephemeral=resource.ephemeral)
        # Shielded: the future is shared with others, and the write goes on whether or not this client waits.
        await asyncio.shield(kept)
        return Outcome(code=code, entry=entry)


# --- What a deletion asks for -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str = ""
    preconditions: Tree = field(default_factory=dict)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> DeleteOptions:
        grace, propagation = options.get("gracePeriodSeconds"), options.get("propagationPolicy") or ""
        orphan, preconditions = options.get("orphanDependents"), options.get("preconditions") or {}
        errors = []
        if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or grace < 0):
            errors.append(FieldError("gracePeriodSeconds", ErrorSort.INVALID, "must be a number of seconds", grace))
        if propagation not in ("", "Foreground", "Background", "Orphan"):
            errors.append(
                FieldError(
                    "propagationPolicy",
                    ErrorSort.NOT_SUPPORTED,
                    "must be Foreground, Background or Orphan",
                    propagation,
                )
            )
        if propagation and orphan is not None:
            errors.append(
                FieldError(
                    "propagationPolicy",
                    ErrorSort.INVALID,
                    "orphanDependents and propagationPolicy cannot be both set",
                    propagation,
                )
            )
        if not isinstance(preconditions, dict):
            errors.append(FieldError("preconditions", ErrorSort.TYPE_INVALID, "must be an object", preconditions))
        if errors:
            raise status.invalid("meta.k8s.io", "DeleteOptions", "", errors)
        if orphan is not None:
            propagation = "Orphan" if orphan else "Background"
        known = {key: preconditions[key] for key in ("uid", "resourceVersion") if preconditions.get(key)}
        return cls(grace, propagation, known)

    def finalizers(self, present: list[str]) -> list[str]:
        """The finalizers that stand for this way of deleting, beside all others."""
        if not self.propagation:
            return present
        others = [one for one in present if one not in (metadata.FOREGROUND, metadata.ORPHAN)]
        match self.propagation:
            case "Foreground":
                return [*others, metadata.FOREGROUND]
            case "Orphan":
                return [*others, metadata.ORPHAN]
        return others


def _grace_seconds(resource: Resource, tree: Tree, asked: int | None) -> int:
    """How long the object may take to go: only a pod on a node has anything to wind up."""
    if resource.grace_seconds is None:
        return 0
    if asked is not None:
        grace = asked
    else:
        own = (tree.get("spec") or {}).get("terminationGracePeriodSeconds")
        grace = own if isinstance(own, int) else resource.grace_seconds
    placed = (tree.get("spec") or {}).get("nodeName")
    ended = (tree.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return grace if placed and not ended else 0


# --- Small questions --------------------------------------------------------------------------------------------------


def _title(resource: Resource) -> str:
    return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'


def _own(tree: Tree, owners: list[Tree]) -> None:
    if owners:
        tree["metadata"]["managedFields"] = owners
    else:
        tree["metadata"].pop("managedFields", None)


def _patched(resource: Resource, kind: str, old: Tree, patch: Any) -> Any:
    match kind:
        case bodies.JSON_PATCH:
            return patches.apply(old, patch)
        case bodies.MERGE_PATCH:
            if not isinstance(patch, dict):
                raise status.bad_request("a merge patch is an object")
            return patches.merge(old, patch)
        case bodies.STRATEGIC_PATCH if resource.strategic is not None:
            if not isinstance(patch, dict):
                raise status.bad_request("a strategic merge patch is an object")
            return resource.strategic(old, patch)
    raise status.unsupported_media_type(kind, patch_types(resource))


def patch_types(resource: Resource) -> list[str]:
    """The patches that a kind understands."""
    strategic = [bodies.STRATEGIC_PATCH] if resource.strategic is not None else []
    return [bodies.JSON_PATCH, bodies.MERGE_PATCH, *strategic, bodies.APPLY_YAML]


def _spec_changed(resource: Resource, new: Tree, old: Tree) -> bool:
    aside = {"metadata", "apiVersion", "kind"} | ({"status"} if resource.has_status else set())
    return any(not _equal(new.get(key), old.get(key)) for key in (new.keys() | old.keys()) - aside)


def _equal(new: Any, old: Any) -> bool:
    """Equality as JSON has it. Python takes true for 1 and 1.0, so its yes is asked twice; its no is enough."""
    if new is old:
        return True
    return bool(new == old) and (bodies.encode(new) == bodies.encode(old) or patches.same(new, old))


def _sharing(sent: Tree, old: Tree) -> Tree:
    """What was sent, with every part that is as it was taken from `old`."""
    return {key: old[key] if key in old and _equal(part, old[key]) else part for key, part in sent.items()}


def _ready_to_go(tree: Tree) -> bool:
    """Whether a deletion that has begun has nothing left to wait for."""
    details = tree["metadata"]
    return (
        bool(details.get("deletionTimestamp"))
        and not details.get("finalizers")
        and not details.get("deletionGracePeriodSeconds")
        and not namespaces.is_held(tree)
    )


def _same(new: Tree, old: Tree) -> bool:
    """Whether a write would change nothing but the times at which fields were owned."""
    if any(not _equal(new.get(key), old.get(key)) for key in (new.keys() | old.keys()) - {"metadata"}):
        return False
    return _equal(_comparable(new["metadata"]), _comparable(old["metadata"]))


def _comparable(details: Tree) -> Tree:
    owners = [{**owner, "time": ""} for owner in details.get("managedFields") or ()]
    return {**details, "managedFields": owners, "resourceVersion": ""}
