// Every rule of the language with what Jinja 3.1 prints for it (or says, where the words are part of the contract).
// An error row holds the message of the failure without line and context.
#include <gtest/gtest.h>

#include "text/jinja/template.h"

namespace choral::text::jinja {
namespace {

struct Row {
  const char* source;
  const char* expected;
  bool fails = false;
};

std::vector<std::pair<std::string_view, Value>> variables() {
  static const Value kInput = *read_json(
      R"({"messages": [{"role": "user", "content": "héllo"}, {"role": "assistant", "content": "Ok <b>", "n": 3}],
          "tools": null, "num": 7, "lst": [3, 1, 2], "strs": ["b", "A", "a"], "dct": {"b": 1, "A": 2}, "txt": "Hello World"})",
      RenderLimits());
  std::vector<std::pair<std::string_view, Value>> out;
  for (const auto& [name, value] : kInput.dict().entries()) out.emplace_back(name.str(), value);
  return out;
}

void check(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.source);
    const auto parsed = Template::parse(row.source, RenderLimits());
    if (!parsed.ok()) {
      EXPECT_TRUE(row.fails) << parsed.status().message();
      EXPECT_EQ(parsed.status().message(), row.expected);
      continue;
    }
    RenderFailure failure;
    const Result<std::string> out = parsed->render(variables(), 1753488000, &failure);
    EXPECT_EQ(out.ok(), !row.fails) << (out.ok() ? *out : out.status().message());
    EXPECT_EQ(out.ok() ? *out : failure.text, row.expected);
  }
}

TEST(JinjaLanguage, Literals) {
  check({
      {R"~({{ 'a\n\t\x41\u00e9\\\'' ~ \"it's\" }})~", R"~(line 1: unexpected character '\')~", true},
      {R"~({{ 'a\dé' }})~", R"~(a\dé)~"},
      {R"~({{ 1.5e3 }} {{ 2.50 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 0.0001 }} {{ -0.0 }} {{ 1e15 }})~",
       R"~(1500.0 2.5 1e+16 1e-05 123456789.125 0.0001 -0.0 1000000000000000.0)~"},
      {R"~({{ [1, 'a', none, true, 1.0] }}{{ (1,) }}{{ () }}{{ {'a': [1], 2: 'b'} }})~",
       R"~([1, 'a', None, True, 1.0](1,)(){'a': [1], 2: 'b'})~"},
      {R"~({{ 'a' 'b' "c" }})~", R"~(abc)~"},
      {R"~({{ True }} {{ None }} {{ false }})~", R"~(True None False)~"},
      {R"~({{ ['it\'s', "a\"b", 'a\nb\x01\u200b'] }})~", R"~(["it's", 'a"b', 'a\nb\x01\u200b'])~"},
  });
}

TEST(JinjaLanguage, Operators) {
  check({
      {R"~({{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 10 }})~",
       R"~(3 -4 -2 2 3.5 2.0 1024)~"},
      {R"~({{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 + 2 ~ 3 * 4 }})~", R"~(unsupported operand type(s) for +: 'int' and 'str')~",
       true},
      {R"~({{ 'a' * 3 }} {{ [1] * 2 }} {{ 2 * 'ab' }} {{ (1, 2) + (3,) }})~", R"~(aaa [1, 1] abab (1, 2, 3))~"},
      {R"~({{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }})~",
       R"~(True False True True True True)~"},
      {R"~({{ 'x' in 'xyz' }} {{ 2 not in [1] }} {{ 'b' in dct }} {{ 1 in (1, 2) }})~", R"~(True True True True)~"},
      {R"~({{ '' or 'x' }} {{ 0 and 1 }} {{ not [] }} {{ 'a' if false }}|{{ 1 if 0 else 2 if 0 else 3 }})~", R"~(x 0 True |3)~"},
      {R"~({{ 'a' + 1 }})~", R"~(can only concatenate str (not "int") to str)~", true},
      {R"~({{ 1 + 'a' }})~", R"~(unsupported operand type(s) for +: 'int' and 'str')~", true},
      {R"~({{ 1 / 0 }})~", R"~(division by zero)~", true},
      {R"~({{ 1 < 'a' }})~", R"~('<' not supported between instances of 'int' and 'str')~", true},
      {R"~({{ 1 in 'abc' }})~", R"~('in <string>' requires string as left operand, not int)~", true},
      {R"~({{ [] + 'a' }})~", R"~(can only concatenate list (not "str") to list)~", true},
      {R"~({{ -'a' }})~", R"~(bad operand type for unary -: 'str')~", true},
  });
}

