"""The Order that a pass publishes for its workers, in a file in memory that they map. Used by _loader.py; the worker side is in _loading.py."""

import functools
import importlib
import os
import weakref
from typing import Any, Optional

import torch
import torch.utils.data

from penstock import _content, _core, _loading, _mistakes, _tensors
from penstock._batch_book import Planned
from penstock._workers import Workers

__all__ = ["PublishedOrder", "order_of"]

torch_loader: Any = importlib.import_module("torch.utils.data.dataloader")

FROM_THE_PROGRAM = ("dataset", "collate_fn", "worker_init_fn")  # the parts of an order that may not be picklable


def order_of(iterator: Any, loader: Any, policy: str, last_attempt: int, states: Optional[str]) -> _loading.Order:
    """The order of a pass.

    Args:
        iterator: torch's part of the pass.
        policy: on_bad_sample.
        states: path of the shards' states, if an iterable dataset has state_dict().
    """
    _, rank = torch_loader._get_distributed_settings() if hasattr(torch_loader, "_get_distributed_settings") else (1, 0)
    given = _loading.Given(
        dataset=iterator._dataset,
        iterable=isinstance(iterator._dataset, torch.utils.data.IterableDataset),
        collated=iterator._auto_collation,
        collate_fn=iterator._collate_fn,
        drop_last=iterator._drop_last,
        worker_init_fn=_with_sharding(iterator, loader.worker_init_fn),
        on_bad_sample=policy,
    )
    seeding = _loading.Seeding(iterator._base_seed, loader.seeding == "sample", _gives_each_once(loader), rank)
    number = next(iterator._pool.orders)
    return _loading.Order(number, given, seeding, max(iterator._num_workers, 1), last_attempt, _content.is_verified(), states)


class PublishedOrder:
    """An order that workers can read as long as this object lives. When it ends, it cancels the order's waiting jobs.

    Args:
        pool: its workers.
        jobs: the jobs of its batches.

    Raises:
        TypeError: it cannot be pickled; the message names the part of the dataset that is the reason.
    """

    def __init__(self, order: _loading.Order, pool: Workers, jobs: dict[Planned, _core.Job]) -> None:
        try:
            file = _tensors.published(order)
        except Exception as broken:
            raise _mistakes.not_pickled({name: getattr(order.given, name) for name in FROM_THE_PROGRAM}, broken) from broken
        self.number, self.path = order.number, f"/proc/{os.getpid()}/fd/{file}"
        pool.living.add(self.number)
        hosts = pool.pool._core if pool.has_hosts else None
        if hosts is not None:
            hosts.publish(self.number, file)
        weakref.finalize(self, _over, file, pool.living, self.number, jobs, hosts).atexit = False


def _over(file: int, living: set[int], number: int, jobs: dict[Planned, _core.Job], hosts: Optional[_core.Pool]) -> None:
    living.discard(number)
    if hosts is not None:
        hosts.withdraw(number)
    for job in jobs.values():
        job.cancel_if_waiting()
    os.close(file)


def _with_sharding(iterator: Any, worker_init_fn: Any) -> Any:
    """Applies sharding as torch does for datapipes."""
    sharding = getattr(torch_loader, "_sharding_worker_init_fn", None)
    pipes = tuple(getattr(torch.utils.data, name) for name in ("IterDataPipe", "MapDataPipe") if hasattr(torch.utils.data, name))
    if sharding is None or not pipes or not isinstance(iterator._dataset, pipes):
        return worker_init_fn
    return functools.partial(sharding, worker_init_fn, iterator._world_size, iterator._rank)


def _gives_each_once(loader: Any) -> bool:
    """Whether the sampler repeats no index in an epoch, apart from padding, so that an index identifies a position."""
    data = torch.utils.data
    sampler = loader.sampler
    if loader.batch_sampler is not None and type(loader.batch_sampler) is not data.BatchSampler:
        return False
    if loader.batch_sampler is not None:
        sampler = loader.batch_sampler.sampler
    if type(sampler) is data.RandomSampler:
        return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
    return type(sampler) in (data.SequentialSampler, data.SubsetRandomSampler, data.distributed.DistributedSampler)
