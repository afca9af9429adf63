"""penstock.torch.DataLoader: torch's DataLoader, except that workers may crash, hang or be killed without losing a batch.

Change only the import; arguments and batches are the same as torch's:

    from penstock.torch import DataLoader      # instead of torch.utils.data

    for images, labels in DataLoader(dataset, batch_size=32, shuffle=True, num_workers=8):
        ...
"""

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Optional, TypedDict, TypeVar, Union, overload

import torch
import torch.utils.data

if TYPE_CHECKING:
    from typing_extensions import Unpack

from penstock._arguments import LARGEST, whole_number
from penstock._config import check_worker_count
from penstock._errors import config_error
from penstock._quarantine import BadSampleList, Quarantine, check_place, warn_if_shared
from penstock._supervised import OwnGenerator, SupervisedLoader

__all__ = ["DataLoader"]

_ON_BAD_SAMPLE = ("raise", "skip", "replace")

Sample = TypeVar("Sample")
BatchOfLoader = TypeVar("BatchOfLoader")
Batch_co = TypeVar("Batch_co", covariant=True)
Device = Union[str, torch.device]


def _naming_what_was_meant(init: Callable[..., None]) -> Callable[..., None]:
    """Adds `did you mean` to the TypeError for a misspelt argument, as Python does from 3.13 on. Libraries see the signature of `init`."""
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                import difflib

                near = difflib.get_close_matches(name, list(known), 1)
                raise TypeError(f"DataLoader has no argument {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))
        init(self, *args, **kwargs)

    return checked


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
    """The arguments that torch does not have."""

    device: Optional[Device]
    on_bad_sample: str
    quarantine: Optional[Union[str, "os.PathLike[str]"]]
    seed: Optional[int]
    seeding: Optional[str]
    name: Optional[str]
    group: bool
    hosts: Optional[Union[str, Sequence[str]]]
    hosts_secret_file: Optional[Union[str, "os.PathLike[str]"]]
    pool: Optional[dict[str, Any]]


class DataLoader(SupervisedLoader, Generic[Batch_co]):
    """torch.utils.data.DataLoader with supervised workers: a worker that dies is replaced, and its batch is loaded again.

    It is a subclass of torch's class and takes its arguments. Workers start as fresh programs, without fork: the dataset is pickled
    (with cloudpickle, so lambdas and classes of __main__ work) and is in memory once for all workers. Workers live as long as
    the loader. With num_workers=0 torch's own loader runs in this process: it skips and quarantines no samples, and random
    numbers come from the process's own generators.

    Args:
        device: where to move the tensors of each batch, with Tensor.to(device, non_blocking=True). None: nowhere. The loader copies
            to a GPU on its own stream, from page-locked slots, and the current stream waits for the copy.
        on_bad_sample: what to do with a sample that kills every worker that tries it. "raise" raises penstock.sample_error with
            its index; "skip" delivers the batch without it; "replace" delivers another sample of the batch twice. "skip" and
            "replace" also apply to samples that raise. A batch with no sample left is not delivered. `bad_samples` lists them in
            every pass (the latest 10,000; `bad_samples.total` counts all); the log names those that kill workers, and the first of a pass
            that raises. A pass that delivers no batch raises penstock.dataset_error. Samples of iterable datasets cannot be skipped, and an exception or crash in
            collate_fn is always raised.
        quarantine: a file for the indices of samples that killed their workers. Neither this loader nor later programs try them
            again: on_bad_sample applies at once, and the log names them when a pass begins. The file belongs to one dataset, identified by
            class and length, or by the dataset's attribute `fingerprint`, a string: set it if datasets of one class may have the
            same length, and change it when the samples change.
        seed: for shuffling and for the samples' random numbers. None: drawn from `generator` for each epoch, as in torch.
        seeding: "sample" seeds the global generators of Python, NumPy and torch before each sample: random numbers depend only on
            seed, epoch and index. "worker" seeds them once in each worker, as torch does. None: "worker" if worker_init_fn is
            given, otherwise "sample".
        name: the name for `penstock status`, `top` and the other verbs, and for the group. None: "loader"; further loaders of this
            process are "loader-2", "loader-3", ... for the verbs.
        group: True: the first iteration joins a group with the loaders of the same name in the other ranks, which torchrun, penstock
            launch, srun or mpirun has started. Ranks that differ in dataset, length, batch size, seed or sampler raise an error
            with both values. When a rank is lost, the next batch of every other rank raises the first cause. The sampler decides
            what each rank loads (DistributedSampler), as without a group. Use it only for loaders that every rank has.
            `loader.group` is the penstock.Group.
        hosts: workers on other machines, besides num_workers (which may be 0) here: "ADDRESS:PORT" where they join by `python -m
            penstock host --join`, or a list of addresses of hosts that listen. They need the same versions of Python, torch and penstock, the
            same secret, and what the dataset reads. Batches are the same as without them. An iterable dataset has num_workers shards, which
            workers of hosts load; none of them is loaded here.
        hosts_secret_file: the file with that secret, made by `penstock secret`. Without it nothing is sent.
        in_order: False: deliver batches as they are finished. Works with older versions of torch, too.
        pool: more options for the pool of workers, as for penstock.Pool: {"loader": {"limits": {"memory": "4GiB"}}}.

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
    @_naming_what_was_meant
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
        hosts: Optional[Union[str, Sequence[str]]] = None,
        hosts_secret_file: Optional[Union[str, "os.PathLike[str]"]] = None,
        pool: Optional[dict[str, Any]] = None,
    ) -> None:
        _check(on_bad_sample, seeding, pool)
        num_workers = _number_of_workers(num_workers)
        check_worker_count(pool or {}, num_workers, "num_workers")
        _check_seed(seed)
        _check_hosts(hosts, hosts_secret_file)
        if hosts is not None and isinstance(dataset, torch.utils.data.IterableDataset):
            _check_shards_on_hosts(num_workers, worker_init_fn, seeding)
        hosts_secret_file = None if hosts_secret_file is None else os.path.abspath(hosts_secret_file)
        quarantine = None if quarantine is None else os.path.abspath(quarantine)
        options = dict(
            device=device, on_bad_sample=on_bad_sample, quarantine=quarantine, seed=seed, seeding=seeding, name=name, group=group, pool=pool,
            hosts=hosts, hosts_secret_file=hosts_secret_file,
        )
        self._keep(options)
        # Stored under the arguments' names, too: libraries (Lightning, accelerate) make loaders from the attributes of
        # others.
        self.__dict__.update(options)
        self.device = None if device is None else torch.device(device)
        self.bad_samples = BadSampleList()
        if seed is not None:
            generator = OwnGenerator() if generator is None else generator
        # torch refuses a prefetch_factor if num_workers is 0.
        of_hosts = prefetch_factor if num_workers == 0 and hosts is not None else None
        prefetch_factor = None if of_hosts is not None else prefetch_factor
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
        if of_hosts is not None:
            self.prefetch_factor = of_hosts
        _warn_of_ignored(
            self._loads_here,
            {"on_bad_sample": on_bad_sample != "raise", "quarantine": quarantine is not None, "seeding": seeding == "sample"},
        )
        if quarantine is not None and not self._loads_here:
            check_place(quarantine)
            fingerprint = self._fingerprint()
            Quarantine(quarantine, fingerprint)  # refuses a file of another dataset
            warn_if_shared(quarantine, fingerprint, dataset)
        if not self._loads_here:
            self.seeding = seeding or ("worker" if self.worker_init_fn is not None else "sample")

    if TYPE_CHECKING:
        def __iter__(self) -> Iterator[Batch_co]: ...  # type: ignore[override,unused-ignore]

    def _kind_of_copies(self) -> type:
        return type(self) if type(self).__init__ is DataLoader.__init__ else DataLoader


def _check(on_bad_sample: str, seeding: Optional[str], pool: Any) -> None:
    if on_bad_sample not in _ON_BAD_SAMPLE:
        raise config_error(f"on_bad_sample is {on_bad_sample!r}: it must be one of {', '.join(_ON_BAD_SAMPLE)}")
    if seeding not in (None, "sample", "worker"):
        raise config_error(f'seeding is {seeding!r}: it must be "sample", "worker" or None')
    if pool is not None and not isinstance(pool, dict):
        raise TypeError(f"pool is {pool!r}: a loader has its own workers; pass a dict of their options, such as {{'loader': {{'slot_bytes': '32MiB'}}}}")


def _number_of_workers(value: Any) -> int:
    """num_workers as an int, because seeds of generators are computed from it. torch refuses a negative number."""
    return whole_number(value, "num_workers", "pass a number of worker processes", least=-LARGEST)


def _check_seed(seed: Any) -> None:
    """Checks the seed here, because torch's loader would fail late, or without the argument's name."""
    if seed is not None:
        whole_number(seed, "seed", "pass a whole number of at most 64 bits, or None", least=-LARGEST, most=(1 << 64) - 1)


def _check_hosts(hosts: Any, secret_file: Any) -> None:
    if hosts is None:
        return
    if secret_file is None:
        raise config_error(
            "hosts get the dataset's code, which is sent only over connections with a secret: pass hosts_secret_file, a file made by "
            "`penstock secret`, to the loader, and --secret-file to its hosts"
        )


def _check_shards_on_hosts(num_workers: int, worker_init_fn: Any, seeding: Optional[str]) -> None:
    if num_workers == 0:
        raise config_error(
            "hosts load an iterable dataset in num_workers shards, however many workers they have, and num_workers is 0: set it to the number of shards"
        )
    if seeding == "worker" or (seeding is None and worker_init_fn is not None):
        raise config_error(
            "on hosts a worker may load several shards of an iterable dataset, so torch's seeds for each worker cannot be kept: pass seeding=\"sample\""
            + (" (with worker_init_fn, the default is seeding=\"worker\")" if seeding is None else "")
        )


def _warn_of_ignored(without_workers: bool, given: dict[str, bool]) -> None:
    if without_workers and any(given.values()):
        ignored = [name for name, value in given.items() if value]
        names, have = " and ".join([", ".join(ignored[:-1]), ignored[-1]] if len(ignored) > 1 else ignored), "has" if len(ignored) == 1 else "have"
        warnings.warn(f"num_workers=0 loads in this process, as torch does, where {names} {have} no effect: set num_workers to 1 or more", stacklevel=4)
