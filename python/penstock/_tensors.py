"""Pickles datasets and batches without copying the memory of tensors and arrays into the pickle.

torch's own way copies a tensor twice, or opens a file in shared memory for it. Used by _loader.py and, in workers, by _loading.py.
"""

import bisect
import collections.abc
import contextlib
import copyreg
import ctypes
import io
import math
import mmap
import multiprocessing.context
import multiprocessing.reduction
import os
import pickle
import struct
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

import torch

from penstock import _by_value

__all__ = ["PartOutsideRangeError", "Room", "batch_from", "batch_parts", "dataset_parts", "map_published", "pickled", "published", "room_for", "view_of"]

Buffer = Union[bytes, bytearray, memoryview]

PAGE = 4096
ALIGNMENT = 64  # bytes; parts are aligned as in core/parts.hpp
IN_ROOM = 1 << 63  # marks a result laid out by a Room, not by core/parts.hpp

# By name: pickle would search every module for torch's dtypes.
_DTYPES: dict[str, Any] = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
_NAMES: dict[Any, str] = {value: name for name, value in _DTYPES.items()}


# ---- tensors -------------------------------------------------------------------------------------------------------


def _reduce_tensor(tensor: Any) -> Any:
    """Pickles a batch's tensor as its elements in order."""
    if not _is_plain(tensor):
        return _reduce_special(tensor)
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.numel() == 0:
        return _tensor, (None, _NAMES[tensor.dtype], tuple(tensor.shape), tensor.requires_grad)
    try:
        array = flat.numpy()
    except TypeError:  # NumPy lacks this dtype
        array = flat.view(torch.uint8).numpy()
    return _tensor, (pickle.PickleBuffer(array), _NAMES[tensor.dtype], tuple(tensor.shape), tensor.requires_grad)


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...], gradient: bool) -> Any:
    if buffer is None:
        made = torch.empty(shape, dtype=_DTYPES[dtype])
    else:
        made = torch.frombuffer(buffer, dtype=_DTYPES[dtype]).view(shape)
    return made.requires_grad_() if gradient else made


def _reduce_special(tensor: Any) -> Any:
    if tensor.is_nested and tensor.layout is torch.strided:  # some versions of torch cannot pickle these
        return _nested, ([each.detach() for each in tensor.unbind()], tensor.requires_grad)
    if tensor.is_conj() or tensor.is_neg():  # torch 1 loses the sign when it pickles these
        return _reduce_tensor(tensor.resolve_conj().resolve_neg())
    return tensor.__reduce_ex__(5)


def _nested(tensors: list[Any], gradient: bool) -> Any:
    return torch.nested.nested_tensor(tensors, requires_grad=gradient)


def _is_plain(tensor: Any) -> bool:
    return bool(
        tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and (tensor.is_leaf or not tensor.requires_grad)
    )


class _Storages:
    """Pickles a dataset's tensors so that views of one storage remain views of one storage in workers."""

    def __init__(self) -> None:
        self._known: dict[int, "_Storage"] = {}

    def reduce(self, tensor: Any) -> Any:
        if not _is_plain(tensor):
            return _reduce_special(tensor)
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()
        if storage.nbytes() == 0 or tensor.numel() == 0:
            return _reduce_tensor(tensor)
        if storage.nbytes() > 2 * tensor.numel() * tensor.element_size():
            return _reduce_tensor(tensor)  # a small view of a large storage
        held = self._known.get(storage.data_ptr())
        if held is None:
            held = self._known[storage.data_ptr()] = _Storage(storage)
        layout = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
        return _tensor_in, (held, _NAMES[tensor.dtype], *layout, tensor.requires_grad)


class _Storage:
    def __init__(self, storage: Any) -> None:
        self.storage = storage  # also keeps the address valid

    def __reduce__(self) -> Any:
        whole = torch.empty(0, dtype=torch.uint8)
        whole.set_(self.storage, 0, (self.storage.nbytes(),), (1,))
        return _Memory, (pickle.PickleBuffer(whole.numpy()),)


class _Memory:
    def __init__(self, buffer: Any) -> None:
        self.bytes = torch.frombuffer(buffer, dtype=torch.uint8)


