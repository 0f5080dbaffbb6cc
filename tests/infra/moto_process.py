"""A process that serves S3 and IAM on this machine until its stdin is closed."""

import logging
import sys

from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("http://{}:{}".format(*server.get_host_and_port()), flush=True)  # noqa: T201
sys.stdin.read()
