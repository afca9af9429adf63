"""Loader hosts for Python: datasets and jobs on the workers of `python -m penstock host` give the same results as on local workers."""

import json
import random
import signal
import shutil
import subprocess
import threading
import time
import unittest.mock

import penstock
import penstock._loader
from loader_data import Counting, DataLoader, LoaderCase, SharingLoader, Shards, Squares, kill, numpy, plain, torch
from package import *
from package import children_of

SEED = int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(1 << 32)))
KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", 20))
RESTARTS = {"loader": {"restart": {"intensity": {"max": 1000}, "backoff": {"max": "200ms"}}}}
PENSTOCK = os.path.join(os.environ["PENSTOCK_BIN"], "penstock")
SCALE = 3.0  # a global of the program


class Drawing(torch.utils.data.Dataset):
    """A dataset of the program itself, which draws from every generator and records which process has loaded a sample."""

    def __init__(self, length=60, wait=0.0, poison=()):
        self.length, self.wait, self.poison = length, wait, poison
        self.base = torch.arange(4096, dtype=torch.float32)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index in self.poison:
            kill()
        time.sleep(self.wait)
        drawn = (random.random(), float(numpy.random.rand()), torch.rand(3))
        return self.base[:1000] * SCALE + index, index, drawn


class DrawingShards(torch.utils.data.IterableDataset):
    """A dataset of the program itself. Each worker loads its part, and draws from every generator."""

    def __init__(self, length, wait=0.0):
        self.length, self.wait = length, wait

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for value in range(info.id, self.length * info.num_workers + info.id, info.num_workers):
            time.sleep(self.wait)
            yield value * SCALE, random.random(), float(numpy.random.rand()), torch.rand(2)


class Resuming(torch.utils.data.IterableDataset):
    """Knows its position. Its values depend only on the position, the shard and the generators."""

    def __init__(self, length, wait=0.0):
        self.length, self.wait, self.at = length, wait, 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        while self.at < self.length:
            time.sleep(self.wait)
            self.at += 1
            yield self.at * 10 + info.id, torch.rand(2)
        self.at = 0


