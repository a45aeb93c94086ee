#include "io/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using choral::testing::TempDir;
using ::testing::ElementsAre;
using testing::GgufSpec;
using ::testing::HasSubstr;
using testing::le;

Result<ConfigMap> normalised(std::string_view json) {
  auto map = ConfigMap::parse_json(json, "config.json");
  EXPECT_TRUE(map.ok()) << map.status().message();
  return normalise_model_config(*map);
}

// What says nothing about the model's arithmetic, and what transformers 5 adds with the value that absence means.
const std::set<std::string> kSilent{"transformers_version",
                                    "pad_token_id",
                                    "output_router_logits",
                                    "pretraining_tp",
                                    "qk_head_dim",
                                    "head_dim",
                                    "mlp_bias",
                                    "num_nextn_predict_layers",
                                    "tie_word_embeddings",
                                    "use_bidirectional_attention"};

class BothSpellings : public ::testing::TestWithParam<std::string> {};

TEST_P(BothSpellings, GiveTheSameConfiguration) {
  const std::string folder = std::string(CHORAL_TEST_DATA "/io/") + GetParam();
  const auto old_map = load_model_config(folder);
  ASSERT_TRUE(old_map.ok()) << old_map.status().message();
  const auto raw = ConfigMap::read_json_file(folder + "/config.transformers5.json");
  ASSERT_TRUE(raw.ok());
  const auto new_map = normalise_model_config(*raw);
  ASSERT_TRUE(new_map.ok()) << new_map.status().message();

  std::set<std::string> keys;
  for (const auto* map : {&*old_map, &*new_map}) {
    for (const auto& member : map->members()) keys.insert(member.key);
  }
  // Objects are compared key by key: transformers 5 sorts them otherwise.
  const auto sorted = [](const ConfigValue* value) {
    if (value == nullptr || value->if_object() == nullptr) return value == nullptr ? std::string("absent") : value->to_json();
    std::set<std::string> parts;
    for (const auto& member : value->if_object()->members()) parts.insert(member.key + "=" + member.value.to_json());
    return fmt::format("{}", fmt::join(parts, ","));
  };
  for (const auto& key : keys) {
    if (!kSilent.contains(key)) {
      EXPECT_EQ(sorted(old_map->find(key)), sorted(new_map->find(key))) << key;
    }
  }
  for (const auto* map : {&*old_map, &*new_map}) {
    EXPECT_TRUE(map->get_double("rope_theta").ok());
    EXPECT_TRUE(map->get_string("torch_dtype").ok());
    EXPECT_FALSE(map->contains("rope_parameters") || map->contains("dtype"));
  }
}

