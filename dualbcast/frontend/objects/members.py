"""Members of enumerations that depend on the data: what they have for each element."""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable
from typing import cast

from dualbcast.frontend.arithmetic import binary, select
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.records import as_member
from dualbcast.frontend.values import Record, Static, Value, are_alike, describe, is_member, same
from dualbcast.ir.nodes import Atom


def attribute_of_member(
    env: Environment, member: Record, node: ast.Attribute, read: Callable[[enum.Enum], Value]
) -> Value:
    """`member.name`, where `read` gives it for one that is known: the numbers of all members, of which one is taken."""
    if is_member(member) and node.attr == "value":
        return member[0]  # type: ignore[no-any-return]
    every = [Static(each) for each in cast("type[enum.Enum]", member.python_type)]
    return _of_member(env, member, every, [read(each.object) for each in every], node)


def _of_member(
    env: Environment, member: Record, every: list[Static], values: list[Value], node: ast.Attribute
) -> Value:
    """The value that belongs to a member."""
    *others, last = values
    if all(same(last, other) for other in others):
        return last
    if isinstance(last, Record) and are_alike([value for value in values if isinstance(value, Record)]):
        columns = zip(*[value for value in values if isinstance(value, Record)], strict=True)
        if all(isinstance(value, Record) for value in values):
            return last.like(_of_member(env, member, every, list(column), node) for column in columns)
    result = last
    for each, value in zip(every, others, strict=False):
        if not isinstance(value, Atom) or not isinstance(result, Atom):
            kinds = " and ".join(dict.fromkeys(map(describe, values)))
            problem = f"which member this is depends on the data, and its {node.attr} is {kinds}, as only numbers may"
            known = f"{type(each.object).__name__}.{each.object.name}"
            env.fail(node, problem, f"a comparison of the member: {ast.unparse(node.value)} == {known}")
        result = select(env, binary("eq", env, node, member[0], as_member(each)[0]), value, result, node)
    return result
