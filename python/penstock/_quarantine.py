"""Samples of a DataLoader that were left out, and a file that keeps those which kill workers from being tried again."""

import contextlib
import fcntl
import json
import os
import time
from typing import Any, Optional

from penstock._errors import sample_error, state_mismatch_error

__all__ = ["BadSamples", "Quarantine", "error_of_sample"]

_LINE_MAX = 64 * 1024  # a line is shorter
_SCHEMA = "penstock.quarantine/1"  # the same as that of sessions and `penstock quarantine`: an index that is a number is their sample


class BadSamples:
    """How a loader handles them.

    Args:
        policy: on_bad_sample.
        quarantine: the samples that killed workers before.
        listed: loader.bad_samples, which is appended to.
    """

    def __init__(self, policy: str, quarantine: "Quarantine", listed: list[dict[str, Any]]) -> None:
        self.policy, self.quarantine, self._listed = policy, quarantine, listed

    def refuse(self, index: Any) -> None:
        """Raises sample_error for a sample in quarantine, unless bad samples are left out."""
        causes = self.quarantine.indices.get(index, [])
        raise error_of_sample(f"sample {index} is in quarantine: it killed workers before ({', '.join(causes)})", index, causes)

    def note(self, index: Any, epoch: int, position: int, why: dict[str, Any]) -> None:
        self._listed.append({"index": index, "epoch": epoch, "position": position, **why})

    def killed(self, index: Any, epoch: int, position: int, causes: list[str]) -> None:
        """Leaves out this sample from now on: it killed its workers or took too long."""
        self.quarantine.add(index, causes)
        self.note(index, epoch, position, {"causes": causes})


def error_of_sample(text: str, index: Any, causes: list[str]) -> sample_error:
    made = sample_error(text)
    made.index, made.causes = index, causes
    return made


class Quarantine:
    """Indices that must not be loaded. With a path they are also kept in a file, one line of JSON for each.

    Args:
        dataset: what the indices belong to, as text: a file of another dataset is refused.
    """

    def __init__(self, path: Optional[str], dataset: str) -> None:
        self._path, self._dataset = path, dataset
        self.indices: dict[Any, list[str]] = {}  # with their causes
        if path is None or not os.path.exists(path):
            return
        with open(path) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    break  # a crash or a full disk cut it off: add() removes it
                try:
                    told, index, causes = _read(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError) as broken:
                    raise state_mismatch_error(f"{path}, line {number}: not an entry of a quarantine: {broken}") from None
                if told != dataset:
                    raise state_mismatch_error(f"{path}, line {number}: it belongs to {told}, but this dataset is {dataset}")
                if causes is None:
                    self.indices.pop(_key(index), None)
                else:
                    self.indices[_key(index)] = causes

    def add(self, index: Any, causes: list[str]) -> None:
        if _key(index) in self.indices:
            return
        self.indices[_key(index)] = causes
        if self._path is not None:
            _append(self._path, (json.dumps(self._line(index, causes)) + "\n").encode())

    def _line(self, index: Any, causes: list[str]) -> dict[str, Any]:
        number = _key(index)
        if isinstance(number, int) and number >= 0:
            facts = {"path": f"sample {number}", "attempts": len(causes), "causes": causes, "time": time.time()}
            return {"schema": _SCHEMA, "fingerprint": self._dataset, "sample": number, **facts}
        text = number if isinstance(number, int) else index if isinstance(index, (str, list, tuple)) else repr(index)
        return {"index": text, "causes": causes, "dataset": self._dataset}

    def places_in(self, indices: Any) -> tuple[int, ...]:
        """Which samples of a batch to leave out."""
        if not self.indices:
            return ()
        return tuple(place for place, index in enumerate(indices) if _key(index) in self.indices)


def _read(entry: Any) -> tuple[str, Any, Optional[list[str]]]:
    """The dataset, an index and the causes of the deaths that it caused; None: it was released."""
    if entry.get("schema") == _SCHEMA:
        return entry["fingerprint"], entry["sample"], None if entry.get("released") else list(entry["causes"])
    return entry["dataset"], entry["index"], list(entry["causes"])


def _append(path: str, line: bytes) -> None:
    """Appends a whole line or nothing: half a line would garble the next one. Several loaders may share the file."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        tail = os.pread(file, _LINE_MAX, max(0, size - _LINE_MAX))
        whole = size - len(tail) + tail.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(file, whole)
        try:
            while line:
                line = line[os.write(file, line) :]
        except OSError:
            os.ftruncate(file, whole)
            raise
    finally:
        os.close(file)


def _key(index: Any) -> Any:
    if hasattr(index, "__index__"):
        return index.__index__()
    if isinstance(index, (list, tuple)):
        return tuple(_key(each) for each in index)
    return index
