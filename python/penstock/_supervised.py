"""Implements penstock.torch.DataLoader: its passes over worker processes, and its position. Its arguments are in torch.py."""

import copy
import os
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.utils.data

from penstock._membership import Membership
from penstock._progress import Position, Progress, facts_of, program_generator_kept

__all__ = ["OwnGenerator", "SupervisedLoader"]

_context_of_torch: Any = torch.utils.data.DataLoader.multiprocessing_context


class OwnGenerator(torch.Generator):
    """The generator that a loader makes for `seed` and seeds for each epoch. A loader that a library makes from the attributes of
    this one gets it too."""


class SupervisedLoader(torch.utils.data.DataLoader[Any]):  # type: ignore[misc,unused-ignore]
    """torch's loader, whose iterators are passes over the workers of a pool."""

    def _keep(self, options: dict[str, Any]) -> None:
        """Call before torch's __init__, with the arguments that are not torch's."""
        self._options = options
        self._position = Position()
        self._membership = Membership(options["group"])
        self._quarantine: Any = None  # made when it is needed
        self._workers: Any = None

    @property
    def multiprocessing_context(self) -> Any:
        """The context, as in torch. It also carries what a library needs when it makes a loader from the attributes of this one."""
        given = _context_of_torch.fget(self)
        if self._loads_here:
            return given
        from penstock._copies import context_of

        return context_of(self._kind_of_copies(), self._options, given)

    @multiprocessing_context.setter
    def multiprocessing_context(self, given: Any) -> None:
        from penstock._copies import Context

        _context_of_torch.fset(self, given.origin.original if isinstance(given, Context) else given)

    def check_worker_number_rationality(self) -> None:
        """torch's constructor calls this, and warns of more workers than cores. Workers that wait for storage need no core, and a loader
        cannot freeze: `penstock why` measures whether other numbers of workers would help."""

    @property
    def _loads_here(self) -> bool:
        """Whether this process loads the samples itself, without workers."""
        return self.num_workers == 0 and self._options["hosts"] is None

    @property
    def hosts_join_at(self) -> Optional[str]:
        """The address where hosts join: hosts="0.0.0.0:0" takes any free port. Starts the workers. None without hosts that join."""
        return None if self._options["hosts"] is None else self._workers_here().pool.hosts_join_at

    def _kind_of_copies(self) -> type:
        """The class that takes the arguments in `_options`."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies and pickles: without what belongs to this process, and with its own position."""
        own = {"_position": copy.copy(self._position), "_membership": copy.copy(self._membership)}
        return {**self.__dict__, **own, "_workers": None, "_iterator": None, "_quarantine": None}

    # ---- position -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was delivered: for load_state_dict() of a loader over the same dataset, in this
        process or another one. It holds a few numbers, and the states of random generators, whatever the dataset's size.

        Raises:
            usage_error: within an epoch with in_order=False.
        """
        return self._position.state_of(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration resumes from this state: the same samples in the same order with the same randomness, even with a
        different number of workers or another batch size. The shards of an iterable dataset need the same number of workers. If
        the dataset has state_dict() and load_state_dict(), each shard resumes from its own state; otherwise it is iterated again,
        and the loader drops what was delivered.

        Raises:
            state_mismatch_error: the state belongs to another dataset or sampler; the message names the differences.
        """
        self._position.resume_from(self, state)

    @property
    def _own_generator(self) -> Any:
        """The generator made for `seed`; None without a seed."""
        return self.generator if self._options["seed"] is not None and isinstance(self.generator, OwnGenerator) else None

    # ---- iterating ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override,unused-ignore]
        iterator: Any = self._iterator
        if iterator is not None and iterator._pool.pid != os.getpid():
            self._iterator = None  # a persistent iterator that was made before a fork
        with program_generator_kept(self._position.resume):
            iterator = super().__iter__()
        if iterator.resumed_behind_end():
            iterator = super().__iter__()
        return iterator  # type: ignore[no-any-return]

    def _get_iterator(self) -> Any:
        from penstock._loader import IterablePass, MapPass
        from penstock._local import LocalPass

        if self.group is not None:
            self.group.check()
        if self._loads_here:
            return LocalPass(self)
        return IterablePass(self) if isinstance(self.dataset, torch.utils.data.IterableDataset) else MapPass(self)

    def _begin(self) -> Progress:
        """An epoch."""
        return self._position.begin(self)

    @property
    def group(self) -> Any:
        """The penstock.Group of this loader and the loaders of the other ranks. The first call joins it, and every rank has to
        make that call. None without group=True, and in a forked process."""
        return self._membership.group_of(self)

    def _quarantine_here(self) -> Any:
        if self._quarantine is None:
            from penstock._quarantine import Quarantine

            self._quarantine = Quarantine(self._options["quarantine"], self._fingerprint())
        return self._quarantine

    def _fingerprint(self) -> str:
        """Identifies the dataset that the entries of a quarantine belong to."""
        from penstock._quarantine import fingerprint_of

        facts = facts_of(self)
        return fingerprint_of(self.dataset, facts["dataset"], facts["length"])

    def _workers_here(self) -> Any:
        """The worker processes that belong to this process."""
        from penstock._workers import Workers

        if self._workers is None or self._workers.pid != os.getpid():
            name = self._membership.name_of_workers(self._options["name"])
            device = self._options["device"]
            hosts = (self._options["hosts"], self._options["hosts_secret_file"])
            device = None if device is None else torch.device(device)
            iterable = isinstance(self.dataset, torch.utils.data.IterableDataset)
            here = 0 if iterable and hosts[0] is not None else self.num_workers  # with hosts, only their workers load shards
            self._workers = Workers(here, name, device, self._options["pool"] or {}, *hosts)
        return self._workers
