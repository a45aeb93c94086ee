#include "base/system_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/ascii.h"

namespace choral {
namespace {

// Of a line "key: value" or "key value" with this key, the value.
std::optional<std::string_view> value_in(std::string_view line, std::string_view key) {
  if (!line.starts_with(key)) return std::nullopt;
  line.remove_prefix(key.size());
  if (line.empty() || (line.front() != ':' && !is_blank(line.front()))) return std::nullopt;
  line = trimmed(line);
  if (line.starts_with(':')) line.remove_prefix(1);
  return trimmed(line);
}

}  // namespace

std::string SystemFiles::path(std::string_view file) const {
  std::string whole = root_;
  return whole.append(file);
}

std::string SystemFiles::text(std::string_view file) const {
  std::string text;
  const int descriptor = ::open(path(file).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return text;
  std::array<char, 4096> piece;
  while (text.size() < kMostBytes) {
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece.data(), static_cast<size_t>(got));
  }
  ::close(descriptor);
  return text;
}

std::string SystemFiles::first_line(std::string_view file) const {
  std::string all = text(file);
  all.resize(std::min(all.size(), all.find('\n')));
  return all;
}

std::optional<int64_t> SystemFiles::number(std::string_view file) const {
  const std::string all = text(file);
  const std::string_view only = trimmed(all);
  return only.find_first_of(kBlanks) == only.npos ? leading_number(only) : std::nullopt;
}

std::string SystemFiles::value_of(std::string_view file, std::string_view key) const {
  const std::string all = text(file);
  for (std::string_view rest = all; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (const auto value = value_in(line, key)) return std::string(*value);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  return "";
}

std::optional<int64_t> SystemFiles::number_of(std::string_view file, std::string_view key) const {
  return leading_number(value_of(file, key));
}

std::optional<int64_t> leading_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  if (end != text.data() + text.size() && !is_blank(*end)) return std::nullopt;
  return value;
}

}  // namespace choral
