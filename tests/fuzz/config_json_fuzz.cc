// Any text as config.json. What is accepted, written out and read again is the same; normalising it never fails in another way
// than by a Status; every getter copes with every value.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "io/config_map.h"
#include "io/model_config.h"

namespace {

void try_getters(const choral::io::ConfigMap& map, int depth) {
  for (const auto& member : map.members()) {
    int accepted = 0;
    accepted += map.get_int(member.key).ok();
    accepted += map.get_double(member.key).ok();
    accepted += map.get_bool(member.key).ok();
    accepted += map.get_string(member.key).ok();
    accepted += map.get_ints(member.key).ok();
    accepted += map.get_doubles(member.key).ok();
    accepted += map.get_strings(member.key).ok();
    accepted += map.get_int_or_ints(member.key).ok();
    accepted += map.get_maps(member.key).ok();
    CHORAL_CHECK(!member.value.is_null() || accepted == 1, "a null counts as absent: only get_int_or_ints accepts it");
    if (auto child = map.get_map(member.key); child.ok() && depth < 3) try_getters(*child, depth + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto map = choral::io::ConfigMap::parse_json(text, "fuzzed");
  if (!map.ok()) return 0;
  const std::string written = map->to_json();
  const auto again = choral::io::ConfigMap::parse_json(written, "written");
  CHORAL_CHECK(again.ok(), "what was written cannot be read");
  CHORAL_CHECK(again->to_json() == written, "what was written reads differently");
  try_getters(*map, 0);
  if (const auto normal = choral::io::normalise_model_config(*map); normal.ok()) {
    const auto twice = choral::io::normalise_model_config(*normal);
    CHORAL_CHECK(twice.ok() && twice->to_json() == normal->to_json(), "normalising twice differs from once");
  }
  return 0;
}
