#include "serve/keys/api_keys.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/ascii.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "io/mapped_file.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kHexBytes = 64;
constexpr size_t kMaxWarnings = 20;

// A hash of the key's hash: who has read a file of keys does not know it from there by sight, and it is in no answer.
std::string salt_of(const Sha256Digest& hash) { return to_hex(sha256(std::as_bytes(std::span(hash)))); }

Sha256Digest hash_of(std::string_view key) { return sha256(std::as_bytes(std::span(key.data(), key.size()))); }

std::optional<Sha256Digest> from_hex(std::string_view text) {
  if (text.size() != kHexBytes) return std::nullopt;
  Sha256Digest out{};
  for (size_t i = 0; i < kHexBytes; ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) return std::nullopt;
    out[i / 2] = static_cast<uint8_t>(out[i / 2] << 4 | digit);
  }
  return out;
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' ||
           c == '@';
  };
  return !text.empty() && text.size() <= kMaxNameBytes && std::all_of(text.begin(), text.end(), fits);
}

// What a header can carry as a token: visible ASCII.
bool is_key(std::string_view text) {
  return !text.empty() && text.size() <= kMaxKeyBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

// One line that holds something. `place` names it.
Result<KeyEntry> parse_line(std::string_view line, const std::string& place, int64_t number, std::vector<std::string>& warnings) {
  const size_t space = line.find_first_of(" \t");
  const std::string_view key = line.substr(0, space);
  const std::string_view role = space == line.npos ? "user" : trimmed(line.substr(space));
  KeyEntry entry;
  if (role == "admin") {
    entry.holder.role = KeyRole::kAdmin;
  } else if (role != "user") {
    return corrupt("{}: after the key stands neither 'user' nor 'admin'", place);
  }
  const size_t colon = key.find(':');
  if (colon == key.npos) {
    if (!is_key(key)) return corrupt("{}: a key has 1 to {} visible ASCII characters", place, kMaxKeyBytes);
    // A hash without its name would become a key that is the hash.
    if (from_hex(key)) return corrupt("{}: this looks like a SHA-256 hash; write NAME:HASH", place);
    if (key.size() < kShortKeyBytes && warnings.size() < kMaxWarnings)
      warnings.push_back(fmt::format("{}: the key is shorter than {} characters and can be guessed", place, kShortKeyBytes));
    entry.hash = hash_of(key);
    entry.holder.name = fmt::format("line-{}", number);
    return entry;
  }
  if (!is_name(key.substr(0, colon)))
    return corrupt("{}: a name has 1 to {} letters, digits or '.', '_', '-', '@'; write NAME:SHA256 or a key without ':'", place,
                   kMaxNameBytes);
  const auto hash = from_hex(key.substr(colon + 1));
  if (!hash) return corrupt("{}: after the name stand {} hex digits, the SHA-256 of the key", place, kHexBytes);
  entry.hash = *hash;
  entry.holder.name = key.substr(0, colon);
  return entry;
}

// A name or a key that stands twice would make one of the two mean the other.
Status check_unique(const std::vector<KeyEntry>& entries, std::string_view source) {
  std::map<Sha256Digest, std::string> hashes;
  std::set<std::string> names;
  for (const auto& entry : entries) {
    if (!names.insert(entry.holder.name).second) return corrupt("{}: the name '{}' stands twice", source, entry.holder.name);
    const auto [other, fresh] = hashes.emplace(entry.hash, entry.holder.name);
    if (!fresh) return corrupt("{}: '{}' and '{}' have the same key", source, other->second, entry.holder.name);
  }
  return {};
}

}  // namespace

std::string_view presented_key(std::string_view authorization, std::string_view x_api_key) {
  constexpr std::string_view kScheme = "bearer";
  authorization = trimmed(authorization);
  const std::string_view scheme = authorization.substr(0, authorization.find_first_of(" \t"));
  const auto same = [](char got, char want) { return (got | 0x20) == want; };
  if (std::equal(scheme.begin(), scheme.end(), kScheme.begin(), kScheme.end(), same))
    return trimmed(authorization.substr(scheme.size()));
  return trimmed(x_api_key);
}

