"""Pickles by value what a worker cannot import: functions and classes of the program itself, lambdas, closures (cloudpickle).

In a process that multiprocessing has spawned, the program is the module `__mp_main__`, which no worker can import either. Code keeps the
name of its file, and carries its source lines if there is no such file (a notebook's cell), so tracebacks and warnings in a worker show
the same lines as in the program. Used by everything that pickles for another process.
"""

import functools
import io
import linecache
import os
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any, Optional

import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

from penstock import _globals

__all__ = ["Pickler", "dumps"]

LONGEST = 100_000  # characters: at most this much source is sent with one function


def _reduce_code(code: types.CodeType) -> Any:
    make, arguments = _cloudpickle_reduces_code(code)
    return _made_again, (make, arguments, code.co_filename, _lines_of(code))


_cloudpickle_reduces_code: Callable[[Any], Any] = cloudpickle.Pickler.dispatch_table[types.CodeType]


_PROGRAM = (*_globals.PROGRAM, None)  # what a worker cannot import
_OF_EACH_CACHED = {"__wrapped__", "cache_parameters", *functools.WRAPPER_ASSIGNMENTS}


def _reduce_cached(function: Any) -> Any:
    """Pickles functions with functools.lru_cache: those of the program by value, others by name, as pickle does. The cache is not
    sent."""
    if function.__module__ not in _PROGRAM:
        return function.__reduce__()
    own = {name: value for name, value in vars(function).items() if name not in _OF_EACH_CACHED}
    return _cached, (function.__wrapped__, function.cache_parameters(), own)


def _cached(function: Callable[..., Any], parameters: dict[str, Any], own: dict[str, Any]) -> Any:
    made = functools.lru_cache(**parameters)(function)
    vars(made).update(own)
    return made


class _Reductions(ChainMap[type, Callable[[Any], Any]]):
    """How to pickle an object, by its exact type. Modules with their own class, such as torch.classes, torch.ops and torch.backends, are
    pickled by name like other modules. cloudpickle would pickle a submodule with every function that uses its package and an
    attribute of the same name: a function that contains `self.classes` and `torch.tensor` would take torch.classes along.
    """

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        if issubclass(kind, types.ModuleType):
            return self[types.ModuleType]
        raise KeyError(kind)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc,unused-ignore]
    """cloudpickle's pickler, with the rules above."""

    dispatch_table = _Reductions({types.CodeType: _reduce_code, functools._lru_cache_wrapper: _reduce_cached}, cloudpickle.Pickler.dispatch_table)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        program = sys.modules.get("__main__")
        if getattr(program, "__name__", None) == "__mp_main__":
            cloudpickle.register_pickle_by_value(program)


def dumps(value: Any, buffer_callback: Optional[Callable[[pickle.PickleBuffer], Any]] = None) -> bytes:
    """cloudpickle.dumps with protocol 5."""
    whole = io.BytesIO()
    Pickler(whole, protocol=5, buffer_callback=buffer_callback).dump(value)
    return whole.getvalue()


# ---- code and its lines --------------------------------------------------------------------------------------------


def _lines_of(code: types.CodeType) -> Optional[tuple[int, str]]:
    """The number of the first source line, and the source lines. None if every process can read them in the file, or if they are
    unknown or too long."""
    name = code.co_filename
    if os.path.isabs(name) and os.path.isfile(name):
        return None
    known = linecache.getlines(name)
    if not known and hasattr(linecache, "_getlines_from_code"):  # the lines of the interactive interpreter and of -c, since Python 3.13
        known = linecache._getlines_from_code(code)
    first = max(1, code.co_firstlineno)
    lines = known[first - 1 : max([first, *(line for *_, line in code.co_lines() if line), *(end for _, end, *_ in code.co_positions() if end)])]
    text = "".join(lines)
    return (first, text) if 0 < len(text) <= LONGEST else None


def _made_again(make: Callable[..., types.CodeType], arguments: tuple[Any, ...], filename: str, lines: Optional[tuple[int, str]]) -> types.CodeType:
    if lines is not None:
        _remember(filename, *lines)
    return make(*arguments).replace(co_filename=filename)


_received: dict[str, list[str]] = {}  # files that exist in no file system; their lines arrive with their functions


def _remember(filename: str, first: int, text: str) -> None:
    if filename in linecache.cache and filename not in _received:
        return  # this is the program itself, to which a function was sent back: its lines are known
    lines = _received.setdefault(filename, [])
    new = text.splitlines(keepends=True)
    lines.extend(["\n"] * (first - 1 + len(new) - len(lines)))
    lines[first - 1 : first - 1 + len(new)] = new
    linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)  # None: there is no file that could be newer
