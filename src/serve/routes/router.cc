#include "serve/routes/router.h"

#include <array>

#include "serve/anthropic/message_call.h"
#include "serve/batches/batch_call.h"
#include "serve/http/error_response.h"
#include "serve/native/native_call.h"
#include "serve/ollama/ollama_call.h"
#include "serve/openai/adapter_calls.h"
#include "serve/openai/calls.h"
#include "serve/openai/openapi.h"
#include "serve/openai/response_call.h"
#include "serve/pooling/pooled_call.h"
#include "serve/ranking/rank_call.h"
#include "serve/routes/routes.h"
#include "serve/routes/unserved_routes.h"

namespace choral::serve {
namespace {

struct Route {
  std::string_view method;
  std::string_view path;  // with '*' at its end: whatever follows, which is not empty
  Access access;
  void (*handle)(Service& service, const Exchange& exchange, std::string_view rest);
  std::string_view summary;
  std::string (*body_schema)() = nullptr;  // of POST
  Dialect dialect = Dialect::kOpenAI;
  bool takes_form = false;  // too
};

template <void (*kHandle)(Service&, const Exchange&)>
void plain(Service& service, const Exchange& exchange, std::string_view) {
  kHandle(service, exchange);
}

void openapi(Service& service, const Exchange& exchange, std::string_view);

constexpr std::array kRoutes{
    Route{"GET", "/health", Access::kOpen, plain<health>, "200 when the engine's loop turns"},
    Route{"GET", "/ping", Access::kOpen, plain<health>, "as /health, for SageMaker"},
    Route{"POST", "/ping", Access::kOpen, plain<health>, {}},
    Route{"GET", "/readyz", Access::kOpen, plain<readyz>, "200 when requests are welcome: not while loading or ending"},
    Route{"GET", "/version", Access::kUser, plain<show_version>, "the program's version"},
    Route{"GET", "/metrics", Access::kUser, plain<metrics>, "for Prometheus"},
    Route{"GET", "/openapi.json", Access::kUser, openapi, "this document"},
    Route{"GET", "/server_info", Access::kUser, plain<show_server_info>, "the model, and how it runs"},
    Route{"GET", "/load", Access::kUser, plain<show_load>, "answers that are made or wait"},
    Route{"GET", "/v1/models", Access::kUser, plain<list_models>, "the base and its adapters"},
    Route{"GET", "/v1/models/*", Access::kUser, get_model, "one of them"},
    Route{"POST", "/v1/completions", Access::kUser, plain<completions>, "continues texts", completion_schema},
    Route{"POST", "/v1/chat/completions", Access::kUser, plain<chat_completions>, "answers a conversation", chat_schema},
    Route{"POST", "/v1/embeddings", Access::kUser, plain<embeddings>, "vectors of texts", embedding_schema},
    Route{"POST", "/v1/responses", Access::kUser, plain<responses>, "answers a conversation, OpenAI's newer form",
          response_schema},
    Route{"GET", "/v1/responses/*", Access::kUser, get_response, "a stored response; its input behind /input_items"},
    Route{"POST", "/v1/responses/*", Access::kUser, post_response, "behind /cancel: ends one that is computed in the background"},
    Route{"DELETE", "/v1/responses/*", Access::kUser, delete_response, "forgets a stored response"},
    Route{"POST", "/v1/files", Access::kUser, plain<upload_file>,
          "takes a file of requests, for a batch: a form with file and purpose"},
    Route{"GET", "/v1/files", Access::kUser, plain<list_files>, "files of requests and of answers"},
    Route{"GET", "/v1/files/*", Access::kUser, get_file, "one of them; what is in it behind /content"},
    Route{"DELETE", "/v1/files/*", Access::kUser, delete_file, "forgets a file"},
    Route{"POST", "/v1/batches", Access::kUser, plain<create_batch>, "works off a file of requests in the gaps of other traffic",
          batch_schema},
    Route{"GET", "/v1/batches", Access::kUser, plain<list_batches>, "batches"},
    Route{"GET", "/v1/batches/*", Access::kUser, get_batch, "how far a batch is"},
    Route{"POST", "/v1/batches/*", Access::kUser, cancel_batch, "behind /cancel: ends one"},
    Route{"POST", "/v1/messages", Access::kUser, plain<messages>, "answers a conversation, as Anthropic's", message_schema,
          Dialect::kAnthropic},
    Route{"POST", "/v1/messages/count_tokens", Access::kUser, plain<count_message_tokens>, "the tokens of such a conversation",
          message_count_schema, Dialect::kAnthropic},
    Route{"POST", "/tokenize", Access::kUser, plain<tokenize>, "the tokens of a text or a conversation", tokenize_schema},
    Route{"POST", "/detokenize", Access::kUser, plain<detokenize>, "the text of tokens", detokenize_schema},
    Route{"GET", "/v1/lora_adapters", Access::kUser, plain<list_adapters>, "where each adapter is and what it has done"},
    Route{"GET", "/v1/lora_adapters/*", Access::kUser, get_adapter,
          "one of them; how much it changes each module of the base behind /effect"},
    Route{"POST", "/v1/load_lora_adapter", Access::kAdmin, plain<load_adapter>,
          "loads or replaces an adapter; in a form its files may be sent along", load_adapter_schema, Dialect::kOpenAI, true},
    Route{"POST", "/v1/unload_lora_adapter", Access::kAdmin, plain<unload_adapter>, "takes an adapter away",
          unload_adapter_schema},
    Route{"POST", "/v1/pin_lora_adapter", Access::kAdmin, plain<pin_adapter>, "keeps an adapter in memory", adapter_name_schema},
    Route{"POST", "/v1/unpin_lora_adapter", Access::kAdmin, plain<unpin_adapter>, "no longer", adapter_name_schema},
    Route{"POST", "/v1/adapter_uploads", Access::kAdmin, plain<begin_upload>, "says which files of an adapter will be sent",
          begin_upload_schema},
    Route{"PUT", "/v1/adapter_uploads/*", Access::kAdmin, put_upload, "behind /FILE?offset=N: the next piece of a file"},
    Route{"POST", "/v1/adapter_uploads/*", Access::kAdmin, load_upload, "behind /load: loads the adapter that was sent",
          load_upload_schema},
    Route{"DELETE", "/v1/adapter_uploads/*", Access::kAdmin, drop_upload, "forgets what was sent and not loaded"},
    Route{"POST", "/load_lora_adapter", Access::kAdmin, plain<sglang_load_adapter>, "loads an adapter, SGLang's form",
          load_adapter_schema},
    Route{"POST", "/unload_lora_adapter", Access::kAdmin, plain<sglang_unload_adapter>, "takes an adapter away, SGLang's form",
          unload_adapter_schema},
    Route{"POST", "/pause", Access::kAdmin, plain<pause_engine>,
          "no token is computed until /resume; ?mode= says what becomes of answers in flight: abort, wait, keep"},
    Route{"POST", "/resume", Access::kAdmin, plain<resume_engine>, "goes on"},
    Route{"GET", "/is_paused", Access::kUser, plain<show_paused>, "whether it stands still"},
    Route{"GET", "/get_world_size", Access::kUser, plain<show_world_size>, "how many processes compute an answer: one"},
    Route{"GET", "/lora-adapters", Access::kUser, plain<list_adapter_scales>, "llama.cpp's list of adapters"},
    Route{"POST", "/lora-adapters", Access::kAdmin, plain<set_adapter_scales>,
          "llama.cpp's scales of requests that name no adapter", adapter_scales_schema},
    Route{"POST", "/v1/rerank", Access::kUser, plain<rerank>, "orders texts by how well they answer a query", rerank_schema},
    Route{"POST", "/v1/reranking", Access::kUser, plain<rerank>, {}, rerank_schema},
    Route{"POST", "/v2/rerank", Access::kUser, plain<rerank>, {}, rerank_schema},
    Route{"POST", "/v1/score", Access::kUser, plain<score>, "how near texts are to each other", score_schema},
    Route{"POST", "/classify", Access::kUser, plain<classify>, "which class a text is of", classify_schema},
    Route{"POST", "/pooling", Access::kUser, plain<pooling>, "a text's vector or the scores of its classes", pooling_schema},
    // llama.cpp's own. Its two without /v1 are other routes than OpenAI's of the same name.
    Route{"POST", "/completion", Access::kUser, plain<native_completion>, "continues texts, llama.cpp's form", native_schema},
    Route{"POST", "/completions", Access::kUser, plain<native_completion>, "as /completion", native_schema},
    Route{"POST", "/infill", Access::kUser, plain<infill>, "fills the gap in a text, llama.cpp's form", infill_schema},
    Route{"POST", "/embedding", Access::kUser, plain<native_embeddings>, "vectors of texts, llama.cpp's form",
          native_embedding_schema},
    Route{"POST", "/embeddings", Access::kUser, plain<native_embeddings>, "as /embedding", native_embedding_schema},
    Route{"POST", "/apply-template", Access::kUser, plain<apply_template>, "the text that a conversation comes to", chat_schema},
    Route{"GET", "/props", Access::kUser, plain<show_props>, "llama.cpp's account of the server"},
    Route{"GET", "/slots", Access::kUser, plain<show_slots>, "which places for answers are taken, llama.cpp's form"},
    Route{"POST", "/api/chat", Access::kUser, plain<ollama_chat>, "answers a conversation, as Ollama's", ollama_chat_schema,
          Dialect::kOllama},
    Route{"POST", "/api/generate", Access::kUser, plain<ollama_generate>, "answers a prompt, as Ollama's", ollama_generate_schema,
          Dialect::kOllama},
    Route{"POST", "/api/embed", Access::kUser, plain<ollama_embed>, "vectors of texts, as Ollama's", ollama_embed_schema,
          Dialect::kOllama},
    Route{"GET", "/api/tags", Access::kUser, plain<ollama_tags>, "the base and its adapters, as Ollama's", nullptr,
          Dialect::kOllama},
    Route{"GET", "/api/ps", Access::kUser, plain<ollama_ps>, "those in memory, as Ollama's", nullptr, Dialect::kOllama},
    Route{"POST", "/api/show", Access::kUser, plain<ollama_show>, "one of them, as Ollama's", ollama_show_schema,
          Dialect::kOllama},
    Route{"GET", "/api/version", Access::kUser, plain<show_version>, "as /version, for Ollama's clients", nullptr,
          Dialect::kOllama},
    Route{"GET", "/", Access::kOpen, plain<console_page>, "the console, a page for people"},
    Route{"GET", "/console/*", Access::kOpen, console_part, "its scripts and styles"},
    Route{"GET", "/v1/engine", Access::kUser, plain<show_engine>, "what the engine is, what it chose and why, and what it does"},
};

void openapi(Service&, const Exchange& exchange, std::string_view) {
  std::vector<Endpoint> endpoints;
  for (const auto& r : kRoutes) {
    if (r.summary.empty()) continue;  // another way to say what is listed
    endpoints.push_back(
        {r.method, r.path, r.summary, r.body_schema == nullptr ? "" : r.body_schema(), r.access != Access::kOpen, r.dialect});
  }
  exchange->respond(json_response(openapi_document(endpoints)));
}

// Where '*' stands: what it stands for.
std::optional<std::string_view> match(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with('*')) return pattern == path ? std::optional(std::string_view()) : std::nullopt;
  pattern.remove_suffix(1);
  if (!path.starts_with(pattern) || path.size() == pattern.size()) return std::nullopt;
  return path.substr(pattern.size());
}

// HEAD is GET without its body, which the transport leaves out.
std::string_view routed_method(const HttpRequest& request) {
  if (request.method == "HEAD") return "GET";
  return request.method;
}

constexpr std::string_view kVersion = "/v1";

// Nothing: the pattern is not the path's, with the /v1 of one or the other left out.
std::optional<std::string_view> match_beside_version(std::string_view pattern, std::string_view path) {
  const bool has_version = pattern.starts_with(kVersion);
  if (!has_version && !path.starts_with(kVersion)) return std::nullopt;
  (has_version ? pattern : path).remove_prefix(kVersion.size());
  if (path == "/") return std::nullopt;  // the console has one address
  return match(pattern, path);
}

// use(route, what '*' stands for) of the path's routes, until it is true. What no route has as it stands goes with or without /v1
// like those.
template <class Use>
void for_routes_of(std::string_view path, Use use) {
  bool is_known = false;
  for (const auto find : {match, match_beside_version}) {
    for (const auto& r : kRoutes) {
      const auto rest = find(r.path, path);
      if (!rest) continue;
      is_known = true;
      if (use(r, *rest)) return;
    }
    if (is_known) return;
  }
}

const Route* find_route(const HttpRequest& request) {
  const Route* found = nullptr;
  for_routes_of(request.path, [&](const Route& r, std::string_view) {
    if (r.method == routed_method(request)) found = &r;
    return found != nullptr;
  });
  return found;
}

HttpResponse no_route(std::string_view path) {
  const std::string shown(path.substr(0, 128));
  if (const auto instead = instead_of(path))
    return error_response({.status = 404, .message = fmt::format("{} is not served: {}", shown, *instead), .code = "not_served"});
  return error_response({.status = 404,
                         .message = fmt::format("there is no {} here; GET /openapi.json lists the endpoints", shown),
                         .code = "not_found"});
}

}  // namespace

