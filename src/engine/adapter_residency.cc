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

// By one of its names.
bool is_pinned(const AdapterContent& content) {
  return std::any_of(content.versions.begin(), content.versions.end(), [](const auto& weak) {
    const auto version = weak.lock();
    return version != nullptr && version->pinned;
  });
}

}  // namespace

AdapterResidency::AdapterResidency(AdapterRegistry& registry, Executor& executor, int64_t budget_bytes)
    : registry_(registry), executor_(executor), memory_(budget_bytes) {}

AdapterResidency::~AdapterResidency() {
  for (const auto& wish : pins_) registry_.answer_pin(wish, unavailable("the engine is shutting down"));
}

bool AdapterResidency::take_changes() {
  registry_.take_pins(pins_);  // first, so that no load that was asked for with a wish comes after it
  registry_.take_loaded(loaded_);
  const uint64_t retirements = registry_.retirements();
  if (retirements != seen_retirements_) {
    for (const auto& [id, content] : contents_) unnamed_.push_back(id);
    seen_retirements_ = retirements;
  }
  for (auto& loaded : loaded_) {
    take_in(loaded);
    settle_pins();  // before the next one takes its room
  }
  const bool any = !loaded_.empty();
  loaded_.clear();
  settle_pins();
  for (const int32_t id : unnamed_) forget_if_unnamed(id);
  unnamed_.clear();
  return any;
}

void AdapterResidency::take_in(LoadedAdapter& loaded) {
  AdapterVersion& version = *loaded.version;
  version.loading = false;
  ++loads_;
  if (!loaded.packed.ok()) return fail(version, std::move(loaded.packed).status());
  look_at_contents(version);
  version.older = nullptr;
  if (!version.content) {
    version.content = content_of(**loaded.packed);
    version.content->versions.push_back(loaded.version);
  }
  CHORAL_CHECK(version.content->digest == (*loaded.packed)->digest(), "a version of an adapter has one content");
  version.failure = {};
  make_resident(version.content, std::move(*loaded.packed));
  unnamed_.push_back(version.content->id);  // whoever wanted it, or its name, may have gone while it was loaded
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
  memory_.add(content->id, content->size_bytes);
  contents_.emplace(content->id, content);
  by_digest_.emplace(content->digest, content->id);
  return content;
}

void AdapterResidency::make_resident(const std::shared_ptr<AdapterContent>& content,
                                     std::shared_ptr<const lora::PackedAdapter> packed) {
  // Else it waits on disk until there is room: acquire() says so.
  if (memory_.arrive(content->id) && content->packed == nullptr) content->packed = std::move(packed);
  carry_out(nullptr);
  publish(*content);
}

// It may have been the last to hold its content, or its predecessor's.
void AdapterResidency::look_at_contents(const AdapterVersion& version) {
  if (version.content) unnamed_.push_back(version.content->id);
  if (version.older && version.older->content) unnamed_.push_back(version.older->content->id);
}

void AdapterResidency::fail(AdapterVersion& version, Status why) {
  registry_.update(version, [&](AdapterInfo& info) {
    info.state = AdapterState::kFailed;
    info.error = why.to_string();
  });
  version.failure = std::move(why);
  ++version.failures;
  look_at_contents(version);
  if (!version.content) return;
  memory_.fail(version.content->id);
  may_be_stranded_ = true;
}

// What the memory decided: weights to drop, and loads, all of which are of adapters of `request`.
void AdapterResidency::carry_out(const EngineRequest* request) {
  memory_.take_decisions(loads_wanted_, drops_wanted_);
  for (const int32_t id : drops_wanted_) {
    auto& content = *contents_.at(id);
    content.packed = nullptr;
    publish(content);
  }
  for (const int32_t id : loads_wanted_) {
    // Any version with this content will do; the request's own is alive.
    const auto use = std::find_if(request->adapters.begin(), request->adapters.end(),
                                  [id](const auto& candidate) { return candidate.version->content->id == id; });
    CHORAL_CHECK(use != request->adapters.end(), "a request holds no version of its adapter");
    registry_.request_load(use->version);
  }
  loads_wanted_.clear();
  drops_wanted_.clear();
}

void AdapterResidency::settle_pins() {
  for (auto wish = pins_.begin(); wish != pins_.end();) wish = settle_pin(*wish) ? pins_.erase(wish) : wish + 1;
}

// Whether it is answered; else it waits for a load.
bool AdapterResidency::settle_pin(AdapterRegistry::PinWish& wish) {
  AdapterVersion& version = *wish.version;
  if (version.loading) wish.tried = true;
  // An unpin waits too: it may have come after a pin that does.
  if (version.loading || (version.content && memory_.loading(version.content->id))) return false;
  Status status;
  if (!wish.pinned || (version.content && version.content->packed != nullptr)) {
    status = pin_content(version, wish.pinned);
  } else if ((wish.tried || version.failures > wish.failures_before) && !version.failure.ok()) {
    status = version.failure;
  } else {
    status = room_for(version);
    if (status.ok() && !wish.tried) {
      registry_.request_load(wish.version);
      version.loading = wish.tried = true;
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
          version.spec.name, content.size_bytes, memory_.tiers().pinnable_bytes(MemoryTier::kHost), budget_bytes(),
          memory_.tiers().pinned_bytes(MemoryTier::kHost));
    }
    version.pinned = true;
    return {};
  }
  if (!is_pinned(content)) memory_.unpin(content.id);
  return {};
}

