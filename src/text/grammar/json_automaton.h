// A JSON object or value, byte by byte: a pushdown automaton whose stack is one bit a level, so that its state is 16 bytes and a
// copy costs nothing. It takes RFC 8259 with what keeps an answer finite and readable for every parser: bounded depth, white
// space and digits, UTF-8 without overlong forms, surrogates only in pairs. Nothing follows the value. Who calls: token masks
// (automaton_matcher.h) and the parser of tool calls. Thread-safety: pure functions on a caller's state.
#pragma once

#include <cstdint>

namespace choral::text {

enum class JsonPhase : uint8_t {
  kStart,        // where only an object may begin
  kObjectFirst,  // behind {
  kObjectKey,    // behind , of an object
  kColon,        // behind a key
  kValue,        // behind : or , of an array
  kArrayFirst,   // behind [
  kAfter,        // behind a value
  kString,
  kUtf8,    // inside a character
  kEscape,  // behind a backslash
  kHex,
  kLowBackslash,  // behind a high surrogate
  kLowU,
  kLowHex,
  kMinus,
  kZero,
  kInteger,
  kPoint,
  kFraction,
  kExponentMark,
  kExponentSign,
  kExponent,
  kLiteral,
  kDone,
};

struct JsonLimits {
  int max_depth = 64;                // at most 64
  uint16_t max_white_space = 64;     // bytes in a row
  uint16_t max_digits = 24;          // before the point, and behind it
  uint16_t max_exponent_digits = 2;  // so that no number is out of a double's range
};

struct JsonState {
  uint64_t objects = 0;  // bit d-1: what is open at depth d is an object, else an array
  JsonPhase phase = JsonPhase::kStart;
  uint8_t depth = 0;
  uint8_t detail = 0;  // what the phase needs beside `count`
  bool in_key = false;
  uint16_t count = 0;  // of white space, digits, hex digits, bytes of a character or a literal

  bool operator==(const JsonState&) const = default;
  bool top_is_object() const { return objects >> (depth - 1) & 1; }  // depth > 0
};

class JsonAutomaton {
 public:
  using State = JsonState;
  explicit JsonAutomaton(JsonLimits limits = {}) : limits_(limits) {}

  static State start_of_object() { return {}; }
  static State start_of_value();  // anything, objects included

  bool step(State& state, uint8_t byte) const;  // false: no JSON goes on so; the state is then of no use
  static bool complete(const State& state);

 private:
  bool white_space(State& state) const;
  bool begin_value(State& state, uint8_t byte) const;
  bool after_value(State& state, uint8_t byte) const;
  bool open(State& state, bool object) const;
  bool digit(State& state, uint16_t limit) const;
  bool number(State& state, uint8_t byte) const;

  JsonLimits limits_;
};

}  // namespace choral::text
