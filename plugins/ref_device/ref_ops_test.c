/* The operators of the reference device against loops in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "row_math.h"
#include "test_device.h"

#define FLOATS(count) ((int64_t)(count) * (int64_t)sizeof(float))

static void release(const void* memory) { plugin->memory->release(device, (void*)(uintptr_t)memory); }

static choral_packed* pack(const choral_weight_part* parts, int64_t part_count, int64_t cols, int32_t stored, int32_t dtype,
                           choral_packed_facts* facts) {
  const choral_weight weight = {.header = CHORAL_HEADER(choral_weight),
                                .stored_dtype = stored,
                                .dtype = dtype,
                                .cols = cols,
                                .parts = parts,
                                .part_count = part_count};
  choral_packed* packed = NULL;
  OK(plugin->weights->prepack(device, stream, &weight, &packed, facts));
  return packed;
}

void test_weights(void) {
  enum { kRows = 21, kCols = 64 };
  float w[kRows][kCols], row[kCols];
  fill(w[0], kRows * kCols);
  int32_t order[kRows];
  for (int i = 0; i < kRows; ++i) order[i] = kRows - 1 - i;
  const choral_weight_part parts[2] = {{w, 5, sizeof w[0], NULL}, {w, kRows, sizeof w[0], order}};
  const int32_t dtypes[3] = {CHORAL_F32, CHORAL_F16, CHORAL_BF16};
  for (int d = 0; d < 3; ++d) { /* rounded to dtype, parts stacked, rows in order; 53 columns leave half a tile */
    choral_packed_facts facts = {.header = CHORAL_HEADER(choral_packed_facts)};
    choral_packed* packed = pack(parts, 2, 53, CHORAL_F32, dtypes[d], &facts);
    CHECK(facts.size_bytes == 2 * 4 * 256 * ref_float_bytes(dtypes[d]) && strstr(facts.format, "16x16 tiles") != NULL);
    for (int i = 0; i < 5 + kRows; ++i) {
      float wanted[53];
      unsigned char narrow[sizeof wanted];
      const float* from = i < 5 ? w[i] : w[kRows - 1 - (i - 5)];
      ref_narrow(dtypes[d], from, 53, narrow);
      ref_widen(dtypes[d], narrow, 53, wanted);
      OK(plugin->weights->read_row(device, packed, i, row));
      CHECK(memcmp(row, wanted, sizeof wanted) == 0);
    }
    REFUSED(plugin->weights->read_row(device, packed, 5 + kRows, row), "row 26");
    plugin->weights->release(device, packed);
  }

  unsigned char blocks[2][68];
  for (int i = 0; i < 2 * 68; ++i) blocks[i / 68][i % 68] = (unsigned char)(i * 37);
  for (int i = 0; i < 4; ++i) memcpy(blocks[i / 2] + i % 2 * 34, (const uint16_t[]){(uint16_t)(0x2c00 + 99 * i)}, 2);
  const choral_weight_part quantised = {blocks, 2, sizeof blocks[0], NULL};
  for (int as = 0; as < 2; ++as) {
    choral_packed* packed = pack(&quantised, 1, 64, CHORAL_Q8_0, as == 0 ? CHORAL_Q8_0 : CHORAL_BF16, NULL);
    OK(plugin->weights->read_row(device, packed, 1, row));
    for (int i = 0; i < 64; ++i) {
      float wanted =
          ref_from_f16((uint16_t)(0x2c00 + 99 * (2 + i / 32))) * (float)(signed char)blocks[1][i / 32 * 34 + 2 + i % 32];
      if (as == 1) wanted = ref_from_bf16(ref_to_bf16(wanted));
      CHECK(row[i] == wanted);
    }
    plugin->weights->release(device, packed);
  }

  choral_packed* none = NULL;
  choral_weight wrong = {.header = CHORAL_HEADER(choral_weight),
                         .stored_dtype = CHORAL_Q4_K,
                         .dtype = CHORAL_Q4_K,
                         .cols = 64,
                         .parts = parts,
                         .part_count = 1};
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "q8_0");
  wrong.stored_dtype = CHORAL_F32;
  wrong.cols = 65;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "shorter");
  wrong.cols = 64;
  wrong.part_count = 2;
  order[3] = -1;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "order");
  CHECK(none == NULL);
}

