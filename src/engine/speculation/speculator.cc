#include "engine/speculation/speculator.h"

#include <algorithm>

#include "engine/engine_request.h"

namespace choral::engine {
namespace {

constexpr double kLeastGain = 1.02;  // of tokens a second: less is not worth a doubt
// Tokens that the draft model reads in the step that guesses; a text with more is read before. So many there usually are.
constexpr int32_t kMostUnread = 16, kUsuallyUnread = 2;
// What the draft model reads before each step takes at most about so much of the step's time, and how many tokens that can be.
constexpr double kReadShare = 0.25;
constexpr int32_t kLeastRead = 16, kMostRead = 512;
constexpr int32_t kFirstAnswer = 32;  // an answer is expected to go on for as long as it is, and for so many tokens at least
// The share of all time that tries of the draft model may take where it does not pay, and how many steps' time is saved for them:
// at first, and at most.
constexpr double kTryShare = 0.01;
constexpr double kFirstSavedSteps = 10, kMostSavedSteps = 50;

// A form of the answer and the end of thoughts say with each token what may follow it.
bool may_guess(const EngineRequest& request) {
  return !request.sits_out && request.remaining() == 1 && request.output_count() > 0 && request.grammar == nullptr &&
         !request.thoughts && request.max_length - request.token_count() > 1;
}

int32_t most_guesses(const EngineRequest& request) {
  return std::min(Speculator::kMostGuessed, request.max_length - request.token_count() - 1);
}

// A mix has no draft adapter of its own.
lora::AdapterKey draft_adapter(const DraftModel& draft, const EngineRequest& request) {
  if (request.adapters.size() != 1) return lora::kBaseKey;
  return draft.adapter_of(request.adapters[0].version->request.lora_name);
}

}  // namespace

Speculator::Speculator(bool enabled, int32_t max_num_seqs, std::unique_ptr<DraftModel> draft)
    : enabled_(enabled), draft_(std::move(draft)) {
  candidates_.reserve(max_num_seqs);
  rows_.reserve(static_cast<size_t>(max_num_seqs) * kMostGuessed * (draft_ == nullptr ? 1 : 2));
  wishes_.reserve(draft_ == nullptr ? 0 : max_num_seqs);
  wishers_.reserve(draft_ == nullptr ? 0 : max_num_seqs);
}

void Speculator::guess(std::span<sched::Request* const> running) {
  candidates_.clear();
  rows_.clear();
  if (!enabled_) return;
  int32_t known = 0;
  for (sched::Request* scheduled : running) {
    auto& request = static_cast<EngineRequest&>(*scheduled);
    request.guess_count = 0;
    if (request.remaining() != 1) continue;
    ++known;
    if (!costs_.empty() && may_guess(request)) consider(request);
  }
  if (rows_.empty()) return;
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.probability > b.probability; });
  const Choice without = choose(known, Drafts::kNone);
  if (draft_ == nullptr) return take(without, Drafts::kNone);
  const Choice with = choose(known, Drafts::kOfThoseItRead);
  const bool drafts = with.rate > kLeastGain * without.rate;
  take(drafts ? with : without, drafts ? Drafts::kOfThoseItRead : Drafts::kNone);
  if (const Choice all = choose(known, Drafts::kOfAll); all.rate > kLeastGain * without.rate) {
    read_texts(known, without.rate, all.rate);
  } else {
    try_again(known);
  }
  ask_draft();
}

// Guesses of both kinds, where there are any.
void Speculator::consider(EngineRequest& request) {
  Guesser& guesser = request.guesser;
  if (!guesser.lookup.has_tried()) guesser.lookup.make_room(request.max_length);
  const int32_t most = most_guesses(request);
  guesser.by_draft = false;
  guesser.matched = guesser.lookup.guess(request.tokens, std::span(request.guesses).first(static_cast<size_t>(most)));
  const auto unread = draft_ == nullptr ? std::nullopt : draft_->unread(request.id, request.tokens, request.max_length);
  if (guesser.matched == 0 && !unread) return;
  const double looked_up = guesser.matched == 0 ? 0 : guesser.share(record_);
  const double drafted = unread ? guesser.draft_share(draft_record_) : 0;
  candidates_.push_back({.request = &request, .unread = unread.value_or(0), .draft_goes_first = drafted > looked_up});
  if (looked_up > 0) add_rows(looked_up, most, /*by_draft=*/false);
  if (drafted > looked_up) add_rows(drafted, most, /*by_draft=*/true);
}

