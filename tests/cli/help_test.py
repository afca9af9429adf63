"""The table of verbs as seen by users: help, the manual page, completions, usage errors."""

import re
import shutil
import subprocess

from harness import *

SHARE = os.path.join(os.path.dirname(BIN.rstrip("/")), "share")
CONTRACT = """run map preview doctor inspect bench chaos logs quarantine status why top describe events trace deaths restart scale drain pause resume stop wait sessions check-config schema completion help
              metrics version secret pack plan replay headroom sample-photos""".split()


class HelpTest(PenstockTest):
    def table(self):
        code, out, err = self.penstock("help", "--json")
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def said_by(self, *arguments):
        code, out, err = self.penstock(*arguments)
        self.assertEqual(code, EXIT_OK, err)
        return out

    def test_every_verb_of_the_contract_exists_and_has_examples(self):
        verbs = {v["verb"]: v for v in self.table()["verbs"]}
        self.assertEqual([v for v in CONTRACT if v not in verbs], [])
        for name, verb in verbs.items():
            self.assertTrue(verb["examples"], name + " has no example")
            self.assertFalse(verb["summary"].endswith("."), name)
            for example in verb["examples"]:
                self.assertIn("penstock", example["command"])
                self.assertTrue(example["what"], example)

    def test_examples_use_only_options_that_exist(self):
        verbs = {v["verb"]: v for v in self.table()["verbs"]}
        for verb in verbs.values():
            for example in verb["examples"]:
                command = re.sub(r"'[^']*'", "TEXT", example["command"])  # quoted text belongs to another program
                for part in command.replace("&", "|").replace(">", "|").replace(")", "|").replace("(", "|").split("|"):
                    words = part.split()
                    if words[:1] != ["penstock"]:
                        continue
                    known = {n for o in verbs[words[1]]["options"] for n in o["names"].split(",")}
                    own = words[2:words.index("--")] if "--" in words else words[2:]  # the rest belongs to another program
                    for word in own:
                        if word.startswith("-"):
                            self.assertIn(word.split("=")[0], known, example)

    def test_every_verb_can_answer_in_json(self):
        for verb in self.table()["verbs"]:
            names = {n for o in verb["options"] for n in o["names"].split(",")}
            self.assertIn("--json", names, verb["verb"])

    def test_topics_are_available_as_json(self):
        for topic, word in (("targets", "worker"), ("exit-codes", "SIGTERM"), ("run", "batches")):
            code, out, err = self.penstock("help", topic, "--json")
            self.assertEqual(code, EXIT_OK, err)
            self.assertIn(word, json.loads(out)["help"])

    def test_usage_errors_are_json_if_json_was_requested(self):
        for verb in self.table()["verbs"]:
            code, out, _ = self.penstock(verb["verb"], "--json", "--no-such-option")
            self.assertEqual(code, EXIT_USAGE, verb["verb"])
            self.assertEqual(json.loads(out)["error"]["kind"], "usage")

    def test_help_fits_80_columns_and_equals_the_output_of_dash_dash_help(self):
        self.assertTrue(all(len(line) <= 80 for line in self.said_by("help").splitlines()))
        for verb in self.table()["verbs"]:
            text = self.said_by("help", verb["verb"])
            for line in text.splitlines():
                self.assertTrue(len(line) <= 80 or line.startswith("  penstock "), line)
            self.assertEqual(text, self.said_by(verb["verb"], "--help"))
            self.assertNotIn("\x1b", text)

    def test_a_misspelt_verb_or_option_gets_a_suggestion(self):
        code, _, err = self.penstock("statsu")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("did you mean 'status'?", err)
        code, _, err = self.penstock("status", "--sesion", "x")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("did you mean '--session'?", err)
        self.assertIn("penstock help status", err)
        for arguments in (["statsu", "--help"], ["--help", "statsu"], ["help", "statsu"]):
            code, out, err = self.penstock(*arguments)
            self.assertEqual((code, out), (EXIT_USAGE, ""), arguments)
            self.assertIn("there is no verb 'statsu'; did you mean 'status'?", err)
        self.assertIn("there is no verb 'stat'; did you mean 'status'?", self.penstock("stat")[2])
        self.assertEqual(self.penstock()[0], EXIT_USAGE)

    def test_a_misspelt_value_gets_a_suggestion_and_an_abbreviated_option_its_full_name(self):
        for arguments, words in ((["wait", "--for=redy"], "--for redy: must be ready, finished or ended; did you mean 'ready'?"),
                                 (["quarantine", "lst"], "ACT lst: must be list, retry or release; did you mean 'list'?"),
                                 (["sessions", "--end"], "there is no option '--end'; did you mean '--ended'?"),
                                 (["run", "--workers", "1", "--workers", "2"], "error: --workers is given 2 times, but only once is allowed"),
                                 (["map", "--command"], "error: --command needs a value: --command COMMAND"),
                                 (["wait", "--for"], "error: --for needs a value: --for ready|finished|ended"),
                                 (["completion"], "SHELL is missing: penstock completion bash, zsh or fish"),
                                 (["top", "--every", "5"], "--every: '5' has no unit: add one of"),
                                 (["top", "--every", "2h"], "--every: 2h is not between 50ms and 1h"),
                                 (["metrics", "--listen", "127.0.0.1"], "'127.0.0.1' is not an IP address and port, such as 127.0.0.1:9464")):
            code, _, err = self.penstock(*arguments)
            self.assertEqual(code, EXIT_USAGE, arguments)
            self.assertIn(words, err, arguments)

    def test_the_next_step_is_also_in_json_errors(self):
        for arguments, code, command in ((["status", "--no-such-option"], EXIT_USAGE, "penstock help status"),
                                         (["quarantine", "retry"], EXIT_USAGE, "penstock quarantine list"),
                                         (["quarantine", "release", "--file", "x.jsonl"], EXIT_USAGE, "penstock quarantine list --file x.jsonl"),
                                         (["status", "--session", "nobody"], EXIT_NO_SESSION, "penstock sessions"),
                                         (["status", "--last"], EXIT_NO_SESSION, "penstock sessions --ended")):
            said = self.penstock(*arguments)
            self.assertEqual(said[0], code, said)
            self.assertTrue(said[2].endswith("\nnext: %s\n" % command), said)
            said = self.penstock(*arguments, "--json")
            self.assertEqual((said[0], json.loads(said[1])["error"]["next"], said[2]), (code, command, ""))

    def test_a_config_file_without_a_verb_gets_the_verb_that_runs_it(self):
        code, _, err = self.penstock("photos.toml")
        self.assertEqual(code, EXIT_USAGE)
        self.assertIn("there is no verb 'photos.toml'; a config file comes after its verb: penstock run photos.toml", err)

    def test_an_option_before_the_verb_is_not_taken_for_a_verb(self):
        for arguments, words in ((["--sesion", "x", "status"], "'--sesion' comes before the verb, but options follow it: penstock status --session"),
                                 (["--json", "status"], "'--json' comes before the verb, but options follow it: penstock status --json"),
                                 (["--nothing-of-the-kind", "status"], "options follow it; 'status' has no such option"),
                                 (["--session", "x", "nothing"], "'--session' comes before the verb: penstock VERB [OPTIONS]")):
            code, _, err = self.penstock(*arguments)
            self.assertEqual(code, EXIT_USAGE, arguments)
            self.assertIn(words, err + _, arguments)

    def test_words_that_a_verb_does_not_expect_are_named_with_its_usage(self):
        for arguments, words in ((["map", "lines.txt", "--", "sh", "-c", "echo $1"],
                                  "unexpected argument 'sh'; usage: penstock map [FILE] [OPTIONS]; pass a program with --command"),
                                 (["run", "a.toml", "b.toml"], "unexpected argument 'b.toml'; usage: penstock run FILE [OPTIONS]"),
                                 (["launch", "a.toml", "-n", "2"], "there is no option '-n'")):
            code, _, err = self.penstock(*arguments)
            self.assertEqual(code, EXIT_USAGE, arguments)
            self.assertIn(words, err, arguments)

    def test_a_missing_argument_of_a_verb_is_named_with_its_choices(self):
        for arguments, words in ((["bench"], "WHAT is missing: what to measure: upload or transform"),
                                 (["restart"], "TARGET is missing: worker/N, workers or gpu"),
                                 (["scale"], "N is missing: how many workers"),
                                 (["run"], "FILE is missing: the config file"),
                                 (["preview", "photos.toml"], "--out PNG is missing: the output file")):
            code, _, err = self.penstock(*arguments)
            self.assertEqual(code, EXIT_USAGE, arguments)
            self.assertIn(words, err, arguments)

    def test_topics_explain_exit_codes_and_targets(self):
        self.assertIn(" 78 ", self.said_by("help", "exit-codes"))
        self.assertIn("worker/3", self.said_by("help", "targets"))

    def test_the_installed_manual_page_and_completions_are_current(self):
        for path, arguments in (("man/man1/penstock.1", ("help", "--man")),
                                ("bash-completion/completions/penstock", ("completion", "bash")),
                                ("zsh/site-functions/_penstock", ("completion", "zsh")),
                                ("fish/vendor_completions.d/penstock.fish", ("completion", "fish"))):
            with open(os.path.join(SHARE, path)) as file:
                self.assertEqual(file.read(), self.said_by(*arguments), path)

    def test_the_manual_page_names_every_verb_and_troff_finds_no_fault_in_it(self):
        page = self.said_by("help", "--man")
        for verb in self.table()["verbs"]:
            self.assertIn('.SS "penstock ' + verb["verb"].replace("-", "\\-"), page)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8"], input=page.encode(), capture_output=True)
            self.assertEqual(done.stderr.decode(), "")

    def complete(self, *words):
        """The completions that bash offers after these words, of which the last one is being typed."""
        script = ('source <(penstock completion bash)\n'
                  'compopt() { :; }\n'
                  'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _penstock; printf "%s\\n" "${COMPREPLY[@]}"\n')
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, cwd=self.folder,
                              env=dict(self.environment, PATH=BIN + ":" + os.environ["PATH"]))
        self.assertEqual(done.stderr, "")
        return done.stdout.splitlines() if done.stdout.strip() else []

    def test_bash_completes_verbs_options_values_keys_and_files(self):
        self.assertEqual(self.complete("penstock", "res"), ["restart", "resume"])
        self.assertEqual(self.complete("penstock", "status", "--ch"), ["--check"])
        self.assertEqual(self.complete("penstock", "wait", "--for", "=", "re"), ["ready"])
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "sampler.b"), ["sampler.batch_size="])
        self.assertIn("workers", self.complete("penstock", "restart", "wor"))
        self.write("photos.toml", "")
        self.assertEqual(self.complete("penstock", "run", "pho"), ["photos.toml"])
        self.assertEqual(self.complete("penstock", "quarantine", "re"), ["retry", "release"])
        self.assertEqual(self.complete("penstock", "map", "--job-log", "pho"), ["photos.toml"])
        self.assertEqual(self.complete("penstock", "map", "--nu"), ["--null"])

    def test_bash_completes_names_with_blanks_as_one_word(self):
        self.write("my photos.toml", "")
        self.write("my other photos.toml", "")
        self.assertEqual(sorted(self.complete("penstock", "run", "my")), ["my other photos.toml", "my photos.toml"])
        os.mkdir(os.path.join(self.folder, "a folder"))
        self.assertEqual(self.complete("penstock", "run", "x", "--out", "a"), ["a folder"])

    def test_bash_completes_the_values_of_keys_after_set(self):
        types = ["uint8", "float16", "bfloat16", "float32"]
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "gpu.dtype", "="), types)
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "gpu.dtype", "=", "fl"), ["float16", "float32"])
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "=", "gpu.dtype", "=", "b"), ["bfloat16"])
        # The next line is for a shell that does not separate words at "=".
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "gpu.dtype=b"), ["gpu.dtype=bfloat16"])
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "sampler.shuffle", "=", "t"), ["true"])
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "loader.workers", "="), ["auto"])
        self.assertEqual(self.complete("penstock", "run", "x", "--set", "no.such.key", "="), [])

    def test_bash_completes_live_workers_and_sessions(self):
        self.start("run", self.write("live.toml", synthetic(samples=100000, dataset='wait = "2ms"')), "--workers", 2, "--quiet")
        self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
        self.assertEqual(self.complete("penstock", "drain", "worker/"), ["worker/0", "worker/1"])
        self.assertEqual(self.complete("penstock", "status", "--session", ""), ["live"])

    def check_syntax(self, shell):
        program = shutil.which(shell)
        if program is None:
            self.skipTest(shell + " is not installed")
        path = self.write("completion." + shell, self.said_by("completion", shell))
        done = subprocess.run([program, "-n", path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_zsh_can_read_its_completion(self):
        self.check_syntax("zsh")

    def test_fish_can_read_its_completion(self):
        self.check_syntax("fish")


if __name__ == "__main__":
    main()
