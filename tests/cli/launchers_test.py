"""Sessions under other launchers: the real mpirun and torchrun. The variables that each launcher sets decide the rank."""

from harness import *

import re
import shlex
import shutil

TORCHRUN = shutil.which("torchrun")
MPIRUN = shutil.which("mpirun")
SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
RANKS = 4


class LauncherTest(PenstockTest):
    def setUp(self):
        super().setUp()
        # mpirun refuses root, looks for ssh even on one host, and requires a core for each rank. Open MPI 5 spells that option differently.
        self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_plm="isolated", OMPI_MCA_rmaps_base_oversubscribe="1",
                                PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",
                                OMPI_MCA_orte_tmpdir_base=self.folder, TMPDIR=self.folder)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PENSTOCK_GROUP", "PENSTOCK_GROUP_ADDR"):
            self.environment.pop(name, None)


class RealLaunchersTest(LauncherTest):
    def stream(self, samples=200, wait="0s"):
        return self.write("stream.toml", synthetic(samples, "64B", 10, 2, dataset='wait = "%s"' % wait,
                                                   more="[loader]\nworkers = 1\n"))

    def launch(self, launcher, config, *options):
        """Each rank writes report.RANK, where the launcher's own variable gives RANK."""
        rank = {"mpirun": "OMPI_COMM_WORLD_RANK", "torchrun": "RANK"}[launcher]
        script = ('exec "$0" run "$@" --digest --quiet --set sampler.rank=auto --set gpu.device=host '
                  '--report "$PENSTOCK_TEST_FOLDER/report.$%s"' % rank)
        command = {"mpirun": [MPIRUN, "-n", str(RANKS)],
                   # torch 1.13's default, no redirection, fails under Python 3.11: the enum has no 0.
                   "torchrun": [TORCHRUN, *self.torchrun_alone(), "--nproc_per_node", str(RANKS), "-r", "1", "-t", "1",
                                "--no_python"]}[launcher]
        process = subprocess.Popen(
            [*command, "sh", "-c", script, PENSTOCK, config, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(self.environment, PENSTOCK_TEST_FOLDER=self.folder), cwd=self.folder)
        self._running.append(process)
        return process

    def report(self, rank):
        with open(os.path.join(self.folder, "report.%d" % rank)) as file:
            return json.load(file)

    def sessions(self, process):
        """The processes of `penstock run` below a launcher."""
        return [pid for pid in descendants_of(process.pid) if name_of(pid) == "penstock" and alive(pid)]

    def wait_for_sessions(self, process):
        def delivering():
            code, out, _ = self.penstock("sessions", "--json")
            live = json.loads(out)["sessions"] if code == EXIT_OK else []
            return len(live) == RANKS and all(session["samples_delivered"] for session in live)
        self.wait_until(delivering, "all ranks deliver", seconds=60)
        return self.sessions(process)

    def check_end(self, process, below):
        process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.wait_until(lambda: not any(alive(pid) for pid in below), "nothing is left")

    def run_whole(self, launcher):
        config = self.stream()
        process = self.launch(launcher, config)
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, err + out)
        for rank in range(RANKS):
            report = self.report(rank)
            self.assertEqual((report["rank"], report["world_size"], report["outcome"]), (rank, RANKS, "finished"))
            alone = self.digests(config, "--set", "sampler.rank=%d" % rank, "--set", "sampler.world_size=%d" % RANKS)
            self.assertEqual([epoch["digest"] for epoch in report["epochs"]], alone)

    def lose_one(self, launcher):
        process = self.launch(launcher, self.stream(4000, "10ms"))
        sessions = self.wait_for_sessions(process)
        below = [pid for session in sessions for pid in [session, *descendants_of(session)]]
        signal_process(sessions[1], signal.SIGKILL)
        self.check_end(process, below)

    def stop(self, launcher):
        process = self.launch(launcher, self.stream(4000, "10ms"))
        sessions = self.wait_for_sessions(process)
        below = [pid for session in sessions for pid in [session, *descendants_of(session)]]
        process.terminate()
        self.check_end(process, below)

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_each_rank_of_mpirun_delivers_its_part(self):
        self.run_whole("mpirun")

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_mpirun_inside_a_slurm_allocation_still_gives_each_rank_its_part(self):
        self.environment.update(SLURM_PROCID="0", SLURM_NTASKS="1", SLURM_LOCALID="0", SLURM_JOB_ID="7",
                                OMPI_MCA_ras="^slurm", OMPI_MCA_ess="^slurm", OMPI_MCA_schizo="^slurm")
        self.run_whole("mpirun")

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_when_one_session_is_killed_mpirun_ends_all_of_them_and_leaves_no_process(self):
        self.lose_one("mpirun")

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_mpirun_leaves_no_process_when_it_is_stopped(self):
        self.stop("mpirun")

    @unittest.skipUnless(TORCHRUN, "there is no torchrun (apt: python3-torch)")
    def test_each_rank_of_torchrun_delivers_its_part(self):
        self.need_torchrun()
        self.run_whole("torchrun")

    @unittest.skipUnless(TORCHRUN, "there is no torchrun (apt: python3-torch)")
    def test_when_one_session_is_killed_torchrun_ends_all_of_them_and_leaves_no_process(self):
        self.need_torchrun()
        self.lose_one("torchrun")


