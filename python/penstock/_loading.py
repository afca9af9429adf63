"""Loads batches in a worker process, for penstock.torch.DataLoader; the caller's side is in _loader.py.

A worker reads a loader's description (an `Order`: the dataset, how to collate, ...) once, from a memory file. It then receives batches
as jobs of the pool. Before each sample it records which one it loads, so that a crash can be attributed.
"""

import importlib
import itertools
import mmap
import os
import pickle
import random
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import torch
import torch.utils.data

from penstock import _content, _hosts, _mistakes, _seeds, _shards, _template, _tensors

if TYPE_CHECKING:
    from penstock import _worker

__all__ = ["Batch", "Loaded", "Marks", "Order", "load", "prepare", "with_samples"]

torch_loader: Any = importlib.import_module("torch.utils.data.dataloader")
ExceptionWrapper: Any = torch_loader.ExceptionWrapper

OUT_OF_MEMORY = 12  # exit code of a worker in which a sample raised MemoryError
WORTH_A_ROOM = 1 << 16  # bytes: larger batches are collated in their slot
MOST_NAMED = 16  # samples listed when a batch is named by its samples
MOST_OF_NAME = 40  # characters of each such name


class Seeding(NamedTuple):
    """How the global generators in a worker are seeded."""

    base: int
    each_sample: bool  # seed before each sample, not only when the worker starts
    key_is_index: bool  # a sample's key is its index, not its position
    rank: int


class Given(NamedTuple):
    """The loader's arguments."""

    dataset: Any
    iterable: bool
    collated: bool  # samples are collated to batches
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    worker_init_fn: Optional[Callable[[int], object]]
    on_bad_sample: str  # raise, skip, replace


class Order(NamedTuple):
    """What a worker needs to know about a loader, for the lifetime of its dataset."""

    number: int
    given: Given
    seeding: Seeding
    workers: int
    last_attempt: int  # number of the attempt that runs alone: if that raises, the exception is the batch's result
    verified: bool = False  # batches carry a digest of their content
    states: Optional[str] = None  # path of the shards' states (_shards.py), if an iterable dataset has state_dict()


class Batch(NamedTuple):
    """What to load: one job."""

    order: int  # number of its Order
    file: str  # path of that Order
    oldest: int  # earlier orders are no longer used
    epoch: int
    shared_seed: Optional[int]  # torch's seed for shuffling datapipes
    shard: int  # for an iterable dataset: the shard to read
    first: int  # epoch position of its first sample; for an iterable dataset the batch's number in its shard
    index: Any  # what the sampler yielded
    bad: tuple[int, ...] = ()  # places in the batch to leave out
    state: Optional[_shards.ShardState] = None  # on a host: the last known state of the shard, before this batch


class Loaded(NamedTuple):
    """A job's result."""

    data: Any
    bad: tuple[tuple[int, str], ...] = ()  # places in the batch whose samples raised, and the traceback
    over: bool = False  # the shard has ended, or every sample of the batch was left out
    state: Optional[_shards.ShardState] = None  # the shard's state after this batch
    digest: Optional[bytes] = None  # digest of the content, computed before any of it was in a slot
    slow: Any = None  # if the batch had slow samples: the worker's number, then what Call.slow_samples() returns


class Marks:
    """Which sample each worker is loading, as pairs of job and place in its batch: Call.mark() writes them, and the loader can read them
    after the worker's death."""

    JOBS = 4096  # more than are ever under way
    PLACE_OF_SETUP, PLACE_OF_COLLATE, PLACE_OF_ITEMS = (1 << 62), (1 << 62) + 1, (1 << 62) + 2  # the last one: __getitems__, for a whole batch

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, 16 * self.JOBS)
        self._numbers = memoryview(self._memory).cast("Q")

    def write_here(self) -> None:
        """Makes Call.mark() of this process write to this file."""
        from penstock import _worker

        _worker.write_marks_to(self._numbers)

    def place_of(self, job: int) -> Optional[int]:
        at = 2 * (job % self.JOBS)
        return int(self._numbers[at + 1]) if self._numbers[at] == job else None


