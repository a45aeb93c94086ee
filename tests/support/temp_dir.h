// A folder of its own for one test, gone with everything in it at the end of the scope, also when the test fails.
// Tests run in parallel: never write to a fixed name. Not thread-safe.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/check.h"

namespace choral::testing {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "choral-test-XXXXXX").string();
    CHORAL_CHECK(mkdtemp(name.data()) != nullptr, "the temporary folder cannot be made; is TMPDIR writable?");
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;  // a destructor has nobody to tell
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

  // Writes a file, making its folders; gives its path.
  std::string write(std::string_view name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    CHORAL_CHECK(out.good(), "a test file cannot be written; is the disk full?");
    return file.string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace choral::testing
