#include "sched/adapter_memory.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace choral::sched {

using lora::MemoryAmount;
using lora::MemoryUse;

namespace {

void add_one(MemoryAmount& amount, const lora::MemoryRecord& adapter) {
  amount.bytes += adapter.size_bytes;
  ++amount.adapters;
}

}  // namespace

AdapterMemory::AdapterMemory(int64_t budget_bytes, int64_t most_adapters) : book_({budget_bytes, most_adapters}) {}

Voice& AdapterMemory::join(std::vector<VoiceTerm> terms) {
  CHORAL_CHECK(!terms.empty(), "a voice without adapters is the base's");
  const auto [found, is_new] = voices_.try_emplace(std::move(terms));
  Voice& voice = found->second;
  if (is_new) {
    voice.terms = found->first;
    for (const auto& term : voice.terms) {
      if (std::find(voice.adapters.begin(), voice.adapters.end(), term.adapter) == voice.adapters.end())
        voice.adapters.push_back(term.adapter);
    }
    if (free_keys_.empty()) free_keys_.emplace_back(next_key_++);
    voice.key = free_keys_.back();
    free_keys_.pop_back();
  }
  ++voice.waiting;
  keep(voice);
  return voice;
}

void AdapterMemory::leave(Voice& voice) {
  CHORAL_CHECK(voice.waiting > 0, "a request leaves that does not wait for its adapters");
  if (--voice.waiting == 0) give_up_claim(voice);
  forget_if_empty(voice);
}

bool AdapterMemory::prefetch(Voice& voice) {
  if (voice.claimed || voice.holders > 0) return true;
  const MemoryAmount &budget = book_.budget(), &used = book_.used();
  const bool has_free_room = missing(voice).within({budget.bytes - used.bytes, budget.adapters - used.adapters});
  return has_free_room && claim(voice);
}

Residency AdapterMemory::acquire(Voice& voice) {
  voice.round = round_;
  voice.place = asked_++;
  const bool is_complete = complete(voice);
  if (!is_complete && !voice.claimed) {
    if (!needed(voice).within(usable(voice))) return Residency::kFailed;
    if (!claim(voice) && !claim_before_others(voice)) return Residency::kNoRoom;
  }
  if (!is_complete) return Residency::kLoading;
  for (const AdapterId adapter : voice.adapters) book_.acquire(adapter, MemoryUse::kRequest);
  give_up_claim(voice);
  --voice.waiting;
  ++voice.holders;
  return Residency::kResident;
}

void AdapterMemory::release(Voice& voice) {
  CHORAL_CHECK(voice.holders > 0, "adapters are released more often than acquired");
  for (const AdapterId adapter : voice.adapters) book_.release(adapter, MemoryUse::kRequest);
  --voice.holders;
  keep(voice);
  forget_if_empty(voice);
}

void AdapterMemory::hand_back(Voice& voice) {
  ++voice.waiting;
  release(voice);
}

bool AdapterMemory::arrive(AdapterId adapter) {
  const lora::MemoryRecord& known = book_.at(adapter);
  if (known.loading()) {
    book_.release(adapter, MemoryUse::kLoad);
  } else if (!known.has_room) {
    const auto answer = book_.allocate_adapter(adapter, known.size_bytes);
    if (!answer.ok()) return false;
    drop(answer);
  }
  for (auto& [terms, voice] : voices_) keep(voice);
  return true;
}

void AdapterMemory::fail(AdapterId adapter) {
  if (!loading(adapter)) return;
  for (auto& [terms, voice] : voices_) {
    if (std::find(voice.adapters.begin(), voice.adapters.end(), adapter) != voice.adapters.end()) give_up_claim(voice);
  }
  book_.release(adapter, MemoryUse::kLoad);
  book_.drop(adapter);
}

void AdapterMemory::take_decisions(std::vector<AdapterId>& loads, std::vector<AdapterId>& drops) {
  loads.insert(loads.end(), loads_.begin(), loads_.end());
  drops.insert(drops.end(), drops_.begin(), drops_.end());
  loads_.clear();
  drops_.clear();
}

