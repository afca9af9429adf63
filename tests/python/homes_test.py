"""Which worker of a host loads each shard of an iterable dataset."""

import os
import random
import unittest

import package  # noqa: F401: finds penstock
from penstock._homes import Homes, SeenWorkers

NOWHERE = 320


def loads(homes, shards):
    held = {}
    for shard in range(shards):
        held.setdefault(homes.of(shard), []).append(shard)
    return held


def moved(homes, shards, workers):
    """The shards that move when these workers are there."""
    before = [homes.of(shard) for shard in range(shards)]
    homes.spread(workers)
    return [shard for shard in range(shards) if homes.of(shard) != before[shard]]


class HomesTest(unittest.TestCase):
    def test_without_workers_shards_wait(self):
        homes = Homes(3, NOWHERE)
        homes.spread([])
        self.assertEqual({homes.of(shard) for shard in range(3)}, {NOWHERE})

    def test_a_new_worker_takes_over_at_most_its_even_share(self):
        homes = Homes(4, NOWHERE)
        self.assertEqual(moved(homes, 4, [65]), [0, 1, 2, 3])
        self.assertEqual(len(moved(homes, 4, [65, 66])), 2)
        self.assertEqual(moved(homes, 4, [65, 66]), [])
        self.assertEqual(len(moved(homes, 4, [65, 66, 67])), 1)
        self.assertEqual(moved(homes, 4, [65, 66, 67]), [])

    def test_shards_of_lost_workers_move_and_the_others_stay(self):
        homes = Homes(4, NOWHERE)
        homes.spread([65, 66])
        stays = {shard for shard in range(4) if homes.of(shard) == 66}
        left = moved(homes, 4, [66, 70])
        self.assertFalse(stays & set(left))
        self.assertEqual(loads(homes, 4)[70], left)
        self.assertEqual(moved(homes, 4, []), [])  # all workers are gone, so the shards cannot move
        self.assertEqual(set(loads(homes, 4)), {66, 70})

    def test_shards_are_spread_evenly_as_workers_come_and_go(self):
        seed = int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(1 << 32)))
        print("PENSTOCK_TEST_SEED=%d" % seed, flush=True)
        draw = random.Random(seed)
        homes, workers = Homes(7, NOWHERE), set()
        for _ in range(10000):
            workers ^= {draw.randrange(65, 75)}
            homes.spread(sorted(workers))
            self.assertEqual(moved(homes, 7, sorted(workers)), [])
            if workers:
                counts = [len(loads(homes, 7).get(worker, [])) for worker in workers]
                self.assertEqual(sum(counts), 7)
                self.assertLess(max(counts) - min(counts), 2)

    def test_workers_that_load_no_more_batches_have_no_shard(self):
        states = ["ready", "starting", "backoff", "draining", "stopped", "failed"]
        pool = PoolWithHosts([{"id": 65 + at, "state": state} for at, state in enumerate(states)])
        self.assertEqual(SeenWorkers(pool, 0).on_hosts(), [65, 66, 67])

    def test_a_new_pass_gets_the_workers_seen_last_without_asking_again(self):
        pool = PoolWithHosts([{"id": 65, "state": "ready"}])
        seen = SeenWorkers(pool, 0)
        self.assertEqual(seen.last_seen_on_hosts(), [65])  # the pool has not been asked yet
        pool.status = None
        self.assertIsNone(seen.on_hosts())
        self.assertEqual(seen.last_seen_on_hosts(), [65])

    def test_workers_that_an_operator_adds_widen_the_window_and_those_that_start_do_not_narrow_it(self):
        for states, width in ((["starting", "starting"], 2), (["ready"] * 4, 4), (["busy"] * 3 + ["starting"], 3), ([], 2)):
            pool = PoolWithHosts([{"id": at, "state": state} for at, state in enumerate(states)], has_hosts=False)
            self.assertEqual(SeenWorkers(pool, 2).width(), width)


class PoolWithHosts:
    """The part of a pool that SeenWorkers reads."""

    _config = {"loader.limits.max": 64}

    def __init__(self, workers, has_hosts=True):
        self._workers, self._has_hosts = workers, has_hosts

    def status(self):
        return {"workers": self._workers, "hosts": [{"workers": [each["id"] for each in self._workers]}]}


if __name__ == "__main__":
    unittest.main()
