"""An S3 server on this machine, in a process of its own, as a real one is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

BUCKET = "benchmark"

# It prints its port when it listens.
_SERVER = """
import threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


@contextmanager
def s3_server() -> Iterator[Mapping[str, str]]:
    """The variables by which boto3 and the AWS CLI find a server, which runs meanwhile."""
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}",
            "AWS_ACCESS_KEY_ID": "benchmark",
            "AWS_SECRET_ACCESS_KEY": "benchmark",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        server.kill()
