#!/usr/bin/env python3
"""Compares Ray Data and tf.data service with a loader host: remote_peers.py BIN PHOTOGRAPHS [--python PYTHON] [--rounds N]

Two worker processes read, decode, crop (RandomResizedCrop 224) and flip the same photographs; a consumer in another process receives uint8 batches
of 64, without encryption. penstock: a session without local workers, and one host of two. BIN has penstock. PYTHON has ray[data], tensorflow, Pillow
and NumPy; without it they are installed into build/remote-peers. If a peer cannot run, the table shows its error.

All are measured in turn for some rounds, from the first batch to the last, and once more while a worker process (for
penstock: the host) is killed and replaced. Then each file must have been delivered once for each epoch. "Same stream":
two rounds had the same files in the same batches.
"""

import argparse
import glob
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from peer_loaders import crop_box

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BATCH, SIDE, WORKERS = 64, 224, 2
PENSTOCK = """
[dataset]
path = "{folder}"
[sampler]
batch_size = 64
epochs = {epochs}
uneven = "allow"
[gpu]
device = "host"
dtype = "uint8"
"""
HOSTS = """
[loader]
workers = 0
[loader.hosts]
listen = "127.0.0.1:0"
insecure = true
"""


# ---- the peers, each in a process of PYTHON; they yield (number of each file, pixels) ---------------------------------


def ray_data(paths, order, place):
    import numpy
    import ray

    def load(rows):
        from PIL import Image

        pixels = numpy.empty((len(rows["file"]), SIDE, SIDE, 3), numpy.uint8)
        for row, file in enumerate(rows["file"]):
            with Image.open(paths[file]) as image:
                image = image.convert("RGB")
                image = image.resize((SIDE, SIDE), Image.BILINEAR, box=crop_box(*image.size))
            pixels[row] = image.transpose(Image.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image
        return {"file": rows["file"], "image": pixels}

    ray.init(num_cpus=WORKERS, object_store_memory=1 << 30, include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir=place)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    files = ray.data.from_items([{"file": file} for file in order], override_num_blocks=max(2, len(order) // BATCH))
    for batch in files.map_batches(load, batch_size=BATCH).iter_batches(batch_size=BATCH, prefetch_batches=2):
        yield batch["file"], batch["image"]


def tf_worker(dispatcher):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=dispatcher, heartbeat_interval_ms=100, dispatcher_timeout_ms=5000)).join()


def tf_data_service(paths, order, place):
    import tensorflow as tf

    service = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(worker_timeout_ms=2000, job_gc_check_interval_ms=500))
    address = dispatcher.target.split("://")[1]
    start = lambda: subprocess.Popen([sys.executable, os.path.abspath(__file__), "--tf-worker", address], stderr=subprocess.DEVNULL)
    workers = [start() for _ in range(WORKERS)]

    def load(path, file):
        data = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(data), tf.constant([[[0.0, 0.0, 1.0, 1.0]]]), min_object_covered=0.0,
            aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0), max_attempts=10)
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.resize(tf.image.decode_and_crop_jpeg(data, window, channels=3), (SIDE, SIDE), antialias=True)
        return file, tf.image.random_flip_left_right(tf.cast(image, tf.uint8))

    data = tf.data.Dataset.from_tensor_slices(([paths[file] for file in order], order)).map(load, num_parallel_calls=1).batch(BATCH)
    data = data.apply(service.distribute(processing_mode=service.ShardingPolicy.DYNAMIC, service=address))
    try:
        for file, image in data.prefetch(2):
            for dead in [each for each in workers if each.poll() is not None]:
                workers[workers.index(dead)] = start()
            yield file.numpy(), image.numpy()
    finally:
        for worker in workers:
            worker.kill()


PEERS = {"Ray Data": (ray_data, "ray::"), "tf.data service": (tf_data_service, "--tf-worker")}


def descendants(ancestor, named):
    parents = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(stat) as file:
                parents[int(stat.split("/")[2])] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            pass
    family = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return [pid for pid in family if named in command_of(pid)]


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def measure_peer(name, paths, epochs, kill, out):
    pipeline, worker = PEERS[name]
    order = [file for epoch in range(epochs) for file in random.Random(epoch).sample(range(len(paths)), len(paths))]
    came, stream, begin, rows = [], hashlib.sha256(), None, 0
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as place:
        for files, pixels in pipeline(paths, order, place):
            assert pixels.shape[1:] == (SIDE, SIDE, 3) and str(pixels.dtype) == "uint8", (pixels.shape, pixels.dtype)
            if begin is None:
                begin = time.perf_counter()
            else:
                rows += len(files)
            came += map(int, files)
            stream.update(files.tobytes() + b".")
            if kill and len(came) > len(order) / 3:
                victims = [pid for pid in descendants(os.getpid(), worker) if "IDLE" not in command_of(pid)]
                os.kill(max(victims), signal.SIGKILL)
                kill = False
        seconds = time.perf_counter() - begin
        counts = [came.count(file) for file in range(len(paths))]
        with open(out, "w") as file:
            json.dump({"rate": rows / seconds, "stream": stream.hexdigest(), "lost": sum(max(0, epochs - n) for n in counts),
                       "twice": sum(max(0, n - epochs) for n in counts)}, file)
        sys.stdout.flush()
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
    os._exit(0)


# ---- penstock ----------------------------------------------------------------------------------------------------------


