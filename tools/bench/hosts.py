#!/usr/bin/env python3
"""Compares workers on loader hosts with local workers and with bare sockets: hosts.py BIN [--photos FOLDER] [PART...]

    photos    photographs a second: one host of N cores against N local workers, and two hosts of N/2 cores against one
    bytes     large batches over the loopback interface, without a secret and with TLS, against the same number of bare connections
    idle      processor time and memory for each remote worker while the session is paused
    many      100 hosts of one worker: how soon they are ready, and whether they share the work evenly
    changes   seconds from the start of a host to its first batch, and from the loss of a host until others have loaded its batches

All hosts run on this machine. Under "photos", `taskset` gives each host its own cores, and leaves the others to the session. Prints a
line for each run, and at the end one JSON object. Rates leave out the time to the first batch.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "cli"))
import harness  # noqa: E402

PHOTOS = '[dataset]\npath = "{folder}"\n[sampler]\nbatch_size = 64\nepochs = {epochs}\n'
LARGE = '[dataset]\ntype = "synthetic"\nsamples = {samples}\nbytes_per_sample = "150528B"\n[sampler]\nbatch_size = 128\nepochs = 1\n'
SMALL = '[dataset]\ntype = "synthetic"\nsamples = 100000000\nbytes_per_sample = "4KiB"\nwait = "{wait}"\n[sampler]\nbatch_size = 8\nepochs = 1\n'
SESSION = 'name = "bench"\n{dataset}[gpu]\ndevice = "{device}"\n[loader]\nworkers = {workers}\n'
HOSTS = '[loader.hosts]\nlisten = "127.0.0.1:0"\n{access}\n'
BATCH = 128 * 150528
LOST_AFTER = 2.0
HELD_AT_MOST = 8  # number of batches: two hosts of two workers with two slots each


def cores(numbers):
    return ["taskset", "-c", ",".join(map(str, numbers))]


class Bench:
    def __init__(self, options):
        self.penstock, self.options = os.path.join(os.path.abspath(options.bin), "penstock"), options
        self.folder = self.secret = None

    @contextlib.contextmanager
    def session(self, dataset, workers=0, secure=False, hosts=True, place=(), more="", arguments=("--json", "--quiet", "--sink", "null")):
        """A running session in its own folder; hosts join at `self.address`."""
        with tempfile.TemporaryDirectory(prefix="penstock-hosts-") as self.folder:
            self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.folder)
            self.journal_bytes = self.journal_batches = 0
            self.secret, config = os.path.join(self.folder, "secret"), os.path.join(self.folder, "bench.toml")
            with os.fdopen(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as out:
                out.write(os.urandom(32).hex() + "\n")
            access = 'secret_file = "%s"' % self.secret if secure else "insecure = true"
            with open(config, "w") as out:
                out.write(SESSION.format(dataset=dataset, workers=workers, device=self.options.device) + (HOSTS.format(access=access) + more if hosts else ""))
            process = subprocess.Popen([*place, self.penstock, "run", config, *arguments], env=self.environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, cwd=self.folder)
            try:
                self.address = self.until(lambda: self.status().get("hosts_join_at")) if hosts else None
                yield process
            finally:
                process.kill()
                process.wait()

    def status(self):
        done = subprocess.run([self.penstock, "status", "--json", "--session", "bench"], env=self.environment, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    @staticmethod
    def until(what, seconds=60):
        deadline = time.monotonic() + seconds
        while not (found := what()):
            if time.monotonic() > deadline:
                raise SystemExit("what was awaited did not happen within %d s" % seconds)
            time.sleep(0.02)
        return found

    def host(self, name, workers, secure=False, place=()):
        access = ["--secret-file", self.secret] if secure else ["--insecure"]
        return subprocess.Popen([*place, self.penstock, "host", "--join", self.address, "--workers", str(workers), "--name", name, *access],
                                env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ready(self):
        return sum(w["state"] == "ready" and w["id"] > 64 for w in self.status().get("workers", []))

    @staticmethod
    def report(process):
        out, err = process.communicate()
        if process.returncode != 0:
            raise SystemExit(err)
        return json.loads(out)["totals"]

    def rate(self, dataset, hosts=(), workers=0, secure=False, place=(), more=""):
        """Samples a second of a whole run. `hosts`: for each host its number of workers, or its cores, with a worker on each."""
        with self.session(dataset, workers, secure, bool(hosts), place, more) as process:
            started = [self.host("host-%d" % i, one, secure) if isinstance(one, int) else self.host("host-%d" % i, len(one), secure, cores(one))
                       for i, one in enumerate(hosts)]
            totals = self.report(process)
            for host in started:
                host.wait()
        return totals["samples"] / (totals["seconds"] - totals["first_batch_seconds"])

    # ---- parts -----------------------------------------------------------------------------------------------

    def photos(self):
        mine = sorted(os.sched_getaffinity(0))
        n = min(8, len(mine) // 2)
        workers, others = mine[:n], mine[n:]
        dataset = PHOTOS.format(folder=os.path.abspath(self.options.photos), epochs=self.options.epochs)
        half = n // 2
        runs = {"%d local workers" % n: dict(workers=n), "host of %d cores" % n: dict(hosts=[workers], place=cores(others))}
        if half:
            runs["host of %d cores" % half] = dict(hosts=[workers[:half]], place=cores(others))
            runs["2 hosts of %d cores" % half] = dict(hosts=[workers[:half], workers[half:2 * half]], place=cores(others))
        return self.rounds("photos", runs, lambda run: self.rate(dataset, **run), "photographs/s")

    def bytes(self):
        count = self.options.connections
        dataset = LARGE.format(samples=128 * self.options.batches)
        large = lambda **run: self.rate(dataset, **run) * 150528 / 1e9
        runs = {"bare sockets": lambda: self.sockets(count, False), "hosts": lambda: large(hosts=[count]),
                "hosts, no digests": lambda: large(hosts=[count], more='verify = "never"\n'),
                "bare TLS": lambda: self.sockets(count, True), "hosts, TLS": lambda: large(hosts=[count], secure=True)}
        return self.rounds("bytes", runs, lambda run: run(), "GB/s, %d connections" % count, self.options.batches * BATCH / 1e9)

    def sockets(self, count, secure):
        """GB/s of `count` bare connections: for each, a process sends batches, and a thread of this program receives them into a buffer."""
        with tempfile.TemporaryDirectory() as folder:
            certificate = os.path.join(folder, "both.pem")
            if secure:
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj",
                                "/CN=bench", "-keyout", certificate + ".key", "-out", certificate], check=True, capture_output=True)
            listener = socket.create_server(("127.0.0.1", 0), backlog=count)
            senders = []
            for _ in range(count):
                if not (pid := os.fork()):
                    self.send(listener.getsockname()[1], certificate if secure else None)
                    os._exit(0)
                senders.append(pid)
            ends = [listener.accept()[0] for _ in range(count)]
            if secure:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate, certificate + ".key")
                ends = [context.wrap_socket(end, server_side=True) for end in ends]
            start = time.monotonic()
            threads = [threading.Thread(target=self.receive, args=(end,)) for end in ends]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - start
            for pid in senders:
                os.waitpid(pid, 0)
        return count * (self.options.batches // count) * BATCH / seconds / 1e9

    def send(self, port, certificate):
        end = socket.create_connection(("127.0.0.1", port))
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            end = context.wrap_socket(end)
        batch = memoryview(bytearray(BATCH))
        for _ in range(self.options.batches // self.options.connections):
            for at in range(0, BATCH, 1 << 20):
                end.sendall(batch[at:at + (1 << 20)])
        end.close()

    @staticmethod
    def receive(end):
        buffer = memoryview(bytearray(BATCH))
        at = 0
        while got := end.recv_into(buffer[at:]):
            at = (at + got) % BATCH

    def idle(self):
        found = {}
        for workers in (0, 64):
            with self.session(SMALL.format(wait="10ms"), 1) as process:
                host = self.host("idle", workers or 1)
                self.until(lambda: self.ready() >= (workers or 1))
                subprocess.run([self.penstock, "pause", "--session", "bench"], env=self.environment, check=True, capture_output=True)
                time.sleep(2)
                before, start = self.used(process.pid), time.monotonic()
                time.sleep(10)
                found[workers or 1] = (self.memory(process.pid), (self.used(process.pid) - before) / (time.monotonic() - start))
                host.kill()
        extra = 63
        kib, cpu = ((found[64][i] - found[1][i]) / extra for i in (0, 1))
        print("idle: %.0f KiB and %.4f %% of a core for each remote worker" % (kib, 100 * cpu), flush=True)
        return {"kib": round(kib, 1), "core_percent": round(100 * cpu, 4)}

    @staticmethod
    def used(pid):
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def memory(pid):
        with open("/proc/%d/status" % pid) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

    def many(self):
        with self.session(SMALL.format(wait="2ms")):
            start = time.monotonic()
            hosts = [self.host("host-%d" % i, 1) for i in range(100)]
            self.until(lambda: self.ready() >= 100)
            seconds = time.monotonic() - start
            before = {w["id"]: w["samples"] for w in self.status()["workers"]}
            time.sleep(20)
            done = [w["samples"] - before[w["id"]] for w in self.status()["workers"] if w["id"] > 64]
            for host in hosts:
                host.kill()
        mean = statistics.mean(done)
        print("many: 100 hosts ready after %.1f s; samples of each %d to %d, mean %.0f" % (seconds, min(done), max(done), mean), flush=True)
        return {"ready_seconds": round(seconds, 2), "least_of_mean": round(min(done) / mean, 3), "most_of_mean": round(max(done) / mean, 3)}

    def changes(self):
        """Reads the journal of a session without local workers. Batches are delivered in order, so once all batches
        that were leased when a host was lost have been delivered, other hosts have loaded the lost host's batches."""
        found = {"joined": [], "closed": [], "silent": [], "silent, counted as lost": []}
        more = 'landing_slots = 2\nlost_after = "%gs"\n' % LOST_AFTER
        with self.session(SMALL.format(wait="1ms"), arguments=("--json", "--quiet", "--sink", "journal:journal"), more=more):
            for _ in range(self.options.changes):
                start, before = time.monotonic(), self.delivered()
                host = self.host("joins", 2)
                found["joined"].append(self.passes(before + 1) - start)
                host.terminate()
                host.wait()
            hosts = [self.host("host", 2) for _ in range(2)]
            for kind in ["closed", "silent"] * self.options.changes:
                self.until(lambda: self.ready() == 4)
                time.sleep(0.5)
                lost = hosts.pop(0)
                victims = [lost.pid, *harness.descendants_of(lost.pid)] if kind == "silent" else [lost.pid]
                start, before = time.monotonic(), self.delivered()
                for pid in victims:
                    os.kill(pid, signal.SIGSTOP if kind == "silent" else signal.SIGKILL)
                found[kind].append(self.passes(before + HELD_AT_MOST) - start)
                self.until(lambda: self.ready() == 2)
                found["silent, counted as lost"] += [time.monotonic() - start] * (kind == "silent")
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
                lost.wait()
                hosts.append(self.host("host", 2))
            for host in hosts:
                host.kill()
        for kind, times in found.items():
            print("changes: %-24s median %.3f s, at most %.3f s of %d" % (kind, statistics.median(times), max(times), len(times)), flush=True)
        return {kind: {"median": round(statistics.median(times), 3), "most": round(max(times), 3)} for kind, times in found.items()}

    def delivered(self):
        """Reads only the lines added to the journal since the last call."""
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, "journal"), "rb") as file:
            file.seek(self.journal_bytes)
            lines = file.read()
            lines = lines[:lines.rfind(b"\n") + 1]
            self.journal_bytes += len(lines)
            self.journal_batches += lines.count(b'"batch"')
        return self.journal_batches

    def passes(self, batch):
        """Waits until the journal has this many batches. Returns the time."""
        deadline = time.monotonic() + 60
        while self.delivered() < batch:
            if time.monotonic() > deadline:
                raise SystemExit("the stream has stopped")
            time.sleep(0.002)
        return time.monotonic()

    def rounds(self, part, runs, measure, unit, gigabytes=None):
        rates = {name: [] for name in runs}
        for _ in range(self.options.rounds):
            for name, run in runs.items():
                before = self.processor_time()
                rates[name].append(measure(run))
                cost = ", %.2f s of processor time a GB" % ((self.processor_time() - before) / gigabytes) if gigabytes else ""
                print("%-7s %-20s %9.2f %s%s" % (part, name, rates[name][-1], unit, cost), flush=True)
        return {name: round(statistics.median(values), 2) for name, values in rates.items()}

    @staticmethod
    def processor_time():
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--photos", help="folder of photographs, for the part 'photos'")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--changes", type=int, default=10, help="how many changes of each kind, for the part 'changes'")
    parser.add_argument("--device", default="host", help="the session's device ([gpu] device)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_intermixed_args()
    bench = Bench(options)
    names = ("photos", "bytes", "idle", "many", "changes")
    for part in options.parts:
        if part not in names:
            parser.error("there is no part %r; available: %s" % (part, ", ".join(names)))
    parts = options.parts or [name for name in names if name != "photos" or options.photos]
    if "photos" in parts and not options.photos:
        parser.error("the part photos needs --photos FOLDER")
    print(json.dumps({part: getattr(bench, part)() for part in parts}))


if __name__ == "__main__":
    main()
