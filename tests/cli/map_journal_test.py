"""The journal of penstock map: an interrupted run continues where it stopped."""

from map_case import *


class JournalTest(MapTest):
    def setUp(self):
        super().setUp()
        self.journal = self.path("run.journal")
        # Each run of a job appends a line; the job named in the file "hold" waits until that file is removed.
        self.command = self.script('echo "$1" >> ran; while test "$(cat hold 2>/dev/null)" = "$1"; do sleep 0.02; done; echo "did $1"') + " {}"

    def ran(self):
        with open(self.path("ran")) as file:
            return file.read().split()

    def test_an_interrupted_run_continues_where_it_stopped_and_its_output_is_complete(self):
        items = [str(i) for i in range(60)]
        self.write("in", "".join(item + "\n" for item in items))
        whole = [(i, "ok", "did %d\n" % i) for i in range(60)]
        for held, sent, code in (("9", signal.SIGINT, EXIT_INTERRUPTED), ("30", signal.SIGTERM, EXIT_TERMINATED), ("45", signal.SIGKILL, -signal.SIGKILL)):
            self.write("hold", held + "\n")
            process = self.start("map", "--command", self.command, "--input", "in", "--output", "out.jsonl", "--workers", 2,
                                 "--journal", self.journal, "--quiet", "--json")
            # The waiting job has started, and the other worker has done some of the jobs after it.
            self.wait_until(lambda: os.path.exists(self.path("ran")) and int(held) + 6 <= max(map(int, self.ran()), default=-1), "some jobs behind %s" % held)
            process.send_signal(sent)
            out, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, code, err)
            if sent == signal.SIGKILL:
                continue
            self.assertEqual(json.loads(out)["outcome"], "stopped")
            found = self.lines()
            self.assertEqual([line["index"] for line in found], list(range(len(found))))
            self.assertEqual(found[int(held)]["status"], "cancelled")
            self.assertTrue({line["status"] for line in found} <= {"ok", "cancelled"})
            with open(self.journal) as file:
                noted = [json.loads(line) for line in file.read().splitlines()][1:]
            self.assertNotIn("cancelled", {line["status"] for line in noted})
            self.assertEqual({line["index"] for line in noted}, {line["index"] for line in found if line["status"] == "ok"})
        os.unlink(self.path("hold"))
        found, summary = self.map("--command", self.command, "--journal", self.journal)
        self.assertEqual([(line["index"], line["status"], line["result"]["stdout"]) for line in found], whole)
        self.assertGreaterEqual(summary["from_journal"], 45)
        again = [item for item in items if self.ran().count(item) > 1]
        self.assertLessEqual(len(again), 3 * 4, again)  # at most what two workers held, three times

    def test_a_journal_that_was_cut_off_anywhere_costs_only_the_last_job(self):
        self.map("--command", self.command, "--journal", self.journal, items=["a", "b", "c"], workers=1)
        with open(self.journal, "rb") as file:
            whole = file.read()
        for cut in (1, 2, 10, 60):
            with open(self.journal, "wb") as file:
                file.write(whole[:-cut])
            found, summary = self.map("--command", self.command, "--journal", self.journal)
            self.assertEqual([line["result"]["stdout"] for line in found], ["did a\n", "did b\n", "did c\n"])
            self.assertEqual(summary["from_journal"], 2)

    def test_a_changed_line_is_refused_and_named_by_its_number_and_new_lines_are_processed(self):
        self.map("--command", self.command, "--journal", self.journal, items=["a", "b", "c"])
        code, summary = self.go_on("a\nx\nc\n")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("line 2 of", summary["error"]["message"])
        _, summary = self.map("--command", self.command, "--journal", self.journal, items=["a", "b", "c", "d"])
        self.assertEqual(summary["from_journal"], 3)
        self.assertEqual(sorted(self.ran()), ["a", "b", "c", "d"])

    def go_on(self, text):
        """Runs the command again with this input on stdin; returns the exit code and the summary."""
        process = self.start("map", "--command", self.command, "--journal", self.journal, "--output", "out.jsonl", "--workers", 2, "--json",
                             "--quiet", stdin=subprocess.PIPE)
        out, err = process.communicate(text.encode(), timeout=60)
        return process.returncode, json.loads(out or err)

    def test_a_run_that_is_refused_because_of_a_changed_line_keeps_the_earlier_output_and_starts_no_job(self):
        self.map("--command", self.command, "--journal", self.journal, items=["a", "b", "c"])
        with open(self.path("out.jsonl")) as file:
            earlier = file.read()
        self.write("in", "a\nb\nX\nd\n")
        for arguments in ((), ("--retry-failed",)):
            code, out, err = self.penstock("map", "--command", self.command, "--journal", self.journal, "--input", "in", "--output",
                                           "out.jsonl", "--json", "--quiet", *arguments)
            self.assertEqual(code, EXIT_FAILED, err)
            self.assertIn("line 3 of in differs", json.loads(out)["error"]["message"])
        code, summary = self.go_on("new\na\nb\n")
        self.assertEqual((code, summary["jobs"]), (EXIT_FAILED, 0))
        self.assertIn("line 1 of stdin differs", summary["error"]["message"])
        with open(self.path("out.jsonl")) as file:
            self.assertEqual(file.read(), earlier)
        self.assertEqual(sorted(self.ran()), ["a", "b", "c"])

    def test_a_pipe_is_compared_with_the_journal_and_then_continues_from_its_first_line(self):
        many = ["%d %s" % (i, "x" * 300) for i in range(40)]
        self.map("--command", self.command, "--journal", self.journal, items=many[:20])
        code, summary = self.go_on("\n".join(many))  # no line feed after the last line
        self.assertEqual((code, summary["from_journal"]), (EXIT_OK, 20))
        self.assertEqual([line["result"]["stdout"] for line in self.lines()], ["did %s\n" % one for one in many])
        code, summary = self.go_on("\n".join(many[:7]) + "\n")  # fewer lines than the journal has
        self.assertEqual((code, summary["from_journal"], len(self.lines())), (EXIT_OK, 7, 7))

    def test_a_signal_while_a_pipe_is_compared_with_the_journal_ends_the_run_and_keeps_the_earlier_output(self):
        self.map("--command", self.command, "--journal", self.journal, items=["a", "b"])
        process = self.start("map", "--command", self.command, "--journal", self.journal, "--output", "out.jsonl", "--quiet", "--json",
                             stdin=subprocess.PIPE)
        process.stdin.write(b"a\n")
        process.stdin.flush()
        self.wait_until(lambda: self.workers_of(process), "its workers")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=20), EXIT_INTERRUPTED)
        self.assertEqual(len(self.lines()), 2)

    def test_a_journal_of_other_work_is_refused(self):
        self.map("--command", self.command, "--journal", self.journal, items=["a"])
        said = self.refused("--command", "echo {}", "--journal", self.journal, "--input", self.path("in"), expect=EXIT_FAILED)
        self.assertIn("belongs to other work", said)
        self.assertRegex(said, r"it was written for --command '.*script\.sh \{\}', but this run has --command 'echo \{\}'; give another --journal, or remove it$")
        said = self.refused("--command", "echo {}", "--journal", self.write("notes", "of mine\n"), "--input", self.path("in"), expect=EXIT_FAILED)
        self.assertIn("is not a journal", said)

    def test_failed_jobs_are_repeated_on_request(self):
        script = self.script('echo "$1" >> ran; test -e repaired || test "$1" != b') + " {}"
        self.map("--command", script, "--journal", self.journal, "--fail-on-exit", items=["a", "b", "c"], expect=EXIT_FAILED)
        self.map("--command", script, "--journal", self.journal, "--fail-on-exit", expect=EXIT_FAILED)
        self.assertEqual(self.ran().count("b"), 1)
        self.write("repaired", "")
        self.map("--command", script, "--journal", self.journal, "--fail-on-exit", "--retry-failed")
        self.assertEqual(sorted(self.ran()), ["a", "b", "b", "c"])


if __name__ == "__main__":
    main()
