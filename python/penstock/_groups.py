"""Groups: the ranks that a launcher (torchrun, penstock launch, srun, mpirun) has started find each other.

Used by programs (penstock.Group), and by penstock.torch.DataLoader(..., group=True), whose part is at the end.
"""

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Optional, Union

from penstock import _group
from penstock._errors import config_error, usage_error

__all__ = ["Communicator", "Group"]

_ON_LOST_RANK = ("fail", "wait")
_COMMUNICATORS = ("none", "nccl")


class Communicator:
    """NCCL between the GPUs of a group's ranks: Group.communicator. Used in `with` blocks:

        with group.communicator as nccl:              # waits until there is one
            number = nccl.number
            all_reduce = ctypes.CFUNCTYPE(ctypes.c_int, ...)(nccl.function("ncclAllReduce"))
            nccl.check(all_reduce(..., nccl.handle, stream), "ncclAllReduce")
        stream.synchronize()                          # outside: work that waits for a lost rank is aborted once no block is open
        if group.communicator.is_lost(number): ...    # discard the result

    All ranks call the same functions in the same order. A block that stays open for abort_timeout after a loss ends the group.
    The rules are the same as in C++: penstock/nccl.hpp.

    Raises, on entering a block and in check():
        group_failed_error: the group has failed, with the first cause. Or the communicator is lost and the group continues
            (on_lost_rank="wait", or an error of NCCL): raised once for each lost communicator; the next block waits for a new one.
        timed_out_error: there was no communicator for a long time; the message says what was wrong with the last one.
    """

    def __init__(self, core: _group.Group) -> None:
        self._core = core
        self._use: Optional[_group.Use] = None

    def __enter__(self) -> "Communicator":
        if self._use is not None:
            raise usage_error("the communicator is already in use: its `with` blocks cannot be nested")
        self._use = self._core.use()
        return self

    def __exit__(self, *why: object) -> None:
        use, self._use = self._use, None
        if use is not None:
            use.end()

    def _open(self) -> _group.Use:
        if self._use is None:
            raise usage_error("the communicator can be used only in a `with` block")
        return self._use

    @property
    def handle(self) -> int:
        """The ncclComm_t, as a number."""
        return self._open().handle

    @property
    def number(self) -> int:
        """The communicator's number: the same on all ranks, and higher for each new one."""
        return self._open().number

    def function(self, name: str) -> int:
        """The address of a function of the library that penstock has loaded (PENSTOCK_NCCL, or libnccl.so.2), for ctypes."""
        return self._open().function(name)

    def check(self, status: int, what: str = "NCCL") -> None:
        """Checks the value that an NCCL function returned. The function may have returned early: waits until NCCL has accepted the call."""
        self._open().check(status, what)

    def is_lost(self, number: int) -> bool:
        """Whether communicator `number` is lost: work that used it may have stopped half-way."""
        return self._core.is_lost(number)


