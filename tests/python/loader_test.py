"""penstock.torch.DataLoader: torch's loader, as torch's tests know it, and what torch's cannot do: workers may die."""

import collections
import ctypes
import fcntl
import gc
import hashlib
import random
import threading
import unittest
import unittest.mock

from package import *
from package import children_of

try:
    import numpy
    import torch
    from penstock.torch import DataLoader
except ImportError:
    torch = None
    print("torch is not installed")
    if __name__ == "__main__":
        sys.exit(77)

import penstock

Pair = collections.namedtuple("Pair", "number word")


class Squares(torch.utils.data.Dataset):
    def __init__(self, length=100):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"square": torch.tensor(float(index * index)), "index": index, "name": "n%d" % index}


class Values(torch.utils.data.Dataset):
    """What `give(index)` returns."""

    def __init__(self, give, length=64):
        self.give, self.length = give, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.give(index)


class Shards(torch.utils.data.IterableDataset):
    """Numbers, each of one worker; `more(shard, value)` is called for each, and gives it if it is not None."""

    def __init__(self, length, more=None):
        self.length, self.more = length, more

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for value in range(info.id, self.length + 3 * info.id, info.num_workers):
            told = self.more(info.id, value) if self.more else None
            yield 1000 * info.id + value if told is None else told


class Counting(Shards):
    """Shards that say how far they are, and write down what they make."""

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
        """How often each number was, since the last call."""
        with open(self.log) as file:
            counts = collections.Counter(map(int, file))
        os.unlink(self.log)
        return counts


def plain(batches):
    return [(values.tolist(), randoms.tolist()) for values, randoms in batches]


