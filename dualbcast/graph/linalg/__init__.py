"""Linear algebra, by the names and with the arguments of `numpy.linalg`.

Comes in: Variables or arrays with matrices in their last two axes. Goes out: Variables.
"""

from inspect import ismodule as _ismodule

from dualbcast.graph.linalg.decompositions import cholesky as cholesky
from dualbcast.graph.linalg.decompositions import qr as qr
from dualbcast.graph.linalg.eigenvalues import eig as eig
from dualbcast.graph.linalg.eigenvalues import eigh as eigh
from dualbcast.graph.linalg.eigenvalues import eigvals as eigvals
from dualbcast.graph.linalg.eigenvalues import eigvalsh as eigvalsh
from dualbcast.graph.linalg.least_squares import lstsq as lstsq
from dualbcast.graph.linalg.least_squares import pinv as pinv
from dualbcast.graph.linalg.norms import cond as cond
from dualbcast.graph.linalg.norms import matrix_norm as matrix_norm
from dualbcast.graph.linalg.norms import norm as norm
from dualbcast.graph.linalg.norms import vector_norm as vector_norm
from dualbcast.graph.linalg.products import multi_dot as multi_dot
from dualbcast.graph.linalg.singular_values import svd as svd
from dualbcast.graph.linalg.singular_values import svdvals as svdvals
from dualbcast.graph.linalg.solving import det as det
from dualbcast.graph.linalg.solving import inv as inv
from dualbcast.graph.linalg.solving import matrix_power as matrix_power
from dualbcast.graph.linalg.solving import slogdet as slogdet
from dualbcast.graph.linalg.solving import solve as solve

__all__ = sorted(name for name, value in globals().items() if name[0] != "_" and not _ismodule(value))


def __dir__() -> list[str]:
    """The public names; without this the files of the folder would be among them."""
    return __all__
