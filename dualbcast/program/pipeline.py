"""The passes of every target in order, each with the reason for its place. Nothing else decides which passes run.

Every pass takes a function in IR and returns one; where it does not apply it returns the function itself. Its other
arguments are bound when the list is built. A call on the CPU does not import the passes of CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from dualbcast.codegen.kernel_text import KernelText
from dualbcast.codegen.program import KernelProgram
from dualbcast.codegen.text_places import Place
from dualbcast.errors import Location
from dualbcast.frontend.lower import helper_of
from dualbcast.ir.nodes import Function, Names
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import has_loops, operations_of
from dualbcast.kernel_spec import KernelSource, KernelSpec, Layout
from dualbcast.passes.arithmetic import fuse_multiply_adds, share_logarithms, share_reciprocals, vectors_to_interleave
from dualbcast.passes.if_conversion import convert_ifs
from dualbcast.passes.inlining import drop_custom_derivatives, inline_helpers, inline_user_rules
from dualbcast.passes.masked_loops import mask_loops
from dualbcast.passes.readable_form import coalesce_copies, name_variables, nest_expressions, place_loads
from dualbcast.passes.statement_order import shorten_waits
from dualbcast.passes.vector_analysis import fits_vectors, has_varying_branches, uniform_inputs
from dualbcast.rules.table import RULES

Pass = Callable[[Function], Function]
# The name of each pass that ran, and the function that it returned.
Trace = list[tuple[str, Function]]


class Fallback(NamedTuple):
    """Passes of which the first is left out, and then the second, until the result `suits`; the last always runs."""

    passes: Sequence[Pass]
    suits: Callable[[Function], bool]


def product(fused: bool) -> list[Pass]:
    """The passes of a product, after differentiation and before all targets."""
    return [
        # Shared terms of values and partials are computed once. A GPU's compiler fuses multiply-adds itself.
        fuse_multiply_adds if fused else simplify,
    ]


def checked(max_iterations: int | None, places: dict[Location, int], last: int, reads: bool) -> list[Pass]:
    """The passes of a product with `max_iterations=`, or that `reads` whole arrays, between `product` and all
    targets."""
    from dualbcast.passes.bounds_checks import check_bounds
    from dualbcast.passes.iteration_limits import limit_iterations

    # Before the targets' passes, so that masked loops have the checks in them, too.
    bounds: list[Pass] = [partial(check_bounds, places=places, last=last)] if reads else []
    if max_iterations is None:
        return bounds
    return [*bounds, partial(limit_iterations, most=max_iterations, loops=places, last=last, is_checked=reads)]


def speaking() -> list[Pass]:
    """The passes of a function with notes to one that says which elements print, or fail an assertion."""
    from dualbcast.passes.speaking_elements import flag_speaking_elements

    return [
        flag_speaking_elements,
        # It takes away what only the values of the function need.
        simplify,
    ]


def plain() -> list[Pass]:
    """The passes to the operations that are computed, on whatever target, to be counted."""
    return [drop_custom_derivatives]


def portable() -> list[Pass]:
    """The passes of a function that other processes run, after differentiation."""
    return [
        # A process knows the library's rules and its own user's, and no others.
        drop_custom_derivatives,
        inline_user_rules,
    ]


def for_vectors(uniform: set[str]) -> list[Pass | Fallback]:
    """The first passes of the CPU: elements of a row become lanes of vectors, where they can."""
    return [
        # First, since nothing is differentiated any more, and a custom derivative hides the operations of its value.
        drop_custom_derivatives,
        Fallback(
            [
                # Before loops are masked: the loops of helpers are.
                inline_helpers,
                # Before branches are converted: branches in loops are converted with their loops.
                partial(mask_loops, uniform=uniform),
                # Last, when the branches left are those outside of masked loops.
                partial(convert_ifs, uniform=uniform),
            ],
            # Inlined and masked loops do more work, which pays in vectors only.
            partial(fits_vectors, uniform=uniform),
        ),
    ]


def cpu(uniform: set[str], dtype: str) -> list[Pass | Fallback]:
    """The passes of a CPU kernel, but the last one."""
    return [
        *for_vectors(uniform),
        # After if-conversion, which brings divisions of several branches into one block. A float32 division takes half
        # of the time, and multiplications in its place would take longer.
        *([share_reciprocals] if dtype == "float64" else []),
        # After the branches were costed, to which it is a logarithm as any other.
        share_logarithms,
    ]


def lowered() -> list[Pass | Fallback]:
    """The last passes before LLVM IR."""
    return [
        # After all that adds statements; before loads have places.
        shorten_waits,
        # Last, since simplification takes loads for unknown values.
        place_loads,
    ]


def cuda(approximate: bool, layout: Layout, dtype: str, text: KernelText) -> list[Pass | Fallback]:
    """The passes of a CUDA kernel; `approximate` says whether its mathematics may be."""
    from dualbcast.passes.cuda_coarsening import coarsen
    from dualbcast.passes.cuda_math import exponentials_of_powers

    return [
        # First, as for the CPU.
        drop_custom_derivatives,
        # Before helpers are written: their formulas call other functions.
        partial(exponentials_of_powers, dtype=dtype),
        *approximated(approximate),
        # Here, since the passes below take no call away and add none: the helpers are known.
        text.open_text,
        *gathered(text.names, layout),
        # Last: it copies the statements of one element, with their names, for its neighbours.
        partial(coarsen, layout=layout, names=text.names),
    ]


def approximated(approximate: bool) -> list[Pass]:
    """The pass to approximate mathematics, if it may be approximate."""
    if not approximate:
        return []
    from dualbcast.passes.cuda_math import fast_math

    return [fast_math]


def gathered(names: Names, layout: Layout) -> list[Pass]:
    """The passes to the readable form of one of a CUDA thread's elements."""
    from dualbcast.passes.cuda_coarsening import gather_loads
    from dualbcast.passes.cuda_math import select_signs
    from dualbcast.passes.shared_loads import share_loads

    return [
        # Before expressions are nested: it looks for a product and the branch before it.
        select_signs,
        # After it, since selects may take the place of branches; before the other loads have places.
        partial(share_loads, layout=layout),
        *readable(names),
        # After the loads have their places, which it changes only within a block.
        partial(gather_loads, names=names),
    ]


