"""Makes a CUDA kernel's machine code: Numba-CUDA the element function, NVRTC the C++ shell around it, nvJitLink one
optimised cubin of both. No GPU and no driver is needed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from llvmlite import ir

from dualbcast import disk_cache
from dualbcast.codegen import mathlib
from dualbcast.codegen.cuda.kernel_shell import THREADS_PER_BLOCK
from dualbcast.codegen.cuda.line_information import LOADS, STORES, begun_at, code_with_lines, linkable
from dualbcast.codegen.cuda.occupancy import roomier
from dualbcast.codegen.llvm.operators import OPERATIONS
from dualbcast.codegen.mathlib.primitives import Emit
from dualbcast.codegen.values import TYPES, Value
from dualbcast.errors import BackendError, DualbcastError, MissingDependencyError, kernel_fault
from dualbcast.frontend.lower import INTEGER_FUNCTIONS, RANGE_STOP
from dualbcast.kernel_spec import KernelSource

# What `fastmath` replaces in float32, as nvcc's --use_fast_math does, by instructions of the hardware: with a factor of
# the argument and one of the result. Two functions are as they were, because they would lose more than digits: nvcc's
# pow is NaN for every negative base, and its tan is the quotient of two approximations.
_FAST = {
    "exp": (1.4426950408889634, "ex2.approx.ftz.f32", 1.0),
    "exp2": (1.0, "ex2.approx.ftz.f32", 1.0),
    "log": (1.0, "lg2.approx.ftz.f32", 0.6931471805599453),
    "log2": (1.0, "lg2.approx.ftz.f32", 1.0),
    "log10": (1.0, "lg2.approx.ftz.f32", 0.3010299956639812),
    "sin": (1.0, "sin.approx.ftz.f32", 1.0),
    "cos": (1.0, "cos.approx.ftz.f32", 1.0),
    "sqrt": (1.0, "sqrt.approx.ftz.f32", 1.0),
    "tanh": (1.0, "tanh.approx.f32", 1.0),
}
# For the linker, which makes the code. Numba's own fastmath would also assume that there is no NaN and no infinity.
_FAST_LINK = ("-ftz=1", "-prec-div=0", "-prec-sqrt=0")

# The factor by which machine code that leaves room for more blocks may be larger.
_LARGEST_GROWTH = 1.02

_COMPILERS = ("numba-cuda", "cuda-core", "cuda-bindings")
_LIBRARIES = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc", "nvidia-nvvm", "nvidia-cuda-nvcc")
_PACKAGES = (*_COMPILERS, *_LIBRARIES, *(f"{library}-cu12" for library in _LIBRARIES))

_lock = threading.RLock()


def optional(module: str, package: str, purpose: str, install: str = '"dualbcast[cuda13]"') -> Any:
    """Import a module of an optional package. The error where that is missing says that `purpose` needs it, and that
    `pip install {install}` brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the package is there, but something that it needs itself is not
        raise MissingDependencyError(package, purpose, install) from None


@lru_cache(maxsize=1)
def toolchain() -> str:
    """What machine code depends on beside its source and this package: the versions of the compilers."""
    versions = []
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package}=={importlib.metadata.version(package)}")
    return "\n".join(versions)


def build(
    source: KernelSource, cc: tuple[int, int], fastmath: bool, *, ptx: bool = False, lines: bool = False
) -> tuple[bytes, str]:
    """The cubin of a kernel, or the PTX of it linked and optimised, and the log of the link, with the assembler's
    account of registers and memory. With `lines` it has the lines of the text (`text_of`) that instructions come from.
    Safe to call from several threads.

    A MissingDependencyError says that a compiler is not installed; a BackendError that the compilers do not know the
    compute capability or cannot link the kernel, or that Numba is set to simulate.
    """
    fast = fastmath and source.dtype == "float32"
    with _lock:  # Numba's compiler is not reentrant
        _compiler("numba_cuda")  # and not the remains of it inside Numba
        if _compiler("numba.core.config").ENABLE_CUDASIM:
            raise BackendError("Numba's CUDA simulator cannot compile. Unset NUMBA_ENABLE_CUDASIM and restart Python.")
        architecture = _architecture(cc)
        element = _element(source, cc, fast, lines)

        def link(shell: str) -> tuple[bytes, str]:
            core = _compiler("cuda.core")
            options = core.ProgramOptions(
                arch=architecture, relocatable_device_code=True, link_time_optimization=True, lineinfo=lines or None
            )
            code = bytes(core.Program(shell, "c++", options).compile("ltoir").code)
            parts = [(code, source.entry), (element, source.element)]
            return _link(parts, architecture, _FAST_LINK if fast else (), ptx)

        return link(source.shell) if ptx else _settled(link, source.shell, cc)


