"""A loader resumes from its state with any number of workers, and loads no sample just to drop it."""

import itertools
import random

import penstock
from loader_data import Counting, DataLoader, LoaderCase, SharingLoader, Shards, Squares, Values, crash, numpy, plain, torch
from package import *


class Drawn(torch.utils.data.IterableDataset):
    """Numbers, shared by the workers, each shard's in a different order in each epoch."""

    def __init__(self, length, log):
        self.length = length

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        own = torch.arange(info.id, self.length, info.num_workers)
        for value in own[torch.randperm(len(own))].tolist():
            yield value, torch.rand(()).item()


class Drawing:
    """A sampler whose order comes from `draw`, a function of the sampler."""

    def __init__(self, draw, length=12):
        self.draw, self.length = draw, length
        self.own, self.own_of_numpy, self.own_of_torch = random.Random(1), numpy.random.default_rng(1), torch.Generator().manual_seed(1)

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(self.draw(self))


class Turning(Drawing):
    """Starts one index later in each epoch: its order comes from a number that only its state_dict() has."""

    def __init__(self):
        super().__init__(lambda sampler: [(index + sampler.turns) % 12 for index in range(12)])
        self.turns = 0

    def __iter__(self):
        self.turns += 1
        return super().__iter__()

    def state_dict(self):
        return {"turns": self.turns}

    def load_state_dict(self, state):
        self.turns = state["turns"]


class Yielding(torch.utils.data.RandomSampler):
    """Its state is a position, like that of torchdata's samplers."""

    def __init__(self):
        super().__init__(range(12))
        self.yielded, self.next_yielded = 0, None

    def __iter__(self):
        order, self.yielded = list(super().__iter__()), 0
        if self.next_yielded is not None:
            order, self.yielded, self.next_yielded = order[self.next_yielded:], self.next_yielded, None
        for index in order:
            self.yielded += 1
            yield index

    def state_dict(self):
        return {"yielded": self.yielded}

    def load_state_dict(self, state):
        self.next_yielded = state["yielded"]


