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
from penstock._supervised import OwnGenerator, SupervisedLoader

__all__ = ["DataLoader"]

_ON_BAD_SAMPLE = ("raise", "skip", "replace")

Sample = TypeVar("Sample")
BatchOfLoader = TypeVar("BatchOfLoader")
Batch_co = TypeVar("Batch_co", covariant=True)
Device = Union[str, torch.device]


class _OptionsOfTorch(TypedDict, total=False):
    """torch's arguments that do not change the type of a batch."""

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


class _Options(_OptionsOfTorch, total=False):
    """Those that torch does not have."""

    device: Optional[Device]
    on_bad_sample: str
    quarantine: Optional[Union[str, "os.PathLike[str]"]]
    seed: Optional[int]
    seeding: Optional[str]
    name: Optional[str]
    group: bool
    pool: Optional[dict[str, Any]]


class DataLoader(SupervisedLoader, Generic[Batch_co]):
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
        _check(on_bad_sample, seeding, pool)
        quarantine = None if quarantine is None else os.path.abspath(quarantine)
        options = dict(
            device=device, on_bad_sample=on_bad_sample, quarantine=quarantine, seed=seed, seeding=seeding, name=name, group=group, pool=pool
        )
        self._keep(options)
        # Under the arguments' names, too: libraries make loaders from the attributes of others (Lightning, accelerate).
        self.__dict__.update(options)
        self.device = None if device is None else torch.device(device)
        self.bad_samples: list[dict[str, Any]] = []
        if seed is not None:
            generator = OwnGenerator() if generator is None else generator
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
        _warn_of_ignored(
            self.num_workers == 0,
            {"on_bad_sample": on_bad_sample != "raise", "quarantine": quarantine is not None, "seeding": seeding == "sample"},
        )
        if self.num_workers > 0:
            self.seeding = seeding or ("worker" if self.worker_init_fn is not None else "sample")

    if TYPE_CHECKING:
        def __iter__(self) -> Iterator[Batch_co]: ...  # type: ignore[override,unused-ignore]

    def _kind_of_copies(self) -> type:
        return type(self) if type(self).__init__ is DataLoader.__init__ else DataLoader


def _check(on_bad_sample: str, seeding: Optional[str], pool: Any) -> None:
    if on_bad_sample not in _ON_BAD_SAMPLE:
        raise config_error(f"on_bad_sample is {on_bad_sample!r}: it is one of {', '.join(_ON_BAD_SAMPLE)}")
    if seeding not in (None, "sample", "worker"):
        raise config_error(f'seeding is {seeding!r}: it is "sample", "worker" or None')
    if pool is not None and not isinstance(pool, dict):
        raise TypeError(f"pool is {pool!r}: a loader has workers of its own; pass a dict of their options, such as {{'loader': {{'slot_bytes': '32MiB'}}}}")


def _warn_of_ignored(without_workers: bool, given: dict[str, bool]) -> None:
    if without_workers and any(given.values()):
        names = ", ".join(name for name, value in given.items() if value)
        warnings.warn(f"num_workers=0 loads in this process, as torch does, where {names} has no effect: set num_workers to 1 or more", stacklevel=3)
