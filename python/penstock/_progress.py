"""How far a DataLoader is: its state, and going on from one (DataLoader.state_dict, load_state_dict).

A state names a position, not samples: the epoch, how many samples of the sampler's order were delivered, and the generators as they
were at the epoch's beginning. So it has the same size whatever the dataset's, and another number of workers or batch size goes on
from it. Used by torch.py and _loader.py.
"""

import itertools
import pickle
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.utils.data

from penstock import _seeds, _shards
from penstock._errors import state_mismatch_error, usage_error

__all__ = ["Progress", "batches_left", "begin", "check", "facts_of", "shard_states", "skipped", "state_of"]

SCHEMA = "penstock.loader/1"


class Progress:
    """Of one epoch."""

    def __init__(self, epoch: int, generators: list[Any], resumed: Optional[dict[str, Any]]) -> None:
        self.epoch = epoch
        self.generators = generators  # their states at the beginning
        self.resumed = resumed  # the state that it goes on from
        self.base_seed: Optional[int] = None if resumed is None else resumed["base_seed"]
        self.samples: int = 0 if resumed is None else resumed["samples"]  # that the sampler gave, and were delivered
        self.batches: int = 0 if resumed is None else resumed["batches"]
        self.shards: Optional[dict[str, Any]] = None  # of an iterable dataset
        self.finished = False
        self.ordered = True

    def delivered(self, samples: int) -> None:
        self.samples += samples
        self.batches += 1


def begin(loader: Any, epoch: int, resumed: Optional[dict[str, Any]]) -> Progress:
    """Before the sampler is asked for its order, and the seed is drawn."""
    generators = _generators(loader)
    if resumed is not None:
        for generator, state in zip(generators, resumed["generators"]):
            generator.set_state(state)
        sampler = _sampler_of(loader)
        if resumed["sampler_epoch"] is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(resumed["sampler_epoch"])
    if loader._own_generator is not None:
        loader._own_generator.manual_seed(_seeds.mixed(int(loader.seed), epoch) >> 1)
    return Progress(epoch, [generator.get_state() for generator in generators], resumed)


def state_of(loader: Any, progress: Optional[Progress], next_epoch: int) -> dict[str, Any]:
    """What state_dict() gives."""
    state: dict[str, Any] = {
        "schema": SCHEMA,
        "facts": facts_of(loader),
        "epoch": next_epoch,
        "samples": 0,
        "batches": 0,
        "base_seed": None,
        "sampler_epoch": getattr(_sampler_of(loader), "epoch", None),
        "shards": None,
    }
    if progress is None or progress.finished:
        state["generators"] = [generator.get_state() for generator in _generators(loader)]
        return state
    if not progress.ordered:
        raise usage_error("in_order=False: batches come in any order, so there is no position within an epoch; save at its end")
    state["epoch"], state["generators"], state["base_seed"] = progress.epoch, progress.generators, progress.base_seed
    state["samples"], state["batches"], state["shards"] = progress.samples, progress.batches, progress.shards
    if progress.shards is not None and "states" in progress.shards:
        state["shards"] = {**progress.shards, "states": [each and _told(each) for each in progress.shards["states"]]}
    return state


def shard_states(shards: dict[str, Any], count: int) -> list[Optional[_shards.ShardState]]:
    """What the dataset said of each shard, as state_of() has given it; of one without a state: None."""
    said = shards.get("states") or [None] * count
    return [
        each and _shards.ShardState(each["batches"], each["samples"], pickle.dumps(each["state"], protocol=5), each.get("ended", False))
        for each in said
    ]


def _told(shard: _shards.ShardState) -> dict[str, Any]:
    return {"batches": shard.batches, "samples": shard.samples, "state": pickle.loads(shard.pickled), "ended": shard.ended}


def check(loader: Any, state: dict[str, Any]) -> None:
    """Raises state_mismatch_error if the state is not of such a loader."""
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise state_mismatch_error(f"this is no state of a penstock.torch.DataLoader ({SCHEMA})")
    ours, theirs = facts_of(loader), state["facts"]
    wrong = [f"{name} was {theirs.get(name)!r} and is {value!r}" for name, value in ours.items() if theirs.get(name) != value]
    shards = state["shards"]
    if shards is not None and len(shards["given"]) != max(loader.num_workers, 1):
        wrong.append(
            f"num_workers was {len(shards['given'])} and is {loader.num_workers}: shards of an iterable dataset belong to workers"
        )
    if wrong:
        raise state_mismatch_error("the state belongs to another loader: " + "; ".join(wrong))


def facts_of(loader: Any) -> dict[str, Any]:
    kind = type(loader.dataset)
    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    try:
        length = None if iterable else len(loader.dataset)
    except TypeError:
        length = None
    sampler = type(_sampler_of(loader))
    facts = {"dataset": f"{kind.__module__}.{kind.__qualname__}", "length": length, "sampler": sampler.__qualname__, "seed": loader.seed}
    if iterable or not _is_plain(loader):
        facts["batch_size"] = loader.batch_size
    return facts


def skipped(loader: Any, progress: Progress) -> Optional[Iterator[Any]]:
    """The sampler's order from the resumed position on; None: from its beginning."""
    if progress.resumed is None or not (progress.samples or progress.batches):
        return None
    if _is_plain(loader):
        samples = iter(loader.batch_sampler.sampler)
        next(itertools.islice(samples, progress.samples, progress.samples), None)
        return iter(torch.utils.data.BatchSampler(samples, loader.batch_size, loader.drop_last))  # type: ignore[arg-type,unused-ignore]
    batches: Iterator[Any] = iter(loader._index_sampler)
    next(itertools.islice(batches, progress.batches, progress.batches), None)
    return batches


def batches_left(loader: Any, progress: Progress) -> Optional[int]:
    """How many the epoch has from the resumed position on; None: not known."""
    try:
        if not _is_plain(loader):
            return int(len(loader._index_sampler)) - progress.batches
        left = int(len(loader.batch_sampler.sampler)) - progress.samples
    except TypeError:
        return None
    size = int(loader.batch_size)
    return left // size if loader.drop_last else -(-left // size)


def _is_plain(loader: Any) -> bool:
    """Whether batches are slices of the sampler's order."""
    return loader.batch_size is not None and type(loader.batch_sampler) is torch.utils.data.BatchSampler


def _sampler_of(loader: Any) -> Any:
    return getattr(loader.batch_sampler, "sampler", loader.sampler) if loader.batch_sampler is not None else loader.sampler


def _generators(loader: Any) -> list[Any]:
    """What the order and the seed are drawn from."""
    if loader._own_generator is not None:
        return []
    sampler = _sampler_of(loader)
    known: list[Any] = []
    for generator in (loader.generator, getattr(sampler, "generator", None), getattr(loader.batch_sampler, "generator", None)):
        if isinstance(generator, torch.Generator) and not any(generator is other for other in known):
            known.append(generator)
    return [*known, torch.default_generator]
