// Mixtures of experts on a device that has their operators.
#include <thread>

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

class ExpertsTest : public PluginTest, public ::testing::WithParamInterface<Mixture> {
 protected:
  static int64_t host_copies(LLM& llm) {
    while (llm.stats().running > 0) std::this_thread::yield();  // the last step's count comes after its token
    return llm.stats().host_copies;
  }
  // In the steps of one prompt's answer.
  static int64_t copies_of_an_answer() {
    const auto llm = load(options("ref_device", GetParam().model));
    const auto answer = [&](int32_t first) {
      EXPECT_TRUE(llm->generate({engine::greedy_request({first, 6, 7}, 4)}).front().status.ok());
      return host_copies(*llm);
    };
    const int64_t before = answer(1);  // and what holds the fused operators to their reference
    return answer(5) - before;
  }
};

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

// Of a step the last row's logits come; of a layer with experts its router's, and where the weights go that are chosen by them.
TEST_P(ExpertsTest, RowsStayOnTheDevice) {
  const int64_t steps = 4, least = steps * (1 + 2 * GetParam().layers);
  EXPECT_GT(copies_of_an_answer(), least);
  const Variable complete("CHORAL_REF_COMPLETE", "1");
  EXPECT_EQ(copies_of_an_answer(), least);
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertsTest, ::testing::Values(Mixture{"tiny-qwen3moe", 3}, Mixture{"tiny-gpt-oss", 2}),
                         [](const auto& tested) { return std::string(tested.param.model).substr(5, 3); });

}  // namespace
}  // namespace choral::plugins
