"""TLS settings of servers: the minimum version, the cipher suites, the key exchange groups.

`profile_of` reads the names that Kueue's Configuration uses, which are those of Go, and returns a `TlsProfile` in the
names of OpenSSL, with notices about values that are not supported. All servers of a process use one profile.

Two differences from Go remain; both produce notices. Python chooses one key exchange group for a server up to version
3.14 (`set_ecdh_curve`), several from 3.15 on (`set_groups`); of several groups, the first that can be offered is. And
OpenSSL is built without some of the suites that Go still names (RC4, 3DES).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

_MINIMUM: Final = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

_TLS13_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})

# The name in the registry of TLS -> the name in OpenSSL. Go's older names without a hash mean those with one.
SUITES: Final[Mapping[str, str]] = {
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    **{
        f"TLS_ECDHE_{key}_WITH_{suite}": f"ECDHE-{key}-{name}"
        for key in ("ECDSA", "RSA")
        for suite, name in (
            ("AES_128_CBC_SHA", "AES128-SHA"),
            ("AES_256_CBC_SHA", "AES256-SHA"),
            ("AES_128_CBC_SHA256", "AES128-SHA256"),
            ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
            ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
            ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
            ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
        )
    },
}

# The number in the registry of TLS groups -> its name in OpenSSL.
GROUPS: Final[Mapping[int, str]] = {
    23: "prime256v1",
    24: "secp384r1",
    25: "secp521r1",
    29: "X25519",
    4587: "SecP256r1MLKEM768",
    4588: "X25519MLKEM768",
    4589: "SecP384r1MLKEM1024",
}


class TlsProfile(msgspec.Struct, frozen=True):
    """TLS settings of a server, in the names of OpenSSL. Empty means the defaults of this Python."""

    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    # The suites of TLS 1.2. Those of TLS 1.3 cannot be chosen, as in Go.
    ciphers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def server_context(self) -> ssl.SSLContext:
        """A context for a server, without a certificate. ALPN offers HTTP/1.1 only."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self.minimum
        if self.ciphers:
            context.set_ciphers(":".join(self.ciphers))
        if self.groups:
            _set_groups(context, self.groups)
        context.set_alpn_protocols(["http/1.1"])
        return context


DEFAULT: Final = TlsProfile()


class TlsProfileResult(msgspec.Struct, frozen=True):
    """A profile, notices about values that are not offered, and problems that make the settings unusable."""

    profile: TlsProfile
    notices: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def profile_of(
    minimum: str, suites: Sequence[str], groups: Sequence[int], *, own_certificate: bool
) -> TlsProfileResult:
    """The profile of `tls.minVersion`, `.cipherSuites` and `.curvePreferences`, which are valid names already.

    `own_certificate`: the servers use the certificate that the manager makes, with an ECDSA key.
    """
    notices: list[str] = []
    problems: list[str] = []
    oldest = _MINIMUM[minimum]
    older = [suite for suite in suites if suite not in _TLS13_SUITES]
    offered = {suite: SUITES[suite] for suite in older if _has_cipher(SUITES[suite])}
    unknown = [suite for suite in older if suite not in offered]
    if unknown:
        notices.append(f"tls.cipherSuites: {', '.join(unknown)}: not offered, because this OpenSSL does not have it")
    if suites and not offered:
        # Go refuses every handshake below TLS 1.3 then, because it has no suite for one.
        oldest = ssl.TLSVersion.TLSv1_3
        if older:
            problems.append(f"tls.cipherSuites: this OpenSSL has none of {', '.join(older)}")
    elif offered and own_certificate and not any("_ECDSA_" in suite for suite in offered):
        notices.append(
            "tls.cipherSuites: no suite fits the ECDSA certificate that the manager makes, so clients need TLS 1.3;"
            " add a suite with ECDSA"
        )
    chosen, unavailable = _chosen_groups(groups)
    if groups and not chosen:
        problems.append(f"tls.curvePreferences: this Python can offer none of {_listed(groups)}")
    elif unavailable:
        notices.append(
            f"tls.curvePreferences: only {_listed(chosen)} is offered, because this Python cannot offer"
            f" {_listed(unavailable)} as well"
        )
    profile = TlsProfile(oldest, tuple(dict.fromkeys(offered.values())), tuple(GROUPS[group] for group in chosen))
    return TlsProfileResult(profile, tuple(notices), tuple(problems))


def _listed(groups: Sequence[int]) -> str:
    return ", ".join(f"{group} ({GROUPS[group]})" for group in groups)


def _chosen_groups(groups: Sequence[int]) -> tuple[list[int], list[int]]:
    """The groups to offer in the given order, and those that cannot be offered."""
    usable = [group for group in groups if _has_group(GROUPS[group])]
    chosen = usable if hasattr(ssl.SSLContext, "set_groups") else usable[:1]
    return chosen, [group for group in groups if group not in chosen]


def _set_groups(context: ssl.SSLContext, groups: Sequence[str]) -> None:
    if hasattr(context, "set_groups"):
        context.set_groups(":".join(groups))
    else:
        (group,) = groups
        context.set_ecdh_curve(group)


@cache
def _has_cipher(name: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)
    except ssl.SSLError:
        return False
    return True


@cache
def _has_group(name: str) -> bool:
    try:
        _set_groups(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), (name,))
    except (ValueError, ssl.SSLError):
        return False
    return True
