"""The beginning of a DataLoader's worker: imports torch, the first worker before the others.

Importing torch takes a second or more, and longer for each of many processes that do it at once. The first batch needs one
worker. So a few begin, by the number of cores; the others wait until one of these is ready. Used by _loader.py as its
pool's initializer; it must be light, and imports what is heavy itself.
"""

import errno
import fcntl
import gc
import os
import select

__all__ = ["Gate", "prepare"]

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
        marks: the loader's marks (_loading.Marks); bytes of this file are locked, too: by those that begin.
        gate: of Gate.path.
        first: how many may begin.
    """
    opened = os.open(gate, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    places = os.open(marks, os.O_RDWR | os.O_CLOEXEC)
    try:
        if not any(_is_mine(places, place) for place in range(first)):
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
        os.close(places)
        os.close(opened)


def _is_mine(file: int, place: int) -> bool:
    """Locks a byte of the file until this process closes it or dies."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except OSError as taken:
        if taken.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    return True
