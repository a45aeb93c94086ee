"""choral.ops beside plain definitions of what the operators do, on random shapes: in place, without a copy, refused with reasons."""

import inspect
import random
import subprocess
import sys
import unittest

import numpy as np
import package

from choral import ops
from choral.errors import InvalidArgumentError

FLOATS = [np.float32, np.float16]


def product(inputs, weights, rows, dtype):
    """inputs[i]·W[index]ᵀ in float32, of both rounded to `dtype` first; None for the base."""
    x, w = inputs.astype(dtype).astype(np.float32), weights.reshape(weights.shape[0], *weights.shape[-2:]).astype(dtype).astype(np.float32)
    return [None if index < 0 else w[index] @ x[i] for i, index in enumerate(rows)]


def written(output, products, begin, columns, scale=1.0, add=False):
    """What `output` becomes."""
    out = output.copy()
    products = products * len(output) if len(products) == 1 else products
    for row, values in zip(out, products):
        if values is not None:
            old = row[begin : begin + columns].astype(np.float32) if add else 0
            row[begin : begin + columns] = (old + np.float32(scale) * values[:columns]).astype(output.dtype)
    return out


class Batch:
    """Random sizes, weights and sequences."""

    def __init__(self, seed):
        self.source = random.Random(seed)
        self.arrays = np.random.default_rng(seed)
        self.stack, self.rank = self.source.randint(1, 5), self.source.choice([1, 3, 8, 16, 40])
        self.lengths = [self.source.choice([0, 1, 1, 2, 9]) for _ in range(self.source.randint(1, 6))] + [1]
        self.tokens = sum(self.lengths)
        self.of_sequence = [self.source.randint(-1, self.stack - 1) for _ in self.lengths]
        self.of_token = np.repeat(self.of_sequence, self.lengths)
        self.integers = self.source.choice([np.int32, np.int64])
        self.dtypes = [self.source.choice(FLOATS) for _ in range(3)]

    def array(self, *shape, of):
        return (self.arrays.standard_normal(shape) / 4).astype(self.dtypes[of])

    def weights(self, *shape):
        made = self.array(self.stack, *shape, of=1)
        return made[:, None] if self.source.random() < 0.3 else made

    def sequences(self):
        starts = np.cumsum([0, *self.lengths[:-1]])
        vectors = [np.array(one, self.integers) for one in (starts, self.lengths, self.of_sequence)]
        return (*vectors, len(self.lengths), max(self.lengths), self.tokens)


