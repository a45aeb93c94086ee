#include "engine/adapters/adapter_residency.h"

#include <algorithm>

#include "engine/spare_memory.h"

namespace choral::engine {
namespace {

using sched::Residency;

EngineRequest& engine_request(sched::Request& request) { return static_cast<EngineRequest&>(request); }

// Where the last occurrence of `tokens` begins; -1 when there is none.
int32_t last_occurrence(std::span<const int32_t> text, std::span<const int32_t> tokens) {
  const auto found = std::find_end(text.begin(), text.end(), tokens.begin(), tokens.end());
  return found == text.end() ? -1 : static_cast<int32_t>(found - text.begin());
}

}  // namespace

AdapterResidency::AdapterResidency(AdapterRegistry& registry, Executor& executor, int64_t budget_bytes, int64_t most_adapters)
    : registry_(registry), executor_(executor), memory_(budget_bytes, most_adapters) {}

AdapterResidency::~AdapterResidency() {
  for (const auto& wish : pins_.wishes()) registry_.answer_pin(wish, unavailable("the engine is shutting down"));
}

void AdapterResidency::take_changes(FunctionRef<void()> on_load) {
  executor_.take_adapters();
  registry_.take_pins(pins_.wishes());  // before the loads, so that no load that was asked for with a wish comes after it
  registry_.take_loaded(loaded_);
  for (auto& loaded : loaded_) {
    take_in(loaded);
    settle_pins();  // these two before the next one takes its room
    on_load();
  }
  loaded_.clear();
  settle_pins();
  drop_unnamed();
}

// Looks only at contents whose versions ended: until then, each has those that it had.
void AdapterResidency::drop_unnamed() {
  while (const auto content = registry_.take_ended_content()) {
    pins_.review(*content);
    // A live request and a load each keep a version.
    if (!contents_.review(*content)) memory_.remove(content->id);
  }
}

void AdapterResidency::settle_pins() {
  pins_.settle([this](const std::shared_ptr<AdapterVersion>& version) { registry_.request_load(version); },
               [this](const AdapterPins::Wish& wish, const Status& status) { registry_.answer_pin(wish, status); });
}

void AdapterResidency::take_in(LoadedAdapter& loaded) {
  AdapterVersion& version = *loaded.version;
  version.loading = false;
  ++loads_;
  if (!loaded.packed.ok()) return fail(version, std::move(loaded.packed).status());
  load_seconds_.add(loaded.seconds);
  const auto& packed = *loaded.packed;
  version.older = nullptr;
  if (!version.content) {
    version.content = contents_.find(packed->digest());
    if (!version.content) {
      version.content = contents_.add(*packed);
      memory_.add(version.content->id, packed->size_bytes());
    }
    version.content->versions.push_back(loaded.version);
    version.info->share(version.content->place);
  }
  AdapterContent& content = *version.content;
  CHORAL_CHECK(content.digest == packed->digest(), "a version of an adapter has one content");
  version.failure = {};
  // Else it waits on disk until there is room: acquire() says so.
  if (memory_.arrive(content.id) && content.packed == nullptr) content.packed = packed;
  carry_out(nullptr);
  publish(content);
}

void AdapterResidency::fail(AdapterVersion& version, Status why) {
  registry_.update(version, [&](AdapterInfo& info) {
    info.state = AdapterState::kFailed;
    info.error = why.to_string();
  });
  version.failure = std::move(why);
  ++version.failures;
  if (!version.content) return;
  memory_.fail(version.content->id);
  may_be_stranded_ = true;
}

// What the memory decided: weights to drop, and loads, all of which are of adapters of `request`.
void AdapterResidency::carry_out(const EngineRequest* request) {
  memory_.take_decisions(loads_wanted_, drops_wanted_);
  for (const lora::AdapterId id : drops_wanted_) {
    AdapterContent& content = contents_.at(id);
    content.packed = nullptr;
    publish(content);
  }
  for (const lora::AdapterId id : loads_wanted_) {
    // Any version with this content will do; the request's own is alive.
    const auto use = std::find_if(request->adapters.begin(), request->adapters.end(),
                                  [id](const auto& candidate) { return candidate.version->content->id == id; });
    CHORAL_CHECK(use != request->adapters.end(), "a request holds no version of its adapter");
    registry_.request_load(use->version);
  }
  loads_wanted_.clear();
  drops_wanted_.clear();
}

AdapterResidency::Arrival AdapterResidency::arrive(EngineRequest& request) {
  if (request.adapters.empty()) return Arrival::kKnown;
  bool known = true;
  for (auto& use : request.adapters) {
    request.adapter_status = choose_version(use);
    request.adapter_unusable = !request.adapter_status.ok();
    if (request.adapter_unusable) return Arrival::kFailed;
    AdapterVersion& version = *use.version;
    if (version.content) continue;
    known = false;
    if (version.loading) continue;
    registry_.request_load(use.version);
    version.loading = true;
  }
  if (!known) return Arrival::kWaiting;
  return join_voice(request) ? Arrival::kKnown : Arrival::kFailed;
}

// A version that cannot be read is left for another: by files that were refused for what their name stood for before, while that
// is in memory; by one whose files are gone for what the name stands for now.
Status AdapterResidency::choose_version(VersionUse& use) {
  const AdapterVersion& version = *use.version;
  if (!use.failed() || in_memory(version)) return {};
  if (use.is_exact) return version.failure;
  auto other = version.older != nullptr && in_memory(*version.older) ? version.older : registry_.present(version);
  if (other == nullptr || other == use.version || (!other->failure.ok() && !in_memory(*other))) return version.failure;
  if (other == version.older && !in_memory(*other)) return version.failure;  // its files are the refused ones
  use.failures_before = other->failures;
  use.version = std::move(other);
  return {};
}

bool AdapterResidency::is_stranded(const EngineRequest& request) const {
  if (request.voice == nullptr || request.holds_adapter) return false;
  return std::any_of(request.adapters.begin(), request.adapters.end(), [this](const VersionUse& use) {
    const auto& content = use.version->content;
    return use.failed() && content != nullptr && !memory_.resident(content->id) && !memory_.loading(content->id);
  });
}

void AdapterResidency::start_over(EngineRequest& request) {
  leave(request);
  request.adapter_key = lora::kBaseKey;
  request.adapter_ids.clear();
  request.activation_token = 0;
  request.activated_root.reset();
  request.prefix_root = cache::make_prefix_root({}, request.cache_salt);
}

// Requests of the base were checked when they were read; of others, all that is known only now is what their adapters bring.
Status AdapterResidency::check_tokens(const EngineRequest& request) const {
  int64_t vocab = executor_.facts().vocab_size;
  for (const auto& use : request.adapters) {
    vocab += use.version->content->own_tokens;
    if (!registry_.has_tokens_of(use)) {
      return unavailable("adapter '{}': the tokens that its files add changed while the request waited; send it again",
                         use.version->request.lora_name);
    }
  }
  if (request.highest_token < vocab) return {};
  return invalid_argument("the request names token {}; the model with adapter '{}' has ids 0 to {}", request.highest_token,
                          request.adapters.front().version->request.lora_name, vocab - 1);
}

bool AdapterResidency::join_voice(EngineRequest& request) {
  request.adapter_status = check_tokens(request);
  if (!request.adapter_status.ok()) return false;
  std::vector<sched::VoiceTerm> terms;
  std::vector<cache::AdapterIdentity> identities;
  int32_t activation = 0;
  for (const auto& use : request.adapters) {
    const auto& content = use.version->content;
    if (content->replaces && (request.adapters.size() > 1 || use.scale != 1.0F)) {
      request.adapter_status = invalid_argument(
          "adapter '{}' replaces whole weights (modules_to_save, trainable tokens) or brings tokens of its own, so it cannot be "
          "mixed or scaled; use it alone with scale 1",
          use.version->request.lora_name);
      return false;
    }
    if (!content->invocation_tokens.empty()) {
      if (request.adapters.size() > 1) {
        request.adapter_status =
            invalid_argument("adapter '{}' is activated by tokens of the prompt, so it cannot be mixed; use it alone",
                             use.version->request.lora_name);
        return false;
      }
      activation = last_occurrence(request.tokens, content->invocation_tokens);
      if (activation < 0) return true;  // never invoked: the base answers, as PEFT has it
    }
    terms.push_back({content->id, use.scale});
    identities.push_back({content->digest, use.scale});
  }
  sched::Voice& voice = memory_.join(std::move(terms));
  request.voice = &voice;
  request.adapter_key = voice.key;
  request.adapter_ids = voice.adapters;
  request.activation_token = activation;
  const auto root = cache::make_prefix_root(identities, request.cache_salt);
  (activation > 0 ? request.activated_root : request.prefix_root) = root;
  return true;
}

std::vector<AnswerAdapter> AdapterResidency::describe(const EngineRequest& request) const {
  std::vector<AnswerAdapter> all;
  for (const auto& use : request.adapters) {
    const AdapterVersion& version = *use.version;
    all.push_back({.name = version.request.lora_name, .digest = to_hex(version.content->digest), .scale = use.scale});
    registry_.update(*use.version, [&](const AdapterInfo& info) { all.back().generation = info.generation; });
  }
  return all;
}

void AdapterResidency::leave(EngineRequest& request) {
  if (request.voice != nullptr) memory_.leave(*std::exchange(request.voice, nullptr));
}

Residency AdapterResidency::acquire(sched::Request& scheduled) {
  EngineRequest& request = engine_request(scheduled);
  sched::Voice& voice = *request.voice;
  request.adapter_status = failure_of(request);
  request.adapter_unusable = !request.adapter_status.ok();
  if (request.adapter_unusable) return Residency::kFailed;
  const Residency answer = memory_.acquire(voice);
  carry_out(&request);
  if (answer == Residency::kFailed) request.adapter_status = too_much(voice);
  if (answer != Residency::kResident) return answer;
  if (voice.holders == 1) {
    const auto placed = register_weights(voice);
    if (placed.ok() && *placed == lora::Readiness::kComing) {
      memory_.hand_back(voice);
      return Residency::kLoading;
    }
    request.adapter_status = placed.status();
  }
  if (request.adapter_status.code() == Code::kUnavailable) {  // who runs has the device's slots
    request.adapter_status = {};
    memory_.hand_back(voice);
    return Residency::kNoRoom;
  }
  if (!request.adapter_status.ok()) {
    memory_.release(*std::exchange(request.voice, nullptr));
    return Residency::kFailed;
  }
  for (const lora::AdapterId id : voice.adapters) publish(contents_.at(id));
  return Residency::kResident;
}

bool AdapterResidency::prefetch(sched::Request& scheduled) {
  EngineRequest& request = engine_request(scheduled);
  if (!failure_of(request).ok()) return true;  // acquire() says so
  const bool had_room = memory_.prefetch(*request.voice);
  carry_out(&request);
  return had_room;
}

Status AdapterResidency::too_much(const sched::Voice& voice) const {
  const auto needed = memory_.needed(voice), usable = memory_.usable(voice);
  if (needed.adapters > usable.adapters) {
    return too_large(
        "it needs {} adapters in memory at once, but {} of those that --max-cpu-loras allows ({}) are not pinned for others; "
        "raise "
        "it, mix fewer or unpin some",
        needed.adapters, usable.adapters, memory_.book().budget().adapters);
  }
  return too_large(
      "its adapters need {} bytes in memory, but {} of the budget for adapters ({}) are not pinned for others; raise "
      "--adapter-memory or unpin some",
      needed.bytes, usable.bytes, budget_bytes());
}

Result<lora::Readiness> AdapterResidency::register_weights(const sched::Voice& voice) {
  return or_out_of_memory("its adapters cannot be brought to the device", [&] {
    lora::PackedVoice weights;
    for (const auto& term : voice.terms) weights.push_back({contents_.at(term.adapter).packed, term.factor});
    return executor_.add_adapter(voice.key, std::move(weights));
  });
}

// Why what is missing cannot be loaded: the files turned bad while the request waited. Somebody's new try under way changes
// nothing, or under many requests for a bad file each would wait for the next one's.
Status AdapterResidency::failure_of(const EngineRequest& request) const {
  for (const auto& use : request.adapters) {
    if (use.failed() && !in_memory(*use.version)) return use.version->failure;
  }
  return {};
}

void AdapterResidency::release(sched::Request& scheduled) {
  EngineRequest& request = engine_request(scheduled);
  sched::Voice& voice = *std::exchange(request.voice, nullptr);
  if (voice.holders == 1) executor_.remove_adapter(voice.key);
  memory_.release(voice);
  for (const lora::AdapterId id : request.adapter_ids) publish(contents_.at(id));
  for (const auto& use : request.adapters) registry_.note_use(*use.version, /*is_new=*/false);
}

// Its weights, whichever version they came by.
bool AdapterResidency::in_memory(const AdapterVersion& version) const {
  return version.content != nullptr && memory_.resident(version.content->id);
}

// What AdapterMemory has of it, for those who list adapters.
void AdapterResidency::publish(const AdapterContent& content) {
  const lora::MemoryRecord& known = memory_.book().at(content.id);
  content.place->set(known.resident() ? AdapterState::kResident : AdapterState::kOnDisk,
                     known.used_by(lora::MemoryUse::kRequest));
}

}  // namespace choral::engine
