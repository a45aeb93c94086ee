#include <algorithm>
#include <functional>
#include <set>

#include "text/jinja/access.h"
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iterate.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_ops.h"
#include "text/jinja/unicode.h"

namespace choral::text::jinja {
namespace {

struct Keyed {
  Value key, item;
};

Result<Value> fold_case(Interpreter& interp, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  CHORAL_RETURN_IF_ERROR(interp.walk(value.str().size()));
  CHORAL_RETURN_IF_ERROR(interp.allocated(value.str().size()));
  return Value::text(lower(value.str()));
}

// Stable, as Python's sorted; the first failing comparison is the error.
Status sort_keyed(Interpreter& interp, std::vector<Keyed>* items, bool descending) {
  Status failed;
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    if (!failed.ok()) return false;
    const Result<bool> below = descending ? less(interp, b.key, a.key) : less(interp, a.key, b.key);
    if (!below.ok()) failed = below.status();
    return below.ok() && *below;
  });
  return failed;
}

Result<Value> as_list(Interpreter& interp, std::vector<Keyed> sorted) {
  Values out;
  out.reserve(sorted.size());
  for (Keyed& keyed : sorted) out.push_back(std::move(keyed.item));
  return interp.list(std::move(out));
}

Result<Value> sort(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_sort", args, {"reverse", "case_sensitive", "attribute"}));
  const bool case_sensitive = bool_argument(bound[1], false);
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  // "a,b.c" sorts by several attributes.
  std::vector<Value> paths;
  if (bound[2] != nullptr && bound[2]->is_string()) {
    CHORAL_TRY(const auto parts, split(interp, bound[2]->str(), ",", -1, false));
    for (const auto path : parts) paths.push_back(Value::text(path));
  } else {
    paths.push_back(bound[2] != nullptr ? *bound[2] : Value::none());
  }
  std::vector<Keyed> keyed;
  for (const Value& item : *items) {
    Values key;
    for (const Value& path : paths) {
      CHORAL_TRY(const Value part, get_path(interp, item, path));
      CHORAL_TRY(Value folded, fold_case(interp, part, case_sensitive));
      key.push_back(std::move(folded));
    }
    CHORAL_TRY(Value whole, interp.list(std::move(key)));
    keyed.push_back({std::move(whole), item});
  }
  CHORAL_RETURN_IF_ERROR(sort_keyed(interp, &keyed, bool_argument(bound[0], false)));
  return as_list(interp, std::move(keyed));
}

Result<Value> dictsort(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_dictsort", args, {"case_sensitive", "by", "reverse"}));
  CHORAL_RETURN_IF_ERROR(check_defined(subject));
  CHORAL_TRY(const std::string_view by, text_argument(bound[1], "key"));
  if (by != "key" && by != "value") return invalid_argument("You can only sort by either \"key\" or \"value\"");
  if (!subject.is_dict()) return invalid_argument("'{}' object has no attribute 'items'", type_name(subject));
  std::vector<Keyed> keyed;
  for (const auto& [k, v] : subject.dict().entries()) {
    CHORAL_TRY(Value pair, interp.tuple({k, v}));
    CHORAL_TRY(Value key, fold_case(interp, by == "key" ? k : v, bool_argument(bound[0], false)));
    keyed.push_back({std::move(key), std::move(pair)});
  }
  CHORAL_RETURN_IF_ERROR(sort_keyed(interp, &keyed, bool_argument(bound[2], false)));
  return as_list(interp, std::move(keyed));
}

Result<Value> unique(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_unique", args, {"case_sensitive", "attribute"}));
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  std::set<Value, KeyLess> seen;
  Values out;
  Status error;
  for (const Value& item : *items) {
    Result<Value> found = get_path(interp, item, bound[1] != nullptr ? *bound[1] : Value::none());
    if (found.ok() && !hashable(*found)) found = invalid_argument("unhashable type: '{}'", type_name(*found));
    if (!found.ok()) {
      error = found.status();
      break;
    }
    CHORAL_TRY(Value key, fold_case(interp, *found, bool_argument(bound[0], false)));
    CHORAL_RETURN_IF_ERROR(interp.lookup_cost(key));
    if (seen.insert(std::move(key)).second) out.push_back(item);
  }
  return interp.iterator("generator", std::move(out), std::move(error));
}

template <bool kMax>
Result<Value> extreme(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind(kMax ? "do_max" : "do_min", args, {"case_sensitive", "attribute"}));
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  if (items->empty()) return Value::undefined("No aggregated item, sequence was empty.");
  std::optional<Keyed> best;
  for (const Value& item : *items) {
    CHORAL_TRY(const Value part, get_path(interp, item, bound[1] != nullptr ? *bound[1] : Value::none()));
    CHORAL_TRY(const Value key, fold_case(interp, part, bool_argument(bound[0], false)));
    bool better = !best;
    if (best) {
      CHORAL_TRY(better, compare(interp, kMax ? Operator::kGreater : Operator::kLess, key, best->key));
    }
    if (better) best = Keyed{key, item};
  }
  return best->item;
}

Result<Value> groupby(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  std::vector<Keyed> keyed;
  for (const Value& item : *items) {
    CHORAL_TRY(const Value key, get_path(interp, item, *bound[0], bound[1]));
    CHORAL_TRY(Value folded, fold_case(interp, key, bool_argument(bound[2], false)));
    keyed.push_back({std::move(folded), item});
  }
  CHORAL_RETURN_IF_ERROR(sort_keyed(interp, &keyed, false));
  Values groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    Values members;
    for (; end < keyed.size(); ++end) {
      CHORAL_TRY(const bool same, compare(interp, Operator::kEqual, keyed[end].key, keyed[begin].key));
      if (!same) break;
      members.push_back(keyed[end].item);
    }
    CHORAL_TRY(Value grouper, get_path(interp, members[0], *bound[0], bound[1]));
    CHORAL_TRY(Value list, interp.list(std::move(members)));
    CHORAL_TRY(Value group, interp.tuple({std::move(grouper), std::move(list)}));
    groups.push_back(std::move(group));
    begin = std::max(end, begin + 1);  // NaN equals nothing, itself neither
  }
  return interp.list(std::move(groups));
}

Result<Value> sum(Interpreter& interp, const Value& subject, Arguments& args) {
  CHORAL_TRY(const auto bound, bind("do_sum", args, {"attribute", "start"}));
  CHORAL_TRY(const auto items, elements_of(interp, subject));
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is_string()) return invalid_argument("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : *items) {
    Value part = item;
    if (bound[0] != nullptr && !bound[0]->is_none()) {
      CHORAL_TRY(part, get_path(interp, item, *bound[0]));
    }
    CHORAL_RETURN_IF_ERROR(interp.allocated(total.is_list() || total.is_tuple() ? total.items().size() * sizeof(Value) : 0));
    CHORAL_TRY(total, binary(interp, Operator::kAdd, total, part));
  }
  return total;
}

constexpr FilterEntry kOrderFilters[] = {
    {"sort", sort},         {"dictsort", dictsort}, {"unique", unique}, {"min", extreme<false>},
    {"max", extreme<true>}, {"groupby", groupby},   {"sum", sum},
};

}  // namespace

std::span<const FilterEntry> order_filters() { return kOrderFilters; }

}  // namespace choral::text::jinja
