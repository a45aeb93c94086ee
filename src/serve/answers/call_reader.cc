#include "serve/answers/call_reader.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "serve/answers/call_cursor.h"
#include "serve/answers/function_name.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxHeldSpace = 64;     // white space before a call that goes with it
constexpr size_t kMaxGivenUp = 1 << 20;  // behind that no mark counts: text is read twice, not any number of times

const std::shared_ptr<const ParameterTypes>& no_types() {
  static const auto none = std::make_shared<const ParameterTypes>();
  return none;
}

}  // namespace

CallReader::CallReader(CallReading reading) : reading_(std::move(reading)), marks_(&call_marks(reading_.format)) {
  if (!reading_.types) reading_.types = no_types();
  only_calls_ = reading_.only_calls;
  if (reading_.only_arguments_of.empty()) return;
  only_calls_ = true;
  at_begin_ = false;
  mode_ = Mode::kBody;
  body_ = JsonCall::of_arguments(reading_.only_arguments_of);
}

void CallReader::push(std::string_view text, AnswerEvents& out) {
  held_ += text;
  run(out);
}

void CallReader::finish(AnswerEnd end, AnswerEvents& out) {
  finishing_ = true;
  if (end == AnswerEnd::kCut) end_cut(out);
  run(out);
}

void CallReader::run(AnswerEvents& out) {
  while (step(out)) {
  }
}

bool CallReader::step(AnswerEvents& out) {
  switch (mode_) {
    case Mode::kContent: return content_step(out);
    case Mode::kHead: return head_step();
    case Mode::kBody: return body_step(out);
    case Mode::kTail: return tail_step();
  }
  return false;
}

// --- content ---

// Where the white space begins that stands before at_, which a call would take with it.
size_t CallReader::before_space() const {
  size_t begin = at_;
  while (begin > 0 && at_ - begin < kMaxHeldSpace && is_blank(held_[begin - 1])) --begin;
  return begin;
}

void CallReader::say(size_t end, AnswerEvents& out) {
  const auto text = std::string_view(held_).substr(0, end);
  if (text.find_first_not_of(kBlanks) != text.npos) only_calls_ = false;  // a constraint that was not kept
  out.say(AnswerEvent::Kind::kContent, text);
  held_.erase(0, end);
  at_ -= end;
}

void CallReader::begin_call(size_t mark_end, bool marked) {
  mark_end_ = mark_end;
  marked_ = marked;
  in_array_ = in_fence_ = false;
  id_.clear();
  mode_ = Mode::kHead;
}

bool CallReader::begins_with_call() {
  const size_t first = std::min(held_.find_first_not_of(kBlanks), held_.size());
  if (first > CallCursor::kMaxBytes || first == held_.size()) return false;
  at_begin_ = false;
  if (marks_->bare.find(held_[first]) == std::string_view::npos) return false;
  at_ = first;
  begin_call(first, false);
  return true;
}

bool CallReader::begin_marked(std::string_view mark, AnswerEvents& out) {
  say(before_space(), out);
  begin_call(at_ + mark.size(), true);
  // What begins each call is the head's.
  if (mark != marks_->call_begin) at_ += mark.size();
  in_fence_ = mark.starts_with("```");
  return true;
}

bool CallReader::content_step(AnswerEvents& out) {
  if (at_begin_) {
    if (begins_with_call()) return true;
    const bool only_space = held_.find_first_not_of(kBlanks) == std::string::npos;
    if (only_space && !finishing_ && held_.size() <= CallCursor::kMaxBytes) return false;
    at_begin_ = false;
  }
  const bool counts = reading_.only_arguments_of.empty() && calls_ < kMaxCalls && given_up_ < kMaxGivenUp;
  for (bool may_begin = false; counts && at_ < held_.size(); ++at_) {
    const std::string_view rest = std::string_view(held_).substr(at_);
    for (const std::string_view mark : marks_->begins) {
      if (mark.empty() || mark[0] != rest[0]) continue;
      if (rest.starts_with(mark)) return begin_marked(mark, out);
      may_begin = may_begin || (mark.starts_with(rest) && !finishing_);
    }
    if (may_begin) break;
  }
  if (!counts) at_ = held_.size();
  say(finishing_ ? at_ : before_space(), out);
  return false;
}

// What was held for a call is content; a mark may still stand in it.
void CallReader::give_up() {
  given_up_ += at_ - std::min(at_, mark_end_);
  at_ = mark_end_;
  mode_ = Mode::kContent;
  body_ = std::monostate();
  told_ = false;
}

void CallReader::drop_read() {
  held_.erase(0, at_);
  at_ = mark_end_ = 0;
}

void CallReader::end_cut(AnswerEvents& out) {
  const bool is_call = mode_ == Mode::kBody && (is_known() || (only_calls_ && !name().empty()));
  if (is_call) {
    if (!told_) tell(out);
    tell_arguments(out);
    end_call(true, out);
  }
  if (is_call || only_calls_) {
    held_.clear();
    at_ = mark_end_ = 0;
    mode_ = Mode::kContent;
  }
}

