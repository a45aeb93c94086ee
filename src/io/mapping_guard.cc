#include "io/mapping_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace choral::io {

// Entries are reused, and the handler may look at one that another thread just gives away or takes: an odd `version`, or one that
// changed meanwhile, says that begin and end do not belong together.
struct GuardedRange {
  std::atomic<bool> taken{true};
  std::atomic<uint32_t> version{0};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> torn{false};
  GuardedRange* next = nullptr;  // set before the entry is seen, never changed

  void set(uintptr_t new_begin, uintptr_t new_end) {
    version.fetch_add(1);
    begin.store(new_begin);
    end.store(new_end);
    version.fetch_add(1);
  }
};

namespace {

std::atomic<GuardedRange*> ranges{nullptr};
struct sigaction previous;  // written before the handler is installed
uintptr_t page_bytes = 4096;

// The handler's part. Only atomics and the bare system call: interceptors of mmap() may take locks.
bool patch(uintptr_t at) {
  for (GuardedRange* range = ranges.load(); range != nullptr; range = range->next) {
    const uint32_t version = range->version.load();
    const uintptr_t begin = range->begin.load(), end = range->end.load();
    if (version % 2 != 0 || range->version.load() != version || at < begin || at >= end) continue;
    range->torn.store(true);
    const uintptr_t page = at / page_bytes * page_bytes;
    const long mapped = ::syscall(SYS_mmap, page, (end - page + page_bytes - 1) / page_bytes * page_bytes, PROT_READ,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return mapped == static_cast<long>(page);
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_fault = info->si_code > 0;  // the kernel's, not kill()'s
  if (is_fault && patch(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = error;
    return;
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else if (is_fault || previous.sa_handler == SIG_DFL) {
    // As without this handler: a fault happens again once this returns, another signal is sent again; both end the process.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGBUS, &standard, nullptr);
    if (!is_fault) ::raise(signal);
  }
  errno = error;
}

void install_handler() {
  page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  ::sigaction(SIGBUS, nullptr, &previous);
  struct sigaction ours {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
}

GuardedRange* take_range() {
  for (GuardedRange* range = ranges.load(); range != nullptr; range = range->next) {
    bool taken = false;
    if (range->taken.compare_exchange_strong(taken, true)) return range;
  }
  auto* range = new GuardedRange();
  range->next = ranges.load();
  while (!ranges.compare_exchange_weak(range->next, range)) {
  }
  return range;
}

}  // namespace

MappingGuard::MappingGuard(std::span<const std::byte> mapping) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  if (mapping.empty()) return;
  range_ = take_range();
  range_->torn.store(false);
  const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  range_->set(begin, begin + mapping.size());
}

MappingGuard::~MappingGuard() {
  if (range_ == nullptr) return;
  range_->set(0, 0);
  range_->taken.store(false);
}

bool MappingGuard::torn() const { return range_ != nullptr && range_->torn.load(); }

}  // namespace choral::io
