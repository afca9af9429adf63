"""What an operator sees of loader hosts: status, top and metrics, while hosts work, are lost, or are waited for."""

from host_case import *

ENDLESS = dict(samples=1000000, dataset='wait = "2ms"', epochs=1)


class WatchedHostsTest(HostCase):
    def stop(self, process, *hosts):
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        process.communicate(timeout=30)
        for host in hosts:
            self.ends(host, EXIT_OK)

    def text(self, *arguments):
        code, out, err = self.penstock(*arguments, "--session", "h")
        self.assertEqual(code, EXIT_OK, err)
        return out

    def metrics(self):
        return dict(line.rsplit(" ", 1) for line in self.penstock("metrics")[1].splitlines() if line.startswith("penstock_host"))

    def test_status_and_top_have_a_section_about_hosts_with_their_rates_and_cores(self):
        process = self.begin(self.config(**ENDLESS))
        address = self.address()
        hosts = [self.host(address, 2, name) for name in ("alpha", "beta")]
        self.joined(4)
        busy = lambda: all(h["samples_per_second"] > 0 and h["round_trip_seconds"] > 0 and (h["cpu_cores"] or 0) > 0 for h in self.status()["hosts"])
        self.wait_until(busy, lambda: "rates, round trips and cores: %s" % self.status()["hosts"])
        for verb in (("status",), ("top", "--once")):
            lines = self.text(*verb).splitlines()
            (head,) = [i for i, line in enumerate(lines) if line.startswith("host ")]
            self.assertEqual(lines[head].split(), ["host", "state", "workers", "samples/s", "MiB/s", "trip", "cores", "address"])
            for name, line in zip(("alpha", "beta"), lines[head + 1:]):
                self.assertRegex(line, r"^%s +ready +2/2 +[\d.]+ +[\d.]+ +[\d.]+ [mu]?s +\d+\.\d +127\.0\.0\.1:\d+$" % name)
        self.assertIn("hosts join at %s\n" % address, self.text("status"))
        def remote_memory():  # the memory as status shows it, and as the kernel counts it
            shown = {w["pid"]: w["rss_bytes"] for w in self.status()["workers"] if w["pid"] and w["id"] in self.status()["hosts"][0]["workers"]}
            return [(rss, int(re.search(r"VmRSS:\s+(\d+) kB", open("/proc/%d/status" % pid).read())[1]) * 1024) for pid, rss in shown.items()]
        self.wait_until(lambda: all(0.7 * kernel < shown < 1.3 * kernel for shown, kernel in remote_memory()), lambda: "memory: %s" % remote_memory())
        look = json.loads(self.text("top", "--once", "--json"))
        self.assertEqual(sorted(h["name"] for h in look["status"]["hosts"]), ["alpha", "beta"])
        self.assertIsNone(look["status"]["waits_for_hosts"])
        self.stop(process, *hosts)

    def test_a_session_that_waits_for_its_first_host_says_so_and_shows_its_address(self):
        process = self.begin(self.config(hosts=INSECURE + 'wait = "45s"\n', **ENDLESS))
        address = self.address()
        waits = self.wait_until(lambda: self.status().get("waits_for_hosts"), "it waits")
        self.assertEqual(waits["limit_seconds"], 45)
        self.assertRegex(self.text("status"), r"hosts join at %s; waiting for a loader host for \d+ s, at most 45 s" % re.escape(address))
        self.assertRegex(self.text("top", "--once"), r"hosts    waiting for a loader host for \d+ s, at most 45 s; hosts join at %s" % re.escape(address))
        self.assertGreater(float(self.metrics()['penstock_hosts_wait_seconds{session="h"}']), 0)
        host = self.host(address, 1)
        self.joined(1)
        self.wait_until(lambda: self.status()["waits_for_hosts"] is None, "it waits no longer")
        self.assertNotIn("waiting for", self.text("status"))
        self.stop(process, host)

    def test_a_lost_host_is_named_with_the_reason_until_it_is_back_and_its_counters_continue(self):
        process = self.begin(self.config(workers=1, **ENDLESS))
        address = self.address()
        stays, lost = self.host(address, 1, "stays"), self.host(address, 1, "lost")
        self.joined(2)
        samples = 'penstock_host_samples_total{session="h",host="%s"}'
        self.wait_until(lambda: float(self.metrics().get(samples % "lost", 0)) > 0, "samples of it")
        lost.kill()
        lost.communicate()
        (gone,) = self.wait_until(lambda: self.status()["hosts_lost"], "it is lost")
        self.assertEqual(gone["name"], "lost")
        self.assertRegex(gone["why"], "connection was closed|Connection reset")
        self.assertRegex(self.text("status"), r"\nlost: lost \(127\.0\.0\.1:\d+\) \d+ s ago: %s\n" % re.escape(gone["why"]))
        code, _, err = self.penstock("describe", "host/lost", "--session", "h")
        self.assertEqual(code, EXIT_NO_TARGET)
        self.assertRegex(err, r"host/lost had joined, but was lost \d+ s ago: %s; available: host/stays\n" % re.escape(gone["why"]))
        page = self.metrics()
        self.assertEqual(page['penstock_host_up{session="h",host="lost"}'], "0")
        self.assertEqual(page['penstock_host_up{session="h",host="stays"}'], "1")
        self.assertEqual(page['penstock_host_losses_total{session="h",host="lost",cause="closed"}'], "1")
        before = float(page[samples % "lost"])
        again = self.host(address, 1, "lost")
        self.joined(2)
        self.wait_until(lambda: self.status()["hosts_lost"] == [] and float(self.metrics()[samples % "lost"]) > before, "it sends again")
        page = self.metrics()
        self.assertEqual(page['penstock_host_up{session="h",host="lost"}'], "1")
        self.assertEqual(page['penstock_host_workers{session="h",host="lost",state="ready"}'], "1")
        self.assertGreater(float(page['penstock_host_cpu_seconds_total{session="h",host="stays"}']), 0)
        self.stop(process, stays, again)

    def test_every_metric_of_hosts_is_documented_and_every_documented_one_exists(self):
        process = self.begin(self.config(**ENDLESS))
        host = self.host(self.address(), 1)
        self.joined(1)
        exposed = set(re.findall(r"^# TYPE (penstock_host\S*)", self.penstock("metrics")[1], re.M))
        with open(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs", "metrics.md")) as file:
            section = file.read().partition("## Loader hosts")[2].partition("## Pools of jobs")[0]
        self.assertEqual(exposed, set(re.findall(r"^\| `(penstock_\w+)", section, re.M)))
        self.stop(process, host)

    def why_of_working_hosts(self):
        """The answer to why, once its 10 s exclude the time before the workers of the hosts were ready."""
        asked = []

        def is_measured():
            asked.append(json.loads(self.text("why", "--json")))
            return asked[-1]["seconds"] > 9 and asked[-1]["limits"]["start"] < 0.01
        self.wait_until(is_measured, lambda: "a measurement without the startup time: %s" % asked[-1:], 60)
        return asked[-1]

    def test_why_names_a_slow_link_to_the_hosts_and_the_remedy(self):
        # Two workers could deliver 60 MB/s with few cores; the link carries the data of only one.
        shape = dict(samples=1000000, bytes="64KiB", dataset='wait = "2ms"', epochs=1)
        process = self.begin(self.config(**shape))
        host = self.host(Relay(self.address(), Bandwidth(1e6)).address, 2, "alpha")
        self.joined(2)
        why = self.why_of_working_hosts()
        self.assertEqual((why["limit"], why["key"]), ("wire", "loader.hosts.compress"), why)
        self.assertGreater(why["limits"]["wire"], 0.6)
        text = " ".join(self.text("why").split())
        self.assertIn("The link to the loader hosts limits you: batches were on their way while the workers waited", text)
        self.assertIn('compress the batches if their data compresses ([loader.hosts] compress, now "none"), or send fewer bytes.', text)
        self.assertIn("2 of 2 workers are on 1 host", text)
        self.stop(process, host)

    def test_why_does_not_blame_a_link_that_the_hosts_do_not_fill(self):
        shape = dict(samples=1000000, bytes="4KiB", dataset='work = "5ms"', epochs=1)
        process = self.begin(self.config(**shape))
        host = self.host(Relay(self.address(), Bandwidth(20e6)).address, 2, "alpha")
        self.joined(2)
        why = self.why_of_working_hosts()
        self.assertEqual(why["limit"], "decode", why)
        self.stop(process, host)

    def test_a_session_without_hosts_has_no_section_about_them(self):
        self.start("run", self.write("plain.toml", synthetic(**ENDLESS)), "--quiet", "--workers", 1, "--set", "name=h")
        self.assertEqual(self.penstock("wait", "--session", "h", "--timeout", "30s")[0], EXIT_OK)
        for verb in (("status",), ("top", "--once")):
            self.assertNotRegex(self.text(*verb), r"(?m)^hosts? ")
        self.assertEqual(self.metrics(), {})
        self.assertNotIn("hosts_lost", self.status())


if __name__ == "__main__":
    main()
