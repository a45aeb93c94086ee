#include "serve/adapters/root_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/log.h"
#include "base/system_error.h"
#include "base/thread.h"

namespace choral::serve {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kEvents =
    IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr size_t kMaxWatches = 20'000;

// Of `path`, links to folders included; without those whose names begin with a dot, which are no adapters.
std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator entries(path, error);
  for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
    std::error_code ignored;
    if (entries->path().filename().string().starts_with('.') || !entries->is_directory(ignored)) continue;
    out.push_back(entries->path().string());
    if (out.size() > kMaxWatches) break;
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<RootWatcher>> RootWatcher::start(Options options, std::function<void(const RootChange&)> on_change) {
  std::unique_ptr<RootWatcher> made(new RootWatcher(std::move(options), std::move(on_change)));
  made->stop_ = eventfd(0, EFD_CLOEXEC);
  if (made->stop_ < 0) return system_error(errno, "cannot watch the adapter root");
  made->inotify_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (made->inotify_ < 0) made->note_ = system_error(errno, "inotify is not to be had").message();
  made->watch();  // before the scan: what comes between is seen by both
  std::vector<RootChange> nobody_hears;
  CHORAL_RETURN_IF_ERROR(made->scan(now_s(), 0, nobody_hears).status());
  made->begun_ = true;
  CHORAL_TRY(made->thread_, start_thread("the watcher of the adapter root", [self = made.get()] { self->run(); }));
  return made;
}

RootWatcher::~RootWatcher() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    while (write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  if (inotify_ >= 0) close(inotify_);
  if (stop_ >= 0) close(stop_);
}

RootWatcher::Adapters RootWatcher::adapters() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

RootWatcher::Faults RootWatcher::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

std::string RootWatcher::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

void RootWatcher::run() {
  const auto idle_s = [this] {
    return note_.empty() ? options_.rescan_s : options_.polling_s;
  };  // this thread alone writes note_
  double next_s = now_s() + idle_s();
  bool scan_failed = false;
  for (;;) {
    pollfd waits[2] = {{stop_, POLLIN, 0}, {inotify_, POLLIN, 0}};  // poll leaves out a negative one
    const double wait_ms = std::clamp((next_s - now_s()) * 1e3, 0.0, 1e6);
    poll(waits, 2, static_cast<int>(std::ceil(wait_ms)));
    if ((waits[0].revents & POLLIN) != 0) return;
    if ((waits[1].revents & POLLIN) != 0) {
      drain_events();
      next_s = std::min(next_s, now_s() + options_.quiet_s);
    }
    if (now_s() < next_s) continue;
    watch();
    std::vector<RootChange> changes;
    const auto unsettled = scan(now_s(), options_.quiet_s, changes);
    if (!unsettled.ok() && !scan_failed)
      CHORAL_LOG(kWarn, "{}; what was there before stays listed, and it is tried again", unsettled.status().message());
    scan_failed = !unsettled.ok();
    for (const auto& change : changes) on_change_(change);
    next_s = now_s() + (scan_failed ? options_.polling_s : *unsettled ? options_.quiet_s : idle_s());
  }
}

// What happened does not matter, nor whether some of it was lost: the scan sees.
void RootWatcher::drain_events() {
  alignas(inotify_event) char bytes[16 << 10];
  while (read(inotify_, bytes, sizeof bytes) > 0) {
  }
}

bool RootWatcher::watch_folder(const std::string& path, std::set<int>& watched) {
  const int id = inotify_add_watch(inotify_, path.c_str(), kEvents);
  if (id >= 0) {
    watched.insert(id);
  } else if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) {
    return false;
  }
  return true;
}

// The root, the folders in it, and those in them. Folders that are watched keep their watch; what is no longer here loses it.
void RootWatcher::watch() {
  if (inotify_ < 0) return;
  std::set<int> watched;
  bool all = watch_folder(options_.root, watched);
  for (const auto& folder : folders_in(options_.root)) {
    all = all && watch_folder(folder, watched);
    for (const auto& inner : folders_in(folder)) {
      all = all && watched.size() < kMaxWatches && watch_folder(inner, watched);
    }
    if (!all) break;
  }
  for (const int id : watches_) {
    if (!watched.contains(id)) inotify_rm_watch(inotify_, id);
  }
  watches_ = std::move(watched);
  const std::lock_guard lock(mutex_);
  note_ = all ? ""
              : fmt::format(
                    "not every folder of {} can be watched (fs.inotify.max_user_watches, or more than {} folders); it is "
                    "scanned every {} s",
                    options_.root, kMaxWatches, options_.polling_s);
}

Result<bool> RootWatcher::scan(double now, double quiet_s, std::vector<RootChange>& changes) {
  auto found = lora::adapters_in_root(options_.root);
  if (!found.ok()) {
    // At the start that is the user's error; later the whole root may have been taken away.
    if (found.status().code() != Code::kNotFound || !begun_) return std::move(found).status();
    found = std::vector<lora::FoundAdapter>();
  }
  const bool unsettled = listing_.take(*found, now, quiet_s, changes);
  auto faults = std::make_shared<const RootListing::Faults>(listing_.faults());
  Adapters listed;
  if (!begun_ || !changes.empty()) listed = std::make_shared<const std::vector<lora::FoundAdapter>>(listing_.adapters());
  const std::lock_guard lock(mutex_);
  faults_ = std::move(faults);
  if (listed != nullptr) adapters_ = std::move(listed);
  return unsettled;
}

}  // namespace choral::serve
