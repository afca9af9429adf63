"""Pixels delivered by a complete run, compared with Pillow: the npy sink's files and their recorded boxes."""

import glob
import math
import os

import numpy
from PIL import Image, ImageOps

from harness import *

CONFIG = """
[dataset]
path = "photos"
[image]
size = [96, 128]
augment = "{augment}"
flip = {flip}
[sampler]
batch_size = 8
[gpu]
device = "host"
layout = "nhwc"
dtype = "uint8"
"""


class PixelsTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.photos = os.path.join(self.folder, "photos")
        make_photos(self.photos, 40, size=(300, 220))
        self.make_variants()
        self.paths = sorted(glob.glob(os.path.join(self.photos, "*", "*")))

    def make_variants(self):
        """Every kind of picture that is documented as supported."""
        source = Image.open(os.path.join(self.photos, "class0", "00000.jpg"))
        place = os.path.join(self.photos, "class9")
        os.makedirs(place)
        source.save(os.path.join(place, "progressive.jpg"), progressive=True, quality=92)
        source.convert("L").save(os.path.join(place, "grey.jpg"), quality=92)
        source.convert("CMYK").save(os.path.join(place, "cmyk.jpg"), quality=92)
        source.save(os.path.join(place, "png.png"))
        source.quantize(64).save(os.path.join(place, "palette.png"))
        source.convert("1").save(os.path.join(place, "one-bit.png"))
        fading = source.convert("RGBA")
        fading.putalpha(Image.linear_gradient("L").resize(source.size))
        fading.save(os.path.join(place, "alpha.png"))
        source.convert("L").save(os.path.join(place, "grey.png"))
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            source.save(os.path.join(place, "orientation%d.jpg" % orientation), exif=exif, quality=92)

    def delivered(self, augment, flip=0.0):
        """(path, pixels, crop, flip) of each sample."""
        out = os.path.join(self.folder, "out-" + augment)
        report = self.run_json(self.write("p.toml", CONFIG.format(augment=augment, flip=flip)), "--sink", "npy", "--out", out)
        self.assertEqual(report["failures"], [])
        for index_file in glob.glob(out + "/*.index.npy"):
            load = lambda name: numpy.load(index_file.replace(".index.", ".%s." % name))
            for i, image, crop, flipped in zip(numpy.load(index_file), load("image"), load("crop"), load("flip")):
                yield self.paths[i], image, crop, flipped

    @staticmethod
    def reference(path, crop, flipped):
        image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
        top, left, height, width = map(int, crop)
        image = image.resize((128, 96), Image.BILINEAR, box=(left, top, left + width, top + height))
        pixels = numpy.asarray(image).astype(float)
        return pixels[:, ::-1] if flipped else pixels

    def test_without_augmentation_no_picture_differs_from_pillow_by_more_than_a_level_and_a_half(self):
        count = 0
        for path, image, crop, flipped in self.delivered("none"):
            difference = numpy.abs(image.astype(float) - self.reference(path, crop, flipped))
            self.assertLessEqual(difference.mean(), 1.5, path)
            self.assertLessEqual(difference.max(), 24, path)
            self.assertEqual(flipped, 0)
            count += 1
        self.assertEqual(count, len(self.paths))

    def test_random_crops_equal_the_reported_box_resized_by_pillow(self):
        ratios, flips = [], 0
        for path, image, crop, flipped in self.delivered("random-resized-crop", flip=0.5):
            error = ((image.astype(float) - self.reference(path, crop, flipped)) ** 2).mean()
            ratios.append(99.0 if error == 0 else 10 * math.log10(255 * 255 / error))
            flips += int(flipped)
        self.assertGreaterEqual(sum(ratios) / len(ratios), 34.0)
        self.assertTrue(5 < flips < len(ratios) - 5)

    def test_a_centre_crop_is_in_the_middle_and_has_the_requested_fraction(self):
        for path, image, crop, flipped in self.delivered("centre-crop"):
            width, height = ImageOps.exif_transpose(Image.open(path)).size
            box_h, box_w = (height, height * 128 // 96) if width * 96 >= height * 128 else (width * 96 // 128, width)
            expected = int(box_h * 0.875 + 0.5), int(box_w * 0.875 + 0.5)
            self.assertEqual((crop[2], crop[3]), expected, path)
            self.assertEqual((crop[0], crop[1]), ((height - expected[0]) // 2, (width - expected[1]) // 2), path)

    def test_float16_nchw_equals_the_formula_of_the_same_uint8_pixels(self):
        config = self.write("f.toml", CONFIG.format(augment="random-resized-crop", flip=0.5))
        out8, out16 = os.path.join(self.folder, "u8"), os.path.join(self.folder, "f16")
        self.run_json(config, "--sink", "npy", "--out", out8)
        self.run_json(config, "--sink", "npy", "--out", out16, "--set", "gpu.dtype=float16", "--set", "gpu.layout=nchw")
        scale = numpy.float32([1.0 / (255.0 * s) for s in (0.229, 0.224, 0.225)])
        shift = numpy.float32([-m / s for m, s in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))])
        for name in glob.glob(out8 + "/*.image.npy"):
            pixels = numpy.load(name).astype(numpy.float64)
            # float64 holds the product exactly, so one rounding to float32 is the fused multiply-add.
            expected = (pixels * scale.astype(numpy.float64) + shift.astype(numpy.float64)).astype(numpy.float32)
            expected = expected.astype(numpy.float16).transpose(0, 3, 1, 2)
            numpy.testing.assert_array_equal(numpy.load(os.path.join(out16, os.path.basename(name))), expected)

    def test_bfloat16_in_npy_files_gives_its_values_as_documented(self):
        config = self.write("b.toml", CONFIG.format(augment="none", flip=0))
        out32, out16 = os.path.join(self.folder, "f32"), os.path.join(self.folder, "bf16")
        self.run_json(config, "--sink", "npy", "--out", out32, "--set", "gpu.dtype=float32")
        self.run_json(config, "--sink", "npy", "--out", out16, "--set", "gpu.dtype=bfloat16")
        names = sorted(name for name in os.listdir(out32) if name.endswith(".image.npy"))
        self.assertGreater(len(names), 5)
        for name in names:
            x = numpy.load(os.path.join(out16, name))
            self.assertEqual(x.dtype.str, "<u2")
            values = (x.astype(numpy.uint32) << 16).view(numpy.float32)
            exact = numpy.load(os.path.join(out32, name))
            numpy.testing.assert_allclose(values, exact, rtol=2.0 ** -8, atol=0)
            pixels = (exact * numpy.float32((0.229, 0.224, 0.225)) + numpy.float32((0.485, 0.456, 0.406))) * 255
            numpy.testing.assert_allclose(pixels, pixels.round(), atol=1e-3)
        with open(os.path.join(out16, "manifest.json")) as file:
            tensors = {tensor["name"]: tensor["dtype"] for tensor in json.load(file)["tensors"]}
        self.assertEqual((tensors["image"], tensors["label"]), ("bfloat16", "int64"))


if __name__ == "__main__":
    main()
