// Loads a draft model beside the model that it guesses for: weights and adapters of its own, a small KV cache, the same threads.
// It is loaded first, so that the other's memory is planned with what is left.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/model_loader.h"
#include "engine/speculation/draft_model.h"
#include "engine/uniproc_executor.h"

namespace choral::engine {

struct LoadedDraft {
  std::unique_ptr<UniprocExecutor> executor;
  DraftModel::Adapters adapters;
  int32_t max_texts = 0, max_rows = 0;
  DraftMemory memory;
  std::vector<std::string> notes;

  // For a model that has so many tokens; its steps are timed a first time.
  std::unique_ptr<DraftModel> start(int64_t vocab) &&;
};

// The draft model of the engine's options, of which there is one, for the model of `files`. invalid_argument: its tokens are
// others than theirs. unsupported: it cannot guess.
Result<LoadedDraft> load_draft(const EngineOptions& options, const ModelFiles& files);

// The files of the options' draft model, of which there is one, as load_draft() opens and checks them.
Result<ModelFiles> open_draft(const EngineOptions& options, const ModelFiles& files);

// What the options' draft model would take of the memory, without a look at its weights' values; nothing where there is none.
Result<DraftMemory> plan_draft_memory(const EngineOptions& options);

// Every id that either has stands for the same text in both, but for places that are filled for nobody.
Status check_same_tokens(const text::Tokenizer& model, const text::Tokenizer& draft);

}  // namespace choral::engine
