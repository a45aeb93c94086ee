// From what a user typed to a model on this disk: a directory, a .gguf or .safetensors file, or "org/name" or
// "org/name@revision" in the local Hugging Face cache (models--org--name/refs/main -> snapshots/<commit>). Nothing is fetched:
// tools/hub_pull.h does that. Names are checked before they become paths.
// Thread-safe as far as the environment is left alone.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::io {

// Where the hub's clients keep what is theirs: $HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface; empty when
// there is no home.
std::filesystem::path hub_home();
// Where to look: $HF_HUB_CACHE, else `hub` there.
std::vector<std::filesystem::path> hub_cache_roots();

// A miss is kNotFound with every place looked at and the nearest cached name. Of a folder without config.json the model is its
// one GGUF file.
Result<std::filesystem::path> resolve_model(std::string_view name_or_path);
Result<std::filesystem::path> resolve_adapter(std::string_view name_or_path);  // the hub keeps adapters as it keeps models
Result<std::filesystem::path> resolve_model(std::string_view name_or_path, std::span<const std::filesystem::path> roots);

struct HubName {
  std::string repository;         // "org/name"
  std::string revision = "main";  // a branch, a tag or a commit
};
// "org/name" or "org/name@revision".
Result<HubName> parse_hub_name(std::string_view text);

// "org/name" or "name": segments of [A-Za-z0-9._-], 1 to 96 characters, not starting with '.' or '-', without ".." or "--".
bool is_model_name(std::string_view name);

}  // namespace choral::io
