"""Decides which batch of an epoch to load, retry, give up or deliver next, for penstock.torch.DataLoader.

Pure: no jobs, no torch, no clock. _loader.py carries out the decisions: it loads what plan() returns, reports how that ended, and delivers.
"""

import collections
from typing import Any, Optional, Protocol

__all__ = ["BatchBook", "Planned", "Shards"]

TRIES = 3  # how many times a batch that exceeds the loader's timeout is tried


class Progress(Protocol):
    """The progress of the epoch, recorded by the book (implemented by _progress.Progress)."""

    samples: int
    batches: int
    shards: Optional[dict[str, Any]]
    finished: bool

    def delivered(self, samples: int) -> None: ...


class Planned:
    """A batch that is planned but not delivered yet.

    Attributes:
        shard: for an iterable dataset, the worker that must load it; otherwise 0.
        number: the batch's number in the epoch; for an iterable dataset in its shard.
        first: the position of its first sample in the epoch; for an iterable dataset the batch's number.
        index: what the sampler yielded.
        bad: places in the batch to leave out.
        known: the places in `bad` that are left out without a try.
        timeouts: how many times the batch timed out.
        again: the batch must be loaded again because of a death, and its next job is not submitted yet.
        lost_before: the batch has already been loaded again because of a death.
        attempts: how many attempts ended jobs have made with the same samples.
        answer: how its job ended, in a list; empty until that is known.
        loaded: its result, if known before delivery.
        failure: why the program gets an exception instead, if known before that.
        counted: the pool has counted it as taken.
        worker: the worker that it was sent to; None: any.
    """

    __slots__ = (
        "shard", "number", "first", "index", "bad", "known", "timeouts", "again", "lost_before", "attempts", "answer", "loaded", "failure", "counted", "worker",
    )

    def __init__(self, shard: int, number: int, first: int, index: Any, bad: tuple[int, ...]) -> None:
        self.shard, self.number, self.first, self.index, self.bad, self.known = shard, number, first, index, bad, bad
        self.timeouts = self.attempts = 0
        self.again = self.lost_before = self.counted = False
        self.answer: list[Any] = []
        self.loaded: Any = None
        self.failure: Optional[Exception] = None
        self.worker: Optional[int] = None


class Shards:
    """The turns of an iterable dataset's shards, one shard for each worker.

    Several batches of a shard may be planned before its end is known: those after the end are dropped.

    Args:
        saved: a dict that saved() returned, to resume from.
        behind: the dataset's own state of each shard at that point.
        in_order: False: a shard that waits for a slow batch gets no further ones, and so takes no turns from the others.
    """

    def __init__(self, count: int, saved: Optional[dict[str, Any]] = None, behind: Optional[list[Any]] = None, in_order: bool = True) -> None:
        first = 0 if saved is None else saved["next"]
        self.active: list[bool] = [True] * count if saved is None else list(saved["active"])
        self.delivered: list[int] = [0] * count if saved is None else list(saved["given"])
        self.behind: list[Any] = [None] * count if behind is None else list(behind)
        self._planned, self._in_order = list(self.delivered), in_order
        self._turn = first

    def plan(self) -> Optional[tuple[int, int]]:
        """The shard whose turn it is, and the number of its next batch; None if all shards have ended."""
        if not any(self.active):
            return None
        if self._in_order:
            shard = self._turn
            while not self.active[shard]:
                shard = (shard + 1) % len(self.active)
            self._turn = (shard + 1) % len(self.active)
        else:
            going_on = [shard for shard, active in enumerate(self.active) if active]
            shard = min(going_on, key=lambda shard: self._planned[shard] - self.delivered[shard])
        self._planned[shard] += 1
        return shard, self._planned[shard] - 1

    def saved(self, following: int) -> dict[str, Any]:
        """The position: `following` is the shard of the next batch."""
        return {"given": list(self.delivered), "active": list(self.active), "next": following, "states": list(self.behind)}


