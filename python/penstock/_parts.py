"""Pickles with their large buffers beside them, as the parts of a job's argument or result (core/parts.hpp lays them out).

Used by Pool and by its workers.
"""

import pickle
import struct
from typing import Any, Union

import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

__all__ = ["pickled", "split", "unpickled"]

Part = Union[bytes, memoryview]


def pickled(value: Any) -> list[Part]:
    """A pickle of protocol 5, and after it the buffers that it leaves out: NumPy's data, for example. No copies.

    Functions and classes that a worker could not import (of __main__, lambdas, closures) travel by value.
    """
    buffers: list[pickle.PickleBuffer] = []
    whole = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [whole, *(_raw(buffer) for buffer in buffers)]


def _raw(buffer: pickle.PickleBuffer) -> memoryview:
    return buffer.raw()


def split(whole: Union[bytearray, memoryview]) -> list[memoryview]:
    """The parts of an argument or a result; views of it."""
    view = memoryview(whole)
    (count,) = struct.unpack_from("<Q", view)
    lengths = struct.unpack_from(f"<{count}Q", view, 8)
    parts, at = [], _rounded_up(8 * (1 + count))
    for length in lengths:
        parts.append(view[at : at + length])
        at += _rounded_up(length)
    return parts


def unpickled(parts: list[memoryview]) -> Any:
    """What was pickled; its arrays are views of the parts."""
    return pickle.loads(parts[0], buffers=parts[1:])


def _rounded_up(length: int) -> int:
    return (length + 63) // 64 * 64
