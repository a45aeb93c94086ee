#!/usr/bin/env python3
"""One server with two threads beside a fleet of two replicas with one thread each, under `choral load`; and how long the streams of a
replica that is killed are silent. Run by hand, on a machine that does nothing else:

    PYTHONPATH=build/dev/python python tests/ray/side_by_side.py build/release/apps/choral MODEL [--haproxy] [--rounds 3]
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import fleet_of_three
import served

ADAPTERS = [f"adapter-{i}" for i in range(16)]
PROJECT = pathlib.Path(__file__).resolve().parents[2]


def write_adapters(root):
    """Those of the demo, each with a factor of its own, so that no two are the same content."""
    sources = sorted(path.parent for path in (PROJECT / "examples" / "adapters").glob("*/adapter_config.json"))
    for i, name in enumerate(ADAPTERS):
        shutil.copytree(sources[i % len(sources)], root / name)
        config = root / name / "adapter_config.json"
        fields = json.loads(config.read_text())
        config.write_text(json.dumps({**fields, "lora_alpha": fields["lora_alpha"] + i}))


def load(port, requests, options):
    command = [served.CHORAL, "load", "--url", f"http://127.0.0.1:{port}", "--concurrency", options.streams, "--requests", requests, "--adapters",
               ",".join(ADAPTERS), "--prompt-tokens", 64, "--max-tokens", options.tokens, "--json", "-q"]
    report = json.loads(subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE).stdout)
    assert not report["errors"], report["errors"]
    return report


def rate(report):
    return report["output_tokens_per_s"]


def cpu_s(root):
    """Seconds of CPU that a process and all below it took."""
    below, own = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                below.setdefault(int(fields[1]), []).append(int(entry.name))
                own[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found, left = 0.0, [root]
    while left:
        pid = left.pop()
        found += own.get(pid, 0.0)
        left += below.get(pid, [])
    return found


def silence(fleet, options):
    """Of the streams that a killed replica had: seconds from its end to their next token, the longest and the median."""
    asked = [{"model": name, "prompt": f"Tell me a story {i}. ", "max_tokens": 600, "ignore_eos": True, "seed": i} for i, name in
             enumerate(ADAPTERS)]
    streams = fleet_of_three.Streams(fleet.port, asked)
    streams.wait_until_begun(1)
    at = time.monotonic()
    fleet_of_three.kill(fleet_of_three.parent_of(fleet.each("record_replica_metadata")[0]["pid"]))
    gaps = []
    for stream in streams.ended():
        assert stream.ends == ["length"] and not stream.others, stream.others
        following = [b - max(a, at) for a, b in zip(stream.times, stream.times[1:]) if b > at]
        gaps.append(max(following[:40], default=0.0))
    return max(gaps), statistics.median(gaps)


class LocalFleet(fleet_of_three.Fleet):
    """On one node, of the model that was named."""

    def __init__(self, model, root):
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
        import ray
        from ray import serve

        self.files = type("Files", (), {"model": model, "temp": tempfile.TemporaryDirectory()})
        self.settings = {"adapter_root": str(root), "replicas": 2, "threads": 1}
        self.port = fleet_of_three.free_port()
        self.cluster = type("Cluster", (), {"shutdown": staticmethod(lambda: None)})
        fleet_of_three.USER.clear()
        ray.init("local", num_cpus=4, log_to_driver=False, logging_level="warning", include_dashboard=False,
                 runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": self.port})
        self.run()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("choral")
    parser.add_argument("model")
    parser.add_argument("--haproxy", action="store_true", help="Ray's HAProxy in place of its proxy in Python")
    for name, value in (("rounds", 3), ("streams", 64), ("requests", 192), ("tokens", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    served.CHORAL = options.choral
    if options.haproxy:
        os.environ["RAY_SERVE_ENABLE_HA_PROXY"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write_adapters(root)
        single, fleet = [], []
        there = LocalFleet(options.model, root)
        try:
            for _ in range(options.rounds):
                server = served.Server(command=[options.choral, "serve", options.model, "--adapter-root", folder, "--threads", "2", "--port", "0"])
                for port, root, reports in ((server.port, server.process.pid, single), (there.port, os.getpid(), fleet)):
                    load(port, options.streams, options)
                    before = cpu_s(root)
                    reports.append(load(port, options.requests, options))
                    reports[-1]["cpu_ms"] = 1000 * (cpu_s(root) - before) / reports[-1]["output_tokens"]
                server.stop()
                print(f"one server {rate(single[-1]):.0f} tokens/s, fleet {rate(fleet[-1]):.0f}: {rate(fleet[-1]) / rate(single[-1]):.1%}", flush=True)
            print(f"medians: {statistics.median(map(rate, fleet)) / statistics.median(map(rate, single)):.1%}")
            for name, reports in (("one server", single), ("fleet", fleet)):
                print(f"{name}: first token after {statistics.median(r['time_to_first_token']['p50_ms'] for r in reports):.0f} ms (p50), "
                      f"{statistics.median(r['cpu_ms'] for r in reports):.2f} ms of CPU a token")
            print("silence after a kill: %.2f s at most, %.2f s in the median" % silence(there, options))
        finally:
            there.stop()


if __name__ == "__main__":
    fleet_of_three.need_ray()
    main()
