"""Sessions whose loader hosts a real Ray places. Tests that import this are skipped where Ray is not installed."""

from package import *

os.environ["RAY_AUTH_MODE"] = "disabled"  # read once; otherwise Ray leaves a token in the user's home

try:
    import ray
    from penstock.ray import LoaderHosts
except ImportError:
    print("ray is not installed")
    sys.exit(77)

PATIENCE = 120  # seconds: a busy machine takes long to start an actor's process
# By default, Ray starts one process per CPU, all with niceness 15.
QUICK = dict(RAY_prestart_worker_first_driver="0", RAY_enable_worker_prestart="0", RAY_worker_niceness="0")

LISTENING = """
[loader]
workers = 0
[loader.hosts]
listen = "127.0.0.1:0"
wait = "300s"
%s
"""


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


class RayCase(PackageTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.no_hosts_left)  # after a test's own cleanups, but while its programs still run

    def begin(self, samples, hosts="insecure = true", wait="4ms", more=""):
        """Starts a session without local workers; hosts join at self.address."""
        text = synthetic(samples=samples, dataset='wait = "%s"' % wait, epochs=1) + LISTENING % hosts + more
        process = self.start("run", self.write("h.toml", text), "--digest", "--json", "--quiet")
        joins = lambda: process.poll() is not None or self.status().get("hosts_join_at")
        self.address = self.wait_until(joins, "where hosts join", seconds=PATIENCE)
        self.assertIsNone(process.poll(), process.stderr.read().decode() if process.poll() is not None else "")
        return process

    def hosts(self, hosts, cpus, **options):
        made = LoaderHosts(hosts, cpus, self.address, **options)
        self.addCleanup(made.stop)
        return made

    def local_digests(self, samples):
        return self.digests(self.write("local.toml", synthetic(samples=samples, epochs=1)), "--workers", 2)

    def status(self):
        code, out, _ = self.penstock("status", "--json", "--session", "h")
        return json.loads(out) if code == EXIT_OK else {}

    def joined(self):
        return sorted(host["name"] for host in self.status().get("hosts", []))

    def finished(self, process, samples, timeout=100):
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, EXIT_OK, err.decode() + out.decode())
        report = json.loads(out)
        self.check_sums(report)
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], self.local_digests(samples))
        self.assertEqual((report["quarantine"], report["failures"]), ([], []))
        return report

    def hosts_here(self):
        """The processes of `penstock host`, by the names of the hosts."""
        commands = {pid: command_of(pid) for pid in all_pids() if alive(pid)}
        return {command[command.index("--name") + 1]: pid for pid, command in commands.items()
                if command[:2] == [PENSTOCK, "host"] and self.address in command}

    def no_hosts_left(self):
        self.wait_until(lambda: not self.hosts_here(), lambda: "the end of all hosts: %s" % self.hosts_here(), seconds=10)
