// The plug-in interface as bytes. tests/data/plugin/abi_layout.txt is what plug-ins in the world were compiled against: a line of
// it that changes breaks every one of them, so this test is the guard of "fields are only appended". Compiled by the C compiler
// (tests/support/plugin_layout.c, strictly C99) and by this one, which must agree.
#pragma GCC diagnostic error "-Wpedantic"
#include "choral/plugin.h"
// Nothing else may be strict: the header stands first and alone.
#pragma GCC diagnostic ignored "-Wpedantic"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/gemm/pack_spec.h"
#include "kernels/sampling/sampled_rows.h"
#include "support/plugin_layout.h"
#include "tensor/dtype.h"

namespace choral::platform {
namespace {

#define STRUCT(type) {"struct", #type, 0, sizeof(type)},
#define FIELD(type, field) {"field", #type "." #field, offsetof(type, field), sizeof(type::field)},
#define NUMBER(name) {"number", #name, 0, name},
constexpr plugin_layout_line kInCpp[] = {
#include "support/plugin_layout_list_inl.h"
};

std::span<const plugin_layout_line> in_c() {
  size_t count = 0;
  const plugin_layout_line* lines = plugin_layout_in_c(&count);
  return {lines, count};
}

std::string text_of(const plugin_layout_line& line) {
  const std::string kind = line.kind;
  if (kind == "number") return std::string(line.name) + " = " + std::to_string(line.value);
  if (kind == "struct") return std::string(line.name) + " size " + std::to_string(line.value);
  return std::string(line.name) + " offset " + std::to_string(line.offset) + " size " + std::to_string(line.value);
}

std::string key_of(const std::string& line) { return line.substr(0, line.find(' ')); }

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> golden_lines() {
  std::ifstream file(std::string(CHORAL_TEST_DATA) + "/plugin/abi_layout.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

TEST(PluginLayout, CAndCppAgree) {
  ASSERT_EQ(in_c().size(), std::size(kInCpp));
  for (size_t i = 0; i < std::size(kInCpp); ++i) EXPECT_EQ(text_of(in_c()[i]), text_of(kInCpp[i]));
}

TEST(PluginLayout, IsWhatPluginsWereCompiledAgainst) {
  const std::vector<std::string> golden = golden_lines();
  ASSERT_FALSE(golden.empty());
  std::vector<std::string> now;
  for (const plugin_layout_line& line : in_c()) now.push_back(text_of(line));
  const std::set<std::string> before(golden.begin(), golden.end()), after(now.begin(), now.end());
  std::set<std::string> known;
  for (const std::string& line : golden) known.insert(key_of(line));
  for (const std::string& line : golden) {
    if (after.contains(line)) continue;
    std::string instead = "gone";
    for (const std::string& other : now) {
      if (key_of(other) == key_of(line)) instead = other;
    }
    ADD_FAILURE()
        << "the layout had\n  " << line << "\nwhich now is\n  " << instead
        << "\nFields may only be appended, at a struct's end and under a higher CHORAL_ABI_MINOR: plug-ins that exist were "
           "compiled with the old line. Only when all you did is append, replace the lines of sizes and of the minor version in "
           "tests/data/plugin/abi_layout.txt.";
  }
  for (const std::string& line : now) {
    if (!before.contains(line) && !known.contains(key_of(line))) {
      ADD_FAILURE() << "new: raise CHORAL_ABI_MINOR and add this line to tests/data/plugin/abi_layout.txt:\n" << line;
    }
  }
}

// A byte that belongs to no field can't be given a meaning later, and differs between compilers.
TEST(PluginLayout, HasNoHolesAndForgetsNoField) {
  std::string type;
  size_t end = 0, size = 0;
  const auto close = [&] { EXPECT_EQ(end, size) << type << ": bytes at its end, or a field that the list forgets"; };
  for (const plugin_layout_line& line : in_c()) {
    const std::string kind = line.kind;
    if (kind != "field") close(), end = size = 0;
    if (kind == "struct") type = line.name, size = line.value;
    if (kind != "field") continue;
    EXPECT_EQ(line.offset, end) << line.name << ": bytes before it, or a field that the list forgets";
    end = line.offset + line.value;
  }
  close();
}

TEST(PluginLayout, ForgetsNoStructAndNoNumber) {
  const std::string folder = std::string(CHORAL_TEST_DATA) + "/../../include/choral/";
  const std::string header = read_file(folder + "plugin.h") + read_file(folder + "plugin_operators.h");
  std::set<std::string> listed;
  for (const plugin_layout_line& line : in_c()) listed.insert(line.name);
  const std::regex declared(R"(typedef struct (choral_\w+) \{|#define (CHORAL_\w+) \d+)");
  size_t found = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), declared), none; it != none; ++it, ++found) {
    const std::string name = (*it)[1].matched ? (*it)[1] : (*it)[2];
    EXPECT_TRUE(listed.contains(name)) << name << " is missing in tests/support/plugin_layout_list_inl.h";
  }
  EXPECT_GT(found, 50u);
}

// The host casts between the two.
TEST(PluginLayout, NumbersAreTheHosts) {
  EXPECT_EQ(CHORAL_INVALID_ARGUMENT, static_cast<int>(Code::kInvalidArgument));
  EXPECT_EQ(CHORAL_UNSUPPORTED, static_cast<int>(Code::kUnsupported));
  EXPECT_EQ(CHORAL_RESOURCE_EXHAUSTED, static_cast<int>(Code::kResourceExhausted));
  EXPECT_EQ(CHORAL_UNAVAILABLE, static_cast<int>(Code::kUnavailable));
  EXPECT_EQ(CHORAL_INTERNAL, static_cast<int>(Code::kInternal));
  const std::pair<int, DType> types[] = {
      {CHORAL_F32, DType::kF32},       {CHORAL_F16, DType::kF16},         {CHORAL_BF16, DType::kBF16},
      {CHORAL_I8, DType::kI8},         {CHORAL_E4M3, DType::kF8E4M3},     {CHORAL_Q8_0, DType::kQ8_0},
      {CHORAL_Q4_0, DType::kQ4_0},     {CHORAL_Q4_1, DType::kQ4_1},       {CHORAL_Q5_0, DType::kQ5_0},
      {CHORAL_Q5_1, DType::kQ5_1},     {CHORAL_Q4_K, DType::kQ4_K},       {CHORAL_Q5_K, DType::kQ5_K},
      {CHORAL_Q6_K, DType::kQ6_K},     {CHORAL_Q2_K, DType::kQ2_K},       {CHORAL_Q3_K, DType::kQ3_K},
      {CHORAL_IQ4_NL, DType::kIQ4_NL}, {CHORAL_IQ4_XS, DType::kIQ4_XS},   {CHORAL_TQ1_0, DType::kTQ1_0},
      {CHORAL_TQ2_0, DType::kTQ2_0},   {CHORAL_MXFP4, DType::kMXFP4},     {CHORAL_IQ1_S, DType::kIQ1_S},
      {CHORAL_IQ1_M, DType::kIQ1_M},   {CHORAL_IQ2_XXS, DType::kIQ2_XXS}, {CHORAL_IQ2_XS, DType::kIQ2_XS},
      {CHORAL_IQ2_S, DType::kIQ2_S},   {CHORAL_IQ3_XXS, DType::kIQ3_XXS}, {CHORAL_IQ3_S, DType::kIQ3_S}};
  for (const auto& [number, type] : types) EXPECT_EQ(number, static_cast<int>(type)) << dtype_name(type);
  EXPECT_EQ(CHORAL_X_FULL, static_cast<int>(kernels::Activations::kFull));
  EXPECT_EQ(CHORAL_X_INT8_BLOCKS, static_cast<int>(kernels::Activations::kInt8Blocks));
  EXPECT_EQ(CHORAL_X_INT8_ROWS, static_cast<int>(kernels::Activations::kInt8Rows));
  EXPECT_EQ(CHORAL_X_16, static_cast<int>(kernels::Activations::k16Bits));
  EXPECT_EQ(CHORAL_LINEAR, static_cast<int>(kernels::Codebook::kLinear));
  EXPECT_EQ(CHORAL_E2M1, static_cast<int>(kernels::Codebook::kE2M1));
  EXPECT_EQ(CHORAL_TOKEN_CHOSEN, static_cast<int>(kernels::RowOutcome::kToken));
  EXPECT_EQ(CHORAL_LOGITS_NAN, static_cast<int>(kernels::RowOutcome::kNaN));
  EXPECT_EQ(CHORAL_LOGITS_INFINITE, static_cast<int>(kernels::RowOutcome::kInfinity));
  EXPECT_EQ(CHORAL_NO_TOKEN_LEFT, static_cast<int>(kernels::RowOutcome::kNothingLeft));
}

}  // namespace
}  // namespace choral::platform
