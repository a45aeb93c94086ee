// `choral chat`: a conversation in the terminal, or through a pipe: one line a message, answers on stdout, everything else on
// stderr.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>

#include "answer_layout.h"
#include "answer_stream.h"
#include "base/ascii.h"
#include "base/log.h"
#include "base/printable.h"
#include "batch.h"
#include "chat_input.h"
#include "chat_session.h"
#include "command.h"
#include "compared_answers.h"
#include "engine_flags.h"
#include "interrupts.h"
#include "output_file.h"
#include "progress.h"
#include "sampling_flags.h"
#include "serve/usual_sampling.h"
#include "terminal_text.h"
#include "voice.h"

namespace choral::apps {
namespace {

constexpr int kDefaultMaxTokens = 1024;

constexpr std::string_view kCommands[] = {"/adapter", "/compare", "/help", "/load",  "/quit",   "/reset",
                                          "/retry",   "/save",    "/set",  "/stats", "/system", "/undo"};

constexpr int kHelpColumn = 20;  // behind a command's two blanks
constexpr const char* kHelp =
    "  /help               this list\n"
    "  /reset              a new conversation with the same system message\n"
    "  /undo               the last message and its answer never were\n"
    "  /retry              the last answer once more\n"
    "  /system TEXT        another system message; without TEXT: none\n"
    "  /set NAME VALUE     e.g. /set temperature 0.7; /set alone shows all\n"
    "  /adapter NAME       who answers from now on: an adapter, NAME:FACTOR, A+B:0.5, or none; alone: lists them\n"
    "  /compare A B ...    all of these answer the next message in one batch; an empty line: the last one; base is the model "
    "alone\n"
    "  /stats              tokens and speed of the last answer\n"
    "  /save FILE, /load FILE\n"
    "  /quit               also Ctrl-D; Ctrl-C stops an answer";
constexpr const char* kMoreHelp =
    "A line that ends in \\ goes on in the next one; a paste is one message. // at the start sends a line that begins with /.";

struct ChatFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string system;
  std::string adapter;
};

class Chat {
 public:
  Chat(LLM& llm, Interrupts& interrupts, ChatSession session, const EngineFlags& flags)
      : llm_(llm),
        interrupts_(interrupts),
        session_(std::move(session)),
        quiet_(flags.quiet),
        adapter_root_(flags.options.adapter_root) {}

  void use(Voice voice);  // from now on it answers
  Status run();

 private:
  Status choose_adapter(std::string_view name);
  void tell_left_out();
  Status reply(Result<Request> request);
  Status command(std::string_view line);
  Status save(const std::string& path) const;
  void list_adapters() const;
  Status choose_compared(std::string_view names);
  Status compare(std::string_view text);
  std::vector<std::string> completions(std::string_view before, std::string_view word) const;
  void show_stats() const;
  void note(std::string_view text) const { say_wrapped(text); }

