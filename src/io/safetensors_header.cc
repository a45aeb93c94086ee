// The rules of the safetensors format, one by one. The JSON header is walked once, without a tree: memory follows the number of
// entries, which is limited, and not what the header claims.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/checked_math.h"
#include "base/printable.h"
#include "io/bounded_reader.h"
#include "io/json_text.h"
#include "io/safetensors.h"

namespace choral::io {
namespace {

namespace od = simdjson::ondemand;

constexpr int kMaxFileRank = 8;

struct DTypeName {
  std::string_view name;
  DType type;
};
constexpr std::array<DTypeName, 13> kDTypes{{{"F64", DType::kF64},
                                             {"F32", DType::kF32},
                                             {"F16", DType::kF16},
                                             {"BF16", DType::kBF16},
                                             {"I64", DType::kI64},
                                             {"I32", DType::kI32},
                                             {"I16", DType::kI16},
                                             {"I8", DType::kI8},
                                             {"U8", DType::kU8},
                                             {"BOOL", DType::kBool},
                                             {"F8_E4M3", DType::kF8E4M3},
                                             {"F8_E5M2", DType::kF8E5M2},
                                             {"F8_E8M0", DType::kF8E8M0}}};

std::optional<DType> dtype_of(std::string_view name) {
  for (const auto& entry : kDTypes) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

struct RawEntry {
  std::string dtype;
  std::array<uint64_t, kMaxFileRank> dims{};
  int rank = 0;
  std::array<uint64_t, 2> offsets{};
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

Status once(bool& seen, std::string_view field) {
  if (seen) return corrupt("'{}' stands twice", field);
  seen = true;
  return {};
}

// An array of at most out.size() unsigned integers; gives their number.
Result<int> read_integers(od::value value, std::span<uint64_t> out, std::string_view field) {
  od::array array;
  CHORAL_RETURN_IF_ERROR(json_status(value.get_array().get(array)).while_(field));
  size_t count = 0;
  for (auto element : array) {
    od::value item;
    CHORAL_RETURN_IF_ERROR(json_status(element.get(item)).while_(field));
    if (count == out.size()) return corrupt("'{}' has more than {} numbers", field, out.size());
    CHORAL_RETURN_IF_ERROR(json_status(item.get_uint64().get(out[count++])).while_(field));
  }
  return static_cast<int>(count);
}

Result<RawEntry> read_entry(JsonDocument& document, od::value value) {
  RawEntry raw;
  od::object object;
  CHORAL_RETURN_IF_ERROR(json_status(value.get_object().get(object)));
  for (auto field : object) {
    std::string_view key;
    od::value v;
    CHORAL_RETURN_IF_ERROR(json_status(field.error()));
    CHORAL_RETURN_IF_ERROR(json_status(document.text_of(field.key()).get(key)));
    CHORAL_RETURN_IF_ERROR(json_status(field.value().get(v)));
    if (key == "dtype") {
      CHORAL_RETURN_IF_ERROR(once(raw.has_dtype, key));
      std::string_view name;
      CHORAL_RETURN_IF_ERROR(json_status(document.text_of(v.get_raw_json_string()).get(name)));
      raw.dtype = printable(name, 32);
      if (!dtype_of(raw.dtype)) return unsupported("the data type '{}' is not supported", raw.dtype);
    } else if (key == "shape") {
      CHORAL_RETURN_IF_ERROR(once(raw.has_shape, key));
      CHORAL_TRY(raw.rank, read_integers(v, raw.dims, "shape"));
    } else if (key == "data_offsets") {
      CHORAL_RETURN_IF_ERROR(once(raw.has_offsets, key));
      CHORAL_TRY(const int count, read_integers(v, raw.offsets, "data_offsets"));
      if (count != 2) return corrupt("'data_offsets' needs two numbers");
    } else {
      return corrupt("unknown field '{}'", printable(key));
    }
  }
  if (!raw.has_dtype) return corrupt("'dtype' is missing");
  if (!raw.has_shape) return corrupt("'shape' is missing");
  if (!raw.has_offsets) return corrupt("'data_offsets' is missing");
  return raw;
}

Result<SafetensorsEntry> check_entry(const RawEntry& raw, uint64_t data_bytes) {
  SafetensorsEntry entry;
  entry.dtype = *dtype_of(raw.dtype);
  entry.rank = raw.rank;
  entry.begin = raw.offsets[0];
  entry.end = raw.offsets[1];
  if (entry.begin > entry.end) return corrupt("data_offsets [{}, {}] run backwards", entry.begin, entry.end);
  if (entry.end > data_bytes) {
    return corrupt("data_offsets [{}, {}] reach beyond the {} bytes of data; the file is cut short or damaged", entry.begin,
                   entry.end, data_bytes);
  }
  std::optional<uint64_t> bytes = static_cast<uint64_t>(facts(entry.dtype).block_bytes);
  std::array<int64_t, kMaxFileRank> dims{};
  for (int i = 0; i < raw.rank; ++i) {
    bytes = bytes ? checked_mul(*bytes, raw.dims[i]) : std::nullopt;
    if (!bytes || raw.dims[i] > static_cast<uint64_t>(INT64_MAX)) return corrupt("the shape overflows 64 bits");
    dims[i] = static_cast<int64_t>(raw.dims[i]);
  }
  if (*bytes != entry.end - entry.begin) {
    return corrupt("shape and data type need {} bytes, data_offsets [{}, {}] give {}", *bytes, entry.begin, entry.end,
                   entry.end - entry.begin);
  }
  if (raw.rank <= Shape::kMaxRank) entry.shape = Shape(std::span<const int64_t>(dims.data(), raw.rank));
  return entry;
}

Status read_metadata(JsonDocument& document, od::value value, const SafetensorsLimits& limits,
                     std::map<std::string, std::string>& out) {
  od::object object;
  CHORAL_RETURN_IF_ERROR(json_status(value.get_object().get(object)));
  uint64_t bytes = 0;
  for (auto field : object) {
    std::string_view key, text;
    CHORAL_RETURN_IF_ERROR(json_status(field.error()));
    CHORAL_RETURN_IF_ERROR(json_status(document.text_of(field.key()).get(key)));
    CHORAL_RETURN_IF_ERROR(check_utf8(key));
    std::string name(key);
    od::value v;
    CHORAL_RETURN_IF_ERROR(json_status(field.value().get(v)));
    if (document.text_of(v.get_raw_json_string()).get(text) != simdjson::SUCCESS)
      return corrupt("the value of '{}' is not a string", printable(name));
    CHORAL_RETURN_IF_ERROR(check_utf8(text));
    bytes += name.size() + text.size() + 64;  // 64: what a map entry costs beside its text
    if (bytes > limits.max_metadata_bytes) return too_large("more than {} bytes", limits.max_metadata_bytes);
    if (!out.emplace(name, text).second) return corrupt("the key '{}' stands twice", printable(name));
  }
  return {};
}

// Names are compared here, once all are known; entries end up sorted by name.
Status check_names(std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != entries.end()) return corrupt("the tensor '{}' stands twice in the header", printable(twice->name));
  return {};
}

// Each byte of the data belongs to exactly one tensor.
Status check_cover(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(entries[a].begin, entries[a].end) < std::pair(entries[b].begin, entries[b].end);
  });
  uint64_t at = 0;
  for (const uint32_t i : order) {
    const auto& entry = entries[i];
    if (entry.begin < at) return corrupt("the tensor '{}' overlaps the one before it", printable(entry.name));
    if (entry.begin > at)
      return corrupt("{} bytes before the tensor '{}' belong to none", entry.begin - at, printable(entry.name));
    at = entry.end;
  }
  if (at != data_bytes) return corrupt("{} bytes after the last tensor belong to none", data_bytes - at);
  return {};
}

Status read_header(JsonDocument& document, uint64_t data_bytes, const SafetensorsLimits& limits, SafetensorsHeader& header) {
  bool has_metadata = false;
  od::object root = document.root();
  for (auto field : root) {
    std::string_view key;
    od::value value;
    CHORAL_RETURN_IF_ERROR(json_status(field.error()));
    CHORAL_RETURN_IF_ERROR(json_status(document.text_of(field.key()).get(key)));
    if (key.size() > limits.max_name_bytes)
      return too_large("a tensor's name is {} bytes long, at most {}", key.size(), limits.max_name_bytes);
    CHORAL_RETURN_IF_ERROR(check_utf8(key));
    std::string name(key);
    CHORAL_RETURN_IF_ERROR(json_status(field.value().get(value)));
    if (name == "__metadata__") {
      CHORAL_RETURN_IF_ERROR(once(has_metadata, name));
      CHORAL_RETURN_IF_ERROR(read_metadata(document, value, limits, header.metadata).while_("__metadata__"));
      continue;
    }
    if (header.entries.size() == limits.max_tensors) return too_large("more than {} tensors", limits.max_tensors);
    const std::string context = fmt::format("tensor '{}'", printable(name));
    CHORAL_TRY(const RawEntry raw, read_entry(document, value).while_(context));
    CHORAL_TRY(SafetensorsEntry entry, check_entry(raw, data_bytes).while_(context));
    entry.name = std::move(name);
    header.entries.push_back(std::move(entry));
  }
  return document.expect_end();
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), name,
                                   [](const auto& entry, std::string_view n) { return entry.name < n; });
  return at != entries.end() && at->name == name ? &*at : nullptr;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view file_name,
                                            const SafetensorsLimits& limits) {
  BoundedReader reader(file, file_name);
  CHORAL_TRY(const uint64_t length, reader.u64("the length of the header"));
  if (length < 2) return corrupt("{}: a header of {} bytes is none; this is not a safetensors file", file_name, length);
  if (length > limits.max_header_bytes) {
    return too_large("{}: the header is {} bytes long, at most {} are allowed; this is not a safetensors file or a hostile one",
                     file_name, length, limits.max_header_bytes);
  }
  CHORAL_TRY(const auto bytes, reader.take(length, "the header"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text[0] != '{') return corrupt("{}: the header does not start with '{{'; this is not a safetensors file", file_name);

  SafetensorsHeader header;
  header.data_offset = reader.offset();
  const uint64_t data_bytes = reader.remaining();
  JsonDocument document;
  Status status = document.open(text);
  if (status.ok()) status = read_header(document, data_bytes, limits, header);
  if (status.ok()) status = check_names(header.entries);
  if (status.ok()) status = check_cover(header.entries, data_bytes);
  if (!status.ok()) return std::move(status).while_(file_name);
  return header;
}

}  // namespace choral::io
