"""Object files as functions of the process: linked by the package, and by LLVM where it does not know the format."""

from __future__ import annotations

import ctypes
import gc
import marshal
import math
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cpu_kernels import CELL, DOUBLE
from llvmlite import binding

from dualbcast.codegen.llvm import build as llvm_build
from dualbcast.codegen.llvm import target as llvm_target
from dualbcast.codegen.llvm.elf import Unknown, linked
from dualbcast.codegen.llvm.linked import Loaded, link, load
from dualbcast.codegen.mathlib import libm
from dualbcast.errors import BackendError

ELF = sys.platform == "linux" and platform.machine() == "x86_64"
only_elf = pytest.mark.skipif(not ELF, reason="object files of another format")

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


def object_of(text: str, opt: int = 2, **options: Any) -> bytes:
    module = binding.parse_assembly(text)
    module.triple = binding.get_process_triple()
    return bytes(llvm_target.machine(own=True, opt=opt, **options).emit_object(module))


def ways(code: bytes) -> list[bytes]:
    """By the package, if it can, and by LLVM."""
    return [link(code), marshal.dumps((code,))]


elsewhere = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: 100 + x)


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("by_llvm", [False, True])
def test_everything_that_machine_code_may_refer_to(opt: int, by_llvm: bool) -> None:
    given = ctypes.c_int64(4)
    known = {
        "elsewhere": ctypes.cast(elsewhere, ctypes.c_void_p).value or 0,
        "given": ctypes.addressof(given),
    }

    payload = ways(object_of(EVERYTHING, opt))[by_llvm]
    if ELF:
        assert len(marshal.loads(payload)) == (1 if by_llvm else 3)
    loaded = load(payload, known)
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(loaded.address("run"))
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
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("second"))() == 7


@only_elf
@pytest.mark.parametrize("source", [DOUBLE, CELL])
def test_kernels_need_no_llvm_to_be_loaded(source: Any) -> None:
    payload = llvm_build.build(source, False, "", libm.has_libmvec()).payload()
    assert len(marshal.loads(marshal.loads(payload)[0])) == 3


@only_elf
def test_two_copies_do_not_meet() -> None:
    """Code is the same wherever it lies, and is gone with its owner."""
    payload = link(object_of("define i64 @f() {\n  ret i64 11\n}"))
    found: list[Loaded] = [load(payload) for _ in range(200)]
    assert len({each.address("f") for each in found}) == 200
    del found[::2]
    gc.collect()
    assert all(ctypes.CFUNCTYPE(ctypes.c_int64)(each.address("f"))() == 11 for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "@kept = global i64 5\ndefine i64 @f() {\n  %x = load i64, ptr @kept\n  ret i64 %x\n}",
        "@kept = global i64 0\ndefine i64 @f() {\n  %x = load i64, ptr @kept\n  %y = add i64 %x, 5\n  ret i64 %y\n}",
        "@five = private constant i64 5\n@kept = constant ptr @five\ndefine i64 @f() {\n"
        "  %p = load volatile ptr, ptr @kept\n  %x = load i64, ptr %p\n  ret i64 %x\n}",
    ],
)
def test_what_is_not_known_is_loaded_by_llvm(text: str) -> None:
    code = object_of(text)
    if ELF:
        with pytest.raises(Unknown):
            linked(code)
    payload = link(code)
    assert len(marshal.loads(payload)) == 1
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(load(payload).address("f"))() == 5


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe" + bytes(100), bytes(64)])
def test_other_formats_are_unknown(code: bytes) -> None:
    with pytest.raises(Unknown):
        linked(code)


@only_elf
def test_a_function_that_is_nowhere_is_named() -> None:
    text = "declare i64 @no_such_function()\ndefine i64 @f() {\n  %x = call i64 @no_such_function()\n  ret i64 %x\n}"
    payload = link(object_of(text))
    with pytest.raises(BackendError, match="no_such_function"):
        load(payload)


@only_elf
def test_code_cannot_be_written_to() -> None:
    loaded = load(link(object_of("define i64 @f() {\n  ret i64 11\n}")))
    address = loaded.address("f")
    with open("/proc/self/maps") as file:
        spans = [line.split()[:2] for line in file]
    rights = [kind for span, kind in spans if int(span.split("-")[0], 16) <= address < int(span.split("-")[1], 16)]
    assert rights == ["r-xp"]


def test_the_processor_is_told_as_llvm_tells_it() -> None:
    known = binding.get_host_cpu_features()
    words = set(re.split(r"[\s,+]+", llvm_target.processor()))
    for ours, theirs in (("avx512f", "avx512f"), ("avx2", "avx2"), ("fma", "fma")):
        assert (ours in words) == known.get(theirs, False)


WARM = """
import sys
import numpy as np
from dualbcast import differentiable_broadcast

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
print("llvmlite" in sys.modules)
"""


@only_elf
def test_a_second_process_does_not_import_llvm(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at its first call, nor at a later one."""
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "program.py").write_text(WARM, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "program.py")]
    printed = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() for _ in range(2)]
    assert printed == ["True", "False"]


BY_LLVM = """
import sys
import numpy as np
from dualbcast import differentiable_broadcast
from dualbcast.codegen.llvm import elf, linked

def refuse(code):
    raise elf.Unknown

elf.linked = refuse
loaded = []
by_llvm = linked._by_llvm
linked._by_llvm = lambda *given: loaded.append(given) or by_llvm(*given)

@differentiable_broadcast(backend="cpu")
def f(x, y):
    if x > y:
        return np.tanh(x) * y
    return np.arctan2(x, y) - np.exp(y)

for shape in ((4,), (1000,), (2000, 1500)):
    x = np.linspace(-2, 2, np.prod(shape)).reshape(shape)
    for _ in range(3):
        value, jacobian = f.value_and_jacobian(x, 0.5)
        np.testing.assert_allclose(value, np.where(x > 0.5, np.tanh(x) * 0.5, np.arctan2(x, 0.5) - np.exp(0.5)), 1e-12)
        np.testing.assert_allclose(jacobian["x"], np.where(x > 0.5, 0.5 / np.cosh(x) ** 2, 0.5 / (x * x + 0.25)), 1e-12)
        pulled = f.value_and_vjp((x, np.float64(0.5)), np.ones(shape))[1]
        np.testing.assert_allclose(pulled[0], jacobian["x"], rtol=1e-12)
    if len(shape) > 1:
        np.testing.assert_array_equal(f(x.T, 0.5), f(x, 0.5).T)
print(len(loaded) > 5)
"""


def test_where_llvm_loads_everything(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on other systems; with what it makes, and with what is in the cache then."""
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "program.py").write_text(BY_LLVM, encoding="utf-8")
    for _ in range(2):
        command = [sys.executable, str(tmp_path / "program.py")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr
