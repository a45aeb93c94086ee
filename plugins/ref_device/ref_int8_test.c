/* Weights of int8 with scales, bit for bit by the definition that stands in choral/plugin.h. */
#include <math.h>
#include <string.h>

#include "test_device.h"

enum { kRows = 21, kParts = 8, kCols = 53, kTokens = 5 };

static signed char q_of_w[kRows][kCols];
static float scales[kRows], x[kTokens][kCols], bias[kRows];

static choral_weight describe(const choral_weight_part* parts) {
  const choral_weight weight = {.header = CHORAL_HEADER(choral_weight),
                                .stored_dtype = CHORAL_I8,
                                .dtype = CHORAL_I8,
                                .cols = kCols,
                                .parts = parts,
                                .part_count = 2,
                                .bits = 8,
                                .activations = CHORAL_X_INT8_ROWS,
                                .scales = scales,
                                .scale_count = kRows};
  return weight;
}

/* Row `row` of y, and what W's row is. */
static float wanted(const choral_weight* weight, const signed char* w, int n, const float* row) {
  float largest = 0, s = 1;
  long long sum = 0;
  for (int k = 0; k < kCols; ++k) {
    if (isnan(row[k])) return NAN;
    largest = fmaxf(largest, fabsf(row[k]));
  }
  if (!weight->has_fixed_input) s = largest / 127.0f;
  for (int k = 0; k < kCols; ++k) {
    double q = 0;
    if (weight->has_fixed_input) {
      q = fmin(fmax(nearbyintf(row[k] / weight->input_scale) + (double)weight->input_offset, -128), 127) - weight->input_offset;
    } else if (s > 0) {
      q = fmin(fmax(nearbyintf(row[k] / s), -127), 127);
    }
    sum += (long long)q * w[k];
  }
  return fmaf((float)sum, scales[n], 0.0f) * s;
}

void test_int8(void) {
  for (int n = 0; n < kRows; ++n) {
    for (int k = 0; k < kCols; ++k) q_of_w[n][k] = (signed char)((n * kCols + k) * 37 % 256 - 128);
  }
  fill(scales, kRows);
  fill(x[0], kTokens * kCols);
  fill(bias, kRows);
  memset(x[1], 0, sizeof x[1]);
  x[2][7] = NAN;
  for (int k = 0; k < kCols; ++k) x[3][k] = k == 0 ? 127.0f : (float)k + 0.5f; /* ties */
  int32_t order[kParts];
  for (int i = 0; i < kParts; ++i) order[i] = kRows - 1 - i;
  const choral_weight_part parts[2] = {{q_of_w, kRows - kParts, kCols, NULL}, {q_of_w, kParts, kCols, order}};
  const struct {
    int32_t fixed;
    float scale;
    int32_t offset;
  } inputs[3] = {{0, 0, 0}, {1, 0.005f, 0}, {1, 0.007f, -9}}; /* the second clamps */
  for (int form = 0; form < 3; ++form) {
    choral_weight weight = describe(parts);
    weight.has_fixed_input = inputs[form].fixed;
    weight.input_scale = inputs[form].scale;
    weight.input_offset = inputs[form].offset;
    choral_packed* packed = NULL;
    choral_packed_facts facts = {.header = CHORAL_HEADER(choral_packed_facts)};
    OK(plugin->weights->prepack(device, stream, &weight, &packed, &facts));
    CHECK(facts.size_bytes == 2 * 4 * 256 + (int64_t)sizeof scales && strstr(facts.format, "int8") != NULL);
    choral_matmul_args args = {.header = CHORAL_HEADER(choral_matmul_args),
                               .weight = packed,
                               .x = matrix_to_device(x[0], kTokens, kCols, kCols),
                               .y = matrix_to_device(x[0], kTokens, kRows, kRows),
                               .bias = vector_to_device(bias, kRows)};
    OK(run("matmul", &args));
    float y[kTokens][kRows], row[kCols];
    from_device(y, args.y.data, sizeof y);
    for (int n = 0; n < kRows; ++n) {
      const signed char* w = q_of_w[n < kRows - kParts ? n : order[n - (kRows - kParts)]];
      for (int i = 0; i < kTokens; ++i) {
        const float value = wanted(&weight, w, n, x[i]) + bias[n];
        CHECK(y[i][n] == value || (isnan(y[i][n]) && isnan(value)));
      }
      CHECK(isnan(y[2][n]) && !isnan(y[3][n]));
      OK(plugin->weights->read_row(device, packed, n, row)); /* of W, whatever the scale of x */
      const float scale = scales[n] / (inputs[form].fixed ? inputs[form].scale : 1.0f);
      for (int k = 0; k < kCols; ++k) CHECK(row[k] == scale * (float)w[k]);
    }
    plugin->memory->release(device, args.x.data);
    plugin->memory->release(device, args.y.data);
    plugin->memory->release(device, (void*)(uintptr_t)args.bias.data);
    plugin->weights->release(device, packed);
  }

  choral_packed* none = NULL;
  choral_weight wrong = describe(parts);
  wrong.bits = 4;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "integers of 4 bits");
  wrong = describe(parts);
  wrong.activations = CHORAL_X_FULL;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "not rounded to int8 rows");
  wrong = describe(parts);
  wrong.group_size = 32;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "several scales a row");
  wrong = describe(parts);
  wrong.zero_count = kRows;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "zero points");
  wrong = describe(parts);
  wrong.k_order_count = kCols;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "an order of columns");
  wrong = describe(parts);
  wrong.stored_dtype = CHORAL_E4M3;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "other elements than i8");
  wrong = describe(parts);
  wrong.scale_count = kRows - 1;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "a scale for each row");
  wrong.scale_count = 0;
  REFUSED(plugin->weights->prepack(device, stream, &wrong, &none, NULL), "not from element type 4");
  CHECK(none == NULL);
}