class Definitions(unittest.TestCase):
    def check(self, got, expected):
        tolerance = 2e-5 if got.dtype == np.float32 else 4e-3
        np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance)

    def test_shrink(self):
        for seed in range(60):
            batch = Batch(seed)
            width = batch.source.randint(1, 70)
            inputs, weights = batch.array(batch.tokens, width, of=0), batch.weights(batch.rank, width)
            output = batch.array(batch.tokens, batch.rank + batch.source.choice([-1, 0, 3]) or 1, of=2)
            columns = min(output.shape[1], batch.rank)
            expected = written(output, product(inputs, weights, batch.of_token, output.dtype), 0, columns, scale=0.5)
            by_token, by_sequence = output.copy(), output.copy()
            self.assertIsNone(ops.bgmv_shrink(inputs, weights, by_token, batch.of_token.astype(batch.integers), 0.5))
            ops.sgmv_shrink(inputs, weights, by_sequence, *batch.sequences(), 0.5)
            self.check(by_token, expected)
            np.testing.assert_array_equal(by_token, by_sequence)

    def test_expand(self):
        for seed in range(60):
            batch = Batch(seed)
            out = batch.source.randint(1, 70)
            inputs, weights = batch.array(batch.tokens, batch.rank, of=0), batch.weights(out, batch.rank)
            before, after, add = batch.source.randint(0, 5), batch.source.randint(0, 5), batch.source.random() < 0.5
            index = batch.of_token.astype(batch.integers)
            output = batch.array(batch.tokens, before + out + after, of=2)
            products = product(inputs, weights, batch.of_token, output.dtype)
            for begin, by_token, by_sequence, where in [
                (0, ops.bgmv_expand, ops.sgmv_expand, {}),
                (before, ops.bgmv_expand_slice, ops.sgmv_expand_slice, {"slice_offset": before, "slice_size": out}),
            ]:
                expected = written(output, products, begin, out, add=add)
                one, other = output.copy(), output.copy()
                by_token(inputs, weights, one, index, **where, add_inputs=add)
                by_sequence(inputs, weights, other, *batch.sequences(), **where, add_inputs=add)
                self.check(one, expected)
                np.testing.assert_array_equal(one, other)

    def test_one_row_goes_to_all(self):
        inputs, weights, output = np.ones((1, 4), np.float32), np.ones((2, 3, 4), np.float32), np.zeros((5, 3), np.float32)
        ops.bgmv_shrink(inputs, weights, output, np.array([1]), 2.0)
        np.testing.assert_array_equal(output, np.full((5, 3), 8, np.float32))

    def test_names_and_defaults_are_those_of_vllm(self):
        sequences = ["b_seq_start_loc", "seq_len_tensor", "lora_indices_tensor", "batches", "max_seq_length", "token_nums"]
        for name, weights, more, default in [
            ("bgmv_shrink", "lora_a_weights", ["scaling"], 1.0),
            ("bgmv_expand", "lora_b_weights", ["add_inputs"], True),
            ("bgmv_expand_slice", "lora_b_weights", ["slice_offset", "slice_size", "add_inputs"], True),
            ("sgmv_shrink", "lora_a_weights", ["scaling"], inspect.Parameter.empty),
            ("sgmv_expand", "lora_b_weights", ["add_inputs"], False),
            ("sgmv_expand_slice", "lora_b_weights", ["slice_offset", "slice_size", "add_inputs"], False),
        ]:
            parameters = inspect.signature(getattr(ops, name)).parameters
            middle = sequences if name.startswith("s") else ["lora_indices_tensor"]
            self.assertEqual(list(parameters), ["inputs", weights, "output_tensor", *middle, *more])
            self.assertEqual(parameters[more[-1]].default, default, name)


