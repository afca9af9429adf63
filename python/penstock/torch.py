"""penstock.torch.DataLoader: torch's DataLoader with workers that may crash, hang or be killed, at no cost.

    from penstock.torch import DataLoader      # instead of torch.utils.data

    for images, labels in DataLoader(dataset, batch_size=32, shuffle=True, num_workers=8):
        ...
"""

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Optional, TypedDict, TypeVar, Union, overload

import torch
import torch.utils.data

if TYPE_CHECKING:
    from typing_extensions import Unpack

from penstock._errors import config_error

__all__ = ["DataLoader"]

_ON_BAD_SAMPLE = ("raise", "skip", "replace")

Sample = TypeVar("Sample")
BatchOfLoader = TypeVar("BatchOfLoader")
Batch_co = TypeVar("Batch_co", covariant=True)
Device = Union[str, torch.device]

_context_of_torch: Any = torch.utils.data.DataLoader.multiprocessing_context


class _Options(TypedDict, total=False):
    """The arguments that do not change what a loader gives."""

    pin_memory: bool
    drop_last: bool
    timeout: float
    worker_init_fn: Optional[Callable[[int], None]]
    multiprocessing_context: Any
    generator: Optional[torch.Generator]
    prefetch_factor: Optional[int]
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool
    device: Optional[Device]
    on_bad_sample: str
    quarantine: Optional[Union[str, "os.PathLike[str]"]]
    seed: Optional[int]
    seeding: Optional[str]
    name: Optional[str]
    group: bool
    pool: Optional[dict[str, Any]]


class _OwnGenerator(torch.Generator):
    """Made for `seed`, and seeded for each epoch; also of a loader that a library makes from the attributes of this one."""


