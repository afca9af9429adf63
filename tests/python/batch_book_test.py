"""The book of an epoch (penstock._batch_book) under random results, failures, timeouts and resumptions.

PENSTOCK_TEST_STEPS steps (200 000) from a printed seed (PENSTOCK_TEST_SEED).
"""

import random

from package import *
from penstock._batch_book import TRIES, BatchBook, Shards

STEPS = int(os.environ.get("PENSTOCK_TEST_STEPS", "200000"))
SEED = int(os.environ.get("PENSTOCK_TEST_SEED", random.SystemRandom().randrange(1 << 30)))


class Progress:
    """Stands in for _progress.Progress."""

    def __init__(self, saved=None):
        self.samples, self.batches, self.shards = saved or (0, 0, None)
        self.finished = False

    def delivered(self, samples):
        self.samples += samples
        self.batches += 1

    def saved(self):
        return self.samples, self.batches, self.shards


class World:
    """A dataset, a sampler, and a caller that carries out the book's decisions.

    Args:
        lengths: the batches of each shard of an iterable dataset; None: one with an index.
    """

    def __init__(self, draw, lengths):
        self.draw, self.lengths = draw, lengths
        self.size, self.leaves_out, self.ordered = draw.randrange(1, 5), draw.random() < 0.5, draw.random() < 0.7
        self.total = draw.randrange(0, 60)  # samples that the sampler yields
        self.steps = 0
        self.seen, self.outcome = [], []
        self.begin(None)

    def begin(self, saved):
        self.progress = Progress(saved)
        shards = None if self.lengths is None else Shards(len(self.lengths), self.progress.shards, in_order=self.ordered)
        self.book = BatchBook(self.progress, True, self.leaves_out, shards)
        self.sampled = self.progress.samples
        self.tries = {}
        for _ in range(self.draw.randrange(1, 6)):
            self.plan()

    def plan(self):
        if self.lengths is None and self.sampled >= self.total:
            return self.book.exhaust()
        index = list(range(self.sampled, self.sampled + self.size))
        if self.lengths is None:
            index = index[: self.total - self.sampled]
        self.sampled += len(index)
        planned = self.book.plan(index)
        assert planned is None or self.lengths is not None or planned.first == index[0]

    def step(self):
        """Advances by one batch; returns whether the epoch continues."""
        self.steps += 1
        book = self.book
        planned = book.next()
        if planned is None:
            return False
        if not self.ordered:
            planned = self.draw.choice(book.under_way)
            if self.lengths is not None:  # a worker loads the batches of its shard one after another
                planned = next(other for other in book.under_way if other.shard == planned.shard)
        if book.is_behind_end(planned):
            assert planned.first > self.lengths[planned.shard]
            book.drop(planned)
            return True
        what = self.draw.random()
        if what < 0.1:
            return self.failed(planned)
        over = self.lengths is not None and planned.first >= self.lengths[planned.shard]
        name = tuple(planned.index) if self.lengths is None else (planned.shard, planned.first)
        nothing_left = self.lengths is None and len(planned.bad) == len(planned.index)
        book.took(planned, over or nothing_left, (planned.shard, planned.first + 1))
        self.plan()
        if not over:
            self.count(planned)
            self.seen.append(name)
        return True

    def count(self, planned):
        self.book.count(planned)
        assert self.progress.finished == (self.lengths is None and self.sampled >= self.total and not self.book.under_way)
        if self.lengths is not None and self.book.under_way:
            assert self.progress.shards["next"] == self.book.under_way[0].shard

    def failed(self, planned):
        status = self.draw.choice(("timed_out", "poisoned", "exception"))
        left = [place for place in range(len(planned.index)) if place not in planned.bad]
        place = self.draw.choice(left) if left and self.draw.random() < 0.8 else None
        before, timeouts = planned.bad, planned.timeouts
        if self.book.is_tried_again(planned, status, place):
            assert status != "exception"
            if status == "timed_out" and timeouts + 1 < TRIES:
                assert planned.bad == before and planned.timeouts == timeouts + 1
            else:
                assert self.leaves_out and self.lengths is None and planned.bad == (*before, place) and planned.timeouts == 0
            return True
        assert planned.bad == before
        self.book.gave_up(planned)
        self.plan()
        self.count(planned)
        self.seen.append(tuple(planned.index) if self.lengths is None else (planned.shard, planned.first))
        return True

    def expected(self):
        """All batches once, in the order of the sampler, or in the shards' turns."""
        if self.lengths is None:
            return [tuple(range(at, min(at + self.size, self.total))) for at in range(0, self.total, self.size)]
        return None


