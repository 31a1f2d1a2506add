"""Functions of SymPy's expressions: an expression comes in, and a BroadcastFunction with exact derivatives goes out."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from dualbcast import special
from dualbcast.api.from_source import from_source
from dualbcast.api.function import BroadcastFunction, DecoratorOptions
from dualbcast.errors import ArgumentError, entry_point
from dualbcast.interop.sympy_printer import RESERVED, check_parts, parts_of, sympy_module, text_of

__all__ = ["from_sympy"]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


@entry_point
def from_sympy(
    expr: Any,
    args: Any,
    *,
    name: str = "expression",
    functions: Mapping[str, Callable[..., Any]] | None = None,
    **options: Unpack[DecoratorOptions],
) -> BroadcastFunction:
    """A BroadcastFunction of an expression of SymPy's.

    Parameters
    ----------
    expr : sympy.Expr, or tuple or list of them, or sympy.Matrix
        The result. For a tuple the function returns a tuple. For a matrix it returns a tuple with one tuple for each
        row, and for a matrix of one column a tuple of its elements.
    args : sympy.Symbol or sequence of them
        The arguments, in this order. They have the names of the symbols; an underscore follows a name that Python or
        the text of the function needs (`lambda_`), and replaces what cannot stand in a name.
    name : str, optional
        The name of the function.
    functions : mapping of str to function, optional
        Scalar functions for functions in the expression that are not known here, by name.
    **options
        Options of `differentiable_broadcast`.

    Returns
    -------
    BroadcastFunction
        It can be pickled, and `inspect.getsource(f.__wrapped__)` shows its text. A `Piecewise` is an `if` with real
        branches, and NaN where no condition holds. Common subexpressions are computed once. Numbers are real: a root of
        a negative number is NaN.

    Raises
    ------
    ArgumentError
        The expression has a symbol that is not in `args`, or a part that has no counterpart here.
    MissingDependencyError
        SymPy is not installed.

    Examples
    --------
    >>> import inspect
    >>> import numpy as np
    >>> import sympy
    >>> from dualbcast.interop.sympy import from_sympy
    >>> x, y = sympy.symbols("x y")
    >>> f = from_sympy(sympy.Piecewise((sympy.sqrt(x) * y, x > 0), (0, True)), (x, y), name="f")
    >>> value, J = f.value_and_jacobian(np.array([-1.0, 0.0, 4.0]), 3.0)
    >>> value, J["x"]
    (array([0., 0., 6.]), array([0.  , 0.  , 0.75]))
    >>> print(inspect.getsource(f.__wrapped__), end="")
    def f(x, y):
        if (x > 0):
            t1 = math.sqrt(x)*y
        else:
            t1 = 0.0
        return t1
    """
    if not (isinstance(name, str) and name.isidentifier() and name not in RESERVED):
        raise ArgumentError(f"name={name!r} cannot be the name of a function")
    functions = dict(functions or {})
    tree = _tree(expr)
    expressions = list(_leaves(tree))
    symbols = _symbols(args)
    expressions = _with_real_symbols(expressions, symbols)
    check_parts(expressions, functions)
    _check_all_given(expressions, symbols)
    names = _names_of(symbols, {*RESERVED, *functions, name})
    writer = _Writer(names, functions)
    results = iter(writer.results(expressions, 1))
    lines = [f"def {name}({', '.join(names[symbol] for symbol in symbols)}):", *writer.lines]
    lines.append(f"    return {_packed(tree, results)}")
    namespace = {"math": math, "np": np, "special": special, **functions}
    return from_source("\n".join(lines), name, namespace=namespace, **options)


def _tree(expr: Any) -> Any:
    """An expression, or a list of such trees."""
    sympy = sympy_module()
    if isinstance(expr, sympy.MatrixBase):
        rows = [[_tree(entry) for entry in row] for row in expr.tolist()]
        return [entry for (entry,) in rows] if expr.shape[1] == 1 else rows
    if isinstance(expr, tuple | list | sympy.Tuple):
        return [_tree(part) for part in expr]
    try:
        return sympy.sympify(expr, strict=True)
    except sympy.SympifyError:
        raise ArgumentError(f"from_sympy takes expressions of SymPy's, not {expr!r}") from None


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, list):
        for part in tree:
            yield from _leaves(part)
    else:
        yield tree


def _packed(tree: Any, texts: Iterator[str]) -> str:
    """The tree as the text of nested tuples."""
    if not isinstance(tree, list):
        return next(texts)
    parts = [_packed(part, texts) for part in tree]
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _symbols(args: Any) -> tuple[Any, ...]:
    """The arguments as symbols; an error where they are none."""
    sympy = sympy_module()
    symbols = tuple(args) if isinstance(args, tuple | list | sympy.Tuple) else (args,)
    for symbol in symbols:
        if not isinstance(symbol, sympy.Symbol):
            raise ArgumentError(f"args= must have symbols of SymPy's: {symbol!r} is none")
    if len(set(symbols)) < len(symbols):
        raise ArgumentError(f"args= names a symbol twice: {', '.join(map(str, symbols))}")
    return symbols


def _check_all_given(expressions: Sequence[Any], symbols: tuple[Any, ...]) -> None:
    """Refuse symbols in expressions that are not among the arguments."""
    kind = sympy_module().Symbol
    missing = sorted({part for part in parts_of(expressions) if isinstance(part, kind)} - set(symbols), key=str)
    if missing:
        same = [symbol for symbol in missing if str(symbol) in map(str, symbols)]
        hint = f" ({same[0]} of args= has other assumptions, and is another symbol)" if same else ""
        raise ArgumentError(f"the expression has symbols that are not in args=: {', '.join(map(str, missing))}{hint}")


def _with_real_symbols(expressions: list[Any], symbols: tuple[Any, ...]) -> list[Any]:
    """The expressions, without the real and imaginary parts that SymPy takes of symbols that may be complex."""
    sympy = sympy_module()
    if not any(isinstance(part, sympy.re | sympy.im | sympy.conjugate | sympy.arg) for part in parts_of(expressions)):
        return expressions
    real = {symbol: sympy.Dummy(symbol.name, real=True) for symbol in symbols if symbol.is_real is None}
    back = {dummy: symbol for symbol, dummy in real.items()}
    return [expression.xreplace(real).doit().xreplace(back) for expression in expressions]


def _names_of(symbols: tuple[Any, ...], taken: set[str]) -> dict[Any, str]:
    """A name for each argument that Python takes and that nothing else has."""
    names: dict[Any, str] = {}
    for symbol in symbols:
        name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", symbol.name))
        if not name.isidentifier():
            name = f"_{name}"
        while name in taken:
            name += "_"
        names[symbol] = name
        taken.add(name)
    return names


class _Writer:
    """Writes statements that compute expressions; `names` has the name of each symbol, new ones included."""

    def __init__(self, names: dict[Any, str], functions: Mapping[str, Any]) -> None:
        self.lines: list[str] = []
        self._sympy, self._names, self._functions = sympy_module(), names, functions
        taken = {*names.values(), *RESERVED, *functions}
        self._fresh = (name for name in map("t{}".format, itertools.count(1)) if name not in taken)

    def results(self, expressions: Sequence[Any], depth: int) -> list[str]:
        """The texts of expressions, after statements that compute what they share, and their Piecewise parts."""
        replaced = self._without_piecewise(expressions, depth)
        shared, remaining = self._sympy.cse(replaced, symbols=iter(self._symbol, None))
        for symbol, value in shared:
            self._write(depth, f"{self._names[symbol]} = {self._text(value)}")
        return [self._text(expression) for expression in remaining]

    def _without_piecewise(self, expressions: Sequence[Any], depth: int) -> list[Any]:
        """The expressions with a symbol for each Piecewise that is in no other, after the statements that compute it.

        So nothing is taken out of a branch: it is computed only where the branch is taken.
        """
        kind = self._sympy.Piecewise
        found = [part for part in parts_of(expressions, kind) if isinstance(part, kind)]
        # Its symbol takes the place of each.
        replaced = {part: self._branches(part, depth) for part in found}

        def without(part: Any) -> Any:
            if part not in replaced:
                arguments = tuple(map(without, part.args))
                replaced[part] = part if arguments == part.args else part.func(*arguments)
            return replaced[part]

        return [without(expression) for expression in expressions] if found else list(expressions)

    def _branches(self, piecewise: Any, depth: int) -> Any:
        """The symbol of a Piecewise, after the statements that compute it."""
        symbol, word = self._symbol(), "if"
        for value, condition in piecewise.args:
            if condition == True:  # noqa: E712 (SymPy's true)
                inner = depth
                if word == "elif":
                    self._write(depth, "else:")
                    inner += 1
                self._assign(symbol, value, inner)
                return symbol
            if word == "elif" and any(isinstance(part, self._sympy.Piecewise) for part in parts_of([condition])):
                # The statements of the condition are in the branch where it is tested.
                self._write(depth, "else:")
                depth, word = depth + 1, "if"
            (tested,) = self._without_piecewise([condition], depth)
            self._write(depth, f"{word} {self._text(tested)}:")
            self._assign(symbol, value, depth + 1)
            word = "elif"
        self._write(depth, "else:")
        self._write(depth + 1, f"{self._names[symbol]} = math.nan")
        return symbol

    def _assign(self, symbol: Any, value: Any, depth: int) -> None:
        (text,) = self.results([value], depth)
        self._write(depth, f"{self._names[symbol]} = {text}")

    def _symbol(self) -> Any:
        name = next(self._fresh)
        symbol = self._sympy.Dummy(name)
        self._names[symbol] = name
        return symbol

    def _text(self, expression: Any) -> str:
        return text_of(expression, self._names, self._functions)

    def _write(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)
