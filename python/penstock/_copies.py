"""Handles loaders that libraries make from the attributes of a penstock.torch.DataLoader: accelerate's prepare(), and with it
transformers' Trainer.

Such a library reads torch's arguments back from a loader and makes a torch.utils.data.DataLoader of them, whose workers are not
supervised. One of these arguments is the multiprocessing context: ours remembers how its loader was made. accelerate gets a loader of our
class from it; with other libraries, the first process that a plain loader starts with this context triggers a warning. Used by torch.py.
"""

import functools
import sys
import warnings
from multiprocessing.context import BaseContext
from typing import Any

import torch
import torch.multiprocessing
import torch.utils.data

__all__ = ["Context", "context_of"]

# torch's arguments for making the loader again, besides its dataset and batches.
_KEPT = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor")
_KEPT_BY_NEWER = ("persistent_workers", "pin_memory_device", "in_order")


class Context(BaseContext):
    """The multiprocessing context that a loader reports; otherwise behaves like `origin.original`, or torch's usual one.

    Attributes:
        origin: the loader's class and arguments.
    """

    def __init__(self, origin: "Origin") -> None:
        self.origin = origin

    def __getattribute__(self, name: str) -> Any:
        if name == "origin" or name.startswith("__"):
            return super().__getattribute__(name)
        if name == "Process":
            _warn()
        return getattr(self.origin.original or torch.multiprocessing, name)

    def __reduce__(self) -> Any:
        return (type(None), ()) if self.origin.original is None else self.origin.original.__reduce__()


class Origin:
    """A loader's class, its own arguments, and the multiprocessing context that it was given."""

    def __init__(self, kind: type, options: dict[str, Any], original: Any) -> None:
        self.kind, self.options, self.original = kind, options, original


def context_of(kind: type, options: dict[str, Any], original: Any) -> Context:
    """The context that callers get when they read a loader's multiprocessing context."""
    adapter = getattr(sys.modules.get("accelerate.data_loader"), "DataLoaderAdapter", None)
    if adapter is not None and not hasattr(adapter.__init__, "penstock"):
        adapter.__init__ = _adapting(adapter.__init__)
    return Context(Origin(kind, options, original))


def _adapting(original: Any) -> Any:
    """accelerate's adapter: replaces a plain loader, made from one of ours, by a loader of our class."""

    @functools.wraps(original)
    def adapt(adapter: Any, *args: Any, **kwargs: Any) -> None:
        original(adapter, *args, **kwargs)
        plain = adapter.base_dataloader
        if type(plain) is torch.utils.data.DataLoader and isinstance(plain.multiprocessing_context, Context):
            adapter.base_dataloader = made_again(plain)
            adapter.dl_state_dict = adapter.base_dataloader.state_dict()

    adapt.penstock = True  # type: ignore[attr-defined]
    return adapt


def made_again(plain: Any) -> Any:
    """A loader of our class with the arguments of this one."""
    origin = plain.multiprocessing_context.origin
    arguments = {name: getattr(plain, name) for name in _KEPT}
    arguments.update({name: getattr(plain, name) for name in _KEPT_BY_NEWER if hasattr(plain, name)})
    if isinstance(plain.dataset, torch.utils.data.IterableDataset):
        arguments.update(batch_size=plain.batch_size, drop_last=plain.drop_last)
    elif plain.batch_sampler is not None:
        arguments.update(batch_sampler=plain.batch_sampler)
    else:
        arguments.update(batch_size=None, sampler=plain.sampler)
    return origin.kind(plain.dataset, **arguments, **origin.options)


_warned = False


def _warn() -> None:
    global _warned
    if _warned:
        return
    _warned = True
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("penstock.", "torch.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        "a library has made a plain torch.utils.data.DataLoader out of a penstock.torch.DataLoader: its workers are not supervised, and one "
        "that dies ends the run. Make the loader where the library makes it, with penstock.torch.DataLoader in place of torch's class",
        stacklevel=level,
    )
