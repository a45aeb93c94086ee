#include "output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/system_error.h"

namespace choral::apps {
namespace {

constexpr mode_t kModeBits = 07777;
constexpr size_t kMostNameBytes = 200;  // of 255: the neighbour's name is longer
constexpr int kTries = 100;             // for a name that nobody has
constexpr int kMostInherited = 256;     // descriptors that a shell gives a program

Status write_error(std::string_view path) {
  const int error = errno;
  if (error == EPIPE) {  // `choral … | head` ends quietly
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  if (path == "-") path = "standard output";
  if (error == EBADF) return invalid_argument("cannot write {}: it is closed", path);
  return system_error(error, fmt::format("cannot write {}", path));
}

// A bind-mounted file, as containers have them: nothing can be moved over it.
bool is_mount_point(const std::string& path) {
  struct statx facts {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE, &facts) != 0) return false;
  return (facts.stx_attributes_mask & facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

bool is_same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

// The descriptor from stdout on through which this process has the file open to write it; -1 without one.
int inherited_descriptor(const struct stat& file) {
  for (int descriptor = STDOUT_FILENO; descriptor < kMostInherited; ++descriptor) {
    const int flags = ::fcntl(descriptor, F_GETFL);
    struct stat facts {};
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && ::fstat(descriptor, &facts) == 0 && is_same_file(facts, file)) {
      return descriptor;
    }
  }
  return -1;
}

// "answers.jsonl.partial-", beside it.
std::string partial_prefix(const std::string& path) {
  const std::filesystem::path whole(path);
  return (whole.parent_path() / (whole.filename().string().substr(0, kMostNameBytes) + ".partial-")).string();
}

std::string partial_name(const std::string& path, int attempt) {
  return fmt::format("{}{}{}", partial_prefix(path), getpid(), attempt == 0 ? "" : fmt::format("-{}", attempt));
}

// Newest first.
std::vector<std::string> partials_of(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string prefix = partial_prefix(path);
  const fs::path folder = fs::path(prefix).parent_path();
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error, ignored;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = (folder / at->path().filename()).string();
    if (name.starts_with(prefix)) found.emplace_back(fs::last_write_time(name, ignored), name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [time, name] : found) names.push_back(std::move(name));
  return names;
}

// Where the last whole line ends.
Result<off_t> end_of_lines(int descriptor) {
  std::array<char, 65536> piece;
  off_t end = ::lseek(descriptor, 0, SEEK_END);
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(piece.size()));
    const ssize_t got = ::pread(descriptor, piece.data(), static_cast<size_t>(end - begin), begin);
    if (got <= 0) return system_error(errno, "cannot read it");
    const std::string_view text(piece.data(), static_cast<size_t>(got));
    if (const size_t line_break = text.rfind('\n'); line_break != text.npos) return begin + static_cast<off_t>(line_break) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path, Pipes pipes) {
  namespace fs = std::filesystem;
  if (path.empty()) return invalid_argument("the name of the file to write is empty; - is standard output");
  std::unique_ptr<OutputFile> out(new OutputFile());
  out->path_ = path;
  if (path == "-") {
    out->file_ = stdout;
    out->direct_ = out->begun_ = true;
    return out;
  }
  struct stat& facts = out->replaced_;
  const bool exists = ::stat(path.c_str(), &facts) == 0;
  if (!exists && errno != ENOENT) return write_error(path);
  if (exists && S_ISDIR(facts.st_mode)) return invalid_argument("cannot write {}: it is a directory", path);
  if (const int inherited = exists ? inherited_descriptor(facts) : -1; inherited >= 0) {
    CHORAL_RETURN_IF_ERROR(out->write_behind(inherited));
    return out;
  }
  if (exists && !S_ISREG(facts.st_mode)) {
    CHORAL_RETURN_IF_ERROR(out->open_special(pipes));
    return out;
  }
  // A link stays a link: what it points to is replaced.
  std::error_code ignored;
  if (const auto real = fs::canonical(path, ignored); !ignored) out->path_ = real.string();
  CHORAL_RETURN_IF_ERROR(out->open_plain(exists));
  return out;
}

Status OutputFile::open_special(Pipes pipes) {
  direct_ = begun_ = true;
  const bool is_pipe = S_ISFIFO(replaced_.st_mode);
  if (is_pipe && pipes == Pipes::kRefused) {
    return invalid_argument("cannot write {}: it is a pipe, which waits for its reader; name a plain file", path_);
  }
  int descriptor = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0 && errno == ENXIO && is_pipe) {
    say("choral: waiting for somebody to read {}\n", path_);
    descriptor = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else if (descriptor >= 0) {
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  }
  return adopt(descriptor);
}

// What the file holds is not ours, and it may have lost its name.
Status OutputFile::write_behind(int descriptor) {
  direct_ = begun_ = true;
  if (descriptor != STDOUT_FILENO) return adopt(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  file_ = stdout;
  return {};
}

Status OutputFile::open_plain(bool exists) {
  int old = -1;
  if (exists) {
    old = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (old < 0) return write_error(path_);  // a file that must not be written is not replaced either
    replaces_ = true;
    if (is_mount_point(path_)) return write_directly(old, "it is a mount point");
  }
  // Tried now and made again for the first line: what is stopped before leaves nothing.
  Status made = open_partial();
  remove_partial();
  // Without room for a file, or a number for it, nothing is gained by writing over the old one.
  if (old >= 0 && !made.ok() && made.code() != Code::kResourceExhausted) return write_directly(old, made.message());
  if (old >= 0) ::close(old);
  return std::move(made).while_("cannot write " + path_);
}

Status OutputFile::write_directly(int descriptor, std::string_view why) {
  direct_ = true;
  remark_ = fmt::format("{} cannot be replaced ({}): it is written into, line by line", path_, why);
  return adopt(descriptor);
}

Status OutputFile::adopt(int descriptor) {
  if (descriptor < 0) return write_error(path_);
  if (file_ != nullptr) std::fclose(file_);
  file_ = ::fdopen(descriptor, "wb");
  if (file_ != nullptr) return {};
  const Status error = write_error(path_);
  ::close(descriptor);
  return error;
}

Status OutputFile::open_partial() {
  int descriptor = -1;
  std::string name;
  for (int i = 0; i < kTries && descriptor < 0; ++i) {
    name = partial_name(path_, i);
    // Never more open than what it replaces; a new file's mode is the umask's business.
    descriptor = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, replaces_ ? 0600 : 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) return system_error(errno, "no file can be made beside it");
  ::flock(descriptor, LOCK_EX | LOCK_NB);  // tells resume() of others that it is being written
  {
    const std::lock_guard lock(mutex_);
    partial_ = name;
  }
  if (replaces_) {
    struct stat own {};
    const bool same = ::fstat(descriptor, &own) == 0 && own.st_uid == replaced_.st_uid && own.st_gid == replaced_.st_gid;
    if ((!same && ::fchown(descriptor, replaced_.st_uid, replaced_.st_gid) != 0) ||
        ::fchmod(descriptor, replaced_.st_mode & kModeBits) != 0) {
      const Status error = system_error(errno, "its owner and mode cannot be kept");
      ::close(descriptor);
      remove_partial();
      return error;
    }
  }
  return adopt(descriptor);
}

Result<bool> OutputFile::resume() {
  if (direct_) return invalid_argument("{}: its lines are written at once, so there is nothing to go on with", path_);
  for (const auto& name : partials_of(path_)) {
    const int descriptor = ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0) return system_error(errno, fmt::format("cannot go on with {}", name));
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {  // another process is at it
      ::close(descriptor);
      continue;
    }
    const auto end = end_of_lines(descriptor);
    if (!end.ok() || ::ftruncate(descriptor, *end) != 0 || ::lseek(descriptor, *end, SEEK_SET) < 0) {
      const Status error = end.ok() ? system_error(errno, "cannot cut its last line") : end.status();
      ::close(descriptor);
      return Status(error).while_(name);
    }
    {
      const std::lock_guard lock(mutex_);
      partial_ = name;
    }
    begun_ = resumed_ = true;
    CHORAL_RETURN_IF_ERROR(adopt(descriptor));
    return true;
  }
  return false;
}

std::string OutputFile::partial() const {
  const std::lock_guard lock(mutex_);
  return partial_;
}

Status OutputFile::keep() {
  if (direct_ || !begun_) return {};
  const Status written = std::fflush(file_) == 0 && ::fsync(fileno(file_)) == 0 ? Status() : write_error(path_);
  const std::lock_guard lock(mutex_);
  partial_.clear();
  return written;
}

void OutputFile::remove_partial() {
  const std::lock_guard lock(mutex_);
  if (!partial_.empty()) std::remove(partial_.c_str());
  partial_.clear();
}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!resumed_) remove_partial();
}

