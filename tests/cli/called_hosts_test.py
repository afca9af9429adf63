"""Loader hosts that listen: sessions connect to them ([loader.hosts] connect)."""

from host_case import *


class CalledHostsTest(HostCase):
    def calling(self, *addresses, **rest):
        return self.config(listen="connect = %s" % json.dumps(addresses), **rest)

    def run_calling(self, *addresses, **rest):
        return self.begin(self.calling(*addresses, **rest))

    def leaves(self, host):
        host.terminate()
        return self.ends(host, EXIT_OK)

    def test_hosts_that_are_called_and_hosts_that_join_give_the_digest_of_a_local_run(self):
        shape = dict(samples=4000, epochs=1)
        secret = self.secret("secret")
        with_secret = dict(secret=("--secret-file", secret))
        called = [self.listening_host(2, "called-%d" % i, **with_secret) for i in range(2)]
        listen = 'listen = "127.0.0.1:0"\nconnect = %s' % json.dumps([address for _, address in called])
        process = self.begin(self.config(listen=listen, hosts='secret_file = "%s"\n' % secret, dataset='wait = "2ms"', **shape))
        joins = self.host(self.address(), 1, "joins", **with_secret)
        status = self.joined(5)
        self.assertEqual(sorted(h["name"] for h in status["hosts"]), ["called-0", "called-1", "joins"])
        self.assertEqual({h["address"] for h in status["hosts"] if h["name"] != "joins"}, {address for _, address in called})
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(**shape))
        self.ends(joins, EXIT_OK)
        for host, _ in called:
            self.line_of(host, rb"session h is gone; waiting for the next one")
            self.leaves(host)

    def test_a_host_serves_one_session_after_another_and_two_at_a_time(self):
        host, address = self.listening_host(2)
        shape = dict(samples=800, dataset='wait = "2ms"', epochs=1)
        expected = self.local_digests(**shape)
        first = self.run_calling(address, **shape)
        self.joined(2)
        second = self.start("run", self.calling(address, name="second", **shape), "--digest", "--json")
        self.assertEqual(self.digests_of(self.report_of(first)), expected)
        self.assertEqual(self.digests_of(self.report_of(second)), expected)
        self.assertEqual(self.digests_of(self.report_of(self.run_calling(address, **shape))), expected)
        err = self.leaves(host)
        self.assertIn("working for session second", err)
        self.assertGreaterEqual(err.count("; waiting for the next one"), 2, err)

    def test_a_host_that_was_killed_and_restarted_is_called_again(self):
        shape = dict(samples=800, dataset='wait = "4ms"', epochs=1)
        host, address = self.listening_host(2)
        process = self.run_calling(address, **shape)
        self.joined(2)
        host.kill()
        host.communicate()
        self.wait_until(lambda: self.status()["hosts"] == [], "it is lost")
        again, _ = self.listening_host(1, "again", at=address)
        self.joined(1)
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertEqual({d["sample"] for d in report["workers"]["deaths"]}, {None})
        self.leaves(again)

    def test_a_host_whose_session_was_killed_waits_for_the_next_one(self):
        host, address = self.listening_host(2)
        process = self.run_calling(address, samples=100000, dataset='wait = "4ms"')
        self.joined(2)
        process.kill()
        process.communicate()
        shape = dict(samples=400, epochs=1)
        self.assertEqual(self.digests_of(self.report_of(self.run_calling(address, **shape))), self.local_digests(**shape))
        self.leaves(host)

    def test_at_sigterm_a_called_host_finishes_its_batches(self):
        shape = dict(samples=800, dataset='wait = "4ms"', epochs=1)
        hosts = [self.listening_host(2, name) for name in ("leaving", "other")]
        process = self.run_calling(*[address for _, address in hosts], **shape)
        self.joined(4)
        self.leaves(hosts[0][0])
        report = self.report_of(process)
        self.assertEqual(self.digests_of(report), self.local_digests(**shape))
        self.assertEqual(report["workers"]["ended_unexpectedly"], 0)
        self.leaves(hosts[1][0])

    def test_a_refused_session_says_why_and_the_host_waits_for_another_one(self):
        right, wrong = self.secret("right"), self.secret("wrong")
        host, address = self.listening_host(1, secret=("--secret-file", right))
        short = 'wait = "2s"\n'
        code, _, err = self.penstock("run", self.calling(address, hosts='secret_file = "%s"\n' % wrong + short))
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("its secret is different", err)
        data = os.path.join(self.folder, "data")
        os.mkdir(data)
        self.write(os.path.join(data, "one.bin"), "abc")
        here = '[dataset]\ntype = "raw"\npath = "%s"\nshape = [3]\n[sampler]\nbatch_size = 1\n[gpu]\ndevice = "host"\n' % data
        moved = 'path_map = {"%s" = "/nowhere"}\n' % data
        code, _, err = self.penstock("run", self.calling(address, text=here, hosts='secret_file = "%s"\n' % right + short + moved))
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("/nowhere", err)
        shape = dict(samples=400, epochs=1)
        process = self.run_calling(address, hosts='secret_file = "%s"\n' % right, **shape)
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(**shape))
        self.leaves(host)

    def test_peers_without_the_secret_do_not_affect_a_host(self):
        host, address = self.listening_host(2)
        name, port = address.rsplit(":", 1)
        peers = []
        for i in range(100):
            peer = socket.create_connection((name, int(port)))
            peer.sendall([b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x00\x00\x00\x00\x10\x00\x00\x00" + bytes(8)][i % 3])
            peers.append(peer)
        process = self.run_calling(address, samples=400)
        self.assertEqual(self.digests_of(self.report_of(process)), self.local_digests(samples=400))
        self.leaves(host)
        for peer in peers:
            peer.close()

    def test_a_host_that_cannot_be_reached_is_named_once(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
        code, _, err = self.penstock("run", self.calling(address, hosts=INSECURE + 'wait = "1s"\n'))
        self.assertEqual(code, EXIT_FAILED)
        self.assertEqual(err.count("the loader host at %s cannot be used: connecting: Connection refused" % address), 1, err)

    def test_a_host_needs_exactly_one_address_and_the_address_must_be_free(self):
        self.assertEqual(self.penstock("host", "--insecure")[0], EXIT_USAGE)
        self.assertEqual(self.penstock("host", "--insecure", "--join", "a:1", "--listen", "b:1")[0], EXIT_USAGE)
        for option in ("--join", "--listen"):
            code, _, err = self.penstock("host", "--insecure", option, "127.0.0.1")
            self.assertEqual(code, EXIT_USAGE)
            self.assertIn("%s: '127.0.0.1' is not an address: it must be HOST:PORT" % option, err)
        code, _, err = self.penstock("host", "--listen", "127.0.0.1:0")
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("there is no secret: give --secret-file", err)
        self.assertNotIn("[loader.hosts]", err)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            code, _, err = self.penstock("host", "--insecure", "--listen", address)
        self.assertEqual(code, EXIT_FAILED)
        self.assertIn("error: listening at %s: Address already in use" % address, err)


if __name__ == "__main__":
    main()
