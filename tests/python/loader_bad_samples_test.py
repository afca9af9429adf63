"""A loader never loses a sample silently: its log, its exceptions and the verbs of `penstock` name omitted samples and the reason."""

import json
import pickle
import re
import sys
import time
import unittest
import unittest.mock
import warnings

import penstock
from loader_data import DataLoader, LoaderCase, SharingLoader, Shards, Values, crash, torch
from package import *
from penstock._quarantine import BadSampleList, BadSamples, Quarantine, Sample
from penstock._tracebacks import raised_in

notes_are_shown = unittest.skipIf(sys.version_info < (3, 11), "exceptions have no notes")

PROGRAM = """
    import os, sys, torch
    from penstock.torch import DataLoader
    class Numbers(torch.utils.data.Dataset):
        def __len__(self): return 12
        def __getitem__(self, index):
            if index == 7: os.abort()
            if index in (2, 3): raise ValueError("no line %d" % index)
            return index
    options = {"quarantine": sys.argv[1]} if len(sys.argv) > 1 else {}
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, on_bad_sample="skip", pool={"quarantine": {"max_attempts": 2}}, name="loader", **options)
    for epoch in range(2):
        print([batch.tolist() for batch in loader])
    for bad in loader.bad_samples:
        print(bad["epoch"], bad["index"], bad.get("known", False))
    """

KILLING = """
    import os, torch
    from penstock.torch import DataLoader
    class Numbers(torch.utils.data.Dataset):
        def __len__(self): return 12
        def __getitem__(self, index):
            if index == 7: os.abort()
            return index
    for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, on_bad_sample="%s", name="loader"): pass
    """

COLLATING = """
    import os, torch
    from penstock.torch import DataLoader
    def collate(samples):
        if 4 in samples: os.abort()
        return samples
    loader = DataLoader(list(range(8)), batch_size=4, num_workers=1, collate_fn=collate, on_bad_sample="skip", pool={"quarantine": {"max_attempts": 2}}, name="loader")
    batches = iter(loader)
    while True:
        try: print(next(batches))
        except StopIteration: break
        except Exception as failed: print(failed)
    print(loader.bad_samples)
    """


