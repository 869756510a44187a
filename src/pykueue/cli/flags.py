"""Flags with an optional value, as kubectl has them: the value follows an equals sign. Those that need a value in
kueuectl also take one of their words after a space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class LooseOption(click.Option):
    """A flag with an optional value: `--dry-run` as well as `--dry-run=server`. Only words in `spaced` are read as the
    value after a space, as in `--dry-run server`: any other word after the flag is an argument of the command."""

    def __init__(self, *args: Any, alone: str, spaced: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes | {"is_flag": False, "flag_value": alone})
        self.alone = alone
        self.spaced = tuple(spaced)


class IntegerRange(click.IntRange):
    """An integer between limits; click would refuse other text as "not a valid integer range"."""

    name = "integer"


class Command(click.Command):
    """A command with such flags; click itself would take the next word as their value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        loose = {name: option for option in self.params if isinstance(option, LooseOption) for name in option.opts}
        end = args.index("--") if "--" in args else len(args)
        expanded = [
            f"{word}={loose[word].alone}" if word in loose and following not in loose[word].spaced else word
            for word, following in zip_longest(args[:end], args[1:end], fillvalue="")
        ]
        return super().parse_args(ctx, expanded + args[end:])


class DefaultGroup(click.Group):
    """A group with one command that is meant where none is named: `history` is `history list`."""

    def __init__(self, *args: Any, default: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [self.default, *args])


def short_values(ctx: click.Context, command: click.Command, args: list[str]) -> list[str]:
    """The arguments of a command, with `-n=team` as `-n team`. kubectl and kueuectl accept both forms; click would take
    `=team` as the value."""
    leaf, start = _leaf(ctx, command, args)
    valued = {name for option in leaf.params if _has_value(option) for name in option.opts}
    # Arguments of `submit` end at the command that is submitted.
    ends_at_word = not leaf.context_settings.get("allow_interspersed_args", leaf.allow_interspersed_args)
    found, is_value = args[:start], False
    for at, word in enumerate(args[start:], start):
        if not is_value and (word == "--" or (ends_at_word and not word.startswith("-"))):
            return found + args[at:]
        joined = not is_value and word[:2] in valued and word[2:3] == "="
        found += [word[:2], word[3:]] if joined else [word]
        is_value = not is_value and word in valued
    return found


def _leaf(ctx: click.Context, command: click.Command, args: list[str]) -> tuple[click.Command, int]:
    """The command that the first words of `args` name, and how many these are."""
    start = 0
    while isinstance(command, click.Group):
        child = command.get_command(ctx, args[start]) if start < len(args) else None
        if child is None:
            return (command.commands[command.default] if isinstance(command, DefaultGroup) else command), start
        command, start = child, start + 1
    return command, start


def _has_value(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and not (option.is_flag or option.count or isinstance(option, LooseOption))


def files(help: str, *names: str, into: str = "files") -> Callable[[F], F]:
    """An option for files, folders, or - for standard input; -f unless `names` are given."""
    return click.option(*(names or ("-f", "--filename")), into, multiple=True, metavar="FILE", help=help)


def timeout(does: str, default_seconds: float = 60.0) -> Callable[[F], F]:
    """An option for the time limit of a computation."""
    return click.option(
        "--timeout",
        "timeout_seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=default_seconds,
        show_default=True,
        metavar="SECONDS",
        help=f"{does} after this many seconds, with exit code 1, if decisions still change.",
    )
