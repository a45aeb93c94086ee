#include "adapter_changes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace choral::apps {
namespace {

// As a layer computes them; others follow by name.
constexpr std::array<std::string_view, 9> kModuleOrder{"q_proj",    "k_proj",  "v_proj",       "qkv_proj", "o_proj",
                                                       "gate_proj", "up_proj", "gate_up_proj", "down_proj"};
constexpr int kOutside = -1;  // of the numbered layers

struct ModulePlace {
  int layer = kOutside;
  std::string part;  // "self_attn.q_proj", "mlp.experts.*.up_proj"
};

std::optional<int> layer_number(std::string_view word) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool whole = error == std::errc() && end == word.data() + word.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

// The first number of a module's name is its layer's; experts, which have numbers of their own, are one part.
ModulePlace module_place(std::string_view module) {
  ModulePlace out;
  bool numbered = false;
  while (!module.empty()) {
    const size_t dot = std::min(module.find('.'), module.size());
    const std::string_view word = module.substr(0, dot);
    const auto number = layer_number(word);
    if (number && !numbered) {
      out = {*number, ""};
      numbered = true;
    } else {
      if (!out.part.empty()) out.part += '.';
      out.part += number ? "*" : word;
    }
    module.remove_prefix(std::min(dot + 1, module.size()));
  }
  return out;
}

struct ChangesOfPlace {
  double squares = 0;  // of norms
  bool has_norm = false;
  int modules = 0;
  int least_rank = 0, most_rank = 0;
  std::set<std::string> kinds = {};

  double norm() const { return std::sqrt(squares); }
};

struct PartOrder {
  static size_t rank(std::string_view part) {
    const size_t dot = part.rfind('.');
    const std::string_view last = dot == std::string_view::npos ? part : part.substr(dot + 1);
    return static_cast<size_t>(std::find(kModuleOrder.begin(), kModuleOrder.end(), last) - kModuleOrder.begin());
  }
  bool operator()(const std::string& a, const std::string& b) const {
    return std::pair(rank(a), std::string_view(a)) < std::pair(rank(b), std::string_view(b));
  }
};
using PartSet = std::set<std::string, PartOrder>;
using ChangesByPlace = std::map<std::pair<int, std::string>, ChangesOfPlace>;

ChangesByPlace changes_by_place(const AdapterChanges& adapter) {
  ChangesByPlace out;
  for (const auto& layer : adapter.layers) {
    auto place = module_place(layer.module);
    auto& changes = out[{place.layer, std::move(place.part)}];
    changes.kinds.insert(layer.kind);
    changes.least_rank = changes.modules == 0 ? layer.rank : std::min(changes.least_rank, layer.rank);
    changes.most_rank = std::max(changes.most_rank, layer.rank);
    ++changes.modules;
    if (layer.norm) changes.has_norm = true;
    changes.squares += layer.norm.value_or(0) * layer.norm.value_or(0);
  }
  return out;
}

HtmlCell changes_cell(const ChangesOfPlace& changes, double most) {
  HtmlCell cell;
  if (changes.has_norm) {
    cell.text = fmt::format("{:.3g}", changes.norm());
    cell.look = HtmlCell::Look::kHeat;
    cell.share = most > 0 ? changes.norm() / most : 0;
  } else {
    cell.text = "×";
  }
  cell.told = fmt::format("{}", fmt::join(changes.kinds, ", "));
  if (changes.has_norm && changes.least_rank == changes.most_rank) cell.told += fmt::format(", rank {}", changes.most_rank);
  if (changes.least_rank != changes.most_rank)
    cell.told += fmt::format(", ranks {} to {}", changes.least_rank, changes.most_rank);
  if (changes.modules > 1) cell.told += fmt::format(", {} modules", changes.modules);
  return cell;
}

HtmlTable heat_map(const std::string& name, const ChangesByPlace& changes, double most) {
  PartSet parts;
  std::set<int> layers;
  for (const auto& [place, unused] : changes) {
    layers.insert(place.first);
    parts.insert(place.second);
  }
  HtmlTable out{.caption = name, .headings = {"layer"}, .rows = {}};
  out.headings.insert(out.headings.end(), parts.begin(), parts.end());
  for (const int layer : layers) {
    auto& row = out.rows.emplace_back();
    row.push_back({.text = layer == kOutside ? "outside" : std::to_string(layer)});
    for (const auto& part : parts) {
      const auto found = changes.find({layer, part});
      row.push_back(found == changes.end() ? HtmlCell{} : changes_cell(found->second, most));
    }
  }
  return out;
}

}  // namespace

void add_adapter_changes(const std::vector<AdapterChanges>& adapters, HtmlPage& to) {
  if (adapters.empty()) return;
  std::vector<ChangesByPlace> all;
  double most = 0;
  for (const auto& adapter : adapters) {
    for (const auto& [place, changes] : all.emplace_back(changes_by_place(adapter))) {
      if (std::isfinite(changes.norm())) most = std::max(most, changes.norm());
    }
  }
  to.add_heading("What the adapters change");
  to.add_text(
      fmt::format("‖B·A‖ with its scale (Frobenius' norm) by layer and module; the strongest colour is {:.3g}, in each of them. "
                  "×: replaced as a whole.",
                  most));
  std::vector<HtmlTable> tables;
  for (size_t i = 0; i < adapters.size(); ++i) tables.push_back(heat_map(adapters[i].name, all[i], most));
  to.add_tables_beside(tables);
}

}  // namespace choral::apps
