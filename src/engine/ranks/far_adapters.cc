#include "engine/ranks/far_adapters.h"

#include <algorithm>

#include "base/out_of_memory.h"
#include "base/thread.h"

namespace choral::engine {
namespace {

constexpr int kThreads = 2;  // as the engine's own loader has (adapters/adapter_loader.cc)

}  // namespace

Result<std::unique_ptr<FarAdapters>> FarAdapters::make(const ExecutorFacts& facts, lora::LoRALoadOptions options) {
  std::unique_ptr<FarAdapters> made(new FarAdapters(facts, std::move(options)));
  CHORAL_RETURN_IF_ERROR(made->start());
  return made;
}

Status FarAdapters::start() {
  CHORAL_TRY(pool_, ThreadPool::make(std::min(kThreads, ThreadPool::default_size())));
  CHORAL_TRY(session_, platform::cpu_platform().open(*pool_, {}));
  ctx_ = std::make_unique<platform::Context>(*session_, *pool_, facts_.cpu_level);
  // The first rank keeps the budget.
  loader_ = std::make_unique<lora::PackedAdapterLoader>(*ctx_, facts_.lora_targets, options_, /*budget_bytes=*/0);
  CHORAL_TRY(thread_, start_thread("the thread that reads adapters", [this] { run(); }));
  return {};
}

FarAdapters::~FarAdapters() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FarAdapters::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto entry = entries_.end();
    changed_.wait(lock, [&] {
      entry = std::find_if(entries_.begin(), entries_.end(), [](const Entry& e) { return !e.adapter; });
      return stop_ || entry != entries_.end();
    });
    if (stop_) return;
    const FarTerm term = entry->term;
    lock.unlock();
    auto adapter = or_out_of_memory("it cannot be loaded", [&] { return read(term); });
    lock.lock();
    entry->adapter.emplace(std::move(adapter).while_(fmt::format("adapter {}", term.path)));
    changed_.notify_all();
  }
}

Result<std::shared_ptr<const lora::PackedAdapter>> FarAdapters::read(const FarTerm& term) {
  ctx_->memory.reset();
  lora::AdapterDescription described;
  CHORAL_TRY(auto adapter, loader_->load(lora::AdapterSource(term.path), described, [](int64_t) { return Status(); }));
  if (adapter->digest() != term.digest || adapter->replaces() != term.replaces) {
    return invalid_argument("its files are others than those of rank 0; give every rank the same files");
  }
  return adapter;
}

std::list<FarAdapters::Entry>::iterator FarAdapters::entry_of(const FarTerm& term) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.term.digest == term.digest; });
  if (found != entries_.end()) return found;
  entries_.push_back({term});
  changed_.notify_all();
  return std::prev(entries_.end());
}

bool FarAdapters::prepare(const FarVoice& voice) {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (const FarTerm& term : voice.terms) all = entry_of(term)->adapter.has_value() && all;
  return all;
}

Result<lora::PackedVoice> FarAdapters::voice_of(const FarVoice& far) {
  std::unique_lock lock(mutex_);
  lora::PackedVoice voice;
  for (const FarTerm& term : far.terms) {
    const auto entry = entry_of(term);
    changed_.wait(lock, [&] { return entry->adapter.has_value(); });
    if (!entry->adapter->ok()) {
      Status why = entry->adapter->status();
      entries_.erase(entry);
      return why;
    }
    voice.push_back({**entry->adapter, term.factor});
    entries_.splice(entries_.end(), entries_, entry);
  }
  forget_unused();
  return voice;
}

// As long as they take more than the first rank lets them: its own are of the same size.
void FarAdapters::forget_unused() {
  const auto bytes_of = [](const Entry& e) { return e.adapter && e.adapter->ok() ? (**e.adapter)->size_bytes() : 0; };
  int64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += bytes_of(entry);
  for (auto at = entries_.begin(); at != entries_.end() && bytes > facts_.adapter_bytes;) {
    const bool stays = !at->adapter || (at->adapter->ok() && (**at->adapter).use_count() > 1);
    if (!stays) bytes -= bytes_of(*at);
    at = stays ? std::next(at) : entries_.erase(at);
  }
}

}  // namespace choral::engine