def interpreter(text: KernelText) -> list[Pass | Fallback]:
    """The passes of the kernel that Python interprets: the program as it was written, since it is the specification."""
    return [drop_custom_derivatives, text.open_text, *readable(text.names)]


def readable(names: Names) -> list[Pass]:
    """The passes to the form in which the element function is printed."""
    return [
        # First: the passes below may move a load into an expression, and not into a branch.
        place_loads,
        # Before expressions are nested: it takes away the second reader of a value.
        coalesce_copies,
        nest_expressions,
        # Last, when it is known which variables are left.
        partial(name_variables, names=names),
    ]


def helper(approximate: bool = False) -> list[Pass | Fallback]:
    """The passes of a helper function, which is lowered as it is written; its mathematics may be `approximate`."""
    return [drop_custom_derivatives, simplify, *approximated(approximate)]


def readable_helper(approximate: bool, function: Function, names: Names, write_callees: Pass) -> Function:
    """A helper function in the form that `KernelText` asks for."""
    passes: list[Pass | Fallback] = [
        *helper(approximate),
        # Callees before callers; after the last pass that changes calls.
        write_callees,
        coalesce_copies,
        nest_expressions,
        partial(name_variables, names=names, loads=False),
    ]
    return run(passes, function)


def kernel_program(
    function: Function,
    layout: Layout,
    dtype: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    trace: Trace | None = None,
) -> KernelProgram:
    """The program of a product's CPU kernel; the product is simplified, with one output for each stored result.

    `inputs` and `outputs` are the dtypes that parameters and outputs are stored as. `trace` gets the result of each
    pass.
    """
    uniform = uniform_inputs(function, layout)
    converted = run([*cpu(uniform, dtype), *lowered()], function, trace)
    summed = layout.summed(len(inputs))
    vectors = vectors_of_row(converted, uniform, layout, dtype) if fits_vectors(converted, uniform) else 0
    stored = ["float64" if position in summed else kind for position, kind in enumerate(outputs)]
    stored += ["float64"] * len(summed) if dtype == "float64" and not layout.whole_rows else []
    spec = KernelSpec(function.name, dtype, tuple(inputs), tuple(stored), layout, vectors)
    return KernelProgram(spec, converted, helpers_of(converted))


