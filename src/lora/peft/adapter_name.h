// What an adapter may be called, and which folder of a root a name stands for. A name has one spelling, so nothing is known
// twice, and no name leads out of the root. Names come from requests, so they are checked before anything is kept. Safe on any
// thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace choral::lora {

inline constexpr std::string_view kBaseName = "base";  // the model without adapters; no adapter can be called so
inline constexpr size_t kMaxNameBytes = 256;

// Parts divided by single "/", none of them "." or "..", no control characters, not "base".
Status check_adapter_name(std::string_view name);

// NAME@GENERATION, cut at its last '@' where digits of a generation follow; else the whole name.
struct NamedGeneration {
  std::string_view name;
  std::optional<int> generation = std::nullopt;
};
NamedGeneration split_generation(std::string_view name);

// The folder `name`, links resolved; nothing when there is none. The last part may be a link to another folder of the root; a
// name that leads over a link on its way, or out of the root, is an error that says where it leads. `name` is checked.
Result<std::optional<std::filesystem::path>> adapter_in_root(const std::filesystem::path& root, std::string_view name);

}  // namespace choral::lora
