#include "serve/adapters/adapter_changes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "support/temp_dir.h"

namespace choral::serve {
namespace {

// The names of an engine without anything else.
class NamesOnly final : public LLM {
 public:
  Status load_adapter(const AdapterSpec& spec, bool replace, std::optional<int>) override {
    const std::lock_guard lock(mutex_);
    if (!replace && names_.contains(spec.name)) return Status(Code::kAlreadyExists, "it is there");
    AdapterInfo& info = names_[spec.name];
    info.name = spec.name;
    info.path = spec.path;
    info.pinned = spec.pinned;
    info.digest = std::string(64, 'a');
    ++info.generation;
    return {};
  }
  Status unload_adapter(std::string_view name, std::optional<int> expected_generation) override {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(std::string(name));
    if (found == names_.end()) return Status(Code::kNotFound, "it is not there");
    if (expected_generation && found->second.generation != *expected_generation) return Status(Code::kAlreadyExists, "stale");
    names_.erase(found);
    return {};
  }
  Status pin_adapter(std::string_view name, bool pinned) override {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(std::string(name));
    if (found == names_.end()) return Status(Code::kNotFound, "it is not there");
    found->second.pinned = pinned;
    return {};
  }
  std::vector<AdapterInfo> adapters() const override {
    const std::lock_guard lock(mutex_);
    std::vector<AdapterInfo> all;
    for (const auto& [name, info] : names_) all.push_back(info);
    return all;
  }
  std::optional<AdapterInfo> adapter(std::string_view name) const override {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(std::string(name));
    return found == names_.end() ? std::nullopt : std::optional(found->second);
  }
  Result<std::vector<AdapterLayer>> adapter_layers(std::string_view) override { return std::vector<AdapterLayer>{}; }
  AdapterNames adapter_names() const override { return std::make_shared<const AdapterNameList>(); }

  Result<std::unique_ptr<ResponseStream>> submit(Request) override { return none(); }
  Result<std::vector<std::unique_ptr<ResponseStream>>> submit_each(Request, std::vector<Prompt>) override { return none(); }
  std::vector<RequestOutput> generate(std::vector<Request>) override { return {}; }
  Result<std::shared_ptr<const Vocabulary>> vocabulary(const std::vector<AdapterUse>&) const override { return none(); }
  Result<std::vector<int32_t>> tokenize(std::string_view, bool) const override { return none(); }
  std::string detokenize(const std::vector<int32_t>&, bool) const override { return ""; }
  std::string token_text(int32_t) const override { return ""; }
  std::string token_bytes(int32_t) const override { return ""; }
  Result<std::string> apply_chat_template(const Request&) const override { return none(); }
  Status structured_output_support() const override { return none(); }
  SamplingParams default_sampling(const SamplingParams& otherwise) const override { return otherwise; }
  const ModelInfo& info() const override { return info_; }
  std::vector<std::string> device_notes() const override { return {}; }
  EngineStats stats() const override { return {}; }
  bool next_kv_events(KvEventBatch&, std::chrono::milliseconds) override { return false; }
  Status check_health(std::chrono::milliseconds) override { return {}; }
  EngineHeartbeat heartbeat() const override { return {}; }
  EngineActivity activity() const override { return {}; }
  Status pause(PauseMode) override { return none(); }
  void resume() override {}

 private:
  static Status none() { return Status(Code::kUnsupported, "names only"); }

  ModelInfo info_;
  mutable std::mutex mutex_;
  std::map<std::string, AdapterInfo> names_;
};

// A record in memory that does something in the midst of each change.
class Record final : public RegisteredAdapters {
 public:
  std::function<void(const std::string& what)> in_the_midst = [](const std::string&) {};
  Status result;

  Result<std::vector<RegisteredAdapter>> all() override {
    const std::lock_guard lock(mutex_);
    std::vector<RegisteredAdapter> out;
    for (const auto& [name, one] : rows_) out.push_back(one);
    return out;
  }
  Result<std::optional<RegisteredAdapter>> find(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    const auto found = rows_.find(std::string(name));
    return found == rows_.end() ? std::nullopt : std::optional(found->second);
  }
  Status put(const RegisteredAdapter& adapter) override {
    in_the_midst("put " + adapter.name);
    const std::lock_guard lock(mutex_);
    if (result.ok()) rows_[adapter.name] = adapter;
    return result;
  }
  Status set_pinned(std::string_view name, bool pinned) override {
    in_the_midst("pin " + std::string(name));
    const std::lock_guard lock(mutex_);
    if (const auto found = rows_.find(std::string(name)); found != rows_.end()) found->second.pinned = pinned;
    return result;
  }
  Status remove(std::string_view name) override {
    in_the_midst("remove " + std::string(name));
    const std::lock_guard lock(mutex_);
    rows_.erase(std::string(name));
    return result;
  }
  Result<int> number_of(const std::string&, const std::string&) override { return 1; }
  Result<std::vector<NumberedName>> numbers() override { return std::vector<NumberedName>(); }
  Status put_numbers(std::span<const NumberedName>) override { return {}; }

