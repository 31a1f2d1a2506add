"""What the site needs beyond Sphinx's extensions: links from names in code, links to other files, formulas."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.intersphinx import InventoryAdapter
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "dualbcast"
# The pages write `f` for a function, `J` for its Jacobian, `H` for its Hessian and `v` for a Variable.
SUBJECTS = {
    "f": f"{PACKAGE}.BroadcastFunction",
    "J": f"{PACKAGE}.Jacobian",
    "H": f"{PACKAGE}.Hessian",
    "v": f"{PACKAGE}.graph.Variable",
    "np": "numpy",
}
NAME = re.compile(r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)*")


class CodeLinks(SphinxPostTransform):
    """Makes a link of each name in code that has a page in the reference, or in one of the inventories.

    In a docstring a name may be that of a neighbour: of another method of the class or another function of the module.
    """

    default_priority = 20

    def run(self, **_: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, nodes.reference | nodes.title | addnodes.pending_xref):
                continue
            name = name_in(literal.astext())
            reference = self.reference(self.candidates(name, literal), literal) if name else None
            if reference is not None:
                literal.replace_self(reference)

    def candidates(self, name: str, literal: nodes.Node) -> list[str]:
        """The full names that a name may stand for, the nearest first."""
        head, _, rest = name.partition(".")
        if rest and head in SUBJECTS:
            return [f"{SUBJECTS[head]}.{rest}"]
        names = []
        node = literal.parent
        while node is not None:
            if isinstance(node, addnodes.desc) and node["domain"] == "py":
                signature = node[0]
                module = signature.get("module") or ""
                names += [f"{scope}.{name}" for scope in (f"{module}.{signature.get('fullname')}", module) if scope]
            node = node.parent
        return [*names, name, f"{PACKAGE}.{name}"]

    def reference(self, names: list[str], literal: nodes.literal) -> nodes.reference | None:
        """A link to the first of the names that has a page."""
        objects = self.env.domains.python_domain.objects
        inventory = InventoryAdapter(self.env).main_inventory
        for name in names:
            found = objects.get(name)
            if found is not None:
                page = self.env.docname
                if found.docname == page and found.objtype == "module":
                    return None
                return make_refnode(self.app.builder, page, found.docname, found.node_id, literal.deepcopy(), name)
            for kind, entries in inventory.items():
                if "." in name and kind.startswith("py:") and name in entries:
                    uri = entries[name].uri
                    return nodes.reference("", "", literal.deepcopy(), internal=False, refuri=uri, reftitle=name)
        return None


def name_in(code: str) -> str:
    """The name that a piece of code is, or that it calls; "" if it is anything else."""
    outside, count = code, 1
    while count:
        outside, count = re.subn(r"\([^()]*\)", "", outside)
    match = NAME.match(code)
    return match[0] if match and NAME.fullmatch(outside) else ""


class EndsOfSessions(SphinxTransform):
    """Takes off the empty line at the end of a session, which is there for the pages' tests."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for block in self.document.findall(nodes.literal_block):
            if block.astext().endswith("\n"):
                block.children[:] = [nodes.Text(block.astext().rstrip())]
                block.rawsource = block.astext()


class SourceLinks(SphinxTransform):
    """Makes links to files of the repository that are no pages lead to the repository, if its address is known.

    Without an address the site has a copy of each such file.
    """

    default_priority = 400

    def apply(self, **_: Any) -> None:
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for link in list(self.document.findall(addnodes.download_reference)):
            if link.get("reftype") == "myst":  # and not a download of the gallery
                self.lead(link, folder / link["reftarget"])
        for link in list(self.document.findall(addnodes.pending_xref)):
            target = link["reftarget"]
            if link["reftype"] != "myst":
                continue
            if folder / target == self.env.srcdir / "gallery":  # its programs become pages
                link.attributes.update(refdomain="doc", reftarget="generated/gallery/index", reftargetid=None)
            elif link["refdomain"] == "doc" and target not in self.env.found_docs:
                path = self.env.srcdir / (target + ".md")  # such as CONTRIBUTING.md, which MyST takes for a page
                if path.is_file():
                    self.lead(link, path)

    def lead(self, link: nodes.Element, path: Path) -> None:
        """Make a link lead to a file, in the repository or to the site's copy."""
        address = source_address(self.config.repository, path)
        if address:
            link.replace_self(nodes.reference("", "", *link.children, internal=False, refuri=address))
        elif not isinstance(link, addnodes.download_reference):
            copy = addnodes.download_reference("", "", *link.children, refdoc=self.env.docname)
            copy["reftarget"] = os.path.relpath(path, Path(self.env.doc2path(self.env.docname)).parent)
            link.replace_self(copy)


def source_address(repository: str, path: Path) -> str:
    """The address of a file in the repository; "" if the repository's address is not known."""
    inside = Path(os.path.abspath(path)).relative_to(ROOT)
    return f"{repository.rstrip('/')}/blob/main/{inside.as_posix()}" if repository else ""


# --- formulas as MathML, which browsers draw without a script from elsewhere ---------------------------------------


def visit_math(writer: Any, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_math_block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("repository", "", "env", (str,))
    app.add_transform(EndsOfSessions)
    app.add_transform(SourceLinks)
    app.add_post_transform(CodeLinks)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
