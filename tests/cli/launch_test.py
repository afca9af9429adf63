"""penstock launch: one process per rank, with torchrun's environment; the processes end together and leave no processes or files behind."""

import re
import socketserver
import threading

from harness import *


class FakeRank(socketserver.ThreadingUnixStreamServer):
    """The control socket of a rank with workers 0 to 2. `refuses`: the workers and verbs
    that it refuses; "worker/1": it has no such worker; "everything": it hangs up."""

    def __init__(self, path, refuses):
        class Answers(socketserver.StreamRequestHandler):
            def handle(self):
                for line in [] if "everything" in refuses else self.rfile:
                    asked = json.loads(line)
                    worker = asked.get("worker")
                    if asked["verb"] == "status":
                        answer = {"ok": True, "result": {"workers": [{"id": one, "state": "ready"} for one in (0, 1, 2)]}}
                    elif worker not in (None, 0, 1, 2) or "worker/%s" % worker in refuses:
                        answer = {"ok": False, "exit": EXIT_NO_TARGET, "error": {"kind": "no_target", "message": "there is no worker/%d" % worker}}
                    elif asked["verb"] in refuses:
                        answer = {"ok": False, "error": {"message": "not now"}}
                    elif worker in refuses:
                        answer = {"ok": False, "error": {"message": "worker/%d is being restarted" % worker}}
                    else:
                        answer = {"ok": True, "result": {}}
                    self.wfile.write(json.dumps(answer).encode() + b"\n")

        super().__init__(path, Answers)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class LaunchTest(PenstockTest):
    def launch(self, script, *options, ranks=3, expect=EXIT_OK, **popen):
        """Each rank runs a shell script. Returns the report and the ranks' output."""
        code, out, err = self.penstock("launch", "--gpus", "host:%d" % ranks, "--json", "--quiet", *options,
                                       "--", "sh", "-c", script, **popen)
        self.assertEqual(code, expect, err + out)
        report = json.loads(out)
        self.assertEqual(report["schema"], "penstock.group/1")
        self.assertEqual(len(report["ranks"]), ranks)
        return report, err

    def start_ranks(self, script, *options, trap="", ranks=2):
        """Returns the process once each rank runs with its trap set."""
        process = self.start("launch", "--gpus", "host:%d" % ranks, *options, "--", "sh", "-c",
                             trap + '\n' + 'echo ready >"$PENSTOCK_TEST_FOLDER/$RANK.ready"\n' + script,
                             env=dict(self.environment, PENSTOCK_TEST_FOLDER=self.folder))
        for rank in range(ranks):
            self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "%d.ready" % rank)), "rank %d runs" % rank)
        return process

    def start_photo_ranks(self, ranks):
        """Sessions that deliver photographs without end. Returns the launcher, the folder of photographs, and a function that returns the log."""
        photos, log = os.path.join(self.folder, "photos"), os.path.join(self.folder, "log")
        make_photos(photos, 24, size=(32, 32))
        config = self.write("photos.toml", '''name = "photos"
[dataset]
path = "photos"
[image]
size = [16, 16]
[sampler]
batch_size = 2
epochs = 100000
[loader]
workers = 1
[gpu]
device = "host"
''')
        with open(log, "w") as file:
            process = subprocess.Popen([PENSTOCK, "launch", config, "--gpus", "host:%d" % ranks, "--quiet"], stdout=subprocess.DEVNULL, stderr=file,
                                       env=self.environment, cwd=self.folder)
        self._running.append(process)
        self.wait_for_photos(process, ranks)

        def read_log():
            with open(log) as file:
                return file.read()

        return process, photos, read_log

    def wait_for_photos(self, process, ranks):
        def delivers(rank):
            status = self.live_status("photos-rank%d" % rank) or {}
            return status.get("batches_delivered", 0) > 0 and status["pid"] == self.rank_pids(process).get(rank)

        for rank in range(ranks):
            self.wait_until(lambda: delivers(rank), "rank %d delivers" % rank, seconds=60)

    @staticmethod
    def index_inodes(pid):
        found = set()
        for fd in os.listdir("/proc/%d/fd" % pid):
            with contextlib.suppress(OSError):  # closed meanwhile
                path = "/proc/%d/fd/%s" % (pid, fd)
                if "memfd:penstock-index" in os.readlink(path):
                    found.add(os.stat(path).st_ino)
        return found

    @staticmethod
    def listers(log):
        return {int(pid) for pid in re.findall(r"using the listing of process (\d+)", log)}

    def test_the_ranks_of_a_host_list_an_image_folder_once_and_share_its_index(self):
        process, _, log = self.start_photo_ranks(3)
        pids = self.rank_pids(process)
        inodes = [self.index_inodes(pid) for pid in pids.values()]
        self.assertEqual(len(inodes[0]), 1)
        self.assertEqual(inodes, [inodes[0]] * 3)
        [lister] = self.listers(log())
        self.assertIn(lister, pids.values())
        self.assertEqual(log().count("using the listing of process"), 2)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), EXIT_TERMINATED, log())

    def test_a_restarted_rank_gets_its_groups_listing_even_if_the_folder_has_changed(self):
        process, photos, log = self.start_photo_ranks(3)
        [lister] = self.listers(log())
        lost = min(rank for rank, pid in self.rank_pids(process).items() if pid != lister)
        killed = self.rank_pids(process)[lost]
        make_photos(os.path.join(photos, "new"), 1, classes=1)
        signal_process(killed, signal.SIGKILL)
        self.wait_until(lambda: self.rank_pids(process).get(lost, killed) != killed, "rank %d is started again" % lost)
        self.wait_for_photos(process, 3)
        self.assertEqual((self.listers(log()), log().count("using the listing of process")), ({lister}, 3))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), EXIT_TERMINATED, log())

    def test_each_rank_gets_the_environment_that_torchrun_sets(self):
        _, out = self.launch('echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT '
                             '$PENSTOCK_GROUP [$CUDA_VISIBLE_DEVICES]"', env=dict(self.environment, PENSTOCK_GROUP="job-7", RANK="9", CUDA_VISIBLE_DEVICES="0"))
        lines = dict(line.split("] ", 1) for line in out.splitlines())
        self.assertEqual(sorted(lines), ["[rank0", "[rank1", "[rank2"])
        ports = set()
        for rank in range(3):
            words = lines["[rank%d" % rank].split()
            self.assertEqual(words[:5], [str(rank), str(rank), "3", "3", "127.0.0.1"])
            self.assertEqual(words[6:], ["job-7", "[]"])
            ports.add(words[5])
        self.assertEqual(len(ports), 1)
        self.assertGreater(int(ports.pop()), 0)

    def test_the_first_rank_that_fails_ends_the_others_and_is_named(self):
        report, err = self.launch('if [ $RANK = 1 ]; then echo "no such file" >&2; exit 3; fi; sleep 60', expect=EXIT_FAILED)
        self.assertEqual(report["outcome"], "failed")
        cause = report["first_cause"]
        self.assertEqual((cause["rank"], cause["cause"]), (1, "exit code 3"))
        self.assertEqual(cause["pid"], report["ranks"][1]["pid"])
        self.assertEqual([rank["signal"] for rank in report["ranks"]], ["SIGTERM", None, "SIGTERM"])
        self.assertIn("rank 1", report["error"])
        self.assertEqual(report["ranks"][1]["last_lines"].strip(), "no such file")
        self.assertIn("[rank1] no such file", err)

    def test_a_rank_that_is_killed_by_a_signal_is_named_with_that_signal(self):
        report, _ = self.launch("[ $RANK = 2 ] && kill -SEGV $$; sleep 60", expect=EXIT_FAILED)
        self.assertEqual(report["first_cause"]["cause"], "SIGSEGV")
        self.assertEqual(report["ranks"][2]["signal"], "SIGSEGV")

    def test_a_rank_that_exits_with_0_does_not_end_the_others(self):
        report, out = self.launch("[ $RANK = 0 ] && exit 0; sleep 0.2; echo later")
        self.assertEqual(report["outcome"], "finished")
        self.assertEqual(out.count("later"), 2)

    def test_all_ranks_are_restarted_as_often_as_allowed(self):
        script = ('echo "try $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"; [ $RANK = 1 ] && exec sleep 60; '
                  'exit 4')
        report, out = self.launch(script, "--max-restarts", 2, ranks=2, expect=EXIT_FAILED)
        self.assertEqual(report["restarts"], 2)
        self.assertEqual([rank["starts"] for rank in report["ranks"]], [3, 3])
        self.assertEqual(report["first_cause"]["cause"], "exit code 4")
        for tries in range(3):
            self.assertIn("[rank0] try %d of 2" % tries, out)
        report, _ = self.launch("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exec sleep 60; exit 1",
                                "--max-restarts", 5, ranks=2)
        self.assertEqual((report["outcome"], report["restarts"], report["first_cause"]), ("finished", 1, None))

    def test_a_rank_that_ignores_sigterm_is_killed(self):
        begin = time.monotonic()
        ready = os.path.join(self.folder, "ready")
        report, _ = self.launch("trap '' TERM; [ $RANK = 1 ] && touch %s; until [ -e %s ]; do sleep 0.01; done; "
                                "[ $RANK = 0 ] && exit 1; while :; do sleep 0.1; done" % (ready, ready), ranks=2, expect=EXIT_FAILED)
        self.assertEqual(report["ranks"][1]["signal"], "SIGKILL")
        self.assertLess(time.monotonic() - begin, 30)

    def test_ctrl_c_is_passed_on_and_the_ranks_can_clean_up(self):
        process = self.start_ranks("while :; do sleep 0.05; done", trap="trap 'echo bye; exit 0' INT")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, EXIT_INTERRUPTED, err)
        self.assertEqual(sorted(out.decode().split("\n")), ["", "[rank0] bye", "[rank1] bye"], err)

    def test_a_second_signal_kills_the_ranks(self):
        process = self.start_ranks("while :; do sleep 0.05; done", trap="trap 'touch $PENSTOCK_TEST_FOLDER/$RANK.told' TERM")
        process.send_signal(signal.SIGTERM)
        for rank in range(2):
            self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "%d.told" % rank)), "the signal is passed on")
        self.assertIsNone(process.poll())
        self.signal_again(process, signal.SIGTERM)
        _, err = process.communicate(timeout=15)
        self.assertEqual(process.returncode, EXIT_TERMINATED, err)
        self.assertIn(b"SIGKILL", err)

    def test_daemons_started_by_ranks_have_ended_at_the_end(self):
        mark = "987.%d" % os.getpid()
        # The rank's shell ends when both daemons have left its process group.
        daemon = "sh -c 'touch $PENSTOCK_TEST_FOLDER/$RANK.%s; exec sleep " + mark + "'"
        report, err = self.launch("setsid %s & (setsid %s &) ; until [ -e $PENSTOCK_TEST_FOLDER/$RANK.a ] && "
                                  "[ -e $PENSTOCK_TEST_FOLDER/$RANK.b ]; do sleep 0.01; done" % (daemon % "a", daemon % "b"),
                                  env=dict(self.environment, PENSTOCK_TEST_FOLDER=self.folder))
        self.assertEqual(report["outcome"], "finished")
        self.assertIn("left behind", err)
        self.assertEqual(subprocess.run(["pgrep", "-f", "sleep " + mark], stdout=subprocess.PIPE).stdout, b"")

    def test_ranks_do_not_survive_the_launcher(self):
        process = self.start_ranks("exec sleep 60")
        ranks = children_of(process.pid)
        self.assertEqual(len(ranks), 2)
        process.kill()
        process.wait()
        self.wait_until(lambda: all(state_and_parent(pid)[0] in "ZX" for pid in ranks), "the ranks are gone")

    def test_a_flood_of_output_is_passed_on_completely(self):
        lines = 300_000
        process = self.start("launch", "--gpus", "host:2", "--no-prefix", "--quiet", "--", "seq", str(lines))
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_OK, err)
        self.assertEqual(sum(map(int, out.split())), lines * (lines + 1))

    def test_if_no_process_reads_the_output_it_blocks_the_ranks_but_not_the_end_of_the_group(self):
        process = self.start("launch", "--gpus", "host:2", "--quiet", "--", "yes")
        os.read(process.stdout.fileno(), 1)
        self.wait_until(lambda: len(children_of(process.pid)) == 2, "both ranks run")
        self.assertLess(self.most_memory_of(process, 0.5), 64 << 20)
        ranks = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        self.wait_until(lambda: all(state_and_parent(pid)[0] in "ZX" for pid in ranks), "the ranks are gone")
        process.communicate(timeout=15)
        self.assertEqual(process.returncode, EXIT_TERMINATED)

    def test_a_launcher_whose_ranks_have_ended_ends_at_a_signal_even_if_its_output_is_not_read(self):
        done = os.path.join(self.folder, "done")
        process = self.start("launch", "--gpus", "host:1", "--quiet", "--", "sh", "-c", "seq 60000; touch " + done)  # more than a pipe holds
        self.wait_until(lambda: os.path.exists(done) and not children_of(process.pid), "the rank's end")
        self.wait_until(lambda: process.poll() is not None or process.send_signal(signal.SIGTERM), "the launcher's end")
        self.assertEqual(process.returncode, EXIT_TERMINATED)

    def test_a_report_is_written_and_the_table_names_each_rank(self):
        path = os.path.join(self.folder, "report.json")
        code, out, err = self.penstock("launch", "--gpus", "host:2", "--report", path, "--", "sh", "-c", "exit $RANK")
        self.assertEqual((code, out), (EXIT_FAILED, ""))
        with open(path) as file:
            self.assertEqual(json.load(file)["first_cause"]["rank"], 1)
        self.assertRegex(err, r"RANK +PID +GPU +CORES +STARTS +TIME +ENDED\n +0 +\d+ +host")
        self.assertIn("exit code 1", err)

    def test_sessions_under_launch_share_the_samples(self):
        config = self.write("bytes.toml", '[dataset]\ntype = "synthetic"\nsamples = 100\nbytes_per_sample = 64\n'
                                          '[sampler]\nbatch_size = 10\nrank = "auto"\n[loader]\nworkers = 1\n')
        self.launch('exec %s run %s --report %s/report.$RANK --quiet' % (PENSTOCK, config, self.folder),
                    ranks=2)
        delivered = 0
        for rank in range(2):
            with open(os.path.join(self.folder, "report.%d" % rank)) as file:
                delivered += json.load(file)["epochs"][0]["delivered"]
        self.assertEqual(delivered, 100)

    def test_a_config_file_starts_a_session_for_each_rank_and_gives_one_report(self):
        config = self.write("bytes.toml", '[dataset]\ntype = "synthetic"\nsamples = 100\nbytes_per_sample = 64\n'
                                          '[sampler]\nbatch_size = 10\n[loader]\nworkers = 1\n')
        code, out, err = self.penstock("launch", config, "--gpus", "host:2", "--json", "--quiet", "--digest", "--epochs", 2,
                                       "--sink", "npy", "--out", os.path.join(self.folder, "out"))
        self.assertEqual(code, EXIT_OK, err + out)
        report = json.loads(out)
        self.assertEqual((report["schema"], report["outcome"]), ("penstock.group/1", "finished"))
        self.assertEqual([(rank["schema"], rank["rank"], rank["world_size"]) for rank in report["ranks"]],
                         [("penstock.run/1", 0, 2), ("penstock.run/1", 1, 2)])
        for rank in report["ranks"]:
            self.assertEqual([epoch["delivered"] for epoch in rank["epochs"]], [50, 50])
            self.assertEqual(rank["process"]["end"], "exit code 0")
            self.check_sums(rank)
        self.assertEqual(len({rank["epochs"][0]["digest"] for rank in report["ranks"]}), 2)
        alone = self.run_json(config, "--device", "host", "--digest", "--epochs", 2, "--set", "sampler.rank=1", "--set", "sampler.world_size=2")
        self.assertEqual([epoch["digest"] for epoch in alone["epochs"]],
                         [epoch["digest"] for epoch in report["ranks"][1]["epochs"]])
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "out"))), ["rank0", "rank1"])
        code, _, err = self.penstock("launch", config, "--gpus", "host:2", "--digest", "--epochs", 1)
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(err, r"RANK +PID +GPU +CORES +STARTS +TIME +SAMPLES +ENDED")
        for number, rank in enumerate(report["ranks"]):
            self.assertIn("rank %d, epoch 0: 50 samples, digest %s\n" % (number, rank["epochs"][0]["digest"]), err)

    def test_a_session_that_fails_at_its_start_ends_all_ranks_with_its_own_error(self):
        config = self.write("worker.toml", '[dataset]\ntype = "synthetic"\nsamples = 100000\nbytes_per_sample = 64\n'
                                           '[loader]\nworkers = 1\ncommand = ["no-such-worker"]\n')
        code, out, err = self.penstock("launch", config, "--gpus", "host:2", "--json", "--quiet")
        self.assertEqual(code, EXIT_FAILED, err + out)
        report = json.loads(out)
        self.assertIn("no-such-worker", report["error"])
        self.assertIn(report["first_cause"]["rank"], (0, 1))

    def test_sessions_that_cannot_start_are_reported_as_the_first_cause_with_their_own_error(self):
        config = self.write("bytes.toml", synthetic(64, "64B", 8, 1, more="[loader]\nworkers = 1\n"))
        for options, words in ((["--sink", "plugin:/nowhere.so"], "/nowhere.so"),
                               (["--set", "metrics.listen=127.0.0.1:65535"], "'listen' in [metrics]")):  # rank 1's port would be 65536
            with self.subTest(words):
                code, out, err = self.penstock("launch", config, "--gpus", "host:2", "--json", "--quiet", *options)
                self.assertEqual(code, EXIT_FAILED, err + out)
                report = json.loads(out)
                cause = report["first_cause"]
                self.assertIn(words, cause["cause"])
                self.assertIn(words, report["error"])
                rank = report["ranks"][cause["rank"]]
                self.assertEqual(rank["process"]["pid"], cause["pid"])
                self.assertIn(words, rank["error"])

    def test_a_damaged_state_is_refused_before_any_process_starts(self):
        config = self.write("bytes.toml", synthetic(64, "64B", 8, 1))
        damaged = self.write("damaged.state", "no state at all")
        code, out, err = self.penstock("launch", config, "--gpus", "host:2", "--state", damaged, "--json")
        self.assertEqual(code, EXIT_FAILED, err + out)
        self.assertRegex(json.loads(out)["error"]["message"], "damaged.state': this is not a saved state")

    # ---- verbs for all ranks -----------------------------------------------------------------------------------

    def group_verb(self, *arguments, expect=EXIT_OK):
        code, out, err = self.penstock(*arguments, "--json")
        self.assertEqual(code, expect, err + out)
        return json.loads(out)

    def test_verbs_apply_to_all_ranks_of_the_only_group_or_of_the_named_one(self):
        process = self.start_sessions(self.slow_stream(samples=4000), ranks=2)
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in (0, 1)), "both ranks deliver")
        for choice in ([], ["--group", "slow"]):
            status = self.group_verb("status", *choice)
            self.assertEqual((status["schema"], status["group"]), ("penstock.group-status/1", "slow"))
            self.assertEqual([rank["status"]["session"] for rank in status["ranks"]], ["slow-rank0", "slow-rank1"])
        _, out, _ = self.penstock("top", "--once")
        self.assertRegex(out, r"RANK +STATE +PID.*\n +0 +ok.*\n +1 +ok")
        rates = r"group slow: 2 live ranks, [\d.]+ samples/s\n.* SAMPLES/S .*\n +0 .* %  +[\d.]+ .*\n +1 .* %  +[\d.]+ "
        self.wait_until(lambda: re.search(rates, self.penstock("status")[1]), "the rates of both ranks")
        self.group_verb("pause")
        self.assertEqual([rank["status"]["state"] for rank in self.group_verb("status", "--check", expect=EXIT_NOT_MET)["ranks"]],
                         ["paused", "paused"])
        _, out, _ = self.penstock("events", "--json")
        paused = [event["rank"] for event in map(json.loads, out.splitlines()) if event["kind"] == "paused"]
        self.assertEqual(sorted(paused), [0, 1], out)
        self.group_verb("resume")
        worker = self.group_verb("status", "--session", "slow-rank1")["workers"][0]["pid"]
        signal_process(worker, signal.SIGKILL)
        self.wait_until(lambda: self.group_verb("deaths")["ranks"][1]["deaths"], "the death is listed")
        self.assertEqual(self.group_verb("deaths")["ranks"][0]["deaths"], [])
        code, _, err = self.penstock("status", "--group", "no-such")
        self.assertEqual(code, EXIT_NO_SESSION)
        self.assertIn("live: slow", err)
        stopped = self.group_verb("stop", "--wait")
        self.assertEqual([(rank["session"], rank["result"]) for rank in stopped["ranks"]],
                         [("slow-rank%d" % rank, {"stopped": True, "files": {}, "positions": {}, "killed": [], "position_saved": False}) for rank in range(2)])
        self.assertEqual(self.report_of(process)["outcome"], "stopped")

    def test_a_stopped_group_exits_with_the_code_that_a_script_requested(self):
        config = self.write("endless.toml", synthetic(samples=100_000, dataset='wait = "2ms"'))
        process = self.start("launch", config, "--gpus", "host:2", "--quiet", "--json", "--stopped-exit-code", 75)
        self.assertEqual(self.penstock("wait", "--session", "endless-rank0", "--timeout", "60s")[0], EXIT_OK)
        self.assertEqual(self.penstock("stop", "--session", "endless-rank0")[0], EXIT_OK)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 75, err)
        self.assertEqual(json.loads(out)["outcome"], "stopped")

    def test_stop_wait_returns_when_the_launcher_has_written_its_report(self):
        report = os.path.join(self.folder, "report.json")
        self.start_sessions(self.slow_stream(samples=4000), "--report", report, ranks=2)
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in (0, 1)), "both ranks deliver")
        stopped = self.group_verb("stop", "--wait")
        self.assertEqual([rank["result"]["files"] for rank in stopped["ranks"]], 2 * [{"report": report}])
        with open(report) as file:
            self.assertEqual(json.load(file)["outcome"], "stopped")

    def test_stop_wait_reports_the_process_that_was_killed_and_its_rank_and_that_the_position_was_not_saved(self):
        text = synthetic(samples=100, batch=1, epochs=1, dataset='faults = [{sample = 0, kind = "hang"}]')
        self.start_sessions(self.write("late.toml", text), "--workers", 1, "--set", "loader.slots_per_worker=1", ranks=2)

        def stuck():
            code, out, _ = self.penstock("status", "--json")
            ranks = json.loads(out).get("ranks", []) if code == EXIT_OK else []
            return [w for rank in ranks if rank["status"] for w in rank["status"]["workers"] if (w["current_sample_seconds"] or 0) > 0.5]

        (worker,) = self.wait_until(stuck, "the stuck sample")
        code, _, err = self.penstock("stop", "--now", "--wait")
        self.assertEqual(code, EXIT_OK, err)
        self.assertRegex(err, r"\nrank \d: (worker %d \(pid %d\) was killed right after the stop|\d+ processes were killed: `penstock deaths)" % (worker["id"], worker["pid"]))
        self.assertEqual(err.count("its position is lost; `penstock launch --state FILE` keeps it next time\n"), 1)

    def test_wait_reports_how_each_rank_of_a_group_ended(self):
        self.start_sessions(self.slow_stream(samples=4000), ranks=2)
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in (0, 1)), "both ranks deliver")
        waiting = self.start("wait", "--group", "slow", "--for=ended", "--json")
        self.wait_until(lambda: is_asking(waiting.pid), "it waits")
        self.group_verb("stop", "--wait")
        out, err = waiting.communicate(timeout=60)
        self.assertEqual(waiting.returncode, EXIT_OK, err)
        expected = [{"rank": rank, "session": "slow-rank%d" % rank, "outcome": "stopped"} for rank in (0, 1)]
        self.assertEqual(json.loads(out)["ranks"], expected)
        self.assertEqual(self.group_verb("wait", "--group", "slow", "--for=ended")["ranks"], expected)  # the group has ended already

    def test_orders_to_workers_reach_all_ranks_and_verbs_for_one_session_say_what_to_type(self):
        process = self.start_sessions(self.slow_stream(samples=40000), "--set", "loader.limits.max=4", ranks=2)
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in (0, 1)), "both ranks deliver")
        other = self.start("run", self.write("other.toml", synthetic(40000, "64B", 10, dataset='wait = "4ms"')), "--quiet")
        self.wait_until(lambda: self.penstock("status", "--session", "other")[0] == EXIT_OK, "another session is live")
        code, _, err = self.penstock("status")
        self.assertEqual(code, EXIT_NO_SESSION)
        self.assertIn("or all ranks of a group with --group (slow)", err)
        self.assertIn("next: penstock status --group slow", err)
        _, _, err = self.penstock("quarantine")  # the verb is for one session
        self.assertNotIn("--group", err)
        for verb in (["quarantine"], ["status", "worker/0"]):
            code, _, err = self.penstock(*verb, "--group", "slow")
            self.assertEqual(code, EXIT_USAGE, verb)
            self.assertIn("choose a rank of 'slow' with --session (slow-rank0, slow-rank1)", err)
        self.group_verb("scale", "3", "--group", "slow")
        for rank in (0, 1):
            self.wait_until(lambda: len(self.ready_workers("slow-rank%d" % rank)) == 3, "three workers each")
        drained = self.group_verb("drain", "worker/2", "--group", "slow")
        self.assertEqual([rank["drain"] for rank in drained["ranks"]], [[2], [2]])
        before = [self.workers_of_rank("slow-rank%d" % rank) for rank in (0, 1)]
        restarted = self.group_verb("restart", "workers", "--group", "slow")
        for rank in restarted["ranks"]:
            self.assertLessEqual({0, 1}, set(rank["restart"]))
        for rank in (0, 1):
            workers = self.wait_until(lambda: self.if_others(self.ready_workers("slow-rank%d" % rank), before[rank]), "other workers")
        _, out, _ = self.penstock("describe", "scheduler", "--group", "slow")
        self.assertIn("rank 1 (slow-rank1):", out)
        self.assertEqual([rank["description"]["session"] for rank in self.group_verb("describe", "all", "--group", "slow")["ranks"]],
                         ["slow-rank0", "slow-rank1"])
        self.assertIn("there is no worker/9", self.group_verb("describe", "worker/9", "--group", "slow", expect=EXIT_NO_TARGET)["ranks"][1]["error"])
        signal_process(workers[0], signal.SIGSEGV)  # a worker of rank 1 that is ready, so it writes its stack
        self.wait_until(lambda: '"rank":1' in self.penstock("logs", "workers", "--previous", "--group", "slow", "--json")[1],
                        "what the worker of rank 1 wrote")
        self.penstock("stop", "--session", "other")
        self.penstock("stop", "--group", "slow", "--wait")
        self.assertEqual(self.report_of(process)["outcome"], "stopped")

    def fake_group(self, *refusals):
        folder = os.path.join(self.folder, "penstock")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for rank, refuses in enumerate(refusals):
            path = os.path.join(folder, "odd-rank%d.sock" % rank)
            if os.path.exists(path):  # the file may be an earlier group's
                os.unlink(path)
            server = FakeRank(path, refuses)
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)

    def test_an_order_that_only_some_workers_of_a_group_accept_reports_which_ones_do_and_fails(self):
        self.fake_group((), (1,))
        code, out, err = self.penstock("drain", "workers", "--group", "odd")
        self.assertEqual(code, EXIT_REFUSED, err)
        self.assertIn("rank 0 (odd-rank0): drain of worker/0, worker/1, worker/2 requested\n", err)
        self.assertIn("rank 1 (odd-rank1): drain of worker/0 requested; refused for worker/1: worker/1 is being restarted; "
                      "not requested for worker/2\n", err)
        ranks = self.group_verb("drain", "workers", "--group", "odd", expect=EXIT_REFUSED)["ranks"]
        self.assertEqual([rank["drain"] for rank in ranks], [[0, 1, 2], [0]])
        self.assertNotIn("error", ranks[0])
        self.assertIn("refused for worker/1: worker/1 is being restarted", ranks[1]["error"])

    def test_a_worker_that_no_rank_has_is_not_a_target_and_one_that_some_ranks_lack_is_refused(self):
        self.fake_group((), ())
        code, _, err = self.penstock("drain", "worker/5", "--group", "odd")
        self.assertEqual((code, err), (EXIT_NO_TARGET, "rank 0 (odd-rank0): there is no worker/5\nrank 1 (odd-rank1): there is no worker/5\n"))
        self.group_verb("restart", "worker/2", "--group", "odd")
        self.fake_group((), ("worker/2",))
        code, _, err = self.penstock("drain", "worker/2", "--group", "odd")
        self.assertEqual((code, err), (EXIT_REFUSED, "rank 0 (odd-rank0): drain of worker/2 requested\nrank 1 (odd-rank1): there is no worker/2\n"))
        self.fake_group(("drain",), ("drain",))
        code, _, err = self.penstock("drain", "worker/1", "--group", "odd")
        self.assertEqual(code, EXIT_REFUSED, err)
        self.assertIn("rank 1 (odd-rank1): refused for worker/1: not now\n", err)

    def test_an_order_that_no_rank_of_a_group_accepts_reports_that(self):
        for refusal, code, words in (("pause", EXIT_REFUSED, "no rank of odd has carried out the order\n"), ("everything", EXIT_NO_SESSION, "no rank of odd is still live\n")):
            self.fake_group((refusal,), (refusal,))
            found, _, err = self.penstock("pause", "--group", "odd")
            self.assertEqual(found, code, err)
            self.assertTrue(err.endswith(words), err)
            self.assertNotIn("0 ranks", err)

    def test_an_order_to_workers_fails_in_a_group_without_workers(self):
        process = self.start_sessions(self.slow_stream(samples=40000), ranks=2)
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in (0, 1)), "both ranks deliver")
        self.group_verb("drain", "workers", "--group", "slow")
        self.wait_until(lambda: not any(self.workers_of_rank("slow-rank%d" % rank) for rank in (0, 1)), "no worker is left")
        code, _, err = self.penstock("drain", "workers", "--group", "slow")
        self.assertEqual(code, EXIT_NO_TARGET, err)
        self.assertIn("rank 1 (slow-rank1): there is no worker to drain\n", err)
        self.group_verb("restart", "workers", "--group", "slow")  # the ranks are at different steps, so one delivers more batches first
        self.penstock("stop", "--group", "slow", "--wait")
        self.assertEqual(self.report_of(process)["outcome"], "stopped")

    @staticmethod
    def if_others(pids, before):
        return pids if len(pids) > 1 and not set(pids) & set(before) else None

    def workers_of_rank(self, session):
        return [w["pid"] for w in self.group_verb("status", "--session", session)["workers"] if w["pid"] is not None]

    def ready_workers(self, session):
        return [w["pid"] for w in self.group_verb("status", "--session", session)["workers"] if w["state"] == "ready"]

    def test_deaths_of_a_group_name_the_ranks_that_were_lost(self):
        process = self.start_sessions(self.slow_stream(samples=40000), ranks=2)
        self.wait_until(lambda: all(self.delivered_by(rank) > 0 for rank in (0, 1)), "both ranks deliver")
        _, _, err = self.penstock("deaths", "--group", "slow")
        self.assertIn("no rank of slow was lost", err)
        lost = self.rank_pids(process)[1]
        signal_process(lost, signal.SIGKILL)
        # One rank cannot be asked for a moment, and the verb reports that.
        found = self.wait_until(lambda: json.loads(self.penstock("deaths", "--group", "slow", "--json")[1])["lost_ranks"],
                                "the loss of rank 1 is listed")
        self.assertIn("rank 1", found[0]["text"])
        self.assertIn("pid %d" % lost, found[0]["text"])
        self.assertRegex(self.penstock("deaths", "--group", "slow")[1], r"lost at .*: rank 1 \(.*pid %d\): " % lost)
        self.wait_until(lambda: self.rank_pids(process).get(1, lost) != lost and self.delivered_by(1) > 0, "rank 1 is back")
        first = self.rank_pids(process)[0]
        signal_process(first, signal.SIGKILL)
        self.wait_until(lambda: re.search(r"rank 1 \(pid %d\): SIGKILL\n.*: rank 0 \(pid %d\): SIGKILL\n" % (lost, first), self.penstock("deaths", "--group", "slow")[1]),
                        "the loss of rank 0 is known")
        process.send_signal(signal.SIGTERM)
        self.report_of(process, expect=EXIT_TERMINATED)

    # ---- sessions that are lost --------------------------------------------------------------------------------

    def test_signals_every_few_milliseconds_do_not_lose_the_position_of_a_group(self):
        state = os.path.join(self.folder, "state")
        process = self.start_sessions(self.slow_stream(samples=40000), "--state", state, ranks=2)
        self.wait_until(lambda: all(self.delivered_by(rank) > 5 for rank in (0, 1)), "both ranks deliver")
        self.assertFalse(os.path.exists(state))
        self.wait_until(lambda: process.poll() is not None or process.send_signal(signal.SIGTERM), "the end")
        self.report_of(process, expect=EXIT_TERMINATED)
        self.assertTrue(os.path.exists(state))

    def slow_stream(self, samples=400, wait="4ms", epochs=2):
        return self.write("slow.toml", synthetic(samples, "64B", 10, epochs, dataset='wait = "%s"' % wait,
                                                 more="[loader]\nworkers = 1\n"))

    def start_sessions(self, config, *options, ranks=4):
        return self.start("launch", config, "--gpus", "host:%d" % ranks, "--json", "--quiet", "--digest", *options)

    def delivered_by(self, rank):
        """The number of batches that the rank reports; 0 if it does not answer."""
        status = self.live_status("slow-rank%d" % rank)
        return status["batches_delivered"] if status else 0

    def report_of(self, process, expect=EXIT_OK):
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, expect, err + out)
        return json.loads(out)

    def digests_by_rank(self, report):
        return [[epoch["digest"] for epoch in rank["epochs"]] for rank in report["ranks"]]

    def test_a_killed_session_continues_where_it_stopped_and_the_others_are_unaffected(self):
        config = self.slow_stream(samples=1000, wait="8ms")
        undisturbed = self.report_of(self.start_sessions(config, "--set", "dataset.wait=0s"))
        process = self.start_sessions(config)
        self.wait_until(lambda: self.delivered_by(2) > 2, "rank 2 has delivered")
        before = self.rank_pids(process)
        children = children_of(before[0])
        self.assertIn("penstock-gpu", [name_of(pid) for pid in children])
        for pid in children:
            with open("/proc/%d/environ" % pid, "rb") as file:
                self.assertNotIn(b"PENSTOCK_GROUP_SECRET=", file.read(), name_of(pid))
        signal_process(before[2], signal.SIGKILL)
        self.wait_until(lambda: self.rank_pids(process).get(2, before[2]) != before[2], "rank 2 is back")
        report = self.report_of(process)
        for rank in (0, 1, 3):
            self.assertEqual([report["ranks"][rank][part]["deaths"] for part in ("workers", "gpu")], [[], []])
            self.assertEqual([report["ranks"][rank][part]["restarts"] for part in ("workers", "gpu")], [0, 0])
        self.assertEqual(self.digests_by_rank(report), self.digests_by_rank(undisturbed))
        self.assertEqual((report["outcome"], report["restarts"], report["first_cause"]), ("finished", 1, None))
        self.assertEqual([rank["process"]["starts"] for rank in report["ranks"]], [1, 1, 2, 1])
        for rank in report["ranks"]:
            self.check_sums(rank)
            self.assertEqual([epoch["from_batch"] for epoch in rank["epochs"]], [0, 0])
            self.assertEqual([epoch["batches"] for epoch in rank["epochs"]], [25, 25])

    def lost_as_seen_by(self, rank):
        return ((self.live_status("slow-rank%d" % rank) or {}).get("group") or {}).get("lost", [])

    def losses_in_events_of_rank_0(self):
        code, out, _ = self.penstock("events", "--session", "slow-rank0", "--json")
        return [e["text"] for e in map(json.loads, out.splitlines() if code == EXIT_OK else []) if e["kind"] == "rank_lost"]

    def test_the_signal_that_ended_a_rank_is_shown_afterwards(self):
        process = self.start_sessions(self.slow_stream(samples=40000), ranks=2)
        killed = []
        for rank, other, number in ((1, 0, signal.SIGSEGV), (0, 1, signal.SIGKILL)):
            self.wait_until(lambda: self.delivered_by(rank) > 0, "rank %d has delivered" % rank)
            pid = self.rank_pids(process)[rank]
            signal_process(pid, number)
            name = number.name
            killed.append((pid, "the program ended without closing the session: " + name))
            for each in (rank, other):
                self.wait_until(lambda: any((one["pid"], one["end"]) == (pid, name) for one in self.lost_as_seen_by(each)), "rank %d knows the signal" % each)
            said = r"pid %d\): its process has ended: %s" % (pid, name)
            self.wait_until(lambda: any(re.search(said, text) for text in self.losses_in_events_of_rank_0()), "the event of rank %d's loss" % rank)
        ended = json.loads(self.penstock("sessions", "--ended", "--json")[1])["ended"]
        self.assertEqual({(one["pid"], one["reason"]) for one in ended}, set(killed))
        deaths = self.penstock("deaths", "--group", "slow")[1]
        self.assertRegex(deaths, r"rank 1 \(pid \d+\): SIGSEGV\n.*rank 0 \(pid \d+\): SIGKILL\n")
        self.assertIn("): SIGKILL\n", self.penstock("status", "--group", "slow")[1])
        self.assertRegex(self.penstock("status", "--session", "slow-rank1")[1], r"started again 1 time: the previous process \(pid \d+\) was lost at .* UTC: SIGSEGV\n")
        self.assertEqual(self.penstock("stop", "--group", "slow")[0], EXIT_OK)
        report = self.report_of(process)
        self.assertEqual([[one["signal"] for one in rank["process"]["earlier"]] for rank in report["ranks"]], [["SIGKILL"], ["SIGSEGV"]])

    def test_a_lost_session_ends_all_ranks_if_the_file_says_so(self):
        process = self.start_sessions(self.slow_stream(samples=4000), "--set", "group.on_lost_rank=fail", ranks=2)
        self.wait_until(lambda: self.delivered_by(1) > 0, "rank 1 has delivered")
        signal_process(self.rank_pids(process)[1], signal.SIGKILL)
        report = self.report_of(process, expect=EXIT_FAILED)
        self.assertEqual((report["restarts"], report["first_cause"]["rank"]), (0, 1))
        self.assertIn("SIGKILL", report["first_cause"]["cause"])

    def test_a_session_stopped_by_sigstop_is_replaced(self):
        process = self.start_sessions(self.slow_stream(samples=40000), "--set", "group.lost_after=3s", ranks=2)
        self.wait_until(lambda: self.delivered_by(1) > 2, "rank 1 has delivered")
        pid = self.rank_pids(process)[1]
        signal_process(pid, signal.SIGSTOP)
        self.wait_until(lambda: self.rank_pids(process).get(1, pid) != pid and self.delivered_by(1) > 2, "rank 1's replacement has delivered")
        self.assertEqual(self.penstock("stop")[0], EXIT_OK)
        report = self.report_of(process)
        self.assertEqual(report["restarts"], 1)
        first, second = (sum(epoch["batches"] for epoch in rank["epochs"]) for rank in report["ranks"])
        self.assertEqual(first, second)

    def test_a_group_resumes_from_its_state_with_a_different_number_of_ranks(self):
        config, state = self.slow_stream(epochs=1), os.path.join(self.folder, "group.state")
        seen = []
        for ranks, options in ((3, ["--batches", 5]), (2, [])):
            process = self.start_sessions(config, "--state", state, "--sink", "journal:" + os.path.join(self.folder, "seen"),
                                          *options, ranks=ranks)
            report = self.report_of(process)
            self.assertLessEqual(os.path.getsize(state), 1024)
            for rank in range(ranks):
                path = os.path.join(self.folder, "seen-rank%d" % rank)
                with open(path) as file:
                    seen += [sample for line in file for sample in json.loads(line).get("samples", [])]
                os.remove(path)
        self.assertEqual(sum(epoch["delivered"] for rank in report["ranks"] for epoch in rank["epochs"]), 400 - 3 * 5 * 10)
        self.assertEqual(sorted(seen), list(range(400)))

    def test_a_state_needs_sessions_and_a_writable_file(self):
        config = self.slow_stream()
        for arguments, words in [(["--", "true"], "--state needs a config file"), ([config], "no-such-folder")]:
            code, _, err = self.penstock("launch", "--gpus", "host:2", "--state", "no-such-folder/x", *arguments)
            self.assertIn(code, (EXIT_USAGE, EXIT_FAILED), err)
            self.assertIn(words, err)

    def test_the_secret_of_a_group_is_on_no_command_line_and_is_new_for_each_launch(self):
        secrets = set()
        for _ in range(2):
            _, out = self.launch('echo "$PENSTOCK_GROUP_STARTS $PENSTOCK_GROUP_ADDR $PENSTOCK_GROUP_SECRET"; '
                                 'tr "\\0" "\\n" </proc/$PPID/cmdline', ranks=2)
            lines = [line.split("] ")[1].split() for line in out.splitlines()]
            told = {tuple(words) for words in lines if words[0] == "0" and len(words) == 3}
            self.assertEqual(len(told), 1, out)
            _, address, secret = told.pop()
            self.assertTrue(address.startswith("@penstock-group/"), address)
            self.assertEqual(len(secret), 64)
            self.assertEqual(out.count(secret), 2)
            secrets.add(secret)
        self.assertEqual(len(secrets), 2)

    def test_doctor_names_the_folder_of_a_killed_launcher_and_prune_removes_it(self):
        temporary = os.path.join(self.folder, "tmp")
        other = os.path.join(temporary, "penstock-launch-of-somebody")
        os.makedirs(other)
        self.environment["TMPDIR"] = temporary
        process = self.start_sessions(self.slow_stream(samples=40000), ranks=2)
        self.wait_until(lambda: self.delivered_by(0) > 0, "rank 0 delivers")
        folder, = (os.path.join(temporary, name) for name in os.listdir(temporary) if os.path.join(temporary, name) != other)
        self.assertEqual(self.group_verb("sessions", "--prune")["removed_folders"], 0)
        self.assertTrue(os.path.isdir(folder), "a folder in use stays")
        ranks = self.rank_pids(process).values()
        process.kill()
        process.communicate()
        self.wait_until(lambda: not any(map(alive, ranks)), "the ranks are gone")
        rows = {row["id"]: row for row in json.loads(self.penstock("doctor", "--cpu-only", "--json")[1])["results"]}
        row = rows["leftovers.folders"]
        self.assertEqual((row["status"], row["observed"]), ("warn", folder))
        self.assertIn("penstock sessions --prune", row["remedy"])
        _, _, err = self.penstock("sessions")
        self.assertIn("1 folder was left by launchers that are gone\nnext: penstock sessions --prune\n", err)
        mine = self.environment["XDG_RUNTIME_DIR"]
        self.environment["XDG_RUNTIME_DIR"] = os.path.join(self.folder, "of-another")
        os.mkdir(self.environment["XDG_RUNTIME_DIR"])
        pruned = self.group_verb("sessions", "--prune")
        self.assertEqual((pruned["left_folders"], pruned["removed_folders"]), (0, 0))
        self.assertTrue(os.path.isdir(folder), "another one's stays")
        self.environment["XDG_RUNTIME_DIR"] = mine
        _, _, err = self.penstock("sessions", "--prune")
        self.assertIn("removed 1 folder of launchers that are gone\n", err)
        self.assertEqual(os.listdir(temporary), [os.path.basename(other)])

    def test_an_invalid_file_is_refused_once_before_any_process_starts(self):
        config = self.write("wrong.toml", '[dataset]\ntype = "nonsense"\n')
        code, out, err = self.penstock("launch", config, "--gpus", "host:4")
        self.assertEqual((code, out), (EXIT_CONFIG, ""), err)
        self.assertEqual(err.count("error: "), 1, err)

    def test_bad_input_is_refused_with_an_explanation(self):
        for arguments, words in [(["--gpus", "host:0", "--", "true"], "1 to 1024"),
                                 (["--gpus", "two", "--", "true"], "GPU numbers"),
                                 (["--gpus", "0,0", "--", "true"], "twice"),
                                 (["--gpus", "host:2", "--", "no-such-program"], "no program 'no-such-program'"),
                                 (["--gpus", "host:2", "--", self.folder], "not a program"),
                                 (["--gpus", "host:2", "--max-restarts", "-1", "--", "true"], "-1"),
                                 (["--gpus", "host:2"], "FILE|PROGRAM"),
                                 ([self.write("plain.toml", synthetic()), "--gpus", "host:2", "--out", "x"], "'x' needs --sink npy"),
                                 (["plain.toml", "--gpus", "host:2", "--sink", "nyp", "--out", "x"], "unknown --sink 'nyp'; choose null, npy"),
                                 (["plain.toml", "--gpus", "host:2", "--sink", "journal:"], "--sink journal: needs a file"),
                                 (["plain.toml", "--gpus", "host:2", "--sink", "npy"], "--sink npy needs --out DIR")]:
            code, out, err = self.penstock("launch", *arguments)
            self.assertEqual((code, out), (EXIT_USAGE, ""), err)
            self.assertIn(words, err)
            self.assertEqual(err.count("error: "), 1, err)


if __name__ == "__main__":
    main()
