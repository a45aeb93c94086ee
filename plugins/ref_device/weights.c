#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "mapping.h"
#include "numbers.h"
#include "queue.h"

enum { kQ8Elements = 32, kQ8Bytes = 34 }; /* a block of Q8_0: an f16 scale, then 32 signed bytes */

/* A row of i8 sums to less than 2^31 in so many columns. */
enum { kMostInt8Columns = 1 << 16 };

static int64_t element_bytes(int32_t dtype) { return dtype == CHORAL_I8 ? 1 : ref_float_bytes(dtype); }

int ref_packs(int32_t stored_dtype) { return ref_float_bytes(stored_dtype) != 0 || stored_dtype == CHORAL_Q8_0; }

const unsigned char* ref_stored_tile(const choral_packed* weight, int64_t i, int64_t j) {
  return weight->tiles + (i * weight->col_tiles + j) * REF_TILE_ELEMENTS * element_bytes(weight->dtype);
}

const float* ref_tile(const choral_packed* weight, int64_t i, int64_t j, float* buffer) {
  const unsigned char* stored = ref_stored_tile(weight, i, j);
  if (weight->dtype == CHORAL_F32) return (const float*)(const void*)stored;
  if (weight->dtype == CHORAL_I8) {
    for (int64_t e = 0; e < REF_TILE_ELEMENTS; ++e) buffer[e] = (float)((const signed char*)stored)[e];
  } else {
    ref_widen(weight->dtype, stored, REF_TILE_ELEMENTS, buffer);
  }
  return buffer;
}

void ref_packed_row(const choral_packed* weight, int64_t row, float* out) {
  float buffer[REF_TILE_ELEMENTS], scale = 1.0f;
  if (weight->dtype == CHORAL_I8) scale = weight->scales[row] / (weight->has_fixed_input ? weight->input_scale : 1.0f);
  for (int64_t j = 0; j < weight->col_tiles; ++j) {
    const float* tile = ref_tile(weight, row / REF_TILE, j, buffer);
    for (int64_t k = 0; k < REF_TILE && j * REF_TILE + k < weight->cols; ++k) {
      out[j * REF_TILE + k] = scale * tile[k * REF_TILE + row % REF_TILE];
    }
  }
}

/* Up to 16 stored elements of a row, from column `col`, a multiple of 16. */
static void load_elements(int32_t stored_dtype, const unsigned char* row, int64_t col, int64_t count, float* out) {
  if (stored_dtype == CHORAL_I8) {
    for (int64_t i = 0; i < count; ++i) out[i] = (float)((const signed char*)row)[col + i];
    return;
  }
  if (stored_dtype != CHORAL_Q8_0) {
    float aligned[REF_TILE]; /* files promise no alignment */
    memcpy(aligned, row + col * ref_float_bytes(stored_dtype), (size_t)(count * ref_float_bytes(stored_dtype)));
    ref_widen(stored_dtype, aligned, count, out);
    return;
  }
  const unsigned char* block = row + col / kQ8Elements * kQ8Bytes;
  uint16_t scale;
  memcpy(&scale, block, sizeof scale);
  const signed char* numbers = (const signed char*)(block + sizeof scale) + col % kQ8Elements;
  for (int64_t i = 0; i < count; ++i) out[i] = ref_from_f16(scale) * (float)numbers[i];
}

typedef struct pack_job {
  const choral_weight* source;
  const choral_packed* packed;
} pack_job;

/* The stored row that becomes row `row` of W. */
static const unsigned char* stored_row(const choral_weight* source, int64_t row) {
  const choral_weight_part* part = source->parts;
  while (row >= part->rows) row -= (part++)->rows;
  return (const unsigned char*)part->data + (part->order == NULL ? row : part->order[row]) * part->row_bytes;
}

/* Runs on the host's threads, each with rows of tiles of its own. */
static void pack_tiles(void* context, int64_t begin, int64_t end) {
  const pack_job* job = context;
  const choral_packed* packed = job->packed;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < packed->col_tiles; ++j) {
      const int64_t left = packed->cols - j * REF_TILE, count = left < REF_TILE ? left : REF_TILE;
      float tile[REF_TILE_ELEMENTS] = {0};
      for (int64_t channel = 0; channel < REF_TILE && i * REF_TILE + channel < packed->rows; ++channel) {
        float elements[REF_TILE];
        load_elements(job->source->stored_dtype, stored_row(job->source, i * REF_TILE + channel), j * REF_TILE, count, elements);
        for (int64_t k = 0; k < count; ++k) tile[k * REF_TILE + channel] = elements[k];
      }
      unsigned char* to = (unsigned char*)(uintptr_t)ref_stored_tile(packed, i, j);
      if (packed->dtype == CHORAL_I8) {
        for (int64_t e = 0; e < REF_TILE_ELEMENTS; ++e) ((signed char*)to)[e] = (signed char)tile[e];
      } else {
        ref_narrow(packed->dtype, tile, REF_TILE_ELEMENTS, to);
      }
    }
  }
}

