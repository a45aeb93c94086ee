#include "io/pickle_machine.h"

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace choral::io {
namespace {

using Kind = PickleValue::Kind;

// What a dictionary of tensors names. Everything else could be code.
constexpr std::array<std::string_view, 14> kKnownGlobals{"collections.OrderedDict",
                                                         "torch._utils._rebuild_tensor_v2",
                                                         "torch._utils._rebuild_parameter",
                                                         "torch.FloatStorage",
                                                         "torch.HalfStorage",
                                                         "torch.BFloat16Storage",
                                                         "torch.DoubleStorage",
                                                         "torch.LongStorage",
                                                         "torch.IntStorage",
                                                         "torch.ShortStorage",
                                                         "torch.CharStorage",
                                                         "torch.ByteStorage",
                                                         "torch.BoolStorage",
                                                         "torch.Size"};

PickleValue of(Kind kind) {
  PickleValue value;
  value.kind = kind;
  return value;
}

}  // namespace

Status PickleMachine::bad(std::string_view what) const {
  return corrupt("{}: pickle, byte {}: {}", reader_.file(), reader_.offset(), what);
}

Result<PickleRef> PickleMachine::make(PickleValue value) {
  held_ += 1 + value.items.size();
  if (held_ > limits_.max_values) return too_large("{}: its pickle has more than {} values", reader_.file(), limits_.max_values);
  values_.push_back(std::move(value));
  return static_cast<PickleRef>(values_.size() - 1);
}

Status PickleMachine::push(PickleValue value) {
  CHORAL_TRY(const PickleRef ref, make(std::move(value)));
  stack_.push_back(ref);
  return {};
}

Status PickleMachine::push_int(int64_t number) {
  PickleValue value = of(Kind::kInt);
  value.number = number;
  return push(std::move(value));
}

Status PickleMachine::push_text(uint64_t length) {
  CHORAL_TRY(const auto bytes, reader_.take(length, "a text"));
  PickleValue value = of(Kind::kText);
  value.text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return push(std::move(value));
}

Result<PickleRef> PickleMachine::pop() {
  if (stack_.empty()) return bad("nothing is on the stack");
  const PickleRef ref = stack_.back();
  if (values_[ref].kind == Kind::kMark) return bad("a mark stands where a value is needed");
  stack_.pop_back();
  return ref;
}

Result<std::vector<PickleRef>> PickleMachine::pop_to_mark() {
  const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), [&](PickleRef ref) { return values_[ref].kind == Kind::kMark; });
  if (mark == stack_.rend()) return bad("no mark is on the stack");
  std::vector<PickleRef> items(mark.base(), stack_.end());
  stack_.resize(stack_.size() - items.size() - 1);
  return items;
}

Status PickleMachine::push_tuple(size_t count) {
  PickleValue value = of(Kind::kTuple);
  value.items.resize(count);
  for (size_t i = count; i-- > 0;) {
    CHORAL_TRY(value.items[i], pop());
  }
  return push(std::move(value));
}

Status PickleMachine::put(uint64_t slot) {
  if (stack_.empty()) return bad("nothing is on the stack");
  if (memo_.size() >= limits_.max_values) return too_large("{}: its pickle remembers too many values", reader_.file());
  memo_[slot] = stack_.back();
  return {};
}

Status PickleMachine::get(uint64_t slot) {
  const auto at = memo_.find(slot);
  if (at == memo_.end()) return bad("a value is recalled that was never remembered");
  // The stack grows here without a new value; it is bounded all the same.
  if (stack_.size() >= limits_.max_values) return too_large("{}: its pickle's stack is too deep", reader_.file());
  stack_.push_back(at->second);
  return {};
}

// "c" module "\n" name "\n"
Status PickleMachine::global() {
  std::string names[2];
  for (auto& name : names) {
    while (true) {
      CHORAL_TRY(const uint8_t letter, reader_.u8("a global's name"));
      if (letter == '\n') break;
      name += static_cast<char>(letter);
      if (name.size() > 256) return bad("a global's name has more than 256 bytes");
    }
  }
  PickleValue value = of(Kind::kGlobal);
  value.global = names[0] + "." + names[1];
  if (std::find(kKnownGlobals.begin(), kKnownGlobals.end(), value.global) == kKnownGlobals.end()) {
    return unsupported(
        "{}: its pickle names '{}', which is no part of a dictionary of tensors; nothing was executed. Save the adapter "
        "as safetensors, and do not load this file with Python unless you trust its author",
        reader_.file(), printable(value.global));
  }
  return push(std::move(value));
}

