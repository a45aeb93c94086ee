#include "serve/routes/unserved_routes.h"

#include <algorithm>
#include <array>

namespace choral::serve {
namespace {

struct Unserved {
  std::string_view begin;  // of its path, without /v1
  std::string_view instead;
};

constexpr std::array kUnserved{
    Unserved{"/audio/speech", "this server writes text: give its answers to a text-to-speech server"},
    Unserved{"/audio/",
             "this server reads text: let a speech-to-text server (whisper.cpp, vLLM with Whisper) write it, and send that"},
    Unserved{"/images/", "this server writes text; an image model has a server of its own"},
    Unserved{"/chat/completions/input_tokens", "POST /tokenize counts the tokens of 'messages'"},
    Unserved{"/chat/completions/control", "close the connection: that ends an answer"},
    Unserved{"/realtime", "this server speaks HTTP: POST /v1/chat/completions with 'stream'"},
    Unserved{"/moderations", "no model here is trained to judge texts; ask one in a chat, with response_format for its verdict"},
    Unserved{"/uploads", "POST /v1/files takes a file as a whole"},
    Unserved{"/vector_stores", "nothing is stored: keep the vectors of POST /v1/embeddings in a store of your own"},
    Unserved{"/batch", "POST /v1/batches works off a file of requests"},
    Unserved{"/fine_tuning/", "nothing is trained here: train an adapter with PEFT and load it with POST /v1/load_lora_adapter"},
    Unserved{"/assistants", "OpenAI's older form; POST /v1/responses or /v1/chat/completions"},
    Unserved{"/threads", "OpenAI's older form; POST /v1/responses or /v1/chat/completions"},
    // Ollama's
    Unserved{"/api/pull", "this server has the model that it was started with; `choral pull` fetches one"},
    Unserved{"/api/push", "this server sends nothing away"},
    Unserved{"/api/create", "models are files: POST /v1/load_lora_adapter loads an adapter, `choral quantize` writes a model"},
    Unserved{"/api/delete", "POST /v1/unload_lora_adapter takes an adapter away"},
    Unserved{"/api/copy", "POST /v1/load_lora_adapter loads an adapter's folder under another name"},
    Unserved{"/api/blobs", "files are not sent here; POST /v1/load_lora_adapter loads a folder"},
    Unserved{"/api/embeddings", "POST /api/embed, its newer form"},
    Unserved{"/slots/", "beginnings of prompts are found by their content, in memory, and in no slots that could be saved"},
    Unserved{"/sleep", "a server that is not needed is ended, with SIGTERM"},
    Unserved{"/wake_up", "a server does not sleep; see GET /readyz"},
    Unserved{"/init_weight_transfer_engine",
             "the base's weights stay; a trainer of an adapter sends that: POST /v1/load_lora_adapter"},
    Unserved{"/start_weight_update", "the base's weights stay; a trainer of an adapter sends that: POST /v1/load_lora_adapter"},
    Unserved{"/update_weights", "the base's weights stay; a trainer of an adapter sends that: POST /v1/load_lora_adapter"},
    Unserved{"/finish_weight_update", "the base's weights stay; a trainer of an adapter sends that: POST /v1/load_lora_adapter"},
    Unserved{"/invocations", "POST to the endpoint itself: /v1/chat/completions, /v1/completions, /v1/embeddings"},
    Unserved{"/cors-proxy", "this server asks no other for anything"},
    Unserved{"/tools", "this server runs no tools: a client does, with the calls of POST /v1/chat/completions"},
};

}  // namespace

std::optional<std::string_view> instead_of(std::string_view path) {
  constexpr std::string_view kVersion = "/v1/";
  if (path.starts_with(kVersion)) path.remove_prefix(kVersion.size() - 1);
  const auto found = std::find_if(kUnserved.begin(), kUnserved.end(), [path](const Unserved& unserved) {
    const std::string_view begin = unserved.begin;
    if (!path.starts_with(begin)) return false;
    return begin.ends_with('/') || path.size() == begin.size() || path[begin.size()] == '/';
  });
  if (found == kUnserved.end()) return std::nullopt;
  return found->instead;
}

}  // namespace choral::serve
