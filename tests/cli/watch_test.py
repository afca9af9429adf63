"""Watching a live session: top on a terminal, trace, events, describe; and the metrics endpoint."""

import http.client
import re
import shutil
import signal
import socket
import subprocess
import time

from harness import *

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAULTY = synthetic(samples=1000000, batch=8, bytes="16KiB", epochs=1, dataset='wait = "1ms"\nfaults = [{sample = 5, kind = "throw", times = 0}]')


class WatchTest(PenstockTest):
    has_terminal = False

    def tearDown(self):
        if self.has_terminal:  # stop tmux before its socket is removed with the folder
            self.tmux("kill-server")
        super().tearDown()

    def live(self, text=FAULTY, workers=3, name="live"):
        process = self.start("run", self.write(name + ".toml", text), "--workers", workers, "--quiet")
        code, _, err = self.penstock("wait", "--for=ready", "--timeout", "20s", "--session", name)
        self.assertEqual(code, EXIT_OK, err)
        return process

    def answer(self, *arguments):
        code, out, err = self.penstock(*arguments, "--json")
        self.assertEqual(code, EXIT_OK, err)
        return json.loads(out)

    def kill_a_worker(self, process):
        victim = self.workers_of(process)[0]
        signal_process(victim, signal.SIGKILL)
        self.wait_until(lambda: any(w["restarts"] == 1 and w["state"] == "ready" for w in self.answer("status")["workers"]),
                        "the replacement")
        return victim

    # ---- trace

    def trace(self, *options):
        path = os.path.join(self.folder, "trace.json")
        about = self.answer("trace", "--seconds", "0.7", "--out", path, *options)
        with open(path) as file:
            return about, json.load(file)["traceEvents"]

    def check_trace(self, events):
        names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
        spans = {}
        for e in events:
            if e["ph"] == "X":
                self.assertGreater(e["dur"], 0, e)
                self.assertGreaterEqual(e["ts"], 0, e)
                spans.setdefault(e["tid"], []).append(e)
        for tid, track in spans.items():
            track.sort(key=lambda e: e["ts"])
            for one, next_one in zip(track, track[1:]):
                self.assertLessEqual(one["ts"] + one["dur"], next_one["ts"] + 0.0011, names[tid])
        waits = {}
        for e in events:
            if e["ph"] in "be":
                waits.setdefault((e["cat"], e["id"]), {})[e["ph"]] = e["ts"]
        for key, pair in waits.items():
            self.assertEqual(set(pair), {"b", "e"}, key)
            self.assertLessEqual(pair["b"], pair["e"], key)
        flows = {}
        for e in events:
            if e["ph"] in "stf":
                flows.setdefault(e["id"], []).append(e)
                self.assertTrue(any(s["ts"] <= e["ts"] + 0.0011 and e["ts"] <= s["ts"] + s["dur"] + 0.0011 for s in spans[e["tid"]]), e)
        for batch, arrows in flows.items():
            arrows.sort(key=lambda e: e["ts"])
            self.assertEqual([e["ph"] for e in arrows], ["s", "t", "t", "t", "t", "f"], batch)
            way = [re.sub(r"\d+", "N", names[e["tid"]]) for e in arrows]
            self.assertEqual(way, ["scheduler", "worker/N", "gpu owner", "copy stream", "conversion", "consumer"])
        return names, flows

    def test_the_trace_is_valid_and_follows_every_batch(self):
        self.live()
        self.workers_when_ready("live")
        about, events = self.trace()
        names, flows = self.check_trace(events)
        self.assertGreater(about["batches"], 10)
        self.assertEqual((len(flows), about["missed"]), (about["batches"], 0))
        self.assertTrue({"worker/0", "worker/1", "worker/2"} <= set(names.values()), names)

    def test_a_worker_killed_during_the_trace_leaves_it_valid_and_is_marked_in_it(self):
        process = self.live()
        recording = self.start("trace", "--seconds", "1.5", "--out", "t.json", "--json")
        trace = os.path.join(self.folder, "t.json")
        self.wait_until(lambda: os.path.exists(trace), "the recording")
        self.kill_a_worker(process)
        recording.communicate(timeout=30)
        self.assertEqual(recording.returncode, EXIT_OK)
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        names, _ = self.check_trace(events)
        marks = [(names[e["tid"]], e["name"]) for e in events if e["ph"] == "i"]
        self.assertTrue(any(who.startswith("worker/") and what == "worker_died" for who, what in marks), marks)

    def test_a_trace_that_cannot_be_written_is_refused_before_recording(self):
        self.live()
        code, out, _ = self.penstock("trace", "--seconds", "600", "--out", "/nonexistent/t.json", "--json", timeout=20)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("error", json.loads(out))

    # ---- events and describe

    def test_events_show_deaths_and_restarts_and_follow_until_the_end(self):
        process = self.live()
        following = self.start("events", "-f", "--json", bufsize=0)
        first = following.stdout.readline()  # attached before the session can end
        self.kill_a_worker(process)
        self.penstock("stop")
        out, err = following.communicate(timeout=20)
        self.assertEqual(following.returncode, EXIT_OK, err)
        events = [json.loads(line) for line in (first + out).splitlines()]
        kinds = [e["kind"] for e in events]
        for kind in ("run_started", "worker_ready", "worker_died", "worker_restarted", "stopping"):
            self.assertIn(kind, kinds)
        self.assertEqual([e["number"] for e in events], list(range(1, len(events) + 1)))
        died = next(e for e in events if e["kind"] == "worker_died")
        self.assertEqual(died["death"]["signal"], "SIGKILL")
        self.assertTrue(all(e["pid"] is None or e["pid"] > 0 for e in events))

    def test_events_since_a_time_exclude_older_ones(self):
        self.live()
        code, out, _ = self.penstock("events", "--since", "1h")
        self.assertIn("run_started", out)
        code, out, _ = self.penstock("events", "--since", "2999-01-01")
        self.assertEqual((code, out), (EXIT_OK, ""))
        self.assertEqual(self.penstock("events", "--since", "yesterday-ish")[0], EXIT_USAGE)

    def test_describe_shows_the_sample_of_a_worker_and_its_last_death(self):
        process = self.live(text=synthetic(samples=100000, dataset='wait = "50ms"'))
        self.kill_a_worker(process)
        self.wait_until(lambda: all(w["current_sample"] for w in self.answer("describe", "workers")["workers"]), "a current sample for each worker")
        hurt = next(w for w in self.answer("describe", "workers")["workers"] if w["last_death"])

        def loading():  # the worker may be between two samples
            code, out, err = self.penstock("describe", "worker/%d" % hurt["id"])
            self.assertEqual(code, EXIT_OK, err)
            return out if re.search(r"loading +sample \d+ for ", out) else None
        out = self.wait_until(loading, "its sample")
        self.assertIn("SIGKILL after", out)
        self.assertTrue(all(len(line) <= 80 for line in self.lines_on_a_terminal("describe", "worker/%d" % hurt["id"])), out)
        self.assertEqual(self.penstock("describe", "worker/99")[0], EXIT_NO_TARGET)
        self.assertEqual(self.penstock("describe", "nonsense")[0], EXIT_NO_TARGET)

    def test_a_slow_sink_is_named_in_both_placements(self):
        config = self.write("sink.toml", synthetic(samples=2000, more='[gpu.hang]\nbatch_timeout = "10m"'))
        for placement in ("embedded", "process"):
            process = self.start("run", config, "--quiet", "--set", "name=" + placement, "--set", "gpu.placement=" + placement,
                                 "--workers", 2, "--sink", "plugin:" + os.path.join(BIN, "device_programs", "never_ends.so"),
                                 env=dict(self.environment, PENSTOCK_ENDLESS_SAMPLE="17"))

            def waits_for():
                code, out, _ = self.penstock("describe", "scheduler", "--json", "--session", placement)
                return json.loads(out)["scheduler"]["waits_for"] if code == EXIT_OK else ""
            self.wait_until(lambda: waits_for().startswith("the consumer"), "the consumer is named, " + placement)
            process.kill()
            process.communicate()

    def test_deliveries_to_a_slow_sink_are_reported_even_if_there_are_fewer_than_sixteen(self):
        config = self.write("slow.toml", synthetic(samples=2000))
        self.start("run", config, "--quiet", "--set", "gpu.placement=process", "--workers", 2, "--sink", "plugin:" + os.path.join(BIN, "slow_program.so"))

        seen = [0]

        def grows_by_few():
            code, out, _ = self.penstock("status", "--json")
            seen.append(json.loads(out)["batches_delivered"] if code == EXIT_OK else 0)
            return seen[-2] > 0 and 0 < seen[-1] - seen[-2] < 16
        self.wait_until(grows_by_few, lambda: "steps below 16: %s" % seen)

    def test_describe_scheduler_names_what_the_device_waits_for(self):
        self.live(text=synthetic(samples=100000, dataset='wait = "20ms"'), workers=1)
        self.wait_until(lambda: self.answer("describe", "scheduler")["scheduler"]["waits_for"].startswith("worker/0, which has "), "worker/0")
        self.penstock("pause")
        self.wait_until(lambda: "paused" in self.answer("describe", "scheduler")["scheduler"]["waits_for"], "the operator")

    def test_describe_shows_how_long_a_sample_has_been_hanging(self):
        self.live(text=synthetic(samples=1000, dataset='faults = [{sample = 5, kind = "hang", times = 0}]', more='[loader.hang]\nitem_timeout = "60s"'), workers=1)
        def hung():
            return [w for w in self.answer("status")["workers"] if (w["current_sample_seconds"] or 0) > 0.5]
        worker = self.wait_until(hung, "half a second on one sample")[0]
        self.assertEqual(worker["current_sample"], "sample 5")

    # ---- top

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-S", os.path.join(self.folder, "tmux"), "-f", "/dev/null", *arguments],
                              env=dict(self.environment, TERM="xterm-256color", PS1="$ "),
                              capture_output=True, text=True, timeout=20)
        return done.stdout

    def terminal(self, columns, rows):
        if not shutil.which("tmux"):
            self.skipTest("tmux is not installed")
        self.has_terminal = True
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(rows), "bash --norc --noprofile")
        self.tmux("send-keys", "echo rea''dy; PATH=%s:$PATH" % BIN, "Enter")
        self.wait_until(lambda: "ready" in self.tmux("capture-pane", "-p"), "a shell")

    def screen(self):
        return self.tmux("capture-pane", "-p").splitlines()

    def showing(self):
        return self.tmux("display", "-p", "#{alternate_on}").strip() == "1"

    def start_top(self, columns, rows):
        self.terminal(columns, rows)
        self.tmux("send-keys", "penstock top --every 100ms", "Enter")
        self.wait_until(lambda: self.showing() and any("worker/2" in line for line in self.screen()),
                        lambda: "top's screen; there is %s" % self.screen())

    def check_screen(self, columns, rows):
        # After a change of size there may be an empty screen, until the next one has been drawn.
        lines = self.wait_until(lambda: (shown := self.screen()) and shown[0] and shown[-1].startswith("q quit") and shown, "a whole screen")
        self.assertEqual(len(lines), rows)
        self.assertTrue(all(len(line) <= columns for line in lines), lines)
        self.assertTrue(lines[0].startswith("penstock live  ok"), lines[0])
        self.assertRegex(lines[1], r"samples/s +(-|[0-9.]+) batches/s")
        self.assertTrue(lines[3].startswith("waits    for "), lines[3])
        self.assertRegex(lines[4], r"^batches  loading \d+  loaded \d+  uploading \d+  ready \d+  in use \d+$")
        for worker in range(3):
            self.assertTrue(any(re.match(r"worker/%d +ready +\d+ +0 " % worker, line) for line in lines), lines)
        self.assertTrue(lines[-1].startswith("q quit"), lines[-1])
        return lines

    def test_top_fills_80_by_24_and_quits_with_q(self):
        self.live()
        self.start_top(80, 24)
        self.check_screen(80, 24)
        self.tmux("send-keys", "q")
        self.wait_until(lambda: not self.showing(), "the previous screen")
        self.assertIn("ready", self.screen())

    def test_top_fills_200_by_50_and_adapts_to_a_new_size(self):
        self.live()
        self.start_top(200, 50)
        self.check_screen(200, 50)
        self.tmux("resize-window", "-x", "80", "-y", "24")
        self.wait_until(lambda: len(self.screen()) == 24 and self.screen()[-1].startswith("q quit"), "a smaller screen")
        self.check_screen(80, 24)
        self.tmux("resize-window", "-x", "30", "-y", "6")
        self.wait_until(lambda: len(self.screen()) == 6 and self.screen()[-1].startswith("q quit"), "a tiny screen")

    def test_top_shows_a_worker_that_died_and_pauses_with_p(self):
        process = self.live()
        self.start_top(100, 30)
        self.kill_a_worker(process)
        self.wait_until(lambda: any(re.match(r"worker/\d +ready +\d+ +1 ", line) for line in self.screen()), "the restart")
        self.assertTrue(any(re.match(r"event    \d+ s ago: worker \d \(pid \d+\) ended: SIGKILL", line) for line in self.screen()), self.screen())
        self.tmux("send-keys", "p")
        self.wait_until(lambda: "paused" in self.screen()[0], "paused")
        self.tmux("send-keys", "p")
        self.wait_until(lambda: "live  ok" in self.screen()[0], "resumed")

    def top_process(self):
        tops = [pid for pid in all_pids() if name_of(pid) == "penstock" and b"top" in command_of(pid) and alive(pid)
                and self.folder.encode() in environment_of(pid)]
        first = [pid for pid in tops if state_and_parent(pid)[1] not in tops]  # the guard of the terminal is a child of `penstock top`
        return first[0] if first else None

    def test_the_terminal_is_restored_however_top_is_killed(self):
        self.live()
        self.terminal(80, 24)
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGSEGV):
            self.tmux("send-keys", "penstock top --every 100ms", "Enter")
            self.wait_until(lambda: self.showing() and any("worker/2" in line for line in self.screen()),
                            lambda: "top's screen, before signal %d; there is %s" % (number, self.screen()))
            signal_process(self.wait_until(self.top_process, "top"), number)
            self.wait_until(lambda: not self.showing(), lambda: "the screen of before, after signal %d; there is %s; %s" % (
                number, described(self.top_process() or 0), self.screen()))
            self.wait_until(lambda: self.top_process() is None, "no process left")
            self.tmux("send-keys", "clear; stty -a | grep -c ' icanon.* echo '; stty -a | grep -o -w 'icanon\\|echo' | tr '\\n' '='", "Enter")
            self.wait_until(lambda: any("icanon=echo=" in line.replace(" ", "") for line in self.screen()), "a sane terminal")

    def test_top_without_a_terminal_prints_one_screen_and_with_json_prints_lines(self):
        self.live()
        code, out, err = self.penstock("top")
        self.assertEqual(code, EXIT_OK, err)
        self.assertNotIn("\x1b", out)
        self.assertIn("worker/2", out)
        self.assertRegex(out, r"(?m)^limit    \w.*\.$")
        self.assertTrue(all(len(line) <= 80 for line in self.lines_on_a_terminal("top", "--once")), out)
        self.assertIn("waits_for", self.answer("top", "--once"))

    def test_top_shows_the_latest_of_many_events(self):
        process = self.live(synthetic(samples=8, batch=8, epochs=1000000, dataset='wait = "1ms"'))
        self.wait_until(lambda: len(self.penstock("events", "--all")[1].splitlines()) > 600, "more events than one answer has", seconds=60)
        victim = self.kill_a_worker(process)
        self.assertRegex(self.penstock("top", "--once")[1], r"(?m)^event    \d+ s ago: worker \d \(pid %d\) ended: SIGKILL" % victim)

    def test_top_ends_when_the_session_does(self):
        process = self.live()
        self.start_top(80, 24)
        process.send_signal(signal.SIGINT)
        self.wait_until(lambda: not self.showing() and any(re.match(r"'live' stopped \d+ s ago: it was stopped by SIGINT", line) for line in self.screen()), "the end")


