"""Sessions with loader hosts, and relays between them."""

import re
import threading

from harness import *

HOSTS = """
[loader]
workers = {workers}
[loader.hosts]
{listen}
{more}
"""
INSECURE = "insecure = true\n"


class Relay(threading.Thread):
    """Relays bytes between hosts and a session. `change(connection number, bytes)` returns the bytes to forward for what a host sent."""

    def __init__(self, to, change):
        super().__init__(daemon=True)
        host, port = to.rsplit(":", 1)
        self.to, self.change, self.connections = (host, int(port)), change, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.to)
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            for ends, change in (((near, far), lambda some, n=number: self.change(n, some)), ((far, near), lambda some: some)):
                threading.Thread(target=self.pump, args=(*ends, change), daemon=True).start()

    @staticmethod
    def pump(source, sink, change):
        try:
            while some := source.recv(65536):
                sink.sendall(change(some))
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Bandwidth:
    """For Relay: limits what hosts send to this many bytes a second, over all connections."""

    def __init__(self, bytes_per_second):
        self.rate, self.free_at, self.lock = bytes_per_second, 0.0, threading.Lock()

    def __call__(self, _, some):
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + len(some) / self.rate
            wait = self.free_at - time.monotonic()
        time.sleep(max(wait, 0))
        return some


class HostCase(PenstockTest):
    GIVEN_WITHIN = 30  # 3 s of measuring, 2 s until the result is certain, 5 s since the last change; the rest is for a busy machine

    def config(self, name="h", text=None, workers=0, hosts=INSECURE, listen='listen = "127.0.0.1:0"', **shape):
        text = synthetic(**shape) if text is None else text
        return self.write(name + ".toml", text + HOSTS.format(workers=workers, more=hosts, listen=listen))

    def raw_dataset(self, name, count):
        """A folder with `count` files of 100 bytes, and the config of a session that reads them."""
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        for i in range(count):
            with open(os.path.join(folder, "%04d.bin" % i), "wb") as file:
                file.write(bytes(100))
        return folder, '[dataset]\ntype = "raw"\npath = "%s"\nshape = [100]\n[sampler]\nbatch_size = 7\n[gpu]\ndevice = "host"\n' % folder

    def local_digests(self, text=None, **shape):
        return self.digests(self.write("local.toml", synthetic(**shape) if text is None else text), "--workers", 2)

    def begin(self, config, *arguments):
        return self.start("run", config, "--digest", "--json", "--quiet", *arguments)

    def status(self, name="h"):
        code, out, _ = self.penstock("status", "--json", "--session", name)
        return json.loads(out) if code == EXIT_OK else {}

    def address(self, name="h"):
        return self.wait_until(lambda: self.status(name).get("hosts_join_at"), "where hosts join")

    def host(self, address, workers=1, name="a", *arguments, secret=("--insecure",)):
        return self.start("host", "--join", address, "--workers", workers, "--name", name, *secret, *arguments)

    def listening_host(self, workers=1, name="a", *arguments, secret=("--insecure",), at="127.0.0.1:0"):
        """The process and its address."""
        process = self.start("host", "--listen", at, "--workers", workers, "--name", name, *secret, *arguments)
        return process, self.line_of(process, rb"waiting for a session at (\S+) with")[1].decode()

    def line_of(self, process, pattern):
        """The next matching line on the process's standard error."""
        lines = []
        while not (found := re.search(pattern, line := process.stderr.readline())):
            lines.append(line)
            self.assertTrue(line, lines)
        return found

    def joined(self, count, name="h"):
        def connections():
            status = self.status(name)
            ready = {w["id"] for w in status.get("workers", []) if w["state"] == "ready"}
            return sum(len(ready & set(h["workers"])) for h in status.get("hosts", [])) >= count and status
        return self.wait_until(connections, lambda: "%d remote workers: %s" % (count, self.status(name)))

    def workers_here(self, name):
        """How many ready workers on hosts a session has."""
        status = self.status(name)
        ready = {w["id"] for w in status.get("workers", []) if w["state"] == "ready"}
        return sum(len(ready & set(h["workers"])) for h in status.get("hosts", []))

    def share(self, seconds=GIVEN_WITHIN, **expected):
        """Waits until each session has this many ready workers on hosts."""
        def now():
            return {name: self.workers_here(name) for name in expected}
        self.wait_until(lambda: now() == expected, lambda: "%s: %s" % (expected, now()), seconds=seconds)

    def check(self, process, expected):
        """Checks that the session ends with these digests, without losses."""
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), expected)
        self.assertEqual((report["quarantine"], report["workers"]["ended_unexpectedly"]), ([], 0))

    def stop(self, **sessions):
        for name, process in sessions.items():
            self.assertEqual(self.penstock("stop", "--now", "--session", name)[0], EXIT_OK)
            process.communicate(timeout=30)

    def report_of(self, process, expect=EXIT_OK, timeout=100):
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, expect, err.decode() + out.decode())
        report = json.loads(out)
        self.check_sums(report)
        return report

    def digests_of(self, report):
        return [epoch["digest"] for epoch in report["epochs"]]

    def ends(self, host, code, timeout=20):
        _, err = host.communicate(timeout=timeout)
        self.assertEqual(host.returncode, code, err.decode())
        return err.decode()

    def secret(self, name):
        _, out, _ = self.penstock("secret")
        path = self.write(name, out)
        os.chmod(path, 0o600)
        return path
