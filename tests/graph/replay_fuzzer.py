"""A fuzzer of compiled functions: `python tests/graph/replay_fuzzer.py --programs 5000`.

It writes modules whose functions capture arrays, numbers and objects in many ways, and runs each module twice: with the
plain graph, and compiled. Between the calls both copies change alike: arguments, shapes, names, contents of arrays.
Every result must be the same to the last bit. With `--planted` it must find each of some bugs in a copy of the package.
"""

from __future__ import annotations

import argparse
import collections
import linecache
import os
import random
import shutil
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dualbcast import graph

HEAD = """
import math
import types
import numpy as np
from dualbcast import differentiable_broadcast, graph

NUMBER, OTHER, ROWS, DTYPE = 0.75, 1.25, 3, {dtype!r}
random = np.random.default_rng({seed})

def made(*shape):
    return random.uniform(-1, 1, shape).astype(DTYPE)

ARRAY, LIST, TABLE, SEEN = made({columns}), [made({columns}), 0.5], {{"k": made(1), "n": 1.5}}, []
LARGE = made(300, 300)

class Box:
    shared = 0.5
    def __init__(self):
        self.row, self.number = made({columns}), 0.25
    def times(self, v):
        return v * self.row + self.shared
    @property
    def twice(self):
        return 2.0 * self.number

class Slots:
    __slots__ = ("number",)

BOX, SLOTS, SPACE = Box(), Slots(), types.SimpleNamespace(number=0.5)
SLOTS.number = 0.125

@differentiable_broadcast
def bent(x, y):
    return x * y + NUMBER if y > 0 else x - y * OTHER

@differentiable_broadcast
def weighted(x):
    return x * ARRAY + BOX.number

def helper(v):
    return v * OTHER + LIST[0]

def outer(cell, count):
    def f(p, x, index, flag=True, scale=0.5, array=made({columns})):
        y, w = x["y"], x["w"]
        v = p * scale
{body}
        return {result}
    def rebind(new, number):
        nonlocal cell, count
        cell, count = new, number
    return f, rebind

f, rebind = outer(made({columns}), 2)
target = {target}
"""

