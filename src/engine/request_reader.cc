#include "engine/request_reader.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "engine/beam_search/beam_request.h"
#include "engine/given_answer.h"
#include "engine/prompt_length.h"
#include "engine/sampling_check.h"
#include "text/encode_budget.h"

namespace choral::engine {
namespace {

constexpr size_t kExpectedTokens = 4096;  // room reserved for an answer; a longer one grows

// splitmix64: neighbouring seeds give unrelated streams.
uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

Status add_ids(const io::ConfigMap& config, std::string_view key, std::vector<int32_t>& ids) {
  CHORAL_TRY(const auto found, config.get_int_or_ints(key, io::kNotNegative));
  for (const int64_t id : found) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<int32_t>(id));
  }
  return {};
}

int forms_given(const Request& r) {
  return int{r.prompt.has_value()} + int{!r.prompt_token_ids.empty()} + int{!r.messages.empty()} + int{!r.messages_json.empty()};
}

// In the place of the one before.
void put_prompt(Prompt prompt, Request& request) {
  request.prompt.reset();
  request.prompt_token_ids.clear();
  if (auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    request.prompt_token_ids = std::move(*ids);
  } else {
    request.prompt = std::get<std::string>(std::move(prompt));
  }
}

// As vLLM: the word as it stands and with a space before it, as models spell it in the middle of a text.
Result<std::vector<std::vector<int32_t>>> bad_word_tokens(const text::Tokenizer* tokenizer,
                                                          const std::vector<std::string>& words) {
  std::vector<std::vector<int32_t>> sequences;
  if (words.empty()) return sequences;
  if (tokenizer == nullptr) return unsupported("bad_words need a tokenizer, which this model does not have");
  for (const auto& word : words) {
    if (word.empty()) return invalid_argument("bad_words holds an empty word");
    const bool has_space = word.front() == ' ';
    for (const std::string& form : {word, has_space ? word.substr(1) : " " + word}) {
      CHORAL_TRY(auto ids, tokenizer->encode(form, {.add_special_tokens = false}));
      if (!ids.empty() && std::find(sequences.begin(), sequences.end(), ids) == sequences.end())
        sequences.push_back(std::move(ids));
    }
  }
  return sequences;
}

// Those of ids, and of the tokens that spell each text.
Result<std::vector<kernels::TokenBias>> biases_of(const SamplingParams& params, const text::Tokenizer* tokenizer) {
  std::vector<kernels::TokenBias> biases;
  biases.reserve(params.logit_bias.size());
  for (const auto& [id, bias] : params.logit_bias) biases.push_back({id, bias});
  if (params.logit_bias_texts.empty()) return biases;
  if (tokenizer == nullptr) return unsupported("logit_bias of texts needs a tokenizer, which this model does not have");
  for (const auto& [text, bias] : params.logit_bias_texts) {
    CHORAL_TRY(const auto ids, tokenizer->encode(text, {.add_special_tokens = false}));
    for (const int32_t id : ids) biases.push_back({id, bias});
  }
  return biases;
}

// Of the model's length, that no prompt may take: an embedding and classes are followed by nothing.
int32_t least_answer(const Request& request) { return request.gives_text() ? 1 : 0; }

// The highest id that a request names.
int32_t highest_token(std::span<const int32_t> prompt, const SamplingParams& params, std::span<const GivenAnswer> given) {
  int32_t highest = -1;
  for (const auto& answer : given) {
    for (const int32_t id : answer.token_ids) highest = std::max(highest, id);
  }
  for (const auto ids :
       {prompt, std::span<const int32_t>(params.stop_token_ids), std::span<const int32_t>(params.allowed_token_ids),
        std::span<const int32_t>(params.logprob_token_ids)}) {
    for (const int32_t id : ids) highest = std::max(highest, id);
  }
  for (const auto& [id, bias] : params.logit_bias) highest = std::max(highest, id);
  return highest;
}

}  // namespace

Result<RequestTokens> tokens_of(std::span<const VersionUse> adapters) {
  RequestTokens tokens;
  const VersionUse* from = nullptr;
  for (const auto& use : adapters) {
    tokens.more_ids = std::max(tokens.more_ids, use.most_own_tokens);
    if (use.own == nullptr || use.own->tokenizer == nullptr) continue;
    if (from != nullptr && !(from->own->tokens == use.own->tokens)) {
      return invalid_argument(
          "adapters '{}' and '{}' both bring tokens of their own, so they cannot answer together; use one of them",
          from->version->request.lora_name, use.version->request.lora_name);
    }
    from = &use;
    tokens.tokenizer = use.own->tokenizer;
    tokens.eos_id = use.own->eos_id;
  }
  return tokens;
}

