"""tools/gpu-architectures names GPU code that nvcc can generate, whatever nvidia-smi prints."""

from harness import *

TOOL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "gpu-architectures")


class GpuArchitecturesTest(PenstockTest):
    def program(self, name, text):
        path = self.write(name, "#!/bin/sh\ncat <<'END'\n%s\nEND\n" % text)
        os.chmod(path, 0o755)

    def named(self, gpus):
        self.program("nvidia-smi", gpus)
        done = subprocess.run([TOOL], capture_output=True, text=True, env=dict(os.environ, PATH=self.folder + ":/usr/bin:/bin"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_each_gpu_gets_its_code_once_and_a_gpu_that_is_too_new_gets_the_code_of_an_older_one(self):
        self.program("nvcc", "compute_80\ncompute_86\ncompute_90")
        self.assertEqual(self.named("9.0\n9.0\n8.6"), "90-real;86-real")
        self.assertEqual(self.named("12.0\n9.0\n10.0"), "80-virtual;90-real")

    def test_without_a_gpu_or_driver_the_code_that_later_gpus_can_run_is_named(self):
        self.program("nvcc", "compute_80\ncompute_90")
        for said in ("", "No devices were found", "[N/A]", 'Field "compute_cap" is not a valid field to query.', "7.5",
                     "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."):
            with self.subTest(said):
                self.assertEqual(self.named(said), "80-virtual")


if __name__ == "__main__":
    main()
