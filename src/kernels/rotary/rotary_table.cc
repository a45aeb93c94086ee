// The frequencies of each scaling and the table of cos and sin. Order and type of each operation are transformers'; see rotary.h.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/thread_pool.h"
#include "kernels/rotary/rotary.h"

namespace choral::kernels {
namespace {

bool positive(double x) { return std::isfinite(x) && x > 0.0; }

Status check(const RotaryParams& p) {
  if (p.head_dim <= 0 || p.rotary_dim <= 0 || p.rotary_dim % 2 != 0 || p.rotary_dim > p.head_dim || p.head_dim > 65536) {
    return invalid_argument("rotary: rotary_dim {} of head_dim {} is not a positive even part of it", p.rotary_dim, p.head_dim);
  }
  if (!positive(p.theta)) return invalid_argument("rotary: rope_theta {} is not a positive number", p.theta);
  if (p.max_positions <= 0) return invalid_argument("rotary: max_positions {} is not positive", p.max_positions);
  if (p.max_positions > RotaryTable::kMaxPositions ||
      p.max_positions * p.rotary_dim > RotaryTable::kMaxTableBytes / static_cast<int64_t>(sizeof(float))) {
    return too_large(
        "rotary: a table of {} positions of {} is over the limit of {} positions and {} bytes; lower the maximum length",
        p.max_positions, p.rotary_dim, RotaryTable::kMaxPositions, RotaryTable::kMaxTableBytes);
  }
  const auto half = static_cast<size_t>(p.rotary_dim / 2);
  if (!p.frequency_divisors.empty() && p.frequency_divisors.size() != half) {
    return invalid_argument("rotary: {} frequency divisors for {} frequencies", p.frequency_divisors.size(), half);
  }
  for (const auto& factor : {p.attention_factor, p.long_attention_factor}) {
    if (factor && !std::isfinite(*factor)) return invalid_argument("rotary: attention_factor is not finite");
  }
  if (p.scaling == RotaryScaling::kNone) return {};
  if (!positive(p.factor)) return invalid_argument("rotary: rope_scaling.factor {} is not a positive number", p.factor);
  if (p.scaling == RotaryScaling::kLinear) return {};
  if (p.original_max_position <= 0) {
    return invalid_argument(
        "rotary: this rope_scaling needs original_max_position_embeddings (or max_position_embeddings), got {}",
        p.original_max_position);
  }
  switch (p.scaling) {
    case RotaryScaling::kDynamic:
      if (p.rotary_dim <= 2) return invalid_argument("rotary: dynamic scaling needs a rotary_dim above 2");
      if (p.factor < 1.0) return invalid_argument("rotary: dynamic scaling needs a factor of at least 1, got {}", p.factor);
      break;
    case RotaryScaling::kLlama3:
      if (!positive(p.low_freq_factor) || !positive(p.high_freq_factor) || p.high_freq_factor <= p.low_freq_factor) {
        return invalid_argument("rotary: llama3 needs 0 < low_freq_factor < high_freq_factor, got {} and {}", p.low_freq_factor,
                                p.high_freq_factor);
      }
      break;
    case RotaryScaling::kYarn:
      if (!positive(p.beta_fast) || !positive(p.beta_slow) || p.theta == 1.0) {
        return invalid_argument("rotary: yarn needs positive beta_fast and beta_slow and a rope_theta other than 1");
      }
      break;
    case RotaryScaling::kLongRope:
      if (p.short_factors.size() != half || p.long_factors.size() != half) {
        return invalid_argument("rotary: longrope has {} short and {} long factors for {} frequencies", p.short_factors.size(),
                                p.long_factors.size(), half);
      }
      if (p.original_max_position < 2) return invalid_argument("rotary: longrope needs original_max_position_embeddings above 1");
      break;
    default: break;
  }
  return {};
}

// base^(2i/dim), rounded to float.
std::vector<float> position_frequencies(double base, int64_t dim) {
  std::vector<float> out;
  for (int64_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    out.push_back(static_cast<float>(std::pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent))));
  }
  return out;
}

std::vector<float> unscaled(double base, int64_t dim) {
  std::vector<float> f = position_frequencies(base, dim);
  for (float& x : f) x = 1.0f / x;
  return f;
}

std::vector<float> llama3(const RotaryParams& p) {
  std::vector<float> f = unscaled(p.theta, p.rotary_dim);
  const auto factor = static_cast<float>(p.factor), low = static_cast<float>(p.low_freq_factor);
  const auto original = static_cast<float>(p.original_max_position);
  const auto longest = static_cast<float>(static_cast<double>(p.original_max_position) / p.low_freq_factor);
  const auto shortest = static_cast<float>(static_cast<double>(p.original_max_position) / p.high_freq_factor);
  for (float& x : f) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / x;
    if (wavelength > longest) {
      x = x / factor;
    } else if (!(wavelength < shortest)) {
      const float smooth = (original / wavelength - low) / static_cast<float>(p.high_freq_factor - p.low_freq_factor);
      x = (1.0f - smooth) * x / factor + smooth * x;
    }
  }
  return f;
}

