#include "serve/catalogue/catalogue_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/owned_fd.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "engine/adapters/file_facts.h"
#include "serve/disk_flush.h"
#include "serve/fresh_id.h"

namespace choral::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIdPrefix = "content_";
constexpr std::string_view kPartial = ".part";     // behind the name of what is not whole
constexpr std::string_view kUnnamed = ".unnamed";  // behind the name of a content, of the mark that no name leads to it
constexpr const char* kLock = "lock";
constexpr std::chrono::seconds kUnfinished{3600};  // that something partial is left alone: a copy of its size takes less
constexpr std::chrono::milliseconds kLockPause{50};
constexpr size_t kCopyBytes = 1 << 20;

Status write_all(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(errno, fmt::format("cannot write {}", path.string()));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

Result<OwnedFd> new_file(const fs::path& path) {
  OwnedFd made(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!made.open()) return system_error(errno, fmt::format("cannot write {}", path.string()));
  return made;
}

Status close_flushed(OwnedFd fd, const fs::path& path) {
  if (::fsync(fd.get()) != 0 || ::close(fd.release()) != 0)  // a network's file system may say only here what went wrong
    return system_error(errno, fmt::format("cannot write {}", path.string()));
  return {};
}

Status copy_to_disk(const fs::path& from, const fs::path& to) {
  const OwnedFd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!source.open()) return system_error(errno, fmt::format("cannot open {}", from.string()));
  CHORAL_TRY(OwnedFd copy, new_file(to));
  std::string bytes(kCopyBytes, '\0');
  for (;;) {
    const ssize_t count = ::read(source.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(errno, fmt::format("cannot read {}", from.string()));
    if (count == 0) break;
    CHORAL_RETURN_IF_ERROR(write_all(copy.get(), std::string_view(bytes).substr(0, static_cast<size_t>(count)), to));
  }
  return close_flushed(std::move(copy), to);
}

// Nothing: there is no such file.
Result<std::optional<std::string>> read_text(const fs::path& path, size_t most_bytes) {
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open() && errno == ENOENT) return std::optional<std::string>();
  if (!file.open()) return system_error(errno, fmt::format("cannot open {}", path.string()));
  std::string text;
  char piece[64 << 10];
  for (;;) {
    const ssize_t count = ::read(file.get(), piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(errno, fmt::format("cannot read {}", path.string()));
    if (count == 0) return std::optional(std::move(text));
    text.append(piece, static_cast<size_t>(count));
    if (text.size() > most_bytes) return too_large("{} has more than {} bytes", path.string(), most_bytes);
  }
}

Result<OwnedFd> locked(const fs::path& path, std::chrono::seconds wait) {
  OwnedFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.open()) return system_error(errno, fmt::format("cannot open {}", path.string()));
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return system_error(errno, fmt::format("cannot lock {}; its file system must know locks", path.string()));
    if (std::chrono::steady_clock::now() > deadline)
      return unavailable("another server is changing the catalogue for more than {} s; try again", wait.count());
    std::this_thread::sleep_for(kLockPause);
  }
  return file;
}

bool lies_in(const fs::path& folder, const fs::path& path) {
  return path != folder && std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// Since the file was made, or something was put into the folder. Nothing: it is not there.
std::optional<std::chrono::seconds> age_of(const fs::path& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return std::nullopt;
  return std::chrono::seconds(std::time(nullptr) - s.st_mtim.tv_sec);
}

}  // namespace

Result<std::optional<std::string>> CatalogueFolder::text() const {
  return read_text(fs::path(root_) / kFileName, Catalogue::kMostBytes);
}

Status CatalogueFolder::read() {
  const std::lock_guard lock(reading_);
  CHORAL_TRY(auto now, text());
  // A folder whose disk is away looks empty: that takes nothing away.
  if (!now && this->now() == nullptr) return {};
  if (!now) return not_found("{} is gone from {}; to take all adapters away write one without adapters", kFileName, root_);
  if (is_read_ && *now == read_text_) return {};
  CHORAL_TRY(const Catalogue catalogue, read_catalogue(*now).while_(fmt::format("reading {}", kFileName)));
  CHORAL_TRY(auto view, view_of(catalogue));
  // A path that is not there yet is looked for again, which a network's file system may learn of later than of the map.
  is_read_ = view->faults.empty();
  read_text_ = *std::move(now);
  publish(std::move(view));
  return {};
}

Result<std::shared_ptr<const FollowedCatalogue::View>> CatalogueFolder::view_of(const Catalogue& catalogue) const {
  auto view = std::make_shared<View>();
  std::error_code error;
  const fs::path root = fs::canonical(root_, error);
  if (error) return system_error(error.value(), fmt::format("--adapter-root: cannot read {}", root_));
  for (const auto& [name, adapter] : catalogue.adapters) {
    const fs::path place = fs::canonical(root / adapter.path, error);
    if (error) {
      view->faults.emplace(
          name, not_found("{} says that it lies in '{}', and there is no such folder", kFileName, printable(adapter.path)));
    } else if (!lies_in(root, place)) {
      view->faults.emplace(name, not_found("{} says that it lies in '{}', which leads out of the adapter root", kFileName,
                                           printable(adapter.path)));
    } else if (adapter.digest.empty()) {
      view->faults.emplace(name, invalid_argument("{} gives it no 'digest'; `choral adapter catalogue` writes them", kFileName));
    } else {
      view->places.emplace(name, Place{place.string(), adapter.digest});
    }
  }
  return std::shared_ptr<const View>(std::move(view));
}

