#!/usr/bin/env python3
"""Measures and checks everything that needs a GPU. Needs only an install tree or a build tree.

    gpu.py [--tree DIR] [--out DIR] [--only NAME,NAME] [--seconds 3] [--budget 460]
    gpu.py --list

DIR is an install tree or a build folder; default: the one with this script. To build a complete tree, with the programs of the
tests and a second build whose kernels run only on compute capability 10.0 (step no_kernel_image):

    cmake --preset release -B build/gpu-tests -DPENSTOCK_TESTS=ON && cmake --build build/gpu-tests
    cmake --build build/gpu-tests --target penstock-bench-embedding            (step embedding)
    cmake --build build/gpu-tests --target penstock-bench-jobs                 (steps job_rate, job_full_memory)
    cmake --install build/gpu-tests --prefix TREE && cmake --install build/gpu-tests --prefix TREE --component tests
    cmake --preset release -B build/no_kernel_image -DPENSTOCK_CUDA_ARCHITECTURES=100-real -DPENSTOCK_EXAMPLES=OFF
    cmake --build build/no_kernel_image && cmake --install build/no_kernel_image --prefix TREE/variants/no_kernel_image

The steps are in gpu_rates.py, gpu_checks.py, gpu_faults.py and gpu_jobs.py next to this script. Each step has its own deadline, and
a failing step does not stop the others. Ends with a Markdown table on stdout; --out gets gpu.md, gpu.json and gpu.log (the output
of the steps). Needs only Python's standard library; without PyTorch, the comparison with it is left out. memcheck needs compute-sanitizer:
in the tree (a copy of the toolkit's folder of that name), or installed.
"""

import argparse
import os
import sys

from gpu_bench import Bench
from gpu_checks import captures, digests, doctor, mean_variance, memcheck, tests, training, two_gpus, variable_size
from gpu_faults import endless, exclusivity, full_memory, no_kernel_image, owner_killed, poison
from gpu_jobs import job_full_memory, job_rate, job_tests
from gpu_rates import embedding, first_batch, pytorch, transform, upload

HERE = os.path.dirname(os.path.abspath(__file__))


def machine(b):
    """Prints the GPU, cores, kernel, version and missing libraries of this machine."""
    for name, command in {
            "gpu": ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used,pcie.link.gen.max,compute_mode",
                    "--format=csv,noheader"],
            "cores": ["nproc"], "kernel": ["uname", "-r"], "penstock": [b.penstock, "version"],
            "libraries missing": ["sh", "-c", f"ldd {b.penstock} | grep -c 'not found' || true"]}.items():
        try:
            b.facts[name] = b.run("machine", command, 20, check=False).strip()
        except (OSError, RuntimeError) as why:
            b.facts[name] = f"unknown ({why})"
        print(f"  {name}: {b.facts[name]}")


# doctor runs first: it reads the driver's log, and later steps cause an illegal access on purpose, which the driver logs.
STEPS = [machine, doctor, tests, captures, upload, transform, first_batch, digests, pytorch, full_memory, exclusivity, owner_killed, poison, endless,
         mean_variance, variable_size, training, two_gpus, no_kernel_image, embedding, job_tests, job_rate, job_full_memory, memcheck]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tree", default=None)
    parser.add_argument("--out", default=None)
    parser.add_argument("--only", type=lambda text: text.split(","), default=None,
                        help="steps: " + ", ".join(s.__name__ for s in STEPS))
    parser.add_argument("--device", default="cuda", help="host: try the script on a machine without a GPU")
    parser.add_argument("--seconds", type=float, default=3, help="how long each benchmark measures")
    parser.add_argument("--budget", type=float, default=460, help="start no step after this many seconds")
    parser.add_argument("--list", action="store_true", help="print what each step does, and exit")
    given = parser.parse_args()
    if given.list:
        for step in STEPS:
            print(f"{step.__name__:16} {(step.__doc__ or '').strip()}")
        return
    given.tree = os.path.abspath(given.tree or os.path.join(HERE, "..", ".."))
    if given.out:
        given.out = os.path.abspath(given.out)
    bench = Bench(given)
    if not os.path.exists(bench.penstock):
        sys.exit(f"there is no {bench.penstock}: give --tree, an install tree or a build folder")
    for step in STEPS:
        bench.step(step)
    bench.finish()
    sys.exit(1 if any(r["ok"] is False for r in bench.rows) else 0)


if __name__ == "__main__":
    main()
