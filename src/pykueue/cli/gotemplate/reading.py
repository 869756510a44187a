"""Text -> nodes.

Actions stand between `{{` and `}}`; with a minus and a space inside the braces, white space outside them goes away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pykueue.cli.gotemplate import nodes
from pykueue.cli.gotemplate.functions import FUNCTIONS
from pykueue.cli.gotemplate.nodes import Choice, Leap, Node, Nodes, Operand, Page, Pipeline, Wrong
from pykueue.cli.gotemplate.quoting import unquoted

_SPACE: Final = " \t\r\n"
_OPEN: Final = re.compile(r"\{\{(?P<trims>-[ \t\r\n])?")
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_CLOSE: Final = re.compile(r"(?P<trims>[ \t\r\n]-)?\}\}")
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+?(?=[ \t\r\n]-\}\})|[ \t\r\n]+)
  | (?P<text>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
  | (?P<letter>'(?:[^'\\\n]|\\.)+')
  | (?P<number>[+-]?\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<variable>\$\w*)
  | (?P<field>\.[^\W\d]\w*)
  | (?P<dot>\.)
  | (?P<word>\w+)
  | (?P<sign>:=|[=|(),])
    """,
    re.VERBOSE,
)
_INT64: Final = range(-(2**63), 2**63)
_CONSTANTS: Final[Mapping[str, Any]] = {"true": True, "false": False, "nil": None}
_KEYWORDS: Final = frozenset(
    {"block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"} | set(_CONSTANTS)
)


class Token(NamedTuple):
    sort: str
    text: str
    at: int


class Action(NamedTuple):
    """What is between two pairs of braces."""

    tokens: tuple[Token, ...]
    at: int
    # Where it ends, for what is missing there.
    end: int

    @property
    def word(self) -> str:
        """The word that it begins with, if it is one of the language."""
        first = next((token for token in self.tokens if token.sort != "space"), None)
        return first.text if first is not None and first.sort == "word" and first.text in _KEYWORDS else ""


def read(text: str) -> Page:
    """The nodes of a template; `Wrong` where it is none."""
    return _Reader(_parts(text)).page()


# --- Pieces -----------------------------------------------------------------------------------------------------------


def _parts(text: str) -> Iterator[str | Action]:
    """Texts and the actions between them, with the white space gone that is to go."""
    at, trims = 0, False
    while opening := _OPEN.search(text, at):
        before = text[at : opening.start()]
        before = before.lstrip(_SPACE) if trims else before
        yield before.rstrip(_SPACE) if opening["trims"] else before
        if comment := _COMMENT.match(text, opening.end()):
            closing = _CLOSE.match(text, comment.end())
            if closing is None:
                raise Wrong(opening.start(), "nothing may follow a comment in its braces")
        else:
            if text[opening.end() :].lstrip(_SPACE).startswith("/*"):
                raise Wrong(opening.start(), "a comment is not closed, or does not begin at its braces")
            tokens, closing = _tokens(text, opening.end(), opening.start())
            yield Action(tuple(tokens), opening.start(), closing.start())
        at, trims = closing.end(), bool(closing["trims"])
    yield text[at:].lstrip(_SPACE) if trims else text[at:]


def _tokens(text: str, at: int, start: int) -> tuple[list[Token], re.Match[str]]:
    found: list[Token] = []
    while (closing := _CLOSE.match(text, at)) is None:
        token = _TOKEN.match(text, at)
        if token is None:
            if at >= len(text):
                raise Wrong(start, "the braces are not closed")
            raise Wrong(at, _not_understood(text[at]))
        found.append(Token(str(token.lastgroup), token[0], at))
        at = token.end()
    return found, closing


def _not_understood(letter: str) -> str:
    return f"a text in {letter} is not closed" if letter in "\"'`" else f"{letter!r} has no meaning here"