INSTANTIATE_TEST_SUITE_P(TinyModels, BothSpellings,
                         ::testing::Values("tiny-llama3", "tiny-qwen2", "tiny-qwen3", "tiny-mistral", "tiny-gemma2",
                                           "tiny-gemma3", "tiny-deepseek-v2-lite", "tiny-deepseek-v2", "tiny-deepseek-v3",
                                           "tiny-qwen3moe", "tiny-mixtral"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(NormaliseModelConfig, RopeScalingHasOneSpelling) {
  EXPECT_EQ(normalised(R"({"rope_scaling": {"type": "yarn", "factor": 4}})")->find("rope_scaling")->to_json(),
            R"({"factor": 4, "rope_type": "yarn"})");
  EXPECT_EQ(*normalised(R"({"rope_scaling": {"type": "su"}})")->get_map("rope_scaling")->get_string("rope_type"), "longrope");
  EXPECT_FALSE(normalised(R"({"rope_scaling": {"rope_type": "default"}})")->contains("rope_scaling"));
  EXPECT_FALSE(normalised(R"({"rope_scaling": null})")->contains("rope_scaling"));
  EXPECT_THAT(normalised(R"({"rope_scaling": {"factor": 4}})").status().message(),
              HasSubstr("config.json: rope_scaling: type is missing"));
  EXPECT_THAT(normalised(R"({"rope_scaling": 8})").status().message(), HasSubstr("rope_scaling"));
}

TEST(NormaliseModelConfig, AScalingKnowsItsFirstPositions) {
  const auto scaling = [](std::string_view json) { return normalised(json)->find("rope_scaling")->to_json(); };
  EXPECT_EQ(scaling(R"({"original_max_position_embeddings": 64, "rope_scaling": {"type": "su", "short_factor": [1]}})"),
            R"({"short_factor": [1], "rope_type": "longrope", "original_max_position_embeddings": 64})");
  for (const char* type : {"yarn", "llama3", "longrope"}) {
    EXPECT_EQ(scaling(fmt::format(
                  R"({{"original_max_position_embeddings": 64, "rope_scaling": {{"rope_type": "{}", "factor": 4}}}})", type)),
              fmt::format(R"({{"rope_type": "{}", "factor": 4, "original_max_position_embeddings": 64}})", type));
  }
  EXPECT_EQ(scaling(R"({"original_max_position_embeddings": 64, "rope_scaling": {"rope_type": "linear", "factor": 4}})"),
            R"({"rope_type": "linear", "factor": 4})");
  EXPECT_EQ(normalised(R"({"original_max_position_embeddings": 64, "rope_parameters": {"rope_type": "longrope", "rope_theta": 1,
                           "original_max_position_embeddings": 32}})")
                .status()
                .message(),
            "config.json: original_max_position_embeddings is 64, but within rope_scaling it is 32; remove one of the two");
}

TEST(NormaliseModelConfig, ThetaMayStandWithinTheScaling) {
  const auto map = normalised(R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5}})");
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(map->to_json(), R"({"rope_scaling": {"rope_type": "linear", "factor": 2}, "rope_theta": 500000.0})");
  EXPECT_EQ(*normalised(R"({"rope_scaling": {"rope_type": "default", "rope_theta": 5e5}})")->get_double("rope_theta"), 5e5);
  EXPECT_THAT(
      normalised(R"({"rope_theta": 1e4, "rope_scaling": {"rope_type": "default", "rope_theta": 5e5}})").status().message(),
      HasSubstr("rope_theta is 10000.0, but config.json: rope_scaling.rope_theta says 500000.0"));
  EXPECT_FALSE(normalised(R"({"rope_scaling": {"rope_type": "default", "rope_theta": 1},
                             "rope_parameters": {"rope_type": "default", "rope_theta": 2}})")
                   .ok());
}

TEST(NormaliseModelConfig, RopeParametersMoveOut) {
  const auto map =
      normalised(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5}})");
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(map->to_json(), R"({"rope_theta": 500000.0, "partial_rotary_factor": 0.5, "rope_scaling": null})");
  EXPECT_TRUE(normalised(R"({"rope_parameters": null, "rope_theta": 1e4})").ok());
  EXPECT_THAT(normalised(R"({"rope_parameters": {"full_attention": {"rope_theta": 1}, "linear_attention": {"rope_theta": 1}}})")
                  .status()
                  .message(),
              HasSubstr("linear_attention"));
  for (const char* key : {"rope_type", "type"}) {
    const auto sliding =
        normalised(fmt::format(R"({{"rope_parameters": {{"sliding_attention": {{"rope_theta": 1, "{}": "yarn"}}}}}})", key));
    EXPECT_EQ(sliding.status().code(), Code::kUnsupported) << key;
  }
}