def measure_penstock(o, scratch, epochs, kill, hosts=True):
    config, environment = os.path.join(scratch, "bench.toml"), dict(os.environ, XDG_RUNTIME_DIR=scratch)
    with open(config, "w") as file:
        file.write(PENSTOCK.format(folder=o.folder, epochs=epochs) + (HOSTS if hosts else ""))
    digest = [] if not kill and hosts else ["--digest"]
    more = [] if hosts else ["--workers", str(WORKERS)]
    session = subprocess.Popen([o.penstock, "run", config, "--json", "--quiet", *digest, *more], env=environment, stdout=subprocess.PIPE, text=True)
    host = None
    while hosts and session.poll() is None:
        status = subprocess.run([o.penstock, "status", "--json", "--session", "bench"], env=environment, capture_output=True, text=True).stdout
        status = json.loads(status) if status else {}
        if host is None and status.get("hosts_join_at"):
            start = lambda: subprocess.Popen([o.penstock, "host", "--join", status["hosts_join_at"], "--workers", str(WORKERS), "--insecure"],
                                             env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            host = start()
            if not kill:
                break
        elif host and status.get("samples_delivered", 0) > epochs * o.count / 3:
            host.kill()
            host = start()
            break
        time.sleep(0.05)
    told, _ = session.communicate()
    if session.returncode != 0:
        raise SystemExit("penstock run ended with %d: %s" % (session.returncode, told))
    if host:
        host.wait()
    report = json.loads(told)
    totals, delivered = report["totals"], sum(epoch["delivered"] for epoch in report["epochs"])
    rate = (totals["samples"] - BATCH) / (totals["seconds"] - totals["first_batch_seconds"])
    return {"rate": rate, "stream": str([epoch.get("digest") for epoch in report["epochs"]]), "lost": epochs * o.count - delivered, "twice": 0}


# ---- all together ------------------------------------------------------------------------------------------------------


def measure(o, name, epochs, kill):
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as scratch:
        if name == "penstock":
            return measure_penstock(o, scratch, epochs, kill)
        out = os.path.join(scratch, "out")
        job = json.dumps([name, o.folder, epochs, kill, out])
        # By default, Ray's workers run with niceness 15.
        variables = dict(os.environ, RAY_worker_niceness="0", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="",
                         RAY_DATA_DISABLE_PROGRESS_BARS="1")
        process = subprocess.Popen([o.python, os.path.abspath(__file__), "--job", job], env=variables, start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, err = process.communicate(timeout=o.patience)
        except subprocess.TimeoutExpired:
            err = "no figures after %d s" % o.patience
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if not os.path.exists(out):
            return {"failed": (err.strip().splitlines() or ["ended without a message"])[-1][:160]}
        with open(out) as file:
            return json.load(file)


def install(o):
    place = os.path.join(TOP, "build", "remote-peers", "env")
    o.python = os.path.join(place, "bin", "python")
    if not os.path.exists(o.python):
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    for packages in (["numpy", "pillow", "ray[data]"], ["tensorflow-cpu"]):
        subprocess.run([o.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("folder")
    parser.add_argument("--python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--patience", type=int, default=300, help="seconds for one measurement of a peer")
    o = parser.parse_args()
    o.penstock, o.folder = os.path.join(os.path.abspath(o.bin), "penstock"), os.path.abspath(o.folder)
    o.count = len(paths_of(o.folder))
    if not o.python:
        install(o)
    names = ["penstock", *PEERS]
    runs = {name: [] for name in names}
    draw = random.Random(1)
    for number in range(o.rounds):
        for name in draw.sample(names, len(names)):
            runs[name].append(measure(o, name, o.epochs, False))
            print(number, name, runs[name][-1], file=sys.stderr, flush=True)
    killed = {name: measure(o, name, o.epochs, True) for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        local = measure_penstock(o, scratch, o.epochs, False, hosts=False)
    print("killed:", killed, "local:", local, file=sys.stderr)
    print("| two worker processes | photographs/s | penstock over it | same stream in each round | with a kill: lost, twice |\n| --- | --- | --- | --- | --- |")
    for name in names:
        good = [run for run in runs[name] if "rate" in run]
        if not good:
            print("| %s | %s | | | |" % (name, runs[name][-1]["failed"]))
            continue
        ratio = statistics.median(mine["rate"] / run["rate"] for mine, run in zip(runs["penstock"], runs[name]) if "rate" in run)
        same = killed[name].get("stream") == local["stream"] if name == "penstock" else len({run["stream"] for run in good}) == 1
        end = killed[name]
        print("| %s | %.0f (%.0f to %.0f) | %.2f | %s | %s |" % (
            name, statistics.median(run["rate"] for run in good), min(run["rate"] for run in good), max(run["rate"] for run in good), ratio,
            "yes" if same else "no", end["failed"] if "failed" in end else "%d, %d of %d" % (end["lost"], end["twice"], o.epochs * o.count)))


def paths_of(folder):
    return sorted(glob.glob(os.path.join(folder, "*", "*.jp*g")))


if sys.argv[1:2] == ["--tf-worker"]:
    tf_worker(sys.argv[2])
elif sys.argv[1:2] == ["--job"]:
    name, folder, epochs, kill, out = json.loads(sys.argv[2])
    measure_peer(name, paths_of(folder), epochs, kill, out)
else:
    main()
