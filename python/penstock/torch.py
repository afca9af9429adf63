"""penstock.torch.DataLoader: torch's DataLoader with workers that may crash, hang or be killed, at no cost.

    from penstock.torch import DataLoader      # instead of torch.utils.data

    for images, labels in DataLoader(dataset, batch_size=32, shuffle=True, num_workers=8):
        ...
"""

import os
from typing import Any, Callable, Optional, Union

import torch
import torch.utils.data

from penstock._errors import config_error

__all__ = ["DataLoader"]

_ON_BAD_SAMPLE = ("raise", "skip", "replace")


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[misc,type-arg,unused-ignore]
    """torch.utils.data.DataLoader, whose workers are supervised: what dies is replaced, and its batch loaded again.

    It takes torch's arguments, has torch's attributes, and is a subclass of it. Workers are executed, not forked: the dataset is
    pickled (cloudpickle: lambdas and classes of __main__ may be in it), and lies in memory once for all workers. They
    live as long as the loader. With num_workers=0 torch's own loader works in this process.

    Args:
        device: where tensors of the batches are moved to, with Tensor.to(device, non_blocking=True); None: they stay.
        on_bad_sample: what to do with a sample that kills every worker that tries it; "raise": penstock.sample_error, which
            names its index; "skip": its batch comes without it; "replace": another sample of the batch comes twice. With "skip"
            and "replace" this goes for samples that raise, too; a batch of which nothing is left does not come.
        seed: of the samples' randomness, and of shuffle's; None: drawn from `generator` for each epoch, as torch does.
        seeding: "sample": the global generators of Python, NumPy and torch are seeded before each sample, so that its randomness
            depends on seed, epoch and index only; "worker": once in each worker, as torch does, which is what
            happens anyway if worker_init_fn is given. None: "sample", unless worker_init_fn is given.
        name: of the loader for `penstock status`, `top` and the other verbs.
        pool: further options of the pool of workers, as for penstock.Pool: {"loader": {"limits": {"memory": "4GiB"}}}.

    Raises:
        ValueError, TypeError: as torch does; config_error (a ValueError) for the arguments above.
    """

    def __init__(
        self,
        *args: Any,
        device: Optional[Union[str, torch.device]] = None,
        on_bad_sample: str = "raise",
        seed: Optional[int] = None,
        seeding: Optional[str] = None,
        name: str = "loader",
        pool: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        if on_bad_sample not in _ON_BAD_SAMPLE:
            raise config_error(f"on_bad_sample is {on_bad_sample!r}: it is one of {', '.join(_ON_BAD_SAMPLE)}")
        if seeding not in (None, "sample", "worker"):
            raise config_error(f'seeding is {seeding!r}: it is "sample", "worker" or None')
        self.device = None if device is None else torch.device(device)
        self.on_bad_sample = on_bad_sample
        self.seed = seed
        self._name, self._pool_options = name, dict(pool or {})
        self._workers: Any = None
        self._epoch = -1
        super().__init__(*args, **kwargs)
        self.seeding = seeding or ("worker" if self.worker_init_fn is not None else "sample")

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return super()._get_iterator()
        from penstock._loader import Iterator

        return Iterator(self)

    def _workers_here(self) -> Any:
        """The worker processes, of this process."""
        from penstock._loader import Workers

        if self._workers is None or self._workers.pid != os.getpid():
            self._workers = Workers(self.num_workers, self._name, self._pool_options)
        return self._workers

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch
