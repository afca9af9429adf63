"""A digest of a batch's content: the worker computes it before the batch enters its slot, and the caller compares it.

For PENSTOCK_VERIFY_BATCHES=1 (docs/python.md). Used by _loading.py in workers and by _loader.py.
"""

import collections.abc
import hashlib
import os
import pickle
import sys
from typing import Any

import torch

__all__ = ["digest", "is_verified"]


def is_verified() -> bool:
    """Whether loaders of this process verify their batches."""
    return os.environ.get("PENSTOCK_VERIFY_BATCHES", "0") not in ("", "0")


def digest(batch: Any) -> bytes:
    """A 16-byte digest of structure, types, shapes and contents. For objects of other classes it hashes the attributes, or else the
    pickle."""
    state = hashlib.blake2b(digest_size=16)
    _add(state, batch)
    return state.digest()


def _add(state: Any, value: Any) -> None:
    numpy = sys.modules.get("numpy")
    state.update(f"{type(value).__qualname__}(".encode())
    if isinstance(value, torch.Tensor):
        _add_tensor(state, value)
    elif numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        state.update(f"{value.dtype.str}{value.shape}".encode())
        state.update(numpy.ascontiguousarray(value).tobytes())
    elif isinstance(value, (int, float, complex, str, bytes, type(None))):
        state.update(repr(value).encode("utf-8", "surrogatepass"))
    elif isinstance(value, collections.abc.Mapping):
        for key, each in value.items():
            _add(state, key)
            _add(state, each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _add(state, each)
    elif getattr(value, "__dict__", None):
        _add(state, vars(value))
    else:
        state.update(pickle.dumps(value, protocol=5))
    state.update(b")")


def _add_tensor(state: Any, value: Any) -> None:
    state.update(f"{value.dtype}{tuple(value.shape)}".encode())
    if value.layout is not torch.strided or value.is_nested or value.is_quantized:
        state.update(repr(value).encode())
        return
    flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.numel():
        state.update(flat.view(torch.uint8).numpy())
