#include "kernels/recurrent/causal_conv1d.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent/causal_conv1d.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/activation/activation_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// The channels of one row from the rows that it sees, oldest first, its own last.
struct ConvolvedRow {
  const float* const* seen;
  const float *weight, *bias;  // no bias: null
  int64_t taps, weight_stride;
  template <class Load>
  HWY_INLINE VF sum(int64_t i, Load load) const {
    VF y = hn::Mul(load(weight + i), load(seen[0] + i));
    if (bias != nullptr) y = hn::Add(y, load(bias + i));
    for (int64_t tap = 1; tap < taps; ++tap) y = hn::MulAdd(load(weight + tap * weight_stride + i), load(seen[tap] + i), y);
    return Silu()(y);
  }
  HWY_INLINE VF full(int64_t i) const {
    return sum(i, [](const float* p) HWY_ATTR { return hn::LoadU(F32(), p); });
  }
  HWY_INLINE VF tail(int64_t i, size_t rest) const {
    return sum(i, [rest](const float* p) HWY_ATTR { return load_tail(p, rest); });
  }
};

void convolve_row(const float* const* seen, const float* weight, const float* bias, int64_t taps, int64_t weight_stride,
                  int64_t count, float* y) {
  write_row(ConvolvedRow{seen, weight, bias, taps, weight_stride}, count, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "kernels/highway_level.h"

namespace choral::kernels {
namespace {

constexpr int64_t kTaskChannels = 256;  // a task's rows of a run stay in the first cache

using Convolve = void (*)(const float* const*, const float*, const float*, int64_t, int64_t, int64_t, float*);

// One run of some channels. From its last row to its first, so that what a row sees is not written over yet.
void convolve_run(Convolve convolve, const CausalConv& conv, StateView tails, const StateRun& run, MatrixView<float> x,
                  int64_t channel, int64_t count) {
  const int64_t kept = conv.taps - 1, channels = conv.channels();
  std::array<float, (CausalConv::kMostTaps - 1) * kTaskChannels> before{};
  if (run.from != kNoState) {
    for (int64_t i = 0; i < kept; ++i) std::copy_n(tails.at(run.from) + i * channels + channel, count, &before[i * count]);
  }
  // Row t of what the run sees: of the tail, oldest first, then of x.
  const auto seen = [&](int64_t t) -> const float* {
    return t < kept ? &before[t * count] : x.row(run.first_row + t - kept) + channel;
  };
  for (int64_t i = 0; i < kept; ++i) std::copy_n(seen(run.row_count + i), count, tails.at(run.to) + i * channels + channel);
  std::array<const float*, CausalConv::kMostTaps> rows{};
  const float* const bias = conv.bias.empty() ? nullptr : conv.bias.data() + channel;
  for (int64_t t = run.row_count; t-- > 0;) {
    for (int64_t tap = 0; tap < conv.taps; ++tap) rows[tap] = seen(t + tap);
    convolve(rows.data(), conv.weight.data() + channel, bias, conv.taps, channels, count, x.row(run.first_row + t) + channel);
  }
}

}  // namespace

void causal_conv1d(const Context& ctx, const CausalConv& conv, StateView tails, std::span<const StateRun> runs,
                   MatrixView<float> x) {
  CHORAL_CHECK(conv.taps >= 2 && conv.taps <= CausalConv::kMostTaps && conv.channels() == x.cols &&
                   (conv.bias.empty() || std::ssize(conv.bias) == x.cols),
               "a convolution fits x");
  check_runs(runs, tails, x.rows);
  const auto convolve = CHORAL_AT_LEVEL(ctx.level, convolve_row);
  const int64_t pieces = ceil_div(x.cols, kTaskChannels);
  ctx.pool.parallel_for(pieces * std::ssize(runs), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task / pieces, channel = task % pieces * kTaskChannels;
      if (first > 0 && runs_of_sequence(runs, first - 1) > 1) continue;  // goes with the one before
      for (const StateRun& run : runs.subspan(first, runs_of_sequence(runs, first))) {
        convolve_run(convolve, conv, tails, run, x, channel, std::min(kTaskChannels, x.cols - channel));
      }
    }
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