void Speculator::add_rows(double share, int32_t most, bool by_draft) {
  double all_right = 1;
  for (int32_t i = 0; i < most; ++i) {
    all_right *= share;
    rows_.push_back({static_cast<float>(all_right), static_cast<int32_t>(candidates_.size()) - 1, i, by_draft});
  }
}

bool Speculator::may_have(const Row& row, Drafts drafts) const {
  const Candidate& of = candidates_[static_cast<size_t>(row.candidate)];
  const bool drafted = of.draft_goes_first && drafts != Drafts::kNone && (drafts == Drafts::kOfAll || of.unread <= kMostUnread);
  return row.by_draft == drafted;
}

// Of one request earlier rows are likelier than later ones, so any number of the likeliest is a beginning of each request's. A
// draft model's step is of all texts that are guessed for so far, of which the first reads what is new.
Speculator::Choice Speculator::choose(int32_t known, Drafts drafts) {
  std::array<int32_t, kMostGuessed> draft_rows = {};  // of each of its steps
  double tokens = known, draft_s = 0;
  const double least = known / costs_.seconds(known);
  Choice best{.rate = least, .rows = 0};
  size_t chosen = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (!may_have(row, drafts)) continue;
    tokens += static_cast<double>(row.probability);
    if (row.by_draft) {
      int32_t& rows = draft_rows[static_cast<size_t>(row.place)];
      const int32_t unread = candidates_[static_cast<size_t>(row.candidate)].unread;
      const int32_t more = row.place > 0 ? 1 : unread > kMostUnread ? kUsuallyUnread : unread;
      draft_s += draft_->seconds(rows + more) - draft_->seconds(rows);
      rows += more;
    }
    const double rate = tokens / (costs_.seconds(known + static_cast<int32_t>(++chosen)) + draft_s);
    if (rate > std::max(best.rate, kLeastGain * least)) best = {.rate = rate, .rows = i + 1};
  }
  return best;
}

void Speculator::take(const Choice& choice, Drafts drafts) {
  for (size_t i = 0; i < choice.rows; ++i) {
    if (may_have(rows_[i], drafts)) ++candidates_[static_cast<size_t>(rows_[i].candidate)].count;
  }
  for (Candidate& candidate : candidates_) {
    EngineRequest& request = *candidate.request;
    request.guesser.by_draft = drafts != Drafts::kNone && candidate.draft_goes_first && candidate.unread <= kMostUnread;
    request.guess_count = candidate.count;
    if (request.guesser.matched > 0 && (candidate.count == 0 || request.guesser.by_draft)) request.guesser.rest();
    if (candidate.unread == 0 || (candidate.count > 0 && request.guesser.by_draft)) continue;
    request.guesser.rest_draft();
  }
}

// Texts that the draft model did not read, the most urgent first: as much as takes little beside the step, of those whose answers
// seem to gain it back.
void Speculator::read_texts(int32_t known, double without, double with_all) {
  const double gain_s = 1 / without - 1 / with_all;  // of each token
  const double most_s = kReadShare * costs_.seconds(known);
  int32_t left = kMostRead;
  while (left > kLeastRead && draft_->seconds(left) > most_s) left /= 2;
  left = std::min(left, draft_->max_rows());
  const double row_s = draft_->seconds(left) / left;
  for (Candidate& candidate : candidates_) {
    const EngineRequest& request = *candidate.request;
    if (left == 0) return;
    if (!candidate.draft_goes_first || candidate.unread <= kMostUnread) continue;
    const int32_t to_come = std::min(std::max(request.output_count(), kFirstAnswer), request.max_length - request.token_count());
    if (candidate.unread * row_s > to_come * gain_s) continue;
    candidate.read = std::min(left, candidate.unread);
    left -= candidate.read;
  }
}

