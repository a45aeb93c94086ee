// What the answers of the generating routes have in common. For .cc files only (serve/openai/json.h). Pure.
#pragma once

#include "serve/openai/answer_form.h"
#include "serve/openai/json.h"

namespace choral::serve {

inline constexpr std::string_view kServiceTier = "default";  // there is one

// id, object, created, model, system_fingerprint.
Json head_json(const AnswerHead& head, std::string_view object);
Json usage_json(const Usage& usage);
// Adds `adapters`, what X-Choral-Adapter says, where there are any.
void add_adapters(const std::vector<AnswerAdapter>& adapters, Json& json);
// Of whole answers, what was given of them before included.
Usage usage_of(const std::vector<RequestOutput>& outputs);
// Whether this is an answer's beginning, which tells of its prompt too; else it came before.
bool begins(const RequestOutput& output);
// llama.cpp's `timings`.
Json timings_json(const Progress& progress);
// llama.cpp's `prompt_progress`, of a prompt that is computed.
Json prompt_progress_json(const Progress& progress);
// What answers of beam search are ranked by; of others nothing.
void add_beam_score(const Completion& completion, Json& json);
// null while there is none.
Json finish_reason_json(FinishReason reason);
Json stop_reason_json(const std::string& stop_reason, bool by_token);

}  // namespace choral::serve
