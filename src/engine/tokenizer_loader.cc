#include "engine/tokenizer_loader.h"

#include "io/mapped_file.h"
#include "io/model_location.h"
#include "text/fill_tokens.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// The text of an optional file; empty when it is absent.
Result<std::string> read_optional(const fs::path& path, uint64_t max_bytes) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::string();
  return io::read_whole_file(path, max_bytes);
}

Result<LoadedTokenizer> load_from_directory(const fs::path& directory) {
  CHORAL_TRY(const auto json, io::read_whole_file(directory / "tokenizer.json", kMaxTokenizerBytes));
  CHORAL_TRY(const auto config, read_optional(directory / "tokenizer_config.json", kMaxConfigBytes));
  CHORAL_TRY(auto tokenizer, text::Tokenizer::from_json(json, config).while_((directory / "tokenizer.json").string()));
  LoadedTokenizer loaded;
  for (const auto& [name, path] : {std::pair("default", directory / "chat_template.jinja"),
                                   std::pair("tool_use", directory / "additional_chat_templates" / "tool_use.jinja")}) {
    CHORAL_TRY(auto source, read_optional(path, kMaxConfigBytes));
    if (!source.empty()) loaded.chat_templates.push_back({name, std::move(source)});
  }
  const auto in_config = tokenizer->chat_templates();
  if (loaded.chat_templates.empty()) loaded.chat_templates.assign(in_config.begin(), in_config.end());
  loaded.tokenizer = std::move(tokenizer);
  return loaded;
}

Status read_id(const io::ConfigMap& metadata, std::string_view role, std::optional<int64_t>& out) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", role);
  if (!metadata.contains(key)) return {};
  CHORAL_TRY(out, metadata.get_int(key));
  return {};
}

Status read_flag(const io::ConfigMap& metadata, std::string_view key, std::optional<bool>& out) {
  if (!metadata.contains(key)) return {};
  CHORAL_TRY(out, metadata.get_bool(key));
  return {};
}

Result<LoadedTokenizer> load_from_gguf(const io::GgufFile& file) {
  const io::ConfigMap& metadata = file.metadata();
  text::GgufTokenizerData data;
  CHORAL_TRY(data.model, metadata.get_string("tokenizer.ggml.model"));
  CHORAL_TRY(data.pre, metadata.get_string_or("tokenizer.ggml.pre", "default"));
  CHORAL_TRY(data.tokens, metadata.get_strings("tokenizer.ggml.tokens"));
  if (metadata.contains("tokenizer.ggml.scores")) {
    CHORAL_TRY(const auto scores, metadata.get_doubles("tokenizer.ggml.scores"));
    data.scores.assign(scores.begin(), scores.end());
  }
  CHORAL_TRY(const auto types, metadata.get_ints_or_empty("tokenizer.ggml.token_type", {0, 255}));
  data.token_types.assign(types.begin(), types.end());
  CHORAL_TRY(data.merges, metadata.get_strings_or_empty("tokenizer.ggml.merges"));
  CHORAL_RETURN_IF_ERROR(read_id(metadata, "bos", data.bos_id));
  CHORAL_RETURN_IF_ERROR(read_id(metadata, "eos", data.eos_id));
  CHORAL_RETURN_IF_ERROR(read_id(metadata, "unknown", data.unk_id));
  CHORAL_RETURN_IF_ERROR(read_id(metadata, "padding", data.pad_id));
  for (const auto role : text::kFillRoles) {
    std::optional<int64_t> id;
    CHORAL_RETURN_IF_ERROR(read_id(metadata, role, id));
    if (id) data.fill_ids.emplace_back(role, *id);
  }
  CHORAL_RETURN_IF_ERROR(read_flag(metadata, "tokenizer.ggml.add_bos_token", data.add_bos));
  CHORAL_RETURN_IF_ERROR(read_flag(metadata, "tokenizer.ggml.add_eos_token", data.add_eos));
  CHORAL_RETURN_IF_ERROR(read_flag(metadata, "tokenizer.ggml.add_space_prefix", data.add_space_prefix));
  // Phi-3's tokens of a chat do, its mixtures' too, and GGUF has no word for it.
  CHORAL_TRY(const auto architecture, metadata.get_string_or("general.architecture", ""));
  data.special_take_space = (architecture == "phi3" || architecture == "phimoe") && data.model == "llama";
  for (const auto& [name, key] :
       {std::pair("default", "tokenizer.chat_template"), std::pair("tool_use", "tokenizer.chat_template.tool_use")}) {
    CHORAL_TRY(auto source, metadata.get_string_or(key, ""));
    if (!source.empty()) data.chat_templates.push_back({name, std::move(source)});
  }
  CHORAL_TRY(auto tokenizer, text::Tokenizer::from_gguf(data).while_(file.path()));
  return LoadedTokenizer{std::move(tokenizer), std::move(data.chat_templates)};
}

}  // namespace

Result<LoadedTokenizer> load_tokenizer(const fs::path& path, const io::GgufFile* opened) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return load_from_directory(path);
  if (opened != nullptr) return load_from_gguf(*opened);
  CHORAL_TRY(const io::FileKind kind, io::file_kind(path));
  if (kind != io::FileKind::kGguf) return load_from_directory(path.parent_path());
  CHORAL_TRY(const auto file, io::GgufFile::open(path));
  return load_from_gguf(*file);
}

}  // namespace choral::engine