class StuckTest(PenstockTest):
    def test_describe_of_a_stuck_worker_shows_what_it_stalls_and_its_last_output(self):
        text = synthetic(samples=64, epochs=1, dataset='faults = [{sample = 5, kind = "hang", times = 0}]',
                         more='[loader.hang]\nitem_timeout = "10m"').replace("[sampler]", "[sampler]\nshuffle = false")
        program = self.worker_program("echo about to hang")
        self.start("run", self.write("stuck.toml", text + program), "--workers", 1, "--quiet")
        self.wait_until(lambda: "stalled for" in self.penstock("status")[1], "the stall", seconds=40)
        self.assertRegex(self.penstock("sessions")[1], r"(?m)^stuck +ok, stalled for \d+ s ")
        looks = [json.loads(self.penstock("top", "--once", "--json")[1])["device_waited_seconds"] for _ in range(2)]
        self.assertGreater(looks[0], 4)  # the wait is still in progress
        self.assertGreater(looks[1], looks[0])
        _, out, _ = self.penstock("describe", "worker/0")
        self.assertRegex(out, r"(?m)^  stalled for +\d+ s, waiting for worker/0, which has been loading sample ")
        self.assertRegex(out, r"(?m)^  output +about to hang$")
        _, out, _ = self.penstock("why")
        self.assertRegex(out, r"^No progress for \d+ s: waiting for worker/0, which has been loading sample ")
        self.assertIn("`penstock describe worker/0`", out)
        self.assertIn("--now` kills it at once", re.sub(r"\s+", " ", out))
        self.assertNotIn("limits you", out)
        self.assertNotIn("WHAT HAPPENED", out)


