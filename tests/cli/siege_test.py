"""The control socket under attack: clients that stall, flood or send garbage, workers that all hang, other users."""

import pwd
import resource
import signal
import socket
import subprocess
import threading
import time

from harness import *

ENDLESS = synthetic(samples=1000000, batch=8, epochs=1, dataset='wait = "1ms"')
ALL_HANG = synthetic(samples=64, batch=4, epochs=1,
                     dataset="faults = [%s]" % ", ".join('{sample = %d, kind = "hang", times = 0}' % s for s in range(64)),
                     more='[loader.hang]\nitem_timeout = "10m"\n')


class SiegeTest(PenstockTest):
    def live(self, text=ENDLESS, workers=2):
        process = self.start("run", self.write("live.toml", text), "--workers", workers, "--quiet")
        self.assertEqual(self.penstock("wait", "--timeout", "20s")[0], EXIT_OK)
        self.path = os.path.join(self.folder, "penstock", "live.sock")
        return process

    def ask(self, request, timeout=10):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(self.path)
            client.sendall(json.dumps(dict(request, penstock=1)).encode() + b"\n")
            received = b""
            while not received.endswith(b"\n"):
                more = client.recv(65536)
                if not more:
                    raise OSError("cut off")
                received += more
        return json.loads(received)

    def delivered(self):
        return self.ask({"verb": "status"})["result"]["batches_delivered"]

    def rss(self, pid):
        with open("/proc/%d/status" % pid) as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))

    def besiege(self, number, path, stop, opened):
        """One hostile client, which reconnects until it is stopped."""
        while not stop.is_set():
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(2)
                    client.connect(path)
                    opened.append(number)
                    kind = number % 6
                    if kind == 0:
                        stop.wait(2)  # keeps the connection open without sending a byte
                    elif kind == 1:
                        client.sendall(b"\x00\xff garbage\n" * 50)
                        client.recv(1000)
                    elif kind == 2:
                        block = b"x" * 1000000
                        for _ in range(100):  # 100 MB without an end of line
                            client.sendall(block)
                    elif kind == 3:
                        client.sendall(b"[" * 60000 + b"\n")
                        client.recv(1000)
                    elif kind == 4:
                        client.sendall(b'{"penstock": 1, "verb": "status"}\n' * 1000)  # the client never reads the answers
                        stop.wait(2)
                    else:
                        client.sendall(b'{"penstock": 1, "verb": {"a": [1, 2]}, "worker": -1}\n{"penstock": 99}\n')
                        client.recv(1000)
            except OSError:
                pass  # the session has disconnected this client, as it should

    def test_two_hundred_hostile_clients_disturb_neither_stream_nor_memory_nor_operators(self):
        process = self.live()
        self.wait_until(lambda: self.delivered() > 20, "a stream")
        before = self.rss(process.pid)
        stop, opened = threading.Event(), []
        crowd = [threading.Thread(target=self.besiege, args=(n, self.path, stop, opened)) for n in range(200)]
        for one in crowd:
            one.start()
        try:
            self.wait_until(lambda: len(set(opened)) == 200, "all of them to be connected", 60)
            first = self.wait_until(self.try_delivered, "an answer to an operator")
            self.wait_until(lambda: (self.try_delivered() or 0) > first + 50, "fifty more batches", 60)
            self.assertLess(self.rss(process.pid) - before, 64 << 20)
            with open("/proc/%d/limits" % process.pid):
                self.assertLess(len(os.listdir("/proc/%d/fd" % process.pid)), 200)
        finally:
            stop.set()
            for one in crowd:
                one.join()
        self.assertEqual(self.penstock("status", "--check")[0], EXIT_OK)
        self.assertEqual(self.ask({"verb": "status"})["result"]["workers"][0]["restarts"], 0)

    def try_delivered(self):
        try:
            return self.delivered()
        except OSError:
            return None

    def test_answers_come_within_100_ms_while_all_workers_hang(self):
        self.live(ALL_HANG)
        def all_hang():
            workers = self.ask({"verb": "status"})["result"]["workers"]
            return all((w["current_sample_seconds"] or 0) > 0.2 for w in workers)
        self.wait_until(all_hang, "all workers to hang")
        for verb in ("status", "pipeline", "deaths", "events"):
            times = []
            for _ in range(15):
                begin = time.monotonic()
                self.assertTrue(self.ask({"verb": verb})["ok"])
                times.append(time.monotonic() - begin)
            self.assertLess(min(times), 0.1, verb)  # only the shortest time, because the machine's load lengthens the others

    def as_nobody(self, *command, **more):
        nobody = pwd.getpwnam("nobody")
        return subprocess.run(command, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], capture_output=True, timeout=20, **more)

    def test_another_user_cannot_connect(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        self.live()
        script = ("import socket, sys\n"
                  "client = socket.socket(socket.AF_UNIX); client.settimeout(10)\n"
                  "client.connect(sys.argv[1])\n"
                  "client.sendall(b'{\"penstock\": 1, \"verb\": \"status\"}\\n')\n"
                  "sys.exit(0 if client.recv(10) == b'' else 9)\n")
        os.chmod(self.folder, 0o755)
        refused = self.as_nobody("/usr/bin/python3", "-c", script, self.path, cwd="/")
        self.assertIn(b"PermissionError", refused.stderr)
        # Even if the permissions of the folder are wrong, the server checks its peer.
        os.chmod(os.path.dirname(self.path), 0o755)
        os.chmod(self.path, 0o666)
        heard = self.as_nobody("/usr/bin/python3", "-c", script, self.path, cwd="/")
        self.assertIn(heard.returncode, (0, 1), heard.stderr)
        self.assertNotIn(b"PermissionError", heard.stderr)
        self.assertTrue(self.ask({"verb": "status"})["ok"])

    def test_a_request_to_a_stopped_session_times_out_and_its_socket_is_not_taken_over(self):
        process = self.live()
        process.send_signal(signal.SIGSTOP)
        try:
            clients = []
            for _ in range(200):  # until its backlog is full
                client = socket.socket(socket.AF_UNIX)
                self.addCleanup(client.close)
                client.setblocking(False)
                try:
                    client.connect(self.path)
                except BlockingIOError:
                    break
                clients.append(client)
            self.assertEqual(self.penstock("wait", "--for=finished", "--timeout", "300ms")[0], EXIT_TIMED_OUT)
            code, out, _ = self.penstock("sessions", "--json")
            self.assertEqual([s["session"] for s in json.loads(out)["sessions"]], ["live"])
            second = self.start("run", self.write("other/live.toml", ENDLESS), "--workers", 1, "--quiet")
            self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "penstock", "live-%d.sock" % second.pid)), "a name of its own")
        finally:
            process.send_signal(signal.SIGCONT)
        for client in clients:
            client.close()
        def pid_at_the_socket():
            try:
                return self.ask({"verb": "status"})["result"]["pid"]
            except OSError:
                return None  # the socket's backlog is still being emptied
        self.assertEqual(self.wait_until(pid_at_the_socket, "an answer"), process.pid)

    def best_of(self, times, *arguments):
        """CPU time and wall-clock time, the best of each; wall-clock time also depends on the machine's other load."""
        def used():
            children = resource.getrusage(resource.RUSAGE_CHILDREN)
            return children.ru_utime + children.ru_stime

        runs = []
        for _ in range(times):
            before, begin = used(), time.monotonic()
            self.assertEqual(self.penstock(*arguments)[0], EXIT_OK)
            runs.append((used() - before, time.monotonic() - begin))
        return [min(each) for each in zip(*runs)]

    def test_version_takes_at_most_20_ms_and_status_30_ms_of_a_core(self):
        self.live(workers=1)
        for verb, limit in (("version", 0.020), ("status", 0.030)):
            processor, clock = self.best_of(20, verb)
            self.assertLess(processor, limit, verb)
            self.assertLess(clock, 10 * limit, "%s waits for something" % verb)


if __name__ == "__main__":
    main()
