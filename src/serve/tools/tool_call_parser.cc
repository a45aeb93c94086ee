#include "serve/tools/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "serve/tools/call_head.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxHeldSpace = 64;      // white space before a call that goes with it
constexpr size_t kMaxHeldCall = 1 << 20;  // bytes of a call whose name is not known yet
constexpr size_t kMaxCalls = 128;

std::string_view begin_marker(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes: return marker::kHermesBegin;
    case ToolFormat::kLlama3Json: return marker::kPythonTag;
    case ToolFormat::kMistral: return marker::kMistralBegin;
    case ToolFormat::kDeepSeekV3: return marker::kDeepSeekCallsBegin;
    case ToolFormat::kJson: return {};
  }
  return {};
}

// How an answer may begin that is a call without a marker.
std::string_view begin_characters(ToolFormat format) {
  switch (format) {
    case ToolFormat::kLlama3Json: return "{";
    case ToolFormat::kMistral: return "[";  // its marker is a special token, which some servers drop
    case ToolFormat::kJson: return "{[`";
    default: return {};
  }
}

}  // namespace

ToolCallParser::ToolCallParser(ToolFormat format, Announce announce, std::function<std::string()> make_id)
    : format_(format), announce_(announce), make_id_(std::move(make_id)) {}

ToolCallParser ToolCallParser::of_arguments(std::string function, Announce announce, std::function<std::string()> make_id) {
  ToolCallParser parser(ToolFormat::kJson, announce, std::move(make_id));
  parser.only_arguments_ = parser.only_calls_ = true;
  parser.at_begin_ = false;
  parser.mode_ = Mode::kJson;
  parser.reader_ = JsonCallReader::of_arguments(std::move(function));
  return parser;
}

void ToolCallParser::push(std::string_view text, AnswerDelta& out) {
  held_ += text;
  run(out);
}

void ToolCallParser::finish(End end, AnswerDelta& out) {
  finishing_ = true;
  if (end == End::kCut) end_cut(out);
  run(out);
}

void ToolCallParser::run(AnswerDelta& out) {
  while (step(out)) {
  }
}

bool ToolCallParser::step(AnswerDelta& out) {
  switch (mode_) {
    case Mode::kContent: return content_step(out);
    case Mode::kHead: return head_step();
    case Mode::kJson: return json_step(out);
    case Mode::kTail: return tail_step();
  }
  return false;
}

// Where the white space begins that stands before at_, which a call would take with it.
size_t ToolCallParser::before_space() const {
  size_t begin = at_;
  while (begin > 0 && at_ - begin < kMaxHeldSpace && is_blank(held_[begin - 1])) --begin;
  return begin;
}

void ToolCallParser::emit_content(size_t end, AnswerDelta& out) {
  const auto text = std::string_view(held_).substr(0, end);
  if (text.find_first_not_of(" \t\r\n") != text.npos) only_calls_ = false;  // a constraint that was not kept
  out.content += text;
  held_.erase(0, end);
  at_ -= end;
}

void ToolCallParser::begin_call(size_t marker_end, bool marked) {
  marker_end_ = marker_end;
  marked_ = marked;
  in_array_ = in_fence_ = false;
  mode_ = Mode::kHead;
}

bool ToolCallParser::begins_with_call() {
  const size_t first = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
  if (first > CallCursor::kMaxBytes || first == held_.size()) return false;
  at_begin_ = false;
  if (begin_characters(format_).find(held_[first]) == std::string_view::npos) return false;
  at_ = first;
  begin_call(first, false);
  return true;
}

bool ToolCallParser::content_step(AnswerDelta& out) {
  if (at_begin_) {
    if (begins_with_call()) return true;
    const bool only_space = held_.find_first_not_of(" \t\r\n") == std::string::npos;
    if (only_space && !finishing_ && held_.size() <= CallCursor::kMaxBytes) return false;
    at_begin_ = false;
  }
  const std::string_view wanted = only_arguments_ || calls_ >= kMaxCalls ? std::string_view() : begin_marker(format_);
  for (; at_ < held_.size(); ++at_) {
    if (wanted.empty() || held_[at_] != wanted[0]) continue;
    const std::string_view rest = std::string_view(held_).substr(at_);
    if (rest.starts_with(wanted)) {
      emit_content(before_space(), out);
      at_ += wanted.size();
      begin_call(at_, true);
      return true;
    }
    if (wanted.starts_with(rest) && !finishing_) break;
  }
  emit_content(finishing_ ? at_ : before_space(), out);
  return false;
}

// What was held for a call is content; a marker may still stand in it.
void ToolCallParser::give_up() {
  at_ = marker_end_;
  mode_ = Mode::kContent;
  reader_.reset();
  announced_ = false;
}

void ToolCallParser::drop_read() {
  held_.erase(0, at_);
  at_ = marker_end_ = 0;
}

void ToolCallParser::end_cut(AnswerDelta& out) {
  const bool is_call = mode_ == Mode::kJson && (reader_->is_known() || (only_calls_ && !reader_->name().empty()));
  if (is_call && !announced_) {
    announce(out);
    give_arguments(out);
    out.calls.back().cut = true;
  }
  if (is_call || only_calls_) {
    held_.clear();
    at_ = marker_end_ = 0;
    mode_ = Mode::kContent;
  }
}

