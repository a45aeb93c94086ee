// Findings of `choral doctor`: each fine, to be looked at, or wrong, with what to do about it. Printed as lines or as JSON.
#pragma once

#include <string>
#include <vector>

namespace choral::tools {

enum class Verdict { kFine, kNotice, kWrong };

struct Finding {
  Verdict verdict = Verdict::kFine;
  std::string subject;
  std::string text;
  std::string cure;  // empty when there is nothing to do
};

struct DoctorReport {
  std::vector<Finding> findings;
  std::vector<std::string> operators;  // with --ops, one line each

  void fine(std::string subject, std::string text) {
    findings.push_back({Verdict::kFine, std::move(subject), std::move(text), {}});
  }
  void notice(std::string subject, std::string text, std::string cure) {
    findings.push_back({Verdict::kNotice, std::move(subject), std::move(text), std::move(cure)});
  }
  void wrong(std::string subject, std::string text, std::string cure) {
    findings.push_back({Verdict::kWrong, std::move(subject), std::move(text), std::move(cure)});
  }
};

}  // namespace choral::tools
