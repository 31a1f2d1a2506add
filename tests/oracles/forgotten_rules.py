"""Takes a user's rule out of the rule table again, so that a test leaves the table as it was."""

from __future__ import annotations

from dualbcast.rules.table import BY_SPELLING, RULES, Rule, meanings, set_meaning


def forget(row: Rule) -> None:
    """Remove a user's row from the table, with all its spellings."""
    del RULES[row.name]
    for spelling in row.spellings:
        if BY_SPELLING.get(spelling) is row:
            del BY_SPELLING[spelling]
    for each, meaning in meanings():
        if meaning is row:
            set_meaning(each, None)
