#include "serve/adapters/root_watcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>

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
constexpr double kNever = std::numeric_limits<double>::infinity();

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

Result<std::unique_ptr<RootWatcher>> RootWatcher::start(Options options, std::function<void(const RootChange&)> on_change,
                                                        std::function<void()> on_look) {
  std::unique_ptr<RootWatcher> made(new RootWatcher(std::move(options), std::move(on_change), std::move(on_look)));
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
    if (options_.catalogue != nullptr) options_.catalogue->stop();
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
  double scan_s = now_s() + idle_s();
  double look_s = options_.catalogue == nullptr ? kNever : now_s();
  bool scan_failed = false;
  for (;;) {
    pollfd waits[2] = {{stop_, POLLIN, 0}, {inotify_, POLLIN, 0}};  // poll leaves out a negative one
    const double wait_ms = std::clamp((std::min(scan_s, look_s) - now_s()) * 1e3, 0.0, 1e6);
    poll(waits, 2, static_cast<int>(std::ceil(wait_ms)));
    if ((waits[0].revents & POLLIN) != 0) return;
    if ((waits[1].revents & POLLIN) != 0) {
      drain_events();
      scan_s = std::min(scan_s, now_s() + options_.quiet_s);
      if (options_.catalogue != nullptr) look_s = now_s();
    }
    if (now_s() >= look_s) {
      if (look_at_catalogue()) scan_s = now_s();
      look_s = now_s() + options_.catalogue->look_every_s();
    }
    if (now_s() < scan_s) continue;
    watch();
    std::vector<RootChange> changes;
    const auto unsettled = scan(now_s(), options_.quiet_s, changes);
    if (!unsettled.ok() && !scan_failed)
      CHORAL_LOG(kWarn, "{}; what was there before stays listed, and it is tried again", unsettled.status().message());
    scan_failed = !unsettled.ok();
    for (const auto& change : changes) on_change_(change);
    scan_s = now_s() + (scan_failed ? options_.polling_s : *unsettled ? options_.quiet_s : idle_s());
  }
}

bool RootWatcher::look_at_catalogue() {
  const Status looked = options_.catalogue->look();  // says itself what is wrong
  on_look_();
  return looked.ok() && options_.catalogue->now() != catalogue_;
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
  if (inotify_ < 0 || options_.root.empty()) return;
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

Result<std::vector<lora::FoundAdapter>> RootWatcher::found_in_root() const {
  if (options_.root.empty()) return std::vector<lora::FoundAdapter>();
  auto found = lora::adapters_in_root(options_.root);
  // At the start that is the user's error; later the whole root may have been taken away.
  if (!found.ok() && found.status().code() == Code::kNotFound && begun_) return std::vector<lora::FoundAdapter>();
  return found;
}

void RootWatcher::add_unnamed(const FollowedCatalogue::View& catalogue, RootListing::Faults& faults) const {
  const auto found = found_in_root();
  if (!found.ok()) return;
  std::set<std::string> placed;
  for (const auto& [name, place] : catalogue.places) placed.insert(place.folder);
  for (const auto& [name, path] : *found) {
    if (catalogue.places.contains(name) || catalogue.faults.contains(name)) continue;
    std::error_code error;
    const fs::path folder = fs::canonical(path, error);
    if (error || placed.contains(folder.string())) continue;
    faults.emplace(name,
                   not_found("it lies in the adapter root, but the catalogue, which says what is served, does not name it"));
  }
}

Result<bool> RootWatcher::scan(double now, double quiet_s, std::vector<RootChange>& changes) {
  catalogue_ = options_.catalogue == nullptr ? nullptr : options_.catalogue->now();
  std::vector<lora::FoundAdapter> found;
  if (catalogue_ != nullptr) {
    found = FollowedCatalogue::found(*catalogue_);
  } else {
    CHORAL_TRY(found, found_in_root());
  }
  const bool unsettled = listing_.take(found, now, quiet_s, changes, catalogue_ != nullptr);
  auto faults = listing_.faults();
  if (catalogue_ != nullptr) {
    faults.insert(catalogue_->faults.begin(), catalogue_->faults.end());
    add_unnamed(*catalogue_, faults);
  }
  Adapters listed;
  if (!begun_ || !changes.empty()) listed = std::make_shared<const std::vector<lora::FoundAdapter>>(listing_.adapters());
  const std::lock_guard lock(mutex_);
  faults_ = std::make_shared<const RootListing::Faults>(std::move(faults));
  if (listed != nullptr) adapters_ = std::move(listed);
  return unsettled;
}

}  // namespace choral::serve
