"""A pool that no job can break: one job crashes, one hangs, one raises. All others finish; the program names the three.

    python 12_python_pool.py
"""

import concurrent.futures
import ctypes
import time

import penstock


def work(number: int) -> int:
    if number == 10:
        ctypes.string_at(0)  # a native crash
    if number == 20:
        time.sleep(3600)  # hangs
    if number == 30:
        raise ValueError("number 30 is not for me")
    return number * number


pool = penstock.Pool(4, timeout=1.0, name="example-pool")
futures: dict[concurrent.futures.Future[int], int] = {pool.submit(work, number): number for number in range(100)}
done = 0
for future in concurrent.futures.as_completed(futures):
    try:
        future.result()
        done += 1
    except penstock.job_failed_error as failed:
        print(f"job {futures[future]}: {failed.status} {failed.causes}")
    except ValueError as raised:
        print(f"job {futures[future]}: {raised!r}")
pool.shutdown()
print(f"{done} of {len(futures)} are done")
