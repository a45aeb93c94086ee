// Bodies of reranking and of scores: texts that are compared, two by two. Values, read and checked. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/openai/calls.h"

namespace choral::serve {

// What both have in common: each pair gets a score.
struct PairsCall {
  std::string model;
  Request request;  // how the texts are read
  std::vector<std::string> left, right;
  std::string instruction;  // what makes a text the right one; empty: the usual

  size_t pairs() const { return left.size() > right.size() ? left.size() : right.size(); }
  const std::string& left_of(size_t pair) const { return left[left.size() == 1 ? 0 : pair]; }
  const std::string& right_of(size_t pair) const { return right[right.size() == 1 ? 0 : pair]; }
};

struct RerankCall : PairsCall {  // a query on the left
  std::optional<int32_t> top_n;
  bool return_documents = true;
  bool is_plain_list = false;  // text-embeddings-inference's form: `texts` in, a list out
};

// Jina's, Cohere's and vLLM's form, or text-embeddings-inference's.
Result<RerankCall> read_rerank_call(std::string_view body, BodyNotes& notes);
// vLLM's.
Result<PairsCall> read_score_call(std::string_view body, BodyNotes& notes);

std::string rerank_schema();
std::string score_schema();

}  // namespace choral::serve
