#include "tools/hub/repository_cache.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/owned_fd.h"
#include "base/sha256.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "io/new_file.h"

namespace choral::tools {
namespace {

namespace fs = std::filesystem;

OwnedFd opened(const fs::path& path) { return OwnedFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)); }

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? system_error(error.value(), "cannot make " + path.string()) : Status();
}

// The lock that huggingface_hub takes; gone with the descriptor. The file stays: removing it would let two in.
Status lock(const OwnedFd& file, const fs::path& path, FunctionRef<void()> wait) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return system_error(errno, "cannot lock " + path.string());
    wait();
    std::this_thread::sleep_for(kPause);
  }
  return {};
}

// SHA-256 of what a large file holds; of a small one what git names it: SHA-1 of "blob SIZE" and its bytes.
class BlobHash {
 public:
  explicit BlobHash(const HubFile& file) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    const bool is_git = file.hash.size() == 40;
    CHORAL_CHECK(context_ && EVP_DigestInit_ex(context_.get(), is_git ? EVP_sha1() : EVP_sha256(), nullptr) == 1,
                 "a digest begins");
    const std::string head = fmt::format("blob {}", file.size_bytes);
    if (is_git) update(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
  }
  void update(std::span<const std::byte> bytes) {
    CHORAL_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "a digest goes on");
  }
  std::string finish() {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    CHORAL_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1, "a digest ends");
    return to_hex({digest, size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

class PartialFile final : public RepositoryCache::Partial {
 public:
  PartialFile(const OwnedFd& file, fs::path path, int64_t most_bytes) : file_(file), path_(std::move(path)), most_(most_bytes) {}

  Status open() {
    const off_t size = ::lseek(file_.get(), 0, SEEK_END);
    if (size < 0) return system_error(errno, "cannot read " + path_.string());
    size_ = size;
    return size_ > most_ ? cut(0) : Status();
  }
  int64_t size_bytes() const override { return size_; }
  Status cut(int64_t size_bytes) override {
    if (::ftruncate(file_.get(), size_bytes) != 0 || ::lseek(file_.get(), size_bytes, SEEK_SET) < 0)
      return system_error(errno, "cannot write " + path_.string());
    size_ = size_bytes;
    return {};
  }
  Status append(std::span<const std::byte> bytes) override {
    if (std::ssize(bytes) > most_ - size_) return too_large("the hub sends more than the {} bytes that it lists", most_);
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return system_error(errno, "cannot write " + path_.string());
      bytes = bytes.subspan(static_cast<size_t>(written));
      size_ += written;
    }
    return {};
  }
  Result<std::string> hash(const HubFile& file) const {
    BlobHash hash(file);
    std::vector<std::byte> buffer(size_t{1} << 20);
    for (int64_t at = 0; at < size_;) {
      const ssize_t got = ::pread(file_.get(), buffer.data(), buffer.size(), at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return system_error(got < 0 ? errno : EIO, "cannot read " + path_.string());
      hash.update(std::span(buffer).first(static_cast<size_t>(got)));
      at += got;
    }
    return hash.finish();
  }

 private:
  const OwnedFd& file_;
  fs::path path_;
  int64_t most_;
  int64_t size_ = 0;
};

std::string folder_name(std::string name) {
  if (const size_t slash = name.find('/'); slash != name.npos) name.replace(slash, 1, "--");
  return "models--" + name;
}

}  // namespace

RepositoryCache::RepositoryCache(const fs::path& root, const std::string& name)
    : folder_(root / folder_name(name)), locks_(root / ".locks" / folder_name(name)) {}

bool RepositoryCache::has(const HubFile& file) const {
  std::error_code error;
  return fs::file_size(blob(file), error) == static_cast<uintmax_t>(file.size_bytes) && !error;
}

Status RepositoryCache::make_folders() {
  for (const auto& path : {folder_ / "blobs", folder_ / "snapshots", folder_ / "refs", locks_})
    CHORAL_RETURN_IF_ERROR(make_folder(path));
  return {};
}

Status RepositoryCache::check_room(int64_t size_bytes) const {
  std::error_code error;
  const auto space = fs::space(folder_, error);
  if (error || space.available >= static_cast<uintmax_t>(size_bytes)) return {};
  return resource_exhausted("{} are to be fetched into {}, whose disk has {} left; HF_HUB_CACHE names another place",
                            size_text(size_bytes), folder_.string(), size_text(static_cast<int64_t>(space.available)));
}

Status RepositoryCache::fill(const HubFile& file, FunctionRef<Status(Partial&)> fetch, FunctionRef<void()> wait) {
  const fs::path lock_path = locks_ / (file.hash + ".lock");
  const OwnedFd lock_file = opened(lock_path);
  if (!lock_file.open()) return system_error(errno, "cannot open " + lock_path.string());
  CHORAL_RETURN_IF_ERROR(lock(lock_file, lock_path, wait));
  if (has(file)) return {};

  fs::path path = blob(file);
  path += ".incomplete";
  const OwnedFd descriptor = opened(path);
  if (!descriptor.open()) return system_error(errno, "cannot open " + path.string());
  PartialFile partial(descriptor, path, file.size_bytes);
  CHORAL_RETURN_IF_ERROR(partial.open());
  if (partial.size_bytes() < file.size_bytes) CHORAL_RETURN_IF_ERROR(fetch(partial));
  if (partial.size_bytes() != file.size_bytes)
    return unavailable("{} of {} bytes came; try again to go on from there", partial.size_bytes(), file.size_bytes);
  CHORAL_TRY(const std::string hash, partial.hash(file));
  if (hash != file.hash) {
    CHORAL_RETURN_IF_ERROR(partial.cut(0));
    return corrupt("what came has the hash {}, the hub lists {}; it was thrown away, try again", hash, file.hash);
  }
  if (::fsync(descriptor.get()) != 0) return system_error(errno, "cannot write " + path.string());
  std::error_code error;
  fs::rename(path, blob(file), error);
  return error ? system_error(error.value(), "cannot rename " + path.string()) : Status();
}

Status RepositoryCache::link(const std::string& commit, const HubFile& file) {
  const fs::path place = snapshot(commit) / file.name;
  CHORAL_RETURN_IF_ERROR(make_folder(place.parent_path()));
  fs::path target = "../..";  // of snapshots/COMMIT
  for (auto depth = std::count(file.name.begin(), file.name.end(), '/'); depth > 0; --depth) target /= "..";
  target = target / "blobs" / file.hash;
  std::error_code error;
  if (fs::read_symlink(place, error) == target) return {};
  const fs::path beside = place.string() + fmt::format(".{}.new", ::getpid());
  fs::remove(beside, error);
  fs::create_symlink(target, beside, error);
  if (!error) fs::rename(beside, place, error);
  return error ? system_error(error.value(), "cannot link " + place.string()) : Status();
}

Status RepositoryCache::set_ref(const std::string& revision, const std::string& commit) {
  const fs::path path = folder_ / "refs" / revision;
  CHORAL_RETURN_IF_ERROR(make_folder(path.parent_path()));
  CHORAL_TRY(const auto file, io::NewFile::create(path));
  CHORAL_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(commit))));
  return file->finish();
}

}  // namespace choral::tools
