"""YAML and JSON files of users, read into plain trees; errors have their line and column.

A file may contain several documents. Keys become text, as in JSON; times stay text; a duplicate key is an error, not a
silent loss of the first value.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from kubemachinery import kubectl_yaml
from kubemachinery.errors import UsageError

# Loading takes about a second for eight MiB. A file of this size has more objects than a server accepts.
FILE_BYTES_MAX: Final = 64 * 2**20


class Document(NamedTuple):
    """One document of a file: its source and its tree."""

    source: str
    tree: Any


class _Loader(kubectl_yaml.Loader):
    """Refuses a duplicate key, instead of losing the first value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        seen: set[str] = set()
        merged: dict[str, Any] = {}
        written: dict[str, Any] = {}
        for key_node, value in node.value:
            key = self._key(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is written twice", key_node.start_mark
                )
            seen.add(key)
            if key_node.tag == kubectl_yaml.MERGE:
                merged = self._merged(value)
            else:
                written[key] = self.construct_object(value, deep=deep)
        return {**merged, **written}  # explicit keys override those of `<<`

    def _merged(self, node: yaml.Node) -> dict[str, Any]:
        """The entries of `<<`: of one mapping, or of several, where the first with a key wins. PyYAML would concatenate
        their entries, so that a few lines of nested merges become millions of entries."""
        found = self.construct_object(node, deep=True)
        parts = found if isinstance(found, list) else [found]
        if not all(isinstance(part, dict) for part in parts):
            raise yaml.constructor.ConstructorError(
                None, None, "<< requires a mapping, or a list of mappings", node.start_mark
            )
        return {key: value for part in reversed(parts) for key, value in part.items()}

    def _key(self, node: yaml.Node) -> str:
        """Keys as text, as JSON has them."""
        if node.tag == kubectl_yaml.MERGE:
            return "<<"
        text = kubectl_yaml.key_text(self.construct_object(node, deep=True))
        if text is None:
            raise yaml.constructor.ConstructorError(None, None, "a key must be a plain value", node.start_mark)
        return text


def parse(text: str, source: str) -> Iterator[Document]:
    """The documents of one text; empty ones are skipped."""
    try:
        _check_depth(text)
        for index, tree in enumerate(yaml.load_all(text, Loader=_Loader), start=1):
            if tree is not None:
                if _values(tree, {}) > _VALUES_MAX:
                    raise ValueError(f"document {index} expands to more than {_VALUES_MAX} values")
                yield Document(f"{source} document {index}", tree)
    except yaml.YAMLError as error:
        raise UsageError(f"{source}: {_sentence(error)}") from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{source}: is not usable YAML or JSON: {error}") from None


def read(path: Path) -> Iterator[Document]:
    """The documents of one file."""
    yield from parse(text(path), str(path))


def text(path: Path) -> str:
    """The content of a file. Pipes are read as well; a device that never ends is refused by its size."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return _decoded(content, str(path))


def standard_input() -> Iterator[Document]:
    """The documents of the standard input."""
    yield from parse(_decoded(sys.stdin.buffer.read(FILE_BYTES_MAX + 1), "standard input"), "standard input")


def _decoded(content: bytes, source: str) -> str:
    if len(content) > FILE_BYTES_MAX:
        raise UsageError(f"{source}: is larger than {FILE_BYTES_MAX // 2**20} MiB, and cannot be read")
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: is not UTF-8 (byte {error.start})") from None


# A few lines of aliases to aliases can expand to billions of values. The largest object of a server has far fewer.
_VALUES_MAX: Final = 5_000_000


_DEPTH_MAX: Final = 200


def _check_depth(text: str) -> None:
    """Refuse nesting that is too deep: loading recurses in C, where an overflow ends the process. Indentation and
    brackets show whether a file comes near the limit; only such a file is scanned token by token."""
    indentation = max((len(line) - len(line.lstrip(" -?")) for line in text.splitlines()), default=0)
    if indentation + text.count("[") + text.count("{") <= _DEPTH_MAX:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEPTH_MAX:
            raise ValueError(f"it is nested deeper than {_DEPTH_MAX} levels")


def _values(tree: Any, sizes: dict[int, int]) -> int:
    """The number of values of a tree, aliases counted once per use. A tree that contains itself is infinite."""
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    known = sizes.get(id(tree)) if children else 1
    if known is None:
        sizes[id(tree)] = _VALUES_MAX  # found by a child that is its own ancestor
        known = sizes[id(tree)] = 1 + sum(_values(child, sizes) for child in children)
    return known


def _sentence(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