  LLM& llm_;
  Interrupts& interrupts_;
  ChatSession session_;
  const bool quiet_;
  const std::string adapter_root_;
  bool typed_ = false;  // by a person at a terminal
  bool quit_ = false;
  std::string prompt_ = "> ";    // or "pirate> "
  std::vector<Voice> compared_;  // by the next message
  size_t told_left_out_ = 0;     // messages, that they are left out
  RequestOutput last_;
};

// Typed: every error is shown and the conversation goes on. Piped: too, but the first one gives the exit code.
Status Chat::run() {
  Status first_error;
  std::string text;
  bool any = false;
  const auto complete = [this](std::string_view before, std::string_view word) { return completions(before, word); };
  CHORAL_TRY(const auto input, ChatInput::make(interrupts_, complete));
  typed_ = input->is_typed();
  if (typed_ && !quiet_) note("Type a message; /help lists the commands, Ctrl-D ends.");
  while (!quit_) {
    Status error;
    if (!input->next(prompt_, text, error)) break;
    any = true;
    if (error.ok() && text.empty() && !compared_.empty()) {
      error = compare(text);
    } else if (error.ok() && !text.empty()) {
      const bool is_command = text.front() == '/' && !text.starts_with("//");
      if (!is_command && text.starts_with("//")) text.erase(0, 1);
      error = is_command ? command(text) : compared_.empty() ? reply(session_.ask(text)) : compare(text);
    }
    if (!error.ok()) {
      note("choral: " + error.message());
      if (first_error.ok()) first_error = error;
    }
  }
  if (!any && !typed_ && !quiet_) note("choral: no message came: standard input is closed or empty");
  return typed_ || first_error.ok() ? Status() : Status(first_error.code(), "not every line was answered: see above");
}

// The oldest messages that the context has no room for are not read any more.
void Chat::tell_left_out() {
  const size_t left_out = session_.left_out();
  if (left_out > told_left_out_) {
    note(fmt::format(
        "(the context of {} tokens is full: the model does not read the oldest {} messages any more; /reset starts a new "
        "conversation, /save FILE keeps all of this one)",
        llm_.info().max_model_len, left_out));
  }
  told_left_out_ = left_out;
}

Status Chat::reply(Result<Request> request) {
  if (!request.ok()) return std::move(request).status();
  tell_left_out();
  auto submitted = llm_.submit(std::move(*request));
  if (!submitted.ok()) {
    session_.take_back();
    return std::move(submitted).status();
  }
  const auto& stream = *submitted;
  Status written;
  {
    const Interrupts::Scope scope(interrupts_,
                                  {.call = [&stream = *stream] { stream.cancel(); }, .only_ctrl_c = true, .again = true});
    std::optional<Progress> progress(quiet_ || !typed_);
    progress->update("thinking", Progress::kUnknown);
    StreamEvent event;
    AnswerStream answer;
    while (stream->next(event)) {
      progress.reset();
      if (written.ok()) written = answer.write(event.text);
    }
    if (written.ok()) written = answer.end();
  }
  last_ = stream->wait();
  CHORAL_RETURN_IF_ERROR(written);
  if (!last_.status.ok()) {
    session_.take_back();
    return last_.status;
  }
  const Completion& c = last_.completions.at(0);
  session_.answer(c.text);
  const int used = static_cast<int>(last_.prompt_token_ids.size() + c.token_ids.size());
  if (c.finish_reason == FinishReason::kCancelled) note("(stopped)");
  if (c.finish_reason == FinishReason::kLength && used >= llm_.info().max_model_len) {
    note(fmt::format("(the context of {} tokens is full: the answer ends here; the next message leaves out the oldest ones)",
                     llm_.info().max_model_len));
  } else if (c.finish_reason == FinishReason::kLength) {
    note(fmt::format("(cut after {} tokens; /set max_tokens N allows more)", c.token_ids.size()));
  }
  return {};
}

void Chat::show_stats() const {
  if (last_.completions.empty()) return note("no answer yet");
  const size_t tokens = last_.completions[0].token_ids.size();
  const double after_first = last_.metrics.total_s - last_.metrics.first_token_s;
  const double rate = tokens > 1 && after_first > 0 ? static_cast<double>(tokens - 1) / after_first : 0;
  const EngineStats stats = llm_.stats();
  note(
      fmt::format("last answer: {} tokens at {:.1f} tokens/s, the first after {:.2f} s; its prompt: {} tokens, {} of them cached",
                  tokens, rate, last_.metrics.first_token_s, last_.prompt_token_ids.size(), last_.cached_tokens));
  note(fmt::format("context: {} of {} tokens; KV blocks: {} of {} free; {} tokens generated in all",
                   last_.prompt_token_ids.size() + tokens, llm_.info().max_model_len, stats.kv_blocks_free, stats.kv_blocks_total,
                   stats.generated_tokens));
}

Status Chat::command(std::string_view line) {
  const size_t space = line.find(' ');
  const std::string_view name = line.substr(0, space);
  const std::string rest(trimmed(space == line.npos ? "" : line.substr(space + 1)));
  if (name == "/quit" || name == "/exit" || name == "/bye") {
    quit_ = true;
  } else if (name == "/help") {
    say_wrapped(kHelp, kHelpColumn);
    say_wrapped(kMoreHelp, 0);
  } else if (name == "/reset") {
    session_.reset();
    compared_.clear();
    note("(new conversation)");
  } else if (name == "/system") {
    session_.set_system(rest);
    note(rest.empty() ? "(no system message)" : "(system message set)");
  } else if (name == "/set") {
    const size_t gap = rest.find(' ');
    if (gap != rest.npos) CHORAL_RETURN_IF_ERROR(session_.set(rest.substr(0, gap), rest.substr(gap + 1)));
    if (gap == rest.npos && !rest.empty()) return invalid_argument("/set {}: give a value too", rest);
    note(session_.settings());
  } else if (name == "/adapter") {
    return choose_adapter(rest);
  } else if (name == "/compare") {
    return choose_compared(rest);
  } else if (name == "/retry" || name == "/regen") {
    return reply(session_.ask_again());
  } else if (name == "/undo") {
    CHORAL_RETURN_IF_ERROR(session_.undo());
    note(
        fmt::format("(taken back; the conversation has {} message{})", session_.messages(), session_.messages() == 1 ? "" : "s"));
  } else if (name == "/stats") {
    show_stats();
  } else if (name == "/save" || name == "/load") {
    if (rest.empty()) return invalid_argument("{}: name a file", name);
    CHORAL_RETURN_IF_ERROR(name == "/save" ? save(rest) : session_.load(rest));
    note(fmt::format("({} messages {} {})", session_.messages(), name == "/save" ? "saved to" : "loaded from", rest));
  } else {
    return invalid_argument("there is no command {}; /help lists them, // sends a line that begins with /", name);
  }
  return {};
}

Status Chat::save(const std::string& path) const {
  CHORAL_TRY(const auto file, OutputFile::create(path, OutputFile::Pipes::kRefused));
  if (!quiet_ && !file->remark().empty()) note("choral: /save: " + file->remark());
  return session_.save(*file);
}

// Commands at the beginning of a line; behind those that take them settings, and the names of who may answer.
std::vector<std::string> Chat::completions(std::string_view before, std::string_view word) const {
  std::vector<std::string> words;
  if (before.empty()) {
    words.assign(std::begin(kCommands), std::end(kCommands));
  } else if (before.starts_with("/adapter ") || before.starts_with("/compare ")) {
    words = known_adapters(llm_, adapter_root_);
    words.emplace_back(kBaseName);
  } else if (before == "/set ") {
    words = ChatSession::setting_names();
  }
  std::erase_if(words, [&](const std::string& one) { return !one.starts_with(word); });
  return words;
}

void Chat::list_adapters() const {
  std::map<std::string, std::string> lines;
  for (const auto& name : known_adapters(llm_, adapter_root_)) lines[name] = "on disk, loaded at first use";
  for (const auto& a : llm_.adapters()) {
    if (a.state == AdapterState::kFailed) {
      lines[a.name] = "failed: " + a.error;
    } else if (!a.digest.empty()) {
      lines[a.name] = fmt::format("{}{}rank {}, {}, {}", a.kind, a.kind.empty() ? "" : ", ", a.rank, size_text(a.size_bytes),
                                  adapter_state_name(a.state));
      for (const auto& text : a.notes) lines[a.name] += "; " + text;
    }
  }
  if (lines.empty()) return note("(no adapters; start with --lora NAME=PATH or --adapter-root DIR)");
  const bool base = session_.voice().adapters.empty();
  note(fmt::format("{} {:<16} the model alone", base ? "*" : " ", kBaseName));
  for (const auto& [name, line] : lines) {
    const auto is_it = [&name = name](const AdapterUse& use) { return use.name == name; };
    const auto& used = session_.voice().adapters;
    note(fmt::format("{} {:<16} {}", std::any_of(used.begin(), used.end(), is_it) ? "*" : " ", name, line));
  }
}

Status Chat::choose_adapter(std::string_view name) {
  if (name.empty()) return list_adapters(), Status();
  const auto known = known_adapters(llm_, adapter_root_);
  const bool none = name == "none" && std::find(known.begin(), known.end(), "none") == known.end();
  CHORAL_TRY(auto voice, parse_voice(none ? kBaseName : name).while_("/adapter"));
  CHORAL_RETURN_IF_ERROR(check_voice(voice, known, adapter_root_));
  use(std::move(voice));
  return {};
}

void Chat::use(Voice voice) {
  if (!quiet_) note(voice.adapters.empty() ? "(the base model answers)" : fmt::format("({} answers)", voice.name));
  prompt_ = voice.adapters.empty() ? "> " : terminal_line(voice.name) + "> ";
  session_.set_voice(std::move(voice));
}

Status Chat::choose_compared(std::string_view names) {
  std::string list;  // blanks and commas both part names
  for (const char c : names) {
    if (c != ' ' && c != ',') {
      list += c;
    } else if (!list.empty() && list.back() != ',') {
      list += ',';
    }
  }
  if (list.ends_with(',')) list.pop_back();
  const auto known = known_adapters(llm_, adapter_root_);
  if (list.empty()) {
    if (known.empty()) return invalid_argument("/compare: no adapters; start with --lora NAME=PATH or --adapter-root DIR");
    return invalid_argument("/compare: name some of {}, {}", kBaseName, fmt::join(known, ", "));
  }
  CHORAL_TRY(auto voices, parse_voices(list).while_("/compare"));
  for (const auto& voice : voices) CHORAL_RETURN_IF_ERROR(check_voice(voice, known, adapter_root_));
  compared_ = std::move(voices);
  note(fmt::format("(the next message goes to all {}; an empty line asks the last one again)", compared_.size()));
  return {};
}

// The conversation goes on with the answer of who is in use, or else of the first that gave one.
Status Chat::compare(std::string_view text) {
  const std::vector<Voice> voices = std::exchange(compared_, {});
  const bool is_new = !text.empty();
  CHORAL_TRY(const auto request, is_new ? session_.ask(std::string(text)) : session_.last_question());
  tell_left_out();
  std::vector<Request> requests(voices.size(), request);
  std::vector<std::string> names;
  for (size_t i = 0; i < voices.size(); ++i) {
    requests[i].adapters = voices[i].adapters;
    names.push_back(voices[i].name);
  }
  ComparedAnswers answers(names, {""}, terminal_columns());
  const BatchRun run = answer_together(llm_, interrupts_, std::move(requests), "thinking", names, quiet_ || !typed_, &answers,
                                       /*only_ctrl_c=*/true);
  Status first_error;
  std::optional<size_t> kept;
  for (size_t i = 0; i < voices.size(); ++i) {
    const RequestOutput& output = run.outputs[i];
    if (!output.status.ok()) {
      if (first_error.ok()) first_error = Status(output.status).while_(voices[i].name);
    } else if (!kept || voices[i].name == session_.voice().name) {
      kept = i;
      last_ = output;
    }
  }
  if (is_new && kept) session_.answer(run.outputs[*kept].completions.at(0).text);
  if (is_new && !kept) session_.take_back();
  CHORAL_RETURN_IF_ERROR(run.written);
  if (!quiet_) {
    note(fmt::format("({}{}{})", run.summary(), run.cancelled ? "; stopped" : "",
                     is_new && kept ? fmt::format("; the conversation goes on with {}'s", voices[*kept].name) : ""));
  }
  return first_error;
}

Status run(const ChatFlags& flags) {
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  SamplingParams sampling;
  sampling.max_tokens = kDefaultMaxTokens;
  CHORAL_RETURN_IF_ERROR(flags.sampling.check(sampling));
  if (flags.sampling.n.value_or(1) != 1) return invalid_argument("--n {}: a chat has one answer", *flags.sampling.n);
  if (flags.sampling.logprobs || flags.sampling.prompt_logprobs)
    return invalid_argument("--logprobs and --prompt-logprobs: a chat shows none; `choral generate --json` does");
  CHORAL_TRY(auto options, engine_options(flags.engine));
  std::string unused;
  std::vector<std::string> chosen;
  if (!flags.adapter.empty()) chosen.push_back(flags.adapter);
  CHORAL_TRY(auto voice, chosen_voice(chosen, flags.engine.adapters, options, unused));
  CHORAL_TRY(const auto llm, load_llm(flags.engine, std::move(options)));
  if (!llm->info().has_chat_template) {
    return unsupported("{} has no chat template: `choral generate` completes plain text, --chat-template FILE brings a template",
                       llm->info().name);
  }
  if (!unused.empty() && !flags.engine.quiet) say("choral: {} (/adapter NAME, or /compare, chooses)\n", unused);
  sampling = serve::usual_sampling(*llm);
  sampling.max_tokens = kDefaultMaxTokens;
  flags.sampling.put_over(sampling);
  const std::string dice = flags.sampling.temperature ? "" : remark_about_dice(llm->info().parameters, sampling.temperature);
  if (!dice.empty() && !flags.engine.quiet) say_wrapped("choral: " + dice);
  Chat chat(*llm, *interrupts, ChatSession(*llm, sampling, flags.system), flags.engine);
  if (!voice.adapters.empty()) chat.use(std::move(voice));
  return chat.run();
}

}  // namespace

void add_chat(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("chat", "a conversation in the terminal");
  const auto flags = std::make_shared<ChatFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_option("--system", flags->system, "the system's message")->type_name("TEXT");
  sub->add_option("--adapter", flags->adapter, "who answers at first: NAME, NAME:FACTOR or A+B:0.5; /adapter changes it")
      ->type_name("NAME")
      ->group("Adapters");
  add_sampling_flags(*sub, flags->sampling);
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
