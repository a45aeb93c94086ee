// Bodies of Ollama's /api/chat, /api/generate and /api/embed, said as those of a chat and of embeddings. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "serve/openai/calls.h"

namespace choral::serve {

struct OllamaCall {
  ChatCall chat;
  bool is_chat = true;         // else of /api/generate
  bool is_raw = false;         // the prompt is chat.request.prompt, which no template writes
  bool asks_nothing = false;   // there is no prompt: Ollama loads the model then
  bool shows_thoughts = true;  // else nobody asked for them
};

// `has_template`: the model has one for chats; else a prompt of /api/generate is taken as it is.
Result<OllamaCall> read_ollama_chat(std::string_view body, const SamplingParams& defaults, BodyNotes& notes);
Result<OllamaCall> read_ollama_generate(std::string_view body, const SamplingParams& defaults, bool has_template,
                                        BodyNotes& notes);
Result<EmbeddingCall> read_ollama_embed(std::string_view body, BodyNotes& notes);
// The model that the body names.
Result<std::string> read_ollama_model(std::string_view body, BodyNotes& notes);

// Ollama puts a tag behind names that have none.
std::string_view without_tag(std::string_view model);

std::string ollama_chat_schema();
std::string ollama_generate_schema();
std::string ollama_embed_schema();
std::string ollama_show_schema();

}  // namespace choral::serve
