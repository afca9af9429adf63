"""Loader hosts that a real Ray places: the same stream as from local workers, whatever is killed. Skipped where Ray is not installed."""

import itertools
import glob
import random
import time

import penstock
from package import *

try:
    import ray
    from penstock.ray import LoaderHosts
except ImportError:
    print("ray is not installed")
    sys.exit(77)

SEED = int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(1 << 32)))
HOSTS = int(os.environ.get("PENSTOCK_TEST_HOSTS", 2))
KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", 3))
BETWEEN = float(os.environ.get("PENSTOCK_TEST_SECONDS_BETWEEN_KILLS", 1))
CPUS = 8.0  # the number that Ray gets
PATIENCE = 120  # seconds: a busy machine takes long to start an actor's process

LISTENING = """
[loader]
workers = 0
[loader.hosts]
listen = "127.0.0.1:0"
wait = "300s"
%s
"""


def setUpModule():
    global of_ray
    of_ray = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp")  # short: sockets are in it
    os.environ["PATH"] = BIN + os.pathsep + os.environ["PATH"]  # for Ray's workers
    # Otherwise Ray starts a process for each CPU, all with the niceness 15.
    os.environ.update(RAY_prestart_worker_first_driver="0", RAY_enable_worker_prestart="0", RAY_worker_niceness="0")
    for attempt in range(4):
        try:
            return ray.init(num_cpus=int(CPUS), object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False,
                            logging_level="error", _temp_dir=of_ray.name)
        except Exception:  # a busy machine takes longer than the 30 s that Ray waits for its own processes
            ray.shutdown()
            if attempt == 3:
                raise


def tearDownModule():
    ray.shutdown()
    of_ray.cleanup()


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


class RayTest(PackageTest):
    def tearDown(self):
        self.doCleanups()
        self.no_hosts_left()
        self.wait_until(lambda: ray.available_resources().get("CPU") == CPUS, lambda: "Ray has its CPUs back: %s" % ray.available_resources())
        super().tearDown()

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

    def test_the_stream_is_the_local_one_though_actors_and_hosts_are_killed_and_ray_replaces_them(self):
        print("PENSTOCK_TEST_SEED=%d" % SEED, flush=True)
        draw = random.Random(SEED)
        samples = int(KILLS * BETWEEN * HOSTS * 200 + 1000)  # lasts about as long as the kills
        restarts = '[loader.restart.intensity]\nmax = 1000\n[loader.restart.backoff]\nmax = "200ms"\n'
        process = self.begin(samples, more=restarts)
        killed, actors = [], set()
        with LoaderHosts(hosts=HOSTS, cpus_per_host=1, join=self.address, insecure=True) as hosts:
            names = ["ray-%d" % n for n in range(HOSTS)]
            self.assertEqual(hosts.names, names)
            self.wait_until(lambda: self.joined() == names, "all hosts have joined", seconds=PATIENCE)
            while len(killed) < KILLS and process.poll() is None:
                time.sleep(BETWEEN)
                here = self.hosts_here()
                if not here:
                    continue
                name = draw.choice(sorted(here))
                parent = state_and_parent(here[name])[1]
                how = draw.choice(["host", "actor", "ray"]) if killed else "actor"
                killed.append(how)
                actors.add(parent)
                if how == "ray":
                    ray.kill(next(each.actor for each in hosts._hosts if each.name == name), no_restart=False)
                elif parent > 1:
                    signal_process(here[name] if how == "host" else parent, signal.SIGKILL)
            if process.poll() is None:
                self.wait_until(lambda: self.joined() == names or process.poll() is not None, "all have been replaced", seconds=PATIENCE)
            report = self.finished(process, samples, timeout=100 + 10 * KILLS)
            self.assertEqual(hosts.failures, {})
        print("killed:", " ".join(killed), "in", report["totals"]["seconds"] if "seconds" in report["totals"] else "", flush=True)
        self.assertGreaterEqual(len(killed), KILLS / 2)
        self.assertEqual({death["sample"] for death in report["workers"]["deaths"] if death["cause"] == "host"} - {None}, set())

    def test_hosts_are_added_and_leave_without_losing_a_batch_and_the_secret_is_in_no_file_or_command(self):
        code, secret, _ = self.penstock("secret")
        path = self.write("secret", secret)
        os.chmod(path, 0o600)
        process = self.begin(3000, 'secret_file = "%s"' % path)
        hosts = self.hosts(1, 2, secret_file=path, workers=1)
        self.wait_until(lambda: self.joined() == ["ray-0"], "it has joined", seconds=PATIENCE)
        hosts.scale(3)
        self.wait_until(lambda: self.joined() == ["ray-0", "ray-1", "ray-2"], "they have joined", seconds=PATIENCE)
        commands = [word for pid in all_pids() for word in command_of(pid)]
        self.assertEqual([word for word in commands if secret.strip() in word], [])
        hosts.scale(1)
        self.assertEqual(hosts.names, ["ray-0"])
        self.assertEqual(list(self.hosts_here()), ["ray-0"])
        hosts.scale(2)
        self.wait_until(lambda: self.joined() == ["ray-0", "ray-3"], "another one has joined", seconds=PATIENCE)
        with hosts:
            report = self.finished(process, 3000)
            self.wait_until(lambda: not hosts.names, "they end with the session")
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.assertEqual(hosts.failures, {})
        for file in glob.glob(os.path.join(of_ray.name, "**"), recursive=True):
            if os.path.isfile(file):
                with open(file, "rb") as opened:
                    self.assertNotIn(secret.strip().encode(), opened.read(), file)

    def test_a_refused_host_says_why_and_one_without_room_waits(self):
        process = self.begin(400)
        data = self.write("elsewhere/file", "")
        refused = self.hosts(1, 1, insecure=True, data={"/nowhere": os.path.dirname(data)})
        self.wait_until(lambda: refused.failures or self.joined(), "it is refused, or needs no data", seconds=PATIENCE)
        refused.stop()
        with self.assertRaisesRegex(penstock.usage_error, "secret_file"):
            self.hosts(1, 1)
        with self.hosts(1, 10 * CPUS, insecure=True) as waiting:
            self.assertEqual(waiting.names, ["ray-0"])
        with self.hosts(1, 1, insecure=True):
            self.finished(process, 400)


if __name__ == "__main__":
    main()
