// The rules of the GGUF format, one by one.
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/checked_math.h"
#include "base/printable.h"
#include "io/bounded_reader.h"
#include "io/gguf.h"
#include "io/gguf_types.h"

namespace choral::io {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr int64_t kMinKeyValueBytes = 8 + 4 + 1;        // empty key, type, one byte
constexpr int64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // empty name, rank, one dimension, type, offset

uint64_t min_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool: return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16: return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32: return 4;
    default: return 8;
  }
}

class Parser {
 public:
  Parser(std::span<const std::byte> file, std::string_view name, const GgufLimits& limits)
      : file_(file), name_(name), limits_(limits), reader_(file, name) {}

  Result<GgufHeader> parse();

 private:
  Status read_preamble();
  Result<ConfigObject> read_metadata();
  Result<ConfigValue> read_value(uint32_t type_number, std::string_view what);
  Result<ConfigValue> read_scalar(GgufValueType type, std::string_view what);
  Result<ConfigValue> read_array(std::string_view what);
  Result<uint64_t> alignment(const ConfigMap& metadata) const;
  Result<GgufTensor> read_tensor(uint64_t alignment);
  Status place_tensors(uint64_t alignment);

  std::span<const std::byte> file_;
  std::string_view name_;
  const GgufLimits& limits_;
  BoundedReader reader_;
  GgufHeader header_;
  uint64_t tensor_count_ = 0, metadata_count_ = 0, values_ = 0;
};

Status Parser::read_preamble() {
  CHORAL_TRY(const auto magic, reader_.take(4, "the magic number"));
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) return corrupt("{}: does not begin with 'GGUF'; this is not a GGUF file", name_);
  CHORAL_TRY(header_.version, reader_.u32("the version"));
  if (header_.version != 0 && (header_.version & 0xFFFF) == 0) {
    return unsupported("{}: a big-endian GGUF file; convert it to little endian", name_);
  }
  if (header_.version < 2 || header_.version > 3) {
    return unsupported("{}: GGUF version {}; only 2 and 3 are read, convert the model again", name_, header_.version);
  }
  CHORAL_TRY(tensor_count_, reader_.u64("the number of tensors"));
  CHORAL_TRY(metadata_count_, reader_.u64("the number of metadata entries"));
  if (tensor_count_ > limits_.max_tensors)
    return too_large("{}: {} tensors; at most {} are read", name_, tensor_count_, limits_.max_tensors);
  if (metadata_count_ > limits_.max_metadata_entries) {
    return too_large("{}: {} metadata entries; at most {} are read", name_, metadata_count_, limits_.max_metadata_entries);
  }
  const uint64_t least = tensor_count_ * kMinTensorBytes + metadata_count_ * kMinKeyValueBytes;
  if (least > reader_.remaining()) {
    return corrupt("{}: cut short: {} tensors and {} metadata entries need {} bytes or more, and {} follow; fetch the file again",
                   name_, tensor_count_, metadata_count_, least, reader_.remaining());
  }
  return {};
}

