// Every operation on a large value is paid for before it is done: work is counted, so each of these ends at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/jinja/builtins.h"
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
  for (const auto& filter : filters()) check("|", filter.name, filter.linear, "{{ s|" + std::string(filter.name) + "(s) }}");
  for (const auto& method : text_methods()) {
    const std::string name(method.name);
    check(".", name, method.linear, "{{ s." + name + "() }}");
    check(".", name, true, "{{ ''." + name + "(s, s, s) }}");
    if (method.linear) check(".", name, true, "{% set f = s." + name + " %}{{ f() }}");
  }
  for (const auto& method : methods(Kind::kDict))
    check(".", method.name, method.linear, "{{ dict." + std::string(method.name) + "() }}");
  // What stands here must not read its value, or pay for that itself (see the next test).
  EXPECT_THAT(free, UnorderedElementsAre("|length", "|count", "|first", "|last", "|attr", "|default", "|d", ".startswith",
                                         ".endswith", ".get"));
  for (const char* test : {"odd", "even", "divisibleby(2)", "in(s)", "eq(same)", "ne(same)", "lt(same)", "ge(same)"}) {
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
           "{{ '{}'.format(s) }}",
           "{{ '{k:s}'.format(k=s) }}",
           "{{ [s]|string }}",
           "{{ [s]|tojson }}",
           "{{ {'a': s}|tojson }}",
           "{{ [s, same]|sort }}",
           "{{ [s, same]|unique|list }}",
           "{{ [s, same]|join(s) }}",
           "{{ [1]|map(attribute=s)|list }}",
           "{{ s.startswith(same) }}",
           "{{ s }}",
           "{% for c in s %}{% endfor %}",
           "{% set a, b = s %}",
           "{{ dict.keys() }}",
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
       {"{{ (s ~ 'b') in s ~ s }}", "{{ (s ~ s).split(s ~ 'b')|length }}", "{{ (s ~ s).replace(s ~ 'b', '')|length }}",
        "{{ (s ~ s)|replace(s ~ 'b', '')|length }}", "{{ s.strip('b' ~ s)|length }}"}) {
    const Status status = all.render(source);
    EXPECT_TRUE(status.ok()) << source << ": " << status.to_string();
  }
}

TEST(JinjaCost, ListsAreNotMadeBeyondTheirLimit) {
  Rendering small;
  small.limits.max_elements = 400000;  // the lists and dicts above fit
  for (const char* source : {"{{ s.split('a')|length }}", "{{ ('a ' * 500000).split()|length }}", "{{ s|list|length }}",
                             "{% for c in s %}{% endfor %}", "{{ ('\\n' * 500000)|indent|length }}"}) {
    const Status status = small.render(source);
    EXPECT_EQ(status.code(), Code::kTooLarge) << source;
    EXPECT_THAT(status.message(), HasSubstr("max_elements")) << source;
  }
}

TEST(JinjaCost, MessagesAboutNamesStayShort) {
  const Rendering all;
  for (const char* source : {"{{ {}[s] + 1 }}", "{{ ''|attr(s) + 1 }}", "{{ '{' ~ s ~ '}' }}{{ ('{' ~ s ~ '}').format(a=1) }}",
                             "{{ [1]|map(s)|list }}"}) {
    const Status status = all.render(source);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << source;
    EXPECT_LT(status.message().size(), 1000u) << source;
  }
}

std::string repeated(int times, const std::string& part) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

// A value that holds another is destroyed with it, one inside the other: views, iterators and functions have a depth too.
TEST(JinjaCost, ObjectsInObjectsAreNoDeeperThanListsInLists) {
  const Rendering all;
  const auto grown = [](const std::string& value) {
    return "{% set ns = namespace(j={}) %}{% for i in range(4000) %}{% set ns.j = " + value + " %}{% endfor %}";
  };
  std::string views = "ns.j", reversed = "ns.j", methods = "ns.j";
  for (int i = 0; i < 20; ++i) {
    views = "{'a': " + views + "}.items()";
    reversed = "([" + reversed + "]|select('defined'))";
    methods = "{'a': " + methods + "}.get";
  }
  for (const std::string& value : {views, reversed, methods, "{'a': " + methods + "}['keys']"}) {
    const Status status = all.render(grown(value));
    EXPECT_EQ(status.code(), Code::kTooLarge) << value;
    EXPECT_THAT(status.message(), HasSubstr("max_value_depth")) << value;
  }
  // Both chains are as deep as they may be, and compared.
  const std::string pair = "{% set ns = namespace(a=1, b=1) %}{% for i in range(60) %}{% set ns.a = {'a': ns.a}.items() %}" +
                           std::string("{% set ns.b = {'a': ns.b}.items() %}{% endfor %}{{ ns.a == ns.b }}");
  EXPECT_TRUE(all.render(pair).ok());
}

