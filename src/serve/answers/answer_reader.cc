#include "serve/answers/answer_reader.h"

#include <utility>

namespace choral::serve {

AnswerReader::AnswerReader(AnswerReading reading) {
  const bool is_arguments = reading.reads_calls && !reading.calls.only_arguments_of.empty();
  const bool is_harmony = (reading.thoughts != nullptr && reading.thoughts->is_harmony) ||
                          (reading.reads_calls && call_marks(reading.calls.format).head == HeadForm::kNone);
  if (is_harmony && !is_arguments) {
    harmony_.emplace(reading.thoughts != nullptr, reading.reads_calls, std::move(reading.calls), reading.prompt_end);
    return;
  }
  if (reading.thoughts != nullptr && !reading.thoughts->is_harmony)
    thoughts_.emplace(*reading.thoughts, opens_thoughts(*reading.thoughts, reading.prompt_end));
  if (reading.reads_calls) calls_.emplace(std::move(reading.calls));
}

void AnswerReader::take(std::string_view text, bool is_all, AnswerEvents& out) {
  std::string reasoning, rest;
  if (thoughts_) {
    thoughts_->push(text, is_all, reasoning, rest);
    text = rest;
  }
  out.say(AnswerEvent::Kind::kReasoning, reasoning);
  if (calls_) {
    calls_->push(text, out);
  } else {
    out.say(AnswerEvent::Kind::kContent, text);
  }
}

void AnswerReader::push(std::string_view text, AnswerEvents& out) {
  if (harmony_) return harmony_->push(text, out);
  take(text, false, out);
}

void AnswerReader::finish(AnswerEnd end, AnswerEvents& out) {
  if (harmony_) return harmony_->finish(end, out);
  take({}, true, out);
  if (calls_) calls_->finish(end, out);
}

size_t AnswerReader::calls() const { return harmony_ ? harmony_->calls() : calls_ ? calls_->calls() : 0; }

ThoughtReader::Place AnswerReader::place() const {
  if (harmony_) return harmony_->place();
  return thoughts_ ? thoughts_->place() : ThoughtReader::Place::kRest;
}

size_t AnswerReader::ended_thoughts() const { return harmony_ ? harmony_->ended_thoughts() : thoughts_ ? thoughts_->ended() : 0; }

ReadAnswer read_answer(AnswerReader reader, std::string_view text, AnswerEnd end) {
  AnswerEvents events;
  reader.push(text, events);
  reader.finish(end, events);
  ReadAnswer sum;
  sum.add(events);
  return sum;
}

}  // namespace choral::serve
