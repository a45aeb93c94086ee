// The operators on adapters' stacks: against sums in double; a row has the same bits by its own slot and by its sequence's, alone
// and among many, with its slot's rank and without; rows of no slot are not touched. Those of several projections are these.
#include <cmath>

#include "float16.h"
#include "kernel_testing.h"

namespace choral_cuda {
namespace {

class TestStack {
 public:
  TestStack(int64_t slots, int64_t rows, int64_t cols, int32_t dtype) : slots_(slots), rows_(rows), cols_(cols), dtype_(dtype) {
    for (const float x : random_floats(slots * rows * cols, 5)) {
      halves_.push_back(dtype == CHORAL_F16 ? to_f16(x) : to_bf16(x));
      floats_.push_back(dtype == CHORAL_F32 ? x : dtype == CHORAL_F16 ? from_f16(halves_.back()) : from_bf16(halves_.back()));
    }
  }
  choral_lora_stack view() const {
    return {dtype_ == CHORAL_F32 ? static_cast<const void*>(floats_.data()) : halves_.data(), slots_, rows_, cols_, dtype_, 0};
  }
  enum class Rank { kRows, kCols };
  // What lies beyond the slots' ranks becomes `value`.
  void fill_beyond(const Shared<int32_t>& ranks, Rank along, float value) {
    for (int64_t i = 0; i < slots_ * rows_ * cols_; ++i) {
      if ((along == Rank::kRows ? i / cols_ % rows_ : i % cols_) < ranks[i / (rows_ * cols_)]) continue;
      halves_[i] = dtype_ == CHORAL_F16 ? to_f16(value) : to_bf16(value);
      floats_[i] = value;
    }
  }
  double at(int64_t slot, int64_t row, int64_t col) const { return floats_[(slot * rows_ + row) * cols_ + col]; }

 private:
  int64_t slots_, rows_, cols_;
  int32_t dtype_;
  Shared<float> floats_;
  Shared<uint16_t> halves_;
};

constexpr int64_t kSlots = 3;
const Shared<int32_t> kStarts{0, 1, 2, 12, 13}, kLengths{1, 1, 10, 1, 5}, kSequenceSlots{1, -1, 0, 2, 0};
constexpr int64_t kRows = 18;

Shared<int32_t> slots_of_rows() {
  Shared<int32_t> slots;
  for (size_t s = 0; s < kStarts.size(); ++s) slots.insert(slots.end(), kLengths[s], kSequenceSlots[s]);
  return slots;
}

choral_lora_args by_sequence(choral_lora_args a) {
  a.slot_of = kSequenceSlots.data();
  a.starts = kStarts.data();
  a.lengths = kLengths.data();
  a.sequence_count = std::ssize(kStarts);
  a.max_length = 10;
  return a;
}

struct Case {
  int32_t dtype;
  int64_t rank, in, out;
};

class Lora : public ::testing::TestWithParam<Case> {
 protected:
  // Of a sum of products whose magnitudes come to so much: x and stacks have 16 bits.
  static double tolerance(double magnitude) { return 1e-6 + magnitude * 0x1p-16; }

  const Case param_ = GetParam();
  const Shared<int32_t> slots_ = slots_of_rows();
};

TEST_P(Lora, ShrinkIsTheScaledProduct) {
  const TestStack a(kSlots, param_.rank, param_.in, param_.dtype);
  TestMatrix x(kRows, param_.in), y(kRows, param_.rank), other(kRows, param_.rank);
  x.fill(1);
  y.fill(2), other.fill(2);
  const TestMatrix before = y;
  const choral_lora_args args{.x = x.view(), .stack = a.view(), .y = y.view(), .slot_of = slots_.data(), .scaling = 0.5f};
  ASSERT_EQ(done(bgmv_shrink(TestLaunch(0, 1000).get(), args)), cudaSuccess);
  auto sequences = by_sequence(args);
  sequences.y = other.view();
  ASSERT_EQ(done(sgmv_shrink(TestLaunch(0, 1).get(), sequences)), cudaSuccess);  // several rows at a time
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_TRUE(same_bits(y.row(r), other.row(r))) << r;
    for (int64_t j = 0; j < param_.rank; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < param_.in && slots_[r] >= 0; ++k) {
        sum += x.at(r, k) * a.at(slots_[r], j, k);
        magnitude += std::abs(x.at(r, k) * a.at(slots_[r], j, k));
      }
      expect_near(y.at(r, j), slots_[r] < 0 ? before.at(r, j) : 0.5 * sum, tolerance(magnitude), r, j);
    }
    TestMatrix alone(1, param_.rank);
    alone.set_row(0, before.row(r));
    choral_lora_args one = args;
    one.x = x.rows_from(r, 1), one.y = alone.view(), one.slot_of = &slots_[r];
    ASSERT_EQ(done(bgmv_shrink(TestLaunch().get(), one)), cudaSuccess);
    EXPECT_TRUE(same_bits(alone.row(0), y.row(r)));
  }
  EXPECT_TRUE(y.gaps_are_whole());
}