def _settled(link: Callable[[str], tuple[bytes, str]], shell: str, cc: tuple[int, int]) -> tuple[bytes, str]:
    """The kernel with as many registers as it needs where it spills; else with fewer, where that lets more blocks run
    at a time and costs next to nothing.

    The assembler decides for itself how many blocks are worth a spill or an instruction, if it is not told.
    """
    image, log = link(shell)
    first = resources(log)
    blocks = 1 if first["stack"] else roomier(cc, first["registers"])
    if blocks is None:
        return image, log
    bound = f"__launch_bounds__({THREADS_PER_BLOCK}"
    second_image, second_log = link(shell.replace(f"{bound})", f"{bound}, {blocks})"))
    second = resources(second_log)
    has_more_room = second["registers"] < first["registers"] and len(second_image) <= _LARGEST_GROWTH * len(image)
    is_better = (first["stack"] or has_more_room) and not second["stack"]
    return (second_image, second_log) if is_better else (image, log)


def _element(source: KernelSource, cc: tuple[int, int], fast: bool, lines: bool) -> bytes:
    """The element function as LTO-IR, by Numba-CUDA. An error names releases of it and of NumPy that do not fit; any
    other is a fault of ours."""
    try:
        return _compile_element(source, cc, fast, lines)
    except DualbcastError:
        raise
    except Exception as error:
        if not str(error).startswith("module 'numpy' has no attribute"):
            raise kernel_fault(source.element, "Numba-CUDA", text_of(source), error) from None
        version = importlib.metadata.version("numba-cuda")
        raise BackendError(
            f"numba-cuda {version} does not work with NumPy {np.__version__} ({error}).\n"
            'Install what goes together with: pip install "dualbcast[cuda13]"'
        ) from error


def text_of(source: KernelSource) -> str:
    """The file that has the kernel's text."""
    return disk_cache.write_text(f"{source.element}_{disk_cache.key(source.text)[:16]}.py", source.text)


def _compiler(module: str) -> Any:
    """Import a module of the compilers."""
    package = {"numba": "numba-cuda", "numba_cuda": "numba-cuda"}.get(module.partition(".")[0], "cuda-core")
    return optional(module, package, "Compiling a CUDA kernel")


def _architecture(cc: tuple[int, int]) -> str:
    """The architecture's name for NVRTC and nvJitLink, if they know it."""
    nvrtc = _compiler("cuda.bindings.nvrtc")
    try:
        status, known = nvrtc.nvrtcGetSupportedArchs()
    except RuntimeError as error:  # the bindings are there, and the library is not
        raise MissingDependencyError("NVRTC", "Compiling a CUDA kernel", '"dualbcast[cuda13]"') from error
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BackendError(f"NVRTC does not say which architectures it compiles for: {status}")
    major, minor = cc
    if 10 * major + minor not in known:
        names = ", ".join(f"{number // 10}.{number % 10}" for number in known)
        raise BackendError(
            f"The installed CUDA compiler does not know compute capability {major}.{minor}. It knows {names}.\n"
            "Choose one of these, or install the CUDA packages of another version."
        )
    return f"sm_{major}{minor}"


def _compile_element(source: KernelSource, cc: tuple[int, int], fast: bool, lines: bool) -> bytes:
    """Compile the element function under the C name that the shell calls it by."""
    cuda = _compiler("numba.cuda")
    namespace = _namespace(source, cc, fast)
    path = text_of(source)
    code = code_with_lines(source.text, path, source.element) if lines else compile(source.text, path, "exec")
    with np.errstate(over="ignore"):  # a constant that float32 does not reach is infinite
        exec(code, namespace)
    for name in source.functions[:-1]:
        # Inlined in Numba's own representation: to compile a function for a call to it, Numba would ask for a GPU.
        namespace[name] = cuda.jit(namespace[name], device=True, inline="always")
    nvvm = _compiler("numba.cuda.cudadrv.nvvm") if lines else None
    with linkable(nvvm) if lines else contextlib.nullcontext():
        element, _ = cuda.compile(
            namespace[source.element],
            _signature(source),
            device=True,
            lineinfo=lines,
            cc=cc,
            abi="c",
            abi_info={"abi_name": f"{source.entry}_element"},
            output="ltoir",
            forceinline=True,
        )
    return bytes(element)


def _signature(source: KernelSource) -> Any:
    """The Numba signature of the element function: an index for each address class that has one, then the pointers."""
    types = _compiler("numba.types")
    index = types.int64 if source.layout.wide else types.int32
    indices = [index for _ in source.layout.indexed(len(source.inputs))]
    stored = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}
    # The terms of a sum are handed over in the compute dtype.
    outputs = [source.dtype if i in source.summed else dtype for i, dtype in enumerate(source.outputs)]
    dtypes = [stored.get(dtype, dtype) for dtype in (*source.inputs, *outputs)]
    return types.void(*indices, *(types.CPointer(getattr(types, dtype)) for dtype in dtypes))


