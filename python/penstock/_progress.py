"""A DataLoader's position, and resuming from it (DataLoader.state_dict, load_state_dict).

A state names a position, not samples: the epoch, the number of samples of the sampler's order that were delivered, the seed, and the
generators' states just before the order was drawn. So its size does not depend on the dataset's, and a loader with a different number of
workers or batch size can resume from it. Used by _supervised.py, _loader.py and _local.py.
"""

import contextlib
import itertools
import pickle
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.utils.data

from penstock import _drawn_from, _seeds, _shards
from penstock._errors import state_mismatch_error, usage_error
from penstock._globals import PROGRAM

__all__ = ["Position", "Progress", "batches_left", "facts_of", "order_is_drawn", "program_generator_kept", "shard_states", "skipped"]

SCHEMA = "penstock.loader/1"
_COUNTS = ("epoch", "samples", "batches")
_PARTS = ("facts", "generators", "base_seed", "sampler_epoch", "shards")


class Progress:
    """The position in one epoch."""

    def __init__(self, epoch: int, resumed: Optional[dict[str, Any]]) -> None:
        self.epoch = epoch
        self.drawn: dict[str, Any] = {"generators": [], "drawn_from": None}  # _drawn(), just before the order was drawn
        self.resumed = resumed  # the state from which this epoch resumes
        self.base_seed: Optional[int] = None if resumed is None else resumed["base_seed"]
        self.shared_seed: Optional[int] = None if resumed is None else resumed.get("shared_seed")  # of datapipes
        self.samples: int = 0 if resumed is None else resumed["samples"]  # delivered so far, in the sampler's order
        self.batches: int = 0 if resumed is None else resumed["batches"]
        self.shards: Optional[dict[str, Any]] = None if resumed is None else resumed["shards"]  # iterable datasets only
        if self.shards is not None and "states" in self.shards:
            self.shards = {**self.shards, "states": shard_states(self.shards, len(self.shards["given"]))}
        self.sampler_epoch: Optional[int] = None  # the sampler's own epoch number when this epoch began
        self.finished = False
        self.ordered = True
        self.expected = 0  # batches in this epoch; 0: unknown

    @property
    def began_at(self) -> int:
        return 0 if self.resumed is None else int(self.resumed["samples"])

    def delivered(self, samples: int) -> None:
        self.samples += samples
        self.batches += 1


class Position:
    """Where a loader is in its stream: the latest epoch that it started, and the state from which the next iteration resumes, if any."""

    def __init__(self) -> None:
        self._epoch = -1
        self._progress: Optional[Progress] = None  # position in that epoch
        self.resume: Optional[dict[str, Any]] = None

    def begin(self, loader: Any) -> Progress:
        """Begins the next epoch. Call before anything is drawn for it, within program_generator_kept()."""
        resumed, self.resume = self.resume, None
        self._epoch += 1
        sampler = _sampler_of(loader)
        if resumed is not None:
            if resumed["sampler_epoch"] is not None and hasattr(sampler, "set_epoch"):
                sampler.set_epoch(resumed["sampler_epoch"])
            _set_generators(loader, resumed)
            _drawn_from.restore(loader, resumed.get("drawn_from"), _generators(loader))
        _seed_own_generator(loader, self._epoch)
        self._progress = Progress(self._epoch, resumed)
        self._progress.sampler_epoch = getattr(sampler, "epoch", None)
        return self._progress

    def state_of(self, loader: Any) -> dict[str, Any]:
        """The result of state_dict()."""
        return _state_of(loader, self._progress, self._epoch + 1) if self.resume is None else dict(self.resume)

    def resume_from(self, loader: Any, state: dict[str, Any]) -> None:
        """Implements load_state_dict()."""
        _check(loader, state)
        self.resume = _for_as_many_ranks(loader, state)
        self._epoch = state["epoch"] - 1
        if loader._iterator is not None:
            self._progress = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_progress": None}


@contextlib.contextmanager
def program_generator_kept(resumed: Optional[dict[str, Any]]) -> Iterator[None]:
    """While an epoch is resumed, its seed and order are drawn from generators in the saved states. Global generators belong to the
    program: they get their states back."""
    before = None if resumed is None else torch.default_generator.get_state()
    try:
        with _drawn_from.kept(None if resumed is None else resumed.get("drawn_from")):
            yield
    finally:
        if before is not None:
            torch.default_generator.set_state(before)


