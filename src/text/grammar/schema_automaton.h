// A JSON schema that is read from left to right without a second thought, as an automaton over bytes: objects whose properties
// come in the schema's order, optional ones or not, arrays, strings and integers with bounds, enums, and choices that the first
// byte tells apart. It compiles in one pass over the schema, and a mask costs what the vocabulary's tree costs, however wide the
// schema is. What else a schema may hold is the library's (plain_schema.h says which are read). Thread-safety: immutable.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/automaton_matcher.h"
#include "text/grammar/json_automaton.h"
#include "text/grammar/json_grammar.h"

namespace choral::text {

// What a value must be. A program is a list of these, which name each other by index and form no circle.
struct SchemaNode {
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();  // and its negative, of integers

  enum class Kind : uint8_t { kAny, kNumber, kInteger, kString, kOneOf, kObject, kArray, kEither };
  struct Property {
    uint32_t value = 0;          // a node
    uint32_t required_from = 0;  // the first one at or behind this that is required; the number of properties: none
  };

  Kind kind = Kind::kAny;
  int64_t least = 0, most = 0;          // of an integer's value, a string's characters, an array's items
  std::vector<std::string> texts = {};  // kOneOf: whole values; kObject: quoted names without the first quote; sorted
  std::vector<uint32_t> places = {};    // kObject: of which property the text is
  std::vector<Property> properties = {};
  std::vector<uint32_t> nodes = {};  // kArray: of the items; kEither: of which each begins with other bytes
  std::bitset<256> first = {};       // bytes that may begin it
};

class SchemaAutomaton {
 public:
  static constexpr size_t kMaxDepth = 16;
  static constexpr int kMostDigits = 24;  // of an integer
  static constexpr uint16_t kMostWhiteSpace = 64;

  enum class Phase : uint8_t {
    kValue,  // before one
    kFirstKey,
    kKey,
    kInKey,
    kColon,
    kFirstItem,
    kAfter,  // behind a value
    kInString,
    kInInteger,
    kInText,  // of kOneOf
    kInJson,
    kDone,
  };
  struct Open {
    uint32_t node = 0;
    uint32_t count = 0;  // items that were begun; properties that were passed
  };
  struct State {
    std::array<Open, kMaxDepth> open;
    uint8_t depth = 0;
    Phase phase = Phase::kValue;
    bool negative = false;                      // kInInteger
    uint16_t count = 0;                         // of white space in a row, or digits
    uint32_t node = 0;                          // of the value
    uint32_t first = 0, last = 0, written = 0;  // texts that fit so far
    int64_t number = 0;                         // kInInteger: what its digits say; kInString: its characters
    JsonState json;
  };

  SchemaAutomaton(std::vector<SchemaNode> nodes, uint32_t root, std::shared_ptr<const JsonTokens> tokens);

  State start() const;
  bool step(State& state, uint8_t byte) const;
  bool complete(const State& state) const;
  KnownMask known(const State& state) const;
  size_t size_bytes() const { return size_bytes_; }

 private:
  bool begin(State& state, uint8_t byte) const;
  bool open(State& state, Phase phase) const;
  void end_value(State& state) const;
  bool close(State& state) const;
  bool white_space(State& state) const;
  bool in_string(State& state, uint8_t byte) const;
  bool digit(State& state, uint8_t byte) const;
  bool may_end_integer(const State& state) const;
  bool narrow(State& state, uint8_t byte) const;
  bool in_key(State& state, uint8_t byte) const;
  bool after(State& state, uint8_t byte) const;
  bool may_close(const Open& object) const;
  const SchemaNode& node_of(const State& state) const { return nodes_[state.node]; }
  const SchemaNode& top(const State& state) const { return nodes_[state.open[state.depth - 1].node]; }

  std::vector<SchemaNode> nodes_;
  uint32_t root_;
  std::shared_ptr<const JsonTokens> tokens_;
  JsonAutomaton json_;
  size_t size_bytes_ = 0;
};

}  // namespace choral::text
