"""Jobs whose second half runs on the caller's GPU thread, with what the first half returned on the device (rule P6).

Runs on the host device, without torch and with it (skipped where torch is not installed); and on a GPU where there is one.
"""

import importlib.util
import textwrap
import threading
import unittest

import numpy
import penstock
from package import *


def several(count):
    """Arrays of many kinds, in a structure with other objects."""
    order = numpy.arange(count, dtype="float32")
    return {"plain": order, "text": "as it was", "both": (order > 3, order.astype("int64").reshape(-1, 2)),
            "fortran": numpy.asfortranarray(order.reshape(2, -1)), "odd": order.astype("complex128"),
            "read-only": numpy.broadcast_to(numpy.float64(7), ()).copy(), "none": numpy.zeros((0, 3), "uint8"), "records":
            numpy.zeros(2, [("a", "i4"), ("b", "f8")])}


def frozen():
    array = numpy.arange(10)
    array.flags.writeable = False
    return array


class Holder:
    """Needs its data as bytes and not as an array."""

    def __init__(self, data):
        self.data = bytes(data)

    def __reduce_ex__(self, protocol):
        import pickle
        return Holder, (pickle.PickleBuffer(self.data),)


def held():
    return Holder(b"x" * 1000), numpy.arange(5)


class PoolGpuTest(PackageTest):
    def pool(self, workers=2, **given):
        pool = penstock.Pool(workers, gpu=True, control_socket=False, **{"gpu.device": "host", **given})
        self.addCleanup(pool.shutdown, cancel_futures=True)
        return pool

    def with_torch(self, text):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed")
        device = "host"
        self.ran("import sys, torch\nsys.path[:0] = %r\n" % ([os.path.dirname(__file__), TOP + "/tests/cli"],) +
                 "import numpy, penstock\nfrom pool_gpu_test import *\ndevice = %r\n" % device + textwrap.dedent(text), timeout=100)

    def test_all_second_halves_run_on_one_thread_of_the_program_with_separate_arrays(self):
        threads = set()
        kept = []

        def second(value):
            threads.add(threading.current_thread())
            kept.append(value)
            value["plain"] += 1
            return float(value["plain"].sum())
        with self.pool() as pool, self.pool(1) as other:
            futures = [each.submit(several, 8, gpu=second) for each in (pool, other) for _ in range(10)]
            self.assertEqual([f.result(30) for f in futures], [36.0] * 20)
        self.assertEqual([t.name for t in threads], ["penstock-gpu"])
        for value in kept:  # after the end of the pools
            numpy.testing.assert_array_equal(value["plain"], numpy.arange(8) + 1)
            self.assertEqual(value["text"], "as it was")

    def test_inputs_of_a_map_with_a_second_half_are_separate_jobs(self):
        with self.pool() as pool:
            sums = pool.options(gpu=lambda value: int(value.sum())).map(numpy.arange, range(4), chunksize=4)
            self.assertEqual(list(sums), [0, 0, 1, 3])
            self.assertEqual(pool.report()["jobs"]["submitted"], 4)

    def test_a_second_half_that_raises_fails_only_its_job(self):
        with self.pool() as pool:
            bad = pool.submit(several, 8, gpu=lambda value: value["missing"])
            good = pool.options(gpu=lambda value: value["text"]).submit(several, 8)
            with self.assertRaises(KeyError):
                bad.result(30)
            self.assertEqual(good.result(30), "as it was")

    def test_a_first_half_that_raises_or_crashes_never_reaches_the_second(self):
        def fail():
            raise ValueError("of the first half")

        def crash():
            os._exit(7)
        seen = []
        with self.pool() as pool:
            with self.assertRaisesRegex(ValueError, "of the first half"):
                pool.submit(fail, gpu=seen.append).result(30)
            with self.assertRaises(penstock.job_poisoned_error):
                pool.submit(crash, gpu=seen.append).result(60)
            self.assertEqual(pool.submit(int, 3, gpu=lambda three: three + 1).result(30), 4)
        self.assertEqual(seen, [])

    def test_the_end_of_a_pool_waits_for_second_halves(self):
        release = threading.Event()
        started = threading.Event()

        def second(value):
            started.set()
            release.wait()
            return value

        def end():
            pool.shutdown()
            ended.append(True)
        ended = []
        pool = self.pool(1)
        future = pool.submit(int, 3, gpu=second)
        self.assertTrue(started.wait(30))
        self.assertTrue(future.running())
        self.assertFalse(future.cancel())
        thread = threading.Thread(target=end)
        thread.start()
        self.assertEqual(ended, [])
        release.set()
        thread.join(30)
        self.assertEqual((ended, future.result(0)), ([True], 3))

    def test_the_error_about_a_result_that_does_not_fit_its_slot_says_which_limit_to_increase(self):
        with self.pool(1, loader={"slot_bytes": "64KiB"}) as pool:
            with self.assertRaisesRegex(penstock.job_too_large_error, "slot_bytes"):
                pool.submit(numpy.zeros, 100_000, gpu=len).result(30)

    def test_a_job_whose_device_is_missing_fails_with_that_reason(self):
        try:
            pool = self.pool(1, **{"gpu.device": "uuid:GPU-00000000-0000-0000-0000-000000000000"})
        except penstock.error as refused:
            self.assertIn("CUDA", str(refused))  # this build has no such kind of device
            return
        with pool:
            with self.assertRaisesRegex(penstock.job_device_error, "GPU-00000000|CUDA|driver"):
                pool.submit(int, 3, gpu=lambda three: three).result(60)
            self.assertEqual(pool.submit(int, 3).result(60), 3)

    def test_with_torch_the_arrays_are_tensors_of_the_same_values(self):
        self.with_torch("""
            with penstock.Pool(1, gpu=True, control_socket=False, **{"gpu.device": device}) as pool:
                there = pool.submit(several, 8, gpu=lambda value: value).result(60)
            here = several(8)
            def same(a, b):
                if isinstance(b, numpy.ndarray) and b.dtype.names is None:
                    assert isinstance(a, torch.Tensor), type(a)
                    assert a.dtype == getattr(torch, b.dtype.name), (a.dtype, b.dtype)
                    assert tuple(a.shape) == b.shape, (a.shape, b.shape)
                    numpy.testing.assert_array_equal(a.cpu().numpy(), b)
                elif isinstance(b, numpy.ndarray):
                    numpy.testing.assert_array_equal(a, b)
                elif isinstance(b, tuple):
                    for one, other in zip(a, b): same(one, other)
                else:
                    assert a == b
            assert there.keys() == here.keys()
            for key in here: same(there[key], here[key])
            """)

    def test_functions_that_need_bytes_get_bytes_and_arrays_stay_tensors_if_torch_is_there(self):
        self.with_torch("""
            with penstock.Pool(1, gpu=True, control_socket=False, **{"gpu.device": device}) as pool:
                holder, array = pool.submit(held, gpu=lambda value: value).result(60)
                cold = pool.submit(frozen, gpu=lambda value: value).result(60)
            assert holder.data == b"x" * 1000
            assert array.tolist() == [0, 1, 2, 3, 4] and isinstance(array, torch.Tensor)
            assert cold.tolist() == list(range(10)) and isinstance(cold, torch.Tensor)
            """)


if __name__ == "__main__":
    main()
