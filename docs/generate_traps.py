"""Writes docs/reference/traps.md from the table of traps, and runs the peers installed: python docs/generate_traps.py

What the peers gave is kept in docs/traps.json; a peer that is not installed keeps what is recorded there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import math
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "traps"))

from cases import TRAPS, Found, Trap, ours  # noqa: E402
from forwarddiff import FACTS, SOURCES  # noqa: E402

from dualbcast.errors import DualbcastError  # noqa: E402

PAGE, RECORD = HERE / "reference" / "traps.md", HERE / "traps.json"
PEERS = {"jax": "JAX", "torch": "PyTorch", "warp": "Warp"}

HEAD = """\
# Traps

These are cases in which automatic differentiation silently goes wrong, with the results of several systems. Each row is
a function and a point. The right results are worked out by hand. The column *dualbcast* is a test on both CPU backends,
in float64 and float32 (`tests/traps`), and this page is generated from the same table.

```python
>>> import math
>>> import numpy as np
>>> from dualbcast import differentiable_broadcast

>>> @differentiable_broadcast
... def repeated_square(x, n):
...     for _ in range(n):                     # a number of iterations that is data
...         x = x * x
...     return math.sqrt(x) if x > 0 else 0.0

>>> y, J = repeated_square.value_and_jacobian(np.array([1.5, 0.0]), np.array([3, 2], np.int8))
>>> J["x"]                                     # 4 · 1.5³, and no NaN from the side not taken
array([13.5,  0. ])

```

The other systems ran on a CPU in float64: {versions}. Each row is written
as the library's users would write it. If there are several ways, all are shown, among them the well-known repair:
[JAX](../../tests/traps/peers_jax.py), [PyTorch](../../tests/traps/peers_torch.py),
[Warp](../../tests/traps/warp_programs.py).
ForwardDiff was not run. Its column cites its documentation, its rules and its issues.

| cell | meaning |
| --- | --- |
| ✓ | right at the point shown and at others |
| `NaN`, `(0, 1)` | the wrong derivatives that it gives |
| value `6` | the value itself is wrong |
| convention: `0.5` | no derivative exists there, and this choice is as good |
| error | it refuses, with a message |
| … (`where`) | written this way |
| — | does not apply: its arrays never change |
{waiting}"""

NOTES = {
    "Branches not taken": """\