class MetricsTest(PenstockTest):
    def live(self, workers=2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        text = FAULTY + '[metrics]\nlisten = "127.0.0.1:%d"\n' % self.port
        process = self.start("run", self.write("live.toml", text), "--workers", workers, "--quiet")
        self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
        return process

    def ask(self, method="GET", path="/metrics"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read().decode()

    def values(self):
        lines = [line for line in self.ask()[1].splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def test_promtool_finds_no_fault_in_the_page(self):
        self.live()
        answer, text = self.ask()
        self.assertEqual(answer.status, 200)
        self.assertIn("version=0.0.4", answer.headers["Content-Type"])
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_counters_count_deaths_restarts_and_stages(self):
        process = self.live()
        before = self.wait_until(lambda: self.values() if self.values()["penstock_batches_delivered_total"] > 0 else None, "batches")
        signal_process(self.workers_of(process)[0], signal.SIGKILL)
        self.wait_until(lambda: self.values()["penstock_worker_restarts_total"] == 1, "a restart")
        done = before["penstock_uploaded_bytes_total"]
        self.wait_until(lambda: self.values()["penstock_uploaded_bytes_total"] > done, "more bytes")
        after = self.values()
        self.assertEqual(after['penstock_worker_deaths_total{cause="signal"}'], 1)
        for stage in ("lease", "load", "order", "buffer", "copy", "convert", "hand_over", "use"):
            count = after['penstock_stage_seconds_count{stage="%s"}' % stage]
            self.assertGreater(count, 0, stage)
            self.assertEqual(after['penstock_stage_seconds_bucket{stage="%s",le="+Inf"}' % stage], count)

    def test_deaths_and_restarts_of_the_gpu_owner_are_counted(self):
        process = self.live()
        signalled = 'penstock_gpu_owner_deaths_total{cause="signal"}'
        restarts = "penstock_gpu_owner_restarts_total"
        before = self.values()
        self.assertEqual((before[signalled], before[restarts]), (0, 0))
        (owner,) = [pid for pid in descendants_of(process.pid) if name_of(pid) == "penstock-gpu"]
        signal_process(owner, signal.SIGKILL)
        after = self.wait_until(lambda: (v := self.values())[restarts] == 1 and v, "a restart of the owner")
        self.assertEqual(after[signalled], 1)
        self.assertEqual(after["penstock_worker_restarts_total"], 0)

    def test_every_metric_is_documented_and_every_documented_one_exists(self):
        self.live()
        exposed = set(re.findall(r"^# TYPE (\S+)", self.ask()[1], re.M))
        with open(os.path.join(TOP, "docs", "metrics.md")) as file:
            of_streams = file.read().partition("## Loader hosts")[0]
        documented = set(re.findall(r"^\| `(penstock_\w+)", of_streams, re.M))
        self.assertEqual(exposed, documented)

    def test_the_endpoint_is_read_only_and_bounded(self):
        self.live()
        self.assertEqual(self.ask(path="/")[0].status, 404)
        self.assertEqual(self.ask("POST")[0].status, 405)
        self.assertEqual(self.ask("DELETE")[0].status, 405)
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as client:
            try:
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 1000000)
                self.assertEqual(client.recv(100), b"")
            except OSError:
                pass  # the endpoint disconnects such a client
        self.assertEqual(self.ask()[0].status, 200)

    def test_no_port_is_opened_unless_requested(self):
        process = self.start("run", self.write("quiet.toml", FAULTY), "--quiet")
        self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
        inodes = set()
        for fd in os.listdir("/proc/%d/fd" % process.pid):
            try:
                inodes.add(os.readlink("/proc/%d/fd/%s" % (process.pid, fd)))
            except FileNotFoundError:
                pass  # the port has been closed meanwhile
        for table in ("tcp", "tcp6", "udp", "udp6"):
            with open("/proc/net/" + table) as file:
                for line in file.readlines()[1:]:
                    self.assertNotIn("socket:[%s]" % line.split()[9], inodes)

    def test_a_port_in_use_is_a_warning(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            text = synthetic(samples=64, more='[metrics]\nlisten = "127.0.0.1:%d"' % taken.getsockname()[1])
            code, _, err = self.penstock("run", self.write("taken.toml", text), "--quiet")
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("this session has no metrics", err)


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


def environment_of(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
