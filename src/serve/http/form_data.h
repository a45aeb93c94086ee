// The parts of a body of multipart/form-data (RFC 7578), as a client uploads a file: found in one pass, as views into the body.
// Bounded in the number of parts and the bytes of each part's head. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::serve {

struct FormPart {
  std::string name;
  std::optional<std::string> file_name;
  std::string_view content;
};

inline constexpr size_t kMostFormParts = 32;
inline constexpr size_t kMostFormHeadBytes = 8 << 10;

// `content_type`: the value of the request's header, which names the boundary.
Result<std::vector<FormPart>> read_form_data(std::string_view content_type, std::string_view body);

}  // namespace choral::serve
