"""Commands of penstock map: their environment and processes, how their output is written, and when a run ends."""

import array
import base64
import fcntl
import termios

from map_case import *

BINARY = bytes(range(256)) + b"\n\xff"


class EnvironmentTest(MapTest):
    ASK = "sh -c 'echo \"${CUDA_VISIBLE_DEVICES-none} ${OMP_NUM_THREADS-none} ${PENSTOCK_GROUP_SECRET-none}\"'"

    def answer(self, *arguments, **environment):
        for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PENSTOCK_GROUP_SECRET"):
            self.environment.pop(name, None)
        self.environment.update(environment)
        found, _ = self.map(*arguments, "--command", self.ASK, items=["a"])
        return found[0]["result"]["stdout"]

    def test_a_command_has_the_environment_of_the_caller_so_that_it_can_use_a_gpu_and_all_cores(self):
        self.assertEqual(self.answer(CUDA_VISIBLE_DEVICES="0,1", OMP_NUM_THREADS="7", PENSTOCK_GROUP_SECRET="secret"), "0,1 7 none\n")
        self.assertEqual(self.answer(), "none none none\n")

    def test_variables_that_the_config_sets_reach_commands(self):
        config = self.write("env.toml", '[jobs]\n[loader.env]\nOMP_NUM_THREADS = "3"\nCUDA_VISIBLE_DEVICES = "2"\n')
        self.assertEqual(self.answer(config, CUDA_VISIBLE_DEVICES="0", OMP_NUM_THREADS="7"), "2 3 none\n")

    def test_a_command_knows_the_number_of_its_worker(self):
        found, _ = self.map("--command", "sh -c 'sleep 0.1; echo $PENSTOCK_WORKER'", items=["a"] * 6, workers=2)
        self.assertEqual({line["result"]["stdout"] for line in found}, {"0\n", "1\n"})

    def test_few_descriptors_are_enough(self):
        self.write("in", "a\nb\n")
        done = subprocess.run(["sh", "-c", 'ulimit -n 200; exec "$0" "$@"', os.path.join(BIN, "penstock"), "map", "--command", "echo", "--raw",
                               "--input", "in", "--workers", "2"], cwd=self.folder, env=self.environment, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, b"a\nb\n"), done.stderr)


class ProcessTest(MapTest):
    def test_a_command_that_signals_its_process_group_does_not_affect_its_worker(self):
        found, _ = self.map("--command", self.script("trap '' TERM; kill 0; echo \"$PPID\""), items=["a", "b"], workers=1)
        self.assertEqual([(line["status"], line["attempts"]) for line in found], [("ok", 1)] * 2)
        self.assertEqual(len({line["result"]["stdout"] for line in found}), 1)  # the same worker ran all jobs

    def test_a_script_without_an_interpreter_is_run_by_the_shell(self):
        path = self.write("script", 'echo "[$1]"\n')
        os.chmod(path, 0o755)
        found, _ = self.map("--command", path + " {}", items=["a b"])
        self.assertEqual(found[0]["result"]["stdout"], "[a b]\n")

    def test_killing_a_worker_or_the_run_kills_its_commands_and_their_children(self):
        for what in ("worker", "run"):
            self.write("in", "one\n")
            script = self.script("trap '' HUP TERM INT; sleep 1000.25 & echo $$ $! > pids.new; mv pids.new pids; wait")
            process = self.start("map", "--command", script, "--input", "in", "--output", "out.jsonl", "--workers", 1, "--quiet",
                                 "--set", "jobs.idempotent=false")
            self.wait_until(lambda: os.path.exists(self.path("pids")), "the command")
            with open(self.path("pids")) as file:
                pids = [int(word) for word in file.read().split()]
            os.unlink(self.path("pids"))
            signal_process(self.workers_of(process)[0] if what == "worker" else process.pid, signal.SIGKILL)
            process.wait(timeout=30)
            self.wait_until(lambda: not any(alive(pid) for pid in pids), "the end of its processes", 10)

    def test_a_run_whose_reader_has_stopped_reading_ends_at_the_first_signal(self):
        self.write("in", "a\n" * 2000)
        process = self.start("map", "--command", "sh -c 'head -c 1000 /dev/zero | tr \"\\0\" x'", "--input", "in", "--quiet", "--workers", 2)

        def bytes_in_the_pipe():
            found = array.array("i", [0])
            fcntl.ioctl(process.stdout, termios.FIONREAD, found)
            return found[0]
        self.wait_until(lambda: bytes_in_the_pipe() > 40_000, "a pipe that is nearly full")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), EXIT_TERMINATED)
        self.assertIn(b"the program that reads them does not respond", process.stderr.read())

    def test_a_stop_ends_a_run_that_waits_for_lines_or_for_its_reader(self):
        self.write("in", "a\n" * 2000)
        for arguments in (("--input", "in"), ("--input", "-")):
            process = self.start("map", "--command", "sh -c 'head -c 1000 /dev/zero | tr \"\\0\" x'", *arguments, "--json", "--quiet", "--workers", 2,
                                 stdin=subprocess.PIPE)
            self.wait_until(lambda: self.penstock("wait", "--for=ready", "--timeout", "1s")[0] == EXIT_OK, "a worker")
            self.assertEqual(self.penstock("stop")[0], EXIT_OK)
            self.assertEqual(process.wait(timeout=20), EXIT_FAILED)
            self.assertEqual(json.loads(process.stderr.read().splitlines()[-1])["outcome"], "stopped")

    def test_with_quiet_nothing_is_printed_whatever_the_commands_do(self):
        items = ["x%d" % i for i in range(6)]
        self.write("in", "".join(item + "\n" for item in items))
        code, out, err = self.penstock("map", "--command", self.script("echo noise >&2; case $1 in *[135]) kill -SEGV $$;; esac; exit 3") + " {}",
                                       "--fail-on-exit", "--input", self.path("in"), "--output", self.path("out.jsonl"), "--workers", 2, "--quiet",
                                       "--set", "loader.restart.intensity.max=1000", timeout=120)
        self.assertEqual((code, out, err), (EXIT_FAILED, "", ""))
        self.assertEqual([line["status"] for line in self.lines()], ["exception", "poisoned"] * 3)