Access access_of(const HttpRequest& request) {
  const Route* const r = find_route(request);
  return r == nullptr ? Access::kUser : r->access;
}

bool reads_json(const HttpRequest& request) {
  const Route* const r = find_route(request);
  return r != nullptr && r->body_schema != nullptr;
}

bool takes_form(const HttpRequest& request) {
  const Route* const r = find_route(request);
  return r != nullptr && r->takes_form;
}

std::string_view route_of(const HttpRequest& request) {
  const Route* const r = find_route(request);
  return r == nullptr ? std::string_view() : r->path;
}

Dialect dialect_of(const HttpRequest& request) {
  Dialect dialect = request.path.starts_with("/api/") ? Dialect::kOllama : Dialect::kOpenAI;
  for_routes_of(request.path, [&](const Route& r, std::string_view) {
    dialect = r.dialect;
    return true;
  });
  return dialect;
}

void route(Service& service, const Exchange& exchange) {
  const HttpRequest& request = exchange->request();
  if (service.cors().is_preflight(request)) return exchange->respond(service.cors().preflight_answer(request));
  std::string allowed;
  bool is_handled = false;
  for_routes_of(request.path, [&](const Route& r, std::string_view rest) {
    is_handled = r.method == routed_method(request);
    if (is_handled) {
      r.handle(service, exchange, rest);
    } else {
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", r.method);
    }
    return is_handled;
  });
  if (is_handled) return;
  if (allowed.empty()) return exchange->respond(no_route(request.path));
  HttpResponse response = error_response(
      {.status = 405, .message = fmt::format("{} takes {}", request.path.substr(0, 128), allowed), .code = "method_not_allowed"});
  response.headers.add("Allow", allowed);
  exchange->respond(std::move(response));
}

}  // namespace choral::serve
