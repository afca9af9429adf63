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
        # mpirun refuses root, looks for ssh even on one host, and wants a core for each rank. Open MPI 5 has another word for that.
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
        """`penstock run` with the same words in each rank."""
        command = {"mpirun": [MPIRUN, "-n", str(ranks)],
                   # Of torch 1.13 under Python 3.11 the default, no redirection, fails: the enum's 0 is not found.
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
        """Of each batch, in the order of delivery."""
        lines = [json.loads(line) for line in self.read(journal).splitlines()]
        return [line["samples"] for line in lines if "samples" in line]


@unittest.skipUnless(MPIRUN, "there is no mpirun (apt: openmpi-bin)")
class SecretTest(NamesTest):
    def test_a_secret_is_drawn_into_a_file_that_only_its_owner_may_read(self):
        drawn = set()
        for name in ("a", "b"):
            path = os.path.join(self.folder, name)
            before = os.umask(0o022)  # a usual shell's
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
    unittest.main()
