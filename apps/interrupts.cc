#include "interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/system_error.h"
#include "base/thread.h"

namespace choral::apps {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  return set;
}

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  const sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
}

}  // namespace

Result<std::unique_ptr<Interrupts>> Interrupts::make() {
  std::unique_ptr<Interrupts> made(new Interrupts());
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  made->signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  if (made->signal_fd_ >= 0) made->stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (made->signal_fd_ < 0 || made->stop_fd_ < 0) return system_error(errno, "cannot open a file descriptor for signals");
  CHORAL_TRY(made->thread_, start_thread("the thread that waits for Ctrl-C", [self = made.get()] { self->run(); }));
  return made;
}

Interrupts::~Interrupts() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    CHORAL_CHECK(write(stop_fd_, &one, sizeof one) == sizeof one, "the signal thread cannot be told to end");
    thread_.join();
  }
  if (signal_fd_ >= 0) close(signal_fd_);
  if (stop_fd_ >= 0) close(stop_fd_);
}

void Interrupts::run() {
  std::array<pollfd, 2> fds{{{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}}};
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof info) == sizeof info) handle(static_cast<int>(info.ssi_signo));
  }
}

void Interrupts::handle(int signal) {
  const std::lock_guard lock(mutex_);
  last_signal_ = signal;
  if (signal == SIGHUP && handler_.hang_up) return handler_.hang_up();
  if (!handler_.call || signal == SIGHUP || (signal == SIGTERM && handler_.only_ctrl_c)) {
    if (tidy_) tidy_();
    return end_by(signal);
  }
  handler_.call();
  if (!handler_.again) handler_.call = nullptr;
}

Status Interrupts::stopped() const {
  const std::lock_guard lock(mutex_);
  return cancelled("stopped by {}", last_signal_ == SIGTERM ? "SIGTERM" : "Ctrl-C");
}

Interrupts::Scope::Scope(Interrupts& owner, Handler handler) : owner_(owner) {
  const std::lock_guard lock(owner_.mutex_);
  outer_ = std::exchange(owner_.handler_, std::move(handler));
}

Interrupts::Scope::~Scope() {
  const std::lock_guard lock(owner_.mutex_);
  owner_.handler_ = std::move(outer_);
}

Interrupts::Tidying::Tidying(Interrupts& owner, std::function<void()> tidy) : owner_(owner) {
  const std::lock_guard lock(owner_.mutex_);
  owner_.tidy_ = std::move(tidy);
}

Interrupts::Tidying::~Tidying() {
  const std::lock_guard lock(owner_.mutex_);
  owner_.tidy_ = nullptr;
}

}  // namespace choral::apps
