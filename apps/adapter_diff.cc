#include "adapter_diff.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "adapter_changes.h"
#include "answer_layout.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "batch.h"
#include "html_page.h"
#include "interrupts.h"
#include "output_file.h"
#include "serve/usual_sampling.h"
#include "voice.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDefaultMaxTokens = 128;
constexpr std::string_view kMark = "▶";

// Where two answers part: counted in tokens, and in bytes of the text.
struct Parting {
  size_t token = 0;
  size_t byte = 0;
};

std::optional<Parting> parting(const Completion& a, const Completion& b) {
  const auto tokens = std::mismatch(a.token_ids.begin(), a.token_ids.end(), b.token_ids.begin(), b.token_ids.end());
  if (tokens.first == a.token_ids.end() && tokens.second == b.token_ids.end()) return std::nullopt;
  const auto bytes = std::mismatch(a.text.begin(), a.text.end(), b.text.begin(), b.text.end());
  auto byte = static_cast<size_t>(bytes.first - a.text.begin());
  const auto inside = [](const std::string& text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (byte > 0 && (inside(a.text, byte) || inside(b.text, byte))) --byte;  // not inside a character
  return Parting{static_cast<size_t>(tokens.first - a.token_ids.begin()), byte};
}

std::string marked(const std::string& text, const std::optional<Parting>& at) {
  return at ? text.substr(0, at->byte) + std::string(kMark) + text.substr(at->byte) : text;
}

// The token that stands at `index` and how sure the model was of it; nothing behind the end.
Json token_json(const LLM& llm, const Completion& c, size_t index) {
  if (index >= c.token_ids.size()) return nullptr;
  Json out{{"token_id", c.token_ids[index]}, {"text", llm.detokenize({c.token_ids[index]})}};
  if (index < c.logprobs.size()) out["probability"] = std::exp(static_cast<double>(c.logprobs[index].chosen.logprob));
  return out;
}

std::string token_words(const std::string& name, const Json& token) {
  if (token.is_null()) return fmt::format("{} has ended", terminal_line(name));
  std::string text = token["text"].dump(-1, ' ', false, Json::error_handler_t::replace);
  if (token.contains("probability")) text += fmt::format(" ({:.0f} %)", 100 * token["probability"].get<double>());
  return fmt::format("{} {}", terminal_line(name), text);
}

Json answer_json(const Voice& voice, const RequestOutput& output) {
  const Completion& c = output.completions.at(0);
  return {{"adapter", voice.name},
          {"text", c.text},
          {"token_ids", c.token_ids},
          {"finish_reason", finish_reason_name(c.finish_reason)}};
}

// The answers to one prompt, which live as long as the run's outputs.
struct ComparedPair {
  const std::string& prompt;
  const Voice& first;
  const Completion& a;
  const Voice& second;
  const Completion& b;
  std::optional<Parting> at;
  Json record;  // what --json prints
};

Result<ComparedPair> compare_pair(const LLM& llm, const std::string& prompt, const Voice& first, const RequestOutput& a,
                                  const Voice& second, const RequestOutput& b) {
  CHORAL_RETURN_IF_ERROR(Status(a.status).while_(first.name));
  CHORAL_RETURN_IF_ERROR(Status(b.status).while_(second.name));
  const Completion &x = a.completions.at(0), &y = b.completions.at(0);
  const auto at = parting(x, y);
  Json difference;
  if (at) {
    difference = {{"token", at->token}, {"a", token_json(llm, x, at->token)}, {"b", token_json(llm, y, at->token)}};
  }
  Json record{{"prompt", prompt},
              {"prompt_tokens", a.prompt_token_ids.size()},
              {"a", answer_json(first, a)},
              {"b", answer_json(second, b)},
              {"first_difference", std::move(difference)}};
  return ComparedPair{prompt, first, x, second, y, at, std::move(record)};
}

std::string parting_words(const ComparedPair& pair) {
  if (!pair.at) return fmt::format("The same {} tokens.", pair.a.token_ids.size());
  const Json& difference = pair.record["first_difference"];
  return fmt::format("They part after {} tokens: {}, {}.", pair.at->token, token_words(pair.first.name, difference["a"]),
                     token_words(pair.second.name, difference["b"]));
}

std::string pair_text(const ComparedPair& pair) {
  const std::vector<NamedText> answers{{pair.first.name, marked(pair.a.text, pair.at)},
                                       {pair.second.name, marked(pair.b.text, pair.at)}};
  return lay_out(answers, terminal_columns()) + "\n" + parting_words(pair) + "\n";
}

HtmlAnswer pair_answer(const Voice& voice, const Completion& answer, const std::optional<Parting>& at) {
  return {.name = voice.name,
          .text = answer.text,
          .parts_at = at ? std::optional(at->byte) : std::nullopt,
          .facts = fmt::format("{} tokens, {}", answer.token_ids.size(), finish_reason_name(answer.finish_reason))};
}

void add_pair(const ComparedPair& pair, HtmlPage& to) {
  to.add_heading("Prompt");
  to.add_text(pair.prompt);
  to.add_answers({pair_answer(pair.first, pair.a, pair.at), pair_answer(pair.second, pair.b, pair.at)});
  to.add_text(parting_words(pair));
}

// What each adapter of the two voices changes, each once.
Status add_changes(LLM& llm, const std::vector<const Voice*>& voices, HtmlPage& to) {
  std::vector<AdapterChanges> all;
  for (const Voice* voice : voices) {
    for (const auto& use : voice->adapters) {
      if (std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == use.name; })) continue;
      CHORAL_TRY(auto layers, llm.adapter_layers(use.name));
      all.push_back({use.name, std::move(layers)});
    }
  }
  add_adapter_changes(all, to);
  return {};
}

}  // namespace

