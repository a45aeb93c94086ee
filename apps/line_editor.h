// Lines that a person types at a terminal, over GNU readline: arrows, history over sessions, Ctrl-R, completion, and a paste as
// one text, line breaks and all. One at a time and one thread, but for interrupt(). The prompt goes to stderr, like all that is
// no answer.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::apps {

class LineEditor {
 public:
  // What may stand in the place of `word`, which begins behind `before`.
  using Complete = std::function<std::vector<std::string>(std::string_view before, std::string_view word)>;
  // `history`: a file with the lines of earlier sessions; empty: none is kept.
  static Result<std::unique_ptr<LineEditor>> make(std::filesystem::path history, Complete complete);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Got { kLine, kInterrupted, kEnd };
  // kInterrupted: what was typed is gone; `line` is that.
  Got read(const std::string& prompt, std::string& line);
  void interrupt();
  // The terminal as it was before read(): the process is about to end. Any thread.
  void restore_terminal();

 private:
  LineEditor() = default;
  void remember(const std::string& line);

  std::filesystem::path history_;
  int wake_fd_ = -1;
};

// $XDG_STATE_HOME/choral/chat_history, or that of ~/.local/state; CHORAL_HISTORY names another file, and empty none.
std::filesystem::path chat_history_file();

}  // namespace choral::apps
