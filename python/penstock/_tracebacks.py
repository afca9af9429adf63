"""What an exception of a worker was and where it was raised, from its traceback as text. Used by _failures.py."""

import re
from typing import NamedTuple

__all__ = ["Raised", "raised_in"]

_FRAME = re.compile(r'^[ |]*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_LONGEST = 300  # characters of an exception's text


class Raised(NamedTuple):
    """An exception in words.

    Attributes:
        what: "ValueError: no line 51".
        where: "data.py:12, in __getitem__"; empty if unknown.
        traceback: the whole text.
    """

    what: str
    where: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


def raised_in(traceback: str) -> Raised:
    """The exception that the worker raised: the last one in the text. Exceptions that led to it come before it."""
    where, rest = "", ""
    for line in traceback.splitlines():
        frame = _FRAME.match(line)
        if frame:
            where, rest = f"{frame['file']}:{frame['line']}" + (f", in {frame['function']}" if frame["function"] else ""), ""
        elif line and not line[0].isspace() and not rest:
            rest = line
    what = rest if len(rest) <= _LONGEST else rest[:_LONGEST] + "..."
    return Raised(_valid(what or "an exception"), _valid(where), _valid(traceback))


def _valid(text: str) -> str:
    """Replaces surrogates (from names that are not valid UTF-8), which the session could not accept."""
    return text.encode("utf-8", "backslashreplace").decode()