Result<ConfigValue> Parser::read_scalar(GgufValueType type, std::string_view what) {
  if (++values_ > limits_.max_metadata_values)
    return too_large("{}: more than {} metadata values", name_, limits_.max_metadata_values);
  const auto integer = [](auto v) { return ConfigValue(static_cast<int64_t>(v)); };
  switch (type) {
    case GgufValueType::kU8: {
      CHORAL_TRY(const auto v, reader_.u8(what));
      return integer(v);
    }
    case GgufValueType::kI8: {
      CHORAL_TRY(const auto v, reader_.u8(what));
      return integer(static_cast<int8_t>(v));
    }
    case GgufValueType::kU16: {
      CHORAL_TRY(const auto v, reader_.u16(what));
      return integer(v);
    }
    case GgufValueType::kI16: {
      CHORAL_TRY(const auto v, reader_.u16(what));
      return integer(static_cast<int16_t>(v));
    }
    case GgufValueType::kU32: {
      CHORAL_TRY(const auto v, reader_.u32(what));
      return integer(v);
    }
    case GgufValueType::kI32: {
      CHORAL_TRY(const auto v, reader_.u32(what));
      return integer(static_cast<int32_t>(v));
    }
    case GgufValueType::kF32: {
      CHORAL_TRY(const auto v, reader_.f32(what));
      return ConfigValue(static_cast<double>(v));
    }
    case GgufValueType::kBool: {
      CHORAL_TRY(const auto v, reader_.u8(what));
      if (v > 1) return corrupt("{}: offset {}: {} is {}, a bool is 0 or 1", name_, reader_.offset() - 1, what, v);
      return ConfigValue(v == 1);
    }
    case GgufValueType::kString: {
      CHORAL_TRY(const auto v, reader_.string(limits_.max_string_bytes, what));
      return ConfigValue(std::string(v));
    }
    case GgufValueType::kU64: {
      CHORAL_TRY(const auto v, reader_.u64(what));
      if (v > static_cast<uint64_t>(INT64_MAX)) return ConfigValue(static_cast<double>(v));
      return integer(v);
    }
    case GgufValueType::kI64: {
      CHORAL_TRY(const auto v, reader_.u64(what));
      return integer(v);
    }
    case GgufValueType::kF64: {
      CHORAL_TRY(const auto v, reader_.f64(what));
      return ConfigValue(v);
    }
    case GgufValueType::kArray: break;
  }
  return corrupt("{}: offset {}: {} has the value type {}, which does not exist", name_, reader_.offset(), what,
                 static_cast<uint32_t>(type));
}

Result<ConfigValue> Parser::read_array(std::string_view what) {
  CHORAL_TRY(const uint32_t number, reader_.u32(what));
  const auto type = static_cast<GgufValueType>(number);
  if (type == GgufValueType::kArray) return unsupported("{}: {} is an array of arrays", name_, what);
  CHORAL_TRY(const uint64_t count, reader_.u64(what));
  if (count > reader_.remaining() / min_bytes(type) || count > limits_.max_metadata_values - values_) {
    return too_large("{}: offset {}: {} claims {} elements; the file has no room for them, or they are over {} values in all",
                     name_, reader_.offset(), what, count, limits_.max_metadata_values);
  }
  ConfigArray out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    CHORAL_TRY(ConfigValue value, read_scalar(type, what));
    out.push_back(std::move(value));
  }
  return ConfigValue(std::move(out));
}

Result<ConfigValue> Parser::read_value(uint32_t type_number, std::string_view what) {
  const auto type = static_cast<GgufValueType>(type_number);
  return type == GgufValueType::kArray ? read_array(what) : read_scalar(type, what);
}

Result<ConfigObject> Parser::read_metadata() {
  std::vector<ConfigMember> members;
  members.reserve(metadata_count_);
  for (uint64_t i = 0; i < metadata_count_; ++i) {
    CHORAL_TRY(const std::string_view key, reader_.string(limits_.max_key_bytes, fmt::format("metadata key {}", i)));
    const std::string what = fmt::format("metadata '{}'", printable(key));
    CHORAL_TRY(const uint32_t type, reader_.u32(what));
    CHORAL_TRY(ConfigValue value, read_value(type, what));
    members.push_back({std::string(key), std::move(value)});
  }
  return ConfigObject::from_members(std::move(members)).while_(name_);
}

Result<uint64_t> Parser::alignment(const ConfigMap& metadata) const {
  CHORAL_TRY(const int64_t value, metadata.get_int_or("general.alignment", kDefaultAlignment));
  if (value < 8 || value > static_cast<int64_t>(kMaxAlignment) || !std::has_single_bit(static_cast<uint64_t>(value))) {
    return corrupt("{}: general.alignment is {}, but must be a power of two from 8 to {}", name_, value, kMaxAlignment);
  }
  return static_cast<uint64_t>(value);
}

