"""Changes of lists, dictionaries and small arrays in place: the name stands for a new one afterwards.

What shares elements with it is out of date then (`outdated.py`).
"""

from __future__ import annotations

import ast
from typing import Any

from dualbcast.frontend.arrays.vectors import array_of, atoms_of, index_of, is_array
from dualbcast.frontend.environment import KNOWN_INDEX, Environment, call_value, expression
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.notes import note
from dualbcast.frontend.objects.dictionaries import dictionary, is_dictionary, items_at, text_key
from dualbcast.frontend.objects.iterated import refuse_iterated
from dualbcast.frontend.objects.outdated import LASTING, note_change, roots
from dualbcast.frontend.values import Arguments, Record, Static, Value, describe, is_complex, without_name
from dualbcast.ir.nodes import Atom, Const

_RANKS = {"bool": 0, "int": 1, "float": 2}


def change_by_method(env: Environment, stmt: ast.Expr) -> bool:
    """Carry out `items.append(x)` and its like; False if the statement is something else."""
    call = stmt.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    target, name = call.func.value, call.func.attr
    before = env.frame.bindings.get(target.id) if isinstance(target, ast.Name) else None
    if not isinstance(before, Record) or not isinstance(target, ast.Name):
        return False
    if before.python_type is list and name in ("append", "extend", "insert", "reverse", "sort", "clear"):
        after = _changed_list(env, call, name, before)
    elif is_dictionary(before) and name == "update":
        args = Arguments((before, *[expression(env, arg) for arg in call.args]))
        keywords = {each.arg: expression(env, each.value) for each in call.keywords if each.arg is not None}
        after = _updated(env, call, args, keywords)
    else:
        return False
    _rebind(env, stmt, target.id, before, after, _instead(before, target.id))
    return True


def change_item(env: Environment, stmt: ast.stmt, target: ast.Subscript, value: Value) -> bool:
    """Carry out `items[0] = value`; False if that is no list, dictionary or array under a name of this function."""
    base = target.value
    env.refuse_outdated(value, target)
    before = env.frame.bindings.get(base.id) if isinstance(base, ast.Name) else None
    if not isinstance(base, ast.Name) or not isinstance(before, Record):
        return False
    if is_dictionary(before):
        key = text_key(env, expression(env, target.slice), target.slice)
        after = dictionary({**items_at(env, before, base.id, target), key: value})
    elif is_array(before):
        after = _changed_array(env, target, before, value)
    elif before.python_type is list and not isinstance(target.slice, ast.Slice):
        at = _known_index(env, target, len(before))
        after = before.like([*before[:at], value, *before[at + 1 :]])
    else:
        return False
    _rebind(env, stmt, base.id, before, after, _instead(before, base.id))
    return True


def _rebind(env: Environment, stmt: ast.stmt, name: str, before: Record, after: Record, instead: str) -> None:
    change(env, stmt, name, before, instead)
    env.frame.bindings[name] = after.like(after)  # made after the change
    note(env, "assign", name, after, stmt)


def change(env: Environment, stmt: ast.stmt, name: str, before: Record, instead: str) -> None:
    """Note a change in place, or refuse it; the message says what to write instead."""
    if any(root is LASTING for root in roots(before)):
        env.fail(stmt, f"{name} is a default, which Python would change for later calls, too", "None as the default")
    refuse_iterated(env, stmt, name, before, instead)
    env.refuse_outdated(before, stmt)
    note_change(env.frame.bindings, before, name, stmt)


def _instead(before: Record, name: str) -> str:
    if before.python_type is dict:
        return f"a new dictionary: {name} = {{**{name}, …}}"
    return f"a new array: {name} = {name}.copy()" if is_array(before) else f"a new list: {name} = [*{name}, …]"