class DataLoader(torch.utils.data.DataLoader[Any], Generic[Batch_co]):  # type: ignore[misc,unused-ignore]
    """torch.utils.data.DataLoader, whose workers are supervised: what dies is replaced, and its batch loaded again.

    It takes torch's arguments, has torch's attributes, and is a subclass of it. Workers are executed, not forked: the dataset is
    pickled (cloudpickle: lambdas and classes of __main__ may be in it), and lies in memory once for all workers. They
    live as long as the loader. With num_workers=0 torch's own loader works in this process: samples that raise are not left
    out, none is quarantined, and their random numbers are the process's own.

    Args:
        device: where tensors of the batches are moved to, with Tensor.to(device, non_blocking=True); None: they stay. To a GPU they
            are copied on a stream of the loader's, from page-locked slots; the current stream waits for it.
        on_bad_sample: what to do with a sample that kills every worker that tries it; "raise": penstock.sample_error, which
            names its index; "skip": its batch comes without it; "replace": another sample of the batch comes twice. With "skip"
            and "replace" this goes for samples that raise, too; a batch of which nothing is left does not come. `bad_samples` lists
            them. (Of an iterable dataset no sample can be left out.)
        quarantine: a file for the indices of samples that killed their workers. They are not tried again, also by later programs:
            on_bad_sample applies at once.
        seed: of the samples' randomness, and of shuffle's; None: drawn from `generator` for each epoch, as torch does.
        seeding: "sample": the global generators of Python, NumPy and torch are seeded before each sample, so that its randomness
            depends on seed, epoch and index only; "worker": once in each worker, as torch does, which is what
            happens anyway if worker_init_fn is given. None: "sample", unless worker_init_fn is given.
        name: of the loader for `penstock status`, `top` and the other verbs, and of its group; None: "loader", or for the verbs "loader-2"
            if this process has a "loader", and so on.
        group: True: the first iteration joins a group with the loaders of the same name in the other ranks that torchrun, penstock launch,
            srun or mpirun has started. Ranks that differ in dataset, length, batch size, seed or sampler are told so with both
            values; when a rank is lost, the next batch of every other one raises the first cause. What each rank loads is its sampler's
            business (DistributedSampler), as without a group. Loaders that not every rank has do not join. `loader.group` is the
            penstock.Group.
        in_order: False: batches come as they are finished; also with a torch that does not have this argument yet.
        pool: further options of the pool of workers, as for penstock.Pool: {"loader": {"limits": {"memory": "4GiB"}}}.

    Raises:
        ValueError, TypeError: as torch does; config_error (a ValueError) for the arguments above.
    """

    @overload
    def __init__(
        self: "DataLoader[BatchOfLoader]",
        dataset: "torch.utils.data.Dataset[Sample]",
        batch_size: int = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[Any]] = None,
        batch_sampler: Optional[Iterable[Sequence[Any]]] = None,
        num_workers: int = 0,
        *,
        collate_fn: Callable[[list[Sample]], BatchOfLoader],
        **options: "Unpack[_Options]",
    ) -> None: ...
    @overload
    def __init__(
        self: "DataLoader[Sample]",
        dataset: "torch.utils.data.Dataset[Sample]",
        batch_size: None,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[Any]] = None,
        *,
        num_workers: int = 0,
        collate_fn: None = None,
        **options: "Unpack[_Options]",
    ) -> None: ...
    @overload
    def __init__(
        self: "DataLoader[torch.Tensor]",
        dataset: "torch.utils.data.Dataset[torch.Tensor]",
        batch_size: int = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[Any]] = None,
        batch_sampler: Optional[Iterable[Sequence[Any]]] = None,
        num_workers: int = 0,
        *,
        collate_fn: None = None,
        **options: "Unpack[_Options]",
    ) -> None: ...
    @overload
    def __init__(
        self: "DataLoader[Any]",
        dataset: "torch.utils.data.Dataset[Any]",
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[Any]] = None,
        batch_sampler: Optional[Iterable[Sequence[Any]]] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[Any], Any]] = None,
        **options: "Unpack[_Options]",
    ) -> None: ...
    def __init__(
        self,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Iterable[Any]] = None,
        batch_sampler: Optional[Iterable[Sequence[Any]]] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[Any], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Optional[torch.Generator] = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: Optional[Device] = None,
        on_bad_sample: str = "raise",
        quarantine: Optional[Union[str, "os.PathLike[str]"]] = None,
        seed: Optional[int] = None,
        seeding: Optional[str] = None,
        name: Optional[str] = None,
        group: bool = False,
        pool: Optional[dict[str, Any]] = None,
    ) -> None:
        if on_bad_sample not in _ON_BAD_SAMPLE:
            raise config_error(f"on_bad_sample is {on_bad_sample!r}: it is one of {', '.join(_ON_BAD_SAMPLE)}")
        if seeding not in (None, "sample", "worker"):
            raise config_error(f'seeding is {seeding!r}: it is "sample", "worker" or None')
        if pool is not None and not isinstance(pool, dict):
            raise TypeError(f"pool is {pool!r}: a loader has workers of its own; pass a dict of their options, such as {{'loader': {{'slot_bytes': '32MiB'}}}}")
        # Under the arguments' names, too: libraries make loaders from the attributes of others (Lightning, accelerate).
        self._options: dict[str, Any] = dict(
            device=device, on_bad_sample=on_bad_sample, quarantine=quarantine, seed=seed, seeding=seeding, name=name, group=group, pool=pool
        )
        self.__dict__.update(self._options)
        self.device = None if device is None else torch.device(device)
        self.on_bad_sample = on_bad_sample
        self.bad_samples: list[dict[str, Any]] = []
        self._quarantine_file = None if quarantine is None else os.path.abspath(quarantine)
        self._quarantine: Any = None
        self.seed = seed
        self._name, self._pool_options = name, dict(pool or {})
        self._joins, self._group_pid = group, os.getpid()
        self._group: Any = None  # once it has joined
        self._workers: Any = None
        self._epoch = -1  # the last one that was begun
        self._progress: Any = None  # of that
        self._resume: Any = None  # the state that the next iteration goes on from
        self._own_generator: Any = None
        if seed is not None and (generator is None or isinstance(generator, _OwnGenerator)):
            self._own_generator = generator = generator or _OwnGenerator()
        newer: dict[str, Any] = {"prefetch_factor": prefetch_factor, "pin_memory_device": pin_memory_device or None, "in_order": None if in_order else False}
        known = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            persistent_workers=persistent_workers,
            **{name: value for name, value in newer.items() if value is not None and name in known},
        )
        self.in_order = in_order
        ignored = {"on_bad_sample": on_bad_sample != "raise", "quarantine": quarantine is not None, "seeding": seeding == "sample"}
        if self.num_workers == 0 and any(ignored.values()):
            names = ", ".join(name for name, given in ignored.items() if given)
            warnings.warn(f"num_workers=0 loads in this process, as torch does, where {names} has no effect: set num_workers to 1 or more", stacklevel=2)
        if self.num_workers > 0:
            self.seeding = seeding or ("worker" if self.worker_init_fn is not None else "sample")

    @property
    def multiprocessing_context(self) -> Any:
        """As in torch, with what a library needs that makes a loader from the attributes of this one."""
        given = _context_of_torch.fget(self)
        if self.num_workers == 0:
            return given
        from penstock._copies import context_of

        kind = type(self) if type(self).__init__ is DataLoader.__init__ else DataLoader
        return context_of(kind, self._options, given)

    @multiprocessing_context.setter
    def multiprocessing_context(self, given: Any) -> None:
        from penstock._copies import Context

        _context_of_torch.fset(self, given.origin.original if isinstance(given, Context) else given)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process."""
        return {**self.__dict__, "_workers": None, "_iterator": None, "_progress": None, "_quarantine": None, "_group": None}

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was delivered: for load_state_dict() of a loader over the same dataset, in this
        process or another one. It holds a few numbers, and the states of random generators, whatever the dataset's size.

        Raises:
            usage_error: within an epoch with in_order=False.
        """
        from penstock import _progress

        if self._resume is not None:
            return dict(self._resume)
        return _progress.state_of(self, self._progress, self._epoch + 1)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from there: with the samples that would have come, in their order, with the same randomness,
        also with another number of workers or another batch size. An iterable dataset's shards need the same number of workers. Where it
        has state_dict() and load_state_dict(), each shard goes on from its own; otherwise it is iterated again, and what was delivered is
        dropped.

        Raises:
            state_mismatch_error: the state belongs to another dataset or sampler: the differences are named.
        """
        from penstock import _progress

        _progress.check(self, state)
        self._resume = dict(state)
        self._epoch = state["epoch"] - 1
        if self._iterator is not None:
            self._progress = None

    def _begin(self) -> Any:
        """An epoch. Returns its Progress."""
        from penstock import _progress

        resumed, self._resume = self._resume, None
        self._epoch += 1
        self._progress = _progress.begin(self, self._epoch, resumed)
        return self._progress

    def __iter__(self) -> Iterator[Batch_co]:  # type: ignore[override,unused-ignore]
        from penstock import _progress

        iterator: Any = self._iterator
        if iterator is not None and iterator._pool.pid != os.getpid():
            self._iterator = None  # a persistent one, made before a fork
        with _progress.program_generator_kept(self._resume):
            iterator = super().__iter__()
        if iterator.resumed_behind_end():
            iterator = super().__iter__()
        return iterator  # type: ignore[no-any-return]

    @property
    def group(self) -> Any:
        """The penstock.Group of this loader and those of the other ranks, which is joined here if it was not yet: all ranks have to
        do so. None without group=True, and in a forked process."""
        if not self._joins or self._group_pid != os.getpid():
            return None
        if self._group is None:
            from penstock._groups import group_of

            self._group = group_of(self)
        return self._group

    def _get_iterator(self) -> Any:
        from penstock._loader import IterablePass, MapPass
        from penstock._local import LocalPass

        if self.group is not None:
            self.group.check()
        if self.num_workers == 0:
            return LocalPass(self)
        return IterablePass(self) if isinstance(self.dataset, torch.utils.data.IterableDataset) else MapPass(self)

    def _quarantine_here(self) -> Any:
        if self._quarantine is None:
            from penstock._progress import facts_of
            from penstock._quarantine import Quarantine

            facts = facts_of(self)
            self._quarantine = Quarantine(self._quarantine_file, f"{facts['dataset']} of {facts['length']}")
        return self._quarantine

    def _workers_here(self) -> Any:
        """The worker processes, of this process."""
        from penstock._workers import Workers

        if self._workers is None or self._workers.pid != os.getpid():
            name = self._name
            if self._group is not None and self._group.world_size > 1:  # ranks of one host
                name = f"{name or 'loader'}-rank{self._group.rank}"
            self._workers = Workers(self.num_workers, name, self.device, self._pool_options)
        return self._workers