In systems that compute both sides the repair is a second `where` around the argument, as
[JAX's FAQ](https://docs.jax.dev/en/latest/faq.html) explains. The NaN has been known since
[JAX 1052](https://github.com/jax-ml/jax/issues/1052) and
[PyTorch 68425](https://github.com/pytorch/pytorch/issues/68425). Since ForwardDiff 1.0 a comparison of equal values
also looks at the derivatives, and may have another result than for plain numbers.
""",
    "Loops": """\
If the length of a loop is known only at run time, Warp's adjoint sees the variables of the loop with their final
values ([documentation](https://nvidia.github.io/warp/user_guide/differentiability.html),
[Warp 729](https://github.com/NVIDIA/warp/issues/729)). A loop with `break` is never unrolled, so it has the same
problem ([Warp 1552](https://github.com/NVIDIA/warp/issues/1552)). JAX's reverse mode refuses such loops. Its forward
mode is right, and so are loops of fixed length.
""",
}


def number(x: float) -> str:
    if isinstance(x, int):
        return str(x)
    return "NaN" if math.isnan(x) else f"{x + 0.0:.5g}"


def numbers(xs: Any) -> str:
    texts = [number(x) for x in xs]
    return f"`{texts[0]}`" if len(texts) == 1 else f"`({', '.join(texts)})`"


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-6)


def all_same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def place(point: Any) -> str:
    return f"`({', '.join(x if isinstance(x, str) else number(x) for x in point)})`"


def verdict(trap: Trap, found: Found) -> str:
    """The first thing that is not right, or a tick."""
    convention = ""
    for at, (point, (value, partials)) in enumerate(trap.row.items()):
        where = f" at {place(point)}" if at else ""
        if not same(found.values[at], value):
            return f"value `{number(found.values[at])}`{where}"
        if all_same(found.partials[at], partials):
            continue
        if at == 0 and any(all_same(found.partials[at], other) for other in trap.conventions):
            convention = f"convention: {numbers(found.partials[at])}"
        else:
            return numbers(found.partials[at]) + where
    return convention or "✓"


def cell(trap: Trap, ways: dict[str, Any]) -> str:
    """The verdicts on all ways to write a row, the same ones together."""
    verdicts: dict[str, list[str]] = {}
    for way, result in ways.items():
        text = (
            "error"
            if "error" in result
            else verdict(trap, Found(decoded(result["values"]), decoded(result["partials"])))
        )
        verdicts.setdefault(text, []).append(way)
    if not verdicts:
        return "—"
    if len(verdicts) == 1 and (len(ways) > 1 or "" in ways):
        return next(iter(verdicts))
    return "; ".join(f"{text} ({', '.join(f'`{way}`' for way in names)})" for text, names in verdicts.items())


def fact(name: str) -> str:
    if name not in FACTS:
        return "not run"
    text, _, keys = FACTS[name].rpartition("; ")
    return " ".join([text.replace("right", "✓"), *(f"[{key}]" for key in keys.split())])


# --- the record ------------------------------------------------------------------------------------------------------


def encoded(x: Any) -> Any:
    """JSON has no NaN and no infinities."""
    if isinstance(x, list):
        return [encoded(item) for item in x]
    return x if math.isfinite(x) else str(x)


def decoded(x: Any) -> Any:
    return [decoded(item) for item in x] if isinstance(x, list) else float(x)


def measure(name: str) -> dict[str, Any] | None:
    """What a peer gives in all rows, or nothing where it is not installed."""
    try:
        library = importlib.import_module(name)
    except ImportError:
        return None
    peer = importlib.import_module(f"peers_{name}")
    rows: dict[str, Any] = {}
    for trap in TRAPS:
        rows[trap.name] = {}
        for way, thunk in peer.run(library, trap).items():
            try:
                found = thunk()
            except Exception as error:
                rows[trap.name][way] = {"error": type(error).__name__}
            else:
                rows[trap.name][way] = {"values": encoded(found.values), "partials": encoded(found.partials)}
    return {"version": peer.version(library), "rows": rows}


def recorded() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return record


def written(record: dict[str, Any]) -> str:
    """JSON with one line for each row."""
    parts = []
    for name, peer in record.items():
        rows = ",\n".join(f"   {json.dumps(row)}: {json.dumps(ways)}" for row, ways in peer["rows"].items())
        parts.append(
            f' {json.dumps(name)}: {{\n  "version": {json.dumps(peer["version"])},\n  "rows": {{\n{rows}\n  }}\n }}'
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


# --- the page --------------------------------------------------------------------------------------------------------


def source(trap: Trap) -> str:
    """A function's text without its decorators."""
    text = textwrap.dedent(inspect.getsource(trap.function))
    node = ast.parse(text).body[0]
    return "\n".join(text.splitlines()[node.lineno - 1 :])


def own(trap: Trap) -> str:
    try:
        return verdict(trap, ours(trap, "cpu", trap.dtypes[0]))
    except DualbcastError:
        return "error"


def table_row(trap: Trap, record: dict[str, Any]) -> str:
    point = trap.points[0]
    value, partials = trap.row[point]
    right = numbers(partials) if partials else f"value `{number(value)}`"
    peers = [cell(trap, record.get(peer, {}).get("rows", {}).get(trap.name, {})) for peer in PEERS]
    name = trap.name.replace("_", " ")
    return f"| {' | '.join([name, place(point), right, own(trap), *peers, fact(trap.name)])} |"


def page() -> str:
    """The text of docs/reference/traps.md."""
    record = recorded()
    versions = [record[peer]["version"] for peer in PEERS]
    waiting = [f"`{trap.name}` is not right yet: {trap.waits}." for trap in TRAPS if trap.waits]
    head = HEAD.replace("{versions}", f"{', '.join(versions[:-1])} and {versions[-1]}")
    lines = [head.replace("{waiting}", "".join(f"\n{sentence}\n" for sentence in waiting))]
    for group in dict.fromkeys(trap.group for trap in TRAPS):
        rows = [trap for trap in TRAPS if trap.group == group]
        lines += [f"## {group}\n", *([NOTES[group]] if group in NOTES else [])]
        lines += [f"| | at | right | dualbcast | {' | '.join(PEERS.values())} | ForwardDiff |"]
        lines += ["| --- " * (5 + len(PEERS)) + "|", *(table_row(trap, record) for trap in rows)]
        lines += ["\n```py\n" + "\n\n\n".join(map(source, rows)) + "\n```\n"]
    lines += [f"[{key}]: {url}" for key, url in SOURCES.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    record = recorded()
    record.update({peer: results for peer in PEERS if (results := measure(peer)) is not None})
    RECORD.write_text(written(record), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