Result<std::vector<KeyEntry>> parse_key_file(std::string_view text, std::string_view source, std::vector<std::string>& warnings) {
  std::vector<KeyEntry> entries;
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (entries.size() == kMaxKeys) return too_large("{}: more than {} keys", source, kMaxKeys);
    CHORAL_TRY(auto entry, parse_line(line, fmt::format("{}: line {}", source, number), number, warnings));
    entries.push_back(std::move(entry));
  }
  CHORAL_RETURN_IF_ERROR(check_unique(entries, source));
  return entries;
}

Result<std::unique_ptr<ApiKeys>> ApiKeys::make(std::string file, const std::vector<std::pair<std::string, KeyRole>>& plain) {
  std::unique_ptr<ApiKeys> out(new ApiKeys());
  out->file_ = std::move(file);
  for (const auto& [key, role] : plain) {
    const std::string name = fmt::format("given-{}", out->given_.size() + 1);
    if (!is_key(key)) return invalid_argument("--api-key: a key has 1 to {} visible ASCII characters", kMaxKeyBytes);
    if (key.size() < kShortKeyBytes)
      out->given_warnings_.push_back(
          fmt::format("--api-key: a key is shorter than {} characters and can be guessed", kShortKeyBytes));
    out->given_.push_back({hash_of(key), {name, role}});
  }
  CHORAL_RETURN_IF_ERROR(out->reload());
  return out;
}

Result<std::shared_ptr<const ApiKeys::Keys>> ApiKeys::read() const {
  auto out = std::make_shared<Keys>();
  out->warnings = given_warnings_;
  if (!file_.empty()) {
    struct stat facts {};
    if (::stat(file_.c_str(), &facts) != 0) return system_error(errno, "cannot examine " + file_);
    // A group may be made for reading it: Kubernetes' fsGroup, Debian's ssl-cert.
    if ((facts.st_mode & (S_IWGRP | S_IRWXO)) != 0)
      out->warnings.push_back(
          fmt::format("{}: others may read or change it (mode {:o}); chmod 600 it", file_, facts.st_mode & 07777));
    CHORAL_TRY(const auto text, io::read_whole_file(file_, kMaxKeyFileBytes));
    CHORAL_TRY(out->entries, parse_key_file(text, file_, out->warnings));
    if (out->entries.empty()) return corrupt("{}: no key is in it; without keys leave the file out", file_);
  }
  out->entries.insert(out->entries.end(), given_.begin(), given_.end());
  for (auto& entry : out->entries) entry.holder.salt = salt_of(entry.hash);
  CHORAL_RETURN_IF_ERROR(check_unique(out->entries, file_.empty() ? "--api-key" : file_));
  return std::shared_ptr<const Keys>(std::move(out));
}

Status ApiKeys::reload() {
  CHORAL_TRY(auto fresh, read().while_("reading the API keys"));
  const std::lock_guard lock(mutex_);
  keys_ = std::move(fresh);
  return {};
}

std::shared_ptr<const ApiKeys::Keys> ApiKeys::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

std::vector<std::string> ApiKeys::warnings() const { return keys()->warnings; }
bool ApiKeys::empty() const { return keys()->entries.empty(); }

bool ApiKeys::several() const { return keys()->entries.size() > 1; }

std::optional<KeyHolder> ApiKeys::find(std::string_view key) const {
  if (key.empty() || key.size() > kMaxKeyBytes) return std::nullopt;
  const auto keys = this->keys();
  const Sha256Digest hash = hash_of(key);
  size_t found = keys->entries.size();
  for (size_t i = 0; i < keys->entries.size(); ++i) {  // to the end, whichever it is
    if (CRYPTO_memcmp(hash.data(), keys->entries[i].hash.data(), hash.size()) == 0) found = i;
  }
  if (found == keys->entries.size()) return std::nullopt;
  return keys->entries[found].holder;
}

std::optional<KeyHolder> ApiKeys::find_salt(std::string_view salt) const {
  const auto keys = this->keys();
  const auto found =
      std::find_if(keys->entries.begin(), keys->entries.end(), [&](const KeyEntry& e) { return e.holder.salt == salt; });
  return found == keys->entries.end() ? std::nullopt : std::optional(found->holder);
}

}  // namespace choral::serve
