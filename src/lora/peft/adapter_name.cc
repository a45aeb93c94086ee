#include "lora/peft/adapter_name.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/printable.h"

namespace choral::lora {
namespace {

namespace fs = std::filesystem;

// C0, DEL and, in UTF-8, C1.
bool has_control_character(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (byte < 0x20 || byte == 0x7F) return true;
    if (byte == 0xC2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xA0) return true;
  }
  return false;
}

// Without empty parts and "."; empty where ".." makes it mean something else.
std::string canonical_spelling(std::string_view name) {
  std::string out;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    at = end + 1;
    if (part == "..") return "";
    if (part.empty() || part == ".") continue;
    if (!out.empty()) out += '/';
    out += part;
  }
  return out;
}

bool lies_in(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

Status check_adapter_name(std::string_view name) {
  if (name.empty()) return invalid_argument("an adapter needs a name");
  if (name.size() > kMaxNameBytes) {
    return invalid_argument("the adapter name '{}' has {} bytes; {} are allowed", printable(name, 40), name.size(),
                            kMaxNameBytes);
  }
  if (has_control_character(name)) return invalid_argument("the adapter name '{}' holds a control character", printable(name));
  if (name.front() == '/') {
    return invalid_argument("the adapter name '{}' begins with '/'; an adapter is asked for by its name, not by a path", name);
  }
  const std::string canonical = canonical_spelling(name);
  if (canonical.empty()) {
    return invalid_argument("the adapter name '{}' is a way through folders; a name has no part '..' and is more than '.'", name);
  }
  if (canonical != name) {
    return invalid_argument("the adapter name '{}' has '.' or nothing between two '/'; write '{}'", name, canonical);
  }
  if (name == kBaseName) {
    return invalid_argument("'{}' stands for the model without adapters; an adapter needs another name", kBaseName);
  }
  return {};
}

NamedGeneration split_generation(std::string_view name) {
  const size_t at = name.rfind('@');
  if (at == name.npos || at == 0) return {name};
  const std::string_view digits = name.substr(at + 1);
  int generation = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), generation);
  if (error != std::errc() || end != digits.data() + digits.size() || generation < 1 || digits.front() == '0') return {name};
  return {name.substr(0, at), generation};
}

Result<std::optional<fs::path>> adapter_in_root(const fs::path& root, std::string_view name) {
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  if (error) return std::optional<fs::path>();
  const fs::path place = base / name;
  const fs::path folder = fs::canonical(place.parent_path(), error);
  if (error) return std::optional<fs::path>();
  const fs::path found = fs::canonical(place, error);
  if (error || found == base) return std::optional<fs::path>();
  if (!lies_in(base, found)) {
    return not_found("adapter '{}' leads out of {} to {}; links out of it are not followed; load it with --lora NAME=PATH", name,
                     printable(base.native()), printable(found.native()));
  }
  if (folder != place.parent_path()) {
    return not_found("adapter '{}' lies behind a link on its way; its name is '{}'", name,
                     printable(found.lexically_relative(base).native()));
  }
  return std::optional<fs::path>(found);
}

}  // namespace choral::lora
