"""SIGKILL around every request of a push to S3: a reader sees all of it or nothing."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

# Forks for each kill; a store of its own each time. Gives the runs and what was wrong.
DRIVER = """
import json, os, signal, sys
from botocore.httpsession import URLLib3Session
import cachesvc
import cachesvc.start.push, cachesvc.start.verify, cachesvc.repository.pack, boto3

bucket, endpoint, goods = sys.argv[1:]
send, sent = URLLib3Session.send, []

def push(store, number=0, landed=False):
    def counted(session, request):
        sent.append(request.method)
        if len(sent) == number and not landed:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = send(session, request)
        if len(sent) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    child = os.fork()
    if child == 0:
        URLLib3Session.send = counted
        signal.alarm(60)
        cachesvc.push("gpt", store=store, trust="store", inductor_dir=goods)
        os._exit(len(sent))
    return os.waitpid(child, 0)[1]

def units(store):
    found = cachesvc.verify(store=store, trust="store")
    assert found.ok, found.problems
    return found.entries

def store(name):
    return f"s3://{bucket}/{name}?endpoint={endpoint}"

most, wrong, seen = push(store("whole")) >> 8, [], set()
whole = units(store("whole"))
for number in range(1, most + 1):
    for landed in (False, True):
        place = store(f"{number}-{landed}")
        status = push(place, number, landed)
        seen.add(units(place))
        if status != signal.SIGKILL or units(place) not in (0, whole):
            wrong.append(f"request {number}: status {status}, {units(place)} entries")
        if push(place) & 0xff or units(place) != whole:
            wrong.append(f"after request {number}: a second push comes to {units(place)}")
print(json.dumps({"runs": 2 * most, "wrong": wrong, "seen": sorted(seen), "whole": whole}))
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.mark.slow
@pytest.mark.xdist_group("s3")
def test_a_kill_around_every_request(endpoint: str, tmp_path: Path) -> None:
    """Before it is sent and after it is answered; a second push comes to the same end."""
    for number in range(3):
        file = tmp_path / f"goods/ab/c{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"code = {number}")
    bucket = f"bucket-{uuid.uuid4().hex}"
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=bucket)
    client.close()
    command = [sys.executable, "-c", DRIVER, bucket, endpoint, str(tmp_path / "goods")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert told["runs"] >= 10
    assert told["seen"] == [0, told["whole"]] == [0, 3]
