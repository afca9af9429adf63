"""Sessions: a pipeline of worker processes and a device, as an iterator of batches."""

import atexit
import json
import os
import time
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Union

from penstock import _core
from penstock._arguments import check_seconds, whole_number
from penstock._batch import Batch, batch_of, keep_all
from penstock._config import Config, Path, load_config
from penstock._errors import state_mismatch_error, usage_error
from penstock._reasons import Reason, by_exception, by_the_programs_end
from penstock._session_parts import Controlled, Ranked

if TYPE_CHECKING:
    from penstock._groups import Group

__all__ = ["Epoch", "Session"]


class Epoch(Iterator[Batch]):
    """The batches of one epoch, from the first one. It can be iterated once, and only while it is the session's latest epoch
    object."""

    def __init__(self, session: "Session", number: int) -> None:
        self._session = session
        self.number = whole_number(number, "the epoch", "epochs are numbered from 0: session.epoch(0) is the first")
        self._core = session._core.epoch(self.number)

    def __iter__(self) -> "Epoch":
        return self

    def __next__(self) -> Batch:
        lease = self._core.next()
        if lease is None:
            raise StopIteration
        return self._session._batch_of(lease)


class Session(Controlled, Ranked):
    """A pipeline: loader workers, scheduler, supervisor and the owner of the device, behind one object.

        with penstock.Session("photos.toml", loader={"workers": 8}) as session:
            for batch in session.epoch(0):
                train_step(batch["image"].torch(), batch["label"].torch())

    Nothing starts before the first batch is requested. Workers start as fresh programs, so yours needs no
    `if __name__ == "__main__"`. While a call waits for a batch, the GIL is released and Ctrl-C works.

    Args:
        config: a config file's path, or the result of load_config.
        state: the result of state() in an earlier run: continue after its last batch.
        on_event: an EventStream, for `async for`; or a function. It is called with a dict for each event (a death, a bad sample, a
            finished epoch, ...: the fields of `penstock events --json`), one at a time, on a separate thread. It may be slow, and may
            call everything but next(), close() and iterators. Exceptions from it are printed and ignored.
        digests: hash each batch as it is delivered; report()["epochs"] then has a digest for each epoch, which proves
            that two runs delivered the same.
        batches: deliver this many in total, then end.
        control_socket: let `penstock status`, `top` and the other verbs attach.
        group: True: this session joins a group with the sessions of the same name in the other ranks, which torchrun, penstock launch, srun
            or mpirun has started. The launcher sets rank and world size, and all ranks must agree on what defines their stream. If a rank
            is lost, all ranks end with the first cause. stop() stops all ranks at the same step. The constructor returns when all ranks
            have arrived; the session then has rank, world_size, barrier() and all_gather(). Do not use group=True for a session that only
            some ranks have.
        overrides: as in load_config, for a config file's path.

    Raises:
        config_error: a mistake in the config, one line each.
        io_error: the config file cannot be read.
        state_mismatch_error: `state` is not a state.
        group_failed_error: with group=True, ranks differ or one did not arrive; the message has the first cause. Taking a batch raises it,
            too.

    Threads: one thread at a time takes batches. Everything else may be called from any thread at any time.
    """

    def __init__(
        self,
        config: Union[Path, Config],
        /,
        *,
        state: Optional[bytes] = None,
        on_event: Optional[Callable[[dict[str, Any]], object]] = None,
        digests: bool = False,
        batches: Optional[int] = None,
        control_socket: bool = True,
        group: bool = False,
        **overrides: Any,
    ) -> None:
        if on_event is not None and not callable(on_event):
            raise TypeError(f"on_event is {on_event!r}: pass a function that is called with a dict for each event, or an EventStream")
        if batches is not None:
            batches = whole_number(batches, "batches", "pass how many batches to deliver in total, or None for all")
        file = ""
        if isinstance(config, Config):
            if overrides:
                raise usage_error("overrides belong in load_config(file, ...) when a Session is made from a Config")
            self._config = config
        else:
            self._config = load_config(config, **overrides)
            file = os.path.abspath(os.fsdecode(config))
        if state is not None:
            try:
                state = bytes(memoryview(state))
            except TypeError:
                raise TypeError(f"state is of type {type(state).__name__}: pass the bytes that session.state() returned") from None
            if not state:
                raise state_mismatch_error("the state is empty: its file may not have been written completely")
        listener = None if on_event is None else _listener(on_event)
        self._core = _core.Session(
            self._config._core, digests, batches, state or b"", control_socket, listener, group, file
        )
        self._group: "Optional[Group]" = None
        self._buffers = self._core.buffers
        self._lent: weakref.WeakSet[Batch] = weakref.WeakSet()  # batches in buffers of a GPU
        _LIVING.add(self)
        if group:
            self._group = _group_of(self._config)

    # ---- batches --------------------------------------------------------------------------------------------------

    def epoch(self, number: int) -> Epoch:
        """The batches of one epoch, from the first; the number may exceed the config's [sampler] epochs.

        Taking epochs out of order discards batches that are already prepared.
        """
        return Epoch(self, number)

    def next(self) -> Optional[Batch]:
        """The next batch of the stream, over all [sampler] epochs; None at its end or after stop().

        Waits for it with the GIL released. Ctrl-C raises KeyboardInterrupt within 0.1 s and loses no batch: the next call continues. (Only
        the listing of a dataset's files, in the first call, is not interrupted.)

        Raises:
            error: what went wrong; later calls raise the same error; state_mismatch_error for the state of another stream;
                usage_error after close(), while another thread is in next(), or when the program holds all buffers.
        """
        lease = self._core.next()
        return None if lease is None else self._batch_of(lease)

    def __iter__(self) -> Iterator[Batch]:
        """All batches of the stream, over all epochs of the config."""
        while (batch := self.next()) is not None:
            yield batch

    def run_for(self, seconds: float = float("inf")) -> bool:
        """Delivers the stream without returning batches: discards them or, with placement = "process", passes them to
        the owner's sink. True at the stream's end, False when the time has passed."""
        end = time.monotonic() + seconds
        while True:  # in slices, between which Python runs its signal handlers
            left = end - time.monotonic()
            if self._core.run_for(max(0.0, min(left, 0.1))):
                return True
            if left <= 0.1:
                return False

    def _batch_of(self, lease: _core.Lease) -> Batch:
        batch = batch_of(lease, self._core.lent >= self._buffers)
        if lease.cuda_device >= 0:
            self._lent.add(batch)
        return batch

    # ---- control --------------------------------------------------------------------------------------------------

    def stop(self, seconds: Optional[float] = None, *, by: str = "") -> None:
        """Ends the stream: next() returns None, workers finish their sample and exit. Does not wait.

        Args:
            seconds: the maximum time, after which everything still running is killed; default: [supervisor] shutdown.
            by: who stops it, for the session's events and record: "it was stopped by early stopping". Default: "the program".
        """
        self._core.stop(check_seconds(seconds, "seconds"), by)

    def close(self) -> None:
        """Ends everything within half a second (after stop(): within the time given to it). Batches that are still held
        stay valid. Also at the end of a `with` block, when the session is garbage-collected, and at the interpreter's exit."""
        self._close(Reason())

    def _close(self, by: Reason) -> None:
        if not self._core.closed:
            keep_all(list(self._lent))
        self._core.close(*by)
        if self._group is not None:
            self._group.close()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if value is not None and self._group is not None and not self._group.closed:
            from penstock._groups import in_words

            self._group.fail(in_words(value))
        self._close(by_exception(value))

    # ---- queries --------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The session's config."""
        return self._config

    def state(self) -> bytes:
        """The position after the last batch that was handed out, for Session(..., state=); at most 1 KiB. The run that
        continues may have a different number of workers.

        Raises:
            timed_out_error: the session did not answer within 2 s; just call it again.
        """
        return self._core.state()

    def report(self) -> dict[str, Any]:
        """What the session has done: schema penstock.run/1, as `penstock run --report` writes it. Available after close(), too."""
        return json.loads(self._core.report())  # type: ignore[no-any-return]

    def status(self) -> dict[str, Any]:
        """The session's current state, with every worker: schema penstock.status/1, as `penstock status --json` prints it."""
        return json.loads(self._core.status())  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        raise TypeError("a penstock.Session cannot be pickled, because its workers and buffers belong to this program: pass the path of its config file instead")

    def __repr__(self) -> str:
        return f"<penstock.Session {self._config.name!r}{' (closed)' if self.closed else ''}>"


def _group_of(config: Config) -> "Group":
    from penstock._groups import Group

    settings = config["group"]
    return Group(
        config.name,
        on_lost_rank=settings["on_lost_rank"],
        join_timeout=_seconds(settings["join_timeout"]),
        lost_after=_seconds(settings["lost_after"]),
        rejoin_timeout=_seconds(settings["rejoin_timeout"]),
        secret_file=settings["secret_file"],
        insecure=settings["insecure"],
    )


def _seconds(duration: str) -> float:
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    number = duration.rstrip("nusmih")
    return float(number) * units[duration[len(number) :]]


def _listener(on_event: Callable[[dict[str, Any]], object]) -> Callable[[str], None]:
    def listen(text: str) -> None:
        on_event(json.loads(text))

    return listen


# A session's threads must not call into an interpreter that has exited, and no worker may outlive it.
_LIVING: "weakref.WeakSet[Session]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for session in list(_LIVING):
        session._core.close(*by_the_programs_end())
    _core.leave_the_rest_to_the_exit()
