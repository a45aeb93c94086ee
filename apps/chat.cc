// `choral chat`: a conversation in the terminal, or through a pipe: one line a message, answers on stdout, everything else on
// stderr.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "chat_session.h"
#include "command.h"
#include "engine_flags.h"
#include "interrupts.h"
#include "jsonl.h"
#include "output_file.h"
#include "progress.h"
#include "sampling_flags.h"

namespace choral::apps {
namespace {

constexpr int kDefaultMaxTokens = 1024;

constexpr const char* kHelp =
    "  /help               this list\n"
    "  /reset              a new conversation with the same system message\n"
    "  /system TEXT        another system message; without TEXT: none\n"
    "  /set NAME VALUE     e.g. /set temperature 0.7; /set alone shows all\n"
    "  /regen              the last answer once more\n"
    "  /stats              tokens and speed of the last answer\n"
    "  /save FILE, /load FILE\n"
    "  /quit               also Ctrl-D; Ctrl-C stops an answer\n"
    "A line that ends in \\ goes on in the next one. // at the start sends a line that begins with /.\n";

struct ChatFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string system;
};

class Chat {
 public:
  Chat(LLM& llm, Interrupts& interrupts, ChatSession session, bool quiet)
      : llm_(llm), interrupts_(interrupts), session_(std::move(session)), quiet_(quiet), typed_(isatty(STDIN_FILENO) == 1) {}

  Status run();

 private:
  bool read_message(std::string& text, Status& error);
  Status reply(Result<Request> request);
  Status command(std::string_view line);
  void show_stats() const;
  void note(std::string_view text) const { fmt::print(stderr, "{}\n", text); }

  LLM& llm_;
  Interrupts& interrupts_;
  ChatSession session_;
  const bool quiet_;
  const bool typed_;  // by a person at a terminal
  bool quit_ = false;
  RequestOutput last_;
};

// Typed: every error is shown and the conversation goes on. Piped: too, but the first one becomes the exit code.
Status Chat::run() {
  Status first_error;
  std::string text;
  if (typed_ && !quiet_) note("Type a message; /help lists the commands, Ctrl-D ends.");
  const Interrupts::Scope idle(
      interrupts_, {.call = [] { fmt::print(stderr, "\n(Ctrl-D or /quit ends)\n> "); }, .only_ctrl_c = true, .again = true});
  while (!quit_) {
    Status error;
    if (!read_message(text, error)) break;
    if (error.ok() && !text.empty()) {
      const bool is_command = text.front() == '/' && !text.starts_with("//");
      error = is_command ? command(text) : reply(session_.ask(text.starts_with("//") ? text.substr(1) : text));
    }
    if (!error.ok()) {
      note("choral: " + error.message());
      if (first_error.ok()) first_error = error;
    }
  }
  return typed_ ? Status() : first_error;
}

bool Chat::read_message(std::string& text, Status& error) {
  text.clear();
  if (typed_) fmt::print(stderr, "> ");
  LineReader lines(stdin);
  std::string line;
  bool any = false;
  while (lines.next(line)) {
    any = true;
    if (lines.too_long()) error = too_large("the message has more than {}", size_text(LineReader::kMaxBytes));
    if (line.ends_with('\r')) line.pop_back();
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.back() = '\n';
    text += line;
    if (!goes_on) return true;
  }
  if (typed_) fmt::print(stderr, "\n");
  return any;
}

Status Chat::reply(Result<Request> request) {
  if (!request.ok()) return std::move(request).status();
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
    while (stream->next(event)) {
      progress.reset();
      if (!event.text.empty() && written.ok()) written = print_out(event.text);
    }
  }
  last_ = stream->wait();
  if (written.ok()) written = print_out("\n");
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
    note(fmt::format(
        "(the context of {} tokens is full: the answer ends here. /reset starts a new conversation, /save FILE keeps this one)",
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
  std::string rest(space == line.npos ? "" : line.substr(space + 1));
  rest.erase(0, rest.find_first_not_of(' '));
  if (name == "/quit" || name == "/exit" || name == "/bye") {
    quit_ = true;
  } else if (name == "/help") {
    fmt::print(stderr, "{}", kHelp);
  } else if (name == "/reset") {
    session_.reset();
    note("(new conversation)");
  } else if (name == "/system") {
    session_.set_system(rest);
    note(rest.empty() ? "(no system message)" : "(system message set)");
  } else if (name == "/set") {
    const size_t gap = rest.find(' ');
    if (gap != rest.npos) CHORAL_RETURN_IF_ERROR(session_.set(rest.substr(0, gap), rest.substr(gap + 1)));
    if (gap == rest.npos && !rest.empty()) return invalid_argument("/set {}: give a value too", rest);
    note(session_.settings());
  } else if (name == "/regen") {
    return reply(session_.ask_again());
  } else if (name == "/stats") {
    show_stats();
  } else if (name == "/save" || name == "/load") {
    if (rest.empty()) return invalid_argument("{}: name a file", name);
    CHORAL_RETURN_IF_ERROR(name == "/save" ? session_.save(rest) : session_.load(rest));
    note(fmt::format("({} messages {} {})", session_.messages(), name == "/save" ? "saved to" : "loaded from", rest));
  } else {
    return invalid_argument("there is no command {}; /help lists them, // sends a line that begins with /", name);
  }
  return {};
}

Status run(const ChatFlags& flags) {
  Interrupts interrupts;
  CHORAL_TRY(const auto llm, load_llm(flags.engine));
  if (!llm->info().has_chat_template) {
    return unsupported("{} has no chat template: `choral generate` completes plain text, --chat-template FILE brings a template",
                       llm->info().name);
  }
  SamplingParams sampling = llm->default_sampling();
  sampling.max_tokens = kDefaultMaxTokens;
  flags.sampling.put_over(sampling);
  if (sampling.n != 1) return invalid_argument("--n {}: a chat has one answer", sampling.n);
  Chat chat(*llm, interrupts, ChatSession(*llm, sampling, flags.system), flags.engine.quiet);
  return chat.run();
}

}  // namespace

void add_chat(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("chat", "a conversation in the terminal");
  const auto flags = std::make_shared<ChatFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_option("--system", flags->system, "the system's message")->type_name("TEXT");
  add_sampling_flags(*sub, flags->sampling);
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
