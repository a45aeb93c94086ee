// Beam search as plain loops over an LLM that is asked for one token at a time: every beam's whole text is a prompt of its own,
// so nothing is shared, forked or kept. The order of things is transformers' _beam_search(). Tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "engine/tiny_model_test.h"

namespace choral::engine {

struct OracleAnswer {
  std::vector<int32_t> tokens;
  double logprob = 0;
  double score = 0;
};

inline std::vector<OracleAnswer> oracle_answers(LLM& llm, const Request& request, const std::set<int32_t>& stops) {
  const auto& params = request.sampling;
  const int width = params.beams.width;
  const double penalty = static_cast<double>(params.beams.length_penalty);
  const auto kept = static_cast<size_t>(width) * std::max<size_t>(2, 1 + stops.size());
  std::vector<OracleAnswer> beams(1), done;
  for (int length = 1;; ++length) {
    std::vector<Request> asked;
    for (const auto& beam : beams) {
      Request one = request;
      one.sampling = {};
      one.sampling.temperature = 0;
      one.sampling.max_tokens = 1;
      one.sampling.logprobs = static_cast<int>(std::min<size_t>(kept, 100));
      one.prompt_token_ids.insert(one.prompt_token_ids.end(), beam.tokens.begin(), beam.tokens.end());
      asked.push_back(std::move(one));
    }
    std::vector<OracleAnswer> candidates;
    const auto outputs = llm.generate(std::move(asked));
    for (size_t b = 0; b < beams.size(); ++b) {
      EXPECT_TRUE(outputs[b].status.ok()) << outputs[b].status.to_string();
      for (const auto& entry : outputs[b].completions.at(0).logprobs.at(0).top) {
        if (length <= params.min_tokens && stops.contains(entry.token_id)) continue;
        candidates.push_back({beams[b].tokens, beams[b].logprob + static_cast<double>(entry.logprob), 0});
        candidates.back().tokens.push_back(entry.token_id);
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
    candidates.resize(std::min(candidates.size(), kept));
    const bool is_last = length == params.max_tokens;
    std::vector<OracleAnswer> next;
    for (int rank = 0; rank < std::ssize(candidates); ++rank) {
      auto& candidate = candidates[rank];
      const bool ends = is_last || stops.contains(candidate.tokens.back());
      candidate.score = candidate.logprob / std::pow(static_cast<double>(length), penalty);
      if (ends && rank < width) done.push_back(candidate);
      if (!ends && std::ssize(next) < width) next.push_back(candidate);
    }
    std::stable_sort(done.begin(), done.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
    done.resize(std::min<size_t>(done.size(), width));
    beams = std::move(next);
    if (is_last) break;
    if (std::ssize(done) < width) continue;
    if (params.beams.early_stopping == EarlyStopping::kYes) break;
    const bool by_longest = params.beams.early_stopping == EarlyStopping::kNever && penalty > 0;
    const double hoped = beams.front().logprob / std::pow(static_cast<double>(by_longest ? params.max_tokens : length), penalty);
    if (hoped <= done.back().score) break;
  }
  done.resize(std::min<size_t>(done.size(), params.n));
  return done;
}

inline Request beam_request(std::vector<int32_t> prompt, int width, int max_tokens) {
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.sampling.n = width;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.beams = {.wanted = true, .width = width};
  return request;
}

// To the last bit: the sums are made in one order.
inline void expect_answers(const std::vector<OracleAnswer>& wanted, const RequestOutput& output) {
  ASSERT_TRUE(output.status.ok()) << output.status.to_string();
  ASSERT_EQ(output.completions.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Completion& c = output.completions[i];
    EXPECT_EQ(c.index, static_cast<int>(i));
    EXPECT_EQ(c.token_ids, wanted[i].tokens) << "answer " << i;
    EXPECT_EQ(c.cumulative_logprob, wanted[i].logprob) << "answer " << i;
    EXPECT_EQ(c.beam_score, wanted[i].score) << "answer " << i;
  }
}

}  // namespace choral::engine
