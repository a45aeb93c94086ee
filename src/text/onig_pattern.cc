#include "text/onig_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "text/unicode_versions.h"

namespace choral::text {
namespace {

constexpr size_t kMaxPattern = 1 << 20;
constexpr int kMaxGroups = 200;

// What Oniguruma's newer Unicode adds to a property, as the inside of a class. `category` is a general category or "Han".
std::string newer(std::string_view category) {
  std::string out;
  const auto add = [&out](uint32_t first, uint32_t last) { out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", first, last); };
  if (category == "Han") {
    for (const CodePointRange& r : new_han()) add(r.first, r.last);
  }
  for (const NewCharacters& r : new_characters()) {
    if (category == std::string_view(r.category) || (category.size() == 1 && category[0] == r.category[0])) add(r.first, r.last);
  }
  return out;
}

// The insides of a class. Oniguruma's word characters include Latin-1's superscripts and fractions.
std::string alphabetic() {
  return "\\p{Alphabetic}\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}\\x{11081}" + newer("L") +
         newer("M");
}
std::string word() {
  return "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" + newer("L") + newer("M") + newer("Nd") +
         newer("Pc");
}

struct PropertyName {
  std::string_view onig;  // lower case, without space, '-' and '_'
  std::string_view pcre2;
};
// Everything else is the name of a script. PCRE2 reads a bare script name as "script extensions", Oniguruma as "script".
constexpr auto kProperties = std::to_array<PropertyName>({
    {"any", "Any"},
    {"l", "L"},
    {"letter", "L"},
    {"lu", "Lu"},
    {"uppercaseletter", "Lu"},
    {"ll", "Ll"},
    {"lowercaseletter", "Ll"},
    {"lt", "Lt"},
    {"titlecaseletter", "Lt"},
    {"lm", "Lm"},
    {"modifierletter", "Lm"},
    {"lo", "Lo"},
    {"otherletter", "Lo"},
    {"m", "M"},
    {"mark", "M"},
    {"mn", "Mn"},
    {"nonspacingmark", "Mn"},
    {"mc", "Mc"},
    {"spacingmark", "Mc"},
    {"me", "Me"},
    {"enclosingmark", "Me"},
    {"n", "N"},
    {"number", "N"},
    {"nd", "Nd"},
    {"decimalnumber", "Nd"},
    {"digit", "Nd"},
    {"nl", "Nl"},
    {"letternumber", "Nl"},
    {"no", "No"},
    {"othernumber", "No"},
    {"p", "P"},
    {"punctuation", "P"},
    {"pc", "Pc"},
    {"connectorpunctuation", "Pc"},
    {"pd", "Pd"},
    {"dashpunctuation", "Pd"},
    {"ps", "Ps"},
    {"openpunctuation", "Ps"},
    {"pe", "Pe"},
    {"closepunctuation", "Pe"},
    {"pi", "Pi"},
    {"initialpunctuation", "Pi"},
    {"pf", "Pf"},
    {"finalpunctuation", "Pf"},
    {"po", "Po"},
    {"otherpunctuation", "Po"},
    {"s", "S"},
    {"symbol", "S"},
    {"sm", "Sm"},
    {"mathsymbol", "Sm"},
    {"sc", "Sc"},
    {"currencysymbol", "Sc"},
    {"sk", "Sk"},
    {"modifiersymbol", "Sk"},
    {"so", "So"},
    {"othersymbol", "So"},
    {"z", "Z"},
    {"separator", "Z"},
    {"zs", "Zs"},
    {"spaceseparator", "Zs"},
    {"zl", "Zl"},
    {"lineseparator", "Zl"},
    {"zp", "Zp"},
    {"paragraphseparator", "Zp"},
    {"c", "C"},
    {"other", "C"},
    {"cc", "Cc"},
    {"cntrl", "Cc"},
    {"control", "Cc"},
    {"cf", "Cf"},
    {"format", "Cf"},
    {"cn", "Cn"},
    {"unassigned", "Cn"},
    {"co", "Co"},
    {"privateuse", "Co"},
    {"cs", "Cs"},
    {"alphabetic", "Alphabetic"},
    {"alpha", "Alphabetic"},
    {"uppercase", "Uppercase"},
    {"upper", "Uppercase"},
    {"lowercase", "Lowercase"},
    {"lower", "Lowercase"},
    {"whitespace", "White_Space"},
    {"space", "White_Space"},
    {"emoji", "Emoji"},
});

class Rewriter {
 public:
  explicit Rewriter(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    if (in_.size() > kMaxPattern) return too_large("a regex of {} bytes; the limit is {}", in_.size(), kMaxPattern);
    while (at_ < in_.size()) CHORAL_RETURN_IF_ERROR(step());
    if (!groups_.empty()) return refuse("a group is not closed");
    return std::move(out_);
  }

 private:
  Status refuse(std::string_view why) const {
    return unsupported("regex {:.200}: {} at byte {}; Choral runs regexes with PCRE2, where this would mean something else", in_,
                       why, at_);
  }
  bool next_is(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void atom() { atom_ = out_.size(); }  // what follows is one unit that a quantifier may repeat

  Status step() {
    const char c = in_[at_];
    switch (c) {
      case '\\': return atom(), escape(false);
      case '[': return atom(), char_class();
      case '(': return open_group();
      case ')':
        if (groups_.empty()) return refuse("')' without '('");
        atom_ = groups_.back();
        groups_.pop_back();
        out_ += c;
        ++at_;
        return {};
      case '{': return interval();
      case '^':
        // As PCRE2's own: at the beginning and behind a newline that something follows. But that something may lie behind a
        // window's end, where PCRE2's says no and this a partial match.
        atom();
        out_ += "(?:\\A|(?<=\\n)(?=(?s:.)))";
        ++at_;
        return {};
      case '?':
      case '*':
      case '+':
        out_ += c;
        ++at_;
        if (peek() == '?' || peek() == '+') out_ += in_[at_++];
        return {};
      default: break;
    }
    if (c != '|') atom();
    do out_ += in_[at_++];
    while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xC0) == 0x80);
    return {};
  }

  Status open_group() {
    if (static_cast<int>(groups_.size()) >= kMaxGroups) return refuse("groups are nested too deeply");
    const size_t start = out_.size();
    ++at_;
    if (peek() == '*') return refuse("'(*' is a PCRE2 verb");
    if (peek() != '?') {
      out_ += '(';
      groups_.push_back(start);
      return {};
    }
    for (const std::string_view plain : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
      if (!next_is(plain)) continue;
      out_ += '(';
      out_ += plain;
      at_ += plain.size();
      groups_.push_back(start);
      return {};
    }
    if (next_is("?#")) return refuse("a comment");
    // Options (?imx-imx) and (?imx-imx:…). Ruby's m is "the dot matches a newline", which is s elsewhere.
    size_t i = 1;
    std::string options;
    while (peek(i) == 'i' || peek(i) == 'm' || peek(i) == 'x' || peek(i) == '-') {
      if (peek(i) == 'x') return refuse("the option x");
      options += peek(i) == 'm' ? 's' : peek(i);
      ++i;
    }
    if (options.empty() || (peek(i) != ':' && peek(i) != ')')) return refuse("this kind of group");
    // (?i) up to the end of the group: in Ruby it also encloses the alternatives after it, as a group would.
    if (peek(i) == ')') return refuse("options without ':'");
    out_ += "(?" + options + ":";
    at_ += i + 1;
    groups_.push_back(start);
    return {};
  }

  // {n}, {n,}, {,m}, {n,m}; anything else is a literal brace in both.
  Status interval() {
    size_t i = 1;
    std::string low, high;
    while (std::isdigit(static_cast<unsigned char>(peek(i)))) low += peek(i++);
    const bool comma = peek(i) == ',';
    if (comma) ++i;
    while (comma && std::isdigit(static_cast<unsigned char>(peek(i)))) high += peek(i++);
    if (peek(i) != '}' || (low.empty() && high.empty())) {
      atom();
      out_ += "\\{";
      ++at_;
      return {};
    }
    if (low.size() > 5 || high.size() > 5) return refuse("a repeat count over 99999");
    at_ += i + 1;
    std::string repeat = "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
    // Ruby: {n,m}+ repeats the repetition (not "possessive"), and {n}? makes it optional (not "lazy").
    const bool again = peek() == '+' || peek() == '*' || (peek() == '?' && !comma);
    if (again) {
      out_.insert(atom_, "(?:");
      out_ += repeat + ")" + in_[at_++];
      if (peek() == '+' || peek() == '?') return refuse("three quantifiers in a row");
      return {};
    }
    out_ += repeat;
    if (peek() == '?') out_ += in_[at_++];
    return {};
  }

  // A property with what is newer in it. Inside a class a negated one can only be PCRE2's own.
  void put_property(std::string_view name, bool negated, bool in_class) {
    const std::string more = newer(name);
    const bool brackets = !in_class && !more.empty();
    if (brackets) out_ += negated ? "[^" : "[";
    out_ += negated && !brackets ? "\\P{" : "\\p{";
    if (name == "Han") out_ += "sc:";
    out_ += name;
    out_ += '}';
    if (!(in_class && negated)) out_ += more;
    if (brackets) out_ += ']';
  }

  Status property(bool negated, bool in_class) {
    // at_ is behind \p or \P
    std::string name;
    if (peek() != '{') return refuse("\\p without braces");
    ++at_;
    if (peek() == '^') negated = !negated, ++at_;
    while (at_ < in_.size() && peek() != '}') {
      const char c = in_[at_++];
      if (c == ' ' || c == '-' || c == '_') continue;
      if (!std::isalnum(static_cast<unsigned char>(c))) return refuse("this property name");
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (peek() != '}' || name.empty()) return refuse("\\p without a name");
    ++at_;
    const auto* known = std::find_if(kProperties.begin(), kProperties.end(), [&](const auto& p) { return p.onig == name; });
    if (known != kProperties.end() || name == "han") {
      put_property(name == "han" ? "Han" : known->pcre2, negated, in_class);
    } else {
      out_ += (negated ? "\\P{sc:" : "\\p{sc:") + name + "}";
    }
    return {};
  }

  Status escape(bool in_class) {
    ++at_;
    if (at_ >= in_.size()) return refuse("a lone backslash");
    const char c = in_[at_++];
    switch (c) {
      case 'p': return property(false, in_class);
      case 'P': return property(true, in_class);
      case 's': out_ += "\\p{White_Space}"; return {};
      case 'S': out_ += "\\P{White_Space}"; return {};
      case 'd': put_property("Nd", false, in_class); return {};
      case 'D': put_property("Nd", true, in_class); return {};
      case 'w': out_ += in_class ? word() : "[" + word() + "]"; return {};
      case 'W':
        if (in_class) return refuse("\\W inside a class");
        out_ += "[^" + word() + "]";
        return {};
      case 'h': out_ += in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]"; return {};
      case 'b':
      case 'B': {
        if (in_class) return refuse("\\b inside a class");
        const std::string one = "[" + word() + "]";
        out_ += c == 'b' ? "(?:(?<=" + one + ")(?!" + one + ")|(?<!" + one + ")(?=" + one + "))"
                         : "(?:(?<=" + one + ")(?=" + one + ")|(?<!" + one + ")(?!" + one + "))";
        return {};
      }
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e': out_ += {'\\', c}; return {};
      case 'v': out_ += "\\x0b"; return {};
      case 'A':
      case 'z':
      case 'Z':
        if (in_class) return refuse("an anchor inside a class");
        out_ += {'\\', c};
        return {};
      case 'x':
      case 'u': return code_point(c);
      default: break;
    }
    if (std::isalnum(static_cast<unsigned char>(c))) return refuse("this escape");
    if (static_cast<unsigned char>(c) >= 0x80) {
      out_ += c;  // a quoted non-ASCII character is itself; its other bytes follow as they are
      while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xC0) == 0x80) out_ += in_[at_++];
    } else {
      out_ += {'\\', c};
    }
    return {};
  }

