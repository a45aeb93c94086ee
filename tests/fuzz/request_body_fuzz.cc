// Any bytes as the body of a POST, expanded; the first byte chooses the route. What is refused says why in few words; what is
// read keeps the promises that the routes build on, and says of tools what the grammars take.
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "expansion.h"
#include "serve/anthropic/message_call.h"
#include "serve/batches/batch_call.h"
#include "serve/native/native_call.h"
#include "serve/ollama/ollama_call.h"
#include "serve/openai/adapter_calls.h"
#include "serve/openai/calls.h"
#include "serve/openai/messages.h"
#include "serve/openai/response_call.h"
#include "serve/tools/tools_request.h"
#include "text/grammar/json_schema_check.h"

namespace {

using namespace choral;
using namespace choral::serve;

constexpr size_t kMaxWords = 2000;  // of an error

void check_notes(const Status& status, const BodyNotes& notes) {
  CHORAL_CHECK(status.message().size() < kMaxWords, "an error quotes a whole body");
  CHORAL_CHECK(notes.param.size() < kMaxWords, "an error names a whole body");
  CHORAL_CHECK(notes.warnings.size() <= 32, "every field of a body is noted");
  for (const auto& warning : notes.warnings) {
    CHORAL_CHECK(warning.size() < kMaxWords, "a note quotes a whole name");
    for (const char c : warning) CHORAL_CHECK(c >= ' ' && c <= '~', "a note goes into a header");
  }
}

bool is_json(std::string_view text, bool (simdjson::dom::element::*is_kind)() const) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto error = parser.parse(text.data(), text.size()).get(root);
  return error == simdjson::NUMBER_ERROR || (!error && (root.*is_kind)());
}

void check_request(const Request& request) {
  for (const auto& use : request.adapters) CHORAL_CHECK(std::isfinite(use.scale), "a factor that is no number");
  for (const auto& [id, bias] : request.sampling.logit_bias)
    CHORAL_CHECK(bias < 0 || std::isfinite(bias), "a bias that is no number");
  for (const float value :
       {request.sampling.temperature, request.sampling.top_p, request.sampling.min_p, request.sampling.presence_penalty,
        request.sampling.frequency_penalty, request.sampling.repetition_penalty, request.sampling.typical_p,
        request.sampling.top_n_sigma, request.sampling.xtc_probability, request.sampling.xtc_threshold,
        request.sampling.dry_multiplier, request.sampling.dry_base})
    CHORAL_CHECK(std::isfinite(value), "a setting that is no number");
  CHORAL_CHECK(request.cache_salt.size() <= 1024, "a salt that is too long");
}

void check_head(const CallHead& head) {
  check_request(head.request);
  CHORAL_CHECK(head.stream || !(head.include_usage || head.continuous_usage), "usage in a stream that is none");
  CHORAL_CHECK(head.lora_ids.empty() || head.lora_ids.size() == head.request.adapters.size(), "numbers that are of no adapter");
  for (const int32_t id : head.lora_ids) CHORAL_CHECK(id >= -1, "an adapter's number below 0");
}

// The chat's messages are such as templates take: read again they are the same. Its tools make a constraint that is served, or an
// error that names their field.
void check_chat(const ChatCall& call) {
  check_head(call);
  const Request& r = call.request;
  choral::requests::ParsedSize size;
  const auto again = template_messages(choral::serve::Json::parse(r.messages_json), size);
  CHORAL_CHECK(again.ok() && *again == r.messages_json, "messages change when they are read again");
  CHORAL_CHECK(r.template_kwargs_json.empty() || is_json(r.template_kwargs_json, &simdjson::dom::element::is_object),
               "a template's variables are no object");
  CHORAL_CHECK(!call.logprobs || r.sampling.logprobs, "log-probabilities were asked for and got lost");
  for (const bool has_grammars : {false, true}) {
    const ToolSetting setting{ToolFormat::kHermes, has_grammars, {}};
    std::string param;
    const auto plan = plan_tools(
        {r.tools_json, call.tool_choice_json, call.parallel_tool_calls ? std::string_view("true") : "false"}, setting, param);
    if (!plan.ok()) {
      CHORAL_CHECK(!param.empty() && plan.status().message().size() < kMaxWords, "an error of tools that says not where");
      continue;
    }
    const StructuredOutput& wanted = plan->constraint;
    const text::GrammarLimits limits;
    Status served;
    if (wanted.kind == StructuredOutput::Kind::kJsonSchema) served = text::check_json_schema(wanted.text, limits);
    if (wanted.kind == StructuredOutput::Kind::kStructuralTag) served = text::check_structural_tag(wanted.text, limits);
    const bool is_strict = std::any_of(plan->tools.begin(), plan->tools.end(), [](const Tool& tool) { return tool.strict; });
    CHORAL_CHECK(served.ok() || is_strict || served.code() == Code::kTooLarge, "tools became a constraint that nobody serves");
  }
}