class Around:
    """A batch sampler around another sampler, as some libraries have it."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return 3

    def __iter__(self):
        order = list(self.sampler)
        return iter([order[at:at + 4] for at in range(0, 12, 4)])


def from_python(sampler):
    return random.sample(range(12), 12)


class LoaderStateTest(LoaderCase):
    def test_a_sampler_of_the_program_draws_the_same_order_again_whatever_it_draws_from(self):
        kinds = {
            "Python's global generator": lambda: {"sampler": Drawing(from_python)},
            "NumPy's": lambda: {"sampler": Drawing(lambda sampler: numpy.random.permutation(12).tolist())},
            "its own of Python": lambda: {"sampler": Drawing(lambda sampler: sampler.own.sample(range(12), 12))},
            "its own of NumPy": lambda: {"sampler": Drawing(lambda sampler: sampler.own_of_numpy.permutation(12).tolist())},
            "its own of torch": lambda: {"sampler": Drawing(lambda sampler: torch.randperm(12, generator=sampler.own_of_torch).tolist())},
            "its own state": lambda: {"sampler": Turning()},
            "a position": lambda: {"sampler": Yielding()},
            "a batch sampler around it": lambda: {"batch_sampler": Around(Turning())},
            "one without batches": lambda: {"batch_size": None, "sampler": Drawing(from_python)},
            "a batch sampler of its own": lambda: {"batch_sampler": Drawing(lambda sampler: [from_python(sampler)[:4] for _ in range(3)], 3)},
        }
        for kind, made in kinds.items():
            for workers in (1, 0):
                with self.subTest(kind, workers=workers):
                    def loader():
                        options = made()
                        return SharingLoader(range(12), num_workers=workers, **({"batch_size": 4, **options} if "sampler" in options else options))
                    random.seed(2), numpy.random.seed(2)
                    whole, states, batches = loader(), [], []
                    length = len(whole)
                    for _ in range(3):
                        for batch in whole:
                            batches.append(torch.as_tensor(batch).tolist())
                            states.append(whole.state_dict())
                    self.assertEqual(len({str(batches[at:at + length]) for at in (0, length, 2 * length)}), 3)
                    for at in (0, length - 1, length, length + 1, 2 * length - 1):
                        random.seed(3), numpy.random.seed(3)
                        before = random.getstate(), numpy.random.get_state()[1].tolist()
                        other = loader()
                        other.load_state_dict(states[at])
                        self.assertEqual([torch.as_tensor(batch).tolist() for batch in other], batches[at + 1:][:length - 1 - at % length or length])
                        self.assertEqual((random.getstate(), numpy.random.get_state()[1].tolist()), before)

    def test_an_epoch_of_several_ranks_continues_with_a_different_number_of_ranks(self):
        def loader(ranks, rank, size, seed=1):
            sampler = torch.utils.data.distributed.DistributedSampler(range(48), ranks, rank, seed=seed)
            sampler.set_epoch(3)
            return SharingLoader(range(48), batch_size=size, sampler=sampler, num_workers=1)
        for ranks, size, batches, later in ((2, 3, 2, 1), (1, 4, 3, 2), (2, 4, 3, 4), (4, 3, 2, 3), (3, 4, 2, 4)):
            seen, states = [], []
            for rank in range(ranks):
                begun = loader(ranks, rank, size)
                seen += [index for batch in itertools.islice(begun, batches) for index in batch.tolist()]
                states.append(begun.state_dict())
            for rank in range(later):
                other = loader(later, rank, 2)
                other.load_state_dict(states[rank % ranks])
                other.load_state_dict(other.state_dict())  # saved again before the first batch
                seen += [index for batch in other for index in batch.tolist()]
            self.assertEqual(sorted(seen), list(range(48)), (ranks, later))
        begun = loader(2, 0, 4)
        next(iter(begun))
        with self.assertRaisesRegex(penstock.state_mismatch_error, "4 samples of each of 2 ranks, 8 in total, which 3 ranks cannot share equally"):
            loader(3, 0, 4).load_state_dict(begun.state_dict())
        with self.assertRaisesRegex(penstock.state_mismatch_error, "the sampler's seed was 1 and is 2"):
            loader(2, 0, 4, seed=2).load_state_dict(begun.state_dict())
        list(begun)
        loader(3, 0, 4).load_state_dict(begun.state_dict())  # between epochs

    def test_a_damaged_state_is_refused_and_the_missing_part_is_named(self):
        state = SharingLoader(Squares(), num_workers=1).state_dict()
        for name, value in {"facts": None, "epoch": "x", "samples": -4, "generators": None, "shards": None}.items():
            damaged = {key: each for key, each in state.items() if key != name}
            if value is not None:
                damaged[name] = value
            with self.assertRaisesRegex(penstock.state_mismatch_error, "damaged: it has no valid %s$" % name):
                SharingLoader(Squares(), num_workers=1).load_state_dict(damaged)

    def test_an_epoch_continues_from_its_state_with_any_number_of_workers(self):
        def give(index):
            return index, random.random()

        def loader(workers, **options):
            options = {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(9), **options}
            kind = DataLoader if workers == 3 else SharingLoader  # SharingLoader: its workers have no history
            return kind(Values(give, 30), num_workers=workers, **options)

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
                        again.load_state_dict(other.state_dict())  # at the end of the epoch
                        self.assertEqual([flat(again), flat(again)], epochs[1:])

    def test_a_state_is_small_and_a_state_of_another_dataset_is_refused(self):
        import pickle
        loader = SharingLoader(Squares(1_000_000), batch_size=4, num_workers=1, shuffle=True)
        next(iter(loader))
        self.assertLess(len(pickle.dumps(loader.state_dict())), 8000)
        with self.assertRaisesRegex(penstock.state_mismatch_error, "length was 1000000 and is 100"):
            DataLoader(Squares(100), batch_size=4, shuffle=True).load_state_dict(loader.state_dict())
        with self.assertRaisesRegex(penstock.state_mismatch_error, "not a state"):
            loader.load_state_dict({})

    def test_an_iterable_dataset_continues_from_its_state_with_the_same_number_of_workers(self):
        whole = [batch.tolist() for batch in SharingLoader(Shards(20), num_workers=2, batch_size=2, seed=1)]
        loader = SharingLoader(Shards(20), num_workers=2, batch_size=2, seed=1)
        states = {}
        for count, batch in enumerate(loader, 1):
            self.assertEqual(batch.tolist(), whole[count - 1])
            if count in (1, 4, 9):
                states[count] = loader.state_dict()
            if count == 9:
                break
        del loader
        for count, state in states.items():
            kind = DataLoader if count == 4 else SharingLoader  # SharingLoader: its workers have no history
            other = kind(Shards(20), num_workers=2, batch_size=2, seed=1)
            other.load_state_dict(state)
            self.assertEqual([batch.tolist() for batch in other], whole[count:])
            del other
        with self.assertRaisesRegex(penstock.state_mismatch_error, "num_workers was 2 and is 3"):
            DataLoader(Shards(20), num_workers=3, batch_size=2, seed=1).load_state_dict(state)

    def test_a_stateful_dataset_continues_from_its_state_and_repeats_no_sample(self):
        for workers in (2, 0):
            options = {"num_workers": workers, "batch_size": 2, "seed": 1}
            log = os.path.join(self.folder, "log")
            torch.manual_seed(1)
            whole = plain(SharingLoader(Counting(24, log), **options))
            for count in (1, 7):
                dataset = Counting(24, log)
                loader = SharingLoader(dataset, **options)
                iterator = iter(loader)
                first = plain(next(iterator) for _ in range(count))
                state = loader.state_dict()
                self.assertIn("next", state["shards"]["states"][0]["state"])
                del iterator, loader
                dataset.made()
                dataset = Counting(24, log)
                other = (DataLoader if count == 1 else SharingLoader)(dataset, **options)  # SharingLoader: its workers have no history
                other.load_state_dict(state)
                values = [values for values, _ in first + plain(other)]
                self.assertEqual(values, [values for values, _ in whole])
                made = dataset.made()
                self.assertEqual([value for values, _ in first for value in values if made[value]], [])
                del other
                if workers:
                    with self.assertRaisesRegex(penstock.state_mismatch_error, "num_workers was 2 and is 1"):
                        DataLoader(Counting(24, log), num_workers=1, batch_size=2, seed=1).load_state_dict(state)

    def test_a_shard_that_has_ended_is_not_repeated_even_if_its_state_equals_the_initial_one(self):
        for workers, batches in ((2, 8), (0, 7)):  # the last one of each shard has fewer samples, so the shard is known to have ended
            options = {"num_workers": workers, "batch_size": 3, "seed": 1}
            dataset = Counting(20, os.path.join(self.folder, "log"))
            loader = SharingLoader(dataset, **options)
            iterator = iter(loader)
            for _ in range(batches):
                next(iterator)
            state = loader.state_dict()
            self.assertEqual([shard["state"] for shard in state["shards"]["states"]], [{"next": None}] * max(1, workers))
            other = SharingLoader(dataset, **options)
            other.load_state_dict(state)
            self.assertEqual(len(plain(other)), batches)  # the saved epoch has no batch left, so this is the whole next one
            self.assertEqual(list(iterator), [])

    def test_a_batch_that_was_an_error_is_not_loaded_again_after_resuming(self):
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


    def samplers(self, generator):
        """Each of torch's samplers, a custom batch sampler, and one that draws as soon as it is iterated; by name."""
        data = torch.utils.data

        class Batches:
            def __len__(self):
                return 8

            def __iter__(self):
                order = torch.randperm(30, generator=generator).tolist()
                for at in range(0, 30, 4):
                    yield order[at : at + 4]

        class Eager(data.Sampler):
            def __init__(self):
                pass

            def __len__(self):
                return 30

            def __iter__(self):
                return iter(torch.randperm(30, generator=generator).tolist())
        return {
            "shuffle": {"shuffle": True, "batch_size": 4},
            "sequential": {"batch_size": 4},
            "random": {"sampler": data.RandomSampler(range(30), generator=generator), "batch_size": 4},
            "replacement": {"sampler": data.RandomSampler(range(30), replacement=True, num_samples=40, generator=generator), "batch_size": 4},
            "subset": {"sampler": data.SubsetRandomSampler(range(3, 29), generator=generator), "batch_size": 4, "drop_last": True},
            "weighted": {"sampler": data.WeightedRandomSampler(torch.arange(1.0, 31.0), 30, generator=generator), "batch_size": 4},
            "distributed": {"sampler": data.DistributedSampler(range(30), num_replicas=2, rank=1, seed=3), "batch_size": 4},
            "torch's batches": {"batch_sampler": data.BatchSampler(data.RandomSampler(range(30), generator=generator), 4, drop_last=False)},
            "batches": {"batch_sampler": Batches()},
            "eager": {"sampler": Eager(), "batch_size": 4},
            "single": {"shuffle": True, "batch_size": None},
        }

    def test_batches_before_and_after_a_state_make_up_the_epoch(self):
        def give(index):
            return torch.tensor([index, int(random.random() * 1e9)])

        def rows(batches):
            return [row for batch in batches for row in batch.reshape(-1, 2).tolist()]

        def made(how, workers, persistent, owner):
            generator = torch.Generator().manual_seed(5) if owner == "generator" else None
            options = self.samplers(generator)[how]
            return SharingLoader(Values(give, 30), num_workers=workers, persistent_workers=persistent and workers > 0, generator=generator,
                                 seed=5 if owner == "seed" else None, **options)
        draw = random.Random(17)
        for how in self.samplers(None):
            for owner in ("generator", "seed", "program"):
                workers, persistent, last = draw.choice((0, 1, 2)), draw.random() < 0.7, draw.randrange(3)
                if owner == "program":  # torch's usual generator: from it, a continued iterator draws fewer numbers than a new one
                    workers, persistent, last = draw.choice((1, 2)), True, draw.choice((1, 2))
                where = (how, owner, workers, persistent, last)
                torch.manual_seed(9)
                loader = made(how, workers, persistent, owner)
                for _ in range(last):
                    list(loader)
                    torch.rand(3)  # the program draws, too
                iterator = iter(loader)
                before = [next(iterator) for _ in range(draw.randrange(4))]
                state = loader.state_dict()
                rest = rows(iterator)
                self.assertGreater(len(rest), 0)
                if how not in ("replacement", "weighted"):
                    whole = [index for index, _ in rows(before) + rest]
                    self.assertEqual((len(whole), len(set(whole))), ({"subset": 24, "distributed": 15}.get(how, 30),) * 2, where)
                for other_workers, other_persistent in ((1, True), (2, False), (0, False)):
                    torch.manual_seed(1000)
                    program = torch.default_generator.get_state()
                    other = made(how, other_workers, other_persistent, owner)
                    other.load_state_dict(state)
                    comes = rows(other)
                    if workers and other_workers:
                        self.assertEqual(comes, rest, where)
                    self.assertEqual([index for index, _ in comes], [index for index, _ in rest], where)
                    self.assertTrue(torch.equal(program, torch.default_generator.get_state()), "the program's generator was touched")
                    self.assertEqual(len(rows(other)), len(rows(before)) + len(rest))  # the next epoch is complete
                loader.load_state_dict(state)  # the loader that returned the state resumes from it, too
                self.assertEqual([index for index, _ in rows(loader)], [index for index, _ in rest], where)

    def test_batches_of_an_iterable_dataset_before_and_after_a_state_make_up_the_epoch(self):
        def numbers(batches):
            return [value for values, _ in batches for value in values]
        draw = random.Random(19)
        options = {"batch_size": 3}
        log = os.path.join(self.folder, "log")
        for owner in ("generator", "seed", "program"):
            for workers, persistent in ((0, False), (1, True), (2, True), (2, False)):
                for kind in (Drawn, Counting) if workers else (Counting,):  # the program's own random numbers are not the loader's
                    last, count = draw.randrange(1, 3), draw.randrange(1, 7)
                    where = (owner, workers, persistent, kind.__name__, last, count)

                    def made(keep):
                        generator = torch.Generator().manual_seed(5) if owner == "generator" else None
                        return SharingLoader(kind(24, log), num_workers=workers, persistent_workers=keep and workers > 0, generator=generator,
                                             seed=5 if owner == "seed" else None, **options)
                    torch.manual_seed(9)
                    loader = made(persistent)
                    earlier = [plain(loader) for _ in range(last)]
                    torch.rand(3)  # the program draws, too
                    iterator = iter(loader)
                    before = plain(next(iterator) for _ in range(count))
                    state = loader.state_dict()
                    rest = plain(iterator)
                    self.assertEqual(sorted(numbers(before + rest)), sorted(numbers(earlier[0])), where)
                    if workers:
                        self.assertNotIn(before + rest, earlier, where)  # the random numbers are those of the epoch
                    for keep in (False, True):
                        torch.manual_seed(1000)
                        other = made(keep)
                        other.load_state_dict(state)
                        comes = plain(other)
                        if workers:
                            self.assertEqual(comes, rest, where)
                        self.assertEqual(numbers(comes), numbers(rest), where)
                        self.assertEqual(sorted(numbers(plain(other))), sorted(numbers(earlier[0])), where)  # the next epoch is complete
                    loader.load_state_dict(state)  # the loader that returned the state resumes from it, too
                    self.assertEqual(numbers(plain(loader)), numbers(rest), where)

    def test_a_state_after_the_last_batch_of_an_iterable_dataset_resumes_with_the_next_epoch(self):
        for workers in (0, 1, 2):
            for dataset in (Shards(20), Counting(20, os.path.join(self.folder, "log"))):
                if workers == 0 and type(dataset) is Shards:
                    dataset = range_stream(20)
                loader = SharingLoader(dataset, num_workers=workers, batch_size=2, seed=1)
                whole = len(list(SharingLoader(dataset, num_workers=workers, batch_size=2, seed=1)))
                iterator = iter(loader)
                for _ in range(whole):
                    next(iterator)
                state = loader.state_dict()
                for persistent in (False, True)[: 1 + (workers > 0)]:
                    other = SharingLoader(dataset, num_workers=workers, batch_size=2, seed=1, persistent_workers=persistent)
                    other.load_state_dict(state)
                    self.assertEqual(len(list(other)), whole)
                    other.load_state_dict(state)
                    iterator = iter(other)
                    next(iterator)
                    self.assertEqual(other.state_dict()["epoch"], 1)

    def test_after_the_last_batch_of_an_epoch_a_resumed_loader_uses_the_epoch_that_the_program_sets_on_its_sampler(self):
        data = list(range(12))

        def made(state=None):
            sampler = torch.utils.data.DistributedSampler(data, 1, 0, seed=1)
            loader = SharingLoader(data, 4, sampler=sampler, num_workers=1, seed=1)
            if state is not None:
                loader.load_state_dict(state)
            return sampler, loader

        def order(sampler, loader, epoch):
            sampler.set_epoch(epoch)
            return [batch.tolist() for batch in loader]
        sampler, loader = made()
        whole, states = [], []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            whole.append([])
            for batch in loader:
                whole[-1].append(batch.tolist())
                states.append((epoch, len(whole[-1]), loader.state_dict()))
        self.assertEqual(len({str(epoch) for epoch in whole}), 3)
        for epoch, batches, state in states[:6]:
            sampler, loader = made(state)
            if batches < 3:
                self.assertEqual(order(sampler, loader, epoch), whole[epoch][batches:])
            self.assertEqual(order(sampler, loader, epoch + 1), whole[epoch + 1])
        sampler, loader = made()
        order(sampler, loader, 0)
        sampler.set_epoch(2)  # already
        sampler, loader = made(loader.state_dict())
        self.assertEqual([batch.tolist() for batch in loader], whole[2])

    def test_a_state_taken_before_the_first_batch_of_a_resumed_epoch_equals_the_resumed_state(self):
        loader = SharingLoader(Shards(20), num_workers=2, batch_size=2, seed=1)
        iterator = iter(loader)
        first = [next(iterator).tolist() for _ in range(3)]
        state = loader.state_dict()
        rest = [batch.tolist() for batch in iterator]
        other = SharingLoader(Shards(20), num_workers=2, batch_size=2, seed=1)
        other.load_state_dict(state)
        iterator = iter(other)
        again = other.state_dict()
        self.assertEqual((again["samples"], again["shards"]), (state["samples"], state["shards"]))
        other.load_state_dict(again)
        self.assertEqual([batch.tolist() for batch in other], rest)
        self.assertEqual(len(first), 3)


def range_stream(length):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(length))
    return Stream()


if __name__ == "__main__":
    main()