class _Stage:
    """An order in this worker; for an iterable dataset, one shard of it."""

    def __init__(self, order: Order, identity: int, batch: Batch) -> None:
        self.order, self.identity = order, identity
        self.failed: Any = None  # the exception that worker_init_fn raised: then the result of each batch
        self.by_value = False  # whether plain pickle cannot handle the order's batches
        self.in_place = order.given.collate_fn is torch_loader._utils.collate.default_collate
        self.seeds: Optional[_seeds.SampleSeeds] = None
        self.shard = _Shard(order, identity)
        self._epoch: Optional[int] = None
        _seed_worker(order.seeding.base, identity)
        self.dataset = _datapipe_seeded(order.given.dataset, batch.shared_seed)
        told = torch_loader._utils.worker
        seed = order.seeding.base + identity
        self._info = told.WorkerInfo(id=identity, num_workers=order.workers, seed=seed, dataset=self.dataset)
        self.show()
        try:
            if order.given.worker_init_fn is not None:
                order.given.worker_init_fn(identity)
        except Exception:
            self.failed = self.raised()

    def show(self) -> None:
        """Makes this visible to torch.utils.data.get_worker_info()."""
        torch_loader._utils.worker._worker_info = self._info

    def raised(self) -> Any:
        """The exception being handled, wrapped as torch passes it to the caller."""
        wrapper = ExceptionWrapper(where=f"in DataLoader worker process {self.identity}")
        wrapper.exc_msg += _mistakes.cuda_is_hidden(sys.exc_info()[1])
        return wrapper

    def left_midway(self, epoch: int) -> bool:
        """Whether a new epoch begins although this worker read only a part of its shard in the last one (another worker read the rest). The
        dataset might continue in the middle."""
        return self._epoch not in (None, epoch) and self.shard.is_midway()

    def begin_epoch(self, batch: Batch) -> None:
        if self._epoch == batch.epoch:
            return
        if self._epoch is not None:
            self.dataset = _datapipe_seeded(self.dataset, batch.shared_seed)
        self._epoch = batch.epoch
        self.shard.begin_epoch(batch.epoch)
        if self.order.seeding.each_sample:
            self.seeds = _seeds.SampleSeeds(_seeds.mixed(self.order.seeding.base, batch.epoch))


class _Shard:
    """The part of an iterable dataset that this worker reads, and the states that it publishes if the dataset has any."""

    def __init__(self, order: Order, identity: int) -> None:
        self._identity, self._epoch = identity, 0
        self._states: Any = None
        if order.states is not None:
            self._states = _StatesOnHost() if _hosts.on_host() else _shards.ShardStates.opened(order.states)
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._source: Optional[_Source] = None
        self.behind: Optional[_shards.ShardState] = None  # the dataset's state after the last batch

    def is_midway(self) -> bool:
        """Whether the shard's iterator has started but not ended."""
        return self._source is not None and not self._source.ended

    def is_before(self, batch: int) -> bool:
        """Whether the shard's iterator can still reach this batch."""
        return self._source is not None and self._source.batches <= batch

    def source_of(self, dataset: Any, batch: int, known: Optional[_shards.ShardState]) -> "_Source":
        """The shard's iterator, at this batch or before it."""
        if self._source is None or self._source.batches > batch:
            if isinstance(self._states, _StatesOnHost):
                self._states.known = known
            self._source = _Source(dataset, None if self._states is None else self._states.before(self._identity, self._epoch, batch))
        return self._source

    def publish(self, dataset: Any, source: "_Source") -> None:
        """Publishes the shard's position, for a replacement of this worker and for the loader's state."""
        if self._states is not None:
            self.behind = _shards.state_of(dataset, source.batches, source.samples, source.ended)
            self._states.write(self._identity, self._epoch, self.behind)


class _StatesOnHost:
    """Stands for _shards.ShardStates on a host, which has no access to that file: a state arrives with each batch, and the new one is
    returned with the result."""

    known: Optional[_shards.ShardState] = None

    def write(self, shard: int, epoch: int, state: _shards.ShardState) -> None:
        self.known = state

    def before(self, shard: int, epoch: int, batch: int) -> Optional[_shards.ShardState]:
        return self.known if self.known is not None and self.known.batches <= batch else None


class _Source:
    """An iterable dataset's iterator and its position.

    Args:
        state: where to resume, if the dataset supports it.
    """

    def __init__(self, dataset: Any, state: Optional[_shards.ShardState]) -> None:
        self.batches = 0 if state is None else state.go_on(dataset)
        self.samples = 0 if state is None else state.samples
        self.ended = state is not None and state.ended
        self.iterator = iter(()) if self.ended else iter(dataset)


