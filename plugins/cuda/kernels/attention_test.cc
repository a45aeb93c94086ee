// The cache and attention over it: against sums in double, and to the bit the same for a row however its prompt is cut, whoever
// is beside it, and whether one warp or several go through its positions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "float16.h"
#include "kernel_testing.h"

namespace choral_cuda {
namespace {

struct Shape {
  std::string name;
  int64_t heads = 4, kv_heads = 2, head_dim = 16, v_head_dim = 16;
  int32_t dtype = CHORAL_F32;
  bool in_keys = false;
  int64_t window = 0;
  float softcap = 0.0f;
  bool sinks = false;
};

struct Piece {  // query_count rows of sequence `of` behind `context` tokens
  int64_t of, context, count;
};

// Sequences with random keys and values in a cache whose other places hold no numbers, in blocks of no order.
class World {
 public:
  World(const Shape& shape, std::vector<int64_t> lengths) : shape_(shape), lengths_(std::move(lengths)) {
    int64_t tokens = 0, blocks = 0;
    for (const int64_t length : lengths_) {
      first_token_.push_back(tokens);
      first_block_.push_back(static_cast<int32_t>(blocks));
      tokens += length;
      blocks += (length + 31) / 32;
    }
    const int64_t stride = (shape.v_head_dim + 15) / 16 * 16, element = shape.dtype == CHORAL_F32 ? 4 : 2;
    blocks_ = blocks + 2;
    keys_.assign(blocks_ * shape.kv_heads * shape.head_dim * 32 * element, 0xff);
    values_.assign(shape.in_keys ? 0 : blocks_ * shape.kv_heads * stride * 32 * element, 0xff);
    block_ids_.resize(blocks);
    for (int64_t i = 0; i < blocks; ++i) block_ids_[i] = static_cast<int32_t>((i * 5 + 1) % blocks_);
    std::shuffle(block_ids_.begin(), block_ids_.end(), std::mt19937(3));
    for (size_t i = 1; i < block_ids_.size(); ++i) {  // none twice
      while (std::count(block_ids_.begin(), block_ids_.begin() + i, block_ids_[i]) != 0)
        block_ids_[i] = (block_ids_[i] + 1) % static_cast<int32_t>(blocks_);
    }
    k_ = TestMatrix(tokens, shape.kv_heads * shape.head_dim).fill(1, 2);
    v_ = TestMatrix(tokens, shape.in_keys ? 0 : shape.kv_heads * shape.v_head_dim).fill(2, 2);
    q_ = TestMatrix(tokens, shape.heads * shape.head_dim).fill(3, 2);
    sinks_ = random_floats(shape.heads, 4, 2);
    for (size_t s = 0; s < lengths_.size(); ++s) {
      for (int64_t p = 0; p < lengths_[s]; ++p) slots_.push_back(block_ids_[first_block_[s] + p / 32] * 32 + p % 32);
    }
    TestLaunch launch;
    EXPECT_EQ(cache_misfit(cache()), nullptr);
    EXPECT_EQ(done(write_kv(launch.get(), {.cache = cache(), .k = k_.view(), .v = v_.view(), .slots = slots_.data()})),
              cudaSuccess);
    EXPECT_EQ(launch.fault(), kNoFault);
  }

  choral_kv_cache cache() {
    return {
        keys_.data(),     shape_.in_keys ? nullptr : values_.data(), shape_.dtype, 32, blocks_, shape_.kv_heads, shape_.head_dim,
        shape_.v_head_dim};
  }

  // One call over these pieces, in their order. Rows of the result, one after another.
  TestMatrix attend(const std::vector<Piece>& pieces, Fault* fault = nullptr) {
    int64_t rows = 0;
    for (const Piece& piece : pieces) rows += piece.count;
    TestMatrix q(rows, q_.cols()), out(rows, shape_.heads * shape_.v_head_dim);
    Shared<choral_sequence> sequences;
    int64_t at = 0;
    for (const Piece& piece : pieces) {
      sequences.push_back({static_cast<int32_t>(at), static_cast<int32_t>(piece.count), static_cast<int32_t>(piece.context),
                           first_block_[piece.of]});
      for (int64_t i = 0; i < piece.count; ++i) q.set_row(at++, q_.row((first_token_[piece.of] + piece.context + i) % q_.rows()));
    }
    const choral_attention_args args{.cache = cache(),
                                     .q = q.view(),
                                     .out = out.view(),
                                     .heads = shape_.heads,
                                     .scale = kScale,
                                     .softcap = shape_.softcap,
                                     .sliding_window = shape_.window,
                                     .sequences = sequences.data(),
                                     .sequence_count = static_cast<int64_t>(sequences.size()),
                                     .block_ids = block_ids_.data(),
                                     .block_id_count = static_cast<int64_t>(block_ids_.size()),
                                     .sinks = shape_.sinks ? vector_of(sinks_) : choral_vector{}};
    TestLaunch launch(paged_attention_scratch_bytes(args), sm_count, block_shared_bytes);
    Launch queue = launch.get();
    queue.has_wgmma = has_wgmma;
    EXPECT_EQ(done(paged_attention(queue, args)), cudaSuccess);
    if (fault != nullptr) *fault = launch.fault();
    if (fault == nullptr) {
      EXPECT_EQ(launch.fault(), kNoFault);
    }
    EXPECT_TRUE(out.gaps_are_whole());
    return out;
  }

