// What is written is read back by gguf.h, and names and orders by which files are written are those by which they are read.
#include "io/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "io/gguf_names.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Status write(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<TensorToCome>& tensors) {
  CHORAL_TRY(const auto writer, GgufWriter::create(path, metadata, tensors));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<std::byte> data(static_cast<size_t>(tensors[i].size_bytes()), std::byte(i + 1));
    CHORAL_RETURN_IF_ERROR(writer->append(data));
  }
  return writer->finish();
}

TEST(GgufWriter, ValuesAndTensorsAreReadBack) {
  const choral::testing::TempDir dir;
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "llama");
  metadata.set_u32("a.count", 4'000'000'000u);
  metadata.set_f32("a.share", 0.1f);
  metadata.set_bool("a.flag", true);
  metadata.set_strings("a.names", std::vector<std::string>{"ä", "", "c"});
  metadata.set_f32s("a.floats", std::vector{1.5f, -2.0f});
  metadata.set_i32s("a.ints", std::vector{-1, 7});
  metadata.set_bools("a.flags", {true, false, true});
  // The first one ends where none may begin.
  const std::vector<TensorToCome> tensors{
      {"odd", DType::kF32, {3}}, {"blocks", DType::kQ8_0, {2, 64}}, {"half", DType::kF16, {3, 5}}};
  ASSERT_TRUE(write(dir / "x.gguf", metadata, tensors).ok());
  const auto file = GgufFile::open(dir / "x.gguf");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const ConfigMap& read = (*file)->metadata();
  EXPECT_EQ((*file)->version(), 3u);
  EXPECT_EQ(*read.get_string("general.architecture"), "llama");
  EXPECT_EQ(*read.get_int("a.count"), 4'000'000'000);
  EXPECT_EQ(*read.get_double("a.share"), static_cast<double>(0.1f));
  EXPECT_TRUE(*read.get_bool("a.flag"));
  EXPECT_THAT(*read.get_strings("a.names"), ElementsAre("ä", "", "c"));
  EXPECT_THAT(*read.get_doubles("a.floats"), ElementsAre(1.5, -2.0));
  EXPECT_THAT(*read.get_ints("a.ints"), ElementsAre(-1, 7));
  EXPECT_EQ(read.find("a.flags")->to_json(), "[true, false, true]");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto view = *(*file)->find(tensors[i].name);
    EXPECT_EQ(view.dtype, tensors[i].dtype);
    EXPECT_EQ(view.shape, tensors[i].shape);
    for (int64_t b = 0; b < view.size_bytes(); ++b) ASSERT_EQ(view.data[b], std::byte(i + 1));
  }
}

// A tensor may come in pieces; the beginning is known before anything is written.
TEST(GgufWriter, PiecesMakeTheFileThatWholesMake) {
  const choral::testing::TempDir dir;
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "llama");
  const std::vector<TensorToCome> tensors{{"a", DType::kF32, {3}}, {"b", DType::kF16, {3, 5}}};
  ASSERT_TRUE(write(dir / "whole.gguf", metadata, tensors).ok());
  auto writer = *GgufWriter::create(dir / "pieces.gguf", metadata, tensors);
  for (const auto& [value, sizes] : {std::pair(1, std::vector{4, 8}), std::pair(2, std::vector{2, 20, 8})}) {
    for (const int size : sizes) {
      ASSERT_TRUE(writer->append(std::vector<std::byte>(static_cast<size_t>(size), std::byte(value))).ok());
    }
  }
  ASSERT_TRUE(writer->finish().ok());
  const auto whole = *GgufFile::open(dir / "whole.gguf"), pieces = *GgufFile::open(dir / "pieces.gguf");
  for (const char* name : {"a", "b"}) {
    const auto x = *whole->find(name), y = *pieces->find(name);
    EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<size_t>(x.size_bytes())), 0) << name;
  }
  const auto beginning = gguf_beginning(metadata, tensors);
  EXPECT_EQ(beginning.file_bytes, std::filesystem::file_size(dir / "pieces.gguf"));
  EXPECT_EQ(*read_whole_file(dir / "pieces.gguf", 1 << 20),
            beginning.bytes + std::string(12, 1) + std::string(20, 0) + std::string(30, 2) + std::string(2, 0));
}

