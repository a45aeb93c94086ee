// One completion inside the engine: the scheduler's record, the worker's sampling rule, and where its answer goes. A public
// request with n = 3 becomes three of these. They share one Response and, through the prefix cache, one prompt. One with beam
// search becomes one whose followers are its other beams.
// RequestReader makes and checks it on the caller's thread. Then the scheduler owns it; engine thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "choral/types.h"
#include "engine/adapters/adapter_version.h"
#include "engine/answer_grammar.h"
#include "engine/beam_search/beam_group.h"
#include "engine/output_text.h"
#include "engine/pooling.h"
#include "engine/response.h"
#include "engine/sampling_rule.h"
#include "engine/speculation/guesser.h"
#include "engine/thought_budget.h"
#include "sched/request.h"

namespace choral::engine {

struct EngineRequest : sched::Request {
  EngineRequest(SamplingParams sampling, OutputText output_text) : params(std::move(sampling)), text(std::move(output_text)) {}
  // Whoever drops a request before its end (a shutdown, a refusal), its caller is told.
  ~EngineRequest() override {
    if (response == nullptr) return;
    response->fail(index, unavailable("the engine was shut down before this request was done"));
    response->wake();
  }

  SamplingParams params;                   // the lists among them that only the worker reads are in `rule`
  std::vector<int32_t> stop_ids;           // end of sequence (unless ignored) and stop_token_ids
  int32_t highest_token = -1;              // that prompt or sampling parameters name
  SamplingRule rule;                       // moves to the worker with the first step
  Pooling pooling = Pooling::kNone;        // an embedding is wanted, or classes, no tokens
  int32_t embedding_dimensions = 0;        // see Request
  bool wants_row_logits = false;           // of each token that is computed, as the model gave them
  std::shared_ptr<AnswerGrammar> grammar;  // that the answer keeps; null: none. A mask thread may have it longer than we

  std::unique_ptr<BeamGroup> beams;  // of a beam search, the leader's; null: tokens are drawn one after another
  // The request whose answer it is part of: itself, or the leader of its beams.
  EngineRequest& answering() { return static_cast<EngineRequest&>(lead()); }

  bool is_held = false;  // it came while the engine pauses, and is taken in when it goes on
  Guesser guesser;       // Speculator's

  std::optional<ThoughtBudget> thoughts;  // which end in time; none: when the model ends them

  // --- StepInputWriter's: what the worker was told ---
  bool introduced = false;
  int32_t told_tokens = 0;

  std::vector<VersionUse> adapters;  // as named; empty: the base
  std::string cache_salt;
  sched::Voice* voice = nullptr;  // what they are, from AdapterResidency::arrive() to release() or leave()
  Status adapter_status;          // why they cannot be had
  bool adapter_unusable = false;  // that is what the files of one of them say
  std::optional<std::vector<std::string>> given_adapters;  // Request's
  std::vector<AnswerAdapter> described_adapters;           // what they are, once they are known, for the answer's reader

  int index = 0;  // of the completion, or of the beam
  OutputText text;
  std::shared_ptr<Response> response;

  double timeout_s = 0;        // 0 = none
  double queue_timeout_s = 0;  // 0 = none
  double submitted_s = 0;      // EngineCore's, as what follows
  double scheduled_s = 0;      // first time in a step; 0 = never
  double first_token_s = 0;    // 0 = none yet
};

// The completions of one public request and the answer they share. Those that their given tokens end are in the answer alone.
struct AdmittedRequest {
  std::vector<std::unique_ptr<EngineRequest>> completions;
  std::shared_ptr<Response> response;
};

}  // namespace choral::engine
