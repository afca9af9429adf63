"""What a program's own sampler draws its order from, besides torch's generators: the generators of Python and NumPy, generators in its
attributes, and its state_dict(). Used by _progress.py, which saves it just before the order is drawn."""

import contextlib
import copy
import random
import sys
from collections.abc import Iterator
from typing import Any, Optional

import torch
import torch.utils.data.distributed

__all__ = ["kept", "restore", "saved"]

_DEEPEST = 8  # how many samplers may be wrapped around each other
# Their orders depend only on an epoch and on generators, which are saved elsewhere.
_ORDERED_BY_TORCH = (
    torch.utils.data.distributed.DistributedSampler, torch.utils.data.RandomSampler, torch.utils.data.SequentialSampler,
    torch.utils.data.BatchSampler,
)


def saved(loader: Any, known: list[Any]) -> Optional[dict[str, Any]]:
    """What the sampler draws its order from, as plain values. None for torch's own samplers, which draw from torch's
    generators.

    Args:
        known: generators that are saved elsewhere.
    """
    samplers = list(_samplers_of(loader))
    if not samplers:
        return None
    own = [
        {
            "generators": {name: _state_of(generator) for name, generator in _generators_of(sampler, known)},
            "state": copy.deepcopy(sampler.state_dict()) if _has_state(sampler) else None,
        }
        for sampler in samplers
    ]
    return {**_of_program(), "samplers": own}


def restore(loader: Any, state: Optional[dict[str, Any]], known: list[Any]) -> None:
    if state is None:
        return
    _set_program(state)
    for sampler, own in zip(_samplers_of(loader), state["samplers"]):
        for name, generator in _generators_of(sampler, known):
            if name in own["generators"]:
                _set_state(generator, own["generators"][name])
        if own["state"] is not None and _has_state(sampler):
            sampler.load_state_dict(copy.deepcopy(own["state"]))


@contextlib.contextmanager
def kept(state: Optional[dict[str, Any]]) -> Iterator[None]:
    """Python's and NumPy's generators belong to the program: they get their states back, if restore(state) changes them."""
    before = None if state is None else _of_program()
    try:
        yield
    finally:
        if before is not None:
            _set_program(before)


def _samplers_of(loader: Any) -> Iterator[Any]:
    """The samplers that are neither torch's nor plain lists, the outermost first."""
    each = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    for _ in range(_DEEPEST):
        if each is None:
            return
        module = type(each).__module__
        if module != "builtins" and not module.startswith("torch.utils.data"):
            yield each
        each = getattr(each, "sampler", None)


def _has_state(sampler: Any) -> bool:
    """Whether the sampler's state_dict() may define its order. Not in a subclass of torch's samplers, such as torchdata's: there
    the state is a position. The loader skips what was delivered, and a restored sampler would skip it again."""
    return (
        not isinstance(sampler, _ORDERED_BY_TORCH)
        and callable(getattr(sampler, "state_dict", None)) and callable(getattr(sampler, "load_state_dict", None))
    )


def _generators_of(sampler: Any, known: list[Any]) -> list[tuple[str, Any]]:
    numpy = sys.modules.get("numpy")
    kinds: tuple[Any, ...] = (torch.Generator, random.Random)
    if numpy is not None:
        kinds = (*kinds, numpy.random.Generator, numpy.random.RandomState)
    return [
        (name, each)
        for name, each in sorted(getattr(sampler, "__dict__", {}).items())
        if isinstance(each, kinds) and not any(each is other for other in known)
    ]


# ---- states as plain values ------------------------------------------------------------------------------------------


def _of_program() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    return {"python": random.getstate(), "numpy": None if numpy is None else _plain(numpy.random.get_state(legacy=False))}


def _set_program(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    if state["numpy"] is not None:
        import numpy

        numpy.random.set_state(_arrays(state["numpy"]))


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = _arrays(state)
    else:
        generator.set_state(_arrays(state))


def _plain(value: Any) -> Any:
    """The value with its arrays turned into lists, because torch.load(weights_only=True) refuses arrays."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return {"array": value.tolist(), "dtype": value.dtype.str} if hasattr(value, "dtype") else value


def _arrays(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"array", "dtype"}:
        import numpy

        return numpy.array(value["array"], value["dtype"])
    return {key: _arrays(each) for key, each in value.items()}
