#include "serve/adapters/adapter_uploads.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/owned_fd.h"
#include "base/printable.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "engine/adapters/own_tokenizer.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/peft_helper.h"
#include "serve/disk_flush.h"
#include "serve/fresh_id.h"

namespace choral::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIdPrefix = "upload_";
constexpr std::string_view kPartial = ".part";  // behind the name of a folder whose files are not whole
constexpr std::string_view kWeights = "adapter_model.safetensors", kConfig = "adapter_config.json", kGguf = "adapter_model.gguf";

struct KnownFile {
  std::string_view name;
  uint64_t most_bytes;  // its reader's limit
};
constexpr KnownFile of_tokenizer(size_t i) { return {engine::kTokenizerFiles[i].name, engine::kTokenizerFiles[i].most_bytes}; }
static_assert(engine::kTokenizerFiles.size() == 3);
// What is read of an adapter and is no pickle.
constexpr std::array kKnown{
    KnownFile{kConfig, lora::PEFTLimits{}.max_config_bytes},
    KnownFile{kWeights, lora::AdapterLimits{}.max_file_bytes},
    KnownFile{kGguf, lora::AdapterLimits{}.max_file_bytes},
    KnownFile{"new_embeddings.safetensors", lora::AdapterLimits{}.max_file_bytes},
    of_tokenizer(0),
    of_tokenizer(1),
    of_tokenizer(2),
};

std::string known_names() {
  std::vector<std::string_view> names;
  for (const auto& known : kKnown) names.push_back(known.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool has_file(std::span<const SentFile> files, std::string_view name) {
  return std::ranges::any_of(files, [name](const SentFile& file) { return file.name == name; });
}

Status check_file(const SentFile& file) {
  const auto known = std::ranges::find(kKnown, file.name, &KnownFile::name);
  if (known == kKnown.end())
    return invalid_argument("'{}' is no file of an adapter that is taken here; these are: {}", printable(file.name),
                            known_names());
  if (file.bytes <= 0) return invalid_argument("{} has {} bytes; a file that is sent has some", file.name, file.bytes);
  if (static_cast<uint64_t>(file.bytes) > known->most_bytes)
    return too_large("{} has {}; at most {} are taken", file.name, size_text(file.bytes), size_text(known->most_bytes));
  return {};
}

int64_t sum_of(std::span<const SentFile> files) {
  int64_t bytes = 0;
  for (const auto& file : files) bytes += file.bytes;
  return bytes;
}

bool is_ours(std::string_view folder) { return folder.starts_with(kIdPrefix); }

int64_t size_of(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code unknown;
    const auto size = fs::file_size(at->path(), unknown);
    if (!unknown) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

Status remove_folder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  return error ? system_error(error.value(), fmt::format("cannot delete {}", folder.string())) : Status();
}

Status make_private_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  return error ? system_error(error.value(), fmt::format("cannot make {}", folder.string())) : Status();
}

}  // namespace

Status check_adapter_files(std::span<const SentFile> files) {
  if (files.empty() || files.size() > AdapterUploads::kMostFiles)
    return invalid_argument("an adapter of {} files; from 1 to {} are taken", files.size(), AdapterUploads::kMostFiles);
  for (size_t i = 0; i < files.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(check_file(files[i]));
    if (has_file(files.first(i), files[i].name)) return invalid_argument("{} is there twice", files[i].name);
  }
  const bool has_config = has_file(files, kConfig), has_weights = has_file(files, kWeights);
  if (has_file(files, kGguf) ? !has_config && !has_weights : has_config && has_weights) return {};
  return invalid_argument("an adapter is {} and {}, as save_pretrained() writes them, or {} alone", kConfig, kWeights, kGguf);
}

struct AdapterUploads::Upload {
  explicit Upload(fs::path at) : partial(std::move(at)) {}
  // Unless it was renamed.
  ~Upload() {
    open.clear();
    if (Status gone = remove_folder(partial); !gone.ok()) CHORAL_LOG(kWarn, "{}", gone.message());
  }
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  Status write_at_end(size_t index, std::string_view bytes) {
    SentFile& file = files[index];
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(open[index].get(), bytes.data(), bytes.size(), file.received);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return system_error(errno, fmt::format("cannot write {}", file.name));
      file.received += written;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }

  const fs::path partial;
  std::vector<SentFile> files;
  std::vector<OwnedFd> open;  // one a file
  std::chrono::steady_clock::time_point last;
};

AdapterUploads::AdapterUploads(fs::path folder, Limits limits) : folder_(std::move(folder)), limits_(std::move(limits)) {}
AdapterUploads::~AdapterUploads() = default;

Result<std::unique_ptr<AdapterUploads>> AdapterUploads::open(const std::string& state_directory, Limits limits) {
  std::error_code error;
  const fs::path state = fs::canonical(state_directory, error);
  if (error) return system_error(error.value(), fmt::format("cannot find the state directory {}", state_directory));
  const fs::path folder = state / kFolderName;
  const auto kind = fs::symlink_status(folder, error).type();
  if (kind != fs::file_type::not_found && kind != fs::file_type::directory)
    return invalid_argument("{} is no folder; move it away and start again", folder.string());
  return std::unique_ptr<AdapterUploads>(new AdapterUploads(folder, std::move(limits)));
}

