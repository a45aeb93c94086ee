// `choral generate`: prompts from the command line, from stdin or from lines of JSON, all in one batch.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "answer_layout.h"
#include "answer_stream.h"
#include "base/log.h"
#include "batch.h"
#include "command.h"
#include "compared_answers.h"
#include "engine_flags.h"
#include "generate_jsonl.h"
#include "interrupts.h"
#include "io/mapped_file.h"
#include "output_file.h"
#include "progress.h"
#include "requests/answer_lines.h"
#include "sampling_flags.h"
#include "serve/usual_sampling.h"
#include "voice.h"

namespace choral::apps {
namespace {

constexpr int kDefaultMaxTokens = 256;
constexpr uint64_t kMaxPromptBytes = uint64_t{64} << 20;
constexpr size_t kShownPrompt = 72;

struct GenerateFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::vector<std::string> prompts;
  std::string prompt_file;
  std::string system;
  std::string input;
  std::string output = "-";
  std::vector<std::string> adapters;
  std::string compare;
  bool chat = false;
  bool json = false;
  bool resume = false;
  bool strict_fields = false;
};

// For CLI11: what is wrong, or nothing.
std::string names_a_file(const std::string& name) { return name.empty() ? "the file's name is empty" : ""; }

Result<std::string> read_stdin() {
  if (isatty(STDIN_FILENO) == 1)
    return invalid_argument("no prompt: give --prompt TEXT or --input FILE.jsonl, or pipe a text in");
  std::string text;
  std::array<char, 65536> piece;
  size_t got = 0;
  while ((got = std::fread(piece.data(), 1, piece.size(), stdin)) > 0) {
    text.append(piece.data(), got);
    if (text.size() > kMaxPromptBytes)
      return too_large("the prompt on standard input has more than {}", size_text(kMaxPromptBytes));
  }
  if (text.empty()) return invalid_argument("no prompt: give --prompt TEXT or --input FILE.jsonl; standard input is empty");
  return text;
}

std::string rate_text(const RequestOutput& output) {
  size_t tokens = 0;
  for (const auto& c : output.completions) tokens += c.token_ids.size();
  const double after_first = output.metrics.total_s - output.metrics.first_token_s;
  const size_t prompt = output.prompt_token_ids.size();
  std::string text = fmt::format("{} prompt token{}, {} generated in {:.2f} s, the first after {:.2f} s", prompt,
                                 prompt == 1 ? "" : "s", tokens, output.metrics.total_s, output.metrics.first_token_s);
  const size_t later = tokens - std::min(tokens, output.completions.size());
  if (later > 0 && after_first > 0) text += fmt::format(", then {:.1f} tokens/s", static_cast<double>(later) / after_first);
  if (output.completions.size() == 1) text += fmt::format(" ({})", finish_reason_name(output.completions[0].finish_reason));
  return text;
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  if (out.size() <= kShownPrompt) return out;
  size_t end = kShownPrompt;
  while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return out.substr(0, end) + "…";
}

Status print_record(size_t prompt, const std::vector<AdapterUse>& adapters, const RequestOutput& output) {
  CHORAL_RETURN_IF_ERROR(requests::write_answer(
      {.id_json = fmt::format("{}", prompt), .lora_json = requests::lora_json(adapters)}, output, print_out));
  return print_out("\n");
}

// One prompt, one answer: the text appears as it is made.
Status stream_one(LLM& llm, Interrupts& interrupts, Request request, bool quiet) {
  CHORAL_TRY(const auto stream, llm.submit(std::move(request)));
  const Interrupts::Scope scope(interrupts, {.call = [&] { stream->cancel(); }});
  std::optional<Progress> progress(quiet);
  progress->update("reading the prompt", Progress::kUnknown);
  StreamEvent event;
  AnswerStream answer;
  while (stream->next(event)) {
    progress.reset();
    CHORAL_RETURN_IF_ERROR(answer.write(event.text));
  }
  progress.reset();
  const RequestOutput output = stream->wait();
  CHORAL_RETURN_IF_ERROR(answer.end());
  CHORAL_RETURN_IF_ERROR(output.status);
  if (!quiet) say("choral: {}\n", rate_text(output));
  return output.completions.at(0).finish_reason == FinishReason::kCancelled ? interrupts.stopped() : Status();
}

Status print_answers(const GenerateFlags& flags, const std::vector<std::string>& prompts, const std::vector<AdapterUse>& adapters,
                     size_t index, const RequestOutput& output) {
  if (flags.json) return print_record(index, adapters, output);
  if (prompts.size() > 1) CHORAL_RETURN_IF_ERROR(print_out(fmt::format("[{}] {}\n", index + 1, one_line(prompts[index]))));
  for (const auto& c : output.completions) {
    const std::string head = output.completions.size() > 1 ? fmt::format("({}) ", c.index + 1) : "";
    CHORAL_RETURN_IF_ERROR(print_out(fmt::format("{}{}\n", head, c.text)));
  }
  if (!flags.engine.quiet && output.status.ok()) say("choral: {}\n", rate_text(output));
  if (!output.status.ok() && prompts.size() > 1) say("choral: {}\n", output.status.message());  // else told at the end
  return prompts.size() > 1 && index + 1 < prompts.size() ? print_out("\n") : Status();
}

// One prompt after the other, each with all its voices' answers.
Status compare(const GenerateFlags& flags, const std::vector<std::string>& prompts, const std::vector<Voice>& voices,
               const SamplingParams& sampling, LLM& llm, Interrupts& interrupts) {
  std::vector<Request> requests;
  std::vector<std::string> names, titles;
  for (const auto& one : voices) names.push_back(one.name);
  for (size_t i = 0; i < prompts.size(); ++i) {
    titles.push_back(prompts.size() > 1 ? fmt::format("[{}] {}\n", i + 1, one_line(prompts[i])) : "");
    for (const auto& one : voices)
      requests.emplace_back(prompt_request(prompts[i], flags.chat, flags.system, sampling)).adapters = one.adapters;
  }
  ComparedAnswers answers(names, titles, terminal_columns());
  if (prompts.size() > 1) names.clear();  // of many it is said how many are there
  const BatchRun run = answer_together(llm, interrupts, std::move(requests), "answering", names, flags.engine.quiet,
                                       flags.json ? nullptr : &answers);
  CHORAL_RETURN_IF_ERROR(run.written);
  Status first_error;
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const Voice& voice = voices[i % voices.size()];
    if (flags.json) CHORAL_RETURN_IF_ERROR(print_record(i / voices.size(), voice.adapters, run.outputs[i]));
    if (first_error.ok() && !run.outputs[i].status.ok()) first_error = Status(run.outputs[i].status).while_(voice.name);
  }
  if (!flags.engine.quiet) say("choral: {}\n", run.summary());
  return first_error.ok() && run.cancelled ? interrupts.stopped() : first_error;
}