TEST(NormaliseModelConfig, ContradictionsAreRefused) {
  EXPECT_THAT(
      normalised(R"({"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})").status().message(),
      HasSubstr("config.json: rope_theta is 10000.0, but config.json: rope_parameters.rope_theta says 500000.0"));
  EXPECT_TRUE(normalised(R"({"rope_theta": 10000, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})").ok());
  EXPECT_FALSE(normalised(R"({"rope_scaling": {"rope_type": "linear", "factor": 2},
                             "rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 1}})")
                   .ok());
  EXPECT_FALSE(normalised(R"({"dtype": "float32", "torch_dtype": "bfloat16"})").ok());
  EXPECT_FALSE(normalised(R"({"num_experts": 8, "num_local_experts": 4})").ok());
  EXPECT_EQ(normalised(R"({"num_experts": 8, "num_local_experts": 8.0})")->to_json(), R"({"num_experts": 8})");
  EXPECT_EQ(*normalised(R"({"n_routed_experts": 64})")->get_int("num_experts"), 64);
  EXPECT_FALSE(normalised(R"({"n_routed_experts": 64, "num_local_experts": 4})").ok());
}

TEST(NormaliseModelConfig, LayersOfHybridsHadOtherNames) {
  const std::string now = R"({"layer_types": ["linear_attention", "full_attention", "sliding_attention"]})";
  EXPECT_EQ(normalised(R"({"layer_types": ["mamba", "attention", "sliding_attention"]})")->to_json(), now);
  EXPECT_EQ(normalised(now)->to_json(), now);
  EXPECT_EQ(*normalised(R"({"layer_types": null, "layers_block_type": ["attention"]})")->get_strings("layer_types"),
            std::vector<std::string>{"full_attention"});
  EXPECT_EQ(normalised(R"({"layer_types": [3]})")->to_json(), R"({"layer_types": [3]})") << "whoever reads it says so";
}

TEST(LoadModelConfig, NamesWhatIsMissing) {
  const TempDir folder;
  EXPECT_EQ(load_model_config(folder / "absent").status().code(), Code::kNotFound);
  EXPECT_THAT(load_model_config(folder.path()).status().message(), HasSubstr("config.json"));
  folder.write("config.json", "{}");
  EXPECT_THAT(load_model_config(folder.path()).status().message(), HasSubstr("architectures is missing"));
  folder.write("config.json", R"({"architectures": []})");
  EXPECT_FALSE(load_model_config(folder.path()).ok());
}

TEST(LoadGenerationConfig, ReadsOneOrManyEndsAndMayBeAbsent) {
  const auto map = load_generation_config(CHORAL_TEST_DATA "/io/tiny-llama3");
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_THAT(*map->get_int_or_ints("eos_token_id"), ElementsAre(3989, 3997));
  EXPECT_TRUE(load_generation_config(CHORAL_TEST_DATA "/io/tiny-qwen2")->empty());
  const TempDir folder;
  folder.write("generation_config.json", "{");
  EXPECT_FALSE(load_generation_config(folder.path()).ok()) << "absent is fine, broken is not";
}

GgufSpec gguf(const std::string& arch) {
  GgufSpec spec;
  spec.metadata = {
      GgufSpec::kv_string("general.architecture", arch),      GgufSpec::kv_u32(arch + ".block_count", 2),
      GgufSpec::kv_u32(arch + ".context_length", 128),        GgufSpec::kv_u32(arch + ".embedding_length", 32),
      GgufSpec::kv_u32(arch + ".feed_forward_length", 64),    GgufSpec::kv_u32(arch + ".attention.head_count", 4),
      GgufSpec::kv_u32(arch + ".attention.head_count_kv", 2), GgufSpec::kv_f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f),
      GgufSpec::kv_f32(arch + ".rope.freq_base", 500000.0f),  GgufSpec::kv_u32("tokenizer.ggml.bos_token_id", 1),
      GgufSpec::kv_u32("tokenizer.ggml.eos_token_id", 2)};
  spec.tensors = {{"token_embd.weight", {32, 10}, 8, std::string(340, 0)}};
  return spec;
}

Result<ConfigMap> config_of(const GgufSpec& spec) {
  const TempDir folder;
  return load_model_config(folder.write("m.gguf", spec.build()));
}

