// Whether an adapter was made for this base, as far as names tell. Shapes tell nothing: a model and its instruct form have the
// same. Names are compared leniently, because false alarms teach people to ignore the warning: without folder, case, separators,
// maker and the words for how weights are stored ("HuggingFaceTB/SmolLM2-135M-Instruct" is "SmolLM2-135M-Instruct.Q4_1.gguf"). A
// name that says nothing ("checkpoint-500", "model") agrees with every other. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::lora {

enum class BaseMatch : uint8_t { kUnknown, kSame, kDifferent };

// `names`: all that the model is called: its file or folder, what its config says, what the user wrote.
BaseMatch match_base(std::string_view made_for, std::span<const std::string> names);

// What to tell the user when they differ; else empty.
std::string other_base_note(std::string_view made_for, std::span<const std::string> names);
// The same as the refusal that --strict asks for: an adapter's name for its base is none of the model's.
Status check_lora_name(std::string_view made_for, std::span<const std::string> names);

}  // namespace choral::lora
