#include "engine/adapters/file_facts.h"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/adapters/own_tokenizer.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/peft_helper.h"

namespace choral::engine {
namespace {

constexpr int64_t kMostTicksNs = 20'000'000;  // the slowest kernel clock ticks each 10 ms

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

void add(AdapterFacts& facts, const std::string& name, const std::string& path) {
  struct stat s {};
  if (stat(path.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return;
  facts.push_back({name, s.st_dev, s.st_ino, s.st_size, nanoseconds(s.st_mtim), nanoseconds(s.st_ctim)});
}

}  // namespace

AdapterFacts look_at_adapter(const std::string& path) {
  AdapterFacts facts;
  if (path.empty()) return facts;
  add(facts, "", path);
  if (!facts.empty()) return facts;
  for (const char* name : lora::adapter_file_names()) add(facts, name, path + "/" + name);
  if (facts.empty()) {
    if (const auto gguf = lora::gguf_adapter_path(path)) add(facts, gguf->filename().native(), gguf->native());
  }
  for (const auto& [name, most] : kTokenizerFiles) add(facts, name, path + "/" + name);
  return facts;
}

void wait_until_stamps_settle(const AdapterFacts& facts) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);  // the clock that stamps files
  int64_t wait_ns = 0;
  for (const auto& file : facts) wait_ns = std::max(wait_ns, file.changed_ns + kMostTicksNs - nanoseconds(now));
  if (wait_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(wait_ns, kMostTicksNs)));
}

}  // namespace choral::engine
