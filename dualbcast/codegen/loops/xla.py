"""The machine code of a handler of XLA's foreign function interface: it runs kernels on the buffers of a call frame.

XLA calls it without the interpreter's lock, on any of its threads, and its other threads draw pieces of a large call as
well. Sums are added up in an order that does not depend on the threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualbcast.codegen.loops import LINE
from dualbcast.codegen.loops.calls import add, rounded
from dualbcast.codegen.loops.thread_pool import wait_until

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module, Pointer
    from dualbcast.codegen.values import Value

# Where XLA's structures have their fields, in bytes, by version 0 of its C interface (xla/ffi/api/c_api.h). Later minor
# versions only append fields.
FRAME = {"extension": 8, "api": 16, "context": 24, "args": 72, "rets": 112, "attrs": 160}
EXTENSION = {"type": 8, "next": 16, "metadata": 24}
METADATA = {"major": 24, "minor": 28, "traits": 32}
API = {"major": 32, "minor": 36, "error_create": 48, "error_destroy": 64, "stream": 80, "schedule": 136}
API |= {"num_threads": 144, "device_ordinal": 184}
BUFFER_DATA, SCALAR_VALUE = 24, 8
_METADATA_EXTENSION = 1
# The bytes of the arguments of functions of the interface.
ERROR_SIZE, SCHEDULE_SIZE, THREADS_SIZE, STREAM_SIZE, ORDINAL_SIZE = 28, 40, 32, 32, 28
# Codes of errors.
EXHAUSTED, PRECONDITION, INTERNAL = 8, 9, 13

# A launch is a table of 64-bit numbers. `caller` is a function that calls `function` with the numbers of a row. There
# are `count` rows, one for each piece, of `length` numbers at `rows`. The last ones of a row are `pointers` offsets to
# which addresses are added, and, if there is `room`, the address of so many bytes for the thread. `sources` says of
# each pointer which buffer it is of: arguments first, then results, or -1 - n for byte n of the accumulators, which
# have `accumulators` bytes. `sums` is a table of as many rows as `sum_count` says; see `SUM`.
_NUMBERS = "caller", "function", "count", "length", "rows", "pointers", "room", "arguments", "sources"
LAUNCH = {name: at for at, name in enumerate((*_NUMBERS, "accumulators", "sum_count", "sums"))}
# A sum: where its accumulators begin, and their rounding errors, or -1; the number of the result; and the numbers of
# `reduction_blocks.Sum`: groups of `length` sums, for each group so many `folds`, all in so many `copies`. A result is
# of float64 where rounding errors are kept, else of float32.
SUM = {name: at for at, name in enumerate(("terms", "rests", "result", "groups", "folds", "length", "copies"))}
# The state of a call, which its tasks share, in 64-bit numbers; then follow, for each pointer, its address; for each
# thread, a row; the accumulators; and for each thread its room. Whoever is the last to leave it frees it.
# `block` is what to free, `head` the bytes before the accumulators.
STATE = {
    name: 8 * at for at, name in enumerate(("users", "threads", "next", "done", "failed", "launch", "block", "head"))
}
# The most threads of XLA's that help with a call.
_MAX_HELPERS = 63


def write_handler(module: Module) -> Function:
    """`handler(frame)`: answer what XLA asks when the handler is registered, or run the launch that the first attribute
    names; 0, or the error.

    The module declares the symbols `table`, the address of a table, and `unknown`, `failed` and `no_memory`, texts of
    errors. The table has the number of its slots less one, and then pairs of a name and the address of a launch; a name
    is looked for from the slot of its lowest bits on, up to one without.
    """
    run = module.use(write_run)
    task = module.use(write_task, run)
    combine = module.use(write_combine)
    f = module.function("handler", ["*int8"], "int64")
    (frame,) = f.parameters
    api = field(frame, FRAME["api"], "*int8")
    launch = begin(f, frame)
    number = {name: launch[at] for name, at in LAUNCH.items()}
    helpers = _helpers(f, frame, api, number["count"])
    # The state, the accumulators and each room begin where a line of the cache does.
    head = _lines((number["pointers"] + (helpers + 1) * number["length"]) * 8) + 8 * len(STATE)
    size = head + number["accumulators"] + (helpers + 1) * number["room"] + LINE
    block = f.call(module.external("malloc", ["int64"], "int64"), size)
    with f.if_(block == 0):
        f.return_(new_error(f, api, "no_memory", EXHAUSTED))
    state = f.pointer(_lines(block), "int8")
    known = {"users": helpers + 1, "launch": launch.address(), "block": block, "head": head}
    for name, place in STATE.items():
        state.skip_bytes(place).of("int64")[0] = known.get(name, 0)
    accumulators = state.skip_bytes(head)
    with f.range(0, number["accumulators"] // 8) as i:
        accumulators.of("int64")[i] = 0
    _gather_pointers(f, frame, number, state, accumulators)
    _schedule(f, frame, api, f.address_of(task), state, helpers)
    f.call(run, state, 0)
    _wait(f, state, number["count"])
    status = field(state, STATE["failed"], "int64")
    with f.if_(status == 0):
        f.call(combine, launch, accumulators, field(frame, FRAME["rets"], "**int8"))
    f.call(module.use(write_release), state)
    with f.if_(status != 0):
        f.return_(new_error(f, api, "failed", INTERNAL))
    f.return_(0)
    return f


def write_release(module: Module) -> Function:
    """`release(state)`: leave the state of a call."""
    f = module.function("release", ["*int8"])
    (state,) = f.parameters
    with f.if_(state.skip_bytes(STATE["users"]).of("int64").add_atomic(-1) == 1):
        f.call(module.external("free", ["int64"], "void"), field(state, STATE["block"], "int64"))
    f.return_()
    return f


def write_task(module: Module, run: Function) -> Function:
    """`task(state)`: help with a call, on a thread of XLA's. It may begin when all has been done."""
    f = module.function("task", ["*int8"])
    (state,) = f.parameters
    thread = state.skip_bytes(STATE["threads"]).of("int64").add_atomic(1) + 1
    f.call(run, state, thread)
    f.call(module.use(write_release), state)
    f.return_()
    return f


