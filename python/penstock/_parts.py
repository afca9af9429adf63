"""Pickles with their large buffers next to them, as the parts of a job's argument or result (core/parts.hpp defines the layout).

Used by Pool and by its workers.
"""

import itertools
import pickle
import struct
import types
from typing import Any, Union

from penstock import _by_value, _globals, _kept

__all__ = ["kept_if_possible", "pickled_call", "pickled_result", "split", "unpickled"]

Part = Union[bytes, memoryview]


_COUNT = struct.Struct("<Q").unpack_from
_COUNT_AND_LENGTH = struct.Struct("<2Q").unpack_from
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_NOT_BY_NAME = frozenset({*_globals.PROGRAM, None})  # what a worker cannot import

# Plain pickle writes these as cloudpickle does, ten times faster.
_SIMPLE = frozenset({type(None), bool, int, float, complex, str, bytes, _kept.Kept})
_TUPLES = frozenset({tuple})


def pickled_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Part]:
    """A call as a protocol 5 pickle, followed by its out-of-band buffers (NumPy data, for example). Copies nothing.

    Functions and classes that a worker cannot import are pickled by value (_by_value.py), most functions only once (_kept.py).
    """
    # Not callable objects: they may contain objects of the program.
    by_name = type(function) in _FUNCTIONS and function.__module__ not in _NOT_BY_NAME
    sent = function if by_name else kept_if_possible(function)
    if (by_name or type(sent) is _kept.Kept) and all(map(_is_simple, args)) and all(map(_is_simple, kwargs.values())):
        try:
            return [pickle.dumps((sent, args, kwargs), protocol=5)]
        except (pickle.PicklingError, AttributeError, TypeError):
            pass  # a lambda, a closure, a method
    # Pickled together, so that everything that refers to the program shares its globals.
    return _parts_by_value((function, tuple(each.function if type(each) is _kept.Kept else each for each in args), kwargs))


def kept_if_possible(function: Any) -> Any:
    """What to send for a function: the function, or a short stand-in if the program defines it and it never changes."""
    if type(function) is types.FunctionType and function.__module__ in _globals.PROGRAM:
        return _kept.kept(function) or function
    return function


def _is_simple(value: Any) -> bool:
    """Whether plain pickle can write the value: a simple value, a chunk of inputs made of simple values, or a
    function that workers can import."""
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if kind is list:
        return _TUPLES.issuperset(map(type, value)) and _SIMPLE.issuperset(map(type, itertools.chain.from_iterable(value)))
    return kind in _FUNCTIONS and value.__module__ not in _NOT_BY_NAME


def pickled_result(value: Any) -> list[Part]:
    """A result as a pickle with its buffers, like pickled_call(). The caller can import everything that the worker
    could."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        whole = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except (pickle.PicklingError, AttributeError, TypeError):
        return _parts_by_value(value)
    return [whole, *(_raw(buffer) for buffer in buffers)]


def _parts_by_value(value: Any) -> list[Part]:
    buffers: list[pickle.PickleBuffer] = []
    whole = _by_value.dumps(value, buffers.append)
    return [whole, *(_raw(buffer) for buffer in buffers)]


def _raw(buffer: pickle.PickleBuffer) -> memoryview:
    return buffer.raw()


def split(whole: Any) -> list[memoryview]:
    """Splits an argument or a result into its parts, as views."""
    view = memoryview(whole)
    (count,) = _COUNT(view)
    if count == 1:  # most results
        return [view[64 : 64 + _COUNT_AND_LENGTH(view)[1]]]
    lengths = struct.unpack_from(f"<{count}Q", view, 8)
    parts, at = [], rounded_up(8 * (1 + count))
    for length in lengths:
        parts.append(view[at : at + length])
        at += rounded_up(length)
    return parts


def unpickled(parts: list[memoryview]) -> Any:
    """The unpickled value; its arrays are views of the parts."""
    return _globals.loads(parts[0], parts[1:])


def rounded_up(length: int) -> int:
    return (length + 63) // 64 * 64