Status run_prompts(const GenerateFlags& flags, std::vector<std::string> prompts) {
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  SamplingParams sampling;
  sampling.max_tokens = kDefaultMaxTokens;
  CHORAL_RETURN_IF_ERROR(flags.sampling.check(sampling));
  CHORAL_TRY(auto options, engine_options(flags.engine));
  std::string unused;
  Voice voice;
  std::vector<Voice> compared;
  if (flags.compare.empty()) {
    CHORAL_TRY(voice, chosen_voice(flags.adapters, flags.engine.adapters, options, unused));
  } else {
    if (!flags.adapters.empty()) return invalid_argument("give either --adapter or --compare");
    if (flags.sampling.n.value_or(1) != 1)
      return invalid_argument("--n {}: --compare shows one answer of each", *flags.sampling.n);
    CHORAL_TRY(compared, parse_voices(flags.compare).while_("--compare"));
    const auto known = known_adapters(options);
    for (const auto& one : compared) CHORAL_RETURN_IF_ERROR(check_voice(one, known, options.adapter_root));
  }
  CHORAL_TRY(const auto llm, load_llm(flags.engine, std::move(options)));
  if (!unused.empty() && !flags.engine.quiet) say("choral: {} (--adapter NAME, or --compare, chooses)\n", unused);
  sampling = serve::usual_sampling(*llm);
  sampling.max_tokens = kDefaultMaxTokens;
  flags.sampling.put_over(sampling);
  if (!compared.empty()) return compare(flags, prompts, compared, sampling, *llm, *interrupts);
  std::vector<Request> requests;
  for (const auto& prompt : prompts)
    requests.emplace_back(prompt_request(prompt, flags.chat, flags.system, sampling)).adapters = voice.adapters;
  if (requests.size() == 1 && sampling.n == 1 && !flags.json) {
    return stream_one(*llm, *interrupts, std::move(requests[0]), flags.engine.quiet);
  }
  const BatchRun run = answer_together(*llm, *interrupts, std::move(requests),
                                       fmt::format("answering {} prompt{}", prompts.size(), prompts.size() == 1 ? "" : "s"), {},
                                       flags.engine.quiet);
  Status first_error;
  size_t failed = 0;
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(print_answers(flags, prompts, voice.adapters, i, run.outputs[i]));
    if (run.outputs[i].status.ok()) continue;
    if (failed++ == 0) first_error = Status(run.outputs[i].status).while_(fmt::format("prompt {}", i + 1));
  }
  if (failed > 0) {
    return run.outputs.size() == 1
               ? run.outputs[0].status
               : std::move(first_error).while_(fmt::format("{} of {} prompts failed", failed, run.outputs.size()));
  }
  return run.cancelled ? interrupts->stopped() : Status();
}

