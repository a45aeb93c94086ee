// A strict reader of Prometheus' text format 0.0.4, for tests: what it accepts every scraper accepts. Tests only.
#pragma once

#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace choral::serve {

using SampleLabels = std::map<std::string, std::string>;

struct Sample {
  std::string name;
  SampleLabels labels;
  double value = 0;
};

class Exposition {
 public:
  // Everything that is wrong with `text` goes into faults().
  explicit Exposition(std::string_view text) {
    if (!text.empty() && text.back() != '\n') fault("the last line has no end");
    while (!text.empty()) {
      const size_t end = text.find('\n');
      line_ = text.substr(0, end);
      ++number_;
      read_line();
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
    }
    check_histograms();
  }

  const std::vector<std::string>& faults() const { return faults_; }
  const std::vector<Sample>& samples() const { return samples_; }
  const std::map<std::string, std::string>& types() const { return types_; }

  // The one sample of this name whose labels include these.
  std::optional<double> value(std::string_view name, const SampleLabels& labels = {}) const {
    std::optional<double> found;
    for (const auto& sample : samples_) {
      if (sample.name != name || !includes(sample.labels, labels)) continue;
      if (found) return std::nullopt;
      found = sample.value;
    }
    return found;
  }
  std::vector<Sample> all(std::string_view name) const {
    std::vector<Sample> out;
    for (const auto& sample : samples_) {
      if (sample.name == name) out.push_back(sample);
    }
    return out;
  }

 private:
  static bool includes(const SampleLabels& all, const SampleLabels& some) {
    for (const auto& [key, value] : some) {
      const auto found = all.find(key);
      if (found == all.end() || found->second != value) return false;
    }
    return true;
  }
  void fault(const std::string& what) {
    faults_.push_back("line " + std::to_string(number_) + ": " + what + ": " + std::string(line_));
  }

  static bool is_name(std::string_view text, bool colon) {
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colon && c == ':');
      if (!letter && (i == 0 || c < '0' || c > '9')) return false;
    }
    return !text.empty();
  }

  void read_line() {
    for (std::string_view rest = line_; !rest.empty();) {
      const auto step = check_utf8(rest);
      if (step.length == 0) return fault("no UTF-8");
      rest.remove_prefix(step.length);
    }
    if (line_.starts_with("# HELP ")) return read_help();
    if (line_.starts_with("# TYPE ")) return read_type();
    if (line_.empty() || line_.front() == '#') return fault("an empty line or a comment");
    read_sample();
  }
  void read_help() {
    const std::string_view rest = line_.substr(7);
    const std::string name(rest.substr(0, rest.find(' ')));
    if (name.size() + 1 >= rest.size()) fault("no help");
    if (!is_name(name, true)) fault("a bad name");
    if (!helped_.insert(name).second) fault("HELP stands twice");
    family_ = name;
  }
  void read_type() {
    const std::string_view rest = line_.substr(7);
    const size_t space = rest.find(' ');
    const std::string name(rest.substr(0, space)), type(space == rest.npos ? "" : rest.substr(space + 1));
    if (name != family_ || !helped_.contains(name)) fault("TYPE does not follow its HELP");
    if (type != "counter" && type != "gauge" && type != "histogram") fault("a type that nobody uses here");
    if (!types_.emplace(name, type).second) fault("TYPE stands twice");
    const bool total = name.ends_with("_total");
    // vLLM has a histogram of this name.
    const bool may_be = type == "histogram" && name == "vllm:iteration_tokens_total";
    if ((type == "counter") != total && !may_be) fault("counters end in _total, others do not");
  }
  void read_sample() {
    Sample sample;
    size_t at = line_.find_first_of("{ ");
    if (at == line_.npos) return fault("no value");
    sample.name = line_.substr(0, at);
    if (!is_name(sample.name, true)) fault("a bad name");
    if (line_[at] == '{' && !read_labels(++at, sample.labels)) return;
    if (at >= line_.size() || line_[at] != ' ') return fault("no space before the value");
    const std::string value(line_.substr(at + 1));
    char* end = nullptr;
    sample.value = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || value.find(' ') != value.npos) fault("no number, or a time stamp");
    if (!std::isfinite(sample.value)) fault("not finite");
    check_family(sample);
    if (!series_.insert({sample.name, sample.labels}).second) fault("the series stands twice");
    samples_.push_back(std::move(sample));
  }
  bool read_labels(size_t& at, SampleLabels& labels) {
    while (at < line_.size() && line_[at] != '}') {
      const size_t equals = line_.find('=', at);
      if (equals == line_.npos || equals + 1 >= line_.size() || line_[equals + 1] != '"')
        return fault("a label without value"), false;
      const std::string key(line_.substr(at, equals - at));
      if (!is_name(key, false)) fault("a bad label name");
      std::string value;
      for (at = equals + 2; at < line_.size() && line_[at] != '"'; ++at) {
        char c = line_[at];
        if (c == '\\') {
          if (++at == line_.size()) break;
          c = line_[at];
          if (c != '\\' && c != '"' && c != 'n') fault("a bad escape");
          if (c == 'n') c = '\n';
        }
        value += c;
      }
      if (at == line_.size()) return fault("an open quote"), false;
      ++at;
      if (!labels.emplace(key, value).second) fault("a label stands twice");
      if (at < line_.size() && line_[at] == ',') ++at;
    }
    if (at == line_.size()) return fault("open labels"), false;
    ++at;
    return true;
  }
  void check_family(const Sample& sample) {
    const auto type = types_.find(family_);
    if (type == types_.end()) return fault("a sample without TYPE");
    std::string rest = sample.name.starts_with(family_) ? sample.name.substr(family_.size()) : "?";
    const bool fits = type->second == "histogram" ? rest == "_bucket" || rest == "_sum" || rest == "_count" : rest.empty();
    if (!fits) fault("a sample of another family than " + family_);
    if (type->second != "gauge" && sample.value < 0) fault("less than nothing");
  }
  void check_histograms() {
    for (const auto& [family, type] : types_) {
      if (type != "histogram") continue;
      std::map<SampleLabels, std::vector<std::pair<double, double>>> buckets;
      for (const auto& sample : all(family + "_bucket")) {
        SampleLabels labels = sample.labels;
        const std::string le = labels["le"];
        labels.erase("le");
        buckets[labels].emplace_back(le == "+Inf" ? INFINITY : std::strtod(le.c_str(), nullptr), sample.value);
      }
      for (const auto& [labels, row] : buckets) {
        for (size_t i = 1; i < row.size(); ++i) {
          if (row[i].first <= row[i - 1].first || row[i].second < row[i - 1].second) fault(family + ": buckets that fall");
        }
        std::optional<double> count, sum;
        for (const auto& sample : samples_) {
          if (sample.labels != labels) continue;
          if (sample.name == family + "_count") count = sample.value;
          if (sample.name == family + "_sum") sum = sample.value;
        }
        if (!std::isinf(row.back().first)) fault(family + ": no +Inf");
        if (!count || !sum || *count != row.back().second) fault(family + ": count and +Inf differ");
      }
    }
  }

  std::string_view line_;
  int number_ = 0;
  std::string family_;
  std::set<std::string> helped_;
  std::map<std::string, std::string> types_;
  std::set<std::pair<std::string, SampleLabels>> series_;
  std::vector<Sample> samples_;
  std::vector<std::string> faults_;
};

}  // namespace choral::serve