def write_run(module: Module) -> Function:
    """`run(state, thread)`: draw the pieces of a call and run them until none is left."""
    f = module.function("run", ["*int8", "int64"])
    state, thread = f.parameters
    launch = f.pointer(field(state, STATE["launch"], "int64"), "int64")
    caller, function, count, length, rows, pointers, room, accumulators = (
        launch[LAUNCH[name]]
        for name in ("caller", "function", "count", "length", "rows", "pointers", "room", "accumulators")
    )
    has_room = (room != 0).choose(length.constant(1), 0)
    addresses = state.of("int64").at(len(STATE))
    own = addresses.at(pointers + thread * length)
    first = length - pointers - has_room
    memory = state.address() + field(state, STATE["head"], "int64") + accumulators + thread * room
    failed = state.skip_bytes(STATE["failed"]).of("int64")
    with f.loop() as leave:
        piece = state.skip_bytes(STATE["next"]).of("int64").add_atomic(1)
        with f.if_(piece >= count):
            leave()
        with f.if_(failed.load_atomic() == 0):
            row = f.pointer(rows, "int64").at(piece * length)
            with f.range(0, first) as j:
                own[j] = row[j]
            with f.range(0, pointers) as j:
                own[first + j] = row[first + j] + addresses[j]
            with f.if_(room != 0):
                own[length - 1] = memory
            status = f.call_address(caller, "int32", [function, own.address()])
            with f.if_(status != 0):
                failed.store_atomic(1)
        state.skip_bytes(STATE["done"]).of("int64").add_atomic(1)
    f.return_()
    return f