# --- The page ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads parts one after the other."""

    def __init__(self, parts: Iterator[str | Action]) -> None:
        self._parts = parts
        self._defined: dict[str, Nodes] = {}
        # Names that may be used at this place; a block forgets those of its own.
        self._variables = ["$"]
        self._ranges = 0

    def page(self) -> Page:
        found, ending = self._nodes(top=True)
        if ending is not None:
            raise Wrong(ending.at, f"{{{{{ending.word}}}}} without a block")
        return Page(found, self._defined)

    def _nodes(self, *, top: bool = False) -> tuple[Nodes, Action | None]:
        """Nodes up to an `end` or an `else`, or up to the end of the text."""
        found: list[Node] = []
        for part in self._parts:
            if isinstance(part, str):
                found += [nodes.Text(part)] if part else []
            elif part.word in ("end", "else"):
                return tuple(found), part
            elif part.word == "define":
                if not top:
                    raise Wrong(part.at, "define may stand only outside of all blocks")
                self._define(_Words(part, self._variables))
            else:
                found.append(self._action(part))
        return tuple(found), None

    def _action(self, action: Action) -> Node:
        words = _Words(action, self._variables)
        match action.word:
            case "if" | "with" | "range":
                return self._block(Choice(words.keyword()), words, action.at)
            case "break" | "continue":
                leap = Leap(words.keyword())
                words.ended()
                if not self._ranges:
                    raise Wrong(action.at, f"{leap.value} outside of a range")
                return leap
            case "template":
                words.keyword()
                return nodes.Include(words.name(), None if words.is_over() else words.pipeline(), action.at)
            case "block":
                words.keyword()
                name, pipeline = words.name(), words.pipeline()
                self._defined[name] = self._body(action.at)
                return nodes.Include(name, pipeline, action.at)
        return nodes.Show(words.pipeline())

    def _define(self, words: _Words) -> None:
        at = words.action.at
        words.keyword()
        name = words.name()
        words.ended()
        body = self._body(at)
        # An empty one does not take the place of one that says something.
        if name not in self._defined or any(not isinstance(node, nodes.Text) or node.text.strip() for node in body):
            self._defined[name] = body

    def _body(self, at: int) -> Nodes:
        """What a name stands for: it sees no variables but its own, and is in no range."""
        variables, ranges = self._variables, self._ranges
        self._variables, self._ranges = ["$"], 0
        body, ending = self._nodes()
        self._variables, self._ranges = variables, ranges
        self._ended(ending, at, "end")
        return body

    def _block(self, choice: Choice, words: _Words, at: int) -> nodes.Block:
        known = len(self._variables)
        pipeline = words.pipeline(most=2 if choice is Choice.RANGE else 1)
        self._ranges += choice is Choice.RANGE
        body, ending = self._nodes()
        self._ranges -= choice is Choice.RANGE
        otherwise: Nodes = ()
        ending = self._ended(ending, at, "end", "else")
        if ending.word == "else":
            more = _Words(ending, self._variables)
            more.keyword()
            if more.is_over():
                otherwise, last = self._nodes()
                self._ended(last, at, "end")
            else:  # `else if` ends with the same `end`
                again = more.keyword()
                if again != choice.value or choice is Choice.RANGE:
                    raise Wrong(ending.at, f"else {again} cannot follow {choice.value}")
                otherwise = (self._block(choice, more, ending.at),)
        del self._variables[known:]
        return nodes.Block(choice, pipeline, body, otherwise, at)

    def _ended(self, ending: Action | None, at: int, *words: str) -> Action:
        if ending is None:
            raise Wrong(at, "a block without an end")
        if ending.word not in words:
            raise Wrong(ending.at, f"{ending.word} has no meaning here")
        if ending.word == "end":
            end = _Words(ending, [])
            end.keyword()
            end.ended()
        return ending


# --- Inside the braces ------------------------------------------------------------------------------------------------


