"""The CPU backend: loops become vector code, kernels compile once, and are loaded without a compiler."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from cpu_kernels import (
    CELL,
    DOUBLE,
    Kernel,
    cell_arguments,
    cell_expected,
    cell_run,
    compiled,
    from_library,
    library_calls,
    renamed,
    run,
    source_of,
)

import dualbcast
from dualbcast import differentiable_broadcast, disk_cache
from dualbcast.codegen.llvm import target as llvm_target
from dualbcast.codegen.llvm.rows import WHOLE
from dualbcast.errors import BackendError
from dualbcast.kernel_spec import Layout
from dualbcast.runtime.cpu import kernel as cpu_kernel


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("shape", [(1, 1), (37, 53), (5, 300), (300, 5), (3, 16)])
def test_rows_with_their_own_control(shape):
    arguments = cell_arguments(*shape)
    np.testing.assert_allclose(cell_run(arguments), cell_expected(arguments), rtol=2e-6, atol=1e-6)


def test_control_by_rows_leaves_the_inner_loop():
    llvm = compiled(CELL).llvm()
    # Three loops without a branch in them: no masked access, and vector stores.
    (whole,) = re.findall(rf"^define [^\n]*@{WHOLE}\(.*?^}}", llvm, re.MULTILINE | re.DOTALL)
    assert "masked" not in whole
    assert re.search(r"store <\d+ x float>", whole)
    assert library_calls(whole) == from_library("exp", "tanh")


def test_control_by_elements_becomes_selects():
    body = """
        if c[k] != 0:
            y = tanh(x[k])
        elif x[k] > one:
            y = log(x[k])
        else:
            y = one
        out[k] = y
    """
    storage = {"c": "bool", "x": "float32"}
    source = source_of(body, "float32", storage, {"out": "float32"}, "one = float32(1.0)", vectors=2)
    x = np.random.default_rng(5).normal(1, 3, 1001).astype(np.float32)
    c = np.arange(1001, dtype=np.uint8) % 2
    (out,) = run(source, c, x)
    with np.errstate(invalid="ignore"):
        expected = np.where(c != 0, np.tanh(x.astype(float)), np.where(x > 1, np.log(x.astype(float)), 1))
    np.testing.assert_allclose(out, expected, rtol=5e-7)
    llvm = compiled(source).llvm()
    assert library_calls(llvm) == from_library("tanh", "log")


def test_any_partition_covers_each_element_once():
    arguments = cell_arguments(3, 7)
    whole = cell_run(arguments)
    for start, stop in itertools.combinations_with_replacement(range(22), 2):
        part = cell_run(arguments, pieces=[start, stop]).reshape(5, 21)
        assert np.isnan(part[:, :start]).all()
        assert np.isnan(part[:, stop:]).all()
        np.testing.assert_allclose(part[:, start:stop], whole.reshape(5, 21)[:, start:stop], rtol=1e-6, atol=1e-7)


def product_of_tanh(arity: int) -> Kernel:
    """y = tanh(x0)·tanh(x1)·… and its partials, from products of those before and those after."""
    names = [f"x{n}" for n in range(arity)]
    lines = [f"t{n} = tanh(x{n}[k])" for n in range(arity)] + ["p0 = one", f"s{arity} = one"]
    lines += [f"p{n + 1} = p{n} * t{n}" for n in range(arity)]
    lines += [f"s{n} = s{n + 1} * t{n}" for n in reversed(range(arity))]
    lines += [f"out[k] = p{arity}"] + [f"out_x{n}[k] = p{n} * s{n + 1} * (one - t{n} * t{n})" for n in range(arity)]
    outputs = ["out", *(f"out_{name}" for name in names)]
    return source_of(
        "\n".join(lines),
        "float32",
        dict.fromkeys(names, "float32"),
        dict.fromkeys(outputs, "float32"),
        "one = float32(1.0)",
        vectors=1,
    )


def test_many_pointers_do_not_stop_the_vectoriser():
    arity = 16
    inputs = [np.random.default_rng(n).normal(0, 3, 1003).astype(np.float32) for n in range(arity)]
    source = product_of_tanh(arity)
    value, *partials = run(source, *inputs)
    t = np.tanh(np.array(inputs, np.float64))
    np.testing.assert_allclose(value, t.prod(0), rtol=3e-5)
    for n, partial in enumerate(partials):
        others = np.delete(t, n, 0).prod(0)
        np.testing.assert_allclose(partial, others * (1 - t[n] ** 2), rtol=2e-4, atol=1e-7)
    llvm = compiled(source).llvm()
    assert len(re.findall(r"store <\d+ x float>", llvm)) >= arity + 1
    assert library_calls(llvm) == from_library("tanh")


def test_more_arrays_than_ctypes_hands_over():
    @differentiable_broadcast
    def total(*xs):
        s = 0.0
        for x in xs:
            s = s + x
        return s

    arrays = [np.arange(3.0) + k for k in range(1100)]
    for _ in range(2):  # the way of the first call, and that of the others
        np.testing.assert_array_equal(total(*arrays), np.sum(arrays, 0))


def test_code_can_be_read():
    kernel = compiled(DOUBLE)
    assert "define" in kernel.llvm()
    assert "double" in kernel.llvm()
    assert re.search(r"\bret", kernel.asm())


def test_one_kernel_for_each_source_and_flag():
    kernel = compiled(DOUBLE)
    assert cpu_kernel.compile_kernel(DOUBLE.program._replace(), False) is kernel
    assert compiled(DOUBLE, fastmath=True) is not kernel


def test_threads_compile_one_kernel(monkeypatch):
    built = []
    build = cpu_kernel._build
    monkeypatch.setattr(cpu_kernel, "_build", lambda *arguments: built.append(arguments) or build(*arguments))
    source, kernels = renamed(DOUBLE, "threads"), []
    workers = [threading.Thread(target=lambda: kernels.append(compiled(source))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(built) == 1
    assert len(kernels) == 4
    assert len(set(map(id, kernels))) == 1


def test_no_text_is_written(monkeypatch):
    monkeypatch.setattr(disk_cache, "write_text", lambda *_: pytest.fail("a text was written"))
    compiled(renamed(DOUBLE, "no file"))


def test_what_is_refused_is_an_error_that_names_a_file_of_the_function():
    source = source_of("out[k] = nothing(x[k])", "float64", {"x": "float64"}, {"out": "float64"})
    with pytest.raises(BackendError, match=r"element.*\.txt") as caught:
        compiled(source)
    assert "a fault of dualbcast's" in str(caught.value)
    (path,) = disk_cache.directory().rglob("element_*.txt")
    assert "nothing(load(x))" in path.read_text()
    assert caught.value.__suppress_context__  # of the compiler's error the message is enough


def test_without_a_cache_directory_kernels_compile(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "file"))
    (out,) = run(renamed(DOUBLE, "nowhere"), np.array([0.0, 1.0]))
    np.testing.assert_allclose(out, [0.0, 1 + np.tanh(1.0)])


SECOND = """
import sys
import numpy as np
from dualbcast import differentiable_broadcast
from dualbcast.codegen.program import KernelProgram
from dualbcast.ir.nodes import *
from dualbcast.kernel_spec import KernelSpec, Layout
from dualbcast.runtime.cpu import kernel as cpu
from dualbcast.runtime.cpu.kernel import launch
assert "llvmlite" not in sys.modules and "numba" not in sys.modules
program = eval(sys.argv[1])
x, out = np.linspace(-2, 2, 1001), np.zeros(1001)
for _ in range(2):
    launch(cpu.compile_kernel(program, False), 1001, (1001,), (x.ctypes.data, out.ctypes.data))