TEST(ModelConfigFromGguf, SpeaksHuggingFace) {
  const auto map = config_of(gguf("llama"));
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(
      map->to_json(),
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32, )"
      R"("intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 128, "vocab_size": 10, "num_attention_heads": 4, )"
      R"("num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": null, )"
      R"("bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false})");
}

TEST(ModelConfigFromGguf, Variants) {
  GgufSpec spec = gguf("llama");
  EXPECT_FALSE(config_of(spec)->contains("_name_or_path"));
  spec.metadata.push_back(GgufSpec::kv_string("general.name", "Some Model 1B"));
  EXPECT_EQ(*config_of(spec)->get_string("_name_or_path"), "Some Model 1B");
  spec.metadata.back() = GgufSpec::kv_u32("general.name", 7);
  EXPECT_FALSE(config_of(spec)->contains("_name_or_path"));

  spec = gguf("qwen3");
  spec.metadata.push_back(GgufSpec::kv_u32("qwen3.attention.key_length", 16));
  spec.metadata.push_back(GgufSpec::kv_u32("qwen3.attention.value_length", 16));
  spec.metadata.push_back(GgufSpec::kv_u32("qwen3.rope.dimension_count", 16));
  spec.tensors.push_back({"output.weight", {32, 10}, 8, std::string(340, 0)});
  const auto qwen = config_of(spec);
  ASSERT_TRUE(qwen.ok()) << qwen.status().message();
  EXPECT_EQ(*qwen->get_int("head_dim"), 16);
  EXPECT_FALSE(*qwen->get_bool("tie_word_embeddings"));
  EXPECT_THAT(*qwen->get_strings("architectures"), ElementsAre("Qwen3ForCausalLM"));
  EXPECT_FALSE(qwen->contains("partial_rotary_factor"));

  spec = gguf("mistral");
  spec.metadata.push_back(GgufSpec::kv_u32("mistral.attention.sliding_window", 16));
  EXPECT_EQ(*config_of(spec)->get_int("sliding_window"), 16);

  spec = gguf("falcon");
  EXPECT_THAT(config_of(spec).status().message(), HasSubstr("'falcon' is not supported"));
  spec = gguf("llama");
  spec.metadata.push_back(GgufSpec::kv_u32("llama.expert_count", 8));
  EXPECT_THAT(config_of(spec).status().message(), HasSubstr("expert_used_count is missing"));
  spec.metadata.push_back(GgufSpec::kv_u32("llama.expert_used_count", 2));
  const auto mixtral = config_of(spec);
  ASSERT_TRUE(mixtral.ok()) << mixtral.status().message();
  EXPECT_THAT(*mixtral->get_strings("architectures"), ElementsAre("MixtralForCausalLM"));
  EXPECT_EQ(*mixtral->get_int("num_experts"), 8);
  EXPECT_EQ(*mixtral->get_int("num_experts_per_tok"), 2);
  spec = gguf("qwen3");
  spec.metadata.push_back(GgufSpec::kv_u32("qwen3.expert_count", 8));
  EXPECT_EQ(config_of(spec).status().code(), Code::kUnsupported);
  spec = gguf("llama");
  spec.metadata.erase(spec.metadata.begin() + 3);
  EXPECT_THAT(config_of(spec).status().message(), HasSubstr("llama.embedding_length is missing"));
  EXPECT_EQ(config_of(spec).status().code(), Code::kCorrupt);
}

