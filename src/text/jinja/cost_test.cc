// Every operation on a large value is paid for before it is done: work is counted, so each of these ends at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/predicates.h"
#include "text/jinja/template.h"

namespace choral::text::jinja {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr size_t kMegabyte = 1 << 20;

struct Rendering {
  RenderLimits limits;
  std::string text = std::string(kMegabyte, 'a');

  Status render(const std::string& source) const {
    const auto parsed = Template::parse(source, limits);
    if (!parsed.ok()) return parsed.status();
    std::vector<std::pair<std::string_view, Value>> variables;
    variables.emplace_back("s", Value::text(text));
    variables.emplace_back("same", Value::text(text));
    variables.emplace_back("e", Value::text(text + "é"));
    if (parsed->mentions("list")) {
      for (const char* name : {"list", "also"})
        variables.emplace_back(name, *make_list(Values(200000, Value::integer(1)), limits));
    }
    if (parsed->mentions("dict")) {
      Dict dict;
      for (int64_t i = 0; i < 100000; ++i) dict.set(Value::integer(i), Value::none());
      for (const char* name : {"dict", "other"}) variables.emplace_back(name, *make_dict(dict, limits));
    }
    return parsed->render(std::move(variables), 0, nullptr).status();
  }
};

// With fewer steps than reading a megabyte takes, nothing that reads it may come to its end.
Rendering with_few_steps() {
  Rendering out;
  out.limits.max_steps = 5000;
  return out;
}

TEST(JinjaCost, EveryFilterTestAndMethodPaysForWhatItIsGiven) {
  const Rendering few = with_few_steps();
  std::vector<std::string> free;
  const auto check = [&](std::string_view kind, std::string_view name, bool linear, const std::string& source) {
    if (!linear) return free.push_back(std::string(kind) + std::string(name));
    EXPECT_EQ(few.render(source).code(), Code::kTooLarge) << source;
  };
  for (const auto filters : {text_filters(), sequence_filters(), select_filters(), order_filters(), number_filters()}) {
    for (const auto& filter : filters) check("|", filter.name, filter.linear, "{{ s|" + std::string(filter.name) + "(s) }}");
  }
  for (const auto& method : text_methods()) {
    const std::string name(method.name);
    check(".", name, method.linear, "{{ s." + name + "() }}");
    check(".", name, true, "{{ ''." + name + "(s, s, s) }}");
    if (method.linear) check(".", name, true, "{% set f = s." + name + " %}{{ f() }}");
  }
  for (const Kind kind : {Kind::kDict, Kind::kList, Kind::kTuple, Kind::kFloat}) {
    for (const auto& method : container_methods(kind)) check(".", method.name, method.linear, "");
  }
  // What stands here must not read its value, or pay for that itself (see the next test).
  EXPECT_THAT(free, UnorderedElementsAre("|length", "|count", "|first", "|last", "|attr", "|default", "|d", ".startswith",
                                         ".endswith", ".items", ".keys", ".values", ".get", ".copy", ".index", ".count", ".copy",
                                         ".index", ".count", ".is_integer"));
  for (const char* test :
       {"odd", "even", "divisibleby(2)", "lower", "upper", "in(s)", "eq(same)", "ne(same)", "lt(same)", "ge(same)"}) {
    EXPECT_EQ(few.render(std::string("{{ s is ") + test + " }}").code(), Code::kTooLarge) << test;
  }
}

TEST(JinjaCost, OperatorsAndSubscriptsPayForWhatTheyReadOrMake) {
  const Rendering few = with_few_steps();
  for (const char* source : {
           "{{ 'b' in s }}",
           "{{ s in s }}",
           "{{ s not in s }}",
           "{{ s == same }}",
           "{{ s < same }}",
           "{{ list == also }}",
           "{{ list <= also }}",
           "{{ 2 in list }}",
           "{{ list.count(2) }}",
           "{{ list.index(2) }}",
           "{{ dict == other }}",
           "{{ dict.items() == other.items() }}",
           "{{ dict.keys() == other.keys() }}",
           "{{ {}[s] }}",
           "{{ {}.get(s) }}",
           "{{ s in {} }}",
           "{{ {s: 1} }}",
           "{{ ''|attr(s) }}",
           "{{ e[500000] }}",
           "{{ e[-500000] }}",
           "{{ e[1:500000] }}",
           "{{ s[::-1] }}",
           "{{ s ~ s }}",
           "{{ s + s }}",
           "{{ s * 2 }}",
           "{{ s % () }}",
           "{{ '%s' % s }}",
           "{{ '%(k).0s' % {'k': s} }}",
           "{{ '{}'.format(s) }}",
           "{{ '{:.0}'.format(s) }}",
           "{{ [s]|string }}",
           "{{ [s]|tojson }}",
           "{{ {'a': s}|tojson }}",
           "{{ [s, same]|sort }}",
           "{{ [s, same]|unique|list }}",
           "{{ [s, same]|max }}",
           "{{ [s, same]|join(s) }}",
           "{{ [1]|map(attribute=s)|list }}",
           "{{ 1|round(1, *list) }}",
           "{{ s.startswith(same) }}",
           "{{ e.startswith('a', 500000) }}",
           "{{ s }}",
           "{% for c in s %}{% endfor %}",
           "{% set a, b = s %}",
           "{{ cycler(*list) }}",
           "{{ namespace(dict) }}",
       }) {
    EXPECT_EQ(few.render(source).code(), Code::kTooLarge) << source;
  }
}

TEST(JinjaCost, WhatReadsLittleCostsLittle) {
  const Rendering few = with_few_steps();
  for (const char* source : {"{{ s|length }}{{ s|first }}{{ s|last }}{{ s[5] }}{{ s[-1] }}{{ e[-1] }}{{ e[3] }}",
                             "{{ s.startswith('aa') }}", "{{ s.endswith('aa') }}", "{{ s[:10] }}{{ s[-10:] }}{{ e[-10:] }}",
                             "{{ s is string }}", "{{ s is none }}", "{% if s %}{% endif %}", "{{ {'s': s}['s']|length }}"}) {
    const Status status = few.render(source);
    EXPECT_TRUE(status.ok()) << source << ": " << status.to_string();
  }
}

TEST(JinjaCost, SearchesTakeNoSquareTime) {
  Rendering all;
  all.text = std::string(size_t{1} << 23, 'a');
  for (const char* source :
       {"{{ (s ~ 'b') in s ~ s }}", "{{ (s ~ s).find(s ~ 'b') }}", "{{ (s ~ s).rfind('b' ~ s) }}", "{{ (s ~ s).count(s ~ 'b') }}",
        "{{ (s ~ s).split(s ~ 'b')|length }}", "{{ (s ~ s).rsplit('b' ~ s)|length }}", "{{ (s ~ s).partition(s ~ 'b')|length }}",
        "{{ (s ~ s).rpartition('b' ~ s)|length }}", "{{ (s ~ s).replace(s ~ 'b', '')|length }}",
        "{{ (s ~ s)|replace(s ~ 'b', '')|length }}", "{{ s.strip('b' ~ s)|length }}"}) {
    const Status status = all.render(source);
    EXPECT_TRUE(status.ok()) << source << ": " << status.to_string();
  }
}

TEST(JinjaCost, ListsAreNotMadeBeyondTheirLimit) {
  Rendering small;
  small.limits.max_elements = 400000;  // the lists and dicts above fit
  for (const char* source :
       {"{{ s.split('a')|length }}", "{{ s.rsplit('a')|length }}", "{{ ('a ' * 500000).split()|length }}",
        "{{ ('a ' * 500000).rsplit()|length }}", "{{ ('\\n' * 500000).splitlines()|length }}", "{{ s|list|length }}",
        "{% for c in s %}{% endfor %}", "{{ ('\\n' * 500000)|indent|length }}", "{{ ('a ' * 500000)|striptags|length }}"}) {
    const Status status = small.render(source);
    EXPECT_EQ(status.code(), Code::kTooLarge) << source;
    EXPECT_THAT(status.message(), HasSubstr("max_elements")) << source;
  }
}

TEST(JinjaCost, MessagesAboutNamesStayShort) {
  const Rendering all;
  for (const char* source :
       {"{{ {}[s] + 1 }}", "{{ ''|attr(s) + 1 }}", "{{ ('%(' ~ s ~ ')s') % {} }}", "{{ [1]|map(s)|list }}"}) {
    const Status status = all.render(source);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << source;
    EXPECT_LT(status.message().size(), 1000u) << source;
  }
}

}  // namespace
}  // namespace choral::text::jinja
