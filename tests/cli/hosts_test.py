"""Loader hosts: workers in `penstock host` processes make the same stream as local ones, whatever happens to them."""

import glob
import shutil

from host_case import *

KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", 12))


class HostsTest(HostCase):
    # ---- the stream ------------------------------------------------------------------------------------------

    def test_one_or_three_hosts_or_a_host_next_to_local_workers_give_the_digest_of_a_local_run(self):
        shape = dict(samples=800, dataset='wait = "1ms"')
        expected = self.local_digests(**shape)
        for count, workers in ((1, 0), (3, 0), (2, 1)):
            with self.subTest(hosts=count, local_workers=workers):
                process = self.begin(self.config(workers=workers, **shape))
                address = self.address()
                hosts = [self.host(address, 2, "host-%d" % i) for i in range(count)]
                report = self.report_of(process)
                self.assertEqual(self.digests_of(report), expected)
                self.assertEqual(report["quarantine"], [])
                for host in hosts:
                    self.ends(host, EXIT_OK)

    def test_the_bytes_equal_those_of_the_files_even_if_the_host_has_them_in_another_folder(self):
        data, copy = os.path.join(self.folder, "data"), os.path.join(self.folder, "copy")
        os.mkdir(data)
        for i in range(200):
            with open(os.path.join(data, "%04d.bin" % i), "wb") as file:
                file.write(random.Random(i).randbytes(3000))
        shutil.copytree(data, copy)
        text = '[dataset]\ntype = "raw"\npath = "%s"\nshape = [3000]\n[sampler]\nbatch_size = 7\nepochs = 2\n[gpu]\ndevice = "host"\n' % data
        expected = self.local_digests(text)
        process = self.begin(self.config(text=text))
        host = self.host(self.address(), 2, "a", "--data", "%s=%s" % (data, copy))
        self.assertEqual(self.digests_of(self.report_of(process)), expected)
        self.ends(host, EXIT_OK)

    def test_status_shows_hosts_and_their_workers(self):
        process = self.begin(self.config(samples=100000, dataset='wait = "2ms"', epochs=1))
        hosts = [self.host(self.address(), 2, name) for name in ("alpha", "beta")]
        status = self.joined(4)
        self.assertEqual(sorted(h["name"] for h in status["hosts"]), ["alpha", "beta"])
        self.assertEqual({h["pid"] for h in status["hosts"]}, {h.pid for h in hosts})
        self.assertEqual({h["state"] for h in status["hosts"]}, {"ready"})
        busy = self.wait_until(lambda: [h for h in self.status().get("hosts", []) if h["samples_per_second"] > 0], "a rate")
        self.assertGreater(busy[0]["bytes_per_second"], 0)
        remote = {w["id"] for w in status["workers"]} - {64}
        self.assertEqual(remote, {w for h in status["hosts"] for w in h["workers"]})
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        process.communicate(timeout=30)
        for host in hosts:
            self.ends(host, EXIT_OK)

    def test_hosts_and_their_workers_are_valid_targets(self):
        process = self.begin(self.config(samples=1600, dataset='wait = "4ms"', epochs=1))
        address = self.address()
        alpha, beta = self.host(address, 2, "alpha"), self.host(address, 2, "beta")
        status = self.joined(4)
        of_beta = next(h["workers"] for h in status["hosts"] if h["name"] == "beta")
        for verb in ("status", "describe"):
            _, out, _ = self.penstock(verb, "host/beta/worker/1", "--json", "--session", "h")
            self.assertEqual([w["id"] for w in json.loads(out)["workers"]], [of_beta[1]])
        for missing in ("host/beta/worker/2", "host/gamma/worker/0"):
            code, _, err = self.penstock("status", missing, "--session", "h")
            self.assertEqual(code, EXIT_NO_TARGET)
            self.assertIn("there is no " + missing, err)
        self.assertEqual(self.penstock("logs", "host/beta/worker/0", "--session", "h")[0], EXIT_OK)
        self.assertEqual(self.penstock("restart", "host/beta/worker/0", "--session", "h")[0], EXIT_OK)
        code, _, err = self.penstock("drain", "host/alpha", "--session", "h")
        self.assertEqual((code, err), (EXIT_OK, "host/alpha: drain requested\n"))
        self.assertIn("session h asks this host to leave", self.ends(alpha, EXIT_OK))
        self.assertEqual(self.penstock("drain", "host/alpha", "--session", "h")[0], EXIT_NO_TARGET)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(samples=1600, epochs=1))
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.ends(beta, EXIT_OK)

    # ---- operators -------------------------------------------------------------------------------------------

    def answer(self, *arguments):
        code, out, err = self.penstock(*arguments, "--json", "--session", "h")
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def events(self, *options):
        code, out, err = self.penstock("events", "--json", "--session", "h", *options)
        self.assertEqual(code, EXIT_OK, err)
        return [json.loads(line) for line in out.splitlines()]

    def test_describe_shows_everything_that_is_known_about_a_host(self):
        process = self.begin(self.config(samples=100000, dataset='wait = "2ms"', epochs=1))
        alpha = self.host(self.address(), 2, "alpha")
        self.joined(2)
        signal_process(self.workers_of(alpha)[0], signal.SIGKILL)
        told = self.wait_until(lambda: (about := self.answer("describe", "host/alpha"))["hosts"][0]["deaths"] == 1 and about, "the death is counted")
        self.assertEqual(told["schema"], "penstock.describe/1")
        (host,) = told["hosts"]
        self.assertEqual({w["id"] for w in told["workers"]}, set(host["workers"]))
        self.assertEqual((host["pid"], host["state"], host["workers_offered"], host["workers_wanted"]), (alpha.pid, "ready", 2, 2))
        self.assertEqual(host["version"], self.penstock("--version")[1].split()[1])
        self.assertGreaterEqual(host["cores"], 1)
        self.assertEqual(host["refused"], {"damaged": 0, "wrong_size": 0, "late": 0})
        self.assertEqual(host["losses"], 0)
        self.assertRegex(host["joined"], r"^\d{4}-\d\d-\d\dT")
        self.wait_until(lambda: self.answer("describe", "host/alpha")["hosts"][0]["holds"] > 0, "it holds a batch")
        self.assertGreater(self.answer("describe", "host/alpha")["hosts"][0]["samples"], 0)
        _, out, _ = self.penstock("describe", "host/alpha", "--session", "h")
        self.assertRegex(out, r"state +ready, joined [\d.]+ m?s")
        for part in ("host/alpha\n", "pid %d at 127.0.0.1:" % alpha.pid, "2 of 2 wanted", "1 worker\n", "0 damaged, 0 of the wrong size", "worker/65"):
            self.assertIn(part, out)
        alpha.kill()
        alpha.communicate()
        again = self.host(self.address(), 1, "alpha")
        self.wait_until(lambda: [h["losses"] for h in self.status()["hosts"]] == [1], "it is back")
        for verb in (("describe", "host/gamma"), ("drain", "host/gamma"), ("scale", "host/gamma", 1)):
            code, _, err = self.penstock(*verb, "--session", "h")
            self.assertEqual(code, EXIT_NO_TARGET, err)
            self.assertIn("there is no host/gamma; available: host/alpha", err)
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        process.communicate(timeout=30)
        self.ends(again, EXIT_OK)

    def test_describe_reports_that_a_record_of_an_older_version_lacks_facts_about_a_host(self):
        process = self.begin(self.config(samples=100000, dataset='wait = "2ms"', epochs=1))
        self.host(self.address(), 1, "alpha")
        self.joined(1)
        read = lambda: open(self.only_record()).read()
        self.wait_until(lambda: '"name":"alpha"' in read(), "the host is in the record", 30)
        process.kill()
        process.communicate()
        told = ("describe", "host/alpha", "--last", "--session", "h")
        self.assertIn("host/alpha\n", self.penstock(*told)[1])
        text = read()
        self.write(self.only_record(), re.sub(r'"cores":\d+,', "", text))
        code, _, err = self.penstock(*told)
        self.assertEqual(code, 1, err)
        self.assertIn("another version of penstock ran this session and recorded too little about host/alpha to describe it here (key 'cores' not found)", err)

    def only_record(self):
        (path,) = glob.glob(os.path.join(self.folder, "penstock", "*.record"))
        return path

    def working(self, name):
        """How many workers of a host are ready, and how many it should have."""
        status = self.status()
        for host in status.get("hosts", []):
            if host["name"] == name:
                states = [w["state"] for w in status["workers"] if w["id"] in host["workers"]]
                return states.count("ready"), len([s for s in states if s != "stopped"]), host["workers_wanted"]

    def scale(self, number, name="alpha"):
        code, _, err = self.penstock("scale", "host/" + name, number, "--session", "h")
        self.assertEqual((code, err), (EXIT_OK, "scaling host/%s to %d worker%s\n" % (name, number, "" if number == 1 else "s")))
        self.wait_until(lambda: self.working(name) == (number,) * 3, lambda: "%d workers: %s" % (number, self.status()))

    def test_a_host_can_be_scaled_while_the_stream_runs(self):
        shape = dict(samples=12000, epochs=1)
        process = self.begin(self.config(dataset='wait = "4ms"', **shape))
        address = self.address()
        alpha, beta = self.host(address, 3, "alpha"), self.host(address, 1, "beta")
        self.joined(4)
        self.scale(1)
        code, _, err = self.penstock("scale", "host/alpha", 4, "--session", "h")
        self.assertEqual(code, EXIT_REFUSED)
        self.assertIn("host/alpha has 3 workers: the number must be 0 to 3", err)
        self.scale(0)
        self.assertIsNone(alpha.poll())  # the host stays joined
        self.scale(3)
        self.scale(2)
        alpha.kill()
        alpha.communicate()
        alpha = self.host(address, 3, "alpha")
        self.wait_until(lambda: self.working("alpha") == (2, 2, 2), "its number is still 2")
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.assertEqual({d["cause"] for d in report["workers"]["deaths"]}, {"host"})  # workers that were asked to leave have not died
        for host in (alpha, beta):
            self.ends(host, EXIT_OK)

    def test_a_batch_goes_to_an_idle_host_before_a_busy_one(self):
        process = self.begin(self.config(samples=2, batch=1, epochs=1, dataset='wait = "5s"'))
        address = self.address()
        self.assertEqual(self.penstock("pause", "--session", "h")[0], EXIT_OK)
        hosts = []
        for count, name in ((2, "alpha"), (4, "beta")):
            hosts.append(self.host(address, 2, name))
            self.joined(count)
        self.assertEqual(self.penstock("resume", "--session", "h")[0], EXIT_OK)
        self.wait_until(lambda: [h["holds"] for h in self.status().get("hosts", [])] == [1, 1], self.status)
        self.report_of(process)
        for host in hosts:
            self.ends(host, EXIT_OK)

    def test_a_session_whose_only_host_is_scaled_to_0_waits_until_it_is_scaled_up(self):
        shape = dict(samples=1000, epochs=1)
        process = self.begin(self.config(hosts=INSECURE + 'wait = "1s"\n', dataset='wait = "4ms"', **shape))
        host = self.host(self.address(), 2, "alpha")
        self.joined(2)
        self.scale(0)
        time.sleep(2)  # longer than `wait`: the session waits for a host that is connected
        self.assertIsNone(process.poll())
        self.scale(2)
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(**shape))
        self.ends(host, EXIT_OK)

    def test_events_report_hosts_and_remain_in_the_record(self):
        secret, wrong = self.secret("right"), self.secret("wrong")
        process = self.begin(self.config(samples=2000, dataset='wait = "4ms"', epochs=1, hosts='secret_file = "%s"\nwait = "30s"\n' % secret))
        address = self.address()
        with_secret = ("--secret-file", secret)
        alpha = self.host(address, 1, "alpha", secret=with_secret)
        beta = self.host(address, 1, "beta", secret=with_secret)
        gamma = self.host(address, 1, "gamma", secret=with_secret)
        self.ends(self.host(address, 1, "delta", secret=("--secret-file", wrong)), EXIT_CONFIG)
        self.joined(3)
        beta.kill()
        beta.communicate()
        self.assertEqual(self.penstock("scale", "host/alpha", 0, "--session", "h")[0], EXIT_OK)
        self.assertEqual(self.penstock("scale", "host/alpha", 1, "--session", "h")[0], EXIT_OK)
        self.assertEqual(self.penstock("drain", "host/gamma", "--session", "h")[0], EXIT_OK)
        self.ends(gamma, EXIT_OK)
        self.report_of(process)
        self.ends(alpha, EXIT_OK)
        events = self.events("--last")  # from the record of the session, which has ended
        told = [(e["kind"], e.get("host")) for e in events]
        for kind, host in (("host_joined", "alpha"), ("host_joined", "beta"), ("host_joined", "gamma"), ("host_lost", "beta"), ("scaled", "alpha"),
                           ("draining", "gamma"), ("host_left", "gamma"), ("host_refused", None)):
            self.assertIn((kind, host), told)
        self.assertNotIn(("host_left", "alpha"), told)  # the host left with the session
        texts = {(e["kind"], e.get("host")): e["text"] for e in events}
        self.assertRegex(texts["host_joined", "alpha"], r"loader host alpha \(127.0.0.1:\d+, pid %d\) has joined, with 1 worker" % alpha.pid)
        self.assertIn("is lost: ", texts["host_lost", "beta"])
        self.assertIn("secret", texts["host_refused", None])

    def begin_with_another_dataset(self, hosts=INSECURE):
        """A session, its dataset, and one with a different number of samples."""
        data, text = self.raw_dataset("data", 40)
        other, _ = self.raw_dataset("other", 41)
        process = self.begin(self.config(text=text, hosts=hosts))
        return process, data, other

    def test_a_refused_dataset_is_an_event_with_both_values(self):
        process, data, other = self.begin_with_another_dataset()
        address = self.address()
        for _ in range(2):
            self.ends(self.host(address, 1, "other", "--data", "%s=%s" % (data, other)), EXIT_CONFIG)
        refused = [e for e in self.events() if e["kind"] == "host_refused"]
        self.assertEqual([e["host"] for e in refused], ["other"])  # one event for each reason
        self.assertIn("the host's dataset has 41 samples, but the session's has 40", refused[0]["text"])
        self.host(address, 1, "a")
        self.report_of(process)

    def test_why_counts_remote_workers_and_reports_whether_they_are_needed(self):
        slow_steps = "plugin:" + os.path.join(BIN, "slow_program.so")
        config = self.config(samples=10**6, dataset='wait = "1ms"', epochs=1, workers=1)
        process = self.start("run", config, "--quiet", "--sink", slow_steps)
        host = self.host(self.address(), 2, "alpha")
        self.joined(2)
        why = self.wait_until(lambda: (now := self.answer("why"))["hosts"] and now, lambda: str(self.answer("why")))
        self.assertEqual((why["workers"]["ready"], why["workers"]["remote"]), (3, 2))
        self.assertIn("The hosts are not needed: the stream does not wait, and on average", why["hosts"])
        self.assertEqual(self.status()["limits"]["hosts"][:27], "The hosts are not needed: t")
        self.assertIn("The hosts are not needed", self.penstock("why", "--session", "h")[1].replace("\n  ", " "))
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        process.communicate(timeout=30)
        self.ends(host, EXIT_OK)

    def test_why_names_too_few_remote_workers(self):
        process = self.begin(self.config(samples=10**6, dataset='work = "5ms"', epochs=1))
        host = self.host(self.address(), 1, "alpha")
        self.joined(1)
        why = self.wait_until(lambda: (now := self.answer("why"))["limit"] == "decode" and now, lambda: str(self.answer("why")))
        self.assertIn("1 worker, 1 of them on 1 host", why["verdict"])
        self.assertIn("`penstock host --workers`", why["verdict"])
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        process.communicate(timeout=30)
        self.ends(host, EXIT_OK)

    def test_check_config_refuses_hosts_without_a_secret(self):
        config = self.config(listen='listen = "0.0.0.0:7077"', hosts="")
        code, out, err = self.penstock("check-config", config)
        self.assertEqual(code, EXIT_CONFIG, out + err)
        for part in ("there is no secret: no host could join", "needs 'secret_file' or 'insecure'", "penstock secret > hosts.secret"):
            self.assertIn(part, out + err)
        self.assertEqual(self.penstock("check-config", config, "--strict")[0], EXIT_CONFIG)
        self.assertNotIn("no secret", "".join(map(str, self.penstock("check-config", self.config()))))

    def test_a_secret_file_that_others_can_read_is_an_error_of_check_config_and_a_missing_one_a_warning(self):
        secret = self.secret("hosts.secret")
        config = self.config(hosts='secret_file = "%s"\n' % secret)
        self.assertEqual(self.penstock("check-config", config, "--strict")[0], EXIT_OK)
        os.chmod(secret, 0o644)
        for verb in ("check-config", "run"):
            code, _, err = self.penstock(verb, config)
            self.assertEqual(code, EXIT_CONFIG, err)
            self.assertEqual(err.count("users other than its owner may use it (mode 0644); allow only the owner: chmod 600 '%s'" % secret), 1, err)
            self.assertNotIn("penstock secret", err)
        os.remove(secret)
        code, _, err = self.penstock("check-config", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("warning: 'secret_file' in [loader.hosts]: reading the hosts' secret from '%s': No such file" % secret, err)
        self.assertEqual(self.penstock("check-config", config, "--strict")[0], EXIT_CONFIG)

    def test_compressed_batches_are_the_same(self):
        shape = dict(samples=200, bytes="700KiB", batch=4, epochs=1)
        expected = self.local_digests(**shape)
        for how in ("lz4", "zstd"):
            with self.subTest(compress=how):
                process = self.begin(self.config(hosts=INSECURE + 'compress = "%s"\n' % how, **shape))
                host = self.host(self.address(), 2)
                self.assertEqual(self.digests_of(self.report_of(process)), expected)
                self.ends(host, EXIT_OK)

    # ---- deaths ----------------------------------------------------------------------------------------------

    def test_hosts_and_their_workers_can_be_killed_and_added_at_any_time(self):
        samples = 400 * KILLS  # so that the stream lasts as long as the kills
        restarts = '[loader.restart.intensity]\nmax = 1000\n[loader.restart.backoff]\nmax = "200ms"\n'
        shape = dict(samples=samples, dataset='wait = "4ms"', epochs=1)
        expected = self.local_digests(samples=samples, epochs=1)
        process = self.begin(self.config(more=restarts, **shape))
        address, names = self.address(), iter(range(10**6))
        hosts = [self.host(address, 2, "host-%d" % next(names)) for _ in range(3)]
        self.joined(1)
        killed = 0
        while killed < KILLS and process.poll() is None:
            killed += 1
            time.sleep(random.uniform(0.05, 0.5))
            victim = random.choice(hosts)
            workers = self.workers_of(victim)
            if workers and random.random() < 0.5:
                signal_process(random.choice(workers), signal.SIGKILL)
                continue
            victim.kill()
            victim.communicate()
            hosts.remove(victim)
            hosts.append(self.host(address, 2, "host-%d" % next(names)))
        report = self.report_of(process, timeout=110 + KILLS)
        self.assertGreaterEqual(killed, KILLS / 2)
        self.assertEqual(self.digests_of(report), expected)
        self.assertEqual(report["quarantine"], [])
        self.assertEqual(report["failures"], [])
        for death in report["workers"]["deaths"]:
            if death["cause"] == "host":
                self.assertIsNone(death["sample"], death)

    def test_a_sample_that_kills_workers_on_hosts_is_named_and_quarantined_like_a_local_one(self):
        shape = dict(samples=200, dataset='faults = [{sample = 17, kind = "segv", times = 0}]', epochs=1)
        local = self.run_json(self.write("local.toml", synthetic(**shape)), "--workers", 2, "--digest")
        process = self.begin(self.config(**shape))
        self.host(self.address(), 2)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.digests_of(local))
        told = lambda r: [(q["sample"], q["attempts"], q["causes"]) for q in r["quarantine"]]
        self.assertEqual(told(report), told(local))
        self.assertEqual(told(report)[0][:2], (17, 3))
        first = report["workers"]["deaths"][0]
        self.assertEqual((first["signal"], first["sample"], first["phase"]), ("SIGSEGV", 17, "loading"))

    def test_a_sample_that_hangs_a_remote_worker_is_found(self):
        hang = '[loader.hang]\nitem_timeout = "1s"\n'
        shape = dict(samples=100, dataset='faults = [{sample = 17, kind = "hang"}]', epochs=1)
        process = self.begin(self.config(more=hang, **shape))
        self.host(self.address(), 2)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(samples=100, epochs=1))
        (death,) = report["workers"]["deaths"]
        self.assertEqual((death["cause"], death["sample"]), ("hang", 17))

    def test_a_silent_host_is_lost_after_lost_after_and_no_sample_is_blamed(self):
        hang = '[loader.hang]\nitem_timeout = "1s"\nheartbeat_timeout = "1s"\n'
        shape = dict(samples=1000, dataset='wait = "4ms"', epochs=1)
        process = self.begin(self.config(hosts=INSECURE + 'lost_after = "2s"\n', more=hang, **shape))
        address = self.address()
        stopped, other = self.host(address, 2, "stopped"), self.host(address, 2, "other")
        self.joined(4)
        for pid in [stopped.pid, *self.workers_of(stopped)]:
            signal_process(pid, signal.SIGSTOP)
        since = time.monotonic()
        self.wait_until(lambda: [h["name"] for h in self.status()["hosts"]] == ["other"], "the silent host is lost")
        self.assertLess(time.monotonic() - since, 5)  # the default
        report = self.report_of(process)
        signal_process(stopped.pid, signal.SIGCONT)
        self.assertEqual(self.digests_of(report), self.local_digests(samples=1000, epochs=1))
        self.assertEqual({(d["cause"], d["sample"]) for d in report["workers"]["deaths"]}, {("host", None)})
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)

    def test_at_sigterm_a_host_finishes_its_batches_and_exits_with_0(self):
        shape = dict(samples=800, dataset='wait = "4ms"', epochs=1)
        process = self.begin(self.config(**shape))
        address = self.address()
        leaving, other = self.host(address, 2, "leaving"), self.host(address, 2, "other")
        self.joined(4)
        leaving.terminate()
        self.ends(leaving, EXIT_OK)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(samples=800, epochs=1))
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)

    def test_a_host_that_leaves_over_a_slow_link_takes_no_longer_than_drain(self):
        """A batch would take 16 s over this link."""
        process = self.begin(self.config(hosts=INSECURE + 'drain = "1s"\n', samples=64, bytes="2MiB", batch=8, epochs=1))
        passed = []

        def slow(_, some):
            passed.append(len(some))
            time.sleep(len(some) / 1e6)
            return some
        host = self.host(Relay(self.address(), slow).address, 1, "a")
        self.wait_until(lambda: sum(passed) > 1 << 20, "a batch on its way")
        since = time.monotonic()
        host.terminate()
        self.ends(host, EXIT_OK)
        self.assertLess(time.monotonic() - since, 15)
        process.terminate()
        process.communicate()

    def test_a_sigterm_to_host_and_workers_is_not_counted_as_an_attempt_at_any_sample(self):
        process = self.begin(self.config(samples=800, dataset='wait = "4ms"', epochs=1))
        address = self.address()
        leaving, other = self.host(address, 2, "leaving"), self.host(address, 2, "other")
        self.joined(4)
        for pid in (*children_of(leaving.pid), leaving.pid):
            os.kill(pid, signal.SIGTERM)
        self.ends(leaving, EXIT_OK)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(samples=800, epochs=1))
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.assertNotIn("signal", {death["cause"] for death in report["workers"]["deaths"]})
        other.wait()

    def test_a_session_without_workers_waits_for_a_host_and_then_fails(self):
        started = time.monotonic()
        code, _, err = self.penstock("run", self.config(hosts=INSECURE + 'wait = "1s"\n'))
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn("there is no loader worker: waiting up to 1 s for a loader host", err)
        self.assertIn("no loader host has joined for 1 s", err)
        self.assertLess(time.monotonic() - started, 15)

    def test_a_session_that_refuses_every_host_fails_with_the_last_refusal(self):
        process, data, other = self.begin_with_another_dataset(INSECURE + 'wait = "10s"\n')
        self.ends(self.host(self.address(), 1, "a", "--data", "%s=%s" % (data, other)), EXIT_CONFIG)
        report = self.report_of(process, EXIT_FAILED)
        self.assertRegex(report["error"], r"no loader host has joined for 10 s .*; loader host a was refused: .* has 41 samples, but")

    def test_a_session_that_loses_its_last_host_continues_with_the_next_one(self):
        shape = dict(samples=600, dataset='wait = "4ms"', epochs=1)
        process = self.begin(self.config(**shape))
        address = self.address()
        first = self.host(address, 2, "first")
        self.joined(2)
        first.kill()
        self.wait_until(lambda: self.status()["hosts"] == [], "it is lost")
        self.host(address, 2, "second")
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(samples=600, epochs=1))

    def test_a_host_whose_workers_cannot_work_leaves_and_the_session_continues(self):
        for script, why in (("#!/bin/sh\necho no disk; exit 78\n", "no disk"), ("#!/nowhere/sh\n", "/penstock-worker'")):
            with self.subTest(script=script):
                programs = tempfile.mkdtemp(dir=self.folder)
                os.chmod(self.write(os.path.join(programs, "penstock-worker"), script), 0o755)
                process = self.begin(self.config(samples=400))
                address = self.address()
                broken = self.start("host", "--join", address, "--workers", 1, "--insecure", "--name", "broken",
                                    env=dict(self.environment, PENSTOCK_LIBEXEC=programs))
                self.assertIn(why, self.ends(broken, EXIT_CONFIG))
                self.host(address, 2)
                report = self.report_of(process)
                self.assertEqual(self.digests_of(report), self.local_digests(samples=400))
                self.assertEqual(report["workers"]["ended_unexpectedly"], 0)

    # ---- who may join ----------------------------------------------------------------------------------------

    def test_hosts_with_the_secret_can_join_and_others_are_refused_with_78(self):
        right, wrong = self.secret("right"), self.secret("wrong")
        process = self.begin(self.config(samples=400, hosts='secret_file = "%s"\nwait = "30s"\n' % right))
        address = self.address()
        self.assertIn("secret", self.ends(self.host(address, 1, "a", secret=("--secret-file", wrong)), EXIT_CONFIG))
        self.assertIn("it has a secret, and this side has none", self.ends(self.host(address, 1, "b"), EXIT_CONFIG))
        joins = self.host(address, 2, "c", secret=("--secret-file", right))
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(samples=400))
        self.ends(joins, EXIT_OK)

    def test_a_host_with_a_secret_and_a_session_without_one_both_report_the_mismatch(self):
        process = self.begin(self.config(samples=400, hosts='insecure = true\nwait = "30s"\n'))
        host = self.host(self.address(), 1, "a", secret=("--secret-file", self.secret("right")))
        self.assertIn("it has no secret, and this side has one", self.ends(host, EXIT_CONFIG))
        self.line_of(process, rb"was refused: it has a secret, and this side has none")

    def test_sessions_and_hosts_do_not_listen_on_all_addresses_if_the_given_one_does_not_exist_here(self):
        elsewhere = "192.0.2.1:0"  # an address of no machine
        err = self.ends(self.start("host", "--listen", elsewhere, "--insecure"), EXIT_CONFIG)
        self.assertIn("listening at %s: no network interface of this machine has that address" % elsewhere, err)
        _, _, err = self.penstock("run", self.config(listen='listen = "%s"' % elsewhere))
        self.assertIn("listening at %s: no network interface of this machine has that address ([loader.hosts] listen)" % elsewhere, err)

    def test_a_session_needs_a_secret_or_the_permission_to_work_without_one(self):
        code, _, err = self.penstock("run", self.config(hosts=""))
        self.assertEqual(code, EXIT_CONFIG, err)
        self.assertEqual(err.count("there is no secret"), 1, err)

    def test_another_dataset_is_refused_with_both_values(self):
        process, data, other = self.begin_with_another_dataset()
        address = self.address()
        err = self.ends(self.host(address, 1, "a", "--data", "%s=%s" % (data, other)), EXIT_CONFIG)
        self.assertIn("the host's dataset has 41 samples, but the session's has 40", err)
        err = self.ends(self.host(address, 1, "a", "--data", "/elsewhere=%s" % other), EXIT_CONFIG)
        self.assertIn("not below a folder of --data", err)
        err = self.ends(self.host(address, 1, "a", "--data", "%s=/nowhere" % data), EXIT_CONFIG)
        self.assertIn("/nowhere", err)
        self.host(address, 1, "a")
        self.report_of(process)

    def test_another_version_is_refused_with_both_values(self):
        _, out, _ = self.penstock("version", "--json")
        version = json.loads(out)["version"].encode()
        process = self.begin(self.config(samples=400))
        relay = Relay(self.address(), lambda _, some: some.replace(version, b"9" * len(version), 1))
        err = self.ends(self.host(relay.address), EXIT_CONFIG)
        self.assertIn("the host runs penstock %s, but the session runs penstock %s" % ("9" * len(version), version.decode()), err)
        self.host(self.address())
        self.report_of(process)

    # ---- damaged bytes ---------------------------------------------------------------------------------------

    def test_a_damaged_batch_is_sent_again_and_three_in_a_row_disconnect_the_host(self):
        shape = dict(samples=200, bytes="64KiB", epochs=1)
        for lost in (False, True):
            with self.subTest(lost=lost):
                damaged = []

                def damage(connection, some):
                    # Large pieces are from the middle of batches. A lost host connects again.
                    if len(some) < 20000 or connection > 0 or (damaged and not lost):
                        return some
                    damaged.append(len(some))
                    middle = len(some) // 2
                    return some[:middle] + bytes([some[middle] ^ 1]) + some[middle + 1:]

                process = self.begin(self.config(**shape))
                bad = self.host(Relay(self.address(), damage).address, 1, "bad")
                report = self.report_of(process)
                self.assertEqual(self.digests_of(report), self.local_digests(**shape))
                self.assertTrue(damaged)
                causes = [(d["cause"], d["sample"]) for d in report["workers"]["deaths"]]
                self.assertEqual(causes, [("host", None)] if lost else [])
                bad.kill()

    def test_a_transfer_that_takes_longer_than_lost_after_does_not_count_as_silence(self):
        shape = dict(samples=24, bytes="2MiB", batch=8, epochs=1)
        process = self.begin(self.config(hosts=INSECURE + 'lost_after = "1s"\n', **shape))

        def slow(_, some):
            time.sleep(len(some) / 6e6)
            return some
        host = self.host(Relay(self.address(), slow).address, 1, "a")
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertEqual(report["workers"]["deaths"], [])
        self.ends(host, EXIT_OK)

    def test_links_can_be_slow_and_can_be_cut(self):
        cuts = []

        def change(connection, some):
            time.sleep(0.02)
            if len(cuts) < 10 and random.random() < 0.02:
                cuts.append(connection)
                raise OSError("cut")
            return some

        shape = dict(samples=1600, epochs=1)
        process = self.begin(self.config(**shape))
        relay = Relay(self.address(), change)
        for name in ("a", "b"):
            self.host(relay.address, 2, name)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertTrue(cuts)
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.assertEqual(report["quarantine"], [])

    def test_batches_that_a_slow_host_holds_are_also_loaded_by_others(self):
        pieces = []

        def change(connection, some):
            if len(some) > 4096:
                pieces.append(connection)
            if len(pieces) > 20:
                time.sleep(60)  # longer than this test, and shorter than lost_after
            return some

        shape = dict(samples=1600, dataset='wait = "2ms"', epochs=1)
        process = self.begin(self.config(hosts=INSECURE + 'lost_after = "5m"\n', **shape))
        address = self.address()
        slow = self.host(Relay(address, change).address, 1, "slow")
        self.host(address, 2, "fast")
        report = self.report_of(process, timeout=40)
        self.assertGreater(len(pieces), 20)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertGreaterEqual(report["hedges"]["won"], 1)
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        slow.kill()

    def test_peers_without_the_secret_do_not_affect_a_session(self):
        process = self.begin(self.config(samples=400))
        host, port = self.address().rsplit(":", 1)
        peers = []
        for i in range(100):
            peer = socket.create_connection((host, int(port)))
            peer.sendall([b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x00\x00\x00\x00\x10\x00\x00\x00" + bytes(8)][i % 3])
            peers.append(peer)
        self.host("%s:%s" % (host, port), 2)
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(samples=400))
        for peer in peers:
            peer.close()


if __name__ == "__main__":
    main()
