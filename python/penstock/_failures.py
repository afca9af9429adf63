"""Decides what to do with batches whose jobs fail, and which sample to blame. Used by _loader.py."""

import json
from collections.abc import Collection
from typing import Any, Optional

from penstock import _loading, _mistakes
from penstock._batch_book import TRIES, BatchBook, Planned
from penstock._errors import job_failed_error
from penstock._future import error_of
from penstock._quarantine import BadSamples, Sample, causes_in_words, deaths_over, error_of_sample
from penstock._tracebacks import raised_in

__all__ = ["Failures", "FailuresOfShards"]


class Failures:
    """The failures of a dataset with an index.

    Args:
        bad: the loader's samples that are left out.
        marks: where workers record which sample they are loading.
        timeout: seconds for a batch; 0: none.
        collated: batches have several samples.
        pool: the pool's core.
    """

    def __init__(self, bad: BadSamples, marks: _loading.Marks, timeout: float, collated: bool, pool: Any) -> None:
        self.bad, self._pool = bad, pool
        self._marks, self._timeout, self._collated = marks, timeout, collated

    def index_at(self, planned: Planned, place: int) -> Any:
        return planned.index[place] if self._collated else planned.index

    def refuse_quarantined(self, planned: Planned, epoch: int) -> None:
        """Raises sample_error if the batch has a sample that may be neither loaded nor left out."""
        if planned.bad and self.bad.policy == "raise":
            sample = self._sample_at(planned, planned.bad[0], epoch)
            self._lost(planned, epoch, f"{sample.name} is in quarantine", sample, quarantined=len(planned.bad))
            self.bad.refuse(sample)

    def note_left_out(self, planned: Planned, epoch: int, raised: Any) -> None:
        """Records samples that were not tried, and samples that the worker left out, with their tracebacks."""
        for place in planned.known:
            self.bad.known(self._sample_at(planned, place, epoch))
        for place, text in raised:
            self.bad.raised(self._sample_at(planned, place, epoch), text)

    def note_exception(self, planned: Planned, job: int, epoch: int, wrapped: Any, left_out: Any) -> None:
        """The program gets an exception in place of the batch: reports the batch and the sample that raised it, and names the sample in a
        note on the exception. `left_out`: other samples of the batch that raised and were left out, as in note_left_out()."""
        place = self._marks.place_of(job)
        where, sample = self._place_of_death(planned, job, epoch)
        raised = raised_in(wrapped.exc_msg)
        if sample is not None:
            self.bad.failed(sample, raised)
        self._lost(planned, epoch, f"{_in_short(where, sample)} raised {raised}", sample, [at for at, _ in left_out])
        if place is None or place == _loading.Marks.PLACE_OF_SETUP:
            return
        wrapped.note = f"penstock: raised by {where}"
        if raised.where:
            wrapped.note += f", at {raised.where}"
        if sample is not None and self.bad.policy == "raise" and self.leaves_out:
            wrapped.note += '; on_bad_sample="skip" leaves such samples out'

    def is_tried_again(self, book: BatchBook, planned: Planned, job: int, epoch: int, status: str, rest: list[Any]) -> bool:
        """Asks the book; records the sample if it is left out from now on."""
        place = self._marks.place_of(job)
        if place is not None and place >= _loading.Marks.PLACE_OF_SETUP:
            place = None
        timeouts, known = planned.timeouts, len(planned.bad)
        again = planned.again = book.is_tried_again(planned, status, place)
        planned.attempts += rest[4]
        planned.lost_before |= len(rest[3]) > 1  # the pool has run its job again
        if place is not None and len(planned.bad) > known:
            planned.attempts = 0
            causes = list(rest[3]) if status == "poisoned" else [f"took longer than {self._timeout} s"] * (timeouts + 1)
            self.bad.killed(self._sample_at(planned, place, epoch), causes)
        return again

    def error_of(self, planned: Planned, job: int, epoch: int, status: str, rest: list[Any]) -> BaseException:
        """What the caller gets instead of the batch."""
        if status == "timed_out":
            where, sample = self._place_of_death(planned, job, epoch)
            self._lost(planned, epoch, f"{_in_short(where, sample)} took longer than {self._timeout} s, {TRIES} times", sample)
            return RuntimeError(f"DataLoader timed out after {self._timeout} seconds, {TRIES} times, at {where}")
        if status == "exception" and rest[0] == b"penstock::error" and rest[1].startswith(b"it loaded CUDA"):
            self._lost(planned, epoch, "its worker loaded CUDA")
            return _mistakes.cuda_in_a_worker(planned.index)
        failed = error_of(status, *rest)
        if status == "poisoned" and isinstance(failed, job_failed_error):
            where, sample = self._place_of_death(planned, job, epoch)
            causes = list(failed.causes)
            killed = f"{deaths_over(_in_short(where, sample), causes)}: {causes_in_words(causes)}"
            self._lost(planned, epoch, killed, sample, quarantined=self._quarantine(sample, causes))
            advice = f". Stacks and output: {self._where_output_is(job)}"
            if sample is not None and self.leaves_out:
                advice = '. on_bad_sample="skip" leaves such samples out' + advice
            return error_of_sample(f"{deaths_over(where, causes)}: {causes_in_words(causes)}{advice}", None if sample is None else sample.index, causes)
        self._lost(planned, epoch, f"it failed: {failed}")
        return failed

    def _lost(
        self, planned: Planned, epoch: int, why: str, blamed: Optional[Sample] = None, left_out: Collection[int] = (), quarantined: int = 0
    ) -> None:
        """Reports that the program gets an exception instead of the batch.

        Args:
            left_out: places of samples that raised and were left out.
            quarantined: how many of its samples are counted as quarantined.
        """
        known = () if self.bad.policy == "raise" else planned.bad
        places = [place for place in range(len(planned.index) if self._collated else 1) if place not in known and place not in left_out]
        samples = "1 sample is" if len(places) == 1 else f"{len(places)} samples are"
        text = f"{samples} lost with {self._batch_in_words(planned)} of epoch {epoch}, because {why}".encode("utf-8", "backslashreplace").decode()
        sequence, numbers = self._numbers_of(planned, places)
        self._pool.batch_lost(epoch, sequence, None if blamed is None else blamed.number, len(places), quarantined, numbers, text)

    def _batch_in_words(self, planned: Planned) -> str:
        return f"batch {planned.number}"

    def _numbers_of(self, planned: Planned, places: list[int]) -> tuple[Optional[int], list[int]]:
        """The number of the batch in its epoch, and those of its samples at these places, as far as they have one."""
        numbers = (self._sample_at(planned, place, 0).number for place in places)
        return planned.number, [number for number in numbers if number is not None]

    leaves_out = True  # whether on_bad_sample applies

    def _where_output_is(self, job: int) -> str:
        died = [each["worker"] for each in json.loads(self._pool.report())["workers"]["deaths"] if each.get("job") == job]
        return "`penstock deaths --stacks`, with --last after the end" if died else "`penstock logs`, with --last after the end"

    def _place_of_death(self, planned: Planned, job: int, epoch: int) -> tuple[str, Optional[Sample]]:
        """In words, what the worker was doing when this batch killed it, and the sample that it was loading, if any."""
        place = self._marks.place_of(job)
        if place is None or place == _loading.Marks.PLACE_OF_SETUP:
            return "the start of a worker (making the dataset again, worker_init_fn)", None
        if place == _loading.Marks.PLACE_OF_COLLATE:
            return self._collation(planned), None
        if place == _loading.Marks.PLACE_OF_ITEMS:
            return _loading.with_samples("__getitems__", planned.index), None
        sample = self._sample_at(planned, place, epoch)
        return self._in_words(sample), sample

    def _collation(self, planned: Planned) -> str:
        return _loading.with_samples("collate_fn", planned.index if self._collated else [planned.index])

    def doing(self, planned: Planned, job: int) -> tuple[int, int, str]:
        """What the worker is doing for a batch: a penstock::batch_step, the mark, and the sample's name."""
        place = self._marks.place_of(job)
        if place is None:
            return 0, 0, ""
        if place == _loading.Marks.PLACE_OF_ITEMS:
            return 2, place, self._name_at(planned, 0)
        if place >= _loading.Marks.PLACE_OF_SETUP:
            return (1 if place == _loading.Marks.PLACE_OF_SETUP else 3), place, ""
        return 2, place, self._name_at(planned, place)

    def _name_at(self, planned: Planned, place: int) -> str:
        return f"sample {self.index_at(planned, place)}"

    def _sample_at(self, planned: Planned, place: int, epoch: int) -> Sample:
        return Sample(self.index_at(planned, place), self._name_at(planned, place), epoch, planned.first + place)

    def _in_words(self, sample: Sample) -> str:
        return str(sample)

    def _quarantine(self, sample: Optional[Sample], causes: list[str]) -> int:
        """Returns how many samples are now in quarantine that were not before."""
        if sample is None:
            return 0
        self.bad.quarantined(sample, causes)
        return 1


def _in_short(where: str, sample: Optional[Sample]) -> str:
    return where if sample is None else sample.name


class FailuresOfShards(Failures):
    """The failures of an iterable dataset, whose samples have no index and cannot be left out."""

    leaves_out = False

    def _at(self, planned: Planned, place: int) -> int:
        return planned.first * (len(planned.index) if self._collated else 1) + place

    def _name_at(self, planned: Planned, place: int) -> str:
        return f"sample {self._at(planned, place)} of shard {planned.shard}"

    def _sample_at(self, planned: Planned, place: int, epoch: int) -> Sample:
        return Sample(self._at(planned, place), self._name_at(planned, place), epoch, self._at(planned, place))

    def _in_words(self, sample: Sample) -> str:
        return sample.name  # its number is a position in the shard

    def _batch_in_words(self, planned: Planned) -> str:
        return f"batch {planned.number} of shard {planned.shard}"

    def _numbers_of(self, planned: Planned, places: list[int]) -> tuple[Optional[int], list[int]]:
        return None, []  # they count in the shard

    def _collation(self, planned: Planned) -> str:
        return f"collate_fn, at {self._batch_in_words(planned)}"

    def _quarantine(self, sample: Optional[Sample], causes: list[str]) -> int:
        return 0
