"""Pools of worker processes that no job can break, as a concurrent.futures.Executor."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Optional, TypeVar, overload

from penstock import _core, _hosts, _parts
from penstock._arguments import LARGEST, check_seconds, whole_number
from penstock._config import Path, check_worker_count, load_config
from penstock._control import Control
from penstock._errors import usage_error, workers_exhausted_error
from penstock._future import Future
from penstock._maps import Mapping
from penstock._names import Name
from penstock._pool_end import PoolLife, end_with_the_interpreter
from penstock._setup import Setup, code_of
from penstock.worker import SETUP

__all__ = ["Pool"]

T = TypeVar("T")
R = TypeVar("R")


class Pool(Control, Mapping):
    """Worker processes that run functions; the concurrent.futures.Executor that never breaks.

        with penstock.Pool(8) as pool:
            futures = [pool.submit(decode, path) for path in paths]
            for done in concurrent.futures.as_completed(futures):
                use(done.result())

    A worker that crashes, hangs or is killed is replaced. Its job is tried again on another worker, then alone. Only a job that
    keeps killing workers fails (job_poisoned_error, with the causes). Other jobs are unaffected.

    Workers are forked by a fresh process (`python -m penstock.worker`), never by this program: it needs no `if __name__ == "__main__"`.
    Functions of __main__, lambdas and closures are sent by value (cloudpickle), arrays next to the pickle.

    Args:
        max_workers: the number of workers. None: one for each core.
        initializer, initargs: called once in each worker, before its first job. If it raises, the worker is restarted as
            [loader.restart] says; after that all jobs fail with the exception's text and traceback.
        timeout: seconds for one run of a job, from the start of its function; after that the job fails with job_timed_out_error.
        idempotent: False: a job never starts twice; if its worker dies, it fails with job_worker_lost_error.
        fresh: True: each job runs in a process that has run nothing else.
        gpu: True: results can go to the GPU (submit(..., gpu=)). Only this process has a CUDA context; workers see no GPU.
            Without a GPU, or with {"gpu.device": "host"}, results stay on the host.
        name: the name for `penstock status` and the other verbs. None: "pool", or "pool-2" if this process has a "pool", and so on.
        config: a config file with [jobs] and [loader], instead of the built-in one.
        control_socket: whether verbs can attach.
        hosts: workers on other machines, besides max_workers (which may be 0) here: "ADDRESS:PORT" where they join by `python -m penstock
            host --join`, or a list of addresses of hosts that listen. They need the same versions of Python and penstock, and the same
            secret. If a host is lost, the jobs that it had begun run elsewhere, except with idempotent=False.
        hosts_secret_file: the file with that secret, made by `penstock secret`.
        overrides: as for load_config: jobs={"memory": "4GiB"}, loader={"limits": {"memory": "1GiB"}}, ...

    Raises:
        config_error: a mistake in an argument or override.
        TypeError, ValueError: an argument of a wrong type; no workers.
    """

    _usual_name: Optional[str] = None  # used instead of the config's name
    _core_options: dict[str, Any] = {}  # more arguments of _core.Pool
    _inputs = 1  # how many inputs of a map each job takes

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
        hosts: Optional[_hosts.Hosts] = None,
        hosts_secret_file: Optional[Path] = None,
        **overrides: Any,
    ) -> None:
        max_workers = _number_of_workers(max_workers, 1 if hosts is None else 0)
        _check(initializer, initargs, overrides)
        if max_workers is not None:
            check_worker_count(overrides, max_workers, "max_workers")
        timeout = check_seconds(timeout, "timeout")
        setup = Setup(initializer, tuple(initargs))
        own_name: Optional[Name] = None
        try:
            own = {
                **_settings(setup, max_workers, self._usual_name if name is None else name, gpu),
                **_hosts.settings_of(hosts, hosts_secret_file),
            }
            file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pool.toml") if config is None else config
            self._config = load_config(file, **{**own, **overrides})
            if control_socket:
                own_name = Name(self._config.name, chosen=name is not None or "name" in overrides)
                if own_name.text != self._config.name:
                    self._config = load_config(file, **{**own, **overrides, "name": own_name.text})
            self._has_hosts = bool(self._config["loader.hosts.listen"]) or bool(self._config["loader.hosts.connect"])
            self._core = _core.Pool(self._config._core, control_socket, *self._for_hosts(initializer, tuple(initargs)), **self._core_options)
        except BaseException:
            setup.close()
            if own_name is not None:
                own_name.give_back()
            raise
        self._life = PoolLife(self._core, setup, own_name)
        self._queue = int(self._config["jobs.queue"])
        self._timeout, self._idempotent, self._fresh = timeout, idempotent, fresh
        self._has_gpu = bool(self._config["jobs.gpu"])
        self._gpu: Optional[Callable[[Any], Any]] = None
        end_with_the_interpreter(self)

    def _for_hosts(self, initializer: Any, initargs: tuple[Any, ...]) -> tuple[Any, ...]:
        """What loader hosts need for workers: the kind of program, versions, code, and the file of marks."""
        if not self._has_hosts:
            return ()
        initializer, initargs, marks = self._on_hosts(initializer, initargs)
        packages = ["torch"] if "torch" in sys.modules else []
        return _hosts.KIND, _hosts.facts(packages), code_of(initializer, initargs), marks

    def _on_hosts(self, initializer: Any, initargs: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], int]:
        """The initializer of workers on hosts, and the descriptor of the file in which jobs note their current work, or -1."""
        return initializer, initargs, -1

    # ---- jobs -----------------------------------------------------------------------------------------------------

    @overload
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]: ...
    @overload
    def submit(self, fn: Callable[..., Any], /, *args: Any, gpu: Callable[[Any], R], **kwargs: Any) -> Future[R]: ...
    def submit(self, fn: Callable[..., Any], /, *args: Any, gpu: Optional[Callable[[Any], Any]] = None, **kwargs: Any) -> Future[Any]:
        """Queues fn(*args, **kwargs) and returns its future. Waits while [jobs] queue or memory is full.

        Args:
            gpu: a function that is called with fn's result, in this process, on the thread that all pools share for this. Its
                return value is the future's result. Arrays in fn's result arrive as torch tensors on the pool's device (or as
                NumPy arrays on the host, if torch is not imported). Needs a pool created with gpu=True. If fn itself has an
                argument named gpu, use functools.partial.

        The future raises what fn raised, with the worker's traceback as its cause; or a job_failed_error:
        job_poisoned_error, job_timed_out_error, job_worker_lost_error, job_too_large_error, job_cancelled_error,
        job_device_error.

        Raises:
            RuntimeError: the pool is shut down, or gpu= was passed to a pool created without it.
            TypeError: fn cannot be called.
            Exception: whatever pickling fn or an argument raises; nothing was queued.
        """
        if not callable(fn):
            raise TypeError(f"submit({fn!r}): the first argument must be a function, followed by its arguments")
        future: Future[Any] = Future()
        parts = _parts.pickled_call(fn, args, kwargs)
        if gpu is None:
            gpu = self._gpu
        elif not self._has_gpu:
            raise usage_error("gpu= needs a pool that was created with gpu=True")
        self._life.enter(gpu is not None)
        try:
            future._pool, future._gpu = self, gpu
            self._life.futures.add(future)
            future._job = self._core.submit(parts, self._timeout, self._idempotent, self._fresh, future._ended, on_device=gpu is not None, inputs=self._inputs)
        except BaseException as failed:
            self._life.futures.discard(future)
            if isinstance(failed, workers_exhausted_error):
                self._life.setup.explain(failed)
            if gpu is not None:
                self._life.half_done()
            raise
        finally:
            self._life.leave()
        if future.done():  # the job ended before this thread knew its number
            future._job = None
        return future

    def options(
        self,
        *,
        timeout: Optional[float] = None,
        idempotent: Optional[bool] = None,
        fresh: Optional[bool] = None,
        gpu: Optional[Callable[[Any], Any]] = None,
    ) -> "Pool":
        """This pool, with other options for its jobs: pool.options(timeout=5, idempotent=False).submit(fn, x)."""
        other = self._copy()
        if gpu is not None:
            if not self._has_gpu:
                raise usage_error("gpu= needs a pool that was created with gpu=True")
            other._gpu = gpu
        if timeout is not None:
            other._timeout = check_seconds(timeout, "timeout")
        if idempotent is not None:
            other._idempotent = idempotent
        if fresh is not None:
            other._fresh = fresh
        return other

    def _copy(self) -> "Pool":
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _for_inputs(self, count: int) -> "Pool":
        other = self._copy()
        other._inputs = count
        return other

    def _takes_chunks(self) -> bool:
        one_by_one = self._timeout is not None or self._config["jobs.timeout"] not in (None, "none") or self._gpu is not None
        return not one_by_one and self._idempotent and not self._fresh


_COUNT = "the number of worker processes is the first argument, Pool(2) or Pool(max_workers=2)"
_OF_OTHER_EXECUTORS = {
    "workers": _COUNT,
    "num_workers": _COUNT,
    "processes": _COUNT,
    "n_jobs": _COUNT,
    "mp_context": "a pool does not start its workers with multiprocessing; leave it out ([loader] start_method is \"template\" or \"exec\")",
    "max_tasks_per_child": "fresh=True gives each job a process that has run nothing else",
    "thread_name_prefix": "the workers of a pool are processes; leave it out",
}


def _settings(setup: Setup, max_workers: Optional[int], name: Optional[str], gpu: bool) -> dict[str, Any]:
    """The config overrides for a pool's arguments."""
    own: dict[str, Any] = {
        "loader.command": list(_hosts.COMMAND),
        f"loader.env.{SETUP}": setup.path,
        **{f"loader.env.{name}": value for name, value in _hosts.variables_of_workers().items()},
    }
    if max_workers is not None:
        own["loader.workers"] = max_workers
        if max_workers > 64:
            own["loader.limits.max"] = max_workers
    if name is not None:
        own["name"] = name
    if gpu:
        own["jobs.gpu"] = True
    return own


def _check(initializer: Any, initargs: Any, overrides: dict[str, Any]) -> None:
    """Removes arguments of other executors and libraries from the overrides, if they are None."""
    for argument, advice in _OF_OTHER_EXECUTORS.items():
        if overrides.pop(argument, None) is not None:
            raise TypeError(f"Pool() has no {argument}: {advice}")
    if initializer is not None and not callable(initializer):
        raise TypeError("initializer must be a callable")
    if isinstance(initargs, (str, bytes)) or not isinstance(initargs, Iterable):
        raise TypeError(f"initargs is {initargs!r}: pass a tuple of the initializer's arguments, such as ({initargs!r},)")


def _number_of_workers(value: Any, least: int) -> Optional[int]:
    if value is None:
        return None
    if isinstance(value, (str, os.PathLike)):
        raise TypeError(f"Pool({value!r}): the first argument is max_workers, a number of processes; a config file is passed as config={value!r}")
    number = whole_number(value, "max_workers", "pass a number of processes, or None for one for each core", least=-LARGEST)
    if number < least:
        raise ValueError("max_workers must be greater than 0")  # the standard library's words
    return number
