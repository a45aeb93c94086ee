#include "lora/peft/fused_experts.h"

#include <algorithm>
#include <cstring>

#include "base/printable.h"
#include "lora/peft/module_names.h"

namespace choral::lora {
namespace {

constexpr std::string_view kExperts = ".experts", kInner = ".base_layer";

// "x.experts.base_layer.base_layer" -> "x.experts" and 2.
size_t strip_wrappers(std::string_view& module) {
  size_t depth = 0;
  for (; module.ends_with(kInner); ++depth) module.remove_suffix(kInner.size());
  return depth;
}

// What a module of experts within `depth` others adapts; empty when the config names no such parameter.
std::string_view parameter_at(std::span<const std::string> parameters, std::string_view experts, size_t depth) {
  std::vector<std::string_view> own;
  for (const auto& parameter : parameters) {
    const size_t dot = parameter.rfind('.');
    if (dot == std::string::npos || !is_end_of(parameter.substr(0, dot), experts)) continue;
    own.push_back(std::string_view(parameter).substr(dot + 1));
  }
  return depth < own.size() ? own[own.size() - 1 - depth] : std::string_view();
}

// "x.experts.3.up_proj" -> "x.experts.up_proj"; empty: no expert's.
std::string without_number(std::string_view module) {
  const size_t part = module.rfind('.');
  const size_t number = part == std::string_view::npos || part == 0 ? part : module.rfind('.', part - 1);
  if (number == 0 || number == std::string_view::npos || !module.substr(0, number).ends_with(kExperts)) return {};
  return fmt::format("{}{}", module.substr(0, number), module.substr(part));
}

// Columns first, first + step, … of a matrix of 2- or 4-byte elements.
Result<AdapterTensor> every(const TensorView& tensor, int64_t first, int64_t step) {
  const int64_t count = tensor.cols() / step;
  CHORAL_TRY(Tensor out, Tensor::allocate(tensor.dtype, {tensor.rows(), count}));
  const auto size = static_cast<size_t>(row_bytes(tensor.dtype, 1));
  std::byte* to = out.data();
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    for (int64_t c = 0; c < count; ++c, to += size) {
      std::memcpy(to, tensor.row(r) + static_cast<size_t>(first + c * step) * size, size);
    }
  }
  return AdapterTensor(std::move(out));
}

// Writes one fused tensor's parts; an error names it.
class Splitter {
 public:
  Splitter(std::span<const std::string> parameters, const CountExperts& count_experts, bool shapes_only)
      : parameters_(parameters), count_experts_(count_experts), shapes_only_(shapes_only) {}

  Status split(const NamedTensor& fused, const TensorName& name, std::vector<NamedTensor>& out) const {
    const std::string shown = printable(fused.name);
    std::string_view experts = name.module;
    const size_t depth = strip_wrappers(experts);
    const auto parameter = parameter_at(parameters_, experts, depth);
    if (parameter.empty()) return invalid_argument("'{}': target_parameters names no parameter that it could be of", shown);
    if (name.part != TensorPart::kLoraA && name.part != TensorPart::kLoraB) {
      return unsupported("'{}': parameters of experts are adapted by lora_A and lora_B alone", shown);
    }
    const TensorView& view = fused.tensor.view;
    const bool is_a = name.part == TensorPart::kLoraA;
    if (view.shape.rank() != 2 || !facts(view.dtype).is_floating) {
      return invalid_argument("'{}' is {} {}; a matrix of floats is wanted", shown, dtype_name(view.dtype),
                              view.shape.to_string());
    }
    const int64_t all_ranks = view.shape[is_a ? 0 : 1], count = count_experts_(experts, parameter, all_ranks);
    if (count == 0) return unsupported("'{}': the model has no '{}.N.{}'", shown, printable(experts), printable(parameter));
    if (all_ranks == 0 || all_ranks % count != 0) {
      return invalid_argument("'{}' has shape {}; {} experts of one rank do not make {}", shown, view.shape.to_string(), count,
                              all_ranks);
    }
    for (int64_t e = 0; e < count; ++e) {
      NamedTensor own{fmt::format("{}.{}.{}.{}", experts, e, parameter, part_tail(name.part)), {}};
      if (is_a) {
        own.tensor = fused.tensor.rows(e * (all_ranks / count), all_ranks / count);
      } else if (shapes_only_) {
        own.tensor = fused.tensor;
        own.tensor.view.shape = {view.shape[0], all_ranks / count};
      } else {
        CHORAL_TRY(own.tensor, every(view, e, count));
      }
      out.push_back(std::move(own));
    }
    return {};
  }

 private:
  std::span<const std::string> parameters_;
  const CountExperts& count_experts_;
  bool shapes_only_;
};

}  // namespace

bool is_fused_experts(std::string_view module) {
  strip_wrappers(module);
  return module.ends_with(kExperts);
}

bool is_of_expert(std::string_view module) { return !without_number(module).empty(); }

bool names_parameter_of(std::span<const std::string> parameters, std::string_view module) {
  const std::string whole = without_number(module);
  return !whole.empty() &&
         std::any_of(parameters.begin(), parameters.end(), [&](const auto& parameter) { return is_end_of(parameter, whole); });
}

bool names_weight_of(std::span<const std::string> parameters, std::string_view module) {
  const std::string weight = fmt::format("{}.weight", module);
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& parameter) { return is_end_of(parameter, weight); });
}

std::vector<NamedTensor> split_fused_experts(std::span<const NamedTensor> tensors, std::span<const std::string> parameters,
                                             const CountExperts& count_experts, bool shapes_only, ProblemList& problems) {
  const Splitter splitter(parameters, count_experts, shapes_only);
  std::vector<NamedTensor> out;
  for (const auto& tensor : tensors) {
    const auto name = parse_tensor_name(tensor.name);
    if (!name || !is_fused_experts(name->module)) {
      out.push_back(tensor);
      continue;
    }
    if (Status status = splitter.split(tensor, *name, out); !status.ok()) problems.add(std::move(status));
  }
  return out;
}

}  // namespace choral::lora
