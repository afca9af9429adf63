"""Batches on a GPU used by torch: the same bytes, ordered after the work of every stream, valid however long they are kept.

Needs a GPU and torch (label gpu).
"""

import gc
import hashlib
import unittest
import warnings

import penstock
from package import *

try:
    import torch
except ImportError:
    torch = None

STREAM = synthetic(samples=512, bytes="600KiB", batch=32, epochs=2)


def digest_of(tensor):
    return hashlib.sha256(tensor.cpu().contiguous().numpy().tobytes()).hexdigest()


@unittest.skipIf(torch is None or not torch.cuda.is_available(), "no GPU, or no torch")
class GpuTest(PackageTest):
    def session(self, device="cuda", **given):
        return penstock.Session(self.write("stream.toml", STREAM), gpu={"device": device}, control_socket=False, **given)

    def expected(self, epoch):
        with self.session("host") as session:
            return [hashlib.sha256(batch["data"].tobytes()).hexdigest() for batch in session.epoch(epoch)]

    def test_views_copies_and_digests_match_those_of_the_host_device(self):
        with self.session("host", digests=True) as session:
            expected = [hashlib.sha256(batch["data"].tobytes()).hexdigest() for batch in session]
            digests = [epoch["digest"] for epoch in session.report()["epochs"]]
        with self.session(digests=True) as session:
            batch = session.next()
            data = batch["data"]
            view = data.torch()
            self.assertEqual((batch.device, str(view.device), data.__dlpack_device__()), ("cuda:0", "cuda:0", (2, 0)))
            self.assertEqual(torch.from_dlpack(data).data_ptr(), view.data_ptr())
            self.assertEqual(data.__cuda_array_interface__["data"][0], view.data_ptr())
            for seen in (digest_of(view), *(hashlib.sha256(b).hexdigest() for b in (data.tobytes(), data.numpy().tobytes()))):
                self.assertEqual(seen, expected[0])
            self.assertEqual([digest_of(b["data"].torch()) for b in session], expected[1:])
            self.assertEqual([epoch["digest"] for epoch in session.report()["epochs"]], digests)

    def test_an_epoch_that_is_kept_is_correct_after_the_end_of_its_session_and_reported_once(self):
        expected = self.expected(0)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with self.session() as session:
                kept = list(session.epoch(0))
        del session
        gc.collect()
        self.assertEqual([digest_of(batch["data"].torch()) for batch in kept], expected)
        self.assertEqual(len([w for w in said if "buffers" in str(w.message)]), 1)

    def test_a_view_outlives_its_session_but_a_batch_without_a_view_does_not_hold_the_device(self):
        expected = self.expected(0)
        with self.session() as session:
            batch = session.next()
        with self.session() as session:  # the GPU is free although `batch` still exists
            view = session.next()["data"].torch()
        self.assertEqual(digest_of(batch["data"].torch()), expected[0])
        self.assertEqual(digest_of(view), expected[0])

    def test_a_view_that_is_kept_with_its_batch_is_correct_after_the_end_of_its_session(self):
        expected = self.expected(0)
        with self.session() as session:
            batch = session.next()
            view = batch["data"].torch()
        del session
        gc.collect()
        others = [torch.full_like(view, 255) for _ in range(8)]  # where freed memory would be used again
        torch.cuda.synchronize()
        self.assertEqual(digest_of(view), expected[0])
        self.assertEqual(batch["data"].torch().data_ptr(), view.data_ptr())
        del others

    def test_views_of_a_closed_session_do_not_keep_its_device_from_the_next_session(self):
        expected = self.expected(0)
        views = []
        for _ in range(3):
            with self.session() as session:
                views.append(session.next()["data"].torch())
        self.assertEqual([digest_of(view) for view in views], [expected[0]] * 3)

    def test_a_session_that_needs_the_device_of_an_earlier_session_in_the_same_program_names_that_session(self):
        with self.session() as session:
            session.next()
            with self.session() as other, self.assertRaisesRegex(penstock.device_busy_error, "in use by 'stream', an earlier session"):
                other.next()
        with self.session() as session:
            session.next()

    def test_the_error_about_a_lack_of_memory_names_the_tensors_of_closed_sessions(self):
        with self.session() as session:
            view = session.next()["data"].torch()
        torch.cuda.empty_cache()
        hog = torch.empty(torch.cuda.mem_get_info()[0] - (48 << 20), dtype=torch.uint8, device="cuda")
        with self.session() as session, self.assertRaisesRegex(penstock.device_out_of_memory_error, "data of batch 0, epoch 0, session 'stream'"):
            session.next()
        del hog, view
        torch.cuda.empty_cache()
        with self.session() as session:
            session.next()

    def test_a_buffer_is_rewritten_only_after_every_stream_that_used_it(self):
        streams = [torch.cuda.Stream() for _ in range(3)]
        with self.session() as session:
            for epoch in (0, 1):
                copies = []
                for number, batch in enumerate(session.epoch(epoch)):
                    view = batch["data"].torch()
                    for stream in streams:
                        batch.record_stream(stream)
                    with torch.cuda.stream(streams[number % 3]):
                        torch.cuda._sleep(30_000_000)
                        copies.append(view.clone())
                    del view, batch
                torch.cuda.synchronize()
                self.assertEqual([digest_of(copy) for copy in copies], self.expected_once(epoch))

    def expected_once(self, epoch):
        if not hasattr(self, "_expected"):
            self._expected = {number: self.expected(number) for number in (0, 1)}
        return self._expected[epoch]

    def test_without_torch_a_program_that_holds_all_buffers_gets_an_error(self):
        out = self.ran("""
            import sys
            sys.modules["torch"] = None
            import penstock
            session = penstock.Session(sys.argv[1], gpu={"device": "cuda", "hold_timeout": "300ms"}, control_socket=False)
            kept = []
            try:
                for batch in session:
                    kept.append(batch)
            except penstock.usage_error as refused:
                print(len(kept), "held all 4 buffers of the GPU for 300 ms" in str(refused))
            kept.clear()
            del batch
            print(session.next().index)
            """, self.write("stream.toml", STREAM))
        self.assertEqual(out.split(), ["4", "True", "4"])


if __name__ == "__main__":
    main()
