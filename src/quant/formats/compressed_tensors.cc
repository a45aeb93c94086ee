#include <map>

#include "io/module_pattern.h"
#include "quant/formats/formats.h"
#include "quant/formats/fp8.h"

namespace choral::quant {
namespace {

// A list of targets or of ignored layers: a class of layers ("Linear", "Embedding"), a layer's whole name, or "re:" and a regular
// expression.
class Targets {
 public:
  static Result<Targets> read(const io::ConfigMap& map, std::string_view key) {
    CHORAL_TRY(const auto entries, map.get_strings_or_empty(key));
    Targets targets;
    for (const std::string& entry : entries) {
      if (entry.starts_with("re:")) {
        CHORAL_TRY(auto pattern, io::ModulePattern::compile(std::string_view(entry).substr(3), io::ModulePattern::Mode::kMatch)
                                     .while_(map.path_of(key)));
        targets.patterns_.push_back(std::move(pattern));
      } else if (entry == "Linear") {
        targets.linear_ = true;
      } else if (entry == "Embedding") {
        targets.embeddings_ = true;
      } else {
        targets.names_.push_back(entry);
      }
    }
    return targets;
  }

  Result<bool> match(LayerKind kind, std::string_view layer) const {
    if (kind == LayerKind::kEmbedding ? embeddings_ : linear_) return true;
    for (const auto& name : names_) {
      if (name == layer) return true;
    }
    for (const auto& pattern : patterns_) {
      CHORAL_TRY(const bool matches, pattern.matches(layer));
      if (matches) return true;
    }
    return false;
  }

 private:
  bool linear_ = false, embeddings_ = false;
  std::vector<std::string> names_;
  std::vector<io::ModulePattern> patterns_;
};

// How one tensor was quantised: QuantizationArgs.
struct Args {
  std::string type, strategy;
  int64_t bits = 0, group_size = 0;
  bool symmetric = true, dynamic = false;

  static Result<Args> read(const io::ConfigMap& map) {
    Args args;
    CHORAL_TRY(args.type, map.get_string_or("type", "int"));
    CHORAL_TRY(args.bits, map.get_int_or("num_bits", 8, {1, 64}));
    CHORAL_TRY(args.symmetric, map.get_bool_or("symmetric", true));
    CHORAL_TRY(args.dynamic, map.get_bool_or("dynamic", false));
    CHORAL_TRY(const int64_t group_size, map.get_int_or("group_size", 0, {-1, 1 << 20}));
    CHORAL_TRY(args.strategy, map.get_string_or("strategy", group_size > 0 ? "group" : group_size < 0 ? "channel" : "tensor"));
    if (args.strategy == "group") {
      CHORAL_TRY(args.group_size, checked_group_size(map, group_size));
    }
    return args;
  }

  std::string text() const {
    return fmt::format("{}{}, a scale for each {}{}{}{}", type, bits, strategy,
                       group_size == 0 ? "" : fmt::format(" of {}", group_size), symmetric ? "" : ", asymmetric",
                       dynamic ? ", dynamic" : "");
  }
};

constexpr std::string_view kWeights =
    "int2 to int8 with a scale for each tensor, channel or group, in the formats int-quantized and pack-quantized; float4 in "
    "groups of 32 as mxfp4-pack-quantized";
constexpr std::string_view kActivations = "none, int8 dynamic for each token, int8 static for each tensor";

// How the integers of a group of layers stand in the file; null: not in a way that is read.
StoragePtr storage_of(const Args& weights, std::string_view format) {
  if (format == "mxfp4-pack-quantized" && weights.type == "float" && weights.bits == 4 && weights.group_size == 32)
    return e2m1_rows();
  const bool known = weights.strategy == "tensor" || weights.strategy == "channel" || weights.strategy == "group";
  if (weights.type != "int" || weights.bits < 2 || weights.bits > 8 || weights.dynamic || !known) return nullptr;
  const IntegerFormat integers{.bits = static_cast<int>(weights.bits),
                               .group_size = weights.group_size,
                               .one_scale = weights.strategy == "tensor",
                               .symmetric = weights.symmetric,
                               .g_idx = weights.strategy == "group"};
  if (format == "pack-quantized") return packed_rows(integers);
  if (format == "int-quantized" || format == "naive-quantized") return int8_rows(integers);
  return nullptr;
}

class CompressedTensors : public QuantConfig {
 public:
  static Result<std::unique_ptr<QuantConfig>> read(const io::ConfigMap& config) {
    auto made = std::make_unique<CompressedTensors>();
    CHORAL_RETURN_IF_ERROR(made->read_whole(config));
    CHORAL_TRY(made->ignore_, Targets::read(config, "ignore"));
    CHORAL_TRY(const auto format, config.get_string_or("format", ""));
    CHORAL_TRY(const auto groups, config.get_map("config_groups"));
    for (const auto& member : groups.members()) {
      CHORAL_TRY(const auto group, groups.get_map(member.key));
      CHORAL_TRY(auto targets, Targets::read(group, "targets"));
      CHORAL_TRY(auto own_format, group.get_string_or("format", format));
      if (own_format.empty()) own_format = group.contains("input_activations") ? "int-quantized" : "pack-quantized";
      CHORAL_TRY(auto scheme, made->scheme_of(group, own_format));
      made->groups_.push_back({member.key, std::move(targets), std::move(scheme)});
    }
    if (made->groups_.empty()) return corrupt("{} has no group", config.path_of("config_groups"));
    return std::unique_ptr<QuantConfig>(std::move(made));
  }

