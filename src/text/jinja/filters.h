// The filters of the language (value|name(…)) by name. Filters that Python runs lazily run at once and give an Iterator.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "text/jinja/object.h"

namespace choral::text::jinja {

struct FilterEntry {
  std::string_view name;
  Result<Value> (*body)(Interpreter&, const Value& subject, Arguments& args);
  bool linear = true;  // as of Method
};

const FilterEntry* find_filter(std::string_view name);

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> order_filters();
std::span<const FilterEntry> select_filters();
std::span<const FilterEntry> number_filters();

}  // namespace choral::text::jinja
