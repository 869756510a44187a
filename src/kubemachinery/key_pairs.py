"""Certificates with their keys, in PEM: written to files, and used in TLS contexts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, SSLError

import msgspec


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its key."""

    certificate: bytes
    key: bytes


def load_into(context: SSLContext, identity: KeyPair) -> None:
    """Use this certificate in the context from the next connection on. Raises SSLError if it is not a certificate with
    its key; a context that had another one may be without any then."""
    with _private_file(identity.certificate + b"\n" + identity.key) as both:
        # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(both, password="")


def is_usable(identity: KeyPair) -> bool:
    """Whether these are a certificate and its key, which is not encrypted."""
    try:
        load_into(SSLContext(PROTOCOL_TLS_SERVER), identity)
    except SSLError:
        return False
    return True


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """Return the path of a file for the time of the `with`, because OpenSSL reads files only. It is in memory where the
    system has such files; elsewhere it is readable by this user alone, and deleted at once."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("key-pair"), "wb") as file:
            file.write(content)
            file.flush()
            path = f"/proc/self/fd/{file.fileno()}"
            if os.access(path, os.R_OK):
                yield path
                return
    import tempfile  # half a MiB, which a manager on Linux does not need

    with tempfile.TemporaryDirectory() as private:
        both = Path(private) / "both.pem"
        write_private(both, content)
        yield str(both)


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
