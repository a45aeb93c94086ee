// What the bodies of all requests may take of memory together, and what one client may of that: no more than it leaves free. So
// one alone gets half, two get a third each, and whoever comes next finds room. The first kilobytes of a body ask for nothing:
// connections bound their number, and no client can be kept from small requests by others' large ones. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace choral::serve {

class BodyBudget {
 public:
  static constexpr int64_t kFreeBytes = 64 << 10;  // of each body

  // `bytes` more for `payer`, of `most` for all; false, and nothing, where it would have more than is left.
  bool take(std::string_view payer, int64_t bytes, int64_t most);
  void give_back(std::string_view payer, int64_t bytes);
  int64_t held() const;

 private:
  mutable std::mutex mutex_;
  int64_t held_ = 0;
  std::map<std::string, int64_t, std::less<>> by_payer_;  // of those that hold any
};

}  // namespace choral::serve
