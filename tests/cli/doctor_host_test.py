"""penstock doctor --host: asks a session, or a loader host that listens, whether hosting would work, without disturbing it."""

from host_case import *


class DoctorHostTest(HostCase):
    def ask(self, address, *arguments, expect=EXIT_OK, secret=("--insecure",), **popen):
        """The rows by id."""
        code, out, err = self.penstock("doctor", "--host", address, *secret, *arguments, "--json", **popen)
        rows = {row["id"]: row for row in json.loads(out)["results"]}
        self.assertEqual(code, expect, (err, out))
        for row in rows.values():
            if row["status"] in ("warn", "fail"):
                self.assertTrue(row["observed"] and row["remedy"], row)
            if row["status"] == "skip":
                self.assertTrue(row["why"], row)
        return rows

    def statuses(self, rows, *ids):
        return [rows["host." + one]["status"] for one in ids]

    def folder_of_files(self, name):
        path = os.path.join(self.folder, name)
        os.mkdir(path)
        for i in range(40):
            with open(os.path.join(path, "%04d.bin" % i), "wb") as file:
                file.write(random.Random(i).randbytes(300))
        return path

    def reading(self, folder):
        return '[dataset]\ntype = "raw"\npath = "%s"\nshape = [300]\n[sampler]\nbatch_size = 4\nepochs = 100000\n[gpu]\ndevice = "host"\n' % folder

    def test_a_session_answers_every_question_and_its_stream_is_undisturbed(self):
        shape = dict(samples=1600, dataset='wait = "4ms"', epochs=1)
        secret = self.secret("secret")
        process = self.begin(self.config(workers=1, hosts='secret_file = "%s"\n' % secret, **shape))
        address = self.address()
        host = self.host(address, 1, secret=("--secret-file", secret))
        before = {w["id"] for w in self.joined(1)["workers"]}
        self.assertEqual(self.penstock("pause", "--session", "h")[0], EXIT_OK)  # the session must not end before doctor asks it
        for _ in range(3):
            rows = self.ask(address, secret=("--secret-file", secret))
            self.assertEqual(self.statuses(rows, "reach", "secret", "version", "data", "fingerprint", "cores"), ["ok"] * 5 + ["info"])
            self.assertEqual(self.statuses(rows, "clock"), ["ok"])
            self.assertRegex(rows["host.bandwidth"]["observed"], r"^\d+ MB/s ")
            self.assertIn("session h", rows["host.reach"]["observed"])
            status = self.status()
            self.assertEqual({w["id"] for w in status["workers"]}, before)
            self.assertEqual([h["name"] for h in status["hosts"]], ["a"])
        self.assertEqual(self.penstock("resume", "--session", "h")[0], EXIT_OK)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.ends(host, EXIT_OK)

    def test_the_data_is_found_where_the_data_option_says_and_compared_with_that_of_the_session(self):
        data, copy, other = (self.folder_of_files(name) for name in ("data", "copy", "other"))
        os.unlink(os.path.join(other, "0007.bin"))
        process = self.begin(self.config(workers=1, text=self.reading(data)))
        address = self.address()
        rows = self.ask(address, "--data", "%s=%s" % (data, copy))
        self.assertEqual(self.statuses(rows, "data", "fingerprint"), ["ok", "ok"])
        self.assertEqual(rows["host.data"]["observed"], copy + ": 40 samples")
        rows = self.ask(address, "--data", "%s=%s" % (data, other), expect=EXIT_NOT_MET)
        self.assertEqual(self.statuses(rows, "data", "fingerprint"), ["ok", "fail"])
        self.assertEqual(rows["host.fingerprint"]["observed"], "the host's dataset has 39 samples, but the session's has 40")
        rows = self.ask(address, "--data", "%s=/nonexistent" % data, expect=EXIT_NOT_MET)
        self.assertEqual(self.statuses(rows, "data", "fingerprint"), ["fail", "skip"])
        self.assertIn("/nonexistent", rows["host.data"]["observed"])
        code, out, _ = self.penstock("doctor", "--host", address, "--insecure", "--data", "%s=/nonexistent" % data)
        self.assertEqual(code, EXIT_NOT_MET)
        self.assertRegex(out, r"fail  host\.data ")
        self.assertIn("-> mount or copy the data", out)
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        _, err = process.communicate(timeout=30)
        self.assertNotIn(b"was refused", err)

    def test_a_listening_host_answers_like_a_session_even_while_it_works_for_one(self):
        secret = self.secret("secret")
        with_secret = ("--secret-file", secret)
        host, address = self.listening_host(2, secret=with_secret)
        def check():
            rows = self.ask(address, secret=with_secret)
            self.assertEqual(self.statuses(rows, "reach", "secret", "version", "data", "fingerprint"), ["ok", "ok", "ok", "skip", "skip"])
            self.assertIn("loader host a with 2 workers", rows["host.reach"]["observed"])
            self.assertRegex(rows["host.bandwidth"]["observed"], r"^\d+ MB/s ")
        check()
        shape = dict(samples=800, dataset='wait = "4ms"', epochs=1)
        process = self.begin(self.config(listen="connect = %s" % json.dumps([address]), hosts='secret_file = "%s"\n' % secret, **shape))
        self.joined(2)
        self.assertEqual(self.penstock("pause", "--session", "h")[0], EXIT_OK)
        check()
        self.assertEqual(self.penstock("resume", "--session", "h")[0], EXIT_OK)
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(**shape))
        host.terminate()
        self.ends(host, EXIT_OK)

    def test_each_fault_is_one_failed_row_with_a_remedy(self):
        right, wrong = self.secret("right"), self.secret("wrong")
        self.begin(self.config(workers=1, hosts='secret_file = "%s"\n' % right, samples=1000000, epochs=1))
        address = self.address()
        for secret in (("--secret-file", wrong), ("--insecure",)):
            rows = self.ask(address, secret=secret, expect=EXIT_NOT_MET)
            self.assertEqual([one for one, row in rows.items() if row["status"] == "fail"], ["host.secret"])
        with socket.create_server(("127.0.0.1", 0)) as taken:
            closed = "127.0.0.1:%d" % taken.getsockname()[1]
        rows = self.ask(closed, expect=EXIT_NOT_MET)
        self.assertEqual([one for one, row in rows.items() if row["status"] == "fail"], ["host.reach"])
        self.assertIn("Connection refused", rows["host.reach"]["observed"])
        rows = self.ask("nowhere", expect=EXIT_NOT_MET)
        self.assertEqual([one for one, row in rows.items() if row["status"] == "fail"], ["host.reach"])
        rows = self.ask(address, secret=(), expect=EXIT_NOT_MET)
        self.assertEqual([one for one, row in rows.items() if row["status"] == "fail"], ["host.secret"])

    def test_a_silent_peer_delays_doctor_by_seconds_and_fails_one_row(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            began = time.monotonic()
            rows = self.ask("127.0.0.1:%d" % silent.getsockname()[1], expect=EXIT_NOT_MET)
            self.assertLess(time.monotonic() - began, 40)
        self.assertEqual([one for one, row in rows.items() if row["status"] == "fail"], ["host.secret"])

    def test_options_that_belong_together_are_checked(self):
        for wrong in (("doctor", "--insecure"), ("doctor", "--data", "a=b"), ("doctor", "--host", "a:1", "--insecure", "--secret-file", "b"),
                      ("doctor", "--host", "a:1", "--data", "nothing"), ("doctor", "--host", "a:1", "--deep")):
            self.assertEqual(self.penstock(*wrong)[0], EXIT_USAGE, wrong)

    def test_data_that_cannot_be_listed_in_time_is_a_failed_row(self):
        tokens = os.path.join(self.folder_of_files("data"), "0000.bin")
        text = '[dataset]\ntype = "tokens"\npath = "%s"\ndtype = "uint16"\nsequence_length = 8\n[sampler]\nbatch_size = 4\nepochs = 100000\n[gpu]\ndevice = "host"\n' % tokens
        process = self.begin(self.config(workers=1, text=text))
        address = self.address()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            elsewhere = "http://127.0.0.1:%d/data" % silent.getsockname()[1]
            began = time.monotonic()
            rows = self.ask(address, "--data", "%s=%s" % (self.folder, elsewhere), "--probe-timeout", "1s", expect=EXIT_NOT_MET)
            self.assertLess(time.monotonic() - began, 20)
        self.assertEqual(self.statuses(rows, "data", "fingerprint"), ["fail", "skip"])
        self.assertIn("longer than 1 s", rows["host.data"]["observed"])
        process.kill()


if __name__ == "__main__":
    main()
