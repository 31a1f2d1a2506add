"""The productions of statements: assignments, branches, loops, jumps, and functions inside functions.

Loops end by construction, and what a loop carries from turn to turn is kept small, so that no value runs away.
"""

from __future__ import annotations

from expressions import call
from grammar import DEEPEST_BLOCK, Frame, Kind, Signature, Writer, bare, closed, enabled, production

__all__ = ["function"]


def _compound(writer: Writer) -> bool:
    return writer.frame.depth <= DEEPEST_BLOCK and writer.budget > 0


def _loops(writer: Writer) -> bool:
    return _compound(writer) and len(writer.frame.loops) < 3


def _unrolls(writer: Writer) -> bool:
    return _compound(writer) and len(writer.frame.loops) < 3 and writer.frame.loops.count("unrolled") < 2


def _in_loop(writer: Writer) -> bool:
    return bool(writer.frame.loops)


def _leaves_more(writer: Writer) -> bool:
    """Whether only a branch ends where a block does, not the body of a function or loop."""
    frame = writer.frame
    return frame.depth > max(frame.loop_depth, frame.top + 1)


def _outside_loops(writer: Writer) -> bool:
    return not writer.frame.loops and not writer.frame.is_nested


def target(writer: Writer, kind: str) -> tuple[str, bool]:
    """A name to assign, and whether it had a value before."""
    known = writer.frame.of(kind, assignable=True)
    # What is new in a branch or loop is gone after it, so there it is mostly not new.
    new = 2 if writer.frame.depth == writer.frame.top + 1 else int(not known or writer.likely(1, 2))
    at = writer.below(len(known) + new)
    return (known[at - new], True) if at >= new else (writer.fresh(kind), False)


def value(writer: Writer, kind: str, carried: bool) -> str:
    """A value to assign; a loop's name gets one that stays small however often that happens."""
    expression = writer.fresh_expr(kind)
    if kind == "bool" or not (carried and writer.frame.loops):
        return expression
    if kind == "int":
        return writer.pick(f"{closed(expression)} % 5", f"{closed(expression)} & 3", f"max(-3, min({expression}, 3))")
    return writer.pick(
        f"math.sin({expression})",
        f"math.tanh({expression})",
        f"max(-2.0, min({expression}, 2.0))",
        f"{closed(expression)} % 2.5",
    )


# --- assignments -----------------------------------------------------------------------------------------------------


@production("statement", 6)
def _assign(writer: Writer) -> None:
    kind = writer.pick("float", "float", "float", "float", "int", "bool")
    name, carried = target(writer, kind)
    if kind == "float" and writer.likely(1, 6):  # an integer under a name that may hold a float later
        text = writer.pick("0", *writer.frame.of("int"), "1")
    else:
        text = value(writer, kind, carried)
    writer.line(f"{name}: {kind} = {text}" if writer.likely(1, 16) else f"{name} = {text}")
    writer.bind(name, kind)


@production("statement", 4, when=lambda writer: bool(writer.frame.of("float", assignable=True)))
def _augmented(writer: Writer) -> None:
    name = writer.pick(*writer.frame.of("float", assignable=True))
    if writer.frame.loops:  # it grows by less than a constant each turn
        leaf = writer.pick(
            "0.25", f"math.sin({writer.fresh_expr('float')})", f"{closed(writer.fresh_expr('float'))} % 1.5"
        )
        writer.line(f"{name} {writer.pick('+=', '-=')} {leaf}")
    else:
        operator = writer.pick("+=", "-=", "*=", "+=")
        writer.line(f"{name} {operator} {writer.fresh_expr('float')}")


@production("statement", 1, when=lambda writer: bool(writer.frame.of("int", assignable=True)))
def _int_augmented(writer: Writer) -> None:
    name = writer.pick(*writer.frame.of("int", assignable=True))
    operator, text = writer.pick(
        ("+=", "1"), ("-=", "2"), ("%=", "3"), ("&=", "3"), ("//=", "2"), ("^=", "1"), ("|=", "2")
    )
    writer.line(f"{name} {operator} {text}")


