// A small GGUF file of a family, for tests of what is read from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/model_config.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io::family_test {

using testing::GgufSpec;
using testing::le;

inline std::string floats(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += le(static_cast<float>(i + 1));
  return out;
}

inline GgufSpec base(const std::string& arch) {
  GgufSpec spec;
  const auto key = [&](const char* name) { return arch + "." + name; };
  spec.metadata = {GgufSpec::kv_string("general.architecture", arch),
                   GgufSpec::kv_u32(key("block_count"), 2),
                   GgufSpec::kv_u32(key("context_length"), 128),
                   GgufSpec::kv_u32(key("embedding_length"), 32),
                   GgufSpec::kv_u32(key("feed_forward_length"), 64),
                   GgufSpec::kv_u32(key("attention.head_count"), 2),
                   GgufSpec::kv_f32(key("attention.layer_norm_rms_epsilon"), 1e-6F)};
  spec.tensors = {{"token_embd.weight", {32, 10}, 8, std::string(340, 0)}};
  return spec;
}

inline void put(GgufSpec& spec, const std::string& entry) {
  const std::string key = entry.substr(0, 8 + static_cast<unsigned char>(entry[0]));  // its length, then the key itself
  std::erase_if(spec.metadata, [&](const std::string& other) { return other.starts_with(key); });
  spec.metadata.push_back(entry);
}

template <class Use>
auto with_file(const GgufSpec& spec, Use use) {
  const choral::testing::TempDir folder;
  return use(folder.write("m.gguf", spec.build()));
}

inline Result<ConfigMap> config_of(const GgufSpec& spec) {
  return with_file(spec, [](const auto& path) { return load_model_config(path); });
}

inline std::string field(const GgufSpec& spec, std::string_view name) {
  const auto config = config_of(spec);
  if (!config.ok()) return config.status().message();
  const ConfigValue* value = config->object().find(name);
  return value == nullptr ? "absent" : value->to_json();
}

inline std::string array_of(const std::string& key, uint32_t type, const std::vector<uint32_t>& values) {
  std::string raw = le(type) + le(static_cast<uint64_t>(values.size()));
  for (const uint32_t value : values) raw += type == 7 ? std::string(1, static_cast<char>(value)) : le(value);
  return GgufSpec::kv(key, 9, raw);
}
inline constexpr uint32_t kU32 = 4, kBool = 7;  // types of an array's values

}  // namespace choral::io::family_test
