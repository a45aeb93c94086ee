// Where the library xgrammar is installed. Folders with thousands of packages are searched once, and again only when one that a
// search would look into has changed: a library that is installed while the server runs is found without a restart, and until
// then a request costs a few calls of stat. Thread-safety: one thread at a time.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::text {

class XgrammarFinder {
 public:
  static constexpr std::string_view kInstall = "pip install --no-deps xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2";

  // `wanted` as GrammarOptions::library; the environment is read here, once.
  explicit XgrammarFinder(std::filesystem::path wanted);

  // Whether search() may say something else than it did last; true before the first one.
  bool is_worth_a_search() const;
  // The folder that holds xgrammar/ and tvm_ffi/, both whole. unsupported, with what to install, when there is none or it is
  // another version.
  Result<std::filesystem::path> search();
  int searches() const { return searches_; }  // so far

 private:
  struct Place {
    std::filesystem::path path;
    std::filesystem::file_time_type changed;  // min(): it is not there
  };
  std::vector<std::filesystem::path> folders() const;
  void watch(const std::vector<std::filesystem::path>& folders);

  std::filesystem::path given_;                  // empty: the usual places are searched
  std::vector<std::filesystem::path> prefixes_;  // PREFIX/lib/python3.*/…, the first first
  std::vector<Place> watched_;
  std::filesystem::file_time_type searched_at_ = std::filesystem::file_time_type::min();
  int searches_ = 0;
};

}  // namespace choral::text