TEST(GgufWriter, NothingStaysOfWhatIsNotFinished) {
  const choral::testing::TempDir dir;
  {
    const auto writer = GgufWriter::create(dir / "x.gguf", {}, {{"t", DType::kF32, {1}}});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(std::filesystem::exists((*writer)->unfinished_path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THAT(GgufWriter::create(dir / "no/x.gguf", {}, {}).status().message(), HasSubstr("cannot write"));
}

const GgufArchitecture& architecture(std::string_view hf_class) {
  static std::map<std::string_view, GgufArchitecture> known;
  return known.emplace(hf_class, *gguf_architecture_of(hf_class)).first->second;
}

TEST(GgufNames, TensorsHaveOneNameInEitherWay) {
  const auto& llama = architecture("LlamaForCausalLM");
  EXPECT_EQ(gguf_tensor_name(llama, "model.layers.3.self_attn.q_proj.weight"), "blk.3.attn_q.weight");
  EXPECT_EQ(gguf_tensor_name(llama, "model.layers.12.mlp.down_proj.bias"), "blk.12.ffn_down.bias");
  EXPECT_EQ(gguf_tensor_name(llama, "lm_head.weight"), "output.weight");
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.7.attn_q_norm.weight",
                           "blk.11.ffn_gate.weight", "blk.1.attn_output.bias"}) {
    EXPECT_EQ(gguf_tensor_name(llama, hf_tensor_name(llama, name)), name);
  }
  for (const char* name : {"model.layers.0.mlp.experts.1.w1.weight", "model.layers.x.mlp.up_proj.weight", "visual.weight",
                           "model.norm.weight_scale", "weight"}) {
    EXPECT_EQ(gguf_tensor_name(llama, name), "") << name;
    EXPECT_EQ(hf_tensor_name(llama, name), name);
  }
}

TEST(GgufNames, GemmasNormsHaveNamesOfTheirOwn) {
  const auto& gemma = architecture("Gemma2ForCausalLM");
  EXPECT_EQ(hf_tensor_name(gemma, "blk.3.ffn_norm.weight"), "model.layers.3.pre_feedforward_layernorm.weight");
  EXPECT_EQ(hf_tensor_name(gemma, "blk.3.post_attention_norm.weight"), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(gguf_tensor_name(gemma, "model.layers.3.post_attention_layernorm.weight"), "blk.3.post_attention_norm.weight");
  EXPECT_EQ(hf_tensor_name(architecture("LlamaForCausalLM"), "blk.3.post_ffw_norm.weight"), "blk.3.post_ffw_norm.weight");
  EXPECT_EQ(gguf_added(gemma, "model.layers.3.post_attention_layernorm.weight"), 1.0F);
  EXPECT_EQ(gguf_added(gemma, "model.layers.3.self_attn.q_norm.weight"), 1.0F);
  EXPECT_EQ(gguf_added(gemma, "model.layers.3.mlp.down_proj.weight"), 0.0F);
  EXPECT_EQ(gguf_added(architecture("Qwen3ForCausalLM"), "model.norm.weight"), 0.0F);
}

TEST(GgufNames, ExpertsTellTheFormsOfAClassApart) {
  EXPECT_FALSE(gguf_architecture_of("GraniteMoeHybridForCausalLM")->experts);
  EXPECT_TRUE(gguf_architecture_of("GraniteMoeHybridForCausalLM", true)->experts);
  EXPECT_TRUE(gguf_architecture_of("MixtralForCausalLM")->experts);  // which has one form alone
  EXPECT_FALSE(gguf_architecture_of("MinistralForCausalLM"));
}

TEST(GgufNames, GateAndUpMayStandInOneTensor) {
  const auto halves = gguf_halves(architecture("Mistral4ForCausalLM"), "blk.3.ffn_gate_up_exps.weight");
  ASSERT_TRUE(halves);
  EXPECT_EQ(halves->first, "model.layers.3.mlp.experts.*.gate_proj.weight");
  EXPECT_EQ(halves->second, "model.layers.3.mlp.experts.*.up_proj.weight");
  EXPECT_EQ(gguf_halves(architecture("MixtralForCausalLM"), "blk.0.ffn_gate_up_exps.weight")->second,
            "model.layers.0.block_sparse_moe.experts.*.w3.weight");
  EXPECT_FALSE(gguf_halves(architecture("Mistral4ForCausalLM"), "blk.3.ffn_gate_exps.weight"));
  for (const char* other : {"LlamaForCausalLM", "GptOssForCausalLM", "Gemma4ForCausalLM"}) {
    EXPECT_FALSE(gguf_halves(architecture(other), "blk.3.ffn_gate_up_exps.weight")) << other;
  }
}

TEST(GgufNames, TensorsOfAllExpertsHaveAStarForTheNumber) {
  EXPECT_EQ(hf_tensor_name(architecture("Qwen3MoeForCausalLM"), "blk.3.ffn_up_exps.weight"),
            "model.layers.3.mlp.experts.*.up_proj.weight");
  EXPECT_EQ(hf_tensor_name(architecture("MixtralForCausalLM"), "blk.0.ffn_down_exps.weight"),
            "model.layers.0.block_sparse_moe.experts.*.w2.weight");
  EXPECT_EQ(hf_tensor_name(architecture("MixtralForCausalLM"), "blk.0.ffn_gate_inp.weight"),
            "model.layers.0.block_sparse_moe.gate.weight");
  EXPECT_EQ(hf_tensor_name(architecture("LlamaForCausalLM"), "blk.0.ffn_gate_inp.weight"), "blk.0.ffn_gate_inp.weight");
}

TEST(GgufNames, SomeTensorsAreNeitherWeightNorBiasElsewhere) {
  const auto& deepseek = architecture("DeepseekV3ForCausalLM");
  const auto& oss = architecture("GptOssForCausalLM");
  EXPECT_EQ(hf_tensor_name(deepseek, "blk.3.exp_probs_b.bias"), "model.layers.3.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(gguf_tensor_name(deepseek, "model.layers.3.mlp.gate.e_score_correction_bias"), "blk.3.exp_probs_b.bias");
  EXPECT_EQ(hf_tensor_name(oss, "blk.0.attn_sinks.weight"), "model.layers.0.self_attn.sinks");
  EXPECT_EQ(gguf_tensor_name(oss, "model.layers.0.self_attn.sinks"), "blk.0.attn_sinks.weight");
  EXPECT_EQ(hf_tensor_name(oss, "blk.0.attn_sinks.bias"), "blk.0.attn_sinks.bias");
}

TEST(GgufNames, PartsOfOneTensorKnowEachOther) {
  const auto names = gguf_joint_names(architecture("GptOssForCausalLM"), "blk.7.ffn_up_exps.bias");
  ASSERT_TRUE(names);
  EXPECT_EQ(names->hf, "model.layers.7.mlp.experts.*.gate_up_proj.bias");
  EXPECT_EQ(names->first, "blk.7.ffn_gate_exps.bias");
  EXPECT_EQ(names->second, "blk.7.ffn_up_exps.bias");
  EXPECT_TRUE(gguf_joint_names(architecture("DeepseekV2ForCausalLM"), "blk.0.attn_k_b.weight"));
  const auto back = gguf_joint_of(architecture("GptOssForCausalLM"), names->hf);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->joint, names->joint);
  EXPECT_EQ(back->first, names->first);
  EXPECT_EQ(back->second, names->second);
  EXPECT_FALSE(gguf_joint_of(architecture("GptOssForCausalLM"), "model.layers.7.mlp.experts.*.down_proj.bias"));
  for (const char* other : {"blk.0.attn_kv_b.weight", "blk.x.attn_k_b.weight", "attn_k_b.weight", "blk.0.attn_k_b.scale"}) {
    EXPECT_FALSE(gguf_joint_names(architecture("DeepseekV2ForCausalLM"), other)) << other;
  }
  EXPECT_FALSE(gguf_joint_names(architecture("Qwen3MoeForCausalLM"), "blk.0.ffn_up_exps.weight"));
}

TEST(GgufNames, AFileIsOfTheModelsOfItsArchitecture) {
  EXPECT_TRUE(is_gguf_architecture_of("deepseek2", "DeepseekV2ForCausalLM"));
  EXPECT_TRUE(is_gguf_architecture_of("deepseek2", "DeepseekV3ForCausalLM"));
  EXPECT_TRUE(is_gguf_architecture_of("llama", "MistralForCausalLM"));
  EXPECT_FALSE(is_gguf_architecture_of("phi3", "LlamaForCausalLM"));
}

TEST(GgufNames, RowsOfAHeadStandInPairs) {
  EXPECT_THAT(half_split_order(8, 2), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(half_split_order(6, 1), ElementsAre(0, 2, 4, 1, 3, 5));
}

// Of an answer, of a turn, of a message to a tool.
TEST(GenerationConfigFromGguf, EveryEndIsAnEnd) {
  const choral::testing::TempDir dir;
  const auto ends = [&](const std::vector<std::pair<const char*, uint32_t>>& ids) {
    GgufMetadata metadata;
    for (const auto& [role, id] : ids) metadata.set_u32(fmt::format("tokenizer.ggml.{}_token_id", role), id);
    EXPECT_TRUE(write(dir / "x.gguf", metadata, {}).ok());
    return *(*generation_config_from_gguf(**GgufFile::open(dir / "x.gguf"))).get_int_or_ints("eos_token_id");
  };
  EXPECT_THAT(ends({{"eos", 2}}), ElementsAre(2));
  EXPECT_THAT(ends({{"eos", 2}, {"eot", 5}, {"eom", 7}}), ElementsAre(2, 5, 7));
  EXPECT_THAT(ends({{"eos", 2}, {"eot", 2}, {"eom", 7}}), ElementsAre(2, 7));
  EXPECT_THAT(ends({{"eot", 5}}), ElementsAre(5));
}

}  // namespace
}  // namespace choral::io
