"""Attaching to a live session: status, wait, stop and so on, over a socket that is safe to leave open."""

import os
import re
import signal
import socket
import stat
import subprocess
import time

from harness import *

ENDLESS = synthetic(samples=100000, dataset='wait = "2ms"', epochs=1)


POSITION_LOST = "its position is lost; `penstock run --state FILE` keeps it next time\n"


class ControlTest(PenstockTest):
    def live(self, name="live", text=ENDLESS, workers=2, options=()):
        process = self.start("run", self.write(name + ".toml", text), "--workers", workers, "--json", "--quiet", *options)
        code, _, err = self.penstock("wait", "--for=ready", "--timeout", "10s", "--session", name, timeout=20)
        self.assertEqual(code, EXIT_OK, err)
        return process

    def socket(self, name):
        return os.path.join(self.folder, "penstock", name + ".sock")

    def status(self, *options):
        code, out, err = self.penstock("status", "--json", *options)
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def test_status_shows_the_session_with_its_device_and_its_workers(self):
        process = self.live()
        self.wait_until(lambda: self.status()["batches_delivered"] > 0, "a batch")
        self.workers_when_ready("live")
        s = self.status()
        self.assertEqual(s["schema"], "penstock.status/1")
        self.assertEqual((s["session"], s["pid"], s["state"], s["epoch"]), ("live", process.pid, "ok", 0))
        self.assertEqual(s["gpu"]["kind"], "host")
        self.assertIsNone(s["gpu"]["processes"])
        self.assertEqual([w["id"] for w in s["workers"]], [0, 1])
        self.assertEqual({w["pid"] for w in s["workers"]}, set(self.workers_of(process)))
        for w in s["workers"]:
            self.assertEqual((w["state"], w["incarnation"], w["restarts"], w["last_death"]), ("ready", 1, 0, None))
        code, out, _ = self.penstock("status")
        self.assertIn("worker/1", out)

    def test_a_pipe_gets_whole_lines_and_a_terminal_gets_lines_that_fit(self):
        name = "long-" + "x" * 25
        self.live(name)
        self.wait_until(lambda: self.status()["batches_delivered"] > 0, "a batch")
        for verb, whole in (("status", r"^%s  ok  pid .* samples delivered$"), ("sessions", r"^%s .*/penstock/%s\.sock$"),
                            ("top", r"^penstock %s  ok  epoch 0  pid \d+$")):
            self.assertRegex(self.penstock(verb)[1], "(?m)" + whole.replace("%s", name))
            lines = self.lines_on_a_terminal(verb)
            self.assertTrue(lines and all(len(line) <= 80 for line in lines), lines)

    def test_status_shows_a_worker_that_was_killed(self):
        self.live()
        signal_process(self.workers_when_ready("live")[0], signal.SIGKILL)
        self.wait_until(lambda: any(w["restarts"] == 1 and w["state"] == "ready" for w in self.status()["workers"]), "a restart")
        death = next(w["last_death"] for w in self.status()["workers"] if w["last_death"])
        self.assertEqual((death["cause"], death["signal"], death["incarnation"]), ("signal", "SIGKILL", 1))
        self.assertRegex(death["reason"], r"^sent by another process or by its own code, not by the session; (no OOM kill was|OOM kills are not) counted")
        self.assertIn("ended: SIGKILL (%s)" % death["reason"], self.penstock("events")[1])
        self.assertIn(death["reason"], self.penstock("deaths")[1])
        self.assertRegex(self.penstock("status")[1], r"SIGKILL, sent by another process or by its own code(; was loading sample \d+)?\n")
        victim = next(w["id"] for w in self.status()["workers"] if w["last_death"])
        for verb in ("status", "deaths"):
            self.assertIn("next: penstock describe worker/%d" % victim, self.penstock(verb)[2])
        code, out, _ = self.penstock("deaths", "--json")
        self.assertEqual(len(json.loads(out)["deaths"]), 1)

    def test_the_process_that_sent_a_crash_signal_to_a_worker_is_named(self):
        self.live()
        signal_process(self.workers_when_ready("live")[0], signal.SIGSEGV)
        death = self.wait_until(lambda: next((w["last_death"] for w in self.status()["workers"] if w["last_death"]), None), "the death")
        self.assertEqual((death["signal"], death["reason"]), ("SIGSEGV", "sent by process %d" % os.getpid()))
        self.assertIn("sent by process %d" % os.getpid(), self.penstock("deaths")[1])

    def test_a_sample_that_was_being_loaded_when_workers_were_killed_is_quarantined_without_blame(self):
        text = synthetic(samples=100, batch=1, epochs=1, dataset='faults = [{sample = 7, kind = "hang", times = 0}]', more='[quarantine]\nmax_attempts = 2\n')
        process = self.live(text=text, options=("--set", "loader.slots_per_worker=1"))
        for attempt in (1, 2):
            loading = self.wait_until(lambda: next((w for w in self.status()["workers"] if w["current_index"] == 7 and w["current_attempt"] == attempt), None),
                                      "attempt %d" % attempt)
            signal_process(loading["pid"], signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, EXIT_OK, err)
        (event,) = [e for e in map(json.loads, self.penstock("events", "--last", "--json")[1].splitlines()) if e["kind"] == "sample_quarantined"]
        cause = "SIGTERM (sent by another process or by its own code)"
        self.assertEqual(event["text"], "sample 7 is quarantined: it was in progress when 2 workers died (2 x %s)" % cause)
        for verb in (("deaths",), ("status",), ("describe", "sample/7"), ("quarantine", "list"), ("describe", "workers"), ("events",)):
            out = self.penstock(*verb, "--last")[1]
            self.assertIn("sent by another process or by its own code", out, verb)
            for guilt in ("it killed", "blamed", "SIGTERM on"):
                self.assertNotIn(guilt, out, verb)

    def test_stop_ends_the_session_and_its_report_says_that_it_was_stopped(self):
        process = self.live()
        self.assertEqual(self.penstock("stop")[0], EXIT_OK)
        out, _ = process.communicate(timeout=15)
        self.assertEqual(process.returncode, EXIT_OK)
        self.assertEqual(json.loads(out)["outcome"], "stopped")
        self.assertFalse(os.path.exists(self.socket("live")))

    def test_stop_wait_returns_when_the_session_has_exited(self):
        process = self.live()
        code, _, err = self.penstock("stop", "--wait", "--timeout", "30s")
        self.assertEqual((code, err), (EXIT_OK, "stopped\n" + POSITION_LOST))
        self.assertFalse(os.path.exists(self.socket("live")))
        process.communicate(timeout=5)
        self.assertEqual(self.penstock("stop", "--timeout", "1s")[0], EXIT_USAGE)

    def test_stop_wait_names_the_worker_that_it_waits_for(self):
        text = synthetic(samples=100, batch=1, epochs=1, dataset='faults = [{sample = 0, kind = "hang"}]', more='[supervisor]\nshutdown = "4s"\n')
        self.live("late", text, workers=1)
        self.wait_until(lambda: any((w["current_sample_seconds"] or 0) > 0.5 for w in self.status()["workers"]), "the stuck sample")
        code, _, err = self.penstock("stop", "--wait")
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(err, r"^waiting for worker/0 \(pid \d+\), which has been working on sample 0 for \S+ m?s \(batch \d+ of epoch 0\); it (will be killed in \d s if it does "
                              r"not end; `penstock stop --now` kills it at once|is being killed)\nstopped\nworker 0 \(pid \d+\) was killed: it had not stopped within \d\S* s of the request\n" + POSITION_LOST)

    def test_stop_wait_reports_that_the_session_is_suspended(self):
        process = self.live()
        suspend(process.pid)
        one = json.loads(self.penstock("sessions", "--json")[1])["sessions"][0]
        self.assertEqual((one["state"], one["pid"], one["suspended"]), ("suspended", process.pid, True))
        self.assertRegex(one["id"], r"^live@.*-%d$" % process.pid)
        self.assertRegex(self.penstock("sessions")[1], r"(?m)^live +suspended +%d " % process.pid)
        stop = subprocess.Popen([PENSTOCK, "stop", "--wait"], stderr=subprocess.PIPE, env=self.environment, cwd=self.folder)
        self._running.append(stop)
        said = stop.stderr.readline().decode()
        signal_process(process.pid, signal.SIGCONT)
        self.assertRegex(said, r"pid %d\) is suspended \(SIGSTOP\); after `kill -CONT" % process.pid)
        self.assertEqual(stop.communicate(timeout=30)[1].decode(), "stopped\n" + POSITION_LOST)

    def test_sessions_says_that_the_process_behind_a_socket_is_gone(self):
        os.makedirs(os.path.dirname(self.socket("live")), mode=0o700, exist_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.socket("live"))
        owner = os.fork()  # the kernel names the process that listens; the socket outlives it here
        if owner == 0:
            listening.listen(8)
            os._exit(0)
        os.waitpid(owner, 0)
        with listening:
            one = json.loads(self.penstock("sessions", "--json")[1])["sessions"][0]
            self.assertEqual((one["state"], one["pid"]), ("gone", owner))
            self.assertRegex(self.penstock("sessions")[1], r"(?m)^live +its process is gone +%d " % owner)

    def test_stop_wait_of_a_suspended_session_takes_no_longer_than_its_timeout(self):
        process = self.live()
        suspend(process.pid)
        begin = time.monotonic()
        code, _, err = self.penstock("stop", "--wait", "--timeout", "500ms")
        took = time.monotonic() - begin
        self.assertEqual(code, EXIT_TIMED_OUT, err)
        self.assertRegex(err, r"pid %d\) is suspended \(SIGSTOP\)" % process.pid)
        self.assertLess(took, 5)

    def test_requests_to_a_suspended_session_say_that_it_is_suspended(self):
        process = self.live()
        suspend(process.pid)
        for question in (("status",), ("events",), ("logs", "worker/0"), ("top", "--once"), ("wait", "--for=finished", "--timeout", "1s")):
            with self.subTest(question=question):
                code, _, err = self.penstock(*question)
                self.assertEqual(code, EXIT_TIMED_OUT, err)
                self.assertRegex(err, r"pid {0}\) (is|has been) suspended[^(]* \(SIGSTOP\); `kill -CONT {0}` resumes it".format(process.pid))
        code, out, _ = self.penstock("why", "--json")
        self.assertEqual(code, EXIT_TIMED_OUT, out)
        self.assertRegex(json.loads(out)["error"]["message"], r"(is|has been) suspended[^(]* \(SIGSTOP\)")

    def test_the_record_of_a_suspended_session_can_be_read_by_its_id(self):
        process = self.live()
        self.wait_until(lambda: self.status()["batches_delivered"] > 0, "a batch")
        number = json.loads(self.penstock("sessions", "--json")[1])["sessions"][0]["id"]
        self.assertEqual(self.penstock("events", "--session", number)[0], EXIT_NO_SESSION)  # an id finds only an ended session
        record = os.path.join(self.folder, "penstock", number + ".record")
        def recorded():
            with open(record) as file:
                text = file.read()
            return '"kind":"worker_ready"' in text and '{"status"' in text
        self.wait_until(recorded, "its record")
        suspend(process.pid)
        since = r"^the session's process \(pid %d\) has been suspended since \d\d-\d\d \d\d:\d\d:\d\d UTC \(SIGSTOP\); `kill" % process.pid
        self.assertRegex(self.penstock("status", "--session", number)[2], since)
        code, _, err = self.penstock("status")
        self.assertEqual(code, EXIT_TIMED_OUT)
        self.assertRegex(err, since)
        self.assertIn("does not answer while it is suspended\nnext: penstock status --session %s\n" % number, err)
        for verb in ("status", "top"):
            code, out, _ = self.penstock(verb, "--json")
            self.assertEqual((code, json.loads(out)["error"]["next"]), (EXIT_TIMED_OUT, "penstock status --session " + number))
        kinds = [json.loads(line)["kind"] for line in self.penstock("events", "--session", number, "--json")[1].splitlines()]
        self.assertIn("worker_ready", kinds)
        self.assertNotIn("ended", kinds)
        self.assertEqual(json.loads(self.penstock("deaths", "--session", number, "--json")[1])["deaths"], [])
        self.assertEqual(json.loads(self.penstock("status", "--session", number, "--json")[1])["state"], "suspended")
        self.assertEqual(self.penstock("status", "--session", number, "--check")[0], EXIT_NOT_MET)

    def test_a_session_that_was_suspended_reports_that_afterwards(self):
        process = self.live()
        # The session reads its clock when it measures what limits the stream: wait for the first measurement.
        self.wait_until(lambda: any(share for share in self.status()["limits"].values() if isinstance(share, float)), "a look at the clock")
        suspend(process.pid)
        time.sleep(2.5)  # real time: the suspension that is tested
        signal_process(process.pid, signal.SIGCONT)
        def of_kind(kind):
            lines = self.penstock("events", "--json")[1].splitlines()
            return [e for e in map(json.loads, lines) if e["kind"] == kind]
        (event,) = self.wait_until(lambda: of_kind("suspended"), "the event")
        self.assertEqual(event["pid"], process.pid)
        found = re.match(r"the session's process was suspended for ([\d.]+) s, from (\S+) to (\S+) UTC \(SIGSTOP, ", event["text"])
        self.assertTrue(found, event["text"])
        self.assertGreater(float(found[1]), 2)
        self.assertEqual(of_kind("stalled"), [])
        self.assertEqual(self.penstock("stop", "--wait")[0], EXIT_OK)
        self.assertEqual(process.wait(timeout=30), 0)
        code, out, err = self.penstock("events", "--last")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(len(re.findall(r"(?m)^\S+ \S+  session +suspended +the session", out)), 1, out)

    def test_a_stop_names_the_files_and_both_status_and_why_name_what_a_stopping_session_waits_for(self):
        text = synthetic(samples=100, batch=1, epochs=1, dataset='faults = [{sample = 0, kind = "hang"}]', more='[supervisor]\nshutdown = "20s"\n')
        report = os.path.join(self.folder, "report.json")
        self.start("run", self.write("late.toml", text), "--workers", 1, "--quiet", "--report", report)
        self.wait_until(lambda: self.penstock("status")[0] == EXIT_OK and any((w["current_sample_seconds"] or 0) > 1 for w in self.status()["workers"]),
                        "the stuck sample")
        code, _, err = self.penstock("stop")
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(err, r"(?m)\Astopping\nwaiting for worker/0 .*; it will be killed in \d s if it does not end; `penstock stop --now` kills it at once\n.*\nreport: %s$" % re.escape(report))
        waits = r"waiting for worker/0 \(pid \d+\), which has been working on sample 0 for "
        self.assertRegex(self.penstock("status")[1], r"(?m)^late  stopping for \d+ s  .*(?s:.*)^" + waits)
        self.assertRegex(self.penstock("why")[1], r"\AThe session has been stopping for \d+ s\.\n" + waits)
        self.assertEqual([one["target"] for one in self.status()["stopping"]], ["worker/0"])
        self.assertEqual(self.penstock("stop", "--now", "--wait")[0], EXIT_OK)

    def test_a_run_that_stop_waited_for_has_written_its_report_and_its_state(self):
        report, state = (os.path.join(self.folder, name) for name in ("report.json", "run.state"))
        written = ("--quiet", "--report", report, "--state", state, "--state-every", "1h", "--json")
        self.start("run", self.write("live.toml", ENDLESS), "--workers", 2, *written)
        self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
        self.assertEqual(self.penstock("stop", "--wait")[0], EXIT_OK)
        with open(report) as file:
            self.assertEqual(json.load(file)["outcome"], "stopped")
        os.remove(report)
        os.remove(state)
        self.start("run", self.write("short.toml", synthetic(samples=200, dataset='wait = "5ms"', epochs=1)), *written)
        self.assertEqual(self.penstock("wait", "--for=finished", "--timeout", "20s")[0], EXIT_OK)
        with open(report) as file:
            self.assertEqual(json.load(file)["outcome"], "finished")
        self.assertTrue(os.path.exists(state))

    def test_stop_wait_waits_for_a_run_that_cannot_write_its_report_yet(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, bytes(1 << 16))
        except BlockingIOError:
            os.set_blocking(writing, True)
        process = subprocess.Popen([PENSTOCK, "run", self.write("live.toml", ENDLESS), "--json", "--quiet"], stdout=writing,
                                   stderr=subprocess.DEVNULL, env=self.environment, cwd=self.folder)
        self._running.append(process)
        os.close(writing)
        self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
        code, _, err = self.penstock("stop", "--wait", "--timeout", "2s")
        self.assertEqual(code, EXIT_TIMED_OUT)
        over = "the session is over, but its process has not ended: it may still write its report"
        self.assertEqual(err, "waiting for the end: %s\nerror: not stopped within 2s: %s\n" % (over, over))
        self.assertFalse(os.path.exists(self.socket("live")))
        self.assertIsNone(process.poll())
        while os.read(reading, 1 << 16):
            pass
        self.assertEqual(process.wait(timeout=10), EXIT_OK)

    def test_a_drain_by_an_operator_is_not_an_unexpected_exit(self):
        process = self.start("run", self.write("drained.toml", ENDLESS), "--workers", 2)
        self.assertEqual(self.penstock("wait", "--timeout", "20s", "--session", "drained")[0], EXIT_OK)
        self.assertEqual(self.penstock("drain", "worker/0")[0], EXIT_OK)
        self.wait_until(lambda: self.status("worker/0")["workers"][0]["state"] == "stopped", "the drained worker to be gone")
        deaths = self.penstock("deaths")[1].splitlines()
        self.assertEqual(len(deaths), 3, deaths)  # the head, the worker, the cost
        self.assertRegex(deaths[1], r" worker/0 .* stopped \(ordered\) ")
        for verb in ("drain", "restart"):
            self.assertEqual(self.penstock(verb, "worker/0")[0], EXIT_OK)
        events = [json.loads(line) for line in self.penstock("events", "--json")[1].splitlines()]
        self.assertEqual([e["text"] for e in events if e["kind"] in ("draining", "restarting")],
                         ["worker 0 finishes what it holds and exits", "worker 0 has no process, and none will be started", "worker 0 is started again"])
        self.assertEqual(self.penstock("stop", "--wait")[0], EXIT_OK)
        _, err = process.communicate(timeout=15)
        self.assertNotIn("ended unexpectedly", err.decode())

    def test_logs_of_a_worker_without_output_say_so(self):
        self.live()
        code, out, err = self.penstock("logs", "worker/0", "--previous")
        self.assertEqual((code, out), (EXIT_OK, ""))
        self.assertEqual(err, "no output from an earlier process of this target\n")

    def test_wait_for_finished_returns_when_the_run_has_ended(self):
        self.start("run", self.write("short.toml", synthetic(samples=200, dataset='wait = "5ms"', epochs=1)), "--quiet")
        self.wait_until(lambda: os.path.exists(self.socket("short")), "the socket")
        code, _, err = self.penstock("wait", "--for=finished", "--timeout", "20s", timeout=30)
        self.assertEqual(code, EXIT_OK, err)

    def test_wait_gives_up_at_its_timeout(self):
        self.live()
        code, _, err = self.penstock("wait", "--for=finished", "--timeout", "100ms")
        self.assertEqual(code, EXIT_TIMED_OUT)
        self.assertRegex(err, r"the session was not finished within 100ms: it is still running \(ok, epoch 0, \d+ of 100000 samples delivered\)")

    def test_wait_distinguishes_an_ended_session_from_a_running_one(self):
        process = self.live()
        waiting = self.start("wait", "--for=finished")
        self.wait_until(lambda: is_asking(waiting.pid), "it waits")
        process.kill()
        process.communicate()
        _, err = waiting.communicate(timeout=15)
        self.assertEqual(waiting.returncode, EXIT_NO_SESSION)
        self.assertRegex(err.decode(), "the session ended before it reported being finished|there is no live session")
        code, _, err = self.penstock("wait", "--session", "live", "--timeout", "50ms")
        self.assertEqual(code, EXIT_NO_SESSION)
        self.assertRegex(err, r"there is no live session 'live'.*\n(?s:.*)the last one: 'live' died, last seen \d+ s ago")

    def test_a_session_whose_name_was_in_use_is_suggested_when_the_other_one_has_ended(self):
        first = self.live()
        second = self.start("run", os.path.join(self.folder, "live.toml"), "--workers", 1, "--json", "--quiet")
        self.wait_until(lambda: os.path.exists(self.socket("live-%d" % second.pid)), "the second session")
        first.kill()
        first.communicate()
        for verb in ("why", "drain"):
            code, _, err = self.penstock(verb, "worker/0", "--session", "live")
            self.assertEqual(code, EXIT_NO_SESSION)
            self.assertIn("there is no live session 'live'; 'live-%d', which was also started as 'live', is live\n" % second.pid, err)
            self.assertIn("next: penstock %s worker/0 --session live-%d\n" % (verb, second.pid), err)

    def test_stop_wait_names_the_files_that_were_written(self):
        options = ("--report", "report.json", "--state", "run.state", "--state-every", "1h", "--sink", "journal:run.journal")
        files = {"journal": "run.journal", "report": "report.json", "state": "run.state"}
        files = {kind: os.path.join(self.folder, name) for kind, name in files.items()}
        for as_json in (False, True):
            process = self.live(options=options)
            self.wait_until(lambda: self.status()["batches_delivered"] > 0, "a batch")
            self.assertEqual(self.status()["files"], files)
            code, out, err = self.penstock("stop", "--wait", *(["--json"] if as_json else []))
            self.assertEqual(code, EXIT_OK, err)
            if as_json:
                answer = json.loads(out)
                positions = answer.pop("positions")
                self.assertEqual(answer, {"schema": "penstock.order/1", "stopped": True, "files": files, "killed": [], "position_saved": True})
                self.assertEqual(positions["state"]["epoch"], 0)
                self.assertEqual(positions["state"]["samples"], positions["report"]["samples"])
            else:
                self.assertRegex(err, r"\Astopped\njournal: %s\nreport: %s \(epoch 0, \d+ of 100000 samples delivered\)\n"
                                 r"state: %s \(epoch 0, \d+ samples delivered\)\n\Z" % tuple(map(re.escape, files.values())))
            process.communicate(timeout=30)
        self.assertEqual(json.loads(self.penstock("status", "--last", "--json")[1])["files"], files)

    def test_after_a_kill_the_missing_report_and_the_way_to_resume_are_named_wherever_the_session_is_listed(self):
        process = self.live(options=("--report", "report.json", "--state", "run.state", "--state-every", "10ms"))
        self.wait_until(lambda: self.status()["batches_delivered"] > 9 and os.path.exists(os.path.join(self.folder, "run.state")), "a state")
        process.kill()
        process.communicate()
        report, state = (re.escape(os.path.join(self.folder, name)) for name in ("report.json", "run.state"))
        config = re.escape(os.path.join(self.folder, "live.toml"))
        for verb in (("status", "--last"), ("events", "--last"), ("sessions", "--ended")):
            code, out, err = self.penstock(*verb)
            self.assertEqual(code, EXIT_OK, err)
            self.assertRegex(out + err, r"(?m)^ *report: %s was not written\n *state: %s \(epoch 0, \d+ samples delivered\)\n *it died; "
                             r"`penstock run %s --state %s`, with the other options of the run, continues from that state$" % (report, state, config, state))

    def test_a_sample_that_is_being_loaded_is_described_with_its_worker_and_how_long_it_has_taken(self):
        self.live(text=synthetic(samples=100, batch=1, epochs=1, dataset='faults = [{sample = 7, kind = "hang"}]'))
        self.wait_until(lambda: any(w["current_index"] == 7 and w["current_sample_seconds"] > 1 for w in self.status()["workers"]), "the sample")
        code, out, err = self.penstock("describe", "sample/7")
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(out, r"\Asample 7\n  loading now +by worker/\d \(pid \d+\) for [\d.]+ s, attempt 1\n\Z")
        (loading,) = json.loads(self.penstock("describe", "sample/7", "--json")[1])["loading"]
        self.assertEqual((loading["sample"], loading["attempt"]), (7, 1))
        code, _, err = self.penstock("describe", "sample/99")
        self.assertEqual(code, EXIT_NO_TARGET)
        self.assertIn("is not in quarantine, and no worker is loading it now", err)

    def test_a_number_that_no_sample_of_the_dataset_has_is_refused_during_the_run_and_after_it(self):
        self.live(text=synthetic(samples=100, batch=1, epochs=1, dataset='wait = "1s"'), options=("--set", "sampler.shuffle=false"))
        self.wait_until(lambda: self.status()["dataset_samples"] == 100, "the length of the dataset")
        for after_end in (), ("--last",):
            if after_end:
                self.assertEqual(self.penstock("stop", "--wait")[0], EXIT_OK)
            code, _, err = self.penstock("describe", "sample/100", *after_end)
            self.assertEqual(code, EXIT_NO_TARGET)
            self.assertIn("error: there is no sample 100: the dataset has 100 samples (0 to 99)\n", err)
            self.assertIn("nothing is recorded of sample 99", self.penstock("describe", "sample/99", *after_end)[2])

    def test_the_description_of_a_sample_that_killed_a_worker_once_says_that_its_batch_was_delivered(self):
        text = synthetic(samples=100000, epochs=1, dataset='wait = "2ms"\nfaults = [{sample = 7, kind = "segv", times = 1}]')
        self.live(text=text, options=("--set", "sampler.shuffle=false"))
        self.wait_until(lambda: "delivered" in self.penstock("describe", "sample/7")[1], "the delivery")
        self.assertRegex(self.penstock("describe", "sample/7")[1], r"SIGSEGV, while loading sample 7\b(?s:.*)batch 0 of epoch 0 was loaded by another worker"
                         r"(?s:.*)\n  delivered +batch 0 of epoch 0, with it\n")

    def test_sessions_lists_only_the_sessions_of_a_name_and_refuses_one_that_does_not_exist(self):
        self.live()
        name = self.status()["session"]
        for more in ((), ("--ended",)):
            self.assertEqual([s["session"] for s in json.loads(self.penstock("sessions", "--session", name, "--json", *more)[1])["sessions"]], [name])
            code, out, err = self.penstock("sessions", "--session", "nosuch", *more)
            self.assertEqual((code, out), (EXIT_NO_SESSION, ""))
            self.assertTrue(err.startswith("error: there is no live %ssession 'nosuch'\n" % ("or ended " if more else "")), err)
        self.assertEqual(self.penstock("stop", "--wait")[0], EXIT_OK)
        self.assertEqual({s["session"] for s in json.loads(self.penstock("sessions", "--session", name, "--ended", "--json")[1])["ended"]}, {name})

    def test_events_since_a_time_without_events_says_so(self):
        self.live()
        code, out, err = self.penstock("events", "--since", "2100-01-01T00:00:00")
        self.assertEqual((code, out, err), (EXIT_OK, "", "nothing has happened since 2100-01-01 00:00:00 UTC\n"))
        self.assertEqual(self.penstock("events", "--since", "2100-01-01T00:00:00", "--json"), (EXIT_OK, "", ""))

    def test_stop_wait_names_the_quarantine_file(self):
        text = synthetic(samples=40, epochs=100000, dataset='wait = "2ms"\nfaults = [{sample = 17, kind = "segv", times = 0}]',
                         more='[quarantine]\nfile = "bad.jsonl"\nmax_attempts = 2\n')
        self.live(text=text)
        bad = os.path.join(self.folder, "bad.jsonl")
        self.assertEqual(self.status()["files"], {"quarantine": bad})
        self.wait_until(lambda: self.status()["quarantined"] > 0 and os.path.exists(bad), "the quarantine")
        code, _, err = self.penstock("stop", "--wait")
        self.assertEqual((code, err.splitlines()[-1]), (EXIT_OK, "quarantine: " + bad))

    def test_wait_for_the_end_returns_with_the_outcome_however_the_session_ended(self):
        for name, order, outcome in (("stopped", lambda p: self.penstock("stop"), "stopped"), ("killed", lambda p: p.kill(), "died")):
            process = self.start("run", self.write(name + ".toml", ENDLESS), "--quiet", "--workers", 1)
            self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
            code, _, err = self.penstock("wait", "--for=ended", "--timeout", "50ms")
            self.assertEqual(code, EXIT_TIMED_OUT, err)
            waiting = self.start("wait", "--for=ended", "--json")
            self.wait_until(lambda: is_asking(waiting.pid), "it waits")
            order(process)
            out, err = waiting.communicate(timeout=30)
            process.communicate()
            self.assertEqual(waiting.returncode, EXIT_OK, err)
            told = json.loads(out)
            self.assertEqual((told["schema"], told["waited_for"], told["session"], told["outcome"]), ("penstock.wait/1", "ended", name, outcome))
            # The session has ended already.
            self.assertEqual(json.loads(self.penstock("wait", "--for=ended", "--session", name, "--json")[1])["outcome"], outcome)
        code, out, err = self.penstock("wait", "--for=ended")
        self.assertEqual((code, err), (EXIT_OK, ""))
        self.assertRegex(out, r"^ended: died, last seen \d+ s ago\nthe program ended without closing the session")
        self.assertEqual(self.penstock("wait", "--for=ended", "--session", "nobody", "--timeout", "50ms")[0], EXIT_NO_SESSION)

    def test_wait_for_the_end_of_a_failed_run_says_why(self):
        config = self.write("gone.toml", '[dataset]\npath = "/nonexistent/photos"\n[gpu]\ndevice = "host"\n')
        self.assertEqual(self.penstock("run", config)[0], EXIT_FAILED)
        code, out, _ = self.penstock("wait", "--for=ended", "--session", "gone")
        self.assertEqual(code, EXIT_OK)
        self.assertRegex(out, r"^ended: failed \d+ s ago: .*/nonexistent/photos")

    def test_a_run_that_ends_after_the_requested_batches_says_so(self):
        process = self.start("run", self.write("live.toml", synthetic(samples=100000, dataset='wait = "2ms"')), "--quiet", "--batches", 100)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_OK)
        self.assertIn("stopped: 100 batches were delivered, as requested", self.penstock("events", "--last")[1].splitlines()[-1])

    def test_wait_for_finished_reports_if_the_run_was_stopped_instead(self):
        process = self.live()
        waiting = self.start("wait", "--for=finished")
        self.wait_until(lambda: is_asking(waiting.pid), "it waits")
        self.penstock("stop")
        process.communicate(timeout=15)
        waiting.communicate(timeout=15)
        self.assertEqual(waiting.returncode, EXIT_NOT_MET)

    def test_without_a_session_verbs_say_so_and_exit_with_5(self):
        for verb in (["status"], ["stop"], ["wait"], ["deaths"]):
            code, out, err = self.penstock(*verb, "--json")
            self.assertEqual(code, EXIT_NO_SESSION)
            self.assertIn("error", json.loads(out))

    def test_a_paused_session_delivers_no_new_batches_until_it_is_resumed(self):
        self.live()
        self.assertEqual(self.penstock("pause")[0], EXIT_OK)
        self.assertEqual(self.status()["state"], "paused")
        counts = []
        def still():
            counts.append(self.status()["batches_delivered"])
            return len(counts) > 3 and counts[-1] == counts[-2] == counts[-3]
        self.wait_until(still, "the pipeline runs dry")
        self.assertEqual(self.penstock("resume")[0], EXIT_OK)
        self.wait_until(lambda: self.status()["batches_delivered"] > counts[-1], "batches again")

    def test_resume_reports_that_the_session_was_not_paused_and_what_brings_drained_workers_back(self):
        self.live()
        self.assertEqual(self.penstock("resume"), (EXIT_OK, "", "the session was not paused\n"))
        order = lambda *words: json.loads(self.penstock(*words, "--json")[1])
        self.assertEqual(order("resume"), {"schema": "penstock.order/1", "paused": False, "changed": False, "drained": 0, "of": "samples"})
        self.assertEqual(order("pause"), {"schema": "penstock.order/1", "paused": True, "changed": True, "drained": 0, "of": "samples"})
        self.assertEqual(self.penstock("pause"), (EXIT_OK, "", "the session was already paused\n"))
        self.assertEqual(self.penstock("resume"), (EXIT_OK, "", "resumed\n"))
        self.assertEqual(self.penstock("drain", "workers")[0], EXIT_OK)
        self.wait_until(lambda: {w["why_stopped"] for w in self.status()["workers"] if not w["sacrificial"]} == {"drained"}, "all workers are drained")
        told = "the session was not paused; all workers are drained: `penstock restart workers --session live` brings them back\n"
        self.assertEqual(self.penstock("resume", "--session", "live"), (EXIT_OK, "", told))
        self.wait_until(lambda: self.status()["stalled"], "the stall", seconds=30)
        self.assertRegex(self.penstock("why", "--session", "live")[1],
                         r"\ANo progress for \d+ s: waiting for an operator, who drained all workers; `penstock restart workers\s+--session\s+live`\s+brings\s+them\s+back\.\n\Z")

    def test_scaling_restarting_and_draining_do_not_change_the_stream(self):
        config = self.write("life.toml", synthetic(samples=2500, dataset='wait = "2ms"', epochs=1))
        expected = self.digests(config, "--workers", 4)
        process = self.start("run", config, "--workers", 2, "--digest", "--json", "--quiet")
        self.wait_until(lambda: os.path.exists(self.socket("life")), "the socket")
        self.penstock("wait", "--timeout", "10s")
        for request in (["scale", 6], ["restart", "worker/0"], ["scale", 1], ["drain", "worker/0"], ["restart", "worker/0"], ["scale", 3]):
            code, _, err = self.penstock(*request)
            self.assertEqual(code, EXIT_OK, err)
            time.sleep(0.15)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual([e["digest"] for e in json.loads(out)["epochs"]], expected)

    def test_restart_now_ends_a_hanging_sample(self):
        process = self.live("stuck", synthetic(samples=40, batch=1, epochs=1, dataset='faults = [{sample = 3, kind = "hang"}]'), workers=1)
        worker = lambda: self.status()["workers"][0]
        self.wait_until(lambda: (worker()["current_sample_seconds"] or 0) > 0.5, "the stuck sample")
        self.assertEqual(self.penstock("restart", "worker/0")[0], EXIT_OK)
        self.wait_until(lambda: worker()["state"] == "draining", "its replacement to be requested")
        self.assertEqual(self.penstock("restart", "worker/0", "--now")[0], EXIT_OK)
        self.wait_until(lambda: worker()["incarnation"] == 2, "another process")  # [loader.hang] item_timeout would take 30 s
        deaths = json.loads(self.penstock("deaths", "--json")[1])["deaths"]
        self.assertEqual([(d["cause"], d["sample"]) for d in deaths], [("stopped", 3)])
        self.assertEqual([d["attempt"] for d in deaths], [0])  # not blamed
        self.assertEqual(self.status()["workers_ended_unexpectedly"], 0)
        self.assertEqual(self.penstock("stop", "--now", "--wait")[0], EXIT_OK)
        process.wait(timeout=20)
        events = [json.loads(line) for line in self.penstock("events", "--last", "--json")[1].splitlines()]
        self.assertEqual([(e["worker"], e["text"]) for e in events if e["kind"] == "restarting"],
                         [(0, "worker 0 finishes what it holds and is then replaced"), (0, "worker 0 is killed and replaced at once")])

    def test_status_of_a_target_shows_only_that_target(self):
        self.live()
        self.assertEqual([w["id"] for w in self.status("worker/1")["workers"]], [1])
        self.assertEqual(self.status("gpu")["workers"], [])
        self.assertNotIn("worker/0", self.penstock("status", "gpu")[1])
        self.assertNotIn("gpu", self.penstock("status", "workers")[1])
        for nobody in ("worker/9", "worker/", "worker/1x", "workers/1", ""):
            code, out, _ = self.penstock("status", nobody, "--json")
            self.assertEqual(code, EXIT_NO_TARGET, nobody)
            self.assertIn("error", json.loads(out))

    def test_a_target_or_number_that_does_not_exist_is_refused(self):
        self.live()
        self.assertEqual(self.penstock("restart", "worker/77")[0], EXIT_NO_TARGET)
        for verb, choice in (("restart", "worker/N, workers or gpu"), ("drain", "worker/N, workers or host/NAME")):
            code, _, err = self.penstock(verb, "nobody")
            self.assertEqual((code, err), (EXIT_NO_TARGET, "error: cannot %s 'nobody': use %s\n" % (verb, choice)))
        self.assertEqual(self.penstock("scale", 1000)[0], EXIT_REFUSED)

    def test_a_missing_target_is_the_same_error_for_every_verb(self):
        self.live()
        empty = self.write("quarantine.jsonl", "")
        for arguments in (["status", "worker/77"], ["describe", "worker/77"], ["logs", "worker/77"], ["restart", "worker/77"], ["drain", "worker/77"],
                          ["status", "nobody"], ["describe", "nobody"], ["logs", "nobody"], ["restart", "nobody"], ["drain", "nobody"],
                          ["quarantine", "retry", "3"], ["quarantine", "release", "3", "--file", empty]):
            code, out, err = self.penstock(*arguments, "--json")
            self.assertEqual((code, json.loads(out)["error"]["kind"]), (EXIT_NO_TARGET, "no_target"), (arguments, out))

    def test_a_missing_worker_is_refused_with_a_list_of_the_existing_ones(self):
        self.live()
        self.assertEqual(self.penstock("scale", 3)[0], EXIT_OK)
        self.wait_until(lambda: len(self.status()["workers"]) == 3, "three workers")
        for verb in ("status", "describe", "why", "restart", "drain"):
            self.assertIn("there is no worker/77; available: worker/0 to worker/2\n", self.penstock(verb, "worker/77")[2], verb)
        for verb in ("status", "why"):
            self.assertIn("'host/alpha' is a loader host: only describe, drain and scale take one, as in `penstock describe host/alpha`", self.penstock(verb, "host/alpha")[2])
            self.assertIn("targets are: worker/N, workers, gpu, scheduler, host/NAME/worker/N, all\n", self.penstock(verb, "nobody")[2])
        self.assertIn("host/NAME/worker/N, all, sample/N, host/NAME\n", self.penstock("describe", "nobody")[2])

    def test_only_its_user_can_use_the_socket(self):
        self.live()
        folder = os.stat(os.path.join(self.folder, "penstock"))
        self.assertEqual(stat.S_IMODE(folder.st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(self.socket("live")).st_mode), 0o600)

    def test_a_second_session_with_the_same_name_gets_another_name_and_logs_that_at_level_debug(self):
        first = self.live()
        second = self.start("run", self.write("other/live.toml", ENDLESS), "--workers", 1, "--set", "log.level=debug")
        name = "live-%d" % second.pid
        self.wait_until(lambda: os.path.exists(self.socket(name)), "the second socket")
        self.assertEqual(self.status("--session", "live")["pid"], first.pid)
        answer = self.wait_until(lambda: self.status("--session", name), "an answer")
        self.assertEqual((answer["pid"], answer["session"]), (second.pid, name))
        self.assertEqual(self.status("--session", "live")["session"], "live")
        for verb, shown in ((("status",), "%s  ok"), (("top", "--once"), "penstock %s"), (("describe", "scheduler"), "scheduler of %s")):
            self.wait_until(lambda: self.penstock(*verb, "--session", name)[1].startswith(shown % name), "%s shows %s" % (verb[0], name))
        self.assertEqual(self.penstock("status")[0], EXIT_NO_SESSION)  # the name is ambiguous
        second.send_signal(signal.SIGINT)
        _, err = second.communicate(timeout=15)
        self.assertIn(b"another session named 'live' is running; this one is '" + name.encode(), err)
        third = self.start("run", self.write("third/live.toml", ENDLESS), "--workers", 1)
        self.wait_until(lambda: os.path.exists(self.socket("live-%d" % third.pid)), "the third socket")
        third.send_signal(signal.SIGINT)
        self.assertNotIn(b"another session", third.communicate(timeout=15)[1])

    def none_live(self, **facts):
        return dict({"schema": "penstock.sessions/1", "sessions": [], "dead": 0, "removed": 0, "left_folders": 0, "removed_folders": 0}, **facts)

    def test_a_stale_socket_is_replaced_and_sessions_removes_other_stale_sockets(self):
        self.environment["TMPDIR"] = self.folder  # so that leftover files of other programs do not count
        process = self.live()
        process.kill()
        process.communicate()
        self.assertTrue(os.path.exists(self.socket("live")))
        again = self.live()
        self.assertEqual(self.status()["pid"], again.pid)
        again.kill()
        again.communicate()
        self.assertEqual(json.loads(self.penstock("sessions", "--json")[1]), self.none_live(dead=1))
        code, _, err = self.penstock("sessions")
        self.assertIn("1 socket was left by dead sessions\nnext: penstock sessions --prune\n", err)
        self.assertEqual(json.loads(self.penstock("sessions", "--prune", "--json")[1]), self.none_live(removed=1))
        self.assertEqual([name for name in os.listdir(os.path.join(self.folder, "penstock")) if not name.endswith(".record")], [])

    def test_sessions_shows_the_state_of_each_session(self):
        process = self.live()
        self.wait_until(lambda: self.status()["batches_delivered"] > 0, "a batch")
        code, out, err = self.penstock("sessions")
        self.assertEqual(code, EXIT_OK, err)
        head, line = out.splitlines()
        self.assertEqual(head.split(), ["SESSION", "STATE", "PID", "AGE", "PROGRESS", "DEATHS", "SOCKET"])
        self.assertRegex(line, r"^live +ok +%d +\S+ \S+ +\d+ %%, epoch 0 +0 " % process.pid)
        one = json.loads(self.penstock("sessions", "--json")[1])["sessions"][0]
        self.assertEqual((one["session"], one["state"], one["pid"], one["samples_expected"], one["workers_ended_unexpectedly"]),
                         ("live", "ok", process.pid, 100000, 0))
        self.assertTrue(0 <= one["age_seconds"] < 60, one)

    def test_a_socket_that_cannot_be_opened_is_a_warning_and_not_an_error(self):
        report = self.penstock("run", self.write("s.toml", synthetic(samples=16)), "--json",
                               env=dict(self.environment, XDG_RUNTIME_DIR="/nonexistent"))
        self.assertEqual(report[0], EXIT_OK, report[2])
        self.assertIn("control", report[2])

    def test_a_folder_of_sockets_that_cannot_be_read_is_not_reported_as_one_without_sessions(self):
        code, _, err = self.penstock("status", env=dict(self.environment, XDG_RUNTIME_DIR=self.write("a-file", "")))
        self.assertEqual(code, EXIT_NO_SESSION)
        self.assertRegex(err, r"cannot look for sessions in .*/a-file/penstock: Not a directory\nnext: penstock doctor\n$")

    def test_garbage_floods_and_silence_on_the_socket_disturb_no_other_client(self):
        self.live()
        clients = []
        for number in range(100):
            client = socket.socket(socket.AF_UNIX)
            self.addCleanup(client.close)
            client.settimeout(5)
            client.connect(self.socket("live"))
            try:
                client.sendall([b"", b"garbage\n", b"x" * 300000, b'{"penstock": 9}\n', b'{"penstock": 1, "verb": 7}\n'][number % 5])
            except OSError:
                pass  # the session disconnects such a client
            clients.append(client)
        for client in clients[5:]:
            client.close()
        begin = time.monotonic()
        self.assertEqual(self.status()["state"], "ok")
        self.assertLess(time.monotonic() - begin, 2.0)


if __name__ == "__main__":
    main()
