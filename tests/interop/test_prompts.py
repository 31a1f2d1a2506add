"""What a user sees of an error in a script, at a prompt and in a notebook; and which functions have a text.

Each session is a process of its own that runs as a user's does, and its output is looked at line by line.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.errors import Location

ROOT = Path(dualbcast.__file__).parent.parent
KEEPS_TEXT = sys.version_info >= (3, 13)  # at the prompt, and of `python -c`

needs_ipython = pytest.mark.skipif(
    importlib.util.find_spec("IPython") is None, reason="IPython is not installed: pip install 'dualbcast[notebook]'"
)
needs_kernels = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nbclient", "nbformat", "ipykernel")),
    reason="nbclient or ipykernel is not installed: pip install 'dualbcast[notebook]'",
)

SETUP = """\
import numpy as np
from dualbcast import differentiable_broadcast

@differentiable_broadcast
def f(x, y):
    return x[-1] + x * y

@differentiable_broadcast
def g(x, y):
    return x * y

"""
NEIGHBOUR = [
    "x is one element of its array here, so it cannot be indexed",
    "     6 |     return x[-1] + x * y",
    "       |            ^^^^^",
    'Write instead: whole="x" in the decorator, or signature="(n)->()" for vectors along its last axis; or the '
    "shifted or sliced array as another argument",
]
SHAPES = (
    "ShapeError: The shapes do not broadcast together: x (3,), y (4,). Axis -1 has lengths 3 and 4; lengths along an "
    "axis must be equal, or 1."
)
# By the kind of error: a call, and the lines of the message, with PLACE for the place in the function.
CALLS = {
    "CompileError": ("f(np.ones(3), np.ones(3))", [f"CompileError: PLACE: {NEIGHBOUR[0]}", *NEIGHBOUR[1:]]),
    "ArgumentError": ("g(np.ones(3))", ["ArgumentError: g(x, y) lacks a value for y"]),
    "ShapeError": ("g.value_and_jacobian(np.ones(3), np.ones(4))", [SHAPES]),
}
EACH_ERROR = pytest.mark.parametrize("kind", CALLS)


def session(*command: str, text: str | None = None, **environment: str) -> str:
    """What a process prints on both streams."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "PYTHON_COLORS": "0", **environment}
    done = subprocess.run(
        [sys.executable, *command],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=variables,
        timeout=300,
        check=False,
    )
    return re.sub(r"\x1b\[[\d;]*m", "", done.stdout)  # without colours


def expected(kind: str, place: str) -> list[str]:
    return [line.replace("PLACE", place) for line in CALLS[kind][1]]


# --- how much of an error is printed ---------------------------------------------------------------------------------


def of_traceback(shown: str, file: str, line: int, call: str) -> list[str]:
    """The lines of a message after a traceback that has one frame, the user's; Python 3.13 underlines a call."""
    lines = [each for each in shown.splitlines() if not re.fullmatch(r"\s*[~^]+", each)]
    assert lines[:3] == [
        "Traceback (most recent call last):",
        f'  File "{file}", line {line}, in <module>',
        f"    {call}",
    ]
    return [re.sub(r"^dualbcast\.errors\.", "", each) for each in lines[3:]]


@EACH_ERROR
def test_a_script_shows_the_users_line_and_the_message(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SETUP + CALLS[kind][0])
    shown = session(str(path))
    assert of_traceback(shown, str(path), 12, CALLS[kind][0]) == expected(kind, f"{path}:6:12")


