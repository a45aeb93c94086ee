"""What torch gives on this device at the shapes of an 8B model: its linear layers and attention. For tables beside `choral bench`."""

import statistics

import torch
import torch.nn.functional as F

HIDDEN, FFN, HEADS, KV_HEADS, HEAD = 4096, 14336, 32, 8, 128
LAYERS = {"qkv": (HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD), "o": (HIDDEN, HIDDEN), "gate_up": (HIDDEN, 2 * FFN), "down": (FFN, HIDDEN)}


def microseconds(run, copies):
    """Median of 20 of `run(i)`, each on other operands, so that none lie in L2."""
    for i in range(3):
        run(i % copies)
    torch.cuda.synchronize()
    times = []
    for i in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run(i % copies)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def main():
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print("linear layers of a layer, bf16, us (TFLOP/s):")
    weights = {name: [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(4)] for name, (k, n) in LAYERS.items()}
    for rows in (1, 8, 64, 128, 512, 2048, 4096):
        line, all_us, all_flop = [], 0.0, 0.0
        for name, (k, n) in LAYERS.items():
            x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
            us = microseconds(lambda i: F.linear(x, weights[name][i]), 4)
            line.append(f"{name} {us:.1f} ({2e-6 * rows * k * n / us:.0f})")
            all_us += us
            all_flop += 2 * rows * k * n
        print(f"  {rows:5d} rows: {', '.join(line)}; all {all_us:.1f} us, {1e-6 * all_flop / all_us:.0f} TFLOP/s")
    print("attention of a layer, causal, us (TFLOP/s):")
    for rows in (512, 2048, 4096):
        q = torch.randn(1, HEADS, rows, HEAD, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(1, KV_HEADS, rows, HEAD, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        us = microseconds(lambda i: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), 1)
        print(f"  prompt of {rows}: {us:.1f} ({2e-6 * rows * rows * HEADS * HEAD / us:.0f})")
    for batch, context in ((1, 4096), (64, 1024)):
        q = torch.randn(batch, HEADS, 1, HEAD, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(batch, KV_HEADS, context, HEAD, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        us = microseconds(lambda i: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), 1)
        print(f"  decode of {batch} at {context}: {us:.1f} ({4e-3 * batch * context * KV_HEADS * HEAD / us:.0f} GB/s)")


main()
