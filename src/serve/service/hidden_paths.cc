#include "serve/service/hidden_paths.h"

#include <algorithm>
#include <utility>

namespace choral::serve {
namespace {

constexpr size_t kLeastPath = 2;  // "/" is everywhere

}  // namespace

HiddenPaths::HiddenPaths(AdapterNames adapters) : adapters_(std::move(adapters)) {
  for (const auto& adapter : *adapters_) {
    if (adapter->path.size() < kLeastPath) continue;
    paths_.push_back(adapter->path);
    first_letters_.set(static_cast<unsigned char>(adapter->path.front()));
  }
  std::sort(paths_.begin(), paths_.end());
  paths_.erase(std::unique(paths_.begin(), paths_.end()), paths_.end());
}

// Of the paths that sort before the text, or are it, the last has the most of its beginning: another that the text begins with
// has no more than the letters that these two share.
size_t HiddenPaths::longest_at_begin(std::string_view text) const {
  for (std::string_view begin = text; !begin.empty();) {
    auto after = std::upper_bound(paths_.begin(), paths_.end(), begin);
    if (after == paths_.begin()) return 0;
    const std::string_view path = *--after;
    if (begin.starts_with(path)) return path.size();
    const auto differs = std::mismatch(begin.begin(), begin.end(), path.begin(), path.end()).first;
    begin = begin.substr(0, static_cast<size_t>(differs - begin.begin()));
  }
  return 0;
}

std::string HiddenPaths::hide(std::string_view text, std::string_view instead) const {
  std::string out;
  while (!text.empty()) {
    const size_t path = first_letters_.test(static_cast<unsigned char>(text.front())) ? longest_at_begin(text) : 0;
    out += path > 0 ? instead : text.substr(0, 1);
    text.remove_prefix(std::max<size_t>(path, 1));
  }
  return out;
}

}  // namespace choral::serve
