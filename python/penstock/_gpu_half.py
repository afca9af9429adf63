"""Results of jobs whose second half runs on the GPU: the single thread that runs it, and arrays on the device.

Used by Pool for `submit(f, ..., gpu=g)`.
"""

import io
import pickle
import queue
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Optional

from penstock import _core, _parts

__all__ = ["GPU_THREAD", "value_of"]


class _GpuThread:
    """Runs the device halves of the jobs of all pools in this process, one after another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._waiting: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()

    def put(self, half: Callable[[], None]) -> None:
        with self._lock:
            if self._thread is None:
                # A daemon: the pools wait for it when the interpreter ends.
                self._thread = threading.Thread(target=self._run, name="penstock-gpu", daemon=True)
                self._thread.start()
        self._waiting.put(half)

    def _run(self) -> None:
        while True:
            half = self._waiting.get()
            half()
            del half


GPU_THREAD = _GpuThread()


def value_of(result: _core.DeviceResult) -> Any:
    """What the function returned: its arrays are torch tensors on the pool's device if torch is imported, else NumPy arrays
    on the host. Both are copies, so the device's buffer is returned at once."""
    torch = sys.modules.get("torch")
    if torch is None:
        if result.cuda_device >= 0:
            _say_where_arrays_are()
        try:
            whole = result.read_back()
        finally:
            result.release(0)
        return _parts.unpickled(_parts.split(whole))
    on_gpu = result.cuda_device >= 0
    try:
        there = torch.utils.dlpack.from_dlpack(result.dlpack()).clone()
    finally:
        result.release(torch.cuda.current_stream(result.cuda_device).cuda_stream if on_gpu else 0)
    spans = _spans(there)
    head = _bytes_of(there, *spans[0])
    tokens: list[Any] = [_There(index) for index in range(len(spans) - 1)]
    arrays = _Arrays(head, torch, there, spans[1:])
    try:
        value = arrays.unpickled(tokens)
        if len(arrays.found) == len(tokens):
            return value
    except (TypeError, AttributeError, ValueError):
        pass
    # Objects other than arrays are made from a buffer's bytes in host memory.
    arrays = _Arrays(head, torch, there, spans[1:])
    return arrays.unpickled([arrays.on_host(index) for index in range(len(tokens))])


def _bytes_of(whole: Any, offset: int, length: int) -> bytearray:
    """Some bytes of a torch tensor on any device."""
    return bytearray(whole[offset : offset + length].cpu().numpy().tobytes())


def _spans(whole: Any) -> list[tuple[int, int]]:
    """Where each part is: offset and length (_parts.split)."""
    (count,) = struct.unpack("<Q", _bytes_of(whole, 0, 8))
    lengths = struct.unpack(f"<{count}Q", _bytes_of(whole, 8, 8 * count))
    spans, at = [], _parts.rounded_up(8 * (1 + count))
    for length in lengths:
        spans.append((at, length))
        at += _parts.rounded_up(length)
    return spans


class _There:
    """Stands for a buffer that is on the device."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Arrays(pickle.Unpickler):
    """Unpickles NumPy arrays as tensors on the device."""

    def __init__(self, head: bytearray, torch: Any, there: Any, spans: list[tuple[int, int]]) -> None:
        self._head, self._torch, self._whole, self._spans = head, torch, there, spans
        self._hosts: dict[int, int] = {}  # the buffer that each bytearray stands for
        self._kept: list[bytearray] = []
        self.found: set[int] = set()

    def unpickled(self, buffers: list[Any]) -> Any:
        super().__init__(io.BytesIO(self._head), buffers=buffers)
        return self.load()

    def on_host(self, index: int) -> bytearray:
        data = _bytes_of(self._whole, *self._spans[index])
        self._hosts[id(data)] = index
        self._kept.append(data)
        return data

    def find_class(self, module: str, name: str) -> Any:
        if name == "_frombuffer" and module in ("numpy.core.numeric", "numpy._core.numeric"):
            standard = super().find_class(module, name)
            return lambda *arguments: self._array(standard, *arguments)
        return super().find_class(module, name)

    def _array(self, standard: Any, buffer: Any, dtype: Any, shape: Any, order: str, *more: Any) -> Any:
        if isinstance(buffer, memoryview):  # the array is read-only
            buffer = buffer.obj
        index = buffer.index if isinstance(buffer, _There) else self._hosts[id(buffer)]
        kind = getattr(self._torch, dtype.name, None) if dtype.isnative else None
        if not isinstance(kind, self._torch.dtype) or more or order not in ("C", "F"):
            return standard(self.on_host(index), dtype, shape, order, *more)  # torch has no tensor of this kind
        self.found.add(index)
        offset, length = self._spans[index]
        tensor = self._whole[offset : offset + length].view(kind)
        if order == "C":
            return tensor.reshape(shape)
        axes = range(len(shape) - 1, -1, -1)
        return tensor.reshape([shape[axis] for axis in axes]).permute(*axes)


_told = False


def _say_where_arrays_are() -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            "arrays for gpu= are passed as NumPy arrays on the host, because torch is not imported: import torch to get them as tensors "
            "on the GPU",
            stacklevel=2,
        )
