"""Sessions under a real Slurm: munged, slurmctld and slurmd of this machine in their own folder. As root, in the soak."""

from harness import *

import re
import shutil
import socket

RANKS = 4
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOBS = os.path.join(TOP, "examples", "launchers")
TRAINING = os.path.join(TOP, "build", "training-venv", "bin")  # made by tools/test-training
PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sinfo", "sbatch", "scancel", "squeue"]
MISSING = [name for name in PROGRAMS if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")]

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=10
GresTypes=gpu
SchedulerParameters=bf_interval=1,sched_interval=5
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=64 Gres=gpu:4 State=UNKNOWN
{more_nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@unittest.skipUnless(os.geteuid() == 0, "slurmd has to be root")
@unittest.skipIf(MISSING, "there is no %s (apt: slurmctld slurmd slurm-client munge)" % ", ".join(MISSING))
class RealSlurm(PenstockTest):
    MORE_NODES = ()  # names of more nodes on this machine

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        path = os.environ["PATH"] + ":/usr/sbin"
        self.environment.update(PATH=path, SLURM_CONF=os.path.join(self.folder, "slurm.conf"))
        for name in [name for name in self.environment if name.startswith(("SLURM_P", "SLURM_N", "SLURM_J"))]:
            del self.environment[name]
        host = socket.gethostname().split(".")[0]
        nodes = [host, *self.MORE_NODES]
        for folder in ("state", *("spool-" + node for node in nodes)):
            os.mkdir(os.path.join(self.folder, folder))
        more = "\n".join("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=64 State=UNKNOWN" % (node, host, free_port())
                         for node in self.MORE_NODES)
        self.write("slurm.conf", CONFIG.format(folder=self.folder, host=host, controller_port=free_port(), node_port=free_port(),
                                               more_nodes=more))
        for number in range(4):
            self.write("gpu%d" % number, "")  # job files ask for GPUs, but no process opens these
        self.write("gres.conf", "Name=gpu File=%s/gpu[0-3]\n" % self.folder)
        key = self.write("munge.key", "k" * 1024)
        os.chmod(key, 0o400)
        self.daemon("munged", "--foreground", "--force", "--key-file", key, "--socket", self.folder + "/munge.socket",
                    "--pid-file", self.folder + "/munged.pid", "--log-file", self.folder + "/munged.log",
                    "--seed-file", self.folder + "/munged.seed")
        self.wait_until(lambda: os.path.exists(self.folder + "/munge.socket"), "munged listens")
        self.daemon("slurmctld", "-D", "-c")
        for node in nodes:
            self.daemon("slurmd", "-D", "-N", node)
        self.wait_until(lambda: self.slurm("sinfo", "-h", "-N", "-o", "%t").stdout.decode().split() == ["idle"] * len(nodes),
                        "the nodes are idle", seconds=60)

    def tearDown(self):
        for process in reversed(self._running):  # in reverse order: none may restart what another one needs
            if process.poll() is None:
                process.terminate()
                try:
                    process.communicate(timeout=20)
                except subprocess.TimeoutExpired:
                    pass
        super().tearDown()

    def daemon(self, *command):
        log = open(os.path.join(self.folder, command[0] + ".out"), "wb")
        self.addCleanup(log.close)
        self._running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                              env=self.environment, cwd=self.folder))

    def slurm(self, *command, timeout=60):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment,
                              cwd=self.folder, timeout=timeout)


