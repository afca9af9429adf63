"""Decides what to do with batches whose jobs fail, and which sample to blame. Used by _loader.py."""

from typing import Any, Optional

from penstock import _loading, _mistakes
from penstock._batch_book import TRIES, BatchBook, Planned
from penstock._errors import job_failed_error
from penstock._future import error_of
from penstock._quarantine import BadSamples, error_of_sample

__all__ = ["Failures", "FailuresOfShards"]


class Failures:
    """The failures of a dataset with an index.

    Args:
        bad: the loader's samples that are left out.
        marks: where workers record which sample they are loading.
        timeout: seconds for a batch; 0: none.
        collated: batches have several samples.
    """

    def __init__(self, bad: BadSamples, marks: _loading.Marks, timeout: float, collated: bool) -> None:
        self.bad = bad
        self._marks, self._timeout, self._collated = marks, timeout, collated

    def index_at(self, planned: Planned, place: int) -> Any:
        return planned.index[place] if self._collated else planned.index

    def refuse_quarantined(self, planned: Planned) -> None:
        """Raises sample_error if the batch has a sample that may be neither loaded nor left out."""
        if planned.bad and self.bad.policy == "raise":
            self.bad.refuse(self.index_at(planned, planned.bad[0]))

    def note_raised(self, planned: Planned, epoch: int, raised: Any) -> None:
        """Samples that the worker has left out, with their tracebacks."""
        for place, text in raised:
            self.bad.note(self.index_at(planned, place), epoch, planned.first + place, {"traceback": text})

    def is_tried_again(self, book: BatchBook, planned: Planned, job: int, epoch: int, status: str, rest: list[Any]) -> bool:
        """Asks the book; records the sample that is left out from now on."""
        place = self._marks.place_of(job)
        if place is not None and place >= _loading.Marks.PLACE_OF_SETUP:
            place = None
        timeouts, known = planned.timeouts, len(planned.bad)
        again = book.is_tried_again(planned, status, place)
        if place is not None and len(planned.bad) > known:
            causes = list(rest[3]) if status == "poisoned" else [f"took longer than {self._timeout} s"] * (timeouts + 1)
            self.bad.killed(self.index_at(planned, place), epoch, planned.first + place, causes)
        return again

    def error_of(self, planned: Planned, job: int, epoch: int, status: str, rest: list[Any]) -> BaseException:
        """What the caller gets instead of the batch."""
        if status == "timed_out":
            where, _ = self._place_of_death(planned, job, epoch)
            return RuntimeError(f"DataLoader timed out after {self._timeout} seconds, {TRIES} times, at {where}")
        if status == "exception" and rest[0] == b"penstock::error" and rest[1].startswith(b"it loaded CUDA"):
            return _mistakes.cuda_in_a_worker(planned.index)
        failed = error_of(status, *rest)
        if status == "poisoned" and isinstance(failed, job_failed_error):
            where, index = self._place_of_death(planned, job, epoch)
            causes = list(failed.causes)
            self._quarantine(index, causes)
            return error_of_sample(f"{where} killed {len(causes)} workers: {', '.join(causes)}", index, causes)
        return failed

    def _place_of_death(self, planned: Planned, job: int, epoch: int) -> tuple[str, Any]:
        """What the worker was doing when this batch killed it, in words, and the index of the sample that it was loading, if any."""
        place = self._marks.place_of(job)
        if place is None or place == _loading.Marks.PLACE_OF_SETUP:
            return "the start of a worker (making the dataset again, worker_init_fn)", None
        if place == _loading.Marks.PLACE_OF_COLLATE:
            return f"collate_fn, with the samples {planned.index}", None
        return self._sample_at(planned, place, epoch)

    def doing(self, planned: Planned, job: int) -> tuple[int, int, str]:
        """What the worker is doing for a batch: a penstock::batch_step, the mark, and the sample's name."""
        place = self._marks.place_of(job)
        if place is None:
            return 0, 0, ""
        if place >= _loading.Marks.PLACE_OF_SETUP:
            return (1 if place == _loading.Marks.PLACE_OF_SETUP else 3), place, ""
        return 2, place, self._name_at(planned, place)

    def _name_at(self, planned: Planned, place: int) -> str:
        return f"sample {self.index_at(planned, place)}"

    def _sample_at(self, planned: Planned, place: int, epoch: int) -> tuple[str, Any]:
        """A sample in words, and its index."""
        index = self.index_at(planned, place)
        return f"{self._name_at(planned, place)} (position {planned.first + place} of epoch {epoch})", index

    def _quarantine(self, index: Optional[Any], causes: list[str]) -> None:
        if index is not None:
            self.bad.quarantine.add(index, causes)


class FailuresOfShards(Failures):
    """The failures of an iterable dataset, whose samples have no index and cannot be left out."""

    def _at(self, planned: Planned, place: int) -> int:
        return planned.first * (len(planned.index) if self._collated else 1) + place

    def _name_at(self, planned: Planned, place: int) -> str:
        return f"sample {self._at(planned, place)} of shard {planned.shard}"

    def _sample_at(self, planned: Planned, place: int, epoch: int) -> tuple[str, Any]:
        return self._name_at(planned, place), self._at(planned, place)

    def _quarantine(self, index: Optional[Any], causes: list[str]) -> None:
        pass