 private:
  std::mutex mutex_;
  std::map<std::string, RegisteredAdapter> rows_;
};

struct Row {
  std::string name, path;
  bool pinned;
  bool operator==(const Row&) const = default;
};

class AdapterChangesTest : public ::testing::Test {
 protected:
  std::vector<Row> of_engine() const {
    std::vector<Row> rows;
    for (const auto& a : llm_.adapters()) rows.push_back({a.name, a.path, a.pinned});
    return rows;
  }
  std::vector<Row> of_record() {
    std::vector<Row> rows;
    const auto all = record_.all();
    for (const auto& a : *all) rows.push_back({a.name, a.path, a.pinned});
    return rows;
  }
  // Does `first`; while its record is being written, the others come and wait, for it alone.
  void race(std::function<void()> first, const std::vector<std::function<void()>>& others) {
    std::vector<std::thread> threads;
    bool begun = false;
    record_.in_the_midst = [&](const std::string&) {
      if (std::exchange(begun, true)) return;
      for (const auto& other : others) threads.emplace_back(other);
      while (changes_.waiting() < static_cast<int>(others.size()) && !strayed_) std::this_thread::yield();
    };
    first();
    for (auto& thread : threads) thread.join();
    record_.in_the_midst = [](const std::string&) {};
  }