class SlurmTest(RealSlurm):
    def stream(self, samples=200, wait="0s"):
        return self.write("stream.toml", synthetic(samples, "64B", 10, 2, dataset='wait = "%s"' % wait,
                                                   more="[loader]\nworkers = 1\n"))

    def srun(self, config):
        script = ('exec "$0" run "$@" --digest --quiet --set sampler.rank=auto --report "%s/report.$SLURM_PROCID"' % self.folder)
        process = subprocess.Popen(["srun", "-n", str(RANKS), "--overcommit", "--kill-on-bad-exit=1", "sh", "-c", script, PENSTOCK, config],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment, cwd=self.folder)
        self._running.append(process)
        return process

    def sessions(self):
        """The pids of this test's sessions, whose control sockets are in its folder."""
        code, out, _ = self.penstock("sessions", "--json")
        live = json.loads(out)["sessions"] if code == EXIT_OK else []
        return [session["pid"] for session in live if session["samples_delivered"]]

    def start_slow(self):
        process = self.srun(self.stream(4000, "10ms"))
        self.wait_until(lambda: len(self.sessions()) == RANKS, "all ranks deliver", seconds=60)
        below = [pid for session in self.sessions() for pid in [session, *descendants_of(session)]]
        return process, below

    def check_end(self, process, below):
        out, _ = process.communicate(timeout=90)
        self.assertNotEqual(process.returncode, 0, out)
        self.wait_until(lambda: not any(alive(pid) for pid in below), "nothing is left", seconds=40)

    def test_each_task_of_srun_delivers_its_part(self):
        config = self.stream()
        process = self.srun(config)
        out, _ = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, out)
        for rank in range(RANKS):
            with open(os.path.join(self.folder, "report.%d" % rank)) as file:
                report = json.load(file)
            self.assertEqual((report["rank"], report["world_size"]), (rank, RANKS))
            alone = self.digests(config, "--set", "sampler.rank=%d" % rank, "--set", "sampler.world_size=%d" % RANKS)
            self.assertEqual([epoch["digest"] for epoch in report["epochs"]], alone)

    def test_a_run_in_a_batch_script_is_alone_however_many_tasks_the_job_has(self):
        report = os.path.join(self.folder, "report")
        script = self.write("job.sh", "#!/bin/sh\nexec '%s' run '%s' --quiet --report '%s'\n" % (PENSTOCK, self.stream(), report))
        done = self.slurm("sbatch", "--wait", "--ntasks", str(RANKS), "--overcommit", "--output", "job.out", script, timeout=100)
        with open(os.path.join(self.folder, "job.out")) as file:
            self.assertEqual(done.returncode, 0, (done.stdout, file.read()))
        with open(report) as file:
            report = json.load(file)
        self.assertNotIn("group", report)
        self.assertEqual(report["outcome"], "finished")

    def test_when_a_task_is_killed_the_step_ends_and_no_process_is_left(self):
        process, below = self.start_slow()
        signal_process(below[0], signal.SIGKILL)
        self.check_end(process, below)

    def test_a_cancelled_job_leaves_no_process_behind(self):
        process, below = self.start_slow()
        job = self.slurm("squeue", "-h", "-o", "%i").stdout.decode().split()
        self.slurm("scancel", *job)
        self.check_end(process, below)


class JobFile(RealSlurm):
    """The job files of examples/launchers, unchanged except for the size and number of nodes. Stand-in programs omit the GPUs."""

    def stand_in(self, name, script):
        self.environment["PATH"] = os.path.join(self.folder, "bin") + ":" + self.environment["PATH"]
        os.chmod(self.write("bin/" + name, "#!/bin/bash\n" + script), 0o755)

    def without_gpus(self):
        self.stand_in("penstock", 'set -- "${@/#all/host:4}"\n[[ $1 == run ]] && set -- "$@" --device host\nexec "%s" "$@"\n' % PENSTOCK)

    def sbatch(self, name, *arguments, options=(), expect=0):
        """Waits for the job; returns its output."""
        done = self.slurm("sbatch", "--wait", "--nodes=1", *options, "--output", "job.out", os.path.join(JOBS, name), *arguments, timeout=240)
        with open(os.path.join(self.folder, "job.out")) as file:
            said = file.read()
        self.assertEqual(done.returncode, expect, (done.stdout, said))
        return said

    def photos(self, wait):
        return self.write("photos.toml", synthetic(2000, "64B", 10, 2, dataset='wait = "%s"' % wait, more="[loader]\nworkers = 1\n"))


class JobFilesTest(JobFile):
    def reports(self):
        for rank in range(4):
            with open(os.path.join(self.folder, "reports", "rank%d.json" % rank)) as file:
                yield json.load(file)

    def test_the_job_file_for_sessions_continues_where_its_time_limit_stopped_it(self):
        self.without_gpus()
        self.photos("100ms")
        # Slurm may send the signal up to a minute early. In this one-minute job it can arrive soon after the start.
        self.sbatch("photos.sbatch", options=("--time=1", "--signal=TERM@50"), expect=143)
        before = list(self.reports())
        self.assertEqual({(report["world_size"], report["outcome"]) for report in before}, {(4, "stopped")})
        self.photos("0s")
        self.sbatch("photos.sbatch")
        after = list(self.reports())
        self.assertEqual({(report["world_size"], report["outcome"]) for report in after}, {(4, "finished")})
        self.assertTrue(all(report["totals"]["samples"] for report in before))
        self.assertEqual(sum(report["totals"]["samples"] for report in before + after), 2 * 2000)

    def test_the_job_file_for_one_node_starts_a_session_for_each_gpu(self):
        self.without_gpus()
        self.photos("0s")
        self.sbatch("photos-one-node.sbatch")
        with open(os.path.join(self.folder, "report.json")) as file:
            report = json.load(file)
        self.assertEqual((report["outcome"], len(report["ranks"])), ("finished", 4))

    @unittest.skipUnless(os.path.exists(os.path.join(TRAINING, "torchrun")), "there is no environment with torch (tools/test-training makes it)")
    def test_the_job_file_for_resnet_trains_with_torchrun(self):
        self.stand_in("penstock", 'exec "%s" "$@"\n' % PENSTOCK)
        self.stand_in("torchrun", 'exec "%s/torchrun" "$@"\n' % TRAINING)
        for folder, seed in (("train", 1), ("val", 2)):
            make_photos(os.path.join(self.folder, "photos", folder), 16, classes=2, size=(40, 36), seed=seed)
        shutil.copy(os.path.join(TOP, "examples", "14_resnet50_imagenet.py"), self.folder)
        self.environment.update(PYTHONPATH=os.path.join(os.path.dirname(BIN), "python"), PENSTOCK_LIBEXEC=BIN, CUDA_VISIBLE_DEVICES="",
                                OMP_NUM_THREADS="1", RANKS_PER_NODE="2", RENDEZVOUS_PORT=str(free_port()))
        said = self.sbatch("resnet50.sbatch", "photos", "--model", "resnet18", "--size", "32", "--batch-size", "4", "--workers", "1", "--epochs", "2")
        self.assertRegex(said, r"epoch 0: loss of the last batch \d+\.\d+, accuracy")
        self.assertEqual(said.count("epoch 1: loss"), 1)