@production("statement", 2, when=lambda writer: len(writer.frame.of("float", assignable=True)) > 1)
def _parallel(writer: Writer) -> None:
    names = writer.frame.of("float", assignable=True)
    first = writer.below(len(names))
    chosen = [*names[first:], *names[:first]][: writer.pick(2, 3)]
    if writer.below(3):
        values = chosen[1:] + chosen[:1]
        # Something changes besides the order.
        if writer.below(2):
            values[0] = value(writer, "float", True)
    else:
        values = [value(writer, "float", True) for _ in chosen]
    left, right = ", ".join(chosen), ", ".join(values)
    writer.line(f"({left}) = ({right})" if writer.likely(1, 8) else f"{left} = {right}")


@production("statement", 2)
def _pack(writer: Writer) -> None:
    count = writer.pick(2, 3)
    known = writer.frame.of(("float",) * count, assignable=True)
    name = writer.pick(writer.fresh("tuple"), *known)
    if name in known and writer.frame.loops:
        items = ", ".join(value(writer, "float", True) for _ in range(count))
    elif name in known and writer.below(2):
        items = ", ".join([f"*{name}[1:]", bare(writer.expr("float"))])
    else:
        items = ", ".join(bare(writer.expr("float")) for _ in range(count))
    writer.line(f"{name} = ({items})" if writer.below(2) else f"{name} = {items}")
    writer.bind(name, ("float",) * count)


@production("statement", 1, when=lambda writer: bool(writer.tuple_kinds()) and not writer.frame.loops)
def _unpack(writer: Writer) -> None:
    kind = writer.pick(*writer.tuple_kinds())
    source = writer.name(kind)
    if len(kind) == 3 and writer.likely(1, 3):
        first, rest = writer.fresh("float"), writer.fresh("tuple")
        writer.line(f"{first}, *{rest} = {source}")
        writer.bind(first, "float")
        writer.bind(rest, kind[1:])
        writer.frame.owned.discard(rest)  # a list: no tuple may take its place
        return
    names = [writer.fresh("float") for _ in kind]
    writer.line(f"{', '.join(names)}{',' * (len(names) == 1)} = {source}")
    for name in names:
        writer.bind(name, "float")


@production("statement", 1)
def _chained(writer: Writer) -> None:
    first, carried = target(writer, "float")
    second = writer.fresh("float")
    writer.line(f"{first} = {second} = {value(writer, 'float', carried)}")
    writer.bind(first, "float")
    writer.bind(second, "float")


@production("statement", 4, when=lambda writer: any(len(its.results) > 1 for its in writer.frame.functions.values()))
def _several_results(writer: Writer) -> None:
    functions = writer.frame.functions
    function = writer.pick(*(name for name, its in functions.items() if len(its.results) > 1))
    text = call(writer, function, 2)
    names = [writer.fresh(kind) for kind in functions[function].results]
    writer.line(f"{', '.join(names)} = {text}")
    for name, kind in zip(names, functions[function].results, strict=True):
        writer.bind(name, kind)


# --- branches --------------------------------------------------------------------------------------------------------


