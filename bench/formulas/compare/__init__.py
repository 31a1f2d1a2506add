"""The comparison of formulas: other systems' forms of a formula, made from its IR, are checked, timed and tabulated."""

import sys
from pathlib import Path

# The modules of bench/ import each other by their plain names.
sys.path.insert(1, str(Path(__file__).parents[2]))