/* Why a weight with scales is not taken; null: it is. */
static const char* unserved_scales(const choral_weight* weight) {
  if (weight->stored_dtype != CHORAL_I8) return "other elements than i8";
  if (weight->bits != 8 || weight->codebook != CHORAL_LINEAR) return "integers of 4 bits";
  if (weight->activations != CHORAL_X_INT8_ROWS) return "x that is not rounded to int8 rows";
  if (weight->group_size != 0) return "several scales a row";
  if (weight->zero_count != 0) return "zero points";
  if (weight->k_order_count != 0) return "an order of columns";
  return weight->cols > kMostInt8Columns ? "more than 65536 columns" : NULL;
}

static choral_status* check_weight(const choral_weight* weight, int64_t* rows) {
  choral_status* error = NULL;
  const int64_t most = INT64_C(1) << 31;
  ref_expect(weight->cols > 0 && weight->cols <= most, "prepack", "a matrix has 1 to 2^31 columns", &error);
  ref_expect(weight->part_count > 0 && weight->parts != NULL, "prepack", "a matrix has parts", &error);
  if (error != NULL) return error;
  if (weight->scale_count != 0) {
    const char* unserved = unserved_scales(weight);
    if (unserved != NULL) {
      return ref_error(CHORAL_UNSUPPORTED, "of weights with scales it packs i8 for int8 rows of x, one scale a row, not %s",
                       unserved);
    }
  } else if (!ref_packs(weight->stored_dtype)) {
    return ref_error(CHORAL_UNSUPPORTED, "weights are packed from f32, f16, bf16 and q8_0, not from element type %d",
                     weight->stored_dtype);
  } else if (weight->activations == CHORAL_X_16) {
    return ref_error(CHORAL_UNSUPPORTED, "x is multiplied as it is, and not rounded to 16 bits");
  }
  const int blocks = weight->stored_dtype == CHORAL_Q8_0;
  ref_expect(!blocks || weight->cols % kQ8Elements == 0, "prepack", "rows of q8_0 are whole blocks of 32", &error);
  if (error != NULL) return error;
  const int64_t row_bytes = blocks ? weight->cols / kQ8Elements * kQ8Bytes : weight->cols * element_bytes(weight->stored_dtype);
  *rows = 0;
  for (int64_t i = 0; i < weight->part_count && error == NULL; ++i) {
    const choral_weight_part* part = &weight->parts[i];
    ref_expect(part->rows >= 0 && part->rows <= most - *rows, "prepack", "a matrix has at most 2^31 rows", &error);
    ref_expect(part->row_bytes >= row_bytes, "prepack", "stored rows are shorter than their columns", &error);
    for (int64_t row = 0; part->order != NULL && error == NULL && row < part->rows; ++row) {
      ref_expect(part->order[row] >= 0, "prepack", "the order names a negative row", &error);
    }
    if (error == NULL) *rows += part->rows;
  }
  ref_expect(*rows > 0, "prepack", "a matrix has rows", &error);
  ref_expect(weight->scale_count == 0 || weight->scale_count == *rows, "prepack", "there is a scale for each row", &error);
  return error;
}

/* What a fault build makes of each weight with scales: int8 rows, whatever else is said. */
static void take_for_plain(choral_weight* weight) {
  const int64_t group = weight->group_size;
  weight->stored_dtype = CHORAL_I8;
  weight->bits = 8;
  weight->codebook = CHORAL_LINEAR;
  weight->activations = CHORAL_X_INT8_ROWS;
  if (group != 0) weight->scale_count /= (weight->cols + group - 1) / group;
  weight->group_size = weight->zero_count = weight->k_order_count = 0;
}

