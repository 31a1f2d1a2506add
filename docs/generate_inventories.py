"""Looks the names of docs/inventories up in the projects' own inventories: python docs/generate_inventories.py

It needs a network, or a project's inventory in a file: `numpy=path/to/objects.inv`. A build of the site needs neither.
To link to another name, add a line with it to the project's file, and run this.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

from conf import ADDRESSES
from sphinx.util.inventory import InventoryFile

HERE = Path(__file__).parent
# Of the names of a method and a label, say, that of the Python object counts.
KINDS = ("module", "class", "function", "method", "exception", "data", "attribute", "property")


def written(project: str, inventory: bytes, names: list[str]) -> str:
    """The text of a file of docs/inventories, in version 1 of the format, which is plain text."""
    entries = InventoryFile.loads(inventory, uri="").data
    lines = ["# Sphinx inventory version 1", f"# Project: {project}", "# Version:"]
    for name in sorted(names):
        found = [(kind, entries[f"py:{kind}"][name].uri) for kind in KINDS if name in entries.get(f"py:{kind}", {})]
        if not found:
            raise SystemExit(f"{project} has no page for {name}: leave it out of docs/inventories/{project}.txt")
        kind, address = found[0]
        page, _, anchor = address.partition("#")
        if anchor != name and kind != "module":
            raise SystemExit(f"{name} has the anchor {anchor}, which this format cannot say")
        lines.append(f"{name} {'mod' if kind == 'module' else kind} {page}")
    return "\n".join(lines) + "\n"


def main() -> None:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    for project, address in ADDRESSES.items():
        if given and project not in given:
            continue
        path = HERE / "inventories" / f"{project}.txt"
        names = [line.split()[0] for line in path.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")]
        if project in given:
            inventory = Path(given[project]).read_bytes()
        else:
            with urllib.request.urlopen(f"{address}/objects.inv", timeout=30) as answer:
                inventory = answer.read()
        path.write_text(written(project, inventory, names), encoding="utf-8")


if __name__ == "__main__":
    main()