class BatchBook:
    """One epoch of a loader.

    A signal handler may raise between any two calls, so plan(), took() and count() change everything or nothing, and took() does nothing
    the second time. They compute first and then only assign: Python runs signal handlers at calls and loops, not at assignments.

    Args:
        progress: records each batch that is delivered, and each that lost all of its samples.
        collated: whether an index from the sampler is a list of samples; else it is one sample.
        leaves_out: whether to leave out a sample that kills its workers or takes too long; otherwise its batch is given up.
        shards: for an iterable dataset, which cannot leave out single samples.
    """

    def __init__(self, progress: Progress, collated: bool, leaves_out: bool, shards: Optional[Shards] = None) -> None:
        self.under_way: collections.deque[Planned] = collections.deque()  # in the order of delivery
        self.shards = shards
        self._is_cut_off = False  # the position stays where it is
        self._progress, self._collated = progress, collated
        self._leaves_out = leaves_out and shards is None
        self._exhausted = False
        self._position, self._number = progress.samples, progress.batches  # of the sampler's next sample and batch

    # ---- what to load ---------------------------------------------------------------------------------------------

    def plan(self, index: Any, bad: tuple[int, ...] = ()) -> Optional[Planned]:
        """The next batch to load, after all batches under way; None if all shards have ended."""
        planned, samples = Planned(0, self._number, self._position, index, bad), self._samples(index)
        if self.shards is None:
            self._number += 1
            self._position += samples
        else:
            turn = self.shards.plan()
            if turn is None:
                self._exhausted = True
                return None
            planned.shard, planned.number = turn
            planned.first = planned.number
        self.under_way += (planned,)
        return planned

    def exhaust(self) -> None:
        """Call when the sampler has ended."""
        self._exhausted = True

    def next(self) -> Optional[Planned]:
        """The batch to deliver next, if batches are delivered in order; None if the epoch is over."""
        if self.under_way:
            return self.under_way[0]
        self._progress.finished |= self._exhausted and not self._is_cut_off
        return None

    def is_behind_end(self, planned: Planned) -> bool:
        """Whether the batch's shard ended before this batch. If so, drop() the batch; nothing replaces it."""
        return self.shards is not None and not self.shards.active[planned.shard]

    def drop(self, planned: Planned) -> None:
        self.under_way.remove(planned)

    # ---- how loading ended ----------------------------------------------------------------------------------------
    # Call took(), gave_up() or cut_off() first, then plan() the batch that takes its place, and then count(), whose record names
    # the next batch's shard.

    def took(self, planned: Planned, over: bool, state: Any) -> None:
        """Call when the batch was loaded.

        Args:
            over: its shard has ended, or all samples of the batch were left out.
            state: the dataset's own state of the shard after this batch.
        """
        if planned not in self.under_way:
            return
        if self.shards is not None:
            self.shards.active[planned.shard] &= not over
            self.shards.delivered[planned.shard] += not over
            self.shards.behind[planned.shard] = state
        self.under_way.remove(planned)

    def gave_up(self, planned: Planned) -> None:
        """Call when the batch's error is delivered instead of the batch."""
        if planned not in self.under_way:
            return
        if self.shards is not None:
            self.shards.delivered[planned.shard] += 1
        self.under_way.remove(planned)

    def cut_off(self, planned: Planned) -> None:
        """Call when all workers have ended without a result for the batch: a resumed loader begins with it, whatever is counted later."""
        self.under_way.remove(planned)
        self._is_cut_off = True

    def count(self, planned: Planned) -> None:
        """Call when the batch or its error was delivered, or all of its samples were left out: a resumed loader continues after
        the batch."""
        if self._is_cut_off:
            return
        samples, shards = self._samples(planned.index), self._progress.shards
        if self.shards is not None:
            shards = self.shards.saved(self.under_way[0].shard if self.under_way else 0)
        self._progress.delivered(samples)
        self._progress.finished = self._exhausted and not self.under_way
        self._progress.shards = shards

    def is_tried_again(self, planned: Planned, status: str, place: Optional[int]) -> bool:
        """Whether to load the batch again after a failure, perhaps with one more sample left out.

        Args:
            status: its job's status: "timed_out", or "poisoned" when it killed its workers.
            place: the place in the batch of the sample that its worker was loading; None if it was loading none.
        """
        if status == "timed_out":
            planned.timeouts += 1
            if planned.timeouts < TRIES:
                return True
        elif status != "poisoned":
            return False
        if not self._leaves_out or place is None:
            return False
        planned.bad = (*planned.bad, place)
        planned.timeouts = 0
        return True

    def size_of(self, planned: Planned) -> int:
        """How many samples were planned for the batch. The last batch of a shard may hold fewer."""
        return self._samples(planned.index)

    def _samples(self, index: Any) -> int:
        return len(index) if self._collated else 1
