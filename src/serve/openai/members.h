// Members of a body's objects that nobody knows. For .cc files only (serve/openai/json.h). Pure.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "requests/unknown_fields.h"
#include "serve/openai/calls.h"
#include "serve/openai/json.h"

namespace choral::serve {

// Names those of the object at `place` that are not `known`, as a body's own are named.
inline void warn_of_others(std::string_view place, const Json& object, std::initializer_list<std::string_view> known,
                           BodyNotes& notes) {
  constexpr size_t kMost = 16;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    if (std::find(known.begin(), known.end(), name) != known.end() || notes.warnings.size() >= kMost) continue;
    std::vector<std::string> places;
    for (const auto each : known) places.push_back(fmt::format("{}.{}", place, each));
    const std::string full = fmt::format("{}.{}", place, name);
    notes.warnings.push_back(requests::unknown_field_text(full, places, requests::UnknownField::kHasNoEffect));
  }
}

}  // namespace choral::serve
