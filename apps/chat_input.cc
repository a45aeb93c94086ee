#include "chat_input.h"

#include <unistd.h>

#include "base/log.h"
#include "base/size_text.h"
#include "line_reader.h"

namespace choral::apps {

Result<std::unique_ptr<ChatInput>> ChatInput::make(Interrupts& interrupts, LineEditor::Complete complete) {
  std::unique_ptr<ChatInput> made(new ChatInput(interrupts));
  if (isatty(STDIN_FILENO) == 1) {
    CHORAL_TRY(made->editor_, LineEditor::make(chat_history_file(), std::move(complete)));
  }
  return made;
}

bool ChatInput::next(const std::string& prompt, std::string& text, Status& error) {
  return is_typed() ? next_typed(prompt, text) : next_piped(text, error);
}

// A line that ends in \ goes on in the next one.
bool ChatInput::next_typed(const std::string& prompt, std::string& text) {
  const Interrupts::Scope idle(interrupts_, {.call = [this] { editor_->interrupt(); }, .only_ctrl_c = true, .again = true});
  const Interrupts::Tidying tidying(interrupts_, [this] { editor_->restore_terminal(); });
  text.clear();
  std::string line;
  for (;;) {
    switch (editor_->read(text.empty() ? prompt : "… ", line)) {
      case LineEditor::Got::kEnd: return say("\n"), !text.empty();
      case LineEditor::Got::kInterrupted:
        if (line.empty() && text.empty()) say("(Ctrl-D or /quit ends)\n");
        text.clear();
        continue;
      case LineEditor::Got::kLine: break;
    }
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.back() = '\n';
    text += line;
    if (!goes_on) return true;
  }
}

bool ChatInput::next_piped(std::string& text, Status& error) {
  text.clear();
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
  return any;
}

}  // namespace choral::apps
