"""Names, paths and secrets that several ranks or users share."""

from harness import *

import shutil
import stat

MPIRUN = shutil.which("mpirun")
TORCHRUN = shutil.which("torchrun")
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PENSTOCK_GROUP",
                "PENSTOCK_GROUP_ADDR", "PENSTOCK_GROUP_SECRET", "TORCHELASTIC_RUN_ID")


class NamesTest(PenstockTest):
    def setUp(self):
        super().setUp()
        # mpirun refuses root, looks for ssh even on one host, and requires a core for each rank. Open MPI 5 spells that option differently.
        self.environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_plm="isolated", OMPI_MCA_rmaps_base_oversubscribe="1",
                                PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",
                                OMPI_MCA_orte_tmpdir_base=self.folder, TMPDIR=self.folder)
        for name in OF_LAUNCHERS:
            self.environment.pop(name, None)

    def stream(self, samples=200, wait="0s", more=""):
        return self.write("photos.toml", synthetic(samples, "64B", 10, 2, dataset='wait = "%s"' % wait,
                                                   more="[loader]\nworkers = 1\n" + more))

    def start_ranks(self, launcher, ranks, *options):
        """Starts `penstock run` with the same arguments in each rank."""
        command = {"mpirun": [MPIRUN, "-n", str(ranks)],
                   # torch 1.13's default, no redirection, fails under Python 3.11: the enum has no 0.
                   "torchrun": [TORCHRUN, *(self.torchrun_alone() if launcher == "torchrun" else ()), "--nproc_per_node", str(ranks),
                                "-r", "1", "-t", "1", "--no_python"]}[launcher]
        process = subprocess.Popen([*command, PENSTOCK, "run", *options, "--quiet", "--set", "gpu.device=host", "--set", "sampler.rank=auto"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, cwd=self.folder)
        self._running.append(process)
        return process

    def run_ranks(self, launcher, ranks, *options):
        process = self.start_ranks(launcher, ranks, *options)
        out, err = process.communicate(timeout=100)
        self.assertEqual(process.returncode, EXIT_OK, (out + err).decode("utf-8", "replace"))

    def read(self, *path):
        with open(os.path.join(self.folder, *path)) as file:
            return file.read()

    def samples_in(self, journal):
        """One digest for each batch, in the order of delivery."""
        lines = [json.loads(line) for line in self.read(journal).splitlines()]
        return [line["samples"] for line in lines if "samples" in line]


class OwnFilesTest(NamesTest):
    SAME = ("--report", "report.json", "--sink", "journal:seen", "--digest")

    def check_files(self, launcher):
        config = self.stream(more='[metrics]\nlisten = "127.0.0.1:%d"\n' % self.free_ports(3))
        self.run_ranks(launcher, 3, config, *self.SAME)
        self.check_files_of_ranks(config)

    def check_files_of_ranks(self, config):
        for rank in range(3):
            report = json.loads(self.read("report.json-rank%d" % rank))
            self.assertEqual((report["rank"], report["outcome"]), (rank, "finished"))
            alone = self.digests(config, "--set", "sampler.rank=%d" % rank, "--set", "sampler.world_size=3")
            self.assertEqual([epoch["digest"] for epoch in report["epochs"]], alone)
            self.assertEqual(len(self.samples_in("seen-rank%d" % rank)), sum(epoch["batches"] for epoch in report["epochs"]))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "report.json")))

    @staticmethod
    def free_ports(count):
        """The first of this many consecutive free ports."""
        while True:
            first = random.randrange(20000, 30000)
            sockets = [socket.socket() for _ in range(count)]
            try:
                for i, one in enumerate(sockets):
                    one.bind(("127.0.0.1", first + i))
                return first
            except OSError:
                continue
            finally:
                for one in sockets:
                    one.close()

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_ranks_of_mpirun_with_the_same_paths_write_separate_files(self):
        self.check_files("mpirun")

    @unittest.skipUnless(TORCHRUN, "there is no torchrun (apt: python3-torch)")
    def test_ranks_of_torchrun_with_the_same_paths_write_separate_files(self):
        self.need_torchrun()
        self.check_files("torchrun")

    def test_ranks_with_the_variables_of_srun_and_the_same_paths_write_separate_files(self):
        config = self.stream()
        step = dict(self.environment, SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_ID="0", SLURM_NTASKS="3", SLURM_NODEID="0",
                    SLURM_TASKS_PER_NODE="3", SLURM_JOB_NODELIST="localhost")
        ranks = [self.start("run", config, *self.SAME, "--quiet", "--set", "sampler.rank=auto", env=dict(step, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)))
                 for rank in range(3)]
        for rank in ranks:
            _, err = rank.communicate(timeout=100)
            self.assertEqual(rank.returncode, EXIT_OK, err)
        self.check_files_of_ranks(config)

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_ranks_of_mpirun_with_the_same_out_fill_separate_folders(self):
        self.run_ranks("mpirun", 4, self.stream(), "--sink", "npy", "--out", "batches")
        for rank in range(4):
            names = os.listdir(os.path.join(self.folder, "batches", "rank%d" % rank))
            self.assertEqual(sum(name.endswith(".index.npy") for name in names), 10, names)

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_each_rank_of_mpirun_has_the_next_port_for_its_metrics(self):
        port = self.free_ports(2)
        process = self.start_ranks("mpirun", 2, self.stream(40000, "10ms", '[metrics]\nlisten = "127.0.0.1:%d"\n' % port))

        def answers(one):
            try:
                with socket.create_connection(("127.0.0.1", one), 1) as to:
                    to.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                    return to.makefile("rb").read()
            except OSError:
                return b""
        for rank in range(2):
            text = self.wait_until(lambda: answers(port + rank), "rank %d has metrics" % rank)
            self.assertIn(b"penstock_session_state", text)
        process.terminate()
        process.communicate(timeout=60)

    @unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
    def test_a_path_that_already_names_the_rank_is_unchanged(self):
        process = subprocess.Popen(
            [MPIRUN, "-n", "2", "sh", "-c", 'exec "$0" run photos.toml --quiet --set sampler.rank=auto --set gpu.device=host '
             '--report "report-$OMPI_COMM_WORLD_RANK.json" --sink "journal:seen.$OMPI_COMM_WORLD_RANK"', PENSTOCK],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, cwd=os.path.dirname(self.stream()))
        self._running.append(process)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_OK, err)
        made = sorted(name for name in os.listdir(self.folder) if name.startswith(("report", "seen")))
        self.assertEqual(made, ["report-0.json", "report-1.json", "seen.0", "seen.1"])


@unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
class GroupStateTest(NamesTest):
    """--state FILE, the same in all ranks: one position for all of them."""

    def test_a_group_that_was_stopped_continues_at_its_position_with_a_different_number_of_ranks(self):
        config = self.stream(samples=2000, wait="10ms")
        process = self.start_ranks("mpirun", 4, config, "--state", "photos.state", "--state-every", "50ms", "--sink", "journal:first")
        self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "photos.state")), "the group has a state")
        code, _, err = self.penstock("stop", "--group", "photos", "--wait")
        self.assertEqual(code, EXIT_OK, err)
        process.communicate(timeout=60)
        quick = self.stream(samples=2000)
        self.run_ranks("mpirun", 2, quick, "--state", "photos.state", "--sink", "journal:second", "--set", "sampler.epochs=1")
        first = [self.samples_in("first-rank%d" % rank) for rank in range(4)]
        self.assertEqual(len({len(batches) for batches in first}), 1, "all stop at one step")
        delivered = [sample for batches in first for batch in batches for sample in batch]
        delivered += [sample for rank in range(2) for batch in self.samples_in("second-rank%d" % rank) for sample in batch]
        self.assertEqual(sorted(delivered), list(range(2000)), "each sample once")
        # The third run has no batches left, and a single process can report that.
        report = self.run_json(quick, "--state", "photos.state", "--set", "sampler.epochs=1")
        self.assertEqual(sum(epoch["batches"] for epoch in report["epochs"]), 0)

    def test_a_group_that_was_killed_misses_no_sample(self):
        config = self.stream(samples=4000, wait="5ms")
        process = self.start_ranks("mpirun", 2, config, "--state", "photos.state", "--state-every", "20ms", "--sink", "journal:first")
        self.wait_until(lambda: os.path.exists(os.path.join(self.folder, "photos.state")), "the group has a state")
        written = os.stat(os.path.join(self.folder, "photos.state")).st_ino
        self.wait_until(lambda: os.stat(os.path.join(self.folder, "photos.state")).st_ino != written, "and another")
        below = descendants_of(process.pid)
        for pid in [process.pid, *below]:
            signal_process(pid, signal.SIGKILL)
        process.communicate(timeout=60)
        self.wait_until(lambda: not any(map(alive, below)), "all are gone")
        self.run_ranks("mpirun", 3, self.stream(samples=4000), "--state", "photos.state", "--sink", "journal:second", "--set", "sampler.epochs=1")
        delivered = {sample for rank in range(2) for batch in self.samples_in("first-rank%d" % rank) for sample in batch}
        again = [sample for rank in range(3) for batch in self.samples_in("second-rank%d" % rank) for sample in batch]
        self.assertEqual(delivered | set(again), set(range(4000)))
        self.assertLess(len(again), 4000 + 2, "it did not begin from the beginning")

    def test_ranks_with_a_limit_of_batches_leave_the_state_of_exactly_that_step(self):
        config = self.stream(samples=400)
        for turn in range(3):
            self.run_ranks("mpirun", 2, config, "--batches", "2", "--state", "photos.state", "--sink", "journal:turn%d" % turn)
        delivered = [sample for turn in range(3) for rank in range(2)
                     for batch in self.samples_in("turn%d-rank%d" % (turn, rank)) for sample in batch]
        self.assertEqual(len(delivered), 3 * 2 * 2 * 10)
        self.assertEqual(len(set(delivered)), len(delivered), "no sample twice")

    def test_ranks_with_separate_state_paths_continue_from_their_own_states(self):
        self.stream(samples=400)
        for turn, batches in (("first", 2), ("second", 3)):
            process = subprocess.Popen(
                [MPIRUN, "-n", "2", "sh", "-c", 'exec "$0" run photos.toml --quiet --set sampler.rank=auto --set gpu.device=host --batches %d '
                 '--state "run_$OMPI_COMM_WORLD_RANK.state" --sink journal:%s' % (batches, turn), PENSTOCK],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, cwd=self.folder)
            self._running.append(process)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, EXIT_OK, err)
        self.assertEqual(sorted(name for name in os.listdir(self.folder) if name.startswith("run_")), ["run_0.state", "run_1.state"])
        delivered = [sample for turn in ("first", "second") for rank in range(2)
                     for batch in self.samples_in("%s-rank%d" % (turn, rank)) for sample in batch]
        self.assertEqual((len(delivered), len(set(delivered))), (100, 100))

    def test_a_shared_state_path_that_names_one_of_the_ranks_is_refused(self):
        process = self.start_ranks("mpirun", 3, self.stream(), "--state", "run_2.state")
        _, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, EXIT_OK)
        self.assertRegex(err.decode(), r"--state 'run_2\.state' names rank 2, but this is rank [01] of 3: give all ranks one path that does not")
        # Rank 2 may have saved its start position before the others ended the group.
        self.assertLessEqual({name for name in os.listdir(self.folder) if name.startswith("run_")}, {"run_2.state"})

    def test_a_state_written_by_launch_can_be_resumed_under_mpirun(self):
        config = self.stream(samples=400)
        code, _, err = self.penstock("launch", config, "--gpus", "host:2", "--quiet", "--batches", 5, "--state", "photos.state",
                                     "--sink", "journal:first")
        self.assertEqual(code, EXIT_OK, err)
        self.run_ranks("mpirun", 3, config, "--state", "photos.state", "--sink", "journal:second", "--set", "sampler.epochs=1")
        delivered = [sample for name, ranks in (("first", 2), ("second", 3)) for rank in range(ranks)
                     for batch in self.samples_in("%s-rank%d" % (name, rank)) for sample in batch]
        self.assertEqual(sorted(delivered), list(range(400)))


