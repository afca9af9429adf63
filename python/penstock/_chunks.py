"""Pool.map() with a chunksize: one job takes several inputs and returns all of their results.

A chunk whose job kills its workers, or does not fit into [jobs] memory, is repeated input by input, so that only the responsible input
fails.
"""

import collections
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from penstock._errors import error, job_failed_error, job_poisoned_error, job_too_large_error, out_of_memory_error
from penstock._future import Future, error_of
from penstock._parts import kept_if_possible
from penstock.worker import call_on_input, call_with_each

if TYPE_CHECKING:
    from penstock._maps import Mapping

__all__ = ["mapped", "submitted"]

T = TypeVar("T")
Inputs = list[tuple[Any, ...]]


def submitted(pool: "Mapping", fn: Callable[..., T], *args: Any) -> "Future[T]":
    """Like pool.submit(), but arguments that exceed [jobs] memory fail only this job, so the results of other jobs stay available."""
    try:
        return pool.submit(fn, *args)
    except out_of_memory_error as refused:
        failed: Future[T] = Future()
        error = job_too_large_error(str(refused))
        error.status = "too_large"
        failed.set_exception(error)
        return failed


def mapped(
    pool: "Mapping", fn: Callable[..., T], inputs: Iterator[tuple[Any, ...]], size: int, first: int, later: int, end: Optional[float]
) -> Iterator[T]:
    """The values of fn in the order of the inputs. Each job gets `size` inputs. Starts with `first` jobs under way. Each result
    that the caller takes allows one more, up to `later`, because chunks of tiny functions end before the next ones can be
    submitted."""
    under_way: collections.deque[tuple[int, Inputs, Future[Any]]] = collections.deque()
    refused: Optional[error] = None  # why the pool takes no more jobs: raised after the outcomes of those under way (rule J10)
    taken = 0  # how many inputs have been taken

    of_chunks = pool._for_inputs(size)

    def fill(jobs: int) -> None:
        nonlocal refused, taken
        while refused is None and len(under_way) < jobs and (chunk := list(itertools.islice(inputs, size))):
            try:
                future = submitted(of_chunks if len(chunk) > 1 else pool, call_with_each, kept_if_possible(fn), chunk, taken)
            except error as why:
                refused = why
                return
            future.add_done_callback(functools.partial(_tell_exception, pool, taken))
            under_way.append((taken, chunk, future))
            taken += len(chunk)

    fill(first)
    if refused is not None and not under_way:
        raise refused

    def left() -> Optional[float]:
        return None if end is None else max(0.0, end - time.monotonic())

    def one_by_one(chunk: Inputs, index: int) -> Iterator[T]:
        futures = collections.deque(submitted(pool, call_on_input, kept_if_possible(fn), at, *each) for at, each in enumerate(chunk, index))
        try:
            while futures:
                failed = futures[0].exception(left())
                if isinstance(failed, job_failed_error):
                    failed.input = index
                    failed.args = (f"input {index}: {failed}", *failed.args[1:])
                yield futures.popleft().result()
                index += 1
        finally:
            for future in futures:
                future.cancel()

    def results() -> Iterator[T]:
        jobs = first
        try:
            while under_way:
                failed = under_way[0][2].exception(left())
                at, chunk, future = under_way.popleft()
                fill(jobs)
                jobs = min(jobs + 1, later)
                if isinstance(failed, (job_poisoned_error, job_too_large_error)) and len(chunk) > 1:
                    yield from one_by_one(chunk, at)
                    continue
                values, raised = future.result()
                number = future._number
                del chunk, future  # no reference to a value is kept here
                values.reverse()
                while values:
                    yield values.pop()
                if raised is not None:
                    _, kind, text, told = raised
                    raise error_of("exception", kind, text, told, [], 1, job=number)
            if refused is not None:
                raise refused
        finally:
            for _, _, future in under_way:
                future.cancel()

    return results()


def _tell_exception(pool: Any, first: int, chunk: "Future[Any]") -> None:
    """Reports an exception of an input to `penstock events`, because the job of a chunk succeeds even if one of its
    inputs raises.

    Args:
        first: the index of the chunk's first input.
    """
    if chunk.cancelled() or chunk.exception() is not None:
        return
    _, raised = chunk.result()
    if raised is not None:
        at, kind, text, told = raised
        said, traceback = (one.decode("utf-8", "replace") for one in (kind + b": " + text, told.partition(b"\0")[0]))
        pool._core.input_raised(chunk._number, first + at, said, traceback)