# A step takes `v` of the shape of `p` to another value of that shape.
STEPS = [
    "v = np.tanh(v) * y",
    "v = np.sin(v) + np.exp(-v * v)",
    "v = v @ w * 0.3",
    "v = (w @ v.T).T + p",
    "v = v[index]",
    "v = v[::-1] * y",
    "v = np.concatenate([v[1:], v[:1] * 2.0])",
    "v = v - np.mean(v, axis=0)",
    "v = np.cumsum(v, axis=1) * 0.5",
    "v = np.where(v > 0.1, v * v, -v)",
    "v = v * np.max(v, axis=1, keepdims=True)",
    "v = graph.softmax(v) + p",
    "v = graph.logsumexp(v, axis=1, keepdims=True) * y",
    "v = np.sqrt(v * v + 1.0)",
    "v = np.prod(v, axis=1, keepdims=True) + v",
    "v = np.einsum('ij,ij->i', v, y)[:, None] * v",
    "v = sum((v[i] * (i + 1) for i in range(v.shape[0])), 0.0) * v",
    "v = np.stack([v, y], axis=1).reshape(-1, v.shape[1])[: v.shape[0]]",
    "v = v.astype('float64').astype(p.dtype) * y",
    "v = graph.take_along_axis(v, np.argsort(ARRAY)[None].repeat(v.shape[0], 0), 1)",
    "v = np.zeros_like(v) + v",
    "v = np.sort(v, axis=0) * y",
    "v = v - np.median(v, axis=1, keepdims=True)",
    "v = np.cumprod(v, axis=1) + p",
    "v = np.pad(v, ((1, 0), (0, 0)), mode='edge')[:-1] * y",
    "v = np.interp(v, np.array([-1.0, 0.1, 1.0]), np.array([0.5, -0.5, 2.0])).astype(DTYPE) + v",
    "v = np.tril(v) + np.diff(v, axis=0, prepend=v[:1])",
    "v = np.average(v, axis=0, weights=y * y + 1.0) * v",
    # linear algebra
    "v = v + np.linalg.norm(v, axis=1, keepdims=True)",
    "v = v @ np.linalg.inv(w @ w.T + np.eye(w.shape[0], dtype=DTYPE))",
    "v = np.linalg.solve((w * w)[:1, :1] + 1, v[..., None])[..., 0] + v",
    "v = v * np.linalg.det(w)",
    "v = v @ np.linalg.cholesky(w @ w.T + np.eye(w.shape[0], dtype=DTYPE)).T",
    "v = v * np.linalg.svd(w)[1] + np.linalg.eigvalsh(w + w.T)",
    # batches
    "v = graph.vmap(lambda r: np.tanh(r) * ARRAY @ w)(v)",
    "v = graph.vmap(graph.grad(lambda r, s: np.sum(np.sin(r) * r * s)), (0, 0))(v, y)",
    "v = graph.vmap(lambda r: r * NUMBER + p[:, 0], in_axes=1, out_axes=-1)(v)",
    # what is captured
    "v = v + ARRAY",
    "v = v * NUMBER",
    "v = v ** ROWS * 0.1",
    "v = helper(v)",
    "v = bent(v, y)",
    "v = bent(v, BOX.row)",
    "v = weighted(v)",
    "v = BOX.times(v)",
    "v = v * BOX.twice",
    "v = v * SLOTS.number + SPACE.number",
    "v = v * LIST[0] + LIST[1]",
    "v = v + TABLE['k'] * TABLE['n']",
    "v = v * cell",
    "v = v + count",
    "v = v - array",
    "v = v * LARGE[0, 0] + LARGE[1, : v.shape[1]]",
    "v = v * float(ARRAY[0])",
    "v = v + (ARRAY * 2 + 1)",
    "v = v * (1.5 if NUMBER > 0.8 else 0.5)",
    "v = v * (1.5 if ARRAY.sum() > 0 else 0.5)",
    "v = v * (2.0 if flag else 3.0)",
    "v = v * scale",
    "v = v * getattr(BOX, 'number')",
    "v = v * len(TABLE)",
    # values that Python reads
    "v = v * 2.0 if np.sum(v).item() > 0 else v * 3.0",
    "v = v * 2.0 if np.sum(v) > 0.1 else v * 3.0",
    "v = v + float(graph.stop_gradient(np.sum(y)))",
    "v = v * int(np.argmax(graph.stop_gradient(y)))",
    "v = v * graph.stop_gradient(v).value",
    "v = v[np.argsort(graph.stop_gradient(v).value[:, 0])]",
    # derivatives inside, constants, settings
    "v = graph.grad(lambda u: np.sum(np.sin(u) * u * y))(v)",
    "v = graph.grad(lambda u: np.sum(helper(u) * cell * u))(v)",
    "v = graph.jvp(lambda u: u * np.tanh(u), (v,), (y,))[1]",
    "v = graph.checkpoint(helper)(v)",
    "v = graph.checkpoint(lambda u: np.tanh(u) * cell)(v)",
    "v = graph.stop_gradient(v) * v",
    "with graph.no_grad():\n            u = np.tanh(v)\n        v = v * u",
    "with graph.fusion(False):\n            v = np.tanh(v) * v",
    "with graph.jacobian_policy('cache'):\n            v = np.tanh(v) * np.sin(v)",
    # functions that are not pure
    "SEEN.append(1)",
    "BOX.number = BOX.number * 1.5",
    "v = v * random.uniform()",
    "v = v * len(SEEN)",
    "ARRAY[0] += 0.25",
]
IMPURE = 5
# A shape of so many elements that operations wait for one another.
WAITING = (40, 32)
RESULTS = ["np.sum(v * y)", "np.mean(v * v)", "(v * v).sum()"]
TARGETS = {
    "graph.value_and_grad(f, wrt=(0, 1))": "{}",
    "graph.grad(f)": "{}",
    "graph.value_and_grad(f, has_aux=True)": "{}, {{'v': v, 'n': NUMBER, 'parts': [v[0], None]}}",
    "lambda *a, **k: (lambda g: (g[0], a[0] - 0.5 * g[1]))(graph.value_and_grad(f)(*a, **k))": "{}",
    "lambda p, x, index, **k: graph.jvp(lambda q: f(q, x, index, **k), (p,), (p * 0.5,))": "{}",
    "graph.grad(lambda *a, **k: np.sum(graph.grad(f)(*a, **k) ** 2))": "{}",
}


