#include "line_editor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

// Behind <cstdio>, which its headers need and do not include.
#include <readline/history.h>
#include <readline/readline.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/system_error.h"

namespace choral::apps {
namespace {

constexpr int kMostRemembered = 1000;
constexpr char kWordBreaks[] = " ,+";

// readline calls functions without context.
LineEditor::Complete complete_now;
std::string line_now;
bool has_line = false, is_end = false;

void take_line(char* line) {
  rl_callback_handler_remove();
  (line != nullptr ? has_line : is_end) = true;
  line_now = line != nullptr ? line : "";
  std::free(line);
}

char** completions(const char* word, int begin, int) {
  rl_attempted_completion_over = 1;  // no names of files
  if (!complete_now) return nullptr;
  static std::vector<std::string> found;
  found = complete_now(std::string_view(rl_line_buffer, static_cast<size_t>(begin)), word);
  const auto next = [](const char*, int state) -> char* {
    static size_t at;
    if (state == 0) at = 0;
    return at < found.size() ? ::strdup(found[at++].c_str()) : nullptr;
  };
  return rl_completion_matches(word, next);
}

}  // namespace

Result<std::unique_ptr<LineEditor>> LineEditor::make(std::filesystem::path history, Complete complete) {
  std::unique_ptr<LineEditor> made(new LineEditor());
  made->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made->wake_fd_ < 0) return system_error(errno, "cannot open a file descriptor for the line editor");
  made->history_ = std::move(history);
  complete_now = std::move(complete);
  rl_readline_name = "choral";
  rl_instream = stdin;
  rl_outstream = stderr;
  rl_basic_word_break_characters = kWordBreaks;
  rl_completer_word_break_characters = kWordBreaks;
  rl_attempted_completion_function = completions;
  using_history();
  history_comment_char = '#';  // times before the lines, which let a line of the file hold line breaks
  history_write_timestamps = 1;
  stifle_history(kMostRemembered);
  if (!made->history_.empty()) read_history(made->history_.c_str());  // none yet, or one that cannot be read, is an empty one
  return made;
}

LineEditor::~LineEditor() {
  restore_terminal();
  clear_history();
  complete_now = nullptr;
  if (wake_fd_ >= 0) close(wake_fd_);
}

void LineEditor::interrupt() {
  const uint64_t one = 1;
  CHORAL_CHECK(write(wake_fd_, &one, sizeof one) == sizeof one || errno == EAGAIN, "the line editor cannot be told of Ctrl-C");
}

void LineEditor::restore_terminal() {
  if (rl_readline_state & RL_STATE_TERMPREPPED) rl_callback_handler_remove();
}

LineEditor::Got LineEditor::read(const std::string& prompt, std::string& line) {
  has_line = is_end = false;
  uint64_t old = 0;
  while (::read(wake_fd_, &old, sizeof old) > 0) {
  }
  rl_callback_handler_install(prompt.c_str(), take_line);
  while (!has_line && !is_end) {
    pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      rl_check_signals();  // a resized terminal, a process that was stopped and goes on
      continue;
    }
    if (fds[1].revents != 0) {
      line.assign(rl_line_buffer, static_cast<size_t>(rl_end));
      rl_free_line_state();
      rl_callback_handler_remove();
      std::fputs("^C\n", stderr);
      return Got::kInterrupted;
    }
    if (fds[0].revents != 0) rl_callback_read_char();
  }
  line = std::exchange(line_now, {});
  if (is_end) return Got::kEnd;
  remember(line);
  return Got::kLine;
}

void LineEditor::remember(const std::string& line) {
  if (line.find_first_not_of(" \n\t") == line.npos) return;
  const HIST_ENTRY* last = history_length > 0 ? history_get(history_base + history_length - 1) : nullptr;
  if (last != nullptr && line == last->line) return;
  add_history(line.c_str());
  if (history_.empty()) return;
  // Kept at once, so that no session loses it; who cannot keep it goes on without.
  std::error_code ignored;
  std::filesystem::create_directories(history_.parent_path(), ignored);
  const mode_t before = umask(0077);
  if (append_history(1, history_.c_str()) != 0) write_history(history_.c_str());
  umask(before);
  history_truncate_file(history_.c_str(), kMostRemembered);
}

std::filesystem::path chat_history_file() {
  if (const char* file = std::getenv("CHORAL_HISTORY"); file != nullptr) return file;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/')
    return std::filesystem::path(state) / "choral" / "chat_history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::filesystem::path(home) / ".local" / "state" / "choral" / "chat_history";
}

}  // namespace choral::apps
