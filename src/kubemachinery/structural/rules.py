"""Evaluation of the CEL rules of `x-kubernetes-validations`.

A transition rule (with `oldSelf`) is evaluated only in an update with a correlated old value, or with
`optionalOldSelf`. A failure of another rule is ignored on a value that the update did not change (ratcheting). Parts
that the tree shares with the old one have been validated before: there only transition rules are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

import msgspec

from kubemachinery import cel
from kubemachinery.cel import types
from kubemachinery.cel.values import NONE, some
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.structural.correlation import old_items, unchanged
from kubemachinery.structural.declarations import Declarations, field_path
from kubemachinery.structural.node import ABSENT, CelRule, Json, SchemaNode

EXPRESSION_STEPS_MAX: Final = 1_000_000
OBJECT_STEPS_MAX: Final = 10_000_000
_MESSAGE_MAX: Final = 5 * 1024

_SORTS: Final = {
    "FieldValueForbidden": ErrorType.FORBIDDEN,
    "FieldValueRequired": ErrorType.REQUIRED,
    "FieldValueDuplicate": ErrorType.DUPLICATE,
}


class CompiledRule(msgspec.Struct, frozen=True):
    """A rule with its compiled programs; instead of a program, the error of its compilation."""

    rule: CelRule
    program: cel.Program | cel.CompileError
    message: cel.Program | cel.CompileError | None
    path: str
    error_type: ErrorType
    uses_old_self: bool

    @property
    def words(self) -> str:
        """The rule as quoted in an error about itself."""
        return (self.rule.message or self.rule.rule).strip()


def compile_rule(rule: CelRule, node: SchemaNode, self_type: types.CelType) -> CompiledRule:
    old_type = types.optional_of(self_type) if rule.optional_old_self else self_type
    variables = {"self": self_type, "oldSelf": old_type}
    program = cel.compile(rule.rule, variables, result=types.BOOL)
    return CompiledRule(
        rule,
        program,
        cel.compile(rule.message_expression, variables, result=types.STRING) if rule.message_expression else None,
        (field_path(node, rule.field_path) or "") if rule.field_path else "",
        _SORTS.get(rule.reason, ErrorType.INVALID),
        isinstance(program, cel.Program) and program.uses("oldSelf"),
    )


class _Stop(Exception):
    """The cost budget is exhausted, so no further rule is evaluated."""


class _Run:
    """One validation: the errors found, and the remaining cost budget."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.steps = OBJECT_STEPS_MAX

    def refuse(self, path: str, value: object, message: str, error_type: ErrorType = ErrorType.INVALID) -> None:
        self.errors.append(FieldError(path.removeprefix("."), error_type, message, value))

    def evaluate(self, program: cel.Program, bindings: dict[str, Json]) -> Json:
        budget = cel.StepBudget(min(EXPRESSION_STEPS_MAX, self.steps))
        given = budget.left
        answer = program.evaluate(bindings, budget)
        self.steps -= given - budget.left + 1
        return answer


# Whether the value is unchanged by the update; computed only when a rule has failed.
Settled = Callable[[], bool]
Ask = Callable[[Json, Json, str, Settled, _Run], None]


class _Asked(NamedTuple):
    """The rules of a value and of everything below it; whether one of them is a transition rule."""

    ask: Ask
    of_change: bool


def compile_rules(root: SchemaNode, *, resource: bool = True) -> Callable[[Json, Json], list[FieldError]] | None:
    """The evaluation of all rules of a resource, or of a value inside one; None without rules."""
    asked = _compile(root, Declarations(), root=resource)
    if asked is None:
        return None

    def validate(tree: Json, old: Json) -> list[FieldError]:
        run = _Run()
        with suppress(_Stop):
            asked.ask(tree, old, "", lambda: old is not ABSENT and unchanged(root, tree, old), run)
        return run.errors

    return validate