def _namespace(source: KernelSource, cc: tuple[int, int], fast: bool) -> dict[str, Any]:
    """The free names of the emitted text, for Numba-CUDA."""
    types = _compiler("numba.types")
    inlined = partial(_compiler("numba.cuda").jit, device=True, inline="always")
    library = vars(_compiler("numba.cuda.libdevice"))
    # It has each function twice, as `tanhf` and `tanh`.
    is_single = source.dtype == "float32"
    namespace = {name[:-1]: each for name, each in library.items() if name[-1] == "f"} if is_single else dict(library)
    namespace |= {"float32": np.float32, "float64": np.float64, "int64": np.int64, "uint8": np.uint8}
    whole, single, bits = types.int64, types.float32, types.uint16
    # Numba promises LLVM that no sum overflows, and leaves other cases of its integers' operators undefined.
    for name, function in INTEGER_FUNCTIONS.items():
        namespace[function] = _intrinsic(OPERATIONS[name], whole, whole, whole)
    namespace[RANGE_STOP] = _intrinsic(_range_stop, whole, whole, whole, whole)
    if fast:
        for name, (before, instruction, after) in _FAST.items():
            namespace[name] = _intrinsic(partial(_approximate, before, instruction, after), single, single)
        namespace["quotient"] = _intrinsic(partial(_assembly, "div.approx.ftz.f32"), single, single, single)
    # The hardware's conversions round to nearest even and keep NaN a NaN. Before 8.0 none makes a bfloat16.
    in_bits = partial(_assembly, kind=ir.IntType(16))
    rounded = mathlib.to_bfloat16 if cc < (8, 0) else partial(in_bits, "cvt.rn.bf16.f32")
    for half, load, store in (
        ("float16", partial(_assembly, "cvt.f32.f16"), partial(in_bits, "cvt.rn.f16.f32")),
        ("bfloat16", mathlib.from_bfloat16, rounded),
    ):
        namespace[f"from_{half}"] = read = _intrinsic(load, single, bits)
        namespace[f"to_{half}"] = written = _intrinsic(store, bits, single)
        namespace[f"load_{half}"], namespace[f"store_{half}"] = map(inlined, _accesses(read, written))
    for lanes in (2, 4):
        namespace[f"load_{lanes}"], namespace[f"store_{lanes}"] = _wide_accesses(lanes)
    return namespace


def _accesses(read: Any, written: Any) -> tuple[Callable[..., Any], Callable[..., None]]:
    """The functions that load and store numbers in 16 bits, by these conversions."""

    def load(pointer: Any, k: Any) -> Any:
        return read(pointer[k])

    def store(pointer: Any, k: Any, value: Any) -> None:
        pointer[k] = written(value)

    # They are in no text of a kernel.
    return begun_at(LOADS, load), begun_at(STORES, store)


def _range_stop(start: Value, stop: Value, step: Value) -> Value:
    """A stop that gives a range the same numbers, and whose distance from the start is an integer: where that wraps
    around, Numba takes a range without numbers for one of nearly 2**63. What is farther away is cut off."""
    longest = 2**63 - 1
    ahead, behind = stop - start, start - stop
    upwards = (start < stop).choose((ahead < 0).choose(ahead.constant(longest), ahead), 0)
    downwards = (stop < start).choose((behind < 0).choose(behind.constant(longest), behind), 0)
    return (step > 0).choose(start + upwards, start - downwards)


def _approximate(before: float, instruction: str, after: float, x: Value) -> Value:
    """The result of a row of `_FAST`."""
    return _assembly(instruction, x * before) * after


def _assembly(instruction: str, *arguments: Value, kind: ir.Type = TYPES["float32"]) -> Value:
    """The result of an instruction of PTX. Numbers are float32, or have 16 bits."""
    function = ir.FunctionType(kind, [x.kind for x in arguments])
    operands = ", ".join(f"${number}" for number in range(len(arguments) + 1))
    constraints = ",".join("h" if isinstance(each, ir.IntType) else "f" for each in (kind, *function.args))
    values = [x.value for x in arguments]
    builder = arguments[0].builder
    return Value(builder, builder.asm(function, f"{instruction} {operands};", f"={constraints}", values, False))


