// Sleeping on a word until somebody says that it changed, several sleepers woken by one call: what std::atomic's wait and notify
// are made of, without their own spins and with a number to wake. Between threads of this process. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace choral {

// Returns when woken, when `word` is not `expected` to begin with, or for no reason at all.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected);
void futex_wake(const std::atomic<uint32_t>& word, int most);

}  // namespace choral
