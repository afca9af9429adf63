"""The worker processes of a penstock.torch.DataLoader: a pool that lives as long as the loader. Used by torch.py and _loader.py."""

import contextlib
import itertools
import os
import weakref
from typing import Any, Optional

from penstock import _beginning, _core, _loading, _mistakes, _tensors
from penstock._device import pool_options
from penstock._errors import workers_exhausted_error
from penstock._homes import SeenWorkers
from penstock._pool import Pool
from penstock._reasons import by_the_programs_end

__all__ = ["Workers"]

COPIED_BELOW = 1 << 16  # smaller batches are copied out of their slots


class _LoaderPool(Pool):
    _usual_name = "loader"
    _core_options = {"of_batches": True}  # the loader takes batches in order

    def __init__(self, marks: int, count: int, **options: Any) -> None:
        self._marks = marks
        super().__init__(count, **options)

    def _on_hosts(self, initializer: Any, initargs: Any) -> tuple[Any, tuple[Any, ...], int]:
        return _beginning.prepare_on_host, (), self._marks

    def _at_exit(self) -> None:
        self._life.ends_by(by_the_programs_end())
        self._life.drop()


class Workers:
    """A loader's worker processes, and what they share with it.

    Args:
        hosts, secret_file: as Pool's, for workers on other machines.
    """

    def __init__(self, count: int, name: Optional[str], device: Any, options: dict[str, Any], hosts: Any = None, secret_file: Any = None) -> None:
        self.pid = os.getpid()
        self.orders = itertools.count(1)
        self.living: set[int] = set()  # orders in use by a pass
        marks = os.memfd_create("penstock-marks", os.MFD_CLOEXEC)
        os.ftruncate(marks, 16 * _loading.Marks.JOBS)
        self.marks = _loading.Marks(marks)
        gate = _beginning.Gate()
        self.announced = _beginning.Announced()
        # Limits are wide by default: the dataset decides how much memory workers take, and importing torch in many of
        # them at once takes long.
        usual = {"loader.slot_bytes": "4MiB", "jobs.memory": "8GiB", "loader.limits.memory": "1TiB", "loader.hang.start_deadline": "5m"}
        given = {**usual, **pool_options(device), **_flat(options)}
        begin = (f"/proc/{self.pid}/fd/{marks}", gate.path, _beginning.at_once(), self.announced.path)
        if count == 0:
            gate.open()  # for the worker that tries batches alone
        self.pool = _LoaderPool(
            marks, count, initializer=_beginning.prepare, initargs=begin, name=name, hosts=hosts, hosts_secret_file=secret_file, **given
        )
        self.has_hosts = self.pool._has_hosts
        self.seen = SeenWorkers(self.pool, count)
        self.most_lent = self.pool._config["jobs.memory"] // 4 if isinstance(self.pool._config["jobs.memory"], int) else 1 << 28
        self.lent = _Lending()
        self.have_begun = False  # a worker has answered
        weakref.finalize(self, _end, self.pid, self.pool, marks, gate, self.announced).atexit = False

    def submit(
        self, batch: _loading.Batch, timeout: Optional[float], worker: Optional[int], former: Optional[int], lost_before: bool, attempts_before: int
    ) -> _core.Job:
        """`former`: the batch's last job, if the batch is loaded again because of a death; `lost_before`: an earlier death had lost the batch, too;
        `attempts_before`: of earlier jobs with the same samples."""
        argument = [_tensors.pickled((None, (tuple(batch),), {}))]
        try:
            return self.pool._core.submit(
                argument, timeout, True, False, None, worker,
                again=former is not None, former=former, lost_before=lost_before, attempts_before=attempts_before,
            )
        except workers_exhausted_error as broken:
            told = self.explained(broken)
            raise told from told.__cause__

    def explained(self, broken: Any) -> Any:
        """The error for a failure of the whole pool, with advice if no worker could start."""
        self.pool._life.setup.explain(broken)
        if self.have_begun or "PYTHONPATH=" in str(broken):
            return broken
        return _mistakes.not_started(broken, self.pool._config["loader.command"], self.pool._config["loader.env.PYTHONPATH"])

    def outcome_of(self, job: _core.Job, answer: list[Any]) -> tuple[Any, ...]:
        """("ok", the batch's memory), or the status and the fields of the job's error. Large batches are read in their slots, as long as the
        caller keeps at most a quarter of [jobs] memory there. A job answers once: `answer` keeps that for the next call."""
        if not answer:  # one call, so a signal handler that raises cannot lose the answer
            answer.extend(map(job.outcome, (COPIED_BELOW if self.lent.bytes < self.most_lent else 1 << 62,)))
        status, *rest = answer[0]
        self.have_begun |= status in ("ok", "exception")
        if status != "ok":
            return (status, *rest)
        whole = rest[0]
        return status, _tensors.view_of(_Lent(whole, self.lent)) if isinstance(whole, _core.Kept) else memoryview(whole)


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


def _end(pid: int, pool: Pool, marks: int, gate: _beginning.Gate, announced: _beginning.Announced) -> None:
    with contextlib.ExitStack() as last:  # calls each of these, although a signal handler may raise
        last.callback(os.close, marks)
        last.callback(gate.close)
        last.callback(announced.close)
        if pid == os.getpid():
            pool._life.drop()


class _Lending:
    """Counts the bytes of results that the caller keeps in their slots."""

    bytes = 0


class _Lent:
    """A result in its slot that the caller keeps. It may outlive the workers: a kept batch must not keep them alive."""

    nbytes = 0  # a signal handler may raise when __init__ begins; __del__ runs nevertheless
    _lending = _Lending()

    def __init__(self, held: _core.Kept, lending: _Lending) -> None:
        self._held, self._lending = held, lending
        self.address, self.nbytes = held.address, held.nbytes
        lending.bytes += self.nbytes

    def __del__(self) -> None:
        self._lending.bytes -= self.nbytes
