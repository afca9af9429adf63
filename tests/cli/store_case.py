"""Shared by the tests of object storage: an environment with credentials, and servers."""

import contextlib
import io
import logging

from harness import *
from object_server import ObjectServer


class StoreTest(PenstockTest):
    def setUp(self):
        super().setUp()
        self.environment.update(XDG_CACHE_HOME=os.path.join(self.folder, "cache-home"), HOME=self.folder,
                                AWS_ACCESS_KEY_ID="AKTEST", AWS_SECRET_ACCESS_KEY="the-secret", AWS_REGION="us-east-1")
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
            self.environment.pop(name, None)
        self.served = os.path.join(self.folder, "served")
        os.makedirs(os.path.join(self.served, "bucket"))

    def serve(self, tls=None):
        server = ObjectServer(self.served, tls=tls)
        self.addCleanup(server.stop)
        self.environment["AWS_ENDPOINT_URL"] = server.address
        return server

    def serve_moto(self):
        """A client of an independent S3 server."""
        try:  # importing these modules takes longer than most of the tests that do not need them
            import boto3
            from moto.server import ThreadedMotoServer
        except ImportError:
            self.skipTest("moto is not installed")
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(port=0)
        with contextlib.redirect_stdout(io.StringIO()):
            server.start()
        self.addCleanup(server.stop)
        host, port = server.get_host_and_port()
        address = "http://%s:%d" % (host.replace("0.0.0.0", "127.0.0.1"), port)
        self.environment["AWS_ENDPOINT_URL"] = address
        return boto3.client("s3", endpoint_url=address, aws_access_key_id="AKTEST", aws_secret_access_key="the-secret", region_name="us-east-1")