TEST(JinjaLanguage, UnaryBindsBeforeFilter) {
  check({
      {R"~({{ -3 | abs }} {{ -num | abs }} {{ 2 * 3 | string }}{{ not true | string }})~", R"~(3 7 33False)~"},
  });
}

TEST(JinjaLanguage, Subscripts) {
  check({
      {R"~({{ lst[0] }}{{ lst[-1] }}{{ lst[9] }}|{{ txt[0] }}{{ txt[-1] }}|{{ dct.b }}{{ dct['A'] }}{{ dct.zz }}|{{ lst.0 }})~",
       R"~(32|Hd|12|3)~"},
      {R"~({{ txt[:5] }}|{{ txt[::-1] }}|{{ txt[-3:] }}|{{ lst[1:] }}|{{ lst[::-2] }}|{{ lst[5:] }}|{{ 'héllo'[1:3] }}|{{ (1,2,3)[:2] }})~",
       R"~(Hello|dlroW olleH|rld|[1, 2]|[2, 3]|[]|él|(1, 2))~"},
      {R"~({{ {'items': 1}['items'] }} {{ {'items': 1}.items() }})~", R"~(1 dict_items([('items', 1)]))~"},
      {R"~({{ lst[::0] }})~", R"~(slice step cannot be zero)~", true},
      {R"~({{ tools.x }}|{{ tools['x'] }})~", R"~(|)~"},
      {R"~({{ missing.x }})~", R"~('missing' is undefined)~", true},
      {R"~({{ missing[0] }})~", R"~('missing' is undefined)~", true},
      {R"~({{ dct.x.y }})~", R"~('dict object' has no attribute 'x')~", true},
      {R"~({{ lst['a']['b'] }})~", R"~('list object' has no attribute 'a')~", true},
      {R"~({{ none[1:] if false }}{{ tools[1:] }})~", R"~('NoneType' object is not subscriptable)~", true},
  });
}

TEST(JinjaLanguage, Undefined) {
  check({
      {R"~([{{ missing }}]{{ missing is defined }}{{ missing | default('d') }}{{ not missing }}{{ missing == other }}{{ [missing] }}{{ missing ~ 'x' }}{% for x in missing %}x{% endfor %}{{ missing | length }})~",
       R"~([]FalsedTrueTrue[Undefined]x0)~"},
      {R"~({{ missing + 1 }})~", R"~('missing' is undefined)~", true},
      {R"~({{ missing() }})~", R"~('missing' is undefined)~", true},
      {R"~({{ missing | int }})~", R"~('missing' is undefined)~", true},
      {R"~({{ 'a' % missing }}|{{ 'a' in missing }})~", R"~(a|False)~"},
      {R"~({{ missing < 1 }})~", R"~('missing' is undefined)~", true},
      {R"~({{ ('a' if false) + 'b' }})~",
       R"~(the inline if-expression on line 1 evaluated to false and no else section was defined.)~", true},
      {R"~({{ missing | tojson }})~", R"~(Object of type Undefined is not JSON serializable)~", true},
  });
}

TEST(JinjaLanguage, Sandbox) {
  check({
      {R"~([{{ ''.__class__ }}][{{ txt.__class__.__mro__ }}])~",
       R"~(access to attribute '__class__' of 'str' object is unsafe.)~", true},
      {R"~({{ [1].append(2) }})~", R"~(access to attribute 'append' of 'list' object is unsafe.)~", true},
      {R"~({{ dct.pop('b') }})~", R"~(access to attribute 'pop' of 'dict' object is unsafe.)~", true},
      {R"~({{ dct.update({}) }})~", R"~(access to attribute 'update' of 'dict' object is unsafe.)~", true},
      {R"~([{{ [].append }}])~", R"~([])~"},
      {R"~({{ txt.upper.__self__ }})~", R"~()~"},
      {R"~({{ ().__class__.__bases__[0].__subclasses__() }})~",
       R"~(access to attribute '__class__' of 'tuple' object is unsafe.)~", true},
      {R"~({{ range.__globals__ }}|)~", R"~(|)~"},
  });
}