class HostsJobTest(JobFile):
    """photos-hosts.sbatch: the parts of a heterogeneous job run on different nodes."""

    MORE_NODES = ("loaders",)

    def begin_with_hosts(self):
        """Submits photos-hosts.sbatch and waits until its host has joined; returns the job's number."""
        self.stand_in("penstock", '[[ $1 == run ]] && set -- "$@" --device host --digest\nexec "%s" "$@"\n' % PENSTOCK)
        self.stand_in("scontrol", 'if [[ "$1 $2" == "show hostnames" ]]; then echo 127.0.0.1; else exec %s "$@"; fi\n' % shutil.which("scontrol"))
        self.photos("4ms")
        self.environment["HOSTS_PORT"] = str(free_port())
        with open(os.path.join(JOBS, "photos-hosts.sbatch")) as file:
            text = file.read()
        self.assertIn("--nodes=4", text)
        self.assertIn("--cpus-per-task=32", text)
        script = self.write("photos-hosts.sbatch", text.replace("--nodes=4", "--nodes=1").replace("--cpus-per-task=32", "--cpus-per-task=2"))
        done = self.slurm("sbatch", "--parsable", "--output", "job.out", "--open-mode=append", script)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.wait_until(lambda: len(self.hosts_workers()) == 2, self.what_the_job_said, seconds=90)
        return done.stdout.decode().strip()

    def what_the_job_said(self):
        said = self.slurm("scontrol", "show", "job").stdout.decode()
        for name in ("job.out", "slurmctld.log"):
            if os.path.exists(os.path.join(self.folder, name)):
                with open(os.path.join(self.folder, name)) as file:
                    said += file.read()[-8000:]
        return said

    def hosts_workers(self):
        code, out, _ = self.penstock("status", "--json", "--session", "photos")
        return [worker for host in json.loads(out)["hosts"] for worker in host["workers"]] if code == EXIT_OK else []

    def finished_report(self):
        def finished():
            try:
                with open(os.path.join(self.folder, "report.json")) as file:
                    report = json.load(file)
            except (OSError, ValueError):
                return None
            return report if report["outcome"] == "finished" else None
        return self.wait_until(finished, self.what_the_job_said, seconds=120)

    def test_the_half_of_a_heterogeneous_job_with_the_hosts_drains_at_sigterm_and_the_session_continues(self):
        self.begin_with_hosts()
        with open(os.path.join(self.folder, "job.out")) as file:
            command = re.search("^to let all hosts leave.*: (scancel .*)$", file.read(), re.M)[1]
        self.assertEqual(self.slurm(*command.split()).returncode, 0)
        self.wait_until(lambda: not self.hosts_workers(), self.what_the_job_said, seconds=30)
        report = self.finished_report()
        self.assertEqual((report["totals"]["samples"], report["quarantine"]), (2 * 2000, []))
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], self.digests(os.path.join(self.folder, "photos.toml")))
        self.wait_until(lambda: not self.slurm("squeue", "-h").stdout.strip(), self.what_the_job_said, seconds=60)

    def test_a_requeued_heterogeneous_job_continues_with_its_hosts_where_it_stopped(self):
        job = self.begin_with_hosts()
        done = self.slurm("scontrol", "requeue", job)
        self.assertEqual(done.returncode, 0, done.stdout)
        path = os.path.join(self.folder, "report.json")
        self.wait_until(lambda: os.path.exists(path), self.what_the_job_said, seconds=60)
        with open(path) as file:
            before = json.load(file)
        self.assertEqual(before["outcome"], "stopped")

        def runs_again():
            # Only Slurm's backfill scheduler starts heterogeneous jobs, and it runs only when the cluster changes.
            self.slurm("sbatch", "--output=/dev/null", "--wrap=true")
            time.sleep(1)
            return len(self.hosts_workers()) == 2
        self.wait_until(runs_again, self.what_the_job_said, seconds=90)
        after = self.finished_report()
        self.assertTrue(before["totals"]["samples"])
        self.assertEqual(before["totals"]["samples"] + after["totals"]["samples"], 2 * 2000)


if __name__ == "__main__":
    main()
