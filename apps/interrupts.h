// Ctrl-C and SIGTERM as function calls. Make it before anything starts threads: they inherit that the signals are blocked, and
// one thread here waits for them. Without a handler, and at the second signal to the same handler, the process ends as it would
// anyway.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace choral::apps {

class Interrupts {
 public:
  static Result<std::unique_ptr<Interrupts>> make();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // "stopped by Ctrl-C", or by the signal that came instead.
  Status stopped() const;

  // Called at the next Ctrl-C (and SIGTERM, unless that ends the process: `only_ctrl_c`), from this object's thread.
  // `again`: also for the ones after it.
  struct Handler {
    std::function<void()> call;
    bool only_ctrl_c = false;
    bool again = false;
    std::function<void()> hang_up = {};  // called at each SIGHUP, which ends the process otherwise
  };
  // In force while the Scope lives; an inner Scope hides the outer one.
  class Scope {
   public:
    Scope(Interrupts& owner, Handler handler);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interrupts& owner_;
    Handler outer_;
  };
  // While it lives, `tidy` is called before a signal ends the process, from this object's thread.
  class Tidying {
   public:
    Tidying(Interrupts& owner, std::function<void()> tidy);
    ~Tidying();
    Tidying(const Tidying&) = delete;
    Tidying& operator=(const Tidying&) = delete;

   private:
    Interrupts& owner_;
  };

 private:
  Interrupts() = default;
  void run();
  void handle(int signal);

  mutable std::mutex mutex_;
  int last_signal_ = 0;
  Handler handler_;
  std::function<void()> tidy_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace choral::apps
