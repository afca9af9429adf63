"""Moves a DataLoader's batches to a device: torch copies them straight from the slots that workers filled.

On a GPU the copies run on a separate stream, and the caller's stream waits for it. Memory stays alive until its copy is done. The pool's
GPU owner ([jobs] gpu) page-locks the slots and does nothing else here. Used by _loader.py and _local.py.
"""

import collections
import collections.abc
from typing import Any

import torch

__all__ = ["ToDevice", "moved", "pool_options"]

cuda: Any = torch.cuda


def pool_options(device: Any) -> dict[str, Any]:
    """Pool settings of a loader whose batches go to this device."""
    if device is None or device.type != "cuda":
        return {}
    number = cuda.current_device() if device.index is None else device.index
    return {"jobs.gpu": True, "gpu.device": f"cuda:{number}", "gpu.buffers": 2, "loader.slots_per_worker": 4, "loader.slot_bytes": "32MiB"}


class ToDevice:
    """Moves batches.

    Args:
        ahead: at most this many copies run at once; the next one waits for the oldest.
        source: owner of the memory; it stays page-locked as long as this object lives.
    """

    def __init__(self, device: Any, ahead: int, source: Any = None) -> None:
        self._device, self._ahead, self._source = device, ahead, source
        self._stream: Any = cuda.Stream(device) if device.type == "cuda" else None
        self._under_way: collections.deque[tuple[Any, Any]] = collections.deque()

    def __call__(self, data: Any) -> Any:
        if self._stream is None:
            return moved(data, self._device)
        under_way = self._under_way
        while under_way and under_way[0][0].query():
            under_way.popleft()
        while len(under_way) >= self._ahead:
            under_way.popleft()[0].synchronize()
        current = cuda.current_stream(self._device)
        with cuda.stream(self._stream):
            there = moved(data, self._device)
            copied = cuda.Event()
            copied.record(self._stream)
        under_way.append((copied, data))
        current.wait_event(copied)
        for tensor in _tensors_in(there):
            tensor.record_stream(current)  # its memory belongs to our stream
        return there

    def __del__(self) -> None:
        for copied, _ in self._under_way:
            copied.synchronize()


def moved(data: Any, device: Any) -> Any:
    """Returns a structure like `data`, with its tensors, and other objects that have a method to(), moved to the
    device."""
    if isinstance(data, torch.Tensor) or callable(getattr(data, "to", None)):
        return data.to(device, non_blocking=True)
    if isinstance(data, collections.abc.Mapping):
        made = {key: moved(value, device) for key, value in data.items()}
        return made if type(data) is dict else type(data)(made)  # type: ignore[call-arg,unused-ignore]
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(moved(value, device) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(moved(value, device) for value in data)
    return data


def _tensors_in(data: Any) -> list[Any]:
    if isinstance(data, torch.Tensor):
        return [data] if data.is_cuda else []
    if isinstance(data, collections.abc.Mapping):
        return [tensor for value in data.values() for tensor in _tensors_in(value)]
    if isinstance(data, (list, tuple)):
        return [tensor for value in data for tensor in _tensors_in(value)]
    return [tensor for value in getattr(data, "__dict__", {}).values() for tensor in _tensors_in(value)]
