// Answers as lines of JSON: what `generate --output` and `--json` write, and the C API. docs/cli.md lists the fields. An answer
// may hold millions of log probabilities, so it is written in pieces and never stands in memory as a text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "choral/types.h"
#include "requests/request_line.h"

namespace choral::requests {

// Takes the pieces of a line one after the other; its error ends the line.
using PieceWriter = std::function<Status(std::string_view piece)>;

Status write_answer(const LineEcho& echo, const RequestOutput& output, const PieceWriter& write);  // without the line's end
std::string error_line(const LineEcho& echo, int64_t line, const Status& status);
// What `lora` would say for these adapters: a name, or a list with factors; empty for the base.
std::string lora_json(const std::vector<AdapterUse>& adapters);

}  // namespace choral::requests
