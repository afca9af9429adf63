"""Pools of worker processes that no job can break, as a concurrent.futures.Executor."""

import atexit
import collections
import concurrent.futures
import itertools
import json
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional, TypeVar, overload

from penstock import _by_value, _chunks, _core, _parts
from penstock._arguments import LARGEST, LARGEST_WORKER, NUMBER_OF_WORKERS, check_seconds, whole_number
from penstock._config import Path, load_config
from penstock._errors import error, job_failed_error, remote_traceback, usage_error, workers_exhausted_error
from penstock._future import Future
from penstock._names import Name
from penstock.worker import SETUP, failures_of_initializer

__all__ = ["Pool"]

LONGEST_OF_FAILURES = 1 << 24  # bytes that workers wrote about initializers

T = TypeVar("T")
R = TypeVar("R")


class Pool(concurrent.futures.Executor):
    """Worker processes that run functions; the concurrent.futures.Executor that never breaks.

        with penstock.Pool(8) as pool:
            futures = [pool.submit(decode, path) for path in paths]
            for done in concurrent.futures.as_completed(futures):
                use(done.result())

    A worker that crashes, hangs or is killed is replaced; its job is tried again on another worker, then alone, and only
    a job that keeps killing workers fails (job_poisoned_error, with the causes). No other job notices.

    Workers are executed, not forked (`python -m penstock.worker`): programs need no `if __name__ == "__main__"`, and
    functions of __main__, lambdas and closures travel by value (cloudpickle). Arrays travel beside the pickle.

    Args:
        max_workers: how many; None: one for each core.
        initializer, initargs: called once in each worker, before its first job. If it raises, the worker is started again, as
            [loader.restart] says, and then all jobs fail with its exception's text and traceback.
        timeout: seconds for one run of a job, from the start of its function; then job_timed_out_error.
        idempotent: False: a job is never begun twice; if its worker dies it fails with job_worker_lost_error.
        fresh: True: each job runs in a process that has run nothing else.
        gpu: True: results may go to the GPU (submit(..., gpu=)). The CUDA context is this process's only one; workers see
            no GPU. Without a GPU, or with {"gpu.device": "host"}, they stay on the host.
        name: for `penstock status` and the other verbs; None: "pool", or "pool-2" if this process has a "pool", and so on.
        config: a config file, [jobs] and [loader], instead of the built-in one.
        control_socket: let the verbs attach.
        overrides: as for load_config: jobs={"memory": "4GiB"}, loader={"limits": {"memory": "1GiB"}}, ...

    Raises:
        config_error: a mistake in an argument or override.
        TypeError, ValueError: an argument of a wrong type; no workers.
    """

    _usual_name: Optional[str] = None  # instead of the config's

    def __init__(
        self,
        max_workers: Optional[int] = None,
        *,
        initializer: Optional[Callable[..., object]] = None,
        initargs: tuple[Any, ...] = (),
        timeout: Optional[float] = None,
        idempotent: bool = True,
        fresh: bool = False,
        gpu: bool = False,
        name: Optional[str] = None,
        config: Optional[Path] = None,
        control_socket: bool = True,
        **overrides: Any,
    ) -> None:
        max_workers = _number_of_workers(max_workers)
        for argument, advice in _OF_OTHER_EXECUTORS.items():
            if overrides.pop(argument, None) is not None:
                raise TypeError(f"Pool() has no {argument}: {advice}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if isinstance(initargs, (str, bytes)) or not isinstance(initargs, Iterable):
            raise TypeError(f"initargs is {initargs!r}: pass a tuple of the initializer's arguments, such as ({initargs!r},)")
        timeout = check_seconds(timeout, "timeout")
        self._setup, self._setup_bytes = _setup_file(initializer, tuple(initargs))
        own_name: Optional[Name] = None
        try:
            own = self._settings_of(max_workers, name, gpu)
            file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pool.toml") if config is None else config
            self._config = load_config(file, **{**own, **overrides})
            if control_socket:
                own_name = Name(self._config.name, chosen=name is not None or "name" in overrides)
                if own_name.text != self._config.name:
                    self._config = load_config(file, **{**own, **overrides, "name": own_name.text})
            self._core = _core.Pool(self._config._core, control_socket)
        except BaseException:
            os.close(self._setup)
            if own_name is not None:
                own_name.give_back()
            raise
        self._queue = int(self._config["jobs.queue"])
        self._shared = _Shared(own_name)
        self._timeout, self._idempotent, self._fresh = timeout, idempotent, fresh
        self._has_gpu = bool(self._config["jobs.gpu"])
        self._gpu: Optional[Callable[[Any], Any]] = None
        # Not at the interpreter's exit: what is queued is done then, perhaps by workers that are not started yet.
        weakref.finalize(self._shared, _dropped, self._core, self._setup, self._shared.owner, self._shared.name).atexit = False
        _LIVING.add(self)

    def _settings_of(self, max_workers: Optional[int], name: Optional[str], gpu: bool) -> dict[str, Any]:
        own: dict[str, Any] = {
            "loader.command": [sys.executable, "-P", "-m", "penstock.worker"],
            f"loader.env.{SETUP}": f"/proc/{os.getpid()}/fd/{self._setup}",
            "loader.env.PYTHONPATH": _python_path(),
            **{f"loader.env.{variable}_NUM_THREADS": "1" for variable in ("OMP", "OPENBLAS", "MKL")},
        }
        if max_workers is not None:
            own["loader.workers"] = max_workers
            if max_workers > 64:
                own["loader.limits.max"] = max_workers
        if name is None:
            name = self._usual_name
        if name is not None:
            own["name"] = name
        if gpu:
            own["jobs.gpu"] = True
        return own

    # ---- jobs -----------------------------------------------------------------------------------------------------

    @overload
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]: ...
    @overload
    def submit(self, fn: Callable[..., Any], /, *args: Any, gpu: Callable[[Any], R], **kwargs: Any) -> Future[R]: ...
    def submit(self, fn: Callable[..., Any], /, *args: Any, gpu: Optional[Callable[[Any], Any]] = None, **kwargs: Any) -> Future[Any]:
        """Queues fn(*args, **kwargs); gives its future. Waits while [jobs] queue or memory is full.

        Args:
            gpu: is called with what fn returned, here, on the one thread that all pools have for this; the future's result
                is what it returns. Arrays in what fn returned are then torch tensors on the pool's device (or NumPy arrays
                on the host, if torch is not imported). Only for a pool that was made with gpu=True. For a function that
                has an argument of this name: functools.partial.

        The future raises what fn raised, with the worker's traceback as its cause; or a job_failed_error:
        job_poisoned_error, job_timed_out_error, job_worker_lost_error, job_too_large_error, job_cancelled_error,
        job_device_error.

        Raises:
            RuntimeError: the pool is shut down, or gpu= was passed and the pool was made without.
            Exception: what pickling fn or an argument raises; nothing was queued.
        """
        future: Future[Any] = Future()
        parts = _parts.pickled_call(fn, args, kwargs)
        if gpu is None:
            gpu = self._gpu
        elif not self._has_gpu:
            raise usage_error("gpu= needs a pool that was made with gpu=True")
        with self._shared.lock:
            if self._shared.shut:
                raise usage_error("cannot schedule new futures after shutdown")
            self._shared.entering += 1
            self._shared.halves += gpu is not None
        try:
            future._pool, future._gpu = self, gpu
            future._job = self._core.submit(parts, self._timeout, self._idempotent, self._fresh, future._ended, on_device=gpu is not None)
        except BaseException as failed:
            if isinstance(failed, workers_exhausted_error):
                self._explain(failed)
            if gpu is not None:
                self._shared.half_done()
            raise
        finally:
            with self._shared.lock:
                self._shared.entering -= 1
                self._shared.entered.notify_all()
        if future.done():  # it ended before we knew its job
            future._job = None
        self._shared.futures.add(future)
        return future

    def map(  # type: ignore[override,unused-ignore]
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: Optional[float] = None, chunksize: int = 1
    ) -> Iterator[T]:
        """fn over the inputs, results in their order. Inputs are taken lazily: at most [jobs] queue jobs are under way.

        Args:
            timeout: seconds from this call until next() raises TimeoutError.
            chunksize: how many inputs make one job. For functions that take less than about 1 ms: what a job costs besides its
                function is then paid once for all of them. If a chunk kills its workers, or its arguments or results
                are too large, its inputs are done again one by one, and only those that do so fail. Inputs are never put together in a pool, or
                with options(), where each job has a timeout, is fresh, is not idempotent or has gpu=.

        Raises:
            ValueError: chunksize is less than 1.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be at least 1")
        end = None if timeout is None else time.monotonic() + timeout
        inputs = zip(*iterables)
        if chunksize > 1 and self._takes_chunks():
            jobs = max(self._queue // chunksize, min(self._queue, 4 * self._max_workers))
            return _chunks.mapped(self, fn, inputs, chunksize, jobs, end)
        ahead: collections.deque[Future[T]] = collections.deque(
            _chunks.submitted(self, fn, *each) for each in itertools.islice(inputs, self._queue)
        )

        def results() -> Iterator[T]:
            try:
                while ahead:
                    ahead[0].exception(None if end is None else max(0.0, end - time.monotonic()))
                    for each in itertools.islice(inputs, 1):
                        ahead.append(_chunks.submitted(self, fn, *each))
                    yield ahead.popleft().result()  # and no reference to it is kept here
            finally:
                for left in ahead:
                    left.cancel()

        return results()

    def _takes_chunks(self) -> bool:
        """Whether jobs have nothing that counts for each input alone."""
        one_by_one = self._timeout is not None or self._config["jobs.timeout"] not in (None, "none") or self._gpu is not None
        return not one_by_one and self._idempotent and not self._fresh

    def map_unordered(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> Iterator[T]:
        """The same, results as they come. An exception of a job is raised when its turn has come; others go on."""
        inputs = zip(*iterables)
        done: collections.deque[concurrent.futures.Future[T]] = collections.deque()
        news = threading.Condition()

        def ended(future: concurrent.futures.Future[T]) -> None:
            with news:
                done.append(future)
                news.notify()

        left = 0
        for each in itertools.islice(inputs, self._queue):
            _chunks.submitted(self, fn, *each).add_done_callback(ended)
            left += 1

        def results() -> Iterator[T]:
            nonlocal left
            while left:
                with news:
                    while not done:
                        news.wait()
                    future = done.popleft()
                left -= 1
                for each in itertools.islice(inputs, 1):
                    _chunks.submitted(self, fn, *each).add_done_callback(ended)
                    left += 1
                yield future.result()

        return results()

    def options(
        self,
        *,
        timeout: Optional[float] = None,
        idempotent: Optional[bool] = None,
        fresh: Optional[bool] = None,
        gpu: Optional[Callable[[Any], Any]] = None,
    ) -> "Pool":
        """The same pool, whose jobs have other options: pool.options(timeout=5, idempotent=False).submit(fn, x)."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if gpu is not None:
            if not self._has_gpu:
                raise usage_error("gpu= needs a pool that was made with gpu=True")
            other._gpu = gpu
        if timeout is not None:
            other._timeout = check_seconds(timeout, "timeout")
        if idempotent is not None:
            other._idempotent = idempotent
        if fresh is not None:
            other._fresh = fresh
        return other

    # ---- control --------------------------------------------------------------------------------------------------

    @property
    def _max_workers(self) -> int:
        """The number of workers, under the name that ProcessPoolExecutor has for it: dask asks for it."""
        return int(self.report()["workers"]["configured"])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more jobs, and ends the workers when those that are there have ended.

        Args:
            wait: return only then.
            cancel_futures: cancel those that have not begun.
        """
        with self._shared.lock:
            self._shared.shut = True
            while self._shared.entering:
                self._shared.entered.wait()
        if cancel_futures:
            for future in list(self._shared.futures):
                future.cancel()
        if wait:
            self._finish()
        else:
            threading.Thread(target=self._finish, name="penstock-pool-end").start()

    def abort(self) -> None:
        """Ends everything within half a second: jobs that have not ended raise job_cancelled_error."""
        with self._shared.lock:
            self._shared.shut = self._shared.aborted = True
            self._shared.entered.notify_all()
        self._core.stop(0.5)
        self._close()

    def _close(self) -> None:
        self._core.close()
        if self._shared.name is not None:
            self._shared.name.give_back()

    def _explain(self, failed: error) -> None:
        """If an initializer that raised has left the pool without workers, the error says so, with one traceback as its cause."""
        failures = failures_of_initializer(os.pread(self._setup, LONGEST_OF_FAILURES, self._setup_bytes))
        if not failures or failures[-1][0] not in str(failed):
            return
        line = failures[-1][0]
        times = {1: "once", 2: "twice"}.get(len(failures), f"{len(failures)} times")
        failed.args = (f"{line}. This was tried {times}; then no worker was left, and [loader.restart] allows no restart",)
        traceback = next((told for each, told in failures if each == line and told is not None), "")
        failed.__cause__ = remote_traceback(traceback)
        if isinstance(failed, job_failed_error):
            failed.traceback = traceback

    def _at_exit(self) -> None:
        """As the standard library's executors: jobs that are there are done before the interpreter ends."""
        if self._shared.owner == os.getpid():  # a forked child's copy has nothing to end
            self.shutdown()

    def _finish(self) -> None:
        try:
            self._core.finish(1e8)
            with self._shared.lock:  # their results are on the device
                while self._shared.halves and not self._shared.aborted:
                    self._shared.entered.wait()
        finally:
            self._close()

    def scale(self, workers: int) -> None:
        """Changes the number of workers. Raises usage_error outside 1 .. [loader.limits] max."""
        self._core.scale(whole_number(workers, "workers", NUMBER_OF_WORKERS, most=LARGEST_WORKER))

    def report(self) -> dict[str, Any]:
        """What the pool has done: deaths, restarts, numbers of jobs; schema penstock.run/1."""
        return json.loads(self._core.report())  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        """Its current state, with every worker: schema penstock.status/1."""
        return json.loads(self._core.status())  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        raise TypeError("a penstock.Pool cannot be pickled: its workers belong to this program; a job that needs a pool makes one of its own")

    def __repr__(self) -> str:
        return f"<penstock.Pool {self._config.name!r}>"


