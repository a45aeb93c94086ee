/* The operators, each as the table has them: arguments are checked and mapped, then the work is queued. */
#pragma once

#include "choral/plugin.h"

choral_status* ref_matmul(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_grouped_matmul(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_gather_rows(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_rms_norm(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_rms_norm_heads(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_rms_norm_oot(choral_device* device, choral_stream* stream, const void* args); /* the CustomOp's form */
choral_status* ref_add(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_add_bias(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_take_rows(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_gelu_tanh_and_mul(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_silu_and_mul(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_rotary_embedding(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_write_kv(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_paged_attention(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_swigluoai_and_mul(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_scale(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_moe_combine(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_soft_cap(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_sample(choral_device* device, choral_stream* stream, const void* args);
/* An expand of the whole row is a slice that begins at 0: one function serves both names. */
choral_status* ref_bgmv_shrink(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_bgmv_expand(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_bgmv_scale(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_sgmv_shrink(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_sgmv_expand(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_lora_shrink(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_lora_expand(choral_device* device, choral_stream* stream, const void* args);
choral_status* ref_noop(choral_device* device, choral_stream* stream, const void* args); /* measures the border */
