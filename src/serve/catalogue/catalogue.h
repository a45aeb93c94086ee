// What a fleet's adapters are: a map from names to contents, the same for every replica, in one small JSON file. In a folder it
// is `catalogue.json` and says in which folder of it a name lies; over HTTP it is the index, and says from where its files are
// had.
//   {"version": 1, "adapters": {"sql": {"digest": "6f…", "path": "sql", "files": {"adapter_config.json": {"bytes": 700, "sha256":
//   "…"}, …}}}}
// A value; pure functions. docs/serving/adapters.md states it for users.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

struct CataloguedFile {
  int64_t bytes = 0;
  std::string sha256;  // in hex
  bool operator==(const CataloguedFile&) const = default;
};

struct CataloguedAdapter {
  std::string digest;                                          // as AdapterInfo's; empty: it is not said
  std::string path;                                            // of its folder, from where the catalogue is
  std::map<std::string, CataloguedFile, std::less<>> files{};  // empty: they are not said
  bool operator==(const CataloguedAdapter&) const = default;
};

struct Catalogue {
  static constexpr size_t kMostAdapters = 10'000;
  static constexpr size_t kMostBytes = 16 << 20;  // of its text

  std::map<std::string, CataloguedAdapter, std::less<>> adapters;  // by name
};

// Names, paths and digests are such, no path leads out, and no member is unknown.
Result<Catalogue> read_catalogue(std::string_view text);
std::string catalogue_text(const Catalogue& catalogue);

}  // namespace choral::serve