class _Shared:
    """What a pool and its options() share."""

    def __init__(self, name: Optional[Name]) -> None:
        self.name = name
        self.lock = threading.Lock()
        self.entered = threading.Condition(self.lock)
        self.entering = 0  # calls of submit() that have passed the door
        self.halves = 0  # jobs with gpu= that have not ended
        self.owner = os.getpid()
        self.shut = False
        self.aborted = False
        self.futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def half_done(self) -> None:
        with self.lock:
            self.halves -= 1
            self.entered.notify_all()


_OF_OTHER_EXECUTORS = {
    "mp_context": "its workers are always executed, never forked; leave it out",
    "max_tasks_per_child": "fresh=True gives each job a process that has run nothing else",
    "thread_name_prefix": "its workers are processes; leave it out",
}


def _number_of_workers(value: Any) -> Optional[int]:
    if value is None:
        return None
    if isinstance(value, (str, os.PathLike)):
        raise TypeError(f"Pool({value!r}): the first argument is max_workers, a number of processes; a config file is passed as config={value!r}")
    number = whole_number(value, "max_workers", "pass a number of processes, or None for one for each core", least=-LARGEST)
    if number < 1:
        raise ValueError("max_workers must be greater than 0")  # the standard library's words
    return number


def _setup_file(initializer: Optional[Callable[..., object]], arguments: tuple[Any, ...]) -> tuple[int, int]:
    """A file in memory that every worker reads at its start, through our /proc: also those that replace others. Behind it
    they write how the initializer failed. Gives its descriptor and how long it is.
    """
    file = os.memfd_create("penstock-pool-setup", os.MFD_CLOEXEC)
    with open(file, "wb", closefd=False) as opened:
        opened.write(pickle.dumps((_absolute(sys.path), list(getattr(sys, "argv", [])))))
        opened.write(pickle.dumps(_key_of_multiprocessing()))
        opened.write(pickle.dumps(_by_value.dumps((initializer, arguments))))
        return file, opened.tell()


