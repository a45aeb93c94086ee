#include "serve/watched_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>

#include "base/thread.h"

namespace choral::serve {
namespace {

constexpr std::chrono::seconds kLook{1};

// What a path leads to; where it leads nowhere, why.
using Identity = std::array<int64_t, 8>;

std::optional<Identity> identity_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return Identity{-1, errno};
  if (!S_ISREG(facts.st_mode)) return std::nullopt;
  return Identity{static_cast<int64_t>(facts.st_dev),
                  static_cast<int64_t>(facts.st_ino),
                  facts.st_size,
                  facts.st_mtim.tv_sec,
                  facts.st_mtim.tv_nsec,
                  facts.st_ctim.tv_sec,
                  facts.st_ctim.tv_nsec,
                  facts.st_mode};
}

// None where one is no plain file: a pipe can be read once, and waits for somebody who writes.
std::optional<std::vector<Identity>> identities_of(const std::vector<std::string>& paths) {
  std::vector<Identity> out;
  for (const auto& path : paths) {
    const auto identity = identity_of(path);
    if (!identity) return std::nullopt;
    out.push_back(*identity);
  }
  return out;
}

}  // namespace

struct WatchedFiles::Watched {
  Group group;
  std::optional<std::vector<Identity>> last_read;
  std::optional<std::vector<Identity>> last_seen;
  std::string complaint = {};  // of the last reading; empty: it went well
};

WatchedFiles::WatchedFiles(std::vector<Group> groups) {
  for (auto& group : groups) {
    const auto now = identities_of(group.paths);
    groups_.push_back({std::move(group), now, now});
  }
}

WatchedFiles::~WatchedFiles() { stop(); }

Status WatchedFiles::start(Observer observer) {
  observer_ = std::move(observer);
  if (std::all_of(groups_.begin(), groups_.end(), [](const Watched& w) { return w.group.paths.empty(); })) return {};
  CHORAL_TRY(thread_, start_thread("the thread that looks for new keys and certificates", [this] {
               std::unique_lock lock(stop_mutex_);
               while (!stop_.wait_for(lock, kLook, [this] { return stopped_; })) {
                 lock.unlock();
                 look();
                 lock.lock();
               }
             }));
  return {};
}

void WatchedFiles::stop() {
  {
    const std::lock_guard lock(stop_mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WatchedFiles::look() {
  const std::lock_guard lock(mutex_);
  for (auto& watched : groups_) {
    auto now = identities_of(watched.group.paths);
    if (!now) continue;
    const bool is_settled = now == watched.last_seen;
    watched.last_seen = std::move(now);
    if (is_settled && (watched.last_seen != watched.last_read || !watched.complaint.empty())) read(watched, false);
  }
}

void WatchedFiles::read_all() {
  const std::lock_guard lock(mutex_);
  for (auto& watched : groups_) {
    watched.last_seen = identities_of(watched.group.paths);
    read(watched, true);
  }
}

// What changes while it is read is seen by the next look.
void WatchedFiles::read(Watched& watched, bool tells_again) {
  watched.last_read = watched.last_seen;
  const Status status = watched.group.read();
  const bool is_known = !status.ok() && status.message() == watched.complaint;
  watched.complaint = status.ok() ? "" : status.message();
  if (observer_ && (tells_again || !is_known)) observer_(watched.group.name, status);
}

}  // namespace choral::serve