Status run(const GenerateFlags& flags) {
  std::vector<std::string> prompts = flags.prompts;
  if (!flags.prompt_file.empty()) {
    CHORAL_TRY(auto text, io::read_whole_file(flags.prompt_file, kMaxPromptBytes).while_("--file"));
    prompts.push_back(std::move(text));
  }
  if (!flags.input.empty()) {
    if (!prompts.empty()) return invalid_argument("--input brings its own prompts: give either --input or --prompt");
    if (flags.chat || !flags.system.empty()) {
      return invalid_argument("--chat and --system go with --prompt; lines of --input have `messages`");
    }
    if (!flags.adapters.empty() || !flags.compare.empty())
      return invalid_argument("--adapter and --compare go with --prompt; lines of --input have `lora`");
    if (flags.resume && flags.output == "-") return invalid_argument("--resume goes with --output FILE");
    return generate_jsonl(flags.engine, flags.sampling, {flags.input, flags.output, flags.resume, flags.strict_fields});
  }
  if (flags.strict_fields) return invalid_argument("--strict-fields goes with --input FILE.jsonl, whose lines have fields");
  if (flags.resume) return invalid_argument("--resume goes with --input FILE.jsonl and --output FILE");
  if (!flags.json && (flags.sampling.logprobs || flags.sampling.prompt_logprobs))
    return invalid_argument("--logprobs and --prompt-logprobs are shown in records: add --json");
  if (flags.output != "-")
    return invalid_argument("--output goes with --input FILE.jsonl; to keep an answer, write > {}", flags.output);
  if (prompts.empty()) {
    if (flags.engine.options.model.empty()) return invalid_argument("no model was given: choral generate MODEL --prompt TEXT");
    CHORAL_TRY(auto text, read_stdin());
    prompts.push_back(std::move(text));
  }
  return run_prompts(flags, std::move(prompts));
}

}  // namespace

void add_generate(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("generate", "answer prompts: one after --prompt, many in one batch, or lines of JSON");
  const auto flags = std::make_shared<GenerateFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_option("-p,--prompt", flags->prompts, "the text to continue; may be repeated (default: standard input)")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  sub->add_option("-f,--file", flags->prompt_file, "a file with the text to continue")->type_name("FILE")->check(names_a_file);
  sub->add_flag("--chat", flags->chat, "put the prompt through the model's chat template as the user's message");
  sub->add_option("--system", flags->system, "the system's message; implies --chat")->type_name("TEXT");
  sub->add_flag("--json", flags->json, "print records: text, token ids, finish reason");
  sub->add_option("--input", flags->input, "requests, one JSON object a line; - is standard input")
      ->type_name("FILE")
      ->check(names_a_file);
  sub->add_option("--output", flags->output, "answers, one a line in the same order (standard output)")
      ->type_name("FILE")
      ->check(names_a_file);
  sub->add_flag("--resume", flags->resume, "go on where a run with the same --input and --output was stopped");
  sub->add_flag("--strict-fields", flags->strict_fields, "a field of a line that is not known is an error of that line");
  sub->add_option("--adapter", flags->adapters,
                  "who answers: NAME or NAME:FACTOR; several act together (the one of --lora, else base)")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->group("Adapters");
  sub->add_option("--compare", flags->compare, "all of these answer in one batch, e.g. base,pirate,pirate+yoda:0.5")
      ->type_name("LIST")
      ->group("Adapters");
  add_sampling_flags(*sub, flags->sampling);
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] {
    command.run = [flags] { return run(*flags); };
    command.follow = [flags] { return follow(flags->engine); };
  });
}

}  // namespace choral::apps
