"""Custom datasets on loader hosts: a host runs its own copy of the session's worker program, and only if its operator says so."""

import hashlib
import shutil

from host_case import *

PROGRAM = os.path.join(BIN, "stalling_worker")
CONFIG = """
[dataset]
type = "custom"
path = "{path}"
[dataset.options]
samples = "{samples}"
wait_us = "{wait_us}"
{options}
[sampler]
batch_size = 8
epochs = {epochs}
[gpu]
device = "host"
"""


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class CustomHostsTest(HostCase):
    def text(self, samples=800, wait_us=500, epochs=2, options="", path=""):
        return CONFIG.format(samples=samples, wait_us=wait_us, epochs=epochs, options=options, path=path)

    def custom(self, workers=0, hosts=INSECURE, command=(PROGRAM,), listen='listen = "127.0.0.1:0"', more="", **shape):
        loader = "[loader]\nworkers = %d\ncommand = %s\n" % (workers, json.dumps(list(command)))
        return self.write("h.toml", self.text(**shape) + loader + "[loader.hosts]\n%s\n%s%s" % (listen, hosts, more))

    def alone(self, *arguments, **shape):
        """The report of a run without hosts."""
        config = self.write("alone.toml", self.text(**shape) + "[loader]\ncommand = %s\n" % json.dumps([PROGRAM]))
        return self.run_json(config, "--workers", 2, "--digest", *arguments)

    def serving(self, address, workers=2, name="a", *arguments, program=PROGRAM, **rest):
        return self.host(address, workers, name, "--program", program, *arguments, **rest)

    def copy_of_program(self, more=b""):
        """Another file with the same code."""
        path = os.path.join(self.folder, "other_build")
        shutil.copy(PROGRAM, path)
        with open(path, "ab") as file:
            file.write(more)
        return path

    # ---- the stream ------------------------------------------------------------------------------------------

    def test_two_hosts_alone_or_next_to_local_workers_give_the_digest_of_a_local_run(self):
        expected = self.digests_of(self.alone())
        for workers in (0, 1):
            with self.subTest(local_workers=workers):
                process = self.begin(self.custom(workers=workers))
                address = self.address()
                hosts = [self.serving(address, 2, "host-%d" % i, program=program) for i, program in enumerate((PROGRAM, self.copy_of_program()))]
                report = self.report_of(process)
                self.assertEqual(self.digests_of(report), expected)
                self.assertEqual(report["workers"]["deaths"], [])
                for host in hosts:
                    self.ends(host, EXIT_OK)

    def test_a_called_host_serves_one_session_after_another(self):
        host, address = self.listening_host(2, "a", "--program", PROGRAM)
        for samples in (400, 240):
            process = self.begin(self.custom(listen='connect = ["%s"]' % address, samples=samples))
            self.assertEqual(self.digests_of(self.report_of(process)), self.digests_of(self.alone(samples=samples)))
        host.terminate()
        self.ends(host, EXIT_OK)

    def test_worker_programs_on_a_host_can_be_killed_at_any_time(self):
        shape = dict(samples=4000, wait_us=1000, epochs=1)
        restarts = '[loader.restart.intensity]\nmax = 1000\n[loader.restart.backoff]\nmax = "200ms"\n'
        process = self.begin(self.custom(more=restarts, **shape))
        host = self.serving(self.address(), 3)
        self.joined(3)
        killed = 0
        while killed < 8 and process.poll() is None:
            workers = children_of(host.pid)
            if workers:
                signal_process(random.choice(workers), signal.SIGKILL)
                killed += 1
            time.sleep(random.uniform(0.02, 0.2))
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.digests_of(self.alone(samples=4000, wait_us=0, epochs=1)))
        self.assertGreaterEqual(killed, 4)
        self.assertEqual(report["quarantine"], [])
        self.ends(host, EXIT_OK)

    def test_a_sample_that_kills_worker_programs_on_hosts_is_named_and_quarantined_like_a_local_one(self):
        shape = dict(samples=200, epochs=1, options='kill = "17"')
        local = self.alone(**shape)
        process = self.begin(self.custom(**shape))
        self.serving(self.address())
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.digests_of(local))
        told = lambda r: [(q["sample"], q["attempts"], q["causes"]) for q in r["quarantine"]]
        self.assertEqual(told(report), told(local))
        self.assertEqual(told(report)[0][:2], (17, 3))
        first = report["workers"]["deaths"][0]
        self.assertEqual((first["signal"], first["sample"], first["phase"]), ("SIGSEGV", 17, "loading"))

    def test_a_state_of_a_run_with_hosts_resumes_without_them(self):
        state = os.path.join(self.folder, "state.bin")
        process = self.begin(self.custom(epochs=1), "--state", state, "--batches", 40)
        self.serving(self.address())
        self.report_of(process)
        (epoch,) = self.alone("--state", state, epochs=1)["epochs"]
        self.assertEqual((epoch["complete"], epoch["from_batch"]), (True, 40))

    # ---- who may run what ------------------------------------------------------------------------------------

    def test_a_host_runs_only_programs_that_its_operator_has_named(self):
        process = self.begin(self.custom())
        address = self.address()
        err = self.ends(self.host(address), EXIT_CONFIG)
        self.assertIn('the session\'s dataset is "custom": only its worker program can read it', err)
        self.assertIn("give --program FILE", err)
        self.assertEqual(self.penstock("host", "--join", address, "--insecure", "--program", "/nowhere/worker")[0], EXIT_CONFIG)
        self.serving(address)
        self.report_of(process)

    def test_another_build_of_the_program_is_refused_with_both_digests(self):
        process = self.begin(self.custom())
        address = self.address()
        other = self.copy_of_program(b"\0")
        err = self.ends(self.serving(address, program=other), EXIT_CONFIG)
        values = [digest_of(path) for path in (other, PROGRAM)]
        self.assertIn("the host has a worker program with SHA-256 %s, but the session has a worker program with SHA-256 %s" % tuple(values), err)
        self.serving(address)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.digests_of(self.alone()))

    def test_program_arguments_are_compared_with_the_paths_of_the_session(self):
        process = self.begin(self.custom(command=(PROGRAM, "/data/a", "--fast")))
        address = self.address()
        err = self.ends(self.serving(address, 2, "a", "--program-argument", "/mnt/a", "--program-argument=--fast"), EXIT_CONFIG)
        self.assertIn('the host has worker arguments ["/mnt/a", "--fast"], but the session has worker arguments ["/data/a", "--fast"]', err)
        host = self.serving(address, 2, "a", "--program-argument", "/mnt/a", "--program-argument=--fast", "--data", "/data=/mnt")
        self.assertEqual(self.digests_of(self.report_of(process)), self.digests_of(self.alone()))
        self.ends(host, EXIT_OK)

    def test_another_dataset_is_refused_with_both_values(self):
        """The program has as many samples as its path has lines."""
        data, other = (self.write(name, "x\n" * lines) for name, lines in (("data", 80), ("other", 79)))
        options = 'count = "yes"'
        process = self.begin(self.custom(path=data, options=options))
        address = self.address()
        err = self.ends(self.serving(address, 2, "a", "--data", "%s=%s" % (data, other)), EXIT_CONFIG)
        self.assertIn("the host's dataset has 79 samples, but the session's has 80", err)
        host = self.serving(address)
        self.assertEqual(self.digests_of(self.report_of(process)), self.digests_of(self.alone(path=data, options=options)))
        self.ends(host, EXIT_OK)

    def test_data_that_changes_on_a_host_ends_that_host_and_not_the_session(self):
        data, copy = (self.write(name, "x\n" * 4000) for name in ("data", "copy"))
        shape = dict(path=data, options='count = "yes"', wait_us=2000, epochs=1)
        process = self.begin(self.custom(**shape))
        address = self.address()
        changed = self.serving(address, 1, "changed", "--data", "%s=%s" % (data, copy))
        self.joined(1)
        self.write("copy", "x\n" * 3999)
        signal_process(children_of(changed.pid)[0], signal.SIGKILL)
        self.assertIn("the host's dataset has 3999 samples, but the session's has 4000", self.ends(changed, EXIT_CONFIG))
        self.serving(address, 3, "other")
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.digests_of(self.alone(**dict(shape, wait_us=0))))

    def test_a_program_that_cannot_describe_its_dataset_is_named_with_its_reason(self):
        code, _, err = self.penstock("run", self.custom(path="/nowhere", options='count = "yes"'))
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn("having '%s' describe the dataset: " % PROGRAM, err)
        self.assertIn("there is no /nowhere", err)
        data = self.write("data", "x\n" * 80)
        process = self.begin(self.custom(path=data, options='count = "yes"'))
        err = self.ends(self.serving(self.address(), 1, "a", "--data", "%s=/nowhere" % data), EXIT_CONFIG)
        self.assertIn("there is no /nowhere", err)
        process.terminate()
        process.communicate()

    def test_a_missing_secret_is_reported_before_the_dataset_is_opened(self):
        told = os.path.join(self.folder, "told")
        program = self.write("tells", "#!/bin/sh\ntouch '%s'\nsleep 1000\n" % told)
        os.chmod(program, 0o755)
        config = self.custom(hosts='secret_file = "/nowhere/secret"\n', command=(program,))
        for arguments in ((), ("--dry-run",)):
            _, _, err = self.penstock("run", config, *arguments)
            self.assertIn("reading the hosts' secret from '/nowhere/secret': No such file", err)
        self.assertFalse(os.path.exists(told))

    def hanging_program(self):
        path = self.write("hangs", "#!/bin/sh\nsleep 1000\n")
        os.chmod(path, 0o755)
        return path

    def test_a_program_that_never_answers_is_given_up_after_one_deadline_for_all_workers(self):
        process = self.begin(self.custom(more='[loader.hang]\nstart_deadline = "1s"\n'))
        address, since = self.address(), time.monotonic()
        host = self.serving(address, 16, program=self.hanging_program())
        self.line_of(host, rb"it did not answer within 1 s before saying hello; trying again")
        self.assertLess(time.monotonic() - since, 10)
        host.terminate()
        self.ends(host, EXIT_OK)
        self.serving(address)
        self.report_of(process)

    def test_a_host_leaves_at_once_even_if_its_program_does_not_answer(self):
        process = self.begin(self.custom())
        host = self.serving(self.address(), program=self.hanging_program())
        self.wait_until(lambda: children_of(host.pid), "the program")
        host.terminate()
        since = time.monotonic()
        self.ends(host, EXIT_OK)
        self.assertLess(time.monotonic() - since, 10)
        process.terminate()
        process.communicate()

    def test_a_session_ends_at_once_even_if_its_program_does_not_answer(self):
        process = self.begin(self.custom(command=(self.hanging_program(),)))
        self.wait_until(lambda: children_of(process.pid), "the program")
        since = time.monotonic()
        process.terminate()
        process.communicate(timeout=20)
        self.assertLess(time.monotonic() - since, 10)

    def test_a_program_that_is_replaced_on_a_host_is_not_started_again(self):
        shape = dict(samples=4000, wait_us=2000, epochs=1)
        process = self.begin(self.custom(**shape))
        address = self.address()
        copy = self.copy_of_program()
        host = self.serving(address, 1, "changed", program=copy)
        self.joined(1)
        os.rename(copy, copy + ".old")
        before = os.stat(copy + ".old")
        self.copy_of_program(b"\0")
        signal_process(children_of(host.pid)[0], signal.SIGKILL)
        err = self.ends(host, EXIT_CONFIG)
        self.assertIn("the worker program '%s' has changed since it was compared with the session's: it was inode %d of" % (copy, before.st_ino), err)
        self.assertIn("but is inode %d of" % os.stat(copy).st_ino, err)
        self.serving(address, 3, "other")
        self.assertEqual(self.digests_of(self.report_of(process)), self.digests_of(self.alone(**dict(shape, wait_us=0))))

    def test_inspect_examines_the_samples_without_hosts(self):
        config = self.custom(listen='listen = "127.0.0.1:1"', hosts="")  # neither port may be opened, nor may the secret be needed
        code, out, err = self.penstock("inspect", config, "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(json.loads(out)["samples"], 800)

    def test_doctor_compares_the_program_without_joining(self):
        process = self.begin(self.custom(epochs=100000))
        address = self.address()
        def ask(expect, *arguments):
            code, out, err = self.penstock("doctor", "--host", address, "--insecure", *arguments, "--json")
            self.assertEqual(code, expect, (out, err))
            return {row["id"]: row for row in json.loads(out)["results"]}
        rows = ask(EXIT_OK, "--program", PROGRAM)
        self.assertEqual((rows["host.data"]["status"], rows["host.fingerprint"]["status"]), ("ok", "ok"))
        rows = ask(EXIT_NOT_MET, "--program", self.copy_of_program(b"\0"))
        self.assertIn("but the session has a worker program with SHA-256", rows["host.fingerprint"]["observed"])
        rows = ask(EXIT_NOT_MET)
        self.assertIn("give --program FILE", rows["host.data"]["observed"])
        self.assertEqual(self.status()["hosts"], [])
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    main()
