# What the module _worker defines; private, for penstock.worker.
from typing import Any, Callable, Optional

def job_loop(
    run: Callable[[memoryview, Callable[[list[Any]], None], int, int], Optional[tuple[bytes, bytes, bytes]]],
) -> int: ...
