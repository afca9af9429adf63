"""Shared by the command line tests: starting penstock, examining its processes, making photographs.

Run by ctest with PENSTOCK_BIN set to the folder of the programs. Only the standard library is needed here; tests that
look at pixels need Pillow and NumPy as well.
"""

import contextlib
import ctypes
import fcntl
import importlib.util
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from run_tests import run_tests  # noqa: E402

BIN = os.environ.get("PENSTOCK_BIN", "")
PENSTOCK = os.path.join(BIN, "penstock")

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_MET, EXIT_NO_TARGET, EXIT_NO_SESSION = 0, 1, 2, 3, 4, 5
EXIT_TIMED_OUT, EXIT_REFUSED, EXIT_CONFIG, EXIT_INTERRUPTED, EXIT_TERMINATED = 6, 7, 78, 130, 143


class PenstockTest(unittest.TestCase):
    """A test with a temporary folder, which also contains the control sockets."""

    def setUp(self):
        # Seeds tests that call random; ctest shows the seed when one fails.
        seed = int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(1 << 32)))
        print("PENSTOCK_TEST_SEED=%d" % seed, flush=True)
        random.seed(seed)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-test-")
        self.addCleanup(self._folder.cleanup)  # first, because cleanups run in reverse order: a test's own may close what is in the folder
        self.folder = self._folder.name
        # some programs, such as bash, warn about a locale that is not installed
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=self.folder, LC_ALL="C.UTF-8")
        self._running = []
        self.addCleanup(self._end_processes)

    def _end_processes(self):
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()

    # ---- running ---------------------------------------------------------------------------------------------

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + "~", "w") as file:
            file.write(text)
        os.rename(path + "~", path)  # a program that was just started may still be reading the previous file
        return path

    def worker_program(self, script):
        """[loader] command: a worker that runs this shell script first."""
        path = self.write("worker-program", "#!/bin/sh\n" + script + '\nexec "%s/penstock-worker"\n' % BIN)
        os.chmod(path, 0o755)
        return '[loader]\ncommand = ["%s"]\n' % path

    def start(self, *arguments, **popen):
        process = subprocess.Popen(
            [PENSTOCK, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=popen.pop("env", self.environment), cwd=popen.pop("cwd", self.folder), **popen)
        self._running.append(process)
        return process

    @staticmethod
    def signal_again(process, number):
        """A further request to stop: signals within a tenth of a second are one."""
        time.sleep(0.12)  # real time, because the other process measures it
        process.send_signal(number)

    def penstock(self, *arguments, timeout=120, **popen):
        """Runs to the end; returns (exit code, stdout, stderr) as text."""
        process = self.start(*arguments, **popen)
        out, err = process.communicate(timeout=timeout)
        out = out.decode("utf-8", "replace")
        if "--json" in arguments and arguments[0] != "map" and process.returncode >= 0:  # map's lines are results of the user's own jobs
            for line in out.splitlines():
                self.check_schema(json.loads(line))
        return process.returncode, out, err.decode("utf-8", "replace")

    def check_schema(self, answer):
        """All output of --json names its schema; tools/site fails if a schema is not described."""
        self.assertRegex(answer.get("schema", ""), r"^penstock\.[a-z.-]+/\d+$")

    def lines_on_a_terminal(self, *arguments, columns=80, timeout=60, stream="stdout"):
        """The output on a terminal of this width. `stream`: "stdout" or "stderr"."""
        ours, its = os.openpty()
        with open(ours, "rb", buffering=0) as screen:
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            process = subprocess.Popen([PENSTOCK, *map(str, arguments)], stdin=subprocess.DEVNULL, env=self.environment, cwd=self.folder,
                                       **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: its})
            self._running.append(process)
            os.close(its)
            text = b""
            try:
                while piece := screen.read(65536):
                    text += piece
            except OSError:  # the other end is closed
                pass
            process.wait(timeout=timeout)
        return text.decode("utf-8", "replace").splitlines()

    def run_json(self, *arguments, expect=EXIT_OK, **popen):
        """`penstock run ... --json --quiet`: the report."""
        code, out, err = self.penstock("run", *arguments, "--json", "--quiet", **popen)
        self.assertEqual(code, expect, err + out)
        self.assertEqual(out.count("\n"), 1, out)
        return json.loads(out)

    def digests(self, *arguments, **popen):
        report = self.run_json(*arguments, "--digest", **popen)
        self.check_sums(report)
        return [epoch["digest"] for epoch in report["epochs"]]

    def check_sums(self, report):
        for epoch in report["epochs"]:
            if epoch["complete"]:
                self.assertEqual(epoch["delivered"] + epoch["failed"] + epoch["quarantined"], epoch["expected"])

    def hold_up(self, path):
        """Makes executing this file block until the test ends, through a file lease: simulates a dead file server."""
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # the signal with which the kernel requests the lease
        file = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, file)
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as refused:
            self.skipTest("no lease on files of %s: %s" % (self.folder, refused))

    @staticmethod
    def journal_lines(path):
        """The lines of a journal. Leaves out one that is being written, or whose writer was killed: at the border of a page the kernel
        writes a line in two steps."""
        with open(path) as file:
            return [json.loads(line) for line in file if line.endswith("}\n")]

    def live_status(self, session, timeout=20):
        """The status of a running session, read directly from its control socket: under load, the state to observe could be over before a
        program has started. None if no session answers, or if the session ends while it answers."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            try:
                client.connect(os.path.join(self.folder, "penstock", session + ".sock"))
                client.sendall(b'{"penstock": 1, "verb": "status"}\n')
                with client.makefile("rb") as answers:
                    answer = answers.readline()
            except OSError:
                return None
        return json.loads(answer).get("result") if answer.endswith(b"\n") else None

    def in_cgroup(self, controller, v1, v2):
        """A preexec_fn that puts the process into a new cgroup with these limits ({file: content}, for both versions), or a skipped test."""
        for root, limits in (("/sys/fs/cgroup/" + controller, v1), ("/sys/fs/cgroup", v2)):
            folder = os.path.join(root, "penstock-test-%d" % os.getpid())
            try:
                os.mkdir(folder)
                self.addCleanup(os.rmdir, folder)
                for name, content in limits.items():
                    with open(os.path.join(folder, name), "w") as file:
                        file.write(content)
            except OSError:
                continue

            def enter():
                with open(os.path.join(folder, "cgroup.procs"), "w") as file:
                    file.write(str(os.getpid()))
            return enter
        self.skipTest("no %s cgroup can be made here" % controller)

    def memory_cgroup(self):
        """in_cgroup() with a memory limit of 512 MiB."""
        return self.in_cgroup("memory", {"memory.limit_in_bytes": str(512 << 20)}, {"memory.max": str(512 << 20)})

    # ---- processes -------------------------------------------------------------------------------------------

    def rank_pids(self, process):
        """The pids of the sessions that `penstock launch` runs now, by rank."""
        found = {}
        for pid in children_of(process.pid):
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    variables = dict(one.split(b"=", 1) for one in file.read().split(b"\0") if b"=" in one)
            except OSError:
                continue
            if b"PENSTOCK_LAUNCH_CHANNEL" in variables and alive(pid):
                found[int(variables[b"RANK"])] = pid
        return found

    def wait_until(self, condition, what, seconds=20.0):
        """`what` may be a function, which is called when the time is over."""
        end = time.monotonic() + seconds
        while (asked := time.monotonic()) < end:
            result = condition()
            if result:
                return result
            # Polling takes at most a third of a core, because the awaited process needs the cores, too.
            time.sleep(min(max(0.005, 2 * (time.monotonic() - asked)), 0.1))
        self.fail("not within %g s: %s" % (seconds, what() if callable(what) else what))

    @staticmethod
    def torchrun_alone():
        """torchrun's options for one machine, with a free port: before torch 2, --standalone always takes the same one."""
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        return ["--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:%d" % port, "--rdzv_id", "test-%d" % port]

    def need_torchrun(self):
        """Skips the test where torch cannot make the store where torchrun's processes meet: Debian 13's build lacks a part."""
        if importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed")
        tried = subprocess.run([sys.executable, "-c", "from torch.distributed import TCPStore; TCPStore('127.0.0.1', 0, 1, True)"],
                               capture_output=True, text=True)
        if "libuv" in tried.stderr:
            self.skipTest("torchrun cannot start anything here: torch is built without libuv")

    def most_memory_of(self, process, seconds):
        """The largest RssAnon seen until the process ended or the time was over."""
        most, end = 0, time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            try:
                most = max(most, rss_anon(process.pid))
            except OSError:
                pass
            time.sleep(0.005)
        return most

    def workers_when_ready(self, session):
        """The pids of all workers, once each of them is ready: the session is ready with the first one, and a crash of a worker that is still
        starting leaves no stack."""
        def ready():
            workers = (self.live_status(session) or {"workers": []})["workers"]
            return [w["pid"] for w in workers] if {w["state"] for w in workers} == {"ready"} else None
        return self.wait_until(ready, "all workers are ready")

    def workers_of(self, process):
        return [pid for pid in children_of(process.pid) if name_of(pid).startswith("penstock-worke")]


