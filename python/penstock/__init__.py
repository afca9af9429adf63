"""penstock feeds GPUs: supervised loader processes, one owner of the device, and the same stream of batches even if processes crash.

    import penstock

    with penstock.Session("photos.toml", loader={"workers": 8}) as session:
        for batch in session.epoch(0):
            image = batch["image"].torch()      # or .numpy(), or any DLPack consumer
            label = batch["label"].torch()

Contents:

Session         a pipeline described by a config file, as an iterator of batches
Batch, Tensor   what it yields: tensors in host or device memory, without copies where that is safe
Pool            worker processes that run functions: the concurrent.futures.Executor that never breaks
sample_rng      a generator for the sample that is being loaded, in datasets of penstock.torch.DataLoader
Group           the ranks of a job: barriers, small all-gathers, and the cause when a rank is lost
EventStream     a session's events for `async for`
load_config     reads and checks a config file; Config is the result
error           the base of all exceptions, with a subclass for each kind (penstock.config_error, ...)

penstock.torch has DataLoader: torch.utils.data.DataLoader, whose workers may crash. penstock.joblib is a backend for joblib.

Importing penstock loads no large module and does not touch the GPU; parts are loaded on first use.
"""

from typing import TYPE_CHECKING

from penstock import _errors
from penstock._errors import *  # noqa: F401,F403
from penstock._version import __version__ as __version__

if TYPE_CHECKING:
    from penstock._batch import Batch as Batch
    from penstock._batch import Tensor as Tensor
    from penstock._config import Config as Config
    from penstock._config import load_config as load_config
    from penstock._events import EventStream as EventStream
    from penstock._groups import Group as Group
    from penstock._future import Future as Future
    from penstock._pool import Pool as Pool
    from penstock._seeds import sample_rng as sample_rng
    from penstock._session import Epoch as Epoch
    from penstock._session import Session as Session

# Loaded on first use: worker processes import penstock too, and do not need these modules.
_PARTS = {
    "Batch": "penstock._batch",
    "Config": "penstock._config",
    "Epoch": "penstock._session",
    "EventStream": "penstock._events",
    "Future": "penstock._future",
    "Group": "penstock._groups",
    "Pool": "penstock._pool",
    "Session": "penstock._session",
    "Tensor": "penstock._batch",
    "load_config": "penstock._config",
    "sample_rng": "penstock._seeds",
}

__all__ = [
    "Batch",
    "Config",
    "Epoch",
    "EventStream",
    "Future",
    "Group",
    "Pool",
    "Session",
    "Tensor",
    "load_config",
    "sample_rng",
    *_errors.__all__,
]


def __getattr__(name: str) -> object:
    if name not in _PARTS:
        hint = ": it is penstock.torch.DataLoader, after `import penstock.torch`" if name == "DataLoader" else ""
        raise AttributeError(f"module 'penstock' has no attribute {name!r}{hint}")
    import importlib

    part = getattr(importlib.import_module(_PARTS[name]), name)
    globals()[name] = part
    return part


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