void test_matmul(void) {
  enum { kRows = 37, kCols = 53, kMost = 19, kStride = 60 };
  float w[kRows][kCols], x[kMost][kStride], y[kMost][kRows], bias[kRows], together[kMost][kRows], alone[kRows];
  fill(w[0], kRows * kCols);
  fill(x[0], kMost * kStride);
  fill(y[0], kMost * kRows);
  fill(bias, kRows);
  for (int i = 0; i < kMost; ++i) x[i][kCols] = NAN; /* beyond the row: not to be read */
  const choral_weight_part part = {w, kRows, sizeof w[0], NULL};
  choral_packed* packed = pack(&part, 1, kCols, CHORAL_F32, CHORAL_BF16, NULL);
  choral_matmul_args args = {.header = CHORAL_HEADER(choral_matmul_args),
                             .weight = packed,
                             .x = matrix_to_device(x[0], kMost, kCols, kStride),
                             .y = matrix_to_device(y[0], kMost, kRows, kRows),
                             .bias = vector_to_device(bias, kRows),
                             .accumulate = 1};
  OK(run("matmul", &args));
  from_device(together, args.y.data, sizeof together);
  for (int i = 0; i < kMost; ++i) {
    for (int n = 0; n < kRows; ++n) {
      double sum = (double)bias[n] + y[i][n];
      for (int k = 0; k < kCols; ++k) sum += (double)x[i][k] * ref_from_bf16(ref_to_bf16(w[n][k]));
      CHECK(near(together[i][n], sum, 1e-5));
    }
  }
  /* A row alone has the bits it has among others. */
  for (int i = 0; i < kMost; ++i) {
    choral_matmul_args one = args;
    one.x.data = (float*)one.x.data + i * kStride;
    one.x.rows = one.y.rows = 1;
    const choral_copy copy = {CHORAL_HEADER(choral_copy), CHORAL_HOST_TO_DEVICE, 0, one.y.data, 0, y[i], 0, FLOATS(kRows), 1};
    OK(plugin->memory->copy(device, stream, &copy));
    OK(run("matmul", &one));
    from_device(alone, one.y.data, sizeof alone);
    CHECK(memcmp(alone, together[i], sizeof alone) == 0);
  }
  choral_matmul_args none = args;
  none.x.rows = none.y.rows = 0;
  OK(run("matmul", &none));
  none.y.rows = 1;
  REFUSED(run("matmul", &none), "do not fit");

  int32_t ids[3] = {36, 0, 15};
  choral_gather_rows_args gather = {CHORAL_HEADER(choral_gather_rows_args), packed, to_device(ids, sizeof ids), args.x};
  gather.out.rows = 3;
  OK(run("gather_rows", &gather));
  from_device(x, args.x.data, sizeof x);
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < kCols; ++k) CHECK(x[i][k] == ref_from_bf16(ref_to_bf16(w[ids[i]][k])));
  }
  CHECK(isnan(x[0][kCols])); /* between rows nothing is written */
  ids[1] = kRows;
  const int32_t* wrong = to_device(ids, sizeof ids);
  release(gather.ids);
  gather.ids = wrong;
  OK(run("gather_rows", &gather));
  REFUSED(plugin->memory->stream_synchronize(device, stream), "id 37");
  release(wrong);
  release(args.x.data);
  release(args.y.data);
  release(args.bias.data);
  plugin->weights->release(device, packed);
}

