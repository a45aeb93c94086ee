#include "serve/catalogue/catalogue_index.h"

#include <algorithm>
#include <set>

#include "base/ascii.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "io/mapped_file.h"
#include "io/new_file.h"
#include "serve/disk_flush.h"

namespace choral::serve {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "catalogue.json";  // of the copy that a restart begins with
constexpr std::string_view kUnfetched = ".part";      // behind the name of a folder whose files are not whole
constexpr uint64_t kMostTokenBytes = 16 << 10;

int64_t bytes_of(const CataloguedAdapter& adapter) {
  int64_t bytes = 0;
  for (const auto& [name, file] : adapter.files) bytes += file.bytes;
  return bytes;
}

std::string quoted_path(std::string_view path) {
  std::string out;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    out += "/" + fetch::HttpSource::quoted(path.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

Status write_file(const fs::path& path, std::string_view text) {
  CHORAL_TRY(const auto file, io::NewFile::create(path));
  CHORAL_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->finish();
}

Status made_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  return error ? system_error(error.value(), fmt::format("cannot make {}", folder.string())) : Status();
}

}  // namespace

Result<std::unique_ptr<CatalogueIndex>> CatalogueIndex::open(const std::string& state_directory, Options options) {
  std::error_code error;
  const fs::path state = fs::canonical(state_directory, error);
  if (error) return system_error(error.value(), fmt::format("cannot find the state directory {}", state_directory));
  std::unique_ptr<CatalogueIndex> made(new CatalogueIndex(state / kFolderName, std::move(options)));
  CHORAL_RETURN_IF_ERROR(made->connect());
  CHORAL_RETURN_IF_ERROR(made_folder(made->folder_));
  made->publish(std::make_shared<View>());
  if (const Status kept = made->read_kept(); !kept.ok())
    CHORAL_LOG(kWarn, "what was kept of the catalogue cannot be used, and is fetched anew: {}", kept.message());
  return made;
}

Status CatalogueIndex::connect() {
  const std::string& url = options_.url;
  const size_t scheme = url.find("://");
  const size_t host_end = scheme == url.npos ? url.npos : url.find('/', scheme + 3);
  if (host_end == url.npos || host_end + 1 == url.size() || url.find_first_of("?# @") != url.npos)
    return invalid_argument(
        "--adapter-catalogue {}: give the URL of an index, such as https://models.example.com/adapters/catalogue.json, without a "
        "query or a password",
        printable(url));
  base_ = url.substr(0, host_end);
  index_path_ = url.substr(host_end);
  CHORAL_TRY(source_,
             fetch::HttpSource::make(
                 base_, options_.token,
                 {.name = "the catalogue of adapters", .brings_token = "--adapter-catalogue-token", .ca_file = options_.ca_file})
                 .while_("--adapter-catalogue"));
  return {};
}

// The files that an adapter has are one content, whatever it is called.
fs::path CatalogueIndex::place_of(const CataloguedAdapter& adapter) const {
  std::string all;
  for (const auto& [name, file] : adapter.files) all += fmt::format("{} {} {}\n", name, file.bytes, file.sha256);
  return folder_ / to_hex(sha256(std::as_bytes(std::span(all))));
}

Status CatalogueIndex::read_kept() {
  const std::lock_guard lock(reading_);
  const auto text = io::read_whole_file(folder_ / kIndexName, Catalogue::kMostBytes);
  if (text.status().code() == Code::kNotFound) return {};
  CHORAL_RETURN_IF_ERROR(text.status());
  CHORAL_TRY(catalogue_, read_catalogue(*text));
  auto view = std::make_shared<View>();
  std::error_code error;
  for (const auto& [name, adapter] : catalogue_.adapters) {
    const fs::path place = place_of(adapter);
    if (fs::is_directory(place, error)) view->places.emplace(name, Place{place.string(), adapter.digest});
  }
  publish(std::move(view));
  return {};
}

Status CatalogueIndex::read() {
  const std::lock_guard lock(reading_);
  if (!options_.token_file.empty()) {
    CHORAL_TRY(const auto token,
               io::read_whole_file(options_.token_file, kMostTokenBytes).while_("--adapter-catalogue-token-file"));
    source_->set_token(std::string(trimmed(token)));
  }
  CHORAL_RETURN_IF_ERROR(ask());
  const Status followed = follow();
  delete_unnamed();
  return followed;
}

Status CatalogueIndex::ask() {
  std::string etag = etag_;
  CHORAL_TRY(const auto text, source_->get_if_changed(index_path_, Catalogue::kMostBytes, etag));
  if (!text) return {};
  CHORAL_TRY(auto catalogue, read_catalogue(*text).while_("reading the catalogue's index"));
  CHORAL_RETURN_IF_ERROR(write_file(folder_ / kIndexName, *text));
  catalogue_ = std::move(catalogue);
  failures_.clear();
  etag_ = etag;
  return {};
}

// After each content that came the names are published, so that a small adapter does not wait for a large one's end.
Status CatalogueIndex::follow() {
  Status first;
  auto view = std::make_shared<View>();
  const auto before = now();
  int64_t room = options_.most_bytes;
  std::vector<std::pair<std::string, const CataloguedAdapter*>> missing;
  std::set<fs::path> counted;
  std::error_code error;
  for (const auto& [name, adapter] : catalogue_.adapters) {
    const fs::path place = place_of(adapter);
    const bool is_new = counted.insert(place).second;
    Status fault;
    if (adapter.files.empty()) {
      fault = invalid_argument("the index gives it no 'files', which are what is fetched");
    } else if (is_new && bytes_of(adapter) > room) {
      fault = too_large("it has {}, and of what fetched adapters may have together {} are left; raise --adapter-cache ({})",
                        size_text(bytes_of(adapter)), size_text(room), size_text(options_.most_bytes));
    } else if (fs::is_directory(place, error)) {
      view->places.emplace(name, Place{place.string(), adapter.digest});
    } else {
      missing.emplace_back(name, &adapter);
    }
    if (is_new && fault.ok()) room -= bytes_of(adapter);
    if (fault.ok()) continue;
    view->faults.emplace(name, fault);
    if (first.ok()) first = std::move(fault).while_(fmt::format("adapter '{}'", printable(name)));
  }
  // Until its new content is here a name stands for the one before.
  for (const auto& [name, adapter] : missing) {
    if (const auto old = before->places.find(name); old != before->places.end())
      view->places.emplace(name, Place{old->second.folder, adapter->digest});
  }
  const auto is_other = [&] {
    const auto told = now();
    const auto same_fault = [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.message() == b.second.message();
    };
    return told->places != view->places || !std::ranges::equal(told->faults, view->faults, same_fault);
  };
  if (is_other()) publish(std::make_shared<View>(*view));
  for (const auto& [name, adapter] : missing) {
    const fs::path place = place_of(*adapter);
    Status fetched = fs::is_directory(place, error) ? Status() : fetch_in_time(*adapter, place);
    if (fetched.ok()) {
      view->places.insert_or_assign(name, Place{place.string(), adapter->digest});
      publish(std::make_shared<View>(*view));
      continue;
    }
    if (!view->places.contains(name)) view->faults.emplace(name, fetched);
    if (first.ok()) first = std::move(fetched).while_(fmt::format("adapter '{}'", printable(name)));
  }
  if (is_other()) publish(std::move(view));
  return first;
}

Status CatalogueIndex::fetch_in_time(const CataloguedAdapter& adapter, const fs::path& place) {
  constexpr std::chrono::seconds kFirst{2}, kLongest{60};
  const std::string key = place.filename().string();
  Failure& failure = failures_[key];
  if (options_.clock() < failure.next) return failure.why;
  Status done = fetch(adapter, place);
  if (done.ok()) {
    failures_.erase(key);
    return {};
  }
  failure.pause = std::clamp(2 * failure.pause, kFirst, kLongest);
  failure.next = options_.clock() + failure.pause;
  failure.why = done;
  return done;
}

Status CatalogueIndex::fetch(const CataloguedAdapter& adapter, const fs::path& place) {
  const fs::path partial = fs::path(place).concat(kUnfetched);
  std::error_code error;
  fs::remove_all(partial, error);
  CHORAL_RETURN_IF_ERROR(made_folder(partial));
  const std::string folder = index_path_.substr(0, index_path_.rfind('/')) + quoted_path(adapter.path);
  Status done;
  for (const auto& [name, file] : adapter.files) {
    done = fetch_file(folder + "/" + fetch::HttpSource::quoted(name), file, partial / name);
    if (!done.ok()) break;
  }
  if (done.ok()) done = flush_folder(partial);
  if (done.ok()) {
    fs::rename(partial, place, error);
    done = error ? system_error(error.value(), fmt::format("cannot write {}", place.string())) : flush_folder(folder_);
  }
  if (!done.ok()) fs::remove_all(partial, error);
  return done;
}

Status CatalogueIndex::fetch_file(const std::string& path, const CataloguedFile& file, const fs::path& to) {
  CHORAL_TRY(const auto out, io::NewFile::create(to));
  Sha256 hash;
  int64_t bytes = 0;
  CHORAL_RETURN_IF_ERROR(source_->get_file(
      path, 0, [](int64_t) { return Status(); },
      [&](std::span<const std::byte> piece) -> Status {
        bytes += std::ssize(piece);
        if (bytes > file.bytes) return corrupt("{} has more than the {} bytes that the index says", path, file.bytes);
        hash.update(piece);
        return out->write(piece);
      }));
  if (bytes != file.bytes) return corrupt("{} has {} bytes, and the index says {}", path, bytes, file.bytes);
  if (const std::string is = to_hex(hash.finish()); is != file.sha256)
    return corrupt("{} has the SHA-256 {}, and the index says {}", path, is, file.sha256);
  return out->finish();
}

// Who came for it before it was unnamed may read it again yet.
void CatalogueIndex::delete_unnamed() {
  std::set<std::string> named{kIndexName};
  const auto view = now();
  for (const auto& [name, place] : view->places) named.insert(fs::path(place.folder).filename().string());
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) all.push_back(at->path());
  const auto now = options_.clock();
  for (const auto& path : all) {
    const std::string name = path.filename().string();
    if (named.contains(name)) {
      unnamed_.erase(name);
    } else if (now - unnamed_.try_emplace(name, now).first->second >= options_.kept) {
      fs::remove_all(path, error);
      if (error) CHORAL_LOG(kWarn, "cannot delete {}: {}", path.string(), error.message());
      unnamed_.erase(name);
    }
  }
}

}  // namespace choral::serve