// LONG1: a length and that many bytes, little endian, two's complement.
Status PickleMachine::long_integer() {
  CHORAL_TRY(const uint8_t length, reader_.u8("an integer's length"));
  if (length > 8) return bad("an integer has more than 64 bits");
  CHORAL_TRY(const auto bytes, reader_.take(length, "an integer"));
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) number |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > 0 && length < 8 && (std::to_integer<uint8_t>(bytes[length - 1]) & 0x80) != 0)
    number |= ~uint64_t{0} << (8 * length);
  return push_int(static_cast<int64_t>(number));
}

// ('storage', <type>, key, location, count)
Status PickleMachine::persistent_id() {
  CHORAL_TRY(const PickleRef ref, pop());
  const PickleValue& id = values_[ref];
  if (id.kind != Kind::kTuple || id.items.size() != 5) return bad("a persistent id is no storage");
  const auto item = [&](size_t i) -> const PickleValue& { return values_[id.items[i]]; };
  if (item(0).kind != Kind::kText || item(0).text != "storage" || item(1).kind != Kind::kGlobal || item(2).kind != Kind::kText ||
      item(4).kind != Kind::kInt || item(4).number < 0 || !item(1).global.ends_with("Storage")) {
    return bad("a persistent id is no storage");
  }
  PickleValue storage = of(Kind::kStorage);
  storage.global = item(1).global;
  storage.text = item(2).text;
  storage.number = item(4).number;
  return push(std::move(storage));
}

Result<std::vector<int64_t>> PickleMachine::extents(PickleRef ref) {
  const PickleValue& tuple = values_[ref];
  if (tuple.kind != Kind::kTuple && tuple.kind != Kind::kList) return bad("a tensor's shape is no tuple");
  std::vector<int64_t> out;
  if (tuple.items.size() > 8) return bad("a tensor has more than eight dimensions");
  for (const PickleRef item : tuple.items) {
    if (values_[item].kind != Kind::kInt || values_[item].number < 0)
      return bad("a tensor's shape has something else than sizes");
    out.push_back(values_[item].number);
  }
  return out;
}

// _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks, …)
Status PickleMachine::rebuild_tensor(std::span<const PickleRef> arguments) {
  if (arguments.size() < 4 || arguments.size() > 8) return bad("a tensor is rebuilt from something else than a storage");
  const PickleRef storage = arguments[0], offset = arguments[1];
  if (values_[storage].kind != Kind::kStorage || values_[offset].kind != Kind::kInt || values_[offset].number < 0) {
    return bad("a tensor is rebuilt from something else than a storage");
  }
  PickleValue tensor = of(Kind::kTensor);
  tensor.storage = storage;
  tensor.number = values_[offset].number;
  CHORAL_TRY(tensor.sizes, extents(arguments[2]));
  CHORAL_TRY(tensor.strides, extents(arguments[3]));
  if (tensor.sizes.size() != tensor.strides.size()) return bad("a tensor has not as many strides as sizes");
  return push(std::move(tensor));
}

Status PickleMachine::reduce() {
  CHORAL_TRY(const PickleRef arguments_ref, pop());
  CHORAL_TRY(const PickleRef function_ref, pop());
  const PickleValue& function = values_[function_ref];
  const PickleValue& arguments = values_[arguments_ref];
  if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) return bad("something is called that is no function");
  if (function.global == "torch._utils._rebuild_tensor_v2") return rebuild_tensor(arguments.items);
  if (function.global == "torch._utils._rebuild_parameter") {
    if (arguments.items.empty() || values_[arguments.items[0]].kind != Kind::kTensor) return bad("a parameter is no tensor");
    stack_.push_back(arguments.items[0]);
    return {};
  }
  if (function.global == "collections.OrderedDict") {
    if (!arguments.items.empty()) return bad("an OrderedDict is made from something");
    return push(of(Kind::kDict));
  }
  if (function.global == "torch.Size" && arguments.items.size() == 1) {
    stack_.push_back(arguments.items[0]);
    return {};
  }
  return bad("something is called that is no function");
}

// Attributes of an OrderedDict: state_dict()'s _metadata. It says nothing about tensors.
Status PickleMachine::build() {
  CHORAL_TRY(const PickleRef state, pop());
  if (stack_.empty() || values_[stack_.back()].kind != Kind::kDict) return bad("attributes of something else than a dictionary");
  if (values_[state].kind != Kind::kDict && values_[state].kind != Kind::kNone) return bad("attributes that are no dictionary");
  return {};
}

