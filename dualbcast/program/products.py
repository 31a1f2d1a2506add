"""Products of an element function: from its IR to that of a kernel for its values, Jacobian, Hessian, or several, and
with dtypes to the kernels.

In the first call of a process differentiation takes longer than all else, with the imports that it needs. A product
that is on disk needs neither.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dualbcast import disk_cache
from dualbcast.errors import ArgumentError, Location, nested_too_deeply
from dualbcast.ir.nodes import BOUNDED, ZERO, Const, Function, Kind, Output, Structure, numbers
from dualbcast.ir.traversal import most_live, operations_of, remove_dead, work
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.program.checks import PLACE_DTYPE, Checks, checks_of
from dualbcast.runtime.arguments import DType, Signature

if TYPE_CHECKING:
    from dualbcast.codegen.program import KernelProgram
    from dualbcast.codegen.text_places import Place
    from dualbcast.program.pipeline import Trace

# "parts" are the values too, but floats that are one number everywhere are not stored: they are blocks. Of "blocks" all
# partials of a vector or a matrix in others are stored, unless all are constant, and second ones in both orders.
_Own = Literal["jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian"]
_Jacobians = Literal["jacobian_blocks", "value_and_jacobian_blocks"]
_Hessians = Literal["hessian_blocks", "value_jacobian_and_hessian_blocks"]
Which = Literal["value", "parts"] | _Own | _Jacobians | _Hessians
Backend = Literal["auto", "python", "cpu", "cuda"]
# Whether a graph keeps the Jacobian of a recorded call for the backward pass.
Keeping = Literal["auto", "cache", "recompute"]
# What the results of calls are checked for: NaN, or infinities as well.
Check = Literal["nan", "finite"]
# The places of regions, and how they were eliminated.
Plans = tuple[tuple[Location, Any], ...]
# How many more values may wait where that takes fewer operations.
_SPARE_REGISTERS = 4
# An output; its partial in a parameter; its second partial in two.
_Place = tuple[int, ...]


class Block(NamedTuple):
    """Where an array of results comes from: a stored output, or one number for all elements."""

    stored: int | None = None
    constant: float = 0.0


@dataclass(frozen=True)
class Product:
    """A product: its IR, and the results that its kernels store."""

    # The kind of each stored output: values first, then the first partials that vary, then the second.
    kinds: tuple[Kind, ...]
    # How many values are stored, 0 for a Jacobian alone; and how many first partials.
    values: int
    jacobian: int
    # The structure that the scalar function returns.
    structure: Structure
    # Where the other results come from: the partial of an output by (output, parameter), a second partial by (output,
    # parameter, parameter) with the parameters in the order of `wrt`, a value among "parts" by (output,). A structural
    # zero is the constant 0.
    blocks: dict[_Place, Block]
    # Of "parts", which may be summed, the operations that an element takes, in units of an addition; else 0.
    work: float
    make: Callable[[], Function]
    make_forward: Callable[[], Function]
    # Where and in which order each region was eliminated.
    make_plans: Callable[[], Plans]

    @cached_property
    def function(self) -> Function:
        """The IR of its kernels, with one output for each stored result."""
        return self.make()

    @cached_property
    def forward(self) -> Function:
        """The same for targets with few registers, whose compilers fuse multiply-adds themselves."""
        return self.make_forward()


class Cores(NamedTuple):
    """Of what arrays a scalar function's parameters and outputs are elements: a number of an array for each of them."""

    parameters: tuple[int, ...]
    outputs: tuple[int, ...]

    def block(self, place: _Place) -> _Place:
        """The output and the arguments whose block has a partial."""
        return (self.outputs[place[0]], *[self.parameters[at] for at in place[1:]])


