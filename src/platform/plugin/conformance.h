// A plug-in's operators held to what they mean, forward_native, on small fixed inputs, when the device starts. It takes a few
// milliseconds, and catches what no version number does: an operator that means something else. Each operator says by its
// conform() what is tried: every feature of its arguments once, so that a plug-in that passes one over is found before a model
// that needs it is answered wrongly. Every test runs a second time with each row in a call of its own, and the bits must be those
// of all rows together (invariant 1).
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "platform/host_view.h"
#include "platform/plugin/conformance_by_rows.h"
#include "platform/plugin/plugin_session.h"

namespace choral::platform {

// Fine, or what differs, how much and where.
Status check_conformance(const Context& ctx, OpId op, const OpTable& table);
// Whether check_conformance(matmul) tries weights of this form.
bool is_tried_with_matmul(const WeightForm& form);
// The same as check_conformance of the product with weights of this form, held to this CPU's, whose form of x plain loops over
// floats do not have.
Status check_weight_form(const Context& ctx, const WeightForm& form, const OpTable& table);

// One run of a test: of the reference's table, of the plug-in's, or of the plug-in's with each row in a call of its own. All are
// given the same values in the same order.
enum class Side { kReference, kDevice, kDeviceByRows };
class ConformanceRun {
 public:
  ConformanceRun(const Context& ctx, const OpTable& table, Side side) : ctx_(ctx), table_(table), side_(side) {}

  const Context& ctx() const { return ctx_; }
  template <class D, class... Args>
  void call(const Args&... args) const {
    const auto run = table_.get<D>().run;
    if (side_ == Side::kDeviceByRows) return run_by_rows(ctx_, run, args...);
    run(ctx_, args...);
  }

  std::vector<float> values(int64_t count);
  // On the device, inside wider rows, as columns of a larger matrix are.
  ops::Out matrix(int64_t rows, int64_t cols) { return matrix_of(values(rows * (cols + kGap)), rows, cols); }
  // The same for a device that rounds them to this type itself: the reference is given them rounded.
  ops::Out matrix_to_round(int64_t rows, int64_t cols, DType type);
  ops::Weight weight(int64_t count);
  ops::Indices indices(std::initializer_list<int32_t> values) { return indices(std::span(values)); }
  ops::Indices indices(std::span<const int32_t> values);
  ops::Slots slots(const std::vector<int64_t>& values);
  ops::Stack stack(int64_t slots, int64_t rows, int64_t cols, DType dtype);
  // The same with zeros from each slot's rank on: of A in its rows, of B in its columns. One rank for each slot.
  enum class Ranked { kA, kB };
  ops::Stack stack(Ranked ranked, std::span<const int32_t> ranks, int64_t rows, int64_t cols, DType dtype);
  PlacedRotary rotary(const kernels::RotaryParams& params);
  // The reference's is the host's. Null, with a status, when the device does not take it.
  const kernels::PackedMatrix* packed(const kernels::PackSpec& weight);
  // [n, k], stored as a float type.
  const kernels::PackedMatrix* packed(int64_t n, int64_t k, DType dtype,
                                      kernels::Activations activations = kernels::Activations::kFull);
  // A vector where packed()'s arithmetic runs.
  ops::Weight beside_packed(int64_t count);
  // Zero-filled; the reference's is the host's.
  ops::KvCacheView cache(int64_t blocks, int64_t kv_heads, int64_t head_dim, int64_t v_head_dim, DType dtype = DType::kF32);
  // The same with its values in the keys.
  ops::KvCacheView latent_cache(int64_t blocks, int64_t kv_heads, int64_t head_dim, int64_t v_head_dim,
                                DType dtype = DType::kF32);

  const Status& status() const { return status_; }

 private:
  static constexpr int64_t kGap = 16;  // between rows

  ops::Out matrix_of(const std::vector<float>& values, int64_t rows, int64_t cols);
  ops::Stack stack_of(std::span<const float> values, int64_t slots, int64_t rows, int64_t cols, DType dtype);
  std::byte* kv_memory(int64_t blocks, int64_t elements, DType dtype);

  bool is_reference() const { return side_ == Side::kReference; }

  const Context& ctx_;
  const OpTable& table_;
  Side side_;
  uint32_t seed_ = 1;
  Status status_;
  std::vector<std::unique_ptr<kernels::PackedMatrix>> matrices_;
  std::vector<std::unique_ptr<kernels::RotaryTable>> rotaries_;
  std::vector<Tensor> tensors_;
};

class Conformance {
 public:
  Conformance(const Context& ctx, const OpTable& table, const OpTable& reference = staged_native_ops())
      : ctx_(ctx), table_(table), reference_(reference) {}

  // Runs `test` on both sides and compares the matrices that it gives; `feature` is what this test tries, for people, or empty.
  using Test = FunctionRef<std::vector<ops::Out>(ConformanceRun&)>;
  Status check(std::string_view feature, Test test) const;

 private:
  Result<std::vector<ops::Out>> run(ConformanceRun& side, std::string_view with, Test test) const;

  const Context& ctx_;
  const OpTable &table_, &reference_;
};

}  // namespace choral::platform
