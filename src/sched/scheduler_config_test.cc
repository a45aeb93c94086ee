#include "sched/scheduler_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::sched {
namespace {

using testing::HasSubstr;

TEST(SchedulerConfig, DefaultsAreValid) { EXPECT_TRUE(validate({}).ok()); }

TEST(SchedulerConfig, EachNonsenseIsNamed) {
  const auto message = [](auto change) {
    SchedulerConfig config;
    change(config);
    const Status status = validate(config);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message([](auto& c) { c.max_num_seqs = 0; }), HasSubstr("max_num_seqs is 0"));
  EXPECT_THAT(message([](auto& c) { c.max_num_batched_tokens = -1; }), HasSubstr("max_num_batched_tokens"));
  EXPECT_THAT(message([](auto& c) { c.max_model_len = 1; }), HasSubstr("max_model_len"));
  EXPECT_THAT(message([](auto& c) { c.max_waiting = 0; }), HasSubstr("max_waiting"));
  EXPECT_THAT(message([](auto& c) { c.max_prefill_chunk = -5; }), HasSubstr("max_prefill_chunk"));
  EXPECT_THAT(message([](auto& c) { c.max_loras = -1; }), HasSubstr("max_loras"));
  EXPECT_THAT(message([](auto& c) { c.promote_after_steps = 0; }), HasSubstr("promote_after_steps"));
  EXPECT_THAT(message([](auto& c) { c.watermark_blocks = -2; }), HasSubstr("watermark_blocks"));
  EXPECT_THAT(message([](auto& c) { c.max_num_batched_tokens = c.max_num_seqs - 1; }), HasSubstr("not every running request"));
  EXPECT_THAT(message([](auto& c) { c.enable_chunked_prefill = false; }), HasSubstr("without chunked prefill"));
  EXPECT_THAT(message([](auto& c) {
                c.enable_chunked_prefill = false;
                c.max_num_batched_tokens = c.max_model_len;
                c.max_prefill_chunk = 8;
              }),
              HasSubstr("max_prefill_chunk"));
}

}  // namespace
}  // namespace choral::sched