def _compile(node: SchemaNode, declarations: Declarations, *, root: bool = False) -> _Asked | None:
    self_type = declarations.type_of(node, root=root)
    if self_type is None:
        return None
    written = [rule for rule in node.rules if rule.rule]
    children = {name: found for name, child in node.fields.items() if (found := _compile(child, declarations))}
    additional = _compile(node.additional, declarations) if node.additional is not None else None
    items = _compile(node.items, declarations) if node.items is not None else None
    below = [found for found in (*children.values(), additional, items) if found]
    if not written and not below:
        return None

    @cache
    def rules() -> list[CompiledRule]:
        # Compiled for the first value: most objects have few of the fields with rules.
        return [compile_rule(rule, node, self_type) for rule in written]

    def ask_map(value: dict[str, Json], old: Json, path: str, settled: Settled, run: _Run) -> None:
        olds = old if type(old) is dict else {}
        for name, item in value.items():
            asked = children.get(name)
            if asked is not None:
                step = f".{name}"
            elif additional is not None and name not in node.fields:
                asked, step = additional, f"[{name}]"
            else:
                continue
            old_item = olds.get(name, ABSENT)
            if item is not old_item or asked.of_change:
                asked.ask(item, old_item, path + step, _settled(node.child(name), item, old_item, settled), run)

    def ask_list(value: list[Json], old: Json, path: str, settled: Settled, run: _Run) -> None:
        assert items is not None
        find_old = old_items(node, old)
        for index, item in enumerate(value):
            old_item = find_old(item)
            items.ask(item, old_item, f"{path}[{index}]", _settled(node.items, item, old_item, settled), run)

    def ask(value: Json, old: Json, path: str, settled: Settled, run: _Run) -> None:
        if value is None:
            return
        for rule in rules():
            _ask_rule(rule, node, value, old, path, settled, run)
        if type(value) is dict:
            if children or additional:
                ask_map(value, old, path, settled, run)
        elif type(value) is list and items is not None:
            ask_list(value, old, path, settled, run)

    # A rule that only mentions `oldSelf` in a string counts as well: it is evaluated in vain.
    return _Asked(ask, any("oldSelf" in rule.rule for rule in written) or any(found.of_change for found in below))


def _settled(node: SchemaNode | None, value: Json, old: Json, parent: Settled) -> Settled:
    if old is ABSENT or node is None:
        return parent  # an item of a list without keys is unchanged if the list is
    return lambda: unchanged(node, value, old)


def _ask_rule(
    compiled: CompiledRule, node: SchemaNode, value: Json, old: Json, path: str, settled: Settled, run: _Run
) -> None:
    rule, program = compiled.rule, compiled.program
    if isinstance(program, cel.CompileError):
        run.refuse(path, node.type, f"the rule does not compile: {program}")
        return
    has_old = old is not ABSENT and old is not None
    if compiled.uses_old_self and not has_old and not rule.optional_old_self:
        return
    bindings = {"self": value, "oldSelf": old if has_old else None}
    if rule.optional_old_self:
        bindings["oldSelf"] = some(old) if has_old else NONE
    answer = run.evaluate(program, bindings)
    if answer is True and run.steps >= 0:
        return
    if isinstance(answer, cel.CostExceeded) or run.steps < 0:
        run.refuse(path, node.type, f"no further rule is checked, this one takes too many steps: {compiled.words}")
        raise _Stop
    if isinstance(answer, cel.CelError):
        run.refuse(path, node.type, f"{answer} evaluating rule: {compiled.words}")
    elif compiled.uses_old_self or not settled():
        message = _message(compiled, bindings, run) or rule.message.strip() or f"failed rule: {rule.rule.strip()}"
        shown = msgspec.UNSET if node.type in ("object", "array") else value
        shown_message = "" if compiled.error_type is ErrorType.DUPLICATE else message
        run.refuse(path + compiled.path, shown, shown_message, compiled.error_type)


def _message(compiled: CompiledRule, bindings: dict[str, Json], run: _Run) -> str:
    """The result of the rule's messageExpression; empty when it fails or is not usable."""
    if not isinstance(compiled.message, cel.Program):
        return ""
    text = run.evaluate(compiled.message, bindings)
    if not isinstance(text, str):
        return ""
    text = text.strip()
    return "" if "\n" in text or len(text.encode("utf-8", "replace")) > _MESSAGE_MAX else text