Result<std::unique_ptr<text::GrammarCompiler>> RequestReader::the_grammar_compiler(const text::Tokenizer& tokenizer,
                                                                                   std::vector<int32_t> end_ids) {
  return text::make_grammar_compiler(tokenizer, std::move(end_ids));
}

Result<std::unique_ptr<RequestReader>> RequestReader::make(const ModelFiles& files, const RequestLimits& limits,
                                                           MakeGrammarCompiler make_grammar_compiler) {
  std::unique_ptr<RequestReader> reader(new RequestReader(files, limits));
  reader->make_grammar_compiler_ = std::move(make_grammar_compiler);
  CHORAL_RETURN_IF_ERROR(add_ids(files.generation_config, "eos_token_id", reader->eos_ids_));
  if (reader->eos_ids_.empty()) CHORAL_RETURN_IF_ERROR(add_ids(files.config, "eos_token_id", reader->eos_ids_));
  if (files.tokenizer != nullptr && files.tokenizer->eos_id()) {
    const int32_t id = *files.tokenizer->eos_id();
    if (std::find(reader->eos_ids_.begin(), reader->eos_ids_.end(), id) == reader->eos_ids_.end()) reader->eos_ids_.push_back(id);
  }
  for (const auto& [name, source] : files.chat_templates) {
    auto parsed = text::ChatTemplate::parse(source);
    // A model whose template is broken still completes plain prompts; chat requests are told why they cannot be served.
    if (!parsed.ok()) CHORAL_LOG(kWarn, "the model's chat template '{}' cannot be used: {}", name, parsed.status().message());
    reader->chat_templates_.insert_or_assign(name, std::move(parsed));
  }
  return reader;
}

bool RequestReader::has_chat_template() const {
  return std::any_of(chat_templates_.begin(), chat_templates_.end(), [](const auto& entry) { return entry.second.ok(); });
}

std::string RequestReader::template_source(bool with_tools) const {
  Request request;
  if (with_tools) request.tools_json = "[]";
  const auto chosen = chat_template_of(request);
  return chosen.ok() ? (*chosen)->source() : "";
}

Result<const text::ChatTemplate*> RequestReader::chat_template_of(const Request& request) const {
  constexpr std::string_view kWayOut = "send `prompt` instead of messages, or give --chat-template";
  if (chat_templates_.empty()) return unsupported("this model has no chat template; {}", kWayOut);
  std::vector<std::string_view> names;
  for (const auto& [name, parsed] : chat_templates_) names.push_back(name);
  CHORAL_TRY(const std::string_view name, text::choose_chat_template(names, text::brings_tools(request.tools_json)));
  const auto& parsed = chat_templates_.find(name)->second;
  if (parsed.ok()) return &*parsed;
  return unsupported("this model's chat template '{}' cannot be used: {}; {}", name, parsed.status().message(), kWayOut);
}

Result<std::string> RequestReader::apply_chat_template(const Request& request) const {
  CHORAL_TRY(const text::ChatTemplate* const chat_template, chat_template_of(request));
  std::string messages = request.messages_json;
  if (messages.empty()) messages = text::chat_messages_json(request.messages);
  text::ChatInput input{.messages_json = messages,
                        .tools_json = request.tools_json,
                        .kwargs_json = request.template_kwargs_json,
                        .special_tokens = {},
                        .add_generation_prompt = request.add_generation_prompt && !request.continue_final_message,
                        .continue_final_message = request.continue_final_message,
                        .now_unix_s = std::nullopt};
  if (tokenizer_ == nullptr) return unsupported("this model has no tokenizer; give prompt_token_ids");
  for (const auto& [role, token] : tokenizer_->special_tokens()) input.special_tokens.emplace(role, token);
  return chat_template->apply(input);
}

Result<std::vector<int32_t>> RequestReader::prompt_tokens(Request& request, const text::Tokenizer* tokenizer) const {
  if (forms_given(request) != 1) {
    return invalid_argument("give exactly one of prompt, prompt_token_ids, messages; {} were given", forms_given(request));
  }
  if (!request.prompt_token_ids.empty()) return std::move(request.prompt_token_ids);
  if (tokenizer == nullptr) return unsupported("this model has no tokenizer; give prompt_token_ids");
  if (request.prompt) return encode_prompt(*tokenizer, request, *request.prompt, request.add_special_tokens);
  CHORAL_TRY(const std::string prompt, apply_chat_template(request));
  return encode_prompt(*tokenizer, request, prompt, false);  // the template wrote them
}

