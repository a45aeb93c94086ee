#include "text/grammar/json_automaton.h"

#include <array>
#include <string_view>

#include "base/ascii.h"

namespace choral::text {
namespace {

constexpr std::array<std::string_view, 3> kLiterals = {"true", "false", "null"};

// JsonState::detail in kUtf8: which bytes may be the second one, so that no overlong form, surrogate or code over U+10FFFF fits.
enum Second : uint8_t { kAny, kFromA0, kTo9F, kFrom90, kTo8F };
// In kHex: what the digits so far may become.
enum Surrogate : uint8_t { kNoSurrogate, kPerhaps, kHigh };

bool go(JsonState& s, JsonPhase phase, uint16_t count = 0, uint8_t detail = 0) {
  s.phase = phase;
  s.count = count;
  s.detail = detail;
  return true;
}

bool fits_second(uint8_t second, uint8_t b) {
  switch (second) {
    case kFromA0: return b >= 0xA0;
    case kTo9F: return b <= 0x9F;
    case kFrom90: return b >= 0x90;
    case kTo8F: return b <= 0x8F;
    default: return true;
  }
}

// Behind a value's last byte.
bool end_value(JsonState& s) { return go(s, s.depth > 0 ? JsonPhase::kAfter : JsonPhase::kDone); }

bool in_string(JsonState& s, uint8_t b) {
  if (b == '"') {
    if (!s.in_key) return end_value(s);
    s.in_key = false;
    return go(s, JsonPhase::kColon);
  }
  if (b == '\\') return go(s, JsonPhase::kEscape);
  if (b < 0x20) return false;
  if (b < 0x80) return true;
  if (b >= 0xC2 && b <= 0xDF) return go(s, JsonPhase::kUtf8, 1);
  if (b >= 0xE0 && b <= 0xEF) return go(s, JsonPhase::kUtf8, 2, b == 0xE0 ? kFromA0 : b == 0xED ? kTo9F : kAny);
  if (b >= 0xF0 && b <= 0xF4) return go(s, JsonPhase::kUtf8, 3, b == 0xF0 ? kFrom90 : b == 0xF4 ? kTo8F : kAny);
  return false;
}

bool in_character(JsonState& s, uint8_t b) {
  if ((b & 0xC0) != 0x80 || !fits_second(s.detail, b)) return false;
  return s.count == 1 ? go(s, JsonPhase::kString) : go(s, JsonPhase::kUtf8, s.count - 1);
}

bool escaped(JsonState& s, uint8_t b) {
  if (b == 'u') return go(s, JsonPhase::kHex);
  return std::string_view("\"\\/bfnrt").find(static_cast<char>(b)) != std::string_view::npos && go(s, JsonPhase::kString);
}

bool hex(JsonState& s, uint8_t b) {
  if (hex_digit(static_cast<char>(b)) < 0) return false;
  const uint8_t letter = b | 0x20;
  if (s.count == 0) return go(s, JsonPhase::kHex, 1, letter == 'd' ? kPerhaps : kNoSurrogate);
  if (s.count == 1 && s.detail == kPerhaps) {
    if (letter >= 'c' && letter <= 'f') return false;  // a low one without a high one before it
    return go(s, JsonPhase::kHex, 2, b == '8' || b == '9' || letter == 'a' || letter == 'b' ? kHigh : kNoSurrogate);
  }
  if (s.count < 3) return go(s, JsonPhase::kHex, s.count + 1, s.detail);
  return go(s, s.detail == kHigh ? JsonPhase::kLowBackslash : JsonPhase::kString);
}

bool low_hex(JsonState& s, uint8_t b) {
  const uint8_t letter = b | 0x20;
  if (hex_digit(static_cast<char>(b)) < 0 || (s.count == 0 && letter != 'd') || (s.count == 1 && (letter < 'c' || letter > 'f')))
    return false;
  return s.count < 3 ? go(s, JsonPhase::kLowHex, s.count + 1) : go(s, JsonPhase::kString);
}

bool literal(JsonState& s, uint8_t b) {
  const std::string_view word = kLiterals[s.detail];
  if (static_cast<uint8_t>(word[s.count]) != b) return false;
  return s.count + 1u == word.size() ? end_value(s) : go(s, JsonPhase::kLiteral, s.count + 1, s.detail);
}

bool begin_key(JsonState& s, uint8_t b) {
  if (b != '"') return false;
  s.in_key = true;
  return go(s, JsonPhase::kString);
}

bool close(JsonState& s) {
  --s.depth;
  return end_value(s);
}

}  // namespace

JsonState JsonAutomaton::start_of_value() {
  JsonState state;
  state.phase = JsonPhase::kValue;
  return state;
}

bool JsonAutomaton::complete(const State& s) {
  switch (s.phase) {
    case JsonPhase::kDone: return true;
    case JsonPhase::kZero:
    case JsonPhase::kInteger:
    case JsonPhase::kFraction:
    case JsonPhase::kExponent: return s.depth == 0;  // only the end tells that a number is over
    default: return false;
  }
}

bool JsonAutomaton::white_space(State& s) const { return s.count < limits_.max_white_space && ++s.count > 0; }

bool JsonAutomaton::open(State& s, bool object) const {
  if (s.depth >= limits_.max_depth) return false;
  const uint64_t bit = uint64_t{1} << s.depth;
  s.objects = object ? s.objects | bit : s.objects & ~bit;
  ++s.depth;
  return go(s, object ? JsonPhase::kObjectFirst : JsonPhase::kArrayFirst);
}

bool JsonAutomaton::begin_value(State& s, uint8_t b) const {
  switch (b) {
    case '{': return open(s, true);
    case '[': return open(s, false);
    case '"': return go(s, JsonPhase::kString);
    case '-': return go(s, JsonPhase::kMinus);
    case '0': return go(s, JsonPhase::kZero);
    case 't': return go(s, JsonPhase::kLiteral, 1, 0);
    case 'f': return go(s, JsonPhase::kLiteral, 1, 1);
    case 'n': return go(s, JsonPhase::kLiteral, 1, 2);
    default: return is_digit(b) && go(s, JsonPhase::kInteger, 1);
  }
}

bool JsonAutomaton::after_value(State& s, uint8_t b) const {
  if (b == ',') return go(s, s.top_is_object() ? JsonPhase::kObjectKey : JsonPhase::kValue);
  return b == (s.top_is_object() ? '}' : ']') && close(s);
}

bool JsonAutomaton::digit(State& s, uint16_t limit) const { return s.count < limit && ++s.count > 0; }

bool JsonAutomaton::number(State& s, uint8_t b) const {
  const bool exponent = b == 'e' || b == 'E';
  switch (s.phase) {
    case JsonPhase::kMinus: return b == '0' ? go(s, JsonPhase::kZero) : is_digit(b) && go(s, JsonPhase::kInteger, 1);
    case JsonPhase::kInteger:
      if (is_digit(b)) return digit(s, limits_.max_digits);
      [[fallthrough]];
    case JsonPhase::kZero:
      if (b == '.') return go(s, JsonPhase::kPoint);
      if (exponent) return go(s, JsonPhase::kExponentMark);
      break;
    case JsonPhase::kPoint: return is_digit(b) && go(s, JsonPhase::kFraction, 1);
    case JsonPhase::kFraction:
      if (is_digit(b)) return digit(s, limits_.max_digits);
      if (exponent) return go(s, JsonPhase::kExponentMark);
      break;
    case JsonPhase::kExponentMark:
      if (b == '+' || b == '-') return go(s, JsonPhase::kExponentSign);
      [[fallthrough]];
    case JsonPhase::kExponentSign: return is_digit(b) && go(s, JsonPhase::kExponent, 1);
    default:  // kExponent
      if (is_digit(b)) return digit(s, limits_.max_exponent_digits);
  }
  if (s.depth == 0) return false;
  go(s, JsonPhase::kAfter);
  return is_blank(b) ? white_space(s) : after_value(s, b);
}

bool JsonAutomaton::step(State& s, uint8_t b) const {
  switch (s.phase) {
    case JsonPhase::kStart: return is_blank(b) ? white_space(s) : b == '{' && open(s, true);
    case JsonPhase::kObjectFirst: return is_blank(b) ? white_space(s) : b == '}' ? close(s) : begin_key(s, b);
    case JsonPhase::kObjectKey: return is_blank(b) ? white_space(s) : begin_key(s, b);
    case JsonPhase::kColon: return is_blank(b) ? white_space(s) : b == ':' && go(s, JsonPhase::kValue);
    case JsonPhase::kArrayFirst:
      if (b == ']') return close(s);
      [[fallthrough]];
    case JsonPhase::kValue: return is_blank(b) ? white_space(s) : begin_value(s, b);
    case JsonPhase::kAfter: return is_blank(b) ? white_space(s) : after_value(s, b);
    case JsonPhase::kString: return in_string(s, b);
    case JsonPhase::kUtf8: return in_character(s, b);
    case JsonPhase::kEscape: return escaped(s, b);
    case JsonPhase::kHex: return hex(s, b);
    case JsonPhase::kLowBackslash: return b == '\\' && go(s, JsonPhase::kLowU);
    case JsonPhase::kLowU: return b == 'u' && go(s, JsonPhase::kLowHex);
    case JsonPhase::kLowHex: return low_hex(s, b);
    case JsonPhase::kLiteral: return literal(s, b);
    case JsonPhase::kDone: return false;
    default: return number(s, b);
  }
}

}  // namespace choral::text
