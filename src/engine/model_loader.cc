#include "engine/model_loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/size_text.h"
#include "engine/tokenizer_loader.h"
#include "io/hub_cache.h"
#include "io/model_class.h"
#include "io/model_config.h"
#include "io/model_location.h"
#include "models/registry.h"
#include "quant/quant_config.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

void report(const std::function<void(const LoadProgress&)>& on_progress, std::string_view phase, std::string_view detail,
            double fraction) {
  if (on_progress) on_progress({phase, detail, fraction});
}

// "model.layers.12.mlp…" -> 12, else -1.
int64_t layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return -1;
  int64_t layer = 0;
  for (const char c : name.substr(kPrefix.size())) {
    if (c < '0' || c > '9' || layer > 1'000'000) break;
    layer = layer * 10 + (c - '0');
  }
  return layer;
}

// Tensors that hold nothing a model needs: what old exporters wrote, and scales of a KV cache of fewer bits, which is float here.
bool is_harmless(std::string_view name) {
  constexpr std::string_view kEnds[] = {"rotary_emb.inv_freq", ".k_scale",        ".v_scale",        ".k_zero_point",
                                        ".v_zero_point",       ".kv_cache_scale", ".kv_cache_offset"};
  return name == "rope_freqs.weight" || name.starts_with("rope_factors_") ||
         std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return name.ends_with(end); });
}

// DeepSeek-V3.2's: it chooses nothing in texts as long as are served.
bool is_indexer(std::string_view name) { return name.find(".self_attn.indexer.") != name.npos; }

std::string count_of_formats(std::span<layers::Module* const> modules) {
  std::vector<std::pair<std::string, int64_t>> bytes;
  for (const auto* module : modules) {
    if (module->weight_bytes() == 0) continue;
    const std::string format = module->format();
    auto found = std::find_if(bytes.begin(), bytes.end(), [&](const auto& entry) { return entry.first == format; });
    if (found == bytes.end()) found = bytes.insert(bytes.end(), {format, 0});
    found->second += module->weight_bytes();
  }
  std::sort(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [format, size] : bytes) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format, size_text(size));
  return text;
}

// What was fused; what was not stands in `choral doctor --ops`, unless somebody asked.
void describe_fusion(std::span<const layers::FusionDecision> decisions, std::vector<std::string>& notes) {
  for (const auto& decision : decisions) {
    if (decision.sites > 0)
      notes.push_back(fmt::format("fused: {} at {} places, by {}", decision.op, decision.sites, decision.provider));
    if (decision.reason == "switched off") notes.push_back(fmt::format("not fused: {}, {}", decision.op, decision.reason));
  }
}

// What transformers changes with the length of a prompt is here decided once, so that a row depends on itself alone.
Status describe_long_rope(const io::ConfigMap& config, const models::Model& model, std::vector<std::string>& notes) {
  CHORAL_TRY(const auto scaling, config.get_map_or_empty("rope_scaling"));
  CHORAL_TRY(const auto type, scaling.get_string_or("rope_type", ""));
  if (std::string_view(type) != "longrope") return {};
  CHORAL_TRY(const int64_t first, scaling.get_int_or("original_max_position_embeddings", 0));
  if (first <= 0 || model.max_positions() <= first) return {};
  notes.push_back(
      fmt::format("longrope: all prompts are computed with its long factors, since up to {} positions are served; "
                  "--max-model-len {} takes the short ones",
                  model.max_positions(), first));
  return {};
}

Result<FoundModel> build_and_find(const io::ConfigMap& config, platform::Session& session, quant::WeightSource& source,
                                  int64_t max_model_len, const ModelForms& forms) {
  const auto has_tensor = [&source](const std::string& name) { return source.contains(name); };
  CHORAL_TRY(auto built, build_model(config, session, forms, has_tensor, max_model_len));
  FoundModel found{.model = std::move(built.model), .notes = std::move(built.notes)};
  CHORAL_RETURN_IF_ERROR(describe_long_rope(config, *found.model, found.notes));
  for (auto* module : found.model->modules()) {
    CHORAL_RETURN_IF_ERROR(module->load_weights(source));
    found.expected_bytes += module->expected_bytes(source.request());
  }
  return found;
}

