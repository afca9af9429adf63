"""A loader host shares its workers between the sessions that have connected to it (rules H14-H15)."""

from host_case import *


class SharedHostsTest(HostCase):
    WORKERS, SLOW = 4, 'wait = "4ms"'

    def calling(self, name, address, *arguments, **rest):
        return self.begin(self.config(name, listen="connect = %s" % json.dumps([address]), **rest), *arguments)

    def leaves(self, host):
        host.terminate()
        return self.ends(host, EXIT_OK)

    def test_two_sessions_get_half_of_the_workers_each_and_the_one_that_remains_gets_all(self):
        host, address = self.listening_host(self.WORKERS)
        shapes = {"first": dict(samples=16000, epochs=1), "second": dict(samples=3000, epochs=1, bytes="100B")}
        local = {name: self.local_digests(**shape) for name, shape in shapes.items()}
        first = self.calling("first", address, dataset=self.SLOW, **shapes["first"])
        self.share(first=4)
        second = self.calling("second", address, dataset=self.SLOW, **shapes["second"])
        self.share(first=2, second=2)
        self.check(second, local["second"])
        self.share(first=4)
        self.check(first, local["first"])
        self.leaves(host)

    def test_a_paused_session_lends_its_workers_to_the_other_and_gets_them_back(self):
        host, address = self.listening_host(self.WORKERS)
        sessions = [self.calling(name, address, dataset=self.SLOW, samples=10**6, epochs=1) for name in ("paused", "other")]
        self.share(paused=2, other=2)
        self.assertEqual(self.penstock("pause", "--session", "paused")[0], EXIT_OK)
        self.share(paused=1, other=3)
        self.assertEqual(self.penstock("resume", "--session", "paused")[0], EXIT_OK)
        self.share(paused=2, other=2)
        self.stop(paused=sessions[0], other=sessions[1])
        self.leaves(host)

    def test_neither_session_loses_a_sample_when_a_host_is_killed(self):
        host, address = self.listening_host(self.WORKERS)
        shape = dict(samples=6000, epochs=1)
        local = self.local_digests(**shape)
        sessions = {name: self.calling(name, address, dataset=self.SLOW, **shape) for name in ("one", "two")}
        self.share(one=2, two=2)
        host.kill()
        host.communicate()
        again, _ = self.listening_host(self.WORKERS, at=address)
        for process in sessions.values():
            report = self.report_of(process)
            self.assertEqual(self.digests_of(report), local)
            self.assertEqual(report["quarantine"], [])
            self.assertEqual({d["sample"] for d in report["workers"]["deaths"]}, {None})
        self.leaves(again)

    def test_workers_of_a_killed_session_go_to_the_other_one(self):
        host, address = self.listening_host(self.WORKERS)
        shape = dict(samples=10000, epochs=1)
        local = self.local_digests(**shape)
        killed, other = (self.calling(name, address, dataset=self.SLOW, **shape) for name in ("killed", "other"))
        self.share(killed=2, other=2)
        killed.kill()
        killed.communicate()
        self.share(other=4)
        self.check(other, local)
        self.leaves(host)

    def test_if_there_are_more_sessions_than_workers_they_take_turns(self):
        host, address = self.listening_host(1)
        shape = dict(samples=400, epochs=1)
        local = self.local_digests(**shape)
        sessions = [self.calling("s%d" % i, address, dataset='wait = "2ms"', **shape) for i in range(3)]
        for process in sessions:
            self.check(process, local)
        self.leaves(host)

    def test_workers_that_rest_for_one_session_work_for_the_other_until_they_are_needed_again(self):
        host, address = self.listening_host(self.WORKERS)
        sessions = [self.calling(name, address, dataset=self.SLOW, samples=10**6, epochs=1) for name in ("first", "second")]
        self.share(first=2, second=2)
        for wanted, shares in ((0, dict(first=0, second=3)), (1, dict(first=1, second=3)), (4, dict(first=2, second=2))):
            code, _, err = self.penstock("scale", "host/a", wanted, "--session", "first")
            self.assertEqual(code, EXIT_OK, err)
            self.share(**shares)
        code, _, err = self.penstock("scale", "host/a", 5, "--session", "first")
        self.assertEqual(code, EXIT_REFUSED)
        self.assertIn("host/a has 4 workers: the number must be 0 to 4", err)
        self.stop(first=sessions[0], second=sessions[1])
        self.leaves(host)

    def test_a_session_that_sends_a_host_away_leaves_it_to_the_others_and_the_host_ends_with_the_last_session(self):
        host, address = self.listening_host(self.WORKERS)
        shape = dict(samples=3000, epochs=1)
        local = self.local_digests(**shape)
        first = self.begin(self.config("first", listen="connect = %s" % json.dumps([address]), workers=1, dataset=self.SLOW, **shape))
        second = self.calling("second", address, dataset=self.SLOW, samples=10**6, epochs=1)
        self.share(first=2, second=2)
        self.assertEqual(self.penstock("drain", "host/a", "--session", "first")[0], EXIT_OK)
        self.share(first=0, second=4)
        self.assertEqual(self.status("first")["hosts"], [])
        told = [json.loads(line) for line in self.penstock("events", "--json", "--session", "first")[1].splitlines()]
        self.assertEqual([e["kind"] for e in told if e.get("host") == "a"], ["host_joined", "draining", "host_left"])
        self.assertNotIn("worker_died", [e["kind"] for e in told])  # the workers were asked to leave
        self.check(first, local)
        self.assertEqual(self.workers_here("second"), 4)
        self.assertEqual(self.penstock("drain", "host/a", "--session", "second")[0], EXIT_OK)
        self.assertIn("session first asks this host to leave: its workers finish their batches; other sessions keep this host", self.ends(host, EXIT_OK))
        self.stop(second=second)

    def test_the_ranks_of_a_group_share_a_host_and_have_their_own_parts(self):
        host, address = self.listening_host(self.WORKERS)
        shape = dict(samples=6000, epochs=1)
        ranks = ["--set", "sampler.world_size=2", "--set", "group.join=never"]
        plain = self.write("plain.toml", synthetic(**shape))
        local = [self.digests(plain, "--workers", 2, *ranks, "--set", "sampler.rank=%d" % rank) for rank in range(2)]
        running = [self.calling("photos-rank%d" % rank, address, *ranks, "--set", "sampler.rank=%d" % rank, dataset='wait = "2ms"', **shape) for rank in range(2)]
        one_line = r"calling %s\nhost +ranks .*\na +0-1 +ready " % re.escape(address)
        self.wait_until(lambda: re.search(one_line, self.penstock("status", "--group", "photos")[1]), "the group's status shows the host once")
        for process, digests in zip(running, local):
            self.check(process, digests)
        self.leaves(host)


if __name__ == "__main__":
    main()
