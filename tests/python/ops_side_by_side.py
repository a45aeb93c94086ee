#!/usr/bin/env python3
"""choral.ops on torch tensors beside the plain definitions in torch (repeat_interleave and einsum), on random shapes, in all types.

usage: ops_side_by_side.py [--time [THREADS]]
Needs torch (run with 2.15). Without it, here and in the Python that CHORAL_PEFT_PYTHON names, it exits with 77: skipped.
--time: what both take, on shapes of a layer.
"""

import pathlib
import random
import statistics
import sys
import time

try:
    import torch
except ModuleNotFoundError as missing:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import other_python
    other_python.go_on_elsewhere(missing, "; ./dev peft installs it")

from choral import ops  # noqa: E402
from choral.errors import InvalidArgumentError  # noqa: E402

TYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def products(inputs, weights, index, dtype):
    """As vLLM's plain version has it: the weights of each row gathered, then einsum."""
    weights = weights.squeeze(1) if weights.dim() == 4 else weights
    return torch.einsum("bi,boi->bo", inputs.to(dtype).float(), weights[index].to(dtype).float())


def expected(inputs, weights, output, index, *, scaling=1.0, begin=0, columns=None, add=False):
    columns = min(output.shape[1] - begin, weights.shape[-2]) if columns is None else columns
    delta = scaling * products(inputs, weights, index.clamp(min=0), output.dtype)[:, :columns]
    out = output.clone()
    rows = index >= 0  # -1 is the base, which the plain version does not know
    old = out[rows, begin : begin + columns].float() if add else 0
    out[rows, begin : begin + columns] = (old + delta[rows]).to(out.dtype)
    return out


class Batch:
    def __init__(self, seed):
        self.source = random.Random(seed)
        torch.manual_seed(seed)
        self.stack, self.rank = self.source.randint(1, 6), self.source.choice([1, 4, 8, 16, 33])
        lengths = [self.source.choice([0, 1, 1, 3, 17]) for _ in range(self.source.randint(1, 7))] + [2]
        integers = self.source.choice([torch.int32, torch.int64])
        of_sequence = torch.tensor([self.source.randint(-1, self.stack - 1) for _ in lengths], dtype=integers)
        length = torch.tensor(lengths, dtype=integers)
        self.tokens = sum(lengths)
        self.index = of_sequence.repeat_interleave(length)
        self.sequences = ((length.cumsum(0) - length).to(integers), length, of_sequence, len(lengths), max(lengths), self.tokens)
        self.dtypes = [self.source.choice(TYPES) for _ in range(3)]

    def tensor(self, *shape, of):
        return (torch.randn(*shape) / 4).to(self.dtypes[of])


def same(name, seed, got, by_sequence, wanted):
    tolerance = TOLERANCES[got.dtype]
    if not torch.allclose(got.float(), wanted.float(), rtol=tolerance, atol=tolerance) or not torch.equal(got, by_sequence):
        print(f"{name}, seed {seed}: furthest {(got.float() - wanted.float()).abs().max():.2e} of {tolerance}")
        return False
    return True


def definitions():
    good = True
    for seed in range(120):
        batch = Batch(seed)
        width, out = batch.source.randint(1, 90), batch.source.randint(1, 90)
        inputs, a = batch.tensor(batch.tokens, width, of=0), batch.tensor(batch.stack, 1, batch.rank, width, of=1)
        output = batch.tensor(batch.tokens, batch.rank, of=2)
        one, other, where = output.clone(), output.clone(), output.data_ptr()
        ops.bgmv_shrink(inputs, a, one, batch.index, 0.5)
        ops.sgmv_shrink(inputs, a, other, *batch.sequences, 0.5)
        good &= same("shrink", seed, one, other, expected(inputs, a, output, batch.index, scaling=0.5)) and output.data_ptr() == where

        middle, b, add = batch.tensor(batch.tokens, batch.rank, of=0), batch.tensor(batch.stack, out, batch.rank, of=1), seed % 2 == 0
        output = batch.tensor(batch.tokens, out + 9, of=2)
        one, other = output.clone(), output.clone()
        ops.bgmv_expand(middle, b, one, batch.index, add_inputs=add)
        ops.sgmv_expand(middle, b, other, *batch.sequences, add_inputs=add)
        good &= same("expand", seed, one, other, expected(middle, b, output, batch.index, add=add))
        one, other = output.clone(), output.clone()
        ops.bgmv_expand_slice(middle, b, one, batch.index, 7, out, add_inputs=add)
        ops.sgmv_expand_slice(middle, b, other, *batch.sequences, 7, out, add_inputs=add)
        good &= same("expand_slice", seed, one, other, expected(middle, b, output, batch.index, begin=7, columns=out, add=add))
    print(f"shrink, expand, expand_slice by row and by sequence: {'as torch has them' if good else 'DIFFERENT'}")
    return good


