// A second stack to run on: the thread that enters a fiber goes on where the fiber left, until it leaves again. x86-64 only.
#pragma once

#include <cstddef>
#include <functional>

namespace cuda_emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // `body` runs from the next enter() on. A fiber whose body has ended may be started anew.
  void start(std::function<void()> body);
  void enter();  // from outside
  void leave();  // from within

 private:
  static void run(Fiber* self);

  unsigned char* stack_;
  void* inside_ = nullptr;  // stack pointers of the two sides
  void* outside_ = nullptr;
  std::function<void()> body_;
  void* fake_stack_ = nullptr;  // of AddressSanitizer, as the next three
  void* outer_fake_stack_ = nullptr;
  const void* outer_stack_ = nullptr;
  size_t outer_size_ = 0;
};

// The process's fiber number i, which is kept for the next block.
Fiber& fiber_at(size_t i);

// Under AddressSanitizer, [begin, begin + bytes) may not be touched.
void guard_from(void* begin, size_t bytes);
void unguard(void* begin, size_t bytes);

}  // namespace cuda_emulation