  double stored(float value) const {
    return shape_.dtype == CHORAL_F16 ? from_f16(to_f16(value)) : shape_.dtype == CHORAL_BF16 ? from_bf16(to_bf16(value)) : value;
  }

  double expected(int64_t of, int64_t position, int64_t head, int64_t element) const {
    const int64_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const int64_t first = shape_.window > 0 ? std::max<int64_t>(0, position - shape_.window + 1) : 0;
    std::vector<double> scores;
    double most = shape_.sinks ? sinks_[head] : -1e300;
    for (int64_t p = first; p <= position; ++p) {
      double score = 0;
      for (int64_t i = 0; i < shape_.head_dim; ++i) {
        score += double{q_.at(first_token_[of] + position, head * shape_.head_dim + i)} *
                 stored(k_.at(first_token_[of] + p, kv_head * shape_.head_dim + i));
      }
      score *= kScale;
      if (shape_.softcap > 0) score = shape_.softcap * std::tanh(score / shape_.softcap);
      scores.push_back(score);
      most = std::max(most, score);
    }
    double sum = shape_.sinks ? std::exp(sinks_[head] - most) : 0, value = 0;
    for (int64_t p = first; p <= position; ++p) {
      const double weight = std::exp(scores[p - first] - most);
      const int64_t row = first_token_[of] + p;
      sum += weight;
      value += weight * stored(shape_.in_keys ? k_.at(row, kv_head * shape_.head_dim + element)
                                              : v_.at(row, kv_head * shape_.v_head_dim + element));
    }
    return value / sum;
  }

  Shared<int32_t>& block_ids() { return block_ids_; }

  // Of the device: by these a prompt has a kernel of its own, of many warps or few, or none.
  int sm_count = 4;
  size_t block_shared_bytes = 227 << 10;
  bool has_wgmma = false;