class _PlaceOfBatch:
    """Makes torch's default_collate put the tensors of a large batch directly where the caller will read them. Applies only while it runs
    as the loader's collate_fn and calls only torch's functions, which keep no tensor beyond the batch."""

    room: Optional[_tensors.Room] = None
    open = False

    def take_from(self, call: "_worker.Call", size: int) -> None:
        try:
            self.room = _tensors.Room(call.reserve(size), size)
        except Exception:
            self.room = None  # the batch is too large: call.give() reports that

    def stacked(self, samples: Any) -> Any:
        """The samples, stacked in place; None if they do not fit or are not plain tensors."""
        first = samples[0]
        same = all(type(each) is torch.Tensor and not each.is_nested and each.shape == first.shape and each.dtype == first.dtype for each in samples)
        if not same or any(each.requires_grad or each.layout is not torch.strided or each.device.type != "cpu" for each in samples):
            return None
        assert self.room is not None
        to = self.room.tensor(first.dtype, (len(samples), *first.shape))
        return None if to is None else torch.stack(samples, 0, out=to)


_room = _PlaceOfBatch()
_collating_types: frozenset[Any] = frozenset()  # types that torch itself collates
_stages: dict[tuple[int, int], _Stage] = {}  # keyed by order and worker
_files: dict[int, int] = {}  # on a host, by order: the program sends each file once, and every shard reads it
_early: dict[int, Optional[Order]] = {}  # by number, made before this process was forked; None: each worker makes its own


def prepare(marks: str) -> None:
    """Call before the first batch, while the process is not ready yet."""
    torch.set_num_threads(1)
    file = os.open(marks, os.O_RDWR | os.O_CLOEXEC)
    try:
        Marks(file).write_here()
    finally:
        os.close(file)
    _collate_in_private_memory()


def unpickle_early(number: int, path: str) -> None:
    """Makes, in a template, an order that its workers will need. If that fails, the workers make the order themselves."""
    if number in _early:
        return
    _early.clear()
    _early[number] = None
    made = _template.without_files(lambda: _tensors.map_published(path))
    if made is not None:
        _early[number] = made


def load(call: "_worker.Call", facts: tuple[Any, ...]) -> None:
    """Loads one batch and delivers it. `facts` are the fields of a Batch."""
    batch = Batch._make(facts)
    call.mark(Marks.PLACE_OF_SETUP)
    if (batch.order, batch.shard) not in _stages:
        call.describe("dataset setup")
    bad: list[tuple[int, str]] = []
    try:
        stage = _stage_of(batch, call.worker)
        call.describe(_name_of_batch(batch, stage.order.given.iterable))
        if stage.failed is not None:
            return _give(call, stage, Loaded(stage.failed))
        stage.show()
        try:
            iterable = stage.order.given.iterable
            loaded = _from_source(call, stage, batch) if iterable else _loaded(call, stage, batch, bad)
        except Exception as failed:
            if isinstance(failed, MemoryError) and call.attempt < stage.order.last_attempt:
                raise
            loaded = Loaded(stage.raised(), tuple(bad))
        if not loaded.over:
            loaded = loaded._replace(state=stage.shard.behind)
        slow = call.slow_samples()
        if slow is not None:
            loaded = loaded._replace(slow=(call.worker, *slow))
        _give(call, stage, loaded)
    except _tensors.PartOutsideRangeError as broken:
        name = _name_of_batch(batch, True) if stage.order.given.iterable else f"the batch of the samples {batch.index}"
        raise RuntimeError(f"{name} cannot be delivered: {broken}") from broken
    except MemoryError:
        _leave(OUT_OF_MEMORY)
    except SystemExit as left:
        _leave(left.code if isinstance(left.code, int) else 1 if left.code else 0)
    finally:
        _room.room, _room.open = None, False
        _seeds.SampleSeeds.over()


def _name_of_batch(batch: Batch, iterable: bool) -> str:
    return f"batch {batch.first} of shard {batch.shard}" if iterable else f"batch at position {batch.first} of epoch {batch.epoch}"


def with_samples(function: str, index: Any) -> str:
    """A step of a whole batch in words: "collate_fn, with the samples [5, 6]"."""
    named = ", ".join(str(each)[:MOST_OF_NAME] for each in itertools.islice(index, MOST_NAMED))
    return f"{function}, with the samples [{named}]" if len(index) <= MOST_NAMED else f"{function}, with {len(index)} samples [{named}, ...]"


def _stage_of(batch: Batch, worker: int) -> _Stage:
    stage = _stages.get((batch.order, batch.shard))
    if stage is not None and _hosts.on_host() and stage.left_midway(batch.epoch):
        stage = None  # on hosts, shards move between workers: make the stage again
    if stage is None:
        for old in [key for key in _stages if key[0] < batch.oldest]:
            del _stages[old]
        try:
            order: Order = _early.pop(batch.order, None) or _order_of(batch)
        except Exception as broken:
            text = f"the dataset cannot be recreated in a worker: {type(broken).__name__}: {broken} {_mistakes.cuda_is_hidden(broken)}"
            raise RuntimeError(text.rstrip()) from broken
        identity = batch.shard if order.given.iterable else worker % order.workers
        stage = _stages[batch.order, batch.shard] = _Stage(order, identity, batch)
    stage.begin_epoch(batch)
    return stage


