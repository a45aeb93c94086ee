// Files that are read again when they change: the API keys, a certificate and its key. Tools change them in many ways (a link
// that is turned to another folder, as Kubernetes does with Secrets; a rename; a copy over them), and network file systems tell
// nobody. So each second it is looked what each path leads to: device, inode, size and times. A group of files is read when two
// looks found the same change, so that a certificate and its key may come one after the other. Files that cannot be used change
// nothing, are complained of once, and are tried again. Thread-safe; what a group does is called by one thread at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace choral::serve {

class WatchedFiles {
 public:
  struct Group {
    std::string name;                // "keys"
    std::vector<std::string> paths;  // none: it is read when read_all() says so
    std::function<Status()> read;
  };
  // Of each reading: the group's name, and what came of it. Of a failure that repeats itself once.
  using Observer = std::function<void(const std::string& name, const Status& read)>;

  // What the paths lead to now is what was read last: make it before that reading.
  explicit WatchedFiles(std::vector<Group> groups);
  ~WatchedFiles();
  WatchedFiles(const WatchedFiles&) = delete;
  WatchedFiles& operator=(const WatchedFiles&) = delete;

  // From now on a thread looks each second, if there is a path to look at; the observer is called on it, and by read_all().
  Status start(Observer observer);
  void stop();  // returns when nothing is being read

  void look();
  void read_all();  // whether they changed or not

 private:
  struct Watched;
  void read(Watched& group, bool tells_again);

  std::mutex mutex_;
  std::vector<Watched> groups_;
  Observer observer_;
  std::mutex stop_mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace choral::serve
