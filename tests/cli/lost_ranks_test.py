"""Ranks of `penstock launch FILE` that are killed at any moment. PENSTOCK_TEST_KILLS: how many kills (500 in the soak)."""

from harness import *

import statistics

RANKS = 4
KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", "8"))
PAUSE = 0.5  # at most this many seconds between two kills


class LostRanksTest(PenstockTest):
    def stream(self, wait="4ms"):
        return self.write("slow.toml", synthetic(1200, "64B", 10, 3, dataset='wait = "%s"' % wait,
                                                 more="[loader]\nworkers = 1\n[log]\nlevel = \"warn\"\n"))

    def start_group(self, config, *options):
        return self.start("launch", config, "--gpus", "host:%d" % RANKS, "--json", "--quiet", "--digest", *options)

    def digests_of(self, process):
        out, err = process.communicate(timeout=150)
        self.assertEqual(process.returncode, EXIT_OK, err + out)
        report = json.loads(out)
        for rank in report["ranks"]:
            self.check_sums(rank)
        return [[epoch["digest"] for epoch in rank["epochs"]] for rank in report["ranks"]], report

    def delivered_by(self, rank, pid):
        """The number of batches of this process; 0 if it does not answer yet."""
        status = self.live_status("slow-rank%d" % rank, timeout=2) or {}
        return status.get("batches_delivered", 0) if status.get("pid") == pid else 0

    def wait_for_return(self, process, rank, killed):
        """Seconds until the rank delivers again; None if the group has ended."""
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < 60:
            pid = self.rank_pids(process).get(rank)
            if pid not in (None, killed) and self.delivered_by(rank, pid) > 0:
                return time.monotonic() - begin
            time.sleep(0.002)
        self.assertIsNotNone(process.poll(), "rank %d is not back after a minute" % rank)
        return None

    def disturb(self, process, random_of, kills):
        """Kills ranks until the group has ended or there were enough kills; returns their number and the recovery times."""
        done, back = 0, []
        while done < kills and process.poll() is None:
            time.sleep(random_of.uniform(0, PAUSE))  # a random moment, perhaps before a rank has joined
            pids = self.rank_pids(process)
            if not pids:
                continue
            rank = random_of.choice(sorted(pids))
            others = {r: (pid, children_of(pid)) for r, pid in pids.items()
                      if r != rank and self.delivered_by(r, pid) > 0}
            delivers = self.delivered_by(rank, pids[rank]) > 0
            try:
                signal_process(pids[rank], signal.SIGKILL)
            except ProcessLookupError:
                continue
            done += 1
            if random_of.random() < 0.25:
                continue  # the next rank is killed before this one is back
            seconds = self.wait_for_return(process, rank, pids[rank])
            if seconds is not None and delivers:
                back.append(seconds)
            now = self.rank_pids(process)
            for r, (pid, children) in others.items():  # at the end, ranks exit without being replaced
                self.assertEqual(now.get(r, pid), pid, "rank %d was not touched" % r)
                self.assertLessEqual(set(children_of(pid)), set(children), "workers of rank %d" % r)
        return done, back

    def test_ranks_killed_at_any_moment_deliver_what_an_undisturbed_group_delivers(self):
        seed = random.randrange(1 << 32)
        random_of = random.Random(seed)
        expected, _ = self.digests_of(self.start_group(self.stream(), "--set", "dataset.wait=0s"))
        done, back, groups = 0, [], 0
        while done < KILLS:
            process = self.start_group(self.stream())
            kills, times = self.disturb(process, random_of, KILLS - done)
            done, back, groups = done + kills, back + times, groups + 1
            found, report = self.digests_of(process)
            self.assertEqual(found, expected, "seed %d" % seed)
            self.assertLessEqual(report["restarts"], kills)
        if back:
            back.sort()
            print("%d kills in %d groups; back after p50 %.2f s, p99 %.2f s, at most %.2f s" % (
                done, groups, statistics.median(back), back[int(len(back) * 0.99)], back[-1]))

    def all_ranks(self, process):
        """Rank and pid; the pid of a missing rank is 0."""
        pids = self.rank_pids(process)
        return [(rank, pids.get(rank, 0)) for rank in range(RANKS)]

    def kill_all(self, process):
        for pid in self.rank_pids(process).values():
            signal_process(pid, signal.SIGKILL)

    def seen(self):
        """What the sink of each rank received, in order, since the last call."""
        found = []
        for rank in range(RANKS):
            path = os.path.join(self.folder, "seen-rank%d" % rank)
            found.append([(one["epoch"], one["samples"], one["digest"]) for one in self.journal_lines(path) if "batch" in one])
            os.remove(path)
        return found

    def test_a_group_whose_ranks_are_all_killed_at_once_delivers_what_an_undisturbed_group_delivers(self):
        expected, _ = self.digests_of(self.start_group(self.stream(), "--set", "dataset.wait=0s"))
        process = self.start_group(self.stream())
        for delivered in (3, 6):
            self.wait_until(lambda: all(self.delivered_by(rank, pid) >= delivered for rank, pid in self.all_ranks(process)),
                            "all ranks have delivered")
            self.kill_all(process)
        found, report = self.digests_of(process)
        self.assertEqual(found, expected)
        self.assertEqual(report["restarts"], 2 * RANKS)

    states = frozenset()

    def is_beyond_its_beginning(self, path):
        """A state file counts as written when it is a different file from before."""
        with open(path, "rb") as file:
            self.states |= {file.read()}
        return len(self.states) > 1

    def test_a_group_that_is_killed_with_its_launcher_continues_from_its_state_file(self):
        config, state = self.stream(), os.path.join(self.folder, "group.state")
        journals = ["--sink", "journal:" + os.path.join(self.folder, "seen")]
        self.digests_of(self.start_group(config, "--set", "dataset.wait=0s", *journals))
        expected = self.seen()
        process = self.start_group(config, "--state", state, "--state-every", "50ms", *journals)
        # All ranks have reached the position in the file, and most are beyond it.
        self.wait_until(lambda: all(self.delivered_by(rank, pid) >= 8 for rank, pid in self.all_ranks(process)), "all ranks have delivered")
        self.wait_until(lambda: self.is_beyond_its_beginning(state), "a state of a later step")
        ranks = [pid for _, pid in self.all_ranks(process)]
        process.kill()
        process.wait()
        self.wait_until(lambda: not any(alive(pid) for pid in ranks), "the ranks have ended with their launcher")
        first = self.seen()
        self.digests_of(self.start_group(config, "--state", state, *journals))
        rest = self.seen()
        steps = {len(everything) - len(one) for everything, one in zip(expected, rest)}
        self.assertEqual(len(steps), 1, "all ranks begin at one step")
        step = steps.pop()
        self.assertGreater(step, 0)
        for everything, before, after in zip(expected, first, rest):
            self.assertLessEqual(step, len(before))
            self.assertEqual(before, everything[:len(before)])
            self.assertEqual(after, everything[step:])


if __name__ == "__main__":
    main()
