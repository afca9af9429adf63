"""Datasets whose samples have random structures, shapes and dtypes, equal within a batch; and a comparison byte for byte.

A batch's structure depends only on (seed, number of the batch), and a sample's content on (seed, index), so every loader makes the same
batches.
"""

import collections
import os
import random

import numpy
import torch

__all__ = ["RandomBatches", "RandomStream", "equal", "random_value", "seed_of_run"]

Point = collections.namedtuple("Point", "x y")
MOST_SAMPLES = 64  # samples in a batch

TORCH_TYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
               torch.bool, torch.complex64)
NUMPY_TYPES = ("u1", "i2", "i4", "i8", "f2", "f4", "f8", "?", "c8")


def seed_of_run():
    """The seed from PENSTOCK_TEST_SEED, or a random one. Print it with each failure."""
    return int(os.environ.get("PENSTOCK_TEST_SEED", random.SystemRandom().randrange(1 << 30)))


def shape_of(draw, elements):
    """A shape of at most this many elements."""
    shape = []
    for _ in range(draw.randrange(4)):
        shape.append(draw.randrange(1, max(2, min(elements, 300))))
        elements //= shape[-1]
    return (*shape, draw.randrange(max(1, elements) + 1) if draw.random() < 0.3 else max(1, elements))


def structure(kinds, sizes, most_bytes, depth=0):
    """A function from a source of bytes to a value; every call returns the same structure.

    Args:
        kinds, sizes: random.Random: types are drawn from the one, shapes from the other.
    """
    nested, plain = ("dict", "dict", "list", "pair"), ("tensor",) * 5 + ("array", "array", "int", "float", "text", "bytes")
    kind = kinds.choice(plain if depth > 2 or (depth == 0 and kinds.random() < 0.1) else nested if depth == 0 else plain + nested)
    size = int(most_bytes ** sizes.choice((sizes.random(), sizes.uniform(0.8, 1))))
    if kind == "tensor":
        dtype = kinds.choice(TORCH_TYPES)
        width = torch.empty(0, dtype=dtype).element_size()
        shape = shape_of(sizes, max(1, size // width))
        return lambda source: tensor_of(source, dtype, shape, width)
    if kind == "array":
        dtype = numpy.dtype(kinds.choice(NUMPY_TYPES))
        shape = shape_of(sizes, max(1, size // dtype.itemsize))
        return lambda source: array_of(source, dtype, shape)
    if kind == "int":
        return lambda source: source.randrange(-(1 << 62), 1 << 62)
    if kind == "float":
        return lambda source: source.random()
    if kind == "text":
        longest = min(size, 5000)
        return lambda source: "t" * source.randrange(longest + 1) + str(source.random())
    if kind == "bytes":
        longest = min(size, 5000)
        return lambda source: source.randbytes(source.randrange(longest + 1))
    members = [structure(kinds, sizes, most_bytes // 2, depth + 1) for _ in range(2 if kind == "pair" else kinds.randrange(1, 6))]
    if kind == "dict":
        return lambda source: {"k%d" % place: member(source) for place, member in enumerate(members)}
    if kind == "pair":
        return lambda source: Point(*(member(source) for member in members))
    return lambda source: [member(source) for member in members]


def tensor_of(source, dtype, shape, width):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    data = bytearray(source.randbytes(count * width))
    if not data:
        return torch.empty(shape, dtype=dtype)
    if dtype is torch.bool:
        data = bytearray(byte & 1 for byte in data[: 1 << 16]) * (len(data) // (1 << 16) + 1)
        data = data[:count]
    return torch.frombuffer(data, dtype=dtype).view(shape)


def array_of(source, dtype, shape):
    count = int(numpy.prod(shape, dtype=numpy.int64))
    if dtype == numpy.bool_:
        return (numpy.frombuffer(source.randbytes(count), dtype="u1") & 1).astype(bool).reshape(shape)
    return numpy.frombuffer(bytearray(source.randbytes(count * dtype.itemsize)), dtype=dtype).reshape(shape)


def random_value(seed, index, most_bytes):
    """One random structure, filled."""
    drawn = random.Random("%d %d" % (seed, index))
    return structure(drawn, drawn, most_bytes)(random.Random("%d %d content" % (seed, index)))


class RandomBatches(torch.utils.data.Dataset):
    """Index MOST_SAMPLES * n + k is sample k of batch n: pass `batches()` as the batch_sampler.

    In three of four datasets all batches have the same types, and shapes grow or shrink by up to a half from one batch to the next.
    """

    def __init__(self, seed, count, most_bytes):
        self.seed, self.count, self.most_bytes = seed, count, most_bytes
        self.known = None, None

    def __len__(self):
        return self.count * MOST_SAMPLES

    def batches(self):
        draw = random.Random("%d sizes" % self.seed)
        fixed = draw.randrange(4, MOST_SAMPLES)
        return [[MOST_SAMPLES * number + place for place in range(fixed if self.seed % 4 else int(MOST_SAMPLES ** draw.random()))]
                for number in range(self.count)]

    def made_like(self, number):
        own = random.Random("%d %d" % (self.seed, number))
        if self.seed % 4 == 0:
            return structure(own, own, int(self.most_bytes ** own.random()))
        scaled = int(self.most_bytes * own.uniform(0.5, 1))
        return structure(random.Random("%d kinds" % self.seed), random.Random("%d shapes" % self.seed), scaled)

    def __getitem__(self, index):
        number = index // MOST_SAMPLES
        if self.known[0] != number:
            self.known = number, self.made_like(number)
        return self.known[1](random.Random("%d %d content" % (self.seed, index)))


class RandomStream(torch.utils.data.IterableDataset):
    """The same samples, batch after batch of `size` samples, divided among the workers."""

    def __init__(self, seed, count, most_bytes, size):
        self.map, self.size = RandomBatches(seed, count, most_bytes), size

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        shard, shards = (info.id, info.num_workers) if info else (0, 1)
        for number in range(shard, self.map.count, shards):
            for place in range(self.size):
                yield self.map[MOST_SAMPLES * number + place]


def equal(one, other):
    """Whether types, structure, shapes and bytes are equal."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bytes_of(one) == bytes_of(other)
    if isinstance(one, numpy.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def bytes_of(tensor):
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
