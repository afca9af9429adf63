"""The record of a session: its events, deaths, output and last status, read after its end, however it ended."""

import datetime
import glob
import re
import stat

from harness import *

ENDLESS = synthetic(samples=100000, epochs=100, dataset='wait = "2ms"')


class PastTest(PenstockTest):
    def records(self):
        return sorted(glob.glob(os.path.join(self.folder, "penstock", "*.record")))

    def recorded(self):
        for path in self.records():
            with open(path, errors="replace") as file:
                yield from file

    def answer(self, *arguments, expect=EXIT_OK):
        code, out, err = self.penstock(*arguments, "--json")
        self.assertEqual(code, expect, err + out)
        return json.loads(out)

    def lines(self, *arguments):
        code, out, err = self.penstock(*arguments, "--json")
        self.assertEqual(code, EXIT_OK, err)
        return [json.loads(line) for line in out.splitlines()]

    def live(self, name, text=ENDLESS, *arguments):
        process = self.start("run", self.write(name + ".toml", text), "--quiet", "--workers", 2, *arguments)
        self.assertEqual(self.penstock("wait", "--session", name, "--timeout", "30s")[0], EXIT_OK)
        return process

    def crash(self):
        """A run in which sample 17 kills a worker that has printed some output."""
        text = synthetic(samples=200, dataset='faults = [{sample = 17, kind = "segv", times = 1}]', epochs=1)
        config = self.write("crash.toml", text + self.worker_program("echo hello from $PENSTOCK_WORKER"))
        self.run_json(config, "--workers", 2, env=dict(self.environment, SECRET_TOKEN="open-sesame"))
        return config

    # ---- after an orderly end --------------------------------------------------------------------------------

    def test_events_deaths_logs_status_and_describe_can_be_read_after_the_end(self):
        self.crash()
        kinds = [e["kind"] for e in self.lines("events", "--last")]
        self.assertEqual(kinds[0], "run_started")
        self.assertIn("worker_died", kinds)
        self.assertIn("run_finished", kinds)
        last = self.lines("events", "--last")[-1]
        self.assertEqual((last["kind"], last["outcome"], last["text"]), ("ended", "finished", "finished: everything requested has been delivered"))
        (death,) = self.answer("deaths", "--last")["deaths"]
        self.assertEqual((death["signal"], death["sample"], death["sacrificial"]), ("SIGSEGV", 17, False))
        self.assertIn("hello from", death["last_output"])
        said = self.lines("logs", "workers", "--last")
        self.assertIn("hello from 0", [line["text"] for line in said])
        of_dead = self.lines("logs", "worker/%d" % death["worker"], "--previous", "--last")
        self.assertEqual({line["incarnation"] for line in of_dead}, {1})
        self.assertEqual(len(self.lines("logs", "all", "--tail", "1", "--last")), 1)
        status = self.answer("status", "--last")
        self.assertEqual((status["session"], status["state"], status["outcome"], status["samples_delivered"]),
                         ("crash", "ended", "finished", 200))
        self.assertRegex(status["ended"], r"^20\d\d-\d\d-\d\dT")
        self.assertEqual(status["progress"], 1)
        self.assertEqual({worker["state"] for worker in status["workers"] if worker["why_stopped"] != "not needed"}, {"ended"})
        self.assertEqual(self.penstock("status", "--check", "--last")[0], EXIT_OK)
        self.assertEqual(self.answer("describe", "worker/%d" % death["worker"], "--last")["workers"][0]["last_death"]["sample"], 17)

    def test_why_names_the_limit_of_the_last_seconds_of_an_ended_session(self):
        # The workers may take longer to stop than a reading covers; the reading stays that of the stream's last 10 s.
        self.run_json(self.write("busy.toml", synthetic(samples=1000, epochs=1, dataset='work = "2ms"')), "--workers", 1)
        why = self.answer("why", "--last")
        self.assertEqual((why["schema"], why["session"], why["state"], why["outcome"]), ("penstock.why/1", "busy", "ended", "finished"))
        self.assertEqual(why["limit"], "decode", why)
        self.assertEqual(why["verdict"], self.answer("status", "--last")["verdict"])
        code, out, err = self.penstock("why", "worker/0", "--last")
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(out, "(Decoding limits|Too few cores limit) you")  # on a busy machine there may be too few cores
        self.assertIn("finished", err)
        self.assertEqual(self.penstock("why", "worker/9", "--last")[0], EXIT_NO_TARGET)
        code, _, err = self.penstock("why")
        self.assertEqual(code, EXIT_NO_SESSION)
        self.assertIn("penstock why --last", err)

    def test_why_answers_for_a_session_that_was_killed(self):
        process = self.live("killed", synthetic(samples=100000, epochs=100, dataset='work = "2ms"'))
        self.wait_until(lambda: self.answer("why", "--session", "killed")["limit"] == "decode", "the reading")
        self.wait_until(lambda: any(line.startswith('{"why"') and '"limit":"decode"' in line for line in self.recorded()), "the record")
        process.kill()
        process.communicate()
        why = self.answer("why", "--last")
        self.assertEqual((why["outcome"], why["limit"]), ("died", "decode"))

    def test_a_worker_killed_at_a_stop_leaves_a_death_and_one_that_stops_in_time_leaves_none(self):
        text = synthetic(samples=100, batch=1, epochs=1, dataset='faults = [{sample = 0, kind = "hang"}]',
                         more='[supervisor]\nshutdown = "3s"\n')
        process = self.live("late", text, "--set", "loader.slots_per_worker=1")
        stuck = self.wait_until(lambda: next((w for w in self.answer("status", "--session", "late")["workers"]
                                              if w["current_sample"] and (w["current_sample_seconds"] or 0) > 0.5), None), "the stuck sample")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=25)
        (death,) = self.answer("deaths", "--last")["deaths"]
        self.assertEqual((death["worker"], death["cause"], death["signal"], death["sample"]), (stuck["id"], "stopped", "SIGKILL", 0))
        self.assertEqual((death["epoch"], death["seq"], death["attempt"]), (0, stuck["current_seq"], 0))
        self.assertGreater(death["ignored_stop_seconds"], 1)
        self.assertEqual(death["path"], stuck["current_sample"])
        (event,) = [e for e in self.lines("events", "--last") if e["kind"] == "worker_died"]
        self.assertEqual(event["death"], {k: v for k, v in death.items() if k != "sacrificial"})
        self.assertRegex(event["text"], r"worker \d \(pid \d+\) was killed: it had not stopped within [\d.]+ s of the request, while working on sample 0, in batch \d+ of epoch 0")
        self.assertIn("was killed: it had not stopped", err.decode())
        self.assertIn("killed at stop", self.penstock("deaths", "--last")[1])
        status = self.answer("status", "--last")
        self.assertEqual(status["workers_ended_unexpectedly"], 0)
        self.assertEqual(self.answer("sessions", "--ended")["ended"][0]["killed_at_stop"], 1)
        self.assertEqual([w["id"] for w in status["workers"] if w["last_death"]], [stuck["id"]])

    def test_workers_killed_by_an_immediate_stop_are_reported_as_such(self):
        process = self.live("hurried", synthetic(samples=100000, epochs=100, dataset='wait = "20ms"'), "--set", "gpu.placement=process")
        self.wait_until(lambda: any(w["current_sample"] for w in self.answer("status")["workers"]), "work")
        self.assertEqual(self.penstock("stop", "--now", "--wait")[0], EXIT_OK)
        process.communicate(timeout=30)
        killed = [e["text"] for e in self.lines("events", "--last") if e["kind"] in ("worker_died", "device_lost")]
        self.assertTrue(killed)
        for text in killed:
            self.assertIn("was killed right after the stop, without time to finish: by `stop --now`, or because its program closed the session", text)

    def test_the_quarantined_samples_can_be_listed_after_the_end(self):
        text = synthetic(samples=200, dataset='faults = [{sample = 17, kind = "segv", times = 0}]', epochs=1)
        self.run_json(self.write("deadly.toml", text), "--workers", 2)
        (entry,) = self.answer("quarantine", "list", "--last")["quarantine"]
        self.assertEqual((entry["sample"], entry["attempts"], entry["causes"]), (17, 3, ["SIGSEGV"] * 3))
        self.assertIn("3 x SIGSEGV", self.penstock("quarantine", "--last")[1])

    def test_the_sample_counts_of_ended_workers_add_up(self):
        self.run_json(self.write("sums.toml", synthetic(samples=200, epochs=1)), "--workers", 2)
        self.assertEqual(sum(worker["samples"] for worker in self.answer("status", "--last")["workers"]), 200)

    def test_answers_for_scripts_name_their_schema(self):
        self.live("named", synthetic(samples=1000, epochs=100000, dataset='faults = [{sample = 17, kind = "segv", times = 1}]'))
        self.wait_until(lambda: self.answer("deaths")["deaths"], "a death")
        for verb in ("status", "why", "deaths", "sessions", "wait"):
            self.assertEqual(self.answer(verb)["schema"], "penstock.%s/1" % verb)
        self.assertEqual({event["schema"] for event in self.lines("events")}, {"penstock.event/1"})
        # Tables for people have the date, or the time, of each entry.
        self.assertRegex(self.penstock("events")[1], r"(?m)\A20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")
        self.assertRegex(self.penstock("deaths")[1], r"(?m)\Atime \(UTC\) .*\n\d\d-\d\d \d\d:\d\d:\d\d  worker/")
        self.assertEqual(self.penstock("stop", "--wait")[0], EXIT_OK)
        for verb in ("status", "why", "deaths"):
            self.assertEqual(self.answer(verb, "--last")["schema"], "penstock.%s/1" % verb)
        self.assertEqual({event["schema"] for event in self.lines("events", "--last")}, {"penstock.event/1"})

    def test_the_text_of_logs_marks_where_a_new_process_begins(self):
        self.crash()
        (death,) = self.answer("deaths", "--last")["deaths"]
        _, out, _ = self.penstock("logs", "workers", "--last")
        self.assertEqual(re.findall(r"(?m)^-- .* --$", out), ["-- worker/%d: a new process, incarnation 2 --" % death["worker"]])

    def test_wait_reports_how_an_ended_session_ended(self):
        self.run_json(self.write("short.toml", synthetic(samples=64, epochs=1)), "--workers", 1)
        code, _, err = self.penstock("wait", "--session", "short")
        self.assertEqual(code, EXIT_NO_SESSION)
        self.assertRegex(err, r"the last one: 'short' finished \d+ s ago\n")

    def test_the_ends_of_epochs_are_omitted_unless_all_events_are_requested(self):
        self.run_json(self.write("short.toml", synthetic(samples=8, epochs=50)), "--workers", 1)
        code, out, err = self.penstock("events", "--last")
        self.assertEqual(code, EXIT_OK, err)
        self.assertNotIn("epoch_done", out)
        self.assertIn("run_finished", out)
        self.assertRegex(err, r"\A'short' finished .* ago: .*\n51 events are left out \(epoch_done, memory_attached\); --all shows them\n\Z")
        self.assertNotIn("memory_attached", out)
        self.assertEqual(self.penstock("events", "--last", "--all")[1].count("epoch_done"), 50)
        self.assertEqual([e["kind"] for e in self.lines("events", "--last")].count("epoch_done"), 50)

    def test_a_killed_session_has_written_no_report_and_its_device_is_closed(self):
        report = os.path.join(self.folder, "report.json")
        process = self.live("killed", ENDLESS, "--report", report)
        self.wait_until(lambda: any(line.startswith('{"status"') and '"kind":"host"' in line for line in self.recorded()), "the record")
        process.kill()
        process.communicate()
        status = self.answer("status", "--last")
        self.assertEqual((status["files"], status["not_written"], status["gpu"]["state"]), ({}, {"report": report}, "ended"))
        self.assertNotIn("gpu  ready", self.penstock("status", "--last")[1])

    def test_the_record_of_an_ended_session_reads_like_a_live_session(self):
        config = self.crash()
        code, out, err = self.penstock("status", "--last")
        self.assertEqual(code, EXIT_OK)
        self.assertRegex(out, r"^finished \d+ s ago: everything requested has been delivered\ncrash  ended  pid \d+")
        self.assertRegex(out, r"100 %  ran for .*  " + re.escape(config))
        self.assertEqual(err, "")
        code, out, err = self.penstock("deaths", "--last")
        self.assertRegex(out, r"(?m)^\d\d-\d\d \d\d:\d\d:\d\d +worker/\d .* SIGSEGV .* 17 ")
        self.assertRegex(err, r"next: penstock deaths --stacks --last\n")
        self.assertRegex(self.penstock("deaths", "--last", "--session", "crash")[2], r"next: penstock deaths --stacks --last --session crash\n")
        self.assertRegex(self.penstock("events", "--last")[1], r"(?m)^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  worker/\d +worker_died ")

    def test_the_hint_after_the_deaths_of_a_live_session_names_the_session(self):
        self.live("crash", synthetic(samples=100, epochs=100000, dataset='wait = "2ms"\nfaults = [{sample = 17, kind = "segv", times = 1}]'))
        self.live("other")
        self.wait_until(lambda: self.answer("deaths", "--session", "crash")["deaths"], "the death")
        _, _, err = self.penstock("deaths", "--session", "crash")
        self.assertRegex(err, r"^next: penstock (deaths --stacks|describe worker/\d) --session crash\n$")
        self.assertEqual(self.penstock(*err.split()[2:])[0], EXIT_OK)

    def test_the_record_of_a_session_killed_in_a_stall_says_who_was_loading_the_sample_since_when_and_what_happened_before(self):
        text = synthetic(samples=100, batch=1, epochs=1, dataset='faults = [{sample = 17, kind = "hang", times = 0}]', more='[loader.hang]\nitem_timeout = "5s"\n')
        process = self.start("run", self.write("stuck.toml", text), "--quiet", "--workers", 2, "--set", "quarantine.max_attempts=9")
        self.wait_until(lambda: any('"current_index":17,"current_attempt":2' in line for line in self.recorded()), "a record of the second attempt", 60)
        process.kill()
        process.wait()
        about = self.answer("describe", "sample/17", "--last")
        (loading,) = about["loading"]
        self.assertEqual((about["state"], loading["sample"], loading["attempt"]), ("ended", 17, 2))
        self.assertIsInstance(loading["seconds"], float)
        self.assertRegex(loading["seen"], r"^20\d\d-\d\d-\d\dT")
        self.assertIn("worker_died", [e["kind"] for e in about["events"]])
        self.assertRegex(self.penstock("describe", "sample/17", "--last")[1], r"(?m)^  was being loaded  by worker/\d \(pid \d+\) for ")

    def test_the_file_is_private_to_its_user_and_contains_no_environment(self):
        self.crash()
        (path,) = self.records()
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, "rb") as file:
            text = file.read()
        self.assertNotIn(b"open-sesame", text)
        self.assertNotIn(b"SECRET_TOKEN", text)
        self.assertLess(len(text), 100_000)

    def test_without_a_flag_a_session_that_has_ended_is_not_found_and_the_error_says_how_to_read_it(self):
        self.crash()
        for verb in (["status"], ["deaths"], ["events"], ["logs"], ["describe", "all"]):
            code, out, err = self.penstock(*verb)
            self.assertEqual((code, out), (EXIT_NO_SESSION, ""))
            self.assertRegex(err, r"; 'crash' finished \d+ s ago\nnext: penstock %s --last\n" % " ".join(verb))
            self.assertEqual(self.answer(*verb, "--session", "crash", expect=EXIT_NO_SESSION)["error"]["kind"], "io")
        for stop in (["stop"], ["stop", "--wait", "--session", "crash"]):
            code, _, err = self.penstock(*stop)
            self.assertEqual(code, EXIT_NO_SESSION)
            self.assertRegex(err, r"; 'crash' finished \d+ s ago\nnext: penstock status --last( --session crash)?\n")
        code, _, err = self.penstock("deaths", "--stacks", "--session", "crash")
        self.assertTrue(err.endswith("\nnext: penstock deaths --stacks --last --session crash\n"), err)
        code, out, _ = self.penstock("logs", "workers", "--json", "--tail", "3")
        self.assertEqual(json.loads(out)["error"]["next"], "penstock logs workers --tail 3 --last")
        self.assertEqual(self.penstock(*json.loads(out)["error"]["next"].split()[1:])[0], EXIT_OK)  # the suggested command works unchanged

    def test_sessions_lists_the_ended_ones_and_each_can_be_selected_by_its_id(self):
        self.crash()
        short = self.write("short.toml", synthetic(samples=40, epochs=1))
        self.run_json(short)
        self.run_json(short)
        found = self.answer("sessions", "--ended")
        self.assertEqual((found["schema"], found["sessions"]), ("penstock.sessions/1", []))
        self.assertEqual([(s["session"], s["outcome"]) for s in found["ended"]],
                         [("short", "finished"), ("short", "finished"), ("crash", "finished")])
        self.assertEqual(len({s["id"] for s in found["ended"]}), 3)
        oldest = found["ended"][2]["id"]
        self.assertEqual(self.answer("status", "--session", oldest)["session"], "crash")
        self.assertEqual(self.answer("status", "--last")["session"], "short")
        self.assertEqual(self.answer("status", "--last", "--session", "crash")["session"], "crash")
        self.assertRegex(self.penstock("sessions", "--ended")[1], r"(?m)^ENDED SESSION .* DEATHS\n(?s:.*)^%s .* 1\n    200 of 200 samples$" % oldest)
        self.answer("status", "--session", "crash@1", expect=EXIT_NO_SESSION)
        self.answer("status", "--last", "--session", "nobody", expect=EXIT_NO_SESSION)

    def test_commands_suggested_after_the_end_read_the_record(self):
        self.crash()
        for follow in ("-f", "--follow"):
            err = self.penstock("logs", "workers", follow)[2]
            self.assertTrue(err.endswith("\nnext: penstock logs workers --last\n"), err)
        for act in ("retry", "release"):
            err = self.penstock("quarantine", act, "17")[2]
            self.assertTrue(err.endswith("\nnext: penstock quarantine release 17 --file FILE\n"), err)
            code, _, err = self.penstock("quarantine", act, "17", "--last")
            self.assertEqual(code, EXIT_USAGE)
            self.assertIn("quarantine %s needs a live session" % act, err)
        err = self.penstock("quarantine", "list")[2]
        self.assertTrue(err.endswith("\nnext: penstock quarantine list --last\n"), err)

    def test_the_last_session_is_the_one_that_ended_last_and_not_the_one_that_started_last(self):
        self.live("long")
        self.run_json(self.write("short.toml", synthetic(samples=40, epochs=1)))
        self.assertEqual(self.answer("status", "--last")["session"], "short")
        self.assertEqual(self.penstock("stop", "--wait", "--session", "long")[0], EXIT_OK)
        self.assertEqual(self.answer("status", "--last")["session"], "long")
        self.assertEqual([s["session"] for s in self.answer("sessions", "--ended")["ended"]], ["long", "short"])
        self.assertRegex(self.penstock("status")[2], r"; 'long' stopped \d+ s ago.*\nnext: penstock status --last\n")

    def test_the_last_event_names_the_source_of_the_stop(self):
        def last_of(name):
            return [e["text"] for e in self.lines("events", "--last", "--session", name) if e["kind"] in ("stopping", "ended")]
        self.live("told")
        self.assertEqual(self.penstock("stop", "--wait")[0], EXIT_OK)
        us = "process %d (%s)" % (os.getpid(), name_of(os.getpid()))
        who = "`penstock stop` from " + us
        self.assertEqual(last_of("told"), ["the session was asked to stop by " + who, "stopped: it was stopped by " + who])
        self.assertIn("    0 of 10000000 samples; it was stopped by %s\n" % who, re.sub(r"\d+ of", "0 of", self.penstock("sessions", "--ended")[1]))
        process = self.live("signalled")
        process.terminate()
        process.wait(timeout=30)
        who = "SIGTERM from " + us
        self.assertEqual(last_of("signalled"), ["the session was asked to stop by " + who, "stopped: it was stopped by " + who])
        self.assertEqual(self.penstock("run", "signalled.toml", "--batches", 3, "--quiet")[0], EXIT_OK)
        self.assertEqual(last_of("signalled"), ["stopped: 3 batches were delivered, as requested"])
        jobs = self.start("map", "--command", "sleep {}", "--quiet", "--set", "name=jobs", stdin=subprocess.PIPE)
        self.assertEqual(self.penstock("wait", "--session", "jobs", "--timeout", "30s")[0], EXIT_OK)
        self.assertEqual(self.penstock("stop", "--now", "--wait")[0], EXIT_OK)
        jobs.communicate(timeout=30)
        self.assertEqual(last_of("jobs"), ["the pool was asked to stop by `penstock stop --now` from " + us, "stopped: it was stopped by `penstock stop --now` from " + us])

    def test_the_records_of_all_ranks_of_a_group_are_read_together(self):
        config = self.write("stamps.toml", synthetic(samples=400, epochs=1))
        code, _, err = self.penstock("launch", config, "--gpus", "host:2", "--quiet")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual({e["rank"] for e in self.lines("events", "--last", "--group", "stamps")}, {0, 1})
        told = self.answer("status", "--last", "--group", "stamps")
        self.assertEqual([r["status"]["outcome"] for r in told["ranks"]], ["finished", "finished"])
        self.assertEqual(self.answer("status", "--last", "--session", "stamps-rank1")["group"]["rank"], 1)
        self.answer("status", "--last", "--group", "nobody", expect=EXIT_NO_SESSION)
        self.assertTrue(self.penstock("status", "--last", "--group", "stamps")[1].startswith("group stamps: 2 ended ranks\n"))
        told = r"\A'stamps-rank\d' finished .* ago.*\nthis is rank \d of group stamps; all ranks: `penstock %s --last --group stamps`\n"
        for verb in ("deaths", "events", "why", "logs workers", "describe all", "describe worker/0"):
            self.assertRegex(self.penstock(*verb.split(), "--last")[2], told % verb)
        of_group = self.penstock("status", "--last", "--group", "stamps")[2]
        self.assertRegex(of_group, r"next: penstock status --session stamps-rank0@\S+\n")
        self.assertIn("rank 0 of 2", self.penstock("status", "--session", of_group.split()[-1])[1])
        self.assertRegex(self.penstock("status", "--last")[2], r"\Athis is rank \d of group stamps; all ranks: `penstock status --last --group stamps`\n")
        self.assertRegex(self.penstock("quarantine", "list", "--last")[2], r"\A'stamps-rank\d' finished .* ago.*\nno sample is quarantined\n")
        self.run_json(self.write("other.toml", synthetic(samples=10, epochs=1)))  # ends last
        for verb in ("quarantine list", "status worker/0", "describe sample/3", "describe host/alpha", "logs host/alpha/worker/0"):
            code, out, err = self.penstock(*verb.split(), "--last", "--group", "stamps")
            self.assertEqual((code, out), (EXIT_USAGE, ""), verb)
            self.assertIn("choose a rank of 'stamps' with --last --session (stamps-rank0, stamps-rank1)", err)
            self.assertEqual(self.penstock(*verb.split(), "--last", "--group", "nobody")[0], EXIT_NO_SESSION, verb)

    # ---- after any other end ---------------------------------------------------------------------------------

    def test_a_killed_session_leaves_its_last_state_and_is_reported_as_died(self):
        process = self.live("victim")
        self.assertEqual(self.penstock("pause")[0], EXIT_OK)
        self.assertEqual(self.penstock("resume")[0], EXIT_OK)
        (path,) = self.records()

        def is_written():
            with open(path) as file:
                return '"resumed"' in (text := file.read()) and '{"status"' in text
        self.wait_until(is_written, "the event in the record")
        process.kill()
        process.wait()
        status = self.answer("status", "--last")
        self.assertEqual((status["state"], status["outcome"]), ("ended", "died"))
        kinds = [e["kind"] for e in self.lines("events", "--last")]
        self.assertIn("resumed", kinds)
        self.assertEqual(kinds[-1], "ended")
        self.assertRegex(self.penstock("events", "--last")[1].splitlines()[-1], "died: the program ended without closing the session: it was killed, crashed, or exited without cleanup")
        self.assertRegex(self.penstock("status", "--last")[1], r"^died, last seen \d+ s ago: the program ended without closing the session")
        self.assertIn("the program ended without closing the session: it was killed, crashed, or exited without cleanup", self.penstock("sessions", "--ended")[1])
        os.utime(path, (1, 1))  # pretends that the machine was started after the record's last write
        self.assertIn("the machine stopped or was restarted before the program closed the session", self.penstock("sessions", "--ended")[1])

    def test_the_last_status_of_a_killed_session_is_hardly_older_than_its_end(self):
        process = self.live("victim", ENDLESS, "--set", "loader.workers=8")
        (path,) = self.records()
        self.wait_until(lambda: sum(line.startswith('{"status"') for line in self.recorded()) >= 3, "some statuses", 60)
        process.kill()
        process.wait()
        status = self.answer("status", "--last")
        written, ended = (datetime.datetime.fromisoformat(status[key].replace("Z", "+00:00")) for key in ("status_time", "ended"))
        # On an idle machine the last status is a second old. Once, the record of 8 workers had only one status in 5 s.
        age = (ended - written).total_seconds()
        self.assertLess(age, 4)
        told = self.penstock("status", "--last")[1].splitlines()[0]
        self.assertEqual("its last status is from" in told, age >= 2, told)

    def test_deaths_just_before_a_session_is_killed_count(self):
        process = self.live("victim")
        (path,) = self.records()
        os.kill(self.workers_of(process)[0], signal.SIGSEGV)

        def is_written():
            with open(path) as file:
                return '"death":{' in file.read()
        self.wait_until(is_written, "the death in the record")
        process.kill()
        process.wait()
        self.assertEqual([s["workers_ended_unexpectedly"] for s in self.answer("sessions", "--ended")["ended"]], [1])
        self.assertEqual(len(self.answer("deaths", "--last")["deaths"]), 1)

    def test_a_run_that_cannot_start_leaves_the_reason(self):
        config = self.write("gone.toml", '[dataset]\npath = "/nonexistent/photos"\n[gpu]\ndevice = "host"\n')
        self.assertEqual(self.penstock("run", config)[0], EXIT_FAILED)
        (failed,) = [e for e in self.lines("events", "--last") if e["kind"] == "run_failed"]
        self.assertIn("/nonexistent/photos", failed["text"])
        last = self.lines("events", "--last")[-1]
        self.assertEqual((last["kind"], last["outcome"], last["text"]), ("ended", "failed", "failed: " + failed["text"]))
        status = self.answer("status", "--last")
        self.assertEqual(status["outcome"], "failed")
        self.assertIn("/nonexistent/photos", status["failure"])
        table, below = self.penstock("sessions", "--ended")[1].splitlines()[1:]
        self.assertRegex(table, r"^gone@\S+ +failed +\d\d-\d\d \d\d:\d\d:\d\d")
        self.assertEqual(below, "    " + status["failure"])
        self.assertRegex(self.penstock("events")[2], r"'gone' failed \d+ s ago: .*/nonexistent/photos.*\nnext: penstock events --last\n")

    def test_on_a_terminal_the_first_line_about_an_ended_session_is_broken_between_words(self):
        config = self.write("gone.toml", '[dataset]\npath = "/nonexistent/photos/of/the/first/summer"\n[gpu]\ndevice = "host"\n')
        self.penstock("run", config)
        whole = re.sub(r"\d+ s ago", "", self.penstock("events", "--last")[2].splitlines()[0])
        self.assertGreater(len(whole), 80)
        lines = self.lines_on_a_terminal("events", "--last", stream="stderr")
        self.assertTrue(all(len(line) <= 80 for line in lines), lines)
        self.assertEqual(re.sub(r"\d+ s ago", "", " ".join(line.strip() for line in lines)), whole)
        lines = self.lines_on_a_terminal("status", "--last")
        self.assertTrue(all(len(line) <= 80 for line in lines), lines)

    def test_jobs_leave_a_record_too(self):
        lines = self.write("lines", "".join("%d\n" % i for i in range(20)))
        code, _, err = self.penstock("map", "--input", lines, "--quiet", "--command", "true {}")
        self.assertEqual(code, EXIT_OK, err)
        status = self.answer("status", "--last")
        self.assertEqual((status["outcome"], status["jobs"]["ok"]), ("finished", 20))
        self.assertEqual(self.answer("deaths", "--last")["of"], "jobs")

    # ---- bounds ----------------------------------------------------------------------------------------------

    def test_a_session_makes_room_for_its_record_among_the_most_frequent_name(self):
        self.run_json(self.write("other.toml", synthetic(samples=10, epochs=1)))
        folder = os.path.dirname(self.records()[0])
        for number in range(70):
            open(os.path.join(folder, "short@20260101T%06d.000-1.record" % number), "w").close()
        self.run_json(self.write("short.toml", synthetic(samples=10, epochs=1)))
        of_name = lambda name: [os.path.basename(path) for path in self.records() if "/%s@" % name in path]
        self.assertEqual(len(of_name("other")), 1)
        # 64 ended sessions are kept when a session starts, and its own record is one more.
        self.assertEqual(len(of_name("short")), 64)
        self.assertEqual(min(of_name("short")), "short@20260101T000007.000-1.record")

    def test_followers_of_the_events_learn_how_the_session_ended(self):
        process = self.live("followed")
        following = self.start("events", "-f", "--json", "--session", "followed", bufsize=0)
        first = following.stdout.readline()
        self.assertEqual(self.penstock("stop", "--session", "followed")[0], EXIT_OK)
        process.communicate(timeout=30)
        out, err = following.communicate(timeout=30)
        self.assertEqual(following.returncode, EXIT_OK, err)
        events = [json.loads(line) for line in [first, *out.splitlines()]]
        self.assertEqual((events[-1]["kind"], events[-1]["outcome"]), ("ended", "stopped"))
        self.assertEqual([e["number"] for e in events], list(range(1, len(events) + 1)))

    def test_with_log_record_false_no_record_remains(self):
        self.run_json(self.write("silent.toml", synthetic(samples=20, epochs=1) + "[log]\nrecord = false\n"))
        self.assertEqual(self.records(), [])
        self.assertEqual(os.listdir(os.path.join(self.folder, "penstock")), [])

    def test_a_live_session_is_not_among_the_ended_ones(self):
        self.crash()
        self.live("alive")
        self.assertEqual([s["session"] for s in self.answer("sessions", "--ended")["ended"]], ["crash"])
        self.assertEqual(self.answer("status")["session"], "alive")
        self.assertEqual(self.answer("status", "--last")["session"], "crash")