class _Words:
    """The tokens of one action, taken one after the other."""

    def __init__(self, action: Action, variables: list[str]) -> None:
        self.action = action
        self._tokens = action.tokens
        self._place = 0
        self._variables = variables

    # The next token. Space is one, since it parts the arguments of a function.

    def _peek(self, ahead: int = 0) -> Token:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else Token("end", "", self.action.end)

    def _take(self) -> Token:
        token = self._peek()
        self._place += 1
        return token

    def _skip_space(self) -> Token:
        while self._peek().sort == "space":
            self._place += 1
        return self._peek()

    def is_over(self) -> bool:
        return self._skip_space().sort == "end"

    def ended(self) -> None:
        if not self.is_over():
            raise self._unexpected(self._peek())

    def keyword(self) -> str:
        self._skip_space()
        return self._take().text

    def name(self) -> str:
        """The name of a page, in quotes."""
        token = self._skip_space()
        if token.sort != "text":
            raise Wrong(token.at, "a name in quotes must follow")
        return str(self._literal(self._take()).value)

    @staticmethod
    def _unexpected(token: Token) -> Wrong:
        return Wrong(token.at, f"{token.text!r} is not expected here" if token.text else "something is missing here")

    # What they mean.

    def pipeline(self, most: int = 1) -> Pipeline:
        """Everything that is left; it may set so many variables."""
        sets, declares = self._sets(most)
        commands = self._commands()
        self.ended()
        self._variables += sets if declares else ()
        return Pipeline(commands, sets, declares)

    def _sets(self, most: int) -> tuple[tuple[str, ...], bool]:
        start, names = self._place, list[str]()
        while self._skip_space().sort == "variable":
            names.append(self._take().text)
            sign = self._skip_space().text
            if sign == ",":
                self._take()
                if len(names) >= most:
                    raise Wrong(self._peek().at, f"no more than {most} can be set here")
            elif sign in (":=", "="):
                self._take()
                if sign == "=":
                    self._known(names, self._peek().at)
                return tuple(names), sign == ":="
            else:
                break
        if len(names) > 1:
            raise Wrong(self._peek().at, "':=' or '=' must follow the variables")
        self._place = start
        return (), False

    def _known(self, names: list[str], at: int) -> None:
        for name in names:
            if name not in self._variables:
                raise Wrong(at, f"there is no variable {name}")

    def _commands(self) -> tuple[nodes.Command, ...]:
        found = [self._command()]
        while self._skip_space().text == "|":
            self._take()
            if self._skip_space().text in (")", ""):
                break  # Go lets it pass
            command = self._command()
            if isinstance(command.words[0], nodes.Dot | nodes.Literal):
                raise Wrong(command.at, "what follows '|' must be a function")
            found.append(command)
        return tuple(found)

    def _command(self) -> nodes.Command:
        at = self._skip_space().at
        words: list[Operand] = []
        while self._skip_space().text not in ("|", ")", ""):
            words.append(self._operand())
            if self._peek().sort not in ("space", "end") and self._peek().text not in ("|", ")"):
                raise self._unexpected(self._peek())
        if not words:
            raise self._unexpected(self._peek())
        return nodes.Command(tuple(words), at)

    def _operand(self) -> Operand:
        start = self._take()
        found = self._term(start)
        names: list[str] = []
        if start.sort == "field":
            names.append(start.text[1:])
        while self._peek().sort == "field":
            token = self._take()
            if isinstance(found, nodes.Literal) or (isinstance(found, nodes.Dot) and not names):
                raise self._unexpected(token)
            names.append(token.text[1:])
        return nodes.Fields(found, tuple(names), start.at) if names else found

    def _term(self, token: Token) -> Operand:
        match token.sort:
            case "dot" | "field":
                return nodes.Dot()
            case "variable":
                self._known([token.text], token.at)
                return nodes.Variable(token.text)
            case "text" | "letter" | "number":
                return self._literal(token)
            case "word" if token.text in _CONSTANTS:
                return nodes.Literal(_CONSTANTS[token.text])
            case "word" if token.text in FUNCTIONS:
                return nodes.Function(token.text, token.at)
            case "word" if token.text not in _KEYWORDS:
                raise Wrong(token.at, f"there is no function {token.text}")
            case "sign" if token.text == "(":
                commands = self._commands()
                if self._skip_space().text != ")":
                    raise Wrong(token.at, "'(' is not closed")
                self._take()
                return Pipeline(commands)
        raise self._unexpected(token)

    @staticmethod
    def _literal(token: Token) -> nodes.Literal:
        try:
            if token.sort == "number":
                return nodes.Literal(_number(token.text))
            if token.text[0] == "`":
                return nodes.Literal(token.text[1:-1].replace("\r", ""))
            text = unquoted(token.text)
        except ValueError as error:
            raise Wrong(token.at, str(error)) from None
        if token.sort == "text":
            return nodes.Literal(text)
        if len(text) != 1:
            raise Wrong(token.at, f"{token.text} is not one character")
        return nodes.Literal(ord(text))


def _number(text: str) -> int | float:
    """As Go reads it: a leading zero means base 8, and a point or an exponent a fraction."""
    digits = text.replace("_", "")
    is_hexadecimal = digits.lstrip("+-")[:2].lower() == "0x"
    is_fraction = bool(set(digits.lower()) & set(".p" if is_hexadecimal else ".e"))
    try:
        if is_fraction:
            fraction = float.fromhex(digits) if is_hexadecimal else float(digits)
            if math.isinf(fraction):
                raise OverflowError
            return fraction
        found = int(re.sub(r"^([+-]?)0(?=\d)", r"\g<1>0o", digits), 0)
    except OverflowError:
        raise ValueError(f"{text} is too large") from None
    except ValueError:
        raise ValueError(f"{text} is no number") from None
    if found not in _INT64:
        raise ValueError(f"{text} is too large")
    return found
