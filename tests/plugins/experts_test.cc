// Mixtures of experts on a device that has their operators.
#include "host_copies.h"
#include "plugin_engine.h"

namespace choral::plugins {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

struct Mixture {
  const char* model;
  int64_t layers;  // with experts
};

class ExpertsTest : public PluginTest, public ::testing::WithParamInterface<Mixture> {};

TEST_P(ExpertsTest, AnswerAsOnTheCpu) {
  const Variable complete("CHORAL_REF_COMPLETE", "1");
  const auto llm = load(options("ref_device", GetParam().model));
  expect_equal(answers(*llm), cpu_answers(GetParam().model));
  EXPECT_THAT(llm->device_notes(), Contains(HasSubstr("fused operators loaded: ")));
  EXPECT_THAT(llm->device_notes(), Not(Contains(HasSubstr("served by the CPU"))));
  for (const char* op : {"moe_combine", "take_rows", "grouped_matmul"}) {
    EXPECT_THAT(llm->info().notes, Not(Contains(HasSubstr(std::string(op) + " is served by the CPU"))));
  }
}

TEST_P(ExpertsTest, RowsStayOnTheDevice) {
  const auto copies = [] { return copies_of_an_answer(*load(options("ref_device", GetParam().model))); };
  EXPECT_GT(copies(), least_copies(GetParam().layers));
  const Variable complete("CHORAL_REF_COMPLETE", "1");
  EXPECT_EQ(copies(), least_copies(GetParam().layers));
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsTest, ::testing::Values(Mixture{"tiny-qwen3moe", 3}, Mixture{"tiny-gpt-oss", 2}),
                         [](const auto& tested) { return std::string(tested.param.model).substr(5, 3); });

}  // namespace
}  // namespace choral::plugins
