"""Calls with JAX's arrays and tracers: values, dtypes, structures, and what is refused."""

# ruff: noqa: E402 (imports follow `importorskip`)

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from suites import sampled

from dualbcast import ArgumentError, BackendError, DTypeError, ShapeError, differentiable_broadcast, graph


@differentiable_broadcast
def mixed(x: float, y: float) -> float:
    return x * y + y if x > 0 else y - x


def in_jax(x: Any, y: Any) -> Any:
    return jnp.where(x > 0, x * y + y, y - x)


X, Y = np.linspace(-1, 1, 6, dtype=np.float32)[:, None], np.linspace(0, 2, 4, dtype=np.float32)


def test_jax_arrays_in_give_jax_arrays_out() -> None:
    found = mixed(jnp.asarray(X), jnp.asarray(Y))
    assert isinstance(found, jax.Array)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, mixed(X, Y))


def test_numpy_arrays_and_numbers_may_stand_beside_jax_arrays() -> None:
    for call in (mixed, jax.jit(mixed)):
        np.testing.assert_allclose(call(jnp.asarray(X), Y.astype(np.float64)), mixed(X, Y), rtol=1e-6)
        np.testing.assert_allclose(call(jnp.asarray(X), 2), mixed(X, np.float32(2)), rtol=1e-6)
        np.testing.assert_allclose(call(jnp.asarray(X), np.float64(2)), mixed(X, np.float32(2)), rtol=1e-6)


VALUES: dict[str, Callable[[], Any]] = {
    "float32": lambda: jnp.ones(3, jnp.float32),
    "float16": lambda: jnp.full(3, 0.3, jnp.float16),
    "bfloat16": lambda: jnp.full(3, 0.3, jnp.bfloat16),
    "int32": lambda: jnp.arange(3),
    "int8": lambda: jnp.arange(3, dtype=jnp.int8),
    "uint8": lambda: jnp.arange(3, dtype=jnp.uint8),
    "weak float": lambda: jnp.asarray(0.5),
    "float": lambda: 0.3,
    "int": lambda: 2,
    "numpy float64": lambda: np.full(3, 0.3),
    "numpy int64": lambda: np.arange(3),
    "numpy number": lambda: np.float64(0.3),
}
WIDE = {
    "float64": lambda: jnp.full(3, 0.3, jnp.float64),
    "int64": lambda: jnp.arange(3),
    "uint64": lambda: jnp.arange(3, dtype=jnp.uint64),
}


FIRSTS = [(each, x64) for x64 in (False, True) for each in (VALUES | WIDE if x64 else VALUES)]


@pytest.mark.parametrize("case", sampled(FIRSTS, 16), ids=str)
def test_dtypes_promote_as_in_jax(case: tuple[str, bool]) -> None:
    first, x64 = case
    with jax.enable_x64(x64):
        every = VALUES | (WIDE if x64 else {})
        for second, make in every.items():
            x, y = every[first](), make()
            if not (isinstance(x, jax.Array) or isinstance(y, jax.Array)):
                continue
            found, wanted = mixed(x, y), in_jax(x, y)
            # Integers are of 64 bits in a scalar function, or what JAX has in their place; a uint64 is a float.
            dtype = wanted.dtype
            if not jnp.issubdtype(dtype, np.floating):
                dtype = (jnp.zeros(()) if "uint64" in (first, second) else jnp.arange(1)).dtype
            assert found.dtype == dtype, (first, second)
            # Arithmetic on float16 and bfloat16 is in float32, and rounded once at the end.
            narrow = jnp.finfo(dtype).eps if dtype.itemsize == 2 else 1e-6  # ml_dtypes knows bfloat16
            np.testing.assert_allclose(
                np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=4 * float(narrow)
            )
            assert jax.eval_shape(mixed, x, y).dtype == dtype
            jitted = jax.jit(mixed)(x, y)
            assert jitted.dtype == dtype
            np.testing.assert_array_equal(np.asarray(jitted, np.float64), np.asarray(found, np.float64))