// A prompt that is a little too long is counted for the message; one that is far too long is not tokenised to its end.
Result<std::vector<int32_t>> RequestReader::encode_prompt(const text::Tokenizer& tokenizer, const Request& request,
                                                          std::string_view text, bool add_special_tokens) const {
  const size_t counted = 4 * static_cast<size_t>(limits_.max_model_len);
  auto ids = tokenizer.encode(text, {.add_special_tokens = add_special_tokens, .max_tokens = counted});
  // The tokenizer's own limits, such as that of a word, say nothing about what fits.
  if (ids.ok() || ids.status().message() != text::EncodeBudget::too_many_tokens(counted).message()) return ids;
  return prompt_too_long(fmt::format("the prompt is longer than fits: {}", ids.status().message()), limits_.max_model_len,
                         least_answer(request));
}

Status RequestReader::truncate(const Request& request, int32_t answer_tokens, std::vector<int32_t>& prompt) const {
  int32_t kept = request.truncate_prompt_tokens;
  if (kept < -1) return invalid_argument("truncate_prompt_tokens is {}; give a number of tokens, or -1 for as many as fit", kept);
  if (kept == 0) return {};
  if (kept == -1) kept = std::max(limits_.max_model_len - answer_tokens, 1);
  if (std::ssize(prompt) <= kept) return {};
  if (request.truncation_side == Request::TruncationSide::kLeft) prompt.erase(prompt.begin(), prompt.end() - kept);
  prompt.resize(kept);
  return {};
}

Result<text::GrammarCompiler*> RequestReader::grammar_compiler() {
  if (tokenizer_ == nullptr) return unsupported("structured_output needs a tokenizer, which this model does not have");
  std::call_once(grammar_compiler_asked_, [this] { grammar_compiler_ = make_grammar_compiler_(*tokenizer_, eos_ids_); });
  if (!grammar_compiler_.ok()) return Status(grammar_compiler_.status()).while_("structured_output");
  return grammar_compiler_->get();
}

Status RequestReader::structured_output_support() {
  CHORAL_TRY(text::GrammarCompiler* const compiler, grammar_compiler());
  return compiler->library_status();
}

Result<std::shared_ptr<const text::Grammar>> RequestReader::grammar_of(const Request& request) {
  if (request.structured_output.kind == StructuredOutput::Kind::kNone) return std::shared_ptr<const text::Grammar>();
  CHORAL_TRY(text::GrammarCompiler* const compiler, grammar_compiler());
  return compiler->compile(request.structured_output).while_("structured_output");
}

Status RequestReader::check_dimensions(int dimensions) const {
  if (dimensions == 0) return {};
  if (!pooling_->may_be_cut) {
    return unsupported(
        "dimensions {}: this model does not say that its vectors may be cut (matryoshka_dimensions or is_matryoshka in "
        "config.json, or the files of sentence-transformers); leave it away, and its vectors have {} numbers",
        dimensions, limits_.embedding_size);
  }
  if (dimensions < 0 || dimensions > limits_.embedding_size)
    return invalid_argument("dimensions {}: this model's vectors have 1 to {}", dimensions, limits_.embedding_size);
  const auto& known = pooling_->dimensions;
  if (known.empty() || std::find(known.begin(), known.end(), dimensions) != known.end()) return {};
  return invalid_argument("dimensions {}: this model was trained for {}", dimensions, fmt::join(known, ", "));
}

Result<Pooling> RequestReader::pooling_of(const Request& request) const {
  if (request.gives_text()) {
    if (limits_.head.kind == models::HeadKind::kTokens) return Pooling::kNone;
    return unsupported("this model gives no text: it has {}",
                       limits_.head.kind == models::HeadKind::kClasses
                           ? fmt::format("a head of {} classes; ask for these (/classify)", limits_.head.classes)
                           : "no head; ask for embeddings (/v1/embeddings)");
  }
  if (request.embedding && request.classes) return invalid_argument("ask for an embedding or for classes, one of them");
  if (request.structured_output.kind != StructuredOutput::Kind::kNone) {
    return invalid_argument("{} no tokens that structured_output could rule; ask for one of them",
                            request.embedding ? "an embedding has" : "classes have");
  }
  if (request.classes) {
    if (limits_.head.kind == models::HeadKind::kClasses) return Pooling::kClasses;
    return unsupported("this model has no head of classes (its class would be called …ForSequenceClassification)");
  }
  if (!pooling_.ok()) return Status(pooling_.status()).while_("embedding");
  CHORAL_RETURN_IF_ERROR(check_dimensions(request.embedding_dimensions).while_("embedding"));
  return pooling_->pooling;
}

