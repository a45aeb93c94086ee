"""Three nodes of Ray on this machine, a fleet of choral.ray on them, and a server of the same model by itself to hold answers against."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))
import served  # noqa: E402
import tiny_model  # noqa: E402

ADMIN, USER = ({"Authorization": f"Bearer {key}"} for key in ("an-admin-of-the-tests", "a-user-of-the-tests"))
FLAGS = ["--admin-api-key", "an-admin-of-the-tests", "--api-key", "a-user-of-the-tests", "--max-model-len", "1024", "--kv-cache-memory", "64M",
         "--max-num-seqs", "8"]
LONG = 300  # seconds: Ray starts a process for each thing, and each takes seconds of CPU
ADAPTERS = [f"adapter-{i}" for i in range(12)]


def need_ray():
    """This Python has it, or the one that CHORAL_RAY_PYTHON names (`./dev test` makes it); exit 77 without."""
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError:
        if other := os.environ.pop("CHORAL_RAY_PYTHON", None):
            os.execv(other, [other, *sys.argv])
        print("skipped: no Ray here; ./dev test installs it where the package index can be reached")
        sys.exit(77)


class Files(served.Files):
    """A model that takes some milliseconds a token: more than Python needs to pass it on, so what is killed is in the middle of it."""

    def __init__(self):
        sizes = {"HIDDEN": 384, "INTERMEDIATE": 1024, "LAYERS": 6}
        usual = {name: getattr(tiny_model, name) for name in sizes}
        vars(tiny_model).update(sizes)
        super().__init__(context=2048)
        for seed, name in enumerate(ADAPTERS):
            tiny_model.write_adapter(self.root / name, seed)
        self.apart = tiny_model.write_adapter(self.root / "more" / "apart", 99)
        vars(tiny_model).update(usual)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Fleet:
    def __init__(self, replicas=3, **settings):
        import ray
        from ray import serve
        from ray.cluster_utils import Cluster

        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": str(LONG)}
        self.files = Files()
        self.settings = {"adapter_root": str(self.files.root), "replicas": replicas, "arguments": FLAGS, "drain_s": 1,
                         "ingress_options": {"ray_actor_options": {"resources": {"door": 0.1}}}, **settings}
        self.port = free_port()
        self.cluster = Cluster()
        try:
            store = {"object_store_memory": 80 << 20, "include_dashboard": False}
            self.head = self.cluster.add_node(num_cpus=2, resources={"door": 1}, **store)
            self.nodes = [self.cluster.add_node(num_cpus=2, **store) for _ in range(2)]
            ray.init(address=self.cluster.address, log_to_driver=False, logging_level="warning",
                     runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
            serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": self.port})
            self.run()
        except BaseException:
            self.stop()
            raise

    def run(self, **settings):
        from ray import serve

        from choral.ray import build_app

        serve.run(build_app(str(self.files.model), **{**self.settings, **settings}))

    def stop(self):
        import ray
        from ray import serve

        with contextlib.suppress(Exception):
            serve.shutdown()
        ray.shutdown()
        self.cluster.shutdown()
        self.files.temp.cleanup()

    def each(self, method, *arguments):
        """What a method of each replica gives."""
        from ray import serve

        return serve.get_deployment_handle("Engine", "default").broadcast(method, *arguments).results(timeout_s=LONG)

    def wait_for(self, replicas):
        """Until so many at least take requests; gives their metadata."""
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # one of them is dying just now
                if len(there := self.each("record_replica_metadata")) >= replicas:
                    return there
            time.sleep(0.5)
        raise AssertionError(f"there were not {replicas} replicas within {LONG} s")

    def call(self, method, path, body=None, headers=None):
        return call(self.port, method, path, body, headers)


def call(port, method, path, body=None, headers=None):
    """Status, headers and body."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)) as connection:
        connection.request(method, path, body if body is None else json.dumps(body), {**served.JSON, **USER, **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


class Stream:
    """One completion that streams: its text, and the events that are no text's."""

    def __init__(self, port, body):
        self.port, self.body = port, {**body, "stream": True}
        self.text, self.times, self.ends, self.others = "", [], [], []

    def run(self):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)) as connection:
            connection.request("POST", "/v1/completions", json.dumps(self.body), {**served.JSON, **USER})
            answer = connection.getresponse()
            if answer.status != 200:
                self.others.append(answer.read().decode())
            else:
                for line in answer:
                    self._read(line)
        return self

    def _read(self, line):
        if not line.startswith(b"data: {"):
            if line.strip() not in (b"", b"data: [DONE]") and not line.startswith(b":"):
                self.others.append(line.decode())
            return
        event = json.loads(line[6:])
        if "resume" in event or "choices" not in event:
            self.others.append(line.decode())
        for choice in event.get("choices", ()):
            self.text += choice["text"]
            self.times.append(time.monotonic())
            if choice["finish_reason"]:
                self.ends.append(choice["finish_reason"])


def bodies(count, tokens):
    """Of many kinds: greedy and sampled, with a seed and without a known one, base and adapters, several answers."""
    made = []
    for i in range(count):
        body = {"model": ["base", *ADAPTERS][i % 13], "prompt": f"Once upon a time there were {i} of them. ", "max_tokens": tokens,
                "ignore_eos": True, "temperature": 0 if i % 3 == 0 else 0.9}
        made.append(body if i % 3 == 0 else {**body, "seed": i})
    return made


class Streams:
    """Many at a time."""

    def __init__(self, port, asked):
        self.streams = [Stream(port, body) for body in asked]
        self._pool = concurrent.futures.ThreadPoolExecutor(len(asked))
        self._runs = [self._pool.submit(stream.run) for stream in self.streams]

    def wait_until_begun(self, share=0.3):
        """So many streams have told something: fewer than the fleet answers at a time, so that they are in the middle of it."""
        deadline = time.monotonic() + LONG
        while sum(bool(stream.times) for stream in self.streams) < share * len(self.streams):
            if time.monotonic() > deadline:
                raise AssertionError(f"the streams did not begin: {[stream.others for stream in self.streams if stream.others][:3]}")
            time.sleep(0.01)

    def ended(self):
        done = [run.result(timeout=2 * LONG) for run in self._runs]
        self._pool.shutdown()
        return done


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def parent_of(pid):
    return int(_stat(pid)[1])


def lives(pid):
    """One that ended may have its number for a while: whoever is its parent now has not asked for it yet."""
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _stat(pid):
    """What stands in /proc behind the name: state, parent, and more."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
