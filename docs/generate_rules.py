"""Writes docs/reference/rules.md from the rule table, with which it agrees: python docs/generate_rules.py"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from dualbcast import special
from dualbcast.frontend.source import find_source
from dualbcast.rules import library
from dualbcast.rules.table import ALIASES, CUSTOMS, RULES, Custom, Rule, add_later_rows

add_later_rows()

PAGE = Path(__file__).parent / "reference" / "rules.md"

HEAD = """\
# Functions and their derivatives

The table has every function without Python source that a scalar function may call. Partial derivatives are written in
terms of the arguments and the result `y`. A partial of `0` ends differentiation: nothing is computed or stored for
it. The table is generated from the rows in `dualbcast/rules/`, which differentiation and the tests read too.

Names such as `asin_slope` are functions of this package, in `dualbcast/rules/curvatures.py` and `dualbcast/special/`.
[Slopes with custom derivatives](#slopes-with-custom-derivatives) says what those compute that have derivatives of their
own. A row without a Python spelling is a part of other functions.

Arithmetic (`+ - * /`, unary minus) and conditional expressions have the textbook rules. `abs`, `min`, `max` and
comparisons look at values only; on a tie `min` and `max` take the first argument's derivative.

| function | Python spellings | partial derivatives | kinks: the value chosen there |
| --- | --- | --- | --- |
"""


def partials(row: Rule | Custom) -> tuple[list[str], list[str]]:
    """The parameter names of a row and its partials as text."""
    node = find_source(row.partials).node
    assert isinstance(node, ast.Lambda)
    names = [parameter.arg for parameter in node.args.args]
    body = node.body.elts if isinstance(node.body, ast.Tuple) else [node.body]
    return names, [
        re.sub(r"\b(?!math\b|special\b|arithmetic\b|np\b)[a-z_]+\.(?=[a-z])", "", ast.unparse(part)) for part in body
    ]


def listed(names: list[str], texts: list[str]) -> str:
    """The partials; a function that returns all of them at once is shown as such."""
    if len(texts) < len(names) - 1:
        return f"all: `{texts[0]}`"
    return "<br>".join(f"∂/∂{name}: `{text}`" for name, text in zip(names, texts, strict=False))


def table_row(row: Rule) -> str:
    names, texts = partials(row)
    spellings = list(row.spellings)
    if row.function is not None:
        module = row.function.__module__
        if not module.startswith("dualbcast.special."):
            spellings.insert(0, f"{module}.{row.function.__name__}")
        elif row.name in special.__all__:
            spellings.insert(0, f"dualbcast.special.{row.function.__name__}")
    shown = listed(names, texts)
    kinks = "<br>".join(
        f"at {', '.join(f'{x:g}' for x in point)}: {', '.join(f'{p:g}' for p in chosen)}" for point, chosen in row.kinks
    )
    call = f"{row.name}({', '.join(names[:-1])})"
    return f"| `{call}` | {', '.join(f'`{name}`' for name in spellings)} | {shown} | {kinks} |".replace("  ", " ")


def slope_row(slope: Custom) -> str:
    names, texts = partials(slope)
    shown = listed(names, texts)
    summary = (inspect.getdoc(slope.function) or "").partition("\n")[0]
    return f"| `{slope.name}({', '.join(names[:-1])})` | {summary} | {shown} |"


def page() -> str:
    """The text of docs/reference/rules.md."""
    lines = [HEAD + "\n".join(table_row(row) for _, row in sorted(RULES.items()) if not row.by_user)]
    lines.append("\n## Slopes with custom derivatives\n")
    lines.append("Differentiated from their formulas, these would lose digits or overflow on the way.\n")
    lines.append("| slope | meaning | partial derivatives |\n| --- | --- | --- |")
    places = ("dualbcast.rules.curvatures", "dualbcast.special")
    slopes = [each for each in CUSTOMS.values() if not each.by_user and each.function.__module__.startswith(places)]
    lines.extend(slope_row(each) for each in sorted(slopes, key=lambda each: each.name))
    lines.append("\n## Composite functions\n")
    lines.append("They are made of the functions above, and are inlined and differentiated like your own code.\n")
    lines.append("| Python spelling | meaning |\n| --- | --- |")
    for spelling in sorted(ALIASES):
        summary = (inspect.getdoc(ALIASES[spelling]) or "").partition("\n")[0]
        lines.append(f"| `{spelling}` | {summary} |")
    lines.append("\n## Left out\n")
    lines.append("These functions of `math` and NumPy cannot be used in a scalar function.\n")
    lines.append("| function | why |\n| --- | --- |")
    lines.extend(f"| `{name}` | {reason} |" for name, reason in sorted(library.EXCLUDED.items()))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