TEST(JinjaLanguage, ForLoops) {
  check({
      {R"~({% for x in lst %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('a','b') }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }};{% endfor %})~",
       R"~(1032TrueFalse3a11;2121FalseFalse3b321;3210FalseTrue3a11;)~"},
      {R"~({% for x in lst if x > 1 %}{{ loop.index }}/{{ loop.length }}={{ x }} {% else %}none{% endfor %})~",
       R"~(1/2=3 2/2=2 )~"},
      {R"~({% for x in [] %}{% else %}empty{% endfor %})~", R"~(empty)~"},
      {R"~({% for k, v in dct.items() %}{{ k }}{{ v }}{% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %})~",
       R"~(b1A2123)~"},
      {R"~({% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %})~",
       R"~(0134)~"},
      {R"~({% for x in lst %}{% break %}{% else %}Jinja runs else here{% endfor %})~", R"~(Jinja runs else here)~"},
      {R"~({% for x in 'héy' %}{{ x }},{% endfor %}{% for k in dct %}{{ k }}{% endfor %})~", R"~(h,é,y,bA)~"},
      {R"~({% for a in lst %}{% for b in lst %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %})~", R"~(123112321233)~"},
      {R"~({% for a, b in [(1, 2, 3)] %}{% endfor %})~", R"~(too many values to unpack (expected 2))~", true},
      {R"~({% for x in 5 %}{% endfor %})~", R"~('int' object is not iterable)~", true},
      {R"~({% set ns = namespace(hit=false) %}{% for x in lst if not ns.hit %}{{ x }}{% set ns.hit = true %}{% endfor %})~",
       R"~(3)~"},
      {R"~({% for x in lst %}{% set loop = 1 %}{% endfor %})~",
       R"~(line 1: Can't assign to special loop variable in for-loop target)~", true},
      {R"~({% break %})~", R"~(line 1: 'break' outside loop)~", true},
      {R"~({% for m in messages %}{{ loop.last }}{{ loop.nextitem.role }}{% endfor %})~", R"~(there is no next item)~", true},
  });
}

TEST(JinjaLanguage, Scopes) {
  check({
      {R"~({% set x = 1 %}{% for i in lst %}{% set x = i %}{{ x }}{% endfor %}{{ x }})~", R"~(3121)~"},
      {R"~({% if true %}{% set x = 5 %}{% endif %}{{ x }})~", R"~(5)~"},
      {R"~({% set ns = namespace(a=1) %}{% for i in lst %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }})~", R"~(7)~"},
      {R"~({% set a, b = 1, [2] %}{{ a }}{{ b }}{% set (c, d) = 'xy' %}{{ c }}{{ d }})~", R"~(1[2]xy)~"},
      {R"~({% set x %}block {{ 1 }}{% endset %}[{{ x }}]{% set y | upper | trim %} up {% endset %}[{{ y }}])~",
       R"~([block 1][UP])~"},
      {R"~({% set dct.b = 3 %})~", R"~(cannot assign attribute on non-namespace object)~", true},
      {R"~({% for i in [1,2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %})~", R"~(12)~"},
      {R"~({% generation %}{% set z = 1 %}{{ z }}{% endgeneration %}{{ z }})~", R"~(1)~"},
      {R"~({% filter upper %}{% set w = 'w' %}{{ w }}{% endfilter %}{{ w }})~", R"~(W)~"},
  });
}

TEST(JinjaLanguage, Macros) {
  check({
      {R"~({% macro m(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=2) }}|{{ m(b=3, a=4) }}|{{ m() }})~",
       R"~(1B1|1B2|434|B)~"},
      {R"~({% macro m(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(0, *'xy') }})~", R"~(1230xy)~"},
      {R"~({% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ kwargs }})~", R"~(1)~"},
      {R"~({% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }})~", R"~(3210)~"},
      {R"~({% macro m(a) %}{% endmacro %}{{ m(1, 2) }})~", R"~(macro 'm' takes not more than 1 argument(s))~", true},
      {R"~({% macro m(a) %}{% endmacro %}{{ m(b=2) }})~", R"~(macro 'm' takes no keyword argument 'b')~", true},
      {R"~({{ m() }}{% macro m() %}{% endmacro %})~", R"~('m' is undefined)~", true},
      {R"~({% macro m() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }})~", R"~(L)~"},
      {R"~({% macro m(a) %}{{ a is defined }}{{ a + 1 }}{% endmacro %}{{ m() }})~", R"~(parameter 'a' was not provided)~", true},
  });
}

