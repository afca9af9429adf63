"""The futures of a pool's jobs, and the exceptions for jobs that fail."""

import concurrent.futures
import pickle
from collections.abc import Callable
from typing import Any, Optional, TypeVar

from penstock import _core, _parts
from penstock._errors import (
    job_cancelled_error,
    job_device_error,
    job_exception_error,
    job_failed_error,
    job_poisoned_error,
    job_timed_out_error,
    job_too_large_error,
    job_worker_lost_error,
    remote_traceback,
)

__all__ = ["Future", "error_of"]

T = TypeVar("T")

_KINDS: dict[str, type[job_failed_error]] = {
    "exception": job_exception_error,
    "poisoned": job_poisoned_error,
    "timed_out": job_timed_out_error,
    "cancelled": job_cancelled_error,
    "worker_lost": job_worker_lost_error,
    "too_large": job_too_large_error,
    "device": job_device_error,
}


class Future(concurrent.futures.Future[T]):
    """A job's future: a concurrent.futures.Future that can also be killed.

    cancel() keeps its standard meaning: it removes a job that has not started, and does not touch a running one.
    """

    _job: Optional[_core.Job] = None
    _number: Optional[int] = None  # the job's number, once it has ended
    _pool: Any = None  # keeps the pool alive until the job has ended
    _cancelling = False
    _gpu: Optional[Callable[[Any], Any]] = None  # what the GPU thread of this process does with the result

    def cancel(self) -> bool:
        job = self._job
        if job is None or self.done():
            return super().cancel()
        self._cancelling = True
        if not job.cancel_if_waiting():
            self._cancelling = False
            return self.cancelled()
        self._cancelled()
        return True

    def running(self) -> bool:
        """True while the job's function runs, so that cancel() cannot remove it."""
        job = self._job
        return super().running() or (job is not None and not self.done() and job.attempts() > 0)

    def kill(self) -> bool:
        """Ends the job, even while it runs: its worker is killed and replaced. The future then raises
        job_cancelled_error. Returns False if it had already ended. Does not wait."""
        if self.done() or self._job is None:
            return False
        return self._job.kill()

    def _cancelled(self) -> None:
        """Notifies all waiting callers, including as_completed() and wait()."""
        if super().cancel():
            with self._condition:
                tell = self._state == "CANCELLED"
            if tell:
                self.set_running_or_notify_cancel()

    def _ended(self, outcome: tuple[Any, ...], number: int) -> None:
        """Runs on the pool's callback thread."""
        self._number = number
        by_us = outcome[0] == "cancelled" and self._cancelling
        if not by_us and self._state in ("PENDING", "CANCELLED"):
            self.set_running_or_notify_cancel()  # from now on cancel() has no effect
        self._job = None
        pool, self._pool = self._pool, None
        if outcome[0] != "on_device":
            pool._life.futures.discard(self)
        if self._gpu is not None and outcome[0] != "on_device":
            self._gpu = None
            pool._life.half_done()
        try:
            if by_us:
                self._cancelled()
                return
            if outcome[0] == "on_device":
                self._continue_on_device(outcome[1], pool)
                return
            try:
                value = _parts.unpickled(_parts.split(outcome[1])) if outcome[0] == "ok" else None
                raised = None if outcome[0] == "ok" else error_of(*outcome, job=number)
                if isinstance(raised, job_cancelled_error):
                    pool._life.setup.explain(raised)
            except BaseException as broken:  # unpickling the result failed: its class may raise anything
                value, raised = None, broken
            if raised is not None:
                self.set_exception(raised)
            else:
                self.set_result(value)  # type: ignore[arg-type,unused-ignore]
        except concurrent.futures.InvalidStateError:
            pass  # cancelled meanwhile
        finally:
            del pool

    def _continue_on_device(self, result: _core.DeviceResult, pool: Any) -> None:
        from penstock import _gpu_half

        function, self._gpu = self._gpu, None
        assert function is not None

        def half() -> None:
            nonlocal function, result, pool
            try:
                try:
                    value = _gpu_half.value_of(result)
                except Exception as refused:
                    raise job_device_error(f"taking a result from the device: {refused}") from refused
                self.set_result(function(value))  # type: ignore[misc,unused-ignore]
            except BaseException as raised:
                self.set_exception(raised)
            finally:
                life = pool._life
                life.futures.discard(self)
                del function, result, pool
                life.half_done()

        _gpu_half.GPU_THREAD.put(half)


def error_of(status: str, kind: bytes, text: bytes, told: bytes, causes: list[str], attempts: int, *, job: Optional[int] = None) -> BaseException:
    """The exception for a job that failed; an exception of its function remains as it was raised. `job`: its number,
    for the message."""
    shown, _, pickled = told.partition(b"\0")
    traceback = shown.decode("utf-8", "replace")
    if status == "exception" and pickled:
        import base64

        try:
            original = pickle.loads(base64.b64decode(pickled))
        except Exception:
            original = None  # its class cannot be imported here, or the pickle was cut
        if isinstance(original, BaseException):
            original.__cause__ = remote_traceback(traceback)
            return original
    message = text.decode("utf-8", "replace")
    name = kind.decode("utf-8", "replace")
    if status == "exception":
        message = f"{name}: {message}" if name else message
    elif job is not None:
        message = f"job {job}: {message}"
    error = _KINDS.get(status, job_failed_error)(message)
    error.status, error.type, error.traceback, error.causes, error.attempts, error.job = status, name, traceback, list(causes), attempts, job
    if traceback:
        error.__cause__ = remote_traceback(traceback)
    return error