// What a request asks for beside its prompt, checked: the same for each prompt that it brings.
struct RequestReader::Wish {
  SamplingParams params;
  Pooling pooling = Pooling::kNone;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  int32_t vocab = 0;
  std::vector<int32_t> end_ids;  // also where they are ignored
  SamplingRule rule;             // without its seed
  OutputTextOptions text;
  std::shared_ptr<const ThoughtBudget::Terms> thoughts = {};  // null: they have no limit
  std::shared_ptr<const Prediction> prediction = {};          // null: there is none
  std::shared_ptr<const text::Grammar> grammar = {};          // null: none; compiled last, for it costs most
  std::optional<BeamRule> beams = {};                         // without its max_tokens
};

struct RequestReader::ReadPrompt {
  std::vector<int32_t> tokens;
  int32_t max_tokens = 0;  // of each answer
};

Status RequestReader::add_texts(Wish& wish) {
  const SamplingParams& params = wish.params;
  CHORAL_TRY(wish.rule.bad_words, bad_word_tokens(wish.tokenizer.get(), params.bad_words));
  CHORAL_TRY(wish.rule.bias, biases_of(params, wish.tokenizer.get()));
  if (kernels::is_on(wish.rule.dry)) {
    CHORAL_TRY(wish.rule.dry_breakers, dry_breakers_.of(wish.tokenizer, params.dry_sequence_breakers));
  }
  return {};
}

// No answer is longer than the model's length.
Result<std::shared_ptr<const Prediction>> RequestReader::read_prediction(const Request& request,
                                                                         const text::Tokenizer* tokenizer) const {
  if (request.prediction.empty() || request.most_guessed == 0 || !limits_.guesses) return std::shared_ptr<const Prediction>();
  if (tokenizer == nullptr) return unsupported("a prediction needs a tokenizer, which this model does not have");
  const auto most = static_cast<size_t>(limits_.max_model_len);
  auto ids = tokenizer->encode(request.prediction, {.add_special_tokens = false, .max_tokens = most});
  if (!ids.ok() || ids->size() > most) {
    const Status why = ids.ok() ? text::EncodeBudget::too_many_tokens(most) : std::move(ids).status();
    return invalid_argument("prediction: {}; send less of it, or leave it away: it changes no answer", why.message());
  }
  return std::make_shared<const Prediction>(std::move(*ids));
}

