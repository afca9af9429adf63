#!/usr/bin/env python3
"""Cuts photographs of 500 x 375 from large pictures: make_photos.py FOLDER COUNT [SOURCE]

SOURCE is a folder of JPEGs, by default where Debian's package mate-backgrounds puts them. Needs Pillow.
"""

import glob
import os
import random
import sys

from PIL import Image

WIDTH, HEIGHT, QUALITY, CLASSES = 500, 375, 90, 8


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    source = sys.argv[3] if len(sys.argv) > 3 else "/usr/share/backgrounds/mate"
    pictures = sorted(glob.glob(os.path.join(source, "**", "*.jpg"), recursive=True))
    if not pictures:
        sys.exit("no JPEGs in %s: apt-get install mate-backgrounds, or name another folder" % source)
    draw = random.Random(1)
    images = [Image.open(p).convert("RGB") for p in pictures]
    # Halve the pictures, so that grain and detail resemble those of an image collection, not of a desktop background.
    images = [i.resize((i.width // 2, i.height // 2), Image.LANCZOS) for i in images]
    for index in range(count):
        image = draw.choice([i for i in images if i.width > WIDTH and i.height > HEIGHT])
        left, top = draw.randrange(image.width - WIDTH), draw.randrange(image.height - HEIGHT)
        place = os.path.join(folder, "class%d" % (index % CLASSES))
        os.makedirs(place, exist_ok=True)
        image.crop((left, top, left + WIDTH, top + HEIGHT)).save(os.path.join(place, "%05d.jpg" % index), quality=QUALITY)


main()
