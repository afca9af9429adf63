"""Pool.map() and map_unordered(), over submit(): both take inputs lazily. Used by _pool.py."""

import collections
import concurrent.futures
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from penstock import _chunks
from penstock._errors import error
from penstock._future import Future

__all__ = ["Mapping"]

T = TypeVar("T")


class Mapping(concurrent.futures.Executor):
    """An executor whose maps keep a bounded number of jobs under way."""

    _queue: int  # how many

    if TYPE_CHECKING:
        def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]: ...

    def map(  # type: ignore[override,unused-ignore]
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: Optional[float] = None, chunksize: int = 1
    ) -> Iterator[T]:
        """fn over the inputs, results in their order. Inputs are taken lazily: at most [jobs] queue jobs are under way.

        Args:
            timeout: seconds from this call until next() raises TimeoutError.
            chunksize: how many inputs make one job. For functions that take less than about 1 ms: all inputs of a chunk share a job's
                overhead. If a chunk kills its workers, or its arguments or results are too large, its inputs are run again one by one, and
                only the responsible ones fail. Inputs are never grouped if each job has a timeout, is fresh, is not idempotent or has gpu=.

        Raises:
            ValueError: chunksize is less than 1.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be at least 1")
        end = None if timeout is None else time.monotonic() + timeout
        inputs = zip(*iterables)
        if chunksize > 1 and self._takes_chunks():
            first, later = (max(self._queue // chunksize, min(self._queue, each * self._max_workers)) for each in (4, 32))
            return _chunks.mapped(self, fn, inputs, chunksize, first, later, end)
        ahead: collections.deque[Future[T]] = collections.deque(
            _chunks.submitted(self, fn, *each) for each in itertools.islice(inputs, self._queue)
        )

        def results() -> Iterator[T]:
            refused: list[error] = []
            try:
                while ahead:
                    ahead[0].exception(None if end is None else max(0.0, end - time.monotonic()))
                    ahead.extend(self._one_more(fn, inputs, refused))
                    yield ahead.popleft().result()  # popped, so that the results are not kept alive here
                for why in refused:
                    raise why
            finally:
                for left in ahead:
                    left.cancel()

        return results()

    def map_unordered(self, fn: Callable[..., T], *iterables: Iterable[Any]) -> Iterator[T]:
        """Like map(), but with results in order of completion. A job's exception is raised when its turn comes; the next `next()`
        continues."""
        inputs = zip(*iterables)
        first = (_chunks.submitted(self, fn, *each) for each in itertools.islice(inputs, self._queue))
        return _AsCompleted(first, functools.partial(self._one_more, fn, inputs))

    def _one_more(self, fn: Callable[..., T], inputs: Iterator[tuple[Any, ...]], refused: list[error]) -> Iterator[Future[T]]:
        """A job for the next input. If the pool takes no more jobs, the reason is added to `refused`: the outcomes of those under way come
        first (rule J10)."""
        for each in itertools.islice(inputs, 0 if refused else 1):
            try:
                yield _chunks.submitted(self, fn, *each)
            except error as why:
                refused.append(why)

    def _takes_chunks(self) -> bool:
        """Whether several inputs may share a job: no option of the jobs applies to each input separately."""
        raise NotImplementedError

    def _for_inputs(self, count: int) -> "Mapping":
        """This pool, for jobs that take `count` inputs each."""
        raise NotImplementedError

    @property
    def _max_workers(self) -> int:
        """The number of workers, under the name that it has in ProcessPoolExecutor and that dask reads."""
        raise NotImplementedError


class _AsCompleted(Iterator[T]):
    """The results of jobs as they end. Not a generator, which would end with the first exception.

    Args:
        first: the jobs to begin with.
        one_more: makes the next job when one has ended, or adds the reason why it cannot to a list.
    """

    def __init__(self, first: "Iterable[Future[T]]", one_more: "Callable[[list[error]], Iterable[Future[T]]]") -> None:
        self._one_more = one_more
        self._refused: list[error] = []
        self._done: collections.deque[concurrent.futures.Future[T]] = collections.deque()
        self._news = threading.Condition()
        self._left = 0
        self._follow(first)

    def __next__(self) -> T:
        if not self._left:
            raise self._refused.pop() if self._refused else StopIteration
        with self._news:
            while not self._done:
                self._news.wait()
        self._follow(self._one_more(self._refused))  # if taking an input raises, the next call returns this result
        self._left -= 1
        return self._done.popleft().result()

    def _follow(self, jobs: "Iterable[Future[T]]") -> None:
        for job in jobs:
            self._left += 1
            job.add_done_callback(self._ended)

    def _ended(self, future: "concurrent.futures.Future[T]") -> None:
        with self._news:
            self._done.append(future)
            self._news.notify()
