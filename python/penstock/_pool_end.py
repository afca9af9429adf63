"""How a pool ends: by shutdown() or abort(), when its last reference goes, or with the interpreter. Used by _pool.py."""

import atexit
import os
import threading
import weakref
from typing import Any, Optional

from penstock import _core
from penstock._errors import usage_error
from penstock._future import Future
from penstock._names import Name
from penstock._reasons import Reason
from penstock._setup import Setup

__all__ = ["PoolLife", "end_with_the_interpreter"]


class PoolLife:
    """What a pool and its options() share: the workers, and a count of what still needs them. The pool ends when this object is destroyed."""

    def __init__(self, core: _core.Pool, setup: Setup, name: Optional[Name]) -> None:
        self._core, self.setup, self._name = core, setup, name
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._entering = 0  # calls to submit() in progress
        self._halves = 0  # jobs with gpu= that have not ended
        self._shut = False
        self._aborted = False
        self.why = Reason()  # why the pool ends early, for its record
        self.owner = os.getpid()
        self.futures: set[Future[Any]] = set()  # futures that have not ended
        # The pool is not closed at the interpreter's exit: queued jobs still run then, perhaps on workers that have not
        # started yet.
        weakref.finalize(self, _dropped, core, setup, self.owner, name).atexit = False

    def enter(self, with_half: bool) -> None:
        """Call before a job is submitted, and leave() afterwards. Raises usage_error after shutdown."""
        with self._lock:
            if self._shut:
                raise usage_error("cannot schedule new futures after shutdown")
            self._entering += 1
            self._halves += with_half

    def leave(self) -> None:
        with self._lock:
            self._entering -= 1
            if self._shut:
                self._news.notify_all()

    def ends_by(self, why: Reason) -> None:
        """Sets the reason why the pool ends early, for its record; empty if it does not."""
        with self._lock:
            if not self._shut:
                self.why = why

    def half_done(self) -> None:
        """Call when the gpu= half of a job has ended."""
        with self._lock:
            self._halves -= 1
            self._news.notify_all()

    def shut(self) -> None:
        """Accepts no more jobs. Returns when submissions in progress are complete."""
        with self._lock:
            self._shut = True
            while self._entering:
                self._news.wait()

    def finish(self) -> None:
        """Returns when all jobs and workers have ended."""
        try:
            self._core.finish(1e8)
            with self._lock:  # their results are on the device
                while self._halves and not self._aborted:
                    self._news.wait()
        finally:
            self._close()

    def abort(self) -> None:
        self._give_up()
        self._core.stop(0.5, *self.why)
        self._close()

    def drop(self) -> None:
        """Like abort(), for a loader that is no longer needed. Without a reason, the record says that it finished, not that it was
        stopped."""
        self._give_up()
        self._close()

    def _give_up(self) -> None:
        with self._lock:
            self._shut = self._aborted = True
            self._news.notify_all()

    def _close(self) -> None:
        if self.why.text:
            self._core.stop(0.5, *self.why)
        self._core.close()
        if self._name is not None:
            self._name.give_back()


_LIVING: "weakref.WeakSet[Any]" = weakref.WeakSet()  # pools
_ENDED = threading.Condition(threading.RLock())  # garbage collection may drop a pool at any point, even in here
_ENDING = 0  # unreferenced pools that are being closed


def end_with_the_interpreter(pool: Any) -> None:
    """Calls the pool's _at_exit() when the interpreter exits, if the pool still exists."""
    _LIVING.add(pool)


def _dropped(core: _core.Pool, setup: Setup, owner: int, name: Optional[Name]) -> None:
    """Closes a pool whose last reference has gone, perhaps on the pool's own callback thread, where its last future
    has ended.

    The interpreter waits for Python threads but not for the callback thread. If that thread returned from closing the pool into
    an interpreter that is exiting, Python would end the thread in the middle of C++, which aborts the process (SIGABRT).
    """
    if owner != os.getpid():
        setup.close()
        return

    def end() -> None:
        global _ENDING
        try:
            core.close()
        finally:
            if name is not None:
                name.give_back()
            setup.close()  # only now: a starting worker may read the file
            with _ENDED:
                _ENDING -= 1
                _ENDED.notify_all()

    global _ENDING
    with _ENDED:
        _ENDING += 1
    if not threading.current_thread().daemon:  # the interpreter waits for this thread, too
        end()
        return
    try:
        threading.Thread(target=end, name="penstock-pool-end", daemon=False).start()
    except RuntimeError:  # the interpreter is exiting: no thread can be started
        end()


@atexit.register
def _finish_all() -> None:
    for pool in list(_LIVING):
        pool._at_exit()
    with _ENDED:
        while _ENDING:
            _ENDED.wait()
