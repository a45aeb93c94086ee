// Adapters as files: which one is read, the real ones of tests/data, llama.cpp's form, and damaged ones.
#include "lora/peft/adapter_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/sha256.h"
#include "kernels/quant/dequantise.h"
#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::lora {
namespace {

using choral::testing::TempDir;
using io::testing::GgufSpec;
using io::testing::le;
using testing::AdapterBuilder;
using ::testing::AllOf;
using testing::config_json;
using ::testing::HasSubstr;
using testing::kHidden;
using testing::linear;
using testing::single;

const std::string kData = CHORAL_TEST_DATA "/lora/";

std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Sizes {
  int64_t layers = 2, hidden = 64, queries = 64, keys = 32, inner = 128, vocabulary = 256;
  bool bias = false;
};

// A decoder of these sizes, as its model declares it.
std::vector<LoRATarget> decoder_targets(const Sizes& sizes) {
  std::vector<LoRATarget> out;
  out.push_back(single(TargetKind::kEmbedding, "model.embed_tokens", sizes.vocabulary, sizes.hidden));
  for (int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i), attention = layer + "self_attn.", mlp = layer + "mlp.";
    out.push_back(
        linear(attention + "qkv_proj",
               {{attention + "q_proj", sizes.queries}, {attention + "k_proj", sizes.keys}, {attention + "v_proj", sizes.keys}},
               sizes.hidden, sizes.bias));
    out.push_back(linear(attention + "o_proj", {{attention + "o_proj", sizes.hidden}}, sizes.queries));
    out.push_back(linear(mlp + "gate_up_proj", {{mlp + "gate_proj", sizes.inner}, {mlp + "up_proj", sizes.inner}}, sizes.hidden));
    out.push_back(linear(mlp + "down_proj", {{mlp + "down_proj", sizes.hidden}}, sizes.inner));
  }
  out.push_back(single(TargetKind::kHead, "lm_head", sizes.vocabulary, sizes.hidden));
  return out;
}

Result<LoRAModel> read(const std::filesystem::path& path, const std::vector<LoRATarget>& targets,
                       const LoRALoadOptions& options = {}) {
  CHORAL_TRY(const PEFTHelper peft, PEFTHelper::from_local_dir(path));
  return LoRAModel::from_local_checkpoint(path, peft, targets, options);
}

int64_t layers_in(const std::string& adapter) {  // of the file: "layers.N." of its last tensor by number
  const auto file = read_adapter_file(kData + adapter);
  int64_t most = 0;
  for (const auto& tensor : file->tensors) {
    const size_t at = tensor.name.find(".layers.");
    if (at != std::string::npos) most = std::max<int64_t>(most, std::stoll(tensor.name.substr(at + 8)));
  }
  return most + 1;
}

TEST(RealAdapters, LlamaAllLinears) {
  const auto model = read(kData + "tiny-llama3-lora-all", decoder_targets({.layers = layers_in("tiny-llama3-lora-all")}));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->loras().size() % 7, 0u);
  EXPECT_EQ(model->get_lora("model.layers.0.mlp.down_proj")->lora_a.view.shape, Shape({8, 128}));
  EXPECT_EQ(model->rank(), 8);
  EXPECT_EQ(model->get_lora("model.layers.0.self_attn.q_proj")->lora_a.view.dtype, DType::kBF16);
}

TEST(RealAdapters, MistralOnSomeLayersOnly) {
  const auto targets = decoder_targets({.layers = 4});
  const auto model = read(kData + "tiny-mistral-lora-qv", targets);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->get_lora("model.layers.0.self_attn.q_proj"), nullptr);
  EXPECT_NE(model->get_lora("model.layers.1.self_attn.q_proj"), nullptr);
  EXPECT_NE(model->get_lora("model.layers.2.self_attn.v_proj"), nullptr);
  // The same tensors pickled by torch.save's rules are the same adapter.
  const auto pickled = read(kData + "tiny-mistral-lora-qv-bin", targets);
  ASSERT_TRUE(pickled.ok()) << pickled.status().message();
  EXPECT_EQ(pickled->digest(), model->digest());
}