class JobFilesTest(LauncherTest):
    """examples/launchers"""

    FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples", "launchers")

    def scripts(self):
        return [os.path.join(self.FOLDER, name) for name in sorted(os.listdir(self.FOLDER)) if not name.endswith(".yaml")]

    def test_a_shell_can_parse_the_scripts(self):
        self.assertEqual(len(self.scripts()), 8)
        for path in self.scripts():
            self.assertTrue(os.access(path, os.X_OK), path)
            done = subprocess.run(["bash", "-n", path], stderr=subprocess.PIPE, env=self.environment)
            self.assertEqual(done.stderr, b"", path)
            if shutil.which("shellcheck"):
                done = subprocess.run(["shellcheck", "-S", "warning", path], stdout=subprocess.PIPE)
                self.assertEqual(done.returncode, 0, done.stdout.decode())

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_the_script_for_mpirun_starts_a_session_for_each_rank(self):
        config = self.write("photos.toml", synthetic(100, "64B", 10, 1, more="[loader]\nworkers = 1\n"))
        bin_folder = os.path.join(self.folder, "bin")
        os.mkdir(bin_folder)
        # Without GPUs: the sessions run on the host device whatever the script says.
        self.write("bin/penstock", '#!/bin/sh\ncase $1 in run) set -- "$@" --device host;; esac\nexec "%s" "$@"\n' % PENSTOCK)
        os.chmod(os.path.join(bin_folder, "penstock"), 0o755)
        done = subprocess.run([os.path.join(self.FOLDER, "photos-mpirun.sh"), "2"], cwd=os.path.dirname(config),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                              env=dict(self.environment, PATH=bin_folder + ":" + os.environ["PATH"]))
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        delivered = []
        for rank in range(2):
            with open(os.path.join(self.folder, "reports", "rank%d.json" % rank)) as file:
                delivered.append(json.load(file)["epochs"][0]["delivered"])
        self.assertEqual(delivered, [50, 50])

    def test_the_job_for_kubernetes_gives_each_pod_what_a_session_needs(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("there is no python3-yaml")
        with open(os.path.join(self.FOLDER, "photos-kubernetes.yaml")) as file:
            service, job = yaml.safe_load_all(file)
        self.assertEqual((service["kind"], job["kind"]), ("Service", "Job"))
        spec = job["spec"]
        pod = spec["template"]["spec"]
        container, = pod["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(variables["WORLD_SIZE"], str(spec["completions"]))
        self.assertEqual(spec["parallelism"], spec["completions"])
        self.assertEqual(variables["MASTER_ADDR"], "%s-0.%s" % (job["metadata"]["name"], pod["subdomain"]))
        self.assertEqual(service["metadata"]["name"], pod["subdomain"])
        # A pod's session, with the variables that it would have; on one host, without the network.
        config = self.write("photos.toml", synthetic(100, "64B", 10, 1, more="[loader]\nworkers = 1\n"))
        words = [config if word.startswith("/data/") else word for word in container["command"][1:]]
        place = dict(self.environment, JOB_COMPLETION_INDEX="3", WORLD_SIZE=variables["WORLD_SIZE"])
        code, out, err = self.penstock(*words, "--quiet", "--set", "group.join=never", env=place)
        self.assertEqual(code, EXIT_OK, out + err)
        report = json.loads(out)
        self.assertEqual((report["rank"], report["world_size"]), (3, 4))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def accepts(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class HostFilesTest(LauncherTest):
    """The files of examples/launchers that start loader hosts."""

    FOLDER = JobFilesTest.FOLDER
    SAMPLES = 3000  # with two workers: 6 s

    def setUp(self):
        super().setUp()
        self.photos = self.write("photos.toml", synthetic(self.SAMPLES, "64B", 10, 1, dataset='wait = "4ms"', more="[loader]\nworkers = 0\n"))
        self.port = free_port()
        _, secret, _ = self.penstock("secret")
        self.secret = self.write("hosts.secret", secret)
        os.chmod(self.secret, 0o600)
        # Without GPUs.
        path = self.write("bin/penstock", '''#!/bin/sh
case $1 in run) set -- "$@" --device host --digest;;  esac
exec "%s" "$@"
''' % PENSTOCK)
        os.chmod(path, 0o755)
        self.environment["PATH"] = os.path.dirname(path) + ":" + self.environment["PATH"]

    def session(self):
        """A session that lasts long enough to lose all of its hosts in the meantime."""
        return self.start("run", self.photos, "--device", "host", "--digest", "--json", "--quiet", "--set", "dataset.wait=12ms", "--workers", 2,
                          "--set", "loader.hosts.listen=127.0.0.1:%d" % self.port, "--set", "loader.hosts.secret_file=" + self.secret)

    def script(self, name, *arguments, **variables):
        with open(os.path.join(self.folder, "said"), "ab") as said:  # no pipe: what a killed script has started may live a little longer
            process = subprocess.Popen([os.path.join(self.FOLDER, name), *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=said,
                                       stderr=said, env=dict(self.environment, **variables))
        self._running.append(process)
        return process

    def hosts(self):
        code, out, _ = self.penstock("status", "--json", "--session", "photos")
        return json.loads(out)["hosts"] if code == EXIT_OK else []

    def check(self, report):
        self.assertEqual((report["outcome"], report["totals"]["samples"], report["workers"]["ended_unexpectedly"]), ("finished", self.SAMPLES, 0))
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], self.digests(self.photos, "--workers", 2))

    def finished(self, session):
        out, err = session.communicate(timeout=100)
        self.assertEqual(session.returncode, EXIT_OK, err.decode() + out.decode())
        self.check(json.loads(out))

    def ends(self, process):
        code = process.wait(timeout=60)
        self.assertEqual(code, 0, self.said())

    def said(self):
        with open(os.path.join(self.folder, "said"), "a+") as said:
            said.seek(0)
            return said.read()

    def check_ssh(self, ssh):
        """Two hosts started over ssh leave when the script is killed; a host started later ends with the session."""
        self.fake_ssh(ssh)
        start = lambda *machines: self.script("hosts-ssh.sh", "127.0.0.1:%d" % self.port, self.secret, *machines)
        session = self.session()
        killed = start("127.0.0.1", "localhost")
        self.wait_until(lambda: len(self.hosts()) == 2, lambda: "two hosts: " + self.said(), seconds=60)
        with open(self.secret) as file:
            secret = file.read().strip()
        self.assertEqual([pid for pid in all_pids() if secret in described(pid)], [])
        killed.kill()
        killed.wait()
        self.wait_until(lambda: not self.hosts(), "they have left", seconds=30)
        self.assertIsNone(session.poll())
        last = start("127.0.0.1")
        self.finished(session)
        self.ends(last)

    HERE = '#!/bin/bash\nexec sh -c "${@: -1}"\n'  # what ssh does, on this machine

    def fake_ssh(self, text):
        os.chmod(self.write("bin/ssh", text), 0o755)

    def test_the_script_for_ssh_starts_hosts_that_leave_when_it_ends(self):
        self.check_ssh(self.HERE)

    def by_ssh(self, *arguments, secret=True):
        secret = ("--secret-file", self.secret) if secret else ()
        return self.start("host", "--on", "one", "--join", "127.0.0.1:%d" % self.port, *secret, *arguments)

    def test_hosts_started_by_ssh_leave_at_sigterm_and_the_session_continues(self):
        self.fake_ssh(self.HERE)
        session = self.session()
        hosts = self.by_ssh("--on", "two", "--workers", "2", "--json")
        self.wait_until(lambda: sorted(len(host["workers"]) for host in self.hosts()) == [2, 2], lambda: self.hosts(), seconds=60)
        last = self.by_ssh("--workers", "1")
        self.wait_until(lambda: len(self.hosts()) == 3, "a third one", seconds=60)
        hosts.terminate()
        out, err = hosts.communicate(timeout=60)
        self.assertEqual(hosts.returncode, EXIT_OK, err.decode())
        self.assertEqual(json.loads(out), {"schema": "penstock.host/1", "outcome": "left", "exit": 0})
        self.finished(session)
        self.assertEqual(last.wait(timeout=60), EXIT_OK)

    def test_arguments_of_a_host_started_by_ssh_arrive_unchanged(self):
        self.fake_ssh(self.HERE)
        told = os.path.join(self.folder, "told")
        os.chmod(self.write("bin/other", '#!/bin/sh\nfor word; do printf "%%s\\n" "$word"; done >"%s"\ncat /proc/self/fd/4 >>"%s"\n' % (told, told)), 0o755)
        done = self.by_ssh("--command", "env A=b other", "--data", "/it's $HOME=/a b", "--name", 'n"1')
        self.assertEqual(done.wait(timeout=60), EXIT_OK)
        with open(told) as file, open(self.secret) as secret:
            words = ["host", "--join", "127.0.0.1:%d" % self.port, "--workers", "auto", "--name", 'n"1', "--data", "/it's $HOME=/a b",
                     "--secret-file", "/proc/self/fd/4"]
            self.assertEqual(file.read().splitlines(), words + [secret.read().strip()])

    def test_hosts_that_ssh_cannot_start_are_named(self):
        self.fake_ssh("#!/bin/sh\necho 'no route to it' >&2\nexit 255\n")
        code, _, err = self.penstock("host", "--on", "me@far", "--join", "a:1", "--secret-file", self.secret)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("no route to it", err)
        self.assertIn("me@far: ssh failed; try `ssh -o BatchMode=yes me@far true`", err)
        self.fake_ssh("#!/bin/sh\nexit 78\n")
        code, _, err = self.penstock("host", "--on", "me@far", "--join", "a:1", "--secret-file", self.secret)
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("me@far: the host ended with exit 78", err)
        self.assertEqual(self.penstock("host", "--on", "far", "--join", "a:1")[0], EXIT_CONFIG)
        self.assertEqual(self.penstock("host", "--on", "far", "--listen", "a:1")[0], EXIT_USAGE)
        self.assertEqual(self.penstock("host", "--command", "x", "--join", "a:1")[0], EXIT_USAGE)

    @unittest.skipUnless(SSHD and os.geteuid() == 0, "there is no sshd (apt: openssh-server), or we are not root")
    def test_the_script_for_ssh_starts_hosts_with_a_real_sshd(self):
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.folder, key)], check=True)
        os.chmod(self.folder, 0o700)
        os.makedirs("/run/sshd", exist_ok=True)  # sshd requires it
        port = free_port()
        config = self.write("sshd_config", "Port %d\nListenAddress 127.0.0.1\nHostKey %s/host_key\nAuthorizedKeysFile %s/user_key.pub\n"
                            "StrictModes no\nPidFile none\nSetEnv PATH=%s XDG_RUNTIME_DIR=%s\n"
                            % (port, self.folder, self.folder, self.environment["PATH"], self.folder))
        daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._running.append(daemon)
        ssh = [shutil.which("ssh"), "-p", str(port), "-i", self.folder + "/user_key", "-o", "StrictHostKeyChecking=no",
               "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"]
        self.wait_until(lambda: accepts(port) or daemon.poll() is not None, "sshd listens")
        login = subprocess.run([*ssh, "127.0.0.1", "true"], stderr=subprocess.PIPE, timeout=60)
        if login.returncode != 0:
            self.skipTest("this sshd does not let root log in: " + login.stderr.decode())
        self.check_ssh("#!/bin/sh\nexec %s \"$@\"\n" % shlex.join(ssh))

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_the_script_for_mpirun_starts_a_session_and_its_hosts(self):
        self.ends(self.script("photos-hosts-mpirun.sh", "127.0.0.1:%d" % self.port))
        with open(os.path.join(self.folder, "report.json")) as file:
            self.check(json.load(file))

    def test_the_pods_of_kubernetes_have_what_a_session_and_its_hosts_need(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("there is no python3-yaml")
        with open(os.path.join(self.FOLDER, "photos-hosts-kubernetes.yaml")) as file:
            service, job, deployment = yaml.safe_load_all(file)
        self.assertEqual((service["kind"], job["kind"], deployment["kind"]), ("Service", "Job", "Deployment"))
        pods = [each["spec"]["template"]["spec"] for each in (job, deployment)]
        containers = [pod["containers"][0] for pod in pods]
        where = "%s-0.%s:7077" % (job["metadata"]["name"], service["metadata"]["name"])
        self.assertIn(where, containers[1]["command"])
        self.assertEqual(deployment["spec"]["selector"]["matchLabels"], deployment["spec"]["template"]["metadata"]["labels"])
        for pod in pods:
            self.assertEqual([each["secret"]["defaultMode"] for each in pod["volumes"] if "secret" in each], [0o400])
        code, out, _ = self.penstock("check-config", self.write("drain.toml", synthetic()), "--print-effective", "--json")
        drain = re.search(r'drain = "(\d+)s"', json.loads(out)["effective"])
        self.assertGreater(pods[1]["terminationGracePeriodSeconds"], int(drain[1]) if drain else 25)
        # The containers' commands, on this machine.
        local = {"/data/photos.toml": self.photos, "/secrets/secret": self.secret, "/data/": self.folder + "/", where: "127.0.0.1:%d" % self.port,
                 "0.0.0.0:7077": "127.0.0.1:%d" % self.port}
        session, host = [self.container(container["command"], local) for container in containers]
        self.wait_until(lambda: self.hosts(), "the host has joined", seconds=60)
        probe = containers[1]["readinessProbe"]["exec"]["command"]
        self.wait_until(lambda: subprocess.run(probe, env=self.environment).returncode == 0, "it is ready")
        host.terminate()
        self.ends(host)
        successor = self.container(containers[1]["command"], local)
        self.finished(session)
        self.ends(successor)

    def container(self, command, local):
        words = command[1:] + (["--quiet"] if command[1] == "run" else [])
        for theirs, ours in local.items():
            words = ["2" if word == "16" else word.replace(theirs, ours) for word in words]
        process = subprocess.Popen([os.path.join(self.folder, "bin", "penstock"), *words], env=self.environment, cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # these commands print little
        self._running.append(process)
        return process


if __name__ == "__main__":
    main()
