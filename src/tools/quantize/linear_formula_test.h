// Linear layers held to what their checkpoint says, evaluated in float64 on the very x that they are given while a model runs:
//   y = W·x̃ + bias + scaling·B(A·x)
// where x̃ is x as the scheme rounds it and x, the adapter's input, is not rounded. W, scales, A and B come from the files, so the
// formula shares nothing with packing and kernels. A layer is either compared with it or computed by it.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/tiny_model_test.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "kernels/quant/dequantise.h"
#include "kernels/quant/row_quant.h"
#include "tools/quantize/linear_overrides.h"

namespace choral::tools {

// What a scheme makes of x: nothing; int8 twice, of x and of what that leaves, by blocks of 32; int8 once by blocks of 32; int8
// with a scale for the row; int8 with the checkpoint's scale and offset.
enum class InputRounding : uint8_t { kNone, kTwice, kBlocks, kRow, kFixed };

inline std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> out(view.shape.elements());
  for (int64_t r = 0; r < view.rows(); ++r)
    kernels::dequantise_row(view.dtype, view.row(r), view.cols(), out.data() + r * view.cols());
  return out;
}
inline std::vector<float> floats_of(const io::Checkpoint& checkpoint, const std::string& name) {
  return floats_of(checkpoint.find(name)->view);
}

// One projection.
struct FormulaMember {
  int64_t rows = 0, k = 0, rank = 0;
  std::vector<double> w;  // [rows, k], and what is added to it on its own, of zero points: as many, or none
  std::vector<double> shift;
  std::vector<double> bias;      // [rows], or none
  std::vector<int64_t> order;    // of columns, in which x is rounded by blocks; none: their own
  kernels::StaticQuant input{};  // of kFixed
  std::vector<double> a, b;      // [rank, k], [rows, rank]
};

class LinearFormula {
 public:
  explicit LinearFormula(InputRounding rounding) : rounding_(rounding) {}

  FormulaMember& member(const std::string& name) { return members_[name]; }
  void read_adapter(const std::filesystem::path& folder, double scaling) {
    const auto file = *io::SafetensorsFile::open(folder / "adapter_model.safetensors");
    for (auto& [name, member] : members_) {
      const auto part = [&](const char* which) { return *file->find("base_model.model." + name + which); };
      const auto a = floats_of(part(".lora_A.weight")), b = floats_of(part(".lora_B.weight"));
      member.rank = part(".lora_A.weight").rows();
      member.a.assign(a.begin(), a.end());
      member.b.assign(b.begin(), b.end());
      for (double& value : member.b) value *= scaling;
    }
  }

  // Whether the rows to come are the adapter's.
  void set_adapter(bool answers) { adapter_answers_ = answers; }
  // From now on layers are computed by the formula.
  void stand_in() { stands_in_ = true; }
  bool stands_in() const { return stands_in_; }

  // `y` is what the layer gave, or takes what the formula gives. `before`: what it was added to, or empty.
  void hold(std::span<const lora::TargetMember> names, MatrixView<const float> x, std::span<const float> before,
            MatrixView<float> y) {
    for (int64_t r = 0; r < x.rows; ++r) {
      int64_t col = 0;
      for (const auto& name : names) {
        const FormulaMember& member = members_.at(name.name);
        const auto rounded = round(x.row_span(r), member);
        const auto middle = adapter_answers_ ? product(member.a, x.row_span(r)) : std::vector<Sum>();
        for (int64_t i = 0; i < member.rows; ++i, ++col) {
          Sum sum = dot(std::span(member.w).subspan(i * member.k, member.k), rounded);
          if (!member.shift.empty()) sum.add(dot(std::span(member.shift).subspan(i * member.k, member.k), rounded), 1);
          if (!member.bias.empty()) sum.add(member.bias[i], 1);
          for (int64_t j = 0; j < std::ssize(middle); ++j) sum.add(middle[j], member.b[i * member.rank + j]);
          const double base = before.empty() ? 0 : before[r * y.cols + col];
          float& out = y.row(r)[col];
          if (stands_in_) {
            out = static_cast<float>(base + sum.value);
            continue;
          }
          // n additions in float32 are off by n half steps of what was added, W and scales by one each; the result by its own.
          const double bound = static_cast<double>(2 * member.k + member.rank + 8) * 0x1p-24 * sum.magnitude +
                               0x1p-23 * (std::abs(base) + std::abs(static_cast<double>(out)));
          const double off = std::abs(out - (base + sum.value)) / bound;
          ++outputs_;
          if (off <= farthest_) continue;
          farthest_ = off;
          place_ = fmt::format("{}, row {} of {}, output {}: {} for {}", name.name, r, x.rows, i, out, base + sum.value);
        }
      }
    }
  }

  int64_t outputs() const { return outputs_; }   // that were compared
  double farthest() const { return farthest_; }  // in units of what float32 sums may be off
  const std::string& farthest_place() const { return place_; }

 private:
  struct Sum {
    double value = 0, magnitude = 0;
    void add(double x, double factor) { add(Sum{x, std::abs(x)}, factor); }
    void add(const Sum& x, double factor) { value += x.value * factor, magnitude += x.magnitude * std::abs(factor); }
  };
  template <class X>
  static Sum dot(std::span<const double> w, const X& x) {
    Sum sum;
    for (size_t i = 0; i < w.size(); ++i) sum.add(static_cast<double>(x[i]), w[i]);
    return sum;
  }
  static std::vector<Sum> product(std::span<const double> a, std::span<const float> x) {
    std::vector<Sum> out;
    for (size_t i = 0; i < a.size(); i += x.size()) out.push_back(dot(a.subspan(i, x.size()), x));
    return out;
  }

