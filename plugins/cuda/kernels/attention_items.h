// How paged attention is divided: into items, by numbers that lie on the device only.
//
// A tile is eight columns of mma: the heads of a group of as many rows as fit (8 / group, at least one; of larger groups eight
// heads at a time). A sequence of one tile, as in decode, has an item for each range of 128 positions, whose results are combined
// afterwards; one of more tiles has an item for each of them, or for several together, which goes through the ranges itself. Both
// give the same bits. Which kernel takes which of the two is the launch's to say.
#pragma once

#include "kv_cache.h"
#include "reduce.h"
#include "rows.h"

namespace choral_cuda {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr int kColumns = 8;
inline constexpr int kRangeTokens = 128, kRangeBlocks = kRangeTokens / kCacheBlockTokens;
inline constexpr int kPartFloats = kSlice + 2;  // of a column: largest score, sum, weighted values

// Sequences of one tile, or those of more.
enum class Takes { kShort, kLong };

struct Attention {
  Rows q, out;
  int64_t rows;
  CacheView cache;
  int v_head_dim;  // as out has it
  int group;       // heads of a kv head
  int tile_rows, head_chunks, slices;
  int item_rows;  // of a sequence of more than one tile
  Takes takes;
  int stages = 2;        // blocks of the cache in shared memory
  float scale, softcap;  // scale: in units of log2 where nothing is capped
  int64_t window;
  const choral_sequence* sequences;
  int64_t sequence_count;
  const int32_t* block_ids;
  int64_t block_id_count;
  const float* sinks;
  float* parts;  // [split][grid.y][8][kPartFloats]
  int64_t part_capacity;
  int32_t* fault;

  Attention(const Launch& launch, const choral_attention_args& a, int tiles, Takes takes_)
      : q(a.q),
        out(a.out),
        rows(a.q.rows),
        cache(a.cache),
        v_head_dim(static_cast<int>(a.cache.v_head_dim)),
        group(static_cast<int>(a.heads / a.cache.kv_heads)),
        tile_rows(group < kColumns ? kColumns / group : 1),
        head_chunks(ceil_div(group, kColumns)),
        slices(ceil_div(v_head_dim, kSlice)),
        item_rows(tiles * tile_rows),
        takes(takes_),
        scale(a.softcap > 0.0f ? a.scale : a.scale * kLog2E),
        softcap(a.softcap),
        window(a.sliding_window),
        sequences(a.sequences),
        sequence_count(a.sequence_count),
        block_ids(a.block_ids),
        block_id_count(a.block_id_count),
        sinks(static_cast<const float*>(a.sinks.data)),
        parts(static_cast<float*>(launch.scratch)),
        part_capacity(most_splits(a)),
        fault(launch.fault) {}

  int64_t grid_y() const { return cache.kv_heads * head_chunks * slices; }
  // Tables of sequences do not overlap, so this many ranges and one more for each sequence are enough.
  static int64_t most_splits(const choral_attention_args& a) { return a.block_id_count / kRangeBlocks + 2 * a.sequence_count; }
  int64_t most_items() const {
    if (takes == Takes::kShort) return block_id_count / kRangeBlocks + 2 * sequence_count;
    const int64_t longest = rows / (tile_rows + 1);  // this many sequences are long
    return ceil_div<int64_t>(rows, item_rows) + (sequence_count < longest ? sequence_count : longest);
  }

  __device__ __forceinline__ int64_t first_visible(int64_t position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }

  // Of a tile's column: the row of its sequence, and the head of its group.
  __device__ __forceinline__ int row_of(int tile, int column) const {
    return tile * tile_rows + (group < kColumns ? column / group : 0);
  }
  __device__ __forceinline__ int head_of(int chunk, int column) const {
    return group < kColumns ? column % group : chunk * kColumns + column;
  }
  __device__ __forceinline__ bool has(const choral_sequence& sequence, int tile, int chunk, int column) const {
    return column < (group < kColumns ? tile_rows * group : kColumns) && head_of(chunk, column) < group &&
           row_of(tile, column) < sequence.query_count;
  }
};

// What a block of the grid's second number has of a row.
struct HeadPart {
  int slice, chunk;
  int64_t kv_head;

  __device__ __forceinline__ HeadPart(const Attention& a, unsigned index)
      : slice(static_cast<int>(index) % a.slices),
        chunk(static_cast<int>(index) / a.slices % a.head_chunks),
        kv_head(index / (a.slices * a.head_chunks)) {}
  __device__ __forceinline__ int64_t head(const Attention& a, int column) const {
    return kv_head * a.group + a.head_of(chunk, column);
  }
};

// One sequence's share of the items.
struct Share {
  choral_sequence sequence;
  int32_t items, splits;  // splits: items whose results are combined
  int32_t first_range;    // of those

