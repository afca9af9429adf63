"""Pickles a function of the program once, instead of with each job, as long as its pickle would stay the same. Used by _parts.py.

Workers cannot import such a function, so it is sent by value (_by_value.py): 20 us in the program and as much in a worker, for a
function of one line. A kept function is pickled once, and a worker unpickles it once. Jobs cannot tell the difference, because only small
functions that can neither change nor keep anything are kept: defined at the top level of the program; not using variables of the program
other than modules, constants, what workers can import, and functions like itself; and not storing into globals or attributes. A function
whose arguments may refer to the program is pickled with them, because both then share its globals.
"""

import dis
import pickle
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any, Optional

import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

from penstock import _by_value, _globals

__all__ = ["Kept", "kept"]

MOST = 100  # functions that a worker keeps, and names that the program knows
LONGEST = 64 << 10  # bytes of a pickle: larger ones, which contain data, are not kept
MOST_CHANGES = 20  # a function that has changed more often is pickled with each job
CONSTANTS = frozenset({type(None), bool, int, float, complex, str, bytes})
IMPORTABLE = (types.FunctionType, types.BuiltinFunctionType, type)
STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"})
SEES_STATE = frozenset({"globals", "eval", "exec", "vars", "setattr", "delattr", "__setattr__", "__delattr__", "__dict__", "__globals__", "f_globals"})
_MISSING = object()
_PROGRAM = frozenset(_globals.PROGRAM)


def kept(function: types.FunctionType) -> Optional["Kept"]:
    """What to send instead of the function. None: the function has to be pickled by value."""
    if function.__globals__.get(function.__name__) is not function:
        return None
    known = _known.get(function.__name__)
    if known is None or known.function is not function:
        with _changing:
            _make_room(_known)
            known = _known[function.__name__] = _Known(function)
    return known.current()


class Kept:
    """Stands for a function in the call of a job; unpickling it gives the function."""

    __slots__ = ("function", "pickled")

    def __init__(self, function: types.FunctionType, pickled: bytes) -> None:
        self.function, self.pickled = function, pickled

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return received, (self.pickled,)


def received(pickled: bytes) -> Any:
    """Returns the function. Called in a worker, by unpickling."""
    function = _received.get(pickled)
    if function is None:
        _make_room(_received)
        function = _received[pickled] = _globals.loads(pickled, None)
    function.__globals__.pop("__warningregistry__", None)  # each job shows its warnings, even if an earlier job showed the same ones
    return function


def _make_room(kept_ones: dict[Any, Any]) -> None:
    if len(kept_ones) >= MOST:
        del kept_ones[next(iter(kept_ones))]


_received: dict[bytes, Any] = {}
_changing = threading.RLock()  # reentrant, because unpickling or garbage collection may submit a job


class _Known:
    """A function, with what its pickle was made from."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self._made: Optional[tuple[Kept, list[_Parts], Optional[int]]] = None
        self._changes = 0

    def current(self) -> Optional[Kept]:
        made = self._made  # replaced as a whole by other threads
        if made is None or not _still_holds(*made[1:]):
            with _changing:
                made = self._made = self._make()
        return None if made is None else made[0]

    def _make(self) -> Optional[tuple[Kept, list["_Parts"], Optional[int]]]:
        self._changes += 1
        if self._changes > MOST_CHANGES:
            return None
        try:
            parts = _parts_of(self.function)
            # Which submodules of a package are pickled with it depends on what has been imported.
            packages = any(hasattr(value, "__path__") for each in parts or () for value in each.values)
            modules = len(sys.modules) if packages else None
            pickled = b"" if parts is None else _by_value.dumps(self.function)
        except Exception:  # raised again when the whole call is pickled
            parts, pickled = None, b""
        if parts is None or len(pickled) > LONGEST:
            self._changes = MOST_CHANGES
            return None
        # Another thread may have changed something meanwhile.
        return (Kept(self.function, pickled), parts, modules) if _still_holds(parts, modules) else None


def _still_holds(made_from: list["_Parts"], modules: Optional[int]) -> bool:
    """Whether the function would still be pickled in the same way.

    Args:
        modules: how many were imported, if the pickle depends on that.
    """
    registered = cloudpickle.list_registry_pickle_by_value()
    return modules in (None, len(sys.modules)) and _PROGRAM.issuperset(registered) and all(map(_Parts.hold, made_from))


_known: dict[str, _Known] = {}  # by name


class _Parts:
    """What the pickle of one function is made from."""

    __slots__ = ("_function", "_code", "_defaults", "_annotations", "_named", "_globals", "names", "values")

    def __init__(self, function: types.FunctionType, names: list[str]) -> None:
        self._function, self._code, self._defaults = function, function.__code__, function.__defaults__
        self._annotations = dict(function.__annotations__)
        self._named = (function.__name__, function.__qualname__, function.__module__, function.__doc__)
        self._globals = function.__globals__
        self.names = names
        self.values = [self._globals.get(name, _MISSING) for name in names]

    def hold(self) -> bool:
        """Whether the function is still the same."""
        function = self._function
        if function.__code__ is not self._code or function.__defaults__ is not self._defaults or function.__kwdefaults__ or function.__dict__:
            return False
        annotations = function.__annotations__
        if len(annotations) != len(self._annotations) or any(annotations.get(name, _MISSING) is not value for name, value in self._annotations.items()):
            return False
        if (function.__name__, function.__qualname__, function.__module__, function.__doc__) != self._named:
            return False
        return all(self._globals.get(name, _MISSING) is value for name, value in zip(self.names, self.values))


def _parts_of(function: types.FunctionType) -> Optional[list[_Parts]]:
    """The parts of the function and of all functions of the program that it reaches. None if it cannot be kept."""
    found: dict[types.FunctionType, _Parts] = {}
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        names = _names_of(each.__code__)
        if names is None or each.__closure__ or each.__kwdefaults__ or each.__dict__ or getattr(each, "__type_params__", None):
            return None
        if not all(type(value) in CONSTANTS for value in each.__defaults__ or ()):
            return None
        if not all(_is_constant(value) for value in each.__annotations__.values()):
            return None
        found[each] = parts = _Parts(each, names)
        for value in parts.values:
            if type(value) is types.FunctionType and value.__module__ in _globals.PROGRAM:
                waiting.append(value)
            elif value is not _MISSING and not _is_constant(value):
                return None
    return list(found.values())


def _is_constant(value: Any) -> bool:
    if type(value) in CONSTANTS:
        return True
    if isinstance(value, types.ModuleType):
        return value.__name__ not in _globals.PROGRAM and sys.modules.get(value.__name__) is value
    if not isinstance(value, IMPORTABLE) or value.__module__ in _globals.PROGRAM:
        return False
    if isinstance(value, types.FunctionType) and value.__module__ is None:  # may be the program's
        return False
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, (type(None), type, types.ModuleType)):
        return False  # a method of an object, which has a state
    try:
        pickle.dumps(value)  # by name
    except Exception:
        return False
    return True


def _names_of(code: types.CodeType) -> Optional[list[str]]:
    """The names that the code may look up among the globals. None if the code may store what a later job would
    see."""
    names: dict[str, None] = {}
    for each in _codes_in(code):
        if any(instruction.opname in STORES for instruction in dis.get_instructions(each)):
            return None
        names.update(dict.fromkeys(each.co_names))
    return None if SEES_STATE.intersection(names) else list(names)


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)
