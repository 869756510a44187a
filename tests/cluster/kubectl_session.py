"""A kubectl session: read from its text, run on two servers, and compared command by command.

What no two servers have in common is taken out first: ages, times, uids, revisions, ports. What is left is compared
line
by line. A difference that is meant is a row in `EXPLAINED`, with its reason.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SECONDS_MAX: Final = 90


@dataclass(frozen=True)
class Step:
    """One command with what it reads, or one file to write."""

    command: str = ""
    file: str = ""
    text: str = ""


def read(path: Path) -> Iterator[Step]:
    """The steps of a session."""
    command = file = ""
    lines: list[str] = []
    for line in [*path.read_text().splitlines(), "#"]:
        if line.startswith("  "):
            lines.append(line[2:])
            continue
        if command or file:
            yield Step(command, file, "".join(f"{one}\n" for one in lines))
            command, file, lines = "", "", []
        if line.startswith("$ "):
            command = line[2:]
        elif line.startswith("file "):
            file = line[5:]
        elif line and not line.startswith("#"):
            raise ValueError(f"{path.name}: neither a command nor a file nor a comment: {line}")


@dataclass(frozen=True)
class Outcome:
    """What a command did, without what no two servers have in common."""

    code: int
    stdout: str
    stderr: str

    def lines(self) -> list[str]:
        return [
            f"exit {self.code}",
            *(f"out {line}" for line in self.stdout.splitlines()),
            *(f"err {line}" for line in self.stderr.splitlines()),
        ]


@dataclass(frozen=True)
class Person:
    """A user with a kubeconfig and an own folder."""

    home: Path

    def do(self, step: Step) -> Outcome:
        if step.file:
            (self.home / step.file).write_text(step.text)
            return Outcome(0, "", "")
        done = subprocess.run(
            ["timeout", str(_SECONDS_MAX), "bash", "-c", step.command],
            input=step.text,
            cwd=self.home,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "KUBECONFIG": str(self.home / "kubeconfig"),
                "TZ": "UTC",
            },
            capture_output=True,
            text=True,
        )
        return Outcome(done.returncode, _normalised(done.stdout, self.home), _normalised(done.stderr, self.home))


_VOLATILE: Final = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| \+0000)"), "<time>"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r'("?resourceVersion"?: )"\d+"'), r'\1"<revision>"'),
    (re.compile(r"(Resource Version: +)\d+"), r"\1<revision>"),
    (re.compile(r"/tmp/(LIVE|MERGED|kubectl-edit)-\d+\S*?(?=[\s/\"])"), r"/tmp/\1"),
    # An age is a whole cell of a table, or is followed by "ago".
    (re.compile(r"(?<=  )(\d+[smhdy])+(?=$|  | \(x| ago)", re.MULTILINE), "<age>"),
    (re.compile(r"^(\d+[smhdy])+(?=  )", re.MULTILINE), "<age>"),
    # Tables are as wide as their widest cell, which may be one of the above.
    (re.compile(r"(?<=\S) {2,}|\t+"), "  "),
    (re.compile(r" +$", re.MULTILINE), ""),
)


# The wording of errors may differ; the subject and the reason must be equal.
_OWN_WORDS: Final = (
    re.compile(r"(?<=: Invalid value: ).*"),
    re.compile(r"(?<=\* )(<nil>)?(?=: Invalid value)"),
    re.compile(r"(?<=the server could not find the requested resource).*"),
    re.compile(r"(?<=in an unknown format)( \(.*?\))?(?= -)"),
)


def _normalised(text: str, home: Path) -> str:
    text = text.replace(str(home), "<home>")
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    for pattern in _OWN_WORDS:
        text = pattern.sub("<words>", text)
    return text


@dataclass(frozen=True)
class Explanation:
    """Differing lines that are meant: of which commands, which lines ("real ..." or "ours ..."), and why."""

    why: str
    command: str
    lines: str

    def covers(self, command: str, line: str) -> bool:
        return re.search(self.command, command) is not None and re.search(self.lines, line) is not None


def differences(real: Outcome, ours: Outcome) -> list[str]:
    """The lines that only one of them has."""
    compared = difflib.ndiff(real.lines(), ours.lines())
    sides = {"- ": "real ", "+ ": "ours "}
    return [sides[line[:2]] + line[2:] for line in compared if line[:2] in sides]


def explanation(command: str, line: str) -> Explanation | None:
    """The documented reason why this line differs, or None."""
    return next((row for row in EXPLAINED if row.covers(command, line)), None)


# The kinds that the server does not support; `unsupported` of the server lists them with the reason.
_ABSENT: Final = (
    r"apiregistration\.k8s\.io|controllerrevisions|autoscaling/|certificates\.k8s\.io|flowcontrol\.apiserver|networking\.k8s\.io"
    r"|policy/|storage\.k8s\.io|admissionpolic|bindings |componentstatuses|persistentvolume|replicationcontrollers"
    r"|resourcequotas"
)

EXPLAINED: Final[tuple[Explanation, ...]] = (
    Explanation("two servers, two versions", "^kubectl version", r"out Server Version: "),
    Explanation("what is not offered is absent", "^kubectl api-(resources|versions)", f"^real out .*({_ABSENT})"),
    Explanation(
        "each server signs what it made itself with its own name", "--raw /api/v1/namespaces/default", r'"manager": '
    ),
    Explanation("there are no ResourceQuotas", "^kubectl describe namespace", r"^real out (No resource quota\.)?$"),
    Explanation(
        "there are no ResourceQuotas",
        "^kubectl create quota",
        r"^real (exit 0|out resourcequota/small created)|^ours (exit 1|err error: failed to create quota: the server could not)",
    ),
    Explanation(
        "a write of RBAC objects gets a warning that they are not enforced here",
        "role",
        "^ours err Warning: RBAC is stored but not enforced",
    ),
    Explanation(
        "a JSON patch that cannot be applied is refused with its operation and place",
        "^kubectl patch .*--type=json",
        r'^real err The request is invalid: the server rejected|^ours err The ConfigMap "colors" is invalid: patch: ',
    ),
    Explanation(
        "our own words for a body that is no JSON", "^kubectl patch cm colors -p '{\"data\":'$", r"\(BadRequest\): "
    ),
    Explanation(
        "paths are not granted one by one here, where the administrator may do everything",
        "^kubectl auth can-i --list",
        r"^real out (selfsubject\S+|)  +\S* *\S*  \[|^(real|ours) out +\[\*\]  \[\]  \[\*\]",
    ),
    Explanation("the real one's file of tokens demands a uid", "^kubectl auth whoami", "^real out UID  admin"),
    Explanation(
        "no tokens are issued for service accounts",
        "^kubectl create token",
        r"^real (exit 0|out eyJ)|^ours (exit 1|err error: failed to create token: this server issues no tokens)",
    ),
    Explanation(
        "descriptions are our own, and the fields of built-in kinds have none",
        "^kubectl explain",
        r"^(real|ours) out (    (?! *\S+  <)|$)",
    ),
)
