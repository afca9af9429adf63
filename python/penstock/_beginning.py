"""Starts a DataLoader's workers in two steps, because each imports torch.

The import takes a second or more, and longer when many processes do it at once, but the first batch needs only one worker. So one
worker per four cores starts first; the rest follow when one of them is ready. Used by _workers.py as the pool's initializer: keep its
imports light.
"""

import gc
import os
import select

__all__ = ["Announced", "Gate", "prepare", "prepare_on_host"]

NUMBER = "PENSTOCK_WORKER"  # environment variable
LONGEST_WAIT = 10.0  # seconds; after that, the first workers are assumed to be slow, not dead


class Gate:
    """The caller's side: a pipe that becomes readable when the first worker is ready."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.path = f"/proc/{os.getpid()}/fd/{self._write}"

    def open(self) -> None:
        """Lets all workers start: none has to wait any longer."""
        os.write(self._write, b"r")

    def close(self) -> None:
        try:
            os.close(self._read)
        finally:
            os.close(self._write)


class Announced:
    """Tells templates which published order is in use, through a memory file that the caller writes and templates read."""

    def __init__(self) -> None:
        self._file = os.memfd_create("penstock-order", os.MFD_CLOEXEC)
        self.path = f"/proc/{os.getpid()}/fd/{self._file}"

    def write(self, number: int, path: str) -> None:
        os.pwrite(self._file, f"{number} {path}".encode().ljust(128), 0)

    def close(self) -> None:
        os.close(self._file)


def at_once() -> int:
    """The number of workers that start at once."""
    return max(1, len(os.sched_getaffinity(0)) // 4)


def prepare(marks: str, gate: str, first: int, announced: str = "") -> None:
    """Runs in a worker before it reports ready.

    Args:
        marks: the loader's marks (_loading.Marks).
        gate: Gate.path.
        first: workers with lower numbers start at once. Worker 0 loads an iterable dataset's first batch.
        announced: Announced.path.
    """
    opened = os.open(gate, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if int(os.environ.pop(NUMBER, "0")) >= first:
            ready = select.poll()
            ready.register(opened, select.POLLIN)
            ready.poll(LONGEST_WAIT * 1e3)
        collects = gc.isenabled()
        gc.disable()  # modules' objects are never freed, and scanning them would take a tenth of the time
        try:
            from penstock import _loading

            _loading.prepare(marks)
        finally:
            if collects:
                gc.freeze()
                gc.enable()
        try:
            os.write(opened, b"r")
        except BlockingIOError:
            pass  # other workers were ready first
    finally:
        os.close(opened)


def prepare_on_host() -> None:
    """Instead of prepare(), on a loader host: workers start at once, and get orders with their jobs."""
    from penstock import _hosts, _loading

    _loading.prepare(os.environ.pop(_hosts.MARKS))


def before_fork_on_host() -> None:
    """Imports what a worker would import."""
    from penstock import _loading  # noqa: F401


prepare_on_host.before_fork = before_fork_on_host  # type: ignore[attr-defined]


def before_fork(marks: str, gate: str, first: int, announced: str = "") -> None:
    """Runs in a template before each fork. Imports what a worker would import, and makes the dataset."""
    from penstock import _loading

    with open(announced, "rb") as opened:
        number, _, path = opened.read().decode().strip().partition(" ")
    if path:
        _loading.unpickle_early(int(number), path)


prepare.before_fork = before_fork  # type: ignore[attr-defined]
