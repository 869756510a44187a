"""The real kube-apiserver and etcd, built once from their published Go modules and kept in a cache folder.

    python -m cluster.assets        (from `tests/`) builds what is missing and prints the folder

`KUBEBUILDER_ASSETS` names a folder that has both already; then nothing is built. Otherwise they go to
`$PYKUEUE_CACHE/kubebuilder-assets`, or `.cache/kubebuilder-assets` in the checkout. The small programs of
`cluster/programs` are built the same way, beside them; and so is Helm, if `PYKUEUE_HELM` is set.

The partners of `partners.PARTNERS` (Kubernetes' own controllers, kwok, the operators of the job kinds) go to `operators`
beside them. `PYKUEUE_OPERATORS` selects those that are not built by default: `all`, or names with commas.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.assets import building, partners
from cluster.assets.partners import PARTNERS, Partner

KUBERNETES: Final = partners.KUBERNETES
ETCD: Final = "v3.7.3"
HELM: Final = "v3.21.4"
OPERATORS: Final = "PYKUEUE_OPERATORS"
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


@dataclass(frozen=True)
class BuiltPartner:
    """A partner on this machine: its binary, and the folder with the files of its module."""

    partner: Partner
    binary: Path
    files: Path

    def paths(self, pattern: str) -> list[Path]:
        """The files whose path in the module matches; at least one."""
        found = sorted(self.files.glob(pattern))
        if not found:
            raise AssetsError(f"{self.partner.name} {self.partner.version} has no file {pattern} in {self.files}")
        return found


def selected() -> tuple[Partner, ...]:
    """The partners that tests run with: those of every run, and those that `PYKUEUE_OPERATORS` names."""
    asked = {name.strip() for name in os.environ.get(OPERATORS, "").split(",")} - {""}
    known = {partner.name for partner in PARTNERS}
    if unknown := sorted(asked - known - {"all"}):
        raise AssetsError(f"{OPERATORS} names {', '.join(unknown)}: known are all, {', '.join(sorted(known))}")
    return tuple(each for each in PARTNERS if each.always or "all" in asked or each.name in asked)


def partner(name: str) -> BuiltPartner:
    """Build one of `PARTNERS` where it is missing, and return where it is. One that is not selected raises."""
    found = _partner(name)
    if found not in selected():
        switch = f"OPERATORS=all or OPERATORS={name} runs its tests"
        raise AssetsError(f"{found.title} {found.version} is not selected: {switch}")
    return _built(found)


def kueue() -> BuiltPartner:
    """Kueue's manager, for the benchmark that runs it beside ours; built where it is missing."""
    return _built(partners.KUEUE)


def _built(found: Partner) -> BuiltPartner:
    name, where = found.name, _operators()
    if not _has_stamp(where, name, building.stamp(found)):
        go = _go(name)
        unfinished = where / f".{name}.{os.getpid()}"
        with _announced(f"{name} {found.version}"), _as_assets_error():
            building.build(go, found, unfinished, where / f"{name}.log")
        unfinished.rename(where / name)
        (where / f"{name}.version").write_text(building.stamp(found))
    return BuiltPartner(found, where / name, _files(found))


def files(name: str) -> Path:
    """The folder with the files of a partner's module, such as its CRDs, whether it is selected or not; no build."""
    return _files(_partner(name))


def _files(found: Partner) -> Path:
    name, where = found.name, _operators()
    target, stamp = where / f"{name}.files", where / f"{name}.files.version"
    wanted = "\n".join((found.version, *found.files))
    if not (target.exists() and stamp.exists() and stamp.read_text() == wanted):
        with _as_assets_error():
            building.copy_files(_go(f"the files of {name}"), found, target, where / f"{name}.files.log")
        stamp.write_text(wanted)
    return target


def _partner(name: str) -> Partner:
    (found,) = (each for each in PARTNERS if each.name == name)
    return found


def _operators() -> Path:
    where = _cache() / "operators"
    where.mkdir(parents=True, exist_ok=True)
    return where


@contextlib.contextmanager
def _as_assets_error() -> Iterator[None]:
    try:
        yield
    except building.BuildError as wrong:
        raise AssetsError(str(wrong)) from wrong


def _ensure(where: Path, *binaries: _Binary) -> None:
    missing = [binary for binary in binaries if not _is_built(where, binary)]
    if not missing:
        return
    go = _go(" and ".join(binary.name for binary in missing))
    where.mkdir(parents=True, exist_ok=True)
    for binary in missing:
        _build(go, binary, where)


def _go(names: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise AssetsError(f"building {names} needs Go, and there is no go command here: install Go 1.26 or later")
    return go


def _is_built(where: Path, binary: _Binary) -> bool:
    return _has_stamp(where, binary.name, binary.version)


def _has_stamp(where: Path, name: str, version: str) -> bool:
    # The cache keeps a stamp beside what it built, so that a new version here means a new build.
    stamp = where / f"{name}.version"
    return os.access(where / name, os.X_OK) and stamp.exists() and stamp.read_text() == version


@contextlib.contextmanager
def _announced(what: str) -> Iterator[None]:
    print(f"building {what} (minutes, once) ...", file=sys.stderr, flush=True)
    begun = time.monotonic()
    yield
    print(f"built {what} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


def _build(go: str, binary: _Binary, where: Path) -> None:
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
    with _announced(f"{binary.name} {binary.version}"):
        done = subprocess.run(command, cwd=binary.source, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            unfinished.unlink(missing_ok=True)
            raise AssetsError(f"go could not build {binary.name}:\n{done.stderr.strip()[-2000:]}")
    unfinished.rename(where / binary.name)
    (where / f"{binary.name}.version").write_text(binary.version)
