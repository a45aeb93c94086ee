#include "interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/check.h"

namespace choral::apps {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  const sigset_t set = watched();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  CHORAL_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0, "no file descriptors for signals");
  thread_ = std::thread([this] { run(); });
}

Interrupts::~Interrupts() {
  const uint64_t one = 1;
  CHORAL_CHECK(write(stop_fd_, &one, sizeof one) == sizeof one, "the signal thread cannot be told to end");
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
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
  if (!handler_.call || (signal == SIGTERM && handler_.only_ctrl_c)) return end_by(signal);
  handler_.call();
  if (!handler_.again) handler_.call = nullptr;
}

Interrupts::Scope::Scope(Interrupts& owner, Handler handler) : owner_(owner) {
  const std::lock_guard lock(owner_.mutex_);
  outer_ = std::exchange(owner_.handler_, std::move(handler));
}

Interrupts::Scope::~Scope() {
  const std::lock_guard lock(owner_.mutex_);
  owner_.handler_ = std::move(outer_);
}

}  // namespace choral::apps
