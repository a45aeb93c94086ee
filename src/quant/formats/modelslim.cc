// ModelSlim's quant_model_description.json: a flat object that gives every tensor of the checkpoint a type, among a few keys
// about all of it (version, group_size).
#include <fmt/ranges.h>

#include <array>
#include <map>

#include "quant/formats/formats.h"
#include "quant/scheme_linear.h"

namespace choral::quant {
namespace {

constexpr std::string_view kFloatType = "FLOAT";

struct Globals {
  int64_t group_size = 0;
  bool pairs = false;  // version 1: two channels of 4 bits in a byte
};

using enum LayerKind;
struct SchemeRow {
  std::string_view type;
  bool of_embedding;  // beside linear layers and head
  SchemePtr (*make)(const Globals& globals);
};
const std::array kSchemes{
    SchemeRow{"W8A8", /*of_embedding=*/false, [](const Globals&) { return modelslim_static_scheme(); }},
    SchemeRow{"W8A8_DYNAMIC",
              /*of_embedding=*/false,
              [](const Globals&) { return dynamic_scheme(modelslim_rows({.bits = 8}, ModelSlimBytes::kOne)); }},
    SchemeRow{"W4A8_DYNAMIC",
              /*of_embedding=*/false,
              [](const Globals& globals) {
                return dynamic_scheme(modelslim_rows({.bits = 4, .group_size = globals.group_size},
                                                     globals.pairs ? ModelSlimBytes::kPair : ModelSlimBytes::kOne));
              }},
    SchemeRow{"W8A16",
              /*of_embedding=*/true,
              [](const Globals&) { return weight_only_scheme(modelslim_rows({.bits = 8}, ModelSlimBytes::kOne)); }},
    SchemeRow{"W4A16",
              /*of_embedding=*/false,
              [](const Globals& globals) {
                constexpr int64_t kUsual = 32;
                return weight_only_scheme(
                    packed_rows({.bits = 4, .group_size = globals.group_size == 0 ? kUsual : globals.group_size}));
              }},
};

class ModelSlim : public QuantConfig {
 public:
  static Result<std::unique_ptr<QuantConfig>> read(const io::ConfigMap& description) {
    auto made = std::make_unique<ModelSlim>();
    made->description_ = description;
    CHORAL_TRY(const auto version, description.get_string_or("version", "0"));
    made->globals_.pairs = !version.starts_with('0');
    constexpr int64_t kUsualOfVersion0 = 256;
    CHORAL_TRY(const int64_t size, description.get_int_or("group_size", made->globals_.pairs ? 0 : kUsualOfVersion0));
    CHORAL_TRY(made->globals_.group_size, checked_group_size(description, size));
    for (const char* key : {"kv_cache_type", "fa_quant_type", "indexer_quant_type"}) {
      CHORAL_TRY(const auto type, description.get_string_or(key, ""));
      if (!type.empty()) made->notes_.push_back(fmt::format("{} is {}: the cache stays float", description.path_of(key), type));
    }
    for (const SchemeRow& row : kSchemes) made->schemes_.emplace(row.type, row.make(made->globals_));
    return std::unique_ptr<QuantConfig>(std::move(made));
  }
  std::vector<std::string> notes() const override { return notes_; }

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    const auto key = fmt::format("{}.weight", layer);
    if (kind != kLinear && !description_.contains(key)) return LayerScheme{float_scheme(), "as stored"};
    CHORAL_TRY(const auto type, description_.get_string(key));
    const auto why = fmt::format("{} is {}", description_.path_of(key), type);
    if (type == kFloatType) return LayerScheme{float_scheme(), why};
    std::vector<std::string_view> known{kFloatType};
    for (const SchemeRow& row : kSchemes) {
      if (kind == kEmbedding && !row.of_embedding) continue;
      if (row.type == type) return LayerScheme{schemes_.find(row.type)->second, why};
      known.push_back(row.type);
    }
    return unread_format(description_.path_of(key), fmt::format("{} for a layer of kind {}", type, layer_kind_name(kind)),
                         fmt::format("{}", fmt::join(known, ", ")));
  }

 private:
  io::ConfigMap description_;
  Globals globals_;
  std::map<std::string_view, SchemePtr> schemes_;
  std::vector<std::string> notes_;
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> read_modelslim(const io::ConfigMap& description) { return ModelSlim::read(description); }

}  // namespace choral::quant
