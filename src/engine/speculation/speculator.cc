#include "engine/speculation/speculator.h"

#include <algorithm>

#include "engine/engine_request.h"

namespace choral::engine {
namespace {

constexpr double kLeastGain = 1.02;  // of tokens a second: less is not worth a doubt

// A form of the answer and the end of thoughts say with each token what may follow it; beams go on from one another.
bool may_guess(EngineRequest& request) {
  return !request.sits_out && request.answering().beams == nullptr && request.remaining() == 1 && request.output_count() > 0 &&
         request.grammar == nullptr && !request.thoughts && request.max_length - request.token_count() > 1;
}

}  // namespace

Speculator::Speculator(bool enabled, int32_t max_num_seqs) : enabled_(enabled) {
  guessed_.reserve(max_num_seqs);
  rows_.reserve(static_cast<size_t>(max_num_seqs) * kMostGuessed);
}

void Speculator::guess(std::span<sched::Request* const> running) {
  guessed_.clear();
  rows_.clear();
  if (!enabled_) return;
  int32_t known = 0;
  for (sched::Request* scheduled : running) {
    auto& request = static_cast<EngineRequest&>(*scheduled);
    request.guess_count = 0;
    if (request.remaining() != 1) continue;
    ++known;
    if (costs_.empty() || !may_guess(request)) continue;
    guess_of(request);
  }
  if (!guessed_.empty()) choose(known);
}

void Speculator::guess_of(EngineRequest& request) {
  Guesser& guesser = request.guesser;
  if (!guesser.lookup.has_tried()) guesser.lookup.make_room(request.max_length);
  const int32_t most = std::min(kMostGuessed, request.max_length - request.token_count() - 1);
  guesser.matched = guesser.lookup.guess(request.tokens, std::span(request.guesses).first(static_cast<size_t>(most)));
  if (guesser.matched == 0) return;
  request.guess_count = most;
  const double share = guesser.share(record_);
  double all_right = 1;
  for (int32_t i = 0; i < most; ++i) {
    all_right *= share;
    rows_.push_back({static_cast<float>(all_right), static_cast<int32_t>(guessed_.size())});
  }
  guessed_.push_back(&request);
}

// Of one request earlier rows are likelier than later ones, so any number of the likeliest is a beginning of each request's.
void Speculator::choose(int32_t known) {
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.probability > b.probability; });
  double tokens = known, best = kLeastGain * known / costs_.seconds(known);
  size_t chosen = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    tokens += static_cast<double>(rows_[i].probability);
    if (const double rate = tokens / costs_.seconds(known + static_cast<int32_t>(i) + 1); rate > best) {
      best = rate;
      chosen = i + 1;
    }
  }
  for (size_t i = chosen; i < rows_.size(); ++i) --guessed_[static_cast<size_t>(rows_[i].request)]->guess_count;
  for (EngineRequest* request : guessed_) {
    if (request->guess_count == 0) request->guesser.rest();
  }
}

void Speculator::add_step(const sched::StepPlan& plan, double seconds) {
  if (!enabled_) return;
  const auto is_one_token = [](const sched::PlanItem& item) { return item.is_decode || item.draft_count > 0; };
  if (std::all_of(plan.items().begin(), plan.items().end(), is_one_token)) costs_.add(plan.total_tokens(), seconds);
}

void Speculator::judge(EngineRequest& request, int32_t guessed, int32_t right) {
  if (guessed == 0) return;
  request.guesser.judge(record_, guessed, right);
  ++stats_.drafts;
  stats_.guessed += guessed;
  stats_.right += right;
  for (int32_t i = 0; i < right; ++i) ++stats_.right_at[static_cast<size_t>(i)];
}

}  // namespace choral::engine
