"""A place in the user's source, and the one formatter that shows its file, line, text and a caret."""

from __future__ import annotations

import linecache
from typing import NamedTuple

from dualbcast.tracebacks import cell_name, place_of


class Location(NamedTuple):
    """A range of the user's source: 1-based lines, 0-based columns in UTF-8 bytes (the meaning `ast` gives them)."""

    filename: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        place = place_of(self.filename, self.line)
        return place if cell_name(self.filename) else f"{place}:{self.offset}"

    @property
    def offset(self) -> int:
        """The column as editors and `SyntaxError` count it: 1-based, in characters."""
        return self._characters(self.column) + 1

    def excerpt(self) -> str:
        """The user's line with its number, and carets under the range; empty where the text is not to be had."""
        text = self._text()
        if not text:
            return ""
        start = self._characters(self.column)
        stop = self._characters(self.end_column) if self.end_line == self.line else len(text)
        padding = "".join("\t" if character == "\t" else " " for character in text[:start])
        margin = " " * (max(6, len(str(self.line))) + 1)
        return f"{self.numbered_line()}\n{margin}| {padding}{'^' * max(1, stop - start)}"

    def numbered_line(self) -> str:
        """The user's line with its number; empty where the text is not to be had."""
        text = self._text()
        return f"{self.line:>6} | {text}" if text else ""

    def _text(self) -> str:
        # Read afresh: an edited file or a re-run notebook cell must not show its old text.
        linecache.checkcache(self.filename)
        return linecache.getline(self.filename, self.line).rstrip("\n")

    def _characters(self, column: int) -> int:
        text = self._text()
        return len(text.encode()[:column].decode(errors="ignore")) if text else column
