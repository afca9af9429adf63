#!/usr/bin/env python3
"""Compares the picture pipeline with Pillow on pictures of every kind that the dataset accepts.

Usage: pillow_compare.py PICTURE_TOOL WORK_FOLDER. Exit code 1 if a picture differs by more than the contract
allows.
"""
import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

SIZE = (224, 224)  # height, width


def photograph(width, height, seed):
    """Something with the spectrum of a photograph: blurred noise of several scales, edges, a little grain."""
    rng = np.random.default_rng(seed)
    picture = np.zeros((height, width, 3))
    for cells, weight in ((3, 90), (9, 60), (30, 35), (90, 12)):
        small = rng.random((max(2, cells * height // width + 2), cells + 2, 3)) * 255
        layer = Image.fromarray(small.astype(np.uint8)).resize((width, height), Image.BICUBIC)
        picture += weight / 200 * np.asarray(layer, dtype=float)
    y, x = np.mgrid[0:height, 0:width]
    for _ in range(6):
        cx, cy, r = rng.random() * width, rng.random() * height, (0.05 + 0.2 * rng.random()) * width
        inside = (x - cx) ** 2 + (y - cy) ** 2 < r * r
        picture[inside] = 0.5 * picture[inside] + 0.5 * rng.random(3) * 255
    picture += rng.normal(0, 2, picture.shape)
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))


def png16(picture, grey):
    """Writes a 16-bit RGB PNG, which Pillow cannot. The upper bytes are the picture, the lower ones noise."""
    high = np.asarray(picture.convert("L") if grey else picture)
    low = np.random.default_rng(5).integers(0, 256, high.shape, dtype=np.uint8)
    rows = np.stack([high, low], axis=-1).reshape(high.shape[0], -1)
    data = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", picture.width, picture.height, 16, 0 if grey else 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def oriented(value):
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()


def make_pictures(folder):
    """[(path, reference as an RGB picture)], the references after orientation."""
    made = []

    def add(name, data, reference=None):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(data)
        if reference is None:
            with Image.open(io.BytesIO(data)) as picture:
                reference = ImageOps.exif_transpose(picture).convert("RGB")
        made.append((path, reference))

    def saved(picture, kind, **options):
        buffer = io.BytesIO()
        picture.save(buffer, kind, **options)
        return buffer.getvalue()

    base = photograph(500, 375, 1)
    odd = photograph(377, 501, 2)
    large = photograph(2051, 1533, 3)
    for subsampling, name in ((0, "444"), (1, "422"), (2, "420")):
        add(f"base-{name}.jpg", saved(base, "JPEG", quality=90, subsampling=subsampling))
        add(f"odd-{name}.jpg", saved(odd, "JPEG", quality=75, subsampling=subsampling))
        add(f"large-{name}.jpg", saved(large, "JPEG", quality=90, subsampling=subsampling))
        add(f"progressive-{name}.jpg",
            saved(odd, "JPEG", quality=85, subsampling=subsampling, progressive=True))
    add("large-progressive.jpg", saved(large, "JPEG", quality=90, progressive=True))
    add("grey.jpg", saved(base.convert("L"), "JPEG", quality=90))
    add("grey-progressive.jpg", saved(odd.convert("L"), "JPEG", quality=90, progressive=True))
    add("cmyk.jpg", saved(base.convert("CMYK"), "JPEG", quality=95))
    add("cmyk-progressive.jpg", saved(odd.convert("CMYK"), "JPEG", quality=95, progressive=True))
    for value in range(1, 9):
        add(f"exif-{value}.jpg", saved(odd, "JPEG", quality=90, exif=oriented(value)))
        add(f"large-exif-{value}.jpg",
            saved(large.resize((1200, 700)), "JPEG", quality=90, exif=oriented(value)))
    for width, height in ((1, 1), (1, 300), (300, 1), (2, 3), (7, 5), (17, 400), (640, 9)):
        add(f"tiny-{width}x{height}.jpg", saved(base.resize((width, height)), "JPEG", quality=90))
        add(f"tiny-{width}x{height}.png", saved(base.resize((width, height)), "PNG"))
    alpha = base.convert("RGBA")
    alpha.putalpha(Image.linear_gradient("L").resize(base.size))
    add("rgb.png", saved(base, "PNG"))
    add("rgba.png", saved(alpha, "PNG"))
    add("grey.png", saved(base.convert("L"), "PNG"))
    add("grey-alpha.png", saved(alpha.convert("LA"), "PNG"))
    add("palette.png", saved(base.convert("P", palette=Image.ADAPTIVE, colors=200), "PNG"))
    add("palette-4bit.png", saved(base.quantize(13), "PNG", bits=4))
    add("palette-transparent.png", saved(base.quantize(64), "PNG", transparency=3))
    add("one-bit.png", saved(base.convert("1"), "PNG"))
    add("exif-6.png", saved(odd, "PNG", exif=oriented(6)))
    add("rgb16.png", png16(base, False), base)
    add("grey16.png", png16(base, True), base.convert("L").convert("RGB"))
    for name, options in (("lossless", {"lossless": True}), ("lossy", {"quality": 85}), ("low", {"quality": 20, "method": 0})):
        add(f"{name}.webp", saved(base, "WEBP", **options))
        add(f"{name}-odd.webp", saved(odd, "WEBP", **options))
        add(f"{name}-large.webp", saved(large, "WEBP", **options))
        add(f"{name}-alpha.webp", saved(alpha, "WEBP", **options))
        add(f"{name}-exif-6.webp", saved(odd, "WEBP", exif=oriented(6), **options))
        add(f"{name}-tiny.webp", saved(base.resize((1, 3)), "WEBP", **options))
    add("exact-alpha.webp", saved(alpha, "WEBP", lossless=True, exact=True))
    add("grey.webp", saved(base.convert("L"), "WEBP", lossless=True))
    add("webp-named.png", saved(base, "WEBP"))
    add("png-named.jpg", saved(base, "PNG"))
    add("jpeg-named.png", saved(base, "JPEG", quality=90))
    return made


def largest_box(width, height):
    """The documented box for augment = none, computed independently."""
    tall, wide = SIZE
    if width * tall > height * wide:
        box = (max(1, height * wide // tall), height)
    else:
        box = (width, max(1, width * tall // wide))
    return (height - box[1]) // 2, (width - box[0]) // 2, box[1], box[0]


def run_tool(tool, folder, requests):
    pixels = os.path.join(folder, "pixels.rgb")
    lines = "".join("\t".join(map(str, request)) + "\n" for request in requests)
    answers = subprocess.run([tool, "rows", pixels], input=lines, capture_output=True, text=True, check=True)
    rows = np.fromfile(pixels, dtype=np.uint8).reshape(-1, SIZE[0], SIZE[1], 3)
    return answers.stdout.splitlines(), rows


def resized(reference, box):
    top, left, height, width = box
    edges = (left, top, left + width, top + height)
    return np.asarray(reference.resize((SIZE[1], SIZE[0]), Image.BILINEAR, box=edges))


def check_none(tool, folder, pictures):
    requests = [(path, "none", *SIZE, 1, 0, 0, "exif") for path, _ in pictures]
    answers, rows = run_tool(tool, folder, requests)
    bad, worst_mean, worst_max = 0, 0, 0
    for (path, reference), answer, row in zip(pictures, answers, rows, strict=True):
        fields = answer.split()
        box = tuple(map(int, fields[1:5])) if fields[0] == "ok" else None
        if box != largest_box(*reference.size):
            print(f"{os.path.basename(path)}: {answer}, expected the box {largest_box(*reference.size)}")
            bad += 1
            continue
        difference = np.abs(row.astype(int) - resized(reference, box).astype(int))
        worst_mean, worst_max = max(worst_mean, difference.mean()), max(worst_max, difference.max())
        if difference.mean() > 1.5 or difference.max() > 24:
            print(f"{os.path.basename(path)}: mean difference {difference.mean():.2f}, "
                  f"largest {difference.max()}")
            bad += 1
    print(f"none: {len(pictures)} pictures, worst mean difference {worst_mean:.3f} levels, "
          f"largest {worst_max}")
    return bad


def check_random_crops(tool, folder, pictures, epochs=12):
    requests = [(path, "random-resized-crop", *SIZE, 9, epoch, index, "exif")
                for epoch in range(epochs) for index, (path, _) in enumerate(pictures)]
    answers, rows = run_tool(tool, folder, requests)
    bad, quality = 0, []
    for request, answer, row in zip(requests, answers, rows, strict=True):
        name, reference = os.path.basename(request[0]), pictures[request[6]][1]
        fields = answer.split()
        if fields[0] != "ok":
            print(f"{name}: {answer}")
            bad += 1
            continue
        top, left, height, width = map(int, fields[1:5])
        inside = top + height <= reference.height and left + width <= reference.width
        if not (height >= 1 and width >= 1 and inside):
            print(f"{name}: the box {fields[1:5]} is not inside {reference.size}")
            bad += 1
            continue
        expected = resized(reference, (top, left, height, width)).astype(float)
        error = ((row.astype(float) - expected) ** 2).mean()
        quality.append(99.0 if error == 0 else min(99.0, 10 * np.log10(255 * 255 / error)))
        if quality[-1] < 30:
            print(f"{name}: only {quality[-1]:.1f} dB, box {fields[1:5]}")
    print(f"random-resized-crop: {len(quality)} crops, mean {np.mean(quality):.1f} dB, "
          f"lowest {min(quality):.1f} dB")
    return bad + (1 if np.mean(quality) < 34 else 0)


def main():
    tool, folder = sys.argv[1:3]
    os.makedirs(folder, exist_ok=True)
    pictures = make_pictures(folder)
    bad = check_none(tool, folder, pictures) + check_random_crops(tool, folder, pictures)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
