// `choral bench --speculation FILE`: what guessed tokens are worth for the file's prompts: each is answered without them and with
// them, in turn, by one engine. That both answers are the same is checked too. Where the engine guesses from ended answers
// (--speculative traffic), the first answer with guesses, of which it heard nothing before, is a case of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "choral/llm.h"
#include "html_page.h"
#include "progress.h"
#include "text_table.h"

namespace choral::apps {

struct BenchPrompt {
  std::string name;  // its line's id, else its number
  Request request;
};

// One a line: an object as `choral generate --input` reads it, or a text. Greedy, and of 256 tokens, where it says nothing else.
Result<std::vector<BenchPrompt>> read_bench_prompts(const std::string& path);

// What the engine may know of a case's answers when it guesses.
enum class HeardBefore : uint8_t { kNothing, kNotTheAnswer, kTheAnswer };

// A prompt alone, or all of them so many at a time.
struct SpeculationCase {
  std::string name;
  int batch = 1;
  HeardBefore heard = HeardBefore::kNothing;  // else ended answers are guessed from
  int64_t tokens = 0;                         // of its answers
  GuessCounts guesses = {};
  double plain_s = 0, guessing_s = 0;  // medians

  double right_share() const {
    return guesses.guessed > 0 ? static_cast<double>(guesses.right) / static_cast<double>(guesses.guessed) : 0;
  }
  // Of an answer, which has at least one that nobody guessed.
  double tokens_per_step() const {
    return static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(tokens - guesses.right, 1));
  }
  double gain() const { return plain_s / guessing_s; }
};

struct SpeculationReport {
  int rounds = 0;
  std::vector<SpeculationCase> cases;
};

// internal_error: an answer was another with guesses than without. invalid_argument: `llm` does not guess.
Result<SpeculationReport> measure_speculation(LLM& llm, const std::vector<BenchPrompt>& prompts, const std::vector<int>& batches,
                                              int rounds, Progress& progress);

inline constexpr std::string_view kSpeculationRemark =
    "Runs without guesses and with them alternate; times are medians, from the request to the answer's end, with the prompt in "
    "the "
    "prefix cache. Every answer was the same in all runs, token by token.";
// … and this, where ended answers are guessed from.
inline constexpr std::string_view kTrafficRemark =
    "Ended answers are guessed from. In rows with \"new\" each answer was made for the first time with guesses, once; in rows "
    "with "
    "\"again\" the very answer had been made before, which is as good as it gets.";
std::string speculation_remark(const SpeculationReport& report);

TextTable speculation_table(const SpeculationReport& report);
nlohmann::ordered_json speculation_json(const SpeculationReport& report);
void add_speculation_report(const SpeculationReport& report, HtmlPage& to);

}  // namespace choral::apps