Result<RequestReader::Wish> RequestReader::read_wish(Request& request, const RequestTokens& tokens) {
  CHORAL_TRY(const Pooling pooling, pooling_of(request));
  if (!request.gives_text()) request.sampling = {};
  Wish wish{.params = std::move(request.sampling),
            .pooling = pooling,
            .tokenizer = tokens.tokenizer != nullptr ? tokens.tokenizer : tokenizer_,
            .vocab = static_cast<int32_t>(limits_.vocab + tokens.more_ids),
            .end_ids = eos_ids_,
            .rule = {},
            .text = {}};
  const SamplingParams& params = wish.params;
  CHORAL_RETURN_IF_ERROR(check_sampling(params, wish.vocab));
  CHORAL_RETURN_IF_ERROR(check_beams(request, params));
  CHORAL_RETURN_IF_ERROR(check_timeouts(request));
  if (!request.given.empty()) CHORAL_RETURN_IF_ERROR(check_given(request, params, wish.vocab));
  if (tokens.eos_id) wish.end_ids.push_back(*tokens.eos_id);
  wish.rule = sampling_rule_of(params);
  CHORAL_RETURN_IF_ERROR(add_texts(wish));
  if (request.gives_text()) {
    CHORAL_TRY(wish.thoughts, ThoughtBudget::read(request.thought_limit, wish.tokenizer));
    CHORAL_RETURN_IF_ERROR(check_most_guessed(request.most_guessed));
    CHORAL_TRY(wish.prediction, read_prediction(request, wish.tokenizer.get()));
  }
  const bool keeps_best = !params.beams.wanted && completions_made(params) > params.n;
  if (keeps_best && !wish.rule.logprobs) wish.rule.logprobs = 0;  // what the best are told by
  if (!params.ignore_eos) wish.rule.stop_ids = wish.end_ids;
  wish.rule.stop_ids.insert(wish.rule.stop_ids.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  wish.text = {params.stop, params.include_stop_str_in_output, params.skip_special_tokens};
  if (params.beams.wanted) {
    CHORAL_TRY(wish.beams, beam_rule_of(params, std::move(wish.rule.stop_ids), limits_.vocab));
    wish.rule = beam_sampling(*wish.beams);
  }
  return wish;
}

Result<RequestReader::ReadPrompt> RequestReader::read_own_prompt(Request& request, const Wish& wish) const {
  const SamplingParams& params = wish.params;
  CHORAL_TRY(auto prompt, prompt_tokens(request, wish.tokenizer.get()));
  const int32_t least = least_answer(request);
  CHORAL_RETURN_IF_ERROR(truncate(request, least * std::max(params.max_tokens, 1), prompt));
  if (prompt.empty()) return invalid_argument("the prompt has no tokens; give at least one character");
  for (const int32_t id : prompt) {
    if (id < 0 || id >= wish.vocab)
      return invalid_argument("prompt_token_ids holds {}; the model has ids 0 to {}", id, wish.vocab - 1);
  }
  const auto prompt_count = static_cast<int32_t>(prompt.size());
  const int32_t room = limits_.max_model_len - prompt_count;
  if (room < least) return prompt_too_long(fmt::format("the prompt has {} tokens", prompt_count), limits_.max_model_len, least);
  if (!request.gives_text()) return ReadPrompt{std::move(prompt), 0};
  const int32_t max_tokens = params.max_tokens == 0 ? room : std::min(params.max_tokens, room);
  CHORAL_RETURN_IF_ERROR(check_logprobs(params, max_tokens, prompt_count));
  return ReadPrompt{std::move(prompt), max_tokens};
}

Result<AdmittedRequest> RequestReader::read(Request request, const RequestTokens& tokens) {
  CHORAL_TRY(Wish wish, read_wish(request, tokens));
  CHORAL_TRY(ReadPrompt prompt, read_own_prompt(request, wish));
  CHORAL_TRY(wish.grammar, grammar_of(request));
  return admit(request, wish, std::move(prompt), request.id);
}

Result<std::vector<AdmittedRequest>> RequestReader::read_each(Request request, std::vector<Prompt> prompts,
                                                              const RequestTokens& tokens) {
  if (prompts.empty() || forms_given(request) != 0)
    return invalid_argument("give at least one prompt, beside a request without any; {} were given, and the request has {}",
                            prompts.size(), forms_given(request));
  if (!request.given.empty() && prompts.size() > 1)
    return invalid_argument("continue_token_ids: an answer goes on with one prompt, and there are {}", prompts.size());
  CHORAL_TRY(Wish wish, read_wish(request, tokens));
  std::vector<ReadPrompt> read;
  int64_t logprobs = 0;
  for (auto& given : prompts) {
    put_prompt(std::move(given), request);
    auto prompt = read_own_prompt(request, wish);
    if (!prompt.ok() && prompts.size() > 1) return std::move(prompt).status().while_(fmt::format("prompt {}", read.size()));
    if (!prompt.ok()) return std::move(prompt).status();
    logprobs += logprobs_given(wish.params, prompt->max_tokens, std::ssize(prompt->tokens));
    read.push_back(std::move(*prompt));
  }
  if (logprobs > kMostLogprobs) {
    return too_large(
        "the prompts, {}, ask for up to {} log probabilities, those of a prompt with each of its n {} answers; at most {} are "
        "given "
        "at once: lower n, logprobs or prompt_logprobs, or send fewer prompts",
        prompts.size(), logprobs, wish.params.n, kMostLogprobs);
  }
  CHORAL_TRY(wish.grammar, grammar_of(request));
  std::vector<AdmittedRequest> admitted;
  for (auto& prompt : read) {
    std::string id = request.id;
    if (prompts.size() > 1 && !id.empty()) id += fmt::format("-{}", admitted.size());
    CHORAL_TRY(auto one, admit(request, wish, std::move(prompt), std::move(id)));
    admitted.push_back(std::move(one));
  }
  return admitted;
}

Result<AdmittedRequest> RequestReader::admit(const Request& request, const Wish& wish, ReadPrompt prompt, std::string id) {
  CHORAL_RETURN_IF_ERROR(check_given_prompt(request.given_prompt, prompt.tokens));
  const SamplingParams& params = wish.params;
  const int sequences = completions_made(params);
  const uint64_t ordinal = next_id_.fetch_add(static_cast<uint64_t>(sequences));
  const int made = wish.beams ? 1 : sequences;
  const uint64_t seed = params.seed.value_or(mixed(limits_.seed ^ mixed(ordinal)));
  const auto room_tokens = std::min<size_t>(prompt.max_tokens, kExpectedTokens);
  AdmittedRequest admitted;
  if (id.empty()) id = fmt::format("cmpl-{}", ordinal);
  const ResponseForm form{.completions = made,
                          .best = wish.beams || made > params.n ? params.n : 0,
                          .expected_tokens = room_tokens,
                          .with_logprobs = params.logprobs.has_value(),
                          .seed = seed,
                          .gives_text = request.gives_text()};
  admitted.response = std::make_shared<Response>(std::move(id), prompt.tokens, form);
  SamplingParams kept = params;  // many times: without what a completion keeps in another form
  kept.stop.clear();
  kept.bad_words.clear();
  kept.logit_bias.clear();
  kept.logit_bias_texts.clear();
  kept.dry_sequence_breakers.clear();
  kept.allowed_token_ids.clear();
  kept.logprob_token_ids.clear();
  const int32_t highest = highest_token(prompt.tokens, params, request.given);
  const auto root = cache::make_prefix_root({}, request.cache_salt);
  for (int i = 0; i < made; ++i) {
    auto completion = std::make_unique<EngineRequest>(kept, OutputText(wish.tokenizer, wish.text, room_tokens));
    completion->id = ordinal + static_cast<uint64_t>(i);
    completion->tokens = prompt.tokens;
    completion->max_tokens = prompt.max_tokens;
    completion->priority = request.priority;
    completion->in_background = request.in_background;
    const bool is_begun = static_cast<size_t>(i) < request.given.size() && !request.given[i].token_ids.empty();
    completion->wants_prompt_logprobs =
        params.prompt_logprobs.has_value() && i == 0 && !is_begun;  // they came with the beginning
    completion->pooling = wish.pooling;
    completion->embedding_dimensions = request.embedding_dimensions;
    completion->computes_all = is_of_all_tokens(wish.pooling);
    completion->prefix_root = root;  // the base's; adapters make it their own once they are known
    completion->cache_salt = request.cache_salt;
    completion->stop_ids = wish.rule.stop_ids;
    if (wish.grammar != nullptr) {
      CHORAL_TRY(completion->grammar, params.ignore_eos ? AnswerGrammar::make(*wish.grammar, wish.vocab, {}, wish.end_ids)
                                                        : AnswerGrammar::make(*wish.grammar, wish.vocab, wish.end_ids, {}));
    }
    if (wish.thoughts != nullptr) completion->thoughts.emplace(wish.thoughts);
    completion->highest_token = highest;
    completion->rule = wish.rule;
    completion->rule.seed = i == 0 ? seed : mixed(seed + static_cast<uint64_t>(i));
    completion->index = i;
    completion->response = admitted.response;
    completion->guesser.set_most(request.most_guessed < 0 ? EngineRequest::kMostGuesses : request.most_guessed);
    completion->guesser.set_prediction(wish.prediction);
    completion->timeout_s = request.timeout_s > 0 ? request.timeout_s : limits_.timeout_s;
    completion->queue_timeout_s = request.queue_timeout_s > 0 ? request.queue_timeout_s : limits_.queue_timeout_s;
    if (wish.beams) add_beams(*wish.beams, wish.tokenizer, wish.text, *completion);
    if (is_begun) {
      completion->given_adapters = request.given_adapters;
      CHORAL_TRY(const AnswerEnding ending, take_given(*completion, request.given[i]));
      if (!ending.goes_on()) continue;
    }
    admitted.completions.push_back(std::move(completion));
  }
  if (wish.prediction != nullptr && !admitted.completions.empty())  // which they share
    admitted.completions.front()->predicted_count = wish.prediction->token_count();
  return admitted;
}

}  // namespace choral::engine
