#!/usr/bin/env python3
"""Compares the decoders of [image] decoder: jpeg_decoders.py FOLDER [BIN] [--workers N] [--seconds S]

Prints a Markdown table for random-resized-crop 224 to float16: photographs a second after the first third of the epochs,
and processor time of all processes per photograph. Then prints how much pixels differ from Pillow's, in whole pictures and
in crops, and whether digests stay equal with other numbers of workers and slots. FOLDER has a folder for each class. BIN
holds the programs, build/release/bin by default. If nvjpeg-alone is among them, nvJPEG without penstock is measured first.
Needs a GPU, nvJPEG for all rows but the first, and NumPy and Pillow for the pixels.
"""

import argparse
import glob
import json
import math
import os
import subprocess
import tempfile

from penstock_json import penstock_in, processor_seconds

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONFIG = """
[dataset]
path = "%s"
[sampler]
batch_size = %d
epochs = %d
shuffle = %s
[loader]
workers = %d
[gpu]
device = "cuda"
[image]
%s
"""


class bench:
    def __init__(self, given, folder):
        self.given = given
        self.folder = folder
        self.samples = len(glob.glob(os.path.join(given.folder, "*", "*.jp*g")))

    def run(self, image, epochs=1, batch=256, shuffle=True, options=()):
        """Returns the report, and the processor seconds of all processes."""
        file = os.path.join(self.folder, "b.toml")
        with open(file, "w") as out:
            out.write(CONFIG % (os.path.abspath(self.given.folder), batch, epochs, str(shuffle).lower(),
                                self.given.workers, image))
        before = processor_seconds()
        return penstock_in(self.given.bin)("run", file, *options), processor_seconds() - before

    def rate(self, image, guess):
        epochs = max(3, math.ceil(self.given.seconds * guess / self.samples) + 1)
        report, seconds = self.run(image, epochs)
        later = report["epochs"][len(report["epochs"]) // 3:]  # the first epochs include page-locking the slots
        delivered = sum(e["delivered"] for e in report["epochs"])
        return sum(e["delivered"] for e in later) / sum(e["seconds"] for e in later), 1e6 * seconds / delivered

    def pixels(self, image, augment):
        """Mean difference from Pillow's pixels, and PSNR, for the first 256 files in the dataset's order."""
        import numpy
        from PIL import Image
        out = tempfile.mkdtemp(dir=self.folder)
        self.run(image + '\naugment = "%s"' % augment, batch=64, shuffle=False,
                 options=("--batches", "4", "--sink", "npy", "--out", out, "--set", 'gpu.dtype="uint8"', "--set",
                          'gpu.layout="nhwc"', "--set", "image.flip=0.0"))
        names = sorted(glob.glob(os.path.join(self.given.folder, "*", "*.jp*g")))
        differences, ratios = [], []
        images = sorted(glob.glob(out + "/**/*image*.npy", recursive=True))
        crops = sorted(glob.glob(out + "/**/*crop*.npy", recursive=True))
        for b, (images_of, crops_of) in enumerate(zip(images, crops)):
            for i, (got, crop) in enumerate(zip(numpy.load(images_of), numpy.load(crops_of))):
                top, left, height, width = map(int, crop)
                picture = Image.open(names[64 * b + i]).convert("RGB")
                wanted = picture.resize((224, 224), Image.BILINEAR, (left, top, left + width, top + height))
                error = got.astype(float) - numpy.asarray(wanted)
                differences.append(abs(error).mean())
                ratios.append(10 * math.log10(255 * 255 / max((error * error).mean(), 1e-3)))
        return sum(differences) / len(differences), max(differences), sum(ratios) / len(ratios), min(ratios)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder")
    arguments.add_argument("bin", nargs="?", default=os.path.join(TOP, "build/release/bin"))
    arguments.add_argument("--workers", type=int, default=os.cpu_count())
    arguments.add_argument("--seconds", type=float, default=4)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        b = bench(given, folder)
        alone = os.path.join(given.bin, "nvjpeg-alone")
        if os.path.exists(alone):
            done = subprocess.run([alone, given.folder, str(given.seconds / 2)], capture_output=True, text=True)
            print("nvJPEG alone, of plain files: backend, batch, photographs/s\n%s%s" % (done.stdout, done.stderr))
        print("%d workers, %d files\n\n| decoder | photographs/s | CPU for each |\n| --- | --- | --- |" % (given.workers, b.samples))
        for name, image, guess in (("cpu", 'decoder = "cpu"', 8000), ("gpu", 'decoder = "gpu"', 25000),
                                   ("hybrid 0.9", 'decoder = "hybrid"\ngpu_share = 0.9', 25000),
                                   ("hybrid 0.8", 'decoder = "hybrid"', 25000),
                                   ("hybrid 0.7", 'decoder = "hybrid"\ngpu_share = 0.7', 20000)):
            print("| %s | %.0f | %.0f us |" % (name, *b.rate(image, guess)), flush=True)
        print()
        for decoder in ("cpu", "gpu"):
            for augment in ("none", "random-resized-crop"):
                print("%s, %s, compared with Pillow: mean %.2f levels, at most %.2f; PSNR mean %.1f dB, at least %.1f dB"
                      % (decoder, augment, *b.pixels('decoder = "%s"' % decoder, augment)), flush=True)
        digests = {}
        for decoder in ("cpu", "gpu", "hybrid"):
            for options in ((), ("--workers", "5"), ("--workers", "3", "--slots", "2"), ("--set", 'gpu.placement="process"')):
                report, _ = b.run('decoder = "%s"' % decoder, options=("--batches", "8", "--digest", *options))
                digests.setdefault(decoder, set()).add(json.dumps([e.get("digest") for e in report["epochs"]]))
            print("%s: %d digest of 8 batches in 4 runs" % (decoder, len(digests[decoder])))


main()