def _changed_list(env: Environment, call: ast.Call, name: str, before: Record) -> Record:
    args = [expression(env, arg) for arg in call.args]
    takes = {"append": 1, "extend": 1, "insert": 2}.get(name, 0)
    if len(args) != takes or (call.keywords and name != "sort"):
        env.fail(call, f"{name}() of a list takes {takes} arguments here")
    if name == "append":
        env.refuse_iterator(args[0], call, "an item here")
        return before.like([*before, args[0]])
    if name == "extend":
        return before.like([*before, *sequence(env, args[0], call.args[0])])
    if name == "insert":
        at = env.known_object(args[0], call.args[0], "the place in a list must be known when the kernel is compiled")
        items: list[Value] = [*before]
        items.insert(at, args[1])
        return before.like(items)
    if name == "sort":
        keywords = {each.arg: expression(env, each.value) for each in call.keywords if each.arg is not None}
        result = call_value(env, Static(sorted), Arguments((before,), keywords), call)
        assert isinstance(result, Record)
        return result
    return before.like(before[::-1] if name == "reverse" else ())


def _updated(env: Environment, call: ast.Call, args: Arguments, keywords: dict[str, Value]) -> Record:
    items: dict[str, Value] = {}
    for each in args.args:
        made = call_value(env, Static(dict), Arguments((each,)), call)
        items |= items_at(env, made, "", call)
    return dictionary(items | keywords)


def _known_index(env: Environment, target: ast.Subscript, length: int) -> int:
    value = without_name(expression(env, target.slice))
    if not isinstance(value, Const) or value.kind == "float":
        problem = "an item of a list can only be assigned at an integer known when the kernel is compiled"
        env.fail(target.slice, problem, "a for loop over a tuple, or if/elif on the index", KNOWN_INDEX)
    at = int(value.value)
    if not -length <= at < length:
        env.fail(target, f"index {at} is outside this list of {length}", f"an index below {length}")
    return at % length


def _changed_array(env: Environment, target: ast.Subscript, before: Record, value: Value) -> Record:
    """An array with a number or an array at a place, converted to the kind of its elements."""
    place: Any = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return with_items(env, target, before, index_of_known(env, place), value)


def with_items(env: Environment, target: ast.AST, before: Record, index: Any, value: Value) -> Record:
    """An array with other numbers at an index that is known."""
    atoms = atoms_of(env, before, target).copy()
    given = atoms_of(env, value, target).copy()
    kinds = {each.kind if isinstance(each, Atom) else "complex" for each in atoms.flat}
    for at, each in enumerate(given.flat):
        given.flat[at] = _converted(env, each, kinds, target)
    try:
        atoms[index] = given if given.ndim else given[()]
    except (IndexError, ValueError) as error:
        env.fail(
            target, f"this does not fit {describe(before)}: {error}", "an index inside the array, and as many numbers"
        )
    changed = array_of(atoms)
    assert isinstance(changed, Record)
    return changed


def _converted(env: Environment, item: Value, kinds: set[str], node: ast.AST) -> Value:
    if is_complex(item) or kinds == {"complex"}:
        if kinds != {"complex"} or not is_complex(item):
            env.fail(node, "an item of this array cannot be a number of another kind", "an array made of all numbers")
        return item
    assert isinstance(item, Atom)
    (kind,) = kinds if len(kinds) == 1 else ("float",)
    if _RANKS[item.kind] > _RANKS[kind]:
        instead = "an array of floats, such as np.zeros(3), or int(…)"
        env.fail(node, f"this array is of kind {kind}, to which NumPy would convert this {item.kind}", instead)
    return env.convert(item, kind, node)  # type: ignore[arg-type]


def index_of_known(env: Environment, node: ast.Subscript) -> Any:
    """The index of an array, known when the kernel is compiled."""
    problem = "an array can only be assigned to at integers that are known when the kernel is compiled"
    instead = "a for loop over a tuple, or if/elif on the index"
    index = index_of(env, node.slice, lambda part: expression(env, part))
    return _plain(env, index, node, problem, instead)


def _plain(env: Environment, index: Value, node: ast.Subscript, problem: str, instead: str) -> Any:
    if not isinstance(index, Const | Static | Record):
        env.fail(node.slice, problem, instead, KNOWN_INDEX)
    if isinstance(index, Record) and not all(isinstance(part, Const | Static) for part in index):
        env.fail(node.slice, problem, instead, KNOWN_INDEX)
    return env.known_object(index, node.slice, problem, instead)
