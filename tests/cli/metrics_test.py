"""penstock metrics: one page of all sessions, and what it tells an operator: which workers died, what is stuck, how last night ended."""

import re
import urllib.request

from harness import *

ENDLESS = synthetic(samples=100000, epochs=100, dataset='wait = "2ms"')
UNSHUFFLED = ("[sampler]", "[sampler]\nshuffle = false")


def parsed(page):
    """[(name, labels, value)]; checks that each metric is in one block, and no series occurs twice."""
    series, seen, blocks, name = [], set(), [], None
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            blocks.append(name)
            continue
        if line.startswith("#"):
            continue
        whole, value = line.rsplit(" ", 1)
        assert whole.startswith(name), (name, line)
        assert whole not in seen, line
        seen.add(whole)
        labels = {k: v.replace('\\"', '"') for k, v in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', whole)}
        series.append((whole.split("{")[0], labels, float(value)))
    assert len(blocks) == len(set(blocks)), blocks
    return series


class MetricsTest(PenstockTest):
    def page(self, *options):
        code, out, err = self.penstock("metrics", *options)
        self.assertEqual(code, EXIT_OK, err)
        return parsed(out)

    def find(self, page, name, **labels):
        return [(l, v) for n, l, v in page if n == name and labels.items() <= l.items()]

    def live(self, name, text=ENDLESS, *arguments):
        process = self.start("run", self.write(name + ".toml", text), "--quiet", "--workers", 2, *arguments)
        self.assertEqual(self.penstock("wait", "--session", name, "--timeout", "30s")[0], EXIT_OK)
        return process

    # ---- running sessions ------------------------------------------------------------------------------------

    def test_running_sessions_are_on_one_page_with_their_names(self):
        self.live("one")
        self.live("two")
        page = self.wait_until(lambda: (p := self.page()) and all(self.find(p, "penstock_batches_delivered_total", session=name)[0][1] > 0
                                                                  for name in ("one", "two")) and p, "batches of both")
        self.assertEqual({l["session"]: v for l, v in self.find(page, "penstock_session_up")}, {"one": 1, "two": 1})
        ids = {l["session"]: l["id"] for l, _ in self.find(page, "penstock_session_info")}
        self.assertEqual(set(ids), {"one", "two"})
        self.assertEqual(ids["one"], json.loads(self.penstock("status", "--session", "one", "--json")[1])["id"])
        self.assertEqual(self.find(page, "penstock_session_ended_info"), [])
        ((_, started),) = self.find(page, "penstock_session_start_timestamp_seconds", session="one")
        self.assertTrue(time.time() - 60 < started <= time.time(), started)
        self.assertEqual(self.penstock("stop", "--wait", "--session", "one")[0], EXIT_OK)
        ((ended, _),) = self.find(self.page(), "penstock_session_ended_info", session="one")
        self.assertEqual(ended["id"], ids["one"])
        ((_, recorded),) = self.find(self.page(), "penstock_session_ended_start_timestamp_seconds", session="one")
        self.assertAlmostEqual(recorded, started, places=3)

    def test_a_session_that_does_not_answer_is_down_and_the_others_are_not_affected(self):
        silent = self.live("silent")
        self.live("well")
        signal_process(silent.pid, signal.SIGSTOP)
        page = self.page()
        self.assertEqual({l["session"]: v for l, v in self.find(page, "penstock_session_up")}, {"silent": 0, "well": 1})
        self.assertTrue(self.find(page, "penstock_batches_delivered_total", session="well"))
        ((seen, _),) = self.find(page, "penstock_session_process_info", session="silent")
        self.assertEqual((seen["pid"], seen["process"]), (str(silent.pid), "suspended"))
        self.assertTrue(seen["id"].endswith("-%d" % silent.pid), seen)
        ((_, last),) = self.find(page, "penstock_session_last_seen_timestamp_seconds", session="silent")
        self.assertLess(abs(time.time() - last), 60)
        ((seen, _),) = self.find(page, "penstock_session_process_info", session="well")
        self.assertEqual(seen["process"], "running")

    def test_deaths_and_failing_samples_are_on_the_page_of_a_running_session(self):
        faults = 'wait = "1ms"\nfaults = [{sample = 40, kind = "throw", times = 0}, {sample = 80, kind = "segv", times = 0}]'
        self.start("run", self.write("bad.toml", synthetic(samples=1000000, epochs=1, dataset=faults).replace(*UNSHUFFLED)), "--quiet", "--workers", 3)
        page = self.wait_until(lambda: (p := self.page()) and self.find(p, "penstock_sample_quarantined_info") and p, "a quarantine", seconds=60)
        ((sample, _),) = self.find(page, "penstock_sample_quarantined_info")
        self.assertEqual((sample["session"], sample["sample"], sample["index"]), ("bad", "sample 80", "80"))
        self.assertIn("SIGSEGV", sample["causes"])
        ((death, _),) = self.find(page, "penstock_last_death_info")
        self.assertEqual((death["cause"], death["signal"], death["sample"]), ("signal", "SIGSEGV", "sample 80"))
        ((_, when),) = self.find(page, "penstock_last_death_timestamp_seconds")
        self.assertLess(abs(time.time() - when), 120)
        ((failed, _),) = self.find(page, "penstock_sample_failed_info")
        self.assertEqual(failed["index"], "40")
        self.assertTrue(failed["reason"])

    # ---- ended sessions --------------------------------------------------------------------------------------

    def test_the_page_shows_how_sessions_ended_with_the_reason_and_the_last_death(self):
        fault = 'faults = [{sample = 17, kind = "segv", times = 1}]'
        self.run_json(self.write("fine.toml", synthetic(samples=200, epochs=1, dataset=fault)), "--workers", 2)
        config = self.write("gone.toml", '[dataset]\npath = "/nonexistent/photos"\n[gpu]\ndevice = "host"\n')
        self.assertEqual(self.penstock("run", config)[0], EXIT_FAILED)
        killed = self.live("killed")
        killed.kill()
        killed.wait()
        self.live("stopped")
        self.assertEqual(self.penstock("stop", "--wait", "--session", "stopped")[0], EXIT_OK)
        page = self.page()
        ended = {l["session"]: l for l, _ in self.find(page, "penstock_session_ended_info")}
        self.assertEqual({name: l["outcome"] for name, l in ended.items()},
                         {"fine": "finished", "gone": "failed", "killed": "died", "stopped": "stopped"})
        self.assertIn("/nonexistent/photos", ended["gone"]["reason"])
        self.assertEqual(ended["gone"]["config_file"], config)
        self.assertEqual(self.find(page, "penstock_session_ended_batches", session="fine")[0][1], 25)
        ((death, _),) = self.find(page, "penstock_session_ended_last_death_info", session="fine", of="worker")
        self.assertEqual((death["signal"], death["sample"]), ("SIGSEGV", "sample 17"))
        ((_, when),) = self.find(page, "penstock_session_ended_timestamp_seconds", session="gone")
        self.assertLess(abs(time.time() - when), 120)
        # The id is what `penstock --session` accepts.
        self.assertEqual(self.penstock("status", "--session", ended["gone"]["id"])[0], EXIT_OK)

    def test_sessions_that_ended_longer_ago_are_omitted(self):
        self.run_json(self.write("short.toml", synthetic(samples=8, epochs=1)))
        (record,) = [os.path.join(self.folder, "penstock", name) for name in os.listdir(os.path.join(self.folder, "penstock")) if name.endswith(".record")]
        os.utime(record, (time.time() - 7200, time.time() - 7200))
        self.assertEqual(self.find(self.page("--since", "1h"), "penstock_session_ended_info"), [])
        self.assertEqual(len(self.find(self.page("--since", "3h"), "penstock_session_ended_info")), 1)

    def test_every_metric_of_ended_sessions_is_documented_and_every_documented_one_exists(self):
        self.run_json(self.write("short.toml", synthetic(samples=8, epochs=1)))
        of_all = {line.split()[2] for line in self.penstock("metrics")[1].splitlines() if line.startswith("# TYPE ")}
        with open(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs", "metrics.md")) as file:
            section = file.read().partition("## All sessions, and those that have ended")[2].partition("## Five questions")[0]
        rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `penstock_")]
        self.assertEqual(of_all, set(re.findall(r"`(penstock_\w+)`", " ".join(rows))))

    # ---- the exporter ----------------------------------------------------------------------------------------

    def test_the_exporter_serves_the_page_until_a_signal(self):
        exporter = self.start("metrics", "--listen", "127.0.0.1:0", bufsize=0)
        address = exporter.stderr.readline().decode().strip()
        self.assertRegex(address, r"^http://127\.0\.0\.1:\d+/metrics$")
        get = lambda: parsed(urllib.request.urlopen(address, timeout=10).read().decode())
        self.assertEqual(self.find(get(), "penstock_session_up"), [])
        process = self.live("photos")
        self.assertEqual([l["session"] for l, _ in self.find(get(), "penstock_session_up")], ["photos"])
        process.kill()
        process.wait()
        ended = self.find(get(), "penstock_session_ended_info")
        self.assertEqual([(l["session"], l["outcome"]) for l, _ in ended], [("photos", "died")])
        self.assertEqual(get(), get())
        exporter.send_signal(signal.SIGTERM)
        _, err = exporter.communicate(timeout=10)
        self.assertEqual((exporter.returncode, err), (EXIT_OK, b"stopping\n"))

    def test_the_page_can_be_written_to_a_file_or_in_json(self):
        self.run_json(self.write("short.toml", synthetic(samples=8, epochs=1)))
        out = os.path.join(self.folder, "penstock.prom")
        code, told, err = self.penstock("metrics", "--out", out, "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(json.loads(told), {"schema": "penstock.metrics/1", "sessions": 0, "ended": 1, "out": out})
        with open(out) as file:
            written = file.read()
        self.assertEqual(len(self.find(parsed(written), "penstock_session_ended_info")), 1)
        self.assertEqual(json.loads(self.penstock("metrics", "--json")[1])["text"], written)

    def test_mistakes_are_named(self):
        for options, code, words in ((["--listen", "9465"], EXIT_USAGE, "'9465' is not an IP address and port, such as 127.0.0.1:9464"),
                                     (["--listen", "127.0.0.1:x"], EXIT_USAGE, "'127.0.0.1:x' is not an IP address and port"),
                                     (["--since", "soon"], EXIT_USAGE, "--since soon: must be a time"),
                                     (["--out", "/nonexistent/x"], EXIT_FAILED, "/nonexistent/x"),
                                     (["--out", "x", "--listen", ":0"], EXIT_USAGE, "--listen")):
            got, _, err = self.penstock("metrics", *options)
            self.assertEqual(got, code, err)
            self.assertIn(words, err)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            code, _, err = self.penstock("metrics", "--listen", address)
            self.assertEqual(code, EXIT_FAILED)
            self.assertIn("listening on %s for metrics: Address already in use" % address, err)


if __name__ == "__main__":
    main()
