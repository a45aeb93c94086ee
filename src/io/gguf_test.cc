#include "io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/gguf_types.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using testing::bytes_of;
using testing::gguf_string;
using testing::GgufSpec;
using ::testing::HasSubstr;
using testing::le;

GgufSpec valid() {
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", "llama"), GgufSpec::kv_u32("llama.block_count", 2)};
  spec.tensors = {{"b", {4, 3}, 0, std::string(48, 'b')}, {"a", {32, 2}, 8, std::string(68, 'a')}};
  return spec;
}

Result<GgufHeader> parse(const std::string& file, const GgufLimits& limits = {}) {
  return parse_gguf(bytes_of(file), "m.gguf", limits);
}

void expect_refused(const GgufSpec& spec, Code code, std::string_view words, const GgufLimits& limits = {}) {
  const auto result = parse(spec.build(), limits);
  ASSERT_FALSE(result.ok()) << words;
  EXPECT_EQ(result.status().code(), code) << result.status().message();
  EXPECT_THAT(result.status().message(), HasSubstr("m.gguf"));
  EXPECT_THAT(result.status().message(), HasSubstr(std::string(words)));
}

TEST(Gguf, ReadsTensorsWithShapesTurnedRound) {
  const auto header = parse(valid().build());
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, DType::kQ8_0);
  EXPECT_EQ(header->tensors[0].shape, (Shape{2, 32}));
  EXPECT_EQ(header->tensors[1].shape, (Shape{3, 4}));
  EXPECT_EQ(header->tensors[0].offset, header->tensors[1].offset + 64);
  EXPECT_EQ(*header->metadata.get_int("llama.block_count"), 2);
}

TEST(Gguf, EveryTruncationIsRefused) {
  const std::string file = valid().build();
  for (size_t size = 0; size < file.size(); ++size) EXPECT_FALSE(parse(file.substr(0, size)).ok()) << size;
}

TEST(Gguf, BitFlipsLeaveEveryAcceptedTensorInsideTheFile) {
  const std::string file = valid().build();
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const auto header = parse(flipped);
    if (!header.ok()) continue;
    for (const auto& tensor : header->tensors) ASSERT_LE(tensor.offset + tensor.size_bytes, flipped.size()) << "bit " << bit;
  }
}

TEST(Gguf, MagicAndVersion) {
  GgufSpec spec = valid();
  spec.version = 2;
  EXPECT_TRUE(parse(spec.build()).ok());
  spec.version = 1;
  expect_refused(spec, Code::kUnsupported, "version 1");
  spec.version = 4;
  expect_refused(spec, Code::kUnsupported, "version 4");
  spec.version = 0x03000000;
  expect_refused(spec, Code::kUnsupported, "big-endian");
  spec = valid();
  spec.magic = "GGML";
  expect_refused(spec, Code::kCorrupt, "not a GGUF file");
}

TEST(Gguf, CountsAreHeldAgainstTheFileBeforeAnythingIsReserved) {
  GgufSpec spec = valid();
  spec.tensor_count = INT64_MAX;
  expect_refused(spec, Code::kTooLarge, "tensors");
  spec.tensor_count = 100'000;  // under the limit, but the file has no room for them
  expect_refused(spec, Code::kCorrupt, "cut short: 100000 tensors");
  spec = valid();
  spec.metadata_count = INT64_MAX;
  expect_refused(spec, Code::kTooLarge, "metadata entries");
  spec.metadata_count = 60'000;
  expect_refused(spec, Code::kCorrupt, "60000 metadata entries need");
  expect_refused(valid(), Code::kTooLarge, "2 tensors; at most 1 are read", {.max_tensors = 1});
  expect_refused(valid(), Code::kTooLarge, "2 metadata entries; at most 1", {.max_metadata_entries = 1});
  expect_refused(valid(), Code::kTooLarge, "metadata values", {.max_metadata_values = 1});
  expect_refused(valid(), Code::kTooLarge, "key", {.max_key_bytes = 5});
  expect_refused(valid(), Code::kTooLarge, "general.architecture", {.max_string_bytes = 4});
}

