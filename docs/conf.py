"""The site's configuration: `python -m sphinx -b html -W -n docs build/site` builds it, without any network.

The theme is that of NumPy, SciPy and pandas, so their readers know where things are, and it gives each of the kinds of
pages a navigation of its own. docs/inventories has the addresses of the names of other projects.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

METADATA = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "dualbcast"
author = "The dualbcast developers"
project_copyright = author
version = release = METADATA["version"]
# Links to files that are no pages lead there; without it the site has a copy of each file.
repository = METADATA.get("urls", {}).get("Repository", "")

extensions = [
    "myst_parser",
    "site_extension",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery", "examples", "inventories"]
nitpicky = True
highlight_language = "python"
# In docstrings a name in single backticks is code, as in Markdown.
default_role = "code"

# --- Markdown, with links and anchors as the repository's pages have them ------------------------------------------

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]

# --- the reference -------------------------------------------------------------------------------------------------

autosummary_generate = True
autosummary_ignore_module_all = False
templates_path = ["templates"]
autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False

# These have no page to lead to:
nitpick_ignore = {
    # what stands for a type in a docstring,
    ("py:class", "array"),
    ("py:class", "module"),
    # the keywords of the decorator, which its own page lists,
    ("py:class", "dualbcast.api.function.DecoratorOptions"),
    # what results of fits are made of,
    ("py:class", "dualbcast.fit.iteration.Outcome"),
    ("py:class", "dualbcast.program.core_results.CoreArgument"),
    # a type variable: a decorator returns a function of the type that it is given,
    ("py:class", "dualbcast.graph.backward.Function"),
    ("py:class", "dualbcast.rules.registration.Scalar"),
    # the type of context managers, which is used by `with` alone.
    ("py:class", "dualbcast.graph.tape.setting"),
}

# --- other projects ------------------------------------------------------------------------------------------------

ADDRESSES = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "scipy": "https://docs.scipy.org/doc/scipy",
    "torch": "https://docs.pytorch.org/docs/stable",
    "jax": "https://docs.jax.dev/en/latest",
}
# Only from files, so that a build gives the same site with and without a network.
intersphinx_mapping = {name: (address, f"inventories/{name}.txt") for name, address in ADDRESSES.items()}

# --- the gallery ---------------------------------------------------------------------------------------------------

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": ["gallery"],
    "gallery_dirs": ["generated/gallery"],
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(^|/)(_|test_|conftest)",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "notebook_extensions": {},
    "write_computation_times": False,
    "within_subsection_order": "FileNameSortKey",
}

# --- pages ---------------------------------------------------------------------------------------------------------

# Their tables and texts take the room of a page's contents.
WIDE = ["index", "guides/benchmarks", *(f"reference/{page}" for page in ("accuracy", "cli", "rules", "traps"))]

html_theme = "pydata_sphinx_theme"
html_title = f"dualbcast {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "logo": {"text": "dualbcast"},
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        **{page: [] for page in WIDE},
    },
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
if repository:
    html_theme_options["icon_links"] = [{"name": "Repository", "url": repository, "icon": "fa-solid fa-code"}]
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# --- checks of addresses: `python -m sphinx -b linkcheck docs build/links` needs a network --------------------------

linkcheck_timeout = 20
linkcheck_workers = 4
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]  # scripts make these anchors


# Only the package makes these: their constructors take its own objects.
MADE = {"BroadcastFunction", "Jacobian", "Hessian", "Pullback", "Explanation", "Derivative", "Rule", "Structure"}
MADE |= {"GeneralisedFunction", "CoreJacobian", "CoreHessian", "CorePullback"}
# The graph's own: `Variable` has them for the files around it.
INTERNAL = {"frozen", "serial", "source", "array", "index"}


def skip_member(_app: Sphinx, _what: str, name: str, member: Any, skip: bool, _options: Any) -> bool | None:
    """Leave out what a docstring's section of attributes explains, and what is not for users."""
    return True if skip or type(member).__name__ == "_tuplegetter" or name in INTERNAL else None


def show_public_bases(_app: Sphinx, _name: str, _cls: type, _options: Any, bases: list[Any]) -> None:
    """Show the public class that a private base class comes from."""
    bases[:] = dict.fromkeys(base.__base__ if base.__name__.startswith("_") else base for base in bases)


def hide_constructor(_app: Sphinx, what: str, name: str, *_: Any) -> tuple[str, None] | None:
    """Show no constructor of a class whose objects users do not make."""
    return ("", None) if what == "class" and name.rpartition(".")[2] in MADE else None


def setup(app: Sphinx) -> None:
    # A page of a name that is gone would still be read.
    shutil.rmtree(HERE / "generated" / "api", ignore_errors=True)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-bases", show_public_bases)
    app.connect("autodoc-process-signature", hide_constructor)
