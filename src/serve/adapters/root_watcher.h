// Watches the adapter root for what the engine does not look for by itself. The engine finds a folder when a request names it,
// and reads changed files anew at the next request; it cannot list what nobody asked for, and keeps a name whose folder is gone.
// Here the whole root is listed, and whoever is interested hears of folders that appeared, changed or vanished. inotify only
// wakes it up; what there is says a scan, so lost or doubled events do no harm. A change counts once the folder has been the same
// for a while and its config can be read: nobody hears of half a copy. Where nothing can be watched it scans every few seconds,
// and note() says why. Where a catalogue says what there is, that is looked at every few seconds. Thread-safe. on_change is
// called from a thread of its own, without a lock held, until the destructor returns.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "serve/adapters/root_listing.h"
#include "serve/catalogue/followed_catalogue.h"

namespace choral::serve {

class RootWatcher {
 public:
  struct Options {
    std::string root;                        // empty: there is a catalogue alone, which says where adapters are
    double quiet_s = 0.5;                    // a folder is the same for so long
    double rescan_s = 30;                    // also without an event: a network's file system has none
    double polling_s = 3;                    // where nothing can be watched
    FollowedCatalogue* catalogue = nullptr;  // which says what there is instead, as long as there is one; outlives the watcher
  };
  // Lists what is there before it returns; on_change hears of what comes after. An error: the root cannot be read.
  // `on_look`: the catalogue was looked at; from the same thread.
  static Result<std::unique_ptr<RootWatcher>> start(
      Options options, std::function<void(const RootChange&)> on_change, std::function<void()> on_look = [] {});
  ~RootWatcher();

  // What a request may name, sorted; the same list until it changes.
  using Adapters = std::shared_ptr<const std::vector<lora::FoundAdapter>>;
  Adapters adapters() const;
  // What lies in the root and cannot be had under its name, with the reason: a link that leads out, a config that is broken.
  using Faults = std::shared_ptr<const RootListing::Faults>;
  Faults faults() const;
  std::string note() const;  // why it does not watch but scan; empty when it watches

 private:
  RootWatcher(Options options, std::function<void(const RootChange&)> on_change, std::function<void()> on_look)
      : options_(std::move(options)), on_change_(std::move(on_change)), on_look_(std::move(on_look)), listing_(options_.root) {}

  void run();
  // Whether another catalogue is there now, or none any more.
  bool look_at_catalogue();
  Result<std::vector<lora::FoundAdapter>> found_in_root() const;
  // What lies in the root and the catalogue does not name.
  void add_unnamed(const FollowedCatalogue::View& catalogue, RootListing::Faults& faults) const;
  // What is settled by now; true when something is not yet.
  Result<bool> scan(double now, double quiet_s, std::vector<RootChange>& changes);
  void watch();
  bool watch_folder(const std::string& path, std::set<int>& watched);
  void drain_events();

  const Options options_;
  const std::function<void(const RootChange&)> on_change_;
  const std::function<void()> on_look_;
  int inotify_ = -1, stop_ = -1;
  std::set<int> watches_;                                     // the thread's
  bool begun_ = false;                                        // before the thread: the root was there once
  std::shared_ptr<const FollowedCatalogue::View> catalogue_;  // as scanned last; the thread's
  RootListing listing_;                                       // likewise, then the thread's
  mutable std::mutex mutex_;  // guards the members below, as long as it takes to read or change one
  Adapters adapters_;
  Faults faults_;
  std::string note_;
  std::thread thread_;
};

}  // namespace choral::serve
