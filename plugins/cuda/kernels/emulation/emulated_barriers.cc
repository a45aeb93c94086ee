#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "barriers.h"

namespace cuda_emulation {

struct CopyBarriers {
  struct Copy {
    unsigned char* to;
    const void* from;
    uint32_t bytes;
  };
  struct Barrier {
    uint32_t arrivals = 0, missing = 0, phase = 0;
    int64_t bytes = 0;  // expected and not there, or there and not yet expected
    std::vector<Copy> copies;

    void end_phase() {
      if (missing != 0 || bytes != 0) return;
      missing = arrivals;
      ++phase;
    }
  };
  std::map<uint32_t, Barrier> all;
  uint32_t events = 0;  // for those who wait
};

}  // namespace cuda_emulation

namespace choral_cuda {
namespace {

using cuda_emulation::CopyBarriers;
using cuda_emulation::current_block;
using cuda_emulation::fail;

CopyBarriers& of_block() {
  auto& barriers = current_block->barriers;
  if (barriers == nullptr) barriers = std::make_shared<CopyBarriers>();
  return *barriers;
}

CopyBarriers::Barrier& started(uint32_t address) {
  const auto found = of_block().all.find(address);
  if (found == of_block().all.end()) fail("a barrier of copies that was not started");
  ++of_block().events;
  return found->second;
}

}  // namespace

void start_barrier(uint32_t barrier, uint32_t arrivals) {
  if (barrier % kBarrierBytes != 0 || barrier + kBarrierBytes > current_block->shared_bytes) {
    fail("a barrier of copies beyond shared memory");
  }
  CopyBarriers::Barrier& b = of_block().all[barrier];
  b = {};
  b.arrivals = b.missing = arrivals;
}

void arrive_and_expect(uint32_t barrier, uint32_t bytes) {
  CopyBarriers::Barrier& b = started(barrier);
  if (b.missing == 0) fail("more arrivals at a barrier of copies than it counts");
  --b.missing;
  b.bytes += bytes;
  b.end_phase();
}

void arrive(uint32_t barrier) { arrive_and_expect(barrier, 0); }

void copy_bulk(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  if (shared % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0 || bytes % 16 != 0) {
    fail("cp.async.bulk of an address or a size that is no multiple of 16");
  }
  if (size_t{shared} + bytes > current_block->shared_bytes) fail("cp.async.bulk beyond shared memory");
  std::memset(current_block->shared + shared, 0xff, bytes);
  started(barrier).copies.push_back({current_block->shared + shared, global, bytes});
}

void wait_phase(uint32_t barrier, uint32_t parity) {
  CopyBarriers::Barrier& b = started(barrier);
  while (b.phase % 2 == parity) {
    for (const CopyBarriers::Copy& copy : b.copies) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      b.bytes -= copy.bytes;
    }
    if (!b.copies.empty()) {
      b.copies.clear();
      b.end_phase();
      continue;
    }
    cuda_emulation::wait_while(&of_block().events, "a barrier of copies");
  }
}

}  // namespace choral_cuda
