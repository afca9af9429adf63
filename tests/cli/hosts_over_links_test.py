"""Loader hosts behind links that are slow or lose packets: a session in one network namespace, its hosts in others (rules H5 and H11)."""

import shlex

from host_case import *
from networks import Network, NoNetworks, address_of

PORT = 21000
KILLS = int(os.environ.get("PENSTOCK_TEST_KILLS", 40))
DELAY = 0.1  # each way
LOSS = 0.02
FINISHES_WITHIN = 600  # on a busy machine


class HostsOverLinksTest(HostCase):
    def stream(self, samples, kills=0, **link):
        """Runs a stream with two hosts of two workers over such links, with TLS, and compares it with a local one."""
        shape = dict(samples=samples, epochs=1)
        restarts = '[loader.restart.intensity]\nmax = 1000\n[loader.restart.backoff]\nmax = "200ms"\n'
        expected = self.local_digests(**shape)
        secret = self.secret("secret")
        config = self.config(hosts='secret_file = "%s"\n' % secret, listen='listen = "%s:%d"' % (address_of(0), PORT), more=restarts,
                             dataset='wait = "4ms"', **shape)
        try:
            with Network(seed=random.randrange(1 << 32), **link) as net:
                session = self.program(net, "run", config, "--digest", "--json", "--quiet")
                hosts = [self.another_host(net, secret) for _ in range(2)]
                killed = self.kill_some(net, session, hosts, secret, kills)
                net.run(lambda: session.ended is not None, FINISHES_WITHIN)
                print("%d packets, %d of them lost on purpose, %d processes killed" % (net.packets, net.lost, killed), flush=True)
        except NoNetworks as why:
            self.skipTest(str(why))
        self.assertEqual(session.ended, 0, session.output)
        report = json.loads(session.output)
        self.check_sums(report)
        self.assertEqual(self.digests_of(report), expected)
        self.assertEqual((report["quarantine"], report["failures"]), ([], []))
        for death in report["workers"]["deaths"]:
            self.assertTrue(death["cause"] != "host" or death["sample"] is None, death)
        self.assertGreaterEqual(killed, kills / 2)
        return report, net

    def program(self, net, *arguments):
        log = os.path.join(self.folder, "log-%d" % len(net.machines))
        command = " ".join(shlex.quote(str(one)) for one in (PENSTOCK, *arguments))
        return net.add(["/bin/sh", "-c", "exec %s 2>%s" % (command, shlex.quote(log))], self.environment)

    def another_host(self, net, secret):
        return self.program(net, "host", "--join", "%s:%d" % (address_of(0), PORT), "--workers", 2, "--name", "host-%d" % len(net.machines),
                            "--secret-file", secret)

    def kill_some(self, net, session, hosts, secret, kills):
        """Kills hosts and workers at random moments. How many it killed before the session ended."""
        for killed in range(kills):
            net.wait(random.uniform(0.3, 1.5))
            running = [host for host in hosts if host.ended is None]  # after the stream, hosts may end before the session
            if session.ended is not None or not running:
                return killed
            victim = random.choice(running)
            workers = self.workers_of(victim)
            if workers and random.random() < 0.5:
                signal_process(random.choice(workers), signal.SIGKILL)
                continue
            victim.close(signal.SIGKILL)
            hosts.remove(victim)
            hosts.append(self.another_host(net, secret))
        return kills

    def test_a_delay_of_100_ms_each_way_changes_no_digest(self):
        report, _ = self.stream(1000, delay=DELAY)
        self.assertEqual(report["workers"]["deaths"], [])

    def test_the_loss_of_2_packets_in_100_changes_no_digest(self):
        report, net = self.stream(2000, delay=0.01, loss=LOSS)
        self.assertEqual(report["workers"]["deaths"], [])
        self.assertGreater(net.lost, 20)

    def test_hosts_and_workers_killed_behind_slow_links_that_lose_packets_change_no_digest(self):
        self.stream(400 * KILLS, kills=KILLS, delay=DELAY, loss=LOSS)


if __name__ == "__main__":
    main()
