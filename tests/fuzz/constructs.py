"""The productions of what Python has beyond plain statements: `:=`, comprehensions, `match`, records, `in`, `partial`.

Each belongs to a feature, which can be switched off while kernels do not have it.
"""

from __future__ import annotations

from grammar import Kind, Signature, Writer, bare, closed, production
from statements import value

__all__ = ["RECORD", "record"]

# --- assignment expressions ------------------------------------------------------------------------------------------


def _assignable(kind: str):
    return lambda writer: bool(writer.frame.of(kind, assignable=True)) and not writer.frame.is_inner


@production("float", 1, feature="walrus", when=_assignable("float"))
def _walrus(writer: Writer, depth: int) -> str:
    """It assigns a name that has a value already, so that it may stand where it does not always run."""
    name = writer.pick(*writer.frame.of("float", assignable=True))
    text = bare(writer.expr("float", depth))
    return f"({name} := {f'math.sin({text})' if writer.frame.loops else text})"


@production("statement", 1, feature="walrus", when=lambda writer: writer.frame.depth <= 4)
def _walrus_in_a_test(writer: Writer) -> bool:
    name, text, other = writer.fresh("float"), writer.fresh_expr("float"), writer.expr("float")
    # It is bound on both sides, and after them.
    writer.line(f"if (({name} := {text}) {writer.pick('>', '<')} {other}):")
    writer.bind(name, "float")
    return writer.sides(writer.block, lambda: True)


# --- comprehensions --------------------------------------------------------------------------------------------------


def _items(writer: Writer, depth: int) -> str:
    """Something to go through whose length is known."""
    tuples = [name for kind in writer.tuple_kinds() for name in writer.frame.of(kind)]
    items = ", ".join(bare(writer.expr("float", depth)) for _ in range(writer.pick(2, 3, 1)))
    return writer.pick(f"({items},)", *tuples, f"[{items}]", f"reversed(({items},))")


def _comprehension(writer: Writer, kind: str, depth: int) -> str:
    """`e for v in …`, over items or a range, sometimes with a condition."""
    if kind == "float" and not writer.below(3):
        name = writer.fresh("int")
        with writer.inside():
            count = f"range({writer.expr('int', depth)} % 4)"
        over = writer.pick("range(3)", count, "range(1, 4)", "range(4, 0, -1)")
        with writer.inside(name, kind="int"):
            body = bare(writer.expr("float", depth))
            test = f" if {bare(writer.expr('bool', depth))}" if writer.likely(1, 3) else ""
    else:
        name = writer.fresh("float")
        with writer.inside():
            over = _items(writer, depth)
        with writer.inside(name):
            body = bare(writer.expr(kind, depth))
            test = f" if {bare(writer.expr('bool', depth))}" if writer.likely(1, 4) else ""
    # A lambda or conditional would swallow what follows it.
    return f"{closed(body)} for {name} in {over}{test}"


@production("float", 2, feature="comprehension")
def _reduced_comprehension(writer: Writer, depth: int) -> str:
    inner = _comprehension(writer, "float", depth)
    return writer.pick(
        f"sum({inner})",
        f"max(({inner}), default=0.5)",
        f"min(({inner}), default=-1.0)",
        f"math.prod({inner})",
        f"sum(({inner}), 0.25)",
    )


@production("float", 1, feature="comprehension")
def _listed_comprehension(writer: Writer, depth: int) -> str:
    name = writer.fresh("float")
    with writer.inside():
        over = _items(writer, depth)
    with writer.inside(name):
        body = bare(writer.expr("float", depth))
    return writer.pick(
        f"[{closed(body)} for {name} in {over}][0]",
        f"tuple({closed(body)} for {name} in {over})[-1]",
        f"max([{closed(body)} for {name} in {over}])",
        f"sum([{closed(body)} for {name} in {over}])",
        f"sum(map(lambda {name}: {body}, {over}))",
    )


@production("bool", 1, feature="comprehension")
def _quantified_comprehension(writer: Writer, depth: int) -> str:
    return f"{writer.pick('any', 'all')}({_comprehension(writer, 'bool', depth)})"