void test_rows(void) {
  enum { kRows = 3, kCols = 48, kHead = 16 };
  float x[kRows * kCols], weight[kCols], y[kRows * kCols];
  fill(x, kRows * kCols);
  fill(weight, kCols);
  choral_rms_norm_args norm = {
      .header = CHORAL_HEADER(choral_rms_norm_args), .eps = 1e-5f, .weight = vector_to_device(weight, kCols)};
  norm.x = matrix_to_device(x, kRows, kCols, kCols);
  norm.y = matrix_to_device(x, kRows, kCols, kCols);
  for (int heads = 0; heads < 3; ++heads) { /* rows, heads, and the CustomOp's form */
    const int size = heads == 1 ? kHead : kCols;
    norm.weight.size = size;
    if (heads < 2) {
      OK(run(heads == 0 ? "rms_norm" : "rms_norm_heads", &norm));
    } else {
      CHECK(plugin->custom_op_count == 1 && strcmp(plugin->custom_ops[0].name, "rms_norm") == 0);
      OK(plugin->custom_ops[0].run(device, stream, &norm));
    }
    from_device(y, norm.y.data, sizeof y);
    for (int i = 0; i < kRows * kCols; ++i) {
      double sum = 0;
      for (int j = 0; j < size; ++j) sum += pow(x[i / size * size + j], 2);
      CHECK(near(y[i], x[i] / sqrt(sum / size + 1e-5) * weight[i % size], 1e-6));
    }
  }
  norm.weight.size = kHead;
  REFUSED(run("rms_norm", &norm), "weight");

  choral_unary_args silu = {CHORAL_HEADER(choral_unary_args), norm.x, norm.y};
  silu.y.cols = kCols / 2;
  OK(run("silu_and_mul", &silu));
  from_device(y, silu.y.data, sizeof y);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols / 2; ++j) {
      const double gate = x[i * kCols + j], up = x[i * kCols + j + kCols / 2];
      CHECK(near(y[i * kCols + j], gate / (1 + exp(-gate)) * up, 1e-6));
    }
  }
  REFUSED(run("take_rows", &silu), "take_rows"); /* left to the host, as is gelu_tanh_and_mul */
  release(norm.weight.data);
  release(norm.x.data);
  release(norm.y.data);
}

static choral_rotary_table make_table(int64_t head_dim, int64_t rotary_dim, int64_t positions, int32_t interleaved,
                                      float* values) {
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
      values[p * rotary_dim + i] = (float)cos((double)p / (double)(i + 1));
      values[p * rotary_dim + rotary_dim / 2 + i] = (float)sin((double)p / (double)(i + 1));
    }
  }
  const choral_rotary_table table = {
      to_device(values, FLOATS(positions * rotary_dim)), head_dim, rotary_dim, positions, interleaved, 0};
  return table;
}

void test_rotary(void) {
  enum { kRows = 4, kHead = 10, kRotary = 6, kPositions = 9 };
  float q[kRows][2 * kHead], k[kRows][kHead], table[kPositions * kRotary], out[kRows][2 * kHead];
  fill(q[0], kRows * 2 * kHead);
  fill(k[0], kRows * kHead);
  int32_t positions[kRows] = {0, 8, 3, 3};
  for (int interleaved = 0; interleaved < 2; ++interleaved) {
    choral_rotary_args args = {.header = CHORAL_HEADER(choral_rotary_args)};
    args.table = make_table(kHead, kRotary, kPositions, interleaved, table);
    args.positions = to_device(positions, sizeof positions);
    args.q = matrix_to_device(q[0], kRows, 2 * kHead, 2 * kHead);
    args.k = matrix_to_device(k[0], kRows, kHead, kHead);
    OK(run("rotary_embedding", &args));
    from_device(out, args.q.data, sizeof out);
    for (int i = 0; i < kRows; ++i) {
      for (int h = 0; h < 2; ++h) {
        const float* before = q[i] + h * kHead;
        const float* after = out[i] + h * kHead;
        for (int j = 0; j < kRotary / 2; ++j) {
          const int a = interleaved ? 2 * j : j, b = interleaved ? 2 * j + 1 : j + kRotary / 2;
          const double angle = (double)positions[i] / (j + 1);
          CHECK(near(after[a], before[a] * cos(angle) - before[b] * sin(angle), 1e-6));
          CHECK(near(after[b], before[b] * cos(angle) + before[a] * sin(angle), 1e-6));
        }
        CHECK(memcmp(after + kRotary, before + kRotary, sizeof(float) * (kHead - kRotary)) == 0);
      }
    }
    positions[2] = kPositions;
    const int32_t* beyond = to_device(positions, sizeof positions);
    positions[2] = 3;
    release(args.positions);
    args.positions = beyond;
    OK(run("rotary_embedding", &args));
    REFUSED(plugin->memory->stream_synchronize(device, stream), "position 9");
    release(args.positions);
    release(args.q.data);
    release(args.k.data);
    release(args.table.cos_sin);
  }
}

