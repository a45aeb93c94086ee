// Any bytes as a file of API keys, and as the values of the two headers that bring a key. What is accepted has unique names and
// printable ones; no message repeats a line.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/printable.h"
#include "serve/keys/api_keys.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> warnings;
  const auto keys = choral::serve::parse_key_file(text, "keys", warnings);
  CHORAL_CHECK(warnings.size() <= 20, "warnings without end");
  if (keys.ok()) {
    std::set<std::string> names;
    for (const auto& key : *keys) {
      CHORAL_CHECK(names.insert(key.holder.name).second, "a name twice");
      CHORAL_CHECK(choral::printable(key.holder.name) == key.holder.name, "a name that drives a terminal");
    }
  }
  const size_t half = size / 2;
  const auto key = choral::serve::presented_key(text.substr(0, half), text.substr(half));
  CHORAL_CHECK(key.size() <= size && (key.empty() || (key.front() != ' ' && key.back() != ' ')), "a key that is not trimmed");
  return 0;
}
