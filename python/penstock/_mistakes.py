"""Errors for datasets, environments and user code that break a rule of workers. Used by _loader.py, _workers.py and _loading.py."""

import contextlib
import shlex
import types
from typing import Any, Optional

from penstock import _tensors
from penstock._errors import error, usage_error

__all__ = ["cuda_in_a_worker", "cuda_is_hidden", "not_pickled", "not_started"]

CUDA_RULE = 'GPUs are hidden from workers: return tensors on the host, and pass device="cuda" to the loader, which moves the batches'
DEEPEST = 12  # depth of the search through attributes


def not_pickled(parts: dict[str, Any], broken: Exception) -> Exception:
    """The error for a loader with an object that cannot be pickled. Names the attribute.

    Args:
        parts: the loader's objects, by name.
        broken: the exception of pickling all of them.
    """
    for name, part in parts.items():
        why = _refused(part)
        if why is None:
            continue
        path, value, why = _innermost(name, part, why, {id(part)})
        kind = "" if value is part else f" (a {type(value).__qualname__})"
        text = (
            f"{path}{kind} cannot be pickled: {why}. Worker processes get a pickled copy of the dataset: open files, locks and "
            "connections in __getitem__ or worker_init_fn instead, or leave them out in __getstate__"
        )
        return type(why)(text) if type(why) in (TypeError, AttributeError) else TypeError(text)
    return broken


def _refused(value: Any) -> Optional[Exception]:
    try:
        _tensors.dataset_parts(value)
    except Exception as why:
        return why
    return None


def _innermost(path: str, value: Any, why: Exception, seen: set[int]) -> tuple[str, Any, Exception]:
    """The innermost object that cannot be pickled. It may be in a dataset that another dataset holds, perhaps in a list."""
    if len(seen) > DEEPEST:
        return path, value, why
    for name, each in _parts_of(path, value):
        refused = None if id(each) in seen else _refused(each)
        if refused is not None:
            return _innermost(name, each, refused, seen | {id(each)})
    return path, value, why


def _parts_of(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"{path}[{key!r}]", each) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"{path}[{place}]", each) for place, each in enumerate(value)]
    if isinstance(value, types.FunctionType):
        return _variables_of(path, value)
    try:
        state = value.__reduce_ex__(4)[2]  # what pickle would write, by __getstate__ if there is one
    except Exception:
        state = None
    attributes = [(f"{path}.{name}", each) for name, each in state.items()] if isinstance(state, dict) else []
    return attributes + _methods_of(path, value if isinstance(value, type) else type(value))


def _methods_of(path: str, kind: type) -> list[tuple[str, Any]]:
    """The functions in a class's body: a class of the program is pickled together with them."""
    return [(f"{path}.{name}", each) for name, each in vars(kind).items() if isinstance(each, types.FunctionType)]


def _variables_of(path: str, function: types.FunctionType) -> list[tuple[str, Any]]:
    variables = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # the variable is not assigned yet
            variables.append((f"{path}'s variable {name}", cell.cell_contents))
    known = function.__globals__
    return variables + [(f"{path}'s global {name}", known[name]) for name in _names_in(function.__code__) if name in known]


def _names_in(code: types.CodeType) -> list[str]:
    """The globals and attributes that a function uses, including those in its lambdas and comprehensions."""
    inner = [name for each in code.co_consts if isinstance(each, types.CodeType) for name in _names_in(each)]
    return [*code.co_names, *inner]


def not_started(broken: error, command: Any, path: Any) -> error:
    """The error when no worker could start. Says how to find the cause."""
    words = [str(word) for word in command]
    text = (
        f"{broken}\nNo worker could start. A worker is this command, whose interpreter has to find penstock, cloudpickle and torch:\n"
        f"  PYTHONPATH={shlex.quote(str(path))} {shlex.join(words)}\n"
        "Check the environment with that interpreter: -c 'import penstock.worker, cloudpickle, torch'"
    )
    told = type(broken)(text, broken.os_code)
    told.__cause__ = broken.__cause__
    return told


def cuda_in_a_worker(samples: Any) -> error:
    """The error for user code that initialised CUDA in a worker."""
    return usage_error(f"the dataset or collate_fn used CUDA in a worker, for the samples {samples}. {CUDA_RULE}")


def cuda_is_hidden(raised: Optional[BaseException]) -> str:
    """Text to add to an exception of user code that looked for a GPU in a worker; empty for other exceptions."""
    if not isinstance(raised, (RuntimeError, AssertionError)):
        return ""
    text = str(raised)
    return f"({CUDA_RULE})\n" if "CUDA" in text or "NVIDIA driver" in text else ""
