"""Libraries do more with a loader than iterate over it: they make loaders from its attributes, and look up its worker processes."""

import copy
import inspect
import multiprocessing
import pickle
import warnings

from loader_data import DataLoader, LoaderCase, Squares, Values, torch
from package import *

OPTIONS = {"on_bad_sample": "skip", "seed": 4, "seeding": "worker", "name": "images", "pool": {"loader": {"slot_bytes": "1MiB"}}}


class LoaderCopiesTest(LoaderCase):
    def made_again(self, loader):
        """Makes a loader again as Lightning does, from the public attributes that differ from the defaults."""
        attributes = {name: value for name, value in vars(loader).items() if name[0] != "_"}
        attributes["multiprocessing_context"] = loader.multiprocessing_context
        parameters = inspect.signature(type(loader).__init__).parameters
        given = {name: attributes[name] for name, each in parameters.items() if name in attributes and each.default is not attributes[name]}
        sampler = torch.utils.data.DistributedSampler(loader.dataset, 1, 0, shuffle=False)
        return type(loader)(**{**given, "dataset": loader.dataset, "sampler": sampler, "shuffle": False, "batch_sampler": None})

    def test_a_loader_made_from_the_attributes_of_another_one_keeps_its_arguments(self):
        loader = DataLoader(Squares(12), batch_size=3, shuffle=True, num_workers=1, quarantine=os.path.join(self.folder, "bad.jsonl"), **OPTIONS)
        again = self.made_again(self.made_again(loader))
        self.assertEqual(again._options, loader._options)
        self.assertIs(again._own_generator, loader._own_generator)
        self.assertIsNotNone(again._own_generator)
        self.assertEqual((again.num_workers, again.batch_size), (1, 3))
        with self.assertRaisesRegex(AttributeError, "group"):
            loader.group = None
        self.assertIsNone(again.group)

    def test_a_loader_without_workers_is_made_again_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again = self.made_again(DataLoader(Squares(12), batch_size=3))
        self.assertEqual(len(list(again)), 4)

    def test_a_copy_of_a_loader_has_its_own_position(self):
        loader = DataLoader(Squares(12), batch_size=3, shuffle=True, seed=4)
        epochs = [[batch["index"].tolist() for batch in loader] for _ in range(2)]
        again = DataLoader(Squares(12), batch_size=3, shuffle=True, seed=4)
        self.assertEqual([batch["index"].tolist() for batch in copy.copy(again)], epochs[0])
        self.assertEqual([[batch["index"].tolist() for batch in again] for _ in range(2)], epochs)

    def test_the_multiprocessing_context_is_the_given_one_except_for_its_name(self):
        loader = DataLoader(Squares(), num_workers=1, multiprocessing_context="spawn")
        self.assertEqual(loader.multiprocessing_context.get_start_method(), "spawn")
        self.assertIsInstance(loader.multiprocessing_context, multiprocessing.context.BaseContext)
        self.assertIs(torch.utils.data.DataLoader.multiprocessing_context.fget(DataLoader(
            Squares(), num_workers=1, multiprocessing_context=loader.multiprocessing_context)), multiprocessing.get_context("spawn"))
        self.assertIsNone(DataLoader(Squares()).multiprocessing_context)
        self.assertIsNone(pickle.loads(pickle.dumps(DataLoader(Squares(), num_workers=1).multiprocessing_context)))

    def test_a_plain_loader_that_is_made_from_ours_warns_when_its_workers_start(self):
        out = self.ran("""
            import warnings
            import torch.utils.data
            from penstock.torch import DataLoader
            ours = DataLoader(range(12), batch_size=4, num_workers=2)
            copied = ("dataset", "batch_sampler", "num_workers", "collate_fn", "multiprocessing_context")
            for times in (1, 0):
                plain = torch.utils.data.DataLoader(**{name: getattr(ours, name) for name in copied})
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    print(sum(batch.sum().item() for batch in plain), [w.filename for w in said if "not supervised" in str(w.message)] == times * ["<string>"])
            """)
        self.assertEqual(out.split(), ["66", "True"] * 2)

    def test_an_adapter_like_that_of_accelerate_makes_a_loader_of_our_class_from_the_plain_one(self):
        # A module with accelerate's name that does what its DataLoaderAdapter does; training_test.py uses accelerate itself.
        out = self.ran("""
            import os, sys, types, warnings
            import torch
            from penstock.torch import DataLoader

            class DataLoaderAdapter:
                def __init__(self, dataset, **kwargs):
                    self.base_dataloader = torch.utils.data.DataLoader(dataset, **kwargs)
                    self.dl_state_dict = None

            class Pids(torch.utils.data.Dataset):
                def __len__(self):
                    return 12

                def __getitem__(self, index):
                    with open("/proc/self/cmdline", "rb") as file:
                        return index, b"penstock.worker" in file.read()

            sys.modules["accelerate.data_loader"] = module = types.ModuleType("accelerate.data_loader")
            module.DataLoaderAdapter = DataLoaderAdapter
            warnings.simplefilter("error")
            ours = DataLoader(Pids(), batch_size=4, num_workers=2, on_bad_sample="skip", name="images")
            adapter = DataLoaderAdapter(ours.dataset, **{name: getattr(ours, name) for name in ("batch_sampler", "num_workers", "multiprocessing_context")})
            print(type(adapter.base_dataloader) is DataLoader, adapter.base_dataloader._options == ours._options)
            print([indices.tolist() for indices, _ in adapter.base_dataloader], all(made.all() for _, made in adapter.base_dataloader))
            print(adapter.dl_state_dict["samples"])
            """)
        self.assertEqual(out.splitlines(), ["True True", "[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] True", "0"])

    def test_an_iterator_lists_the_processes_that_make_its_batches(self):
        loader = DataLoader(Values(lambda index: os.getpid()), batch_size=4, num_workers=2)
        iterator = iter(loader)
        workers = iterator._workers
        self.assertEqual(len(workers), 2)
        self.assertTrue(all(worker.is_alive() for worker in workers))
        made_by = {pid for batch in iterator for pid in batch.tolist()}
        self.assertLessEqual(made_by, {worker.pid for worker in workers})
        workers[0].kill()
        workers[0].join(10)
        self.assertFalse(workers[0].is_alive())
        self.wait_until(lambda: {worker.pid for worker in iterator._workers}.isdisjoint({workers[0].pid}), "the next process")
        del loader, iterator
        workers[1].join(10)
        self.assertFalse(workers[1].is_alive())


if __name__ == "__main__":
    main()
