"""The program of worker processes: `python -m penstock.worker`, started by a Pool with exec, or forked by a template (_template.py).

It needs no `if __name__ == "__main__"` in the caller's program: functions of __main__ are sent by value. It sees no GPU,
its thread pools use one thread, and it loads neither a session nor CUDA.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from penstock import _worker

__all__ = ["call_on_input", "call_with_each", "main"]

SETUP = "PENSTOCK_POOL_SETUP"  # the environment variable: a file with a pickle, see _begin()
TEMPLATE = "PENSTOCK_TEMPLATE"  # the environment variable of a template (_template.py): the number of its socket
LOADER = None  # instead of a function: a batch of penstock.torch.DataLoader
LONGEST_PICKLED_ERROR = 40_000  # a job's error has room for 64 KiB
LONGEST_TRACEBACK = 20_000  # so that the error itself has room, too
LONGEST_LINE = 500  # characters of the line about an initializer that failed


def main() -> None:
    """Serves the pool that started this process, until it is asked to stop."""
    _begin()
    from penstock import _worker

    # Output that waits in a buffer would be lost with a crash.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    _ENVIRONMENT.update(_remembered())
    sys.exit(_worker.job_loop(_run))


def _begin() -> None:
    """Takes over the caller's import path, arguments and key of multiprocessing, then runs the pool's initializer. A template
    only prepares this; each worker that it forks continues from here."""
    file, socket = os.environ.pop(SETUP, None), os.environ.pop(TEMPLATE, None)
    if file is None:
        return
    from penstock import _globals, _hosts

    with open(file, "rb") as opened:
        path, sys.argv[:] = pickle.load(opened)
        sys.path[:] = _hosts.path_on_host(path) if _hosts.on_host() else path
        key = pickle.load(opened)
        if key is not None:
            import multiprocessing

            multiprocessing.current_process().authkey = key
        initializer = _globals.Initializer(pickle.load(opened))
        end = opened.tell()

    def failed(function: Any, raised: BaseException) -> None:
        with open(file, "rb") as written:
            written.seek(end)
            known = written.read()
        _tell_of_failed_initializer(file, known, function, raised)
        sys.exit(raised.code if isinstance(raised, SystemExit) and isinstance(raised.code, int) else 1)

    if socket is not None:
        from penstock import _template

        _template.fork_workers(int(socket), initializer, failed)
    initializer.call(failed)


def _tell_of_failed_initializer(file: str, failures: bytes, initializer: Any, raised: BaseException) -> None:
    """One line for the log and `penstock deaths`. The first worker that fails this way appends the traceback to the setup file,
    from which the caller reads it.

    Args:
        failures: what workers have written there before.
    """
    line = _line_of_failed_initializer(initializer, raised)
    known = [each for each, _ in failures_of_initializer(failures)]
    told = None if line in known else _shown(raised)
    with open(file, "ab", buffering=0) as opened:
        opened.write(pickle.dumps((line, told)))  # in one write, because other workers write here, too
    print(line, file=sys.stderr, flush=True)


def _line_of_failed_initializer(initializer: Any, raised: BaseException) -> str:
    import functools
    import inspect

    function = None if initializer is None else inspect.unwrap(initializer)
    while isinstance(function, functools.partial):
        function = function.func
    what = f"{_name_of(type(raised))}: {_text_of(raised)}"
    if function is None:
        line = f"the initializer cannot be recreated in a worker: {what}"
    elif str(getattr(function, "__module__", "")).startswith("penstock."):
        line = f"a worker could not start: {what}"
    else:
        code = getattr(function, "__code__", None)
        where = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        name = getattr(function, "__qualname__", type(function).__qualname__)
        line = f"the initializer {name}{where} raised {what}"
    line = "".join(each if each.isprintable() else " " if each.isspace() else repr(each)[1:-1] for each in line)  # one line, as for a log
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..."


def failures_of_initializer(written: bytes) -> list[tuple[str, Optional[str]]]:
    """What workers wrote into the pool's setup file, oldest first: a line for each failure of an initializer. The traceback follows the
    first of several equal lines."""
    import io

    failures = []
    stream = io.BytesIO(written)
    while True:
        try:
            failures.append(pickle.load(stream))
        except (EOFError, pickle.UnpicklingError):  # the end of the file, or a worker was killed while it wrote
            return failures


_ENVIRONMENT: dict[Any, Any] = {}  # the environment as the initializer left it


def _remembered() -> dict[Any, Any]:
    environ: Any = os.environ
    return environ._data  # type: ignore[no-any-return]


def _restore_environment() -> None:
    """Restores os.environ between jobs; the job loop restores the environment of the process itself."""
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
        if function is call_with_each:
            named = _described_chunk(call, *positional)
        elif function is call_on_input:
            function, index, *positional = positional
            call.describe(f"{_name_of_function(function)} on input {index}")
        else:
            call.describe(_name_of_function(function))
        try:
            call.give(_parts.pickled_result(function(*positional, **named)))
        finally:
            _restore_environment()  # not for a loader, whose dataset keeps what it sets
    except BaseException as raised:  # also SystemExit, which ends the job but not the worker
        return described(raised)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
    return None


def call_on_input(function: Callable[..., Any], index: int, *inputs: Any) -> Any:
    """Stands for the function in a job for one input of a Pool.map() whose chunk has killed its workers."""
    return function(*inputs)


def _described_chunk(call: "_worker.Call", function: Callable[..., Any], inputs: list[tuple[Any, ...]], first: int) -> dict[str, Any]:
    """Names the chunk's inputs as the current work. Returns more arguments for call_with_each(): if the chunk has killed a
    worker, each input is named before it is run."""
    name, last = _name_of_function(function), first + len(inputs) - 1
    call.describe(f"{name} on inputs {first} to {last}" if last > first else f"{name} on input {first}")
    return {} if call.attempt == 1 else {"begin": lambda index: call.describe(f"{name} on input {index}")}


def call_with_each(
    function: Callable[..., Any], inputs: list[tuple[Any, ...]], first: int, begin: Optional[Callable[[int], None]] = None
) -> tuple[list[Any], Optional[tuple[int, bytes, bytes, bytes]]]:
    """Runs a chunk of Pool.map() as one job: gives the function's values. If an exception ended the chunk early, also gives the
    place in the chunk of the input that raised it, and the exception as described() returns it.

    Args:
        first: the index of the chunk's first input.
        begin: called with the index of each input, before it is run.
    """
    values: list[Any] = []
    for each in inputs:
        if begin is not None:
            begin(first + len(values))
        try:
            values.append(function(*each))
        except BaseException as raised:
            return values, (len(values), *described(raised))
    return values, None


def described(raised: BaseException) -> tuple[bytes, bytes, bytes]:
    """Type, text and traceback of an exception. If the exception can be pickled, its pickle follows the traceback."""
    shown = _shown(raised).encode("utf-8", "backslashreplace")
    name, text = _name_of(type(raised)), _text_of(raised)
    return name.encode("utf-8", "backslashreplace"), text.encode("utf-8", "backslashreplace"), shown + _pickled_error(raised, len(shown))


def _shown(raised: BaseException) -> str:
    """The exception's traceback, without the frame that caught it."""
    told = "".join(traceback.format_exception(type(raised), raised, raised.__traceback__.tb_next if raised.__traceback__ else None))
    if len(told) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        told = f"{told[:half]}\n[{len(told) - 2 * half} characters left out]\n{told[-half:]}"
    return told


def _name_of_function(function: Any) -> str:
    """The name of a function in messages."""
    while hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial, which is not loaded here
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text_of(raised: BaseException) -> str:
    try:
        return str(raised)
    except Exception as failed:
        return f"<str() of the exception raised {type(failed).__name__}>"


def _pickled_error(raised: BaseException, taken: int) -> bytes:
    import base64

    from penstock import _by_value

    try:
        raised.__traceback__ = None
        pickled = base64.b64encode(_by_value.dumps(raised))
        pickle.loads(base64.b64decode(pickled))  # some exceptions can be pickled but not unpickled
    except Exception:
        return b""
    if taken + len(pickled) > LONGEST_PICKLED_ERROR:
        return b""
    return b"\0" + pickled


if __name__ == "__main__":
    from penstock import worker  # the imported module, because jobs refer to its functions; this file runs as __main__

    worker.main()
