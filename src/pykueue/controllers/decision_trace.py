"""A trace of the calls that change the scheduler's state and of its decisions, which can be replayed.

    with trace(path, configuration) as write: ...
    record(world, write)        from now on, every call that changes the state is recorded, one line each
    replay(lines, world)        the same calls on another state: are the decisions the same?

The state is pure: the same calls in the same order give the same decisions on any machine. A trace that the program
that wrote it replays differently shows a bug; another version shows what it decides differently.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from kubemachinery import codec, unstructured
from kubemachinery.errors import UsageError
from kubemachinery.unstructured import Tree
from pykueue.api import registry
from pykueue.core.decision import Decision
from pykueue.state.quota_windows import ScheduledWindows
from pykueue.state.world import World
from pykueue.version import __version__

# The methods of World that change its state. Calls that they make themselves follow from them and are not recorded.
_STEPS: Final = (
    "put",
    "drop",
    "settle",
    "set_windows",
    "decide",
    "admit_first",
    "recheck",
    "mark_evicted",
    "refuse",
    "set_aside",
    "retry_all",
    "requeue_in_flight",
    "writing",
    "written",
    "lost",
    "sample_usage",
    "settle_usage",
    "forgive_usage",
)
_DECIDE: Final = ("decide", "admit_first")
_WINDOWS: Final = "set_windows"

Write = Callable[[bytes], object]


class _Line(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    do: str
    given: list[Any]
    named: dict[str, Any] = {}
    decided: list[Tree] | None = None
    raised: str = ""  # the name of the exception that the call raised


_read: Final = msgspec.json.Decoder(_Line).decode


# --- Writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def trace(path: Path, configuration: Tree) -> Iterator[Write]:
    """Open a new trace, readable by its owner only: it contains users' objects. The first line is the configuration."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode({"pykueue": __version__, "configuration": configuration}) + b"\n")
        yield file.write


def record(world: World, write: Write) -> None:
    """Write a line for every call that changes this state. The methods of this one object are wrapped, so a state that
    is not recorded has no overhead."""
    depth = 0

    def wrapped(do: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def recorded(*given: Any, **named: Any) -> Any:
            nonlocal depth
            depth += 1
            result, raised = None, ""
            try:
                result = call(*given, **named)
                return result
            except Exception as error:
                raised = type(error).__name__
                raise
            finally:
                depth -= 1
                if not depth:
                    line = _Line(do, [_written(value) for value in given], named, _decided(do, result), raised)
                    write(msgspec.json.encode(line) + b"\n")

        return recorded

    for do in _STEPS:
        setattr(world, do, wrapped(do, getattr(world, do)))


def _written(value: Any) -> Any:
    """Return a value as JSON, without managedFields: they are half of an object and no decision depends on them."""
    if not isinstance(value, msgspec.Struct):
        return value
    return unstructured.without(codec.to_tree(value), ("metadata", "managedFields"))


def _decided(do: str, result: Any) -> list[Tree] | None:
    return [_decision(one) for one in result] if do in _DECIDE and result is not None else None


def _decision(decision: Decision) -> Tree:
    """Return a decision without its explanation and without what only the scheduler uses."""
    bare = replace(decision, explanation=(), scan_position=None, rank=(), failure=None)
    found: Tree = msgspec.to_builtins(bare, str_keys=True, order="deterministic", enc_hook=repr)
    for internal in ("explanation", "scan_position", "rank", "failure"):
        del found[internal]
    return {"decision": type(decision).__name__, **found}


# --- Replay -----------------------------------------------------------------------------------------------------------


class ReplayDifference(msgspec.Struct, frozen=True):
    """The first line with a different decision."""

    line: int
    recorded: list[Tree]
    replayed: list[Tree]


class Replay(msgspec.Struct):
    """The result of a replay."""

    calls: int = 0
    cycles: int = 0
    decisions: int = 0
    difference: ReplayDifference | None = None


def replay(lines: Iterable[bytes], world: World, *, first: int = 1) -> Replay:
    """Replay the calls of a trace on an empty state, up to the first difference. `first` is the number of the line."""
    found = Replay()
    for number, text in enumerate(lines, first):
        try:
            line = _read(text)
            call = getattr(world, line.do) if line.do in _STEPS else None
            given = [_thing(value) for value in line.given]
            if line.do == _WINDOWS:
                given[0] = msgspec.convert(given[0], tuple[ScheduledWindows, ...])
        except (msgspec.DecodeError, LookupError, codec.DecodeError) as error:
            raise UsageError(f"line {number}: is no line of a trace: {error}") from None
        if call is None:
            raise UsageError(f"line {number}: {line.do} is no method that changes the scheduler's state")
        found.calls += 1
        recorded, replayed = _outcome(line.decided, line.raised), _replayed(line.do, call, given, line.named)
        found.cycles += bool(line.decided)
        found.decisions += len(line.decided or ())
        if replayed != recorded:
            found.difference = ReplayDifference(number, recorded, replayed)
            break
    return found


def _replayed(do: str, call: Callable[..., Any], given: list[Any], named: dict[str, Any]) -> list[Tree]:
    try:
        decided = _decided(do, call(*given, **named))
    except Exception as error:
        # It may be the exception that was recorded; later calls depend on it.
        return _outcome(None, type(error).__name__)
    return _outcome(msgspec.json.decode(msgspec.json.encode(decided)), "")


def _outcome(decided: list[Tree] | None, raised: str) -> list[Tree]:
    return [{"raised": raised}] if raised else decided or []


def _thing(value: Any) -> Any:
    """Return an API object, if the value is one."""
    if not isinstance(value, dict) or "kind" not in value:
        return value
    row = registry.ALL.find(value["apiVersion"], value["kind"])
    if row is None or row[1].type is None:
        raise LookupError(f"{value['apiVersion']} {value['kind']} is no kind of this program")
    return codec.from_tree(value, row[1].type)