class StatusTest(PenstockTest):
    def test_status_shows_progress_rate_remaining_time_uptime_and_config_file(self):
        config = self.write("facts.toml", ENDLESS)
        self.start("run", config, "--quiet", "--workers", 2)
        self.assertEqual(self.penstock("wait", "--session", "facts", "--timeout", "30s")[0], EXIT_OK)
        status = lambda: json.loads(self.penstock("status", "--json")[1])
        s = self.wait_until(lambda: (s := status())["rate"] and s["progress"] and s, "a rate")
        self.assertEqual(s["config_file"], config)
        self.assertGreater(s["uptime_seconds"], 0)
        self.assertGreater(s["eta_seconds"], 0)
        self.assertLess(s["progress"], 1)
        self.assertIsNone(s["ended"])
        self.assertIsNone(s["failure"])
        self.assertRegex(self.penstock("status")[1], r"(?m)^\d+ %  \d+ samples/s  .* left  up for \d+ s  .*facts\.toml$")

    def test_a_stopped_run_exits_with_the_code_that_a_script_requested(self):
        for code in (0, 75):
            process = self.start("run", self.write("stopped.toml", ENDLESS), "--quiet", "--workers", 1, "--stopped-exit-code", code)
            self.assertEqual(self.penstock("wait", "--session", "stopped", "--timeout", "30s")[0], EXIT_OK)
            self.assertEqual(self.penstock("stop", "--session", "stopped")[0], EXIT_OK)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, code)
        done = self.write("done.toml", synthetic(samples=64, epochs=1))
        self.assertEqual(self.penstock("run", done, "--quiet", "--stopped-exit-code", "75")[0], EXIT_OK)
        self.assertEqual(self.penstock("run", done, "--quiet", "--batches", "1", "--stopped-exit-code", "75")[0], EXIT_OK)

    def test_seconds_mean_the_same_for_every_verb(self):
        for time, good in (("0.3", True), ("300ms", True), ("0.3s", True), ("soon", False), ("-1", False)):
            code, out, _ = self.penstock("bench", "transform", "--device", "host", "--seconds", time, "--json")
            self.assertEqual(code, EXIT_OK if good else EXIT_USAGE, (time, out))
            if time == "soon":
                self.assertIn("--seconds soon: must be a time from 100 ms to 10 m 0 s, such as 90s or 2m; a number means seconds", out)
            code, _, err = self.penstock("trace", "--seconds", time, "--out", "t.json")
            self.assertEqual(code, EXIT_NO_SESSION if good else EXIT_USAGE, (time, err))


if __name__ == "__main__":
    main()
