"""A stream that was stopped goes on in another process, with other workers, where it stood: file by file, bit by bit."""

import filecmp

from harness import *

STREAM = synthetic(samples=403, batch=8, epochs=2)  # 51 batches an epoch, the last one short


class ResumeTest(PenstockTest):
    def piece(self, out, *options, **popen):
        return self.run_json(self.write("stream.toml", STREAM), "--digest", "--sink", "npy", "--out",
                             os.path.join(self.folder, out), *options, **popen)

    def state_bytes(self):
        return os.path.getsize(os.path.join(self.folder, "state"))

    def check_same_files(self, left, right):
        left, right = os.path.join(self.folder, left), os.path.join(self.folder, right)
        names = sorted(os.listdir(left))
        self.assertTrue(any(name.endswith(".index.npy") for name in names))
        self.assertEqual(sorted(os.listdir(right)), names)
        _, different, unreadable = filecmp.cmpfiles(left, right, names, shallow=False)
        self.assertEqual((different, unreadable), ([], []))

    def test_pieces_of_a_stream_with_other_worker_counts_are_the_stream(self):
        whole = self.piece("whole", "--workers", 2)
        # In the middle of an epoch, at the end of one, and to the end.
        for batches, workers, in_open_epoch in ((20, 3, 20), (31, 1, 51), (7, 4, 7)):
            part = self.piece("parts", "--workers", workers, "--batches", batches, "--state", "state")
            self.assertEqual(part["outcome"], "stopped")
            self.assertLessEqual(self.state_bytes(), 1024 + 8 * in_open_epoch)
        rest = self.piece("parts", "--workers", 2, "--state", "state")
        self.assertEqual(rest["outcome"], "finished")
        self.assertEqual(rest["totals"]["batches"], 102 - 20 - 31 - 7)
        last = rest["epochs"][-1]
        self.assertEqual((last["epoch"], last["from_batch"], last["complete"]), (1, 7, True))
        self.assertEqual(last["digest"], whole["epochs"][1]["digest"])
        self.check_same_files("whole", "parts")

    def test_a_stream_that_was_interrupted_goes_on_without_a_gap(self):
        text = synthetic(samples=403, batch=8, epochs=1, dataset='wait = "2ms"')
        command = [self.write("slow.toml", text), "--digest", "--json", "--quiet", "--state", "state", "--sink", "npy", "--out"]
        whole = self.run_json(command[0], "--digest", "--sink", "npy", "--out", os.path.join(self.folder, "whole"))
        parts = os.path.join(self.folder, "parts")
        process = self.start("run", *command, parts, "--workers", 3)
        self.wait_until(lambda: os.path.exists(os.path.join(parts, "e0-b000010.index.npy")), "ten batches")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, EXIT_INTERRUPTED)
        stopped = json.loads(out)["epochs"][0]
        self.assertFalse(stopped["complete"])
        rest = self.run_json(*command[:2], "--state", "state", "--sink", "npy", "--out", parts, "--workers", 1)["epochs"][0]
        self.assertEqual(rest["from_batch"], stopped["batches"])
        self.assertEqual((rest["batches"], rest["delivered"], rest["digest"]),
                         (51, 403, whole["epochs"][0]["digest"]))
        self.check_same_files("whole", "parts")


if __name__ == "__main__":
    main()
