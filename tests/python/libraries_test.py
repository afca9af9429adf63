"""Libraries that take an executor work with penstock.Pool as with ProcessPoolExecutor, and no result is lost when a worker is killed.

Of an executor, dask uses `submit`, `_max_workers` and `shutdown`, and asyncio `submit` and `shutdown`; joblib has backends instead. Each test
is skipped without its library (tools/python-venv installs dask).
"""

import asyncio
import importlib.util
import logging

import penstock
from package import *


def square(x):
    return x * x


class Once:
    """Kills the process of the first call."""

    def __init__(self, folder):
        self.mark = os.path.join(folder, "killed")

    def __call__(self, x):
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return x * x
        os.kill(os.getpid(), signal.SIGKILL)

    def has_killed(self):
        return os.path.exists(self.mark)


class LibrariesTest(PackageTest):
    def pool(self, workers=2):
        pool = penstock.Pool(workers, control_socket=False)
        self.addCleanup(pool.shutdown, cancel_futures=True)
        return pool

    def need(self, *names):
        for name in names:
            if importlib.util.find_spec(name) is None:
                self.skipTest("%s is not installed" % name)

    def test_a_pool_reports_its_number_of_workers_as_executors_do(self):
        pool = self.pool(3)
        self.assertEqual(pool._max_workers, 3)
        pool.scale(2)
        self.assertEqual(pool._max_workers, 2)
        self.assertEqual(pool.options(timeout=9)._max_workers, 2)
        self.assertGreaterEqual(self.pool(None)._max_workers, 1)
        pool.shutdown()
        self.assertEqual(pool._max_workers, 2)

    def test_dask_computes_on_a_pool(self):
        self.need("dask")
        import dask
        pool, kill_once = self.pool(), Once(self.folder)
        squares = [dask.delayed(kill_once, pure=False)(x) for x in range(20)]
        self.assertEqual(dask.compute(dask.delayed(sum)(squares), scheduler=pool), (sum(x * x for x in range(20)),))
        self.assertTrue(kill_once.has_killed())
        with self.assertRaisesRegex(ZeroDivisionError, "by zero"):
            dask.compute(dask.delayed(divmod)(1, 0), scheduler=pool)

    def test_dask_can_use_a_pool_for_its_processes(self):
        self.need("dask")
        import dask
        import dask.bag
        pool, kill_once = self.pool(), Once(self.folder)
        with dask.config.set(scheduler="processes", pool=pool):
            bag = dask.bag.from_sequence(range(40), npartitions=8).map(kill_once)
            self.assertEqual(bag.sum().compute(), sum(x * x for x in range(40)))
        self.assertTrue(kill_once.has_killed())

    def test_a_worker_of_dask_distributed_runs_its_tasks_on_a_pool(self):
        self.need("distributed")
        import distributed
        logging.getLogger("distributed").setLevel(logging.ERROR)
        pool, kill_once = self.pool(), Once(self.folder)

        async def run():
            async with distributed.Scheduler(port=0, dashboard=False, host="127.0.0.1", dashboard_address=":0") as scheduler:
                async with distributed.Worker(scheduler.address, executor=pool, nthreads=2, local_directory=self.folder):
                    async with distributed.Client(scheduler.address, asynchronous=True) as client:
                        return await client.gather(client.map(kill_once, range(10), pure=False))
        self.assertEqual(asyncio.run(run()), [x * x for x in range(10)])
        self.assertTrue(kill_once.has_killed())

    def test_asyncio_runs_functions_on_a_pool(self):
        pool, kill_once = self.pool(), Once(self.folder)

        async def run():
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(loop.run_in_executor(pool, kill_once, x) for x in range(10)))
        self.assertEqual(asyncio.run(run()), [x * x for x in range(10)])
        self.assertTrue(kill_once.has_killed())

    def test_scikit_learn_searches_with_the_backend_for_joblib(self):
        self.need("sklearn", "joblib")
        import joblib
        import penstock.joblib  # noqa: F401  (registers the backend)
        from sklearn.datasets import make_classification
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV
        x, y = make_classification(200, random_state=0)

        def scores():
            search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, cv=3, n_jobs=2)
            return search.fit(x, y).cv_results_["mean_test_score"].tolist()
        with joblib.parallel_config(backend="penstock", n_jobs=2, control_socket=False):
            mine = scores()
        self.assertEqual(mine, scores())

    def test_trials_of_optuna_run_on_a_pool(self):
        self.need("optuna")
        import optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pool, kill_once = self.pool(), Once(self.folder)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
        study.optimize(lambda trial: pool.submit(kill_once, trial.suggest_float("x", -1, 1)).result(), n_trials=8, n_jobs=2)
        self.assertEqual([trial.value for trial in study.trials], [trial.params["x"] ** 2 for trial in study.trials])
        self.assertTrue(kill_once.has_killed())

    def test_trials_of_hyperopt_run_on_a_pool(self):
        self.need("hyperopt")
        import hyperopt
        pool, kill_once = self.pool(), Once(self.folder)
        best = hyperopt.fmin(lambda x: pool.submit(kill_once, x).result(), hyperopt.hp.uniform("x", -1, 1), hyperopt.rand.suggest, 8,
                             show_progressbar=False)
        self.assertLess(abs(best["x"]), 1)
        self.assertTrue(kill_once.has_killed())


if __name__ == "__main__":
    main()
