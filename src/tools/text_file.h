// Files that a user names on the command line: prompts, templates, saved chats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/status.h"

namespace choral::tools {

// The whole file. Written to meanwhile: kUnavailable. Over `max_bytes`: kTooLarge; absent: kNotFound; not a regular file:
// kInvalidArgument.
Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace choral::tools
