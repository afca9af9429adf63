"""`penstock why`, and `limits` in status: what limits a stream, in sessions with a planted bottleneck.

A handful runs with the process tests. All 42 of bottlenecks.py: PENSTOCK_TEST_BOTTLENECKS=42 tests/cli/why_test.py
WhyTest.test_planted_bottlenecks_are_named_with_the_key_to_change, which prints a table. With PENSTOCK_TEST_TABLE=NAME it also writes
NAME.json and NAME.txt. It takes 8 minutes with fewer than 8 cores, and 2 with 16.
"""

import concurrent.futures
import http.client
import multiprocessing
import threading

from bottlenecks import *

LIMITS = ["storage", "decode", "order", "wire", "convert", "consumer", "start"]
FEW = ["records, 5 ms a read, 2 workers", "3 ms of work, 2 workers", "a sample that takes 2 s in each epoch", "a link of 50 MiB/s",
       "5 MiB/s of conversion", "slow steps", "workers that need 6 s to start", "2 of 64 samples take 2 s"]
ALL = int(os.environ.get("PENSTOCK_TEST_BOTTLENECKS", "0"))
TABLE = os.environ.get("PENSTOCK_TEST_TABLE")
TICK = os.sysconf("SC_CLK_TCK")


def seconds_used(pid):
    """The processor time of a process and of its children that have ended; 0 if it is gone."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / TICK
    except OSError:
        return 0


class OtherPrograms:
    """Measures, from the construction to the call, how many of the cores that a process may use other programs use."""

    def __init__(self, pid):
        self.pid, self.cores, self.before, self.begun = pid, os.sched_getaffinity(pid), {}, time.monotonic()
        self.before = self.own()
        self.busy = self.busy_seconds()

    def own(self):
        return {pid: seconds_used(pid) for pid in [self.pid, *descendants_of(self.pid)]}

    def busy_seconds(self):
        with open("/proc/stat") as file:
            lines = [line.split() for line in file if line.startswith("cpu")]
        of_core = {name[3:]: list(map(int, ticks)) for name, *ticks in lines}
        # All times but idle and iowait; guests' time is already part of user time.
        return sum(sum(of_core[str(core)][:8]) - sum(of_core[str(core)][3:5]) for core in self.cores) / TICK

    def share(self):
        own = sum(seconds - self.before.get(pid, 0) for pid, seconds in self.own().items())
        return (self.busy_seconds() - self.busy - own) / (time.monotonic() - self.begun) / len(self.cores)


class WhyTest(PenstockTest):
    def answer(self, *arguments, name="planted"):
        code, out, err = self.penstock(*arguments, "--json", "--session", name)
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def begin(self, planted):
        path = self.write("planted.toml", planted.config(self))
        process = self.start("run", path, "--workers", planted.workers, "--quiet", *planted.options,
                             env=dict(self.environment, **planted.environment))
        self.wait_until(lambda: self.penstock("status", "--session", "planted")[0] == EXIT_OK, "the session")
        return process

    def slow_down(self, worker, over):
        """Lets a worker run only a tenth of the time until `over` is set, and then normally."""
        pid = self.wait_until(lambda: next((w["pid"] for w in self.answer("status")["workers"]
                                            if w["id"] == worker and w["state"] == "ready"), None), "the worker")

        def alternate():
            while not over.is_set():
                signal_process(pid, signal.SIGSTOP)
                time.sleep(0.045)
                signal_process(pid, signal.SIGCONT)
                time.sleep(0.005)
        thread = threading.Thread(target=alternate)
        thread.start()
        return thread

    def why_of(self, planted):
        process = self.begin(planted)
        over = threading.Event()
        slow = self.slow_down(planted.slow_worker, over) if planted.slow_worker is not None else None
        try:
            self.assertIsNone(process.poll())
            if "start" not in planted.limits:  # on a busy machine, the start may take as long as the measurement
                self.wait_until(lambda: self.answer("status")["batches_delivered"] > 0, "the first batch", seconds=60)
            others = OtherPrograms(process.pid)
            # The time that the measurement needs: there is no event to wait for.
            time.sleep(planted.seconds)
            return self.answer("why"), others.share()
        finally:
            over.set()
            if slow:
                slow.join()
            process.kill()
            process.communicate()

    def check(self, planted):
        """Whether the expected limit and key were named, which ones were, and the share of the cores that other programs used."""
        why, others = self.why_of(planted)
        self.assertEqual(why["schema"], "penstock.why/1")
        self.assertEqual(list(why["limits"]), LIMITS)
        self.assertLessEqual(sum(why["limits"].values()), 1.001)
        # No key helps workers if other programs use their cores.
        keys = planted.keys | {None} if planted.keys in (LESS, SMALLER) and others > 0.5 else planted.keys
        return why["limit"] in planted.limits and why["key"] in keys, why, others

    def plant(self, what):
        planted = next(b for b in BOTTLENECKS if b.what == what)
        right, why, others = self.check(planted)
        self.assertTrue(right, (why, others))
        return why

    def test_a_slow_disk_is_reported_as_storage(self):
        self.assertGreater(self.plant(FEW[0])["limits"]["storage"], 0.5)

    def test_slow_decoding_is_named_with_its_figures(self):
        why = self.plant(FEW[1])
        self.assertGreater(why["limits"]["decode"], 0.5)
        # On a busy machine one worker may have no core while the other has one, or both have none most of the time.
        self.assertRegex(why["verdict"], r"(Decoding limits you: (2 workers used a core for \d+ % of their time|worker/\d needs .* had no core .*)|"
                                         r"Too few cores limit you: 2 workers had no core for \d+ % .*); the consumer waited \d+ % of the time")
        self.assertGreater(why["workers"]["busy"], 0.8)
        self.assertEqual([w["worker"] for w in why["workers"]["each"]], [0, 1])

    def test_a_stalled_sample_is_named_with_its_index(self):
        self.assertIn("sample 100 of worker/", self.plant(FEW[2])["verdict"])

    def test_slow_samples_are_named_instead_of_their_workers_or_cores(self):
        why = self.plant(FEW[7])
        self.assertRegex(why["verdict"], r"^Slow samples limit you: sample (5|40) of worker/\d took 2\.\d s")
        self.assertNotIn("restart", why["verdict"] + " ".join(why["more"]))
        self.assertGreater(why["waited_for_slow_samples"], 0.5)
        self.assertEqual({s["sample"] for s in why["slowest_samples"][:2]}, {5, 40})
        self.assertEqual([s["name"] for s in why["slowest_samples"][:2]], ["sample %d" % s["sample"] for s in why["slowest_samples"][:2]])

    def test_describe_lists_the_slowest_samples(self):
        self.begin(next(b for b in BOTTLENECKS if b.what == FEW[7]))
        slowest = self.wait_until(lambda: self.answer("describe", "scheduler")["scheduler"]["slowest_samples"], "a slow sample", seconds=30)
        self.assertIn(slowest[0]["sample"], (5, 40))
        _, text, _ = self.penstock("describe", "scheduler", "--session", "planted")
        self.assertRegex(text, r"(?m)^  slow samples +2(\.\d+)? s: sample (5|40), worker/\d")
        _, text, _ = self.penstock("why", "--session", "planted")
        self.assertRegex(text, r"slow samples of the last 5 minutes:\n  2(\.\d+)? s: sample (5|40), worker/\d")

    def test_a_slow_link_is_reported_as_wire(self):
        self.plant(FEW[3])

    def test_a_slow_conversion_is_reported_as_convert(self):
        self.plant(FEW[4])

    def test_slow_steps_are_reported_as_consumer_and_no_key_is_named(self):
        self.assertGreater(self.plant(FEW[5])["limits"]["consumer"], 0.7)

    def test_a_slow_start_is_reported_as_start(self):
        self.plant(FEW[6])

    def metrics(self, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()

    def test_status_metrics_and_text_report_the_same_limits(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.start("run", self.write("planted.toml", synthetic(samples=ENDLESS, epochs=1, dataset='work = "2ms"',
                                                               more='[metrics]\nlisten = "127.0.0.1:%d"' % port)),
                   "--workers", 1, "--quiet")
        self.wait_until(lambda: self.penstock("status", "--session", "planted")[0] == EXIT_OK, "the session")
        self.wait_until(lambda: self.answer("why")["workers"]["each"], "the first batch")  # before the first batch, decoding may be the limit, too
        status = self.wait_until(lambda: next((s for s in [self.answer("status")] if s["limits"]["decode"] > 0.5), None), "decoding")
        self.assertEqual(list(status["limits"]), LIMITS + ["verdict"])
        self.assertEqual(status["verdict"], status["limits"]["verdict"])
        says = "(Decoding limits|Too few cores limit) you"  # on a busy machine there may be too few cores
        self.assertRegex(status["verdict"], says)
        self.assertRegex(self.metrics(port), r'(?m)^penstock_limit_share\{limit="decode"\} 0\.[3-9]')
        _, text, _ = self.penstock("why", "worker/0", "--session", "planted")
        self.assertRegex(text, says)
        self.assertRegex(text, r"(?m)^decode +\d+ % +#+ ")
        self.assertRegex(text, r"worker/0: [\d.]+ ms a sample")
        code, _, err = self.penstock("why", "worker/9", "--session", "planted")
        self.assertEqual(code, EXIT_NO_TARGET)
        self.assertIn("there is no worker/9", err)

    def test_for_a_paused_session_why_says_only_that_it_is_paused(self):
        self.start("run", self.write("planted.toml", synthetic(samples=ENDLESS, epochs=1, dataset='wait = "2ms"')), "--workers", 1, "--quiet")
        self.assertEqual(self.penstock("wait", "--session", "planted", "--timeout", "30s")[0], EXIT_OK)
        self.assertEqual(self.penstock("pause", "--session", "planted")[0], EXIT_OK)
        _, out, _ = self.penstock("why", "--session", "planted")
        self.assertEqual(out, "An operator has paused the session.\n  `penstock resume --session planted` ends the pause.\n")

    def test_for_a_pool_of_jobs_why_says_what_its_workers_do(self):
        process = self.start("map", "--workers", 2, "--quiet", "--set", "name=planted", "--command", "sleep {}", stdin=subprocess.PIPE)
        process.stdin.write(b"\n".join(b"0.01" for _ in range(400)) + b"\n")
        process.stdin.flush()
        self.wait_until(lambda: self.penstock("status", "--session", "planted")[0] == EXIT_OK, "the pool")
        # Processes that sleep use no core, and their worker waits.
        why = self.wait_until(lambda: next((w for w in [self.answer("why")] if w["limits"]["decode"] > 0.3), None), "waiting jobs")
        self.assertEqual((why["of"], why["limit"]), ("jobs", "decode"))
        self.assertNotIn("torage", why["verdict"] + " ".join(why["more"]))
        self.assertEqual([why["limits"][l] for l in ("storage", "wire", "convert")], [0, 0, 0])

    @unittest.skipIf(ALL == 0, "PENSTOCK_TEST_BOTTLENECKS=42")
    def test_planted_bottlenecks_are_named_with_the_key_to_change(self):
        self.assertEqual(len(BOTTLENECKS), 42)
        fork = multiprocessing.get_context("fork")
        lanes = fork.SimpleQueue()
        for cores in groups_of_cores():
            lanes.put(cores)
        rows, lines = [], []
        with concurrent.futures.ProcessPoolExecutor(len(groups_of_cores()), fork, keep_to, [lanes]) as pool:
            for number, (planted, row) in enumerate(zip(BOTTLENECKS, pool.map(look_at, range(ALL))), 1):
                rows.append(row)
                lines.append("%2d  %-5s  %-12s %-66s %s (%s): %s%s" % (
                    number, "ok" if row["right"] else "WRONG", "/".join(planted.limits), planted.what, row["limit"], row["key"],
                    " ".join("%s %d" % (name, round(100 * share)) for name, share in row["limits"].items() if share >= 0.02),
                    "; other programs used %d %% of the cores" % round(100 * row["others"]) if row["others"] >= 0.1 else ""))
                print(lines[-1], file=sys.stderr, flush=True)
        if TABLE:
            with open(TABLE + ".json", "w") as file:
                json.dump(rows, file, indent=1)
            with open(TABLE + ".txt", "w") as file:
                file.write("\n".join(lines) + "\n")
        wrong = [(row["planted"], row["verdict"]) for row in rows if not row["right"]]
        self.assertLessEqual(len(wrong), 2, wrong)


def groups_of_cores():
    """Four cores each: what is planted in one group does not disturb the others."""
    cores = sorted(os.sched_getaffinity(0))
    return [cores[first:first + 4] for first in range(0, max(len(cores) - 3, 1), 4)]


def keep_to(lanes):
    os.sched_setaffinity(0, lanes.get())


def look_at(number):
    planted, test = BOTTLENECKS[number], WhyTest()
    row = {"planted": planted.what, "expected": {"limits": planted.limits, "keys": sorted(planted.keys, key=str)},
           "right": False, "limit": None, "key": None, "verdict": "", "limits": {}, "others": 0}
    test.setUp()
    try:
        right, why, others = test.check(planted)
        row.update({key: why[key] for key in ("limit", "key", "verdict", "limits")}, right=right, others=round(others, 3))
    except AssertionError as failed:  # the others are measured nevertheless
        row["verdict"] = str(failed)
    finally:
        test.tearDown()
        test.doCleanups()
    return row


if __name__ == "__main__":
    main()
