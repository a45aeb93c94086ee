#include "engine/spare_memory.h"

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

namespace choral::engine {
namespace {

constexpr size_t kBytes = size_t{1} << 20, kSmallChangeBytes = size_t{64} << 10;
constexpr std::chrono::milliseconds kPause{10};

thread_local SpareMemory* of_this_thread = nullptr;
thread_local SpareMemory* set_aside = nullptr;
std::atomic<std::new_handler> handler_before{nullptr};  // the application's

void find_memory() {
  if (of_this_thread != nullptr) return of_this_thread->relieve();
  if (const auto handler = handler_before.load()) return handler();
  throw std::bad_alloc();
}

void stand_behind_operator_new() { handler_before = std::set_new_handler(find_memory); }

}  // namespace

SpareMemory::Use::Use(SpareMemory* spare) : before_(of_this_thread), aside_before_(set_aside) {
  static const bool once = (stand_behind_operator_new(), true);
  (void)once;
  set_aside = of_thread();
  of_this_thread = spare;
}

SpareMemory::Use::~Use() {
  of_this_thread = before_;
  set_aside = aside_before_;
}

SpareMemory* SpareMemory::of_thread() { return of_this_thread != nullptr ? of_this_thread : set_aside; }

bool SpareMemory::keep() {
  const Use nobody(nullptr);
  if (held_ == nullptr) held_.reset(new (std::nothrow) char[kBytes]);
  return held_ != nullptr;
}

bool SpareMemory::is_any_left() {
  const Use nobody(nullptr);
  return std::unique_ptr<char[]>(new (std::nothrow) char[kSmallChangeBytes]) != nullptr;
}

void SpareMemory::relieve() {
  if (held_ != nullptr) return held_.reset();
  std::this_thread::sleep_for(kPause);
}

}  // namespace choral::engine
