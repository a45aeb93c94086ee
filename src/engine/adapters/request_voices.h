// The voices of live requests: their adapters with factors. Requests with equal voices share one and its key, and so groups of
// rows and KV. Engine thread only.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/adapters/adapter_contents.h"

namespace choral::engine {

// Who waits and who holds is counted by sched::AdapterMemory under its key.
struct RequestVoice {
  struct Term {
    std::shared_ptr<AdapterContent> content;
    float factor = 1.0F;
  };
  lora::AdapterKey key;
  std::vector<Term> terms;                // as named: a content may be in several
  std::vector<lora::AdapterId> adapters;  // their contents, each once
  int requests = 0;
};

class RequestVoices {
 public:
  // For one request more, of one term at least. The voice stays in place until each of them left.
  RequestVoice& join(std::vector<RequestVoice::Term> terms);
  void leave(RequestVoice& voice);
  size_t size() const { return voices_.size(); }

 private:
  using Terms = std::vector<std::pair<lora::AdapterId, float>>;
  static Terms terms_of(std::span<const RequestVoice::Term> terms);

  std::map<Terms, RequestVoice> voices_;
  std::vector<lora::AdapterKey> free_keys_;  // every request may bring another factor, and keys are not without end
  int32_t next_key_ = 1;
};

}  // namespace choral::engine
