"""Every batch equals torch's own byte for byte, however batches grow and shrink.

test_random_structures... compares PENSTOCK_TEST_BATCHES random batches (400) from a printed seed (PENSTOCK_TEST_SEED). All tests run with
PENSTOCK_VERIFY_BATCHES, which also compares each batch with a digest that its worker computed before any of it was in its slot.

Earlier tests missed the corruption that this file looks for. In each of them all batches of a loader had the same size, except for a
shorter last one with no epoch after it. A batch was assembled in memory of the size of the previous batch, so only a larger batch after a
smaller one of at least 64 KiB could overwrite its own parts.
"""

import ctypes
import itertools
import random

import penstock
from loader_data import DataLoader, LoaderCase, SharingLoader, Values, numpy, torch
from package import *
from penstock import _tensors
from random_batches import MOST_SAMPLES, RandomBatches, RandomStream, equal, random_value, seed_of_run

BATCHES = int(os.environ.get("PENSTOCK_TEST_BATCHES", "400"))
SEED = seed_of_run()
TorchLoader = torch.utils.data.DataLoader


class LoaderContentTest(LoaderCase):
    device = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["PENSTOCK_VERIFY_BATCHES"] = "1"

    @classmethod
    def tearDownClass(cls):
        del os.environ["PENSTOCK_VERIFY_BATCHES"]
        super().tearDownClass()

    def loader(self, dataset, slot_bytes="4MiB", **options):
        """A loader that reuses the workers of an earlier one with the same number of workers and the same slots."""
        class Loader(SharingLoader):
            def _kind(self):
                return self.num_workers, slot_bytes
        return Loader(dataset, device=self.device, pool={"loader": {"slot_bytes": slot_bytes}}, **options)

    def equal(self, batch, other):
        return equal(batch, other)

    def same_batches(self, mine, theirs, where=""):
        """Two loaders give the same batches. Returns the number of batches."""
        count = 0
        for count, (batch, other) in enumerate(itertools.zip_longest(mine, theirs), 1):
            self.assertTrue(self.equal(batch, other), "batch %d differs; %s" % (count - 1, where))
        return count

    def test_labels_after_an_incomplete_last_batch_are_correct_in_each_epoch(self):
        generator = torch.Generator().manual_seed(1)
        images = torch.randint(0, 256, (500, 3, 32, 32), dtype=torch.uint8, generator=generator)
        dataset = torch.utils.data.TensorDataset(images, torch.arange(500, dtype=torch.int64))
        for workers in (1, 2, 3, 4):
            for persistent in (False, True):
                mine = self.loader(dataset, batch_size=128, num_workers=workers, persistent_workers=persistent)
                for epoch in range(4):
                    self.assertEqual(self.same_batches(mine, TorchLoader(dataset, batch_size=128), "epoch %d, %d workers" % (epoch, workers)), 4)
                del mine

    def test_batches_that_grow_one_after_another_are_correct(self):
        def image(index):  # multi-scale training: 64, 72, 80, ... pixels, of 8 images each
            side = 64 + 8 * (index // 8 % 12)
            return torch.full((3, side, side), index % 251, dtype=torch.uint8), torch.tensor(index)

        def text(index):  # length buckets
            length = 500 + 500 * (index // 16 % 4)
            return {"ids": torch.full((length,), index), "mask": torch.full((length,), index % 2), "text": "x" * length, "length": torch.tensor(length)}
        for dataset, size in ((Values(image, 192), 8), (Values(text, 256), 16)):
            for workers in (1, 2):
                mine = self.loader(dataset, batch_size=size, num_workers=workers, persistent_workers=True)
                for _ in range(2):
                    self.same_batches(mine, TorchLoader(dataset, batch_size=size))

    def test_batches_of_two_alternating_sizes_are_correct(self):
        dataset = Values(lambda index: (torch.full((3, 16, 16), index % 251, dtype=torch.uint8), index, numpy.full(5, index)), 1152)
        sampler, at = [], 0
        while at < 1152:
            size = 64 if len(sampler) % 2 == 0 else 128
            sampler.append(list(range(at, at + size)))
            at += size
        mine = self.loader(dataset, batch_sampler=sampler, num_workers=1, persistent_workers=True)
        for _ in range(3):
            self.same_batches(mine, TorchLoader(dataset, batch_sampler=sampler))

    def test_a_batch_that_outgrows_its_slot_after_one_that_fitted_is_correct(self):
        sizes = (100_000, 900_000, 1_100_000, 200_000, 3_000_000, 50_000, 1_048_000)
        dataset = Values(lambda index: {"data": torch.full((sizes[index % len(sizes)],), index, dtype=torch.uint8), "index": index,
                                        "text": "y" * sizes[index % len(sizes)]}, 21)
        mine = self.loader(dataset, slot_bytes="1MiB", batch_size=1, num_workers=1, persistent_workers=True)
        for _ in range(2):
            self.assertEqual(self.same_batches(mine, TorchLoader(dataset, batch_size=1)), 21)
        self.assertEqual(mine._workers.pool.report()["workers"]["restarts"], 0)

    def test_random_structures_that_grow_and_shrink_match_those_of_the_torch_loader(self):
        print("PENSTOCK_TEST_SEED=%d" % SEED, flush=True)
        draw, left = random.Random(SEED), BATCHES
        kept = []
        while left > 0:
            seed, count, most = draw.randrange(1 << 40), min(left, draw.randrange(5, 50)), draw.choice((1 << 10, 1 << 13, 1 << 15, 1 << 17))
            workers, slot_bytes, epochs = draw.choice((1, 2)), draw.choice(("256KiB", "1MiB", "4MiB")), draw.choice((1, 1, 2))
            persistent, iterable = draw.random() < 0.5, draw.random() < 0.3
            where = "seed %d of %d: %d batches, %d workers" % (seed, SEED, count, workers)
            if iterable:
                size = draw.choice((1, 3, 17))
                dataset, how = RandomStream(seed, count, most, size), {"batch_size": size}
                theirs = [batch for batch in TorchLoader(dataset, **how)]
            else:
                dataset = RandomBatches(seed, count, most)
                how = {"batch_sampler": dataset.batches()}
                theirs = None
            mine = self.loader(dataset, slot_bytes, num_workers=workers, persistent_workers=persistent, prefetch_factor=draw.choice((1, 2, 4)), **how)
            for _ in range(epochs):
                number = 0
                for number, batch in enumerate(mine, 1):
                    other = theirs[number - 1] if iterable else torch.utils.data.default_collate([dataset[index] for index in how["batch_sampler"][number - 1]])
                    self.assertTrue(self.equal(batch, other), "batch %d differs; %s" % (number - 1, where))
                    if draw.random() < 0.1:
                        kept.append((batch, other))
                        if len(kept) > 20:
                            self.assertTrue(self.equal(*kept.pop(draw.randrange(len(kept)))), "a kept batch changed; " + where)
                self.assertEqual(number, count)
                left -= count
        for batch, other in kept:
            self.assertTrue(self.equal(batch, other), "a kept batch changed")

    def test_random_results_of_a_pool_match_those_of_the_function(self):
        draw = random.Random(SEED)
        with penstock.Pool(2, loader={"slot_bytes": "256KiB"}) as pool:
            kept = []
            for at in range(0, BATCHES, 100):
                inputs = [(draw.randrange(1 << 40), index, draw.choice((1 << 8, 1 << 16, 1 << 19))) for index in range(at, min(at + 100, BATCHES))]
                for given, result in zip(inputs, pool.map(random_value, *zip(*inputs))):
                    self.assertTrue(self.equal(result, random_value(*given)), "the result of %r differs; seed %d" % (given, SEED))
                    if draw.random() < 0.1:
                        kept.append((given, result))
                for given, result in kept[-50:]:
                    self.assertTrue(self.equal(result, random_value(*given)), "a kept result changed; seed %d" % SEED)

    def test_a_collate_function_of_the_program_and_one_registered_in_torch_for_its_type_are_correct(self):
        def joined(samples):
            return torch.cat([sample.reshape(-1) for sample in samples]), [len(sample) for sample in samples]

        def give(index):
            return torch.full((1 + index * 7 % 40, 300), float(index))
        dataset = Values(give, 60)
        for how in ({"collate_fn": joined, "batch_size": 9}, {"batch_size": 1}):
            self.same_batches(self.loader(dataset, num_workers=1, **how), TorchLoader(dataset, **how))

    def test_a_batch_that_differs_from_what_its_worker_made_is_an_error(self):
        def spoil(samples):
            return torch.stack(samples)
        loader = self.loader(Values(lambda index: torch.full((100,), index), 8), batch_size=4, num_workers=1, collate_fn=spoil)
        original = _tensors.batch_from

        def changed(whole):
            loaded = original(whole)
            loaded[0][0, 0] += 1
            return loaded
        _tensors.batch_from = changed
        try:
            with self.assertRaisesRegex(penstock.error, r"the batch of \[0, 1, 2, 3\] differs from what its worker made"):
                next(iter(loader))
        finally:
            _tensors.batch_from = original


class RoomTest(LoaderCase):
    def room(self, size=4096):
        self.memory = ctypes.create_string_buffer(size)
        return _tensors.Room(ctypes.addressof(self.memory), size)

    def views(self, *tensors):
        return [memoryview(b"pickle"), *[memoryview(tensor.numpy()).cast("B") for tensor in tensors]]

    def test_parts_in_separate_memory_are_appended_to_the_tensors_and_do_not_change_them(self):
        room = self.room()
        first, second = room.tensor(torch.int64, (10,)), room.tensor(torch.uint8, (3, 5))
        first.fill_(7)
        second.fill_(9)
        self.assertIsNotNone(room.finished(self.views(first, second, torch.full((100,), 3, dtype=torch.uint8))))
        self.assertEqual((first.unique().tolist(), second.unique().tolist()), ([7], [9]))

    def test_a_part_within_the_range_of_a_tensor_is_accepted_and_one_that_leaves_it_is_refused(self):
        room = self.room()
        first, second = room.tensor(torch.uint8, (64,)), room.tensor(torch.uint8, (64,))
        self.assertIsNotNone(room.finished(self.views(first[8:16], second)))
        whole = memoryview(self.memory).cast("B")
        for begin, end in ((64, 129), (100, 140), (0, 4), (190, 200)):
            with self.assertRaisesRegex(_tensors.PartOutsideRangeError, "part 0 is out of the range of its tensor: %d bytes at offset %d" % (end - begin, begin)):
                room.finished([whole[begin:end]])

    def test_a_batch_that_does_not_fit_is_refused_before_anything_is_written(self):
        room = self.room(1024)
        tensor = room.tensor(torch.uint8, (640,))
        tensor.fill_(5)
        before = bytes(self.memory)
        self.assertIsNone(room.finished(self.views(tensor, torch.ones(400, dtype=torch.uint8))))
        self.assertEqual(bytes(self.memory), before)
        self.assertIsNone(room.tensor(torch.uint8, (640,)))

    def test_a_batch_with_a_part_outside_its_range_is_an_error_that_names_its_samples(self):
        def broken(worker):
            def finished(self, parts):
                raise _tensors.PartOutsideRangeError("part 1 is out of the range of its tensor")
            _tensors.Room.finished = finished
        loader = DataLoader(Values(lambda index: torch.zeros(50_000), 8), batch_size=4, num_workers=1, worker_init_fn=broken)
        with self.assertRaisesRegex(Exception, r"the batch of the samples \[0, 1, 2, 3\] cannot be delivered: part 1 is out of the range"):
            next(iter(loader))


if __name__ == "__main__":
    main()
