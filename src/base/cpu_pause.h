// What a loop that waits for another thread does between two looks.
#pragma once

namespace choral {

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // about as long as x86's pause; yield does nothing on most
#endif
}

}  // namespace choral