class Once(torch.utils.data.Dataset):
    """Does something terrible at some indices, the first time each."""

    def __init__(self, folder, terrible, length=200):
        self.folder, self.terrible, self.length = folder, terrible, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index in self.terrible:
            try:
                os.close(os.open(os.path.join(self.folder, "at-%d" % index), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                self.terrible[index]()
        return torch.full((8,), float(index)) + torch.rand(8), index


class Disturbed(Once):
    """Does the next of several terrible things every half second, at whatever sample that is, but once in a batch."""

    def __init__(self, folder, kinds, length, batch_size):
        super().__init__(folder, {}, length)
        self.kinds, self.batch_size = kinds, batch_size

    def __getitem__(self, index):
        time.sleep(0.002)
        kind = self.due(index)
        if kind is not None:
            self.kinds[kind]()
        return super().__getitem__(index)

    def due(self, index):
        """Which one, if any; said in the file `done`: when, which, and in which batch."""
        with open(os.path.join(self.folder, "done"), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            done = [line.split() for line in file]
            batch, now = index // self.batch_size, time.monotonic()
            if any(int(line[2]) == batch for line in done) or (done and now - float(done[-1][0]) < 0.5):
                return None
            file.write("%f %d %d\n" % (now, len(done), batch))
            return len(done) % len(self.kinds) if done else 0

    def times_done(self):
        with open(os.path.join(self.folder, "done")) as file:
            return len(file.readlines())


def crash():
    ctypes.string_at(0)


def leave():
    os._exit(7)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def exhaust():
    raise MemoryError("as if")


def hang():
    threading.Event().wait()


def anonymous_memory_of(pid):
    """In kilobytes."""
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))


def descriptors_of(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def threads_of(pid):
    return len(os.listdir("/proc/%d/task" % pid))


def pid_of_worker(index):
    return os.getpid()


def digest(batches):
    whole = hashlib.sha256()
    for values, indices in batches:
        whole.update(values.numpy().tobytes() + indices.numpy().tobytes())
    return whole.hexdigest()


class LoaderTest(PackageTest):
    def tearDown(self):
        gc.collect()
        self.no_children_left()
        super().tearDown()

    # ---- as torch's -----------------------------------------------------------------------------------------------

    def test_batches_are_those_of_torchs_loader(self):
        def give(index):
            return {"array": numpy.full((3, 2), index), "pair": Pair(index, "w%d" % index), "flag": index % 2 == 0,
                    "tensors": [torch.arange(4) * index, torch.tensor(0.5, dtype=torch.bfloat16)], "none": torch.empty(0)}
        sampler = torch.utils.data.SequentialSampler(range(50))
        # Each worker imports torch: one is enough where their order cannot matter to what is tried.
        for workers, options in ((2, {"batch_size": 4}), (1, {"batch_size": 7, "drop_last": True}), (1, {"batch_size": None}),
                                 (1, {"batch_size": 3, "sampler": sampler}), (2, {"batch_sampler": [[3, 1], [2], [60, 61, 62]]}),
                                 (1, {"batch_size": 2, "collate_fn": list})):
            mine = DataLoader(Values(give), num_workers=workers, **options)
            theirs = torch.utils.data.DataLoader(Values(give), **options)
            self.assertIsInstance(mine, torch.utils.data.DataLoader)
            self.assertEqual(len(mine), len(theirs))
            batches, expected = list(mine), list(theirs)
            self.assertEqual(len(batches), len(expected))
            for batch, other in zip(batches, expected):
                self.same(batch, other)

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

    def test_shuffle_is_the_order_of_torchs_loader_for_the_same_generator(self):
        def orders(kind):
            loader = kind(Squares(), batch_size=8, shuffle=True, num_workers=1, generator=torch.Generator().manual_seed(3))
            return [[batch["index"].tolist() for batch in loader] for _ in range(2)]
        mine = orders(DataLoader)
        self.assertEqual(mine, orders(torch.utils.data.DataLoader))
        self.assertNotEqual(mine[0], mine[1])

    def test_an_exception_is_raised_as_by_torch_and_the_next_batch_comes(self):
        def give(index):
            if index == 5:
                raise KeyError("at five")
            return index
        loader = iter(DataLoader(Values(give, 12), batch_size=4, num_workers=2))
        self.assertEqual(next(loader).tolist(), [0, 1, 2, 3])
        with self.assertRaisesRegex(KeyError, "(?s)Caught KeyError in DataLoader worker process.*in give"):
            next(loader)
        self.assertEqual(next(loader).tolist(), [8, 9, 10, 11])
        with self.assertRaises(StopIteration):
            next(loader)

    def test_worker_init_fn_and_get_worker_info_are_torchs(self):
        def begin(worker):
            info = torch.utils.data.get_worker_info()
            assert (info.id, info.num_workers) == (worker, 2) and len(info.dataset) == 64
            info.dataset.begun = (worker, info.seed, torch.initial_seed())

        class Told(Values):
            def __getitem__(self, index):
                return self.begun
        loader = DataLoader(Told(None), batch_size=None, num_workers=2, worker_init_fn=begin, generator=torch.Generator().manual_seed(1))
        told = set(map(tuple, loader))
        self.assertLessEqual({worker for worker, _, _ in told}, {0, 1})
        for worker, seed, initial in told:
            self.assertEqual(seed, initial)
        self.assertEqual(len({seed - worker for worker, seed, _ in told}), 1)
        self.assertIsNone(torch.utils.data.get_worker_info())

    def test_workers_begin_in_turn(self):
        # What was imported is frozen in the worker: _beginning.prepare() was there, and beginning_test.py shows what it does.
        loader = DataLoader(Values(lambda index: gc.get_freeze_count(), 2), batch_size=None, num_workers=1)
        self.assertGreater(min(loader), 0)

    def test_workers_and_persistent_datasets_outlive_an_epoch(self):
        class Counting(Values):
            count = 0

            def __getitem__(self, index):
                self.count += 1
                return self.count, os.getpid()
        for persistent, most in ((False, 20), (True, 40)):
            loader = DataLoader(Counting(None, 20), batch_size=None, num_workers=1, persistent_workers=persistent)
            first, second = list(loader), list(loader)
            self.assertEqual({pid for _, pid in first}, {pid for _, pid in second})
            self.assertEqual(max(count for count, _ in second), most)
            del loader

    def test_two_iterators_of_one_loader_do_not_disturb_each_other(self):
        loader = DataLoader(Squares(40), batch_size=4, num_workers=2)
        for one, other in zip(loader, loader):
            self.same(one, other)
        mine, threads = [None] * 4, []

        def read(place):
            mine[place] = [batch["index"].tolist() for batch in loader]
        for place in range(4):
            threads.append(threading.Thread(target=read, args=(place,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        self.assertEqual(mine, [[list(range(at, at + 4)) for at in range(0, 40, 4)]] * 4)

    def test_arguments_that_torch_refuses_are_refused_and_so_are_mistakes_in_ours(self):
        with self.assertRaises(ValueError):
            DataLoader(Squares(), num_workers=-1)
        with self.assertRaises(ValueError):
            DataLoader(Squares(), batch_size=2, batch_sampler=[[1]])
        with self.assertRaises(ValueError):
            DataLoader(Squares(), num_workers=0, persistent_workers=True)
        with self.assertRaisesRegex(penstock.config_error, "on_bad_sample"):
            DataLoader(Squares(), on_bad_sample="ignore")
        with self.assertRaisesRegex(penstock.config_error, "seeding"):
            DataLoader(Squares(), seeding="never")

    def test_without_workers_it_loads_here(self):
        self.assertEqual(list(DataLoader(Values(pid_of_worker, 2), batch_size=None)), [os.getpid()] * 2)

    # ---- seeds ----------------------------------------------------------------------------------------------------

    def test_randomness_of_a_sample_depends_on_seed_epoch_and_index_only(self):
        def give(index):
            return index, random.random(), numpy.random.rand(), numpy.random.randn(), random.gauss(0, 1), torch.rand(()).item(), penstock.sample_rng().random()

        def epochs(workers, shuffle, **options):
            loader = DataLoader(Values(give, 30), batch_size=None, num_workers=workers, shuffle=shuffle, **options)
            return [sorted(map(tuple, loader)) for _ in range(2)]
        one = epochs(1, False, seed=5)
        self.assertEqual(one, epochs(3, True, seed=5))
        self.assertNotEqual(one[0], one[1])
        self.assertEqual(len({values[1:] for values in one[0] + one[1]}), 60)
        self.assertNotEqual(one, epochs(1, False, seed=6))
        torch.manual_seed(8)
        drawn = epochs(2, False)
        torch.manual_seed(8)
        self.assertEqual(drawn, epochs(1, False))

    # ---- what dies ------------------------------------------------------------------------------------------------

    def test_whatever_kills_a_worker_costs_no_sample_and_changes_none(self):
        terrible = {11: crash, 42: leave, 87: kill, 120: exhaust, 160: hang}
        options = {"batch_size": 8, "num_workers": 2, "shuffle": True}
        undisturbed = Once(self.folder, {})
        expected = digest(DataLoader(undisturbed, seed=4, generator=torch.Generator().manual_seed(2), **options))
        loader = DataLoader(Once(self.folder, terrible), seed=4, timeout=5, generator=torch.Generator().manual_seed(2), **options)
        self.assertEqual(digest(loader), expected)
        self.assertEqual(len(os.listdir(self.folder)) >= len(terrible), True)

    def test_a_death_every_half_second_costs_no_sample_and_changes_none(self):
        kinds = [crash, leave, kill, exhaust, hang]
        options = {"batch_size": 8, "num_workers": 2, "seed": 4}
        length = int(os.environ.get("PENSTOCK_TEST_DISTURBED", "800"))
        expected = digest(DataLoader(Once(self.folder, {}, length), **options))
        dataset = Disturbed(self.folder, kinds, length, options["batch_size"])
        loader = DataLoader(dataset, timeout=1, name="disturbed", **options)
        self.assertEqual(digest(loader), expected)
        self.assertGreaterEqual(dataset.times_done(), len(kinds))
        print("%d deaths" % dataset.times_done())

    def test_whatever_a_sample_does_it_is_named(self):
        kinds = {3: crash, 9: leave, 14: kill, 20: exhaust, 26: hang}

        def give(index):
            kinds.get(index, int)()
            return index
        loader = DataLoader(Values(give, 32), batch_size=4, num_workers=2, timeout=1, on_bad_sample="skip")
        self.assertEqual([index for batch in loader for index in batch.tolist()], [index for index in range(32) if index not in kinds])
        told = {bad["index"]: " ".join(bad.get("causes", [bad.get("traceback")])) for bad in loader.bad_samples}
        self.assertEqual(sorted(told), sorted(kinds))
        for index, cause in ((3, "SIGSEGV"), (9, "exit 7"), (14, "SIGKILL"), (20, "MemoryError"), (26, "longer than 1")):
            self.assertIn(cause, told[index])

    def test_out_of_order_a_slow_batch_holds_nothing_up_and_none_is_lost(self):
        go_on, mark = os.path.join(self.folder, "go-on"), os.path.join(self.folder, "mark")

        def give(index):
            if index == 1:
                while not os.path.exists(go_on):
                    time.sleep(0.005)
            if index == 10 and not os.path.exists(mark):
                open(mark, "w").close()
                kill()
            return index
        loader = DataLoader(Values(give, 24), batch_size=2, num_workers=2)
        loader.in_order = False  # an argument of newer versions of torch
        iterator = iter(loader)
        batches = [next(iterator).tolist()]
        with self.assertRaisesRegex(penstock.usage_error, "in_order=False"):
            loader.state_dict()
        open(go_on, "w").close()
        self.assertNotEqual(batches[0], [0, 1])
        batches += [batch.tolist() for batch in iterator]
        self.assertEqual(sorted(batches), [[index, index + 1] for index in range(0, 24, 2)])

    def test_batches_are_pinned_as_torch_does_it_also_those_of_ones_own_class(self):
        class Pinnable:
            def __init__(self, samples):
                self.samples = samples

            def pin_memory(self):
                return [*self.samples, "pinned"]
        with unittest.mock.patch("torch.cuda.is_available", return_value=True):
            loader = DataLoader(Values(abs, 4), batch_size=2, num_workers=1, pin_memory=True, collate_fn=Pinnable)
            self.assertEqual(list(loader), [[0, 1, "pinned"], [2, 3, "pinned"]])

    def test_a_sample_that_kills_every_worker_is_named_and_the_next_batch_comes(self):
        def give(index):
            if index == 6:
                crash()
            return index
        loader = iter(DataLoader(Values(give, 16), batch_size=4, num_workers=2))
        self.assertEqual(next(loader).tolist(), [0, 1, 2, 3])
        with self.assertRaisesRegex(penstock.sample_error, "sample 6 .*SIGSEGV") as caught:
            next(loader)
        self.assertEqual(caught.exception.index, 6)
        self.assertEqual(len(caught.exception.causes), 3)
        self.assertEqual([batch.tolist() for batch in loader], [[8, 9, 10, 11], [12, 13, 14, 15]])

    def test_a_sample_that_always_hangs_is_torchs_timeout_and_is_named(self):
        def give(index):
            if index == 1:
                hang()
            return index
        with self.assertRaisesRegex(RuntimeError, "DataLoader timed out after 0.7 seconds.* sample 1 "):
            list(DataLoader(Values(give, 4), num_workers=1, timeout=0.7))

    def test_a_worker_that_is_killed_from_outside_is_replaced(self):
        def give(index):
            time.sleep(0.002)
            return index, os.getpid()
        pids, indices = [], []
        for place, (index, pid) in enumerate(DataLoader(Values(give, 400), batch_size=None, num_workers=2)):
            indices.append(index)
            pids.append(pid)
            if place in (50, 200):
                os.kill(pid, signal.SIGKILL)
        self.assertEqual(indices, list(range(400)))
        self.assertGreaterEqual(len(set(pids)), 3)

    # ---- samples that are left out --------------------------------------------------------------------------------

    def test_bad_samples_are_skipped_or_replaced_and_told(self):
        def give(index):
            if index == 5:
                crash()
            if index in (2, 8, 9, 10, 11):
                raise ValueError("no %d" % index)
            return index
        for policy, expected in (("skip", [[0, 1, 3], [4, 6, 7], [12, 13]]), ("replace", [[0, 1, 1, 3], [4, 4, 6, 7], [12, 13]])):
            loader = DataLoader(Values(give, 14), batch_size=4, num_workers=2, on_bad_sample=policy)
            self.assertEqual([batch.tolist() for batch in loader], expected)
            told = {bad["index"]: bad for bad in loader.bad_samples}
            self.assertEqual(sorted(told), [2, 5, 8, 9, 10, 11])
            self.assertIn("ValueError: no 2", told[2]["traceback"])
            self.assertEqual(["SIGSEGV" in cause for cause in told[5]["causes"]], [True] * 3)
            del loader

    def test_a_quarantined_sample_kills_nobody_again(self):
        def give(index):
            if index in (3, 4):
                with open(marks, "a") as file:
                    file.write("%d" % index)
                leave()
            return index
        marks, quarantine = os.path.join(self.folder, "marks"), os.path.join(self.folder, "quarantine")

        def batches(**options):
            return [batch.tolist() for batch in DataLoader(Values(give, 6), batch_size=3, num_workers=1, quarantine=quarantine, **options)]
        self.assertEqual(batches(on_bad_sample="skip"), [[0, 1, 2], [5]])
        with open(marks) as file:
            self.assertEqual(file.read(), "333444")
        self.assertEqual(batches(on_bad_sample="replace"), [[0, 1, 2], [5, 5, 5]])
        with self.assertRaisesRegex(penstock.sample_error, "sample 3 is in quarantine.*exit 7"):
            batches()
        with open(marks) as file:
            self.assertEqual(file.read(), "333444")
        with self.assertRaisesRegex(penstock.state_mismatch_error, "line 1"):
            list(DataLoader(Values(give, 7), num_workers=1, quarantine=quarantine))

    # ---- iterable datasets ----------------------------------------------------------------------------------------

    def test_iterable_datasets_are_sharded_and_ordered_as_by_torch(self):
        for workers, options in ((3, {"batch_size": 3}), (2, {"batch_size": 3, "drop_last": True}), (2, {"batch_size": None})):
            mine = list(DataLoader(Shards(10), num_workers=workers, **options))
            theirs = list(torch.utils.data.DataLoader(Shards(10), num_workers=workers, multiprocessing_context="fork", **options))
            self.same(mine, theirs)

    def test_a_worker_that_dies_in_an_iterable_dataset_costs_and_repeats_nothing(self):
        mark = os.path.join(self.folder, "mark")

        def die(shard, value):
            if (shard, value) == (1, 7) and not os.path.exists(mark):
                open(mark, "w").close()
                kill()
        loader = DataLoader(Shards(20, die), num_workers=2, batch_size=2, seed=3)
        first = [batch.tolist() for batch in loader]
        self.assertTrue(os.path.exists(mark))
        del loader
        self.assertEqual(first, [batch.tolist() for batch in DataLoader(Shards(20), num_workers=2, batch_size=2, seed=3)])

    def test_a_replacement_asks_a_dataset_that_has_a_state_to_go_on_and_makes_nothing_twice(self):
        mark = os.path.join(self.folder, "mark")

        def die(shard, value):
            if (shard, value) == (1, 31) and not os.path.exists(mark):
                open(mark, "w").close()
                kill()
        options = {"num_workers": 2, "batch_size": 2, "seed": 3}
        dataset = Counting(60, os.path.join(self.folder, "log"))
        expected = plain(DataLoader(dataset, **options))
        self.assertEqual(set(dataset.made().values()), {1})
        dataset.more = die
        self.assertEqual(plain(DataLoader(dataset, **options)), expected)
        self.assertTrue(os.path.exists(mark))
        again = [value for value, times in dataset.made().items() if times > 1]
        self.assertLessEqual(set(again), {1029})  # of the batch that was lost

    def test_kills_at_any_moment_do_not_change_what_a_dataset_with_a_state_gives(self):
        options = {"num_workers": 2, "batch_size": 3, "seed": 3}
        dataset = Counting(400, os.path.join(self.folder, "log"), lambda shard, value: time.sleep(0.001))
        expected = plain(DataLoader(dataset, **options))
        loader = DataLoader(dataset, **options)
        batches = []
        for place, batch in enumerate(loader):
            batches.append(batch)
            if place % 20 == 10:
                os.kill(random.choice(children_of(os.getpid())), signal.SIGKILL)
        self.assertEqual(plain(batches), expected)

    def test_each_shard_has_one_worker(self):
        pids = collections.defaultdict(set)
        for shard, pid in DataLoader(Shards(30, lambda shard, value: (shard, os.getpid())), num_workers=3, batch_size=None):
            pids[shard].add(pid)
        self.assertEqual({shard: len(some) for shard, some in pids.items()}, {0: 1, 1: 1, 2: 1})

    def test_a_shard_that_kills_its_worker_is_named_with_the_position(self):
        def die(shard, value):
            if (shard, value) == (0, 5):
                crash()
        with self.assertRaisesRegex(penstock.sample_error, "sample 5 of shard 0"):
            list(DataLoader(Shards(20, die), num_workers=1, batch_size=4))

    # ---- the state ------------------------------------------------------------------------------------------------

    def test_an_epoch_goes_on_from_its_state_with_any_number_of_workers(self):
        def give(index):
            return index, random.random()

        def loader(workers, **options):
            options = {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(9), **options}
            return DataLoader(Values(give, 30), num_workers=workers, **options)

        def flat(batches):
            return [(int(index), float(value)) for indices, values in batches for index, value in zip(indices, values)]
        for options in ({}, {"seed": 11, "generator": None}):
            whole = loader(2, **options)
            epochs = [flat(whole) for _ in range(3)]
            del whole
            saved = loader(2, **options)
            states = [saved.state_dict()]
            first = []
            for place, batch in enumerate(saved):
                first.append(batch)
                if place == 4:
                    break
            states.append(saved.state_dict())
            self.assertEqual(flat(first), epochs[0][:20])
            del saved
            for state, begin in zip(states, (0, 20)):
                for workers, size in ((1, 4), (0, 4)) if begin == 0 or options else ((1, 4), (0, 4), (3, 5)):
                    other = loader(workers, batch_size=size, **{**options, **({"generator": torch.Generator()} if not options else {})})
                    other.load_state_dict(state)
                    self.assertEqual(other.state_dict()["samples"], begin)
                    rest = flat(other)
                    if workers:
                        self.assertEqual(rest, epochs[0][begin:])
                    self.assertEqual([index for index, _ in rest], [index for index, _ in epochs[0][begin:]])
                    if size == 4 and workers and begin:
                        again = loader(2, **{**options, **({"generator": torch.Generator()} if not options else {})})
                        again.load_state_dict(other.state_dict())  # at the epoch's end
                        self.assertEqual([flat(again), flat(again)], epochs[1:])

    def test_a_state_is_small_and_of_another_dataset_is_refused(self):
        import pickle
        loader = DataLoader(Squares(1_000_000), batch_size=4, num_workers=1, shuffle=True)
        next(iter(loader))
        self.assertLess(len(pickle.dumps(loader.state_dict())), 8000)
        with self.assertRaisesRegex(penstock.state_mismatch_error, "length was 1000000 and is 100"):
            DataLoader(Squares(100), batch_size=4, shuffle=True).load_state_dict(loader.state_dict())
        with self.assertRaisesRegex(penstock.state_mismatch_error, "no state"):
            loader.load_state_dict({})

    def test_an_iterable_dataset_goes_on_from_its_state_with_as_many_workers(self):
        whole = [batch.tolist() for batch in DataLoader(Shards(20), num_workers=2, batch_size=2, seed=1)]
        loader = DataLoader(Shards(20), num_workers=2, batch_size=2, seed=1)
        states = {}
        for count, batch in enumerate(loader, 1):
            self.assertEqual(batch.tolist(), whole[count - 1])
            if count in (1, 4, 9):
                states[count] = loader.state_dict()
            if count == 9:
                break
        del loader
        for count, state in states.items():
            other = DataLoader(Shards(20), num_workers=2, batch_size=2, seed=1)
            other.load_state_dict(state)
            self.assertEqual([batch.tolist() for batch in other], whole[count:])
            del other
        with self.assertRaisesRegex(penstock.state_mismatch_error, "num_workers was 2 and is 3"):
            DataLoader(Shards(20), num_workers=3, batch_size=2, seed=1).load_state_dict(state)

    def test_a_dataset_with_a_state_goes_on_from_it_and_makes_nothing_again(self):
        for workers in (2, 0):
            options = {"num_workers": workers, "batch_size": 2, "seed": 1}
            log = os.path.join(self.folder, "log")
            torch.manual_seed(1)
            whole = plain(DataLoader(Counting(24, log), **options))
            for count in (1, 7):
                dataset = Counting(24, log)
                loader = DataLoader(dataset, **options)
                iterator = iter(loader)
                first = plain(next(iterator) for _ in range(count))
                state = loader.state_dict()
                self.assertIn("next", state["shards"]["states"][0]["state"])
                del iterator, loader
                dataset.made()
                dataset = Counting(24, log)
                other = DataLoader(dataset, **options)
                other.load_state_dict(state)
                values = [values for values, _ in first + plain(other)]
                self.assertEqual(values, [values for values, _ in whole])
                made = dataset.made()
                self.assertEqual([value for values, _ in first for value in values if made[value]], [])
                del other
                if workers:
                    with self.assertRaisesRegex(penstock.state_mismatch_error, "num_workers was 2 and is 1"):
                        DataLoader(Counting(24, log), num_workers=1, batch_size=2, seed=1).load_state_dict(state)

    def test_a_batch_that_was_an_error_is_not_loaded_again_after_going_on(self):
        def give(index):
            if index == 6:
                crash()
            return index
        loader = DataLoader(Values(give, 16), batch_size=4, num_workers=1)
        iterator = iter(loader)
        next(iterator)
        with self.assertRaises(penstock.sample_error):
            next(iterator)
        state = loader.state_dict()
        del iterator
        loader.load_state_dict(state)
        self.assertEqual([batch.tolist() for batch in loader], [[8, 9, 10, 11], [12, 13, 14, 15]])

    # ---- memory ---------------------------------------------------------------------------------------------------

    def test_large_batches_may_be_kept_and_written_to(self):
        def give(index):
            return torch.full((300_000,), index, dtype=torch.float32)
        batches = list(DataLoader(Values(give, 40), batch_size=4, num_workers=2, pool={"loader": {"slot_bytes": "8MiB"}}))
        for place, batch in enumerate(batches):
            for row in range(4):
                self.assertTrue((batch[row] == place * 4 + row).all())
            batch.zero_()

    def test_large_memory_of_a_dataset_is_there_once(self):
        class Large(torch.utils.data.Dataset):
            def __init__(self):
                self.tensor = torch.zeros(64 << 20, dtype=torch.uint8)
                self.part = self.tensor[:1 << 25]
                self.array = numpy.zeros(64 << 20, dtype=numpy.uint8)

            def __len__(self):
                return 8

            def __getitem__(self, index):
                self.tensor[index] += 1
                total = int(self.array.sum()) + int(self.part[index])
                with open("/proc/self/smaps") as file:
                    mapped = file.read().split("penstock-dataset", 1)[1]
                size, own = (int(mapped.split(name, 1)[1].split()[0]) for name in ("\nSize:", "\nAnonymous:"))
                return size, own, total
        for size, own, total in DataLoader(Large(), batch_size=None, num_workers=2):
            self.assertGreater(size, 128 << 10)  # kilobytes
            self.assertLess(size, 129 << 10)  # `part` has no memory of its own
            self.assertLess(own, 1 << 10)  # but for the pages that were written to
            self.assertEqual(total, 1)

    # ---- mistakes -------------------------------------------------------------------------------------------------

    def test_what_cannot_be_pickled_is_named(self):
        dataset = Squares()
        dataset.lock = threading.Lock()
        with self.assertRaisesRegex(TypeError, r"dataset\.lock .*cannot.*pickle"):
            iter(DataLoader(dataset, num_workers=1))
        with self.assertRaisesRegex(TypeError, "(?s)a batch cannot be pickled.*generator.*collate_fn"):
            next(iter(DataLoader(Squares(), num_workers=1, collate_fn=lambda samples: (each for each in samples))))
        with self.assertRaisesRegex(RuntimeError, "stack expects each tensor to be equal size"):
            next(iter(DataLoader(Values(torch.zeros), batch_size=2, num_workers=1)))

    def test_a_worker_that_cannot_begin_says_why(self):
        loader = DataLoader(Squares(), num_workers=1, pool={"loader": {"command": [sys.executable, "-c", "raise SystemExit('no torch here')"]}})
        with self.assertRaisesRegex(penstock.error, "no torch here"):
            next(iter(loader))

    def test_interrupting_user_code_interrupts_the_caller(self):
        def give(index):
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            next(iter(DataLoader(Values(give), num_workers=1)))

    def test_a_worker_of_a_loader_may_have_a_loader(self):
        def give(index):
            return sum(int(value) for value in DataLoader(Values(abs, 4), num_workers=1))
        self.assertEqual(list(DataLoader(Values(give, 2), batch_size=None, num_workers=1)), [6, 6])

    # ---- the end --------------------------------------------------------------------------------------------------

    def test_classes_of_a_program_without_a_guard_travel_and_come_back(self):
        out = self.ran("""
            import torch
            from penstock.torch import DataLoader
            class Batch:
                def __init__(self, samples): self.total = sum(samples)
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 6
                def __getitem__(self, index): return index
            for batch in DataLoader(Numbers(), batch_size=3, num_workers=1, collate_fn=lambda samples: Batch(samples)):
                print(isinstance(batch, Batch), batch.total)
            """)
        self.assertEqual(out.split(), ["True", "3", "True", "12"])

    def test_an_iterator_that_lives_at_the_interpreters_end_does_not_delay_it(self):
        out = self.ran("""
            import time, torch
            from penstock.torch import DataLoader
            class Slow(torch.utils.data.Dataset):
                def __len__(self): return 100
                def __getitem__(self, index):
                    if index > 2: time.sleep(60)
                    return index
            loader = iter(DataLoader(Slow(), num_workers=2))
            print(next(loader).item())
            """, timeout=30)
        self.assertEqual(out.strip(), "0")

    def test_a_killed_interpreter_leaves_no_worker(self):
        process = self.program("""
            import os, time, torch
            from penstock.torch import DataLoader
            class Pids(torch.utils.data.Dataset):
                def __len__(self): return 1000
                def __getitem__(self, index): return os.getpid()
            for pid in DataLoader(Pids(), batch_size=None, num_workers=1):
                print("worker", pid, flush=True)
                time.sleep(0.1)
            """)
        worker = int(self.said(process, "worker"))
        process.kill()
        process.wait()
        self.wait_until(lambda: not alive(worker), "the end of the worker", seconds=3)

    def test_iterations_make_nothing_grow(self):
        many = int(os.environ.get("PENSTOCK_TEST_ITERATIONS", "60"))

        def give(index):
            return torch.full((20_000,), index, dtype=torch.float32), {"name": "n%d" % index, "worker": os.getpid()}  # batches of 320 kB: read in their slots
        loader = DataLoader(Values(give, 40), batch_size=4, num_workers=2)

        def grown_from(processes):
            return {pid: (descriptors_of(pid), threads_of(pid), anonymous_memory_of(pid)) for pid in processes}

        def turn(times):
            for at in range(times):
                for place, batch in enumerate(loader):
                    if at % 3 == 0 and place == 4:  # an iteration that is given up
                        break
            del batch
            gc.collect()
            return grown_from([os.getpid(), *children_of(os.getpid())])
        seen = set()
        while len(seen) < 2:  # the second one imports torch when the first one has
            seen |= {int(facts["worker"][0]) for _, facts in loader}
        before = turn(30)
        after = turn(many)
        self.assertEqual(sorted(before), sorted(after))
        for pid, (descriptors, threads, memory) in before.items():
            self.assertEqual(after[pid][1], threads)
            self.assertLessEqual(after[pid][0], descriptors + 2, "descriptors")  # of the order that is in use, and the last one
            self.assertLess(after[pid][2], memory + (8 << 10), "kilobytes")
        print("%d iterations; descriptors, threads, kB at first and at last:" % many, list(before.values()), list(after.values()))

    def test_loaders_that_are_made_and_dropped_leave_nothing_behind(self):
        def turn(times):
            for at in range(times):
                loader = DataLoader(Squares(64), batch_size=4, num_workers=1)
                for batch in loader:
                    if at % 2 == 0:
                        break
            del loader, batch
            gc.collect()
            self.no_children_left()
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        before, memory = turn(2), anonymous_memory_of(os.getpid())
        many = int(os.environ.get("PENSTOCK_TEST_LOADERS", "2"))
        self.wait_until(lambda: turn(many) == before, "as many descriptors and threads as before", seconds=60 + many)
        print("%d loaders: %d kB at first, %d at last" % (many, memory, anonymous_memory_of(os.getpid())))
        self.assertLess(anonymous_memory_of(os.getpid()), memory + (16 << 10), "kilobytes")


if __name__ == "__main__":
    main()
