#include "engine/adapter_residency.h"

#include <algorithm>

namespace choral::engine {
namespace {

using lora::MemoryRoom;
using lora::MemoryTier;
using sched::Residency;

EngineRequest& engine_request(sched::Request& request) { return static_cast<EngineRequest&>(request); }

// Where the last occurrence of `tokens` begins; -1 when there is none.
int32_t last_occurrence(std::span<const int32_t> text, std::span<const int32_t> tokens) {
  const auto found = std::find_end(text.begin(), text.end(), tokens.begin(), tokens.end());
  return found == text.end() ? -1 : static_cast<int32_t>(found - text.begin());
}

}  // namespace

AdapterResidency::AdapterResidency(AdapterRegistry& registry, lora::LoRAModelManager& manager, int64_t budget_bytes)
    : registry_(registry), manager_(manager), memory_({.host_bytes = budget_bytes}) {}

AdapterResidency::~AdapterResidency() {
  for (const auto& wish : pins_) registry_.answer_pin(wish, unavailable("the engine is shutting down"));
}

void AdapterResidency::take_changes() {
  registry_.take_loaded(loaded_);
  registry_.take_pins(pins_);
  const uint64_t retirements = registry_.retirements();
  if (retirements != seen_retirements_) {
    for (const auto& [id, content] : contents_) unnamed_.push_back(id);
    seen_retirements_ = retirements;
  }
  for (auto& loaded : loaded_) {
    take_in(loaded);
    settle_pins();  // before the next one takes its room
  }
  loaded_.clear();
  settle_pins();
  for (const int32_t id : unnamed_) forget_if_unnamed(id);
  unnamed_.clear();
}

void AdapterResidency::take_in(LoadedAdapter& loaded) {
  AdapterVersion& version = *loaded.version;
  if (version.content) version.content->loading = false;
  version.loading = false;
  ++loads_;
  if (!loaded.packed.ok()) return fail(version, std::move(loaded.packed).status());
  version.failure = {};
  if (version.older != nullptr && version.older->content != nullptr) unnamed_.push_back(version.older->content->id);
  version.older = nullptr;
  if (!version.content) {
    version.content = content_of(**loaded.packed);
    version.content->versions.push_back(loaded.version);
  }
  CHORAL_CHECK(version.content->digest == (*loaded.packed)->digest(), "a version of an adapter has one content");
  make_resident(version.content, std::move(*loaded.packed));
  unnamed_.push_back(version.content->id);  // its name may have gone meanwhile
}

std::shared_ptr<AdapterContent> AdapterResidency::content_of(const lora::PackedAdapter& packed) {
  const auto known = by_digest_.find(packed.digest());
  if (known != by_digest_.end()) return contents_.at(known->second);
  auto content = std::make_shared<AdapterContent>();
  content->id = next_id_++;
  content->digest = packed.digest();
  content->size_bytes = packed.size_bytes();
  content->replaces = packed.replaces();
  content->invocation_tokens.assign(packed.invocation_tokens().begin(), packed.invocation_tokens().end());
  memory_.reserve(content->id, content->size_bytes, MemoryTier::kDisk);
  contents_.emplace(content->id, content);
  by_digest_.emplace(content->digest, content->id);
  return content;
}

void AdapterResidency::make_resident(const std::shared_ptr<AdapterContent>& content,
                                     std::shared_ptr<const lora::PackedAdapter> packed) {
  if (content->packed == nullptr) {
    const auto answer = memory_.reserve(content->id, content->size_bytes);
    drop(answer);
    if (answer.ok()) {
      content->packed = std::move(packed);
      content->fresh = content->waiting > 0;
      if (content->fresh) memory_.acquire(content->id);
    }  // else it waits on disk until there is room: acquire() says so
  }
  publish(*content);
}

void AdapterResidency::fail(AdapterVersion& version, Status why) {
  registry_.update(version, [&](AdapterInfo& info) {
    info.state = AdapterState::kFailed;
    info.error = why.to_string();
  });
  version.failure = std::move(why);
  if (!version.content) return;
  unnamed_.push_back(version.content->id);
  may_be_stranded_ = true;
}

void AdapterResidency::drop(const lora::MemoryAnswer& answer) {
  for (const auto& eviction : answer.evictions) {
    if (eviction.from != MemoryTier::kHost) continue;
    auto& content = *contents_.at(eviction.id);
    content.packed = nullptr;
    publish(content);
  }
}

void AdapterResidency::settle_pins() {
  for (auto wish = pins_.begin(); wish != pins_.end();) wish = settle_pin(*wish) ? pins_.erase(wish) : wish + 1;
}

// Whether it is answered; else it waits for a load.
bool AdapterResidency::settle_pin(AdapterRegistry::PinWish& wish) {
  AdapterVersion& version = *wish.version;
  if (version.loading) wish.tried = true;
  // An unpin waits too: it may have come after a pin that does.
  if (version.loading || (version.content && version.content->loading)) return false;
  Status status;
  if (!wish.pinned || (version.content && version.content->packed != nullptr)) {
    status = pin_content(version, wish.pinned);
  } else if (wish.tried && !version.failure.ok()) {
    status = version.failure;
  } else {
    status = room_for(version);
    if (status.ok() && !wish.tried) {
      version.failure = {};  // a new try
      version.loading = wish.tried = true;
      registry_.request_load(wish.version);
      return false;
    }
    if (status.ok()) status = unavailable("adapter '{}' left memory before it could be pinned; try again", version.spec.name);
  }
  registry_.answer_pin(wish, status);
  if (version.content) unnamed_.push_back(version.content->id);  // its name may have gone while the wish held it
  return true;
}

Status AdapterResidency::pin_content(AdapterVersion& version, bool pinned) {
  version.pinned = false;
  if (version.content == nullptr) return {};
  const auto& content = *version.content;
  if (pinned) {
    const Status status = memory_.pin(content.id);
    if (!status.ok()) {
      return resource_exhausted(
          "adapter '{}' needs {} bytes, and {} of the budget for adapters ({}) may be pinned, {} of which are; raise "
          "--adapter-memory or unpin another",
          version.spec.name, content.size_bytes, memory_.pinnable_bytes(MemoryTier::kHost),
          memory_.budget_bytes(MemoryTier::kHost), memory_.pinned_bytes(MemoryTier::kHost));
    }
    version.pinned = true;
    return {};
  }
  const bool pinned_elsewhere = std::any_of(content.versions.begin(), content.versions.end(), [](const auto& weak) {
    const auto other = weak.lock();
    return other != nullptr && other->pinned;
  });
  if (!pinned_elsewhere) memory_.unpin(content.id);
  return {};
}

// Whether its content can come to memory now; before its first load nobody knows.
Status AdapterResidency::room_for(const AdapterVersion& version) const {
  if (version.content == nullptr) return {};
  const int64_t bytes = version.content->size_bytes, budget = memory_.budget_bytes(MemoryTier::kHost);
  switch (memory_.ask(version.content->id, bytes).room) {
    case MemoryRoom::kFits:
    case MemoryRoom::kFitsAfterEviction: return {};
    case MemoryRoom::kTooLarge:
      return too_large("adapter '{}' needs {} bytes in memory, the budget for adapters has {}; raise --adapter-memory",
                       version.spec.name, bytes, budget);
    case MemoryRoom::kNoRoom: break;
  }
  return resource_exhausted(
      "adapter '{}' needs {} bytes in memory, and what fills the budget for adapters ({}) is in use or pinned; raise "
      "--adapter-memory, unpin another or try again later",
      version.spec.name, bytes, budget);
}

AdapterResidency::Arrival AdapterResidency::arrive(EngineRequest& request) {
  if (request.adapters.empty()) return Arrival::kKnown;
  bool known = true;
  for (auto& use : request.adapters) {
    if (!request.parked && use.version->older == nullptr) use.version->failure = {};  // a new request is a new try
    request.adapter_status = choose_version(use);
    if (!request.adapter_status.ok()) return Arrival::kFailed;
    AdapterVersion& version = *use.version;
    if (version.content) continue;
    known = false;
    if (version.loading) continue;
    version.loading = true;
    registry_.request_load(use.version);
  }
  request.parked = !known;
  if (!known) return Arrival::kWaiting;
  return join_voice(request) ? Arrival::kKnown : Arrival::kFailed;
}

bool AdapterResidency::join_voice(EngineRequest& request) {
  VoiceKey key;
  std::vector<RequestVoice::Term> terms;
  std::vector<cache::AdapterIdentity> identities;
  int32_t activation = 0;
  for (const auto& use : request.adapters) {
    const auto& content = use.version->content;
    if (content->replaces && (request.adapters.size() > 1 || use.scale != 1.0F)) {
      request.adapter_status = invalid_argument(
          "adapter '{}' replaces whole weights (modules_to_save, trainable tokens), so it cannot be mixed or scaled; use it "
          "alone "
          "with scale 1",
          use.version->spec.name);
      return false;
    }
    if (!content->invocation_tokens.empty()) {
      if (request.adapters.size() > 1) {
        request.adapter_status = invalid_argument(
            "adapter '{}' is activated by tokens of the prompt, so it cannot be mixed; use it alone", use.version->spec.name);
        return false;
      }
      activation = last_occurrence(request.tokens, content->invocation_tokens);
      if (activation < 0) return true;  // never invoked: the base answers, as PEFT has it
    }
    key.emplace_back(content->id, use.scale);
    terms.push_back({content, use.scale});
    identities.push_back({content->digest, use.scale});
  }
  auto& voice = voices_.try_emplace(key).first->second;
  if (voice.requests++ == 0) {
    voice.terms = std::move(terms);
    voice.key = key.size() == 1 && key.front().second == 1.0F ? key.front().first : next_id_++;
  }
  for (size_t i = 0; i < voice.terms.size(); ++i) {
    auto& content = *voice.terms[i].content;
    ++content.waiting;
    // Dropped since its last use: it may come back while the request waits its turn.
    if (content.packed != nullptr || content.loading || !memory_.ask(content.id, content.size_bytes).ok()) continue;
    content.loading = true;
    registry_.request_load(request.adapters[i].version);
  }
  request.voice = &voice;
  request.adapter_key = voice.key;
  request.activation_token = activation;
  const auto root = cache::make_prefix_root(identities, request.cache_salt);
  (activation > 0 ? request.activated_root : request.prefix_root) = root;
  return true;
}

void AdapterResidency::leave(EngineRequest& request) {
  RequestVoice* voice = request.voice;
  if (voice == nullptr) return;
  request.voice = nullptr;
  for (const auto& term : voice->terms) {
    if (!request.held_adapter) --term.content->waiting;
    settle_fresh(*term.content);
    unnamed_.push_back(term.content->id);  // maybe its last user, of a version that has no name
  }
  if (--voice->requests > 0) return;
  VoiceKey key;
  for (const auto& term : voice->terms) key.emplace_back(term.content->id, term.factor);
  voices_.erase(key);
}

Residency AdapterResidency::acquire(sched::Request& scheduled) {
  EngineRequest& request = engine_request(scheduled);
  RequestVoice& voice = *request.voice;
  const Residency answer = gather(voice, request);
  if (answer != Residency::kResident) return answer;
  if (voice.holders == 0) {
    lora::Voice weights;
    for (const auto& term : voice.terms) weights.push_back({term.content->packed, term.factor});
    request.adapter_status = manager_.add_adapter(voice.key, std::move(weights));
    if (!request.adapter_status.ok()) return Residency::kFailed;
  }
  ++voice.holders;
  request.held_adapter = true;
  for (const auto& term : voice.terms) {
    memory_.acquire(term.content->id);
    --term.content->waiting;
    if (term.content->fresh) {
      term.content->fresh = false;
      memory_.release(term.content->id);
    }
    publish(*term.content);
  }
  return Residency::kResident;
}

// kResident when all of the voice is in memory; else asks for what is missing, one after the other.
Residency AdapterResidency::gather(RequestVoice& voice, EngineRequest& request) {
  AdapterContent* missing = nullptr;
  int64_t missing_bytes = 0, all_bytes = 0;
  for (const auto& term : voice.terms) {
    all_bytes += term.content->size_bytes;
    if (term.content->packed != nullptr) continue;
    if (term.content->loading) return Residency::kLoading;
    missing = term.content.get();
    missing_bytes += missing->size_bytes;
  }
  if (missing == nullptr) return Residency::kResident;
  const int64_t usable = memory_.budget_bytes(MemoryTier::kHost) - pinned_bytes_of_others(voice);
  if (all_bytes > usable) {
    request.adapter_status = too_large(
        "its adapters need {} bytes in memory, but {} of the budget for adapters ({}) are not pinned for others; raise "
        "--adapter-memory or unpin some",
        all_bytes, usable, memory_.budget_bytes(MemoryTier::kHost));
    return Residency::kFailed;
  }
  // Whoever waited longest goes first: what was loaded for others and not taken yet may leave for it.
  if (request.promoted && !memory_.ask(missing->id, missing_bytes).ok()) release_fresh_of_others(voice);
  if (!memory_.ask(missing->id, missing_bytes).ok()) return Residency::kNoRoom;
  return load_for(*missing, request);
}

int64_t AdapterResidency::pinned_bytes_of_others(const RequestVoice& voice) const {
  int64_t bytes = memory_.pinned_bytes(MemoryTier::kHost);
  for (const auto& term : voice.terms) {
    const auto* record = memory_.find(term.content->id);
    if (record->pinned && record->on(MemoryTier::kHost)) bytes -= term.content->size_bytes;
  }
  return bytes;
}

void AdapterResidency::release_fresh_of_others(const RequestVoice& voice) {
  for (const auto& [id, content] : contents_) {
    const bool own = std::any_of(voice.terms.begin(), voice.terms.end(), [&](const auto& t) { return t.content == content; });
    if (own || !content->fresh) continue;
    content->fresh = false;
    memory_.release(id);
  }
}

Residency AdapterResidency::load_for(AdapterContent& content, EngineRequest& request) {
  // Any version with this content will do; the request's own is alive.
  for (const auto& use : request.adapters) {
    if (use.version->content.get() != &content) continue;
    if (!use.version->failure.ok()) {
      request.adapter_status = use.version->failure;
      return Residency::kFailed;
    }
    content.loading = true;
    registry_.request_load(use.version);
    return Residency::kLoading;
  }
  request.adapter_status = internal_error("a request holds no version of its adapter");
  return Residency::kFailed;
}

void AdapterResidency::release(sched::Request& scheduled) {
  RequestVoice& voice = *engine_request(scheduled).voice;
  for (const auto& term : voice.terms) {
    memory_.release(term.content->id);
    publish(*term.content);
  }
  if (--voice.holders == 0) manager_.remove_adapter(voice.key);
}

// Nobody waits for it any more: it may be dropped like the others.
void AdapterResidency::settle_fresh(AdapterContent& content) {
  if (!content.fresh || content.waiting > 0) return;
  content.fresh = false;
  memory_.release(content.id);
}

void AdapterResidency::forget_if_unnamed(int32_t id) {
  const auto found = contents_.find(id);
  if (found == contents_.end()) return;
  auto& content = *found->second;
  std::erase_if(content.versions, [](const auto& version) { return version.expired(); });
  const auto* record = memory_.find(id);
  if (!content.versions.empty() || content.loading || content.waiting > 0 || record->in_use > 0) return;
  memory_.unpin(id);
  const Status removed = memory_.remove(id);
  CHORAL_CHECK(removed.ok(), removed.message());
  by_digest_.erase(content.digest);
  contents_.erase(found);
}

void AdapterResidency::publish(const AdapterContent& content) {
  const int holders = memory_.find(content.id)->in_use - (content.fresh ? 1 : 0);
  for (const auto& weak : content.versions) {
    const auto version = weak.lock();
    if (version == nullptr) continue;
    registry_.update(*version, [&](AdapterInfo& info) {
      info.state = content.packed != nullptr ? AdapterState::kResident : AdapterState::kOnDisk;
      info.digest = to_hex(content.digest);
      info.size_bytes = content.size_bytes;
      info.in_use = holders;
      if (content.packed != nullptr) info.rank = static_cast<int>(content.packed->rank());
    });
  }
}

}  // namespace choral::engine
