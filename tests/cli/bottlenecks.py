"""42 planted bottlenecks, and what `penstock why` must name for each: the limit and the key to change. Used by why_test.py."""

import os

from harness import *

SLOW_PROGRAM = "plugin:" + os.path.join(BIN, "slow_program.so")
ENDLESS = 1000000  # number of samples, or of epochs


class Bottleneck:
    """`limit`: a name, or several that are right. `config`: a function of the test, which may write files. `slow_worker`: this worker runs only a tenth of the time."""

    def __init__(self, limit, keys, what, config, workers=2, options=(), environment=None, slow_worker=None, seconds=9):
        self.limits, self.keys, self.what = (limit,) if isinstance(limit, str) else limit, keys, what
        self.config, self.workers, self.options = config, workers, list(options)
        self.environment, self.slow_worker, self.seconds = environment or {}, slow_worker, seconds


def made(dataset="", bytes="16KiB", batch=16, more="", samples=ENDLESS, epochs=1):
    return lambda test: synthetic(samples=samples, bytes=bytes, batch=batch, epochs=epochs, dataset=dataset, more=more)


def slow_disk(test, microseconds):
    """Settings for [loader] env, so that only workers read slowly."""
    return '[loader.env]\nLD_PRELOAD = "%s"\nPENSTOCK_SLOW_DISK = "%d:%s"\n' % (
        os.path.join(BIN, "slow_disk.so"), microseconds, os.path.realpath(test.folder))


def records(microseconds, batch=16):
    def config(test):
        test.write("records.bin", "x" * (64 << 20))
        return ('[dataset]\ntype = "raw"\npath = "records.bin"\nshape = [16384]\n[sampler]\nbatch_size = %d\nepochs = 100000\n'
                '[gpu]\ndevice = "host"\n' % batch) + slow_disk(test, microseconds)
    return config


def photos(size, side, disk=0, batch=16, more=""):
    def config(test):
        make_photos(os.path.join(test.folder, "photos"), 64, size=(size, size))
        text = ('[dataset]\ntype = "image-folder"\npath = "photos"\n[image]\nsize = [%d, %d]\n[sampler]\nbatch_size = %d\n'
                'epochs = 100000\n[gpu]\ndevice = "host"\n%s\n' % (side, side, batch, more))
        return text + (slow_disk(test, disk) if disk else "")
    return config


def late_workers(seconds, more=""):
    def config(test):
        return synthetic(samples=ENDLESS, epochs=1, bytes="16KiB", batch=16) + test.worker_program("sleep %g" % seconds) + more
    return config


def stalls(seconds, every=512, batch=8, more=""):
    """Sample 100 stalls once per epoch."""
    return made('faults = [{sample = 100, kind = "slow", seconds = %g, times = 0}]\nwork = "500us"' % seconds,
                samples=every, epochs=ENDLESS, batch=batch, more=more)


def uneven(part, more):
    """One batch in eight takes 20 times as long."""
    faults = ", ".join('{sample = %d, kind = "slow", seconds = %g, times = 0}' % (s, part) for s in range(3, 1024, 64))
    return made("faults = [%s]" % faults, samples=1024, epochs=ENDLESS, batch=8, more=more)


def two_of_64(batch):
    return made('faults = [{sample = 5, kind = "slow", seconds = 2, times = 0}, {sample = 40, kind = "slow", seconds = 2, times = 0}]\n'
                'work = "500us"', samples=64, epochs=ENDLESS, batch=batch)


CHAOS = {"PENSTOCK_CHAOS": "1"}


def link(bytes_per_second):
    return dict(CHAOS, PENSTOCK_SLOW_LINK=str(bytes_per_second))


def conversion(bytes_per_second):
    return dict(CHAOS, PENSTOCK_SLOW_CONVERSION=str(bytes_per_second))


EMBEDDED = ["--set", "gpu.placement=embedded"]
PROCESS = ["--set", "gpu.placement=process"]
SLOTS = {"loader.slots_per_worker"}
PASS = {"scheduler.order"}  # later batches may pass a late one
STALLED = ("order", "decode")  # on a busy machine, or if no batch behind the stalled one is ready, it is decode
WORKERS = {"loader.workers"}
LESS = {"dataset.work"} | WORKERS  # less work, or another number of workers: which of them depends on the number of cores
SMALLER = {"image.size"} | WORKERS

