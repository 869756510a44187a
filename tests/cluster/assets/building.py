"""Building a partner in a temporary module of its own, with the log kept beside the binary."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from cluster.assets.partners import KUEUE, PARTNERS, Partner

# Builds take minutes: they give way to whatever else the machine does, and compile one package at a time.
_NICE: Final = ("nice", "-n", "15")
_GO_VERSION: Final = "1.26.0"
_KUBERNETES: Final = "k8s.io/kubernetes"
_STAGING: Final = "./staging/src/"


class BuildError(Exception):
    """A command of a build failed; the message names the command's last lines and the log."""


def stamp(partner: Partner) -> str:
    """What a build depends on: the versions of the partner and of those it shares libraries with."""
    return "\n".join(f"{each.main}@{each.version}" for each in _family(partner))


def build(go: str, partner: Partner, binary: Path, log: Path) -> None:
    """Build the partner's main package as `binary`."""
    # Kubernetes' programs are compiled as kube-apiserver is, whose packages are in the build cache; the others statically.
    variables = {} if partner.module == _KUBERNETES else {"CGO_ENABLED": "0"}
    with _temporary(go, partner, log, variables) as module:
        found = module.json("mod", "download", "-json", f"{partner.module}@{partner.version}")
        module.write(_replacements(module.json("mod", "edit", "-json", found["GoMod"])["Replace"] or (), partner))
        # The checksum database need not have every library; the partner's own checksums are part of its module.
        module.write_checksums(Path(found["Dir"]) / "go.sum")
        module.run("get", *(f"{each.main}@{each.version}" for each in _family(partner)))
        module.run("build", "-p", "1", "-trimpath", "-ldflags", _linker_flags(partner), "-o", str(binary), partner.main)


def copy_files(go: str, partner: Partner, target: Path, log: Path) -> None:
    """Copy the files of the partner's module into a folder. This needs no build."""
    with _temporary(go, partner, log, {}) as module:
        found = module.json("mod", "download", "-json", f"{partner.module}@{partner.version}")
        _copy(Path(found["Dir"]), partner.files, target)


@contextlib.contextmanager
def _temporary(go: str, partner: Partner, log: Path, variables: dict[str, str]) -> Iterator[_Module]:
    with tempfile.TemporaryDirectory(prefix=f"pykueue-{partner.name}-") as home, log.open("w") as output:
        yield _Module(go, Path(home), partner.name, log, output.fileno(), variables)


def _family(partner: Partner) -> tuple[Partner, ...]:
    return tuple(each for each in (*PARTNERS, KUEUE) if each.libraries == partner.libraries)


def _linker_flags(partner: Partner) -> str:
    flags = ["-s", "-w"]
    if partner.module == _KUBERNETES:
        # Kubernetes' programs guard their compatibility by what the linker writes into these.
        package = "k8s.io/component-base/version"
        minor = partner.version.split(".")[1]
        flags += [f"-X {package}.gitVersion={partner.version}", f"-X {package}.gitMajor=1"]
        flags += [f"-X {package}.gitMinor={minor}"]
    return " ".join(flags)


def _replacements(replaced: Iterable[dict[str, Any]], partner: Partner) -> list[str]:
    """The replacements of the partner's own go.mod, which count in a main module only.

    Kubernetes replaces its libraries by folders of its repository; they are published with its own minor and patch.
    """
    lines = []
    for each in replaced:
        old, new = each["Old"]["Path"], each["New"]
        if new["Path"].startswith(_STAGING):
            lines.append(f"replace {old} => {old} {partner.version.replace('v1.', 'v0.')}")
        elif new.get("Version"):
            lines.append(f"replace {old} => {new['Path']} {new['Version']}")
    return lines


def _copy(source: Path, patterns: tuple[str, ...], target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for pattern in patterns:
        found = sorted(source.glob(pattern))
        if not found:
            raise BuildError(f"the module in {source} has no file {pattern}")
        for path in found:
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            # The module cache is read-only; the copy must not be.
            copied.write_bytes(path.read_bytes())


class _Module:
    """A temporary Go module, and the go commands run in it."""

    def __init__(self, go: str, home: Path, name: str, log: Path, output: int, variables: dict[str, str]) -> None:
        self._go = go
        self._home = home
        self._name = name
        self._log = log
        self._output = output
        self._environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off", **variables}

    def write(self, lines: list[str]) -> None:
        content = [f"module pykueue.test/{self._name}", f"go {_GO_VERSION}", *lines]
        (self._home / "go.mod").write_text("\n".join(content) + "\n")

    def write_checksums(self, known: Path) -> None:
        if known.exists():
            (self._home / "go.sum").write_bytes(known.read_bytes())

    def run(self, *arguments: str) -> None:
        # The log has the output of every command; its end is the reason of a failure.
        done = subprocess.run(
            [*_NICE, self._go, *arguments],
            cwd=self._home,
            env=self._environment,
            stdout=self._output,
            stderr=self._output,
        )
        if done.returncode:
            raise self._failed(arguments, self._log.read_text())

    def json(self, *arguments: str) -> Any:
        done = subprocess.run([self._go, *arguments], cwd=self._home, capture_output=True, text=True)
        if done.returncode:
            self._log.write_text(done.stdout + done.stderr)
            raise self._failed(arguments, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def _failed(self, arguments: tuple[str, ...], output: str) -> BuildError:
        last = "\n".join(output.strip().splitlines()[-8:])
        return BuildError(f"go {arguments[0]} failed for {self._name}; the whole log is {self._log}:\n{last}")
