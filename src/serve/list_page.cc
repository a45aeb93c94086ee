#include "serve/list_page.h"

#include <algorithm>
#include <charconv>

namespace choral::serve {

std::string_view query_parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=') return pair.substr(name.size() + 1);
  }
  return {};
}

Result<ListPage> read_list_page(std::string_view query, ListPage usual, int64_t most) {
  ListPage page = std::move(usual);
  if (const std::string_view limit = query_parameter(query, "limit"); !limit.empty()) {
    const auto [end, error] = std::from_chars(limit.data(), limit.data() + limit.size(), page.limit);
    if (error != std::errc() || end != limit.data() + limit.size() || page.limit < 1 || page.limit > most)
      return invalid_argument("'limit' must be a number from 1 to {}", most);
  }
  const std::string_view order = query_parameter(query, "order");
  if (!order.empty() && order != "asc" && order != "desc") return invalid_argument("'order' must be asc or desc");
  if (!order.empty()) page.oldest_first = order == "asc";
  page.after = query_parameter(query, "after");
  return page;
}

}  // namespace choral::serve