BOTTLENECKS = [
    # A slow disk: every read of a worker takes longer.
    Bottleneck("storage", WORKERS, "records, 2 ms a read, 1 worker", records(2000), workers=1),
    Bottleneck("storage", WORKERS, "records, 5 ms a read, 2 workers", records(5000)),
    Bottleneck("storage", WORKERS, "records, 20 ms a read, 4 workers", records(20000), workers=4),
    Bottleneck("storage", WORKERS, "records, 5 ms a read, owner in its process", records(5000), options=PROCESS),
    Bottleneck("storage", WORKERS, "photos, 10 ms a read", photos(64, 32, disk=10000)),
    Bottleneck("storage", WORKERS, "photos, 30 ms a read, 4 workers", photos(64, 32, disk=30000), workers=4),
    Bottleneck("storage", WORKERS, "3 ms of waiting a sample", made('wait = "3ms"')),
    Bottleneck("storage", WORKERS, "10 ms of waiting and 1 ms of work", made('wait = "10ms"\nwork = "1ms"'), workers=3),
    # Slow decoding, or one slow worker.
    Bottleneck("decode", LESS, "2 ms of work a sample, 1 worker", made('work = "2ms"'), workers=1),
    Bottleneck("decode", LESS, "3 ms of work, 2 workers", made('work = "3ms"')),
    Bottleneck("decode", LESS, "10 ms of work, owner in its process", made('work = "10ms"'), options=PROCESS),
    Bottleneck("decode", LESS, "5 ms of work and 1 ms of waiting", made('work = "5ms"\nwait = "1ms"')),
    Bottleneck("decode", LESS, "5 ms of work, 4 workers", made('work = "5ms"'), workers=4),
    Bottleneck("decode", SMALLER, "large photos, 1 worker", photos(1200, 32), workers=1),
    Bottleneck("decode", SMALLER, "large photos, owner in its process", photos(1200, 32), options=PROCESS),
    Bottleneck("decode", WORKERS, "worker/1 slower than its peer", made('work = "1ms"'), slow_worker=1),
    Bottleneck("decode", WORKERS, "worker/0 slower than its peers", made('work = "500us"'), workers=3, slow_worker=0),
    # Order: one head stalls while later batches are ready, or there are few or small slots.
    Bottleneck(STALLED, PASS, "a sample that takes 2 s in each epoch", stalls(2)),
    Bottleneck(STALLED, PASS, "a sample that takes 4 s in each epoch, 3 workers", stalls(4), workers=3),
    Bottleneck(STALLED, PASS, "the same with the owner in its process", stalls(2), options=PROCESS),
    Bottleneck(STALLED, PASS, "a sample that takes 25 s, once", stalls(25)),
    Bottleneck("order", SLOTS | PASS, "1 slot, and one batch in eight is slow, 4 workers",
               uneven(0.2, "[loader]\nslots_per_worker = 1"), workers=4),
    Bottleneck("order", SLOTS | PASS, "1 slot, one in eight slow, 6 workers", uneven(0.1, "[loader]\nslots_per_worker = 1"), workers=6),
    Bottleneck("order", SLOTS, "1 worker with 1 slot, which is copied half of the time",
               made('work = "300us"', bytes="64KiB", more="[loader]\nslots_per_worker = 1"), workers=1, environment=link(80 << 20)),
    # Most of the time is spent on a few samples. Whether the other worker waits for them or loads one, too, is chance.
    Bottleneck(STALLED, PASS, "2 of 64 samples take 2 s", two_of_64(8)),
    Bottleneck(STALLED, PASS, "2 of 64 samples take 2 s, large batches", two_of_64(16)),
    # A slow link to the device.
    Bottleneck("wire", {"dataset.dtype"}, "a link of 50 MiB/s", made(bytes="64KiB"), environment=link(50 << 20)),
    Bottleneck("wire", {"dataset.dtype"}, "a link of 100 MiB/s, large batches", made(bytes="256KiB", batch=32), environment=link(100 << 20)),
    Bottleneck("wire", {"dataset.dtype"}, "a link of 10 MiB/s, owner in its process", made(), environment=link(10 << 20), options=PROCESS),
    Bottleneck("wire", {"dataset.dtype"}, "a link of 50 MiB/s, 1 worker", made(bytes="64KiB"), workers=1, environment=link(50 << 20)),
    Bottleneck("wire", {"image.size"}, "a link of 5 MiB/s, photos", photos(64, 64), environment=link(5 << 20)),
    # A slow conversion on the device.
    Bottleneck("convert", {"gpu.dtype"}, "5 MiB/s of conversion", photos(64, 64), environment=conversion(5 << 20)),
    Bottleneck("convert", {"gpu.dtype"}, "2 MiB/s, owner in its process", photos(64, 64), environment=conversion(2 << 20), options=PROCESS),
    Bottleneck("convert", {"gpu.dtype"}, "2 MiB/s, float32", photos(64, 64, more='dtype = "float32"'), environment=conversion(2 << 20)),
    # A consumer with steps of 100 ms.
    Bottleneck("consumer", {None}, "slow steps", made(), options=["--sink", SLOW_PROGRAM]),
    Bottleneck("consumer", {None}, "slow steps, owner in its process", made(), options=["--sink", SLOW_PROGRAM, *PROCESS]),
    Bottleneck("consumer", {None}, "slow steps, and loading takes half as long", made('work = "3ms"'), options=["--sink", SLOW_PROGRAM]),
    Bottleneck("consumer", {None}, "slow steps, photos", photos(64, 32), options=["--sink", SLOW_PROGRAM]),
    # Workers that are not ready yet.
    Bottleneck("start", {"loader.start"}, "workers that need 6 s to start", late_workers(6), seconds=8),
    Bottleneck("start", {"loader.start"}, "workers that are never ready", late_workers(25), seconds=6),
    Bottleneck("start", {"loader.start"}, "workers that need 6 s, owner in its process", late_workers(6), options=PROCESS, seconds=8),
    Bottleneck("start", {"loader.limits.recycle_after_samples"}, "workers that are replaced again and again, and need 1 s to start",
               late_workers(1, "[loader.limits]\nrecycle_after_samples = 64\n"), seconds=12),
]