def _tensor_in(
    memory: _Memory, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, gradient: bool
) -> Any:
    kind = _DTYPES[dtype]
    size = torch.empty(0, dtype=kind).element_size()
    typed = memory.bytes[: len(memory.bytes) // size * size].view(kind)  # the storage may be that of a tensor with smaller elements
    made = typed.as_strided(shape, strides, offset)
    return made.requires_grad_() if gradient else made


# ---- batches -------------------------------------------------------------------------------------------------------

_OF_BATCHES: dict[type, Callable[[Any], Any]] = {torch.Tensor: _reduce_tensor}


class _Pickler(pickle.Pickler):
    dispatch_table = {**copyreg.dispatch_table, **_OF_BATCHES}


class _PicklerByValue(_by_value.Pickler):
    dispatch_table: Any = ChainMap({**_OF_BATCHES}, _by_value.Pickler.dispatch_table)


def batch_parts(value: Any, by_value: bool = False) -> list[Any]:
    """Pickles a batch. Returns the pickle, followed by the buffers left out of it.

    Args:
        by_value: also pickle classes and functions that the reader cannot import.
    """
    buffers: list[pickle.PickleBuffer] = []
    whole = io.BytesIO()
    kind = _PicklerByValue if by_value else _Pickler
    kind(whole, protocol=5, buffer_callback=buffers.append).dump(value)
    return [whole.getbuffer(), *[buffer.raw() for buffer in buffers]]


class PartOutsideRangeError(RuntimeError):
    """Writing this part of a batch would overwrite another part."""


class Room:
    """Memory in which a batch is assembled where the caller will read it, so that its tensors are not copied again.

    Layout: 64 bytes, of which the first 16 hold the number of parts and the table's offset; the tensors, each in its own range; the pickle
    and the parts made elsewhere; the table: offset and length of each part.

    Args:
        address: from call.reserve(). The memory must stay valid until the tensors' last use.
        size: bytes there, from room_for() of this batch. Another batch's size says nothing about this one.
    """

    def __init__(self, address: int, size: int) -> None:
        memory = (ctypes.c_char * size).from_address(address)
        self._view = memoryview(memory).cast("B")
        self._bytes = torch.frombuffer(memory, dtype=torch.uint8)
        self._address, self._size, self._used = address, size, ALIGNMENT
        self._begins: list[int] = []  # where the ranges that tensor() returned begin, ascending
        self._ends: list[int] = []

    def tensor(self, dtype: Any, shape: tuple[int, ...]) -> Any:
        """A tensor in its own range, with uninitialised elements; None if the remaining memory is too small."""
        at = self._used
        size = torch.empty(0, dtype=dtype).element_size() * math.prod(shape)
        if size == 0 or at + size > self._size:
            return None
        self._begins.append(at)
        self._ends.append(at + size)
        self._used = at + _aligned(size)
        return self._bytes[at : at + size].view(dtype).view(shape)

    def finished(self, parts: list[Any]) -> Optional[int]:
        """Adds the parts of batch_parts() that are not here yet, and the table. Returns the total size; None if the remaining
        memory is too small.

        Raises:
            PartOutsideRangeError: a part overlaps the room and is out of the range of its tensor; nothing was written.
        """
        placed, used = [], self._used
        for number, part in enumerate(parts):
            size, offset = len(part), self._offset_of(part)
            if offset is None:
                offset = used
                used += _aligned(size)
            elif not self._in_one_range(offset, offset + size):
                raise PartOutsideRangeError(f"part {number} is out of the range of its tensor: {size} bytes at offset {offset} of {self._size}")
            placed.append((part, offset, size))
        end = used + 16 * len(parts)
        if end > self._size:
            return None
        for part, offset, size in placed:
            if offset >= self._used:
                self._view[offset : offset + size] = part
        table = [number for _, offset, size in placed for number in (offset, size)]
        struct.pack_into(f"<{len(table)}Q", self._view, used, *table)
        struct.pack_into("<QQ", self._view, 0, IN_ROOM | len(parts), used)
        return end

    def _offset_of(self, part: Any) -> Optional[int]:
        """Where the part is in this memory; None if it is elsewhere. Negative if it begins before the room and extends into it."""
        size = len(part)
        if size == 0 or part.readonly:
            return None
        offset = ctypes.addressof(ctypes.c_char.from_buffer(part)) - self._address
        return offset if -size < offset < self._size else None

    def _in_one_range(self, begin: int, end: int) -> bool:
        place = bisect.bisect_right(self._begins, begin) - 1
        return place >= 0 and end <= self._ends[place]


def room_for(samples: list[Any]) -> int:
    """Bytes that a Room needs for what default_collate makes of these samples. Reads only the first sample: the others have the same
    shapes, or cannot be stacked. Texts may differ; a pickle that is larger than expected does not fit in the room (Room.finished)."""
    count = len(samples)

    def leaves(value: Any) -> int:
        if isinstance(value, torch.Tensor):
            return _aligned(value.numel() * value.element_size() * count)
        if isinstance(value, (str, bytes)):
            return (4 * len(value) + 16) * count
        if isinstance(value, collections.abc.Mapping):
            return sum(leaves(each) for each in value.values()) + 64 * len(value)
        if isinstance(value, collections.abc.Sequence):
            return sum(map(leaves, value)) + 64 * len(value)
        size = getattr(value, "nbytes", 8)  # an array's size, or 8 for a number
        return _aligned(size * count) if isinstance(size, int) else 0

    return leaves(samples[0]) + 4096 if samples else 0


def pickled(value: Any) -> bytes:
    """The pickle in one piece, for small objects."""
    return pickle.dumps(value, protocol=5)


def batch_from(whole: Any) -> Any:
    """The value that batch_parts() pickled. Its tensors and arrays are writable views of `whole` and keep it alive."""
    view = memoryview(whole)
    (count,) = struct.unpack_from("<Q", view)
    if count & IN_ROOM:
        count &= ~IN_ROOM
        (at,) = struct.unpack_from("<Q", view, 8)
        table = struct.unpack_from(f"<{2 * count}Q", view, at)
        parts = [view[begin : begin + size] for begin, size in zip(table[::2], table[1::2])]
        return pickle.loads(parts[0], buffers=parts[1:])
    return _unpickled(view, count, _aligned)


_ARRAYS: dict[int, Any] = {}  # keyed by size: most loaders have few sizes


def view_of(held: Any) -> Any:
    """A buffer over a result in its slot; keeps the result alive."""
    kind: Any = _ARRAYS.get(held.nbytes)
    if kind is None:
        if len(_ARRAYS) > 64:
            _ARRAYS.clear()
        kind = _ARRAYS[held.nbytes] = type("Memory", (ctypes.c_char * held.nbytes,), {})
    made = kind.from_address(held.address)
    made.held = held
    return memoryview(made).cast("B")


# ---- datasets ------------------------------------------------------------------------------------------------------


def dataset_parts(value: Any) -> list[Any]:
    """Pickles a dataset. Returns the pickle, followed by the buffers left out of it."""
    buffers: list[pickle.PickleBuffer] = []
    whole = io.BytesIO()

    class Pickler(_by_value.Pickler):
        dispatch_table: Any = ChainMap({torch.Tensor: _Storages().reduce}, _shared_by_processes(), _by_value.Pickler.dispatch_table)

    with _as_if_spawning():
        Pickler(whole, protocol=5, buffer_callback=buffers.append).dump(value)
    return [whole.getbuffer(), *[buffer.raw() for buffer in buffers]]


def published(value: Any) -> int:
    """Pickles a dataset into a sealed memory file: the pickle, then, page-aligned, the buffers left out of it. Returns the file's
    descriptor."""
    parts = dataset_parts(value)
    lengths = [len(part) for part in parts]
    head = struct.pack(f"<{1 + len(parts)}Q", len(parts), *lengths)
    file = os.memfd_create("penstock-dataset", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        at = 0
        for part in (memoryview(head), *parts):
            _write_at(file, part, at)
            at += _pages(len(part))
        os.ftruncate(file, at)
        _seal(file)
    except BaseException:
        os.close(file)
        raise
    return file


def map_published(path: str) -> Any:
    """The published value. Large buffers are mapped copy-on-write: all processes share one copy."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        memory = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(file)
    view = memoryview(memory)
    (count,) = struct.unpack_from("<Q", view)
    return _unpickled(view, count, _pages)


def _unpickled(view: memoryview, count: int, rounded: Callable[[int], int]) -> Any:
    """Unpickles a value. The memory holds the lengths of the pickle and of its buffers, then the pickle and the
    buffers."""
    at, parts = rounded(8 * (1 + count)), []
    for length in struct.unpack_from(f"<{count}Q", view, 8):
        parts.append(view[at : at + length])
        at += rounded(length)
    return pickle.loads(parts[0], buffers=parts[1:])


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def _pages(length: int) -> int:
    return -(-length // PAGE) * PAGE


def _write_at(file: int, part: memoryview, at: int) -> None:
    left = part.cast("B") if part.format != "B" or part.ndim != 1 else part
    while len(left):
        written = os.pwrite(file, left[: 1 << 30], at)
        left, at = left[written:], at + written


def _seal(file: int) -> None:
    import fcntl

    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)


def _shared_by_processes() -> dict[Any, Any]:
    """multiprocessing's reducers of its values, arrays, connections and locks."""
    known = multiprocessing.reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined,unused-ignore]
    theirs = ("multiprocessing.sharedctypes", "multiprocessing.heap", "multiprocessing.connection")
    shared = {kind: reduce for kind, reduce in known.items() if getattr(reduce, "__module__", None) in theirs}
    locks = sys.modules.get("multiprocessing.synchronize")
    if locks is not None:
        shared.update(dict.fromkeys((locks.Lock, locks.RLock, locks.Semaphore, locks.BoundedSemaphore), _reduce_lock))
    return shared


def _reduce_lock(lock: Any) -> Any:
    if lock._semlock.name is None:  # Python before 3.12 pickles its address, which crashes the worker
        raise RuntimeError(
            'it has a lock of multiprocessing\'s context "fork", which only forked processes can use; make it with '
            'multiprocessing.get_context("spawn"), as in get_context("spawn").Value("i")'
        )
    return lock.__reduce_ex__(5)


class _ParentsFile:
    """Lets a worker open a descriptor of this process: for multiprocessing's locks, values and queues."""

    def __init__(self, descriptor: int) -> None:
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"

    def detach(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)


class _Spawning:
    """Replaces the Popen object that multiprocessing's objects use while they are pickled for a new process."""

    DupFd = _ParentsFile

    def duplicate_for_child(self, descriptor: int) -> int:
        return descriptor


@contextlib.contextmanager
def _as_if_spawning() -> Iterator[None]:
    before = multiprocessing.context.get_spawning_popen()
    multiprocessing.context.set_spawning_popen(_Spawning())  # type: ignore[arg-type]
    try:
        yield
    finally:
        multiprocessing.context.set_spawning_popen(before)
