"""penstock doctor: a made-up healthy machine passes, each fault changes its own row, and the real machine is examined."""

import shutil
import socket

from harness import *

LIBRARIES = "usr/lib/x86_64-linux-gnu"
BUS = "sys/bus/pci/devices/0000:3b:00.0/"
STATUS = "Name:\t{name}\nState:\tS (sleeping)\nPPid:\t{parent}\nUid:\t{user}\t{user}\t{user}\t{user}\nThreads:\t4\nCpus_allowed_list:\t0-7\n"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             {processes:<20} unlimited            processes
Max open files            {files:<20} 1048576              files
"""


class DoctorTest(PenstockTest):
    def setUp(self):
        super().setUp()
        for variable in [name for name in self.environment if name.startswith(("CUDA_", "LD_LIBRARY_PATH", "OMP_", "MKL_", "OPENBLAS_"))]:
            del self.environment[variable]
        self.config = self.write("job.toml", '[dataset]\ntype = "synthetic"\nbytes_per_sample = "64KiB"\n[sampler]\nbatch_size = 16\n'
                                             '[loader]\nworkers = 4\n')

    def examine(self, *arguments, expect=None, **popen):
        """The report and its rows by id."""
        code, out, err = self.penstock("doctor", *arguments, "--json", **popen)
        report = json.loads(out)
        self.assertEqual(report["schema"], "penstock.doctor/1")
        rows = {row["id"]: row for row in report["results"]}
        self.assertEqual(len(rows), len(report["results"]), "ids are unique")
        failed = [row for row in rows.values() if row["status"] == "fail"]
        self.assertEqual(code, EXIT_NOT_MET if failed else EXIT_OK, err)
        for row in rows.values():
            self.assertIn(row["status"], ("ok", "info", "skip", "warn", "fail"))
            if row["status"] in ("warn", "fail"):
                self.assertTrue(row["observed"] and row["remedy"], row)
            if row["status"] == "skip":
                self.assertTrue(row["why"], row)
        return report, rows

    def machine(self, name="root"):
        """A root folder with the /proc, /sys, /dev and libraries of a healthy machine with one H200."""
        root = os.path.join(self.folder, name)
        text = {
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n",
            "proc/meminfo": "MemTotal: 134217728 kB\nMemAvailable: 67108864 kB\n",
            "proc/self/status": STATUS.format(name="penstock", parent=900, user=1000),
            "proc/self/limits": LIMITS.format(processes=10000, files=4096),
            "proc/self/cgroup": "0::/job\n",
            "proc/sys/kernel/pid_max": "4194304\n",
            "proc/901/status": STATUS.format(name="python3", parent=900, user=1000),
            "sys/fs/cgroup/job/pids.max": "5000\n",
            "sys/fs/cgroup/job/pids.current": "12\n",
            "sys/devices/system/node/node0/cpulist": "0-7\n",
            "dev/kmsg": "6,1,2,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n",
        }
        facts = {"vendor": "0x10de", "class": "0x030200", "numa_node": "0", "current_link_speed": "32.0 GT/s PCIe",
                 "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "16", "max_link_width": "16"}
        text.update({BUS + key: value + "\n" for key, value in facts.items()})
        text.update({"dev/" + node: "" for node in ("nvidia0", "nvidiactl", "nvidia-uvm")})
        for path, content in text.items():
            self.write(os.path.join(root, path), content)
        for library, version in (("libcuda", "580.95.05"), ("libnvidia-ml", "580.95.05")):
            self.place_library(root, library, version)
        return root

    def place_library(self, root, library, version):
        folder = os.path.join(root, LIBRARIES)
        os.makedirs(folder, exist_ok=True)
        built = "libfake_cuda.so" if library == "libcuda" else "libfake_nvml.so"
        shutil.copy(os.path.join(BIN, "..", "lib", built), os.path.join(folder, "%s.so.%s" % (library, version)))
        link = os.path.join(folder, library + ".so.1")
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink("%s.so.%s" % (library, version), link)

    def built_with_cuda(self):
        return json.loads(self.penstock("version", "--json")[1])["cuda"]


class MadeUpMachineTest(DoctorTest):
    def statuses(self, root, **fakes):
        return {id: row["status"] for id, row in self.rows(root, **fakes).items()}

    def rows(self, root, *arguments, **fakes):
        return self.examine(self.config, "--root", root, *arguments, env=dict(self.environment, **fakes))[1]

    def test_a_healthy_machine_passes_every_row(self):
        for id, row in self.rows(self.machine()).items():
            self.assertIn(row["status"], ("ok", "info", "skip"), row)
            if row["status"] == "skip":
                expected = {"gpu.deep", "gpu.pinning", "gpu.jpeg", "isolate"}
                expected |= {"group.rank", "group.gpus", "group.address", "group.secret", "group.nccl"}
                if not self.built_with_cuda():
                    expected |= {"gpu.driver-runtime", "gpu.architecture"}
                self.assertIn(id, expected, row)

    def test_the_links_of_two_gpus_are_shown_as_the_driver_reports_them(self):
        root = self.machine()
        for fakes, status, says in (({"FAKE_NVLINKS": "18"}, "ok", "2 GPUs; NV18 (NVLink): all; peer access: all"),
                                    ({"FAKE_ANCESTOR": "10"}, "ok", "2 GPUs; PIX (one PCIe switch): all; peer access: all"),
                                    ({"FAKE_PEERS": "0"}, "info", "2 GPUs; SYS (the link between NUMA nodes): all; no peer access: all")):
            with self.subTest(says):
                row = self.rows(root, FAKE_GPUS="2", **fakes)["gpu.links"]
                self.assertEqual((row["status"], row["observed"]), (status, says), row)

    def check_own_row(self, id, status, says, change, fakes={}):
        root = self.machine("mutated")
        before = self.healthy
        change(lambda path, content: self.write(os.path.join(root, path), content), root)
        after = self.rows(root, **fakes)
        shutil.rmtree(root)
        with self.subTest(id=id, says=says):
            self.assertEqual(after[id]["status"], status, after[id])
            self.assertIn(says, (after[id]["observed"] or "") + (after[id]["remedy"] or ""))
            for other, row in after.items():
                if other != id:
                    self.assertIn(row["status"], (before[other], "skip"), row)

    def test_each_fault_in_a_file_changes_its_own_row(self):
        self.healthy = self.statuses(self.machine())
        remove = lambda path: lambda write, root: os.unlink(os.path.join(root, path))
        put = lambda path, content: lambda write, root: write(path, content)
        stub = "usr/local/cuda/lib64/stubs"

        def only_a_stub(write, root):
            os.makedirs(os.path.join(root, stub))
            os.rename(os.path.join(root, LIBRARIES, "libcuda.so.580.95.05"), os.path.join(root, stub, "libcuda.so.1"))
            os.unlink(os.path.join(root, LIBRARIES, "libcuda.so.1"))

        for id, status, says, change, fakes in (
                ("gpu.driver-module", "fail", "modprobe", remove("proc/driver/nvidia/version"), {}),
                ("gpu.device-nodes", "fail", "/dev/nvidia-uvm", remove("dev/nvidia-uvm"), {}),
                ("gpu.libcuda", "fail", "stub", only_a_stub, {"LD_LIBRARY_PATH": "/" + stub}),
                ("gpu.libcuda", "fail", "version 570.1.2", lambda write, root: self.place_library(root, "libcuda", "570.1.2"), {}),
                ("gpu.libcuda", "fail", "not found", remove(LIBRARIES + "/libcuda.so.1"), {}),
                ("gpu.libcuda", "fail", "invalid ELF header", put(LIBRARIES + "/libcuda.so.580.95.05", "this is no library" * 100), {}),
                ("gpu.nvml", "warn", "not found", remove(LIBRARIES + "/libnvidia-ml.so.1"), {}),
                ("gpu.xid", "fail", "Xid 79", put("dev/kmsg", "3,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"), {}),
                ("gpu.numa", "warn", "numactl", put(BUS + "numa_node", "1\n"), {}),
                ("gpu.pcie", "warn", "x8 of x16", put(BUS + "current_link_width", "8\n"), {}),
                ("gpu.pcie", "warn", "8 of 32 GT/s", put(BUS + "current_link_speed", "8.0 GT/s PCIe\n"), {}),
                ("memory.arena", "fail", "available memory leaves 4.00 MiB", put("proc/meminfo", "MemTotal: 134217728 kB\nMemAvailable: 4096 kB\n"), {}),
                ("memory.arena", "fail", "memory cgroup", put("sys/fs/cgroup/job/memory.max", "1048576\n"), {}),
                ("limits.open-files", "fail", "64 (ulimit -n)", put("proc/self/limits", LIMITS.format(processes=10000, files=64)), {}),
                ("limits.processes", "fail", "ulimit -u leaves", put("proc/self/limits", LIMITS.format(processes=20, files=4096)), {}),
                ("limits.processes", "fail", "pids cgroup", put("sys/fs/cgroup/job/pids.max", "16\n"), {}),
                ("cpu.workers", "warn", "2 cores for 4 workers", put("sys/fs/cgroup/job/cpu.max", "200000 100000\n"), {}),
                ("leftovers.processes", "warn", "kill -9 902", put("proc/902/status", STATUS.format(name="penstock-worker", parent=1, user=1000)), {})):
            if id == "gpu.numa":
                inner = change
                change = lambda write, root, inner=inner: (inner(write, root), write("sys/devices/system/node/node1/cpulist", "8-15\n"))
            self.check_own_row(id, status, says, change, fakes)

    def test_each_answer_of_the_driver_changes_its_own_row(self):
        self.healthy = self.statuses(self.machine())
        nothing = lambda write, root: None
        for code, says in ((3, "before fork"), (34, "stub"), (35, "newer driver"), (46, "busy"), (100, "CUDA_VISIBLE_DEVICES"),
                           (209, "architecture"), (222, "PTX"), (802, "fabric"), (803, "reboot"), (804, "compat"), (805, "MPS"), (999, "nvidia-uvm")):
            self.check_own_row("gpu.cuinit", "fail", says, nothing, {"FAKE_CUINIT": str(code)})
        self.check_own_row("gpu.cuinit", "fail", "cuInit: was killed by SIGSEGV", nothing, {"FAKE_CUINIT": "crash"})
        self.check_own_row("gpu.nvml", "fail", "nvmlInit: was killed by SIGSEGV", nothing, {"FAKE_NVML": "crash"})
        self.check_own_row("gpu.visible-devices", "warn", '"5": there is no such GPU', nothing, {"CUDA_VISIBLE_DEVICES": "0,5"})
        self.check_own_row("gpu.compute-mode", "fail", "prohibited", nothing, {"FAKE_COMPUTE_MODE": "2"})
        self.check_own_row("gpu.memory", "fail", "buffers", nothing, {"FAKE_FREE_MIB": "100"})
        self.check_own_row("gpu.ecc", "fail", "3 uncorrected", nothing, {"FAKE_ECC": "3"})
        if self.built_with_cuda():
            self.check_own_row("gpu.driver-runtime", "fail", "supports CUDA 10.2", nothing, {"FAKE_CUDA_VERSION": "10020"})
            self.check_own_row("gpu.architecture", "fail", "capability 5.0", nothing, {"FAKE_CC_MAJOR": "5"})

    def test_a_driver_that_hangs_is_a_finding_and_does_not_hang_doctor(self):
        root = self.machine()
        for fake, id, step in (("FAKE_CUINIT", "gpu.cuinit", "cuInit"), ("FAKE_NVML", "gpu.nvml", "nvmlInit")):
            row = self.rows(root, "--probe-timeout", "1s", **{fake: "hang"})[id]
            self.assertEqual((row["status"], row["observed"]), ("fail", step + ": did not return within 1 s"))

    def test_under_a_working_loader_a_broken_gpu_is_named_as_the_faulty_layer(self):
        report, _ = self.examine(self.config, "--root", self.machine(), env=dict(self.environment, FAKE_CUINIT="999"))
        self.assertEqual({"gpu": "fail", "machine": "ok", "loader": "ok", "data": "ok"}, report["layers"])
        self.assertIn("the GPU layer is broken but the loader works", report["verdict"])


class RealMachineTest(DoctorTest):
    def test_this_machine_is_examined_and_passes_with_cpu_only(self):
        report, rows = self.examine(self.config)
        if not os.path.exists("/dev/nvidiactl"):
            for row in rows.values():
                if row["layer"] == "gpu" and row["id"] not in ("gpu.build", "gpu.toolkit"):
                    self.assertEqual(row["status"], "skip")
                    self.assertTrue(row["remedy"])
        report, rows = self.examine(self.config, "--cpu-only")
        self.assertTrue(report["ok"], report)
        for id in ("system.pidfd", "system.parent-death", "system.memfd-seals", "worker.program", "worker.protocol",
                   "worker.cuda-free", "data.dataset", "data.sample"):
            self.assertEqual(rows[id]["status"], "ok", rows[id])

    def test_an_old_nvjpeg_fails_its_row_or_is_a_warning_under_hybrid(self):
        config = self.write("photos.toml", '[dataset]\npath = "photos"\n')
        self.environment.update(PENSTOCK_NVJPEG=os.path.join(BIN, "..", "lib", "libfake_nvjpeg.so"), FAKE_NVJPEG_VERSION="11.9.2")
        for decoder, status in (("gpu", "fail"), ("hybrid", "warn")):
            row = self.examine(config, "--device", "cuda", "--set", 'image.decoder="%s"' % decoder)[1]["gpu.jpeg"]
            self.assertEqual(row["status"], status, row)
            self.assertIn("is nvJPEG 11.9.2, but 12 or later is needed", row["observed"])
            self.assertIn("PENSTOCK_NVJPEG", row["remedy"])

    def test_a_requested_gpu_that_is_missing_fails(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a GPU")
        report, rows = self.examine(self.config, "--device", "cuda", "--deep")
        self.assertFalse(report["ok"])
        for id in ("gpu.driver-module", "gpu.device-nodes", "gpu.libcuda"):
            self.assertEqual(rows[id]["status"], "fail")
        self.assertEqual(rows["gpu.deep"]["status"], "skip")
        self.assertEqual(report["layers"]["loader"], "ok")

    def test_worker_programs_that_are_missing_or_silent_or_load_cuda_are_told_apart(self):
        rows = self.examine(self.config, "--cpu-only", "--set", 'loader.command=["no-such-program"]')[1]
        self.assertEqual(rows["worker.program"]["status"], "fail")
        self.assertIn("no-such-program", rows["worker.program"]["observed"])
        rows = self.examine(self.config, "--cpu-only", "--set", 'loader.command=["/bin/sh", "-c", "echo wrong program; exit 3"]')[1]
        self.assertEqual([rows[id]["status"] for id in ("worker.program", "worker.protocol", "worker.cuda-free")], ["ok", "fail", "skip"])
        self.assertIn("sh exited with 3 before saying hello; it wrote: wrong program", rows["worker.protocol"]["observed"])
        rows = self.examine(self.config, "--cpu-only", "--set",
                            'loader.command=["/bin/sh", "-c", "exec sleep 60"]', "--set", 'loader.hang.start_deadline="300ms"')[1]
        self.assertIn("did not answer within 300 ms before saying hello", rows["worker.protocol"]["observed"])
        library = os.path.join(self.machine(), LIBRARIES, "libcuda.so.1")
        rows = self.examine(self.config, "--cpu-only", "--set", 'loader.env.LD_PRELOAD="%s"' % library)[1]
        self.assertEqual(rows["worker.cuda-free"]["status"], "fail")
        self.assertIn("libcuda.so", rows["worker.cuda-free"]["observed"])

    def test_a_worker_program_on_an_unresponsive_file_system_is_a_finding_and_does_not_hang_doctor(self):
        path = self.write("leased-worker", "#!/bin/sh\nexit 1\n")
        os.chmod(path, 0o755)
        self.hold_up(path)
        rows = self.examine(self.config, "--cpu-only", "--set", 'loader.command=["%s"]' % path,
                            "--set", 'loader.hang.start_deadline="300ms"')[1]
        self.assertEqual(rows["worker.program"]["status"], "fail")
        self.assertEqual(rows["worker.program"]["observed"],
                         "executing '%s' has not returned for 300 ms: its file system is not responding" % path)

    def test_a_missing_broken_or_deadly_dataset_fails_in_its_own_row(self):
        photos = os.path.join(self.folder, "photos")
        config = self.write("photos.toml", '[dataset]\npath = "photos"\n[sampler]\nbatch_size = 4\n')
        rows = self.examine(config, "--cpu-only")[1]
        self.assertEqual(rows["data.dataset"]["status"], "fail")
        self.assertIn("does not exist", rows["data.dataset"]["observed"])
        for name, content in (("a.jpg", b"hello"), ("b.jpg", b"\xff\xd8")):
            os.makedirs(photos, exist_ok=True)
            with open(os.path.join(photos, name), "wb") as file:
                file.write(content)
        rows = self.examine(config, "--cpu-only")[1]
        self.assertEqual([rows[id]["status"] for id in ("data.dataset", "data.sample")], ["ok", "fail"])
        self.assertIn("none of 2 samples could be loaded; a.jpg: not a JPEG", rows["data.sample"]["observed"])
        rows = self.examine(self.config, "--cpu-only", "--set", 'dataset.faults=[{sample=2, kind="segv", times=0}]')[1]
        self.assertRegex(rows["data.sample"]["observed"],
                         r"was killed by SIGSEGV while loading the first samples \(in penstock-worker\+0x[0-9a-f]+ in penstock::")

    def test_isolate_names_the_first_step_that_fails(self):
        report, rows = self.examine(self.config, "--cpu-only", "--isolate")
        self.assertEqual(rows["isolate"]["observed"], "passed: 0 workers, 1 worker, host device, 4 workers, host device")
        report, rows = self.examine(self.config, "--cpu-only", "--isolate", "--set", 'loader.command=["no-such-program"]')
        self.assertIn("the first step to fail: 1 worker, host device", rows["isolate"]["observed"])
        self.assertEqual([s["status"] for s in report["isolation"]], ["ok", "fail", "skip", "skip", "skip", "skip"])
        out = self.penstock("doctor", self.config, "--cpu-only", "--isolate", "--set", 'loader.command=["no-such-program"]')[1]
        self.assertIn("skip  4 workers, host device  ", out)
        report, rows = self.examine(self.config, "--cpu-only", "--isolate", "--set", 'dataset.faults=[{sample=2, kind="segv", times=0}]')
        self.assertIn("the first step to fail: 0 workers: was killed by SIGSEGV", rows["isolate"]["observed"])

    def test_sockets_without_a_listener_are_found(self):
        os.makedirs(os.path.join(self.folder, "penstock"), mode=0o700)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(os.path.join(self.folder, "penstock", "gone.sock"))
        row = self.examine("--cpu-only")[1]["leftovers.sockets"]
        self.assertEqual(row["status"], "warn")
        self.assertIn("gone.sock", row["observed"])

    def test_wrong_configs_and_wrong_usage_have_separate_exit_codes(self):
        bad = self.write("bad.toml", "[loader]\nwokers = 4\n")
        self.assertEqual(self.penstock("doctor", bad)[0], EXIT_CONFIG)
        self.assertEqual(self.penstock("doctor", "--isolate")[0], EXIT_USAGE)
        self.assertEqual(self.penstock("doctor", "--probe-timeout", "5")[0], EXIT_USAGE)
        self.assertEqual(self.penstock("doctor", "--root", "/nonexistent")[0], EXIT_USAGE)

    def test_the_output_for_people_fits_the_terminal_and_has_remedies(self):
        code, out, _ = self.penstock("doctor", self.config, "--cpu-only", "--set", 'loader.command=["no-such-program"]')
        self.assertEqual(code, EXIT_NOT_MET)
        self.assertNotIn("\x1b", out)
        self.assertIn("fail  worker.program", out)
        self.assertIn("-> check [loader] command", out)
        self.assertIn("1 fail", out.splitlines()[-1])
        for line in out.splitlines():
            if "/" not in line:
                self.assertLessEqual(len(line), 80)


if __name__ == "__main__":
    main()