class OutputTest(MapTest):
    def setUp(self):
        super().setUp()
        with open(self.path("binary"), "wb") as file:
            file.write(BINARY)

    def written(self, *arguments, items, expect=EXIT_OK):
        """What `penstock map` writes to stdout, as bytes."""
        self.write("in", "".join(item + "\n" for item in items))
        process = self.start("map", *arguments, "--input", "in", "--workers", 2, "--quiet")
        out, self.err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, expect, self.err)
        return out

    def test_binary_output_is_available_in_the_json(self):
        found, _ = self.map("--command", "cat", items=[self.path("binary")])
        self.assertEqual(base64.b64decode(found[0]["result"]["stdout_base64"]), BINARY)
        self.assertNotIn("stderr_base64", found[0]["result"])

    def test_the_output_contains_the_input(self):
        found, _ = self.map("--command", "true", items=["a b", "\"x\"", "\tä"])
        self.assertEqual([line["input"] for line in found], ["a b", "\"x\"", "\tä"])
        found, _ = self.map(self.config(), "--function", "echo", items=["[1, 2]", "\"x\""])
        self.assertEqual([line["input"] for line in found], [[1, 2], "x"])

    def test_raw_output_is_what_the_commands_write_in_order_and_errors_go_to_stderr(self):
        out = self.written("--command", "sh -c 'cat \"$1\"; echo E >&2' sh {}", "--raw", items=[self.path("binary"), "/dev/null", self.path("binary")])
        self.assertEqual(out, BINARY + BINARY)
        self.assertEqual(self.err, b"E\n" * 3)
        # The first job finishes last: it waits for a file that the second job writes.
        first = self.script('case $1 in a) until test -e mark; do sleep 0.01; done; sleep 0.1;; b) touch mark;; esac; printf %s "$1"') + " {}"
        self.assertEqual(self.written("--command", first, "--raw", items=["a", "b"]), b"ab")

    def test_raw_output_can_also_be_restored_from_the_journal(self):
        arguments = ("--command", "cat", "--raw", "--journal", self.path("journal"))
        items = [self.path("binary"), "/dev/null"]
        self.assertEqual(self.written(*arguments, items=items), BINARY)
        os.unlink(self.path("binary"))
        self.assertEqual(self.written(*arguments, items=items), BINARY)

    def test_each_line_can_have_its_input_as_a_tag(self):
        out = self.written("--command", "printf '%s\\n%s' 1 {}", "--tag", items=["a", "b c"])
        self.assertEqual(out, b"a\t1\na\ta\nb c\t1\nb c\tb c\n")

    def test_results_are_written_to_files_byte_for_byte_even_those_of_killed_commands(self):
        script = self.script('cat "$1"; echo E >&2; case $1 in /*) ;; *) kill -KILL $$;; esac')
        found, _ = self.map("--command", script + " {}", "--results", self.path("made/results"), "--keep-output", "3B", "--set", "log.level=off",
                            items=[self.path("binary"), "binary"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["ok", "poisoned"])
        self.assertEqual(found[0]["result"]["stdout_bytes"], len(BINARY))
        for index in (0, 1):
            for name, contents in (("stdout", BINARY), ("stderr", b"E\n")):
                with open(self.path("made/results/%d.%s" % (index, name)), "rb") as file:
                    self.assertEqual(file.read(), contents)
        self.assertEqual(len(os.listdir(self.path("made/results"))), 4)

    def test_results_of_functions_can_be_files_too_and_a_folder_belongs_to_one_run(self):
        self.map(self.config(), "--function", "fill", "--results", self.path("results"), items=["300", "0"])
        with open(self.path("results/0.result"), "rb") as file:
            self.assertEqual(file.read(), bytes(i * 31 % 256 for i in range(300)))
        self.assertEqual(os.path.getsize(self.path("results/1.result")), 0)
        held = os.open(self.path("results"), os.O_RDONLY)
        self.addCleanup(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.assertIn("another run is writing its results to", self.refused("--command", "true", "--input", self.path("in"), "--results",
                                                                           self.path("results"), expect=EXIT_FAILED))

    def test_lines_can_end_with_nul(self):
        with open(self.path("in"), "wb") as file:
            file.write(b"a\nb\0c\0")
        for option in ("-0", "--null"):
            found, _ = self.map("--command", "echo", option)
            self.assertEqual([line["result"]["stdout"] for line in found], ["a\nb\n", "c\n"])

    def test_a_dry_run_prints_the_commands_and_runs_none(self):
        arguments = ("--command", "touch {} 'a b'", "--journal", self.path("journal"), "--output", self.path("out.jsonl"))
        self.assertEqual(self.written(*arguments, "--dry-run", items=["x", "it's"]), b"touch x 'a b'\ntouch 'it'\\''s' 'a b'\n")
        self.assertEqual(sorted(os.listdir(self.folder)), ["binary", "in"])
        lines = self.written(*arguments, "--dry-run", "--json", items=["x"])
        self.assertEqual(json.loads(lines), {"index": 0, "words": ["touch", "x", "a b"]})
        self.written(*arguments, items=["x"])
        self.assertEqual(self.written(*arguments, "--dry-run", items=["x", "y"]), b"touch y 'a b'\n")


class EndTest(MapTest):
    def test_a_run_can_end_at_the_first_failures(self):
        script = self.script('case $1 in bad*) exit 1;; esac; echo $1 >> ran; sleep 0.3') + " {}"
        items = ["good0", "bad1", "bad2"] + ["good%d" % i for i in range(3, 30)]
        found, summary = self.map("--command", script, "--fail-on-exit", "--halt", "soon,fail=2", items=items, expect=EXIT_FAILED)
        self.assertEqual(summary["outcome"], "failed")
        self.assertEqual(summary["error"]["message"], "2 jobs failed: ending the run because of --halt")
        self.assertEqual([line["status"] for line in found[:3]], ["ok", "exception", "exception"])
        self.assertGreater(summary["counts"]["cancelled"], 0)
        with open(self.path("ran")) as file:
            self.assertEqual(len(file.readlines()), summary["counts"]["ok"])  # jobs that had begun have finished

    def test_a_run_can_cancel_running_jobs_at_the_first_failure(self):
        script = self.script('case $1 in bad) until test -e running; do sleep 0.01; done; exit 1;; esac; touch running; sleep 1000.5') + " {}"
        found, summary = self.map("--command", script, "--fail-on-exit", "--halt", "now,fail=1", items=["sleeps", "bad"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["cancelled", "exception"])
        self.assertEqual(summary["counts"]["ok"], 0)

    def test_mistakes_in_the_option_halt_are_reported(self):
        for wrong in ("soon", "fail=1", "now,fail=0", "now,fail=x", "later,fail=1"):
            self.assertIn("must be never, soon,fail=N or now,fail=N", self.refused("--command", "true", "--halt", wrong))

    def test_the_job_log_has_start_signal_and_seconds_of_jobs_that_were_killed(self):
        script = self.script('sleep 0.2; case $1 in die) kill -SEGV $$;; slow) sleep 1000.5;; esac') + " {}"
        self.map("--command", script, "--timeout", "3s", "--job-log", self.path("log"), "--set", "log.level=off",
                 items=["ok", "die", "slow"], expect=EXIT_FAILED)
        with open(self.path("log")) as file:
            log = {line["line"]: line for line in map(json.loads, file)}
        self.assertEqual({name: line["signal"] for name, line in log.items() if name != "slow"}, {"ok": None, "die": "SIGSEGV"})
        self.assertGreaterEqual(log["slow"]["seconds"], 3)
        for line in log.values():
            self.assertGreaterEqual(line["seconds"], 0.2)
            self.assertLess(line["started"], line["time"])
            self.assertRegex(line["started"], r"^\d{4}-\d\d-\d\dT.*Z$")

    def test_jobs_that_had_begun_at_ctrl_c_have_an_attempt_and_its_duration(self):
        self.write("in", "a\nb\nc\n")
        process = self.start("map", "--command", "sh -c 'touch run-$1; sleep 1000.5' sh {}", "--input", "in", "--output", "out.jsonl", "--job-log", "log",
                             "--workers", 2, "--quiet")
        self.wait_until(lambda: sum(name.startswith("run-") for name in os.listdir(self.folder)) == 2, "two commands")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=20), EXIT_INTERRUPTED)
        begun = {name[len("run-"):] for name in os.listdir(self.folder) if name.startswith("run-")}
        self.assertEqual({line["input"]: line["attempts"] for line in self.lines()}, {name: int(name in begun) for name in "abc"})
        with open(self.path("log")) as file:
            log = [json.loads(line) for line in file]
        self.assertEqual({line["line"] for line in log}, begun)
        for line in log:
            self.assertEqual((line["status"], line["seconds"] is not None, line["started"] is not None), ("cancelled", True, True), line)


if __name__ == "__main__":
    main()
