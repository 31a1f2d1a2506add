"""Vectors and matrices of complex numbers: in kernels, as arguments and results of functions with a signature, and
captured, against NumPy and differences of sixth order along the real and the imaginary axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, graph
from dualbcast.errors import ArgumentError, BlockKeyError, CompileError, ShapeError

X_GATE = np.array([[0, 1], [1, 0]], complex)
PHASE_GATE = np.array([[1, 0], [0, 1j]])
POINTS = 4


def thin_film(index, thickness, wavelength):
    """The reflected amplitude of layers on glass, by transfer matrices, and what is reflected of the power."""
    whole = np.eye(2, dtype=complex)
    for n, d in zip(index, thickness):  # noqa: B905 (a kernel knows no keyword of zip)
        delta = 2 * math.pi * n * d / wavelength
        whole = whole @ np.array([[np.cos(delta), 1j * np.sin(delta) / n], [1j * n * np.sin(delta), np.cos(delta)]])
    b, c = whole @ np.array([1.0, 1.52])
    r = (b - c) / (b + c)
    return r, abs(r) ** 2


def wave_plate(field, angle, delay):
    """Jones vectors behind a wave plate."""
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return turn.T @ np.diag(np.exp(np.array([0.5j, -0.5j]) * delay)) @ turn @ field


def expectation(hamiltonian, psi):
    return np.vdot(psi, hamiltonian @ psi).real / np.linalg.norm(psi) ** 2


def spin_rotation(axis, angle):
    """The exponential of -i angle/2 times the Pauli matrix along an axis."""
    x, y, z = axis / np.linalg.norm(axis)
    pauli = np.array([[z, x - 1j * y], [x + 1j * y, -z]])
    return math.cos(angle / 2) * np.eye(2) - 1j * math.sin(angle / 2) * pauli


def impedances(y, current):
    return np.linalg.solve(y, current), np.linalg.det(y), np.linalg.inv(y).conj().T


def four_ports(s, a):
    return np.linalg.solve(np.eye(4) - 0.3 * s, a)


def circuit(psi):
    """Captured gates."""
    return PHASE_GATE @ (X_GATE @ psi)


def reductions(z, w):
    total = z.sum() + z.mean() * w[0] + np.prod(w) + np.trace(np.outer(z, w.conj()))
    parts = np.cumsum(z)[1].imag + np.var(w) + np.std(z) + abs(z).max() + np.angle(w)[1]
    return total, parts, np.stack([z.real, w.imag]), np.where(z.real > 0, z, 1j * w), np.einsum("i,j->ij", z, w)


def steps(z, count):
    total, k = np.zeros(2, dtype=complex), 0
    while k < count:
        total, k = total * z + 1.0, k + 1
    if total[0].real > 0.5:
        total = 2 * total
    return total


CASES: dict[str, tuple[Callable[..., Any], str, str]] = {
    # The letters are of complex arguments, real ones and integers.
    "thin_film": (thin_film, "(2),(2),()->(),()", "crr"),
    "wave_plate": (wave_plate, "(2),(),()->(2)", "crr"),
    "expectation": (expectation, "(2,2),(2)->()", "cc"),
    "spin_rotation": (spin_rotation, "(3),()->(2,2)", "rr"),
    "impedances": (impedances, "(2,2),(2)->(2),(),(2,2)", "cr"),
    "four_ports": (four_ports, "(4,4),(4)->(4)", "cc"),
    "circuit": (circuit, "(2)->(2)", "c"),
    "reductions": (reductions, "(2),(2)->(),(),(2,2),(2),(2,2)", "cc"),
    "steps": (steps, "(2),()->(2)", "ci"),
}
# Their second derivatives compile for seconds.
LARGE = ("four_ports", "thin_film", "impedances")
EVERY = pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each == "four_ports")) for each in CASES]
)


def function_of(name: str, **options: Any) -> Any:
    return differentiable_broadcast(signature=CASES[name][1], **options)(CASES[name][0])


def arguments_of(name: str, dtype: type = np.complex128) -> list[Any]:
    """Arrays with POINTS in front of their cores."""
    _, signature, letters = CASES[name]
    random = np.random.default_rng(len(name))
    found = []
    for letter, dims in zip(letters, signature.partition("->")[0].split("),("), strict=True):
        core = [int(each) for each in dims.strip("()").split(",") if each]
        real, imag = random.uniform(0.4, 1.4, (2, POINTS, *core))
        whole = np.array(real + 0.7j * imag, dtype)
        found.append({"c": whole, "r": whole.real.copy(), "i": np.arange(POINTS)}[letter])
    return found


def outputs_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


def plain(name: str, arguments: list[Any]) -> list[Any]:
    """The outputs in NumPy, point by point."""
    rows = [outputs_of(CASES[name][0](*each)) for each in zip(*arguments, strict=True)]
    return [np.array(column) for column in zip(*rows, strict=True)]


def directions(name: str, arguments: list[Any]) -> Iterator[tuple[int, str, tuple[int, ...], complex]]:
    """Of each float argument its place, the name of the block, the index in the core, and the unit to go along."""
    function, _, letters = CASES[name]
    for at, letter in enumerate(letters):
        label = function.__code__.co_varnames[at]
        for index in np.ndindex(*arguments[at].shape[1:]):
            if letter == "c":
                yield at, f"{label}.real", index, 1.0
                yield at, f"{label}.imag", index, 1j
            elif letter == "r":
                yield at, label, index, 1.0


def difference(name: str, arguments: list[Any], at: int, index: tuple[int, ...], unit: complex) -> list[Any]:
    """The derivatives of the outputs along a direction, by central differences of sixth order."""
    totals: list[Any] = []
    for offset, weight in ((1, 45.0), (2, -9.0), (3, 1.0)):
        for sign in (1, -1):
            moved = [each.copy() for each in arguments]
            moved[at][(slice(None), *index)] += sign * offset * 1e-3 * unit
            totals.append([sign * weight * each / 60e-3 for each in plain(name, moved)])
    return [sum(column) for column in zip(*totals, strict=True)]


@EVERY
@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_values_and_jacobians(name: str, backend: str) -> None:
    function, arguments = function_of(name, backend=backend), arguments_of(name)
    for _turn in range(2):  # later calls write to arrays with cores
        value, jacobian = function.value_and_jacobian(*arguments)
        for found, expected in zip(outputs_of(value), plain(name, arguments), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        for at, block, index, unit in directions(name, arguments):
            wanted = difference(name, arguments, at, index, unit)
            for found, expected in zip(outputs_of(jacobian[block]), wanted, strict=True):
                np.testing.assert_allclose(found[(..., *index)], expected, rtol=1e-8, atol=1e-8)
    for found, expected in zip(outputs_of(function(*arguments)), outputs_of(value), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in LARGE)) for each in CASES])
def test_tangents_cotangents_and_second_derivatives(name: str) -> None:
    function, arguments = function_of(name), arguments_of(name)
    random = np.random.default_rng(1)
    floats = [at for at, letter in enumerate(CASES[name][2]) if letter != "i"]
    wrt = tuple([function.__wrapped__.__code__.co_varnames[at] for at in floats])

    def drawn(like: Any) -> Any:
        real, imag = random.standard_normal((2, *np.shape(like)))
        return real + 1j * imag if np.iscomplexobj(like) else real

    tangents = [drawn(arguments[at]) for at in floats]
    along = dict(zip(wrt, tangents, strict=True))
    wanted = [np.zeros(each.shape, complex) for each in plain(name, arguments)]
    for at, block, index, unit in directions(name, arguments):
        part = along[block.partition(".")[0]][(slice(None), *index)]
        part = part.imag if unit == 1j else part.real
        for total, each in zip(wanted, difference(name, arguments, at, index, unit), strict=True):
            total += each * part.reshape(-1, *[1] * (each.ndim - 1))
    cotangents = tuple(map(drawn, outputs_of(function(*arguments))))
    for _turn in range(2):
        _, pushed = function.jvp(arguments, along)
        for found, expected in zip(outputs_of(pushed), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
        for pulled in (
            function.vjp(*arguments, wrt=wrt)[1](*cotangents),
            function.value_and_vjp(arguments, cotangents if len(cotangents) > 1 else cotangents[0], wrt=wrt)[1],
        ):
            assert [each.dtype for each in pulled] == [arguments[at].dtype for at in floats]
            ends = sum(np.vdot(c, t).real for c, t in zip(cotangents, wanted, strict=True))
            begins = sum(np.vdot(c, t).real for c, t in zip(pulled, tangents, strict=True))
            np.testing.assert_allclose(begins, ends, rtol=1e-7)
    # The change of the Jacobian along the tangents.
    changed = function.hvp(arguments, along)
    ahead, behind = [
        function.jacobian(
            *[x + s * 1e-5 * t for x, t in zip(arguments, tangents, strict=False)], *arguments[len(floats) :]
        )
        for s in (1, -1)
    ]
    for block in changed.wrt:
        for found, one, two in zip(*[outputs_of(each[block]) for each in (changed, ahead, behind)], strict=True):
            np.testing.assert_allclose(found, (one - two) / 2e-5, rtol=1e-5, atol=1e-5 * max(1, np.abs(found).max()))


def test_a_hessian_and_sums() -> None:
    function, arguments = function_of("expectation"), arguments_of("expectation")
    hessian = function.hessian(*arguments)
    step = 1e-5
    for part, unit in (("real", 1), ("imag", 1j)):
        moved = [[arguments[0], arguments[1] + s * step * unit * np.eye(2)[0]] for s in (1, -1)]
        ahead, behind = [function.jacobian(*each) for each in moved]
        for block in ahead.wrt:
            found = hessian[block, f"psi.{part}"][..., 0]
            np.testing.assert_allclose(found, (ahead[block] - behind[block]) / (2 * step), rtol=1e-6, atol=1e-6)
    whole, psi = arguments[0], arguments[1][0]
    total, slopes = function.sum(whole, psi, wrt="psi", order=1)
    np.testing.assert_allclose(total, function(whole, psi).sum())
    for block in ("psi.real", "psi.imag"):
        np.testing.assert_allclose(slopes[block], function.jacobian(whole, psi)[block].sum(axis=0))


def test_a_weight_is_that_of_both_parts() -> None:
    @differentiable_broadcast(signature="(2),(2)->(2),()")
    def residuals(p, x):
        return p * x - np.array([1 + 1j, 2 - 1j]), abs(p[0]) * x[0].real

    random = np.random.default_rng(0)
    x, p, w = random.normal(size=(6, 2)) * (1 + 0.5j), np.array([0.7 - 0.2j, 1.1 + 0.4j]), random.uniform(1, 2, (6, 2))
    of_number = random.uniform(1, 2, 6)
    found = residuals.normal_equations(p, x, wrt="p", weights=(w, of_number))
    vector, number = residuals(p, x)
    np.testing.assert_allclose(found.sum_of_squares, np.sum(w * abs(vector) ** 2) + np.sum(of_number * number**2))
    jacobian = residuals.jacobian(p, x, wrt="p")
    for block in ("p.real", "p.imag"):
        one, other = jacobian[block]
        wanted = np.sum((w * vector)[..., None].conj() * one, axis=(0, 1)).real + (of_number * number) @ other
        np.testing.assert_allclose(found.gradient[block], wanted)
    total = residuals.normal_equations(p, x, wrt="p").sum_of_squares
    np.testing.assert_allclose(total, np.sum(abs(vector) ** 2) + np.sum(number**2))


def test_one_part_of_an_argument_is_an_argument_of_its_own() -> None:
    phase = differentiable_broadcast(signature="(2),()->(2)")(lambda v, p: v * np.exp(1j * p))
    v, p = np.array([[1 + 2j, 0.5 - 1j], [2j, 3.0], [1.0, -1j]]), np.array([0.2, 0.4, 0.6])
    cotangent = np.array([[1 - 1j, 2.0], [1j, 0.5], [3.0, 1 + 1j]])
    pullback = phase.vjp(v, p, wrt=("v.real", "p"))[1]
    assert pullback.wrt == ("v.real", "p")
    of_real, of_phase = pullback(cotangent)
    turned = np.exp(1j * p)[:, None]
    np.testing.assert_allclose(of_real, (cotangent.conj() * turned).real)
    np.testing.assert_allclose(of_phase, (cotangent.conj() * 1j * v * turned).real.sum(axis=1))
    tangent = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    np.testing.assert_allclose(phase.jvp((v, p), {"v.real": tangent})[1], tangent * turned)


def test_a_single_precision_call_and_lists() -> None:
    function, arguments = function_of("wave_plate"), arguments_of("wave_plate")
    single = [
        each.astype(each.real.dtype.str.replace("8", "4") if each.dtype.kind == "f" else "c8") for each in arguments
    ]
    assert function(*single).dtype == np.complex64
    np.testing.assert_allclose(function(*single), function(*arguments), rtol=1e-5)
    np.testing.assert_array_equal(function(*[each.tolist() for each in arguments]), function(*arguments))
    # Real numbers, and then complex ones again: each has a kernel of its own.
    real = function(arguments[0].real, *arguments[1:])
    np.testing.assert_allclose(real, plain("wave_plate", [arguments[0].real, *arguments[1:]])[0])
    np.testing.assert_allclose(function(*arguments), plain("wave_plate", arguments)[0])


def test_given_arrays() -> None:
    function, arguments = function_of("thin_film"), arguments_of("thin_film")
    wanted = function(*arguments)
    out = np.full(POINTS, np.nan, complex), np.full(POINTS, np.nan)
    assert function(*arguments, out=out)[0] is out[0]
    for found, expected in zip(out, wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    vector = np.full((POINTS, 2), np.nan, complex)
    waves = arguments_of("wave_plate")
    function_of("wave_plate")(*waves, out=vector)
    np.testing.assert_array_equal(vector, function_of("wave_plate")(*waves))
    given = function.value_and_jacobian(*arguments)
    later = [each * 1.1 for each in arguments]
    function.value_and_jacobian(*later, out=given)
    np.testing.assert_allclose(given[1]["index.imag"][0], function.jacobian(*later)["index.imag"][0], rtol=1e-13)


def test_a_decorated_scalar_function_captures_complex_arrays() -> None:
    impedance = np.array([1 + 1j, 2 - 1j, 0.5j])
    place = {"array": impedance}

    class Holder:
        Z = impedance

    @differentiable_broadcast
    def loss(current):
        return abs(Holder.Z * current + 1)

    def check() -> None:
        z, x = Holder.Z, np.array([1.0, 2.0, 3.0])
        value, jacobian = loss.value_and_jacobian(x)
        np.testing.assert_allclose(value, abs(z * x + 1), rtol=1e-14)
        np.testing.assert_allclose(jacobian["current"], ((z * x + 1).conj() * z).real / abs(z * x + 1), rtol=1e-13)

    check()
    Holder.Z = place["array"] * 2  # another array
    check()
    Holder.Z[0] = 5  # other elements
    check()
    Holder.Z = Holder.Z.real.copy()  # real numbers in the place of complex ones, and back again
    check()
    Holder.Z = Holder.Z + 1j
    check()


def test_in_a_graph() -> None:
    function, (hamiltonian, psi) = function_of("impedances"), arguments_of("impedances")

    def loss(y, current):
        voltages, determinant, _ = function(y, current)
        return np.sum(np.abs(voltages) ** 2) + np.sum(determinant.imag)

    def reference(y: Any, current: Any) -> Any:
        voltages, determinant, _ = plain("impedances", [y, current])
        return np.sum(np.abs(voltages) ** 2) + np.sum(determinant.imag)

    wanted = np.zeros(hamiltonian.shape, complex)
    for index in np.ndindex(*hamiltonian.shape):
        for unit in (1, 1j):
            for offset, weight in ((1, 45.0), (2, -9.0), (3, 1.0)):
                for sign in (1, -1):
                    moved = hamiltonian.copy()
                    moved[index] += sign * offset * 1e-3 * unit
                    wanted[index] += unit * sign * weight * reference(moved, psi) / 60e-3
    for call in (graph.value_and_grad(loss), graph.compile(graph.value_and_grad(loss))):
        for _turn in range(3):
            value, slope = call(hamiltonian, psi)
            np.testing.assert_allclose(value, reference(hamiltonian, psi))
            np.testing.assert_allclose(slope, wanted, rtol=1e-7, atol=1e-7)


def test_messages() -> None:
    psi = np.ones((2, 2), complex)
    jacobian = function_of("circuit").jacobian(psi)
    with pytest.raises(BlockKeyError, match=r"psi is complex, and psi\.real has the complex derivative"):
        jacobian["psi"]
    with pytest.raises(ShapeError, match="psi is"):
        function_of("circuit")(psi[:, :1])
    with pytest.raises(ArgumentError, match="a tangent is for one argument"):
        function_of("circuit").jvp((psi,), {"psi": psi, 0: psi})
    for function, message in (
        (lambda v: np.linalg.eigvalsh(np.array([[v[0], 1j], [-1j, v[1]]])), "eigvalsh of complex matrices"),
        (lambda v: np.sort(v * 1j), "complex"),
        (lambda v: (v * 1j).max() * v, "a number is needed here, and this is a complex number"),
        (lambda v: np.array(v * 1j, dtype=float), "a number is needed here, and this is a complex number"),
        (lambda v: v * 1j > v, "a number is needed here, and this is a complex number"),
    ):
        with pytest.raises(CompileError, match=message):
            differentiable_broadcast(signature="(2)->(2)")(function)(np.ones(2))
