// Lists that come in pages, as OpenAI's have it, and the query that asks for one: "limit=20&order=asc&after=ID". Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::serve {

// Newest first unless said otherwise.
struct ListPage {
  std::string after = {};  // the id that it goes on behind; empty: from the beginning
  int64_t limit = 20;
  bool oldest_first = false;
};
template <class T>
struct Listed {
  std::vector<T> all;
  bool has_more = false;
};

// As it stands there; empty: it does not.
std::string_view query_parameter(std::string_view query, std::string_view name);
// `usual`: where the query says nothing.
Result<ListPage> read_list_page(std::string_view query, ListPage usual, int64_t most);

}  // namespace choral::serve
