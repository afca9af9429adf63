"""The file that every worker of a pool reads at its start: import path, initializer, arguments. Also reads the reports of workers whose
initializer failed. Used by _pool.py; the worker side is in worker.py."""

import os
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any, Optional

from penstock import _by_value
from penstock._errors import error, job_failed_error, remote_traceback
from penstock.worker import failures_of_initializer

__all__ = ["Setup", "code_of"]

LONGEST_OF_FAILURES = 1 << 24  # bytes that workers wrote about initializers


class Setup:
    """A memory file that all workers, including replacements, open through this process's entry in /proc. They append to it how the
    initializer failed."""

    def __init__(self, initializer: Optional[Callable[..., object]], arguments: tuple[Any, ...]) -> None:
        self._file = os.memfd_create("penstock-pool-setup", os.MFD_CLOEXEC)
        try:
            with open(self._file, "wb", closefd=False) as opened:
                self._length = opened.write(code_of(initializer, arguments, _key_of_multiprocessing()))
        except BaseException:
            os.close(self._file)
            raise

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def close(self) -> None:
        """Call when no worker can start any more."""
        os.close(self._file)

    def explain(self, failed: error) -> None:
        """If the pool has no workers left because its initializer raised, makes the error say that, with the traceback as its
        cause."""
        failures = failures_of_initializer(os.pread(self._file, LONGEST_OF_FAILURES, self._length))
        if not failures or failures[-1][0] not in str(failed):
            return
        line = failures[-1][0]
        times = {1: "once", 2: "twice"}.get(len(failures), f"{len(failures)} times")
        failed.args = (f"{line}. The initializer was tried {times}; no worker is left, and [loader.restart] allows no more restarts",)
        traceback = next((told for each, told in failures if each == line and told is not None), "")
        failed.__cause__ = remote_traceback(traceback)
        if isinstance(failed, job_failed_error):
            failed.traceback = traceback


def code_of(initializer: Optional[Callable[..., object]], arguments: tuple[Any, ...], key: Optional[bytes] = None) -> bytes:
    """What a worker reads first.

    Args:
        key: the authentication key of multiprocessing; not for workers on other machines.
    """
    first = pickle.dumps((_absolute(sys.path), list(getattr(sys, "argv", []))))
    return first + pickle.dumps(key) + pickle.dumps(_by_value.dumps((initializer, arguments)))


def _key_of_multiprocessing() -> Optional[bytes]:
    """Lets workers use the proxies of a multiprocessing.Manager, like processes that multiprocessing starts."""
    process = sys.modules.get("multiprocessing.process")
    return None if process is None else bytes(process.current_process().authkey)


def _absolute(path: Iterable[str]) -> list[str]:
    return [os.path.abspath(each) if each == "" or not os.path.isabs(each) else each for each in path]