@production("statement", 7, when=_compound)
def _branch(writer: Writer) -> bool:
    def side(head: str):
        def write() -> bool:
            test = f" {writer.fresh_expr('bool')}" if head != "else" else ""
            writer.line(f"{head}{test}:")
            return writer.block()

        return write

    def nothing() -> bool:
        return True

    heads = ["if", *["elif"] * (writer.below(4) // 2), *(["else"] if writer.below(2) else [])]
    return writer.sides(*map(side, heads), *([] if heads[-1] == "else" else [nothing]))


@production("statement", 3, when=_in_loop)
def _jump_on_condition(writer: Writer) -> None:
    writer.line(f"if {writer.fresh_expr('bool')}:")
    writer.line(f"    {writer.pick('break', 'continue')}")


@production("statement", 2, when=lambda writer: _in_loop(writer) and _leaves_more(writer))
def _jump(writer: Writer) -> bool:
    writer.line(writer.pick("break", "continue"))
    return False


# --- loops -----------------------------------------------------------------------------------------------------------


def _bounds(writer: Writer) -> str:
    names = [name for name in ("n", "m") if name in writer.frame.of("int") and name not in writer.frame.owned]
    some = f"{closed(writer.fresh_expr('int'))} % 4"
    return str(
        writer.pick(
            "2",
            *names,
            "3",
            some,
            f"{some} + 1",
            "1, 4",
            f"-1, {some}",
            "3, -1, -1",
            f"{some}, -2, -2",
            "0, 5, 2",
            f"1, {some}, 1",
            "0",
        )
    )


@production("statement", 4, when=_loops)
def _range_loop(writer: Writer) -> None:
    bounds = _bounds(writer)
    known = writer.frame.of("int", assignable=True)
    index = writer.pick(*known) if known and writer.likely(1, 5) else writer.fresh("int")
    writer.line(f"for {index} in range({bounds}):")
    # Python may assign a loop's variable without changing the turns.
    writer.loop("kernel", *([] if writer.likely(1, 5) else [index]), extra={index: "int"})


@production("statement", 3, when=_loops)
def _accumulator(writer: Writer) -> None:
    """A total that starts as an integer, and turns out to be a float in the loop."""
    total, index = writer.fresh("float"), writer.fresh("int")
    writer.line(f"{total} = {writer.pick('0', *writer.frame.of('int'), '1')}")
    writer.line(f"for {index} in range({_bounds(writer)}):")
    with writer.inside(index, kind="int"):
        term = writer.fresh_expr("float")
    writer.line(f"    {total} += {writer.pick(term, f'math.sin({term})')}")
    writer.bind(total, "float")
    writer.loop("kernel", index, total, extra={index: "int"})


@production("statement", 4, when=_unrolls)
def _tuple_loop(writer: Writer) -> None:
    known = writer.frame.of("float", assignable=True)
    item = writer.pick(*known) if known and writer.likely(1, 4) else writer.fresh("float")
    tuples = [name for kind in writer.tuple_kinds() for name in writer.frame.of(kind)]
    writer.nodes = 3
    items = ", ".join(bare(writer.expr("float")) for _ in range(writer.pick(2, 3, 1)))
    form = writer.pick(f"({items},)", *tuples, f"reversed(({items},))", *(f"{name}[::-1]" for name in tuples))
    extra: dict[str, Kind] = {item: "float"}
    match writer.below(4):
        case 0 | 1:
            writer.line(f"for {item} in {form}:")
        case 2:
            extra[index := writer.fresh("int")] = "int"
            writer.line(f"for {index}, {item} in enumerate({form}{', 1' if writer.likely(1, 3) else ''}):")
        case _:
            extra[second := writer.fresh("float")] = "float"
            writer.line(f"for {item}, {second} in zip({form}, ({items}, {writer.name('float')})):")
    writer.loop("unrolled", extra=extra)


@production("statement", 4, when=_loops)
def _while_loop(writer: Writer) -> None:
    count = writer.fresh("int")
    writer.line(f"{count} = 0")
    writer.bind(count, "int")
    most = writer.pick(2, 3, 4)
    writer.nodes = 0
    test, limit = writer.expr("bool"), f"{count} < {most}"
    limited = limit, f"{limit} and {test}", f"{test} and {limit}"
    head = writer.pick(*limited[:2], "True", bare(test), limited[2])
    writer.line(f"while {head}:")
    writer.line(f"    {count} += 1")
    if head not in limited:
        writer.line(f"    if {count} > {most}:")
        writer.line("        break")
    # A jump in the `else` after a test that assigns names is an error.
    writer.loop("kernel", count, orelse=":=" not in head)


# --- functions -------------------------------------------------------------------------------------------------------


def returned(writer: Writer) -> str:
    values = [_result(writer, kind) for kind in writer.frame.results]
    match writer.frame.form, values:
        case "one", [value]:
            return f"return ({value},)"
        case "nested", [first, *others] if others:
            return f"return {first}, ({', '.join(others)},)"
        case "list", _:
            return f"return [{', '.join(values)}]"
    return f"return {', '.join(values)}"


def _result(writer: Writer, kind: str) -> str:
    """What to return: often with a name assigned lately in it, so that what was computed matters."""
    recent = [name for name in writer.frame.of(kind) if name in writer.frame.owned][-4:][::-1]
    text = writer.fresh_expr(kind)
    if kind == "bool" or not writer.below(3):
        return text
    return " + ".join([*recent[: 1 + writer.below(max(len(recent), 1))], closed(text)])


@production("statement", 3, when=lambda writer: writer.frame.depth > writer.frame.top + 1)
def _return_on_condition(writer: Writer) -> None:
    writer.line(f"if {writer.fresh_expr('bool')}:")
    writer.line(f"    {returned(writer)}")


@production("statement", 2, when=_leaves_more)
def _return(writer: Writer) -> bool:
    writer.line(returned(writer))
    return False


@production("statement", 1, when=_outside_loops)
def _lambda(writer: Writer) -> None:
    name, parameter = writer.fresh("function"), writer.fresh("float")
    with writer.inside(parameter):
        body = writer.fresh_expr("float")
    writer.line(f"{name} = lambda {parameter}: {body}")
    writer.frame.functions[name] = Signature(((parameter, "float", "positional"),), ("float",))


@production("statement", 1, when=lambda writer: _outside_loops(writer) and _compound(writer))
def _closure(writer: Writer) -> None:
    function(writer, nested=True)


def function(writer: Writer, *, nested: bool = False) -> None:
    """A function to be called: with a body of its own, which reads its surroundings where it is nested."""
    outer, name = writer.frame, writer.fresh("function" if nested else "helper")
    kinds = writer.pick(("float",), ("float", "float"), ("float", "int"), ("float", "bool"))
    params: list[tuple[str, str, str]] = []
    heads: list[str] = []
    rest: dict[str, Kind] = {}
    for position, kind in enumerate(kinds):
        parameter = writer.fresh(kind)
        default = {"float": "0.5", "int": "2", "bool": "True"}[kind] if position and writer.likely(1, 3) else ""
        how = "default" if default else "positional"
        if position and enabled("signature"):
            match writer.below(6):
                case 4:
                    heads.append("*")
                    how = how if default else "keyword"
                case 5 if kind == "float" and not default:
                    more = writer.fresh("tuple")
                    rest[more] = ("float",)
                    parameter = f"*{more}"
                case 3:
                    heads.append("/")
        params.append((parameter, kind, how))
        heads.append(parameter + (f"={default}" if default else ""))
    results = writer.pick(("float",), ("float", "float"), ("float", "int"))
    frame = Frame(results, names=dict(outer.names), functions=dict(outer.functions), is_nested=nested)
    frame.depth = frame.top = outer.depth
    writer.line(f"def {name}({', '.join(heads)}):")
    frame.names = {**{parameter: kind for parameter, kind, _ in params if parameter[0] != "*"}, **rest, **frame.names}
    frame.owned = {parameter for parameter, _, _ in params if parameter[0] != "*"}
    writer.frame, budget = frame, writer.budget
    writer.budget = min(budget, 4)
    spent = writer.budget
    falls = writer.block() if writer.below(4) else True
    if falls:
        frame.depth += 1
        writer.line(returned(writer))
    writer.budget = budget - (spent - writer.budget)
    writer.frame = outer
    outer.functions[name] = Signature(tuple(params), results)
