"""A small reverse-mode graph around the kernels: forward mode inside a kernel, reverse mode around it."""

# First, because all others work on Variables, whose methods are made of them.
from dualbcast.graph.variable import Variable as Variable

# isort: split
from dualbcast.graph.checkpoint import checkpoint as checkpoint
from dualbcast.graph.elementwise import astype as astype
from dualbcast.graph.elementwise import clip as clip
from dualbcast.graph.elementwise import where as where
from dualbcast.graph.explain import explain as explain
from dualbcast.graph.indexing import scatter as scatter
from dualbcast.graph.indexing import take as take
from dualbcast.graph.indexing import take_along_axis as take_along_axis
from dualbcast.graph.launch_log import launches as launches
from dualbcast.graph.linalg import diagonal as diagonal
from dualbcast.graph.linalg import dot as dot
from dualbcast.graph.linalg import einsum as einsum
from dualbcast.graph.linalg import matmul as matmul
from dualbcast.graph.linalg import outer as outer
from dualbcast.graph.linalg import tensordot as tensordot
from dualbcast.graph.linalg import trace as trace
from dualbcast.graph.linalg import vecdot as vecdot
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
from dualbcast.graph.reductions import sum as sum
from dualbcast.graph.reductions import var as var
from dualbcast.graph.settings import fusion as fusion
from dualbcast.graph.settings import jacobian as jacobian
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
from dualbcast.graph.shapes import swapaxes as swapaxes
from dualbcast.graph.shapes import tile as tile
from dualbcast.graph.shapes import transpose as transpose
from dualbcast.graph.shapes import unstack as unstack
from dualbcast.graph.stop_gradient import no_grad as no_grad
from dualbcast.graph.stop_gradient import stop_gradient as stop_gradient
from dualbcast.graph.transform import grad as grad
from dualbcast.graph.transform import jvp as jvp
from dualbcast.graph.transform import value_and_grad as value_and_grad
from dualbcast.graph.transform import vjp as vjp

concatenate = concat
detach = stop_gradient
