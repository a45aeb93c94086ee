// An engine that guesses whenever it can: by its clock each step takes the same time, however many rows it has, and masks take
// none. Tests only.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "engine/assembled_engine_test.h"

namespace choral::engine {

inline double no_time(pthread_t) { return 0; }

inline AssembledEngine guessing_engine(EngineOptions options, MakeGrammarCompiler grammars = RequestReader::the_grammar_compiler,
                                       const MaskLimits& mask_limits = {.clock = no_time}) {
  if (options.speculative != "traffic") options.speculative = "ngram";
  const auto ticks = std::make_shared<std::atomic<int64_t>>(0);
  return {std::move(options), AssembledEngine::one_worker, [ticks] { return 1e-3 * static_cast<double>(++*ticks); },
          std::move(grammars), mask_limits};
}

}  // namespace choral::engine
