// Messages and commands of a chat: typed at a terminal with a line editor, or lines of a pipe. Main thread, but for
// interrupted().
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "interrupts.h"
#include "line_editor.h"

namespace choral::apps {

class ChatInput {
 public:
  static Result<std::unique_ptr<ChatInput>> make(Interrupts& interrupts, LineEditor::Complete complete);

  // False at the end. `error`: the message is too long; it was read to its end.
  bool next(const std::string& prompt, std::string& text, Status& error);
  bool is_typed() const { return editor_ != nullptr; }

 private:
  explicit ChatInput(Interrupts& interrupts) : interrupts_(interrupts) {}
  bool next_typed(const std::string& prompt, std::string& text);
  bool next_piped(std::string& text, Status& error);

  Interrupts& interrupts_;
  std::unique_ptr<LineEditor> editor_;  // of a terminal
};

}  // namespace choral::apps
