"""`Variable`: an array that remembers how it was computed, with the operators and methods of an array.

Comes in: a user's array, or that of an operation. Goes out: calls of the operations. Each operation enters itself into
a table by name, or becomes a method, so this file imports none of them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dualbcast.adapters import is_lazy
from dualbcast.errors import ArgumentError
from dualbcast.graph.arrays import is_array, is_complex, is_float, namespace, on_host
from dualbcast.graph.frozen import Frozen, freeze_value
from dualbcast.graph.recording import fresh_constant, is_read_by_user, read_by_python
from dualbcast.graph.tape import STATE, Node, next_serial

Axis: TypeAlias = int | tuple[int, ...] | None
Function = TypeVar("Function", bound=Callable[..., Any])

# Operations by name.
OPERATIONS: dict[str, Callable[..., Variable]] = {}


def registered(operation: Function) -> Function:
    """Enter an operation into the table; a decorator."""
    OPERATIONS[operation.__name__] = operation
    return operation


def _operators(*operation: str) -> tuple[Callable[[Variable, Any], Variable], Callable[[Variable, Any], Variable]]:
    """The methods for a binary operator, which refuse all but operands, so that Python asks the other object."""
    name, *ufunc = operation

    def left(self: Variable, other: Any, *modulus: Any) -> Any:
        return OPERATIONS[name](*ufunc, self, other) if _is_operand(other) and not modulus else NotImplemented

    def right(self: Variable, other: Any) -> Any:
        return OPERATIONS[name](*ufunc, other, self) if _is_operand(other) else NotImplemented

    return left, right


def _is_operand(value: Any) -> bool:
    return isinstance(value, _OPERANDS) or is_array(value)


def _of_array(name: str) -> Callable[..., Any]:
    """A method of the array as one of the Variable."""

    def of_array(self: Variable, axis: Axis = None, keepdims: bool = False) -> Any:
        read_by_python(f".{name}()")
        return getattr(self.array, name)(axis=axis, keepdims=keepdims)

    of_array.__name__ = name
    of_array.__doc__ = f"`numpy.{name}` of the value along axes, by default all: a plain array without a derivative."
    return of_array


class Variable:
    """An array with respect to which derivatives can be taken.

    Operations on Variables give Variables, which remember the operation, so that `grad` can go back through them. A
    Variable has NumPy's operators and methods, and NumPy's functions work on it. It does not change: `v += w` binds the
    name to another Variable, and `v[0] = 1` is an error.

    Parameters
    ----------
    value : array, number, or nested lists of numbers
        An array is a NumPy or CuPy array. The Variable keeps the value that the array has now: NumPy arrays of up to
        8 KiB and all CuPy arrays are copied. Larger NumPy arrays are read-only while the Variable, or a result that was
        computed from it, may need them.
    tracked : bool
        Whether derivatives may be asked for. Integer and bool arrays never carry any.

    Attributes
    ----------
    value : array
        A read-only array, a copy of a CuPy array, or a Dask array.
    shape : tuple of int
        The lengths of the value's axes.
    dtype : numpy.dtype
        The value's dtype.
    ndim : int
        The number of its axes.
    size : int
        The number of its elements.
    namespace : module
        The array library of the value: NumPy, or CuPy as array-api-compat wraps it.
    tracked : bool
        Whether it carries a derivative.
    node : object or None
        The operation that made it; None for a Variable that the user made.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> v = graph.Variable([1.0, 2.0, 3.0])
    >>> loss = np.sum(v * v + 1)
    >>> loss
    Variable(17.)
    >>> graph.grad(loss, v)
    array([2., 4., 6.])
    """

    __slots__ = ("__weakref__", "_value", "frozen", "index", "node", "serial", "source", "tracked")

    # If the user has the same memory: the need that it stays as it is.
    frozen: Frozen | None
    node: Node | None
    # Its position among the outputs of the node.
    index: int
    # The `lazy.Output` that it stands for while it has no value, and afterwards if it carries derivatives.
    source: Any

    def __new__(cls, value: Any, tracked: bool = True) -> Variable:  # noqa: ARG004
        is_real = type(value) is Variable or (type(value) is np.ndarray and value.dtype.kind != "c")  # the usual case
        if not is_real and is_complex(np.asarray(value) if isinstance(value, list | tuple) else value):
            return object.__new__(OPERATIONS["ComplexVariable"])  # type: ignore[arg-type]
        return object.__new__(cls)

    def __init__(self, value: Any, tracked: bool = True) -> None:
        if isinstance(value, Variable):
            array, self.frozen = value.array, value.frozen
        else:
            array, self.frozen = freeze_value(value, STATE.observer is not None)
            fresh_constant(array)
        self._value, self.node, self.index, self.source = array, None, 0, None
        self.serial = next_serial()
        self.tracked = tracked and is_float(array.dtype)

    @classmethod
    def _of(cls, array: Any, tracked: bool, node: Node | None = None, source: Any = None) -> Variable:
        """A Variable around an array that only the graph has; or one that has not been computed yet."""
        new = object.__new__(cls)
        new._value, new.tracked, new.node, new.index, new.source = array, tracked, node, 0, source
        new.frozen = None
        new.serial = next_serial() if node is None else node.serial
        return new

    @property
    def value(self) -> Any:
        read_by_python(".value")
        array = self.array
        if self.frozen is not None:
            self.frozen.check()
        if not isinstance(array, np.ndarray):
            return array if is_lazy(array) else array.copy()  # CuPy has no arrays that are read-only
        array.setflags(write=False)
        if isinstance(array.base, np.ndarray):
            array.base.setflags(write=False)
        return array

    @property
    def array(self) -> Any:
        """The array itself, for the graph's own use."""
        if STATE.recorder is not None and is_read_by_user():
            read_by_python(".array")
        if self._value is None:
            OPERATIONS["compute"](self.source.expression)
        return self._value

    @property
    def __form__(self) -> np.dtype[Any]:
        """The key under which a BroadcastFunction looks for the specialisation of a call; see `runtime.arguments`."""
        return self.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.source if self._value is None else self._value).shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        return (self.source if self._value is None else self._value).dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def namespace(self) -> Any:
        return self.source.namespace if self._value is None else namespace(self._value)

    @property
    def real(self) -> Variable:
        """The real part, which of real numbers is the Variable itself."""
        return self

    @property
    def imag(self) -> Variable:
        """The imaginary part, which of real numbers is zeros without a derivative."""
        return OPERATIONS["zeros"](self)

    def conj(self) -> Variable:
        """The complex conjugate, which of real numbers is the Variable itself. `conjugate` does the same."""
        return self

    conjugate = conj

    @property
    def T(self) -> Variable:  # noqa: N802
        """The Variable with its axes in reverse order."""
        return OPERATIONS["transpose"](self)

    @property
    def mT(self) -> Variable:  # noqa: N802
        """The Variable with its last two axes exchanged, which transposes its matrices."""
        return OPERATIONS["matrix_transpose"](self)

    def __repr__(self) -> str:
        read_by_python("repr()")
        if is_lazy(self.array):
            return f"Variable({self.array!r})"
        text = np.array2string(np.asarray(on_host(self.array)), separator=", ", prefix="Variable(")
        dtype = "" if self.dtype in (np.float64, np.complex128, np.int64, np.bool_) else f", dtype={self.dtype.name}"
        return f"Variable({text}{dtype})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def item(self) -> Any:
        """The number in a Variable of one element, without its derivative."""
        if self.size != 1:
            raise ArgumentError(f"a Variable of shape {self.shape} is not one number")
        read_by_python("a conversion to a number")
        return self.array.item()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ArgumentError(
                f"the truth of a Variable of shape {self.shape} is not one answer; write np.where for a choice in each "
                "element, a BroadcastFunction with an `if`, or ask its .value: v.value.any()"
            )
        read_by_python("a condition")
        return bool(self.array)

    def __float__(self) -> float:
        if self.tracked:
            raise ArgumentError(
                "float() of a Variable would lose its derivative; math.exp(v), array[0] = v and array.fill(v) ask for "
                "it, too. Write np.exp(v) for a function of it, np.stack([…]) or np.where(…) for an array with it; "
                "v.item() for the number alone"
            )
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentError("a Variable of no dimensions has no len()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Variable]:
        if not self.shape:
            raise ArgumentError("a Variable of no dimensions cannot be iterated over")
        return iter(OPERATIONS["unstack"](self))

    __hash__ = object.__hash__

    def __getitem__(self, key: Any) -> Variable:
        return OPERATIONS["getitem"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ArgumentError(
            "a Variable does not change. Write v = np.where(mask, value, v) to replace some of its elements, or put it "
            "together from parts with np.concatenate or np.stack"
        )

    def __copy__(self) -> Variable:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        read_by_python("a copy")
        return self if self.tracked and self.node else Variable._of(self.array.copy(), self.tracked)

    def __reduce__(self) -> tuple[Any, ...]:
        read_by_python("a pickle")
        if self.node is not None:
            raise ArgumentError("a Variable that was computed cannot be pickled; pickle its .value")
        return Variable, (self.array, self.tracked)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.tracked:
            raise ArgumentError(
                "as an array a Variable would lose its derivative. Of several Variables, np.array([v, w]) is "
                "np.stack([v, w]), or np.array([[v, 0], [0, w]], like=v) for nested lists. Write v.value for the array "
                "alone, or graph.stop_gradient(v) for a constant; to compute with it, use NumPy's functions or those "
                "of dualbcast.graph"
            )
        return np.array(on_host(self.value), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return OPERATIONS["array_ufunc"](ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return OPERATIONS["array_function"](function, args, options)

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *inputs: Any, **options: Any) -> Any:
        # The protocol of CuPy for `array * v`, where its array stands before the Variable.
        return OPERATIONS["cupy_ufunc"](kernel.name, inputs, options)

    @staticmethod
    def __join_complex__(real: Any, imag: Any) -> Variable:
        """The Variable of complex numbers with these parts."""
        return OPERATIONS["join"](real, imag)

    @classmethod
    def __broadcast_function__(cls, function: Any, specialisation: Any, values: tuple[Any, ...], out: Any) -> Any:
        """Make the call of a BroadcastFunction whose parameters have these values, some of which are Variables."""
        if out is not None:
            raise ArgumentError(f"{function!r}: out= does not go with Variables, which do not change")
        if specialisation.program.speaks:  # of values as they are now, so the call cannot be replayed with others
            specialisation.speak(tuple([each.value if isinstance(each, Variable) else each for each in values]))
        return OPERATIONS["call_bound"](specialisation, values, function.__name__)

    __add__, __radd__ = _operators("apply", "add")
    __sub__, __rsub__ = _operators("apply", "subtract")
    __mul__, __rmul__ = _operators("apply", "multiply")
    __truediv__, __rtruediv__ = _operators("apply", "divide")
    __floordiv__, __rfloordiv__ = _operators("apply", "floor_divide")
    __mod__, __rmod__ = _operators("apply", "remainder")
    __divmod__, __rdivmod__ = _operators("divmod")
    __pow__, __rpow__ = _operators("apply", "power")
    __matmul__, __rmatmul__ = _operators("matmul")
    __and__, __rand__ = _operators("apply", "bitwise_and")
    __or__, __ror__ = _operators("apply", "bitwise_or")
    __xor__, __rxor__ = _operators("apply", "bitwise_xor")
    __lt__, __gt__ = _operators("apply", "less")[0], _operators("apply", "greater")[0]
    __le__, __ge__ = _operators("apply", "less_equal")[0], _operators("apply", "greater_equal")[0]
    __eq__, __ne__ = _operators("apply", "equal")[0], _operators("apply", "not_equal")[0]  # type: ignore[assignment]

    def __neg__(self) -> Variable:
        return OPERATIONS["apply"]("negative", self)

    def __pos__(self) -> Variable:
        return self

    def __abs__(self) -> Variable:
        return OPERATIONS["apply"]("absolute", self)

    def __invert__(self) -> Variable:
        return OPERATIONS["apply"]("invert", self)

    # These are the operations themselves, which `method` puts here: `v.sum(axis=0)` is `graph.sum(v, axis=0)`.
    sum: Callable[..., Variable]
    mean: Callable[..., Variable]
    max: Callable[..., Variable]
    min: Callable[..., Variable]
    prod: Callable[..., Variable]
    var: Callable[..., Variable]
    std: Callable[..., Variable]
    cumsum: Callable[..., Variable]
    cumprod: Callable[..., Variable]
    swapaxes: Callable[..., Variable]
    squeeze: Callable[..., Variable]
    take: Callable[..., Variable]
    dot: Callable[..., Variable]
    clip: Callable[..., Variable]
    astype: Callable[..., Variable]

    argmax, argmin, any, all = map(_of_array, ("argmax", "argmin", "any", "all"))

    def reshape(self, *shape: Any, order: str = "C") -> Variable:
        """The same elements in another shape, given as one tuple or as lengths; one length may be -1."""
        return OPERATIONS["reshape"](self, shape[0] if len(shape) == 1 else shape, order)

    def transpose(self, *axes: Any) -> Variable:
        """The Variable with its axes in another order, given as one tuple or as numbers; by default in reverse."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int | np.integer) else axes
        return OPERATIONS["transpose"](self, order or None)

    def ravel(self, order: str = "C") -> Variable:
        """All elements along one axis, in the order of rows or, by "F", of columns. `flatten` does the same."""
        return OPERATIONS["reshape"](self, (-1,), order)

    flatten = ravel


def method(operation: Function) -> Function:
    """Make an operation a method of Variable, too; a decorator."""
    setattr(Variable, operation.__name__, operation)
    return operation


# The operands of operators; arrays of CuPy are operands, too.
_OPERANDS = (Variable, np.ndarray, np.generic, int, float, complex)