// --- a call ---

bool CallReader::head_step() {
  CallCursor text(std::string_view(held_).substr(at_));
  FoundHead found = find_call_head(*marks_, text, marked_, in_array_);
  if (!found.there) {
    if (text.ran_out() && !finishing_) return false;
    give_up();
    return true;
  }
  at_ += text.at();
  begin_body(std::move(found));
  return true;
}

void CallReader::begin_body(FoundHead head) {
  in_array_ = in_array_ || head.array;
  in_fence_ = in_fence_ || head.fence;
  id_ = std::move(head.id);
  mode_ = Mode::kBody;
  switch (head.body) {
    case CallBody::kObject: body_ = JsonCall(marked_); return;
    case CallBody::kArguments: body_ = JsonCall::of_arguments(std::move(head.name)); return;
    case CallBody::kGemma4: body_ = Gemma4Call(std::move(head.name)); return;
    case CallBody::kPython: body_ = PythonCall(); return;
    case CallBody::kParameters:
      body_ = ParameterCall(std::move(head.name), parameter_marks(marks_->format), *reading_.types);
      return;
  }
}

CallStep CallReader::feed(char c) {
  return std::visit(
      [c](auto& body) {
        if constexpr (requires { body.feed(c); }) return body.feed(c);
        return CallStep::kFailed;
      },
      body_);
}

bool CallReader::is_known() const {
  return std::visit(
      [](const auto& body) {
        if constexpr (requires { body.is_known(); }) return body.is_known();
        return false;
      },
      body_);
}

std::string CallReader::name() const {
  return std::visit(
      [](const auto& body) {
        if constexpr (requires { body.name(); }) return body.name();
        return std::string();
      },
      body_);
}

void CallReader::tell(AnswerEvents& out) {
  told_ = true;
  const bool is_new = !id_.empty() && ids_.insert(id_).second;
  out.begin_call(calls_++, is_new ? id_ : reading_.make_id(), name());
}

void CallReader::tell_arguments(AnswerEvents& out) {
  std::visit(
      [&](auto& body) {
        if constexpr (requires { body.take_arguments(); })
          out.say(AnswerEvent::Kind::kArguments, body.take_arguments(), calls_ - 1);
      },
      body_);
}

void CallReader::end_call(bool cut, AnswerEvents& out) {
  out.end_call(calls_ - 1, cut);
  body_ = std::monostate();
  told_ = false;
}

bool CallReader::body_step(AnswerEvents& out) {
  while (at_ < held_.size()) {
    const CallStep step = feed(held_[at_]);
    if (step == CallStep::kFailed) {
      if (told_) {
        tell_arguments(out);
        end_call(false, out);
        drop_read();
      }
      give_up();
      return true;
    }
    ++at_;
    const bool done = step == CallStep::kDone;
    if (!told_ && (done || (reading_.announce == Announce::kEarly && is_known()))) tell(out);
    if (done) {
      tell_arguments(out);
      end_call(false, out);
      drop_read();
      mode_ = Mode::kTail;
      return true;
    }
    if (!told_ && at_ > kMaxHeldCall) {
      give_up();
      return true;
    }
  }
  if (told_) {
    tell_arguments(out);
    drop_read();
  }
  if (!finishing_) return false;
  if (told_) end_call(false, out);
  give_up();
  return true;
}

CallReader::Tail CallReader::tail(CallCursor& text) const {
  const auto there = [&text](bool again) { return Tail{.there = true, .sure = true, .bytes = text.at(), .again = again}; };
  Tail found;
  text.space();
  if (in_array_) {
    if (text.take(",")) return there(true);
    if (!text.take("]")) return found;
    found = there(false);
    found.sure = false;  // an end mark may follow
    text.space();
  }
  if (marks_->head == HeadForm::kSection) {
    if (text.take("```")) text.space();
    if (!text.take(marks_->call_end)) return found;
    found = there(false);
    found.sure = false;
    text.space();
    if (text.peek(marks_->call_begin)) return there(true);
    if (text.take(marks_->end)) return there(false);
    return found;
  }
  // Behind one call the next may stand at once.
  if (marks_->head == HeadForm::kPythonLines && !in_array_ && !text.peek(marks_->end) && text.peek_that(begins_function_name))
    return there(true);
  if (!marks_->separator.empty() && text.take(marks_->separator)) return there(true);
  if (marks_->end.empty() || (marks_->end == "```" && !in_fence_)) return found;
  return text.take(marks_->end) ? there(false) : found;
}

bool CallReader::tail_step() {
  CallCursor text(held_);
  const Tail found = reading_.only_arguments_of.empty() ? tail(text) : Tail();
  if (!found.sure && text.ran_out() && !finishing_) return false;
  mode_ = found.again && calls_ < kMaxCalls ? Mode::kHead : Mode::kContent;
  if (!found.there) return true;
  at_ = found.bytes;
  if (mode_ == Mode::kContent) drop_read();
  return true;
}

}  // namespace choral::serve
