"""IR to text: the element function of a product as a Python program a person can read, and the functions it calls.

The same text serves every target; what its free names mean (`tanh`, `float32`, `load_float16`, …) is the target's
business. `skeleton.py` and `shell.py` write the loops around it.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dualbcast.codegen.cpu_loops import index_names, loops
from dualbcast.codegen.cpu_reduction_loops import summing_loops
from dualbcast.codegen.cuda.kernel_shell import cuda_shell
from dualbcast.codegen.cuda.reduction_shell import summing_shell
from dualbcast.errors import Location
from dualbcast.frontend.lower import FOREVER, RESERVED
from dualbcast.frontend.rule_bodies import helper_of, without_customs
from dualbcast.ir.constant_fold import fold
from dualbcast.ir.nodes import (
    NOWHERE,
    Assign,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    Load,
    Names,
    Op,
    Stmt,
    Var,
    While,
)
from dualbcast.ir.value_numbering import simplify
from dualbcast.ir.walk import assigned, expressions, statements
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.passes.call_scheduling import calls_first
from dualbcast.passes.cost_model import side_by_side
from dualbcast.passes.cuda_coarsening import arranged, group_loads, group_outputs, spread
from dualbcast.passes.cuda_fast_math import approximated
from dualbcast.passes.if_conversion import may_skip
from dualbcast.passes.readable_form import arrange
from dualbcast.passes.reciprocal_division import by_reciprocals
from dualbcast.passes.uniformity import is_vectorisable, steady_inputs
from dualbcast.passes.vectorization import together
from dualbcast.rules.table import RULES

__all__ = ["emit", "operations"]

# Operators by Python's precedence; a higher number binds tighter.
_INFIX = {
    "or": ("or", 1),
    "and": ("and", 2),
    **{
        name: (sign, 4)
        for name, sign in zip(("lt", "le", "gt", "ge", "eq", "ne"), ["<", "<=", ">", ">=", "==", "!="], strict=True)
    },
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "mod": ("%", 10),
}
# Both sides of these are computed already; Python's `and` and `or` would be branches.
_EAGER = {"and": "bitand", "or": "bitor"}
_PREFIX = {"not": ("not ", 3), "neg": ("-", 11), "invert": ("~", 11)}
_CONDITIONAL, _ATOM = 0, 12
_HALVES = ("float16", "bfloat16")
_WIDEST = 96
_COMMENT_COLUMN, _PAGE = 56, 118


def emit(
    function: Function,
    layout: Layout,
    dtype: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    target: str,
    title: str = "",
    fastmath: bool = False,
) -> KernelSource:
    """The text of a product for one target.

    Parameters
    ----------
    function : Function
        Simplified; one output for each stored result.
    layout : Layout
        How the arguments are addressed.
    dtype : str
        The compute dtype.
    inputs, outputs : sequence of str
        The dtype that each parameter and each output is stored as; of an output that is summed, whatever its sums
        become.
    target : str
        "python", "cpu" or "cuda".
    title : str
        What the product is, for the reader.
    fastmath : bool
        Whether the target's mathematics are approximate.
    """
    function = without_customs(function)
    steady = steady_inputs(function, layout)
    fast = fastmath and target == "cuda" and dtype == "float32"
    if fast:
        function = approximated(function)
    straight = skips = False
    if target == "cpu":
        function, _, straight = together(function, steady)
        skips = straight and may_skip(function, steady)
    module = _Module(dtype, target, fast, avoid={*assigned(function.body), *(param.name for param in function.params)})
    helpers = module.helpers(function)
    names = Names(RESERVED | RULES.keys() | set(module.compiled))
    for name in (*(param.name for param in function.params), *(output.name for output in function.outputs)):
        names.fresh(name)
    element = names.fresh(function.name if function.name.isidentifier() else "element")
    params = [param.name for param in function.params]
    indices = index_names(layout, params, names)
    stored = [output.name for output in function.outputs]
    summed = layout.summed(len(params))
    outputs = [dtype if position in summed else kind for position, kind in enumerate(outputs)]

    storage = dict(zip((*params, *stored), (*inputs, *outputs), strict=True))
    address = dict(zip((*params, *stored), (indices[position] for position in layout.which), strict=True))
    # The terms of a sum go to a row of their own, for a CUDA thread's one element of length one.
    term = names.fresh("t") if summed and target != "cuda" else "0"
    address |= {stored[position]: term for position in summed}
    writer = _Writer(module, storage, address, layout.lanes)
    used = [indices[position] for position in layout.indexed(len(params))]
    if term != "0":
        used.append(term)
    if target == "cpu":
        # Of float32 divisions take half as long, and multiplications for them would take longer.
        function = calls_first(by_reciprocals(function) if dtype == "float64" else function)
    function = arranged(function, names) if target == "cuda" else arrange(function, names, loads=True)
    if layout.lanes > 1:
        function = spread(function, layout, names)
    writer.function(function, 1)
    vectorise = target != "cpu" or is_vectorisable(function, steady)
    vectors = 0
    if straight:
        # Rows may be shorter than that. A vector of float64 is a line of the cache, and memory likes pairs of lines.
        loops_inside = any(isinstance(stmt, For | While) for stmt in statements(function.body))
        most = 4 if layout.rank == 1 or loops_inside else 2 if dtype == "float64" and not summed else 1
        vectors = side_by_side(function, len(params) + len(stored), most, 2 if skips else 1)
    elif not summed and target == "cpu" and dtype == "float64" and vectorise:
        vectors = 2
    head = f"def {element}({', '.join([*used, *params, *stored])}):"
    text = "\n".join([head, *writer.text()])
    sections = [*helpers, text]
    functions = (*module.compiled, element)
    shell = ""
    if target == "cuda":
        entry = f"{element}_kernel" if element.isascii() else "element_kernel"
        if summed:
            shell = summing_shell(layout, entry, dtype, inputs, outputs)
        else:
            shell = cuda_shell(layout, entry, inputs, outputs)
    elif summed:
        entry = names.fresh("kernel")
        added, loop, rests = summing_loops(layout, dtype, element, entry, params, stored, indices, names, vectors)
        sections += [*added.values(), loop]
        functions = (*added, *functions)
        outputs = [*outputs, *["float64"] * rests]
    else:
        entry = names.fresh("kernel")
        sections.append(loops(layout, element, entry, [*params, *stored], indices, names, vectors, len(params)))
    outputs = ["float64" if position in summed else kind for position, kind in enumerate(outputs)]
    prelude = "\n".join([*([f"# {title}"] if title else []), *module.prelude()])
    return KernelSource(
        "\n\n\n".join([prelude, *sections] if prelude else sections) + "\n",
        functions,
        entry,
        dtype,
        tuple(inputs),
        tuple(outputs),
        layout,
        shell,
        vectorise,
        straight,
    )


def operations(function: Function) -> dict[str, int]:
    """How many operations of each name the text of a function has; both sides of a branch, one turn of a loop."""
    function = without_customs(function)
    counts: dict[str, int] = {}

    def count(expr: Expr) -> None:
        if isinstance(expr, Op):
            counts[expr.name] = counts.get(expr.name, 0) + 1
            for arg in expr.args:
                count(arg)

    for stmt in statements(function.body):
        for expr in expressions(stmt):
            count(expr)
    for output in function.outputs:
        count(output.value)
    return counts


class _Module:
    """What the functions of one text share: constants, and the helper functions they call."""

    def __init__(self, dtype: str, target: str, fast: bool, avoid: set[str]) -> None:
        self.dtype, self.target, self.fast, self.avoid = dtype, target, fast, avoid
        self.short = {"float32": "f32", "float64": "f64"}[dtype]
        self.constants: dict[str, str] = {}
        self.integers: dict[int, str] = {}
        # What the text calls a rule's function, by the rule's name.
        self.called: dict[str, str] = {}
        self.compiled: list[str] = []

    def constant(self, value: float) -> str:
        """The name of a constant of the compute dtype."""
        text = repr(value)
        if text not in self.constants:
            readable = text.removesuffix(".0").replace("-", "m").replace(".", "p").replace("+", "")
            plain = len(readable) <= 8 and re.fullmatch(r"\w+", readable)
            count = sum(name.startswith(f"{self.short}_c") for name in self.constants.values())
            name = f"{self.short}_{readable}" if plain else f"{self.short}_c{count + 1}"
            # A local variable of that name would hide the constant.
            self.constants[text] = f"{name}_" if name in self.avoid else name
        return self.constants[text]

    def integer(self, value: int) -> str:
        """The name of an integer constant."""
        self.integers[value] = f"i64_{value}".replace("-", "m")
        return self.integers[value]

    def prelude(self) -> list[str]:
        def literal(text: str) -> str:
            return text if text[-1].isdigit() else f'"{text}"'

        in_order = sorted(self.constants.items(), key=lambda item: float(item[0]))
        floats = [f"{name} = {self.dtype}({literal(text)})" for text, name in in_order]
        return floats + [f"{name} = int64({value})" for value, name in sorted(self.integers.items())]

    def helpers(self, function: Function) -> list[str]:
        """The texts of the functions that a function needs, those they need first."""
        texts: list[str] = []
        for stmt in statements(function.body):
            for expr in expressions(stmt):
                self._collect(expr, texts)
        for output in function.outputs:
            self._collect(output.value, texts)
        return texts

    def _collect(self, expr: Expr, texts: list[str]) -> None:
        if not isinstance(expr, Op):
            return
        for arg in expr.args:
            self._collect(arg, texts)
        row = RULES.get(expr.name)
        if row is None or row.function is None or expr.name in self.called:
            return
        # A rule of the library has its own name everywhere; a user's has one that nothing else in this text has.
        taken = RESERVED | RULES.keys() | self.avoid | set(self.called.values()) | set(self.constants.values())
        called = self.called[expr.name] = Names(taken).fresh(row.label) if row.by_user else row.name
        self.avoid.add(called)
        helper = simplify(without_customs(helper_of(row)))
        if self.fast:
            helper = approximated(helper)
        texts.extend(self.helpers(helper))
        self.compiled.append(called)
        names = Names(RESERVED | RULES.keys() | set(self.called.values()))
        helper = arrange(helper, names, loads=False)
        writer = _Writer(self, {}, {})
        writer.block(helper.body, 1)
        (output,) = helper.outputs
        value = output.value
        writer.line(1, f"return {writer.expression(value)}")
        head = f"def {called}({', '.join(param.name for param in helper.params)}):"
        texts.append("\n".join([head, *writer.text()]))


@dataclass(slots=True)
class _Writer:
    """Writes the statements of one function."""

    module: _Module
    storage: dict[str, str]
    address: dict[str, str]
    lanes: int = 1
    lines: list[tuple[str, Location | None]] = field(default_factory=list)

    def line(self, depth: int, text: str, where: Location | None = None) -> None:
        self.lines.append(("    " * depth + text, where))

    def text(self) -> list[str]:
        """The lines, the first of each user's line with that line as its comment."""
        found: list[str] = []
        shown: tuple[str, int] | None = None
        for code, where in self.lines:
            comment = ""
            if where not in (None, NOWHERE) and (where.filename, where.line) != shown:
                comment = _quote(where)
                shown = (where.filename, where.line)
            if not comment:
                found.append(code)
            elif len(code) <= _COMMENT_COLUMN:
                found.append(_cut(f"{code:<{_COMMENT_COLUMN}}  # {comment}"))
            else:
                indent = code[: len(code) - len(code.lstrip())]
                # Of a comment beyond the page not even the sign would be left.
                found += [_cut(f"{indent}# {comment}"), code] if len(indent) < _PAGE - 2 else [code]
        return found

    def function(self, function: Function, depth: int) -> None:
        """The body and the stores of an arranged function."""
        if function.body:
            self.block(function.body, depth)
        for name, values in group_outputs(function.outputs, self.lanes):
            self.line(depth, self.store(name, values))

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, block: Block, depth: int) -> None:
        if not block:
            self.line(depth, "pass")
        for stmt, *neighbours in group_loads(block, self.lanes):
            match stmt:
                case Assign() if neighbours:
                    self._wide_load(stmt, neighbours, depth)
                case Assign():
                    self.line(depth, f"{stmt.target.name} = {self.assigned(stmt.value)}", stmt.location)
                case If():
                    self._if(stmt, depth)
                case While():
                    self._while(stmt, depth)
                case For():
                    bounds = [self.expression(expr) for expr in (stmt.start, stmt.stop, stmt.step)]
                    if bounds[2] == "1":
                        bounds = bounds[1:2] if bounds[0] == "0" else bounds[:2]
                    self.line(depth, f"for {stmt.target.name} in range({', '.join(bounds)}):", stmt.location)
                    self.block(stmt.body, depth + 1)
                case Break():
                    self.line(depth, "break")
                case Continue():
                    self.line(depth, "continue")

    def _if(self, stmt: If, depth: int, word: str = "if") -> None:
        if not stmt.then:
            stmt = If(fold(Op("not", (stmt.test,), "bool")), stmt.orelse, (), stmt.location)
        test = self.expression(stmt.test)
        match stmt.then, stmt.orelse:
            case (Assign() as then,), (Assign() as orelse,) if then.target == orelse.target and word == "if":
                first, second = self.assigned(then.value, 1), self.assigned(orelse.value)
                line = f"{then.target.name} = {first} if {self.expression(stmt.test, 1)} else {second}"
                if len(line) <= _WIDEST:
                    self.line(depth, line, stmt.location)
                    return
        self.line(depth, f"{word} {test}:", stmt.location)
        self.block(stmt.then, depth + 1)
        if len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], If):
            self._if(stmt.orelse[0], depth, "elif")
        elif stmt.orelse:
            self.line(depth, "else:")
            self.block(stmt.orelse, depth + 1)

    def _while(self, stmt: While, depth: int) -> None:
        test = self.expression(stmt.test)
        head = "True" if stmt.pre else test
        if head == "True" and _breaks(stmt.body):
            # Where the one way out of a loop assigns a variable, Numba 0.68 takes what comes later in the text for what
            # runs after it, and gives the loop's variables stale values. A second way out, never taken, avoids that.
            head = FOREVER
            self.line(depth, f"{FOREVER} = True")
        self.line(depth, f"while {head}:", stmt.location)
        if stmt.pre:
            self.block(stmt.pre, depth + 1)
            self.line(depth + 1, f"if {self.expression(Op('not', (stmt.test,), 'bool'))}:")
            self.line(depth + 2, "break")
        if stmt.body or not stmt.pre:
            self.block(stmt.body, depth + 1)

    def _wide_load(self, first: Assign, neighbours: Sequence[Stmt], depth: int) -> None:
        """The statements that load an element and its neighbours in one access."""
        load = first.value
        names = [stmt.target.name for stmt in (first, *neighbours) if isinstance(stmt, Assign)]
        assert isinstance(load, Load)
        access = f"load_{self.lanes}({load.name}, {self.address[load.name]})"
        self.line(depth, f"{', '.join(names)} = {access}", first.location)
        for name in names:
            value, _ = self._from_storage(load, name, "from")
            if value != name:
                self.line(depth, f"{name} = {value}")

    def store(self, name: str, values: Sequence[Expr]) -> str:
        """The statement that stores an output, of one element or of several."""
        storage, index = self.storage[name], self.address[name]
        texts = [self.expression(value) for value in values]
        if storage in _HALVES and self.module.dtype != "float32":
            texts = [f"float32({text})" for text in texts]
        if storage == "bool":
            texts = [f"uint8({text})" for text in texts]
        if len(values) > 1:
            if storage in _HALVES:
                texts = [f"to_{storage}({text})" for text in texts]
            return f"store_{len(values)}({name}, {index}, {', '.join(texts)})"
        if storage in _HALVES:
            return f"store_{storage}({name}, {index}, {texts[0]})"
        return f"{name}[{index}] = {texts[0]}"

    def assigned(self, value: Expr, binding: int = _CONDITIONAL) -> str:
        """A value as it is put into a variable: a bare integer would not be 64 bits wide on every target."""
        if isinstance(value, Const) and value.kind == "int":
            return self.module.integer(int(value.value))
        return self.expression(value, binding)

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, expr: Expr, binding: int = _CONDITIONAL) -> str:
        """An expression, in parentheses where it binds less tightly than what is around it."""
        text, strength = self._parts(expr)
        return f"({text})" if strength < binding else text

    def _parts(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Var():
                return expr.name, _ATOM
            case Load():
                return self._load(expr)
            case Const(value=value, kind="float"):
                return self.module.constant(float(value)), _ATOM
            case Const(value=value):
                return repr(value), _ATOM if value >= 0 else 11
            case Op(name="select", args=args) if self.module.target == "cpu":
                return f"select({', '.join(map(self.assigned, args))})", _ATOM
            case Op(name=name, args=args) if name in _INFIX:
                if self.module.target == "cpu":
                    name = _EAGER.get(name, name)
                sign, strength = _INFIX[name]
                left = self.expression(args[0], strength + (strength == 4))
                # Operators are left-associative, and a + (b + c) is not (a + b) + c.
                return f"{left} {sign} {self.expression(args[1], strength + 1)}", strength
            case Op(name=name, args=(arg,)) if name in _PREFIX:
                sign, strength = _PREFIX[name]
                return sign + self.expression(arg, strength), strength
            case Op(name="select", args=(test, then, orelse)):
                text = f"{self.expression(then, 1)} if {self.expression(test, 1)} else {self.expression(orelse)}"
                return text, _CONDITIONAL
            case Op(name="single", args=(arg,)):  # a value rounded to float32
                if self.module.dtype == "float32":
                    return self._parts(arg)
                return f"float64(float32({self.expression(arg)}))", _ATOM
            case Op(name=name, args=args):
                function = {"to_float": self.module.dtype, "to_int": "int64", **self.module.called}.get(name, name)
                return f"{function}({', '.join(map(self.expression, args))})", _ATOM
        raise AssertionError(expr)

    def _load(self, load: Load) -> tuple[str, int]:
        index = self.address[load.name]
        if self.storage[load.name] in _HALVES:
            return self._from_storage(load, f"{load.name}, {index}", "load")
        return self._from_storage(load, f"{load.name}[{index}]", "")

    def _from_storage(self, load: Load, text: str, verb: str) -> tuple[str, int]:
        """What is loaded, in the kind that it is computed with; `verb` is that of the functions for 16 bits."""
        storage = self.storage[load.name]
        if storage in _HALVES:
            text = f"{verb}_{storage}({text})"
            return (text if self.module.dtype == "float32" else f"float64({text})"), _ATOM
        if load.kind == "bool":
            return f"{text} != 0", 4
        wanted = "int64" if load.kind == "int" else self.module.dtype
        return (text if storage == wanted else f"{wanted}({text})"), _ATOM


def _breaks(block: Block) -> bool:
    """Whether a block leaves the loop around it."""
    return any(
        isinstance(stmt, Break) or (isinstance(stmt, If) and (_breaks(stmt.then) or _breaks(stmt.orelse)))
        for stmt in block
    )


def _cut(line: str) -> str:
    return line if len(line) <= _PAGE else line[: _PAGE - 1] + "…"


def _quote(where: Location) -> str:
    """A line of the user's source as a comment."""
    text = linecache.getline(where.filename, where.line).strip()
    return f"{os.path.basename(where.filename)}:{where.line}   {text}" if text else ""
