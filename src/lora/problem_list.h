// Gathers everything that is wrong with an input into one error, one problem a line, so that its author can mend it in one go.
// The error has the first problem's code. After kMaxLines problems the rest is only counted. Not thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace choral::lora {

class ProblemList {
 public:
  static constexpr size_t kMaxLines = 24;

  // A fine Status is no problem.
  void add(Status status) {
    if (status.ok()) return;
    if (count_++ == 0) code_ = status.code();
    if (lines_.size() < kMaxLines) lines_.push_back(status.message());
  }

  bool empty() const { return count_ == 0; }
  const std::vector<std::string>& lines() const { return lines_; }

  // Fine when nothing was added; else "intro:" and the lines, or the only line alone.
  Status to_status(std::string_view intro) const {
    if (empty()) return {};
    if (count_ == 1) return Status(code_, fmt::format("{}: {}", intro, lines_.front()));
    std::string text = fmt::format("{}: {} problems", intro, count_);
    for (const auto& line : lines_) text += "\n  " + line;
    if (count_ > lines_.size()) text += fmt::format("\n  and {} more", count_ - lines_.size());
    return Status(code_, std::move(text));
  }

 private:
  Code code_ = Code::kInvalidArgument;
  size_t count_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace choral::lora
