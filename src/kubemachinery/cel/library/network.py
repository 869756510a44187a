"""IP addresses and networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

import msgspec

from kubemachinery.cel import types
from kubemachinery.cel.errors import CelError
from kubemachinery.cel.values import Value, declare

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class CIDR(msgspec.Struct, frozen=True):
    """An address with a prefix length; the address may have bits beyond the prefix."""

    address: IPAddress
    prefix: int

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_network((self.address, self.prefix), strict=False)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


declare(ipaddress.IPv4Address, types.IP)
declare(ipaddress.IPv6Address, types.IP)
declare(CIDR, types.CIDR)


def _ip(text: str) -> IPAddress:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CelError(f"cannot read {text!r} as an IP address") from None
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id is not None or address.ipv4_mapped is not None):
        raise CelError(f"{text!r} has a zone or is an IPv4 address in disguise")
    return address


def _cidr(text: str) -> CIDR:
    host, slash, prefix = text.partition("/")
    address = _ip(host)
    if not slash or not prefix.isascii() or not prefix.isdigit() or prefix != str(int(prefix[:4])):
        raise CelError(f"cannot read {text!r} as a CIDR")
    if int(prefix) > address.max_prefixlen:
        raise CelError(f"cannot read {text!r} as a CIDR")
    return CIDR(address, int(prefix))


def _reads(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def is_valid(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return is_valid


def _is_global_unicast(address: IPAddress) -> bool:
    broadcast = address == ipaddress.IPv4Address("255.255.255.255")
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and not broadcast


def _is_link_local_multicast(address: IPAddress) -> bool:
    if address.version == 4:
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.is_multicast and address.packed[1] & 0x0F == 0x02


def _contains_ip(network: CIDR, address: IPAddress) -> bool:
    return address.version == network.address.version and address in network.network


def _contains_cidr(network: CIDR, other: CIDR) -> bool:
    return network.prefix <= other.prefix and _contains_ip(network, other.network.network_address)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "ip(string) -> IP": _ip,
    "isIP(string) -> bool": _reads(_ip),
    "ip::isCanonical(string) -> bool": lambda text: str(_ip(text)) == text,
    "string(IP) -> string": str,
    "IP.family() -> int": lambda address: address.version,
    "IP.isUnspecified() -> bool": lambda address: address.is_unspecified,
    "IP.isLoopback() -> bool": lambda address: address.is_loopback,
    "IP.isLinkLocalMulticast() -> bool": _is_link_local_multicast,
    "IP.isLinkLocalUnicast() -> bool": lambda address: address.is_link_local,
    "IP.isGlobalUnicast() -> bool": _is_global_unicast,
    "cidr(string) -> CIDR": _cidr,
    "isCIDR(string) -> bool": _reads(_cidr),
    "string(CIDR) -> string": str,
    "CIDR.ip() -> IP": lambda network: network.address,
    "CIDR.prefixLength() -> int": lambda network: network.prefix,
    "CIDR.masked() -> CIDR": lambda network: CIDR(network.network.network_address, network.prefix),
    "CIDR.containsIP(IP) -> bool": _contains_ip,
    "CIDR.containsIP(string) -> bool": lambda network, text: _contains_ip(network, _ip(text)),
    "CIDR.containsCIDR(CIDR) -> bool": _contains_cidr,
    "CIDR.containsCIDR(string) -> bool": lambda network, text: _contains_cidr(network, _cidr(text)),
}