TEST(JinjaLanguage, Whitespace) {
  check({
      {R"~(a
  {% if true %}
  b
  {% endif %}
c
)~",
       R"~(a
  b
c)~"},
      {R"~(a  {%- if true -%}  b  {%- endif -%}  c)~", R"~(abc)~"},
      {R"~(a
  {%+ if true %}
b{% endif %}
)~",
       R"~(a
  b)~"},
      {R"~(  {{ 1 }}
  {{- 2 -}}  
 3)~",
       R"~(  123)~"},
      {R"~(x
{# c #}
y
  {#- c -#}
 z)~",
       R"~(x
yz)~"},
      {R"~({% raw %}{{ no }}{% endraw %}
 x)~",
       R"~({{ no }} x)~"},
      {R"~(a
 {%- raw -%} 
 {{ r }} {%- endraw -%} 
b)~",
       R"~(a{{ r }}b)~"},
      {R"~({% if true +%}
x{% endif %})~",
       R"~(
x)~"},
      {"a\r\nb\rc\n\n", R"~(a
b
c
)~"},
      {R"~(  {% set x = 1 %}  
  {% set y = 2 %}
z)~",
       R"~(  
z)~"},
      {R"~({{ '{{' }}{{ '}}' }}{{ {'a': {'b': 1}} }})~", R"~({{}}{'a': {'b': 1}})~"},
  });
}

TEST(JinjaLanguage, TextFilters) {
  check({
      {R"~({{ '  x ' | trim }}|{{ 'xxhixx' | trim('x') }}|{{ 'hello world-foo (bar)' | title }}|{{ 'aBC' | capitalize }}|{{ 'ß' | upper }}|{{ 'ΑΣ' | lower }})~",
       R"~(x|hi|Hello World-Foo (Bar)|Abc|SS|ας)~"},
      {R"~({{ 'aaa' | replace('a', 'b', 2) }}|{{ 123 | replace(2, 'x') }}|{{ 'abc' | replace('', '-') }})~",
       R"~(bba|1x3|-a-b-c-)~"},
      {R"~({{ 'a
b

c' | indent }}|{{ 'a
b' | indent(2, true) }}|{{ 'a

b' | indent('> ', blank=true) }})~",
       R"~(a
    b

    c|  a
  b|a
> 
> b)~"},
      {R"~({{ '<a href="x">&\'' | e }})~", R"~(&lt;a href=&#34;x&#34;&gt;&amp;&#39;)~"},
      {R"~({{ '%s=%d|%d' | format('k', 3.14159, true) }}{{ '%s' % 'x' }}{{ '%s %s' % ('a', [1]) }}{{ '%%' % () }})~",
       R"~(k=3|1xa [1]%)~"},
      {R"~({{ '%d' % 'x' }})~", R"~(%d format: a real number is required, not str)~", true},
      {R"~({{ '%s' % (1, 2) }})~", R"~(not all arguments converted during string formatting)~", true},
      {R"~({{ 1 | string ~ 1.0 | string ~ none | string ~ true | string }})~", R"~(11.0NoneTrue)~"},
  });
}

TEST(JinjaLanguage, ToJson) {
  check({
      {R"~({{ {'b': [1, 2.0, none, true], 'a': 'é\n"\\<'} | tojson }})~", R"~({"b": [1, 2.0, null, true], "a": "é\n\"\\<"})~"},
      {R"~({{ {'b': [1, {}], 'a': []} | tojson(indent=2) }})~", R"~({
  "b": [
    1,
    {}
  ],
  "a": []
})~"},
      {R"~({{ {'b': 1, 'a': 2} | tojson(ensure_ascii=true) }}{{ 'é😀' | tojson(ensure_ascii=true) }})~",
       R"~({"b": 1, "a": 2}"\u00e9\ud83d\ude00")~"},
      {"{{ {1: 2, none: 3, true: 4} | tojson }}{{ (1, 2) | tojson }}{{ '\x7f"
       "\\x01' | tojson }}",
       "{\"1\": 4, \"null\": 3}[1, 2]\"\x7f"
       "\\u0001\""},
      {R"~({{ range(3) | tojson }})~", R"~(Object of type range is not JSON serializable)~", true},
      {R"~({{ [1, 2] | tojson(indent=0) }}{{ [1] | tojson(indent='--') }})~", R"~([
1,
2
][
--1
])~"},
  });
}

