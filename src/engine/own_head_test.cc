// A file that calls itself tied and holds a head: one that differs from the table multiplies, and a note says so.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/tiny_model_test.h"
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "support/temp_dir.h"
#include "tensor/tensor.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

enum class Head { kNone, kOfTheTable, kOther };

// tiny-qwen2 with or without a head, called tied or not.
class WrittenModel {
 public:
  WrittenModel(Head head, bool tied) {
    const fs::path model = tiny_options("tiny-qwen2").model;
    const auto source = *io::Checkpoint::open(model);
    std::vector<io::TensorToWrite> tensors;
    for (const auto& name : source->names()) {
      if (name != "lm_head.weight") tensors.push_back({name, source->find(name)->view});
    }
    const TensorView table = source->find("model.embed_tokens.weight")->view;
    Tensor other = *Tensor::allocate(table.dtype, table.shape);
    std::memcpy(other.data(), table.data, other.size_bytes());
    if (head == Head::kOther) std::swap_ranges(other.data(), other.data() + 64, other.data() + other.size_bytes() / 2);
    if (head != Head::kNone) tensors.push_back({"lm_head.weight", other.view()});
    CHORAL_CHECK(io::write_safetensors(folder_.path() / "model.safetensors", tensors).ok(), "the checkpoint is written");
    auto config = nlohmann::json::parse(*io::read_whole_file(model / "config.json", 1 << 20));
    config["tie_word_embeddings"] = tied;
    folder_.write("config.json", config.dump());
    tokenizer_ = model;
  }
  EngineOptions options() const {
    auto options = tiny_options("tiny-qwen2");
    options.model = folder_.path().string();
    options.tokenizer = tokenizer_.string();
    return options;
  }

 private:
  testing::TempDir folder_;
  fs::path tokenizer_;
};

TEST(OwnHead, IsUsedWhereItDiffers) {
  const WrittenModel bare(Head::kNone, true), same(Head::kOfTheTable, true), other(Head::kOther, true),
      untied(Head::kOther, false);
  const auto answer = [](const WrittenModel& model) {
    const auto llm = load_or_die(model.options());
    EXPECT_EQ(std::any_of(llm->info().notes.begin(), llm->info().notes.end(),
                          [](const auto& note) { return note.find("lm_head.weight differs") != note.npos; }),
              false);
    return llm->generate({greedy_request(random_prompt(20, 7), 8)}).front();
  };
  expect_same_bits(answer(bare), answer(same));
  const auto llm = load_or_die(other.options());
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("lm_head.weight differs from model.embed_tokens.weight and is used")));
  expect_same_bits(llm->generate({greedy_request(random_prompt(20, 7), 8)}).front(), answer(untied));
}

}  // namespace
}  // namespace choral::engine
