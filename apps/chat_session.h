// A conversation as data: messages, who answers, sampling values, what the last answer took. The terminal is chat.cc's business.
// Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "choral/llm.h"
#include "output_file.h"
#include "voice.h"

namespace choral::apps {

class ChatSession {
 public:
  ChatSession(const LLM& llm, SamplingParams sampling, std::string system)
      : llm_(llm), sampling_(std::move(sampling)), system_(std::move(system)) {
    reset();
  }

  void reset();  // the system message stays
  void set_system(std::string text);
  // The request that answers `text`. Of a conversation that the context has no room for, with a quarter left for the answer, the
  // oldest messages are left out, the system's stays; a message that alone does not fit is the error, and the conversation stays
  // as it was.
  Result<Request> ask(std::string text);
  Result<Request> ask_again();  // the last question once more, without its answer
  // The last question, asked of whoever: nothing changes here, and the answer is not part of the conversation.
  Result<Request> last_question();
  void answer(std::string text);
  void take_back();                              // the last question, after an error
  Status undo();                                 // the last question and its answer
  size_t left_out() const { return left_out_; }  // of the last request

  void set_voice(Voice voice) { voice_ = std::move(voice); }
  const Voice& voice() const { return voice_; }

  // "temperature 0.7"; an unknown name is an error that lists the known ones.
  Status set(std::string_view name, std::string_view value);
  std::string settings() const;
  static std::vector<std::string> setting_names();

  Status save(OutputFile& file) const;  // and commits it
  Status load(const std::string& path);

  size_t messages() const { return messages_.size(); }

 private:
  Result<Request> request(std::vector<ChatMessage> messages);
  Result<size_t> tokens_of(const Request& request) const;

  const LLM& llm_;
  SamplingParams sampling_;
  std::string system_;
  std::vector<ChatMessage> messages_;
  Voice voice_;
  size_t left_out_ = 0;
};

}  // namespace choral::apps
