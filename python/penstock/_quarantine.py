"""Samples of a DataLoader that were left out, and a file that keeps samples which kill workers from being tried again."""

import contextlib
import fcntl
import itertools
import json
import os
import shlex
import time
import warnings
import weakref
from typing import Any, NamedTuple, Optional

from penstock._errors import config_error, dataset_error, remote_traceback, sample_error, state_mismatch_error
from penstock._tracebacks import Raised, raised_in

__all__ = ["BadSampleList", "BadSamples", "Quarantine", "Sample", "check_place", "error_of_sample", "fingerprint_of", "warn_if_shared"]

_NAMED = 10  # samples in a line of the log
_LINE_MAX = 64 * 1024  # bytes; every line is shorter
_SCHEMA = "penstock.quarantine/1"  # the schema of sessions and `penstock quarantine`, too: to them, an index that is a number is a sample


class Sample(NamedTuple):
    """A sample of a pass.

    Attributes:
        index: what the sampler yielded.
        name: "sample 51".
        position: in the epoch.
    """

    index: Any
    name: str
    epoch: int
    position: int

    def __str__(self) -> str:
        return f"{self.name} (position {self.position} of epoch {self.epoch})"

    @property
    def number(self) -> Optional[int]:
        """The index for the verbs of `penstock`; None if it is not a number."""
        key = _key(self.index)
        return key if isinstance(key, int) and 0 <= key < 1 << 63 else None


class BadSampleList(list[dict[str, Any]]):
    """`DataLoader.bad_samples`: the latest samples that were left out. Older ones are dropped, because a long run may
    leave out any number."""

    MOST = 10_000
    _dropped = 0

    @property
    def total(self) -> int:
        """The number of samples left out, including those no longer listed."""
        return len(self) + self._dropped

    def add(self, entry: dict[str, Any]) -> bool:
        """Adds an entry. Returns whether this dropped an entry for the first time."""
        self.append(entry)
        surplus, before = max(len(self) - self.MOST, 0), self._dropped
        del self[:surplus]
        self._dropped += surplus
        return before == 0 and surplus > 0

    def __repr__(self) -> str:
        return super().__repr__() + (f" and {self._dropped} more" if self._dropped else "")