TEST_P(Lora, ExpandAddsOrAssigns) {
  const TestStack b(kSlots, param_.out, param_.rank, param_.dtype);
  for (const int32_t add : {0, 1}) {
    for (const int64_t begin : {int64_t{0}, int64_t{11}}) {
      TestMatrix x(kRows, param_.rank), y(kRows, param_.out + begin + 2), other(kRows, y.cols());
      x.fill(1), y.fill(2), other.fill(2);
      const TestMatrix before = y;
      const choral_lora_args args{
          .x = x.view(), .stack = b.view(), .y = y.view(), .slot_of = slots_.data(), .slice_begin = begin, .add = add};
      auto sequences = by_sequence(args);
      sequences.y = other.view();
      ASSERT_EQ(done((begin == 0 ? bgmv_expand : bgmv_expand_slice)(TestLaunch(0, 1000).get(), args)), cudaSuccess);
      ASSERT_EQ(done((begin == 0 ? sgmv_expand : sgmv_expand_slice)(TestLaunch(0, 1).get(), sequences)), cudaSuccess);
      for (int64_t r = 0; r < kRows; ++r) {
        EXPECT_TRUE(same_bits(y.row(r), other.row(r))) << r;
        for (int64_t c = 0; c < y.cols(); ++c) {
          const int64_t o = c - begin;
          double wanted = before.at(r, c), magnitude = 0;
          if (slots_[r] >= 0 && o >= 0 && o < param_.out) {
            wanted = add != 0 ? wanted : 0;
            for (int64_t k = 0; k < param_.rank; ++k) {
              wanted += x.at(r, k) * b.at(slots_[r], o, k);
              magnitude += std::abs(x.at(r, k) * b.at(slots_[r], o, k));
            }
          }
          expect_near(y.at(r, c), wanted, tolerance(magnitude), r, c);
        }
      }
    }
  }
}

// Beside ranks the padding is not read: with noise there bits are those of zeros without ranks.
TEST_P(Lora, RanksOfSlotsSpareWorkAndChangeNoBit) {
  using Rank = TestStack::Rank;
  const Shared<int32_t> ranks{static_cast<int32_t>(param_.rank) - 2, static_cast<int32_t>(param_.rank), 0};
  constexpr float kNoise = 1000;
  for (const bool shrink : {true, false}) {
    const int64_t rows = shrink ? param_.rank : param_.out, cols = shrink ? param_.in : param_.rank;
    TestStack zeros(kSlots, rows, cols, param_.dtype), noise(kSlots, rows, cols, param_.dtype);
    zeros.fill_beyond(ranks, shrink ? Rank::kRows : Rank::kCols, 0);
    noise.fill_beyond(ranks, shrink ? Rank::kRows : Rank::kCols, kNoise);
    for (const int32_t add : {0, 1}) {
      TestMatrix x(kRows, cols), wanted(kRows, rows), by_rows(kRows, rows), by_sequences(kRows, rows);
      x.fill(1), wanted.fill(2), by_rows.fill(2), by_sequences.fill(2);
      choral_lora_args args{.x = x.view(), .stack = zeros.view(), .y = wanted.view(), .slot_of = slots_.data(), .scaling = 1};
      args.add = add;
      ASSERT_EQ(done((shrink ? bgmv_shrink : bgmv_expand)(TestLaunch(0, 1000).get(), args)), cudaSuccess);
      args.stack = noise.view(), args.ranks = ranks.data(), args.y = by_rows.view();
      ASSERT_EQ(done((shrink ? bgmv_shrink : bgmv_expand)(TestLaunch(0, 1000).get(), args)), cudaSuccess);
      args.y = by_sequences.view();
      ASSERT_EQ(done((shrink ? sgmv_shrink : sgmv_expand)(TestLaunch(0, 1).get(), by_sequence(args))), cudaSuccess);
      for (int64_t r = 0; r < kRows; ++r) {
        EXPECT_TRUE(same_bits(by_rows.row(r), wanted.row(r))) << shrink << ' ' << r;
        EXPECT_TRUE(same_bits(by_sequences.row(r), wanted.row(r))) << shrink << ' ' << r;
      }
    }
  }
}