def _key_of_multiprocessing() -> Optional[bytes]:
    """With it, workers may use the proxies of a multiprocessing.Manager, as processes of multiprocessing may."""
    process = sys.modules.get("multiprocessing.process")
    return None if process is None else bytes(process.current_process().authkey)


def _absolute(path: Iterable[str]) -> list[str]:
    return [os.path.abspath(each) if each == "" or not os.path.isabs(each) else each for each in path]


def _python_path() -> str:
    """So that a worker finds penstock, wherever we found it."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    known = os.environ.get("PYTHONPATH")
    return here if not known else here + os.pathsep + known


_LIVING: "weakref.WeakSet[Pool]" = weakref.WeakSet()
_ENDED = threading.Condition(threading.RLock())  # a collection may drop a pool at any point, also in here
_ENDING = 0  # pools that nobody refers to any more, and that are being closed


def _dropped(core: _core.Pool, setup: int, owner: int, name: Optional[Name]) -> None:
    """The last reference to a pool has gone, perhaps on its own callback thread, where its last future has ended.

    The interpreter waits for a thread of its own, but not for that one: if it came back from closing the pool into an
    interpreter that is ending, Python would end it in the middle of C++, and that ends the process by SIGABRT.
    """
    if owner != os.getpid():
        os.close(setup)
        return

    def end() -> None:
        global _ENDING
        try:
            core.close()
        finally:
            if name is not None:
                name.give_back()
            os.close(setup)  # only now: until then workers may begin, and read it
            with _ENDED:
                _ENDING -= 1
                _ENDED.notify_all()

    global _ENDING
    with _ENDED:
        _ENDING += 1
    if not threading.current_thread().daemon:  # nor does the interpreter end before this one does
        end()
        return
    try:
        threading.Thread(target=end, name="penstock-pool-end", daemon=False).start()
    except RuntimeError:  # the interpreter is ending: no thread can be started any more
        end()


@atexit.register
def _finish_all() -> None:
    for pool in list(_LIVING):
        pool._at_exit()
    with _ENDED:
        while _ENDING:
            _ENDED.wait()
