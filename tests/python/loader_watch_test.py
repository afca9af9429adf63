"""What the verbs of `penstock` report about a loader: what it waits for, what it has delivered, and how its program ended."""

import collections
import datetime
import itertools
import json
import os
import re
import signal

import loader_data  # noqa: F401 - skips without torch
from package import *
from package import PackageTest

PROGRAM = """
    import os, signal, sys, time, torch
    from penstock.torch import DataLoader
    class Numbers(torch.utils.data.Dataset):
        def __len__(self): return 64
        def __getitem__(self, index):
            %(sample)s
            return index
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, shuffle=False, name="loader")
    for epoch in range(1000000):
        for step, batch in enumerate(loader):
            %(step)s
    """


def seconds_of(time):
    return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


class LoaderWatchTest(PackageTest):
    def loader(self, sample="pass", step="pass"):
        return self.program(PROGRAM % {"sample": sample, "step": step})

    def asked(self, *verb):
        """The JSON of a verb; None while no session answers."""
        code, out, _ = self.penstock(*verb, "--json")
        return json.loads(out) if code in (0, 3) and out else None

    def events(self, session=None):
        """Those of an ended session, by default the last one."""
        which = ("--last",) if session is None else ("--session", session)
        return [json.loads(line) for line in self.penstock("events", *which, "--json")[1].splitlines()]

    def stalled(self):
        status = self.asked("status")
        return status and status["stalled"]

    def test_a_sample_that_hangs_stalls_its_loader_and_is_named_in_every_view_of_an_operator(self):
        process = self.loader(sample="time.sleep(600 if index == 37 else 0)")
        self.wait_until(self.stalled, "the stall", seconds=60)
        stall = self.stalled()
        self.assertEqual(stall["kind"], "sample")
        self.assertEqual(stall["sample"], "sample 37")
        worker = "worker/%d" % stall["worker"]
        self.assertRegex(stall["text"], r"^waiting for %s, which has been loading sample 37 for .*$" % worker)
        self.assertEqual(self.penstock("status", "--check")[0], 3)
        self.assertIn("stalled for", self.penstock("sessions")[1])
        why = self.asked("why")
        self.assertIn("sample 37", why["verdict"])
        self.assertIn("`penstock restart %s --now`" % worker, " ".join(why["more"]))
        self.assertTrue([e for e in map(json.loads, self.penstock("events", "--json")[1].splitlines()) if e["kind"] == "stalled" and "sample 37" in e["text"]])
        page = self.penstock("metrics")[1]
        self.assertRegex(page, r'penstock_stalled_seconds\{session="loader",waits_for="sample"\} [1-9]')
        self.assertRegex(page, r'penstock_stall_info\{session="loader",waits_for="sample",worker="%d",sample="sample 37"\} 1' % stall["worker"])
        self.assertEqual(self.penstock("stop", "--wait", timeout=60)[0], 0)
        process.communicate(timeout=60)  # the loader's program learns of the stop
        self.assertIn("sample 37", self.penstock("why", "--last")[1])
        self.assertNotIn("making progress again", self.penstock("events", "--last")[1])

    def test_no_verb_mentions_jobs_to_the_user_of_a_loader(self):
        self.loader(sample="os.abort() if index == 9 and not os.path.exists('died') and not open('died', 'w').close() else time.sleep(600 if index == 37 else 0)")
        self.wait_until(self.stalled, "the stall", seconds=60)
        for verb in (("status",), ("top", "--once"), ("describe", "scheduler"), ("events", "--all"), ("deaths",), ("why",), ("sessions",), ("quarantine", "list")):
            code, out, err = self.penstock(*verb)
            self.assertEqual(code, 0, err)
            self.assertNotRegex(out + err, r"\b[Jj]obs?\b|poison|\bpool\b|submitted")
        jobs = self.asked("status")["jobs"]
        loading = "%d loading, %d waiting for a worker" % (jobs["running"], jobs["waiting"])
        self.assertIn(loading, self.penstock("status")[1])
        self.assertIn(loading, self.penstock("top", "--once")[1])
        self.assertRegex(self.penstock("events")[1], "while loading sample 9")

    def test_workers_that_scale_adds_get_batches_in_the_running_epoch(self):
        self.loader(sample="time.sleep(0.02)")
        self.wait_until(lambda: (s := self.asked("status")) and s["batches_delivered"] > 0, "the first batch", seconds=60)
        self.assertEqual(self.penstock("scale", "6", "--session", "loader")[0], 0)
        # Two workers have 2 * prefetch_factor = 4 batches.
        self.wait_until(lambda: self.asked("status")["jobs"]["running"] > 4, "more than four batches at a time", seconds=60)

    def test_why_names_a_hanging_sample_before_it_counts_as_a_stall(self):
        self.loader(sample="time.sleep(600 if index == 37 else 0)")
        now = self.wait_until(lambda: (w := self.asked("why")) and w["now"] and "sample 37" in w["now"]["waits_for"] and w["now"], "the wait", seconds=60)
        self.assertLess(now["seconds"], 10)
        self.assertEqual(now["verdict_after_seconds"], 5)
        self.assertEqual(self.asked("status")["workers"][now["worker"]]["current_sample"], "sample 37")

    def test_a_sample_that_hangs_again_after_a_restart_is_reported_as_having_hung_before(self):
        self.loader(sample="time.sleep(600 if index == 37 else 0)")
        self.wait_until(self.stalled, "the stall", seconds=60)
        first = self.stalled()
        self.assertEqual(first["hung_before"], 0)
        self.assertEqual(self.penstock("restart", "worker/%d" % first["worker"], "--now")[0], 0)
        again = self.wait_until(lambda: (s := self.stalled()) and s["hung_before"] and s, "the next stall", seconds=60)
        self.assertEqual(again["hung_before"], 1)
        self.assertRegex(again["text"], r"sample 37 for .*; it hung before, 1 time: in worker/%d at [\d:]+ after .*; .*DataLoader\(timeout=60" % first["worker"])
        (hung,) = self.asked("status")["hung"]
        self.assertEqual((hung["name"], len(hung["hangs"]), hung["hangs"][0]["worker"]), ("sample 37", 1, first["worker"]))
        why = self.asked("why")
        self.assertIn("it hung before", why["verdict"])
        self.assertNotIn("restart", " ".join(why["more"]))
        self.assertIn("sample 37", self.penstock("describe", "worker/%d" % again["worker"])[1])
        (death,) = self.asked("deaths")["deaths"]
        self.assertEqual((death["cause"], death["work"], death["attempt"], death["hung_before"]), ("stopped", "sample 37", 0, 0))
        self.assertGreater(death["worked_seconds"], 5)
        self.assertEqual(self.penstock("restart", "worker/%d" % again["worker"], "--now")[0], 0)
        told = lambda: [e["text"] for e in map(json.loads, self.penstock("events", "--json")[1].splitlines()) if e["kind"] == "worker_died"][1:]
        (text,) = self.wait_until(told, "the event")
        self.assertRegex(text, r"was killed on request, while loading sample 37, for .*; that had hung 1 time before: .*DataLoader\(timeout=60")

    def test_a_worker_that_is_suspended_while_it_is_idle_is_what_the_stream_waits_for(self):
        self.loader(step="time.sleep(0.3)")
        status = self.wait_until(lambda: (s := self.asked("status")) and s["batches_delivered"] > 2 and s, "some batches", seconds=60)
        worker = status["workers"][0]
        os.kill(worker["pid"], signal.SIGSTOP)
        self.addCleanup(os.kill, worker["pid"], signal.SIGCONT)
        stall = self.wait_until(self.stalled, "the stall", seconds=60)
        self.assertEqual(stall["worker"], 0, stall)
        self.assertIn("is suspended", stall["text"])
        self.assertIn("kill -CONT %d" % worker["pid"], self.penstock("why")[1])

    def test_status_shows_the_progress_of_a_pass_and_when_it_will_end(self):
        self.loader(step="time.sleep(0.2)")
        status = self.wait_until(lambda: (s := self.asked("status")) and s["eta_seconds"] and s["batches_done"] > 1 and s, "a rate", seconds=60)
        self.assertEqual(status["batches_expected"], 16)
        self.assertAlmostEqual(status["progress"], status["batches_done"] / 16, places=3)
        self.assertLess(status["eta_seconds"], 60)
        self.assertRegex(self.penstock("status")[1], r"\d+ % of epoch \d+")
        self.assertRegex(self.penstock("sessions")[1], r"\d+ batch(es)?, \d+ % of epoch \d+")

    def test_the_rate_of_a_loader_counts_the_batches_that_its_loop_took(self):
        self.program("""
            import time, torch
            from penstock.torch import DataLoader
            for batch in DataLoader(torch.arange(100000), batch_size=4, num_workers=2, prefetch_factor=16, name="loader"):
                time.sleep(0.5)
            """)
        status = self.wait_until(lambda: (s := self.asked("status")) and s["batches_delivered"] >= 4 and s["rate"] and s, "some batches", seconds=60)
        measured = min(status["uptime_seconds"] - 2, 10)  # the rate covers at most this time
        self.assertLessEqual(status["rate"] * measured, status["batches_delivered"])  # 32 others have been loaded ahead
        self.assertEqual([w["state"] for w in status["workers"] if w["rate"] is None and not w["sacrificial"]], [])
        self.assertRegex(self.penstock("top", "--once")[1], r"(?m)^[\d.]+ samples/s  [\d.]+ batches/s ")

    def test_each_death_of_a_batch_of_fast_samples_names_the_sample(self):
        process = self.loader(sample="os.abort() if index == 61 else None")
        process.communicate(timeout=100)
        deaths = self.asked("deaths", "--last")["deaths"]
        self.assertEqual([(d["attempt"], d["signal"]) for d in deaths], [(1, "SIGABRT"), (2, "SIGABRT"), (3, "SIGABRT")])
        self.assertEqual([d["work"] for d in deaths], ["sample 61"] * 3)
        self.assertEqual([d["sample"] for d in deaths], [61] * 3)
        self.assertEqual(self.penstock("describe", "sample/61", "--last")[1].count("SIGABRT, while loading sample 61"), 3)

    def test_timeouts_of_a_sample_are_counted_as_its_attempts_and_its_batch_as_loaded_again(self):
        process = self.program("""
            import time, torch
            from penstock.torch import DataLoader
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 64
                def __getitem__(self, index): time.sleep(600 if index == 61 else 0); return index
            print(len(list(DataLoader(Numbers(), batch_size=4, num_workers=1, timeout=1, on_bad_sample="skip", name="loader"))))
            """)
        self.assertEqual(process.communicate(timeout=100)[0].split(), ["16"])
        deaths = self.asked("deaths", "--last")["deaths"]
        self.assertEqual([d["cause"] for d in deaths], ["hang"] * 3)
        self.assertEqual([d["attempt"] for d in deaths], [1, 2, 3])
        self.assertEqual([d["sample"] for d in deaths], [61] * 3)
        self.assertEqual(self.penstock("describe", "sample/61", "--last")[1].count("it has been loading sample 61 for "), 3)
        (hung,) = self.asked("status", "--last")["hung"]
        self.assertEqual((hung["name"], len(hung["hangs"])), ("sample 61", 3))
        self.assertRegex(self.penstock("status", "--last")[1], "sample 61 hung 3 times: in worker/")
        self.assertIn("deaths cost 1 sample, which is quarantined; 1 batch was loaded again, 3 times in all", self.penstock("deaths", "--last")[1])

    def test_the_cost_of_deaths_counts_the_batches_that_workers_began_again(self):
        process = self.program("""
            import os, signal, torch
            from penstock.torch import DataLoader
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 64
                def __getitem__(self, index):
                    with open("begun", "a") as begun: print(index, file=begun)
                    if index == 37 or index == 13 and not os.path.exists("died"):
                        open("died", "w").close()
                        os.kill(os.getpid(), signal.SIGKILL)
                    return index
            print(len(list(DataLoader(Numbers(), batch_size=4, num_workers=2, prefetch_factor=4, on_bad_sample="skip", name="loader"))))
            """)
        self.assertEqual(process.communicate(timeout=100)[0].split(), ["16"])
        with open(os.path.join(self.folder, "begun")) as begun:
            loads = collections.Counter(int(line) // 4 for line in begun if int(line) % 4 == 0)
        again = [count - 1 for count in loads.values() if count > 1]
        self.assertEqual(sorted(again), [1, 3])  # the batch with sample 37 is loaded three times with it, and once without
        for cost in self.asked("deaths", "--last")["cost"], self.asked("status", "--last")["deaths_cost"]:
            self.assertEqual((cost["repeated"], cost["repetitions"]), (len(again), sum(again)))

    def waits_of_a_loop(self, arguments, sample, step="pass"):
        """Runs a loader to its end. Returns for how long its loop waited for batches, and for how much of that because of deaths."""
        process = self.program("""
            import os, signal, time, torch
            from penstock.torch import DataLoader
            def dies_once(seconds):
                if os.path.exists("died"): return
                time.sleep(seconds)
                open("died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 64
                def __getitem__(self, index):
                    %s
                    open("loaded-%%d" %% index, "w").close()
                    return index
            def all_loaded(): return all(os.path.exists("loaded-%%d" %% index) for index in range(64))
            batches, waited, samples = iter(DataLoader(Numbers(), batch_size=4, name="loader", %s)), 0.0, 0
            for number in range(16):
                begun = time.monotonic()
                samples += len(next(batches))
                waited += time.monotonic() - begun
                %s
            assert samples in (63, 64) and next(batches, None) is None
            print(waited)
            """ % (sample, arguments, step))
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err)
        cost = self.asked("deaths", "--last")["cost"]
        self.assertEqual(cost, self.asked("status", "--last")["deaths_cost"])
        self.assertEqual(cost["repeated"], 1)
        return float(out), cost["waited_seconds"]

    def test_the_cost_of_deaths_is_the_time_that_the_loop_waits_until_another_worker_gets_the_batch(self):
        waited, cost = self.waits_of_a_loop("num_workers=1", sample="dies_once(1) if index == 61 else None")  # in the last batch
        self.assertGreater(cost, 0.9)  # the first attempt counts
        self.assertLess(cost, waited)
        self.assertIn("1 batch was loaded again; the loop waited ", " ".join(self.penstock("deaths", "--last")[1].split()))

    def test_a_wait_that_ends_just_before_the_end_of_the_program_is_counted(self):
        waited, cost = self.waits_of_a_loop("num_workers=1", sample="dies_once(0.02) if index == 61 else None")
        self.assertGreater(cost, 0.02)
        self.assertLess(cost, waited)

    def test_a_death_costs_no_wait_if_the_batch_is_loaded_again_before_its_turn(self):
        step = "while not all_loaded(): time.sleep(0.01)"
        waited, cost = self.waits_of_a_loop("num_workers=2, prefetch_factor=8", sample="dies_once(0) if index == 13 else None", step=step)
        self.assertGreater(waited, 0)  # for the first batch
        self.assertEqual(cost, 0)
        self.assertIn("the loop did not wait", " ".join(self.penstock("deaths", "--last")[1].split()))

    def test_the_cost_of_deaths_includes_the_wait_for_a_batch_that_is_loaded_again_after_those_that_were_ahead_of_it(self):
        sample = "time.sleep(600 if index == 5 else 0.15 if 8 <= index < 36 else 0)"
        waited, cost = self.waits_of_a_loop("num_workers=1, prefetch_factor=8, timeout=2, on_bad_sample='skip'", sample=sample)
        self.assertGreater(cost, 9.5)  # three attempts at sample 5, each a job of its own, and 7 other batches after the first of them
        self.assertLess(cost, waited)

    def test_a_death_also_costs_a_loop_that_takes_batches_as_they_come_the_wait_for_the_only_one_that_is_left(self):
        waited, cost = self.waits_of_a_loop("num_workers=1, in_order=False", sample="dies_once(1) if index == 61 else None")
        self.assertGreater(cost, 0.9)
        self.assertLess(cost, waited)

    def test_the_cost_of_deaths_counts_all_samples_of_a_batch_that_the_loop_does_not_get(self):
        process = self.program("""
            import os, torch, penstock
            from penstock.torch import DataLoader
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 64
                def __getitem__(self, index): os.abort() if index == 61 else None; return index
            def broken(samples): os.abort() if 13 in samples else None; return samples
            for options in {}, {"collate_fn": broken}:
                batches = iter(DataLoader(Numbers(), batch_size=4, num_workers=1, name="loader", **options))
                while True:
                    try: next(batches)
                    except penstock.error: pass
                    except StopIteration: break
            """)
        _, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err)
        costs = [json.loads(self.penstock("deaths", "--session", each["id"], "--last", "--json")[1])["cost"] for each in self.asked("sessions", "--ended")["ended"]]
        self.assertEqual(sorted((cost["quarantined"], cost["lost"]) for cost in costs), [(1, 3), (1, 7)])
        self.assertIn("deaths cost 1 sample, which is quarantined; ", self.penstock("deaths", "--last")[1])
        self.assertIn("7 samples were lost with batches that raised an exception", " ".join(self.penstock("deaths", "--last")[1].split()))

    def test_a_batch_that_the_loop_gets_as_an_exception_is_counted_and_named_whether_its_sample_raised_or_crashed(self):
        for failing, counts in ("raise ValueError('no line')", (0, 8, 1)), ("os.abort()", (1, 7, 0)):
            process = self.program("""
                import os, torch
                from penstock.torch import DataLoader
                class Numbers(torch.utils.data.Dataset):
                    def __len__(self): return 100
                    def __getitem__(self, index):
                        if index == 61: %s
                        return index
                batches, arrived = iter(DataLoader(Numbers(), batch_size=8, num_workers=2, name="loader")), 0
                while True:
                    try: arrived += len(next(batches))
                    except StopIteration: break
                    except Exception: pass
                print(arrived)
                """ % failing)
            self.assertEqual(process.communicate(timeout=100)[0].split(), ["92"])
            status = self.asked("status", "--last")
            cost = status["deaths_cost"]
            self.assertEqual((cost["quarantined"], cost["lost"], cost["failed"]), counts)
            for verb in "status", "deaths":
                _, out, err = self.penstock(verb, "--last")
                self.assertIn("%d samples were lost with batches that raised an exception" % counts[1], " ".join((out + err).split()))
            events = self.events()
            self.assertEqual([e["text"] for e in events if e["kind"] == "job_failed"], [])
            self.assertEqual([e["sample"] for e in events if e["kind"] == "sample_failed"], [61] * counts[2])
            (lost,) = [e for e in events if e["kind"] == "batch_lost"]
            self.assertEqual((lost["epoch"], lost["seq"], lost["sample"], lost["samples"], lost["samples_unlisted"]), (0, 7, 61, list(range(56, 64)), 0))
            self.assertRegex(lost["text"], r"^8 samples are lost with batch 7 of epoch 0, because sample 61 (raised ValueError: no line \(|killed 3 workers: 3 x SIGABRT$)")
            for sample in 60, 61:
                code, out, err = self.penstock("describe", "sample/%d" % sample, "--last")
                self.assertEqual(code, 0, err)
                self.assertTrue(out.startswith("sample %d\n" % sample), out)
                self.assertIn(lost["text"], " ".join(out.split()))
                self.assertNotIn("delivered", out)
            code, _, err = self.penstock("describe", "sample/5", "--last")
            self.assertEqual(code, 4)
            self.assertIn("Single samples that were delivered are not recorded", err)

    def test_a_lost_batch_whose_exception_ends_the_program_is_recorded_before_the_end(self):
        process = self.loader(sample="if index == 57: raise ValueError('no line 57')")
        self.assertIn("ValueError: no line 57", process.communicate(timeout=100)[1])
        code, out, err = self.penstock("describe", "sample/59", "--last")
        self.assertEqual(code, 0, err)
        self.assertRegex(" ".join(out.split()), r"^sample 59 \S+ \S+ 4 samples are lost with batch 14 of epoch 0, because sample 57 raised ValueError: no line 57 \(")

    def test_each_batch_that_the_loop_gets_as_an_exception_is_an_event_with_its_samples_and_the_reason(self):
        process = self.program("""
            import os, sys, time, torch
            from penstock.torch import DataLoader
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 16
                def __getitem__(self, index):
                    if index == 2: os.abort()
                    if index == 9: raise ValueError("no line")
                    if index == 13: time.sleep(600)
                    return index
            class Names(Numbers):
                def __getitem__(self, index): raise KeyError(index)
            class Shards(torch.utils.data.IterableDataset):
                def __iter__(self): yield from [0, 1, 2, 3]
            def broken(samples):
                if 5 in samples: raise TypeError("no tensor")
                return samples
            def failing(samples): raise TypeError("no tensor")
            usual = {"batch_size": 4, "num_workers": 1}
            for number, (dataset, options) in enumerate((
                (Numbers(), {"collate_fn": broken, "timeout": 3, "quarantine": "bad"}),
                (Numbers(), {"collate_fn": broken, "quarantine": "bad", "on_bad_sample": "skip", "sampler": range(12)}),
                (Numbers(), {"quarantine": "bad", "sampler": [2], "batch_size": None}),
                (Names(), {"batch_sampler": [["cat", "dog"]], "batch_size": 1}),
                (Shards(), {"collate_fn": failing}),
            )):
                batches = iter(DataLoader(dataset, name=f"loader-{number}", **{**usual, **options}))
                while True:
                    try: next(batches)
                    except StopIteration: break
                    except Exception: pass
                del batches
            """)
        _, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err)
        ended = sorted(self.asked("sessions", "--ended")["ended"], key=lambda session: session["session"])
        lost = [[e for e in self.events(each["id"]) if e["kind"] == "batch_lost"] for each in ended]
        facts = [[(e["seq"], e["sample"], e["samples"], e["samples_unlisted"]) for e in of_a_loader] for of_a_loader in lost]
        self.assertEqual(facts, [
            [(0, 2, [0, 1, 2, 3], 0), (1, None, [4, 5, 6, 7], 0), (2, 9, [8, 9, 10, 11], 0), (3, 13, [12, 13, 14, 15], 0)],
            [(1, None, [4, 5, 6, 7], 0)],  # the others are delivered without the samples to blame
            [(0, 2, [2], 0)],
            [(0, None, [], 2)],
            [(None, None, [], 4)],
        ])
        collation = r"collate_fn, with the samples \[4, 5, 6, 7\] raised TypeError: no tensor \(.*\)"
        for e, because in zip(itertools.chain(*lost), (
            r"4 samples are lost with batch 0 of epoch 0, because sample 2 killed 3 workers: 3 x SIGABRT",
            r"4 samples are lost with batch 1 of epoch 0, because " + collation,
            r"4 samples are lost with batch 2 of epoch 0, because sample 9 raised ValueError: no line \(.*\)",
            r"4 samples are lost with batch 3 of epoch 0, because sample 13 took longer than 3 s, 3 times",
            r"4 samples are lost with batch 1 of epoch 0, because " + collation,
            r"1 sample is lost with batch 0 of epoch 0, because sample 2 is in quarantine",
            r"2 samples are lost with batch 0 of epoch 0, because sample cat raised KeyError: 'cat' \(.*\)",
            r"4 samples are lost with batch 0 of shard 0 of epoch 0, because collate_fn, at batch 0 of shard 0 raised TypeError: no tensor \(.*\)",
        )):
            self.assertRegex(e["text"], "^" + because + "$")
        costs = [self.asked("status", "--session", each["id"])["deaths_cost"] for each in ended]
        self.assertEqual([(cost["lost"], cost["quarantined"]) for cost in costs], [(15, 1), (4, 0), (0, 0), (2, 0), (4, 0)])

    def test_a_number_that_no_sample_of_a_loaders_dataset_has_is_refused_unless_the_dataset_has_no_length(self):
        self.loader(step="time.sleep(600)")
        self.wait_until(lambda: (status := self.asked("status")) and status["dataset_samples"] == 64, "the length of the dataset", seconds=60)
        code, _, err = self.penstock("describe", "sample/5000")
        self.assertEqual(code, 4)
        self.assertIn("error: there is no sample 5000: the dataset has 64 samples (0 to 63)\n", err)
        self.assertIn("nothing is recorded of sample 63", self.penstock("describe", "sample/63")[2])
        process = self.program("""
            import torch
            from penstock.torch import DataLoader
            class Shards(torch.utils.data.IterableDataset):
                def __len__(self): return 4
                def __iter__(self): yield from range(4)
            list(DataLoader(Shards(), num_workers=1, name="unknown"))
            """)
        _, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err)
        (ended,) = self.asked("sessions", "--ended")["ended"]
        self.assertIsNone(self.asked("status", "--session", ended["id"])["dataset_samples"])
        self.assertIn("nothing is recorded of sample 5000", self.penstock("describe", "sample/5000", "--session", ended["id"])[2])

    def test_slow_samples_are_named_with_their_times(self):
        self.loader(sample="time.sleep(0.5 if index in (13, 38) else 0.001)")
        is_told = lambda w: w and len(w["slow_samples"]) == 2 and "low samples limit you" in w["verdict"]  # at first, starting may be the limit
        why = self.wait_until(lambda: (w := self.asked("why")) and is_told(w) and w, "the slow samples", seconds=60)
        self.assertRegex(why["verdict"], r"sample (13|38) of worker/[01] took 0\.5 s")
        self.assertEqual({s["sample"] for s in why["slowest_samples"]}, {13, 38})
        self.assertGreater(why["waited_for_slow_samples"], 0.2)
        self.assertRegex(self.penstock("why")[1], r"slow samples of the last 5 minutes:\s+5\d\d ms: sample (13|38), worker/[01]")
        self.assertRegex(self.penstock("describe", "scheduler")[1], r"5\d\d ms: sample (13|38), worker/[01]")

    def test_slow_samples_of_shards_and_of_other_indexes_are_named(self):
        self.program("""
            import time, torch
            from penstock.torch import DataLoader
            class Shards(torch.utils.data.IterableDataset):
                def __iter__(self):
                    for number in range(40):
                        time.sleep(0.3 if number == 13 else 0.001)
                        yield number
            class Names(torch.utils.data.Dataset):
                def __getitem__(self, name): time.sleep(0.3 if name == "n13" else 0.001); return name
            for _ in DataLoader(Shards(), batch_size=4, num_workers=1, name="shards"): pass
            names = DataLoader(Names(), batch_size=4, num_workers=1, sampler=["n%d" % n for n in range(40)], name="names")
            for _ in names: pass
            print("done", flush=True); time.sleep(600)
            """)
        slow = lambda name: [s["name"] for s in self.asked("why", "--session", name)["slowest_samples"]]
        self.wait_until(lambda: (self.asked("why", "--session", "names") or {}).get("slowest_samples"), "the slow sample", seconds=60)
        self.assertEqual(slow("names"), ["sample n13"])
        self.assertEqual(json.loads(self.penstock("why", "--session", "shards", "--last", "--json")[1])["slowest_samples"][0]["name"], "sample 13 of shard 0")

    def test_a_step_that_takes_long_is_the_limit_and_not_a_stall(self):
        self.loader(step="time.sleep(0 if step < 2 else 600)")
        self.wait_until(lambda: (self.asked("status") or {}).get("batches_delivered") == 3, "three batches", seconds=60)
        self.wait_until(lambda: self.asked("why")["limit"] == "consumer", "the limit", seconds=30)
        self.assertIn("Your training step limits you", self.asked("why")["verdict"])
        self.assertIn("the consumer, which asks for no batch", self.penstock("top", "--once")[1])
        self.assertIsNone(self.asked("status")["stalled"])
        self.assertIn("3 batches, 18 % of epoch 0", self.penstock("sessions")[1])

    def test_an_exception_that_ends_the_program_is_a_failure_but_its_cancelled_batches_are_not(self):
        # At the exception, batches 8 and 9 of the second epoch are in progress, and perhaps those before them.
        process = self.loader(sample="time.sleep(600 if index >= 32 and os.path.exists('second') else 0)",
                              step="epoch == 1 and step == 0 and open('second', 'w').close(); assert epoch == 0 or step < 5, 'the loss is NaN'")
        process.communicate(timeout=100)
        self.assertEqual(process.returncode, 1)
        ended = json.loads(self.penstock("sessions", "--ended", "--json")[1])["ended"][0]
        self.assertEqual(ended["outcome"], "failed")
        self.assertEqual(ended["failure"], "an exception in the program: AssertionError: the loss is NaN")
        jobs = ended["jobs"]
        self.assertEqual(jobs["failed"], 0)
        self.assertIn(jobs["cancelled"], (2, 3, 4))
        self.assertEqual(jobs["ok"] + jobs["cancelled"], jobs["submitted"])
        self.assertEqual(ended["batches_delivered"], 16 + 6)
        self.assertIn("22 batches, epoch 1", self.penstock("sessions", "--ended")[1])
        page = self.penstock("metrics")[1]
        self.assertRegex(page, r'penstock_session_ended_info\{session="loader",id="[^"]*",outcome="failed",reason="an exception in the program: ')
        self.assertRegex(page, r"penstock_session_ended_batches\{[^}]*\} 22\n")
        self.assertRegex(page, r"penstock_session_ended_samples\{[^}]*\} 88\n")
        self.assertRegex(page, r'penstock_session_ended_jobs\{[^}]*outcome="failed"\} 0\n')

    def test_a_program_that_drops_its_loader_or_exits_has_finished(self):
        process = self.loader(step="os.environ if epoch < 1 else sys.exit(0)")
        process.communicate(timeout=100)
        ended = json.loads(self.penstock("sessions", "--ended", "--json")[1])["ended"][0]
        self.assertEqual((ended["outcome"], ended["batches_delivered"]), ("finished", 17))

    def test_ctrl_c_stops_a_program_and_does_not_fail_it(self):
        process = self.loader(step="time.sleep(0.05)")
        self.wait_until(lambda: (self.asked("status") or {}).get("batches_delivered"), "a batch", seconds=60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        ended = json.loads(self.penstock("sessions", "--ended", "--json")[1])["ended"][0]
        self.assertEqual(ended["outcome"], "stopped")
        self.assertIn("KeyboardInterrupt", ended["reason"])

    def test_a_worker_that_crashes_leaves_the_line_of_python_that_it_ran_and_its_run_time(self):
        process = self.loader(sample="os.kill(os.getpid(), signal.SIGSEGV) if index == 9 else None")
        process.communicate(timeout=100)
        death = json.loads(self.penstock("deaths", "--last", "--json")[1])["deaths"][0]
        self.assertEqual(death["signal"], "SIGSEGV")
        self.assertRegex(death["last_output"], r'File "<string>", line \d+ in __getitem__')
        self.assertTrue(death["stack"])
        events = map(json.loads, self.penstock("events", "--last", "--json")[1].splitlines())
        started = next(e for e in events if e["kind"] == "worker_started" and e["worker"] == death["worker"])
        began = seconds_of(death["time"]) - death["lived_seconds"]
        self.assertGreater(began, seconds_of(started["time"]) - 1)

    def test_a_crash_at_each_attempt_shows_one_stack_of_the_users_code(self):
        process = self.loader(sample="__import__('ctypes').string_at(0) if index == 9 else None")
        process.communicate(timeout=100)
        logs = self.penstock("logs", "workers", "--last")[1]
        self.assertEqual(logs.count("(its stack: `penstock deaths --stacks --last`)"), 3, logs)
        self.assertNotIn("string_at", logs)
        stacks = self.penstock("deaths", "--last", "--stacks")[1]
        self.assertRegex(stacks, r"(?s)\n  string_at at \S+:\d+\n  __getitem__ at <string>:\d+\n  \(\d+ frames of penstock and Python\)\n")
        self.assertNotIn("_loading.py", stacks)
        self.assertIn("_loading.py", self.penstock("deaths", "--last", "--stacks", "--all-frames")[1])
        sample = self.penstock("describe", "sample/9", "--last")[1]
        self.assertEqual((sample.count("the same in attempts 1, 2 and 3:"), sample.count("string_at at ")), (1, 1), sample)
        worker = json.loads(self.penstock("deaths", "--last", "--json")[1])["deaths"][0]["worker"]
        described = self.penstock("describe", "worker/%d" % worker, "--last")[1]
        self.assertEqual(described.count("string_at"), 1, described)

    def test_a_killed_program_is_reported_as_ended_without_closing_its_loader(self):
        process = self.loader(step="time.sleep(0.05)")
        self.wait_until(lambda: (self.asked("status") or {}).get("batches_delivered"), "a batch", seconds=60)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        ended = json.loads(self.penstock("sessions", "--ended", "--json")[1])["ended"][0]
        self.assertEqual((ended["outcome"], ended["reason"]), (
            "died", "the program ended without closing the loader: it was killed, crashed, or exited without cleanup"))
        self.assertIn("without closing the loader", self.penstock("status", "--last")[1].splitlines()[0])

    def test_metrics_of_a_loader_show_how_long_its_consumer_waits(self):
        self.loader(sample="time.sleep(0.05)")

        def value(name):
            found = re.search(r"^%s(?:\{[^}]*\})? (\S+)$" % name, self.penstock("metrics")[1], re.M)
            return 0 if found is None else float(found[1])
        self.wait_until(lambda: value("penstock_samples_delivered_total") >= 16, "four batches", seconds=60)
        self.assertGreater(value("penstock_consumer_wait_seconds_total"), 0.2)
        jobs = self.asked("status")["jobs"]
        self.assertLessEqual(jobs["running"], 2)
        self.assertEqual(jobs["submitted"], sum(jobs[state] for state in ("waiting", "running", "ok", "failed", "cancelled")))


if __name__ == "__main__":
    main()
