"""Ctrl-C while Python calls functions whose exceptions it prints and ignores: at the exit, and in finalizers.

Used by _orders.py, _pool_end.py, _session.py and _workers.py.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["no_interrupts"]

_SOON = 0.05  # seconds: the finalizer has returned


@contextlib.contextmanager
def no_interrupts(at_exit: bool = False) -> Iterator[None]:
    """Here no KeyboardInterrupt is raised. In a finalizer it would be lost, so the program gets its SIGINT again soon after.

    `timeout` and launchers send SIGINT to the program and to its group. So a program gets the second one while it leaves its loop, or
    exits, because of the first.

    Args:
        at_exit: SIGINT is dropped instead. For functions that take at most about a second.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def note(*_: Any) -> None:
        nonlocal came
        came = True

    while signal.getsignal(signal.SIGINT) is not note:
        try:
            signal.signal(signal.SIGINT, note)
        except KeyboardInterrupt:  # one that was pending
            came = True
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and not at_exit:
            with contextlib.suppress(RuntimeError):  # the interpreter is exiting
                again = threading.Timer(_SOON, os.kill, (os.getpid(), signal.SIGINT))
                again.daemon = True
                again.start()