// A product too small for a float is −0, which a zero added to it makes +0; so is y, that it is added to.
TEST(LoraRanks, MinusZeroIsThatOfThePadding) {
  const Shared<int32_t> none{0}, one{1}, slot{0};
  TestStack tiny(1, 20, 8, CHORAL_F32);
  tiny.fill_beyond(none, TestStack::Rank::kCols, -1e-30f);
  tiny.fill_beyond(one, TestStack::Rank::kCols, 0);
  TestMatrix x(1, 8), padded(1, 20), ranked(1, 20);
  for (int64_t k = 0; k < 8; ++k) x.at(0, k) = k == 0 ? 1e-30f : 0.0f;
  for (const int32_t add : {0, 1}) {
    for (int64_t c = 0; c < 20; ++c) padded.at(0, c) = ranked.at(0, c) = -0.0f;
    choral_lora_args args{.x = x.view(), .stack = tiny.view(), .y = padded.view(), .slot_of = slot.data()};
    args.add = add;
    ASSERT_EQ(done(bgmv_expand(TestLaunch().get(), args)), cudaSuccess);
    args.ranks = one.data(), args.y = ranked.view();
    ASSERT_EQ(done(bgmv_expand(TestLaunch().get(), args)), cudaSuccess);
    EXPECT_TRUE(same_bits(ranked.row(0), padded.row(0)));
    EXPECT_FALSE(std::signbit(ranked.at(0, 0)));
  }
}

INSTANTIATE_TEST_SUITE_P(Stacks, Lora,
                         ::testing::Values(Case{CHORAL_F32, 8, 48, 20}, Case{CHORAL_BF16, 16, 600, 136},
                                           Case{CHORAL_F16, 8, 264, 20}, Case{CHORAL_BF16, 5, 37, 13},
                                           Case{CHORAL_F32, 3, 301, 150}, Case{CHORAL_BF16, 24, 4640, 13},
                                           Case{CHORAL_BF16, 3, 4101, 8}));

// Projections of one x, each of another rank and width; in some slots nobody touches them.
struct Projection {
  int64_t rank, out, begin;
  Shared<int32_t> ranks;
};
const std::vector<Projection> kProjections{
    {8, 20, 0, {5, 8, 0}}, {16, 136, 20, {0, 16, 3}}, {5, 7, 156, {2, 0, 5}}, {40, 2, 163, {40, 1, 0}}};
constexpr int64_t kShared = 264, kAll = 168;

class LoraSlices : public ::testing::TestWithParam<int32_t> {
 protected:
  LoraSlices() {
    for (const Projection& p : kProjections) {
      a_.emplace_back(kSlots, p.rank, kShared, GetParam());
      b_.emplace_back(kSlots, p.out, p.rank, GetParam());
    }
    x_.fill(1);
  }
  // What is written.
  struct Results {
    Results() {
      for (const Projection& p : kProjections) middles.emplace_back(kRows, p.rank).fill(2);
      y.fill(3);
    }
    std::vector<TestMatrix> middles;
    TestMatrix y{kRows, kAll};
  };
  enum class Op { kShrink, kExpand };

  choral_lora_slices_args args(Op op, int64_t count, bool by_sequences, Results& results) {
    const auto named = by_sequences ? by_sequence({}) : choral_lora_args{.slot_of = slots_.data()};
    choral_lora_slices_args args{.x = x_.view(),
                                 .y = results.y.view(),
                                 .slot_of = named.slot_of,
                                 .starts = named.starts,
                                 .lengths = named.lengths,
                                 .sequence_count = named.sequence_count,
                                 .max_length = named.max_length,
                                 .scaling = 0.5f,
                                 .add = 1,
                                 .slice_count = count};
    for (int64_t i = 0; i < count; ++i) {
      const Projection& p = kProjections[i];
      args.slices[i] = {(op == Op::kShrink ? a_ : b_)[i].view(), p.ranks.data(), results.middles[i].view(), p.begin};
    }
    return args;
  }
  static void run_together(Op op, const choral_lora_slices_args& args, int sm_count) {
    const int64_t before = launches_so_far();
    ASSERT_EQ(done((op == Op::kShrink ? lora_shrink : lora_expand)(TestLaunch(0, sm_count).get(), args)), cudaSuccess);
    if (before >= 0) {
      EXPECT_EQ(launches_so_far() - before, 1);
    }
  }
  static void run_alone(Op op, const choral_lora_slices_args& args) {
    const bool by_row = args.starts == nullptr;
    for (int64_t i = 0; i < args.slice_count; ++i) {
      const auto part = (op == Op::kShrink ? shrink_of : expand_of)(args, args.slices[i]);
      const auto run =
          op == Op::kShrink ? (by_row ? bgmv_shrink : sgmv_shrink) : (by_row ? bgmv_expand_slice : sgmv_expand_slice);
      ASSERT_EQ(done(run(TestLaunch(0, 1000).get(), part)), cudaSuccess);
    }
  }

  const Shared<int32_t> slots_ = slots_of_rows();
  std::vector<TestStack> a_, b_;
  TestMatrix x_{kRows, kShared};
};