def make_product(function: Function, which: Which, wrt: Sequence[int], cores: Cores | None = None) -> Product:
    """The product of a scalar function, as it was lowered, with derivatives in the parameters `wrt`; "blocks" are those
    of `cores`."""
    # Imported here, since a product whose facts are on disk does not need them.
    from dualbcast.passes.cost_model import cost_of_element

    both, results, plans = _computed(function, which, wrt, fused=True)
    stored: list[_Place] = [(at,) for at in range(len(function.outputs))] if which.startswith("value") else []
    values = len(stored)
    blocks: dict[_Place, Block] = {}
    constants = {place: number for place, output in results.items() if (number := _constant(output)) is not None}
    if which.endswith("blocks"):
        assert cores is not None
        varying = {cores.block(place) for place in results.keys() - constants.keys() if len(place) > 1}
        constants = {place: x for place, x in constants.items() if len(place) > 1 and cores.block(place) not in varying}
    for place in [place for place in results if which == "parts" or len(place) > 1]:
        if place in constants:
            blocks[place] = Block(constant=constants[place])
        else:
            blocks[place] = Block(stored=len(stored))
            stored.append(place)
    final = _storing(both, results, stored)
    return Product(
        kinds=tuple(output.value.kind for output in final.outputs),
        values=values,
        jacobian=sum(len(place) == 2 for place in stored),
        structure=function.structure,
        blocks=blocks,
        work=cost_of_element(final) if which == "parts" else 0.0,
        make=lambda: final,
        make_forward=lambda: _for_registers(function, which, wrt, stored),
        make_plans=lambda: plans,
    )


def _constant(output: Output) -> float | None:
    """The number that an output is for all elements. An integer is stored, so that it keeps its dtype and digits."""
    value = output.value
    return float(value.value) if isinstance(value, Const) and value.kind == "float" else None


def _computed(
    function: Function, which: Which, wrt: Sequence[int], *, fused: bool = False, at_once: bool = False
) -> tuple[Function, dict[_Place, Output], Plans]:
    """IR with all results among its outputs; these, as in `Product.blocks`, and the values; and its eliminations."""
    from dualbcast.program import pipeline
    from dualbcast.program.derived_functions import hessian_of, jacobian_of

    outputs, both, plans = range(len(function.outputs)), function, tuple[Any, ...]()
    names: dict[_Place, str | None] = {}
    if which not in ("value", "parts"):
        second: Mapping[Any, str] = {}
        if "hessian" in which:
            dual, second = hessian_of(function, wrt, at_once=at_once)
        else:
            dual = jacobian_of(function, wrt, at_once=at_once)
        both, plans = dual.function, dual.plans
        if not which.startswith("hessian"):
            names = {(i, d): dual.partials.get((i, d)) for i in outputs for d in wrt}
        if "hessian" in which:
            pairs = [(p, q) for at, p in enumerate(wrt) for q in wrt[at:]]
            names |= {(i, p, q): second.get((i, p, q)) for i in outputs for p, q in pairs}
            if which.endswith("blocks"):
                names |= {(i, q, p): second.get((i, p, q)) for i in outputs for p, q in pairs}
    both = pipeline.run(pipeline.product(fused), both)
    named = {output.name: output for output in both.outputs}
    results: dict[_Place, Output] = {(at,): both.outputs[at] for at in outputs}
    for place, name in names.items():
        # A partial that is zero everywhere has no name.
        zero = Output("_".join(["zero", *map(str, place)]), ZERO)
        results[place] = zero if name is None else named[name]
        if len(place) > 2 and place[1:] != tuple(sorted(place[1:], key=wrt.index)):
            results[place] = replace(results[place], name=f"{results[place].name}_mirrored")
    return both, results, plans


def _for_registers(function: Function, which: Which, wrt: Sequence[int], stored: Sequence[_Place]) -> Function:
    """The IR of some results for a target with few registers: partials come beside the values if fewer wait then."""
    after, beside = (
        _storing(*_computed(function, which, wrt, at_once=at_once)[:2], stored) for at_once in (False, True)
    )
    is_cheaper = work(after.body) < work(beside.body)
    return after if is_cheaper and most_live(after) <= most_live(beside) + _SPARE_REGISTERS else beside


def every_result(function: Function, which: Which, wrt: Sequence[int]) -> tuple[Function, list[_Place]]:
    """The product as a function that can be differentiated again, with an output for each result, constant ones too;
    and their places, as in `Product.blocks`."""
    both, results, _ = _computed(function, which, wrt)
    values = [place for place in results if len(place) == 1 and which.startswith("value")]
    places = [*values, *[place for place in results if len(place) > 1]]
    return replace(_storing(both, results, places), structure=numbers(len(places))), places


