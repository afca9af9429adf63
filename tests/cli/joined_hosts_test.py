"""One loader host joins several sessions and shares its workers among them (`penstock host --join A --join B`, rules H14, H15 and H18)."""

from host_case import *


class JoinedHostsTest(HostCase):
    SLOW = 'wait = "4ms"'

    def session(self, name, port=0, **rest):
        """Starts the session; returns its process and the address at which hosts join."""
        rest.setdefault("dataset", self.SLOW)
        process = self.begin(self.config(name, listen='listen = "127.0.0.1:%d"' % port, epochs=1, **rest))
        return process, self.address(name)

    def joining(self, workers, *addresses, arguments=()):
        return self.host(addresses[0], workers, "a", *[word for one in addresses[1:] for word in ("--join", one)], *arguments)

    def free_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            return taken.getsockname()[1]

    def test_two_sessions_get_half_of_the_workers_each_and_the_one_that_remains_gets_all_and_the_host_ends_with_the_last_one(self):
        shapes = {"first": dict(samples=16000), "second": dict(samples=3000, bytes="100B")}
        local = {name: self.local_digests(epochs=1, **shape) for name, shape in shapes.items()}
        first, one = self.session("first", **shapes["first"])
        second, two = self.session("second", **shapes["second"])
        host = self.joining(4, one, two)
        self.share(first=2, second=2)
        self.check(second, local["second"])
        self.share(first=4)
        self.check(first, local["first"])
        self.assertIn("the session at %s is over; others continue" % two, self.ends(host, EXIT_OK))

    def test_an_address_that_does_not_answer_is_named_once_and_tried_until_a_session_answers(self):
        port = self.free_port()
        late = "127.0.0.1:%d" % port
        first, one = self.session("first", samples=10**6)
        host = self.joining(4, late, one)
        self.share(first=4)
        second, _ = self.session("second", port, samples=800)
        self.share(first=2, second=2)
        self.check(second, self.local_digests(samples=800, epochs=1))
        self.share(first=4)
        self.stop(first=first)
        err = self.ends(host, EXIT_OK)
        self.assertEqual(err.count("cannot reach the session at %s: connecting: Connection refused; trying again" % late), 1, err)

    def test_workers_of_a_killed_session_go_to_the_other_one_and_come_back_when_it_returns(self):
        shape = dict(samples=20000)
        killed, one = self.session("killed", samples=10**6)
        other, two = self.session("other", **shape)
        host = self.joining(4, one, two)
        self.share(killed=2, other=2)
        killed.kill()
        killed.communicate()
        self.share(other=4)
        back, _ = self.session("killed", int(one.rsplit(":", 1)[1]), samples=10**6)
        self.share(killed=2, other=2)
        self.check(other, self.local_digests(epochs=1, **shape))
        self.share(killed=4)
        self.stop(killed=back)
        self.ends(host, EXIT_OK)

    def test_a_session_that_does_not_return_is_given_up_and_the_host_fails_at_the_end(self):
        killed, one = self.session("killed", samples=10**6, workers=1, hosts=INSECURE + 'wait = "1s"\n')  # a session with a local worker does not wait for hosts
        other, two = self.session("other", samples=10**6)
        host = self.joining(2, one, two)
        self.share(killed=1, other=1)
        killed.kill()
        killed.communicate()
        self.line_of(host, b"the session at %s has not returned for 1 s: .*; other sessions continue" % one.encode())
        self.share(other=2)
        self.stop(other=other)
        self.assertIn("has not returned for 1 s", self.ends(host, EXIT_FAILED))

    def test_a_session_that_refuses_the_host_does_not_affect_the_others_and_the_host_ends_with_78(self):
        data, text = self.raw_dataset("data", 40)
        fewer, _ = self.raw_dataset("fewer", 39)
        refusing, one = self.session("refusing", text=text)
        other, two = self.session("other", samples=10**6)
        host = self.joining(2, one, two, arguments=("--data", "%s=%s" % (data, fewer)))
        self.line_of(host, b"the host's dataset has 39 samples, but the session's has 40; other sessions continue")
        self.share(other=2)
        self.stop(other=other, refusing=refusing)
        self.assertIn("39 samples", self.ends(host, EXIT_CONFIG))

    def test_a_session_that_sends_the_host_away_leaves_it_to_the_other_one_and_the_last_session_ends_it(self):
        shape = dict(samples=3000)
        first, one = self.session("first", workers=1, **shape)
        second, two = self.session("second", samples=10**6)
        host = self.joining(4, one, two)
        self.share(first=2, second=2)
        self.assertEqual(self.penstock("drain", "host/a", "--session", "first")[0], EXIT_OK)
        self.share(first=0, second=4)
        self.check(first, self.local_digests(epochs=1, **shape))
        self.assertIsNone(host.poll())
        self.assertEqual(self.penstock("drain", "host/a", "--session", "second")[0], EXIT_OK)
        self.ends(host, EXIT_OK)
        self.stop(second=second)

    def test_at_sigterm_the_host_leaves_all_sessions(self):
        shape = dict(samples=1600)
        sessions = [self.session(name, workers=1, **shape) for name in ("first", "second")]
        host = self.joining(4, *[address for _, address in sessions])
        self.share(first=2, second=2)
        host.terminate()
        self.ends(host, EXIT_OK)
        for process, _ in sessions:
            self.check(process, self.local_digests(epochs=1, **shape))

    def test_if_there_are_more_sessions_than_workers_they_take_turns_and_report_no_refused_connections(self):
        shape = dict(samples=400)
        sessions = [self.session("s%d" % i, dataset='wait = "2ms"', **shape) for i in range(3)]
        host = self.joining(1, *[address for _, address in sessions])
        local = self.local_digests(epochs=1, **shape)
        for process, _ in sessions:
            self.check(process, local)
        for name in ("s0", "s1", "s2"):
            self.assertNotIn("refused", self.penstock("events", "--last", "--session", name)[1])
        self.assertRegex(self.ends(host, EXIT_OK), r"joining the session at \S+: a has no free worker yet: its workers serve s\d; trying again")

    def test_two_sessions_of_the_same_name_each_get_their_own_stream_and_the_log_has_their_addresses(self):
        """Two sessions have the same name only if they belong
        to different users, or run on different machines."""
        shapes, sessions, first_folder = [dict(samples=1600), dict(samples=1200, bytes="100B")], [], self.environment
        local = [self.local_digests(epochs=1, **shape) for shape in shapes]
        for number, shape in enumerate(shapes):
            folder = os.path.join(self.folder, "user-%d" % number)
            os.mkdir(folder)
            self.environment = dict(first_folder, XDG_RUNTIME_DIR=folder)
            sessions.append(self.session("same", **shape))
        addresses = [address for _, address in sessions]
        host = self.joining(4, *addresses)
        for (process, _), digests in zip(sessions, local):
            self.check(process, digests)
        err = self.ends(host, EXIT_OK)
        for address in addresses:
            self.assertIn("joined session same at %s as a with " % address, err)

    def test_an_address_can_be_given_only_once(self):
        code, _, err = self.penstock("host", "--insecure", "--join", "a:1", "--join", "a:1")
        self.assertEqual(code, EXIT_CONFIG)
        self.assertIn("the address 'a:1' is given twice", err)


if __name__ == "__main__":
    main()
