// Any bytes as a form with an adapter, and its first line as the header that names the boundary. What is accepted has a name, and
// files that lie in the body.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serve/openai/adapter_form.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view type = text.substr(0, text.find('\n'));
  const std::string_view body = text.substr(std::min(type.size() + 1, size));
  choral::serve::BodyNotes notes;
  const auto form = choral::serve::read_adapter_form(type, body, notes);
  if (!form.ok()) return 0;
  CHORAL_CHECK(!form->call.name.empty() && form->call.path.empty() && !form->files.empty(), "a form that is no call");
  for (const auto& file : form->files) {
    CHORAL_CHECK(file.name.find('/') == file.name.npos, "a file's name that is a path");
    CHORAL_CHECK(file.content.data() >= body.data() && file.content.data() + file.content.size() <= body.data() + body.size(),
                 "a file that lies outside");
  }
  return 0;
}
