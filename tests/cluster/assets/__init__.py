"""The real kube-apiserver and etcd, built once from their published Go modules and kept in a cache folder.

    python -m cluster.assets        (from `tests/`) builds what is missing and prints the folder

`KUBEBUILDER_ASSETS` names a folder that has both already; then nothing is built. Otherwise they go to
`$PYKUEUE_CACHE/kubebuilder-assets`, or `.cache/kubebuilder-assets` in the checkout. The small programs of
`cluster/programs` are built the same way, beside them; and so is Helm, if `PYKUEUE_HELM` is set.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KUBERNETES: Final = "v1.36.3"
ETCD: Final = "v3.7.3"
HELM: Final = "v3.21.4"
# Clients in Go that tests run against our server.
PROGRAMS: Final = ("informers", "operator", "webhooked")

_HERE: Final = Path(__file__).resolve().parent
_PROGRAMS: Final = _HERE.parent / "programs"
_CHECKOUT: Final = _HERE.parents[2]
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
_HELM_PACKAGE: Final = "helm.sh/helm/v3"


class AssetsError(Exception):
    """The binaries are missing and cannot be built; the message has the remedy."""


@dataclass(frozen=True)
class _Binary:
    """One binary: its name, the folder of its Go module, the version under which it is kept, and the package in it."""

    name: str
    source: Path
    version: str
    linker_flags: tuple[str, ...] = ()
    verb: tuple[str, ...] = ("build",)
    package: str = "."


_BINARIES: Final = (
    _Binary("etcd", _HERE / "etcd", ETCD),
    _Binary(
        "kube-apiserver",
        _HERE / "apiserver",
        KUBERNETES,
        # The server reports, and guards its own compatibility by, what the linker writes into these.
        (
            f"-X {_VERSION_PACKAGE}.gitVersion={KUBERNETES}",
            f"-X {_VERSION_PACKAGE}.gitMajor=1",
            f"-X {_VERSION_PACKAGE}.gitMinor={KUBERNETES.split('.')[1]}",
        ),
    ),
)


_HELM: Final = _Binary(
    "helm",
    _HERE / "helm",
    HELM,
    # What it takes for the version of a cluster that it does not ask.
    tuple(
        f"-X {_HELM_PACKAGE}/pkg/{package}.k8sVersion{part}={number}"
        for package in ("chartutil", "lint/rules")
        for part, number in zip(("Major", "Minor"), KUBERNETES.removeprefix("v").split("."), strict=False)
    ),
    package=f"{_HELM_PACKAGE}/cmd/helm",
)


def folder() -> Path:
    """Where the binaries are, or will be."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        return Path(given)
    return _cache() / "kubebuilder-assets"


def _cache() -> Path:
    cache = os.environ.get("PYKUEUE_CACHE")
    return Path(cache) if cache else _CHECKOUT / ".cache"


def ensure() -> Path:
    """Build what is missing, and return the folder that holds both binaries."""
    where = folder()
    if os.environ.get("KUBEBUILDER_ASSETS"):
        missing = [binary.name for binary in _BINARIES if not os.access(where / binary.name, os.X_OK)]
        if missing:
            names = " and ".join(missing)
            raise AssetsError(f"KUBEBUILDER_ASSETS is {where}, which has no {names}: unset it, or put them there")
    else:
        _ensure(where, *_BINARIES)
    return where


def program(name: str) -> Path:
    """Build one of `PROGRAMS` where it is missing, and return its path. A package of tests makes a program that runs them."""
    source = _PROGRAMS / name
    files = sorted([*_PROGRAMS.glob("go.*"), *source.glob("*.go")])
    version = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    verb = ("test", "-c") if files[-1].name.endswith("_test.go") else ("build",)
    where = _cache() / "programs"
    _ensure(where, _Binary(name, source, version, verb=verb))
    return where / name


def helm() -> Path:
    """Helm, if it was built before or is to be built now: that takes minutes, so it is optional."""
    where = _cache() / "programs"
    if not _is_built(where, _HELM) and not os.environ.get("PYKUEUE_HELM"):
        raise AssetsError("Helm is not built here: PYKUEUE_HELM=1 builds it once, in about three minutes of CPU")
    _ensure(where, _HELM)
    return where / _HELM.name


def _ensure(where: Path, *binaries: _Binary) -> None:
    missing = [binary for binary in binaries if not _is_built(where, binary)]
    if not missing:
        return
    go = shutil.which("go")
    if go is None:
        names = " and ".join(binary.name for binary in missing)
        raise AssetsError(f"building {names} needs Go, and there is no go command here: install Go 1.26 or later")
    where.mkdir(parents=True, exist_ok=True)
    for binary in missing:
        _build(go, binary, where)


def _is_built(where: Path, binary: _Binary) -> bool:
    # The cache keeps a stamp beside what it built, so that a new version here means a new build.
    stamp = where / f"{binary.name}.version"
    return os.access(where / binary.name, os.X_OK) and stamp.exists() and stamp.read_text() == binary.version


def _build(go: str, binary: _Binary, where: Path) -> None:
    print(f"building {binary.name} {binary.version} (minutes, once) ...", file=sys.stderr, flush=True)
    begun = time.monotonic()
    unfinished = where / f".{binary.name}.{os.getpid()}"
    command = [
        go,
        *binary.verb,
        "-trimpath",
        "-ldflags",
        " ".join(("-s", "-w", *binary.linker_flags)),
        "-o",
        str(unfinished),
        binary.package,
    ]
    done = subprocess.run(command, cwd=binary.source, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        raise AssetsError(f"go could not build {binary.name}:\n{done.stderr.strip()[-2000:]}")
    unfinished.rename(where / binary.name)
    (where / f"{binary.name}.version").write_text(binary.version)
    print(f"built {binary.name} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