ToolCallParser::Found ToolCallParser::head(CallCursor& text) const {
  Found found;
  bool there = false;
  if (in_array_) {
    text.space();
    there = text.peek("{");
  } else if (format_ == ToolFormat::kDeepSeekV3) {
    there = deepseek_head(text, found.name);
  } else if (format_ == ToolFormat::kLlama3Json) {
    text.space();
    there = text.peek("{");
  } else if (format_ == ToolFormat::kJson) {
    text.space();
    found.fence = text.peek("`");
    there = (!found.fence || fence(text)) && object_or_array(text, found.array);
  } else {
    there = object_or_array(text, found.array);
    if (!there && !found.array && marked_ && format_ == ToolFormat::kMistral) there = mistral_head(text, found.name);
  }
  found.there = there;
  return found;
}

bool ToolCallParser::head_step() {
  CallCursor text(std::string_view(held_).substr(at_));
  const Found found = head(text);
  if (!found.there) {
    if (text.ran_out() && !finishing_) return false;
    give_up();
    return true;
  }
  at_ += text.at();
  in_array_ = in_array_ || found.array;
  in_fence_ = in_fence_ || found.fence;
  reader_ = found.name.empty() ? JsonCallReader(marked_) : JsonCallReader::of_arguments(found.name);
  mode_ = Mode::kJson;
  return true;
}

void ToolCallParser::announce(AnswerDelta& out) {
  announced_ = true;
  out.calls.push_back({calls_++, make_id_(), reader_->name(), {}});
}

void ToolCallParser::give_arguments(AnswerDelta& out) {
  std::string arguments = reader_->take_arguments();
  if (arguments.empty()) return;
  if (out.calls.empty() || out.calls.back().index + 1 != calls_) out.calls.push_back({calls_ - 1, {}, {}, {}});
  out.calls.back().arguments += arguments;
}

bool ToolCallParser::json_step(AnswerDelta& out) {
  while (at_ < held_.size()) {
    const JsonCallReader::Step step = reader_->feed(held_[at_]);
    if (step == JsonCallReader::Step::kFailed) {
      if (!announced_) {
        give_up();
        return true;
      }
      give_arguments(out);
      drop_read();
      give_up();
      return true;
    }
    ++at_;
    const bool done = step == JsonCallReader::Step::kDone;
    if (!announced_ && (done || (announce_ == Announce::kEarly && reader_->is_known()))) announce(out);
    if (done) {
      give_arguments(out);
      drop_read();
      reader_.reset();
      announced_ = false;
      mode_ = Mode::kTail;
      return true;
    }
    if (!announced_ && at_ > kMaxHeldCall) {
      give_up();
      return true;
    }
  }
  if (announced_) {
    give_arguments(out);
    drop_read();
  }
  if (!finishing_) return false;
  give_up();
  return true;
}

ToolCallParser::Found ToolCallParser::tail(CallCursor& text) const {
  const auto there = [&text](bool again) {
    Found found;
    found.there = found.sure = true;
    found.bytes = text.at();
    found.again = again;
    return found;
  };
  Found found;
  text.space();
  if (in_array_) {
    if (text.take(",")) return there(true);
    if (!text.take("]")) return found;
    found = there(false);
    found.sure = false;  // an end marker may follow
    text.space();
  }
  switch (format_) {
    case ToolFormat::kHermes:
      if (text.take(marker::kHermesEnd)) return there(false);
      break;
    case ToolFormat::kLlama3Json:
      if (text.take(";")) return there(true);
      break;
    case ToolFormat::kJson:
      if (in_fence_ && text.take("```")) return there(false);
      break;
    case ToolFormat::kDeepSeekV3:
      if (text.take("```")) text.space();
      if (!text.take(marker::kDeepSeekCallEnd)) break;
      found = there(false);
      found.sure = false;
      text.space();
      if (text.peek(marker::kDeepSeekCallBegin)) return there(true);
      if (text.take(marker::kDeepSeekCallsEnd)) return there(false);
      break;
    case ToolFormat::kMistral: break;
  }
  return found;
}

bool ToolCallParser::tail_step() {
  CallCursor text(held_);
  const Found found = only_arguments_ ? Found() : tail(text);
  if (!found.sure && text.ran_out() && !finishing_) return false;
  mode_ = found.again && calls_ < kMaxCalls ? Mode::kHead : Mode::kContent;
  if (!found.there) return true;
  at_ = found.bytes;
  if (mode_ == Mode::kContent) drop_read();
  return true;
}

ParsedAnswer parse_tool_calls(ToolCallParser parser, std::string_view answer, ToolCallParser::End end) {
  AnswerDelta delta;
  parser.push(answer, delta);
  parser.finish(end, delta);
  ParsedAnswer parsed;
  parsed.content = std::move(delta.content);
  for (ToolCallDelta& call : delta.calls) {
    parsed.calls.push_back({std::move(call.id), std::move(call.name), std::move(call.arguments)});
  }
  return parsed;
}

}  // namespace choral::serve
