"""The GPU owner in its own process: it may die at any time, and the stream is the same."""

import os
import re
import resource
import signal

from harness import *

PROGRAMS = os.path.join(BIN, "device_programs")


class OwnerProcessTest(PenstockTest):
    def owner_of(self, process):
        owners = [pid for pid in descendants_of(process.pid) if name_of(pid) == "penstock-gpu"]
        self.assertLessEqual(len(owners), 1)
        return owners[0] if owners else None

    def kill_owners(self, process, session, times):
        """Kills each new owner as soon as it has delivered a batch."""
        for _ in range(times):
            before = self.live_status(session)
            self.wait_until(lambda: self.delivered(session) > before["batches_delivered"], "a batch of the new owner")
            signal_process(self.owner_of(process), signal.SIGKILL)
            self.wait_until(lambda: self.live_status(session)["gpu"]["restarts"] > before["gpu"]["restarts"], "a restart")

    def status_of(self, session):
        code, out, err = self.penstock("status", "--json", "--session", session)
        self.assertEqual(code, EXIT_OK, err + out)
        return json.loads(out)

    def delivered(self, session):
        return self.live_status(session)["batches_delivered"]

    def slow(self, name, samples=2000):
        return self.write(name + ".toml", 'name = "%s"\n' % name + synthetic(samples=samples, epochs=2, dataset='wait = "2ms"'))

    def run_under_kills(self, name, times, *options):
        process = self.start("run", self.slow(name), "--workers", 2, "--json", "--quiet", *options)
        self.wait_until(lambda: self.penstock("wait", "--for=ready", "--session", name, "--timeout", "5s")[0] == EXIT_OK,
                        "a ready session")
        self.kill_owners(process, name, times)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, EXIT_OK, err.decode())
        return json.loads(out), err.decode()

    def test_both_placements_deliver_the_same_stream(self):
        config = self.write("s.toml", synthetic())
        self.assertEqual(self.digests(config), self.digests(config, "--set", "gpu.placement=embedded"))

    def test_an_owner_that_is_killed_again_and_again_does_not_change_the_stream(self):
        expected = self.digests(self.slow("quiet"))
        report, _ = self.run_under_kills("killed", 8, "--digest")
        self.assertEqual([e["digest"] for e in report["epochs"]], expected)
        self.assertEqual(report["gpu"]["restarts"], 8)
        self.assertEqual([d["signal"] for d in report["gpu"]["deaths"]], 8 * ["SIGKILL"])
        self.assertEqual(report["gpu"]["ended_unexpectedly"], 8)
        self.assertEqual(report["workers"]["deaths"], [])
        self.check_sums(report)

    def test_an_owner_whose_replacement_finds_no_free_descriptor_comes_back_when_there_is_one(self):
        config = self.write("full.toml", synthetic(samples=2000, epochs=1, dataset='wait = "2ms"',
                                                   more='[gpu.restart]\nintensity = { max = 100, within = "60s" }'))
        expected = self.digests(config)
        process = self.start("run", config, "--workers", 2, "--json", "--quiet", "--digest")
        self.wait_until(lambda: self.penstock("wait", "--for=ready", "--session", "full", "--timeout", "5s")[0] == EXIT_OK,
                        "a ready session")
        self.wait_until(lambda: self.delivered("full") > 0, "a batch")
        limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        signal_process(self.owner_of(process), signal.SIGKILL)
        said = b""
        while b"the GPU owner could not be started" not in said:
            said = process.stderr.readline()
            self.assertTrue(said, "the run has ended")
        self.assertRegex(said.decode(), r"[Tt]oo many open files.*; trying again (in [1-9]|at once)")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, EXIT_OK, err.decode())
        report = json.loads(out)
        self.assertEqual([e["digest"] for e in report["epochs"]], expected)
        self.check_sums(report)

    def test_status_and_deaths_show_the_death_of_an_owner_and_a_requested_one_is_not_unexpected(self):
        process = self.start("run", self.slow("told", samples=1000000), "--workers", 2, "--json", "--quiet")
        self.wait_until(lambda: self.penstock("wait", "--for=ready", "--session", "told", "--timeout", "5s")[0] == EXIT_OK,
                        "a ready session")
        self.assertEqual(self.status_of("told")["gpu"]["ended_unexpectedly"], 0)
        self.assertIsNone(self.status_of("told")["gpu"]["last_death"])
        victim = self.owner_of(process)
        self.kill_owners(process, "told", 1)
        gpu = self.status_of("told")["gpu"]
        self.assertEqual((gpu["ended_unexpectedly"], gpu["last_death"]["pid"], gpu["last_death"]["signal"]), (1, victim, "SIGKILL"))
        self.wait_until(lambda: self.status_of("told")["gpu"]["state"] == "ready", "the next owner")
        self.assertEqual(self.penstock("restart", "gpu", "--session", "told")[0], EXIT_OK)
        self.wait_until(lambda: self.status_of("told")["gpu"]["restarts"] == 2, "an ordered restart")
        self.assertEqual(self.penstock("restart", "worker/1", "--session", "told")[0], EXIT_OK)
        self.wait_until(lambda: self.status_of("told")["workers"][1]["restarts"] == 1, "an ordered restart of a worker")
        status = self.status_of("told")
        self.assertEqual(self.penstock("deaths", "--session", "told")[1].count("stopped (ordered)"), 2)
        page = self.penstock("metrics")[1]
        for of, died in (("gpu_owner", 1), ("worker", 0)):
            self.assertIn('penstock_%s_deaths_total{session="told",cause="stopped"} 0\n' % of, page)
            self.assertIn('penstock_%s_deaths_total{session="told",cause="signal"} %d\n' % (of, died), page)
        self.assertEqual(status["gpu"]["ended_unexpectedly"], 1)
        self.assertEqual(status["gpu"]["last_death"]["cause"], "stopped")
        self.assertEqual(status["workers_ended_unexpectedly"], 0)
        self.assertEqual(self.penstock("stop", "--session", "told")[0], EXIT_OK)
        out, err = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertEqual(report["gpu"]["ended_unexpectedly"], 1)
        self.assertEqual([d["cause"] for d in report["gpu"]["deaths"]], ["signal", "stopped"])
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.assertEqual([d["cause"] for d in report["workers"]["deaths"]], ["stopped"])
        said = [line for line in err.decode().splitlines() if "the GPU owner (pid" in line]
        self.assertRegex(said[0], r"ended: SIGKILL")
        self.assertRegex(said[1], r"was stopped on request")

    def test_status_deaths_describe_and_the_closing_text_show_the_death_of_an_owner(self):
        process = self.start("run", self.slow("said"), "--workers", 2)
        self.wait_until(lambda: self.penstock("wait", "--session", "said", "--timeout", "5s")[0] == EXIT_OK, "a ready session")
        self.kill_owners(process, "said", 1)
        self.assertRegex(self.penstock("status", "gpu")[1], r"^gpu .* 1 restart  last death SIGKILL: sent by another process or by its own code, not by the session; .*OOM kill.*\n")
        code, out, err = self.penstock("deaths")
        self.assertRegex(out.splitlines()[1], r" gpu +\d+ +SIGKILL ")
        self.assertIn("next: penstock describe gpu", err)  # after SIGKILL there is no output to examine
        self.assertEqual(len(json.loads(self.penstock("deaths", "--json")[1])["owner_deaths"]), 1)
        self.assertRegex(self.penstock("describe", "gpu")[1], r"last death +SIGKILL after .*, incarnation 1, pid \d+\n")
        self.penstock("stop", "--wait")
        _, err = process.communicate(timeout=15)
        self.assertIn("GPU owner: 1 ended unexpectedly, 1 restart\n", err.decode())

    def test_a_batch_that_kills_two_owners_fails_the_run_and_is_named(self):
        config = self.write("p.toml", synthetic(samples=100, epochs=1))
        report = self.run_json(config, "--sink", "plugin:" + PROGRAMS + "/illegal_access.so",
                               env=dict(self.environment, PENSTOCK_ILLEGAL_SAMPLE="17"), expect=EXIT_FAILED)
        self.assertEqual(report["outcome"], "failed")
        self.assertRegex(report["error"], r"batch \d+ of epoch 0 \(samples [0-9, ]*\b17\b.*has killed 2 GPU owners")
        self.assertEqual(len(report["gpu"]["deaths"]), 2)

    def test_a_batch_that_kills_two_owners_can_be_skipped(self):
        config = self.write("p.toml", synthetic(samples=100, epochs=1))
        report = self.run_json(config, "--sink", "plugin:" + PROGRAMS + "/illegal_access.so",
                               "--set", "gpu.on_poison_batch=skip", env=dict(self.environment, PENSTOCK_ILLEGAL_SAMPLE="17"))
        self.assertEqual(report["epochs"][0]["failed"], 8)
        self.assertIn(17, [f["sample"] for f in report["failures"]])
        self.check_sums(report)

    def test_a_run_resumed_after_a_skipped_batch_delivers_the_same_stream(self):
        # Half of the samples are broken, so many batches draw replacements, some of them from the skipped batch.
        faults = "".join('[[dataset.faults]]\nsample = %d\nkind = "throw"\ntimes = 0\n' % sample for sample in range(0, 64, 2))
        rules = '[loader]\non_bad_sample = "replace"\n[gpu.restart]\nintensity = { max = 20 }\n'
        config = self.write("r.toml", synthetic(samples=64, epochs=1, more=faults + rules))
        journal = os.path.join(self.folder, "journal.jsonl")
        self.run_json(config, "--sink", "journal:" + journal, "--batches", 1)
        with open(journal) as file:
            first = [json.loads(line) for line in file if '"batch"' in line][0]
        arguments = (config, "--workers", 2, "--digest", "--sink", "plugin:" + PROGRAMS + "/illegal_access.so",
                     "--set", "gpu.on_poison_batch=skip")
        environment = dict(self.environment, PENSTOCK_ILLEGAL_SAMPLE=str(first["samples"][0]))
        whole = self.run_json(*arguments, env=environment)["epochs"][0]
        self.assertGreaterEqual(whole["failed"], 8)
        self.run_json(*arguments, "--batches", 2, "--state", "state", env=environment)
        rest = self.run_json(*arguments, "--state", "state", env=environment)["epochs"][0]
        self.assertEqual((rest["from_batch"], rest["delivered"], rest["failed"], rest["digest"]),
                         (2, whole["delivered"], whole["failed"], whole["digest"]))

    def test_a_device_program_that_never_returns_is_ended_and_its_batch_is_named(self):
        config = self.write("e.toml", synthetic(samples=100, epochs=1, more="[gpu.hang]\nbatch_timeout = '500ms'"))
        arguments = (config, "--sink", "plugin:" + PROGRAMS + "/never_ends.so")
        environment = dict(self.environment, PENSTOCK_ENDLESS_SAMPLE="17")
        report = self.run_json(*arguments, env=environment, expect=EXIT_FAILED)
        self.assertRegex(report["error"], r"batch \d+ of epoch 0 \(samples [0-9, ]*\b17\b.*has killed 2 GPU owners")
        self.assertEqual([d["cause"] for d in report["gpu"]["deaths"]], ["hang", "hang"])
        report = self.run_json(*arguments, "--set", "gpu.on_poison_batch=skip", env=environment)
        self.assertEqual(report["epochs"][0]["failed"], 8)
        self.assertIn(17, [f["sample"] for f in report["failures"]])
        self.check_sums(report)

    def test_a_device_program_with_snapshots_counts_every_batch_once(self):
        sink = ("--sink", "plugin:" + PROGRAMS + "/mean_variance.so")

        def result_of(text):
            return re.search(r"mean_variance: .*", text).group(0)
        code, _, quiet = self.penstock("run", self.slow("counted"), "--workers", 2, *sink)
        self.assertEqual(code, EXIT_OK, quiet)
        _, said = self.run_under_kills("counting", 5, *sink)
        self.assertEqual(result_of(said), result_of(quiet))

    def finish_with_deaths(self, deaths, expect, *options):
        config = self.write("f.toml", synthetic(samples=100, epochs=1))
        count = os.path.join(self.folder, "count")
        code, out, err = self.penstock("run", config, "--json", "--sink", "plugin:" + BIN + "/dying_program.so", *options,
                                       env=dict(self.environment, PENSTOCK_TEST_COUNT=count, PENSTOCK_TEST_DEATHS=str(deaths)))
        self.assertEqual(code, expect, err)
        return json.loads(out), err, os.path.getsize(count)

    def test_an_owner_that_dies_while_its_sink_finishes_is_replaced_and_the_next_owner_finishes(self):
        # Kills from outside never count as faults of the owner.
        report, err, tries = self.finish_with_deaths(2, EXIT_OK, "--set", "gpu.restart.intensity.max=1")
        self.assertEqual(tries, 3)
        self.assertEqual(err.count("dying_program: finished with 13 batches"), 1, err)
        self.assertEqual((report["outcome"], report["totals"]["batches"]), ("finished", 13))
        self.assertEqual([d["signal"] for d in report["gpu"]["deaths"]], 2 * ["SIGKILL"])

    def test_a_sink_that_kills_every_owner_at_its_end_fails_the_run(self):
        # The run ends by the deadline for finishing. How many owners die before that depends on the machine.
        report, _, _ = self.finish_with_deaths(99, EXIT_FAILED, "--set", "supervisor.shutdown=5s")
        self.assertEqual(report["outcome"], "failed")
        self.assertIn("the sink did not finish in time", report["error"])

    def test_a_snapshot_that_is_too_large_is_an_error_with_both_sizes_and_kills_no_further_owner(self):
        config = self.write("l.toml", synthetic(samples=100, epochs=1))
        report = self.run_json(config, "--sink", "plugin:" + BIN + "/dying_program.so", expect=EXIT_FAILED,
                               env=dict(self.environment, PENSTOCK_TEST_SNAPSHOT_BYTES=str(5 << 20)))
        self.assertEqual(report["error_kind"], "sink")
        self.assertIn("returned a snapshot of 5.00 MiB; the limit is 1.00 MiB", report["error"])
        self.assertEqual(report["gpu"]["restarts"], 0)

    def test_a_snapshot_of_the_largest_size_is_accepted(self):
        config = self.write("m.toml", synthetic(samples=100, epochs=1))
        count = os.path.join(self.folder, "count")
        report = self.run_json(config, "--sink", "plugin:" + BIN + "/dying_program.so",
                               env=dict(self.environment, PENSTOCK_TEST_SNAPSHOT_BYTES=str(1 << 20), PENSTOCK_TEST_DEATHS="1",
                                        PENSTOCK_TEST_COUNT=count))
        self.assertEqual(report["outcome"], "finished")
        self.assertEqual(report["gpu"]["restarts"], 1)

    def test_a_journal_has_every_batch_in_order_and_repeats_the_one_in_which_an_owner_was_killed(self):
        path = os.path.join(self.folder, "journal.jsonl")
        report, _ = self.run_under_kills("journal", 6, "--sink", "journal:" + path)
        lines = self.journal_lines(path)
        owners = [line["owner"] for line in lines if "batch" not in line]
        self.assertEqual(len(owners), 7)
        self.assertEqual([d["pid"] for d in report["gpu"]["deaths"]], owners[:-1])
        batches = [line for line in lines if "batch" in line]
        for owner in owners:
            own = [(line["epoch"], line["batch"]) for line in batches if line["owner"] == owner]
            self.assertEqual(own, sorted(set(own)))
        self.assertEqual(len({(line["epoch"], line["batch"]) for line in batches}), 500)
        self.assertEqual(len({(line["epoch"], line["batch"], line["digest"]) for line in batches}), 500)
        self.assertEqual(sorted({s for line in batches if line["epoch"] == 0 for s in line["samples"]}), list(range(2000)))

    def test_a_journal_continues_after_an_incomplete_line(self):
        path = self.write("torn.jsonl", '{"owner":1}\n{"owner":1,"epoch":0,"ba')
        config = self.write("j.toml", synthetic(samples=16, epochs=1))
        for _ in ("process", "embedded"):
            self.run_json(config, "--sink", "journal:" + path, "--set", "gpu.placement=" + _)
        with open(path) as file:
            lines = file.read().splitlines()
        self.assertEqual(len(lines), 2 + 2 * 3)
        self.assertEqual([json.loads(line).get("batch") for line in lines[2:]], 2 * [None, 0, 1])
        code, _, err = self.penstock("run", config, "--sink", "journal:" + os.path.join(self.folder, "no", "where"))
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("journal", err)

    def test_a_library_that_is_not_a_device_program_is_refused_and_named(self):
        config = self.write("s.toml", synthetic())
        for path, reason in (("nowhere.so", "No such file"), (self.write("text.so", "no library"), "device program")):
            code, _, err = self.penstock("run", config, "--sink", "plugin:" + path)
            self.assertEqual(code, EXIT_FAILED)
            self.assertIn(reason, err)

    def test_a_missing_owner_program_is_an_error_at_once(self):
        config = self.write("s.toml", synthetic())
        lonely = os.path.join(self.folder, "bin")
        os.makedirs(lonely)
        os.symlink(os.path.join(BIN, "penstock-worker"), os.path.join(lonely, "penstock-worker"))
        with open(os.path.join(BIN, "penstock"), "rb") as program, open(os.path.join(lonely, "penstock"), "wb") as copy:
            copy.write(program.read())
        os.chmod(os.path.join(lonely, "penstock"), 0o755)
        self.environment.pop("PENSTOCK_LIBEXEC", None)
        done = subprocess.run([os.path.join(lonely, "penstock"), "run", config], capture_output=True, timeout=30,
                              env=dict(self.environment, PATH="/nowhere"))
        self.assertEqual(done.returncode, EXIT_FAILED, done.stdout + done.stderr)
        self.assertIn("penstock-gpu", done.stderr.decode())


if __name__ == "__main__":
    main()
