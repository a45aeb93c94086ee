// What the body of each route says: values, read and checked in one place for all routes before the engine sees anything.
// Fields that are not known are named, not obeyed, or refused where that is asked for; fields that would change the answer and
// cannot be served are refused.
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "choral/types.h"

namespace choral::serve {

// What the reader noticed beside the values.
struct BodyNotes {
  bool strict = false;                     // fields that are not known are errors
  std::string param = {};                  // of the error: "temperature"
  std::vector<std::string> warnings = {};  // of the first few fields that are not known, in ASCII
};

// What the bodies of the generating routes have in common.
struct CallHead {
  std::string model;              // empty: not named
  Request request;                // the sampling, the adapters of `lora`; the prompt where the body has one
  bool has_lora = false;          // it says who answers, be it "base" or []
  std::vector<int32_t> lora_ids;  // of request.adapters where llama.cpp's {"id": …} stands; else -1
  bool stream = false;
  bool include_usage = false;        // stream_options
  bool continuous_usage = false;     // in every chunk, where include_usage asks for it at all
  bool include_resume = false;       // in every chunk: what the answer could go on with elsewhere
  std::string resume;                // that of an answer which goes on here; empty: none
  bool goes_on = false;              // with that
  std::string resume_fingerprint;    // under which system_fingerprint it began
  bool return_token_ids = false;     // vLLM's
  bool tokens_as_token_ids = false;  // "token_id:7" in place of a token's text, vLLM's
  bool timings = false;              // llama.cpp's timings_per_token
  bool tells_progress = false;       // llama.cpp's return_progress: a stream begins with how the prompt was computed
};

struct CompletionCall : CallHead {
  // Each gets n answers.
  std::vector<Prompt> prompts;
  bool echo = false;
  bool no_tokens = false;              // max_tokens 0: the prompt alone comes back
  std::optional<int> prompt_logprobs;  // that were asked for by name; those of the prompt that `echo` gives are others
  std::string suffix;                  // each prompt stands before a gap, and this behind it; empty: there is no gap
};

struct ChatCall : CallHead {
  bool logprobs = false;
  std::string tool_choice_json;  // empty: not named
  bool parallel_tool_calls = true;
  std::string metadata_json;      // which the answer repeats; empty: none
  bool include_reasoning = true;  // vLLM's: the answer shows what was thought
  int32_t thinking_budget = -1;   // tokens that the model may think; -1: no limit
};

struct EmbeddingCall {
  std::string model;
  Request request;  // how the inputs are read
  std::vector<Prompt> inputs;
  bool base64 = false;
};

struct TokenizeCall {
  std::string model;
  Request request;                             // vLLM's: prompt or messages
  std::optional<std::vector<Prompt>> content;  // llama.cpp's: texts and ids, one behind the other
  bool add_special_tokens = true;              // where there is content: only if asked for
  bool parse_special = true;
  bool return_token_strs = false;
  bool with_pieces = false;
};

struct DetokenizeCall {
  std::string model;
  std::vector<int32_t> tokens;
};

// Read over `defaults`, the model's own sampling.
Result<CompletionCall> read_completion_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes);
Result<ChatCall> read_chat_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes);
Result<EmbeddingCall> read_embedding_call(std::string_view body, BodyNotes& notes);
Result<TokenizeCall> read_tokenize_call(std::string_view body, BodyNotes& notes);
Result<DetokenizeCall> read_detokenize_call(std::string_view body, BodyNotes& notes);

// The JSON Schema of each route's body, made of the tables that read it.
std::string completion_schema();
std::string chat_schema();
std::string embedding_schema();
std::string tokenize_schema();
std::string detokenize_schema();

}  // namespace choral::serve