def order_is_drawn(loader: Any, progress: Progress) -> None:
    """Call when the seed is known, just before iter(sampler). A new iterator draws a seed before the order and a persistent one
    does not; the order must not depend on that."""
    if _seed_own_generator(loader, progress.epoch):
        torch.empty((), dtype=torch.int64).random_(generator=loader.generator)  # draws what a new iterator draws as its seed
    elif progress.resumed is not None and progress.resumed["base_seed"] is not None:
        _set_generators(loader, progress.resumed)
    if progress.resumed is not None and progress.resumed["base_seed"] is not None:  # the state was saved within an epoch
        _drawn_from.restore(loader, progress.resumed.get("drawn_from"), _generators(loader))
    progress.drawn = _drawn(loader)


def _drawn(loader: Any) -> dict[str, Any]:
    """The states of the generators, and what a sampler of the program draws from."""
    known = _generators(loader)
    return {"generators": [generator.get_state() for generator in known], "drawn_from": _drawn_from.saved(loader, known)}


def _seed_own_generator(loader: Any, epoch: int) -> bool:
    if loader._own_generator is None:
        return False
    loader._own_generator.manual_seed(_seeds.mixed(int(loader.seed), epoch) >> 1)
    return True


def _set_generators(loader: Any, state: dict[str, Any]) -> None:
    for generator, saved in zip(_generators(loader), state["generators"]):
        generator.set_state(saved)


def _state_of(loader: Any, progress: Optional[Progress], next_epoch: int) -> dict[str, Any]:
    state: dict[str, Any] = {
        "schema": SCHEMA,
        "facts": facts_of(loader),
        "epoch": next_epoch,
        "samples": 0,
        "batches": 0,
        "base_seed": None,
        "shared_seed": None,
        "sampler_epoch": getattr(_sampler_of(loader), "epoch", None),
        "shards": None,
        "ranks": _ranks_of(loader),
    }
    if progress is None or progress.finished:
        state.update(_drawn(loader))
        if progress is not None and loader._iterator is not None:  # a persistent iterator keeps its seed
            state["base_seed"] = progress.base_seed
        if progress is not None and state["sampler_epoch"] == progress.sampler_epoch:
            state["sampler_epoch"] = None  # belongs to the epoch that has ended: the program sets the next one's after resuming
        return state
    if not progress.ordered:
        raise usage_error("in_order=False: batches come in any order, so there is no position within an epoch; save at its end")
    state.update(progress.drawn)
    for name in ("epoch", "base_seed", "shared_seed", "samples", "batches", "shards"):
        state[name] = getattr(progress, name)
    if progress.shards is not None and "states" in progress.shards:
        state["shards"] = {**progress.shards, "states": [each and _told(each) for each in progress.shards["states"]]}
    return state


def shard_states(shards: dict[str, Any], count: int) -> list[Optional[_shards.ShardState]]:
    """Each shard's state from a dict of Position.state_of(); None for a shard without one."""
    said = shards.get("states") or [None] * count
    return [
        each and _shards.ShardState(each["batches"], each["samples"], pickle.dumps(each["state"], protocol=5), each.get("ended", False))
        for each in said
    ]


def _told(shard: _shards.ShardState) -> dict[str, Any]:
    return {"batches": shard.batches, "samples": shard.samples, "state": pickle.loads(shard.pickled), "ended": shard.ended}


def _check(loader: Any, state: dict[str, Any]) -> None:
    """Raises state_mismatch_error if the state belongs to another kind of loader."""
    if not isinstance(state, dict) or state.get("schema") != SCHEMA:
        raise state_mismatch_error(f"this is not a state of a penstock.torch.DataLoader ({SCHEMA})")
    damaged = [name for name in _COUNTS if not isinstance(state.get(name), int) or state[name] < 0]
    damaged += [name for name in _PARTS if name not in state or (name == "facts" and not isinstance(state[name], dict))]
    if damaged:
        raise state_mismatch_error(f"this state of a DataLoader is damaged: it has no valid {', '.join(damaged)}")
    ours, theirs = facts_of(loader), state["facts"]
    wrong = [f"{name} was {theirs.get(name)!r} and is {value!r}" for name, value in ours.items() if theirs.get(name) != value]
    shards = state["shards"]
    if shards is not None and len(shards["given"]) != max(loader.num_workers, 1):
        wrong.append(
            f"num_workers was {len(shards['given'])} and is {loader.num_workers}: shards of an iterable dataset belong to workers"
        )
    saved, ranks = state.get("ranks") or {}, _ranks_of(loader) or {}
    wrong += [
        f"the sampler's {name} was {saved[name]!r} and is {value!r}" for name, value in ranks.items() if name != "num_replicas" and saved.get(name, value) != value
    ]
    if wrong:
        raise state_mismatch_error("the state belongs to another loader: " + "; ".join(wrong))