TEST(RealAdapters, QwenBiases) {
  const int64_t layers = layers_in("tiny-qwen2-lora-allbias");
  const auto all = read(kData + "tiny-qwen2-lora-allbias", decoder_targets({.layers = layers, .bias = true}));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->replaced_biases().size(), 3 * layers);
  EXPECT_EQ(all->replaced_biases().at("model.layers.0.self_attn.k_proj").view.shape, Shape({32}));
  const auto some = read(kData + "tiny-qwen2-lora-qkvbias", decoder_targets({.layers = layers, .bias = true}));
  ASSERT_TRUE(some.ok()) << some.status().message();
  EXPECT_TRUE(some->replaced_biases().empty());  // PEFT does not save the biases of lora_only
  EXPECT_THAT(read(kData + "tiny-qwen2-lora-allbias", decoder_targets({.layers = layers})).status().message(),
              HasSubstr("has no bias in this model"));
}

TEST(RealAdapters, TheWrongBaseIsNamed) {
  EXPECT_THAT(
      read(kData + "tiny-llama3-lora-all", decoder_targets({.layers = 8, .hidden = 32, .queries = 32})).status().message(),
      AllOf(HasSubstr("problems"), HasSubstr("has shape [8, 64]"), HasSubstr("needs [8, 32]")));
}

TEST(AdapterFile, TriesTheNamesInOrder) {
  const TempDir folder;
  EXPECT_THAT(read_adapter_file(folder.path()).status().message(),
              AllOf(HasSubstr("adapter_model.safetensors"), HasSubstr(".bin"), HasSubstr(".pt"), HasSubstr(".gguf")));
  const std::string bin = file_bytes(kData + "tiny-mistral-lora-qv-bin/adapter_model.bin");
  folder.write("adapter_model.pt", bin);
  EXPECT_EQ(read_adapter_file(folder.path())->path.filename(), "adapter_model.pt");
  folder.write("adapter_model.bin", bin);
  EXPECT_EQ(read_adapter_file(folder.path())->format, "torch");
  EXPECT_EQ(read_adapter_file(folder.path())->path.filename(), "adapter_model.bin");
  folder.write("adapter_model.safetensors", "not one");
  EXPECT_EQ(read_adapter_file(folder.path()).status().code(), Code::kCorrupt);  // and nothing else is tried
  folder.write("adapter_model.safetensors", AdapterBuilder().query_and_value().safetensors());
  EXPECT_EQ(read_adapter_file(folder.path())->format, "safetensors");
  EXPECT_EQ(read_adapter_file(folder.path(), {.max_file_bytes = 100}).status().code(), Code::kTooLarge);
  EXPECT_EQ(read_adapter_file(folder.path(), {.max_header_bytes = 100}).status().code(), Code::kTooLarge);
  EXPECT_EQ(read_adapter_file(folder.path(), {.max_tensors = 3}).status().code(), Code::kTooLarge);
  folder.write("new_embeddings.safetensors", "");
  EXPECT_THAT(read_adapter_file(folder.path()).status().message(), HasSubstr("new_embeddings.safetensors"));
}

// Every file cut short is refused; every byte flipped is refused or gives an adapter, never a fault.
TEST(AdapterFile, DamagedFiles) {
  const auto targets = testing::small_targets();
  const PEFTHelper peft = *PEFTHelper::from_config(*io::ConfigMap::parse_json(config_json(), "c"));
  const std::string whole = AdapterBuilder().query_and_value().safetensors();
  const std::string bin = file_bytes(kData + "tiny-mistral-lora-qv-bin/adapter_model.bin");
  for (const auto& [name, bytes] : {std::pair("adapter_model.safetensors", whole), std::pair("adapter_model.bin", bin)}) {
    const TempDir folder;
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 37) {
      folder.write(name, bytes.substr(0, size));
      EXPECT_FALSE(read_adapter_file(folder.path()).ok()) << name << " " << size;
    }
    for (size_t i = 0; i < bytes.size(); i += 1 + bytes.size() / 97) {
      std::string other = bytes;
      other[i] = static_cast<char>(other[i] ^ (1 << (i % 8)));
      folder.write(name, other);
      (void)LoRAModel::from_local_checkpoint(folder.path(), peft, targets);
    }
  }
}

// --- llama.cpp ---

std::string f32(const std::vector<float>& values) {
  std::string out;
  for (const float value : values) out += le(value);
  return out;
}
std::vector<float> counted(int64_t count, float first) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(first + static_cast<float>(i));
  return out;
}