// Before the first line.
Status OutputFile::begin() {
  if (std::exchange(begun_, true)) return {};
  if (!direct_) return open_partial().while_("cannot write " + path_);
  return ::ftruncate(fileno(file_), 0) == 0 ? Status() : write_error(path_);
}

Status OutputFile::write_piece(std::string_view piece) {
  CHORAL_RETURN_IF_ERROR(begin());
  return std::fwrite(piece.data(), 1, piece.size(), file_) == piece.size() ? Status() : write_error(path_);
}

Status OutputFile::write_line(std::string_view line) {
  CHORAL_RETURN_IF_ERROR(begin());
  const bool written =
      std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fputc('\n', file_) != EOF && std::fflush(file_) == 0;
  return written ? Status() : write_error(path_);
}

bool OutputFile::writes_into(int descriptor) const {
  struct stat own {};
  struct stat other {};
  if (!direct_ || is_stdout() || ::fstat(fileno(file_), &own) != 0 || ::fstat(descriptor, &other) != 0) return false;
  return S_ISREG(own.st_mode) && is_same_file(own, other);
}

Status OutputFile::commit() {
  if (committed_) return {};
  CHORAL_RETURN_IF_ERROR(begin());
  if (direct_) return {};
  // A file system that has no fsync says EINVAL.
  Status written = std::fflush(file_) == 0 && (::fsync(fileno(file_)) == 0 || errno == EINVAL) ? Status() : write_error(path_);
  const std::lock_guard lock(mutex_);
  if (partial_.empty()) return cancelled("{} was not written: the work was stopped", path_);
  if (written.ok() && std::rename(partial_.c_str(), path_.c_str()) != 0) {
    written = copy_into_place();
    if (written.ok()) std::remove(partial_.c_str());
  }
  // What was computed is not thrown away.
  if (!written.ok()) written = Status(written.code(), fmt::format("{}; the answers are in {}", written.message(), partial_));
  partial_.clear();
  committed_ = written.ok();
  return written;
}

// Where rename() refused: the place became a mount point meanwhile, or the file system cannot.
Status OutputFile::copy_into_place() {
  const int to = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (to < 0) return write_error(path_);
  const int from = fileno(file_);
  std::array<char, 65536> piece;
  off_t at = 0;
  Status copied;
  while (copied.ok()) {
    const ssize_t got = ::pread(from, piece.data(), piece.size(), at);
    if (got == 0) break;
    const ssize_t put = got < 0 ? got : ::write(to, piece.data(), got);
    if (put < 0) copied = write_error(path_);
    at += put;
  }
  if (::close(to) != 0 && copied.ok()) copied = write_error(path_);
  return copied;
}

Result<std::unique_ptr<OutputFile>> open_beside_report(std::string_view flag, const std::string& path, bool quiet) {
  if (path.empty()) return std::unique_ptr<OutputFile>();
  CHORAL_TRY(auto file, OutputFile::create(path, OutputFile::Pipes::kRefused));
  if (file->is_stdout()) return invalid_argument("{}: name a file; standard output has the report", flag);
  if (!quiet && !file->remark().empty()) say("choral: {}\n", file->remark());
  return file;
}

Status print_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return write_error("-");
}

}  // namespace choral::apps
