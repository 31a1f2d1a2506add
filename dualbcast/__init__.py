"""Broadcast scalar Python functions over arrays, with exact derivatives from one fused kernel on CPU or GPU."""

from dualbcast import memory
from dualbcast.api.cores.generalised import CorePullback, GeneralisedFunction
from dualbcast.api.derivative_methods import Pullback
from dualbcast.api.from_source import from_source
from dualbcast.api.function import BroadcastFunction, differentiable_broadcast
from dualbcast.api.operators import derivative, gradient, value_and_derivative, value_and_gradient
from dualbcast.api.sum_methods import NormalEquations, SumAndGradient, SumGradientAndHessian
from dualbcast.errors import (
    ArgumentError,
    BackendError,
    BlockKeyError,
    BoundsError,
    CompileError,
    DerivativeError,
    DTypeError,
    DualbcastError,
    FailedAssertion,
    IterationError,
    KernelCancelled,
    MissingDependencyError,
    NonFiniteError,
    RaisedError,
    ShapeError,
)
from dualbcast.interop.pytorch import traced as _pytorch_traced  # noqa: F401 (it marks methods)
from dualbcast.program.core_results import CoreHessian, CoreJacobian
from dualbcast.program.explain import Explanation
from dualbcast.program.results import Hessian, Jacobian
from dualbcast.program.trace import Trace, TraceRow
from dualbcast.rules.registration import custom_partials, not_differentiable, rule, stop_derivative
from dualbcast.runtime.cpu.interrupt import cancel
from dualbcast.runtime.cpu.policy import get_num_threads, num_threads, set_num_threads
from dualbcast.tables import index

__all__ = [
    "ArgumentError",
    "BackendError",
    "BlockKeyError",
    "BoundsError",
    "BroadcastFunction",
    "CompileError",
    "CoreHessian",
    "CoreJacobian",
    "CorePullback",
    "DTypeError",
    "DerivativeError",
    "DualbcastError",
    "Explanation",
    "FailedAssertion",
    "GeneralisedFunction",
    "Hessian",
    "IterationError",
    "Jacobian",
    "KernelCancelled",
    "MissingDependencyError",
    "NonFiniteError",
    "NormalEquations",
    "Pullback",
    "RaisedError",
    "ShapeError",
    "SumAndGradient",
    "SumGradientAndHessian",
    "Trace",
    "TraceRow",
    "cancel",
    "custom_partials",
    "derivative",
    "differentiable_broadcast",
    "from_source",
    "get_num_threads",
    "gradient",
    "index",
    "memory",
    "not_differentiable",
    "num_threads",
    "rule",
    "set_num_threads",
    "stop_derivative",
    "value_and_derivative",
    "value_and_gradient",
]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    return __all__
