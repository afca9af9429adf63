"""Loader hosts that a real Ray places: the same stream as from local workers, whatever is killed. Skipped where Ray is not installed."""

import contextlib
import glob
import random
import time

import penstock
from ray_case import *

SEED = int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(1 << 32)))
HOSTS = int(os.environ.get("PENSTOCK_TEST_HOSTS", 2))
KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", 3))
BETWEEN = float(os.environ.get("PENSTOCK_TEST_SECONDS_BETWEEN_KILLS", 1))
CPUS = 8.0  # how many Ray may use


def setUpModule():
    global of_ray
    of_ray = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp")  # short, because it contains sockets of Ray's workers
    os.environ["PATH"] = BIN + os.pathsep + os.environ["PATH"]  # for Ray's workers
    os.environ.update(QUICK)
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


class RayTest(RayCase):
    def setUp(self):
        self.addCleanup(self.ray_has_its_cpus_back)  # the last of all cleanups
        super().setUp()

    def ray_has_its_cpus_back(self):
        self.wait_until(lambda: ray.available_resources().get("CPU") == CPUS, lambda: "Ray has its CPUs back: %s" % ray.available_resources())

    def test_the_stream_matches_a_local_one_while_actors_and_hosts_are_killed_and_ray_replaces_them(self):
        print("PENSTOCK_TEST_SEED=%d" % SEED, flush=True)
        draw = random.Random(SEED)
        samples = int(KILLS * BETWEEN * HOSTS * 200 + 1000)  # a stream that lasts about as long as the kills
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

    @contextlib.contextmanager
    def paused(self):
        """A stream that does not end while hosts start, however long that takes."""
        self.assertEqual(self.penstock("pause", "--session", "h")[0], EXIT_OK)
        yield
        self.assertEqual(self.penstock("resume", "--session", "h")[0], EXIT_OK)

    def test_hosts_come_and_leave_without_losing_a_batch_and_the_secret_is_in_no_file_or_command(self):
        code, secret, _ = self.penstock("secret")
        path = self.write("secret", secret)
        os.chmod(path, 0o600)
        process = self.begin(3000, 'secret_file = "%s"' % path)
        hosts = self.hosts(1, 2, secret_file=path, workers=1)
        self.wait_until(lambda: self.joined() == ["ray-0"], "it has joined", seconds=PATIENCE)
        with self.paused():
            hosts.scale(3)
            self.wait_until(lambda: self.joined() == ["ray-0", "ray-1", "ray-2"], "they have joined", seconds=PATIENCE)
        commands = [word for pid in all_pids() for word in command_of(pid)]
        self.assertEqual([word for word in commands if secret.strip() in word], [])
        hosts.scale(1)
        self.assertEqual(hosts.names, ["ray-0"])
        self.assertEqual(list(self.hosts_here()), ["ray-0"])
        with self.paused():
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

    def test_a_refused_host_says_why_and_a_host_without_room_waits(self):
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
