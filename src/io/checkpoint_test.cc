#include "io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "io/config_map.h"
#include "io/gguf_names.h"
#include "io/mapped_file.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using choral::testing::TempDir;
using ::testing::ElementsAre;
using testing::GgufSpec;
using ::testing::HasSubstr;
using testing::le;
using testing::safetensors_file;

// One-byte tensors of these names.
std::string small_file(const std::vector<std::string>& names) {
  std::string json, data;
  for (const auto& name : names) {
    json += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", json.empty() ? "" : ",", name,
                        data.size(), data.size() + 1);
    data += name.back();
  }
  return safetensors_file("{" + json + "}", data);
}

void write_shards(const TempDir& folder) {
  folder.write("m/one.safetensors", small_file({"a", "b"}));
  folder.write("m/two.safetensors", small_file({"c"}));
}

// Opens shards {a, b} and {c} under this weight_map.
Status sharded(std::string_view weight_map) {
  const TempDir folder;
  write_shards(folder);
  folder.write("m/model.safetensors.index.json", fmt::format(R"({{"metadata":{{"total_size":3}},"weight_map":{}}})", weight_map));
  return Checkpoint::open(folder / "m").status();
}

TEST(Checkpoint, OneFileOrADirectory) {
  const TempDir folder;
  const std::string path = folder.write("model.safetensors", small_file({"x", "a"}));
  for (const auto& place : {path, folder.path().string()}) {
    auto checkpoint = Checkpoint::open(place);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_THAT((*checkpoint)->names(), ElementsAre("a", "x"));
    EXPECT_EQ((*checkpoint)->total_bytes(), 2u);
    auto tensor = (*checkpoint)->find("x");
    ASSERT_TRUE(tensor.ok());
    EXPECT_EQ(static_cast<char>(*tensor->view.data), 'x');
    EXPECT_TRUE(tensor->row_order.empty());
    (*checkpoint)->release("x");
    (*checkpoint)->release("absent");
  }
}

TEST(Checkpoint, SaysWhyADirectoryCannotBeLoaded) {
  const TempDir folder;
  EXPECT_EQ(Checkpoint::open(folder.path()).status().code(), Code::kNotFound);
  folder.write("adapter_model.safetensors", "");
  EXPECT_THAT(Checkpoint::open(folder.path()).status().message(), HasSubstr("LoRA adapter"));
  folder.write("pytorch_model.bin", "");
  EXPECT_THAT(Checkpoint::open(folder.path()).status().message(), HasSubstr("convert it to safetensors"));
  folder.write("a.gguf", "GGUF");
  folder.write("b.gguf", "GGUF");
  EXPECT_THAT(Checkpoint::open(folder.path()).status().message(), HasSubstr("2 GGUF files (a.gguf, b.gguf)"));
  EXPECT_EQ(Checkpoint::open(folder.write("x.txt", "hello")).status().code(), Code::kUnsupported);
}

TEST(ShardedCheckpoint, FindsEachTensorInItsShard) {
  const TempDir folder;
  write_shards(folder);
  folder.write("m/model.safetensors.index.json",
               R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}})");
  auto checkpoint = Checkpoint::open(folder / "m");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT((*checkpoint)->names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(static_cast<char>(*(*checkpoint)->find("c")->view.data), 'c');
  EXPECT_THAT((*checkpoint)->description(), HasSubstr("2 files, 3 tensors"));
  const auto missing = (*checkpoint)->find("model.d");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("has no tensor 'model.d'"));
}

TEST(ShardedCheckpoint, IndexAndShardsMustAgree) {
  EXPECT_THAT(sharded(R"({"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors","d":"two.safetensors"})").message(),
              HasSubstr("lacks 'd'"));
  EXPECT_THAT(sharded(R"({"a":"one.safetensors","c":"two.safetensors"})").message(), HasSubstr("holds 'b'"));
  EXPECT_THAT(sharded(R"({"a":"two.safetensors","b":"one.safetensors","c":"two.safetensors"})").message(),
              HasSubstr("holds 'a'"));
  EXPECT_THAT(sharded(R"({"a":"one.safetensors","b":"one.safetensors","c":"three.safetensors"})").message(),
              HasSubstr("three.safetensors: no such file"));
}

