#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define CHORAL_ASAN 1
#else
#define CHORAL_ASAN 0
#endif

// Saves what the callee must keep on this stack, goes on with what the other one kept.
extern "C" void choral_switch_stack(void** from, void* to);
asm(R"(
.text
.globl choral_switch_stack
.hidden choral_switch_stack
.type choral_switch_stack, @function
choral_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size choral_switch_stack, .-choral_switch_stack
.globl choral_begin_fiber
.hidden choral_begin_fiber
.type choral_begin_fiber, @function
choral_begin_fiber:
  movq %r12, %rdi
  callq *%r13
  ud2
.size choral_begin_fiber, .-choral_begin_fiber
)");
extern "C" void choral_begin_fiber();

namespace cuda_emulation {
namespace {
constexpr size_t kStackBytes = CHORAL_ASAN ? 256 << 10 : 64 << 10;
}

Fiber::Fiber() {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("no memory for an emulated thread's stack");
    std::abort();
  }
  stack_ = static_cast<unsigned char*>(memory);
}

Fiber::~Fiber() { munmap(stack_, kStackBytes); }

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  // Stacks lie a power of two apart. If all began at their end, the same lines of the processor's cache would be wanted for all.
  constexpr size_t kLine = 64, kLinesOfPage = 64;
  const size_t unused = (reinterpret_cast<uintptr_t>(stack_) / kStackBytes % kLinesOfPage + 1) * kLine;
  auto* top = reinterpret_cast<void**>(stack_ + kStackBytes - unused);
  *--top = nullptr;  // two words keep the stack aligned to 16 at the call
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&choral_begin_fiber);
  *--top = nullptr;                               // rbp
  *--top = nullptr;                               // rbx
  *--top = this;                                  // r12
  *--top = reinterpret_cast<void*>(&Fiber::run);  // r13
  *--top = nullptr;                               // r14
  *--top = nullptr;                               // r15
  inside_ = top;
#if CHORAL_ASAN
  fake_stack_ = nullptr;
  ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);
#endif
}

void Fiber::run(Fiber* self) {
#if CHORAL_ASAN
  __sanitizer_finish_switch_fiber(self->fake_stack_, &self->outer_stack_, &self->outer_size_);
#endif
  self->body_();
#if CHORAL_ASAN
  __sanitizer_start_switch_fiber(nullptr, self->outer_stack_, self->outer_size_);
#endif
  choral_switch_stack(&self->inside_, self->outside_);
}

void Fiber::enter() {
#if CHORAL_ASAN
  __sanitizer_start_switch_fiber(&outer_fake_stack_, stack_, kStackBytes);
#endif
  choral_switch_stack(&outside_, inside_);
#if CHORAL_ASAN
  __sanitizer_finish_switch_fiber(outer_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#if CHORAL_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, outer_stack_, outer_size_);
#endif
  choral_switch_stack(&inside_, outside_);
#if CHORAL_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &outer_stack_, &outer_size_);
#endif
}

Fiber& fiber_at(size_t i) {
  static std::vector<std::unique_ptr<Fiber>> fibers;
  while (fibers.size() <= i) fibers.push_back(std::make_unique<Fiber>());
  return *fibers[i];
}

void guard_from([[maybe_unused]] void* begin, [[maybe_unused]] size_t bytes) {
#if CHORAL_ASAN
  ASAN_POISON_MEMORY_REGION(begin, bytes);
#endif
}

void unguard([[maybe_unused]] void* begin, [[maybe_unused]] size_t bytes) {
#if CHORAL_ASAN
  ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
#endif
}

}  // namespace cuda_emulation
