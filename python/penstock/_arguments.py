"""Checks arguments here, because the module _core would report mistakes in its own terms. Used by Session and Pool."""

import numbers
from typing import Any, Optional

from penstock._errors import usage_error

__all__ = ["check_config", "check_seconds", "whole_number", "LARGEST", "LARGEST_WORKER", "NUMBER_OF_WORKERS"]

LARGEST = (1 << 63) - 1
LARGEST_WORKER = (1 << 32) - 1
NUMBER_OF_WORKERS = "pass a number of workers, from 1 to [loader.limits] max"


def whole_number(value: Any, name: str, advice: str, least: int = 0, most: int = LARGEST) -> int:
    """The value as an int.

    Args:
        name: the argument's name.
        advice: what to pass, for the message.

    Raises:
        TypeError: it is not a whole number.
        usage_error: it is outside `least` to `most`.
    """
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise TypeError(f"{name} is {value!r}, of type {type(value).__name__}: {advice}") from None
    if not least <= number <= most:
        raise usage_error(f"{name} is {number}: {advice}")
    return number


def check_seconds(value: Any, name: str) -> Optional[float]:
    """A time in seconds, 0 or more, or None. Raises TypeError or usage_error."""
    if value is None:
        return None
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}, of type {type(value).__name__}: pass a number of seconds, 0 or more, or None")
    seconds = float(value)
    if not seconds >= 0:
        raise usage_error(f"{name} is {value!r}: pass a number of seconds, 0 or more, or None")
    return seconds


def check_config(value: Any) -> None:
    """A config file's path. Raises TypeError."""
    if isinstance(value, (str, bytes)) or hasattr(value, "__fspath__"):
        return
    advice = "pass the path of a config file"
    if isinstance(value, dict):
        advice += ", and overrides as keyword arguments: Session('photos.toml', loader={'workers': 8})"
    raise TypeError(f"a config of type {type(value).__name__}: {advice}")