def write_combine(module: Module) -> Function:
    """`combine(launch, accumulators, results)`: add up the accumulators of each sum, and store it as its result."""
    f = module.function("combine", ["*int64", "*int8", "**int8"])
    launch, accumulators, results = f.parameters
    add_copies = [module.use(write_add_copies, is_compensated) for is_compensated in (False, True)]
    store = {size: module.use(write_store_sums, size) for size in (4, 8)}
    with f.range(0, launch[LAUNCH["sum_count"]]) as number:
        given = f.pointer(launch[LAUNCH["sums"]], "int64").at(number * len(SUM))
        terms, rests, result, groups, folds, length, copies = (given[at] for at in SUM.values())
        total, size = accumulators.skip_bytes(terms).of("float64"), groups * folds * length
        to = field(results[result], BUFFER_DATA, "*int8")
        with f.if_else(rests < 0) as (plain, compensated):
            with plain:
                f.call(add_copies[False], total, total, copies, size)
                f.call(store[4], to, total, total, groups, folds, length)
            with compensated:
                lost = accumulators.skip_bytes(rests).of("float64")
                f.call(add_copies[True], total, lost, copies, size)
                f.call(store[8], to, total, lost, groups, folds, length)
    f.return_()
    return f


def write_add_copies(module: Module, is_compensated: bool) -> Function:
    """`add_copies(total, lost, copies, size)`: add the later copies of accumulators to the first one, in their order;
    if they are compensated, `lost` has as many copies of rounding errors."""
    f = module.function("add_compensated" if is_compensated else "add_plain", ["*float64"] * 2 + ["int64"] * 2)
    total, lost, copies, size = f.parameters
    with f.range(1, copies) as copy:
        term, rest = total.at(copy * size), lost.at(copy * size)
        with f.range(0, size) as i:
            if is_compensated:
                total[i], errors = add(total[i], lost[i], term[i])
                lost[i] = errors + rest[i]
            else:
                total[i] = total[i] + term[i]
    f.return_()
    return f


def write_store_sums(module: Module, itemsize: int) -> Function:
    """`store(to, total, lost, groups, folds, length)`: add up the folds of sums, and store them as floats of so many
    bytes. Those of eight bytes are compensated."""
    f = module.function(f"store{itemsize}", ["*int8", "*float64", "*float64", *["int64"] * 3])
    to, total, lost, groups, folds, length = f.parameters
    result = to.of(f"float{8 * itemsize}")
    with f.range(0, groups) as group:
        first, row = group * folds * length, group * length
        with f.range(0, length) as i:
            value, rest = f.variable(total[first + i]), f.variable(lost[first + i])
            with f.range(1, folds) as fold:
                at = first + fold * length + i
                if itemsize == 8:
                    value.value, errors = add(value.value, rest.value, total[at])
                    rest.value = errors + lost[at]
                else:
                    value.value = value.value + total[at]
            exact = rounded(value.value, rest.value) if itemsize == 8 else value.value
            result[row + i] = exact.to(result.kind)
    f.return_()
    return f


# --- parts of handlers ------------------------------------------------------------------------------------------------


def begin(f: Function, frame: Pointer) -> Pointer:
    """Answer XLA's question for the version, and go on with the launch that a call frame names, where it is known."""
    api = field(frame, FRAME["api"], "*int8")
    extension = f.variable(field(frame, FRAME["extension"], "int64"))
    with f.loop() as leave:
        with f.if_(extension.value == 0):
            leave()
        each = f.pointer(extension.value, "int8")
        with f.if_(field(each, EXTENSION["type"], "int32") == _METADATA_EXTENSION):
            metadata = field(each, EXTENSION["metadata"], "*int8")
            # What a minor version adds is not used, so that the caller's own is as good as any.
            metadata.skip_bytes(METADATA["major"]).of("int32")[0] = 0
            metadata.skip_bytes(METADATA["minor"]).of("int32")[0] = field(api, API["minor"], "int32")
            metadata.skip_bytes(METADATA["traits"]).of("int32")[0] = 0
            f.return_(0)
        extension.value = field(each, EXTENSION["next"], "int64")
    attribute = field(frame, FRAME["attrs"], "**int8")[0]
    launch = _found(f, field(attribute, SCALAR_VALUE, "*int64")[0])
    with f.if_(launch == 0):
        f.return_(new_error(f, api, "unknown", PRECONDITION))
    return f.pointer(launch, "int64")


def field(structure: Pointer, offset: int, kind: str) -> Any:
    """The field of a structure: a number, or a pointer."""
    return structure.skip_bytes(offset).of(kind)[0]


def _lines(count: Value) -> Value:
    """A number of bytes, rounded up to whole lines of the cache."""
    return (count + (LINE - 1)) // LINE * LINE