def _intrinsic(write: Emit, result: Any, *kinds: Any) -> Any:
    """A function of one to three numbers for Numba-CUDA, which `write` writes in LLVM IR."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Sequence[Any]) -> Any:
        return write(*[Value(builder, argument) for argument in arguments]).value

    def of_one(_typing: Any, _x: Any) -> Any:
        return result(*kinds), generate

    def of_two(_typing: Any, _x: Any, _y: Any) -> Any:
        return result(*kinds), generate

    def of_three(_typing: Any, _x: Any, _y: Any, _z: Any) -> Any:
        return result(*kinds), generate

    return _compiler("numba.cuda.extending").intrinsic((of_one, of_two, of_three)[len(kinds) - 1])


@lru_cache
def _wide_accesses(lanes: int) -> tuple[Any, Any]:
    """Intrinsics that load and store neighbouring elements in one access: `load(pointer, k)`, a tuple, and
    `store(pointer, k, *values)`. The address is aligned to the access, or to 16 bytes if that is less.
    """
    types = _compiler("numba.types")
    intrinsic = _compiler("numba.cuda.extending").intrinsic

    def place(context: Any, builder: Any, kind: Any, pointer: Any, k: Any) -> tuple[Any, int]:
        element = context.get_data_type(kind)
        address = builder.bitcast(builder.gep(pointer, [k]), ir.VectorType(element, lanes).as_pointer())
        return address, min(16, lanes * context.get_abi_sizeof(element))

    def load(_typing: Any, pointer: Any, k: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
            address, alignment = place(context, builder, pointer.dtype, *arguments)
            vector = Value(builder, builder.load(address, align=alignment))
            values = [vector.lane(lane).value for lane in range(lanes)]
            return context.make_tuple(builder, signature.return_type, values)

        return types.UniTuple(pointer.dtype, lanes)(pointer, k), generate

    def store(_typing: Any, pointer: Any, k: Any, *values: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Sequence[Any]) -> Any:
            *start, packed = arguments
            address, alignment = place(context, builder, pointer.dtype, *start)
            vector = Value(builder, ir.Constant(address.type.pointee, ir.Undefined))
            for lane, given in enumerate(signature.args[2]):
                value = context.cast(builder, builder.extract_value(packed, lane), given, pointer.dtype)
                vector = vector.with_lane(lane, Value(builder, value))
            builder.store(vector.value, address, align=alignment)
            return context.get_dummy_value()

        return types.void(pointer, k, types.StarArgTuple(values)), generate

    return intrinsic(load), intrinsic(store)


def _link(parts: Iterable[tuple[bytes, str]], architecture: str, flags: Iterable[str], ptx: bool) -> tuple[bytes, str]:
    """Optimise LTO-IR modules as one, and make a cubin (or PTX) of them."""
    nvjitlink = _compiler("cuda.bindings.nvjitlink")
    # The library itself and not cuda.core's Linker, which writes -ftz and its like as libNVVM does not take them.
    options = [f"-arch={architecture}", "-lto", "-Xptxas=-v", *flags, *(["-ptx"] if ptx else [])]
    handle = nvjitlink.create(len(options), options)
    try:
        try:
            for code, name in parts:
                nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, code, len(code), name)
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = _text(nvjitlink.get_error_log_size, nvjitlink.get_error_log, handle)
            raise BackendError(f"The CUDA kernel does not link: {error}\n{log}") from error
        size = nvjitlink.get_linked_ptx_size(handle) if ptx else nvjitlink.get_linked_cubin_size(handle)
        image = bytearray(size)
        (nvjitlink.get_linked_ptx if ptx else nvjitlink.get_linked_cubin)(handle, image)
        return bytes(image), _text(nvjitlink.get_info_log_size, nvjitlink.get_info_log, handle)
    finally:
        nvjitlink.destroy(handle)


def resources(log: str) -> dict[str, int]:
    """The figures in the log of `ptxas -v`."""
    patterns = {
        "registers": r"Used (\d+) registers",
        "spill_stores": r"(\d+) bytes spill stores",
        "spill_loads": r"(\d+) bytes spill loads",
        "stack": r"(\d+) bytes stack frame",
    }
    matches = {name: re.findall(pattern, log) for name, pattern in patterns.items()}
    if not all(matches.values()):
        raise BackendError(f"The CUDA assembler's report cannot be read:\n{log}")
    # A function that was not inlined has figures of its own: the largest count.
    figures = {name: max(map(int, values)) for name, values in matches.items()}
    return figures | {"shared": max(map(int, re.findall(r"(\d+) bytes smem", log)), default=0)}


def _text(size: Callable[[int], int], fill: Callable[[int, bytearray], None], handle: int) -> str:
    """One of nvJitLink's logs."""
    buffer = bytearray(size(handle))
    fill(handle, buffer)
    return buffer.decode(errors="replace").rstrip("\0")
