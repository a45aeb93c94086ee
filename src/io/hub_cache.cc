#include "io/hub_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/ascii.h"
#include "base/printable.h"
#include "io/gguf.h"
#include "io/mapped_file.h"
#include "io/name_hint.h"

namespace choral::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "models--";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool is_segment(std::string_view segment) {
  return !segment.empty() && segment.size() <= 96 && segment.front() != '.' && segment.front() != '-' &&
         segment.find("..") == std::string_view::npos && segment.find("--") == std::string_view::npos &&
         std::all_of(segment.begin(), segment.end(), is_name_character);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string folder_of(std::string_view name) {
  std::string out(kFolderPrefix);
  for (const char c : name) {
    if (c == '/') {
      out += "--";
    } else {
      out += c;
    }
  }
  return out;
}

std::string name_of(std::string_view folder) {
  folder.remove_prefix(kFolderPrefix.size());
  const size_t at = folder.find("--");
  if (at == std::string_view::npos) return std::string(folder);
  return fmt::format("{}/{}", folder.substr(0, at), folder.substr(at + 2));
}

bool is_commit(std::string_view text) { return text.size() == 40 && is_lower_hex(text); }

// Slashes part it, as in refs/pr/1.
bool is_revision(std::string_view text) {
  if (text.size() > 200) return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    const auto segment = text.substr(begin, end - begin);
    if (segment.empty() || segment.front() == '.' || segment.front() == '-' || segment.find("..") != segment.npos ||
        !std::all_of(segment.begin(), segment.end(), is_name_character))
      return false;
    begin = end + 1;
  }
  return true;
}

// The snapshot that is a commit, or that a branch or tag names.
Result<fs::path> snapshot_of(const fs::path& folder, const std::string& revision) {
  if (is_commit(revision) && is_folder(folder / "snapshots" / revision)) return folder / "snapshots" / revision;
  const fs::path ref = folder / "refs" / revision;
  if (!is_there(ref)) return not_found("{} does not have the revision '{}'", folder.string(), revision);
  CHORAL_TRY(const std::string text, read_whole_file(ref, 4096));
  const std::string commit(trimmed(text));
  if (!is_segment(commit)) return corrupt("{} does not hold a commit", ref.string());
  const fs::path snapshot = folder / "snapshots" / commit;
  if (!is_folder(snapshot)) {
    return not_found("{} names a snapshot that is not there ({}); the download was not finished", ref.string(),
                     snapshot.string());
  }
  return snapshot;
}

std::string nearest_cached(std::string_view name, std::span<const fs::path> roots) {
  constexpr int kMaxEntries = 10'000;
  NameHint hint(name);
  for (const auto& root : roots) {
    std::error_code error;
    int seen = 0;
    for (fs::directory_iterator at(root, error), end; !error && at != end && seen < kMaxEntries; at.increment(error), ++seen) {
      const std::string folder = at->path().filename().string();
      if (folder.starts_with(kFolderPrefix)) hint.consider(name_of(folder));
    }
  }
  return hint.text();
}

// What stands where `path` would.
std::string nearest_beside(const fs::path& path) {
  constexpr int kMaxEntries = 10'000;
  NameHint hint(path.filename().string());
  std::error_code error;
  int seen = 0;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (fs::directory_iterator at(folder, error), end; !error && at != end && seen < kMaxEntries; at.increment(error), ++seen)
    hint.consider(at->path().filename().string());
  return hint.text();
}

bool looks_like_path(std::string_view text) {
  return text.starts_with('/') || text.starts_with('.') || text.starts_with('~') || text.ends_with('/') ||
         text.ends_with(".gguf") || text.ends_with(".safetensors");
}

