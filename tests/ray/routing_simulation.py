#!/usr/bin/env python3
"""Routing of a long tail of adapters, simulated: which share of requests find their adapter in memory, and how long the first token
takes. Run by hand: PYTHONPATH=build/dev/python tests/ray/routing_simulation.py [--adapters 500 --room 60 …]

The router is choral.ray's own, told of the replicas once a second. A replica is a model of the engine: steps of at most BUDGET tokens,
decodes first, then prompts in their order; adapters and pieces of prompts are forgotten least recently used first; a load takes its time
beside the steps. Times are those of this model and compare policies; they are no engine's.
"""

import argparse
import collections
import heapq
import itertools
import random
import statistics

from choral.ray import fleet, policy

BUDGET, STEP_S, TOKEN_S, LOAD_S = 512, 0.020, 0.0004, 0.150
PROMPT, SHARED, ANSWER, PIECE = 320, 256, 64, 64  # tokens; SHARED: an adapter's own beginning of prompts
PLACES, CACHE_PIECES = 64, 1500
TOLD_EVERY_S = 1.0


class Lru(collections.OrderedDict):
    def __init__(self, room):
        super().__init__()
        self.room = room

    def use(self, key):
        """Whether it was there."""
        hit = key in self
        self[key] = None
        self.move_to_end(key)
        while len(self) > self.room:
            self.popitem(last=False)
        return hit


class Replica:
    def __init__(self, name, room):
        self.id = name
        self.adapters, self.pieces = Lru(room), Lru(CACHE_PIECES)
        self.waiting, self.running = collections.deque(), []
        self.busy_until = 0.0

    def stats(self):
        return {"adapters": list(self.adapters), "prefixes": list(self.pieces), "answers": len(self.waiting) + len(self.running),
                "waiting_tokens": sum(request["left"] for request in self.waiting)}

    def step(self, now, ended):
        """One step that begins now; gives its end."""
        tokens = len(self.running)
        begun = []
        ready = [request for request in self.waiting if request["ready"] <= now]
        for request in ready:
            if tokens >= BUDGET or len(self.running) + len(begun) >= PLACES:
                break
            part = min(request["left"], BUDGET - tokens)
            request["left"] -= part
            tokens += part
            if request["left"] == 0:
                begun.append(request)
        end = now + STEP_S + TOKEN_S * tokens
        for request in self.running:
            request["answer"] -= 1
            if request["answer"] == 0:
                ended(request)
        self.running = [request for request in self.running if request["answer"] > 0]
        for request in begun:
            self.waiting.remove(request)
            request["first"] = end
            self.running.append(request)
        return end


def hashed(replicas, name, bound=None):
    """Consistent hashing of the name; with `bound`, as HAProxy's hash-balance-factor, no replica has more than so much of the mean."""
    order = policy.home_order(name, replicas)
    loads = {replica.id: len(replica.waiting) + len(replica.running) for replica in replicas}
    most = bound * (sum(loads.values()) + 1) / len(replicas) if bound else float("inf")
    return next((replica for replica in order if loads[replica.id] < most), order[0])


def simulate(kind, options):
    draw = random.Random(options.seed)
    clock = [0.0]
    replicas = [Replica(str(i), options.room) for i in range(options.replicas)]
    by_id = {replica.id: replica for replica in replicas}
    router = fleet.Fleet(lambda: clock[0], random.Random(1))
    told, told_at = {replica.id: {} for replica in replicas}, -1.0
    names = [f"adapter-{i}" for i in range(options.adapters)]
    weights = list(itertools.accumulate(1 / (i + 1) for i in range(len(names))))
    counter, events = itertools.count(), []
    hits, done, at = 0, [], 0.0
    for i in range(options.requests):
        at += draw.expovariate(options.rate)
        heapq.heappush(events, (at, next(counter), "request", draw.choices(names, cum_weights=weights)[0]))

    def ended(request):
        router.ended(request["replica"], 0, broke=False)

    while events:
        clock[0], _, what, subject = heapq.heappop(events)
        if what == "step":
            replica = subject
            for request in [r for r in replica.running if r.get("told") is None]:
                request["told"] = True
                router.began(replica.id, PROMPT)
            if replica.running or replica.waiting:
                heapq.heappush(events, (replica.step(clock[0], ended), next(counter), "step", replica))
            else:
                replica.busy_until = 0.0
            continue
        pieces = [hash((subject, j)) for j in range(SHARED // PIECE)]
        if kind == "choral":
            if clock[0] - told_at >= TOLD_EVERY_S:
                told, told_at = {replica.id: replica.stats() for replica in replicas}, clock[0]
            replica = by_id[router.order(told, [subject], pieces)[0]]
            router.sent(replica.id, [subject], pieces, PROMPT)
        elif kind == "random":
            replica = draw.choice(replicas)
        else:
            replica = hashed(replicas, subject, options.bound if kind == "hash, bounded" else None)
        hit = replica.adapters.use(subject)
        cached = 0
        while hit and cached < len(pieces) and pieces[cached] in replica.pieces:
            cached += 1
        for piece in pieces:
            replica.pieces.use(piece)
        request = {"at": clock[0], "ready": clock[0] + (0 if hit else LOAD_S), "left": PROMPT - cached * PIECE, "answer": ANSWER,
                   "replica": replica.id}
        hits += hit
        replica.waiting.append(request)
        done.append(request)
        if not replica.busy_until:
            replica.busy_until = 1.0
            heapq.heappush(events, (clock[0], next(counter), "step", replica))
    warm = done[len(done) // 5 :]
    times = sorted(request["first"] - request["at"] for request in warm)
    shares = collections.Counter(request["replica"] for request in warm)
    return {"hits": hits / len(done), "p50": statistics.median(times), "p99": times[int(0.99 * len(times))],
            "largest": max(shares.values()) / len(warm)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("adapters", 500), ("replicas", 3), ("room", 60), ("requests", 20000), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=15.0, help="requests a second")
    parser.add_argument("--bound", type=float, default=1.5, help="HAProxy's hash-balance-factor / 100")
    options = parser.parse_args()
    print(f"{'policy':15} {'hits':>6} {'p50':>8} {'p99':>8} {'largest share':>14}")
    for kind in ("random", "hash", "hash, bounded", "choral"):
        seen = simulate(kind, options)
        print(f"{kind:15} {seen['hits']:6.1%} {seen['p50'] * 1000:6.0f}ms {seen['p99'] * 1000:6.0f}ms {seen['largest']:14.0%}")


if __name__ == "__main__":
    main()
