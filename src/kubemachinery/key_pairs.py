"""Certificates with their keys, in PEM: written to files, and used in TLS contexts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from ssl import SSLContext

import msgspec


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its key."""

    certificate: bytes
    key: bytes


def load_into(context: SSLContext, identity: KeyPair) -> None:
    """Use this certificate in the context from the next connection on. OpenSSL reads files only: this one is readable
    by this user alone, and deleted at once."""
    with tempfile.TemporaryDirectory() as private:
        both = Path(private) / "both.pem"
        write_private(both, identity.certificate + b"\n" + identity.key)
        context.load_cert_chain(both)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