enum { kTokens = 70, kBlocks = 5, kHeads = 4, kKvHeads = 2, kDim = 24, kValueDim = 20 };

static choral_kv_cache make_cache(int32_t dtype) {
  choral_kv_cache cache = {NULL, NULL, dtype, 32, kBlocks, kKvHeads, kDim, kValueDim};
  const uint64_t element = (uint64_t)ref_float_bytes(dtype);
  OK(plugin->memory->allocate(device, kBlocks * 32 * kKvHeads * kDim * element, &cache.keys));
  OK(plugin->memory->allocate(device, kBlocks * 32 * kKvHeads * 32 * element, &cache.values));
  return cache;
}

static float rounded(int32_t dtype, float value) {
  return dtype == CHORAL_F32 ? value : dtype == CHORAL_F16 ? ref_from_f16(ref_to_f16(value)) : ref_from_bf16(ref_to_bf16(value));
}

/* One sequence of 70 tokens in blocks 4, 1, 3: its last 3 rows, and again 2 of them as if nothing came after. */
void test_attention(void) {
  static float k[kTokens][kKvHeads * kDim], v[kTokens][kKvHeads * kValueDim], q[5][kHeads * kDim], out[5][kHeads * kValueDim];
  const int32_t blocks[7] = {-7, 4, 1, 3, 4, 1, 3};
  const choral_sequence sequences[2] = {{0, 3, kTokens - 3, 1}, {3, 2, kTokens - 3, 4}};
  const int32_t dtypes[3] = {CHORAL_F32, CHORAL_F16, CHORAL_BF16};
  fill(k[0], kTokens * kKvHeads * kDim);
  fill(v[0], kTokens * kKvHeads * kValueDim);
  fill(q[0], 3 * kHeads * kDim);
  memcpy(q[3], q[0], 2 * sizeof q[0]);
  int64_t slots[kTokens];
  for (int t = 0; t < kTokens; ++t) slots[t] = blocks[1 + t / 32] * 32 + t % 32;
  for (int kind = 0; kind < 12; ++kind) {
    const int32_t dtype = dtypes[kind / 4];
    choral_attention_args args = {
        .header = CHORAL_HEADER(choral_attention_args), .heads = kHeads, .scale = 0.7f, .cache = make_cache(dtype)};
    args.softcap = kind % 4 == 1 ? 1.5f : 0.0f;
    args.sliding_window = kind % 4 == 2 ? 37 : 0;
    if (kind % 4 == 3) args.sinks = vector_to_device(q[0], kHeads);
    choral_write_kv_args write = {.header = CHORAL_HEADER(choral_write_kv_args), .cache = args.cache};
    write.k = matrix_to_device(k[0], kTokens, kKvHeads * kDim, kKvHeads * kDim);
    write.v = matrix_to_device(v[0], kTokens, kKvHeads * kValueDim, kKvHeads * kValueDim);
    write.slots = to_device(slots, sizeof slots);
    OK(run("write_kv", &write));
    args.q = matrix_to_device(q[0], 5, kHeads * kDim, kHeads * kDim);
    args.out = matrix_to_device(out[0], 5, kHeads * kValueDim, kHeads * kValueDim);
    args.sequences = to_device(sequences, sizeof sequences);
    args.sequence_count = 2;
    args.block_ids = to_device(blocks, sizeof blocks);
    args.block_id_count = 7;
    OK(run("paged_attention", &args));
    from_device(out, args.out.data, sizeof out);
    CHECK(memcmp(out[3], out[0], 2 * sizeof out[0]) == 0);
    for (int row = 0; row < 3; ++row) {
      for (int h = 0; h < kHeads; ++h) {
        const int last = kTokens - 3 + row, first = args.sliding_window > 0 ? last - 36 : 0, kv = h / 2;
        double weights[kTokens], sum = kind % 4 == 3 ? exp(q[0][h]) : 0;
        for (int t = first; t <= last; ++t) {
          double score = 0;
          for (int i = 0; i < kDim; ++i) score += (double)q[row][h * kDim + i] * rounded(dtype, k[t][kv * kDim + i]);
          score *= 0.7f;
          if (args.softcap > 0) score = 1.5 * tanh(score / 1.5);
          sum += weights[t] = exp(score);
        }
        for (int i = 0; i < kValueDim; ++i) {
          double wanted = 0;
          for (int t = first; t <= last; ++t) wanted += weights[t] / sum * rounded(dtype, v[t][kv * kValueDim + i]);
          CHECK(near(out[row][h * kValueDim + i], wanted, 1e-5));
        }
      }
    }
    args.block_id_count = 6;
    OK(run("paged_attention", &args));
    REFUSED(plugin->memory->stream_synchronize(device, stream), "sequence 1");
    args.cache.blocks = 6;
    REFUSED(run("paged_attention", &args), "cache");
    const void* all[] = {write.k.data,   write.v.data,   write.slots,     args.q.data,       args.out.data,
                         args.sequences, args.block_ids, args.cache.keys, args.cache.values, args.sinks.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) release(all[i]);
  }
}