class World:
    """A copy of a module, with the arguments of its target."""

    def __init__(self, text: str, seed: int, shape: tuple[int, int], dtype: str) -> None:
        self.module = types.ModuleType(f"replayed_{seed}")
        name = f"<program {seed}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), vars(self.module))
        self.random, self.dtype = np.random.default_rng(seed), dtype
        self.named: dict[str, Any] = {"flag": True, "scale": 0.5}
        self.resize(shape)

    def new(self, *shape: int) -> Any:
        return self.random.uniform(-1, 1, shape).astype(self.dtype)

    def resize(self, shape: tuple[int, int]) -> None:
        rows, columns = shape
        x = {"y": self.new(rows, columns), "w": self.new(columns, columns)}
        self.args = [self.new(rows, columns), x, self.random.integers(0, rows, rows)]


def _put(name: str) -> Callable[[World, random.Random], Any]:
    """A change of a module's name that has a number."""
    return lambda world, pick: setattr(world.module, name, pick.choice([0.75, 0.9, 1.25, -0.0, 0.0]))


def _fill(get: Callable[[Any], Any]) -> Callable[[World, random.Random], Any]:
    """A change of an array in place."""

    def change(world: World, pick: random.Random) -> None:
        array = get(world.module)
        array[(pick.randrange(array.shape[0]),)] = pick.choice([0.5, -0.25, 2.0])

    return change


def _argument(change: Callable[[list[Any], random.Random], Any]) -> Callable[[World, random.Random], Any]:
    return lambda world, pick: change(world.args, pick)


CHANGES: dict[str, Callable[[World, random.Random], Any]] = {
    "new arguments": lambda w, _: w.resize(w.args[0].shape),
    "another shape": lambda w, pick: w.resize((pick.randint(1, 5), w.args[0].shape[1])),
    "another layout": _argument(lambda a, _: a.__setitem__(0, np.asfortranarray(a[0]))),
    "a stride": _argument(lambda a, _: a.__setitem__(0, np.repeat(a[0], 2, axis=0)[::2])),
    "another dtype": _argument(lambda a, _: a.__setitem__(0, a[0].astype("float32"))),
    "integers": _argument(lambda a, _: a[1].__setitem__("y", (a[1]["y"] * 4).astype(f"int{8 * a[0].itemsize}"))),
    "an argument in place": _argument(lambda a, pick: a[0].__setitem__(0, pick.uniform(-1, 1))),
    "an inner argument in place": _argument(lambda a, _: np.negative(a[1]["y"], out=a[1]["y"])),
    "an argument twice": _argument(lambda a, _: a[1].__setitem__("y", a[0])),
    "more in a dict": _argument(lambda a, _: a[1].__setitem__("more", a[0] * 2)),
    "another order": _argument(lambda a, _: a.__setitem__(1, dict(reversed(a[1].items())))),
    "a captured argument": lambda w, _: w.args[1].__setitem__("w", np.outer(w.module.ARRAY, w.module.ARRAY)),
    "another index": _argument(lambda a, _: a.__setitem__(2, a[2][::-1].copy())),
    "a flag": lambda w, pick: w.named.__setitem__("flag", pick.random() < 0.5),
    "a scale": lambda w, pick: w.named.__setitem__("scale", pick.choice([0.5, 0.25, 0.0, -0.0, 1])),
    "NUMBER": _put("NUMBER"),
    "OTHER": _put("OTHER"),
    "ROWS": lambda w, pick: setattr(w.module, "ROWS", pick.choice([2, 3])),
    "ARRAY": lambda w, _: setattr(w.module, "ARRAY", w.new(w.module.ARRAY.size)),
    "ARRAY in place": _fill(lambda m: m.ARRAY),
    "LARGE in place": _fill(lambda m: m.LARGE),
    "LIST": lambda w, _: w.module.LIST.__setitem__(0, w.new(w.module.ARRAY.size)),
    "LIST in place": _fill(lambda m: m.LIST[0]),
    "TABLE": lambda w, _: w.module.TABLE.__setitem__("k", w.new(1)),
    "more in TABLE": lambda w, pick: w.module.TABLE.__setitem__(pick.choice("xyz"), 1.0),
    "an attribute": lambda w, pick: setattr(w.module.BOX, "number", pick.choice([0.25, 0.5])),
    "an array of an object": _fill(lambda m: m.BOX.row),
    "a class": lambda w, pick: setattr(w.module.Box, "shared", pick.choice([0.5, 0.25])),
    "a slot": lambda w, pick: setattr(w.module.SLOTS, "number", pick.choice([0.125, 0.5])),
    "a namespace": lambda w, pick: setattr(w.module.SPACE, "number", pick.choice([0.5, 0.75])),
    "an object": lambda w, _: setattr(w.module, "BOX", w.module.Box()),
    "a method": lambda w, _: setattr(w.module.Box, "times", lambda self, v: v * self.number),
    "a function": lambda w, _: setattr(w.module, "helper", lambda v: v * 0.5),
    "a cell": lambda w, pick: w.module.rebind(w.new(w.module.ARRAY.size), pick.choice([1, 2])),
    "a default": lambda w, _: setattr(w.module.f, "__defaults__", (True, 0.5, w.new(w.module.ARRAY.size))),
    "a default in place": _fill(lambda m: m.f.__defaults__[2]),
}


