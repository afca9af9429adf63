"""Sessions and loader hosts that are suspended for longer than lost_after, and workers in a debugger."""

import contextlib

from host_case import *

# A worker counts as hung sooner than its host as lost. On a busy machine a batch may need a second from a session to a worker.
HANG_AFTER, LOST_AFTER = 2.0, 5.0
BRIEFLY = 3.0  # longer than HANG_AFTER, shorter than LOST_AFTER
HANG = '[loader.hang]\nitem_timeout = "%gs"\nheartbeat_timeout = "%gs"\n' % (HANG_AFTER, HANG_AFTER)
SHAPE = dict(samples=3000, epochs=1)


class PausedHostsTest(HostCase):
    def running(self):
        """A session, a host and the expected digests."""
        hosts = INSECURE + 'lost_after = "%gs"\n' % LOST_AFTER
        session = self.begin(self.config(hosts=hosts, more=HANG, dataset='wait = "4ms"', **SHAPE))
        host = self.host(self.address(), 2)
        self.joined(2)
        return session, host, self.local_digests(**SHAPE)

    def pause(self, pids, seconds):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in random.sample(pids, len(pids)):
                # A host that is resumed first ends workers that are still suspended.
                with contextlib.suppress(*([ProcessLookupError] if number == signal.SIGCONT else [])):
                    signal_process(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(seconds)  # real time: the pause that is tested

    def tree_of(self, process):
        return [process.pid, *descendants_of(process.pid)]

    def check(self, session, host, expected, lost):
        report = self.report_of(session)
        self.assertEqual(self.digests_of(report), expected)
        deaths = [(d["cause"], d["sample"]) for d in report["workers"]["deaths"]]
        self.assertEqual(deaths, [("host", None)] * 2 if lost else [], report["workers"]["deaths"])
        self.assertEqual((report["workers"]["ended_unexpectedly"], report["quarantine"]), (0, []))
        self.ends(host, EXIT_OK)

    def test_suspending_the_machine_loses_neither_host_nor_session(self):
        session, host, expected = self.running()
        for seconds in (1.2 * LOST_AFTER, BRIEFLY, 2 * LOST_AFTER):
            self.pause(self.tree_of(session) + self.tree_of(host), seconds)
            time.sleep(0.3)  # the machine runs between two pauses
        self.check(session, host, expected, lost=False)

    def test_a_suspended_session_blames_no_sample_and_its_host_joins_again(self):
        session, host, expected = self.running()
        self.pause([session.pid], 1.5 * LOST_AFTER)
        self.check(session, host, expected, lost=True)

    def test_a_session_and_a_host_suspended_for_less_than_lost_after_do_not_lose_each_other(self):
        session, host, expected = self.running()
        for process in (session, host):
            self.pause(self.tree_of(process), BRIEFLY)
            time.sleep(0.3)
        self.check(session, host, expected, lost=False)

    def test_a_suspended_host_is_lost_without_blame_and_joins_again(self):
        session, host, expected = self.running()
        self.pause(self.tree_of(host), 1.5 * LOST_AFTER)
        self.check(session, host, expected, lost=True)

    def test_a_remote_worker_in_a_debugger_is_not_killed(self):
        session, host, expected = self.running()
        with debugger(self.workers_of(host)[0]):
            time.sleep(2 * HANG_AFTER + 1)  # real time: the pause that is tested
            self.assertEqual([w["restarts"] for w in self.status()["workers"] if w["id"] > 64], [0, 0])
        self.check(session, host, expected, lost=False)


if __name__ == "__main__":
    main()
