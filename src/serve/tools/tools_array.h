// Reads and checks OpenAI's `tools` array. Internal to the planning of tools (tools_request.h). Thread-safety: pure functions.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include "serve/tools/tools_request.h"

namespace choral::serve {

// An error about one field of the request, in OpenAI's words.
struct FieldFault {
  std::string& param;
  Status wrong(Code code, std::string field, std::string message) {
    param = std::move(field);
    return Status(code, std::move(message));
  }
  Status missing(const std::string& field);
  Status wrong_type(const std::string& field, std::string_view expected, simdjson::dom::element got);
};

Result<std::vector<Tool>> read_tools(simdjson::dom::element tools, const ToolLimits& limits, FieldFault& fault);

}  // namespace choral::serve
