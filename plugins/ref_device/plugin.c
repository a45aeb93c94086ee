/* The plug-in's table: what the host reads of it. Start reading here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "memory.h"
#include "ops.h"

static choral_status* probe(choral_probe* theirs) {
  choral_probe ours;
  memset(&ours, 0, sizeof ours);
  ours.device_count = REF_DEVICES;
  ours.score = 10;
  ours.memory_bytes = ref_region_bytes();
  ours.host_accessible = ref_memory_is_accessible();
  snprintf(ours.device_name, sizeof ours.device_name, "reference device");
  ref_write(theirs, &ours, sizeof ours);
  return NULL;
}

/* Those after sgmv_expand_slice only if asked for; without them the host composes or runs them itself. */
static const choral_op ops[] = {
    {CHORAL_HEADER(choral_op), "matmul", 1, 0, ref_matmul},
    {CHORAL_HEADER(choral_op), "gather_rows", 1, 0, ref_gather_rows},
    {CHORAL_HEADER(choral_op), "rms_norm", 1, 0, ref_rms_norm},
    {CHORAL_HEADER(choral_op), "rms_norm_heads", 1, 0, ref_rms_norm_heads},
    {CHORAL_HEADER(choral_op), "add", 1, 0, ref_add},
    {CHORAL_HEADER(choral_op), "rotary_embedding", 1, 0, ref_rotary_embedding},
    {CHORAL_HEADER(choral_op), "silu_and_mul", 1, 0, ref_silu_and_mul},
    {CHORAL_HEADER(choral_op), "write_kv", 1, 0, ref_write_kv},
    {CHORAL_HEADER(choral_op), "paged_attention", 1, 0, ref_paged_attention},
    {CHORAL_HEADER(choral_op), "bgmv_shrink", 1, 0, ref_bgmv_shrink},
    {CHORAL_HEADER(choral_op), "bgmv_expand", 1, 0, ref_bgmv_expand},
    {CHORAL_HEADER(choral_op), "bgmv_expand_slice", 1, 0, ref_bgmv_expand},
    {CHORAL_HEADER(choral_op), "bgmv_scale", 1, 0, ref_bgmv_scale},
    {CHORAL_HEADER(choral_op), "sgmv_shrink", 1, 0, ref_sgmv_shrink},
    {CHORAL_HEADER(choral_op), "sgmv_expand", 1, 0, ref_sgmv_expand},
    {CHORAL_HEADER(choral_op), "sgmv_expand_slice", 1, 0, ref_sgmv_expand},
    {CHORAL_HEADER(choral_op), "take_rows", 1, 0, ref_take_rows},
    {CHORAL_HEADER(choral_op), "gelu_tanh_and_mul", 1, 0, ref_gelu_tanh_and_mul},
    {CHORAL_HEADER(choral_op), "swigluoai_and_mul", 1, 0, ref_swigluoai_and_mul},
    {CHORAL_HEADER(choral_op), "add_bias", 1, 0, ref_add_bias},
    {CHORAL_HEADER(choral_op), "scale", 1, 0, ref_scale},
    {CHORAL_HEADER(choral_op), "moe_combine", 1, 0, ref_moe_combine},
    {CHORAL_HEADER(choral_op), "soft_cap", 1, 0, ref_soft_cap},
    {CHORAL_HEADER(choral_op), "sample", 1, 0, ref_sample},
    {CHORAL_HEADER(choral_op), "noop", 1, 0, ref_noop},
};

static const choral_op custom_ops[] = {{CHORAL_HEADER(choral_op), "rms_norm", 1, 0, ref_rms_norm_oot}};

static const char* const fused_op_names[] = {"add_rms_norm",   "add_rms_norm_bias", "qk_norm_rope", "rope_write_kv",
                                             "grouped_matmul", "lora_shrink",       "lora_expand"};

static const choral_patch patches[] = {
    {CHORAL_HEADER(choral_patch), "rotary-on-host", "op", "rotary_embedding", "cpu", "CHORAL_REF_PATCH asks for it"}};

static int asked_for(const char* variable) {
  const char* value = getenv(variable);
  return value != NULL && strcmp(value, "1") == 0;
}

#define COUNT(table) (int64_t)(sizeof(table) / sizeof *(table))

/* The operators that are asked for; how many. */
static int64_t serve(choral_op* to) {
  const int complete = asked_for("CHORAL_REF_COMPLETE"), noop = asked_for("CHORAL_REF_NOOP");
  int64_t count = 0;
  int all = 1;
  for (int64_t i = 0; i < COUNT(ops); ++i) {
    if (strcmp(ops[i].name, "take_rows") == 0) all = complete;
    if (i == COUNT(ops) - 1 ? noop : all) to[count++] = ops[i];
  }
  return count;
}

const choral_plugin* ref_describe(const choral_host* host) {
  static choral_op served[COUNT(ops)];
  static choral_plugin plugin; /* filled again with the same values if asked again */
  if (host->header.abi_major != CHORAL_ABI_MAJOR || host->header.struct_size < sizeof(choral_host)) return NULL;
  ref_host = host;
  const choral_plugin filled = {
      .header = CHORAL_HEADER(choral_plugin),
      .name = "ref_device",
      .version = "1.0",
      .description = "a device in software with a memory of its own, for tests",
      .probe = probe,
      .check_and_update_config = ref_check_and_update_config,
      .open_device = ref_open,
      .close_device = ref_close,
      .memory = &ref_memory_api,
      .weights = &ref_weight_api,
      .ops = served,
      .op_count = serve(served),
      .supports_op = ref_supports_op,
      .custom_ops = custom_ops,
      .custom_op_count = COUNT(custom_ops),
      .fused_op_names = fused_op_names,
      .fused_op_count = COUNT(fused_op_names),
      .load_fused_ops = ref_load_fused_ops,
      .workers = ref_workers,
      .worker_count = COUNT(ref_workers),
      .patches = patches,
      .patch_count = asked_for("CHORAL_REF_PATCH") ? COUNT(patches) : 0,
  };
  plugin = filled;
  return &plugin;
}
