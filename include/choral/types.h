// The types of the engine's API: sampling parameters, requests, outputs. Plain records; defaults are those of vLLM and OpenAI.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "choral/status.h"

namespace choral {

struct SamplingParams {
  int n = 1;                 // independent answers to the prompt
  int best_of = 0;           // this many are made, and the n with the highest mean log-probability are given; 0 = n
  int max_tokens = 16;       // of each answer; 0 = up to the model's length
  int min_tokens = 0;        // no stop before this many tokens
  float temperature = 1.0f;  // 0 = greedy
  int top_k = 0;             // 0 = all
  float top_p = 1.0f;        // 0 = the most likely alone
  float min_p = 0.0f;
  float typical_p = 1.0f;           // locally typical tokens that together have this probability; 1 = off
  float top_n_sigma = -1.0f;        // logits within so many standard deviations of the largest; 0 or less = off
  float xtc_probability = 0.0f;     // how often XTC drops the likeliest tokens but one of those with xtc_threshold; 0 = off
  float xtc_threshold = 0.1f;       // above 0.5 = off
  float presence_penalty = 0.0f;    // -2 … 2, over the answer
  float frequency_penalty = 0.0f;   // -2 … 2, over the answer
  float repetition_penalty = 1.0f;  // > 0, over prompt and answer
  int penalty_last_n = -1;          // the three look at so many last tokens of prompt and answer; -1 = all, 0 = off
  // DRY, as llama.cpp has it: a token that would go on with a repetition of `dry_allowed_length` or more tokens loses
  // multiplier · base^(length − allowed). A breaker ends what can be repeated.
  float dry_multiplier = 0.0f;  // 0 = off
  float dry_base = 1.75f;       // >= 1
  int dry_allowed_length = 2;
  int dry_penalty_last_n = -1;  // among so many last tokens of prompt and answer; -1 = all, 0 = off
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::optional<uint64_t> seed = {};  // same seed = same text in any batch; absent = drawn from the engine's seed
  std::vector<std::string> stop = {};
  std::vector<int32_t> stop_token_ids = {};
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  std::optional<int> logprobs = {};                        // the chosen token's and this many most likely ones'
  std::vector<int32_t> logprob_token_ids = {};             // these tokens' ones, in this order, instead of the most likely ones'
  std::optional<int> prompt_logprobs = {};                 // the same for each prompt token
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // −inf: never
  std::vector<std::pair<std::string, float>> logit_bias_texts = {};  // the same for each token of a text
  std::vector<int32_t> allowed_token_ids = {};                       // empty = all
  std::vector<std::string> bad_words = {};
};

// A text, or its token ids.
using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct ChatMessage {
  std::string role = {};
  std::string content = {};
};

// An adapter of a request and the factor its effect is multiplied by (on top of its own α/r).
struct AdapterUse {
  std::string name = {};
  float scale = 1.0f;
};

// What the answer must look like; tokens that would break it cannot be sampled. `text` holds the JSON schema, the regular
// expression, the grammar (EBNF, rule "root") or the structural tags' JSON; `choices` the texts of kChoice.
struct StructuredOutput {
  enum class Kind { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar, kStructuralTag };
  Kind kind = Kind::kNone;
  std::string text = {};
  std::vector<std::string> choices = {};

  bool operator==(const StructuredOutput&) const = default;
};

// How long an answer may think. Behind so many tokens of thoughts, which the model may end before, comes what ends them.
struct ThoughtLimit {
  int max_tokens = -1;                   // of all thoughts together; -1 = no limit
  std::vector<std::string> begins = {};  // each begins thoughts, where the answer begins
  std::vector<std::string> ends = {};    // each ends them
  std::string forced_end = {};           // what is put there: one of `ends`, or a text that begins with one
  bool again = false;                    // they may begin again, anywhere behind those before
  bool open = false;                     // the prompt began them
};

// Tokens of an answer that were guessed before they were drawn, which changes no token (EngineOptions::speculative).
struct GuessCounts {
  int64_t guessed = 0, right = 0;
  int64_t predicted = 0, predicted_right = 0;  // of these, those that Request::prediction gave

  GuessCounts& operator+=(const GuessCounts& other) {
    guessed += other.guessed;
    right += other.right;
    predicted += other.predicted;
    predicted_right += other.predicted_right;
    return *this;
  }
  friend GuessCounts operator-(const GuessCounts& a, const GuessCounts& b) {
    return {a.guessed - b.guessed, a.right - b.right, a.predicted - b.predicted, a.predicted_right - b.predicted_right};
  }
};

// The beginning of an answer that was given before: this one goes on behind it, as if it had never been cut off.
struct GivenAnswer {
  std::vector<int32_t> token_ids = {};  // all of them, in order
  bool ended = false;                   // its end was told too
};

struct Request {
  std::string id = {};  // chosen by the caller; empty = given by the engine
  // Exactly one of the next four says what to continue.
  std::optional<std::string> prompt = {};
  std::vector<int32_t> prompt_token_ids = {};
  std::vector<ChatMessage> messages = {};
  std::string messages_json = {};  // OpenAI's `messages` array, for content that ChatMessage cannot hold

  std::string tools_json = {};            // OpenAI's `tools` array, given to the chat template
  std::string template_kwargs_json = {};  // extra variables of the chat template
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer goes on with the last message, of any role: no turn ends, none begins
  bool add_special_tokens = true;       // for `prompt`: BOS and the like, as the tokenizer says
  // A longer prompt keeps this many tokens, the last ones or the first. -1: as many as fit beside max_tokens. 0: all; a prompt
  // that does not fit is refused.
  int truncate_prompt_tokens = 0;
  enum class TruncationSide { kLeft, kRight } truncation_side = TruncationSide::kLeft;  // which loses its tokens

