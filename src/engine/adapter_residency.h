// Which adapters are in memory: takes in what the loader packed, keeps and drops weights as AdapterMemory decides, pins, and
// tells the scheduler who can run. Equal contents are one, whatever their names. A request passes three times: arrive() (its
// adapters are named), acquire() and release() by the scheduler, leave() at its end. One that waits while its adapter's bytes are
// lost starts over, for what the name stands for by then. Engine thread only; a steady-state step calls nothing of it.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/adapter_registry.h"
#include "engine/engine_request.h"
#include "engine/executor.h"
#include "sched/adapter_memory.h"

namespace choral::engine {

// What some files held. Known from the first load on, whether its weights are in memory or not.
struct AdapterContent {
  int32_t id = 0;  // in the adapter memory, and the adapter key of requests that use it alone at factor 1
  Sha256Digest digest{};
  int64_t size_bytes = 0;
  bool replaces = false;
  std::vector<int32_t> invocation_tokens;

  std::shared_ptr<const lora::PackedAdapter> packed;  // null: dropped; its files are read again when it is needed
  std::vector<std::weak_ptr<AdapterVersion>> versions;
};

// The adapters of a request together: requests with equal ones share rows' groups and KV.
struct RequestVoice {
  struct Term {
    std::shared_ptr<AdapterContent> content;
    float factor = 1.0F;
  };
  int32_t key = 0;                // adapter_key of its requests; 0 = acts nowhere in them
  std::vector<Term> terms;        // as named: a content may be in several
  std::vector<int32_t> adapters;  // their contents, each once
  int requests = 0;
  int holders = 0;  // of them, admitted
};

class AdapterResidency : public sched::AdapterResidency {
 public:
  // `registry` and `executor` outlive this.
  AdapterResidency(AdapterRegistry& registry, Executor& executor, int64_t budget_bytes);
  ~AdapterResidency() override;

  // Takes in what the loader finished, pins, and what nobody names any more: when the registry woke the engine or has_unnamed(),
  // and before schedule(), never inside it. Whether a load ended: who waits for one may go on.
  bool take_changes();
  // A content may have lost its last user.
  bool has_unnamed() const { return !unnamed_.empty(); }

  enum class Arrival : uint8_t { kKnown, kWaiting, kFailed };
  // kKnown: the request's key, prefix origin and activation are set and it can be scheduled. kWaiting: its adapters were never
  // loaded; ask again after take_changes(). kFailed: request.adapter_status says why.
  Arrival arrive(EngineRequest& request);
  // The end of a request that arrived, however it came; after release() if it held.
  void leave(EngineRequest& request);
  // Whether a load failed since the last call of a version that was in memory before: requests may be stranded.
  bool take_may_be_stranded() { return std::exchange(may_be_stranded_, false); }
  // It waits for a version that was dropped and cannot be read again.
  bool is_stranded(const EngineRequest& request) const;
  // Makes it one that may arrive() once more, for what its names stand for now.
  void start_over(EngineRequest& request);

  sched::Residency acquire(sched::Request& request) override;
  void release(sched::Request& request) override;

  // What is in memory, and what room is reserved for.
  int64_t resident_bytes() const { return memory_.tiers().used_bytes(lora::MemoryTier::kHost); }
  int64_t budget_bytes() const { return memory_.tiers().budget_bytes(lora::MemoryTier::kHost); }
  int64_t loads() const { return loads_; }
  int64_t evictions() const { return memory_.tiers().evictions(); }
  size_t content_count() const { return contents_.size(); }

 private:
  using VoiceKey = std::vector<std::pair<int32_t, float>>;  // content id, factor

  void take_in(LoadedAdapter& loaded);
  std::shared_ptr<AdapterContent> content_of(const lora::PackedAdapter& packed);
  void make_resident(const std::shared_ptr<AdapterContent>& content, std::shared_ptr<const lora::PackedAdapter> packed);
  void look_at_contents(const AdapterVersion& version);
  void fail(AdapterVersion& version, Status why);
  Status choose_version(VersionUse& use);
  void settle_pins();
  bool settle_pin(AdapterRegistry::PinWish& wish);
  Status pin_content(AdapterVersion& version, bool pinned);
  Status room_for(const AdapterVersion& version) const;
  Status failure_of(const EngineRequest& request) const;
  void carry_out(const EngineRequest* request);
  void forget_if_unnamed(int32_t id);
  void publish(const AdapterContent& content);
  bool join_voice(EngineRequest& request);
  RequestVoice& open_voice(const VoiceKey& key, std::vector<RequestVoice::Term> terms);
  void close_voice(const RequestVoice& voice);

  AdapterRegistry& registry_;
  Executor& executor_;
  sched::AdapterMemory memory_;
  std::map<int32_t, std::shared_ptr<AdapterContent>> contents_;  // by id
  std::map<Sha256Digest, int32_t> by_digest_;
  std::map<VoiceKey, RequestVoice> voices_;
  std::vector<LoadedAdapter> loaded_;
  std::vector<AdapterRegistry::PinWish> pins_;        // not answered yet
  std::vector<int32_t> unnamed_;                      // contents to look at: a version of them may be gone
  std::vector<int32_t> loads_wanted_, drops_wanted_;  // carry_out()'s own
  std::vector<int32_t> free_keys_;                    // of voices that are gone
  bool may_be_stranded_ = false;
  int32_t next_id_ = 1;
  uint64_t seen_retirements_ = 0;
  int64_t loads_ = 0;
};

}  // namespace choral::engine
