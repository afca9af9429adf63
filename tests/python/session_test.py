"""A session in Python delivers what `penstock run` delivers, whatever happens to it, and reports its work."""

import asyncio
import pathlib
import threading
import time

import penstock
from package import *

STREAM = synthetic(samples=400, batch=8, epochs=2)
SLOW = synthetic(samples=400, batch=8, epochs=1, dataset='wait = "2ms"')


class SessionTest(PackageTest):
    def session(self, text=STREAM, **given):
        session = penstock.Session(self.write("stream.toml", text), **{"loader": {"workers": 2}, **given})
        self.addCleanup(session.close)
        return session

    def digests_of(self, session):
        return [epoch["digest"] for epoch in session.report()["epochs"]]

    def test_the_digests_match_those_of_penstock_run(self):
        expected = self.digests(self.write("stream.toml", STREAM), "--workers", 3)
        with self.session(digests=True) as session:
            rows = sum(batch.rows for batch in session)
            self.assertEqual(rows, 800)
            self.assertEqual(self.digests_of(session), expected)
            self.assertEqual(session.report()["outcome"], "finished")

    def test_a_worker_killed_in_the_middle_changes_no_digest(self):
        expected = self.digests(self.write("stream.toml", SLOW))
        with self.session(SLOW, digests=True) as session:
            for batch in session.epoch(0):
                if batch.index == 10:
                    victim = next(w["pid"] for w in session.status()["workers"] if w["pid"])
                    signal_process(victim, signal.SIGKILL)
            report = session.report()
            self.assertEqual([e["digest"] for e in report["epochs"]], expected)
            self.assertIn(victim, [death["pid"] for death in report["workers"]["deaths"]])

    def test_photos_arrive_with_the_digest_of_penstock_run(self):
        make_photos(os.path.join(self.folder, "photos"), 24)
        config = self.write("photos.toml", 'schema = 1\n[dataset]\npath = "photos"\n[image]\nsize = [32, 48]\n'
                                           '[sampler]\nbatch_size = 8\n[gpu]\ndevice = "host"\n')
        expected = self.digests(config)
        with penstock.Session(config, digests=True) as session:
            for batch in session.epoch(0):
                self.assertEqual((batch["image"].shape, batch["image"].dtype), ((8, 3, 32, 48), "float16"))
                self.assertEqual(sorted(batch.records), ["crop", "flip"])
            self.assertEqual(self.digests_of(session), expected)

    def test_the_example_delivers_what_penstock_run_delivers(self):
        photos = os.path.join(self.folder, "photos")
        make_photos(photos, 70)
        example = os.path.join(TOP, "examples", "11_python_photos.py")
        done = subprocess.run([sys.executable, "-B", example, photos], capture_output=True, text=True, env=self.environment, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.environment["PHOTOS"] = photos
        expected, = self.digests(os.path.join(TOP, "examples", "photos.toml"))
        self.assertIn("epoch 0: 70 photos, digest " + expected, done.stdout)

    def test_a_mixture_of_datasets_in_python_has_the_digests_of_its_config_file(self):
        for name, count in (("a", 30), ("b", 50)):
            os.mkdir(os.path.join(self.folder, name))
            with open(os.path.join(self.folder, name, "0.raw"), "wb") as file:
                file.write(bytes(range(count)) * 4)
        rest = '[sampler]\nbatch_size = 4\nepoch_samples = 100\n[gpu]\ndevice = "host"\n'
        kind = 'type = "raw"\nshape = [4]\n'
        expected = self.digests(self.write("mixture.toml", "".join(
            '[[datasets]]\nname = "%s"\nweight = %s\npath = "%s"\n%s' % (name, weight, name, kind) for name, weight in (("a", 0.7), ("b", 0.3))) + rest))
        datasets = [{"name": name, "weight": weight, "type": "raw", "shape": [4], "path": pathlib.Path(self.folder, name)}
                    for name, weight in (("a", 0.7), ("b", 0.3))]
        with self.session(rest, datasets=datasets, digests=True) as session:
            for batch in session:
                self.assertIn("source", batch)
            self.assertEqual(self.digests_of(session), expected)

    def test_every_sample_of_an_epoch_is_delivered_once(self):
        with self.session() as session:
            seen = [sample for batch in session.epoch(0) for sample in batch.samples]
        self.assertEqual(sorted(seen), list(range(400)))

    def test_a_session_continues_from_the_state_of_another_one(self):
        with self.session() as whole:
            expected = [batch.samples for batch in whole]
        with self.session() as first:
            begin = [first.next().samples for _ in range(20)]
            state = first.state()
        self.assertLessEqual(len(state), 1024)
        with self.session(state=state, loader={"workers": 3}) as second:
            self.assertEqual(begin + [batch.samples for batch in second], expected)

    def test_a_state_of_another_stream_is_refused_and_the_difference_is_named(self):
        with self.session() as first:
            first.next()
            state = first.state()
        with self.session(state=state, sampler={"seed": 99}) as other:
            with self.assertRaisesRegex(penstock.state_mismatch_error, "seed"):
                other.next()
        with self.assertRaises(penstock.state_mismatch_error):
            self.session(state=b"nonsense")
        with self.assertRaisesRegex(penstock.state_mismatch_error, "empty"):
            self.session(state=b"")  # the contents of a state file that was opened for writing but not written yet
        with self.assertRaises(TypeError):
            self.session(state=3)

    def test_events_arrive_as_dicts_in_order(self):
        events = []
        with self.session(on_event=events.append) as session:
            for _ in session:
                pass
        kinds = [event["kind"] for event in events]
        self.assertEqual(kinds[0], "run_started")
        self.assertEqual(kinds.count("epoch_done"), 2)
        self.assertIn("run_finished", kinds)
        self.assertEqual([event["number"] for event in events], sorted(event["number"] for event in events))

    def test_events_are_an_asynchronous_iterator_that_ends_with_the_session(self):
        async def main():
            events = penstock.EventStream()

            def consume():
                with self.session(on_event=events) as session:
                    for _ in session:
                        pass
            thread = threading.Thread(target=consume)
            thread.start()
            kinds = [event["kind"] async for event in events]
            thread.join()
            return kinds
        kinds = asyncio.run(main())
        self.assertEqual((kinds[0], kinds[-1], kinds.count("epoch_done")), ("run_started", "run_finished", 2))

    def test_an_event_stream_keeps_the_latest_events_and_ends_when_it_is_closed(self):
        async def main():
            events = penstock.EventStream(most=3)
            for number in range(5):
                events({"kind": "scaled", "number": number})
            self.assertEqual(events.missed, 2)
            asyncio.get_running_loop().call_soon(lambda: threading.Thread(target=events.close).start())
            return [event["number"] async for event in events]
        self.assertEqual(asyncio.run(main()), [2, 3, 4])

    def test_a_callback_can_use_its_session_and_its_exceptions_do_not_stop_the_session(self):
        def on_event(event):
            if event["kind"] == "epoch_done":
                states.append(session.status()["state"])
                raise ValueError("of the callback")
        states = []
        hook, unraisable = sys.unraisablehook, []
        sys.unraisablehook = lambda args: unraisable.append(args.exc_value)
        try:
            with self.session(on_event=on_event) as session:
                self.assertEqual(sum(batch.rows for batch in session), 800)
        finally:
            sys.unraisablehook = hook
        self.assertEqual(len(states), 2)
        self.assertEqual([str(e) for e in unraisable], ["of the callback"] * 2)

    def test_stop_ends_the_stream_and_the_report_says_stopped(self):
        events = []
        with self.session(on_event=events.append) as session:
            session.next()
            session.stop(1)
            while session.next() is not None:
                pass
            self.assertEqual(session.report()["outcome"], "stopped")
        self.assertEqual([e["text"] for e in events if e["kind"] in ("stopping", "run_stopped")],
                         ["the session was asked to stop by the program", "it was stopped by the program"])

    def ends_of(self, events):
        return [e["text"] for e in events if e["kind"] in ("stopping", "run_stopped", "run_failed")]

    def test_stop_can_name_its_source(self):
        events = []
        with self.session(on_event=events.append) as session:
            session.next()
            session.stop(1, by="early stopping")
        self.assertEqual(self.ends_of(events), ["the session was asked to stop by early stopping", "it was stopped by early stopping"])

    def test_an_exception_that_leaves_the_with_block_is_recorded_as_the_reason_for_the_end(self):
        class Diverged(Exception):
            pass

        events = []
        with self.assertRaises(Diverged):
            with self.session(SLOW, on_event=events.append) as session:
                session.next()
                raise Diverged("the loss is NaN" + " and so on" * 1000 + "\nline 2")
        asked, failed = self.ends_of(events)
        self.assertIn("by an exception in the program: " , asked)
        self.assertRegex(failed, r"^an exception in the program: \S*Diverged: the loss is NaN and so on .*\.\.\.$")
        self.assertLess(len(failed), 400)
        self.assertEqual(session.report()["outcome"], "failed")
        events = []
        with self.assertRaises(Diverged):
            with self.session(SLOW, on_event=events.append) as session:
                session.next()
                raise Diverged("Caught ValueError in worker process 1.\nTraceback:\n  line 5\nValueError: label 71\n")
        self.assertRegex(self.ends_of(events)[-1], r"Diverged: Caught ValueError in worker process 1\. \.\.\. ValueError: label 71$")
        for harmless in (SystemExit(0), SystemExit()):
            events = []
            with self.assertRaises(SystemExit):
                with self.session(SLOW, on_event=events.append) as session:
                    session.next()
                    raise harmless
            self.assertEqual(self.ends_of(events)[-1], "it was stopped by the program")
        events = []
        with self.assertRaises(KeyboardInterrupt):
            with self.session(SLOW, on_event=events.append) as session:
                session.next()
                raise KeyboardInterrupt
        self.assertEqual(self.ends_of(events)[-1], "it was stopped by an exception in the program: KeyboardInterrupt")

    def test_an_exception_that_ends_the_program_is_in_the_record_of_each_session_that_it_ended(self):
        self.ran("""
            import sys, penstock
            session = penstock.Session(sys.argv[1], loader={"workers": 1}, name="raised")
            session.next()
            pool = penstock.Pool(1, name="jobs")
            pool.submit(abs, -1).result()
            raise ValueError("the loss is NaN")
            """, self.write("stream.toml", SLOW), expect=1)
        for name in ("raised", "jobs"):
            lines = self.penstock("events", "--last", "--session", name)[1].splitlines()
            self.assertIn("failed: an exception in the program: ValueError: the loss is NaN", lines[-1])

    def test_a_pool_that_is_left_by_an_exception_records_that(self):
        self.ran("""
            import penstock
            try:
                with penstock.Pool(1, name="jobs") as pool:
                    pool.submit(abs, -1)
                    raise KeyError("five")
            except KeyError:
                pass
            with penstock.Pool(1, name="well") as pool:
                pool.submit(abs, -1)
            """)
        last = lambda name: self.penstock("events", "--last", "--session", name)[1].splitlines()[-1]
        self.assertIn("failed: an exception in the program: KeyError: 'five'", last("jobs"))
        self.assertIn("finished: the pool was closed", last("well"))

    def test_pause_resume_and_scale_reach_the_workers(self):
        events = []
        with self.session(SLOW, on_event=events.append) as session:
            session.next()
            session.pause()
            self.assertEqual(session.status()["state"], "paused")
            session.resume()
            session.scale("auto")
            session.scale(4)
            while session.next() is not None:
                pass
            status = session.status()
            self.assertEqual(len(status["workers"]), 4)
            self.assertEqual(status["limits"]["verdict"], status["verdict"])
            with self.assertRaisesRegex(penstock.usage_error, "1 to 64"):
                session.scale(1000)
            with self.assertRaises(penstock.usage_error):
                session.restart(99)
        self.assertEqual([event["text"] for event in events if event["kind"] == "scaled"],
                         ["the number of workers is tuned from now on", "scaled to 4 workers"])

    def test_other_threads_run_while_one_waits_for_a_batch(self):
        with self.session(loader={"workers": 2, "slots_per_worker": 3}) as session:
            session.next()
            session.pause()
            for _ in range(20):  # takes the prepared batches
                if session.status()["batches_delivered"] > 12:
                    break
                waiter = threading.Thread(target=session.next, daemon=True)
                waiter.start()
                waiter.join(0.2)
                if waiter.is_alive():
                    break
            self.assertTrue(waiter.is_alive())  # the other thread is in next(), and this thread still runs
            with self.assertRaisesRegex(penstock.usage_error, "two callers"):
                session.next()
            session.resume()
            waiter.join(10)
            self.assertFalse(waiter.is_alive())

    def test_closing_wakes_a_thread_that_waits_for_a_batch(self):
        session = self.session()
        session.next()
        session.pause()
        ended = []

        def take_all():
            try:
                while session.next() is not None:
                    pass
            except penstock.usage_error as closed:
                self.assertIn("closed", str(closed))
            ended.append(True)
        waiter = threading.Thread(target=take_all)
        waiter.start()
        session.close()
        waiter.join(10)
        self.assertEqual(ended, [True])
        with self.assertRaisesRegex(penstock.usage_error, "closed"):
            session.next()
        self.assertTrue(session.closed)

    def test_only_the_latest_range_over_an_epoch_continues(self):
        with self.session() as session:
            first = session.epoch(0)
            next(first)
            second = session.epoch(1)
            self.assertEqual(next(second).epoch, 1)
            with self.assertRaisesRegex(penstock.usage_error, "out of date"):
                next(first)

    def test_overrides_work_like_set_and_accept_python_types(self):
        config = penstock.load_config(self.write("stream.toml", STREAM), loader={"workers": 3, "env": {"A": "b"}},
                                      **{"sampler.batch_size": 16})
        self.assertEqual((config["loader.workers"], config["sampler"]["batch_size"]), (3, 16))
        self.assertEqual(config["loader.env.A"], "b")
        self.assertEqual(config.to_dict()["dataset"]["samples"], 400)
        again = penstock.load_config(self.write("again.toml", config.to_toml()))
        self.assertEqual(again.to_dict(), config.to_dict())
        with penstock.Session(config) as session:
            self.assertEqual(session.next().rows, 16)

    def test_mistakes_are_errors_that_say_what_to_do(self):
        with self.assertRaisesRegex(penstock.config_error, "(?s)worker.*did you mean 'workers'") as caught:
            self.session(**{"loader.worker": 3})
        self.assertEqual(caught.exception.code, "config")
        self.assertIn(" --> override\n", str(caught.exception))  # not --set, which programs do not have
        self.assertIsInstance(caught.exception, ValueError)
        self.assertIsInstance(caught.exception, penstock.error)
        self.assertEqual(type(caught.exception).__module__, "penstock")
        with self.assertRaisesRegex(penstock.config_error, "0 and 1024"):
            self.session(loader={"workers": 1025})
        with self.assertRaisesRegex(penstock.config_error, "set .workers. to 1 or more"):
            self.session(loader={"workers": 0})
        with self.assertRaisesRegex(penstock.config_error, "^unknown key 'wokers' in "):
            self.session(loader={"wokers": 2})
        with self.assertRaisesRegex(penstock.io_error, "^(?!error: ).*nowhere.toml") as caught:
            penstock.Session(os.path.join(self.folder, "nowhere.toml"))
        self.assertEqual(caught.exception.os_code, 2)
        self.assertIsInstance(caught.exception, OSError)
        self.assertEqual(caught.exception.errno, 2)
        with self.assertRaisesRegex(penstock.usage_error, '"auto"'):
            self.session(loader={"workers": None})
        with self.assertRaisesRegex(TypeError, r"a config of type dict: .* as keyword arguments: Session\('photos.toml', loader="):
            penstock.Session({"loader": {"workers": 2}})
        with self.assertRaisesRegex(TypeError, "on_event is 3: pass a function"):
            self.session(on_event=3)
        with self.assertRaisesRegex(TypeError, "state is of type str: .*session.state"):
            self.session(state="x")
        with self.assertRaisesRegex(penstock.usage_error, "batches is -1: pass how many"):
            self.session(batches=-1)
        session = self.session()
        with self.assertRaisesRegex(penstock.usage_error, r"the epoch is -1: epochs are numbered from 0: session.epoch\(0\) is the first"):
            session.epoch(-1)
        with self.assertRaisesRegex(TypeError, "the epoch is 'x', of type str: epochs are numbered"):
            session.epoch("x")
        for wrong in (-1, 1 << 32):
            with self.assertRaisesRegex(penstock.usage_error, "workers is %d: pass a number of workers, from 1" % wrong):
                session.scale(wrong)
            for method in (session.restart, session.drain):
                with self.assertRaisesRegex(penstock.usage_error, "worker is %d: .* as status" % wrong):
                    method(wrong)
        with self.assertRaisesRegex(penstock.usage_error, "sample is -1: pass a sample's index"):
            session.retry_quarantined(-1)
        with self.assertRaisesRegex(TypeError, "seconds is 'x'.* a number of seconds"):
            session.stop("x")
        with self.assertRaisesRegex(penstock.usage_error, "load_config"):
            penstock.Session(penstock.load_config(self.write("stream.toml", STREAM)), loader={"workers": 1})
        with self.assertRaisesRegex(penstock.worker_program_error, "no-such-program"):
            self.session(loader={"command": ["no-such-program"]}).next()
        with self.assertRaises(TypeError):
            penstock.Session()

    def test_every_public_name_has_help(self):
        self.assertIn("KeyboardInterrupt", penstock.Session.next.__doc__)
        for name in penstock.__all__:
            self.assertTrue(getattr(penstock, name).__doc__, name)


if __name__ == "__main__":
    main()
