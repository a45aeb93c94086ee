// Where tests find what they read and load: in the tree that they were built in, unless the environment says otherwise. So the
// programs run on machines that have no such tree (tests/gpu).
#pragma once

#include <cstdlib>
#include <string>

namespace choral::testing {

inline std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// A path below tests/data, with its leading slash.
inline std::string test_data(const std::string& path = "") {
  static const std::string folder = from_environment("CHORAL_TEST_DATA", CHORAL_TEST_DATA);
  return folder + path;
}

}  // namespace choral::testing
