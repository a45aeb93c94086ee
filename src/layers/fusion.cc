#include "layers/fusion.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/nearest_name.h"

namespace choral::layers {
namespace {

using platform::OpTable;
using Steps = std::span<const Step>;

struct Site {
  std::string_view provider;  // of the fused operator
  CpuLevel level;
  Graph& graph;  // for a rule that needs a matrix more
};

// What a rule puts in the place of the first `taken` steps.
struct Replacement {
  size_t taken = 0;
  std::vector<Step> steps;
};

// The step at this place of the list, if there is one and it is of this kind.
template <class Kind>
const Kind* step_at(Steps steps, size_t index) {
  return index < steps.size() ? std::get_if<Kind>(&steps[index]) : nullptr;
}

// Whether a step reads `value` before another writes all of it.
bool is_read_later(Steps steps, const Value& value) {
  const auto end = [](const Value& v) { return v.begin + v.cols; };
  const auto overlaps = [&](const Value& v) { return v.matrix == value.matrix && v.begin < end(value) && value.begin < end(v); };
  const auto covers = [&](const Value& v) { return v.matrix == value.matrix && v.begin <= value.begin && end(value) <= end(v); };
  for (const Step& step : steps) {
    const Access access = access_of(step);
    if (std::any_of(access.reads.begin(), access.reads.end(), overlaps)) return true;
    if (std::any_of(access.writes.begin(), access.writes.end(), covers)) return false;
  }
  return false;
}

// y += x·Wᵀ, then norm(y)  ->  t = x·Wᵀ, then both in one operator. y += x, then norm(y)  ->  one operator. Norms with a bias
// have an operator of their own.
template <bool with_bias>
std::optional<Replacement> match_add_rms_norm(Steps steps, const Site& site) {
  const auto* linear = step_at<LinearStep>(steps, 0);
  const auto* add = step_at<AddStep>(steps, 0);
  const auto* norm = step_at<NormStep>(steps, 1);
  if (norm == nullptr || norm->norm->bias().empty() == with_bias || !norm->norm->may_fuse(site.provider)) return {};
  if (add != nullptr && add->y == norm->x) return Replacement{2, {AddNormStep{norm->norm, add->x, norm->x, norm->y}}};
  if (linear == nullptr || !linear->add || !(linear->y == norm->x)) return {};
  const Value product = site.graph.matrix(norm->x.cols);
  return Replacement{2,
                     {LinearStep{linear->linear, linear->x, product, false}, AddNormStep{norm->norm, product, norm->x, norm->y}}};
}

std::optional<Replacement> match_qk_norm_rope(Steps steps, const Site& site) {
  const auto* q = step_at<HeadsNormStep>(steps, 0);
  const auto* k = step_at<HeadsNormStep>(steps, 1);
  const auto* rotary = step_at<RotaryStep>(steps, 2);
  if (q == nullptr || k == nullptr || rotary == nullptr || !(rotary->q == q->x) || !(rotary->k == k->x)) return {};
  if (!q->norm->may_fuse(site.provider) || !k->norm->may_fuse(site.provider) || !rotary->rotary->may_fuse(site.provider))
    return {};
  if (q->norm->eps() != k->norm->eps() || !q->norm->bias().empty() || !k->norm->bias().empty()) return {};
  return Replacement{3, {QkNormRotaryStep{q->norm, k->norm, rotary->rotary, q->x, k->x}}};
}

std::optional<Replacement> match_rope_write_kv(Steps steps, const Site& site) {
  const auto* rotary = step_at<RotaryStep>(steps, 0);
  const auto* write = step_at<WriteKvStep>(steps, 1);
  if (rotary == nullptr || write == nullptr || !(rotary->k == write->k)) return {};
  if (!rotary->rotary->may_fuse(site.provider)) return {};
  return Replacement{2, {RotaryWriteKvStep{rotary->rotary, write->attention, rotary->q, rotary->k, write->v}}};
}

// norm, then a matmul of its result by quantised weights  ->  the norm gives quantised rows.
std::optional<Replacement> match_rms_norm_quantise(Steps steps, const Site& site) {
  const auto* norm = step_at<NormStep>(steps, 0);
  const auto* linear = step_at<LinearStep>(steps, 1);
  if (norm == nullptr || linear == nullptr || !(linear->x == norm->y) || norm->x == norm->y) return {};
  if (!norm->norm->may_fuse(site.provider) || !linear->linear->quantised_input(site.level)) return {};
  if (is_read_later(steps.subspan(2), norm->y)) return {};
  return Replacement{2, {NormLinearStep{norm->norm, linear->linear, norm->x, norm->y, linear->y, linear->add}}};
}

std::optional<Replacement> match_silu_and_mul_quantise(Steps steps, const Site& site) {
  const auto* act = step_at<ActivationStep>(steps, 0);
  const auto* linear = step_at<LinearStep>(steps, 1);
  if (act == nullptr || linear == nullptr || !(linear->x == act->y)) return {};
  if (!act->activation->may_fuse_silu(site.provider) || !linear->linear->quantised_input(site.level)) return {};
  if (is_read_later(steps.subspan(2), act->y)) return {};
  return Replacement{2, {ActivationLinearStep{act->activation, linear->linear, act->x, act->y, linear->y, linear->add}}};
}

struct Rule {
  std::string_view op;
  std::optional<Replacement> (*match)(Steps steps, const Site& site);
  // Where the host's own kernels serve it and it does not pay there: why. Empty: it pays.
  std::string_view not_on_cpu = {};
};

// In the order in which they are tried: the longer pattern first. Where a norm can give quantised rows, that pays more than to
// add its bias in the same pass as the residual.
constexpr std::array<Rule, 6> kRules{
    {{"add_rms_norm", match_add_rms_norm<false>, "the CPU's matmul adds to the residual while its tile is in registers"},
     {"qk_norm_rope", match_qk_norm_rope},
     {"rope_write_kv", match_rope_write_kv},
     {"rms_norm_quantise", match_rms_norm_quantise},
     {"add_rms_norm_bias", match_add_rms_norm<true>},
     {"silu_and_mul_quantise", match_silu_and_mul_quantise}}};

int apply(const Rule& rule, const Site& site) {
  std::vector<Step> out;
  int sites = 0;
  for (Steps steps = site.graph.steps(); !steps.empty();) {
    auto found = rule.match(steps, site);
    const size_t taken = found ? found->taken : 1;
    if (found) {
      std::move(found->steps.begin(), found->steps.end(), std::back_inserter(out));
      ++sites;
    } else {
      out.push_back(steps.front());
    }
    steps = steps.subspan(taken);
  }
  site.graph.replace(std::move(out));
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

Status check_fused_op_name(std::string_view op) {
  const auto& names = fused_op_names();
  if (std::find(names.begin(), names.end(), op) != names.end()) return {};
  const std::string near = nearest_name(op, names);
  return invalid_argument("no fused operator is called '{}'{}; known: {}", op, near.empty() ? "" : "; did you mean " + near + "?",
                          fmt::join(names, ", "));
}

Result<FusionConfig> FusionConfig::parse(std::string_view text) {
  FusionConfig config;
  CHORAL_TRY(config.switches_, platform::NameSwitches::parse(text, "--fuse", check_fused_op_name));
  return config;
}

Status FusionConfig::force(std::string_view op, bool on) {
  CHORAL_RETURN_IF_ERROR(check_fused_op_name(op));
  forced_.emplace_back(op, on);
  return {};
}

FusionConfig::Wish FusionConfig::wish(std::string_view op) const {
  const auto forced = std::find_if(forced_.rbegin(), forced_.rend(), [&](const auto& entry) { return entry.first == op; });
  if (forced != forced_.rend()) return forced->second ? Wish::kAlways : Wish::kNever;
  switch (switches_.about(op)) {
    case platform::NameSwitches::Said::kOn: return Wish::kAlways;
    case platform::NameSwitches::Said::kAll: return Wish::kIfItPays;
    default: return Wish::kNever;
  }
}

std::vector<FusionDecision> fuse(Graph& graph, const platform::Context& ctx, const FusionConfig& config) {
  std::vector<FusionDecision> decisions;
  const auto facts = ctx.ops.facts();
  for (const auto& rule : kRules) {
    const auto op = std::find_if(facts.begin(), facts.end(), [&](const auto& fact) { return fact.name == rule.op; });
    CHORAL_CHECK(op != facts.end(), "every rule's operator is in the table");
    FusionDecision decision{.op = std::string(rule.op), .provider = op->provider, .reason = op->reason};
    const auto wish = config.wish(rule.op);
    if (wish == FusionConfig::Wish::kNever) {
      decision.reason = "switched off";
    } else if (op->provider.empty() || (wish == FusionConfig::Wish::kIfItPays && op->provider == "composed")) {
      if (decision.reason.empty()) decision.reason = "this device has no such operator";
    } else if (wish == FusionConfig::Wish::kIfItPays && op->provider == "cpu" && !rule.not_on_cpu.empty()) {
      decision.reason = rule.not_on_cpu;
    } else {
      decision.sites = apply(rule, {op->provider, ctx.kernel.level, graph});
      if (decision.sites == 0) decision.reason = "the model has no place for it";
    }
    decisions.push_back(std::move(decision));
  }
  const Status fits = graph.check_shapes(ctx.ops);
  CHORAL_CHECK(fits.ok(), fits.message());
  graph.place();
  return decisions;
}

}  // namespace choral::layers
