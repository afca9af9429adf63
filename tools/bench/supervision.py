#!/usr/bin/env python3
"""Measures the figures on supervision in docs/benchmarks.md: its cost and speed, and whether every batch arrives.

    tools/bench/supervision.py build/ci/bin                    everything: about 15 minutes
    tools/bench/supervision.py build/ci/bin latency stops      these parts
    tools/bench/supervision.py build/ci/bin --list             list the parts
    tools/bench/supervision.py build/ci/bin --quick            a tenth of the time, for a quick check

Prints one Markdown table row for each figure: what, bar, figure, n and seed, command. Exit code 1 if a bar is missed.
"""

import argparse
import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "cli"))
import harness  # noqa: E402

CHAOS = """
[dataset]
type = "synthetic"
samples = {samples}
bytes_per_sample = "64KiB"
fill = "random"
{dataset}
[sampler]
batch_size = {batch}
epochs = {epochs}
[gpu]
device = "host"
placement = "{placement}"
[loader.hang]
heartbeat_timeout = "1s"
item_timeout = "1s"
"""


class Bench:
    def __init__(self, folder_of_programs, quick):
        self.penstock = os.path.join(folder_of_programs, "penstock")
        self.bin = folder_of_programs
        self.quick = quick
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True)
        self.folder = self._folder.name
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.folder)
        self.missed = 0

    def row(self, what, bar, figure, good, size, command):
        self.missed += not good
        print("| %s | %s | %s%s | %s | `%s` |" % (what, bar, figure, "" if good else " **missed**", size, command), flush=True)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def start(self, *arguments, env=None):
        return subprocess.Popen([self.penstock, *map(str, arguments)], env=env or self.environment, cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def json(self, *arguments):
        process = self.start(*arguments, "--json", "--quiet")
        out, _ = process.communicate()
        return process.returncode, json.loads(out)

    def status(self, name):
        done = subprocess.run([self.penstock, "status", "--session", name, "--json"], env=self.environment, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def chaos(self, config, *options):
        code, decision = self.json("chaos", config, *options)
        if "error" in decision:
            print("  (%s)" % decision["error"], flush=True)
        return code, decision

    # ---- parts ----------------------------------------------------------------------------------------------------

    def part_chaos(self):
        """All kinds of faults, with the owner embedded and in its own process: the stream is the same, bit for bit."""
        faults = 25 if self.quick else 260
        for placement in ("embedded", "process"):
            for workers in (4, 8):
                text = CHAOS.format(samples=4000, batch=16, epochs=2, dataset='wait = "4ms"', placement=placement)
                config = self.write("chaos-%s-%d.toml" % (placement, workers), text)
                options = ["--workers", workers, "--faults", faults, "--rate", 4, "--seed", 40 + workers]
                code, v = self.chaos(config, *options)
                if "lost" not in v:
                    self.row("chaos, %d workers, %s" % (workers, placement), "all 0", v.get("error"), False, "", "chaos")
                    continue
                sums = "lost %d, twice %d, out of order %d, stale %d, wrongly quarantined %d" % (
                    v["lost"], v["duplicated"], v["out_of_order"], v["stale_accepted"], v["wrongly_quarantined"])
                kinds = ", ".join("%d %s" % (facts["faults"], kind) for kind, facts in v["kinds"].items())
                again = "; %d batches came again from the next owner" % v["replayed_batches"] if placement == "process" else ""
                self.row("chaos, all kinds, %d workers, %s" % (workers, placement), "digests equal; all 0",
                         "%s; %s%s" % ("equal" if v["digests_equal"] else "DIFFERENT", sums, again), code == 0,
                         "%d faults (%s), %d restarts, seed %d" % (v["faults"], kinds, v["restarts"], v["seed"]),
                         "penstock chaos %s %s" % (os.path.basename(config), " ".join(map(str, options))))

    def part_latency(self):
        """SIGKILL of one of two workers whose samples wait 5 ms."""
        n = 20 if self.quick else 200
        text = CHAOS.format(samples=1600, batch=4, epochs=4, dataset='wait = "5ms"', placement="embedded")
        config = self.write("latency.toml", text)
        options = ["--workers", 2, "--kinds", "kill", "--rate", 4, "--faults", n, "--seed", 5]
        code, v = self.chaos(config, *options)
        for name, what, bar in (("detection_seconds", "detected", 0.001), ("recovery_seconds", "replacement ready", 0.015),
                                ("replay_seconds", "replayed batch accepted", 0.040)):
            q = v[name]
            self.row("SIGKILL -> %s" % what, "p50 <= %g ms" % (bar * 1e3),
                     "p50 %.2f, p99 %.2f, max %.2f ms" % (q["p50"] * 1e3, q["p99"] * 1e3, q["max"] * 1e3), q["p50"] <= bar,
                     "n = %d, seed 5" % q["n"], "penstock chaos latency.toml " + " ".join(map(str, options)))

    def part_stops(self):
        """SIGSTOP and hangs with timeouts of a second: detected, killed, reaped."""
        n = 4 if self.quick else 20
        text = CHAOS.format(samples=4000, batch=4, epochs=1, dataset='wait = "4ms"', placement="embedded")
        config = self.write("stops.toml", text)
        for kind in ("stop", "hang"):
            code, v = self.chaos(config, "--workers", 2, "--kinds", kind, "--rate", 0.4, "--faults", n, "--seed", 6)
            q = v["detection_seconds"]
            self.row("%s with a timeout of 1 s -> detected and dead" % kind.upper(), "each <= 1.3 s",
                     "p50 %.2f, max %.2f s" % (q["p50"], q["max"]), q["max"] <= 1.3, "n = %d, seed 6" % q["n"],
                     "penstock chaos stops.toml --workers 2 --kinds %s --rate 0.4 --faults %d --seed 6" % (kind, n))

    def part_poison(self):
        """10 000 samples, of which 5 always crash and 20 crash once."""
        kinds = ["segv", "abort", "exit", "kill", "hang"]
        chosen = random.Random(7).sample(range(10000), 25)
        always, once = chosen[:5], chosen[5:]
        faults = ['{sample = %d, kind = "%s", times = 0}' % (s, k) for s, k in zip(always, kinds)]
        faults += ['{sample = %d, kind = "%s", times = 1}' % (s, kinds[i % 4]) for i, s in enumerate(once)]
        for placement in ("embedded", "process"):
            text = CHAOS.format(samples=10000, batch=16, epochs=1, dataset="faults = [%s]" % ", ".join(faults), placement=placement)
            code, r = self.json("run", self.write("poison.toml", text), "--workers", 4)
            found = sorted(q["sample"] for q in r["quarantine"])
            epoch = r["epochs"][0]
            self.row("10 000 samples, 5 always crash, 20 crash once, %s" % placement, "exactly the 5 quarantined; 9995 delivered",
                     "%d quarantined%s, %d delivered, %d deaths" % (len(found), " (the right ones)" if found == sorted(always) else " (WRONG)",
                                                                    epoch["delivered"], len(r["workers"]["deaths"])),
                     code == 0 and found == sorted(always) and epoch["delivered"] == 9995, "n = 1, seed 7", "penstock run poison.toml --workers 4")

    def part_kills(self):
        """Another process sends SIGKILL to a worker every 200 ms, for a minute."""
        seconds, choose = 10 if self.quick else 60, random.Random(8)
        text = 'name = "kills"\n' + CHAOS.format(samples=8000, batch=16, epochs=2 if self.quick else 8, dataset='wait = "4ms"', placement="process")
        config = self.write("kills.toml", text)
        calm = self.json("run", config, "--workers", 4, "--digest")[1]
        process = self.start("run", config, "--workers", 4, "--digest", "--json", "--quiet")
        subprocess.run([self.penstock, "wait", "--session", "kills", "--timeout", "30s"], env=self.environment, capture_output=True)
        begin, kills = time.monotonic(), 0
        while time.monotonic() - begin < seconds and process.poll() is None:
            time.sleep(max(0, begin + (kills + 1) * 0.2 - time.monotonic()))
            # Any worker may be hit, including new ones and the sacrificial one, as by a kill from outside.
            there = [p for p in children_now(process.pid) if harness.name_of(p).startswith("penstock-worke")]
            if there:
                os.kill(choose.choice(there), signal.SIGKILL)
                kills += 1
        took = time.monotonic() - begin
        out, _ = process.communicate()
        code, r = process.returncode, json.loads(out)
        equal = [e["digest"] for e in r["epochs"]] == [e["digest"] for e in calm["epochs"]]
        self.row("SIGKILL from outside every 200 ms for %d s" % round(took), "0 quarantined, digest equal, no escalation",
                 "%d quarantined, %s, %s" % (len(r["quarantine"]), "equal" if equal else "DIFFERENT", r.get("error", "no escalation")),
                 code == 0 and equal and not r["quarantine"] and took >= seconds, "%d kills, %d restarts, seed 8" % (kills, r["workers"]["restarts"]),
                 "tools/bench/supervision.py ... kills")

    def part_session(self):
        """SIGKILL to the session while it starts workers, and while workers are busy, have children or are stopped."""
        n = 3 if self.quick else 25
        program = self.write("family", "#!/bin/sh\nsleep 1000 &\nexec %s/penstock-worker\n" % self.bin)
        os.chmod(program, 0o755)
        for placement in ("process", "embedded"):
            self.sessions_killed(placement, program, n)

    def sessions_killed(self, placement, program, n):
        choose = random.Random(9)
        more = 'placement = "%s"\n[loader]\ncommand = ["%s"]'
        plain = self.write("session.toml", harness.synthetic(samples=100000, batch=8, epochs=1, dataset='work = "3ms"',
                                                        more=more % (placement, "penstock-worker")))
        family = self.write("session-family.toml", harness.synthetic(samples=100000, batch=8, epochs=1, dataset='work = "3ms"', more=more % (placement, program)))
        files_before = files_of_penstock()
        seen = {"spawning": 0, "busy": 0, "with grandchildren": 0, "stopped": 0}
        tries, watched, slowest, left = 0, 0, 0.0, 0
        while min(seen.values()) < n and tries < 12 * n:
            phase = min(seen, key=seen.get)
            tries += 1
            mark = "%d-%d" % (os.getpid(), tries)
            process = self.start("run", family if phase == "with grandchildren" else plain, "--workers", 4, "--json", "--quiet",
                                 env=dict(self.environment, PENSTOCK_BENCH_MARK=mark))
            reached = self.reach(phase, process, choose)
            if phase != "spawning":  # spawning would be over before this check ends
                watched += len(marked(mark)) - 1
            process.kill()
            begin = time.monotonic()
            process.communicate()
            while marked(mark) and time.monotonic() - begin < 2:
                time.sleep(0.002)
            slowest = max(slowest, time.monotonic() - begin)
            over = marked(mark)
            for pid in over:
                print("  (left over from '%s': pid %d, %s, %s)" % (phase, pid, harness.name_of(pid), harness.state_and_parent(pid)[0]), flush=True)
                os.kill(pid, signal.SIGKILL)
            left += len(over)
            seen[phase] += reached
        subprocess.run([self.penstock, "sessions"], env=self.environment, capture_output=True)
        files = sorted(files_of_penstock() - files_before) + os.listdir(os.path.join(self.folder, "penstock"))
        for path in files:
            print("  (left: %s)" % path, flush=True)
        self.row("session SIGKILLed, %s" % placement, "0 processes after 2 s, 0 files",
                 "%d processes, slowest gone after %.3f s, %d files" % (left, slowest, len(files)),
                 left == 0 and slowest <= 2 and not files and min(seen.values()) >= n,
                 "%d in all: %s; %d processes watched; seed 9" % (tries, ", ".join("%d %s" % (count, phase) for phase, count in seen.items()), watched),
                 "tools/bench/supervision.py ... session")

    def reach(self, phase, process, choose):
        """Waits for the moment to kill the session. Returns whether /proc confirms the intended phase."""
        end = time.monotonic() + 20
        workers = []

        def look():
            workers[:] = [p for p in children_now(process.pid) if harness.name_of(p) != "penstock-gpu"]
            return workers
        if phase == "spawning":
            wanted = choose.randrange(1, 4)
            while len(look()) < wanted and time.monotonic() < end:
                pass
            # Spawning is under way if some workers do not exist yet, or if one
            # has not executed its program or has only just done so.
            return 0 < len(look()) < 4 or any(harness.name_of(p) == "penstock" or threads_of(p) < 3 for p in workers)

        def all_work():
            return len(look()) == 4 and all(threads_of(p) >= 3 and cpu_ticks(p) >= 2 for p in workers)
        while not all_work() and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(choose.random() * 0.05)
        if phase == "busy":
            while not any(task_states(p) & {"R"} for p in look()) and time.monotonic() < end:
                pass
            return time.monotonic() < end
        if phase == "with grandchildren":
            return all(any(harness.name_of(child) == "sleep" for child in children_now(p)) for p in workers)
        victims = choose.sample(children_now(process.pid), choose.randrange(1, 5))  # may include the owner's process
        for pid in victims:
            os.kill(pid, signal.SIGSTOP)
        while not all(harness.state_and_parent(p)[0] == "T" for p in victims) and time.monotonic() < end:
            time.sleep(0.001)
        return any(p in workers and harness.state_and_parent(p)[0] == "T" for p in victims)

    def part_load(self):
        """Four times as many busy processes as cores; default timeouts."""
        seconds = 10 if self.quick else 60
        config = self.write("load.toml", harness.synthetic(samples=100000, batch=16, epochs=100, dataset='work = "1ms"'))
        burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * len(os.sched_getaffinity(0)))]
        try:
            process = self.start("run", config, "--workers", 4, "--json", "--quiet")
            time.sleep(seconds)
            process.send_signal(signal.SIGTERM)
            report = json.loads(process.communicate()[0])
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()
        deaths = len(report["workers"]["deaths"])
        self.row("%d busy processes for %d s, default timeouts" % (len(burners), seconds), "0 deaths", "%d deaths" % deaths, deaths == 0,
                 "n = 1", "tools/bench/supervision.py ... load")

    def part_giving_up(self):
        """Broken worker programs: one clear error with the end of stderr, exit 1."""
        programs = {"exits at once": "echo no such library >&2; exit 1", "never gets ready": "echo waiting >&2; exec sleep 1000",
                    "dies on every sample": None}
        for what, script in programs.items():
            more, dataset, word = "", "", "systematic"
            if script:
                program = self.write("program", "#!/bin/sh\n%s\n" % script)
                os.chmod(program, 0o755)
                more = '[loader]\ncommand = ["%s"]\n[loader.hang]\nstart_deadline = "2s"\n' % program
                word = "no such library" if "exit 1" in script else "waiting"
            else:
                dataset = "faults = [%s]" % ", ".join('{sample = %d, kind = "exit", times = 0}' % i for i in range(64))
            config = self.write("giving-up.toml", harness.synthetic(samples=64, batch=4, epochs=1, dataset=dataset, more=more))
            begin = time.monotonic()
            code, r = self.json("run", config, "--workers", 2)
            took = time.monotonic() - begin
            self.row("a worker program that %s" % what, "exit 1, one error with its stderr", "exit %d after %.1f s: %s" % (code, took, r["error"].split("\n")[0][:90]),
                     code == 1 and word in r["error"], "n = 1", "penstock run giving-up.toml --workers 2")

    def part_stopping(self):
        """stop, with one worker suspended, one that ignores SIGTERM, and all of them busy for a minute."""
        program = self.write("unresponsive", "#!/bin/sh\ntrap '' TERM\nexec %s/penstock-worker\n" % self.bin)
        os.chmod(program, 0o755)
        config = self.write("stopping.toml", harness.synthetic(samples=1000, batch=8, epochs=1, dataset='wait = "60s"', more='[loader]\ncommand = ["%s"]' % program))
        for options, bar in ((["--now"], 8), ([], 25)):
            process = self.start("run", config, "--workers", 3, "--json", "--quiet")
            while len([p for p in harness.children_of(process.pid) if harness.name_of(p).startswith("penstock-worke")]) < 3:
                time.sleep(0.01)
            time.sleep(0.3)
            family = harness.descendants_of(process.pid)
            os.kill(family[0], signal.SIGSTOP)
            begin = time.monotonic()
            subprocess.run([self.penstock, "stop", *options], env=self.environment, capture_output=True)
            process.communicate()
            took = time.monotonic() - begin
            left = sum(harness.alive(pid) for pid in family)
            self.row("stop %s with one stopped and two hung workers" % " ".join(options), "within the deadline (25 s), nothing left",
                     "%.2f s, %d left" % (took, left), took <= bar and left == 0, "n = 1", "penstock stop " + " ".join(options))

    def part_throughput(self):
        """Four workers, 2 ms of work per sample, under kills."""
        samples = 4000 if self.quick else 20000
        config = self.write("throughput.toml", harness.synthetic(samples=samples, batch=16, epochs=1, dataset='work = "2ms"'))
        for rate in (1, 10):
            seconds = 5 if self.quick else 30
            code, v = self.chaos(config, "--workers", 4, "--kinds", "kill", "--rate", rate, "--seconds", "%ds" % seconds, "--seed", 10)
            calm, fire = v["undisturbed"]["samples_per_second"], v["disturbed"]["samples_per_second"]
            self.row("throughput at %d kills a second over none" % rate, ">= 0.9" if rate == 1 else "reported", "%.0f / %.0f samples/s = %.3f" % (fire, calm, fire / calm),
                     rate != 1 or fire / calm >= 0.9, "%d kills, seed 10" % v["faults"],
                     "penstock chaos throughput.toml --workers 4 --kinds kill --rate %d --seconds %ds --seed 10" % (rate, seconds))

    def part_restarts(self):
        """1000 restarts in one session: memory and descriptors do not grow."""
        n = 100 if self.quick else 1000
        config = self.write("restarts.toml", harness.synthetic(samples=1000000, batch=16, epochs=100, dataset='wait = "2ms"'))
        process = self.start("run", config, "--workers", 4, "--json", "--quiet")
        killed, seen, first = 0, set(), None
        while killed < n + 50:
            for pid in harness.children_of(process.pid):
                # Pick only workers that have been ready for a moment, because a
                # death before that counts towards the restart limit.
                try:
                    young = time.clock_gettime(time.CLOCK_BOOTTIME) - starttime(pid) < 0.12
                except OSError:
                    continue
                if pid in seen or young or not harness.name_of(pid).startswith("penstock-worke"):
                    continue
                seen.add(pid)
                os.kill(pid, signal.SIGKILL)
                killed += 1
                if killed == 50:
                    time.sleep(0.5)
                    first = facts_of(process.pid)
            time.sleep(0.005)
            if process.poll() is not None:  # too many workers were killed before they were ready: the machine is too busy
                self.row("1000 restarts", "no growth", "the run ended after %d kills" % killed, False, "", "restarts")
                return
        time.sleep(0.5)
        last = facts_of(process.pid)
        zombies = sum(harness.state_and_parent(p) == ("Z", process.pid) for p in harness.all_pids())
        process.send_signal(signal.SIGTERM)
        report = json.loads(process.communicate()[0])
        grown = {key: last[key] - first[key] for key in last}
        self.row("%d restarts" % report["workers"]["restarts"], "no growth in fds, threads and ports, RSS <= 2 MB, 0 zombies",
                 "fds %+d, threads %+d, ports %+d, RSS %+.2f MB, %d zombies" % (grown["fds"], grown["threads"], grown["ports"], grown["rss"] / 1e6, zombies),
                 grown["fds"] <= 0 and grown["threads"] <= 0 and grown["ports"] <= 0 and grown["rss"] <= 2e6 and zombies == 0, "after the first 50",
                 "tools/bench/supervision.py ... restarts")

    def part_recorder(self):
        """The cost of the flight recorder per sample, and of heartbeats per second."""
        program = os.path.join(self.bin, "flight_cost")
        if not os.path.exists(program):
            print("  (no flight_cost in %s: build the tests)" % self.bin)
            return
        cost = json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
        config = self.write("recorder.toml", CHAOS.format(samples=20000, batch=16, epochs=1, dataset="", placement="embedded"))
        rates = sorted(self.json("run", config, "--workers", 1)[1]["totals"]["samples_per_second"] for _ in range(3))
        share = cost["publish_ns"] * 1e-9 * rates[1] + cost["beat_ns"] * 1e-9 * 20
        self.row("share of a worker's time that flight recorder and heartbeat take, at %.0f samples of 64 KiB a second" % rates[1], "<= 2 %",
                 "%.0f ns a sample, %.0f ns a beat: %.3f %%" % (cost["publish_ns"], cost["beat_ns"], share * 100), share <= 0.02, "n = 10^6, median of 3",
                 "flight_cost")


