#include "adapter_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "engine_flags.h"

namespace choral::apps {
namespace {

constexpr const char* kGroup = "Adapters";
constexpr size_t kMaxJsonBytes = 64 << 10;

// The last component, without the ending of a GGUF file; "." and ".." are looked up.
std::string name_of(std::string_view path) {
  namespace fs = std::filesystem;
  fs::path last = fs::path(path).lexically_normal();
  if (last.filename().empty()) last = last.parent_path();
  std::error_code ignored;
  if (last.filename() == "." || last.filename() == "..") last = fs::weakly_canonical(last, ignored);
  return last.extension() == ".gguf" ? last.stem().string() : last.filename().string();
}

// Where the "=" of NAME=PATH stands: the first one of a text that does not begin as only paths do. npos: the text is a path.
size_t equals_of(std::string_view text) {
  const std::string_view first = text.substr(0, text.find('/'));
  const bool is_path = text.starts_with('/') || (first.size() < text.size() && (first == "." || first == ".." || first == "~"));
  return is_path ? text.npos : text.find('=');
}

// As vLLM writes it. Its base_model_name only decorates a listing there; here the adapter itself is checked against the base.
Result<AdapterSpec> parse_json_spec(std::string_view text) {
  constexpr std::string_view kForm = R"({"name": "…", "path": "…"})";
  if (text.size() > kMaxJsonBytes) return too_large("more than {} bytes of JSON", kMaxJsonBytes);
  const auto flat = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth < 2; };
  const auto json = nlohmann::json::parse(text, flat, false);
  if (json.is_discarded() || !json.is_object()) return invalid_argument("'{}' is not JSON of the form {}", text, kForm);
  AdapterSpec spec;
  for (const auto& [key, value] : json.items()) {
    if (key != "name" && key != "path" && key != "base_model_name")
      return invalid_argument("unknown field '{}'; the form is {}", key, kForm);
    if (value.is_null() && key == "base_model_name") continue;
    if (!value.is_string()) return invalid_argument("'{}' must be a string; the form is {}", key, kForm);
    if (key == "name") spec.name = value.get<std::string>();
    if (key == "path") spec.path = value.get<std::string>();
  }
  if (spec.name.empty() || spec.path.empty()) return invalid_argument("'{}' needs a name and a path: {}", text, kForm);
  return spec;
}

}  // namespace

void add_adapter_place_flags(CLI::App& app, AdapterFlags& flags, EngineOptions& options) {
  app.add_option("--lora", flags.loras,
                 "an adapter: a folder in PEFT's form, a GGUF file, or org/name in the Hugging Face cache; may be repeated")
      ->type_name("[NAME=]PATH")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_option("--lora-modules", flags.modules, "the same as vLLM spells it: several after one flag, also as JSON")
      ->type_name("NAME=PATH")
      ->group(kGroup);
  app.add_option("--adapter-root", options.adapter_root, "each folder in it is an adapter, loaded at first use")
      ->type_name("DIR")
      ->group(kGroup);
}

void add_adapter_flags(CLI::App& app, AdapterFlags& flags, EngineOptions& options) {
  add_adapter_place_flags(app, flags, options);
  const auto option = [&app](const char* names, auto& value, const char* what, const char* type) {
    app.add_option(names, value, what)->type_name(type)->group(kGroup);
  };
  option("--lora-dtype", options.lora_dtype, "in memory: auto (as stored), float32, bfloat16, float16, int8", "TYPE");
  option("--max-lora-rank", options.max_lora_rank, "adapters of a higher rank are refused (512)", "N");
  option("--lora-extra-vocab-size", options.lora_extra_vocab_size,
         "adapters that bring more tokens of their own are refused (256)", "N");
  option("--max-loras", options.max_loras, "most different adapters in one step, those of mixes too; 0 = no limit (0)", "N");
  option("--max-cpu-loras", options.max_cpu_loras, "most adapters in memory, at least --max-loras; 0 = as many as have room (0)",
         "N");
  app.add_flag("--fully-sharded-loras", options.fully_sharded_loras, "ranks share out the rows of A too, and gather (off)")
      ->group(kGroup);
  app.add_flag_callback(
         "--no-lora-bias", [&options] { options.lora_bias = false; }, "refuse adapters that bring biases")
      ->group(kGroup);
  app.add_option("--draft-lora", flags.drafts,
                 "an adapter of the draft model, with which it guesses for adapter NAME's requests; may be repeated")
      ->type_name("NAME=PATH")
      ->allow_extra_args(false)
      ->group(kGroup);
  option("--adapter-generations", options.generations_alive,
         "contents of a name that can be asked for, the earlier ones as NAME@GENERATION (1)", "N");
  option("--adapter-memory", flags.memory, "for adapters in memory, e.g. 512M (a quarter of what is free)", "SIZE");
}

