"""A string of Python source comes in; the function that it defines goes out. Tracebacks and errors find its lines."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import io
import linecache
import textwrap
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dualbcast.errors import ArgumentError, CompileError, Location, a_or_an

# Where the globals of a text's functions have its `SourceText`, and the function of a text that is one lambda.
_ORIGIN, _LAMBDA = "__source_text__", "<lambda>"


class SourceText:
    """A text and the names that it was given, which define its functions anew, also where a pickle arrives."""

    def __init__(self, text: Any, namespace: Any = None) -> None:
        if not isinstance(text, str):
            raise ArgumentError(f"the source is {a_or_an(type(text).__name__)}; give the text of a function as a str")
        if namespace is not None and not isinstance(namespace, Mapping):
            kind = a_or_an(type(namespace).__name__)
            raise ArgumentError(f"namespace is {kind}; give a mapping of names to objects, such as globals()")
        # Ends of lines become those of Python, as in a file that is read. Other characters end no line of Python.
        self.text = textwrap.dedent(io.StringIO(text, newline=None).read())
        self.filename = register_text(self.text, "dualbcast source")
        self.code = self._compiled()
        self.statements = ast.parse(self.text).body
        own = {stmt.name for stmt in self.statements if isinstance(stmt, ast.FunctionDef | ast.ClassDef)}
        used = names_of(self.code) - own
        self.namespace = {name: value for name, value in (namespace or {}).items() if name in used}

    def __reduce__(self) -> tuple[Any, ...]:
        # Modules cannot be pickled, and come by their names.
        modules = {name: value.__name__ for name, value in self.namespace.items() if isinstance(value, ModuleType)}
        others = {name: value for name, value in self.namespace.items() if name not in modules}
        return _again, (self.text, others, modules)

    def function(self, name: str | None = None) -> Any:
        """Run the text, and take the function of that name, or the last one."""
        names = {"__builtins__": builtins, **self.namespace, "__name__": self.filename, _ORIGIN: self}
        match self.statements:
            case [ast.Expr(value=ast.Lambda() as node)]:
                names[_LAMBDA] = eval(compile(ast.Expression(node), self.filename, "eval", dont_inherit=True), names)
            case _:
                exec(self.code, names)
        lines = {key: _first_line(value, self.filename) for key, value in names.items()}
        defined = sorted([key for key, line in lines.items() if line], key=lines.__getitem__)
        if name is None and defined:
            return names[defined[-1]]
        if name in names and names[name] is not self.namespace.get(name) and callable(names[name]):
            return names[name]
        listed = f"; it has {', '.join(defined)}" if defined else ", such as `def f(x): return x * x`"
        raise ArgumentError(f"the source defines no function{'' if name is None else f' {name!r}'}{listed}")

    def _compiled(self) -> CodeType:
        try:
            code: CodeType = compile(self.text, self.filename, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise CompileError(f"this is no Python: {error.msg}", self._place_of(error)) from None
        except ValueError as error:  # a null character, or half of a surrogate pair
            raise ArgumentError(f"the source is no text of Python: {error}") from None
        return code

    def _place_of(self, error: SyntaxError) -> Location:
        """Where a syntax error is; its columns count characters from 1, and an end that is unknown is None or 0."""
        line = error.lineno or 1
        text = linecache.getline(self.filename, line)
        start = (error.offset or 1) - 1
        stop = (error.end_offset or 0) - 1 if (error.end_lineno or line) == line else len(text.rstrip("\n"))
        column, end_column = [len(text[:at].encode()) for at in (start, max(start + 1, stop))]
        return Location(self.filename, line, column, line, end_column)


def register_text(text: str, what: str) -> str:
    """Show a text where Python shows lines of files; the name of its file.

    The name follows from the text, so that kernels of an equal text are found again in the disk cache.
    """
    import hashlib  # which takes milliseconds

    name = f"<{what} {hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:12]}>"
    linecache.cache[name] = (len(text), None, io.StringIO(text).readlines(), name)
    return name


def origin_of(function: Any) -> tuple[SourceText, str] | None:
    """The text that defines a function, and its name there; None for a function of another kind."""
    names = function.__globals__ if isinstance(function, FunctionType) else {}
    origin = names.get(_ORIGIN)
    if isinstance(origin, SourceText):
        for name, value in names.items():
            if value is function or getattr(value, "__wrapped__", None) is function:
                return origin, name
    return None


def _again(text: str, others: dict[str, Any], modules: dict[str, str]) -> SourceText:
    return SourceText(text, {**others, **{name: importlib.import_module(of) for name, of in modules.items()}})


def names_of(code: CodeType) -> frozenset[str]:
    """The names that a code and the functions in it look up."""
    inner = [names_of(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(code.co_names).union(*inner)


def _first_line(value: Any, filename: str) -> int:
    """The line where a function of a file begins; 0 for anything else."""
    function = inspect.unwrap(value) if callable(value) else None
    code = function.__code__ if isinstance(function, FunctionType) else None
    return code.co_firstlineno if code is not None and code.co_filename == filename else 0
