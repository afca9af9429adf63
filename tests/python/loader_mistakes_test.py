"""Mistakes in programs with penstock.torch.DataLoader: each is an exception that says what to do, or does no harm."""

import multiprocessing
import threading

import penstock
from loader_data import DataLoader, LoaderCase, SharingLoader, Shards, Squares, torch
from package import *

# A libcuda for tests that reports whether it was initialised. A torch that was built for CUDA finds its own libcuda first.
CUDA = os.path.join(os.path.dirname(os.environ.get("PENSTOCK_BIN", "")), "tests", "actors", "job_worker", "idle_cuda", "libcuda.so.1")


class Values(torch.utils.data.Dataset):
    """A dataset of what `give(index)` returns."""

    def __init__(self, give=abs, length=40):
        self.give, self.length = give, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.give(index)


class Interrupt(Exception):
    pass


def interrupted_at(place, iterator):
    """next(iterator), but raises Interrupt at one of the places in penstock's code where Python runs signal handlers: behind a call of a
    C function, and where a Python function begins."""
    left = place

    def look(frame, event, _):
        nonlocal left
        code = frame.f_code
        if event not in ("call", "c_return") or os.sep + "penstock" + os.sep not in code.co_filename or code.co_name == "__del__":
            return
        left -= 1
        if left < 0:
            sys.setprofile(None)
            raise Interrupt
    sys.setprofile(look)
    try:
        return next(iterator)
    finally:
        sys.setprofile(None)


