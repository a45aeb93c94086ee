#include "serve/answers/harmony_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "serve/answers/find_mark.h"
#include "serve/answers/function_name.h"

namespace choral::serve {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>", kEnd = "<|end|>",
                           kCall = "<|call|>", kReturn = "<|return|>", kTo = "to=", kFunctions = "functions.";
constexpr std::array<std::string_view, 6> kAll{kStart, kChannel, kMessage, kEnd, kCall, kReturn};
constexpr std::array<std::string_view, 5> kBehindText{kEnd, kCall, kReturn, kStart, kChannel};
constexpr size_t kMaxHeader = 512;

bool begins_header(std::string_view mark) { return mark == kStart || mark == kChannel || mark == kMessage; }

// What stands behind `key` in a header, to a space or a mark.
std::string_view word_behind(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + key.size());
  return rest.substr(0, std::min(rest.find_first_of(" \t\r\n<"), rest.size()));
}

}  // namespace

HarmonyReader::HarmonyReader(bool reads_thoughts, bool reads_calls, CallReading calls, std::string_view prompt_end)
    : reads_thoughts_(reads_thoughts), reads_calls_(reads_calls), reading_(std::move(calls)) {
  if (!prompt_end.ends_with(kMessage)) return;
  prompt_end.remove_suffix(kMessage.size());
  part_ = reads_thoughts_ && prompt_end.ends_with("analysis") ? Part::kThoughts : Part::kContent;
}

void HarmonyReader::push(std::string_view text, AnswerEvents& out) {
  held_ += text;
  while (step(out)) {
  }
}

void HarmonyReader::finish(AnswerEnd end, AnswerEvents& out) {
  finishing_ = true;
  if (end == AnswerEnd::kCut && part_ == Part::kCall && (call_->is_known() || reading_.only_calls)) {
    if (!told_) tell(out);
    tell_arguments(out);
    end_call(true, out);
    held_.clear();
  }
  // A header that was not finished says nothing.
  if (part_ == Part::kHeader || (reading_.only_calls && end == AnswerEnd::kCut)) held_.clear();
  while (step(out)) {
  }
}

ThoughtReader::Place HarmonyReader::place() const {
  using Place = ThoughtReader::Place;
  if (part_ == Part::kThoughts) return Place::kThoughts;
  return part_ == Part::kContent || part_ == Part::kCall ? Place::kRest : Place::kUndecided;
}

void HarmonyReader::drop(size_t bytes) {
  held_.erase(0, bytes);
  at_ = 0;
}

bool HarmonyReader::step(AnswerEvents& out) {
  switch (part_) {
    case Part::kBegin:
    case Part::kBetween: return between_step();
    case Part::kHeader: return header_step(out);
    case Part::kThoughts:
    case Part::kContent: return text_step(out);
    case Part::kCall: return call_step(out);
  }
  return false;
}

bool HarmonyReader::between_step() {
  const size_t first = std::min(held_.find_first_not_of(kBlanks), held_.size());
  const std::string_view rest = std::string_view(held_).substr(first);
  if (first > kMaxHeader) return part_ = Part::kContent, true;
  if (rest.empty()) {
    if (finishing_ && part_ == Part::kBetween) held_.clear();
    return finishing_ && !held_.empty() ? (part_ = Part::kContent, true) : false;
  }
  const FoundMark found = find_mark(rest.substr(0, kMessage.size()), kAll, finishing_);
  const bool may_be_to = part_ == Part::kBegin && !finishing_ && kTo.starts_with(rest);
  if ((found.at == 0 && found.partial) || may_be_to) return false;
  if (part_ == Part::kBegin && rest.starts_with(kTo)) return part_ = Part::kHeader, true;
  if (found.at > 0 || found.mark.empty()) return part_ = Part::kContent, true;
  drop(first + (begins_header(found.mark) ? 0 : found.mark.size()));
  part_ = begins_header(found.mark) ? Part::kHeader : Part::kBetween;
  return true;
}

bool HarmonyReader::header_step(AnswerEvents& out) {
  const std::string_view window = std::string_view(held_).substr(0, kMaxHeader);
  const size_t end = window.find(kMessage);
  if (end == std::string_view::npos) {
    if (held_.size() < kMaxHeader) return false;
    out.say(AnswerEvent::Kind::kContent, window);
    drop(kMaxHeader);
    part_ = Part::kContent;
    return true;
  }
  read_header(window.substr(0, end));
  drop(end + kMessage.size());
  return true;
}

void HarmonyReader::read_header(std::string_view header) {
  const std::string_view channel = word_behind(header, kChannel);
  std::string_view to = word_behind(header, kTo);
  const bool is_function = to.starts_with(kFunctions);
  if (is_function) to.remove_prefix(kFunctions.size());
  if (is_function && reads_calls_ && calls_ < kMaxCalls && is_function_name(to, true)) {
    part_ = Part::kCall;
    call_ = JsonCall::of_arguments(std::string(to));
    told_ = false;
    return;
  }
  const bool is_thought = channel == "analysis" || (!to.empty() && !is_function);
  part_ = is_thought && reads_thoughts_ ? Part::kThoughts : Part::kContent;
}

bool HarmonyReader::text_step(AnswerEvents& out) {
  const FoundMark found = find_mark(held_, kBehindText, finishing_);
  const bool is_thoughts = part_ == Part::kThoughts;
  out.say(is_thoughts ? AnswerEvent::Kind::kReasoning : AnswerEvent::Kind::kContent, std::string_view(held_).substr(0, found.at));
  drop(found.at);
  if (found.mark.empty()) return false;
  if (is_thoughts) ++ended_;
  part_ = Part::kBetween;  // which takes the mark
  return true;
}

// --- a call ---

void HarmonyReader::tell(AnswerEvents& out) {
  told_ = true;
  out.begin_call(calls_++, reading_.make_id(), call_->name());
}

void HarmonyReader::tell_arguments(AnswerEvents& out) {
  out.say(AnswerEvent::Kind::kArguments, call_->take_arguments(), calls_ - 1);
}

void HarmonyReader::end_call(bool cut, AnswerEvents& out) {
  out.end_call(calls_ - 1, cut);
  call_.reset();
  part_ = Part::kBetween;
}

bool HarmonyReader::call_step(AnswerEvents& out) {
  while (at_ < held_.size()) {
    const CallStep step = call_->feed(held_[at_]);
    if (step == CallStep::kFailed || (!told_ && at_ > kMaxHeldCall)) {
      const size_t read = told_ ? at_ : 0;
      if (told_) {
        tell_arguments(out);
        end_call(false, out);
      }
      drop(read);
      call_.reset();
      part_ = Part::kContent;
      return true;
    }
    ++at_;
    const bool done = step == CallStep::kDone;
    if (!told_ && (done || (reading_.announce == Announce::kEarly && call_->is_known()))) tell(out);
    if (!done) continue;
    tell_arguments(out);
    end_call(false, out);
    drop(at_);
    return true;
  }
  if (told_) {
    tell_arguments(out);
    drop(at_);
  }
  if (!finishing_) return false;
  if (told_) end_call(false, out);
  part_ = Part::kContent;
  at_ = 0;
  return !held_.empty();
}

}  // namespace choral::serve
