"""The alerts of docs/alerts.yml, evaluated by promtool: on series written here, and on the metrics of real sessions: one
stalls, one has failing processes and samples, and one is healthy."""

import http.client
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness import *

ALERTS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs", "alerts.yml")

SECONDS = 38  # seconds of stall: 30 until the alert fires, and some more for the rates between two scrapes
TICK = 1.0    # seconds between two scrapes

STALLS = synthetic(samples=1000000, epochs=1, dataset='faults = [{sample = 40, kind = "hang", times = 0}]',
                   more='[loader.hang]\nitem_timeout = "10m"').replace("[sampler]", "[sampler]\nshuffle = false")
FAILS = synthetic(samples=1000000, epochs=1, dataset='wait = "1ms"\nfaults = [{sample = 400, kind = "throw", times = 0}, '
                  '{sample = 800, kind = "segv", times = 0}]').replace("[sampler]", "[sampler]\nshuffle = false")
WELL = synthetic(samples=1000000, epochs=1)


class Recorder(threading.Thread):
    """Scrapes a session once a tick: its series, value by value; "stale" where its page lacks one, as in Prometheus."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.ticks, self.series, self.enough = port, 0, {}, threading.Event()

    def run(self):
        while not self.enough.is_set():
            began = time.monotonic()
            for name, value in self.scrape().items():
                values = self.series.setdefault(name, [])
                values += ["stale"] * (self.ticks - len(values)) + [value]
            self.ticks += 1
            self.enough.wait(max(0, TICK - (time.monotonic() - began)))

    def scrape(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.connect()
            if connection.sock.getsockname() == connection.sock.getpeername():  # no process listens yet: the connection is to itself
                connection.close()
                return {}
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        except OSError:
            return {}
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith(("#", "penstock_stage_seconds")))

    def values(self, name):
        return [float(v) for v in self.series.get(name, []) if v != "stale"]

    def highest(self, name):
        return max(self.values(name), default=0)


class Export:
    """The series of `penstock metrics` about ended sessions, and which sessions are running, at one tick."""

    def __init__(self, page, ticks):
        self.ticks = ticks
        self.series = {name: ["_"] * (ticks - 1) + [value] for name, value in
                       (line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(("penstock_session_ended_", "penstock_session_up")))}


def series_of(samples):
    """`samples`: {series: values}, in promtool's notation, one value a minute."""
    return [{"series": name, "values": values} for name, values in samples.items()]


@unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
class RulesTest(PenstockTest):
    def evaluate(self, samples, **tests):
        path = self.write("rules_test.json", json.dumps({
            "rule_files": [ALERTS], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series_of(samples), **tests}]}))
        done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def assert_fires(self, alert, samples, *expected):
        """Checks which alerts fire after 10 minutes. `expected`: labels and summary of each."""
        self.evaluate(samples, alert_rule_test=[{
            "eval_time": "10m", "alertname": alert,
            "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"summary": summary}} for labels, summary in expected]}])

    def assert_names_the_session(self, alert, series, labels, summary):
        """`series`: {name{labels: values}, without the closing brace. `summary`: what follows the session."""
        exporter = {"instance": "node:9465", "session": "photos"}
        for where, known in ((exporter, "photos on node:9465"), ({"instance": "node:9464"}, "node:9464")):
            own = "".join(',%s="%s"' % pair for pair in where.items()) + "}"
            samples = {(name + own).replace("{,", "{"): values for name, values in series.items()}
            self.assert_fires(alert, samples, ({**labels, **where}, known + summary))

    def test_an_alert_names_its_session_whether_or_not_the_series_come_from_the_exporter(self):
        for alert, series, labels, summary in (
                ("PenstockDeviceStarves", {"penstock_consumer_wait_seconds_total{": "0+30x10"}, {},
                 ": the device or the training program waited for batches for 50% of the last 5 minutes"),
                ("PenstockSlowSamples", {"penstock_slow_sample_wait_seconds_total{": "0+12x10"}, {},
                 " waited for slow samples for 20% of the last 5 minutes: `penstock why` names them"),
                ("PenstockWorkersDie", {'penstock_worker_deaths_total{cause="signal"': "7x10"}, {}, " has lost 7 workers in 15 minutes"),
                ("PenstockHostLost", {'penstock_host_losses_total{host="alpha",cause="silent"': "0x5 1x5",
                                      'penstock_host_losses_total{host="beta",cause="closed"': "0x10"}, {"host": "alpha", "cause": "silent"},
                 " has lost the loader host alpha (silent)"),
                ("PenstockWaitsForHosts", {"penstock_hosts_wait_seconds{": "0+6x10"}, {}, " has no worker and has waited for a loader host for 1m 0s"),
                ("PenstockOwnerDied", {'penstock_gpu_owner_deaths_total{cause="signal"': "1x10"}, {"cause": "signal"},
                 ": the GPU owner has died (signal)"),
                ("PenstockNotWell", {'penstock_session_state{state="degraded"': "1x10"}, {"state": "degraded"}, " is degraded"),
                ("PenstockSamplesFail", {"penstock_samples_failed_total{": "3x10"}, {}, " cannot load some samples"),
                ("PenstockStalled", {'penstock_stalled_seconds{waits_for="sample"': "60x10", 'penstock_stalled_seconds{waits_for="gpu"': "0x10",
                                     'penstock_stall_info{waits_for="sample",worker="3",sample="cats/7.jpg"': "1x10"},
                 {"waits_for": "sample", "worker": "3", "sample": "cats/7.jpg"},
                 " has made no progress for 1m 0s: it waits for sample (worker/3: cats/7.jpg)"),
                ("PenstockStalled", {'penstock_stalled_seconds{waits_for="consumer"': "60x10",
                                     'penstock_stall_info{waits_for="consumer",worker="",sample=""': "1x10"}, {"waits_for": "consumer"},
                 " has made no progress for 1m 0s: it waits for consumer"),
                ("PenstockSamplesKill", {'penstock_sample_quarantined_info{sample="cats/7.jpg",index="7",causes="2 x SIGSEGV"': "1x10"},
                 {"sample": "cats/7.jpg", "index": "7", "causes": "2 x SIGSEGV"},
                 " leaves out cats/7.jpg, which kills workers: 2 x SIGSEGV")):
            with self.subTest(alert):
                self.assert_names_the_session(alert, series, labels, summary)

    def test_a_stall_alert_names_what_the_session_waits_for_now(self):
        on = '{instance="node",session="photos",waits_for="sample",worker="%s",sample="%s"}'
        self.assert_fires("PenstockStalled", {
            'penstock_stalled_seconds{instance="node",session="photos",waits_for="sample"}': "60+60x10",
            "penstock_stall_info" + on % (1, "a.jpg"): "1x8 stale", "penstock_stall_info" + on % (2, "b.jpg"): "_x9 1 1",
            'penstock_stalled_seconds{instance="node",session="well",waits_for="sample"}': "0x10"},
            ({"instance": "node", "session": "photos", "waits_for": "sample", "worker": "2", "sample": "b.jpg"},
             "photos on node has made no progress for 11m 0s: it waits for sample (worker/2: b.jpg)"))

    def test_a_device_starves_only_while_its_session_runs_and_is_not_stuck(self):
        on = '{instance="node",session="%s"'
        samples = {}
        for session, stalled in (("slow", "0x10"), ("hiccups", "0x7 10 0 0"), ("stuck", "0x6 30 90 150 210"), ("was_stuck", "0x6 60 0 0 0"),
                                 ("was_paused", "0x6 60 0 0 0"), ("over", "0x6 stale")):
            wait = "0+30x6 stale" if session == "over" else "0+30x10"
            what = "operator" if session == "was_paused" else "sample"
            samples["penstock_consumer_wait_seconds_total" + on % session + "}"] = wait
            samples["penstock_stalled_seconds" + on % session + ',waits_for="%s"}' % what] = stalled
            samples["penstock_stalled_seconds" + on % session + ',waits_for="gpu"}'] = "0x6 stale" if session == "over" else "0x10"
        self.assert_fires("PenstockDeviceStarves", samples, *(
            ({"instance": "node", "session": session},
             session + " on node: the device or the training program waited for batches for 50% of the last 5 minutes") for session in ("slow", "hiccups")))

    def test_a_session_that_waits_only_for_slow_samples_does_not_starve(self):
        on = '{instance="node",session="%s"}'
        samples = {"penstock_consumer_wait_seconds_total" + on % "loader": "0+30x10"}  # a data loader does not count slow samples
        for session, slow in (("samples", 28), ("both", 12)):
            samples["penstock_consumer_wait_seconds_total" + on % session] = "0+30x10"
            samples["penstock_slow_sample_wait_seconds_total" + on % session] = "0+%dx10" % slow
        self.assert_fires("PenstockDeviceStarves", samples, *(
            ({"instance": "node", "session": session},
             session + " on node: the device or the training program waited for batches for %d%% of the last 5 minutes" % share)
            for session, share in (("both", 30), ("loader", 50))))

    def test_of_two_sessions_only_the_one_that_loses_workers_is_named(self):
        self.assert_fires("PenstockWorkersDie", {
            'penstock_worker_deaths_total{instance="node",session="old",cause="signal"}': "0x2 0+1x10",
            'penstock_worker_deaths_total{instance="node",session="new",cause="signal"}': "_x6 4 4 4 4 4",
            'penstock_worker_deaths_total{instance="node",session="new",cause="hang"}': "_x6 2 2 2 2 2",
            'penstock_worker_deaths_total{instance="node",session="well",cause="signal"}': "1x10",
            'penstock_worker_deaths_total{instance="node",session="well",cause="stopped"}': "0x2 7x10",
            'penstock_worker_deaths_total{instance="node",session="well",cause="memory"}': "0+1x10"},
            ({"instance": "node", "session": "new"}, "new on node has lost 6 workers in 15 minutes"),
            ({"instance": "node", "session": "old"}, "old on node has lost 7 workers in 15 minutes"))

    def test_counts_of_an_earlier_session_of_the_same_name_raise_no_alert(self):
        for alert, counter in (("PenstockWorkersDie", 'penstock_worker_deaths_total{%s,cause="signal"}'),
                               ("PenstockOwnerDied", 'penstock_gpu_owner_deaths_total{%s,cause="signal"}'),
                               ("PenstockSamplesFail", "penstock_samples_failed_total{%s}")):
            with self.subTest(alert):
                self.assert_fires(alert, {counter % 'instance="node",session="again"': "0 7x3 0x6"})

    def test_a_session_that_has_not_answered_for_a_minute_is_an_alert(self):
        up = 'penstock_session_up{instance="node",session="%s"}'
        process = 'penstock_session_process_info{instance="node",session="%s",id="%s@1",pid="17",process="%s"}'
        there = {process % (name, name, "suspended" if name == "frozen" else "running"): "1x10" for name in ("frozen", "busy", "well", "just")}
        self.assert_fires("PenstockNoAnswer", {**there, process % ("gone", "gone", "suspended"): "1x5 stale",
                                               up % "frozen": "1x5 0x4", up % "busy": "1 0 1 0 1 0 1 0 1 0 1", up % "well": "1x10",
                                               up % "just": "1x9 0", up % "gone": "0x5 stale"},
                          ({"instance": "node", "session": "frozen", "id": "frozen@1", "pid": "17", "process": "suspended"},
                           "frozen on node does not answer: its process (pid 17) is suspended"))

    # ---- the queries of docs/metrics.md ----------------------------------------------------------------------

    def test_a_failed_session_is_an_alert_until_one_of_its_name_runs_or_has_ended_well(self):
        def ended(session, number, outcome, time):
            labels = 'instance="node:9465",session="%s",id="%s@%d"' % (session, session, number)
            return {'penstock_session_ended_info{%s,outcome="%s",reason="why"}' % (labels, outcome): "1x10",
                    "penstock_session_ended_timestamp_seconds{%s}" % labels: "%dx10" % time}
        lost = {**ended("photos-rank0", 1, "finished", 200), **ended("photos-rank1", 1, "died", 300)}
        labels = {"instance": "node:9465", "session": "photos-rank1", "id": "photos-rank1@1", "outcome": "died", "reason": "why"}
        alert = (labels, "photos-rank1 on node:9465 has died: why")
        up = 'penstock_session_up{instance="%s",session="%s"}'
        self.assert_fires("PenstockSessionFailed", lost, alert)
        self.assert_fires("PenstockSessionFailed", {**lost, up % ("other:9465", "photos-rank1"): "1x10", up % ("node:9465", "photos-rank0"): "1x10"}, alert)
        self.assert_fires("PenstockSessionFailed", {**lost, up % ("node:9465", "photos-rank1"): "_x5 1x5"})
        self.assert_fires("PenstockSessionFailed", {**lost, **ended("photos-rank1", 2, "finished", 500)})
        self.assert_fires("PenstockSessionFailed", {**lost, **ended("photos-rank1", 2, "failed", 500)},
                          ({**labels, "id": "photos-rank1@2", "outcome": "failed"}, "photos-rank1 on node:9465 has failed: why"))

    def assert_finds(self, question, samples, *expected):
        """Checks what a query finds after 10 minutes. `expected`: series with their values."""
        with open(os.path.join(os.path.dirname(ALERTS), "metrics.md")) as file:
            (row,) = [line for line in file if line.startswith("| %s |" % question)]
        query = re.search(r"`([^`]*)`", row)[1]
        self.evaluate(samples, promql_expr_test=[{"expr": query, "eval_time": "10m", "exp_samples": [
            {"labels": labels, "value": value} for labels, value in expected]}])

    def test_the_end_of_an_earlier_session_of_the_same_name_raises_no_alert(self):
        ended = 'penstock_session_ended_info{instance="node",session="%s",id="%s",outcome="stopped"}'
        self.assert_finds("has it stopped?", {
            ended % ("again", "again-1"): "1x10", 'penstock_session_up{instance="node",session="again"}': "1x10",
            ended % ("frozen", "frozen-1"): "1x10", 'penstock_session_up{instance="node",session="frozen"}': "0x10",
            'penstock_session_up{instance="node",session="gone"}': "1x5 stale", ended % ("gone", "gone-1"): "_x6 1x4"},
            (ended % ("gone", "gone-1"), 1))

    def test_the_query_finds_the_limit_of_each_session_that_is_not_stalled(self):
        share = 'penstock_limit_share{instance="node",session="%s",limit="%s"}'
        stalled = 'penstock_stalled_seconds{instance="node",session="%s",waits_for="%s"}'
        samples = {share % (session, limit): "%gx10" % value for session, limit, value in (
            ("one", "storage", 0.9), ("one", "decode", 0.1), ("two", "storage", 0.2), ("two", "decode", 0.8), ("stuck", "storage", 1))}
        samples.update({stalled % ("one", "sample"): "0x10", stalled % ("two", "sample"): "0x10",
                        stalled % ("stuck", "sample"): "60x10", stalled % ("stuck", "gpu"): "0x10",
                        'penstock_limit_share{instance="alone:9464",limit="wire"}': "0.5x10",
                        'penstock_limit_share{instance="alone:9464",limit="order"}': "0.25x10"})
        self.assert_finds("why is it slow?", samples, (share % ("one", "storage"), 0.9), (share % ("two", "decode"), 0.8),
                          ('penstock_limit_share{instance="alone:9464",limit="wire"}', 0.5))


class AlertsTest(PenstockTest):
    def setUp(self):
        super().setUp()
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        taken = [socket.socket() for _ in range(4)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        self.ports = [one.getsockname()[1] for one in taken]  # chosen at once, so that no two sessions get the same port
        for one in taken:
            one.close()

    def begin(self, name, text, *options):
        port = self.ports.pop()
        process = self.start("run", self.write(name + ".toml", text + '[metrics]\nlisten = "127.0.0.1:%d"\n' % port),
                             "--set", "name=" + name, "--quiet", *options)
        recorder = Recorder(port)
        recorder.start()
        self.addCleanup(recorder.enough.set)
        return process, recorder

    def status_of(self, name):
        return json.loads(self.penstock("status", "--json", "--session", name)[1])

    def fail_a_place(self, name):
        """Kills worker/1 of a paused session whenever it is running, until its place has failed."""
        killed = set()
        def failed():
            worker = self.status_of(name)["workers"][1]
            if worker["pid"] and worker["pid"] not in killed:
                killed.add(worker["pid"])
                signal_process(worker["pid"], signal.SIGKILL)
            return worker["state"] == "failed"
        self.wait_until(failed, "a failed place", seconds=60)

    def exported_ends(self, ticks):
        """A session that failed, one that was killed, one that finished, one that was killed and runs again, and one that failed more
        than an hour ago."""
        config = self.write("gone.toml", '[dataset]\npath = "/nonexistent/photos"\n[gpu]\ndevice = "host"\n')
        self.assertEqual(self.penstock("run", config)[0], EXIT_FAILED)
        self.run_json(self.write("done.toml", synthetic(samples=8, epochs=1)))
        for name in ("killed", "again"):
            config = self.write(name + ".toml", WELL)
            killed = self.start("run", config, "--quiet", "--workers", 1)
            self.assertEqual(self.penstock("wait", "--session", name, "--timeout", "30s")[0], EXIT_OK)
            killed.kill()
            self.assertEqual(self.penstock("wait", "--for=ended", "--session", name)[0], EXIT_OK)
        self.start("run", config, "--quiet", "--workers", 1)
        self.assertEqual(self.penstock("wait", "--session", "again", "--timeout", "30s")[0], EXIT_OK)
        code, page, err = self.penstock("metrics")
        self.assertEqual(code, EXIT_OK, err)
        # promtool's tests start at time 0.
        old = '{session="old",id="old"'
        return Export(page + 'penstock_session_ended_info%s,outcome="failed"} 1\n'
                      "penstock_session_ended_timestamp_seconds%s} -4000\n" % (old, old), ticks)

    def firing(self, recorders):
        """The alerts that fire at the end, and all that ever fired, according to promtool."""
        series, last = [], max(r.ticks for r in recorders.values()) - 1
        for instance, recorder in recorders.items():
            for name, values in recorder.series.items():
                labelled = (name[:-1] + ',' if name.endswith("}") else name + "{") + 'instance="%s"}' % instance
                gone = ["stale"] * (recorder.ticks - len(values))
                series.append({"series": labelled, "values": " ".join(values + gone)})
        query = "count_over_time(ALERTS{alertstate=\"firing\"}[10m])"
        path = self.write("rules_test.json", json.dumps({
            "rule_files": [ALERTS], "evaluation_interval": "%ds" % TICK,
            "tests": [{"interval": "%ds" % TICK, "input_series": series,
                       "promql_expr_test": [{"expr": query, "eval_time": "%ds" % (last * TICK), "exp_samples": []}]}]}))
        done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
        # No alert was expected, so promtool lists those that fired.
        found = re.findall(r'\{(alertname=[^}]*)\}', done.stdout + done.stderr)
        return {(labels["alertname"], labels["instance"], labels.get("waits_for") or labels.get("cause") or labels.get("state") or labels.get("session", ""))
                for labels in (dict(re.findall(r'(\w+)="([^"]*)"', one)) for one in found)}, done.stdout + done.stderr

    def test_promtool_finds_no_fault_in_the_file(self):
        done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_fires_for_the_session_it_is_about_and_for_no_other(self):
        _, stalled = self.begin("stalled", STALLS, "--workers", 1)
        _, inside = self.begin("inside", STALLS, "--workers", 1, "--set", "gpu.placement=embedded")
        failing, fails = self.begin("fails", FAILS, "--workers", 3)
        # A null sink takes batches faster than any workers load them.
        _, well = self.begin("well", WELL, "--workers", 2, "--sink", "plugin:" + os.path.join(BIN, "slow_program.so"))
        self.wait_until(lambda: fails.highest("penstock_samples_quarantined") > 0, "a quarantine", seconds=60)
        (owner,) = [pid for pid in descendants_of(failing.pid) if name_of(pid) == "penstock-gpu"]
        signal_process(owner, signal.SIGKILL)
        self.assertEqual(self.penstock("pause", "--session", "fails")[0], EXIT_OK)
        self.fail_a_place("fails")
        self.assertEqual(self.penstock("resume", "--session", "fails")[0], EXIT_OK)
        for recorder in (stalled, inside):
            self.wait_until(lambda: recorder.highest('penstock_stalled_seconds{waits_for="sample"}') >= SECONDS, "a long stall", seconds=90)
        recorders = {"stalled": stalled, "inside": inside, "fails": fails, "well": well}
        for recorder in recorders.values():
            recorder.enough.set()
            recorder.join()
        recorders["exporter"] = self.exported_ends(max(r.ticks for r in recorders.values()))
        for recorder in (stalled, inside):
            waits = recorder.values("penstock_consumer_wait_seconds_total")
            self.assertEqual(waits, sorted(waits))
            self.assertGreater(waits[-1], 30)
        fired, told = self.firing(recorders)
        fired.discard(("PenstockDeviceStarves", "fails", ""))  # this session's sink does nothing, so it waits nearly always
        self.assertEqual(fired, {
            ("PenstockStalled", "stalled", "sample"), ("PenstockStalled", "inside", "sample"),
            ("PenstockWorkersDie", "fails", ""), ("PenstockOwnerDied", "fails", "signal"),
            ("PenstockNotWell", "fails", "degraded"), ("PenstockSamplesFail", "fails", ""), ("PenstockSamplesKill", "fails", ""),
            ("PenstockSessionFailed", "exporter", "gone"), ("PenstockSessionFailed", "exporter", "killed")}, told)

if __name__ == "__main__":
    main()
