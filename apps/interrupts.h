// Ctrl-C and SIGTERM as function calls. Make it before anything starts threads: they inherit that the signals are blocked, and
// one thread here waits for them. Without a handler, and at the second signal to the same handler, the process ends as it would
// anyway.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

namespace choral::apps {

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Called at the next Ctrl-C (and SIGTERM, unless that ends the process: `only_ctrl_c`), from this object's thread.
  // `again`: also for the ones after it.
  struct Handler {
    std::function<void()> call;
    bool only_ctrl_c = false;
    bool again = false;
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

 private:
  void run();
  void handle(int signal);

  std::mutex mutex_;
  Handler handler_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace choral::apps
