#include "io/stacked_experts.h"

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace choral::io {
namespace {

constexpr int64_t kMostExperts = 4096, kMostColumns = int64_t{1} << 30;

// How the tensors of one ending are stored.
struct Form {
  std::string_view ending, own;
  int rank;
  Shape (*shape)(const Shape& all);
  bool transposed = false;
};
constexpr std::array<Form, 4> kForms{{
    {"_bias", ".bias", 2, [](const Shape& all) { return Shape{all[1]}; }},
    {"_blocks", ".weight_packed", 4,
     [](const Shape& all) {
       return Shape{all[1], all[2] * all[3]};
     }},
    {"_scales", ".weight_scale", 3,
     [](const Shape& all) {
       return Shape{all[1], all[2]};
     }},
    {"", ".weight", 3,
     [](const Shape& all) {
       return Shape{all[2], all[1]};
     },
     true},
}};
constexpr Form kAsItIs{"", ".weight", 3, [](const Shape& all) { return Shape{all[1], all[2]}; }};
constexpr std::array<std::string_view, 2> kParameters{"gate_up_proj", "down_proj"};
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOfGranite{
    {{".block_sparse_moe.input_linear.weight", "gate_up_proj"}, {".block_sparse_moe.output_linear.weight", "down_proj"}}};

Status check_stack(std::string_view name, const Shape& shape, int rank) {
  if (shape.rank() == rank && shape[0] >= 1 && shape[0] <= kMostExperts && shape.elements() / shape[0] <= kMostColumns) return {};
  return corrupt("'{}' has shape {}; one of {} dimensions is wanted, the first of them at most {} experts", printable(name),
                 shape.to_string(), rank, kMostExperts);
}

Result<std::optional<StackedExperts>> stacked_beside_router(std::string_view name, const Shape& shape) {
  for (const auto& [ending, parameter] : kOfGranite) {
    if (!name.ends_with(ending)) continue;
    CHORAL_RETURN_IF_ERROR(check_stack(name, shape, 3));
    const std::string_view block = name.substr(0, name.rfind('.', name.size() - std::string_view(".weight").size() - 1) + 1);
    return std::optional(StackedExperts{.before = fmt::format("{}experts.", block),
                                        .after = fmt::format(".{}.weight", parameter),
                                        .experts = shape[0],
                                        .shape = {shape[1], shape[2]}});
  }
  return std::optional<StackedExperts>();
}

// As transformers 5 holds them; `parameter` is the last part of the name.
Result<std::optional<StackedExperts>> stacked_as_used(std::string_view name, std::string_view parameter, const Shape& shape) {
  CHORAL_RETURN_IF_ERROR(check_stack(name, shape, 3));
  StackedExperts out{.before = std::string(name.substr(0, name.size() - parameter.size())),
                     .after = ".down_proj.weight",
                     .experts = shape[0],
                     .shape = {shape[1], shape[2]}};
  if (parameter == kParameters[0]) {
    if (shape[1] % 2 != 0) return corrupt("'{}' has {} rows, of which half are the gate's", printable(name), shape[1]);
    out.after = ".gate_proj.weight";
    out.second = ".up_proj.weight";
    out.shape = {shape[1] / 2, shape[2]};
  }
  return std::optional(std::move(out));
}

// "model.layers.3.experts.": a layer's own.
bool is_of_layer(std::string_view before) {
  constexpr std::string_view kEnd = ".experts.";
  before.remove_suffix(kEnd.size());
  const size_t dot = before.rfind('.');
  const std::string_view number = before.substr(dot + 1);
  return dot != std::string_view::npos && !number.empty() && before.substr(0, dot).ends_with("layers") &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// None: the parameter is stored in another way.
const Form* form_of(std::string_view before, std::string_view parameter, std::string_view ending,
                    FunctionRef<bool(std::string_view)> contains) {
  if (is_of_layer(before)) return ending.empty() ? &kAsItIs : nullptr;
  const bool of_llama4 = before.ends_with(".feed_forward.experts.");
  if (!of_llama4 && !contains(fmt::format("{}{}_bias", before, parameter))) return nullptr;
  const auto form = std::find_if(kForms.begin(), kForms.end(), [&](const Form& f) { return f.ending == ending; });
  return form == kForms.end() ? nullptr : &*form;
}

}  // namespace

Result<std::optional<StackedExperts>> stacked_experts(std::string_view name, const Shape& shape,
                                                      FunctionRef<bool(std::string_view)> contains) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.rfind(kExperts);
  if (at == std::string_view::npos) return stacked_beside_router(name, shape);
  const size_t begin = at + kExperts.size();
  const std::string_view last = name.substr(begin);
  const std::string_view before = name.substr(0, begin);
  if ((last == kParameters[0] || last == kParameters[1]) && before.ends_with(".mlp.experts.") &&
      !contains(fmt::format("{}_bias", name))) {
    return stacked_as_used(name, last, shape);
  }
  for (const auto parameter : kParameters) {
    if (!last.starts_with(parameter)) continue;
    const Form* form = form_of(before, parameter, last.substr(parameter.size()), contains);
    if (form == nullptr) continue;
    CHORAL_RETURN_IF_ERROR(check_stack(name, shape, form->rank));
    return std::optional(StackedExperts{.before = std::string(before),
                                        .after = fmt::format(".{}{}", parameter, form->own),
                                        .experts = shape[0],
                                        .shape = form->shape(shape),
                                        .transposed = form->transposed});
  }
  return std::optional<StackedExperts>();
}

std::string router_name(std::string_view name) {
  constexpr std::string_view kNested = ".block_sparse_moe.router.layer.weight";
  if (!name.ends_with(kNested)) return std::string(name);
  return fmt::format("{}.block_sparse_moe.router.weight", name.substr(0, name.size() - kNested.size()));
}

}  // namespace choral::io
