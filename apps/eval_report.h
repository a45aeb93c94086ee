// What `choral eval` found, as text, as JSON and as a page.
#pragma once

#include <string>

#include "html_page.h"
#include "tools/evaluation.h"

namespace choral::apps {

// What was asked for.
struct EvalSubject {
  std::string adapter = "base";  // who was measured, as it was written
  std::string text;              // the file's name
  int min_context = 1;
  std::string against_adapter = {};  // empty: the reference was saved, and nobody knows
};

std::string eval_report_text(const tools::EvaluationReport& report, const EvalSubject& subject);
std::string eval_report_json(const tools::EvaluationReport& report, const EvalSubject& subject);
HtmlPage eval_page(const tools::EvaluationReport& report, const EvalSubject& subject);

}  // namespace choral::apps
