#!/usr/bin/env python3
"""Three replicas on Ray Serve, a long answer, its replica killed in the middle, and the text going on at another one. Exit code 0: the client
saw one stream, whose text is that of an answer that nobody disturbed.

ray_fleet.py MODEL [ADAPTER_ROOT]
"""

import http.client
import json
import logging
import os
import pathlib
import signal
import socket
import sys

import ray
from choral.ray import build_app
from ray import serve

CUT_AFTER = 40  # pieces of the answer
BODY = {"messages": [{"role": "user", "content": "Tell me a long story of a ship and its crew."}], "seed": 7, "max_tokens": 300, "ignore_eos": True,
        "stream": True}


def stream(port, body):
    """Which replica answers, then the answer's text in pieces."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"{answer.status} {answer.read().decode()}")
    yield answer.headers["X-Choral-Replica"]
    for line in answer:
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                sys.exit(chunk["error"]["message"])
            yield chunk["choices"][0]["delta"].get("content") or ""


def kill(replica):
    """The process that owns its server, which ends with it."""
    for there in serve.get_deployment_handle("Engine", "default").broadcast("record_replica_metadata").results():
        if there["id"] == replica:
            os.kill(int(pathlib.Path(f"/proc/{there['pid']}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)


def main(model, adapter_root=None):
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="warning",
             runtime_env={"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}})
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        serve.run(build_app(model, adapter_root=adapter_root, replicas=3))
        body = {**BODY, "model": "pirate"} if adapter_root else BODY
        undisturbed = "".join(list(stream(port, body))[1:])
        pieces = stream(port, body)
        replica, text = next(pieces), ""
        for count, piece in enumerate(pieces, start=1):
            text += piece
            print(piece, end="", flush=True)
            if count == CUT_AFTER:
                kill(replica)
                print(f"\n\n[{replica} is killed]\n")
        is_same = text == undisturbed
        print(f"\n\n[one stream of {len(text.encode())} bytes, {'the same as' if is_same else 'NOT the same as'} those that nobody disturbed]")
        return 0 if is_same else 1
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
