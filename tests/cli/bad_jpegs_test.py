"""[image] decoder = "gpu" and JPEGs of every odd kind next to good ones in one batch. The same tests run on the host device, and with
PENSTOCK_TEST_DEVICE=cuda on a GPU.
"""

import glob
import shutil

import numpy
from PIL import Image

from harness import *

DEVICE = os.environ.get("PENSTOCK_TEST_DEVICE", "host")
CONFIG = """
[dataset]
path = "{folder}"
[image]
size = [64, 64]
augment = "none"
flip = 0.0
decoder = "gpu"
[sampler]
batch_size = 64
shuffle = false
epochs = 3
[loader]
workers = 2
[gpu]
device = "%s"
placement = "embedded"
layout = "nhwc"
dtype = "uint8"
""" % DEVICE
GOOD = 24


def with_frame(file, precision=None, side=None):
    """The same file with other values in the header of its frame."""
    at = file.index(b"\xff\xc0")
    file = bytearray(file)
    if precision:
        file[at + 4] = precision
    if side:
        file[at + 5:at + 9] = struct.pack(">HH", side, side)
    return bytes(file)


class BadJpegsTest(PenstockTest):
    def setUp(self):
        super().setUp()
        make_photos(os.path.join(self.folder, "good"), GOOD, classes=1)
        shutil.copytree(os.path.join(self.folder, "good"), os.path.join(self.folder, "mixed"))
        good = os.path.join(self.folder, "good", "class0", "00003.jpg")
        picture = Image.open(good)
        with open(good, "rb") as file:
            plain = file.read()
        data = plain.index(b"\xff\xda") + 14
        middle = (data + len(plain)) // 2
        # Workers decode these, or report why they cannot.
        self.place("progressive", picture, progressive=True)
        self.place("cmyk", picture.convert("CMYK"))
        self.place("one-pixel", picture.resize((1, 1)))
        self.place("long", picture.resize((65500, 16)))
        self.bad = {"corrupt": plain[:middle] + b"\xff\x00" * 40 + plain[middle + 80:],
                    "truncated": plain[:middle],
                    "sixteen-bits": with_frame(plain, precision=16),
                    "huge": with_frame(plain, side=65500)}
        for name, content in self.bad.items():
            with open(os.path.join(self.folder, "mixed", "class0", self.name_of(name)), "wb") as file:
                file.write(content)

    @staticmethod
    def name_of(kind):
        return "00005-%s.jpg" % kind  # in the middle of the good ones

    def place(self, kind, picture, **options):
        for folder in ("good", "mixed"):
            picture.save(os.path.join(self.folder, folder, "class0", self.name_of(kind)), quality=90, **options)

    def run_folder(self, folder):
        """The report, the log, and the pixels of each file in each epoch."""
        out = os.path.join(self.folder, "out-" + folder)
        code, told, log = self.penstock("run", self.write(folder + ".toml", CONFIG.format(folder=folder)), "--json", "--sink", "npy", "--out", out)
        self.assertEqual(code, EXIT_OK, log)
        report = json.loads(told)
        self.assertEqual(report["device"]["kind"], DEVICE)
        self.check_sums(report)
        paths = sorted(glob.glob(os.path.join(self.folder, folder, "*", "*")))
        pixels = {}
        for file in glob.glob(out + "/*.index.npy"):
            epoch = os.path.basename(file).split("-")[0]
            for index, image in zip(numpy.load(file), numpy.load(file.replace(".index.", ".image."))):
                pixels[epoch, os.path.basename(paths[index])] = image
        return report, log, pixels

    def test_in_a_batch_each_bad_jpeg_fails_by_name_and_all_others_have_the_same_pixels_as_without_it(self):
        _, _, wanted = self.run_folder("good")
        report, log, pixels = self.run_folder("mixed")
        self.assertEqual([epoch["batches"] for epoch in report["epochs"]], [1, 1, 1])
        failed = {os.path.basename(failure["path"]): failure["error"] for failure in report["failures"]}
        self.assertEqual(set(failed), {self.name_of(kind) for kind in self.bad})
        self.assertEqual([epoch["failed"] for epoch in report["epochs"]], [len(self.bad)] * 3)
        self.assertRegex(failed[self.name_of("truncated")], "(?i)premature end")
        self.assertRegex(failed[self.name_of("corrupt")], "(?i)corrupt")
        self.assertRegex(failed[self.name_of("sixteen-bits")], "(?i)precision 16")
        self.assertIn("65500 x 65500 pixels are more than max_pixels", failed[self.name_of("huge")])
        self.assertEqual(len(pixels), 3 * (GOOD + 4))
        self.assertEqual(set(pixels), set(wanted))
        for of, image in wanted.items():
            numpy.testing.assert_array_equal(pixels[of], image, str(of))
        if DEVICE == "cuda":
            self.assertRegex(log, r"nvJPEG decoded %d JPEGs, and the workers %d pictures" % (3 * GOOD, 3 * 4))

    def test_pictures_that_workers_decode_have_the_pixels_of_decoder_cpu(self):
        _, _, pixels = self.run_folder("mixed")
        code, _, log = self.penstock("run", os.path.join(self.folder, "mixed.toml"), "--set", "image.decoder=cpu", "--sink", "npy", "--out",
                                     os.path.join(self.folder, "cpu"))
        self.assertEqual(code, EXIT_OK, log)
        index = numpy.load(os.path.join(self.folder, "cpu", "e0-b000000.index.npy"))
        images = numpy.load(os.path.join(self.folder, "cpu", "e0-b000000.image.npy"))
        paths = sorted(glob.glob(os.path.join(self.folder, "mixed", "*", "*")))
        of_cpu = {os.path.basename(paths[i]): image for i, image in zip(index, images)}
        for kind in ("progressive", "cmyk", "one-pixel", "long"):
            numpy.testing.assert_array_equal(pixels["e0", self.name_of(kind)], of_cpu[self.name_of(kind)], kind)


class UnusableNvjpegTest(PenstockTest):
    @unittest.skipIf(DEVICE != "cuda", "PENSTOCK_TEST_DEVICE=cuda")
    def test_without_a_recent_nvjpeg_the_decoder_gpu_is_refused_and_hybrid_decodes_in_the_workers(self):
        make_photos(os.path.join(self.folder, "good"), GOOD)
        config = self.write("good.toml", CONFIG.format(folder="good"))
        wanted = self.digests(config, "--set", "image.decoder=cpu")
        for library, says in ((os.path.join(BIN, "..", "lib", "libfake_nvjpeg.so"), "is nvJPEG 11.9.2, but 12 or later is needed"),
                              ("/nowhere/libnvjpeg.so.13", "/nowhere/libnvjpeg.so.13")):
            self.environment.update(PENSTOCK_NVJPEG=library, FAKE_NVJPEG_VERSION="11.9.2")
            code, _, err = self.penstock("run", config, "--quiet")
            self.assertEqual(code, EXIT_FAILED, err)
            self.assertIn(says, err)
            code, out, err = self.penstock("run", config, "--json", "--digest", "--set", "image.decoder=hybrid")
            self.assertEqual(code, EXIT_OK, err)
            self.assertEqual([epoch["digest"] for epoch in json.loads(out)["epochs"]], wanted)
            self.assertIn(says, err)
            self.assertIn("the workers decode all JPEGs", err)


if __name__ == "__main__":
    main()