TEST(JinjaLanguage, SequenceFilters) {
  check({
      {R"~({{ lst | reverse | list }}{{ 'héé' | reverse }}{{ dct | reverse | list }}{{ lst | min }}{{ lst | max }}{{ [] | max }}|{{ strs | min }}{{ strs | max }}{{ strs | max(case_sensitive=true) }}{{ lst | sum }}{{ [{'n': 1}, {'n': 2}] | sum(attribute='n', start=10) }}{{ [[1], [2]] | sum(start=[]) }}{{ [{'n': 2}, {'n': 1}] | min(attribute='n') }})~",
       R"~([2, 1, 3]ééh['A', 'b']13|Abb613[1, 2]{'n': 1})~"},
      {R"~({{ 'a-b-c'.rsplit('-', 1) }}{{ 'a b'.rsplit() }}{{ 'a-b-c'.rsplit('-') }}{{ 'a-b-c'.rsplit('-', 5) }}{{ 'k=v=w'.partition('=') }}{{ 'x'.partition('=') }}{{ 'a\nb\r\nc\n'.splitlines() }}{{ ''.splitlines() }})~",
       R"~(['a-b', 'c']['a', 'b']['a', 'b', 'c']['a', 'b', 'c']('k', '=', 'v=w')('x', '', '')['a', 'b', 'c'][])~"},
      {R"~({{ 'héé'.find('é') }}{{ 'a'.find('z') }}{{ 'ab'.find('') }}{{ 'banana'.count('an') }}{{ 'ab'.count('') }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removeprefix('b') }}{{ 'abc'.removesuffix('bc') }}{{ 'abc'.removesuffix('') }})~",
       R"~(1-1023bcabcaabc)~"},
      {R"~({{ [1, 'a'] | max }})~", R"~('>' not supported between instances of 'str' and 'int')~", true},
      {R"~({{ ['a'] | sum }})~", R"~(unsupported operand type(s) for +: 'int' and 'str')~", true},
      {R"~({{ 'a'.partition('') }})~", R"~(empty separator)~", true},
      {R"~({{ lst | sort }}{{ lst | sort(reverse=true) }}{{ strs | sort }}{{ strs | sort(case_sensitive=true) }}{{ messages | sort(attribute='role') | map(attribute='role') | join(',') }})~",
       R"~([1, 2, 3][3, 2, 1]['A', 'a', 'b']['A', 'a', 'b']assistant,user)~"},
      {R"~({{ lst | first }}{{ lst | last }}{{ [] | first }}|{{ strs | join('-') }}{{ lst | join }}{{ strs | unique | list }})~",
       R"~(32|b-A-a312['b', 'A'])~"},
      {R"~({{ messages | map(attribute='role') | list }}{{ strs | map('upper') | list }}{{ messages | map(attribute='content.0') | list }})~",
       R"~(['user', 'assistant']['B', 'A', 'A']['h', 'O'])~"},
      {R"~({{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('n') | list | length }}{{ messages | selectattr('n', 'defined') | map(attribute='n') | list }}{{ lst | select('odd') | list }}{{ lst | reject('gt', 1) | list }})~",
       R"~(11[3][3, 1][1])~"},
      {R"~({{ dct | dictsort }}{{ dct | dictsort(true) }}{{ dct | dictsort(by='value', reverse=true) }}{{ dct | items | list }}{{ dct | list }})~",
       R"~([('A', 2), ('b', 1)][('A', 2), ('b', 1)][('A', 2), ('b', 1)][('b', 1), ('A', 2)]['b', 'A'])~"},
      {R"~({{ 'abc' | list }}{{ dct | length }}{{ 'héé' | count }})~", R"~(['a', 'b', 'c']23)~"},
      {R"~({{ lst | map('nope') | list }})~", R"~(No filter named 'nope'.)~", true},
      {R"~({{ [1, 'a'] | sort }})~", R"~('<' not supported between instances of 'str' and 'int')~", true},
      {R"~({{ messages | map(attribute='role') | length }})~", R"~(object of type 'generator' has no len())~", true},
      {R"~({% set g = strs | map('upper') %}{{ g | list }}{{ g | list }}{{ 'truthy' if [] | map('upper') }})~",
       R"~(['B', 'A', 'A'][]truthy)~"},
      {R"~({{ '' | default('x') }}|{{ '' | default('x', true) }}|{{ none | d('y', boolean=true) }})~", R"~(|x|y)~"},
      {R"~({{ messages[0] | attr('role') }}|{{ txt | attr('upper') is callable }})~", R"~(|True)~"},
  });
}

