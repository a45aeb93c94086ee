// A small model that guesses how texts go on: it reads what it has not read of a text, and then takes its likeliest token a few
// times in turn. Many texts share each of its steps. It has an executor, with weights and KV blocks, of its own, and knows
// nothing of the engine: texts are token ids under a number. What it read of a text stays until forget(), or until others need
// the blocks; what it guessed wrongly it takes back by itself. A text has room for all of it or none: one that finds too little
// gives up what it has, so that texts that fit in part do not keep each other waiting. A text without room is not guessed for,
// and an error ends all guessing: neither harms an answer. Its steps are timed. Engine thread only; nothing allocates but a
// text's first step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "cache/kv_cache_manager.h"
#include "engine/executor.h"
#include "engine/speculation/step_costs.h"

namespace choral::engine {

// What is wanted of one text.
struct DraftWish {
  uint64_t id = 0;                // of the text
  std::span<const int32_t> text;  // the last time's and more
  int32_t max_length = 0;         // that it may come to
  lora::AdapterKey adapter = {};  // DraftModel::adapter_of()'s
  int32_t read = 0;               // of its tokens that were not read, so many at most are; all of them, and guesses follow
  std::span<int32_t> out = {};    // the guesses; at most kMostGuessed
  int32_t given = 0;              // so many were made
};

struct DraftStats {
  int64_t steps = 0;
  double seconds = 0;
};

class DraftModel {
 public:
  static constexpr int32_t kMostGuessed = kMostLogitsRows - 1;
  // By its name, what the executor has of an adapter.
  using Adapters = std::map<std::string, lora::AdapterKey, std::less<>>;

  // A step has at most so many texts, and rows; ids from `vocab` on are no guesses. The executor's model has no states.
  DraftModel(std::unique_ptr<Executor> executor, int32_t max_texts, int32_t max_rows, int32_t vocab, Adapters adapters = {},
             Clock clock = now_s);

  // Before each step of the engine, whether anything is wished for then or not: what is long unused makes room for others.
  void next_turn();
  // The tokens of the text that it has not read, 1 at least; nothing where it cannot guess for it now.
  std::optional<int32_t> unread(uint64_t id, std::span<const int32_t> text, int32_t max_length) const;
  // Of the base: none.
  lora::AdapterKey adapter_of(std::string_view name) const;
  // The wishes are sorted by their adapters. At most max_texts, of different texts; those that have no room in a step go without.
  void guess(std::span<DraftWish> wishes);
  // The text has ended.
  void forget(uint64_t id);
  // Takes the steps of a short text, so that it is known what many rows cost, and one, before the first text comes.
  void time_steps();

  // Of a step of so many rows.
  double seconds(int32_t rows) const { return rows > 0 ? costs_.seconds(rows) : 0; }
  bool has_failed() const { return has_failed_; }
  int32_t max_rows() const { return max_rows_; }
  size_t known_texts() const { return texts_.size(); }
  const cache::KVCacheManager& cache() const { return cache_; }
  const DraftStats& stats() const { return stats_; }

 private:
  struct Text {
    int32_t read = 0;                             // its first tokens whose keys are in the blocks
    int32_t told = 0;                             // that the executor knows, and keeps; more than were read
    int32_t guessed = 0;                          // keys of so many guesses follow those that were read
    std::array<int32_t, kMostGuessed> guesses{};  // those
    bool is_foreign = false;                      // it holds a token that this model does not know
    uint64_t last_use = 0;                        // turn
    std::vector<cache::BlockTable> block_tables;
  };
  struct Active {
    DraftWish* wish;
    Text* text;
  };
  Status guess_all(std::span<DraftWish> wishes);
  void begin(DraftWish& wish);
  Text* find_or_introduce(const DraftWish& wish);
  void settle(Text& text, std::span<const int32_t> tokens);
  static int32_t came_true(const Text& text, std::span<const int32_t> tokens);
  static int64_t blocks_of(const Text& text);
  bool is_idle(const Text& text) const;
  bool make_room(Text& text, int64_t tokens);
  void give_up(Text& text);
  void add_item(const Active& active, int32_t count, std::span<const int32_t> news, int32_t kept, bool wants_token);
  Status run_step();
  void take_tokens();

  std::unique_ptr<Executor> executor_;
  const int32_t max_rows_, known_tokens_, most_tokens_;
  const int32_t vocab_;
  Adapters adapters_;
  Clock clock_;
  cache::KVCacheManager cache_;
  StepCosts costs_;
  DraftStats stats_;
  bool has_failed_ = false;
  uint64_t turns_ = 0;
  int64_t idle_blocks_ = 0;  // of texts that nobody asked for in a long time
  std::unordered_map<uint64_t, Text> texts_;
  std::vector<uint64_t> dropped_;
  std::vector<Active> active_;  // of the step, in the order of its items
  StepInput input_;
  StepOutput output_;
};

}  // namespace choral::engine
