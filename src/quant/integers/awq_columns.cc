// w[k, n] = (q − z) · s. Word c of a row of qweight holds channels 8c to 8c + 7 in its nibbles, from the lowest: 0 2 4 6 1 3 5 7;
// qzeros int32 [groups, n / 8] likewise, scales [groups, n].
#include <cstring>

#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"

namespace choral::quant {
namespace {

constexpr int64_t kPerWord = 8;
constexpr int kHalf = 8;
constexpr int kChannelOf[kPerWord] = {0, 2, 4, 6, 1, 3, 5, 7};

uint32_t word_at(const TensorView& words, int64_t row, int64_t col) {
  uint32_t word;
  std::memcpy(&word, words.row(row) + col * int64_t{sizeof word}, sizeof word);
  return word;
}

// Calls take(channel of the word, its value − 8) for each.
template <class Take>
void for_each_channel(uint32_t word, Take take) {
  for (const int channel : kChannelOf) {
    take(channel, static_cast<int>(word & 15) - kHalf);
    word >>= 4;
  }
}

class AwqColumns : public IntegerStorage {
 public:
  explicit AwqColumns(const IntegerFormat& format) : format_(format) {}
  int bits() const override { return 4; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    const int64_t groups = scale_groups(format_, shape.in);
    for_each_shard(shape, parameters.add("qweight", StoredAs::kInt32), ".qweight", [&](int64_t out) {
      return Shape{shape.in, ceil_div(out, kPerWord)};
    });
    for_each_shard(shape, parameters.add("qzeros", StoredAs::kInt32), ".qzeros", [&](int64_t out) {
      return Shape{groups, ceil_div(out, kPerWord)};
    });
    for_each_shard(shape, parameters.add("scales", StoredAs::kFloat), ".scales", [&](int64_t out) { return Shape{groups, out}; });
  }

  Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                             size_t shard) const override {
    const int64_t rows = shape.out[shard], groups = scale_groups(format_, shape.in);
    if (rows % kPerWord != 0) {
      return unsupported("{} outputs of an AWQ layer; a word of {} holds {}", rows, parameters.get("qweight").shards[shard].name,
                         kPerWord);
    }
    CHORAL_TRY(Tensor memory, Tensor::allocate(DType::kI8, {rows, shape.in}));
    unpack(ctx, parameters.get("qweight").shards[shard].tensor.view, memory);
    IntegerWeight out{.q = {memory.view(), {}}, .group_size = format_.group_size};
    CHORAL_TRY(out.scales, read_scale_columns(parameters.get("scales").shards[shard]));
    const TensorView& zeros = parameters.get("qzeros").shards[shard].tensor.view;
    out.zeros.resize(rows * groups);
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t c = 0; c < zeros.cols(); ++c) {
        for_each_channel(word_at(zeros, g, c),
                         [&](int channel, int z) { out.zeros[(c * kPerWord + channel) * groups + g] = static_cast<int16_t>(z); });
      }
    }
    out.memory = std::move(memory);
    return out;
  }

 private:
  // Blocks of k for one word's channels, so that what is written stays near.
  static void unpack(const platform::Context& ctx, const TensorView& words, Tensor& memory) {
    constexpr int64_t kAtOnce = 256;
    const int64_t k = words.rows();
    const auto q = memory.as<int8_t>();
    ctx.kernel.pool.parallel_for(words.cols(), 4, [&](int64_t begin, int64_t end, int) {
      int8_t block[kPerWord][kAtOnce];
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t at = 0; at < k; at += kAtOnce) {
          const int64_t count = std::min(kAtOnce, k - at);
          for (int64_t i = 0; i < count; ++i) {
            for_each_channel(word_at(words, at + i, c), [&](int channel, int v) { block[channel][i] = static_cast<int8_t>(v); });
          }
          for (int64_t channel = 0; channel < kPerWord; ++channel) {
            std::memcpy(q.data() + (c * kPerWord + channel) * k + at, block[channel], count);
          }
        }
      }
    });
  }

  IntegerFormat format_;
};

}  // namespace

std::shared_ptr<const IntegerStorage> awq_columns(const IntegerFormat& format) { return std::make_shared<AwqColumns>(format); }

}  // namespace choral::quant