def program(seed: int) -> tuple[str, tuple[int, int], str]:
    """The text of a module, and the shape and dtype of its arguments."""
    pick = random.Random(seed)
    target = pick.choice([*TARGETS])
    shape = pick.choice([(3, 2), (1, 3), (4, 1), (3, 4), (2, 3), WAITING])
    dtype = pick.choice(["float64", "float64", "float32"])
    # Few functions may be impure: they are never replayed. With arrays that wait none is; see `examine`.
    impure = 0.0 if shape == WAITING else 0.05
    reading = [any(word in step for word in ("value", "item", "> 0.1 else v", "argmax")) for step in STEPS]
    weights = [0.3 if reads else 1.0 for reads in reading[:-IMPURE]] + [impure] * IMPURE
    steps = pick.choices(STEPS, weights, k=pick.randint(1, 6))
    result = TARGETS[target].format(pick.choice(RESULTS))
    body = "\n".join(" " * 8 + step for step in steps)
    return HEAD.format(dtype=dtype, seed=seed, columns=shape[1], body=body, result=result, target=target), shape, dtype


def outcome(call: Callable[..., Any], world: World) -> Any:
    """What a call gives, or the type of the error that it raises."""
    try:
        return call(*world.args, **world.named)
    except Exception as error:
        return type(error)