Result<fs::path> resolve(std::string_view name_or_path, std::span<const fs::path> roots, std::string_view kind) {
  if (name_or_path.empty()) return invalid_argument("the {}'s name is empty; give a directory, a .gguf file or org/name", kind);
  if (name_or_path.size() > 4096 || name_or_path.find('\0') != std::string_view::npos) {
    return invalid_argument("'{}' is neither a path nor a name of the hub", printable(name_or_path));
  }
  const fs::path path(name_or_path);
  if (is_there(path)) return path;
  if (looks_like_path(name_or_path))
    return not_found("{}: no such file or directory{}", printable(name_or_path, 400), nearest_beside(path));
  const auto name = parse_hub_name(name_or_path);
  if (!name.ok())
    return invalid_argument(
        "'{}' is neither an existing path nor a name of the hub (org/name of letters, digits, "
        "'.', '_' and '-', and maybe @revision)",
        printable(name_or_path));
  std::string looked = path.string() + nearest_beside(path);
  for (const auto& root : roots) {
    const fs::path folder = root / folder_of(name->repository);
    if (is_folder(folder)) {
      return snapshot_of(folder, name->revision)
          .while_(fmt::format("{0} '{1}' (`choral pull {1}` fetches it)", kind, name_or_path));
    }
    looked += fmt::format(", {}", folder.string());
  }
  return not_found(
      "no {0} '{1}' on this machine{2} (looked at {3}); `choral pull {1}` fetches it; or give the directory or .gguf file", kind,
      name_or_path, nearest_cached(name->repository, roots), looked);
}

// A folder as the hub has them may hold a model, GGUF files of it, or an adapter.
Result<fs::path> model_in(const fs::path& path) {
  if (!is_folder(path) || is_there(path / "config.json")) return path;
  constexpr int kMaxEntries = 10'000;
  std::vector<std::string> files;
  std::error_code error;
  int seen = 0;
  for (fs::directory_iterator at(path, error), end; !error && at != end && seen < kMaxEntries; at.increment(error), ++seen) {
    const fs::path& file = at->path();
    if (file.extension() == ".gguf" && !file.filename().string().starts_with("mmproj")) files.push_back(file.filename().string());
  }
  keep_first_parts(files);
  if (files.size() == 1) return path / files.front();
  std::sort(files.begin(), files.end());
  if (!files.empty()) {
    return invalid_argument("{} holds {} GGUF files; name the one to load: {}", path.string(), files.size(),
                            printable(fmt::format("{}", fmt::join(files, ", ")), 1000));
  }
  if (is_there(path / "adapter_config.json")) {
    return invalid_argument("{} is an adapter, which needs its base: give the base as the model, and the adapter with --lora {}",
                            path.string(), path.string());
  }
  return path;
}

}  // namespace

Result<HubName> parse_hub_name(std::string_view text) {
  const size_t at = std::min(text.find('@'), text.size());
  HubName name{.repository = std::string(text.substr(0, at))};
  if (at < text.size()) name.revision = text.substr(at + 1);
  if (is_model_name(name.repository) && is_revision(name.revision)) return name;
  return invalid_argument("'{}' is no name of the hub: org/name or org/name@revision, of letters, digits, '.', '_' and '-'",
                          printable(text));
}

bool is_model_name(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return is_segment(name);
  return is_segment(name.substr(0, slash)) && is_segment(name.substr(slash + 1));
}

fs::path hub_home() {
  const auto variable = [](const char* name) -> fs::path {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (auto home = variable("HF_HOME"); !home.empty()) return home;
  if (const auto xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "huggingface";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "huggingface";
  return {};
}

std::vector<fs::path> hub_cache_roots() {
  if (const char* cache = std::getenv("HF_HUB_CACHE"); cache != nullptr && *cache != '\0') return {cache};
  if (const auto home = hub_home(); !home.empty()) return {home / "hub"};
  return {};
}

Result<fs::path> resolve_model(std::string_view name_or_path) { return resolve_model(name_or_path, hub_cache_roots()); }

Result<fs::path> resolve_model(std::string_view name_or_path, std::span<const fs::path> roots) {
  CHORAL_TRY(const fs::path path, resolve(name_or_path, roots, "model"));
  return model_in(path);
}

Result<fs::path> resolve_adapter(std::string_view name_or_path) { return resolve(name_or_path, hub_cache_roots(), "adapter"); }

}  // namespace choral::io
