"""Reverse-mode differentiation of functions of whole arrays, around the kernels of BroadcastFunctions.

Comes in: functions of arrays, written with NumPy's functions, BroadcastFunctions and the operations below.
Goes out: their gradients; element-wise regions become one kernel.

Each file imports only files of lines further up in this list:

    arrays                                  arrays, and containers of arrays
    tape                                    nodes, primitives, and the settings of a thread
    recording                               what is computed is noted, to be replayed
    frozen                                  a user's arrays are copied or read-only while they are needed
    variable                                an array that remembers how it was computed
    batched                                 a Variable inside vmap
    complex_numbers                         complex numbers, by their parts:
    complex_numbers/variable                a Variable of complex numbers, as a pair of others
    primitives                              primitives run on Variables and are recorded
    lazy                                    element-wise operations wait, and become one function
    checkpoint_policy                       whether such a function's Jacobian is kept
    fused_region                            one kernel for such a function, with its node and pullback
    elementwise                             operators, ufuncs, casts, BroadcastFunctions
    shapes                                  reshape, broadcast, sum, transpose, join, split
    complex_numbers/primitives              primitives of complex arrays, applied to their parts
    reductions                              mean, max, prod, softmax
    indexing                                brackets and their pullback
    whole_arrays                            what calls read of whole arrays
    array_functions                         compositions, by NumPy's names:
      array_functions/assembly              pad, block, triu, select, cross, kron
      array_functions/averages              average, nansum, nanmean
      array_functions/order                 sort, quantile
      array_functions/sequences             diff, gradient, cumprod, trapezoid, convolve, interp, polyval
    fft                                     Fourier transforms, by the names of numpy.fft
    linalg/products                         matmul, einsum
    linalg/solving                          solve, inv, det
    linalg/decompositions                   cholesky, qr
    linalg/eigenvalues                      eigh, eig
    linalg/singular_values                  svd
    linalg/least_squares                    pinv, lstsq
    linalg/norms                            norm, cond
    linalg                                  the public names of numpy.linalg
    protocols                               NumPy's functions
    backward                                cotangents go from node to node; values computed again
    explain                                 a table of kernels
    transformations                         functions of arrays become others:
      transformations/arguments             which arguments, and tangents, a transformation is given
      transformations/gradients             grad, vjp, jvp
      transformations/jacobians             jacobian, hessian, hvp
      transformations/batching              how operations go over a batch, inside vmap
      transformations/vmap                  functions of examples become functions of batches
      transformations/captures              what a function can see beside its arguments
      transformations/replay                a recording as straight-line code
      transformations/compilation           steps that are recorded once and replayed
"""

from inspect import ismodule as _ismodule

