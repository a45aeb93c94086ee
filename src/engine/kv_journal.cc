#include "engine/kv_journal.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "engine/engine_request.h"

namespace choral::engine {
namespace {

// The end of the key: key_in_group() changes its beginning.
uint64_t name_of(const cache::PrefixKey& key) {
  uint64_t name = 0;
  for (const uint8_t byte : std::span(key).last<sizeof(name)>()) name = name << 8 | byte;
  return name;
}

}  // namespace

KvJournal::KvJournal(const cache::KvPoolShape& pool, size_t most_batches)
    : block_tokens_(pool.block_tokens), windows_(pool.windows), most_batches_(most_batches), names_(pool.blocks) {}

void KvJournal::stored(const sched::Request& request, int32_t group, int32_t position, cache::BlockId block) noexcept {
  const uint64_t name = name_of(request.prefix_chain[position]);
  names_[block] = {name, group};
  try {
    add(request, group, position, name);
  } catch (const std::bad_alloc&) {
    has_lost_ = true;
  }
}

void KvJournal::add(const sched::Request& request, int32_t group, int32_t position, uint64_t name) {
  const bool is_adapted = position >= request.activation_token / block_tokens_;
  const bool begins_to_act = is_adapted && position == request.activation_token / block_tokens_;
  const bool goes_on = last_request_ == &request && last_position_ == position && !begins_to_act &&
                       std::get<KvBlocksStored>(batch_.events.back()).group == group;
  if (!goes_on) {
    const auto& named = static_cast<const EngineRequest&>(request);
    KvBlocksStored begun{.cache_salt = named.cache_salt, .group = group, .window = windows_[group]};
    if (position > 0) begun.parent = name_of(request.prefix_chain[position - 1]);
    for (const VersionUse& use : named.adapters) {
      if (is_adapted) begun.adapters.push_back({.name = use.version->request.lora_name, .scale = use.scale});
    }
    batch_.events.emplace_back(std::move(begun));
  }
  last_request_ = nullptr;
  auto& event = std::get<KvBlocksStored>(batch_.events.back());
  const auto tokens = std::span(request.tokens).subspan(size_t(position) * size_t(block_tokens_), size_t(block_tokens_));
  event.token_ids.insert(event.token_ids.end(), tokens.begin(), tokens.end());
  event.blocks.push_back(name);
  last_request_ = &request;
  last_position_ = position + 1;
}

void KvJournal::evicted(cache::BlockId block) noexcept {
  const Named& named = names_[block];
  last_request_ = nullptr;
  try {
    auto* last = batch_.events.empty() ? nullptr : std::get_if<KvBlocksRemoved>(&batch_.events.back());
    if (last == nullptr || last->group != named.group) {
      batch_.events.emplace_back(KvBlocksRemoved{.group = named.group});
      last = &std::get<KvBlocksRemoved>(batch_.events.back());
    }
    last->blocks.push_back(named.name);
  } catch (const std::bad_alloc&) {
    has_lost_ = true;
  }
}

void KvJournal::end_batch() noexcept {
  last_request_ = nullptr;
  if (batch_.events.empty() && !has_lost_) return;
  const int64_t number = batch_.number;
  if (!std::exchange(has_lost_, false)) {
    try {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(batch_));
      if (waiting_.size() > most_batches_) waiting_.pop_front();
    } catch (const std::bad_alloc&) {
      // The number is missing, as it is where the oldest is dropped.
    }
    came_.notify_all();
  }
  batch_ = {.number = number + 1};
}

bool KvJournal::next(KvEventBatch& batch, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, limit, [&] { return !waiting_.empty(); })) return false;
  batch = std::move(waiting_.front());
  waiting_.pop_front();
  return true;
}

}  // namespace choral::engine