static choral_status* prepack(choral_device* device, choral_stream* stream, const choral_weight* theirs, choral_packed** result,
                              choral_packed_facts* facts) {
  (void)stream; /* nothing queued can know this memory yet */
  choral_weight source;
  ref_read(&source, theirs, sizeof source);
  choral_packed packed;
  memset(&packed, 0, sizeof packed);
  choral_status* status = NULL;
  if (source.scale_count != 0 && ref_passes_over("prepack", "forms", &status)) take_for_plain(&source);
  if (source.activations == CHORAL_X_16 && ref_passes_over("prepack", "x_16", &status)) source.activations = CHORAL_X_FULL;
  if (status == NULL) status = check_weight(&source, &packed.rows);
  if (source.stored_dtype == CHORAL_BF16 && ref_passes_over("prepack", "bf16", &status)) source.stored_dtype = CHORAL_F16;
  if (source.stored_dtype == CHORAL_F16 && ref_passes_over("prepack", "f16", &status)) source.stored_dtype = CHORAL_BF16;
  if (source.stored_dtype == CHORAL_Q8_0 && ref_passes_over("prepack", "q8_0", &status)) source.stored_dtype = CHORAL_I8;
  const int int8 = source.scale_count != 0;
  if (int8 && ref_passes_over("prepack", "int8_rounding", &status)) packed.truncates = 1;
  if (int8 && source.input_offset != 0 && ref_passes_over("prepack", "input_offset", &status)) source.input_offset = 0;
  if (status != NULL) return status;
  packed.cols = source.cols;
  packed.row_tiles = (packed.rows + REF_TILE - 1) / REF_TILE;
  packed.col_tiles = (packed.cols + REF_TILE - 1) / REF_TILE;
  /* A block type says nothing of floats: f32 holds its elements exactly. */
  packed.dtype = int8 ? CHORAL_I8 : ref_float_bytes(source.dtype) != 0 ? source.dtype : CHORAL_F32;
  packed.has_fixed_input = source.has_fixed_input;
  packed.input_scale = source.input_scale;
  packed.input_offset = source.input_offset;
  const uint64_t tiles = ref_times((uint64_t)packed.row_tiles, (uint64_t)packed.col_tiles);
  const uint64_t tile_bytes = ref_times(tiles, (uint64_t)(REF_TILE_ELEMENTS * element_bytes(packed.dtype)));
  const uint64_t scale_bytes = (uint64_t)source.scale_count * sizeof(float);
  const uint64_t bytes = tile_bytes > UINT64_MAX - scale_bytes ? UINT64_MAX : tile_bytes + scale_bytes;
  choral_packed* kept = malloc(sizeof *kept);
  if (kept == NULL) return ref_error(CHORAL_RESOURCE_EXHAUSTED, "no host memory for a matrix");
  status = ref_memory_take(&device->memory, bytes, &packed.memory);
  if (status != NULL) {
    free(kept);
    return status;
  }
  packed.tiles = ref_memory_map(&device->memory, packed.memory);
  packed.scales = (float*)(void*)(packed.tiles + tile_bytes);
  if (int8) memcpy(packed.scales, source.scales, (size_t)scale_bytes);
  pack_job job = {&source, &packed};
  status = ref_host->parallel_for(device->pool, packed.row_tiles, 1, pack_tiles, &job);
  if (status != NULL) {
    ref_memory_give(&device->memory, packed.memory);
    free(kept);
    return status;
  }

  if (facts != NULL) {
    choral_packed_facts ours;
    memset(&ours, 0, sizeof ours);
    ours.size_bytes = (int64_t)bytes;
    const char* element = int8 ? "int8" : packed.dtype == CHORAL_F32 ? "f32" : packed.dtype == CHORAL_F16 ? "f16" : "bf16";
    snprintf(ours.format, sizeof ours.format, "%s, 16x16 tiles%s", element, source.stored_dtype == CHORAL_Q8_0 ? " of q8_0" : "");
    snprintf(ours.kernel, sizeof ours.kernel, "plain loops, one %s sum over k for each output", int8 ? "exact" : "f32");
    ref_write(facts, &ours, sizeof ours);
  }
  *kept = packed;
  *result = kept;
  return NULL;
}

static void release(choral_device* device, choral_packed* packed) {
  if (packed == NULL) return;
  ref_drain_all(device);
  ref_memory_give(&device->memory, packed->memory);
  free(packed);
}

static choral_status* read_row(choral_device* device, const choral_packed* packed, int64_t row, float* out) {
  (void)device;
  if (row < 0 || row >= packed->rows) {
    return ref_error(CHORAL_INVALID_ARGUMENT, "read_row: row %lld of %lld", (long long)row, (long long)packed->rows);
  }
  if (ref_fault.lose_rows) return ref_error(CHORAL_UNAVAILABLE, "the memory of weights does not answer: this is a fault build");
  ref_packed_row(packed, row, out);
  return NULL;
}

const choral_weight_api ref_weight_api = {CHORAL_HEADER(choral_weight_api), prepack, release, read_row};
