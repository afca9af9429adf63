"""A template: a process that has imported what workers need, and forks them as the session orders. Used by worker.py and _loading.py.

Detects a template that must not be forked; the session then starts workers as fresh programs instead, and logs the reason. A fork copies
only one thread and shares open files: a second thread's locks would stay locked, and two processes would share one file position.
"""

import _imp
import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional, TypeVar

if TYPE_CHECKING:
    from penstock._globals import Initializer

__all__ = ["fork_workers", "without_files"]

NUMBER = "PENSTOCK_WORKER"  # environment variable
HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
T = TypeVar("T")


def fork_workers(socket: int, initializer: "Initializer", failed: Callable[[Any, BaseException], None]) -> None:
    """Returns in each worker, before its initializer is called."""
    from penstock import _parts, _worker  # noqa: F401 (what every job needs)

    imports = _Imports()
    usual = _open_files()
    collects = gc.isenabled()

    ready = False

    def unsafe() -> str:
        nonlocal ready
        with imports:
            try:
                if not ready:  # only once: checking what it opens takes longer than a fork
                    without_files(initializer.unpickle, initializer.drop)
                    ready = True
                prepare = getattr(initializer.function, "before_fork", None)
                if prepare is not None:
                    prepare(*initializer.arguments)
            except BaseException as raised:
                failed(initializer.function, raised)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        gc.freeze()  # a collection in a worker would copy every page that it visits
        return _why_not(imports, usual)

    gc.disable()
    number = _worker.fork_on_order(socket, unsafe)
    if collects:
        gc.enable()
    os.environ[NUMBER] = str(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # Python reseeds its own generator after a fork


def without_files(make: Callable[[], Optional[T]], drop: Optional[Callable[[], None]] = None) -> Optional[T]:
    """The result of `make`; None if it opened files, sockets or shared memory, which processes must not share.

    Args:
        drop: discards the result of `make`. Without it, None is also returned if `make` raises.
    """
    before = _open_files(), _shared_mappings()
    try:
        made = make()
    except Exception:
        if drop is not None:
            raise
        return None
    if (_open_files() - before[0]) or (_shared_mappings() - before[1]):
        made = None
        if drop is not None:
            drop()
        gc.collect()
    return made


def _why_not(imports: "_Imports", usual: set[tuple[str, str]]) -> str:
    """Why this process must not be forked; empty if it may."""
    count = _threads()
    if count > 1:
        return f"{imports.of_threads or 'making the dataset or the initializer'} has started a thread ({count} threads in total)"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"{imports.last or 'making the dataset'} has initialized CUDA"
    if _imp.lock_held():
        return "an import is under way"
    for number, opened in sorted(_open_files() - usual):
        if opened.startswith("/dev/nvidia"):
            return f"{imports.of_files.get((number, opened), 'making the dataset')} has opened {opened}"
        if opened not in HARMLESS:
            return f"{imports.of_files.get((number, opened), 'making the dataset')} keeps {opened} open, which workers would share"
    return ""


def _threads() -> int:
    return os.stat("/proc/self/task").st_nlink - 2


def _open_files() -> set[tuple[str, str]]:
    """The number and the name of each open descriptor."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
        except OSError:
            pass  # the descriptor of the listing itself
    return found


def _shared_mappings() -> set[str]:
    """Shared mappings that can be written."""
    with open("/proc/self/maps") as maps:
        lines = [line.split(maxsplit=5) for line in maps]
    return {fields[0] for fields in lines if fields[1][1] == "w" and fields[1][3] == "s"}


class _Imports:
    """Records which module's import started a thread or left a file open inside the `with` block."""

    def __init__(self) -> None:
        self.of_threads = ""
        self.of_files: dict[tuple[str, str], str] = {}
        self.last = ""

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._watch(name, spec.loader)
                return spec
        return None

    def _watch(self, name: str, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):
            return
        whole = "." not in name  # listing files takes time

        def exec_module(module: Any) -> None:
            del loader.exec_module
            before = _threads(), _open_files() if whole else set()
            try:
                execute(module)
            finally:
                if _threads() > before[0]:
                    self.of_threads = self.of_threads or f"the module {name}"
                if whole:
                    for opened in _open_files() - before[1]:
                        self.of_files.setdefault(opened, f"the module {name}")
                self.last = f"the module {name}"

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            pass
