#!/usr/bin/env python3
"""Compares token files with memcpy: tokens.py [BIN [trillion]] [--device DEVICE] [--workers N] [--batch N] [--batches N]

Prints the results of three measurements:

  rate      sequences a second, and bytes that reach the device: 10 GB of uint16 in one sparse file, sequences of 4096, batches of 32, 2 workers
            with 8 slots, the host device. Compared with one thread per worker that only copies: 32 KiB per sequence (its int32 tokens and
            targets), by memcpy from random places of a mapping of the same file. Both run in turn. On a machine with a GPU and 16 cores, use
            --device cuda --workers 8 --batch 256 --batches 24000.
  cost      processor time per sequence: of such a memcpy, of the workers alone, and of all processes, including the host device's copy.
            This hardly depends on the machine's other load.
  trillion  10^12 tokens in 10 000 sparse files, as one list, and as a blend of 250 [[datasets]] of 40 files with weights: the time and processor
            time of a run of one batch, and the private memory of session, owner and a worker

`trillion` as an argument measures only the last part. BIN is the folder of the programs, build/release/bin by default. Needs a C compiler (cc).
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import tempfile
import threading
import time

from penstock_json import penstock_in

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROUNDS, LENGTH, TOKENS = 5, 4096, 5 * 10**9


def options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bin", nargs="?", default=os.path.join(TOP, "build/release/bin"))
    parser.add_argument("part", nargs="?", choices=["trillion"], help="only the start of a trillion tokens")
    parser.add_argument("--device", default="host", help="[gpu] device")
    parser.add_argument("--workers", type=int, default=2, help="also the number of threads that copy")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=6000, help="batches of the longer run; the shorter run has a sixth of them, and rates come from the difference")
    return parser.parse_args()


GIVEN = options()
BIN, WORKERS, BATCH, BATCHES = os.path.abspath(GIVEN.bin), GIVEN.workers, GIVEN.batch, GIVEN.batches

CONFIG = """
%s
[sampler]
batch_size = %d
epochs = 100
%s
[loader]
workers = %d
slots_per_worker = 8
[gpu]
device = "%s"
"""

DATASET = """
path = "%s"
type = "tokens"
dtype = "uint16"
sequence_length = %d
"""

COPIES = """
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static const char* mapping;
static uint64_t pieces, piece;
int map(const char* path, uint64_t bytes, uint64_t piece_bytes) {
  mapping = mmap(0, bytes, PROT_READ, MAP_SHARED, open(path, O_RDONLY), 0);
  piece = piece_bytes;
  pieces = bytes / piece;
  return mapping == MAP_FAILED;
}
/* Into `slots` places in turn, as batches go into slots. */
void copy(uint64_t count, uint64_t seed, uint64_t slots) {
  char* to = malloc(slots * piece);
  for (uint64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    memcpy(to + i % slots * piece, mapping + (seed >> 20) % pieces * piece, piece);
  }
  free(to);
}
"""


def sparse(path, tokens):
    with open(path, "wb") as file:
        file.truncate(2 * tokens)
    return path


def config_of(folder, path):
    return write_config(folder, "[dataset]" + DATASET % (path, LENGTH))


def blend_of(folder, paths):
    tables = ('[[datasets]]\nname = "part-%d"\nweight = %d%s' % (number, 1 + number % 7, DATASET % (path, LENGTH)) for number, path in enumerate(paths))
    return write_config(folder, "".join(tables), "epoch_samples = %d" % (10**12 // LENGTH))


def write_config(folder, datasets, sampler=""):
    name = os.path.join(folder, "tokens.toml")
    with open(name, "w") as file:
        file.write(CONFIG % (datasets, BATCH, sampler, WORKERS, GIVEN.device))
    return name


def run(config, *options):
    return penstock_in(BIN)("run", config, *options)


def watch_processor_times(session):
    """CPU seconds of the workers, and of the session with all its children, read at most 20 ms before the end."""
    tick, times = os.sysconf("SC_CLK_TCK"), {}
    while session.poll() is None:
        children = subprocess.run(["pgrep", "-P", str(session.pid)], capture_output=True, text=True).stdout.split()
        for process in [str(session.pid), *children]:
            try:
                with open("/proc/%s/stat" % process) as file:
                    name, _, rest = file.read().partition("(")[2].rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            times[process] = ("worker" in name, (int(fields[11]) + int(fields[12])) / tick)
        time.sleep(0.02)
    return sum(t for is_worker, t in times.values() if is_worker), sum(t for _, t in times.values())


def processor_times(config):
    """CPU microseconds for a sequence, of the workers and of all processes. Like sequences_a_second, without the startup."""
    found = []
    for batches in (BATCHES // 6, BATCHES):
        session = subprocess.Popen([os.path.join(BIN, "penstock"), "run", config, "--quiet", "--batches", str(batches)], stdout=subprocess.DEVNULL)
        workers, all_of_them = watch_processor_times(session)
        found.append((workers, all_of_them))
    sequences = (BATCHES - BATCHES // 6) * BATCH
    return tuple((long - short) / sequences * 1e6 for short, long in zip(*found))


def sequences_a_second(config):
    """The rate without the startup time, from the difference between a long and a short run."""
    times = []
    for batches in (BATCHES // 6, BATCHES):
        begin = time.monotonic()
        run(config, "--batches", str(batches))
        times.append(time.monotonic() - begin)
    return (BATCHES - BATCHES // 6) * BATCH / (times[1] - times[0])


def copies_a_second(library):
    """The rate, and the microseconds of processor time for one copy."""
    count = BATCHES * BATCH // WORKERS
    threads = [threading.Thread(target=library.copy, args=(ctypes.c_uint64(count), ctypes.c_uint64(seed), ctypes.c_uint64(4 * BATCH))) for seed in range(WORKERS)]
    begin, used = time.monotonic(), time.process_time()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return count * WORKERS / (time.monotonic() - begin), (time.process_time() - used) / (count * WORKERS) * 1e6


def private_memory(pid):
    with open("/proc/%s/status" % pid) as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("RssAnon"))


def begin_of(config):
    """Measures a run of one batch. Returns its seconds, the seconds until the batch arrived, its processor time, and the
    private memory of session, owner and largest worker in MB."""
    walls, firsts, used = [], [], []
    for _ in range(ROUNDS):
        begin, before = time.monotonic(), os.times()
        firsts.append(run(config, "--batches", "1")["totals"]["first_batch_seconds"])
        after = os.times()
        walls.append(time.monotonic() - begin)
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    session = subprocess.Popen([os.path.join(BIN, "penstock"), "run", config, "--quiet", "--batches", "100000"], stdout=subprocess.DEVNULL)
    time.sleep(5)
    memory = [private_memory(session.pid)]
    for program in ("penstock-gpu", "penstock-worker"):
        processes = subprocess.run(["pgrep", "-P", str(session.pid), program], capture_output=True, text=True).stdout.split()
        memory.append(max(map(private_memory, processes), default=float("nan")))
    session.terminate()
    session.wait()
    return *map(statistics.median, (walls, firsts, used)), *memory


def begin_of_a_trillion(folder):
    parts = [os.path.join(folder, "files", "%03d" % number) for number in range(250)]
    for part in parts:
        os.makedirs(part)
        for number in range(40):
            sparse(os.path.join(part, "%02d.bin" % number), 10**8)
    names = os.path.join(folder, "files.txt")
    with open(names, "w") as file:
        file.writelines("%s/%02d.bin\n" % (part, number) for part in parts for number in range(40))
    print("\n10^12 tokens in 10 000 files, load average %.1f" % os.getloadavg()[0])
    for what, config in (("a list of files", lambda: config_of(folder, names)), ("a blend of 250 datasets", lambda: blend_of(folder, parts))):
        print("%s: a run of one batch takes %.2f s, %.2f s until the batch is there, and %.2f s of processor time; private memory of the session %.1f MB, of the owner %.1f MB, of a worker %.1f MB" %
              (what, *begin_of(config())), flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        if GIVEN.part:
            return begin_of_a_trillion(folder)
        source, built = os.path.join(folder, "copies.c"), os.path.join(folder, "copies.so")
        with open(source, "w") as file:
            file.write(COPIES)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
        path = sparse(os.path.join(folder, "tokens.bin"), TOKENS)
        library = ctypes.CDLL(built)
        assert library.map(path.encode(), ctypes.c_uint64(2 * TOKENS), ctypes.c_uint64(8 * LENGTH)) == 0
        config = config_of(folder, path)
        run(config, "--batches", str(BATCHES))  # fills the page cache
        library.copy(ctypes.c_uint64(2 * TOKENS // (8 * LENGTH)), ctypes.c_uint64(1), ctypes.c_uint64(BATCH))
        rates = [(sequences_a_second(config), *copies_a_second(library), *processor_times(config)) for _ in range(ROUNDS)]
        print("device %s, %d workers, batches of %d\n" % (GIVEN.device, WORKERS, BATCH))
        print("| load average | sequences a second | to the device | memcpy of 32 KiB | median of the rounds' ratios |")
        print("| --- | --- | --- | --- | --- |")
        sequences = statistics.median(r[0] for r in rates)
        print("| %.1f | %.0f | %.1f GB/s | %.0f | %.2f |" % (os.getloadavg()[0], sequences, sequences * 8 * LENGTH / 1e9, statistics.median(r[1] for r in rates),
                                                            statistics.median(r[0] / r[1] for r in rates)))
        print("\nProcessor time of a sequence, in us: memcpy %.1f, workers %.1f, all processes %.1f; memcpy / workers: median of the rounds %.2f" %
              (*(statistics.median(r[i] for r in rates) for i in (2, 3, 4)), statistics.median(r[2] / r[3] for r in rates)))
        begin_of_a_trillion(folder)


if __name__ == "__main__":
    main()
