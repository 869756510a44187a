"""Services, Endpoints and EndpointSlices: stored and validated. There is no cluster network: nothing is allocated."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Final

from kubemachinery import meta
from kubemachinery.field_errors import ErrorType, FieldError
from kubeserver.builtin import checks, decoding
from kubeserver.builtin.checks import Errors, Tree, forbidden, invalid, named, not_supported, required
from kubeserver.registry import unsupported

_NONE: Final = "None"
_WITH_ADDRESS: Final = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")
_PORT_MAX: Final = 65535
_AFFINITY_SECONDS_MAX: Final = 86400
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_ENDPOINTS_MAX: Final = 1000
_ADDRESSES_MAX: Final = 100
_SLICE_PORTS_MAX: Final = 20000
_HINTS_MAX: Final = 8
_TOPOLOGY_HINTS: Final = "service.kubernetes.io/topology-aware-hints"
_TOPOLOGY_MODE: Final = "service.kubernetes.io/topology-mode"

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


# --- Service ----------------------------------------------------------------------------------------------------------


def on_create_service(service: Tree) -> None:
    service["status"] = decoding.zero("core.v1.ServiceStatus")
    _complete(service["spec"], {})


def on_update_service(new: Tree, old: Tree) -> None:
    new["status"] = old["status"]
    after, before = new["spec"], old["spec"]
    if after.get("type") in _WITH_ADDRESS and before.get("type") in _WITH_ADDRESS:
        # Clients that update what they once wrote leave out what the server added.
        for field in ("clusterIP", "clusterIPs"):
            if field in before:
                after.setdefault(field, before[field])
    elif before.get("type") in _WITH_ADDRESS:
        _drop_unchanged(after, before, "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    if before.get("type") in _WITH_NODE_PORTS and after.get("type") not in _WITH_NODE_PORTS:
        _drop_unchanged(after, before, "externalTrafficPolicy")
    if before.get("type") == "LoadBalancer" and after.get("type") != "LoadBalancer":
        _drop_unchanged(after, before, "allocateLoadBalancerNodePorts", "loadBalancerClass")
        new["status"] = {**new["status"], "loadBalancer": {}}
    _complete(after, before)


def _drop_unchanged(after: Tree, before: Tree, *fields: str) -> None:
    """Drop what the former type of the Service needed, unless the client changed it too."""
    for field in fields:
        if field in after and after[field] == before.get(field):
            del after[field]


def _complete(spec: Tree, before: Tree) -> None:
    """The two spellings of the address, and the families of a cluster with IPv4 alone."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif before.get("clusterIP", "") != spec.get("clusterIP", "") and before.get("clusterIPs") == spec.get(
        "clusterIPs"
    ):
        # A client that knows one spelling only changed that one.
        spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []
    if spec.get("type") not in _WITH_ADDRESS:
        return
    unselected = spec.get("clusterIP") == _NONE and not spec.get("selector")
    if "ipFamilyPolicy" not in spec:
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or ("RequireDualStack" if unselected else "SingleStack")
    if not spec.get("ipFamilies"):
        found = [_family(one) for one in map(parsed, spec.get("clusterIPs") or ()) if one]
        spec["ipFamilies"] = list(dict.fromkeys(found)) or ["IPv4"]
    if unselected and spec["ipFamilyPolicy"] != "SingleStack" and len(spec["ipFamilies"]) == 1:
        spec["ipFamilies"] = [*spec["ipFamilies"], "IPv6" if spec["ipFamilies"] == ["IPv4"] else "IPv4"]


def _family(address: _Address) -> str:
    return f"IPv{address.version}"


