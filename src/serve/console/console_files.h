// The console's files as the program carries them. src/serve/console/bundle.cmake makes the table while Choral is built; where a
// tool for it was missing it has one page that says so. Constants; any thread.
#pragma once

#include <span>
#include <string_view>

namespace choral::serve {

struct ConsoleFile {
  std::string_view name;  // "main.js"
  std::string_view content_type;
  std::string_view etag;  // with its quotes
  bool is_gzip = false;
  bool is_named_by_content = false;  // another content has another name
  std::string_view bytes;
};

std::span<const ConsoleFile> console_files();

}  // namespace choral::serve