Result<AdapterSpec> parse_adapter_spec(std::string_view text) {
  AdapterSpec spec;
  if (text.starts_with('{')) {
    CHORAL_TRY(spec, parse_json_spec(text));
  } else {
    const size_t equals = equals_of(text);
    const bool named = equals != text.npos;
    spec.path = std::string(named ? text.substr(equals + 1) : text);
    spec.name = named ? std::string(text.substr(0, equals)) : name_of(text);
    if (spec.path.empty()) return invalid_argument("'{}' names no folder; write NAME=PATH", text);
    if (spec.name.empty()) return invalid_argument("'{}' gives no name; write NAME=PATH", text);
  }
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(spec.name).while_(spec.path));
  return spec;
}

std::vector<std::string> unnamed_adapters(const AdapterFlags& flags) {
  std::vector<std::string> names;
  for (const auto& text : flags.loras) {
    if (!text.starts_with('{') && equals_of(text) == text.npos) names.push_back(name_of(text));
  }
  return names;
}

Status put_adapters(const AdapterFlags& flags, EngineOptions& options) {
  const auto take = [&options](std::string_view flag, const std::vector<std::string>& texts,
                               std::vector<AdapterSpec>& specs) -> Status {
    for (const auto& text : texts) {
      CHORAL_TRY(auto spec, parse_adapter_spec(text).while_(flag));
      auto found = io::resolve_adapter(spec.path);
      if (found.status().code() == Code::kNotFound && !options.adapter_root.empty()) {
        std::error_code ignored;
        if (std::filesystem::exists(std::filesystem::path(options.adapter_root) / spec.path, ignored))
          return not_found("{}: {} stands in --adapter-root; --adapter {} chooses it", flag, spec.path, spec.path);
      }
      if (found.status().code() == Code::kNotFound && spec.path.size() < text.size() && io::resolve_adapter(text).ok())
        return not_found("{}: adapter '{}' has no {}; if {} is a path, write ./{}", flag, spec.name, spec.path, text, text);
      CHORAL_TRY(spec.path, std::move(found).while_(fmt::format("{}: adapter '{}'", flag, spec.name)));
      for (const auto& other : specs) {
        if (other.name == spec.name)
          return invalid_argument("{}: '{}' is given twice, as {} and {}", flag, spec.name, other.path, spec.path);
      }
      specs.push_back(std::move(spec));
    }
    return {};
  };
  CHORAL_RETURN_IF_ERROR(take("--lora", flags.loras, options.adapters));
  CHORAL_RETURN_IF_ERROR(take("--lora-modules", flags.modules, options.adapters));
  CHORAL_RETURN_IF_ERROR(take("--draft-lora", flags.drafts, options.draft_adapters));
  if (!flags.memory.empty()) {
    CHORAL_TRY(options.adapter_memory_bytes, parse_size(flags.memory).while_("--adapter-memory"));
    if (options.adapter_memory_bytes == 0) return invalid_argument("--adapter-memory: 0 bytes hold no adapter");
  }
  return {};
}

}  // namespace choral::apps