def parsed(text: str) -> _Address | None:
    """Parse an IP address; None where it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def validate_service(new: Tree, old: Tree | None, subresource: str) -> Errors:
    if subresource == "status":
        yield from _validate_load_balancer(new["status"].get("loadBalancer", {}), new["spec"].get("type", ""))
        return
    yield from checks.enums("core.v1.Service", new)
    spec, kind = new["spec"], new["spec"].get("type")
    headless = spec.get("clusterIP") == _NONE
    ports = spec.get("ports", ())
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    if headless and kind in _WITH_NODE_PORTS:
        yield invalid("spec.clusterIPs[0]", _NONE, f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _validate_external_name(spec)
    else:
        yield from _validate_addresses(spec)
    yield from _validate_service_ports(ports, str(kind))
    yield from checks.labels(spec.get("selector"), "spec.selector")
    yield from _validate_affinity(spec)
    for index, text in enumerate(spec.get("externalIPs", ())):
        yield from _validate_endpoint_address(text, f"spec.externalIPs[{index}]")
    yield from _validate_by_type(spec, str(kind))
    if old is not None:
        yield from _validate_address_update(spec, old["spec"])


def _validate_external_name(spec: Tree) -> Errors:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", "may not be set for ExternalName services")
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    else:
        yield from named(meta.check_subdomain_name, name, "spec.externalName")


def _validate_addresses(spec: Tree) -> Errors:
    one, many = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    families = spec.get("ipFamilies") or []
    if one and many and many[0] != one:
        yield invalid("spec.clusterIPs", many, "first value must match clusterIP")
    elif many and not one:
        yield invalid("spec.clusterIPs", many, "must be empty when clusterIP is not specified")
    yield from checks.unique((f"spec.ipFamilies[{index}]", family) for index, family in enumerate(families))
    for index, family in enumerate(families):
        if not family:
            yield not_supported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6"))
    if one != _NONE or spec.get("selector"):
        # As a cluster whose services have IPv4 alone; what is headless and without selector may name both.
        if spec.get("ipFamilyPolicy") == "RequireDualStack":
            yield invalid("spec.ipFamilyPolicy", "RequireDualStack", "there are no dual-stack services here")
        for index, family in enumerate(families):
            if family == "IPv6":
                yield invalid(f"spec.ipFamilies[{index}]", family, "there are only IPv4 services here")
    if len(many) > 2:  # one of each family
        yield invalid("spec.clusterIPs", many, "may only hold up to 2 values")
    for index, text in enumerate(many):
        if text == _NONE:
            if index > 0 or len(many) > 1:
                yield invalid(f"spec.clusterIPs[{index}]", text, "'None' is the only value where it is one")
        elif (address := parsed(text)) is None:
            yield invalid(f"spec.clusterIPs[{index}]", text, "must be a valid IP address")
        elif families[index : index + 1] not in ([], [""], [_family(address)]):
            yield invalid(f"spec.clusterIPs[{index}]", text, f"expected an {families[index]} value")
    found = [_family(address) for address in map(parsed, many) if address is not None]
    if len(set(found)) < len(found):
        yield invalid("spec.clusterIPs", many, "may specify no more than one IP for each IP family")


def _validate_address_update(after: Tree, before: Tree) -> Errors:
    if "ExternalName" in (after.get("type"), before.get("type")):
        return
    was, now = (tree.get("clusterIPs") or [""] for tree in (before, after))
    if was[0] and now[0] != was[0]:
        yield invalid("spec.clusterIPs[0]", now, "may not change once set")


def _validate_service_ports(ports: Any, kind: str) -> Errors:
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        name = port.get("name", "")
        if name:
            yield from named(meta.check_label_name, name, f"{path}.name")
        elif len(ports) > 1:
            yield required(f"{path}.name")
        yield from _validate_port(port.get("port", 0), f"{path}.port")
        yield from _validate_target(port.get("targetPort"), f"{path}.targetPort")
        if "appProtocol" in port:
            yield from named(meta.check_qualified_name, port["appProtocol"], f"{path}.appProtocol")
        if port.get("nodePort") and kind == "ClusterIP":
            yield forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")
    named_ports = [(f"spec.ports[{at}].name", one["name"]) for at, one in enumerate(ports) if one.get("name")]
    yield from checks.unique(named_ports)
    yield from checks.unique(
        (f"spec.ports[{at}].nodePort", (one.get("protocol"), one["nodePort"]))
        for at, one in enumerate(ports)
        if one.get("nodePort")
    )
    yield from checks.unique(
        (f"spec.ports[{at}]", (one.get("protocol"), one.get("port"))) for at, one in enumerate(ports)
    )


def _validate_port(number: int, path: str) -> Errors:
    yield from checks.between(number, 1, _PORT_MAX, path)


def _validate_target(target: Any, path: str) -> Errors:
    if isinstance(target, int):
        yield from _validate_port(target, path)
    elif not _PORT_NAME.fullmatch(target or ""):
        yield invalid(path, target, "must be the name of a port: up to 15 letters, digits and '-', with a letter")


def _validate_affinity(spec: Tree) -> Errors:
    seconds = spec.get("sessionAffinityConfig", {}).get("clientIP", {}).get("timeoutSeconds")
    if spec.get("sessionAffinity") == "ClientIP" and not 0 < (seconds or 0) <= _AFFINITY_SECONDS_MAX:
        path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        yield invalid(path, seconds, f"must be greater than 0 and at most {_AFFINITY_SECONDS_MAX}")


def _is_external(spec: Tree) -> bool:
    """Whether the Service is reachable from outside of a cluster."""
    return spec.get("type") in _WITH_NODE_PORTS or bool(spec.get("type") == "ClusterIP" and spec.get("externalIPs"))


def _validate_by_type(spec: Tree, kind: str) -> Errors:
    """Fields that belong to some types of Service only."""
    if kind != "LoadBalancer":
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if field in spec:
                yield forbidden(f"spec.{field}", "may only be used when `type` is 'LoadBalancer'")
        if spec.get("loadBalancerSourceRanges"):
            # kube-apiserver spells this one place with a capital letter.
            yield forbidden("spec.LoadBalancerSourceRanges", "may only be used when `type` is 'LoadBalancer'")
    elif spec.get("loadBalancerClass") is not None:
        yield from named(meta.check_qualified_name, spec["loadBalancerClass"], "spec.loadBalancerClass")
    for index, text in enumerate(spec.get("loadBalancerSourceRanges", ())):
        if not _is_network(text.strip()):
            yield invalid(f"spec.LoadBalancerSourceRanges[{index}]", text, "must be a CIDR such as 10.9.8.0/24")
    if not _is_external(spec) and spec.get("externalTrafficPolicy"):
        why = "may only be set for externally-accessible services"
        yield invalid("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], why)
    number = spec.get("healthCheckNodePort", 0)
    if number and not (kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", number, why)
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        yield not_supported("spec.trafficDistribution", distribution, _DISTRIBUTIONS)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text


def _validate_load_balancer(status: Tree, kind: str) -> Errors:
    path = "status.loadBalancer.ingress"
    ingress = status.get("ingress", ())
    if ingress and kind != "LoadBalancer":
        yield forbidden(path, "may only be used when `spec.type` is LoadBalancer")
    for index, one in enumerate(ingress):
        if one.get("ip") and parsed(one["ip"]) is None:
            yield invalid(f"{path}[{index}].ip", one["ip"], "must be a valid IP address")
        if one.get("hostname"):
            yield from named(meta.check_subdomain_name, one["hostname"], f"{path}[{index}].hostname")
            if parsed(one["hostname"]) is not None:
                yield invalid(f"{path}[{index}].hostname", one["hostname"], "must be a DNS name, not an IP address")


def warn_of_service(new: Tree, _old: Tree | None) -> Iterator[str]:
    spec = new["spec"]
    addressless = spec.get("type") in _WITH_ADDRESS and not spec.get("clusterIP")
    portless = spec.get("type") in _WITH_NODE_PORTS and any(not one.get("nodePort") for one in spec.get("ports", ()))
    if addressless or portless:
        yield unsupported.words("service-addresses")
    if _TOPOLOGY_HINTS in new["metadata"].get("annotations", {}):
        yield f"annotation {_TOPOLOGY_HINTS} is deprecated, please use {_TOPOLOGY_MODE} instead"
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
    for index, text in enumerate(spec.get("clusterIPs") or ()):
        yield from _warn_of_address(text, f"spec.clusterIPs[{index}]")
    external = spec.get("externalIPs")
    if spec.get("clusterIP") == _NONE:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if external:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    elif external and spec.get("type") != "ExternalName":
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if external and spec.get("type") == "ExternalName":
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.get("externalName") and spec.get("type") != "ExternalName":
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'


def _warn_of_address(text: str, path: str) -> Iterator[str]:
    address = parsed(text)
    if address is not None and address.version == 6 and str(address) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{address}")'


# --- Endpoints --------------------------------------------------------------------------------------------------------


def validate_endpoints(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    yield from checks.enums("core.v1.Endpoints", new)
    if old is not None and old.get("subsets") == new.get("subsets"):
        return
    for index, subset in enumerate(new.get("subsets", ())):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(path, "must specify addresses or notReadyAddresses")
        for field in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(field, ())):
                place = f"{path}.{field}[{at}]"
                yield from _validate_endpoint_address(address.get("ip", ""), f"{place}.ip")
                if address.get("hostname"):
                    yield from named(meta.check_label_name, address["hostname"], f"{place}.hostname")
                if "nodeName" in address:
                    yield from named(meta.check_subdomain_name, address["nodeName"], f"{place}.nodeName")
        ports = subset.get("ports", ())
        for at, port in enumerate(ports):
            place = f"{path}.ports[{at}]"
            if port.get("name"):
                yield from named(meta.check_label_name, port["name"], f"{place}.name")
            elif len(ports) > 1:
                yield required(f"{place}.name")
            yield from _validate_port(port.get("port", 0), f"{place}.port")
            if "appProtocol" in port:
                yield from named(meta.check_qualified_name, port["appProtocol"], f"{place}.appProtocol")


def _validate_endpoint_address(text: str, path: str) -> Errors:
    address = parsed(text)
    if address is None:
        yield invalid(path, text, "must be a valid IP address")
    elif address.is_unspecified:
        yield invalid(path, text, f"may not be unspecified ({text})")
    elif address.is_loopback:
        yield invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    elif address.is_link_local:
        yield invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    elif address in _LOCAL_MULTICAST[address.version]:
        yield invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


_LOCAL_MULTICAST: Final = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}


def warn_of_endpoints(new: Tree, _old: Tree | None) -> Iterator[str]:
    for index, subset in enumerate(new.get("subsets", ())):
        for field in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(field, ())):
                yield from _warn_of_address(address.get("ip", ""), f"subsets[{index}].{field}[{at}].ip")


# --- EndpointSlice ----------------------------------------------------------------------------------------------------


def on_create_endpoint_slice(tree: Tree) -> None:
    _drop_topology(tree)


def on_update_endpoint_slice(new: Tree, old: Tree) -> None:
    if new.get("endpoints") != old.get("endpoints"):
        _drop_topology(new)


def _drop_topology(tree: Tree) -> None:
    """The field of an earlier version, which is read but not written through this one."""
    for endpoint in tree.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def validate_endpoint_slice(new: Tree, old: Tree | None, _subresource: str) -> Errors:
    kind, endpoints, ports = new.get("addressType", ""), new.get("endpoints") or (), new.get("ports") or ()
    yield from checks.enums("discovery.v1.EndpointSlice", new)
    if not kind:
        yield required("addressType")
    elif kind not in _ADDRESS_TYPES:
        yield not_supported("addressType", kind, _ADDRESS_TYPES)
    if len(ports) > _SLICE_PORTS_MAX:
        yield FieldError("ports", ErrorType.TOO_MANY, f"must have at most {_SLICE_PORTS_MAX} items", len(ports))
    else:
        yield from _validate_slice_ports(ports)
    if len(endpoints) > _ENDPOINTS_MAX:
        yield FieldError("endpoints", ErrorType.TOO_MANY, f"must have at most {_ENDPOINTS_MAX} items", len(endpoints))
    elif old is None or old.get("endpoints") != new.get("endpoints"):
        for index, endpoint in enumerate(endpoints):
            yield from _validate_endpoint(endpoint, kind, f"endpoints[{index}]")
    if old is not None:
        yield from checks.immutable(new, old, "", "addressType")


def _validate_slice_ports(ports: Any) -> Errors:
    for index, port in enumerate(ports):
        if port.get("name"):
            yield from named(meta.check_label_name, port["name"], f"ports[{index}].name")
        if "appProtocol" in port:
            yield from named(meta.check_qualified_name, port["appProtocol"], f"ports[{index}].appProtocol")
    yield from checks.unique((f"ports[{index}].name", port.get("name", "")) for index, port in enumerate(ports))


def _validate_endpoint(endpoint: Tree, kind: str, path: str) -> Errors:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        yield required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > _ADDRESSES_MAX:
        yield FieldError(
            f"{path}.addresses", ErrorType.TOO_MANY, f"must have at most {_ADDRESSES_MAX} items", len(addresses)
        )
    for index, text in enumerate(addresses):
        place = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            yield from named(meta.check_subdomain_name, text, place)
            if "." not in text:
                yield invalid(place, text, "should be a domain with at least two segments separated by dots")
        elif kind in _ADDRESS_TYPES:
            address = parsed(text)
            if address is not None and _family(address) != kind:
                yield invalid(f"{path}.addresses", text, f"must be an {kind} address")
            yield from _validate_endpoint_address(text, place)
    if "nodeName" in endpoint:
        yield from named(meta.check_subdomain_name, endpoint["nodeName"], f"{path}.nodeName")
    if "hostname" in endpoint:
        yield from named(meta.check_label_name, endpoint["hostname"], f"{path}.hostname")
    for field, check in (("forZones", meta.check_label_value), ("forNodes", meta.check_subdomain_name)):
        hints = endpoint.get("hints", {}).get(field, ())
        place = f"{path}.hints.{field}"
        if len(hints) > _HINTS_MAX:
            yield FieldError(place, ErrorType.TOO_MANY, f"must have at most {_HINTS_MAX} items", len(hints))
            continue
        yield from checks.unique((f"{place}[{index}].name", one.get("name")) for index, one in enumerate(hints))
        for index, one in enumerate(hints):
            yield from named(check, one.get("name", ""), f"{place}[{index}].name")


def warn_of_endpoint_slice(new: Tree, old: Tree | None) -> Iterator[str]:
    if old is None and new.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        for at, text in enumerate(endpoint.get("addresses") or ()):
            yield from _warn_of_address(text, f"endpoints[{index}].addresses[{at}]")
