"""The worker processes of a DataLoader, as torch's iterators list them in `_workers`: for monitors that want their pids. Used by _loader.py."""

import os
import select
import signal
import time
from typing import Any, Optional

__all__ = ["WorkerProcess", "processes_of"]

PATIENCE = 60.0  # seconds until every worker has a process
LOOK_EVERY = 0.005


class WorkerProcess:
    """A snapshot of a worker's process with the read-only interface of multiprocessing.Process. It keeps neither the process nor
    its pool alive, and does not follow the process that replaces this one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._file: Optional[int] = os.pidfd_open(pid)
        except ProcessLookupError:
            self._file = None

    def is_alive(self) -> bool:
        return not self._ended(0)

    def join(self, timeout: Optional[float] = None) -> None:
        """Waits for the process to end."""
        self._ended(None if timeout is None else max(0.0, timeout))

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, what: signal.Signals) -> None:
        if self._file is not None:
            try:
                signal.pidfd_send_signal(self._file, what)
            except ProcessLookupError:
                pass

    def _ended(self, seconds: Optional[float]) -> bool:
        if self._file is None:
            return True
        waiting = select.poll()
        waiting.register(self._file, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1e3))

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def __repr__(self) -> str:
        return f"<WorkerProcess pid={self.pid}{'' if self.is_alive() else ' ended'}>"


def processes_of(pool: Any) -> list[WorkerProcess]:
    """One object for each worker of this machine. Waits until each has started, or the pool reports that none will."""
    end = time.monotonic() + PATIENCE
    while True:
        status = pool.status()
        elsewhere = {worker for host in status.get("hosts", ()) for worker in host["workers"]}
        workers = [each for each in status["workers"] if each["why_stopped"] is None and each["id"] not in elsewhere]
        if ((workers or pool._has_hosts) and all(each["pid"] for each in workers)) or time.monotonic() > end:
            return [WorkerProcess(each["pid"]) for each in workers if each["pid"]]
        time.sleep(LOOK_EVERY)