Status AdapterUploads::keep_only(std::span<const std::string> paths) {
  std::error_code error;
  if (!fs::exists(folder_, error)) return {};
  std::vector<fs::path> lost;
  int64_t held = 0;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const fs::path& entry = at->path();
    if (!is_ours(entry.filename().string())) continue;
    if (std::ranges::find(paths, entry.string()) == paths.end()) {
      lost.push_back(entry);
    } else {
      held += size_of(entry);
    }
  }
  if (error) return system_error(error.value(), fmt::format("cannot read {}", folder_.string()));
  for (const auto& folder : lost) CHORAL_RETURN_IF_ERROR(remove_folder(folder));
  held_ = held;
  return {};
}

Status AdapterUploads::check_room(int64_t bytes) const {
  if (bytes > limits_.bytes)
    return too_large("the adapter has {}, and all that are sent may have {} together (--store-adapters)", size_text(bytes),
                     size_text(limits_.bytes));
  if (bytes > limits_.bytes - held_)
    return resource_exhausted("adapters that were sent hold {} of {} already (--store-adapters); unload some of them",
                              size_text(held_), size_text(limits_.bytes));
  if (under_way_.size() >= limits_.under_way)
    return resource_exhausted("{} adapters are being sent, and no more may be at a time; try again later", under_way_.size());
  return {};
}

Result<std::unique_ptr<AdapterUploads::Upload>> AdapterUploads::make(std::vector<SentFile> files) {
  CHORAL_RETURN_IF_ERROR(make_private_folder(folder_));
  auto upload = std::make_unique<Upload>(folder_ / fmt::format("{}{}", fresh_id(kIdPrefix), kPartial));
  CHORAL_RETURN_IF_ERROR(make_private_folder(upload->partial));
  for (auto& file : files) {
    const fs::path path = upload->partial / file.name;
    const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (made < 0) return system_error(errno, fmt::format("cannot make {}", path.string()));
    upload->open.emplace_back(made);
    file.received = 0;
  }
  upload->files = std::move(files);
  upload->last = limits_.clock();
  return upload;
}

Result<std::string> AdapterUploads::begin(std::vector<SentFile> files) {
  CHORAL_RETURN_IF_ERROR(check_adapter_files(files));
  const std::lock_guard lock(mutex_);
  drop_resting();
  const int64_t bytes = sum_of(files);
  CHORAL_RETURN_IF_ERROR(check_room(bytes));
  CHORAL_TRY(auto upload, make(std::move(files)));
  const std::string id = upload->partial.stem().string();
  under_way_[id] = std::move(upload);
  held_ += bytes;
  return id;
}

void AdapterUploads::drop_resting() {
  const auto now = limits_.clock();
  std::erase_if(under_way_, [&](const auto& entry) {
    if (now - entry.second->last < limits_.rest) return false;
    held_ -= sum_of(entry.second->files);
    return true;
  });
}

Result<AdapterUploads::Upload*> AdapterUploads::find(std::string_view id) {
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return not_found("there is no upload '{}', or no more", printable(id));
  return found->second.get();
}

Result<SentFile> AdapterUploads::write(std::string_view id, std::string_view name, int64_t offset, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  CHORAL_TRY(Upload* const upload, find(id));
  const auto file = std::ranges::find(upload->files, name, &SentFile::name);
  if (file == upload->files.end()) return not_found("the upload was begun without a file '{}'", printable(name));
  if (offset != file->received)
    return already_exists("{} bytes of {} are there, and the next piece begins behind them, not at {}", file->received,
                          file->name, offset);
  if (std::ssize(bytes) > file->bytes - file->received)
    return too_large("{} was to have {} bytes, and this piece leads beyond them", file->name, file->bytes);
  upload->last = limits_.clock();
  CHORAL_RETURN_IF_ERROR(upload->write_at_end(static_cast<size_t>(file - upload->files.begin()), bytes));
  return *file;
}

Result<std::string> AdapterUploads::finish(std::string_view id) {
  const std::lock_guard lock(mutex_);
  CHORAL_TRY(Upload* const upload, find(id));
  for (const auto& file : upload->files) {
    if (file.received < file.bytes)
      return invalid_argument("{} of {} bytes of {} are there", file.received, file.bytes, file.name);
  }
  for (const auto& open : upload->open) {
    if (::fsync(open.get()) != 0) return system_error(errno, "cannot write the adapter");
  }
  const fs::path place = place_of(id);
  std::error_code error;
  fs::rename(upload->partial, place, error);
  if (error) return system_error(error.value(), fmt::format("cannot write {}", place.string()));
  under_way_.erase(under_way_.find(id));
  CHORAL_RETURN_IF_ERROR(flush_folder(place));
  CHORAL_RETURN_IF_ERROR(flush_folder(folder_));
  return place.string();
}

bool AdapterUploads::drop(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return false;
  held_ -= sum_of(found->second->files);
  under_way_.erase(found);
  return true;
}

bool AdapterUploads::has(std::string_view path) const {
  const fs::path place(path);
  return place.parent_path() == folder_ && is_ours(place.filename().string());
}

Status AdapterUploads::remove(const std::string& path) {
  if (!has(path)) return invalid_argument("{} is no adapter that was sent", path);
  const std::lock_guard lock(mutex_);
  const int64_t bytes = size_of(path);
  CHORAL_RETURN_IF_ERROR(remove_folder(path));
  held_ -= bytes;
  return {};
}

}  // namespace choral::serve
