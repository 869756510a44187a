"""Calls of admission webhooks: an AdmissionReview is sent, a response with a patch or a decision is received.

A webhook is called over HTTPS with the authority that its configuration names, on a loopback address unless the policy
allows more, without redirects, for at most its timeout.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from kubemachinery import patches, status
from kubemachinery.client.callbacks import Sender, SendError
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.admission import webhook_matching
from kubeserver.admission.chain import AdmissionAttributes, refused_by
from kubeserver.admission.webhook_matching import Webhook, WebhookConfigurationError
from kubeserver.registry import namespaces, unsupported
from kubeserver.registry.registry import Registry
from kubeserver.registry.strategy import Resource, Tree
from kubeserver.storage.entries import StoreChange
from kubeserver.storage.objects import Objects

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = f"mutatingwebhookconfigurations.{GROUP}"
VALIDATING: Final = f"validatingwebhookconfigurations.{GROUP}"
ANSWER_BYTES: Final = 3 * 1024 * 1024


class WebhookPolicy(msgspec.Struct, frozen=True):
    """Which addresses webhooks may have."""

    loopback_only: bool = True

    def allows(self, url: str) -> bool:
        """Whether a host may be called. Only localhost is resolved: other names could change before the call."""
        if not self.loopback_only:
            return True
        try:
            host = urlsplit(url).hostname or ""
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def kind(self, base: Resource) -> Resource:
        """Return a webhook configuration kind that refuses addresses which could never be called."""

        def validate(new: Tree, old: Tree | None, subresource: str) -> Sequence[FieldError]:
            return [*base.rules.validate(new, old, subresource), *self._check(new)]

        return replace(base, rules=structs.replace(base.rules, validate=validate))

    def _check(self, configuration: Tree) -> Iterator[FieldError]:
        words = unsupported.words("webhook-services")
        for index, row in enumerate(configuration.get("webhooks") or ()):
            path, client = f"webhooks[{index}].clientConfig", row.get("clientConfig") or {}
            if client.get("service") is not None:
                yield FieldError(f"{path}.service", ErrorType.FORBIDDEN, words)
            elif isinstance(client.get("url"), str) and not self.allows(client["url"]):
                yield FieldError(f"{path}.url", ErrorType.FORBIDDEN, words)


class WebhookCaller:
    """Calls the webhooks of the current configurations."""

    def __init__(self, objects: Objects, registry: Registry, policy: WebhookPolicy) -> None:
        self._objects = objects
        self._registry = registry
        self._policy = policy
        self._sender = Sender("kube-apiserver-admission")
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._known: dict[str, list[Webhook]] = {}
        for resource in (MUTATING, VALIDATING):
            objects.collection(resource).listeners[self._notice] = None
            self._read(resource)

    def _notice(self, change: StoreChange) -> None:
        self._read(change.entry.key.resource)

    def _read(self, resource: str) -> None:
        # In the order of the configurations' names, so that every run asks in the same order.
        self._known[resource] = [
            webhook
            for entry in self._objects.collection(resource)
            for webhook in webhook_matching.webhooks(msgspec.json.decode(entry.body))
        ]

    async def close(self) -> None:
        await self._sender.close()

    # --- Matching ---------------------------------------------------------------------------------------------------

    @property
    def any_at_all(self) -> bool:
        return bool(self._known[MUTATING] or self._known[VALIDATING])

    def any_for(self, review: AdmissionAttributes) -> bool:
        return any(self._version_for(webhook, review) is not None for one in self._known.values() for webhook in one)

    def _version_for(self, webhook: Webhook, review: AdmissionAttributes) -> Resource | None:
        """Return the version in which a webhook receives this write; None where it does not match."""
        if review.resource.group == GROUP:
            # Webhooks do not decide about webhook configurations: a broken one must remain deletable.
            return None
        in_version = self._converted(webhook, review)
        if in_version is None:
            return None
        if not self._namespace_matches(webhook, review) or not webhook.selects(review):
            return None
        return in_version

    def _converted(self, webhook: Webhook, review: AdmissionAttributes) -> Resource | None:
        versions = [review.resource]
        if webhook.equivalent:
            versions += [r for r in self._registry.served_versions(review.resource) if r is not review.resource]
        for resource in versions:
            if any(rule.covers(review, resource) for rule in webhook.rules):
                return resource
        return None

    def _namespace_matches(self, webhook: Webhook, review: AdmissionAttributes) -> bool:
        if not webhook.namespace_selector.requirements:
            return True
        if review.resource.group_resource == namespaces.RESOURCE:
            return webhook.namespace_selector.matches(webhook_matching.labels(review.object or review.old))
        if not review.namespace:
            return True
        entry = self._objects.latest(namespaces.key(review.namespace))
        labels = webhook_matching.labels(msgspec.json.decode(entry.body)) if entry else {}
        return webhook.namespace_selector.matches(labels)

    # --- Asking -------------------------------------------------------------------------------------------------------

    async def mutate(self, review: AdmissionAttributes) -> tuple[Tree, list[str]]:
        """Return the object after all mutating webhooks in order; some are reinvoked if later ones changed it."""
        warnings: list[str] = []
        asked: list[tuple[Webhook, Tree]] = []
        for webhook in self._known[MUTATING]:
            before = review.object
            review = await self._mutate_by(webhook, review, warnings)
            if before is not None:
                asked.append((webhook, review.object or {}))
        for webhook, left in asked:
            if webhook.again and not patches.same(left, review.object):
                review = await self._mutate_by(webhook, review, warnings)
        return review.object or {}, warnings

    async def _mutate_by(
        self, webhook: Webhook, review: AdmissionAttributes, warnings: list[str]
    ) -> AdmissionAttributes:
        in_version = self._version_for(webhook, review)
        if in_version is None or review.object is None:
            return review
        answer = await self._call(webhook, review, in_version, warnings)
        if answer is None or not answer.get("patch"):
            return review
        try:
            operations = msgspec.json.decode(base64.b64decode(answer["patch"], validate=True))
            there = self._convert(review.object, in_version)
            changed = patches.apply(there, operations)
            if not isinstance(changed, dict):
                raise ValueError("the patch leaves no object behind")
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            if webhook.ignores_failure:
                return review
            raise _failed(webhook, f"its patch cannot be applied: {error}") from None
        return structs.replace(review, object=self._convert(changed, review.resource))

    async def validate(self, review: AdmissionAttributes) -> list[str]:
        """Call all validating webhooks concurrently; raise the first refusal in their order."""
        warnings: list[str] = []
        due = [
            (webhook, in_version)
            for webhook in self._known[VALIDATING]
            if (in_version := self._version_for(webhook, review))
        ]
        answers = await asyncio.gather(
            *(self._call(webhook, review, in_version, warnings) for webhook, in_version in due), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return warnings

    def _convert(self, tree: Tree, resource: Resource) -> Tree:
        if tree.get("apiVersion") == resource.api_version:
            return tree
        return self._registry.convert(resource)(tree, resource.api_version)

    async def _call(
        self, webhook: Webhook, review: AdmissionAttributes, in_version: Resource, warnings: list[str]
    ) -> dict[str, Any] | None:
        """Return the response of a webhook that allows the write; None where it was not called or failed harmlessly."""
        try:
            if not webhook.conditions_hold(review):
                return None
            if review.dry_run and webhook.has_side_effects:
                raise status.bad_request(
                    f'admission webhook "{webhook.name}" does not support dry run: it has side effects'
                )
            request = self._request(review, in_version)
            answer = await self._post(webhook, request)
        except (SendError, TimeoutError, _BadAnswer, WebhookConfigurationError) as error:
            if webhook.ignores_failure:
                return None
            message = "context deadline exceeded" if isinstance(error, TimeoutError) else str(error)
            raise _failed(webhook, message) from None
        warnings.extend(text for text in answer.get("warnings") or () if isinstance(text, str))
        if answer.get("allowed") is True:
            return answer
        raise _refusal(webhook, answer.get("status"))

    def _request(self, review: AdmissionAttributes, in_version: Resource) -> Tree:
        asked = review.resource
        request: Tree = {
            "uid": str(uuid.uuid4()),
            "kind": webhook_matching.kind_of(in_version),
            "resource": webhook_matching.resource_of(in_version),
            "requestKind": webhook_matching.kind_of(asked),
            "requestResource": webhook_matching.resource_of(asked),
            "operation": review.operation,
            "userInfo": {"username": review.user, "groups": list(review.groups)},
            "object": self._convert(review.object, in_version) if review.object else None,
            "oldObject": self._convert(review.old, in_version) if review.old else None,
            "dryRun": review.dry_run,
            "options": review.options or None,
        }
        for name, value in (("name", review.name), ("namespace", review.namespace)):
            if value:
                request[name] = value
        if review.subresource:
            request["subResource"] = request["requestSubResource"] = review.subresource
        return request

    async def _post(self, webhook: Webhook, request: Tree) -> dict[str, Any]:
        self._check_address(webhook.url)
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        code, body = await self._sender.post(
            webhook.url,
            msgspec.json.encode(review),
            tls=self._context(webhook.ca),
            timeout_seconds=webhook.timeout_seconds,
            bytes_max=ANSWER_BYTES,
        )
        if code != 200:
            raise _BadAnswer(f"it answered with HTTP status {code}")
        return _answer(body, request["uid"])

    def _check_address(self, url: str) -> None:
        """Refuse addresses outside of the policy, as at creation: a stored URL may be older than the policy."""
        if not self._policy.allows(url):
            raise _BadAnswer(f"{url} is not on a loopback address, and only those are called")

    def _context(self, ca: str) -> ssl.SSLContext:
        found = self._contexts.get(ca)
        if found is None:
            found = _trusting(ca)
            if len(self._contexts) > 100:
                self._contexts.clear()
            self._contexts[ca] = found
        return found


def _trusting(ca: str) -> ssl.SSLContext:
    """TLS that trusts the certificates of a caBundle as Go's x509 does: any of them is an anchor, self-signed or not.

    envtest writes the serving certificate itself into caBundle and discards the CA that signed it. OpenSSL alone wants
    a chain up to a self-signed root, and in its strict mode extensions that such certificates lack. Host name, validity
    and purpose are verified all the same.
    """
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except ssl.SSLError as error:
        raise _BadAnswer(f"unable to load root certificates from its caBundle: {error}") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


class _BadAnswer(Exception):
    """A webhook response that is not valid."""


def _failed(webhook: Webhook, why: str) -> status.StatusError:
    return status.internal(f'failed calling webhook "{webhook.name}": {why}')


def _refusal(webhook: Webhook, given: Any) -> status.StatusError:
    if not isinstance(given, dict):
        given = {}
    code, details = given.get("code"), given.get("details")
    if not isinstance(code, int) or not 400 <= code < 600:
        code = 403
    message = str(given.get("message") or given.get("reason") or "without explanation")
    reason = str(given.get("reason") or "Forbidden")
    return refused_by(webhook.name, code, reason, message, details if isinstance(details, dict) else None)


def _answer(body: bytes, uid: str) -> dict[str, Any]:
    try:
        review = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _BadAnswer(f"its answer is not JSON: {error}") from None
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise _BadAnswer("its answer has no response")
    if response.get("uid") != uid:
        raise _BadAnswer("its answer is to another question")
    if response.get("patch") and response.get("patchType") != "JSONPatch":
        raise _BadAnswer("its patch is not a JSON patch")
    return response
