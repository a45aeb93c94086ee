#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>

#include "choral/choral.h"
#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"

namespace choral {
namespace {

using engine::AdapterFiles;
using engine::greedy_request;
using engine::random_prompt;
using engine::tiny_options;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A text of the library's, freed with this.
struct Text {
  char* text = nullptr;
  ~Text() { choral_free(text); }
  std::string value() const { return text != nullptr ? text : "(NULL)"; }
};

class CApi : public ::testing::Test {
 protected:
  void SetUp() override {
    const Json options{{"model", tiny_options().model}, {"threads", 2}};
    ASSERT_EQ(choral_engine_load(options.dump().c_str(), &engine_, nullptr), CHORAL_OK);
  }
  void TearDown() override { choral_engine_free(engine_); }

  static Json request(const std::string& lora = "", int max_tokens = 12) {
    Json json{{"prompt_token_ids", random_prompt(40, 3)}, {"max_tokens", max_tokens}, {"temperature", 0}, {"ignore_eos", true}};
    if (!lora.empty()) json["lora"] = lora;
    return json;
  }
  // Seconds of work.
  static Json long_request() {
    Json json = request("", 450);
    json["n"] = 64;
    return json;
  }
  choral_answer* submit(const Json& json) {
    choral_answer* answer = nullptr;
    Text error;
    EXPECT_EQ(choral_submit(engine_, json.dump().c_str(), &answer, &error.text), CHORAL_OK) << error.value();
    return answer;
  }
  // The whole of it.
  static Json taken(choral_answer* answer, int32_t code = CHORAL_OK) {
    Text whole, error;
    EXPECT_EQ(choral_answer_wait(answer, &whole.text, &error.text), code) << error.value();
    choral_answer_free(answer);
    return Json::parse(whole.value());
  }
  std::vector<int32_t> tokens_of(const std::string& lora) { return taken(submit(request(lora)))["token_ids"]; }
  // What the C++ API answers.
  static std::vector<int32_t> expected(LLM& llm, const std::string& lora) {
    Request r = greedy_request(random_prompt(40, 3), 12);
    if (!lora.empty()) r.adapters = {{lora}};
    return llm.generate({r}).front().completions.at(0).token_ids;
  }
  int32_t load_adapter(const Json& json, std::string* why = nullptr) {
    Text error;
    const int32_t code = choral_adapter_load(engine_, json.dump().c_str(), &error.text);
    if (why != nullptr) *why = error.value();
    return code;
  }
  Json adapters() {
    Text list;
    EXPECT_EQ(choral_adapter_list(engine_, &list.text, nullptr), CHORAL_OK);
    return Json::parse(list.value());
  }

