/* Weights in fractal blocks: tiles of 16 x 16, those of 16 output channels one after another. Within a tile element (channel, k)
 * lies at k · 16 + channel, so that one step over k feeds 16 sums. Edges are filled with zeros. Immutable once packed. */
#pragma once

#include <stdint.h>

#include "choral/plugin.h"

#define REF_TILE 16
#define REF_TILE_ELEMENTS (REF_TILE * REF_TILE)

struct choral_packed {
  int64_t rows, cols;           /* W [rows, cols] */
  int64_t row_tiles, col_tiles; /* rounded up */
  int32_t dtype;                /* of the tiles: f32, f16, bf16 or i8 */
  void* memory;                 /* device pointer */
  unsigned char* tiles;         /* the same, mapped */
  /* Of i8, whose x becomes int8 rows. */
  float* scales; /* [rows], behind the tiles */
  int32_t has_fixed_input;
  float input_scale;
  int32_t input_offset;
  int32_t truncates; /* in a fault build: x to the next integer towards 0 */
};

/* Tile (i, j) as it is stored. */
const unsigned char* ref_stored_tile(const choral_packed* weight, int64_t i, int64_t j);
/* Tile (i, j) as floats, without scales; `buffer` is used unless they are stored so. */
const float* ref_tile(const choral_packed* weight, int64_t i, int64_t j, float* buffer);
void ref_packed_row(const choral_packed* weight, int64_t row, float* out);
/* Whether prepack takes this stored type. */
int ref_packs(int32_t stored_dtype);
