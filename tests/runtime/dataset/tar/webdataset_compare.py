"""Compares what the tar dataset makes of shards with what Python's tarfile, Pillow and NumPy, and webdataset's own reader if it is
installed, make of them. Usage: webdataset_compare.py TAR_TOOL FOLDER"""

import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile

import numpy
from PIL import Image

try:
    import webdataset
except ImportError:
    webdataset = None

TOOL, FOLDER = sys.argv[1:3]
SIDE = 32
MEMBERS = {"image": "png;webp", "label": "cls", "caption": "txt", "meta": "json", "embedding": "emb.npy"}


def samples_of(shard):
    choose = random.Random(shard)
    for number in range(40):
        picture, array = io.BytesIO(), io.BytesIO()
        noise = choose.randbytes(SIDE * SIDE * 3)
        kind = ("png", "webp", "webp")[number % 3]
        Image.frombytes("RGB", (SIDE, SIDE), noise).save(picture, kind.upper(), lossless=number % 3 == 1)
        numpy.save(array, numpy.arange(number, number + 6, dtype=numpy.float32).reshape(2, 3))
        yield {"__key__": "deep/" * choose.randrange(50) + "%05d-%d" % (number, shard), kind: picture.getvalue(),
               "cls": str(choose.randrange(-5, 1000)).encode(), "txt": ("caption %d " % number * choose.randrange(1, 30)).encode(),
               "json": json.dumps({"n": number}).encode(), "emb.npy": array.getvalue()}


def write_with_tarfile(path, samples, format):
    with tarfile.open(path, "w", format=format) as archive:
        for sample in samples:
            for extension, contents in sample.items():
                if extension == "__key__":
                    continue
                facts = tarfile.TarInfo(sample["__key__"] + "." + extension)
                facts.size = len(contents)
                facts.mtime = 1234567890.125  # a PAX record of its own
                archive.addfile(facts, io.BytesIO(contents))


def write_with_webdataset(path, samples):
    with webdataset.TarWriter(path, encoder=False) as writer:
        for sample in samples:
            writer.write(sample)


def dumped(folder):
    """[(name, {tensor: bytes})] of all samples in order."""
    lines = subprocess.run([TOOL, "dump", folder, str(SIDE), *("%s=%s" % one for one in MEMBERS.items())], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    found = []
    for line in lines:
        sample, name, tensor, contents = line.split("\t")
        if int(sample) == len(found):
            found.append((name, {}))
        found[int(sample)][1][tensor] = bytes.fromhex(contents)
    return found


def expected_tensors(members):
    picture = Image.open(io.BytesIO(members.get("png") or members["webp"])).convert("RGB")
    return {"image": picture.tobytes(), "label": int(members["cls"]).to_bytes(8, "little", signed=True), "caption": members["txt"],
            "meta": members["json"], "embedding": numpy.load(io.BytesIO(members["emb.npy"])).tobytes()}


def compare(name, write):
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    expected = []
    for shard in range(3):
        path = os.path.join(folder, "train-%03d.tar" % shard)
        samples = list(samples_of(shard))
        write(path, samples)
        if webdataset:
            read = list(webdataset.WebDataset(path, shardshuffle=False))
        else:
            read = samples
        expected += [("%s:%s" % (os.path.basename(path), one["__key__"]),
                      {key: value for key, value in one.items() if not key.startswith("__")}) for one in read]
    found = dumped(folder)
    assert [key for key, _ in found] == [key for key, _ in expected], name + ": other samples, or in a different order"
    for (key, tensors), (_, members) in zip(found, expected):
        for tensor, contents in expected_tensors(members).items():
            assert tensors[tensor] == contents, "%s: %s: %s differs" % (name, key, tensor)
    print("%s: %d samples are equal%s" % (name, len(found), ", in webdataset's reader too" if webdataset else ""))


compare("gnu", lambda path, samples: write_with_tarfile(path, samples, tarfile.GNU_FORMAT))
compare("pax", lambda path, samples: write_with_tarfile(path, samples, tarfile.PAX_FORMAT))
if webdataset:
    compare("webdataset", write_with_webdataset)