MemoryAmount AdapterMemory::needed(const Voice& voice) const {
  MemoryAmount sum;
  for (const AdapterId adapter : voice.adapters) add_one(sum, book_.at(adapter));
  return sum;
}

MemoryAmount AdapterMemory::usable(const Voice& voice) const {
  MemoryAmount left{book_.budget().bytes - book_.pinned().bytes, book_.budget().adapters - book_.pinned().adapters};
  for (const AdapterId adapter : voice.adapters) {
    if (book_.at(adapter).pinned) add_one(left, book_.at(adapter));
  }
  return left;
}

bool AdapterMemory::complete(const Voice& voice) const {
  return std::all_of(voice.adapters.begin(), voice.adapters.end(), [&](AdapterId adapter) { return resident(adapter); });
}

MemoryAmount AdapterMemory::missing(const Voice& voice) const {
  MemoryAmount sum;
  for (const AdapterId adapter : voice.adapters) {
    if (!book_.at(adapter).has_room) add_one(sum, book_.at(adapter));
  }
  return sum;
}

// All or nothing: without room for all that is missing nobody is dropped and nothing is loaded.
bool AdapterMemory::claim(Voice& voice) {
  const auto answer = book_.make_room(missing(voice), voice.adapters);
  if (!answer.ok()) return false;
  drop(answer);
  for (const AdapterId adapter : voice.adapters) {
    if (!book_.at(adapter).has_room) {
      const auto room = book_.allocate_adapter(adapter, book_.at(adapter).size_bytes);
      CHORAL_CHECK(room.room == lora::MemoryRoom::kFits, "room for an adapter was miscounted");
      book_.acquire(adapter, MemoryUse::kLoad);  // whoever still wants it when that ends
      loads_.push_back(adapter);
    }
    book_.acquire(adapter, MemoryUse::kClaim);
  }
  set_claimed(voice, true);
  return true;
}

// Those who were not asked in this round come later. They give up their claims, the last of them first, so that its adapters are
// the first to go; who loses none of them has its claim back.
bool AdapterMemory::claim_before_others(Voice& voice) {
  later_.clear();
  std::copy_if(claims_.begin(), claims_.end(), std::back_inserter(later_), [this](const Voice* o) { return o->round != round_; });
  std::sort(later_.begin(), later_.end(),
            [](const Voice* a, const Voice* b) { return a->round != b->round ? a->round < b->round : a->place > b->place; });
  for (Voice* other : later_) give_up_claim(*other);
  const bool claimed = !later_.empty() && claim(voice);
  for (Voice* other : later_) keep(*other);
  return claimed;
}

// With adapters that are all in memory, whoever waits has a claim; held ones need none.
void AdapterMemory::keep(Voice& voice) {
  if (voice.waiting == 0 || voice.claimed || voice.holders > 0 || !complete(voice)) return;
  for (const AdapterId adapter : voice.adapters) book_.acquire(adapter, MemoryUse::kClaim);
  set_claimed(voice, true);
}

void AdapterMemory::give_up_claim(Voice& voice) {
  if (!voice.claimed) return;
  set_claimed(voice, false);
  for (const AdapterId adapter : voice.adapters) book_.release(adapter, MemoryUse::kClaim);
}

void AdapterMemory::set_claimed(Voice& voice, bool claimed) {
  if (voice.claimed == claimed) return;
  voice.claimed = claimed;
  if (claimed) {
    claims_.push_back(&voice);
  } else {
    claims_.erase(std::find(claims_.begin(), claims_.end(), &voice));
  }
}

void AdapterMemory::drop(const lora::MemoryAnswer& answer) {
  drops_.insert(drops_.end(), answer.evictions.begin(), answer.evictions.end());
}

void AdapterMemory::forget_if_empty(const Voice& voice) {
  if (voice.waiting > 0 || voice.holders > 0) return;
  free_keys_.push_back(voice.key);
  voices_.erase(voices_.find(voice.terms));
}

}  // namespace choral::sched
