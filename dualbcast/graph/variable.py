"""`Variable`: an array that remembers how it was computed, with the operators and methods of an array."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.errors import ArgumentError, DTypeError, a_or_an
from dualbcast.foreign_objects import called, instead
from dualbcast.graph.foreign import has_own_arithmetic, refused_argument
from dualbcast.graph.frozen import Frozen, freeze

if TYPE_CHECKING:
    from dualbcast.graph.lazy import Output
    from dualbcast.graph.tape import Node

__all__ = ["Variable"]

Axis = int | tuple[int, ...] | None


class Variable:
    """An array that derivatives can be taken in.

    What is computed from Variables is a Variable again, and remembers the operation; so `grad` can go back through
    them. It has NumPy's operators and methods, and NumPy's functions work on it. It does not change: `v += w` gives the
    name another Variable, and `v[0] = 1` is an error.

    Parameters
    ----------
    value : array, or what becomes one
        A NumPy or CuPy array, a number, or nested lists of numbers. Of an array the Variable has the value that it has
        now: up to 8 KiB are copied, and larger ones are read-only while the Variable, or what was computed from it,
        may need them. CuPy's are copied.
    tracked : bool
        Whether derivatives may be asked for. Integer and bool arrays never carry any.

    Attributes
    ----------
    value : array
        It is read-only; of a CuPy array a copy.
    shape, dtype, ndim, size
        Of the value.
    namespace : module
        The array library that it is of: NumPy, or CuPy as array-api-compat wraps it.
    tracked : bool
        Whether it carries a derivative.
    node : Node or None
        The operation that made it; None for one that the user made.
    index : int
        Its position among the outputs of the node.

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

    _value: Any
    # Where the memory is the user's: that it stays as it is.
    frozen: Frozen | None
    tracked: bool
    node: Node | None
    index: int
    serial: int
    # The output of an expression that this stands for, while it has no value, and after that if it carries derivatives.
    source: Output | None

    def __init__(self, value: Any, tracked: bool = True) -> None:
        if isinstance(value, Variable):
            array, self.frozen = value.array, value.frozen
        else:
            array, self.frozen = self._from_outside(value)
        self._value, self.node, self.index, self.source = array, None, 0, None
        self.serial = next(nodes._serials)
        self.tracked = tracked and nodes.is_float(array.dtype)

    @staticmethod
    def _from_outside(value: Any) -> tuple[Any, Frozen | None]:
        """The array of what a user gives."""
        array = value
        if type(value) is not np.ndarray:
            if has_own_arithmetic(value):
                raise refused_argument(value, "the value of a Variable")
            array = nodes.as_array(value)
            if isinstance(array, np.ndarray) and type(array) not in (np.ndarray, np.memmap):
                kind = a_or_an(type(array).__name__)
                raise ArgumentError(
                    f"a Variable cannot hold {kind}: what that adds to the data (a mask, a unit) would be lost. If "
                    "that is right, pass np.asarray(…)"
                )
            if array.dtype.kind == "O" and array is not value:
                hint = instead(value, "it")
                raise ArgumentError(f"a Variable holds an array of real numbers, not {called(value)}. {hint}".rstrip())
        if array.dtype.kind not in "fbiu" and array.dtype.name != "bfloat16":
            raise DTypeError(f"a Variable holds real numbers, not {array.dtype}; convert with .astype('float64')")
        return (array, None) if type(value) in _NEVER_SHARED else freeze(array, nodes.STATE.observer is not None)

    @classmethod
    def _of(cls, array: Any, tracked: bool, node: Node | None = None, index: int = 0) -> Variable:
        """A Variable around an array of the graph's own."""
        made = cls.__new__(cls)
        made._value, made.tracked, made.node, made.index, made.source = array, tracked, node, index, None
        made.frozen = None
        made.serial = next(nodes._serials) if node is None else node.serial
        return made

    @classmethod
    def _pending(cls, source: Output, tracked: bool) -> Variable:
        """A Variable for what has not been computed yet."""
        made = cls._of(None, tracked)
        made.source = source
        return made

    @property
    def value(self) -> Any:
        array = self.array
        if self.frozen is not None:
            self.frozen.check()
        if not isinstance(array, np.ndarray):
            return array.copy()  # CuPy has no arrays that are read-only
        array.setflags(write=False)
        if isinstance(array.base, np.ndarray):
            array.base.setflags(write=False)
        return array

    @property
    def array(self) -> Any:
        """The array itself, for the graph's own use."""
        if self._value is None:
            assert self.source is not None
            regions.compute(self.source.expression)
        return self._value

    @property
    def __form__(self) -> np.dtype[Any]:
        """What an element function must know of it; see `call_key.forms_of`."""
        return self.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        if self._value is None and self.source is not None:
            return self.source.shape
        shape: tuple[int, ...] = self._value.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        if self._value is None and self.source is not None:
            return self.source.dtype
        dtype: np.dtype[Any] = self._value.dtype
        return dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size

    @property
    def namespace(self) -> Any:
        if self._value is None and self.source is not None:
            return self.source.namespace
        return nodes.namespace(self._value)

    @property
    def T(self) -> Variable:  # noqa: N802
        return shapes.permute_dims(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Variable:  # noqa: N802
        return shapes.matrix_transpose(self)

    def __repr__(self) -> str:
        text = np.array2string(np.asarray(_on_host(self.array)), separator=", ", prefix="Variable(")
        dtype = "" if self.dtype in (np.float64, np.int64, np.bool_) else f", dtype={self.dtype.name}"
        return f"Variable({text}{dtype})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    # --- as a Python object -------------------------------------------------------------------------------------------

    def item(self) -> Any:
        """The number in a Variable of one element, without its derivative."""
        if self.size != 1:
            raise ArgumentError(f"a Variable of shape {self.shape} is not one number")
        return self.array.item()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ArgumentError(
                f"the truth of a Variable of shape {self.shape} is not one answer; write np.where for a choice in each "
                "element, a BroadcastFunction with an `if`, or ask its .value: v.value.any()"
            )
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
        return iter(shapes.unstack(self))

    __hash__ = object.__hash__

    def __getitem__(self, key: Any) -> Variable:
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ArgumentError(
            "a Variable does not change. Write v = np.where(mask, value, v) to replace some of its elements, or put it "
            "together from parts with np.concatenate or np.stack"
        )

    def __copy__(self) -> Variable:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        return self if self.tracked and self.node else Variable._of(self.array.copy(), self.tracked)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.node is not None:
            raise ArgumentError("a Variable that was computed cannot be pickled; pickle its .value")
        return Variable, (self.array, self.tracked)

    # --- NumPy's protocols --------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.tracked:
            raise ArgumentError(
                "as an array a Variable would lose its derivative. Write v.value for the array alone, or "
                "graph.stop_gradient(v) for a constant; to compute with it, use NumPy's functions or those of "
                "dualbcast.graph"
            )
        return np.array(_on_host(self.value), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return protocols.array_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return protocols.array_function(function, args, options)

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *inputs: Any, **options: Any) -> Any:
        # CuPy's own protocol, for `array * v` with its array before the Variable.
        return protocols.cupy_ufunc(kernel.name, inputs, options)

    @classmethod
    def __broadcast_function__(cls, function: Any, specialisation: Any, values: tuple[Any, ...], out: Any) -> Any:
        """A BroadcastFunction is called on Variables, which are among the values that its parameters have."""
        if out is not None:
            raise ArgumentError(f"{function!r}: out= does not go with Variables, which do not change")
        return elementwise.record(specialisation, values, function.__name__)

    # --- operators ----------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Variable:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Variable:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Variable:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Variable:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> Variable:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Variable:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Variable:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Variable:
        return _binary("divide", other, self)

    def __floordiv__(self, other: Any) -> Variable:
        return _binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Variable:
        return _binary("floor_divide", other, self)

    def __mod__(self, other: Any) -> Variable:
        return _binary("remainder", self, other)

    def __rmod__(self, other: Any) -> Variable:
        return _binary("remainder", other, self)

    def __pow__(self, other: Any) -> Variable:
        return _binary("power", self, other)

    def __rpow__(self, other: Any) -> Variable:
        return _binary("power", other, self)

    def __matmul__(self, other: Any) -> Variable:
        return linalg.matmul(self, other) if _is_operand(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Variable:
        return linalg.matmul(other, self) if _is_operand(other) else NotImplemented

    def __neg__(self) -> Variable:
        return _unary("negative", self)

    def __pos__(self) -> Variable:
        return self

    def __abs__(self) -> Variable:
        return _unary("absolute", self)

    def __invert__(self) -> Variable:
        return _unary("invert", self)

    def __and__(self, other: Any) -> Variable:
        return _binary("bitwise_and", self, other)

    def __or__(self, other: Any) -> Variable:
        return _binary("bitwise_or", self, other)

    def __xor__(self, other: Any) -> Variable:
        return _binary("bitwise_xor", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __eq__(self, other: object) -> Variable:  # type: ignore[override]
        return _binary("equal", self, other)

    def __ne__(self, other: object) -> Variable:  # type: ignore[override]
        return _binary("not_equal", self, other)

    def __lt__(self, other: Any) -> Variable:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Variable:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Variable:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Variable:
        return _binary("greater_equal", self, other)

    # --- NumPy's methods ----------------------------------------------------------------------------------------------

    def sum(self, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Variable:
        return reductions.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Variable:
        return reductions.mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Variable:
        return reductions.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Variable:
        return reductions.min(self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False) -> Variable:
        return reductions.prod(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Variable:
        return reductions.var(self, axis=axis, correction=ddof, keepdims=keepdims)

    def std(self, axis: Axis = None, ddof: float = 0, keepdims: bool = False) -> Variable:
        return reductions.std(self, axis=axis, correction=ddof, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> Variable:
        return reductions.cumsum(self, axis=axis)

    def argmax(self, axis: int | None = None) -> Any:
        return self.array.argmax(axis=axis)

    def argmin(self, axis: int | None = None) -> Any:
        return self.array.argmin(axis=axis)

    def any(self, axis: Axis = None, keepdims: bool = False) -> Any:
        return self.array.any(axis=axis, keepdims=keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False) -> Any:
        return self.array.all(axis=axis, keepdims=keepdims)

    def reshape(self, *shape: Any) -> Variable:
        return shapes.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Variable:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return shapes.permute_dims(self, order or tuple(range(self.ndim))[::-1])

    def swapaxes(self, axis1: int, axis2: int) -> Variable:
        return shapes.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Axis = None) -> Variable:
        return shapes.squeeze(self, axis)

    def ravel(self) -> Variable:
        return shapes.reshape(self, (-1,))

    flatten = ravel

    def take(self, indices: Any, axis: int | None = None) -> Variable:
        return indexing.take(self, indices, axis=axis)

    def dot(self, other: Any) -> Variable:
        return linalg.dot(self, other)

    def clip(self, min: Any = None, max: Any = None) -> Variable:
        return elementwise.clip(self, min, max)

    def astype(self, dtype: Any) -> Variable:
        return elementwise.astype(self, dtype)


# Arrays made of these are nobody else's.
_NEVER_SHARED = {bool, int, float, list, tuple, np.float64, np.float32}
# What operators take, beside the arrays of other libraries.
_OPERANDS = (Variable, np.ndarray, np.generic, int, float)


def _is_operand(value: object) -> bool:
    """Whether an operator takes it; to all else Python gives the chance to answer itself."""
    return isinstance(value, _OPERANDS) or nodes.is_array(value)


def _binary(name: str, left: Any, right: Any) -> Variable:
    refused: Any = NotImplemented
    made: Variable = elementwise.apply(name, left, right) if _is_operand(left) and _is_operand(right) else refused
    return made


def _unary(name: str, value: Variable) -> Variable:
    made: Variable = elementwise.apply(name, value)
    return made


def _on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


# At the end, because all of these work on Variables and import this module.
import dualbcast.graph.elementwise as elementwise  # noqa: E402
import dualbcast.graph.fused_region as regions  # noqa: E402
import dualbcast.graph.indexing as indexing  # noqa: E402
import dualbcast.graph.linalg as linalg  # noqa: E402
import dualbcast.graph.protocols as protocols  # noqa: E402
import dualbcast.graph.reductions as reductions  # noqa: E402
import dualbcast.graph.shapes as shapes  # noqa: E402
import dualbcast.graph.tape as nodes  # noqa: E402
