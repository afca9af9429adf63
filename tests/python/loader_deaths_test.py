"""Failures that torch's loader does not survive: workers may die or hang and samples may be omitted, without an effect on other samples."""

import fcntl
import hashlib
import resource
import threading
import time

import penstock
from loader_data import DataLoader, LoaderCase, SharingLoader, Values, crash, kill, torch
from package import *
from penstock._quarantine import Quarantine


class Once(torch.utils.data.Dataset):
    """Crashes or hangs at some indices, the first time each is loaded."""

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
    """Causes the next of several faults every half second, at the current sample, but only once per batch."""

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
        """Which fault, if any; the file `done` records when, which, and in which batch."""
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


# Two attempts instead of three: each death costs a new worker, which imports torch. One test uses three.
TWICE = {"quarantine": {"max_attempts": 2}}


def leave():
    os._exit(7)


def exhaust():
    raise MemoryError("as if")


def hang():
    threading.Event().wait()


def digest(batches):
    whole = hashlib.sha256()
    for values, indices in batches:
        whole.update(values.numpy().tobytes() + indices.numpy().tobytes())
    return whole.hexdigest()


class LoaderDeathsTest(LoaderCase):
    # ---- deaths ---------------------------------------------------------------------------------------------------

    def test_no_sample_is_lost_or_changed_whatever_kills_a_worker(self):
        terrible = {11: crash, 42: leave, 87: kill, 120: exhaust, 160: hang}
        options = {"batch_size": 8, "num_workers": 2, "shuffle": True}
        undisturbed = Once(self.folder, {})
        expected = digest(SharingLoader(undisturbed, seed=4, generator=torch.Generator().manual_seed(2), **options))
        loader = DataLoader(Once(self.folder, terrible), seed=4, timeout=2, generator=torch.Generator().manual_seed(2), **options)
        self.assertEqual(digest(loader), expected)
        self.assertEqual(len(os.listdir(self.folder)) >= len(terrible), True)

    @unittest.skipUnless("PENSTOCK_TEST_DISTURBED" in os.environ, "the deaths of the test above, over and over: for the soak")
    def test_no_sample_is_lost_or_changed_by_a_death_every_half_second(self):
        kinds = [crash, leave, kill, exhaust, hang]
        options = {"batch_size": 8, "num_workers": 2, "seed": 4}
        length = int(os.environ.get("PENSTOCK_TEST_DISTURBED", "320"))
        expected = digest(SharingLoader(Once(self.folder, {}, length), **options))
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
        loader = DataLoader(Values(give, 32), batch_size=4, num_workers=2, timeout=1, on_bad_sample="skip", pool=TWICE)
        self.assertEqual([index for batch in loader for index in batch.tolist()], [index for index in range(32) if index not in kinds])
        told = {bad["index"]: " ".join(bad.get("causes", [bad.get("traceback")])) for bad in loader.bad_samples}
        self.assertEqual(sorted(told), sorted(kinds))
        for index, cause in ((3, "SIGSEGV"), (9, "exit 7"), (14, "SIGKILL"), (20, "MemoryError"), (26, "longer than 1")):
            self.assertIn(cause, told[index])

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

    def test_a_sample_that_always_hangs_raises_the_timeout_of_torch_and_is_named(self):
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
                signal_process(pid, signal.SIGKILL)
        self.assertEqual(indices, list(range(400)))
        self.assertGreaterEqual(len(set(pids)), 3)

    # ---- samples that are left out --------------------------------------------------------------------------------

    def test_bad_samples_are_skipped_or_replaced_and_reported(self):
        def give(index):
            if index == 5:
                crash()
            if index in (2, 8, 9, 10, 11):
                raise ValueError("no %d" % index)
            return index
        for policy, expected in (("skip", [[0, 1, 3], [4, 6, 7], [12, 13]]), ("replace", [[0, 1, 1, 3], [4, 4, 6, 7], [12, 13]])):
            loader = DataLoader(Values(give, 14), batch_size=4, num_workers=2, on_bad_sample=policy, pool=TWICE)
            self.assertEqual([batch.tolist() for batch in loader], expected)
            told = {bad["index"]: bad for bad in loader.bad_samples}
            self.assertEqual(sorted(told), [2, 5, 8, 9, 10, 11])
            self.assertIn("ValueError: no 2", told[2]["traceback"])
            self.assertEqual(["SIGSEGV" in cause for cause in told[5]["causes"]], [True] * 2)
            del loader

    def test_a_quarantined_sample_kills_no_worker_again(self):
        def give(index):
            if index in (3, 4):
                with open(marks, "a") as file:
                    file.write("%d" % index)
                leave()
            return index
        marks, quarantine = os.path.join(self.folder, "marks"), os.path.join(self.folder, "quarantine")

        def batches(**options):
            return [batch.tolist() for batch in DataLoader(Values(give, 6), batch_size=3, num_workers=1, quarantine=quarantine, pool=TWICE, **options)]
        self.assertEqual(batches(on_bad_sample="skip"), [[0, 1, 2], [5]])
        with open(marks) as file:
            self.assertEqual(file.read(), "3344")
        self.assertEqual(batches(on_bad_sample="replace"), [[0, 1, 2], [5, 5, 5]])
        with self.assertRaisesRegex(penstock.sample_error, "sample 3 is in quarantine.*exit 7"):
            batches()
        with open(marks) as file:
            self.assertEqual(file.read(), "3344")
        with self.assertRaisesRegex(penstock.state_mismatch_error, "line 1"):
            list(DataLoader(Values(give, 7), num_workers=1, quarantine=quarantine))

    def test_the_command_line_lists_and_releases_what_a_loader_quarantined(self):
        path = os.path.join(self.folder, "quarantine")
        Quarantine(path, "these").add(17, ["exit 7", "SIGABRT"])
        Quarantine(path, "these").add("cat.jpg", ["exit 7"])  # a name instead of a number, which only loaders use; shown in single quotes
        code, out, err = self.penstock("quarantine", "list", "--file", path, "--json")
        (entry,) = json.loads(out)["quarantine"]
        self.assertEqual((code, entry["sample"], entry["attempts"], entry["causes"]), (0, 17, 2, ["exit 7", "SIGABRT"]), err)
        self.assertEqual(self.penstock("quarantine", "release", 17, "--file", path)[0], 0)
        self.assertEqual(Quarantine(path, "these").indices, {"cat.jpg": ["exit 7"]})

    def test_a_quarantine_file_of_an_earlier_version_can_be_read(self):
        path = self.write("quarantine", '{"index": 4, "causes": ["exit 7"], "dataset": "these"}\n')
        self.assertEqual(Quarantine(path, "these").indices, {4: ["exit 7"]})

    def test_a_full_disk_leaves_no_incomplete_line_in_a_quarantine_file(self):
        path = os.path.join(self.folder, "quarantine")
        Quarantine(path, "these").add(1, ["exit 7"])
        whole = os.path.getsize(path)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 10, before[1]))  # Python ignores SIGXFSZ
        try:
            with self.assertRaises(OSError):
                Quarantine(path, "these").add(2, ["exit 7"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assertEqual(os.path.getsize(path), whole)
        Quarantine(path, "these").add(2, ["exit 8"])
        self.assertEqual(Quarantine(path, "these").indices, {1: ["exit 7"], 2: ["exit 8"]})

    def test_an_incomplete_line_that_a_crash_left_in_a_quarantine_file_is_removed(self):
        path = os.path.join(self.folder, "quarantine")
        Quarantine(path, "these").add(1, ["exit 7"])
        with open(path, "a") as file:
            file.write('{"index": 2, "cau')
        again = Quarantine(path, "these")
        self.assertEqual(again.indices, {1: ["exit 7"]})
        again.add(3, ["exit 8"])
        self.assertEqual(Quarantine(path, "these").indices, {1: ["exit 7"], 3: ["exit 8"]})


if __name__ == "__main__":
    main()
