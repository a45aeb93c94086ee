// llama.cpp's numbers of adapters: from 0 on, one for each name, which keeps it while the server lives, whatever comes and goes,
// and over a restart where there is a state directory. Names that have none get the next ones, in the order in which they come.
// Thread-safe; who asks for a number or a name never waits for the disk.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "serve/adapters/registered_adapters.h"

namespace choral::serve {

class AdapterNumbers {
 public:
  // `registered`: null when they are not kept. It outlives this.
  explicit AdapterNumbers(RegisteredAdapters* registered) : registered_(registered) {}

  Status read();  // what was kept; first
  void add(std::span<const std::string> names);
  std::optional<int32_t> number_of(const std::string& name) const;
  std::optional<std::string> name_of(int32_t number) const;

 private:
  RegisteredAdapters* const registered_;
  std::mutex adding_;  // taken before the other, and held while numbers are written
  size_t kept_ = 0;
  bool complained_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> names_;  // by number
  std::unordered_map<std::string, int32_t> numbers_;
};

}  // namespace choral::serve
