#include "block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "fiber.h"

namespace cuda_emulation {

Thread* current_thread = nullptr;
Block* current_block = nullptr;

struct Warp {
  int first_thread = 0;
  Meeting what = nullptr;
  int arrived = 0;
  uint32_t meetings = 0;
  void* operands[kWarpLanes] = {};
};

namespace {

struct Copy {
  void* to;
  const void* from;
  int bytes, valid, group;
};

struct State : Thread {
  const uint32_t* waits_for = nullptr;  // it may go on when this is no longer
  uint32_t seen = 0;
  const char* at = "";
  bool done = false;
  std::vector<Copy> copies;
  int group = 0;
  bool hides_copies = false;
  bool waited = false;
};

std::vector<State> states;
std::vector<Warp> warps;
int barrier_arrived = 0;
uint32_t barriers = 0;

State& self() { return static_cast<State&>(*current_thread); }

void start_threads(const std::function<void()>& body) {
  const dim3& t = current_block->threads;
  barrier_arrived = 0;
  current_block->barriers.reset();
  for (size_t i = 0; i < warps.size(); ++i) warps[i] = Warp{.first_thread = static_cast<int>(i) * kWarpLanes};
  for (size_t i = 0; i < states.size(); ++i) {
    State& s = states[i];
    const auto n = static_cast<unsigned>(i);
    s.index = {n % t.x, n / t.x % t.y, n / (t.x * t.y)};
    s.lane = static_cast<int>(i % kWarpLanes);
    s.warp = &warps[i / kWarpLanes];
    s.fiber = &fiber_at(i);
    s.done = false;
    s.copies.clear();
    s.group = 0;
    s.hides_copies = false;
    s.waited = false;
    s.products.reset();
    s.fiber->start([&s, &body] {
      body();
      s.done = true;
    });
  }
}

void report_stuck() {
  for (const State& s : states) {
    if (!s.done && s.lane == 0) std::fprintf(stderr, "  warp %d waits at %s\n", s.warp->first_thread / kWarpLanes, s.at);
  }
  fail("threads wait for others that never come: a barrier or a warp's operation in code that not all of them run");
}

// Enters the thread, unless it waits.
bool goes_on(State& s) {
  if (s.done || (s.waits_for != nullptr && *s.waits_for == s.seen)) return false;
  current_thread = &s;
  s.fiber->enter();
  return true;
}

// A warp goes on for as long as it can: its threads' stacks are close at hand then.
void run_block(const std::function<void()>& body) {
  start_threads(body);
  size_t left = states.size();
  while (left > 0) {
    bool moved = false;
    for (size_t first = 0; first < states.size(); first += kWarpLanes) {
      for (bool again = true; again; moved = moved || again) {
        again = false;
        for (State& s : std::span(states).subspan(first, kWarpLanes)) {
          if (!goes_on(s)) continue;
          again = true;
          left -= s.done ? 1 : 0;
        }
      }
    }
    if (!moved) report_stuck();
  }
  current_thread = nullptr;
}

}  // namespace

void fail(const char* what) {
  const Block& b = *current_block;
  std::fprintf(stderr, "emulated kernel, block (%u, %u, %u): %s\n", b.index.x, b.index.y, b.index.z, what);
  std::abort();
}

void run_grid(dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()>& body) {
  const size_t count = size_t{threads.x} * threads.y * threads.z;
  Block block{.threads = threads, .blocks = blocks, .shared_bytes = shared_bytes, .barriers = nullptr};
  current_block = &block;
  if (count == 0 || count > 1024 || count % kWarpLanes != 0) fail("a block has 1 to 32 whole warps");
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.y > 65535 || blocks.z > 65535) fail("a grid of impossible size");
  states.assign(count, {});
  warps.assign(count / kWarpLanes, {});
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        block.index = {x, y, z};
        const std::unique_ptr<unsigned char, void (*)(void*)> shared(
            static_cast<unsigned char*>(std::aligned_alloc(128, (shared_bytes + 128) / 128 * 128)),
            [](void* memory) { std::free(memory); });
        std::memset(shared.get(), 0xff, (shared_bytes + 128) / 128 * 128);
        guard_from(shared.get() + shared_bytes, (shared_bytes + 128) / 128 * 128 - shared_bytes);
        block.shared = shared.get();
        run_block(body);
        unguard(shared.get() + shared_bytes, (shared_bytes + 128) / 128 * 128 - shared_bytes);
      }
    }
  }
  current_block = nullptr;
}

void wait_while(const uint32_t* word, const char* at) {
  State& me = self();
  me.waits_for = word;
  me.seen = *word;
  me.at = at;
  me.fiber->leave();
  me.waits_for = nullptr;
}

void barrier() {
  if (++barrier_arrived == static_cast<int>(states.size())) {
    barrier_arrived = 0;
    ++barriers;
    return;
  }
  wait_while(&barriers, "__syncthreads");
}

void meet(Meeting what, void* operand) {
  Warp& warp = *current_thread->warp;
  if (warp.arrived == 0) warp.what = what;
  if (warp.what != what) fail("lanes of a warp meet in different operations");
  warp.operands[current_thread->lane] = operand;
  if (++warp.arrived < kWarpLanes) return wait_while(&warp.meetings, "an operation of the warp");
  warp.arrived = 0;
  what(warp.operands);
  ++warp.meetings;
}

void copy_async(void* to, const void* from, int bytes, int valid) {
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || (valid > 0 && reinterpret_cast<uintptr_t>(from) % bytes != 0)) {
    fail("cp.async of an address that is no multiple of its size");
  }
  State& me = self();
  std::memset(to, 0xff, bytes);
  me.copies.push_back({to, from, bytes, valid, me.group});
}

void commit_copies() { ++self().group; }

void wait_copies(int groups_left) {
  State& me = self();
  const auto later =
      std::find_if(me.copies.begin(), me.copies.end(), [&](const Copy& copy) { return copy.group >= me.group - groups_left; });
  for (auto copy = me.copies.begin(); copy != later; ++copy) {
    std::memset(copy->to, 0, copy->bytes);
    if (copy->valid > 0) std::memcpy(copy->to, copy->from, copy->valid);
  }
  me.hides_copies = me.hides_copies || later != me.copies.begin();
  me.copies.erase(me.copies.begin(), later);
}

void wait_for_earlier_kernels() { self().waited = true; }
void expect_waited() {
  if (!self().waited) fail("the kernel does not wait for those before it");
}

void show_copies() { self().hides_copies = false; }

void expect_copies_shown() {
  if (std::any_of(states.begin(), states.end(), [](const State& s) { return s.hides_copies; })) {
    fail("wgmma while copies to shared memory were waited for without fence.proxy.async behind it");
  }
}

}  // namespace cuda_emulation
