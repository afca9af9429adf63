"""A pass over a penstock.torch.DataLoader: batches as jobs of its pool, in order; the worker side is in _loading.py.

A loader has one pool of workers for its lifetime. Each pass publishes an order (_loading.Order), which the workers map, keeps
prefetch_factor jobs for each worker under way, and yields their results as its BatchBook decides.
"""

import contextlib
import importlib
import os
import pickle
import threading
import warnings
from typing import Any, Callable, Optional

import torch
import torch.utils.data

from penstock import _loading, _processes, _progress, _shards
from penstock._batch_book import BatchBook, Planned, Shards
from penstock._batch_jobs import BatchJobs, ExceptionWrapper, GaveUp, Interrupted
from penstock._device import ToDevice
from penstock._errors import error, stopped_error, usage_error, workers_exhausted_error
from penstock._failures import Failures, FailuresOfShards
from penstock._homes import Homes
from penstock._orders import PublishedOrder, order_of
from penstock._quarantine import BadSamples
from penstock._workers import Workers

__all__ = ["IterablePass", "MapPass"]

torch_loader: Any = importlib.import_module("torch.utils.data.dataloader")

TELL_EVERY = 1.0  # seconds between reports while a batch is awaited
END = object()  # drawn after the sampler's last index
LOOK_EVERY = 0.25  # seconds between looks for hosts that have joined or left, while a shard's batch is awaited


