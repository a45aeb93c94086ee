// What descriptions of checkpoints say of each layer.
#include "quant/formats/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace choral::quant {
namespace {

using ::testing::HasSubstr;

using Read = Result<std::unique_ptr<QuantConfig>> (*)(const io::ConfigMap&);

io::ConfigMap json(std::string_view text) {
  auto map = io::ConfigMap::parse_json(text, "config.json");
  CHORAL_CHECK(map.ok(), map.status().message());
  return *map;
}
std::string refused(Read read, std::string_view text) { return read(json(text)).status().message(); }

bool is_float(const QuantConfig& config, std::string_view layer, LayerKind kind = LayerKind::kLinear) {
  const auto scheme = config.scheme_for(kind, layer);
  CHORAL_CHECK(scheme.ok(), scheme.status().message());
  return scheme->scheme == float_scheme();
}

// Whether a layer has these parameters in the checkpoint.
bool has(const QuantConfig& config, std::string layer, const std::vector<std::string>& parameters) {
  const auto scheme = config.scheme_for(LayerKind::kLinear, layer);
  CHORAL_CHECK(scheme.ok(), scheme.status().message());
  ParameterSet registered;
  scheme->scheme->create_weights({.in = 64, .out = {8}, .shard_names = {layer}}, registered);
  return std::all_of(parameters.begin(), parameters.end(), [&](const auto& name) { return registered.contains(name); });
}

TEST(Awq, SkipsWhatItsListNames) {
  const auto config = *read_awq(json(R"({"bits": 4, "group_size": 32, "zero_point": true, "version": "gemm",
    "modules_to_not_convert": ["mlp.gate"]})"));
  EXPECT_FALSE(is_float(*config, "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(is_float(*config, "model.layers.0.mlp.gate"));
  EXPECT_TRUE(is_float(*config, "lm_head", LayerKind::kLmHead));
  EXPECT_TRUE(has(*config, "l", {"qweight", "qzeros", "scales"}));
}

TEST(Awq, RefusesOtherLayoutsByName) {
  EXPECT_THAT(refused(read_awq, R"({"bits": 3, "group_size": 32})"), HasSubstr("config.json: bits is 3, which is not read"));
  EXPECT_THAT(refused(read_awq, R"({"bits": 4, "group_size": 32, "version": "gemv"})"), HasSubstr("version is gemv"));
  EXPECT_THAT(refused(read_awq, R"({"bits": 4, "group_size": 32, "zero_point": false})"), HasSubstr("zero_point is false"));
  EXPECT_THAT(refused(read_awq, R"({"bits": 4})"), HasSubstr("group_size is missing"));
  EXPECT_THAT(refused(read_awq, R"({"bits": 4, "group_size": 7})"), HasSubstr("group_size is 7"));
}

TEST(Gptq, ReadsWidthsListsAndExceptions) {
  const auto config = *read_gptq(json(R"({"bits": 4, "group_size": 128, "sym": true, "desc_act": true, "lm_head": true,
    "dynamic": {"-:.*\\.o_proj": {}, "+:.*\\.down_proj": {"bits": 8}}})"));
  EXPECT_FALSE(is_float(*config, "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(is_float(*config, "model.layers.0.self_attn.o_proj"));
  EXPECT_FALSE(is_float(*config, "lm_head", LayerKind::kLmHead));
  EXPECT_TRUE(is_float(*config, "model.layers.0.mlp.gate", LayerKind::kRouter));
  EXPECT_NE(config->scheme_for(LayerKind::kLinear, "m.down_proj")->scheme,
            config->scheme_for(LayerKind::kLinear, "m.up_proj")->scheme);
  const auto some =
      *read_gptq(json(R"({"bits": 4, "group_size": -1, "modules_in_block_to_quantize": [["q_proj"], ["mlp.up_proj"]]})"));
  EXPECT_FALSE(is_float(*some, "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(is_float(*some, "model.layers.0.mlp.down_proj"));
  EXPECT_TRUE(is_float(*some, "lm_head", LayerKind::kLmHead));
}

TEST(Gptq, RefusesWhatItDoesNotRead) {
  EXPECT_THAT(refused(read_gptq, R"({"bits": 5, "group_size": 128})"), HasSubstr("bits is 5"));
  EXPECT_THAT(refused(read_gptq, R"({"bits": 4, "group_size": 128, "checkpoint_format": "marlin"})"),
              HasSubstr("checkpoint_format is marlin, which is not read; what is: gptq, gptq_v2"));
  EXPECT_THAT(refused(read_gptq, R"({"bits": 4, "group_size": 128, "modules_in_block_to_quantize": 3})"), HasSubstr("no list"));
  EXPECT_THAT(refused(read_gptq, R"({"bits": 4, "group_size": 128, "dynamic": {"+:(": {}}})"),
              HasSubstr("no regular expression"));
}

constexpr std::string_view kDescription = R"({"version": "1.0.0", "model_quant_type": "W8A8_DYNAMIC", "group_size": 0,
  "a.weight": "W8A8", "b.weight": "W8A8_DYNAMIC", "c.weight": "FLOAT", "d.weight": "W4A8_DYNAMIC", "e.weight": "W8A16",
  "f.weight": "W4A16", "g.weight": "W4A4_FLATQUANT_DYNAMIC", "lm_head.weight": "FLOAT", "h.weight": 3})";

TEST(ModelSlim, GivesEachLayerTheTypeOfItsWeight) {
  const auto config = *read_modelslim(json(kDescription));
  EXPECT_TRUE(has(*config, "a", {"weight", "input_scale", "input_offset", "deq_scale", "quant_bias"}));
  EXPECT_TRUE(has(*config, "b", {"weight", "weight_scale", "weight_offset"}));
  EXPECT_TRUE(is_float(*config, "c"));
  EXPECT_TRUE(is_float(*config, "lm_head", LayerKind::kLmHead));
  EXPECT_TRUE(is_float(*config, "model.embed_tokens", LayerKind::kEmbedding));
  EXPECT_TRUE(has(*config, "d", {"scale_bias"}));
  EXPECT_TRUE(has(*config, "f", {"weight_packed"}));
}

TEST(ModelSlim, NamesTheLayerAndTheTypeItDoesNotKnow) {
  const auto config = *read_modelslim(json(kDescription));
  const auto why = [&](std::string_view layer) { return config->scheme_for(LayerKind::kLinear, layer).status().message(); };
  EXPECT_THAT(why("g"),
              HasSubstr("config.json: g.weight is W4A4_FLATQUANT_DYNAMIC for a layer of kind linear, which is not read; "
                        "what is: FLOAT, W8A8, W8A8_DYNAMIC, W4A8_DYNAMIC, W8A16, W4A16"));
  EXPECT_THAT(why("h"), HasSubstr("h.weight is the integer 3"));
  EXPECT_THAT(why("nowhere"), HasSubstr("nowhere.weight is missing"));
  EXPECT_THAT(config->scheme_for(LayerKind::kEmbedding, "b").status().message(), HasSubstr("of kind embedding"));
}

TEST(ModelSlim, FusedMembersMustAgree) {
  const auto config = *read_modelslim(json(kDescription));
  EXPECT_THAT(
      config->get_quant_method(LayerKind::kLinear, {.in = 64, .out = {8, 8}, .shard_names = {"b", "c"}}).status().message(),
      HasSubstr("b and c are computed as one matrix"));
}

}  // namespace
}  // namespace choral::quant