GgufSpec adapter_spec(const std::string& architecture = "llama") {
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", architecture), GgufSpec::kv_string("general.type", "adapter"),
                   GgufSpec::kv_string("adapter.type", "lora"), GgufSpec::kv_f32("adapter.lora.alpha", 8.0F)};
  spec.tensors.push_back({"blk.0.attn_q.weight.lora_a", {8, 2}, 0, f32(counted(16, 1))});
  spec.tensors.push_back({"blk.0.attn_q.weight.lora_b", {2, 8}, 0, f32(counted(16, 100))});
  return spec;
}

Result<LoRAModel> read_gguf(const GgufSpec& spec, int64_t head_dim, const std::string& base_class = "") {
  const TempDir folder;
  const std::string path = folder.write("adapter.gguf", spec.build());
  LoRALoadOptions options;
  options.head_dim = head_dim;
  options.base_class = base_class;
  return read(path, testing::small_targets(), options);
}

std::vector<float> values_of(const TensorView& view) {
  const auto tensor = to_float_tensor(view);
  const auto span = tensor->as<float>();
  return {span.begin(), span.end()};
}

TEST(GgufAdapter, NamesScalesAndRowOrder) {
  GgufSpec spec = adapter_spec();
  spec.tensors.push_back({"blk.1.ffn_down.weight.lora_a", {12, 4}, 0, f32(counted(48, 1))});
  spec.tensors.push_back({"blk.1.ffn_down.weight.lora_b", {4, 8}, 0, f32(counted(32, 1))});
  const auto model = read_gguf(spec, 4);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto* q = model->get_lora("model.layers.0.self_attn.q_proj");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->scaling, 4.0F);                                                // 8 / 2
  EXPECT_EQ(model->get_lora("model.layers.1.mlp.down_proj")->scaling, 2.0F);  // 8 / 4: each by its own rank
  EXPECT_EQ(model->rank(), 4);
  // Heads of four rows: the file's rows 0 1 2 3 are 0 2 1 3 of the model's.
  EXPECT_EQ(values_of(q->lora_b.view),
            (std::vector<float>{100, 101, 104, 105, 102, 103, 106, 107, 108, 109, 112, 113, 110, 111, 114, 115}));
  EXPECT_EQ(values_of(q->lora_a.view), counted(16, 1));

  EXPECT_THAT(read_gguf(adapter_spec(), 0).status().message(), HasSubstr("head size"));
  EXPECT_THAT(read_gguf(adapter_spec(), 3).status().message(), HasSubstr("no heads of 3"));
  EXPECT_EQ(values_of(read_gguf(adapter_spec("qwen2"), 0)->get_lora("model.layers.0.self_attn.q_proj")->lora_b.view),
            counted(16, 100));
}

TEST(GgufAdapter, ItsArchitectureIsTheModels) {
  EXPECT_TRUE(read_gguf(adapter_spec(), 4, "LlamaForCausalLM").ok());
  EXPECT_TRUE(read_gguf(adapter_spec(), 4, "MistralForCausalLM").ok());  // llama.cpp has one name for both
  EXPECT_TRUE(read_gguf(adapter_spec("mistral"), 4, "LlamaForCausalLM").ok());
  EXPECT_TRUE(read_gguf(adapter_spec("qwen3"), 4, "Qwen3ForCausalLM").ok());
  EXPECT_THAT(read_gguf(adapter_spec("qwen2"), 4, "Qwen3ForCausalLM").status().message(),
              AllOf(HasSubstr("architecture qwen2"), HasSubstr("Qwen3ForCausalLM")));
  EXPECT_EQ(read_gguf(adapter_spec(), 4, "UnheardOfForCausalLM").status().code(), Code::kInvalidArgument);
}

TEST(GgufAdapter, EmbeddingIsTurnedRound) {
  GgufSpec spec = adapter_spec("qwen2");
  spec.tensors.push_back({"token_embd.weight.lora_a", {2, 10}, 0, f32(counted(20, 0))});  // [vocabulary, r]
  spec.tensors.push_back({"token_embd.weight.lora_b", {2, 8}, 0, f32(counted(16, 0))});   // [width, r]
  const auto model = read_gguf(spec, 0);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto* embedding = model->get_lora("model.embed_tokens");
  EXPECT_TRUE(embedding->is_embedding);
  EXPECT_EQ(embedding->lora_a.view.shape, Shape({2, 10}));
  const auto a = values_of(embedding->lora_a.view);
  EXPECT_EQ(a[1], 2.0F);   // row 0, token 1
  EXPECT_EQ(a[10], 1.0F);  // row 1, token 0
}

