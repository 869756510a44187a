"""YAML and JSON as people write them, read into plain trees with the place of every mistake.

Several documents may stand in a file; keys become text, as JSON has them; times stay the text that was written; and a
key written twice is an error, not a silent loss of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pykueue.errors import UsageError


class Document(NamedTuple):
    """One document of a file: where it stands, and what it says."""

    source: str
    tree: Any


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """Times stay text, and a key written twice is refused instead of the first being lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool) and key is not None:
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain value", key_node.start_mark)
            if _key(key) in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is written twice", key_node.start_mark
                )
            seen.add(_key(key))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


# A time is no type of JSON: it stays the text that was written.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse(text: str, source: str) -> Iterator[Document]:
    """The documents of one text; empty ones are skipped."""
    try:
        for index, tree in enumerate(yaml.load_all(text, Loader=_Loader), start=1):
            if tree is not None:
                yield Document(f"{source} document {index}", _plain(tree))
    except yaml.YAMLError as error:
        raise UsageError(f"{source}: {_sentence(error)}") from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{source}: is not usable YAML or JSON: {error}") from None


def read(path: Path) -> Iterator[Document]:
    """The documents of one file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 (byte {error.start})") from None
    yield from parse(text, str(path))


def _plain(tree: Any) -> Any:
    """Keys as text, as JSON has them."""
    if isinstance(tree, dict):
        return {_key(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    return tree


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


def _sentence(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
