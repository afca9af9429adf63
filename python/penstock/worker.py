"""The program of worker processes: `python -m penstock.worker`, executed by a Pool, never forked.

It needs no `if __name__ == "__main__"` in the caller's program: functions of __main__ travel by value. It sees no GPU,
its thread pools are one thread wide, and it loads neither a session nor CUDA.
"""

import os
import pickle
import sys
import traceback
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from penstock import _worker

__all__ = ["main"]

SETUP = "PENSTOCK_POOL_SETUP"  # the environment variable: a file with a pickle, see _begin()
LOADER = None  # instead of a function: a batch of penstock.torch.DataLoader
LONGEST_PICKLED_ERROR = 40_000  # a job's error has room for 64 KiB
LONGEST_TRACEBACK = 20_000  # so that the error itself has room, too


def main() -> None:
    """Serves the pool that started this process, until it is told to stop."""
    _begin()
    from penstock import _worker

    # Output that waits in a buffer would be lost with a crash.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    _ENVIRONMENT.update(_remembered())
    sys.exit(_worker.job_loop(_run))


def _begin() -> None:
    """Takes over the caller's import path and key of multiprocessing, then runs the pool's initializer."""
    file = os.environ.pop(SETUP, None)
    if file is None:
        return
    with open(file, "rb") as opened:
        path = pickle.load(opened)
        sys.path[:] = path
        key = pickle.load(opened)
        if key is not None:
            import multiprocessing

            multiprocessing.current_process().authkey = key
        initializer, arguments = pickle.loads(pickle.load(opened))
    if initializer is not None:
        initializer(*arguments)


_ENVIRONMENT: dict[Any, Any] = {}  # as the initializer has left it


def _remembered() -> dict[Any, Any]:
    environ: Any = os.environ
    return environ._data  # type: ignore[no-any-return]


def _restore_environment() -> None:
    """The process's own environment is restored between jobs by the loop; this is what os.environ remembers of it."""
    remembered = _remembered()
    if remembered != _ENVIRONMENT:
        remembered.clear()
        remembered.update(_ENVIRONMENT)


def _run(call: "_worker.Call") -> Optional[tuple[bytes, bytes, bytes]]:
    """One job. Gives its result, or returns what it raised: type, text, traceback."""
    from penstock import _parts

    try:
        function, positional, named = _parts.unpickled(_parts.split(call.argument))
        if function is LOADER:
            from penstock import _loading

            _loading.load(call, *positional)
            return None
        try:
            call.give(_parts.pickled_result(function(*positional, **named)))
        finally:
            _restore_environment()  # a loader's dataset keeps what it sets
    except BaseException as raised:  # SystemExit too: it ends the job, not the worker
        return _described(raised)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
    return None


def _described(raised: BaseException) -> tuple[bytes, bytes, bytes]:
    """The traceback is followed by the exception itself, pickled, if it can be."""
    # Without our own frame.
    told = "".join(traceback.format_exception(type(raised), raised, raised.__traceback__.tb_next if raised.__traceback__ else None))
    if len(told) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        told = f"{told[:half]}\n[{len(told) - 2 * half} characters left out]\n{told[-half:]}"
    try:
        text = str(raised)
    except Exception as failed:
        text = f"<str() of the exception raised {type(failed).__name__}>"
    kind = type(raised)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    shown = told.encode("utf-8", "backslashreplace")
    return name.encode("utf-8", "backslashreplace"), text.encode("utf-8", "backslashreplace"), shown + _pickled_error(raised, len(shown))


def _pickled_error(raised: BaseException, taken: int) -> bytes:
    import base64

    import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

    try:
        raised.__traceback__ = None
        pickled = base64.b64encode(cloudpickle.dumps(raised))
        pickle.loads(base64.b64decode(pickled))  # some can be pickled, and not be made again
    except Exception:
        return b""
    if taken + len(pickled) > LONGEST_PICKLED_ERROR:
        return b""
    return b"\0" + pickled


if __name__ == "__main__":
    main()
