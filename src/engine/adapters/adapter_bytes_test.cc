// Adapters that are given as bytes: the same answers as from their files, for as long as the name lives.
#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"
#include "io/test_files.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class AdapterBytesTest : public ::testing::Test {
 protected:
  // All that stands in the folder.
  static std::shared_ptr<const AdapterBytes> bytes_of(const std::filesystem::path& folder) {
    auto bytes = std::make_shared<AdapterBytes>();
    for (const auto& file : std::filesystem::directory_iterator(folder))
      bytes->emplace(file.path().filename(), *io::read_whole_file(file.path(), 1 << 30));
    return bytes;
  }
  static RequestOutput answer(LLM& llm, const std::string& adapter) {
    return llm.generate({with_adapters(greedy_request(random_prompt(70, 9), 8), {{adapter}})}).front();
  }

  AdapterFiles files_;
  testing::TempDir folder_;
  EngineOptions options_ = tiny_options();
};

TEST_F(AdapterBytesTest, AnswerAsTheirFilesDo) {
  const auto path = files_.write("a", 4, 1);
  options_.adapters = {{.name = "first", .bytes = bytes_of(path)}};
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"file", path}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "bytes", .bytes = bytes_of(path)}).ok());
  std::filesystem::remove_all(path);
  const auto infos = llm->adapters();
  ASSERT_EQ(infos.size(), 3u);
  for (const auto& info : infos) EXPECT_EQ(info.digest, infos.front().digest) << info.name;
  EXPECT_EQ(infos[0].name, "bytes");
  EXPECT_EQ(infos[0].path, "");
  const auto from_bytes = answer(*llm, "bytes");
  expect_same_bits(from_bytes, answer(*llm, "first"));
  expect_same_bits(from_bytes, answer(*llm, "file"));
}

TEST_F(AdapterBytesTest, AreReadAgainWhenTheyWereEvicted) {
  const auto a = files_.write("a", 16, 1), b = files_.write("b", 16, 2);
  options_.max_cpu_loras = 1;
  options_.max_loras = 1;
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes_of(a)}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "b", .bytes = bytes_of(b)}).ok());
  const auto first = answer(*llm, "a");
  answer(*llm, "b");
  expect_same_bits(first, answer(*llm, "a"));
  EXPECT_GT(llm->adapters().at(0).loads, 1);
  EXPECT_EQ(llm->adapters().at(0).generation, 1);
}

TEST_F(AdapterBytesTest, ReplaceAndAreReplaced) {
  const auto one = files_.write("one", 4, 1), two = files_.write("two", 4, 2);
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"one", one}).ok());
  ASSERT_TRUE(llm->load_adapter({"two", two}).ok());
  const auto with_one = answer(*llm, "one"), with_two = answer(*llm, "two");
  ASSERT_TRUE(llm->load_adapter({"a", one}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes_of(two)}, /*replace=*/true).ok());
  expect_same_bits(with_two, answer(*llm, "a"));
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes_of(one)}, /*replace=*/true).ok());
  expect_same_bits(with_one, answer(*llm, "a"));
  ASSERT_TRUE(llm->load_adapter({"a", two}, /*replace=*/true).ok());
  expect_same_bits(with_two, answer(*llm, "a"));
  EXPECT_EQ(llm->load_adapter({.name = "a", .bytes = bytes_of(one)}).code(), Code::kAlreadyExists);
}

TEST_F(AdapterBytesTest, ShowWhatTheyChange) {
  const auto path = files_.write("a", 4, 1);
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"file", path}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "bytes", .bytes = bytes_of(path)}).ok());
  const auto of_file = llm->adapter_layers("file"), of_bytes = llm->adapter_layers("bytes");
  ASSERT_TRUE(of_file.ok()) << of_file.status().to_string();
  ASSERT_TRUE(of_bytes.ok());
  ASSERT_FALSE(of_file->empty());
  for (size_t i = 0; i < of_file->size(); ++i) {
    const AdapterLayer& layer = (*of_file)[i];
    EXPECT_EQ(layer.kind, "LoRA");
    EXPECT_EQ(layer.rank, 4);
    EXPECT_GT(layer.norm.value_or(0), 0) << layer.module;
    EXPECT_EQ(layer.norm, of_bytes->at(i).norm);
  }
  EXPECT_EQ(llm->adapter_layers("nobody").status().code(), Code::kNotFound);
}

TEST_F(AdapterBytesTest, AreHeldNoLongerThanTheirName) {
  const auto bytes = bytes_of(files_.write("a", 4, 1));
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes}).ok());
  answer(*llm, "a");
  ASSERT_TRUE(llm->unload_adapter("a").ok());
  for (int i = 0; i < 10'000 && bytes.use_count() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(bytes.use_count(), 1);
}