// The request with the fewest tokens to read, once enough time was saved for it.
void Speculator::try_again(int32_t known) {
  Candidate* nearest = nullptr;
  for (Candidate& candidate : candidates_) {
    if (candidate.count == 0 && candidate.unread > 0 && (nearest == nullptr || candidate.unread < nearest->unread))
      nearest = &candidate;
  }
  if (nearest == nullptr) return;
  const int32_t chunk = std::min({nearest->unread, kLeastRead, draft_->max_rows()});
  const double chunk_s = draft_->seconds(chunk), row_s = costs_.seconds(known + 1) - costs_.seconds(known);
  if (purse_s_.value_or(0) < chunk_s * nearest->unread / chunk + row_s) return;
  *purse_s_ -= chunk_s;
  nearest->read = chunk;
  if (chunk < nearest->unread) return;
  *purse_s_ -= row_s;
  nearest->count = 1;
  nearest->request->guesser.by_draft = true;
}

// Texts of one adapter side by side.
void Speculator::ask_draft() {
  wishes_.clear();
  wishers_.clear();
  for (Candidate& candidate : candidates_) {
    if (candidate.request->guesser.by_draft && candidate.count > 0) candidate.read = candidate.unread;
    if (candidate.read == 0) continue;
    candidate.adapter = draft_adapter(*draft_, *candidate.request);
    wishers_.push_back(&candidate);
  }
  if (wishers_.empty()) return;
  std::sort(wishers_.begin(), wishers_.end(), [](const Candidate* a, const Candidate* b) { return a->adapter < b->adapter; });
  for (const Candidate* wisher : wishers_) {
    EngineRequest& request = *wisher->request;
    const auto wanted = static_cast<size_t>(request.guesser.by_draft ? wisher->count : 0);
    wishes_.push_back({.id = request.id,
                       .text = request.tokens,
                       .max_length = request.max_length,
                       .adapter = wisher->adapter,
                       .read = wisher->read,
                       .out = std::span(request.guesses).first(wanted)});
  }
  draft_->guess(wishes_);
  for (size_t i = 0; i < wishes_.size(); ++i) {
    EngineRequest& request = *wishers_[i]->request;
    if (request.guesser.by_draft) request.guess_count = wishes_[i].given;
  }
}

void Speculator::add_step(const sched::StepPlan& plan, double seconds) {
  if (!enabled_) return;
  const auto is_one_token = [](const sched::PlanItem& item) { return item.is_decode || item.draft_count > 0; };
  if (std::all_of(plan.items().begin(), plan.items().end(), is_one_token)) costs_.add(plan.total_tokens(), seconds);
  if (draft_ == nullptr || costs_.empty()) return;
  const double step_s = costs_.seconds(1);
  purse_s_ = std::min(purse_s_ ? *purse_s_ + kTryShare * seconds : kFirstSavedSteps * step_s, kMostSavedSteps * step_s);
}

void Speculator::judge(EngineRequest& request, int32_t guessed, int32_t right) {
  if (guessed == 0) return;
  ++stats_.drafts;
  stats_.guessed += guessed;
  stats_.right += right;
  for (int32_t i = 0; i < right; ++i) ++stats_.right_at[static_cast<size_t>(i)];
  if (!request.guesser.by_draft) return request.guesser.judge(record_, guessed, right);
  request.guesser.judge_draft(draft_record_, guessed, right);
  stats_.draft_guessed += guessed;
  stats_.draft_right += right;
}

void Speculator::forget(const EngineRequest& request) {
  if (draft_ != nullptr) draft_->forget(request.id);
}

SpeculationStats Speculator::stats() const {
  SpeculationStats now = stats_;
  if (draft_ == nullptr) return now;
  now.draft_steps = draft_->stats().steps;
  now.draft_seconds = draft_->stats().seconds;
  now.draft_failed = draft_->has_failed();
  return now;
}

}  // namespace choral::engine
