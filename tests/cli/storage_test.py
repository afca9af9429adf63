"""Object storage: shards behind http:// and s3://, compared with the same shards on disk, from servers that fail, stall, change and redirect."""

import io
import shutil
import socket
import ssl
import tarfile
import threading

from store_case import *

CONFIG = """
name = "objects"
[dataset]
type = "tar"
path = "{path}"
members = {{ number = "cls", text = "txt" }}
[storage]
cache = "{cache}"
[sampler]
batch_size = 8
epochs = {epochs}
[gpu]
device = "host"
"""

SAMPLES = 40  # samples in each shard
PATIENT = ("--set", "loader.hang.item_timeout='5m'")  # TLS handshakes take long on a busy machine


class StorageTest(StoreTest):
    def setUp(self):
        super().setUp()
        self.shards = os.path.join(self.served, "bucket", "shards")
        os.makedirs(self.shards)
        for number in range(3):
            self.write_shard(number)

    def write_shard(self, number, text="text"):
        with tarfile.open(os.path.join(self.shards, "t-%03d.tar" % number), "w") as archive:
            for sample in range(SAMPLES):
                for ending, contents in (("cls", "%d" % (number * SAMPLES + sample)), ("txt", ("%s %d " % (text, sample)) * (sample * 20 + 1))):
                    facts = tarfile.TarInfo("%05d.%s" % (sample, ending))
                    facts.size = len(contents)
                    archive.addfile(facts, io.BytesIO(contents.encode()))

    def config(self, path, epochs=1, cache="", name="objects.toml"):
        return self.write(name, CONFIG.format(path=path, epochs=epochs, cache=cache))

    def local(self, epochs=1):
        return self.digests(self.config(self.shards, epochs, name="local.toml"), "--workers", 2)

    def refused(self, path, expect=EXIT_FAILED):
        code, out, err = self.penstock("run", self.config(path))
        self.assertEqual(code, expect, out + err)
        self.assertNotIn("the-secret", out + err)
        return err

    # ---- the same stream ---------------------------------------------------------------------------------------

    def test_shards_behind_http_and_s3_give_the_stream_of_the_same_shards_on_disk(self):
        server = self.serve()
        server.page = 2
        expected = self.local(epochs=2)
        self.write("served/bucket/shards/list.txt", "t-000.tar\nt-{001..002}.tar\n")
        self.write("elsewhere.txt", "".join("%s/t-%03d.tar\n" % (self.shards, number) for number in range(3)))
        for path in (self.shards + "/list.txt", "elsewhere.txt", "s3://bucket/shards/list.txt", server.address + "/bucket/shards/t-{000..002}.tar", "s3://bucket/shards", "s3://bucket/shards/", "s3://bucket/shards/t-*.tar",
                     "s3://bucket/shards/t-{000..002}.tar"):
            self.assertEqual(self.digests(self.config(path, epochs=2), "--workers", 2), expected, path)
        signed = ["Authorization" in headers for _, headers in server.requests]
        self.assertTrue(any(signed) and not all(signed))  # requests to s3:// are signed, those to http:// are not

    def test_a_session_suspended_while_a_store_answers_continues(self):
        server = self.serve()
        expected = self.local()
        asked, go = threading.Event(), threading.Event()

        def hold(_):
            asked.set()
            go.wait(60)

        server.fault = hold
        process = self.start("run", self.config("s3://bucket/shards"), "--digest", "--json", "--quiet")
        self.assertTrue(asked.wait(60))
        signal_process(process.pid, signal.SIGSTOP)
        time.sleep(13)  # all attempts at one request may take 12 s
        go.set()
        signal_process(process.pid, signal.SIGCONT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, EXIT_OK, err.decode() + out.decode())
        self.assertEqual([epoch["digest"] for epoch in json.loads(out)["epochs"]], expected)

    def test_compressed_shards_behind_s3_give_the_stream_of_plain_ones_and_only_frames_are_fetched(self):
        server = self.serve()
        expected = self.local(epochs=2)
        compressed = os.path.join(self.served, "bucket", "compressed")
        code, _, err = self.penstock("pack", self.shards, "--out", compressed, "--compress", "zstd", "--frame-size", "4KiB")
        self.assertEqual(code, EXIT_OK, err)
        code, _, err = self.penstock("pack", "s3://bucket/compressed/*.tar.zst", "--out", os.path.join(self.folder, "back"))
        self.assertEqual(code, EXIT_USAGE, err)
        self.assertIn("pack reads shards only from files", err)
        config = self.config("s3://bucket/compressed", epochs=2)
        self.assertEqual(self.digests(config, "--workers", 2), expected)
        server.requests.clear()
        self.assertEqual(self.digests(config, "--workers", 2), expected)
        ranges = [headers.get("Range") for path, headers in server.requests if ".tar.zst" in path]
        self.assertGreater(len(ranges), 0)
        self.assertNotIn(None, ranges)
        cached = self.config("s3://bucket/compressed", epochs=2, cache=os.path.join(self.folder, "cache"))
        for _ in range(2):
            self.assertEqual(self.digests(cached, "--workers", 3), expected)

    def test_a_compressed_object_that_changes_under_the_reader_fails_its_samples(self):
        server = self.serve()
        bucket = os.path.join(self.served, "bucket")
        for name, text in ("compressed", "text"), ("other", "TEXT"):
            self.write_shard(2, text)
            self.assertEqual(self.penstock("pack", self.shards, "--out", os.path.join(bucket, name), "--compress", "zstd", "--frame-size", "4KiB")[0], EXIT_OK)
        config = self.config("s3://bucket/compressed")
        self.run_json(config)
        changed = threading_flag(server, lambda: os.replace(bucket + "/other/t-002.tar.zst", bucket + "/compressed/t-002.tar.zst"))
        report = self.run_json(config, "--set", "loader.max_failed_fraction=1.0")
        self.check_sums(report)
        self.assertTrue(changed)
        self.assertEqual({one["path"].partition(":")[0] for one in report["failures"]}, {"t-002.tar.zst"})
        self.assertIn("its shard changed since it was indexed", report["failures"][0]["error"])

    def test_run_plan_replay_preview_and_inspect_list_a_prefix_once(self):
        server = self.serve()
        config = self.config("s3://bucket/shards")
        for built in (False, True):
            for verb in (("run", config), ("plan", config), ("replay", config, "--batch", 1, "--out", "batch%d" % built), ("preview", config, "--out", "p.png"), ("inspect", config)):
                if not built:
                    shutil.rmtree(os.path.join(self.folder, "cache-home"), ignore_errors=True)
                before = server.count("list-type=2")
                code, out, err = self.penstock(*verb)
                self.assertTrue(code == EXIT_OK or verb[0] == "preview", out + err)  # these samples have no picture
                self.assertEqual(server.count("list-type=2") - before, 1, (verb, built))

    def test_a_list_of_addresses_is_read_ahead_as_far_as_a_store(self):
        server = self.serve()
        self.write("list.txt", "".join("%s/bucket/shards/t-%03d.tar\n" % (server.address, number) for number in range(3)))
        config = self.config("list.txt")
        self.digests(config)  # builds the index
        waiting, reached = set(), threading.Event()

        def fault(request):
            path, begin, end, _ = request
            if end is not None and end - begin > 1:
                waiting.add((path, begin))
                if len(waiting) >= 4:  # each of these requests fetches a batch of 8 neighbours
                    reached.set()
                reached.wait(20)

        server.fault = fault
        self.assertEqual(self.digests(config, "--workers", 1, "--set", "loader.slots_per_worker=6", "--set", "sampler.shuffle=false"),
                         self.digests(self.config(self.shards, name="local.toml"), "--set", "sampler.shuffle=false"))
        self.assertTrue(reached.is_set())

    def test_errors_truncated_answers_and_closed_connections_do_not_change_the_stream(self):
        server = self.serve()
        expected = self.local(epochs=3)
        faults = [lambda handler: handler.error(503, "SlowDown"), lambda handler: handler.error(500, "InternalError"),
                  lambda handler: handler.error(429, "TooMany"), lambda handler: handler.cut(), lambda handler: setattr(handler, "close_connection", True)]
        server.fault = lambda request: faults[request[3] // 10 % len(faults)] if request[3] % 10 == 0 else None
        report = self.run_json(self.config("s3://bucket/shards", epochs=3), "--digest", "--workers", 3)
        self.assertEqual([epoch["digest"] for epoch in report["epochs"]], expected)
        self.assertEqual(report["failures"], [])

    def test_a_stalled_answer_is_requested_again(self):
        server = self.serve()
        expected = self.local()
        config = self.config("s3://bucket/shards")
        self.digests(config)  # builds the index

        def fault(request):
            if request[2] and request[2] - request[1] > 1 and request[3] % 20 == 0:
                time.sleep(6)
            return None

        server.fault = fault
        begin = time.monotonic()
        self.assertEqual(self.digests(config, "--workers", 2), expected)
        self.assertLess(time.monotonic() - begin, 5)

    def test_a_stopped_stream_continues_from_disk_or_from_a_store(self):
        server = self.serve()
        config = self.config("s3://bucket/shards", epochs=2)
        whole = self.digests(config)
        self.run_json(config, "--digest", "--batches", 7, "--state", "state", "--workers", 1)
        rest = self.run_json(self.config(self.shards, epochs=2, name="local.toml"), "--digest", "--state", "state", "--workers", 2)
        self.assertEqual(rest["epochs"][-1]["digest"], whole[-1])
        self.assertGreater(server.count(), 0)

    # ---- the index ------------------------------------------------------------------------------------------------

    def test_the_index_is_kept_by_version_and_rebuilt_when_an_object_changes(self):
        server = self.serve()
        config = self.config("s3://bucket/shards")
        self.run_json(config)
        first = self.local()
        before = server.count("t-001.tar")
        self.assertEqual(self.digests(config), first)
        self.assertEqual(len([name for name in os.listdir(self.environment["XDG_CACHE_HOME"] + "/penstock") if name.endswith(".index")]), 1)
        facts = os.stat(self.shards + "/t-001.tar")
        self.write_shard(1, text="other")
        os.utime(self.shards + "/t-001.tar", ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**9))
        code, _, err = self.penstock("run", config)
        self.assertEqual(code, EXIT_OK, err)
        self.assertIn("building it again", err)
        self.assertGreater(server.count("t-001.tar"), before)

    def test_samples_of_an_object_that_changes_under_the_reader_fail_and_are_named(self):
        server = self.serve()
        config = self.config("s3://bucket/shards")
        self.run_json(config)
        changed = threading_flag(server, lambda: self.write_shard(2, text="TEXT"))
        report = self.run_json(config, "--set", "loader.max_failed_fraction=1.0")
        self.check_sums(report)
        self.assertTrue(changed)
        errors = {one["error"] for one in report["failures"]}
        self.assertGreater(len(report["failures"]), 0)
        self.assertEqual({one["path"].partition(":")[0] for one in report["failures"]}, {"t-002.tar"})
        self.assertIn("its shard changed since it was indexed", errors.pop())

    # ---- the cache ------------------------------------------------------------------------------------------------

    def test_bytes_that_were_read_once_come_from_the_cache_of_all_workers(self):
        server = self.serve()
        config = self.config("s3://bucket/shards", cache=os.path.join(self.folder, "cache"))
        expected = self.local()
        self.assertEqual(self.digests(config, "--workers", 3), expected)
        server.requests.clear()
        self.assertEqual(self.digests(config, "--workers", 2), expected)
        self.assertEqual([path for path, headers in server.requests if "list-type" not in path], [])
        self.assertEqual(os.stat(os.path.join(self.folder, "cache")).st_mode & 0o777, 0o700)

    def test_a_damaged_cache_does_not_change_the_stream(self):
        self.serve()
        cache = os.path.join(self.folder, "cache")
        config = self.config("s3://bucket/shards", cache=cache)
        expected = self.digests(config)
        for name in os.listdir(cache):
            if name.endswith(".data"):
                with open(os.path.join(cache, name), "r+b") as file:
                    file.seek(5000)
                    file.write(b"damaged" * 100)
        self.assertEqual(self.digests(config), expected)

    # ---- what is refused --------------------------------------------------------------------------------------------

    def test_permanent_errors_are_reported_at_once_and_named(self):
        server = self.serve()
        self.assertIn("'s3://bucket/none.tar' answers HTTP 404 NoSuchKey: there is no such object", self.refused("s3://bucket/none.tar"))
        self.assertLessEqual(server.count("none.tar"), 2)  # two requests: one with a progress bar, one by the session
        self.assertIn("no shards (*.tar, *.tar.zst) in 's3://bucket/empty'", self.refused("s3://bucket/empty"))
        self.assertIn("an HTTP server does not list its files", self.refused(server.address + "/bucket/*.tar"))
        server.fault = lambda request: lambda handler: handler.error(403, "AccessDenied")
        server.requests.clear()
        self.assertIn("answers HTTP 403 AccessDenied: these credentials are not allowed to read it", self.refused("s3://bucket/shards/t-000.tar"))
        self.assertLessEqual(server.count(), 2)
        server.fault = lambda request: lambda handler: handler.answer(301, [("x-amz-bucket-region", "eu-west-1")])
        self.assertIn("the bucket is in the region eu-west-1; set AWS_REGION", self.refused("s3://bucket/shards/t-000.tar"))
        server.fault = lambda request: None
        server.ranges = False
        self.assertIn("does not support range requests", self.refused(server.address + "/bucket/shards/t-000.tar"))

    def test_an_unreachable_server_is_named(self):
        self.environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
        self.assertRegex(self.refused("s3://bucket/shards/t-000.tar"), r"'s3://bucket/shards/t-000\.tar' cannot be fetched: .*127\.0\.0\.1.* \(5 attempts\)")

    def test_an_untrusted_server_is_named_and_contacted_once(self):
        server = self.serve()
        # The server does not speak TLS at all.
        self.assertRegex(self.refused(server.address.replace("http:", "https:") + "/bucket/shards/t-000.tar"), r"cannot be fetched over TLS: ")

    # ---- TLS --------------------------------------------------------------------------------------------------------

    def certificate(self, name, subject="IP:127.0.0.1", *before):
        """Makes a certificate that is its own authority, valid for a day. Returns its file, and a server's context with it."""
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")
        path, key = os.path.join(self.folder, name + ".pem"), os.path.join(self.folder, name + ".key")
        subprocess.run([*before, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=" + name,
                        "-addext", "subjectAltName=" + subject, "-keyout", key, "-out", path], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path, key)
        return path, context

    def refused_over_tls(self, context):
        """Runs against a server with this context; returns the output. The server must get no request, and no second connection."""
        server = self.serve(context)
        code, out, err = self.penstock("run", self.config(server.address + "/bucket/shards/t-000.tar"), "--json", "--quiet", *PATIENT)
        self.assertEqual(code, EXIT_FAILED, out + err)
        self.assertEqual(server.count(), 0)
        self.assertIn("t-000.tar' cannot be fetched over TLS: ", err + out)
        self.assertNotIn(" attempts)", err + out)  # messages about repeated requests end like this
        return err + out

    def test_shards_behind_https_give_the_stream_of_the_same_shards_on_disk(self):
        expected = self.local(epochs=2)
        authority, context = self.certificate("trusted")
        server = self.serve(context)
        self.environment["SSL_CERT_FILE"] = authority
        for path in ("s3://bucket/shards", server.address + "/bucket/shards/t-{000..002}.tar"):
            self.assertEqual(self.digests(self.config(path, epochs=2), "--workers", 2, *PATIENT), expected, path)

    def test_a_server_with_an_untrusted_certificate_is_refused(self):
        _, context = self.certificate("untrusted")
        self.assertIn("self-signed certificate", self.refused_over_tls(context).replace("self signed", "self-signed"))

    def test_a_server_with_an_expired_certificate_is_refused(self):
        if not shutil.which("faketime"):
            self.skipTest("faketime is not installed")
        authority, context = self.certificate("expired", "IP:127.0.0.1", "faketime", "-f", "-10d")
        self.environment["SSL_CERT_FILE"] = authority
        self.assertIn("certificate has expired", self.refused_over_tls(context))

    def test_a_server_with_a_certificate_for_another_name_is_refused(self):
        authority, context = self.certificate("other", "DNS:store.example")
        self.environment["SSL_CERT_FILE"] = authority
        self.assertIn("127.0.0.1", self.refused_over_tls(context).partition("over TLS: ")[2])

    def test_a_missing_file_of_certificate_authorities_is_named(self):
        _, context = self.certificate("untrusted")
        self.environment["SSL_CERT_FILE"] = os.path.join(self.folder, "missing.pem")
        server = self.serve(context)
        self.assertRegex(self.refused(server.address + "/bucket/shards/t-000.tar"), r"cannot be fetched over TLS: .*missing\.pem")

    def test_http_2_is_offered_over_tls(self):
        authority, context = self.certificate("trusted")
        context.set_alpn_protocols(["h2"])
        self.environment["SSL_CERT_FILE"] = authority
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(60)
            self.start("run", self.config("https://127.0.0.1:%d/x.tar" % listener.getsockname()[1]))
            with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
                self.assertEqual(connection.selected_alpn_protocol(), "h2")

    # ---- data -------------------------------------------------------------------------------------------------------

    def test_a_damaged_shard_is_refused_with_shard_offset_and_member(self):
        self.serve()
        path = os.path.join(self.shards, "t-001.tar")
        os.truncate(path, os.path.getsize(path) - 20000)
        self.assertRegex(self.refused("s3://bucket/shards"), r"the shard 't-001\.tar' is damaged at offset \d+")

    # ---- credentials ------------------------------------------------------------------------------------------------

    def test_a_redirect_to_another_host_carries_no_credentials(self):
        first, second = self.serve(), ObjectServer(self.served)
        self.addCleanup(second.stop)
        first.fault = lambda request: lambda handler: handler.answer(307, [("Location", second.address + request[0])])
        expected = self.local()
        self.assertEqual(self.digests(self.config("s3://bucket/shards/t-{000..002}.tar")), expected)
        self.assertTrue(all("Authorization" in headers for _, headers in first.requests))
        self.assertGreater(second.count(), 0)
        for _, headers in second.requests:
            self.assertFalse({"authorization", "x-amz-security-token"} & {name.lower() for name in headers})

    def test_a_redirect_loop_ends_with_an_error(self):
        server = self.serve()
        server.fault = lambda request: lambda handler: handler.answer(302, [("Location", request[0])])
        self.assertIn("is redirected more than 5 times", self.refused("s3://bucket/shards/t-000.tar"))

    def test_expired_credentials_are_read_again_and_named_if_there_are_no_others(self):
        server = self.serve()
        expected = self.local()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            del self.environment[name]
        keys = "[default]\naws_access_key_id = %s\naws_secret_access_key = the-secret\n"
        self.write(".aws/credentials", keys % "OLD")

        lock = threading.Lock()

        def fault(request):
            if request[3] < 20 or "OLD" not in server.requests[request[3] - 1][1].get("Authorization", ""):
                return None
            with lock:  # write the new credentials before any process learns that the old ones have expired
                self.write(".aws/credentials", keys % "NEW")
            return lambda handler: handler.error(403, "ExpiredToken")

        server.fault = fault
        self.assertEqual(self.digests(self.config("s3://bucket/shards/t-{000..002}.tar")), expected)
        self.assertTrue(any("NEW" in headers.get("Authorization", "") for _, headers in server.requests))
        server.fault = lambda request: lambda handler: handler.error(400, "ExpiredToken")
        self.assertIn("answers HTTP 400 ExpiredToken: the credentials have expired", self.refused("s3://bucket/shards/t-000.tar"))

    def test_the_checks_look_for_credentials_and_never_show_them(self):
        self.environment["AWS_PROFILE"] = "none"
        del self.environment["AWS_ACCESS_KEY_ID"], self.environment["AWS_SECRET_ACCESS_KEY"]
        code, out, err = self.penstock("check-config", self.config("s3://bucket/shards"))
        self.assertIn("AWS_PROFILE is 'none', but neither credentials nor config has that profile", out + err)
        del self.environment["AWS_PROFILE"]
        code, out, err = self.penstock("check-config", self.config("s3://bucket/shards"))
        self.assertEqual((code, "warning" in out + err), (EXIT_OK, False), out + err)
        code, out, err = self.penstock("check-config", self.config("https://me:hidden@host/x.tar"))
        self.assertIn("a URL must not have a user name or password", out + err)

    # ---- an independent server -----------------------------------------------------------------------------------------

    def test_shards_in_a_bucket_of_moto_give_the_stream_of_the_same_shards_on_disk(self):
        client = self.serve_moto()
        client.create_bucket(Bucket="data")
        for name in os.listdir(self.shards):
            client.upload_file(os.path.join(self.shards, name), "data", "deep folder/é+&/" + name)
        for number in range(1100):
            client.put_object(Bucket="data", Key="deep folder/é+&/other-%04d.txt" % number, Body=b"")
        expected = self.local(epochs=2)
        for path in ("s3://data/deep folder/é+&", "s3://data/deep folder/é+&/t-*.tar", "s3://data/deep folder/é+&/t-{000..002}.tar"):
            self.assertEqual(self.digests(self.config(path, epochs=2), "--workers", 2), expected, path)
        self.assertIn("404", self.refused("s3://nobody-has-this/x.tar"))


def threading_flag(server, action):
    """Runs `action` before the server answers its 5th range request from now on. After that the returned list is not empty."""
    done = []
    begin = server.count()

    def fault(request):
        if request[3] == begin + 5 and not done:
            action()
            done.append(True)
        return None

    server.fault = fault
    return done


if __name__ == "__main__":
    main()