def _storing(both: Function, results: Mapping[_Place, Output], stored: Sequence[_Place]) -> Function:
    """The IR of some results."""
    return remove_dead(replace(both, outputs=tuple(results[place] for place in stored)))


def product(function: Function, which: Which, wrt: tuple[int, ...], cores: Cores | None, identity: str) -> Product:
    """The product that `make_product` returns. If its facts are on disk, its IR is made only when it is needed."""
    made = cache(partial(make_product, function, which, wrt, cores))
    if not identity:
        return made()

    def facts() -> bytes:
        new = made()
        blocks = {place: tuple(block) for place, block in new.blocks.items()}
        return marshal.dumps((new.kinds, new.values, new.jacobian, blocks, new.work))

    payload = disk_cache.fetch(disk_cache.key("product", disk_cache.STAMP, identity, which, repr(wrt)), facts)
    kinds, values, jacobian, places, work = marshal.loads(payload)
    blocks = {place: Block(*block) for place, block in places.items()}
    forms = lambda: made().function, lambda: made().forward, lambda: made().make_plans()
    return Product(kinds, values, jacobian, function.structure, blocks, work, *forms)


def identity(function: Function) -> str:
    """A text that two functions share only if they compile to the same kernels in any process.

    It is empty where the kernels depend on a user's rule or partials, which are not in the IR. A user cannot redefine a
    function of the library, so that other operations mean the same in any process.
    """
    return "" if any("#" in op.name for op in operations_of(function)) else repr(function)


def checked(
    product: Product, function: Function, max_iterations: int | None, name: str
) -> tuple[Product, Checks | None]:
    """The product of a function with checks, and one more output; the product itself where nothing can fail."""
    # A product whose facts are on disk is not made to look for what its function does not have.
    if max_iterations is None and not any(op.name == BOUNDED for op in operations_of(function)):
        return product, None
    found = checks_of(product.function, max_iterations, name)
    if found is None:
        return product, None
    final, run, checks = found
    new = replace(product, kinds=(*product.kinds, "int"), make=lambda: final)
    return replace(new, make_forward=lambda: run(product.forward)), checks


# --- kernels ----------------------------------------------------------------------------------------------------------


class Options(NamedTuple):
    """Options of the decorator: how kernels are made, where they run, whether a graph keeps their Jacobians, what
    results are checked for, and whether `print` and `assert` run: None for on a CPU only."""

    fastmath: bool = False
    backend: Backend = "auto"
    jacobian: Keeping = "auto"
    max_iterations: int | None = None
    check: Check | None = None
    debug: bool | None = None

    def debugged(self, check: Any = None, debug: Any = None) -> Options:
        """The options with these for the search for faults, where they are not None."""
        if check not in (None, "nan", "finite"):
            raise ArgumentError(f"check={check!r} is nothing to check for; choose nan or finite")
        if debug is not None and not isinstance(debug, bool):
            raise ArgumentError(f"debug={debug!r} is neither True nor False")
        return self._replace(check=check or self.check, debug=self.debug if debug is None else debug)

    def runs_like(self, other: Options) -> bool:
        """Whether functions with these options can be in one kernel."""
        return self._replace(jacobian=other.jacobian, debug=other.debug) == other


def checked_limit(max_iterations: Any) -> int | None:
    """`max_iterations=` as a Python integer."""
    if max_iterations is None:
        return None
    if isinstance(max_iterations, bool) or not isinstance(max_iterations, int | np.integer) or max_iterations < 1:
        raise ArgumentError(
            f"max_iterations={max_iterations!r} is no number of iterations; give a positive integer, or None"
        )
    return int(max_iterations)


def output_dtypes(kinds: Iterable[Kind], signature: Signature) -> tuple[DType, ...]:
    """The dtypes of outputs of these kinds for the arguments of a call."""
    by_kind = {"float": signature.result_dtype, "int": np.dtype(np.int64), "bool": np.dtype(np.bool_)}
    return tuple([by_kind[kind] for kind in kinds])