@EACH_ERROR
def test_the_prompt_shows_the_message_alone(kind: str, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(SETUP)
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom functions import *\n{CALLS[kind][0]}\n"
    shown = session("-q", "-i", text=text)
    lines = [line for line in shown.replace(">>> ", "").splitlines() if not re.fullmatch(r"\s*[~^]*", line)]
    frame = ['  File "<stdin>", line 1, in <module>', *[f"    {CALLS[kind][0]}"] * KEEPS_TEXT]
    message = expected(kind, f"{tmp_path / 'functions.py'}:6:12")
    assert lines[: 1 + len(frame)] == ["Traceback (most recent call last):", *frame]
    assert [re.sub(r"^dualbcast\.errors\.", "", line) for line in lines[1 + len(frame) :]] == [
        *message[:2],
        *[line for line in message[2:] if not re.fullmatch(r"\s*[~^]*", line)],
    ]


def test_all_frames_are_shown_if_the_environment_asks_for_them(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SETUP + CALLS["ShapeError"][0])
    shown = session(str(path), DUALBCAST_TRACEBACK="full")
    assert len(re.findall(r'File ".*dualbcast/\w+/\w+\.py"', shown)) >= 4
    assert SHAPES in shown


def test_frames_of_the_user_between_those_of_the_package_stay(tmp_path: Path) -> None:
    """A loss that a gradient calls, with an error inside, and an error of the user's own."""
    path = tmp_path / "script.py"
    text = SETUP + "def loss(x):\n    return np.sum(g(x, np.ones(4)))\n"
    call = "from dualbcast import graph\ngraph.grad(loss)(np.ones(3))\n"
    path.write_text(text + call)
    frames = re.findall(r'File "(.*)", line (\d+), in (\S+)', session(str(path)))
    assert frames == [(str(path), "15", "<module>"), (str(path), "13", "loss")]
    path.write_text(text.replace("g(x, np.ones(4))", "x / []") + call)
    shown = session(str(path))
    assert shown.splitlines()[-1].startswith("TypeError")


@differentiable_broadcast
def added(x: Any, y: Any) -> Any:
    return x + y


@differentiable_broadcast
def shifted(x: Any, y: Any) -> Any:
    return x[-1] + y


@pytest.mark.parametrize(
    "call",
    [
        lambda: added(np.ones(3), np.ones(4)),
        lambda: added(np.ones(3)),
        lambda: added(2**70, 1),
        lambda: shifted(1.0, 2.0),
        lambda: differentiable_broadcast(3),  # type: ignore[call-overload]
        lambda: dualbcast.from_source("def f("),
    ],
)
def test_an_exception_that_the_user_was_handling_is_kept(call: Any) -> None:
    """Also where the package hides an exception of its own by `from None`."""

    def fails() -> None:
        try:
            raise KeyError("of the user")
        except KeyError:
            call()

    with pytest.raises(dualbcast.DualbcastError) as caught:
        fails()
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 2
    assert "KeyError: 'of the user'\n\nDuring handling of the above exception" in shown
    with pytest.raises(dualbcast.DualbcastError) as caught:
        call()
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


# --- IPython and notebooks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filename", "place"),
    [
        ("<ipython-input-5-0a1b2c3d4e5f>", "Cell [5], line 2"),
        ("<ipython-input-again>", "<ipython-input-again>:2:1"),
        ("/tmp/ipykernel_12/345.py", "/tmp/ipykernel_12/345.py:2:1"),
        ("<stdin>", "<stdin>:2:1"),
    ],
)
def test_names_of_cells_without_a_shell_that_knows_them(filename: str, place: str) -> None:
    assert str(Location(filename, 2, 0, 2, 1)) == place


def in_ipython(*cells: str, setup: str = "") -> str:
    """What a shell of IPython prints for these cells, the first of which is number 1."""
    program = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell\n"
        f"shell = InteractiveShell()\n{setup}\n"
        f"for cell in {cells!r}: shell.run_cell(cell, store_history=True)\n"
    )
    return session("-c", program)


@needs_ipython
@EACH_ERROR
def test_ipython_shows_six_lines_and_names_the_cell(kind: str) -> None:
    call, message = CALLS[kind][0], expected(kind, "Cell [1], line 6")
    lines = in_ipython(SETUP, "y = 2", f"x = 3\n{call}").splitlines()
    assert lines == [*message, "called at Cell [3], line 2", f"     2 | {call}"]
    assert len(lines) <= 6


