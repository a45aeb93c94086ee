#include "engine/packed_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "base/ascii.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "base/unix_clock.h"
#include "choral/llm.h"
#include "io/hub_cache.h"
#include "io/new_file.h"
#include "kernels/gemm/kept_matrix.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".packed";
constexpr size_t kPlaceDigits = 16, kContentDigits = 32;
constexpr int kMostEntries = 10'000;  // of the folder that are looked at
constexpr double kDay = 24 * 3600.0, kUnusedAfter = 30 * kDay;

Sha256Digest digest_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }
std::string digits(std::string_view text, size_t count) { return to_hex(digest_of(text)).substr(0, count); }

// The model's path and the forms of its layers, which name the same place whatever the files hold; then what they hold.
std::string file_name(const PackedModel& model, const io::SectionFileId& id) {
  return fmt::format("{}-{}{}", digits(model.files.front().path + "\n" + model.forms, kPlaceDigits),
                     to_hex(id.digest).substr(0, kContentDigits), kEnding);
}

io::SectionFileId id_of(const PackedModel& model) {
  std::string told = fmt::format("Choral {} layout {}\n{}\n{}\n{}\n", version(), kernels::kPackedLayout, model.forms,
                                 to_hex(model.config), model.weights);
  for (const auto& [path, content] : model.files) told += fmt::format("{} {}\n", path, content);
  return {.version = kernels::kPackedLayout, .digest = digest_of(told)};
}

// A file's name, or that of one that was not finished.
bool is_of_cache(std::string_view name) {
  constexpr size_t kStem = kPlaceDigits + 1 + kContentDigits;
  if (name.size() < kStem + kEnding.size() || name[kPlaceDigits] != '-') return false;
  if (!is_lower_hex(name.substr(0, kPlaceDigits)) || !is_lower_hex(name.substr(kPlaceDigits + 1, kContentDigits))) return false;
  const auto rest = name.substr(kStem);
  return rest == kEnding || (rest.starts_with(kEnding) && rest.substr(kEnding.size()).starts_with(io::NewFile::kMark));
}

// Calls visit(path, what stat says) for each of the cache's files.
template <class Visit>
void for_each_file(const fs::path& folder, Visit visit) {
  std::error_code error;
  int seen = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end && seen < kMostEntries; at.increment(error), ++seen) {
    struct stat facts {};
    if (!is_of_cache(at->path().filename().string()) || ::lstat(at->path().c_str(), &facts) != 0) continue;
    if (S_ISREG(facts.st_mode)) visit(at->path(), facts);
  }
}

// Since it was written, or mapped for a start.
double unused_s(const struct stat& facts) {
  return unix_s() - static_cast<double>(std::max(facts.st_mtim.tv_sec, facts.st_atim.tv_sec));
}

// Its time of access, which file systems need not keep: how long it was not used. Its content stays the same for who has it
// mapped.
void mark_as_used(const fs::path& path) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);  // failing costs a file that is packed again
}

void remove_file(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

Status make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (!error && ::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) error = std::error_code(errno, std::generic_category());
  return error ? system_error(error.value(), "cannot make the folder " + folder.string()) : Status();
}

// A tenth of the file system stays free.
Status check_room(const fs::path& folder, uint64_t size_bytes) {
  std::error_code error;
  const auto space = fs::space(folder, error);
  if (error) return system_error(error.value(), "cannot ask how much room there is in " + folder.string());
  if (space.available >= size_bytes && space.available - size_bytes >= space.capacity / 10) return {};
  return resource_exhausted("{} of {} are free in {}, and {} would leave less than a tenth",
                            size_text(static_cast<int64_t>(space.available)), size_text(static_cast<int64_t>(space.capacity)),
                            folder.string(), size_text(static_cast<int64_t>(size_bytes)));
}

}  // namespace

fs::path packed_cache_folder() {
  const fs::path home = io::hub_home();
  return home.empty() ? home : home / "choral-packed";
}

PackedCacheContent packed_cache_content(const fs::path& folder) {
  PackedCacheContent content;
  for_each_file(folder, [&](const fs::path&, const struct stat& facts) {
    ++content.files;
    content.bytes += facts.st_size;
  });
  return content;
}

std::unique_ptr<PackedCache> PackedCache::open(const PackedModel& model, const std::string& option, ThreadPool& pool) {
  const bool is_auto = option == "auto";
  const fs::path folder = is_auto ? packed_cache_folder() : fs::path(option);
  if (option == "off" || folder.empty() || model.files.empty() || model.weights.empty()) return nullptr;
  const auto id = id_of(model);
  std::unique_ptr<PackedCache> cache(new PackedCache(folder / file_name(model, id), id, is_auto ? kLeastKeptBytes : 0, pool));
  cache->read();
  return cache;
}

void PackedCache::read() {
  auto file = io::SectionFile::open(path_, id_, pool_);
  if (file.ok()) {
    mark_as_used(path_);
    file_ = std::move(*file);
    layers_ = std::make_unique<quant::PackedLayers>(file_->sections(), file_);
    return;
  }
  layers_ = std::make_unique<quant::PackedLayers>();
  if (file.status().code() == Code::kNotFound) return;
  CHORAL_LOG(kWarn, "packed weights are not read, and packed anew: {}", file.status().message());
  if (file.status().code() != Code::kPermissionDenied) remove_file(path_);
}

std::string PackedCache::finish(double seconds) {
  const quant::PackedLayers& layers = *layers_;
  if (!layers.fault().ok()) {
    CHORAL_LOG(kWarn, "{} contradicts itself and is removed: {}", path_.string(), layers.fault().message());
    remove_file(path_);
  }
  if (layers.taken_bytes() > 0)
    return fmt::format("{} read from {} in {:.1f} s", size_text(layers.taken_bytes()), path_.string(), seconds);
  file_.reset();
  if (layers.is_found() || layers.kept_bytes() == 0 || layers.kept_bytes() < least_bytes_) return {};
  const auto packed = fmt::format("packed in {:.1f} s", seconds);
  const double begin = now_s();
  if (const Status written = write(); !written.ok()) {
    return fmt::format("{}, not kept for the next start: {}", packed, written.message());
  }
  remove_old_files();
  return fmt::format("{}, kept at {} ({}, written in {:.1f} s; --no-packed-cache keeps none)", packed, path_.string(),
                     size_text(layers.kept_bytes()), now_s() - begin);
}

Status PackedCache::write() const {
  const fs::path folder = path_.parent_path();
  CHORAL_RETURN_IF_ERROR(make_folder(folder));
  CHORAL_RETURN_IF_ERROR(check_room(folder, io::section_file_bytes(layers_->sections())));
  return io::write_section_file(path_, id_, layers_->sections(), pool_);
}

// Of the same model in the same forms as it was before, of writers that ended, and what nobody used for long.
void PackedCache::remove_old_files() const {
  const std::string own = path_.filename().string(), place = own.substr(0, kPlaceDigits);
  for_each_file(path_.parent_path(), [&](const fs::path& path, const struct stat& facts) {
    const std::string name = path.filename().string();
    if (name == own) return;
    const bool is_finished = name.ends_with(kEnding);
    const bool is_old = is_finished ? name.starts_with(place) || unused_s(facts) > kUnusedAfter : unused_s(facts) > kDay;
    if (is_old) remove_file(path);
  });
}

}  // namespace choral::engine
