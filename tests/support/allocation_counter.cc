#include "support/allocation_counter.h"

#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace choral::testing {
namespace {

// Plain atomics with constant initialisation: they work before main() and in every thread.
std::atomic<bool> counting{false};
std::atomic<bool> aborting{false};
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> frees{0};
std::atomic<int64_t> bytes{0};
std::atomic<size_t> largest{0};
std::atomic<size_t> failing_from{SIZE_MAX};
std::atomic<size_t> relief{SIZE_MAX};
std::atomic<int64_t> until_failure{0};  // operator news until the one that fails; 0: none shall, below: it did
thread_local bool spared = false;

bool fails(size_t size) {
  if (spared) return false;
  if (until_failure.load(std::memory_order_relaxed) > 0 && until_failure.fetch_sub(1) == 1) {
    until_failure = -1;
    return true;
  }
  return size >= failing_from.load(std::memory_order_relaxed);
}

void note_allocation(size_t size) {
  if (!counting.load(std::memory_order_relaxed)) return;
  if (aborting.load(std::memory_order_relaxed)) std::abort();
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
  size_t seen = largest.load(std::memory_order_relaxed);
  while (size > seen && !largest.compare_exchange_weak(seen, size, std::memory_order_relaxed)) {
  }
}

void* allocate(size_t size) noexcept {
  if (fails(size)) return nullptr;
  note_allocation(size);
  return std::malloc(size == 0 ? 1 : size);
}

void* allocate_aligned(size_t size, std::align_val_t alignment) noexcept {
  if (fails(size)) return nullptr;
  note_allocation(size);
  const auto align = static_cast<size_t>(alignment);
  const size_t rounded = (size + align - 1) / align * align;  // aligned_alloc wants a multiple
  return rounded < size ? nullptr : std::aligned_alloc(align, rounded == 0 ? align : rounded);
}

// The contract of operator new: the new_handler is asked for memory until there is some or it throws.
template <class Allocate>
void* allocate_with_handler(Allocate allocate) {
  for (;;) {
    if (void* p = allocate()) return p;
    const auto handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}
void* allocate_or_throw(size_t size) {
  return allocate_with_handler([&] { return allocate(size); });
}
void* allocate_or_throw(size_t size, std::align_val_t alignment) {
  return allocate_with_handler([&] { return allocate_aligned(size, alignment); });
}
template <class... Alignment>
void* allocate_or_null(size_t size, Alignment... alignment) noexcept {
  try {
    return allocate_or_throw(size, alignment...);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void release(void* p) noexcept {
  if (p != nullptr && counting.load(std::memory_order_relaxed)) frees.fetch_add(1, std::memory_order_relaxed);
  size_t enough = relief.load(std::memory_order_relaxed);
  if (enough != SIZE_MAX && malloc_usable_size(p) >= enough && relief.compare_exchange_strong(enough, SIZE_MAX)) {
    failing_from = enough;
  }
  std::free(p);
}

}  // namespace

void start_counting_allocations() {
  allocations = 0;
  frees = 0;
  bytes = 0;
  largest = 0;
  counting = true;
}

AllocationCount stop_counting_allocations() {
  counting = false;
  return {.allocations = allocations, .frees = frees, .bytes = bytes, .largest_bytes = largest};
}

void abort_on_allocation(bool enabled) { aborting = enabled; }

void fail_allocations_of_others_until(size_t least_bytes, size_t relief_bytes) {
  spared = true;
  relief = relief_bytes;  // first, or who finds no memory frees its spare too early
  failing_from = least_bytes;
}

void fail_nth_allocation(int64_t nth) {
  spared = false;
  until_failure = nth;
}

void fail_nth_allocation_of_others(int64_t nth) {
  spared = true;
  until_failure = nth;
}

bool stop_failing_nth_allocation() {
  spared = false;
  return until_failure.exchange(0) < 0;
}

void fail_allocations_of_others(size_t least_bytes) {
  spared = least_bytes > 0;
  relief = SIZE_MAX;
  failing_from = least_bytes > 0 ? least_bytes : SIZE_MAX;
}

}  // namespace choral::testing

namespace ct = choral::testing;

void* operator new(size_t size) { return ct::allocate_or_throw(size); }
void* operator new[](size_t size) { return ct::allocate_or_throw(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return ct::allocate_or_null(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return ct::allocate_or_null(size); }
void* operator new(size_t size, std::align_val_t a) { return ct::allocate_or_throw(size, a); }
void* operator new[](size_t size, std::align_val_t a) { return ct::allocate_or_throw(size, a); }
void* operator new(size_t size, std::align_val_t a, const std::nothrow_t&) noexcept { return ct::allocate_or_null(size, a); }
void* operator new[](size_t size, std::align_val_t a, const std::nothrow_t&) noexcept { return ct::allocate_or_null(size, a); }

void operator delete(void* p) noexcept { ct::release(p); }
void operator delete[](void* p) noexcept { ct::release(p); }
void operator delete(void* p, size_t) noexcept { ct::release(p); }
void operator delete[](void* p, size_t) noexcept { ct::release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { ct::release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { ct::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { ct::release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { ct::release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { ct::release(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { ct::release(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { ct::release(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { ct::release(p); }
