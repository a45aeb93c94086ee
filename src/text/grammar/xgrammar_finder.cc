#include "text/grammar/xgrammar_finder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "base/printable.h"

namespace choral::text {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolderVariable = "CHORAL_XGRAMMAR";
constexpr std::string_view kXgrammar = "xgrammar-", kTvmFfi = "apache_tvm_ffi-", kVersion = "0.2.8";
constexpr std::string_view kBinding = "xgrammar/libxgrammar_bindings.so", kRuntime = "tvm_ffi/lib/libtvm_ffi.so";
// A folder that changed so shortly before a search may have changed again within the same tick of the file system's clock.
constexpr std::chrono::seconds kTick{1};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::file_time_type changed_at(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  return error ? fs::file_time_type::min() : time;
}

// PREFIX/lib/python3.*/LAST for every Python there.
void add_pythons(const fs::path& prefix, const char* last, std::vector<fs::path>& folders) {
  std::error_code error;
  for (fs::directory_iterator at(prefix / "lib", error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with("python3")) folders.push_back(at->path() / last);
  }
}

// The versions of a package there, by the names of its .dist-info folders.
std::vector<std::string> versions_of(std::string_view package, const fs::path& folder) {
  constexpr std::string_view kSuffix = ".dist-info";
  std::vector<std::string> versions;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(package) || !name.ends_with(kSuffix)) continue;
    versions.push_back(name.substr(package.size(), name.size() - package.size() - kSuffix.size()));
  }
  return versions;
}

// What a package's RECORD ("path,hash,bytes" in each line) says of a file's size.
std::optional<uintmax_t> recorded_bytes(const fs::path& record, std::string_view file) {
  std::ifstream lines(record);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(file) || line.size() == file.size() || line[file.size()] != ',') continue;
    const size_t at = line.rfind(',') + 1;
    uintmax_t bytes = 0;
    if (std::from_chars(line.data() + at, line.data() + line.size(), bytes).ec == std::errc()) return bytes;
  }
  return std::nullopt;
}

// A library whose end is still to be written must not be opened. An installer that keeps no record is believed.
Status check_whole(const fs::path& folder, std::string_view package, std::string_view file) {
  for (const std::string& version : versions_of(package, folder)) {
    const auto bytes = recorded_bytes(folder / fmt::format("{}{}.dist-info", package, version) / "RECORD", file);
    std::error_code error;
    if (!bytes || fs::file_size(folder / file, error) == *bytes) continue;
    return unsupported("{} has not the {} bytes that its package says: it is being installed, or broken; {}",
                       printable((folder / file).string()), *bytes, XgrammarFinder::kInstall);
  }
  return {};
}

// The library does not say its version, but the name of its wheel's .dist-info folder does.
Status check_folder(const fs::path& folder) {
  const auto versions = versions_of(kXgrammar, folder);
  if (std::find(versions.begin(), versions.end(), kVersion) == versions.end()) {
    return unsupported("{} has {}{}, only {} is known to this build; {}", printable(folder.string()), kXgrammar,
                       versions.empty() ? "without a version" : printable(versions.back()), kVersion, XgrammarFinder::kInstall);
  }
  CHORAL_RETURN_IF_ERROR(check_whole(folder, kXgrammar, kBinding));
  return check_whole(folder, kTvmFfi, kRuntime);
}

}  // namespace

XgrammarFinder::XgrammarFinder(fs::path wanted)
    : given_(wanted.empty() ? fs::path(variable(kFolderVariable)) : std::move(wanted)) {
  if (!given_.empty()) return;
  if (const std::string environment = variable("VIRTUAL_ENV"); !environment.empty()) prefixes_.emplace_back(environment);
  if (const std::string home = variable("HOME"); !home.empty()) prefixes_.push_back(fs::path(home) / ".local");
  prefixes_.emplace_back("/usr/local");
}

std::vector<fs::path> XgrammarFinder::folders() const {
  if (!given_.empty()) return {given_};
  std::vector<fs::path> all;
  for (const fs::path& prefix : prefixes_) {
    if (prefix == "/usr/local") add_pythons(prefix, "dist-packages", all);
    add_pythons(prefix, "site-packages", all);
  }
  all.emplace_back("/usr/lib/python3/dist-packages");
  return all;
}

void XgrammarFinder::watch(const std::vector<fs::path>& folders) {
  watched_.clear();
  const auto add = [this](fs::path path) {
    const fs::file_time_type changed = changed_at(path);
    watched_.push_back({std::move(path), changed});
  };
  for (const fs::path& prefix : prefixes_) add(prefix / "lib");
  for (const fs::path& folder : folders) {
    add(folder);
    // Files come into these after they are made.
    for (const std::string_view file : {kBinding, kRuntime}) {
      add((folder / file).parent_path());
      add(folder / file);
    }
  }
}

bool XgrammarFinder::is_worth_a_search() const {
  if (searches_ == 0) return true;
  return std::any_of(watched_.begin(), watched_.end(), [this](const Place& place) {
    const fs::file_time_type now = changed_at(place.path);
    return now != place.changed || (now != fs::file_time_type::min() && now + kTick > searched_at_);
  });
}

Result<fs::path> XgrammarFinder::search() {
  ++searches_;
  searched_at_ = fs::file_time_type::clock::now();
  const auto all = folders();
  watch(all);    // first: what changes meanwhile is seen by the next call
  Status other;  // the first of a version that is not known
  for (const fs::path& folder : all) {
    std::error_code error;
    if (!fs::exists(folder / kBinding, error)) continue;
    Status status = check_folder(folder);
    if (status.ok()) return folder;
    if (other.ok()) other = std::move(status);
  }
  CHORAL_RETURN_IF_ERROR(std::move(other));
  if (!given_.empty()) {
    return unsupported("{} holds no {}; it should be the folder that '{}' fills (a site-packages)", printable(given_.string()),
                       kBinding, kInstall);
  }
  return unsupported("the library xgrammar is not installed; {} (or name its folder with {})", kInstall, kFolderVariable);
}

}  // namespace choral::text
