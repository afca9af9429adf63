"""penstock map: one job per line, and results in the order of the lines, whatever dies."""

import random
import re
import socket
import time
import urllib.request

from map_case import *

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class CommandTest(MapTest):
    def test_each_line_becomes_an_argument_of_the_command_and_has_one_line_of_output(self):
        items = ["a", "two words", "", "$(echo no)", "'\"\\", "-n", "ä"]
        found, summary = self.map("--command", "printf '[%s]' {}", items=items)
        self.assertEqual([line["index"] for line in found], list(range(len(items))))
        self.assertEqual([line["result"] for line in found],
                         [{"exit": 0, "stdout": "[%s]" % item, "stderr": ""} for item in items])
        self.assertEqual({(line["attempts"], line["error"]) for line in found}, {(1, None)})
        self.assertEqual(summary["outcome"], "finished")
        self.assertIsNone(summary["error"])
        self.assertGreater(summary["seconds"], 0)

    def test_the_input_of_a_command_is_a_pipe_and_so_is_its_output(self):
        process = self.start("map", "--command", "echo", "--quiet", "--json", stdin=subprocess.PIPE)
        out, err = process.communicate(b"one\ntwo", timeout=60)
        self.assertEqual(process.returncode, EXIT_OK, err)
        self.assertEqual([json.loads(line)["result"]["stdout"] for line in out.splitlines()], ["one\n", "two\n"])
        self.assertEqual(json.loads(err)["counts"]["ok"], 2)

    def test_a_result_arrives_while_the_input_is_still_open(self):
        process = self.start("map", "--command", "echo", "--quiet", stdin=subprocess.PIPE)
        process.stdin.write(b"first\n")
        process.stdin.flush()
        self.assertEqual(json.loads(process.stdout.readline())["result"]["stdout"], "first\n")
        process.stdin.write(b"second\n")
        process.stdin.close()
        process.stdin = None
        self.assertEqual(json.loads(process.stdout.readline())["index"], 1)
        self.assertEqual(process.wait(timeout=30), EXIT_OK)

    def test_an_exit_code_is_a_result_unless_it_should_count_as_a_failure(self):
        found, summary = self.map("--command", "sh -c 'echo out; echo err >&2; exit \"$1\"' sh {}", items=["0", "3"])
        self.assertEqual([line["status"] for line in found], ["ok", "ok"])
        self.assertEqual(found[1]["result"], {"exit": 3, "stdout": "out\n", "stderr": "err\n"})
        self.assertEqual(summary["nonzero_exits"], 1)
        found, summary = self.map("--command", "sh -c 'echo out; echo err >&2; exit \"$1\"' sh {}", "--fail-on-exit",
                                  items=["0", "3"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["ok", "exception"])
        self.assertEqual(found[1]["result"]["stdout"], "out\n")
        self.assertEqual(found[1]["error"], {"type": "exit", "text": "the command exited with 3"})
        self.assertEqual(summary["outcome"], "finished")

    def test_a_command_that_is_always_ended_by_a_signal_is_named_and_the_others_have_their_results(self):
        items = ["x%d" % i for i in range(20)]
        items[7] = "die"
        found, summary = self.map("--command", "sh -c 'test \"$1\" != die || kill -SEGV $$; echo \"$1\"' sh {}",
                                  "--set", "log.level=error", items=items, expect=EXIT_FAILED)
        self.assertEqual([line["index"] for line in found if line["status"] != "ok"], [7])
        self.assertEqual((found[7]["status"], found[7]["attempts"], found[7]["result"]), ("poisoned", 3, None))
        self.assertEqual(len(found[7]["error"]["causes"]), 3)
        self.assertIn("SIGSEGV", found[7]["error"]["causes"][0])
        self.assertEqual([line["result"]["stdout"] for line in found if line["index"] != 7],
                         [item + "\n" for item in items if item != "die"])
        self.assertEqual(summary["counts"]["poisoned"], 1)

    def test_commands_that_exit_with_a_code_other_than_0_are_retried(self):
        script = self.script('echo x >> "$1"; test $(wc -l < "$1") -ge "$2"')
        items = [self.path("third time"), self.path("other")]
        found, _ = self.map("--command", "%s {} 3" % script, "--retries", 5, "--fail-on-exit", items=items)
        self.assertEqual([(line["status"], line["attempts"]) for line in found], [("ok", 3), ("ok", 3)])
        for item in items:
            os.unlink(item)
        found, _ = self.map("--command", "%s {} 9" % script, "--retries", 2, "--fail-on-exit", items=items, expect=EXIT_FAILED)
        self.assertEqual([(line["status"], line["attempts"]) for line in found], [("exception", 3)] * 2)

    def test_a_command_that_takes_too_long_is_ended_with_everything_that_it_has_started(self):
        found, _ = self.map("--command", "sh -c 'test \"$1\" = quick || { sleep 1000.25 & echo $! > \"$2\"; wait; }' sh {} " + self.path("pid"),
                            "--timeout", "300ms", "--set", "log.level=error", items=["quick", "slow"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["ok", "timed_out"])
        with open(self.path("pid")) as file:
            self.assertFalse(alive(int(file.read())))

    # Starts a process in its own session, and one that has also lost its parent; the files below contain their pids.
    LEAVE = ("setsid sh -c 'echo $$ > with-parent; exec sleep 1000.25' & "
             "(setsid sh -c 'echo $$ > orphan; exec sleep 1000.25' &) ; "
             "until test -s with-parent && test -s orphan; do sleep 0.02; done; ")

    def left(self):
        found = []
        for name in ("with-parent", "orphan"):
            with open(self.path(name)) as file:
                found.append(int(file.read()))
            self.addCleanup(lambda pid=found[-1]: name_of(pid) == "sleep" and signal_process(pid, signal.SIGKILL))
        return found

    def test_a_command_that_takes_too_long_is_ended_together_with_processes_that_have_left_its_group_or_lost_their_parent(self):
        found, _ = self.map("--command", self.script(self.LEAVE + "wait"), "--timeout", "3s", "--set", "log.level=off", items=["a"],
                            expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["timed_out"])
        left = self.left()
        self.wait_until(lambda: not any(map(alive, left)), "the end of all that the command has started", 5)

    def test_a_command_ended_by_a_signal_or_for_its_memory_takes_with_it_the_processes_that_have_left_its_group(self):
        use = "python3 -c 'import time; x = bytearray(200 << 20); time.sleep(1000)'"
        for what, status in (("kill -SEGV $$", "poisoned"), (use, "exception")):
            found, _ = self.map("--command", self.script("ulimit -c 0\n" + self.LEAVE + what), "--memory", "100MiB", "--set",
                                "quarantine.max_attempts=1", "--set", "log.level=off", items=["a"], expect=EXIT_FAILED)
            self.assertEqual([line["status"] for line in found], [status])
            left = self.left()
            self.wait_until(lambda: not any(map(alive, left)), "the end of all that the command has started", 5)
            os.unlink(self.path("with-parent"))
            os.unlink(self.path("orphan"))

    def test_processes_left_by_a_finished_command_are_not_killed_with_a_later_one(self):
        script = self.script('if test "$1" = leave; then %s exit 0; fi\nsleep 1000.25' % self.LEAVE)
        found, _ = self.map("--command", script, "--timeout", "3s", "--set", "log.level=off", items=["leave", "wait"], workers=1,
                            expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["ok", "timed_out"])
        self.assertEqual([alive(pid) for pid in self.left()], [True, True])

    def test_orphans_of_a_command_do_not_accumulate_as_zombies(self):
        script = self.script("for i in 1 2 3 4 5; do (sleep 0.01 & echo $! >> orphans) ; done; echo > all; exec sleep 1000.25")
        process = self.start("map", "--command", script, "--workers", 1, "--quiet", stdin=subprocess.PIPE)
        process.stdin.write(b"a\n")
        process.stdin.flush()
        self.wait_until(lambda: os.path.exists(self.path("all")), "the command")
        with open(self.path("orphans")) as file:
            orphans = [int(line) for line in file]
        self.assertEqual(len(orphans), 5)
        self.wait_until(lambda: {state_and_parent(pid)[0] for pid in orphans} == {"X"}, "the reaping of all orphans")
        self.assertEqual(len(self.workers_of(process)), 1)

    def test_output_beyond_the_kept_part_is_counted(self):
        found, _ = self.map("--command", "head -c 100000 /dev/zero --", "--keep-output", "1KiB", "--set", "log.level=error", items=["/dev/zero"])
        self.assertEqual(len(found[0]["result"]["stdout"]), 1024)
        self.assertGreaterEqual(found[0]["result"]["stdout_bytes"], 100000)
        self.assertNotIn("stderr_bytes", found[0]["result"])

    def test_a_command_that_uses_too_much_memory_is_ended_and_others_are_not(self):
        program = self.write("use.py", "import sys, time\nx = bytearray(int(sys.argv[1]) << 20)\n"
                                       "if len(x) > 100 << 20: time.sleep(1000)\nprint(len(x))\n")
        found, _ = self.map("--command", "python3 %s {}" % program, "--memory", "100MiB", "--set", "log.level=error",
                            items=["1", "200", "2"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["ok", "exception", "ok"])
        self.assertEqual((found[1]["attempts"], found[1]["error"]["type"]), (1, "memory"))
        self.assertRegex(found[1]["error"]["text"], r"^the command used [12]\d\d MiB of memory; the limit is 100 MiB$")

    def test_the_job_log_has_one_timed_line_per_job_including_those_of_a_continued_run(self):
        arguments = ("--command", "sh -c 'sleep 0.1; exit \"$1\"' sh {}", "--fail-on-exit", "--job-log", self.path("log"),
                     "--journal", self.path("journal"))
        self.map(*arguments, items=["0", "3"], expect=EXIT_FAILED)
        self.map(*arguments, items=["0", "3", "00"], expect=EXIT_FAILED)
        with open(self.path("log")) as file:
            log = [json.loads(line) for line in file.read().splitlines()]
        log.sort(key=lambda line: line["index"])
        self.assertEqual([(line["index"], line["status"], line["exit"], line["line"]) for line in log],
                         [(0, "ok", 0, "0"), (1, "exception", 3, "3"), (2, "ok", 0, "00")])
        self.assertEqual(log[1]["text"], "the command exited with 3")
        for line in log:
            self.assertTrue(0.1 <= line["seconds"] < 30, line)
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT.*Z$")

    def test_a_job_log_on_a_full_disk_ends_the_run(self):
        _, summary = self.map("--command", "true", "--job-log", "/dev/full", items=["a"] * 100, expect=EXIT_FAILED)
        self.assertIn("writing the job log '/dev/full'", summary["error"]["message"])

    def test_an_output_on_a_full_disk_ends_the_run_and_the_journal_has_the_finished_jobs(self):
        self.write("in", "a\n" * 100)
        arguments = ("map", "--command", "echo", "--input", self.path("in"), "--journal", self.path("journal"), "--json", "--quiet")
        code, out, err = self.penstock(*arguments, "--output", "/dev/full")
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn("writing the results to '/dev/full': No space left on device", json.loads(out)["error"]["message"])
        code, out, err = self.penstock(*arguments, "--output", self.path("out.jsonl"))
        self.assertEqual(code, EXIT_OK, err)
        self.assertGreater(json.loads(out)["from_journal"], 0)
        self.assertEqual([line["result"]["stdout"] for line in self.lines()], ["a\n"] * 100)

    def test_a_line_with_a_byte_that_no_argument_can_hold_is_named(self):
        with open(self.path("in"), "wb") as file:
            file.write(b"a\nb\0c\nd\n")
        found, summary = self.map("--command", "echo", expect=EXIT_FAILED)
        self.assertEqual(len(found), 1)
        self.assertIn("line 2 of", summary["error"]["message"])
        self.assertIn("contains a NUL byte", summary["error"]["message"])

    def test_if_bad_lines_are_skipped_a_line_that_no_argument_can_hold_does_not_affect_the_others(self):
        with open(self.path("in"), "wb") as file:
            file.write(b"a\nb\0c\n\0\nd\n")
        found, summary = self.map("--command", "echo", "--on-bad-line", "skip", "--set", "log.level=warn")
        self.assertEqual([(line["index"], line["result"]["stdout"]) for line in found], [(0, "a\n"), (3, "d\n")])
        self.assertEqual((summary["outcome"], summary["skipped_lines"]), ("finished", 2))
        self.assertRegex(self.err, r"line 2 of .* is skipped: it contains a NUL byte")

    def test_an_output_that_another_run_is_writing_is_refused_and_stays_intact(self):
        self.write("hold", "")
        script = self.script('echo "$1" >> ran; while test -e hold; do sleep 0.02; done; echo "$1"') + " {}"
        self.write("in", "a\nb\n")
        arguments = ("map", "--command", script, "--input", "in", "--json", "--quiet", "--output")
        first = self.start(*arguments, "out.jsonl")
        self.wait_until(lambda: os.path.exists(self.path("ran")), "the first run's jobs")
        os.link(self.path("out.jsonl"), self.path("other name"))
        for name in ("out.jsonl", "other name"):
            code, out, err = self.penstock(*arguments, name)
            self.assertEqual(code, EXIT_FAILED, err)
            self.assertEqual(json.loads(out)["error"]["message"],
                             "another run is writing the output '%s' (pid %d): wait until it has ended, stop it, or choose another path" % (name, first.pid))
        os.unlink(self.path("hold"))
        self.assertEqual(first.wait(timeout=30), EXIT_OK)
        self.assertEqual([line["result"]["stdout"] for line in self.lines()], ["a\n", "b\n"])
        self.assertEqual(self.penstock(*arguments, "out.jsonl")[0], EXIT_OK)

    def test_an_empty_input_has_an_empty_output(self):
        self.assertEqual(self.map("--command", "true", items=[])[0], [])

    def test_mistakes_in_the_command_line_are_reported_before_any_work_starts(self):
        self.write("in", "a\n")
        self.write("out.jsonl", "precious\n")
        files = ("--input", self.path("in"), "--output", self.path("out.jsonl"))
        for arguments, words in (((), "--function NAME"),
                                 (("--command", "true", "--function", "f"), "--command"),
                                 (("--function", "f"), "needs FILE"),
                                 (("--command", "cat {} > x"), "runs without a shell"),
                                 (("--command", "'open"), "not closed"),
                                 (("--command", ""), "--function NAME"),
                                 (("--command", "no-such-program-anywhere {}"), "no program 'no-such-program-anywhere' in PATH"),
                                 (("--command", "./no-such-program {}"), "'./no-such-program' does not exist"),
                                 (("--command", "/ {}"), "'/' is a folder, not a program"),
                                 (("--command", self.path("in") + " {}"), "is not an executable program: `chmod +x`"),
                                 (("--command", "true", "--retry-failed"), "--journal"),
                                 (("--command", "true", "--journal", self.path("in")), "same file"),
                                 (("--command", "true", "--job-log", self.path("in")), "same file"),
                                 (("--command", "true", "--keep-output", "many"), "--keep-output"),
                                 (("--command", "true", "--memory", "much"), "--memory"),
                                 ((self.config(), "--function", "f", "--memory", "1GiB"), "[loader.limits] memory"),
                                 (("--command", "true", "--retries", "-1"), "whole number"),
                                 (("--command", "true", "--on-bad-line", "ignore"), "ignore"),
                                 ((self.config(), "--function", "f", "--fail-on-exit"), "--fail-on-exit")):
            self.assertIn(words, self.refused(*arguments, *files), arguments)
        self.assertIn("same file", self.refused("--command", "true", "--input", self.path("in"), "--output", self.path("in")))
        self.assertIn("nowhere", self.refused("--command", "true", "--input", self.path("nowhere"), expect=EXIT_FAILED))
        for option, value, key in (("--timeout", "soon", "jobs.timeout"), ("--workers", "0", "loader.workers"),
                                   ("--workers", "many", "loader.workers"), ("--set", "loader.workers=0", "loader.workers")):
            code, out, _ = self.penstock("map", "--command", "true", option, value, "--json", *files)
            self.assertEqual(code, EXIT_USAGE, option)
            self.assertEqual([one["key"] for one in json.loads(out)["diagnostics"]], [key])
            self.assertNotIn("samples", out)
        wrong = self.write("wrong.toml", "[loader]\nworkers = 0\n")
        for more in ((), ("--timeout", "soon")):
            self.assertEqual(self.penstock("map", wrong, "--command", "true", *more, *files)[0], EXIT_CONFIG)
        with open(self.path("out.jsonl")) as file:
            self.assertEqual(file.read(), "precious\n")

    def test_a_reader_that_closes_its_end_ends_the_run(self):
        process = self.start("map", "--command", "echo", "--quiet", stdin=subprocess.PIPE)
        process.stdout.close()
        process.stdin.write(b"a\n" * 100)
        process.stdin.flush()
        self.assertEqual(process.wait(timeout=30), EXIT_FAILED)
        self.assertIn(b"writing the results", process.stderr.read())
        process.stdout = None

    def test_failures_are_shown_with_their_lines(self):
        self.write("in", "0\n4\n")
        code, out, err = self.penstock("map", "--command", "sh -c 'echo reason >&2; exit \"$1\"' sh {}", "--fail-on-exit",
                                       "--input", self.path("in"), "--output", self.path("out.jsonl"))
        self.assertEqual(code, EXIT_FAILED)
        self.assertEqual(out, "")
        self.assertIn("line 2 (index 1): exception: the command exited with 4: reason", err)
        self.assertRegex(err, r"finished after .*: 2 jobs: 1 ok, 1 exception")

    def test_further_failures_are_mentioned_only_if_there_are_any(self):
        for count in (10, 11):
            self.write("in", "4\n" * count)
            _, _, err = self.penstock("map", "--command", "sh -c 'exit \"$1\"' sh {}", "--fail-on-exit", "--input", self.path("in"),
                                      "--output", self.path("%d.jsonl" % count))
            self.assertEqual(err.count(": exception: "), 10, err)
            self.assertEqual("further failed jobs are listed only in the output" in err, count > 10, err)

    def test_status_counts_jobs_like_the_closing_line(self):
        self.write("in", "0\n4\n0\nslow\n5\n")
        script = self.script('test "$1" != slow || exec sleep 1000.25; exit $1') + " {}"
        run = ("map", "--command", script, "--timeout", "3s", "--input", "in", "--output", "out.jsonl", "--workers", 2)
        for arguments, closing, counts in (((), "4 ok, 2 of them exited with a code other than 0 .*, 1 timed_out", (5, 4, 1, 2)),
                                           (("--fail-on-exit",), "2 ok, 2 exception, 1 timed_out", (5, 2, 3, 0)),
                                           (("--fail-on-exit", "--retries", 2), "2 ok, 2 exception, 1 timed_out", (5, 2, 3, 0))):
            _, _, err = self.penstock(*run, *arguments)
            self.assertRegex(err, "5 jobs: " + closing)
            jobs = json.loads(self.penstock("status", "--last", "--json")[1])["jobs"]
            self.assertEqual((jobs["submitted"], jobs["ok"], jobs["failed"], jobs["nonzero_exits"]), counts)
            self.assertEqual((jobs["functions"][0]["ok"], jobs["functions"][0]["failed"]), counts[1:3])

    def test_a_job_is_named_by_its_line_number_everywhere_and_has_one_warning(self):
        script = self.script('case $1 in slow) exec sleep 1000.25;; die) kill -SEGV $$;; esac') + " {}"
        arguments = ("--command", script, "--journal", self.path("journal"))
        self.map(*arguments, items=["a", "b", "c"])
        self.write("in", "a\nb\nc\nslow\nd\ndie\n")
        code, _, err = self.penstock("map", *arguments, "--timeout", "3s", "--input", "in", "--output", "out.jsonl", "--workers", 1)
        self.assertEqual(code, EXIT_FAILED)
        self.assertEqual([line.partition("warning ")[2].split(":")[1:3] for line in err.splitlines() if " warning " in line],
                         [[" line 4 (index 3)", " timed_out"], [" line 6 (index 5)", " poisoned"]])
        self.assertNotRegex(err, r"job [^46s]")
        _, out, _ = self.penstock("status", "--last")
        self.assertRegex(out, r"job 4 \(.*script\.sh slow\) hung 1 time: .*, its time limit\n")
        self.assertNotIn("a time limit does", out)
        deaths = json.loads(self.penstock("deaths", "--last", "--json")[1])
        self.assertEqual({one["job"] for one in deaths["deaths"]}, {4, 6})
        self.assertEqual([one["job"] for one in json.loads(self.penstock("quarantine", "list", "--last", "--json")[1])["quarantine"]], [6])


class FunctionTest(MapTest):
    def test_each_line_is_the_argument_of_the_function_and_its_return_value_is_the_result(self):
        items = ["1", "12", '{"a": 12345678901234567890123}', '"text"', "null", "[1,2]"]
        found, _ = self.map(self.config(), "--function", "echo", items=items)
        self.assertEqual([line["result"] for line in found], [json.loads(item) for item in items])
        with open(self.path("out.jsonl")) as file:
            self.assertIn("12345678901234567890123", file.read())
        found, _ = self.map(self.config(), "--function", "double", items=["21", "-4"])
        self.assertEqual([line["result"] for line in found], [42, -8])

    def test_a_result_that_is_not_json_becomes_a_string(self):
        found, _ = self.map(self.config(), "--function", "sleep", items=["1"])
        self.assertEqual(found[0]["result"], "awake")
        found, _ = self.map(self.config(), "--function", "nothing", items=["1"])
        self.assertEqual(found[0]["result"], "")

    def test_results_behind_a_slow_job_and_its_retry_stay_within_the_memory_limit(self):
        # A NUL byte takes six characters in JSON. The first job fails once, when the others have filled the memory.
        script = self.script('if [ "$1" != 0 ]; then head -c 300000 /dev/zero; exit; fi\n'
                             'while [ ! -e go ]; do sleep 0.05; done\n[ -e again ] || { touch again; exit 3; }\n')
        self.write("in", "".join("%d\n" % i for i in range(150)))
        process = self.start("map", "--command", script, "--input", "in", "--output", "out.jsonl", "--workers", 2, "--quiet",
                             "--retries", 1, "--set", "jobs.memory=16MiB", "--set", "log.level=error")
        seen = [-1] * 20

        def moved_before():
            code, out, err = self.penstock("status", "--json")
            if code == 0:
                seen.append(json.loads(out)["jobs"]["ok"])
            return seen[-1] > 0 and len(set(seen[-8:])) == 1

        self.wait_until(moved_before, "the memory to be full", seconds=60)
        self.assertLess(seen[-1], 16 * 1024 * 1024 // 300_000)
        with open("/proc/%d/status" % process.pid) as status:
            most = int(status.read().split("VmHWM:")[1].split()[0])
        self.assertLess(most, 120_000)
        self.write("go", "")
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_OK, err)
        found = self.lines()
        self.assertEqual([line["index"] for line in found], list(range(150)))
        self.assertEqual(found[0]["attempts"], 2)
        self.assertEqual({len(line["result"]["stdout"]) for line in found[1:]}, {300000})

    def test_an_exception_has_its_type_text_and_traceback(self):
        found, _ = self.map(self.config(), "--function", "throws_own", items=["1"], expect=EXIT_FAILED)
        self.assertEqual((found[0]["status"], found[0]["attempts"], found[0]["result"]), ("exception", 1, None))
        self.assertEqual(found[0]["error"], {"type": "ZeroDivisionError", "text": "division by zero", "traceback": "line 1\nline 2"})

    def test_a_function_that_does_not_exist_ends_the_run_and_the_error_lists_the_existing_ones(self):
        found, summary = self.map(self.config("[jobs]\nqueue = 4\n"), "--function", "dubble", items=["1"] * 1000, expect=EXIT_FAILED)
        self.assertEqual({line["status"] for line in found}, {"exception"})
        self.assertLess(len(found), 1000)
        self.assertIn("no function 'dubble'; it has: ", summary["error"]["message"])
        self.assertIn("double", summary["error"]["message"])

    def test_the_death_of_a_worker_costs_a_job_only_another_attempt(self):
        found, _ = self.map(self.config(), "--function", "kill_once", items=["1", "2", "3"])
        self.assertEqual([(line["status"], line["result"], line["attempts"]) for line in found], [("ok", "alive", 2)] * 3)

    def test_a_line_that_is_not_json_ends_the_run_after_the_lines_before_it_and_is_named_by_its_number(self):
        found, summary = self.map(self.config(), "--function", "echo", items=["1", "2", "{", "4"], expect=EXIT_FAILED)
        self.assertEqual([line["result"] for line in found], [1, 2])
        self.assertEqual(summary["outcome"], "failed")
        self.assertIn("line 3 of", summary["error"]["message"])
        self.assertIn("is not JSON", summary["error"]["message"])

    def test_bad_lines_can_be_skipped_and_are_named_by_number(self):
        found, summary = self.map(self.config('[jobs]\nqueue = 4\n'), "--function", "echo", "--on-bad-line", "skip",
                                  "--set", "log.level=warn", items=["1", "", "x", "4"])
        self.assertEqual([(line["index"], line["result"]) for line in found], [(0, 1), (3, 4)])
        self.assertEqual(summary["skipped_lines"], 2)
        self.assertIn("line 2 of", self.err)
        self.assertIn("line 3 of", self.err)

    def test_an_argument_or_a_result_beyond_the_memory_of_the_pool_fails_only_its_job(self):
        config = self.config('[jobs]\nmemory = "1MiB"\n')
        found, _ = self.map(config, "--function", "echo", items=["1", '"%s"' % ("x" * (3 << 20)), "3"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["ok", "too_large", "ok"])
        found, _ = self.map(config, "--function", "fill", items=["10", str(3 << 20), "10"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["ok", "too_large", "ok"])

    def test_a_missing_worker_program_ends_the_run_with_the_reason_even_for_few_lines(self):
        config = self.write("jobs.toml", '[loader]\ncommand = ["./no-such-program"]\n[log]\nlevel = "off"\n')
        _, summary = self.map(config, "--function", "echo", items=["1"], expect=EXIT_FAILED)
        self.assertEqual(summary["outcome"], "failed")
        self.assertIn("no-such-program", summary["error"]["message"])

    def test_a_worker_program_that_is_not_for_pools_ends_the_run_with_the_reason(self):
        config = self.write("jobs.toml", "[jobs]\nqueue = 4\n[log]\nlevel = \"off\"\n")
        self.write("in", "1\n" * 10)
        code, out, err = self.penstock("map", config, "--function", "echo", "--input", self.path("in"), "--output", self.path("out.jsonl"),
                                       "--json", "--quiet", timeout=60)
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertEqual(json.loads(out)["outcome"], "failed")
        self.assertIn("job_main", json.loads(out)["error"]["message"])

    def programs(self, placement="process"):
        return self.config('[gpu]\ndevice = "host"\nplacement = "%s"\n[jobs.programs]\nbroken = "%s"\nodd = "%s"\n'
                           % (placement, self.write("broken.so", "no library"), os.path.join(BIN, "device_programs", "odd_job_program.so")))

    def test_a_device_program_gets_the_result_of_the_function_and_makes_the_result_of_the_job(self):
        for placement in ("process", "embedded"):
            found, _ = self.map(self.programs(placement), "--function", "fill", "--program", "odd", items=["3", "5"])
            # The program returns the sum of the bytes as an 8-byte number.
            self.assertEqual([line["result"] for line in found],
                             [sum(i * 31 for i in range(count)).to_bytes(8, "little").decode() for count in (3, 5)])

    def test_a_device_program_that_cannot_be_loaded_costs_each_job_its_result(self):
        found, summary = self.map(self.programs(), "--function", "fill", "--program", "broken", items=["10", "20"], expect=EXIT_FAILED)
        self.assertEqual([line["status"] for line in found], ["device"] * 2)
        self.assertIn("broken.so", found[0]["error"]["text"])
        self.assertEqual(summary["counts"]["device"], 2)

    def test_mistakes_with_device_programs_are_reported_before_any_work_starts(self):
        self.write("in", "1\n")
        self.assertIn("broken, odd", self.refused(self.programs(), "--function", "fill", "--program", "od", "--input", self.path("in")))
        self.assertIn("--function", self.refused("--command", "true", "--program", "odd", "--input", self.path("in")))
        journal = ["--function", "fill", "--journal", self.path("journal")]
        self.map(self.programs(), *journal, items=["10"])
        self.assertIn("belongs to other work", self.refused(self.programs(), *journal, "--program", "odd", "--input", self.path("in"),
                                                            "--output", self.path("other"), expect=EXIT_FAILED))

    def test_fifty_thousand_lines_take_no_more_memory_than_a_thousand(self):
        def peak(count):
            with open(self.path("in"), "w") as file:
                for i in range(count):
                    file.write('"%s"\n' % ("x" * 500))
            # Lines that wait behind a line whose worker is stopped count, too.
            process = self.start("map", self.config("[jobs]\nqueue = 64\nmemory = \"4MiB\"\n"), "--function", "echo", "--input", self.path("in"),
                                 "--output", "/dev/null", "--workers", 2, "--quiet")
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, EXIT_OK)
            return usage.ru_maxrss
        few, many = peak(1000), peak(50000)
        self.assertLess(many, few + 32 * 1024, "KiB")


class FaultTest(MapTest):
    JOBS = int(os.environ.get("PENSTOCK_SOAK_JOBS", 1000))

    def test_while_workers_and_commands_are_killed_at_random_no_job_is_lost_and_the_output_is_complete_and_in_order(self):
        items = ["%d-%d" % (i, random.randrange(1 << 30)) for i in range(self.JOBS)]
        self.write("in", "".join(item + "\n" for item in items))
        # Three deaths poison a job, and the fault injector may hit the same job three times.
        process = self.start("map", "--command", "sh -c 'echo \"$1\"; echo \"$1\" >&2' sh {}", "--input", "in", "--output", "out.jsonl",
                             "--workers", 2, "--json", "--quiet", "--set", "quarantine.max_attempts=100", "--set", "log.level=off",
                             "--set", "loader.restart.intensity.max=1000",
                             "--set", "loader.restart.intensity.within=1s", "--set", "loader.restart.backoff.base=1ms",
                             "--set", "loader.restart.backoff.max=5ms")
        killed = 0
        while process.poll() is None:
            victims = descendants_of(process.pid)
            if victims:
                try:
                    signal_process(random.choice(victims), signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
            try:
                process.wait(timeout=random.uniform(0, 0.05))
            except subprocess.TimeoutExpired:
                pass
        out, err = process.communicate()
        told = "%d kills\n%s" % (killed, err.decode())
        self.assertEqual(process.returncode, EXIT_OK, told)
        found = self.lines()
        self.assertEqual([line["index"] for line in found], list(range(len(items))), told)
        self.assertEqual([line["result"] for line in found], [{"exit": 0, "stdout": i + "\n", "stderr": i + "\n"} for i in items], told)
        self.assertEqual(json.loads(out)["counts"]["ok"], len(items), told)
        self.assertGreater(killed, 5, told)
        print("%d jobs: %d kills, %d jobs tried again" % (len(items), killed, sum(line["attempts"] > 1 for line in found)))


class LifeTest(MapTest):
    def live(self, *more):
        process = self.start("map", "--command", "sleep", "--input", self.write("in", "1000.5\n" * 10), "--output", "out.jsonl",
                             "--workers", 2, "--set", "log.level=error", *more)
        self.wait_until(lambda: sum(name_of(pid) == "sleep" for pid in descendants_of(process.pid)) == 2, "two commands")
        return process

    def test_ctrl_c_cancels_running_jobs_and_leaves_nothing_behind(self):
        process = self.live("--json", "--quiet")
        below = descendants_of(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        self.assertEqual(process.returncode, EXIT_INTERRUPTED, err)
        self.assertIn(b"cancelling running jobs", err)
        self.assertEqual(json.loads(out)["counts"]["cancelled"], 10)
        self.assertEqual({line["status"] for line in self.lines()}, {"cancelled"})
        self.wait_until(lambda: not any(alive(pid) for pid in below), "the end of the processes next to the workers", 5)

    def test_verbs_for_sessions_show_jobs(self):
        process = self.live("--quiet", "--json")
        status = self.of_session("status")
        self.assertEqual(len(status["workers"]), 2)
        self.assertEqual({w["current_sample"].split(" (job")[0] for w in status["workers"]}, {"sleep 1000.5"})
        command = status["jobs"]["functions"][0]
        self.assertEqual((command["name"], command["ok"], command["failed"]), ("command", 0, 0))
        self.assertEqual(command["waiting"] + command["running"], 10)
        for verb, words in (("status", "10 jobs submitted"), ("sessions", "0 of 10 jobs"), ("top", "10 jobs submitted"),
                            ("deaths", "no worker or GPU owner has died"), ("quarantine", "no job is poisoned")):
            code, out, err = self.penstock(verb, *(["--once"] if verb == "top" else []))
            self.assertEqual(code, EXIT_OK, err)
            self.assertIn(words, out + err)
            for word in ("sample", "batch", "epoch"):
                self.assertNotIn(word, out)
        self.assertEqual(self.penstock("wait", "--for=ready", "--timeout", "10s")[0], EXIT_OK)
        code, _, err = self.penstock("trace", "--out", self.path("trace.json"))
        self.assertNotEqual(code, EXIT_OK)
        self.assertIn("it has no batches to trace", err)
        self.assertFalse(os.path.exists(self.path("trace.json")))

        self.assertEqual(self.penstock("scale", "3")[0], EXIT_OK)
        self.wait_until(lambda: sum(name_of(pid) == "sleep" for pid in descendants_of(process.pid)) == 3, "a third command")
        begun = time.monotonic()
        self.assertEqual(self.penstock("stop")[0], EXIT_OK)
        out, err = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - begun, 8)  # not [supervisor] shutdown, because the jobs are cancelled anyway
        self.assertEqual(process.returncode, EXIT_FAILED)
        self.assertEqual(json.loads(out)["outcome"], "stopped")
        self.assertEqual({line["status"] for line in self.lines()}, {"cancelled"})

    def test_stop_wait_names_the_files_of_a_mapping(self):
        self.write("in", "1000.5\n" * 4)
        process = self.start("map", "--command", "sleep {}", "--input", "in", "--output", "out.jsonl", "--journal", "run.journal",
                             "--job-log", "jobs.log", "--results", "kept", "--workers", 2, "--quiet")
        self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
        code, out, err = self.penstock("stop", "--wait", "--json")
        self.assertEqual(code, EXIT_OK, err)
        files = {"job_log": "jobs.log", "journal": "run.journal", "output": "out.jsonl", "results": "kept"}
        self.assertEqual(json.loads(out)["files"], {kind: self.path(name) for kind, name in files.items()})
        process.wait(timeout=30)

    def test_metrics_show_jobs_and_are_documented(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.live("--quiet", "--set", "metrics.listen=127.0.0.1:%d" % port)

        def ask():
            try:
                with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
                    return answer.read().decode()
            except OSError:
                return ""
        text = self.wait_until(ask, "an answer")
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        self.assertEqual(values["penstock_jobs_submitted_total"], "10")
        self.assertEqual(values['penstock_function_jobs{function="command"}'], "10")
        self.assertEqual(int(values['penstock_jobs{state="waiting"}']) + int(values['penstock_jobs{state="running"}']), 10)
        with open(os.path.join(TOP, "docs", "metrics.md")) as file:
            of_streams, _, of_pools = file.read().partition("## All sessions")[0].partition("## Pools of jobs")
        of_both = r"penstock_(info|last_death_\w+|limit_share|stall_info|session_info|session_start_timestamp_seconds|session_state|stalled_seconds|stale_\w+|worker\w+)"
        documented = {name for name in re.findall(r"^\| `(penstock_\w+)", of_streams, re.M) if re.fullmatch(of_both, name)}
        documented |= set(re.findall(r"^\| `(penstock_\w+)", of_pools, re.M))
        self.assertEqual(set(re.findall(r"^# TYPE (\S+)", text, re.M)), documented)

    def test_a_command_that_dies_is_named_by_job_and_command(self):
        self.write("in", "first\ndie\nwait\n")
        script = self.script('case $1 in die) kill -SEGV $$;; wait) exec sleep 1000.5;; esac')
        process = self.start("map", "--command", script + " {}", "--input", "in", "--output", "out.jsonl", "--workers", 2,
                             "--set", "log.level=off", "--quiet")
        self.wait_until(lambda: self.of_session("quarantine").get("quarantine"), "a poisoned job")
        (poisoned,) = self.of_session("quarantine")["quarantine"]
        self.assertEqual((poisoned["job"], poisoned["sample"]), (2, 2))  # `sample` is an older name of `job`
        self.assertRegex(poisoned["work"], r"script\.sh die$")
        self.assertRegex(self.penstock("metrics")[1], r'penstock_job_poisoned_info\{session="map",job="2",work=".*script\.sh die",causes="3 x SIGSEGV"\} 1')
        deaths = self.of_session("deaths")["deaths"]
        self.assertEqual([(d["job"], d["attempt"], d["sample"]) for d in deaths], [(2, 1, None), (2, 2, None), (2, 3, None)])
        self.assertIn("script.sh die", deaths[0]["work"])
        code, out, err = self.penstock("events")
        self.assertRegex(out, r"ended: SIGSEGV, while running job 2 \(.*script\.sh die\)")
        code, out, err = self.penstock("quarantine")
        self.assertRegex(out, r"job +attempts +ended by +work\n +2 +3 +3 x SIGSEGV +\S*script\.sh die")
        code, _, err = self.penstock("quarantine", "retry", "2")
        self.assertNotEqual(code, EXIT_OK)
        self.assertIn("a poisoned job cannot be retried", err)
        self.assertEqual(self.penstock("stop", "--now")[0], EXIT_OK)
        process.wait(timeout=30)

    def of_session(self, verb):
        """The answer of the only session, once there is one."""
        code, out, _ = self.penstock(verb, "--json")
        return json.loads(out) if code == EXIT_OK else {}

    def test_a_sigkill_leaves_no_process_behind(self):
        process = self.live("--quiet")
        below = descendants_of(process.pid)
        process.kill()
        process.wait(timeout=10)
        self.wait_until(lambda: not any(alive(pid) for pid in below), "the end of its workers and commands", 5)

    def test_progress_is_shown_on_stderr_and_only_results_on_stdout(self):
        self.write("in", "a\n" * 3)
        code, out, err = self.penstock("map", "--command", "echo", "--input", "in", "--workers", 1)
        self.assertEqual(code, EXIT_OK)
        self.assertEqual([json.loads(line)["index"] for line in out.splitlines()], [0, 1, 2])
        self.assertIn("3 jobs: 3 ok", err)


if __name__ == "__main__":
    main()