def test_a_python_number_is_not_rounded_to_bfloat16() -> None:
    shifted = differentiable_broadcast(lambda x, y: (x - 1) * y)
    found = shifted(jnp.full(2, 2, jnp.bfloat16), 1 / 3)
    assert found.dtype == jnp.bfloat16
    exact = differentiable_broadcast(lambda x, y: x - y)(jnp.full(2, 1, jnp.bfloat16), 0.998046875 + 2**-12)
    assert float(exact[0]) == float(jnp.bfloat16(1 - (0.998046875 + 2**-12)))


def test_gradients_have_the_dtypes_of_the_arguments() -> None:
    x, y = jnp.full((4, 1), 0.75, jnp.bfloat16), jnp.linspace(0, 2, 3, dtype=jnp.float32)
    slopes = jax.grad(lambda x, y: jnp.sum(mixed(x, y)), (0, 1))(x, y)
    assert [each.dtype for each in slopes] == [jnp.bfloat16, jnp.float32]
    np.testing.assert_allclose(np.asarray(slopes[0], np.float32), 3.0)
    np.testing.assert_allclose(slopes[1], 7.0)


class Pair(NamedTuple):
    low: float
    high: tuple[float, int]


@jax.tree_util.register_dataclass
@dataclass
class Point:
    x: float
    y: float


def test_structures_are_those_that_the_function_returns() -> None:
    @differentiable_broadcast
    def pair(x: float) -> Pair:
        return Pair(x, (2 * x, int(x)))

    found = jax.jit(pair)(jnp.array([1.5, 2.5]))
    assert isinstance(found, Pair)
    np.testing.assert_array_equal(found.high[0], [3, 5])
    assert found.high[1].dtype == np.int32
    np.testing.assert_array_equal(found.high[1], [1, 2])
    slopes = jax.vmap(jax.grad(lambda x: pair(x).high[0] + pair(x).low))(jnp.array([1.5, 2.5]))
    np.testing.assert_array_equal(slopes, [3, 3])

    @differentiable_broadcast
    def point(x: float) -> Point:
        return Point(x, -x)

    found = jax.jit(jax.vmap(jax.jacfwd(point)))(jnp.ones(2))
    assert isinstance(found, Point)
    np.testing.assert_array_equal(found.y, [-1, -1])


def test_captured_arrays_are_arguments() -> None:
    weight = np.array([1.0, 2.0, 3.0], np.float32)

    @differentiable_broadcast
    def weighted(x: float) -> float:
        return x * weight

    np.testing.assert_array_equal(weighted(jnp.ones(3)), weight)
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: jnp.sum(weighted(x))))(jnp.ones((2, 1))), [[6], [6]])
    weight = weight + 1
    np.testing.assert_array_equal(weighted(jnp.ones(3)), weight)


def test_shapes_are_known_without_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it was compiled")

    monkeypatch.setattr("dualbcast.interop.xla.prepare", refuse)
    found = jax.eval_shape(
        jax.value_and_grad(lambda x, y: jnp.sum(mixed(x, y))),
        jax.ShapeDtypeStruct((5, 1), np.float32),
        jax.ShapeDtypeStruct((7,), np.float16),
    )
    assert [each.shape for each in found] == [(), (5, 1)]


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(ShapeError, match=r"x \(2,\), y \(3,\)"):
        mixed(jnp.ones(2), jnp.ones(3))
    with pytest.raises(ShapeError, match=r"x \(2,\), y \(3,\)"):
        jax.jit(mixed)(jnp.ones(2), jnp.ones(3))


def test_calls_run_where_jit_is_switched_off() -> None:
    @differentiable_broadcast
    def wave(x, y):
        return x * x * math.sin(y)

    x = np.array([0.5, -2.0, 3.0])
    with jax.disable_jit():
        value, slope = jax.jit(jax.value_and_grad(lambda x: wave(x, 2.0).sum()))(jnp.asarray(x))
        rows = jax.vmap(wave, (0, None))(jnp.asarray(x), 2.0)
    np.testing.assert_allclose(value, (x * x).sum() * math.sin(2.0), rtol=1e-6)
    np.testing.assert_allclose(slope, 2 * x * math.sin(2.0), rtol=1e-6)
    np.testing.assert_allclose(rows, x * x * math.sin(2.0), rtol=1e-6)


