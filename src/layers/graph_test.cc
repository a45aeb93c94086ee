// Where a graph's matrices lie: memory is shared by those that no step needs at the same time, and by no others.
#include "layers/graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "platform/cpu_context_test.h"

namespace choral::layers {
namespace {

// y = or += x + 1, wherever they lie.
class PlusOne : public PluggedBlock {
 public:
  void forward(const platform::Context&, const ForwardBatch&, MatrixView<const float> x, bool add,
               MatrixView<float> y) const override {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) y.row(r)[c] = (add ? y.row(r)[c] : 0) + x.row(r)[c] + 1;
    }
  }
};

class GraphTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 4, kRows = 3;

  void add(Value x, Value y, bool add) { graph_.add(PluggedStep{&plus_one_, x, y, add}); }
  // What becomes of a residual of zeros; the same in all its elements.
  float run() {
    graph_.place();
    std::vector<float> h(kRows * kHidden, 0.0F);
    graph_.run(*cpu_, {}, {h.data(), kRows, kHidden});
    for (const float x : h) EXPECT_EQ(x, h[0]);
    return h[0];
  }

  platform::testing::CpuContext cpu_;
  PlusOne plus_one_;
  Graph graph_{kHidden};
};

TEST_F(GraphTest, AChainTakesTwoPlaces) {
  Value x = graph_.residual();
  for (int i = 0; i < 10; ++i) {
    const Value y = graph_.matrix(kHidden);
    add(x, y, false);
    x = y;
  }
  add(x, graph_.residual(), true);
  EXPECT_EQ(run(), 11.0F);
  EXPECT_EQ(graph_.floats_per_token(), 2 * kHidden);
}

TEST_F(GraphTest, WhatIsReadLaterKeepsItsPlace) {
  const Value early = graph_.matrix(kHidden), a = graph_.matrix(kHidden), b = graph_.matrix(kHidden);
  add(graph_.residual(), early, false);  // 1
  add(early, a, false);                  // 2
  add(a, b, false);                      // 3
  add(b, a, false);                      // 4
  add(early, a, true);                   // 6
  add(a, graph_.residual(), true);
  EXPECT_EQ(run(), 7.0F);
  EXPECT_EQ(graph_.floats_per_token(), 3 * kHidden);
}

TEST_F(GraphTest, APlaceIsAsWideAsItsWidestMatrix) {
  const Value wide = graph_.matrix(3 * kHidden), narrow = graph_.matrix(kHidden), again = graph_.matrix(2 * kHidden);
  for (int part = 0; part < 3; ++part) add(graph_.residual(), wide.columns(part * kHidden, kHidden), false);
  add(wide.columns(kHidden, kHidden), narrow, false);
  add(narrow, again.columns(kHidden, kHidden), false);
  add(again.columns(kHidden, kHidden), graph_.residual(), true);
  EXPECT_EQ(run(), 4.0F);
  EXPECT_EQ(graph_.floats_per_token(), 3 * kHidden + kHidden) << "the last one lies where the first did";
}

TEST_F(GraphTest, ScaleAndAddAreSteps) {
  const Value x = graph_.matrix(kHidden);
  add(graph_.residual(), x, false);
  graph_.add(ScaleStep{x, 2.5F});
  graph_.add(AddStep{x, graph_.residual()});
  graph_.add(AddStep{x, graph_.residual()});
  EXPECT_EQ(run(), 5.0F);
}

}  // namespace
}  // namespace choral::layers
