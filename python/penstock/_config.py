"""Configs: files, read and checked as by the command line, with overrides as Python values."""

import datetime
import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Union

from penstock import _core
from penstock._arguments import check_config
from penstock._errors import config_error, usage_error

__all__ = ["Config", "load_config", "dry_run"]

Path = Union[str, "os.PathLike[str]"]


class Config:
    """A checked config, returned by load_config and accepted by Session. Immutable.

    config["loader.workers"] is one value, config["loader"] a table; config.to_dict() has all of them, spelled as
    in the file ("auto", "250ms", "64MiB").
    """

    __slots__ = ("_core", "_values")

    def __init__(self, core: _core.Config) -> None:
        self._core = core
        self._values: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The session's name, for `penstock status` and other verbs."""
        return self._core.name

    def to_toml(self) -> str:
        """A config file with every key; loading it gives the same values."""
        return self._core.to_toml()

    def to_dict(self) -> dict[str, Any]:
        """All values in nested dicts, defaults included."""
        return tomllib.loads(self.to_toml())

    def __getitem__(self, key: str) -> Any:
        if self._values is None:
            self._values = self.to_dict()
        value: Any = self._values
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise KeyError(key)
            value = value[part]
        return value

    def __repr__(self) -> str:
        return f"<penstock.Config {self.name!r}>"


def load_config(file: Path, **overrides: Any) -> Config:
    """Reads a config file, as `penstock run FILE --set ...` does: includes, ${...}, PENSTOCK__TABLE__KEY variables.

    Args:
        file: the config file. Paths in it are relative to its folder.
        overrides: values that override the file's. Tables are dicts, `loader={"workers": 8}`, or dotted names,
            `**{"loader.workers": 8}`. Values are Python's: numbers, bools, strings ("auto", "250ms", "64MiB"), lists,
            pathlib paths (relative to the current folder), datetime.timedelta.

    Raises:
        config_error: every mistake, with file, line, column and what to write instead.
        io_error: the file cannot be read.
    """
    check_config(file)
    return Config(_core.load_config(os.fsdecode(file), list(assignments(overrides))))


def dry_run(config: Config) -> dict[str, Any]:
    """Facts about dataset and plan, without starting a process: samples, batches_per_epoch, slot_bytes,
    slots_per_worker, arena_bytes, workers, fingerprint, notices."""
    return _core.dry_run(config._core)


def assignments(overrides: Mapping[str, Any]) -> Iterator[str]:
    """Converts {"loader": {"workers": 8}} to "loader.workers=8", the form of --set."""
    return _assignments("", overrides)


def check_worker_count(overrides: Mapping[str, Any], number: int, argument: str) -> None:
    """Raises config_error if the overrides set another number of workers than the argument of that name."""
    for each in assignments(overrides):
        key, _, value = each.partition("=")
        if key == "loader.workers" and value != str(number):
            raise config_error(f"{argument} is {number}, but {key} is {value}: leave out {key}, because {argument} sets it")


def _assignments(prefix: str, table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(key, str):
            raise usage_error(f"override {prefix}{key!r}: keys must be strings")
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _assignments(name + ".", value)
        else:
            yield f"{name}={_toml(name, value)}"


def _toml(name: str, value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, os.PathLike):
        return _quoted(os.path.abspath(os.fspath(value)))
    if isinstance(value, datetime.timedelta):
        return _quoted(f"{value // datetime.timedelta(microseconds=1)}us")
    if isinstance(value, Mapping):  # in a list: a separate table
        return "{" + ", ".join(f"{_quoted(str(k))} = {_toml(name, v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(name, each) for each in value) + "]"
    if hasattr(value, "__index__"):  # int, and NumPy's
        return str(value.__index__())
    if hasattr(value, "__float__"):
        return repr(float(value))
    if value is None:
        raise usage_error(f"override {name}=None: write what the config file would say, for example \"auto\" or \"none\"")
    raise usage_error(f"override {name}: a value of type {type(value).__name__} has no form in a config file")


def _quoted(text: str) -> str:
    escaped = []
    for character in text:
        if character in '"\\':
            escaped.append("\\" + character)
        elif character < " " or character == "\x7f":
            escaped.append(f"\\u{ord(character):04x}")
        else:
            escaped.append(character)
    return '"' + "".join(escaped) + '"'
