"""A batch's tensors reach NumPy and DLPack consumers without a copy, and stay valid as long as they are held."""

import gc
import hashlib

import numpy
import penstock
from package import *

STREAM = synthetic(samples=64, batch=8, epochs=1)


class BatchTest(PackageTest):
    def session(self, text=STREAM, **given):
        session = penstock.Session(self.write("stream.toml", text), **{"loader": {"workers": 2}, **given})
        self.addCleanup(session.close)
        return session

    def written(self, text):
        """The batches as `penstock run --sink npy` writes them: a list of {name: array}."""
        out = os.path.join(self.folder, "out")
        self.run_json(self.write("stream.toml", text), "--sink", "npy", "--out", out)
        batches = {}
        for folder, _, names in os.walk(out):
            for name in names:
                if name.endswith(".npy"):
                    batches[os.path.relpath(os.path.join(folder, name), out)] = numpy.load(os.path.join(folder, name))
        return batches

    def test_the_batches_have_the_bytes_that_penstock_run_writes(self):
        expected = sorted(hashlib.sha256(a.tobytes()).hexdigest() for a in self.written(STREAM).values() if a.nbytes >= 8 * 4096)
        with self.session() as session:
            seen = sorted(hashlib.sha256(b["data"].tobytes()).hexdigest() for b in session.epoch(0))
        self.assertEqual(seen, expected)

    def test_arrays_outlive_their_batch_and_their_session(self):
        session = self.session()
        kept = [(batch["data"].numpy(), hashlib.sha256(batch["data"].tobytes()).hexdigest()) for batch in session.epoch(0)]
        session.close()
        del session
        gc.collect()
        self.assertEqual(len(kept), 8)
        for array, digest in kept:
            self.assertEqual(hashlib.sha256(array.tobytes()).hexdigest(), digest)

    def test_a_list_of_all_batches_is_still_correct_after_the_epoch(self):
        with self.session() as session:
            batches = list(session.epoch(0))
            digests = [hashlib.sha256(b["data"].tobytes()).hexdigest() for b in batches]
            self.assertEqual(len(set(digests)), 8)
        self.assertEqual([hashlib.sha256(b["data"].tobytes()).hexdigest() for b in batches], digests)

    def test_an_array_is_a_writable_view_of_the_batch(self):
        with self.session() as session:
            batch = session.next()
            array = batch["data"].numpy()
            array[0, 0] ^= 1
            self.assertEqual(array.ctypes.data, batch["data"].numpy().ctypes.data)
            self.assertEqual(batch["data"].numpy()[0, 0], array[0, 0])

    def test_batches_support_both_versions_of_the_dlpack_protocol(self):
        with self.session() as session:
            tensor = session.next()["data"]
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        self.assertIn('"dltensor"', repr(tensor.__dlpack__()))
        self.assertIn('"dltensor_versioned"', repr(tensor.__dlpack__(max_version=(1, 0))))
        array = numpy.from_dlpack(tensor)
        self.assertEqual(array.shape, tensor.shape)
        self.assertEqual(array.ctypes.data, tensor.numpy().ctypes.data)
        with self.assertRaises(BufferError):
            tensor.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            tensor.__dlpack__(dl_device=(2, 0))
        with self.assertRaises(AttributeError):
            tensor.__cuda_array_interface__

    def test_a_capsule_that_no_consumer_takes_frees_its_batch(self):
        with self.session() as session:
            for _ in range(3):
                tensor = session.next()["data"]
                for _ in range(1000):
                    tensor.__dlpack__()
                    tensor.__dlpack__(max_version=(1, 0))

    def test_every_dtype_has_the_right_shape_and_values(self):
        for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"):
            text = STREAM.replace('bytes_per_sample = "4KiB"', 'shape = [3, 5]\ndtype = "%s"' % dtype)
            with self.session(text, control_socket=False) as session:
                tensor = session.next()["data"]
                array = tensor.numpy()
                self.assertEqual((str(array.dtype), array.shape, tensor.dtype), (dtype, (8, 3, 5), dtype))
                self.assertEqual(array.tobytes(), tensor.tobytes())
                self.assertEqual(numpy.asarray(tensor).shape, (8, 3, 5))

    def test_the_error_for_bfloat16_names_torch(self):
        text = STREAM.replace('bytes_per_sample = "4KiB"', 'shape = [3]\ndtype = "bfloat16"')
        with self.session(text) as session:
            tensor = session.next()["data"]
        with self.assertRaisesRegex(penstock.usage_error, "torch"):
            tensor.numpy()
        self.assertEqual(len(tensor.tobytes()), 8 * 3 * 2)

    def test_a_batch_behaves_like_a_dict_of_tensors(self):
        with self.session() as session:
            batch = session.next()
        self.assertEqual(list(batch), batch.keys())
        self.assertIn("data", batch)
        self.assertEqual([t.name for t in batch.values()], batch.keys())
        with self.assertRaisesRegex(KeyError, "it has: data"):
            batch["image"]
        self.assertEqual((batch.rows, batch.index, batch.epoch, batch.device), (8, 0, 0, "cpu"))
        self.assertIn("8 rows", repr(batch))

    def test_without_numpy_a_batch_gives_buffers_and_an_error_that_says_what_to_install(self):
        self.ran("""
            import sys
            sys.modules["numpy"] = None
            import penstock
            with penstock.Session(sys.argv[1], loader={"workers": 1}) as session:
                tensor = session.next()["data"]
            assert len(tensor.tobytes()) == tensor.nbytes == 8 * 4096
            assert '"dltensor"' in repr(tensor.__dlpack__())
            try:
                tensor.numpy()
            except penstock.usage_error as e:
                assert "pip install numpy" in str(e), e
            else:
                raise SystemExit("numpy() worked without NumPy")
            """, self.write("stream.toml", STREAM))


if __name__ == "__main__":
    main()
