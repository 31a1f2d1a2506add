"""The productions of expressions: of floats, integers and bools, each within its domain by construction."""

from __future__ import annotations

from grammar import Writer, bare, closed, production

__all__: list[str] = []


def _has(*kinds: object):
    return lambda writer: all(writer.frame.of(kind) for kind in kinds)


def _functions(writer: Writer, *results: int) -> list[str]:
    functions = writer.frame.functions
    return [name for name, its in functions.items() if len(its.results) in results and its.results[0] == "float"]


def call(writer: Writer, name: str, depth: int) -> str:
    """A call of a function of the program, some arguments by name, some defaults left alone."""
    args, by_name = [], False
    for parameter, kind, how in writer.frame.functions[name].params:
        if how == "default" and not writer.below(2):
            by_name = True
            continue
        by_name = by_name or how in ("default", "keyword")
        args.append((f"{parameter}=" if by_name else "") + bare(writer.expr(kind, depth + 1)))
    return f"{name}({', '.join(args)})"


# --- floats ----------------------------------------------------------------------------------------------------------

CONSTANTS = ("0.5", "2.0", "1.5", "-1.25", "0.0", "1.0", "3.0", "-0.5", "0.1", "math.pi")


@production("float", 7, leaf=True)
def _name(writer: Writer, depth: int) -> str:  # noqa: ARG001
    return writer.name("float")


@production("float", 2, leaf=True)
def _constant(writer: Writer, depth: int) -> str:  # noqa: ARG001
    return writer.pick(*CONSTANTS)


@production("float", 1, leaf=True, when=lambda writer: bool(writer.tuple_kinds()))
def _item(writer: Writer, depth: int) -> str:  # noqa: ARG001
    kind = writer.pick(*writer.tuple_kinds())
    return f"{writer.name(kind)}[{writer.pick(*range(len(kind)), -1, -len(kind))}]"


@production("float", 6, when=lambda writer: bool(writer.frame.of("table")))
def _element(writer: Writer, depth: int) -> str:
    """An element of a whole array, at a place that is computed."""
    place = closed(bare(writer.expr("int", depth)))
    return writer.pick(
        f"table[{place} % 5]",
        f"table[{place} % len(table)]",
        f"table[-1 - {place} % 3]",
        f"table[min(max({bare(place)}, 0), len(table) - 1)]",
        f"(table[{bare(place)}] if 0 <= {place} < 5 else {writer.name('float')})",
    )


@production("float", 8)
def _arithmetic(writer: Writer, depth: int) -> str:
    return f"({writer.expr('float', depth)} {writer.pick('+', '-', '*')} {writer.expr('float', depth)})"


@production("float", 3)
def _tame_function(writer: Writer, depth: int) -> str:
    function = writer.pick(
        "math.sin",
        "math.tanh",
        "math.cos",
        "math.atan",
        "math.erf",
        "math.asinh",
        "math.erfc",
        "np.sin",
        "np.tanh",
        "np.cos",
        "np.arctan",
    )
    return f"{function}({bare(writer.expr('float', depth))})"


@production("float", 2)
def _function_in_its_domain(writer: Writer, depth: int) -> str:
    a = writer.expr("float", depth)
    return writer.pick(
        f"math.sqrt({a} * {a} + 0.5)" if a.isidentifier() else f"math.sqrt(abs({bare(a)}) + 0.5)",
        f"math.exp(-abs({bare(a)}))",
        f"math.log(1.5 + abs({bare(a)}))",
        f"math.exp(min({bare(a)}, 2.0))",
        f"math.log1p(abs({bare(a)}))",
        f"math.expm1(math.sin({bare(a)}))",
        f"math.asin(0.9 * math.sin({bare(a)}))",
        f"math.acos(0.5 * math.cos({bare(a)}))",
        f"math.atanh(0.75 * math.sin({bare(a)}))",
        f"math.acosh(1.5 + abs({bare(a)}))",
        f"math.cbrt({a} + 20.0)",
        f"math.sinh(math.sin({bare(a)}))",
        f"math.cosh(max(-2.0, min(2.0, {bare(a)})))",
        f"math.tan(math.sin({bare(a)}))",
        f"math.log(abs({bare(a)}) + 0.5, 2.5)",
        f"math.log2(abs({bare(a)}) + 0.5)",
        f"math.log10(abs({bare(a)}) + 0.5)",
        f"math.exp2(min({bare(a)}, 3.0))",
        f"math.lgamma(abs({bare(a)}) + 0.75)",
        f"np.sqrt(abs({bare(a)}) + 0.25)",
        f"np.exp(-np.square({bare(a)}))",
        f"np.log(1.5 + np.abs({bare(a)}))",
    )


