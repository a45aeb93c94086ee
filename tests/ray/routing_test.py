#!/usr/bin/env python3
"""How a fleet's requests are routed: choral.ray's policy and what it knows, without Ray."""

import collections
import random
import unittest

from choral.ray import fleet, policy


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Member:
    def __init__(self, id, load=0, adapters=(), prefixes=()):
        self.id, self._load, self._adapters, self._prefixes = id, load, set(adapters), set(prefixes)

    def load(self):
        return self._load

    def holds(self, adapters):
        return self._adapters.issuperset(adapters)

    def cached(self, prefixes):
        count = 0
        while count < len(prefixes) and prefixes[count] in self._prefixes:
            count += 1
        return count


def first(members, adapters=(), prefixes=(), seed=0):
    return policy.preference(members, adapters, prefixes, random.Random(seed))[0].id


HEAVY = policy.SLACK_TOKENS + 1


class PolicyTest(unittest.TestCase):
    def test_who_holds_the_adapter_goes_before_who_has_the_prefix_or_less_to_do(self):
        members = [Member("a", load=500, adapters=["sql"]), Member("b", prefixes=[1, 2]), Member("c")]
        for seed in range(20):
            self.assertEqual(first(members, ["sql"], [1, 2], seed), "a")

    def test_of_holders_the_longest_prefix_counts_and_then_the_load(self):
        members = [Member("a", 0, ["sql"], [1]), Member("b", 900, ["sql"], [1, 2]), Member("c", 0, [], [1, 2, 3])]
        for seed in range(20):
            self.assertEqual(first(members, ["sql"], [1, 2, 3], seed), "b")
            # A piece behind one that is missing is of another prompt.
            self.assertEqual(first([Member("a", prefixes=[2, 3]), Member("b", prefixes=[1])], (), [1, 2, 3], seed), "b")
            self.assertEqual(first([Member("a", 10), Member("b", 20)], (), (), seed), "a")

    def test_of_many_equals_two_are_drawn(self):
        members = [Member(name, load) for load, name in enumerate("abcdefgh")]
        drawn = collections.Counter(first(members, seed=seed) for seed in range(2000))
        self.assertGreater(drawn["a"], drawn["d"])
        self.assertGreater(drawn["g"], 0)  # of two that know nothing of each other not all go to one
        self.assertEqual(drawn["h"], 0)  # nobody has more to do

    def test_a_hot_adapter_spreads_and_a_cold_one_does_not(self):
        calm = [Member("a", policy.SLACK_TOKENS, ["sql"]), Member("b"), Member("c")]
        self.assertEqual(first(calm, ["sql"]), "a")
        hot = [Member("a", HEAVY, ["sql"]), Member("b"), Member("c")]
        second = policy.home_order("sql", hot[1:])[0].id
        self.assertEqual(first(hot, ["sql"]), second)
        # All have as much to do: nobody is spared by a copy.
        self.assertEqual(first([Member("a", HEAVY, ["sql"]), Member("b", HEAVY), Member("c", HEAVY)], ["sql"]), "a")
        # A prefix does not hold a request at a replica that has much more to do either.
        self.assertEqual(first([Member("a", HEAVY, (), [1, 2]), Member("b")], (), [1, 2]), "b")

    def test_a_long_tail_has_homes(self):
        members = [Member(str(i)) for i in range(5)]
        names = [f"adapter-{i}" for i in range(1000)]
        homes = {name: first(members, [name]) for name in names}
        self.assertEqual(homes, {name: first(members[::-1], [name], seed=9) for name in names})
        self.assertLess(max(collections.Counter(homes.values()).values()), 260)
        moved = [name for name in names if first(members[:-1], [name]) != homes[name]]
        self.assertEqual({homes[name] for name in moved}, {"4"})  # of a replica that went, and no other

    def test_all_are_tried(self):
        members = [Member("a", HEAVY, ["sql"]), Member("b"), Member("c", 0, ["sql"])]
        for adapters in ((), ["sql"], ["none"], ["sql", "none"]):
            order = policy.preference(members, adapters, (), random.Random(1))
            self.assertCountEqual([member.id for member in order], "abc")
        self.assertEqual(policy.preference([], ["sql"], (), random.Random(1)), [])

    def test_a_mix_wants_all_of_its_adapters(self):
        self.assertEqual(first([Member("a", 0, ["one"]), Member("b", 900, ["one", "two"])], ["one", "two"]), "b")