TEST(ModelConfigFromGguf, WrongTypesAndValuesAreCorrupt) {
  for (const auto& [entry, words] : std::vector<std::pair<std::string, std::string>>{
           {GgufSpec::kv_string("llama.block_count", "2"), "block_count is the string"},
           {GgufSpec::kv_f32("llama.context_length", 1.5F), "context_length is the number"},
           {GgufSpec::kv_u32("llama.embedding_length", 0), "embedding_length is 0"},
           {GgufSpec::kv_string("llama.attention.layer_norm_rms_epsilon", "x"), "layer_norm_rms_epsilon is the string"},
           {GgufSpec::kv_f32("llama.attention.layer_norm_rms_epsilon", -1e-5F), "layer_norm_rms_epsilon is -"},
           {GgufSpec::kv_f32("llama.attention.layer_norm_rms_epsilon", NAN), "layer_norm_rms_epsilon is not a finite number"},
           {GgufSpec::kv_string("tokenizer.ggml.bos_token_id", "1"), "bos_token_id is the string"}}) {
    GgufSpec spec = gguf("llama");
    const std::string key = entry.substr(0, 8 + static_cast<unsigned char>(entry[0]));  // its length, then the key itself
    std::erase_if(spec.metadata, [&](const std::string& other) { return other.starts_with(key); });
    spec.metadata.push_back(entry);
    const Status status = config_of(spec).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << words;
    EXPECT_THAT(status.message(), HasSubstr(words));
  }
}

TEST(ModelConfigFromGguf, RopeScaling) {
  GgufSpec spec = gguf("llama");
  spec.metadata.push_back(GgufSpec::kv_string("llama.rope.scaling.type", "yarn"));
  spec.metadata.push_back(GgufSpec::kv_f32("llama.rope.scaling.factor", 4));
  spec.metadata.push_back(GgufSpec::kv_u32("llama.rope.scaling.original_context_length", 32));
  EXPECT_EQ(config_of(spec)->find("rope_scaling")->to_json(),
            R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})");
  spec = gguf("llama");
  spec.metadata.push_back(GgufSpec::kv_string("llama.rope.scaling.type", "longrope"));
  EXPECT_THAT(config_of(spec).status().message(), HasSubstr("rope_factors_long.weight is missing"));
  spec = gguf("llama");
  spec.tensors.push_back({"rope_freqs.weight", {4}, 0, le(1.0f) + le(1.5f) + le(8.0f) + le(8.0f)});
  EXPECT_EQ(config_of(spec)->find("rope_scaling")->to_json(),
            R"({"rope_type": "freq_factors", "freq_factors": [1.0, 1.5, 8.0, 8.0]})");
  spec.tensors.back().data = le(1.0f) + le(0.0f) + le(8.0f) + le(8.0f);
  EXPECT_EQ(config_of(spec).status().code(), Code::kCorrupt) << "a frequency divided by nothing";
}

TEST(GenerationConfigFromGguf, TheEndOfTurnEndsToo) {
  GgufSpec spec = gguf("llama");
  spec.metadata.push_back(GgufSpec::kv_u32("tokenizer.ggml.eot_token_id", 7));
  const TempDir folder;
  const auto map = load_generation_config(folder.write("m.gguf", spec.build()));
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_THAT(*map->get_int_or_ints("eos_token_id"), ElementsAre(2, 7));
}

TEST(GenerationConfigFromGguf, SamplingComesBackAsItWasWritten) {
  const auto stated =
      ConfigMap::parse_json(R"({"temperature": 0.625, "top_k": 20, "top_p": 0.5, "min_p": 0.25, "repetition_penalty": 1.125})",
                            "generation_config.json");
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "llama");
  ASSERT_TRUE(put_gguf_sampling(*stated, metadata).ok());
  const TempDir folder;
  const auto read = [&](const GgufMetadata& written) {
    auto writer = GgufWriter::create(folder.path() / "m.gguf", written, {});
    EXPECT_TRUE((*writer)->finish().ok());
    return *load_generation_config(folder.path() / "m.gguf");
  };
  EXPECT_EQ(read(metadata).to_json(), stated->to_json());
  GgufMetadata greedy;
  greedy.set_string("general.architecture", "llama");
  ASSERT_TRUE(put_gguf_sampling(*ConfigMap::parse_json(R"({"do_sample": false, "top_k": -1})", "x"), greedy).ok());
  EXPECT_EQ(read(greedy).to_json(), R"({"temperature": 0.0})");
}

}  // namespace
}  // namespace choral::io