class Memory(unittest.TestCase):
    def arguments(self):
        inputs, weights = np.ones((3, 8), np.float32), np.ones((2, 4, 8), np.float32)
        return inputs, weights, np.zeros((3, 4), np.float32), np.array([0, -1, 1])

    def test_it_is_written_where_it_lies(self):
        inputs, weights, output, index = self.arguments()
        whole = np.zeros((9, 4), np.float32)
        ops.bgmv_shrink(inputs, weights, whole[3:6], index)
        np.testing.assert_array_equal(whole.sum(1), [0, 0, 0, 32, 0, 32, 0, 0, 0])

    def test_nothing_is_copied(self):
        """200 MB of weights, of which one row is used: a copy would show in the process's peak."""
        code = """
import resource, numpy as np
from choral import ops
weights = np.ones((1, 1000, 50_000), np.float32)
inputs, output = np.ones((1, 50_000), np.float32), np.zeros((1, 1), np.float32)
ops.bgmv_shrink(inputs, weights[:, :1], output, np.array([0]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ops.bgmv_shrink(inputs, weights, output, np.array([0]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, float(output[0, 0]))
"""
        grown, result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(float(result), 50_000)
        self.assertLess(int(grown), 100_000, "kB")

    def test_what_does_not_fit_says_why_and_writes_nothing(self):
        inputs, weights, output, index = self.arguments()
        read_only = output.copy()
        read_only.flags.writeable = False
        for change, says in [
            ({"inputs": inputs[:, :7].copy()}, "bgmv_shrink: inputs has shape [3, 7], expected [tokens, 8]"),
            ({"inputs": inputs.astype(np.float64)}, "inputs has elements of another type"),
            ({"inputs": inputs.astype(np.int32)}, "inputs has type"),
            ({"inputs": np.ones((3, 16), np.float32)[:, ::2]}, "inputs is not contiguous"),
            ({"inputs": [[1.0] * 8] * 3}, "inputs of type list lends no memory"),
            ({"lora_a_weights": weights[0]}, "lora_a_weights has shape [4, 8]"),
            ({"lora_a_weights": weights[None, None]}, "lora_a_weights has 5 dimensions"),
            ({"output_tensor": output[0]}, "output_tensor has shape [4]"),
            ({"output_tensor": read_only}, "output_tensor of type ndarray lends no memory"),
            ({"output_tensor": np.zeros((4, 4), np.float32)}, "inputs has 3 rows"),
            ({"output_tensor": inputs[:, :4].copy().view(np.int32)}, "output_tensor has type"),
            ({"output_tensor": inputs}, "output_tensor overlaps inputs"),
            ({"lora_indices_tensor": np.array([0, 2, 0])}, "lora_indices_tensor[1] is 2, expected -1 (base) or 0 to 1"),
            ({"lora_indices_tensor": np.array([0, -2, 0])}, "lora_indices_tensor[1] is -2"),
            ({"lora_indices_tensor": np.array([0, 1])}, "lora_indices_tensor has shape [2], expected [3]"),
            ({"lora_indices_tensor": np.array([0.0, 1, 1])}, "another type"),
        ]:
            names = ["inputs", "lora_a_weights", "output_tensor", "lora_indices_tensor"]
            given = {**dict(zip(names, (inputs, weights, output, index))), **change}
            with self.assertRaises(InvalidArgumentError) as caught:
                ops.bgmv_shrink(**given)
            self.assertIn(says, str(caught.exception))
        np.testing.assert_array_equal(output, np.zeros((3, 4)))
        np.testing.assert_array_equal(inputs, np.ones((3, 8)))
        sequences = [np.array([0, 1]), np.array([1, 2]), np.array([0, 1]), 2, 2, 3]
        for place, value, says in [
            (0, np.array([0, 2]), "b_seq_start_loc[1] is 2, expected 1"),
            (1, np.array([1, 3]), "seq_len_tensor[1] is 3, expected 0 to 2"),
            (1, np.array([1, -1]), "seq_len_tensor[1] is -1"),
            (3, 3, "lora_indices_tensor has shape [2], expected [3]"),
            (4, 1, "max_seq_length is 1, expected at least seq_len_tensor[1] = 2"),
            (5, 4, "token_nums is 4, expected 3"),
        ]:
            given = [*sequences[:place], value, *sequences[place + 1 :]]
            with self.assertRaises(InvalidArgumentError) as caught:
                ops.sgmv_shrink(inputs, weights, output, *given, 1.0)
            self.assertIn(says, str(caught.exception))
        wide = np.zeros((3, 10), np.float32)
        for offset, size, says in [(7, 4, "slice_size is 4 at slice_offset 7"), (-1, 4, "slice_offset is -1"), (0, 5, "slice_size is 5, expected 4")]:
            with self.assertRaises(InvalidArgumentError) as caught:
                ops.bgmv_expand_slice(output, np.ones((2, 4, 4), np.float32), wide, index, offset, size)
            self.assertIn(says, str(caught.exception))

    def test_threads_may_be_said_and_change_no_bit(self):
        rng = np.random.default_rng(0)
        inputs, weights = rng.standard_normal((40, 100)).astype(np.float32), rng.standard_normal((7, 16, 100)).astype(np.float32)
        index = rng.integers(-1, 7, 40)
        results = []
        for threads in (1, 2, 3):
            ops.set_num_threads(threads)
            self.assertEqual(ops.get_num_threads(), threads)
            output = np.zeros((40, 16), np.float32)
            ops.bgmv_shrink(inputs, weights, output, index)
            results.append(output)
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
        with self.assertRaises(InvalidArgumentError):
            ops.set_num_threads(-1)

    def test_a_forked_process_has_threads_of_its_own(self):
        code = """
import os, sys, numpy as np
from choral import ops
def shrunk():
    output = np.zeros((3, 4), np.float32)
    ops.bgmv_shrink(np.ones((3, 8), np.float32), np.ones((2, 4, 8), np.float32), output, np.array([0, -1, 1]))
    return output.sum()
ops.set_num_threads(2)
shrunk()
for computes in (True, False):
    if os.fork() == 0:
        sys.exit(0 if not computes or shrunk() == 64 else 1)
    print(os.waitstatus_to_exitcode(os.wait()[1]), shrunk(), flush=True)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stdout, done.returncode), ("0 64.0\n0 64.0\n", 0), done.stderr)


if __name__ == "__main__":
    package.main()