class FleetTest(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        self.fleet = fleet.Fleet(self.clock, random.Random(3))
        self.told = {id: {"adapters": [], "prefixes": [], "waiting_tokens": 0, "answers": 0} for id in "abc"}

    def first(self, adapters=(), prefixes=(), **more):
        return self.fleet.order(self.told, adapters, prefixes, **more)[0]

    def test_a_burst_stays_together_before_anybody_told_of_it(self):
        home = self.first(["new"])
        self.fleet.sent(home, ["new"], [7, 8], 10)
        other = next(id for id in "abc" if id != home)
        for _ in range(20):
            self.assertEqual(self.first(["new"]), home)
            self.assertEqual(self.first((), [7, 8]), home)
        self.told[other] = {"adapters": ["new"], "prefixes": [7, 8]}
        self.clock.now += fleet.HORIZON_S + 1
        for _ in range(20):  # by now it would have been told, so it was evicted
            self.assertEqual(self.first(["new"]), other)
            self.assertEqual(self.first((), [7, 8]), other)

    def test_what_was_sent_counts_once(self):
        self.first()
        self.fleet.sent("a", (), (), 5000)
        self.assertNotEqual(self.first(), "a")
        self.told["a"] = {"waiting_tokens": 5000, "answers": 1}
        self.first()
        self.assertEqual(self.fleet._members["a"].load(), 5000 + policy.ANSWER_TOKENS)
        self.told["a"] = {"waiting_tokens": 0, "answers": 0}
        self.fleet.began("a", 5000)
        self.first()
        self.assertEqual(self.fleet._members["a"].load(), policy.ANSWER_TOKENS)
        self.fleet.ended("a", 0, broke=False)
        self.assertEqual(self.fleet._members["a"].load(), 0)

    def test_one_that_never_began_leaves_nothing(self):
        self.first()
        self.fleet.sent("a", (), (), 700)
        self.fleet.ended("a", 700, broke=False)
        self.assertEqual(self.fleet._members["a"].load(), 0)

    def test_one_that_broke_is_the_last_choice_for_a_while(self):
        self.told["a"]["adapters"] = ["sql"]
        self.assertEqual(self.first(["sql"]), "a")
        self.fleet.sent("a", (), (), 0)
        self.fleet.ended("a", 0, broke=True)
        order = self.fleet.order(self.told, ["sql"], ())
        self.assertEqual(order[-1], "a")
        self.assertEqual(len(order), 3)
        self.clock.now += fleet.AVOID_S + 1
        self.assertEqual(self.first(["sql"]), "a")

    def test_those_that_failed_a_request_are_not_asked_again(self):
        self.assertEqual(self.fleet.order(self.told, (), (), without={"a", "b"}), ["c"])
        self.assertEqual(self.fleet.order(self.told, (), (), without={"a", "b", "c"}), [])

    def test_replicas_that_went_are_forgotten(self):
        self.first()
        self.fleet.sent("a", ["sql"], (), 9)
        del self.told["a"]
        self.first()
        self.fleet.ended("a", 9, broke=True)  # of one that is not there any more
        self.told["a"] = {}
        self.first()
        self.assertEqual(self.fleet._members["a"].load(), 0)

    def test_memory_is_bounded(self):
        self.first()
        for i in range(3 * fleet.MOST_SENT):
            self.fleet.sent("a", [], [i], 0)
        self.assertLessEqual(len(self.fleet._members["a"].prefixes._times), fleet.MOST_SENT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
