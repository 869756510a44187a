"""ResourceClaims: each request has a unique name and exactly one of its two forms."""

from __future__ import annotations

from kubemachinery import meta
from kubeserver.builtin import checks
from kubeserver.builtin.checks import Errors, Tree, invalid, named, required


def validate_claim(new: Tree, old: Tree | None, subresource: str) -> Errors:
    if subresource:
        return
    if old is None:
        yield from _validate_spec(new["spec"], "spec")
    elif new["spec"] != old["spec"]:
        yield invalid("spec", new["spec"], checks.IMMUTABLE)


def validate_claim_template(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    if old is None:
        yield from _validate_spec(new["spec"]["spec"], "spec.spec")
    elif new["spec"] != old["spec"]:
        yield invalid("spec", new["spec"], checks.IMMUTABLE)


def _validate_spec(spec: Tree, path: str) -> Errors:
    requests = spec.get("devices", {}).get("requests") or ()
    for index, request in enumerate(requests):
        yield from _validate_request(request, f"{path}.devices.requests[{index}]")
    yield from checks.unique(
        (f"{path}.devices.requests[{index}]", request.get("name")) for index, request in enumerate(requests)
    )


def _validate_request(request: Tree, path: str) -> Errors:
    yield from named(meta.check_label_name, request.get("name", ""), f"{path}.name")
    ways = [way for way in ("exactly", "firstAvailable") if way in request]
    if not ways:
        yield required(path, "needs `exactly` or `firstAvailable`")
    elif len(ways) > 1:
        yield invalid(path, request, "`exactly` and `firstAvailable` exclude each other")
    elif "exactly" in request:
        yield from _validate_class(request["exactly"], f"{path}.exactly")
    else:
        choices = request["firstAvailable"]
        yield from checks.unique(
            (f"{path}.firstAvailable[{index}]", choice.get("name")) for index, choice in enumerate(choices)
        )
        for index, choice in enumerate(choices):
            place = f"{path}.firstAvailable[{index}]"
            yield from named(meta.check_label_name, choice.get("name", ""), f"{place}.name")
            yield from _validate_class(choice, place)


def _validate_class(request: Tree, path: str) -> Errors:
    if not request.get("deviceClassName"):
        yield required(f"{path}.deviceClassName")
    else:
        yield from named(meta.check_subdomain_name, request["deviceClassName"], f"{path}.deviceClassName")
    for index, toleration in enumerate(request.get("tolerations", ())):
        if toleration.get("key"):
            yield from named(meta.check_qualified_name, toleration["key"], f"{path}.tolerations[{index}].key")