@production("float", 3)
def _guarded(writer: Writer, depth: int) -> str:
    """A function whose domain the branch around it guarantees."""
    a, other = writer.name("float"), writer.expr("float", depth)
    return writer.pick(
        f"(math.sqrt({a}) if {a} > 0 else {other})",
        f"({other} if {a} <= 0 else math.log({a}))",
        f"(1 / {a} if {a} != 0 else {other})",
        f"({other} / {a} if abs({a}) > 0.5 else {a})",
        f"(math.acos({a}) if -1 < {a} < 1 else {other})",
        f"({a} ** 1.5 if {a} > 0 else {other})",
        f"(math.atanh({a}) if abs({a}) < 0.9 else {other})",
    )


@production("float", 1)
def _division(writer: Writer, depth: int) -> str:
    a, b = writer.expr("float", depth), writer.expr("float", depth)
    return f"({a} / {writer.pick('2.0', f'(1.5 + abs({bare(b)}))', f'(2.5 + math.sin({bare(b)}))')})"


@production("float", 3)
def _conditional(writer: Writer, depth: int) -> str:
    a, test, b = writer.expr("float", depth), writer.expr("bool", depth), writer.expr("float", depth)
    return f"({a} if {bare(test)} else {b})"


@production("float", 2)
def _extremum(writer: Writer, depth: int) -> str:
    count = writer.pick(2, 2, 3)
    args = ", ".join(bare(writer.expr("float", depth)) for _ in range(count))
    function = writer.pick("max", "min", *(("np.maximum", "np.minimum") if count == 2 else ()))
    return f"{function}({args})"


@production("float", 1)
def _negative(writer: Writer, depth: int) -> str:
    return f"{writer.pick('-', 'abs', '+', 'math.fabs', 'np.negative')}({bare(writer.expr('float', depth))})"


@production("float", 1)
def _choice_of_operands(writer: Writer, depth: int) -> str:
    a, b = writer.expr(writer.pick("float", "float", "bool", "int"), depth), writer.expr("float", depth)
    return f"({a} {writer.pick('and', 'or')} {b})"


@production("float", 2)
def _power(writer: Writer, depth: int) -> str:
    a = writer.expr("float", depth)
    return writer.pick(
        f"{closed(bare(a))} ** 2",
        f"{closed(bare(a))} ** 3",
        f"{closed(bare(a))} ** 2.0",
        f"pow({bare(a)}, 2)",
        f"(abs({bare(a)}) + 0.5) ** 1.5",
        f"(abs({bare(a)}) + 1.5) ** -1",
        f"(math.sin({bare(a)}) + 1.5) ** {writer.name('float')}",
        f"1.5 ** math.cos({bare(a)})",
        f"math.pow(abs({bare(a)}) + 0.5, 0.75)",
        f"np.square({bare(a)})",
        f"{closed(bare(a))} ** 1",
        f"{closed(bare(a))} ** 0",
    )


@production("float", 2)
def _division_with_remainder(writer: Writer, depth: int) -> str:
    a, b = writer.expr("float", depth), writer.expr("float", depth)
    return writer.pick(
        f"({a} % 1.75)",
        f"({a} // 0.75)",
        f"({a} % (1.25 + abs({bare(b)})))",
        f"({a} % -2.5)",
        f"divmod({bare(a)}, 1.5)[{writer.pick(1, 0)}]",
        f"math.fmod({bare(a)}, 1.25)",
        f"round({bare(a)}, 1)",
        f"np.floor({bare(a)})",
        f"np.ceil({bare(a)})",
    )


