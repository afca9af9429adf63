"""Why a program ends a session or a pool, in words for its record. Used by _session.py, _pool.py and _workers.py."""

import sys
from typing import NamedTuple, Optional

__all__ = ["Reason", "by_exception", "by_the_programs_end"]

_TEXT_MAX = 200  # characters of the exception's own text: it may be long, and the record stays readable


class Reason(NamedTuple):
    """Why something ends early."""

    text: str = ""  # empty: no early end
    fails: bool = False  # the program has failed: the outcome is not `stopped`


def by_exception(why: Optional[BaseException]) -> Reason:
    """The reason in words: `an exception in the program: ValueError: the loss is NaN`. Empty without an exception, or for one
    that means success. Ctrl-C stops a program; with any other exception it has failed."""
    if why is None or isinstance(why, GeneratorExit) or (isinstance(why, SystemExit) and not why.code):
        return Reason()
    try:
        lines = str(why).strip().splitlines()
    except Exception:  # the exception's __str__ fails
        lines = []
    kind = type(why)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    text = lines[0] if lines else ""
    if len(lines) > 1:  # torch puts the traceback of a worker there; its last line says what happened
        text = f"{text} ... {lines[-1].strip()}"
    if len(text) > _TEXT_MAX:
        text = text[: _TEXT_MAX - 3] + "..."
    text = f"an exception in the program: {name}" + (f": {text}" if text else "")
    return Reason(text, not isinstance(why, KeyboardInterrupt))


def by_the_programs_end() -> Reason:
    """Call at the interpreter's exit: the reason, if an exception has ended the program."""
    if hasattr(sys, "ps1"):
        return Reason()  # an interactive program continues after an exception
    why = getattr(sys, "last_value", None)
    return by_exception(why if isinstance(why, BaseException) else None)
