"""penstock preview: the contact sheet shows the pixels that are on the device."""

from harness import *

from PIL import Image
import numpy

CONFIG = """
name = "sheet"
[dataset]
type = "image-folder"
path = "{path}"
[image]
size = [48, 64]
augment = "{augment}"
[sampler]
batch_size = 6
seed = 5
epochs = 2
[gpu]
device = "host"
dtype = "{dtype}"
layout = "{layout}"
"""


class PreviewTest(PenstockTest):
    def config(self, augment="random-resized-crop", dtype="float16", layout="nchw"):
        photos = os.path.join(self.folder, "photos")
        if not os.path.isdir(photos):
            make_photos(photos, 20)
        return self.write("sheet.toml", CONFIG.format(path=photos, augment=augment, dtype=dtype, layout=layout))

    def preview(self, config, *options):
        path = os.path.join(self.folder, "sheet.png")
        code, out, err = self.penstock("preview", config, "--out", path, "--json", *options)
        self.assertEqual(code, EXIT_OK, err + out)
        return json.loads(out), numpy.asarray(Image.open(path).convert("RGB")).astype(int)

    def bytes_of_batch(self, config, epoch, seq):
        """The bytes on the device, before any normalisation."""
        out = os.path.join(self.folder, "npy")
        self.run_json(config, "--sink", "npy", "--out", out, "--set", "gpu.dtype=\"uint8\"", "--set", "gpu.layout=\"nhwc\"")
        name = os.path.join(out, "e%d-b%06d" % (epoch, seq))
        return numpy.load(name + ".image.npy").astype(int), numpy.load(name + ".label.npy"), numpy.load(name + ".index.npy")

    def check_sheet(self, config, options, epoch, seq):
        facts, sheet = self.preview(config, *options)
        images, labels, indices = self.bytes_of_batch(config, epoch, seq)
        self.assertEqual((facts["epoch"], facts["seq"]), (epoch, seq))
        self.assertEqual([s["sample"] for s in facts["samples"]], list(indices))
        self.assertEqual([s["class"] for s in facts["samples"]], ["class%d" % label for label in labels])
        self.assertTrue(all(s["path"].startswith(s["class"] + "/") for s in facts["samples"]))
        # Tiles of 64 pixels are shown at twice the size to make room for their names.
        for number, image in enumerate(images):
            tile = image.repeat(2, axis=0).repeat(2, axis=1)
            self.assertTrue(self.lies_in(sheet, tile), "picture %d is not in the sheet" % number)

    def lies_in(self, sheet, tile):
        height, width = tile.shape[:2]
        corner = tile[0, 0]
        candidates = numpy.argwhere((abs(sheet[:-height + 1, :-width + 1] - corner) <= 1).all(axis=2))
        return any((abs(sheet[y:y + height, x:x + width] - tile) <= 1).all() for y, x in candidates)

    def test_every_picture_of_the_batch_is_in_the_sheet_pixel_for_pixel(self):
        self.check_sheet(self.config(), (), 0, 0)

    def test_normalisation_is_undone_for_every_type_and_layout(self):
        for dtype, layout in (("float32", "nhwc"), ("bfloat16", "nchw"), ("uint8", "nhwc"), ("uint8", "nchw")):
            config = self.config(dtype=dtype, layout=layout)
            if dtype != "bfloat16":
                self.check_sheet(config, (), 0, 0)
            else:  # eight bits of fraction: accurate to about one part in 128
                facts, sheet = self.preview(config)
                self.assertGreater(sheet.std(), 20)

    def test_a_later_batch_is_the_one_that_a_run_delivers_at_that_position(self):
        self.check_sheet(self.config(), ("--batch", "2"), 0, 2)
        self.check_sheet(self.config(), ("--batch", "5"), 1, 1)

    def test_a_dataset_without_pictures_is_refused_and_the_error_lists_its_tensors(self):
        code, out, _ = self.penstock("preview", self.write("s.toml", synthetic()), "--out", "x.png", "--json")
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("the tensors data", json.loads(out)["error"]["message"])

    def test_a_picture_that_cannot_be_written_and_a_broken_config_are_errors(self):
        self.assertEqual(self.penstock("preview", self.config(), "--out", "/nonexistent/x.png")[0], EXIT_FAILED)
        self.assertEqual(self.penstock("preview", self.write("bad.toml", "nonsense = 1"), "--out", "x.png")[0], EXIT_CONFIG)


if __name__ == "__main__":
    main()