@production("float", 1)
def _function_of_two(writer: Writer, depth: int) -> str:
    a, b = bare(writer.expr("float", depth)), bare(writer.expr("float", depth))
    return writer.pick(
        f"math.hypot({a}, 0.5 + abs({b}))",
        f"math.atan2({a}, 1.5 + abs({b}))",
        f"math.copysign({a}, 0.25 + abs({b}))",
        f"np.arctan2({a}, 0.5 + abs({b}))",
        f"math.copysign(abs({a}) + 0.5, {b})",
        f"np.clip({a}, -1.5, 2.0)",
        f"np.sign({a})",
    )


@production("float", 1)
def _numpy_where(writer: Writer, depth: int) -> str:
    return f"np.where({writer.exprs(('bool', 'float', 'float'), depth)})"


@production("float", 1)
def _reduction(writer: Writer, depth: int) -> str:
    function, count = writer.pick("sum", "max", "min", "math.prod"), writer.pick(2, 3, 1)
    items = ", ".join(bare(writer.expr("float", depth)) for _ in range(count))
    return f"{function}(({items}{',' if count == 1 else ''}))"


@production("float", 1, when=lambda writer: bool(writer.tuple_kinds()))
def _tuple_reduction(writer: Writer, depth: int) -> str:  # noqa: ARG001
    name = writer.name(writer.pick(*writer.tuple_kinds()))
    return writer.pick(f"sum({name})", f"max({name})", f"min({name})", f"sum({name}[1:], 0.5)", f"math.prod({name})")


@production("float", 1)
def _lambda_called(writer: Writer, depth: int) -> str:
    name = writer.fresh("float")
    with writer.inside(name):
        body = bare(writer.expr("float", depth))
    default = f"={bare(writer.expr('float', depth))}" if writer.likely(1, 3) else ""
    return f"(lambda {name}{default}: {body})({bare(writer.expr('float', depth))})"


@production("float", 4, when=lambda writer: bool(_functions(writer, 1)))
def _call(writer: Writer, depth: int) -> str:
    return call(writer, writer.pick(*_functions(writer, 1)), depth)


@production("float", 1, when=lambda writer: bool(_functions(writer, 2, 3)))
def _item_of_a_call(writer: Writer, depth: int) -> str:
    name = writer.pick(*_functions(writer, 2, 3))
    return f"{call(writer, name, depth)}[{writer.pick(0, 1, -1)}]"


@production("float", 2)
def _integer_as_float(writer: Writer, depth: int) -> str:
    a = writer.expr("int", depth)
    return writer.pick(f"float({bare(a)})", f"({a} / 2)", f"({a} * {writer.name('float')})", a)


@production("float", 1)
def _bool_as_float(writer: Writer, depth: int) -> str:
    a = writer.expr("bool", depth)
    return writer.pick(f"({a} * {writer.name('float')})", f"float({bare(a)})", f"({writer.name('float')} + {a})")


# --- integers --------------------------------------------------------------------------------------------------------


@production("int", 5, leaf=True, when=_has("int"))
def _int_name(writer: Writer, depth: int) -> str:  # noqa: ARG001
    return writer.name("int")


@production("int", 2, leaf=True)
def _int_constant(writer: Writer, depth: int) -> str:  # noqa: ARG001
    return writer.pick("1", "2", "0", "3", "-1", "-2", "5")


@production("int", 1, leaf=True, when=lambda writer: bool(writer.tuple_kinds()))
def _length(writer: Writer, depth: int) -> str:  # noqa: ARG001
    return f"len({writer.name(writer.pick(*writer.tuple_kinds()))})"


@production("int", 4)
def _int_arithmetic(writer: Writer, depth: int) -> str:
    return f"({writer.expr('int', depth)} {writer.pick('+', '-')} {writer.expr('int', depth)})"


@production("int", 1)
def _int_product(writer: Writer, depth: int) -> str:
    return f"({writer.expr('int', depth)} * {writer.expr('int', depth)} % {writer.pick(7, 5, -3)})"


