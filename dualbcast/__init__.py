"""Broadcast scalar Python functions over arrays, with exact derivatives from one fused kernel on CPU or GPU."""

from typing import TYPE_CHECKING, Any

from dualbcast import memory as memory
from dualbcast.api.derivative_methods import Pullback as Pullback
from dualbcast.api.extend import custom_partials as custom_partials
from dualbcast.api.extend import not_differentiable as not_differentiable
from dualbcast.api.extend import rule as rule
from dualbcast.api.extend import stop_derivative as stop_derivative
from dualbcast.api.function import BroadcastFunction as BroadcastFunction
from dualbcast.api.function import differentiable_broadcast as differentiable_broadcast
from dualbcast.api.operators import derivative as derivative
from dualbcast.api.operators import gradient as gradient
from dualbcast.api.operators import value_and_derivative as value_and_derivative
from dualbcast.api.operators import value_and_gradient as value_and_gradient
from dualbcast.errors import ArgumentError as ArgumentError
from dualbcast.errors import BackendError as BackendError
from dualbcast.errors import CompileError as CompileError
from dualbcast.errors import DerivativeError as DerivativeError
from dualbcast.errors import DTypeError as DTypeError
from dualbcast.errors import DualbcastError as DualbcastError
from dualbcast.errors import IterationError as IterationError
from dualbcast.errors import KernelCancelled as KernelCancelled
from dualbcast.errors import MissingDependencyError as MissingDependencyError
from dualbcast.errors import ShapeError as ShapeError
from dualbcast.program.hessian import Hessian as Hessian
from dualbcast.program.jacobian import Jacobian as Jacobian
from dualbcast.runtime.cpu.interrupt import cancel as cancel
from dualbcast.runtime.cpu.threads import get_num_threads as get_num_threads
from dualbcast.runtime.cpu.threads import num_threads as num_threads
from dualbcast.runtime.cpu.threads import set_num_threads as set_num_threads

if TYPE_CHECKING:
    from dualbcast.program.explain import Explanation as Explanation

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # With it much of the compiler is imported, which a process may not need: what it made is kept.
    if name == "Explanation":
        from dualbcast.program.explain import Explanation

        return Explanation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
