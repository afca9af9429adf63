"""What a profiler sees: every stage of a batch has a named range, and naming them loads no CUDA library into workers."""

from harness import *

TOOL = os.path.join(BIN, "..", "lib", "libnvtx_names.so")
WORKER_STAGES = {"load", "read", "decode", "collate"}
OWNER_STAGES = {"open device", "allocate buffers", "register partition", "upload", "copy", "transform", "deliver", "take", "wait",
                "sink", "release"}


class NvtxTest(PenstockTest):
    def names(self, *options):
        """{program: names of its ranges} for a run over photographs that ends in a device program."""
        make_photos(os.path.join(self.folder, "photos"), 40)
        config = self.write("photos.toml", '[dataset]\ntype = "image-folder"\npath = "photos"\n'
                            '[sampler]\nbatch_size = 8\n[gpu]\ndevice = "host"\n')
        file = os.path.join(self.folder, "names")
        program = os.path.join(BIN, "device_programs", "illegal_access.so")  # harmless without a sample to break on
        self.run_json(config, "--workers", 2, "--sink", "plugin:" + program, *options,
                      env=dict(self.environment, NVTX_INJECTION64_PATH=TOOL, PENSTOCK_TEST_NVTX_NAMES=file))
        found = {}
        with open(file) as lines:
            for line in lines:
                program, _, name = line.rstrip("\n").split(" ", 2)
                found.setdefault(program, set()).add(name)
        return found

    def test_every_stage_of_a_batch_has_a_range_in_its_process(self):
        found = self.names()
        self.assertLessEqual(WORKER_STAGES, found["penstock-worker"])
        self.assertLessEqual(OWNER_STAGES, found["penstock-gpu"])
        self.assertFalse(WORKER_STAGES & found["penstock-gpu"])
        self.assertFalse(OWNER_STAGES & found["penstock-worker"])

    def test_an_embedded_owner_shows_the_same_stages_in_the_session(self):
        found = self.names("--set", "gpu.placement=embedded")
        self.assertLessEqual(WORKER_STAGES, found["penstock-worker"])
        self.assertLessEqual(OWNER_STAGES, found["penstock"])

    def test_naming_stages_loads_no_cuda_into_a_worker(self):
        linked = subprocess.run(["ldd", os.path.join(BIN, "penstock-worker")], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(linked, "(?i)cuda|nvidia|nvtx")
        config = self.write("s.toml", synthetic(samples=100000, epochs=1, dataset='wait = "1ms"'))
        process = self.start("run", config, "--workers", 1, "--quiet", "--set", "name=named")
        self.wait_until(lambda: self.penstock("wait", "--for=ready", "--session", "named", "--timeout", "5s")[0] == EXIT_OK, "a ready session")
        worker, = [pid for pid in descendants_of(process.pid) if name_of(pid) == "penstock-worker"]
        with open("/proc/%d/maps" % worker) as maps:
            self.assertNotRegex(maps.read(), "(?i)libcuda|nvidia|nvtx")


if __name__ == "__main__":
    main()
