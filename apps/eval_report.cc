#include "eval_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "base/printable.h"
#include "voice.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;
using tools::Estimate;
using tools::EvaluationReport;

constexpr size_t kStretches = 64;  // of the text, in pictures

using NamedFigure = std::pair<std::string, std::string>;

std::string estimate_text(const Estimate& e, int digits) {
  return fmt::format("{:.{}f} ± {:.{}f}", e.value, digits, e.error, digits);
}

// Of a share that was counted.
Estimate share_of(int64_t count, size_t of) {
  const auto n = static_cast<double>(of);
  const double share = static_cast<double>(count) / n;
  return {share, std::sqrt(share * (1 - share) / n)};
}

std::string with_adapter(const std::string& model, const std::string& adapter) {
  return adapter.empty() || adapter == kBaseName ? model : fmt::format("{} with {}", model, adapter);
}

std::string evaluated_words(const EvaluationReport& report, const EvalSubject& subject) {
  return fmt::format("{}, {}: {} tokens in {} windows of {}", with_adapter(report.model, subject.adapter), subject.text,
                     report.text_tokens, report.windows, report.window_tokens);
}

std::vector<NamedFigure> measured_figures(const EvaluationReport& report) {
  return {{"scored", fmt::format("{} tokens, {:.0f} tokens/s", report.logprobs.size(),
                                 static_cast<double>(report.computed_tokens) / report.compute_s)},
          {"mean NLL", estimate_text(tools::mean_nll(report.logprobs), 4)},
          {"perplexity", estimate_text(tools::perplexity(report.logprobs), 4)}};
}

std::vector<NamedFigure> reference_figures(const EvaluationReport& report) {
  const auto& found = *report.reference;
  const auto ratio = tools::perplexity_ratio(report.logprobs, found.logprobs);
  const auto same = share_of(found.same_top, found.divergences.size());
  return {
      {"its perplexity", estimate_text(tools::perplexity(found.logprobs), 4)},
      {"difference", fmt::format("{:+.3f} % ± {:.3f}", 100 * (ratio.value - 1), 100 * ratio.error)},
      {"KL divergence", fmt::format("{}; median {:.6f}, 99 % {:.6f}, max {:.6f}",
                                    estimate_text(tools::mean_of(found.divergences), 6), tools::quantile(found.divergences, 0.5),
                                    tools::quantile(found.divergences, 0.99), tools::quantile(found.divergences, 1))},
      {"same top token", fmt::format("{:.2f} % ± {:.2f}", 100 * same.value, 100 * same.error)}};
}

HtmlTable figures_table(const std::vector<NamedFigure>& figures, std::string caption) {
  HtmlTable out{.caption = std::move(caption), .headings = {"figure", "value"}, .rows = {}};
  for (const auto& [name, value] : figures) out.rows.push_back({{.text = name}, {.text = value}});
  return out;
}

// Of each stretch of the text: where it begins and ends, in tokens that count.
std::vector<std::pair<size_t, size_t>> stretches(size_t tokens) {
  std::vector<std::pair<size_t, size_t>> out;
  const size_t count = std::min(tokens, kStretches);
  for (size_t i = 0; i < count; ++i) out.emplace_back(i * tokens / count, (i + 1) * tokens / count);
  return out;
}

template <class Value>
double mean_between(const std::vector<Value>& values, size_t begin, size_t end) {
  const double sum = std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                     values.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  return sum / static_cast<double>(end - begin);
}

HtmlChart nll_chart(const EvaluationReport& report) {
  HtmlChart out{.caption = "Mean NLL along the text", .bars = {}};
  if (report.reference) out.caption += "; the lines are the reference's";
  for (const auto& [begin, end] : stretches(report.logprobs.size())) {
    auto& bar = out.bars.emplace_back();
    bar.value = -mean_between(report.logprobs, begin, end);
    bar.told = fmt::format("tokens {} to {}: {:.4f}", begin + 1, end, bar.value);
    if (!report.reference) continue;
    bar.beside = -mean_between(report.reference->logprobs, begin, end);
    bar.told += fmt::format(", the reference {:.4f}", *bar.beside);
  }
  return out;
}

HtmlChart divergence_chart(const tools::ReferenceFindings& found) {
  HtmlChart out{.caption = "Mean KL divergence along the text", .bars = {}};
  for (const auto& [begin, end] : stretches(found.divergences.size())) {
    auto& bar = out.bars.emplace_back();
    bar.value = mean_between(found.divergences, begin, end);
    bar.told = fmt::format("tokens {} to {}: {:.6f}", begin + 1, end, bar.value);
  }
  return out;
}

}  // namespace

std::string eval_report_text(const EvaluationReport& report, const EvalSubject& subject) {
  std::string out = terminal_line(evaluated_words(report, subject)) + "\n";
  const auto add = [&out](const std::vector<NamedFigure>& figures) {
    for (const auto& [name, value] : figures) out += fmt::format("{:<18}{}\n", name, value);
  };
  add(measured_figures(report));
  if (!report.reference) return out;
  out += terminal_line("against " + with_adapter(report.reference->model, subject.against_adapter)) + "\n";
  add(reference_figures(report));
  return out;
}

std::string eval_report_json(const EvaluationReport& report, const EvalSubject& subject) {
  const auto nll = tools::mean_nll(report.logprobs), ppl = tools::perplexity(report.logprobs);
  Json all{{"model", report.model},
           {"adapter", subject.adapter},
           {"text", subject.text},
           {"window_tokens", report.window_tokens},
           {"min_context", subject.min_context},
           {"windows", report.windows},
           {"text_tokens", report.text_tokens},
           {"scored_tokens", report.logprobs.size()},
           {"tokens_per_s", static_cast<double>(report.computed_tokens) / report.compute_s},
           {"nll", nll.value},
           {"nll_error", nll.error},
           {"perplexity", ppl.value},
           {"perplexity_error", ppl.error}};
  if (report.reference) {
    const auto& found = *report.reference;
    const auto its = tools::perplexity(found.logprobs), ratio = tools::perplexity_ratio(report.logprobs, found.logprobs);
    const auto kl = tools::mean_of(found.divergences), same = share_of(found.same_top, found.divergences.size());
    all["reference"] = {{"model", found.model},
                        {"adapter", subject.against_adapter.empty() ? Json() : Json(subject.against_adapter)},
                        {"perplexity", its.value},
                        {"perplexity_error", its.error},
                        {"perplexity_ratio", ratio.value},
                        {"perplexity_ratio_error", ratio.error},
                        {"kl", kl.value},
                        {"kl_error", kl.error},
                        {"kl_median", tools::quantile(found.divergences, 0.5)},
                        {"kl_99", tools::quantile(found.divergences, 0.99)},
                        {"kl_max", tools::quantile(found.divergences, 1)},
                        {"same_top", same.value},
                        {"same_top_error", same.error}};
  }
  all["notes"] = report.notes;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

HtmlPage eval_page(const EvaluationReport& report, const EvalSubject& subject) {
  HtmlPage page("choral eval: " + with_adapter(report.model, subject.adapter), evaluated_words(report, subject));
  std::vector<HtmlTable> tables{figures_table(measured_figures(report), with_adapter(report.model, subject.adapter))};
  if (report.reference) {
    tables.push_back(
        figures_table(reference_figures(report), "against " + with_adapter(report.reference->model, subject.against_adapter)));
  }
  page.add_tables_beside(tables);
  page.add_chart(nll_chart(report));
  if (report.reference) page.add_chart(divergence_chart(*report.reference));
  page.add_folded("Choices and fallbacks", report.notes);
  return page;
}

}  // namespace choral::apps
