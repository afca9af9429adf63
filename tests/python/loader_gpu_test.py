"""A DataLoader with device="cuda": its batches are on the GPU, and stay valid however long they are kept.

Needs a GPU and torch (label gpu).
"""

import gc
import unittest

import loader_content_test
from loader_data import DataLoader, LoaderCase, Values, crash, torch
from package import *
from package import children_of


@unittest.skipIf(not torch.cuda.is_available(), "no GPU")
class LoaderGpuTest(LoaderCase):
    def right(self, batches, expected):
        self.assertEqual(len(batches), len(expected))
        for batch, wanted in zip(batches, expected):
            self.assertEqual((batch["value"].device.type, batch["name"]), ("cuda", wanted["name"]))
            self.same(batch["value"].cpu(), wanted["value"])

    def kept(self, give, length, **pool):
        """All batches of an epoch on the GPU, read after the end of the loader, and those of torch's own loader."""
        loader = DataLoader(Values(give, length), batch_size=8, num_workers=2, device="cuda", seeding="worker", pool={"loader": pool})
        batches = list(loader)
        del loader
        gc.collect()
        self.wait_until(lambda: not children_of(os.getpid()), "the end of the workers", seconds=30)
        return batches, list(torch.utils.data.DataLoader(Values(give, length), batch_size=8))

    def test_an_epoch_that_is_kept_is_correct_after_the_end_of_its_loader(self):
        # Many more batches than the workers have slots.
        self.right(*self.kept(lambda index: {"value": torch.full((1000,), float(index)), "name": "n%d" % index}, 800))

    def test_batches_that_fit_no_slot_are_correct_too(self):
        self.right(*self.kept(lambda index: {"value": torch.full((100000,), float(index)), "name": "n%d" % index}, 80, slot_bytes="1MiB"))

    def test_a_crash_changes_no_kept_batch(self):
        mark = os.path.join(self.folder, "crashed")

        def give(index):
            if index == 400 and torch.utils.data.get_worker_info() is not None and not os.path.exists(mark):
                open(mark, "w").close()
                crash()
            return {"value": torch.full((1000,), float(index)), "name": "n%d" % index}
        self.right(*self.kept(give, 800))
        self.assertTrue(os.path.exists(mark))

    def test_another_stream_can_use_a_batch_as_soon_as_it_is_delivered(self):
        loader = DataLoader(Values(lambda index: torch.full((100000,), float(index)), 400), batch_size=8, num_workers=2, device="cuda")
        stream, sums = torch.cuda.Stream(), []
        for batch in loader:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                sums.append(batch.sum(1, dtype=torch.float64))
                batch.record_stream(stream)
        torch.cuda.synchronize()
        self.assertEqual(torch.cat(sums).tolist(), [100000.0 * index for index in range(400)])


@unittest.skipIf(not torch.cuda.is_available(), "no GPU")
class ContentOnGpuTest(loader_content_test.LoaderContentTest):
    """Each byte of each batch, as in loader_content_test.py; the batches are moved to the GPU."""

    device = "cuda"

    def equal(self, batch, other):
        return loader_content_test.LoaderContentTest.equal(self, on_host(batch), other)


def on_host(value):
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: on_host(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(on_host, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(on_host, value))
    return value


if __name__ == "__main__":
    main()
