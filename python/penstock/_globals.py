"""Shows each job the globals of the program that the pool's initializer has assigned. Used by workers.

Functions of the program are pickled by value (_by_value.py), each pickle with its own globals. Without this, only the initializer would
see its assignments, but programs written for the standard library's executors expect every job to see them.
"""

import functools
import io
import pickle
from typing import Any, Callable

__all__ = ["Initializer", "PROGRAM", "loads"]

# Modules that no worker can import. multiprocessing gives the second name to the program in processes that it spawns.
PROGRAM = ("__main__", "__mp_main__")
_UNSET = object()
_assigned: dict[str, Any] = {}


class Initializer:
    """A pickled (initializer, arguments). One process can unpickle it, and its forked children can then call it."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled
        self._seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._there = False
        self.function: Any = None  # None until unpickled
        self.arguments: tuple[Any, ...] = ()

    def unpickle(self) -> None:
        if not self._there:
            self.function, self.arguments = _Unpickler(self._pickled, functools.partial(_remember, self._seen)).load()
            self._there = True

    def drop(self) -> None:
        """Forgets what was unpickled."""
        self.__init__(self._pickled)  # type: ignore[misc]

    def call(self, failed: Callable[[Any, BaseException], None]) -> None:
        """Calls the initializer, and remembers which globals it assigns.

        Args:
            failed: called with the initializer, if it is known, and what was raised.
        """
        try:
            self.unpickle()
            if self.function is not None:
                self.function(*self.arguments)
            for there, received in self._seen:
                _assigned.update({name: value for name, value in there.items() if received.get(name, _UNSET) is not value})
        except BaseException as raised:
            failed(self.function, raised)


def loads(pickled: Any, buffers: Any) -> Any:
    """pickle.loads; functions of the program have the globals that the initializer has assigned."""
    if not _assigned:
        return pickle.loads(pickled, buffers=buffers)
    return _Unpickler(pickled, _complete, buffers).load()


class _Unpickler(pickle.Unpickler):
    """`more(function, globals that it got)` is called for each function of the program."""

    def __init__(self, pickled: Any, more: Callable[[Any, dict[str, Any]], None], buffers: Any = None) -> None:
        super().__init__(io.BytesIO(pickled), buffers=buffers)
        self._more = more

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        # In cloudpickle.cloudpickle since 3.0, in cloudpickle.cloudpickle_fast before.
        if name == "_function_setstate" and module.startswith("cloudpickle."):
            return functools.partial(_set_state, found, self._more)
        return found


def _set_state(original: Callable[[Any, Any], None], more: Callable[[Any, dict[str, Any]], None], function: Any, state: Any) -> None:
    received = dict(state[1]["__globals__"])
    original(function, state)
    if function.__globals__.get("__name__") in PROGRAM:
        more(function, received)


def _remember(seen: list[tuple[dict[str, Any], dict[str, Any]]], function: Any, received: dict[str, Any]) -> None:
    for there, known in seen:
        if there is function.__globals__:
            known.update(received)
            return
    # Names that every module has do not count as assignments.
    seen.append((function.__globals__, {**function.__globals__, **received}))


def _complete(function: Any, _: dict[str, Any]) -> None:
    function.__globals__.update(_assigned)