TEST(JinjaLanguage, NumberFilters) {
  check({
      {R"~({{ '42' | int }}{{ '3.9' | int }}{{ 'x' | int }}{{ 'x' | int(-1) }}{{ 3.9 | int }}{{ true | int }}{{ none | int }})~",
       R"~(4230-1310)~"},
      {R"~({{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 3 | round }})~",
       R"~(2.6 2.0 4.0 2.67 3)~"},
      {R"~({{ -3 | abs }}{{ -2.5 | abs }})~", R"~(32.5)~"},
      {R"~({{ '99999999999999999999' | int }})~", R"~(the number '99999999999999999999' is too large)~", true},
  });
}

TEST(JinjaLanguage, Tests) {
  check({
      {R"~({{ 1 is number }}{{ true is number }}{{ 1 is integer }}{{ true is integer }}{{ 1.0 is float }}{{ 'a' is string }}{{ none is none }}{{ dct is mapping }}{{ lst is sequence }}{{ dct is sequence }}{{ 'a' is iterable }}{{ 1 is iterable }})~",
       R"~(TrueTrueTrueFalseTrueTrueTrueTrueTrueTrueTrueFalse)~"},
      {R"~({{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 2 is gt 1 }}{{ 1 is in [1] }}{{ true is sameas true }}{{ 1 is not none }}{{ range is callable }})~",
       R"~(TrueTrueTrueTrueTrueTrueTrueTrueTrueTrue)~"},
      {R"~({{ x is defined and x or 'no' }}{{ 'a' if num is defined else 'b' }})~", R"~(noa)~"},
      {R"~({{ 1 is nope }})~", R"~(line 1: No test named 'nope'.)~", true},
      {R"~({% if false %}{{ 1 is nope }}{{ 1 | nope }}{% endif %}ok)~", R"~(ok)~"},
      {R"~({{ 1 | nope if false else 'ok' }})~", R"~(ok)~"},
      {R"~({% if true %}{{ 1 | nope }}{% endif %})~", R"~(No filter named 'nope' found.)~", true},
  });
}

TEST(JinjaLanguage, TextMethods) {
  check({
      {"{{ ' a b '.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a b c'.split(' ', 1) }}{{ "
       "''.split() }}{{ ''.split(',') }}",
       R"~(['a', 'b']['a', 'b', '', 'c']['a', 'b c'][][''])~"},
      {R"~({{ 'abc'.startswith('a') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith(('x', 'y')) }})~",
       R"~(TrueTrueFalse)~"},
      {R"~({{ 'xxaxx'.strip('x') }}{{ '
 a'.lstrip('
') }}{{ 'a

'.rstrip() }})~",
       R"~(a aa)~"},
      {R"~({{ "they're bill's".title() }}{{ 'hELLO'.capitalize() }})~", R"~(They'Re Bill'SHello)~"},
      {R"~({{ '-'.join(['a', 'b']) }}{{ ''.join([]) }})~", R"~(a-b)~"},
      {R"~({{ '{} {1}'.format(1, 2) if false }}{{ '{} {}'.format(1, 'b') }}{{ '{a}{b:s}|{c:d}'.format(a=[1.5], b='x', c=7) }}{{ '{{}}'.format() }})~",
       R"~(1 b[1.5]x|7{})~"},
      {R"~({{ 'a'.join([1]) }})~", R"~(sequence item 0: expected str instance, int found)~", true},
      {R"~({{ 'a'.nope() }})~", R"~('str object' has no attribute 'nope')~", true},
      {R"~({{ 'a'.split('') }})~", R"~(empty separator)~", true},
  });
}

TEST(JinjaLanguage, ContainerMethods) {
  check({
      {R"~({{ dct.get('b') }}{{ dct.get('z') }}{{ dct.get('z', 5) }}{{ dct.items() }}{{ dct.keys() }}{{ dct.values() | list }}{{ dct.items() | list }}{{ 'b' in dct.keys() }})~",
       R"~(1None5dict_items([('b', 1), ('A', 2)])dict_keys(['b', 'A'])[1, 2][('b', 1), ('A', 2)]True)~"},
      {R"~({{ dct.items()[0] }}|{{ dct.keys() | length }})~", R"~(|2)~"},
  });
}

