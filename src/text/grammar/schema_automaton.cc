#include "text/grammar/schema_automaton.h"

#include <algorithm>

#include "base/ascii.h"

namespace choral::text {
namespace {

using Kind = SchemaNode::Kind;
using Phase = SchemaAutomaton::Phase;

// Of values that a schema says nothing of, so that with those around them no answer is deeper than any JSON object here.
constexpr int kFreeDepth = 48;

// What is over the largest number counts as the largest: bounds are below it, or there is none.
int64_t with_digit(int64_t magnitude, int digit) {
  return magnitude > (SchemaNode::kUnbounded - digit) / 10 ? SchemaNode::kUnbounded : 10 * magnitude + digit;
}

// Whether some digits behind these, or none, give a number from `least` to `most`.
bool may_become(bool negative, int64_t magnitude, int digits, int64_t least, int64_t most) {
  int64_t low = magnitude, high = magnitude;
  for (; digits <= SchemaAutomaton::kMostDigits; ++digits) {
    if (negative ? -high <= most && -low >= least : low <= most && high >= least) return true;
    if (magnitude == 0) return false;  // nothing follows a zero
    low = with_digit(low, 0);
    high = with_digit(high, 9);
  }
  return false;
}

}  // namespace

SchemaAutomaton::SchemaAutomaton(std::vector<SchemaNode> nodes, uint32_t root, std::shared_ptr<const JsonTokens> tokens)
    : nodes_(std::move(nodes)), root_(root), tokens_(std::move(tokens)), json_({.max_depth = kFreeDepth}) {
  size_bytes_ = sizeof(*this) + nodes_.size() * sizeof(SchemaNode);
  for (const SchemaNode& node : nodes_) {
    size_bytes_ +=
        node.properties.size() * sizeof(SchemaNode::Property) + (node.places.size() + node.nodes.size()) * sizeof(uint32_t);
    for (const std::string& text : node.texts) size_bytes_ += sizeof(text) + text.capacity();
  }
}

SchemaAutomaton::State SchemaAutomaton::start() const {
  State state;
  state.node = root_;
  return state;
}

bool SchemaAutomaton::complete(const State& state) const {
  if (state.phase == Phase::kDone) return true;
  if (state.depth > 0) return false;
  // Only the end tells that these are over.
  if (state.phase == Phase::kInInteger) return may_end_integer(state);
  if (state.phase == Phase::kInText) return node_of(state).texts[state.first].size() == state.written;
  return state.phase == Phase::kInJson && JsonAutomaton::complete(state.json);
}

KnownMask SchemaAutomaton::known(const State& state) const {
  if (state.json.phase != JsonPhase::kString) return {{}, *tokens_->all};
  if (state.phase == Phase::kInJson) return tokens_->in_string();
  if (state.phase == Phase::kInString) return tokens_->in_string(node_of(state).most - state.number);
  return {{}, *tokens_->all};
}

bool SchemaAutomaton::white_space(State& state) const { return state.count < kMostWhiteSpace && ++state.count > 0; }

bool SchemaAutomaton::open(State& state, Phase phase) const {
  state.open[state.depth++] = {state.node, 0};
  state.phase = phase;
  state.count = 0;
  return true;
}

void SchemaAutomaton::end_value(State& state) const {
  state.phase = state.depth > 0 ? Phase::kAfter : Phase::kDone;
  state.count = 0;
  state.json = {};
}

bool SchemaAutomaton::close(State& state) const {
  --state.depth;
  end_value(state);
  return true;
}

bool SchemaAutomaton::begin(State& state, uint8_t byte) const {
  if (node_of(state).kind == Kind::kEither) {
    const auto& nodes = node_of(state).nodes;
    const auto fits = std::find_if(nodes.begin(), nodes.end(), [&](uint32_t each) { return nodes_[each].first[byte]; });
    if (fits == nodes.end()) return false;
    state.node = *fits;  // its choices are its parent's: no further one
  }
  const SchemaNode& node = node_of(state);
  if (!node.first[byte]) return false;
  state.count = 0;
  state.number = 0;
  switch (node.kind) {
    case Kind::kObject: return open(state, Phase::kFirstKey);
    case Kind::kArray: return open(state, Phase::kFirstItem);
    case Kind::kString:
      state.phase = Phase::kInString;
      state.json = {};
      state.json.phase = JsonPhase::kString;
      return true;
    case Kind::kInteger:
      state.phase = Phase::kInInteger;
      state.negative = byte == '-';
      return state.negative || digit(state, byte);
    case Kind::kOneOf:
      state.phase = Phase::kInText;
      state.first = state.written = 0;
      state.last = static_cast<uint32_t>(node.texts.size());
      return narrow(state, byte);
    default:
      state.phase = Phase::kInJson;
      state.json = JsonAutomaton::start_of_value();
      return json_.step(state.json, byte);
  }
}

bool SchemaAutomaton::in_string(State& state, uint8_t byte) const {
  const SchemaNode& node = node_of(state);
  const bool between = state.json.phase == JsonPhase::kString;
  if (between && byte == '"') {
    if (state.number < node.least) return false;
    end_value(state);
    return true;
  }
  if (between && state.number >= node.most) return false;
  if (!json_.step(state.json, byte)) return false;
  if (state.json.phase == JsonPhase::kString) ++state.number;  // a character is whole
  return true;
}

bool SchemaAutomaton::digit(State& state, uint8_t byte) const {
  const SchemaNode& node = node_of(state);
  if (!is_digit(byte) || state.count >= kMostDigits || (state.count > 0 && state.number == 0)) return false;
  if (state.negative && state.count == 0 && byte == '0') return false;
  ++state.count;
  state.number = with_digit(state.number, byte - '0');
  return may_become(state.negative, state.number, state.count, node.least, node.most);
}

bool SchemaAutomaton::may_end_integer(const State& state) const {
  const int64_t value = state.negative ? -state.number : state.number;
  return state.count > 0 && value >= node_of(state).least && value <= node_of(state).most;
}

// Of the texts that fit so far those that have this byte next.
bool SchemaAutomaton::narrow(State& state, uint8_t byte) const {
  const SchemaNode& node = state.phase == Phase::kInText ? node_of(state) : top(state);
  const auto begin = node.texts.begin() + state.first, end = node.texts.begin() + state.last;
  const auto next = [written = state.written](const std::string& text) {  // -1: it ends here
    return written < text.size() ? static_cast<int>(static_cast<uint8_t>(text[written])) : -1;
  };
  const auto from = std::partition_point(begin, end, [&](const std::string& text) { return next(text) < byte; });
  const auto to = std::partition_point(from, end, [&](const std::string& text) { return next(text) == byte; });
  state.first = static_cast<uint32_t>(from - node.texts.begin());
  state.last = static_cast<uint32_t>(to - node.texts.begin());
  ++state.written;
  return from != to;
}

bool SchemaAutomaton::in_key(State& state, uint8_t byte) const {
  if (!narrow(state, byte)) return false;
  const SchemaNode& object = top(state);
  Open& open = state.open[state.depth - 1];
  const uint32_t required = open.count < object.properties.size() ? object.properties[open.count].required_from : 0;
  const auto may_come = [&](uint32_t place) { return place >= open.count && place <= required; };
  const auto from = object.places.begin() + state.first, to = object.places.begin() + state.last;
  if (std::none_of(from, to, may_come)) return false;
  if (object.texts[state.first].size() != state.written) return true;
  // Its closing quote: no other name goes on from there.
  state.node = object.properties[*from].value;
  open.count = *from + 1;
  state.phase = Phase::kColon;
  state.count = 0;
  return true;
}

bool SchemaAutomaton::may_close(const Open& object) const {
  const auto& properties = nodes_[object.node].properties;
  return object.count == properties.size() || properties[object.count].required_from == properties.size();
}

bool SchemaAutomaton::after(State& state, uint8_t byte) const {
  const SchemaNode& outer = top(state);
  Open& open = state.open[state.depth - 1];
  state.count = 0;
  if (outer.kind == Kind::kObject) {
    if (byte == '}') return may_close(open) && close(state);
    state.phase = Phase::kKey;
    return byte == ',' && open.count < outer.properties.size();
  }
  if (byte == ']') return open.count >= outer.least && close(state);
  if (byte != ',' || open.count >= outer.most) return false;
  ++open.count;
  state.node = outer.nodes.front();
  state.phase = Phase::kValue;
  return true;
}

bool SchemaAutomaton::step(State& state, uint8_t byte) const {
  switch (state.phase) {
    case Phase::kInString: return in_string(state, byte);
    case Phase::kInKey: return in_key(state, byte);
    case Phase::kInInteger:
      if (is_digit(byte)) return digit(state, byte);
      if (!may_end_integer(state)) return false;
      end_value(state);
      break;
    case Phase::kInText: {
      const auto is_whole = [&] { return node_of(state).texts[state.first].size() == state.written; };
      const bool was_whole = is_whole();  // the shortest of those that fit stands first
      if (narrow(state, byte)) {
        if (state.last - state.first == 1 && is_whole()) end_value(state);
        return true;
      }
      if (!was_whole) return false;
      end_value(state);
      break;
    }
    case Phase::kInJson: {
      const JsonState before = state.json;
      if (json_.step(state.json, byte)) {
        if (state.json.phase == JsonPhase::kDone) end_value(state);
        return true;
      }
      if (!JsonAutomaton::complete(before)) return false;
      end_value(state);
      break;
    }
    default: break;
  }
  // Between values, or behind one that the byte has ended.
  if (state.phase == Phase::kDone) return false;
  if (is_blank(byte)) return (state.depth > 0) && white_space(state);
  switch (state.phase) {
    case Phase::kFirstKey:
      if (byte == '}') return may_close(state.open[state.depth - 1]) && close(state);
      [[fallthrough]];
    case Phase::kKey:
      state.phase = Phase::kInKey;
      state.first = state.written = 0;
      state.last = static_cast<uint32_t>(top(state).texts.size());
      return byte == '"';
    case Phase::kColon:
      state.phase = Phase::kValue;
      state.count = 0;
      return byte == ':';
    case Phase::kFirstItem:
      if (byte == ']') return top(state).least == 0 && close(state);
      if (top(state).most == 0) return false;
      state.open[state.depth - 1].count = 1;
      state.node = top(state).nodes.front();
      [[fallthrough]];
    case Phase::kValue: return begin(state, byte);
    default: return after(state, byte);
  }
}

}  // namespace choral::text
