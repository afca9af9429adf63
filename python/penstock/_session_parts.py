"""The parts of a Session other than its batches: commands to its workers, and its rank in a group. Used by _session.py."""

from typing import TYPE_CHECKING, Optional, Union

from penstock import _core
from penstock._arguments import LARGEST_WORKER, NUMBER_OF_WORKERS, whole_number
from penstock._errors import usage_error

if TYPE_CHECKING:
    from penstock._groups import Group

__all__ = ["Controlled", "Ranked"]

NUMBER_OF_A_WORKER = "pass a worker's number, as status() lists them"
NUMBER_OF_A_SAMPLE = "pass a sample's index in the dataset"


class Controlled:
    """The commands of an operator. Any thread may call."""

    _core: _core.Session

    def pause(self) -> None:
        """Hands out no new work until resume()."""
        self._core.pause()

    def resume(self) -> None:
        """The opposite of pause()."""
        self._core.resume()

    def scale(self, workers: "Union[int, str]") -> None:
        """Changes the number of workers; surplus ones finish what they hold. Does not wait.

        Args:
            workers: a number, which ends tuning, or "auto", which starts it.

        Raises:
            usage_error: outside 1 .. [loader.limits] max.
            out_of_memory_error: their slots do not fit.
        """
        if workers == "auto":
            self._core.scale_automatically()
        else:
            self._core.scale(whole_number(workers, "workers", NUMBER_OF_WORKERS + ', or "auto"', most=LARGEST_WORKER))

    def restart(self, worker: int) -> None:
        """The worker finishes what it holds and is replaced. Raises usage_error if there is no such worker."""
        self._core.restart(whole_number(worker, "worker", NUMBER_OF_A_WORKER, most=LARGEST_WORKER))

    def drain(self, worker: int) -> None:
        """The worker finishes what it holds, and its place stays empty until scale() or restart()."""
        self._core.drain(whole_number(worker, "worker", NUMBER_OF_A_WORKER, most=LARGEST_WORKER))

    def retry_quarantined(self, sample: int) -> bool:
        """Ends a sample's quarantine: the session may load it again from its current position on. False: the sample is not
        quarantined."""
        return self._core.retry_quarantined(whole_number(sample, "sample", NUMBER_OF_A_SAMPLE))

    def release_quarantined(self, sample: int) -> bool:
        """Like retry_quarantined(), but also removes the sample from the [quarantine] file."""
        return self._core.release_quarantined(whole_number(sample, "sample", NUMBER_OF_A_SAMPLE))


class Ranked:
    """A rank of a group, with Session(..., group=True)."""

    _group: "Optional[Group]"

    @property
    def group(self) -> "Group":
        """The group that this session has joined. Raises usage_error without group=True."""
        if self._group is None:
            raise usage_error("this session is in no group: make it with Session(..., group=True)")
        return self._group

    @property
    def rank(self) -> int:
        """This session's rank in its group."""
        return self.group.rank

    @property
    def world_size(self) -> int:
        """How many ranks its group has."""
        return self.group.world_size

    def barrier(self, timeout: float = 600.0) -> None:
        """Waits until all ranks have entered the barrier: Group.barrier()."""
        self.group.barrier(timeout)

    def all_gather(self, own: bytes, timeout: float = 600.0) -> list[bytes]:
        """Returns what each rank passed, by rank: Group.all_gather()."""
        return self.group.all_gather(own, timeout)
