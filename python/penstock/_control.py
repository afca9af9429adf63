"""What a program does with its pool besides submitting jobs: ends and scales it, and asks for its state. Used by _pool.py."""

import json
import os
import threading
from typing import Any, Optional

from penstock._arguments import LARGEST_WORKER, NUMBER_OF_WORKERS, whole_number
from penstock._config import Config
from penstock._core import Pool as CorePool
from penstock._pool_end import PoolLife
from penstock._reasons import by_exception, by_the_programs_end

__all__ = ["Control"]


class Control:
    """Mixed into Pool, before its executor."""

    _config: Config
    _core: CorePool
    _life: PoolLife

    @property
    def hosts_join_at(self) -> Optional[str]:
        """The address where hosts join: hosts="0.0.0.0:0" takes any free port. None if hosts cannot join."""
        return self.status().get("hosts_join_at")

    @property
    def _max_workers(self) -> int:
        """The number of workers, under the name that it has in ProcessPoolExecutor and that dask reads."""
        return int(self.report()["workers"]["configured"])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more jobs, and ends the workers when the submitted jobs have ended.

        Args:
            wait: return only then.
            cancel_futures: cancel the jobs that have not started.
        """
        self._life.shut()
        if cancel_futures:
            for future in list(self._life.futures):
                future.cancel()
        if wait:
            self._life.finish()
        else:
            threading.Thread(target=self._life.finish, name="penstock-pool-end").start()

    def abort(self) -> None:
        """Ends everything within half a second. Unfinished jobs raise job_cancelled_error."""
        self._life.abort()

    def __exit__(self, kind: Any, value: Optional[BaseException], traceback: Any) -> None:
        self._life.ends_by(by_exception(value))
        self.shutdown()

    def _at_exit(self) -> None:
        """As with the standard library's executors, submitted jobs finish before the interpreter exits."""
        if self._life.owner == os.getpid():  # a forked child's copy has nothing to end
            self._life.ends_by(by_the_programs_end())
            self.shutdown()

    def scale(self, workers: int) -> None:
        """Changes the number of workers. Raises usage_error outside 1 .. [loader.limits] max."""
        self._core.scale(whole_number(workers, "workers", NUMBER_OF_WORKERS, most=LARGEST_WORKER))

    def report(self) -> dict[str, Any]:
        """The pool's totals (deaths, restarts, numbers of jobs): schema penstock.run/1."""
        return json.loads(self._core.report())  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        """The pool's current state, with every worker: schema penstock.status/1."""
        return json.loads(self._core.status())  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        raise TypeError("a penstock.Pool cannot be pickled, because its workers belong to this program: make another pool in the job that needs one")

    def __repr__(self) -> str:
        return f"<penstock.Pool {self._config.name!r}>"
