// Weights that a device does not give back: whoever needed a row is told, and nobody computes with a row that was never read.
#include "plugins/plugin_adapters.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kDevice = "ref_fault_rows_lost";
const std::string kNever = "1000000000";

class ReadBackTest : public PluginTest {
 protected:
  static bool says_why(const Status& status) {
    return status.code() == Code::kUnavailable && status.message().find("reading back row") != std::string::npos &&
           status.message().find("does not answer") != std::string::npos;
  }
};

TEST_F(ReadBackTest, WithoutANeedForRowsAllIsWell) {
  const Variable at("CHORAL_REF_FAULT_AT", kNever);
  expect_equal(answers(*load(options(kDevice))), cpu_answers());
}

// The plain forms look tokens up row by row.
TEST_F(ReadBackTest, ALookupEndsItsStep) {
  const Variable at("CHORAL_REF_FAULT_AT", kNever);
  auto plain = options(kDevice);
  plain.custom_ops = "none";
  const auto llm = load(plain);
  for (const auto& output : answers(*llm)) {
    EXPECT_TRUE(says_why(output.status)) << output.status.to_string();
    EXPECT_THAT(output.status.message(), HasSubstr(kDevice));
    EXPECT_TRUE(output.completions.at(0).token_ids.empty());
  }
  EXPECT_THAT(llm->device_notes(), Contains(AllOf(HasSubstr("device lost"), HasSubstr("reading back row"))));
}

// An operator that fails is the host's from then on, for which a matmul needs the weight. A layer has fewer operators than marks
// are tried here, so each kind fails once; of the others only the cache's end their step.
TEST_F(ReadBackTest, AnOperatorThatCannotMoveToTheHostEndsItsStep) {
  const auto wanted = cpu_answers();
  int read_back = 0, moved = 0;
  for (int mark = 308; mark < 324; ++mark) {
    const Variable at("CHORAL_REF_FAULT_AT", std::to_string(mark));
    const auto llm = load(options(kDevice));
    const auto outputs = answers(*llm);
    const auto& status = outputs.front().status;
    if (status.ok()) {
      expect_equal(outputs, wanted);
      ++moved;
    } else if (says_why(status)) {
      EXPECT_THAT(llm->device_notes(),
                  Contains(::testing::ContainsRegex("(matmul|gather_rows) is served by the CPU: it failed")));
      ++read_back;
    } else {
      EXPECT_THAT(status.message(), ::testing::AnyOf(HasSubstr("write_kv: "), HasSubstr("paged_attention: ")));
    }
  }
  EXPECT_GT(read_back, 0);
  EXPECT_GT(moved, 0);
}

TEST_F(ReadBackTest, AnAdapterThatNeedsThemIsRefusedAlone) {
  const Variable at("CHORAL_REF_FAULT_AT", kNever);
  const testing::TempDir folder;
  const std::string dora = write_dora(folder);
  auto good = engine::greedy_request(engine::random_prompt(9, 1), 8), bad = good;
  bad.adapters = {{"dora"}};

  auto named = options("cpu");
  named.adapters = {{"dora", dora}};
  const auto cpu = load(named);
  EXPECT_TRUE(cpu->generate({bad}).front().status.ok()) << "the adapter itself is fine";
  named.device = kDevice;
  const auto refused = LLM::load(named).status();  // what is named at the start is read there
  EXPECT_TRUE(says_why(refused)) << refused.to_string();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("dora"), HasSubstr("q_proj")));

  auto found = options(kDevice);
  found.adapter_root = folder.path().string();
  const auto outputs = load(found)->generate({good, bad, good});
  EXPECT_TRUE(says_why(outputs[1].status)) << outputs[1].status.to_string();
  EXPECT_THAT(outputs[1].status.message(), AllOf(HasSubstr("dora"), HasSubstr("q_proj")));
  const auto wanted = cpu->generate({good}).front();
  expect_equal({outputs[0], outputs[2]}, {wanted, wanted});
}

}  // namespace
}  // namespace choral::plugins