def test_dtypes_without_kernels_are_refused() -> None:
    for value in (jnp.ones(2, jnp.float8_e4m3fn), jax.random.key(0)):
        with pytest.raises((DTypeError, ArgumentError), match="x"):
            mixed(value, 1.0)
    with pytest.raises(ArgumentError, match="int32 cannot hold"):
        mixed(jnp.ones(2), 2**40)


def test_arrays_of_other_libraries_beside_are_refused() -> None:
    with pytest.raises(ArgumentError, match="Variable"):
        graph.grad(lambda v: np.sum(mixed(v, jnp.ones(3))))(np.ones(3))
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ArgumentError, match=r"x is a JAX array and y is a pandas\.Series"):
        mixed(jnp.ones(3), pandas.Series([1.0, 2.0, 3.0]))


def test_complex_numbers_are_those_of_jax() -> None:
    f = differentiable_broadcast(lambda z, a: z * z * a)
    z = jnp.asarray([1 + 2j, -1j], np.complex64)
    for call in (f, jax.jit(f)):
        np.testing.assert_allclose(call(z, 2.0), 2 * np.asarray(z) ** 2)
        assert call(z, 2.0).dtype == np.complex64
    _, pullback = f.vjp(z, 2.0)
    gradient, _ = pullback(jnp.ones(2, np.complex64))
    np.testing.assert_allclose(gradient, (4 * np.asarray(z)).conj())
    np.testing.assert_allclose(jax.grad(lambda z: f(z, 2.0).real.sum())(z), 4 * np.asarray(z))


def test_out_is_refused() -> None:
    with pytest.raises(ArgumentError, match="out="):
        mixed(jnp.ones(3), 1.0, out=np.ones(3))


def test_the_interpreter_and_limits_of_iterations_run_by_a_call_into_python() -> None:
    from dualbcast import IterationError

    slow = differentiable_broadcast(backend="python")(mixed._function)
    x, y = jnp.asarray(X), jnp.asarray(Y)
    np.testing.assert_allclose(jax.jit(slow)(x, y), mixed(x, y), rtol=1e-6)
    wanted = jax.grad(lambda x: jnp.sum(mixed(x, y)))(x)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: jnp.sum(slow(x, y))))(x), wanted, rtol=1e-6)

    @differentiable_broadcast(max_iterations=5)
    def halved(x: float) -> float:
        while x > 1:
            x = x / 2
        return x

    np.testing.assert_array_equal(jax.jit(halved)(jnp.array([3.0, 8.0])), [0.75, 1])
    with pytest.raises(Exception, match=IterationError.__name__):
        jax.block_until_ready(jax.jit(halved)(jnp.array([3.0, 1e9])))

    reciprocal = differentiable_broadcast(lambda x: 1.0 / x, check="finite")
    np.testing.assert_array_equal(jax.jit(reciprocal)(jnp.array([2.0, 4.0])), [0.5, 0.25])
    with pytest.raises(Exception, match=r"NonFiniteError: .*1\.0 / 0\.0 = inf here"):
        jax.block_until_ready(jax.jit(reciprocal)(jnp.array([2.0, 0.0])))


def test_the_cuda_backend_is_refused_on_a_cpu() -> None:
    with pytest.raises(BackendError, match="cuda backend"):
        differentiable_broadcast(backend="cuda")(mixed._function)(jnp.ones(2), 1.0)


def test_other_devices_are_refused_when_they_are_compiled_for() -> None:
    from jax import export

    with pytest.raises(BackendError, match="neither a CPU nor an NVIDIA GPU"):
        export.export(jax.jit(mixed), platforms=["tpu"])(jnp.ones(2), jnp.ones(2))