TEST(JinjaLanguage, Globals) {
  check({
      {R"~({{ range(3) | list }}{{ range(1, 7, 2) | list }}{{ range(3, 0, -1) | list }}{{ range(3)[1] }}{{ range(5) | length }}{{ range(2) }})~",
       R"~([0, 1, 2][1, 3, 5][3, 2, 1]15range(0, 2))~"},
      {R"~({{ range(1000000) }})~", R"~(Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).)~", true},
      {R"~({{ raise_exception('Boom: ' ~ num) }})~", R"~(Boom: 7)~", true},
      {R"~({{ strftime_now('%d %b %Y %H:%M') }})~", R"~(26 Jul 2025 00:00)~"},
      {R"~({{ namespace(a=1, b=2).b }}{{ namespace(a=1) }})~", R"~(2<Namespace {'a': 1}>)~"},
  });
}

TEST(JinjaLanguage, Syntax) {
  check({
      {R"~({% if %})~", R"~(line 1: expected an expression, got 'end of statement block')~", true},
      {R"~({% for x lst %}{% endfor %})~", R"~(line 1: expected 'in', got 'lst')~", true},
      {R"~({{ 1 + }})~", R"~(line 1: unexpected 'end of print statement')~", true},
      {R"~({{ (1 }})~", R"~(line 1: unexpected '}', expected ')')~", true},
      {R"~({% endif %})~", R"~(line 1: Encountered unknown tag 'endif'.)~", true},
      {R"~({% if true %})~", R"~(line 1: Unexpected end of template. Looking for 'elif' or 'else' or 'endif'.)~", true},
      {R"~({{ 'abc }})~", R"~(line 1: a string that begins with ' has no end)~", true},
      {R"~({% unknown %})~", R"~(line 1: Encountered unknown tag 'unknown'.)~", true},
      {R"~({% set 1 = 2 %})~", R"~(line 1: can't assign to an expression or constant)~", true},
      {R"~({{ a b }})~", R"~(line 1: expected end of print statement, got 'b')~", true},
      {R"~({{ 1 is odd is even }})~", R"~(line 1: You cannot chain multiple tests with is)~", true},
      {R"~({# open)~", R"~(line 1: missing end of comment tag)~", true},
      {R"~({% raw %}x)~", R"~(line 1: missing end of raw directive)~", true},
      {R"~({{ x.  }})~", R"~(line 1: expected a name or number after '.')~", true},
      {R"~({{ f(a=1, 2) }})~", R"~(line 1: invalid syntax for function call expression)~", true},
      {R"~({% macro m(a=1, b) %}{% endmacro %})~", R"~(line 1: non-default argument follows default argument)~", true},
      {R"~({% include 'x' %})~", R"~(line 1: chat templates stand alone: the tag 'include' is not supported)~", true},
      {R"~({% do x %})~", R"~(line 1: Encountered unknown tag 'do'.)~", true},
  });
}