class BadSamples:
    """How a loader handles and reports bad samples.

    Args:
        policy: on_bad_sample.
        quarantine: the samples that killed workers before.
        listed: loader.bad_samples, to which samples are added.
        core: the pool's, for its events and its log.
    """

    def __init__(self, policy: str, quarantine: "Quarantine", listed: BadSampleList, core: Any) -> None:
        self.policy, self.quarantine, self._listed, self._core = policy, quarantine, listed, core
        self.begin_pass()

    def begin_pass(self) -> None:
        self.left_out = 0  # samples left out in this pass
        self._first: Optional[tuple[Sample, dict[str, Any]]] = None
        self._warned = False
        self._tell_of_quarantine()

    def _tell_of_quarantine(self) -> None:
        quarantine, known = self.quarantine, self.quarantine.untold
        if not known:
            return
        for index, causes in known.items():
            sample = Sample(index, f"sample {index}", 0, 0)
            self._core.sample_quarantined(sample.number, sample.name, 0, causes, True)
        quarantine.untold = {}
        if self.policy == "raise":
            return  # refuse() names these samples
        names = ", ".join(str(index) for index in list(known)[:_NAMED]) + (", ..." if len(known) > _NAMED else "")
        one = len(known) == 1
        self._core.warn(
            f"{len(known)} sample{'' if one else 's'} listed in {quarantine.path} {'is' if one else 'are'} left out: {names}; "
            f"{quarantine.way_out(next(iter(known)))} when it is repaired"
        )

    def refuse(self, sample: Sample) -> None:
        """Raises sample_error for a sample in quarantine, unless bad samples are left out."""
        causes = self.quarantine.indices.get(_key(sample.index), [])
        raise error_of_sample(
            f"{sample.name} is in quarantine: {deaths_over('it', causes)} before ({', '.join(causes)}). When it is repaired, "
            f"{self.quarantine.way_out(sample.index)}; on_bad_sample=\"skip\" leaves it out",
            sample.index,
            causes,
        )

    def _leave_out(self, sample: Sample, why: dict[str, Any]) -> None:
        if self._listed.add({"index": sample.index, "epoch": sample.epoch, "position": sample.position, **why}):
            self._core.warn(f"loader.bad_samples keeps the latest {self._listed.MOST} samples that were left out; its `total` counts all")
        self.left_out += 1
        if self._first is None:
            self._first = sample, why

    @property
    def _left_out(self) -> str:
        return "replaced by another sample of its batch" if self.policy == "replace" else "left out of its batch"

    def failed(self, sample: Sample, raised: Raised) -> None:
        """Reports a sample that raised: the program gets the exception, or the sample is left out."""
        self._core.sample_failed(sample.number, sample.name, sample.epoch, raised.what, f"{sample} failed: {raised}", raised.traceback)

    def raised(self, sample: Sample, traceback: str) -> None:
        """Records a sample that raised, and that its worker left out."""
        raised = raised_in(traceback)
        self.failed(sample, raised)
        self._leave_out(sample, {"error": raised.what, "where": raised.where, "traceback": traceback})
        if not self._warned:
            self._warned = True
            self._core.warn(f"{sample} is {self._left_out}: {raised}; loader.bad_samples and `penstock events` list further ones of this epoch")

    def killed(self, sample: Sample, causes: list[str]) -> None:
        """Leaves out this sample from now on: it killed its workers or took too long."""
        self.quarantined(sample, causes)
        self._leave_out(sample, {"causes": causes})
        more = "penstock deaths" if sample.number is None else f"penstock describe sample/{sample.number}"
        tries = "1 attempt" if len(causes) == 1 else f"{len(causes)} attempts"
        self._core.warn(
            f"{sample} is {self._left_out} after {tries} ({causes_in_words(causes)}), because on_bad_sample={self.policy!r}; "
            f"the run continues. What happened: `{more}`, with --last after the end"
        )

    def quarantined(self, sample: Sample, causes: list[str]) -> None:
        """Puts the sample into quarantine: it is not tried again."""
        self._core.sample_quarantined(sample.number, sample.name, sample.epoch, causes, False)
        self.quarantine.add(sample.index, causes)

    def known(self, sample: Sample) -> None:
        """Records a sample that was in quarantine and was left out without a try."""
        self._leave_out(sample, {"causes": self.quarantine.indices.get(_key(sample.index), []), "known": True})

    def nothing_is_left(self) -> dataset_error:
        """The error for a pass that delivered no batch, because all samples were left out. Its __cause__ is the error of the first one."""
        assert self._first is not None
        sample, why = self._first
        told, how = f"{why['error']} ({why['where']})", "raised"
        if "traceback" not in why:
            told, how = ", ".join(why["causes"]), "is in quarantine" if why.get("known") else "killed its workers or took too long"
        made = dataset_error(
            f"epoch {sample.epoch} has delivered no batch: all {self.left_out} samples were left out (on_bad_sample={self.policy!r}). The first, "
            f"{sample.name}, {how}: {told}"
        )
        made.__cause__ = remote_traceback(why["traceback"]) if "traceback" in why else error_of_sample(f"{sample} {how}: {told}", sample.index, why["causes"])
        self.left_out, self._first = 0, None
        return made


def deaths_over(work: str, causes: list[str]) -> str:
    """Whether `work` killed these workers, or was only in progress when someone sent them a signal."""
    workers = f"{len(causes)} worker{'' if len(causes) == 1 else 's'}"
    return f"{work} was in progress when {workers} died" if any("(sent by " in cause for cause in causes) else f"{work} killed {workers}"


def causes_in_words(causes: list[str]) -> str:
    """The causes in words: `3 x SIGKILL (sent by another process or by its own code)`, `SIGSEGV, 2 x SIGABRT`."""
    counts = [(cause, len(list(same))) for cause, same in itertools.groupby(causes)]
    return ", ".join(cause if count == 1 else f"{count} x {cause}" for cause, count in counts)


def error_of_sample(text: str, index: Any, causes: list[str]) -> sample_error:
    made = sample_error(text)
    made.index, made.causes = index, causes
    return made


def fingerprint_of(dataset: Any, kind: str, length: Optional[int]) -> str:
    """What a quarantine's entries belong to: the dataset's attribute `fingerprint`, if it is a string."""
    return _chosen(dataset) or f"{kind} of {length}"