 private:
  static constexpr float kScale = 0.25f;
  const Shape shape_;
  const std::vector<int64_t> lengths_;
  std::vector<int64_t> first_token_;
  Shared<int64_t> slots_;
  std::vector<int32_t> first_block_;
  Shared<int32_t> block_ids_;
  int64_t blocks_ = 0;
  Shared<unsigned char> keys_, values_;
  TestMatrix k_{0, 1}, v_{0, 1}, q_{0, 1};
  Shared<float> sinks_;
};

class AttentionTest : public ::testing::TestWithParam<Shape> {};

TEST_P(AttentionTest, IsTheWeightedMean) {
  const Shape& shape = GetParam();
  World world(shape, {5, 40, 610});
  const std::vector<Piece> pieces{{0, 0, 5}, {1, 37, 3}, {2, 609, 1}};
  const TestMatrix out = world.attend(pieces);
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    for (int64_t i = 0; i < piece.count; ++i, ++row) {
      for (int64_t c = 0; c<out.cols(); c += out.cols()> 128 ? 13 : 1) {
        expect_near(out.at(row, c), world.expected(piece.of, piece.context + i, c / shape.v_head_dim, c % shape.v_head_dim), 2e-4,
                    row, c);
      }
    }
  }
}

// 300 tokens at once, in chunks, and some of them alone; and beside others.
TEST_P(AttentionTest, RowsDoNotKnowOfEachOther) {
  const Shape& shape = GetParam();
  World world(shape, {300, 45});
  const TestMatrix whole = world.attend({{0, 0, 300}});
  for (const auto& [context, count] : {std::pair{0, 7}, {7, 100}, {255, 2}, {107, 193}}) {
    const TestMatrix chunk = world.attend({{1, 3, 2}, {0, context, count}, {1, 44, 1}});
    for (int64_t i = 0; i < count; ++i) EXPECT_TRUE(same_bits(chunk.row(2 + i), whole.row(context + i))) << context + i;
  }
  for (const int64_t position : {0, 31, 32, 255, 256, 299}) {
    const TestMatrix alone = world.attend({{0, position, 1}});
    EXPECT_TRUE(same_bits(alone.row(0), whole.row(position))) << position;
  }
}

TEST_P(AttentionTest, ADevicesSizeIsAMatterOfSpeed) {
  World world(GetParam(), {5, 290, 40});
  const std::vector<Piece> pieces{{0, 4, 1}, {1, 30, 260}, {2, 38, 2}};
  const TestMatrix wanted = world.attend(pieces);
  for (const auto& [sm_count, kib] : {std::pair{1, 227}, {1, 99}, {1, 56}, {1000, 227}}) {
    world.sm_count = sm_count, world.block_shared_bytes = static_cast<size_t>(kib) << 10;
    const TestMatrix other = world.attend(pieces);
    for (int64_t i = 0; i < wanted.rows(); ++i) EXPECT_TRUE(same_bits(other.row(i), wanted.row(i))) << i << ", " << kib;
  }
}

// Prompts of several blocks and of one, of which a warpgroup has few rows or none that see a block; beside rows that are alone.
class AttentionByWarpgroupsTest : public AttentionTest {};

TEST_P(AttentionByWarpgroupsTest, HasTheBitsOfWarps) {
  if (!device_has_wgmma()) GTEST_SKIP() << "no device of compute capability 9.0";
  World world(GetParam(), {290, 40, 75, 301});
  const std::vector<Piece> pieces{{0, 0, 290}, {1, 38, 2}, {2, 30, 45}, {3, 300, 1}, {3, 250, 50}};
  const TestMatrix wanted = world.attend(pieces);
  world.has_wgmma = true;
  for (const int sm_count : {1, 1000}) {  // two warpgroups in a block, and one
    world.sm_count = sm_count;
    const TestMatrix out = world.attend(pieces);
    int64_t different = 0;
    for (int64_t i = 0; i < wanted.rows(); ++i) different += !same_bits(out.row(i), wanted.row(i));
    EXPECT_EQ(different, 0) << "of " << wanted.rows() << " rows, " << sm_count << " multiprocessors";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    ::testing::Values(Shape{"f32"}, Shape{"bf16", 4, 2, 32, 32, CHORAL_BF16}, Shape{"f16", 4, 2, 32, 32, CHORAL_F16},
                      Shape{"three_heads_of_a_group", 6, 2, 16, 16, CHORAL_BF16}, Shape{"nine_heads_of_a_group", 9, 1, 16, 16},
                      Shape{"window", 4, 2, 16, 16, CHORAL_F32, false, 34},
                      Shape{"window_of_one", 2, 2, 16, 16, CHORAL_BF16, false, 1},
                      Shape{"softcap", 4, 2, 16, 16, CHORAL_F32, false, 0, 0.5f},
                      Shape{"sinks", 4, 2, 16, 16, CHORAL_F32, false, 0, 0.0f, true},
                      Shape{"everything", 4, 2, 16, 16, CHORAL_F16, false, 70, 3.0f, true}, Shape{"narrow_values", 4, 2, 16, 8},
                      Shape{"wide_values", 4, 2, 16, 32}, Shape{"values_in_keys", 4, 2, 16, 11, CHORAL_F32, true},
                      Shape{"latent", 16, 1, 176, 160, CHORAL_BF16, true}, Shape{"heads_of_24", 4, 2, 24, 24, CHORAL_F16},
                      Shape{"heads_of_8", 2, 2, 8, 8}, Shape{"heads_of_192", 2, 2, 192, 128},
                      Shape{"heads_of_256", 2, 1, 256, 256, CHORAL_F16, false, 200},
                      Shape{"values_in_keys_of_40", 4, 1, 40, 37, CHORAL_F32, true}),
    [](const auto& info) { return info.param.name; });

const Shape kOfWarpgroups[] = {{"heads_of_128", 8, 2, 128, 128, CHORAL_BF16},
                               {"full_heads_of_128", 4, 2, 128, 128, CHORAL_F32, false, 45, 0.0f, true},
                               {"heads_of_64", 6, 2, 64, 64, CHORAL_F16},
                               {"full_heads_of_64", 9, 1, 64, 64}};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionByWarpgroupsTest, ::testing::ValuesIn(kOfWarpgroups),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(OfWarpgroups, AttentionTest, ::testing::ValuesIn(kOfWarpgroups),
                         [](const auto& info) { return info.param.name; });

TEST(AttentionFaults, BlocksThatAreNotThere) {
  World world(Shape{}, {40, 40});
  const TestMatrix good = world.attend({{0, 39, 1}, {1, 39, 1}});
  const int32_t id = world.block_ids()[0];
  for (const int32_t bad : {-1, 1000}) {
    world.block_ids()[0] = bad;
    Fault fault = kNoFault;
    const TestMatrix out = world.attend({{0, 39, 1}, {1, 39, 1}}, &fault);
    EXPECT_EQ(fault, kBlockBeyond);
    EXPECT_TRUE(same_bits(out.row(1), good.row(1)));
  }
  world.block_ids()[0] = id;
  Fault fault = kNoFault;
  world.attend({{1, 100, 1}}, &fault);  // more tokens than the table has blocks
  EXPECT_EQ(fault, kBlockBeyond);
}

TEST(AttentionFaults, BlocksOfPromptsThatAreNotThere) {
  World world(kOfWarpgroups[2], {70, 40});
  world.has_wgmma = device_has_wgmma();
  const TestMatrix good = world.attend({{0, 0, 70}, {1, 0, 40}});
  for (const int32_t bad : {-1, 1000}) {
    world.block_ids()[1] = bad;
    Fault fault = kNoFault;
    const TestMatrix out = world.attend({{0, 0, 70}, {1, 0, 40}}, &fault);
    EXPECT_EQ(fault, kBlockBeyond);
    for (int64_t i = 70; i < 110; ++i) EXPECT_TRUE(same_bits(out.row(i), good.row(i))) << i;
  }
}

TEST(WriteKv, SkipsNegativeSlotsAndReportsThoseBeyond) {
  Shared<unsigned char> keys(2 * 16 * 32 * 4, 0), values(2 * 16 * 32 * 4, 0);
  const choral_kv_cache cache{keys.data(), values.data(), CHORAL_F32, 32, 2, 1, 16, 16};
  TestMatrix k(2, 16), v(2, 16);
  k.fill(1), v.fill(2);
  const Shared<int64_t> slots{-1, 64};
  TestLaunch launch;
  ASSERT_EQ(done(write_kv(launch.get(), {.cache = cache, .k = k.view(), .v = v.view(), .slots = slots.data()})), cudaSuccess);
  EXPECT_EQ(launch.fault(), kSlotBeyond);
  EXPECT_EQ(std::count(keys.begin(), keys.end(), 0), std::ssize(keys));
}

TEST(WriteKv, FusedRotationStoresWhatItsPartsStore) {
  constexpr int64_t kHead = 16, kTokens = 3;
  Shared<float> table = random_floats(8 * kHead, 1);
  const Shared<int32_t> positions{0, 5, 7};
  const Shared<int64_t> slots{33, -1, 2};
  Shared<unsigned char> memory[2][2];
  TestMatrix q[2] = {{kTokens, 4 * kHead}, {kTokens, 4 * kHead}}, k[2] = {{kTokens, 2 * kHead}, {kTokens, 2 * kHead}},
             v(kTokens, 2 * kHead);
  v.fill(4);
  for (int i = 0; i < 2; ++i) {
    q[i].fill(2), k[i].fill(3);
    for (auto& half : memory[i]) half.assign(2 * 2 * kHead * 32 * 2, 0);
    choral_rotary_args args{.table = {table.data(), kHead, kHead, 8, 0, 0},
                            .positions = positions.data(),
                            .q = q[i].view(),
                            .k = k[i].view(),
                            .v = v.view(),
                            .cache = {memory[i][0].data(), memory[i][1].data(), CHORAL_BF16, 32, 2, 2, kHead, kHead},
                            .slots = slots.data()};
    TestLaunch launch;
    if (i == 0) {
      ASSERT_EQ(done(rope_write_kv(launch.get(), args)), cudaSuccess);
    } else {
      ASSERT_EQ(done(rotary_embedding(launch.get(), args)), cudaSuccess);
      ASSERT_EQ(done(write_kv(launch.get(), {.cache = args.cache, .k = args.k, .v = args.v, .slots = args.slots})), cudaSuccess);
    }
  }
  EXPECT_EQ(memory[0][0], memory[1][0]);
  EXPECT_EQ(memory[0][1], memory[1][1]);
  for (int64_t r = 0; r < kTokens; ++r) EXPECT_TRUE(same_bits(q[0].row(r), q[1].row(r)) && same_bits(k[0].row(r), k[1].row(r)));
}

}  // namespace
}  // namespace choral_cuda