@needs_ipython
def test_a_cell_may_import_a_module_and_call_it_in_a_function() -> None:
    """IPython compiles each statement of a cell alone, so that the code of `math.sin` is another than in a file."""
    text = "import math\nimport numpy as np\n" + SETUP.partition("\n\n")[0]
    text += "\n@differentiable_broadcast\ndef h(x):\n    return math.sin(x) + np.cos(x)\nprint(round(h(0.5), 12))"
    assert in_ipython(text).strip() == str(round(np.sin(0.5) + np.cos(0.5), 12))
    changed = "import linecache\nname = (lambda: 0).__code__.co_filename\ndef k(x):\n    return 2 * x\n"
    changed += "size, time, lines, full = linecache.cache[name]\n"
    changed += "linecache.cache[name] = size, time, [line.replace('2 *', '3 *') for line in lines], full\n"
    changed += "differentiable_broadcast(k)(1.0)"
    assert "the text of k has changed since it was defined" in in_ipython(SETUP, changed)


@needs_ipython
def test_ipython_shows_the_calls_that_led_there() -> None:
    cell = "def step(n):\n    return f(np.ones(n), 2.0)\ndef train():\n    for n in range(3):\n        step(n)\ntrain()"
    assert in_ipython(SETUP, cell).splitlines()[4:] == [
        "called at Cell [2], line 2, in step()",
        "     2 |     return f(np.ones(n), 2.0)",
        "called at Cell [2], line 5, in train()",
        "     5 |         step(n)",
        "called at Cell [2], line 6",
        "     6 | train()",
    ]
    deep = "def again(n):\n    return again(n - 1) if n else f(1.0, 2.0)\nagain(40)"
    shown = in_ipython(SETUP, deep)
    assert "… and 30 calls more" in shown
    assert len(shown.splitlines()) == 4 + 2 * 12 + 1


@needs_ipython
def test_a_magic_of_ipython_adds_no_line() -> None:
    shown = in_ipython(SETUP, "%time g(np.ones(3))")
    lines = shown[shown.index("ArgumentError") :].splitlines()
    assert lines[0] == "ArgumentError: g(x, y) lacks a value for y"
    assert lines[1] == "called at <timed eval>:1"
    assert not [line for line in lines if "IPython/" in line]
    assert len(lines) <= 5


@needs_ipython
def test_ipython_shows_everything_where_more_is_to_be_seen() -> None:
    chained = "try:\n    {}['key']\nexcept KeyError:\n    g(np.ones(3), np.ones(4))"
    shown = in_ipython(SETUP, chained)
    assert "KeyError" in shown
    assert "During handling of the above exception" in shown
    assert SHAPES in shown
    verbose = in_ipython(SETUP, "g(np.ones(3))", setup="shell.run_line_magic('xmode', 'Verbose')")
    assert "Traceback (most recent call last)" in verbose
    noted = "try:\n    g(np.ones(3))\nexcept Exception as error:\n    error.add_note('a note')\n    raise"
    assert "a note" in in_ipython(SETUP, noted).splitlines()


