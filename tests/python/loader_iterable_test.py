"""Iterable datasets: sharded as in torch; a worker that dies loses and repeats no sample."""

import collections
import random
import time

import penstock
from loader_data import Counting, DataLoader, LoaderCase, SharingLoader, Shards, crash, kill, plain, torch
from package import *
from package import children_of


def kill_one(candidates):
    """Sends SIGKILL to one of these processes, chosen at random. A chosen process may have ended; then another one is killed."""
    while True:
        try:
            return signal_process(random.choice(list(candidates())), signal.SIGKILL)
        except ProcessLookupError:
            pass


class LoaderIterableTest(LoaderCase):
    def test_iterable_datasets_are_sharded_and_ordered_as_in_torch(self):
        for workers, options in ((3, {"batch_size": 3}), (2, {"batch_size": 3, "drop_last": True}), (2, {"batch_size": None})):
            mine = list(SharingLoader(Shards(10), num_workers=workers, **options))
            theirs = list(torch.utils.data.DataLoader(Shards(10), num_workers=workers, multiprocessing_context="fork", **options))
            self.same(mine, theirs)

    def test_out_of_order_a_slow_shard_does_not_delay_the_others(self):
        go_on = os.path.join(self.folder, "go-on")

        def wait(shard, value):
            if (shard, value) == (1, 1):
                for _ in range(6000):
                    if os.path.exists(go_on):
                        break
                    time.sleep(0.01)
        loader = DataLoader(Shards(20, wait), num_workers=2, batch_size=None)
        loader.in_order = False  # an argument of newer versions of torch
        iterator = iter(loader)
        self.assertEqual([next(iterator) for _ in range(10)], list(range(0, 20, 2)))
        open(go_on, "w").close()
        self.assertEqual(list(iterator), list(range(1001, 1023, 2)))

    def test_a_worker_that_dies_in_an_iterable_dataset_loses_and_repeats_no_sample(self):
        mark = os.path.join(self.folder, "mark")

        def die(shard, value):
            if (shard, value) == (1, 7) and not os.path.exists(mark):
                open(mark, "w").close()
                kill()
        loader = DataLoader(Shards(20, die), num_workers=2, batch_size=2, seed=3)
        first = [batch.tolist() for batch in loader]
        self.assertTrue(os.path.exists(mark))
        del loader
        self.assertEqual(first, [batch.tolist() for batch in SharingLoader(Shards(20), num_workers=2, batch_size=2, seed=3)])

    def test_a_replacement_resumes_a_stateful_dataset_and_repeats_no_sample(self):
        mark = os.path.join(self.folder, "mark")

        def die(shard, value):
            if (shard, value) == (1, 31) and not os.path.exists(mark):
                open(mark, "w").close()
                kill()
        options = {"num_workers": 2, "batch_size": 2, "seed": 3}
        dataset = Counting(60, os.path.join(self.folder, "log"))
        expected = plain(SharingLoader(dataset, **options))
        self.assertEqual(set(dataset.made().values()), {1})
        dataset.more = die
        self.assertEqual(plain(DataLoader(dataset, **options)), expected)
        self.assertTrue(os.path.exists(mark))
        again = [value for value, times in dataset.made().items() if times > 1]
        self.assertLessEqual(set(again), {1029})  # of the lost batch

    def test_kills_at_any_moment_do_not_change_what_a_stateful_dataset_yields(self):
        options = {"num_workers": 2, "batch_size": 3, "seed": 3}
        length = int(os.environ.get("PENSTOCK_TEST_KILLED", "150"))  # one kill for every 30 samples
        dataset = Counting(length, os.path.join(self.folder, "log"), lambda shard, value: time.sleep(0.001))
        expected = plain(SharingLoader(dataset, **options))
        loader = DataLoader(dataset, **options)
        batches = []
        for place, batch in enumerate(loader):
            batches.append(batch)
            if place % 20 == 10:
                kill_one(lambda: set(children_of(os.getpid())) - SharingLoader.pids())
        self.assertEqual(plain(batches), expected)

    def test_a_worker_that_dies_after_the_last_samples_of_its_shard_repeats_none_of_them(self):
        dataset = Counting(8, os.path.join(self.folder, "log"))
        loader = DataLoader(dataset, num_workers=1, batch_size=3, prefetch_factor=1)
        iterator = iter(loader)
        given = [next(iterator) for _ in range(2)]

        def jobs():
            return loader._workers.pool.status()["jobs"]
        self.wait_until(lambda: jobs()["running"] + jobs()["waiting"] == 0, "the last batch, of two samples, is there")
        signal_process(loader._workers.pool.status()["workers"][0]["pid"], signal.SIGKILL)
        self.assertEqual([values.tolist() for values, _ in given + list(iterator)], [[0, 1, 2], [3, 4, 5], [6, 7]])

    def test_each_shard_has_one_worker(self):
        pids = collections.defaultdict(set)
        for shard, pid in SharingLoader(Shards(30, lambda shard, value: (shard, os.getpid())), num_workers=3, batch_size=None):
            pids[shard].add(pid)
        self.assertEqual({shard: len(some) for shard, some in pids.items()}, {0: 1, 1: 1, 2: 1})

    def test_a_shard_that_kills_its_worker_is_named_with_its_position(self):
        def die(shard, value):
            if (shard, value) == (0, 5):
                crash()
        with self.assertRaisesRegex(penstock.sample_error, "sample 5 of shard 0"):
            list(DataLoader(Shards(20, die), num_workers=1, batch_size=4))


if __name__ == "__main__":
    main()