static choral_op_fn named(const choral_op* ops, int64_t count, const char* name) {
  const choral_op* op = find_op(ops, count, name);
  CHECK(op != NULL);
  return op->run;
}

/* Fused operators give the bits of what they replace. */
void test_fused(void) {
  const choral_op* ops = NULL;
  int64_t count = 0;
  OK(plugin->load_fused_ops(device, &ops, &count));
  CHECK(count == plugin->fused_op_count);
  for (int64_t i = 0; i < count; ++i) named(ops, count, plugin->fused_op_names[i]);

  enum { kRows = 3, kWidth = kHeads * kDim, kKeyWidth = kKvHeads * kDim, kValueWidth = kKvHeads * kValueDim };
  float x[kRows][kWidth], k[kRows][kKeyWidth], v[kRows][kValueWidth], weight[kWidth], table[10 * kDim];
  float one[kRows][kWidth], two[kRows][kWidth];
  fill(x[0], kRows * kWidth);
  fill(k[0], kRows * kKeyWidth);
  fill(v[0], kRows * kValueWidth);
  fill(weight, kWidth);

  choral_rms_norm_args norm = {.header = CHORAL_HEADER(choral_rms_norm_args), .eps = 1e-6f};
  norm.weight = vector_to_device(weight, kWidth);
  norm.x = matrix_to_device(x[0], kRows, kWidth, kWidth);
  norm.y = matrix_to_device(x[0], kRows, kWidth, kWidth);
  norm.residual = matrix_to_device(x[0], kRows, kWidth, kWidth);
  choral_unary_args add = {CHORAL_HEADER(choral_unary_args), norm.x, matrix_to_device(x[0], kRows, kWidth, kWidth)};
  OK(named(ops, count, "add_rms_norm")(device, stream, &norm));
  from_device(one, norm.y.data, sizeof one);
  OK(run("add", &add));
  choral_rms_norm_args plain = norm;
  plain.x = add.y;
  OK(run("rms_norm", &plain));
  from_device(two, plain.y.data, sizeof two);
  CHECK(memcmp(one, two, sizeof one) == 0);
  from_device(one, norm.residual.data, sizeof one);
  from_device(two, add.y.data, sizeof two);
  CHECK(memcmp(one, two, sizeof one) == 0 && one[1][1] == x[1][1] + x[1][1]);
  norm.bias = vector_to_device(weight, kWidth);
  norm.residual = matrix_to_device(x[0], kRows, kWidth, kWidth);
  from_device(two, plain.y.data, sizeof two);
  OK(named(ops, count, "add_rms_norm_bias")(device, stream, &norm));
  from_device(one, norm.y.data, sizeof one);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kWidth; ++j) two[i][j] += weight[j];
  }
  CHECK(memcmp(one, two, sizeof one) == 0);

  const int32_t positions[kRows] = {9, 0, 4};
  const int64_t slots[kRows] = {33, -1, 159};
  for (int normed = 0; normed < 2; ++normed) {
    choral_rotary_args args[2];
    for (int way = 0; way < 2; ++way) {
      choral_rotary_args a = {.header = CHORAL_HEADER(choral_rotary_args), .eps = 1e-6f};
      a.table = make_table(kDim, kDim, 10, 0, table);
      a.positions = to_device(positions, sizeof positions);
      a.q = matrix_to_device(x[0], kRows, kWidth, kWidth);
      a.k = matrix_to_device(k[0], kRows, kKeyWidth, kKeyWidth);
      a.v = matrix_to_device(v[0], kRows, kValueWidth, kValueWidth);
      a.q_weight = a.k_weight = norm.weight;
      a.k_weight.data = (const float*)norm.weight.data + kDim;
      a.q_weight.size = a.k_weight.size = kDim;
      a.slots = to_device(slots, sizeof slots);
      a.cache = make_cache(CHORAL_F16);
      args[way] = a;
    }
    OK(named(ops, count, normed ? "qk_norm_rope" : "rope_write_kv")(device, stream, &args[0]));
    if (normed) {
      choral_rms_norm_args heads = {.header = CHORAL_HEADER(choral_rms_norm_args), .eps = 1e-6f};
      heads.x = heads.y = args[1].q;
      heads.weight = args[1].q_weight;
      OK(run("rms_norm_heads", &heads));
      heads.x = heads.y = args[1].k;
      heads.weight = args[1].k_weight;
      OK(run("rms_norm_heads", &heads));
    }
    OK(run("rotary_embedding", &args[1]));
    const choral_write_kv_args write = {CHORAL_HEADER(choral_write_kv_args), args[1].cache, args[1].k, args[1].v, args[1].slots};
    if (!normed) OK(run("write_kv", &write));
    from_device(one, args[0].q.data, sizeof one);
    from_device(two, args[1].q.data, sizeof two);
    CHECK(memcmp(one, two, sizeof one) == 0 && memcmp(one, x, sizeof one) != 0);
    from_device(one, args[0].k.data, sizeof k);
    from_device(two, args[1].k.data, sizeof k);
    CHECK(memcmp(one, two, sizeof k) == 0);
    static unsigned char cached[2][kBlocks * 32 * kKvHeads * 32 * 2];
    from_device(cached[0], args[0].cache.values, sizeof cached[0]);
    from_device(cached[1], args[1].cache.values, sizeof cached[1]);
    CHECK(memcmp(cached[0], cached[1], sizeof cached[0]) == 0);
    CHECK(ref_from_f16((uint16_t)(cached[0][33 * kKvHeads * 64] | cached[0][33 * kKvHeads * 64 + 1] << 8)) ==
          (normed ? 0.0f : ref_from_f16(ref_to_f16(v[0][0]))));
    for (int way = 0; way < 2; ++way) {
      const void* all[] = {args[way].q.data, args[way].k.data,        args[way].v.data,     args[way].positions,
                           args[way].slots,  args[way].table.cos_sin, args[way].cache.keys, args[way].cache.values};
      for (size_t i = 0; i < sizeof all / sizeof *all; ++i) release(all[i]);
    }
  }
  const void* all[] = {norm.weight.data, norm.x.data, norm.y.data, norm.residual.data, add.y.data};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) release(all[i]);
}
