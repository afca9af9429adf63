"""The caller's half of penstock.torch.DataLoader: batches as jobs of a pool, in order; its other half is _loading.py.

A loader has one pool of workers for its lifetime, and each iteration over it an order (_loading.Order), which the workers
map. An iterator keeps prefetch_factor * num_workers jobs under way and yields their results in the order of the sampler.
"""

import collections
import importlib
import itertools
import os
import threading
import warnings
import weakref
from typing import Any, Callable, Optional

import torch
import torch.utils.data

from penstock import _beginning, _content, _core, _loading, _mistakes, _progress, _shards, _tensors
from penstock._device import ToDevice, pool_options
from penstock._errors import error, job_failed_error, sample_error, usage_error, workers_exhausted_error
from penstock._future import error_of
from penstock._pool import Pool

__all__ = ["Iterator", "Workers"]

torch_loader: Any = importlib.import_module("torch.utils.data.dataloader")
ExceptionWrapper: Any = torch_loader.ExceptionWrapper

COPIED_BELOW = 1 << 16  # smaller batches are copied out of their slots
TRIES = 3  # of a batch that takes longer than `timeout`
FOREVER = 1e8
PICKLED = ("dataset", "collate_fn", "worker_init_fn")  # what of an order comes from the caller


class _LoaderPool(Pool):
    _usual_name = "loader"

    def _at_exit(self) -> None:
        self.abort()


