"""Shared by the tests of penstock.torch.DataLoader: datasets, and the conditions that hold after each test. Without torch they are skipped."""

import collections
import ctypes
import gc
import time

from package import *
from package import children_of

try:
    import numpy
    import torch
    from penstock.torch import DataLoader
except ImportError:
    print("torch is not installed")
    sys.exit(77)

__all__ = ["Counting", "DataLoader", "LoaderCase", "SharingLoader", "Shards", "Squares", "Values", "crash", "kill", "numpy", "plain", "torch"]


class SharingLoader(DataLoader):
    """A loader that reuses the workers of earlier tests with the same number of workers: a new worker takes a second to import torch.
    For tests in which no worker dies and its process does not matter."""

    _of_all = {}  # indexed by _kind()

    def _kind(self):
        return self.num_workers

    def _workers_here(self):
        if self._workers is None:
            if self._kind() not in self._of_all:
                self._of_all[self._kind()] = super()._workers_here()
            self._workers = self._of_all[self._kind()]
        return super()._workers_here()

    @classmethod
    def pids(cls):
        """The pids of the loaders' workers, and of the templates that fork them."""
        workers = {each["pid"] for workers in cls._of_all.values() for each in workers.pool.status()["workers"]}
        templates = {pid for pid in children_of(os.getpid()) if is_template(pid)}
        return workers | templates if len(templates) <= len(cls._of_all) else workers

    @classmethod
    def end(cls):
        cls._of_all.clear()
        gc.collect()


def is_template(pid):
    """Workers have the test's environment, but not its socket."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)
        return os.readlink(f"/proc/{pid}/fd/{int(variables[b'PENSTOCK_TEMPLATE'])}").startswith("socket:")
    except (OSError, KeyError):
        return False


class LoaderCase(PackageTest):
    def tearDown(self):
        gc.collect()
        self.no_children_left(but=SharingLoader.pids)
        super().tearDown()

    @classmethod
    def tearDownClass(cls):
        SharingLoader.end()
        end = time.monotonic() + 10
        while children_of(os.getpid()) and time.monotonic() < end:
            time.sleep(0.005)
        assert not children_of(os.getpid()), "workers of many tests have not ended"

    def same(self, one, other):
        self.assertIs(type(one), type(other))
        if isinstance(one, torch.Tensor):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            self.assertTrue(torch.equal(one, other))
        elif isinstance(one, numpy.ndarray):
            numpy.testing.assert_array_equal(one, other)
        elif isinstance(one, dict):
            self.assertEqual(list(one), list(other))
            for key in one:
                self.same(one[key], other[key])
        elif isinstance(one, (list, tuple)):
            self.assertEqual(len(one), len(other))
            for a, b in zip(one, other):
                self.same(a, b)
        else:
            self.assertEqual(one, other)


class Squares(torch.utils.data.Dataset):
    def __init__(self, length=100):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"square": torch.tensor(float(index * index)), "index": index, "name": "n%d" % index}


class Values(torch.utils.data.Dataset):
    """A dataset of what `give(index)` returns."""

    def __init__(self, give, length=64):
        self.give, self.length = give, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.give(index)


class Shards(torch.utils.data.IterableDataset):
    """Numbers, each from one worker; calls `more(shard, value)` for each, and yields the result unless it is None."""

    def __init__(self, length, more=None):
        self.length, self.more = length, more

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for value in range(info.id, self.length + 3 * info.id, info.num_workers):
            told = self.more(info.id, value) if self.more else None
            yield 1000 * info.id + value if told is None else told


class Counting(Shards):
    """Shards that report their position and record what they yield."""

    def __init__(self, length, log, more=None):
        super().__init__(length, more)
        self.log, self.next = log, None

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        shard, shards = (info.id, info.num_workers) if info else (0, 1)
        if self.next is None:
            self.next = shard
        while self.next < self.length + 3 * shard:
            value, self.next = self.next, self.next + shards
            if self.more:
                self.more(shard, value)
            with open(self.log, "a") as file:
                file.write("%d\n" % (1000 * shard + value))
            yield 1000 * shard + value, torch.rand(()).item()
        self.next = None

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]

    def made(self):
        """How often each number was yielded since the last call."""
        with open(self.log) as file:
            counts = collections.Counter(map(int, file))
        os.unlink(self.log)
        return counts


def plain(batches):
    return [(values.tolist(), randoms.tolist()) for values, randoms in batches]


def crash():
    ctypes.string_at(0)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)
