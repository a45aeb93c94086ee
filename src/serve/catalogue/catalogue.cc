#include "serve/catalogue/catalogue.h"

#include <algorithm>
#include <vector>

#include "base/printable.h"
#include "base/sha256.h"
#include "base/size_text.h"
#include "lora/peft/adapter_name.h"
#include "serve/adapters/adapter_uploads.h"
#include "serve/openai/json.h"

namespace choral::serve {
namespace {

constexpr int kVersion = 1;
constexpr size_t kMostPathBytes = 1024;

bool is_sha256(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 2 * Sha256Digest().size() && std::all_of(text.begin(), text.end(), is_digit);
}

Status unknown_member(std::string_view name, std::string_view where) {
  return invalid_argument("'{}' is no member of {}", printable(name), where);
}

Status read_hash(std::string_view name, const Json& json, std::string& out) {
  CHORAL_RETURN_IF_ERROR(read_value(name, json, out));
  return is_sha256(out) ? Status() : invalid_argument("'{}' must be a SHA-256, 64 digits of 0-9 and a-f", name);
}

// From the catalogue on, downwards, in one spelling; a part may begin with a dot.
Status check_path(std::string_view path) {
  if (path.empty() || path.size() > kMostPathBytes || path.front() == '/')
    return invalid_argument("'path' must lead from the catalogue to a folder beside or below it");
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    const bool is_plain = std::none_of(part.begin(), part.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    if (part.empty() || part == "." || part == ".." || !is_plain)
      return invalid_argument("'path' is '{}': its parts are names, none of them '.' or '..'", printable(path));
    at = end + 1;
  }
  return {};
}

Status read_file(std::string_view name, const Json& json, CataloguedFile& file) {
  if (!json.is_object()) return wrong_type(name, "an object", json);
  for (const auto& [member, value] : json.items()) {
    if (member == "bytes") {
      CHORAL_RETURN_IF_ERROR(read_value(member, value, file.bytes));
    } else if (member == "sha256") {
      CHORAL_RETURN_IF_ERROR(read_hash(member, value, file.sha256));
    } else {
      return unknown_member(member, "a file");
    }
  }
  return file.sha256.empty() ? invalid_argument("'sha256' of the file is missing") : Status();
}

Status read_files(const Json& json, CataloguedAdapter& adapter) {
  if (!json.is_object() || json.size() > AdapterUploads::kMostFiles)
    return invalid_argument("'files' must be an object of at most {} files", AdapterUploads::kMostFiles);
  std::vector<SentFile> sent;
  for (const auto& [name, value] : json.items()) {
    CataloguedFile file;
    CHORAL_RETURN_IF_ERROR(read_file(name, value, file).while_(printable(name)));
    sent.push_back({.name = name, .bytes = file.bytes});
    adapter.files.emplace(name, std::move(file));
  }
  return check_adapter_files(sent);
}

Result<CataloguedAdapter> read_adapter(const std::string& name, const Json& json) {
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(name));
  if (!json.is_object()) return wrong_type(name, "an object", json);
  CataloguedAdapter adapter;
  for (const auto& [member, value] : json.items()) {
    if (member == "digest") {
      CHORAL_RETURN_IF_ERROR(read_hash(member, value, adapter.digest));
    } else if (member == "path") {
      CHORAL_RETURN_IF_ERROR(read_value(member, value, adapter.path));
    } else if (member == "files") {
      CHORAL_RETURN_IF_ERROR(read_files(value, adapter));
    } else {
      return unknown_member(member, "an adapter; these are: digest, path, files");
    }
  }
  if (adapter.path.empty()) adapter.path = name;
  CHORAL_RETURN_IF_ERROR(check_path(adapter.path));
  if (adapter.digest.empty() && adapter.files.empty()) return invalid_argument("it has neither 'digest' nor 'files'");
  return adapter;
}

}  // namespace

Result<Catalogue> read_catalogue(std::string_view text) {
  if (text.size() > Catalogue::kMostBytes)
    return too_large("the catalogue has more than {}", size_text(int64_t{Catalogue::kMostBytes}));
  CHORAL_TRY(const Json json, parse_object(text, "the catalogue"));
  Catalogue catalogue;
  int version = 0;
  for (const auto& [member, value] : json.items()) {
    if (member == "version") {
      CHORAL_RETURN_IF_ERROR(read_value(member, value, version));
    } else if (member == "adapters") {
      if (!value.is_object() || value.size() > Catalogue::kMostAdapters)
        return invalid_argument("'adapters' must be an object of at most {} adapters by name", Catalogue::kMostAdapters);
      for (const auto& [name, entry] : value.items()) {
        auto adapter = read_adapter(name, entry);
        if (!adapter.ok()) return std::move(adapter).status().while_(fmt::format("adapter '{}'", printable(name)));
        catalogue.adapters.insert_or_assign(name, *std::move(adapter));
      }
    } else {
      return unknown_member(member, "a catalogue; these are: version, adapters");
    }
  }
  if (version != kVersion) return unsupported("the catalogue is of version {}, and this program knows {}", version, kVersion);
  return catalogue;
}

std::string catalogue_text(const Catalogue& catalogue) {
  Json adapters = Json::object();
  for (const auto& [name, adapter] : catalogue.adapters) {
    Json entry = Json::object();
    if (!adapter.digest.empty()) entry["digest"] = adapter.digest;
    entry["path"] = adapter.path;
    if (!adapter.files.empty()) {
      Json files = Json::object();
      for (const auto& [file, facts] : adapter.files) files[file] = {{"bytes", facts.bytes}, {"sha256", facts.sha256}};
      entry["files"] = std::move(files);
    }
    adapters[name] = std::move(entry);
  }
  const Json all{{"version", kVersion}, {"adapters", std::move(adapters)}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace choral::serve