def _order_of(batch: Batch) -> Order:
    if not _hosts.on_host():
        return _tensors.map_published(batch.file)  # type: ignore[no-any-return]
    from penstock import _worker

    for old in [number for number in _files if number < batch.oldest]:
        os.close(_files.pop(old))
    if batch.order not in _files:
        _files[batch.order] = _worker.session_file(batch.order)
    return _tensors.map_published(f"/proc/self/fd/{_files[batch.order]}")  # type: ignore[no-any-return]


# ---- datasets with an index ----------------------------------------------------------------------------------------

_MISSING: Any = object()


def _collated(call: "_worker.Call", stage: _Stage, samples: list[Any]) -> Loaded:
    order, collate_fn, collated = stage.order, stage.order.given.collate_fn, stage.order.given.collated
    given = samples if collated else samples[0]
    size = _tensors.room_for(samples) if stage.in_place and isinstance(samples, list) and collated and _only_torch_collates() else 0
    if size < WORTH_A_ROOM:
        data = collate_fn(given)
        return Loaded(data, digest=_content.digest(data) if order.verified else None)
    digest = _content.digest(collate_fn(given)) if order.verified else None
    _room.take_from(call, size)
    _room.open = _room.room is not None
    try:
        return Loaded(collate_fn(given), digest=digest)
    finally:
        _room.open = False


def _loaded(call: "_worker.Call", stage: _Stage, batch: Batch, bad: list[tuple[int, str]]) -> Loaded:
    """Adds failed samples to `bad` (as in Loaded), even if it raises later."""
    order, collated = stage.order, stage.order.given.collated
    if collated and getattr(stage.dataset, "__getitems__", None):
        call.mark(Marks.PLACE_OF_ITEMS)
        if stage.seeds is not None and len(batch.index):
            stage.seeds(_key(order, batch, 0, batch.index[0]))
        wanted = batch.index  # what the batch sampler yielded, of any type
        if batch.bad:
            wanted = _completed(order, [_MISSING if place in batch.bad else index for place, index in enumerate(batch.index)])
        samples = stage.dataset.__getitems__(wanted) if not batch.bad or wanted else []  # the result may have any type that collate_fn accepts
    else:
        samples = _samples(call, stage, batch, batch.index if collated else (batch.index,), bad)
        if bad or batch.bad:
            samples = _completed(order, samples)
    if (bad or batch.bad) and len(samples) == 0:
        return Loaded(None, tuple(bad), True)
    call.mark(Marks.PLACE_OF_COLLATE)
    call.describe(with_samples("collate_fn", batch.index if collated else [batch.index]))
    return _collated(call, stage, samples)._replace(bad=tuple(bad))


def _samples(call: "_worker.Call", stage: _Stage, batch: Batch, indices: Any, bad: list[tuple[int, str]]) -> list[Any]:
    """Loads the samples. Those that raised are missing, if on_bad_sample allows it."""
    order, dataset, seeds, begin = stage.order, stage.dataset, stage.seeds, call.sample
    raises = order.given.on_bad_sample == "raise"
    samples: list[Any] = []
    for place, index in enumerate(indices):
        if place in batch.bad:
            samples.append(_MISSING)
            continue
        if type(index) is int and index >= 0:
            begin(place, index)
        else:
            call.sample_named(place, f"sample {index}")
        if seeds is not None:
            seeds(_key(order, batch, place, index))
        if raises:
            samples.append(dataset[index])
            continue
        try:
            samples.append(dataset[index])
        except Exception as failed:
            if isinstance(failed, MemoryError) and call.attempt < order.last_attempt:
                raise
            bad.append((place, traceback.format_exc()))
            samples.append(_MISSING)
    return samples


def _completed(order: Order, samples: list[Any]) -> list[Any]:
    """Drops missing samples, or replaces each by the sample before or after it."""
    there = [sample for sample in samples if sample is not _MISSING]
    if order.given.on_bad_sample != "replace" or not there:
        return there
    last = there[0]
    completed = []
    for sample in samples:
        last = last if sample is _MISSING else sample
        completed.append(last)
    return completed


def _key(order: Order, batch: Batch, place: int, index: Any) -> int:
    if order.seeding.key_is_index:
        try:
            return index.__index__()  # type: ignore[no-any-return]
        except AttributeError:
            pass
    return _seeds.mixed(batch.first + place, 1 + order.seeding.rank)


# ---- iterable datasets ---------------------------------------------------------------------------------------------