  // \xHH (ASCII only: above, Oniguruma means bytes), \x{H…}, \uHHHH
  Status code_point(char kind) {
    std::string digits;
    const auto hex = [this] { return std::isxdigit(static_cast<unsigned char>(peek())) != 0; };
    if (kind == 'x' && peek() == '{') {
      ++at_;
      while (hex() && digits.size() <= 8) digits += in_[at_++];
      if (peek() != '}') return refuse("\\x{ without }");
      ++at_;
    } else {
      const size_t most = kind == 'u' ? 4 : 2;
      while (digits.size() < most && hex()) digits += in_[at_++];
      if (kind == 'u' && digits.size() != 4) return refuse("\\u without four digits");
      if (kind == 'x' && (digits.empty() || std::stoul(digits, nullptr, 16) > 0x7F)) return refuse("\\x of a single byte");
    }
    if (digits.empty() || digits.size() > 8) return refuse("this code point");
    out_ += "\\x{" + digits + "}";
    return {};
  }

  Status char_class() {
    out_ += '[';
    ++at_;
    if (peek() == '^') out_ += in_[at_++];
    bool first = true;
    for (; at_ < in_.size(); first = false) {
      const char c = in_[at_];
      if (c == ']') {
        if (first) return refuse("an empty class or a leading ']'");
        out_ += ']';
        ++at_;
        return {};
      }
      if (next_is("&&")) return refuse("'&&' (intersection) in a class");
      if (next_is("[:")) {
        CHORAL_RETURN_IF_ERROR(posix_class());
      } else if (c == '[') {
        return refuse("a class inside a class");
      } else if (c == '\\') {
        CHORAL_RETURN_IF_ERROR(escape(true));
      } else {
        out_ += c;
        ++at_;
      }
    }
    return refuse("a class is not closed");
  }

  Status posix_class() {
    const size_t end = in_.find(":]", at_);
    if (end == std::string_view::npos) return refuse("'[:' without ':]'");
    std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    const bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    if (negated) return refuse("a negated POSIX class");
    if (name == "alpha") {
      out_ += alphabetic();
    } else if (name == "digit") {
      put_property("Nd", false, true);
    } else if (name == "space") {
      out_ += "\\p{White_Space}";
    } else if (name == "upper") {
      out_ += "\\p{Uppercase}" + newer("Lu");
    } else if (name == "lower") {
      out_ += "\\p{Lowercase}" + newer("Ll");
    } else {
      return refuse("this POSIX class");
    }
    at_ = end + 2;
    return {};
  }

  std::string_view in_;
  std::string out_;
  size_t at_ = 0;
  size_t atom_ = 0;             // in out_: where the last unit begins
  std::vector<size_t> groups_;  // in out_: where each open group begins
};

}  // namespace

Result<std::string> pcre2_from_onig(std::string_view pattern) { return Rewriter(pattern).run(); }

}  // namespace choral::text
