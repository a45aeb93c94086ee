#include "engine/beam_search/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace choral::engine {
namespace {

constexpr int32_t kNowhere = -1;

}  // namespace

BeamSearch::BeamSearch(BeamRule rule) : rule_(std::move(rule)), logprobs_(1), has_offered_(1) {
  const auto width = static_cast<size_t>(rule_.width);
  candidates_.reserve(width * static_cast<size_t>(rule_.offered()));
  going_on_.reserve(width);
  answers_.reserve(width + 1);
}

bool BeamSearch::is_stop(int32_t token) const {
  return std::find(rule_.stop_ids.begin(), rule_.stop_ids.end(), token) != rule_.stop_ids.end();
}

double BeamSearch::score_of(double logprob, int32_t count) const {
  return logprob / std::pow(static_cast<double>(count), static_cast<double>(rule_.length_penalty));
}

void BeamSearch::offer(int32_t beam, std::span<const kernels::TokenLogprob> likeliest) {
  CHORAL_CHECK(beam < beams() && !has_offered_[static_cast<size_t>(beam)], "a beam offers once a round");
  CHORAL_CHECK(std::ssize(likeliest) >= rule_.offered(), "a beam offers so many tokens that some end nothing");
  const double before = logprobs_[static_cast<size_t>(beam)];
  for (const auto& [token, logprob] : likeliest) {
    if (length_ < rule_.min_tokens && is_stop(token)) continue;
    candidates_.push_back({beam, token, before + static_cast<double>(logprob)});
  }
  has_offered_[static_cast<size_t>(beam)] = true;
  ++offers_;
}

void BeamSearch::forget_offers() {
  candidates_.clear();
  has_offered_.assign(has_offered_.size(), false);
  offers_ = 0;
}

std::span<const BeamSearch::Step> BeamSearch::advance(std::span<const std::span<const int32_t>> tokens) {
  CHORAL_CHECK(all_offered() && std::ssize(tokens) == beams(), "a round ends when each beam has offered");
  // Beams offer in any order; equal candidates go by beam and token.
  std::sort(candidates_.begin(), candidates_.end(), [](const Step& a, const Step& b) {
    if (a.logprob != b.logprob) return a.logprob > b.logprob;
    return a.from != b.from ? a.from < b.from : a.token < b.token;
  });
  const bool is_last = ++length_ == rule_.max_tokens;
  going_on_.clear();
  for (size_t rank = 0; rank < candidates_.size(); ++rank) {
    const Step& step = candidates_[rank];
    const bool stops = is_stop(step.token);
    if (stops || is_last) {
      if (rank < static_cast<size_t>(rule_.width)) keep(step, tokens[static_cast<size_t>(step.from)], stops);
    } else if (std::ssize(going_on_) < rule_.width) {
      going_on_.push_back(step);
    }
  }
  if (is_last || !may_improve()) return {};
  place_steps();
  forget_offers();
  return placed_;
}

void BeamSearch::keep(const Step& step, std::span<const int32_t> tokens, bool is_stopped) {
  const double score = score_of(step.logprob, length_);
  const auto place = std::find_if(answers_.begin(), answers_.end(), [score](const Answer& other) { return other.score < score; });
  if (place - answers_.begin() == rule_.width) return;
  Answer answer{.tokens = {}, .logprob = step.logprob, .score = score, .is_stopped = is_stopped};
  answer.tokens.reserve(tokens.size() + 1);
  answer.tokens.assign(tokens.begin(), tokens.end());
  answer.tokens.push_back(step.token);
  answers_.insert(place, std::move(answer));
  if (std::ssize(answers_) > rule_.width) answers_.pop_back();
}

// The score that the best beam may come to is guessed as transformers does it: by its length now, or, where that can only rise
// and all is to be tried, by the greatest.
bool BeamSearch::may_improve() const {
  if (std::ssize(answers_) < rule_.width) return true;
  if (rule_.early_stopping == EarlyStopping::kYes) return false;
  const bool tries_all = rule_.early_stopping == EarlyStopping::kNever && rule_.length_penalty > 0;
  return score_of(going_on_.front().logprob, tries_all ? rule_.max_tokens : length_) > answers_.back().score;
}

void BeamSearch::place_steps() {
  CHORAL_CHECK(std::ssize(going_on_) == rule_.width, "as many beams go on as the search has");
  placed_.assign(going_on_.size(), {.from = kNowhere});
  std::vector<Step>& others = candidates_;  // done with
  others.clear();
  for (const Step& step : going_on_) {
    Step& own = placed_[static_cast<size_t>(step.from)];
    if (own.from == kNowhere) {
      own = step;
    } else {
      others.push_back(step);
    }
  }
  for (auto free = placed_.begin(); const Step& step : others) {
    free = std::find_if(free, placed_.end(), [](const Step& taken) { return taken.from == kNowhere; });
    *free = step;
  }
  logprobs_.resize(placed_.size());
  has_offered_.resize(placed_.size());
  for (size_t i = 0; i < placed_.size(); ++i) logprobs_[i] = placed_[i].logprob;
}

}  // namespace choral::engine
