// Where this server differs from its catalogue: an adapter is served with another content than the catalogue says, because its
// files were written over, or because somebody loaded another one under its name here. Thread-safe.
#pragma once

#include <mutex>
#include <set>
#include <span>
#include <string>

#include "choral/llm.h"
#include "serve/catalogue/followed_catalogue.h"

namespace choral::serve {

// An adapter that is to be read anew at the next request, from where the catalogue says now, has not drifted.
bool has_drifted(const AdapterInfo& adapter, const FollowedCatalogue::View& catalogue);

// Logs each drift once, and its end.
class DriftLog {
 public:
  void look(std::span<const AdapterInfo> adapters, const FollowedCatalogue::View& catalogue);

 private:
  std::mutex mutex_;
  std::set<std::string> drifted_;
};

}  // namespace choral::serve
