"""Hosts that lie about sizes: the session receives nothing that does not fit, names the host, and continues with the same stream."""

from host_case import *

BATCH_FOLLOWS = 6  # position in from_host (actors/remote/host_messages.hpp)
DIGEST_BYTES = 8


class Liar:
    """For Relay: finds the announced batches of the first connection, and passes them through `lie(rows, bytes)`, `times` times.

    The lie returns the rows and bytes to announce, and what to send after the bytes of the batch. Later connections are honest.
    """

    def __init__(self, lie, times):
        self.lie, self.times = lie, times
        self.pending, self.raw, self.after = b"", 0, b""

    def __call__(self, connection, some):
        if connection > 0:
            return some
        self.pending += some
        sent = []
        while part := self.next_part():
            sent.append(part)
        return b"".join(sent)

    def next_part(self):
        if self.raw > 0:
            part, self.pending = self.pending[:self.raw], self.pending[self.raw:]
            self.raw -= len(part)
            if self.raw == 0:
                part += self.after
            return part
        if len(self.pending) < 8:
            return b""
        size, kind = struct.unpack_from("<II", self.pending)
        if len(self.pending) < 8 + size:
            return b""
        part, self.pending = self.pending[:8 + size], self.pending[8 + size:]
        if kind != BATCH_FOLLOWS:
            return part
        rows, length = struct.unpack_from(">IQ", part, 16)
        self.raw, self.after = length + DIGEST_BYTES, b""
        if self.times == 0:
            return part
        self.times -= 1
        rows, announced, self.after = self.lie(rows, length)
        return part[:16] + struct.pack(">IQ", rows, announced) + part[28:]


class LyingHostsTest(HostCase):
    SHAPE = dict(samples=200, bytes="1000B", batch=8, dataset='wait = "1ms"', epochs=1)

    def stream_with(self, lie, times=1):
        """The events about hosts, what the session refused, and the number of losses."""
        process = self.begin(self.config(**self.SHAPE))
        liar = Liar(lie, times)
        host = self.host(Relay(self.address(), liar).address, 1, "liar")
        report = self.report_of(process)
        self.assertEqual(liar.times, 0)
        self.assertEqual(self.digests_of(report), self.local_digests(**self.SHAPE))
        self.assertEqual((report["quarantine"], report["failures"], report["workers"]["ended_unexpectedly"]), ([], [], 0))
        self.assertEqual({(d["cause"], d["sample"]) for d in report["workers"]["deaths"]} - {("host", None)}, set())
        self.ends(host, EXIT_OK)
        _, out, _ = self.penstock("events", "--last", "--json", "--session", "h")
        return [e["text"] for e in map(json.loads, out.splitlines()) if e["kind"] == "host_lost" and e["host"] == "liar"]

    def test_a_batch_that_is_larger_than_a_slot_ends_the_connection_with_both_sizes(self):
        for announced in (1 << 20, (1 << 64) - 1):
            with self.subTest(announced=announced):
                (lost,) = self.stream_with(lambda rows, _: (rows, announced, b""))
                self.assertRegex(lost, r"it announced a batch of %d bytes, but a slot has \d+$" % announced)

    def test_a_batch_of_the_wrong_size_is_sent_again_and_the_host_is_kept(self):
        for lie in (lambda rows, length: (rows - 1, length, b""), lambda rows, length: (rows + 1, length, b"")):
            self.assertEqual(self.stream_with(lie, times=2), [])

    def test_three_batches_of_the_wrong_size_in_a_row_disconnect_the_host_with_both_sizes(self):
        (lost,) = self.stream_with(lambda rows, length: (rows - 1, length, b""), times=3)
        self.assertRegex(lost, r"the last one: 7 rows have 7000 bytes, but 8000 were announced")

    def test_more_rows_than_samples_were_leased_disconnect_the_host_with_both_numbers(self):
        (lost,) = self.stream_with(lambda rows, length: (rows + 1, length, b""), times=3)
        self.assertRegex(lost, r"the last one: it has 9 rows, but 8 samples were leased")

    def test_unannounced_bytes_end_the_connection_and_no_batch_contains_them(self):
        extra = b"\xff" * 100_000
        for name, lie in (("more than announced", lambda rows, length: (rows, length, extra)),
                          ("fewer announced", lambda rows, length: (rows, length - 500, extra))):
            with self.subTest(name):
                (lost,) = self.stream_with(lie)
                self.assertRegex(lost, r"a message announces \d+ bytes, but at most \d+ are allowed|unknown message type|truncated or corrupt")


if __name__ == "__main__":
    main()