def vectors_of_row(function: Function, uniform: set[str], layout: Layout, dtype: str) -> int:
    """How many vectors of a function that fits vectors the CPU computes side by side."""
    arrays, free = len(function.params) + len(function.outputs), 2 if has_varying_branches(function, uniform) else 1
    of_row = {layout.classes[which][-1] for which in layout.which[len(function.params) :]} == {"0"}
    # Rows may be shorter. A vector of float64 is a cache line, and memory likes pairs of lines.
    if dtype == "float64" and of_row:
        # Sums are no arrays, and what is left of a row goes on with one vector at a time.
        most, arrays = 4, len(function.params)
    elif layout.rank == 1 or has_loops(function.body):
        most = 4
    else:
        most = 2 if dtype == "float64" and not layout.summed(len(function.params)) else 1
    return vectors_to_interleave(function, arrays, most, free, uniform)


def helpers_of(function: Function) -> dict[str, Function]:
    """The functions of the rules that a function calls, lowered, callees before callers."""
    found: dict[str, Function] = {}
    for name in dict.fromkeys(op.name for op in operations_of(function)):
        row = RULES.get(name)
        if row is not None and row.function is not None and name not in found:
            lowered_helper = run(helper(), helper_of(row))
            found |= helpers_of(lowered_helper)
            found[name] = lowered_helper
    return found


def kernel_source(
    function: Function,
    layout: Layout,
    dtype: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    target: str,
    title: str = "",
    fastmath: bool = False,
    trace: Trace | None = None,
    places: list[Place] | None = None,
) -> KernelSource:
    """The text of a product's kernel for one target; its parts are those of `KernelText`.

    The product is simplified, with one output for each stored result. With `fastmath` the target's mathematics may be
    approximate. `trace` gets the result of each pass, and `places` where each line of the text comes from.
    """
    approximate = fastmath and target == "cuda" and dtype == "float32"
    text = KernelText(layout, dtype, inputs, outputs, target, title, partial(readable_helper, approximate))
    if target == "cuda":
        passes = cuda(approximate, layout, dtype, text)
    elif target == "cpu":
        # Last of all the text, which shows what is computed.
        passes = [*cpu(uniform_inputs(function, layout), dtype), text.open_text, *readable(text.names)]
    else:
        passes = interpreter(text)
    return text.source(run(passes, function, trace), places)


def elements_a_thread(function: Function, layout: Layout, dtype: str) -> int:
    """How many neighbouring elements of a product a CUDA thread should compute."""
    from dualbcast.passes import cuda_coarsening

    # As for several.
    passes = [drop_custom_derivatives, *gathered(Names(), layout._replace(lanes=2))]
    element = run(passes, function)
    return cuda_coarsening.elements_a_thread(element, layout, dtype)


def run(passes: Sequence[Pass | Fallback], function: Function, trace: Trace | None = None) -> Function:
    """The function after some passes."""
    trace = [] if trace is None else trace
    for each in passes:
        if isinstance(each, Fallback):
            function = _run_fallback(each, function, trace)
        else:
            function = each(function)
            trace.append((_name(each), function))
    return function


def _run_fallback(fallback: Fallback, function: Function, trace: Trace) -> Function:
    *optional, last = fallback.passes
    for position, first in enumerate(optional):
        tried: Trace = []
        result = run([first], function, tried)
        if result is function:
            continue  # Without it there is the same to do.
        result = run(fallback.passes[position + 1 :], result, tried)
        if fallback.suits(result):
            trace += tried
            return result
    return run([last], function, trace)


def _name(each: Pass) -> str:
    return each.func.__name__ if isinstance(each, partial) else each.__name__
