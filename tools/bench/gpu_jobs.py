"""Steps of gpu.py about jobs whose results go to the device."""

import json
import os
import subprocess
import sys
import time

from gpu_faults import FILLER, descendants, who_uses_the_gpu


def surroundings(b):
    """The environment in which pools find penstock-gpu; in a build folder it is next to the program."""
    folder = os.path.join(b.given.tree, "libexec/penstock")
    return {**b.test_environment, **({"PENSTOCK_LIBEXEC": folder} if os.path.isdir(folder) else {})}


def job_tests(b):
    """The tests of pools with device programs, test_pool_device, on the GPU."""
    output = b.run("job_tests", [b.program("test_pool_device"), "--durations", "no"], 170,
                   environment={**surroundings(b), "PENSTOCK_TEST_DEVICE": b.given.device}, check=False)
    summary = output.strip().splitlines()[-1] if output.strip() else f"exit code {b.last_code}"
    b.row("tests of jobs with device programs: out of memory, illegal accesses, endless kernels, owners killed",
          f"{summary} ({b.last_seconds:.0f} s)", "all pass", b.last_code == 0)
    if b.last_code != 0:
        print(output[-4000:])


def job_rate(b):
    """16 workers whose 8 MB results go to a device program, compared with bare copies in the same run."""
    bench, program = b.program("penstock-bench-jobs"), b.program("moments.so")
    b.facts["jobs"] = []
    for placement in ("process", "embedded"):
        arguments = [bench, "device", "--workers", "16", "--program", program, "--device", b.given.device, "--placement", placement]
        most, processes = 0, 0
        with subprocess.Popen(arguments, env=surroundings(b), cwd=b.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as child:
            while child.poll() is None:
                time.sleep(0.5)
                tree = descendants(child.pid)
                # The benchmark uses the GPU itself, for the bare copies, so only its
                # children are checked: of these, only the owner may use the GPU.
                most, processes = max(most, len(who_uses_the_gpu(tree - {child.pid}))), max(processes, len(tree))
            output, said = child.communicate()
        if child.returncode != 0:
            b.row(f"8 MB results, 16 workers, {placement}", f"failed: {said[-300:]}", "runs", False)
            continue
        r = json.loads(output)
        b.facts["jobs"].append(r)
        b.row(f"8 MB results of jobs to a device program, 16 workers, {placement}",
              f"{r['bytes_per_second'] / 1e9:.2f} of {r['bare_bytes_per_second'] / 1e9:.2f} GB/s, ratio {r['ratio']:.3f}, lowest {r['lowest']:.3f}, "
              f"pinned {r['bare_pinned']}", "ratio >= 0.9", r["ratio"] >= 0.9)
        if b.given.device != "host":
            b.row(f"children of the pool's process that use the GPU, 16 workers, {placement}", f"{most} of {processes - 1}",
                  "1" if placement == "process" else "0: the owner is in the program itself", most == (1 if placement == "process" else 0))


def job_full_memory(b):
    """One job while another process fills the device memory, and one after that process has freed it."""
    b.needs_gpus(1)
    bench, program = b.program("penstock-bench-jobs"), b.program("moments.so")
    for placement in ("process", "embedded"):
        with subprocess.Popen([sys.executable, "-c", FILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as filler:
            if filler.stdout.readline() != "full\n":
                raise RuntimeError("the device memory could not be filled")
            with subprocess.Popen([bench, "full", "--workers", "2", "--program", program, "--device", b.given.device, "--placement", placement],
                                  env=surroundings(b), cwd=b.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
                first = json.loads(child.stdout.readline() or "{}")
                filler.kill()
                filler.wait()
                time.sleep(1)
                child.stdin.write("\n")
                child.stdin.flush()
                second = json.loads(child.stdout.readline() or "{}")
        b.row(f"device memory filled by another process, {placement}", f"the first job: {first.get('status')}: {first.get('text')}; the next one, when it "
              f"is free again: {second.get('status')}", "device, then ok", first.get("status") == "device" and second.get("status") == "ok")