// A loop that is over may be kept, but keeps nothing.
TEST(JinjaCost, LoopsThatAreOverAreNotDestroyedOneInsideTheOther) {
  const Rendering all;
  const Status status = all.render(
      "{% set ns = namespace(old=0) %}{% for h in range(4) %}{% for i in range(100000) %}{% for j in [ns.old] %}{% set ns.old = "
      "loop %}{% endfor %}{% endfor %}{% endfor %}");
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(JinjaCost, NamespacesInListsInNamespacesArePrintedWithinTheDepth) {
  const Rendering all;
  const Status status =
      all.render("{% set ns = namespace(p=1) %}{% for i in range(900) %}{% set ns.p = namespace(v=" + repeated(100, "[") +
                 "ns.p" + repeated(100, "]") + ") %}{% endfor %}{{ ns.p }}");
  EXPECT_EQ(status.code(), Code::kTooLarge);
  EXPECT_THAT(status.message(), HasSubstr("max_eval_depth"));
}

TEST(JinjaCost, MacrosPayForTheirParametersAndTheirPlace) {
  const Rendering few = with_few_steps();
  const auto with_parameters = [](int count) {
    std::string names = "p0";
    for (int i = 1; i < count; ++i) names += ", p" + std::to_string(i);
    return "{% macro m(" + names + ") %}{% endmacro %}{{ m() }}";
  };
  EXPECT_TRUE(few.render(with_parameters(20)).ok());
  EXPECT_EQ(few.render(with_parameters(1000)).code(), Code::kTooLarge);
  const Status status = Rendering().render(with_parameters(1025));
  EXPECT_EQ(status.code(), Code::kTooLarge);
  EXPECT_THAT(status.message(), HasSubstr("line 1: a macro has more than 1024 parameters"));

  std::string macros;
  for (int i = 0; i < 1000; ++i) macros += "{% macro m" + std::to_string(i) + "() %}{% endmacro %}";
  EXPECT_EQ(few.render(macros).code(), Code::kTooLarge);
}

TEST(JinjaCost, NamesAndPathsPayForTheirLookups) {
  const Rendering few = with_few_steps();
  EXPECT_EQ(few.render("{% set ns = namespace() %}{{ ns[s] }}").code(), Code::kTooLarge);
  const std::string name = repeated(50000, "n");
  EXPECT_EQ(few.render("{% set ns = namespace() %}{% set ns." + name + " = 1 %}").code(), Code::kTooLarge);
  EXPECT_EQ(few.render("{% for i in range(20) %}{{ namespace(" + name + "=1) }}{% endfor %}").code(), Code::kTooLarge);
  // 4500 parts; their characters alone take less than half of the steps.
  EXPECT_EQ(few.render("{{ ['a']|map(attribute='" + repeated(4500, "0.") + "0')|list }}").code(), Code::kTooLarge);
}

TEST(JinjaCost, WhatIsKeptToTheEndCountsAsAllocated) {
  Rendering small;
  small.limits.max_allocated_bytes = kMegabyte;
  small.text.resize(kMegabyte / 2);
  const auto repeat = [](const std::string& body) { return "{% for i in range(10000) %}" + body + "{% endfor %}"; };
  EXPECT_TRUE(small.render(repeat("{% set x = 1 %}")).ok());
  const Status kept = small.render(repeat("{% set x = namespace() %}"));
  EXPECT_EQ(kept.code(), Code::kTooLarge);
  EXPECT_THAT(kept.message(), HasSubstr("max_allocated_bytes"));
  std::string names = "{% set ns = namespace() %}";
  for (int i = 0; i < 5000; ++i) names += "{% set ns.a" + std::to_string(i) + " = 1 %}";
  for (const std::string& source : {names, std::string("{{ ''.strip(s) }}"), std::string("{{ ''|trim(s) }}")}) {
    const Status status = small.render(source);
    EXPECT_EQ(status.code(), Code::kTooLarge) << source.substr(0, 100);
    EXPECT_THAT(status.message(), HasSubstr("max_allocated_bytes")) << source.substr(0, 100);
  }
}

}  // namespace
}  // namespace choral::text::jinja