// Whether its content can come to memory now; before its first load nobody knows.
Status AdapterResidency::room_for(const AdapterVersion& version) const {
  if (version.content == nullptr) return {};
  const int64_t bytes = version.content->size_bytes, budget = budget_bytes();
  switch (memory_.tiers().ask(version.content->id, bytes).room) {
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
    request.adapter_status = choose_version(use);
    if (!request.adapter_status.ok()) return Arrival::kFailed;
    AdapterVersion& version = *use.version;
    if (version.content) continue;
    known = false;
    if (version.loading) continue;
    registry_.request_load(use.version);
    version.loading = true;
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
  RequestVoice& voice = open_voice(key, std::move(terms));
  request.adapter_key = voice.key;
  request.adapter_ids = voice.adapters;
  request.activation_token = activation;
  memory_.join(voice.key, voice.adapters);
  request.voice = &voice;
  memory_.prefetch(voice.key);  // dropped since their last use: they may come back while the request waits its turn
  carry_out(&request);
  const auto root = cache::make_prefix_root(identities, request.cache_salt);
  (activation > 0 ? request.activated_root : request.prefix_root) = root;
  return true;
}

RequestVoice& AdapterResidency::open_voice(const VoiceKey& key, std::vector<RequestVoice::Term> terms) {
  RequestVoice& voice = voices_.try_emplace(key).first->second;
  if (voice.requests > 0) {
    ++voice.requests;
    return voice;
  }
  voice.adapters.clear();
  voice.terms = std::move(terms);
  for (const auto& term : voice.terms) {
    const int32_t id = term.content->id;
    if (std::find(voice.adapters.begin(), voice.adapters.end(), id) == voice.adapters.end()) voice.adapters.push_back(id);
  }
  if (key.size() == 1 && key.front().second == 1.0F) {
    voice.key = key.front().first;
  } else if (free_keys_.empty()) {
    voice.key = next_id_++;
  } else {
    voice.key = free_keys_.back();  // every request may bring another factor, and keys are not without end
    free_keys_.pop_back();
  }
  voice.requests = 1;
  return voice;
}

void AdapterResidency::close_voice(const RequestVoice& voice) {
  VoiceKey key;
  for (const auto& term : voice.terms) key.emplace_back(term.content->id, term.factor);
  if (voice.key != key.front().first) free_keys_.push_back(voice.key);
  voices_.erase(key);
}

void AdapterResidency::leave(EngineRequest& request) {
  for (const auto& use : request.adapters) {
    look_at_contents(*use.version);  // maybe its last user, of a version without name
  }
  RequestVoice* voice = request.voice;
  if (voice == nullptr) return;
  request.voice = nullptr;
  if (!request.held_adapter) memory_.leave(voice->key);
  if (--voice->requests == 0) close_voice(*voice);
}

Residency AdapterResidency::acquire(sched::Request& scheduled) {
  EngineRequest& request = engine_request(scheduled);
  RequestVoice& voice = *request.voice;
  request.adapter_status = failure_of(request);
  if (!request.adapter_status.ok()) return Residency::kFailed;
  const Residency answer = memory_.acquire(voice.key, request.promoted);
  carry_out(&request);
  if (answer == Residency::kFailed) {
    request.adapter_status = too_large(
        "its adapters need {} bytes in memory, but {} of the budget for adapters ({}) are not pinned for others; raise "
        "--adapter-memory or unpin some",
        memory_.needed_bytes(voice.key), memory_.usable_bytes(voice.key), budget_bytes());
  }
  if (answer != Residency::kResident) return answer;
  request.held_adapter = true;
  if (voice.holders == 0) {
    lora::Voice weights;
    for (const auto& term : voice.terms) weights.push_back({term.content->packed, term.factor});
    request.adapter_status = executor_.add_adapter(voice.key, std::move(weights));
    if (!request.adapter_status.ok()) {
      memory_.release(voice.key);
      return Residency::kFailed;
    }
  }
  ++voice.holders;
  for (const auto& term : voice.terms) publish(*term.content);
  return Residency::kResident;
}

// Why what is missing cannot be loaded: the files turned bad while the request waited. Somebody's new try under way changes
// nothing, or under many requests for a bad file each would wait for the next one's.
Status AdapterResidency::failure_of(const EngineRequest& request) const {
  for (const auto& use : request.adapters) {
    if (use.failed() && !memory_.resident(use.version->content->id)) return use.version->failure;
  }
  return {};
}

void AdapterResidency::release(sched::Request& scheduled) {
  RequestVoice& voice = *engine_request(scheduled).voice;
  memory_.release(voice.key);
  for (const auto& term : voice.terms) publish(*term.content);
  if (--voice.holders == 0) executor_.remove_adapter(voice.key);
}

void AdapterResidency::forget_if_unnamed(int32_t id) {
  const auto found = contents_.find(id);
  if (found == contents_.end()) return;
  auto& content = *found->second;
  std::erase_if(content.versions, [](const auto& version) { return version.expired(); });
  if (!is_pinned(content)) memory_.unpin(id);  // a pin may have been granted to a name that had gone
  // A live request and a load each keep a version.
  if (!content.versions.empty()) return;
  memory_.remove(id);
  by_digest_.erase(content.digest);
  contents_.erase(found);
}

void AdapterResidency::publish(const AdapterContent& content) {
  const int holders = memory_.holders(content.id);
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