Result<LoadedModel> pack(const platform::Context& ctx, FoundModel found, quant::WeightSource& source,
                         const layers::FusionConfig& fusion, const std::function<void(const LoadProgress&)>& on_progress) {
  LoadedModel loaded{.model = std::move(found.model), .notes = std::move(found.notes)};
  const auto modules = loaded.model->modules();
  double done = 0;
  int64_t mapped_bytes = 0;
  for (auto* module : modules) {
    CHORAL_RETURN_IF_ERROR(module->process_weights_after_loading(ctx, source));
    loaded.weight_bytes += module->weight_bytes();
    loaded.parameters += module->parameters();
    mapped_bytes += module->mapped_bytes();
    report(on_progress, "pack", module->prefix(), ++done / static_cast<double>(modules.size()));
  }
  describe_fusion(loaded.model->fuse(ctx, fusion), loaded.notes);
  loaded.notes.push_back("weights: " + count_of_formats(modules));
  if (mapped_bytes > 0) {
    loaded.notes.push_back(
        fmt::format("weights: {} more stay in their file, whose rows are read as tokens need them; replace "
                    "that file by renaming a finished one, and never write to it",
                    size_text(mapped_bytes)));
  }
  return loaded;
}

Result<kernels::Activations> parse_activations(std::string_view name) {
  if (name == "auto") return kernels::Activations::kFull;
  if (name == "int8") return kernels::Activations::kInt8Blocks;
  if (name == "16bit") return kernels::Activations::k16Bits;
  return invalid_argument("--activations {}: choose auto (as the checkpoint says, else in full), 16bit or int8", name);
}

// A dot elsewhere is part of the name: "model.Q4_1".
std::string without_ending(const fs::path& file) {
  if (const auto part = io::gguf_part(file.filename().string())) return part->stem;
  const bool has_ending = file.extension() == ".gguf" || file.extension() == ".safetensors";
  return (has_ending ? file.stem() : file.filename()).string();
}

}  // namespace

Result<quant::WeightRequest> parse_weight_request(std::string_view dtype, std::string_view activations) {
  CHORAL_TRY(const kernels::Activations form, parse_activations(activations));
  if (dtype == "auto") return quant::WeightRequest{.activations = form};
  auto type = parse_dtype(dtype);
  if (!type.ok() || !(*type == DType::kF32 || *type == DType::kF16 || *type == DType::kBF16)) {
    return invalid_argument("--dtype {}: choose auto, float32, bfloat16 or float16", dtype);
  }
  return quant::WeightRequest{.as_stored = false, .convert_to = *type, .activations = form};
}

Result<ModelFiles> open_model_config(const EngineOptions& options) {
  if (options.model.empty()) return invalid_argument("no model was given: name a directory, a GGUF file or org/name");
  CHORAL_TRY(const fs::path path, io::resolve_model(options.model));
  ModelFiles files;
  files.path = path.string();
  std::error_code ignored;
  files.name = io::parse_hub_name(options.model).ok() && path != options.model ? options.model
               : fs::is_directory(path, ignored) ? fs::weakly_canonical(path, ignored).filename().string()
                                                 : without_ending(path);
  CHORAL_TRY(files.location, io::locate_model(path));
  CHORAL_TRY(files.config, io::load_model_config(files.location));
  files.base_names = {files.name, files.path, options.model};
  if (const auto said = files.config.get_string_or("_name_or_path", ""); said.ok() && !said->empty()) {
    files.base_names.push_back(*said);
  }
  return files;
}

Result<ModelFiles> open_model_files(const EngineOptions& options) {
  CHORAL_TRY(ModelFiles files, open_model_config(options));
  CHORAL_TRY(files.generation_config, io::load_generation_config(files.location));
  files.pooling = read_pooling(files.path, files.config);
  const bool own = options.tokenizer.empty();
  fs::path tokenizer_path = files.path;
  if (!own) {
    CHORAL_TRY(tokenizer_path, io::resolve_model(options.tokenizer));
  }
  CHORAL_TRY(auto tokenizer, load_tokenizer(tokenizer_path, own ? files.location.gguf.get() : nullptr).while_("tokenizer"));
  files.tokenizer = std::move(tokenizer.tokenizer);
  files.chat_templates = std::move(tokenizer.chat_templates);
  if (!options.chat_template.empty()) files.chat_templates = {{"default", options.chat_template}};
  return files;
}

void settle_kv_dtype(const ModelFiles& files, EngineOptions& options) {
  if (options.kv_cache_dtype != "auto") return;
  const auto kind = io::model_class(architecture_of(files.config)).kind;
  const bool gives_numbers = kind == io::ClassKind::kClasses || kind == io::ClassKind::kNoHead;
  if (gives_numbers || (files.pooling.ok() && files.pooling->is_purpose)) options.kv_cache_dtype = "float32";
}