  // Empty: the base model. Several act together, each with its factor: y = W·x + Σ scale·ΔW·x.
  std::vector<AdapterUse> adapters = {};

  // Instead of an answer the prompt's embedding: the final hidden state of its last token, or the mean of all where the model's
  // files say so (1_Pooling/config.json), with length 1. `sampling` is not used.
  bool embedding = false;
  int embedding_dimensions = 0;  // its first so many numbers, with length 1: of models that were trained so. 0: all
  // Instead of an answer what a model with a head of classes (…ForSequenceClassification) makes of the prompt's last token.
  bool classes = false;

  bool gives_text() const { return !embedding && !classes; }

  // Of each of the n answers what was given of it before; those that are missing begin. The rest is what the undisturbed answer
  // would have had, to the bit, if seed, prompt, adapters and all that rules it are the same: counts of tokens begin with the
  // answer, not with the rest. With best_of above n there is none.
  std::vector<GivenAnswer> given = {};
  // Of what the answer began with, SHA-256 in hex or its first digits: of the prompt's token ids (32 bits each, little-endian),
  // and of the contents of `adapters`, in order. With others it does not go on. Empty or absent: with any.
  std::string given_prompt = {};
  std::optional<std::vector<std::string>> given_adapters = {};

  SamplingParams sampling = {};
  int priority = 0;             // lower = earlier
  bool in_background = false;   // behind all that are not: runs where they leave room, and gives its own to them
  std::string cache_salt = {};  // requests share cached prefixes only within one salt

  StructuredOutput structured_output = {};
  ThoughtLimit thought_limit = {};

  // What the answer will say in all likelihood, such as the text that it edits: tokens are guessed from it too.
  std::string prediction = {};
  int most_guessed = -1;  // tokens in a step; 0: none are guessed; -1, or more than EngineOptions::most_guessed: as many as that

  // Limits in seconds, from submission on; 0 = EngineOptions'. A request that reaches one ends with deadline_exceeded; its answer
  // so far can be read.
  double timeout_s = 0;        // to the end of the answer
  double queue_timeout_s = 0;  // to its first step
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
CHORAL_API std::string_view finish_reason_name(FinishReason reason);  // "stop"

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
};

// One position: the token that stands there and the most likely ones, best first.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
  int32_t rank = 0;  // of a prompt's `chosen` among all tokens, from 1; an answer's are not counted: 0
};

struct Completion {
  int index = 0;  // 0 … n-1
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<PositionLogprobs> logprobs;  // one a token when asked for
  double cumulative_logprob = 0;
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_reason;        // the stop string or token id that ended it
  bool stopped_by_token = false;  // it is an id
  // What the request brought of it, and its text as far as that was certain. All the above is of the rest.
  std::vector<int32_t> given_token_ids;
  std::string given_text;
  GuessCounts guesses = {};
};

// An adapter that an answer is made with, and which content of its name.
struct AnswerAdapter {
  std::string name;
  int generation = 0;  // AdapterInfo's
  std::string digest;  // SHA-256 of the content in hex
  float scale = 1.0f;
};

// What is known of an answer so far: `prompt_tokens` and `seed` at once, the rest from its first step on.
struct AnswerFacts {
  int prompt_tokens = 0;
  uint64_t seed = 0;                    // the request's, or the one that was drawn for it: with it the answer is the same
  int cached_tokens = 0;                // of them, served from the prefix cache; with several completions: for the first one
  std::vector<AnswerAdapter> adapters;  // as the request names them; empty: the base
  bool begun = false;                   // one of its completions was in a step
  double queue_s = 0;                   // until then it waited for a place in a batch
  int64_t made_tokens = 0;              // by all completions so far, those included that best_of keeps back; none that were given
  bool adapter_unusable = false;  // it failed by what an adapter's files hold, or by their absence: the request may be right
};

struct RequestMetrics {
  double queue_s = 0;        // waiting for a place in a batch
  double first_token_s = 0;  // from submission to the first token
  double total_s = 0;
  int preemptions = 0;  // times that it gave its place back and started again
};

struct RequestOutput {
  std::string id;
  Status status;  // an error of this request alone; its neighbours are not affected
  std::vector<int32_t> prompt_token_ids;
  std::vector<PositionLogprobs> prompt_logprobs;  // from the second prompt token on
  std::vector<Completion> completions;            // `n` of them
  std::vector<float> embedding;                   // instead of completions
  std::vector<float> classes;                     // instead of them too: of each class its logit
  int cached_tokens = 0;                          // AnswerFacts'
  std::vector<AnswerAdapter> adapters;            // AnswerFacts'
  RequestMetrics metrics;
};

// The tokens with which a model fills the gap between two texts; absent: it has none such.
struct FillTokens {
  std::optional<int32_t> prefix = {}, suffix = {}, middle = {};  // before the text that goes before, the one behind, the answer
  std::optional<int32_t> pad = {};
  std::optional<int32_t> repository = {}, file = {};  // before a repository's name, and before a file's
};

// What is new since the last event of one completion.
struct StreamEvent {
  int index = 0;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;     // all of them, in the first event of index 0, when they were asked for
  FinishReason finish_reason = FinishReason::kNone;  // set in the last event of this index
  std::string stop_reason;                           // with it: Completion::stop_reason
  bool stopped_by_token = false;                     // and Completion::stopped_by_token
  GuessCounts guesses = {};                          // since the last event
};

// What a stream has for its reader now.
enum class StreamState {
  kEvent,    // an event, which was given
  kPending,  // nothing yet
  kEnd,      // nothing more: the answer is complete and all of it was given
};

}  // namespace choral