def run(folder: Path, code: str, **environment: str) -> str:
    """What a program in a file prints, in a process of its own."""
    (folder / "program.py").write_text(code)
    command = [sys.executable, str(folder / "program.py")]
    finished = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


SQUARED = """
import jax, jax.numpy as jnp, numpy as np
from dualbcast import differentiable_broadcast
f = differentiable_broadcast(lambda x, y: x * x * y if x > 0 else y)
x = jnp.arange(-2.0, 3.0)
"""


def test_the_package_and_its_calls_on_numpy_import_no_jax(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np, dualbcast\nf = dualbcast.differentiable_broadcast(lambda x: x * x)\nf(np.ones(3))\n"
    )
    assert (
        run(tmp_path, code + "print('jax' in sys.modules, 'dualbcast.interop.jax_adapter' in sys.modules)")
        == "False False\n"
    )


def test_programs_that_jax_keeps_on_disk_run_in_another_process(tmp_path: Path) -> None:
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    code = SQUARED + "print(jax.jit(jax.vmap(jax.grad(f), (0, None)))(x, 3.0))"
    first = run(tmp_path, code, **kept)
    names = sorted(path.name for path in (tmp_path / "cache").iterdir() if path.name.endswith("-cache"))
    assert names
    assert run(tmp_path, code, **kept) == first == "[ 0.  0.  0.  6. 12.]\n"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir() if path.name.endswith("-cache")) == names


SHARDED = """
import math
import numpy as np, jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from dualbcast import differentiable_broadcast
f = differentiable_broadcast(lambda x, y: x * x * y if x > 0 else y)
mesh = Mesh(np.array(jax.devices()), ("d",))
x, y = jnp.arange(-4.0, 4.0).reshape(4, 2), jnp.array([2.0, 3.0])
split = jax.device_put(x, NamedSharding(mesh, P("d")))
mapped = jax.shard_map(f, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=False)
gradient = lambda g: jax.jit(jax.grad(lambda x, y: jnp.sum(jnp.sin(g(x, y))), (0, 1)))
wanted = f(x, y), *gradient(f)(x, y)
for g in (f, mapped):
    for mine, its in zip((jax.jit(g)(split, y), *gradient(g)(split, y)), wanted, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6)
print(len(jax.devices()), jax.jit(mapped)(split, y).sharding.spec)
"""


def test_arrays_on_several_devices_give_the_same(tmp_path: Path) -> None:
    assert run(tmp_path, SHARDED, XLA_FLAGS="--xla_force_host_platform_device_count=2").startswith("2 ")


def test_an_exported_program_says_what_is_missing_in_another_process(tmp_path: Path) -> None:
    """JAX itself refuses to export a call of foreign code, unless it is told to."""
    pytest.importorskip("flatbuffers")
    code = SQUARED + (
        "from jax import export\n"
        "try:\n    export.export(jax.jit(f))(x, x)\n"
        "except ValueError as error:\n    print('dualbcast' in str(error))\n"
        "check = export.DisabledSafetyCheck.custom_call('dualbcast_1')\n"
        "exported = export.export(jax.jit(f), disabled_checks=[check])(x, x)\n"
        f"open({str(tmp_path / 'f')!r}, 'wb').write(exported.serialize())\n"
        "print(exported.call(x, x))\n"
    )
    assert run(tmp_path, code) == "True\n[-2. -1.  0.  1.  8.]\n"
    code = SQUARED + (
        "from jax import export\n"
        "import dualbcast.interop.jax_adapter\n"
        f"exported = export.deserialize(open({str(tmp_path / 'f')!r}, 'rb').read())\n"
        "try:\n    exported.call(x, x)\n"
        "except Exception as error:\n    print('not prepared' in str(error) or 'dualbcast_1' in str(error))\n"
        "f(x, x)\n"
        "print(exported.call(x, x))\n"
    )
    assert run(tmp_path, code) == "True\n[-2. -1.  0.  1.  8.]\n"