  NamesOnly llm_;
  Record record_;
  AdapterChanges changes_{llm_, &record_};
  std::atomic<bool> strayed_ = false;  // a change of the same name did not wait
};

TEST_F(AdapterChangesTest, WhatWasSentGoesWithTheLastNameThatStandsForIt) {
  const std::filesystem::path state = std::filesystem::path(::testing::TempDir()) / "choral_sent_changes";
  std::filesystem::remove_all(state);
  std::filesystem::create_directories(state);
  const auto uploads = AdapterUploads::open(state.string(), {.bytes = 1000});
  ASSERT_TRUE(uploads.ok());
  const auto sent = [&uploads] {
    const std::string id = *(*uploads)->begin({{.name = "adapter_model.gguf", .bytes = 3}});
    EXPECT_TRUE((*uploads)->write(id, "adapter_model.gguf", 0, "abc").ok());
    return *(*uploads)->finish(id);
  };
  AdapterChanges changes(llm_, &record_, uploads->get());
  const std::string first = sent(), second = sent();
  ASSERT_TRUE(changes.load({.name = "one", .path = first}, false, {}).ok());
  ASSERT_TRUE(changes.load({.name = "other", .path = first}, false, {}).ok());
  ASSERT_TRUE(changes.load({.name = "one", .path = second}, true, {}).ok());
  EXPECT_TRUE(std::filesystem::exists(first)) << "the other still stands for it";
  ASSERT_TRUE(changes.unload("other", {}).ok());
  EXPECT_FALSE(std::filesystem::exists(first));
  EXPECT_TRUE(std::filesystem::exists(second));
  // Registered, and not in the engine: it could not be loaded when the server began.
  ASSERT_TRUE(llm_.unload_adapter("one", {}).ok());
  ASSERT_TRUE(changes.unload("one", {}).ok());
  EXPECT_FALSE(std::filesystem::exists(second));
  EXPECT_EQ((*uploads)->held_bytes(), 0);
  EXPECT_EQ(changes.unload("one", {}).code(), Code::kNotFound);
  std::filesystem::remove_all(state);
}

// Of a fleet: what is loaded and unloaded here is so in the catalogue, and the record knows nothing of it.
TEST_F(AdapterChangesTest, WhatIsForAllGoesIntoTheCatalogue) {
  const testing::TempDir root;
  root.write("staging/adapter_config.json", "{}");
  root.write("staging/adapter_model.safetensors", "weights");
  const std::string staging = root / "staging", map = root / "catalogue.json";
  CatalogueFolder catalogue(std::filesystem::canonical(root.path()).string());
  AdapterChanges changes(llm_, &record_, nullptr, &catalogue);
  ASSERT_TRUE(record_.put({.name = "sql", .path = "/before"}).ok());
  ASSERT_TRUE(changes.load({.name = "sql", .path = staging}, true, {}).ok());
  EXPECT_EQ(of_record(), std::vector<Row>()) << "the registration from before would be back after a restart";
  const auto view = catalogue.now();
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(of_engine(), (std::vector<Row>{{"sql", view->places.at("sql").folder, false}}));
  EXPECT_NE(view->places.at("sql").folder, staging);
  EXPECT_EQ(view->places.at("sql").digest, std::string(64, 'a'));

  // Known to the catalogue, and not to this engine: nobody has asked for it here.
  ASSERT_TRUE(llm_.unload_adapter("sql", {}).ok());
  EXPECT_EQ(changes.load({.name = "sql", .path = staging}, false, {}).status().code(), Code::kAlreadyExists);
  EXPECT_EQ(changes.unload("sql", 3).code(), Code::kAlreadyExists);
  EXPECT_TRUE(catalogue.now()->places.contains("sql"));
  ASSERT_TRUE(changes.unload("sql", {}).ok());
  EXPECT_FALSE(catalogue.now()->places.contains("sql"));
  EXPECT_EQ(changes.unload("sql", {}).code(), Code::kNotFound);

  // A map that cannot be written takes the adapter back.
  root.write("catalogue.json", "{");
  const auto refused = changes.load({.name = "sql", .path = staging}, false, {});
  EXPECT_NE(refused.status().message().find("is not loaded"), std::string::npos) << refused.status().message();
  EXPECT_EQ(of_engine(), std::vector<Row>());
  EXPECT_EQ(changes.load({.name = "sql", .path = root / "none"}, false, {}).status().code(), Code::kNotFound);
}

TEST_F(AdapterChangesTest, AnUnloadInTheMidstOfALoadComesAfterIt) {
  race([&] { EXPECT_TRUE(changes_.load({.name = "x", .path = "/1"}, false, {}).ok()); }, {[&] {
         EXPECT_TRUE(changes_.unload("x", {}).ok());
         strayed_ = true;
       }});
  EXPECT_EQ(of_engine(), std::vector<Row>());
  EXPECT_EQ(of_record(), of_engine()) << "it would answer again after a restart";
}

TEST_F(AdapterChangesTest, ALoadInTheMidstOfAnUnloadComesAfterIt) {
  ASSERT_TRUE(changes_.load({.name = "x", .path = "/1"}, false, {}).ok());
  race([&] { EXPECT_TRUE(changes_.unload("x", {}).ok()); }, {[&] {
         EXPECT_TRUE(changes_.load({.name = "x", .path = "/2"}, false, {}).ok());
         strayed_ = true;
       }});
  EXPECT_EQ(of_engine(), (std::vector<Row>{{"x", "/2", false}}));
  EXPECT_EQ(of_record(), of_engine());
}

TEST_F(AdapterChangesTest, OfReplacementsAndPinsTheLastCountsInBoth) {
  const auto replace = [&](const char* path, bool pinned) {
    return [this, path, pinned] {
      EXPECT_TRUE(changes_.load({.name = "x", .path = path, .pinned = pinned}, true, {}).ok());
      strayed_ = true;
    };
  };
  for (int round = 0; round < 20; ++round) {
    strayed_ = false;
    race(replace("/1", true), {replace("/2", false), replace("/3", true), [&] {
                                 const auto pinned = changes_.pin("x", true);
                                 EXPECT_TRUE(pinned.ok() && pinned->pinned);
                                 strayed_ = true;
                               }});
    EXPECT_EQ(of_record(), of_engine());
  }
}

TEST_F(AdapterChangesTest, OtherNamesDoNotWait) {
  bool begun = false;
  record_.in_the_midst = [&](const std::string&) {
    if (std::exchange(begun, true)) return;
    std::thread([&] { EXPECT_TRUE(changes_.load({.name = "y", .path = "/y"}, false, {}).ok()); }).join();
  };
  EXPECT_TRUE(changes_.load({.name = "x", .path = "/x"}, false, {}).ok());
  EXPECT_EQ(of_engine().size(), 2u);
  EXPECT_EQ(of_record(), of_engine());
}

TEST_F(AdapterChangesTest, ErrorsOfTheRecordSayWhatIsSoMeanwhile) {
  record_.result = Status(Code::kResourceExhausted, "the disk is full");
  const auto loaded = changes_.load({.name = "x", .path = "/x"}, false, {});
  EXPECT_EQ(loaded.status().code(), Code::kResourceExhausted);
  EXPECT_NE(loaded.status().message().find("will not be after a restart"), std::string::npos);
  EXPECT_EQ(changes_.pin("x", true).status().code(), Code::kResourceExhausted);
  EXPECT_NE(changes_.unload("x", {}).message().find("back after a restart"), std::string::npos);
  EXPECT_EQ(changes_.unload("x", {}).code(), Code::kNotFound);
  EXPECT_EQ(changes_.pin("x", true).status().code(), Code::kNotFound);
}

TEST_F(AdapterChangesTest, AFolderThatIsGoneTakesOnlyWhatWasReadThere) {
  ASSERT_TRUE(llm_.load_adapter({.name = "found", .path = "/root/found"}, false, {}).ok());
  ASSERT_TRUE(llm_.load_adapter({.name = "moved", .path = "/elsewhere"}, false, {}).ok());
  ASSERT_TRUE(changes_.load({.name = "given", .path = "/root/given"}, false, {}).ok());
  const auto goes = [&](const std::string& name) { return *changes_.forget_folder(name, "/root/" + name); };
  EXPECT_TRUE(goes("found"));
  EXPECT_FALSE(goes("found"));
  EXPECT_FALSE(goes("moved"));
  EXPECT_FALSE(goes("given")) << "who registered it takes it back";
  EXPECT_EQ(of_engine().size(), 2u);
}

}  // namespace
}  // namespace choral::serve