def difference(found: Any, wanted: Any) -> str:
    """How two results differ in structure, dtype, shape or any bit; empty if they do not. All NaNs are the same."""
    if isinstance(wanted, dict | tuple | list):
        keys = [*wanted] if isinstance(wanted, dict) else range(len(wanted))
        if type(found) is not type(wanted) or len(found) != len(wanted):
            return f"{found!r} in the place of {wanted!r}"
        return next(filter(None, [difference(found[key], wanted[key]) for key in keys]), "")
    if isinstance(wanted, np.ndarray | np.generic):
        if type(found) is not type(wanted) or (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
            return f"{found!r} in the place of {wanted!r}"
        same = (found == wanted) & (np.signbit(found) == np.signbit(wanted)) | (found != found) & (wanted != wanted)
        return "" if np.all(same) else f"{found!r} in the place of {wanted!r}"
    return "" if found is wanted or found == wanted else f"{found!r} in the place of {wanted!r}"


def examine(seed: int, tally: collections.Counter[str]) -> None:
    """Run the program of a seed; an AssertionError says what differs."""
    text, shape, dtype = program(seed)
    pick, done = random.Random(seed + 1), list[str]()
    # Whether the graph copies a large view depends on who else refers to its memory; sums then have another order.
    changes = [name for name in CHANGES if name != "a stride" or shape != WAITING]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        plain, compiled = World(text, seed, shape, dtype), World(text, seed, shape, dtype)
        call = graph.compile(compiled.module.target)
        for at in range(14):
            if at > 3 and pick.random() < 0.6:
                for name in pick.choices(changes, k=pick.randint(1, 2)):
                    done.append(f"{at}: {name}")
                    choices = pick.getstate()
                    for world in (plain, compiled):
                        pick.setstate(choices)
                        CHANGES[name](world, pick)
            target = plain.module.target
            if shape == WAITING:
                # A kernel that takes an array once, or stores more, may round otherwise: the graph learns in a first
                # call which values to store, and a new compiled function makes each array one Variable, and replays
                # nothing.
                for world in (plain, compiled):
                    outcome(graph.compile(world.module.target), world)
                target = graph.compile(target)
            wanted, found = outcome(target, plain), outcome(call, compiled)
            problem = difference(found, wanted) or difference(compiled.args, plain.args)
            problem = problem or difference(compiled.module.SEEN, plain.module.SEEN)
            assert not problem, f"seed {seed}, call {at}: {problem}\n{text}\n{done}\n{call.explain()}"
            _spoil(found)
            tally["calls"] += 1
            tally["errors"] += isinstance(wanted, type)
        tally["replayed"] += sum(form.runs for form in call._forms.values())
        tally["programs that are replayed"] += any(form.runs for form in call._forms.values())
        tally["programs"] += 1


def _spoil(result: Any) -> None:
    """Write to the arrays of a result: they are the caller's own."""
    if isinstance(result, dict | tuple | list):
        for each in result.values() if isinstance(result, dict) else result:
            _spoil(each)
    elif isinstance(result, np.ndarray):
        result.fill(77.0)


# Each is a piece of the package's text, and what is put there.
PLANTED = {
    "captured arrays are not compared": ("transformations/captures.py", "or array.tobytes() != content", ""),
    "captured names are not compared": (
        "transformations/captures.py",
        "if read() is not value and not guard.holds():",
        "if False:",
    ),
    "lengths of containers are not compared": (
        "transformations/captures.py",
        "if len(container) != size:",
        "if False:",
    ),
    "a condition does not end a recording": ("variable.py", 'read_by_python("a condition")', "pass"),
    "a conversion does not end a recording": ("variable.py", 'read_by_python("a conversion to a number")', "pass"),
    "dtypes are not in the key": ("transformations/compilation.py", "key.append(tree.dtype)", "pass"),
    "strides are not in the key": ("transformations/compilation.py", "key += tree.strides", "pass"),
    "flags are not in the key": ("transformations/compilation.py", "key.append((kind, tree))", "key.append(kind)"),
    "floats are not in the key": (
        "transformations/compilation.py",
        "key.append((kind, repr(tree)))",
        "key.append(kind)",
    ),
    "results share the program's memory": ("transformations/replay.py", """f"{code}.copy('K')\"""", "code"),
    "objects in C are trusted": (
        "transformations/captures.py",
        "if any(type(attribute).__name__ in _OF_C for",
        "if any(False for",
    ),
    "accumulators are not cleared": ("../codegen/loops/calls.py", "        sums[i] = 0.0\n", ""),
    "a batch runs too late": (
        "transformations/replay.py",
        "        self._end_batch()\n        if entry.in_place:",
        "        if entry.in_place:",
    ),
    "keys that arguments give are constants": (
        "indexing.py",
        "performed(np.copy, fresh_constant(part))",
        "fresh_constant(part.copy())",
    ),
    "a change in place is left out": ("recording.py", "elif in_place or not all(", "elif not all("),
}


def find_planted(programs: int) -> int:
    """Plant each bug in a copy of the package, and count those that the fuzzer does not find."""
    root, missed = Path(__file__).resolve().parents[2], 0
    for name, (file, right, wrong) in PLANTED.items():
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "dualbcast"
            shutil.copytree(root / "dualbcast", package, ignore=shutil.ignore_patterns("__pycache__"))
            path = package / "graph" / file
            text = path.read_text(encoding="utf-8")
            if text.count(right) != 1:
                raise SystemExit(f"{name}: {right!r} is not in {file} once")
            path.write_text(text.replace(right, wrong), encoding="utf-8")
            environment = {**os.environ, "PYTHONPATH": folder}
            command = [sys.executable, __file__, "--programs", str(programs)]
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = ended.returncode != 0
        missed += not found
        lines = (ended.stderr.strip() or "nothing").splitlines()
        said = next((line for line in reversed(lines) if "seed" in line), lines[-1])
        print(f"{'found' if found else 'MISSED'}: {name}: {said[:100]}", flush=True)
    return missed


def main() -> None:
    """Run the programs, and print how many there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first program")
    parser.add_argument("--planted", action="store_true")
    options = parser.parse_args()
    if options.planted:
        sys.exit(find_planted(options.programs))
    tally = collections.Counter[str]()
    for seed in range(options.first, options.first + options.programs):
        examine(seed, tally)
    print(", ".join(f"{count} {what}" for what, count in tally.items()))


if __name__ == "__main__":
    main()
