// The console over HTTP: a file of it with the headers that keep a page harmless. Scripts come from this server alone and nothing
// leaves for another one, whatever a model wrote into an answer. Any thread.
#pragma once

#include <string_view>

#include "serve/console/console_files.h"
#include "serve/http/message.h"

namespace choral::serve {

inline constexpr std::string_view kConsolePage = "index.html";

// Null: there is none of that name.
const ConsoleFile* console_file(std::string_view name);

// 304 where the client has it, 406 where it is kept compressed and the client does not take that.
HttpResponse console_answer(const ConsoleFile& file, const HttpRequest& request);

}  // namespace choral::serve