class Workers:
    """A loader's worker processes, and what they share with it."""

    def __init__(self, count: int, name: Optional[str], device: Any, options: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self.orders = itertools.count(1)
        self.living: set[int] = set()  # orders that an iterator still uses
        marks = os.memfd_create("penstock-marks", os.MFD_CLOEXEC)
        os.ftruncate(marks, 16 * _loading.Marks.JOBS)
        self.marks = _loading.Marks(marks)
        gate = _beginning.Gate()
        # Memory of its own is the dataset's business, and importing torch takes long where many do it.
        usual = {"loader.slot_bytes": "4MiB", "jobs.memory": "8GiB", "loader.limits.memory": "1TiB", "loader.hang.start_deadline": "5m"}
        given = {**usual, **pool_options(device), **_flat(options)}
        begin = (f"/proc/{self.pid}/fd/{marks}", gate.path, _beginning.at_once())
        self.pool = _LoaderPool(count, initializer=_beginning.prepare, initargs=begin, name=name, **given)
        self.most_lent = self.pool._config["jobs.memory"] // 4 if isinstance(self.pool._config["jobs.memory"], int) else 1 << 28
        self.lent = _Lending()
        self.have_begun = False  # some worker has answered
        weakref.finalize(self, _end, self.pid, self.pool, marks, gate).atexit = False

    def submit(self, batch: _loading.Batch, timeout: Optional[float], worker: Optional[int]) -> _core.Job:
        rest = () if worker is None else (worker,)
        try:
            return self.pool._core.submit([_tensors.pickled((None, (tuple(batch),), {}))], timeout, True, False, None, *rest)
        except workers_exhausted_error as broken:
            told = self.explained(broken)
            raise told from told.__cause__

    def explained(self, broken: Any) -> Any:
        """An error of the whole pool, with advice if no worker could even begin."""
        self.pool._explain(broken)
        if self.have_begun or "PYTHONPATH=" in str(broken):
            return broken
        return _mistakes.not_started(broken, self.pool._config["loader.command"], self.pool._config["loader.env.PYTHONPATH"])

    def taken(self, held: _core.Kept) -> Any:
        """A buffer over a result that lies where its worker wrote it."""
        return _tensors.view_of(_Lent(held, self.lent))


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


def _end(pid: int, pool: Pool, marks: int, gate: _beginning.Gate) -> None:
    if pid == os.getpid():
        pool.abort()
    os.close(marks)
    gate.close()


class _Lending:
    """How many bytes of results the caller reads where they lie."""

    bytes = 0


class _Lent:
    """A result that the caller keeps. It may outlive the workers: what keeps a batch must not keep them."""

    def __init__(self, held: _core.Kept, lending: _Lending) -> None:
        self._held, self._lending = held, lending
        self.address, self.nbytes = held.address, held.nbytes
        lending.bytes += self.nbytes

    def __del__(self) -> None:
        self._lending.bytes -= self.nbytes


class _Task:
    """A batch that is under way."""

    __slots__ = ("batch", "job", "tries", "loaded")

    def __init__(self, batch: _loading.Batch, job: _core.Job) -> None:
        self.batch, self.job, self.tries = batch, job, 0
        self.loaded: Any = None  # what resumed_behind_end() has found


class Iterator(torch_loader._BaseDataLoaderIter):  # type: ignore[misc]
    """One pass, or with persistent_workers one after the other, over a penstock.torch.DataLoader."""

    def __init__(self, loader: Any) -> None:
        self._progress = loader._begin()
        super().__init__(loader)
        self._pool = loader._workers_here()
        self._lock = threading.Lock()
        self._tasks: collections.deque[_Task] = collections.deque()
        self._policy = loader.on_bad_sample
        self._group = loader.group
        self._quarantine, self._bad_samples = loader._quarantine_here(), loader.bad_samples
        self._to_device = None if loader.device is None else ToDevice(loader.device, self._num_workers, self._pool)
        self._in_order = getattr(loader, "in_order", True)
        self._iterable = self._dataset_kind == torch_loader._DatasetKind.Iterable
        self._states = _shards.ShardStates.made() if self._iterable and _shards.has_state(self._dataset) else None
        self._worker_init_fn = _with_sharding(self, loader.worker_init_fn)
        if loader.seed is not None:
            self._base_seed = int(loader.seed)
        elif self._progress.base_seed is not None:
            self._base_seed = self._progress.base_seed
        self._publish(loader)
        self._reset(loader, first_iter=True)

    def _publish(self, loader: Any) -> None:
        self._number = next(self._pool.orders)
        world_size, rank = torch_loader._get_distributed_settings() if hasattr(torch_loader, "_get_distributed_settings") else (1, 0)
        order = _loading.Order(
            number=self._number,
            dataset=self._dataset,
            iterable=self._iterable,
            collated=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            worker_init_fn=self._worker_init_fn,
            base_seed=self._base_seed,
            workers=self._num_workers,
            seeds_samples=loader.seeding == "sample",
            key_is_index=_gives_each_once(loader),
            rank=rank,
            world_size=world_size,
            on_bad_sample=self._policy,
            last_attempt=self._pool.pool._config["quarantine.max_attempts"],
            verified=_content.is_verified(),
            states=None if self._states is None else self._states.path,
        )
        try:
            file = _tensors.published(order)
        except Exception as broken:
            raise _mistakes.not_pickled({name: getattr(order, name) for name in PICKLED}, broken) from broken
        self._file = f"/proc/{os.getpid()}/fd/{file}"
        self._pool.living.add(self._number)
        self._end = weakref.finalize(self, _over, file, self._pool.living, self._number, self._tasks)
        self._end.atexit = False

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self._progress = loader._begin()
            if self._progress.base_seed not in (None, self._base_seed):  # resumed: workers need the order with its seed
                self._base_seed = self._progress.base_seed
                self._end()
                self._publish(loader)
        progress = self._progress
        _progress.order_is_drawn(loader, progress)
        super()._reset(loader, first_iter)
        self._shutdown_workers()
        progress.base_seed, progress.ordered = self._base_seed, self._in_order
        self._epoch = progress.epoch
        self._exhausted = False
        self._position = progress.samples  # of the next sample that the sampler gives
        count = self._num_workers
        self._active, self._given, self._taken, first = [True] * count, [0] * count, [0] * count, 0
        if self._iterable:
            self._behind: list[Optional[_shards.ShardState]] = [None] * count
            if self._states is not None:
                self._states.clear()
            if progress.resumed is not None and progress.resumed["shards"] is not None:
                shards = progress.resumed["shards"]
                self._active, self._taken, first = list(shards["active"]), list(shards["given"]), shards["next"]
                self._given = list(self._taken)
                if self._states is not None:
                    self._behind = _progress.shard_states(shards, count)
                    for shard, state in enumerate(self._behind):
                        if state is not None:
                            self._states.write(shard, self._epoch, state)
            self._cycle = itertools.cycle([*range(first, count), *range(first)])
        else:
            rest = _progress.skipped(loader, progress)
            if rest is not None:
                self._sampler_iter = rest
        for _ in range((loader.prefetch_factor or 2) * self._num_workers):
            self._put()

    # ---- asking for batches ---------------------------------------------------------------------------------------

    def _put(self) -> None:
        try:
            index = self._next_index()
        except StopIteration:
            self._exhausted = True
            return
        shard = 0
        if self._iterable:
            for shard in self._cycle:
                if self._active[shard]:
                    break
                if not any(self._active):
                    self._exhausted = True
                    return
            first, self._given[shard] = self._given[shard], self._given[shard] + 1
        else:
            first = self._position
            self._position += len(index) if self._auto_collation else 1
        batch = _loading.Batch(
            self._number,
            self._file,
            min(self._pool.living),
            self._epoch,
            self._shared_seed,
            shard,
            first,
            index,
            () if self._iterable else self._quarantine.places_in(index if self._auto_collation else (index,)),
        )
        self._tasks.append(_Task(batch, self._submitted(batch)))

    def _submitted(self, batch: _loading.Batch) -> _core.Job:
        workers: Workers = self._pool
        return workers.submit(batch, self._timeout if self._timeout > 0 else None, batch.shard if self._iterable else None)

    def _shutdown_workers(self) -> None:
        """Asks for nothing more. The processes stay with the loader."""
        for task in self._tasks:
            task.job.cancel_if_waiting()
        self._tasks.clear()

    # ---- taking them ----------------------------------------------------------------------------------------------

    def resumed_behind_end(self) -> bool:
        """Whether this resumes an epoch of an iterable dataset of which nothing is left. Waits for its next batch."""
        if not self._iterable or self._progress.resumed is None:
            return False
        with self._lock:
            while self._tasks:
                task = self._tasks[0]
                if not self._active[task.batch.shard]:
                    self._drop(task)
                    continue
                try:
                    task.loaded = self._loaded(task)
                except _Interrupted as interrupted:
                    raise interrupted.why
                except Exception:
                    return False  # next() raises it
                if not task.loaded[2]:
                    return False
                self._take(task, True, task.loaded[3])
            return True

    def _drop(self, task: _Task) -> None:
        """A batch of a shard that ended before it."""
        task.job.cancel_if_waiting()
        self._tasks.remove(task)

    def _take(self, task: _Task, over: bool, state: Optional[_shards.ShardState]) -> None:
        self._tasks.remove(task)
        if self._iterable:
            self._active[task.batch.shard] &= not over
            self._taken[task.batch.shard] += not over
            self._behind[task.batch.shard] = state
        self._put()

    def __next__(self) -> Any:
        if self._group is not None:
            self._group.check()
        if _profiled():
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        if self._iterable and self._IterableDataset_len_called is not None:
            self._warn_if_longer()
        return data

    def _warn_if_longer(self) -> None:
        if self._num_yielded > self._IterableDataset_len_called:
            warnings.warn(
                f"Length of IterableDataset {self._dataset} was reported to be {self._IterableDataset_len_called} (when "
                f"accessing len(dataloader)), but {self._num_yielded} samples have been fetched. For multiprocessing "
                "data-loading, this could be caused by not properly configuring the IterableDataset replica at each worker. "
                "Please see https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )

    def _next_data(self) -> Any:
        with self._lock:
            if self._pool.pid != os.getpid():
                raise usage_error("this iterator was made before a fork: make a new one, iter(loader), in this process")
            try:
                data = self._next_loaded()
            except workers_exhausted_error as broken:
                told = self._pool.explained(broken)
                raise told from told.__cause__
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        if self._pin_memory:
            data = _pinned(data, getattr(self, "_pin_memory_device", None))
        return data if self._to_device is None else self._to_device(data)

    def _next_loaded(self) -> Any:
        while self._tasks:
            task = self._chosen()
            if self._iterable and not self._active[task.batch.shard]:
                self._drop(task)
                continue
            try:
                data, bad, over, state, _ = self._loaded(task)
            except _Interrupted as interrupted:
                raise interrupted.why
            except BaseException:
                self._tasks.remove(task)
                self._taken[task.batch.shard] += 1
                self._put()
                self._count(task.batch)  # the next one follows it, also after going on from a state
                raise
            self._take(task, over, state)
            if not (over and self._iterable):
                self._count(task.batch)
            if not over:
                return data
        self._progress.finished |= self._exhausted
        raise StopIteration

    def _count(self, batch: _loading.Batch) -> None:
        """A batch was delivered, or nothing was left of it."""
        self._progress.delivered(len(batch.index) if self._auto_collation else 1)
        self._progress.finished = self._exhausted and not self._tasks
        if self._iterable:
            following = self._tasks[0].batch.shard if self._tasks else 0
            self._progress.shards = {"given": list(self._taken), "active": list(self._active), "next": following}
            if self._states is not None:
                self._progress.shards["states"] = list(self._behind)

    def _chosen(self) -> _Task:
        if not self._in_order:
            while not self._tasks[0].job.wait(0.002):
                for task in self._tasks:
                    if task.job.done():
                        return task
        return self._tasks[0]

    def _loaded(self, task: _Task) -> Any:
        """What the task's job gave; tries again what may be tried again."""
        if task.loaded is not None:
            return task.loaded
        if task.batch.bad and self._policy == "raise":
            index = self._index_at(task.batch, task.batch.bad[0])
            causes = self._quarantine.indices.get(index, [])
            raise _sample_error(f"sample {index} is in quarantine: it killed workers before ({', '.join(causes)})", index, causes)
        while True:
            try:
                if self._group is None:
                    task.job.wait(FOREVER)
                else:
                    while not task.job.wait(0.05):  # a rank may be lost meanwhile
                        self._group.check()
            except BaseException as interrupted:  # a signal handler raised
                raise _Interrupted(interrupted) from None
            lent = self._pool.lent.bytes
            status, *rest = task.job.outcome(COPIED_BELOW if lent < self._pool.most_lent else 1 << 62)
            self._pool.have_begun |= status in ("ok", "exception")
            if status == "ok":
                whole = rest[0]
                loaded = _tensors.batch_from(self._pool.taken(whole) if isinstance(whole, _core.Kept) else memoryview(whole))
                data, digest = loaded[0], loaded[4]
                if digest is not None and digest != _content.digest(data):
                    raise error(f"the batch of {task.batch.index} is not what its worker made: the content differs from the worker's digest")
                for place, text in loaded[1]:
                    self._note(task.batch, place, {"traceback": text})
                return loaded
            if not self._again(task, status, rest):
                raise self._error(task, status, rest)

    def _again(self, task: _Task, status: str, rest: list[Any]) -> bool:
        if status == "timed_out":
            task.tries += 1
            if task.tries < TRIES:
                task.job = self._submitted(task.batch)
                return True
        elif status != "poisoned":
            return False
        place = self._pool.marks.place_of(task.job.number)
        if self._policy == "raise" or self._iterable or place is None or place >= _loading.Marks.PLACE_OF_SETUP:
            return False
        causes = list(rest[3]) if status == "poisoned" else [f"took longer than {self._timeout} s"] * task.tries
        self._quarantine.add(self._index_at(task.batch, place), causes)
        self._note(task.batch, place, {"causes": causes})
        task.batch = task.batch._replace(bad=(*task.batch.bad, place))
        task.tries = 0
        task.job = self._submitted(task.batch)
        return True

    def _index_at(self, batch: _loading.Batch, place: int) -> Any:
        return batch.index[place] if self._auto_collation else batch.index

    def _note(self, batch: _loading.Batch, place: int, why: dict[str, Any]) -> None:
        """For loader.bad_samples."""
        index = self._index_at(batch, place)
        self._bad_samples.append({"index": index, "epoch": self._epoch, "position": batch.first + place, **why})

    def _error(self, task: _Task, status: str, rest: list[Any]) -> BaseException:
        if status == "timed_out":
            where = self._where(task)
            return RuntimeError(f"DataLoader timed out after {self._timeout} seconds, {TRIES} times, at {where[0]}")
        if status == "exception" and rest[0] == b"penstock::error" and rest[1].startswith(b"it loaded CUDA"):
            return _mistakes.cuda_in_a_worker(task.batch.index)
        failed = error_of(status, *rest)
        if status == "poisoned" and isinstance(failed, job_failed_error):
            where = self._where(task)
            causes = list(failed.causes)
            if where[1] is not None and not self._iterable:
                self._quarantine.add(where[1], causes)
            return _sample_error(f"{where[0]} killed {len(causes)} workers: {', '.join(causes)}", where[1], causes)
        return failed

    def _where(self, task: _Task) -> tuple[str, Any]:
        """Where a worker was when it died of this task, in words; and the index of the sample, if it was at one."""
        place = self._pool.marks.place_of(task.job.number)
        batch = task.batch
        if place is None or place == _loading.Marks.PLACE_OF_SETUP:
            return "the beginning in a worker (making the dataset again, worker_init_fn)", None
        if place == _loading.Marks.PLACE_OF_COLLATE:
            return f"collate_fn, with the samples {batch.index}", None
        if self._iterable:
            at = batch.first * (len(batch.index) if self._auto_collation else 1) + place
            return f"sample {at} of shard {batch.shard}", at
        index = batch.index[place] if self._auto_collation else batch.index
        return f"sample {index} (position {batch.first + place} of epoch {self._epoch})", index


def _sample_error(text: str, index: Any, causes: list[str]) -> sample_error:
    made = sample_error(text)
    made.index, made.causes = index, causes
    return made


class LocalIterator(torch_loader._SingleProcessDataLoaderIter):  # type: ignore[misc]
    """One pass without workers: torch's own, which knows how far it is."""

    def __init__(self, loader: Any) -> None:
        self._progress = loader._begin()
        self._dataset_ended = False
        behind = self._went_on(loader.dataset)  # before torch calls iter(dataset)
        super().__init__(loader)
        self._to_device = None if loader.device is None else ToDevice(loader.device, 2)
        self._group = loader.group
        self._iterable = self._dataset_kind == torch_loader._DatasetKind.Iterable
        if self._progress.base_seed is None:
            self._progress.base_seed = self._base_seed
        self._ahead = self._progress.batches - behind if self._iterable else 0
        self._first: list[Any] = []  # what resumed_behind_end() has found
        self._has_state = self._iterable and _shards.has_state(self._dataset)
        if self._dataset_ended:
            self._dataset_fetcher.ended = True
        _progress.order_is_drawn(loader, self._progress)
        rest = None if self._iterable else _progress.skipped(loader, self._progress)
        self._sampler_iter = iter(self._index_sampler) if rest is None else rest
        self._left = _progress.batches_left(loader, self._progress)  # None: not known

    def resumed_behind_end(self) -> bool:
        """Whether this resumes an epoch of an iterable dataset of which nothing is left."""
        if not self._iterable or self._progress.resumed is None:
            return False
        try:
            self._first.append(self._fetched())
        except StopIteration:
            return True
        return False

    def _fetched(self) -> Any:
        while self._ahead:  # of an iterable dataset: delivered before
            super()._next_data()
            self._ahead -= 1
        return super()._next_data()

    def _went_on(self, dataset: Any) -> int:
        """An iterable dataset that has a state goes on from it; how many batches it left out."""
        resumed = self._progress.resumed
        if resumed is None or resumed["shards"] is None or not _shards.has_state(dataset):
            return 0
        (state,) = _progress.shard_states(resumed["shards"], 1)
        if state is None:
            return 0
        self._dataset_ended = state.ended
        return state.go_on(dataset)

    def _next_index(self) -> Any:
        self._index = super()._next_index()
        return self._index

    def _next_data(self) -> Any:
        if self._group is not None:
            self._group.check()
        try:
            data = self._first.pop() if self._first else self._fetched()
        except StopIteration:
            self._progress.finished = True
            raise
        self._progress.delivered(len(self._index) if self._auto_collation else 1)
        if self._iterable:
            self._progress.shards = {"given": [self._progress.batches], "active": [True], "next": 0}
            if self._has_state:
                ended = self._dataset_fetcher.ended
                self._progress.shards["states"] = [_shards.state_of(self._dataset, self._progress.batches, self._progress.samples, ended)]
        elif self._left is not None:
            self._left -= 1
            self._progress.finished = self._left == 0
        return data if self._to_device is None else self._to_device(data)


class _Interrupted(BaseException):
    def __init__(self, why: BaseException) -> None:
        self.why = why


def _over(file: int, living: set[int], number: int, tasks: "collections.deque[_Task]") -> None:
    """The iterator is gone."""
    living.discard(number)
    for task in tasks:
        task.job.cancel_if_waiting()
    os.close(file)


def _profiled() -> bool:
    enabled: Optional[Callable[[], bool]] = getattr(torch.autograd, "_profiler_enabled", None)
    return enabled is not None and enabled()


def _with_sharding(iterator: Any, worker_init_fn: Any) -> Any:
    """As torch does for datapipes."""
    sharding = getattr(torch_loader, "_sharding_worker_init_fn", None)
    pipes = tuple(getattr(torch.utils.data, name) for name in ("IterDataPipe", "MapDataPipe") if hasattr(torch.utils.data, name))
    if sharding is None or not pipes or not isinstance(iterator._dataset, pipes):
        return worker_init_fn
    import functools

    return functools.partial(sharding, worker_init_fn, iterator._world_size, iterator._rank)


def _gives_each_once(loader: Any) -> bool:
    """Whether the sampler gives no index twice in an epoch (but for padding), so that an index can stand for a position."""
    data = torch.utils.data
    sampler = loader.sampler
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not data.BatchSampler:
        return False
    if loader.batch_sampler is not None:
        sampler = loader.batch_sampler.sampler
    if type(sampler) is data.RandomSampler:
        return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
    return type(sampler) in (data.SequentialSampler, data.SubsetRandomSampler, data.distributed.DistributedSampler)


def _pinned(data: Any, device: Any) -> Any:
    return torch_loader._utils.pin_memory.pin_memory(data, device)
