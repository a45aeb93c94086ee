#include "engine/speculation/draft_model.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/spare_memory.h"

namespace choral::engine {
namespace {

// A text that was not asked for in so many turns gives its blocks to others: of those that are, taking turns would read all of
// them again and again.
constexpr uint64_t kIdleTurns = 64;

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Executor> executor, int32_t max_texts, int32_t max_rows, int32_t vocab, Adapters adapters,
                       Clock clock)
    : executor_(std::move(executor)),
      max_rows_(max_rows),
      known_tokens_(static_cast<int32_t>(executor_->facts().vocab_size)),
      most_tokens_(static_cast<int32_t>(executor_->facts().max_model_len)),
      vocab_(std::min(vocab, known_tokens_)),
      adapters_(std::move(adapters)),
      clock_(std::move(clock)),
      cache_(executor_->facts().kv_pool, max_rows, /*enable_prefix_caching=*/false) {
  CHORAL_CHECK(executor_->facts().kv_pool.state_slots == 0, "a state has no way back from a wrong guess");
  active_.reserve(max_texts);
  dropped_.reserve(max_texts);
  input_.reserve(max_texts, max_rows + int64_t{kMostGuessed} * max_texts);  // guesses that came true are told once more
  output_.reserve(max_texts);
}

lora::AdapterKey DraftModel::adapter_of(std::string_view name) const {
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? lora::kBaseKey : found->second;
}

int32_t DraftModel::came_true(const Text& text, std::span<const int32_t> tokens) {
  int32_t right = 0;
  while (right < text.guessed && static_cast<size_t>(text.read + right) < tokens.size() &&
         tokens[static_cast<size_t>(text.read + right)] == text.guesses[static_cast<size_t>(right)])
    ++right;
  return right;
}

std::optional<int32_t> DraftModel::unread(uint64_t id, std::span<const int32_t> text, int32_t max_length) const {
  const auto length = static_cast<int32_t>(text.size());
  if (has_failed_ || length >= std::min(max_length, most_tokens_)) return {};
  const auto found = texts_.find(id);
  if (found != texts_.end() && found->second.is_foreign) return {};
  const bool has_room = found != texts_.end() && blocks_of(found->second) > 0;
  if (!has_room && cache_.most_blocks(int64_t{length} + 1) > cache_.free_blocks() + idle_blocks_) return {};
  if (found == texts_.end()) return length;
  return std::max(length - found->second.read - came_true(found->second, text), 1);
}

void DraftModel::forget(uint64_t id) {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return;
  cache_.release(found->second.block_tables);
  texts_.erase(found);
  if (!has_failed_) dropped_.push_back(id);
}

void DraftModel::time_steps() {
  constexpr uint64_t kNobody = ~uint64_t{0};
  const std::array<int32_t, 16> text{};
  std::array<int32_t, 6> guesses{};
  DraftWish wish{.id = kNobody, .text = text, .max_length = 32, .read = 16, .out = guesses};
  guess({&wish, 1});
  forget(kNobody);
}

void DraftModel::next_turn() {
  ++turns_;
  idle_blocks_ = 0;
  for (const auto& [id, text] : texts_) {
    if (is_idle(text)) idle_blocks_ += blocks_of(text);
  }
}

void DraftModel::guess(std::span<DraftWish> wishes) {
  for (DraftWish& wish : wishes) wish.given = 0;
  if (has_failed_ || wishes.empty()) return;
  const Status done = or_out_of_memory("tokens cannot be guessed", [&] { return guess_all(wishes); });
  if (done.ok()) return;
  has_failed_ = true;
  CHORAL_LOG(kWarn, "the draft model guesses no more: {}", done.message());
  for (DraftWish& wish : wishes) wish.given = 0;
}

Status DraftModel::guess_all(std::span<DraftWish> wishes) {
  active_.clear();
  input_.items.clear();
  input_.block_updates.clear();
  input_.token_ids.clear();
  input_.block_ids.clear();
  input_.segments.clear();
  input_.total_tokens = 0;
  for (DraftWish& wish : wishes) begin(wish);
  while (!input_.items.empty()) {
    CHORAL_RETURN_IF_ERROR(run_step());
    take_tokens();
  }
  return {};
}

// Its first rows: those of tokens that were not read.
void DraftModel::begin(DraftWish& wish) {
  const auto length = static_cast<int32_t>(wish.text.size());
  Text* text = find_or_introduce(wish);
  if (text == nullptr) return;
  text->last_use = turns_;
  settle(*text, wish.text);
  const int32_t unread = length - text->read;
  const int32_t count = std::min({wish.read, unread, max_rows_ - input_.total_tokens});
  if (count < 1 || (count < unread && wish.read >= unread)) return;  // half a text gives no guess
  const auto rows = wish.text.subspan(static_cast<size_t>(text->read), static_cast<size_t>(count));
  if (std::any_of(rows.begin(), rows.end(), [&](int32_t token) { return token < 0 || token >= known_tokens_; })) {
    text->is_foreign = true;
    return give_up(*text);
  }
  const bool guesses = count == unread && !wish.out.empty();
  if (guesses) wish.out = wish.out.first(std::min(wish.out.size(), static_cast<size_t>(most_tokens_ - length)));
  const auto beyond = guesses ? std::ssize(wish.out) - 1 : 0;
  if (!make_room(*text, int64_t{length} + beyond)) return give_up(*text);
  active_.push_back({&wish, text});
  const int32_t end = text->read + count;
  const auto news = end > text->told ? wish.text.subspan(static_cast<size_t>(text->told), static_cast<size_t>(end - text->told))
                                     : std::span<const int32_t>();
  add_item(active_.back(), count, news, text->told, guesses);
  text->told = std::max(text->told, end);
}

DraftModel::Text* DraftModel::find_or_introduce(const DraftWish& wish) {
  if (const auto found = texts_.find(wish.id); found != texts_.end()) return found->second.is_foreign ? nullptr : &found->second;
  Text* made = nullptr;
  const int32_t most = std::min(wish.max_length, most_tokens_);
  if (std::ssize(wish.text) >= most) return nullptr;
  // Without memory for it there may be some the next time.
  const Status told = or_out_of_memory("a text cannot be guessed for", [&]() -> Status {
    Text text;
    text.told = static_cast<int32_t>(wish.text.size());
    text.block_tables.resize(static_cast<size_t>(cache_.groups()));
    for (auto& table : text.block_tables) table.reserve(cache_.blocks_for(int64_t{most} + kMostGuessed));
    dropped_.reserve(dropped_.size() + texts_.size() + 1);  // forget() needs no memory
    NewRequest request{.id = wish.id, .prompt = {wish.text.begin(), wish.text.end()}, .max_length = most, .rule = {}};
    request.rule.settings.temperature = 0;
    const auto placed = texts_.emplace(wish.id, std::move(text)).first;
    made = &placed->second;
    Status known = executor_->add_request(request);
    if (!known.ok()) texts_.erase(placed);
    return known;
  });
  return told.ok() ? made : nullptr;
}

// Guesses that did not come true are written over. The last token is always computed: its row gives the first guess.
void DraftModel::settle(Text& text, std::span<const int32_t> tokens) {
  const int32_t known = text.read + came_true(text, tokens);
  text.read = std::min(known, static_cast<int32_t>(tokens.size()) - 1);
  text.guessed = 0;
}

int64_t DraftModel::blocks_of(const Text& text) {
  int64_t blocks = 0;
  for (const auto& table : text.block_tables) blocks += table.size() - table.begin();
  return blocks;
}

bool DraftModel::is_idle(const Text& text) const { return text.last_use + kIdleTurns < turns_; }

// So that the next steps of the text, up to so many tokens, need no more blocks.
bool DraftModel::make_room(Text& text, int64_t tokens) {
  while (!cache_.grow(text.block_tables, text.read, tokens)) {
    Text* longest_idle = nullptr;
    for (auto& [id, other] : texts_) {
      if (!is_idle(other) || blocks_of(other) == 0) continue;
      if (longest_idle == nullptr || other.last_use < longest_idle->last_use) longest_idle = &other;
    }
    if (longest_idle == nullptr) return false;
    give_up(*longest_idle);
  }
  return true;
}

// It is read from its beginning again, once there is room.
void DraftModel::give_up(Text& text) {
  cache_.release(text.block_tables);
  text.read = text.guessed = 0;
}

// `news` follow the first `kept` tokens that the executor knows.
void DraftModel::add_item(const Active& active, int32_t count, std::span<const int32_t> news, int32_t kept, bool wants_token) {
  Text& text = *active.text;
  StepItem item;
  item.id = active.wish->id;
  item.first_token = text.read + text.guessed;
  item.token_count = count;
  item.first_row = input_.total_tokens;
  item.logits_count = wants_token ? 1 : 0;
  item.tokens = {kept, static_cast<int32_t>(input_.token_ids.size()), static_cast<int32_t>(news.size())};
  input_.token_ids.insert(input_.token_ids.end(), news.begin(), news.end());
  for (auto& table : text.block_tables) {
    const auto ids = table.ids().subspan(static_cast<size_t>(table.unchanged()));
    input_.block_updates.push_back(
        {table.unchanged(), static_cast<int32_t>(input_.block_ids.size()), static_cast<int32_t>(ids.size())});
    input_.block_ids.insert(input_.block_ids.end(), ids.begin(), ids.end());
    table.mark_read();
  }
  if (const auto key = active.wish->adapter; key != lora::kBaseKey) {
    auto* last = input_.segments.empty() ? nullptr : &input_.segments.back();
    if (last != nullptr && last->key == key && last->start + last->length == item.first_row) {
      last->length += count;
    } else {
      input_.segments.push_back({item.first_row, count, key});
    }
  }
  input_.total_tokens += count;
  input_.items.push_back(item);
}

Status DraftModel::run_step() {
  input_.has_prefill =
      std::any_of(input_.items.begin(), input_.items.end(), [](const StepItem& item) { return item.token_count > 1; });
  input_.dropped.assign(dropped_.begin(), dropped_.end());
  dropped_.clear();
  const double begun = clock_();
  const Status computed = executor_->execute_model(input_, output_);
  const double seconds = clock_() - begun;
  costs_.add(input_.total_tokens, seconds);
  ++stats_.steps;
  stats_.seconds += seconds;
  return computed;
}

// Of each text that goes on the token is the only row of the next step.
void DraftModel::take_tokens() {
  size_t taken = 0, goes_on = 0;
  const size_t items = input_.items.size();
  CHORAL_CHECK(items == active_.size() && items == output_.items.size(), "a step answers each of its items");
  for (size_t i = 0; i < items; ++i) {
    const StepItem& item = input_.items[i];
    const auto [wish, text] = active_[i];
    if (text->guessed == 0) {
      text->read += item.token_count;
    }
    if (item.logits_count == 0) continue;
    const int32_t token = output_.tokens[taken++].token;
    if (token < 0 || token >= vocab_) continue;
    wish->out[static_cast<size_t>(wish->given++)] = token;
    if (static_cast<size_t>(wish->given) < wish->out.size()) active_[goes_on++] = active_[i];
  }
  active_.resize(goes_on);
  input_.items.clear();
  input_.block_updates.clear();
  input_.token_ids.clear();
  input_.block_ids.clear();
  input_.segments.clear();
  input_.total_tokens = 0;
  for (const Active& active : active_) {
    const int32_t& last = active.wish->out[static_cast<size_t>(active.wish->given) - 1];
    add_item(active, 1, {&last, 1}, active.text->read + active.text->guessed, /*wants_token=*/true);
    active.text->guesses[static_cast<size_t>(active.text->guessed++)] = last;
  }
}

}  // namespace choral::engine
