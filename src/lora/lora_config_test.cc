#include "lora/lora_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lora/lora_request.h"

namespace choral::lora {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LoRAConfig, DefaultsAreLegal) {
  const LoRAConfig config;
  EXPECT_TRUE(config.validate().ok());
  EXPECT_EQ(config.max_loras, 8);
  EXPECT_EQ(config.max_lora_rank, 64);
  EXPECT_EQ(config.lora_dtype, LoRADType::kAuto);
  EXPECT_EQ(config.lora_extra_vocab_size, 256);
  EXPECT_FALSE(config.max_cpu_loras.has_value());
  EXPECT_FALSE(config.fully_sharded_loras);
  EXPECT_TRUE(config.bias_enabled);
}

TEST(LoRAConfig, LimitsAreInclusive) {
  LoRAConfig config;
  config.max_loras = 1;
  config.max_cpu_loras = 1;
  for (const int64_t rank : {1, 3, 512}) {
    config.max_lora_rank = rank;
    EXPECT_TRUE(config.validate().ok()) << rank;
  }
  for (const int64_t rank : {0, -1, 513}) {
    config.max_lora_rank = rank;
    EXPECT_FALSE(config.validate().ok()) << rank;
  }
}

TEST(LoRAConfig, AdvisesOnlyLimitsThatItTakes) {
  EXPECT_EQ(LoRAConfig::rank_advice(512), "start with --max-lora-rank 512");
  for (const int64_t rank : {int64_t{513}, int64_t{1024}, int64_t{1'000'000'000}}) {
    EXPECT_EQ(LoRAConfig::rank_advice(rank), "no rank above 512 is served") << rank;
  }
}

TEST(LoRAConfig, AllProblemsAtOnce) {
  LoRAConfig config;
  config.max_loras = 0;
  config.max_lora_rank = 1000;
  config.lora_extra_vocab_size = -1;
  config.max_cpu_loras = -3;
  config.long_lora_scaling_factors = {1.0, 4.0, 0.5};
  EXPECT_THAT(config.validate().message(),
              AllOf(HasSubstr("6 problems"), HasSubstr("\n  max_loras is 0"), HasSubstr("\n  max_lora_rank is 1000"),
                    HasSubstr("\n  lora_extra_vocab_size is -1"), HasSubstr("\n  max_cpu_loras is -3"), HasSubstr("has 4"),
                    HasSubstr("has 0.5")));
  config = {};
  config.max_loras = 4;
  config.max_cpu_loras = 3;
  EXPECT_THAT(config.validate().message(), HasSubstr("max_cpu_loras is 3; it must be at least max_loras (4)"));
}

TEST(LoRAConfig, TokensOfAnAdaptersOwn) {
  LoRAConfig config;
  for (const int64_t tokens : {0, 1, 65536}) {
    config.lora_extra_vocab_size = tokens;
    EXPECT_TRUE(config.validate().ok()) << tokens;
  }
  config.lora_extra_vocab_size = 65537;
  EXPECT_THAT(config.validate().message(), HasSubstr("lora_extra_vocab_size is 65537; it must be 0 to 65536"));
  EXPECT_EQ(LoRAConfig::extra_vocab_advice(65536), "start with --lora-extra-vocab-size 65536");
  EXPECT_EQ(LoRAConfig::extra_vocab_advice(65537), "no more than 65536 are served");
}

TEST(LoRAConfig, TypesAndTheirSpellings) {
  for (const auto& [name, type] : std::vector<std::pair<std::string, LoRADType>>{{"auto", LoRADType::kAuto},
                                                                                 {"fp16", LoRADType::kFloat16},
                                                                                 {"half", LoRADType::kFloat16},
                                                                                 {"bf16", LoRADType::kBFloat16},
                                                                                 {"float32", LoRADType::kFloat32},
                                                                                 {"fp32", LoRADType::kFloat32},
                                                                                 {"int8", LoRADType::kInt8}}) {
    const auto parsed = parse_lora_dtype(name);
    ASSERT_TRUE(parsed.ok()) << name;
    EXPECT_EQ(*parsed, type);
  }
  EXPECT_THAT(parse_lora_dtype("fp8").status().message(), AllOf(HasSubstr("'fp8'"), HasSubstr("bfloat16")));
}

LoRARequest fields(std::string name, int64_t id, std::string path) {
  LoRARequest request;
  request.lora_name = std::move(name);
  request.lora_int_id = id;
  request.lora_path = std::move(path);
  return request;
}

TEST(LoRARequest, ChecksItsFields) {
  EXPECT_TRUE(LoRARequest::make(fields("a", 1, "/x")).ok());
  EXPECT_THAT(LoRARequest::make(fields("", 0, "")).status().message(),
              AllOf(HasSubstr("3 problems"), HasSubstr("lora_name"), HasSubstr("0 is the base"), HasSubstr("lora_path")));
  EXPECT_FALSE(LoRARequest::make(fields("a", -1, "/x")).ok());
  EXPECT_FALSE(LoRARequest::make(fields("a", 1, std::string("/x\0y", 4))).ok());
  LoRARequest request = fields("a", 1, "/x");
  request.long_lora_max_len = 0;
  EXPECT_FALSE(LoRARequest::make(request).ok());
}

TEST(LoRARequest, TakesTheOldSpelling) {
  LoRARequest request = fields("a", 1, "");
  request.lora_local_path = "/old";
  const auto made = LoRARequest::make(request);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->lora_path, "/old");
  EXPECT_TRUE(made->lora_local_path.empty());
  request.lora_path = "/new";
  EXPECT_THAT(LoRARequest::make(request).status().message(), HasSubstr("they differ"));
}

TEST(LoRARequest, EqualByName) {
  EXPECT_EQ(fields("a", 1, "/x"), fields("a", 2, "/y"));
  EXPECT_FALSE(fields("a", 1, "/x") == fields("b", 1, "/x"));
  EXPECT_EQ(std::hash<LoRARequest>()(fields("a", 1, "/x")), std::hash<LoRARequest>()(fields("a", 2, "/y")));
}

}  // namespace
}  // namespace choral::lora