  std::vector<std::string> notes() const override { return notes_; }

  Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const override {
    CHORAL_TRY(const bool ignored, ignore_.match(kind, layer));
    if (ignored) return LayerScheme{float_scheme(), "in ignore"};
    for (const auto& group : groups_) {
      CHORAL_TRY(const bool matches, group.targets.match(kind, layer));
      if (matches) return LayerScheme{group.scheme, "config_groups." + group.name};
    }
    return LayerScheme{float_scheme(), "no target matches"};
  }

 private:
  struct Group {
    std::string name;
    Targets targets;
    SchemePtr scheme;
  };

  // What concerns all of the checkpoint.
  Status read_whole(const io::ConfigMap& config) {
    CHORAL_TRY(const auto status, config.get_string_or("quantization_status", "compressed"));
    // "frozen" is what some writers leave there; a file whose tensors are float fails by their type.
    if (status != "compressed" && status != "frozen") {
      return unsupported("{} is '{}'; only checkpoints that were saved compressed are read",
                         config.path_of("quantization_status"), status);
    }
    CHORAL_TRY(const auto sparsity, config.get_map_or_empty("sparsity_config"));
    CHORAL_TRY(const auto sparse_format, sparsity.get_string_or("format", "dense"));
    if (sparse_format != "dense") return unread_format(sparsity.path_of("format"), sparse_format, "dense");
    CHORAL_TRY(const auto transforms, config.get_map_or_empty("transform_config"));
    CHORAL_TRY(const auto rotations, transforms.get_map_or_empty("config_groups"));
    if (!rotations.empty()) {
      return unsupported("{}: weights that were rotated or otherwise transformed are not read",
                         config.path_of("transform_config"));
    }
    CHORAL_TRY(const auto cache, config.get_map_or_empty("kv_cache_scheme"));
    if (!cache.empty())
      notes_.push_back(fmt::format("{}: its scales are not used; --kv-cache-dtype says how the cache is stored",
                                   config.path_of("kv_cache_scheme")));
    return {};
  }

  static std::string float_activations_note(const io::ConfigMap& group, const Args& activations) {
    return fmt::format("{}: {}; a CPU multiplies no such floats, activations keep their precision",
                       group.path_of("input_activations"), activations.text());
  }

  Result<SchemePtr> scheme_of(const io::ConfigMap& group, const std::string& format) {
    CHORAL_TRY(const auto weights_map, group.get_map("weights"));
    CHORAL_TRY(const auto activations_map, group.get_map_or_empty("input_activations"));
    CHORAL_TRY(const auto weights, Args::read(weights_map));
    CHORAL_TRY(const auto activations, Args::read(activations_map));
    const bool weight_only = activations_map.empty();
    if (weights.type == "float" && weights.bits == 8) {
      if (!weight_only) notes_.push_back(float_activations_note(group, activations));
      return fp8_group_scheme(group, by_text_);
    }
    // Groups that were quantised alike share a scheme: their layers may be computed as one.
    SchemePtr& scheme = by_text_[fmt::format("{} {} {}", format, weights.text(), weight_only ? "" : activations.text())];
    if (scheme != nullptr) return scheme;
    auto storage = storage_of(weights, format);
    if (storage == nullptr) {
      return unread_format(group.path_of("weights"), fmt::format("{} in the format '{}'", weights.text(), format), kWeights);
    }
    if (weight_only) return scheme = weight_only_scheme(std::move(storage));
    if (activations.type == "float") {
      notes_.push_back(float_activations_note(group, activations));
      return scheme = weight_only_scheme(std::move(storage));
    }
    const bool int8 = activations.type == "int" && activations.bits == 8;
    if (int8 && activations.dynamic && activations.symmetric) {
      if (activations.strategy == "token") return scheme = dynamic_scheme(std::move(storage));
      if (activations.strategy == "tensor") {
        notes_.push_back(
            fmt::format("{}: one scale for a whole batch would let requests change each other's answers; each token "
                        "gets its own",
                        group.path_of("input_activations")));
        return scheme = dynamic_scheme(std::move(storage));
      }
    }
    if (int8 && !activations.dynamic && activations.strategy == "tensor") {
      return scheme = static_scheme(std::move(storage), activations.symmetric);
    }
    return unread_format(group.path_of("input_activations"), activations.text(), kActivations);
  }

  std::vector<Group> groups_;  // the first that a layer is in
  Targets ignore_;
  std::map<std::string, SchemePtr> by_text_;
  std::vector<std::string> notes_;
};

}  // namespace

Result<std::unique_ptr<QuantConfig>> read_compressed_tensors(const io::ConfigMap& quantization_config) {
  return CompressedTensors::read(quantization_config);
}

}  // namespace choral::quant
