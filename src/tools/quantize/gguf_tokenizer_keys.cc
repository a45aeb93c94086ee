#include "tools/quantize/gguf_tokenizer_keys.h"

#include <algorithm>

#include "engine/tokenizer_loader.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "text/gguf_tokenizer.h"

namespace choral::tools {
namespace {

constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;

std::string key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

// Embeddings may have more rows than there are tokens; GGUF has a token for each.
Status pad(const io::ConfigMap& config, text::GgufTokenizerData& data) {
  CHORAL_TRY(const int64_t rows, config.get_int("vocab_size", io::kPositive));
  if (std::ssize(data.tokens) > rows) {
    return corrupt("{} is {}, but the tokenizer has {} tokens", config.path_of("vocab_size"), rows, data.tokens.size());
  }
  for (int64_t id = std::ssize(data.tokens); id < rows; ++id) data.tokens.push_back(fmt::format("[PAD{}]", id));
  data.token_types.resize(rows, text::kUnused);
  if (!data.scores.empty()) data.scores.resize(rows, 0.0f);
  return {};
}

// The tokens that end an answer: GGUF has names for the text's, a turn's and a message's end.
Status add_ends(const FloatModel& model, const text::GgufTokenizerData& data, io::GgufMetadata& metadata) {
  CHORAL_TRY(const auto generation, io::load_generation_config(model.location));
  const auto& said = generation.contains("eos_token_id") ? generation : model.config;
  CHORAL_TRY(auto ends, said.get_int_or_ints("eos_token_id", io::kNotNegative));
  const auto eos = std::ranges::find(ends, data.eos_id.value_or(-1));
  if (eos != ends.end()) std::rotate(ends.begin(), eos, eos + 1);  // the tokenizer's own comes first
  if (ends.empty() && data.eos_id) ends.push_back(*data.eos_id);
  constexpr std::string_view kNames[] = {"eos", "eot", "eom"};
  if (ends.size() > std::size(kNames)) {
    return unsupported("{} has {} tokens; GGUF has names for {}", said.path_of("eos_token_id"), ends.size(), std::size(kNames));
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] >= std::ssize(data.tokens)) {
      return corrupt("{}: {} is no token of {}", said.path_of("eos_token_id"), ends[i], data.tokens.size());
    }
    metadata.set_u32(key(fmt::format("{}_token_id", kNames[i])), static_cast<uint32_t>(ends[i]));
  }
  return {};
}

}  // namespace

Status add_tokenizer_keys(const FloatModel& model, io::GgufMetadata& metadata) {
  CHORAL_TRY(const auto loaded, engine::load_tokenizer(model.location.directory).while_("tokenizer"));
  const auto file = model.location.directory / "tokenizer.json";
  CHORAL_TRY(const auto json, io::read_whole_file(file, kMaxTokenizerBytes));
  CHORAL_TRY(auto data, text::gguf_tokenizer_data(*loaded.tokenizer, json).while_(file.string()));
  CHORAL_RETURN_IF_ERROR(pad(model.config, data));
  metadata.set_string(key("model"), data.model);
  if (!data.pre.empty()) metadata.set_string(key("pre"), data.pre);
  metadata.set_strings(key("tokens"), data.tokens);
  if (!data.scores.empty()) metadata.set_f32s(key("scores"), data.scores);
  metadata.set_i32s(key("token_type"), data.token_types);
  if (!data.merges.empty()) metadata.set_strings(key("merges"), data.merges);
  for (const auto& [name, id] :
       {std::pair("bos", data.bos_id), std::pair("unknown", data.unk_id), std::pair("padding", data.pad_id)}) {
    if (id) metadata.set_u32(key(fmt::format("{}_token_id", name)), static_cast<uint32_t>(*id));
  }
  CHORAL_RETURN_IF_ERROR(add_ends(model, data, metadata));
  for (const auto& [name, flag] : {std::pair("add_bos_token", data.add_bos), std::pair("add_eos_token", data.add_eos),
                                   std::pair("add_space_prefix", data.add_space_prefix)}) {
    if (flag) metadata.set_bool(key(name), *flag);
  }
  for (const auto& [name, source] : loaded.chat_templates) {
    metadata.set_string(name == "default" ? "tokenizer.chat_template" : fmt::format("tokenizer.chat_template.{}", name), source);
  }
  return {};
}

}  // namespace choral::tools
