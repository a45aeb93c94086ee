// Who may use the server: keys as SHA-256 hashes, each with a name for logs, limits and metrics, and a role. What a client sends
// is hashed and held against every key in constant time. A file of keys, one a line, is read at the start and at each reload();
// plain keys in it are hashed on reading and forgotten. A file that is wrong leaves the keys as they were.
//   # comment
//   alice:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b        (sha256sum of the key, no line break)
//   ops:…64 hex digits… admin
//   sk-a-plain-key-of-some-length user
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/status.h"

namespace choral::serve {

enum class KeyRole : uint8_t { kUser, kAdmin };  // admin: may also load, unload and pin adapters

struct KeyHolder {
  std::string name;
  KeyRole role = KeyRole::kUser;
  std::string salt = {};  // of cached prefixes, made of the key: the same over restarts, and nobody else's
};

inline constexpr size_t kMaxKeyBytes = 512;   // a longer one is no key
inline constexpr size_t kShortKeyBytes = 16;  // shorter plain keys can be guessed: warned of
inline constexpr size_t kMaxKeys = 10'000;
inline constexpr uint64_t kMaxKeyFileBytes = 4 << 20;

// The key of a request, from the values of its headers: the bearer token of Authorization, else X-Api-Key; empty: none was sent.
std::string_view presented_key(std::string_view authorization, std::string_view x_api_key);

struct KeyEntry {
  Sha256Digest hash{};
  KeyHolder holder;
};
// The lines of a key file. `source` opens every message; no message repeats a key. `warnings` gets what is allowed but unwise.
Result<std::vector<KeyEntry>> parse_key_file(std::string_view text, std::string_view source, std::vector<std::string>& warnings);

class ApiKeys {
 public:
  // `file`: empty for none. `plain`: keys of the command line, which stay over a reload.
  static Result<std::unique_ptr<ApiKeys>> make(std::string file, const std::vector<std::pair<std::string, KeyRole>>& plain);

  // Reads the file again. An error leaves everything as it was.
  Status reload();
  std::vector<std::string> warnings() const;  // of the last reading: the file's mode, short keys
  bool empty() const;                         // no key is asked for
  bool several() const;                       // clients are told apart
  std::optional<KeyHolder> find(std::string_view key) const;
  std::optional<KeyHolder> find_salt(std::string_view salt) const;  // KeyHolder::salt, of a key that was found once

 private:
  struct Keys {
    std::vector<KeyEntry> entries;
    std::vector<std::string> warnings;
  };
  Result<std::shared_ptr<const Keys>> read() const;
  std::shared_ptr<const Keys> keys() const;

  std::string file_;
  std::vector<KeyEntry> given_;
  std::vector<std::string> given_warnings_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Keys> keys_;
};

}  // namespace choral::serve