TEST(Gguf, AllValueTypes) {
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv("u8", 0, "\xff"),
                   GgufSpec::kv("i8", 1, "\xff"),
                   GgufSpec::kv("u16", 2, le<uint16_t>(65535)),
                   GgufSpec::kv("i16", 3, le<int16_t>(-2)),
                   GgufSpec::kv("u32", 4, le<uint32_t>(4000000000u)),
                   GgufSpec::kv("i32", 5, le<int32_t>(-3)),
                   GgufSpec::kv("f32", 6, le(0.5f)),
                   GgufSpec::kv("bool", 7, "\x01"),
                   GgufSpec::kv("string", 8, gguf_string("text")),
                   GgufSpec::kv("array", 9, le<uint32_t>(5) + le<uint64_t>(2) + le<int32_t>(-1) + le<int32_t>(7)),
                   GgufSpec::kv("u64", 10, le<uint64_t>(uint64_t{1} << 40)),
                   GgufSpec::kv("i64", 11, le<int64_t>(-5)),
                   GgufSpec::kv("f64", 12, le(0.25))};
  const auto header = parse(spec.build());
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(
      header->metadata.to_json(),
      R"({"u8": 255, "i8": -1, "u16": 65535, "i16": -2, "u32": 4000000000, "i32": -3, "f32": 0.5, "bool": true, "string": "text", )"
      R"("array": [-1, 7], "u64": 1099511627776, "i64": -5, "f64": 0.25})");
}

TEST(Gguf, BadMetadata) {
  const auto with = [](std::string entry) {
    GgufSpec spec = valid();
    spec.metadata.push_back(std::move(entry));
    return spec;
  };
  expect_refused(with(GgufSpec::kv("x", 7, "\x02")), Code::kCorrupt, "a bool is 0 or 1");
  expect_refused(with(GgufSpec::kv("x", 13, "12345678")), Code::kCorrupt, "value type 13");
  expect_refused(with(GgufSpec::kv("x", 9, le<uint32_t>(9) + le<uint64_t>(1) + le<uint32_t>(0) + le<uint64_t>(0))),
                 Code::kUnsupported, "array of arrays");
  expect_refused(with(GgufSpec::kv("x", 9, le<uint32_t>(13) + le<uint64_t>(1) + "12345678")), Code::kCorrupt, "value type 13");
  expect_refused(with(GgufSpec::kv("x", 9, le<uint32_t>(0) + le<uint64_t>(1 << 20))), Code::kTooLarge, "claims 1048576 elements");
  expect_refused(with(GgufSpec::kv("x", 9, le<uint32_t>(8) + le<uint64_t>(UINT64_MAX))), Code::kTooLarge, "elements");
  expect_refused(with(GgufSpec::kv("x", 8, le<uint64_t>(UINT64_MAX))), Code::kTooLarge, "'x'");
  expect_refused(with(GgufSpec::kv_u32("llama.block_count", 3)), Code::kCorrupt, "'llama.block_count' stands twice");
}

TEST(Gguf, Alignment) {
  for (const uint32_t bad : {0u, 1u, 4u, 24u, 48u, 2u << 20, 0x80000000u}) {
    GgufSpec spec = valid();
    spec.metadata.push_back(GgufSpec::kv_u32("general.alignment", bad));
    expect_refused(spec, Code::kCorrupt, "general.alignment");
  }
  GgufSpec spec = valid();
  spec.metadata.push_back(GgufSpec::kv_string("general.alignment", "32"));
  EXPECT_EQ(parse(spec.build()).status().code(), Code::kCorrupt);
  spec = valid();
  spec.metadata.push_back(GgufSpec::kv_u32("general.alignment", 128));
  spec.alignment = 128;
  const auto header = parse(spec.build());
  ASSERT_TRUE(header.ok()) << header.status().message();
  EXPECT_EQ(header->tensors[0].offset % 128, 0u);
}

