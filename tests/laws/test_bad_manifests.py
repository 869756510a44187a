"""Laws of commands that read manifests: whatever is wrong with one, the answer is a sentence and an exit code.

Examples of the documentation are changed at one place or more: another value, or the field left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykueue import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFESTS = [
    manifest
    for manifest in (list(yaml.safe_load_all(path.read_text())) for path in sorted(EXAMPLES.rglob("*.yaml")))
    if all(isinstance(tree, dict) and "kind" in tree for tree in manifest)
]
SCALARS: list[Any] = [None, "", "x", "-1", "1e3", "9E", "∞", "1h", "0001-01-01T00:00:00Z", 0, -1, 2**64, -(10**25), 1.5]
VALUES = st.sampled_from([*SCALARS, True, [], {}, [None], [[]], {"a": None}, {"": 1}, "a" * 300, "\0"])
COMMANDS = st.sampled_from(
    [
        ("plan", "-f", "FILE", "--cycles", "5"),
        ("plan", "-f", "FILE", "-o", "yaml"),
        ("lint", "-f", "FILE"),
        ("explain", "-f", "FILE", "some"),
        ("whatif", "--in", "FILE", "-f", "FILE"),
        ("config", "check", "FILE"),
    ]
)
# Answers: yes, no, and that the input is refused.
ANSWERS = (0, 1, 2)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Each field and list element of a tree, as its container and its key."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from places(value)


@st.composite
def changed_manifests(draw: st.DrawFn) -> str:
    manifest = copy.deepcopy(draw(st.sampled_from(MANIFESTS)))
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(draw(st.sampled_from(manifest))))
        if not found:
            continue
        container, key = found[draw(st.integers(0, len(found) - 1))]
        change = draw(st.sampled_from(["set", "leave out", "add an empty name"]))
        if change == "leave out":
            del container[key]
        elif change == "set" or isinstance(container, list):
            container[key] = draw(VALUES)
        else:
            container[""] = draw(VALUES)
    return "---\n".join(yaml.safe_dump(tree, allow_unicode=True) for tree in manifest)


@given(changed_manifests(), COMMANDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_every_manifest_gets_an_answer(tmp_path: Path, manifest: str, command: tuple[str, ...]) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(manifest)
    output = StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = exit_code([str(path) if word == "FILE" else word for word in command])
    assert code in ANSWERS, output.getvalue()
    assert "internal error" not in output.getvalue()
    assert "Traceback" not in output.getvalue()


def exit_code(arguments: list[str]) -> int:
    try:
        cli.main(arguments)
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0
