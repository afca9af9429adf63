"""penstock.torch.DataLoader: torch's loader, as torch's tests know it; randomness that belongs to the sample; memory."""

import collections
import gc
import random
import threading
import time
import unittest.mock
import warnings

import penstock
from loader_data import DataLoader, LoaderCase, SharingLoader, Squares, Values, kill, numpy, torch
from package import *
from package import children_of

Pair = collections.namedtuple("Pair", "number word")


def pid_of_worker(index):
    return os.getpid()


class LoaderTest(LoaderCase):
    # ---- as in torch ----------------------------------------------------------------------------------------------

    def test_batches_match_those_of_the_torch_loader(self):
        def give(index):
            return {"array": numpy.full((3, 2), index), "pair": Pair(index, "w%d" % index), "flag": index % 2 == 0,
                    "tensors": [torch.arange(4) * index, torch.tensor(0.5, dtype=torch.bfloat16)], "none": torch.empty(0)}
        sampler = torch.utils.data.SequentialSampler(range(50))
        for options in ({"batch_size": 4}, {"batch_size": 7, "drop_last": True}, {"batch_size": None}, {"batch_size": 3, "sampler": sampler},
                        {"batch_sampler": [[3, 1], [2], [60, 61, 62]]}, {"batch_size": 2, "collate_fn": list}):
            mine = SharingLoader(Values(give), num_workers=2, **options)
            theirs = torch.utils.data.DataLoader(Values(give), **options)
            self.assertIsInstance(mine, torch.utils.data.DataLoader)
            self.assertEqual(len(mine), len(theirs))
            batches, expected = list(mine), list(theirs)
            self.assertEqual(len(batches), len(expected))
            for batch, other in zip(batches, expected):
                self.same(batch, other)

    def test_a_dataset_can_return_a_batch_in_any_type_that_its_collate_function_accepts(self):
        class Together(Values):
            def __getitems__(self, indices):
                return self.give(indices)
        for give in (torch.tensor, numpy.array, lambda indices: {"indices": indices}, tuple):
            for size in (4, 5000):
                loader = SharingLoader(Together(give, 2 * size), batch_size=size, num_workers=1, collate_fn=lambda batch: batch)
                for at, batch in enumerate(loader):
                    self.same(batch, give(list(range(at * size, at * size + size))))
        with self.assertRaisesRegex(TypeError, "must be tuple of Tensors, not Tensor"):
            next(iter(SharingLoader(Together(torch.tensor), num_workers=1)))

    def test_getitems_gets_what_the_batch_sampler_yielded(self):
        class Together(Values):
            def __getitems__(self, indices):
                return [type(indices).__name__, *[int(index) for index in indices]]
        for index, kind in ((numpy.array([1, 2]), "ndarray"), (torch.tensor([1, 2]), "Tensor"), ((1, 2), "tuple"), (range(1, 3), "range"), ([1, 2], "list")):
            self.assertEqual(list(SharingLoader(Together(abs), batch_sampler=[index], num_workers=1, collate_fn=list)), [[kind, 1, 2]])

    def test_a_dataset_may_hold_a_view_of_a_tensor_with_smaller_elements(self):
        class Holding(Values):
            held = torch.arange(10, dtype=torch.uint8)[:8].view(torch.int32)
        loaded = list(SharingLoader(Holding(lambda index: Holding.held, 2), batch_size=None, num_workers=1))
        self.same(loaded, [Holding.held] * 2)

    def test_conjugated_and_negated_tensors_keep_their_values(self):
        def conjugated():
            return torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag

        class Holding(Values):
            held = conjugated()

            def __getitem__(self, index):
                return [each.resolve_conj().resolve_neg() for each in self.held]
        for dataset in (Values(lambda index: conjugated()), Holding(None)):
            one, other = next(iter(SharingLoader(dataset, batch_size=None, num_workers=1)))
            self.assertEqual((one.tolist(), other.tolist()), ([1 - 2j], [-2]))

    def test_datasets_without_a_length_and_batch_samplers_of_iterators_work_as_in_torch(self):
        class WithoutLength(Values):
            def __len__(self):
                raise NotImplementedError
        loader = SharingLoader(WithoutLength(int), sampler=[3, 1], num_workers=1)
        self.assertEqual([batch.tolist() for batch in loader], [[3], [1]])
        self.assertEqual(loader.state_dict()["facts"]["length"], None)
        loader = SharingLoader(Values(int), batch_sampler=[iter([3, 1]), iter([2])], num_workers=1)
        self.assertEqual([batch.tolist() for batch in loader], [[3, 1], [2]])
        loader = SharingLoader(Values(int, 3), num_workers=numpy.int64(1), worker_init_fn=print)
        self.assertEqual([batch.tolist() for batch in loader], [[0], [1], [2]])

    def test_no_batch_comes_from_a_worker_in_which_worker_init_fn_raised(self):
        def begin(worker):
            raise LookupError("nothing for worker %d" % worker)
        for options in ({}, {"persistent_workers": True}):
            loader = SharingLoader(Values(int, 3), num_workers=1, worker_init_fn=begin, **options)
            for _ in range(2):
                iterator = iter(loader)
                for _ in range(3):
                    with self.assertRaisesRegex(LookupError, "(?s)in begin.*nothing for worker 0"):
                        next(iterator)
                with self.assertRaises(StopIteration):
                    next(iterator)

    def test_more_workers_than_cores_are_no_reason_for_a_warning(self):
        many = len(os.sched_getaffinity(0)) + 1
        with self.assertWarnsRegex(UserWarning, "suggested max number of worker"):
            torch.utils.data.DataLoader(Values(int, 4), num_workers=many)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            DataLoader(Values(int, 4), num_workers=many)

    def test_a_shuffled_datapipe_has_the_order_of_the_torch_loader(self):
        from torch.utils.data.datapipes.iter import IterableWrapper

        def orders(kind):
            pipe = IterableWrapper(range(12)).shuffle().sharding_filter()
            loader = kind(pipe, batch_size=2, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(3))
            return [[batch.tolist() for batch in loader] for _ in range(2)]
        self.assertEqual(orders(SharingLoader), orders(torch.utils.data.DataLoader))

    def test_shuffle_gives_the_order_of_the_torch_loader_for_the_same_generator(self):
        def orders(kind):
            loader = kind(Squares(), batch_size=8, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(3))
            return [[batch["index"].tolist() for batch in loader] for _ in range(2)]
        mine = orders(SharingLoader)
        self.assertEqual(mine, orders(torch.utils.data.DataLoader))
        self.assertNotEqual(mine[0], mine[1])

    def test_an_exception_is_raised_as_in_torch_and_the_next_batch_follows(self):
        def give(index):
            if index == 5:
                raise KeyError("at five")
            return index
        loader = iter(SharingLoader(Values(give, 12), batch_size=4, num_workers=2))
        self.assertEqual(next(loader).tolist(), [0, 1, 2, 3])
        with self.assertRaisesRegex(KeyError, "(?s)Caught KeyError in DataLoader worker process.*in give"):
            next(loader)
        self.assertEqual(next(loader).tolist(), [8, 9, 10, 11])
        with self.assertRaises(StopIteration):
            next(loader)

    def test_a_map_dataset_that_raises_stop_iteration_is_treated_as_in_torch(self):
        def give(index):
            if index == 5:
                raise StopIteration("at five")
            return index

        def taken(loader):
            """Lists of batches: each `for` loop ends at an exception of this kind."""
            iterator = iter(loader)
            return [[batch.tolist() for batch in iterator] for _ in range(3)]
        mine = taken(SharingLoader(Values(give, 16), batch_size=4, num_workers=2))
        theirs = taken(torch.utils.data.DataLoader(Values(give, 16), batch_size=4, num_workers=2))
        self.assertEqual(mine, theirs)

    def test_worker_init_fn_and_get_worker_info_behave_as_in_torch(self):
        def begin(worker):
            info = torch.utils.data.get_worker_info()
            assert (info.id, info.num_workers) == (worker, 2) and len(info.dataset) == 64
            info.dataset.begun = (worker, info.seed, torch.initial_seed())

        class Told(Values):
            def __getitem__(self, index):
                return self.begun
        loader = SharingLoader(Told(None), batch_size=None, num_workers=2, worker_init_fn=begin, generator=torch.Generator().manual_seed(1))
        told = set(map(tuple, loader))
        self.assertLessEqual({worker for worker, _, _ in told}, {0, 1})
        for worker, seed, initial in told:
            self.assertEqual(seed, initial)
        self.assertEqual(len({seed - worker for worker, seed, _ in told}), 1)
        self.assertIsNone(torch.utils.data.get_worker_info())

    def test_workers_start_one_after_another(self):
        # Imported objects are frozen in the worker, which shows that _beginning.prepare() has run there; beginning_test.py tests what it
        # does.
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
        loader = SharingLoader(Squares(40), batch_size=4, num_workers=2)
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
        with self.assertWarnsRegex(UserWarning, "num_workers=0 .* where on_bad_sample and quarantine have no effect"):
            DataLoader(Squares(), on_bad_sample="skip", quarantine=os.path.join(self.folder, "bad"))
        with self.assertRaisesRegex(penstock.config_error, "on_bad_sample"):
            DataLoader(Squares(), on_bad_sample="ignore")
        with self.assertRaisesRegex(TypeError, "^num_workers is '2', of type str"):
            DataLoader(Squares(), num_workers="2")
        with self.assertRaisesRegex(TypeError, "^seed is 'x', of type str"):
            DataLoader(Squares(), num_workers=1, seed="x")
        with self.assertRaisesRegex(penstock.config_error, "seeding"):
            DataLoader(Squares(), seeding="never")
        with self.assertRaisesRegex(TypeError, "pool is 4: a loader has its own workers; pass a dict of their options"):
            DataLoader(Squares(), pool=4)
        with self.assertRaisesRegex(penstock.config_error, "^num_workers is 2, but loader.workers is 5: leave out loader.workers"):
            DataLoader(Squares(), num_workers=2, pool={"loader": {"workers": 5}})

    def test_without_workers_samples_are_loaded_in_the_program(self):
        self.assertEqual(list(DataLoader(Values(pid_of_worker, 2), batch_size=None)), [os.getpid()] * 2)

    def test_out_of_order_a_slow_batch_does_not_delay_others_and_none_is_lost(self):
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

    def test_batches_are_pinned_as_in_torch_including_those_of_a_custom_class(self):
        class Pinnable:
            def __init__(self, samples):
                self.samples = samples

            def pin_memory(self):
                return [*self.samples, "pinned"]
        with unittest.mock.patch("torch.cuda.is_available", return_value=True):
            loader = SharingLoader(Values(abs, 4), batch_size=2, num_workers=2, pin_memory=True, collate_fn=Pinnable)
            self.assertEqual(list(loader), [[0, 1, "pinned"], [2, 3, "pinned"]])

    # ---- seeds ----------------------------------------------------------------------------------------------------

    def test_randomness_of_a_sample_depends_only_on_seed_epoch_and_index(self):
        def give(index):
            return index, random.random(), numpy.random.rand(), numpy.random.randn(), random.gauss(0, 1), torch.rand(()).item(), penstock.sample_rng().random()

        def epochs(workers, shuffle, **options):
            loader = SharingLoader(Values(give, 30), batch_size=None, num_workers=workers, shuffle=shuffle, **options)
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

    # ---- memory ---------------------------------------------------------------------------------------------------

    def test_nested_tensors_are_sent_to_workers_and_back_unchanged(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that nested tensors are a prototype
            data = [torch.nested.nested_tensor([torch.arange(3.0) + index, torch.arange(2.0)]) for index in range(4)]
            batches = list(DataLoader(data, batch_size=2, num_workers=1, collate_fn=list))
        for index, tensor in enumerate(tensor for batch in batches for tensor in batch):
            self.assertTrue(tensor.is_nested)
            self.assertEqual([each.tolist() for each in tensor.unbind()], [[index, index + 1.0, index + 2.0], [0.0, 1.0]])
        self.assertEqual(index, 3)

    def test_large_batches_can_be_kept_and_written_to(self):
        def give(index):
            return torch.full((300_000,), index, dtype=torch.float32)
        for slot_bytes in ("8MiB", "1MiB"):  # batches fit in slots, or do not
            batches = list(DataLoader(Values(give, 40), batch_size=4, num_workers=2, pool={"loader": {"slot_bytes": slot_bytes}}))
            for place, batch in enumerate(batches):
                for row in range(4):
                    self.assertTrue((batch[row] == place * 4 + row).all())
                batch.zero_()
                self.assertEqual(batch.count_nonzero().item(), 0)

    def test_batches_that_are_kept_do_not_keep_the_workers_alive(self):
        for slot_bytes in ("8MiB", "1MiB"):  # batches fit in slots, or do not
            batches = list(DataLoader(Values(lambda index: torch.full((100_000,), float(index)), 16), batch_size=4, num_workers=1,
                                      pool={"loader": {"slot_bytes": slot_bytes}}))
            gc.collect()
            self.wait_until(lambda: set(children_of(os.getpid())) <= SharingLoader.pids(), "the end of the workers", seconds=10)
            for place, batch in enumerate(batches):
                self.assertEqual(batch[:, -1].tolist(), [4 * place + row for row in range(4)])
                batch.zero_()

    def test_large_memory_of_a_dataset_exists_only_once(self):
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
            self.assertLess(size, 129 << 10)  # `part` does not own its memory
            self.assertLess(own, 1 << 10)  # except for the pages that were written
            self.assertEqual(total, 1)


if __name__ == "__main__":
    main()