  // Adds to `out` what int8 with one scale leaves of x, and takes it from x.
  static void take_int8(std::span<float> x, std::span<double> out) {
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::abs(v));
    const float scale = largest / 127.0f;
    if (scale == 0) return;
    for (size_t i = 0; i < x.size(); ++i) {
      const float q = std::nearbyint(x[i] / scale);
      out[i] += static_cast<double>(q) * scale;
      x[i] -= scale * q;
    }
  }
  std::vector<double> round(std::span<const float> x, const FormulaMember& member) const {
    if (member.order.empty()) return round(x, member.input);
    std::vector<float> ordered;
    for (const int64_t column : member.order) ordered.push_back(x[column]);
    const auto rounded = round(ordered, member.input);
    std::vector<double> out(x.size());
    for (size_t i = 0; i < rounded.size(); ++i) out[member.order[i]] = rounded[i];
    return out;
  }
  std::vector<double> round(std::span<const float> x, kernels::StaticQuant fixed) const {
    if (rounding_ == InputRounding::kNone) return {x.begin(), x.end()};
    std::vector<double> out(x.size());
    if (rounding_ == InputRounding::kFixed) {
      for (size_t i = 0; i < x.size(); ++i) {
        const double q = std::clamp(std::nearbyint(x[i] / fixed.scale) + static_cast<double>(fixed.offset), -128.0, 127.0);
        out[i] = (q - fixed.offset) * fixed.scale;
      }
      return out;
    }
    std::vector<float> rest(x.begin(), x.end());
    const size_t block = rounding_ == InputRounding::kRow ? x.size() : 32;
    for (int pass = 0; pass < (rounding_ == InputRounding::kTwice ? 2 : 1); ++pass) {
      for (size_t i = 0; i < x.size(); i += block) {
        const size_t count = std::min(block, x.size() - i);
        take_int8(std::span(rest).subspan(i, count), std::span(out).subspan(i, count));
      }
    }
    return out;
  }

  InputRounding rounding_;
  std::map<std::string, FormulaMember, std::less<>> members_;
  bool adapter_answers_ = false, stands_in_ = false;
  int64_t outputs_ = 0;
  double farthest_ = 0;
  std::string place_;
};

// For replace_linear_layers(): the layer, held to a formula.
template <class Layer>
class FormulaLinear : public Layer {
 public:
  FormulaLinear(layers::Builder& builder, const typename Layer::Spec& spec, LinearFormula& formula)
      : Layer(builder, spec), formula_(formula), members_(this->lora_target(lora::TargetKind::kLinear, this->prefix()).members) {}
  void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
               const lora::PunicaWrapper* lora) const override {
    if (!formula_.stands_in()) Layer::forward(ctx, x, y, lora);
    formula_.hold(members_, x, {}, y);
  }
  void forward_add(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
                   const lora::PunicaWrapper* lora) const override {
    std::vector<float> before;
    for (int64_t r = 0; r < y.rows; ++r) before.insert(before.end(), y.row(r), y.row(r) + y.cols);
    if (!formula_.stands_in()) Layer::forward_add(ctx, x, y, lora);
    formula_.hold(members_, x, before, y);
  }
  bool may_group() const override { return false; }
  void forward_rows(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y, const lora::PunicaWrapper* lora,
                    std::span<const lora::RowGroup> groups) const override {
    if (!formula_.stands_in()) Layer::forward_rows(ctx, x, y, lora, groups);
    formula_.hold(members_, x, {}, y);
  }

 private:
  LinearFormula& formula_;
  std::vector<lora::TargetMember> members_;
};

// `options` with every linear layer held to `formula`, which outlives the model. Unfused, so that layers are given their x.
inline EngineOptions held_to(LinearFormula& formula, EngineOptions options) {
  const auto overrides = std::make_shared<platform::LayerOverrides>();
  CHORAL_CHECK(replace_linear_layers<FormulaLinear>(*overrides, formula).ok(), "linear layers can be replaced");
  options.layer_overrides = overrides;
  options.fuse = "none";
  return options;
}

// What `choral quantize --scheme w8a8` wrote of `model`. ModelSlim keeps biases in steps of the product's scale.
inline LinearFormula formula_of_w8a8(const std::filesystem::path& model, const std::filesystem::path& written_folder) {
  LinearFormula formula(InputRounding::kFixed);
  const auto source = *io::Checkpoint::open(model), written = *io::Checkpoint::open(written_folder);
  for (const auto& name : written->names()) {
    if (!name.ends_with(".input_scale")) continue;
    const auto layer = name.substr(0, name.rfind('.'));
    const auto part = [&](const char* which) { return floats_of(*written, layer + which); };
    const auto weight = written->find(layer + ".weight")->view;
    const auto scales = part(".weight_scale");
    const bool modelslim = written->contains(layer + ".input_offset");
    FormulaMember& member = formula.member(layer);
    member.rows = weight.rows();
    member.k = weight.cols();
    member.input.scale = part(".input_scale")[0];
    member.input.offset = modelslim ? static_cast<int32_t>(part(".input_offset")[0]) : 0;
    for (int64_t r = 0; r < member.rows; ++r) {
      for (int64_t i = 0; i < member.k; ++i)
        member.w.push_back(static_cast<double>(reinterpret_cast<const int8_t*>(weight.row(r))[i]) * scales[r]);
    }
    if (!source->contains(layer + ".bias")) continue;
    const auto bias = floats_of(*source, layer + ".bias");
    for (int64_t r = 0; r < member.rows; ++r) {
      const double step = static_cast<double>(member.input.scale) * scales[r];
      member.bias.push_back(modelslim ? std::nearbyint(bias[r] / step) * step : bias[r]);
    }
  }
  return formula;
}

}  // namespace choral::tools
