#include "engine/layer_forms.h"

#include <algorithm>

#include "base/ascii.h"

namespace choral::engine {
namespace {

bool alike(const LayerForms& a, const LayerForms& b) {
  return a.layers == b.layers && a.scheme == b.scheme && a.kernel == b.kernel && a.why == b.why;
}

}  // namespace

std::string without_numbers(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool starts = i == 0 || name[i - 1] == '.';
    size_t end = i;
    while (starts && end < name.size() && is_digit(name[end])) ++end;
    const bool number = end > i && (end == name.size() || name[end] == '.');
    out += number ? '*' : name[i];
    if (number) i = end - 1;
  }
  return out;
}

std::vector<LayerForms> layer_forms(std::span<layers::Module* const> modules, CpuLevel level) {
  std::vector<LayerForms> rows;
  for (const auto* module : modules) {
    auto form = module->product_form(level);
    if (!form) continue;
    LayerForms row{.layers = without_numbers(module->prefix()),
                   .count = 1,
                   .scheme = std::move(form->scheme),
                   .kernel = std::move(form->kernel),
                   .why = without_numbers(form->why)};
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const LayerForms& other) { return alike(other, row); });
    if (same == rows.end()) {
      rows.push_back(std::move(row));
    } else {
      ++same->count;
    }
  }
  return rows;
}

}  // namespace choral::engine