def _from_source(call: "_worker.Call", stage: _Stage, batch: Batch) -> Loaded:
    given, shard = stage.order.given, stage.shard
    size = len(batch.index) if given.collated else 1
    if stage.seeds is not None and not shard.is_before(batch.first):  # the dataset may draw random numbers when it is iterated
        stage.seeds(_seeds.mixed(0, 1 + stage.identity))
    source = shard.source_of(stage.dataset, batch.first, batch.state)
    while source.batches < batch.first and not source.ended:  # already delivered by this worker's predecessor
        try:
            _taken(call, stage, source, size)
        except Exception as again:
            if isinstance(again, MemoryError):
                raise
    try:
        samples = _taken(call, stage, source, size)
    finally:
        shard.publish(stage.dataset, source)
    if not samples or (given.collated and given.drop_last and len(samples) < size):
        return Loaded(None, (), True)
    call.mark(Marks.PLACE_OF_COLLATE)
    call.describe(f"collate_fn, at {_name_of_batch(batch, True)}")
    return _collated(call, stage, samples)


def _taken(call: "_worker.Call", stage: _Stage, source: _Source, size: int) -> list[Any]:
    """The shard's next batch before collation; empty at its end."""
    seeds, begin, shard = stage.seeds, call.sample_of_shard, stage.identity
    first = source.batches * size
    source.batches += 1
    samples: list[Any] = []
    for place in range(0 if source.ended else size):
        begin(place, first + place, shard)
        if seeds is not None:
            seeds(_seeds.mixed(source.samples, 1 + stage.identity))
        try:
            samples.append(next(source.iterator))
        except StopIteration:
            source.ended = True
            break
        source.samples += 1
    return samples


# ---- results, and the process --------------------------------------------------------------------------------------


def _give(call: "_worker.Call", stage: _Stage, loaded: Loaded) -> None:
    result = tuple(loaded)
    if not stage.by_value:
        try:
            parts = _tensors.batch_parts(result)
            size = None if _room.room is None else _room.room.finished(parts)
            if size is not None:
                return call.finish(size)
            return call.give(parts)  # copies parts out of the room first
        except (AttributeError, TypeError, ValueError, pickle.PicklingError):
            pass  # the caller cannot import the classes in it, or it cannot be pickled at all
    try:
        parts = _tensors.batch_parts(result, by_value=True)
        stage.by_value = True
    except Exception as broken:
        try:
            raise TypeError(
                f"a batch cannot be pickled: {broken}. What collate_fn returns is sent to another process: return tensors, "
                "arrays, numbers, strings, and lists, tuples, dicts or objects of them"
            ) from broken
        except TypeError:
            parts = _tensors.batch_parts(tuple(Loaded(stage.raised())), by_value=True)
    call.give(parts)


def _leave(code: int) -> None:
    """Exits. The pool replaces this process and retries the batch."""
    traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code & 0xFF)


def _datapipe_seeded(dataset: Any, shared_seed: Optional[int]) -> Any:
    if shared_seed is None:
        return dataset
    from torch.utils.data.graph_settings import apply_random_seed

    generator = torch.Generator()
    generator.manual_seed(shared_seed)
    return apply_random_seed(dataset, generator)


def _seed_worker(base_seed: int, identity: int) -> None:
    """Seeds the global generators as torch does when a worker starts."""
    seed = base_seed + identity
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        try:
            generate_state = torch_loader._utils.worker._generate_state
        except AttributeError:
            numpy.random.seed(seed & 0xFFFFFFFF)
        else:
            numpy.random.seed(generate_state(base_seed, identity))


def _collate_in_private_memory() -> None:
    """Keeps torch's collate functions from opening a file in /dev/shm for each tensor, as they do in workers."""
    module: Any = torch_loader._utils.collate
    told = torch_loader._utils.worker
    original = getattr(module, "collate_tensor_fn", None)
    known = getattr(module, "default_collate_fn_map", None)
    if original is None or known is None:
        return

    def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
        if _room.open:
            there = _room.stacked(batch)
            if there is not None:
                return there
        info, told._worker_info = told._worker_info, None
        try:
            return original(batch, collate_fn_map=collate_fn_map)
        finally:
            told._worker_info = info

    module.collate_tensor_fn = collate_tensor_fn
    known[torch.Tensor] = collate_tensor_fn
    global _collating_types
    _collating_types = frozenset(known)


def _only_torch_collates() -> bool:
    """Whether default_collate calls torch's functions only. A program's own functions could keep the tensors."""
    known = getattr(torch_loader._utils.collate, "default_collate_fn_map", None)
    return known is not None and known.keys() == _collating_types
