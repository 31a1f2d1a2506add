"""A function without a rule is reported under a name that a user can write: where its library shows it."""

from __future__ import annotations

import importlib
import re
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from cells import Cell

from dualbcast import differentiable_broadcast
from dualbcast.errors import CompileError
from dualbcast.rules.spelling import home, leads_to

pytestmark = pytest.mark.usefixtures("no_kernel")

# What is imported, the call, and the name in the message.
CALLS = {
    "ufunc": ("import scipy.special", "scipy.special.bei(x)", "scipy.special.bei"),
    "ufunc by an alias": ("import scipy.special as sp", "sp.bei(x)", "scipy.special.bei"),
    "ufunc by its name": ("from scipy.special import bei", "bei(x)", "scipy.special.bei"),
    "ufunc by another name": ("from scipy.special import bei as phi", "phi(x)", "scipy.special.bei"),
    "ufunc of two": ("from scipy import special", "special.struve(1, x)", "scipy.special.struve"),
    "ufunc as an argument": (
        "from scipy.special import bei\ndef apply(f, x):\n    return f(x)",
        "apply(bei, x)",
        "scipy.special.bei",
    ),
    "function": ("from scipy.special import logsumexp as lse", "lse(x)", "scipy.special.logsumexp"),
    "method": ("from scipy import stats", "stats.norm.entropy(x)", "scipy.stats.norm.entropy"),
    "method of a name": ("from scipy.stats import norm as normal", "normal.entropy(x)", "scipy.stats.norm.entropy"),
    "method as an argument": (
        "from scipy.stats import norm\ndef apply(f, x):\n    return f(x)",
        "apply(norm.entropy, x)",
        "scipy.stats.norm.entropy",
    ),
    "method of a user's object": ("from scipy.stats import norm\nrv = norm(0, 1)", "rv.cdf(x)", "rv.cdf"),
    "JAX": ("import jax.numpy as jnp", "jnp.sin(x)", "jax.numpy.sin"),
    "JAX's relu": ("import jax", "jax.nn.relu(x)", "jax.nn.relu"),
    "torch": ("import torch", "torch.sin(x)", "torch.sin"),
    "NumPy": ("import numpy as np", "np.linalg.norm(x)", "numpy.linalg.norm"),
    "NumPy in two places": ("import numpy as np", "np.emath.sqrt(x)", "numpy.emath.sqrt"),
    "NumPy's name of a module": ("from numpy.fft import fft", "fft(x)", "numpy.fft.fft"),
    "NumPy's sort": ("from numpy import sort as arranged", "arranged(x)", "numpy.sort"),
    "NumPy's spacing": ("import numpy", "numpy.spacing(x)", "numpy.spacing"),
    "standard library": ("import cmath as c", "c.isclose(x, x)", "cmath.isclose"),
}


def named(path: str) -> Any:
    """What a dotted name stands for."""
    for cut in range(path.count("."), 0, -1):
        module, *rest = [".".join(path.split(".")[:cut]), *path.split(".")[cut:]]
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        for part in rest:
            found = getattr(found, part)
        return found
    raise AssertionError(path)


@pytest.mark.parametrize("kind", CALLS)
def test_a_function_without_a_rule_is_called_by_its_own_name(kind: str) -> None:
    imports, call, wanted = CALLS[kind]
    match = re.search(r"(?:import|from) (\w+)", imports)
    assert match
    pytest.importorskip(match[1])
    cell = Cell(f"{imports}\n\n\ndef f(x):\n    return {call}")
    with pytest.raises(CompileError) as caught:
        differentiable_broadcast(cell.names["f"]).inspect_ir("float64")
    assert caught.value.message.partition(": it ")[0] == f"there is no derivative rule for {wanted}"
    if not wanted.startswith("rv."):
        assert callable(named(wanted))


@pytest.mark.slow
def test_every_ufunc_of_scipy_is_found_where_it_is() -> None:
    special = pytest.importorskip("scipy.special")
    for name in special.__all__:
        found = getattr(special, name)
        if isinstance(found, np.ufunc):
            assert named(home(found)) is found
            assert home(found).startswith("scipy.special.")
    for name in np.__all__:
        found = getattr(np, name)
        if isinstance(found, np.ufunc):
            assert home(found) == f"numpy.{found.__name__}"


def test_an_object_of_any_attribute_leads_nowhere() -> None:
    assert not leads_to(MagicMock(), len)
    assert leads_to(len, len)
    assert home(MagicMock()) == ""