TEST_F(AdapterBytesTest, OfEveryFormatAnswerAsTheirFilesDo) {
  const std::filesystem::path data = CHORAL_TEST_DATA "/lora";
  EngineOptions options = tiny_options("tiny-mistral");
  const auto llm = load_or_die(options);
  for (const char* name : {"tiny-mistral-lora-qv", "tiny-mistral-lora-qv-bin"}) {
    ASSERT_TRUE(llm->load_adapter({std::string("file ") + name, data / name}).ok()) << name;
    const Status status = llm->load_adapter({.name = name, .bytes = bytes_of(data / name)});
    ASSERT_TRUE(status.ok()) << status.to_string();
    expect_same_bits(answer(*llm, name), answer(*llm, std::string("file ") + name));
  }
}

// As llama.cpp writes them: of the first layer's o_proj, rank 2.
std::string gguf_adapter() {
  using io::testing::GgufSpec;
  const auto values = [](float first) {
    std::string out;
    for (int i = 0; i < 2 * 64; ++i) out += io::testing::le(first / static_cast<float>(i % 7 + 1));
    return out;
  };
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", "llama"), GgufSpec::kv_string("general.type", "adapter"),
                   GgufSpec::kv_string("adapter.type", "lora"), GgufSpec::kv_f32("adapter.lora.alpha", 8.0F)};
  spec.tensors = {{"blk.0.attn_output.weight.lora_a", {64, 2}, 0, values(0.5F)},
                  {"blk.0.attn_output.weight.lora_b", {2, 64}, 0, values(0.25F)}};
  return spec.build();
}

TEST_F(AdapterBytesTest, OfOneGgufNeedNoConfig) {
  const auto path = folder_.write("any.gguf", gguf_adapter());
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"file", path}).ok());
  const auto bytes = std::make_shared<AdapterBytes>(AdapterBytes{{"any.gguf", gguf_adapter()}});
  const Status status = llm->load_adapter({.name = "bytes", .bytes = bytes});
  ASSERT_TRUE(status.ok()) << status.to_string();
  expect_same_bits(answer(*llm, "bytes"), answer(*llm, "file"));
  EXPECT_EQ(llm->adapters()[0].digest, llm->adapters()[1].digest);
}

TEST_F(AdapterBytesTest, BringTheirOwnTokens) {
  const auto path = files_.write_own_tokens("own", 2, R"({"added_tokens_decoder":{"4096":{"content":"<greek>"}}})");
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"file", path}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "bytes", .bytes = bytes_of(path)}).ok());
  EXPECT_EQ(llm->adapters()[0].own_tokens, 2);
  const auto from_text = [&](const std::string& adapter) {
    Request request = with_adapters(greedy_request({}, 4), {{adapter}});
    request.prompt = "a <greek> b";
    return llm->generate({request}).front();
  };
  EXPECT_THAT(from_text("bytes").prompt_token_ids, ::testing::Contains(4096));
  expect_same_bits(from_text("bytes"), from_text("file"));
}

TEST_F(AdapterBytesTest, ThatAreWrongAreRefusedByName) {
  const auto path = files_.write("a", 4, 1);
  const auto good = bytes_of(path);
  const std::string& tensors = good->at("adapter_model.safetensors");
  const auto llm = load_or_die(options_);
  const auto refused = [&](std::string_view name, const std::optional<std::string>& content) {
    auto bytes = std::make_shared<AdapterBytes>(*good);
    bytes->erase(std::string(name));
    if (content) bytes->emplace(name, *content);
    return llm->load_adapter({.name = "a", .bytes = std::move(bytes)});
  };
  for (const std::string& content : {std::string("GGUF and more"), std::string(), tensors.substr(0, tensors.size() / 2)}) {
    const Status status = refused("adapter_model.safetensors", content);
    EXPECT_THAT(status.code(), AnyOf(Code::kCorrupt, Code::kTooLarge));
    EXPECT_THAT(status.message(), AllOf(HasSubstr("adapter 'a' (in memory)"), HasSubstr("adapter_model.safetensors in memory")));
  }
  const Status config = refused("adapter_config.json", "{\"r\":");
  EXPECT_EQ(config.code(), Code::kCorrupt);
  EXPECT_THAT(config.message(), HasSubstr("adapter_config.json in memory"));
  const Status no_config = refused("adapter_config.json", std::nullopt);
  EXPECT_EQ(no_config.code(), Code::kNotFound);
  EXPECT_THAT(no_config.message(), HasSubstr("there is no adapter_config.json"));
  const Status no_tensors = refused("adapter_model.safetensors", std::nullopt);
  EXPECT_EQ(no_tensors.code(), Code::kNotFound);
  EXPECT_THAT(no_tensors.message(), HasSubstr("there is no adapter_model.safetensors, adapter_model.bin"));
  const Status tokenizer = refused("tokenizer_config.json", "{");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.to_string();  // no row needs it: a note
  EXPECT_THAT(llm->adapters().at(0).notes, ::testing::Contains(HasSubstr("the base's tokenizer is used")));
  ASSERT_TRUE(llm->unload_adapter("a").ok());
  EXPECT_EQ(llm->load_adapter({.name = "a", .path = path, .bytes = good}).code(), Code::kInvalidArgument);
  EXPECT_EQ(llm->load_adapter({.name = "a"}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(llm->adapters().empty());
}

}  // namespace
}  // namespace choral::engine
