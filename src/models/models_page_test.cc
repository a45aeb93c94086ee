// docs/models.md names what the tables of the source have, and nothing else.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <regex>
#include <set>

#include "io/gguf_names.h"
#include "io/mapped_file.h"
#include "kernels/quant/stored_types.h"
#include "models/registry.h"
#include "quant/format_names.h"
#include "quant/quant_config.h"

namespace choral::models {
namespace {

using ::testing::HasSubstr;

std::string page() { return *io::read_whole_file(std::filesystem::path(CHORAL_TEST_DATA) / "../../docs/models.md", 1 << 20); }

std::set<std::string> found_in(const std::string& text, const char* pattern) {
  std::set<std::string> out;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) out.insert((*at)[1]);
  return out;
}

TEST(ModelsPage, HasEveryFamilyAndItsGgufName) {
  const std::string text = page();
  const auto known = known_architectures();
  EXPECT_EQ(found_in(text, "`(\\w+ForCausalLM)`"), std::set<std::string>(known.begin(), known.end()));
  for (const auto& architecture : known) {
    const auto gguf = io::gguf_architecture_of(architecture);
    const size_t row = text.find("`" + architecture + "`");
    EXPECT_THAT(text.substr(row, text.find('\n', row) - row), HasSubstr(gguf ? fmt::format("`{}`", gguf->name) : "| none |"));
  }
}

TEST(ModelsPage, HasEveryQuantizationInFlight) {
  const std::string text = page();
  const size_t begin = text.find("| `--quantization`");
  const auto row = text.substr(begin, text.find('\n', begin) - begin);
  auto named = found_in(row, "`([a-z0-9_]+)`");
  const auto known = quant::in_flight_names();
  EXPECT_EQ(named, std::set<std::string>(known.begin(), known.end()));
}

TEST(ModelsPage, HasEveryFormOfWeights) {
  const std::string text = page();
  const size_t begin = text.find("## Forms of their weights"), flight = text.find("| `--quantization`");
  const auto named = found_in(text.substr(begin, flight - begin), "`([a-z0-9_-]+)`");
  const auto formats = quant::checkpoint_format_names();
  std::set<std::string> known(formats.begin(), formats.end());
  known.insert("quant_method");
  for (const DType type : kernels::stored_types()) {
    if (facts(type).is_block) known.emplace(dtype_name(type));
  }
  EXPECT_EQ(named, known);
}

}  // namespace
}  // namespace choral::models
