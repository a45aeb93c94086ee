#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::le;
using testing::safetensors_file;

Result<SafetensorsHeader> header_of(const std::string& file, const SafetensorsLimits& limits = {}) {
  return parse_safetensors(bytes_of(file), "model.safetensors", limits);
}

// The header over `data_bytes` zero bytes is refused with `code` and a message that names the file and says `words`.
void expect_refused(std::string_view json, size_t data_bytes, Code code, std::string_view words,
                    const SafetensorsLimits& limits = {}) {
  SCOPED_TRACE(json.substr(0, 200));
  const auto result = header_of(safetensors_file(json, std::string(data_bytes, '\0')), limits);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code) << result.status().message();
  EXPECT_THAT(result.status().message(), HasSubstr("model.safetensors"));
  EXPECT_THAT(result.status().message(), HasSubstr(std::string(words)));
}

constexpr std::string_view kValid = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},)"
                                    R"("a":{"shape":[1],"data_offsets":[0,4],"dtype":"F32"}} )";

TEST(SafetensorsHeader, ReadsNamesShapesOffsetsAndMetadata) {
  const auto header = header_of(safetensors_file(kValid, std::string(12, 'x')));
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[1].dtype, DType::kBF16);
  EXPECT_EQ(header->entries[1].shape, (Shape{2, 2}));
  EXPECT_EQ(header->entries[1].begin, 4u);
  EXPECT_EQ(header->data_offset, 8 + kValid.size());
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->find("c"), nullptr);
}

TEST(SafetensorsHeader, EveryTruncationIsRefused) {
  const std::string file = safetensors_file(kValid, std::string(12, 'x'));
  for (size_t size = 0; size < file.size(); ++size) EXPECT_FALSE(header_of(file.substr(0, size)).ok()) << size;
  EXPECT_FALSE(header_of(file + "x").ok()) << "a byte too many belongs to no tensor";
}

TEST(SafetensorsHeader, BitFlipsNeverBreakThePromiseOfCoverage) {
  const std::string file = safetensors_file(kValid, std::string(12, 'x'));
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const auto header = header_of(flipped);
    if (!header.ok()) continue;
    uint64_t covered = 0;
    for (const auto& entry : header->entries) covered += entry.end - entry.begin;
    EXPECT_EQ(header->data_offset + covered, flipped.size()) << "bit " << bit;
  }
}

TEST(SafetensorsHeader, LengthOfTheHeader) {
  EXPECT_EQ(header_of(le<uint64_t>(1) + "{").status().code(), Code::kCorrupt);
  EXPECT_EQ(header_of(le<uint64_t>(0)).status().code(), Code::kCorrupt);
  EXPECT_TRUE(header_of(le<uint64_t>(2) + "{}").ok());
  EXPECT_EQ(header_of(le<uint64_t>(100'000'001) + "{}").status().code(), Code::kTooLarge);
  EXPECT_EQ(header_of(le<uint64_t>(UINT64_MAX) + "{}").status().code(), Code::kTooLarge);
  EXPECT_EQ(header_of(le<uint64_t>(3) + "{}").status().code(), Code::kCorrupt);
  expect_refused(kValid, 12, Code::kTooLarge, "header is", {.max_header_bytes = 50});
}

TEST(SafetensorsHeader, MustBeAnObjectOfValidUtf8) {
  expect_refused(" {}", 0, Code::kCorrupt, "start with '{'");
  expect_refused("[]", 0, Code::kCorrupt, "start with '{'");
  expect_refused("{}{}", 0, Code::kCorrupt, "follows");
  expect_refused("{} x", 0, Code::kCorrupt, "");
  expect_refused(std::string_view("{}\0\0", 4), 0, Code::kCorrupt, "");
  expect_refused("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, Code::kCorrupt, "UTF-8");
  expect_refused(R"({"\udc00":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "");
}

TEST(SafetensorsHeader, NamesStandOnce) {
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                 2, Code::kCorrupt, "'a' stands twice");
  // The same name spelled with an escape is the same name.
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
      Code::kCorrupt, "'a' stands twice");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, Code::kCorrupt, "twice");
  expect_refused(R"({"__metadata__":{"k":"1","k":"2"}})", 0, Code::kCorrupt, "'k' stands twice");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1, Code::kCorrupt,
                 "'dtype' stands twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[2],"shape":[1],"data_offsets":[0,1]}})", 1, Code::kCorrupt,
                 "'shape' stands twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,9],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "twice");
}

TEST(SafetensorsHeader, MetadataMapsStringsToStrings) {
  expect_refused(R"({"__metadata__":{"k":1}})", 0, Code::kCorrupt, "'k' is not a string");
  expect_refused(R"({"__metadata__":[]})", 0, Code::kCorrupt, "__metadata__");
  expect_refused(R"({"__metadata__":{"k":"0123456789"}})", 0, Code::kTooLarge, "__metadata__", {.max_metadata_bytes = 70});
}

TEST(SafetensorsHeader, FieldsOfAnEntry) {
  expect_refused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "'dtype' is missing");
  expect_refused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, Code::kCorrupt, "'shape' is missing");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1]}})", 1, Code::kCorrupt, "'data_offsets' is missing");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{}}})", 1, Code::kCorrupt, "unknown field 'x'");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, Code::kCorrupt, "two numbers");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, Code::kCorrupt, "more than 2");
  expect_refused(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, Code::kCorrupt, "shape");
  expect_refused(R"({"a":7})", 0, Code::kCorrupt, "tensor 'a'");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},})", 1, Code::kCorrupt, "JSON");
  expect_refused(R"({"a":{"dtype":"U8" "shape":[1],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "JSON");
}