class Ahead(torch_loader._BaseDataLoaderIter):  # type: ignore[misc]
    """Loads the batches of a pass ahead of the program."""

    _sampler_iter: Any  # torch's
    _shared_seed: Optional[int]

    def __init__(self, loader: Any) -> None:
        self._progress = loader._begin()
        super().__init__(loader)
        self._pool: Workers = loader._workers_here()
        core = self._pool.pool._core
        bad = BadSamples(loader.on_bad_sample, loader._quarantine_here(), loader.bad_samples, core)
        failures = self._kind_of_failures()(bad, self._pool.marks, self._timeout, self._auto_collation, core)
        self._jobs = BatchJobs(self._pool, failures, self._timeout)
        self._group = loader.group
        self._to_device = None if loader.device is None else ToDevice(loader.device, self._num_workers, self._pool)
        if loader.seed is not None:
            self._base_seed = int(loader.seed)
        elif self._progress.base_seed is not None:
            self._base_seed = self._progress.base_seed
        self._publish(loader)
        self._reset(loader, first_iter=True)

    def _publish(self, loader: Any) -> None:
        last_attempt = self._pool.pool._config["quarantine.max_attempts"]
        order = order_of(self, loader, self._bad.policy, last_attempt, self._states_path())
        self._order = PublishedOrder(order, self._pool, self._jobs.of)
        self._pool.announced.write(self._order.number, self._order.path)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self._progress = loader._begin()
            self._bad.begin_pass()
            if self._progress.base_seed not in (None, self._base_seed):  # resumed: workers need the order with its seed
                self._base_seed = self._progress.base_seed
                self._publish(loader)
        self._drawn: list[Any] = []  # the sampler's next index, until it is planned
        self._cut = False  # the sampler's iterator has raised, and yielded nothing since
        progress = self._progress
        _progress.order_is_drawn(loader, progress)
        of_start = self._shared_seed
        super()._reset(loader, first_iter)
        if first_iter:
            self._shared_seed = of_start  # torch's workers use the seed from the iterator's start; _reset() has drawn another
        if progress.shared_seed is not None:
            self._shared_seed = progress.shared_seed
        progress.shared_seed, progress.base_seed = self._shared_seed, self._base_seed
        progress.ordered = getattr(loader, "in_order", True)
        self._shutdown_workers()
        self._book = self._begun(loader)
        progress.expected = self._length(loader)
        self._tell_position()
        samples = _progress.facts_of(loader)["length"]
        if samples is not None:
            self._pool.pool._core.dataset_has(samples)
        self._prefetch = loader.prefetch_factor or 2
        for _ in range(self._prefetch * self._width()):
            self._load_next()

    @property
    def _bad(self) -> BadSamples:
        return self._jobs.failures.bad

    @property
    def _workers(self) -> "list[_processes.WorkerProcess]":
        """The worker processes, as in torch's iterators."""
        return _processes.processes_of(self._pool.pool)

    # ---- what the subclasses implement ----------------------------------------------------------------------------

    def _begun(self, loader: Any) -> BatchBook:
        """The book of a new epoch."""
        raise NotImplementedError

    def _length(self, loader: Any) -> int:
        """The number of batches in this pass, including those before it was resumed; 0 if unknown."""
        return 0

    def _kind_of_failures(self) -> type[Failures]:
        return Failures

    def _states_path(self) -> Optional[str]:
        return None

    def _bad_places(self, index: Any) -> tuple[int, ...]:
        return ()

    def _width(self) -> int:
        """The number of workers to keep busy."""
        return self._pool.seen.width()

    def _worker_of(self, planned: Planned) -> Optional[int]:
        """The worker that must load the batch; None: any."""
        return None

    def _state_before(self, planned: Planned) -> Optional[_shards.ShardState]:
        """The state from which a worker on a host, which cannot read the shards' states, may begin."""
        return None

    # ---- loading --------------------------------------------------------------------------------------------------

    def _load_next(self) -> None:
        drawn = self._drawn
        if not drawn:
            self._draw()
        index = drawn[0]
        if index is END:
            return None if self._cut else self._book.exhaust()
        self._cut = False
        if self._auto_collation and not hasattr(index, "__len__"):  # for torch, any iterable is enough
            index = list(index)
        planned = self._book.plan(index, self._bad_places(index))
        del drawn[:]  # no signal handler runs between this and plan(): see BatchBook
        if planned is not None:
            with contextlib.suppress(stopped_error):  # raised when it is the batch's turn: _loaded() submits it again
                self._load(planned)

    def _draw(self) -> None:
        following = map(next, (self._sampler_iter,), (END,))
        try:
            self._drawn.extend(following)  # one call, so a signal handler that raises cannot lose the index
        except BaseException:
            if not self._drawn:  # raised by the sampler, so a generator has ended
                self._cut = True
                if self._book.shards is not None:  # it yields the same index forever
                    self._sampler_iter = iter(self._index_sampler)
            raise

    def _load(self, planned: Planned) -> None:
        order, oldest = self._order, min(self._pool.living)
        batch = _loading.Batch(
            order.number, order.path, oldest, self._progress.epoch, self._shared_seed, planned.shard, planned.first, planned.index, planned.bad,
            self._state_before(planned),
        )
        planned.worker = self._worker_of(planned)
        self._jobs.submit(planned, batch)

    def _shutdown_workers(self) -> None:
        """Ends the pass, as in torch's iterators, but the loader keeps the processes."""
        self._jobs.drop_all()

    def _tell_position(self) -> None:
        self._pool.pool._core.pass_is_at(self._progress.epoch, self._progress.batches, self._progress.expected)

    def _took(self, planned: Planned, over: bool, state: Any) -> None:
        """May be called again for the same batch, if a signal handler raised meanwhile."""
        self._jobs.of.pop(planned, None)
        self._book.took(planned, over, state)
        missing = self._prefetch * self._width() - len(self._book.under_way)
        if not self._pool.has_hosts and self._book.shards is not None:
            missing = min(missing, 1)
        for _ in range(missing):  # more than one if workers have joined: from a host, or with `penstock scale`
            self._load_next()

    def _drop(self, planned: Planned) -> None:
        self._jobs.drop(planned)
        self._book.drop(planned)