  __device__ __forceinline__ static Share of(const Attention& a, int64_t index) {
    Share share{{0, 0, 0, 0}, 0, 0, 0};
    if (index >= a.sequence_count) return share;
    const choral_sequence s = a.sequences[index];
    const int64_t tokens = int64_t{s.context_tokens} + s.query_count;
    if (s.query_count == 0) return share;
    if (s.query_begin < 0 || s.query_count < 0 || int64_t{s.query_begin} + s.query_count > a.rows || s.context_tokens < 0 ||
        s.first_block < 0 || s.first_block + ceil_div<int64_t>(tokens, kCacheBlockTokens) > a.block_id_count) {
      report(a.fault, kBlockBeyond);
      return share;
    }
    share.sequence = s;
    const bool is_long = s.query_count > a.tile_rows;
    if (is_long != (a.takes == Takes::kLong)) return share;
    if (is_long) {
      share.items = ceil_div(s.query_count, a.item_rows);
      return share;
    }
    share.first_range = static_cast<int32_t>(a.first_visible(s.context_tokens) / kRangeTokens);
    share.items = static_cast<int32_t>((tokens - 1) / kRangeTokens) - share.first_range + 1;
    share.splits = share.items > 1 ? share.items : 0;
    return share;
  }
};

struct Item {
  Share share;
  int32_t index;  // in the share
  int64_t split;  // its place among all splits, where the share has any
};

// What a block of threads works on: rows of one sequence by one kv head, and the blocks of the cache that they see, or those of
// one range.
struct BlockItem {
  choral_sequence sequence;
  int first_tile;
  bool is_split;
  int64_t split;
  int64_t begin, end;  // blocks of the cache

  __device__ __forceinline__ BlockItem(const Attention& a, const Item& item)
      : sequence(item.share.sequence),
        // The last rows see most: they begin.
        first_tile(item.share.splits > 0 ? 0 : (item.share.items - 1 - item.index) * (a.item_rows / a.tile_rows)),
        is_split(item.share.splits > 0),
        split(item.split) {
    const int first_row = first_tile * a.tile_rows, rows = min_of(a.item_rows, sequence.query_count - first_row);
    const int64_t first = int64_t{sequence.context_tokens} + first_row;
    begin = a.first_visible(first) / kCacheBlockTokens;
    end = (first + rows - 1) / kCacheBlockTokens + 1;
    if (!is_split) return;
    const int64_t range_begin = int64_t{item.share.first_range + item.index} * kRangeBlocks;
    begin = begin > range_begin ? begin : range_begin;
    end = end < range_begin + kRangeBlocks ? end : range_begin + kRangeBlocks;
  }
  __device__ __forceinline__ int64_t tokens() const { return int64_t{sequence.context_tokens} + sequence.query_count; }
};

// Goes through all items in order, each warp taking some. All lanes call it together.
class ItemWalk {
 public:
  // False: there are no more. `wanted` never falls.
  __device__ __forceinline__ bool find(const Attention& a, int64_t wanted, Item* item) {
    const int lane = threadIdx.x % kWarp;
    for (; first_ < a.sequence_count; first_ += kWarp) {
      const Share mine = Share::of(a, first_ + lane);
      int32_t items = mine.items, splits = mine.splits;  // of this lane's and earlier ones
      for (int step = 1; step < kWarp; step *= 2) {
        const int32_t more_items = __shfl_up_sync(kAllLanes, items, step), more_splits = __shfl_up_sync(kAllLanes, splits, step);
        items += lane >= step ? more_items : 0;
        splits += lane >= step ? more_splits : 0;
      }
      const int32_t all_items = __shfl_sync(kAllLanes, items, kWarp - 1), all_splits = __shfl_sync(kAllLanes, splits, kWarp - 1);
      if (wanted < items_before_ + all_items) {
        const int owner = __ffs(__ballot_sync(kAllLanes, items_before_ + items > wanted)) - 1;
        const auto of_owner = [&](int32_t value) { return __shfl_sync(kAllLanes, value, owner); };
        item->share.sequence = {of_owner(mine.sequence.query_begin), of_owner(mine.sequence.query_count),
                                of_owner(mine.sequence.context_tokens), of_owner(mine.sequence.first_block)};
        item->share.items = of_owner(mine.items);
        item->share.splits = of_owner(mine.splits);
        item->share.first_range = of_owner(mine.first_range);
        item->index = static_cast<int32_t>(wanted - items_before_) - of_owner(items - mine.items);
        item->split = splits_before_ + of_owner(splits - mine.splits) + item->index;
        return true;
      }
      items_before_ += all_items;
      splits_before_ += all_splits;
    }
    return false;
  }

 private:
  int64_t first_ = 0, items_before_ = 0, splits_before_ = 0;
};

}  // namespace choral_cuda