Status diff_adapters(const AdapterDiffFlags& flags) {
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  CHORAL_TRY(const auto first, parse_voice(flags.first));
  CHORAL_TRY(const auto second, parse_voice(flags.second));
  if (flags.prompts.empty()) return invalid_argument("no prompt: choral adapter diff A B --model MODEL --prompt TEXT");
  CHORAL_TRY(auto options, engine_options(flags.engine));
  const auto known = known_adapters(options);
  for (const auto* voice : {&first, &second}) CHORAL_RETURN_IF_ERROR(check_voice(*voice, known, options.adapter_root));
  CHORAL_TRY(const auto page_file, open_beside_report("--html", flags.html, flags.engine.quiet));
  CHORAL_TRY(const auto llm, load_llm(flags.engine, std::move(options)));
  SamplingParams sampling = serve::usual_sampling(*llm);
  sampling.max_tokens = kDefaultMaxTokens;
  sampling.temperature = 0;  // differences that are the adapters', not the dice's
  flags.sampling.put_over(sampling);
  sampling.logprobs = 0;
  if (sampling.n != 1) return invalid_argument("--n {}: one answer of each is compared", sampling.n);
  std::vector<Request> requests;
  for (const auto& prompt : flags.prompts) {
    for (const auto* voice : {&first, &second}) {
      requests.push_back(prompt_request(prompt, flags.chat, flags.system, sampling));
      requests.back().adapters = voice->adapters;
    }
  }
  std::vector<std::string> names;  // of one prompt's answers; of many only how many are there
  if (flags.prompts.size() == 1) names = {flags.first, flags.second};
  const BatchRun run = answer_together(*llm, *interrupts, std::move(requests), "answering", names, flags.engine.quiet);
  HtmlPage page(fmt::format("choral adapter diff: {} and {}", first.name, second.name),
                fmt::format("{}, level {}", llm->info().name, llm->info().cpu_level));
  for (size_t i = 0; i < flags.prompts.size(); ++i) {
    if (!flags.json && flags.prompts.size() > 1) {
      CHORAL_RETURN_IF_ERROR(print_out(fmt::format("{}[{}]\n", i > 0 ? "\n" : "", i + 1)));
    }
    CHORAL_TRY(const auto pair, compare_pair(*llm, flags.prompts[i], first, run.outputs[2 * i], second, run.outputs[2 * i + 1]));
    const std::string line = pair.record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    CHORAL_RETURN_IF_ERROR(print_out(flags.json ? line : pair_text(pair)));
    add_pair(pair, page);
  }
  if (!flags.engine.quiet) say("choral: {}\n", run.summary());
  if (run.cancelled) return interrupts->stopped();
  if (page_file == nullptr) return {};
  CHORAL_RETURN_IF_ERROR(add_changes(*llm, {&first, &second}, page).while_("--html"));
  return write_html_file(page_file.get(), page);
}

}  // namespace choral::apps