class LoaderBadSamplesTest(LoaderCase):
    """The log goes to stderr of the program that uses the loader, so tests of log lines start one."""

    def log_of(self, text, *arguments):
        process = self.program(text, *arguments)
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, out + err)
        return out, err

    def events(self, *arguments):
        return [json.loads(line) for line in self.penstock("events", *arguments, "--json")[1].splitlines()]

    # ---- samples that raise ---------------------------------------------------------------------------------------

    def test_the_log_names_the_first_sample_of_each_pass_that_raised_and_the_verbs_name_all(self):
        out, err = self.log_of(PROGRAM)
        self.assertEqual(out.splitlines()[:2], ["[[0, 1], [4, 5, 6], [8, 9, 10, 11]]"] * 2)
        self.assertEqual(sorted(out.splitlines()[2:]), sorted("%d %d %s" % (e, i, i == 7 and e == 1) for e in (0, 1) for i in (2, 3, 7)))
        told = re.findall(r"warning loader: (sample .* is left out of its batch: .*)", err)
        self.assertEqual(len(told), 2, err)
        self.assertRegex(told[0], r"^sample 2 \(position 2 of epoch 0\) is left out of its batch: ValueError: no line 2 \(<string>:8, in __getitem__\); loader\.bad_samples")
        failed = [e for e in self.events("--last") if e["kind"] == "sample_failed"]
        self.assertEqual(sorted((e["epoch"], e["sample"]) for e in failed), [(0, 2), (0, 3), (1, 2), (1, 3)])
        self.assertIn("ValueError: no line", failed[0]["text"])
        (quarantined,) = [e for e in self.events("--last") if e["kind"] == "sample_quarantined"]
        self.assertEqual((quarantined["sample"], quarantined["epoch"]), (7, 0))
        status = self.penstock("status", "--last")[1]
        self.assertIn("4 sample failures, 1 sample quarantined (`penstock quarantine list`); samples were left out of batches 6 times", status)
        self.assertIn("4 sample failures without a death", self.penstock("deaths", "--last")[1])
        deaths = json.loads(self.penstock("deaths", "--last", "--json")[1])["deaths"]
        self.assertEqual({(death["sample"], death["work"]) for death in deaths if death["attempt"] == 2}, {(7, "sample 7")})
        (listed,) = json.loads(self.penstock("quarantine", "list", "--last", "--json")[1])["quarantine"]
        self.assertEqual((listed["sample"], listed["work"], listed["causes"], listed["known"]), (7, "sample 7", ["SIGABRT"] * 2, False))

    def test_the_log_says_of_a_sample_that_kills_workers_that_it_is_left_out_and_has_one_line_for_each_death(self):
        for policy, left_out in (("skip", "left out of its batch"), ("replace", "replaced by another sample of its batch")):
            _, err = self.log_of(KILLING % policy)
            told = [line.split(" ", 1)[1].strip() for line in err.splitlines()]
            deaths = [line for line in told if " ended: " in line]
            self.assertEqual(len(deaths), 3, err)
            for death in deaths:
                self.assertRegex(death, r"^warning supervisor: worker \d+ \(pid \d+\) ended: SIGABRT, while loading sample 7")
                self.assertTrue(death.endswith("; stack: `penstock deaths --stacks`, with --last after the end"), death)
            for death in deaths[:2]:
                self.assertRegex(death, r"; \d batch(es)? to load again( \(.* lost before\))?; a replacement starts;")
            self.assertEqual([line for line in told if line not in deaths], [
                "warning loader: sample 7 (position 7 of epoch 0) is %s after 3 attempts (3 x SIGABRT), because on_bad_sample='%s'; the run "
                "continues. What happened: `penstock describe sample/7`, with --last after the end" % (left_out, policy)])
            code, out, _ = self.penstock("describe", "sample/7", "--last")
            self.assertEqual((code, out.count("ended: SIGABRT")), (0, 3), out)
            self.assertIn("__getitem__ at <string>:7", self.penstock("deaths", "--stacks", "--last")[1])
            self.assertIn("(its stack: `penstock deaths --stacks --last`)", self.penstock("logs", "--last")[1])
            self.assertIn("Stack (most recent call first):", self.penstock("logs", "--last", "--json")[1])

    def test_the_log_of_a_loader_names_no_job_when_a_sample_exceeds_the_time_limit(self):
        text = KILLING.replace("os.abort()", "__import__('time').sleep(600)").replace("num_workers=2", "num_workers=2, timeout=0.5")
        _, err = self.log_of(text % "skip")
        self.assertIn("was killed: it has been loading sample 7 for ", err)
        self.assertNotIn("while loading sample 7", err)  # that would say the same again
        self.assertRegex(err, "warning loader: sample 7 .* is left out of its batch after 3 attempts")
        self.assertNotIn("job", err)

    def test_the_stack_of_a_death_begins_with_the_lines_of_python(self):
        self.log_of(PROGRAM)
        said = self.penstock("deaths", "--last", "--stacks")[1]
        self.assertRegex(said, r"\nworker/\d+ incarnation \d+, worker/64 \(sacrificial\) incarnation \d+, each SIGABRT:\n  __getitem__ at <string>:7\n")
        stacks = said[said.index(" incarnation "):]
        self.assertIn("\n  in native code (--all-frames also shows the interpreter's frames):\n", stacks)
        of_interpreter = r"(?m)^    .*/(lib)?python[\d.]+[^/]*\+0x"
        self.assertNotRegex(stacks, of_interpreter)
        whole = self.penstock("deaths", "--last", "--stacks", "--all-frames")[1]
        self.assertIn("\n  in native code:\n", whole)

    def test_the_lines_that_raised_can_be_found_after_the_end(self):
        self.log_of(PROGRAM)
        raised = {"type": "ValueError", "message": "no line 3", "frames": ["<string>:8, in __getitem__"]}
        self.assertEqual([e["exception"] for e in self.events("--last") if e["kind"] == "sample_failed" and e["sample"] == 3], [raised] * 2)
        last = json.loads(self.penstock("status", "--last", "--json")[1])["last_failure"]
        self.assertEqual((last["sample"], last["error"], last["exception"]), (3, "ValueError: no line 3", raised))
        self.assertIn("the last failure: sample 3, ValueError: no line 3 (<string>:8, in __getitem__)", self.penstock("status", "--last")[1])
        code, out, err = self.penstock("describe", "sample/3", "--last")
        self.assertEqual((code, out.count("raised at       <string>:8, in __getitem__")), (0, 2), out + err)
        self.assertIn("SIGABRT", self.penstock("describe", "sample/7", "--last")[1])
        about = json.loads(self.penstock("describe", "sample/3", "--last", "--json")[1])
        self.assertEqual((about["schema"], about["sample"], [e["kind"] for e in about["events"]], about["quarantine"]),
                         ("penstock.describe/1", 3, ["sample_failed"] * 2, None))
        code, _, err = self.penstock("describe", "sample/5", "--last")
        self.assertEqual(code, 4, err)
        self.assertRegex(err, r"\A'\S+' finished .* ago.*\nerror: nothing is recorded of sample 5")

    def test_a_report_has_the_frames_of_an_exception_that_reached_the_program(self):
        def read(index):
            raise KeyError("no %d" % index)

        def give(index):
            return read(index) if index == 5 else index
        loader = SharingLoader(Values(give, 8), batch_size=4, num_workers=2)
        batches = iter(loader)
        next(batches)
        with self.assertRaises(KeyError):
            next(batches)
        failed = batches._pool.pool.report()["failures"][-1]
        self.assertEqual((failed["sample"], failed["exception"]["type"], failed["exception"]["message"]), (5, "KeyError", "'no 5'"))
        self.assertRegex("\n".join(failed["exception"]["frames"]), r"in __getitem__\n.*loader_bad_samples_test\.py:\d+, in give\n.*loader_bad_samples_test\.py:\d+, in read$")

    def test_a_pass_without_any_good_sample_raises_with_the_exception_of_the_first_sample(self):
        def fail(index):
            return 1 // (index - index)
        for policy in ("skip", "replace"):
            batches = iter(SharingLoader(Values(fail, 10), batch_size=4, num_workers=2, on_bad_sample=policy))
            with self.assertRaisesRegex(penstock.dataset_error, "epoch 0 .* all 10 samples were left out.* sample 0, raised: ZeroDivisionError: .*, in fail") as caught:
                next(batches)
            self.assertIn("in fail", str(caught.exception.__cause__))
            self.assertIsNone(next(batches, None))

    def test_a_pass_with_one_good_batch_or_without_batches_does_not_raise(self):
        def give(index):
            if index < 8:
                raise ValueError(index)
            return index
        self.assertEqual([batch.tolist() for batch in SharingLoader(Values(give, 9), batch_size=4, num_workers=2, on_bad_sample="skip")], [[8]])
        self.assertEqual(list(SharingLoader(Values(give, 0), batch_size=4, num_workers=2, on_bad_sample="skip")), [])

    @notes_are_shown
    def test_an_exception_has_the_text_of_torch_and_a_note_that_names_the_sample(self):
        def give(index):
            if index == 5:
                raise KeyError("no five")
            return index
        batches = iter(SharingLoader(Values(give, 12), batch_size=4, num_workers=2))
        next(batches)
        with self.assertRaisesRegex(KeyError, "Caught KeyError in DataLoader worker process") as caught:
            next(batches)
        (note,) = caught.exception.__notes__
        self.assertRegex(note, r'raised by sample 5 \(position 5 of epoch 0\), at .*loader_bad_samples_test.py:\d+, in give; on_bad_sample="skip"')
        self.assertEqual(next(batches).tolist(), [8, 9, 10, 11])

    @notes_are_shown
    def test_an_exception_that_belongs_to_no_single_sample_is_blamed_on_its_batch(self):
        class Together(Values):
            def __getitems__(self, indices):
                raise ValueError(indices)

        def fail(samples):
            raise ValueError(samples)

        def more(shard, value):
            if value == 4:
                raise ValueError(value)
        for loader, blamed in (
            (SharingLoader(Together(int, 4), batch_size=2, num_workers=2), r"__getitems__, with the samples \[0, 1\]"),
            (SharingLoader(Values(int, 4), batch_size=2, num_workers=2, collate_fn=fail), r"collate_fn, with the samples \[0, 1\]"),
            (SharingLoader(Values(int, 40), batch_size=40, num_workers=2, collate_fn=fail), r"collate_fn, with 40 samples \[0, 1, .*, 15, \.\.\.\]"),
            (SharingLoader(Shards(8, more), batch_size=1, num_workers=2), "sample 2 of shard 0"),
        ):
            with self.assertRaises(ValueError) as caught:
                list(loader)
            self.assertRegex(caught.exception.__notes__[0], "raised by " + blamed)

    def test_the_exception_that_left_a_worker_is_found_in_its_traceback(self):
        def first():
            raise ValueError("one\nand more")
        try:
            try:
                first()
            except ValueError as cause:
                raise KeyError("two") from cause
        except KeyError:
            raised = raised_in(__import__("traceback").format_exc())
        self.assertEqual(raised.what, "KeyError: 'two'")
        self.assertRegex(raised.where, r"loader_bad_samples_test\.py:\d+, in test_the_exception")
        self.assertEqual(str(raised_in("nothing of that kind")), "nothing of that kind")

    def test_samples_that_were_omitted_are_listed_even_if_collate_fn_then_raises(self):
        def give(index):
            if index == 1:
                raise ValueError("no one")
            return index

        def collate(samples):
            if 0 in samples:
                raise KeyError(samples)
            return samples
        loader = SharingLoader(Values(give, 8), batch_size=4, num_workers=2, collate_fn=collate, on_bad_sample="skip")
        batches = iter(loader)
        with self.assertRaisesRegex(KeyError, r"\[0, 2, 3\]"):
            next(batches)
        self.assertEqual(list(batches), [[4, 5, 6, 7]])
        self.assertEqual([(bad["index"], bad["error"]) for bad in loader.bad_samples], [(1, "ValueError: no one")])

    def test_a_pass_that_is_resumed_at_its_beginning_and_has_no_batch_left_raises_too(self):
        def fail(index):
            raise ValueError(index)
        options = {"batch_size": 4, "num_workers": 2, "on_bad_sample": "skip"}
        first = SharingLoader(Values(int, 8), **options)
        iter(first)
        state = first.state_dict()
        next(iter(first))
        later = first.state_dict()
        loader = SharingLoader(Values(fail, 8), **options)
        loader.load_state_dict(state)
        with self.assertRaisesRegex(penstock.dataset_error, "epoch 0 has delivered no batch: all 8 samples were left out"):
            list(loader)
        loader.load_state_dict(later)
        self.assertEqual(list(loader), [], "the pass had a batch before")

    def test_bad_samples_lists_the_latest_and_counts_all(self):
        listed, told = BadSampleList(), []
        core = unittest.mock.Mock()
        core.warn = told.append
        with unittest.mock.patch.object(BadSampleList, "MOST", 3):
            bad = BadSamples("skip", Quarantine(None, "numbers of 8"), listed, core)
            for index in range(5):
                bad.raised(Sample(index, "sample %d" % index, 0, index), "Traceback (most recent call last):\nValueError: %d\n" % index)
        self.assertEqual([each["index"] for each in listed], [2, 3, 4])
        self.assertEqual((listed.total, bad.left_out), (5, 5))
        self.assertTrue(repr(listed).endswith("}] and 2 more"), repr(listed))
        self.assertEqual([text for text in told if "latest" in text], ["loader.bad_samples keeps the latest 3 samples that were left out; its `total` counts all"])
        copied = pickle.loads(pickle.dumps(listed))
        self.assertEqual((copied, copied.total), (listed, 5))
        listed.clear()
        self.assertEqual((listed.total, repr(BadSampleList())), (2, "[]"))

    # ---- not the fault of a sample --------------------------------------------------------------------------------

    def test_log_and_verbs_blame_a_crash_in_collate_fn_on_collate_fn(self):
        out, err = self.log_of(COLLATING)
        lines = out.splitlines()
        self.assertEqual(lines[0], "[0, 1, 2, 3]")
        self.assertRegex(lines[1], r"^collate_fn, with the samples \[4, 5, 6, 7\] killed 2 workers: 2 x SIGABRT\. Stacks and output: `penstock deaths --stacks`")
        self.assertEqual(lines[2], "[]")
        self.assertNotRegex(err, "sample 7")
        self.assertNotIn("jobs: ", err)
        self.assertRegex(err, r"ended: SIGABRT.*, while running collate_fn, with the samples \[4, 5, 6, 7\]")
        self.assertEqual(json.loads(self.penstock("quarantine", "list", "--last", "--json")[1])["quarantine"], [])
        self.assertEqual({death["sample"] for death in json.loads(self.penstock("deaths", "--last", "--json")[1])["deaths"]}, {None})

    # ---- the quarantine file --------------------------------------------------------------------------------------

    def test_a_run_reports_which_samples_a_quarantine_file_excludes(self):
        path = os.path.join(self.folder, "bad.jsonl")
        self.log_of(PROGRAM, path)
        out, err = self.log_of(PROGRAM, path)
        self.assertIn("1 sample listed in %s is left out: 7; `penstock quarantine release 7 --file %s` when it is repaired" % (path, path), err)
        self.assertEqual([line for line in out.splitlines() if line.endswith("True")], ["0 7 True", "1 7 True"])
        (listed,) = json.loads(self.penstock("quarantine", "list", "--last", "--json")[1])["quarantine"]
        self.assertEqual((listed["sample"], listed["known"]), (7, True))
        self.assertRegex(self.penstock("quarantine", "list", "--last")[1], r"\Asample +attempts +ended by\nsample 7 +2 +\S.* \(in an earlier run\)\n\Z")
        self.assertIn("4 sample failures, 0 samples quarantined and 1 by earlier runs (`penstock quarantine list`); samples were left out of batches 6 times", self.penstock("status", "--last")[1])

    def test_the_error_about_a_quarantined_sample_says_how_to_release_it(self):
        path = os.path.join(self.folder, "bad.jsonl")
        loader = SharingLoader(Values(int, 4), num_workers=2, quarantine=path)
        Quarantine(path, loader._fingerprint()).add(1, ["SIGSEGV"])
        with self.assertRaisesRegex(penstock.sample_error, "sample 1 is in quarantine.*SIGSEGV.*`penstock quarantine release 1 --file %s`" % path):
            list(loader)

    def test_two_datasets_that_a_quarantine_file_cannot_distinguish_are_reported(self):
        path = os.path.join(self.folder, "bad.jsonl")
        train, val = Values(int, 8), Values(int, 8)
        DataLoader(train, num_workers=1, quarantine=path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            DataLoader(train, num_workers=1, quarantine=path)  # another loader over the same dataset
        with self.assertWarnsRegex(UserWarning, "two datasets of this program use .*bad.jsonl.*its own file.*`fingerprint`"):
            DataLoader(val, num_workers=1, quarantine=path)

    def test_a_dataset_can_name_itself_with_a_fingerprint(self):
        path = os.path.join(self.folder, "bad.jsonl")
        train, val = Values(int, 8), Values(int, 8)
        train.fingerprint, val.fingerprint = "train", "val"
        Quarantine(path, DataLoader(train, num_workers=1, quarantine=path)._fingerprint()).add(1, ["SIGSEGV"])
        with self.assertRaisesRegex(penstock.state_mismatch_error, "line 1: it belongs to train, but this dataset is val: .* its own file"):
            DataLoader(val, num_workers=1, quarantine=path)
        val.fingerprint = "train"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            DataLoader(val, num_workers=1, quarantine=path)  # the program declares that both datasets are the same

    def test_a_quarantine_file_that_cannot_be_written_is_refused_at_once(self):
        for path, why in ((os.path.join(self.folder, "none", "bad.jsonl"), "there is no folder"), (self.folder, "this is a folder")):
            with self.assertRaisesRegex(penstock.config_error, "quarantine is .*" + why):
                DataLoader(Values(int, 8), num_workers=1, quarantine=path)
        with self.assertRaisesRegex(penstock.state_mismatch_error, "line 1: not an entry"):
            DataLoader(Values(int, 8), num_workers=1, quarantine=self.write("bad.jsonl", "hello\n"))

    # ---- status ---------------------------------------------------------------------------------------------------

    def test_each_sample_counts_once_and_samples_of_a_batch_that_raised_do_not_count_as_delivered(self):
        def give(index):
            if index == 1:
                raise ValueError(index)
            return index

        def counts(loader):
            status = loader._workers_here().pool.status()
            return [status[key] for key in ("batches_delivered", "samples_delivered", "samples_done", "batches_done")]
        for policy, expected in (("skip", [2, 7, 8]), ("replace", [2, 8, 8]), ("raise", [1, 4, 4])):
            loader = SharingLoader(Values(give, 8), batch_size=4, num_workers=2, on_bad_sample=policy)
            before, batches = counts(loader), iter(loader)
            while True:
                try:
                    if next(batches, None) is None:
                        break
                except ValueError:
                    self.assertEqual(policy, "raise")
            after = counts(loader)
            self.assertEqual([now - then for now, then in zip(after[:3], before)], expected, policy)
            self.assertEqual(after[3], 2, policy)

    def test_the_time_shown_with_a_sample_is_that_of_the_sample_and_not_of_its_batch(self):
        process = self.program("""
            import time, torch
            from penstock.torch import DataLoader
            class Slow(torch.utils.data.Dataset):
                def __len__(self): return 1000
                def __getitem__(self, index): time.sleep(0.05); return index
            for batch in DataLoader(Slow(), batch_size=500, num_workers=1, name="loader"): pass
            """)
        worker = lambda: (json.loads(self.penstock("status", "--json")[1] or "{}").get("workers") or [{}])[0]
        self.wait_until(lambda: (worker().get("current_sample_seconds") or 0) > 1 and worker(), "a second of the batch", seconds=60)
        self.wait_until(lambda: 0 <= worker()["current_work_seconds"] < 0.5, "the sample's own time")
        shown = r"sample \d+ for [\d.]+ [mu]?s"
        self.assertRegex(self.penstock("status")[1], shown)
        self.assertRegex(self.penstock("describe", "worker/0")[1], shown)
        self.assertNotIn("batch for", self.penstock("top", "--once")[1])
        self.assertEqual(self.penstock("stop", "--wait")[0], 0)
        process.communicate(timeout=60)


if __name__ == "__main__":
    main()