def memory():
    """A slice of a larger tensor is written where it lies, and what would need a copy is refused."""
    whole, index = torch.zeros(9, 4), torch.tensor([0, -1, 1])
    ops.bgmv_shrink(torch.ones(3, 8), torch.ones(2, 4, 8), whole[3:6], index)
    good = whole.sum(1).tolist() == [0, 0, 0, 32, 0, 32, 0, 0, 0]
    for inputs, says in [
        (torch.ones(8, 3).T, "contiguous"), (torch.ones(3, 8, device="meta"), "inputs"),
        (torch.ones(3, 8, dtype=torch.float64), "another type"),
    ]:
        try:
            ops.bgmv_shrink(inputs, torch.ones(2, 4, 8), torch.zeros(3, 4), index)
            good = False
        except InvalidArgumentError as error:
            good &= says in str(error)
    print(f"in place, and refused where it would be a copy: {good}")
    return good


def median(call, times):
    took = []
    for _ in range(times + 2):
        begin = time.perf_counter()
        call()
        took.append(time.perf_counter() - begin)
    return statistics.median(took[2:]) * 1e3


def timing(threads):
    """One projection of 2048 × 2048 with adapters of rank 16, as decoding (a token a sequence) and as prompts (64 tokens)."""
    ops.set_num_threads(threads)
    torch.set_num_threads(ops.get_num_threads())
    print(f"{ops.get_num_threads()} threads, torch {torch.__version__}; milliseconds of shrink and expand, medians, by turns")
    print("rows adapters type      choral  torch: gathered  torch: by adapter")
    hidden, rank = 2048, 16
    for sequences, length, stack in [(32, 1, 4), (32, 1, 32), (8, 64, 8)]:
        for dtype in (torch.float32, torch.bfloat16):
            rows = sequences * length
            index = (torch.arange(sequences) % stack).repeat_interleave(length)
            x, a, b = torch.randn(rows, hidden).to(dtype), torch.randn(stack, rank, hidden).to(dtype), torch.randn(stack, hidden, rank).to(dtype)
            middle, y = torch.zeros(rows, rank, dtype=dtype), torch.zeros(rows, hidden, dtype=dtype)

            def ours():
                ops.bgmv_shrink(x, a, middle, index)
                ops.bgmv_expand(middle, b, y, index)

            def gathered():
                y.add_(torch.einsum("bi,boi->bo", torch.einsum("bi,bri->br", x, a[index]), b[index]))

            def by_adapter():
                for adapter in range(stack):
                    chosen = index == adapter
                    y[chosen] += (x[chosen] @ a[adapter].T) @ b[adapter].T

            took = [median(call, 20 if rows < 100 else 5) for call in (ours, gathered, by_adapter)]
            name = str(dtype).removeprefix("torch.")
            print(f"{rows:4} {stack:8} {name:9} {took[0]:6.2f} {took[1]:16.2f} {took[2]:18.2f}")


def main():
    if "--time" in sys.argv:
        timing(int((sys.argv[sys.argv.index("--time") + 1 :] or ["0"])[0]))
        return 0
    return 0 if all([definitions(), memory()]) else 1


if __name__ == "__main__":
    sys.exit(main())
