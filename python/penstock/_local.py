"""A penstock.torch.DataLoader's pass without workers: torch's own, which also records its position. Used by torch.py."""

import importlib
from typing import Any

from penstock import _progress, _shards
from penstock._device import ToDevice

__all__ = ["LocalPass"]

torch_loader: Any = importlib.import_module("torch.utils.data.dataloader")


class LocalPass(torch_loader._SingleProcessDataLoaderIter):  # type: ignore[misc]
    """torch's own pass, which also records its position."""

    def __init__(self, loader: Any) -> None:
        self._progress = loader._begin()
        self._dataset_ended = False
        behind = self._went_on(loader.dataset)  # must come before torch calls iter(dataset)
        super().__init__(loader)
        self._to_device = None if loader.device is None else ToDevice(loader.device, 2)
        self._group = loader.group
        self._iterable = self._dataset_kind == torch_loader._DatasetKind.Iterable
        if self._progress.base_seed is None:
            self._progress.base_seed = self._base_seed
        self._ahead = self._progress.batches - behind if self._iterable else 0
        self._first: list[Any] = []  # what resumed_behind_end() has found
        self._has_state = self._iterable and _shards.has_state(self._dataset)
        if self._dataset_ended:
            self._dataset_fetcher.ended = True
        _progress.order_is_drawn(loader, self._progress)
        self._sampler_iter = iter(self._index_sampler)
        if not self._iterable:
            self._sampler_iter = _progress.skipped(loader, self._progress, self._sampler_iter)
        self._left = _progress.batches_left(loader, self._progress)  # None if unknown

    def resumed_behind_end(self) -> bool:
        """Whether this resumes an epoch of an iterable dataset, and that epoch has no batches left."""
        if not self._iterable or self._progress.resumed is None:
            return False
        try:
            self._first.append(self._fetched())
        except StopIteration:
            return True
        return False

    def _fetched(self) -> Any:
        while self._ahead:  # already delivered
            super()._next_data()
            self._ahead -= 1
        return super()._next_data()

    def _went_on(self, dataset: Any) -> int:
        """Restores an iterable dataset's own state, if it has one. Returns the number of batches skipped."""
        resumed = self._progress.resumed
        if resumed is None or resumed["shards"] is None or not _shards.has_state(dataset):
            return 0
        (state,) = _progress.shard_states(resumed["shards"], 1)
        if state is None:
            return 0
        self._dataset_ended = state.ended
        return state.go_on(dataset)

    def _next_index(self) -> Any:
        self._index = super()._next_index()
        return self._index

    def _next_data(self) -> Any:
        if self._group is not None:
            self._group.check()
        try:
            data = self._first.pop() if self._first else self._fetched()
        except StopIteration:
            self._progress.finished = True
            raise
        self._progress.delivered(len(self._index) if self._auto_collation else 1)
        if self._iterable:
            self._progress.shards = {"given": [self._progress.batches], "active": [True], "next": 0}
            if self._has_state:
                ended = self._dataset_fetcher.ended
                self._progress.shards["states"] = [_shards.state_of(self._dataset, self._progress.batches, self._progress.samples, ended)]
        elif self._left is not None:
            self._left -= 1
            self._progress.finished = self._left == 0
        return data if self._to_device is None else self._to_device(data)
