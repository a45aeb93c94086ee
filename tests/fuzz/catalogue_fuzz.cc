// Any bytes as a catalogue. What is accepted leads nowhere but below its folder, and says the same when it is written and read
// again.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "lora/peft/adapter_name.h"
#include "serve/catalogue/catalogue.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = choral::serve::read_catalogue({reinterpret_cast<const char*>(data), size});
  if (!read.ok()) return 0;
  for (const auto& [name, adapter] : read->adapters) {
    CHORAL_CHECK(choral::lora::check_adapter_name(name).ok(), "a name that no adapter can have");
    const std::string path = "/" + adapter.path + "/";
    CHORAL_CHECK(path.find("/../") == path.npos && path.find("//") == path.npos, "a path that leads out");
    for (const auto& [file, facts] : adapter.files)
      CHORAL_CHECK(file.find('/') == file.npos && facts.bytes > 0, "a file that is none of an adapter's");
  }
  const auto again = choral::serve::read_catalogue(choral::serve::catalogue_text(*read));
  CHORAL_CHECK(again.ok() && again->adapters == read->adapters, "it is another one when it is written");
  return 0;
}
