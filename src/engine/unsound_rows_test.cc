// What was computed is shared once it was seen to be sound: a row whose logits are no numbers leaves nothing behind that a later
// request with the same prefix would find.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/assembled_engine_test.h"
#include "io/safetensors.h"
#include "support/temp_dir.h"

namespace choral::engine {
namespace {

// Changes what a worker answers.
class CraftedExecutor : public Executor {
 public:
  using Craft = std::function<void(const StepInput&, StepOutput&)>;
  CraftedExecutor(std::unique_ptr<Executor> far, const Craft& craft) : far_(std::move(far)), craft_(craft) {}

  const ExecutorFacts& facts() const override { return far_->facts(); }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    return far_->add_adapter(key, std::move(voice));
  }
  void remove_adapter(lora::AdapterKey key) override { far_->remove_adapter(key); }
  void take_adapters() override { far_->take_adapters(); }
  void set_wake(std::function<void()> wake) override { far_->set_wake(std::move(wake)); }
  std::vector<std::string> take_device_notes() override { return far_->take_device_notes(); }
  Status add_request(const NewRequest& request) override { return far_->add_request(request); }
  Status execute_model(const StepInput& input, StepOutput& out) override {
    Status computed = far_->execute_model(input, out);
    if (craft_) craft_(input, out);
    return computed;
  }

 private:
  std::unique_ptr<Executor> far_;
  const Craft& craft_;
};

class UnsoundRows : public ::testing::Test {
 protected:
  UnsoundRows()
      : engine_(chunked(tiny_options()), [this](EngineOptions& options, const ModelFiles& files) {
          return std::make_unique<CraftedExecutor>(AssembledEngine::one_worker(options, files), craft_);
        }) {}

  static EngineOptions chunked(EngineOptions options) {
    options.max_num_batched_tokens = 64;
    return options;
  }
  RequestOutput answer(const std::vector<int32_t>& prompt) {
    const auto output = engine_.generate({greedy_request(prompt, 4)}).front();
    EXPECT_TRUE(engine_.core().check_health(std::chrono::minutes(5)).ok());  // and its last step is over
    return output;
  }
  void expect_unshared_until_computed_anew(const std::vector<int32_t>& prompt) {
    const auto anew = answer(prompt), again = answer(prompt);
    EXPECT_EQ(anew.cached_tokens, 0) << "what nobody saw to be sound was shared";
    EXPECT_EQ(again.cached_tokens, static_cast<int>(prompt.size() - 1) / 32 * 32);
    expect_same_bits(anew, again);
  }

  CraftedExecutor::Craft craft_;
  AssembledEngine engine_;
};

void fail_tokens(StepOutput& out) {
  for (auto& token : out.tokens) {
    token.token = -1;
    token.status = internal_error("its logits are no numbers");
  }
}

TEST_F(UnsoundRows, AFailedRowIsNotShared) {
  const auto prompt = random_prompt(50, 1);  // one step
  craft_ = [](const StepInput&, StepOutput& out) { fail_tokens(out); };
  EXPECT_EQ(answer(prompt).status.code(), Code::kInternal);
  craft_ = {};
  expect_unshared_until_computed_anew(prompt);
}

TEST_F(UnsoundRows, NorIsAChunkThatWasNotSound) {
  const auto prompt = random_prompt(200, 2);
  bool first = true;
  craft_ = [&](const StepInput&, StepOutput& out) {
    if (std::exchange(first, false)) out.items.at(0).is_sound = false;
    fail_tokens(out);
  };
  EXPECT_EQ(answer(prompt).status.code(), Code::kInternal);
  craft_ = {};
  expect_unshared_until_computed_anew(prompt);
}

TEST_F(UnsoundRows, ASoundChunkIsSharedThoughTheAnswerFails) {
  const auto prompt = random_prompt(200, 3);
  craft_ = [](const StepInput&, StepOutput& out) { fail_tokens(out); };
  EXPECT_EQ(answer(prompt).status.code(), Code::kInternal);
  craft_ = {};
  EXPECT_EQ(answer(prompt).cached_tokens, 192) << "the chunks before the last";
}

// A model whose embedding of one token is not a number, as a broken file or a broken machine gives it.
TEST(UnsoundModel, SharesWhatComesBeforeTheBrokenRow) {
  constexpr int32_t kBroken = 7;
  const testing::TempDir folder;
  EngineOptions options = tiny_options();
  std::filesystem::copy(options.model, folder.path() / "model");
  options.model = folder / "model";
  options.max_num_batched_tokens = 64;
  bool broken = false;
  for (const auto& entry : std::filesystem::directory_iterator(options.model)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto header = io::parse_safetensors(std::as_bytes(std::span(bytes)), "a part of the model");
    ASSERT_TRUE(header.ok()) << header.status().message();
    const auto* embedding = header->find("model.embed_tokens.weight");
    if (embedding == nullptr) continue;
    const size_t row_bytes = (embedding->end - embedding->begin) / static_cast<size_t>(embedding->shape[0]);
    const size_t begin = header->data_offset + embedding->begin + kBroken * row_bytes;
    std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(begin), row_bytes, '\xff');  // in every float type
    std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << bytes;
    broken = true;
  }
  ASSERT_TRUE(broken) << "the model has no embedding to break";
  const auto llm = load_or_die(options), whole = load_or_die(tiny_options());
  auto prompt = random_prompt(200, 4);
  std::replace(prompt.begin(), prompt.end(), kBroken, kBroken + 1);
  auto other = prompt;
  prompt[100] = kBroken;  // in the second of four chunks
  other[199] += 1;
  EXPECT_EQ(llm->generate({greedy_request(prompt, 4)}).front().status.code(), Code::kInternal);
  EXPECT_EQ(stats_at_rest(*llm).corrupted, 1);
  const auto found = llm->generate({greedy_request(other, 4)}).front();
  EXPECT_EQ(found.cached_tokens, 64) << "the first chunk was sound";
  expect_same_bits(found, whole->generate({greedy_request(other, 4)}).front());
  EXPECT_EQ(llm->generate({greedy_request(prompt, 4)}).front().cached_tokens, 96) << "the blocks before the broken token's";
}

}  // namespace
}  // namespace choral::engine