@production("statement", 1, feature="comprehension", when=lambda writer: not writer.frame.loops)
def _assigned_comprehension(writer: Writer) -> None:
    target, name = writer.fresh("tuple"), writer.fresh("float")
    with writer.inside():
        first, second = writer.fresh_expr("float"), writer.fresh_expr("float")
    with writer.inside(name):
        body = writer.fresh_expr("float")
    inner = f"{closed(body)} for {name} in ({first}, {second})"
    is_list = writer.pick(True, False)
    writer.line(f"{target} = [{inner}]" if is_list else f"{target} = tuple({inner})")
    writer.bind(target, ("float", "float"))
    if is_list:  # no tuple may take its place
        writer.frame.owned.discard(target)


# --- tests of several values -----------------------------------------------------------------------------------------


@production("bool", 1, feature="membership")
def _membership(writer: Writer, depth: int) -> str:
    kind = writer.pick("int", "float")
    some = writer.pick("(1, 2)", "(0, 1, 3)") if kind == "int" else writer.pick("(0.5, 1.0)", "(0.0, 2)")
    more = f"({some[1:-1]}, {bare(writer.expr(kind, depth))})"
    return f"({writer.expr(kind, depth)} {writer.pick('in', 'not in')} {writer.pick(some, more)})"


@production("bool", 1, feature="tuple-equality")
def _tuple_equality(writer: Writer, depth: int) -> str:
    kinds = (writer.pick("int", "float", "bool"), writer.pick("int", "bool"))
    relation = writer.pick("==", "!=")
    return f"(({writer.exprs(kinds, depth)}) {relation} ({writer.exprs(kinds, depth)}))"


# --- more of math and numpy ------------------------------------------------------------------------------------------


@production("float", 1, feature="float-parts")
def _parts_of_a_float(writer: Writer, depth: int) -> str:
    a = bare(writer.expr("float", depth))
    return writer.pick(
        f"math.modf({a})[0]", f"math.frexp({a})[0]", f"math.modf({a})[1]", f"math.ldexp({a}, 2)", f"math.frexp({a})[1]"
    )


@production("float", 1, feature="long-hypot")
def _distance(writer: Writer, depth: int) -> str:
    a, b, c = (bare(writer.expr("float", depth)) for _ in range(3))
    return writer.pick(f"math.hypot({a}, {b}, abs({c}) + 0.5)", f"math.dist(({a}, {b}, 1.5), ({c}, 0.5, -1.0))")


@production("float", 1, feature="casts")
def _cast(writer: Writer, depth: int) -> str:
    a = bare(writer.expr("float", depth))
    return writer.pick(f"np.float64({a})", f"np.float32({a})")


# --- match -----------------------------------------------------------------------------------------------------------


def _pattern(writer: Writer, kind: str) -> tuple[str, dict[str, Kind]]:
    """A pattern that may fail, and the names it binds."""
    if kind == "int":
        return writer.pick("0", "1", "1 | 2", "-1", "0 | 3 | 5"), {}
    if kind == "bool":
        return writer.pick("True", "False"), {}
    return writer.pick("0.5", "1.0 | -1.0", "0", "2.0"), {}


@production("statement", 2, feature="match", when=lambda writer: writer.frame.depth <= 3 and writer.budget > 0)
def _match(writer: Writer) -> bool:
    kinds = writer.pick(("int",), ("float", "bool"), ("float",), ("int", "float"), ("bool", "int"))
    subject = writer.exprs(kinds)
    writer.nodes = 0
    writer.line(f"match {subject if len(kinds) == 1 else f'({subject})'}:")
    writer.frame.depth += 1

    def case(is_last: bool):
        def write() -> bool:
            bound: dict[str, Kind] = {}
            parts = []
            for kind in kinds:
                if is_last or writer.likely(1, 3):
                    name = writer.pick("_", writer.fresh(kind))
                    parts.append(name)
                    if name != "_":
                        bound[name] = kind
                else:
                    parts.append(_pattern(writer, kind)[0])
            pattern = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
            free = all(part.isidentifier() and part not in ("True", "False") for part in parts)
            for name, kind in bound.items():
                writer.bind(name, kind)
            # A guard may not assign what its pattern binds.
            writer.frame.owned -= bound.keys()
            writer.nodes = 0
            # Only the last case may take everything.
            guard = f" if {bare(writer.expr('bool'))}" if not is_last and (free or writer.likely(1, 3)) else ""
            writer.frame.owned |= bound.keys()
            writer.line(f"case {pattern}{guard}:")
            return writer.block()

        return write

    cases = [case(False) for _ in range(1 + writer.below(3))]
    last = [case(True)] if writer.below(2) else [lambda: True]
    falls = writer.sides(*cases, *last)
    writer.frame.depth -= 1
    return falls


