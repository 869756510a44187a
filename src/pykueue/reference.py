"""The reference pages, made from the tables the program runs on. `python -m pykueue.reference` writes them.

Each page is a function without arguments that returns Markdown; `PAGES` says where it goes. `--check` writes nothing
and ends with 1 when a page on disk differs from what the tables say; `make check` asks that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pykueue import cli, features

_MADE: Final = "<!-- Made by `python -m pykueue.reference` from the program's own tables. Do not edit. -->"


# --- Markdown ---------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


def code(text: object) -> str:
    return f"`{text}`" if text not in ("", None) else ""


# --- Pages ------------------------------------------------------------------------------------------------------------


def gates_page() -> Iterator[str]:
    """Feature gates."""
    yield "# Feature gates\n"
    yield (
        "Set them under `featureGates` in the Configuration. `AllAlpha` and `AllBeta` switch every gate of a stage;"
        " a gate named by itself overrules them. A gate whose parent is off must be off too. Turning on one that is not"
        " implemented is refused at start.\n"
    )
    missing = features.missing_by_default()
    yield f"## On in Kueue, not implemented here yet ({len(missing)})\n"
    yield from table(["gate", "what is missing"], ([code(gate.name), gate.meaning] for gate in missing))
    yield f"## All {len(features.GATES)} gates\n"
    yield from table(
        ["gate", "default", "stage", "since", "here", "needs", "what it decides"],
        (
            [
                code(gate.name),
                ("on" if gate.default else "off") + (", locked" if gate.locked else ""),
                gate.stage,
                gate.history,
                "yes" if gate.implemented else "not yet",
                ", ".join(map(code, gate.needs)),
                gate.meaning + (f" ({gate.proposal})" if gate.proposal else ""),
            ]
            for gate in sorted(features.GATES.values(), key=lambda gate: gate.name)
        ),
    )
    yield "## Names that are no longer gates\n"
    yield from table(["gate", "why"], ([code(name), why] for name, why in sorted(features.REMOVED.items())))


def commands_page() -> Iterator[str]:
    """Commands."""
    yield "# Commands\n"
    yield "Exit codes: 0 done, 1 the answer is no, 2 the call or the input is wrong (one sentence on stderr).\n"
    yield from table(
        ["command", "what it does"],
        ([f"[`pykueue {name}`](#pykueue-{name})", verb.summary] for name, verb in cli.VERBS.items()),
    )
    for path, text in cli.help_texts():
        yield f"## {path}\n"
        yield f"```text\n{text}\n```\n"


PAGES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "docs/reference/feature-gates.md": gates_page,
    "docs/reference/commands.md": commands_page,
}


def render(page: Callable[[], Iterator[str]]) -> str:
    return _MADE + "\n\n" + "\n".join(page()).rstrip() + "\n"


def stale(root: Path) -> list[str]:
    """The pages on disk that do not say what the tables say."""
    return [
        name for name, page in PAGES.items() if not (root / name).is_file() or (root / name).read_text() != render(page)
    ]


def main(arguments: Sequence[str]) -> int:
    root = Path.cwd()
    if "--check" in arguments:
        old = stale(root)
        for name in old:
            print(f"{name} is stale; run make docs", file=sys.stderr)
        return 1 if old else 0
    for name in stale(root):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(render(PAGES[name]))
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
