// DRY's breakers (kernels/sampling/dry.h) as tokens: each token whose text holds one, and each that ends with the beginning of
// one together with the tokens that spell the rest, as llama.cpp finds them. A vocabulary is looked through for it, so the last
// few lists are remembered. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/shared_list.h"
#include "kernels/sampling/dry.h"
#include "text/tokenizer.h"

namespace choral::engine {

class DryBreakers {
 public:
  using List = SharedList<kernels::DryBreaker>;
  // unsupported: there is no tokenizer. too_large: they stand in too many tokens.
  Result<List> of(const std::shared_ptr<const text::Tokenizer>& tokenizer, const std::vector<std::string>& texts);

 private:
  struct Known {
    std::shared_ptr<const text::Tokenizer> tokenizer;
    std::vector<std::string> texts;
    List list;
  };
  std::mutex mutex_;
  std::vector<Known> known_;  // the latest last
};

}  // namespace choral::engine