// `offset` of the result is still relative to the data section.
Result<GgufTensor> Parser::read_tensor(uint64_t alignment) {
  GgufTensor tensor;
  CHORAL_TRY(const std::string_view name, reader_.string(limits_.max_tensor_name_bytes, "a tensor's name"));
  tensor.name = std::string(name);
  const std::string what = fmt::format("tensor '{}'", printable(name));
  CHORAL_TRY(const uint32_t rank, reader_.u32(what));
  if (rank < 1 || rank > Shape::kMaxRank) {
    return unsupported("{}: {} has {} dimensions, 1 to {} are supported", name_, what, rank, Shape::kMaxRank);
  }
  std::array<int64_t, Shape::kMaxRank> dims{};
  std::optional<uint64_t> elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    CHORAL_TRY(const uint64_t extent, reader_.u64(what));
    if (extent == 0) return corrupt("{}: {} has a dimension of 0", name_, what);
    elements = checked_mul(*elements, extent);
    if (!elements || *elements > static_cast<uint64_t>(INT64_MAX))
      return corrupt("{}: the shape of {} overflows 64 bits", name_, what);
    dims[rank - 1 - i] = static_cast<int64_t>(extent);
  }
  tensor.shape = Shape(std::span<const int64_t>(dims.data(), rank));
  CHORAL_TRY(const uint32_t type, reader_.u32(what));
  CHORAL_TRY(tensor.dtype, dtype_from_ggml(type).while_(fmt::format("{}: {}", name_, what)));
  CHORAL_TRY(tensor.offset, reader_.u64(what));
  if (tensor.offset % alignment != 0) {
    return corrupt("{}: {} starts at {}, which is no multiple of the alignment {}", name_, what, tensor.offset, alignment);
  }
  const DTypeFacts& type_facts = facts(tensor.dtype);
  const int64_t cols = dims[rank - 1];
  if (cols % type_facts.block_elements != 0) {
    return corrupt("{}: {} has rows of {} elements, which is no multiple of the {} of a {} block", name_, what, cols,
                   type_facts.block_elements, type_facts.name);
  }
  const auto bytes =
      checked_mul(*elements / static_cast<uint64_t>(type_facts.block_elements), static_cast<uint64_t>(type_facts.block_bytes));
  if (!bytes || *bytes > static_cast<uint64_t>(INT64_MAX)) return corrupt("{}: the size of {} overflows 64 bits", name_, what);
  tensor.size_bytes = *bytes;
  return tensor;
}

// Makes offsets relative to the file; they end inside it and apart from each other. Leaves the tensors sorted by name.
Status Parser::place_tensors(uint64_t alignment) {
  auto& tensors = header_.tensors;
  if (tensors.empty()) return {};
  CHORAL_RETURN_IF_ERROR(reader_.align(alignment, "the padding before the data"));
  const uint64_t data_offset = reader_.offset();
  for (auto& tensor : tensors) {
    const auto begin = checked_add(data_offset, tensor.offset);
    const auto end = begin ? checked_add(*begin, tensor.size_bytes) : std::nullopt;
    if (!end || *end > file_.size()) {
      return corrupt("{}: tensor '{}' ({} bytes at {}) reaches beyond the {} bytes of the file, which is cut short or damaged",
                     name_, printable(tensor.name), tensor.size_bytes, tensor.offset, file_.size());
    }
    tensor.offset = *begin;
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].offset < tensors[i - 1].offset + tensors[i - 1].size_bytes) {
      return corrupt("{}: the tensors '{}' and '{}' overlap", name_, printable(tensors[i - 1].name), printable(tensors[i].name));
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != tensors.end()) return corrupt("{}: the tensor '{}' stands twice", name_, printable(twice->name));
  return {};
}

Result<GgufHeader> Parser::parse() {
  CHORAL_RETURN_IF_ERROR(read_preamble());
  CHORAL_TRY(ConfigObject object, read_metadata());
  header_.metadata = ConfigMap(std::move(object), std::string(name_));
  CHORAL_TRY(const uint64_t align, alignment(header_.metadata));
  header_.tensors.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    CHORAL_TRY(GgufTensor tensor, read_tensor(align));
    header_.tensors.push_back(std::move(tensor));
  }
  CHORAL_RETURN_IF_ERROR(place_tensors(align));
  return std::move(header_);
}

}  // namespace

const GgufTensor* GgufHeader::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const auto& tensor, std::string_view n) { return tensor.name < n; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::string_view file_name, const GgufLimits& limits) {
  return Parser(file, file_name, limits).parse();
}

}  // namespace choral::io