class Group:
    """This program as a rank of a group: its number, barriers, small all-gathers, and the first cause when a rank is lost.

        with penstock.Group("train", agree={"seed": 7}) as group:      # returns when all ranks have arrived
            losses = group.all_gather(struct.pack("d", loss))
            group.barrier()

    All ranks must call barriers and all-gathers in the same order. Use them for control, and torch.distributed for tensors.
    A thread of penstock answers the other ranks without the GIL, so a program that computes for minutes does not count as lost.

    Args:
        name: the same in all ranks; distinguishes the groups of one job.
        agree: values that must be equal in all ranks, by name; compared as text. If they differ, all ranks fail at the start with both
            values.
        on_lost_rank: "fail": a lost rank ends the group in all others. "wait": this program can rejoin: the others wait for the
            process that its launcher starts again.
        join_timeout, lost_after, rejoin_timeout: seconds: how long to wait for all ranks to arrive, how long a rank may be silent before it
            counts as lost, and how long the others wait for a lost rank.
        secret_file: file with the secret that ranks on several hosts share; PENSTOCK_GROUP_SECRET works as well.
        insecure: allow several hosts without a secret.
        collectives: how many collective operations this rank had completed when it saved the state from which it resumes.
        communicator: "nccl": the ranks share a communicator of NCCL, see `communicator`. One GPU for each rank: the current one
            (torch.cuda.set_device), or else that with the number local_rank.
        abort_timeout: seconds that an abort of the communicator waits for its users.

    Raises:
        config_error: no launcher has started this program (the message names the known ones), or there is no GPU for the communicator.
        group_failed_error: the ranks differ, or one did not arrive (names it).
    """

    def __init__(
        self,
        name: str = "program",
        *,
        agree: Optional[Mapping[str, object]] = None,
        on_lost_rank: str = "fail",
        join_timeout: float = 120.0,
        lost_after: float = 10.0,
        rejoin_timeout: float = 600.0,
        secret_file: Union[str, "os.PathLike[str]"] = "",
        insecure: bool = False,
        collectives: int = 0,
        communicator: str = "none",
        abort_timeout: float = 10.0,
    ) -> None:
        if communicator not in _COMMUNICATORS:
            raise config_error(f"communicator is {communicator!r}: it must be one of {', '.join(_COMMUNICATORS)}")
        if on_lost_rank not in _ON_LOST_RANK:
            raise config_error(f"on_lost_rank is {on_lost_rank!r}: it must be one of {', '.join(_ON_LOST_RANK)}")
        leaving = _LEAVING.get(name)
        if leaving is not None:
            leaving.join()
        if name in _NAMES:
            raise usage_error(
                f"this program is already in the group {name!r}: give each of its groups, and each loader with group=True, its own name="
            )
        self.name = name
        self._pid = os.getpid()
        pairs = [(str(key), str(value)) for key, value in (agree or {}).items()]
        self._core = _group.join(
            name,
            on_lost_rank == "wait",
            join_timeout,
            lost_after,
            rejoin_timeout,
            os.fspath(secret_file),
            insecure,
            collectives,
            pairs,
            communicator == "nccl",
            abort_timeout,
        )
        self._communicator = Communicator(self._core) if communicator == "nccl" else None
        _NAMES.add(name)
        self._closed = False
        _LIVING.add(self)

    @property
    def rank(self) -> int:
        """The number of this rank: 0, 1, .."""
        return self._core.rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._core.world_size

    @property
    def local_rank(self) -> int:
        """This rank's number among the ranks of its host, and the number of its GPU. config_error if the launcher does not say."""
        return self._core.local_rank

    @property
    def collectives(self) -> int:
        """The number of completed collective operations."""
        return self._core.collectives

    @property
    def all_gather_max(self) -> int:
        """The maximum number of bytes that each rank may pass to all_gather()."""
        return self._core.all_gather_max

    @property
    def communicator(self) -> Optional[Communicator]:
        """NCCL between the GPUs of all ranks; None if none was requested."""
        return self._communicator

    def barrier(self, timeout: float = 600.0) -> None:
        """Waits until all ranks have entered the barrier. Ctrl-C interrupts the wait, and the next call continues it.

        Raises:
            group_failed_error: a rank is lost, has left, or is in another operation: the first cause, with rank, host and pid.
            timed_out_error: names the ranks that have not entered it; the same call continues.
        """
        self._core.barrier(timeout)

    def all_gather(self, own: bytes, timeout: float = 600.0) -> list[bytes]:
        """Returns what each rank passed, by rank. Contents and sizes may differ. Otherwise like barrier().

        Raises:
            usage_error: more than all_gather_max bytes.
        """
        return self._core.all_gather(bytes(own), timeout)

    def check(self) -> None:
        """Raises group_failed_error with the first cause if the group has failed. Does not wait."""
        self._core.check()

    def fail(self, why: str) -> None:
        """Ends the group in all ranks with this cause, because this rank cannot continue."""
        self._core.fail(why)

    def close(self) -> None:
        """Leaves the group. Rank 0 waits until all have left, because it coordinates them; with a communicator every rank
        waits. Ctrl-C works, and the next call continues. Also called at the end of a `with` block and at the interpreter's exit; an
        exception that ends the block is then the group's first cause.

        With a communicator: wait for the last work, check is_lost(), call barrier(), then close. Without the barrier, the other ranks'
        communicator is aborted `lost_after` later, and is_lost() is then true even for completed work.
        """
        if self._closed or self._pid != os.getpid():
            return
        self._core.close()
        self._closed = True
        _NAMES.discard(self.name)

    def __del__(self) -> None:
        # Rank 0 may have to wait for others, which may wait for what this thread does next.
        if not getattr(self, "_closed", True) and self._pid == os.getpid():
            self._closed = True
            core, name = self._core, self.name

            def leave() -> None:
                core.close()
                _NAMES.discard(name)
                _LEAVING.pop(name, None)

            _LEAVING[name] = threading.Thread(target=leave, name="penstock-group", daemon=True)
            _LEAVING[name].start()

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> "Group":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if value is not None and not self._closed:
            self._core.fail(in_words(value))
        self.close()

    def __repr__(self) -> str:
        return f"<penstock.Group {self.name!r}: rank {self.rank} of {self.world_size}>"


def in_words(why: BaseException) -> str:
    return f"{type(why).__name__}: {why}"[:1000]


_NAMES: set[str] = set()
_LEAVING: dict[str, threading.Thread] = {}  # threads that leave the groups of garbage-collected objects, by name
_LIVING: "weakref.WeakSet[Group]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Set when an exception has just ended the program.
    why = getattr(sys, "last_value", None)
    for group in list(_LIVING):
        if group._closed or group._pid != os.getpid():
            continue
        if isinstance(why, BaseException):
            group._core.fail(in_words(why))
        group.close()
    for thread in list(_LEAVING.values()):
        thread.join()


# ---- loaders --------------------------------------------------------------------------------------------------------


def group_of(loader: Any) -> Group:
    """Joins the group of a penstock.torch.DataLoader: ranks must agree on everything that their batches depend on. Only the
    DistributedSampler's rank differs; its rank and number of replicas must be the group's."""
    from penstock import _progress

    agree = {f"the loader's {name}": value for name, value in _progress.facts_of(loader).items()}
    agree["the loader's batch_size"] = loader.batch_size
    agree["the loader's drop_last"] = loader.drop_last
    try:
        agree["the loader's number of batches"] = len(loader)
    except TypeError:
        pass  # an iterable dataset without a length
    sampler = _progress._sampler_of(loader)
    replicas, rank = getattr(sampler, "num_replicas", None), getattr(sampler, "rank", None)
    if isinstance(replicas, int) and isinstance(rank, int):  # a DistributedSampler
        agree.update({f"the sampler's {name}": getattr(sampler, name, None) for name in ("num_replicas", "seed", "shuffle")})
    name = loader._options["name"] or "loader"
    group = Group(name, agree=agree)
    if isinstance(replicas, int) and isinstance(rank, int) and (rank, replicas) != (group.rank, group.world_size):
        why = f"its sampler is for rank {rank} of {replicas}, and this program is rank {group.rank} of {group.world_size}"
        group.fail(why)
        group.close()
        raise config_error(f"the loader {name!r} cannot join its group: {why}")
    return group
