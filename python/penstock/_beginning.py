"""The beginning of a DataLoader's worker: imports torch, the first worker before the others.

Importing torch takes a second or more, and longer for each of many processes that do it at once. The first batch needs one
worker. So a few begin, by the number of cores; the others wait until one of these is ready. Used by _loader.py as its
pool's initializer; it must be light, and imports what is heavy itself.
"""

import gc
import os
import select

__all__ = ["Gate", "prepare"]

NUMBER = "PENSTOCK_WORKER"  # the environment variable that has it
LONGEST_WAIT = 10.0  # seconds; nothing is wrong then, those that began are slow


class Gate:
    """The caller's half: a pipe that has something to read as soon as a worker is ready."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.path = f"/proc/{os.getpid()}/fd/{self._write}"

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def at_once() -> int:
    """How many workers begin before one is ready."""
    return max(1, len(os.sched_getaffinity(0)) // 4)


def prepare(marks: str, gate: str, first: int) -> None:
    """In a worker, before it says that it is there.

    Args:
        marks: the loader's marks (_loading.Marks).
        gate: of Gate.path.
        first: the workers with numbers below this one begin. An iterable dataset's first batch is of worker 0.
    """
    opened = os.open(gate, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if int(os.environ.pop(NUMBER, "0")) >= first:
            ready = select.poll()
            ready.register(opened, select.POLLIN)
            ready.poll(LONGEST_WAIT * 1e3)
        collects = gc.isenabled()
        gc.disable()  # what modules make stays; looking through all of it again and again takes a tenth of the time
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
            pass  # many were ready before
    finally:
        os.close(opened)