TEST(SafetensorsHeader, DataTypes) {
  expect_refused(R"({"a":{"dtype":"U32","shape":[1],"data_offsets":[0,4]}})", 4, Code::kUnsupported,
                 "tensor 'a': the data type 'U32'");
  expect_refused(R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, Code::kUnsupported, "'f32'");
  const std::vector<std::pair<std::string, int>> sizes{{"F64", 8},     {"F32", 4},     {"F16", 2},    {"BF16", 2}, {"I64", 8},
                                                       {"I32", 4},     {"I16", 2},     {"I8", 1},     {"U8", 1},   {"BOOL", 1},
                                                       {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (const auto& [name, size] : sizes) {
    const auto json = fmt::format(R"({{"a":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", name, 3 * size);
    EXPECT_TRUE(header_of(safetensors_file(json, std::string(3 * size, 0))).ok()) << name;
    EXPECT_FALSE(header_of(safetensors_file(json, std::string(3 * size + 1, 0))).ok()) << name;
  }
}

TEST(SafetensorsHeader, ShapeTimesTypeEqualsTheOffsets) {
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, Code::kCorrupt, "need 8 bytes");
  // 2^62 * 4 wraps to 0, 2^64 does not even fit, 2^32 * 2^32 wraps to 0.
  expect_refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, Code::kCorrupt, "overflows");
  expect_refused(R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0]}})", 0, Code::kCorrupt, "shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, Code::kCorrupt, "overflows");
  expect_refused(R"({"a":{"dtype":"U8","shape":[9223372036854775808,0],"data_offsets":[0,0]}})", 0, Code::kCorrupt, "overflows");
}

TEST(SafetensorsHeader, OffsetsCoverTheDataOnceAndWholly) {
  const auto two = [](int a0, int a1, int b0, int b1) {
    return fmt::format(
        R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},"b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
        a1 - a0, a0, a1, b1 - b0, b0, b1);
  };
  EXPECT_TRUE(header_of(safetensors_file(two(2, 4, 0, 2), "1234")).ok()) << "the order of names is free";
  expect_refused(two(0, 2, 1, 4), 4, Code::kCorrupt, "overlaps");
  expect_refused(two(0, 2, 0, 2), 2, Code::kCorrupt, "overlaps");
  expect_refused(two(0, 1, 2, 4), 4, Code::kCorrupt, "belong to none");
  expect_refused(two(1, 2, 2, 4), 4, Code::kCorrupt, "belong to none");
  expect_refused(two(0, 2, 2, 3), 4, Code::kCorrupt, "after the last tensor");
  expect_refused(two(0, 2, 2, 5), 4, Code::kCorrupt, "beyond the 4 bytes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, Code::kCorrupt, "backwards");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}})", 1, Code::kCorrupt, "backwards");
  expect_refused("{}", 1, Code::kCorrupt, "after the last tensor");
}

TEST(SafetensorsHeader, LimitsOnCountNamesAndRank) {
  expect_refused(kValid, 12, Code::kTooLarge, "more than 1 tensors", {.max_tensors = 1});
  EXPECT_TRUE(header_of(safetensors_file(kValid, std::string(12, 0)), {.max_tensors = 2}).ok());
  expect_refused(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[],"data_offsets":[0,1]}}}})", std::string(1025, 'n')), 1,
                 Code::kTooLarge, "1025 bytes");
  EXPECT_TRUE(header_of(safetensors_file(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "x")).ok());
  expect_refused(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, Code::kCorrupt, "more than 8");
}

TEST(SafetensorsHeader, NamesInMessagesCannotDriveATerminal) {
  expect_refused("{\"\\u001b[2J\":{\"dtype\":\"U32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, Code::kUnsupported, "'\\x1b[2J'");
}

TEST(SafetensorsFile, LendsViewsAndNamesWhatIsMissing) {
  const choral::testing::TempDir folder;
  const std::string path = folder.write("m.safetensors", safetensors_file(kValid, "abcdefghijkl"));
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto view = (*file)->find("b");
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(std::memcmp(view->data, "efghijkl", 8), 0);
  (*file)->release("b");
  (*file)->release("nothing");
  EXPECT_EQ(std::memcmp(view->data, "efghijkl", 8), 0) << "released pages come back from the file";
  const auto missing = (*file)->find("bb");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("m.safetensors has no tensor 'bb'"));
}

TEST(SafetensorsFile, EmptyAndDeepTensorsAreRefusedOnlyWhenAskedFor) {
  const choral::testing::TempDir folder;
  const std::string path =
      folder.write("m.safetensors", safetensors_file(R"({"e":{"dtype":"F32","shape":[4,0],"data_offsets":[0,0]},)"
                                                     R"("d":{"dtype":"U8","shape":[1,1,1,1,2],"data_offsets":[0,2]}})",
                                                     "ab"));
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT((*file)->find("e").status().message(), HasSubstr("[4, 0] is empty"));
  EXPECT_THAT((*file)->find("d").status().message(), HasSubstr("5 dimensions"));
}

}  // namespace
}  // namespace choral::io