// What no chat template needs is refused by name where it stands, never rendered differently from Jinja.
TEST(JinjaLanguage, WhatIsNotSupportedIsRefusedByName) {
  const auto refusal = [](const std::string& source) -> std::string {
    const auto parsed = Template::parse(source, RenderLimits());
    const Status status = parsed.ok() ? parsed->render(variables(), 1753488000, nullptr).status() : parsed.status();
    EXPECT_EQ(status.code(), Code::kUnsupported) << source;
    EXPECT_EQ(status.message().substr(0, 8), "line 1: ") << source;
    return std::string(status.message());
  };
  const auto names = [&](const std::string& source, const std::string& name) {
    EXPECT_NE(refusal(source).find(name), std::string::npos) << source << ": " << refusal(source);
  };
  for (const char* filter :
       {"batch(2)", "center(5)", "filesizeformat", "float", "forceescape", "groupby('role')", "pprint", "random", "slice(3)",
        "striptags", "truncate(9)", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"}) {
    const std::string name = std::string(filter).substr(0, std::string_view(filter).find('('));
    names(std::string("{{ lst | ") + filter + " }}", "the filter '" + name + "' is not supported");
    names("{{ [lst] | map('" + name + "') | list }}", "the filter '" + name + "' is not supported");
  }
  for (const char* test : {"escaped", "filter", "lower", "test", "upper"})
    names(std::string("{{ txt is ") + test + " }}", std::string("the test '") + test + "' is not supported");
  for (const char* method : {"casefold", "center", "expandtabs", "isalnum", "isdigit", "isupper", "ljust", "index", "rfind",
                             "rindex", "rpartition", "swapcase", "zfill"}) {
    names(std::string("{{ txt.") + method + "(1) }}", std::string("the method '") + method + "' of str is not supported");
    names(std::string("{{ txt['") + method + "'] is defined }}", method);
  }
  names("{{ dct.fromkeys([]) }}", "'fromkeys' of dict");
  names("{{ dct.copy() }}", "'copy' of dict");
  names("{{ lst.copy() }}", "'copy' of list");
  names("{{ lst.index(1) }}", "'index' of list");
  names("{{ (1, 2).count(1) }}", "'count' of tuple");
  names("{{ num.bit_length() }}", "'bit_length' of int");
  names("{{ 1.5.is_integer() }}", "'is_integer' of float");
  names("{{ dict(a=1) }}", "dict");
  names("{{ namespace(dct) }}", "namespace() of a dict");
  names("{{ cycler('a') }}", "cycler");
  names("{{ joiner() }}", "joiner");
  names("{{ lipsum() }}", "lipsum");
  names("{{ self.title() }}", "'self'");
  names("{% call m() %}{% endcall %}", "the tag 'call' is not supported");
  names("{% with a = 1 %}{% endwith %}", "the tag 'with' is not supported");
  names("{% print 1 %}", "the tag 'print' is not supported");
  names("{% for x in lst recursive %}{% endfor %}", "recursive loops");
  names("{% for x in lst %}{{ loop.changed(x) }}{% endfor %}", "loop.changed");
  names("{% macro m() %}{{ varargs }}{% endmacro %}", "'varargs' in a macro");
  names("{% macro m() %}{{ kwargs }}{% endmacro %}", "'kwargs' in a macro");
  names("{% macro m() %}{{ caller() }}{% endmacro %}", "'caller' in a macro");
  names("{% macro m(caller=1) %}{% endmacro %}", "'caller'");
  names("{% macro m() %}{% endmacro %}{{ m.name }}", "the attribute 'name' of a macro");
  names("{{ m(**dct) }}", "'**' before an argument");
  names("{{ m(*lst, 1) }}", "'*' before other than the last argument");
  names("{{ m(a=1, *lst) }}", "'*' before other than the last argument");
  names("{{ lst[1, 2] }}", "an index of several parts");
  names("{{ range(3)[1:] }}", "a slice of a range");
  names("{{ '%05.1f' % 3.14159 }}", "printf-style formatting");
  names("{{ '%(a)s' % dct }}", "printf-style formatting");
  names("{{ '%s' | format(a=1) }}", "format() with named values");
  names("{{ '{:>5}'.format('x') }}", "the field '{:>5}' of str.format");
  names("{{ '{1}{0}'.format(1, 2) }}", "the field '{1}' of str.format");
  names("{{ '{a.b}'.format(a=1) }}", "the field '{a.b}' of str.format");
  names("{{ '{:d}'.format('x') }}", "the field '{:d}' of str.format");
  names("{{ 7.5 // 2 }}", "// is not supported for floats");
  names("{{ -7.5 % 2 }}", "% is not supported for floats");
  names("{{ 2.0 ** 2 }}", "is not supported for floats");
  names("{{ 2 ** -1 }}", "negative exponent");
  names("{{ '0x1A' | int(0, 16) }}", "int() with a base");
  names("{{ '1_000' | int }}", "'_' in a text");
  names("{{ 15 | round(-1) }}", "round()");
  names("{{ 1.5 | round(0, 'ceil') }}", "round()");
  names("{{ messages | map(attribute='n', default='?') | list }}", "map()");
  names("{{ dct | tojson(sort_keys=true) }}", "separators or sort_keys");
  names("{{ dct | tojson(separators=(',', ':')) }}", "separators or sort_keys");
  names("{{ +num }}", "the unary '+'");
  names("{{ messages | sort(attribute='role,n') }}", "several attributes");
  names("{{ 'abc'.startswith('b', 1) }}", "startswith() with a start or end");
  for (const char* number : {"0x1F", "0o17", "0b11", "1_000", "007"})
    names(std::string("{{ ") + number + " }}", "decimal digits");
  names(R"({{ '\101' }})", "the escapes");
  names(R"({{ '\N{BULLET}' }})", "the escapes");
  names("{% raw +%}{% endraw %}", "after raw");
}

}  // namespace
}  // namespace choral::text::jinja