void check_native(const NativeCall& call) {
  check_head(call);
  CHORAL_CHECK(call.gap || (!call.prompts.empty() && call.prompts.size() <= 1024), "no prompt, or too many");
  for (const auto& parts : call.prompts)
    CHORAL_CHECK(!parts.empty() && parts.size() <= 1025, "a prompt of nothing, or of too much");
  for (const auto& [text, bias] : call.request.sampling.logit_bias_texts)
    CHORAL_CHECK(!std::isnan(bias), "a bias that is no number");
  CHORAL_CHECK(call.response_fields.size() <= 64, "a list that is too long");
  CHORAL_CHECK(!call.no_tokens || call.request.sampling.max_tokens == 1, "an answer that nobody asked for");
}

void read_body_of(char route, std::string_view body) {
  BodyNotes notes;
  const auto take = [&](auto&& call, auto&& check) {
    check_notes(call.status(), notes);
    if (call.ok()) check(*call);
  };
  switch (route) {
    case 'c':
      take(read_completion_call(body, {}, notes), [](const CompletionCall& call) {
        check_head(call);
        CHORAL_CHECK(!call.prompts.empty() && call.prompts.size() <= 1024, "no prompt, or too many");
        CHORAL_CHECK(!call.no_tokens || (call.echo && call.request.sampling.max_tokens == 1), "nothing at all is asked for");
      });
      break;
    case 'm': take(read_chat_call(body, {}, notes), check_chat); break;
    case 'r':
      take(read_response_call(body, {}, notes), [](const ResponseCall& call) {
        check_chat(call.chat);
        CHORAL_CHECK(is_json(call.echo_json, &simdjson::dom::element::is_object), "the echo of a response is no object");
      });
      break;
    case 'a':
      take(read_message_call(body, {}, /*counts=*/false, notes), [](const MessageCall& call) { check_chat(call.chat); });
      break;
    case 'O': take(read_ollama_chat(body, {}, notes), [](const OllamaCall& call) { check_chat(call.chat); }); break;
    case 'G':
      take(read_ollama_generate(body, {}, /*has_template=*/true, notes), [](const OllamaCall& call) {
        CHORAL_CHECK(call.is_raw == call.chat.request.messages_json.empty(), "a prompt and messages, or neither");
        if (!call.is_raw) check_chat(call.chat);
      });
      break;
    case 'E':
      take(read_ollama_embed(body, notes), [](const EmbeddingCall& call) {
        CHORAL_CHECK(!call.inputs.empty() && call.inputs.size() <= 2048, "no input, or too many");
      });
      break;
    case 'b':
      take(read_batch_call(body, notes), [](const BatchCall& call) {
        CHORAL_CHECK(!call.input_file.empty() && !call.endpoint.empty() && call.window_s > 0, "a batch of nothing");
      });
      break;
    case 'e':
      take(read_embedding_call(body, notes), [](const EmbeddingCall& call) {
        CHORAL_CHECK(!call.inputs.empty() && call.inputs.size() <= 2048, "no input, or too many");
      });
      break;
    case 't':
      take(read_tokenize_call(body, notes), [](const TokenizeCall& call) {
        const bool is_vllms = call.request.prompt.has_value() != !call.request.messages_json.empty();
        CHORAL_CHECK(is_vllms != call.content.has_value(), "a prompt and messages, or neither");
      });
      break;
    case 'N': take(read_native_call(body, {}, notes), check_native); break;
    case 'i':
      take(read_infill_call(body, {}, notes), [](const NativeCall& call) {
        check_native(call);
        CHORAL_CHECK(call.gap && call.gap->files.size() <= 1024, "no gap, or too many files");
      });
      break;
    case 'v':
      take(read_native_embedding_call(body, notes), [](const NativeEmbeddingCall& call) {
        CHORAL_CHECK(!call.inputs.empty() && call.inputs.size() <= 2048, "no input, or too many");
        CHORAL_CHECK(call.norm >= 0 && call.norm <= 64, "a norm that nobody knows");
      });
      break;
    case 'd': take(read_detokenize_call(body, notes), [](const DetokenizeCall&) {}); break;
    case 'l':
      take(read_load_adapter_call(body, notes), [](const LoadAdapterCall& call) {
        CHORAL_CHECK(!call.name.empty() && !call.path.empty(), "an adapter without name or place");
      });
      break;
    case 'n':
      take(read_adapter_name_call(body, notes),
           [](const AdapterNameCall& call) { CHORAL_CHECK(!call.name.empty(), "an adapter without name"); });
      break;
    case 's':
      take(read_adapter_scales_call(body, notes), [](const std::vector<AdapterScale>& scales) {
        for (const auto& each : scales) CHORAL_CHECK(std::isfinite(each.scale), "a factor that is no number");
      });
      break;
    default: break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  read_body_of(static_cast<char>(data[0]), fuzz::expanded({reinterpret_cast<const char*>(data) + 1, size - 1}));
  return 0;
}