Result<std::string> CatalogueFolder::take_in(const std::string& from) {
  const auto facts = engine::look_at_adapter(from);
  if (facts.empty()) return not_found("{} holds no adapter's files", from);
  std::error_code error;
  fs::create_directories(contents(), error);
  const fs::path root = error ? fs::path() : fs::canonical(contents(), error);
  if (error) return system_error(error.value(), fmt::format("cannot make {}", contents().string()));
  const fs::path place = root / fresh_id(kIdPrefix);
  const fs::path partial = fs::path(place).concat(kPartial);
  if (!fs::create_directory(partial, error)) return system_error(error.value(), fmt::format("cannot make {}", partial.string()));
  Status copied;
  for (const auto& file : facts) {
    const bool is_file = file.name.empty();  // GGUF's, which has the name of its adapter
    copied = copy_to_disk(is_file ? fs::path(from) : fs::path(from) / file.name,
                          partial / (is_file ? "adapter_model.gguf" : file.name));
    if (!copied.ok()) break;
  }
  if (copied.ok() && engine::look_at_adapter(from) != facts)
    copied = unavailable("{} changed while it was copied; load it again once it is whole", from);
  if (copied.ok()) copied = flush_folder(partial);
  if (copied.ok()) {
    fs::rename(partial, place, error);
    copied = error ? system_error(error.value(), fmt::format("cannot write {}", place.string())) : flush_folder(root);
  }
  if (copied.ok()) return place.string();
  fs::remove_all(partial, error);
  fs::remove_all(place, error);
  return copied;
}

void CatalogueFolder::drop(const std::string& place) {
  std::error_code error;
  fs::remove_all(place, error);
  if (error) CHORAL_LOG(kWarn, "cannot delete {}: {}", place, error.message());
}

Status CatalogueFolder::rewrite(FunctionRef<Result<bool>(Catalogue&)> change) {
  std::error_code error;
  fs::create_directories(contents(), error);
  if (error) return system_error(error.value(), fmt::format("cannot make {}", contents().string()));
  CHORAL_TRY(const OwnedFd lock, locked(contents() / kLock, limits_.lock_wait));
  CHORAL_TRY(const auto before, text());
  Catalogue catalogue;
  if (before) {
    CHORAL_TRY(catalogue, read_catalogue(*before).while_(fmt::format("changing {}", kFileName)));
  }
  CHORAL_TRY(const bool is_changed, change(catalogue));
  if (!is_changed) return {};
  CHORAL_RETURN_IF_ERROR(write(catalogue));
  delete_unnamed(catalogue);
  return look();
}

Status CatalogueFolder::write(const Catalogue& catalogue) {
  const fs::path place = fs::path(root_) / kFileName;
  const fs::path partial = contents() / (fresh_id("map_") + std::string(kPartial));
  CHORAL_TRY(OwnedFd file, new_file(partial));
  CHORAL_RETURN_IF_ERROR(write_all(file.get(), catalogue_text(catalogue), partial));
  CHORAL_RETURN_IF_ERROR(close_flushed(std::move(file), partial));
  std::error_code error;
  fs::rename(partial, place, error);
  if (error) return system_error(error.value(), fmt::format("cannot write {}", place.string()));
  return flush_folder(root_);
}

Status CatalogueFolder::put(const std::string& name, const std::string& digest, const std::string& place) {
  return rewrite([&](Catalogue& catalogue) -> Result<bool> {
    if (catalogue.adapters.size() >= Catalogue::kMostAdapters && !catalogue.adapters.contains(name))
      return resource_exhausted("the catalogue has {} adapters, and no more are kept", catalogue.adapters.size());
    const std::string path = fmt::format("{}/{}", kContents, fs::path(place).filename().string());
    catalogue.adapters.insert_or_assign(name, CataloguedAdapter{.digest = digest, .path = path});
    return true;
  });
}

Result<bool> CatalogueFolder::remove(std::string_view name) {
  bool is_there = false;
  CHORAL_RETURN_IF_ERROR(rewrite([&](Catalogue& catalogue) -> Result<bool> {
    const auto found = catalogue.adapters.find(name);
    is_there = found != catalogue.adapters.end();
    if (is_there) catalogue.adapters.erase(found);
    return is_there;
  }));
  return is_there;
}

// Replicas that have not seen the map yet may still be on their way to a content that it no longer names. So the first writer
// that finds it unnamed leaves a mark beside it, and the file system's clock on the mark says how long ago that was.
void CatalogueFolder::delete_unnamed(const Catalogue& catalogue) {
  std::set<std::string> named;
  for (const auto& [name, adapter] : catalogue.adapters) named.insert(fs::path(adapter.path).filename().string());
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator at(contents(), error), end; !error && at != end; at.increment(error)) all.push_back(at->path());
  for (const auto& path : all) {
    const std::string name = path.filename().string();
    if (name.starts_with(kIdPrefix) && path.extension().empty()) {
      const fs::path mark = fs::path(path).concat(kUnnamed);
      if (named.contains(name)) {
        fs::remove(mark, error);
      } else if (const auto age = age_of(mark); !age) {
        if (auto made = new_file(mark); !made.ok()) CHORAL_LOG(kWarn, "{}", made.status().message());
      } else if (*age >= limits_.kept) {
        drop(path.string());
        fs::remove(mark, error);
      }
    } else if (path.extension() == kPartial) {
      if (const auto age = age_of(path); age && *age >= kUnfinished) drop(path.string());
    }
  }
}

}  // namespace choral::serve
