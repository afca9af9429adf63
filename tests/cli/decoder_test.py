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

    def test_a_share_outside_0_to_1_is_refused_and_so_is_a_mixture(self):
        code, out, err = self.penstock("run", self.config('decoder = "hybrid"\ngpu_share = 1.5'))
        self.assertEqual(code, EXIT_CONFIG, err)
        self.assertIn("gpu_share", err)
        parts = "".join('[[datasets]]\nname = "%s"\nweight = 0.5\npath = "photos"\n' % name for name in "ab")
        code, out, err = self.penstock("run", self.write("m.toml", parts + '[sampler]\nepoch_samples = 40\n[image]\ndecoder = "gpu"\n'))
        self.assertEqual(code, EXIT_CONFIG, err)
        self.assertIn("workers decode the pictures of a mixture", err)


if __name__ == "__main__":
    main()