class LoaderMistakesTest(LoaderCase):
    def test_a_misspelt_argument_names_the_one_that_was_meant(self):
        with self.assertRaisesRegex(TypeError, r"^DataLoader has no argument 'batchsize': did you mean 'batch_size'\?$"):
            DataLoader(Squares(4), batchsize=8)
        with self.assertRaisesRegex(TypeError, r"^DataLoader has no argument 'zzz'$"):
            DataLoader(Squares(4), zzz=8)

    def test_the_package_says_where_its_dataloader_is(self):
        with self.assertRaisesRegex(AttributeError, "no attribute 'DataLoader': it is penstock.torch.DataLoader, after `import penstock.torch`"):
            penstock.DataLoader

    # ---- processes and threads ------------------------------------------------------------------------------------

    def test_after_a_fork_the_loader_works_in_the_child_and_an_iterator_from_before_says_why_it_does_not(self):
        out = self.ran("""
            import os, torch
            from penstock.torch import DataLoader
            for persistent in (False, True):
                loader = DataLoader(range(12), batch_size=4, num_workers=1, persistent_workers=persistent)
                before = iter(loader)
                next(before)
                child = os.fork()
                if child == 0:
                    try:
                        next(before)
                    except RuntimeError as e:
                        print(type(e).__name__, e)
                    print(len(list(loader)), flush=True)
                    del before, loader
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
                print([batch.tolist() for batch in before], len(list(loader)), flush=True)
                del before, loader
            """)
        expected = ["usage_error this iterator was made before a fork: make a new one, iter(loader), in this process", "3", "[[4, 5, 6, 7], [8, 9, 10, 11]] 3"]
        self.assertEqual(out.splitlines(), expected * 2)

    def test_a_forked_child_keeps_the_batches_of_its_parent_and_its_writes_do_not_reach_them(self):
        out = self.ran("""
            import os, torch
            from penstock.torch import DataLoader
            class Large(torch.utils.data.Dataset):
                def __len__(self):
                    return 100
                def __getitem__(self, index):
                    return torch.full((20001,), float(index))  # the batch does not end at the end of a page
            batches = iter(DataLoader(Large(), batch_size=1, num_workers=1, pool={"loader": {"slots_per_worker": 4}}))
            kept, dropped = next(batches), next(batches)
            reused, go = os.pipe()
            child = os.fork()
            if child == 0:
                os.read(reused, 1)
                if grandchild := os.fork():
                    os.waitpid(grandchild, 0)
                print(kept.unique().tolist(), dropped.unique().tolist(), flush=True)
                kept.fill_(-1)
                dropped.fill_(-1)
                os._exit(0)
            kept.add_(1000)
            del dropped
            assert sum(1 for _ in zip(range(50), batches)) == 50  # in the slot of `dropped`, too
            os.write(go, b"g")
            assert os.waitpid(child, 0)[1] == 0
            print(kept.unique().tolist(), [batch.unique().tolist() for batch in batches] == [[float(index)] for index in range(52, 100)])
            """)
        self.assertEqual(out.splitlines(), ["[0.0] [1.0]"] * 2 + ["[1000.0] True"])

    def test_threads_that_share_an_iterator_get_each_batch_once(self):
        iterator = iter(SharingLoader(Values(), batch_size=2, num_workers=1))
        taken, threads = [], []

        def take():
            for batch in iterator:
                taken.append(tuple(batch.tolist()))
        for _ in range(3):
            threads.append(threading.Thread(target=take))
            threads[-1].start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(taken), [(at, at + 1) for at in range(0, 40, 2)])

    def test_an_iterator_that_is_dropped_in_the_middle_of_an_epoch_leaves_the_next_epoch_complete(self):
        loader = SharingLoader(Values(lambda index: (index, os.getpid())), batch_size=None, num_workers=1)
        iterator = iter(loader)
        first = [next(iterator), next(iterator)]
        del iterator
        whole = list(loader)
        self.assertEqual([index for index, _ in whole], list(range(40)))
        self.assertEqual({pid for _, pid in whole}, {pid for _, pid in first})

    def test_ctrl_c_interrupts_a_wait_at_once_and_loses_no_batch(self):
        ready = os.path.join(self.folder, "ready")

        def wait(index):
            if index == 1 and not os.path.exists(ready):
                with open(ready, "w"):
                    threading.Event().wait(2)
            return index
        iterator = iter(SharingLoader(Values(wait, 4), num_workers=1, batch_size=None))
        self.assertEqual(next(iterator), 0)

        waiting = threading.Event()

        def interrupt():
            waiting.wait(60)
            self.wait_until(lambda: os.path.exists(ready), "a worker at sample 1")
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt) as caught:
            waiting.set()
            next(iterator)
        self.assertIsNone(caught.exception.__context__)  # its traceback shows no exception of penstock
        thread.join()
        self.assertEqual(list(iterator), [1, 2, 3])

    def test_a_signal_handler_that_raises_anywhere_in_next_loses_no_batch(self):
        large = 20000  # this many floats are read in their slot
        for make in (lambda: SharingLoader(Values(lambda index: torch.full((2 + index % 2 * large,), float(index)), 300), batch_size=1, num_workers=1),
                     lambda: SharingLoader(Shards(300), batch_size=1, num_workers=2)):
            expected = [batch.flatten()[0].item() for batch in make()]
            loader = make()
            iterator, taken = iter(loader), 0
            for place in range(len(expected)):
                interrupted, batch = False, None
                try:
                    batch = interrupted_at(place, iterator)
                except Interrupt:
                    interrupted = True
                self.assertEqual(loader.state_dict()["batches"], taken + (not interrupted), place)
                if interrupted:
                    batch = next(iterator)
                taken += 1
                self.assertEqual(batch.flatten()[0].item(), expected[taken - 1], place)
                self.assertEqual(loader.state_dict()["batches"], taken, place)
                if not interrupted:
                    break
            self.assertGreater(place, 40)
            self.assertFalse(interrupted)
            self.assertEqual([batch.flatten()[0].item() for batch in iterator], expected[taken:])

    def test_a_sampler_that_is_interrupted_does_not_end_the_epoch_early(self):
        interrupted = []

        def order():
            for index in range(8):
                if index == 5 and not interrupted:
                    interrupted.append(index)
                    raise Interrupt
                yield index

        class Interrupted:
            def __iter__(self):
                return order()

            def __len__(self):
                return 8
        loader = SharingLoader(Values(length=8), sampler=Interrupted(), batch_size=None, num_workers=1)
        iterator, taken = iter(loader), []
        with self.assertRaises(Interrupt):
            while True:
                taken.append(next(iterator))
        with self.assertRaisesRegex(penstock.error, "the sampler's iterator raised .* continues this epoch"):
            while True:
                taken.append(next(iterator))
        self.assertEqual(taken, [0, 1, 2, 3, 4])
        loader.load_state_dict(loader.state_dict())
        self.assertEqual(taken + list(loader), list(range(8)))

    def test_loaders_without_a_name_get_separate_names(self):
        process = self.program("""
            from penstock.torch import DataLoader
            def name_of(loader):
                return loader._workers.pool.status()["session"]
            first, second = [DataLoader(range(4), num_workers=1) for _ in range(2)]
            for loader in (first, second):
                assert len(list(loader)) == 4
            print(name_of(first), name_of(second))
            """)
        out, err = process.communicate(timeout=200)
        self.assertEqual((out, err), ("loader loader-2\n", ""))

    # ---- the environment ------------------------------------------------------------------------------------------

    def test_a_worker_that_cannot_import_penstock_says_what_to_check(self):
        command = [sys.executable, "-I", "-S", "-m", "penstock.worker"]
        loader = DataLoader(Values(), num_workers=1, pool={"loader": {"command": command}})
        with self.assertRaisesRegex(penstock.error, "(?s)No module named '?penstock.*PYTHONPATH=.* -I -S -m .*Check the environment"):
            next(iter(loader))
        del loader
        with self.assertRaisesRegex(penstock.worker_program_error, "/no/such/python.*No such file"):
            next(iter(DataLoader(Values(), num_workers=1, pool={"loader": {"command": ["/no/such/python"]}})))

    # ---- CUDA in a worker -----------------------------------------------------------------------------------------

    def test_cuda_in_a_worker_fails_that_batch_with_the_rule_and_the_next_one_arrives(self):
        library = "libcuda.so.1" if torch.cuda.is_available() else CUDA
        if library == CUDA and not os.path.exists(CUDA):
            self.skipTest("the library of the tests is not built")

        def give(index):
            if index == 5:
                import ctypes
                os.environ["CUDA_VISIBLE_DEVICES"] = "0"
                ctypes.CDLL(library).cuInit(0)
            return index
        iterator = iter(DataLoader(Values(give, 12), batch_size=4, num_workers=1))
        self.assertEqual(next(iterator).tolist(), [0, 1, 2, 3])
        with self.assertRaisesRegex(penstock.usage_error, r'CUDA in a worker, for the samples \[4, 5, 6, 7\].*on the host.*device="cuda"'):
            next(iterator)
        self.assertEqual([batch.tolist() for batch in iterator], [[8, 9, 10, 11]])

    def test_a_sample_that_looks_for_a_gpu_gets_the_rule(self):
        def give(index):
            return torch.zeros(1).cuda()
        with self.assertRaisesRegex((RuntimeError, AssertionError), '(?s)in give.*GPUs are hidden from workers.*device="cuda"'):
            next(iter(SharingLoader(Values(give), num_workers=1)))

    # ---- what a batch may be --------------------------------------------------------------------------------------

    def test_batches_can_be_nested_and_contain_strings_and_none(self):
        def collate(samples):
            return {"a": {"b": ["text", None, samples]}, "c": None} if samples[0] else None
        batches = list(SharingLoader(Values(length=4), batch_size=2, num_workers=1, collate_fn=collate))
        self.assertEqual(batches, [None, {"a": {"b": ["text", None, [2, 3]]}, "c": None}])

    def test_none_and_generators_among_samples_are_refused_with_errors_of_torch_and_of_ours(self):
        with self.assertRaisesRegex(TypeError, "default_collate: batch must contain tensors.*NoneType"):
            next(iter(SharingLoader(Values(lambda index: None), batch_size=2, num_workers=1)))
        with self.assertRaisesRegex(TypeError, "(?s)a batch cannot be pickled.*generator"):
            next(iter(SharingLoader(Values(lambda index: {"x": (each for each in "ab")}), batch_size=None, num_workers=1)))

    # ---- what cannot be pickled -----------------------------------------------------------------------------------

    def test_an_attribute_that_cannot_be_pickled_is_named_however_deep_it_is(self):
        data = Values()
        data.first = multiprocessing.Value("i", lock=False)  # these can be pickled
        data.lock = threading.Lock()
        lock = threading.Lock()

        class Without(Values):
            def __getstate__(self):
                return {name: value for name, value in vars(self).items() if name != "lock"}
        careful = Without(give=lambda index: lock)
        careful.lock = lock
        for dataset, name in ((data, "dataset.lock"), (torch.utils.data.Subset(data, [1]), "dataset.dataset.lock"),
                              (torch.utils.data.ConcatDataset([range(3), data]), r"dataset.datasets\[1\].lock"),
                              (careful, "dataset.give's variable lock")):
            with self.assertRaisesRegex(TypeError, name + r" \(a lock\) cannot be pickled.*leave them out in __getstate__"):
                iter(SharingLoader(dataset, num_workers=1))
        with self.assertRaisesRegex(TypeError, "collate_fn's variable lock"):
            iter(SharingLoader(range(3), num_workers=1, collate_fn=lambda samples: lock))

    def test_the_error_names_a_global_that_a_dataset_of_the_program_uses(self):
        self.assertIn("dataset.__getitem__'s global lock (a lock) cannot be pickled", self.ran("""
            import threading
            from penstock.torch import DataLoader

            lock = threading.Lock()

            class Squares:
                def __len__(self):
                    return 3
                def __getitem__(self, index):
                    with lock:
                        return index * index

            try:
                iter(DataLoader(Squares(), num_workers=1))
            except TypeError as error:
                print(error)
            """, timeout=270))

    def test_a_value_that_only_forked_processes_can_use_is_refused_and_the_error_says_what_to_do(self):
        data = Values()
        data.count = multiprocessing.get_context("fork").Value("i")
        with self.assertRaisesRegex(TypeError, r'dataset\.count \(a Synchronized\) cannot be pickled: .*context "fork".*get_context\("spawn"\)'):
            iter(DataLoader(data, num_workers=1))

    # ---- what workers cannot do -----------------------------------------------------------------------------------

    def test_an_object_that_cannot_be_pickled_is_named(self):
        dataset = Squares()
        dataset.lock = threading.Lock()
        with self.assertRaisesRegex(TypeError, r"dataset\.lock .*cannot.*pickle"):
            iter(SharingLoader(dataset, num_workers=1))
        with self.assertRaisesRegex(TypeError, "(?s)a batch cannot be pickled.*generator.*collate_fn"):
            next(iter(SharingLoader(Squares(), num_workers=1, collate_fn=lambda samples: (each for each in samples))))
        with self.assertRaisesRegex(RuntimeError, "stack expects each tensor to be equal size"):
            next(iter(SharingLoader(Values(torch.zeros), batch_size=2, num_workers=1)))

    def test_a_worker_that_cannot_start_says_why(self):
        loader = DataLoader(Squares(), num_workers=1, pool={"loader": {"command": [sys.executable, "-c", "raise SystemExit('no torch here')"]}})
        with self.assertRaisesRegex(penstock.error, "no torch here"):
            next(iter(loader))

    def test_interrupting_user_code_interrupts_the_caller(self):
        def give(index):
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            next(iter(SharingLoader(Values(give), num_workers=1)))

    def test_a_worker_of_a_loader_can_have_a_loader(self):
        def give(index):
            return sum(int(value) for value in DataLoader(Values(abs, 4), num_workers=1))
        self.assertEqual(list(SharingLoader(Values(give, 2), batch_size=None, num_workers=1)), [6, 6])


if __name__ == "__main__":
    main()