from dualbcast.graph import fft as fft
from dualbcast.graph import linalg as linalg
from dualbcast.graph import protocols as _protocols  # noqa: F401 (it enters NumPy's functions into the table)
from dualbcast.graph import whole_arrays as _whole_arrays  # noqa: F401 (it enters an operation into the table)
from dualbcast.graph.array_functions.assembly import block as block
from dualbcast.graph.array_functions.assembly import cross as cross
from dualbcast.graph.array_functions.assembly import kron as kron
from dualbcast.graph.array_functions.assembly import pad as pad
from dualbcast.graph.array_functions.assembly import select as select
from dualbcast.graph.array_functions.assembly import tril as tril
from dualbcast.graph.array_functions.assembly import triu as triu
from dualbcast.graph.array_functions.averages import average as average
from dualbcast.graph.array_functions.averages import nanmean as nanmean
from dualbcast.graph.array_functions.averages import nansum as nansum
from dualbcast.graph.array_functions.order import median as median
from dualbcast.graph.array_functions.order import percentile as percentile
from dualbcast.graph.array_functions.order import quantile as quantile
from dualbcast.graph.array_functions.order import sort as sort
from dualbcast.graph.array_functions.sequences import convolve as convolve
from dualbcast.graph.array_functions.sequences import correlate as correlate
from dualbcast.graph.array_functions.sequences import cumprod as cumprod
from dualbcast.graph.array_functions.sequences import diff as diff
from dualbcast.graph.array_functions.sequences import gradient as gradient
from dualbcast.graph.array_functions.sequences import interp as interp
from dualbcast.graph.array_functions.sequences import polyval as polyval
from dualbcast.graph.array_functions.sequences import sinc as sinc
from dualbcast.graph.array_functions.sequences import trapezoid as trapezoid
from dualbcast.graph.backward import checkpoint as checkpoint
from dualbcast.graph.complex_numbers.variable import ComplexVariable as ComplexVariable
from dualbcast.graph.elementwise import astype as astype
from dualbcast.graph.elementwise import clip as clip
from dualbcast.graph.elementwise import where as where
from dualbcast.graph.explain import explain as explain
from dualbcast.graph.indexing import scatter as scatter
from dualbcast.graph.indexing import take as take
from dualbcast.graph.indexing import take_along_axis as take_along_axis
from dualbcast.graph.linalg.products import diag as diag
from dualbcast.graph.linalg.products import diagonal as diagonal
from dualbcast.graph.linalg.products import dot as dot
from dualbcast.graph.linalg.products import einsum as einsum
from dualbcast.graph.linalg.products import matmul as matmul
from dualbcast.graph.linalg.products import outer as outer
from dualbcast.graph.linalg.products import tensordot as tensordot
from dualbcast.graph.linalg.products import trace as trace
from dualbcast.graph.linalg.products import vdot as vdot
from dualbcast.graph.linalg.products import vecdot as vecdot
from dualbcast.graph.primitives import stop_gradient as stop_gradient
from dualbcast.graph.reductions import cumsum as cumsum
from dualbcast.graph.reductions import cumulative_sum as cumulative_sum
from dualbcast.graph.reductions import log_softmax as log_softmax
from dualbcast.graph.reductions import logsumexp as logsumexp
from dualbcast.graph.reductions import max as max
from dualbcast.graph.reductions import mean as mean
from dualbcast.graph.reductions import min as min
from dualbcast.graph.reductions import prod as prod
from dualbcast.graph.reductions import softmax as softmax
from dualbcast.graph.reductions import std as std
from dualbcast.graph.reductions import var as var
from dualbcast.graph.shapes import broadcast_arrays as broadcast_arrays
from dualbcast.graph.shapes import broadcast_to as broadcast_to
from dualbcast.graph.shapes import concat as concat
from dualbcast.graph.shapes import expand_dims as expand_dims
from dualbcast.graph.shapes import flip as flip
from dualbcast.graph.shapes import matrix_transpose as matrix_transpose
from dualbcast.graph.shapes import moveaxis as moveaxis
from dualbcast.graph.shapes import permute_dims as permute_dims
from dualbcast.graph.shapes import repeat as repeat
from dualbcast.graph.shapes import reshape as reshape
from dualbcast.graph.shapes import roll as roll
from dualbcast.graph.shapes import split as split
from dualbcast.graph.shapes import squeeze as squeeze
from dualbcast.graph.shapes import stack as stack
from dualbcast.graph.shapes import sum as sum
from dualbcast.graph.shapes import swapaxes as swapaxes
from dualbcast.graph.shapes import tile as tile
from dualbcast.graph.shapes import transpose as transpose
from dualbcast.graph.shapes import unstack as unstack
from dualbcast.graph.tape import fusion as fusion
from dualbcast.graph.tape import jacobian_policy as jacobian_policy
from dualbcast.graph.tape import launches as launches
from dualbcast.graph.tape import no_grad as no_grad
from dualbcast.graph.transformations import batching as _batching  # noqa: F401 (it enters its functions into a table)
from dualbcast.graph.transformations.compilation import Compiled as Compiled
from dualbcast.graph.transformations.compilation import compile as compile
from dualbcast.graph.transformations.gradients import grad as grad
from dualbcast.graph.transformations.gradients import jvp as jvp
from dualbcast.graph.transformations.gradients import value_and_grad as value_and_grad
from dualbcast.graph.transformations.gradients import vjp as vjp
from dualbcast.graph.transformations.jacobians import hessian as hessian
from dualbcast.graph.transformations.jacobians import hvp as hvp
from dualbcast.graph.transformations.jacobians import jacobian as jacobian
from dualbcast.graph.transformations.vmap import vmap as vmap
from dualbcast.graph.variable import Variable as Variable

concatenate = concat
detach = stop_gradient
# They are imported under their own names, which tells checkers of types that they are public. The files are not.
_NAMES = [name for name, value in globals().items() if name[0] != "_" and not _ismodule(value)]
__all__ = sorted([*_NAMES, "fft", "linalg"])


def __dir__() -> list[str]:
    """The public names; without this the files of the folder would be among them."""
    return __all__
