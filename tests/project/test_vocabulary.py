"""The language of the project: words that are not used, and class names that are unique."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
SUFFIXES = frozenset({".py", ".md", ".js", ".html", ".css", ".txt", ".toml"})

# docs/vocabulary.md has the established terms. A component is named, and returns, writes, records or refuses.
AVOIDED = (
    r"(?:some|no|every|any)body",
    r"who(?:ever|m)",
    r"h(?:e|is|im)",
    r"t(?:old|ells?|elling)",
    r"sa(?:id|ys?|ying)",
    r"hear(?:s|d)?",
    r"speaks?",
    r"wish(?:es)?",
    r"stor(?:y|ies)",
    r"verdicts?",
    r"anew",
    r"(?:door|room|arrow)s?",
    r"house",
    r"brain",
    r"hands",
    r"condemn(?:s|ed)?",
    r"tall(?:y|ies)",
)
_AVOIDED = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(AVOIDED)})(?![A-Za-z])", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Proposals have user stories, which pages and tests cite by that name; keys of a keyboard are called arrows. The
# changelog is history.
ALLOWED = {
    "docs/keps": frozenset({"story", "stories"}),
    "tests/keps": frozenset({"story"}),
    "src/pykueue/dashboard/static": frozenset({"arrow"}),
    "tests/dashboard": frozenset({"arrow"}),
    "tests/project/test_vocabulary.py": frozenset({"stories", "arrows"}),
}


def avoided(text: str) -> Iterator[tuple[int, str]]:
    """The avoided words of a text with their lines; words inside identifiers count."""
    for number, line in enumerate(text.splitlines(), start=1):
        for found in _AVOIDED.finditer(_CAMEL.sub(" ", line).replace("_", " ")):
            yield number, found[0].lower()


def _files(*directories: str) -> Iterator[Path]:
    for directory in directories:
        yield from (path for path in sorted((ROOT / directory).rglob("*")) if path.suffix in SUFFIXES)


def _allowed(path: Path) -> frozenset[str]:
    name = path.relative_to(ROOT).as_posix()
    return frozenset().union(*(words for prefix, words in ALLOWED.items() if name.startswith(prefix)))


def test_sources_and_documentation_use_the_vocabulary() -> None:
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in [*_files("src", "docs", "bench", "examples"), *pages]
        for line, word in avoided(path.read_text(encoding="utf-8"))
        if word not in _allowed(path)
    ]
    assert not found, "\n".join(found)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """The names, comments and docstrings of a module with their lines, not its other strings: those are data."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.COMMENT):
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from enumerate(node.value.value.splitlines(), start=node.lineno)


def test_tests_use_the_vocabulary() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in _files("tests")
        if path.suffix == ".py"
        if any(True for _ in avoided(f"{path.stem}\n{path.read_text(encoding='utf-8')}"))  # most files have none
        for line, text in [(1, path.stem), *prose(path.read_text(encoding="utf-8"))]
        for _, word in avoided(text)
        if word not in _allowed(path)
    ]
    assert not found, "\n".join(found)


def test_prose_of_a_module_is_names_comments_and_docstrings() -> None:
    source = '"""First.\n\nThird."""\nname = "data"  # why\n'
    assert list(prose(source)) == [(4, "name"), (4, "# why"), (1, "First."), (2, ""), (3, "Third.")]


def test_avoided_words_are_found_in_prose_and_identifiers() -> None:
    text = "Whoever waits\nself._told = Verdict\nwhole, others, roomy, retold\n"
    assert list(avoided(text)) == [(1, "whoever"), (2, "told"), (2, "verdict")]


# --- Class names ------------------------------------------------------------------------------------------------------


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _modules() -> dict[str, ast.Module]:
    trees = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        trees[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def _imported_across_packages(trees: dict[str, ast.Module]) -> set[tuple[str, str]]:
    """(module, name) of everything that another package uses, imported by name or as an attribute of a module."""
    used = set()
    for module, tree in trees.items():
        modules = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    if whole in trees:
                        modules[alias.asname or alias.name] = whole
                    elif _package(node.module) != _package(module):
                        used.add((node.module, alias.name))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                target = modules[node.value.id]
                if _package(target) != _package(module):
                    used.add((target, node.attr))
    return used


def test_class_names_that_other_packages_import_are_unique() -> None:
    trees = _modules()
    used = _imported_across_packages(trees)
    defined = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(module)
    wrong = {
        name: modules
        for name, modules in defined.items()
        if len(modules) > 1 and any((module, name) in used for module in modules)
    }
    assert not wrong, "\n".join(f"{name}: {', '.join(modules)}" for name, modules in sorted(wrong.items()))


def test_every_term_of_the_vocabulary_has_a_meaning() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]*) \| ([^|]*) ?\|$",
        (ROOT / "docs/vocabulary.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    terms = [term for term, _, _ in rows if term not in ("term", "---")]
    assert len(terms) > 80
    assert len(set(terms)) == len(terms)
    assert all(meaning.strip() for term, meaning, _ in rows)