TEST(ShardedCheckpoint, ShardNamesStayInTheDirectory) {
  for (const std::string_view name :
       {"../m/one.safetensors", "/etc/x.safetensors", "sub/one.safetensors", "..\\\\one.safetensors", ".safetensors", "one.bin",
        "one.safetensors\\u0000", "..safetensors", ""}) {
    const Status status = sharded(fmt::format(R"({{"a":"{}"}})", name));
    EXPECT_EQ(status.code(), Code::kCorrupt) << name;
    EXPECT_THAT(status.message(), HasSubstr("weight_map.a is ")) << name;
  }
}

TEST(ShardedCheckpoint, BrokenIndexes) {
  EXPECT_THAT(sharded("{}").message(), HasSubstr("names no tensor"));
  EXPECT_FALSE(sharded("[]").ok());
  EXPECT_FALSE(sharded(R"({"a":1})").ok());
  EXPECT_FALSE(sharded(R"({"a":"one.safetensors","a":"one.safetensors"})").ok());
}

TEST(ShardedCheckpoint, TheRealIndexNamesEveryTensorOfItsModel) {
  // The index of a real three-shard model over shards of one byte for each tensor.
  const std::string index = *read_whole_file(CHORAL_TEST_DATA "/io/tiny-llama3/model.safetensors.index.json", 1 << 20);
  const ConfigMap map = *ConfigMap::parse_json(index, "index");
  std::map<std::string, std::vector<std::string>> shards;
  const ConfigMap weight_map = *map.get_map("weight_map");
  for (const auto& member : weight_map.members()) shards[*member.value.if_string()].push_back(member.key);
  EXPECT_EQ(shards.size(), 3u);
  const TempDir folder;
  folder.write("model.safetensors.index.json", index);
  for (const auto& [name, tensors] : shards) folder.write(name, small_file(tensors));
  auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ((*checkpoint)->names().size(), 39u);
  EXPECT_THAT((*checkpoint)->find("model.layers.0.self_attn.qproj.weight").status().message(),
              HasSubstr("nearest is 'model.layers.0.self_attn.q_proj.weight'"));
}

// A model of 2 query heads and 1 key head of 4 rows; row r of every matrix holds the number r.
GgufSpec gguf(const std::string& arch) {
  const auto rows = [](int count) {
    std::string data;
    for (int row = 0; row < count; ++row) data += le(static_cast<float>(row)) + le(static_cast<float>(row));
    return data;
  };
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", arch), GgufSpec::kv_u32(arch + ".attention.head_count", 2),
                   GgufSpec::kv_u32(arch + ".attention.head_count_kv", 1)};
  spec.tensors = {{"token_embd.weight", {2, 3}, 0, rows(3)},   {"blk.0.attn_q.weight", {2, 8}, 0, rows(8)},
                  {"blk.0.attn_k.weight", {2, 4}, 0, rows(4)}, {"blk.0.attn_v.weight", {2, 4}, 0, rows(4)},
                  {"blk.0.attn_q.bias", {8}, 0, rows(4)},      {"output_norm.weight", {2}, 0, rows(1)},
                  {"rope_freqs.weight", {2}, 0, rows(1)},      {"blk.0.attn_q_norm.weight", {2}, 0, rows(1)}};
  return spec;
}

Result<std::shared_ptr<const Checkpoint>> open_gguf(const GgufSpec& spec, std::string_view name = "m.gguf") {
  const TempDir folder;
  return Checkpoint::open(folder.write(name, spec.build()));
}

TEST(GgufCheckpoint, SpeaksHuggingFaceNames) {
  auto checkpoint = open_gguf(gguf("llama"), "no-extension");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_THAT(
      (*checkpoint)->names(),
      ElementsAre("model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.q_norm.weight",
                  "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.q_proj.weight",
                  "model.layers.0.self_attn.v_proj.weight", "model.norm.weight", "rope_freqs.weight"));
  EXPECT_THAT((*checkpoint)->description(), HasSubstr("GGUF v3, llama, 8 tensors"));
  EXPECT_THAT((*checkpoint)->find("lm_head.weight").status().message(), HasSubstr("no tensor 'lm_head.weight'"));
}