TEST_P(LoraSlices, AreOneLaunchWithTheBitsOfEachAlone) {
  for (const int64_t count : {1, 3, 4}) {
    for (const bool by_sequences : {false, true}) {
      for (const int sm_count : {1, 1000}) {  // several rows at a time, and one
        Results together, alone;
        for (const Op op : {Op::kShrink, Op::kExpand}) {
          run_together(op, args(op, count, by_sequences, together), sm_count);
          run_alone(op, args(op, count, by_sequences, alone));
        }
        for (int64_t r = 0; r < kRows; ++r) {
          EXPECT_TRUE(same_bits(together.y.row(r), alone.y.row(r))) << count << ' ' << r;
          for (size_t i = 0; i < kProjections.size(); ++i)
            EXPECT_TRUE(same_bits(together.middles[i].row(r), alone.middles[i].row(r))) << count << ' ' << i << ' ' << r;
        }
        EXPECT_TRUE(together.y.gaps_are_whole());
        const Results untouched;
        EXPECT_TRUE(same_bits(together.y.row(1), untouched.y.row(1))) << "a row of no slot";
        EXPECT_FALSE(same_bits(together.y.row(0), untouched.y.row(0)));
      }
    }
  }
}

TEST_P(LoraSlices, ASlotThatOneStackLacksIsAFaultOfThatSlice) {
  Results results, whole;
  const Results before;
  auto lacking = args(Op::kShrink, 3, false, results);
  lacking.slices[1].stack.slots = 1;  // the first row has slot 1
  TestLaunch launch;
  ASSERT_EQ(done(lora_shrink(launch.get(), lacking)), cudaSuccess);
  EXPECT_EQ(launch.fault(), kAdapterBeyond);
  run_together(Op::kShrink, args(Op::kShrink, 3, false, whole), 4);
  EXPECT_TRUE(same_bits(results.middles[0].row(0), whole.middles[0].row(0)));
  EXPECT_TRUE(same_bits(results.middles[1].row(0), before.middles[1].row(0)));
  EXPECT_TRUE(same_bits(results.middles[2].row(0), whole.middles[2].row(0)));
}

INSTANTIATE_TEST_SUITE_P(Types, LoraSlices, ::testing::Values(CHORAL_F32, CHORAL_F16, CHORAL_BF16));

TEST(LoraScale, MultipliesByTheSlotsFactors) {
  constexpr int64_t kCols = 150;
  const TestStack f(kSlots, 1, kCols, CHORAL_F32);
  const auto slots = slots_of_rows();
  TestMatrix y(kRows, kCols);
  y.fill(1);
  const TestMatrix before = y;
  ASSERT_EQ(done(bgmv_scale(TestLaunch().get(), {.stack = f.view(), .y = y.view(), .slot_of = slots.data()})), cudaSuccess);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kCols; ++c) {
      EXPECT_EQ(y.at(r, c), slots[r] < 0 ? before.at(r, c) : before.at(r, c) * static_cast<float>(f.at(slots[r], 0, c)));
    }
  }
}

TEST(LoraFaults, SlotsAndSequencesThatAreNotThere) {
  const TestStack a(kSlots, 8, 32, CHORAL_F32);
  TestMatrix x(4, 32), y(4, 8);
  x.fill(1);
  const Shared<int32_t> slots{3, 0, -2, -1}, start{2}, length{3}, slot{0};
  const choral_lora_args args{.x = x.view(), .stack = a.view(), .y = y.view(), .slot_of = slots.data(), .scaling = 1};
  TestLaunch rows, sequences;
  ASSERT_EQ(done(bgmv_shrink(rows.get(), args)), cudaSuccess);
  EXPECT_EQ(rows.fault(), kAdapterBeyond);
  for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(std::isnan(y.at(r, 0)), r != 1);
  for (const int32_t rank : {9, -1}) {
    const Shared<int32_t> ranks{rank, 8, 8};
    auto ranked = args;
    ranked.slot_of = slot.data(), ranked.ranks = ranks.data();
    ranked.x.rows = ranked.y.rows = 1;
    TestLaunch launch;
    ASSERT_EQ(done(bgmv_shrink(launch.get(), ranked)), cudaSuccess);
    EXPECT_EQ(launch.fault(), kAdapterBeyond) << rank;
    EXPECT_TRUE(std::isnan(y.at(0, 0)));
  }
  auto beyond = args;
  beyond.slot_of = slot.data(), beyond.starts = start.data(), beyond.lengths = length.data(), beyond.sequence_count = 1;
  ASSERT_EQ(done(sgmv_shrink(sequences.get(), beyond)), cudaSuccess);
  EXPECT_EQ(sequences.fault(), kAdapterBeyond);
  EXPECT_TRUE(std::isnan(y.at(2, 0)));
}

}  // namespace
}  // namespace choral_cuda