std::string architecture_of(const io::ConfigMap& config) {
  const auto architectures = config.get_strings_or_empty("architectures");
  return architectures.ok() && !architectures->empty() ? architectures->front() : "";
}

Result<io::ConfigMap> with_own_head(const io::ConfigMap& config, quant::WeightSource& source, std::vector<std::string>& notes) {
  const std::string head = "lm_head.weight", table = "model.embed_tokens.weight";
  CHORAL_TRY(const bool tied, config.get_bool_or("tie_word_embeddings", false));
  if (!tied || !source.contains(head) || !source.contains(table)) return config;
  CHORAL_TRY(const int64_t vocab, config.get_int("vocab_size", io::kPositive));
  CHORAL_TRY(const int64_t hidden, config.get_int("hidden_size", io::kPositive));
  CHORAL_TRY(const auto a, source.take(head, {vocab, hidden}));
  CHORAL_TRY(const auto b, source.take(table, {vocab, hidden}));
  const bool same = a.view.dtype == b.view.dtype &&
                    std::memcmp(a.view.data, b.view.data, static_cast<size_t>(row_bytes(a.view.dtype, hidden) * vocab)) == 0;
  source.release(head);
  source.release(table);
  if (same) return config;
  notes.push_back(fmt::format("{} differs from {} and is used, although tie_word_embeddings is true", head, table));
  CHORAL_LOG(kWarn, "{}", notes.back());
  io::ConfigObject untied = config.object();
  untied.set("tie_word_embeddings", false);
  return io::ConfigMap(std::move(untied), config.source());
}

Status check_untaken(const std::vector<std::string>& names, const io::ConfigMap& config, std::vector<std::string>& notes) {
  CHORAL_TRY(const int64_t layers, config.get_int("num_hidden_layers", io::kPositive));
  CHORAL_TRY(const bool tied, config.get_bool_or("tie_word_embeddings", false));
  std::vector<std::string> lost, spare;
  for (const auto& name : names) {
    if (is_harmless(name) || (tied && name == "lm_head.weight")) continue;
    const int64_t layer = layer_of(name);
    (layer >= 0 && layer < layers && !is_indexer(name) ? lost : spare).push_back(name);
  }
  if (!lost.empty()) {
    const size_t shown = std::min<size_t>(lost.size(), 5);
    return unsupported("the checkpoint holds {} tensors that this model family does not use, so its answers would be wrong: {}{}",
                       lost.size(), fmt::join(lost.begin(), lost.begin() + static_cast<ptrdiff_t>(shown), ", "),
                       lost.size() > shown ? ", …" : "");
  }
  if (!spare.empty()) {
    notes.push_back(
        fmt::format("{} tensors of the checkpoint are not used by this model (first: {})", spare.size(), spare.front()));
    CHORAL_LOG(kWarn, "{}", notes.back());
  }
  return {};
}

Result<BuiltModel> build_model(const io::ConfigMap& config, platform::Session& session, const ModelForms& forms,
                               quant::HasTensor has_tensor, int64_t max_model_len) {
  CHORAL_TRY(const auto quant_config, quant::make_quant_config(config, forms.quantization, forms.schemes, std::move(has_tensor)));
  const auto notes = quant_config->notes();
  if (forms.strict && !notes.empty()) return unsupported("--strict: {}", fmt::join(notes, "; "));
  CHORAL_TRY(auto model,
             models::make_model(config, {session, *quant_config, forms.custom_ops, forms.overrides, max_model_len, forms.ranks}));
  return BuiltModel{std::move(model), notes};
}

Result<FoundModel> find_weights(const io::ConfigMap& config, platform::Session& session, quant::WeightSource& source,
                                int64_t max_model_len, const ModelForms& forms) {
  auto found = build_and_find(config, session, source, max_model_len, forms);
  CHORAL_RETURN_IF_ERROR(source.check_unchanged());  // says more than what went wrong with what was read
  return found;
}

Result<LoadedModel> pack_weights(const platform::Context& ctx, FoundModel found, quant::WeightSource& source,
                                 const layers::FusionConfig& fusion,
                                 const std::function<void(const LoadProgress&)>& on_progress) {
  auto loaded = pack(ctx, std::move(found), source, fusion, on_progress);
  CHORAL_RETURN_IF_ERROR(source.check_unchanged());
  return loaded;
}

}  // namespace choral::engine
