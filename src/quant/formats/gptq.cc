// GPTQ, as AutoGPTQ and GPTQModel write it: 2, 3, 4 or 8 bits in groups of k, which may be reordered by importance (desc_act).
#include "io/module_pattern.h"
#include "quant/formats/formats.h"
#include "quant/scheme_linear.h"

namespace choral::quant {
namespace {

struct GptqFormat {
  int64_t bits = 0, group_size = 0;
  bool symmetric = true;
  GptqVersion version = GptqVersion::k1;

  // What `config` says, else what `absent` does.
  static Result<GptqFormat> read(const io::ConfigMap& config, const GptqFormat* absent) {
    GptqFormat format;
    if (absent != nullptr) {
      format = *absent;
    } else {
      CHORAL_TRY(const auto layout, config.get_string_or("checkpoint_format", "gptq"));
      if (layout != "gptq" && layout != "gptq_v2") {
        return unread_format(config.path_of("checkpoint_format"), layout, "gptq, gptq_v2");
      }
      if (layout == "gptq_v2") format.version = GptqVersion::k2;
    }
    if (absent == nullptr || config.contains("bits")) {
      CHORAL_TRY(format.bits, config.get_int("bits"));
    }
    if (absent == nullptr || config.contains("group_size")) {
      CHORAL_TRY(const int64_t size, config.get_int("group_size"));
      CHORAL_TRY(format.group_size, checked_group_size(config, size));
    }
    CHORAL_TRY(format.symmetric, config.get_bool_or("sym", format.symmetric));
    if (format.bits != 2 && format.bits != 3 && format.bits != 4 && format.bits != 8) {
      return unread_format(config.path_of("bits"), fmt::format("{}", format.bits), "2, 3, 4, 8");
    }
    return format;
  }

  SchemePtr scheme() const {
    return weight_only_scheme(
        gptq_columns({.bits = static_cast<int>(bits), .group_size = group_size, .symmetric = symmetric, .g_idx = true}, version));
  }
};

class Gptq : public QuantConfig {
 public:
  static Result<std::unique_ptr<QuantConfig>> read(const io::ConfigMap& config) {
    auto made = std::make_unique<Gptq>();
    CHORAL_TRY(const auto format, GptqFormat::read(config, nullptr));
    made->scheme_ = format.scheme();
    CHORAL_TRY(made->head_, config.get_bool_or("lm_head", false));
    CHORAL_RETURN_IF_ERROR(made->read_only(config));
    CHORAL_TRY(const auto dynamic, config.get_map_or_empty("dynamic"));
    for (const auto& member : dynamic.members()) CHORAL_RETURN_IF_ERROR(made->read_exception(dynamic, member.key, format));
    return std::unique_ptr<QuantConfig>(std::move(made));
  }

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    const bool left = kind == LayerKind::kEmbedding || kind == LayerKind::kRouter || (kind == LayerKind::kLmHead && !head_);
    if (left) return LayerScheme{float_scheme(), "as stored"};
    for (const auto& exception : exceptions_) {
      CHORAL_TRY(const bool matches, exception.layers.matches(layer));
      if (matches) return LayerScheme{exception.scheme, fmt::format("'{}' in dynamic", exception.layers.text())};
    }
    const LayerScheme usual{scheme_, "quantised by gptq"};
    if (kind == LayerKind::kLmHead || only_.empty()) return usual;
    for (const auto& suffix : only_) {
      if (layer.ends_with(suffix)) return usual;
    }
    return LayerScheme{float_scheme(), "not in modules_in_block_to_quantize"};
  }
  SchemePtr packed_scheme() const override { return scheme_; }

 private:
  struct Exception {
    io::ModulePattern layers;
    SchemePtr scheme;
  };

  // modules_in_block_to_quantize: lists of layers' last names, or one list.
  Status read_only(const io::ConfigMap& config) {
    const std::string_view key = "modules_in_block_to_quantize";
    const auto* value = config.find(key);
    if (value == nullptr) return {};
    const auto wrong = [&] { return corrupt("{} is no list of lists of names", config.path_of(key)); };
    const auto* lists = value->if_array();
    if (lists == nullptr) return wrong();
    for (const auto& list : *lists) {
      if (const auto* one = list.if_string()) {
        only_.push_back("." + *one);
        continue;
      }
      const auto* names = list.if_array();
      if (names == nullptr) return wrong();
      for (const auto& name : *names) {
        if (name.if_string() == nullptr) return wrong();
        only_.push_back("." + *name.if_string());
      }
    }
    return {};
  }

  // dynamic: "-:pattern" is not quantised, "+:pattern" or "pattern" otherwise than the rest.
  Status read_exception(const io::ConfigMap& dynamic, std::string_view key, const GptqFormat& rest) {
    const bool skipped = key.starts_with("-:");
    const auto pattern = skipped || key.starts_with("+:") ? key.substr(2) : key;
    CHORAL_TRY(auto layers, io::ModulePattern::compile(pattern, io::ModulePattern::Mode::kMatch).while_(dynamic.path_of(key)));
    if (skipped) {
      exceptions_.push_back({std::move(layers), float_scheme()});
      return {};
    }
    CHORAL_TRY(const auto own, dynamic.get_map(key));
    CHORAL_TRY(const auto format, GptqFormat::read(own, &rest));
    exceptions_.push_back({std::move(layers), format.scheme()});
    return {};
  }

  SchemePtr scheme_;
  bool head_ = false;
  std::vector<std::string> only_;      // ".self_attn.q_proj"; none: all layers
  std::vector<Exception> exceptions_;  // the first that a layer is in
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> read_gptq(const io::ConfigMap& config) { return Gptq::read(config); }

}  // namespace choral::quant
