"""The jobs of a pass: one for each batch under way. Used by _loader.py, which decides what to load."""

import importlib
from collections.abc import Callable, Reversible
from typing import Any, Optional

from penstock import _content, _core, _loading, _tensors
from penstock._batch_book import BatchBook, Planned
from penstock._errors import error
from penstock._failures import Failures
from penstock._workers import Workers

__all__ = ["BatchJobs", "ExceptionWrapper", "GaveUp", "Interrupted"]

ExceptionWrapper: Any = importlib.import_module("torch.utils.data.dataloader").ExceptionWrapper


class Interrupted(BaseException):
    """A signal handler raised `why` during a wait."""

    def __init__(self, why: BaseException) -> None:
        self.why = why


class GaveUp(Exception):
    """The program gets `why` instead of the batch."""

    def __init__(self, why: BaseException) -> None:
        self.why = why


class BatchJobs:
    """The jobs of one pass.

    Args:
        workers: where the jobs run.
        failures: decides what to do about those that fail.
        timeout: seconds for a batch; 0: none.
    """

    def __init__(self, workers: Workers, failures: Failures, timeout: float) -> None:
        self.failures = failures
        self.of: dict[Planned, _core.Job] = {}
        self._workers, self._timeout = workers, timeout

    def submit(self, planned: Planned, batch: _loading.Batch) -> None:
        timeout = self._timeout if self._timeout > 0 else None
        former = self.of[planned].number if planned.again else None
        self.of[planned] = self._workers.submit(batch, timeout, planned.worker, former, planned.lost_before, planned.attempts)
        planned.answer = []
        planned.lost_before |= planned.again
        planned.again = False

    def drop(self, planned: Planned) -> None:
        job = self.of.pop(planned, None)
        if job is not None:
            job.cancel_if_waiting()

    def drop_all(self) -> None:
        for job in self.of.values():
            job.cancel_if_waiting()
        self.of.clear()

    def first_finished(self, planned: Planned, under_way: Reversible[Planned], look_around: Callable[[], None]) -> Planned:
        """The first batch that has ended; `planned` is the next one in order."""
        try:
            while not self.of[planned].wait(0.002):
                self._tell_of_wait(planned, in_order=False)
                look_around()
                # A shard's batches end in order. Later batches are checked first: if one has ended, so have those before it, and the earliest is returned.
                ended = [other for other in reversed(under_way) if other not in self.of or self.of[other].done()]
                if ended:
                    if ended[-1] in self.of:
                        self._tell_of_wait(ended[-1], in_order=False)  # it is the batch that the wait was for
                    return ended[-1]
        finally:
            self._workers.pool._core.batch_came()
        return planned

    def result(self, planned: Planned, book: BatchBook, epoch: int, patience: float, look_around: Callable[[], None]) -> Optional[Any]:
        """The batch as its worker made it (_loading.Loaded). None: submit it again, as the book decides. If it raises anything but
        GaveUp, call it again."""
        job = self._ended(planned, patience, look_around)
        status, *rest = self._workers.outcome_of(job, planned.answer)
        if status == "ok":
            loaded = _unpickled(rest[0])
            if loaded[4] is not None and loaded[4] != _content.digest(loaded[0]):
                raise GaveUp(error(f"the batch of {planned.index} differs from what its worker made: its content does not match the worker's digest"))
            planned.loaded = loaded  # before it is reported: a signal handler may raise, and nothing is reported twice
            if loaded[5] is not None:
                self._workers.pool._core.batch_was_slow(job.number, *loaded[5])
            self.failures.note_left_out(planned, epoch, loaded[1])
            if isinstance(loaded[0], ExceptionWrapper):
                self.failures.note_exception(planned, job.number, epoch, loaded[0], loaded[1])
            return loaded
        # "cancelled": by the pool's end, which refuses each later job with the reason
        if status != "cancelled" and not self.failures.is_tried_again(book, planned, job.number, epoch, status, rest):
            raise GaveUp(self.failures.error_of(planned, job.number, epoch, status, rest))
        return None

    def _ended(self, planned: Planned, patience: float, look_around: Callable[[], None]) -> _core.Job:
        if self.of[planned].done():
            return self.of[planned]
        core = self._workers.pool._core
        try:
            core.await_batch(self.of[planned].number)
            while not self.of[planned].wait(patience):
                look_around()
                self._tell_of_wait(planned)
            return self.of[planned]
        except BaseException as interrupted:  # a signal handler raised
            raise Interrupted(interrupted) from None
        finally:
            core.batch_came()

    def _tell_of_wait(self, planned: Planned, in_order: bool = True) -> None:
        """Reports which sample the awaited batch's worker is loading, so that a stall names it."""
        job = self.of[planned].number
        self._workers.pool._core.await_batch(job, *self.failures.doing(planned, job), in_order)


def _unpickled(memory: Any) -> Any:
    try:
        return _tensors.batch_from(memory)
    except Exception as raised:
        try:
            _tensors.batch_from(memory)
        except Exception:
            raise GaveUp(raised) from None
        raise  # a signal handler raised