def _ranks_of(loader: Any) -> Optional[dict[str, Any]]:
    """What defines the order of all ranks together, if the sampler gives each rank its part."""
    sampler = _sampler_of(loader)
    if not isinstance(getattr(sampler, "num_replicas", None), int) or not isinstance(getattr(sampler, "rank", None), int):
        return None
    return {name: getattr(sampler, name, None) for name in ("num_replicas", "seed", "shuffle")}


def _for_as_many_ranks(loader: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Converts the state of one of `then` ranks to a state for one of `now` ranks, at the same position in the order of all ranks."""
    then, now = ((ranks or {}).get("num_replicas") for ranks in (state.get("ranks"), _ranks_of(loader)))
    samples = state["samples"]
    if then is None or now is None or then == now or samples == 0:
        return dict(state)
    # torch's sampler gives rank r the positions r, r + ranks, r + 2 * ranks, ... of one order.
    if type(_sampler_of(loader)) is not torch.utils.data.distributed.DistributedSampler or not _is_plain(loader):
        raise state_mismatch_error(
            f"the state was saved within an epoch by one of {then} ranks, and the sampler is for {now}: only DistributedSampler itself, "
            f"without a batch_sampler, can continue with a different number of ranks"
        )
    if samples * then % now:
        raise state_mismatch_error(
            f"the state is after {samples} samples of each of {then} ranks, {samples * then} in total, which {now} ranks cannot share equally: "
            "resume with a different number of ranks, or from a state of an epoch's end"
        )
    samples = samples * then // now
    return {**state, "samples": samples, "batches": -(-samples // int(loader.batch_size)), "ranks": _ranks_of(loader)}


def facts_of(loader: Any) -> dict[str, Any]:
    kind = type(loader.dataset)
    iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
    try:
        length = None if iterable else len(loader.dataset)
    except Exception:  # many datasets with a sampler of their own raise NotImplementedError
        length = None
    sampler = type(_sampler_of(loader))
    module = "__main__" if kind.__module__ in PROGRAM else kind.__module__  # a state may also resume a rank that was started differently
    facts = {"dataset": f"{module}.{kind.__qualname__}", "length": length, "sampler": sampler.__qualname__, "seed": loader.seed}
    if iterable or not _is_plain(loader):
        facts["batch_size"] = loader.batch_size
    return facts


def skipped(loader: Any, progress: Progress, whole: Iterator[Any]) -> Iterator[Any]:
    """The sampler's order from the resumed position on. Draws the first batch at once.

    Args:
        whole: the new iterator of the loader's index sampler. Many samplers draw their order when it is made.
    """
    if progress.resumed is None:
        return whole
    if _is_plain(loader):
        samples = _behind(iter(loader.batch_sampler.sampler), progress.samples)
        return iter(torch.utils.data.BatchSampler(samples, loader.batch_size, loader.drop_last))  # type: ignore[arg-type,unused-ignore]
    return _behind(whole, progress.batches)


def _behind(order: Iterator[Any], count: int) -> Iterator[Any]:
    """Takes the first index now, while the generators are in the saved states, because samplers draw their order then."""
    first = list(itertools.islice(order, count, count + 1))
    return itertools.chain(first, order)


def batches_left(loader: Any, progress: Progress) -> Optional[int]:
    """The number of batches from the resumed position on; None if unknown."""
    try:
        if not _is_plain(loader):
            return int(len(loader._index_sampler)) - progress.batches
        left = int(len(loader.batch_sampler.sampler)) - progress.samples
    except (TypeError, NotImplementedError):
        return None
    size = int(loader.batch_size)
    return left // size if loader.drop_last else -(-left // size)


def _is_plain(loader: Any) -> bool:
    """Whether batches are slices of the sampler's order."""
    return loader.batch_size is not None and type(loader.batch_sampler) is torch.utils.data.BatchSampler


def _sampler_of(loader: Any) -> Any:
    return getattr(loader.batch_sampler, "sampler", loader.sampler) if loader.batch_sampler is not None else loader.sampler


def _generators(loader: Any) -> list[Any]:
    """The generators that order and seed are drawn from. The loader's own is not among them: it is seeded for each epoch."""
    sampler = _sampler_of(loader)
    known: list[Any] = []
    for generator in (loader.generator, getattr(sampler, "generator", None), getattr(loader.batch_sampler, "generator", None)):
        if isinstance(generator, torch.Generator) and not any(generator is other for other in (loader._own_generator, *known)):
            known.append(generator)
    return [*known, torch.default_generator]
