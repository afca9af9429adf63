"""joblib's Parallel on the backend "penstock": the same results, and a job that crashes is named."""

import importlib.util
import os
import pickle
import signal
import threading

import penstock
from package import *

if importlib.util.find_spec("joblib") is not None:
    import joblib
    import penstock.joblib
else:
    joblib = None


def square(x):
    return x * x


def leave(x):
    if x == 5:
        os._exit(3)
    return x


def fail(x):
    raise ValueError("of job %d" % x)


class JoblibTest(PackageTest):
    def setUp(self):
        super().setUp()
        if joblib is None:
            self.skipTest("joblib is not installed")

    def test_results_are_in_order_and_each_pool_ends_with_its_call(self):
        with joblib.parallel_backend("penstock", n_jobs=2):
            self.assertEqual(joblib.Parallel()(joblib.delayed(square)(x) for x in range(200)), [x * x for x in range(200)])
            self.assertEqual(joblib.Parallel()(joblib.delayed(lambda x: -x)(x) for x in range(3)), [0, -1, -2])

    def test_a_job_can_use_the_backend_itself(self):
        def inner(x):
            return sum(joblib.Parallel(n_jobs=2, backend="penstock")(joblib.delayed(abs)(y) for y in (x, x)))
        with joblib.parallel_backend("penstock", n_jobs=2):
            self.assertEqual(joblib.Parallel()(joblib.delayed(inner)(x) for x in range(3)), [0, 2, 4])

    def test_workers_have_the_number_of_threads_that_joblib_sets(self):
        def threads():
            return os.environ["OMP_NUM_THREADS"]
        with joblib.parallel_backend("penstock", n_jobs=2, inner_max_num_threads=3):
            self.assertEqual(joblib.Parallel()(joblib.delayed(threads)() for _ in range(2)), ["3", "3"])
        self.no_children_left()

    def test_one_job_at_a_time_needs_no_pool(self):
        with joblib.parallel_backend("penstock", n_jobs=1):
            self.assertEqual(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(2)), [os.getpid()] * 2)

    def test_an_exception_reaches_the_caller(self):
        with joblib.parallel_backend("penstock", n_jobs=2):
            with self.assertRaisesRegex(ValueError, "of job"):
                joblib.Parallel()(joblib.delayed(fail)(x) for x in range(10))
        self.no_children_left()

    def test_an_argument_that_cannot_be_pickled_is_refused_with_the_error_of_joblib(self):
        with joblib.parallel_backend("penstock", n_jobs=2):
            with self.assertRaisesRegex(pickle.PicklingError, "the task to send") as caught:
                joblib.Parallel()(joblib.delayed(id)(threading.Lock()) for x in range(10))
        self.assertIsInstance(caught.exception.__cause__, TypeError)
        self.no_children_left()

    def test_workers_print_no_lines_of_their_own(self):
        for threads in 1, 4:  # 4: NumPy may have threads, so workers cannot be forked
            process = self.program(f"""
                import joblib, penstock.joblib
                with joblib.parallel_backend("penstock", n_jobs=2, inner_max_num_threads={threads}):
                    print(joblib.Parallel()(joblib.delayed(abs)(x) for x in range(3)))
                """)
            out, err = process.communicate(timeout=100)
            self.assertEqual((out.strip(), err), ("[0, 1, 2]", ""))

    def test_a_job_that_ends_its_process_is_named(self):
        with joblib.parallel_backend("penstock", n_jobs=2):
            with self.assertRaises(penstock.job_poisoned_error):
                joblib.Parallel()(joblib.delayed(leave)(x) for x in range(10))

    def test_an_initializer_that_raises_is_named_as_in_the_code_of_the_caller(self):
        options = {"initializer": fail, "initargs": (7,), "loader": {"restart": {"intensity": {"max": 1}}}}
        with joblib.parallel_backend("penstock", n_jobs=2, **options):
            with self.assertRaisesRegex(penstock.error, r"^the initializer fail \(.*joblib_test.py:\d+\) raised ValueError: of job 7\. "):
                joblib.Parallel()(joblib.delayed(abs)(x) for x in range(10))
        self.no_children_left()


if __name__ == "__main__":
    main()