TEST(Gguf, TensorTypes) {
  struct Row {
    uint32_t number;
    DType type;
    uint64_t elements, bytes;
  };
  for (const auto& [number, type, elements, bytes] :
       {Row{0, DType::kF32, 4, 16},        Row{1, DType::kF16, 4, 8},         Row{2, DType::kQ4_0, 32, 18},
        Row{3, DType::kQ4_1, 32, 20},      Row{6, DType::kQ5_0, 32, 22},      Row{7, DType::kQ5_1, 32, 24},
        Row{8, DType::kQ8_0, 32, 34},      Row{12, DType::kQ4_K, 256, 144},   Row{13, DType::kQ5_K, 256, 176},
        Row{14, DType::kQ6_K, 256, 210},   Row{24, DType::kI8, 4, 4},         Row{25, DType::kI16, 4, 8},
        Row{10, DType::kQ2_K, 256, 84},    Row{11, DType::kQ3_K, 256, 110},   Row{20, DType::kIQ4_NL, 32, 18},
        Row{23, DType::kIQ4_XS, 256, 136}, Row{34, DType::kTQ1_0, 256, 54},   Row{35, DType::kTQ2_0, 256, 66},
        Row{39, DType::kMXFP4, 32, 17},    Row{16, DType::kIQ2_XXS, 256, 66}, Row{17, DType::kIQ2_XS, 256, 74},
        Row{18, DType::kIQ3_XXS, 256, 98}, Row{19, DType::kIQ1_S, 256, 50},   Row{21, DType::kIQ3_S, 256, 110},
        Row{22, DType::kIQ2_S, 256, 82},   Row{29, DType::kIQ1_M, 256, 56},   Row{26, DType::kI32, 4, 16},
        Row{27, DType::kI64, 4, 32},       Row{28, DType::kF64, 4, 32},       Row{30, DType::kBF16, 4, 8}}) {
    GgufSpec spec;
    spec.tensors = {{"t", {elements, 2}, number, std::string(2 * bytes, 0)}};
    const auto header = parse(spec.build());
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->tensors[0].dtype, type);
    EXPECT_EQ(header->tensors[0].size_bytes, 2 * bytes);
    EXPECT_EQ(ggml_from_dtype(type), number);
    spec.tensors[0].data.pop_back();
    expect_refused(spec, Code::kCorrupt, "beyond");
  }
  GgufSpec spec = valid();
  spec.tensors[0].type = 40;
  expect_refused(spec, Code::kUnsupported, "tensor 'b': the type NVFP4 is not supported");
  for (const char* read : {"Q4_0, ", "Q2_K, ", "IQ4_NL, ", "IQ4_XS, ", "TQ1_0, ", "TQ2_0, ", "MXFP4, ", "F16 or BF16"}) {
    expect_refused(spec, Code::kUnsupported, read);
  }
  spec.tensors[0].type = 12345;
  expect_refused(spec, Code::kCorrupt, "12345");
}

TEST(Gguf, ShapesAndSizes) {
  GgufSpec spec = valid();
  spec.tensors[1].dims = {33, 2};
  expect_refused(spec, Code::kCorrupt, "no multiple of the 32");
  spec.tensors[1].dims = {48, 2};  // the elements are whole blocks, the rows are not
  expect_refused(spec, Code::kCorrupt, "no multiple of the 32");
  spec = valid();
  spec.tensors[0].dims = {4, 0};
  expect_refused(spec, Code::kCorrupt, "dimension of 0");
  spec.tensors[0].dims = {};
  expect_refused(spec, Code::kUnsupported, "0 dimensions");
  spec.tensors[0].dims = {1, 1, 1, 1, 1};
  expect_refused(spec, Code::kUnsupported, "5 dimensions");
  spec.tensors[0].dims = {uint64_t{1} << 32, uint64_t{1} << 32};
  expect_refused(spec, Code::kCorrupt, "overflows");
  spec.tensors[0].dims = {uint64_t{1} << 62, 1};  // x 4 bytes wraps to 0
  expect_refused(spec, Code::kCorrupt, "overflows");
}

TEST(Gguf, Offsets) {
  GgufSpec spec = valid();
  spec.tensors[1].offset = 32;
  expect_refused(spec, Code::kCorrupt, "overlap");
  spec.tensors[1].offset = 0;
  expect_refused(spec, Code::kCorrupt, "overlap");
  spec.tensors[1].offset = 72;
  expect_refused(spec, Code::kCorrupt, "no multiple of the alignment");
  spec.tensors[1].offset = 96;
  expect_refused(spec, Code::kCorrupt, "beyond");
  spec.tensors[1].offset = static_cast<int64_t>(0x7FFFFFFFFFFFFFE0);
  expect_refused(spec, Code::kCorrupt, "beyond");
  spec = valid();
  spec.tensors[1].name = "b";
  expect_refused(spec, Code::kCorrupt, "'b' stands twice");
  spec.tensors[1].name = std::string(300, 'n');
  expect_refused(spec, Code::kTooLarge, "name");
}

TEST(GgufFile, LendsViews) {
  const choral::testing::TempDir folder;
  auto file = GgufFile::open(folder.write("m.gguf", valid().build()));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto view = (*file)->find("a");
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->size_bytes(), 68);
  EXPECT_EQ(static_cast<char>(view->data[67]), 'a');
  (*file)->release("a");
  EXPECT_EQ((*file)->find("z").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace choral::io