class BatchBookTest(PackageTest):
    def test_each_batch_is_delivered_once_and_in_order_whatever_fails_and_wherever_the_epoch_is_resumed(self):
        print("PENSTOCK_TEST_SEED=%d" % SEED, flush=True)
        draw, steps, round_ = random.Random(SEED), 0, 0
        while steps < STEPS:
            round_ += 1
            where = "round %d of seed %d" % (round_, SEED)
            lengths = None if draw.random() < 0.5 else [draw.randrange(0, 12) for _ in range(draw.randrange(1, 5))]
            world = World(draw, lengths)
            while world.step():
                position = world.progress.saved()
                if draw.random() < 0.05 and (lengths is None or position[2] is not None) and world.ordered:
                    world.begin(position)
            steps += world.steps
            self.assertEqual(list(world.book.under_way), [], where)
            self.assertEqual(world.progress.batches, len(world.seen), where)
            if lengths is None:
                self.assertEqual(world.seen if world.ordered else sorted(world.seen), world.expected(), where)
                self.assertEqual(world.progress.samples, world.total, where)
                self.assertTrue(world.progress.finished, where)
            else:
                # If a shard's final, empty batch fails, its error counts as one more batch.
                for shard, length in enumerate(lengths):
                    numbers = [number for of, number in world.seen if of == shard]
                    self.assertEqual(numbers, list(range(len(numbers))), where)
                    self.assertGreaterEqual(len(numbers), length, where)
                self.assertEqual(world.progress.shards["given"] if world.progress.shards else [0] * len(lengths),
                                 [len([1 for of, _ in world.seen if of == shard]) for shard in range(len(lengths))], where)

    def test_a_batch_that_was_cut_off_stays_the_next_one_whatever_follows(self):
        book = BatchBook(progress := Progress(), True, False)
        first, second, third = (book.plan([2 * number, 2 * number + 1]) for number in range(3))
        book.exhaust()
        book.took(first, False, None)
        book.count(first)
        book.cut_off(second)
        book.took(third, False, None)
        book.count(third)
        self.assertIsNone(book.next())
        self.assertEqual((progress.samples, progress.batches, progress.finished), (2, 1, False))

    def test_shards_that_have_ended_lose_their_turn_and_all_others_keep_their_turns(self):
        shards = Shards(3)
        self.assertEqual([shards.plan() for _ in range(4)], [(0, 0), (1, 0), (2, 0), (0, 1)])
        shards.active[1] = False
        self.assertEqual([shards.plan() for _ in range(3)], [(2, 1), (0, 2), (2, 2)])
        shards.active = [False] * 3
        self.assertIsNone(shards.plan())

    def test_out_of_order_a_shard_that_waits_for_a_slow_batch_takes_no_turns_from_the_others(self):
        book = BatchBook(Progress(), False, False, Shards(2, in_order=False))
        for _ in range(4):
            book.plan(None)
        for number in range(10):
            planned = next(each for each in book.under_way if each.shard == 0)  # no batch of shard 1 ends
            self.assertEqual(planned.first, number)
            book.took(planned, False, None)
            book.plan(None)
        self.assertEqual([(each.shard, each.first) for each in book.under_way], [(1, 0), (1, 1), (0, 10), (0, 11)])

    def test_a_resumed_book_starts_with_the_shard_that_would_have_come_next(self):
        shards = Shards(3, {"given": [4, 3, 3], "active": [True, False, True], "next": 1})
        self.assertEqual([shards.plan() for _ in range(3)], [(2, 3), (0, 4), (2, 4)])


if __name__ == "__main__":
    main()
