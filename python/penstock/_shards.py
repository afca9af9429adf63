"""The position of each shard of an iterable dataset (its state_dict()), kept where a replacement worker can read it.

A memory file holds two records for each shard. Its worker writes them in turn, one after each batch, so the state before the batch that
killed the worker survives even if the other record is half written. Used by _loader.py, which creates the file, and _loading.py.
"""

import os
import pickle
import struct
import zlib
from typing import Any, NamedTuple, Optional

__all__ = ["ShardState", "ShardStates", "has_state", "state_of"]

ROOM = 1 << 30  # bytes for one state; unwritten pages take no memory
MAGIC = 0x70656E73686172_02
_FACTS = struct.Struct("<QQQ?")  # epoch, batches, samples, ended
_HEAD = struct.Struct("<QQQQ?QI")  # MAGIC, the facts, length, checksum


class ShardState(NamedTuple):
    """A shard's position and the dataset's state there."""

    batches: int
    samples: int
    pickled: bytes
    ended: bool = False  # exhausted, whatever the state says: many datasets look identical before iteration starts

    def go_on(self, dataset: Any) -> int:
        """Restores the dataset's position, unless the shard has ended. Returns the number of batches skipped."""
        if self.ended:
            return self.batches
        dataset.load_state_dict(pickle.loads(self.pickled))
        return self.batches


def has_state(dataset: Any) -> bool:
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))


class ShardStates:
    """The states of all shards of a loader.

    Args:
        file: a descriptor, which this object closes.
    """

    def __init__(self, file: int) -> None:
        self._file = file

    def __del__(self) -> None:
        os.close(self._file)

    @staticmethod
    def made() -> "ShardStates":
        return ShardStates(os.memfd_create("penstock-shards", os.MFD_CLOEXEC))

    @staticmethod
    def opened(path: str) -> "ShardStates":
        return ShardStates(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    @property
    def path(self) -> str:
        """The path by which other processes open it."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def clear(self) -> None:
        os.ftruncate(self._file, 0)

    def write(self, shard: int, epoch: int, state: ShardState) -> None:
        if len(state.pickled) > ROOM - _HEAD.size:
            raise ValueError(f"the dataset's state_dict() has {len(state.pickled)} bytes when pickled; the limit is {ROOM}")
        facts = (epoch, state.batches, state.samples, state.ended)
        checked = zlib.crc32(state.pickled, zlib.crc32(_FACTS.pack(*facts)))
        head = _HEAD.pack(MAGIC, *facts, len(state.pickled), checked)
        left, at = memoryview(head + state.pickled), self._place(shard, state.batches)
        while left:
            written = os.pwrite(self._file, left, at)
            left, at = left[written:], at + written

    def before(self, shard: int, epoch: int, batch: int) -> Optional[ShardState]:
        """The shard's latest state in this epoch at or before batch number `batch`; None if there is none."""
        found = [state for state in (self._read(shard, epoch, which) for which in (0, 1)) if state is not None and state.batches <= batch]
        return max(found, default=None)

    def _read(self, shard: int, epoch: int, which: int) -> Optional[ShardState]:
        at = self._place(shard, which)
        head = os.pread(self._file, _HEAD.size, at)
        if len(head) < _HEAD.size:
            return None
        magic, of_epoch, batches, samples, ended, length, checked = _HEAD.unpack(head)
        if magic != MAGIC or of_epoch != epoch or length > ROOM:
            return None
        pickled = os.pread(self._file, length, at + _HEAD.size)
        if zlib.crc32(pickled, zlib.crc32(_FACTS.pack(epoch, batches, samples, ended))) != checked:
            return None  # half written
        return ShardState(batches, samples, pickled, ended)

    @staticmethod
    def _place(shard: int, batches: int) -> int:
        return (2 * shard + batches % 2) * ROOM


def state_of(dataset: Any, batches: int, samples: int, ended: bool) -> ShardState:
    """The dataset's state now, after this many batches and samples."""
    said = dataset.state_dict()
    try:
        return ShardState(batches, samples, pickle.dumps(said, protocol=5), ended)
    except Exception as broken:
        raise TypeError(f"what the dataset's state_dict() returns cannot be pickled: {broken}") from broken
