"""Functions of a program, which no other process can import, go there by `cloudpickle` with the text of the program."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dualbcast import CompileError, differentiable_broadcast, not_differentiable, rule

cloudpickle = pytest.importorskip("cloudpickle")

PROGRAM = """
import math
import sys
from dataclasses import dataclass
from functools import partial

import cloudpickle
import numpy as np
from dualbcast import custom_partials, differentiable_broadcast, graph

RATE = 0.5


def decay(x, rate=RATE):
    return math.exp(-rate * x)


@dataclass(frozen=True)
class Law:
    size: float

    @property
    def double(self):
        return 2.0 * self.size

    def of(self, x):
        return self.double * decay(x)


@custom_partials(lambda x, y: (3.0,))
def ruled(x):
    return x


LAW = Law(1.5)


@differentiable_broadcast
def inner(x):
    return x * x


@differentiable_broadcast
def outer(x, y=2.0):
    return LAW.of(x) + inner(x) * y + ruled(x)


@differentiable_broadcast(whole="table")
def looked_up(i, table):
    return table[i]


@differentiable_broadcast
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def made(power):
    @differentiable_broadcast(static="n")
    def closure(x, n=1):
        return x**power + n
    return closure


def loss(x):
    return np.sum(inner(x) * x)


def slope(x):
    return np.sum(graph.grad(loss)(x))


dot = differentiable_broadcast(lambda v, w: v @ w, signature="(2),(2)->()")
functions = {
    "graph": {
        "grad": graph.grad(loss),
        "value_and_grad": graph.value_and_grad(loss),
        "grad of grad": graph.grad(slope),
        "jacobian": graph.jacobian(inner),
        "hessian": graph.hessian(loss),
        "vmap": graph.vmap(loss),
        "compile": graph.compile(loss),
        "checkpoint": graph.checkpoint(loss),
    },
    "outer": outer,
    "outer.partial": outer.partial("x"),
    "closure": made(3),
    "lambda": differentiable_broadcast(lambda x: 4.0 * decay(x)),
    "dot": dot,
    "partial": differentiable_broadcast(partial(decay, rate=2.0)),
    "looked_up": looked_up,
    "method": partial(np.multiply, 2.0),
}
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump(functions, file)
"""

READER = """
import pickle
import sys

import numpy as np
from dualbcast import BoundsError

with open(sys.argv[1], "rb") as file:
    functions = pickle.load(file)
x = np.array([0.5, 2.0])
value, jacobian = functions["outer"].value_and_jacobian(x)
results = {
    "outer": value,
    "slope": jacobian["x"],
    "outer.partial": functions["outer.partial"](x),
    "closure": functions["closure"](x, n=2),
    "lambda": functions["lambda"](x),
    "dot": functions["dot"](np.eye(2), x),
    "partial": functions["partial"](x),
}
columns = {"vmap": np.stack([x, x])}
results["graph"] = {name: f(columns.get(name, x)) for name, f in functions["graph"].items()}
try:
    functions["looked_up"](np.array([5]), x)
except BoundsError as error:
    results["error"] = str(error)
with open(sys.argv[2], "wb") as file:
    pickle.dump(results, file)
"""

X = np.array([0.5, 2.0])


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What another process gets from the functions of a program."""
    folder = tmp_path_factory.mktemp("programs")
    names = {"program.py": PROGRAM, "reader.py": READER}
    for name, text in names.items():
        (folder / name).write_text(text)
    functions, found = folder / "functions.pickle", folder / "results.pickle"
    for command in (["program.py", functions], ["reader.py", functions, found]):
        finished = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
        (folder / "program.py").unlink(missing_ok=True)
    return dict(pickle.loads(found.read_bytes()))


def test_values_and_derivatives(results: dict[str, Any]) -> None:
    decay = np.exp(-0.5 * X)
    np.testing.assert_allclose(results["outer"], 3.0 * decay + 2.0 * X**2 + X, rtol=1e-15)
    for name in ("slope", "outer.partial"):
        np.testing.assert_allclose(results[name], -1.5 * decay + 4.0 * X + 3.0, rtol=1e-15)
    np.testing.assert_allclose(results["closure"], X**3 + 2, rtol=1e-15)
    np.testing.assert_allclose(results["lambda"], 4.0 * decay, rtol=1e-15)
    np.testing.assert_allclose(results["dot"], X, rtol=1e-15)
    np.testing.assert_allclose(results["partial"], np.exp(-2.0 * X), rtol=1e-15)


def test_errors_show_the_line(results: dict[str, Any]) -> None:
    assert "return table[i]" in results["error"]
    assert "of another process" in results["error"]


def test_in_this_process() -> None:
    """Functions of a module that can be imported go by name, whatever pickles them."""
    assert cloudpickle.loads(cloudpickle.dumps(named)) is named
    assert pickle.loads(pickle.dumps(named)) is named
    local = differentiable_broadcast(lambda x: 3.0 * x)
    np.testing.assert_array_equal(cloudpickle.loads(cloudpickle.dumps(local))(X), 3.0 * X)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(local)


@differentiable_broadcast
def named(x: float) -> float:
    return 2.0 * x


def test_a_function_without_its_text_says_so() -> None:
    code = cloudpickle.loads(cloudpickle.dumps(eval("lambda x: 5.0 * x")))
    with pytest.raises(CompileError, match="its text is not in <dynamic-code>"):
        differentiable_broadcast(code)(1.0)


def test_a_rule_of_the_program_is_refused() -> None:
    """No other process has it, and the derivative of the function's body may be another one."""

    def bent(x: float) -> float:
        return x if x > 0 else 0.5 * x

    rule("bent_for_pickles", lambda x, y: (1.0,), function=bent)  # noqa: ARG005
    with pytest.raises(pickle.PicklingError, match=r"bent\(\) has a rule of yours, bent_for_pickles"):
        cloudpickle.dumps(differentiable_broadcast(lambda x: 2.0 * bent(x)))


def test_marks_go_along() -> None:
    @not_differentiable
    def level(x: float) -> int:
        return int(4 * x)

    function = cloudpickle.loads(cloudpickle.dumps(differentiable_broadcast(lambda x: level(x) * 1.0)))
    np.testing.assert_array_equal(function(X), [2.0, 8.0])
    with pytest.raises(CompileError, match="not differentiable"):
        function.jacobian(X)


def test_transformations_of_the_graph(results: dict[str, Any]) -> None:
    found, total = results["graph"], float(np.sum(X**3))
    np.testing.assert_allclose(found["grad"], 3 * X**2)
    np.testing.assert_allclose(found["value_and_grad"][0], total)
    np.testing.assert_allclose(found["value_and_grad"][1], 3 * X**2)
    np.testing.assert_allclose(found["grad of grad"], 6 * X)
    np.testing.assert_allclose(found["jacobian"], np.diag(2 * X))
    np.testing.assert_allclose(found["hessian"], np.diag(6 * X))
    np.testing.assert_allclose(found["vmap"], [total, total])
    for name in ("compile", "checkpoint"):
        np.testing.assert_allclose(found[name], total)
