"""The operators of multi-adapter LoRA, for engines that keep weights and batches themselves: vLLM's and vllm-ascend's names, order of
arguments and semantics, on the CPU, on NumPy arrays and torch tensors, which are read where they lie and written in place.

inputs [tokens, in]; a stack of A [n, r, in], of B [n, out, r]; either with a 1 after n. Index -1 is the base: its row is not touched.

- shrink:       output[:, :c] = scaling · inputs·A[index]ᵀ, c the smaller of output's columns and r
- expand:       output[:, :c] (+)= inputs·B[index]ᵀ, c the smaller of output's columns and out
- expand_slice: output[:, slice_offset : slice_offset + slice_size] (+)= inputs·B[index]ᵀ, slice_size = out

`sgmv_*` take an index a sequence, `bgmv_*` one a row. float32, float16 and bfloat16 may be mixed: inputs and weights are rounded to
output's type first, sums are float32, each result is rounded once. A row's result is the same bits whatever stands beside it.
"""

from __future__ import annotations

from typing import Any

from choral import _choral

__all__ = [
    "bgmv_expand",
    "bgmv_expand_slice",
    "bgmv_shrink",
    "get_num_threads",
    "set_num_threads",
    "sgmv_expand",
    "sgmv_expand_slice",
    "sgmv_shrink",
]

Array = Any  # with DLPack, in the host's memory, contiguous

_made: _choral.LoRAOps | None = None


def _ops() -> _choral.LoRAOps:
    global _made
    if _made is None:
        _made = _choral.LoRAOps()
    return _made


def get_num_threads() -> int:
    """That compute together; one for each physical core unless set_num_threads() said otherwise."""
    return _ops().threads


def set_num_threads(threads: int) -> None:
    global _made
    _made = _choral.LoRAOps(threads)


def bgmv_shrink(inputs: Array, lora_a_weights: Array, output_tensor: Array, lora_indices_tensor: Array, scaling: float = 1.0) -> None:
    """`lora_indices_tensor` [tokens], int32 or int64."""
    _ops().bgmv_shrink(inputs, lora_a_weights, output_tensor, lora_indices_tensor, scaling)


def bgmv_expand(inputs: Array, lora_b_weights: Array, output_tensor: Array, lora_indices_tensor: Array, add_inputs: bool = True) -> None:
    """With `add_inputs` the result is added to what `output_tensor` holds."""
    _ops().bgmv_expand(inputs, lora_b_weights, output_tensor, lora_indices_tensor, add_inputs)


def bgmv_expand_slice(
    inputs: Array,
    lora_b_weights: Array,
    output_tensor: Array,
    lora_indices_tensor: Array,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = True,
) -> None:
    """Of one projection of several that lie in one output: q, k and v, or gate and up."""
    _ops().bgmv_expand_slice(inputs, lora_b_weights, output_tensor, lora_indices_tensor, slice_offset, slice_size, add_inputs)


def sgmv_shrink(
    inputs: Array,
    lora_a_weights: Array,
    output_tensor: Array,
    b_seq_start_loc: Array,
    seq_len_tensor: Array,
    lora_indices_tensor: Array,
    batches: int,
    max_seq_length: int,
    token_nums: int,
    scaling: float,
) -> None:
    """Sequence i has seq_len_tensor[i] rows from b_seq_start_loc[i] on, the sum of the lengths before, and index
    lora_indices_tensor[i]. `token_nums`: rows of `inputs`."""
    _ops().sgmv_shrink(
        inputs, lora_a_weights, output_tensor, b_seq_start_loc, seq_len_tensor, lora_indices_tensor, batches, max_seq_length, token_nums, scaling
    )


def sgmv_expand(
    inputs: Array,
    lora_b_weights: Array,
    output_tensor: Array,
    b_seq_start_loc: Array,
    seq_len_tensor: Array,
    lora_indices_tensor: Array,
    batches: int,
    max_seq_length: int,
    token_nums: int,
    add_inputs: bool = False,
) -> None:
    """Sequences as of sgmv_shrink()."""
    _ops().sgmv_expand(
        inputs, lora_b_weights, output_tensor, b_seq_start_loc, seq_len_tensor, lora_indices_tensor, batches, max_seq_length, token_nums, add_inputs
    )


def sgmv_expand_slice(
    inputs: Array,
    lora_b_weights: Array,
    output_tensor: Array,
    b_seq_start_loc: Array,
    seq_len_tensor: Array,
    lora_indices_tensor: Array,
    batches: int,
    max_seq_length: int,
    token_nums: int,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = False,
) -> None:
    """Sequences as of sgmv_shrink(), columns as of bgmv_expand_slice()."""
    _ops().sgmv_expand_slice(
        inputs,
        lora_b_weights,
        output_tensor,
        b_seq_start_loc,
        seq_len_tensor,
        lora_indices_tensor,
        batches,
        max_seq_length,
        token_nums,
        slice_offset,
        slice_size,
        add_inputs,
    )
