#include "serve/usual_sampling.h"

namespace choral::serve {

SamplingParams usual_sampling(const LLM& llm) {
  SamplingParams otherwise;
  if (llm.info().is_gguf) {
    otherwise.temperature = 0.8f;
    otherwise.top_k = 40;
    otherwise.top_p = 0.95f;
    otherwise.min_p = 0.05f;
  }
  return llm.default_sampling(otherwise);
}

}  // namespace choral::serve