  choral_engine* engine_ = nullptr;
};

TEST_F(CApi, AnswersAsTheEngineDoes) {
  const auto llm = engine::load_or_die(tiny_options());
  choral_answer* const answer = submit(request());
  choral_piece piece{};
  piece.size = sizeof piece;
  std::vector<int32_t> streamed;
  std::string text;
  for (;;) {
    ASSERT_EQ(choral_answer_next(answer, -1, &piece, nullptr), CHORAL_OK);
    if (piece.state == CHORAL_END) break;
    ASSERT_EQ(piece.state, CHORAL_PIECE);
    EXPECT_EQ(piece.index, 0);
    streamed.insert(streamed.end(), piece.token_ids, piece.token_ids + piece.token_count);
    if (piece.text != nullptr) {
      EXPECT_EQ(std::strlen(piece.text), piece.text_bytes);
      text += piece.text;
    }
  }
  const Json whole = taken(answer);
  EXPECT_EQ(streamed, expected(*llm, ""));
  EXPECT_EQ(whole["token_ids"], Json(streamed));
  EXPECT_EQ(whole["text"], text);
  EXPECT_EQ(whole["finish_reason"], "length");
  EXPECT_TRUE(whole["id"].is_string());
}

TEST_F(CApi, AnAdapterFromItsFilesAndFromMemoryIsOne) {
  const AdapterFiles files;
  const std::filesystem::path path = files.write("a", 4, 1);
  const auto llm = engine::load_or_die(tiny_options());
  ASSERT_TRUE(llm->load_adapter({"file", path.string()}).ok());
  ASSERT_EQ(load_adapter({{"name", "file"}, {"path", path.string()}}), CHORAL_OK);
  const std::string config = *io::read_whole_file(path / "adapter_config.json", 1 << 20);
  std::string tensors = *io::read_whole_file(path / "adapter_model.safetensors", 1 << 30);
  const choral_file held[] = {{"adapter_config.json", config.data(), config.size()},
                              {"adapter_model.safetensors", tensors.data(), tensors.size()}};
  ASSERT_EQ(choral_adapter_load_files(engine_, R"({"name":"memory"})", held, 2, nullptr), CHORAL_OK);
  std::fill(tensors.begin(), tensors.end(), '\0');  // it was copied
  EXPECT_EQ(tokens_of("file"), expected(*llm, "file"));
  EXPECT_EQ(tokens_of("memory"), expected(*llm, "file"));
  EXPECT_NE(tokens_of(""), expected(*llm, "file"));
  const Json list = adapters();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["digest"], list[1]["digest"]);
  EXPECT_EQ(list[1]["name"], "memory");
  EXPECT_EQ(list[1]["path"], "");
  EXPECT_EQ(choral_adapter_unload(engine_, "memory", nullptr), CHORAL_OK);
  EXPECT_EQ(choral_adapter_unload(engine_, "memory", nullptr), CHORAL_NOT_FOUND);
  EXPECT_EQ(adapters().size(), 1u);
}

TEST_F(CApi, WhatIsWrongIsSaidWithACode) {
  choral_answer* answer = nullptr;
  const auto refused = [&](const std::string& json) {
    Text error;
    const int32_t code = choral_submit(engine_, json.c_str(), &answer, &error.text);
    EXPECT_EQ(answer, nullptr);
    return std::pair(std::string(choral_code_name(code)), error.value());
  };
  EXPECT_EQ(refused("{"), std::pair(std::string("corrupt"), refused("{").second));
  EXPECT_THAT(refused(R"({"prompt":"a","temprature":1})").second, AllOf(HasSubstr("'temprature'"), HasSubstr("'temperature'")));
  EXPECT_EQ(refused(R"({"prompt":"a","lora":"nobody"})").first, "not_found");
  EXPECT_EQ(refused("[]").second, "the request must be a JSON object, not array");
  EXPECT_EQ(refused("\xff\xfe").first, "corrupt");
  EXPECT_EQ(refused(std::string(100'000, '[')).first, "too_large");

  choral_engine* engine = nullptr;
  Text error, other;
  EXPECT_EQ(choral_engine_load(R"({"modell":"x"})", &engine, &error.text), CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(error.value(), "'modell' is not known; did you mean 'model'?");
  EXPECT_EQ(choral_engine_load(R"({"model":"x","adapters":[{"name":"a","replace":true}]})", &engine, &other.text),
            CHORAL_INVALID_ARGUMENT);
  EXPECT_THAT(other.value(), HasSubstr("'adapters[0].replace' is not known"));
  EXPECT_EQ(choral_engine_load(R"({"model":"x","threads":"two"})", &engine, nullptr), CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(choral_engine_load(R"({"model":"/absent"})", &engine, nullptr), CHORAL_NOT_FOUND);
  EXPECT_EQ(engine, nullptr);

  std::string why;
  EXPECT_EQ(load_adapter({{"name", "a"}, {"path", "/absent"}}, &why), CHORAL_NOT_FOUND);
  EXPECT_THAT(why, HasSubstr("/absent"));
  const auto refused_files = [&](const std::string& adapter, const std::vector<choral_file>& held) {
    Text message;
    const int32_t code = choral_adapter_load_files(engine_, adapter.c_str(), held.data(), held.size(), &message.text);
    return std::string(choral_code_name(code)) + ": " + message.value();
  };
  const std::string config = R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["q_proj"]})";
  const char garbage[] = "\2\0\0\0\0\0\0\0not safetensors at all";
  const choral_file good{"adapter_config.json", config.data(), config.size()};
  const choral_file bad{"adapter_model.safetensors", garbage, sizeof garbage};
  EXPECT_THAT(refused_files(R"({"name":"a"})", {good, bad}), AllOf(HasSubstr("corrupt: "), HasSubstr("adapter 'a' (in memory)"),
                                                                   HasSubstr("adapter_model.safetensors in memory")));
  EXPECT_THAT(refused_files(R"({"name":"a","path":"/tmp"})", {good, bad}), HasSubstr("invalid_argument: "));
  EXPECT_THAT(refused_files(R"({"name":"a"})", {good, good}), HasSubstr("there are two files adapter_config.json"));
  EXPECT_THAT(refused_files(R"({"name":"a"})", {{nullptr, "", 0}}), HasSubstr("a file's name is NULL"));
  EXPECT_THAT(refused_files(R"({"name":"a"})", {{"x", nullptr, 0}}), HasSubstr("the bytes of x is NULL"));
  EXPECT_THAT(refused_files(R"({"name":"a"})", {good}), HasSubstr("not_found: "));
  EXPECT_THAT(refused_files(R"({"name":"a"})", {{"adapter_config.json", "{", 1}, bad}), HasSubstr("corrupt: "));
  EXPECT_TRUE(adapters().empty());
  EXPECT_STREQ(choral_code_name(-1), "unknown");
  EXPECT_STREQ(choral_code_name(99), "unknown");
}

TEST_F(CApi, NullIsAnErrorOrNothing) {
  choral_engine* engine = nullptr;
  choral_answer* answer = nullptr;
  choral_piece piece{};
  char* text = nullptr;
  const char* const none = nullptr;
  const choral_file file{};
  for (const int32_t code : {choral_engine_load(none, &engine, nullptr),
                             choral_engine_load("{}", nullptr, nullptr),
                             choral_engine_info(nullptr, &text, nullptr),
                             choral_engine_info(engine_, nullptr, nullptr),
                             choral_submit(nullptr, "{}", &answer, nullptr),
                             choral_submit(engine_, none, &answer, nullptr),
                             choral_submit(engine_, "{}", nullptr, nullptr),
                             choral_answer_next(nullptr, 0, &piece, nullptr),
                             choral_answer_cancel(nullptr, nullptr),
                             choral_answer_wait(nullptr, &text, nullptr),
                             choral_adapter_load(nullptr, "{}", nullptr),
                             choral_adapter_load(engine_, none, nullptr),
                             choral_adapter_load_files(engine_, none, &file, 0, nullptr),
                             choral_adapter_load_files(engine_, "{}", nullptr, 0, nullptr),
                             choral_answer_on_ready(nullptr, nullptr, nullptr, nullptr),
                             choral_engine_stats(engine_, nullptr, nullptr),
                             choral_engine_health(nullptr, 0, nullptr),
                             choral_apply_chat_template(engine_, none, &text, nullptr),
                             choral_adapter_pin(engine_, none, 1, nullptr),
                             choral_tokenize(engine_, "a", 1, 0, nullptr, nullptr, nullptr),
                             choral_detokenize(engine_, nullptr, 1, 0, &text, nullptr, nullptr),
                             choral_adapter_unload(engine_, none, nullptr),
                             choral_adapter_list(engine_, nullptr, nullptr)}) {
    EXPECT_EQ(code, CHORAL_INVALID_ARGUMENT);
  }
  choral_engine_free(nullptr);
  choral_answer_free(nullptr);
  choral_free(nullptr);
  Text error;
  EXPECT_EQ(choral_submit(nullptr, "{}", &answer, &error.text), CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(error.value(), "the engine is NULL");

  answer = submit(request());
  EXPECT_EQ(choral_answer_next(answer, 0, nullptr, nullptr), CHORAL_INVALID_ARGUMENT);
  piece.size = 8;
  Text size;
  EXPECT_EQ(choral_answer_next(answer, 0, &piece, &size.text), CHORAL_INVALID_ARGUMENT);
  EXPECT_THAT(size.value(), HasSubstr("piece->size is 8"));
  choral_answer_free(answer);
}

// A caller of a later version has a longer struct.
TEST_F(CApi, WritesNoMoreOfAPieceThanItKnows) {
  struct Longer {
    choral_piece known;
    int64_t more = 42;
  } longer;
  longer.known.size = sizeof longer;
  choral_answer* const answer = submit(request("", 1));
  ASSERT_EQ(choral_answer_next(answer, 60'000, &longer.known, nullptr), CHORAL_OK);
  EXPECT_EQ(longer.known.state, CHORAL_PIECE);
  EXPECT_EQ(longer.known.size, sizeof longer);
  EXPECT_EQ(longer.more, 42);
  choral_answer_free(answer);
}

TEST_F(CApi, AnAnswerIsTakenOnceAndMayBeCancelled) {
  choral_answer* const answer = submit(long_request());
  choral_piece piece{};
  piece.size = sizeof piece;
  ASSERT_EQ(choral_answer_next(answer, -1, &piece, nullptr), CHORAL_OK);
  ASSERT_EQ(choral_answer_cancel(answer, nullptr), CHORAL_OK);
  Text whole, again, error;
  EXPECT_EQ(choral_answer_wait(answer, &whole.text, nullptr), CHORAL_OK);
  EXPECT_EQ(Json::parse(whole.value())["finish_reason"], "abort");
  EXPECT_EQ(choral_answer_wait(answer, &again.text, &error.text), CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(again.text, nullptr);
  EXPECT_EQ(choral_answer_next(answer, 0, &piece, nullptr), CHORAL_OK);
  EXPECT_EQ(piece.state, CHORAL_END);
  choral_answer_free(answer);
}

TEST_F(CApi, AnAnswerOutlivesItsEngine) {
  choral_answer* const answer = submit(long_request());
  choral_engine_free(std::exchange(engine_, nullptr));
  EXPECT_EQ(choral_answer_cancel(answer, nullptr), CHORAL_OK);
  const Json whole = taken(answer, CHORAL_UNAVAILABLE);
  EXPECT_EQ(whole["error"]["code"], "unavailable");
}

// What a loop of events does: no call waits.
TEST_F(CApi, CallsBackWhenThereIsSomethingToRead) {
  struct Bell {
    std::atomic<int> calls = 0;
    static void ring(void* bell) {
      ++static_cast<Bell*>(bell)->calls;
      static_cast<Bell*>(bell)->calls.notify_one();
    }
  } bell;
  choral_answer* const answer = submit(request());
  ASSERT_EQ(choral_answer_on_ready(answer, Bell::ring, &bell, nullptr), CHORAL_OK);
  choral_piece piece{};
  piece.size = sizeof piece;
  size_t tokens = 0;
  for (int seen = 0; piece.state != CHORAL_END;) {
    bell.calls.wait(seen);
    seen = bell.calls;
    do {
      ASSERT_EQ(choral_answer_next(answer, 0, &piece, nullptr), CHORAL_OK);
      if (piece.state == CHORAL_PIECE) tokens += piece.token_count;
    } while (piece.state == CHORAL_PIECE);
  }
  EXPECT_EQ(tokens, 12u);
  choral_answer_free(answer);

  choral_answer* const silent = submit(request());
  const int calls = bell.calls;
  ASSERT_EQ(choral_answer_on_ready(silent, Bell::ring, &bell, nullptr), CHORAL_OK);
  ASSERT_EQ(choral_answer_on_ready(silent, nullptr, nullptr, nullptr), CHORAL_OK);
  const int told = bell.calls;  // before it was taken back
  taken(silent);
  EXPECT_EQ(bell.calls, told);
  EXPECT_LE(told, calls + 1);
}

TEST_F(CApi, GivesEmbeddings) {
  const auto llm = engine::load_or_die(tiny_options());
  Request wanted;
  wanted.prompt_token_ids = random_prompt(40, 3);
  wanted.embedding = true;
  const auto expected = llm->generate({wanted}).front().embedding;
  choral_answer* const answer = submit({{"prompt_token_ids", random_prompt(40, 3)}, {"embedding", true}});
  choral_piece piece{};
  piece.size = sizeof piece;
  ASSERT_EQ(choral_answer_next(answer, -1, &piece, nullptr), CHORAL_OK);
  EXPECT_EQ(piece.state, CHORAL_END);
  const Json whole = taken(answer);
  EXPECT_EQ(whole["embedding"].get<std::vector<float>>(), expected);
  EXPECT_EQ(expected.size(), 64u);
  EXPECT_FALSE(whole.contains("text"));
}

TEST(CApiLoad, TellsHowFarItIs) {
  struct Heard {
    std::vector<std::string> phases;
    double largest = 0;
    static void hear(void* heard, const char* phase, const char* detail, double fraction) {
      auto& self = *static_cast<Heard*>(heard);
      if (self.phases.empty() || self.phases.back() != phase) self.phases.emplace_back(phase);
      self.largest = std::max(self.largest, fraction);
      EXPECT_NE(detail, nullptr);
    }
  } heard;
  choral_engine* engine = nullptr;
  const std::string options = Json{{"model", tiny_options().model}, {"threads", 2}}.dump();
  ASSERT_EQ(choral_engine_load_with_progress(options.c_str(), Heard::hear, &heard, &engine, nullptr), CHORAL_OK);
  choral_engine_free(engine);
  EXPECT_THAT(heard.phases, ::testing::ElementsAre("open", "load", "memory", "pack", "ready"));
  EXPECT_EQ(heard.largest, 1);
}

TEST_F(CApi, TellsOfTheModel) {
  Text info;
  ASSERT_EQ(choral_engine_info(engine_, &info.text, nullptr), CHORAL_OK);
  const Json json = Json::parse(info.value());
  EXPECT_EQ(json["architecture"], "LlamaForCausalLM");
  EXPECT_GT(json["max_model_len"], 0);
  EXPECT_STREQ(choral_version(), std::string(version()).c_str());
}

TEST_F(CApi, TokenizesAsTheEngineDoes) {
  const auto llm = engine::load_or_die(tiny_options());
  const std::string text("The sky\0is blue: ä", 19);
  int32_t* ids = nullptr;
  size_t count = 0, bytes = 0;
  for (const int special : {0, 1}) {
    ASSERT_EQ(choral_tokenize(engine_, text.data(), text.size(), special, &ids, &count, nullptr), CHORAL_OK);
    EXPECT_EQ(std::vector<int32_t>(ids, ids + count), *llm->tokenize(text, special != 0));
    Text back;
    ASSERT_EQ(choral_detokenize(engine_, ids, count, 1, &back.text, &bytes, nullptr), CHORAL_OK);
    EXPECT_EQ(std::string(back.text, bytes), llm->detokenize({ids, ids + count}, true));
    choral_free(ids);
  }
  ASSERT_EQ(choral_tokenize(engine_, "", 0, 0, &ids, &count, nullptr), CHORAL_OK);
  EXPECT_EQ(count, 0u);
  EXPECT_NE(ids, nullptr) << "there is something to free";
  choral_free(ids);
  Text prompt;
  const Json chat{{"messages", {{{"role", "user"}, {"content", "Hello"}}}}};
  ASSERT_EQ(choral_apply_chat_template(engine_, chat.dump().c_str(), &prompt.text, nullptr), CHORAL_OK);
  Request wanted;
  wanted.messages = {{.role = "user", .content = "Hello"}};
  EXPECT_EQ(prompt.value(), *llm->apply_chat_template(wanted));
}

TEST_F(CApi, PinsAnAdapter) {
  const AdapterFiles files;
  ASSERT_EQ(load_adapter({{"name", "a"}, {"path", files.write("a", 4, 1)}}), CHORAL_OK);
  ASSERT_EQ(choral_adapter_pin(engine_, "a", 1, nullptr), CHORAL_OK);
  EXPECT_EQ(adapters()[0]["pinned"], true);
  ASSERT_EQ(choral_adapter_pin(engine_, "a", 0, nullptr), CHORAL_OK);
  EXPECT_EQ(adapters()[0]["pinned"], false);
  EXPECT_EQ(choral_adapter_pin(engine_, "nobody", 1, nullptr), CHORAL_NOT_FOUND);
}

TEST_F(CApi, TellsHowItDoes) {
  taken(submit(request()));
  ASSERT_EQ(choral_engine_health(engine_, 60'000, nullptr), CHORAL_OK);
  Text text;
  ASSERT_EQ(choral_engine_stats(engine_, &text.text, nullptr), CHORAL_OK);
  const Json stats = Json::parse(text.value());
  EXPECT_EQ(stats["generated_tokens"], 12);
  EXPECT_EQ(stats["running"], 0);
  EXPECT_EQ(stats["step_tokens"]["steps"].size(), stats["step_tokens"]["at_most"].size() + 1);
}

TEST_F(CApi, PiecesHaveLogprobs) {
  Json wanted = request("", 6);
  wanted["logprobs"] = 3;
  wanted["prompt_logprobs"] = 2;
  choral_answer* const answer = submit(wanted);
  choral_piece piece{};
  piece.size = sizeof piece;
  size_t positions = 0, prompt_positions = 0;
  for (;;) {
    ASSERT_EQ(choral_answer_next(answer, -1, &piece, nullptr), CHORAL_OK);
    if (piece.state == CHORAL_END) break;
    ASSERT_EQ(piece.logprob_count, piece.token_count);
    for (size_t i = 0; i < piece.logprob_count; ++i) {
      EXPECT_EQ(piece.logprobs[i].chosen.token_id, piece.token_ids[i]);
      ASSERT_EQ(piece.logprobs[i].top_count, 3u);
      EXPECT_EQ(piece.logprobs[i].top[0].token_id, piece.token_ids[i]) << "the greedy choice is the most likely one";
      EXPECT_GE(piece.logprobs[i].top[1].logprob, piece.logprobs[i].top[2].logprob);
    }
    positions += piece.logprob_count;
    prompt_positions += piece.prompt_logprob_count;
  }
  EXPECT_EQ(positions, 6u);
  EXPECT_EQ(prompt_positions, 39u) << "the first token has nothing before it";
  choral_answer_free(answer);
  EXPECT_EQ(taken(submit(request()))["text"].is_string(), true);
}

// A caller that was compiled against version 1 has a shorter struct.
TEST_F(CApi, ACallerOfVersionOneIsServed) {
  struct alignas(choral_piece) Shorter {
    char piece[offsetof(choral_piece, logprobs)];
    int64_t behind = 42;
  } shorter;
  auto* const piece = reinterpret_cast<choral_piece*>(shorter.piece);
  piece->size = sizeof shorter.piece;
  choral_answer* const answer = submit(request("", 1));
  ASSERT_EQ(choral_answer_next(answer, 60'000, piece, nullptr), CHORAL_OK);
  EXPECT_EQ(piece->state, CHORAL_PIECE);
  EXPECT_EQ(shorter.behind, 42);
  choral_answer_free(answer);
}

}  // namespace
}  // namespace choral
