#include "platform/plugin/conformance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"

namespace choral::platform {
namespace {

// Sums of a device may be made in another order and in another precision of intermediate values than the host's.
constexpr float kTolerance = 2e-3F;

Status compare(const Context& ctx, ops::In got, ops::In wanted) {
  const HostView<const float> a(ctx, got, Access::kRead), b(ctx, wanted, Access::kRead);
  for (int64_t r = 0; r < got.rows; ++r) {
    for (int64_t c = 0; c < got.cols; ++c) {
      const float x = (*a).row(r)[c], y = (*b).row(r)[c];
      if (std::abs(x - y) <= kTolerance * std::max(1.0F, std::abs(y))) continue;
      return internal_error("{} instead of {} at [{}, {}] of its test vector", x, y, r, c);
    }
  }
  return {};
}

Status compare_bits(const Context& ctx, ops::In alone, ops::In together) {
  const HostView<const float> a(ctx, alone, Access::kRead), b(ctx, together, Access::kRead);
  for (int64_t r = 0; r < alone.rows; ++r) {
    for (int64_t c = 0; c < alone.cols; ++c) {
      const float x = (*a).row(r)[c], y = (*b).row(r)[c];
      if (std::bit_cast<uint32_t>(x) != std::bit_cast<uint32_t>(y)) {
        return internal_error("{:a} instead of {:a} at [{}, {}] of its test vector", x, y, r, c);
      }
    }
  }
  return {};
}

// row_bytes(dtype, floats) at `to`.
void store(DType dtype, std::span<const float> floats, std::byte* to) {
  for (size_t i = 0; i < floats.size(); ++i) {
    const auto put = [&](const auto& value) { std::memcpy(to + i * sizeof value, &value, sizeof value); };
    if (dtype == DType::kF32) put(floats[i]);
    if (dtype == DType::kF16) put(to_float16(floats[i]));
    if (dtype == DType::kBF16) put(to_bfloat16(floats[i]));
  }
}

}  // namespace

std::vector<float> ConformanceRun::values(int64_t count) {
  std::vector<float> out(count);
  for (float& x : out) {
    seed_ = seed_ * 1664525U + 1013904223U;
    x = static_cast<float>(static_cast<int32_t>(seed_ >> 8) % 2000 - 1000) / 1000.0F;
  }
  return out;
}

ops::Out ConformanceRun::matrix_of(const std::vector<float>& values, int64_t rows, int64_t cols) {
  const auto wide = ctx_.make_matrix(rows, cols + kGap);
  copy_to_device(ctx_, {values.data(), rows, cols + kGap}, wide);
  return wide.sub_cols(0, cols);
}

ops::Out ConformanceRun::matrix_to_round(int64_t rows, int64_t cols, DType type) {
  auto host = values(rows * (cols + kGap));
  const auto round = [&](float x) { return type == DType::kF16 ? to_float(to_float16(x)) : to_float(to_bfloat16(x)); };
  if (is_reference()) std::transform(host.begin(), host.end(), host.begin(), round);
  return matrix_of(host, rows, cols);
}

ops::Weight ConformanceRun::weight(int64_t count) {
  const auto host = values(count);
  return {to_device(ctx_, std::span<const float>(host)), host.size()};
}

ops::Indices ConformanceRun::indices(std::span<const int32_t> values) {
  const auto host = ctx_.kernel.scratch.make<int32_t>(values.size());
  std::copy(values.begin(), values.end(), host.begin());
  return place_indices(ctx_, std::span<const int32_t>(host));
}

ops::Slots ConformanceRun::slots(const std::vector<int64_t>& values) {
  const auto host = ctx_.kernel.scratch.make<int64_t>(values.size());
  std::copy(values.begin(), values.end(), host.begin());
  return place_indices(ctx_, std::span<const int64_t>(host));
}

ops::Stack ConformanceRun::stack(int64_t slots, int64_t rows, int64_t cols, DType dtype) {
  return stack_of(values(slots * rows * cols), slots, rows, cols, dtype);
}

ops::Stack ConformanceRun::stack(Ranked ranked, std::span<const int32_t> ranks, int64_t rows, int64_t cols, DType dtype) {
  const auto slots = static_cast<int64_t>(ranks.size());
  auto floats = values(slots * rows * cols);
  for (int64_t i = 0; i < std::ssize(floats); ++i) {
    const int64_t along_rank = ranked == Ranked::kA ? i / cols % rows : i % cols;
    if (along_rank >= ranks[i / (rows * cols)]) floats[i] = 0;
  }
  ops::Stack made = stack_of(floats, slots, rows, cols, dtype);
  made.ranks = indices(ranks);
  return made;
}

ops::Stack ConformanceRun::stack_of(std::span<const float> floats, int64_t slots, int64_t rows, int64_t cols, DType dtype) {
  const auto bytes = ctx_.kernel.scratch.make<std::byte>(row_bytes(dtype, slots * rows * cols));
  store(dtype, floats, bytes.data());
  return {{to_device(ctx_, std::span<const std::byte>(bytes)), dtype, slots, rows, cols, row_bytes(dtype, cols)}, {}};
}

PlacedRotary ConformanceRun::rotary(const kernels::RotaryParams& params) {
  auto table = kernels::RotaryTable::make(params);
  CHORAL_CHECK(table.ok(), table.status().message());
  rotaries_.push_back(std::make_unique<kernels::RotaryTable>(std::move(*table)));
  return {*rotaries_.back(), to_device(ctx_, rotaries_.back()->values())};
}

const kernels::PackedMatrix* ConformanceRun::packed(int64_t n, int64_t k, DType dtype, kernels::Activations activations) {
  std::vector<std::byte> stored(row_bytes(dtype, n * k));
  store(dtype, values(n * k), stored.data());
  const kernels::WeightRows part{{stored.data(), dtype, {n, k}, kCpuDevice}, {}};
  return packed({.rows = {&part, 1}, .format = dtype, .activations = activations});
}

const kernels::PackedMatrix* ConformanceRun::packed(const kernels::PackSpec& weight) {
  auto matrix = is_reference() ? kernels::pack_weight(weight, ctx_.kernel.pool)
                               : static_cast<PluginSession&>(ctx_.session).pack_on_device(weight);
  if (!matrix.ok()) {
    status_ = matrix.status();
    return nullptr;
  }
  matrices_.push_back(std::move(*matrix));
  return matrices_.back().get();
}

ops::Weight ConformanceRun::beside_packed(int64_t count) {
  const auto host = values(count);
  if (!is_reference()) return {to_device(ctx_, std::span<const float>(host)), host.size()};
  const auto kept = ctx_.kernel.scratch.make<float>(host.size());
  std::copy(host.begin(), host.end(), kept.begin());
  return kept;
}

std::byte* ConformanceRun::kv_memory(int64_t blocks, int64_t elements, DType dtype) {
  const Shape shape{blocks, elements * kernels::kKvBlockTokens};
  auto tensor = is_reference() ? Tensor::allocate(dtype, shape) : ctx_.session.allocate_kv(dtype, shape);
  if (!tensor.ok()) {
    status_ = std::move(tensor).status();
    return nullptr;
  }
  tensors_.push_back(std::move(*tensor));
  return tensors_.back().data();
}

ops::KvCacheView ConformanceRun::cache(int64_t blocks, int64_t kv_heads, int64_t head_dim, int64_t v_head_dim, DType dtype) {
  auto view = latent_cache(blocks, kv_heads, head_dim, v_head_dim, dtype);
  view.values = kv_memory(blocks, kv_heads * kernels::kv_value_stride(v_head_dim), dtype);
  return view;
}

ops::KvCacheView ConformanceRun::latent_cache(int64_t blocks, int64_t kv_heads, int64_t head_dim, int64_t v_head_dim,
                                              DType dtype) {
  return {kv_memory(blocks, kv_heads * head_dim, dtype), nullptr, dtype, blocks, kv_heads, head_dim, v_head_dim};
}

// What `test` gives on this side, or why it gives nothing.
Result<std::vector<ops::Out>> Conformance::run(ConformanceRun& side, std::string_view with, Test test) const {
  auto results = test(side);
  CHORAL_RETURN_IF_ERROR(Status(side.status()));
  if (Status refused = static_cast<PluginSession&>(ctx_.session).take_refusal(); !refused.ok()) {
    return unsupported("it failed{}: {}", with, refused.message());
  }
  return results;
}

Status Conformance::check(std::string_view feature, Test test) const {
  const StepMark mark(ctx_);
  const Context reference(ctx_, reference_);
  ConformanceRun ours(reference, reference_, Side::kReference), theirs(ctx_, table_, Side::kDevice),
      by_rows(ctx_, table_, Side::kDeviceByRows);
  const auto with = feature.empty() ? std::string() : fmt::format(" with {}", feature);
  CHORAL_TRY(const auto got, run(theirs, with, test));
  CHORAL_TRY(const auto wanted, run(ours, with, test));
  for (size_t i = 0; i < got.size(); ++i) {
    const Status same = compare(ctx_, got[i], wanted[i]);
    if (!same.ok()) return internal_error("it disagrees with the reference{}: {}", with, same.message());
  }
  CHORAL_TRY(const auto alone, run(by_rows, with, test));
  for (size_t i = 0; i < got.size(); ++i) {
    const Status same = compare_bits(ctx_, alone[i], got[i]);
    if (!same.ok()) return internal_error("a row alone has other bits than in company{}: {}", with, same.message());
  }
  return {};
}

Status check_conformance(const Context& ctx, OpId op, const OpTable& table) {
  Status status;
  AllOps::at(op, [&]<class D>(D) {
    if constexpr (HasOotForm<D>) {
      Conformance conformance(ctx, table);
      status = D::conform(conformance);
    }
  });
  return status;
}

}  // namespace choral::platform