class TypedProduct:
    """A product for given dtypes, with the kernels made of it so far.

    `parts` are, for "parts", the dtypes that all outputs are to be stored in, constant ones among them; otherwise the
    `signature` of the arguments decides. `names` are those of all parameters, and `label` is the function's; `identity`
    is that of the function.
    """

    def __init__(
        self,
        function: Function,
        which: Which,
        wrt: tuple[int, ...],
        signature: Signature,
        parts: tuple[DType, ...] | None,
        names: tuple[str, ...],
        label: str,
        options: Options,
        cores: Cores | None,
        identity: str,
    ) -> None:
        self.wrt, self.signature, self.parts, self.names, self.options = wrt, signature, parts, names, options
        self.label = label
        if which.endswith("blocks") and identity:
            identity += repr(cores)
        most = options.max_iterations
        self.product, self.checks = checked(product(function, which, wrt, cores, identity), function, most, label)
        dtypes = list(output_dtypes(self.product.kinds, signature))
        if self.checks is not None:
            dtypes[-1] = PLACE_DTYPE
        if parts is not None:
            for place, block in self.product.blocks.items():
                if block.stored is not None:
                    dtypes[block.stored] = parts[place[0]]
        # Of the outputs in memory.
        self.dtypes = tuple(dtypes)
        within = f" in {', '.join(names[at] for at in wrt)}" if wrt else ""
        subject = "value" if which == "parts" else which.replace("_", " ")
        # The first line of the kernel's text.
        self.title = f"{label}: {subject}{within}; {signature.compute}"
        # A text that only products with the same IR share; empty where there is none.
        self._identity = identity and f"{which} {wrt} {most} {identity}"
        # By target, variant of it, and layout.
        self._kernels: dict[tuple[str, Any, Layout], Any] = {}
        # For layouts, the number of elements for a CUDA thread that is fastest.
        self.lanes: dict[Layout, int] = {}

    def source(
        self, layout: Layout, target: str, trace: Trace | None = None, places: list[Place] | None = None
    ) -> KernelSource:
        """The text of a kernel, with comments from the user's file as it is now; `trace` gets the IR after passes, and
        `places` where each line of the text comes from."""
        from dualbcast.program.pipeline import kernel_source

        function = self.product.forward if target == "cuda" else self.product.function
        with plain_nesting(function):
            title, fastmath = self.title, self.options.fastmath
            return kernel_source(function, layout, *self._dtypes(), target, title, fastmath, trace, places)

    def program(self, layout: Layout, trace: Trace | None = None) -> KernelProgram:
        """The program of a CPU kernel; `trace` gets the IR after passes."""
        from dualbcast.program.pipeline import kernel_program

        function = self.product.function
        with plain_nesting(function):
            return kernel_program(function, layout, *self._dtypes(), trace)

    def _dtypes(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """The compute dtype, and those that parameters and outputs are stored as."""
        return self.signature.compute, self.signature.storages, tuple([dtype.name for dtype in self.dtypes])

    def wide(self, layout: Layout) -> Layout:
        """The layout with the number of elements for a CUDA thread that is fastest."""
        if layout not in self.lanes:
            from dualbcast.program.pipeline import elements_a_thread

            self.lanes[layout] = elements_a_thread(self.product.forward, layout, self.signature.compute)
        return layout._replace(lanes=self.lanes[layout])

    def kernel(
        self,
        target: str,
        layout: Layout,
        compile_kernel: Callable[[str, Callable[[], Any]], Any],
        variant: Any = None,
    ) -> Any:
        """The kernel for a layout and a variant of the target; where there is none yet, `compile_kernel` makes it from
        the key of its program or text and a function that makes that."""
        place = target, variant, layout
        kernel = self._kernels.get(place)
        if kernel is None:
            # All that it depends on; empty where only the program or the text itself can be the key.
            key = self._identity and disk_cache.key(
                *("kernel", self._identity, repr(layout), repr(self._dtypes()), target, self.title),
                repr(self.options.fastmath),
            )
            make = partial(self.program, layout) if target == "cpu" else partial(self.source, layout, target)
            kernel = self._kernels[place] = compile_kernel(key, make)
        return kernel


@contextmanager
def plain_nesting(function: Function) -> Iterator[None]:
    """A block in which a function goes through passes: an error at the user's line where it is nested too deeply."""
    try:
        yield
    except RecursionError:
        raise nested_too_deeply(function.location) from None