def check_place(path: str) -> None:
    """Raises config_error if no quarantine file can be written at this path."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise config_error(f"quarantine is {path!r}: there is no folder {folder!r}")
    there = os.path.exists(path)
    if os.path.isdir(path) or not os.access(path if there else folder, os.W_OK):
        raise config_error(f"quarantine is {path!r}: {'this is a folder' if os.path.isdir(path) else 'it cannot be written'}")


def warn_if_shared(path: str, fingerprint: str, dataset: Any) -> None:
    """Call for each loader of this program. A quarantine cannot distinguish two datasets of one class and length."""
    try:
        here: Any = weakref.ref(dataset)
    except TypeError:
        here = None
    identity, known = (id(dataset), here), _USED.get((path, fingerprint))
    _USED[path, fingerprint] = identity
    if known is None or known == identity or _chosen(dataset) is not None:
        return
    warnings.warn(
        f"two datasets of this program use {path}, and the file cannot distinguish them: both are {fingerprint!r}. A sample that kills workers in "
        "one would be left out of the other. Give each its own file; or, if they hold the same samples, set on both the same attribute "
        "`fingerprint`, a string",
        stacklevel=4,  # the caller of DataLoader()
    )


_USED: dict[tuple[str, str], tuple[int, Any]] = {}  # the datasets of this program, by file and fingerprint: their ids and weak references


def _chosen(dataset: Any) -> Optional[str]:
    chosen = getattr(dataset, "fingerprint", None)
    return chosen if isinstance(chosen, str) and chosen else None


class Quarantine:
    """Indices that must not be loaded. With a path they are also kept in a file, one line of JSON for each.

    Args:
        dataset: what the indices belong to, as text: a file of another dataset is refused.
    """

    def __init__(self, path: Optional[str], dataset: str) -> None:
        self.path, self._dataset = path, dataset
        self.indices: dict[Any, list[str]] = {}  # the causes, by index
        self.untold: dict[Any, list[str]] = {}  # samples from the file that the log has not named yet
        if path is None or not os.path.exists(path):
            return
        with open(path) as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    break  # a crash or a full disk cut off this line: add() removes it
                try:
                    told, index, causes = _read(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError) as broken:
                    raise state_mismatch_error(f"{path}, line {number}: not an entry of a quarantine: {broken}") from None
                if told != dataset:
                    raise state_mismatch_error(f"{path}, line {number}: it belongs to {told}, but this dataset is {dataset}: each dataset needs its own file")
                if causes is None:
                    self.indices.pop(_key(index), None)
                else:
                    self.indices[_key(index)] = causes
        self.untold = dict(self.indices)

    def way_out(self, index: Any) -> str:
        """How to have a sample tried again."""
        if self.path is None:
            return "make the loader again"
        return f"`penstock quarantine release {index} --file {shlex.quote(self.path)}`"

    def add(self, index: Any, causes: list[str]) -> None:
        if _key(index) in self.indices:
            return
        self.indices[_key(index)] = causes
        if self.path is not None:
            _append(self.path, (json.dumps(self._line(index, causes)) + "\n").encode())

    def _line(self, index: Any, causes: list[str]) -> dict[str, Any]:
        number = _key(index)
        if isinstance(number, int) and number >= 0:
            facts = {"path": f"sample {number}", "attempts": len(causes), "causes": causes, "time": time.time()}
            return {"schema": _SCHEMA, "fingerprint": self._dataset, "sample": number, **facts}
        text = number if isinstance(number, int) else index if isinstance(index, (str, list, tuple)) else repr(index)
        return {"index": text, "causes": causes, "dataset": self._dataset}

    def places_in(self, indices: Any) -> tuple[int, ...]:
        """Which samples of a batch to leave out."""
        if not self.indices:
            return ()
        return tuple(place for place, index in enumerate(indices) if _key(index) in self.indices)


def _read(entry: Any) -> tuple[str, Any, Optional[list[str]]]:
    """What an entry names: the dataset, the index of a sample, and the causes of the deaths for which it is blamed.
    Causes None: the sample was released."""
    if entry.get("schema") == _SCHEMA:
        return entry["fingerprint"], entry["sample"], None if entry.get("released") else list(entry["causes"])
    return entry["dataset"], entry["index"], list(entry["causes"])


def _append(path: str, line: bytes) -> None:
    """Appends a whole line or nothing: half a line would garble the next one. Several loaders may share the file."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        tail = os.pread(file, _LINE_MAX, max(0, size - _LINE_MAX))
        whole = size - len(tail) + tail.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(file, whole)
        try:
            while line:
                line = line[os.write(file, line) :]
        except OSError:
            os.ftruncate(file, whole)
            raise
    finally:
        os.close(file)


def _key(index: Any) -> Any:
    if hasattr(index, "__index__"):
        with contextlib.suppress(TypeError):  # an array of several elements
            return index.__index__()
    if isinstance(index, (list, tuple)):
        return tuple(_key(each) for each in index)
    return index