class HostsTest(LoaderCase):
    def setUp(self):
        super().setUp()
        self.hosts, self.made = [], []
        self.secret = os.path.join(self.folder, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            subprocess.run([PENSTOCK, "secret"], stdout=file, check=True)

    def tearDown(self):
        for one in self.made:
            pool = one._workers and one._workers.pool if isinstance(one, DataLoader) else one
            if pool:
                pool.abort()
        for host in self.hosts:
            host.kill()
            host.communicate()
        super().tearDown()

    def host(self, address, workers=2, *arguments, program=(sys.executable, "-m", "penstock"), **environment):
        host = subprocess.Popen(
            [*program, "host", "--join", address, "--workers", str(workers), "--secret-file", self.secret, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env={**os.environ, **environment},
        )
        self.hosts.append(host)
        return host

    def loader(self, dataset, num_workers=0, **options):
        made = DataLoader(dataset, num_workers=num_workers, hosts="127.0.0.1:0", hosts_secret_file=self.secret, **options)
        self.made.append(made)
        return made

    def local(self, dataset, **options):
        return list(SharingLoader(dataset, num_workers=2, **options))

    # ---- the same batches ----------------------------------------------------------------------------------------

    def test_batches_of_a_dataset_of_the_program_match_local_ones(self):
        options = dict(batch_size=7, shuffle=True, seed=5)
        expected = self.local(Drawing(), **options)
        for num_workers in (0, 1):
            with self.subTest(num_workers=num_workers):
                loader = self.loader(Drawing(), num_workers, **options)
                self.host(loader.hosts_join_at)
                self.same(list(loader), expected)
                self.assertTrue(loader.hosts_join_at.startswith("127.0.0.1:"))

    def test_batches_of_a_dataset_of_a_module_match_local_ones_over_several_epochs(self):
        loader = self.loader(Squares(50), batch_size=4, persistent_workers=False, prefetch_factor=3)
        self.host(loader.hosts_join_at, 3)
        expected = self.local(Squares(50), batch_size=4)
        for _ in range(3):
            self.same(list(loader), expected)

    def test_large_batches_match_local_ones(self):
        big = torch.arange(3_000_000, dtype=torch.int64)  # 24 MB of dataset; 6 MB per sample, which is more than a slot
        dataset = [(big[: 750_000 + index], index) for index in range(6)]
        loader = self.loader(dataset, batch_size=None)
        self.host(loader.hosts_join_at)
        self.same(list(loader), self.local(dataset, batch_size=None))

    def listening_host(self):
        """Starts a host, and returns its address."""
        host = subprocess.Popen([sys.executable, "-m", "penstock", "host", "--listen", "127.0.0.1:0", "--workers", "2", "--secret-file", self.secret],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
        self.hosts.append(host)
        waits = next(line.decode() for line in host.stderr if b"waiting for a session at " in line)
        return waits.split("waiting for a session at ")[1].split()[0]

    def test_loaders_call_listening_hosts_one_after_the_other(self):
        address = self.listening_host()
        options = dict(batch_size=7, shuffle=True, seed=5)
        expected = self.local(Drawing(), **options)
        for _ in range(2):
            loader = DataLoader(Drawing(), num_workers=0, hosts=[address], hosts_secret_file=self.secret, **options)
            self.made.append(loader)
            self.same(list(loader), expected)
            self.made.pop()
            del loader

    def test_two_loaders_share_a_listening_host(self):
        address = self.listening_host()
        given = [dict(batch_size=4, shuffle=True, seed=seed) for seed in (5, 6)]
        loaders = [DataLoader(Drawing(200, wait=0.02), num_workers=0, hosts=[address], hosts_secret_file=self.secret, **options) for options in given]
        self.made += loaders
        batches = [list(pair) for pair in zip(*zip(*loaders))]
        for got, options in zip(batches, given):
            self.same(got, self.local(Drawing(200), **options))
        del loaders
        self.made.clear()

    # ---- deaths --------------------------------------------------------------------------------------------------

    def test_hosts_and_their_workers_can_be_killed_at_any_time(self):
        print("PENSTOCK_TEST_SEED=%d" % SEED, flush=True)
        draw = random.Random(SEED)
        options = dict(batch_size=4, shuffle=True, seed=9)
        length = 60 * KILLS
        expected = self.local(Drawing(length), **options)
        loader = self.loader(Drawing(length, wait=0.02), pool=RESTARTS, **options)
        address = loader.hosts_join_at
        for _ in range(3):
            self.host(address)
        over = threading.Event()
        kills = []

        def disturb():
            while len(kills) < KILLS and not over.wait(draw.uniform(0.1, 0.7)):
                victim = draw.choice(self.hosts)
                workers = children_of(victim.pid)
                if workers and draw.random() < 0.5:
                    kills.append("worker")
                    try:
                        os.kill(draw.choice(sorted(workers)), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                    continue
                kills.append("host")
                victim.kill()
                victim.communicate()
                self.hosts.remove(victim)
                self.host(address)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            batches = list(loader)
        finally:
            over.set()
            thread.join()
        print("%d kills" % len(kills), flush=True)
        self.same(batches, expected)
        self.assertGreaterEqual(len(kills), KILLS // 2)
        self.assertEqual(loader.bad_samples, [])

    def test_a_sample_that_kills_remote_workers_is_named_like_a_local_one(self):
        options = dict(batch_size=5, on_bad_sample="skip", seed=3, pool={"quarantine": {"max_attempts": 2}, **RESTARTS})
        local = DataLoader(Drawing(20, poison=(7,)), num_workers=2, **options)
        expected = list(local)
        loader = self.loader(Drawing(20, poison=(7,)), **options)
        self.host(loader.hosts_join_at)
        self.same(list(loader), expected)
        # For a worker on this machine, the session also knows that no OOM kill was counted.
        told = lambda of: [(each["index"], [cause.split(" ")[0] for cause in each["causes"]]) for each in of.bad_samples]
        self.assertEqual(told(loader), told(local))
        self.assertEqual([each["index"] for each in loader.bad_samples], [7])

    def test_a_host_that_is_asked_to_leave_exits_with_0_and_the_loader_continues(self):
        options = dict(batch_size=4, seed=1)
        loader = self.loader(Drawing(120, wait=0.01), **options)
        leaving, other = (self.host(loader.hosts_join_at) for _ in range(2))
        batches = iter(loader)
        first = [next(batches) for _ in range(3)]
        leaving.terminate()
        _, err = leaving.communicate(timeout=30)
        self.assertEqual(leaving.returncode, 0, err.decode())
        self.same(first + list(batches), self.local(Drawing(120), **options))

    # ---- another network -----------------------------------------------------------------------------------------

    def network(self):
        """A network namespace, connected to this one. Returns its name, this side's address, and the interface there."""
        name, near, far = "penstock-%d" % os.getpid(), "pst%d-0" % (os.getpid() % 10**6), "pst%d-1" % (os.getpid() % 10**6)
        part = "10.%d.%d." % (100 + os.getpid() % 100, os.getpid() // 100 % 250)
        steps = ("netns add NAME", "link add NEAR type veth peer name FAR netns NAME", "addr add PART1/24 dev NEAR", "link set NEAR up",
                 "-n NAME addr add PART2/24 dev FAR", "-n NAME link set FAR up", "-n NAME link set lo up")
        if not shutil.which("ip"):
            self.skipTest("there is no program ip")
        self.addCleanup(subprocess.run, ["ip", "netns", "del", name], capture_output=True)
        for step in steps:
            words = [word.replace("NAME", name).replace("NEAR", near).replace("FAR", far).replace("PART", part) for word in step.split()]
            made = subprocess.run(["ip", *words], capture_output=True, text=True)
            if made.returncode != 0:
                self.skipTest("no network namespaces here: " + made.stderr)
        return name, part + "1", far

    def test_a_host_in_another_network_loads_batches_and_one_that_falls_silent_is_lost(self):
        name, address, interface = self.network()
        options = dict(batch_size=4, shuffle=True, seed=2)
        expected = self.local(Drawing(240), **options)
        hosts = {"loader": {**RESTARTS["loader"], "hosts": {"lost_after": "1s"}}}
        loader = DataLoader(Drawing(240, wait=0.01), hosts=address + ":0", hosts_secret_file=self.secret, pool=hosts, **options)
        self.made.append(loader)
        there = ("ip", "netns", "exec", name, sys.executable, "-m", "penstock")
        self.host(loader.hosts_join_at, 2, program=there)
        batches = iter(loader)
        first = [next(batches) for _ in range(10)]
        self.host(loader.hosts_join_at, 2)  # a host in this network
        first += [next(batches) for _ in range(5)]
        subprocess.run(["ip", "-n", name, "link", "set", interface, "down"], check=True)
        since = time.monotonic()
        self.same(first + list(batches), expected)
        self.assertLess(time.monotonic() - since, 120)  # Python may need this long to start on a busy machine
        self.assertEqual(loader.bad_samples, [])

    # ---- who may join --------------------------------------------------------------------------------------------

    def refused(self, host):
        _, err = host.communicate(timeout=60)
        self.assertEqual(host.returncode, 78, err.decode())
        return err.decode()

    def test_hosts_that_differ_are_refused_with_both_values(self):
        from penstock import _hosts

        loader = self.loader(Squares(20), batch_size=4)
        address = loader.hosts_join_at
        mine = _hosts.own_program()

        def program(**facts):
            made = {**mine, "facts": {**mine["facts"], **facts}}
            return {"program": (PENSTOCK,), "PENSTOCK_HOST_PROGRAM": json.dumps(made)}

        python, torch_here = mine["facts"]["Python"], mine["facts"]["torch"]
        self.assertIn("the host has Python 3.99, but the session has Python " + python, self.refused(self.host(address, 1, **program(Python="3.99"))))
        self.assertIn("the host has torch 0.4, but the session has torch " + torch_here, self.refused(self.host(address, 1, **program(torch="0.4"))))
        without = {**mine, "facts": {"Python": python}}
        self.assertIn("the host has no torch", self.refused(self.host(address, 1, program=(PENSTOCK,), PENSTOCK_HOST_PROGRAM=json.dumps(without))))
        self.assertIn("start it as `python -m penstock host`", self.refused(self.host(address, 1, program=(PENSTOCK,))))
        self.assertIn("--data allows some folders only", self.refused(self.host(address, 1, "--data", "/a=/b")))
        self.host(address)
        self.same(list(loader), self.local(Squares(20), batch_size=4))

    def test_hosts_that_run_code_need_a_secret(self):
        with self.assertRaisesRegex(penstock.config_error, "hosts_secret_file"):
            DataLoader(Squares(4), hosts="127.0.0.1:0")
        with self.assertRaisesRegex(penstock.config_error, "there is no secret"):
            penstock.Pool(1, hosts="127.0.0.1:0")
        with self.assertRaisesRegex(penstock.config_error, "insecure"):
            penstock.Pool(1, hosts="127.0.0.1:0", loader={"hosts": {"insecure": True}})

    # ---- iterable datasets ---------------------------------------------------------------------------------------

    def shards(self, dataset, **options):
        """The batches of local shards, and a loader with the same number of shards on hosts."""
        options = dict(num_workers=3, batch_size=3, seed=4, **options)
        return list(SharingLoader(dataset, **options)), self.loader(dataset, pool=RESTARTS, **options)

    def two_epochs(self, loader):
        return [list(loader) for _ in range(2)]

    def test_an_iterable_dataset_has_the_shards_of_local_workers_whatever_hosts_exist(self):
        options = dict(num_workers=3, batch_size=3, seed=4)
        expected = self.two_epochs(SharingLoader(DrawingShards(40), **options))  # only once, because each start of workers imports torch
        for hosts, workers in ((1, 1), (1, 4), (2, 2)):
            with self.subTest(hosts=hosts, workers=workers):
                loader = self.loader(DrawingShards(40), pool=RESTARTS, **options)
                for _ in range(hosts):
                    self.host(loader.hosts_join_at, workers)
                for epoch in expected:
                    self.same(list(loader), epoch)

    def test_a_pass_starts_with_the_workers_that_the_previous_one_saw(self):
        options = dict(num_workers=3, batch_size=3, seed=4)
        first, second = self.two_epochs(SharingLoader(DrawingShards(40), **options))
        loader = self.loader(DrawingShards(40), pool=RESTARTS, **options)
        self.host(loader.hosts_join_at)
        self.same(list(loader), first)
        with unittest.mock.patch.object(penstock._loader, "LOOK_EVERY", 1000.0):  # so rarely that a pass which waited for a look would not end
            self.same(list(loader), second)

    def test_shards_move_to_new_hosts_and_away_from_lost_ones(self):
        for kind in (DrawingShards, Resuming):
            with self.subTest(dataset=kind.__name__):
                expected, loader = self.shards(kind(120, wait=0.01))
                first = self.host(loader.hosts_join_at, 1)
                batches = iter(loader)
                got = [next(batches) for _ in range(9)]
                second = self.host(loader.hosts_join_at, 2)
                got += [next(batches) for _ in range(30)]
                first.kill()
                first.communicate()
                self.hosts.remove(first)
                got += [next(batches) for _ in range(20)]
                os.kill(random.choice(sorted(children_of(second.pid))), signal.SIGKILL)
                self.same(got + list(batches), expected)
                self.assertEqual(loader.bad_samples, [])

    def test_a_stateful_dataset_repeats_little_when_its_host_is_lost(self):
        log = os.path.join(self.folder, "log")
        dataset = Counting(200, log, lambda shard, value: time.sleep(0.005))
        options = dict(num_workers=2, batch_size=2, seed=3)
        expected = plain(SharingLoader(dataset, **options))
        os.truncate(log, 0)
        loader = self.loader(dataset, pool=RESTARTS, **options)
        first = self.host(loader.hosts_join_at)
        batches = iter(loader)
        got = [next(batches) for _ in range(60)]
        first.kill()
        first.communicate()
        self.hosts.remove(first)
        self.host(loader.hosts_join_at)
        self.assertEqual(plain(got + list(batches)), expected)
        again = [value for value, times in dataset.made().items() if times > 1]
        self.assertLess(len(again), 40)  # it repeats only batches in progress, about two per shard; the rest is a margin

    def test_a_loader_with_hosts_resumes_an_iterable_dataset_from_a_state_of_local_workers(self):
        for dataset in (DrawingShards(40), Resuming(40)):
            with self.subTest(dataset=type(dataset).__name__):
                options = dict(num_workers=3, batch_size=3, seed=4)
                local = SharingLoader(dataset, **options)
                batches = iter(local)
                for _ in range(10):
                    next(batches)
                state = local.state_dict()
                rest = list(batches)
                loader = self.loader(dataset, pool=RESTARTS, **options)
                loader.load_state_dict(state)
                self.host(loader.hosts_join_at)
                self.same(list(loader), rest)

    def test_a_shard_that_kills_its_remote_worker_is_named_with_its_position(self):
        def die(shard, value):
            if (shard, value) == (1, 5):
                kill()

        loader = self.loader(Shards(20, die), num_workers=2, batch_size=4, pool=RESTARTS)
        self.host(loader.hosts_join_at)
        with self.assertRaisesRegex(penstock.sample_error, "sample 2 of shard 1"):
            list(loader)

    def test_arguments_that_hosts_cannot_support_are_refused_and_the_error_says_what_to_pass(self):
        with self.assertRaisesRegex(penstock.config_error, "set it to the number of shards"):
            self.loader(Shards(4))
        with self.assertRaisesRegex(penstock.config_error, r'pass seeding="sample" \(with worker_init_fn, the default is seeding="worker"\)'):
            self.loader(Shards(4), 2, worker_init_fn=print)
        with self.assertRaisesRegex(penstock.config_error, 'pass seeding="sample"$'):
            self.loader(Shards(4), 2, seeding="worker")

    # ---- pools ---------------------------------------------------------------------------------------------------

    def pool(self, workers=0, **options):
        pool = penstock.Pool(workers, hosts="127.0.0.1:0", hosts_secret_file=self.secret, **{**RESTARTS, **options})
        self.made.append(pool)
        return pool

    def test_a_pool_runs_jobs_on_hosts(self):
        global SCALE

        def begin(value):
            global SCALE
            SCALE = value

        pool = self.pool(initializer=begin, initargs=(7,))
        self.host(pool.hosts_join_at, PENSTOCK_GROUP_SECRET="no job on this host may know it")
        self.assertEqual(list(pool.map(lambda x: x * SCALE, range(50), chunksize=7)), [7 * x for x in range(50)])
        self.assertIsNone(pool.submit(os.getenv, "PENSTOCK_GROUP_SECRET").result())
        large = numpy.arange(2_000_000)
        numpy.testing.assert_array_equal(pool.submit(lambda a: a[::-1], large).result(), large[::-1])
        with self.assertRaisesRegex(ZeroDivisionError, "zero") as raised:
            pool.submit(lambda: 1 / 0).result()
        self.assertIn("hosts_test.py", str(raised.exception.__cause__))
        self.assertEqual(pool.submit(os.getppid).result(), self.hosts[0].pid)
        with self.assertRaises(penstock.job_timed_out_error):
            pool.options(timeout=0.3).submit(time.sleep, 60).result()

    def test_a_job_that_is_not_idempotent_is_not_started_again_when_its_host_is_lost(self):
        pool = self.pool()
        begun = os.path.join(self.folder, "begun")

        def job(number):
            with open(begun, "a") as file:
                file.write("%d\n" % number)
            time.sleep(0.3)
            return number

        first = self.host(pool.hosts_join_at)
        once = [pool.options(idempotent=False).submit(job, number) for number in range(6)]
        again = [pool.submit(job, number) for number in range(6, 12)]
        end = time.monotonic() + 60
        while not os.path.exists(begun) and time.monotonic() < end:
            time.sleep(0.01)
        first.kill()
        first.communicate()
        self.host(pool.hosts_join_at)
        lost = []
        for number, future in enumerate(once):
            try:
                self.assertEqual(future.result(timeout=60), number)
            except penstock.job_worker_lost_error:
                lost.append(number)
        self.assertEqual([future.result(timeout=60) for future in again], list(range(6, 12)))
        with open(begun) as file:
            times = [int(line) for line in file]
        for number in range(6):
            self.assertLessEqual(times.count(number), 1)
        self.assertTrue(lost)


if __name__ == "__main__":
    main()