std::vector<float> yarn(const RotaryParams& p) {
  const auto dim = static_cast<double>(p.rotary_dim);
  const auto dimension_of = [&](double rotations) {
    return dim * std::log(static_cast<double>(p.original_max_position) / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(p.theta));
  };
  double low = dimension_of(p.beta_fast), high = dimension_of(p.beta_slow);
  if (p.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // no division by zero
  std::vector<float> f = position_frequencies(p.theta, p.rotary_dim);
  for (size_t i = 0; i < f.size(); ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float extrapolated = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    f[i] = 1.0f / (static_cast<float>(p.factor) * f[i]) * (1.0f - extrapolated) + 1.0f / f[i] * extrapolated;
  }
  return f;
}

bool takes_long_list(const RotaryParams& p) { return p.max_positions > p.original_max_position; }

std::vector<float> longrope(const RotaryParams& p) {
  const std::vector<float>& stretch = takes_long_list(p) ? p.long_factors : p.short_factors;
  std::vector<float> f = position_frequencies(p.theta, p.rotary_dim);
  for (size_t i = 0; i < f.size(); ++i) f[i] = 1.0f / (stretch[i] * f[i]);
  return f;
}

std::vector<float> frequencies(const RotaryParams& p) {
  switch (p.scaling) {
    case RotaryScaling::kNone: return unscaled(p.theta, p.rotary_dim);
    case RotaryScaling::kLinear: {
      std::vector<float> f = unscaled(p.theta, p.rotary_dim);
      for (float& x : f) x /= static_cast<float>(p.factor);
      return f;
    }
    case RotaryScaling::kDynamic: {
      const auto original = static_cast<double>(p.original_max_position), dim = static_cast<double>(p.rotary_dim);
      const double length = std::max(static_cast<double>(p.max_positions), original);
      return unscaled(p.theta * std::pow(p.factor * length / original - (p.factor - 1.0), dim / (dim - 2.0)), p.rotary_dim);
    }
    case RotaryScaling::kLlama3: return llama3(p);
    case RotaryScaling::kYarn: return yarn(p);
    case RotaryScaling::kLongRope: return longrope(p);
  }
  return {};
}

double cos_sin_factor(const RotaryParams& p) {
  if (p.scaling == RotaryScaling::kYarn) {
    if (p.attention_factor) return *p.attention_factor;
    const auto mscale = [&](double m) { return p.factor <= 1.0 ? 1.0 : 0.1 * m * std::log(p.factor) + 1.0; };
    if (p.mscale.value_or(0.0) != 0.0 && p.mscale_all_dim.value_or(0.0) != 0.0)
      return mscale(*p.mscale) / mscale(*p.mscale_all_dim);
    return mscale(1.0);
  }
  if (p.scaling == RotaryScaling::kLongRope) {
    if (p.long_attention_factor && takes_long_list(p)) return *p.long_attention_factor;
    if (p.attention_factor) return *p.attention_factor;
    return p.factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(p.factor) / std::log(static_cast<double>(p.original_max_position)));
  }
  return 1.0;
}

}  // namespace

Status RotaryTable::fill() {
  constexpr int64_t kWorthThreads = 1 << 20, kPositionsPerChunk = 256;  // a million angles take 20 ms
  constexpr int kMostThreads = 4;
  const int64_t half = rotary_dim_ / 2;
  const bool alone = max_positions_ * half < kWorthThreads;
  CHORAL_TRY(const auto pool, ThreadPool::make(alone ? 1 : std::min(kMostThreads, ThreadPool::default_size())));
  pool->parallel_for(max_positions_, kPositionsPerChunk, [&](int64_t begin, int64_t end, int) {
    float* row = table_.as<float>().data() + begin * rotary_dim_;
    for (int64_t position = begin; position < end; ++position, row += rotary_dim_) {
      for (int64_t i = 0; i < half; ++i) {
        const auto angle = static_cast<double>(static_cast<float>(position) * inv_freq_[i]);  // the product is rounded to float
        row[i] = static_cast<float>(std::cos(angle)) * attention_factor_;
        row[half + i] = static_cast<float>(std::sin(angle)) * attention_factor_;
      }
    }
  });
  return {};
}

Result<RotaryTable> RotaryTable::make(const RotaryParams& params) {
  CHORAL_RETURN_IF_ERROR(check(params));
  RotaryTable t;
  t.head_dim_ = params.head_dim;
  t.rotary_dim_ = params.rotary_dim;
  t.max_positions_ = params.max_positions;
  t.interleaved_ = params.interleaved;
  t.inv_freq_ = frequencies(params);
  for (size_t i = 0; i < params.frequency_divisors.size(); ++i) t.inv_freq_[i] /= params.frequency_divisors[i];
  for (const float f : t.inv_freq_) {
    if (!std::isfinite(f))
      return invalid_argument("rotary: the parameters give a frequency that is not finite; check factors and divisors");
  }
  t.attention_factor_ = static_cast<float>(cos_sin_factor(params));
  CHORAL_TRY(t.table_, AlignedBuffer::allocate(static_cast<size_t>(params.max_positions * params.rotary_dim) * sizeof(float)));
  CHORAL_RETURN_IF_ERROR(t.fill());
  return t;
}

}  // namespace choral::kernels
