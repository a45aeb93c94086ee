#include "layers/fusion.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/nearest_name.h"

namespace choral::layers {
namespace {

using platform::OpTable;
using Steps = std::span<const Step>;

// What a rule puts in the place of the first `taken` steps.
struct Replacement {
  size_t taken = 0;
  std::vector<Step> steps;
};

// The one step that a list begins with, if it is of this kind.
template <class Kind>
const Kind* step_at(Steps steps, size_t index) {
  return index < steps.size() ? std::get_if<Kind>(&steps[index]) : nullptr;
}

// y += x·Wᵀ, then norm(y)  ->  t = x·Wᵀ, then both in one operator. `spare` is a matrix of the residual's width for t.
std::optional<Replacement> match_add_rms_norm(Steps steps, std::string_view provider, Value spare) {
  const auto* linear = step_at<LinearStep>(steps, 0);
  const auto* norm = step_at<NormStep>(steps, 1);
  if (linear == nullptr || norm == nullptr || !linear->add || !(linear->y == norm->x)) return {};
  if (!norm->norm->may_fuse(provider)) return {};
  return Replacement{2, {LinearStep{linear->linear, linear->x, spare, false}, AddNormStep{norm->norm, spare, norm->x, norm->y}}};
}

std::optional<Replacement> match_qk_norm_rope(Steps steps, std::string_view provider, Value) {
  const auto* q = step_at<HeadsNormStep>(steps, 0);
  const auto* k = step_at<HeadsNormStep>(steps, 1);
  const auto* rotary = step_at<RotaryStep>(steps, 2);
  if (q == nullptr || k == nullptr || rotary == nullptr || !(rotary->q == q->x) || !(rotary->k == k->x)) return {};
  if (!q->norm->may_fuse(provider) || !k->norm->may_fuse(provider) || !rotary->rotary->may_fuse(provider)) return {};
  if (q->norm->eps() != k->norm->eps()) return {};
  return Replacement{3, {QkNormRotaryStep{q->norm, k->norm, rotary->rotary, q->x, k->x}}};
}

std::optional<Replacement> match_rope_write_kv(Steps steps, std::string_view provider, Value) {
  const auto* rotary = step_at<RotaryStep>(steps, 0);
  const auto* write = step_at<WriteKvStep>(steps, 1);
  if (rotary == nullptr || write == nullptr || !(rotary->k == write->k)) return {};
  if (!rotary->rotary->may_fuse(provider)) return {};
  return Replacement{2, {RotaryWriteKvStep{rotary->rotary, write->attention, rotary->q, rotary->k, write->v}}};
}

struct Rule {
  std::string_view op;
  std::optional<Replacement> (*match)(Steps steps, std::string_view provider, Value spare);
  // Where the host's own kernels serve it and it does not pay there: why. Empty: it pays.
  std::string_view not_on_cpu = {};
};

// In the order in which they are tried: the longer pattern first.
constexpr std::array<Rule, 3> kRules{
    {{"add_rms_norm", match_add_rms_norm, "the CPU's matmul adds to the residual while its tile is in registers"},
     {"qk_norm_rope", match_qk_norm_rope},
     {"rope_write_kv", match_rope_write_kv}}};

int apply(const Rule& rule, std::string_view provider, Graph& graph) {
  std::vector<Step> out;
  const Steps steps = graph.steps();
  std::optional<Value> spare;
  int sites = 0;
  for (size_t i = 0; i < steps.size();) {
    const Value scratch = spare.value_or(Value{});
    auto found = rule.match(steps.subspan(i), provider, scratch);
    if (found && !spare) {
      spare = graph.matrix(graph.residual().cols);
      found = rule.match(steps.subspan(i), provider, *spare);
    }
    if (!found) {
      out.push_back(steps[i++]);
      continue;
    }
    std::move(found->steps.begin(), found->steps.end(), std::back_inserter(out));
    i += found->taken;
    ++sites;
  }
  graph.steps() = std::move(out);
  return sites;
}

}  // namespace

const std::vector<std::string>& fused_op_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& rule : kRules) names.emplace_back(rule.op);
    return names;
  }();
  return kNames;
}

Result<FusionConfig> FusionConfig::parse(std::string_view text) {
  FusionConfig config;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (entry == "all" || entry == "none") {
      config.all_ = entry == "all";
    } else if (entry.size() > 1 && (entry.front() == '+' || entry.front() == '-')) {
      CHORAL_RETURN_IF_ERROR(config.force(entry.substr(1), entry.front() == '+'));
    } else {
      return invalid_argument("--fuse: '{}' is none of all, none, +name, -name", entry);
    }
  }
  return config;
}

Status FusionConfig::force(std::string_view op, bool on) {
  const auto& names = fused_op_names();
  if (std::find(names.begin(), names.end(), op) == names.end()) {
    const std::string near = nearest_name(op, names);
    return invalid_argument("no fused operator is called '{}'{}; known: {}", op,
                            near.empty() ? "" : "; did you mean " + near + "?", fmt::join(names, ", "));
  }
  named_.emplace_back(op, on);
  return {};
}

FusionConfig::Wish FusionConfig::wish(std::string_view op) const {
  for (auto entry = named_.rbegin(); entry != named_.rend(); ++entry) {
    if (entry->first == op) return entry->second ? Wish::kAlways : Wish::kNever;
  }
  return all_ ? Wish::kIfItPays : Wish::kNever;
}

std::vector<FusionDecision> fuse(Graph& graph, const platform::Session& session, const FusionConfig& config) {
  std::vector<FusionDecision> decisions;
  const auto facts = session.ops().facts();
  for (const auto& rule : kRules) {
    const auto op = std::find_if(facts.begin(), facts.end(), [&](const auto& fact) { return fact.name == rule.op; });
    CHORAL_CHECK(op != facts.end(), "every rule's operator is in the table");
    FusionDecision decision{.op = std::string(rule.op), .provider = op->provider, .reason = op->reason};
    const auto wish = config.wish(rule.op);
    if (wish == FusionConfig::Wish::kNever) {
      decision.reason = "switched off";
    } else if (wish == FusionConfig::Wish::kIfItPays && op->provider == "composed") {
      decision.reason = op->reason.empty() ? "this device has no such operator" : op->reason;
    } else if (wish == FusionConfig::Wish::kIfItPays && op->provider == "cpu" && !rule.not_on_cpu.empty()) {
      decision.reason = rule.not_on_cpu;
    } else {
      decision.sites = apply(rule, op->provider, graph);
      if (decision.sites == 0) decision.reason = "the model has no place for it";
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

}  // namespace choral::layers