@production("int", 3)
def _int_division(writer: Writer, depth: int) -> str:
    a, b = writer.expr("int", depth), writer.expr("int", depth)
    divisor = writer.pick("2", "3", "-2", "-3", f"({b} * {b} % 7 + 1)")
    return writer.pick(f"({a} // {divisor})", f"({a} % {divisor})", f"divmod({bare(a)}, {bare(divisor)})[0]")


@production("int", 2)
def _bits(writer: Writer, depth: int) -> str:
    a, b = writer.expr("int", depth), writer.expr("int", depth)
    return writer.pick(
        f"({a} & 7)", f"({a} | {b})", f"({a} ^ {b})", f"(~{closed(bare(a))})", f"({a} >> 1)", f"({a} << ({b} & 3))"
    )


@production("int", 2)
def _whole_number(writer: Writer, depth: int) -> str:
    a = bare(writer.expr("float", depth))
    small = writer.pick(f"math.sin({a}) * 3.0", f"({a}) % 5.0", f"max(-4.0, min({a}, 4.0))")
    return f"{writer.pick('int', 'round', 'math.floor', 'math.ceil', 'math.trunc')}({small})"


@production("int", 1)
def _int_choice(writer: Writer, depth: int) -> str:
    a, test, b = writer.expr("int", depth), writer.expr("bool", depth), writer.expr("int", depth)
    return writer.pick(f"({a} if {bare(test)} else {b})", f"({a} or {b})", f"({a} and {b})")


@production("int", 1)
def _int_function(writer: Writer, depth: int) -> str:
    a, b = bare(writer.expr("int", depth)), bare(writer.expr("int", depth))
    return writer.pick(
        f"min({a}, {b})", f"max({a}, {b})", f"abs({a})", f"sum(({a}, {b}))", f"-({a})", f"({a}) % 4 ** 2"
    )


@production("int", 1)
def _bool_as_int(writer: Writer, depth: int) -> str:
    a = writer.expr("bool", depth)
    return writer.pick(f"int({bare(a)})", f"({a} + {writer.expr('int', depth)})")


# --- bools -----------------------------------------------------------------------------------------------------------


@production("bool", 2, leaf=True, when=_has("bool"))
def _bool_name(writer: Writer, depth: int) -> str:  # noqa: ARG001
    return writer.name("bool")


@production("bool", 2, leaf=True)
def _sign_of_a_name(writer: Writer, depth: int) -> str:  # noqa: ARG001
    constant = writer.pick("0", "1.0", "-0.5", "2")
    return f"({writer.name('float')} {writer.pick('>', '<')} {constant})"


@production("bool", 5)
def _comparison(writer: Writer, depth: int) -> str:
    relation = writer.pick("<", ">", "<=", ">=")
    return f"({writer.expr('float', depth)} {relation} {writer.expr('float', depth)})"


@production("bool", 2)
def _int_comparison(writer: Writer, depth: int) -> str:
    relation = writer.pick("<", "==", "!=", ">=")
    return f"({writer.expr('int', depth)} {relation} {writer.expr('int', depth)})"


@production("bool", 1)
def _chain(writer: Writer, depth: int) -> str:
    a, b, c = (writer.expr("float", depth) for _ in range(3))
    return f"({a} {writer.pick('<', '<=', '>')} {b} {writer.pick('<=', '<', '>')} {c})"


@production("bool", 3)
def _connected(writer: Writer, depth: int) -> str:
    return f"({writer.expr('bool', depth)} {writer.pick('and', 'or')} {writer.expr('bool', depth)})"


@production("bool", 1)
def _not(writer: Writer, depth: int) -> str:
    return f"(not {writer.expr('bool', depth)})"


@production("bool", 1)
def _truth(writer: Writer, depth: int) -> str:
    kind = writer.pick("float", "int")
    return f"bool({bare(writer.expr(kind, depth))})"


@production("bool", 1)
def _quantifier(writer: Writer, depth: int) -> str:
    return f"{writer.pick('all', 'any')}(({writer.exprs(('bool', 'bool'), depth)}))"


@production("bool", 1)
def _bool_bits(writer: Writer, depth: int) -> str:
    return f"({writer.expr('bool', depth)} {writer.pick('&', '|', '^', '==', '!=')} {writer.expr('bool', depth)})"
