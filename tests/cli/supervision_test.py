"""Supervision as seen by a user: records of dead workers, quarantined samples, and that no flood, leak or hang costs
the stream a batch."""

import ctypes
import os
import signal
import stat
import subprocess
import time

from harness import *

QUICK_HANGS = '[loader.hang]\nitem_timeout = "1s"\nheartbeat_timeout = "1s"\n'
ENDLESS = synthetic(samples=100000, dataset='wait = "2ms"', epochs=1)


def jsons(text):
    return [json.loads(line) for line in text.splitlines()]



class Debugger:
    """Stops one thread of a process like a debugger."""
    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, pid):
        self.pid = pid
        self.attached = self.order(self.SEIZE) and self.order(self.INTERRUPT)
        if self.attached:
            os.waitpid(pid, self.WALL)

    def order(self, what):
        return ctypes.CDLL(None).ptrace(what, self.pid, None, None) == 0

    def detach(self):
        assert self.order(self.DETACH)


class SupervisionTest(PenstockTest):
    def live(self, name="live", text=ENDLESS, workers=2):
        process = self.start("run", self.write(name + ".toml", text), "--workers", workers, "--json", "--quiet")
        code, _, err = self.penstock("wait", "--for=ready", "--timeout", "20s", "--session", name, timeout=40)
        self.assertEqual(code, EXIT_OK, err)
        return process

    def read(self, name):
        with open(os.path.join(self.folder, name)) as file:
            return file.read()

    # ---- logs ------------------------------------------------------------------------------------------------

    def test_the_log_of_a_dead_worker_is_available_as_previous(self):
        self.live(text=ENDLESS + self.worker_program("echo I am $$; echo and this is stderr >&2"))
        first = jsons(self.penstock("logs", "worker/0", "--json")[1])
        self.assertEqual([line["text"] for line in first][1:], ["and this is stderr"])
        pid = int(first[0]["text"].split()[2])
        signal_process(pid, signal.SIGKILL)
        self.wait_until(lambda: jsons(self.penstock("logs", "worker/0", "--json")[1])[:1] not in ([], first[:1]), "a successor's log")
        previous = jsons(self.penstock("logs", "worker/0", "--previous", "--json")[1])
        self.assertEqual((previous[0]["text"], previous[0]["incarnation"]), ("I am %d" % pid, 1))
        code, out, _ = self.penstock("logs", "worker/0", "--previous", "--tail", "1")
        self.assertEqual(out, "and this is stderr\n")
        self.assertEqual(self.penstock("logs", "worker/77")[0], EXIT_NO_TARGET)
        self.assertEqual(self.penstock("logs", "nonsense")[0], EXIT_NO_TARGET)

    def test_logs_show_the_output_of_the_predecessor_until_the_current_process_writes(self):
        self.live(text=ENDLESS)
        signal_process(self.workers_when_ready("live")[0], signal.SIGSEGV)
        self.wait_until(lambda: self.status_of("live")["workers"][0]["incarnation"] == 2, "a successor")
        self.wait_until(lambda: self.penstock("logs", "worker/0")[1] == "(its stack: `penstock deaths --stacks`)\n", "the output of its predecessor")
        code, _, err = self.penstock("logs", "worker/0")
        self.assertEqual(code, EXIT_OK)
        self.assertEqual(err, "no output yet from the current process; the last lines of an earlier one, incarnation 1 (penstock logs worker/0 --previous):\n")

    def test_logs_can_be_followed_until_the_session_ends(self):
        self.live(text=ENDLESS + self.worker_program("echo begin $$"))
        follower = self.start("logs", "workers", "-f", "--json")
        self.wait_until(lambda: is_asking(follower.pid), "it follows")
        signal_process(self.workers_when_ready("live")[0], signal.SIGKILL)
        self.wait_until(lambda: self.status_of("live")["workers"][0]["restarts"] + self.status_of("live")["workers"][1]["restarts"] == 1, "a restart")
        self.wait_until(lambda: sorted(line["incarnation"] for line in jsons(self.penstock("logs", "workers", "--json")[1])) == [1, 2], "its log")
        self.penstock("stop", "--now")
        out, _ = follower.communicate(timeout=20)
        lines = jsons(out.decode())
        self.assertEqual(sorted(line["incarnation"] for line in lines), [1, 1, 2], lines)

    def status_of(self, name):
        return json.loads(self.penstock("status", "--session", name, "--json")[1])

    def test_a_flood_of_output_that_is_not_read_delays_no_batch(self):
        # The flood comes from a child of the worker, so it continues while the worker works; our stderr is not read.
        text = synthetic(samples=400, dataset='wait = "1ms"', epochs=1) + self.worker_program("yes flooding &")
        calm = self.digests(self.write("calm.toml", synthetic(samples=400, dataset='wait = "1ms"', epochs=1)))
        process = self.start("run", self.write("flood.toml", text), "--workers", 2, "--json", "--quiet", "--digest")
        try:
            self.assertEqual(process.wait(timeout=40), EXIT_OK)
        except subprocess.TimeoutExpired:
            self.fail("a flood stopped the run")
        out, err = process.communicate()
        self.assertEqual([e["digest"] for e in json.loads(out)["epochs"]], calm)
        self.assertIn(b"dropped ", err)

    # ---- death records ---------------------------------------------------------------------------------------

    def test_a_death_record_has_the_sample_the_attempt_the_memory_the_stack_and_the_last_output(self):
        text = synthetic(samples=200, dataset='faults = [{sample = 17, kind = "segv"}]', epochs=1)
        report = self.run_json(self.write("d.toml", text + self.worker_program("echo hello")), "--workers", 2)
        (death,) = report["workers"]["deaths"]
        self.assertEqual((death["cause"], death["signal"], death["sample"], death["attempt"], death["phase"]),
                         ("signal", "SIGSEGV", 17, 1, "loading"))
        self.assertGreater(death["rss_bytes"], 1 << 20)
        self.assertEqual(death["last_output"], "hello")
        self.assertTrue(any("penstock-worker+0x" in frame for frame in death["stack"]), death["stack"])
        # The frame of the crash is the newest.
        self.assertRegex(death["stack"][0], r"/penstock-worker\+0x[0-9a-f]+ in penstock::")

    def test_a_worker_that_hangs_leaves_its_stack_and_its_place(self):
        text = synthetic(samples=100, dataset='faults = [{sample = 17, kind = "hang"}]', epochs=1, more=QUICK_HANGS)
        report = self.run_json(self.write("h.toml", text), "--workers", 2)
        (death,) = report["workers"]["deaths"]
        self.assertEqual((death["cause"], death["signal"], death["sample"]), ("hang", "SIGABRT", 17))
        self.assertNotIn(death["wait_channel"], (None, "", "running"))
        self.assertTrue(any("penstock-worker+0x" in frame for frame in death["stack"]), death["stack"])
        self.assertLess(death["lived_seconds"], 6)

    def test_a_stopped_worker_is_found_by_its_missing_heartbeat(self):
        # With equal limits, item_timeout could expire one poll before heartbeat_timeout.
        hang = '[loader.hang]\nitem_timeout = "30s"\nheartbeat_timeout = "1s"\n'
        text = synthetic(samples=400, dataset='wait = "5ms"', epochs=1, more=hang)
        process = self.live("stopped", text)
        victim = self.workers_of(process)[0]
        begin = time.monotonic()
        signal_process(victim, signal.SIGSTOP)
        self.wait_until(lambda: not alive(victim), "the end of the stopped worker")
        self.assertLess(time.monotonic() - begin, 6)
        out, err = process.communicate(timeout=60)
        report = json.loads(out)
        self.assertEqual([d["cause"] for d in report["workers"]["deaths"]], ["heartbeat"])
        self.assertEqual(report["workers"]["deaths"][0]["wait_channel"], "stopped")
        self.assertRegex(report["workers"]["deaths"][0]["reason"], r"^no heartbeat for \S+ s \(suspended\)$")
        self.assertRegex(self.penstock("events", "--last")[1], r"worker \d \(pid \d+\) was killed: no heartbeat for 1\S* s \(suspended\)")
        self.assertRegex(self.penstock("metrics")[1], r'ended_last_death_info\{.*cause="heartbeat".*reason="no heartbeat for 1')
        self.check_sums(report)

    def test_a_worker_suspended_between_two_samples_is_reported_as_suspended(self):
        # The device program needs 100 ms for a batch, so that the worker is idle most of the time.
        text = synthetic(samples=100000, epochs=1, more='[loader.hang]\nheartbeat_timeout = "60s"\n')
        self.start("run", self.write("calm.toml", text), "--workers", 1, "--quiet", "--sink", "plugin:" + os.path.join(BIN, "slow_program.so"))
        status = lambda: json.loads(self.penstock("status", "--json")[1])
        self.wait_until(lambda: self.penstock("status")[0] == EXIT_OK and status()["batches_delivered"] > 2, "batches")
        signal_process(status()["workers"][0]["pid"], signal.SIGSTOP)
        stalled = self.wait_until(lambda: status()["stalled"], "the stall")
        self.assertRegex(stalled["text"], r"^waiting for worker/0, which .*process (\(pid \d+\) )?is suspended")
        self.assertIn("is suspended", self.penstock("why")[1])
        self.assertEqual(self.penstock("stop", "--now", "--wait")[0], EXIT_OK)

    def test_a_worker_with_leases_that_never_begins_is_found_even_if_it_touches_no_sample(self):
        text = synthetic(samples=400, dataset='wait = "5ms"', epochs=1, more=QUICK_HANGS + '[loader.env]\nPENSTOCK_CHAOS = "1"\n')
        process = self.live("idle", text)
        # The worker may hang between two samples or during one.
        victim = self.workers_of(process)[0]
        self.assertEqual(ctypes.CDLL(None).sigqueue(victim, signal.SIGRTMIN + 5, ctypes.c_void_p(1)), 0)
        out, _ = process.communicate(timeout=60)
        report = json.loads(out)
        # On a busy machine, another worker may get no core for a second: to the session it hangs, too.
        self.assertIn((victim, "hang"), [(d["pid"], d["cause"]) for d in report["workers"]["deaths"]])
        self.check_sums(report)

    def test_the_oom_killer_is_distinguished_from_a_kill_from_outside(self):
        faults = ", ".join('{sample = 17, kind = "leak"}' for _ in range(12))
        text = synthetic(samples=200, dataset="faults = [%s]" % faults, epochs=1)
        report = self.run_json(self.write("o.toml", text), "--workers", 2, preexec_fn=self.memory_cgroup())
        deaths = report["workers"]["deaths"]
        self.assertEqual({(death["cause"], death["signal"]) for death in deaths}, {("oom", "SIGKILL")})
        # The kernel may kill another worker while it reclaims the memory of the first one.
        self.assertIn(17, [death["sample"] for death in deaths])

    def test_the_oom_killer_chooses_a_worker_although_session_and_owner_map_the_whole_arena(self):
        faults = ", ".join('{sample = 350, kind = "leak"}' for _ in range(12))
        text = synthetic(samples=400, bytes="1MiB", batch=24, dataset="faults = [%s]" % faults, epochs=1)  # the arena has 16 slots of 24 MiB
        report = self.run_json(self.write("a.toml", text), "--workers", 4, preexec_fn=self.memory_cgroup())
        deaths, of_owner = report["workers"]["deaths"], report["gpu"]["deaths"]
        self.assertEqual({d["cause"] for d in deaths + of_owner}, {"oom"})
        self.assertEqual(report["epochs"][0]["delivered"], 400)
        # The kernel kills again while it reclaims memory. It kills the owner only when it has killed all workers.
        for death in of_owner:
            self.assertGreaterEqual(sum(one["time"] <= death["time"] for one in deaths), 4, report)

    def test_a_worker_that_outgrows_its_limit_is_replaced_after_its_sample(self):
        text = synthetic(samples=300, dataset='wait = "8ms"\nfaults = [{sample = 17, kind = "leak", times = 1}]', epochs=1,
                         more='[loader.limits]\nmemory = "60MiB"')
        report = self.run_json(self.write("m.toml", text), "--workers", 2)
        (death,) = report["workers"]["deaths"]
        self.assertEqual((death["cause"], death["code"], death["sample"]), ("memory", 0, None))
        self.assertEqual(report["epochs"][0]["delivered"], 300)
        self.assertGreater(death["rss_bytes"], 60 << 20)
        self.assertRegex(death["reason"], r"^it used \d+\.\d MiB of private memory, but \[loader\.limits\] memory allows 60\.0 MiB$")
        event = self.penstock("events", "--last")[1]
        self.assertIn("(pid %d) was stopped: %s" % (death["pid"], death["reason"]), event)

    def test_a_worker_that_outgrows_its_limit_leaves_its_other_leases_to_its_successor(self):
        # The worker holds 3 batches of 2 s each, and finishes the current one.
        text = synthetic(samples=120, batch=40, epochs=1, dataset='wait = "50ms"\nfaults = [{sample = 0, kind = "leak", times = 1}]',
                         more='[loader.limits]\nmemory = "60MiB"')
        report = self.run_json(self.write("m.toml", text), "--workers", 1, "--set", "sampler.shuffle=false", "--digest")
        (death,) = report["workers"]["deaths"]
        self.assertEqual((death["cause"], death["code"], death["sample"]), ("memory", 0, None))
        self.assertLess(death["lived_seconds"], 4)
        self.assertEqual(report["epochs"][0]["delivered"], 120)

    def test_workers_are_recycled_after_their_share_of_samples_and_no_batch_is_lost(self):
        text = synthetic(samples=300, dataset='wait = "20ms"', epochs=1, more="[loader.limits]\nrecycle_after_samples = 20")
        report = self.run_json(self.write("r.toml", text), "--workers", 2)
        self.assertGreaterEqual(report["workers"]["restarts"], 2)
        self.assertEqual({d["cause"] for d in report["workers"]["deaths"]}, {"stopped"})
        self.assertEqual(report["epochs"][0]["delivered"], 300)

    def test_a_worker_under_a_debugger_is_not_killed_and_has_a_full_timeout_afterwards(self):
        text = synthetic(samples=8, epochs=1, dataset='wait = "60s"', more='[loader.hang]\nitem_timeout = "1s"')
        process = self.start("run", self.write("d.toml", text), "--workers", 1, "--json", "--quiet")
        (worker,) = self.wait_until(lambda: self.workers_of(process), "a worker")
        debugger = Debugger(worker)
        if not debugger.attached:
            self.skipTest("no process may be debugged here")
        time.sleep(2.5)
        self.assertTrue(alive(worker))
        debugger.detach()
        begin = time.monotonic()
        self.wait_until(lambda: not alive(worker), "its end")
        self.assertGreater(time.monotonic() - begin, 0.8)
        process.send_signal(signal.SIGINT)
        self.signal_again(process, signal.SIGINT)

    # ---- quarantine ------------------------------------------------------------------------------------------

    def test_with_the_quarantine_file_the_next_run_has_the_same_stream_and_no_deaths(self):
        text = synthetic(samples=200, dataset='faults = [{sample = 17, kind = "segv", times = 0}, {sample = 90, kind = "exit", times = 0}]',
                         more='[quarantine]\nfile = "bad.jsonl"')
        config = self.write("q.toml", text)
        # With few slots, no batch of the second epoch is leased before both samples are known.
        first = self.run_json(config, "--workers", 2, "--slots", 3, "--digest")
        self.assertEqual({q["sample"] for q in first["quarantine"]}, {17, 90})
        self.assertEqual(len(first["workers"]["deaths"]), 6)
        lines = jsons(self.read("bad.jsonl"))
        self.assertEqual({line["sample"]: line["causes"] for line in lines}, {17: ["SIGSEGV"] * 3, 90: ["exit 3"] * 3})
        second = self.run_json(config, "--workers", 3, "--digest")
        self.assertEqual(second["workers"]["deaths"], [])
        self.assertEqual([(e["digest"], e["quarantined"]) for e in second["epochs"]],
                         [(e["digest"], e["quarantined"]) for e in first["epochs"]])
        self.assertTrue(all(q["known"] for q in second["quarantine"]))
        # No sample of this run killed a worker.
        err = self.penstock("run", config)[2]
        self.assertRegex(err, r"\n  left out 2 samples that an earlier run quarantined \(.*bad\.jsonl\)\n")
        self.assertNotIn("killed", err)
        self.assertRegex(err, r"2 samples listed in '.*bad\.jsonl' are left out: sample (17, sample 90|90, sample 17)\n")
        # In another dataset, sample 17 is not suspected.
        other = ("--set", "dataset.samples=201", "--set", "dataset.faults=[]")
        report = self.run_json(config, *other)
        self.assertEqual((report["quarantine"], report["epochs"][0]["delivered"]), ([], 201))
        self.assertRegex(self.penstock("run", config, *other)[2], "2 of the 2 entries in '.*bad.jsonl' belong to another dataset and do not apply")

        code, out, _ = self.penstock("quarantine", "list", "--file", "bad.jsonl", "--json")
        self.assertEqual({q["sample"] for q in json.loads(out)["quarantine"]}, {17, 90})
        self.assertEqual(self.penstock("quarantine", "release", "17", "--file", "bad.jsonl")[0], EXIT_OK)
        self.assertEqual(self.penstock("quarantine", "release", "18", "--file", "bad.jsonl")[0], EXIT_NO_TARGET)
        third = self.run_json(config, "--workers", 2, "--set", "dataset.faults=[]")
        self.assertEqual([q["sample"] for q in third["quarantine"]], [90])

    def test_a_quarantine_belongs_to_its_dataset_even_if_the_author_gives_no_fingerprint(self):
        def run(**options):
            text = '[dataset]\ntype = "custom"\noptions = { nameless = "1", %s }\n[loader]\ncommand = ["%s"]\nworkers = 1\n' \
                   '[quarantine]\nfile = "known.jsonl"\n[sampler]\nepochs = 1\nbatch_size = 4\n[gpu]\ndevice = "host"\n'
            given = ", ".join('%s = "%s"' % option for option in options.items())
            report = self.run_json(self.write("nameless.toml", text % (given, os.path.join(BIN, "odd-worker"))))
            return [report["epochs"][0][what] for what in ("delivered", "quarantined")], len(report["workers"]["deaths"])
        self.assertEqual(run(samples=60, segv=13), ([59, 1], 3))
        self.assertEqual(run(samples=60, segv=13), ([59, 1], 0))
        self.assertEqual(run(samples=61), ([61, 0], 0))
        self.assertEqual(run(samples=60, length="batch"), ([60, 0], 0))
        self.assertEqual(run(samples=60), ([59, 1], 0))

    def test_an_unusable_quarantine_file_is_refused_before_any_sample_is_loaded(self):
        config = self.write("n.toml", synthetic(more='[quarantine]\nfile = "/nonexistent/bad.jsonl"'))
        code, out, err = self.penstock("run", config, "--json", "--quiet")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("/nonexistent/bad.jsonl", json.loads(out)["error"])

    def test_an_operator_can_list_and_release_samples_of_a_live_session(self):
        self.live("l", synthetic(samples=3000, batch=4, dataset='wait = "2ms"\nfaults = [{sample = 1, kind = "exit", times = 0}]',
                                 epochs=1000, more='[quarantine]\nfile = "live.jsonl"'))
        def listed():
            return [q["sample"] for q in json.loads(self.penstock("quarantine", "list", "--json")[1])["quarantine"]]
        self.wait_until(lambda: listed() == [1], "the quarantine of sample 1", 40)
        self.assertEqual(self.penstock("quarantine", "retry", "2")[0], EXIT_NO_TARGET)
        self.assertEqual(self.penstock("quarantine", "release", "1")[0], EXIT_OK)
        self.assertEqual(listed(), [])
        self.wait_until(lambda: "released" in self.read("live.jsonl"), "the file to know")
        self.penstock("stop", "--now")

    def test_a_sample_that_is_tried_again_can_still_be_released_from_the_file(self):
        self.write("known.jsonl", "")
        config = synthetic(samples=3000, batch=4, dataset='wait = "2ms"\nfaults = [{sample = 1, kind = "exit", times = 0}]',
                           epochs=1000, more='[quarantine]\nfile = "known.jsonl"')
        self.live("again", config)
        listed = lambda: json.loads(self.penstock("quarantine", "list", "--json")[1])["quarantine"]
        self.wait_until(lambda: listed() and self.read("known.jsonl"), "the quarantine of sample 1", 40)
        self.assertEqual(self.penstock("quarantine", "retry", "1")[0], EXIT_OK)
        self.assertEqual(self.penstock("quarantine", "retry", "1")[0], EXIT_NO_TARGET)
        self.assertEqual(self.penstock("quarantine", "release", "1")[0], EXIT_OK)
        self.wait_until(lambda: '"released":true' in self.read("known.jsonl"), "the file to know")
        # Once released, the sample is not quarantined until it kills again.
        self.assertEqual(self.penstock("pause")[0], EXIT_OK)
        if not listed():
            code, _, err = self.penstock("quarantine", "release", "1")
            self.assertEqual((code, "sample 1 is not quarantined" in err), (EXIT_NO_TARGET, True), err)
        self.penstock("stop", "--now")

    def test_a_missing_quarantine_file_is_an_error_if_it_was_named(self):
        for act in (["list"], ["release", "3"]):
            code, _, err = self.penstock("quarantine", *act, "--file", "nofile.jsonl")
            self.assertEqual(code, EXIT_FAILED)
            self.assertIn("'nofile.jsonl': No such file or directory", err)
            self.assertFalse(os.path.exists(os.path.join(self.folder, "nofile.jsonl")))

    # ---- giving up -------------------------------------------------------------------------------------------

    def gives_up(self, text, *options, seconds=60):
        begin = time.monotonic()
        code, out, err = self.penstock("run", self.write("g.toml", text), "--json", "--quiet", "--workers", 2, *options, timeout=seconds)
        self.assertEqual(code, EXIT_FAILED)
        self.assertLess(time.monotonic() - begin, seconds)
        return json.loads(out)["error"]

    def test_a_worker_program_that_exits_at_once_ends_the_run_with_its_stderr(self):
        path = self.write("bad-worker", "#!/bin/sh\necho cannot find libfoo.so >&2\nexit 1\n")
        os.chmod(path, 0o755)
        why = self.gives_up(synthetic(more='[loader]\ncommand = ["%s"]\n[loader.restart.backoff]\nmax = "250ms"' % path))
        self.assertIn("cannot find libfoo.so", why)

    def test_a_worker_program_that_never_gets_ready_ends_the_run_with_its_stderr(self):
        path = self.write("slow-worker", "#!/bin/sh\necho waiting for a licence >&2\nexec sleep 1000\n")
        os.chmod(path, 0o755)
        why = self.gives_up(synthetic(more='[loader]\ncommand = ["%s"]\n[loader.hang]\nstart_deadline = "1s"\n[loader.restart]\nintensity = { max = 1, within = "60s" }\n[loader.restart.backoff]\nmax = "250ms"' % path))
        self.assertIn("waiting for a licence", why)
        self.assertIn("hang", why)

    def test_a_worker_program_on_an_unresponsive_file_system_ends_the_run_and_is_named(self):
        path = self.write("leased-worker", "#!/bin/sh\nexit 1\n")
        os.chmod(path, 0o755)
        self.hold_up(path)
        text = synthetic(more='[loader]\ncommand = ["%s"]\n[loader.hang]\nstart_deadline = "300ms"\n[loader.restart]\n'
                              'intensity = { max = 1, within = "60s" }\n' % path)
        begin = time.monotonic()
        code, out, err = self.penstock("run", self.write("x.toml", text), "--workers", 2, "--json")
        self.assertLess(time.monotonic() - begin, 15)
        self.assertEqual(code, EXIT_FAILED, err)
        why = "executing '%s' has not returned for 300 ms: its file system is not responding" % path
        self.assertIn("could not be started: " + why, json.loads(out)["error"])
        self.assertIn("giving up on starting worker 0: " + why, err)
        self.assertNotRegex(out + err, r"\(pid (0|-\d+)\)")

    def test_a_fault_in_every_sample_ends_the_run_as_systematic(self):
        faults = ", ".join('{sample = %d, kind = "exit", times = 0}' % i for i in range(40))
        why = self.gives_up(synthetic(samples=40, batch=4, dataset="faults = [%s]" % faults))
        self.assertIn("systematic", why)

    def test_the_quarantine_limit_is_a_share_of_the_dataset_and_at_least_eight(self):
        def run(bad, expect, more):
            faults = ", ".join('{sample = %d, kind = "exit", times = 0}' % i for i in range(bad))
            text = synthetic(samples=100, batch=1, epochs=1, dataset="faults = [%s]" % faults, more=more)
            return self.run_json(self.write("cap.toml", text), "--workers", 4, "--set", "loader.slots_per_worker=1", expect=expect)
        allowed = run(8, EXIT_OK, "")
        self.assertEqual((len(allowed["quarantine"]), allowed["epochs"][0]["quarantined"]), (8, 8))
        self.assertIn("9 samples are quarantined, but [quarantine] allows only 8", run(9, EXIT_FAILED, "")["error"])
        self.assertEqual(len(run(10, EXIT_OK, "[quarantine]\nmax_fraction = 0.095\n")["quarantine"]), 10)
        self.assertIn("allows only 3", run(4, EXIT_FAILED, "[quarantine]\nmax_samples = 3\n")["error"])

    def test_a_pool_whose_workers_are_never_restarted_ends_the_run_when_none_is_left(self):
        text = synthetic(samples=400, epochs=1, dataset='faults = [{sample = 17, kind = "segv"}, {sample = 90, kind = "kill"}]',
                         more='[loader.restart]\ntype = "temporary"')
        begin = time.monotonic()
        report = self.run_json(self.write("t.toml", text), "--workers", 2, expect=EXIT_FAILED)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertIn("no loader worker is left", report["error"])
        self.assertEqual((report["workers"]["started"], len(report["workers"]["deaths"])), (2, 2))

    def test_stop_keeps_its_deadline_with_one_worker_stopped_and_another_hung(self):
        text = synthetic(samples=4000, dataset='wait = "60s"', epochs=1)
        process = self.start("run", self.write("st.toml", text), "--workers", 3, "--json", "--quiet")
        self.wait_until(lambda: len(self.workers_of(process)) == 3, "workers")
        self.wait_until(lambda: [w["current_sample"] is None for w in self.status_of("st")["workers"]] == 3 * [False], "a current sample for each worker")
        family = descendants_of(process.pid)
        signal_process(self.workers_of(process)[0], signal.SIGSTOP)
        begin = time.monotonic()
        self.penstock("stop", "--now")
        process.communicate(timeout=25)
        self.assertLess(time.monotonic() - begin, 8)
        self.assertFalse([pid for pid in family if alive(pid)])

    def test_an_orderly_shutdown_takes_no_longer_than_configured_even_if_a_process_does_not_exit(self):
        more = '[supervisor]\nshutdown = "2500ms"\n' + self.worker_program("trap '' TERM INT HUP")
        for placement in ("embedded", "process"):
            text = synthetic(samples=4000, dataset='wait = "60s"', epochs=1, more=more)
            process = self.start("run", self.write("se.toml", text), "--workers", 3, "--json", "--quiet", "--set", "gpu.placement=" + placement)
            self.wait_until(lambda: len(self.workers_of(process)) == 3, "workers")
            family = descendants_of(process.pid)
            victims = self.workers_of(process) if placement == "embedded" else [pid for pid in family if name_of(pid) == "penstock-gpu"]
            signal_process(victims[0], signal.SIGSTOP)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=25)
            took = time.monotonic() - begin
            self.assertEqual(process.returncode, EXIT_INTERRUPTED)
            self.assertEqual(json.loads(out)["outcome"], "stopped")
            self.assertGreater(took, 0.9, placement)  # the workers were given their share of the time
            self.assertLess(took, 5, placement)
            # The process that was killed last may need some time to end, and the session does not wait for that.
            self.wait_until(lambda: not [pid for pid in family if alive(pid)], lambda: [described(pid) for pid in family if alive(pid)])

    def test_a_worker_that_computes_forever_and_ignores_sigterm_is_killed_and_its_stack_is_shown(self):
        text = synthetic(samples=2, batch=1, dataset='work = "10m"', epochs=1, more=QUICK_HANGS + self.worker_program("trap '' TERM INT HUP"))
        report = self.run_json(self.write("spin.toml", text), "--workers", 2)
        self.assertEqual({d["cause"] for d in report["workers"]["deaths"]}, {"hang"})
        self.assertEqual(sorted(q["sample"] for q in report["quarantine"]), [0, 1])
        self.assertEqual(len(report["workers"]["deaths"]), 6)
        for death in report["workers"]["deaths"]:
            self.assertTrue(any("penstock-worker+0x" in frame for frame in death["stack"]), death["stack"])


if __name__ == "__main__":
    main()