def state_and_parent(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError, ValueError):
        return "X", 0


def name_of(pid):
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip()
    except OSError:
        return ""


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(parent):
    """Living children; zombies are not counted."""
    states = ((pid, state_and_parent(pid)) for pid in all_pids())
    return [pid for pid, (state, its_parent) in states if its_parent == parent and state not in "ZX"]


def descendants_of(ancestor):
    parents = {pid: state_and_parent(pid)[1] for pid in all_pids()}
    found, frontier = set(), {ancestor}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - found
        found |= frontier
    return [pid for pid in found if state_and_parent(pid)[0] not in "ZX"]


def signal_process(pid, number):
    """os.kill for exactly one process. Refuses 0 and negative numbers, which mean groups: 0 is the group of ctest and of
    the shell that started it."""
    if not pid or pid <= 1:
        raise ValueError("pid %r is not a process of a test" % (pid,))
    os.kill(pid, number)


def suspend(pid):
    """Returns when the process has stopped or ended: under load, a signal is not delivered at once."""
    signal_process(pid, signal.SIGSTOP)
    while state_and_parent(pid)[0] not in "TXZ":
        time.sleep(0.002)


PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


@contextlib.contextmanager
def debugger(pid):
    """Stops all threads of a process, as gdb does."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def ptrace(request, thread):
        if libc.ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    held = set()
    while new := {int(name) for name in os.listdir("/proc/%d/task" % pid)} - held:
        for thread in new:
            try:
                ptrace(PTRACE_SEIZE, thread)
                ptrace(PTRACE_INTERRUPT, thread)
                os.waitpid(thread, WALL)
            except PermissionError:
                raise unittest.SkipTest("no process may be traced here")
        held |= new
    try:
        yield
    finally:
        for thread in held:
            ptrace(PTRACE_DETACH, thread)


def described(pid):
    """Describes a process, for messages about processes that should not exist."""
    def read(name):
        try:
            with open("/proc/%d/%s" % (pid, name)) as file:
                return file.read().replace("\0", " ").strip()
        except OSError as error:
            return str(error)
    state, parent = state_and_parent(pid)
    return "pid %d (%s), state %s, child of %s, waits in '%s', threads %s" % (
        pid, read("cmdline") or name_of(pid), state, parent, read("wchan"), " ".join(sorted(listed("/proc/%d/task" % pid))))


def listed(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def alive(pid):
    return state_and_parent(pid)[0] not in "ZX"


def times_waited(pid):
    """How many times the main thread of a process has slept: increases when one timed wait ends and another begins."""
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches:"))


def is_asking(pid, sockets=1):
    """Whether a process is waiting and has this many sockets open."""
    try:
        links = [os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)]
    except OSError:
        return False
    return state_and_parent(pid)[0] == "S" and sum(link.startswith("socket:") for link in links) >= sockets


def rss_anon(pid):
    with open("/proc/%d/status" % pid) as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


SYNTHETIC = """
[dataset]
type = "synthetic"
samples = {samples}
bytes_per_sample = "{bytes}"
fill = "random"
{dataset}
[sampler]
batch_size = {batch}
epochs = {epochs}
[gpu]
device = "host"
{more}
"""


def synthetic(samples=400, bytes="4KiB", batch=8, epochs=2, dataset="", more=""):
    return SYNTHETIC.format(samples=samples, bytes=bytes, batch=batch, epochs=epochs, dataset=dataset, more=more)


def make_photos(folder, count, classes=4, size=(160, 120), seed=1):
    """Small JPEGs that resemble photographs: smooth fields with shapes and some noise. Needs Pillow."""
    from PIL import Image, ImageDraw
    draw_random = random.Random(seed)
    for index in range(count):
        image = Image.new("RGB", (8, 6))
        image.putdata([tuple(draw_random.randrange(256) for _ in range(3)) for _ in range(48)])
        image = image.resize(size, Image.BICUBIC)
        draw = ImageDraw.Draw(image)
        for _ in range(4):
            x, y = draw_random.randrange(size[0]), draw_random.randrange(size[1])
            draw.ellipse([x, y, x + size[0] // 5, y + size[1] // 5], fill=tuple(draw_random.randrange(256) for _ in range(3)))
        place = os.path.join(folder, "class%d" % (index % classes))
        os.makedirs(place, exist_ok=True)
        image.save(os.path.join(place, "%05d.jpg" % index), quality=90)


def main():
    if not os.path.exists(PENSTOCK):
        sys.exit("set PENSTOCK_BIN to the folder that holds penstock")
    run_tests()
