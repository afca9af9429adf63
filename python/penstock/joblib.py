"""joblib on a pool that no job can break.

    import joblib
    import penstock.joblib

    with joblib.parallel_config(backend="penstock", n_jobs=8):      # or joblib.parallel_backend("penstock", 8)
        results = joblib.Parallel()(joblib.delayed(work)(x) for x in inputs)

Importing this module registers the backend. Further arguments of parallel_config go to penstock.Pool: timeout=,
idempotent=, initializer=, jobs={...}, loader={...}.
"""

import pickle
from typing import Any, Callable, Optional

import joblib  # type: ignore[import-untyped,import-not-found,unused-ignore]
from joblib._parallel_backends import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)

from penstock._errors import error
from penstock._future import Future
from penstock._pool import Pool

__all__ = ["PenstockBackend"]


OPTIONS = ("config", "control_socket", "fresh", "idempotent", "initargs", "initializer", "jobs", "loader", "log", "name", "timeout")


class PenstockBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc,unused-ignore]
    """Runs joblib's batches as jobs of a Pool, which lives as long as the Parallel call, or its `with` block."""

    supports_retrieve_callback = True
    supports_timeout = True
    uses_threads = False
    supports_sharedmem = False
    supports_inner_max_num_threads = True

    _pool: Optional[Pool] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = ("nesting_level", "inner_max_num_threads", "backend_kwargs")
        self._given = {name: value for name, value in kwargs.items() if name not in own}
        super().__init__(*args, **{name: value for name, value in kwargs.items() if name in own})

    def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs < 0:
            return max(int(joblib.cpu_count()) + 1 + n_jobs, 1)
        return n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, prefer: Any = None, require: Any = None, **given: Any) -> int:
        workers = self.effective_n_jobs(n_jobs)
        if workers == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        # Parallel's other arguments are for backends that write files.
        options = {name: value for name, value in {**self._given, **given}.items() if name in OPTIONS}
        options["initializer"] = _Beginning(options.get("initializer"))
        # Limits the threads of OpenMP and BLAS as joblib's own backends do: by inner_max_num_threads, by the caller's
        # variables, or to a share of the cores.
        limits = self._prepare_worker_env(workers)
        environment = {f"loader.env.{name}": value for name, value in limits.items()}
        # NumPy starts its threads when it is imported, and a process with threads cannot be forked.
        start = {"loader.start_method": "exec"} if any(value != "1" for value in limits.values()) else {}
        self._pool = Pool(workers, **{"control_socket": False, **environment, **start, **options})
        self.parallel = parallel
        return workers

    def submit(self, func: Callable[[], Any], callback: Optional[Callable[[Any], None]] = None) -> "Future[Any]":
        assert self._pool is not None
        try:
            future = self._pool.submit(func)
        except error:
            raise
        except Exception as broken:
            raise pickle.PicklingError("Could not pickle the task to send to the workers.") from broken  # joblib's own message
        if callback is not None:
            future.add_done_callback(callback)
        future.get = future.result  # type: ignore[attr-defined]  # for joblib before 1.3
        return future

    def apply_async(self, func: Callable[[], Any], callback: Optional[Callable[[Any], None]] = None) -> "Future[Any]":
        """The name of submit() before joblib 1.4."""
        return self.submit(func, callback)

    def retrieve_result_callback(self, out: "Future[Any]") -> Any:
        return out.result()

    def terminate(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.abort()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)


class _Beginning:
    """The initializer of workers. Jobs may use this backend themselves, so importing this module registers it in the worker."""

    def __init__(self, initializer: Optional[Callable[..., object]]) -> None:
        if initializer is not None:
            self.__wrapped__ = initializer

    def __call__(self, *arguments: Any) -> None:
        if hasattr(self, "__wrapped__"):
            self.__wrapped__(*arguments)


joblib.register_parallel_backend("penstock", PenstockBackend)
