# The module of worker processes (core/worker_module.cpp), which imports neither sessions nor CUDA. Used by worker.py and _loading.py.
from typing import Callable, Optional, Sequence

from penstock._core import MemoryBlock as MemoryBlock  # the same interface; each module has its own class
from penstock._parts import Part

class Call:
    """One call of a job; every use after it raises."""

    @property
    def argument(self) -> MemoryBlock: ...
    @property
    def job(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def worker(self) -> int: ...
    def describe(self, work: str) -> None: ...
    def reserve(self, bytes: int) -> int: ...
    def finish(self, bytes: int) -> None: ...
    def give(self, parts: Sequence[Part]) -> None: ...

def fill_twister(address: int, seed: int) -> None:
    """Writes the state of a Mersenne Twister: 625 words of 32 bits, the index of the next one and then 624 made from a seed (64 bits)."""

def session_file(number: int) -> int:
    """On a loader host, during a job: the descriptor of a file that the program has published. The caller closes it."""

def job_loop(run: Callable[[Call], Optional[tuple[bytes, bytes, bytes]]]) -> int: ...
def fork_on_order(socket: int, unsafe: Callable[[], str]) -> int:
    """Makes this process a template, which forks workers as the session orders. Returns in each of them, with its number. `unsafe` says
    before each fork why this process must not be forked; "" if it may."""