TEST(GgufAdapter, QuantisedTensorsAndNorms) {
  GgufSpec spec = adapter_spec("qwen2");
  std::string block = le<uint16_t>(to_float16(0.5F).bits);  // Q8_0: a half scale and 32 int8
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i - 16);
  spec.tensors = {{"blk.0.attn_v.weight.lora_a", {8, 32}, 1, std::string(8 * 32 * 2, '\0')},
                  {"blk.0.attn_v.weight.lora_b", {32, 4}, 8, block + block + block + block},
                  {"blk.1.attn_norm.weight", {8}, 0, f32(counted(8, 1))}};
  const auto model = read_gguf(spec, 0);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto* v = model->get_lora("model.layers.0.self_attn.v_proj");
  EXPECT_EQ(v->lora_a.view.dtype, DType::kF16);
  EXPECT_EQ(v->lora_b.view.dtype, DType::kQ8_0);  // as it is stored
  const auto b = to_float_tensor(v->lora_b.view);
  EXPECT_EQ(b->as<float>()[0], -8.0F);
  EXPECT_EQ(b->as<float>()[33], -7.5F);
  spec.tensors[1] = {"blk.0.attn_v.weight.lora_b", {32, 4}, 2, std::string(4 * 18, '\x11')};
  EXPECT_EQ(read_gguf(spec, 0)->get_lora("model.layers.0.self_attn.v_proj")->lora_b.view.dtype, DType::kF32)
      << "Q4_0 is converted";
  EXPECT_EQ(values_of(model->replaced_weights().at("model.layers.1.input_layernorm").view), counted(8, 1));
}

TEST(GgufAdapter, AloraAndAbsentAlpha) {
  GgufSpec spec = adapter_spec("qwen2");
  spec.metadata.push_back(GgufSpec::kv("adapter.alora.invocation_tokens", 9,
                                       le<uint32_t>(4) + le<uint64_t>(3) + le<uint32_t>(5) + le<uint32_t>(6) + le<uint32_t>(7)));
  auto model = read_gguf(spec, 0);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_THAT(model->alora_invocation_tokens(), ::testing::ElementsAre(5, 6, 7));
  std::erase_if(spec.metadata, [](const auto& entry) { return entry.find("alpha") != std::string::npos; });
  EXPECT_EQ(read_gguf(spec, 0)->get_lora("model.layers.0.self_attn.q_proj")->scaling, 1.0F);
}

TEST(GgufAdapter, RefusesWhatIsNoAdapter) {
  const auto says = [](const GgufSpec& spec) { return read_gguf(spec, 4).status().message(); };
  GgufSpec spec = adapter_spec();
  spec.metadata[1] = GgufSpec::kv_string("general.type", "model");
  EXPECT_THAT(says(spec), HasSubstr("is a model, not an adapter"));
  spec = adapter_spec();
  spec.metadata[2] = GgufSpec::kv_string("adapter.type", "ia3");
  EXPECT_THAT(says(spec), HasSubstr("'ia3'"));
  spec = adapter_spec("gpt2");
  EXPECT_THAT(says(spec), HasSubstr("'gpt2'"));
  spec = adapter_spec();
  spec.tensors.push_back({"blk.0.ffn_gate_exps.weight.lora_a", {8, 2}, 0, f32(counted(16, 1))});
  EXPECT_THAT(says(spec), HasSubstr("ffn_gate_exps"));
  spec = adapter_spec();
  spec.tensors.pop_back();
  EXPECT_THAT(says(spec), HasSubstr("has no lora_B"));
  spec = adapter_spec();
  spec.tensors[0].dims = {4, 4};
  EXPECT_THAT(says(spec), HasSubstr("has shape [4, 4]"));
  const TempDir folder;
  folder.write("a.gguf", adapter_spec().build());
  EXPECT_TRUE(PEFTHelper::from_local_dir(folder.path()).ok());  // the only one of its directory
  folder.write("b.gguf", adapter_spec().build());
  EXPECT_FALSE(PEFTHelper::from_local_dir(folder.path()).ok());
}

}  // namespace
}  // namespace choral::lora
