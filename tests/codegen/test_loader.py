"""Object files as functions of the process."""

from __future__ import annotations

import ctypes
import gc
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llvmlite import binding

from dualbcast.codegen.llvm import target as llvm_target
from dualbcast.errors import BackendError
from dualbcast.runtime.cpu.loader import load

# Constants in memory and in tables, jumps by a table, calls within the module, of the C library, and of what is given.
EVERYTHING = """
@table = private constant [5 x i64] [i64 3, i64 1, i64 4, i64 1, i64 5]
@given = external global i64
declare double @dualbcast_cosh(double)
declare double @elsewhere(double)
declare double @llvm.fma.f64(double, double, double)
define private double @own(double %x) noinline {
  %y = fmul double %x, 0x3FF3333333333333
  ret double %y
}
define dso_local double @run(double %x, i64 %which) {
entry:
  switch i64 %which, label %rest [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d  i64 4, label %e ]
a:
  %ra = call double @own(double %x)
  ret double %ra
b:
  %rb = call double @dualbcast_cosh(double %x)
  ret double %rb
c:
  %rc = call double @elsewhere(double %x)
  ret double %rc
d:
  %g = load i64, ptr @given
  %at = getelementptr i64, ptr @table, i64 %g
  %t = load i64, ptr %at
  %rd = sitofp i64 %t to double
  ret double %rd
e:
  %v = insertelement <8 x double> poison, double %x, i64 0
  %w = shufflevector <8 x double> %v, <8 x double> poison, <8 x i32> zeroinitializer
  %s = fmul <8 x double> %w, <double 1., double 2., double 3., double 4., double 5., double 6., double 7.5, double 8.>
  %r = extractelement <8 x double> %s, i64 6
  ret double %r
rest:
  %none = and i64 %which, 0
  %f = getelementptr i8, ptr @run, i64 %none
  %same = icmp eq ptr %f, @run
  %rr = select i1 %same, double 1.0, double 0.0
  ret double %rr
}
define i64 @second() {
  ret i64 7
}
"""


def object_of(text: str, opt: int = 2) -> bytes:
    module = binding.parse_assembly(text)
    module.triple = binding.get_process_triple()
    return bytes(llvm_target.machine(own=True, opt=opt).emit_object(module))


elsewhere = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: 100 + x)


@pytest.mark.parametrize("opt", [0, 2])
def test_everything_that_machine_code_may_refer_to(opt: int) -> None:
    given = ctypes.c_int64(4)
    symbols = {
        "elsewhere": ctypes.cast(elsewhere, ctypes.c_void_p).value or 0,
        "given": ctypes.addressof(given),
    }
    address = load(object_of(EVERYTHING, opt), symbols)
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(address("run"))
    expected: list[Callable[[float], float]] = [
        lambda x: x * 1.2,
        math.cosh,
        lambda x: 100 + x,
        lambda _: 5.0,
        lambda x: x * 7.5,
        lambda _: 1.0,
    ]
    for which, wanted in enumerate(expected):
        for x in (0.5, -3.0):
            np.testing.assert_allclose(run(x, which), wanted(x), rtol=1e-15)
    given.value = 2
    assert run(0.0, 3) == 4.0
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(address("second"))() == 7


@pytest.mark.parametrize(
    "text",
    [
        "@kept = global i64 5\ndefine i64 @f() {\n  %x = load i64, ptr @kept\n  ret i64 %x\n}",
        "@kept = global i64 0\ndefine i64 @f() {\n  %x = load i64, ptr @kept\n  %y = add i64 %x, 5\n  ret i64 %y\n}",
        "@five = private constant i64 5\n@kept = constant ptr @five\ndefine i64 @f() {\n"
        "  %p = load volatile ptr, ptr @kept\n  %x = load i64, ptr %p\n  ret i64 %x\n}",
    ],
)
def test_variables_and_pointers(text: str) -> None:
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(load(object_of(text))("f"))() == 5


def test_symbols_of_one_file_are_not_those_of_another_and_code_stays() -> None:
    """A thread may be in it whose caller is gone."""
    functions = [load(object_of(f"define i64 @f() {{\n  ret i64 {number}\n}}"))("f") for number in range(100)]
    assert len(set(functions)) == 100
    gc.collect()
    for number, function in enumerate(functions):
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(function)() == number


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe" + bytes(100), bytes(64)])
def test_what_is_no_object_file_is_refused(code: bytes) -> None:
    with pytest.raises(BackendError):
        load(code)("f")


def test_a_function_that_is_nowhere_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    text = "declare i64 @no_such_function()\ndefine i64 @f() {\n  %x = call i64 @no_such_function()\n  ret i64 %x\n}"
    with pytest.raises(BackendError, match="f"):
        load(object_of(text))("f")
    assert "no_such_function" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="the rights to memory are told otherwise")
def test_code_cannot_be_written_to() -> None:
    address = load(object_of("define i64 @f() {\n  ret i64 11\n}"))("f")
    with open("/proc/self/maps") as file:
        spans = [line.split()[:2] for line in file]
    rights = [kind for span, kind in spans if int(span.split("-")[0], 16) <= address < int(span.split("-")[1], 16)]
    assert rights == ["r-xp"]


WARM = """
import sys
import numpy as np
from dualbcast import differentiable_broadcast
from dualbcast.runtime.cpu import loader

assemble, made = loader.assemble, []
loader.assemble = lambda *given: made.append(given) or assemble(*given)

@differentiable_broadcast(backend="cpu")
def f(x, y):
    if x > y:
        return np.tanh(x) * y
    return np.exp(x) - y

for size in (4, 1000, 100_000):
    x = np.linspace(-2, 2, size)
    for _ in range(3):
        f.value_and_jacobian(x, 0.5)
        f.value_and_vjp((x, np.float64(0.5)), np.ones(size))
    f(x.reshape(2, -1).T, 0.5)
print("dualbcast.codegen.llvm.build" in sys.modules, bool(made))
"""


def test_a_second_process_compiles_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at its first call, nor at a later one."""
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "program.py").write_text(WARM, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "program.py")]
    printed = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)]
    assert printed == ["True True", "False False"]
