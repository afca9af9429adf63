"""[image] decoder on a machine without a GPU: the workers decode everything. tools/bench/jpeg_decoders.py covers machines with a GPU."""

from harness import *

CONFIG = """
[dataset]
path = "photos"
[image]
size = [64, 64]
%s
[sampler]
batch_size = 8
epochs = 2
[loader]
workers = 2
[gpu]
device = "host"
"""


class DecoderTest(PenstockTest):
    def setUp(self):
        super().setUp()
        make_photos(os.path.join(self.folder, "photos"), 40)

    def config(self, image):
        return self.write("d.toml", CONFIG % image)

    def test_on_the_host_device_all_decoders_give_the_same_pixels(self):
        plain = self.digests(self.config(""))
        for image in ('decoder = "gpu"', 'decoder = "hybrid"\ngpu_share = 0.5'):
            self.assertEqual(self.digests(self.config(image)), plain, image)

    def test_a_session_on_the_host_device_reports_that_the_workers_decode(self):
        code, out, err = self.penstock("run", self.config('decoder = "gpu"'), "--json")
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn('[image] decoder = "gpu": the host device decodes no JPEGs: the workers decode all of them', err)

    def write_state_of_a_gpu(self, path):
        """Changes a run's state into that of the same run on a GPU."""
        with open(os.path.join(self.folder, path), "rb") as file:
            state = file.read()
        at = 6 * 8
        at += 8 + int.from_bytes(state[at:at + 8], "little")  # the fingerprint
        size = int.from_bytes(state[at:at + 8], "little")
        keys = state[at + 8:at + 8 + size].split(b"\n")
        keys.insert(1 + max(n for n, key in enumerate(keys) if key.startswith(b"image.")), b"image.decoder=gpu, nvJPEG 13.0.1 on NVIDIA H200")
        text = b"\n".join(keys)
        state = state[:at] + len(text).to_bytes(8, "little") + text + state[at + 8 + size:-8]
        checksum = 0xcbf29ce484222325
        for byte in state:
            checksum = (checksum ^ byte) * 0x100000001b3 % 2**64
        with open(os.path.join(self.folder, "gpu.state"), "wb") as file:
            file.write(state + checksum.to_bytes(8, "little"))

    def test_batches_that_a_gpu_may_have_decoded_are_replayed_only_with_a_state_of_the_same_gpu(self):
        config = self.write("d.toml", CONFIG.replace('device = "host"', 'device = "auto"') % 'decoder = "gpu"')
        self.environment["CUDA_VISIBLE_DEVICES"] = ""  # so that "auto" is the host device
        self.run_json(config, "--sink", "journal:run.journal", "--state", "run.state")
        self.write_state_of_a_gpu("run.state")
        for verb in (("--batch", 3, "--out", "replayed"), ("--verify", "run.journal")):
            code, out, err = self.penstock("replay", config, *verb)
            self.assertEqual(code, EXIT_USAGE, out + err)
            self.assertIn("the pixels depend on the GPU's model and on nvJPEG's version", err)
            code, out, err = self.penstock("replay", config, *verb, "--state", "gpu.state")
            self.assertNotEqual(code, EXIT_OK, out + err)
            self.assertIn("image.decoder was gpu, nvJPEG 13.0.1 on NVIDIA H200 and is unset", err)
            code, out, err = self.penstock("replay", config, *verb, "--state", "run.state")
            self.assertEqual(code, EXIT_OK, out + err)
        code, out, err = self.penstock("replay", config, "--verify", "run.journal", "--set", "image.decoder=cpu")
        self.assertEqual(code, EXIT_OK, out + err)

    def test_a_run_on_a_gpu_with_an_old_nvjpeg_is_refused_before_anything_is_started(self):
        if not json.loads(self.penstock("version", "--json")[1])["cuda"]:
            self.skipTest("built without CUDA")
        self.environment.update(PENSTOCK_NVJPEG=os.path.join(BIN, "..", "lib", "libfake_nvjpeg.so"), FAKE_NVJPEG_VERSION="11.9.2")
        code, _, err = self.penstock("run", self.config('decoder = "gpu"'), "--device", "cuda", "--quiet")
        self.assertEqual(code, EXIT_FAILED, err)
        self.assertIn("decoding JPEGs on the GPU needs nvJPEG: ", err)
        self.assertIn("is nvJPEG 11.9.2, but 12 or later is needed; install it (", err)

    def test_a_share_outside_0_to_1_is_refused_and_so_is_a_mixture(self):
        for share, says in (("1.5", "between 0 and 1"), ("1.000001", "between 0 and 1"), ("-0.1", "between 0 and 1"), ("nan", "finite number")):
            code, out, err = self.penstock("run", self.config('decoder = "hybrid"\ngpu_share = ' + share))
            self.assertEqual(code, EXIT_CONFIG, (share, err))
            self.assertIn("'gpu_share' in [image]", err, share)
            self.assertIn(says, err, share)
        parts = "".join('[[datasets]]\nname = "%s"\nweight = 0.5\npath = "photos"\n' % name for name in "ab")
        code, out, err = self.penstock("run", self.write("m.toml", parts + '[sampler]\nepoch_samples = 40\n[image]\ndecoder = "gpu"\n'))
        self.assertEqual(code, EXIT_CONFIG, err)
        self.assertIn("workers decode the pictures of a mixture", err)


if __name__ == "__main__":
    main()
