"""Hosts on machines in a bad state, and sessions that end at a bad moment."""

import glob
import io
import shutil
import tarfile

from host_case import *

MOMENTS = int(os.environ.get("PENSTOCK_TEST_MOMENTS", 5))
PIECES_OF_JOINING = 3  # what a joining host sends: its hello, its dataset, and then messages about its worker


class BadHostsTest(HostCase):
    def test_a_worker_on_a_host_that_outgrows_its_limit_is_replaced_after_its_sample_like_a_local_one(self):
        shape = dict(samples=300, dataset='wait = "8ms"\nfaults = [{sample = 17, kind = "leak", times = 1}]', epochs=1)
        limit = '[loader.limits]\nmemory = "60MiB"\n'
        local = self.run_json(self.write("local.toml", synthetic(more=limit, **shape)), "--workers", 2, "--digest")
        process = self.begin(self.config(more=limit, **shape))
        host = self.host(self.address(), 2)
        report = self.report_of(process)
        told = lambda r: ([(d["cause"], d["code"], d["sample"]) for d in r["workers"]["deaths"]], r["quarantine"], self.digests_of(r))
        self.assertEqual(told(report), told(local))
        self.assertEqual(told(report)[0], [("memory", 0, None)])
        self.assertGreater(report["workers"]["deaths"][0]["rss_bytes"], 60 << 20)
        self.ends(host, EXIT_OK)

    def test_a_host_whose_clock_is_a_day_ahead_makes_the_same_stream(self):
        if not shutil.which("faketime"):
            self.skipTest("faketime is not installed")
        shape = dict(samples=400, dataset='wait = "1ms"', epochs=1)
        process = self.begin(self.config(**shape))
        address = self.address()
        host = subprocess.Popen(["faketime", "-f", "+1d", PENSTOCK, "host", "--join", address, "--workers", "2", "--name", "ahead", "--insecure"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
                                env=dict(self.environment, FAKETIME_DONT_FAKE_MONOTONIC="1"))
        self._running.append(host)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertEqual((report["quarantine"], report["workers"]["deaths"]), ([], []))
        self.ends(host, EXIT_OK)

    def test_a_host_without_room_for_an_index_and_in_dev_shm_makes_the_same_stream_and_says_what_is_full(self):
        shards = os.path.join(self.folder, "shards")
        os.mkdir(shards)
        for number in range(2):
            with tarfile.open(os.path.join(shards, "%d.tar" % number), "w") as archive:
                for i in range(40):
                    member = tarfile.TarInfo("%d-%03d.txt" % (number, i))
                    member.size = 100
                    archive.addfile(member, io.BytesIO(bytes([i]) * 100))
        text = ('[dataset]\ntype = "tar"\npath = "%s"\nmembers = { text = "txt" }\n[sampler]\nbatch_size = 7\nepochs = 2\n'
                '[gpu]\ndevice = "host"\n' % shards)
        full = os.path.join(self.folder, "full")
        os.mkdir(full)
        mounts = ('mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && mount -t tmpfs -o size=1m none "$2"'
                  ' && mount -t tmpfs -o size=4k none /dev/shm || exit 77; cat /dev/zero > "$2/filler" 2> /dev/null; cat /dev/zero > /dev/shm/filler 2> /dev/null\n'
                  'shift 2; exec "$@"')
        in_namespace = ["unshare", "-m", "sh", "-c", mounts, "sh", shards, full]
        if subprocess.run([*in_namespace, "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespace may be made here")
        process = self.begin(self.config(text=text))
        address = self.address()
        for one in glob.glob(os.path.join(shards, ".penstock-*")):  # removes the session's index
            os.remove(one)
        host = subprocess.Popen([*in_namespace, PENSTOCK, "host", "--join", address, "--workers", "2", "--name", "full", "--insecure"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder, env=dict(self.environment, XDG_CACHE_HOME=full))
        self._running.append(host)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(text=text))
        self.assertEqual((report["quarantine"], report["workers"]["deaths"]), ([], []))
        self.assertRegex(self.ends(host, EXIT_OK), r"the index of shards could not be saved \(.*No space left on device")

    def rank(self, number, secret):
        """A rank of a group of two, and the address of the group."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        group = '[group]\nsecret_file = "%s"\njoin_timeout = "20s"\n' % secret
        process = self.start("run", self.write("train.toml", synthetic(samples=10**6, dataset='wait = "2ms"') + group), "--quiet",
                             env=dict(self.environment, RANK=str(number), WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                                      MASTER_PORT=str(port)))
        return process, self.line_of(process, rb"joins the group '\d+/train' at (\S+)")[1].decode()

    def test_a_host_that_joins_a_group_with_its_secret_is_refused_and_both_say_what_differs(self):
        secret = self.secret("both")
        rank, address = self.rank(0, secret)
        host = self.host(address, secret=("--secret-file", secret))
        self.line_of(rank, rb"it wants 'penstock hosts', but this is 'penstock/\d+/train'")
        self.assertIn("it is not 'penstock hosts', or does not know this secret", self.ends(host, EXIT_CONFIG))

    def test_a_rank_that_joins_a_session_of_hosts_with_its_secret_is_refused_and_both_say_what_differs(self):
        secret = self.secret("both")
        rank, address = self.rank(1, secret)
        session = self.begin(self.config(samples=10**6, dataset='wait = "2ms"', hosts='secret_file = "%s"\n' % secret, listen='listen = "%s"' % address))
        self.line_of(session, rb"it wants 'penstock/\d+/train', but this is 'penstock hosts'")
        self.line_of(rank, rb"it is not 'penstock/\d+/train', or does not know this secret")

    def test_a_session_that_ends_while_a_host_joins_leaves_a_host_that_ends_or_tries_again_and_says_so(self):
        for _ in range(MOMENTS):
            held, ended = threading.Event(), threading.Event()
            piece, pieces = random.randrange(PIECES_OF_JOINING), []

            def hold(_, some):
                pieces.append(some)
                if len(pieces) == piece + 1:
                    held.set()
                    ended.wait(random.choice([0.0, 0.02, 30.0]))  # 30 s: nothing more arrives until the session has ended
                return some

            process = self.begin(self.config(samples=10**6, dataset='wait = "2ms"', epochs=1, hosts=INSECURE + 'wait = "1s"\n', workers=1))
            host = self.host(Relay(self.address(), hold).address)
            self.assertTrue(held.wait(20))
            self.assertEqual(self.penstock("stop", "--now", "--session", "h")[0], EXIT_OK)
            process.communicate(timeout=30)
            ended.set()
            with self.subTest(piece=piece):
                self.ends_or_tries_again(host)

    def ends_or_tries_again(self, host):
        """A host ends if the session could tell it to. Otherwise a host without a place waits for another session, and logs why."""
        lines = []
        while line := host.stderr.readline().decode():
            lines.append(line)
            if line.rstrip().endswith("; trying again") and not any("joined session h" in one for one in lines):
                break
        if not line:
            self.assertIn(host.wait(20), (EXIT_OK, EXIT_FAILED), lines)
            self.assertTrue(host.returncode == EXIT_OK or "has not returned for 1 s" in "".join(lines), lines)
            return
        self.assertNotIn("it did not assign a place", line)  # an earlier version reported the session's end like this
        self.assertIsNone(host.poll(), lines)
        host.terminate()
        self.ends(host, EXIT_OK)


if __name__ == "__main__":
    main()