np.testing.assert_allclose(out, x + np.tanh(x), rtol=1e-15)
print("dualbcast.codegen.llvm.build" in sys.modules)
assert "numba" not in sys.modules
"""


def second_process(kernel: Kernel) -> str:
    command = [sys.executable, "-c", SECOND, kernel.program.identity]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_second_process_compiles_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    assert second_process(DOUBLE) == "True"
    assert second_process(DOUBLE) == "False"
    # A damaged entry: compiled anew, and right.
    (entry,) = tmp_path.rglob("*.bin")
    data = entry.read_bytes()
    entry.write_bytes(data[:-40] + bytes(40))
    assert second_process(DOUBLE) == "True"
    assert second_process(DOUBLE) == "False"


def test_the_key_covers_every_file_that_makes_code(monkeypatch):
    folder = Path(dualbcast.__file__).parent
    assert disk_cache.stamp(folder) == disk_cache.STAMP
    assert all(f"{path.parent.relative_to(folder)} {path.name} " in disk_cache.STAMP for path in folder.rglob("*.py"))
    for which in (llvm_target.environment, cpu_kernel._environment):
        which.cache_clear()
    old = cpu_kernel._key(DOUBLE.program.identity, False)
    monkeypatch.setattr(disk_cache, "STAMP", "changed")
    for which in (llvm_target.environment, cpu_kernel._environment):
        which.cache_clear()
    assert cpu_kernel._key(DOUBLE.program.identity, False) != old
    monkeypatch.undo()
    for which in (llvm_target.environment, cpu_kernel._environment):
        which.cache_clear()
    assert cpu_kernel._key(DOUBLE.program.identity, False) == old


def test_the_key_covers_source_flags_and_machine(monkeypatch):
    program = DOUBLE.program
    programs = [
        program,
        renamed(DOUBLE, "x").program,
        program._replace(spec=program.spec._replace(inputs=("float32",))),
        program._replace(spec=program.spec._replace(layout=Layout(1, ("s",), (0, 0)))),
    ]
    keys = {cpu_kernel._key(each.identity, False) for each in programs}
    keys.add(cpu_kernel._key(DOUBLE.program.identity, True))
    monkeypatch.setattr(cpu_kernel, "_environment", lambda: "another machine")
    keys.add(cpu_kernel._key(DOUBLE.program.identity, False))
    assert len(keys) == 6