Status PickleMachine::set_items(std::vector<PickleRef> pairs) {
  if (stack_.empty() || values_[stack_.back()].kind != Kind::kDict) return bad("an entry of something else than a dictionary");
  if (pairs.size() % 2 != 0) return bad("a key without value");
  held_ += pairs.size();
  if (held_ > limits_.max_values) return too_large("{}: its pickle has more than {} values", reader_.file(), limits_.max_values);
  auto& items = values_[stack_.back()].items;
  items.insert(items.end(), pairs.begin(), pairs.end());
  return {};
}

Status PickleMachine::append(std::vector<PickleRef> added) {
  if (stack_.empty() || values_[stack_.back()].kind != Kind::kList) return bad("an item of something else than a list");
  held_ += added.size();
  if (held_ > limits_.max_values) return too_large("{}: its pickle has more than {} values", reader_.file(), limits_.max_values);
  auto& items = values_[stack_.back()].items;
  items.insert(items.end(), added.begin(), added.end());
  return {};
}

Status PickleMachine::step(uint8_t opcode) {
  switch (opcode) {
    case 0x80: {  // PROTO
      CHORAL_TRY(const uint8_t version, reader_.u8("protocol"));
      if (version == 2 || version == 3) return {};
      return unsupported("{}: pickle protocol {}; torch.save writes protocol 2", reader_.file(), version);
    }
    case '(': return push(of(Kind::kMark));
    case 'N': return push(of(Kind::kNone));
    case 0x88:
    case 0x89: {
      PickleValue value = of(Kind::kBool);
      value.number = opcode == 0x88;
      return push(std::move(value));
    }
    case 'K': {
      CHORAL_TRY(const uint8_t number, reader_.u8("an integer"));
      return push_int(number);
    }
    case 'M': {
      CHORAL_TRY(const uint16_t number, reader_.u16("an integer"));
      return push_int(number);
    }
    case 'J': {
      CHORAL_TRY(const uint32_t number, reader_.u32("an integer"));
      return push_int(static_cast<int32_t>(number));
    }
    case 0x8A: return long_integer();
    case 'G': {  // a big-endian double: only ever metadata
      CHORAL_RETURN_IF_ERROR(reader_.skip(8, "a float"));
      return push(of(Kind::kFloat));
    }
    case 'X': {
      CHORAL_TRY(const uint32_t length, reader_.u32("a text's length"));
      return push_text(length);
    }
    case 'U': {
      CHORAL_TRY(const uint8_t length, reader_.u8("a text's length"));
      return push_text(length);
    }
    case 'T': {
      CHORAL_TRY(const uint32_t length, reader_.u32("a text's length"));
      return push_text(length);
    }
    case '}': return push(of(Kind::kDict));
    case ']': return push(of(Kind::kList));
    case ')': return push(of(Kind::kTuple));
    case 0x85:
    case 0x86:
    case 0x87: return push_tuple(opcode - 0x84u);
    case 't': {
      PickleValue value = of(Kind::kTuple);
      CHORAL_TRY(value.items, pop_to_mark());
      return push(std::move(value));
    }
    case 's': {
      CHORAL_TRY(const PickleRef value, pop());
      CHORAL_TRY(const PickleRef key, pop());
      return set_items({key, value});
    }
    case 'u': {
      CHORAL_TRY(auto pairs, pop_to_mark());
      return set_items(std::move(pairs));
    }
    case 'a': {
      CHORAL_TRY(const PickleRef item, pop());
      return append({item});
    }
    case 'e': {
      CHORAL_TRY(auto items, pop_to_mark());
      return append(std::move(items));
    }
    case 'q': {
      CHORAL_TRY(const uint8_t slot, reader_.u8("a memo slot"));
      return put(slot);
    }
    case 'r': {
      CHORAL_TRY(const uint32_t slot, reader_.u32("a memo slot"));
      return put(slot);
    }
    case 'h': {
      CHORAL_TRY(const uint8_t slot, reader_.u8("a memo slot"));
      return get(slot);
    }
    case 'j': {
      CHORAL_TRY(const uint32_t slot, reader_.u32("a memo slot"));
      return get(slot);
    }
    case 'c': return global();
    case 'Q': return persistent_id();
    case 'R': return reduce();
    case 'b': return build();
    default:
      return unsupported("{}: pickle, byte {}: instruction 0x{:02x} is no part of a dictionary of tensors", reader_.file(),
                         reader_.offset() - 1, opcode);
  }
}

Result<PickleRef> PickleMachine::run() {
  while (true) {
    CHORAL_TRY(const uint8_t opcode, reader_.u8("an instruction"));
    if (opcode == '.') break;
    CHORAL_RETURN_IF_ERROR(step(opcode));
  }
  return pop();
}

}  // namespace choral::io