class TwoLaunchesTest(NamesTest):
    """Launches of one file: their sessions have the same names, up to the smaller number of ranks."""

    def setUp(self):
        super().setUp()
        config = self.stream(samples=400000, wait="5ms", more='[group]\nlost_after = "60s"\n')
        self.small = self.start("launch", config, "--gpus", "host:2", "--quiet")
        self.wait_until(lambda: len(self.live()) == 2, "the first launch is live")
        self.large = self.start("launch", config, "--gpus", "host:3", "--quiet")
        self.wait_until(lambda: len(self.live()) == 5, "both launches are live", seconds=60)

    def live(self):
        code, out, _ = self.penstock("sessions", "--json")
        return {one["session"]: one for one in json.loads(out)["sessions"]} if code == EXIT_OK else {}

    @staticmethod
    def full_name(launch):
        return "launch-%d/photos" % launch.pid

    def states(self, launch):
        code, out, err = self.penstock("status", "--group", self.full_name(launch), "--json")
        self.assertEqual(code, EXIT_OK, err)
        group = json.loads(out)
        self.assertEqual((group["group"], group["job"]), ("photos", "launch-%d" % launch.pid))
        pids = [rank["status"]["pid"] for rank in group["ranks"]]
        self.assertEqual(sorted(pids), sorted(self.rank_pids(launch).values()))
        return [rank["status"]["state"] for rank in group["ranks"]]

    def test_a_verb_acts_on_the_ranks_of_one_launch_and_is_refused_if_it_could_mean_two(self):
        for words in (["status"], ["pause"], ["stop"], ["deaths"], ["logs", "gpu"], ["scale", "2"], ["restart", "workers"]):
            code, _, err = self.penstock(*words, "--group", "photos")
            self.assertEqual(code, EXIT_NO_SESSION, err)
            self.assertIn("2 groups named 'photos' are live; choose one: ", err)
            self.assertIn("--group %s (2 live ranks)" % self.full_name(self.small), err)
            self.assertIn("--group %s (3 live ranks)" % self.full_name(self.large), err)
            code, _, err = self.penstock(*words)
            self.assertEqual(code, EXIT_NO_SESSION, err)
        self.assertEqual(self.penstock("pause", "--group", self.full_name(self.large))[0], EXIT_OK)
        self.assertEqual(self.states(self.large), ["paused"] * 3)
        self.assertNotIn("paused", self.states(self.small))
        # A launch whose ranks do not answer is still distinguished from the other one.
        for pid in self.rank_pids(self.small).values():
            signal_process(pid, signal.SIGSTOP)
        code, _, err = self.penstock("stop", "--group", self.full_name(self.large), "--wait")
        self.assertEqual(code, EXIT_OK, err)
        self.assertEqual(self.large.wait(timeout=60), EXIT_OK)
        for pid in self.rank_pids(self.small).values():
            signal_process(pid, signal.SIGCONT)
        self.assertIsNone(self.small.poll())
        self.assertEqual(self.penstock("stop", "--group", "photos", "--wait")[0], EXIT_OK)
        self.assertEqual(self.small.wait(timeout=60), EXIT_OK)
        left = [name for name in os.listdir(os.path.join(self.folder, "penstock")) if name.endswith((".sock", ".rank"))]
        self.assertEqual(left, [])


class SecretTest(NamesTest):
    def test_a_secret_is_generated_into_a_file_that_only_its_owner_can_read(self):
        drawn = set()
        for name in ("a", "b"):
            path = os.path.join(self.folder, name)
            before = os.umask(0o022)  # a usual umask
            try:
                with open(path, "w") as file:
                    done = subprocess.run([PENSTOCK, "secret"], stdout=file, stderr=subprocess.PIPE, env=self.environment)
            finally:
                os.umask(before)
            self.assertEqual((done.returncode, done.stderr), (EXIT_OK, b""))
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            drawn.add(self.read(name))
        self.assertEqual(len(drawn), 2)
        for secret in drawn:
            self.assertRegex(secret, r"\A[0-9a-f]{64}\n\Z")
        code, out, _ = self.penstock("secret", "--json")
        self.assertEqual(code, EXIT_OK)
        self.assertEqual(len(json.loads(out)["secret"]), 64)
        with open("/dev/full", "w") as full:
            done = subprocess.run([PENSTOCK, "secret"], stdout=full, stderr=subprocess.PIPE, env=self.environment)
        self.assertEqual(done.returncode, EXIT_FAILED)
        self.assertIn(b"No space left on device", done.stderr)


if __name__ == "__main__":
    main()
