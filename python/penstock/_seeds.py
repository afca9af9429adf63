"""Seeds the global generators of Python, NumPy and torch before each sample. Implements penstock.sample_rng().

A sample's seed depends on the loader's seed, the epoch and the sample's key alone: not on the worker, the number of workers, the
batch or crashes (rules P16 and P17). Used by _loading.py and _loader.py.
"""

import _random
import ctypes
import random
import sys
from collections.abc import Callable
from typing import Any, Optional

__all__ = ["SampleSeeds", "mixed", "sample_rng"]

MASK = (1 << 64) - 1

_current: Optional[int] = None  # the seed of the sample being loaded


def mixed(a: int, b: int) -> int:
    """A 64-bit hash of two numbers (SplitMix64's finaliser)."""
    z = (a ^ (b * 0x9E3779B97F4A7C15)) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def sample_rng() -> Any:
    """A generator for the sample being loaded: numpy.random.Generator, or random.Random without NumPy.

    Call it in a dataset's __getitem__ or in a transform. It depends on the loader's seed, the epoch and the sample alone. Each
    call within one sample restarts it. Outside a loader's worker it is seeded randomly.
    """
    try:
        import numpy
    except ImportError:
        return random.Random(_current)
    return numpy.random.Generator(numpy.random.PCG64(_current))


TwisterState = ctypes.c_uint32 * 625  # the index of the next word, then the words


def _state_address(generator: random.Random) -> Optional[int]:
    """The address where CPython keeps a generator's state: after the object's header. None if this interpreter keeps it elsewhere."""
    head = object.__basicsize__
    if (sys.implementation.name != "cpython" or type(generator) is not random.Random
            or _random.Random.__basicsize__ < head + ctypes.sizeof(TwisterState)):
        return None
    tried = random.Random(1)  # private, so no other thread draws from it
    words = tried.getstate()[1]
    seen = TwisterState.from_address(id(tried) + head)
    return id(generator) + head if tuple(seen) == (words[-1], *words[:-1]) else None


class PythonGenerator:
    """Sets a random.Random to a state derived from a seed alone.

    random.seed(seed) sets another state, and takes 3.6 us; this takes 0.5 us. (Everything else takes 7 us for a sample of 64 bytes.) If the
    interpreter keeps the state elsewhere, setstate() sets the same one, in 12 us.
    """

    def __init__(self, generator: random.Random) -> None:
        from penstock import _worker

        self._generator: Any = generator
        self._address = _state_address(generator)
        self._fill = _worker.fill_twister

    def __call__(self, seed: int) -> None:
        if self._address is not None:
            self._fill(self._address, seed)
            self._generator.gauss_next = None
        else:
            state = TwisterState()
            self._fill(ctypes.addressof(state), seed)
            self._generator.setstate((3, (*state[1:], state[0]), None))


class SampleSeeds:
    """Seeds the global generators for each sample in turn.

    Args:
        seed: the loader's seed in this epoch.
    """

    def __init__(self, seed: int) -> None:
        import torch

        self._seed = seed
        self._python = PythonGenerator(random._inst)  # type: ignore[attr-defined,unused-ignore]
        self._torch: Callable[[int], object] = torch.default_generator.manual_seed

    def __call__(self, key: int) -> None:
        global _current
        _current = seed = mixed(self._seed, key) >> 1  # fits an int64 tensor, as torch's seeds do
        self._python(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)
        self._torch(seed)

    @staticmethod
    def over() -> None:
        """Call after the last sample."""
        global _current
        _current = None