def _found(f: Function, name: Value) -> Value:
    """The address of the launch of a name; 0 where there is none."""
    table = f.variable_of_process("table").load_atomic()
    slots = f.pointer(table, "int64")
    place, found = f.variable(name & slots[0]), f.variable(0)
    with f.loop() as leave:
        here = slots.at(place.value * 2 + 1)
        found.value = here.at(1).load_atomic()
        with f.if_((found.value == 0) | (here[0] == name)):
            leave()
        place.value = (place.value + 1) & slots[0]
    address: Value = found.value
    return address


def _helpers(f: Function, frame: Pointer, api: Pointer, count: Value) -> Value:
    """How many threads of XLA's are to help with so many pieces."""
    helpers = f.variable(0)
    with f.if_(count > 1):
        threads = f.room(1)
        threads[0] = 1
        error, _ = ask(f, frame, "num_threads", THREADS_SIZE, threads.address())
        with f.if_(error != 0):  # This XLA has no threads.
            _destroy(f, api, error)
            threads[0] = 1
        helpers.value = (count.at_most(threads[0]) - 1).at_most(_MAX_HELPERS)
    number: Value = helpers.value
    return number


def _gather_pointers(
    f: Function, frame: Pointer, number: dict[str, Value], state: Pointer, accumulators: Pointer
) -> None:
    """Store the address of each pointer in the state of a call."""
    addresses, sources = state.of("int64").at(len(STATE)), f.pointer(number["sources"], "int64")
    with f.range(0, number["pointers"]) as i, f.if_else(sources[i] < 0) as (summed, given):
        with summed:
            addresses[i] = accumulators.address() - 1 - sources[i]
        with given:
            addresses[i] = buffer(f, frame, sources[i], number["arguments"])


def buffer(f: Function, frame: Pointer, at: Value, arguments: Value) -> Value:
    """The address of the data of a buffer: so many arguments come first, and then results."""
    is_result = at >= arguments
    tables = [field(frame, FRAME[name], "int64") for name in ("rets", "args")]
    table = f.pointer(is_result.choose(*tables), "*int8")
    address: Value = field(table[is_result.choose(at - arguments, at)], BUFFER_DATA, "int64")
    return address


def _schedule(f: Function, frame: Pointer, api: Pointer, task: Value, state: Pointer, helpers: Value) -> None:
    """Ask XLA to run a task on so many threads."""
    with f.range(0, helpers):
        error, _ = ask(f, frame, "schedule", SCHEDULE_SIZE, task, state.address())
        with f.if_(error != 0):
            _destroy(f, api, error)
            state.skip_bytes(STATE["users"]).of("int64").add_atomic(-1)


def _wait(f: Function, state: Pointer, count: Value) -> None:
    """Wait until all pieces are done. Only those are awaited that another thread has begun."""
    with wait_until(f, state.skip_bytes(STATE["done"]).of("int64"), count):
        pass


def ask(f: Function, frame: Pointer, name: str, size: int, *given: Any) -> tuple[Value, Pointer]:
    """Call a function of the interface on the context of a call frame: its error, or 0, and its arguments."""
    arguments = f.room(5)
    for at, value in enumerate([size, 0, field(frame, FRAME["context"], "int64"), *given]):
        arguments[at] = value
    function = field(field(frame, FRAME["api"], "*int8"), API[name], "int64")
    return f.call_address(function, "int64", [arguments.address()]), arguments


def new_error(f: Function, api: Pointer, text: str, code: int) -> Value:
    """A new error of XLA's."""
    arguments = f.room(4)
    message = f.variable_of_process(text).address()
    for at, value in enumerate([ERROR_SIZE, 0, message, code]):
        arguments[at] = value
    return f.call_address(field(api, API["error_create"], "int64"), "int64", [arguments.address()])


def _destroy(f: Function, api: Pointer, error: Value) -> None:
    """Free an error of XLA's."""
    arguments = f.room(3)
    for at, value in enumerate([24, 0, error]):
        arguments[at] = value
    f.call_address(field(api, API["error_destroy"], "int64"), "void", [arguments.address()])
