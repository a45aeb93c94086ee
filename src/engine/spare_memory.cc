#include "engine/spare_memory.h"

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

namespace choral::engine {
namespace {

constexpr size_t kBytes = size_t{1} << 20;
constexpr std::chrono::milliseconds kPause{10};

thread_local SpareMemory* of_this_thread = nullptr;
std::atomic<std::new_handler> handler_before{nullptr};  // the application's

void find_memory() {
  if (of_this_thread != nullptr) return of_this_thread->relieve();
  if (const auto handler = handler_before.load()) return handler();
  throw std::bad_alloc();
}

void stand_behind_operator_new() { handler_before = std::set_new_handler(find_memory); }

}  // namespace

SpareMemory::Use::Use(SpareMemory* spare) : before_(of_this_thread) {
  static const bool once = (stand_behind_operator_new(), true);
  (void)once;
  of_this_thread = spare;
}

SpareMemory::Use::~Use() { of_this_thread = before_; }

bool SpareMemory::keep() {
  const Use nobody(nullptr);
  if (held_ == nullptr) held_.reset(new (std::nothrow) char[kBytes]);
  return held_ != nullptr;
}

void SpareMemory::relieve() {
  if (held_ != nullptr) return held_.reset();
  std::this_thread::sleep_for(kPause);
}

}  // namespace choral::engine
