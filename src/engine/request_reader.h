// Turns a caller's Request into checked engine requests: chat template, tokens, limits, sampling parameters. It runs on the
// caller's thread, so that a long prompt or a slow template never holds up a step. A refusal says what is wrong and what would be
// right.
// Thread-safe: immutable but for a counter, the breakers of DRY and the compiler of grammars, which is made when the first
// request wants one.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/dry_breakers.h"
#include "engine/engine_request.h"
#include "engine/model_loader.h"
#include "text/chat_template.h"
#include "text/grammar/grammar.h"

namespace choral::engine {

// What a request is checked against.
struct RequestLimits {
  int32_t vocab = 0;
  int32_t max_model_len = 0;
  models::Head head = {};
  int64_t embedding_size = 0;
  uint64_t seed = 0;                          // of requests that bring none
  double timeout_s = 0, queue_timeout_s = 0;  // of requests that bring none; 0 = none
  bool guesses = true;                        // the engine does; else nobody reads a prediction
};

// What a request's adapters make of these.
struct RequestTokens {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: the base's
  std::optional<int32_t> eos_id;                     // ends the answer beside the base's
  int64_t more_ids = 0;  // that it may name beyond the base's; the engine knows which of them there are
};

// invalid_argument: two of them add other tokens to the base's tokenizer, and a text has one.
Result<RequestTokens> tokens_of(std::span<const VersionUse> adapters);

// Of a model's tokens and the ids that end its answers.
using MakeGrammarCompiler =
    std::function<Result<std::unique_ptr<text::GrammarCompiler>>(const text::Tokenizer& tokenizer, std::vector<int32_t> end_ids)>;

class RequestReader {
 public:
  static Result<std::unique_ptr<RequestReader>> make(const ModelFiles& files, const RequestLimits& limits,
                                                     MakeGrammarCompiler make_grammar_compiler = the_grammar_compiler);
  static Result<std::unique_ptr<text::GrammarCompiler>> the_grammar_compiler(const text::Tokenizer& tokenizer,
                                                                             std::vector<int32_t> end_ids);

  Result<AdmittedRequest> read(Request request, const RequestTokens& tokens = {});
  // One for each of the prompts; LLM::submit_each() says more. What is wrong with one of several is told with its number.
  Result<std::vector<AdmittedRequest>> read_each(Request request, std::vector<Prompt> prompts, const RequestTokens& tokens = {});
  Result<std::string> apply_chat_template(const Request& request) const;
  Status structured_output_support();  // as LLM's

  const std::vector<int32_t>& eos_token_ids() const { return eos_ids_; }
  bool has_chat_template() const;                      // one that can be used
  std::string template_source(bool with_tools) const;  // of the one that such requests get; empty: none

 private:
  RequestReader(const ModelFiles& files, const RequestLimits& limits)
      : tokenizer_(files.tokenizer), limits_(limits), pooling_(files.pooling) {}
  struct Wish;
  struct ReadPrompt;
  // Takes the sampling out of the request.
  Result<Wish> read_wish(Request& request, const RequestTokens& tokens);
  Result<std::shared_ptr<const Prediction>> read_prediction(const Request& request, const text::Tokenizer* tokenizer) const;
  Status add_texts(Wish& wish);  // of the sampling, as tokens, to its rule
  // Takes the prompt out of the request.
  Result<ReadPrompt> read_own_prompt(Request& request, const Wish& wish) const;
  Result<AdmittedRequest> admit(const Request& request, const Wish& wish, ReadPrompt prompt, std::string id);
  // kNone for an answer.
  Result<Pooling> pooling_of(const Request& request) const;
  Status check_dimensions(int dimensions) const;  // of a model that gives embeddings
  Result<const text::ChatTemplate*> chat_template_of(const Request& request) const;
  Result<std::vector<int32_t>> encode_prompt(const text::Tokenizer& tokenizer, const Request& request, std::string_view text,
                                             bool add_special_tokens) const;
  // `answer_tokens`: for which there must be room behind it.
  Status truncate(const Request& request, int32_t answer_tokens, std::vector<int32_t>& prompt) const;
  Result<text::GrammarCompiler*> grammar_compiler();
  // Null: the request wants none.
  Result<std::shared_ptr<const text::Grammar>> grammar_of(const Request& request);
  Result<std::vector<int32_t>> prompt_tokens(Request& request, const text::Tokenizer* tokenizer) const;

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  RequestLimits limits_;
  Result<PooledForm> pooling_;
  std::map<std::string, Result<text::ChatTemplate>, std::less<>> chat_templates_;  // by name; an error: why it cannot be used
  std::vector<int32_t> eos_ids_;
  std::atomic<uint64_t> next_id_{1};

  DryBreakers dry_breakers_;
  MakeGrammarCompiler make_grammar_compiler_;
  std::once_flag grammar_compiler_asked_;
  Result<std::unique_ptr<text::GrammarCompiler>> grammar_compiler_ = std::unique_ptr<text::GrammarCompiler>();
};

}  // namespace choral::engine
