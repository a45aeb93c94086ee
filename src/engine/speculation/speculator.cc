#include "engine/speculation/speculator.h"

#include <algorithm>

#include "base/log.h"
#include "engine/engine_request.h"
#include "engine/spare_memory.h"

namespace choral::engine {
namespace {

constexpr double kLeastGain = 1.02;   // of tokens a second: less is not worth a doubt
constexpr double kWorthOfLate = 0.8;  // what is worth a row changes from step to step
// A step that reads a prompt has at most so many guesses for each of its other rows: somebody waits for a first token, and each
// guess makes the step longer.
constexpr double kShareBesidePrompts = 0.25;
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

// Sets where it comes from.
int32_t look_up(EngineRequest& request, std::span<int32_t> out) {
  return request.guesser.look_up(request.tokens, request.prompt_count, request.max_length, out);
}

bool is_thought_out(const EngineRequest& request) {
  return request.thoughts && request.thoughts->forced() != ThoughtBudget::kAny;
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

// A mix has no draft adapter of its own.
lora::AdapterKey draft_adapter(const DraftModel& draft, const EngineRequest& request) {
  if (request.adapters.size() != 1) return lora::kBaseKey;
  return draft.adapter_of(request.adapters[0].version->request.lora_name);
}

// Of requests that share what they compute with nobody, none.
const std::optional<cache::PrefixRoot>& group_of(const EngineRequest& request) {
  return request.activation_token > 0 ? request.activated_root : request.prefix_root;
}

}  // namespace

Speculator::Speculator(int32_t most_guessed, int32_t max_num_seqs, int64_t traffic_bytes, std::unique_ptr<DraftModel> draft,
                       Clock mask_clock)
    : most_guessed_(most_guessed), draft_(std::move(draft)), mask_clock_(std::move(mask_clock)) {
  if (traffic_bytes > 0 && most_guessed > 0) traffic_.emplace(traffic_bytes);
  candidates_.reserve(max_num_seqs);
  rows_.reserve(static_cast<size_t>(max_num_seqs) * kMostGuessed * (draft_ == nullptr ? 1 : 2));
  wishes_.reserve(draft_ == nullptr ? 0 : max_num_seqs);
  wishers_.reserve(draft_ == nullptr ? 0 : max_num_seqs);
}

void Speculator::guess(std::span<sched::Request* const> running, int64_t arrived) {
  candidates_.clear();
  rows_.clear();
  known_masks_s_ = 0;
  if (most_guessed_ == 0) return;
  if (draft_ != nullptr) draft_->next_turn();
  int32_t known = 0;
  int64_t read = arrived;
  for (sched::Request* scheduled : running) {
    auto& request = static_cast<EngineRequest&>(*scheduled);
    request.guess_count = 0;
    if (request.sits_out) continue;
    if (request.remaining() != 1) {
      read += request.remaining();
      continue;
    }
    ++known;
    if (!costs_.empty()) consider(request);
  }
  most_rows_ = read == 0 ? rows_.size() : static_cast<size_t>(kShareBesidePrompts * static_cast<double>(known + read));
  if (known > 0 && !costs_.empty())
    least_worth_ = kWorthOfLate * known / costs_.seconds(known) * (costs_.seconds(known + 1) - costs_.seconds(known));
  if (rows_.empty() || most_rows_ == 0 || costs_.is_stale(known)) return;  // what a step costs without guesses is looked at again
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.probability > b.probability; });
  const Choice without = choose(known, Drafts::kNone);
  if (draft_ == nullptr) {
    take(without, Drafts::kNone);
  } else {
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
  finish_guesses();
}

// So many tokens may be guessed of it, when its next step is one of a token.
int32_t Speculator::most_of(const EngineRequest& request) const {
  if (request.output_count() == 0 || (request.grammar != nullptr && request.thoughts)) return 0;
  int64_t most = std::min({most_guessed_, request.guesser.most(), request.max_length - request.token_count() - 1});
  if (request.thoughts && !is_thought_out(request)) most = std::min(most, request.thoughts->free_count());
  return static_cast<int32_t>(most);
}

// Guesses of both kinds, where there are any.
void Speculator::consider(EngineRequest& request) {
  Guesser& guesser = request.guesser;
  const int32_t most = most_of(request);
  if (most < 1) return;
  const int32_t written = write_guess(request, std::span(request.guesses).first(static_cast<size_t>(most)));
  const bool may_draft = draft_ != nullptr && request.grammar == nullptr && !is_thought_out(request);
  const auto unread = may_draft ? draft_->unread(request.id, request.tokens, request.max_length) : std::nullopt;
  if (written == 0 && !unread) return;
  const double of_written = written == 0 ? 0 : guesser.share(record_);
  const double of_draft = unread ? guesser.share(record_, kByDraft) : 0;
  candidates_.push_back({.request = &request,
                         .written = written,
                         .unread = unread.value_or(0),
                         .draft_goes_first = of_draft > of_written,
                         .mask_s = mask_seconds(request)});
  known_masks_s_ += candidates_.back().mask_s;
  if (written > 0) add_rows(of_written, written, /*by_draft=*/false);
  if (of_draft > of_written) add_rows(of_draft, most, /*by_draft=*/true);
}

int32_t Speculator::write_guess(EngineRequest& request, std::span<int32_t> out) const {
  if (request.grammar != nullptr) return write_allowed_guess(request, out);
  if (!is_thought_out(request)) return look_up(request, out);
  request.guesser.set_from(kByForm);
  return write_forced(request, out);
}

// Of what the text and what its form suggest, that which is right more often.
int32_t Speculator::write_allowed_guess(EngineRequest& request, std::span<int32_t> out) const {
  Guesser& guesser = request.guesser;
  AnswerGrammar& grammar = *request.grammar;
  if (!grammar.is_bounded()) {
    guesser.set_from(grammar.ahead_is_likely() ? kByForm : guesser.wished_from);
    const auto ahead = grammar.ahead().first(std::min(grammar.ahead().size(), out.size()));
    std::copy(ahead.begin(), ahead.end(), out.begin());
    return static_cast<int32_t>(ahead.size());
  }
  int32_t found = look_up(request, out);
  if (found > 0 && !grammar.allows(out.front())) found = 0;
  if (found > 0 && guesser.share(record_) >= guesser.share(record_, kByForm)) {
    guesser.rest(kByForm);
    return found;
  }
  if (worth(guesser.share(record_, kByForm), 1) == 0) {  // to look for it costs time too
    guesser.rest(kByForm);
    return found;
  }
  std::array<int32_t, kMostGuessed> likely = {};
  const int32_t by_form = grammar.likely(std::span(likely).first(out.size()));
  if (by_form == 0 || !grammar.allows(likely.front())) return found;
  std::copy_n(likely.begin(), by_form, out.begin());
  guesser.set_from(kByForm);
  return by_form;
}

// Of one mask: as the answer's took, and before its first as those of all.
double Speculator::mask_seconds(const EngineRequest& request) const {
  if (request.grammar == nullptr || !request.grammar->is_bounded()) return 0;
  const MaskAccount& own = request.grammar->account;
  const MaskAccount& known = own.masks > 0 ? own : masks_;
  return known.masks > 0 ? known.spent_s / static_cast<double>(known.masks) : 0;
}

// Those that it makes at once are timed. Others are there already.
void Speculator::make_masks(EngineRequest& request) {
  AnswerGrammar& grammar = *request.grammar;
  if (!grammar.is_bounded()) {
    request.guess_count = grammar.look_ahead(request.guessed());
    return;
  }
  grammar.take_masks_made();  // behind known tokens, which nobody timed
  const double begun = mask_clock_();
  request.guess_count = grammar.look_ahead(request.guessed());
  const double seconds = mask_clock_() - begun;
  const int64_t made = grammar.take_masks_made();
  if (made == 0) return;
  for (MaskAccount* account : {&grammar.account, &masks_}) {
    account->spent_s += seconds;
    account->masks += made;
  }
}

// What a guess needs beside its row, and where it must end.
void Speculator::finish_guesses() {
  for (const Candidate& candidate : candidates_) {
    EngineRequest& request = *candidate.request;
    if (request.guess_count == 0) continue;
    if (request.grammar != nullptr) make_masks(request);
    if (request.thoughts && !is_thought_out(request)) request.guess_count = request.thoughts->free_of(request.guessed());
  }
}

void Speculator::wish(EngineRequest& request) {
  AnswerGrammar::Wish& wish = request.grammar->wish;
  wish = {};
  const int32_t most = most_of(request);
  if (costs_.empty() || most < 1) return;
  Guesser& guesser = request.guesser;
  const int32_t found = look_up(request, std::span(wish.tokens).first(static_cast<size_t>(most)));
  guesser.wished_from = guesser.from();
  wish.count = worth(guesser.share(record_), found);
  wish.likely_count = worth(guesser.share(record_, kByForm), most);
  if (wish.count == 0) guesser.rest(guesser.from());
  if (wish.likely_count == 0) guesser.rest(kByForm);
  wish.likely_first = guesser.share(record_, kByForm) > guesser.share(record_);
}

// As many tokens, one behind the other, as are worth their rows.
int32_t Speculator::worth(double share, int32_t most) const {
  int32_t count = 0;
  for (double all_right = share; count < most && all_right > least_worth_; all_right *= share) ++count;
  return count;
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
  double tokens = known, draft_s = 0, masks_s = known_masks_s_;
  const double least = known / (costs_.seconds(known) + masks_s);
  Choice best{.rate = least, .rows = 0};
  size_t chosen = 0;
  for (size_t i = 0; i < rows_.size() && chosen < most_rows_; ++i) {
    const Row& row = rows_[i];
    if (!may_have(row, drafts)) continue;
    tokens += static_cast<double>(row.probability);
    masks_s += candidates_[static_cast<size_t>(row.candidate)].mask_s;
    if (row.by_draft) {
      int32_t& rows = draft_rows[static_cast<size_t>(row.place)];
      const int32_t unread = candidates_[static_cast<size_t>(row.candidate)].unread;
      const int32_t more = row.place > 0 ? 1 : unread > kMostUnread ? kUsuallyUnread : unread;
      draft_s += draft_->seconds(rows + more) - draft_->seconds(rows);
      rows += more;
    }
    const double rate = tokens / (costs_.seconds(known + static_cast<int32_t>(++chosen)) + draft_s + masks_s);
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
    Guesser& guesser = request.guesser;
    const bool by_draft = drafts != Drafts::kNone && candidate.draft_goes_first && candidate.unread <= kMostUnread;
    request.guess_count = candidate.count;
    if (candidate.written > 0 && (candidate.count == 0 || by_draft)) guesser.rest(guesser.from());
    if (candidate.unread > 0 && (candidate.count == 0 || !by_draft)) guesser.rest(kByDraft);
    if (by_draft) guesser.set_from(kByDraft);
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
  nearest->request->guesser.set_from(kByDraft);
}

// Texts of one adapter side by side.
void Speculator::ask_draft() {
  wishes_.clear();
  wishers_.clear();
  for (Candidate& candidate : candidates_) {
    if (candidate.request->guesser.from() == kByDraft && candidate.count > 0) candidate.read = candidate.unread;
    if (candidate.read == 0) continue;
    candidate.adapter = draft_adapter(*draft_, *candidate.request);
    wishers_.push_back(&candidate);
  }
  if (wishers_.empty()) return;
  std::sort(wishers_.begin(), wishers_.end(), [](const Candidate* a, const Candidate* b) { return a->adapter < b->adapter; });
  for (const Candidate* wisher : wishers_) {
    EngineRequest& request = *wisher->request;
    const auto wanted = static_cast<size_t>(request.guesser.from() == kByDraft ? wisher->count : 0);
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
    if (request.guesser.from() == kByDraft) request.guess_count = wishes_[i].given;
  }
}

void Speculator::add_step(const sched::StepPlan& plan, double seconds) {
  if (most_guessed_ == 0) return;
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
  request.guesser.judge(record_, guessed, right);
  if (request.guesser.from() != kByDraft) return;
  stats_.draft_guessed += guessed;
  stats_.draft_right += right;
}

void Speculator::begin(EngineRequest& request) {
  if (most_guessed_ > 0 && request.guesser.most() > 0 && request.grammar != nullptr && !request.thoughts)
    request.grammar->make_room_ahead();
  if (const auto& group = group_of(request); traffic_ && group) request.guesser.set_traffic(&*traffic_, *group);
}

void Speculator::end(const EngineRequest& request) {
  if (draft_ != nullptr) draft_->forget(request.id);
  const bool is_sound = request.finish_reason != sched::FinishReason::kError && !request.is_distrusted;
  if (const auto& group = group_of(request); traffic_ && group && is_sound && request.guesser.most() > 0) keep(*group, request);
}

// Without memory for it nothing is lost.
void Speculator::keep(const cache::PrefixRoot& group, const EngineRequest& request) {
  const Status kept = or_out_of_memory("an ended answer cannot be kept", [&] {
    traffic_->add(group, request.tokens, request.prompt_count);
    return Status();
  });
  if (!kept.ok()) CHORAL_LOG(kDebug, "{}", kept.message());
}

SpeculationStats Speculator::stats() const {
  SpeculationStats now = stats_;
  now.traffic_bytes = traffic_ ? traffic_->size_bytes() : 0;
  if (draft_ == nullptr) return now;
  now.draft_steps = draft_->stats().steps;
  now.draft_seconds = draft_->stats().seconds;
  now.draft_failed = draft_->has_failed();
  return now;
}

}  // namespace choral::engine