# --- records ---------------------------------------------------------------------------------------------------------

RECORD = "record"


def record(writer: Writer) -> None:
    """A class of two numbers with a method: a named tuple `P` or a dataclass `D`."""
    name, other = writer.pick("P", "D"), writer.fresh("float")
    writer.lines += ["class P(NamedTuple):"] if name == "P" else ["@dataclass(frozen=True)", "class D:"]
    writer.lines += ["    low: float", "    high: float", "", f"    def weigh(self, {other}):"]
    with writer.inside(other):
        writer.nodes = 2
        body = bare(writer.expr("float"))
    writer.lines.append(f"        return self.low * {other} - self.high * {closed(body)}")
    fields = (("low", "float", "positional"), ("high", "float", "positional"))
    writer.frame.functions[name] = Signature(fields, (RECORD,))


def _classes(writer: Writer) -> list[str]:
    return [name for name, its in writer.frame.functions.items() if its.results == (RECORD,)]


def _records(writer: Writer) -> list[str]:
    return [name for name, kind in writer.frame.names.items() if isinstance(kind, str) and kind.startswith(RECORD)]


@production("float", 4, leaf=True, feature="record", when=lambda writer: bool(_records(writer)))
def _field(writer: Writer, depth: int) -> str:  # noqa: ARG001
    return f"{writer.pick(*_records(writer))}.{writer.pick('low', 'high')}"


@production("float", 2, feature="record", when=lambda writer: bool(_records(writer)))
def _method(writer: Writer, depth: int) -> str:
    return f"{writer.pick(*_records(writer))}.weigh({bare(writer.expr('float', depth))})"


@production("statement", 4, feature="record", when=lambda writer: bool(_classes(writer)))
def _made_record(writer: Writer) -> None:
    kind = writer.pick(*_classes(writer))
    known = writer.frame.of(f"{RECORD} {kind}", assignable=True)
    name = writer.pick(*known) if known and writer.below(3) else writer.fresh("tuple")
    carried = name in known
    first, second = value(writer, "float", carried), value(writer, "float", carried)
    form = writer.pick(
        f"{kind}({first}, {second})", f"{kind}({first}, high={second})", f"{kind}(high={first}, low={second})"
    )
    if carried and writer.below(2):
        form = f"{name}._replace(high={first})" if kind == "P" else f"replace({name}, high={first})"
    writer.line(f"{name} = {form}")
    writer.bind(name, f"{RECORD} {kind}")


# --- functions with arguments bound ----------------------------------------------------------------------------------


@production(
    "statement",
    1,
    feature="partial",
    when=lambda writer: not writer.frame.loops and not writer.frame.is_nested and bool(_bindable(writer)),
)
def _partial(writer: Writer) -> None:
    function = writer.pick(*_bindable(writer))
    (_, kind, _), *others = writer.frame.functions[function].params
    name = writer.fresh("function")
    writer.line(f"{name} = partial({function}, {writer.fresh_expr(kind)})")
    results = writer.frame.functions[function].results
    writer.frame.functions[name] = Signature(tuple(others), results)


def _bindable(writer: Writer) -> list[str]:
    return [name for name, its in writer.frame.functions.items() if len(its.params) > 1 and its.results != (RECORD,)]