@needs_ipython
def test_the_debugger_of_ipython_starts_at_the_users_frame(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(f"{SETUP}def step(n):\n    return g(np.ones(n), np.ones(4))\n")
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom functions import *\n"
    text += "step(3)\n%debug\nprint('n is', n)\nq\nexit\n"
    environment = {"IPYTHONDIR": str(tmp_path / "ipython"), "TERM": "dumb"}
    shown = session("-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor", text=text, **environment)
    assert "n is 3" in shown


def notebook(*cells: str) -> Any:
    """A notebook with these cells, run by a kernel of its own."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(book, timeout=300, allow_errors=True).execute()
    return book


@pytest.fixture
def found_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@needs_kernels
@pytest.mark.usefixtures("found_by_kernels")
def test_a_notebook_shows_six_lines_and_names_the_cell() -> None:
    """Its cells are compiled under names such as /tmp/ipykernel_123/456.py."""
    call = CALLS["CompileError"][0]
    book = notebook("import math", SETUP, *[call for call, _ in CALLS.values()], SETUP, call)
    for at, kind in enumerate(CALLS, start=2):
        (output,) = book.cells[at].outputs
        called = [f"called at Cell [{at + 1}], line 1", f"     1 | {CALLS[kind][0]}"]
        assert "\n".join(output.traceback).splitlines() == [*expected(kind, "Cell [2], line 6"), *called]
        assert output.ename == kind
    (output,) = book.cells[-1].outputs
    assert output.evalue.startswith("Cell [6], line 6: "), "the cell that was run last defines the function"


@needs_kernels
@pytest.mark.usefixtures("found_by_kernels")
def test_a_notebook_draws_tables_and_progress() -> None:
    sweep = "group(['sweep', '--arity', '1:2', '--n', '16', '--min-time', '0', '--repeat', '1'], standalone_mode=False)"
    book = notebook(
        SETUP,
        "g.explain('float64', 'float32')",
        "g.jacobian(np.ones(3), 2.0)",
        "g.hessian(np.ones(3), 2.0)",
        f"from dualbcast.cli.app import group\n{sweep}",
    )
    for cell in book.cells[1:4]:
        (output,) = cell.outputs
        assert "<table>" in output.data["text/html"]
    shown = [output.data["text/html"] for output in book.cells[4].outputs if "data" in output]
    assert re.search(r'<progress value="2" max="2"></progress> 2/2', shown[0])
    assert "arity 1: checked" in shown[1]
    assert "error" in shown[-1], "the table at the end"


# --- functions without a file ----------------------------------------------------------------------------------------

DEFINE = "from dualbcast import differentiable_broadcast\ndef f(x):\n    return x * x\n\n"
USE = "print(differentiable_broadcast(f)(3.0))\n"


def test_a_program_given_on_the_command_line() -> None:
    shown = session("-c", DEFINE + USE)
    if KEEPS_TEXT:
        assert shown.strip() == "9.0"
    else:
        assert "the source of f is not available: exec() keeps no text, nor does `python -c` before" in shown
        assert "differentiable_broadcast.from_source(text)" in shown


def test_a_program_on_standard_input() -> None:
    shown = session("-", text=DEFINE + USE)
    assert "the source of f is not available: Python keeps no text of a program on standard input" in shown
    assert "differentiable_broadcast.from_source(text)" in shown


def test_the_prompt_of_python() -> None:
    shown = session("-q", "-i", text=DEFINE + USE)
    if KEEPS_TEXT:
        assert "9.0" in shown
    else:
        assert "the source of f is not available: the prompt keeps no text before Python 3.13" in shown
        assert "a file, in IPython, or at the prompt of Python 3.13; or differentiable_broadcast.from_source" in shown
    text = "lambda x: x * x"
    shown = session("-q", "-i", text=f"{DEFINE}print(differentiable_broadcast.from_source({text!r})(3.0))\n")
    assert "9.0" in shown


def test_a_function_of_a_doctest() -> None:
    """Its lines are found while the test runs."""
    import doctest

    text = ">>> from dualbcast import differentiable_broadcast\n>>> def f(x):\n...     return x * x\n"
    text += ">>> print(differentiable_broadcast(f)(3.0))\n9.0\n"
    text += (
        ">>> differentiable_broadcast(lambda x: x[0])(3.0)  # doctest: +ELLIPSIS\nTraceback (most recent call last):\n"
    )
    text += "    ...\ndualbcast.errors.CompileError: <doctest page[3]>:1:36: x is one element...\n"
    test = doctest.DocTestParser().get_doctest(text, {}, "page", None, 0)
    output: list[str] = []
    assert doctest.DocTestRunner().run(test, out=output.append).failed == 0, "".join(output)


def test_a_module_in_a_zip_file_runs_and_shows_its_lines(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("zipped.py", SETUP)
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nsys.path.insert(0, 'archive.zip')\nimport zipped\nprint(zipped.g(3.0, 2.0))\nzipped.f(1.0, 2.0)"
    )
    shown = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "PYTHON_COLORS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stdout.strip() == "6.0"
    assert NEIGHBOUR[1] in shown.stderr.splitlines()