TEST(GgufCheckpoint, LlamaQueriesAndKeysAreUnpermutedByHead) {
  auto checkpoint = open_gguf(gguf("llama"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto order = [&](std::string_view name) { return (*checkpoint)->find(name)->row_order; };
  // Head 0 is rows 0..3 as pairs (0,1), (2,3): the first members of the pairs, then the second.
  EXPECT_THAT(order("model.layers.0.self_attn.q_proj.weight"), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(order("model.layers.0.self_attn.q_proj.bias"), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(order("model.layers.0.self_attn.k_proj.weight"), ElementsAre(0, 2, 1, 3));
  EXPECT_TRUE(order("model.layers.0.self_attn.v_proj.weight").empty());
  EXPECT_TRUE(order("model.layers.0.self_attn.q_norm.weight").empty());
  EXPECT_TRUE(order("model.embed_tokens.weight").empty());
}

TEST(GgufCheckpoint, UnpermutesAsTheConverterPermuted) {
  // The converter: [heads, 2, half, cols] -> swap axes 1 and 2. A row's value says where Hugging Face has it.
  constexpr int kHeads = 3, kHalf = 4, kRows = kHeads * 2 * kHalf;
  std::string data(kRows * sizeof(float), '\0');
  for (int head = 0; head < kHeads; ++head) {
    for (int side = 0; side < 2; ++side) {
      for (int j = 0; j < kHalf; ++j) {
        const float hf_row = static_cast<float>(head * 2 * kHalf + side * kHalf + j);
        std::memcpy(data.data() + (head * 2 * kHalf + j * 2 + side) * sizeof(float), &hf_row, sizeof(float));
      }
    }
  }
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", "mistral"),
                   GgufSpec::kv_u32("mistral.attention.head_count", kHeads)};
  spec.tensors = {{"blk.0.attn_q.weight", {1, kRows}, 0, data}};
  auto checkpoint = open_gguf(spec);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto tensor = (*checkpoint)->find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_TRUE(tensor.ok());
  for (int i = 0; i < kRows; ++i) {
    float value;
    std::memcpy(&value, tensor->view.row(tensor->row_order[i]), sizeof(float));
    EXPECT_EQ(value, static_cast<float>(i));
  }
}

TEST(GgufCheckpoint, QwenIsNotPermuted) {
  for (const std::string arch : {"qwen2", "qwen3"}) {
    auto checkpoint = open_gguf(gguf(arch));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_TRUE((*checkpoint)->find("model.layers.0.self_attn.q_proj.weight")->row_order.empty());
  }
}

TEST(GgufCheckpoint, RowsMustDivideIntoHeads) {
  GgufSpec spec = gguf("llama");
  spec.metadata[1] = GgufSpec::kv_u32("llama.attention.head_count", 3);
  auto checkpoint = open_gguf(spec);
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ((*checkpoint)->find("model.layers.0.self_attn.q_proj.weight").status().code(), Code::kCorrupt);
  spec.metadata[1] = GgufSpec::kv_u32("llama.attention.head_count", 0);
  EXPECT_FALSE(open_gguf(spec).ok());
  spec.metadata[1] = GgufSpec::kv_u32("llama.attention.head_count", 8);  // one row a head: no pair
  EXPECT_FALSE((*open_gguf(spec))->find("model.layers.0.self_attn.q_proj.weight").ok());
}

TEST(GgufCheckpoint, TwoTensorsOfOneName) {
  GgufSpec spec = gguf("llama");
  spec.tensors.push_back({"model.norm.weight", {2}, 0, std::string(8, 0)});
  EXPECT_THAT(open_gguf(spec).status().message(), HasSubstr("two tensors are 'model.norm.weight'"));
}

TEST(HfTensorName, MapsWhatItKnowsAndLeavesTheRest) {
  const auto llama = *gguf_architecture_of("LlamaForCausalLM");
  EXPECT_EQ(hf_tensor_name(llama, "blk.12.ffn_gate.weight"), "model.layers.12.mlp.gate_proj.weight");
  EXPECT_EQ(hf_tensor_name(llama, "blk.0.attn_output.bias"), "model.layers.0.self_attn.o_proj.bias");
  EXPECT_EQ(hf_tensor_name(llama, "blk.3.ffn_norm.weight"), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(hf_tensor_name(llama, "output.weight"), "lm_head.weight");
  for (const std::string_view name :
       {"blk.01.ffn_up.weight", "blk..ffn_up.weight", "blk.-1.ffn_up.weight", "blk.1234567.ffn_up.weight",
        "blk.0.ffn_up_exps.weight", "blk.0.ffn_up.scale", "blk.0", "output", ""}) {
    EXPECT_EQ(hf_tensor_name(llama, name), name);
  }
}

}  // namespace
}  // namespace choral::io