def children_now(pid):
    """The children of a process, without zombies. Faster than examining every process."""
    found = []
    for task in glob.glob("/proc/%d/task/*/children" % pid):
        try:
            with open(task) as file:
                found += map(int, file.read().split())
        except OSError:
            pass
    return [child for child in found if harness.alive(child)]


def marked(mark):
    """All descendants of the session that was started with this mark, whatever their parents are now."""
    found = []
    for pid in harness.all_pids():
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                if ("PENSTOCK_BENCH_MARK=" + mark).encode() + b"\0" in file.read() and harness.alive(pid):
                    found.append(pid)
        except OSError:
            pass
    return found


def files_of_penstock():
    return {path for pattern in ("/dev/shm/*", "/tmp/*", "/tmp/penstock-*/*") for path in glob.glob(pattern)
            if "penstock" in path and "penstock-bench-" not in path and "penstock-test-" not in path}


def threads_of(pid):
    try:
        return len(os.listdir("/proc/%d/task" % pid))
    except OSError:
        return 0


def task_states(pid):
    states = set()
    for stat in glob.glob("/proc/%d/task/*/stat" % pid):
        try:
            with open(stat) as file:
                states.add(file.read().rpartition(")")[2].split()[0])
        except OSError:
            pass
    return states


def cpu_ticks(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except OSError:
        return 0


def starttime(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def facts_of(pid):
    with open("/proc/%d/status" % pid) as file:
        fields = dict(line.split(":", 1) for line in file)
    return {"fds": len(os.listdir("/proc/%d/fd" % pid)), "threads": int(fields["Threads"]), "rss": int(fields["RssAnon"].split()[0]) * 1024,
            "ports": ports_of(pid)}


def ports_of(pid):
    sockets = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with open("/proc/%d/net/%s" % (pid, table)) as file:
            sockets |= {"socket:[%s]" % line.split()[9] for line in file.readlines()[1:]}
    return sum(os.readlink(fd) in sockets for fd in glob.glob("/proc/%d/fd/*" % pid) if os.path.lexists(fd))


def main():
    parts = [name[5:] for name in Bench.__dict__ if name.startswith("part_")]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", help="folder that holds penstock")
    parser.add_argument("parts", nargs="*", metavar="PART", help="one or more of: " + ", ".join(parts))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_intermixed_args()
    if options.list:
        for name in parts:
            print("%-12s %s" % (name, getattr(Bench, "part_" + name).__doc__))
        return 0
    bench = Bench(os.path.abspath(options.bin), options.quick)
    print("| what | bar | figure | n, seed | command |\n| --- | --- | --- | --- | --- |", flush=True)
    for name in options.parts or parts:
        if name not in parts:
            sys.exit("there is no part '%s'; the parts are: %s" % (name, ", ".join(parts)))
        getattr(bench, "part_" + name)()
    return 1 if bench.missed else 0


sys.exit(main())
