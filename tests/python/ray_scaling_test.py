"""Loader hosts on a Ray cluster that grows, shrinks and loses machines: Ray's autoscaler with simulated machines. Skipped without Ray."""

from ray_case import *

CPUS_OF_A_MACHINE = 2
MOST_MACHINES = 5
IDLE = 6  # seconds, until the autoscaler removes a machine


def config_of(address):
    """A cluster whose head has no room for a host, and whose machines are started on demand."""
    provider = {"type": "fake_multinode", "gcs_address": address, "launch_multiple": True, "use_node_id_as_ip": True,
                "disable_node_updaters": True, "disable_launch_config_check": True}
    machine = {"resources": {"CPU": CPUS_OF_A_MACHINE, "object_store_memory": 100 << 20}, "node_config": {}, "min_workers": 0, "max_workers": MOST_MACHINES}
    lists = ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands", "head_start_ray_commands",
             "worker_start_ray_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter")
    return {"cluster_name": "hosts", "provider": provider, "max_workers": MOST_MACHINES, "upscaling_speed": 1.0, "idle_timeout_minutes": IDLE / 60,
            "available_node_types": {"ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0}, "machine": machine},
            "head_node_type": "ray.head.default", "auth": {}, "docker": {}, "file_mounts": {}, "file_mounts_sync_continuously": False,
            **{name: [] for name in lists}}


def setUpModule():
    global cluster, of_ray
    of_ray = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)  # short: contains sockets of Ray's workers
    os.environ["PATH"] = BIN + os.pathsep + os.environ["PATH"]  # for Ray's workers
    os.environ.update(QUICK, RAY_TMPDIR=of_ray.name)
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    address = "%s:%d" % (ray.util.get_node_ip_address(), port)
    config = os.path.join(of_ray.name, "config.json")
    with open(config, "w") as file:
        json.dump(config_of(address), file)
    # In a separate session, because `ray stop` would end every Ray of this machine.
    with open(os.path.join(of_ray.name, "log"), "wb") as log:
        cluster = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port=%d" % port, "--num-cpus=1", "--include-dashboard=False",
             "--object-store-memory=%d" % (100 << 20), "--temp-dir=" + of_ray.name, "--autoscaling-config=" + config, "--disable-usage-stats"],
            stdout=log, stderr=log, start_new_session=True,
            env=dict(os.environ, RAY_FAKE_CLUSTER="1", AUTOSCALER_UPDATE_INTERVAL_S="1", AUTOSCALER_HEARTBEAT_TIMEOUT_S="5"))
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return ray.init(address, log_to_driver=False, logging_level="error")
        except ConnectionError:
            if cluster.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.5)


def tearDownModule():
    ray.shutdown()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.killpg(cluster.pid, signal.SIGKILL)
    cluster.wait()
    of_ray.cleanup()


class RayScalingTest(RayCase):
    def machines(self):
        """The machines that the autoscaler has started, by the pids of their raylets."""
        alive = {node["RayletSocketName"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU") == CPUS_OF_A_MACHINE}
        commands = {pid: " ".join(command_of(pid)) for pid in all_pids()}
        return {pid for pid, command in commands.items() for one in alive if "/raylet/raylet " in command and one in command.split("--raylet_socket_name=")[1].split()}

    def has_machines(self, count):
        self.wait_until(lambda: len(self.machines()) == count, lambda: "%d machines: %s" % (count, ray.nodes()), seconds=PATIENCE)

    def have_joined(self, *names):
        self.wait_until(lambda: self.joined() == sorted(names), lambda: "%s: %s" % (names, self.joined()), seconds=PATIENCE)

    def test_hosts_wait_for_machines_and_get_more_of_them_and_survive_the_loss_of_one_and_give_them_back(self):
        process = self.begin(10**6)
        self.assertEqual(self.machines(), set())
        with LoaderHosts(2, CPUS_OF_A_MACHINE, self.address, insecure=True, workers=1) as hosts:
            self.assertEqual(hosts.names, ["ray-0", "ray-1"])  # they wait
            self.have_joined("ray-0", "ray-1")
            self.has_machines(2)
            hosts.scale(3)
            self.have_joined("ray-0", "ray-1", "ray-2")
            self.has_machines(3)
            before = self.machines()
            signal_process(min(before), signal.SIGKILL)  # with the processes that run there
            self.wait_until(lambda: len(self.joined()) < 3, "its host is lost", seconds=PATIENCE)
            self.have_joined("ray-0", "ray-1", "ray-2")
            self.assertEqual(len(self.machines() - before), 1)
            hosts.scale(2)
            self.have_joined("ray-0", "ray-1")
            self.has_machines(2)
            self.assertEqual(hosts.failures, {})
        self.has_machines(0)
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        process.communicate(timeout=30)

    def test_hosts_that_got_no_machine_are_given_up_at_once(self):
        process = self.begin(10**6)
        hosts = LoaderHosts(1, 10 * CPUS_OF_A_MACHINE, self.address, insecure=True)
        self.assertEqual(hosts.names, ["ray-0"])
        since = time.monotonic()
        hosts.stop()
        self.assertLess(time.monotonic() - since, 20)
        self.assertEqual((hosts.names, self.machines()), ([], set()))
        self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
        process.communicate(timeout=30)


if __name__ == "__main__":
    main()
