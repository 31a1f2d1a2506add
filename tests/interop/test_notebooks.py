"""The notebooks of the documentation, run by a kernel: their outputs are in essence those that readers see."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import dualbcast

ROOT = Path(dualbcast.__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDED = ("nbclient", "nbformat", "ipykernel", "matplotlib")

needs_kernels = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason=f"{', '.join(NEEDED)} are needed: pip install 'dualbcast[notebook]'",
)
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def essence(output: Any) -> tuple[Any, ...]:
    """What must be equal when a notebook is run again: all but the bytes of a picture."""
    if output["output_type"] == "stream":
        return output["name"], "".join(output["text"])
    if output["output_type"] == "error":
        return output["ename"], "\n".join(output["traceback"])
    data = {kind: "".join(text) for kind, text in output["data"].items()}
    if "image/png" in data:
        assert len(data["image/png"]) > 5_000, "a picture with something in it"
        data["image/png"] = ""
    return tuple(sorted(data.items()))


def errors_of(cells: Any) -> list[str]:
    return [output["ename"] for cell in cells for output in cell.get("outputs", ()) if output["output_type"] == "error"]


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["first_steps.ipynb"]


@needs_kernels
@each_notebook
def test_a_notebook_gives_the_outputs_that_it_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    shown = [[essence(output) for output in cell.get("outputs", ())] for cell in book.cells]
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    given = [
        [essence(output) for output in cell.get("outputs", ()) if output.get("name") != "stderr"] for cell in book.cells
    ]
    assert given == shown


@each_notebook
def test_a_notebook_shows_what_it_promises(path: Path) -> None:
    """Its outputs are in the file, so that it can be read where it cannot be run."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    html = ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    assert any(text.startswith("<div>Jacobian: ") for text in html)
    assert any("bytes read" in text for text in html)
    assert [output for output in outputs if "image/png" in output.get("data", {})]
    assert errors_of(cells) == ["CompileError"]
    (trace,) = [output["traceback"] for output in outputs if output["output_type"] == "error"]
    assert len(trace) == 6
    assert trace[0].startswith("CompileError: Cell [")
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert any("graph.value_and_grad(" in text for text in code)
    assert [cell.get("execution_count") for cell in cells if cell["cell_type"] == "code"] == [
        *range(1, 1 + len(code)),
    ], "it was run from top to bottom"
    assert "/" not in "".join(output.get("text", "") for output in outputs)