class Pass(Ahead):
    """One pass, or with persistent_workers one pass after another. Subclasses implement what differs between map-style and iterable
    datasets."""

    def __init__(self, loader: Any) -> None:
        self._lock = threading.Lock()
        super().__init__(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._raised = False  # the program got an exception in this pass
        self._taking: Optional[Planned] = None  # a loaded batch, while it is taken off the plan
        self._ready: list[tuple[Planned, Any]] = []  # batches that were not handed out, because a signal handler raised
        super()._reset(loader, first_iter)

    def resumed_behind_end(self) -> bool:
        """Whether this resumes an iterable dataset at the end of an epoch, when no batches are left. Waits for the
        dataset's next batch to find out."""
        return False

    def __next__(self) -> Any:
        if self._group is not None:
            self._group.check()
        if _profiled():
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        # A signal handler may raise anywhere. Until count(), which is the last call here, the batch is kept for the next call.
        ready: Optional[tuple[Planned, Any]] = None
        try:
            with self._lock:
                if self._pool.pid != os.getpid():
                    raise usage_error("this iterator was made before a fork: make a new one, iter(loader), in this process")
                try:
                    ready = self._next_ready()
                except workers_exhausted_error as broken:
                    told = self._pool.explained(broken)
                    raise told from told.__cause__
            planned, data = ready
            failed = isinstance(data, ExceptionWrapper)
            if self._pin_memory and not failed:
                data = torch_loader._utils.pin_memory.pin_memory(data, getattr(self, "_pin_memory_device", None))
            if self._to_device is not None and not failed:
                data = self._to_device(data)
            self._book.count(planned)
        except BaseException:
            if ready is not None:
                self._ready.append(ready)
            raise
        if failed:
            self._raised = True
            self._tell_position()
            _reraise(data)
        return data

    def _next_ready(self) -> tuple[Planned, Any]:
        """The next batch, which is not counted yet, and its data."""
        if self._ready:
            ready = self._ready[0]
            del self._ready[0]
            return ready
        book = self._book
        while (planned := self._taking or self._next_finished()) is not None:
            if self._taking is None:
                if book.is_behind_end(planned):
                    self._drop(planned)
                    continue
                self._finish_loading(planned)
                self._taking = planned
            data, raised, over, state, *_ = planned.loaded
            self._took(planned, over, state)
            if not planned.counted:
                planned.counted = True
                missing = 0 if self._bad.policy == "replace" and not over else len(planned.bad) + len(raised)
                delivered = 0 if over or isinstance(data, ExceptionWrapper) else book.size_of(planned) - missing
                self._pool.pool._core.batch_taken(self._progress.epoch, delivered, missing)
            if not over:
                self._taking = None
                return planned, data
            if book.shards is None:
                book.count(planned)
            self._taking = None
            self._tell_position()
        if self._cut:
            raise error("the sampler's iterator raised an exception before its end: load_state_dict(state_dict()) continues this epoch")
        if self._bad.left_out > 0 and self._num_yielded == 0 and not self._raised and self._progress.began_at == 0:
            raise self._bad.nothing_is_left()
        raise StopIteration

    def _finish_loading(self, planned: Planned) -> None:
        """Sets planned.loaded. If the loader has given up the batch, goes on to the next one and raises the error. If a signal handler
        raises, the batch is kept."""
        try:
            planned.loaded = self._loaded(planned)
            return
        except Interrupted as interrupted:
            why = interrupted.why
        except GaveUp as failure:
            self._raised = True
            if isinstance(failure.why, (stopped_error, workers_exhausted_error)):
                self._book.cut_off(planned)
            else:
                self._book.gave_up(planned)
            self._jobs.of.pop(planned, None)
            try:
                self._load_next()
            finally:
                self._book.count(planned)
                self._tell_position()
            why = failure.why
        try:
            raise why  # here, so that the traceback of a signal handler's exception shows its frames and none of ours
        finally:
            del why  # its traceback holds this frame

    def _next_finished(self) -> Optional[Planned]:
        """The next batch in order, finished or not; with in_order=False, the first finished one."""
        planned = self._book.next()
        if planned is None or self._progress.ordered or planned not in self._jobs.of:
            return planned
        return self._jobs.first_finished(planned, self._book.under_way, self._look_around)

    def _loaded(self, planned: Planned) -> Any:
        """The batch from its worker (_loading.Loaded). Retries if the book says so."""
        if planned.loaded is not None:
            return planned.loaded
        if planned.failure is not None:
            raise planned.failure
        try:
            self._jobs.failures.refuse_quarantined(planned, self._progress.epoch)
            if planned not in self._jobs.of or planned.again:  # submitting the batch raised: try again
                self._load(planned)
            while (loaded := self._jobs.result(planned, self._book, self._progress.epoch, self._patience(), self._look_around)) is None:
                self._load(planned)
            return loaded
        except GaveUp as failure:
            planned.failure = failure
            raise
        except (error, pickle.PicklingError, TypeError, AttributeError) as failure:  # ours, or from pickling an index
            planned.failure = GaveUp(failure)
            raise planned.failure from None

    def _patience(self) -> float:
        return TELL_EVERY if self._group is None else 0.05  # in a group, look often: a rank may be lost meanwhile

    def _look_around(self) -> None:
        if self._group is not None:
            self._group.check()


class MapPass(Pass):
    """A pass over a dataset with an index."""

    def _begun(self, loader: Any) -> BatchBook:
        self._sampler_iter = _progress.skipped(loader, self._progress, self._sampler_iter)
        return BatchBook(self._progress, self._auto_collation, self._bad.policy != "raise")

    def _length(self, loader: Any) -> int:
        left = _progress.batches_left(loader, self._progress)
        return 0 if left is None else self._progress.batches + max(left, 0)

    def _bad_places(self, index: Any) -> tuple[int, ...]:
        return self._bad.quarantine.places_in(index if self._auto_collation else (index,))


class IterablePass(Pass):
    """A pass over an iterable dataset: worker k loads shard k, and a replacement continues from the dataset's state, if it has one. With
    hosts, their workers load the shards."""

    def __init__(self, loader: Any) -> None:
        self._states = _shards.ShardStates.made() if _shards.has_state(loader.dataset) else None
        workers = loader._workers_here()
        self._homes = Homes(loader.num_workers, workers.seen.last_on_hosts) if workers.has_hosts else None
        if self._homes is not None:
            self._homes.spread(workers.seen.last_seen_on_hosts())
        super().__init__(loader)

    def _width(self) -> int:
        return max(int(self._num_workers), 1)

    def _worker_of(self, planned: Planned) -> int:
        return planned.shard if self._homes is None else self._homes.of(planned.shard)

    def _state_before(self, planned: Planned) -> Optional[_shards.ShardState]:
        if self._homes is None or self._states is None:
            return None
        return self._states.before(planned.shard, self._progress.epoch, planned.first)

    def _patience(self) -> float:
        return super()._patience() if self._homes is None else min(super()._patience(), LOOK_EVERY)

    def _look_around(self) -> None:
        super()._look_around()
        if self._homes is None:
            return
        there = self._pool.seen.on_hosts()
        if there is not None:
            self._homes.spread(there)
        for planned in [planned for planned in self._jobs.of if planned.worker != self._homes.of(planned.shard)]:
            if self._jobs.of[planned].cancel_if_waiting():
                self._load(planned)

    def _took(self, planned: Planned, over: bool, state: Any) -> None:
        if self._homes is not None and self._states is not None and state is not None:
            self._states.write(planned.shard, self._progress.epoch, state)  # a host cannot
        super()._took(planned, over, state)
        self._look_around()

    def _kind_of_failures(self) -> type[Failures]:
        return FailuresOfShards

    def _states_path(self) -> Optional[str]:
        return None if self._states is None else self._states.path

    def _begun(self, loader: Any) -> BatchBook:
        saved = None if self._progress.resumed is None else self._progress.resumed["shards"]
        behind: Optional[list[Any]] = None
        if self._states is not None:
            self._states.clear()
            if saved is not None:
                behind = _progress.shard_states(saved, self._num_workers)
                for shard, state in enumerate(behind):
                    if state is not None:
                        self._states.write(shard, self._progress.epoch, state)
        return BatchBook(self._progress, self._auto_collation, False, Shards(self._num_workers, saved, behind, self._progress.ordered))

    def resumed_behind_end(self) -> bool:
        if self._progress.resumed is None:
            return False
        with self._lock:
            while (planned := self._book.next()) is not None:
                if self._book.is_behind_end(planned):
                    self._drop(planned)
                    continue
                interrupted: Optional[Interrupted] = None
                try:
                    planned.loaded = self._loaded(planned)
                except Interrupted as caught:
                    interrupted = caught
                except Exception:
                    return False  # next() raises the exception
                if interrupted is not None:
                    raise interrupted.why
                if not planned.loaded[2]:
                    return False
                self._took(planned, True, planned.loaded[3])
            return True

    def __next__(self) -> Any:
        data = super().__next__()
        length = self._IterableDataset_len_called
        if length is not None and self._num_yielded > length and not _profiled():
            warnings.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {length} (when "
                f"accessing len(dataloader)), but {self._num_yielded} samples have been fetched. For multiprocessing "
                "data-loading, this could be caused by not properly configuring the IterableDataset replica at each worker. "
                "Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )
        return data


def _reraise(wrapped: Any) -> None:
    """Raises the exception as torch does, with a note that names the sample (from Python 3.11 on)."""
    try:
        wrapped.reraise()
    except BaseException as raised:
        note = getattr(wrapped, "note", None)
        if note is not None and hasattr(raised, "add_note"):
            raised.add_note(note)
        raise


def _profiled() -> bool:
    enabled: Optional[Callable[[], bool]] = getattr(torch.autograd, "_profiler_enabled", None)
    return enabled is not None and enabled()
