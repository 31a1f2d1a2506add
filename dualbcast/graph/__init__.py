"""A small reverse-mode graph around the kernels: forward mode inside a kernel, reverse mode around it.

Comes in: functions of arrays, written with NumPy's functions, BroadcastFunctions and the operations below.
Goes out: their gradients; element-wise regions become one kernel.

Each file imports only files of lines further up in this list:

    arrays                                  arrays, and containers of arrays
    tape                                    nodes, primitives, and the settings of a thread
    frozen                                  user's arrays stay as they are
    variable                                an array that remembers how it was computed
    primitives                              primitives run on Variables and are recorded
    lazy                                    element-wise operations wait, and become one function
    checkpoint_policy                       its Jacobian is kept, or not
    fused_region                            one kernel, with its node and pullback
    elementwise                             operators, ufuncs, casts, BroadcastFunctions
    shapes                                  reshape, broadcast, sum, transpose, join, split
    reductions                              mean, max, prod, softmax
    indexing                                brackets and their pullback
    linalg                                  matmul, einsum
    protocols                               NumPy's functions
    backward                                cotangents go from node to node; values computed again
    transform  explain                      grad, vjp, jvp; a table of kernels
"""

from dualbcast.graph import protocols as _protocols  # noqa: F401 (it enters NumPy's functions into the table)
from dualbcast.graph.backward import checkpoint
from dualbcast.graph.elementwise import astype, clip, where
from dualbcast.graph.explain import explain
from dualbcast.graph.indexing import scatter, take, take_along_axis
from dualbcast.graph.linalg import diagonal, dot, einsum, matmul, outer, tensordot, trace, vecdot
from dualbcast.graph.primitives import stop_gradient
from dualbcast.graph.reductions import (
    cumsum,
    cumulative_sum,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    prod,
    softmax,
    std,
    var,
)
from dualbcast.graph.shapes import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    sum,
    swapaxes,
    tile,
    transpose,
    unstack,
)
from dualbcast.graph.tape import fusion, jacobian, launches, no_grad
from dualbcast.graph.transform import grad, jvp, value_and_grad, vjp
from dualbcast.graph.variable import Variable

__all__ = [
    "Variable",
    "astype",
    "broadcast_arrays",
    "broadcast_to",
    "checkpoint",
    "clip",
    "concat",
    "concatenate",
    "cumsum",
    "cumulative_sum",
    "detach",
    "diagonal",
    "dot",
    "einsum",
    "expand_dims",
    "explain",
    "flip",
    "fusion",
    "grad",
    "jacobian",
    "jvp",
    "launches",
    "log_softmax",
    "logsumexp",
    "matmul",
    "matrix_transpose",
    "max",
    "mean",
    "min",
    "moveaxis",
    "no_grad",
    "outer",
    "permute_dims",
    "prod",
    "repeat",
    "reshape",
    "roll",
    "scatter",
    "softmax",
    "split",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tensordot",
    "tile",
    "trace",
    "transpose",
    "unstack",
    "value_and_grad",
    "var",
    "vecdot",
    "vjp",
    "where",
]

concatenate = concat
detach = stop_gradient


def __dir__() -> list[str]:
    """The public names; without this the files of the folder would be among them."""
    return __all__
