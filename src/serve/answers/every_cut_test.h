// For tests: what a reader makes of a text, whole and in every division into two pieces and into single bytes, which must be the
// same; the rules of the events are checked on the way.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/answers/answer_reader.h"

namespace choral::serve {

// "id0", "id1", …
inline std::function<std::string()> counted_ids() {
  return [next = 0]() mutable { return "id" + std::to_string(next++); };
}

inline std::string show_answer(const ReadAnswer& answer) {
  std::string text = answer.reasoning.empty() ? "" : "{" + answer.reasoning + "}";
  text += "[" + answer.content + "]";
  for (const ToolCall& call : answer.calls) text += " " + call.id + ":" + call.name + "(" + call.arguments + ")";
  return text;
}

// Pieces into a reader, the sum of its events out.
template <class Reader>
ReadAnswer read_pieces(Reader reader, const std::vector<std::string_view>& pieces, AnswerEnd end) {
  ReadAnswer sum;
  size_t ended = 0;
  const auto add = [&](const AnswerEvents& events) {
    for (const AnswerEvent& event : events) {
      using Kind = AnswerEvent::Kind;
      const bool is_open = ended < sum.calls.size();
      switch (event.kind) {
        case Kind::kReasoning:
        case Kind::kContent: EXPECT_FALSE(is_open || event.text.empty()); break;
        case Kind::kCallBegin: EXPECT_FALSE(is_open || event.id.empty() || event.name.empty()); break;
        case Kind::kArguments: EXPECT_TRUE(is_open && !event.text.empty()); break;
        case Kind::kCallEnd: EXPECT_TRUE(is_open && ++ended == sum.calls.size()); break;
      }
      if (event.kind >= Kind::kCallBegin) {
        EXPECT_EQ(event.call + 1, sum.calls.size() + (event.kind == Kind::kCallBegin));
      }
      AnswerEvents one;
      if (event.kind == Kind::kCallBegin) one.begin_call(event.call, event.id, event.name);
      if (event.kind == Kind::kCallEnd) one.end_call(event.call, event.cut);
      one.say(event.kind, event.text, event.call);
      sum.add(one);
    }
  };
  for (const std::string_view piece : pieces) {
    AnswerEvents events;
    reader.push(piece, events);
    add(events);
  }
  AnswerEvents last;
  reader.finish(end, last);
  add(last);
  EXPECT_EQ(ended, sum.calls.size());
  EXPECT_EQ(reader.calls(), sum.calls.size());
  return sum;
}

// Every division gives the same; that one is returned.
template <class Reader>
std::string read_every_cut(const Reader& reader, std::string_view text, AnswerEnd end = AnswerEnd::kOver) {
  const std::string expected = show_answer(read_pieces(reader, {text}, end));
  std::vector<std::string_view> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_EQ(show_answer(read_pieces(reader, {text.substr(0, cut), text.substr(cut)}, end)), expected) << "cut at " << cut;
    bytes.push_back(text.substr(cut, 1));
  }
  EXPECT_EQ(show_answer(read_pieces(reader, bytes, end)), expected) << "single bytes of " << text;
  return expected;
}

}  // namespace choral::serve
