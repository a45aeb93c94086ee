// The operators of one device. Layers call them through this table and know no kernel, so that a device moves in without
// touching layers or models. Each entry has a name, a semantic version and the provider that serves it (`choral doctor --ops`).
// Filled once when the platform starts, then read-only. All matrices are fp32 rows on the platform's device.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kernels/attention.h"
#include "kernels/lora_batch.h"
#include "kernels/packed_matrix.h"
#include "kernels/rotary.h"
#include "platform/context.h"
#include "platform/op_profile.h"

namespace choral::platform {

template <class Signature>
struct Op;

template <class... Args>
struct Op<void(const Context&, Args...)> {
  explicit constexpr Op(std::string_view op_name, int op_version = 1) : name(op_name), version(op_version) {}

  std::string_view name;
  int version;
  std::string_view provider;  // "cpu", "native", a plug-in's name
  void (*run)(const Context&, Args...) = nullptr;

  void operator()(const Context& ctx, Args... args) const {
    if (ctx.profile == nullptr) [[likely]]
      return run(ctx, args...);
    const double begin = now_s();
    run(ctx, args...);
    ctx.profile->add(name, now_s() - begin);
  }
};

struct OpFacts {
  std::string_view name;
  int version;
  std::string_view provider;
};

struct OpTable {
  // y = x·Wᵀ with its epilogue. x [m, k], y [m, n]
  Op<void(const Context&, const kernels::PackedMatrix&, MatrixView<const float>, const kernels::Epilogue&, MatrixView<float>)>
      matmul{"matmul"};
  // what adapters add to a matmul: every middle = factor · scale · x·Aᵀ, then every y += B·middle
  Op<void(const Context&, std::span<const kernels::LoRAShrink>)> lora_shrink{"lora_shrink"};
  Op<void(const Context&, std::span<const kernels::LoRAExpand>)> lora_expand{"lora_expand"};
  // out row i = row ids[i] of W
  Op<void(const Context&, const kernels::PackedMatrix&, std::span<const int32_t>, MatrixView<float>)> gather_rows{"gather_rows"};
  // out row i = row rows[i] of x
  Op<void(const Context&, MatrixView<const float>, std::span<const int32_t>, MatrixView<float>)> take_rows{"take_rows"};
  // y = x·rsqrt(mean(x²) + eps)·w, row by row; x and y may be the same
  Op<void(const Context&, MatrixView<const float>, std::span<const float>, float, MatrixView<float>)> rms_norm{"rms_norm"};
  // the same for each run of w's size within a row: one head, in place
  Op<void(const Context&, MatrixView<float>, std::span<const float>, float)> rms_norm_heads{"rms_norm_heads"};
  // q and k are turned by their positions, in place. [tokens, heads·head_dim]
  Op<void(const Context&, const kernels::RotaryTable&, std::span<const int32_t>, MatrixView<float>, MatrixView<float>)>
      rotary_embedding{"rotary_embedding"};
  // y = silu(left half of x)·(right half of x). x [m, 2n], y [m, n]
  Op<void(const Context&, MatrixView<const float>, MatrixView<float>)> silu_and_mul{"silu_and_mul"};
  Op<void(const Context&, MatrixView<const float>, MatrixView<float>)> gelu_tanh_and_mul{"gelu_tanh_and_mul"};
  // k and v rows go to their slots of the paged cache
  Op<void(const Context&, const kernels::KvCacheView&, MatrixView<const float>, MatrixView<const float>,
          std::span<const int64_t>)>
      write_kv{"write_kv"};
  Op<void(const Context&, const kernels::AttentionParams&, MatrixView<const float>, const kernels::KvCacheView&,
          std::span<const kernels::AttentionSequence>, MatrixView<float>)>
      paged_attention{"paged_attention"};

  // Calls visit(op) for every entry, in the order above.
  template <class Visit>
  void for_each(Visit visit) const {
    visit_all(*this, visit);
  }
  template <class Visit>
  void for_each(Visit visit) {
    visit_all(*this, visit);
  }
  std::vector<OpFacts> facts() const;

 private:
  template <class Table, class Visit>
  static void visit_all(Table& t, Visit& visit) {
    visit(t.matmul), visit(t.lora_shrink), visit(t.lora_expand), visit(t.gather_rows), visit(t.take_rows), visit(t.rms_norm), visit(t.rms_norm_heads),
        visit(t.rotary_embedding), visit(t.silu_and_mul), visit(t.gelu_tanh_and_mul), visit(t.write_kv), visit(t.paged_attention);
  }
};

}  // namespace choral::platform
