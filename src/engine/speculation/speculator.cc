#include "engine/speculation/speculator.h"

#include <algorithm>

#include "engine/engine_request.h"

namespace choral::engine {
namespace {

constexpr double kLeastGain = 1.02;  // of tokens a second: less is not worth a doubt
constexpr double kWorthOfLate = 0.8;  // what is worth a row changes from step to step

// So many tokens may be guessed of it, when its next step is one of a token.
int32_t most_guessed(const EngineRequest& request) {
  if (request.output_count() == 0 || (request.grammar != nullptr && request.thoughts)) return 0;
  int64_t most = std::min(Speculator::kMostGuessed, request.max_length - request.token_count() - 1);
  if (request.thoughts && request.thoughts->forced() == ThoughtBudget::kAny)
    most = std::min(most, request.thoughts->free_count());
  return static_cast<int32_t>(most);
}

// Sets where it comes from.
int32_t look_up(EngineRequest& request, std::span<int32_t> out) {
  Guesser& guesser = request.guesser;
  if (!guesser.lookup.has_tried()) guesser.lookup.make_room(request.max_length);
  guesser.matched = guesser.lookup.guess(request.tokens, out);
  return guesser.matched > 0 ? static_cast<int32_t>(out.size()) : 0;
}

// The end of its thoughts must be written now. A token that must come behind no other of it is no guess.
int32_t write_forced(const EngineRequest& request, std::span<int32_t> out) {
  int32_t count = 0;
  while (count < std::ssize(out) && request.thoughts->forced(count + 1) != ThoughtBudget::kAny) {
    out[static_cast<size_t>(count)] = request.thoughts->forced(count);
    ++count;
  }
  return count;
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
    if (!costs_.empty() && !request.sits_out) guess_of(request);
  }
  if (known > 0 && !costs_.empty())
    least_worth_ = kWorthOfLate * known / costs_.seconds(known) * (costs_.seconds(known + 1) - costs_.seconds(known));
  if (guessed_.empty()) return;
  choose(known);
  for (EngineRequest* request : guessed_) {
    if (request->grammar != nullptr && request->guess_count > 0)
      request->guess_count = request->grammar->look_ahead(request->guessed());
  }
}

void Speculator::guess_of(EngineRequest& request) {
  const int32_t most = most_guessed(request);
  if (most < 1) return;
  request.guess_count = write_guess(request, std::span(request.guesses).first(static_cast<size_t>(most)));
  if (request.guess_count == 0) return;
  const double share = request.guesser.share(record_);
  double all_right = 1;
  for (int32_t i = 0; i < request.guess_count; ++i) {
    all_right *= share;
    rows_.push_back({static_cast<float>(all_right), static_cast<int32_t>(guessed_.size())});
  }
  guessed_.push_back(&request);
}

int32_t Speculator::write_guess(EngineRequest& request, std::span<int32_t> out) const {
  if (request.grammar != nullptr) return write_allowed_guess(request, out);
  if (!request.thoughts || request.thoughts->forced() == ThoughtBudget::kAny) return look_up(request, out);
  request.guesser.matched = kByForm;
  return write_forced(request, out);
}

// Of what the text and what its form suggest, that which is right more often.
int32_t Speculator::write_allowed_guess(EngineRequest& request, std::span<int32_t> out) const {
  Guesser& guesser = request.guesser;
  AnswerGrammar& grammar = *request.grammar;
  if (!grammar.is_bounded()) {
    guesser.matched = grammar.ahead_is_likely() ? kByForm : guesser.wished;
    const auto ahead = grammar.ahead().first(std::min(grammar.ahead().size(), out.size()));
    std::copy(ahead.begin(), ahead.end(), out.begin());
    return static_cast<int32_t>(ahead.size());
  }
  int32_t found = look_up(request, out);
  if (found > 0 && !grammar.allows(out.front())) found = 0;
  if (found > 0 && guesser.share(record_) >= guesser.share(record_, kByForm)) return found;
  std::array<int32_t, kMostGuessed> likely = {};
  const int32_t by_form = grammar.likely(std::span(likely).first(out.size()));
  if (by_form == 0 || !grammar.allows(likely.front())) return found;
  std::copy_n(likely.begin(), by_form, out.begin());
  guesser.matched = kByForm;
  return by_form;
}

void Speculator::wish(EngineRequest& request) {
  AnswerGrammar::Wish& wish = request.grammar->wish;
  wish = {};
  const int32_t most = most_guessed(request);
  if (!enabled_ || costs_.empty() || most < 1) return;
  Guesser& guesser = request.guesser;
  const int32_t found = look_up(request, std::span(wish.tokens).first(static_cast<size_t>(most)));
  guesser.wished = guesser.matched;
  wish.count = worth(guesser.share(record_), found);
  wish.likely_count = worth(guesser.share(record_, kByForm), most);
  wish.likely_first = guesser.share(record_, kByForm) > guesser.share(record_);
}

// As many tokens, one behind the other, as are worth their rows.
int32_t Speculator::worth(double share, int32_t most) const {
  int32_t count = 0;
  for (double all_right = share; count < most && all_right > least_worth_; all_right *= share) ++count;
  return count;
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
